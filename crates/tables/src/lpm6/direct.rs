//! The words before the first node, as the writer sees them: the root, and its branches.

use std::ops::Range;
use std::sync::atomic::AtomicU32;

use super::{BRANCH_BITS, DIRECT, ROOT_BITS, Table};
use crate::error::OutOfMemory;
use crate::mem::SharedArray;

/// The branch that begins behind the root.
const FIRST: u32 = 1 << (ROOT_BITS - BRANCH_BITS);

/// Hands out branches.
#[derive(Debug)]
pub(super) struct Branches {
    /// The first one that was never used.
    fresh: u32,
    /// Has room for all that were ever used.
    free: Vec<u32>,
}

impl Branches {
    pub fn new() -> Self {
        Branches { fresh: FIRST, free: Vec::new() }
    }

    /// A branch; its words are whatever was there.
    pub fn take(&mut self, direct: &SharedArray<AtomicU32>) -> Result<u32, OutOfMemory> {
        if let Some(branch) = self.free.pop() {
            return Ok(branch);
        }
        let end = words(self.fresh).end as usize;
        if end > DIRECT {
            return Err(OutOfMemory);
        }
        direct.commit(end)?;
        self.free.try_reserve((self.fresh + 1 - FIRST) as usize)?;
        self.fresh += 1;
        Ok(self.fresh - 1)
    }

    /// Takes one back that nobody reads any more.
    pub fn give(&mut self, branch: u32) {
        self.free.push(branch);
    }
}

/// Where the words of a branch are.
pub(super) fn words(branch: u32) -> Range<u32> {
    branch << BRANCH_BITS..(branch + 1) << BRANCH_BITS
}

/// The word at `place`: of the root, or of a branch that was handed out.
pub(super) fn direct_word(table: &Table, place: u32) -> &AtomicU32 {
    // SAFETY: the writer asks for places of the root, of which there are 2^16, and of branches that it has taken, which are committed.
    unsafe { table.direct.at(place as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lpm6::DEEPER;
    use crate::{Fib6, qsbr::Domain};
    use std::sync::atomic::Ordering;

    #[test]
    fn branches_are_there_while_they_tell_addresses_apart_and_their_memory_comes_back() {
        let domain = Domain::new();
        let mut fib = Fib6::new(&domain).unwrap();
        let reader = fib.reader();
        let place = |k: u32| 0x2000 + k;
        let addr = |k: u32| u128::from(place(k)) << 112;
        let words = || (0..64).map(|k| direct_word(&reader.table, place(k)).load(Ordering::Relaxed)).collect::<Vec<_>>();
        for round in 0..400u128 {
            let (low, batch) = ((round & 0xff) << 104, round >= 200);
            if batch {
                fib.begin();
            }
            for k in 0..64 {
                fib.insert(addr(k) | low, 24, 5).unwrap();
                fib.insert(addr(k), 16, 5).unwrap();
            }
            if batch {
                fib.commit();
            }
            assert_eq!(words(), [5; 64]);
            (0..64).for_each(|k| assert_eq!(fib.remove(addr(k), 16).unwrap(), Some(5)));
            assert!(words().iter().all(|word| word & DEEPER != 0));
            assert!(
                (0..64)
                    .all(|k| [0, low, low + (1 << 104)].map(|low| reader.lookup(addr(k) | low)) == [u32::from(low == 0) * 5, 5, 0])
            );
            (0..64).for_each(|k| assert_eq!(fib.remove(addr(k) | low, 24).unwrap(), Some(5)));
            assert_eq!(words(), [0; 64]);
        }
        fib.reclaim();
        assert_eq!(domain.pending(), 0);
        // If branches did not come back, 25,600 of 1 kB would be needed.
        assert!(fib.memory_bytes() < 2 << 20, "{}", fib.memory_bytes());
    }

    #[test]
    fn a_branch_that_comes_and_goes_within_a_batch_leaves_nothing_to_the_next_one() {
        let mut fib = Fib6::new(&Domain::new()).unwrap();
        let reader = fib.reader();
        let addr = |first: u128, low: u128| first << 112 | low << 104;
        fib.begin();
        for low in [1, 2] {
            fib.insert(addr(0x2000, low), 24, 7).unwrap();
        }
        for low in [1, 2] {
            fib.remove(addr(0x2000, low), 24).unwrap();
        }
        fib.insert(addr(0x2001, 3), 24, 8).unwrap();
        fib.commit();
        assert_eq!([0, 1, 2, 3].map(|low| reader.lookup(addr(0x2001, low))), [0, 0, 0, 8]);
        assert_eq!([1, 2].map(|low| reader.lookup(addr(0x2000, low))), [0, 0]);
    }

    #[test]
    fn who_still_reads_a_branch_that_a_batch_took_away_finds_no_node_of_the_batch() {
        let domain = Domain::new();
        // It may be reading the branch all the time.
        let _worker = domain.register();
        let mut fib = Fib6::new(&domain).unwrap();
        let reader = fib.reader();
        let addr = |first: u128, low: u128| first << 112 | low << 104;
        fib.insert(addr(0x2000, 1), 24, 5).unwrap();
        let branch = direct_word(&reader.table, 0x2000).load(Ordering::Relaxed) & !DEEPER;
        fib.begin();
        fib.insert(addr(0x2000, 2), 48, 6).unwrap();
        fib.remove(addr(0x2000, 1), 24).unwrap();
        fib.remove(addr(0x2000, 2), 48).unwrap();
        // This one gets the node.
        fib.insert(addr(0x2001, 2), 48, 7).unwrap();
        fib.commit();
        assert_eq!([0x2000, 0x2001].map(|first| reader.lookup(addr(first, 2))), [0, 7]);
        assert!(words(branch).all(|place| direct_word(&reader.table, place).load(Ordering::Relaxed) == 0));
    }
}
