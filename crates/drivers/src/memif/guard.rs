//! Peers' memory may vanish: what happens then.
//!
//! A peer that shrinks the file behind a mapping, or lets huge pages run out, makes every access past the end a SIGBUS.
//! Seals (F_SEAL_SHRINK) would forbid the first, but huge-page files of peers that pass on their packet pool (zero-copy) are
//! not sealed, and the second is not covered. So every mapping of a peer's file is registered here, and a handler for SIGBUS
//! replaces a registered mapping, whole, by anonymous zeros and raises its flag. The access is repeated and reads zeros or
//! writes into nothing; the control side sees the flag and ends the connection. Any other SIGBUS is passed on to the handler
//! that was there before.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Mappings of peers that can exist at a time: a quarter of what Linux lets a process have (`vm.max_map_count`), since one that
/// has them all cannot even take memory any more.
pub(super) const SLOTS: usize = 16_384;

/// Bytes of a page of memory files that are not on huge pages.
const SMALL_PAGE: usize = 4096;

struct Slot {
    /// First address; 0: nothing is guarded here.
    start: AtomicUsize,
    /// Bytes that are mapped, whole pages of the file.
    len: AtomicUsize,
    lost: AtomicBool,
}

/// Slots that were never used, and those that are free again.
struct Free {
    fresh: usize,
    again: Vec<usize>,
}

static FREE: Mutex<Free> = Mutex::new(Free { fresh: 0, again: Vec::new() });

impl Free {
    fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        work(&mut FREE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&mut self) -> Option<usize> {
        self.again.pop().or_else(|| {
            let slot = self.fresh;
            self.fresh = (slot + 1).min(SLOTS);
            (slot < SLOTS).then_some(slot)
        })
    }
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { start: AtomicUsize::new(0), len: AtomicUsize::new(0), lost: AtomicBool::new(false) } }; SLOTS];
/// Who is told: an eventfd that lives as long as the process.
static ALARM: AtomicI32 = AtomicI32::new(-1);
static INSTALLED: OnceLock<Result<Before, i32>> = OnceLock::new();

/// What handled the signal before.
struct Before(libc::sigaction);

// SAFETY: plain data that is written once.
unsafe impl Send for Before {}
// SAFETY: as above.
unsafe impl Sync for Before {}

/// A mapping of a peer's file; unmapped when dropped.
///
/// Invariant G1: `base..base+len` is mapped readable and writable for as long as the value lives (by the file, or by zeros
/// after it was lost).
#[derive(Debug)]
pub(super) struct Guarded {
    base: NonNull<u8>,
    len: usize,
    slot: usize,
}

// SAFETY: the mapping belongs to the process; access goes through raw pointers under the rules of `memory`.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// Maps the first `len` bytes of a peer's file: whole pages of `page` bytes, as the file has them.
    ///
    /// # Errors
    /// The system's; too many mappings; a length that is not whole huge pages: the kernel maps huge pages whole, so that the
    /// mapping would be longer than what is guarded.
    pub(super) fn map(fd: &OwnedFd, len: usize, page: usize) -> io::Result<Self> {
        install()?;
        let len = match page {
            0..=SMALL_PAGE => len.next_multiple_of(SMALL_PAGE),
            _ if len.is_multiple_of(page) => len,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let slot = Free::with(Free::take).ok_or_else(|| io::Error::other("too many mappings of peers"))?;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd.as_raw_fd(), 0) };
        let base = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast::<u8>())).flatten();
        let Some(base) = base else {
            let error = io::Error::last_os_error();
            Free::with(|free| free.again.push(slot));
            return Err(error);
        };
        TABLE[slot].lost.store(false, Ordering::Relaxed);
        TABLE[slot].len.store(len, Ordering::Relaxed);
        TABLE[slot].start.store(base.as_ptr() as usize, Ordering::Release);
        Ok(Self { base, len, slot })
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Whether the peer's memory has vanished.
    pub(super) fn is_lost(&self) -> bool {
        TABLE[self.slot].lost.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // First the slot, then the mapping: whoever owned the value has ended all access, so nothing needs the guard any more,
        // and from the unmapping on the addresses may be those of another mapping, which the handler must not replace.
        TABLE[self.slot].start.store(0, Ordering::Release);
        // SAFETY: G1: mapped by this value alone; `len` is what was mapped, whole pages.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0);
        Free::with(|free| free.again.push(self.slot));
    }
}

/// Becomes readable when memory of a peer was lost; one for the process, never closed, since the handler may run at any time.
/// Not to be read: watch it edge-triggered.
pub(super) fn alarm() -> io::Result<BorrowedFd<'static>> {
    static ALARM_FD: OnceLock<Result<OwnedFd, i32>> = OnceLock::new();
    let made = ALARM_FD.get_or_init(|| {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(rustix::io::Errno::raw_os_error)?;
        ALARM.store(fd.as_raw_fd(), Ordering::Release);
        Ok(fd)
    });
    made.as_ref().map(OwnedFd::as_fd).map_err(|code| io::Error::from_raw_os_error(*code))
}

