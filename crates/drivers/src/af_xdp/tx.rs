//! The transmit queue: packets go to the device as they lie, and their buffers come back when they are sent.
//!
//! In copy mode the kernel copies frames during the call, so most buffers are back when it returns.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use quiver_graph::{Segment, TxBatch, TxDrop, TxQueue};
use quiver_wire::checksum;

use super::DeviceState;
use super::ring::Descriptor;
use super::socket::Sender;
use crate::closer::Later;
use crate::ethernet::ETHERNET_HEADER;

/// So often in a row the kernel is asked again when it took nothing for want of memory or room.
const TRIES: u32 = 3;
/// Pieces of a frame that a device takes (`MAX_SKB_FRAGS` of the kernel).
const PIECES: usize = 17;

/// A device queue's sending side, for all threads that send on it. `None` only while there is no device.
pub(super) struct TxSide {
    half: Mutex<Option<Later<Sender>>>,
}

impl TxSide {
    pub(super) fn new(half: Sender) -> Self {
        Self { half: Mutex::new(Some(Later::new(half))) }
    }

    /// Control side: another device.
    pub(super) fn replace(&self, half: Sender) {
        let before = self.half.lock().unwrap_or_else(PoisonError::into_inner).replace(Later::new(half));
        drop(before);
    }
}

/// One thread's transmit queue.
pub(super) struct AfXdpTx {
    side: Arc<TxSide>,
    device: Arc<DeviceState>,
    segments: Vec<Segment>,
    back: Vec<u32>,
    scratch: Vec<u8>,
}

/// How a call to the kernel ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kick {
    /// It took all, or is at it.
    Done,
    /// It has no room now.
    Full,
    /// The device is down or gone.
    Dead,
}

impl Sender {
    /// Has the kernel send what is in the ring.
    fn kick(&self) -> Kick {
        let (mut left, mut idle) = (self.tx.pending(), 0);
        while left > 0 && self.tx.needs_wakeup() {
            let error = self.socket.send().err().and_then(|error| error.raw_os_error());
            let now = self.tx.pending();
            idle = if now < left { 0 } else { idle + 1 };
            left = now;
            match error {
                None | Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => {}
                Some(_) => return Kick::Dead,
            }
            // A zero-copy device is at work by itself once told.
            if self.socket.zero_copy() {
                break;
            }
            if idle == TRIES {
                return Kick::Full;
            }
        }
        Kick::Done
    }

    /// Takes back the buffers of frames that are sent.
    #[inline(always)]
    fn complete(&mut self, device: &DeviceState, back: &mut Vec<u32>, batch: &mut TxBatch<'_, '_>) {
        let n = self.completion.available();
        if n == 0 {
            return;
        }
        for ahead in 0..n {
            let (buffer, _) = device.addresses.place(self.completion.peek(ahead));
            if self.lent.take_back(buffer) {
                back.push(buffer);
            }
        }
        self.completion.advance(n);
        self.completion.release();
        // SAFETY: the buffers were lent and are back, so they are ours alone; they are forgotten here.
        unsafe { batch.give_back(back) };
        back.clear();
    }
}

impl AfXdpTx {
    pub(super) fn new(side: Arc<TxSide>, device: Arc<DeviceState>) -> Self {
        Self { side, device, segments: Vec::new(), back: Vec::new(), scratch: Vec::new() }
    }
}

/// Finishes a checksum. The packet's buffers are ours. What cannot be finished is left: the receiver will drop it.
#[cold]
fn finish(device: &DeviceState, segments: &[Segment], (start, offset): (u16, u16), scratch: &mut Vec<u8>) {
    if let [only] = segments {
        // SAFETY: the caller keeps the packet, so its buffers are ours alone.
        if let Some(bytes) = unsafe { device.bytes(*only) } {
            let _ = checksum::complete(bytes, start, offset);
        }
        return;
    }
    scratch.clear();
    for segment in segments {
        // SAFETY: as above.
        if let Some(bytes) = unsafe { device.bytes(*segment) } {
            scratch.extend_from_slice(bytes);
        }
    }
    if checksum::complete(scratch, start, offset).is_err() {
        return;
    }
    let field = usize::from(start) + usize::from(offset);
    let mut passed = 0;
    for segment in segments {
        // SAFETY: as above.
        let Some(bytes) = (unsafe { device.bytes(*segment) }) else { return };
        for at in [field, field + 1] {
            if let Some(byte) = at.checked_sub(passed).and_then(|i| bytes.get_mut(i)) {
                *byte = scratch[at];
            }
        }
        passed += bytes.len();
    }
}

impl TxQueue for AfXdpTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let Self { side, device, segments, back, scratch } = self;
        let mut side = side.half.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(half) = side.as_deref_mut() else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        half.complete(device, back, batch);
        // What an earlier call could not send; where the device takes nothing, nothing is added.
        if half.tx.pending() > 0 && half.kick() == Kick::Dead {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        }
        let limit = device.frame_limit();
        let pieces = if half.socket.pieces { PIECES } else { 1 };
        let mut next = 0;
        while next < batch.len() {
            let packet = batch.packet(next);
            let len = packet.total_len();
            if limit.refuses(len, packet.bytes()) {
                batch.refuse(next, TxDrop::TooLarge);
                next += 1;
                continue;
            }
            let chained = len > packet.len();
            if len < ETHERNET_HEADER || packet.is_empty() {
                batch.refuse(next, TxDrop::Refused);
                next += 1;
                continue;
            }
            if chained && packet.segment_count() > pieces {
                batch.refuse(next, TxDrop::TooLarge);
                next += 1;
                continue;
            }
            let needed = if chained { PIECES as u32 } else { 1 };
            if half.tx.free() < needed {
                half.tx.publish();
                let kick = half.kick();
                half.complete(device, back, batch);
                if half.tx.free() < needed {
                    batch.set_reason(if kick == Kick::Dead { TxDrop::NoDevice } else { TxDrop::NoRoom });
                    break;
                }
                continue;
            }
            let unfinished = packet.unfinished_checksum();
            segments.clear();
            batch.keep(next, segments);
            next += 1;
            if let Some(unfinished) = unfinished {
                finish(device, segments, unfinished, scratch);
            }
            let last = segments.iter().rposition(|s| s.len > 0).unwrap_or(0);
            for (at, segment) in segments.iter().enumerate() {
                if segment.len == 0 {
                    back.push(segment.buffer);
                    continue;
                }
                half.lent.lend(segment.buffer);
                let options = if at < last { Descriptor::CONTINUED } else { 0 };
                let address = device.addresses.address(segment.buffer, segment.offset);
                half.tx.put(Descriptor { address, len: segment.len, options });
            }
        }
        half.tx.publish();
        half.kick();
        half.complete(device, back, batch);
        if !back.is_empty() {
            // SAFETY: buffers of kept packets that hold no bytes and were not lent; forgotten here.
            unsafe { batch.give_back(back) };
            back.clear();
        }
        half.socket.lent[1].store(half.lent.count(), Ordering::Relaxed);
        next
    }
}
