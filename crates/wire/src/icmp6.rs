//! ICMPv6 (RFC 4443); neighbour discovery's bodies are in [`ndp`](crate::ndp).

use crate::header::wire_header;
use crate::{U16Be, U32Be};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The ICMPv6 header; what `rest` means depends on the type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Icmp6Header {
    /// Message type
    pub icmp_type: Icmp6Type,
    /// Subtype
    pub code: u8,
    /// Checksum over the pseudo-header and the whole message
    pub checksum: U16Be,
    /// Identifier and sequence, MTU, pointer, neighbour-discovery flags or unused
    pub rest: U32Be,
}
wire_header!(Icmp6Header = 8);

/// ICMPv6 message type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Icmp6Type(pub u8);

impl Icmp6Type {
    /// Destination unreachable
    pub const DESTINATION_UNREACHABLE: Icmp6Type = Icmp6Type(1);
    /// Packet too big
    pub const PACKET_TOO_BIG: Icmp6Type = Icmp6Type(2);
    /// Time exceeded
    pub const TIME_EXCEEDED: Icmp6Type = Icmp6Type(3);
    /// Parameter problem
    pub const PARAMETER_PROBLEM: Icmp6Type = Icmp6Type(4);
    /// Echo request
    pub const ECHO_REQUEST: Icmp6Type = Icmp6Type(128);
    /// Echo reply
    pub const ECHO_REPLY: Icmp6Type = Icmp6Type(129);
    /// Multicast listener query (RFC 3810)
    pub const MULTICAST_LISTENER_QUERY: Icmp6Type = Icmp6Type(130);
    /// Multicast listener report, version 1 (RFC 2710)
    pub const MULTICAST_LISTENER_REPORT: Icmp6Type = Icmp6Type(131);
    /// Multicast listener done (RFC 2710)
    pub const MULTICAST_LISTENER_DONE: Icmp6Type = Icmp6Type(132);
    /// Router solicitation (RFC 4861)
    pub const ROUTER_SOLICITATION: Icmp6Type = Icmp6Type(133);
    /// Router advertisement (RFC 4861)
    pub const ROUTER_ADVERTISEMENT: Icmp6Type = Icmp6Type(134);
    /// Neighbour solicitation (RFC 4861)
    pub const NEIGHBOR_SOLICITATION: Icmp6Type = Icmp6Type(135);
    /// Neighbour advertisement (RFC 4861)
    pub const NEIGHBOR_ADVERTISEMENT: Icmp6Type = Icmp6Type(136);
    /// Redirect (RFC 4861)
    pub const REDIRECT: Icmp6Type = Icmp6Type(137);
    /// Multicast listener report, version 2 (RFC 3810)
    pub const MULTICAST_LISTENER_REPORT_V2: Icmp6Type = Icmp6Type(143);

    /// An error message: no error may be sent about it (RFC 4443, 2.4 e).
    #[inline(always)]
    pub const fn is_error(self) -> bool {
        self.0 < 128
    }

    /// Neighbour discovery: only taken with hop limit 255 (RFC 4861, 6.1 and 7.1).
    #[inline(always)]
    pub const fn is_neighbor_discovery(self) -> bool {
        matches!(self.0, 133..=137)
    }

    /// The name that packet traces use, if the type is a known one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::DESTINATION_UNREACHABLE => "destination_unreachable",
            Self::PACKET_TOO_BIG => "packet_too_big",
            Self::TIME_EXCEEDED => "time_exceeded",
            Self::PARAMETER_PROBLEM => "parameter_problem",
            Self::ECHO_REQUEST => "echo_request",
            Self::ECHO_REPLY => "echo_reply",
            Self::MULTICAST_LISTENER_QUERY => "multicast_listener_request",
            Self::MULTICAST_LISTENER_REPORT => "multicast_listener_report",
            Self::MULTICAST_LISTENER_DONE => "multicast_listener_done",
            Self::ROUTER_SOLICITATION => "router_solicitation",
            Self::ROUTER_ADVERTISEMENT => "router_advertisement",
            Self::NEIGHBOR_SOLICITATION => "neighbor_solicitation",
            Self::NEIGHBOR_ADVERTISEMENT => "neighbor_advertisement",
            Self::REDIRECT => "redirect",
            Self::MULTICAST_LISTENER_REPORT_V2 => "multicast_listener_report_v2",
            _ => return None,
        })
    }
}

