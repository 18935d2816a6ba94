//! Lookups.

use std::hint::select_unpredictable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::jump::Jump;
use super::{BRANCH_BITS, DEEPER, DIRECT_BITS, NodeWords, ROOT_BITS, STEP_BITS, Table};
use crate::LEAF_MAX;
use crate::cpu::opaque;

/// Addresses that a batch walks in step.
const LANES: usize = 8;
/// Steps for which a register has the bits.
const WINDOW_STEPS: u32 = 64 / STEP_BITS;

/// A walk among nodes.
#[derive(Clone, Copy)]
struct Walk {
    /// The node where it is.
    at: u32,
    /// The complement of the bits to come, those of the next step lowest: a vector shifted by these has the bit in question on top and
    /// all up to it below.
    key: u64,
}

impl Walk {
    /// One that is at a node with the bits of `addr` from bit `from` on.
    #[inline(always)]
    fn at(node: u32, addr: u128, from: u32) -> Self {
        Walk { at: node, key: key(addr, from) }
    }

    /// One step by what the node has. The answer's top bit: it went on. Without a branch, since whether it does cannot be predicted.
    #[inline(always)]
    fn step(&mut self, vector: u64, bases: u64) -> u64 {
        let upto = vector << (self.key & 63);
        let on = upto >> 63 != 0;
        let next = ((bases >> 32) as u32).wrapping_add(upto.count_ones());
        // The compiler would gather the steps of a group into vectors, and take them apart again for every load.
        self.at = opaque(select_unpredictable(on, next, self.at));
        self.key = select_unpredictable(on, self.key.rotate_left(STEP_BITS), self.key);
        upto
    }
}

/// The complement of 64 bits of an address from bit `from` on, those of a step lowest.
#[inline(always)]
fn key(addr: u128, from: u32) -> u64 {
    (!((addr << from) >> 64) as u64).rotate_left(STEP_BITS)
}

impl Table {
    /// What the first bits of an address lead to: a leaf, or a node (marked [`DEEPER`]).
    #[inline(always)]
    fn direct_word(&self, addr: u128) -> u32 {
        let first = (addr >> (128 - DIRECT_BITS)) as u32;
        // SAFETY: 16 bits index a root of 2^16 words, and words of the root name branches that there is address space for, whenever they
        // are read.
        unsafe {
            let word = self.direct.at((first >> BRANCH_BITS) as usize).load(Ordering::Acquire);
            let deeper = word & DEEPER != 0;
            let at = select_unpredictable(deeper, word << BRANCH_BITS | first & ((1 << BRANCH_BITS) - 1), 0);
            let below = self.direct.at(at as usize).load(Ordering::Acquire);
            opaque(select_unpredictable(deeper, below, word))
        }
    }

    /// Node `index`. Indices are below NODES + SLACK: they come from the first words, or from a base (at most NODES) and a count (at
    /// most SLACK). That holds for any mixture of old and new words, so a reader outside QSBR reads nonsense, not strangers.
    #[inline(always)]
    fn node(&self, index: u32) -> &NodeWords {
        // SAFETY: as just said.
        unsafe { self.nodes.at(index as usize) }
    }

    #[inline(always)]
    fn step(&self, walk: &mut Walk) -> u64 {
        let [vector, _, bases] = self.node(walk.at);
        walk.step(vector.load(Ordering::Relaxed), bases.load(Ordering::Relaxed))
    }

    /// The leaf of a walk that has arrived.
    #[inline(always)]
    fn leaf(&self, walk: &Walk) -> u32 {
        let [_, leafvec, bases] = self.node(walk.at);
        let upto = leafvec.load(Ordering::Relaxed) << (walk.key & 63);
        let at = (bases.load(Ordering::Relaxed) as u32).wrapping_add(upto.count_ones());
        // SAFETY: as for nodes, with LEAVES.
        unsafe { self.leaves.at(at as usize) }.load(Ordering::Relaxed)
    }

    /// The answer for what the structure has: the leaf of ::/0 where it has none.
    #[inline(always)]
    fn answer(&self, leaf: u32) -> u32 {
        if leaf == 0 { self.default.load(Ordering::Relaxed) } else { leaf & LEAF_MAX }
    }

    /// The jump of node `index`.
    #[inline(always)]
    fn jump(&self, index: u32) -> Jump {
        // SAFETY: as in `node`. A jump leads to less than NODES, whatever is read.
        Jump(unsafe { self.jumps.at(index as usize) }.load(Ordering::Relaxed))
    }

