//! The multi-level table with a root of 16 or 24 bits and groups of 8 bits.

use super::Lpm4Lookup;
use crate::LEAF_MAX;
use crate::address::Address;
use crate::error::OutOfMemory;
use crate::lpm::{LpmWriter, PrefixChange};
use crate::mem::{Budget, PageKind, SharedArray};
use crate::qsbr::{Domain, Limbo};
use crate::store::PrefixStore;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Marks a word as the index of a group.
const GROUP: u32 = 1 << 31;
/// Words of a group: one for each value of 8 bits.
const WORDS: usize = 256;
/// Groups for which a DIR-24-8 reserves address space: more /24s with longer prefixes than any table has.
const GROUPS: usize = 1 << 19;
/// No group, in the chain of free ones.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Table<const ROOT: u32> {
    root: SharedArray<AtomicU32>,
    groups: SharedArray<[AtomicU32; WORDS]>,
    /// The leaf of 0.0.0.0/0, or 0.
    default: AtomicU32,
    /// Prefixes.
    len: AtomicU32,
}

/// Where a table's parts are, copied out of it once for several lookups: loads with acquire order make the compiler look
/// again for everything that is behind a reference.
#[derive(Clone, Copy)]
struct View<'a, const ROOT: u32> {
    root: NonNull<AtomicU32>,
    groups: NonNull<[AtomicU32; WORDS]>,
    default: &'a AtomicU32,
}

impl<const ROOT: u32> Table<ROOT> {
    #[inline(always)]
    fn view(&self) -> View<'_, ROOT> {
        View { root: self.root.base(), groups: self.groups.base(), default: &self.default }
    }
}

impl<const ROOT: u32> View<'_, ROOT> {
    /// The word of the root for an address.
    #[inline(always)]
    fn root(self, addr: u32) -> u32 {
        // SAFETY: an address has 32 bits, so the index is below 2^ROOT, the root's capacity; the table lives.
        unsafe { self.root.add((addr >> (32 - ROOT)) as usize).as_ref() }.load(Ordering::Acquire)
    }

    /// The leaf for an address, from its word of the root.
    #[inline(always)]
    fn follow(self, addr: u32, mut word: u32) -> u32 {
        let mut shift = 32 - ROOT;
        while shift > 0 && word & GROUP != 0 {
            shift -= 8;
            // SAFETY: words with GROUP are written by the writer only, with the index of a group inside the reservation;
            // a group is never unmapped while a reader lives.
            let group = unsafe { self.groups.add((word & !GROUP) as usize).as_ref() };
            word = group[(addr >> shift) as usize & (WORDS - 1)].load(Ordering::Acquire);
        }
        if word == 0 { self.default.load(Ordering::Relaxed) } else { word }
    }
}

/// The reading side of a table whose root has `ROOT` bits.
#[derive(Clone, Debug)]
pub struct StrideReader<const ROOT: u32> {
    table: Arc<Table<ROOT>>,
}

impl<const ROOT: u32> StrideReader<ROOT> {
    /// How many prefixes the table has, or had a moment ago.
    #[inline(always)]
    pub fn prefixes(&self) -> u32 {
        self.table.len.load(Ordering::Relaxed)
    }

    /// As [`Lpm4::reads_same`](super::Lpm4::reads_same).
    pub fn reads_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }
}

impl<const ROOT: u32> Lpm4Lookup for StrideReader<ROOT> {
    #[inline(always)]
    fn lookup(&self, addr: u32) -> u32 {
        let view = self.table.view();
        view.follow(addr, view.root(addr))
    }

    #[inline(always)]
    fn prefetch(&self, addr: u32) {
        self.table.root.prefetch((addr >> (32 - ROOT)) as usize);
    }

    #[inline(always)]
    fn lookup_batch(&self, addrs: &[u32], out: &mut [u32]) {
        const { assert!(GROUP == 1 << 31) };
        let view = self.table.view();
        // Eight at a time: a word of the root that is a leaf, as most are, is one load, and one question is asked for all.
        for (addrs, leaves) in addrs.chunks(8).zip(out.chunks_mut(8)) {
            let mut others = 0;
            for (addr, leaf) in addrs.iter().zip(&mut *leaves) {
                *leaf = view.root(*addr);
                others |= *leaf | leaf.wrapping_sub(1);
            }
            if others & GROUP != 0 {
                for (addr, leaf) in addrs.iter().zip(leaves) {
                    *leaf = view.follow(*addr, *leaf);
                }
            }
        }
    }
}

