//! The memory region all buffers live in.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use quiver_tables::mem::numa;

use crate::shared::{self, Shares};
use crate::{Geometry, GeometryError, Meta};

/// Page size of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MB pages, or 4 kB pages with a notice when none are free.
    Default,
    /// 4 kB pages.
    Kb4,
    /// 2 MB pages or an error.
    Mb2,
    /// 1 GB pages or an error.
    Gb1,
}

impl PageSize {
    const fn bytes(self) -> usize {
        match self {
            Self::Kb4 => 4 << 10,
            Self::Default | Self::Mb2 => 2 << 20,
            Self::Gb1 => 1 << 30,
        }
    }
}

/// What to build.
#[derive(Clone, Debug)]
pub struct RegionConfig {
    /// Usable buffers on each NUMA node.
    pub buffers_per_numa: u32,
    /// NUMA nodes that get a pool.
    pub numa_nodes: u32,
    /// The kernel's numbers of these nodes, which may have gaps. Where there are fewer, the others are numbered as they are
    /// counted.
    pub numa_numbers: Vec<u32>,
    /// Bytes of the data area of each buffer.
    pub data_size: u32,
    /// Pages to use.
    pub page_size: PageSize,
}

impl RegionConfig {
    /// The kernel's number of each node, by the node's place among those that get a pool.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..self.numa_nodes).map(|place| self.numa_numbers.get(place as usize).copied().unwrap_or(place))
    }
}

impl Default for RegionConfig {
    fn default() -> Self {
        Self {
            buffers_per_numa: 16_384,
            numa_nodes: 1,
            numa_numbers: Vec::new(),
            data_size: crate::DEFAULT_DATA_SIZE as u32,
            page_size: PageSize::Default,
        }
    }
}

/// Why a region could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The data size does not work.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// No buffers asked for, or more than 32-bit indices or the address space carry.
    #[error("buffers-per-numa {0} is out of range, expected 256 to 16777216")]
    Count(u32),
    /// A pool to be shared with a peer is too small or too large.
    #[error("{buffers} buffers for a peer are too few or too many: expected 1 to {most}")]
    SharedCount {
        /// Asked for.
        buffers: u32,
        /// Largest pool.
        most: u32,
    },
    /// No room for another pool to be shared with a peer.
    #[error("{0} pools are shared with peers already; fix: delete the zero-copy interfaces of one socket")]
    SharedPools(u32),
    /// The pages are not there.
    #[error("no memory for {mbytes} MB of packet buffers on {pages} pages: {error}")]
    Memory {
        /// Size asked for, MB.
        mbytes: usize,
        /// Kind of page.
        pages: &'static str,
        /// What the kernel said.
        error: std::io::Error,
    },
}

/// Packet bytes of all buffers, and the private metadata beside them.
///
/// Invariants (cited by `unsafe` code here and in the layers above):
/// * R1: `base..base+reserved` is mapped for the life of the region: its own memory first, then the areas of [shared
///   pools](crate::SharedPool), readable zeros where there is none. `meta..meta+indices×64` is mapped as well.
/// * R2: for every `index < indices` the bytes `base + index × stride .. + stride` lie inside the mapping.
/// * R3: an index that [`Region::usable`] refuses is never handed out, so no handed-out buffer crosses a 2 MB boundary.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Ends the mapping with the region.
    _reserved: Reserved,
    meta: NonNull<Meta>,
    meta_len: usize,
    geometry: Geometry,
    capacity: u32,
    /// Indices from here on are those of shared pools.
    pub(crate) shared_first: u32,
    /// End of all indices.
    indices: u32,
    pub(crate) shares: Shares,
    per_numa: u32,
    numa_nodes: u32,
    pages: &'static str,
    notice: Option<String>,
    fd: OwnedFd,
}

// SAFETY: the region hands out addresses only; who may touch the bytes behind an index is the owner rule of the crate doc.
unsafe impl Send for Region {}
// SAFETY: as above; the region itself is never changed after construction.
unsafe impl Sync for Region {}

const BOUNDARY: usize = 2 << 20;

