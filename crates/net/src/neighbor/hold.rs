//! Packets that wait for their neighbour, on one thread.
//!
//! RFC 1122, 2.3.2.2 and RFC 4861, 7.2.2 ask for a small queue for each neighbour; when it is full the newest packet takes
//! the place of the oldest. Everything is bounded: neighbours, packets, and requests a second. A scan of a big prefix pushes
//! out those that have waited longest.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_graph::{IfIndex, Packet};

/// Packets held for one neighbour.
pub(crate) const PACKETS_EACH: usize = 4;
/// Neighbours that a thread waits for.
pub(crate) const WAITING_MAX: usize = 1024;
/// Packets that a thread holds in all: a small part of its share of the buffers.
pub(crate) const PACKETS_MAX: usize = 512;
/// How long a thread waits for a neighbour before it asks anew; main, which repeats requests, decides in 3 s.
pub(crate) const PATIENCE: u64 = 5_000_000_000;
/// Requests for neighbours that a thread sends: one in 100 µs, and so many at once.
const REQUEST_INTERVAL: u64 = 100_000;
const REQUEST_BURST: u64 = 1_000;

/// A neighbour: where, and which address.
pub(crate) type Key = (IfIndex, IpAddr);

/// What to do with a packet whose neighbour is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Ask for the neighbour, and hold the packet.
    Ask,
    /// It has been asked for: hold the packet.
    Wait,
    /// Too many requests: drop it.
    Throttled,
}

struct Waiting {
    packets: VecDeque<Packet>,
    since: u64,
    /// Tells this entry from an earlier one of the same neighbour in `order`.
    number: u64,
}

/// The packets of one thread.
pub(crate) struct Hold {
    waiting: HashMap<Key, Waiting>,
    /// Oldest first; entries of neighbours that wait no more are passed over.
    order: VecDeque<(Key, u64)>,
    packets: usize,
    next_number: u64,
    /// When the next request would be due at the steady rate.
    next_request: u64,
    count: Arc<AtomicUsize>,
}

impl Hold {
    fn new(count: Arc<AtomicUsize>) -> Self {
        Self {
            waiting: HashMap::with_capacity(WAITING_MAX),
            order: VecDeque::with_capacity(2 * WAITING_MAX),
            packets: 0,
            next_number: 0,
            next_request: 0,
            count,
        }
    }

    /// Whether to ask for a neighbour now. Packets that must give way go to `out`.
    pub fn advise(&mut self, key: Key, now: u64, out: &mut Vec<Packet>) -> Advice {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            if now.saturating_sub(waiting.since) < PATIENCE {
                return Advice::Wait;
            }
            if !take_token(&mut self.next_request, now) {
                return Advice::Throttled;
            }
            waiting.since = now;
            return Advice::Ask;
        }
        if !take_token(&mut self.next_request, now) {
            return Advice::Throttled;
        }
        while self.waiting.len() >= WAITING_MAX || self.order.len() >= 2 * WAITING_MAX {
            self.give_up_oldest(out);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.push_back((key, number));
        self.waiting.insert(key, Waiting { packets: VecDeque::new(), since: now, number });
        self.count.store(self.waiting.len(), Ordering::Release);
        Advice::Ask
    }

    /// Holds a packet for a neighbour that [`Hold::advise`] was asked about. What must give way goes to `out`.
    pub fn keep(&mut self, key: Key, packet: Packet, out: &mut Vec<Packet>) {
        while self.packets >= PACKETS_MAX && self.order.front().is_some_and(|(k, _)| *k != key) {
            self.give_up_oldest(out);
        }
        let Some(waiting) = self.waiting.get_mut(&key) else { return out.push(packet) };
        if waiting.packets.len() >= PACKETS_EACH || self.packets >= PACKETS_MAX {
            match waiting.packets.pop_front() {
                Some(old) => out.push(old),
                None => return out.push(packet),
            }
            self.packets -= 1;
        }
        waiting.packets.push_back(packet);
        self.packets += 1;
    }

    /// Ends the wait for a neighbour and gives its packets, oldest first.
    pub fn end(&mut self, key: &Key, out: &mut Vec<Packet>) {
        if let Some(waiting) = self.waiting.remove(key) {
            self.packets -= waiting.packets.len();
            out.extend(waiting.packets);
            self.count.store(self.waiting.len(), Ordering::Release);
        }
        if self.waiting.is_empty() {
            self.order.clear();
        }
    }

