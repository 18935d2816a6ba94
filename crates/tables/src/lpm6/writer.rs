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

use super::arrays::{FreeLink, Run, Runs};
use super::{LEAVES, Lpm6, NODE, NODES, NodeWords, ROOT_BITS, STEP_BITS, Table};
use crate::address::Address;
use crate::error::OutOfMemory;
use crate::lpm::LpmWriter;
use crate::mem::{Budget, PageKind, PodVec};
use crate::qsbr::{Domain, Limbo};
use crate::store::PrefixStore;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

impl FreeLink for AtomicU32 {
    fn set_next(&self, next: u32) {
        self.store(next, Ordering::Relaxed);
    }
    fn next(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

/// A free node is an empty one whose leaf base is the link: a stray reader gets out of it at once.
impl FreeLink for NodeWords {
    fn set_next(&self, next: u32) {
        self[0].store(0, Ordering::Relaxed);
        self[1].store(0, Ordering::Relaxed);
        self[2].store(next.into(), Ordering::Relaxed);
    }
    fn next(&self) -> u32 {
        self[2].load(Ordering::Relaxed) as u32
    }
}

/// A node's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    vector: u64,
    leafvec: u64,
    /// Where its nodes and leaves start; without meaning while it has none.
    nodes: u32,
    leaves: u32,
}

impl Node {
    fn node_run(&self) -> Option<Run> {
        (self.vector != 0).then_some(Run { at: self.nodes, len: self.vector.count_ones() as u8 })
    }

    fn leaf_run(&self) -> Option<Run> {
        (self.leafvec != 0).then_some(Run { at: self.leaves, len: self.leafvec.count_ones() as u8 })
    }
}

/// What a block of addresses has: one leaf, or a node that tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Leaf(u32),
    Node(Node),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nodes,
    Leaves,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    kind: Kind,
    run: Run,
}

/// A range of addresses, both ends included.
type Range = (u128, u128);

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

/// The allocator, and the journal of the operation that is going on.
#[derive(Debug)]
struct Arrays {
    nodes: Runs,
    leaves: Runs,
    made: Vec<Item>,
    dropped: Vec<Item>,
    /// One bit for each node, then for each leaf: the run that starts here is not published yet.
    new_nodes: PodVec<u64>,
    new_leaves: PodVec<u64>,
}

fn bit_set(bits: &mut PodVec<u64>, at: u32) -> Result<(), OutOfMemory> {
    bits.extend_to(at as usize / 64 + 1, 0)?;
    bits[at as usize / 64] |= 1 << (at % 64);
    Ok(())
}

fn bit_take(bits: &mut PodVec<u64>, at: u32) -> bool {
    let Some(word) = bits.get_mut(at as usize / 64) else {
        return false;
    };
    let was = *word >> (at % 64) & 1 != 0;
    *word &= !(1 << (at % 64));
    was
}

impl Arrays {
    fn take(&mut self, table: &Table, kind: Kind, len: usize) -> Result<Run, OutOfMemory> {
        self.made.try_reserve(1)?;
        let run = match kind {
            Kind::Nodes => self.nodes.take(&table.nodes, len)?,
            Kind::Leaves => self.leaves.take(&table.leaves, len)?,
        };
        self.made.push(Item { kind, run });
        Ok(run)
    }

    fn give(&mut self, table: &Table, item: Item) {
        match item.kind {
            Kind::Nodes => self.nodes.give(&table.nodes, item.run),
            Kind::Leaves => self.leaves.give(&table.leaves, item.run),
        }
    }

    fn drop_run(&mut self, kind: Kind, run: Option<Run>) -> Result<(), OutOfMemory> {
        if let Some(run) = run {
            self.dropped.try_reserve(1)?;
            self.dropped.push(Item { kind, run });
        }
        Ok(())
    }

