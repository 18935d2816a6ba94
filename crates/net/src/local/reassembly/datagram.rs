//! What differs between the families in joining fragments.

use std::hash::Hash;
use std::net::IpAddr;

use quiver_graph::Pkt;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::ipv6::{Extensions, Ipv6Header, upper_layer};
use quiver_wire::{Header, U16Be};

use crate::data::IfRecord;
use crate::ip::{V4, V6, icmp_aux};
use crate::local::header::{LocalFamily, PROBLEM6};

/// What a fragment says of itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::local) struct Name<K> {
    /// What all fragments of a datagram have in common.
    pub key: K,
    /// Bytes before the fragment's payload.
    pub header_len: usize,
    /// Bytes of payload.
    pub len: usize,
    /// Where the payload lies in the datagram.
    pub offset: u16,
    /// It is not the last.
    pub more: bool,
    /// First and last at once: IPv6 only.
    pub is_atomic: bool,
    /// A router has marked it for congestion (RFC 3168, 5.3).
    pub congestion: bool,
}

/// A datagram's name for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramName {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Identification.
    pub id: u32,
    /// Protocol (IPv4).
    pub protocol: Option<u8>,
}

/// A family whose datagrams can be joined.
pub(in crate::local) trait Reassembled: LocalFamily {
    /// What all fragments of a datagram have in common.
    type Key: Copy + Eq + Hash + Send;
    /// Longest payload of a datagram.
    const MAX_PAYLOAD: u16;
    /// ICMP error about a datagram whose parts did not all come in time.
    const TIMED_OUT: u32;
    /// The same about one that would have gone through the router; 0: none is sent.
    const TIMED_OUT_THROUGH: u32;

