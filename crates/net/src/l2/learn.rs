//! From the node that meets an address to the main thread that writes the table: a bounded channel and a wake-up.
//!
//! What gets lost, because the channel is full or main has no room, comes again with the next frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::IfIndex;

use super::bridge::Told;
use crate::router::ProcessSignal;

/// Reports under way at a time, and those of one interface; interfaces share counters of these, by index.
const CHANNEL: usize = 4096;
const SHARE: u16 = 1024;
const SHARES: usize = 256;
/// Addresses that a node remembers having reported.
const TOLD: usize = 256;
/// For how long it does not report the same again, ns.
const TOLD_TIME: u64 = 10_000_000;

/// An address was heard behind an interface where it was not known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub key: u64,
    pub interface: IfIndex,
}

/// Reports under way, by interface: a flood of one leaves the channel to others.
type Shares = Arc<[AtomicU16]>;

/// Main's end of the channel.
pub(super) struct Reports {
    receiver: Receiver<Heard>,
    shares: Shares,
}

impl Reports {
    /// The next one.
    pub fn next(&self) -> Option<Heard> {
        let heard = self.receiver.try_recv().ok()?;
        self.shares[heard.interface.0 as usize % SHARES].fetch_sub(1, Ordering::Relaxed);
        Some(heard)
    }
}

/// No address: no key is 0.
const NOBODY: Heard = Heard { key: 0, interface: IfIndex(0) };

/// A node's end of the channel.
pub(super) struct Teller {
    sender: Sender<Heard>,
    shares: Shares,
    signal: ProcessSignal,
    told: Vec<(Heard, u64)>,
    /// Changes when main has forgotten or refused something: what was reported before then may have to be reported again.
    epoch: Arc<AtomicU32>,
    seen: u32,
}

impl Clone for Teller {
    fn clone(&self) -> Self {
        Self::new(self.sender.clone(), self.shares.clone(), self.signal.clone(), self.epoch.clone())
    }
}

/// Makes the channel.
pub(super) fn channel(signal: ProcessSignal) -> (Teller, Reports) {
    let (sender, receiver) = bounded(CHANNEL);
    let shares: Shares = (0..SHARES).map(|_| AtomicU16::new(0)).collect();
    (Teller::new(sender, shares.clone(), signal, Arc::default()), Reports { receiver, shares })
}

impl Teller {
    fn new(sender: Sender<Heard>, shares: Shares, signal: ProcessSignal, epoch: Arc<AtomicU32>) -> Self {
        Self { sender, shares, signal, told: vec![(NOBODY, 0); TOLD], epoch, seen: 0 }
    }

    /// Main only: makes all nodes report again what they hear.
    pub fn again(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports an address, unless it has just been reported.
    pub fn tell(&mut self, key: u64, interface: IfIndex, now: u64) -> Told {
        let heard = Heard { key, interface };
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch != self.seen {
            self.told.fill((NOBODY, 0));
            self.seen = epoch;
        }
        let slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % TOLD;
        let (last, at) = self.told[slot];
        if last == heard && now.saturating_sub(at) < TOLD_TIME {
            return Told::Nothing;
        }
        let share = &self.shares[interface.0 as usize % SHARES];
        let told = share.fetch_add(1, Ordering::Relaxed) < SHARE && self.sender.try_send(heard).is_ok();
        if !told {
            share.fetch_sub(1, Ordering::Relaxed);
        }
        self.signal.raise();
        if told {
            self.told[slot] = (heard, now);
        }
        if told { Told::New } else { Told::Busy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    #[test]
    fn an_address_is_reported_once_in_a_while_and_a_full_channel_is_told() {
        let h = Harness::new();
        let (mut teller, receiver) = channel(h.router.process_signal("x"));
        let told =
            [(5, 1, 0), (5, 1, 1), (5, 2, 2), (5, 2, 3), (5, 2, TOLD_TIME + 2)].map(|(k, i, t)| teller.tell(k, IfIndex(i), t));
        assert_eq!(told, [Told::New, Told::Nothing, Told::New, Told::Nothing, Told::New]);
        assert_eq!(std::iter::from_fn(|| receiver.next()).count(), 3);
        teller.again();
        assert_eq!(teller.tell(5, IfIndex(2), TOLD_TIME + 3), Told::New, "main has forgotten it");
        receiver.next();
        let mut flood = |interface| (0..=CHANNEL as u64).map(|k| teller.tell(k << 8, IfIndex(interface), TOLD_TIME)).last();
        assert_eq!(flood(1), Some(Told::Busy));
        assert_eq!(std::iter::from_fn(|| receiver.next()).count(), usize::from(SHARE), "one interface's share");
        assert_eq!([1, 2, 3, 4, 5].map(&mut flood), [Some(Told::Busy); 5]);
        assert_eq!(std::iter::from_fn(|| receiver.next()).count(), CHANNEL);
        assert!(receiver.shares.iter().all(|share| share.load(Ordering::Relaxed) == 0));
    }
}
