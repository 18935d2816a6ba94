//! Cutting TCP and UDP super-frames into segments: what a NIC does for a kernel that leaves segmentation to it.
//!
//! ```text
//!  super-frame   | headers |  payload, up to 64 kB                     |
//!  segment 0     | headers'| gso_size |
//!  segment 1               | headers'|  gso_size |          …  each segment: headers of its own, a range of the payload
//! ```
//!
//! [`Segments`] is a pure function over the super-frame's bytes: it says how many segments there are, writes the headers of
//! one, and names the range of its payload. The caller copies both into packet buffers; nothing is allocated. Offsets are
//! taken from the packet itself: the sender's hints (virtio's `hdr_len`, `csum_start`) are not trusted.

use crate::checksum::{Sum, fill_l4};
use crate::ipv4::{IpProtocol, Ipv4Header};
use crate::ipv6::{Ipv6Header, upper_layer};
use crate::tcp::{TcpFlags, TcpHeader};
use crate::udp::UdpHeader;
use crate::{Header, U16Be, U32Be};
use core::ops::Range;

/// What a super-frame carries.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum GsoKind {
    /// TCP over IPv4
    TcpV4,
    /// TCP over IPv6
    TcpV6,
    /// UDP over either family, to be cut into datagrams (USO)
    Udp,
}

impl GsoKind {
    /// From virtio's `gso_type` (virtio 1.3, 5.1.6); the ECN bit is of no interest here. `None` for 0 (no super-frame) and
    /// for what is not known: UFO (3) is IP fragmentation, not segmentation.
    pub const fn from_virtio(gso_type: u8) -> Option<GsoKind> {
        match gso_type & !0x80 {
            1 => Some(Self::TcpV4),
            4 => Some(Self::TcpV6),
            5 => Some(Self::Udp),
            _ => None,
        }
    }
}

/// Why a frame cannot be segmented.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum GsoError {
    /// The segment size is 0
    ZeroSize,
    /// The frame ends within its headers, or before the length that the IP header states
    Truncated,
    /// Version or header lengths are impossible
    BadHeader,
    /// The packet is not what the kind says
    WrongProtocol,
    /// The packet is an IP fragment
    Fragment,
    /// A routing header names another final destination than the IP header: the checksum would be wrong
    Routing,
    /// A segment with its headers would be longer than an IP packet can be
    TooLarge,
}

/// The plan for one super-frame.
#[derive(Copy, Clone, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    ipv6: bool,
    protocol: IpProtocol,
    l3: usize,
    l4: usize,
    /// Where the payload begins: length of all headers
    header_len: usize,
    size: usize,
}

/// One segment: its headers are written by [`Segments::write_header`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Counts from 0
    pub index: usize,
    /// Where its payload lies in the super-frame
    pub payload: Range<usize>,
}

impl<'a> Segments<'a> {
    /// Plans the segmentation of `frame`, whose IP header begins at `l3_offset`, into segments of `gso_size` bytes of L4
    /// payload. Bytes past the end of the IP packet are padding and left out.
    pub fn new(frame: &'a [u8], l3_offset: usize, kind: GsoKind, gso_size: u16) -> Result<Self, GsoError> {
        if gso_size == 0 {
            return Err(GsoError::ZeroSize);
        }
        let packet = frame.get(l3_offset..).ok_or(GsoError::Truncated)?;
        let ipv6 = match (kind, packet.first().map(|byte| byte >> 4)) {
            (GsoKind::TcpV4 | GsoKind::Udp, Some(4)) => false,
            (GsoKind::TcpV6 | GsoKind::Udp, Some(6)) => true,
            (_, Some(4 | 6)) => return Err(GsoError::WrongProtocol),
            (_, Some(_)) => return Err(GsoError::BadHeader),
            (_, None) => return Err(GsoError::Truncated),
        };
        let (protocol, l4, len) = if ipv6 { locate_v6(packet)? } else { locate_v4(packet)? };
        let wanted = if kind == GsoKind::Udp { IpProtocol::UDP } else { IpProtocol::TCP };
        if protocol != wanted {
            return Err(GsoError::WrongProtocol);
        }
        let l4_header_len = if protocol == IpProtocol::TCP {
            let tcp = TcpHeader::read_at(packet, l4).ok_or(GsoError::Truncated)?;
            tcp.header_len()
        } else {
            UdpHeader::LEN
        };
        if protocol == IpProtocol::TCP && l4_header_len < TcpHeader::LEN {
            return Err(GsoError::BadHeader);
        }
        if l4 + l4_header_len > len {
            return Err(GsoError::Truncated);
        }
        let (l4, header_len) = (l3_offset + l4, l3_offset + l4 + l4_header_len);
        let size = usize::from(gso_size);
        if header_len - l3_offset + size > usize::from(u16::MAX) {
            return Err(GsoError::TooLarge);
        }
        let frame = &frame[..l3_offset + len];
        Ok(Self { frame, ipv6, protocol, l3: l3_offset, l4, header_len, size })
    }

    /// How many segments there are; 1 for a frame without payload.
    #[inline(always)]
    pub const fn count(&self) -> usize {
        let payload = self.frame.len() - self.header_len;
        if payload == 0 { 1 } else { payload.div_ceil(self.size) }
    }

