//! Handing a re-opened device to the worker that polls it, and the dead one back, without a wait on either side.
//!
//! Closing a packet socket waits for a grace period of the kernel, so a worker never closes one: it puts what it no longer
//! needs here, and the control side drops it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Boxes<T> {
    fresh: Option<T>,
    retired: Vec<T>,
}

/// Shared by a queue (on its worker) and its port (on the control side).
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    waiting: AtomicBool,
    boxes: Mutex<Boxes<T>>,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self { waiting: AtomicBool::new(false), boxes: Mutex::new(Boxes { fresh: None, retired: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Boxes<T>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Control side: leaves something new for the queue.
    pub(crate) fn send(&self, fresh: T) {
        let replaced = self.lock().fresh.replace(fresh);
        self.waiting.store(true, Ordering::Release);
        drop(replaced);
    }

    /// Control side: drops what the queue has given back.
    pub(crate) fn collect(&self) {
        let retired = std::mem::take(&mut self.lock().retired);
        drop(retired);
    }

    /// Queue side: takes what is new, if there is anything; `true` then.
    #[inline(always)]
    pub(crate) fn exchange(&self, current: &mut Option<T>) -> bool {
        self.waiting.load(Ordering::Acquire) && self.exchange_now(current)
    }

    #[cold]
    fn exchange_now(&self, current: &mut Option<T>) -> bool {
        let mut boxes = self.lock();
        self.waiting.store(false, Ordering::Relaxed);
        let Some(fresh) = boxes.fresh.take() else { return false };
        boxes.retired.extend(current.replace(fresh));
        true
    }

    /// Queue side: gives back what it held when it ends.
    pub(crate) fn retire(&self, last: Option<T>) {
        self.lock().retired.extend(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_queue_takes_the_newest_and_control_drops_the_old() {
        let mailbox = Mailbox::new();
        let tokens: Vec<Arc<u32>> = (0..3).map(Arc::new).collect();
        let mut current = Some(tokens[0].clone());
        assert!(!mailbox.exchange(&mut current));
        mailbox.send(tokens[1].clone());
        mailbox.send(tokens[2].clone());
        assert_eq!(Arc::strong_count(&tokens[1]), 1, "never taken, so dropped by the sender");
        assert!(mailbox.exchange(&mut current));
        assert!(!mailbox.exchange(&mut current));
        assert_eq!(current.as_deref(), Some(&2));
        assert_eq!(Arc::strong_count(&tokens[0]), 2, "kept for the control side");
        mailbox.retire(current.take());
        mailbox.collect();
        assert!(tokens.iter().all(|t| Arc::strong_count(t) == 1));
    }
}
