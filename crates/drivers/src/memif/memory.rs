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
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, fstatfs, ftruncate, memfd_create};

use super::guard::Guarded;
use super::zero_copy::Lending;
use crate::sys::Map;

/// What every ring starts with.
pub(super) const COOKIE: u32 = 0x3E3_1F20;
/// Ring flag: the receiver polls and wants no events.
pub(super) const MASK_EVENTS: u16 = 1;
/// Descriptor flag: the packet goes on in the next descriptor.
pub(super) const NEXT: u16 = 1;
/// Bytes before a ring's descriptors.
const RING_HEADER: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// Offsets are 32 bits wide, so nothing past this can be named.
pub(super) const REGION_MAX: u64 = 1 << 32;
const HUGE_PAGE: usize = 2 << 20;

/// What is longer is copied by the C library, whose wider registers then pay for the call, bytes.
const LONG: usize = 512;

/// Bytes that a ring takes.
pub(super) const fn ring_bytes(log2_size: u8) -> usize {
    RING_HEADER + (DESCRIPTOR << log2_size)
}

#[derive(Debug)]
enum Mapping {
    /// Our own file, sealed: it cannot shrink.
    Own { _map: Map },
    /// A peer's file.
    Peer(Guarded),
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
    fd: OwnedFd,
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
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Map::shared(&fd, len)?;
        Ok(Self { base: map.base(), len, mapping: Mapping::Own { _map: map }, fd })
    }

    /// Packet buffers to be shown to a peer.
    pub(super) fn of_pool(lending: Lending) -> io::Result<Self> {
        let pool = &lending.pool;
        let base = NonNull::new(lending.buffers.buffer_address(pool.first())).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len: pool.bytes(), fd: pool.fd().try_clone_to_owned()?, mapping: Mapping::Pool { _lending: lending } })
    }

    /// A peer's memory.
    pub(super) fn of_peer(fd: OwnedFd, size: u64) -> Result<Self, &'static str> {
        // Memory files only: a page fault in a file of a user-space file system would wait for the peer.
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let kind = fstatfs(&fd).map_err(|_| "region is not a file")?.f_type as u64 & 0xffff_ffff;
        if kind != TMPFS && kind != HUGETLBFS {
            return Err("region is not a memory file");
        }
        let stat = fstat(&fd).map_err(|_| "region is not a file")?;
        if size == 0 || size > REGION_MAX || size > u64::try_from(stat.st_size).unwrap_or(0) {
            return Err("region size is not that of its file");
        }
        let map = Guarded::map(&fd, size as usize).map_err(|_| "region cannot be mapped")?;
        Ok(Self { base: map.base(), len: size as usize, mapping: Mapping::Peer(map), fd })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether the peer has taken the memory away.
    pub(super) fn is_lost(&self) -> bool {
        matches!(&self.mapping, Mapping::Peer(guarded) if guarded.is_lost())
    }

    /// First byte; `at` must lie inside for the result to be used.
    #[inline(always)]
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(at)
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
    event: Option<Arc<OwnedFd>>,
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
        event: Option<Arc<OwnedFd>>,
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

    /// The descriptor by which the receiver is woken.
    pub(super) fn event(&self) -> Option<&OwnedFd> {
        self.event.as_deref()
    }

    /// Wakes the receiver, if it asks for that.
    #[inline(always)]
    pub(super) fn notify(&self) {
        // The index was stored before; without the fence the load of the flags could pass it and the wake-up be lost.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.flags().load(Ordering::Relaxed) & MASK_EVENTS == 0 {
            self.notify_now();
        }
    }

    #[cold]
    fn notify_now(&self) {
        let Some(fd) = &self.event else { return };
        // The descriptor is the peer's: it could have made it blocking, and full. So we look first.
        let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let one = 1_u64;
        // SAFETY: one live pollfd, then eight live bytes; results are not needed: a full event counter wakes as well.
        unsafe {
            if libc::poll(&raw mut entry, 1, 0) == 1 && entry.revents & libc::POLLOUT != 0 {
                let _ = libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8);
            }
        }
    }
}

