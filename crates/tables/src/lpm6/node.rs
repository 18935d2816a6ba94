//! A poptrie's records as the writer sees them.

use super::arrays::{FreeLink, Run};
use super::jump::Jump;
use super::{NodeWords, Table};
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
pub(super) struct Node {
    pub vector: u64,
    pub leafvec: u64,
    /// Where its nodes and leaves start; without meaning while it has none.
    pub nodes: u32,
    pub leaves: u32,
    /// Over nodes with one node below, from this one on.
    pub jump: Jump,
}

impl Node {
    pub fn node_run(&self) -> Option<Run> {
        (self.vector != 0).then_some(Run { at: self.nodes, len: self.vector.count_ones() as u8 })
    }

    pub fn leaf_run(&self) -> Option<Run> {
        (self.leafvec != 0).then_some(Run { at: self.leaves, len: self.leafvec.count_ones() as u8 })
    }
}

/// What a block of addresses has: one leaf, or a node that tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Leaf(u32),
    Node(Node),
}

pub(super) fn load_node(table: &Table, at: u32) -> Node {
    // SAFETY: the writer follows only indices it has stored itself, of committed nodes.
    let (words, jump) = unsafe { (table.nodes.at(at as usize), table.jumps.at(at as usize)) };
    let [vector, leafvec, bases] = words.each_ref().map(|w| w.load(Ordering::Relaxed));
    let (nodes, leaves) = ((bases >> 32) as u32, bases as u32);
    Node { vector, leafvec, nodes: nodes.wrapping_add(1), leaves: leaves.wrapping_add(1), jump: Jump(jump.load(Ordering::Relaxed)) }
}

pub(super) fn store_node(table: &Table, at: u32, node: &Node) {
    let nodes = if node.vector == 0 { 0 } else { node.nodes - 1 };
    let leaves = if node.leafvec == 0 { 0 } else { node.leaves - 1 };
    // SAFETY: the writer stores only into runs that it has just taken, which are committed.
    let (words, jump) = unsafe { (table.nodes.at(at as usize), table.jumps.at(at as usize)) };
    words[0].store(node.vector, Ordering::Relaxed);
    words[1].store(node.leafvec, Ordering::Relaxed);
    words[2].store(u64::from(nodes) << 32 | u64::from(leaves), Ordering::Relaxed);
    jump.store(node.jump.0, Ordering::Relaxed);
}

pub(super) fn leaf_at(table: &Table, at: u32) -> &AtomicU32 {
    // SAFETY: as for nodes: only indices of runs that the writer has taken.
    unsafe { table.leaves.at(at as usize) }
}
