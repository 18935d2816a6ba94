//! Changing a poptrie: copy the path, publish by one store.
//!
//! ```text
//!   root word --> [n0] --> [. . n1 . .] --> [. n2 . . . .]        n2 changes:
//!       |                                          |               a new leaf array for n2',
//!       '--> [n0'] --> [. . n1' . .] --> [. n2' . . . .]           new node arrays with n2', n1', n0'
//! ```
//!
//! A change is "these ranges of addresses now have this leaf", where the ranges are the gaps that the prefix store names.
//! [`Change::apply`] walks down to the nodes that a range cuts through, and comes back up with new ones. Leaf arrays and
//! node arrays that stay equal are shared with the old version. Everything new is unpublished until the root word is
//! stored, so running out of memory half-way is undone by giving the new runs back.
//!
//! Within a batch ([`LpmWriter::begin`]) root words are kept aside, and runs that were made and replaced in the same
//! batch are free again at once: no reader has ever seen them.

use super::arrays::{Run, Runs};
use super::change::{Change, Range};
use super::journal::{Arrays, Item, Kind, bit_set, bit_take};
use super::node::{Block, load_node, root_word, store_node};
use super::{LEAVES, Lpm6, NODE, NODES, ROOT_BITS, Table};
use crate::address::Address;
use crate::error::OutOfMemory;
use crate::lpm::{LpmWriter, PrefixChange};
use crate::mem::{Budget, PageKind, PodVec};
use crate::qsbr::{Domain, Limbo};
use crate::store::PrefixStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Root words that a batch has changed: the word with this bit, else 0.
const HELD: u32 = 1 << 30;

/// The writing side.
#[derive(Debug)]
pub(crate) struct PoptrieWriter {
    table: Arc<Table>,
    arrays: Arrays,
    ranges: Vec<Range>,
    limbo: Limbo<Item>,
    /// Inside a batch: unpublished root words, which ones, and the runs that the published ones still need.
    batch: bool,
    held_words: PodVec<u32>,
    held: Vec<u32>,
    replaced: Vec<Item>,
    /// One operation's root words, until all of them are made.
    words: Vec<(u32, u32)>,
}

impl PoptrieWriter {
    pub fn new(domain: &Domain, budget: &Budget, pages: PageKind) -> Result<Self, OutOfMemory> {
        let arrays = Arrays {
            nodes: Runs::new(NODES),
            leaves: Runs::new(LEAVES),
            made: Vec::new(),
            dropped: Vec::new(),
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

    /// The root word as this writer sees it, held-back changes included.
    fn word(&self, index: u32) -> u32 {
        match self.held_words.get(index as usize) {
            Some(word) if word & HELD != 0 => word & !HELD,
            _ => root_word(&self.table, index).load(Ordering::Relaxed),
        }
    }

    /// Makes the new root words.
    fn make(&mut self, leaf: u32, ranges: &[Range]) -> Result<(), OutOfMemory> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(());
        };
        let index = |addr: u128| (addr >> (128 - ROOT_BITS)) as u32;
        let table = self.table.clone();
        let mut rest = ranges;
        for i in index(first.0)..=index(last.1) {
            let start = u128::from(i) << (128 - ROOT_BITS);
            let end = start.last(ROOT_BITS as u8);
            rest = &rest[rest.partition_point(|r| r.1 < start)..];
            let here = &rest[..rest.partition_point(|r| r.0 <= end)];
            if here.is_empty() {
                continue;
            }
            let word = self.word(i);
            let before = if word & NODE != 0 { Block::Node(load_node(&table, word & !NODE)) } else { Block::Leaf(word) };
            let mut change = Change { table: &table, arrays: &mut self.arrays, leaf };
            let after = change.apply(before, start, ROOT_BITS, here)?;
            if after == before {
                continue;
            }
            if word & NODE != 0 {
                self.arrays.drop_run(Kind::Nodes, Some(Run { at: word & !NODE, len: 1 }))?;
            }
            let new = match after {
                Block::Leaf(leaf) => leaf,
                Block::Node(node) => {
                    let run = self.arrays.take(&table, Kind::Nodes, 1)?;
                    store_node(&table, run.at, &node);
                    NODE | run.at
                }
            };
            self.words.try_reserve(1)?;
            self.words.push((i, new));
        }
        Ok(())
    }

    /// Everything that could still fail before [`keep`](Self::keep).
    fn secure(&mut self) -> Result<(), OutOfMemory> {
        if !self.batch {
            return self.limbo.reserve(self.arrays.dropped.len());
        }
        self.held_words.extend_to(1 << ROOT_BITS, 0)?;
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
            for (index, word) in self.words.drain(..) {
                root_word(&self.table, index).store(word, Ordering::Release);
            }
            if !self.arrays.dropped.is_empty() {
                self.limbo.retire(self.arrays.dropped.drain(..));
            }
            return;
        }
        for (index, word) in self.words.drain(..) {
            if self.held_words[index as usize] & HELD == 0 {
                self.held.push(index);
            }
            self.held_words[index as usize] = word | HELD;
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
        while let Some(index) = self.held.pop() {
            let word = std::mem::take(&mut self.held_words[index as usize]);
            root_word(&self.table, index).store(word & !HELD, Ordering::Release);
        }
        self.arrays.new_nodes.fill(0);
        self.arrays.new_leaves.fill(0);
        if !self.replaced.is_empty() {
            self.limbo.retire(self.replaced.drain(..));
        }
    }

    fn place(&self, node: u32) -> std::io::Result<()> {
        let Table { root, nodes, jumps, leaves, default: _ } = &*self.table;
        root.place(node)?;
        nodes.place(node)?;
        jumps.place(node)?;
        leaves.place(node)
    }

    fn memory_bytes(&self) -> usize {
        self.table.root.resident()
            + self.table.nodes.resident()
            + self.table.jumps.resident()
            + self.table.leaves.resident()
            + self.held_words.resident()
            + self.arrays.new_nodes.resident()
            + self.arrays.new_leaves.resident()
            + self.limbo.memory_bytes()
    }
}
