//! Making packets for tests and the packet generator: name what matters, the rest is filled in.
//!
//! ```
//! use quiver_wire::build::Packet;
//! # use quiver_wire::MacAddr;
//! # let (src, dst) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
//! let frame = Packet::ethernet(src, dst)
//!     .vlan(100)
//!     .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
//!     .ttl(3)
//!     .udp(1000, 2000)
//!     .payload(b"hello")
//!     .build();
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
//! ```
//!
//! Layers are named from the outside in. Types, lengths and checksums follow from them when the packet is built. A modifier
//! (`ttl`, `total_len`, `checksum`, …) changes the last layer that has such a field; a length, checksum or type given this way
//! is written as given, wrong as it may be. A modifier without a layer to change is a mistake in the caller's test: it does
//! nothing in release builds and fails a debug assertion.

use crate::arp::ArpHeader;
use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmp4::Icmp4Header;
use crate::icmp6::{Icmp6Header, Icmp6Type};
use crate::ipv4::{DONT_FRAGMENT, IpProtocol, Ipv4Header, MORE_FRAGMENTS};
use crate::ipv6::{FragmentHeader, Ipv6Header};
use crate::ndp::{NdpOption, NeighborMessage, RouterAdvertisement};
use crate::tcp::{TcpFlags, TcpHeader};
use crate::udp::UdpHeader;
use crate::vlan::{Tci, VlanTag};
use crate::{MacAddr, U16Be, U32Be};
use core::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::IntoBytes;

mod emit;

/// A packet under construction.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    layers: Vec<Layer>,
    min_len: usize,
}

/// One layer, with what the caller fixed of the fields that are else filled in.
#[derive(Clone, Debug)]
struct Layer {
    kind: LayerKind,
    /// Type of what follows
    next: Option<u16>,
    /// Length field
    len: Option<u16>,
    checksum: Option<u16>,
}

#[derive(Clone, Debug)]
enum LayerKind {
    Ethernet(EthernetHeader),
    Vlan(VlanTag),
    Arp(ArpHeader),
    Ipv4(Ipv4Header, Vec<u8>),
    Ipv6(Ipv6Header),
    /// Kind and content; the first byte is the next header
    Extension(IpProtocol, Vec<u8>),
    Udp(UdpHeader),
    Tcp(TcpHeader, Vec<u8>),
    Icmp4(Icmp4Header),
    /// Header and the body that some types have
    Icmp6(Vec<u8>),
    Raw(Vec<u8>),
}

impl Packet {
    /// An empty packet, to begin with an IP header (`Packet::new().ipv4(…)`) or raw bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A frame from `src` to `dst`.
    pub fn ethernet(src: MacAddr, dst: MacAddr) -> Self {
        let header = EthernetHeader { dst, src, ether_type: U16Be::ZERO };
        Self::new().push(LayerKind::Ethernet(header))
    }

    fn push(mut self, kind: LayerKind) -> Self {
        self.layers.push(Layer { kind, next: None, len: None, checksum: None });
        self
    }

    /// Changes the last layer for which `change` returns true.
    fn modify(mut self, mut change: impl FnMut(&mut Layer) -> bool) -> Self {
        let done = self.layers.iter_mut().rev().any(&mut change);
        debug_assert!(done, "no layer of this packet has the field to change: {:?}", self.layers);
        self
    }

    /// An 802.1Q tag with priority 0.
    pub fn vlan(self, vlan_id: u16) -> Self {
        self.tag(EtherType::VLAN, Tci::new(0, false, vlan_id))
    }

    /// A tag with any protocol identifier and control information.
    pub fn tag(self, tpid: EtherType, tci: Tci) -> Self {
        self.push(LayerKind::Vlan(VlanTag { tpid: tpid.to_be(), tci: U16Be::new(tci.0) }))
    }

    /// An ARP message.
    pub fn arp(self, message: ArpHeader) -> Self {
        self.push(LayerKind::Arp(message))
    }

