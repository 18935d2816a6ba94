//! Free buffers for DPDK's drivers: whoever runs a burst lends its own cache for that time.
//!
//! Invariant (cited below):
//! * M1: the pointer in `LENT` is null, or the cache that it names is exclusively borrowed by the [`Loan`] that set it, on this
//!   thread, and nobody else touches it before the loan ends.

use std::cell::Cell;
use std::ffi::c_uint;
use std::ptr;
use std::sync::{Arc, OnceLock};

use quiver_buffer::{Cache, HEADROOM, Pool};

use crate::ffi;

/// The pools of all NUMA nodes. They stay for the life of the process, as DPDK does.
static POOLS: OnceLock<Vec<Arc<Pool>>> = OnceLock::new();

thread_local! {
    static LENT: Cell<*mut Cache> = const { Cell::new(ptr::null_mut()) };
}

/// A cache lent to DPDK's drivers until this is dropped.
pub struct Loan<'a> {
    before: *mut Cache,
    _cache: &'a mut Cache,
}

/// Lends a worker's cache to what DPDK does on this thread.
#[inline(always)]
pub fn lend(cache: &mut Cache) -> Loan<'_> {
    let before = LENT.replace(ptr::from_mut(cache));
    Loan { before, _cache: cache }
}

impl Drop for Loan<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        LENT.set(self.before);
    }
}

/// Takes free buffers: from the cache on loan, or from the pools on threads that have none (the main thread while it sets a
/// device up, DPDK's own).
extern "C" fn take(buffers: *mut u32, n: c_uint) -> c_uint {
    // SAFETY: the shim passes an array of n numbers that is its own.
    let to = unsafe { std::slice::from_raw_parts_mut(buffers, n as usize) };
    let lent = LENT.get();
    if !lent.is_null() {
        // SAFETY: M1.
        let cache = unsafe { &mut *lent };
        for (done, slot) in to.iter_mut().enumerate() {
            match cache.alloc() {
                Some(buffer) => *slot = buffer,
                None => return done as c_uint,
            }
        }
        return n;
    }
    let mut taken = Vec::with_capacity(to.len());
    for pool in POOLS.get().into_iter().flatten() {
        pool.take(to.len() - taken.len(), &mut taken);
    }
    to[..taken.len()].copy_from_slice(&taken);
    taken.len() as c_uint
}

/// Gives buffers back that a driver has no more use for.
extern "C" fn give(buffers: *const u32, n: c_uint) {
    // SAFETY: the shim passes an array of n numbers.
    let from = unsafe { std::slice::from_raw_parts(buffers, n as usize) };
    let lent = LENT.get();
    if !lent.is_null() {
        // SAFETY: M1.
        unsafe { &mut *lent }.free_bulk(from);
        return;
    }
    for pool in POOLS.get().into_iter().flatten() {
        let own = |buffer: &u32| pool.region().numa_of(*buffer) == pool.numa();
        if from.iter().all(own) {
            pool.give(from);
            return;
        }
        let own: Vec<u32> = from.iter().copied().filter(own).collect();
        pool.give(&own);
    }
}

extern "C" fn available() -> c_uint {
    POOLS.get().into_iter().flatten().map(|pool| pool.usage().available).sum()
}

/// Makes the mbufs of the router's packet memory, once.
///
/// # Errors
/// DPDK's, with a remedy where there is one.
pub fn share(pools: &[Arc<Pool>]) -> Result<(), String> {
    let Some(first) = pools.first() else { return Err("the router has no packet buffers".into()) };
    let own = POOLS.get_or_init(|| pools.to_vec());
    if !own.first().is_some_and(|pool| Arc::ptr_eq(pool, first)) {
        return Err("DPDK keeps the packet memory that it was given first: start the program anew to open devices anew".into());
    }
    let region = first.region();
    let geometry = region.geometry();
    let info = ffi::RegionInfo {
        base: region.base(),
        len: region.bytes() as u64,
        page: if region.pages().starts_with('2') {
            2 << 20
        } else if region.pages().starts_with('1') {
            1 << 30
        } else {
            4 << 10
        },
        stride: geometry.stride(),
        capacity: region.capacity(),
        data_end: geometry.data_end(),
        headroom: HEADROOM as u32,
    };
    let ops = ffi::PoolOps { take, give, available };
    // SAFETY: both structures are copied; the region they describe lives as long as the pools, which is for ever (POOLS).
    match unsafe { ffi::qd_pool_create(&raw const info, &raw const ops) } {
        0 => Ok(()),
        error => Err(format!("cannot make mbufs for {} buffers: {}", region.capacity(), crate::eal::reason(error))),
    }
}

/// Bytes from a buffer's start to the end of its data area.
#[cold]
pub fn data_end() -> u32 {
    POOLS.get().and_then(|pools| pools.first()).map_or(0, |pool| pool.region().geometry().data_end())
}

/// The share of DPDK's drivers in the pools, for `show dpdk buffer`.
pub fn mbufs() -> Option<u32> {
    POOLS.get()?.first().map(|pool| pool.region().capacity())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_buffer::{PageSize, Region, RegionConfig};

    #[test]
    fn a_loan_ends_with_its_scope_and_may_be_nested() {
        let config = RegionConfig { buffers_per_numa: 1024, page_size: PageSize::Kb4, ..Default::default() };
        let pool = Arc::new(Pool::new(Arc::new(Region::new(&config).unwrap()), 0));
        let mut cache = Cache::new(vec![pool.clone()], 0);
        let mut other = Cache::new(vec![pool], 0);
        let mut buffers = [0_u32; 300];
        {
            let _loan = lend(&mut cache);
            assert_eq!(take(buffers.as_mut_ptr(), 300), 300);
            {
                let _inner = lend(&mut other);
                give(buffers.as_ptr(), 100);
            }
            give(buffers[100..].as_ptr(), 200);
        }
        assert!(LENT.get().is_null());
        cache.publish();
        other.publish();
        let mut left = Vec::new();
        assert_eq!(other.alloc_bulk(100, &mut left), 100);
        assert_eq!(left.iter().rev().copied().collect::<Vec<_>>(), buffers[..100]);
    }

    #[test]
    fn a_driver_gets_what_is_there_and_no_more() {
        let config = RegionConfig { buffers_per_numa: 256, page_size: PageSize::Kb4, ..Default::default() };
        let pool = Arc::new(Pool::new(Arc::new(Region::new(&config).unwrap()), 0));
        let total = pool.usage().total;
        let mut cache = Cache::new(vec![pool.clone()], 0);
        let mut buffers = vec![0_u32; 1000];
        let loan = lend(&mut cache);
        assert_eq!(take(buffers.as_mut_ptr(), 1000), total);
        give(buffers.as_ptr(), total);
        drop(loan);
        drop(cache);
        assert_eq!(pool.usage().available, total);
    }
}
