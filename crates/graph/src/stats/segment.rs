//! The memory of the statistics segment: one sparse memfd, its header, and the epoch protocol.
//!
//! ```text
//!  0        4096                directory capacity
//!  +--------+-------------------+---------------------------------------+
//!  | header | directory vector  | counters, names, strings … (bump)     |
//!  +--------+-------------------+---------------------------------------+
//! ```
//!
//! Everything outside this file works with byte offsets into the segment. What lies in the memory is read by other
//! processes, so pointers there are addresses of this process' mapping; a reader subtracts the base in the header.
//!
//! All accesses are atomic words: a reader may look at any time, and tearing is prevented by the epoch, not by luck.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Layout version in the header: the one that all current clients demand.
const VERSION: u64 = 2;
const HEADER_VERSION: usize = 0;
const HEADER_BASE: usize = 8;
const HEADER_EPOCH: usize = 16;
const HEADER_IN_PROGRESS: usize = 24;
const HEADER_DIRECTORY: usize = 32;
/// An unused word of the header page. What would fall outside the segment lands here instead.
const SPARE_WORD: usize = 2048;
/// First byte after the header page.
const FIRST_FREE: usize = 4096;

/// A row starts on a multiple of this: two cache lines, because the prefetcher fetches them in pairs.
pub(super) const ROW_ALIGN: usize = 128;
/// Bytes in front of a vector's data. The count sits in the last 8, so that the data starts on a cache line.
pub(super) const VECTOR_HEADER: usize = 64;
/// Bytes of a directory entry.
pub(super) const ENTRY_BYTES: usize = 144;
/// Bytes of the name in a directory entry, with the closing NUL.
pub(super) const NAME_BYTES: usize = 128;
const ENTRIES_MAX: usize = 1 << 19;
const PAGE: usize = 4096;
const SIZE_MIN: usize = 1 << 20;

