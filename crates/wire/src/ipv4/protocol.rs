//! What an IP packet carries.

use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IPv4's protocol, IPv6's next header: the IANA number of what follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)+) => {
        impl IpProtocol {
            $($(#[$doc])* pub const $name: IpProtocol = IpProtocol($number);)+

            /// The name that packet traces use, if the number is a known one.
            pub const fn name(self) -> Option<&'static str> {
                Some(match self {
                    $(Self::$name => $text,)+
                    _ => return None,
                })
            }
        }
    };
}
protocols! {
    /// IPv6 hop-by-hop options (RFC 8200, 4.3)
    HOP_BY_HOP = 0, "IP6_HOP_BY_HOP_OPTIONS";
    /// ICMP for IPv4 (RFC 792)
    ICMP = 1, "ICMP";
    /// IGMP (RFC 3376)
    IGMP = 2, "IGMP";
    /// IPv4 in IP (RFC 2003)
    IPV4 = 4, "IP_IN_IP";
    /// TCP (RFC 9293)
    TCP = 6, "TCP";
    /// UDP (RFC 768)
    UDP = 17, "UDP";
    /// IPv6 in IP (RFC 2473)
    IPV6 = 41, "IPV6";
    /// IPv6 routing header (RFC 8200, 4.4)
    ROUTING = 43, "IPV6_ROUTE";
    /// IPv6 fragment header (RFC 8200, 4.5)
    FRAGMENT = 44, "IPV6_FRAGMENTATION";
    /// GRE (RFC 2784)
    GRE = 47, "GRE";
    /// IPsec encapsulating security payload (RFC 4303)
    ESP = 50, "IPSEC_ESP";
    /// IPsec authentication header (RFC 4302)
    AH = 51, "IPSEC_AH";
    /// ICMP for IPv6 (RFC 4443)
    ICMPV6 = 58, "ICMP6";
    /// Nothing follows (RFC 8200, 4.7)
    NO_NEXT_HEADER = 59, "IP6_NONXT";
    /// IPv6 destination options (RFC 8200, 4.6)
    DESTINATION_OPTIONS = 60, "IP6_DESTINATION_OPTIONS";
    /// OSPF (RFC 2328)
    OSPF = 89, "OSPF";
    /// VRRP (RFC 9568)
    VRRP = 112, "VRRP";
    /// SCTP (RFC 9260)
    SCTP = 132, "SCTP";
}

impl IpProtocol {
    /// The L4 header begins with source and destination port, as in TCP, UDP and SCTP.
    #[inline(always)]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::TCP | Self::UDP | Self::SCTP)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown {}", self.0),
        }
    }
}

impl fmt::Debug for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
