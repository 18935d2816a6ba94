//! Packets that are not plain TCP or UDP: finding out which flow they belong to, and changing them.

use quiver_graph::{Pkt, flags};
use quiver_wire::checksum::Sum;

use crate::fragments::{Datagram, Fragments};
use crate::session::{Direction, change, fold, update};

/// Why a packet belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFlow {
    /// Its headers are cut off.
    Short,
    /// It is an ICMP message of a type that is not translated.
    IcmpType,
    /// Its ICMP checksum is wrong (RFC 5508, REQ-3).
    IcmpChecksum,
    /// A later fragment of this datagram, whose first has not been seen.
    EarlyFragment(Datagram),
}

/// Where a layer-4 header lies that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// Not here (a later fragment), or without ports.
    None,
    /// UDP at this offset.
    Udp(usize),
    /// TCP.
    Tcp(usize),
    /// An ICMP query.
    Query(usize),
    /// An ICMP error with a packet in it.
    Error(usize),
}

/// What is found out about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Addresses of the flow in the packet's direction, raw: its own, or those in an ICMP error, turned round.
    pub addrs: u64,
    /// Ports, raw; of an ICMP query its identifier on the inside's place.
    pub ports: u32,
    /// Protocol of the flow.
    pub proto: u8,
    /// What to change.
    pub l4: L4,
    /// TCP flags; 0 where there are none.
    pub tcp_flags: u8,
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn addrs_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Two 16-bit values as they lie one after the other.
fn pair(first: u16, second: u16) -> u32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// The identifier of an ICMP query, on the side where the host that asked is: inside.
fn query_ports(identifier: u16, direction: Direction) -> u32 {
    match direction {
        Direction::In2Out => pair(identifier, 0),
        Direction::Out2In => pair(0, identifier),
    }
}

impl Flow {
    /// Looks at a packet whose data begins with an IPv4 header that `ip4-input` has accepted.
    ///
    /// # Errors
    /// See [`NoFlow`].
    pub fn of(packet: &Pkt<'_>, direction: Direction, fib: u16, fragments: &Fragments, now: u32) -> Result<Self, NoFlow> {
        let bytes = packet.bytes();
        let flow = Self::of_bytes(bytes, direction, fib, fragments, now)?;
        if let L4::Error(at) = flow.l4 {
            let mut sum = Sum::new();
            let mut skip = at;
            packet.for_each_segment(|bytes| {
                sum = sum.add_bytes(bytes.get(skip..).unwrap_or_default());
                skip = skip.saturating_sub(bytes.len());
            });
            if !sum.is_valid() {
                return Err(NoFlow::IcmpChecksum);
            }
        }
        Ok(flow)
    }

    fn of_bytes(bytes: &[u8], direction: Direction, fib: u16, fragments: &Fragments, now: u32) -> Result<Self, NoFlow> {
        let short = NoFlow::Short;
        let at = usize::from(*bytes.first().ok_or(short)? & 0x0f) * 4;
        let addrs = addrs_at(bytes, 12).ok_or(short)?;
        let proto = *bytes.get(9).ok_or(short)?;
        let fragment = u16::from_be(u16_at(bytes, 6).ok_or(short)?);
        let datagram = Datagram { addrs, id: u16_at(bytes, 4).ok_or(short)?, proto, fib };
        if fragment & 0x1fff != 0 {
            let has_ports = [ICMP, TCP, UDP].contains(&proto);
            let ports = if has_ports { fragments.recall(datagram, now).ok_or(NoFlow::EarlyFragment(datagram))? } else { 0 };
            return Ok(Self { addrs, ports, proto, l4: L4::None, tcp_flags: 0 });
        }
        let flow = Self::whole(bytes, addrs, proto, at, direction)?;
        if fragment & 0x2000 != 0 {
            fragments.remember(datagram, flow.ports, now);
        }
        Ok(flow)
    }

    fn whole(bytes: &[u8], addrs: u64, proto: u8, at: usize, direction: Direction) -> Result<Self, NoFlow> {
        let short = NoFlow::Short;
        let ports = u32_at(bytes, at);
        let flow = |ports, l4, tcp_flags| Ok(Self { addrs, ports, proto, l4, tcp_flags });
        match proto {
            UDP if bytes.len() >= at + 8 => flow(ports.ok_or(short)?, L4::Udp(at), 0),
            TCP if bytes.len() >= at + 20 => flow(ports.ok_or(short)?, L4::Tcp(at), bytes[at + 13]),
            ICMP if bytes.len() >= at + 8 => match bytes[at] {
                // Echo, and its reply: queries with an identifier (RFC 5508, 3.1).
                0 | 8 => flow(query_ports(u16_at(bytes, at + 4).ok_or(short)?, direction), L4::Query(at), 0),
                // Destination unreachable, time exceeded, parameter problem (RFC 5508, 4).
                3 | 11 | 12 => Self::inner(bytes, at, direction),
                _ => Err(NoFlow::IcmpType),
            },
            UDP | TCP | ICMP => Err(short),
            _ => flow(0, L4::None, 0),
        }
    }

