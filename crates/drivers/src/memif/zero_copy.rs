//! Zero-copy: a client's rings whose descriptors name packet buffers themselves.
//!
//! The buffers are of a pool that the peers of one socket see ([`SharedPool`]), never of the router's own. A packet that came
//! from such a peer goes back to one, on any interface of that socket, without being copied; any other packet is copied once
//! on its way in or out, as always.
//!
//! What was copied for the peer is demoted (the module `demote`). A packet that is lent is not: nobody knows here whether its header was
//! written or only read, and demoting lines that were only read makes it slower (decision 0083).
//!
//! Which buffer a slot holds is kept here, in private memory; of what the peer writes into a descriptor only length and flags
//! are read, once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_buffer::{HEADROOM, NO_BUFFER, Region as Buffers, SharedPool, copy_shared};
use quiver_graph::{RxBurst, Segment, Shared, TxBatch, TxDrop, prefetch};
use quiver_wire::checksum;

use super::demote::demote;
use super::memory::{NEXT, Ring};
use super::rx::PACKET_MAX;
use super::tx::Sent;

/// Region number of the packet buffers; region 0 holds the rings.
pub(super) const REGION: u16 = 1;
/// Packets whose lines are fetched ahead.
const AHEAD: u16 = 16;
/// Buffers taken from the pool and given back at a time.
const BULK: u16 = 64;

/// A pool and where its memory lies.
#[derive(Clone)]
pub(super) struct Lending {
    pub buffers: Arc<Buffers>,
    pub pool: Arc<SharedPool>,
}

impl std::fmt::Debug for Lending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lending({} bytes)", self.pool.bytes())
    }
}

impl Lending {
    /// Bytes that fit into one buffer behind its headroom.
    pub(super) fn room(&self) -> u32 {
        self.buffers.geometry().data_size()
    }

    /// Where a place in a buffer lies in the memory that the peer sees.
    #[inline(always)]
    fn offset(&self, buffer: u32, offset: u32) -> u32 {
        (buffer - self.pool.first()) * self.buffers.geometry().stride() + offset
    }

    #[inline(always)]
    fn data(&self, buffer: u32) -> *mut u8 {
        self.buffers.buffer_address(buffer).wrapping_add(HEADROOM)
    }
}

/// The buffers behind the slots of a ring. They go back to the pool when it is dropped.
#[derive(Debug)]
struct Slots {
    lending: Lending,
    buffers: Box<[u32]>,
    /// Taken from the pool and in no slot yet.
    spare: Vec<u32>,
}

impl Slots {
    fn new(lending: Lending, size: u16) -> Self {
        Self { lending, buffers: vec![NO_BUFFER; usize::from(size)].into(), spare: Vec::new() }
    }

    fn at(&mut self, slot: u16) -> &mut u32 {
        let mask = self.buffers.len() - 1;
        &mut self.buffers[usize::from(slot) & mask]
    }

    /// A buffer for a slot, where there is one.
    fn fresh(&mut self) -> Option<u32> {
        if self.spare.is_empty() {
            self.lending.pool.take(usize::from(BULK), &mut self.spare);
        }
        self.spare.pop()
    }

    /// Takes the buffer out of a slot.
    fn take(&mut self, slot: u16) -> u32 {
        std::mem::replace(self.at(slot), NO_BUFFER)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.spare.extend(self.buffers.iter().filter(|b| **b != NO_BUFFER));
        self.lending.pool.give(&self.spare);
    }
}

/// Receives from a ring into whose slots the peer writes packets.
#[derive(Debug)]
pub(super) struct LentRx {
    slots: Slots,
    /// Next packet.
    next: u16,
    /// End of the slots that hold a buffer.
    offered: u16,
    segments: Vec<Segment>,
}

impl LentRx {
    pub(super) fn new(lending: Lending, ring: &Ring) -> Self {
        Self { slots: Slots::new(lending, ring.size()), next: 0, offered: 0, segments: Vec::new() }
    }

    /// The connection stands.
    pub(super) fn begin(&mut self, ring: &Ring) {
        self.next = ring.tail().load(Ordering::Acquire);
        self.offered = self.next;
        self.offer(ring);
    }

    /// Packets that wait; `None` where the peer's index cannot be.
    pub(super) fn waiting(&self, ring: &Ring) -> Option<u16> {
        let waiting = ring.tail().load(Ordering::Acquire).wrapping_sub(self.next);
        (waiting <= self.offered.wrapping_sub(self.next)).then_some(waiting)
    }

    /// Whether there is something to do: packets, or a peer that has no buffer left to write to.
    pub(super) fn is_ready(&self, ring: &Ring) -> bool {
        self.offered == self.next || self.waiting(ring) != Some(0)
    }

