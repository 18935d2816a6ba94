//! ICMP for IPv4 (RFC 792, RFC 1191, RFC 1812).

use crate::header::wire_header;
use crate::{U16Be, U32Be};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The ICMP header; what `rest` means depends on the type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Icmp4Header {
    /// Message type
    pub icmp_type: Icmp4Type,
    /// Subtype
    pub code: u8,
    /// Checksum over the whole message, without a pseudo-header
    pub checksum: U16Be,
    /// Identifier and sequence, next-hop MTU, pointer, gateway or unused
    pub rest: U32Be,
}
wire_header!(Icmp4Header = 8);

/// ICMP message type.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Icmp4Type(pub u8);

impl Icmp4Type {
    /// Echo reply
    pub const ECHO_REPLY: Icmp4Type = Icmp4Type(0);
    /// Destination unreachable
    pub const DESTINATION_UNREACHABLE: Icmp4Type = Icmp4Type(3);
    /// Source quench; deprecated (RFC 6633)
    pub const SOURCE_QUENCH: Icmp4Type = Icmp4Type(4);
    /// Redirect
    pub const REDIRECT: Icmp4Type = Icmp4Type(5);
    /// Echo request
    pub const ECHO_REQUEST: Icmp4Type = Icmp4Type(8);
    /// Router advertisement (RFC 1256)
    pub const ROUTER_ADVERTISEMENT: Icmp4Type = Icmp4Type(9);
    /// Router solicitation (RFC 1256)
    pub const ROUTER_SOLICITATION: Icmp4Type = Icmp4Type(10);
    /// Time exceeded
    pub const TIME_EXCEEDED: Icmp4Type = Icmp4Type(11);
    /// Parameter problem
    pub const PARAMETER_PROBLEM: Icmp4Type = Icmp4Type(12);
    /// Timestamp request
    pub const TIMESTAMP_REQUEST: Icmp4Type = Icmp4Type(13);
    /// Timestamp reply
    pub const TIMESTAMP_REPLY: Icmp4Type = Icmp4Type(14);

    /// An error message: quotes a packet, and no error may be sent about it (RFC 1812, 4.3.2.7).
    #[inline(always)]
    pub const fn is_error(self) -> bool {
        matches!(
            self,
            Self::DESTINATION_UNREACHABLE | Self::SOURCE_QUENCH | Self::REDIRECT | Self::TIME_EXCEEDED | Self::PARAMETER_PROBLEM
        )
    }

    /// The name that packet traces use, if the type is a known one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::ECHO_REPLY => "echo_reply",
            Self::DESTINATION_UNREACHABLE => "destination_unreachable",
            Self::SOURCE_QUENCH => "source_quench",
            Self::REDIRECT => "redirect",
            Self::ECHO_REQUEST => "echo_request",
            Self::ROUTER_ADVERTISEMENT => "router_advertisement",
            Self::ROUTER_SOLICITATION => "router_solicitation",
            Self::TIME_EXCEEDED => "time_exceeded",
            Self::PARAMETER_PROBLEM => "parameter_problem",
            Self::TIMESTAMP_REQUEST => "timestamp_request",
            Self::TIMESTAMP_REPLY => "timestamp_reply",
            _ => return None,
        })
    }
}

/// Codes of destination unreachable.
pub mod unreachable {
    /// Network unreachable
    pub const NETWORK: u8 = 0;
    /// Host unreachable
    pub const HOST: u8 = 1;
    /// Protocol unreachable
    pub const PROTOCOL: u8 = 2;
    /// Port unreachable
    pub const PORT: u8 = 3;
    /// Fragmentation needed but don't-fragment set
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Communication administratively prohibited (RFC 1812, 5.2.7.1)
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// Codes of time exceeded.
pub mod time_exceeded {
    /// TTL exceeded in transit
    pub const TTL: u8 = 0;
    /// Fragment reassembly time exceeded
    pub const REASSEMBLY: u8 = 1;
}

impl Icmp4Header {
    /// A header with the checksum yet to be filled in.
    #[inline(always)]
    pub const fn new(icmp_type: Icmp4Type, code: u8, rest: u32) -> Self {
        Self { icmp_type, code, checksum: U16Be::ZERO, rest: U32Be::new(rest) }
    }

    /// Echo request.
    pub const fn echo_request(identifier: u16, sequence: u16) -> Self {
        Self::new(Icmp4Type::ECHO_REQUEST, 0, (identifier as u32) << 16 | sequence as u32)
    }

    /// Destination unreachable with code 4 (RFC 1191, 4).
    pub const fn fragmentation_needed(next_hop_mtu: u16) -> Self {
        let code = unreachable::FRAGMENTATION_NEEDED;
        Self::new(Icmp4Type::DESTINATION_UNREACHABLE, code, next_hop_mtu as u32)
    }

    /// Parameter problem at `pointer`, an offset in the quoted packet.
    pub const fn parameter_problem(pointer: u8) -> Self {
        Self::new(Icmp4Type::PARAMETER_PROBLEM, 0, (pointer as u32) << 24)
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

    /// Next-hop MTU of fragmentation needed; 0 from a router older than RFC 1191.
    #[inline(always)]
    pub const fn next_hop_mtu(&self) -> u16 {
        self.rest.get() as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Header;

    #[test]
    fn fields_lie_in_wire_order() {
        let echo = Icmp4Header::echo_request(0x0102, 0x0304);
        assert_eq!(echo.as_bytes(), [8, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!((echo.identifier(), echo.sequence()), (0x0102, 0x0304));
        let too_big = Icmp4Header::fragmentation_needed(1400);
        assert_eq!(too_big.as_bytes(), [3, 4, 0, 0, 0, 0, 5, 0x78]);
        assert_eq!(too_big.next_hop_mtu(), 1400);
        assert_eq!(Icmp4Header::parameter_problem(20).as_bytes(), [12, 0, 0, 0, 20, 0, 0, 0]);
        assert_eq!(Icmp4Header::read(echo.as_bytes()), Some(echo));
    }

    #[test]
    fn errors_are_the_types_that_quote_a_packet() {
        let errors: Vec<u8> = (0..=255).filter(|&t| Icmp4Type(t).is_error()).collect();
        assert_eq!(errors, [3, 4, 5, 11, 12]);
    }
}
