//! What nodes for this router's own packets need to know of a packet's headers, in one form for both families.

use std::fmt::Write as _;

use quiver_graph::{Pkt, TraceEntry, flags};
use quiver_wire::Header;
use quiver_wire::checksum::Sum;
use quiver_wire::describe::{Ip4, Ip6};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Extension, ExtensionError, Extensions, Ipv6Header, Ipv6Options, UnknownOptionAction};

use crate::ip::{Family, FamilyId, V4, V6, icmp_aux};

/// ICMPv6 type of "parameter problem".
pub(crate) const PROBLEM6: u8 = 4;

/// What is behind a packet's network-layer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A whole message of the upper layer.
    Upper {
        protocol: IpProtocol,
        /// Where it starts, bytes from the IP header.
        offset: u16,
        /// Where the byte lies that names `protocol`: pointer of a parameter problem.
        pointer: u16,
    },
    /// A part of a datagram.
    Fragment,
    /// To be answered by this ICMP error ([`icmp_aux`]).
    Problem(u32),
    /// Not to be answered.
    Malformed,
    /// Nothing follows the headers (IPv6's "no next header").
    Nothing,
}

/// What differs between the families here.
pub(crate) trait LocalFamily: Family {
    /// Protocol number of ICMP.
    const ICMP: IpProtocol;