impl Region {
    /// Maps a region.
    ///
    /// # Errors
    /// Sizes out of range, or no memory (explicit page sizes do not fall back; `Default` does, with a [`Region::notice`]).
    pub fn new(config: &RegionConfig) -> Result<Self, RegionError> {
        let geometry = Geometry::new(config.data_size)?;
        if !(256..=16 << 20).contains(&config.buffers_per_numa) || config.numa_nodes == 0 || config.numa_nodes > 64 {
            return Err(RegionError::Count(config.buffers_per_numa));
        }
        let per_numa = indices_for(config.buffers_per_numa, geometry.stride());
        let capacity = per_numa
            .checked_mul(config.numa_nodes)
            .filter(|c| *c < u32::MAX / 2)
            .ok_or(RegionError::Count(config.buffers_per_numa))?;
        let bytes = capacity as usize * geometry.stride() as usize;
        let (fd, reserved, len, pages, notice) = map_pages(bytes, config.page_size, geometry)?;
        let (shared_first, indices, _) = shared::reserve(len, geometry);
        let meta_len = indices as usize * size_of::<Meta>();
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let meta = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                meta_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let meta = meta.map_err(|e| RegionError::Memory { mbytes: meta_len >> 20, pages: "4 kB", error: e.into() })?;
        let region = Self {
            base: reserved.base,
            len,
            _reserved: reserved,
            // mmap never returns null on success.
            meta: NonNull::new(meta.cast()).unwrap_or(NonNull::dangling()),
            meta_len,
            geometry,
            capacity,
            shared_first,
            indices,
            shares: Shares::new(),
            per_numa,
            numa_nodes: config.numa_nodes,
            pages,
            notice,
            fd,
        };
        region.bind_to_nodes(config.numbers());
        Ok(region)
    }

    /// Asks the kernel to place each node's part on its node; without effect where there is one node.
    fn bind_to_nodes(&self, numbers: impl Iterator<Item = u32>) {
        if self.numa_nodes < 2 {
            return;
        }
        for (node, number) in (0..self.numa_nodes).zip(numbers) {
            let start = ((node * self.per_numa) as usize * self.geometry.stride() as usize) & !(BOUNDARY - 1);
            let end = (((node + 1) * self.per_numa) as usize * self.geometry.stride() as usize) & !(BOUNDARY - 1);
            let Some(part) = NonNull::new(self.base.as_ptr().wrapping_add(start)) else { continue };
            // A refusal is harmless: pages are then placed by first touch.
            let _ = numa::place(part, end - start, number, numa::Policy::Bind);
        }
    }

    /// Layout of a buffer.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of indices, usable ones and those that cross a 2 MB boundary; without those of shared pools.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// End of all indices, with those of shared pools.
    pub fn indices(&self) -> u32 {
        self.indices
    }

    /// NUMA nodes with a part of the region.
    pub fn numa_nodes(&self) -> u32 {
        self.numa_nodes
    }

    /// The indices of a node.
    pub fn indices_of(&self, numa: u32) -> std::ops::Range<u32> {
        numa * self.per_numa..(numa + 1) * self.per_numa
    }

    /// The node that an index belongs to.
    pub fn numa_of(&self, index: u32) -> u32 {
        index / self.per_numa
    }

    /// Whether an index may be handed out: its bytes do not cross a 2 MB page.
    pub fn usable(&self, index: u32) -> bool {
        usable(index, self.geometry.stride())
    }

    /// First byte of the region.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// First metadata line.
    #[inline(always)]
    pub fn meta_base(&self) -> *mut Meta {
        self.meta.as_ptr()
    }

    /// Address of a buffer; it must exist for the address to be used.
    #[inline(always)]
    pub fn buffer_address(&self, index: u32) -> *mut u8 {
        self.base.as_ptr().wrapping_add(index as usize * self.geometry.stride() as usize)
    }

    /// First byte of a buffer (its headroom). Reading or writing it is for the owner of the index.
    ///
    /// # Safety
    /// `index < indices()`.
    #[inline(always)]
    pub unsafe fn buffer(&self, index: u32) -> *mut u8 {
        debug_assert!(index < self.indices);
        // SAFETY: R2 with the caller's promise.
        unsafe { self.base.as_ptr().add(index as usize * self.geometry.stride() as usize) }
    }

    /// Metadata line of a buffer. Reading or writing it is for the owner of the index.
    ///
    /// # Safety
    /// `index < indices()`.
    #[inline(always)]
    pub unsafe fn meta(&self, index: u32) -> *mut Meta {
        debug_assert!(index < self.indices);
        // SAFETY: R1 with the caller's promise.
        unsafe { self.meta.as_ptr().add(index as usize) }
    }

