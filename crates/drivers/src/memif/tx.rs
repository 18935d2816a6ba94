//! The transmit queue: from packet buffers into shared memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_buffer::copy_shared;
use quiver_graph::{Shared as SharedMemory, SharedTxQueue, TxBatch, TxDrop};
use quiver_wire::checksum;

use super::demote::demote;
use super::memory::{NEXT, Ring};
use super::rx::PACKET_MAX;
use super::zero_copy::{Lending, LentTx};
use super::{Buffers, RINGS_MAX, Shared};

/// Descriptors looked at ahead of the copying.
const GROUP: usize = 32;

/// A ring to send into.
#[derive(Debug)]
pub(super) struct TxRing {
    pub(super) ring: Ring,
    /// Where we are in it.
    next: u16,
    /// Descriptors from `next` on that are known to be ours.
    free: u16,
    /// Our buffers, where the ring is our own.
    own: Option<Buffers>,
    /// Packet buffers, where they themselves are in the slots.
    lent: Option<Box<LentTx>>,
    /// Another process was here before: where it stopped is found out when packets may flow.
    goes_on: bool,
    broken: bool,
    /// A packet whose checksum is being finished.
    whole: Vec<u8>,
}

/// What became of a vector.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    /// Packets that are done with.
    pub done: usize,
    /// What is wrong, where the peer broke the rules.
    pub wrong: Option<&'static str>,
    /// The peer sleeps, and must be woken once the ring is unlocked.
    pub wake: bool,
}

impl Sent {
    pub(super) fn wrong(reason: &'static str) -> Self {
        Self { wrong: Some(reason), ..Self::default() }
    }
}

/// Room for a packet.
#[derive(Clone, Copy)]
struct Room {
    at: *mut u8,
    len: u32,
    region: u16,
}

impl Room {
    const NONE: Self = Self { at: std::ptr::null_mut(), len: 0, region: 0 };
}

impl TxRing {
    pub(super) fn new(ring: Ring, own: Option<Buffers>) -> Self {
        Self { ring, next: 0, free: 0, own, lent: None, goes_on: false, broken: false, whole: Vec::new() }
    }

    /// A ring of our own into whose slots packet buffers are put.
    pub(super) fn lent(ring: Ring, lending: Lending) -> Self {
        let lent = Some(Box::new(LentTx::new(lending, &ring)));
        Self { lent, ..Self::new(ring, None) }
    }

    /// A ring that another process has sent into, until this one does.
    pub(super) fn going_on(ring: Ring, own: Option<Buffers>) -> Self {
        Self { goes_on: true, ..Self::new(ring, own) }
    }

    /// Our buffers, where the ring is our own.
    pub(super) fn own(&self) -> Option<&Buffers> {
        self.own.as_ref()
    }

    /// The connection stands.
    pub(super) fn begin(&mut self) {
        if !self.goes_on {
            self.find_place();
        }
    }

    /// Finds our place: the index in the ring that is ours says it.
    fn find_place(&mut self) {
        self.goes_on = false;
        if let Some(lent) = &mut self.lent {
            return lent.begin(&self.ring);
        }
        let ours = if self.own.is_some() { self.ring.head() } else { self.ring.tail() };
        self.next = ours.load(Ordering::Acquire);
    }

