//! Changing a poptrie: copy the path, publish by one store.
//!
//! ```text
//!   word of root or branch --> [n0] --> [. . n1 . .] --> [. n2 . . . .]     n2 changes:
//!       |                                                     |              a new leaf array for n2',
//!       '--> [n0'] --> [. . n1' . .] --> [. n2' . . . .]                     new node arrays with n2', n1', n0'
//! ```
//!
//! A change is "these ranges of addresses now have this leaf", where the ranges are the gaps that the prefix store names.
//! [`Change::apply`] walks down to the nodes that a range cuts through, and comes back up with new ones. Leaf arrays and
//! node arrays that stay equal are shared with the old version. Everything new is unpublished until the word that leads there is
//! stored, so running out of memory half-way is undone by giving the new runs back. Words of a branch are stored one by one, as those of
//! the root: each address has its old answer or its new one.
//!
//! Within a batch ([`LpmWriter::begin`]) words are kept aside, and runs that were made and replaced in the same
//! batch are free again at once: no reader has ever seen them. Nor has one seen a branch of the same batch, so words in it are stored at
//! once.

use super::arrays::{Run, Runs};
use super::change::{Change, Range};
use super::direct::{self, Branches, direct_word};
use super::journal::{Arrays, Item, Kind, bit, bit_set, bit_take};
use super::node::{Block, load_node, store_node};
use super::{BRANCH_BITS, DEEPER, DIRECT_BITS, LEAVES, Lpm6, NODES, ROOT_BITS, Table};
use crate::address::Address;
use crate::error::OutOfMemory;
use crate::lpm::{LpmWriter, PrefixChange};
use crate::mem::{Budget, PageKind, PodVec};
use crate::qsbr::{Domain, Limbo};
use crate::store::PrefixStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Words that a batch has changed: the word with this bit, else 0.
const HELD: u32 = 1 << 30;

/// The writing side.
#[derive(Debug)]
pub(crate) struct PoptrieWriter {
    table: Arc<Table>,
    arrays: Arrays,
    ranges: Vec<Range>,
    limbo: Limbo<Item>,
    /// Inside a batch: unpublished words, where they go, and the runs that the published ones still need.
    batch: bool,
    held_words: PodVec<u32>,
    held: Vec<u32>,
    replaced: Vec<Item>,
    /// One operation's words and where they go, until all of them are made. Those of a branch come before the root's that leads there.
    words: Vec<(u32, u32)>,
}

impl PoptrieWriter {
    pub fn new(domain: &Domain, budget: &Budget, pages: PageKind) -> Result<Self, OutOfMemory> {
        let arrays = Arrays {
            branches: Branches::new(),
            nodes: Runs::new(NODES),
            leaves: Runs::new(LEAVES),
            made: Vec::new(),
            dropped: Vec::new(),
            new_branches: PodVec::new(budget),
            new_nodes: PodVec::new(budget),
            new_leaves: PodVec::new(budget),
        };
        Ok(PoptrieWriter {
            table: Arc::new(Table::new(budget, pages)?),
            arrays,
            ranges: Vec::new(),
            limbo: Limbo::new(domain),
            batch: false,
            held_words: PodVec::new(budget),
            held: Vec::new(),
            replaced: Vec::new(),
            words: Vec::new(),
        })
    }

    pub fn reader(&self) -> Lpm6 {
        Lpm6 { table: self.table.clone() }
    }

    /// The word at `place` as this writer sees it, held-back changes included.
    fn word(&self, place: u32) -> u32 {
        match self.held_words.get(place as usize) {
            Some(word) if word & HELD != 0 => word & !HELD,
            _ => direct_word(&self.table, place).load(Ordering::Relaxed),
        }
    }

