//! IPv6 longest-prefix match: a poptrie, 18 bits directly and then 6 bits a level, leaves compressed.
//!
//! ```text
//!   root: 2^18 words              nodes (24 bytes)                          leaves (4 bytes)
//!   +------+------+--        +--------------------------------+
//!   | leaf | node-+--------->| vector  : which of 64 have a   |      +---+---+---+---+
//!   +------+------+--        |           node below           |  .-->| 0 | 5 | 0 | 7 |  one for each run
//!                            | leafvec : where a run of equal |  |   +---+---+---+---+  of equal leaves
//!                            |           leaves begins        |  |
//!                            | bases   : nodes, leaves -------+--'--> nodes of one node, side by side
//!                            +--------------------------------+
//! ```
//!
//! A step takes 6 bits `b`. If bit `b` of `vector` is set, the next node is the one at `nodes + popcount(vector up to b)`,
//! else the answer is the leaf at `leaves + popcount(leafvec up to b)`. Both bases are stored one too low, because a
//! count that includes the bit itself starts at 1, and with the mark that says what they lead to.
//!
//! The trie is a function from addresses to leaves and nothing more: a node whose 64 answers are equal does not exist,
//! whatever prefixes it was made of. Nodes and leaves are never changed once published. An update makes new arrays for the
//! node it changes and for those on the way up to the root word, and publishes all of it by one store (`writer`).
//!
//! Lookups of several addresses at a time overlap their cache misses: [`Lpm6::lookup_batch`] walks eight in step. As far as all
//! of them have the same bits, one walks for all, and jumps over nodes with one node below.

use crate::cpu::opaque;
use crate::mem::{Budget, PageKind, SharedArray};
use crate::{LEAF_MAX, error::OutOfMemory};
use std::hint::select_unpredictable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

mod arrays;
mod change;
mod journal;
mod jump;
mod node;
mod writer;
use jump::Jump;
pub(crate) use writer::PoptrieWriter;

/// Address bits that index the root.
const ROOT_BITS: u32 = 18;
/// Address bits of a step.
const STEP_BITS: u32 = 6;
/// Steps to the end of an address: (128 - 18) / 6, rounded up.
const STEPS: u32 = (128 - ROOT_BITS).div_ceil(STEP_BITS);
/// Marks a root word as the index of a node.
const NODE: u32 = 1 << 31;
/// Marks a word as the index of a leaf.
const LEAF_AT: u32 = 1 << 30;
/// Addresses that a batch walks in step.
const LANES: usize = 8;
/// Address bits that a batch takes into registers at a time.
const WINDOW: u32 = 64 / STEP_BITS * STEP_BITS;

/// `vector`, `leafvec`, and the bases: nodes in the high half, marked [`NODE`], leaves in the low one, marked [`LEAF_AT`].
type NodeWords = [AtomicU64; 3];

#[derive(Debug)]
struct Table {
    root: SharedArray<AtomicU32>,
    nodes: SharedArray<NodeWords>,
    /// The [`Jump`] of each node: apart, because most walks in a full table have no use for them.
    jumps: SharedArray<AtomicU64>,
    leaves: SharedArray<AtomicU32>,
    /// The leaf of ::/0, or 0.
    default: AtomicU32,
}

/// Nodes and leaves for which address space is reserved; 402 MB, 134 MB for their jumps, and 134 MB.
const NODES: usize = 1 << 24;
const LEAVES: usize = 1 << 25;
/// Entries past the last array, so that an index made of one node's base and another's vector stays inside.
const SLACK: usize = 64;

impl Table {
    fn new(budget: &Budget, pages: PageKind) -> Result<Self, OutOfMemory> {
        let root = SharedArray::reserve(1 << ROOT_BITS, PageKind::Base, budget)?;
        root.commit(1 << ROOT_BITS)?;
        Ok(Table {
            root,
            nodes: SharedArray::reserve(NODES + SLACK, pages, budget)?,
            jumps: SharedArray::reserve(NODES + SLACK, pages, budget)?,
            leaves: SharedArray::reserve(LEAVES + SLACK, pages, budget)?,
            default: AtomicU32::new(0),
        })
    }

    #[inline(always)]
    fn root_word(&self, addr: u128) -> u32 {
        // SAFETY: 18 bits index a root of 2^18 words.
        unsafe { self.root.at((addr >> (128 - ROOT_BITS)) as usize) }.load(Ordering::Acquire)
    }

