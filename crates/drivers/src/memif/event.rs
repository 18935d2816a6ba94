//! Events of rings: a sleeping peer is woken without ever waiting for it.
//!
//! An eventfd is one open file description for both ends, so the peer can clear O_NONBLOCK at any moment and fill the counter:
//! a `write` to it may then sleep for ever, whatever was looked at before. So nothing here writes to one. The kernel itself
//! signals it (`eventfd_signal`, which adds to the counter and never waits) when an asynchronous read of no bytes from a file
//! of our own has completed, which it has when `io_submit` returns.
//!
//! What a signal costs is also the peer's to say: each of its watchers of the eventfd is called. Processor time beyond what a
//! signal usually takes is counted, and a peer that takes too much of it loses its connection.

use std::fs::read_link;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::time::{ClockId, clock_gettime};

use super::background::Background;

/// Signals that may have completed and not been collected yet.
const DEPTH: usize = 64;
/// A signal that takes less is not looked at, ns: a few times what it takes.
const USUAL: u64 = 5_000;
/// Processor time of one signal that costs the peer nothing, ns: a wake-up across processors of a virtual machine.
const ALLOWED: u64 = 25_000;
/// Part of the time that all beyond that may take in the long run: one of so many.
const SHARE: u64 = 20;
/// How much of it may come at once, ns.
const BURST: u64 = 50_000_000;

/// `struct iocb` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    /// 0: read.
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

const _: () = assert!(size_of::<Request>() == 64);

/// `IOCB_FLAG_RESFD`: the completion signals an eventfd.
const SIGNALS: u32 = 1;

/// Has the kernel signal eventfds; one for the process.
struct Signaller {
    context: libc::c_ulong,
    /// An empty file to read from.
    nothing: OwnedFd,
}

impl Signaller {
    fn new() -> io::Result<Self> {
        let nothing = memfd_create(c"quiver-nothing", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `context`.
        if unsafe { libc::syscall(libc::SYS_io_setup, DEPTH as libc::c_uint, &raw mut context) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { context, nothing })
    }

    fn get() -> io::Result<&'static Self> {
        static SIGNALLER: OnceLock<Result<Signaller, i32>> = OnceLock::new();
        let made = SIGNALLER.get_or_init(|| Self::new().map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL)));
        made.as_ref().map_err(|code| io::Error::from_raw_os_error(*code))
    }

    /// Signals an eventfd. Anything else is refused by the kernel.
    fn signal(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        let mut request = Request {
            file: self.nothing.as_raw_fd() as u32,
            flags: SIGNALS,
            event: event.as_raw_fd() as u32,
            ..Request::default()
        };
        let mut list = [&raw mut request];
        // Each round collects what other threads' signals have left, so one of the first finds a place.
        for _ in 0..DEPTH {
            // SAFETY: one pointer to a live request, which the kernel reads before it returns; no memory is read into.
            if unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_usize, list.as_mut_ptr()) } == 1 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                return Err(error);
            }
            self.collect();
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Takes completions out of the kernel's queue, without waiting.
    fn collect(&self) {
        let mut completions = [[0_u64; 4]; DEPTH];
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: room for DEPTH completions of 32 bytes, and a live time of zero: it does not wait.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0_usize,
                DEPTH,
                completions.as_mut_ptr().cast::<libc::c_void>(),
                &raw mut now,
            )
        };
    }
}

/// Whether peers can be woken on this system.
///
/// # Errors
/// The operating system's: it has no asynchronous I/O, or all of it is in use (`fs.aio-max-nr`).
pub(super) fn prepare() -> io::Result<()> {
    Signaller::get().map(drop)
}

/// The event of a ring, ours or a peer's.
#[derive(Debug)]
pub(super) struct Event {
    fd: Option<OwnedFd>,
    /// Who closes it, where that could take time.
    background: Option<Background>,
    cost: Cost,
}

