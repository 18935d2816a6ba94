//! Allocation of small indices: the lowest free one first, and never one that a reader may still use.

use crate::error::OutOfMemory;
use crate::qsbr::{Domain, Limbo};

/// Hands out indices from 0, the lowest free one first.
///
/// Three levels of bitmaps would serve 2^18 indices; one level with a cursor serves any number: `from` is a word below
/// which no index is free, so allocation in a row is O(1) and a freed low index is found at once.
#[derive(Debug)]
pub struct IndexPool {
    /// One bit for each index: taken (in use, or in its grace period).
    taken: Vec<u64>,
    /// No free index lies in a word before this one.
    from: usize,
    limit: u32,
    in_use: usize,
    limbo: Limbo<u32>,
}

impl IndexPool {
    /// A pool of the indices `0..limit`, freed ones being held back for the readers of `domain`.
    pub fn new(limit: u32, domain: &Domain) -> Self {
        IndexPool { taken: Vec::new(), from: 0, limit, in_use: 0, limbo: Limbo::new(domain) }
    }

    /// The lowest free index. [`OutOfMemory`] if all are taken, counting those in their grace period.
    pub fn alloc(&mut self) -> Result<u32, OutOfMemory> {
        self.reclaim();
        while self.taken.get(self.from).is_some_and(|word| *word == u64::MAX) {
            self.from += 1;
        }
        let bit = self.taken.get(self.from).map_or(0, |word| word.trailing_ones());
        let index = u32::try_from(self.from * 64).ok().and_then(|i| i.checked_add(bit)).ok_or(OutOfMemory)?;
        self.take(index)?;
        Ok(index)
    }

    /// Takes a certain index: false if it is not free.
    pub fn claim(&mut self, index: u32) -> Result<bool, OutOfMemory> {
        self.reclaim();
        if self.is_taken(index) {
            return Ok(false);
        }
        self.take(index)?;
        Ok(true)
    }

    fn take(&mut self, index: u32) -> Result<(), OutOfMemory> {
        if index >= self.limit {
            return Err(OutOfMemory);
        }
        let word = index as usize / 64;
        if word >= self.taken.len() {
            self.taken.try_reserve(word + 1 - self.taken.len())?;
            self.taken.resize(word + 1, 0);
        }
        // Room for every index in use to be freed, so that freeing cannot fail.
        self.limbo.reserve(self.in_use + 1)?;
        self.taken[word] |= 1 << (index % 64);
        self.in_use += 1;
        Ok(())
    }

    fn is_taken(&self, index: u32) -> bool {
        self.taken.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Gives an index back for use after a grace period. An index that is not taken is ignored.
    ///
    /// The caller must not free an index twice: inside its grace period the second time cannot be told from the first.
    pub fn free(&mut self, index: u32) {
        if self.is_taken(index) && self.in_use > 0 {
            self.in_use -= 1;
            self.limbo.retire([index]);
        }
    }

    /// Gives an index back that no reader has ever seen: it may be handed out again at once.
    pub fn free_now(&mut self, index: u32) {
        if self.is_taken(index) && self.in_use > 0 {
            self.in_use -= 1;
            Self::release(&mut self.taken, &mut self.from, index);
        }
    }

    fn release(taken: &mut [u64], from: &mut usize, index: u32) {
        let word = index as usize / 64;
        if let Some(bits) = taken.get_mut(word) {
            *bits &= !(1 << (index % 64));
            *from = (*from).min(word);
        }
    }

    /// Makes indices allocatable whose grace period is over. Allocation does it too.
    pub fn reclaim(&mut self) {
        let IndexPool { taken, from, limbo, .. } = self;
        limbo.reclaim(|index| Self::release(taken, from, index));
    }

    /// How many indices are in use, without those in their grace period.
    pub fn len(&self) -> usize {
        self.in_use
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.in_use == 0
    }

    /// How many indices are in their grace period.
    pub fn pending(&self) -> usize {
        self.limbo.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_lowest_free_index_comes_back_after_its_grace_period() {
        let domain = Domain::new();
        let reader = domain.register();
        let mut pool = IndexPool::new(100, &domain);
        let got: Vec<u32> = (0..5).filter_map(|_| pool.alloc().ok()).collect();
        assert_eq!(got, [0, 1, 2, 3, 4]);
        pool.free(3);
        pool.free(1);
        assert_eq!((pool.alloc(), pool.pending(), pool.len()), (Ok(5), 2, 4));
        reader.quiescent();
        assert_eq!((pool.alloc(), pool.alloc(), pool.alloc()), (Ok(1), Ok(3), Ok(6)));
    }

    #[test]
    fn the_limit_is_an_error_and_freeing_what_is_not_taken_is_nothing() {
        let domain = Domain::new();
        let mut pool = IndexPool::new(2, &domain);
        pool.free(7);
        pool.free_now(0);
        assert_eq!((pool.alloc(), pool.claim(1), pool.claim(1), pool.alloc()), (Ok(0), Ok(true), Ok(false), Err(OutOfMemory)));
        assert_eq!(pool.claim(2), Err(OutOfMemory));
        pool.free_now(0);
        assert_eq!((pool.alloc(), pool.len()), (Ok(0), 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_a_sorted_set(ops in prop::collection::vec((0u8..4, 0u32..200), 1..300)) {
            let domain = Domain::new();
            let mut pool = IndexPool::new(150, &domain);
            let mut used = BTreeSet::new();
            for (op, n) in ops {
                match op {
                    0 | 1 => {
                        let lowest = (0..150).find(|i| !used.contains(i));
                        prop_assert_eq!(pool.alloc().ok(), lowest);
                        used.extend(lowest);
                    }
                    2 => prop_assert_eq!(pool.claim(n).ok(), if used.contains(&n) { Some(false) } else { (n < 150).then(|| used.insert(n)) }),
                    _ => if used.remove(&n) { if n % 2 == 0 { pool.free(n) } else { pool.free_now(n) } },
                }
                prop_assert_eq!(pool.len(), used.len());
            }
        }
    }
}
