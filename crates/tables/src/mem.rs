//! Memory that grows without moving, and that may run out without taking the process along.
//!
//! ```text
//!   Pages::reserve(r)          commit(c)
//!   |<------------------------ r: address space, readable, reads as zeros --------------------->|
//!   |<---- c: writable, counted in the Budget ---->|
//!   |<-- touched: real memory -->|
//! ```
//!
//! Readers hold the base address and may load from the whole reservation at any time: what is not committed reads as
//! zero. Only the committed part is writable; committing is where a limit is noticed (the structure's own [`Budget`],
//! `RLIMIT_DATA`, strict overcommit, or a machine with hardly any memory left) and reported as [`OutOfMemory`]. Touching
//! committed memory is not checked again: another process can still take it in between, and the kernel then chooses.

use crate::error::OutOfMemory;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

mod array;
mod budget;
pub mod numa;
mod podvec;
pub use array::AtomicRecord;
pub(crate) use array::SharedArray;
pub use budget::Budget;
pub use podvec::PodVec;

/// The huge page size that both architectures have.
pub const HUGE_PAGE: usize = 2 << 20;
/// Small reservations are committed in these steps (a multiple of every base page size in use, 64 kB included).
const STEP: usize = 64 << 10;

/// What kind of pages a reservation asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageKind {
    /// The machine's base pages: for small or sparse structures.
    #[default]
    Base,
    /// Transparent huge pages (`MADV_HUGEPAGE`), which the kernel gives where it can.
    Transparent,
    /// Reserved huge pages (`MAP_HUGETLB`) if enough are free for the whole reservation, else [`Transparent`](Self::Transparent).
    Reserved,
}

impl PageKind {
    /// For a table of so many bytes that is met at random: huge pages spare a large one a table walk for each packet.
    pub fn for_table(bytes: u64) -> Self {
        if bytes >= HUGE_PAGE as u64 { Self::Transparent } else { Self::Base }
    }
}

/// An anonymous private mapping: reserved whole, committed from the front. Unmapped on drop.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    reserved: usize,
    committed: AtomicUsize,
    /// Held while more is committed.
    growth: Mutex<()>,
    kind: PageKind,
    budget: Budget,
}

// SAFETY: the mapping belongs to the value and the address is stable; access to its contents is what the wrappers
// around it (which state their own reasons) order.
unsafe impl Send for Pages {}
// SAFETY: as above; `commit` is the only method that changes state, one thread at a time and through an atomic.
unsafe impl Sync for Pages {}

impl Pages {
    /// Reserves address space for `bytes` bytes (at least one page). Nothing is committed, unless huge pages were
    /// reserved: those are taken whole.
    pub fn reserve(bytes: usize, kind: PageKind, budget: &Budget) -> Result<Pages, OutOfMemory> {
        match kind {
            PageKind::Base => Self::map(round_up(bytes.max(1), STEP)?, STEP, kind, budget),
            PageKind::Transparent => Self::map(round_up(bytes.max(1), HUGE_PAGE)?, HUGE_PAGE, kind, budget),
            PageKind::Reserved => {
                let size = round_up(bytes.max(1), HUGE_PAGE)?;
                match Self::map_hugetlb(size, budget) {
                    Some(pages) => Ok(pages),
                    None => Self::map(size, HUGE_PAGE, PageKind::Transparent, budget),
                }
            }
        }
    }

