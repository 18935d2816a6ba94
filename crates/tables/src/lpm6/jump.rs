//! Jumps: what leads a walk over nodes with one node below each.
//!
//! ```text
//!    63                  28 27 26   24 23             0
//!   +----------------------+--+-------+----------------+
//!   | bits that lead there |  | steps | node           |
//!   | (their complement)   |  | 0..=6 |                |
//!   +----------------------+--+-------+----------------+
//! ```
//!
//! Where a table has few routes, a walk goes down such a chain: four nodes on the way to a /48, seven to a /64. A walk for a
//! group of addresses compares its bits with the way at once; a walk of a single address never looks.

use super::STEP_BITS;

/// Steps of a jump: as many as there is room for their bits.
const MOST: u32 = 6;
const NODE_BITS: u32 = 24;
const STEPS_BITS: u32 = 3;
/// Where the bits of the way are.
const WAY: u64 = !0 << (64 - MOST * STEP_BITS);

/// A node's jump; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Jump(pub u64);

impl Jump {
    /// From a node whose only node below is at `node`, under the six bits `slot`, and has the jump `below`.
    pub fn over(slot: u32, node: u32, below: Jump) -> Jump {
        let first = u64::from(!slot & 63) << (64 - STEP_BITS);
        if below.steps() == 0 || below.steps() == MOST {
            return Jump(first | 1 << NODE_BITS | u64::from(node));
        }
        let steps = u64::from(below.steps() + 1) << NODE_BITS;
        Jump(first | (below.0 & WAY) >> STEP_BITS & WAY | steps | u64::from(below.node()))
    }

    /// The node that it leads to.
    #[inline(always)]
    pub fn node(self) -> u32 {
        self.0 as u32 & ((1 << NODE_BITS) - 1)
    }

    /// Steps that it saves.
    #[inline(always)]
    pub fn steps(self) -> u32 {
        (self.0 >> NODE_BITS) as u32 & ((1 << STEPS_BITS) - 1)
    }

    /// Whether a walk with this key, the complement of the bits to come, goes there. There are steps.
    #[inline(always)]
    pub fn leads(self, key: u64) -> bool {
        (key ^ self.0) >> (64 - self.steps() * STEP_BITS) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_grows_to_six_steps_and_begins_again() {
        let mut jump = Jump::default();
        let slots = [63, 0, 21, 42, 1, 62, 7];
        // From the end of the chain up, as nodes are made: node 10 is the last.
        for (k, slot) in slots.iter().rev().enumerate() {
            jump = Jump::over(*slot, 10 + k as u32, jump);
            let (steps, node) = if k < 6 { (k as u32 + 1, 10) } else { (1, 16) };
            assert_eq!((jump.steps(), jump.node()), (steps, node));
            let way = slots[slots.len() - 1 - k..].iter().take(steps as usize);
            let key = !way.enumerate().fold(0, |key, (i, slot)| key | u64::from(*slot) << (58 - 6 * i));
            assert!(jump.leads(key));
            for bit in 64 - 6 * steps..64 {
                assert!(!jump.leads(key ^ 1 << bit), "{bit}");
            }
            assert!(jump.leads(key ^ ((1 << (64 - 6 * steps)) - 1)), "what follows is not compared");
        }
    }
}
