//! Receiving: a device's queue, and the vector that it appends packets to.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use quiver_buffer::{Cache, HEADROOM};

use super::{RxState, Segment};
use crate::chain;
use crate::context::NodeCx;
use crate::frame::{Frame, IF_MASK, IfIndex, Span};
use crate::memory::{Memory, Shared};
use crate::packet::Pkt;

/// One receive queue of a device.
pub trait RxQueue: Send {
    /// Appends what is there, until [`RxBurst::room`] is 0.
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState;

    /// Arms the device's event before the thread sleeps; `false` when packets are there already.
    fn arm(&mut self) -> bool {
        true
    }

    /// Descriptor that becomes readable when packets arrive; `None`: the queue must be polled.
    fn event_fd(&self) -> Option<RawFd> {
        None
    }

    /// Looking for packets is a system call, and [`RxQueue::event_fd`] stays readable while packets wait in the device. Where there are
    /// several such queues, the kernel is asked once which of them have packets, and the others are left alone.
    fn asks_by_call(&self) -> bool {
        false
    }

    /// Throws away what waits: the interface comes up and must not deliver what arrived while it was down.
    fn discard(&mut self) {}

    /// Takes up what [`Port::refresh`](super::Port::refresh) has re-opened; the event descriptor may be another one afterwards.
    fn renew(&mut self) {}

    /// Receives for the first time in a process that takes over from another one, which stopped receiving at `since` (ns of the
    /// kernel's wall clock): what arrived before was the other one's.
    fn begin(&mut self, _since: u64) {
        self.discard();
    }
}
/// Receiving side of a vector: drivers append packets.
pub struct RxBurst<'a, 'c> {
    pub(super) cx: &'a mut NodeCx<'c>,
    pub(super) frame: &'a mut Frame<Shared>,
    pub(super) interface: IfIndex,
    pub(super) bytes: u64,
}

