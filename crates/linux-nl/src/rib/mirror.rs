//! What the kernel has beside routes (neighbours, addresses, state of links), and what the router was told of it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use quiver_graph::IfIndex;

/// A key that belongs to a link.
pub trait Keyed: Copy + Eq + Hash {
    /// The link's index.
    fn link(&self) -> u32;
}

struct Kept<V> {
    now: Option<V>,
    told: Option<(IfIndex, V)>,
    generation: u8,
    dirty: bool,
}

/// A table of the kernel with what was told of it.
pub struct Mirror<K, V> {
    entries: HashMap<K, Kept<V>>,
    dirty: VecDeque<K>,
    generation: u8,
}

impl<K, V> Default for Mirror<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), dirty: VecDeque::new(), generation: 0 }
    }
}

impl<K: Keyed, V: Clone + PartialEq> Mirror<K, V> {
    /// Something is there as said, or not there.
    pub fn set(&mut self, key: K, now: Option<V>) {
        let generation = self.generation;
        if now.is_none() && !self.entries.contains_key(&key) {
            return;
        }
        let kept = self.entries.entry(key).or_insert(Kept { now: None, told: None, generation, dirty: false });
        kept.generation = generation;
        if kept.now != now {
            kept.now = now;
            if !std::mem::replace(&mut kept.dirty, true) {
                self.dirty.push_back(key);
            }
        }
    }

    /// A comparison begins.
    pub fn begin_dump(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// It ends: what it has not shown is not there.
    pub fn sweep(&mut self) {
        let generation = self.generation;
        let gone: Vec<K> = self.entries.iter().filter(|(_, kept)| kept.generation != generation).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.set(key, None));
    }

    /// Links have other interfaces: all is looked at again.
    pub fn look_again(&mut self) {
        for (key, kept) in &mut self.entries {
            if !std::mem::replace(&mut kept.dirty, true) {
                self.dirty.push_back(*key);
            }
        }
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        let all: Vec<K> = self.entries.keys().copied().collect();
        all.into_iter().for_each(|key| self.set(key, None));
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.entries.values().filter(|kept| kept.now.is_some()).count()
    }

    /// Whether there may be changes.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The next change: what was told before and what holds now, each with its interface.
    #[allow(clippy::type_complexity)]
    pub fn change(
        &mut self,
        interface: impl Fn(u32) -> Option<IfIndex>,
    ) -> Option<(K, Option<(IfIndex, V)>, Option<(IfIndex, V)>)> {
        while let Some(key) = self.dirty.pop_front() {
            let Some(kept) = self.entries.get_mut(&key) else { continue };
            kept.dirty = false;
            let now = kept.now.clone().and_then(|now| Some((interface(key.link())?, now)));
            let before = std::mem::replace(&mut kept.told, now.clone());
            if kept.now.is_none() {
                self.entries.remove(&key);
            }
            if before != now {
                return Some((key, before, now));
            }
        }
        None
    }
}
