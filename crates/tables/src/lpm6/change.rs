//! One change of a poptrie: from the old version of a block to the new one.

use super::journal::{Arrays, Kind};
use super::jump::Jump;
use super::node::{Block, Node, leaf_at, load_node, store_node};
use super::{STEP_BITS, Table};
use crate::address::Address;
use crate::error::OutOfMemory;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

/// A range of addresses, both ends included.
pub(super) type Range = (u128, u128);

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

pub(super) struct Change<'a> {
    pub table: &'a Table,
    pub arrays: &'a mut Arrays,
    pub leaf: u32,
}

impl Change<'_> {
    /// Gives the addresses of `ranges` the leaf, as far as they lie in the block; returns what the block is then.
    /// The ranges are in order, and each has at least one address in the block.
    pub fn apply(&mut self, block: Block, start: u128, bits: u32, ranges: &[Range]) -> Result<Block, OutOfMemory> {
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
        let jump = if count == 1 { Jump::over(i, run.at, after.jump) } else { Jump::default() };
        Ok(Block::Node(Node { nodes: run.at, jump, ..node }))
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
        let mut new = Node { vector, leafvec, nodes: old.nodes, leaves: old.leaves, jump: old.jump };
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
            new.jump = Jump::default();
            if vector != 0 {
                new.nodes = self.arrays.take(self.table, Kind::Nodes, vector.count_ones() as usize)?.at;
                for (k, i) in (0..64).filter(|i| vector >> i & 1 != 0).enumerate() {
                    store_node(self.table, new.nodes + k as u32, &nodes[i]);
                }
                if vector.is_power_of_two() {
                    let slot = vector.trailing_zeros();
                    new.jump = Jump::over(slot, new.nodes, nodes[slot as usize].jump);
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
