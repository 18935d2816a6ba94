//! A bounded ring from one thread to another: values go in at one end, in order, and out at the other.
//!
//! ```text
//!   Producer                                   Consumer
//!   next ──► |   |   |   | d | c | b | a |   | ──► next
//!              ▲           ▲           ▲
//!              next        tail        head        (free running counts; the slot is the count modulo the capacity)
//!              ├ written,  ├ readable  ├ given back
//!              │ not yet   │
//!              │ published │
//! ```
//!
//! Both ends work on counts of their own and publish them once a batch: [`Producer::publish`] makes what was pushed
//! readable, [`Consumer::release`] gives slots back. So a batch costs one line transfer in each direction, however many
//! values it has. Each end keeps the other's count as last seen, and looks again only when it must.
//!
//! Values are `Copy`: nobody drops what is still in a ring when both ends are gone. Who puts owners into a ring takes them out
//! again first.

use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// Cache lines that the producer asks for ahead of the one that it fills.
const AHEAD: usize = 8;

/// A count alone on its cache lines (two: the adjacent-line prefetcher pairs them).
#[repr(align(128))]
struct Count(AtomicUsize);

struct Shared<T> {
    /// Values readable so far; written by the producer.
    tail: Count,
    /// Slots given back so far; written by the consumer.
    head: Count,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is written by the producer while its count is in head + capacity > count >= tail, and read by the consumer
// while head <= count < tail; the release stores and acquire loads of the two counts order the two uses.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: values move between threads with the ring.
unsafe impl<T: Send> Send for Shared<T> {}

/// The end that values go in at.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    next: usize,
    tail: usize,
    /// Slots given back, as last seen.
    head: usize,
}

/// The end that values come out at.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    next: usize,
    head: usize,
    /// Values readable, as last seen.
    tail: usize,
}

/// A ring for `capacity` values, rounded up to a power of two. Memory is touched as it is used.
pub fn ring<T: Copy + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.clamp(2, 1 << 24).next_power_of_two();
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared { tail: Count(AtomicUsize::new(0)), head: Count(AtomicUsize::new(0)), slots });
    (Producer { shared: shared.clone(), next: 0, tail: 0, head: 0 }, Consumer { shared, next: 0, head: 0, tail: 0 })
}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The capacity is a power of two.
        &self.slots[count & (self.slots.len() - 1)]
    }
}

impl<T: Copy + Send> Producer<T> {
    /// Values that a cache line holds, a power of two.
    const OF_A_LINE: usize =
        if size_of::<T>() == 0 { 1 } else { 1 << if size_of::<T>() > 64 { 0 } else { (64 / size_of::<T>()).ilog2() } };