    fn give_up_oldest(&mut self, out: &mut Vec<Packet>) {
        let Some((key, number)) = self.order.pop_front() else { return };
        if self.waiting.get(&key).is_some_and(|w| w.number == number) {
            self.end(&key, out);
        }
    }

    /// Ends the wait for all neighbours that `done` names, such as those of an interface that goes.
    pub fn end_where(&mut self, done: impl Fn(&Key) -> bool, out: &mut Vec<Packet>) {
        let keys: Vec<Key> = self.waiting.keys().filter(|k| done(k)).copied().collect();
        for key in keys {
            self.end(&key, out);
        }
    }

    /// Ends waits that main has not decided: what it was told of them got lost.
    pub fn expire(&mut self, now: u64, out: &mut Vec<Packet>) {
        let old: Vec<Key> = self.waiting.iter().filter(|(_, w)| now.saturating_sub(w.since) >= PATIENCE).map(|(k, _)| *k).collect();
        for key in old {
            self.end(&key, out);
        }
    }
}

/// Steady rate with a burst (the "virtual scheduling" form of a token bucket).
fn take_token(next: &mut u64, now: u64) -> bool {
    let earliest = now.saturating_sub(REQUEST_BURST * REQUEST_INTERVAL);
    let due = (*next).max(earliest);
    if due > now {
        return false;
    }
    *next = due + REQUEST_INTERVAL;
    true
}

/// A thread's hold, shared by its nodes and by what main sends to the thread: the lock is only ever taken on that thread,
/// so nobody waits for it.
pub(crate) struct ThreadHold {
    hold: Mutex<Hold>,
    count: Arc<AtomicUsize>,
}

impl ThreadHold {
    fn new() -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        Self { hold: Mutex::new(Hold::new(count.clone())), count }
    }

    pub fn lock(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Neighbours waited for.
    pub fn waiting(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

/// The holds of all threads.
#[derive(Clone, Default)]
pub(crate) struct Holds(Arc<Mutex<BTreeMap<usize, Arc<ThreadHold>>>>);

impl Holds {
    /// The hold of a thread, made at the first call.
    pub fn of(&self, thread: usize) -> Arc<ThreadHold> {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.entry(thread).or_insert_with(|| Arc::new(ThreadHold::new())).clone()
    }

    /// Threads that wait for a neighbour.
    pub fn waiting(&self) -> Vec<(usize, Arc<ThreadHold>)> {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().filter(|(_, h)| h.waiting() > 0).map(|(t, h)| (*t, h.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        (IfIndex(1), std::net::Ipv4Addr::from_bits(n).into())
    }

    fn hold() -> Hold {
        Hold::new(Arc::default())
    }

    #[test]
    fn a_neighbour_is_asked_for_once_until_patience_ends() {
        let mut hold = hold();
        let now = 1_000_000_000_000;
        let mut out = Vec::new();
        assert_eq!(hold.advise(key(1), now, &mut out), Advice::Ask);
        assert_eq!(hold.advise(key(1), now + PATIENCE - 1, &mut out), Advice::Wait);
        assert_eq!(hold.advise(key(1), now + PATIENCE, &mut out), Advice::Ask);
        assert_eq!(hold.advise(key(1), now + PATIENCE + 1, &mut out), Advice::Wait);
        hold.end(&key(1), &mut out);
        assert_eq!(hold.advise(key(1), now + PATIENCE + 2, &mut out), Advice::Ask);
    }

    #[test]
    fn a_scan_is_throttled_and_takes_no_more_than_its_room() {
        let mut hold = hold();
        let now = 1_000_000_000_000;
        let mut out = Vec::new();
        let asked = (0..65_536).filter(|n| hold.advise(key(*n), now, &mut out) == Advice::Ask).count();
        assert_eq!(asked as u64, REQUEST_BURST + 1);
        for n in 0..65_536_u32 {
            hold.advise(key(n), now + u64::from(n) * REQUEST_INTERVAL, &mut out);
            assert!(hold.waiting.len() <= WAITING_MAX && hold.order.len() <= 2 * WAITING_MAX);
        }
        hold.expire(u64::MAX, &mut out);
        assert!(hold.waiting.is_empty() && hold.order.is_empty() && out.is_empty());
    }
}
