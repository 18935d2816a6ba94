//! A receive queue.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_graph::{RxBurst, RxQueue, RxState, Segment};

use crate::device::Device;
use crate::ffi::{self, BURST, Part, Received};
use crate::{eal, memory, times};

/// Many drivers give so many packets at a time, however many are asked for: fewer mean that no more are there.
const DRIVER_BURST: usize = 32;
/// Segments of a packet that is copied.
const PARTS: usize = 64;

/// One receive queue of a device.
pub struct DpdkRx {
    device: Arc<Device>,
    queue: u16,
    received: Box<Received>,
    /// Readable when the device has an interrupt for this queue; none where it must be polled.
    events: Option<OwnedFd>,
    /// The port that `events` watches.
    watched: Option<u16>,
    /// Interrupts are on, and nothing has been received since.
    armed: bool,
}

impl DpdkRx {
    /// A queue of a device that runs.
    pub fn new(device: Arc<Device>, queue: u16) -> Self {
        // SAFETY: plain numbers, for which all zeroes is a value.
        let received = unsafe { Box::<Received>::new_zeroed().assume_init() };
        let mut rx = Self { device, queue, received, events: None, watched: None, armed: false };
        rx.watch();
        rx
    }

    /// Opens the event of the device as it is now.
    fn watch(&mut self) {
        let Some(port) = self.device.gate().filter(|port| self.watched != Some(*port)) else { return };
        (self.events, self.watched, self.armed) = (None, Some(port), false);
        if self.device.setup().config.rx_interrupts == 0 {
            return;
        }
        // SAFETY: no memory is passed.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return;
        }
        // SAFETY: just made, and ours alone.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        // SAFETY: numbers only.
        if unsafe { ffi::qd_queue_watch(port, self.queue, epoll.as_raw_fd()) } == 0 {
            self.events = Some(epoll);
            self.device.has_interrupts.store(true, Ordering::Relaxed);
        }
    }

    fn switch(&mut self, on: bool) {
        if let Some(port) = self.watched {
            // SAFETY: numbers only.
            unsafe { ffi::qd_queue_arm(port, self.queue, i32::from(on)) };
        }
        self.armed = on;
    }

    /// A burst into buffers of the router's; the number of packets that the device gave.
    #[inline(always)]
    fn burst(&mut self, port: u16, burst: &mut RxBurst<'_, '_>) -> usize {
        let wanted = burst.room().min(BURST);
        let got = {
            let _loan = memory::lend(burst.cache());
            // SAFETY: D1, D2; the structure is the shim's.
            unsafe { ffi::qd_rx(port, self.queue, wanted as u32, &raw mut *self.received) as usize }
        };
        if got == 0 {
            return 0;
        }
        let received = &*self.received;
        if self.device.listener.listens() {
            times::show(&self.device.listener, received);
        }
        let mut at = 0;
        for count in &received.count[..received.packets as usize] {
            let segments = &received.segment[at..at + usize::from(*count)];
            at += segments.len();
            // SAFETY: the shim has handed these buffers over; mbuf and buffer of the same number are one.
            if !unsafe { burst.adopt(segments) } {
                refuse(burst, segments);
            }
        }
        if received.lost > 0 {
            burst.damaged(u64::from(received.lost));
        }
        got
    }

    /// A burst out of DPDK's memory.
    fn copy(&mut self, port: u16, burst: &mut RxBurst<'_, '_>) -> usize {
        let mut mbufs = [std::ptr::null_mut::<c_void>(); BURST];
        let wanted = burst.room().min(BURST);
        // SAFETY: D1, D2; room for as many as asked for.
        let got = unsafe { ffi::qd_rx_copying(port, self.queue, wanted as u32, mbufs.as_mut_ptr()) as usize };
        for mbuf in &mbufs[..got.min(BURST)] {
            if self.device.listener.listens() {
                // SAFETY: a packet that was just received.
                unsafe { times::show_mbuf(&self.device.listener, *mbuf) };
            }
            let mut parts = [Part { bytes: std::ptr::null(), len: 0 }; PARTS];
            // SAFETY: a packet that was just received, and room for as many parts as said.
            let n = unsafe { ffi::qd_parts(*mbuf, parts.as_mut_ptr(), PARTS as u32) as usize };
            let mut bytes: [&[u8]; PARTS] = [&[]; PARTS];
            for (to, part) in bytes.iter_mut().zip(&parts[..n]) {
                // SAFETY: bytes of the packet, which is freed only below.
                *to = unsafe { std::slice::from_raw_parts(part.bytes, part.len as usize) };
            }
            if n == 0 {
                burst.damaged(1);
            } else {
                // A missing buffer has been counted.
                burst.push_parts(&bytes[..n]);
            }
            // SAFETY: received above, and forgotten now.
            unsafe { ffi::qd_free(*mbuf) };
        }
        got
    }
}

/// Gives back what a device cannot have received: bytes past the end of a buffer.
#[cold]
fn refuse(burst: &mut RxBurst<'_, '_>, segments: &[Segment]) {
    burst.damaged(1);
    // SAFETY: the buffers were just received, and are forgotten now.
    segments.iter().for_each(|segment| unsafe { burst.give_back(&[segment.buffer]) });
}

impl RxQueue for DpdkRx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        let Some(port) = self.device.gate() else { return RxState::Down };
        eal::register_thread();
        let mut received = 0;
        while burst.room() > 0 {
            let wanted = burst.room().min(DRIVER_BURST);
            let got = if self.device.copying { self.copy(port, burst) } else { self.burst(port, burst) };
            received += got;
            if got < wanted {
                break;
            }
        }
        if self.armed && received > 0 {
            self.switch(false);
        }
        RxState::Up
    }

    /// Interrupts are switched on in one call and believed in the next: what came just before the switch is found by the poll
    /// between the two. A descriptor that is readable still, after its events were taken, has something that the driver has not
    /// given yet and will not tell of again.
    fn arm(&mut self) -> bool {
        let Some(events) = &self.events else { return true };
        // SAFETY: a number only.
        let news = unsafe { ffi::qd_queue_drain(events.as_raw_fd()) } > 0;
        if !self.armed {
            self.switch(true);
            return false;
        }
        // SAFETY: numbers only.
        !news && self.watched.is_none_or(|port| unsafe { ffi::qd_queue_waits(port, self.queue) } == 0)
    }

    fn event_fd(&self) -> Option<RawFd> {
        self.events.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn discard(&mut self) {
        let Some(port) = self.device.gate() else { return };
        eal::register_thread();
        // As many as the device's ring holds: what comes meanwhile is fresh.
        let ring = usize::from(self.device.setup().config.rx_descriptors);
        let mut mbufs = [std::ptr::null_mut::<c_void>(); BURST];
        let mut left = ring;
        while left > 0 {
            // SAFETY: D1, D2; room for as many as asked for.
            let got = unsafe { ffi::qd_rx_copying(port, self.queue, BURST as u32, mbufs.as_mut_ptr()) as usize };
            // SAFETY: just received, and forgotten now.
            mbufs[..got.min(BURST)].iter().for_each(|mbuf| unsafe { ffi::qd_free(*mbuf) });
            left = if got == 0 { 0 } else { left.saturating_sub(got) };
        }
    }

    fn renew(&mut self) {
        self.watch();
    }
}