    /// Looks how far the peer has come, if the descriptors known to be free are not enough.
    #[inline(always)]
    fn refresh<const OWN: bool>(&mut self, wanted: usize) -> Result<(), &'static str> {
        if usize::from(self.free) >= wanted {
            return Ok(());
        }
        let free = if OWN {
            let used = self.next.wrapping_sub(self.ring.tail().load(Ordering::Acquire));
            self.ring.size().checked_sub(used)
        } else {
            let free = self.ring.head().load(Ordering::Acquire).wrapping_sub(self.next);
            (free <= self.ring.size()).then_some(free)
        };
        self.free = free.ok_or("ring index out of range")?;
        Ok(())
    }

    /// The room behind descriptor `slot`; `None` where it lies outside the connection's memory.
    #[inline(always)]
    fn room<const OWN: bool>(&self, slot: u16) -> Option<Room> {
        if OWN {
            let own = self.own.as_ref()?;
            return Some(Room { at: own.address(slot & self.ring.mask()), len: own.size, region: own.region });
        }
        let d = self.ring.descriptor(slot);
        Some(Room { at: self.ring.resolve(d)?, len: d.length, region: d.region })
    }

    /// Sends what there is room for.
    fn tx<const OWN: bool>(&mut self, batch: &mut TxBatch<'_, '_, SharedMemory>) -> Sent {
        if let Err(reason) = self.refresh::<OWN>(batch.len()) {
            return Sent::wrong(reason);
        }
        let first = self.next;
        let mut done = 0;
        let mut rooms = [Room::NONE; GROUP];
        let (mut stopped, mut wrong) = (false, None);
        while done < batch.len() && !stopped {
            let n = GROUP.min(batch.len() - done).min(usize::from(self.free));
            let mut found = 0;
            for room in rooms.iter_mut().take(n) {
                let Some(r) = self.room::<OWN>(self.next.wrapping_add(found as u16)) else { break };
                prefetch_to_write(r.at);
                *room = r;
                found += 1;
            }
            if OWN {
                // Four descriptors a line.
                for k in (0..found).step_by(4) {
                    prefetch_to_write(self.ring.descriptor_address(self.next.wrapping_add(k as u16)));
                }
            }
            if found == 0 {
                stopped = true;
                wrong = (n > 0).then_some("descriptor points outside its region");
            }
            let mut used = 0;
            for room in &rooms[..found] {
                let Some((first, len)) = batch.run_of(done).filter(|(_, len)| *len <= room.len as usize) else { break };
                // SAFETY: the room lies inside a region for at least so many bytes (checked against our own sizes, S1), and the
                // packet in buffers of the router's, to which only a peer may write meanwhile.
                unsafe { copy_shared(room.at, first, len) };
                self.ring.set_first(self.next.wrapping_add(used), 0, room.region, len as u32);
                demote(room.at, len);
                used += 1;
                done += 1;
            }
            self.next = self.next.wrapping_add(used);
            self.free -= used;
            if usize::from(used) < found {
                match self.tx_odd::<OWN>(batch, done) {
                    Odd::Sent => done += 1,
                    Odd::Never(reason) => {
                        batch.refuse(done, reason);
                        done += 1;
                    }
                    Odd::NoRoom => stopped = true,
                }
            }
        }
        Sent { done, wrong, wake: self.publish::<OWN>(first) }
    }

    /// Shows the peer what was written since `first`; whether it must be woken.
    #[inline(always)]
    fn publish<const OWN: bool>(&self, first: u16) -> bool {
        if first == self.next {
            return false;
        }
        let ours = if OWN { self.ring.head() } else { self.ring.tail() };
        ours.store(self.next, Ordering::Release);
        self.ring.wants_event()
    }

    /// Sends a packet that lies in several buffers, needs several descriptors, or has an unfinished checksum.
    #[cold]
    fn tx_odd<const OWN: bool>(&mut self, batch: &mut TxBatch<'_, '_, SharedMemory>, i: usize) -> Odd {
        let packet = batch.packet(i);
        let total = packet.total_len();
        if total > PACKET_MAX {
            return Odd::Never(TxDrop::TooLarge);
        }
        if OWN && self.own.is_some_and(|own| total > own.size as usize * usize::from(self.ring.size())) {
            return Odd::Never(TxDrop::TooLarge);
        }
        // All of it first, so that nothing half-written is ever shown.
        let (mut slots, mut rest) = (0, total);
        let mut rooms: [Room; 64] = [Room::NONE; 64];
        loop {
            if slots == usize::from(self.free) {
                // What was known to be free may be less than there is by now.
                let known = self.free;
                if self.refresh::<OWN>(usize::MAX).is_ok() && self.free > known {
                    continue;
                }
                return if slots == usize::from(self.ring.size()) { Odd::Never(TxDrop::TooLarge) } else { Odd::NoRoom };
            }
            let room = self.room::<OWN>(self.next.wrapping_add(slots as u16)).filter(|r| r.len > 0);
            let (Some(room), Some(place)) = (room, rooms.get_mut(slots)) else { return Odd::Never(TxDrop::TooLarge) };
            let n = rest.min(room.len as usize);
            *place = Room { len: n as u32, ..room };
            slots += 1;
            rest -= n;
            if rest == 0 {
                break;
            }
        }
        let mut pen = Pen { rooms: &rooms[..slots], at: 0 };
        match packet.unfinished_checksum() {
            // SAFETY: the run is one of the packet, to which only a peer may write meanwhile.
            None => packet.for_each_run(|first, len| unsafe { pen.write(first, len) }),
            Some((start, offset)) => {
                self.whole.resize(total, 0);
                packet.copy_out(0, &mut self.whole);
                // What does not lie within the packet cannot be finished by anybody; the receiver will drop it.
                let _ = checksum::complete(&mut self.whole, start, offset);
                // SAFETY: the vector is ours.
                unsafe { pen.write(self.whole.as_ptr(), self.whole.len()) };
            }
        }
        demote(rooms[0].at, rooms[0].len as usize);
        for (k, room) in rooms[..slots].iter().enumerate() {
            let flags = if k + 1 < slots { NEXT } else { 0 };
            self.ring.set_first(self.next.wrapping_add(k as u16), flags, room.region, room.len);
        }
        self.next = self.next.wrapping_add(slots as u16);
        self.free -= slots as u16;
        Odd::Sent
    }
}