/// The mapped segment. Invariants: `base` is a live, page-aligned, shared, writable mapping of `len` bytes, a multiple of
/// the page size, for as long as this value lives; the file cannot shrink below it.
pub(super) struct Segment {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
    threads: AtomicUsize,
    writer: Mutex<Writer>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only accessed through atomics.
unsafe impl Send for Segment {}
// SAFETY: as above: shared access goes through atomics and the writer's mutex.
unsafe impl Sync for Segment {}

/// What only the holder of the lock may change: the allocator, and the directory.
pub(super) struct Writer {
    next: usize,
    end: usize,
    strings: [Vec<usize>; 32],
    directory: usize,
    entries_max: usize,
    entries: usize,
    free_entries: Vec<usize>,
    /// A string of no characters, to which unset names point.
    pub(super) empty: usize,
}

impl Segment {
    pub(super) fn new(size: usize) -> io::Result<Self> {
        let len = size.clamp(SIZE_MIN, isize::MAX as usize - PAGE).next_multiple_of(PAGE);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("quiver-stats", flags)?;
        ftruncate(&fd, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; `len` is not 0.
        let address = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED | MapFlags::NORESERVE, &fd, 0) }?;
        // A client gets this descriptor. It must neither write what workers count nor cut the file under their feet.
        // A kernel without these seals still works.
        let _ = fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW);
        let _ = fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE);
        let base = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let segment = Self { base, len, fd, threads: AtomicUsize::new(1), writer: Mutex::new(Writer::new(len)) };
        segment.write_header();
        Ok(segment)
    }

    fn write_header(&self) {
        let mut writer = self.lock();
        let entries_max = (self.len / 16 / ENTRY_BYTES).min(ENTRIES_MAX);
        // Neither can fail: the smallest segment has room for both.
        let directory = writer.vector(entries_max * ENTRY_BYTES).unwrap_or(FIRST_FREE);
        writer.directory = directory;
        writer.entries_max = entries_max;
        writer.empty = writer.string(self, "").unwrap_or(FIRST_FREE);
        self.count(directory).store(0, Ordering::Relaxed);
        let header = |offset, value| self.word(offset).store(value, Ordering::Relaxed);
        header(HEADER_BASE, self.address(0));
        header(HEADER_EPOCH, 1);
        header(HEADER_DIRECTORY, self.address(directory));
        self.word(HEADER_VERSION).store(VERSION, Ordering::Release);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Threads whose rows are visible.
    pub(super) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    pub(super) fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// The word at `offset`; the header's spare word if that is outside or not aligned.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        let inside = offset.is_multiple_of(8) && offset <= self.len - 8;
        let offset = if inside { offset } else { SPARE_WORD };
        // SAFETY: inside the mapping and 8-aligned by the check above (`base` is page-aligned); all accesses are atomic.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// The 32-bit word at `offset`; the header's spare word if that is outside or not aligned.
    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        let inside = offset.is_multiple_of(4) && offset <= self.len - 4;
        let offset = if inside { offset } else { SPARE_WORD };
        // SAFETY: inside the mapping and 4-aligned by the check above; all accesses are atomic.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// The element count of the vector whose data starts at `data`.
    pub(super) fn count(&self, data: usize) -> &AtomicU32 {
        self.half(data.wrapping_sub(8))
    }

    /// What a pointer to `offset` looks like in the segment.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.base.as_ptr() as u64 + offset as u64
    }

    /// The address of `bytes` bytes at `offset`, or nothing where they are not all inside the segment.
    pub(super) fn pointer(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        if end > self.len {
            return None;
        }
        // SAFETY: `offset` is inside the mapping by the check above.
        Some(unsafe { self.base.add(offset) })
    }

    /// The allocator and directory. A thread that panicked while holding the lock has not left it in a state that could
    /// harm: at worst an entry is half written, which the next change of it repairs.
    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` so that readers of the segment either see nothing of it or notice and read again. The writer's lock,
    /// which the caller must hold, keeps two changes apart.
    pub(super) fn change<R>(&self, _held: &Writer, change: impl FnOnce() -> R) -> R {
        self.word(HEADER_IN_PROGRESS).store(1, Ordering::Relaxed);
        // Whoever sees a store of the change also sees that it is in progress.
        fence(Ordering::Release);
        let result = change();
        let epoch = self.word(HEADER_EPOCH);
        epoch.store(epoch.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.word(HEADER_IN_PROGRESS).store(0, Ordering::Release);
        result
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: maps exactly what `new` mapped, and no handle outlives the segment: each holds an `Arc` of it.
        // A failure would leave the mapping in place, which harms nothing.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Writer {
    fn new(end: usize) -> Self {
        Self {
            next: FIRST_FREE,
            end,
            strings: Default::default(),
            directory: FIRST_FREE,
            entries_max: 0,
            entries: 0,
            free_entries: Vec::new(),
            empty: FIRST_FREE,
        }
    }

    /// Takes `bytes` bytes for good. They read as 0 and cost nothing until they are touched.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<usize> {
        let offset = self.next.next_multiple_of(ROW_ALIGN);
        let end = offset.checked_add(bytes)?;
        if end > self.end {
            return None;
        }
        self.next = end;
        Some(offset)
    }

    /// Room for a vector of `bytes` bytes of data; returns where the data starts.
    pub(super) fn vector(&mut self, bytes: usize) -> Option<usize> {
        Some(self.reserve(VECTOR_HEADER.checked_add(bytes)?)? + VECTOR_HEADER)
    }

    /// Writes a string vector (its count includes the NUL) into a new or reused block; returns where its data starts.
    pub(super) fn string(&mut self, segment: &Segment, text: &str) -> Option<usize> {
        let count = u32::try_from(text.len()).ok()?.checked_add(1)?;
        let class = string_class(text.len());
        let block = match self.strings.get_mut(class)?.pop() {
            Some(block) => block,
            None => self.reserve(1 << class)?,
        };
        let data = block + 8;
        // A reader that still looks at the block's former text and sees any of the new one also sees the raised epoch.
        fence(Ordering::Release);
        segment.count(data).store(count, Ordering::Relaxed);
        write_text(segment, data, (1 << class) - 8, text.as_bytes());
        Some(data)
    }

    /// Gives back the block of a string vector. Readers may still look at it until the epoch has been raised.
    pub(super) fn free_string(&mut self, segment: &Segment, data: usize) {
        if data == self.empty {
            return;
        }
        let length = segment.count(data).load(Ordering::Relaxed) as usize;
        if let Some(list) = self.strings.get_mut(string_class(length.saturating_sub(1))) {
            list.push(data - 8);
        }
    }

    /// A directory slot that nobody uses.
    pub(super) fn take_entry(&mut self) -> Option<usize> {
        if let Some(slot) = self.free_entries.pop() {
            return Some(slot);
        }
        let slot = self.entries;
        if slot >= self.entries_max {
            return None;
        }
        self.entries += 1;
        Some(slot)
    }

    pub(super) fn free_entry(&mut self, slot: usize) {
        self.free_entries.push(slot);
    }

    /// Where the entry of `slot` starts.
    pub(super) fn entry(&self, slot: usize) -> usize {
        self.directory + slot * ENTRY_BYTES
    }

    /// Makes all entries taken so far visible. To be called within [`Segment::change`].
    pub(super) fn publish_entries(&self, segment: &Segment) {
        let count = u32::try_from(self.entries).unwrap_or(u32::MAX);
        segment.count(self.directory).store(count, Ordering::Release);
    }
}

/// Blocks of strings are powers of two: this is the exponent for `length` bytes, the NUL and the count.
fn string_class(length: usize) -> usize {
    (length + 1 + 8).next_power_of_two().trailing_zeros().max(5) as usize
}

/// Writes `text` and fills the rest of `room` bytes (a multiple of 8) with NULs.
pub(super) fn write_text(segment: &Segment, offset: usize, room: usize, text: &[u8]) {
    for start in (0..room).step_by(8) {
        let mut word = [0; 8];
        let tail = text.get(start..).unwrap_or_default();
        let length = tail.len().min(8);
        word[..length].copy_from_slice(&tail[..length]);
        segment.word(offset + start).store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_outside_the_segment_reaches_the_spare_word() {
        let segment = Segment::new(0).unwrap();
        for offset in [segment.len(), segment.len() - 4, usize::MAX, 9] {
            assert!(std::ptr::eq(segment.word(offset), segment.word(SPARE_WORD)));
        }
        assert!(segment.pointer(usize::MAX, 8).is_none());
        assert!(segment.pointer(segment.len() - 8, 8).is_some());
    }

    #[test]
    fn a_freed_string_block_is_reused_by_a_string_of_its_class() {
        let segment = Segment::new(0).unwrap();
        let mut writer = segment.lock();
        let first = writer.string(&segment, "loop0").unwrap();
        writer.free_string(&segment, first);
        assert_eq!(writer.string(&segment, "GigabitEthernet0/8/0"), Some(first));
        let other = writer.string(&segment, "a name too long for a block of thirty-two");
        assert_ne!(other, Some(first));
    }

    #[test]
    fn a_full_segment_refuses_instead_of_overlapping() {
        let segment = Segment::new(SIZE_MIN).unwrap();
        let mut writer = segment.lock();
        let mut last = 0;
        while let Some(offset) = writer.reserve(10_000) {
            assert!(offset >= last && offset + 10_000 <= segment.len());
            last = offset + 10_000;
        }
        assert_eq!(writer.reserve(usize::MAX), None);
    }
}
