//! From layers to bytes: headers in order first, then lengths and checksums from the inside out.

use super::{Layer, LayerKind};
use crate::checksum::{Sum, fill_l4};
use crate::ethernet::EtherType;
use crate::ipv4::{IpProtocol, Ipv4Header};
use crate::ipv6::Ipv6Header;
use crate::udp::UdpHeader;
use crate::{Header, U16Be};
use zerocopy::IntoBytes;

/// Writes all layers one after the other, then completes each, the innermost first: an outer checksum covers inner ones.
pub(super) fn emit(layers: &[Layer]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for (i, layer) in layers.iter().enumerate() {
        starts.push(bytes.len());
        let inner = layers.get(i + 1).map(|layer| &layer.kind);
        append(layer, inner, &mut bytes);
    }
    for (i, layer) in layers.iter().enumerate().rev() {
        let outer = layers[..i].iter().rposition(|outer| matches!(outer.kind, LayerKind::Ipv4(..) | LayerKind::Ipv6(_)));
        let (before, own) = bytes.split_at_mut(starts[i]);
        let pseudo =
            outer.map_or(Sum::new(), |outer| pseudo_header(&layers[outer].kind, &before[starts[outer]..], &layer.kind, own.len()));
        complete(layer, pseudo, own);
    }
    bytes
}

/// The EtherType by which `kind` is announced.
fn ether_type(kind: Option<&LayerKind>) -> EtherType {
    match kind {
        Some(LayerKind::Vlan(tag)) => tag.tpid(),
        Some(LayerKind::Arp(_)) => EtherType::ARP,
        Some(LayerKind::Ipv4(..)) => EtherType::IPV4,
        Some(LayerKind::Ipv6(_)) => EtherType::IPV6,
        _ => EtherType::EXPERIMENTAL,
    }
}

/// The protocol by which `kind` is announced; 253, for experiments (RFC 3692), for raw bytes.
fn protocol(kind: Option<&LayerKind>) -> IpProtocol {
    match kind {
        Some(LayerKind::Ipv4(..)) => IpProtocol::IPV4,
        Some(LayerKind::Ipv6(_)) => IpProtocol::IPV6,
        Some(LayerKind::Extension(kind, _)) => *kind,
        Some(LayerKind::Udp(_)) => IpProtocol::UDP,
        Some(LayerKind::Tcp(..)) => IpProtocol::TCP,
        Some(LayerKind::Icmp4(_)) => IpProtocol::ICMP,
        Some(LayerKind::Icmp6(_)) => IpProtocol::ICMPV6,
        None => IpProtocol::NO_NEXT_HEADER,
        _ => IpProtocol(253),
    }
}

/// Appends a layer's header with its type of what follows.
fn append(layer: &Layer, inner: Option<&LayerKind>, bytes: &mut Vec<u8>) {
    let ether_type = layer.next.unwrap_or(ether_type(inner).0);
    let protocol = layer.next.map_or(protocol(inner), |next| IpProtocol(next as u8));
    match &layer.kind {
        LayerKind::Ethernet(header) => {
            bytes.extend(&header.as_bytes()[..12]);
            bytes.extend(ether_type.to_be_bytes());
        }
        // The tag's protocol identifier stands where the outer layer's type was written
        LayerKind::Vlan(tag) => {
            bytes.extend(tag.tci.as_bytes());
            bytes.extend(ether_type.to_be_bytes());
        }
        LayerKind::Arp(header) => bytes.extend(header.as_bytes()),
        LayerKind::Ipv4(header, options) => {
            bytes.extend(Ipv4Header { protocol, ..*header }.as_bytes());
            bytes.extend(options);
        }
        LayerKind::Ipv6(header) => {
            bytes.extend(Ipv6Header { next_header: protocol, ..*header }.as_bytes());
        }
        LayerKind::Extension(_, content) => {
            bytes.push(protocol.0);
            bytes.extend(&content[1..]);
        }
        LayerKind::Udp(header) => bytes.extend(header.as_bytes()),
        LayerKind::Tcp(header, options) => {
            let mut header = *header;
            header.set_header_len(20 + options.len());
            bytes.extend(header.as_bytes());
            bytes.extend(options);
        }
        LayerKind::Icmp4(header) => bytes.extend(header.as_bytes()),
        LayerKind::Icmp6(content) | LayerKind::Raw(content) => bytes.extend(content),
    }
}

/// What the checksum of an L4 layer of `len` bytes covers besides its own bytes.
fn pseudo_header(outer: &LayerKind, bytes: &[u8], inner: &LayerKind, len: usize) -> Sum {
    let protocol = protocol(Some(inner));
    match outer {
        LayerKind::Ipv4(..) if protocol != IpProtocol::ICMP => Ipv4Header::read(bytes)
            .map_or(Sum::new(), |ip| Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), protocol, len as u16)),
        LayerKind::Ipv6(_) if protocol != IpProtocol::ICMP => Ipv6Header::read(bytes)
            .map_or(Sum::new(), |ip| Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), protocol, len as u32)),
        _ => Sum::new(),
    }
}

/// Fills in length and checksum of a layer that reaches from the start of `own` to the packet's end.
fn complete(layer: &Layer, pseudo: Sum, own: &mut [u8]) {
    let len = own.len();
    let field = |filled_in: usize| U16Be::new(layer.len.unwrap_or(filled_in as u16));
    let written = match &layer.kind {
        LayerKind::Ipv4(_, options) => Ipv4Header::read(own).map(|mut header| {
            header.total_len = field(len);
            header.version_ihl = header.version_ihl & 0xf0 | header_words(&header, options);
            header.fill_checksum_with_options(options);
            header.checksum = layer.checksum.map_or(header.checksum, U16Be::new);
            header.write(own)
        }),
        LayerKind::Ipv6(_) => Some(field(len - Ipv6Header::LEN).write_at(own, 4)),
        LayerKind::Udp(_) => UdpHeader::read(own).map(|header| {
            UdpHeader { length: field(len), ..header }.write(own)?;
            fill_checksum(IpProtocol::UDP, layer, pseudo, own)
        }),
        LayerKind::Tcp(..) => Some(fill_checksum(IpProtocol::TCP, layer, pseudo, own)),
        LayerKind::Icmp4(_) => Some(fill_checksum(IpProtocol::ICMP, layer, pseudo, own)),
        LayerKind::Icmp6(_) => Some(fill_checksum(IpProtocol::ICMPV6, layer, pseudo, own)),
        _ => None,
    };
    debug_assert_ne!(written, Some(None), "a layer is at least as long as its header");
}

/// The header length follows from the options unless the caller edited it to something else than the 5 that it begins with.
fn header_words(header: &Ipv4Header, options: &[u8]) -> u8 {
    match header.version_ihl & 0xf {
        5 => 5 + (options.len() / 4) as u8,
        edited => edited,
    }
}

fn fill_checksum(protocol: IpProtocol, layer: &Layer, pseudo: Sum, own: &mut [u8]) -> Option<()> {
    fill_l4(protocol, pseudo, own)?;
    match (layer.checksum, crate::checksum::field_offset(protocol)) {
        (Some(checksum), Some(at)) => U16Be::new(checksum).write_at(own, at),
        _ => Some(()),
    }
}
