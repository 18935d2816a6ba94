//! The virtio-net header (virtio 1.3, 5.1.6) that AF_PACKET, TAP and vhost put before a frame, and the work it asks for.
//!
//! A kernel or guest that sends to a "device" leaves it two jobs: to finish the layer-4 checksum, and to cut super-frames of
//! up to 64 kB (BIG TCP: more) into segments. [`deliver`] does both and hands out frames as they would look on a wire:
//!
//! ```text
//!   header │ frame in the sender's form ──► checksum finished ──────────────► 1 frame
//!          └────────────────────────────► cut by `wire::gso` ──────────────► n frames
//!   and a VLAN tag that the sender kept beside the frame is put back into each
//! ```
//!
//! The header comes from the kernel, but what it says follows from a guest or from anybody with a packet socket: nothing in
//! it is trusted.

use quiver_wire::checksum;
use quiver_wire::ethernet::skip_tags;
use quiver_wire::gso::{GsoKind, Segments};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// More tags before the IP header than this are not looked through.
const MAX_TAGS: usize = 4;
/// Longest headers of a super-frame that are copied to its segments: Ethernet, tags, IPv6 with extension headers, TCP.
const MAX_HEADERS: usize = 512;
/// Bytes of the two Ethernet addresses: a tag stands behind them.
const ADDRESSES: usize = 12;

/// The short form of the header, in the machine's byte order (AF_PACKET and TAP unless told otherwise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VnetHeader {
    /// Bit 0: the checksum is unfinished. Bit 1: it has been verified.
    pub flags: u8,
    /// 0: an ordinary frame; else what kind of super-frame.
    pub gso_type: u8,
    /// Length of the headers; a hint.
    pub hdr_len: u16,
    /// Payload bytes of a segment.
    pub gso_size: u16,
    /// Where summing starts.
    pub csum_start: u16,
    /// Where the checksum is stored, bytes after `csum_start`.
    pub csum_offset: u16,
}

const _: () = assert!(size_of::<VnetHeader>() == 10 && align_of::<VnetHeader>() == 2);

impl VnetHeader {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();
    /// Flag: the checksum is unfinished.
    pub const NEEDS_CSUM: u8 = 1;
    /// `gso_type` of an ordinary frame.
    pub const GSO_NONE: u8 = 0;
    /// `gso_type` of an oversized UDP datagram that is to be fragmented (UFO): the old offload.
    pub const GSO_UFO: u8 = 3;
    /// Bit of `gso_type`: TCP with ECN.
    pub const GSO_ECN: u8 = 0x80;

    /// Reads a header from the start of `bytes`.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Whether the checksum is unfinished.
    #[inline(always)]
    pub const fn needs_checksum(self) -> bool {
        self.flags & Self::NEEDS_CSUM != 0
    }

    /// Whether the frame is a super-frame.
    #[inline(always)]
    pub const fn is_gso(self) -> bool {
        self.gso_type & !Self::GSO_ECN != Self::GSO_NONE
    }
}

/// How frames of a device begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LinkLayer {
    /// With an Ethernet header.
    #[default]
    Ethernet,
    /// With an IP header.
    Ip,
}

/// How far [`deliver`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All of the frame was delivered.
    Done,
    /// The receiver is full: go on from this segment later.
    Full(usize),
    /// Header and frame do not fit together; nothing was delivered.
    Damaged,
}

/// Hands `frame`, put into its form on a wire, to `push` as runs of bytes, from segment `from` on (0 at first). `push` gives
/// `false` when it has no room. `tag` is a VLAN tag (TPID, TCI) to be put back. The frame's checksum is finished in place.
pub fn deliver(
    frame: &mut [u8],
    header: VnetHeader,
    tag: Option<[u8; 4]>,
    link: LinkLayer,
    from: usize,
    mut push: impl FnMut(&[&[u8]]) -> bool,
) -> Delivery {
    // A tag can stand only behind whole addresses.
    let tag = tag.filter(|_| link == LinkLayer::Ethernet);
    if tag.is_some() && frame.len() < ADDRESSES {
        return Delivery::Damaged;
    }
    if !header.is_gso() || header.gso_type == VnetHeader::GSO_UFO {
        if header.needs_checksum() && checksum::complete(frame, header.csum_start, header.csum_offset).is_err() {
            return Delivery::Damaged;
        }
        // An oversized datagram (UFO; no kernel since 4.14 sends it here) goes on whole: it is a valid packet, and the
        // forwarding path fragments by the MTU of the way out.
        let delivered = match &tag {
            None => push(&[frame]),
            Some(tag) => push(&[&frame[..ADDRESSES], tag, &frame[ADDRESSES..]]),
        };
        return if delivered { Delivery::Done } else { Delivery::Full(from) };
    }
    segment(frame, header, tag, link, from, push).unwrap_or(Delivery::Damaged)
}

/// [`deliver`] for super-frames; `None`: damaged.
fn segment(
    frame: &[u8],
    header: VnetHeader,
    tag: Option<[u8; 4]>,
    link: LinkLayer,
    from: usize,
    mut push: impl FnMut(&[&[u8]]) -> bool,
) -> Option<Delivery> {
    let kind = GsoKind::from_virtio(header.gso_type)?;
    let l3 = match link {
        LinkLayer::Ethernet => skip_tags(frame, MAX_TAGS)?.0,
        LinkLayer::Ip => 0,
    };
    let segments = Segments::new(frame, l3, kind, header.gso_size).ok()?;
    let mut space = [0; MAX_HEADERS];
    let headers = space.get_mut(..segments.header_len())?;
    for index in from..segments.count() {
        segments.write_header(index, headers)?;
        let payload = &frame[segments.payload(index)];
        let delivered = match &tag {
            None => push(&[headers, payload]),
            Some(tag) => push(&[&headers[..ADDRESSES], tag, &headers[ADDRESSES..], payload]),
        };
        if !delivered {
            return Some(Delivery::Full(index));
        }
    }
    Some(Delivery::Done)
}

#[cfg(test)]
mod tests;