    /// The flow of the packet in an ICMP error, turned round: the error goes the other way.
    fn inner(bytes: &[u8], at: usize, direction: Direction) -> Result<Self, NoFlow> {
        let short = NoFlow::Short;
        let inner = bytes.get(at + 8..).ok_or(short)?;
        let header = usize::from(*inner.first().ok_or(short)? & 0x0f) * 4;
        let (addrs, proto) = (addrs_at(inner, 12).ok_or(short)?, *inner.get(9).ok_or(short)?);
        if header < 20 {
            return Err(short);
        }
        let ports = match proto {
            UDP | TCP => u32_at(inner, header).ok_or(short)?.rotate_left(16),
            ICMP => match inner.get(header) {
                Some(0 | 8) => query_ports(u16_at(inner, header + 4).ok_or(short)?, direction),
                _ => return Err(NoFlow::IcmpType),
            },
            _ => 0,
        };
        Ok(Self { addrs: addrs.rotate_left(32), ports, proto, l4: L4::Error(at), tcp_flags: 0 })
    }

    /// Gives a packet other addresses and ports: those of the flow on the other side of the NAT, raw.
    pub fn change(&self, packet: &mut Pkt<'_>, addrs: u64, ports: u32) {
        let unfinished = packet.has(flags::CHECKSUM);
        let old = addrs_at(packet.bytes(), 12).unwrap_or_default();
        let own = if let L4::Error(_) = self.l4 { self.outer(old, addrs) } else { addrs };
        let bytes = packet.bytes_mut();
        let ip = change(old, own);
        put(bytes, 12, &own.to_ne_bytes());
        put_checksum(bytes, 10, ip, false);
        let port_change = change(u64::from(self.ports), u64::from(ports));
        let all = fold(u64::from(ip) + u64::from(port_change));
        match self.l4 {
            L4::None => {}
            L4::Udp(at) | L4::Tcp(at) => {
                put(bytes, at, &ports.to_ne_bytes());
                let (field, zero_is_none) = if self.proto == UDP { (at + 6, true) } else { (at + 16, false) };
                if unfinished {
                    // Only the pseudo-header has been summed, and not complemented.
                    if let Some(sum) = u16_at(bytes, field) {
                        put(bytes, field, &fold(u64::from(sum) + u64::from(ip)).to_ne_bytes());
                    }
                } else {
                    put_checksum(bytes, field, all, zero_is_none);
                }
            }
            L4::Query(at) => {
                let identifier = identifier(ports);
                put(bytes, at + 4, &identifier.to_ne_bytes());
                put_checksum(bytes, at + 2, port_change, false);
            }
            L4::Error(at) => {
                self.change_inner(bytes, at + 8, addrs.rotate_left(32), ports.rotate_left(16));
                self.sum_error(packet, at);
            }
        }
    }

    /// Outer addresses of an ICMP error: the destination is the flow's, the source only where the flow's other end itself
    /// speaks, or where it must not be seen.
    fn outer(&self, old: u64, addrs: u64) -> u64 {
        let parts = |x: u64| {
            let b = x.to_ne_bytes();
            ([b[0], b[1], b[2], b[3]], [b[4], b[5], b[6], b[7]])
        };
        let ((old_src, _), (flow_src, _), (src, dst)) = (parts(old), parts(self.addrs), parts(addrs));
        // From a router inside: it gets the address of the flow's inside end (RFC 5508, REQ-4 and 5).
        let hidden = flow_src != src;
        let src = if old_src == flow_src || hidden { src } else { old_src };
        u64::from_ne_bytes([src[0], src[1], src[2], src[3], dst[0], dst[1], dst[2], dst[3]])
    }

    fn change_inner(&self, bytes: &mut [u8], at: usize, addrs: u64, ports: u32) {
        let Some(inner) = bytes.get_mut(at..) else { return };
        let header = usize::from(inner.first().copied().unwrap_or_default() & 0x0f) * 4;
        let (old_addrs, old_ports) = (self.addrs.rotate_left(32), self.ports.rotate_left(16));
        let ip = change(old_addrs, addrs);
        put(inner, 12, &addrs.to_ne_bytes());
        put_checksum(inner, 10, ip, false);
        let port_change = change(u64::from(old_ports), u64::from(ports));
        let all = fold(u64::from(ip) + u64::from(port_change));
        match self.proto {
            UDP | TCP => {
                put(inner, header, &ports.to_ne_bytes());
                // Only eight bytes need be there.
                let (field, zero_is_none) = if self.proto == UDP { (header + 6, true) } else { (header + 16, false) };
                put_checksum(inner, field, all, zero_is_none);
            }
            ICMP => {
                let identifier = identifier(ports);
                put(inner, header + 4, &identifier.to_ne_bytes());
                put_checksum(inner, header + 2, port_change, false);
            }
            _ => {}
        }
    }