    /// Puts a buffer into every empty slot, as far as there are buffers.
    fn offer(&mut self, ring: &Ring) {
        let before = self.offered;
        while self.offered.wrapping_sub(self.next) < ring.size() {
            let Some(buffer) = self.slots.fresh() else { break };
            *self.slots.at(self.offered) = buffer;
            ring.set_first(self.offered, 0, REGION, self.slots.lending.room());
            ring.set_offset(self.offered, self.slots.lending.offset(buffer, HEADROOM as u32));
            self.offered = self.offered.wrapping_add(1);
        }
        if self.offered != before {
            ring.head().store(self.offered, Ordering::Release);
        }
    }

    /// Receives what there is. `Err`: the peer broke the rules.
    pub(super) fn rx(&mut self, ring: &Ring, burst: &mut RxBurst<'_, '_>) -> Result<(), &'static str> {
        let mut waiting = self.waiting(ring).ok_or("ring index out of range")?;
        let mut fetched = 0;
        let first = self.next;
        while waiting > 0 && burst.room() > 0 {
            let at = self.next.wrapping_sub(first);
            while fetched < at + AHEAD && fetched < at + waiting {
                let buffer = *self.slots.at(first.wrapping_add(fetched));
                prefetch(self.slots.lending.data(buffer));
                fetched += 1;
            }
            let used = self.packet(ring, waiting, burst);
            if used == 0 {
                break;
            }
            waiting -= used;
        }
        self.offer(ring);
        Ok(())
    }

    /// Receives one packet; returns the slots used, 0 where the rest of it is not there yet.
    #[inline(always)]
    fn packet(&mut self, ring: &Ring, waiting: u16, burst: &mut RxBurst<'_, '_>) -> u16 {
        let d = ring.descriptor(self.next);
        if d.flags & NEXT != 0 {
            return self.chained(ring, waiting, burst);
        }
        let buffer = self.slots.take(self.next);
        self.next = self.next.wrapping_add(1);
        let segment = Segment { buffer, offset: HEADROOM as u32, len: d.length };
        // SAFETY: the buffer was in a slot, so it is ours, and is forgotten here; but for the peer, which may write to a shared
        // pool, nobody else does.
        if d.length > self.slots.lending.room() || !unsafe { burst.adopt(&[segment]) } {
            self.refuse(&[segment], burst);
        }
        1
    }

    #[cold]
    fn chained(&mut self, ring: &Ring, waiting: u16, burst: &mut RxBurst<'_, '_>) -> u16 {
        let (mut n, mut total, mut bad, mut whole) = (0, 0, false, false);
        let mut segments = std::mem::take(&mut self.segments);
        segments.clear();
        while n < waiting && !whole {
            let slot = self.next.wrapping_add(n);
            let d = ring.descriptor(slot);
            n += 1;
            total += d.length as usize;
            bad |= d.length > self.slots.lending.room() || total > PACKET_MAX;
            whole = d.flags & NEXT == 0;
            segments.push(Segment { buffer: *self.slots.at(slot), offset: HEADROOM as u32, len: d.length });
        }
        // In a full ring the rest can never come.
        if !whole && n < ring.size() {
            n = 0;
        } else {
            for k in 0..n {
                *self.slots.at(self.next.wrapping_add(k)) = NO_BUFFER;
            }
            self.next = self.next.wrapping_add(n);
            // SAFETY: as in `packet`; each slot holds another buffer.
            if bad || !whole || !unsafe { burst.adopt(&segments) } {
                self.refuse(&segments, burst);
            }
        }
        self.segments = segments;
        n
    }

    #[cold]
    fn refuse(&mut self, segments: &[Segment], burst: &mut RxBurst<'_, '_>) {
        self.slots.spare.extend(segments.iter().map(|s| s.buffer));
        burst.damaged(1);
    }

    /// Throws away what waits.
    pub(super) fn discard(&mut self, ring: &Ring) {
        for _ in 0..self.waiting(ring).unwrap_or(0) {
            let buffer = self.slots.take(self.next);
            self.slots.spare.push(buffer);
            self.next = self.next.wrapping_add(1);
        }
        self.offer(ring);
    }
}

/// Sends into a ring whose slots name the packets where they lie.
#[derive(Debug)]
pub(super) struct LentTx {
    slots: Slots,
    /// Next slot to send in.
    next: u16,
    /// Slots before it hold no buffer any more.
    done: u16,
    kept: Vec<Segment>,
    whole: Vec<u8>,
}

impl LentTx {
    pub(super) fn new(lending: Lending, ring: &Ring) -> Self {
        Self { slots: Slots::new(lending, ring.size()), next: 0, done: 0, kept: Vec::new(), whole: Vec::new() }
    }

    /// The connection stands.
    pub(super) fn begin(&mut self, ring: &Ring) {
        self.next = ring.head().load(Ordering::Acquire);
        self.done = self.next;
    }