    /// Reads a fragment's headers; `None` where they are malformed, or it is no fragment. The packet has been trimmed.
    fn name(packet: &Pkt<'_>) -> Option<Name<Self::Key>>;

    /// ICMP error about a fragment whose length is no multiple of 8 though more follow; 0: none is sent.
    fn bad_length() -> u32;

    /// ICMP error about a fragment that reaches past the longest datagram; 0: none is sent.
    fn too_long(name: &Name<Self::Key>) -> u32;

    /// Whether a first fragment holds all headers up to the upper layer's (RFC 7112).
    fn has_all_headers(packet: &Pkt<'_>) -> bool;

    /// Makes an atomic fragment an unfragmented packet.
    fn strip_atomic(packet: &mut Pkt<'_>) -> bool;

    /// Makes the first fragment's headers those of the whole packet, whose payload is `len` bytes long; `false` where that
    /// cannot be.
    fn finish(packet: &mut Pkt<'_>, header_len: usize, len: usize, congestion: bool) -> bool;

    /// Where the key's addresses mean something: FIB, and link for link-local ones.
    fn scope(packet: &Pkt<'_>, record: &IfRecord) -> u64;

    /// For display.
    fn show(key: &Self::Key) -> DatagramName;
}

impl Reassembled for V4 {
    type Key = (u32, u32, u16, u8);
    // The smallest header leaves so much of what a total length can say.
    const MAX_PAYLOAD: u16 = u16::MAX - 20;
    const TIMED_OUT: u32 = icmp_aux(11, 1, 0);
    // RFC 792 speaks of hosts.
    const TIMED_OUT_THROUGH: u32 = 0;

    fn name(packet: &Pkt<'_>) -> Option<Name<Self::Key>> {
        let header: Ipv4Header = packet.head();
        let header_len = header.header_len();
        if header_len < Ipv4Header::LEN || packet.len() < header_len {
            return None;
        }
        Some(Name {
            key: (header.src.get(), header.dst.get(), header.identification.get(), header.protocol.0),
            header_len,
            len: packet.total_len() - header_len,
            offset: u16::try_from(header.fragment_offset()).ok()?,
            more: header.more_fragments(),
            is_atomic: false,
            congestion: header.ecn() == 3,
        })
    }

    fn bad_length() -> u32 {
        0
    }

    fn too_long(_: &Name<Self::Key>) -> u32 {
        0
    }

    fn has_all_headers(_: &Pkt<'_>) -> bool {
        true
    }

    fn strip_atomic(_: &mut Pkt<'_>) -> bool {
        false
    }

    fn finish(packet: &mut Pkt<'_>, header_len: usize, len: usize, congestion: bool) -> bool {
        let Ok(total) = u16::try_from(header_len + len) else { return false };
        let mut header: Ipv4Header = packet.head();
        header.total_len = U16Be::new(total);
        header.fragment = U16Be::ZERO;
        if congestion {
            header.set_ecn(3);
        }
        let Some(options) = packet.bytes().get(Ipv4Header::LEN..header_len) else { return false };
        header.fill_checksum_with_options(options);
        packet.set_head(header);
        true
    }

    fn scope(packet: &Pkt<'_>, record: &IfRecord) -> u64 {
        packet.table().unwrap_or(record.fib4).into()
    }

    fn show(key: &Self::Key) -> DatagramName {
        let address = |a: u32| IpAddr::V4(a.into());
        DatagramName { src: address(key.0), dst: address(key.1), id: key.2.into(), protocol: Some(key.3) }
    }
}

/// Where the fragment header lies, and the byte that names it.
fn fragment_header(header: &Ipv6Header, packet: &[u8]) -> Option<(usize, usize, IpProtocol)> {
    let mut pointer = 6;
    for extension in Extensions::new(header, packet) {
        let extension = extension.ok()?;
        if extension.kind == IpProtocol::FRAGMENT {
            return Some((extension.offset, pointer, extension.next_header));
        }
        pointer = extension.offset;
    }
    None
}

impl Reassembled for V6 {
    // The upper layer's protocol is not part of it (RFC 8200, 4.5).
    type Key = (u128, u128, u32);
    const MAX_PAYLOAD: u16 = u16::MAX;
    const TIMED_OUT: u32 = icmp_aux(3, 1, 0);
    const TIMED_OUT_THROUGH: u32 = Self::TIMED_OUT;

    fn name(packet: &Pkt<'_>) -> Option<Name<Self::Key>> {
        let header: Ipv6Header = packet.head();
        if packet.len() < Ipv6Header::LEN {
            return None;
        }
        let (at, _, _) = fragment_header(&header, packet.bytes())?;
        let info = quiver_wire::ipv6::FragmentHeader::read_at(packet.bytes(), at)?.info();
        let header_len = at + 8;
        Some(Name {
            key: (header.src.get(), header.dst.get(), info.identification),
            header_len,
            len: packet.total_len().checked_sub(header_len)?,
            offset: info.offset,
            more: info.more,
            is_atomic: info.is_atomic(),
            congestion: header.ecn() == 3,
        })
    }

    fn bad_length() -> u32 {
        // The payload length field
        icmp_aux(PROBLEM6, 0, 4)
    }

    fn too_long(name: &Name<Self::Key>) -> u32 {
        // The fragment offset field
        icmp_aux(PROBLEM6, 0, (name.header_len - 6) as u16)
    }

    fn has_all_headers(packet: &Pkt<'_>) -> bool {
        let header: Ipv6Header = packet.head();
        let Ok(upper) = upper_layer(&header, packet.bytes()) else { return false };
        let needed = match upper.protocol {
            IpProtocol::TCP => 20,
            IpProtocol::UDP | IpProtocol::ICMPV6 => 8,
            _ => 0,
        };
        packet.total_len() >= usize::from(upper.offset) + needed
    }

    fn strip_atomic(packet: &mut Pkt<'_>) -> bool {
        let Some(name) = Self::name(packet) else { return false };
        Self::finish(packet, name.header_len, name.len, false)
    }

    fn finish(packet: &mut Pkt<'_>, header_len: usize, len: usize, congestion: bool) -> bool {
        let mut header: Ipv6Header = packet.head();
        let Some((at, pointer, next)) = fragment_header(&header, packet.bytes()) else { return false };
        let Ok(payload) = u16::try_from(at - Ipv6Header::LEN + len) else { return false };
        if at + 8 != header_len {
            return false;
        }
        if congestion {
            let class = header.traffic_class() | 3;
            header.set_traffic_class(class);
        }
        header.payload_len = U16Be::new(payload);
        packet.set_head(header);
        let bytes = packet.bytes_mut();
        bytes[pointer] = next.0;
        // What stands before the fragment header moves up in its place.
        bytes.copy_within(..at, 8);
        packet.pull(8)
    }

    fn scope(packet: &Pkt<'_>, record: &IfRecord) -> u64 {
        let header: Ipv6Header = packet.head();
        let link = if is_link_local(header.src.get()) { packet.rx_if().0 } else { 0 };
        u64::from(packet.table().unwrap_or(record.fib6)) | u64::from(link) << 32
    }

    fn show(key: &Self::Key) -> DatagramName {
        let address = |a: u128| IpAddr::V6(a.into());
        DatagramName { src: address(key.0), dst: address(key.1), id: key.2, protocol: None }
    }
}
