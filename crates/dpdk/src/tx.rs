//! A transmit queue.

use std::sync::Arc;

use quiver_buffer::HEADROOM;
use quiver_graph::{Pkt, Segment, TxBatch, TxDrop, TxQueue, flags};
use quiver_wire::checksum::Sum;

use crate::device::Device;
use crate::ffi::{self, Offload};
use crate::{eal, memory};

/// Headroom that DPDK's drivers leave in what an mbuf calls its buffer, bytes; compiled into them.
const DPDK_HEADROOM: u32 = 128;
/// Bytes from a buffer's start to what its mbuf calls the start: so received data begins where ours does.
const SHIFT: u32 = HEADROOM as u32 - DPDK_HEADROOM;

/// One thread's way to a device's transmit queue.
pub struct DpdkTx {
    device: Arc<Device>,
    queue: u16,
    segments: Vec<Segment>,
    counts: Vec<u16>,
    offloads: Vec<Offload>,
    /// Number in the vector of each packet that is handed over.
    numbers: Vec<usize>,
}

impl DpdkTx {
    /// A queue of a device for one more thread.
    pub fn new(device: Arc<Device>) -> Self {
        let queue = device.take_tx();
        Self { device, queue, segments: Vec::new(), counts: Vec::new(), offloads: Vec::new(), numbers: Vec::new() }
    }
}

/// Why a packet cannot be sent, if it cannot.
#[inline(always)]
fn obstacle(device: &Device, packet: &Pkt<'_>) -> Option<TxDrop> {
    let len = packet.total_len();
    if len > device.tx_frame() {
        return Some(TxDrop::TooLarge);
    }
    (packet.has(flags::CHAINED) && !device.sends_segments()).then_some(TxDrop::Refused)
}

/// Whether data that begins before what an mbuf calls its buffer is so long that it cannot be moved up.
#[inline(always)]
fn cannot_be_moved(s: &Segment) -> bool {
    s.offset < SHIFT && SHIFT + s.len > memory::data_end()
}

/// What a device must know to finish a checksum: sizes of the headers before it. None where it is not a plain TCP or UDP
/// packet.
fn offload(packet: &Pkt<'_>, start: u16, offset: u16) -> Option<Offload> {
    let bytes = packet.bytes();
    let kind = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut l2 = 14;
    while matches!(kind(l2 - 2)?, 0x8100 | 0x88a8) {
        l2 += 4;
    }
    let ip6 = match kind(l2 - 2)? {
        0x0800 => 0,
        0x86dd => 1,
        _ => return None,
    };
    let l3 = usize::from(start).checked_sub(l2).filter(|l3| (20..=255).contains(l3))?;
    let l4 = match offset {
        16 => 6,
        6 => 17,
        _ => return None,
    };
    Some(Offload { l2: l2 as u8, l3: l3 as u8, ip6, l4 })
}

/// Finishes a checksum in software. What does not lie within the packet cannot be finished by anybody; the receiver drops it.
fn finish(packet: &mut Pkt<'_>, start: u16, offset: u16) {
    let mut skip = usize::from(start);
    let mut sum = Sum::new();
    packet.for_each_segment(|bytes| {
        let from = skip.min(bytes.len());
        skip -= from;
        sum = sum.add_bytes(&bytes[from..]);
    });
    let field = usize::from(start) + usize::from(offset);
    if let Some(to) = packet.bytes_mut().get_mut(field..field + 2) {
        to.copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }
    packet.clear_unfinished_checksum();
}

impl TxQueue for DpdkTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let Some(port) = self.device.gate() else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        eal::register_thread();
        self.numbers.clear();
        self.segments.clear();
        self.counts.clear();
        self.offloads.clear();
        for i in 0..batch.len() {
            let mut packet = batch.packet(i);
            if let Some(reason) = obstacle(&self.device, &packet) {
                batch.refuse(i, reason);
                continue;
            }
            if let Some((start, offset)) = packet.unfinished_checksum() {
                match offload(&packet, start, offset).filter(|_| self.device.sends_checksums()) {
                    Some(offload) => {
                        self.offloads.resize(self.numbers.len(), Offload::default());
                        self.offloads.push(offload);
                    }
                    None => finish(&mut packet, start, offset),
                }
            }
            let before = self.segments.len();
            batch.keep(i, &mut self.segments);
            if self.segments[before..].iter().any(cannot_be_moved) {
                // SAFETY: kept just above, and left as it was.
                unsafe { batch.take_back(i, self.segments[before].buffer) };
                batch.refuse(i, TxDrop::TooLarge);
                self.segments.truncate(before);
                continue;
            }
            self.counts.push((self.segments.len() - before) as u16);
            self.numbers.push(i);
        }
        if !self.offloads.is_empty() {
            self.offloads.resize(self.numbers.len(), Offload::default());
        }
        let offloads = if self.offloads.is_empty() { std::ptr::null() } else { self.offloads.as_ptr() };
        let _lock = self.device.lock_tx(self.queue);
        let sent = {
            let _loan = memory::lend(batch.cache());
            let (segments, counts) = (self.segments.as_ptr(), self.counts.as_ptr());
            // SAFETY: D1, D2; the lists belong together, and the buffers were handed over by `keep`.
            unsafe { ffi::qd_tx(port, self.queue, segments, counts, offloads, self.counts.len() as u32) as usize }
        };
        // What it did not take goes back into the vector, and is dropped there.
        let mut at: usize = self.counts[..sent.min(self.counts.len())].iter().map(|count| usize::from(*count)).sum();
        let mut taken = batch.len();
        for (number, count) in self.numbers.iter().zip(&self.counts).skip(sent) {
            taken = taken.min(*number);
            // SAFETY: not sent, so the buffers are still ours, as `keep` gave them.
            unsafe { batch.take_back(*number, self.segments[at].buffer) };
            at += usize::from(*count);
        }
        taken
    }
}

impl Drop for DpdkTx {
    fn drop(&mut self) {
        self.device.leave_tx(self.queue);
    }
}
