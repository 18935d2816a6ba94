//! Memory that two processes share: regions, and rings in them.
//!
//! ```text
//!   ring:  0 cookie u32 │ 4 flags u16 │ 6 head u16 │ … │ 64 tail u16 │ … │ 128 descriptors, 16 bytes each
//!   descriptor:  flags u16 │ region u16 │ length u32 ║ offset u32 │ metadata u32
//! ```
//!
//! The other side can write every byte here at any moment. So each word is loaded once, atomically, into a local, checked
//! against what this side knows by itself (sizes of its own mappings, its own indices), and only then used; packet bytes are
//! only copied, never looked at in place.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};

use super::MemifError;
use super::background::Background;
use super::event::Event;
use super::guard::{self, Guarded};
use super::zero_copy::Lending;
use crate::sys::Map;

/// What every ring starts with.
pub(super) const COOKIE: u32 = 0x3E3_1F20;
/// Ring flag: the receiver polls and wants no events.
pub(super) const MASK_EVENTS: u16 = 1;
/// Descriptor flag: the packet goes on in the next descriptor.
pub(super) const NEXT: u16 = 1;
/// Why a region is refused.
pub(super) const NOT_MEMORY: &str = "region is not a memory file";
/// The reason for memory from which the peer could take pages.
pub(super) const UNSEALED: &str = "region cannot be sealed: MFD_ALLOW_SEALING is missing, or `unsealed' at the socket";
/// The reason for memory that nobody can map for writing any more.
pub(super) const SEALED_BEFORE: &str =
    "region's file was sealed when it was used before: no zero-copy, or `unsealed' at the socket";
/// Bytes before a ring's descriptors.
const RING_HEADER: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// Offsets are 32 bits wide, so nothing past this can be named.
pub(super) const REGION_MAX: u64 = 1 << 32;
/// All regions of a connection, where the administrator sets no limit.
const ALL_REGIONS_MAX: u64 = 4 * REGION_MAX;
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that a ring takes.
pub(super) const fn ring_bytes(log2_size: u8) -> usize {
    RING_HEADER + (DESCRIPTOR << log2_size)
}

#[derive(Debug)]
enum Mapping {
    /// Our own file, sealed: it cannot shrink.
    Own { _map: Map },
    /// A peer's file; and who unmaps and closes it: that ends the file, and a large one takes its time.
    Peer(Option<(Guarded, OwnedFd)>, Background),
    /// Packet buffers that peers may see; the pool's mapping.
    Pool { _lending: Lending },
}

/// A piece of shared memory.
///
/// Invariant S1: `base..base+len` is mapped readable and writable for as long as the value lives.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    mapping: Mapping,
    /// Our own.
    fd: Option<OwnedFd>,
    huge: bool,
}

/// What peers of a socket may have mapped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all regions of a connection that are not on huge pages: each page of them that is used, also one that the peer
    /// has never touched, counts as memory of the router.
    pub memory: u64,
    /// Regions of a connection.
    pub regions: usize,
    /// Memory that cannot be [sealed](Region::seal) too: for peers that are trusted.
    pub unsealed: bool,
}

impl Limits {
    /// What DPDK, VPP and our own usual rings need, several times over: a ring of 16,384 buffers of 2 kB is 35 MB.
    pub const DEFAULT: Self = Self { memory: 256 << 20, regions: 16, unsealed: false };
    /// Smallest of both that makes a connection.
    pub const LEAST: Self = Self { memory: 1 << 16, regions: 1, unsealed: false };
    /// Largest of both.
    pub const MOST: Self = Self { memory: ALL_REGIONS_MAX, regions: super::REGIONS_MAX, unsealed: true };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// # Errors
    /// Limits under which nobody could connect, or that are none.
    pub(super) fn check(&self) -> Result<(), MemifError> {
        if !(Self::LEAST.memory..=Self::MOST.memory).contains(&self.memory) {
            return Err(MemifError::Range { key: "max-memory", value: self.memory, allowed: "64K to 16G" });
        }
        if !(Self::LEAST.regions..=Self::MOST.regions).contains(&self.regions) {
            return Err(MemifError::Range { key: "max-regions", value: self.regions as u64, allowed: "1 to 256" });
        }
        Ok(())
    }

    /// The same where so many interfaces may each have a peer: none of them takes mappings that another one needs.
    pub(super) fn shared_by(self, interfaces: usize) -> Self {
        Self { regions: self.regions.min(guard::SLOTS / interfaces.max(1)).max(1), ..self }
    }

