//! What this router has asked lately, so that nodes can tell an answer from what somebody says unasked.
//!
//! A small array of words, shared by all threads without locks: each request overwrites the word that a hash chooses. An answer
//! that comes within [`FRESH`] of its request is known unless some thousand other requests were sent meanwhile. A wrong "no"
//! only costs the answer its priority.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use super::hold::Key;
use super::state::SECOND;

const SLOTS: usize = 8192;
/// How long an answer may take, seconds: as long as requests are repeated.
const FRESH: u16 = 4;

/// The requests of the last seconds.
pub(crate) struct Asked {
    /// 48 bits of a neighbour's hash, and when it was asked for, in seconds.
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Default for Asked {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }
}

impl Asked {
    fn slot(&self, key: &Key) -> (u64, &AtomicU64) {
        let hash = self.hasher.hash_one(key);
        (hash | 1 << 63, &self.slots[hash as usize % SLOTS])
    }

    /// A request for a neighbour is sent.
    pub fn note(&self, key: &Key, now: u64) {
        let (hash, slot) = self.slot(key);
        slot.store(hash & !0xffff | u64::from((now / SECOND) as u16), Ordering::Relaxed);
    }

    /// Whether this neighbour was asked lately.
    pub fn knows(&self, key: &Key, now: u64) -> bool {
        let (hash, slot) = self.slot(key);
        let word = slot.load(Ordering::Relaxed);
        (word ^ hash) >> 16 == 0 && ((now / SECOND) as u16).wrapping_sub(word as u16) <= FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_graph::IfIndex;

    #[test]
    fn an_answer_is_known_for_some_seconds_and_nobody_elses_is() {
        let asked = Asked::default();
        let key = |i, n: u32| (IfIndex(i), std::net::Ipv4Addr::from_bits(n).into());
        let start = 70_000 * SECOND;
        asked.note(&key(1, 5), start);
        assert!(asked.knows(&key(1, 5), start) && asked.knows(&key(1, 5), start + 4 * SECOND));
        assert!(!asked.knows(&key(1, 5), start + 5 * SECOND));
        assert!(!asked.knows(&key(2, 5), start) && !asked.knows(&key(1, 6), start));
        let guessed = (0..100_000).filter(|n| asked.knows(&key(3, *n), start)).count();
        assert_eq!(guessed, 0);
    }
}
