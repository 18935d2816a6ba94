//! Timers of the main thread: a heap by due time. Data-path timers are many and use the wheel in `tables`; here there are
//! few, and a heap is exact.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::Reactor;

/// Entries of timers that were dropped are removed when they are more than the living ones, and this many.
const STALE_MIN: usize = 64;

#[derive(Default)]
pub(super) struct Timers {
    /// Due time and number; the number keeps the order of timers that are due at the same time.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// Whom to wake, by number. A number without a waker in the heap was dropped.
    wakers: HashMap<u64, Waker>,
    next: u64,
}

impl Timers {
    fn add(&mut self, due: u64, waker: Waker) -> u64 {
        let number = self.next;
        self.next += 1;
        self.heap.push(Reverse((due, number)));
        self.wakers.insert(number, waker);
        number
    }

    fn remove(&mut self, number: u64) {
        self.wakers.remove(&number);
        if self.heap.len() > STALE_MIN + 2 * self.wakers.len() {
            let wakers = &self.wakers;
            self.heap.retain(|Reverse((_, number))| wakers.contains_key(number));
        }
    }

    /// When the next timer is due.
    pub(super) fn next(&mut self) -> Option<u64> {
        while let Some(Reverse((due, number))) = self.heap.peek() {
            if self.wakers.contains_key(number) {
                return Some(*due);
            }
            self.heap.pop();
        }
        None
    }

    /// The waker of the first timer that is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Waker> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, number)) = self.heap.pop()?;
        self.wakers.remove(&number)
    }
}

/// Waits for a point in time; made by [`Reactor::sleep`] and [`Reactor::sleep_until`].
pub struct Sleep<'a> {
    reactor: &'a Reactor,
    due: u64,
    number: Option<u64>,
}

impl<'a> Sleep<'a> {
    pub(super) fn new(reactor: &'a Reactor, due: u64) -> Self {
        Self { reactor, due, number: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.reactor.clock().timer_now() >= self.due {
            return Poll::Ready(());
        }
        let mut timers = self.reactor.timers.borrow_mut();
        let due = self.due;
        // A timer that has fired and is asked again, because time was set back meanwhile, is a new one.
        match self.number.and_then(|number| timers.wakers.get_mut(&number)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => self.number = Some(timers.add(due, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.reactor.timers.borrow_mut().remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_equal_ones_in_the_order_of_their_making() {
        let mut timers = Timers::default();
        let mut numbers: Vec<_> = [30, 10, 20, 10].iter().map(|due| timers.add(*due, Waker::noop().clone())).collect();
        timers.remove(numbers.remove(2));
        let mut fired = Vec::new();
        for now in [9, 10, 29, 30] {
            while timers.pop_due(now).is_some() {
                fired.push(now);
            }
        }
        assert_eq!(fired, [10, 10, 30]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn dropped_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        for due in 0..10_000 {
            let number = timers.add(1_000_000 - due, Waker::noop().clone());
            timers.remove(number);
        }
        assert!(timers.heap.len() <= STALE_MIN + 1, "{}", timers.heap.len());
    }
}
