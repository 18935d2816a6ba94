//! Pools whose bytes a peer can write: memory of their own, at indices behind those of the region.
//!
//! ```text
//!   index:   0 … capacity │ (unused) │ area 0 │ area 1 │ … │ area 7 │
//!            packet pools                └ one memory file each, shown to the peer of one socket
//! ```
//!
//! An area has its address from the start, so that `base + index × stride` holds for its buffers as for all others. While
//! nobody uses it, zeros are mapped there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::pool::{PoolUse, Stack};
use crate::region::{NotMapped, map_at};
use crate::{Geometry, Region, RegionError};

/// Areas of a region.
pub(crate) const AREAS: u32 = 8;
/// Indices of an area: 2 MB pages begin and end with it, whatever the stride (an odd number of cache lines).
pub(crate) const AREA_INDICES: u32 = 1 << 16;
/// Buffers that an area surely holds: others cross a 2 MB page.
const AREA_BUFFERS: u32 = AREA_INDICES / 2;
const HUGE_PAGE: usize = 2 << 20;

/// Free buffers that a peer can write to.
///
/// Their bytes may change at any moment, also between two reads of the same byte.
pub struct SharedPool {
    stack: Stack,
    area: u32,
    first: u32,
    len: usize,
    fd: OwnedFd,
    /// Nobody takes buffers from it any more.
    retired: AtomicBool,
}

impl SharedPool {
    /// Takes up to `wanted` buffers, appending them to `out`; returns how many.
    pub fn take(&self, wanted: usize, out: &mut Vec<u32>) -> usize {
        self.stack.take(wanted, out)
    }

    /// Gives buffers back. All must belong to this pool and have no other owner.
    pub fn give(&self, indices: &[u32]) {
        self.stack.give(indices);
    }

    /// Number among the pools of its kind.
    pub fn area(&self) -> u32 {
        self.area
    }

    /// Index of the first buffer: it begins at the first byte of the memory.
    pub fn first(&self) -> u32 {
        self.first
    }

    /// Whether a buffer is one of these.
    #[inline(always)]
    pub fn holds(&self, index: u32) -> bool {
        index.wrapping_sub(self.first) < AREA_INDICES
    }

    /// The memory, to be shown to the peer; it can neither shrink nor grow.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes of the memory.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// How many buffers are where; those in rings count as used.
    pub fn usage(&self) -> PoolUse {
        PoolUse { total: self.stack.total(), available: self.stack.available(), cached: 0 }
    }
}

/// The areas of a region.
pub(crate) struct Shares {
    /// Some area is in use. Every worker reads it all the time.
    active: Line<AtomicBool>,
    pools: Line<Mutex<Pools>>,
}

type Pools = [Option<Arc<SharedPool>>; AREAS as usize];

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

