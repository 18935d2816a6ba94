//! Neighbour discovery for IPv6 (RFC 4861): message bodies and their options.
//!
//! ```text
//!  Icmp6Header (its `rest` holds RA's and NA's flags) | body | options …
//!  RS: no body    RA: RouterAdvertisement    NS, NA: target    redirect: Redirect
//! ```

use crate::header::wire_header;
use crate::icmp6::{Icmp6Header, Icmp6Type};
use crate::ipv6::{Ipv6Header, address};
use crate::{Header, Ipv6Prefix, MacAddr, U16Be, U32Be, U128Be};
use core::net::Ipv6Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod options;
pub use options::{NdpOption, NdpOptions, PrefixInfo};

/// Neighbour solicitation or advertisement with its ICMPv6 header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NeighborMessage {
    /// Type, code, checksum; `rest` holds the flags of an advertisement
    pub icmp: Icmp6Header,
    /// Whose link-layer address is asked for or told
    pub target: U128Be,
}

/// Router advertisement with its ICMPv6 header, whose `rest` holds hop limit, flags and lifetime.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouterAdvertisement {
    /// Type, code, checksum; `rest` as the accessors show it
    pub icmp: Icmp6Header,
    /// How long a neighbour counts as reachable, in ms; 0 for unspecified
    pub reachable_time: U32Be,
    /// Time between solicitations, in ms; 0 for unspecified
    pub retrans_timer: U32Be,
}

/// Redirect with its ICMPv6 header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Redirect {
    /// Type, code, checksum
    pub icmp: Icmp6Header,
    /// The better first hop
    pub target: U128Be,
    /// What is redirected
    pub destination: U128Be,
}
wire_header!(NeighborMessage = 24, RouterAdvertisement = 16, Redirect = 40);

/// Flags of a neighbour advertisement, in the top bits of [`Icmp6Header::rest`].
pub mod neighbor_flags {
    /// The sender is a router
    pub const ROUTER: u32 = 1 << 31;
    /// Answers a solicitation
    pub const SOLICITED: u32 = 1 << 30;
    /// Replaces a cached link-layer address
    pub const OVERRIDE: u32 = 1 << 29;
}

impl NeighborMessage {
    /// Solicitation for `target`.
    pub const fn solicitation(target: Ipv6Addr) -> Self {
        Self { icmp: Icmp6Header::new(Icmp6Type::NEIGHBOR_SOLICITATION, 0, 0), target: U128Be::new(target.to_bits()) }
    }

    /// Advertisement of `target` with [`neighbor_flags`].
    pub const fn advertisement(target: Ipv6Addr, flags: u32) -> Self {
        Self { icmp: Icmp6Header::new(Icmp6Type::NEIGHBOR_ADVERTISEMENT, 0, flags), target: U128Be::new(target.to_bits()) }
    }

    /// Whose link-layer address is asked for or told.
    #[inline(always)]
    pub const fn target_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.target.get())
    }
}

impl RouterAdvertisement {
    /// An advertisement that leaves hop limit, reachable time and retransmission timer unspecified; the lifetime as a
    /// default router is in seconds, 0 for "not one".
    pub const fn new(router_lifetime: u16) -> Self {
        Self {
            icmp: Icmp6Header::new(Icmp6Type::ROUTER_ADVERTISEMENT, 0, router_lifetime as u32),
            reachable_time: U32Be::ZERO,
            retrans_timer: U32Be::ZERO,
        }
    }

    /// Hop limit that hosts shall use; 0 for unspecified.
    pub const fn hop_limit(&self) -> u8 {
        (self.icmp.rest.get() >> 24) as u8
    }

    /// Addresses are to be had from DHCPv6.
    pub const fn managed(&self) -> bool {
        self.icmp.rest.get() & 1 << 23 != 0
    }

    /// Other configuration is to be had from DHCPv6.
    pub const fn other_config(&self) -> bool {
        self.icmp.rest.get() & 1 << 22 != 0
    }

