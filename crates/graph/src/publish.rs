//! Configuration that workers read: the main thread publishes a new snapshot, a worker picks it up between two vectors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

struct Shared<T> {
    version: AtomicU64,
    value: Mutex<Arc<T>>,
}

/// The main thread's side of a published value.
pub struct Published<T> {
    shared: Arc<Shared<T>>,
}

/// A worker's side: one load a vector tells whether there is something new.
pub struct Snapshot<T> {
    shared: Arc<Shared<T>>,
    version: u64,
    value: Arc<T>,
}

impl<T> Published<T> {
    /// Publishes a first value.
    pub fn new(value: T) -> Self {
        Self { shared: Arc::new(Shared { version: AtomicU64::new(0), value: Mutex::new(Arc::new(value)) }) }
    }

    /// Replaces the value. Workers that are at work keep the old one until their next vector.
    pub fn publish(&self, value: T) {
        let old = std::mem::replace(&mut *self.shared.value.lock().unwrap_or_else(PoisonError::into_inner), Arc::new(value));
        self.shared.version.fetch_add(1, Ordering::Release);
        // The last reader frees it; if that is us, now and not under the lock.
        drop(old);
    }

    /// The value now.
    pub fn get(&self) -> Arc<T> {
        self.shared.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A worker's handle.
    pub fn snapshot(&self) -> Snapshot<T> {
        Snapshot { shared: self.shared.clone(), version: self.shared.version.load(Ordering::Acquire), value: self.get() }
    }
}

impl<T> Snapshot<T> {
    /// Picks up what was published since; call once a vector. `true` where there was something new.
    #[inline(always)]
    pub fn refresh(&mut self) -> bool {
        let version = self.shared.version.load(Ordering::Acquire);
        if version == self.version {
            return false;
        }
        self.pick_up(version);
        true
    }

    #[cold]
    fn pick_up(&mut self, version: u64) {
        // The lock is held by main only for the time of one pointer swap.
        self.value = self.shared.value.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.version = version;
    }

    /// The next [`refresh`](Self::refresh) of this handle and of each clone says that the value is new. A prototype's clones need
    /// that where each takes a part of the value for itself.
    #[must_use]
    pub fn outdated(self) -> Self {
        // So many values are never published.
        Self { version: u64::MAX, ..self }
    }

    /// Whether nothing was published since.
    #[inline(always)]
    pub fn is_current(&self) -> bool {
        self.shared.version.load(Ordering::Acquire) == self.version
    }

    /// The value that was published last, whatever this handle has picked up; for what is not in a hurry.
    pub fn newest(&self) -> Arc<T> {
        self.shared.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value picked up last.
    #[inline(always)]
    pub fn get(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Snapshot<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), version: self.version, value: self.value.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_changes_only_when_refreshed() {
        let published = Published::new(1);
        let mut snapshot = published.snapshot();
        assert!(!snapshot.refresh());
        published.publish(2);
        assert_eq!((*snapshot.get(), *published.get()), (1, 2));
        assert!(snapshot.refresh());
        assert!(!snapshot.refresh());
        assert_eq!(*snapshot.get(), 2);
    }

    #[test]
    fn an_outdated_snapshot_and_its_clones_refresh_once() {
        let published = Published::new(1);
        let mut snapshot = published.snapshot().outdated();
        let mut clone = snapshot.clone();
        assert_eq!((*clone.get(), clone.is_current()), (1, false));
        assert_eq!([snapshot.refresh(), clone.refresh(), clone.refresh()], [true, true, false]);
    }

    #[test]
    fn readers_see_values_in_order() {
        let published = Published::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut snapshot = published.snapshot();
                scope.spawn(move || {
                    let mut last = 0;
                    while last < 1000 {
                        snapshot.refresh();
                        assert!(*snapshot.get() >= last);
                        last = *snapshot.get();
                    }
                });
            }
            for i in 1..=1000 {
                published.publish(i);
            }
        });
    }
}