    /// Makes the new words.
    fn make(&mut self, leaf: u32, ranges: &[Range]) -> Result<(), OutOfMemory> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(());
        };
        let index = |addr: u128| (addr >> (128 - ROOT_BITS)) as u32;
        let mut rest = ranges;
        for i in index(first.0)..=index(last.1) {
            let start = u128::from(i) << (128 - ROOT_BITS);
            let end = start.last(ROOT_BITS as u8);
            rest = &rest[rest.partition_point(|r| r.1 < start)..];
            let here = &rest[..rest.partition_point(|r| r.0 <= end)];
            let word = self.word(i);
            let new = match here.first() {
                None => continue,
                Some(_) if word & DEEPER != 0 => self.change_branch(word, leaf, start, here)?,
                Some(range) if range.0 <= start && range.1 >= end => leaf,
                Some(_) => self.sprout(word, leaf, start, here)?,
            };
            if new != word {
                self.words.try_reserve(1)?;
                self.words.push((i, new));
            }
        }
        Ok(())
    }

    /// A root word that was a leaf, where some addresses have another one now: a new branch.
    fn sprout(&mut self, old: u32, leaf: u32, start: u128, ranges: &[Range]) -> Result<u32, OutOfMemory> {
        if old == leaf {
            return Ok(old);
        }
        let table = self.table.clone();
        let branch = self.arrays.take(&table, Kind::Branches, 1)?.at;
        for place in direct::words(branch) {
            direct_word(&table, place).store(old, Ordering::Relaxed);
        }
        self.change_words(branch, leaf, start, ranges, |_, place, new| {
            direct_word(&table, place).store(new, Ordering::Relaxed);
            Ok(())
        })?;
        Ok(DEEPER | branch)
    }

    /// A root word that leads to a branch, where some of its addresses have another leaf now.
    fn change_branch(&mut self, old: u32, leaf: u32, start: u128, ranges: &[Range]) -> Result<u32, OutOfMemory> {
        let (branch, before) = (old & !DEEPER, self.words.len());
        self.change_words(branch, leaf, start, ranges, |writer, place, new| {
            writer.words.try_reserve(1)?;
            writer.words.push((place, new));
            Ok(())
        })?;
        let changed = &self.words[before..];
        // Words are changed in the order of their places.
        let now = |place| match changed.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => changed[at].1,
            Err(_) => self.word(place),
        };
        if changed.is_empty() || !direct::words(branch).all(|place| now(place) == leaf) {
            return Ok(old);
        }
        // Who has read the old root word finds the new answer in the branch, too.
        self.arrays.drop_run(Kind::Branches, Some(Run { at: branch, len: 1 }))?;
        Ok(leaf)
    }

    /// What becomes of the words of a branch that the ranges meet; those that change are kept by `keep`.
    fn change_words(
        &mut self,
        branch: u32,
        leaf: u32,
        start: u128,
        ranges: &[Range],
        mut keep: impl FnMut(&mut Self, u32, u32) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(());
        };
        let table = self.table.clone();
        let end = start.last(ROOT_BITS as u8);
        let index = |addr: u128| (addr >> (128 - DIRECT_BITS)) as u32 & ((1 << BRANCH_BITS) - 1);
        let mut rest = ranges;
        for i in index(first.0.max(start))..=index(last.1.min(end)) {
            let place = branch << BRANCH_BITS | i;
            let start = start | u128::from(i) << (128 - DIRECT_BITS);
            let end = start.last(DIRECT_BITS as u8);
            rest = &rest[rest.partition_point(|r| r.1 < start)..];
            let here = &rest[..rest.partition_point(|r| r.0 <= end)];
            if here.is_empty() {
                continue;
            }
            let word = self.word(place);
            let before = if word & DEEPER != 0 { Block::Node(load_node(&table, word & !DEEPER)) } else { Block::Leaf(word) };
            let mut change = Change { table: &table, arrays: &mut self.arrays, leaf };
            let after = change.apply(before, start, DIRECT_BITS, here)?;
            if after == before {
                continue;
            }
            let old = (word & DEEPER != 0).then_some(Run { at: word & !DEEPER, len: 1 });
            self.arrays.drop_run(Kind::Nodes, old)?;
            let new = match after {
                Block::Leaf(leaf) => leaf,
                Block::Node(node) => {
                    let run = self.arrays.take(&table, Kind::Nodes, 1)?;
                    store_node(&table, run.at, &node);
                    DEEPER | run.at
                }
            };
            keep(self, place, new)?;
        }
        Ok(())
    }

    /// Everything that could still fail before [`keep`](Self::keep).
    fn secure(&mut self) -> Result<(), OutOfMemory> {
        if !self.batch {
            return self.limbo.reserve(self.arrays.dropped.len());
        }
        if let Some(place) = self.words.iter().map(|(place, _)| *place).max() {
            self.held_words.extend_to(place as usize + 1, 0)?;
        }
        self.held.try_reserve(self.words.len())?;
        self.replaced.try_reserve(self.arrays.dropped.len())?;
        self.limbo.reserve(self.replaced.len() + self.arrays.dropped.len())?;
        for i in 0..self.arrays.made.len() {
            let Item { kind, run } = self.arrays.made[i];
            bit_set(self.arrays.marks(kind), run.at)?;
        }
        Ok(())
    }

    fn keep(&mut self) {
        self.arrays.made.clear();
        if !self.batch {
            for (place, word) in self.words.drain(..) {
                direct_word(&self.table, place).store(word, Ordering::Release);
            }
            if !self.arrays.dropped.is_empty() {
                self.limbo.retire(self.arrays.dropped.drain(..));
            }
            return;
        }
        for (place, word) in self.words.drain(..) {
            if bit(&self.arrays.new_branches, place >> BRANCH_BITS) {
                direct_word(&self.table, place).store(word, Ordering::Relaxed);
                continue;
            }
            if self.held_words[place as usize] & HELD == 0 {
                self.held.push(place);
            }
            self.held_words[place as usize] = word | HELD;
        }
        while let Some(item) = self.arrays.dropped.pop() {
            if bit_take(self.arrays.marks(item.kind), item.run.at) {
                self.arrays.give(&self.table, item);
            } else {
                self.replaced.push(item);
            }
        }
    }

    fn undo(&mut self) {
        self.words.clear();
        self.arrays.dropped.clear();
        while let Some(item) = self.arrays.made.pop() {
            bit_take(self.arrays.marks(item.kind), item.run.at);
            self.arrays.give(&self.table, item);
        }
    }
}

