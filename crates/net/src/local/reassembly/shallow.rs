//! Shallow virtual reassembly: of a datagram only its first fragment matters. Later ones that come before it wait; once it is known
//! all go on as they are, so that whatever follows on the arc has seen the ports before it sees a fragment without. In the extended mode
//! they wait for the last fragment, too: what goes on has its whole length known.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::Limits;
use super::datagram::DatagramName;
use super::reasons::Drop;
use super::table::Totals;
use crate::owner::{Counts, Owner};

/// A datagram whose fragments wait, or pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which one.
    pub name: DatagramName,
    /// How long ago its first fragment came, ns.
    pub age: u64,
    /// Fragments that wait.
    pub fragments: u32,
    /// Whether the one with the headers has come, so that the others pass.
    pub has_first: bool,
}

struct Context {
    started: u64,
    serial: u64,
    owner: Owner,
    has_first: bool,
    has_last: bool,
    waiting: Vec<u32>,
    /// Which of them is the first fragment.
    first: Option<u32>,
    kilobytes: u32,
    /// Fragments that may wait.
    room: usize,
}

/// What becomes of a fragment.
pub(super) enum Passed {
    /// It goes on, and behind it those that have waited for it.
    On(Vec<u32>),
    /// It goes on behind those that have waited, of which the first fragment is the first.
    Behind(Vec<u32>),
    /// It is to wait.
    Wait,
    /// As many wait as may.
    Full,
}

/// Which part of its datagram a fragment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartOf {
    /// It has the headers.
    pub first: bool,
    /// Nothing follows it.
    pub last: bool,
}

/// Datagrams of a worker by name.
pub(super) struct Shallow<K> {
    by_name: HashMap<K, Context>,
    /// In order of their first fragments; those whose serial number does not fit any more are skipped.
    order: VecDeque<(K, u64)>,
    datagrams: Counts,
    serial: u64,
    totals: Totals,
    /// As at the last [`Shallow::make_room`].
    room: usize,
}

impl<K> Default for Shallow<K> {
    fn default() -> Self {
        let (by_name, order, datagrams) = (HashMap::new(), VecDeque::new(), Counts::default());
        Self { by_name, order, datagrams, serial: 0, totals: Totals::default(), room: 0 }
    }
}

impl<K: Copy + Eq + Hash> Shallow<K> {
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// A fragment of a datagram has come; the datagram is remembered. With `extended` fragments wait for the last one, too.
    pub fn arrived(&mut self, key: K, owner: Owner, now: u64, part: PartOf, extended: bool) -> Passed {
        if !self.by_name.contains_key(&key) {
            self.serial += 1;
            let (serial, room) = (self.serial, self.room);
            let new = Context {
                started: now,
                serial,
                owner,
                has_first: false,
                has_last: false,
                waiting: Vec::new(),
                first: None,
                kilobytes: 0,
                room,
            };
            self.by_name.insert(key, new);
            self.order.push_back((key, serial));
            self.datagrams.add(owner, 1);
            self.totals.datagrams += 1;
        }
        let Some(context) = self.by_name.get_mut(&key) else { return Passed::Full };
        context.has_first |= part.first;
        context.has_last |= part.last;
        if context.has_first && (context.has_last || !extended) {
            let mut waiting = std::mem::take(&mut context.waiting);
            self.totals.fragments -= waiting.len() as u32;
            self.totals.kilobytes -= std::mem::take(&mut context.kilobytes);
            let Some(at) = context.first.take().and_then(|first| waiting.iter().position(|tag| *tag == first)) else {
                return Passed::On(waiting);
            };
            waiting[..=at].rotate_right(1);
            return Passed::Behind(waiting);
        }
        if context.waiting.len() >= context.room { Passed::Full } else { Passed::Wait }
    }

    /// Keeps a fragment that is to wait.
    pub fn wait(&mut self, key: &K, tag: u32, kilobytes: u32, is_first: bool) {
        if let Some(context) = self.by_name.get_mut(key) {
            if is_first {
                context.first = context.first.or(Some(tag));
            }
            context.waiting.push(tag);
            context.kilobytes += kilobytes;
            self.totals.fragments += 1;
            self.totals.kilobytes += kilobytes;
        }
    }

    /// Forgets datagrams, oldest first, until a fragment of `key` has room; what has waited is to be dropped.
    pub fn make_room(&mut self, limits: &Limits, key: &K, owner: Owner, kilobytes: u32) -> Vec<(Vec<u32>, Drop)> {
        self.room = limits.fragments as usize;
        let mut gone = Vec::new();
        if !self.by_name.contains_key(key) {
            while self.datagrams.of(owner) >= limits.per_source.max(1) as usize
                && let Some(waiting) = self.pop_oldest(Some(owner))
            {
                gone.push((waiting, Drop::SourceLimit));
            }
            while self.totals.datagrams >= limits.datagrams.max(1)
                && let Some(waiting) = self.pop_oldest(self.datagrams.greediest())
            {
                gone.push((waiting, Drop::Limit));
            }
        }
        while self.totals.kilobytes + kilobytes > limits.kilobytes.max(kilobytes)
            && let Some(waiting) = self.pop_oldest(None)
        {
            gone.push((waiting, Drop::Limit));
        }
        gone
    }

    fn remove(&mut self, key: &K) -> Vec<u32> {
        let Some(context) = self.by_name.remove(key) else { return Vec::new() };
        self.datagrams.sub(context.owner, 1);
        self.totals.datagrams -= 1;
        self.totals.fragments -= context.waiting.len() as u32;
        self.totals.kilobytes -= context.kilobytes;
        context.waiting
    }

