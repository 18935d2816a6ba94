//! How many packets each session had, by the number of its entry in the hash.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_graph::stats::MAX_THREADS;

/// Counters of one thread, by entry.
type Lane = OnceLock<Box<[AtomicU64]>>;

/// Counters of a table's sessions. Each thread has its own, made when it first counts; filters of traces share one more.
pub struct Hits {
    lanes: [Lane; MAX_THREADS + 1],
    capacity: usize,
}

impl Hits {
    /// Counters for so many entries.
    pub const fn new(capacity: usize) -> Self {
        Self { lanes: [const { OnceLock::new() }; MAX_THREADS + 1], capacity }
    }

    fn counter(&self, lane: usize, entry: u32) -> Option<&AtomicU64> {
        let lane = self.lanes.get(lane)?.get_or_init(|| (0..self.capacity).map(|_| AtomicU64::new(0)).collect());
        lane.get(entry as usize)
    }

    /// A packet of a thread.
    #[inline(always)]
    pub fn count(&self, thread: usize, entry: u32) {
        if let Some(counter) = self.counter(thread.min(MAX_THREADS - 1), entry) {
            // Nobody else writes to it.
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// A packet that a filter saw, on any thread.
    pub fn count_shared(&self, entry: u32) {
        if let Some(counter) = self.counter(MAX_THREADS, entry) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counters(&self, entry: u32) -> impl Iterator<Item = &AtomicU64> {
        self.lanes.iter().filter_map(move |lane| lane.get()?.get(entry as usize))
    }

    /// Packets of all threads.
    pub fn of(&self, entry: u32) -> u64 {
        self.counters(entry).map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// The entry is another session's now.
    pub fn forget(&self, entry: u32) {
        self.counters(entry).for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_filters_count_apart_and_are_shown_together() {
        let hits = Hits::new(2);
        (0..3).for_each(|_| hits.count(0, 1));
        hits.count(63, 1);
        hits.count_shared(1);
        hits.count(0, 0);
        hits.count(0, 2);
        assert_eq!((hits.of(0), hits.of(1), hits.of(2)), (1, 5, 0));
        hits.forget(1);
        assert_eq!((hits.of(0), hits.of(1)), (1, 0));
    }
}