    fn map(size: usize, align: usize, kind: PageKind, budget: &Budget) -> Result<Pages, OutOfMemory> {
        let span = size.checked_add(align).ok_or(OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let raw = unsafe { libc::mmap(null_mut(), span, libc::PROT_READ, flags, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(OutOfMemory);
        }
        let skip = raw.align_offset(align);
        let base = raw.wrapping_byte_add(skip);
        // Give back what alignment did not need. `skip <= align`, as mappings start on a page.
        for (at, len) in [(raw, skip), (base.wrapping_byte_add(size), align - skip)] {
            if len > 0 {
                // SAFETY: [at, at + len) is page-aligned and lies inside the span mapped above, outside [base, base + size).
                unsafe { libc::munmap(at, len) };
            }
        }
        if kind == PageKind::Transparent {
            // SAFETY: advice about our own mapping; a kernel without huge pages refuses, which changes nothing.
            unsafe { libc::madvise(base, size, libc::MADV_HUGEPAGE) };
        }
        let base = NonNull::new(base.cast()).ok_or(OutOfMemory)?;
        Ok(Pages { base, reserved: size, committed: AtomicUsize::new(0), growth: Mutex::default(), kind, budget: budget.clone() })
    }

    /// Reserved huge pages are mapped writable and without `MAP_NORESERVE`: the kernel then sets them aside now, and a
    /// later touch cannot raise SIGBUS.
    fn map_hugetlb(size: usize, budget: &Budget) -> Option<Pages> {
        if free_huge_pages() < size / HUGE_PAGE {
            return None;
        }
        budget.take(size).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let raw = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        match NonNull::new(raw.cast()) {
            Some(base) if raw != libc::MAP_FAILED => Some(Pages {
                base,
                reserved: size,
                committed: AtomicUsize::new(size),
                growth: Mutex::default(),
                kind: PageKind::Reserved,
                budget: budget.clone(),
            }),
            _ => {
                budget.give(size);
                None
            }
        }
    }

    /// Makes the first `bytes` bytes writable. Where they are already, nothing is waited for.
    #[inline]
    pub fn commit(&self, bytes: usize) -> Result<(), OutOfMemory> {
        if bytes <= self.committed.load(Ordering::Acquire) { Ok(()) } else { self.commit_more(bytes) }
    }

    #[inline(never)]
    fn commit_more(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let have = self.committed.load(Ordering::Relaxed);
        if bytes <= have {
            return Ok(());
        }
        if bytes > self.reserved {
            return Err(OutOfMemory);
        }
        let step = if self.kind == PageKind::Base { STEP } else { HUGE_PAGE };
        let want = round_up(bytes, step)?.min(self.reserved);
        let more = want - have;
        self.budget.take(more)?;
        // The machine is asked at every 2 MB: reading /proc costs about as much as clearing that much memory.
        let short = have / HUGE_PAGE != want / HUGE_PAGE && !machine_has(more);
        let at = self.base.as_ptr().wrapping_add(have).cast();
        // SAFETY: [base + have, base + want) lies in our mapping; write access is only added.
        if short || unsafe { libc::mprotect(at, more, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            self.budget.give(more);
            return Err(OutOfMemory);
        }
        self.committed.store(want, Ordering::Release);
        Ok(())
    }

    /// Asks the kernel to take the pages from a memory node, and from others where that one has none left; for those that
    /// nobody has touched yet.
    ///
    /// # Errors
    /// As [`numa::place`]; nothing has changed then.
    pub fn place(&self, node: u32) -> std::io::Result<()> {
        numa::place(self.base, self.reserved, node, numa::Policy::Prefer)
    }

    /// Commits bytes `from..to` and gets real memory for them, so that a later write does not wait for the kernel. Contents stay.
    /// `false`: there is not enough memory, or the kernel is older than Linux 5.14.
    pub fn populate(&self, from: usize, to: usize) -> bool {
        if from >= to || self.commit(to).is_err() || !machine_has(to - from) {
            return false;
        }
        let page = page_size();
        let from = from - from % page;
        let Ok(end) = round_up(to, page) else { return false };
        let at = self.base.as_ptr().wrapping_add(from).cast();
        // SAFETY: [base + from, base + end) is committed, since that goes in whole pages; the advice changes no contents.
        unsafe { libc::madvise(at, end - from, libc::MADV_POPULATE_WRITE) == 0 }
    }

    /// The start of the mapping: aligned to a page (to 2 MB unless the kind is [`PageKind::Base`]).
    #[inline(always)]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of address space; all of them may be read.
    #[inline(always)]
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes from the start that may be written.
    #[inline]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// The kind of pages that was got.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// Bytes of real memory behind the committed part, as the kernel counts them.
    pub fn resident(&self) -> usize {
        resident(self.base, self.committed())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever could still use it would hold a borrow or an Arc of this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.reserved) };
        self.budget.give(*self.committed.get_mut());
    }
}

fn round_up(n: usize, step: usize) -> Result<usize, OutOfMemory> {
    n.checked_next_multiple_of(step).ok_or(OutOfMemory)
}

/// The machine's base page size.
fn page_size() -> usize {
    // SAFETY: sysconf only returns a number.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n).unwrap_or(4096).max(4096)
}

fn resident(base: NonNull<u8>, len: usize) -> usize {
    let page = page_size();
    let mut map = Vec::new();
    if map.try_reserve_exact(len.div_ceil(page)).is_err() {
        return len;
    }
    map.resize(len.div_ceil(page), 0u8);
    // SAFETY: `map` has one byte for each page of [base, base + len), which is mapped.
    match unsafe { libc::mincore(base.as_ptr().cast(), len, map.as_mut_ptr()) } {
        0 => map.iter().filter(|b| **b & 1 != 0).count() * page,
        _ => len,
    }
}

fn free_huge_pages() -> usize {
    let read = |name: &str| -> usize {
        std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"))
            .ok()
            .and_then(|s| s.trim().parse().ok())
            .unwrap_or(0)
    };
    read("free_hugepages").saturating_sub(read("resv_hugepages"))
}

/// Memory that is left alone for the rest of the process and the machine when a table asks for more.
const SPARE: usize = 32 << 20;

/// Whether the machine can give `bytes` more; yes if it does not say.
fn machine_has(bytes: usize) -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return true;
    };
    let available = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|l| l.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<usize>().ok());
    kib.is_none_or(|kib| kib.saturating_mul(1024) > bytes.saturating_add(SPARE))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether the kernel can populate pages at all: one older than Linux 5.14 refuses, and QEMU's emulation of one says yes and does
    /// nothing. Asked without [`Pages`], so that what is wrong there is not taken for that.
    pub(crate) fn can_populate() -> bool {
        let (size, flags) = (page_size(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping of one page, asked for and about, and unmapped again.
        let can = unsafe {
            let page = libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            let advised = page != libc::MAP_FAILED && libc::madvise(page, size, libc::MADV_POPULATE_WRITE) == 0;
            let can = advised && NonNull::new(page.cast()).is_some_and(|page| resident(page, size) == size);
            libc::munmap(page, size);
            can
        };
        if !can {
            eprintln!("SKIP: the kernel has no MADV_POPULATE_WRITE");
        }
        can
    }

    #[test]
    fn uncommitted_pages_read_as_zero_and_committed_ones_keep_what_is_written() {
        for kind in [PageKind::Base, PageKind::Transparent, PageKind::Reserved] {
            let p = Pages::reserve(5 << 20, kind, &Budget::unlimited()).unwrap();
            assert!(p.reserved() >= 5 << 20);
            let at = p.base().as_ptr();
            // SAFETY: the last byte of the reservation is readable.
            assert_eq!(unsafe { at.add(p.reserved() - 1).read() }, 0);
            p.commit(70_000).unwrap();
            // SAFETY: byte 69,999 is committed.
            unsafe { at.add(69_999).write(7) };
            p.commit(1 << 20).unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { at.add(69_999).read() }, 7);
            assert!(p.resident() > 0 && p.resident() <= p.committed());
        }
    }

    #[test]
    fn populated_pages_are_there_and_keep_what_was_written() {
        if !can_populate() {
            return;
        }
        for kind in [PageKind::Base, PageKind::Transparent] {
            let p = Pages::reserve(5 << 20, kind, &Budget::unlimited()).unwrap();
            p.commit(100).unwrap();
            // SAFETY: byte 99 is committed.
            unsafe { p.base().as_ptr().add(99).write(7) };
            assert!(p.populate(0, 3_000_001) && p.populate(70_000, 70_001));
            assert!(p.resident() >= 3_000_001 && p.committed() >= 3_000_001);
            // SAFETY: as above.
            assert_eq!(unsafe { p.base().as_ptr().add(99).read() }, 7);
            assert!(!p.populate(0, 7 << 20), "past the end");
            assert!(!p.populate(5, 5), "nothing");
        }
    }

    #[test]
    fn the_budget_refuses_and_gets_everything_back() {
        let b = Budget::limited(STEP);
        let p = Pages::reserve(1 << 20, PageKind::Base, &b).unwrap();
        p.commit(1).unwrap();
        assert_eq!(p.commit(STEP + 1), Err(OutOfMemory));
        assert_eq!((b.used(), p.committed()), (STEP, STEP));
        drop(p);
        assert_eq!(b.used(), 0);
    }

    #[test]
    fn a_reservation_is_never_overrun() {
        let p = Pages::reserve(STEP, PageKind::Base, &Budget::unlimited()).unwrap();
        assert_eq!(p.commit(STEP + 1), Err(OutOfMemory));
        assert_eq!(Pages::reserve(usize::MAX, PageKind::Base, &Budget::unlimited()).err(), Some(OutOfMemory));
        assert_eq!(Pages::reserve(1 << 60, PageKind::Transparent, &Budget::unlimited()).err(), Some(OutOfMemory));
    }
}
