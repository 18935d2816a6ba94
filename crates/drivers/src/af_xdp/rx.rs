//! The receive queue: frames stay where the kernel has put them, in packet buffers of ours.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_graph::{RxBurst, RxQueue, RxState, Segment, prefetch};

use super::DeviceState;
use super::host_peer;
use super::ring::Descriptor;
use super::socket::Receiver;
use crate::closer::Later;
use crate::mailbox::Mailbox;
use crate::sys;
use crate::virtio_net::{Delivery, LinkLayer, VnetHeader, deliver};

/// Buffers are lent so many at a time, unless nearly none are left.
const REFILL: u32 = 64;
/// How often the kernel is asked what it has lost, ns.
const ASK: u64 = 1_000_000_000;
/// So far ahead a frame is fetched.
const AHEAD: u32 = 4;

/// A receiving half on its way between control side and worker.
pub(super) type Shipped = Later<Receiver>;

/// One receive queue.
pub(super) struct AfXdpRx {
    /// `None` only after the end.
    half: Option<Shipped>,
    mailbox: Arc<Mailbox<Shipped>>,
    device: Arc<DeviceState>,
    fresh: Vec<u32>,
    /// A frame that had to be gathered.
    large: Vec<u8>,
    /// Its header, and the segment to go on with, while it is being delivered.
    in_large: Option<(VnetHeader, usize)>,
    next_question: u64,
}

impl AfXdpRx {
    pub(super) fn new(half: Shipped, mailbox: Arc<Mailbox<Shipped>>, device: Arc<DeviceState>) -> Self {
        Self { half: Some(half), mailbox, device, fresh: Vec::new(), large: Vec::new(), in_large: None, next_question: 0 }
    }

    fn take_up(&mut self) {
        if self.mailbox.exchange(&mut self.half) {
            self.in_large = None;
        }
    }

    /// Lends the kernel buffers for those that have come back.
    #[inline(always)]
    fn refill(&mut self, burst: &mut RxBurst<'_, '_>) {
        let Some(half) = &mut self.half else { return };
        let target = self.device.fill_target;
        // What has come back through the rx ring may still stand in the fill ring for a moment.
        let missing = target.saturating_sub(half.lent.count()).min(half.fill.free());
        if missing < REFILL.min(target / 2) {
            return;
        }
        burst.take_buffers(missing as usize, &mut self.fresh);
        for buffer in self.fresh.drain(..) {
            half.lent.lend(buffer);
            half.fill.put(self.device.addresses.address(buffer, 0));
        }
        half.fill.publish();
        half.socket.lent[0].store(half.lent.count(), Ordering::Relaxed);
    }

    /// Takes the frame that begins with the next of `available` descriptors; gives how many it took, 0 when the rest is not
    /// there yet.
    #[inline(always)]
    fn frame(&mut self, available: u32, burst: &mut RxBurst<'_, '_>) -> u32 {
        let Some(half) = &mut self.half else { return 0 };
        let first = half.rx.peek(0);
        if first.options & Descriptor::CONTINUED != 0 {
            return self.pieces(available, burst);
        }
        let (buffer, offset) = self.device.addresses.place(first.address);
        if !half.lent.take_back(buffer) {
            burst.damaged(1);
            return 1;
        }
        let segment = Segment { buffer, offset, len: first.len };
        if self.device.finishes {
            let limit = self.device.frame_limit();
            // SAFETY: the buffer was lent and is back, so it is ours alone.
            match unsafe { self.device.bytes(segment) } {
                Some(bytes) if limit.refuses(bytes.len(), bytes) => {
                    self.gather(&[segment], burst);
                    return 1;
                }
                Some(bytes) => host_peer::finish_checksum(bytes),
                None => {}
            }
        }
        self.adopt(&[segment], burst);
        1
    }

    /// A frame in several pieces.
    #[cold]
    fn pieces(&mut self, available: u32, burst: &mut RxBurst<'_, '_>) -> u32 {
        let Some(half) = &mut self.half else { return 0 };
        let Some(last) = (0..available).find(|ahead| half.rx.peek(*ahead).options & Descriptor::CONTINUED == 0) else { return 0 };
        let mut segments = Vec::with_capacity(last as usize + 1);
        for ahead in 0..=last {
            let piece = half.rx.peek(ahead);
            let (buffer, offset) = self.device.addresses.place(piece.address);
            if half.lent.take_back(buffer) {
                segments.push(Segment { buffer, offset, len: piece.len });
            }
        }
        if self.device.finishes {
            self.gather(&segments, burst)
        } else {
            self.adopt(&segments, burst)
        }
        last + 1
    }

