//! What a packet's bytes say of its flow. Any bytes give a key: what is cut off or malformed has no addresses or ports.

use std::net::IpAddr;

use quiver_net::local::datagram::UdpPath;
use quiver_wire::Header;
use quiver_wire::ethernet::{EtherType, EthernetHeader, skip_tags};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Ipv6Header, upper_layer};
use quiver_wire::udp::UdpHeader;
use zerocopy::IntoBytes as _;

use crate::key::{Key, Record, Variant, Way};

/// Bytes of a packet that are looked at: link header with tags, IP header with options, ports and TCP flags.
pub const WINDOW: usize = 160;
/// Most tags that are passed over.
const TAGS: usize = 4;

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its flow.
    pub key: Key,
    /// Bytes of the IP packet, by its header; 0 where it is none.
    pub octets: u64,
    /// TCP flags, the low 8 bits (RFC 9293, 3.1); 0 where there is no TCP header.
    pub tcp_flags: u8,
}

/// Of a packet at its IP header. `macs`: destination and source of its frame, where there is one.
pub fn packet(bytes: &[u8], is_ip4: bool, macs: Option<&[u8; 12]>, record: Record, way: Way) -> Seen {
    let variant = if is_ip4 { Variant::Ip4 } else { Variant::Ip6 };
    let mut seen = Seen { key: Key::new(variant, record, way), octets: 0, tcp_flags: 0 };
    if let Some(macs) = macs.filter(|_| record.l2()) {
        let ether_type = if is_ip4 { EtherType::IPV4 } else { EtherType::IPV6 };
        seen.key.set_link(macs, ether_type.0);
    }
    network(&mut seen, bytes, is_ip4, record);
    seen
}

/// Of a frame at its Ethernet header.
pub fn frame(bytes: &[u8], record: Record, way: Way) -> Seen {
    let (offset, ether_type) = skip_tags(bytes, TAGS).unwrap_or((bytes.len(), EtherType(0)));
    let has_network = record.l3() || record.l4();
    let variant = match ether_type {
        EtherType::IPV4 if has_network => Variant::L2Ip4,
        EtherType::IPV6 if has_network => Variant::L2Ip6,
        _ => Variant::L2,
    };
    let mut seen = Seen { key: Key::new(variant, record, way), octets: 0, tcp_flags: 0 };
    if let (true, Some(header)) = (record.l2(), EthernetHeader::read(bytes)) {
        let mut macs = [0; 12];
        macs.copy_from_slice(&header.as_bytes()[..12]);
        seen.key.set_link(&macs, ether_type.0);
    }
    if variant != Variant::L2 {
        network(&mut seen, bytes.get(offset..).unwrap_or_default(), variant.is_ip4(), record);
    }
    seen
}

fn network(seen: &mut Seen, bytes: &[u8], is_ip4: bool, record: Record) {
    let upper = if is_ip4 {
        let Some(header) = Ipv4Header::read(bytes) else { return };
        seen.octets = header.total_len.get().into();
        if record.l3() {
            seen.key.set_network(header.src.as_bytes(), header.dst.as_bytes(), header.protocol.0);
        }
        // The low 13 bits: offset of a fragment.
        (header.fragment.get() & 0x1fff == 0).then(|| (header.protocol, header.header_len()))
    } else {
        let Some(header) = Ipv6Header::read(bytes) else { return };
        seen.octets = Ipv6Header::LEN as u64 + u64::from(header.payload_len.get());
        let upper = upper_layer(&header, bytes).ok();
        if record.l3() {
            let protocol = upper.as_ref().map_or(header.next_header, |upper| upper.protocol);
            seen.key.set_network(header.src.as_bytes(), header.dst.as_bytes(), protocol.0);
        }
        upper
            .filter(|upper| upper.fragment.is_none_or(|fragment| fragment.offset == 0))
            .map(|upper| (upper.protocol, upper.offset.into()))
    };
    if let (true, Some((protocol, at))) = (record.l4(), upper) {
        transport(seen, bytes.get(at..).unwrap_or_default(), protocol);
    }
}

/// Protocols whose headers begin with two ports.
fn has_ports(protocol: IpProtocol) -> bool {
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) || matches!(protocol.0, SCTP | UDP_LITE)
}

fn transport(seen: &mut Seen, bytes: &[u8], protocol: IpProtocol) {
    if !has_ports(protocol) {
        return;
    }
    let &[a, b, c, d, ..] = bytes else { return };
    seen.key.set_ports(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    if let (IpProtocol::TCP, Some(flags)) = (protocol, bytes.get(13)) {
        seen.tcp_flags = *flags;
    }
}

/// Whether a packet at its IP header is a datagram on this path.
pub fn is_to(bytes: &[u8], path: &UdpPath) -> bool {
    let (protocol, at, matches) = match path.dst {
        IpAddr::V4(dst) => {
            let Some(header) = Ipv4Header::read(bytes) else { return false };
            (header.protocol, header.header_len(), header.dst.get() == dst.to_bits())
        }
        IpAddr::V6(dst) => {
            let Some(header) = Ipv6Header::read(bytes) else { return false };
            (header.next_header, Ipv6Header::LEN, header.dst.get() == dst.to_bits())
        }
    };
    let udp = UdpHeader::read_at(bytes, at);
    matches
        && protocol == IpProtocol::UDP
        && udp.is_some_and(|udp| udp.dst_port.get() == path.dst_port && udp.src_port.get() == path.src_port)
}
