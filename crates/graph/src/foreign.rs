//! What nodes in another language are given of a vector: addresses of the packets' bytes, and the lanes as slices.
//!
//! The caller of such a node is in a crate that may use unsafe code. This module gives addresses and never reads the bytes behind them. It
//! writes lanes only by calls that keep the invariants of a [`Frame`].

use crate::context::NodeCx;
use crate::frame::Frame;
use crate::node::Verdict;

impl NodeCx<'_> {
    /// Writes down where the data of each packet begins, and how many bytes of it lie in the packet's first buffer.
    ///
    /// At each address that many bytes can be read and written until the packet is sent on, and
    /// [`HEADER_WINDOW`](quiver_buffer::HEADER_WINDOW) bytes can be read in any case.
    ///
    /// # Panics
    /// Where a slice is shorter than the vector.
    #[inline(always)]
    pub fn windows(&self, frame: &Frame, heads: &mut [*mut u8], lengths: &mut [u32]) {
        let n = frame.len;
        let (heads, lengths) = (&mut heads[..n], &mut lengths[..n]);
        for i in 0..n {
            let span = frame.span[i];
            heads[i] = self.env.base.wrapping_add(frame.index[i] as usize * self.env.stride as usize + (span >> 16) as usize);
            lengths[i] = span & 0xffff;
        }
    }

    /// Where the packets of a vector go: a slot for each, to be written.
    #[inline(always)]
    pub fn slots(&mut self, frame: &Frame) -> &mut [u16] {
        &mut self.next[..frame.len]
    }

    /// Drops packet `i` for the node's reason at this place, one of those declared by
    /// [`NodeSpec::with_reasons`](crate::NodeSpec::with_reasons). Who calls it has seen that there is one.
    pub fn drop_at(&mut self, frame: &mut Frame, i: usize, reason: u16) {
        if let (Some(next), Some(aux)) = (self.next.get_mut(i), frame.aux.get_mut(i)) {
            *next = Verdict::DROP.0;
            *aux = self.env.error_base + u32::from(reason);
        }
    }

    /// Counts events by the place of their reason, as [`NodeCx::drop_at`].
    pub fn count_at(&mut self, reason: u16, n: u64) {
        self.core.errors.add(self.core.thread, self.env.error_base + u32::from(reason), n);
    }
}

impl Frame {
    /// Interfaces and [`flags`](crate::flags) of the packets.
    #[inline(always)]
    pub fn contexts(&self) -> &[u32] {
        &self.context[..self.len]
    }

    /// What the nodes before have noted of the packets.
    #[inline(always)]
    pub fn notes(&self) -> &[u32] {
        &self.aux[..self.len]
    }
}