    /// Whether one more region of `size` bytes may join these.
    pub(super) fn admit(&self, regions: &[Region], new: &Region) -> Result<(), String> {
        if regions.len() >= self.regions {
            return Err(format!("more than {} regions (max-regions)", self.regions));
        }
        let sum = |huge: bool| regions.iter().chain([new]).filter(|r| r.huge == huge).map(|r| r.len as u64).sum::<u64>();
        if sum(false) > self.memory {
            return Err(format!("regions of {} bytes, at most {} are allowed (max-memory)", sum(false), self.memory));
        }
        if sum(true) > ALL_REGIONS_MAX {
            return Err(format!("regions of {} bytes on huge pages, at most {ALL_REGIONS_MAX} are allowed", sum(true)));
        }
        Ok(())
    }
}

// SAFETY: `base` points into the mapping, which is Send; access to the bytes is by atomics and raw copies only.
unsafe impl Send for Region {}
// SAFETY: as above: no reference to the bytes is ever made but to atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of our own to be shown to a peer: on huge pages where there are some to spare, all pages present, sealed.
    pub(super) fn create(len: usize) -> io::Result<Self> {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let on_huge = (len >= HUGE_PAGE).then(|| Self::create_on(len.next_multiple_of(HUGE_PAGE), huge));
        match on_huge {
            Some(Ok(region)) => Ok(region),
            _ => Self::create_on(len.next_multiple_of(4096), MemfdFlags::empty()),
        }
    }

    fn create_on(len: usize, flags: MemfdFlags) -> io::Result<Self> {
        let fd = memfd_create(c"quiver-memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags)?;
        ftruncate(&fd, len as u64)?;
        // No more yet: the peer has to map it.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = Map::shared(&fd, len)?;
        let huge = flags.contains(MemfdFlags::HUGETLB);
        Ok(Self { base: map.base(), len, mapping: Mapping::Own { _map: map }, fd: Some(fd), huge })
    }

    /// Memory of our own that another process has made and shown to a peer.
    pub(super) fn own_again(fd: OwnedFd, size: u64) -> Result<Self, &'static str> {
        let seals = fcntl_get_seals(&fd).map_err(|_| NOT_MEMORY)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err("memory of our own can shrink");
        }
        let (huge, page) = pages(&fd)?;
        check_size(&fd, size, page)?;
        let map = Map::shared(&fd, size as usize).map_err(|_| "region cannot be mapped")?;
        Ok(Self { base: map.base(), len: size as usize, mapping: Mapping::Own { _map: map }, fd: Some(fd), huge })
    }

    /// Whether another process can map it for writing, too.
    pub(super) fn can_be_mapped_again(&self) -> bool {
        let sealed = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
        let is_file = !matches!(self.mapping, Mapping::Pool { .. });
        is_file && self.fd().is_some_and(|fd| fcntl_get_seals(fd).is_ok_and(|seals| !seals.intersects(sealed)))
    }

    /// Packet buffers to be shown to a peer.
    pub(super) fn of_pool(lending: Lending) -> io::Result<Self> {
        let pool = &lending.pool;
        let base = NonNull::new(lending.buffers.buffer_address(pool.first())).ok_or(io::ErrorKind::OutOfMemory)?;
        let fd = Some(pool.fd().try_clone_to_owned()?);
        Ok(Self { base, len: pool.bytes(), fd, mapping: Mapping::Pool { _lending: lending }, huge: false })
    }

    /// A peer's memory. What is refused is closed by `background`.
    pub(super) fn of_peer(fd: OwnedFd, size: u64, background: &Background) -> Result<Self, &'static str> {
        match Self::map_peer(&fd, size) {
            Ok((map, huge)) => {
                let (base, len) = (map.base(), size as usize);
                Ok(Self { base, len, mapping: Mapping::Peer(Some((map, fd)), background.clone()), fd: None, huge })
            }
            Err(reason) => {
                background.discard(fd);
                Err(reason)
            }
        }
    }

    fn map_peer(fd: &OwnedFd, size: u64) -> Result<(Guarded, bool), &'static str> {
        // Memory files only: a page fault in a file of a user-space file system would wait for the peer, and so would a question
        // about it. This one question is answered by the kernel itself, and only files of tmpfs and hugetlbfs have an answer.
        fcntl_get_seals(fd).map_err(|_| NOT_MEMORY)?;
        let (huge, page) = pages(fd)?;
        check_size(fd, size, page)?;
        let reason = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM) => SEALED_BEFORE,
            _ => "region cannot be mapped",
        };
        Ok((Guarded::map(fd, size as usize, page as usize).map_err(reason)?, huge))
    }

    /// Sees to it that nobody takes pages out of the file any more. Where somebody does, the kernel has a thread that touches such
    /// a page wait until that is done: for seconds, if the other one gets no processor meanwhile.
    ///
    /// To be called when both ends have mapped it, since whoever maps it after this cannot write; and by a thread that may wait for
    /// the peer, whom the kernel lets hold the file's lock.
    ///
    /// # Errors
    /// The file is not to be sealed. Files on huge pages need not be: the kernel takes their pages out one by one, and a thread waits for no
    /// more than its own.
    pub(super) fn seal(&self) -> Result<(), &'static str> {
        let (fd, more) = match &self.mapping {
            Mapping::Peer(Some((_, fd)), _) => (fd, SealFlags::empty()),
            Mapping::Own { .. } => (self.fd.as_ref().ok_or(UNSEALED)?, SealFlags::SEAL),
            // Whoever is shown packet buffers is trusted with them.
            Mapping::Peer(None, _) | Mapping::Pool { .. } => return Ok(()),
        };
        let wanted = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
        match fcntl_add_seals(fd, wanted | more) {
            // A kernel before 5.1 knows of no such seal.
            Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
            Err(_) if self.huge => Ok(()),
            // Somebody was here before.
            Err(_) if fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(wanted)) => Ok(()),
            Err(_) => Err(UNSEALED),
        }
    }

    /// Has the kernel bring in the pages of `bytes` bytes from `offset` on, which lie inside: what is not to be had is an error
    /// here instead of a signal later.
    pub(super) fn populate(&self, offset: usize, bytes: usize) -> Result<(), &'static str> {
        let page = if self.huge { HUGE_PAGE } else { 4096 };
        let (start, end) = (offset / page * page, (offset + bytes).next_multiple_of(page).min(self.len.next_multiple_of(4096)));
        // SAFETY: inside the mapping (S1), of whole pages; it changes no byte of it.
        let result = unsafe { libc::madvise(self.address(start).cast(), end - start, libc::MADV_POPULATE_WRITE) };
        match result {
            0 => Ok(()),
            // A kernel before 5.14: the guard has to do.
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) => Ok(()),
            _ => Err("memory of the ring is not there"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The file, where it is there to be shown.
    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        match &self.mapping {
            Mapping::Peer(Some((_, fd)), _) => Some(fd),
            _ => self.fd.as_ref(),
        }
    }

    /// Whether the peer has taken the memory away.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.mapping, Mapping::Peer(Some((guarded, _)), _) if guarded.is_lost())
    }

    /// First byte; `at` must lie inside for the result to be used.
    #[inline(always)]
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(at)
    }
}