fn install() -> io::Result<()> {
    let result = INSTALLED.get_or_init(|| {
        // SAFETY: sigaction is plain C data for which all zeroes is a value; the handler has the three-argument form that
        // SA_SIGINFO asks for, and calls only what is allowed in a signal handler.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
            new.sa_sigaction = handler as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut new.sa_mask);
            match libc::sigaction(libc::SIGBUS, &raw const new, &raw mut before) {
                0 => Ok(Before(before)),
                _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
            }
        }
    });
    result.as_ref().map(drop).map_err(|code| io::Error::from_raw_os_error(*code))
}

/// Only atomics, `mmap`, `write` and `sigaction`: all of them allowed in a signal handler.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t for SIGBUS; its address field is set where the kernel itself has sent it, for
    // an access, and is something else where a process did.
    let (address, by_kernel) = unsafe { ((*info).si_addr() as usize, (*info).si_code > 0) };
    for slot in &TABLE {
        let (start, len) = (slot.start.load(Ordering::Acquire), slot.len.load(Ordering::Relaxed));
        if !by_kernel || start == 0 || !(start..start + len).contains(&address) {
            continue;
        }
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces a mapping that this module made and still owns (the slot is cleared before munmap), whole.
        let new = unsafe { libc::mmap(start as *mut _, len, protection, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            break;
        }
        slot.lost.store(true, Ordering::Release);
        let alarm = ALARM.load(Ordering::Acquire);
        if alarm >= 0 {
            let one = 1_u64;
            // SAFETY: eight live bytes; the result is not needed, the flag is raised.
            let _ = unsafe { libc::write(alarm, (&raw const one).cast(), 8) };
        }
        return;
    }
    // Not ours: the access is repeated under whatever was there before.
    if let Some(Ok(Before(before))) = INSTALLED.get() {
        // SAFETY: an action that sigaction itself returned.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    } else {
        // SAFETY: resets to the default action; no memory is involved.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn memory_that_a_peer_takes_away_reads_as_zeros_and_is_noticed() {
        let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 1 << 16).unwrap();
        let map = Guarded::map(&fd, 1 << 16, 4096).unwrap();
        // SAFETY: inside the mapping (G1).
        unsafe {
            map.base().as_ptr().add(0x8000).write_volatile(7);
            assert_eq!(map.base().as_ptr().add(0x8000).read_volatile(), 7);
            assert!(!map.is_lost());
            ftruncate(&fd, 0).unwrap();
            assert_eq!(map.base().as_ptr().add(0x8000).read_volatile(), 0);
            map.base().as_ptr().write_volatile(1);
        }
        assert!(map.is_lost());
        let again = Guarded::map(&fd, 1 << 16, 4096).unwrap();
        drop(map);
        assert!(!again.is_lost());
    }

    /// Huge pages without a single one in the system: every access is a SIGBUS.
    fn huge() -> OwnedFd {
        let fd = memfd_create(c"huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).unwrap();
        ftruncate(&fd, 4 << 20).unwrap();
        fd
    }

    #[test]
    fn huge_pages_are_mapped_and_guarded_whole_or_not_at_all() {
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:huge").count();
        for len in [1, 4096, 8192, 1_000_000, (2 << 20) - 1, (2 << 20) + 4096] {
            assert!(Guarded::map(&huge(), len, 2 << 20).is_err(), "{len}");
        }
        assert_eq!(maps(), 0);
        for len in [2 << 20, 4 << 20] {
            let fd = huge();
            let map = Guarded::map(&fd, len, 2 << 20).unwrap();
            // The file ends: what was there is gone, whether or not the system has a page.
            ftruncate(&fd, 0).unwrap();
            // SAFETY: inside the mapping (G1).
            assert_eq!(unsafe { map.base().as_ptr().add(len - 1).read_volatile() }, 0);
            assert!(map.is_lost());
            drop(map);
            assert_eq!(maps(), 0, "a mapping stayed behind");
        }
    }

    #[test]
    fn a_mapping_that_ends_inside_a_page_is_guarded_to_the_end_of_the_page() {
        let fd = memfd_create(c"peer", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 5000).unwrap();
        let map = Guarded::map(&fd, 5000, 4096).unwrap();
        ftruncate(&fd, 0).unwrap();
        // SAFETY: inside the mapping (G1), which is whole pages.
        assert_eq!(unsafe { map.base().as_ptr().add(8191).read_volatile() }, 0);
    }

    #[test]
    fn slots_are_used_again_and_end_somewhere() {
        let mut free = Free { fresh: 0, again: Vec::new() };
        assert!((0..SLOTS).all(|k| free.take() == Some(k)));
        assert_eq!((free.take(), free.take()), (None, None));
        free.again.push(7);
        assert_eq!((free.take(), free.take()), (Some(7), None));
    }
}
