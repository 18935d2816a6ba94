//! The flow hash: which of several equal paths a packet takes. Packets of one flow always take the same.

use quiver_graph::{Pkt, Shared};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

/// What the flow hash takes in; a set of bits, by table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowHash(pub u16);

impl FlowHash {
    /// Source address.
    pub const SRC: u16 = 1;
    /// Destination address.
    pub const DST: u16 = 1 << 1;
    /// Source port.
    pub const SPORT: u16 = 1 << 2;
    /// Destination port.
    pub const DPORT: u16 = 1 << 3;
    /// Protocol.
    pub const PROTO: u16 = 1 << 4;
    /// Both directions of a flow get different hashes the other way round: source and destination are swapped.
    pub const REVERSE: u16 = 1 << 5;
    /// Tunnel endpoint of GTP-U (version 1, UDP port 2152), which tells the users of a mobile network apart.
    pub const GTPV1TEID: u16 = 1 << 6;
    /// IPv6 flow label.
    pub const FLOWLABEL: u16 = 1 << 7;
    /// Both directions of a flow get the same hash: the lower address and the lower port come first.
    pub const SYMMETRIC: u16 = 1 << 8;
    /// As VPP has it unless told otherwise.
    pub const DEFAULT: Self = Self(Self::SRC | Self::DST | Self::SPORT | Self::DPORT | Self::PROTO | Self::FLOWLABEL);

    /// Names of the bits in the order of display.
    pub const NAMES: [(&'static str, u16); 9] = [
        ("src", Self::SRC),
        ("dst", Self::DST),
        ("sport", Self::SPORT),
        ("dport", Self::DPORT),
        ("proto", Self::PROTO),
        ("reverse", Self::REVERSE),
        ("gtpv1teid", Self::GTPV1TEID),
        ("flowlabel", Self::FLOWLABEL),
        ("symmetric", Self::SYMMETRIC),
    ];

    const fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }
}

impl Default for FlowHash {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl std::fmt::Display for FlowHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, bit) in Self::NAMES {
            if self.has(bit) {
                write!(f, "{name} ")?;
            }
        }
        Ok(())
    }
}

/// What identifies a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    src: u128,
    dst: u128,
    ports: (u16, u16),
    protocol: u8,
    label: u32,
    /// Of GTP-U; 0 elsewhere, or where it does not count.
    teid: u32,
}

/// Two odd constants of 64 bits with no structure (fractional parts of the square roots of 2 and 3).
const K1: u64 = 0x6a09_e667_f3bc_c909;
const K2: u64 = 0xbb67_ae85_84ca_a73b;

/// One round of multiply and fold: every input bit reaches the low bits of the result.
#[inline(always)]
fn mix(h: u64, x: u64) -> u64 {
    let product = u128::from(h ^ x) * u128::from(K1);
    (product as u64) ^ (product >> 64) as u64
}

impl Flow {
    fn hash(&self, config: FlowHash) -> u32 {
        let pick = |bit, value: u128| if config.has(bit) { value } else { 0 };
        let mut ends = (pick(FlowHash::SRC, self.src), pick(FlowHash::DST, self.dst));
        let mut ports = (pick(FlowHash::SPORT, self.ports.0.into()) as u64, pick(FlowHash::DPORT, self.ports.1.into()) as u64);
        if config.has(FlowHash::REVERSE) {
            (ends, ports) = ((ends.1, ends.0), (ports.1, ports.0));
        }
        if config.has(FlowHash::SYMMETRIC) {
            ends = (ends.0.min(ends.1), ends.0.max(ends.1));
            ports = (ports.0.min(ports.1), ports.0.max(ports.1));
        }
        let rest = u64::from(if config.has(FlowHash::PROTO) { self.protocol } else { 0 })
            | u64::from(if config.has(FlowHash::FLOWLABEL) { self.label } else { 0 }) << 8
            | ports.0 << 32
            | ports.1 << 48;
        let h = mix(K2, ends.0 as u64 ^ ((ends.0 >> 64) as u64).rotate_left(32));
        let h = mix(h, ends.1 as u64 ^ ((ends.1 >> 64) as u64).rotate_left(32));
        let h = mix(h, rest);
        let h = if self.teid == 0 { h } else { mix(h, self.teid.into()) };
        (h ^ h >> 32) as u32
    }
}

fn ports_at(packet: &Pkt<'_, Shared>, at: usize) -> (u16, u16) {
    match packet.read_at::<[u8; 4]>(at) {
        Some(b) => (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]])),
        None => (0, 0),
    }
}

/// UDP port of GTP-U (3GPP TS 29.281, 4.4.2).
const GTPU: u16 = 2152;

/// Tunnel endpoint of a UDP packet whose header is at `at`; 0 where there is none, or it does not count.
#[inline(always)]
fn teid_at(packet: &Pkt<'_, Shared>, at: usize, protocol: IpProtocol, ports: (u16, u16), config: FlowHash) -> u32 {
    if config.has(FlowHash::GTPV1TEID) && protocol == IpProtocol::UDP && ports.1 == GTPU { teid(packet, at + 8) } else { 0 }
}