    /// Length of the headers of each segment, link layer included.
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Where the payload of segment `index` lies in the super-frame; empty past the last.
    #[inline(always)]
    pub fn payload(&self, index: usize) -> Range<usize> {
        let end = self.frame.len();
        let at = |index: usize| {
            let offset = index.saturating_mul(self.size);
            self.header_len.saturating_add(offset).min(end)
        };
        at(index)..at(index.saturating_add(1))
    }

    /// The segments in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Segment> + use<'a> {
        let plan = *self;
        (0..plan.count()).map(move |index| Segment { index, payload: plan.payload(index) })
    }

    /// Writes the headers of segment `index` to the start of `out`, [`header_len`](Self::header_len) bytes with all lengths,
    /// numbers, flags and checksums right. `None`, with nothing of use written, if `out` is shorter or there is no such
    /// segment.
    pub fn write_header(&self, index: usize, out: &mut [u8]) -> Option<usize> {
        if index >= self.count() {
            return None;
        }
        let out = out.get_mut(..self.header_len)?;
        out.copy_from_slice(&self.frame[..self.header_len]);
        let payload = &self.frame[self.payload(index)];
        let l4_len = self.header_len - self.l4 + payload.len();
        let ip_len = self.l4 - self.l3 + l4_len;
        if self.protocol == IpProtocol::TCP {
            self.number_tcp(index, out)?;
        } else {
            let mut udp = UdpHeader::read_at(out, self.l4)?;
            udp.length = U16Be::new(l4_len as u16);
            udp.write_at(out, self.l4)?;
        }
        let pseudo = if self.ipv6 {
            let mut ip = Ipv6Header::read_at(out, self.l3)?;
            ip.payload_len = U16Be::new((ip_len - Ipv6Header::LEN) as u16);
            ip.write_at(out, self.l3)?;
            Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), self.protocol, l4_len as u32)
        } else {
            let mut ip = Ipv4Header::read_at(out, self.l3)?;
            ip.total_len = U16Be::new(ip_len as u16);
            // Each segment is a packet of its own, even where don't-fragment makes the number idle (RFC 6864, 4.1)
            let identification = ip.identification.get().wrapping_add(index as u16);
            ip.identification = U16Be::new(identification);
            ip.fill_checksum_with_options(&out[self.l3 + Ipv4Header::LEN..self.l4]);
            ip.write_at(out, self.l3)?;
            Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), self.protocol, l4_len as u16)
        };
        // L4 headers have an even length, so the payload's sum may come before the header's
        fill_l4_with_payload(self.protocol, pseudo, payload, &mut out[self.l4..])?;
        Some(self.header_len)
    }

    /// Sequence number and flags of segment `index`: CWR on the first only (RFC 3168, 6.1.2), FIN and PSH on the last.
    fn number_tcp(&self, index: usize, out: &mut [u8]) -> Option<()> {
        let mut tcp = TcpHeader::read_at(out, self.l4)?;
        let offset = (index * self.size) as u32;
        tcp.sequence = U32Be::new(tcp.sequence.get().wrapping_add(offset));
        if index != 0 {
            tcp.flags = tcp.flags.without(TcpFlags::CWR);
        }
        if index + 1 != self.count() {
            tcp.flags = tcp.flags.without(TcpFlags::FIN | TcpFlags::PSH);
        }
        tcp.write_at(out, self.l4)
    }
}

/// [`fill_l4`] for a header whose payload lies elsewhere.
fn fill_l4_with_payload(protocol: IpProtocol, pseudo: Sum, payload: &[u8], header: &mut [u8]) -> Option<()> {
    fill_l4(protocol, pseudo.add_bytes(payload).pad(), header)
}

/// Protocol, offset of the L4 header and length of an IPv4 packet.
fn locate_v4(packet: &[u8]) -> Result<(IpProtocol, usize, usize), GsoError> {
    let ip = Ipv4Header::read(packet).ok_or(GsoError::Truncated)?;
    if ip.is_fragment() {
        return Err(GsoError::Fragment);
    }
    let len = stated_len(usize::from(ip.total_len.get()), packet)?;
    if ip.header_len() < Ipv4Header::LEN || ip.header_len() > len {
        return Err(GsoError::BadHeader);
    }
    Ok((ip.protocol, ip.header_len(), len))
}

/// The same for IPv6.
fn locate_v6(packet: &[u8]) -> Result<(IpProtocol, usize, usize), GsoError> {
    let mut ip = Ipv6Header::read(packet).ok_or(GsoError::Truncated)?;
    let len = match ip.payload_len.get() {
        0 => packet.len(),
        payload => stated_len(Ipv6Header::LEN + usize::from(payload), packet)?,
    };
    // A super-frame over 64 kB states no length; its extension headers still lie within the first 64 kB
    ip.payload_len = U16Be::new((len - Ipv6Header::LEN).min(0xffff) as u16);
    let upper = upper_layer(&ip, packet).map_err(|_| GsoError::BadHeader)?;
    if upper.fragment.is_some() {
        return Err(GsoError::Fragment);
    }
    if upper.routing_offset != 0 {
        return Err(GsoError::Routing);
    }
    Ok((upper.protocol, usize::from(upper.offset), len))
}

/// A stated length of 0 means a super-frame over 64 kB: all the bytes there are.
fn stated_len(stated: usize, packet: &[u8]) -> Result<usize, GsoError> {
    match stated {
        0 => Ok(packet.len()),
        _ if stated > packet.len() => Err(GsoError::Truncated),
        _ => Ok(stated),
    }
}

#[cfg(test)]
mod tests;
