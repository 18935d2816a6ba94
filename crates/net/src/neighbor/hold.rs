//! Packets that wait for their neighbour, on one thread.
//!
//! RFC 1122, 2.3.2.2 and RFC 4861, 7.2.2 ask for a small queue for each neighbour. Everything is bounded: neighbours, packets,
//! and requests a second, in all and for each [`Owner`] (who sends the packets, [`owner`]). When a limit is reached, the owner
//! that has the most gives up what it has waited for longest, so a scan of a big prefix pushes out its own packets.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_graph::{IfIndex, Packet};

use super::rate::Buckets;
use crate::ip::FamilyId;
use crate::owner::{Counts, Owner};

/// Packets held for one neighbour, unless configured otherwise.
pub(crate) const PACKETS_EACH: u32 = 4;
/// Most packets that may be configured to be held for one neighbour.
pub(crate) const PACKETS_EACH_MAX: u32 = 64;
/// Neighbours that a thread waits for, and those that one owner makes it wait for.
pub(crate) const WAITING_MAX: usize = 1024;
const WAITING_OWNER: usize = WAITING_MAX / 4;
/// Packets that a thread holds in all, a small part of its share of the buffers; and those of one owner.
pub(crate) const PACKETS_MAX: usize = 512;
const PACKETS_OWNER: usize = PACKETS_MAX / 4;
/// How long a thread waits for a neighbour before it asks anew; main, which repeats requests, decides in 3 s.
pub(crate) const PATIENCE: u64 = 5_000_000_000;

/// A neighbour: where, and which address.
pub(crate) type Key = (IfIndex, IpAddr);

/// What to do with a packet whose neighbour is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Ask for the neighbour, and hold the packet.
    Ask,
    /// It has been asked for, and does not answer: ask for it again, and hold the packet. Main knows of it.
    AskAgain,
    /// It has been asked for: hold the packet.
    Wait,
    /// Too many requests: drop it.
    Throttled,
    /// Too many requests for packets of this source: drop it.
    SourceThrottled,
}

/// What the user sets of a family; all threads read it.
#[derive(Debug)]
struct Setting {
    /// Packets held for one neighbour.
    packets: AtomicU32,
    /// Milliseconds after which a packet asks again; 0: it does not.
    interval: AtomicU32,
}

impl Default for Setting {
    fn default() -> Self {
        Self { packets: AtomicU32::new(PACKETS_EACH), interval: AtomicU32::new(0) }
    }
}

/// The settings, by family.
type Settings = Arc<[Setting; 2]>;

struct Waiting {
    packets: VecDeque<(Packet, Owner)>,
    since: u64,
    /// When this thread asked last.
    asked: u64,
    /// Whose packet made the thread wait.
    owner: Owner,
    /// Tells this entry from an earlier one of the same neighbour in `order`.
    number: u64,
}

/// The packets of one thread.
pub(crate) struct Hold {
    waiting: HashMap<Key, Waiting>,
    /// By owner, oldest first; entries of neighbours that wait no more are passed over.
    order: HashMap<Owner, VecDeque<(Key, u64)>>,
    /// Neighbours waited for, and packets held, by owner.
    neighbors: Counts,
    packets: Counts,
    /// Where an owner's packets are: neighbours by number, with how many each has. What gives way is found at once, since a peer may
    /// send at full speed to neighbours that do not answer.
    held: HashMap<Owner, BTreeMap<u64, (Key, usize)>>,
    next_number: u64,
    requests: Buckets,
    count: Arc<AtomicUsize>,
    settings: Settings,
}

impl Hold {
    fn new(count: Arc<AtomicUsize>, settings: Settings) -> Self {
        Self {
            waiting: HashMap::with_capacity(WAITING_MAX),
            order: HashMap::new(),
            neighbors: Counts::default(),
            packets: Counts::default(),
            held: HashMap::new(),
            next_number: 0,
            requests: Buckets::default(),
            count,
            settings,
        }
    }

