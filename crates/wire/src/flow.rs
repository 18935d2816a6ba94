//! Which flow a packet belongs to: its 5-tuple, and the hash that spreads flows over paths and workers.
//!
//! All fragments of a datagram must go the same way, so no fragment, not even the first, has ports.

use crate::Header;
use crate::ipv4::{IpProtocol, Ipv4Header};
use crate::ipv6::{Ipv6Header, upper_layer};
use crate::{U16Be, U32Be};

mod hash;
pub use hash::{FlowFields, flow_hash_v4, flow_hash_v6};

/// The 5-tuple of an IPv4 packet, in host order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowV4 {
    /// Source address
    pub src: u32,
    /// Destination address
    pub dst: u32,
    /// Source port; 0 where there is none
    pub src_port: u16,
    /// Destination port; 0 where there is none
    pub dst_port: u16,
    /// Protocol
    pub protocol: IpProtocol,
}

/// The 5-tuple and flow label of an IPv6 packet, in host order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowV6 {
    /// Source address
    pub src: u128,
    /// Destination address
    pub dst: u128,
    /// Source port; 0 where there is none
    pub src_port: u16,
    /// Destination port; 0 where there is none
    pub dst_port: u16,
    /// Upper-layer protocol, past the extension headers
    pub protocol: IpProtocol,
    /// Flow label, 20 bits
    pub flow_label: u32,
}

/// Source and destination port at the start of the L4 header.
#[inline(always)]
fn ports(protocol: IpProtocol, packet: &[u8], l4: usize) -> (u16, u16) {
    if !protocol.has_ports() {
        return (0, 0);
    }
    let word = U32Be::read_at(packet, l4).unwrap_or(U32Be::ZERO).get();
    ((word >> 16) as u16, word as u16)
}

impl FlowV4 {
    /// From a header and the packet that it begins; a packet cut off before its ports has none.
    #[inline(always)]
    pub fn of(header: &Ipv4Header, packet: &[u8]) -> Self {
        let has_l4 = !header.is_fragment();
        let protocol = header.protocol;
        let (src_port, dst_port) = if has_l4 { ports(protocol, packet, header.header_len()) } else { (0, 0) };
        Self { src: header.src.get(), dst: header.dst.get(), src_port, dst_port, protocol }
    }

    /// From a packet's bytes, unless they are too few for a header.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        Some(Self::of(&Ipv4Header::read(packet)?, packet))
    }

    /// The flow of the answers.
    #[inline(always)]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, protocol: self.protocol }
    }
}

impl FlowV6 {
    /// From a header and the packet that it begins. Extension headers are walked; a malformed chain has no ports and the
    /// fixed header's protocol.
    #[inline(always)]
    pub fn of(header: &Ipv6Header, packet: &[u8]) -> Self {
        let mut flow = Self {
            src: header.src.get(),
            dst: header.dst.get(),
            flow_label: header.flow_label(),
            protocol: header.next_header,
            ..Self::default()
        };
        if header.next_header.has_ports() {
            (flow.src_port, flow.dst_port) = ports(header.next_header, packet, Ipv6Header::LEN);
        } else if let Ok(upper) = upper_layer(header, packet) {
            flow.protocol = upper.protocol;
            if upper.fragment.is_none_or(|fragment| fragment.is_atomic()) {
                let l4 = usize::from(upper.offset);
                (flow.src_port, flow.dst_port) = ports(upper.protocol, packet, l4);
            }
        }
        flow
    }

    /// From a packet's bytes, unless they are too few for a header.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        Some(Self::of(&Ipv6Header::read(packet)?, packet))
    }

    /// The flow of the answers. The flow label is the sender's own choice in each direction and is kept.
    #[inline(always)]
    pub const fn reversed(self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            protocol: self.protocol,
            flow_label: self.flow_label,
        }
    }
}

/// The identifier of an ICMP echo message, which tells pings apart as ports tell connections: for NAT and session tables,
/// not for hashing (errors about a flow carry none).
pub fn echo_identifier(icmp: &[u8]) -> Option<u16> {
    match icmp.first()? {
        0 | 8 | 128 | 129 => U16Be::read_at(icmp, 4).map(U16Be::get),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
