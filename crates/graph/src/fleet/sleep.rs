//! How a thread sleeps, and what wakes it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll;
use rustix::event::{EventfdFlags, eventfd};

use crate::worker::Worker;

/// Alone on its cache lines: the sleeper writes it, everybody who has something for the sleeper reads it.
#[repr(align(128))]
struct Asleep(AtomicBool);

/// Wakes a thread that sleeps in `epoll_wait`.
#[derive(Clone)]
pub(crate) struct Bell {
    fd: Arc<OwnedFd>,
    asleep: Arc<Asleep>,
}

impl Bell {
    pub(super) fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd: Arc::new(fd), asleep: Arc::new(Asleep(AtomicBool::new(false))) })
    }

    /// Wakes the thread if it sleeps. The caller has a full fence between what it left for the thread and this.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        if self.asleep.0.load(Ordering::SeqCst) {
            self.strike();
        }
    }

    #[cold]
    fn strike(&self) {
        let _ = rustix::io::write(&*self.fd, &1_u64.to_ne_bytes());
    }

    /// Announces a sleep: from here on everybody who leaves something rings. What was left before must be looked for now.
    pub(super) fn lie_down(&self) {
        self.asleep.0.store(true, Ordering::SeqCst);
    }

    /// Ends the sleep.
    pub(super) fn get_up(&self) {
        self.asleep.0.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&*self.fd, &mut [0_u8; 8]);
    }
}

/// A thread's way to sleep until a device, a message or a time wakes it.
pub(crate) struct Sleeper {
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) bell: Bell,
    fds: Vec<RawFd>,
}

impl Sleeper {
    pub(super) fn new(bell: Bell) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*bell.fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { epoll: Arc::new(epoll), bell, fds: Vec::new() })
    }

    /// Watches exactly the descriptors of the worker's queues. A descriptor that was closed has left the set by itself.
    pub(super) fn watch(&mut self, worker: &Worker) {
        let mut now = Vec::new();
        worker.event_fds(&mut now);
        for fd in &self.fds {
            // SAFETY: only named to the kernel for removal; a closed or reused number gives an error or is added again below.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            let _ = epoll::delete(&*self.epoll, fd);
        }
        for fd in &now {
            // SAFETY: the worker's queues own these descriptors and outlive this call.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            let _ = epoll::add(&*self.epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        }
        self.fds = now;
    }

    /// Sleeps, unless `has_work` finds something after the sleep was announced.
    pub(super) fn sleep(&mut self, time: Duration, has_work: impl Fn() -> bool) {
        self.bell.lie_down();
        if !has_work() {
            let timeout = rustix::event::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 16];
            let _ = epoll::wait(&*self.epoll, &mut events, Some(&timeout));
        }
        self.bell.get_up();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
