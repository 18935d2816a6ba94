//! Joining TCP segments into super-frames: the inverse of [`gso`](crate::gso), what a NIC does for a kernel that receives (LRO, GRO).
//!
//! ```text
//!  segments   | headers | payload | , | headers | payload | , …   one after the other, of one connection
//!  run        | headers'| payload, payload, …                |    headers' with the length of all, a checksum to be finished
//! ```
//!
//! A [`Run`] keeps the headers only; the caller keeps the payloads where they lie. What is joined can be cut again into the same frames,
//! with the same bytes: segments join only if they differ in nothing but sequence number, lengths, checksums, IPv4 identification and a
//! PSH on the last one. A checksum that is wrong must stay wrong, so each is verified before.

use crate::checksum::{Sum, l4_sum_v4, l4_sum_v6};
use crate::ethernet::EtherType;
use crate::ipv4::{IpProtocol, Ipv4Header};
use crate::ipv6::Ipv6Header;
use crate::tcp::{MAX_HEADER_LEN, TcpFlags, TcpHeader};
use crate::{Header, U16Be, U32Be};

/// Bytes of an Ethernet header.
const L3: usize = 14;
/// Longest headers that are joined: Ethernet without tags, IPv6 without extension headers, TCP.
pub const HEADERS_MAX: usize = L3 + Ipv6Header::LEN + MAX_HEADER_LEN;
/// Where a TCP header has its checksum.
const CHECKSUM: u16 = 16;
/// IPv4's don't-fragment bit alone.
const DONT_FRAGMENT: u16 = 0x4000;

/// A segment that can be joined.
struct Parsed {
    /// With 0 wherever segments of a run differ.
    headers: [u8; HEADERS_MAX],
    header_len: usize,
    ipv6: bool,
    sequence: u32,
    identification: u16,
    pushes: bool,
    payload: usize,
}

impl Parsed {
    /// `None`: not TCP with a payload, or something that a super-frame cannot say. `trusted`: the checksum is known to be right, or
    /// still to be computed.
    fn new(frame: &[u8], trusted: bool) -> Option<Self> {
        let packet = frame.get(L3..)?;
        let ether_type = u16::from_be_bytes([frame[12], frame[13]]);
        let (ipv6, l4, identification) = if ether_type == EtherType::IPV4.0 {
            let ip = Ipv4Header::parse(packet).ok()?;
            // Without don't-fragment the identification matters (RFC 6864), and cutting again would make another.
            let plain = !ip.has_options() && ip.fragment.get() == DONT_FRAGMENT && ip.protocol == IpProtocol::TCP;
            if !plain || usize::from(ip.total_len.get()) != packet.len() {
                return None;
            }
            (false, Ipv4Header::LEN, ip.identification.get())
        } else if ether_type == EtherType::IPV6.0 {
            let ip = Ipv6Header::parse(packet).ok()?;
            if ip.next_header != IpProtocol::TCP || usize::from(ip.payload_len.get()) + Ipv6Header::LEN != packet.len() {
                return None;
            }
            (true, Ipv6Header::LEN, 0)
        } else {
            return None;
        };
        let mut tcp = TcpHeader::read_at(packet, l4)?;
        let pushes = tcp.flags.contains(TcpFlags::PSH);
        tcp.flags = tcp.flags.without(TcpFlags::PSH);
        let header_len = L3 + l4 + tcp.header_len();
        if tcp.flags != TcpFlags::ACK || tcp.header_len() < TcpHeader::LEN || header_len >= frame.len() {
            return None;
        }
        if !trusted && !is_valid(packet, l4, ipv6) {
            return None;
        }
        let sequence = tcp.sequence.get();
        (tcp.sequence, tcp.checksum) = (U32Be::ZERO, U16Be::ZERO);
        let mut headers = [0; HEADERS_MAX];
        headers.get_mut(..header_len)?.copy_from_slice(&frame[..header_len]);
        tcp.write_at(&mut headers, L3 + l4)?;
        if ipv6 {
            let mut ip = Ipv6Header::read_at(&headers, L3)?;
            ip.payload_len = U16Be::ZERO;
            ip.write_at(&mut headers, L3)?;
        } else {
            let mut ip = Ipv4Header::read_at(&headers, L3)?;
            (ip.total_len, ip.identification, ip.checksum) = (U16Be::ZERO, U16Be::ZERO, U16Be::ZERO);
            ip.write_at(&mut headers, L3)?;
        }
        Some(Self { headers, header_len, ipv6, sequence, identification, pushes, payload: frame.len() - header_len })
    }
}

fn is_valid(packet: &[u8], l4: usize, ipv6: bool) -> bool {
    let Some(segment) = packet.get(l4..) else { return false };
    if ipv6 {
        Ipv6Header::read(packet).is_some_and(|ip| l4_sum_v6(&ip, IpProtocol::TCP, segment).is_valid())
    } else {
        Ipv4Header::read(packet).is_some_and(|ip| l4_sum_v4(&ip, IpProtocol::TCP, segment).is_valid())
    }
}