    /// Puts a value in; it is readable after [`publish`](Self::publish).
    ///
    /// # Errors
    /// The value, where the ring is full.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let capacity = self.shared.slots.len();
        if self.next.wrapping_sub(self.head) == capacity {
            self.head = self.shared.head.0.load(Ordering::Acquire);
            if self.next.wrapping_sub(self.head) == capacity {
                return Err(value);
            }
        }
        self.shared.slot(self.next).with_mut(|slot| {
            // SAFETY: count next is at least tail and below head + capacity: the consumer does not look here (see `Shared`).
            unsafe { (*slot).write(value) };
        });
        self.next = self.next.wrapping_add(1);
        if self.next.is_multiple_of(Self::OF_A_LINE) {
            // The consumer has read that line last and has it. It is fetched while others are filled.
            self.shared.slot(self.next.wrapping_add(AHEAD * Self::OF_A_LINE)).with(crate::cpu::prefetch_write);
        }
        Ok(())
    }

    /// Whether there is room for so many values, which is at most the capacity.
    #[inline(always)]
    pub fn has_room(&mut self, values: usize) -> bool {
        let capacity = self.shared.slots.len();
        if self.next.wrapping_sub(self.head) + values > capacity {
            self.head = self.shared.head.0.load(Ordering::Acquire);
        }
        self.next.wrapping_sub(self.head) + values <= capacity
    }

    /// Makes everything that was pushed readable; `false` where there was nothing.
    #[inline(always)]
    pub fn publish(&mut self) -> bool {
        if self.tail == self.next {
            return false;
        }
        self.tail = self.next;
        self.shared.tail.0.store(self.tail, Ordering::Release);
        true
    }

    /// Values for which there is room.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Copy + Send> Consumer<T> {
    /// The next value. Its slot is free for others after [`release`](Self::release).
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.next == self.tail {
            self.tail = self.shared.tail.0.load(Ordering::Acquire);
            if self.next == self.tail {
                return None;
            }
        }
        let value = self.shared.slot(self.next).with(|slot| {
            // SAFETY: count next is at least head and below tail: the producer has written it and does not look here.
            unsafe { (*slot).assume_init() }
        });
        self.next = self.next.wrapping_add(1);
        Some(value)
    }

    /// Gives the slots of everything popped so far back.
    #[inline(always)]
    pub fn release(&mut self) {
        if self.head != self.next {
            self.head = self.next;
            self.shared.head.0.store(self.head, Ordering::Release);
        }
    }

    /// Whether nothing is readable now.
    pub fn is_empty(&self) -> bool {
        self.next == self.shared.tail.0.load(Ordering::Acquire)
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("pushed", &self.next).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("popped", &self.next).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    #[test]
    fn loom_values_come_out_as_they_went_in() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring::<u32>(2);
            let sender = thread::spawn(move || {
                let mut sent = 0;
                for value in 0..3 {
                    if producer.push(value).is_ok() {
                        sent += 1;
                    } else {
                        break;
                    }
                    producer.publish();
                }
                sent
            });
            let mut got = 0;
            for _ in 0..2 {
                while let Some(value) = consumer.pop() {
                    assert_eq!(value, got);
                    got += 1;
                }
                consumer.release();
            }
            let sent = sender.join().unwrap();
            while let Some(value) = consumer.pop() {
                assert_eq!(value, got);
                got += 1;
            }
            assert_eq!(got, sent);
            assert!(consumer.is_empty());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_ring_does_what_a_queue_does() {
        for capacity in [2, 3, 4, 8] {
            let (mut producer, mut consumer) = ring::<u32>(capacity);
            let capacity = producer.capacity();
            let (mut model, mut readable, mut held) = (VecDeque::new(), 0, 0);
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            for n in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                match state >> 62 {
                    0 | 1 => {
                        let full = model.len() + held == capacity;
                        for values in 0..=capacity {
                            assert_eq!(producer.has_room(values), model.len() + held + values <= capacity);
                        }
                        assert_eq!(producer.push(n), if full { Err(n) } else { Ok(()) });
                        if !full {
                            model.push_back(n);
                        }
                    }
                    2 => {
                        assert_eq!(producer.publish(), readable < model.len());
                        readable = model.len();
                    }
                    _ => {
                        assert_eq!(consumer.is_empty(), readable == 0);
                        for _ in 0..state >> 32 & 3 {
                            let expected = (readable > 0).then(|| model.pop_front().unwrap());
                            assert_eq!(consumer.pop(), expected);
                            readable -= usize::from(expected.is_some());
                            held += usize::from(expected.is_some());
                        }
                        if state >> 40 & 1 == 0 {
                            consumer.release();
                            held = 0;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn two_threads_lose_double_and_reorder_nothing() {
        let (mut producer, mut consumer) = ring::<[u64; 3]>(64);
        const COUNT: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut n = 0;
                while n < COUNT {
                    for _ in 0..1 + n % 17 {
                        if n < COUNT && producer.push([n, !n, n * 3]).is_ok() {
                            n += 1;
                        }
                    }
                    if !producer.publish() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < COUNT {
                while let Some(value) = consumer.pop() {
                    assert_eq!(value, [expected, !expected, expected * 3]);
                    expected += 1;
                }
                consumer.release();
                std::thread::yield_now();
            }
        });
        assert!(consumer.is_empty());
    }
}