    /// Seconds for which the sender is a default router.
    pub const fn router_lifetime(&self) -> u16 {
        self.icmp.rest.get() as u16
    }

    /// Sets hop limit and flags.
    pub const fn set(&mut self, hop_limit: u8, managed: bool, other_config: bool) {
        let lifetime = self.router_lifetime() as u32;
        let flags = (managed as u32) << 23 | (other_config as u32) << 22;
        self.icmp.rest = U32Be::new((hop_limit as u32) << 24 | flags | lifetime);
    }
}

/// Why a neighbour-discovery message must be ignored (RFC 4861, 6.1, 7.1, 8.1).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum NdpError {
    /// Hop limit is not 255: the packet may come from off the link
    HopLimit,
    /// Code is not 0
    Code,
    /// Message is shorter than its fixed part
    TooShort,
    /// An option has length 0 or reaches past the end
    BadOption,
    /// Target is a multicast address, or a redirect's neither link-local nor the destination
    BadTarget,
    /// Source address is not allowed for this message: an advertisement's not link-local, or a source link-layer option
    /// with the unspecified address
    BadSource,
    /// Solicitation from the unspecified address to something else than a solicited-node group
    BadDestination,
    /// A solicited advertisement to a multicast address
    SolicitedMulticast,
}

/// The checks that RFC 4861 demands of every received message. `message` begins at the ICMPv6 header; the checksum is
/// the caller's. On success the options are well-formed.
pub fn validate(ip: &Ipv6Header, message: &[u8]) -> Result<(), NdpError> {
    if ip.hop_limit != 255 {
        return Err(NdpError::HopLimit);
    }
    let icmp = Icmp6Header::read(message).ok_or(NdpError::TooShort)?;
    if icmp.code != 0 {
        return Err(NdpError::Code);
    }
    let options = NdpOptions::of_message(message).ok_or(NdpError::TooShort)?;
    if options.clone().any(|option| option.is_none()) {
        return Err(NdpError::BadOption);
    }
    let mut link_addresses = options.flatten();
    let from_nobody = ip.src.get() == 0;
    let has_source = link_addresses.any(|o| matches!(o, NdpOption::SourceLinkAddress(_)));
    let to_multicast = address::is_multicast(ip.dst.get());
    match icmp.icmp_type {
        Icmp6Type::ROUTER_SOLICITATION if from_nobody && has_source => Err(NdpError::BadSource),
        Icmp6Type::ROUTER_ADVERTISEMENT if !address::is_link_local(ip.src.get()) => Err(NdpError::BadSource),
        Icmp6Type::NEIGHBOR_SOLICITATION | Icmp6Type::NEIGHBOR_ADVERTISEMENT => {
            let neighbor = NeighborMessage::read(message).ok_or(NdpError::TooShort)?;
            let solicits = icmp.icmp_type == Icmp6Type::NEIGHBOR_SOLICITATION;
            if address::is_multicast(neighbor.target.get()) {
                Err(NdpError::BadTarget)
            } else if solicits && from_nobody && has_source {
                Err(NdpError::BadSource)
            } else if solicits && from_nobody && !is_solicited_node_group(ip.dst.get()) {
                Err(NdpError::BadDestination)
            } else if !solicits && to_multicast && icmp.rest.get() & neighbor_flags::SOLICITED != 0 {
                Err(NdpError::SolicitedMulticast)
            } else {
                Ok(())
            }
        }
        Icmp6Type::REDIRECT => {
            let redirect = Redirect::read(message).ok_or(NdpError::TooShort)?;
            let target = redirect.target.get();
            if !address::is_link_local(ip.src.get()) {
                Err(NdpError::BadSource)
            } else if address::is_multicast(redirect.destination.get()) {
                Err(NdpError::BadDestination)
            } else if !address::is_link_local(target) && target != redirect.destination.get() {
                Err(NdpError::BadTarget)
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

const fn is_solicited_node_group(addr: u128) -> bool {
    addr >> 24 == address::solicited_node(Ipv6Addr::UNSPECIFIED).to_bits() >> 24
}

#[cfg(test)]
mod tests;
