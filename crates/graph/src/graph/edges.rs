//! Edges between nodes as the main thread knows them, in both directions: a node that goes or comes costs its own edges only,
//! however many others there are.

use std::collections::{BTreeSet, HashMap};

use crate::context::{ERROR_DROP, NULL_NODE};

/// Where a node's packets go, by slot. Slot 0 is `error-drop`.
pub(super) struct Nexts {
    slots: Vec<u16>,
    /// The first slot that leads to a node.
    by_target: HashMap<u16, u16>,
    /// Slots whose node was removed, but for declared ones: they are used again.
    free: BTreeSet<u16>,
    declared: usize,
}

impl Nexts {
    /// Slot 0, then the nodes that the declaration names.
    pub fn new(declared: &[u16]) -> Self {
        let slots: Vec<u16> = std::iter::once(ERROR_DROP).chain(declared.iter().copied()).collect();
        let mut by_target = HashMap::new();
        for (slot, target) in slots.iter().enumerate() {
            by_target.entry(*target).or_insert(slot as u16);
        }
        Self { declared: slots.len(), slots, by_target, free: BTreeSet::new() }
    }

    /// Targets by slot.
    pub fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// The slot that leads to a node.
    pub fn find(&self, target: u16) -> Option<u16> {
        self.by_target.get(&target).copied()
    }

    /// A slot for a node that none leads to yet.
    pub fn add(&mut self, target: u16) -> u16 {
        let slot = self.free.pop_first().unwrap_or(self.slots.len() as u16);
        if usize::from(slot) == self.slots.len() {
            self.slots.push(target);
        } else {
            self.slots[usize::from(slot)] = target;
        }
        self.by_target.insert(target, slot);
        slot
    }

    /// The node that a slot leads to is gone: it leads to `null-node` from now on.
    pub fn lose(&mut self, slot: u16) {
        let Some(target) = self.slots.get_mut(usize::from(slot)) else { return };
        self.by_target.remove(target);
        *target = NULL_NODE;
        if usize::from(slot) >= self.declared {
            self.free.insert(slot);
        }
    }
}

/// Who sends to each node: node and slot, without the slots 0.
#[derive(Default)]
pub(super) struct Incoming(Vec<BTreeSet<(u16, u16)>>);

impl Incoming {
    /// Notes an edge.
    pub fn add(&mut self, from: u16, slot: u16, to: u16) {
        let at = usize::from(to);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, BTreeSet::new);
        }
        self.0[at].insert((from, slot));
    }

    /// Notes all edges of a new node.
    pub fn add_all(&mut self, from: u16, nexts: &Nexts) {
        for (slot, to) in nexts.slots.iter().enumerate().skip(1) {
            self.add(from, slot as u16, *to);
        }
    }

    /// Forgets a node's own edges.
    pub fn forget(&mut self, from: u16, nexts: &Nexts) {
        for (slot, to) in nexts.slots.iter().enumerate().skip(1) {
            if let Some(sources) = self.0.get_mut(usize::from(*to)) {
                sources.remove(&(from, slot as u16));
            }
        }
    }

    /// Takes all edges to a node that goes; each source is to [lose](Nexts::lose) its slot.
    pub fn take(&mut self, gone: u16) -> Vec<(u16, u16)> {
        self.0.get_mut(usize::from(gone)).map(std::mem::take).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_when_its_node_is_gone_and_a_declared_one_is_not() {
        let mut nexts = Nexts::new(&[5, 6]);
        assert_eq!((nexts.find(6), nexts.add(7), nexts.add(8)), (Some(2), 3, 4));
        let mut incoming = Incoming::default();
        incoming.add_all(9, &nexts);
        for (gone, slot) in [(7, 3), (5, 1)] {
            assert_eq!(incoming.take(gone), [(9, slot)]);
            nexts.lose(slot);
        }
        assert_eq!(nexts.slots(), [ERROR_DROP, NULL_NODE, 6, NULL_NODE, 8]);
        assert_eq!((nexts.find(7), nexts.add(10), nexts.add(11)), (None, 3, 5));
    }

    #[test]
    fn a_node_that_went_is_no_source_any_more() {
        let nexts = Nexts::new(&[5, 5]);
        let mut incoming = Incoming::default();
        incoming.add_all(9, &nexts);
        incoming.add(8, 1, 5);
        incoming.forget(9, &nexts);
        assert_eq!(incoming.take(5), [(8, 1)]);
        assert_eq!(incoming.take(5), []);
    }
}