    /// Whether to ask for a neighbour now, for a packet of `owner`. Packets that must give way go to `out`.
    pub fn advise(&mut self, key: Key, owner: Owner, now: u64, out: &mut Vec<Packet>) -> Advice {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            if now.saturating_sub(waiting.since) < PATIENCE {
                let interval = self.settings[FamilyId::of(&key.1) as usize].interval.load(Ordering::Relaxed);
                let again = interval > 0 && now.saturating_sub(waiting.asked) >= u64::from(interval) * 1_000_000;
                if !again || self.requests.take(owner, now).is_err() {
                    return Advice::Wait;
                }
                waiting.asked = now;
                return Advice::AskAgain;
            }
            if let Err(advice) = self.requests.take(owner, now) {
                return advice;
            }
            (waiting.since, waiting.asked) = (now, now);
            return Advice::Ask;
        }
        if let Err(advice) = self.requests.take(owner, now) {
            return advice;
        }
        if self.neighbors.of(owner) >= WAITING_OWNER {
            self.give_up_oldest(owner, out);
        }
        while self.waiting.len() >= WAITING_MAX
            && let Some(greediest) = self.neighbors.greediest()
        {
            self.give_up_oldest(greediest, out);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.remember(owner, key, number);
        self.waiting.insert(key, Waiting { packets: VecDeque::new(), since: now, asked: now, owner, number });
        self.neighbors.add(owner, 1);
        self.count.store(self.waiting.len(), Ordering::Release);
        Advice::Ask
    }

    fn remember(&mut self, owner: Owner, key: Key, number: u64) {
        let order = self.order.entry(owner).or_default();
        order.push_back((key, number));
        // Neighbours that were found collect here; when they are most of it, it is cleaned.
        if order.len() > 2 * WAITING_OWNER {
            let waiting = &self.waiting;
            order.retain(|(k, n)| *n == number || waiting.get(k).is_some_and(|w| w.number == *n));
        }
    }

    /// Holds a packet for a neighbour that [`Hold::advise`] was asked about. What must give way goes to `out`.
    pub fn keep(&mut self, key: Key, owner: Owner, packet: Packet, out: &mut Vec<Packet>) {
        while self.packets.of(owner) >= PACKETS_OWNER || self.packets.total() >= PACKETS_MAX {
            let from = if self.packets.of(owner) >= PACKETS_OWNER { Some(owner) } else { self.packets.greediest() };
            let Some(old) = from.and_then(|owner| self.oldest_of(owner)) else { break };
            out.push(old);
        }
        let Some(waiting) = self.waiting.get_mut(&key) else { return out.push(packet) };
        waiting.packets.push_back((packet, owner));
        let number = waiting.number;
        self.packets.add(owner, 1);
        self.held.entry(owner).or_default().entry(number).or_insert((key, 0)).1 += 1;
        let each = self.settings[FamilyId::of(&key.1) as usize].packets.load(Ordering::Relaxed) as usize;
        // More than one where fewer may be held than before.
        while waiting.packets.len() > each {
            // Whoever has the most packets here loses its oldest, so that nobody pushes out another's only one.
            let mine = |owner: Owner| waiting.packets.iter().filter(|(_, o)| *o == owner).count();
            let most = waiting.packets.iter().map(|(_, o)| mine(*o)).max().unwrap_or(0);
            let at = waiting.packets.iter().position(|(_, o)| mine(*o) == most);
            let Some((old, owner)) = at.and_then(|at| waiting.packets.remove(at)) else { break };
            Self::release(&mut self.packets, &mut self.held, owner, number);
            out.push(old);
        }
    }

