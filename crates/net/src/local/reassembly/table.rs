//! The incomplete datagrams of a worker, by name, by age and by who sends them.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use quiver_wire::fragment::{Arrival, Reassembly, ReassemblyError};

pub use super::datagram::DatagramName;
use crate::owner::{Counts, Owner};

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
    owner: Owner,
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
    /// The same by owner.
    owners: HashMap<Owner, VecDeque<(K, u64)>>,
    /// Datagrams and kilobytes by owner.
    datagrams: Counts,
    memory: Counts,
    serial: u64,
    totals: Totals,
}

/// Takes names of datagrams that are gone out of a list, when they are most of it.
fn clean<K: Copy + Eq + Hash, T>(order: &mut VecDeque<(K, u64)>, live: usize, by_name: &HashMap<K, Context<T>>) {
    if order.len() > 64 && order.len() > 4 * live {
        order.retain(|(k, serial)| by_name.get(k).is_some_and(|c| c.serial == *serial));
    }
}

impl<K: Copy + Eq + Hash, T: Copy> Table<K, T> {
    pub fn new() -> Self {
        Self {
            by_name: HashMap::new(),
            order: VecDeque::new(),
            owners: HashMap::new(),
            datagrams: Counts::default(),
            memory: Counts::default(),
            serial: 0,
            totals: Totals::default(),
        }
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

    /// Datagrams of an owner.
    pub fn datagrams_of(&self, owner: Owner) -> usize {
        self.datagrams.of(owner)
    }

    /// Who has most datagrams, and who has most memory.
    pub fn greediest(&self) -> (Option<Owner>, Option<Owner>) {
        (self.datagrams.greediest(), self.memory.greediest())
    }

    /// A part has come, from `owner`.
    pub fn insert(&mut self, key: K, owner: Owner, now: u64, max: (usize, u16), part: Part<T>) -> Outcome<T> {
        let (max_parts, max_len) = max;
        if !self.by_name.contains_key(&key) {
            self.serial += 1;
            let parts = Reassembly::new(max_parts, max_len);
            let context = Context {
                parts,
                started: now,
                serial: self.serial,
                owner,
                fragments: 0,
                bytes: 0,
                kilobytes: 0,
                congestion: false,
            };
            self.by_name.insert(key, context);
            self.order.push_back((key, self.serial));
            self.owners.entry(owner).or_default().push_back((key, self.serial));
            self.datagrams.add(owner, 1);
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
                self.memory.add(context.owner, part.kilobytes);
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
        self.datagrams.sub(context.owner, 1);
        self.memory.sub(context.owner, context.kilobytes);
        let left = self.datagrams.of(context.owner);
        clean(&mut self.order, self.by_name.len(), &self.by_name);
        if left == 0 {
            self.owners.remove(&context.owner);
        } else if let Some(order) = self.owners.get_mut(&context.owner) {
            clean(order, left, &self.by_name);
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

    /// Gives the oldest datagram of an owner up.
    pub fn pop_oldest_of(&mut self, owner: Owner) -> Option<GivenUp<T>> {
        loop {
            let (key, serial) = self.owners.get_mut(&owner)?.pop_front()?;
            if self.by_name.get(&key).is_some_and(|c| c.serial == serial) {
                return Some(self.remove(&key));
            }
        }
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

    const WHO: Owner = Owner::new(1, 1);

    fn part(offset: u16, len: usize, more: bool, tag: u32) -> Part<u32> {
        Part { offset, len, more, congestion: false, kilobytes: BUFFER_KB, tag }
    }

    #[test]
    fn parts_come_out_in_order_whatever_order_they_came_in() {
        let mut table: Table<u8, u32> = Table::new();
        for (offset, more, tag) in [(16, false, 3), (0, true, 1)] {
            assert!(matches!(table.insert(1, WHO, 0, (8, 1000), part(offset, 8, more, tag)), Outcome::Kept));
        }
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 2, kilobytes: 4 });
        let Outcome::Complete { parts, len, .. } = table.insert(1, WHO, 0, (8, 1000), part(8, 8, true, 2)) else {
            panic!("complete")
        };
        assert_eq!((parts, len), (vec![1, 2, 3], 24));
        assert_eq!(table.totals(), Totals::default());
        assert_eq!(table.oldest(), None);
    }

    #[test]
    fn an_overlap_condemns_all_parts_and_a_duplicate_only_itself() {
        let mut table: Table<u8, u32> = Table::new();
        table.insert(1, WHO, 0, (8, 1000), part(0, 16, true, 1));
        let Outcome::Rejected { part: tag, condemned, .. } = table.insert(1, WHO, 0, (8, 1000), part(0, 16, true, 2)) else {
            panic!("duplicate")
        };
        assert_eq!((tag, condemned), (2, vec![]));
        let Outcome::Rejected { part: tag, condemned, .. } = table.insert(1, WHO, 0, (8, 1000), part(8, 16, true, 3)) else {
            panic!("overlap")
        };
        assert_eq!((tag, condemned), (3, vec![1]));
        assert_eq!(table.totals(), Totals::default());
    }

    #[test]
    fn the_oldest_goes_first_and_names_used_again_are_new() {
        let mut table: Table<u8, u32> = Table::new();
        table.insert(1, WHO, 10, (8, 1000), part(0, 8, true, 1));
        table.insert(2, WHO, 20, (8, 1000), part(8, 8, true, 2));
        table.insert(1, WHO, 25, (8, 1000), part(8, 8, false, 3));
        table.insert(1, WHO, 30, (8, 1000), part(0, 8, true, 4));
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
            table.insert(key, WHO, 0, (8, 1000), part(0, 8, true, 1));
            table.insert(key, WHO, 0, (8, 1000), part(8, 8, false, 1));
        }
        assert!(table.order.len() <= 66, "{}", table.order.len());
    }

    #[test]
    fn each_owners_datagrams_and_memory_are_counted_and_its_oldest_found() {
        let mut table: Table<u32, u32> = Table::new();
        let (many, big) = (Owner::new(1, 1), Owner::new(2, 2));
        for key in 0..300 {
            table.insert(key, many, key.into(), (8, 1000), part(0, 8, true, key));
        }
        table.insert(1000, big, 5, (8, 1000), Part { kilobytes: 700, ..part(0, 8, true, 1000) });
        assert_eq!((table.datagrams_of(many), table.greediest()), (300, (Some(many), Some(big))));
        assert_eq!(table.pop_oldest_of(many).unwrap().parts, [0]);
        table.insert(1, many, 9, (8, 1000), part(8, 8, false, 7));
        assert_eq!(table.pop_oldest_of(many).unwrap().parts, [2], "what is complete is passed over");
        while table.pop_oldest_of(many).is_some() {}
        assert_eq!((table.datagrams_of(many), table.greediest()), (0, (Some(big), Some(big))));
        assert_eq!(table.pop_oldest().unwrap().parts, [1000]);
        assert_eq!((table.totals(), table.greediest(), table.owners.len()), (Totals::default(), (None, None), 0));
    }
}
