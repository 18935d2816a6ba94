//! Packets over several buffers: made, joined and cut here, and nowhere else, so that the spans of continuation buffers keep
//! F2.

use quiver_buffer::{HEADROOM, Meta, NO_BUFFER};

use crate::IfIndex;
use crate::context::{Core, NodeCx};
use crate::frame::{IF_MASK, Span, TAKEN, flags};
use crate::memory::{self, Memory, Private, Shared};
use crate::packet::{Env, Packet, Pkt};
use crate::port::Segment;

/// A run of bytes to copy from.
pub(crate) trait Run: Copy {
    /// Whose memory it lies in.
    type Memory: Memory;
    fn start(self) -> *const u8;
    fn bytes(self) -> usize;
}

impl Run for &[u8] {
    type Memory = Private;
    fn start(self) -> *const u8 {
        self.as_ptr()
    }
    fn bytes(self) -> usize {
        self.len()
    }
}

impl Run for (*const u8, usize) {
    type Memory = Shared;
    fn start(self) -> *const u8 {
        self.0
    }
    fn bytes(self) -> usize {
        self.1
    }
}

/// Copies `parts` into as many buffers as they need. `None` (and nothing taken) when buffers have run out; that is counted.
///
/// # Safety
/// Each part is readable for its length during the call.
pub(crate) unsafe fn build<R: Run>(core: &mut Core, env: Env, parts: &[R], rx_if: IfIndex) -> Option<Packet> {
    let room = env.data_end as usize - HEADROOM;
    let total: usize = parts.iter().map(|p| p.bytes()).sum();
    let count = total.div_ceil(room).max(1);
    let mut buffers = Vec::new();
    if count > 1 {
        buffers.reserve_exact(count);
    }
    let first = core.cache.alloc();
    let rest = count - 1;
    let got = if first.is_some() && rest > 0 { core.cache.alloc_bulk(rest, &mut buffers) } else { 0 };
    let Some(first) = first.filter(|_| got == rest) else {
        core.cache.free_bulk(&buffers);
        first.inspect(|index| core.cache.free(*index));
        core.no_buffer += 1;
        core.interfaces.rx_no_buf.add(core.thread, rx_if.0, 1);
        return None;
    };
    let mut source = parts.iter().copied().filter(|p| p.bytes() > 0).peekable();
    let mut offset_in_part = 0;
    let mut fill = |index: u32, room: usize| {
        let mut done = 0;
        while done < room {
            let Some(part) = source.peek() else { break };
            let n = (part.bytes() - offset_in_part).min(room - done);
            // SAFETY: `index` was allocated above and is ours alone; HEADROOM + room = data_end lies inside the buffer (R2).
            // The part is readable by the caller's promise, and buffers handed out now belong to no packet.
            unsafe {
                let to = env.base.add(index as usize * env.stride as usize + HEADROOM + done);
                memory::copy::<R::Memory>(to, part.start().add(offset_in_part), n);
            }
            done += n;
            offset_in_part += n;
            if offset_in_part == part.bytes() {
                source.next();
                offset_in_part = 0;
            }
        }
        Span::new(HEADROOM as u32, done as u32)
    };
    let span = fill(first, room);
    let mut context = rx_if.0 & IF_MASK;
    if rest > 0 {
        context |= flags::META | flags::CHAINED;
        let head = Meta { next: buffers[0], rest_len: (total - span.len()) as u32, ..Meta::EMPTY };
        // SAFETY: the metadata lines of buffers that we own, at valid indices (R1).
        unsafe { *env.meta.add(first as usize) = head };
        for (k, index) in buffers.iter().enumerate() {
            let segment = fill(*index, room).0;
            let next = buffers.get(k + 1).copied().unwrap_or(NO_BUFFER);
            // SAFETY: as above.
            unsafe { *env.meta.add(*index as usize) = Meta { next, segment, ..Meta::EMPTY } };
        }
    }
    Some(Packet::new(first, span.0, context, 0))
}

/// A packet where a device has put it, and its bytes. `None` where there is no segment.
///
/// # Safety
/// The buffers are the caller's, each named once, and every segment ends within the data area (F2).
#[inline(always)]
pub(crate) unsafe fn adopt(env: Env, segments: &[Segment], rx_if: IfIndex) -> Option<(Packet<Shared>, u64)> {
    let (first, rest) = segments.split_first()?;
    let mut context = rx_if.0 & IF_MASK;
    let mut bytes = first.len;
    if !rest.is_empty() {
        context |= flags::META | flags::CHAINED;
        // SAFETY: as promised.
        bytes += unsafe { chain(env, first.buffer, rest) };
    }
    Some((Packet::new(first.buffer, Span::new(first.offset, first.len).0, context, 0), u64::from(bytes)))
}