    /// An IPv4 header with TTL 64.
    pub fn ipv4(self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Self {
        let header = Ipv4Header::new(src.into(), dst.into(), IpProtocol(0));
        self.push(LayerKind::Ipv4(header, Vec::new()))
    }

    /// An IPv6 header with hop limit 64.
    pub fn ipv6(self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Self {
        self.push(LayerKind::Ipv6(Ipv6Header::new(src.into(), dst.into(), IpProtocol(0))))
    }

    /// IPv4 options or TCP options, padded with zeros to whole words.
    pub fn options(self, options: &[u8]) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Ipv4(_, bytes) | LayerKind::Tcp(_, bytes) => {
                bytes.extend(options);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                true
            }
            _ => false,
        })
    }

    /// An IPv6 extension header of any kind: `content` follows next-header and length byte and is padded with zeros to whole
    /// units of 8 bytes (zeros are padding options as well).
    pub fn extension(self, kind: IpProtocol, content: &[u8]) -> Self {
        let mut bytes = vec![0; 2];
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        self.push(LayerKind::Extension(kind, bytes))
    }

    /// An IPv6 hop-by-hop options header with these options.
    pub fn hop_by_hop(self, options: &[u8]) -> Self {
        self.extension(IpProtocol::HOP_BY_HOP, options)
    }

    /// An IPv6 destination options header with these options.
    pub fn destination_options(self, options: &[u8]) -> Self {
        self.extension(IpProtocol::DESTINATION_OPTIONS, options)
    }

    /// Makes the packet a fragment: in IPv4 the header's fields, in IPv6 a fragment header. `offset` is in bytes.
    pub fn fragment(self, identification: u32, offset: u16, more: bool) -> Self {
        let is_v6 = self.layers.iter().rev().find_map(|layer| match layer.kind {
            LayerKind::Ipv4(..) => Some(false),
            LayerKind::Ipv6(_) => Some(true),
            _ => None,
        });
        if is_v6 == Some(true) {
            let header = FragmentHeader::new(IpProtocol(0), offset, more, identification);
            let bytes = header.as_bytes().to_vec();
            return self.push(LayerKind::Extension(IpProtocol::FRAGMENT, bytes));
        }
        self.edit_ipv4(|header| {
            let flags = header.fragment.get() & DONT_FRAGMENT | (u16::from(more) * MORE_FRAGMENTS);
            header.fragment = U16Be::new(flags | (offset / 8));
            header.identification = U16Be::new(identification as u16);
        })
    }

    /// A UDP header.
    pub fn udp(self, src_port: u16, dst_port: u16) -> Self {
        self.push(LayerKind::Udp(UdpHeader::new(src_port, dst_port, 0)))
    }

    /// A TCP header.
    pub fn tcp(self, src_port: u16, dst_port: u16, flags: TcpFlags) -> Self {
        self.push(LayerKind::Tcp(TcpHeader::new(src_port, dst_port, flags), Vec::new()))
    }

    /// An ICMP header of any kind.
    pub fn icmp4(self, header: Icmp4Header) -> Self {
        self.push(LayerKind::Icmp4(header))
    }

    /// An ICMPv6 header of any kind.
    pub fn icmp6(self, header: Icmp6Header) -> Self {
        self.push(LayerKind::Icmp6(header.as_bytes().to_vec()))
    }

    /// An echo request of the IP header's family.
    pub fn echo_request(self, identifier: u16, sequence: u16) -> Self {
        if self.layers.iter().any(|layer| matches!(layer.kind, LayerKind::Ipv6(_))) {
            self.icmp6(Icmp6Header::echo_request(identifier, sequence))
        } else {
            self.icmp4(Icmp4Header::echo_request(identifier, sequence))
        }
    }

    /// A neighbour solicitation; hop limit 255.
    pub fn neighbor_solicitation(self, target: impl Into<Ipv6Addr>) -> Self {
        let message = NeighborMessage::solicitation(target.into());
        self.ttl(255).push(LayerKind::Icmp6(message.as_bytes().to_vec()))
    }

    /// A neighbour advertisement with [`neighbor_flags`](crate::ndp::neighbor_flags); hop limit 255.
    pub fn neighbor_advertisement(self, target: impl Into<Ipv6Addr>, flags: u32) -> Self {
        let message = NeighborMessage::advertisement(target.into(), flags);
        self.ttl(255).push(LayerKind::Icmp6(message.as_bytes().to_vec()))
    }

    /// A router solicitation; hop limit 255.
    pub fn router_solicitation(self) -> Self {
        self.ttl(255).icmp6(Icmp6Header::new(Icmp6Type::ROUTER_SOLICITATION, 0, 0))
    }

    /// A router advertisement; hop limit 255.
    pub fn router_advertisement(self, message: RouterAdvertisement) -> Self {
        self.ttl(255).push(LayerKind::Icmp6(message.as_bytes().to_vec()))
    }

    /// A neighbour-discovery option behind what is there.
    pub fn ndp_option(self, option: NdpOption<'_>) -> Self {
        let mut bytes = vec![0; option.wire_len()];
        // An option too long to be written stays zeros: length 0, malformed
        let _ = option.write(&mut bytes);
        self.payload(&bytes)
    }

    /// Bytes behind what is there.
    pub fn payload(self, bytes: &[u8]) -> Self {
        self.push(LayerKind::Raw(bytes.to_vec()))
    }

    /// `len` bytes behind what is there, each its own low offset bits: no two places look alike.
    pub fn payload_len(self, len: usize) -> Self {
        self.push(LayerKind::Raw((0..len).map(|i| (i ^ i >> 8) as u8).collect()))
    }

    /// TTL or hop limit.
    pub fn ttl(self, ttl: u8) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Ipv4(header, _) => {
                header.ttl = ttl;
                true
            }
            LayerKind::Ipv6(header) => {
                header.hop_limit = ttl;
                true
            }
            _ => false,
        })
    }

    /// DSCP and ECN: IPv4's type of service, IPv6's traffic class.
    pub fn tos(self, tos: u8) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Ipv4(header, _) => {
                header.tos = tos;
                true
            }
            LayerKind::Ipv6(header) => {
                header.set_traffic_class(tos);
                true
            }
            _ => false,
        })
    }

    /// IPv6 flow label.
    pub fn flow_label(self, label: u32) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Ipv6(header) => {
                header.set_flow_label(label);
                true
            }
            _ => false,
        })
    }

    /// IPv4 don't-fragment flag.
    pub fn dont_fragment(self) -> Self {
        self.edit_ipv4(|header| header.fragment = U16Be::new(header.fragment.get() | DONT_FRAGMENT))
    }

    /// IPv4 identification.
    pub fn identification(self, identification: u16) -> Self {
        self.edit_ipv4(|header| header.identification = U16Be::new(identification))
    }

    /// Any field of the IPv4 header; length, protocol and checksum are filled in afterwards.
    pub fn edit_ipv4(self, mut edit: impl FnMut(&mut Ipv4Header)) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Ipv4(header, _) => {
                edit(header);
                true
            }
            _ => false,
        })
    }

    /// Any field of the TCP header; header length and checksum are filled in afterwards.
    pub fn edit_tcp(self, mut edit: impl FnMut(&mut TcpHeader)) -> Self {
        self.modify(|layer| match &mut layer.kind {
            LayerKind::Tcp(header, _) => {
                edit(header);
                true
            }
            _ => false,
        })
    }

    /// TCP sequence number.
    pub fn sequence(self, sequence: u32) -> Self {
        self.edit_tcp(|header| header.sequence = U32Be::new(sequence))
    }

    /// The last layer's type of what follows, as given: EtherType, protocol or next header.
    pub fn next(self, next: u16) -> Self {
        self.modify(|layer| {
            let has = !matches!(
                layer.kind,
                LayerKind::Raw(_)
                    | LayerKind::Udp(_)
                    | LayerKind::Tcp(..)
                    | LayerKind::Icmp4(_)
                    | LayerKind::Icmp6(_)
                    | LayerKind::Arp(_)
            );
            layer.next = if has { Some(next) } else { layer.next };
            has
        })
    }

    /// The last length field, as given: IPv4's total, IPv6's payload, UDP's length.
    pub fn length_field(self, len: u16) -> Self {
        self.modify(|layer| {
            let has = matches!(layer.kind, LayerKind::Ipv4(..) | LayerKind::Ipv6(_) | LayerKind::Udp(_));
            layer.len = if has { Some(len) } else { layer.len };
            has
        })
    }

    /// The last checksum field, as given.
    pub fn checksum(self, checksum: u16) -> Self {
        self.modify(|layer| {
            let has = matches!(
                layer.kind,
                LayerKind::Ipv4(..) | LayerKind::Udp(_) | LayerKind::Tcp(..) | LayerKind::Icmp4(_) | LayerKind::Icmp6(_)
            );
            layer.checksum = if has { Some(checksum) } else { layer.checksum };
            has
        })
    }

    /// Zeros behind the packet up to `len` bytes, as link-layer padding: no length field counts them.
    pub fn pad_to(mut self, len: usize) -> Self {
        self.min_len = len;
        self
    }

    /// The bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = emit::emit(&self.layers);
        if bytes.len() < self.min_len {
            bytes.resize(self.min_len, 0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
