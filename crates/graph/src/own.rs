//! Copies of packets whose bytes a peer can change at any moment ([`quiver_buffer::SharedPool`]).
//!
//! Such packets go in place only through nodes and devices for shared memory ([`crate::memory`]). For every other node, and every
//! device whose memory is the region's own, a packet is copied before it gets there.

use quiver_buffer::{Meta, NO_BUFFER, copy_shared};

use crate::context::{Core, NodeCx};
use crate::frame::{Frame, IF_MASK, LANES, Span, TAKEN, flags};
use crate::memory::Shared;

/// Bytes in front of the data that are copied too: headers that were taken off are still looked at there.
const BEFORE: usize = 64;

impl Core {
    /// Copies packets that lie in a peer's memory. Those that find no buffer are dropped, and counted as such.
    #[cold]
    pub(crate) fn own(&mut self, frame: &mut Frame<Shared>, next: &mut [u16; LANES]) {
        for i in 0..frame.len {
            if frame.index[i] == TAKEN || !self.region.is_shared(frame.index[i]) {
                continue;
            }
            let (old, context) = (frame.index[i], frame.context[i]);
            match self.copy_chain(old, frame.span[i], context) {
                Some(new) => frame.index[i] = new,
                None => {
                    let rx_if = context & IF_MASK;
                    self.no_buffer += 1;
                    self.interfaces.rx_no_buf.add(self.thread, rx_if, 1);
                    frame.index[i] = TAKEN;
                    frame.taken += 1;
                }
            }
            self.free_chain(old, context);
        }
        if frame.taken > 0 {
            frame.compact(next);
        }
    }

    /// A copy of a packet in our own buffers, each segment and its metadata at the place where it was; the first of them.
    fn copy_chain(&mut self, first: u32, span: u32, context: u32) -> Option<u32> {
        let chained = context & flags::CHAINED != 0;
        let new = self.copy_buffer(first, Span(span))?;
        if context & flags::META == 0 {
            return Some(new);
        }
        let mut meta = self.meta(first);
        let mut rest = if chained { meta.next } else { NO_BUFFER };
        meta.next = NO_BUFFER;
        self.set_meta(new, meta);
        let mut last = new;
        while rest != NO_BUFFER {
            let mut meta = self.meta(rest);
            let Some(copy) = self.copy_buffer(rest, Span(meta.segment)) else {
                self.free_chain(new, context);
                return None;
            };
            rest = std::mem::replace(&mut meta.next, NO_BUFFER);
            self.set_meta(copy, meta);
            let before = Meta { next: copy, ..self.meta(last) };
            self.set_meta(last, before);
            last = copy;
        }
        Some(new)
    }

    fn copy_buffer(&mut self, from: u32, span: Span) -> Option<u32> {
        let to = self.cache.alloc()?;
        let start = span.offset().saturating_sub(BEFORE);
        let len = span.offset() + span.len() - start;
        // SAFETY: F2: the span ends inside both buffers, which are different ones; this worker owns both, and only a peer writes to
        // the source meanwhile.
        unsafe {
            let from = self.region.buffer_address(from).add(start);
            copy_shared(self.region.buffer_address(to).add(start), from.cast_const(), len);
        }
        Some(to)
    }

    fn set_meta(&mut self, index: u32, meta: Meta) {
        // SAFETY: the index of a buffer that this worker owns (R1).
        unsafe { *self.env.meta.add(index as usize) = meta }
    }
}

impl NodeCx<'_> {
    /// Copies packets that lie in a peer's memory, if there is any such memory.
    #[inline(always)]
    pub(crate) fn own(&mut self, frame: &mut Frame<Shared>) {
        if self.core.region.has_shared() {
            self.core.own(frame, self.next);
        }
    }
}