    /// Bytes of the mapping.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Kind of page in use, for display.
    pub fn pages(&self) -> &'static str {
        self.pages
    }

    /// What the user should know: a fall-back to small pages, and how to get large ones.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The memory as a file descriptor, for devices that map it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size and ends here (R1).
        let _ = unsafe { munmap(self.meta.as_ptr().cast::<c_void>(), self.meta_len) };
    }
}

/// Addresses for all buffers there can be.
struct Reserved {
    /// First byte of the region, on a boundary of its pages.
    base: NonNull<u8>,
    start: NonNull<c_void>,
    len: usize,
}

impl Reserved {
    /// Zeros at `len` addresses, `align` bytes aligned, that cost no memory.
    fn new(len: usize, align: usize) -> std::io::Result<Self> {
        let len = len + align;
        // Not to be written, so that the kernel need not promise memory for it.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ, flags) }?;
        let base = start.cast::<u8>().wrapping_add(start.cast::<u8>().align_offset(align));
        match (NonNull::new(base), NonNull::new(start)) {
            (Some(base), Some(start)) => Ok(Self { base, start, len }),
            _ => Err(std::io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: made in `new` with this size, with all that was mapped into it since.
        let _ = unsafe { munmap(self.start.as_ptr(), self.len) };
    }
}

/// Whether the bytes of `index` stay inside one 2 MB page.
fn usable(index: u32, stride: u32) -> bool {
    let start = index as usize * stride as usize;
    let end = start + stride as usize - 1;
    start / BOUNDARY == end / BOUNDARY
}

/// Number of indices to lay out so that `wanted` of them are usable.
pub(crate) fn indices_for(wanted: u32, stride: u32) -> u32 {
    let mut indices = wanted;
    loop {
        let crossing = (indices as usize * stride as usize).div_ceil(BOUNDARY) as u32;
        if indices - crossing >= wanted {
            return indices;
        }
        indices = wanted + crossing + 1;
    }
}

type Mapped = (OwnedFd, Reserved, usize, &'static str, Option<String>);

fn map_pages(bytes: usize, page: PageSize, geometry: Geometry) -> Result<Mapped, RegionError> {
    let (flags, name) = match page {
        PageSize::Kb4 => (MemfdFlags::CLOEXEC, "4 kB"),
        PageSize::Default | PageSize::Mb2 => (MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, "2 MB"),
        PageSize::Gb1 => (MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB, "1 GB"),
    };
    let len = bytes.next_multiple_of(page.bytes());
    match map_file(len, page.bytes(), flags, geometry) {
        Ok((fd, reserved)) => Ok((fd, reserved, len, name, None)),
        Err(error) if page == PageSize::Default => {
            let (fd, reserved, len, name, _) = map_pages(bytes, PageSize::Kb4, geometry)?;
            let notice = format!(
                "packet buffers on 4 kB pages: {} MB of 2 MB pages not available ({error}); fix: sysctl -w vm.nr_hugepages={}",
                len >> 20,
                len.div_ceil(2 << 20)
            );
            Ok((fd, reserved, len, name, Some(notice)))
        }
        Err(error) => Err(RegionError::Memory { mbytes: len >> 20, pages: name, error }),
    }
}

fn map_file(len: usize, page: usize, flags: MemfdFlags, geometry: Geometry) -> std::io::Result<(OwnedFd, Reserved)> {
    let fd = memfd_create(c"quiver-buffers", flags)?;
    ftruncate(&fd, len as u64)?;
    let (_, _, all) = shared::reserve(len, geometry);
    let reserved = Reserved::new(all, page.max(BOUNDARY))?;
    // Huge pages are taken now: without POPULATE a missing page would be a SIGBUS in the data path instead of an error here.
    let populate = if flags.contains(MemfdFlags::HUGETLB) { MapFlags::POPULATE } else { MapFlags::empty() };
    // SAFETY: replaces the first `len` bytes of the mapping just made, which nothing refers to yet.
    match unsafe { map_at(reserved.base.as_ptr().cast(), len, populate, &fd) } {
        Ok(()) => Ok((fd, reserved)),
        Err(NotMapped { error, is_hole }) => {
            if is_hole {
                // Perhaps another thread's by now.
                std::mem::forget(reserved);
            }
            Err(error)
        }
    }
}

/// Why a file was not mapped at its addresses.
#[derive(Debug)]
pub(crate) struct NotMapped {
    pub error: std::io::Error,
    /// Nothing of ours is at these addresses any more: they must neither be used nor unmapped.
    pub is_hole: bool,
}

/// Maps a file of memory at addresses that are reserved.
///
/// At a fixed address the kernel takes away what is there before it looks whether there are pages enough. Into the hole that a failure leaves
/// another thread's memory may come to lie, which is unmapped or mapped over with what follows. So the file takes its pages at an
/// address of the kernel's choice first; then there is nothing left that fails, but for the kernel's own memory.
///
/// # Safety
/// The `len` bytes at `at` are a mapping of the caller's, and nobody uses them meanwhile.
pub(crate) unsafe fn map_at(at: *mut c_void, len: usize, populate: MapFlags, fd: &OwnedFd) -> Result<(), NotMapped> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | populate);
    let failed = |is_hole| move |error: rustix::io::Errno| NotMapped { error: error.into(), is_hole };
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory; it is unmapped with its own length.
    unsafe {
        let trial = mmap(std::ptr::null_mut(), len, protection, flags, fd, 0).map_err(failed(false))?;
        munmap(trial, len).map_err(failed(false))?;
    }
    // SAFETY: the caller's.
    unsafe { mmap(at, len, protection, flags | MapFlags::FIXED, fd, 0) }.map(drop).map_err(failed(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_buffers_are_as_many_as_asked_and_cross_no_large_page() {
        for (count, data) in [(256, 256), (16_384, 2048), (1000, 9216), (4096, 16384)] {
            let region = Region::new(&RegionConfig {
                buffers_per_numa: count,
                data_size: data,
                page_size: PageSize::Kb4,
                ..Default::default()
            })
            .unwrap();
            let usable = (0..region.capacity()).filter(|i| region.usable(*i)).count();
            assert!(usable >= count as usize, "{usable} of {count}");
            assert!(usable < count as usize + 600, "{usable} of {count}");
        }
    }

    #[test]
    fn a_file_that_has_not_enough_pages_leaves_what_was_at_its_addresses() {
        // No machine has so many large pages.
        const MUCH: usize = 1 << 40;
        let reserved = Reserved::new(MUCH, BOUNDARY).unwrap();
        let fd = memfd_create(c"much", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).unwrap();
        ftruncate(&fd, MUCH as u64).unwrap();
        // SAFETY: nobody uses the mapping that was just made.
        let failed = unsafe { map_at(reserved.base.as_ptr().cast(), MUCH, MapFlags::POPULATE, &fd) }.unwrap_err();
        assert!(!failed.is_hole, "{}", failed.error);
        // Where nothing is mapped any more, this is. An emulator that does not know the flag maps it elsewhere, if something is there.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let at: *mut c_void = reserved.base.as_ptr().cast();
        // SAFETY: it takes the place of nothing.
        let there = unsafe { mmap_anonymous(at, 4096, ProtFlags::READ, flags) };
        assert_ne!(there, Ok(at), "a hole");
    }

    #[test]
    fn memory_of_every_index_can_be_written() {
        let region = Region::new(&RegionConfig { buffers_per_numa: 300, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        for index in 0..region.capacity() {
            // SAFETY: index < capacity, and the test is the only owner.
            unsafe {
                region.buffer(index).write_bytes(0xa5, region.geometry().stride() as usize);
                *region.meta(index) = Meta::EMPTY;
            }
        }
    }

    #[test]
    fn two_nodes_share_one_region() {
        let region =
            Region::new(&RegionConfig { buffers_per_numa: 1000, numa_nodes: 2, page_size: PageSize::Kb4, ..Default::default() })
                .unwrap();
        assert_eq!(region.numa_of(region.indices_of(1).start), 1);
        assert_eq!(region.numa_of(region.indices_of(1).start - 1), 0);
        assert_eq!(region.indices_of(1).end, region.capacity());
    }

    #[test]
    fn counts_out_of_range_are_refused() {
        for count in [0, 255, (16 << 20) + 1] {
            let e = Region::new(&RegionConfig { buffers_per_numa: count, ..Default::default() }).err().map(|e| e.to_string());
            assert_eq!(e, Some(format!("buffers-per-numa {count} is out of range, expected 256 to 16777216")));
        }
    }

    #[test]
    fn pages_that_are_not_there_are_an_error_and_not_a_fault() {
        let config = RegionConfig { buffers_per_numa: 16 << 20, page_size: PageSize::Gb1, ..Default::default() };
        assert!(matches!(Region::new(&config), Err(RegionError::Memory { .. })));
    }
}