/// Writes one packet into several rooms, each to its end.
struct Pen<'a> {
    rooms: &'a [Room],
    /// Bytes of the first room that are written.
    at: usize,
}

impl Pen<'_> {
    /// # Safety
    /// `len` bytes from `first` on are mapped, and only a peer may write them meanwhile.
    unsafe fn write(&mut self, first: *const u8, len: usize) {
        let mut done = 0;
        while done < len {
            let Some((room, rest)) = self.rooms.split_first() else { return };
            let n = (len - done).min(room.len as usize - self.at);
            // SAFETY: the room lies inside a region for its length (checked against our own sizes, S1), and `at + n` is at
            // most that; of the run the caller says it.
            unsafe { copy_shared(room.at.add(self.at), first.add(done), n) };
            self.at += n;
            done += n;
            if self.at == room.len as usize {
                (self.rooms, self.at) = (rest, 0);
            }
        }
    }
}

/// What became of a packet that is not in one piece.
enum Odd {
    Sent,
    NoRoom,
    Never(TxDrop),
}

/// Fetches a line that will be written: the other core had it last.
#[inline(always)]
fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching changes nothing and faults on no address; processors without the instruction take it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    quiver_graph::prefetch(address);
}

/// The transmit rings of the connection that stands.
#[derive(Debug)]
pub(super) struct TxSlots {
    rings: Box<[Slot]>,
    /// Rings in use.
    count: AtomicUsize,
}

/// On lines of its own: threads that share no ring share no line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(Mutex<Option<TxRing>>);

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<TxRing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TxSlots {
    pub(super) fn new() -> Self {
        Self { rings: (0..RINGS_MAX).map(|_| Slot::default()).collect(), count: AtomicUsize::new(0) }
    }

    /// Control side: exchanges the rings; the old ones are the caller's to drop.
    pub(super) fn exchange(&self, new: Vec<TxRing>) -> Vec<TxRing> {
        let n = new.len().min(RINGS_MAX);
        let before = self.count.load(Ordering::Relaxed);
        let mut new = new.into_iter();
        let old = (0..n.max(before)).filter_map(|k| std::mem::replace(&mut *self.rings[k].lock(), new.next())).collect();
        self.count.store(n, Ordering::Release);
        old
    }

    /// Looks at the rings, for display.
    pub(super) fn each(&self, mut look: impl FnMut(usize, &TxRing)) {
        for (k, slot) in self.rings[..self.count.load(Ordering::Relaxed)].iter().enumerate() {
            if let Some(ring) = slot.lock().as_ref() {
                look(k, ring);
            }
        }
    }
}

/// The transmit queue of one thread. Where there are fewer rings than threads, several share one, and wait for one another
/// while a vector is copied.
pub(super) struct MemifTx {
    slots: Arc<TxSlots>,
    shared: Arc<Shared>,
    thread: usize,
}

impl MemifTx {
    pub(super) fn new(slots: Arc<TxSlots>, shared: Arc<Shared>, thread: usize) -> Self {
        Self { slots, shared, thread }
    }
}

impl SharedTxQueue for MemifTx {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_, SharedMemory>) -> usize {
        let count = self.slots.count.load(Ordering::Acquire);
        if count == 0 {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        }
        // Workers count from 1; main, where it sends at all, shares with the first.
        let mut slot = self.slots.rings[self.thread.saturating_sub(1) % count].lock();
        let Some(ring) = slot.as_mut().filter(|r| !r.broken) else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        if ring.goes_on {
            ring.find_place();
        }
        let sent = match &mut ring.lent {
            Some(lent) => lent.tx(&ring.ring, batch),
            None if ring.own.is_some() => ring.tx::<true>(batch),
            None => ring.tx::<false>(batch),
        };
        if let Some(reason) = sent.wrong {
            ring.broken = true;
            self.shared.report(reason);
            batch.set_reason(TxDrop::NoDevice);
        }
        // The main thread may want the ring while the peer is woken.
        let wake = if sent.wake { ring.ring.event().cloned() } else { None };
        drop(slot);
        if let Some(Err(reason)) = wake.map(|event| event.signal()) {
            self.shared.report(reason);
        }
        sent.done
    }
}