    /// One step from node `index` by the six bits whose complement is `above`: the next node (marked [`NODE`]), or where the
    /// leaf is (marked [`LEAF_AT`]). A vector shifted by the complement has the bit in question on top and all up to it
    /// below. Without a branch: which of the two it is cannot be predicted.
    #[inline(always)]
    fn step(&self, index: u32, above: u32) -> u32 {
        // Indices are below NODES + SLACK: they come from the root, or from a base (at most NODES) and a count (at most
        // SLACK). That holds for any mixture of old and new words, so a reader outside QSBR reads nonsense, not strangers.
        // SAFETY: as just said.
        let node = unsafe { self.nodes.at(index as usize) };
        step_in(node.each_ref().map(|word| word.load(Ordering::Relaxed)), above)
    }

    /// One step of walks that are all at node `index`, which is read once.
    #[inline(always)]
    fn step_all<const N: usize>(&self, index: u32, keys: &[u64; N]) -> [u32; N] {
        // SAFETY: as in `step`.
        let node = unsafe { self.nodes.at(index as usize) };
        let node = node.each_ref().map(|word| word.load(Ordering::Relaxed));
        let mut words = [0; N];
        for k in 0..N {
            words[k] = opaque(step_in(node, (keys[k] >> (64 - STEP_BITS)) as u32));
        }
        words
    }

    /// Walks along the first `bits` of an address, [`ROOT_BITS`] or more: the word where it arrives, and how many bits led there.
    #[inline(always)]
    fn walk(&self, addr: u128, bits: u32) -> (u32, u32) {
        let mut word = self.root_word(addr);
        let mut key = !addr << ROOT_BITS;
        let mut from = ROOT_BITS;
        while word & NODE != 0 && from + STEP_BITS <= bits {
            let at = word & !NODE;
            let (jump, ahead) = (self.jump(at), (key >> 64) as u64);
            let steps = jump.steps();
            let by = if steps != 0 && from + steps * STEP_BITS <= bits && jump.leads(ahead) {
                word = NODE | jump.node();
                steps * STEP_BITS
            } else {
                word = self.step(at, (ahead >> (64 - STEP_BITS)) as u32);
                STEP_BITS
            };
            key <<= by;
            from += by;
        }
        (word, from)
    }

    /// The jump of node `index`.
    #[inline(always)]
    fn jump(&self, index: u32) -> Jump {
        // SAFETY: as in `step`. A jump leads to less than NODES, whatever is read.
        Jump(unsafe { self.jumps.at(index as usize) }.load(Ordering::Relaxed))
    }

    /// The leaf that a walk has ended at: in the word itself if the root had it, else where it says.
    #[inline(always)]
    fn leaf(&self, word: u32) -> u32 {
        let at = if word & LEAF_AT != 0 { word & !(LEAF_AT | NODE) } else { 0 };
        // SAFETY: as for nodes, with LEAVES; the entry 0 exists too.
        let leaf = unsafe { self.leaves.at(at as usize) }.load(Ordering::Relaxed);
        let leaf = if word & LEAF_AT != 0 { leaf } else { word };
        if leaf == 0 { self.default.load(Ordering::Relaxed) } else { leaf & LEAF_MAX }
    }
}

/// A step within a node.
#[inline(always)]
fn step_in([vector, leafvec, bases]: [u64; 3], above: u32) -> u32 {
    let above = above & 63;
    let (vector, leafvec) = (vector << above, leafvec << above);
    let below = vector >> 63 != 0;
    let upto = select_unpredictable(below, vector, leafvec);
    let base = select_unpredictable(below, bases >> 32, bases) as u32;
    base.wrapping_add(upto.count_ones())
}

/// How many bits, from the first on, all these addresses have alike.
#[inline(always)]
fn agreed<const N: usize>(addrs: &[u128; N]) -> u32 {
    let differ = |half: u32| addrs.iter().fold(0, |differ, addr| differ | ((addr ^ addrs[0]) >> half) as u64);
    match differ(64) {
        0 => 64 + differ(0).leading_zeros(),
        differ => differ.leading_zeros(),
    }
}

/// The complements of 64 bits of each address, from bit `from` on.
#[inline(always)]
fn window<const N: usize>(addrs: &[u128; N], from: u32) -> [u64; N] {
    let mut keys = [0; N];
    for k in 0..N {
        keys[k] = !((addrs[k] << from) >> 64) as u64;
    }
    keys
}