    /// Makes a packet of buffers that are back from the kernel.
    #[inline(always)]
    fn adopt(&mut self, segments: &[Segment], burst: &mut RxBurst<'_, '_>) {
        // SAFETY: the buffers were lent and are back, so they are ours alone; they are forgotten here.
        if !unsafe { burst.adopt(segments) } {
            self.give_back(segments, burst);
            burst.damaged(1);
        }
    }

    #[cold]
    fn give_back(&mut self, segments: &[Segment], burst: &mut RxBurst<'_, '_>) {
        let buffers: Vec<u32> = segments.iter().map(|s| s.buffer).collect();
        // SAFETY: the buffers were lent and are back, so they are ours alone; they are forgotten here.
        unsafe { burst.give_back(&buffers) };
    }

    /// Copies a frame of a kernel peer together, to be finished or cut. Its buffers go back at once.
    #[cold]
    fn gather(&mut self, segments: &[Segment], burst: &mut RxBurst<'_, '_>) {
        self.large.clear();
        for segment in segments {
            // SAFETY: the buffers were lent and are back, so they are ours alone.
            if let Some(bytes) = unsafe { self.device.bytes(*segment) } {
                self.large.extend_from_slice(bytes);
            }
        }
        self.give_back(segments, burst);
        if self.device.frame_limit().refuses(self.large.len(), &self.large) {
            match host_peer::describe(&self.large, self.device.mtu()) {
                Some(header) => self.in_large = Some((header, 0)),
                None => burst.damaged(1),
            }
        } else {
            host_peer::finish_checksum(&mut self.large);
            self.in_large = Some((VnetHeader::default(), 0));
        }
        self.deliver_gathered(burst);
    }

    /// Goes on with a frame that has been gathered; `false` when the vector is full before its end.
    fn deliver_gathered(&mut self, burst: &mut RxBurst<'_, '_>) -> bool {
        let Some((header, from)) = self.in_large.take() else { return true };
        let delivery = deliver(&mut self.large, header, None, LinkLayer::Ethernet, from, |parts| {
            if burst.room() == 0 {
                return false;
            }
            // A missing buffer is counted there; the frame is lost, and we go on.
            burst.push_parts(parts);
            true
        });
        match delivery {
            Delivery::Done => {}
            Delivery::Damaged => burst.damaged(1),
            Delivery::Full(segment) => {
                self.in_large = Some((header, segment));
                return false;
            }
        }
        true
    }

    /// Has the kernel bring in frames where it does so only when asked, or where busy polling is our task.
    #[cold]
    fn wake(&self) {
        let Some(half) = &self.half else { return };
        // SAFETY: an empty buffer; the kernel only looks after the queue.
        let _ = unsafe { libc::recv(half.socket.raw(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
    }
}

impl RxQueue for AfXdpRx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.take_up();
        self.refill(burst);
        if !self.deliver_gathered(burst) {
            return RxState::Up;
        }
        let available = self.half.as_ref().map_or(0, |h| h.rx.available());
        let mut taken = 0;
        while taken < available && burst.room() > 0 && self.in_large.is_none() {
            if let Some(half) = &self.half
                && taken + AHEAD < available
            {
                let (buffer, offset) = self.device.addresses.place(half.rx.peek(AHEAD).address);
                prefetch(self.device.address(buffer, offset));
            }
            let n = self.frame(available - taken, burst);
            if n == 0 {
                break;
            }
            taken += n;
            if let Some(half) = &mut self.half {
                half.rx.advance(n);
            }
        }
        let Some(half) = &mut self.half else { return RxState::Down };
        if taken > 0 {
            half.rx.release();
            half.socket.lent[0].store(half.lent.count(), Ordering::Relaxed);
        } else if self.device.busy_polls || half.fill.needs_wakeup() {
            self.wake();
        }
        if burst.now() >= self.next_question {
            self.next_question = burst.now() + ASK;
            if let Some(half) = &mut self.half {
                burst.missed(half.lost());
            }
        }
        RxState::Up
    }

    fn arm(&mut self) -> bool {
        self.take_up();
        // What was lost since the last question is told by the first poll after the sleep.
        self.next_question = 0;
        let Some(half) = &self.half else { return true };
        // A device that went away leaves an error on the socket that would keep it readable for ever.
        let _ = half.socket.fd().map(sys::take_error);
        // Without a buffer the kernel can bring in nothing, so nothing would wake us.
        half.rx.available() == 0 && half.lent.count() > 0 && self.in_large.is_none()
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.half.as_ref().map(|h| h.socket.raw())
    }

    fn discard(&mut self) {
        self.take_up();
        self.in_large = None;
        if let Some(half) = &mut self.half {
            half.discard(self.device.addresses);
        }
    }

    fn renew(&mut self) {
        self.take_up();
    }
}
