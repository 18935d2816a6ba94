//! A worker's own stack of free buffers. Last in, first out: the lines it hands out are the ones still in the cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Pool;
use crate::pool::Level;

/// Buffers moved between cache and pool at a time.
const BULK: usize = 256;
/// Buffers that a cache keeps before it gives a bulk back.
const KEEP: usize = 2 * BULK;

/// Entries at the bottom of the stack that are never used: caches of different workers are allocated one after the other, and
/// none writes a line of another's.
const EDGE: usize = 32;
/// Entries that a stack has room for from the start: with the largest vector (1024) on top of what it keeps it does not reach
/// its last lines.
const ROOM: usize = EDGE + KEEP + 1024 + EDGE;

/// Free buffers of one worker. `!Sync` by use: each worker owns one.
pub struct Cache {
    pools: Vec<Arc<Pool>>,
    home: usize,
    /// The first [`EDGE`] entries stand for nothing.
    free: Vec<u32>,
    foreign: Vec<Foreign>,
    /// Buffers of shared pools on their way back.
    shared: Box<Foreign>,
    levels: Vec<Arc<Level>>,
}

/// Buffers on their way back to the pool of another memory node, on lines of their own.
#[repr(align(128))]
struct Foreign {
    indices: [u32; 64],
    len: usize,
}

impl Foreign {
    const EMPTY: Self = Self { indices: [0; 64], len: 0 };

    /// Appends a buffer; `true` where there is no more room afterwards.
    fn push(&mut self, index: u32) -> bool {
        self.indices[self.len] = index;
        self.len += 1;
        self.len == self.indices.len()
    }
}

impl Cache {
    /// A cache that draws from `pools[home]` and returns foreign buffers to the pool they came from.
    pub fn new(pools: Vec<Arc<Pool>>, home: usize) -> Self {
        let home = home.min(pools.len().saturating_sub(1));
        let foreign = pools.iter().map(|_| Foreign::EMPTY).collect();
        let levels = pools.iter().map(|p| p.register_level()).collect();
        let mut free = Vec::with_capacity(ROOM);
        free.resize(EDGE, crate::NO_BUFFER);
        Self { pools, home, free, foreign, shared: Box::new(Foreign::EMPTY), levels }
    }

    /// One free buffer, or `None` when the pool is empty.
    #[inline]
    pub fn alloc(&mut self) -> Option<u32> {
        if self.free.len() == EDGE && self.refill() == 0 {
            return None;
        }
        self.free.pop()
    }

    /// Free buffers here.
    fn len(&self) -> usize {
        self.free.len() - EDGE
    }

    /// Appends up to `wanted` free buffers to `out`; returns how many.
    pub fn alloc_bulk(&mut self, wanted: usize, out: &mut Vec<u32>) -> usize {
        while self.len() < wanted && self.refill() > 0 {}
        let n = wanted.min(self.len());
        out.extend(self.free.drain(self.free.len() - n..).rev());
        n
    }

    /// Fills the start of `out` with free buffers; returns how many. The rest of `out` is as it was.
    #[inline]
    pub fn alloc_into(&mut self, out: &mut [u32]) -> usize {
        while self.len() < out.len() && self.refill() > 0 {}
        let n = out.len().min(self.len());
        let left = self.free.len() - n;
        out[..n].copy_from_slice(&self.free[left..]);
        self.free.truncate(left);
        n
    }

    /// Gives one buffer back.
    #[inline]
    pub fn free(&mut self, index: u32) {
        let region = self.pools[self.home].region();
        if region.is_shared(index) {
            self.free_shared(index);
            return;
        }
        if self.pools.len() > 1 {
            let numa = self.pools[self.home].region().numa_of(index) as usize;
            if numa != self.home {
                self.free_foreign(index, numa);
                return;
            }
        }
        self.free.push(index);
        if self.len() >= KEEP {
            self.spill();
        }
    }

    /// Gives buffers back.
    #[inline]
    pub fn free_bulk(&mut self, indices: &[u32]) {
        if self.pools.len() > 1 || self.pools[self.home].region().has_shared() {
            for index in indices {
                self.free(*index);
            }
            return;
        }
        self.free.extend_from_slice(indices);
        while self.len() >= KEEP {
            self.spill();
        }
    }

    #[cold]
    fn refill(&mut self) -> usize {
        self.pools[self.home].take(BULK, &mut self.free)
    }

    /// The oldest bulk goes back, the newest stays: it is what the processor's cache still holds.
    #[cold]
    fn spill(&mut self) {
        let pool = &self.pools[self.home];
        let oldest = EDGE..EDGE + BULK.min(self.len());
        pool.give(&self.free[oldest.clone()]);
        self.free.drain(oldest);
    }

    #[cold]
    fn free_foreign(&mut self, index: u32, numa: usize) {
        let list = &mut self.foreign[numa];
        if list.push(index) {
            self.pools[numa].give(&list.indices);
            list.len = 0;
        }
    }

    #[cold]
    fn free_shared(&mut self, index: u32) {
        if self.shared.push(index) {
            self.flush_shared();
        }
    }