    /// Notes that a neighbour has a packet of an owner less.
    fn release(packets: &mut Counts, held: &mut HashMap<Owner, BTreeMap<u64, (Key, usize)>>, owner: Owner, number: u64) {
        packets.sub(owner, 1);
        let Some(of_owner) = held.get_mut(&owner) else { return };
        if let Some((_, count)) = of_owner.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                of_owner.remove(&number);
            }
        }
        if of_owner.is_empty() {
            held.remove(&owner);
        }
    }

    /// The packet of an owner that has waited for the neighbour asked for longest; taken out.
    fn oldest_of(&mut self, owner: Owner) -> Option<Packet> {
        let (number, (key, _)) = self.held.get(&owner)?.first_key_value()?;
        let (number, packets) = (*number, &mut self.waiting.get_mut(key)?.packets);
        let at = packets.iter().position(|(_, o)| *o == owner)?;
        let (packet, _) = packets.remove(at)?;
        Self::release(&mut self.packets, &mut self.held, owner, number);
        Some(packet)
    }

    /// Ends the wait for a neighbour and gives its packets, oldest first.
    pub fn end(&mut self, key: &Key, out: &mut Vec<Packet>) {
        if let Some(waiting) = self.waiting.remove(key) {
            self.neighbors.sub(waiting.owner, 1);
            for (packet, owner) in waiting.packets {
                Self::release(&mut self.packets, &mut self.held, owner, waiting.number);
                out.push(packet);
            }
            self.count.store(self.waiting.len(), Ordering::Release);
        }
        if self.waiting.is_empty() {
            self.order.clear();
        }
    }

    fn give_up_oldest(&mut self, owner: Owner, out: &mut Vec<Packet>) {
        while let Some((key, number)) = self.order.get_mut(&owner).and_then(VecDeque::pop_front) {
            if self.waiting.get(&key).is_some_and(|w| w.number == number) {
                return self.end(&key, out);
            }
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

/// A thread's hold, shared by its nodes and by what main sends to the thread: the lock is only ever taken on that thread,
/// so nobody waits for it.
pub(crate) struct ThreadHold {
    hold: Mutex<Hold>,
    count: Arc<AtomicUsize>,
}

impl ThreadHold {
    fn new(settings: Settings) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        Self { hold: Mutex::new(Hold::new(count.clone(), settings)), count }
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
pub(crate) struct Holds {
    threads: Arc<Mutex<BTreeMap<usize, Arc<ThreadHold>>>>,
    settings: Settings,
}

impl Holds {
    /// The hold of a thread, made at the first call.
    pub fn of(&self, thread: usize) -> Arc<ThreadHold> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.entry(thread).or_insert_with(|| Arc::new(ThreadHold::new(self.settings.clone()))).clone()
    }

    /// Sets how many packets are held for a neighbour of a family, at most [`PACKETS_EACH_MAX`], and after how many milliseconds a packet
    /// asks again; 0: it does not. Threads take it from their next packet on.
    pub fn configure(&self, family: FamilyId, packets: u32, interval: u32) {
        let setting = &self.settings[family as usize];
        setting.packets.store(packets.min(PACKETS_EACH_MAX), Ordering::Relaxed);
        setting.interval.store(interval, Ordering::Relaxed);
    }

    /// Threads that wait for a neighbour.
    pub fn waiting(&self) -> Vec<(usize, Arc<ThreadHold>)> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().filter(|(_, h)| h.waiting() > 0).map(|(t, h)| (*t, h.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    fn key(n: u32) -> Key {
        (IfIndex(1), std::net::Ipv4Addr::from_bits(n).into())
    }

    fn hold() -> Hold {
        Hold::new(Arc::default(), Settings::default())
    }

    const A: Owner = Owner::new(1, 1);
    const B: Owner = Owner::new(1, 2);
    const START: u64 = 1_000_000_000_000;

    #[test]
    fn a_neighbour_is_asked_for_once_until_patience_ends() {
        let mut hold = hold();
        let now = START;
        let mut out = Vec::new();
        assert_eq!(hold.advise(key(1), A, now, &mut out), Advice::Ask);
        assert_eq!(hold.advise(key(1), B, now + PATIENCE - 1, &mut out), Advice::Wait);
        assert_eq!(hold.advise(key(1), A, now + PATIENCE, &mut out), Advice::Ask);
        assert_eq!(hold.advise(key(1), A, now + PATIENCE + 1, &mut out), Advice::Wait);
        hold.end(&key(1), &mut out);
        assert_eq!(hold.advise(key(1), A, now + PATIENCE + 2, &mut out), Advice::Ask);
    }

    #[test]
    fn packets_ask_again_after_the_interval_that_is_set_for_their_family() {
        let holds = Holds::default();
        let (thread, mut out) = (holds.of(0), Vec::new());
        let mut hold = thread.lock();
        assert_eq!(hold.advise(key(1), A, START, &mut out), Advice::Ask);
        holds.configure(FamilyId::V6, 4, 1);
        assert_eq!(hold.advise(key(1), A, START + 4_000_000_000, &mut out), Advice::Wait, "the other family's setting");
        holds.configure(FamilyId::V4, 4, 20);
        assert_eq!(hold.advise(key(1), A, START + 19_999_999, &mut out), Advice::Wait);
        assert_eq!(hold.advise(key(1), B, START + 20_000_000, &mut out), Advice::AskAgain);
        assert_eq!(hold.advise(key(1), A, START + 39_999_999, &mut out), Advice::Wait);
        // A source that may not ask has its packets held all the same.
        while hold.requests.take(A, START + 40_000_000).is_ok() {}
        assert_eq!(hold.advise(key(1), A, START + 40_000_000, &mut out), Advice::Wait);
        assert_eq!(hold.advise(key(1), B, START + 40_000_000, &mut out), Advice::AskAgain);
    }

    #[test]
    fn a_scan_is_throttled_and_takes_no_more_than_its_share() {
        let mut hold = hold();
        let mut out = Vec::new();
        let asked = (0..65_536).filter(|n| hold.advise(key(*n), A, START, &mut out) == Advice::Ask).count();
        assert!((1..=1000).contains(&asked), "{asked}");
        assert_eq!(hold.advise(key(70_000), A, START, &mut out), Advice::SourceThrottled);
        assert_eq!(hold.advise(key(70_000), B, START, &mut out), Advice::Ask, "another source is not throttled");
        for n in 0..65_536_u32 {
            hold.advise(key(n), A, START + u64::from(n) * 1_000_000, &mut out);
            assert!(hold.neighbors.of(A) <= WAITING_OWNER && hold.order.values().all(|o| o.len() <= 2 * WAITING_OWNER + 1));
        }
        hold.expire(u64::MAX, &mut out);
        assert!(hold.waiting.is_empty() && hold.order.is_empty() && out.is_empty());
        assert_eq!((hold.neighbors.total(), hold.packets.total()), (0, 0));
    }

    #[test]
    fn whoever_waits_for_many_gives_way_and_one_who_waits_for_one_stays() {
        let mut hold = hold();
        let mut out = Vec::new();
        let quiet = Owner::new(1, 63);
        hold.advise(key(0), quiet, START, &mut out);
        // More sources than there is room for, each as fast as it may be, on two interfaces.
        let mut now = START;
        for n in 1..100_000_u32 {
            now += 1_000_000;
            hold.advise(key(n), Owner::new(1 + n % 2, n % 62), now.min(START + PATIENCE - 1), &mut out);
        }
        assert!(hold.waiting.len() <= WAITING_MAX);
        assert_eq!(hold.advise(key(0), quiet, START + 1, &mut out), Advice::Wait, "it still waits");
    }

    #[test]
    fn packets_of_others_stay_when_one_source_sends_many() {
        let mut h = Harness::new();
        let x = h.interface(0);
        let (node, thread) = (h.router.graph.node("ip4-arp").unwrap(), h.router.graph.fleet().threads()[0]);
        let test = move |cx: &mut quiver_graph::NodeCx<'_>| {
            let mut hold = hold();
            let mut out = Vec::new();
            let mut packet = |n: u32| cx.alloc_bytes(&n.to_be_bytes(), x).expect("a buffer");
            hold.advise(key(1), B, START, &mut out);
            hold.keep(key(1), B, packet(1), &mut out);
            // To the same neighbour.
            for n in 0..20 {
                hold.keep(key(1), A, packet(100 + n), &mut out);
            }
            assert_eq!((hold.packets.of(A), hold.packets.of(B), out.len()), (PACKETS_EACH as usize - 1, 1, 17));
            // To many neighbours.
            for n in 0..600_u32 {
                hold.advise(key(1000 + n), A, START + u64::from(n) * 1_000_000, &mut out);
                hold.keep(key(1000 + n), A, packet(n), &mut out);
                assert!(hold.packets.of(A) <= PACKETS_OWNER);
            }
            assert_eq!(hold.packets.of(B), 1);
            let mut rest = Vec::new();
            hold.end(&key(1), &mut rest);
            assert_eq!(hold.packets.of(B), 0);
            // To those that it waits for already: packets give way by when the neighbour was asked for.
            let waiting: Vec<Key> = hold.held[&A].values().map(|(key, _)| *key).collect();
            assert_eq!(hold.held[&A].values().map(|(_, count)| count).sum::<usize>(), PACKETS_OWNER);
            hold.keep(waiting[5], A, packet(1), &mut out);
            assert_eq!(hold.waiting[&waiting[0]].packets.len(), 0, "the first one's went");
            hold.end_where(|_| true, &mut rest);
            assert_eq!((hold.packets.total(), hold.neighbors.total(), hold.held.len()), (0, 0, 0));
            for packet in out.into_iter().chain(rest) {
                cx.free(packet);
            }
        };
        h.router.graph.fleet().on(thread, move |w| w.at_node(node, test));
        h.assert_buffers_held(0);
    }
}
