//! IPv6 (RFC 8200).

use crate::header::wire_header;
use crate::ipv4::IpProtocol;
use crate::{Header, U16Be, U32Be, U128Be};
use core::net::Ipv6Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub mod address;
mod extension;
mod options;
pub use extension::{
    Extension, ExtensionError, Extensions, FragmentHeader, FragmentInfo, MAX_EXTENSIONS, RoutingHeader, UpperLayer, upper_layer,
};
pub use options::{Ipv6Option, Ipv6OptionError, Ipv6Options, UnknownOptionAction};

/// The fixed IPv6 header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ipv6Header {
    /// Version (4 bits), traffic class (8) and flow label (20)
    pub version_class_flow: U32Be,
    /// Length of what follows the fixed header, extension headers included
    pub payload_len: U16Be,
    /// Type of what follows: an extension header or the upper layer
    pub next_header: IpProtocol,
    /// Hop limit
    pub hop_limit: u8,
    /// Source address
    pub src: U128Be,
    /// Destination address
    pub dst: U128Be,
}
wire_header!(Ipv6Header = 40);

/// Smallest link MTU (RFC 8200, 5).
pub const MIN_MTU: usize = 1280;

/// Why a packet is not taken for IPv6.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ipv6Error {
    /// Fewer than 40 bytes
    TooShort,
    /// Version is not 6
    BadVersion,
    /// Payload length is more than the link layer delivered
    Truncated,
}

impl Ipv6Header {
    /// A header with hop limit 64, with the length yet to be filled in.
    #[inline(always)]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol) -> Self {
        Self {
            version_class_flow: U32Be::new(6 << 28),
            payload_len: U16Be::ZERO,
            next_header,
            hop_limit: 64,
            src: U128Be::new(src.to_bits()),
            dst: U128Be::new(dst.to_bits()),
        }
    }

    /// Reads a header and checks version and length; `packet` may carry link-layer padding.
    ///
    /// A jumbogram (RFC 2675, payload length 0) is seen as a packet without payload: links here are shorter.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Self, Ipv6Error> {
        let header = Self::read(packet).ok_or(Ipv6Error::TooShort)?;
        if header.version() != 6 {
            return Err(Ipv6Error::BadVersion);
        }
        if !header.is_valid(packet.len()) {
            return Err(Ipv6Error::Truncated);
        }
        Ok(header)
    }

    /// The checks of [`parse`](Self::parse) in straight-line code. `available` counts from the header's start.
    #[inline(always)]
    pub const fn is_valid(&self, available: usize) -> bool {
        (self.version() == 6) & (self.payload_len.get() as usize + 40 <= available)
    }

    /// Version field; 6 in a valid header.
    #[inline(always)]
    pub const fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Traffic class: DSCP (upper 6 bits) and ECN.
    #[inline(always)]
    pub const fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Differentiated services code point, 0 to 63.
    #[inline(always)]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Explicit congestion notification, 0 to 3.
    #[inline(always)]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class() & 3
    }

    /// Flow label, 20 bits.
    #[inline(always)]
    pub const fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0xf_ffff
    }

    /// Sets the traffic class.
    #[inline(always)]
    pub const fn set_traffic_class(&mut self, class: u8) {
        let others = self.version_class_flow.get() & !(0xff << 20);
        self.version_class_flow = U32Be::new(others | (class as u32) << 20);
    }

    /// Sets the flow label; bits over 20 are cut off.
    #[inline(always)]
    pub const fn set_flow_label(&mut self, label: u32) {
        let others = self.version_class_flow.get() & !0xf_ffff;
        self.version_class_flow = U32Be::new(others | label & 0xf_ffff);
    }

    /// Source address.
    #[inline(always)]
    pub const fn src_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.src.get())
    }

    /// Destination address.
    #[inline(always)]
    pub const fn dst_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.dst.get())
    }
}

#[cfg(test)]
mod tests;