/// Writes the metadata of a chain of `rest` behind `head`; gives the bytes of `rest`.
///
/// # Safety
/// As in [`adopt`].
#[cold]
unsafe fn chain(env: Env, head: u32, rest: &[Segment]) -> u32 {
    let rest_len = rest.iter().map(|s| s.len).sum();
    // SAFETY: the metadata lines of buffers that the caller owns, at valid indices (R1).
    unsafe {
        *env.meta.add(head as usize) = Meta { next: rest[0].buffer, rest_len, ..Meta::EMPTY };
        for (k, segment) in rest.iter().enumerate() {
            let next = rest.get(k + 1).map_or(NO_BUFFER, |s| s.buffer);
            let span = Span::new(segment.offset, segment.len).0;
            *env.meta.add(segment.buffer as usize) = Meta { next, segment: span, ..Meta::EMPTY };
        }
    }
    rest_len
}

/// Several packets that become one.
///
/// The head keeps its lanes and its metadata (trace, table); what follows gives only its bytes.
#[must_use = "a joined packet must be finished"]
pub struct Joining {
    head: Packet,
    /// Last buffer of the chain so far.
    last: u32,
    rest_len: u32,
}

impl NodeCx<'_> {
    /// Starts joining packets behind `head`.
    pub fn join(&mut self, mut head: Packet) -> Joining {
        let chained = head.context & flags::CHAINED != 0;
        // The line is made valid here: from now on its `next` may be written.
        let Meta { next, rest_len, .. } = *self.view(&mut head).meta_mut();
        let (first, rest_len) = if chained { (next, rest_len) } else { (NO_BUFFER, 0) };
        let last = if chained { self.last_buffer(first) } else { head.index };
        Joining { head, last, rest_len }
    }

    /// Hangs the bytes of `packet` behind those joined so far.
    pub fn join_next(&mut self, joining: &mut Joining, mut packet: Packet) {
        if packet.index == TAKEN {
            return;
        }
        let (index, span) = (packet.index, packet.span);
        let len = self.view(&mut packet).total_len() as u32;
        let chained = packet.context & flags::CHAINED != 0;
        let mut view = self.view(&mut packet);
        let meta = view.meta_mut();
        let next = if chained { meta.next } else { NO_BUFFER };
        *meta = Meta { next, segment: span, ..Meta::EMPTY };
        let last = if chained { self.last_buffer(next) } else { index };
        // SAFETY: the last buffer belongs to the joined packet, whose owner is `joining`; its line is inside the array (R1).
        unsafe { (*self.env.meta.add(joining.last as usize)).next = index };
        joining.last = last;
        joining.rest_len += len;
    }

    /// The packet that all have become.
    pub fn join_end(&mut self, joining: Joining) -> Packet {
        let Joining { mut head, rest_len, last } = joining;
        if last != head.index {
            self.view(&mut head).meta_mut().rest_len = rest_len;
            head.context |= flags::CHAINED;
        }
        head
    }

    fn last_buffer(&self, mut index: u32) -> u32 {
        loop {
            // SAFETY: chain links name buffers owned with the packet, at valid indices (R1).
            let next = unsafe { (*self.env.meta.add(index as usize)).next };
            if next == NO_BUFFER {
                return index;
            }
            index = next;
        }
    }

    /// [`NodeCx::cut`] for a packet in a frame.
    pub fn cut_view(&mut self, view: &mut Pkt<'_>, len: usize) {
        let mut packet = view.copy_lanes();
        self.cut(&mut packet, len);
        view.put_lanes(&packet);
    }

    /// Cuts a packet to its first `len` bytes and frees the buffers that hold none of them.
    pub fn cut(&mut self, packet: &mut Packet, len: usize) {
        if packet.index == TAKEN {
            return;
        }
        self.view(packet).trim(len);
        if packet.context & flags::CHAINED == 0 {
            return;
        }
        let mut at = packet.index;
        let mut left = len.saturating_sub(Span(packet.span).len());
        // Trimming has set the lengths: as long as bytes are left, the next buffer holds some.
        while left > 0 {
            // SAFETY: as in `last_buffer`.
            let next = unsafe { (*self.env.meta.add(at as usize)).next };
            if next == NO_BUFFER {
                break;
            }
            at = next;
            // SAFETY: as above.
            left = left.saturating_sub(Span(unsafe { (*self.env.meta.add(at as usize)).segment }).len());
        }
        // SAFETY: as above; the link is cut before what follows is freed.
        let mut rest = unsafe { std::mem::replace(&mut (*self.env.meta.add(at as usize)).next, NO_BUFFER) };
        while rest != NO_BUFFER {
            // SAFETY: as above.
            let next = unsafe { (*self.env.meta.add(rest as usize)).next };
            self.core.cache.free(rest);
            rest = next;
        }
        if at == packet.index {
            packet.context &= !flags::CHAINED;
        }
    }
}

impl<M: Memory> Packet<M> {
    /// Makes the packet fit to go to another worker: trace records belong to the worker that began them, so the trace ends.
    pub fn detach(&mut self) {
        self.context &= !flags::TRACED;
    }
}