/// The writing side. There is one for each table.
#[derive(Debug)]
pub(crate) struct StrideWriter<const ROOT: u32> {
    table: Arc<Table<ROOT>>,
    /// Groups ever used; the ones from here on are fresh.
    groups: u32,
    /// Chain of free groups through their first words.
    free: u32,
    limbo: Limbo<u32>,
    /// Of a change that was prepared.
    opening: Opening,
}

/// Groups that are to be linked: fresh ones, which no reader can reach.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    /// The group whose word will lead to them; none: the root.
    parent: Option<u32>,
    /// Address bits down to there.
    bits: u32,
    /// What all addresses of that word's block have.
    leaf: u32,
    /// The groups, the upper one first.
    groups: [u32; 2],
    /// How many of them.
    missing: usize,
}

impl<const ROOT: u32> StrideWriter<ROOT> {
    pub fn new(domain: &Domain, budget: &Budget, pages: PageKind) -> Result<Self, OutOfMemory> {
        const { assert!(ROOT == 16 || ROOT == 24) };
        let root = SharedArray::reserve(1 << ROOT, pages, budget)?;
        root.commit(1 << ROOT)?;
        // Groups are few and spread out: base pages, unless the root is small and they hold most of the table.
        let group_pages = if ROOT == 16 && pages != PageKind::Base { PageKind::Transparent } else { PageKind::Base };
        let groups = SharedArray::reserve(GROUPS, group_pages, budget)?;
        let table = Table { root, groups, default: AtomicU32::new(0), len: AtomicU32::new(0) };
        Ok(StrideWriter { table: Arc::new(table), groups: 0, free: NONE, limbo: Limbo::new(domain), opening: Opening::default() })
    }

    pub fn reader(&self) -> StrideReader<ROOT> {
        StrideReader { table: self.table.clone() }
    }

    /// The word for the block of `addr` at the level that starts after bit `ROOT` (`level` 0), `ROOT + 8`, …
    fn group_word(&self, group: u32, addr: u32, bits: u32) -> &AtomicU32 {
        let index = (addr >> (32 - bits)) as usize & (WORDS - 1);
        // SAFETY: group indices come from `take_group` or from words it was stored into, so they are committed.
        unsafe { &self.table.groups.at(group as usize)[index] }
    }

    fn root_word(&self, addr: u32) -> &AtomicU32 {
        // SAFETY: below 2^ROOT, the capacity, all of which is committed.
        unsafe { self.table.root.at((addr >> (32 - ROOT)) as usize) }
    }