/// Takes a peer's descriptor as the event of a ring: it must be an eventfd, and is made non-blocking.
pub(super) fn accept_event(fd: OwnedFd) -> Result<Arc<OwnedFd>, &'static str> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(|_| "event descriptor cannot be checked")?;
    if name.as_os_str() != "anon_inode:[eventfd]" {
        return Err("event descriptor is not an eventfd");
    }
    let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_| "event descriptor cannot be checked")?;
    rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK).map_err(|_| "event descriptor cannot be checked")?;
    Ok(Arc::new(fd))
}

/// A new eventfd.
pub(super) fn new_event() -> io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Copies `len` bytes exactly, in pieces of 16 bytes: what the compiler makes of a `memcpy` of unknown length is a call.
/// Nothing past `len` is written, so that a peer never sees bytes of other packets, and nothing past it is read.
///
/// # Safety
/// Both ranges are mapped for `len` bytes and do not overlap. One of them may be changed by another process meanwhile: then
/// the bytes copied are any mixture.
#[inline(always)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    type Piece = [u64; 2];
    #[inline(always)]
    unsafe fn piece(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller of `copy` vouches for the range, `copy` for `at`.
        unsafe { to.add(at).cast::<Piece>().write_unaligned(from.add(at).cast::<Piece>().read_unaligned()) }
    }
    // SAFETY: every piece lies below `len` in both ranges.
    unsafe {
        if len > LONG {
            std::ptr::copy_nonoverlapping(from, to, len);
        } else if len > 64 {
            let mut at = 0;
            while at + 64 <= len {
                for k in [0, 16, 32, 48] {
                    piece(to, from, at + k);
                }
                at += 64;
            }
            if at < len {
                for k in [64, 48, 32, 16] {
                    piece(to, from, len - k);
                }
            }
        } else if len >= 32 {
            for at in [0, 16, len - 32, len - 16] {
                piece(to, from, at);
            }
        } else if len >= 16 {
            piece(to, from, 0);
            piece(to, from, len - 16);
        } else {
            for at in 0..len {
                to.add(at).write(from.add(at).read());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn copies_are_exact_at_every_length() {
        for len in (0..300).chain([1500, 2047, 2048]) {
            let from: Vec<u8> = (0..len + 64).map(|i| (i * 7 + 1) as u8).collect();
            let mut to = vec![0xa5; len + 64];
            // SAFETY: both vectors are longer than `len`.
            unsafe { copy(to.as_mut_ptr(), from.as_ptr(), len) };
            assert_eq!(to[..len], from[..len], "{len}");
            assert!(to[len..].iter().all(|b| *b == 0xa5), "{len}: bytes past the end were written");
        }
    }

    #[test]
    fn own_memory_cannot_be_shrunk_by_the_peer() {
        for len in [1, 4096, 3 << 20] {
            let region = Region::create(len).unwrap();
            assert!(region.len() >= len);
            assert!(ftruncate(region.fd(), 0).is_err());
        }
    }

    #[test]
    fn regions_are_memory_files_of_at_least_their_size() {
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(Region::of_peer(file.into(), 64).err(), Some("region is not a memory file"));
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(Region::of_peer(pipe, 64).is_err());
        let memory = || {
            let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&fd, 8192).unwrap();
            fd
        };
        for size in [0, 8193, u64::MAX, REGION_MAX + 1] {
            assert_eq!(Region::of_peer(memory(), size).err(), Some("region size is not that of its file"), "{size}");
        }
        assert_eq!(Region::of_peer(memory(), 8192).unwrap().len(), 8192);
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

    #[test]
    fn only_eventfds_are_events() {
        assert!(accept_event(new_event().unwrap()).is_ok());
        let (pipe, _) = rustix::pipe::pipe().unwrap();
        assert!(accept_event(pipe).is_err());
    }
}
