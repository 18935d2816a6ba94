//! The receive queue: from shared memory into packet buffers.
//!
//! Descriptors are read a group ahead of the packets that they name, so that the lines of a whole group are on their way
//! from the other core while the group before is copied.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use quiver_buffer::copy_shared;
use quiver_graph::{RxBurst, RxQueue, RxState, prefetch};
use rustix::event::epoll;

use super::event::new_event;
use super::hub::give;
use super::memory::{Descriptor, MASK_EVENTS, NEXT, Ring};
use super::zero_copy::{Lending, LentRx};
use super::{Buffers, Shared};

/// Descriptors looked at ahead of the copying.
const GROUP: usize = 32;
/// Largest packet over several descriptors, bytes: what a packet's length field can say.
pub(super) const PACKET_MAX: usize = 65_535;

/// A ring to receive from. On lines of its own: each is written by one thread.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct RxRing {
    pub(super) ring: Ring,
    /// Where we are in it.
    next: u16,
    /// Our buffers, where the ring is our own.
    own: Option<Buffers>,
    /// Packet buffers, where they themselves are in the slots.
    lent: Option<Box<LentRx>>,
    /// The peer has been told that we poll.
    masked: bool,
    /// Another process was here before: where it stopped is found out when packets may flow.
    goes_on: bool,
    /// The peer broke the rules: no more from here.
    broken: bool,
    runs: Vec<(*const u8, usize)>,
}

// SAFETY: `runs` is scratch space, empty between calls.
unsafe impl Send for RxRing {}

/// What a group of descriptors names.
struct Group {
    from: [MaybeUninit<*const u8>; GROUP],
    len: [u32; GROUP],
    n: usize,
    /// The descriptor after them is no packet in one piece.
    odd: bool,
}

impl Group {
    fn new() -> Self {
        Self { from: [MaybeUninit::uninit(); GROUP], len: [0; GROUP], n: 0, odd: false }
    }
}

impl RxRing {
    /// A ring at its start. Our own is filled with empty buffers by [`RxRing::begin`].
    pub(super) fn new(ring: Ring, own: Option<Buffers>) -> Self {
        Self { ring, next: 0, own, lent: None, masked: false, goes_on: false, broken: false, runs: Vec::new() }
    }

    /// A ring of our own into whose slots packet buffers are put.
    pub(super) fn lent(ring: Ring, lending: Lending) -> Self {
        let lent = Some(Box::new(LentRx::new(lending, &ring)));
        Self { lent, ..Self::new(ring, None) }
    }

    /// A ring that another process has received from, until this one does.
    pub(super) fn going_on(ring: Ring, own: Option<Buffers>) -> Self {
        Self { goes_on: true, ..Self::new(ring, own) }
    }

    /// Our buffers, where the ring is our own.
    pub(super) fn own(&self) -> Option<&Buffers> {
        self.own.as_ref()
    }

    /// Goes on where the process before this one has stopped: our own index in the ring says where. Like a peer's index it is
    /// believed only where it can be.
    #[cold]
    fn go_on(&mut self) {
        self.goes_on = false;
        self.next = match self.own {
            Some(_) => self.ring.head().load(Ordering::Acquire).wrapping_sub(self.ring.size()),
            None => self.ring.tail().load(Ordering::Acquire),
        };
        self.mask();
    }

    /// The connection stands: packets may come. `polling`: no events wanted for now.
    pub(super) fn begin(&mut self) {
        if self.goes_on {
            return;
        }
        if let Some(lent) = &mut self.lent {
            lent.begin(&self.ring);
        } else if let Some(own) = self.own {
            self.next = self.ring.tail().load(Ordering::Acquire);
            let next = self.next;
            (0..self.ring.size()).for_each(|k| own.offer(&self.ring, next.wrapping_add(k)));
            self.ring.head().store(next.wrapping_add(self.ring.size()), Ordering::Release);
        } else {
            self.next = self.ring.tail().load(Ordering::Acquire);
        }
        self.mask();
    }

    fn mask(&mut self) {
        self.ring.flags().store(MASK_EVENTS, Ordering::Relaxed);
        self.masked = true;
    }