    /// Forgets the oldest datagram, of all or of an owner.
    fn pop_oldest(&mut self, owner: Option<Owner>) -> Option<Vec<u32>> {
        let fits = |(key, serial): &(K, u64)| {
            self.by_name.get(key).is_some_and(|c| c.serial == *serial && owner.is_none_or(|owner| c.owner == owner))
        };
        let at = self.order.iter().position(fits)?;
        let (key, _) = self.order.remove(at)?;
        Some(self.remove(&key))
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

    /// Forgets the oldest datagram if it has had its time; what has waited is to be dropped.
    pub fn pop_expired(&mut self, now: u64, timeout: u64) -> Option<Vec<u32>> {
        self.oldest().filter(|started| now >= started.saturating_add(timeout))?;
        self.pop_oldest(None)
    }

    /// All datagrams, oldest first.
    pub fn show(&self, now: u64, name: impl Fn(&K) -> DatagramName) -> Vec<Waiting> {
        let one = |(key, serial): &(K, u64)| {
            let context = self.by_name.get(key).filter(|c| c.serial == *serial)?;
            let (age, fragments) = (now.saturating_sub(context.started), context.waiting.len() as u32);
            Some(Waiting { name: name(key), age, fragments, has_first: context.has_first })
        };
        self.order.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WHO: Owner = Owner::new(1, 1);

    fn limits(datagrams: u32, fragments: u32, kilobytes: u32) -> Limits {
        Limits { timeout: Duration::from_millis(100), datagrams, per_source: 100, fragments, kilobytes }
    }

    /// A fragment comes; what goes on behind it, or `None` where it does not go on itself.
    fn come(table: &mut Shallow<u8>, limits: &Limits, key: u8, first: bool, tag: u32) -> (Option<Vec<u32>>, Vec<u32>) {
        come_as(table, limits, key, (PartOf { first, last: false }, false), tag)
    }

    fn come_as(
        table: &mut Shallow<u8>,
        limits: &Limits,
        key: u8,
        (part, extended): (PartOf, bool),
        tag: u32,
    ) -> (Option<Vec<u32>>, Vec<u32>) {
        let gone = table.make_room(limits, &key, WHO, 2).into_iter().flat_map(|(tags, _)| tags).collect();
        let on = match table.arrived(key, WHO, u64::from(tag), part, extended) {
            Passed::On(waiting) | Passed::Behind(waiting) => Some(waiting),
            Passed::Wait => {
                table.wait(&key, tag, 2, part.first);
                None
            }
            Passed::Full => None,
        };
        (on, gone)
    }

    #[test]
    fn fragments_wait_for_the_first_and_pass_behind_it() {
        let (mut table, limits) = (Shallow::default(), limits(10, 2, 100));
        assert_eq!(come(&mut table, &limits, 1, false, 1), (None, vec![]));
        assert_eq!(come(&mut table, &limits, 1, false, 2), (None, vec![]));
        assert_eq!(come(&mut table, &limits, 1, false, 3), (None, vec![]), "two wait at most");
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 2, kilobytes: 4 });
        assert_eq!(come(&mut table, &limits, 1, true, 4), (Some(vec![1, 2]), vec![]));
        assert_eq!(come(&mut table, &limits, 1, false, 5), (Some(vec![]), vec![]));
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 0, kilobytes: 0 });
    }

    #[test]
    fn in_the_extended_mode_fragments_wait_for_the_last_too() {
        let (mut table, limits) = (Shallow::default(), limits(10, 4, 100));
        let [middle, first, last] =
            [(false, false), (true, false), (false, true)].map(|(first, last)| (PartOf { first, last }, true));
        for (tag, part) in [(1, middle), (2, first), (3, first)] {
            assert_eq!(come_as(&mut table, &limits, 1, part, tag), (None, vec![]));
        }
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 3, kilobytes: 6 }, "one came twice");
        assert_eq!(come_as(&mut table, &limits, 1, last, 4), (Some(vec![2, 1, 3]), vec![]), "the first goes first");
        assert_eq!(come_as(&mut table, &limits, 1, middle, 5), (Some(vec![]), vec![]));
        assert_eq!(table.totals(), Totals { datagrams: 1, fragments: 0, kilobytes: 0 });
        assert_eq!(come_as(&mut table, &limits, 2, last, 6), (None, vec![]));
        assert_eq!(come_as(&mut table, &limits, 2, first, 7), (Some(vec![6]), vec![]));
    }

    #[test]
    fn the_oldest_gives_way_and_time_ends_all() {
        let (mut table, limits) = (Shallow::default(), limits(2, 2, 100));
        for key in 1..=3 {
            let gone = if key == 3 { vec![1] } else { vec![] };
            assert_eq!(come(&mut table, &limits, key, false, key.into()), (None, gone));
        }
        assert_eq!(table.pop_expired(101, 100), None);
        assert_eq!((table.pop_expired(102, 100), table.pop_expired(200, 100)), (Some(vec![2]), Some(vec![3])));
        assert!(table.is_empty() && table.oldest().is_none());
        assert_eq!(table.totals(), Totals::default());
    }

    #[test]
    fn memory_is_bounded() {
        let (mut table, limits) = (Shallow::default(), limits(100, 100, 6));
        for tag in 1..=10 {
            come(&mut table, &limits, tag, false, tag.into());
            assert!(table.totals().kilobytes <= 6);
        }
        assert_eq!(table.totals().fragments, 3);
    }
}