    /// Takes back the buffers that the peer has read; `Err`: its index cannot be.
    fn reclaim(&mut self, ring: &Ring) -> Result<(), &'static str> {
        let read = ring.tail().load(Ordering::Acquire).wrapping_sub(self.done);
        if read > self.next.wrapping_sub(self.done) {
            return Err("ring index out of range");
        }
        for _ in 0..read {
            let buffer = self.slots.take(self.done);
            self.slots.spare.push(buffer);
            self.done = self.done.wrapping_add(1);
        }
        if self.slots.spare.len() > 2 * usize::from(BULK) {
            // The last ones stay: their lines are the nearest.
            let surplus = self.slots.spare.len() - usize::from(BULK);
            self.slots.lending.pool.give(&self.slots.spare[..surplus]);
            self.slots.spare.drain(..surplus);
        }
        Ok(())
    }

    fn free(&self, ring: &Ring) -> u16 {
        ring.size() - self.next.wrapping_sub(self.done)
    }

    /// Sends what there is room for.
    pub(super) fn tx(&mut self, ring: &Ring, batch: &mut TxBatch<'_, '_, Shared>) -> Sent {
        if let Err(reason) = self.reclaim(ring) {
            return Sent::wrong(reason);
        }
        let first = self.next;
        let mut i = 0;
        while i < batch.len() && self.free(ring) > 0 {
            let len = batch.run_of(i).map(|(_, len)| len);
            let sent = match len {
                Some(_) if self.slots.lending.pool.holds(batch.buffer(i)) => self.lend(ring, batch, i),
                Some(len) if len <= self.slots.lending.room() as usize => self.copy(ring, batch, i),
                _ => self.copy_odd(ring, batch, i),
            };
            if !sent {
                break;
            }
            i += 1;
        }
        let mut wake = false;
        if first != self.next {
            ring.head().store(self.next, Ordering::Release);
            wake = ring.wants_event();
        }
        Sent { done: i, wrong: None, wake }
    }

    /// Shows the peer a packet of its own pool where it lies.
    #[inline(always)]
    fn lend(&mut self, ring: &Ring, batch: &mut TxBatch<'_, '_, Shared>, i: usize) -> bool {
        self.kept.clear();
        batch.keep(i, &mut self.kept);
        // One segment: it is not chained.
        if let Some(segment) = self.kept.first() {
            self.show(ring, segment.buffer, segment.offset, segment.len, 0);
        }
        true
    }

    #[inline(always)]
    fn show(&mut self, ring: &Ring, buffer: u32, offset: u32, len: u32, flags: u16) {
        *self.slots.at(self.next) = buffer;
        ring.set_first(self.next, flags, REGION, len);
        ring.set_offset(self.next, self.slots.lending.offset(buffer, offset));
        self.next = self.next.wrapping_add(1);
    }

    /// Copies a packet from the router's own memory.
    #[inline(always)]
    fn copy(&mut self, ring: &Ring, batch: &mut TxBatch<'_, '_, Shared>, i: usize) -> bool {
        let Some(buffer) = self.slots.fresh() else { return false };
        let len = batch.run_of(i).map_or(0, |(first, len)| {
            // SAFETY: the buffer was just taken and lies in its area (R2) with room for `len` bytes, as the caller has checked; the
            // packet lies in other buffers of the router's, to which only a peer may write meanwhile.
            unsafe { copy_shared(self.slots.lending.data(buffer), first, len) };
            demote(self.slots.lending.data(buffer), len);
            len
        });
        self.show(ring, buffer, HEADROOM as u32, len as u32, 0);
        true
    }

    /// Copies a packet that lies in several buffers, needs several, or has an unfinished checksum. `false`: no room now.
    #[cold]
    fn copy_odd(&mut self, ring: &Ring, batch: &mut TxBatch<'_, '_, Shared>, i: usize) -> bool {
        let packet = batch.packet(i);
        let total = packet.total_len();
        let room = self.slots.lending.room() as usize;
        let slots = total.div_ceil(room).max(1);
        if total > PACKET_MAX || slots > usize::from(ring.size()) {
            batch.refuse(i, TxDrop::TooLarge);
            return true;
        }
        if slots > usize::from(self.free(ring)) {
            return false;
        }
        self.whole.resize(total, 0);
        packet.copy_out(0, &mut self.whole);
        if let Some((start, offset)) = packet.unfinished_checksum() {
            // What does not lie within the packet cannot be finished by anybody; the receiver will drop it.
            let _ = checksum::complete(&mut self.whole, start, offset);
        }
        let mut buffers = Vec::new();
        while buffers.len() < slots {
            let Some(buffer) = self.slots.fresh() else {
                self.slots.spare.extend(buffers);
                return false;
            };
            buffers.push(buffer);
        }
        let whole = std::mem::take(&mut self.whole);
        for (k, (buffer, piece)) in buffers.into_iter().zip(whole.chunks(room)).enumerate() {
            // SAFETY: as in `copy`: a piece is at most the room of a buffer.
            unsafe { copy_shared(self.slots.lending.data(buffer), piece.as_ptr(), piece.len()) };
            if k == 0 {
                demote(self.slots.lending.data(buffer), piece.len());
            }
            self.show(ring, buffer, HEADROOM as u32, piece.len() as u32, if k + 1 < slots { NEXT } else { 0 });
        }
        self.whole = whole;
        true
    }
}
