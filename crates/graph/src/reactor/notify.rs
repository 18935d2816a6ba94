//! Reaching the main thread from others: the loop's own wake-up, and the notification that workers use.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake};

use rustix::event::{EventfdFlags, eventfd};

use super::Reactor;

fn new_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

fn raise(fd: &OwnedFd) {
    // Fails only if the count is at its maximum: then the other side is being woken anyway.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

fn lower(fd: &OwnedFd) {
    // Fails only if the count is 0 already.
    let _ = rustix::io::read(fd, &mut [0; 8]);
}

/// Ends the loop's wait when a task was woken by another thread.
pub(super) struct Parker {
    fd: OwnedFd,
    waiting: AtomicBool,
}

impl Parker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { fd: new_eventfd()?, waiting: AtomicBool::new(false) })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The loop is about to look for ready tasks for the last time before it waits.
    pub(super) fn prepare(&self) {
        self.waiting.store(true, Ordering::SeqCst);
    }

    /// The loop runs again: wake-ups need no system call.
    pub(super) fn unprepare(&self) {
        self.waiting.store(false, Ordering::SeqCst);
    }

    pub(super) fn drain(&self) {
        lower(&self.fd);
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.waiting.swap(false, Ordering::SeqCst) {
            raise(&self.fd);
        }
    }
}

/// A signal from any thread to one task of the main thread. Signals that come before the task looks are one signal.
///
/// The sender never waits: it sets a flag, and writes to an eventfd if the flag was not set. So a worker may signal for
/// each of a burst of events, and pays for one system call between two looks of the main thread.
pub struct Notify {
    fd: OwnedFd,
    pending: AtomicBool,
}

impl Notify {
    /// A signal that was not given yet.
    ///
    /// # Errors
    /// Those of eventfd.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { fd: new_eventfd()?, pending: AtomicBool::new(false) }))
    }

    /// Gives the signal.
    pub fn notify(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            raise(&self.fd);
        }
    }

    /// Waits until the signal has been given since the last time. What the sender did before is visible then. For one
    /// task at a time.
    ///
    /// # Errors
    /// Those of epoll.
    pub async fn notified(&self, reactor: &Reactor) -> io::Result<()> {
        loop {
            if self.pending.load(Ordering::Acquire) {
                // The eventfd first: a signal between both would leave it raised, which costs a needless look at most.
                lower(&self.fd);
                self.pending.swap(false, Ordering::AcqRel);
                return Ok(());
            }
            let mut ready = pin!(reactor.readable(self.fd.as_fd()));
            // A left-over count would make the eventfd ready without a signal: lower it, then wait again.
            poll_fn(|context| match ready.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending if self.pending.load(Ordering::Acquire) => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            })
            .await?;
            if !self.pending.load(Ordering::Acquire) {
                lower(&self.fd);
            }
        }
    }
}
