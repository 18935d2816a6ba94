//! Quiescent-state based reclamation: when may what was replaced be used again?
//!
//! A *reader* (a worker) looks things up in tables that a *writer* changes under it. It promises one thing: now and then
//! it says [`Reader::quiescent`], and keeps nothing it has read from before that call. What the writer unlinks gets a
//! *stamp*, the value of a global epoch counter that the unlinking has just advanced; once every reader has announced an
//! epoch at or past the stamp, no reader can still hold it and it is freed.
//!
//! ```text
//!   writer:   unlink X   epoch 7 -> 8, X stamped 8                              free X
//!   ----------------|--------------------------------------------------------------|----->
//!   reader a: ---- reads X ---- quiescent: seen = 8 -------------------------------|
//!   reader b: ---------- reads X ------------------------------- quiescent: seen = 8
//!   reader c:                    (offline: asleep, holds nothing, is not waited for)
//! ```
//!
//! Nobody ever waits. A quiescent state costs the reader one load of a rarely written line and one store to its own.
//! The counter makes fences unnecessary there: a reader that has seen epoch 8 (acquire) also sees the unlinking (release)
//! before it. Only [`Reader::online`] has the store-before-load pattern and pays for a full fence.
//!
//! Limits: a reader that neither calls `quiescent` nor goes `offline` holds back all frees, visible in
//! [`Domain::pending`]. Memory safety of this crate's tables does not depend on readers keeping their promise, only the
//! rightness of what they read.

use crate::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering, fence};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

mod limbo;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
pub use limbo::Limbo;

/// What an offline reader has "seen": everything.
const OFFLINE: u64 = u64::MAX;

/// One reader's announcement, alone on its cache lines (two: the adjacent-line prefetcher pairs them).
#[repr(align(128))]
struct Slot {
    seen: AtomicU64,
}

type Deferred = Box<dyn FnOnce() + Send>;

#[repr(align(128))]
struct Epoch(AtomicU64);

struct Inner {
    epoch: Epoch,
    pending: AtomicUsize,
    readers: Mutex<Vec<Arc<Slot>>>,
    deferred: Mutex<VecDeque<(u64, Deferred)>>,
}

/// A set of readers, and what waits for them. Cloning gives another handle to the same domain.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("readers", &self.readers()).field("pending", &self.pending()).finish()
    }
}

/// A mutex that a panicking holder has left is still consistent here: no user code runs under it.
fn lock<T>(m: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

impl Domain {
    /// A domain without readers.
    pub fn new() -> Self {
        Domain {
            inner: Arc::new(Inner {
                epoch: Epoch(AtomicU64::new(1)),
                pending: AtomicUsize::new(0),
                readers: Mutex::new(Vec::new()),
                deferred: Mutex::new(VecDeque::new()),
            }),
        }
    }

    /// Adds a reader, online from the start. Any number, at any time; dropping it takes it out again.
    pub fn register(&self) -> Reader {
        let slot = Arc::new(Slot { seen: AtomicU64::new(0) });
        let reader = Reader { domain: self.clone(), slot: slot.clone(), _not_sync: PhantomData };
        lock(&self.inner.readers).push(slot);
        reader.online();
        reader
    }

    /// How many readers are registered, online or not.
    pub fn readers(&self) -> usize {
        lock(&self.inner.readers).len()
    }

    /// Advances the epoch and returns it: the stamp of what the caller unlinked before this call.
    pub fn stamp(&self) -> u64 {
        self.inner.epoch.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The greatest stamp whose grace period is over.
    pub fn safe(&self) -> u64 {
        // Pairs with the fence in `online`: either this scan sees the reader online, or the reader's loads see what was
        // unlinked before the scan.
        fence(Ordering::SeqCst);
        lock(&self.inner.readers).iter().map(|s| s.seen.load(Ordering::Acquire)).min().unwrap_or(OFFLINE)
    }

    /// Calls `f` after a grace period, from a later [`reclaim`](Self::reclaim).
    pub fn defer(&self, f: Deferred) {
        let mut deferred = lock(&self.inner.deferred);
        // Stamped under the lock, so that the queue is in the order of its stamps.
        let stamp = self.stamp();
        deferred.push_back((stamp, f));
        self.inner.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs what [`defer`](Self::defer) took and whose grace period is over; returns how many. Never waits for a reader.
    pub fn reclaim(&self) -> usize {
        if lock(&self.inner.deferred).is_empty() {
            return 0;
        }
        let safe = self.safe();
        let mut done = 0;
        loop {
            // One at a time and without the lock: a deferred call may defer in its turn.
            let next = {
                let mut deferred = lock(&self.inner.deferred);
                match deferred.front() {
                    Some((stamp, _)) if *stamp <= safe => deferred.pop_front(),
                    _ => None,
                }
            };
            let Some((_, f)) = next else { return done };
            self.inner.pending.fetch_sub(1, Ordering::Relaxed);
            f();
            done += 1;
        }
    }

    /// How many deferred calls and retired items still wait, over all structures of this domain.
    pub fn pending(&self) -> usize {
        self.inner.pending.load(Ordering::Relaxed)
    }
}

/// One thread's membership in a [`Domain`]. It may move to another thread, but only one at a time may use it.
pub struct Reader {
    domain: Domain,
    slot: Arc<Slot>,
    _not_sync: PhantomData<Cell<()>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("online", &self.is_online()).finish()
    }
}

impl Reader {
    /// Says: nothing that I read before this call is used after it. An offline reader stays offline.
    #[inline(always)]
    pub fn quiescent(&self) {
        // Only this thread writes the slot, so a relaxed load sees its own last store.
        if self.slot.seen.load(Ordering::Relaxed) != OFFLINE {
            let epoch = self.domain.inner.epoch.0.load(Ordering::Acquire);
            self.slot.seen.store(epoch, Ordering::Release);
        }
    }

    /// Says: from now on I read nothing (going to sleep). Frees no longer wait for this reader.
    pub fn offline(&self) {
        self.slot.seen.store(OFFLINE, Ordering::Release);
    }

    /// Back to reading. Must come before the first lookup after [`offline`](Self::offline).
    pub fn online(&self) {
        let epoch = self.domain.inner.epoch.0.load(Ordering::Acquire);
        self.slot.seen.store(epoch, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether frees wait for this reader.
    pub fn is_online(&self) -> bool {
        self.slot.seen.load(Ordering::Relaxed) != OFFLINE
    }

    /// The domain that this reader is a member of.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.domain.inner.readers).retain(|s| !Arc::ptr_eq(s, &self.slot));
    }
}
