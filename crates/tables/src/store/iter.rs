//! Walking a [`PrefixStore`] in prefix order.

use super::{NIL, Node, PrefixStore};
use crate::address::Address;

/// More than the nodes that can wait in a walk: one for each bit, and the root.
const DEPTH: usize = 130;

/// Prefixes in order: `(first address, length, leaf)`.
#[derive(Clone, Debug)]
pub struct Iter<'a, A: Address> {
    store: &'a PrefixStore<A>,
    /// Nodes whose subtrees are still to be visited, the next one last.
    stack: [u32; DEPTH],
    depth: usize,
}

impl<'a, A: Address> Iter<'a, A> {
    fn empty(store: &'a PrefixStore<A>) -> Self {
        Iter { store, stack: [NIL; DEPTH], depth: 0 }
    }

    pub(super) fn under(store: &'a PrefixStore<A>, prefix: A, len: u8) -> Self {
        let mut iter = Self::empty(store);
        iter.push(store.top(prefix, len));
        iter
    }

    pub(super) fn after(store: &'a PrefixStore<A>, prefix: A, len: u8) -> Self {
        let prefix = prefix.first(len);
        let mut iter = Self::empty(store);
        let mut at = store.root;
        while at != NIL {
            let node = store.node(at);
            let node_len = node.len();
            let common = node.first.common(prefix);
            if node_len < len && common >= node_len {
                // Above: it comes before. Its right branch comes after if the path goes left.
                let side = prefix.bit(node_len);
                if side == 0 {
                    iter.push(node.child(1));
                }
                at = node.child(side);
            } else if node_len == len && node.first == prefix {
                iter.push_children(node);
                break;
            } else {
                // Below the prefix, or beside it.
                if node.first >= prefix {
                    iter.push(at);
                }
                break;
            }
        }
        iter
    }

    /// A walk over what lies strictly in `prefix`/`len`, for [`next_topmost`](Self::next_topmost).
    pub(super) fn topmost(store: &'a PrefixStore<A>, prefix: A, len: u8) -> Self {
        let mut iter = Self::empty(store);
        match store.top(prefix, len) {
            NIL => {}
            at if store.node(at).len() == len => iter.push_children(store.node(at)),
            at => iter.push(at),
        }
        iter
    }

    fn push(&mut self, index: u32) {
        if index != NIL
            && let Some(place) = self.stack.get_mut(self.depth)
        {
            *place = index;
            self.depth += 1;
        }
    }

    fn push_children(&mut self, node: &Node<A>) {
        self.push(node.child(1));
        self.push(node.child(0));
    }

    fn pop(&mut self) -> Option<&'a Node<A>> {
        self.depth = self.depth.checked_sub(1)?;
        Some(self.store.node(self.stack[self.depth]))
    }

    /// The next prefix, skipping what lies under it.
    pub(super) fn next_topmost(&mut self) -> Option<(A, u8)> {
        loop {
            let node = self.pop()?;
            if node.leaf != 0 {
                return Some((node.first, node.len()));
            }
            self.push_children(node);
        }
    }
}

impl<A: Address> Iterator for Iter<'_, A> {
    type Item = (A, u8, u32);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let node = self.pop()?;
            self.push_children(node);
            if node.leaf != 0 {
                return Some((node.first, node.len(), node.leaf));
            }
        }
    }
}