    /// Packets' descriptors that wait; `None` where the peer's index cannot be.
    #[inline(always)]
    fn waiting<const OWN: bool>(&self) -> Option<u16> {
        let theirs = if OWN { self.ring.tail() } else { self.ring.head() };
        let waiting = theirs.load(Ordering::Acquire).wrapping_sub(self.next);
        (waiting <= self.ring.size()).then_some(waiting)
    }

    /// Where the bytes of a packet in one piece lie; `None`: it is not, or they do not lie in memory of the connection.
    #[inline(always)]
    fn simple<const OWN: bool>(&self, slot: u16, d: Descriptor, max: u32) -> Option<*const u8> {
        if d.flags & NEXT != 0 || d.length > max {
            return None;
        }
        self.place::<OWN>(slot, d)
    }

    #[inline(always)]
    fn place<const OWN: bool>(&self, slot: u16, d: Descriptor) -> Option<*const u8> {
        if OWN {
            let own = self.own.as_ref()?;
            return (d.length <= own.size).then(|| own.address(slot & self.ring.mask()).cast_const());
        }
        self.ring.resolve(d).map(<*mut u8>::cast_const)
    }

    /// Loads up to `most` descriptors from `slot` on, and has the lines fetched that they point to.
    #[inline(always)]
    fn look<const OWN: bool>(&self, group: &mut Group, slot: u16, most: usize, max: u32) {
        (group.n, group.odd) = (0, false);
        for k in 0..most.min(GROUP) {
            let at = slot.wrapping_add(k as u16);
            let d = self.ring.descriptor(at);
            let Some(from) = self.simple::<OWN>(at, d, max) else {
                group.odd = true;
                return;
            };
            prefetch(from);
            if d.length > 64 {
                prefetch(from.wrapping_add(64));
            }
            group.from[k].write(from);
            group.len[k] = d.length;
            group.n = k + 1;
        }
    }