    #[cold]
    fn flush_shared(&mut self) {
        let list = &mut *self.shared;
        self.pools[self.home].region().give_shared(&mut list.indices[..list.len]);
        list.len = 0;
    }

    /// Shows the fill level to whoever counts buffers, and gives buffers of shared pools back; called once a loop.
    #[inline]
    pub fn publish(&mut self) {
        if self.shared.len > 0 {
            self.flush_shared();
        }
        if let [level] = &self.levels[..] {
            level.0.store(self.len() as u32, Ordering::Relaxed);
            return;
        }
        for (numa, level) in self.levels.iter().enumerate() {
            let mine = if numa == self.home { self.len() } else { 0 };
            level.0.store((mine + self.foreign[numa].len) as u32, Ordering::Relaxed);
        }
    }

    /// Memory that the worker writes all the time, as address and bytes, for checks that no two workers share a line.
    pub fn written(&self) -> Vec<(usize, usize)> {
        let stack = (self.free[EDGE..].as_ptr() as usize, (self.free.capacity() - 2 * EDGE) * size_of::<u32>());
        let foreign = self.foreign.iter().map(|list| (std::ptr::from_ref(list) as usize, size_of::<Foreign>()));
        let levels = self.levels.iter().map(|level| (std::ptr::from_ref(&**level) as usize, size_of::<Level>()));
        let shared = (std::ptr::from_ref(&*self.shared) as usize, size_of::<Foreign>());
        [stack, shared].into_iter().chain(foreign).chain(levels).collect()
    }

    /// Gives everything back to the pools.
    pub fn flush(&mut self) {
        self.pools[self.home].give(&self.free[EDGE..]);
        self.free.truncate(EDGE);
        for (pool, list) in self.pools.iter().zip(&mut self.foreign) {
            pool.give(&list.indices[..list.len]);
            list.len = 0;
        }
        self.publish();
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageSize, Region, RegionConfig};

    fn pools(numa_nodes: u32) -> Vec<Arc<Pool>> {
        let config = RegionConfig { buffers_per_numa: 2048, numa_nodes, page_size: PageSize::Kb4, ..Default::default() };
        let region = Arc::new(Region::new(&config).unwrap());
        (0..numa_nodes).map(|n| Arc::new(Pool::new(region.clone(), n))).collect()
    }

    #[test]
    fn the_last_buffer_freed_is_the_next_one_handed_out() {
        let mut cache = Cache::new(pools(1), 0);
        let a = cache.alloc().unwrap();
        let b = cache.alloc().unwrap();
        cache.free(a);
        cache.free(b);
        assert_eq!(cache.alloc(), Some(b));
        assert_eq!(cache.alloc(), Some(a));
    }

    #[test]
    fn steady_load_touches_a_bounded_set_of_buffers() {
        let mut cache = Cache::new(pools(1), 0);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut vector = Vec::new();
            assert_eq!(cache.alloc_bulk(256, &mut vector), 256);
            seen.extend(vector.iter().copied());
            cache.free_bulk(&vector);
        }
        assert!(seen.len() <= KEEP + BULK, "{} buffers for vectors of 256", seen.len());
    }

    #[test]
    fn counts_add_up_at_every_moment() {
        let pools = pools(2);
        let mut cache = Cache::new(pools.clone(), 0);
        let mut held = Vec::new();
        cache.alloc_bulk(1000, &mut held);
        cache.publish();
        assert_eq!(pools[0].usage().used(), 1000);
        pools[1].take(500, &mut held);
        assert_eq!(pools[1].usage().used(), 500);
        cache.free_bulk(&held);
        cache.publish();
        for pool in &pools {
            assert_eq!(pool.usage().used(), 0);
        }
        drop(cache);
        for pool in &pools {
            assert_eq!(pool.usage().available, pool.usage().total);
        }
    }

    #[test]
    fn buffers_handed_out_into_a_slice_are_those_of_a_list() {
        let pools = pools(1);
        let mut cache = Cache::new(pools.clone(), 0);
        let mut seen = std::collections::HashSet::new();
        let mut held = Vec::new();
        for wanted in [0, 1, 3, 255, 256, 257, 1024, 4096] {
            let mut lane = vec![u32::MAX; wanted];
            let got = cache.alloc_into(&mut lane);
            assert!(lane[..got].iter().all(|i| seen.insert(*i)), "handed out twice");
            assert!(lane[got..].iter().all(|i| *i == u32::MAX));
            held.extend_from_slice(&lane[..got]);
        }
        assert_eq!(held.len(), pools[0].usage().total as usize, "all of them in the end");
        cache.free_bulk(&held);
        cache.publish();
        assert_eq!(pools[0].usage().used(), 0);
    }

    #[test]
    fn an_empty_pool_is_an_answer_and_not_a_fault() {
        let pools = pools(1);
        let mut cache = Cache::new(pools.clone(), 0);
        let mut held = Vec::new();
        let total = pools[0].usage().total as usize;
        assert_eq!(cache.alloc_bulk(total + 10, &mut held), total);
        assert_eq!(cache.alloc(), None);
        cache.free_bulk(&held);
        assert!(cache.alloc().is_some());
    }
}