    /// Walks on from `node`, which [`DIRECT_BITS`] led to, along the first `bits` of an address. `Ok`: it has arrived. `Err`: the node
    /// where the bits end, and how many led there.
    #[inline(always)]
    fn along(&self, node: u32, addr: u128, bits: u32) -> Result<Walk, (u32, u32)> {
        let (mut at, mut from) = (node, DIRECT_BITS);
        while from + STEP_BITS <= bits {
            let mut walk = Walk::at(at, addr, from);
            let jump = self.jump(at);
            let steps = jump.steps();
            if steps != 0 && from + steps * STEP_BITS <= bits && jump.leads(walk.key.rotate_right(STEP_BITS)) {
                (at, from) = (jump.node(), from + steps * STEP_BITS);
            } else if self.step(&mut walk) >> 63 != 0 {
                (at, from) = (walk.at, from + STEP_BITS);
            } else {
                return Ok(walk);
            }
        }
        Err((at, from))
    }
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

/// The reading side of an IPv6 table. Cheap to clone, and shared by any number of threads.
///
/// Threads must be registered with the table's [`Domain`](crate::qsbr::Domain). The bodies are `inline(always)`, so that
/// `count_ones` becomes what the caller's target features allow (POPCNT from x86-64-v2 on).
#[derive(Clone, Debug)]
pub struct Lpm6 {
    pub(super) table: Arc<Table>,
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
        let word = table.direct_word(addr);
        if word & DEEPER == 0 {
            return table.answer(word);
        }
        let (mut at, mut from) = (word & !DEEPER, DIRECT_BITS);
        loop {
            let mut walk = Walk::at(at, addr, from);
            from += STEP_BITS;
            if table.step(&mut walk) >> 63 == 0 || from >= 128 {
                return table.answer(table.leaf(&walk));
            }
            at = walk.at;
        }
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
        self.table.direct.prefetch((addr >> (128 - ROOT_BITS)) as usize);
    }

    /// Looks `N` addresses up in step, so that their cache misses overlap. One that has arrived steps on the spot.
    #[inline(always)]
    pub fn lookup_group<const N: usize>(&self, addrs: &[u128; N]) -> [u32; N] {
        let table = &*self.table;
        let mut walks = [Walk { at: 0, key: 0 }; N];
        let mut words = [DEEPER; N];
        let mut from = DIRECT_BITS;
        let alike = agreed(addrs);
        if alike >= DIRECT_BITS {
            // The first address walks for all, as far as they have the same bits.
            let word = table.direct_word(addrs[0]);
            if word & DEEPER == 0 {
                return [table.answer(word); N];
            }
            match table.along(word & !DEEPER, addrs[0], alike) {
                Ok(walk) => return [table.answer(table.leaf(&walk)); N],
                // Here they part: a node for all, which is read once.
                Err((node, at)) => {
                    let [vector, _, bases] = table.node(node).each_ref().map(|word| word.load(Ordering::Relaxed));
                    for k in 0..N {
                        walks[k] = Walk::at(node, addrs[k], at);
                        walks[k].step(vector, bases);
                    }
                    from = at + STEP_BITS;
                }
            }
        } else {
            for k in 0..N {
                words[k] = table.direct_word(addrs[k]);
                // Node 0 is always empty.
                let node = select_unpredictable(words[k] & DEEPER != 0, words[k] & !DEEPER, 0);
                walks[k] = Walk::at(node, addrs[k], from);
            }
        }
        table.arrive(addrs, &mut walks, from);
        let mut leaves = [0; N];
        for k in 0..N {
            let leaf = table.leaf(&walks[k]);
            leaves[k] = table.answer(select_unpredictable(words[k] & DEEPER != 0, leaf, words[k]));
        }
        leaves
    }
}

impl Table {
    /// Walks whose next step begins at bit `from`, or that have arrived, go on until all have. Their keys have the bits of all steps of
    /// a window but one.
    #[inline(always)]
    fn arrive<const N: usize>(&self, addrs: &[u128; N], walks: &mut [Walk; N], mut from: u32) {
        const STEPS: u32 = WINDOW_STEPS - 1;
        loop {
            for _ in 1..STEPS {
                if walks.iter_mut().fold(0, |on, walk| on | self.step(walk)) >> 63 == 0 {
                    return;
                }
            }
            // Few prefixes are so long. Those that are still under way get more bits; the others keep those by which they arrived.
            let on = walks.each_mut().map(|walk| self.step(walk) >> 63 != 0);
            from += STEPS * STEP_BITS;
            if from >= 128 {
                return;
            }
            for k in 0..N {
                if on[k] {
                    walks[k] = Walk::at(walks[k].at, addrs[k], from);
                }
            }
        }
    }
}
