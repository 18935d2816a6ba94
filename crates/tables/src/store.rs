//! The control side's record of a table: which prefixes exist, with which leaf.
//!
//! A path-compressed binary trie ("patricia") in one array. A node is a prefix; its children are the next prefixes or
//! branching points below it. A node without a leaf is a branching point ("glue"), there only while it has two children:
//!
//! ```text
//!   10.0.0.0/8 = 1            nodes: 16 bytes each for IPv4, 32 for IPv6
//!       `-- 10.1.0.0/23       (glue)
//!             |-- 10.1.0.0/24 = 2
//!             `-- 10.1.1.0/24 = 3
//! ```
//!
//! A child word holds 28 bits of node index and 4 bits of the node's own length, which saves a word a node. The trie of
//! `n` prefixes has fewer than `2 n` nodes. Readers of the data path never come here.

use crate::address::Address;
use crate::error::OutOfMemory;
use crate::mem::{Budget, PodVec};

mod iter;
#[cfg(test)]
mod tests;
pub use iter::Iter;

/// No node: index 0 is never given out.
const NIL: u32 = 0;
const INDEX_BITS: u32 = 28;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

#[derive(Clone, Copy, Debug, Default)]
struct Node<A> {
    first: A,
    /// 0: a branching point.
    leaf: u32,
    /// Index of the child, and above it four bits of `len`: low ones here, high ones in the second word.
    words: [u32; 2],
}

impl<A: Address> Node<A> {
    fn new(first: A, len: u8, leaf: u32) -> Self {
        let len = u32::from(len);
        Node { first, leaf, words: [len << INDEX_BITS, len >> 4 << INDEX_BITS] }
    }

    #[inline(always)]
    fn len(&self) -> u8 {
        (self.words[0] >> INDEX_BITS | self.words[1] >> INDEX_BITS << 4) as u8
    }

    #[inline(always)]
    fn child(&self, side: usize) -> u32 {
        self.words[side & 1] & INDEX_MASK
    }

    #[inline(always)]
    fn set_child(&mut self, side: usize, index: u32) {
        let word = &mut self.words[side & 1];
        *word = *word & !INDEX_MASK | index;
    }
}

/// Where an index is kept: the root word, or one side of a node.
#[derive(Clone, Copy)]
enum Link {
    Root,
    Child(u32, usize),
}

/// A set of prefixes with a non-zero leaf each. Prefix bits past the length are ignored on the way in.
#[derive(Debug)]
pub struct PrefixStore<A: Address> {
    nodes: PodVec<Node<A>>,
    root: u32,
    /// Chain of unused nodes through child 0.
    free: u32,
    unused: u32,
    len: usize,
}

impl<A: Address> PrefixStore<A> {
    /// An empty store that draws its memory from `budget`.
    pub fn new(budget: &Budget) -> Self {
        PrefixStore { nodes: PodVec::new(budget), root: NIL, free: NIL, unused: 0, len: 0 }
    }