    /// Receives what there is. `Err`: the peer broke the rules.
    fn receive(&mut self, burst: &mut RxBurst<'_, '_>) -> Result<(), &'static str> {
        if self.goes_on {
            self.go_on();
        } else if !self.masked {
            self.mask();
        }
        if let Some(lent) = &mut self.lent {
            return lent.rx(&self.ring, burst);
        }
        if self.is_own() { self.rx::<true>(burst) } else { self.rx::<false>(burst) }
    }

    fn rx<const OWN: bool>(&mut self, burst: &mut RxBurst<'_, '_>) -> Result<(), &'static str> {
        let mut waiting = usize::from(self.waiting::<OWN>().ok_or("ring index out of range")?);
        if waiting == 0 {
            return Ok(());
        }
        let first = self.next;
        let max = burst.single_max() as u32;
        while waiting > 0 && burst.room() > 0 {
            let before = self.next;
            let odd = self.rx_simple::<OWN>(burst, waiting, max);
            waiting -= usize::from(self.next.wrapping_sub(before));
            if !odd {
                break;
            }
            let taken = self.rx_odd::<OWN>(burst, waiting);
            self.next = self.next.wrapping_add(taken as u16);
            waiting -= taken;
            if taken == 0 {
                break;
            }
        }
        self.give_back::<OWN>(first);
        Ok(())
    }

    /// Receives packets in one piece, until there are no more or one is not: `true` then, if there is room for it.
    #[inline(always)]
    fn rx_simple<const OWN: bool>(&mut self, burst: &mut RxBurst<'_, '_>, waiting: usize, max: u32) -> bool {
        let mut left = waiting.min(burst.room());
        let mut groups = [Group::new(), Group::new()];
        let [current, following] = &mut groups;
        let (mut current, mut following) = (current, following);
        self.look::<OWN>(current, self.next, left, max);
        loop {
            left -= current.n;
            if !current.odd && left > 0 {
                self.look::<OWN>(following, self.next.wrapping_add(current.n as u16), left, max);
            } else {
                following.n = 0;
            }
            let got = burst.push_many(current.n, |k, area| {
                let len = current.len[k] as usize;
                // SAFETY: `look` has written the first n entries; the source lies inside a region for `len` bytes (checked
                // there against our own sizes, S1), `area` holds `max` of them, and buffers are no shared memory.
                unsafe { copy_shared(area.as_mut_ptr().cast(), current.from[k].assume_init(), len) };
                Some(len)
            });
            self.next = self.next.wrapping_add(got as u16);
            if got < current.n {
                // No buffers: what is left stays in the ring.
                return false;
            }
            if current.odd {
                return burst.room() > 0;
            }
            if following.n == 0 && !following.odd || left == 0 {
                return false;
            }
            std::mem::swap(&mut current, &mut following);
        }
    }

    /// Receives a packet over several descriptors or buffers, or skips what makes no sense. Returns the descriptors used.
    #[cold]
    fn rx_odd<const OWN: bool>(&mut self, burst: &mut RxBurst<'_, '_>, waiting: usize) -> usize {
        let (mut n, mut total, mut bad) = (0, 0, false);
        let mut runs = std::mem::take(&mut self.runs);
        loop {
            if n == waiting {
                // The rest of the packet is not there yet; in a full ring it never will be.
                bad = true;
                if n < usize::from(self.ring.size()) {
                    n = 0;
                }
                break;
            }
            let slot = self.next.wrapping_add(n as u16);
            let d = self.ring.descriptor(slot);
            n += 1;
            total += d.length as usize;
            match self.place::<OWN>(slot, d) {
                Some(from) if total <= PACKET_MAX => runs.push((from, d.length as usize)),
                _ => bad = true,
            }
            if d.flags & NEXT == 0 {
                break;
            }
        }
        if !OWN {
            for k in 0..n {
                // Some clients never take the flag away again, and would make one packet of two the next time round.
                let slot = self.next.wrapping_add(k as u16);
                let d = self.ring.descriptor(slot);
                self.ring.set_first(slot, 0, d.region, d.length);
            }
        }
        if n > 0 && bad {
            burst.damaged(1);
        } else if n > 0 {
            // SAFETY: each run lies inside a region of the connection (checked against our own sizes, S1). A packet that
            // finds no buffer is lost, and counted.
            let _ = unsafe { burst.push_raw(&runs) };
        }
        runs.clear();
        self.runs = runs;
        n
    }

    /// Returns the descriptors from `first` up to where we are.
    #[inline(always)]
    fn give_back<const OWN: bool>(&mut self, first: u16) {
        if first == self.next {
            return;
        }
        if OWN {
            if let Some(own) = self.own {
                for k in 0..self.next.wrapping_sub(first) {
                    own.offer(&self.ring, first.wrapping_add(k));
                }
            }
            self.ring.head().store(self.next.wrapping_add(self.ring.size()), Ordering::Release);
        } else {
            self.ring.tail().store(self.next, Ordering::Release);
        }
    }

    fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether there is something to do.
    fn is_ready(&self) -> bool {
        if let Some(lent) = &self.lent {
            return !self.broken && lent.is_ready(&self.ring);
        }
        let waiting = if self.is_own() { self.waiting::<true>() } else { self.waiting::<false>() };
        !self.broken && waiting != Some(0)
    }

    fn discard(&mut self) {
        // What waits in it is another process's, or was before this one came: nobody has lost it.
        if self.goes_on {
            return;
        }
        if let Some(lent) = &mut self.lent {
            return lent.discard(&self.ring);
        }
        let first = self.next;
        if self.is_own() {
            let waiting = self.waiting::<true>().unwrap_or(0);
            self.next = first.wrapping_add(waiting);
            self.give_back::<true>(first);
        } else {
            let waiting = self.waiting::<false>().unwrap_or(0);
            self.next = first.wrapping_add(waiting);
            self.give_back::<false>(first);
        }
    }
}

/// What a receive queue and the control side share: the rings of the connection that stands, none where none does.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct RxSlot {
    rings: Mutex<Vec<RxRing>>,
    /// Readable when a ring's event was given: one descriptor for the life of the queue, whatever connections come and go.
    events: OwnedFd,
    /// Given when there are other rings: they begin without events, so a thread that sleeps would not learn of their packets.
    exchanged: OwnedFd,
}

