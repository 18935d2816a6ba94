//! The event ring of one thread: written without waiting, read by anyone at any time.
//!
//! An event fills half a cache line: its position plus one, raw ticks, kind and first argument, second argument. The
//! position works as the slot's seqlock: 0 while the slot is being written. A reader that finds 0, or another position
//! after reading than before, drops the slot; it never waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::EventKind;
use crate::clock::Source;

/// The largest ring: 16 M events, half a gigabyte.
const CAPACITY_MAX: usize = 1 << 24;

/// Position plus one, ticks, kind << 32 | a, b.
#[repr(align(32))]
#[derive(Default)]
struct Slot([AtomicU64; 4]);

/// An event as it lies in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// How many events were logged on this ring before.
    pub position: u64,
    /// When, in raw ticks of the clock.
    pub ticks: u64,
    /// What.
    pub kind: EventKind,
    /// First argument.
    pub a: u32,
    /// Second argument.
    pub b: u32,
}

/// The events of one thread, the newest overwriting the oldest.
#[repr(align(128))]
pub struct Ring {
    next: AtomicU64,
    enabled: AtomicBool,
    source: Source,
    slots: Box<[Slot]>,
    /// Positions below this were cleared. Apart from what the writer writes.
    cleared: Apart,
}

#[repr(align(128))]
struct Apart(AtomicU64);

impl Ring {
    /// A ring for `capacity` events, rounded up to a power of two, that stamps them with ticks of `source`.
    pub fn new(capacity: usize, source: Source) -> Self {
        let capacity = capacity.clamp(2, CAPACITY_MAX).next_power_of_two();
        Self {
            next: AtomicU64::new(0),
            enabled: AtomicBool::new(true),
            source,
            slots: (0..capacity).map(|_| Slot::default()).collect(),
            cleared: Apart(AtomicU64::new(0)),
        }
    }

    /// Logs an event. To be called by one thread only; a second one would lose events, and harm nothing else.
    #[inline]
    pub fn log(&self, kind: EventKind, a: u32, b: u32) {
        if self.enabled.load(Ordering::Relaxed) {
            self.log_at(self.source.ticks(), kind, a, b);
        }
    }

    #[inline]
    pub(super) fn log_at(&self, ticks: u64, kind: EventKind, a: u32, b: u32) {
        let position = self.next.load(Ordering::Relaxed);
        let slot = &self.slots[position as usize & (self.slots.len() - 1)].0;
        slot[0].store(0, Ordering::Relaxed);
        // Whoever sees a word stored below also sees that the slot is being written.
        fence(Ordering::Release);
        slot[1].store(ticks, Ordering::Relaxed);
        slot[2].store(u64::from(kind.0) << 32 | u64::from(a), Ordering::Relaxed);
        slot[3].store(u64::from(b), Ordering::Relaxed);
        slot[0].store(position + 1, Ordering::Release);
        self.next.store(position + 1, Ordering::Relaxed);
    }

    /// The number of events for which there is room.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The number of events logged so far, with those overwritten or cleared.
    pub fn logged(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether events are being logged.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Starts or stops logging.
    pub fn enable(&self, on: bool) {
        self.enabled.store(on, Ordering::Relaxed);
    }

    /// Forgets all events so far.
    pub fn clear(&self) {
        self.cleared.0.store(self.logged(), Ordering::Relaxed);
    }

    /// The events in the ring, oldest first, without those that are overwritten while we look.
    pub fn events(&self) -> Vec<RawEvent> {
        let cleared = self.cleared.0.load(Ordering::Relaxed);
        let intact = self.slots.iter().filter_map(Slot::read);
        let mut events: Vec<_> = intact.filter(|event| event.position >= cleared).collect();
        events.sort_unstable_by_key(|event| event.position);
        events
    }
}

impl Slot {
    fn read(&self) -> Option<RawEvent> {
        let before = self.0[0].load(Ordering::Acquire);
        let [ticks, kind_a, b] = [1, 2, 3].map(|word: usize| self.0[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.0[0].load(Ordering::Relaxed);
        let position = before.checked_sub(1)?;
        (before == after).then_some(RawEvent {
            position,
            ticks,
            kind: EventKind((kind_a >> 32) as u32),
            a: kind_a as u32,
            b: b as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring) -> Vec<u32> {
        ring.events().iter().map(|event| event.a).collect()
    }

    #[test]
    fn the_newest_events_overwrite_the_oldest() {
        for count in [0, 1, 3, 4, 5, 7, 8, 9, 257] {
            let ring = Ring::new(4, Source::Kernel);
            (0..count).for_each(|n| ring.log(EventKind(1), n, !n));
            assert_eq!(numbers(&ring), (count.saturating_sub(4)..count).collect::<Vec<_>>());
            assert!(ring.events().iter().all(|event| event.b == !event.a));
        }
    }

    #[test]
    fn a_cleared_or_stopped_ring_shows_only_what_came_later() {
        let ring = Ring::new(8, Source::Kernel);
        (0..5).for_each(|n| ring.log(EventKind(1), n, 0));
        ring.clear();
        ring.log(EventKind(1), 5, 0);
        ring.enable(false);
        ring.log(EventKind(1), 6, 0);
        ring.enable(true);
        ring.log(EventKind(1), 7, 0);
        assert_eq!(numbers(&ring), [5, 7]);
    }

    #[test]
    fn a_reader_drops_events_that_are_torn() {
        let ring = Ring::new(16, Source::Kernel);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..100_000u32).for_each(|n| ring.log_at(u64::from(n), EventKind(n), n, n));
            });
            while !writer.is_finished() {
                for event in ring.events() {
                    let n = event.position as u32;
                    assert_eq!((event.ticks as u32, event.kind, event.a, event.b), (n, EventKind(n), n, n));
                }
            }
        });
        assert_eq!(ring.events().len(), 16);
    }
}
