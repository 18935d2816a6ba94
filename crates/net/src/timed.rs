//! What a thread has to do at times of its own, such as the sessions of a protocol: for its nodes, and for what main sends it to do.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;

use crate::ProcessSignal;

/// Something with a next time.
pub trait Due {
    /// When there may be something to do, a time of the router's clock; `u64::MAX`: never.
    fn due(&self) -> u64;
}

/// The way of notices of such things to the main thread.
#[derive(Clone)]
pub struct Notices<N> {
    sender: Sender<N>,
    signal: ProcessSignal,
    lost: Arc<AtomicBool>,
}

impl<N> Notices<N> {
    /// One that sends to a channel; `lost` is set where that is full.
    pub fn new(sender: Sender<N>, signal: ProcessSignal, lost: Arc<AtomicBool>) -> Self {
        Self { sender, signal, lost }
    }

    /// Tells, without waiting.
    pub fn tell(&self, notice: N) {
        if self.sender.try_send(notice).is_err() {
            self.lost.store(true, Ordering::Release);
        }
        self.signal.raise();
    }
}

/// It, shared by the nodes of one thread. Only that thread locks it, so that nobody ever waits.
pub struct Timed<T>(Arc<(Mutex<T>, AtomicU64)>);

impl<T> Clone for Timed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Due> Timed<T> {
    /// Shares it.
    pub fn new(it: T) -> Self {
        let due = AtomicU64::new(it.due());
        Self(Arc::new((Mutex::new(it), due)))
    }

    /// It, until the guard is dropped.
    pub fn lock(&self) -> TimedGuard<'_, T> {
        TimedGuard { it: self.0.0.lock().unwrap_or_else(PoisonError::into_inner), due: &self.0.1 }
    }

    /// When there may be something to do, without a lock.
    pub fn due(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// Access to what is shared; its next time is noted when it ends.
pub struct TimedGuard<'a, T: Due> {
    it: MutexGuard<'a, T>,
    due: &'a AtomicU64,
}

impl<T: Due> Deref for TimedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T: Due> DerefMut for TimedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.it
    }
}

impl<T: Due> Drop for TimedGuard<'_, T> {
    fn drop(&mut self) {
        self.due.store(self.it.due(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Due for u64 {
        fn due(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn the_next_time_is_known_without_a_lock_when_the_access_has_ended() {
        let shared = Timed::new(u64::MAX);
        let other = shared.clone();
        let mut guard = shared.lock();
        *guard = 5;
        assert_eq!(other.due(), u64::MAX);
        drop(guard);
        assert_eq!(other.due(), 5);
    }
}
