//! What differs between ICMP and ICMPv6.

use quiver_graph::{Pkt, flags};
use quiver_wire::checksum::Update;
use quiver_wire::icmp4::{self, Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::{self, Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header, Ipv4Option, Ipv4Options};
use quiver_wire::ipv6::{Ipv6Header, upper_layer};
use quiver_wire::{Header, U16Be};

use super::error::Drop as ErrorDrop;
use crate::ip::{V4, V6};
use crate::local::address::SourceTable;
use crate::local::header::{LocalFamily, sum_range};

/// TTL and hop limit of what this router sends.
pub(super) const TTL: u8 = 64;

/// Why an echo request is not answered.
pub(super) enum NoEcho {
    /// Sent to many.
    Group,
    /// With options that an answer cannot carry.
    Options,
    /// This router has no address to answer from.
    NoSource,
}

/// A family's ICMP.
pub(super) trait IcmpFamily: LocalFamily + super::ping::PingFamily {
    /// What a datagram of this family can always be reassembled to, or is never cut below: an error is no longer.
    const ERROR_LEN: usize;
    /// Headers of an error before what it quotes.
    const ERROR_HEADERS: usize;
    /// Type of an echo reply.
    const ECHO_REPLY: u8;
    /// Type of an echo request.
    const ECHO_REQUEST: u8;

    /// Demands on a message's hop limit and code beyond the checksum, by type.
    fn check_message(packet: &Pkt<'_>, kind: u8, code: u8) -> Result<(), super::input::Drop>;

    /// Turns a checked echo request, whose ICMP header begins at `offset`, into its reply.
    fn reply(packet: &mut Pkt<'_>, offset: usize, sources: &SourceTable, id: u16) -> Result<(), NoEcho>;

    /// Why no error may be sent about a packet (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4 e).
    fn forbidden(packet: &Pkt<'_>, kind: u8, code: u8) -> Option<ErrorDrop>;

    /// Source of an error about a packet.
    fn error_source(packet: &Pkt<'_>, sources: &SourceTable) -> Self::Addr;

    /// Writes the headers of an error in front of what it quotes; room for them has been made.
    fn write_error(packet: &mut Pkt<'_>, source: Self::Addr, dst: Self::Addr, tos: u8, error: (u8, u8, u16), id: u16);

    /// Type of service or traffic class.
    fn tos(packet: &Pkt<'_>) -> u8;

    /// What is counted about an error that is sent.
    fn sent(kind: u8) -> ErrorDrop;
}

/// Source route options would have to be turned round (RFC 1122, 3.2.2.6); hosts do not honour them any more (RFC 6274).
fn has_source_route(packet: &[u8]) -> bool {
    Ipv4Options::of_packet(packet)
        .any(|option| option.is_ok_and(|o| matches!(o.kind, Ipv4Option::LOOSE_SOURCE_ROUTE | Ipv4Option::STRICT_SOURCE_ROUTE)))
}

/// Whether an ICMP type is that of an error message, or unknown because the packet ends before it.
fn quotes_error(l4: Option<&[u8]>, is_error: impl Fn(u8) -> bool) -> bool {
    l4.and_then(|l4| l4.first()).is_none_or(|kind| is_error(*kind))
}

impl IcmpFamily for V4 {
    // RFC 1812, 4.3.2.3
    const ERROR_LEN: usize = 576;
    const ERROR_HEADERS: usize = Ipv4Header::LEN + Icmp4Header::LEN;
    const ECHO_REPLY: u8 = Icmp4Type::ECHO_REPLY.0;
    const ECHO_REQUEST: u8 = Icmp4Type::ECHO_REQUEST.0;

    fn check_message(_: &Pkt<'_>, _: u8, _: u8) -> Result<(), super::input::Drop> {
        Ok(())
    }

    fn reply(packet: &mut Pkt<'_>, offset: usize, _: &SourceTable, id: u16) -> Result<(), NoEcho> {
        let mut header: Ipv4Header = packet.head();
        // RFC 1122, 3.2.2.6: an echo to many may be ignored, and is.
        if packet.has(flags::LINK_MULTICAST) || Self::is_group(header.dst.get()) {
            return Err(NoEcho::Group);
        }
        if header.has_options() && has_source_route(packet.bytes()) {
            return Err(NoEcho::Options);
        }
        let len = packet.total_len() - offset;
        let unfinished = packet.has(flags::CHECKSUM);
        let Some(icmp) = packet.bytes().get(offset..).and_then(Icmp4Header::read) else { return Err(NoEcho::Options) };
        let changed = Update::new(icmp.checksum.get()).u16(u16::from(icmp.icmp_type.0) << 8, 0).finish();
        let mut reply = Icmp4Header { icmp_type: Icmp4Type::ECHO_REPLY, checksum: U16Be::new(changed), ..icmp };
        if unfinished {
            reply.checksum = U16Be::ZERO;
        }
        let _ = reply.write_at(packet.bytes_mut(), offset);
        if unfinished {
            reply.checksum = U16Be::new(sum_range(packet, offset, len, Default::default()).checksum());
            let _ = reply.write_at(packet.bytes_mut(), offset);
            packet.clear_unfinished_checksum();
        }
        (header.src, header.dst) = (header.dst, header.src);
        header.ttl = TTL;
        header.identification = U16Be::new(id);
        header.fragment = U16Be::ZERO;
        header.set_ecn(0);
        // Options go back as they came.
        header.fill_checksum_with_options(packet.bytes().get(Ipv4Header::LEN..header.header_len()).unwrap_or_default());
        packet.set_head(header);
        Ok(())
    }

    fn forbidden(packet: &Pkt<'_>, _: u8, _: u8) -> Option<ErrorDrop> {
        let header: Ipv4Header = packet.head();
        let (src, dst) = (header.src.get(), header.dst.get());
        if packet.len() < Ipv4Header::LEN || header.header_len() < Ipv4Header::LEN {
            return Some(ErrorDrop::Malformed);
        }
        if header.is_later_fragment() {
            return Some(ErrorDrop::Fragment);
        }
        if packet.has(flags::LINK_MULTICAST) || Self::is_group(dst) {
            return Some(ErrorDrop::Group);
        }
        if !Self::is_source(src) {
            return Some(ErrorDrop::Source);
        }
        let l4 = packet.bytes().get(header.header_len()..);
        let about_error = header.protocol == IpProtocol::ICMP && quotes_error(l4, |kind| Icmp4Type(kind).is_error());
        about_error.then_some(ErrorDrop::AboutError)
    }

    fn error_source(packet: &Pkt<'_>, sources: &SourceTable) -> u32 {
        sources.ip4(packet.rx_if())
    }

    fn write_error(packet: &mut Pkt<'_>, source: u32, dst: u32, tos: u8, (kind, code, data): (u8, u8, u16), id: u16) {
        let total = packet.total_len();
        let mut header = Ipv4Header::new(source.into(), dst.into(), IpProtocol::ICMP);
        header.total_len = U16Be::new(total as u16);
        header.ttl = TTL;
        // RFC 1812, 4.3.2.5: precedence of internetwork control, the rest as it came.
        header.tos = tos & 0x1c | 0xc0;
        header.identification = U16Be::new(id);
        header.fill_checksum();
        let rest = match (Icmp4Type(kind), code) {
            (Icmp4Type::PARAMETER_PROBLEM, _) => u32::from(data) << 24,
            (Icmp4Type::DESTINATION_UNREACHABLE, icmp4::unreachable::FRAGMENTATION_NEEDED) => data.into(),
            _ => 0,
        };
        let mut icmp = Icmp4Header::new(Icmp4Type(kind), code, rest);
        packet.set_head(header);
        packet.set_head_at::<_, { Ipv4Header::LEN }>(icmp);
        let sum = sum_range(packet, Ipv4Header::LEN, total - Ipv4Header::LEN, Default::default());
        icmp.checksum = U16Be::new(sum.checksum());
        packet.set_head_at::<_, { Ipv4Header::LEN }>(icmp);
    }

    fn tos(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv4Header>().tos
    }

    fn sent(kind: u8) -> ErrorDrop {
        match Icmp4Type(kind) {
            Icmp4Type::TIME_EXCEEDED => ErrorDrop::TimeExceededSent,
            Icmp4Type::PARAMETER_PROBLEM => ErrorDrop::ProblemSent,
            _ => ErrorDrop::UnreachableSent,
        }
    }
}

impl IcmpFamily for V6 {
    // RFC 4443, 2.4 c
    const ERROR_LEN: usize = quiver_wire::ipv6::MIN_MTU;
    const ERROR_HEADERS: usize = Ipv6Header::LEN + Icmp6Header::LEN;
    const ECHO_REPLY: u8 = Icmp6Type::ECHO_REPLY.0;
    const ECHO_REQUEST: u8 = Icmp6Type::ECHO_REQUEST.0;

    fn check_message(packet: &Pkt<'_>, kind: u8, code: u8) -> Result<(), super::input::Drop> {
        if !Icmp6Type(kind).is_neighbor_discovery() {
            return Ok(());
        }
        // RFC 4861, 6.1 and 7.1
        if packet.head::<Ipv6Header>().hop_limit != 255 {
            return Err(super::input::Drop::HopLimit);
        }
        if code == 0 { Ok(()) } else { Err(super::input::Drop::Code) }
    }

    fn reply(packet: &mut Pkt<'_>, offset: usize, sources: &SourceTable, _: u16) -> Result<(), NoEcho> {
        let header: Ipv6Header = packet.head();
        let len = packet.total_len() - offset;
        let Some(icmp) = packet.bytes().get(offset..).and_then(Icmp6Header::read) else { return Err(NoEcho::Options) };
        // RFC 4443, 4.2: an echo to many is answered from the address of the link that it came in on.
        let (to, from) = (header.src.get(), header.dst.get());
        let source = if Self::is_group(from) { sources.ip6(packet.rx_if(), to) } else { from };
        if source == 0 {
            return Err(NoEcho::NoSource);
        }
        let mut reply = Ipv6Header::new(source.into(), to.into(), IpProtocol::ICMPV6);
        reply.hop_limit = TTL;
        reply.payload_len = U16Be::new(len as u16);
        reply.set_traffic_class(header.traffic_class() & !3);
        let update = Update::new(icmp.checksum.get()).u16(u16::from(icmp.icmp_type.0) << 8, u16::from(Self::ECHO_REPLY) << 8);
        let mut message = Icmp6Header { icmp_type: Icmp6Type::ECHO_REPLY, ..icmp };
        message.checksum = U16Be::new(update.u128(from, source).finish());
        // Extension headers of the request end here.
        packet.pull(offset - Ipv6Header::LEN);
        packet.set_head(reply);
        if packet.has(flags::CHECKSUM) {
            message.checksum = U16Be::ZERO;
            packet.set_head_at::<_, { Ipv6Header::LEN }>(message);
            let sum = sum_range(packet, Ipv6Header::LEN, len, Self::pseudo(packet, IpProtocol::ICMPV6, len));
            message.checksum = U16Be::new(sum.checksum());
            packet.clear_unfinished_checksum();
        }
        packet.set_head_at::<_, { Ipv6Header::LEN }>(message);
        Ok(())
    }

    fn forbidden(packet: &Pkt<'_>, kind: u8, code: u8) -> Option<ErrorDrop> {
        let header: Ipv6Header = packet.head();
        let (src, dst) = (header.src.get(), header.dst.get());
        if packet.len() < Ipv6Header::LEN {
            return Some(ErrorDrop::Malformed);
        }
        // RFC 4443, 2.4 e.3: those two may answer what was sent to many.
        let option = (Icmp6Type::PARAMETER_PROBLEM.0, icmp6::parameter_problem::OPTION);
        let may_be_group = kind == Icmp6Type::PACKET_TOO_BIG.0 || (kind, code) == option;
        if !may_be_group && (packet.has(flags::LINK_MULTICAST) || Self::is_group(dst)) {
            return Some(ErrorDrop::Group);
        }
        if !Self::is_source(src) {
            return Some(ErrorDrop::Source);
        }
        let Ok(upper) = upper_layer(&header, packet.bytes()) else {
            // Headers that cannot be followed hide what they carry; a fault in them is still worth an answer.
            return (kind != Icmp6Type::PARAMETER_PROBLEM.0 && kind != Icmp6Type::TIME_EXCEEDED.0).then_some(ErrorDrop::Malformed);
        };
        if upper.fragment.is_some_and(|f| f.offset != 0) && kind != Icmp6Type::PARAMETER_PROBLEM.0 {
            return Some(ErrorDrop::Fragment);
        }
        if upper.fragment.is_some_and(|f| f.offset != 0) || upper.protocol != IpProtocol::ICMPV6 {
            return None;
        }
        let l4 = packet.bytes().get(usize::from(upper.offset)..);
        // RFC 4443, 2.4 e.1 and e.2: nor about a redirect.
        let about_error = quotes_error(l4, |kind| Icmp6Type(kind).is_error() || Icmp6Type(kind) == Icmp6Type::REDIRECT);
        about_error.then_some(ErrorDrop::AboutError)
    }

    fn error_source(packet: &Pkt<'_>, sources: &SourceTable) -> u128 {
        sources.ip6(packet.rx_if(), packet.head::<Ipv6Header>().src.get())
    }

    fn write_error(packet: &mut Pkt<'_>, source: u128, dst: u128, tos: u8, (kind, code, data): (u8, u8, u16), _: u16) {
        let len = packet.total_len() - Ipv6Header::LEN;
        let mut header = Ipv6Header::new(source.into(), dst.into(), IpProtocol::ICMPV6);
        header.payload_len = U16Be::new(len as u16);
        header.hop_limit = TTL;
        header.set_traffic_class(tos & !3);
        let rest = match Icmp6Type(kind) {
            Icmp6Type::PACKET_TOO_BIG | Icmp6Type::PARAMETER_PROBLEM => data.into(),
            _ => 0,
        };
        let mut icmp = Icmp6Header::new(Icmp6Type(kind), code, rest);
        packet.set_head(header);
        packet.set_head_at::<_, { Ipv6Header::LEN }>(icmp);
        let pseudo = Self::pseudo(packet, IpProtocol::ICMPV6, len);
        icmp.checksum = U16Be::new(sum_range(packet, Ipv6Header::LEN, len, pseudo).checksum());
        packet.set_head_at::<_, { Ipv6Header::LEN }>(icmp);
    }

    fn tos(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv6Header>().traffic_class()
    }

    fn sent(kind: u8) -> ErrorDrop {
        match Icmp6Type(kind) {
            Icmp6Type::TIME_EXCEEDED => ErrorDrop::TimeExceededSent,
            Icmp6Type::PARAMETER_PROBLEM => ErrorDrop::ProblemSent,
            Icmp6Type::PACKET_TOO_BIG => ErrorDrop::TooBigSent,
            _ => ErrorDrop::UnreachableSent,
        }
    }
}
