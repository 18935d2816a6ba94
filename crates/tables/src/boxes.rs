//! Access lists: the first of many rules that has a packet, by ranges in several fields. Built once, then only read.
//!
//! ```text
//!   a node: one line                              its children: slots side by side
//!   +------------+----------------------+         +------+------+------+------+
//!   | field,     | up to 15 cuts of the |  key    | node | rule | rule | none |
//!   | first child| field, ascending     | ------> +------+---+--+------+------+
//!   +------------+----------------------+  = first           |
//!                                            child +         v  the next rule of the same leaf
//!   a rule: one line (D = 5)                 cuts below    +------+      +------+
//!   +------+-----+--------+-------+-------+  the key       | rule | ---> | rule | ---> end
//!   | next | low | number | flags | spans |                +------+      +------+
//!   +------+-----+--------+-------+-------+
//! ```
//!
//! A node cuts the box that it stands for along one field into up to 16 parts, at borders of the rules in it. So 10,000
//! rules are three or four steps deep. A step compares a key with all cuts of the node at once and counts: no branch depends
//! on the key. A leaf is a chain of the rules that meet its box, in order of precedence, up to the first that covers the box.
//! Chains end in common: leaves whose last rules are the same share them.
//!
//! **Which rules share a tree.** A rule that is wide in the field of a cut goes to all children. Where many rules are wide in one
//! address and many in the other, a single tree would repeat them all over. So rules lie in up to four trees, by which of the
//! two addresses is wide; a few such rules are repeated nevertheless, because a tree more costs each lookup more. A tree is
//! walked only if its best rule comes before the match found so far.
//!
//! **Bounds.** Memory is linear in the rules whatever they are: at most [`SLOTS_A_RULE`] slots a rule and [`SLOTS_A_TREE`] a tree.
//! The largest leaf is cut first; where slots run out, leaves stay long. The work of building has a bound of the same kind, and
//! so has the depth of a tree. A hostile list therefore costs time in lookups, at worst about that of a linear search, and
//! nothing else.

use crate::cpu::opaque;
use crate::error::OutOfMemory;
use build::Builder;

mod build;
mod line;
mod split;
#[cfg(test)]
mod tests;
use line::{END, LANES, Line, MAX_FIELDS, NONE};

/// Slots of memory that a rule may take on average, repeated in several leaves and with its share of nodes.
pub const SLOTS_A_RULE: usize = 8;
/// Slots that a tree may take beyond that.
pub const SLOTS_A_TREE: usize = 64;
/// Trees of a list, at most.
pub const TREES: usize = 4;

/// A rule: a closed range in each of D fields, and a mask with value for flags.
///
/// It has a key whose fields all lie in the ranges, with flags that are `flags_value` under `flags_mask`. A rule with a
/// range whose low end is above the high one has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<const D: usize> {
    /// The least value of each field.
    pub low: [u32; D],
    /// The greatest value of each field.
    pub high: [u32; D],
    /// Which flags matter.
    pub flags_mask: u8,
    /// What those are.
    pub flags_value: u8,
}

impl<const D: usize> Ranges<D> {
    /// Whether the rule has the key.
    #[inline(always)]
    pub fn has(&self, key: &[u32; D], flags: u8) -> bool {
        (0..D).all(|j| self.low[j] <= key[j] && key[j] <= self.high[j]) && flags & self.flags_mask == self.flags_value
    }
}

/// A tree, and its first rule.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u32,
    best: u32,
}

/// A list of rules, ready for lookups. D is at most 13.
#[derive(Debug)]
pub struct Boxes<const D: usize> {
    /// Nodes and rules, [`Boxes::LINES`] lines a slot. The first slot is the end of all chains.
    lines: Box<[Line]>,
    /// In order of their first rules.
    trees: Vec<Tree>,
    rules: usize,
}

impl<const D: usize> Boxes<D> {
    /// Lines of a slot: a low end and a span for each field, and three words.
    const LINES: usize = const {
        assert!(D >= 1 && D <= MAX_FIELDS, "a rule has 1 to 13 fields");
        if 2 * (D + 3) <= LANES { 1 } else { 2 }
    };

    /// Builds it; rules in order of precedence.
    pub fn new(rules: &[Ranges<D>]) -> Result<Self, OutOfMemory> {
        let (lines, trees) = Builder::new(rules)?.finish();
        Ok(Boxes { lines, trees, rules: rules.len() })
    }

    /// The first rule that has the key: each field `low <= key <= high`, and `flags & flags_mask == flags_value`.
    #[inline(always)]
    pub fn find(&self, key: &[u32; D], flags: u8) -> Option<u32> {
        let [found] = self.find_batch(&[*key], &[flags]);
        found
    }

    /// Several at once, their lines under way together: `out[i]` is for `keys[i]`.
    #[inline(always)]
    pub fn find_batch<const W: usize>(&self, keys: &[[u32; D]; W], flags: &[u8; W]) -> [Option<u32>; W] {
        // A key as the lanes of a line have it.
        let mut lanes = [[0; LANES]; W];
        for (lanes, key) in lanes.iter_mut().zip(keys) {
            lanes[1..=D].copy_from_slice(key);
        }
        let mut best = [NONE; W];
        for tree in &self.trees {
            if best.iter().all(|best| *best < tree.best) {
                break;
            }
            let mut at = best.map(|best| if best < tree.best { END } else { tree.root });
            self.walk(&mut at, &lanes);
            self.scan(&mut at, &lanes, flags, &mut best);
        }
        best.map(|best| (best != NONE).then_some(best))
    }

    /// Goes on from nodes to their children until all lookups are at leaves.
    #[inline(always)]
    fn walk<const W: usize>(&self, at: &mut [u32; W], lanes: &[[u32; LANES]; W]) {
        loop {
            let heads = at.map(|at| self.line(at, 0).head());
            if heads.iter().fold(true, |all, head| all & head.is_rule()) {
                return;
            }
            for w in 0..W {
                let below = self.line(at[w], 0).cuts_below(lanes[w][heads[w].lane()]);
                // The compiler would else gather the keys of all lookups into vectors, and take those apart for every load.
                at[w] = opaque(if heads[w].is_rule() { at[w] } else { heads[w].slot() + below });
            }
        }
    }

    /// Goes along the chains of leaves until all lookups have a rule, or none before what they had.
    #[inline(always)]
    fn scan<const W: usize>(&self, at: &mut [u32; W], lanes: &[[u32; LANES]; W], flags: &[u8; W], best: &mut [u32; W]) {
        loop {
            let mut on = 0;
            for w in 0..W {
                let line = self.line(at[w], 0);
                let has = if Self::LINES == 1 { line.has_half(&lanes[w]) } else { line.has_whole(self.line(at[w], 1), &lanes[w]) };
                let has = has & line.has_flags::<D>(flags[w]);
                let has = opaque(u32::from(has)) != 0;
                let number = line.number::<D>();
                let better = number < best[w];
                best[w] = opaque(if has & better { number } else { best[w] });
                at[w] = opaque(if has | !better { END } else { line.head().slot() });
                on |= at[w];
            }
            if on == END {
                return;
            }
        }
    }

    /// A line of a slot; that of the end if there is no such slot.
    #[inline(always)]
    fn line(&self, slot: u32, line: usize) -> &Line {
        let never = if Self::LINES == 1 { &line::NEVER_HALF } else { &line::NEVER_WHOLE };
        self.lines.get(slot as usize * Self::LINES + line).unwrap_or(&never[line])
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines) + self.trees.capacity() * size_of::<Tree>()
    }

    /// The rules that it was made of.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }
}
