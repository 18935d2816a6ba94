//! The total order of operations: a turn that is handed on in the order of asking.
//!
//! Whoever runs an operation holds the [`Turn`] meanwhile; a long operation that changes configuration keeps it over all its
//! slices, one that only watches gives it back after its first. Single-threaded: everything here lives on the main thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The queue for the turn. Clones are handles of the same queue.
#[derive(Clone, Default)]
pub struct Order(Rc<RefCell<Queue>>);

#[derive(Default)]
struct Queue {
    next_ticket: u64,
    holder: Option<u64>,
    waiting: VecDeque<(u64, Option<Waker>)>,
}

impl Queue {
    fn hand_on(&mut self) -> Option<Waker> {
        if self.holder.is_some() {
            return None;
        }
        let (ticket, waker) = self.waiting.front_mut()?;
        self.holder = Some(*ticket);
        waker.take()
    }
}

impl Order {
    /// Takes a place in the queue, now; the future is ready when it is its turn.
    pub fn enter(&self) -> Entry {
        let mut queue = self.0.borrow_mut();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.push_back((ticket, None));
        queue.hand_on();
        Entry { order: self.clone(), ticket, taken: false }
    }

    /// How many wait for their turn, without the one who has it.
    pub fn waiting(&self) -> usize {
        let queue = self.0.borrow();
        queue.waiting.iter().filter(|(ticket, _)| queue.holder != Some(*ticket)).count()
    }

    fn leave(&self, ticket: u64) {
        let waker = {
            let mut queue = self.0.borrow_mut();
            queue.waiting.retain(|(other, _)| *other != ticket);
            if queue.holder == Some(ticket) {
                queue.holder = None;
            }
            queue.hand_on()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in the queue. Dropping it leaves the queue.
pub struct Entry {
    order: Order,
    ticket: u64,
    taken: bool,
}

impl Future for Entry {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        let ticket = self.ticket;
        let mut queue = self.order.0.borrow_mut();
        if queue.holder == Some(ticket) {
            drop(queue);
            self.taken = true;
            return Poll::Ready(Turn { order: self.order.clone(), ticket });
        }
        if let Some((_, waker)) = queue.waiting.iter_mut().find(|(other, _)| *other == ticket) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.taken {
            self.order.leave(self.ticket);
        }
    }
}

/// The right to run an operation. Dropping it hands the turn on.
pub struct Turn {
    order: Order,
    ticket: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.order.leave(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    fn take(entry: &mut Pin<&mut Entry>) -> Option<Turn> {
        match entry.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_come_in_the_order_of_asking() {
        let order = Order::default();
        let (mut first, mut second, mut third) = (pin!(order.enter()), pin!(order.enter()), pin!(order.enter()));
        assert!(take(&mut third).is_none() && take(&mut second).is_none());
        let turn = take(&mut first).expect("the first has its turn");
        assert_eq!(order.waiting(), 2);
        assert!(take(&mut second).is_none());
        drop(turn);
        assert!(take(&mut third).is_none());
        drop(take(&mut second).expect("then the second"));
        drop(take(&mut third).expect("then the third"));
        assert_eq!(order.waiting(), 0);
    }

    #[test]
    fn who_gives_up_waiting_does_not_hold_the_others_up() {
        let order = Order::default();
        let mut first = Box::pin(order.enter());
        let second = Box::pin(order.enter());
        let mut third = pin!(order.enter());
        let turn = take(&mut first.as_mut()).expect("the first has its turn");
        drop(second);
        drop(turn);
        drop(first);
        assert!(take(&mut third).is_some());
    }

    #[test]
    fn a_turn_never_taken_goes_on_when_its_entry_is_dropped() {
        let order = Order::default();
        let first = order.enter();
        let mut second = pin!(order.enter());
        assert!(take(&mut second).is_none());
        drop(first);
        assert!(take(&mut second).is_some());
    }
}
