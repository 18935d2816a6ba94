//! The incomplete datagrams of a worker, by name and by age.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use quiver_wire::fragment::{Arrival, Reassembly, ReassemblyError};

pub use super::datagram::DatagramName;

/// What a held fragment costs: its buffers, in kB.
pub(super) const BUFFER_KB: u32 = 2;

/// Datagrams and memory that a worker holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Incomplete datagrams.
    pub datagrams: u32,
    /// Fragments that they consist of.
    pub fragments: u32,
    /// Buffers of all, in kB.
    pub kilobytes: u32,
}

/// An incomplete datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which one.
    pub name: DatagramName,
    /// How long ago its first fragment came, ns.
    pub age: u64,
    /// Fragments that have come.
    pub fragments: u32,
    /// Bytes of payload that have come.
    pub bytes: u32,
    /// Whether the one with the headers has come.
    pub has_first: bool,
}

struct Context<T> {
    parts: Reassembly<T>,
    started: u64,
    serial: u64,
    fragments: u32,
    bytes: u32,
    kilobytes: u32,
    congestion: bool,
}

/// A part as it comes in.
pub(super) struct Part<T> {
    pub offset: u16,
    pub len: usize,
    pub more: bool,
    pub congestion: bool,
    /// Of its buffers.
    pub kilobytes: u32,
    pub tag: T,
}

/// What became of a part.
pub(super) enum Outcome<T> {
    /// Kept.
    Kept,
    /// All parts are here, in order.
    Complete { parts: Vec<T>, len: u16, congestion: bool },
    /// Not taken.
    Rejected { part: T, reason: ReassemblyError, condemned: Vec<T> },
}

/// Parts of a datagram that is given up.
pub(super) struct GivenUp<T> {
    pub parts: Vec<T>,
    /// The first of `parts` is the datagram's first fragment.
    pub has_first: bool,
}

/// Incomplete datagrams by name; `T` stands for a fragment.
pub(super) struct Table<K, T> {
    by_name: HashMap<K, Context<T>>,
    /// Names in order of their first fragment; those whose serial number does not fit any more are skipped.
    order: VecDeque<(K, u64)>,
    serial: u64,
    totals: Totals,
}