impl Shares {
    pub(crate) fn new() -> Self {
        Self { active: Line::default(), pools: Line::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        self.pools.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region {
    /// A pool of `buffers` buffers on memory that a peer may be given: on 2 MB pages where there are enough of them and the
    /// region is on large ones.
    ///
    /// # Errors
    /// More buffers than an area holds, no free area, or no memory.
    pub fn share(&self, buffers: u32) -> Result<Arc<SharedPool>, RegionError> {
        if !(1..=AREA_BUFFERS).contains(&buffers) {
            return Err(RegionError::SharedCount { buffers, most: AREA_BUFFERS });
        }
        self.sweep_shared();
        let mut pools = self.shares.lock();
        let Some(area) = pools.iter().position(Option::is_none) else { return Err(RegionError::SharedPools(AREAS)) };
        let first = self.shared_first + area as u32 * AREA_INDICES;
        let count = crate::region::indices_for(buffers, self.geometry().stride());
        let (fd, len) = self.map_area(first, count as usize * self.geometry().stride() as usize)?;
        let stack = Stack::new(first..first + count, |index| self.usable(index));
        let pool = Arc::new(SharedPool { stack, area: area as u32, first, len, fd, retired: AtomicBool::new(false) });
        pools[area] = Some(pool.clone());
        self.shares.active.0.store(true, Ordering::Release);
        Ok(pool)
    }

    /// A new memory file at the addresses of an area.
    fn map_area(&self, first: u32, bytes: usize) -> Result<(OwnedFd, usize), RegionError> {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let pages = [(bytes.next_multiple_of(HUGE_PAGE), huge), (bytes.next_multiple_of(4096), MemfdFlags::empty())];
        // On small pages where the region itself is.
        let pages = &pages[usize::from(self.pages() == "4 kB")..];
        let mut result = Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        for (len, flags) in pages {
            result = self.map_area_on(first, *len, *flags).map(|fd| (fd, *len));
            if result.is_ok() {
                break;
            }
        }
        result.map_err(|error| RegionError::Memory { mbytes: bytes >> 20, pages: "4 kB", error })
    }

    fn map_area_on(&self, first: u32, len: usize, flags: MemfdFlags) -> std::io::Result<OwnedFd> {
        let fd = memfd_create(c"quiver-shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)?;
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        debug_assert!(len <= self.area_bytes());
        // Pages are taken now: one that is missing later would be a SIGBUS in the data path.
        // SAFETY: the addresses of an area belong to this region (R1) and, the area being free, no buffer there is in use.
        match unsafe { map_at(self.area(first), len, MapFlags::POPULATE, &fd) } {
            Ok(()) => Ok(fd),
            Err(NotMapped { error, is_hole }) => {
                if is_hole {
                    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
                    // SAFETY: it takes the place of nothing. What lanes name by chance there stays readable.
                    let filled = unsafe { mmap_anonymous(self.area(first), len, ProtFlags::READ, flags) };
                    assert!(
                        filled == Ok(self.area(first)),
                        "the kernel has no memory for mappings, and part of the packet buffers' addresses is lost"
                    );
                }
                Err(error)
            }
        }
    }

    fn area_bytes(&self) -> usize {
        AREA_INDICES as usize * self.geometry().stride() as usize
    }

    fn area(&self, first: u32) -> *mut std::ffi::c_void {
        self.base().wrapping_add(first as usize * self.geometry().stride() as usize).cast()
    }

    /// Zeros instead of an area's memory: what lanes still name by chance stays readable.
    fn unmap_area(&self, first: u32) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `map_area_on`.
        let _ = unsafe { mmap_anonymous(self.area(first), self.area_bytes(), ProtFlags::READ, flags) };
    }

    /// Says that nothing more will be taken from a pool; its memory goes when all buffers are back.
    pub fn retire_shared(&self, pool: &SharedPool) {
        pool.retired.store(true, Ordering::Release);
        self.sweep_shared();
    }

    /// Unmaps retired pools whose buffers are all back; returns how many are waited for.
    pub fn sweep_shared(&self) -> usize {
        let mut pools = self.shares.lock();
        let mut waiting = 0;
        for entry in pools.iter_mut() {
            let Some(pool) = entry.as_ref().filter(|pool| pool.retired.load(Ordering::Acquire)) else { continue };
            if pool.stack.available() < pool.stack.total() {
                waiting += 1;
                continue;
            }
            self.unmap_area(pool.first);
            *entry = None;
        }
        if pools.iter().all(Option::is_none) {
            self.shares.active.0.store(false, Ordering::Release);
        }
        waiting
    }

    /// All pools that a peer can write to.
    pub fn shared_pools(&self) -> Vec<Arc<SharedPool>> {
        self.shares.lock().iter().flatten().cloned().collect()
    }

    /// Whether there is any such pool.
    #[inline(always)]
    pub fn has_shared(&self) -> bool {
        self.shares.active.0.load(Ordering::Relaxed)
    }

    /// Whether a peer can write to a buffer.
    #[inline(always)]
    pub fn is_shared(&self, index: u32) -> bool {
        index >= self.shared_first
    }

    /// Gives buffers back to the pools that they came from. They must have no other owner.
    pub(crate) fn give_shared(&self, indices: &mut [u32]) {
        indices.sort_unstable();
        let area_of = |index: u32| (index - self.shared_first) / AREA_INDICES;
        let pools = self.shares.lock();
        for run in indices.chunk_by(|a, b| area_of(*a) == area_of(*b)) {
            if let Some(pool) = run.first().and_then(|index| pools.get(area_of(*index) as usize)?.as_ref()) {
                debug_assert_eq!(pool.area, area_of(run[0]));
                pool.give(run);
            }
        }
    }
}

/// Indices and bytes that a region reserves for areas behind `main_bytes` of its own.
pub(crate) fn reserve(main_bytes: usize, geometry: Geometry) -> (u32, u32, usize) {
    let stride = geometry.stride() as usize;
    // The first index at a 2 MB boundary behind the region's own pages.
    let align = HUGE_PAGE / crate::LINE;
    let first = main_bytes.div_ceil(stride).next_multiple_of(align);
    let end = first + (AREAS * AREA_INDICES) as usize;
    (first as u32, end as u32, end * stride)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, PageSize, Pool, RegionConfig};

    fn region() -> Arc<Region> {
        let config = RegionConfig { buffers_per_numa: 1000, page_size: PageSize::Kb4, ..Default::default() };
        Arc::new(Region::new(&config).unwrap())
    }

    #[test]
    fn every_area_begins_on_a_large_page_and_its_buffers_are_memory_of_its_file() {
        let region = region();
        for area in 0..AREAS {
            let pool = region.share(300).unwrap();
            let mut all = Vec::new();
            while pool.take(64, &mut all) > 0 {}
            assert!(all.len() >= 300);
            let stride = region.geometry().stride() as usize;
            for index in &all {
                assert!(region.is_shared(*index) && pool.holds(*index) && region.usable(*index));
                let at = (*index - pool.first()) as usize * stride;
                assert!(at + stride <= pool.bytes());
                // SAFETY: the index was handed out, so this test owns the buffer.
                unsafe { region.buffer(*index).cast::<u32>().write(area * 7 + index) };
                let mut seen = [0; 4];
                assert_eq!(rustix::io::pread(pool.fd(), &mut seen, at as u64), Ok(4));
                assert_eq!(u32::from_ne_bytes(seen), area * 7 + index, "the file shows another byte");
            }
            assert_eq!(region.buffer_address(pool.first()) as usize % HUGE_PAGE, region.base() as usize % HUGE_PAGE);
            pool.give(&all);
        }
        assert!(matches!(region.share(300), Err(RegionError::SharedPools(AREAS))));
    }

    #[test]
    fn memory_goes_when_the_last_buffer_is_back_and_the_area_serves_again() {
        let region = region();
        assert!(!region.has_shared());
        let pool = region.share(300).unwrap();
        assert!(region.has_shared());
        let mut held = Vec::new();
        pool.take(3, &mut held);
        region.retire_shared(&pool);
        assert_eq!(region.sweep_shared(), 1, "a buffer is still out");
        pool.give(&held);
        assert_eq!(region.sweep_shared(), 0);
        assert!(!region.has_shared());
        // SAFETY: inside the region; nobody else knows the index.
        assert_eq!(unsafe { region.buffer(held[0]).read() }, 0, "what is left there is zeros");
        assert_eq!(region.share(300).unwrap().first(), pool.first());
    }

    #[test]
    fn a_worker_gives_such_buffers_back_to_where_they_came_from() {
        let region = region();
        let pools = vec![Arc::new(Pool::new(region.clone(), 0))];
        let mut cache = Cache::new(pools.clone(), 0);
        let (a, b) = (region.share(300).unwrap(), region.share(300).unwrap());
        let mut held = Vec::new();
        cache.alloc_bulk(50, &mut held);
        a.take(100, &mut held);
        b.take(70, &mut held);
        held.reverse();
        cache.free_bulk(&held[..150]);
        held[150..].iter().for_each(|index| cache.free(*index));
        cache.publish();
        for pool in [a, b] {
            assert_eq!(pool.usage().available, pool.usage().total);
        }
        assert_eq!(pools[0].usage().used(), 0);
        let mut again = Vec::new();
        while cache.alloc_bulk(64, &mut again) > 0 {}
        assert!(again.iter().all(|index| !region.is_shared(*index)), "a peer's buffer was handed out as one of ours");
    }

    #[test]
    fn the_peer_cannot_change_the_size_of_its_view() {
        let pool = region().share(10).unwrap();
        for len in [0, pool.bytes() as u64 * 2] {
            assert!(ftruncate(pool.fd(), len).is_err());
        }
    }

    #[test]
    fn counts_out_of_range_are_refused() {
        for buffers in [0, AREA_BUFFERS + 1] {
            assert!(matches!(region().share(buffers), Err(RegionError::SharedCount { .. })));
        }
    }
}
