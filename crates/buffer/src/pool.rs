//! The shared store of free buffers of one NUMA node: a lock-free stack of indices, moved in bulks.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{NO_BUFFER, Region};

/// How many buffers are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Usable buffers in all.
    pub total: u32,
    /// In the shared pool.
    pub available: u32,
    /// In caches of workers.
    pub cached: u32,
}

impl PoolUse {
    /// Buffers that hold packets now.
    pub fn used(&self) -> u32 {
        self.total.saturating_sub(self.available).saturating_sub(self.cached)
    }
}

/// Free buffers of a range of indices.
///
/// A Treiber stack: `head` holds a change count (high 32 bits) and the top index. Every push and pop raises the count, so a
/// chain that was walked before a successful exchange was not changed meanwhile, whatever was read on the way.
pub(crate) struct Stack {
    first: u32,
    head: AtomicU64,
    links: Box<[AtomicU32]>,
    total: u32,
    available: AtomicU32,
}

/// Free buffers of one NUMA node.
pub struct Pool {
    region: Arc<Region>,
    numa: u32,
    stack: Stack,
    levels: Mutex<Vec<Weak<Level>>>,
}

/// Fill level of a cache, on lines of its own: its worker writes it each turn.
#[repr(align(128))]
pub(crate) struct Level(pub AtomicU32);

impl Stack {
    /// All usable buffers of `range`, lowest index on top.
    pub(crate) fn new(range: Range<u32>, usable: impl Fn(u32) -> bool) -> Self {
        let first = range.start;
        let mut links: Vec<AtomicU32> = range.clone().map(|_| AtomicU32::new(NO_BUFFER)).collect();
        let mut top = NO_BUFFER;
        let mut total = 0;
        for index in range.rev().filter(|i| usable(*i)) {
            *links[(index - first) as usize].get_mut() = top;
            top = index;
            total += 1;
        }
        let head = AtomicU64::new(u64::from(top));
        Self { first, head, links: links.into_boxed_slice(), total, available: AtomicU32::new(total) }
    }

    fn link(&self, index: u32) -> &AtomicU32 {
        // A reader may walk a chain that is changing under it: stale links are valid indices, never out of range.
        &self.links[(index - self.first) as usize]
    }

    /// Buffers in all.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Buffers that are here.
    pub(crate) fn available(&self) -> u32 {
        self.available.load(Ordering::Acquire)
    }

    /// Takes up to `wanted` buffers, appending them to `out`; returns how many.
    pub(crate) fn take(&self, wanted: usize, out: &mut Vec<u32>) -> usize {
        let before = out.len();
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            out.truncate(before);
            let mut index = head as u32;
            while index != NO_BUFFER && out.len() - before < wanted {
                out.push(index);
                index = self.link(index).load(Ordering::Relaxed);
            }
            let new = next_count(head) | u64::from(index);
            match self.head.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let n = out.len() - before;
                    self.available.fetch_sub(n as u32, Ordering::Relaxed);
                    return n;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Gives buffers back. All must belong here and have no other owner.
    pub(crate) fn give(&self, indices: &[u32]) {
        let (Some(first), Some(last)) = (indices.first(), indices.last()) else { return };
        for pair in indices.windows(2) {
            self.link(pair[0]).store(pair[1], Ordering::Relaxed);
        }
        self.available.fetch_add(indices.len() as u32, Ordering::Release);
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.link(*last).store(head as u32, Ordering::Relaxed);
            let new = next_count(head) | u64::from(*first);
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Pool {
    /// All usable buffers of `numa`, lowest index on top.
    pub fn new(region: Arc<Region>, numa: u32) -> Self {
        let stack = Stack::new(region.indices_of(numa), |i| region.usable(i));
        Self { region, numa, stack, levels: Mutex::new(Vec::new()) }
    }

    /// The region that the indices point into.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The node served.
    pub fn numa(&self) -> u32 {
        self.numa
    }

    /// Takes up to `wanted` buffers, appending them to `out`; returns how many.
    pub fn take(&self, wanted: usize, out: &mut Vec<u32>) -> usize {
        self.stack.take(wanted, out)
    }

    /// Gives buffers back. All must belong to this pool and have no other owner.
    pub fn give(&self, indices: &[u32]) {
        self.stack.give(indices);
    }

    /// A fill level that a cache keeps up to date; it is counted for as long as the cache lives.
    pub(crate) fn register_level(&self) -> Arc<Level> {
        let level = Arc::new(Level(AtomicU32::new(0)));
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        levels.retain(|l| l.strong_count() > 0);
        levels.push(Arc::downgrade(&level));
        level
    }

    /// How many buffers are where. Exact while nothing moves and every cache has published its level.
    pub fn usage(&self) -> PoolUse {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = levels.iter().filter_map(Weak::upgrade).map(|l| l.0.load(Ordering::Relaxed)).sum();
        PoolUse { total: self.stack.total(), available: self.stack.available(), cached }
    }
}

const fn next_count(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageSize, RegionConfig};

    fn pool(count: u32) -> Pool {
        let config = RegionConfig { buffers_per_numa: count, page_size: PageSize::Kb4, ..Default::default() };
        Pool::new(Arc::new(Region::new(&config).unwrap()), 0)
    }

    #[test]
    fn every_buffer_is_handed_out_once_and_the_end_is_no_buffer() {
        let pool = pool(1000);
        let mut out = Vec::new();
        while pool.take(256, &mut out) > 0 {}
        assert_eq!(out.len() as u32, pool.usage().total);
        assert_eq!(pool.usage().available, 0);
        let mut sorted = out.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), out.len());
        pool.give(&out);
        assert_eq!(pool.usage().available, pool.usage().total);
    }

    #[test]
    fn giving_nothing_changes_nothing() {
        let pool = pool(256);
        pool.give(&[]);
        assert_eq!(pool.usage().available, pool.usage().total);
    }

    #[test]
    fn threads_that_take_and_give_lose_and_double_nothing() {
        let pool = pool(4096);
        let owners: Vec<AtomicU32> = (0..pool.region().capacity()).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for id in 1..=4_u32 {
                let (pool, owners) = (&pool, &owners);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..3000_usize {
                        let before = held.len();
                        pool.take(1 + (round * 7 + id as usize) % 300, &mut held);
                        for index in &held[before..] {
                            assert_eq!(owners[*index as usize].swap(id, Ordering::Relaxed), 0, "two owners");
                        }
                        let keep = held.len() / 3;
                        for index in &held[keep..] {
                            assert_eq!(owners[*index as usize].swap(0, Ordering::Relaxed), id);
                        }
                        pool.give(&held[keep..]);
                        held.truncate(keep);
                    }
                    for index in &held {
                        owners[*index as usize].store(0, Ordering::Relaxed);
                    }
                    pool.give(&held);
                });
            }
        });
        let mut out = Vec::new();
        while pool.take(256, &mut out) > 0 {}
        assert_eq!(out.len() as u32, pool.usage().total);
    }
}