    /// Length of the packet that begins here, by its header; `None` where there is no whole header or the lengths contradict
    /// each other.
    fn length(packet: &Pkt<'_>) -> Option<usize>;

    /// Walks the headers; the packet has been trimmed to its length.
    fn behind(packet: &Pkt<'_>) -> Behind;

    /// Source and destination.
    fn addresses(packet: &Pkt<'_>) -> (Self::Addr, Self::Addr);

    /// The pseudo-header's sum for an upper-layer message of `len` bytes.
    fn pseudo(packet: &Pkt<'_>, protocol: IpProtocol, len: usize) -> Sum;

    /// Whether an address can be a packet's source: unicast, and not of a reserved block.
    fn is_source(address: Self::Addr) -> bool;

    /// A multicast or limited broadcast address.
    fn is_group(address: Self::Addr) -> bool;

    /// A message from a neighbour on the link, which may well say that it has our address (RFC 4862, 5.4).
    fn is_discovery(packet: &Pkt<'_>, protocol: IpProtocol) -> bool;

    /// The packet in words, as `show trace` has it.
    fn describe(bytes: &[u8], out: &mut String);
}

impl LocalFamily for V4 {
    const ICMP: IpProtocol = IpProtocol::ICMP;

    #[inline(always)]
    fn length(packet: &Pkt<'_>) -> Option<usize> {
        let header: Ipv4Header = packet.head();
        let (len, total) = (header.header_len(), usize::from(header.total_len.get()));
        (len >= Ipv4Header::LEN && packet.len() >= len && total >= len && packet.total_len() >= total).then_some(total)
    }

    #[inline(always)]
    fn behind(packet: &Pkt<'_>) -> Behind {
        let header: Ipv4Header = packet.head();
        if header.is_fragment() {
            return Behind::Fragment;
        }
        Behind::Upper { protocol: header.protocol, offset: header.header_len() as u16, pointer: 9 }
    }

    #[inline(always)]
    fn addresses(packet: &Pkt<'_>) -> (u32, u32) {
        let header: Ipv4Header = packet.head();
        (header.src.get(), header.dst.get())
    }

    fn pseudo(packet: &Pkt<'_>, protocol: IpProtocol, len: usize) -> Sum {
        if protocol == IpProtocol::ICMP {
            return Sum::new();
        }
        let (src, dst) = Self::addresses(packet);
        Sum::new().add_pseudo_v4(src, dst, protocol, len as u16)
    }

    #[inline(always)]
    fn is_source(address: u32) -> bool {
        !quiver_wire::ipv4::is_martian_src(address)
    }

    #[inline(always)]
    fn is_group(address: u32) -> bool {
        address >= 0xe000_0000
    }

    #[inline(always)]
    fn is_discovery(_: &Pkt<'_>, _: IpProtocol) -> bool {
        false
    }

    fn describe(bytes: &[u8], out: &mut String) {
        let _ = write!(out, "{}", Ip4(bytes));
    }
}

impl LocalFamily for V6 {
    const ICMP: IpProtocol = IpProtocol::ICMPV6;

    #[inline(always)]
    fn length(packet: &Pkt<'_>) -> Option<usize> {
        let header: Ipv6Header = packet.head();
        let total = Ipv6Header::LEN + usize::from(header.payload_len.get());
        (packet.len() >= Ipv6Header::LEN && packet.total_len() >= total).then_some(total)
    }

    #[inline(always)]
    fn behind(packet: &Pkt<'_>) -> Behind {
        let header: Ipv6Header = packet.head();
        let protocol = header.next_header;
        if matches!(protocol, IpProtocol::UDP | IpProtocol::TCP | IpProtocol::ICMPV6) {
            return Behind::Upper { protocol, offset: Ipv6Header::LEN as u16, pointer: 6 };
        }
        behind_extensions(&header, packet.bytes())
    }

    #[inline(always)]
    fn addresses(packet: &Pkt<'_>) -> (u128, u128) {
        let header: Ipv6Header = packet.head();
        (header.src.get(), header.dst.get())
    }

    fn pseudo(packet: &Pkt<'_>, protocol: IpProtocol, len: usize) -> Sum {
        let (src, dst) = Self::addresses(packet);
        Sum::new().add_pseudo_v6(src, dst, protocol, len as u32)
    }

    #[inline(always)]
    fn is_source(address: u128) -> bool {
        !quiver_wire::ipv6::address::is_martian_src(address)
    }

    #[inline(always)]
    fn is_group(address: u128) -> bool {
        quiver_wire::ipv6::address::is_multicast(address)
    }

    #[inline(always)]
    fn is_discovery(packet: &Pkt<'_>, protocol: IpProtocol) -> bool {
        protocol == IpProtocol::ICMPV6 && packet.head::<Ipv6Header>().hop_limit == 255
    }

    fn describe(bytes: &[u8], out: &mut String) {
        let _ = write!(out, "{}", Ip6(bytes));
    }
}

/// An IPv6 packet whose fixed header names something else than the usual upper layers.
#[cold]
fn behind_extensions(header: &Ipv6Header, packet: &[u8]) -> Behind {
    let (mut protocol, mut offset, mut pointer) = (header.next_header, Ipv6Header::LEN, 6);
    let multicast = V6::is_group(header.dst.get());
    for extension in Extensions::new(header, packet) {
        let extension = match extension {
            Ok(extension) => extension,
            // RFC 8200, 4.1: a hop-by-hop header elsewhere than first is an unrecognised next header.
            Err(ExtensionError::HopByHopNotFirst(at)) => return Behind::Problem(icmp_aux(PROBLEM6, 1, at)),
            Err(_) => return Behind::Malformed,
        };
        if extension.kind == IpProtocol::FRAGMENT {
            return Behind::Fragment;
        }
        if let Some(verdict) = examine(&extension, multicast) {
            return verdict;
        }
        (protocol, pointer) = (extension.next_header, extension.offset);
        offset = extension.offset + extension.bytes.len();
    }
    if protocol == IpProtocol::NO_NEXT_HEADER {
        return Behind::Nothing;
    }
    Behind::Upper { protocol, offset: offset as u16, pointer: pointer as u16 }
}

/// What an extension header demands, if it is not just passed over.
fn examine(extension: &Extension<'_>, multicast: bool) -> Option<Behind> {
    if let Some(routing) = extension.routing() {
        // RFC 8200, 4.4: no routing type is served here, type 0 least of all (RFC 5095).
        let pointer = extension.offset as u16 + 2;
        return (routing.segments_left != 0).then_some(Behind::Problem(icmp_aux(PROBLEM6, 0, pointer)));
    }
    if !matches!(extension.kind, IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS) {
        return None;
    }
    for option in Ipv6Options::new(extension.bytes) {
        let Ok(option) = option else { return Some(Behind::Malformed) };
        if option.kind == quiver_wire::ipv6::Ipv6Option::ROUTER_ALERT {
            continue;
        }
        let report = Behind::Problem(icmp_aux(PROBLEM6, 2, (extension.offset + option.offset) as u16));
        match option.action() {
            UnknownOptionAction::Skip => {}
            UnknownOptionAction::Discard => return Some(Behind::Malformed),
            UnknownOptionAction::DiscardAndReport => return Some(report),
            UnknownOptionAction::DiscardAndReportUnlessMulticast if multicast => return Some(Behind::Malformed),
            UnknownOptionAction::DiscardAndReportUnlessMulticast => return Some(report),
        }
    }
    None
}

/// Sum over `len` of a packet's bytes from `from` on, in all its segments, added to `sum`.
pub fn sum_range(packet: &Pkt<'_>, from: usize, len: usize, sum: Sum) -> Sum {
    let (mut sum, mut skip, mut left) = (sum, from, len);
    packet.for_each_segment(|bytes| {
        let start = skip.min(bytes.len());
        let n = left.min(bytes.len() - start);
        skip -= start;
        left -= n;
        sum = sum.add_bytes(&bytes[start..start + n]);
    });
    sum
}

/// Whether the checksum of the upper-layer message at `offset` is right. One that the sender's device was to finish
/// ([`flags::CHECKSUM`]) has never been on a wire: there is nothing to verify.
pub(crate) fn checksum_ok<F: LocalFamily>(packet: &Pkt<'_>, protocol: IpProtocol, offset: usize) -> bool {
    let len = packet.total_len().saturating_sub(offset);
    packet.has(flags::CHECKSUM) || sum_range(packet, offset, len, F::pseudo(packet, protocol, len)).is_valid()
}

/// Trace text of a node that leaves the packet at its IP header.
pub(crate) fn trace<F: LocalFamily>(entry: &TraceEntry, out: &mut String) {
    F::describe(&entry.bytes, out);
}

/// `ip4-receive` from `ip4` and `receive`.
pub(crate) fn node_name(family: FamilyId, rest: &str) -> String {
    format!("{}-{rest}", family.node_prefix())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_wire::build::Packet;
    use std::net::Ipv6Addr;

    fn behind(build: impl FnOnce(Packet) -> Packet) -> Behind {
        let packet = build(Packet::new().ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))).build();
        behind_extensions(&Ipv6Header::read(&packet).unwrap(), &packet)
    }

    #[test]
    fn options_are_passed_over_or_answered_by_their_action_bits() {
        let with = |kind: u8| behind(|p| p.destination_options(&[kind, 2, 0, 0]).udp(1, 2));
        let report = Behind::Problem(icmp_aux(4, 2, 42));
        let upper = Behind::Upper { protocol: IpProtocol::UDP, offset: 48, pointer: 40 };
        assert_eq!([with(0x1e), with(0x5e), with(0x9e), with(0xde)], [upper, Behind::Malformed, report, report]);
        assert_eq!(behind(|p| p.hop_by_hop(&[5, 2, 0, 0]).udp(1, 2)), upper);
    }

    #[test]
    fn a_routing_header_with_segments_left_is_answered_at_its_type() {
        let with = |left: u8| behind(|p| p.extension(IpProtocol::ROUTING, &[0, left, 0, 0, 0, 0]).udp(1, 2));
        assert_eq!(with(1), Behind::Problem(icmp_aux(4, 0, 42)));
        assert_eq!(with(0), Behind::Upper { protocol: IpProtocol::UDP, offset: 48, pointer: 40 });
    }

    #[test]
    fn a_hop_by_hop_header_that_is_not_first_is_an_unknown_next_header() {
        let got = behind(|p| p.destination_options(&[]).hop_by_hop(&[]).udp(1, 2));
        assert_eq!(got, Behind::Problem(icmp_aux(4, 1, 40)));
    }

    #[test]
    fn fragments_and_empty_packets_are_told_apart() {
        assert_eq!(behind(|p| p.fragment(7, 0, true).udp(1, 2)), Behind::Fragment);
        assert_eq!(behind(|p| p.destination_options(&[]).next(59)), Behind::Nothing);
    }
}