/// Whether a memory file is on huge pages, and what its mappings are whole multiples of.
fn pages(fd: &OwnedFd) -> Result<(bool, u64), &'static str> {
    const HUGETLBFS: u64 = 0x9584_58f6;
    let system = fstatfs(fd).map_err(|_| NOT_MEMORY)?;
    let huge = system.f_type as u64 & 0xffff_ffff == HUGETLBFS;
    Ok((huge, if huge { system.f_bsize as u64 } else { 1 }))
}

fn check_size(fd: &OwnedFd, size: u64, page: u64) -> Result<(), &'static str> {
    let stat = fstat(fd).map_err(|_| NOT_MEMORY)?;
    if size == 0 || size > REGION_MAX || size > u64::try_from(stat.st_size).unwrap_or(0) {
        return Err("region size is not that of its file");
    }
    if size.is_multiple_of(page) { Ok(()) } else { Err("region is not whole huge pages") }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Mapping::Peer(memory, background) = &mut self.mapping
            && let Some(memory) = memory.take()
        {
            background.discard(memory);
        }
    }
}

/// A descriptor, loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub flags: u16,
    pub region: u16,
    pub length: u32,
    pub offset: u32,
}

impl Descriptor {
    #[inline(always)]
    pub(super) fn of(first: u64, second: u64) -> Self {
        Self { flags: first as u16, region: (first >> 16) as u16, length: (first >> 32) as u32, offset: second as u32 }
    }

    /// The first word: flags, region, length.
    #[inline(always)]
    pub(super) fn first_word(flags: u16, region: u16, length: u32) -> u64 {
        u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32
    }
}

/// Regions of one connection.
pub(super) type Regions = Arc<[Region]>;

