//! What a stream sends: a template with fields that vary, or recorded packets.

use quiver_wire::Header;
use quiver_wire::checksum::{Sum, checksum, fill_l4};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

use super::Vary;
use super::field::{Field, Random, Running};
use super::resum::Resum;

/// Sizes of a stream's packets, bytes without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Smallest.
    pub low: usize,
    /// Largest.
    pub high: usize,
    /// How sizes vary between the two.
    pub vary: Vary,
}

/// Header lines put into bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// Headers and payload as described.
    pub bytes: Vec<u8>,
    /// Fields that vary.
    pub fields: Vec<Field>,
    /// Where the IP header starts, and whether it is IPv6.
    pub ip: Option<(usize, bool)>,
    /// Lengths and checksums that the description fixed are left as they are.
    pub keep_length: bool,
    /// See `keep_length`.
    pub keep_checksums: bool,
}

/// Where packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Made from a template.
    Made(Template),
    /// Recorded, sent in order, again and again.
    Recorded(Vec<Vec<u8>>),
}

/// A stream as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Unique name.
    pub name: String,
    /// Packets to send; `None`: without end.
    pub limit: Option<u64>,
    /// Packets a second; `None`: as fast as the graph takes them.
    pub rate: Option<f64>,
    /// Sizes; `None`: as made or recorded.
    pub sizes: Option<Sizes>,
    /// Worker, counted from 0.
    pub worker: usize,
    /// Largest vector, or the graph's.
    pub max_frame: Option<usize>,
    /// Seed of random fields and sizes.
    pub seed: u64,
    /// Packets.
    pub source: Source,
}

impl Template {
    /// Puts lengths and checksums right for a packet of `packet.len()` bytes.
    fn fix_up(&self, packet: &mut [u8]) {
        let Some((at, ipv6)) = self.ip else { return };
        let Some(datagram) = packet.get_mut(at..) else { return };
        if ipv6 { self.fix_ipv6(datagram) } else { self.fix_ipv4(datagram) }
    }