    /// How many prefixes it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of real memory.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.resident()
    }

    #[inline(always)]
    fn node(&self, index: u32) -> &Node<A> {
        &self.nodes[index as usize]
    }

    #[inline(always)]
    fn node_mut(&mut self, index: u32) -> &mut Node<A> {
        &mut self.nodes[index as usize]
    }

    fn set_link(&mut self, link: Link, index: u32) {
        match link {
            Link::Root => self.root = index,
            Link::Child(parent, side) => self.node_mut(parent).set_child(side, index),
        }
    }

    /// Makes sure that taking `n` nodes cannot fail.
    fn reserve(&mut self, n: u32) -> Result<(), OutOfMemory> {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default())?;
        }
        let more = n.saturating_sub(self.unused) as usize;
        if self.nodes.len() + more > INDEX_MASK as usize {
            return Err(OutOfMemory);
        }
        self.nodes.reserve(more)
    }

    /// A node of its own for a prefix. `reserve` has made sure that there is one.
    fn take(&mut self, node: Node<A>) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.node(index).child(0);
            self.unused -= 1;
            *self.node_mut(index) = node;
            return index;
        }
        let index = self.nodes.len() as u32;
        match self.nodes.push(node) {
            Ok(()) => index,
            Err(OutOfMemory) => unreachable!("reserved before"),
        }
    }

    fn give(&mut self, index: u32) {
        let free = self.free;
        let node = self.node_mut(index);
        *node = Node::default();
        node.set_child(0, free);
        self.free = index;
        self.unused += 1;
    }

    /// Sets the leaf of a prefix; returns the one that it had.
    pub fn insert(&mut self, prefix: A, len: u8, leaf: u32) -> Result<Option<u32>, OutOfMemory> {
        debug_assert!(leaf != 0 && len <= A::BITS);
        let prefix = prefix.first(len);
        let (mut link, mut at) = (Link::Root, self.root);
        while at != NIL {
            let node = *self.node(at);
            let node_len = node.len();
            let common = node.first.common(prefix).min(node_len).min(len);
            if common < node_len {
                // The new prefix is above the node, or they part ways here.
                self.reserve(if common == len { 1 } else { 2 })?;
                let own = self.take(Node::new(prefix, len, leaf));
                let top = if common == len {
                    own
                } else {
                    let glue = self.take(Node::new(prefix.first(common), common, 0));
                    self.node_mut(glue).set_child(prefix.bit(common), own);
                    glue
                };
                self.node_mut(top).set_child(node.first.bit(common), at);
                self.set_link(link, top);
                self.len += 1;
                return Ok(None);
            }
            if node_len == len {
                self.node_mut(at).leaf = leaf;
                self.len += usize::from(node.leaf == 0);
                return Ok((node.leaf != 0).then_some(node.leaf));
            }
            let side = prefix.bit(node_len);
            (link, at) = (Link::Child(at, side), node.child(side));
        }
        self.reserve(1)?;
        let own = self.take(Node::new(prefix, len, leaf));
        self.set_link(link, own);
        self.len += 1;
        Ok(None)
    }

    /// Takes a prefix out; returns the leaf that it had. The nodes it frees are kept, so that putting the prefix back
    /// right away cannot fail.
    pub fn remove(&mut self, prefix: A, len: u8) -> Option<u32> {
        let prefix = prefix.first(len);
        let (mut above, mut link, mut at) = (None, Link::Root, self.root);
        loop {
            if at == NIL {
                return None;
            }
            let node = *self.node(at);
            if node.len() > len || node.first != prefix.first(node.len()) {
                return None;
            }
            if node.len() == len {
                break;
            }
            let side = prefix.bit(node.len());
            (above, link, at) = (Some((link, at)), Link::Child(at, side), node.child(side));
        }
        let node = *self.node(at);
        if node.leaf == 0 {
            return None;
        }
        self.len -= 1;
        match (node.child(0), node.child(1)) {
            (NIL, NIL) => {
                self.set_link(link, NIL);
                self.give(at);
                // A branching point above has lost one of its two branches: its other child takes its place.
                if let Some((above_link, above_at)) = above {
                    let parent = *self.node(above_at);
                    if parent.leaf == 0 {
                        self.set_link(above_link, parent.child(0).max(parent.child(1)));
                        self.give(above_at);
                    }
                }
            }
            (only, NIL) | (NIL, only) => {
                self.set_link(link, only);
                self.give(at);
            }
            _ => self.node_mut(at).leaf = 0,
        }
        Some(node.leaf)
    }

    /// The leaf of exactly this prefix.
    pub fn get(&self, prefix: A, len: u8) -> Option<u32> {
        let prefix = prefix.first(len);
        let mut at = self.root;
        while at != NIL {
            let node = self.node(at);
            if node.len() >= len {
                let hit = node.len() == len && node.first == prefix && node.leaf != 0;
                return hit.then_some(node.leaf);
            }
            at = node.child(prefix.bit(node.len()));
        }
        None
    }

    /// The longest prefix that contains this one and is not it: its length and leaf.
    pub fn cover(&self, prefix: A, len: u8) -> Option<(u8, u32)> {
        self.longest(prefix, |node_len| node_len < len)
    }

    /// The longest prefix that contains this address: its length and leaf.
    pub fn lookup(&self, addr: A) -> Option<(u8, u32)> {
        self.longest(addr, |_| true)
    }

    fn longest(&self, addr: A, wanted: impl Fn(u8) -> bool) -> Option<(u8, u32)> {
        let (mut best, mut at) = (None, self.root);
        while at != NIL {
            let node = self.node(at);
            let len = node.len();
            if !wanted(len) || node.first != addr.first(len) {
                break;
            }
            if node.leaf != 0 {
                best = Some((len, node.leaf));
            }
            if len == A::BITS {
                break;
            }
            at = node.child(addr.bit(len));
        }
        best
    }

    /// The topmost node of the trie whose prefix lies in `prefix`/`len` (or is it).
    fn top(&self, prefix: A, len: u8) -> u32 {
        let prefix = prefix.first(len);
        let mut at = self.root;
        while at != NIL {
            let node = self.node(at);
            if node.len() >= len {
                return if node.first.first(len) == prefix { at } else { NIL };
            }
            at = node.child(prefix.bit(node.len()));
        }
        NIL
    }

    /// Whether a prefix longer than `len` lies in `prefix`/`len`.
    pub fn has_longer(&self, prefix: A, len: u8) -> bool {
        match self.top(prefix, len) {
            NIL => false,
            at => {
                let node = self.node(at);
                // A branching point has two children by construction, so there is a prefix below it.
                node.len() > len || node.child(0) != NIL || node.child(1) != NIL
            }
        }
    }

    /// Calls `f(first, last)` for every range of addresses in `prefix`/`len` that no longer prefix covers, in order.
    pub fn gaps<E>(&self, prefix: A, len: u8, mut f: impl FnMut(A, A) -> Result<(), E>) -> Result<(), E> {
        let (first, last) = (prefix.first(len), prefix.last(len));
        let mut open = Some(first);
        let mut walk = Iter::topmost(self, prefix, len);
        while let Some((child, child_len)) = walk.next_topmost() {
            if let (Some(from), Some(to)) = (open, child.previous())
                && from < child
            {
                f(from, to)?;
            }
            open = child.last(child_len).next();
        }
        match open {
            Some(from) if from <= last => f(from, last),
            _ => Ok(()),
        }
    }

    /// All prefixes in order: by first address, shorter before longer.
    pub fn iter(&self) -> Iter<'_, A> {
        Iter::under(self, A::default(), 0)
    }

    /// The prefixes in `prefix`/`len`, itself included, in order.
    pub fn iter_under(&self, prefix: A, len: u8) -> Iter<'_, A> {
        Iter::under(self, prefix, len)
    }

    /// The prefixes that come after `prefix`/`len` in order, whether that one exists or not: resumes a long walk.
    pub fn iter_after(&self, prefix: A, len: u8) -> Iter<'_, A> {
        Iter::after(self, prefix, len)
    }
}