/// The reading side of an IPv6 table. Cheap to clone, and shared by any number of threads.
///
/// Threads must be registered with the table's [`Domain`](crate::qsbr::Domain). The bodies are `inline(always)`, so that
/// `count_ones` becomes what the caller's target features allow (POPCNT from x86-64-v2 on).
#[derive(Clone, Debug)]
pub struct Lpm6 {
    table: Arc<Table>,
}

impl Lpm6 {
    /// Whether both read the same memory: the same copy of the same table.
    pub fn reads_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// The leaf of the longest prefix that contains `addr`, or 0.
    #[inline(always)]
    pub fn lookup(&self, addr: u128) -> u32 {
        let table = &*self.table;
        let mut word = table.root_word(addr);
        let mut key = addr << ROOT_BITS;
        let mut left = STEPS;
        while word & NODE != 0 && left > 0 {
            word = table.step(word & !NODE, (!key >> (128 - STEP_BITS)) as u32);
            key <<= STEP_BITS;
            left -= 1;
        }
        table.leaf(word)
    }

    /// Looks every address up, eight at a time; stops at the end of the shorter slice.
    #[inline(always)]
    pub fn lookup_batch(&self, addrs: &[u128], out: &mut [u32]) {
        let n = addrs.len().min(out.len());
        let (groups, rest) = addrs[..n].as_chunks::<LANES>();
        let (results, rest_out) = out[..n].as_chunks_mut::<LANES>();
        for (group, result) in groups.iter().zip(results) {
            *result = self.lookup_group(group);
        }
        for (addr, leaf) in rest.iter().zip(rest_out) {
            *leaf = self.lookup(*addr);
        }
    }

    /// Asks the CPU to fetch the line that a lookup of `addr` begins with.
    #[inline(always)]
    pub fn prefetch(&self, addr: u128) {
        self.table.root.prefetch((addr >> (128 - ROOT_BITS)) as usize);
    }

    /// Looks `N` addresses up in step, so that their cache misses overlap. One that has arrived steps on the spot, at node 0,
    /// which is always empty.
    #[inline(always)]
    pub fn lookup_group<const N: usize>(&self, addrs: &[u128; N]) -> [u32; N] {
        let table = &*self.table;
        let mut words = [0u32; N];
        let mut from = ROOT_BITS;
        let alike = agreed(addrs);
        if alike >= ROOT_BITS {
            // The first address walks for all, as far as they have the same bits.
            let (word, at) = table.walk(addrs[0], alike);
            if word & NODE == 0 {
                return [table.leaf(word); N];
            }
            // Here they part.
            words = table.step_all(word & !NODE, &window(addrs, at));
            from = at + STEP_BITS;
        } else {
            for k in 0..N {
                words[k] = table.root_word(addrs[k]);
            }
        }
        let (mut any, mut all) = words.iter().fold((0, !0), |(any, all), word| (any | word, all & word));
        while any & NODE != 0 && from < 128 {
            // As many bits as a register has: most walks end within the first ones.
            let mut keys = if from == ROOT_BITS { window(addrs, ROOT_BITS) } else { window(addrs, from) };
            let mut left = WINDOW / STEP_BITS;
            // None has arrived: on the first steps, and where all go to prefixes of one length.
            while all & NODE != 0 && left > 0 {
                (any, all) = (0, !0);
                for k in 0..N {
                    // The compiler would gather the steps of a group into vectors, and take them apart again for every load
                    // (measured: 60 clocks instead of 46 for five steps).
                    words[k] = opaque(table.step(words[k] & !NODE, (keys[k] >> (64 - STEP_BITS)) as u32));
                    keys[k] <<= STEP_BITS;
                    any |= words[k];
                    all &= words[k];
                }
                left -= 1;
            }
            while any & NODE != 0 && left > 0 {
                (any, all) = (0, 0);
                for k in 0..N {
                    let on = words[k] & NODE != 0;
                    let next = table.step(if on { words[k] & !NODE } else { 0 }, (keys[k] >> (64 - STEP_BITS)) as u32);
                    words[k] = if on { next } else { words[k] };
                    keys[k] <<= STEP_BITS;
                    any |= words[k];
                }
                left -= 1;
            }
            from += WINDOW;
        }
        if any == all {
            return [table.leaf(any); N];
        }
        for word in &mut words {
            *word = table.leaf(*word);
        }
        words
    }
}
