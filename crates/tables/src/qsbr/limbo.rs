//! Items in their grace period.

use super::Domain;
use crate::error::OutOfMemory;
use crate::sync::Ordering;
use std::collections::VecDeque;

/// The typed, cheap form of [`Domain::defer`]: a writer's own queue of items (indices, mostly) in their grace period.
#[derive(Debug)]
pub struct Limbo<T> {
    domain: Domain,
    queue: VecDeque<(u64, T)>,
}

impl<T> Limbo<T> {
    /// An empty queue.
    pub fn new(domain: &Domain) -> Self {
        Limbo { domain: domain.clone(), queue: VecDeque::new() }
    }

    /// Makes room for `n` more items, so that retiring them cannot fail.
    pub fn reserve(&mut self, n: usize) -> Result<(), OutOfMemory> {
        Ok(self.queue.try_reserve(n)?)
    }

    /// Queues items that have just been unlinked; they share one stamp. Call [`reserve`](Self::reserve) first.
    pub fn retire(&mut self, items: impl IntoIterator<Item = T>) {
        let before = self.queue.len();
        let stamp = self.domain.stamp();
        self.queue.extend(items.into_iter().map(|item| (stamp, item)));
        self.domain.inner.pending.fetch_add(self.queue.len() - before, Ordering::Relaxed);
    }

    /// Hands every item whose grace period is over to `free`. Never waits.
    pub fn reclaim(&mut self, mut free: impl FnMut(T)) {
        if self.queue.is_empty() {
            return;
        }
        let safe = self.domain.safe();
        let mut freed = 0;
        while self.queue.front().is_some_and(|(stamp, _)| *stamp <= safe) {
            if let Some((_, item)) = self.queue.pop_front() {
                free(item);
                freed += 1;
            }
        }
        self.domain.inner.pending.fetch_sub(freed, Ordering::Relaxed);
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of the queue itself.
    pub fn memory_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<(u64, T)>()
    }
}

impl<T> Drop for Limbo<T> {
    fn drop(&mut self) {
        self.domain.inner.pending.fetch_sub(self.queue.len(), Ordering::Relaxed);
    }
}