    fn count(&self, store: &PrefixStore<u32>) {
        self.table.len.store(u32::try_from(store.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn take_group(&mut self) -> Result<u32, OutOfMemory> {
        if self.free != NONE {
            let group = self.free;
            self.free = self.group_word(group, 0, 32).load(Ordering::Relaxed);
            return Ok(group);
        }
        self.table.groups.commit(self.groups as usize + 1)?;
        self.groups += 1;
        Ok(self.groups - 1)
    }

    fn give_group(&mut self, group: u32) {
        self.group_word(group, 0, 32).store(self.free, Ordering::Relaxed);
        self.free = group;
    }

    fn reclaim_groups(&mut self) {
        let mut free = self.free;
        let table = &self.table;
        self.limbo.reclaim(|group| {
            // SAFETY: retired groups were committed, and their grace period is over.
            let words = unsafe { table.groups.at(group as usize) };
            words[0].store(free, Ordering::Relaxed);
            free = group;
        });
        self.free = free;
    }

    /// Takes the groups that are missing to tell addresses inside the blocks above `prefix`/`len` apart; all or none.
    fn open(&mut self, prefix: u32, len: u8) -> Result<(), OutOfMemory> {
        let mut bits = ROOT;
        let mut parent = None;
        // Follow the groups that exist.
        let mut word = self.root_word(prefix).load(Ordering::Relaxed);
        while bits < u32::from(len) && word & GROUP != 0 {
            bits += 8;
            parent = Some(word & !GROUP);
            word = self.group_word(word & !GROUP, prefix, bits).load(Ordering::Relaxed);
        }
        // `word` is a leaf where groups are missing: every address of its block has it.
        let missing = u32::from(len).saturating_sub(bits).div_ceil(8) as usize;
        self.opening = Opening { parent, bits, leaf: word, groups: [NONE; 2], missing: 0 };
        for i in 0..missing {
            match self.take_group() {
                Ok(group) => self.opening.groups[i] = group,
                Err(e) => {
                    self.give_back();
                    return Err(e);
                }
            }
            self.opening.missing = i + 1;
        }
        Ok(())
    }

    /// Links the groups that were taken, from the longest up.
    fn link(&mut self, prefix: u32) {
        let Opening { parent, bits, leaf, groups, missing } = std::mem::take(&mut self.opening);
        if missing == 0 {
            return;
        }
        for i in (0..missing).rev() {
            // SAFETY: taken, so committed, and no reader can reach it.
            let words = unsafe { self.table.groups.at(groups[i] as usize) };
            words.iter().for_each(|w| w.store(leaf, Ordering::Relaxed));
            if i + 1 < missing {
                let inner = self.group_word(groups[i], prefix, bits + 8 * (i as u32 + 1));
                inner.store(GROUP | groups[i + 1], Ordering::Relaxed);
            }
        }
        let link = match parent {
            None => self.root_word(prefix),
            Some(group) => self.group_word(group, prefix, bits),
        };
        link.store(GROUP | groups[0], Ordering::Release);
    }

    /// Gives back the groups that were taken.
    fn give_back(&mut self) {
        let Opening { groups, missing, .. } = std::mem::take(&mut self.opening);
        groups[..missing].iter().for_each(|group| self.give_group(*group));
    }

    /// Stores `leaf` for `first..=last`. Where only a part of a block is meant, the block has a group.
    fn fill(&self, first: u32, last: u32, leaf: u32) {
        // SAFETY: the root has 2^ROOT committed words, one after the other.
        let root = unsafe { std::slice::from_raw_parts(self.table.root.at(0), 1 << ROOT) };
        self.fill_level(root, 32 - ROOT, first, last, leaf);
    }

    /// `words` is the level at which a word stands for 2^`shift` addresses.
    fn fill_level(&self, words: &[AtomicU32], shift: u32, first: u32, last: u32, leaf: u32) {
        let inside = (1u32 << shift) - 1;
        let index = |addr: u32| (addr >> shift) as usize & (words.len() - 1);
        let (mut from, mut to) = (index(first), index(last) + 1);
        let (head, tail) = (first & inside != 0, last & inside != inside);
        if head || (tail && from + 1 == to) {
            self.fill_part(&words[from], shift, first, last.min(first | inside), leaf);
            from += 1;
        }
        if tail && from < to {
            to -= 1;
            self.fill_part(&words[to], shift, last & !inside, last, leaf);
        }
        for word in words.get(from..to).unwrap_or_default() {
            debug_assert!(word.load(Ordering::Relaxed) & GROUP == 0, "a group without a prefix that needs it");
            word.store(leaf, Ordering::Release);
        }
    }

    fn fill_part(&self, word: &AtomicU32, shift: u32, first: u32, last: u32, leaf: u32) {
        let word = word.load(Ordering::Relaxed);
        debug_assert!(word & GROUP != 0, "a part of a block that has no group");
        if word & GROUP != 0 && shift >= 8 {
            // SAFETY: a linked group is committed.
            let group = unsafe { self.table.groups.at((word & !GROUP) as usize) };
            self.fill_level(group, shift - 8, first, last, leaf);
        }
    }

    /// Unlinks the groups over `prefix` that no prefix needs any more. True if the whole block has `leaf` now.
    fn close(&mut self, prefix: u32, len: u8, leaf: u32, store: &PrefixStore<u32>) -> bool {
        let mut bits = ROOT;
        let mut link = self.root_word(prefix);
        while bits < u32::from(len) {
            let word = link.load(Ordering::Relaxed);
            debug_assert!(word & GROUP != 0, "a prefix without its group");
            if word & GROUP == 0 {
                return true;
            }
            if !store.has_longer(prefix, bits as u8) {
                link.store(leaf, Ordering::Release);
                let group = word & !GROUP;
                // Below it only the path of `prefix` itself can have led on.
                let inner = (bits + 8 < u32::from(len))
                    .then(|| self.group_word(group, prefix, bits + 8).load(Ordering::Relaxed))
                    .filter(|inner| inner & GROUP != 0)
                    .map(|inner| inner & !GROUP);
                self.limbo.retire([Some(group), inner].into_iter().flatten());
                return true;
            }
            link = self.group_word(word & !GROUP, prefix, bits + 8);
            bits += 8;
        }
        false
    }

    fn assign(&self, prefix: u32, len: u8, leaf: u32, store: &PrefixStore<u32>) {
        let _ = store.gaps(prefix, len, |first, last| {
            self.fill(first, last, leaf);
            Ok::<_, OutOfMemory>(())
        });
    }
}

impl<const ROOT: u32> LpmWriter for StrideWriter<ROOT> {
    type Addr = u32;

    fn prepare(&mut self, change: &PrefixChange<u32>, _store: &PrefixStore<u32>) -> Result<(), OutOfMemory> {
        debug_assert!(change.leaf <= LEAF_MAX);
        self.reclaim_groups();
        if change.gone { self.limbo.reserve(2) } else { self.open(change.prefix.first(change.len), change.len) }
    }

    fn publish(&mut self, change: &PrefixChange<u32>, store: &PrefixStore<u32>) {
        let PrefixChange { len, leaf, gone, .. } = *change;
        let prefix = change.prefix.first(len);
        self.link(prefix);
        if !(gone && self.close(prefix, len, leaf, store)) {
            self.assign(prefix, len, leaf, store);
        }
        self.count(store);
    }

    fn cancel(&mut self) {
        self.give_back();
    }

    fn set_default(&mut self, leaf: u32) {
        self.table.default.store(leaf, Ordering::Release);
    }

    fn reclaim(&mut self) {
        self.reclaim_groups();
    }

    fn place(&self, node: u32) -> std::io::Result<()> {
        self.table.root.place(node)?;
        self.table.groups.place(node)
    }

    fn memory_bytes(&self) -> usize {
        self.table.root.resident() + self.table.groups.resident() + self.limbo.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_not_used_again_while_a_reader_may_be_in_it() {
        let (domain, budget) = (Domain::new(), Budget::unlimited());
        let reader = domain.register();
        let mut writer = StrideWriter::<16>::new(&domain, &budget, PageKind::Base).unwrap();
        let mut store = PrefixStore::new(&budget);
        let mut turn = |writer: &mut StrideWriter<16>, prefix: u32| {
            for gone in [false, true] {
                _ = if gone { store.remove(prefix, 32) } else { store.insert(prefix, 32, 1).unwrap() };
                let change = PrefixChange { prefix, len: 32, leaf: u32::from(!gone), gone };
                writer.prepare(&change, &store).unwrap();
                writer.publish(&change, &store);
            }
            writer.groups
        };
        assert_eq!((turn(&mut writer, 1), turn(&mut writer, 2)), (2, 4), "two groups a turn, none of them used again");
        reader.quiescent();
        assert_eq!((turn(&mut writer, 3), turn(&mut writer, 4), turn(&mut writer, 5)), (4, 4, 6));
        reader.offline();
        assert_eq!(turn(&mut writer, 6), 6);
    }

    #[test]
    fn groups_of_a_change_that_is_not_made_are_used_by_the_next_one() {
        let (domain, budget) = (Domain::new(), Budget::unlimited());
        let mut writer = StrideWriter::<16>::new(&domain, &budget, PageKind::Base).unwrap();
        let store = PrefixStore::new(&budget);
        let reader = writer.reader();
        for prefix in 0..100 {
            writer.prepare(&PrefixChange { prefix, len: 32, leaf: 1, gone: false }, &store).unwrap();
            assert_eq!((writer.groups, reader.lookup(prefix)), (2, 0));
            writer.cancel();
        }
        // One of the two is to be had, and no other.
        budget.set_limit(budget.used());
        writer.prepare(&PrefixChange { prefix: 0, len: 24, leaf: 1, gone: false }, &store).unwrap();
        let mut more = 0;
        while writer.take_group().is_ok() {
            more += 1;
        }
        assert_eq!(writer.prepare(&PrefixChange { prefix: 0, len: 32, leaf: 1, gone: false }, &store), Err(OutOfMemory));
        assert!(more > 0 && writer.opening.missing == 0);
    }
}
