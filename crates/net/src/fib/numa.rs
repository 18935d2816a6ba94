//! On which memory nodes the forwarding tables have copies.
//!
//! The kernel's numbers of memory nodes may have gaps. Threads count the nodes without gaps: a node's *place* is how many come before
//! it ([`ThreadPlan::numa`](quiver_graph::ThreadPlan)). Threads of a place without a copy read the first copy.

use quiver_tables::{CopyInfo, TableMemory};

use crate::ip::Family;

/// Where copies are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// The kernel's numbers of the nodes with a copy; none: there is one, wherever it lies.
    nodes: Vec<u32>,
    /// The copy for each place.
    of_place: Vec<usize>,
}

impl Copies {
    /// `places` has the kernel's number of each node that gets a copy, by place; nothing for the others.
    pub fn new(places: &[Option<u32>]) -> Self {
        let before = |place: usize| places[..place].iter().flatten().count();
        let copy = |(place, node): (usize, &Option<u32>)| node.map_or(0, |_| before(place));
        Self { nodes: places.iter().flatten().copied().collect(), of_place: places.iter().enumerate().map(copy).collect() }
    }

    /// The kernel's numbers of the nodes with a copy.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// What readers of each place have, of what readers of each copy have.
    pub fn by_place<F: Family>(&self, readers_of: impl Fn(usize) -> Readers<F>) -> Placed<F> {
        let places = if self.of_place.is_empty() { &[0][..] } else { &self.of_place };
        Placed(places.iter().map(|copy| readers_of(*copy)).collect())
    }
}

/// Says of which memory nodes the kernel did not take a table's copies.
pub(crate) fn warn_of_refused(memory: &TableMemory) {
    for CopyInfo { node, refused, .. } in &memory.copies {
        if let (Some(node), Some(error)) = (node, refused) {
            tracing::warn!(target: "fib", numa = node, "the forwarding tables' copy for NUMA node {node} may lie on another: {error}");
        }
    }
}

/// Handles of all tables, by FIB index, as nodes read them.
pub(crate) type Readers<F> = Vec<Option<<F as Family>::Reader>>;

/// The handles of all tables for the threads of each memory node.
pub(crate) struct Placed<F: Family>(Vec<Readers<F>>);

impl<F: Family> Placed<F> {
    /// Those for threads of this place.
    pub fn of(&self, place: usize) -> Readers<F> {
        self.0.get(place).or(self.0.first()).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_a_copy_of_its_own_uses_the_first() {
        let copies = Copies::new(&[Some(0), None, Some(4), Some(5)]);
        assert_eq!((copies.nodes(), &copies.of_place[..]), (&[0, 4, 5][..], &[0, 0, 1, 2][..]));
        let copies = Copies::new(&[None, Some(2)]);
        assert_eq!((copies.nodes(), &copies.of_place[..]), (&[2][..], &[0, 0][..]));
        assert!(Copies::new(&[]).nodes().is_empty());
    }
}
