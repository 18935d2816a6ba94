//! Lines of memory: nodes, and rules.
//!
//! ```text
//!             0      1 ...         D      D+1     D+2   ...   half    half+1 ...
//!   node    | head | cuts, ascending, the rest u32::MAX                            |
//!   rule    | head | low ends     |    number | flags | 0  ... | MAX | spans | MAX |
//! ```
//!
//! Half is 8 lanes where a slot is a line, and 16, a whole line, where it is two. A key has its fields in lanes 1 to D and zeros
//! elsewhere. So one comparison without any mask holds for all lanes: `key - low <= span`, where the lanes that are not fields have
//! the widest span.

use super::Ranges;
use crate::cpu::opaque;

/// Words of a line.
pub(super) const LANES: usize = 16;
/// Cuts of a node.
pub(super) const CUTS: usize = LANES - 1;
/// Fields for which a rule has room: in half of two lines beside the head, the number and the flags.
pub(super) const MAX_FIELDS: usize = LANES - 3;
/// The slot that ends a chain. Its rule has no key.
pub(super) const END: u32 = 0;
/// The number of no rule.
pub(super) const NONE: u32 = u32::MAX;
/// Slots, at most: 28 bits of a head.
pub(super) const MAX_SLOTS: usize = 1 << 28;

/// Bits of a head for the lane of the field that a node cuts.
const LANE_BITS: u32 = 4;

/// The first word: which field a node cuts and its first child, or where a chain goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head(u32);

impl Head {
    pub(super) fn node(field: usize, child: u32) -> Self {
        Head(child << LANE_BITS | (field as u32 + 1))
    }

    /// Lane 0 is no field: it marks a rule.
    pub(super) fn rule(next: u32) -> Self {
        Head(next << LANE_BITS)
    }

    #[inline(always)]
    pub(super) fn is_rule(self) -> bool {
        self.lane() == 0
    }

    #[inline(always)]
    pub(super) fn lane(self) -> usize {
        self.0 as usize % LANES
    }

    #[inline(always)]
    pub(super) fn slot(self) -> u32 {
        self.0 >> LANE_BITS
    }
}

/// A cache line: a node, a rule, or half of a rule.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line([u32; LANES]);

const _: () = assert!(size_of::<Line>() == 64);

/// The rule that no key has, where one line is a slot: behind the fields a key has zeros, and this asks for [`NONE`] there.
pub(super) static NEVER_HALF: [Line; 2] = Line::never(LANES / 2);
/// The same where two lines are a slot.
pub(super) static NEVER_WHOLE: [Line; 2] = Line::never(LANES);

impl Line {
    /// The lines of the rule that no key has, with so many lanes. It is the end of its own chain.
    const fn never(half: usize) -> [Self; 2] {
        let mut words = [0; LANES];
        let mut lane = 1;
        while lane < half {
            words[lane] = NONE;
            lane += 1;
        }
        [Line(words), Line([0; LANES])]
    }

    pub(super) fn node(field: usize, child: u32, cuts: &[u32]) -> Self {
        let mut words = [u32::MAX; LANES];
        words[0] = Head::node(field, child).0;
        for (word, cut) in words[1..].iter_mut().zip(cuts) {
            *word = *cut;
        }
        Line(words)
    }

    /// The lines of a rule: the second one is for slots of two.
    pub(super) fn rule<const D: usize>(rule: &Ranges<D>, number: u32, next: u32) -> [Self; 2] {
        let mut halves = [[0; LANES], [u32::MAX; LANES]];
        halves[0][0] = Head::rule(next).0;
        halves[0][1..=D].copy_from_slice(&rule.low);
        halves[0][D + 1] = number;
        halves[0][D + 2] = u32::from(rule.flags_mask) | u32::from(rule.flags_value) << 8;
        for j in 0..D {
            halves[1][j + 1] = rule.high[j] - rule.low[j];
        }
        if 2 * (D + 3) <= LANES {
            let (low, spans) = (halves[0], halves[1]);
            halves[0][LANES / 2..].copy_from_slice(&spans[..LANES / 2]);
            halves[1] = low;
        }
        halves.map(Line)
    }

    #[inline(always)]
    pub(super) fn head(&self) -> Head {
        Head(self.0[0])
    }

    /// How many cuts of this node are below a key.
    #[inline(always)]
    pub(super) fn cuts_below(&self, key: u32) -> u32 {
        // All lanes at once, and the head's again: the compiler, if it knew that it is the same, would do the other 15 in pieces.
        let below: u32 = self.0.iter().map(|cut| u32::from(key > *cut)).sum();
        below - u32::from(key > opaque(self.0[0]))
    }

    /// Whether the ranges of this rule have a key, where one line is a slot.
    #[inline(always)]
    pub(super) fn has_half(&self, key: &[u32; LANES]) -> bool {
        (0..LANES / 2).fold(true, |has, lane| has & (key[lane].wrapping_sub(self.0[lane]) <= self.0[lane + LANES / 2]))
    }

    /// The same where two lines are a slot.
    #[inline(always)]
    pub(super) fn has_whole(&self, spans: &Line, key: &[u32; LANES]) -> bool {
        (0..LANES).fold(true, |has, lane| has & (key[lane].wrapping_sub(self.0[lane]) <= spans.0[lane]))
    }

    #[inline(always)]
    pub(super) fn has_flags<const D: usize>(&self, flags: u8) -> bool {
        let word = self.0[D + 2];
        flags & word as u8 == (word >> 8) as u8
    }

    #[inline(always)]
    pub(super) fn number<const D: usize>(&self) -> u32 {
        self.0[D + 1]
    }
}