/// What a GTP header says: version 1 and protocol type GTP in the high four bits, then type, length, endpoint.
#[cold]
fn teid(packet: &Pkt<'_, Shared>, at: usize) -> u32 {
    match packet.read_at::<[u8; 8]>(at) {
        Some([flags, _, _, _, a, b, c, d]) if flags & 0xf0 == 0x30 => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Flow hash of an IPv4 packet. All fragments of a datagram have the same: ports count only in packets that are none.
pub(crate) fn hash4(packet: &Pkt<'_, Shared>, config: FlowHash) -> u32 {
    let header: Ipv4Header = packet.head();
    let protocol = header.protocol;
    let ports = if protocol.has_ports() && !header.is_fragment() { ports_at(packet, header.header_len()) } else { (0, 0) };
    let teid = teid_at(packet, header.header_len(), protocol, ports, config);
    let (src, dst) = (header.src.get().into(), header.dst.get().into());
    Flow { src, dst, ports, protocol: protocol.0, label: 0, teid }.hash(config)
}

/// Flow hash of an IPv6 packet. Behind extension headers no ports are looked for: the flow label is there for that.
pub(crate) fn hash6(packet: &Pkt<'_, Shared>, config: FlowHash) -> u32 {
    let header: Ipv6Header = packet.head();
    let protocol = header.next_header;
    let ports = if protocol.has_ports() { ports_at(packet, size_of::<Ipv6Header>()) } else { (0, 0) };
    let label = header.flow_label();
    let teid = teid_at(packet, size_of::<Ipv6Header>(), protocol, ports, config);
    Flow { src: header.src.get(), dst: header.dst.get(), ports, protocol: protocol.0, label, teid }.hash(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(n: u32) -> Flow {
        Flow { src: u128::from(0x0a00_0001 + n), dst: 0x0b00_0001, ports: (1000, 80), protocol: 6, label: 7, teid: 0 }
    }

    #[test]
    fn only_what_is_configured_counts() {
        let base = flow(0);
        let changed = |f: fn(&mut Flow)| {
            let mut flow = base;
            f(&mut flow);
            flow
        };
        let changes: [(u16, Flow); 6] = [
            (FlowHash::SRC, changed(|f| f.src += 1)),
            (FlowHash::DST, changed(|f| f.dst += 1 << 64)),
            (FlowHash::SPORT, changed(|f| f.ports.0 += 1)),
            (FlowHash::DPORT, changed(|f| f.ports.1 += 1)),
            (FlowHash::PROTO, changed(|f| f.protocol += 1)),
            (FlowHash::FLOWLABEL, changed(|f| f.label += 1)),
        ];
        for (bit, flow) in changes {
            assert_ne!(base.hash(FlowHash(bit)), flow.hash(FlowHash(bit)), "{bit}");
            assert_eq!(base.hash(FlowHash(!bit)), flow.hash(FlowHash(!bit)), "{bit}");
        }
    }

    #[test]
    fn reverse_swaps_the_ends() {
        let there = flow(0);
        let back = Flow { src: there.dst, dst: there.src, ports: (there.ports.1, there.ports.0), ..there };
        let (plain, reverse) = (FlowHash::DEFAULT, FlowHash(FlowHash::DEFAULT.0 | FlowHash::REVERSE));
        assert_eq!(there.hash(plain), back.hash(reverse));
        assert_ne!(there.hash(plain), there.hash(reverse));
    }

    #[test]
    fn symmetric_is_the_same_both_ways() {
        let symmetric = FlowHash(FlowHash::DEFAULT.0 | FlowHash::SYMMETRIC);
        for n in 0..64 {
            let there = flow(n * 0x0100_0100);
            let back = Flow { src: there.dst, dst: there.src, ports: (there.ports.1, there.ports.0), ..there };
            assert_eq!(there.hash(symmetric), back.hash(symmetric));
            assert_ne!(there.hash(FlowHash::DEFAULT), back.hash(FlowHash::DEFAULT));
        }
        assert_ne!(flow(1).hash(symmetric), flow(2).hash(symmetric));
    }

    #[test]
    fn neighbouring_flows_spread_over_any_power_of_two() {
        for log2 in 1..=6 {
            let n = 1_u32 << log2;
            let mut counts = vec![0_f64; n as usize];
            for i in 0..1024 * n {
                counts[(flow(i).hash(FlowHash::DEFAULT) & (n - 1)) as usize] += 1.0;
            }
            // Chi-square over n - 1 degrees of freedom; mean n - 1, deviation sqrt(2 (n - 1)): 6 deviations are allowed.
            let chi: f64 = counts.iter().map(|c| (c - 1024.0).powi(2) / 1024.0).sum();
            let free = f64::from(n - 1);
            assert!(chi < free + 6.0 * (2.0 * free).sqrt(), "{n} buckets: {counts:?}");
        }
    }

    #[test]
    fn the_default_is_shown_as_vpp_shows_it() {
        assert_eq!(FlowHash::DEFAULT.to_string(), "src dst sport dport proto flowlabel ");
    }
}