    /// Sums an ICMP error anew.
    fn sum_error(&self, packet: &mut Pkt<'_>, at: usize) {
        put(packet.bytes_mut(), at + 2, &[0, 0]);
        let mut sum = Sum::new();
        let mut skip = at;
        packet.for_each_segment(|bytes| {
            sum = sum.add_bytes(bytes.get(skip..).unwrap_or_default());
            skip = skip.saturating_sub(bytes.len());
        });
        put(packet.bytes_mut(), at + 2, &sum.checksum().to_be_bytes());
    }
}

/// The identifier in a query's ports: the other place is 0.
fn identifier(ports: u32) -> u16 {
    let b = ports.to_ne_bytes();
    u16::from_ne_bytes([b[0] | b[2], b[1] | b[3]])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: &[u8; N]) {
    if let Some(to) = bytes.get_mut(at..at + N) {
        to.copy_from_slice(value);
    }
}

/// Changes a checksum field that is there; one of 0 that means "none" stays.
fn put_checksum(bytes: &mut [u8], at: usize, by: u16, zero_is_none: bool) {
    let Some(old) = u16_at(bytes, at) else { return };
    if zero_is_none && old == 0 {
        return;
    }
    let new = update(old, by);
    put(bytes, at, &(if zero_is_none && new == 0 { 0xffff } else { new }).to_ne_bytes());
}

/// Lowers the maximum segment size option (RFC 9293, section 3.7.1) of a SYN whose TCP header is at `tcp` to `most`. A SYN
/// without the option stays without: its sender takes the default, 536 bytes.
pub fn clamp_mss(packet: &mut Pkt<'_>, tcp: usize, most: u16) {
    let unfinished = packet.has(flags::CHECKSUM);
    clamp_mss_in(packet.bytes_mut(), tcp, most, unfinished);
}

fn clamp_mss_in(bytes: &mut [u8], tcp: usize, most: u16, unfinished: bool) {
    let Some(header) = bytes.get(tcp + 12).map(|b| usize::from(b >> 4) * 4) else { return };
    let end = (tcp + header).min(bytes.len());
    let mut at = tcp + 20;
    while at < end {
        let len = match (bytes.get(at), bytes.get(at + 1)) {
            // End of options; no operation.
            (Some(0), _) => return,
            (Some(1), _) => 1,
            (Some(2), Some(4)) if at + 4 <= end => {
                let old = [bytes[at + 2], bytes[at + 3]];
                if u16::from_be_bytes(old) <= most {
                    return;
                }
                let new = most.to_be_bytes();
                put(bytes, at + 2, &new);
                if !unfinished {
                    // At an odd offset the bytes belong to the other halves of checksummed words.
                    let odd = (at - tcp) % 2 == 1;
                    let word = |b: [u8; 2]| u64::from(u16::from_ne_bytes(if odd { [b[1], b[0]] } else { b }));
                    put_checksum(bytes, tcp + 16, change(word(old), word(new)), false);
                }
                return;
            }
            // An option shorter than its own header would never end.
            (Some(_), Some(len)) if *len >= 2 => usize::from(*len),
            _ => return,
        };
        at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP header with these options, its checksum that of the header alone.
    fn syn(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xa5; 20];
        bytes.extend_from_slice(options);
        bytes[12] = ((bytes.len() / 4) as u8) << 4;
        bytes[16..18].fill(0);
        let sum = Sum::of(&bytes).checksum();
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_segment_size_is_lowered_wherever_the_option_lies() {
        for (options, at) in [(vec![2, 4, 5, 180], 2), (vec![1, 2, 4, 5, 180, 0, 0, 0], 3), (vec![3, 3, 7, 2, 4, 5, 180, 0], 5)] {
            let mut bytes = syn(&options);
            clamp_mss_in(&mut bytes, 0, 1400, false);
            assert_eq!(bytes[20 + at..22 + at], 1400_u16.to_be_bytes());
            assert!(Sum::of(&bytes).is_valid(), "{options:?}");
            let lower = bytes.clone();
            clamp_mss_in(&mut bytes, 0, 1460, false);
            assert_eq!(bytes, lower, "never raised");
        }
    }

    #[test]
    fn odd_options_are_left_alone() {
        for options in
            [vec![2, 0, 0, 0], vec![8, 1, 2, 4], vec![0, 2, 4, 5], vec![1, 1, 2, 4], vec![2, 3, 255, 255], vec![1, 1, 1, 2]]
        {
            let bytes = syn(&options);
            let mut after = bytes.clone();
            clamp_mss_in(&mut after, 0, 1, false);
            assert_eq!(after, bytes, "{options:?}");
        }
        for len in 0..24 {
            let mut cut = syn(&[2, 4, 5, 180]);
            cut.truncate(len);
            clamp_mss_in(&mut cut, 0, 1, false);
        }
    }
}