    fn fix_ipv4(&self, datagram: &mut [u8]) {
        let Some(mut ip) = Ipv4Header::read(datagram) else { return };
        let header_len = usize::from(datagram[0] & 0xf) * 4;
        if !self.keep_length {
            ip.total_len = (datagram.len().min(65_535) as u16).into();
        }
        let protocol = ip.protocol;
        let _ = ip.write_at(datagram, 0);
        if let Some(l4) = datagram.get_mut(header_len..) {
            let none = Sum::of(&[]);
            let pseudo = none.add_pseudo_v4(ip.src.get(), ip.dst.get(), protocol, l4.len() as u16);
            self.fix_l4(protocol, if protocol == IpProtocol::ICMP { none } else { pseudo }, l4);
        }
        if !self.keep_checksums && header_len >= 20 && header_len <= datagram.len() {
            datagram[10..12].fill(0);
            let sum = checksum(&datagram[..header_len]);
            datagram[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn fix_ipv6(&self, datagram: &mut [u8]) {
        let Some(mut ip) = Ipv6Header::read(datagram) else { return };
        if !self.keep_length {
            ip.payload_len = (datagram.len().saturating_sub(40).min(65_535) as u16).into();
        }
        let protocol = ip.next_header;
        let _ = ip.write_at(datagram, 0);
        if let Some(l4) = datagram.get_mut(40..) {
            let pseudo = Sum::of(&[]).add_pseudo_v6(ip.src.get(), ip.dst.get(), protocol, l4.len() as u32);
            self.fix_l4(protocol, pseudo, l4);
        }
    }

    fn fix_l4(&self, protocol: IpProtocol, pseudo: Sum, l4: &mut [u8]) {
        if protocol == IpProtocol::UDP && !self.keep_length && l4.len() >= 8 {
            let len = (l4.len().min(65_535) as u16).to_be_bytes();
            l4[4..6].copy_from_slice(&len);
        }
        if !self.keep_checksums {
            let _ = fill_l4(protocol, pseudo, l4);
        }
    }
}

/// A stream at work: makes one packet after the other into a scratch buffer.
pub(crate) struct Maker {
    source: Source,
    fields: Vec<Running>,
    sizes: Option<Sizes>,
    random: Random,
    size: Running,
    at: usize,
    /// How the packet in `scratch` becomes the next one.
    next: Next,
    scratch: Vec<u8>,
}

/// From a made packet to the next one.
enum Next {
    /// From the template.
    Anew,
    /// Its fields, and the checksums that these are in.
    Fields(Resum),
    /// Nothing varies.
    Same,
}

impl Maker {
    pub(crate) fn new(spec: &StreamSpec) -> Self {
        let fields = match &spec.source {
            Source::Made(template) => template.fields.iter().copied().map(Running::new).collect(),
            Source::Recorded(_) => Vec::new(),
        };
        let sizes = spec.sizes.unwrap_or(Sizes { low: 0, high: 0, vary: Vary::Increment });
        let size = Field { offset: 0, width: 16, low: sizes.low as u128, high: sizes.high as u128, vary: sizes.vary };
        Self {
            source: spec.source.clone(),
            fields,
            sizes: spec.sizes,
            random: Random::new(spec.seed),
            size: Running::new(size),
            at: 0,
            next: Next::Anew,
            scratch: Vec::new(),
        }
    }

    /// The next packet.
    pub(crate) fn next(&mut self) -> &[u8] {
        match &self.source {
            Source::Recorded(packets) => {
                let packet = packets.get(self.at).map_or(&[][..], Vec::as_slice);
                self.at = if self.at + 1 >= packets.len() { 0 } else { self.at + 1 };
                packet
            }
            Source::Made(template) => {
                match &self.next {
                    Next::Same => {}
                    Next::Fields(resum) => resum.write(&mut self.fields, &mut self.random, &mut self.scratch),
                    Next::Anew => {
                        make(template, self.sizes.is_some().then_some(&mut self.size), &mut self.random, &mut self.scratch);
                        for field in &mut self.fields {
                            field.write(&mut self.scratch, &mut self.random);
                        }
                        template.fix_up(&mut self.scratch);
                        if self.sizes.is_none_or(|s| s.low == s.high) {
                            self.next = Next::after(template, &self.fields, &self.scratch);
                        }
                    }
                }
                &self.scratch
            }
        }
    }
}

impl Next {
    /// After a packet whose size stays.
    fn after(template: &Template, fields: &[Running], packet: &[u8]) -> Self {
        if fields.is_empty() {
            return Self::Same;
        }
        let fields: Vec<Field> = fields.iter().map(Running::field).collect();
        Resum::new(template, &fields, packet).map_or(Self::Anew, Self::Fields)
    }
}

/// A template at its next size. Padding counts up, so that captures show at once where bytes went missing.
fn make(template: &Template, size: Option<&mut Running>, random: &mut Random, packet: &mut Vec<u8>) {
    packet.clear();
    packet.extend_from_slice(&template.bytes);
    let Some(size) = size else { return };
    let mut wide = [0; 16];
    size.write(&mut wide, random);
    let size = (u128::from_be_bytes(wide) as usize).max(template.ip.map_or(0, |(at, _)| at + 20));
    let from = packet.len();
    packet.resize(size, 0);
    for (i, byte) in packet.iter_mut().enumerate().skip(from) {
        *byte = (i - from) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Start, template};
    use super::*;

    fn spec(text: &str, sizes: Option<usize>, fields: &[Field]) -> StreamSpec {
        let mut made = template(text, Start::Ethernet).unwrap();
        made.fields.extend_from_slice(fields);
        StreamSpec {
            name: "x".into(),
            limit: None,
            rate: None,
            sizes: sizes.map(|n| Sizes { low: n, high: n, vary: Vary::Increment }),
            worker: 0,
            max_frame: None,
            seed: 3,
            source: Source::Made(made),
        }
    }

    /// Packets as they come, beside packets of which each is made from the template; and whether only fields were written.
    fn both(spec: &StreamSpec) -> bool {
        let (mut quick, mut slow) = (Maker::new(spec), Maker::new(spec));
        for n in 0..40 {
            slow.next = Next::Anew;
            assert_eq!(quick.next(), slow.next(), "packet {n} of {:?}", spec.source);
        }
        !matches!(quick.next, Next::Anew)
    }

    const MACS: &str = "02:00:00:00:00:01 -> 02:00:00:00:00:02";

    #[test]
    fn checksums_of_written_fields_are_those_of_packets_made_anew() {
        for (what, size) in [
            ("UDP: 10.0.0.1 - 10.0.0.77 -> 10.1.0.0 + 10.1.255.255 UDP: 1024 - 1030 -> 5 incrementing 18", None),
            ("UDP: 10.0.0.1 - 10.0.0.77 -> 10.1.0.0 + 10.1.255.255 UDP: 1024 - 1030 -> 5", Some(61)),
            ("TCP: 10.0.0.1 + 10.0.0.77 -> 10.1.0.2 TCP: 1 + 65535 -> 5", Some(90)),
            ("ICMP: 10.0.0.1 + 10.0.0.77 -> 10.1.0.2 ICMP echo_request", Some(77)),
        ] {
            assert!(both(&spec(&format!("IP4: {MACS} {what}"), size, &[])), "{what}");
        }
        let six = format!("IP6: {MACS} UDP: 2001:db8::1 - 2001:db8::99 -> 2001:db8:1::0 + 2001:db8:1::ffff UDP: 7 -> 9");
        assert!(both(&spec(&six, Some(101), &[])));
    }

    #[test]
    fn any_field_gives_the_packets_that_are_made_anew() {
        let mut random = Random::new(11);
        let mut below = |n: usize| random.up_to(n as u128 - 1) as usize;
        let texts = [
            "IP4: A UDP: 10.0.0.1 -> 10.1.0.2 UDP: 1 -> 2",
            "IP4: A TCP: 10.0.0.1 -> 10.1.0.2 TCP: 1 -> 2",
            "IP4: A ICMP: 10.0.0.1 -> 10.1.0.2 ICMP echo_request",
            "IP6: A UDP: 2001:db8::1 -> 2001:db8::2 UDP: 1 -> 2",
            "IP4: A UDP: 10.0.0.1 -> 10.1.0.2 UDP: 1 -> 2 checksum 0x1234",
        ];
        let mut quick = 0;
        for n in 0..3000 {
            let text = texts[n % texts.len()].replace('A', MACS);
            let fields: Vec<Field> = (0..1 + below(2))
                .map(|_| {
                    let width = 1 + below(6);
                    let most = (1u128 << (8 * width)) - 1;
                    let vary = [Vary::Increment, Vary::Random][below(2)];
                    Field { offset: below(100), width, low: below(9) as u128, high: most, vary }
                })
                .collect();
            quick += usize::from(both(&spec(&text, Some(80 + below(20)), &fields)));
        }
        // Most fields are plain ones; many are not.
        assert!((500..2900).contains(&quick), "{quick}");
    }

    #[test]
    fn a_field_that_says_how_a_packet_is_put_together_has_it_made_anew() {
        let text = format!("IP4: {MACS} UDP: 10.0.0.1 -> 10.1.0.2 UDP: 1 -> 2");
        let field = |offset, width| Field { offset, width, low: 0, high: 3, vary: Vary::Increment };
        for (offset, width, quick) in [
            (0, 6, true),   // an address of Ethernet
            (14, 1, false), // version and length of the header
            (16, 2, false), // length
            (20, 2, false), // fragment
            (22, 1, true),  // time to live
            (23, 1, false), // protocol
            (24, 2, false), // checksum
            (29, 3, true),  // within an address
            (29, 9, false), // from an address into the ports
            (34, 4, true),  // ports
            (38, 2, false), // length of UDP
            (40, 2, false), // its checksum
            (43, 3, true),  // payload, at an odd place
            (98, 4, false), // past the end
        ] {
            assert_eq!(both(&spec(&text, Some(100), &[field(offset, width)])), quick, "{width} bytes at {offset}");
        }
        assert!(!both(&spec(&text, Some(100), &[field(50, 4), field(53, 2)])), "fields that overlap");
    }
}