impl Event {
    /// A new one.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self::of_fd(new_event()?))
    }

    /// A peer's.
    pub(super) fn of_peer(fd: OwnedFd, background: Background) -> Self {
        Self { fd: Some(fd), background: Some(background), cost: Cost::default() }
    }

    /// One of our own that another process has made.
    pub(super) fn of_fd(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), background: None, cost: Cost::default() }
    }

    /// The descriptor, to be watched, passed on or shown: never to be written or read.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(OwnedFd::as_fd)
    }

    /// Wakes whoever watches it. `Err`: the peer makes that take too long.
    #[cold]
    pub(super) fn signal(&self) -> Result<(), &'static str> {
        let (Some(fd), Ok(signaller)) = (self.fd(), Signaller::get()) else { return Ok(()) };
        if self.cost.spent.load(Ordering::Relaxed) {
            return Ok(());
        }
        // What fails here is a wake-up, of which the next vector brings another.
        self.cost.measure(|| drop(signaller.signal(fd)))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let (Some(background), Some(fd)) = (&self.background, self.fd.take()) {
            background.discard(fd);
        }
    }
}

/// What signals have cost beyond the usual.
#[derive(Debug, Default)]
struct Cost {
    /// The last one was slow: processor time is looked at.
    slow: AtomicBool,
    /// Owed, ns, and when it was last counted.
    debt: AtomicU64,
    counted: AtomicU64,
    /// No more signals.
    spent: AtomicBool,
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Cost {
    fn measure(&self, work: impl FnOnce()) -> Result<(), &'static str> {
        let slow = self.slow.load(Ordering::Relaxed);
        // The clock of the processor time is a system call; the other is not, but it also counts what other threads took.
        let used = slow.then(|| clock(ClockId::ThreadCPUTime));
        let start = clock(ClockId::Monotonic);
        work();
        let now = clock(ClockId::Monotonic);
        self.slow.store(now - start > USUAL, Ordering::Relaxed);
        match used {
            Some(before) => self.charge(clock(ClockId::ThreadCPUTime) - before, now),
            None => Ok(()),
        }
    }

    fn charge(&self, used: u64, now: u64) -> Result<(), &'static str> {
        let since = now.saturating_sub(self.counted.swap(now, Ordering::Relaxed));
        let debt = self.debt.load(Ordering::Relaxed).saturating_sub(since / SHARE) + used.saturating_sub(ALLOWED);
        self.debt.store(debt, Ordering::Relaxed);
        if debt <= BURST {
            return Ok(());
        }
        self.spent.store(true, Ordering::Relaxed);
        Err("event descriptor takes too long to signal")
    }
}

/// A new eventfd.
pub(super) fn new_event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Whether a descriptor is an eventfd. The file itself is not asked.
pub(super) fn is_event(fd: &OwnedFd) -> bool {
    // The name of anything that a peer can name begins with a slash.
    read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(fd: BorrowedFd<'_>) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn a_signal_counts_and_never_waits_though_the_counter_is_full_and_blocking() {
        let event = Event::new().unwrap();
        let fd = event.fd().unwrap();
        event.signal().unwrap();
        assert_eq!(count(fd), 1);
        rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::empty()).unwrap();
        rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        // A `write` would not return from the first of these.
        for _ in 0..10 * DEPTH {
            event.signal().unwrap();
        }
        assert_eq!(count(fd), u64::MAX);
    }

    #[test]
    fn many_threads_signal_at_the_same_time() {
        let events: Vec<_> = (0..4).map(|_| Event::new().unwrap()).collect();
        std::thread::scope(|scope| {
            for event in &events {
                scope.spawn(|| (0..1000).for_each(|_| event.signal().unwrap()));
            }
        });
        for event in &events {
            assert_eq!(count(event.fd().unwrap()), 1000, "a wake-up was lost");
        }
    }

    #[test]
    fn what_is_no_eventfd_is_refused_by_the_kernel_too() {
        let file = memfd_create(c"x", MemfdFlags::CLOEXEC).unwrap();
        assert!(!is_event(&file) && is_event(&new_event().unwrap()));
        assert!(Signaller::get().unwrap().signal(file.as_fd()).is_err());
    }

    #[test]
    fn a_peer_pays_for_slow_signals_and_for_no_others() {
        let cost = Cost::default();
        let second = 1_000_000_000;
        // The usual ones, however many.
        assert!((1..1000).all(|k| cost.charge(ALLOWED, k).is_ok()));
        // A fortieth of the time beyond that, for ever.
        assert!((1..1000).all(|k| cost.charge(ALLOWED + second / 400, k * second / 10).is_ok()));
        // Half of it: not for long.
        let end = (1000..2000).position(|k| cost.charge(second / 20, k * second / 10).is_err());
        assert!(end.is_some_and(|n| n < 5), "{end:?}");
    }
}