impl<K: Copy + Eq + Hash, T: Copy> Table<K, T> {
    pub fn new() -> Self {
        Self { by_name: HashMap::new(), order: VecDeque::new(), serial: 0, totals: Totals::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn contains(&self, key: &K) -> bool {
        self.by_name.contains_key(key)
    }

    /// A part has come.
    pub fn insert(&mut self, key: K, now: u64, max_parts: usize, max_len: u16, part: Part<T>) -> Outcome<T> {
        if !self.by_name.contains_key(&key) {
            self.serial += 1;
            let parts = Reassembly::new(max_parts, max_len);
            let context =
                Context { parts, started: now, serial: self.serial, fragments: 0, bytes: 0, kilobytes: 0, congestion: false };
            self.by_name.insert(key, context);
            self.order.push_back((key, self.serial));
            self.totals.datagrams += 1;
        }
        let Some(context) = self.by_name.get_mut(&key) else { return Outcome::Kept };
        match context.parts.insert(part.offset, part.len, part.more, part.tag) {
            Ok(arrival) => {
                context.fragments += 1;
                context.bytes += part.len as u32;
                context.kilobytes += part.kilobytes;
                context.congestion |= part.congestion;
                self.totals.fragments += 1;
                self.totals.kilobytes += part.kilobytes;
                let Arrival::Complete(len) = arrival else { return Outcome::Kept };
                let congestion = context.congestion;
                Outcome::Complete { parts: self.remove(&key).parts, len, congestion }
            }
            Err(reason) => {
                let gone = reason.condemns() || context.fragments == 0;
                let condemned = if gone { self.remove(&key).parts } else { Vec::new() };
                Outcome::Rejected { part: part.tag, reason, condemned }
            }
        }
    }

    /// Takes a datagram out.
    fn remove(&mut self, key: &K) -> GivenUp<T> {
        let Some(context) = self.by_name.remove(key) else { return GivenUp { parts: Vec::new(), has_first: false } };
        self.totals.datagrams -= 1;
        self.totals.fragments -= context.fragments;
        self.totals.kilobytes -= context.kilobytes;
        let has_first = context.parts.has_first();
        // Names of datagrams that are gone collect in `order`; when they are most of it, it is cleaned.
        if self.order.len() > 64 && self.order.len() > 4 * self.by_name.len() {
            let by_name = &self.by_name;
            self.order.retain(|(k, serial)| by_name.get(k).is_some_and(|c| c.serial == *serial));
        }
        GivenUp { parts: context.parts.into_pieces().into_iter().map(|p| p.tag).collect(), has_first }
    }

    /// When the oldest datagram began.
    pub fn oldest(&mut self) -> Option<u64> {
        loop {
            let (key, serial) = self.order.front()?;
            match self.by_name.get(key) {
                Some(context) if context.serial == *serial => return Some(context.started),
                _ => drop(self.order.pop_front()),
            }
        }
    }

    /// Gives the oldest datagram up.
    pub fn pop_oldest(&mut self) -> Option<GivenUp<T>> {
        self.oldest()?;
        let (key, _) = self.order.pop_front()?;
        Some(self.remove(&key))
    }

    /// All datagrams, oldest first.
    pub fn show(&self, now: u64, name: impl Fn(&K) -> DatagramName) -> Vec<Held> {
        let one = |(key, serial): &(K, u64)| {
            let context = self.by_name.get(key).filter(|c| c.serial == *serial)?;
            Some(Held {
                name: name(key),
                age: now.saturating_sub(context.started),
                fragments: context.fragments,
                bytes: context.bytes,
                has_first: context.parts.has_first(),
            })
        };
        self.order.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u16, len: usize, more: bool, tag: u32) -> Part<u32> {
        Part { offset, len, more, congestion: false, kilobytes: BUFFER_KB, tag }
    }

    #[test]
    fn parts_come_out_in_order_whatever_order_they_came_in() {
        let mut table: Table<u8, u32> = Table::new();
        for (offset, more, tag) in [(16, false, 3), (0, true, 1)] {
            assert!(matches!(table.insert(1, 0, 8, 1000, part(offset, 8, more, tag)), Outcome::Kept));
        }
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 2, kilobytes: 4 });
        let Outcome::Complete { parts, len, .. } = table.insert(1, 0, 8, 1000, part(8, 8, true, 2)) else { panic!("complete") };
        assert_eq!((parts, len), (vec![1, 2, 3], 24));
        assert_eq!(table.totals(), Totals::default());
        assert_eq!(table.oldest(), None);
    }

    #[test]
    fn an_overlap_condemns_all_parts_and_a_duplicate_only_itself() {
        let mut table: Table<u8, u32> = Table::new();
        table.insert(1, 0, 8, 1000, part(0, 16, true, 1));
        let Outcome::Rejected { part: tag, condemned, .. } = table.insert(1, 0, 8, 1000, part(0, 16, true, 2)) else {
            panic!("duplicate")
        };
        assert_eq!((tag, condemned), (2, vec![]));
        let Outcome::Rejected { part: tag, condemned, .. } = table.insert(1, 0, 8, 1000, part(8, 16, true, 3)) else {
            panic!("overlap")
        };
        assert_eq!((tag, condemned), (3, vec![1]));
        assert_eq!(table.totals(), Totals::default());
    }

    #[test]
    fn the_oldest_goes_first_and_names_used_again_are_new() {
        let mut table: Table<u8, u32> = Table::new();
        table.insert(1, 10, 8, 1000, part(0, 8, true, 1));
        table.insert(2, 20, 8, 1000, part(8, 8, true, 2));
        table.insert(1, 25, 8, 1000, part(8, 8, false, 3));
        table.insert(1, 30, 8, 1000, part(0, 8, true, 4));
        assert_eq!(table.oldest(), Some(20));
        let given_up = table.pop_oldest().unwrap();
        assert_eq!((given_up.parts, given_up.has_first), (vec![2], false));
        let given_up = table.pop_oldest().unwrap();
        assert_eq!((given_up.parts, given_up.has_first), (vec![4], true));
        assert!(table.pop_oldest().is_none());
    }

    #[test]
    fn the_list_of_names_does_not_grow_with_datagrams_that_are_gone() {
        let mut table: Table<u32, u32> = Table::new();
        for key in 0..10_000 {
            table.insert(key, 0, 8, 1000, part(0, 8, true, 1));
            table.insert(key, 0, 8, 1000, part(8, 8, false, 1));
        }
        assert!(table.order.len() <= 66, "{}", table.order.len());
    }
}