impl RxBurst<'_, '_> {
    /// Packets that still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.cx.vector_size().saturating_sub(self.frame.len())
    }

    /// Copies a packet in (chained where one buffer is too small). `false` when there was no room or no buffer; a missing
    /// buffer is counted, so the driver just goes on.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.push_parts(&[bytes])
    }

    /// Copies a packet in from several byte runs.
    pub fn push_parts(&mut self, parts: &[&[u8]]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let Some(packet) = self.cx.alloc_parts(parts, self.interface) else { return false };
        self.frame.append(&packet.any());
        self.bytes += parts.iter().map(|p| p.len() as u64).sum::<u64>();
        true
    }

    /// Receives up to `wanted` packets of one buffer each, for drivers whose packets wait in a ring: `fill` gets the number of
    /// the packet and a buffer's data area, writes the packet there and returns its length, or `None` to end before it.
    /// Returns how many were received; a missing buffer is counted, and its packet stays with the driver.
    #[inline(always)]
    pub fn push_many(&mut self, wanted: usize, fill: impl FnMut(usize, &mut [MaybeUninit<u8>]) -> Option<usize>) -> usize {
        let (n, bytes) = self.cx.push_many(self.frame, wanted, self.interface, fill);
        self.bytes += bytes;
        n
    }

    /// Bytes of a packet that fit into one buffer.
    pub fn single_max(&self) -> usize {
        self.cx.env.data_end as usize - HEADROOM
    }

    /// [`RxBurst::push_parts`] for runs that another process may write to at the same time: then the bytes copied are any
    /// mixture.
    ///
    /// # Safety
    /// Each run is mapped and readable during the call.
    pub unsafe fn push_raw(&mut self, runs: &[(*const u8, usize)]) -> bool {
        if self.room() == 0 {
            return false;
        }
        let env = self.cx.env;
        // SAFETY: the caller's promise is that of `build`.
        let Some(packet) = (unsafe { chain::build(self.cx.core, env, runs, self.interface) }) else { return false };
        self.frame.append(&packet.any());
        self.bytes += runs.iter().map(|(_, len)| *len as u64).sum::<u64>();
        true
    }

    /// Copies a packet in whose layer-4 checksum is unfinished: to be summed from `start`, stored `offset` bytes further.
    pub fn push_unfinished(&mut self, parts: &[&[u8]], start: u16, offset: u16) -> bool {
        if !self.push_parts(parts) {
            return false;
        }
        let env = self.cx.env;
        // SAFETY: the lane was just written, and the frame is exclusively borrowed.
        unsafe { Pkt::of_lane(self.frame, self.frame.len - 1, &env) }.set_unfinished_checksum(start, offset);
        true
    }

    /// Takes up to `wanted` free buffers for a device to fill, appended to `out`; returns how many there were. They are the
    /// driver's until it gives them back by [`RxBurst::adopt`], [`RxBurst::give_back`] or [`quiver_buffer::Pool::give`].
    pub fn take_buffers(&mut self, wanted: usize, out: &mut Vec<u32>) -> usize {
        self.cx.core.cache.alloc_bulk(wanted, out)
    }

    /// Gives buffers back that the device did not fill, or has sent.
    ///
    /// # Safety
    /// The caller owns them, nobody else writes them any more, and it forgets them.
    pub unsafe fn give_back(&mut self, buffers: &[u32]) {
        self.cx.core.cache.free_bulk(buffers);
    }

    /// The free buffers of this thread, for drivers whose library takes and gives buffers by itself.
    pub fn cache(&mut self) -> &mut Cache {
        &mut self.cx.core.cache
    }

    /// Appends a packet where it lies: in buffers that the device has filled. `false` (and nothing done) when there is no
    /// room, no segment, or one that does not lie within its buffer's data area.
    ///
    /// # Safety
    /// The caller owns the buffers, each named once, nobody else writes them any more (but a peer, where they are of a
    /// [`quiver_buffer::SharedPool`]); after `true` it forgets them.
    #[inline(always)]
    pub unsafe fn adopt(&mut self, segments: &[Segment]) -> bool {
        let env = self.cx.env;
        let fits = |s: &Segment| s.offset.checked_add(s.len).is_some_and(|end| end <= env.data_end);
        if self.room() == 0 || !segments.iter().all(fits) {
            return false;
        }
        // SAFETY: the caller's promise; every segment ends within the data area (checked above).
        let Some((packet, bytes)) = (unsafe { chain::adopt(env, segments, self.interface) }) else { return false };
        self.frame.append(&packet);
        self.bytes += bytes;
        true
    }

    /// Counts packets that the device itself lost.
    pub fn missed(&mut self, n: u64) {
        let thread = self.cx.thread();
        self.cx.interfaces().rx_miss.add(thread, self.interface.0, n);
    }

    /// Counts packets that came in damaged.
    pub fn damaged(&mut self, n: u64) {
        let thread = self.cx.thread();
        self.cx.interfaces().rx_error.add(thread, self.interface.0, n);
    }

    /// ns of the router's clock.
    pub fn now(&self) -> u64 {
        self.cx.now()
    }
}
impl NodeCx<'_> {
    /// Appends up to `wanted` new packets of one buffer each to a frame, as far as there is room in the vector: `fill` gets the
    /// number of the packet and a buffer's data area, writes the packet there and returns its length, or `None` to end before
    /// it. Returns packets and bytes; a missing buffer is counted.
    #[inline(always)]
    pub fn push_many<M: Memory>(
        &mut self,
        frame: &mut Frame<M>,
        wanted: usize,
        rx_if: IfIndex,
        mut fill: impl FnMut(usize, &mut [MaybeUninit<u8>]) -> Option<usize>,
    ) -> (usize, u64) {
        let (from, wanted) = (frame.len, wanted.min(self.vector_size().saturating_sub(frame.len)));
        let got = self.core.cache.alloc_into(&mut frame.index[from..from + wanted]);
        if got < wanted {
            self.no_buffer(rx_if, (wanted - got) as u64);
        }
        let env = self.env;
        let room = env.data_end as usize - HEADROOM;
        let (mut n, mut bytes) = (0, 0);
        for (index, span) in frame.index[from..from + got].iter().zip(&mut frame.span[from..]) {
            // SAFETY: the index was handed out above, so the buffer lies in the region (R2) and is ours alone; HEADROOM + room
            // is the end of its data area.
            let area = unsafe {
                let first = env.base.add(*index as usize * env.stride as usize + HEADROOM);
                std::slice::from_raw_parts_mut(first.cast::<MaybeUninit<u8>>(), room)
            };
            let Some(len) = fill(n, area) else { break };
            let len = len.min(room);
            *span = Span::new(HEADROOM as u32, len as u32).0;
            bytes += len as u64;
            n += 1;
        }
        frame.context[from..from + n].fill(rx_if.0 & IF_MASK);
        frame.aux[from..from + n].fill(0);
        frame.len = from + n;
        if n < got {
            // Lanes past the end keep these indices, which are valid ones (F2).
            self.core.cache.free_bulk(&frame.index[from + n..from + got]);
        }
        (n, bytes)
    }
}