    fn marks(&mut self, kind: Kind) -> &mut PodVec<u64> {
        match kind {
            Kind::Nodes => &mut self.new_nodes,
            Kind::Leaves => &mut self.new_leaves,
        }
    }
}

fn load_node(table: &Table, at: u32) -> Node {
    // SAFETY: the writer follows only indices it has stored itself, of committed nodes.
    let words = unsafe { table.nodes.at(at as usize) };
    let [vector, leafvec, bases] = [&words[0], &words[1], &words[2]].map(|w| w.load(Ordering::Relaxed));
    Node { vector, leafvec, nodes: ((bases >> 32) as u32).wrapping_add(1), leaves: (bases as u32).wrapping_add(1) }
}

fn store_node(table: &Table, at: u32, node: &Node) {
    let nodes = if node.vector == 0 { 0 } else { node.nodes - 1 };
    let leaves = if node.leafvec == 0 { 0 } else { node.leaves - 1 };
    // SAFETY: the writer stores only into runs that it has just taken, which are committed.
    let words = unsafe { table.nodes.at(at as usize) };
    words[0].store(node.vector, Ordering::Relaxed);
    words[1].store(node.leafvec, Ordering::Relaxed);
    words[2].store(u64::from(nodes) << 32 | u64::from(leaves), Ordering::Relaxed);
}

fn leaf_at(table: &Table, at: u32) -> &AtomicU32 {
    // SAFETY: as for nodes: only indices of runs that the writer has taken.
    unsafe { table.leaves.at(at as usize) }
}

/// The addresses of slot `i` of a node that tells the bits from `bits` on apart, in the block that starts at `start`.
/// Past bit 128 several slots share an address; lookups only use the first of them.
fn slot(start: u128, bits: u32, i: u32) -> Range {
    let end = bits + STEP_BITS;
    let first = if end <= 128 { start | u128::from(i) << (128 - end) } else { start | u128::from(i >> (end - 128)) };
    (first, first.last(end.min(128) as u8))
}

/// The slots of such a node that the addresses from `first` to `last` (inside its block) fall into.
fn slots(bits: u32, first: u128, last: u128) -> RangeInclusive<u32> {
    let index = |addr: u128| match (128 - STEP_BITS).checked_sub(bits) {
        Some(shift) => (addr >> shift) as u32 & 63,
        None => (addr << (bits + STEP_BITS - 128)) as u32 & 63,
    };
    let share = 1u32 << (bits + STEP_BITS).saturating_sub(128);
    index(first)..=index(last) | (share - 1)
}

fn root_word(table: &Table, index: u32) -> &AtomicU32 {
    // SAFETY: 18 bits index a root of 2^18 words.
    unsafe { table.root.at(index as usize & ((1 << ROOT_BITS) - 1)) }
}

struct Change<'a> {
    table: &'a Table,
    arrays: &'a mut Arrays,
    leaf: u32,
}