impl RxSlot {
    pub(super) fn new() -> std::io::Result<Self> {
        let (events, exchanged) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, new_event()?);
        epoll::add(&events, &exchanged, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self { rings: Mutex::default(), events, exchanged })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RxRing>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Control side: exchanges the rings; the old ones are the caller's to drop.
    pub(super) fn exchange(&self, new: Vec<RxRing>) -> Vec<RxRing> {
        for event in new.iter().filter_map(|r| r.ring.event()?.fd()) {
            // Edge-triggered, so that the peer's counter need not be read. An event that cannot be watched only costs the
            // wake-up. Closed descriptors leave by themselves.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let _ = epoll::add(&self.events, event, epoll::EventData::new_u64(0), flags);
        }
        let old = std::mem::replace(&mut *self.lock(), new);
        give(&self.exchanged);
        for event in old.iter().filter_map(|r| r.ring.event()?.fd()) {
            let _ = epoll::delete(&self.events, event);
        }
        old
    }

    /// Looks at the rings, for display.
    pub(super) fn with<R>(&self, look: impl FnOnce(&[RxRing]) -> R) -> R {
        look(&self.lock())
    }
}

/// One receive queue.
#[repr(align(128))]
pub(super) struct MemifRx {
    slot: Arc<RxSlot>,
    shared: Arc<Shared>,
    /// Ring to begin with.
    turn: usize,
}

impl MemifRx {
    pub(super) fn new(slot: Arc<RxSlot>, shared: Arc<Shared>) -> Self {
        Self { slot, shared, turn: 0 }
    }
}

impl RxQueue for MemifRx {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        let mut rings = match self.slot.rings.try_lock() {
            Ok(rings) => rings,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The control side is exchanging the rings.
            Err(TryLockError::WouldBlock) => return RxState::Up,
        };
        let n = rings.len();
        if n == 0 {
            return RxState::Down;
        }
        // The ring that comes first changes, so that none starves when the vector is full.
        self.turn = if self.turn + 1 < n { self.turn + 1 } else { 0 };
        for k in 0..n {
            let ring = &mut rings[(self.turn + k) % n];
            if ring.broken {
                continue;
            }
            if let Err(reason) = ring.receive(burst) {
                ring.broken = true;
                burst.damaged(1);
                self.shared.report(reason);
            }
        }
        RxState::Up
    }

    fn arm(&mut self) -> bool {
        let mut rings = self.slot.lock();
        for ring in rings.iter_mut() {
            if ring.goes_on {
                ring.go_on();
            }
            ring.ring.flags().store(0, Ordering::Relaxed);
            ring.masked = false;
        }
        // What was given before this moment is old news. Each ring is asked once: a peer may give faster than this takes.
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..=rings.len() / events.len() {
            if !epoll::wait(&self.slot.events, &mut events, Some(&now)).is_ok_and(|n| n == events.len()) {
                break;
            }
        }
        // A peer stores its index, then looks at the flags; we do it the other way round, so one of us sees the other.
        fence(Ordering::SeqCst);
        !rings.iter().any(RxRing::is_ready)
    }

    fn event_fd(&self) -> Option<RawFd> {
        Some(self.slot.events.as_fd().as_raw_fd())
    }

    fn discard(&mut self) {
        self.slot.lock().iter_mut().for_each(RxRing::discard);
    }

    /// Nothing of it was another process's: what that one has received is not in the rings any more.
    fn begin(&mut self, _since: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_thread_that_sleeps_learns_of_other_rings() {
        let slot = Arc::new(RxSlot::new().unwrap());
        let wake = Arc::new(new_event().unwrap());
        let mut queue = MemifRx::new(slot.clone(), Arc::new(Shared { wrong: Mutex::default(), wake }));
        let rings = |slot: &RxSlot| {
            let mut events = [PollFd::new(&slot.events, PollFlags::IN)];
            poll(&mut events, Some(&rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(queue.arm() && !rings(&slot));
        for _ in 0..2 {
            drop(slot.exchange(Vec::new()));
            assert!(rings(&slot));
            assert!(queue.arm() && !rings(&slot), "old news");
        }
    }
}
