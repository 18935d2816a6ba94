//! What nodes tell the main thread, through bounded channels and a wake-up. A full channel is counted, never waited for: what
//! got lost comes again with the next packet.
//!
//! There is a channel for each kind of fact, so that a flood of one kind does not take the place of another: what packets want,
//! answers to our own requests ([`Asked`]), and what neighbours say unasked. Of the last, each interface has a share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::asked::Asked;
use super::state::{Evidence, SECOND};
use crate::router::ProcessSignal;

/// Facts of each kind under way at a time.
const CHANNEL: usize = 2048;
/// Facts under way that the neighbours of one interface said unasked.
const UNASKED: u16 = 256;
/// Interfaces share counters of these, by index.
const SHARES: usize = 256;
/// Facts that a node remembers having told.
const TOLD: usize = 256;
/// For how long it does not tell the same again.
const TOLD_TIME: u64 = SECOND / 10;

/// One thing that a node found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub interface: IfIndex,
    pub address: IpAddr,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A packet wants to go there; a first request was sent.
    Wanted,
    /// A neighbour spoke. `create`: it spoke to us, so it is worth an entry of its own.
    Heard { evidence: Evidence, create: bool },
    /// Somebody else uses our address.
    Conflict(MacAddr),
    /// A host asks for a router advertisement.
    Solicited(Option<MacAddr>),
}

/// Nodes' end of the channels.
#[derive(Clone)]
pub(crate) struct FactSender {
    wanted: Sender<Fact>,
    answers: Sender<Fact>,
    unasked: Sender<Fact>,
    /// Facts of `unasked` under way, by interface.
    shares: Arc<[AtomicU16]>,
    /// What this router has asked lately.
    pub asked: Arc<Asked>,
    signal: ProcessSignal,
    /// Changes when main forgets or changes something: what was told before then may have to be told again.
    epoch: Arc<AtomicU32>,
}

/// Main's end of the channels.
pub(crate) struct FactReceiver {
    wanted: Receiver<Fact>,
    answers: Receiver<Fact>,
    unasked: Receiver<Fact>,
    shares: Arc<[AtomicU16]>,
}

/// Makes the channels; the number is bumped by main.
pub(crate) fn channel(signal: ProcessSignal) -> (FactSender, FactReceiver, Arc<AtomicU32>) {
    let epoch = Arc::new(AtomicU32::new(0));
    let [(wanted, wanted_end), (answers, answers_end), (unasked, unasked_end)] = [(); 3].map(|()| bounded(CHANNEL));
    let shares: Arc<[AtomicU16]> = (0..SHARES).map(|_| AtomicU16::new(0)).collect();
    let receiver = FactReceiver { wanted: wanted_end, answers: answers_end, unasked: unasked_end, shares: shares.clone() };
    let sender = FactSender { wanted, answers, unasked, shares, asked: Arc::default(), signal, epoch: epoch.clone() };
    (sender, receiver, epoch)
}

impl FactSender {
    /// Tells main. `false` where the channel is full, or the interface's share of it.
    pub fn tell(&self, fact: Fact, now: u64) -> bool {
        let told = match fact.what {
            What::Wanted => self.wanted.try_send(fact).is_ok(),
            What::Heard { .. } if self.asked.knows(&(fact.interface, fact.address), now) => self.answers.try_send(fact).is_ok(),
            _ => self.tell_unasked(fact),
        };
        self.signal.raise();
        told
    }

