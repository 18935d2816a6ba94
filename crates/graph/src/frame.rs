//! The vector in flight: four `u32` lanes.
//!
//! | lane | holds |
//! |---|---|
//! | index | the buffer |
//! | span | data offset (high 16 bits, from the start of the buffer's headroom) and length of the first segment (low 16) |
//! | context | logical rx interface (low 24 bits) and [`flags`] |
//! | aux | load-balance, then adjacency, then tx interface; at `error-drop` the drop reason |
//!
//! A plain forwarded packet touches its own header line and these lanes, which stay in L1; nothing else.

use std::marker::PhantomData;

use crate::memory::{Memory, Private, Shared};

/// Largest vector a frame can hold, packets.
pub const VECTOR_MAX: usize = 1024;
/// Vector size at start, packets (evidence: 64 to 1024 lie within 7 %).
pub const VECTOR_DEFAULT: usize = 256;
/// Largest prefetch distance, packets: lanes are padded by so much, so that reading ahead needs no bound.
pub const PREFETCH_MAX: usize = 16;

pub(crate) const LANES: usize = VECTOR_MAX + PREFETCH_MAX;

/// Flags in the high 8 bits of the context lane.
pub mod flags {
    /// Any of them.
    pub const ANY: u32 = !super::IF_MASK;
    /// The buffer's metadata line is valid.
    pub const META: u32 = 1 << 24;
    /// More buffers follow (implies [`META`]).
    pub const CHAINED: u32 = 1 << 25;
    /// The layer-4 checksum is unfinished; the metadata line says where (implies [`META`]).
    pub const CHECKSUM: u32 = 1 << 26;
    /// The packet is traced (implies [`META`]).
    pub const TRACED: u32 = 1 << 27;
    /// This router made the packet: no TTL is taken from it.
    pub const LOCAL: u32 = 1 << 28;
    /// It came as link-layer broadcast or multicast: no ICMP error may answer it (RFC 1812 section 4.3.2.7, RFC 4443 2.4(e)).
    pub const LINK_MULTICAST: u32 = 1 << 29;
    /// How often a route has had the packet taken as if it had come in on another interface: two bits.
    pub const AGAIN: u32 = 3 << 30;
}

pub(crate) const IF_MASK: u32 = (1 << 24) - 1;

/// Index of an interface (VPP's `sw_if_index`); 0 is `local0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

impl IfIndex {
    /// `local0`, the interface that always exists.
    pub const LOCAL0: Self = Self(0);
}

impl std::fmt::Display for IfIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Data offset and length of a packet's first segment in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Span(pub(crate) u32);

impl Span {
    #[inline(always)]
    pub(crate) const fn new(offset: u32, len: u32) -> Self {
        Self(offset << 16 | len)
    }

    /// Bytes from the start of the buffer's headroom to the data.
    #[inline(always)]
    pub const fn offset(self) -> usize {
        (self.0 >> 16) as usize
    }