/// Whether two frames are TCP with the same addresses and ports, as far as that can be seen without looking at the rest: most frames that do
/// not join are found here, before their checksums are looked at.
#[inline]
pub fn same_stream(frame: &[u8], next: &[u8]) -> bool {
    let (protocol, range) = match frame.get(12..14) {
        Some([8, 0]) => (L3 + 9, L3 + 12..L3 + 24),
        Some([0x86, 0xdd]) => (L3 + 6, L3 + 8..L3 + 44),
        _ => return false,
    };
    if frame.get(protocol) != Some(&IpProtocol::TCP.0) {
        return false;
    }
    let part = frame.get(range.clone());
    part.is_some() && part == next.get(range)
}

/// Segments that follow one another, to be sent as one super-frame.
pub struct Run {
    first: Parsed,
    /// Bytes of payload of all.
    payload: usize,
    segments: usize,
    /// The last one was shorter, or pushes: nothing joins any more.
    ended: bool,
    pushes: bool,
}

/// What a run's super-frame begins with, and what is to be said of it in a virtio header (virtio 1.3, 5.1.6).
pub struct SuperFrame {
    headers: [u8; HEADERS_MAX],
    header_len: usize,
    /// `gso_type`: TCP over IPv4 or IPv6.
    pub gso_type: u8,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Where the checksum's sum begins.
    pub csum_start: u16,
    /// Where the checksum is stored, bytes after that.
    pub csum_offset: u16,
}

impl SuperFrame {
    /// Ethernet, IP and TCP header. The payloads follow.
    pub fn headers(&self) -> &[u8] {
        self.headers.get(..self.header_len).unwrap_or_default()
    }
}

impl Run {
    /// A run of one frame, where others may join it. `trusted`: its checksum is known to be right, or still to be computed.
    pub fn begin(frame: &[u8], trusted: bool) -> Option<Self> {
        let first = Parsed::new(frame, trusted).filter(|first| !first.pushes)?;
        Some(Self { payload: first.payload, segments: 1, ended: false, pushes: false, first })
    }

    /// Takes a frame in, where it is the next one of the connection.
    pub fn join(&mut self, frame: &[u8], trusted: bool) -> bool {
        if self.ended || !same_stream(&self.first.headers, frame) {
            return false;
        }
        let Some(next) = Parsed::new(frame, trusted) else { return false };
        let first = &self.first;
        let follows = first.sequence.wrapping_add(self.payload as u32) == next.sequence;
        let fits = next.payload <= first.payload && first.header_len - L3 + self.payload + next.payload <= usize::from(u16::MAX);
        let numbered = first.identification.wrapping_add(self.segments as u16) == next.identification;
        if !follows || !fits || !(numbered || first.ipv6) || next.headers != first.headers {
            return false;
        }
        self.payload += next.payload;
        self.segments += 1;
        self.pushes = next.pushes;
        self.ended = next.pushes || next.payload < first.payload;
        true
    }

    /// Frames.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Bytes of headers that each of the frames has.
    pub fn header_len(&self) -> usize {
        self.first.header_len
    }

    /// The super-frame of all.
    pub fn finish(&self) -> Option<SuperFrame> {
        let Parsed { mut headers, header_len, ipv6, sequence, identification, .. } = self.first;
        let l4 = L3 + if ipv6 { Ipv6Header::LEN } else { Ipv4Header::LEN };
        let l4_len = header_len - l4 + self.payload;
        let pseudo = if ipv6 {
            let mut ip = Ipv6Header::read_at(&headers, L3)?;
            ip.payload_len = U16Be::new(u16::try_from(l4_len).ok()?);
            ip.write_at(&mut headers, L3)?;
            Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), IpProtocol::TCP, l4_len as u32)
        } else {
            let mut ip = Ipv4Header::read_at(&headers, L3)?;
            ip.total_len = U16Be::new(u16::try_from(l4 - L3 + l4_len).ok()?);
            ip.identification = U16Be::new(identification);
            ip.fill_checksum();
            ip.write_at(&mut headers, L3)?;
            Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), IpProtocol::TCP, l4_len as u16)
        };
        let mut tcp = TcpHeader::read_at(&headers, l4)?;
        tcp.sequence = U32Be::new(sequence);
        if self.pushes {
            tcp.flags = tcp.flags | TcpFlags::PSH;
        }
        // Who finishes the checksum adds the rest to the sum of the pseudo-header, which stands here as it is.
        tcp.checksum = U16Be::new(!pseudo.checksum());
        tcp.write_at(&mut headers, l4)?;
        let gso_type = if ipv6 { 4 } else { 1 };
        let gso_size = u16::try_from(self.first.payload).ok()?;
        Some(SuperFrame { headers, header_len, gso_type, gso_size, csum_start: l4 as u16, csum_offset: CHECKSUM })
    }
}

#[cfg(test)]
mod tests;