    fn tell_unasked(&self, fact: Fact) -> bool {
        let share = &self.shares[fact.interface.0 as usize % SHARES];
        if share.fetch_add(1, Ordering::Relaxed) >= UNASKED || self.unasked.try_send(fact).is_err() {
            share.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }
}

impl FactReceiver {
    /// At most `each` of each kind; and whether there may be more.
    pub fn take(&self, each: usize) -> (Vec<Fact>, bool) {
        let mut facts = Vec::new();
        let mut more = false;
        for ring in [&self.answers, &self.wanted, &self.unasked] {
            let before = facts.len();
            facts.extend(ring.try_iter().take(each));
            more |= facts.len() - before == each;
            if std::ptr::eq(ring, &raw const self.unasked) {
                for fact in &facts[before..] {
                    self.shares[fact.interface.0 as usize % SHARES].fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        (facts, more)
    }
}

/// Tells main what neighbours say, but not the same thing twice in a moment: a neighbour that asks a thousand times a
/// second, or a loop of requests, costs main nothing.
#[derive(Clone)]
pub(crate) struct Teller {
    facts: FactSender,
    told: Vec<Option<(Fact, u64)>>,
    epoch: u32,
}

impl Teller {
    pub fn new(facts: FactSender) -> Self {
        Self { facts, told: vec![None; TOLD], epoch: 0 }
    }

    /// Tells main unless it has just been told; `false` where the channel is full.
    pub fn tell(&mut self, fact: Fact, now: u64) -> bool {
        let epoch = self.facts.epoch.load(Ordering::Relaxed);
        if epoch != self.epoch {
            self.told.fill(None);
            self.epoch = epoch;
        }
        let slot = &mut self.told[slot(&fact)];
        if slot.is_some_and(|(f, at)| f == fact && now.saturating_sub(at) < TOLD_TIME) {
            return true;
        }
        *slot = Some((fact, now));
        self.facts.tell(fact, now)
    }
}

/// Facts of one neighbour share a slot, so that a new MAC address pushes out the old one.
fn slot(fact: &Fact) -> usize {
    let number = match fact.address {
        IpAddr::V4(a) => u64::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits() as u64 ^ (a.to_bits() >> 64) as u64,
    };
    let mixed = (number ^ u64::from(fact.interface.0) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % TOLD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    #[test]
    fn the_same_fact_is_told_once_in_a_while_and_again_after_a_change() {
        let h = Harness::new();
        let (sender, receiver, epoch) = channel(h.router.process_signal("x"));
        let mut teller = Teller::new(sender);
        let fact = |n: u8| Fact {
            interface: IfIndex(1),
            address: IpAddr::from([10, 0, 0, 1]),
            what: What::Heard { evidence: Evidence::Seen(MacAddr([2, 0, 0, 0, 0, n])), create: true },
        };
        let mut told = |n, now| {
            teller.tell(fact(n), now);
            receiver.take(99).0.len()
        };
        assert_eq!([told(1, 0), told(1, 1), told(2, 2), told(1, 3), told(1, 4), told(1, TOLD_TIME + 3)], [1, 0, 1, 1, 0, 1]);
        epoch.fetch_add(1, Ordering::Relaxed);
        assert_eq!([told(1, TOLD_TIME + 4), told(1, TOLD_TIME + 5)], [1, 0]);
    }

    #[test]
    fn a_flood_of_one_interface_leaves_the_channels_to_others() {
        let h = Harness::new();
        let (sender, receiver, _) = channel(h.router.process_signal("x"));
        let what = What::Heard { evidence: Evidence::Seen(MacAddr([2, 0, 0, 0, 0, 1])), create: true };
        let fact = |i: u32, n: u32| Fact { interface: IfIndex(i), address: std::net::Ipv4Addr::from_bits(n).into(), what };
        let told = (0..10_000).filter(|n| sender.tell(fact(1, *n), 0)).count();
        assert_eq!(told, usize::from(UNASKED), "the interface's share");
        assert!(sender.tell(fact(2, 1), 0), "another interface has its own");
        sender.asked.note(&(IfIndex(1), std::net::Ipv4Addr::from_bits(77_777).into()), 0);
        assert!(sender.tell(fact(1, 77_777), SECOND), "an answer is not one of the flood");
        assert!(sender.tell(Fact { what: What::Wanted, ..fact(1, 5) }, 0));
        let (first, more) = receiver.take(64);
        assert_eq!((first.len(), more, first[0].address), (66, true, std::net::Ipv4Addr::from_bits(77_777).into()));
        while receiver.take(64).1 {}
        assert!(sender.tell(fact(1, 1), 0) && receiver.shares.iter().map(|s| s.load(Ordering::Relaxed)).sum::<u16>() == 1);
    }

    #[test]
    fn a_full_channel_is_told_and_loses_nothing_older() {
        let h = Harness::new();
        let (sender, receiver, _) = channel(h.router.process_signal("x"));
        let fact = |n: u32| Fact { interface: IfIndex(n), address: IpAddr::from([10, 0, 0, 1]), what: What::Wanted };
        assert!((0..CHANNEL as u32).all(|n| sender.tell(fact(n), 0)));
        assert!(!sender.tell(fact(0), 0));
        assert_eq!(receiver.take(CHANNEL).0.last(), Some(&fact(CHANNEL as u32 - 1)));
    }
}