impl LpmWriter for PoptrieWriter {
    type Addr = u128;

    fn prepare(&mut self, change: &PrefixChange<u128>, store: &PrefixStore<u128>) -> Result<(), OutOfMemory> {
        self.reclaim();
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.clear();
        let made = store
            .gaps(change.prefix, change.len, |first, last| {
                ranges.try_reserve(1)?;
                ranges.push((first, last));
                Ok(())
            })
            .and_then(|()| self.make(change.leaf, &ranges))
            .and_then(|()| self.secure());
        self.ranges = ranges;
        if made.is_err() {
            self.undo();
        }
        made
    }

    fn publish(&mut self, _change: &PrefixChange<u128>, _store: &PrefixStore<u128>) {
        self.keep();
    }

    fn cancel(&mut self) {
        self.undo();
    }

    fn set_default(&mut self, leaf: u32) {
        self.table.default.store(leaf, Ordering::Release);
    }

    fn reclaim(&mut self) {
        let PoptrieWriter { limbo, arrays, table, .. } = self;
        limbo.reclaim(|item| arrays.give(table, item));
    }

    fn begin(&mut self) {
        self.batch = true;
    }

    fn commit(&mut self) {
        self.batch = false;
        while let Some(place) = self.held.pop() {
            let word = std::mem::take(&mut self.held_words[place as usize]);
            direct_word(&self.table, place).store(word & !HELD, Ordering::Release);
        }
        self.arrays.new_branches.fill(0);
        self.arrays.new_nodes.fill(0);
        self.arrays.new_leaves.fill(0);
        if !self.replaced.is_empty() {
            self.limbo.retire(self.replaced.drain(..));
        }
    }

    fn place(&self, node: u32) -> std::io::Result<()> {
        let Table { direct, nodes, jumps, leaves, default: _ } = &*self.table;
        direct.place(node)?;
        nodes.place(node)?;
        jumps.place(node)?;
        leaves.place(node)
    }

    fn memory_bytes(&self) -> usize {
        self.table.direct.resident()
            + self.table.nodes.resident()
            + self.table.jumps.resident()
            + self.table.leaves.resident()
            + self.held_words.resident()
            + self.arrays.new_branches.resident()
            + self.arrays.new_nodes.resident()
            + self.arrays.new_leaves.resident()
            + self.limbo.memory_bytes()
    }
}