/// Codes of destination unreachable (RFC 4443, 3.1).
pub mod unreachable {
    /// No route to the destination
    pub const NO_ROUTE: u8 = 0;
    /// Administratively prohibited
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable
    pub const ADDRESS: u8 = 3;
    /// Port unreachable
    pub const PORT: u8 = 4;
}

/// Codes of time exceeded (RFC 4443, 3.3).
pub mod time_exceeded {
    /// Hop limit exceeded in transit
    pub const HOP_LIMIT: u8 = 0;
    /// Fragment reassembly time exceeded
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of parameter problem (RFC 4443, 3.4).
pub mod parameter_problem {
    /// Erroneous header field
    pub const HEADER_FIELD: u8 = 0;
    /// Unrecognised next-header type
    pub const NEXT_HEADER: u8 = 1;
    /// Unrecognised option
    pub const OPTION: u8 = 2;
}

impl Icmp6Header {
    /// A header with the checksum yet to be filled in.
    #[inline(always)]
    pub const fn new(icmp_type: Icmp6Type, code: u8, rest: u32) -> Self {
        Self { icmp_type, code, checksum: U16Be::ZERO, rest: U32Be::new(rest) }
    }

    /// Echo request.
    pub const fn echo_request(identifier: u16, sequence: u16) -> Self {
        Self::new(Icmp6Type::ECHO_REQUEST, 0, (identifier as u32) << 16 | sequence as u32)
    }

    /// Packet too big, with the MTU of the next link.
    pub const fn packet_too_big(mtu: u32) -> Self {
        Self::new(Icmp6Type::PACKET_TOO_BIG, 0, mtu)
    }

    /// Parameter problem at `pointer`, an offset in the quoted packet.
    pub const fn parameter_problem(code: u8, pointer: u32) -> Self {
        Self::new(Icmp6Type::PARAMETER_PROBLEM, code, pointer)
    }

    /// Identifier of an echo message.
    #[inline(always)]
    pub const fn identifier(&self) -> u16 {
        (self.rest.get() >> 16) as u16
    }

    /// Sequence number of an echo message.
    #[inline(always)]
    pub const fn sequence(&self) -> u16 {
        self.rest.get() as u16
    }

    /// MTU of packet too big.
    #[inline(always)]
    pub const fn mtu(&self) -> u32 {
        self.rest.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    #[test]
    fn fields_lie_in_wire_order() {
        let echo = Icmp6Header::echo_request(0x0102, 0x0304);
        assert_eq!(echo.as_bytes(), [128, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!((echo.identifier(), echo.sequence()), (0x0102, 0x0304));
        let too_big = Icmp6Header::packet_too_big(1400);
        assert_eq!(too_big.as_bytes(), [2, 0, 0, 0, 0, 0, 5, 0x78]);
        assert_eq!(too_big.mtu(), 1400);
        assert_eq!(Icmp6Header::read(echo.as_bytes()), Some(echo));
    }

    #[test]
    fn errors_and_neighbour_discovery_are_told_by_type() {
        assert!((0..128).all(|t| Icmp6Type(t).is_error()));
        assert!((128..=255).all(|t| !Icmp6Type(t).is_error()));
        let discovery: Vec<u8> = (0..=255).filter(|&t| Icmp6Type(t).is_neighbor_discovery()).collect();
        assert_eq!(discovery, [133, 134, 135, 136, 137]);
    }
}
