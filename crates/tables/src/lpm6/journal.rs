//! The runs that an operation makes and drops, so that it can be kept or undone as a whole.

use super::Table;
use super::arrays::{Run, Runs};
use super::direct::Branches;
use crate::error::OutOfMemory;
use crate::mem::PodVec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A branch: its number, and 1.
    Branches,
    Nodes,
    Leaves,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub kind: Kind,
    pub run: Run,
}

/// The allocator, and the journal of the operation that is going on.
#[derive(Debug)]
pub(super) struct Arrays {
    pub branches: Branches,
    pub nodes: Runs,
    pub leaves: Runs,
    pub made: Vec<Item>,
    pub dropped: Vec<Item>,
    /// One bit for each branch, node and leaf: the run that starts here is not published yet.
    pub new_branches: PodVec<u64>,
    pub new_nodes: PodVec<u64>,
    pub new_leaves: PodVec<u64>,
}

pub(super) fn bit_set(bits: &mut PodVec<u64>, at: u32) -> Result<(), OutOfMemory> {
    bits.extend_to(at as usize / 64 + 1, 0)?;
    bits[at as usize / 64] |= 1 << (at % 64);
    Ok(())
}

pub(super) fn bit(bits: &PodVec<u64>, at: u32) -> bool {
    bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
}

pub(super) fn bit_take(bits: &mut PodVec<u64>, at: u32) -> bool {
    let Some(word) = bits.get_mut(at as usize / 64) else {
        return false;
    };
    let was = *word >> (at % 64) & 1 != 0;
    *word &= !(1 << (at % 64));
    was
}

impl Arrays {
    pub fn take(&mut self, table: &Table, kind: Kind, len: usize) -> Result<Run, OutOfMemory> {
        self.made.try_reserve(1)?;
        let run = match kind {
            Kind::Branches => Run { at: self.branches.take(&table.direct)?, len: 1 },
            Kind::Nodes => {
                let run = self.nodes.take(&table.nodes, len)?;
                if let Err(error) = table.jumps.commit(run.at as usize + len) {
                    self.nodes.give(&table.nodes, run);
                    return Err(error);
                }
                run
            }
            Kind::Leaves => self.leaves.take(&table.leaves, len)?,
        };
        self.made.push(Item { kind, run });
        Ok(run)
    }

    pub fn give(&mut self, table: &Table, item: Item) {
        match item.kind {
            Kind::Branches => self.branches.give(item.run.at),
            Kind::Nodes => self.nodes.give(&table.nodes, item.run),
            Kind::Leaves => self.leaves.give(&table.leaves, item.run),
        }
    }

    pub fn drop_run(&mut self, kind: Kind, run: Option<Run>) -> Result<(), OutOfMemory> {
        if let Some(run) = run {
            self.dropped.try_reserve(1)?;
            self.dropped.push(Item { kind, run });
        }
        Ok(())
    }

    pub fn marks(&mut self, kind: Kind) -> &mut PodVec<u64> {
        match kind {
            Kind::Branches => &mut self.new_branches,
            Kind::Nodes => &mut self.new_nodes,
            Kind::Leaves => &mut self.new_leaves,
        }
    }
}
