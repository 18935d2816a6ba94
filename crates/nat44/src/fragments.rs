//! Virtual reassembly: the ports of a datagram's first fragment, remembered for the others.
//!
//! Fragments of one datagram may come to different threads, so the memory is shared: a small set of slots, each two words.
//! Whoever sees a first fragment writes them, whoever sees a later one reads them. A later fragment that comes before the
//! first waits for it ([`crate::early`]).
//!
//! A source's datagrams lie in [`SETS_EACH`] of the sets, which a seeded hash of its address chooses: one that sends fragments
//! without end overwrites its own, and those of another only where both share a set.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicIsize, AtomicU64};

const SETS: usize = 2048;
const WAYS: usize = 4;
/// Sets that the datagrams of one source lie in: 256 datagrams at a time.
const SETS_EACH: u64 = 64;
/// How long a datagram's fragments may be apart, seconds (RFC 6056 says nothing; Linux keeps 30).
const LIFE: u32 = 30;

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Addresses, raw.
    pub addrs: u64,
    /// Identification, raw.
    pub id: u16,
    /// Protocol.
    pub proto: u8,
    /// FIB that it came in on.
    pub fib: u16,
}

impl Datagram {
    /// Source and FIB.
    pub fn source(self) -> u64 {
        // In memory the source comes first.
        let [a, b, c, d, ..] = self.addrs.to_ne_bytes();
        u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(self.fib) << 32
    }
}

/// The memory, shared by all threads.
#[derive(Clone)]
pub struct Fragments {
    slots: Arc<[[AtomicU64; 2]]>,
    /// First fragments seen.
    firsts: Arc<AtomicU64>,
    /// Fragments that wait for their first.
    waiting: Arc<AtomicIsize>,
    seed: u64,
}

/// Mixes words into a seed.
fn mix(seed: u64, words: [u64; 2]) -> u64 {
    words.into_iter().fold(seed, |h, word| {
        let wide = u128::from(h ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        wide as u64 ^ (wide >> 64) as u64
    })
}

impl Fragments {
    /// An empty memory.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: (0..SETS * WAYS).map(|_| <[AtomicU64; 2]>::default()).collect(),
            firsts: Arc::default(),
            waiting: Arc::default(),
            seed,
        }
    }

    fn hash(&self, of: Datagram) -> u64 {
        let rest = u64::from(of.id) | u64::from(of.proto) << 16 | u64::from(of.fib) << 32;
        mix(self.seed, [of.addrs, rest]) | 1
    }

    fn set(&self, of: Datagram, hash: u64) -> &[[AtomicU64; 2]] {
        let at = (mix(!self.seed, [of.source(), (hash >> 32) % SETS_EACH]) >> 32) as usize % SETS * WAYS;
        self.slots.get(at..at + WAYS).unwrap_or_default()
    }

    /// Remembers the ports (raw) of a datagram.
    pub fn remember(&self, of: Datagram, ports: u32, now: u32) {
        let hash = self.hash(of);
        let set = self.set(of, hash);
        let old = |slot: &&[AtomicU64; 2]| {
            let known = slot[0].load(Relaxed);
            known == 0 || known == hash || (now as u16).wrapping_sub((slot[1].load(Relaxed) >> 32) as u16) > LIFE as u16
        };
        let slot = set.iter().find(old).or_else(|| set.get(now as usize % WAYS));
        if let Some([first, second]) = slot {
            // A reader that meets half of this finds that the check does not fit.
            second.store(u64::from(ports) | u64::from(now as u16) << 32 | (hash >> 1) << 48, Relaxed);
            first.store(hash, Relaxed);
            self.firsts.fetch_add(1, Release);
        }
    }

    /// How many first fragments have been remembered: another number says that some fragment may wait no more.
    pub fn firsts(&self) -> u64 {
        self.firsts.load(Acquire)
    }

    /// Counts fragments that wait, or do so no more.
    pub fn wait(&self, n: isize) {
        self.waiting.fetch_add(n, Relaxed);
    }

    /// How many wait, on all threads.
    #[inline(always)]
    pub fn waiting(&self) -> isize {
        self.waiting.load(Relaxed)
    }

    /// The ports of a datagram, where its first fragment has been seen.
    pub fn recall(&self, of: Datagram, now: u32) -> Option<u32> {
        let hash = self.hash(of);
        let [_, second] = self.set(of, hash).iter().find(|slot| slot[0].load(Relaxed) == hash)?;
        let word = second.load(Relaxed);
        let young = (now as u16).wrapping_sub((word >> 32) as u16) <= LIFE as u16;
        (young && word >> 48 == (hash >> 1) & 0xffff).then_some(word as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(id: u16) -> Datagram {
        Datagram { addrs: 7, id, proto: 17, fib: 0 }
    }

    #[test]
    fn ports_are_known_for_a_while_and_only_of_the_same_datagram() {
        let f = Fragments::new(3);
        assert_eq!(f.recall(datagram(1), 100), None);
        f.remember(datagram(1), 0xdead_beef, 100);
        assert_eq!(f.recall(datagram(1), 100 + LIFE), Some(0xdead_beef));
        assert_eq!(f.recall(datagram(2), 100), None);
        assert_eq!(f.recall(datagram(1), 101 + LIFE), None);
    }

    #[test]
    fn a_full_set_gives_way() {
        let f = Fragments::new(3);
        for id in 0..u16::MAX {
            f.remember(datagram(id), id.into(), 100);
            assert_eq!(f.recall(datagram(id), 100), Some(id.into()));
        }
    }

    #[test]
    fn a_flood_of_one_source_overwrites_few_datagrams_of_others() {
        let f = Fragments::new(3);
        let honest = |n: u32| Datagram { addrs: u64::from_ne_bytes([10, 1, (n >> 8) as u8, n as u8, 10, 0, 0, 1]), ..datagram(5) };
        (0..500).for_each(|n| f.remember(honest(n), n, 100));
        for id in 0..200_000_u32 {
            let addrs = u64::from_ne_bytes([10, 9, 9, 9, 10, 0, 0, (id >> 16) as u8]);
            f.remember(Datagram { addrs, ..datagram(id as u16) }, 1, 101 + id / 50_000);
        }
        let known = (0..500).filter(|n| f.recall(honest(*n), 105) == Some(*n)).count();
        assert!(known >= 450, "{known} of 500");
    }
}
