//! IPv6 longest-prefix match: 16 and 8 bits directly, then a poptrie of 6 bits a level, leaves compressed.
//!
//! ```text
//!   root: 2^16 words            branches: 256 words each     nodes (24 bytes)                          leaves (4 bytes)
//!   +------+--------+--      +------+------+--        +--------------------------------+
//!   | leaf | branch-+------->| leaf | node-+--------->| vector  : which of 64 have a   |      +---+---+---+---+
//!   +------+--------+--      +------+------+--        |           node below           |  .-->| 0 | 5 | 0 | 7 |  one for each run
//!                                                     | leafvec : where a run of equal |  |   +---+---+---+---+  of equal leaves
//!                                                     |           leaves begins        |  |
//!                                                     | bases   : nodes, leaves -------+--'--> nodes of one node, side by side
//!                                                     +--------------------------------+
//! ```
//!
//! A step takes 6 bits `b`. If bit `b` of `vector` is set, the walk goes on to the node at `nodes + popcount(vector up to b)`.
//! Else it stays, as it would at any further step, and its answer is the leaf at `leaves + popcount(leafvec up to b)`. So walks that are
//! side by side need not be asked which of them have arrived. Both bases are stored one too low, because a count that includes the
//! bit itself starts at 1.
//!
//! The table is a function from addresses to leaves and nothing more: a node or a branch whose answers are all equal does not exist,
//! whatever prefixes it was made of. Nodes and leaves are never changed once published. An update makes new arrays for the
//! node it changes and for those on the way up to the word that leads there, and publishes all of it by one store (`writer`).
//!
//! The first 24 bits are two levels, so that a table with few prefixes is small, and that a prefix of a few bits is 2^16 stores at most.
//! Lookups of several addresses at a time overlap their cache misses: [`Lpm6::lookup_batch`] walks eight in step. As far as all
//! of them have the same bits, one walks for all, and jumps over nodes with one node below.

use crate::error::OutOfMemory;
use crate::mem::{Budget, PageKind, SharedArray};
use std::sync::atomic::{AtomicU32, AtomicU64};

mod arrays;
mod change;
mod direct;
mod journal;
mod jump;
mod lookup;
mod node;
mod writer;
pub use lookup::Lpm6;
pub(crate) use writer::PoptrieWriter;

/// Address bits that index the root.
const ROOT_BITS: u32 = 16;
/// Address bits that index a branch.
const BRANCH_BITS: u32 = 8;
/// Address bits before the first node.
const DIRECT_BITS: u32 = ROOT_BITS + BRANCH_BITS;
/// Address bits of a step.
const STEP_BITS: u32 = 6;
/// Marks a word of the root as the number of a branch, and one of a branch as the index of a node.
const DEEPER: u32 = 1 << 31;

/// `vector`, `leafvec`, and the bases: nodes in the high half, leaves in the low one.
type NodeWords = [AtomicU64; 3];

#[derive(Debug)]
struct Table {
    /// The root, and behind it the branches. Branch `b` begins at word `256 * b`: the first numbers are the root's.
    direct: SharedArray<AtomicU32>,
    nodes: SharedArray<NodeWords>,
    /// The [`Jump`](jump::Jump) of each node: apart, because most walks in a full table have no use for them.
    jumps: SharedArray<AtomicU64>,
    leaves: SharedArray<AtomicU32>,
    /// The leaf of ::/0, or 0.
    default: AtomicU32,
}

/// Words of the root and of as many branches as it can name: 67 MB of address space.
const DIRECT: usize = (1 << ROOT_BITS) + (1 << DIRECT_BITS);
/// Nodes and leaves for which address space is reserved; 402 MB, 134 MB for their jumps, and 134 MB.
const NODES: usize = 1 << 24;
const LEAVES: usize = 1 << 25;
/// Entries past the last array, so that an index made of one node's base and another's vector stays inside.
const SLACK: usize = 64;

impl Table {
    fn new(budget: &Budget, pages: PageKind) -> Result<Self, OutOfMemory> {
        let direct = SharedArray::reserve(DIRECT, PageKind::Base, budget)?;
        direct.commit(1 << ROOT_BITS)?;
        Ok(Table {
            direct,
            nodes: SharedArray::reserve(NODES + SLACK, pages, budget)?,
            jumps: SharedArray::reserve(NODES + SLACK, pages, budget)?,
            leaves: SharedArray::reserve(LEAVES + SLACK, pages, budget)?,
            default: AtomicU32::new(0),
        })
    }
}
