//! What nodes tell the main thread, through one bounded channel and a wake-up. A full channel is counted, never waited for:
//! what got lost comes again with the next packet.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::state::{Evidence, SECOND};
use crate::router::ProcessSignal;

/// Facts under way at a time.
const CHANNEL: usize = 4096;
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

/// Nodes' end of the channel.
#[derive(Clone)]
pub(crate) struct FactSender {
    sender: Sender<Fact>,
    signal: ProcessSignal,
    /// Changes when main forgets or changes something: what was told before then may have to be told again.
    epoch: Arc<AtomicU32>,
}

/// Makes the channel; `epoch` is bumped by main.
pub(crate) fn channel(signal: ProcessSignal) -> (FactSender, Receiver<Fact>, Arc<AtomicU32>) {
    let (sender, receiver) = bounded(CHANNEL);
    let epoch = Arc::new(AtomicU32::new(0));
    (FactSender { sender, signal, epoch: epoch.clone() }, receiver, epoch)
}

impl FactSender {
    /// Tells main. `false` where the channel is full.
    pub fn tell(&self, fact: Fact) -> bool {
        let told = self.sender.try_send(fact).is_ok();
        self.signal.raise();
        told
    }
}

/// Tells main what neighbours say, but not the same thing twice in a moment: a neighbour that asks a thousand times a
/// second, or a loop of requests, costs main nothing.
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
        self.facts.tell(fact)
    }
}

/// Facts of one neighbour share a slot, so that a new link address pushes out the old one.
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
            receiver.try_iter().count()
        };
        assert_eq!([told(1, 0), told(1, 1), told(2, 2), told(1, 3), told(1, 4), told(1, TOLD_TIME + 3)], [1, 0, 1, 1, 0, 1]);
        epoch.fetch_add(1, Ordering::Relaxed);
        assert_eq!([told(1, TOLD_TIME + 4), told(1, TOLD_TIME + 5)], [1, 0]);
    }

    #[test]
    fn a_full_channel_is_told_and_loses_nothing_older() {
        let h = Harness::new();
        let (sender, receiver, _) = channel(h.router.process_signal("x"));
        let fact = |n: u32| Fact { interface: IfIndex(n), address: IpAddr::from([10, 0, 0, 1]), what: What::Wanted };
        assert!((0..CHANNEL as u32).all(|n| sender.tell(fact(n))));
        assert!(!sender.tell(fact(0)));
        assert_eq!(receiver.try_iter().last(), Some(fact(CHANNEL as u32 - 1)));
    }
}