impl Change<'_> {
    /// Gives the addresses of `ranges` the leaf, as far as they lie in the block; returns what the block is then.
    /// The ranges are in order, and each has at least one address in the block.
    fn apply(&mut self, block: Block, start: u128, bits: u32, ranges: &[Range]) -> Result<Block, OutOfMemory> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(block);
        };
        let end = start.last(bits.min(128) as u8);
        if first.0 <= start && first.1 >= end {
            self.discard(&block)?;
            return Ok(Block::Leaf(self.leaf));
        }
        let slots = slots(bits, first.0.max(start), last.1.min(end));
        if let Block::Node(node) = block
            && slots.start() == slots.end()
            && node.vector >> slots.start() & 1 != 0
        {
            return self.apply_below(node, *slots.start(), start, bits, ranges);
        }
        self.apply_slots(block, slots, start, bits, ranges)
    }

    /// As `apply`, where all happens in the node of slot `i`: the usual case on the way down to where a prefix ends.
    fn apply_below(&mut self, node: Node, i: u32, start: u128, bits: u32, ranges: &[Range]) -> Result<Block, OutOfMemory> {
        let rank = (node.vector & ((1 << i) - 1)).count_ones();
        let before = load_node(self.table, node.nodes + rank);
        let after = self.apply(Block::Node(before), slot(start, bits, i).0, bits + STEP_BITS, ranges)?;
        let Block::Node(after) = after else {
            return self.replace_slot(node, i, after);
        };
        if after == before {
            return Ok(Block::Node(node));
        }
        let count = node.vector.count_ones();
        self.arrays.drop_run(Kind::Nodes, node.node_run())?;
        let run = self.arrays.take(self.table, Kind::Nodes, count as usize)?;
        for k in 0..count {
            let record = if k == rank { after } else { load_node(self.table, node.nodes + k) };
            store_node(self.table, run.at + k, &record);
        }
        Ok(Block::Node(Node { nodes: run.at, ..node }))
    }

    /// The node with another block in slot `i`, where it had a node.
    fn replace_slot(&mut self, old: Node, i: u32, block: Block) -> Result<Block, OutOfMemory> {
        let (mut leaves, mut nodes) = ([0; 64], [Node::default(); 64]);
        self.expand(&old, &mut leaves, &mut nodes);
        let mut vector = old.vector;
        match block {
            Block::Node(node) => nodes[i as usize] = node,
            Block::Leaf(leaf) => {
                vector &= !(1 << i);
                leaves[i as usize] = leaf;
            }
        }
        self.compress(&old, vector, &leaves, Some(&nodes))
    }

    /// As `apply`, slot by slot.
    fn apply_slots(
        &mut self,
        block: Block,
        slots: RangeInclusive<u32>,
        start: u128,
        bits: u32,
        ranges: &[Range],
    ) -> Result<Block, OutOfMemory> {
        let mut leaves = [0u32; 64];
        let mut nodes = [Node::default(); 64];
        let old = match block {
            Block::Leaf(leaf) if leaf == self.leaf => return Ok(block),
            Block::Leaf(leaf) => {
                leaves = [leaf; 64];
                Node::default()
            }
            Block::Node(node) => {
                self.expand(&node, &mut leaves, &mut nodes);
                node
            }
        };
        let (mut vector, mut changed, mut moved) = (old.vector, false, false);
        let mut rest = ranges;
        for i in slots {
            let (from, till) = slot(start, bits, i);
            rest = &rest[rest.partition_point(|r| r.1 < from)..];
            let here = &rest[..rest.partition_point(|r| r.0 <= till)];
            let k = i as usize;
            let before = if vector >> i & 1 != 0 { Block::Node(nodes[k]) } else { Block::Leaf(leaves[k]) };
            let after = self.apply(before, from, bits + STEP_BITS, here)?;
            if after == before {
                continue;
            }
            changed = true;
            match after {
                Block::Leaf(leaf) => {
                    vector &= !(1 << i);
                    leaves[k] = leaf;
                }
                Block::Node(node) => {
                    vector |= 1 << i;
                    nodes[k] = node;
                    moved = true;
                }
            }
        }
        if !changed {
            return Ok(block);
        }
        moved |= vector != old.vector;
        self.compress(&old, vector, &leaves, moved.then_some(&nodes))
    }

    fn expand(&self, node: &Node, leaves: &mut [u32; 64], nodes: &mut [Node; 64]) {
        let (mut next_node, mut next_leaf, mut leaf) = (node.nodes, node.leaves, 0);
        for i in 0..64 {
            if node.leafvec >> i & 1 != 0 {
                leaf = leaf_at(self.table, next_leaf).load(Ordering::Relaxed);
                next_leaf += 1;
            }
            if node.vector >> i & 1 != 0 {
                nodes[i] = load_node(self.table, next_node);
                next_node += 1;
            }
            leaves[i] = leaf;
        }
    }

    /// Writes the node that says this, sharing with the old one what is equal. Without `nodes` those are the old ones.
    fn compress(&mut self, old: &Node, vector: u64, leaves: &[u32; 64], nodes: Option<&[Node; 64]>) -> Result<Block, OutOfMemory> {
        let mut runs = [0u32; 64];
        let (mut leafvec, mut n, mut open) = (0u64, 0, None);
        for i in (0..64).filter(|i| vector >> i & 1 == 0) {
            if open != Some(leaves[i]) {
                leafvec |= 1 << i;
                runs[n] = leaves[i];
                n += 1;
                open = Some(leaves[i]);
            }
        }
        if vector == 0 && n == 1 {
            self.arrays.drop_run(Kind::Nodes, old.node_run())?;
            self.arrays.drop_run(Kind::Leaves, old.leaf_run())?;
            return Ok(Block::Leaf(runs[0]));
        }
        let mut new = Node { vector, leafvec, nodes: old.nodes, leaves: old.leaves };
        let same_leaves =
            leafvec == old.leafvec && (0..n).all(|i| leaf_at(self.table, old.leaves + i as u32).load(Ordering::Relaxed) == runs[i]);
        if !same_leaves {
            self.arrays.drop_run(Kind::Leaves, old.leaf_run())?;
            if n > 0 {
                new.leaves = self.arrays.take(self.table, Kind::Leaves, n)?.at;
                for (i, leaf) in runs[..n].iter().enumerate() {
                    leaf_at(self.table, new.leaves + i as u32).store(*leaf, Ordering::Relaxed);
                }
            }
        }
        if let Some(nodes) = nodes {
            self.arrays.drop_run(Kind::Nodes, old.node_run())?;
            if vector != 0 {
                new.nodes = self.arrays.take(self.table, Kind::Nodes, vector.count_ones() as usize)?.at;
                for (k, i) in (0..64).filter(|i| vector >> i & 1 != 0).enumerate() {
                    store_node(self.table, new.nodes + k as u32, &nodes[i]);
                }
            }
        }
        Ok(Block::Node(new))
    }

    /// Drops everything under a block.
    fn discard(&mut self, block: &Block) -> Result<(), OutOfMemory> {
        let Block::Node(node) = block else {
            return Ok(());
        };
        for k in 0..node.vector.count_ones() {
            self.discard(&Block::Node(load_node(self.table, node.nodes + k)))?;
        }
        self.arrays.drop_run(Kind::Nodes, node.node_run())?;
        self.arrays.drop_run(Kind::Leaves, node.leaf_run())
    }
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

    fn assign(&mut self, prefix: u128, len: u8, leaf: u32, store: &PrefixStore<u128>) -> Result<(), OutOfMemory> {
        self.reclaim();
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.clear();
        let made = store
            .gaps(prefix, len, |first, last| {
                ranges.try_reserve(1)?;
                ranges.push((first, last));
                Ok(())
            })
            .and_then(|()| self.make(leaf, &ranges))
            .and_then(|()| self.prepare());
        self.ranges = ranges;
        match made {
            Ok(()) => self.keep(),
            Err(_) => self.undo(),
        }
        made
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
    fn prepare(&mut self) -> Result<(), OutOfMemory> {
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

impl LpmWriter<u128> for PoptrieWriter {
    fn insert(&mut self, prefix: u128, len: u8, leaf: u32, store: &PrefixStore<u128>) -> Result<(), OutOfMemory> {
        self.assign(prefix, len, leaf, store)
    }

    fn remove(&mut self, prefix: u128, len: u8, leaf: u32, store: &PrefixStore<u128>) -> Result<(), OutOfMemory> {
        self.assign(prefix, len, leaf, store)
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

    fn memory_bytes(&self) -> usize {
        self.table.root.resident()
            + self.table.nodes.resident()
            + self.table.leaves.resident()
            + self.held_words.resident()
            + self.arrays.new_nodes.resident()
            + self.arrays.new_leaves.resident()
            + self.limbo.memory_bytes()
    }
}