    /// Bytes of data in the first segment.
    #[inline(always)]
    pub const fn len(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Whether there is no data.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A vector of packets on its way from node to node.
///
/// Invariants (cited by `unsafe` code of this crate):
/// * F1: for `i < len` the index lane names a buffer that this frame owns, and no index occurs twice.
/// * F2: for every `i` (also the stale ones past `len`) the index is one of the region's, and the span's offset and
///   offset + length are at most the geometry's `data_end`, so that reading [`quiver_buffer::HEADER_WINDOW`] bytes from the
///   data offset stays inside the buffer.
///
/// * F3: packets of a frame of [`Private`] memory lie in no [`quiver_buffer::SharedPool`].
///
/// Lanes are private to the crate; whoever writes one keeps the invariants.
#[repr(C, align(64))]
pub struct Frame<M = Private> {
    pub(crate) len: usize,
    pub(crate) index: [u32; LANES],
    pub(crate) span: [u32; LANES],
    pub(crate) context: [u32; LANES],
    pub(crate) aux: [u32; LANES],
    /// Packets that a node has taken out of the frame; their index lane is [`TAKEN`] until the frame is compacted.
    pub(crate) taken: usize,
    memory: PhantomData<M>,
}

/// Index lane of a packet that a node has taken.
pub(crate) const TAKEN: u32 = u32::MAX;

impl<M: Memory> Frame<M> {
    pub(crate) fn boxed() -> Box<Self> {
        // Zeroed lanes are valid ones (F2): buffer 0, offset 0, length 0.
        Box::new(Self {
            len: 0,
            index: [0; LANES],
            span: [0; LANES],
            context: [0; LANES],
            aux: [0; LANES],
            taken: 0,
            memory: PhantomData,
        })
    }

    /// The frame for who takes packets in any memory, and adds none.
    #[inline(always)]
    pub(crate) fn any(&mut self) -> &mut Frame<Shared> {
        // SAFETY: the layout is the same; F3 asks nothing of frames of shared memory.
        unsafe { &mut *std::ptr::from_mut(self).cast() }
    }

    /// As [`Frame::any`].
    #[inline(always)]
    pub(crate) fn into_any(self: Box<Self>) -> Box<Frame<Shared>> {
        // SAFETY: as in `any`; the allocation is the same.
        unsafe { Box::from_raw(Box::into_raw(self).cast()) }
    }

    /// Packets in the frame.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no packet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the packet of another frame's lane; the caller stops using that lane.
    #[inline(always)]
    pub(crate) fn append_from(&mut self, from: &Self, i: usize) {
        let n = self.len;
        self.index[n] = from.index[i];
        self.span[n] = from.span[i];
        self.context[n] = from.context[i];
        self.aux[n] = from.aux[i];
        self.len = n + 1;
    }

    /// Appends an owned packet; the caller forgets it. There must be room.
    pub(crate) fn append(&mut self, packet: &crate::Packet<M>) {
        let n = self.len;
        self.index[n] = packet.index;
        self.span[n] = packet.span;
        self.context[n] = packet.context;
        self.aux[n] = packet.aux;
        self.len = n + 1;
    }

    /// Sum of the first segments' lengths, bytes (the whole packets where nothing is chained).
    pub fn segment_bytes(&self) -> u64 {
        self.span[..self.len].iter().map(|s| u64::from(s & 0xffff)).sum()
    }

    /// OR of all context lanes: tells at once whether any packet carries a flag.
    pub(crate) fn flags_any(&self) -> u32 {
        self.context[..self.len].iter().fold(0, |a, c| a | c)
    }

    /// Empties a frame of which every packet was taken.
    pub(crate) fn forget_taken(&mut self) {
        debug_assert_eq!(self.taken, self.len);
        // Stale lanes must stay valid for prefetching (F2).
        self.index[..self.len].fill(0);
        (self.len, self.taken) = (0, 0);
    }

    /// Removes lanes whose packet was taken, keeping `next` in step.
    #[cold]
    pub(crate) fn compact(&mut self, next: &mut [u16]) {
        let mut to = 0;
        for i in 0..self.len {
            if self.index[i] == TAKEN {
                continue;
            }
            if to != i {
                self.index[to] = self.index[i];
                self.span[to] = self.span[i];
                self.context[to] = self.context[i];
                self.aux[to] = self.aux[i];
                next[to] = next[i];
            }
            to += 1;
        }
        // Stale lanes must stay valid for prefetching (F2).
        self.index[to..self.len].fill(0);
        self.len = to;
        self.taken = 0;
    }
}

impl Frame<Shared> {
    /// The frame for who takes packets of memory `M` only.
    ///
    /// # Safety
    /// F3: `M` is [`Shared`], or none of the packets lies in shared memory.
    #[inline(always)]
    pub(crate) unsafe fn of_memory<M: Memory>(&mut self) -> &mut Frame<M> {
        // SAFETY: the layout is the same, and F3 the caller's promise.
        unsafe { &mut *std::ptr::from_mut(self).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacting_keeps_order_and_next_nodes() {
        let mut frame: Box<Frame> = Frame::boxed();
        let mut next = vec![0_u16; LANES];
        for (i, next) in next.iter_mut().enumerate().take(7) {
            frame.index[i] = i as u32 + 10;
            *next = i as u16;
        }
        frame.len = 7;
        for i in [0, 3, 6] {
            frame.index[i] = TAKEN;
        }
        frame.taken = 3;
        frame.compact(&mut next);
        assert_eq!(&frame.index[..frame.len], &[11, 12, 14, 15]);
        assert_eq!(&next[..4], &[1, 2, 4, 5]);
        assert!(frame.index.iter().all(|i| *i != TAKEN));
    }

    #[test]
    fn span_holds_offset_and_length() {
        for (offset, len) in [(0, 0), (256, 60), (2304, 0), (65535, 65535)] {
            let span = Span::new(offset, len);
            assert_eq!((span.offset(), span.len()), (offset as usize, len as usize));
        }
    }
}