/// A ring in a region.
///
/// Invariant S2: `base..base+ring_bytes` lies inside a region of `regions`, 8-byte aligned.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    mask: u16,
    log2_size: u8,
    regions: Regions,
    event: Option<Arc<Event>>,
    /// Where it is, for display.
    place: (u16, u32),
}

// SAFETY: as for Region.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring at `offset` of region number `region`.
    pub(super) fn new(
        regions: &Regions,
        region: u16,
        offset: u32,
        log2_size: u8,
        event: Option<Arc<Event>>,
    ) -> Result<Self, &'static str> {
        let home = regions.get(usize::from(region)).ok_or("ring in an unknown region")?;
        if log2_size > super::LOG2_RING_MAX {
            return Err("ring is too large");
        }
        let end = u64::from(offset) + ring_bytes(log2_size) as u64;
        if end > home.len() as u64 {
            return Err("ring does not fit its region");
        }
        if !offset.is_multiple_of(8) {
            return Err("ring is not aligned");
        }
        let base = NonNull::new(home.address(offset as usize)).ok_or("ring at address zero")?;
        if matches!(home.mapping, Mapping::Peer(..)) {
            home.populate(offset as usize, ring_bytes(log2_size))?;
        }
        let mask = ((1_u32 << log2_size) - 1) as u16;
        Ok(Self { base, mask, log2_size, regions: regions.clone(), event, place: (region, offset) })
    }

    #[inline(always)]
    fn half(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at + 2 <= RING_HEADER);
        // SAFETY: S2: inside the mapping and aligned; every access to it is atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<AtomicU16>() }
    }

    /// The ring's mark.
    pub(super) fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as in `half`.
        unsafe { &*self.base.as_ptr().cast::<AtomicU32>() }
    }

    #[inline(always)]
    pub(super) fn flags(&self) -> &AtomicU16 {
        self.half(4)
    }

    /// Where the client is.
    #[inline(always)]
    pub(super) fn head(&self) -> &AtomicU16 {
        self.half(6)
    }

    /// Where the server is.
    #[inline(always)]
    pub(super) fn tail(&self) -> &AtomicU16 {
        self.half(64)
    }

    #[inline(always)]
    pub(super) fn size(&self) -> u16 {
        // 2^14 at most.
        self.mask + 1
    }

    pub(super) fn log2_size(&self) -> u8 {
        self.log2_size
    }

    /// The regions of its connection.
    pub(super) fn regions(&self) -> &Regions {
        &self.regions
    }

    pub(super) fn place(&self) -> (u16, u32) {
        self.place
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u16 {
        self.mask
    }

    #[inline(always)]
    fn words(&self, slot: u16) -> &[AtomicU64; 2] {
        let at = RING_HEADER + usize::from(slot & self.mask) * DESCRIPTOR;
        // SAFETY: S2 and the mask: inside the mapping, 8-byte aligned; every access is atomic.
        unsafe { &*self.base.as_ptr().add(at).cast::<[AtomicU64; 2]>() }
    }

    /// Loads a descriptor; `slot` wraps.
    #[inline(always)]
    pub(super) fn descriptor(&self, slot: u16) -> Descriptor {
        let words = self.words(slot);
        Descriptor::of(words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed))
    }

    /// Stores flags, region and length of a descriptor.
    #[inline(always)]
    pub(super) fn set_first(&self, slot: u16, flags: u16, region: u16, length: u32) {
        self.words(slot)[0].store(Descriptor::first_word(flags, region, length), Ordering::Relaxed);
    }

    /// Stores the offset of a descriptor.
    pub(super) fn set_offset(&self, slot: u16, offset: u32) {
        self.words(slot)[1].store(offset.into(), Ordering::Relaxed);
    }

    /// Where a descriptor lies, for prefetching.
    #[inline(always)]
    pub(super) fn descriptor_address(&self, slot: u16) -> *const u8 {
        self.words(slot).as_ptr().cast()
    }

    /// Where a peer's descriptor points, if that lies inside its region.
    #[inline(always)]
    pub(super) fn resolve(&self, d: Descriptor) -> Option<*mut u8> {
        let region = self.regions.get(usize::from(d.region))?;
        let end = u64::from(d.offset) + u64::from(d.length);
        (end <= region.len() as u64).then(|| region.address(d.offset as usize))
    }

    /// The event by which the receiver is woken.
    pub(super) fn event(&self) -> Option<&Arc<Event>> {
        self.event.as_ref()
    }

    /// Whether the receiver asks to be woken for what was stored before: by [`Event::signal`], when no lock is held.
    #[inline(always)]
    pub(super) fn wants_event(&self) -> bool {
        // The index was stored before; without the fence the load of the flags could pass it and the wake-up be lost.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.flags().load(Ordering::Relaxed) & MASK_EVENTS == 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn own_memory_cannot_be_shrunk_by_the_peer() {
        for len in [1, 4096, 3 << 20] {
            let region = Region::create(len).unwrap();
            assert!(region.len() >= len);
            assert!(ftruncate(region.fd().unwrap(), 0).is_err());
        }
    }

    fn background() -> Background {
        Background::new(Arc::new(crate::memif::event::new_event().unwrap()))
    }

    #[test]
    fn regions_are_memory_files_of_at_least_their_size() {
        let background = background();
        let of_peer = |fd: OwnedFd, size| Region::of_peer(fd, size, &background);
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(of_peer(file.into(), 64).err(), Some(NOT_MEMORY));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert_eq!(of_peer(pipe, 64).err(), Some(NOT_MEMORY));
        let memory = || {
            let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&fd, 8192).unwrap();
            fd
        };
        for size in [0, 8193, u64::MAX, REGION_MAX + 1] {
            assert_eq!(of_peer(memory(), size).err(), Some("region size is not that of its file"), "{size}");
        }
        assert_eq!(of_peer(memory(), 8192).unwrap().len(), 8192);
        let huge = || {
            let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).unwrap();
            ftruncate(&fd, HUGE_PAGE as u64).unwrap();
            fd
        };
        for size in [4096, 8192, 1_000_000, HUGE_PAGE as u64 - 1] {
            assert_eq!(of_peer(huge(), size).err(), Some("region is not whole huge pages"), "{size}");
        }
        assert!(of_peer(huge(), HUGE_PAGE as u64).unwrap().huge);
    }

    #[test]
    fn a_ring_in_memory_that_is_not_there_is_refused() {
        let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 8192).unwrap();
        let regions: Regions = vec![Region::of_peer(fd.try_clone().unwrap(), 8192, &background()).unwrap()].into();
        assert!(Ring::new(&regions, 0, 0, 4, None).is_ok());
        ftruncate(&fd, 4096).unwrap();
        assert!(Ring::new(&regions, 0, 0, 4, None).is_ok());
        assert_eq!(Ring::new(&regions, 0, 4096, 4, None).err(), Some("memory of the ring is not there"));
    }

    #[test]
    fn a_connection_has_so_much_memory_and_so_many_regions() {
        let background = background();
        let region = |len: usize| {
            let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&fd, len as u64).unwrap();
            Region::of_peer(fd, len as u64, &background).unwrap()
        };
        let limits = Limits { memory: 1 << 20, regions: 3, unsealed: false };
        let mut there = Vec::new();
        for _ in 0..2 {
            assert_eq!(limits.admit(&there, &region(1 << 18)), Ok(()));
            there.push(region(1 << 18));
        }
        assert_eq!(limits.admit(&there, &region(1 << 19)), Ok(()));
        let error = limits.admit(&there, &region((1 << 19) + 1)).unwrap_err();
        assert_eq!(error, "regions of 1048577 bytes, at most 1048576 are allowed (max-memory)");
        there.push(region(64));
        assert_eq!(limits.admit(&there, &region(64)), Err("more than 3 regions (max-regions)".into()));
    }

    #[test]
    fn rings_lie_inside_their_region() {
        let regions: Regions = vec![Region::create(ring_bytes(4)).unwrap()].into();
        let len = regions[0].len() as u32;
        let last = len - ring_bytes(4) as u32;
        for (region, offset, log2, fits) in [
            (0, 0, 4, true),
            (0, last, 4, true),
            (0, last + 8, 4, false),
            (0, 4, 4, false),
            (1, 0, 4, false),
            (0, 0, 15, false),
            (0, 0, 255, false),
            (0, !7, 4, false),
        ] {
            assert_eq!(Ring::new(&regions, region, offset, log2, None).is_ok(), fits, "{region} {offset} {log2}");
        }
    }

    #[test]
    fn descriptors_that_point_outside_are_refused() {
        let regions: Regions = vec![Region::create(8192).unwrap()].into();
        let ring = Ring::new(&regions, 0, 0, 4, None).unwrap();
        let d = |region, offset, length| ring.resolve(Descriptor { flags: 0, region, length, offset }).is_some();
        assert!(d(0, 0, 8192) && d(0, 8192, 0) && d(0, 8000, 192));
        assert!(!d(0, 8000, 193) && !d(0, u32::MAX, u32::MAX) && !d(1, 0, 1) && !d(0, 0, u32::MAX));
    }
}
