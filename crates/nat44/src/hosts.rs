//! Hosts inside that have sessions.
//!
//! A table with open addressing: a host is in the first free place from where its hash says on, and when one goes, those behind it
//! move up. So a look-up needs one line, which can be asked for ahead.

use std::hash::BuildHasher;

use crate::hash::Seed;

/// What is kept of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its sessions.
    pub sessions: u32,
    /// The address that its sources get: the same for all its sessions while it lasts (RFC 4787, REQ-2).
    pub addr: u32,
}

/// A place: address and FIB in one word, and one more; 0: free.
type Place = (u64, Host);

/// All of a thread, by address and FIB.
pub struct Hosts {
    /// As many as a power of two, at most three quarters of them taken; none before the first host.
    places: Vec<Place>,
    len: usize,
    seed: Seed,
}

fn key(addr: u32, fib: u16) -> u64 {
    (u64::from(addr) << 16 | u64::from(fib)) + 1
}

impl Hosts {
    /// None yet. Whoever does not know the seed cannot make hosts meet.
    pub fn new(seed: u64) -> Self {
        Self { places: Vec::new(), len: 0, seed: Seed(seed) }
    }

    /// Hosts.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    /// Room for one more; `false` where there is no memory.
    #[inline]
    pub fn reserve(&mut self) -> bool {
        4 * (self.len + 1) <= 3 * self.places.len() || self.grow()
    }

    #[inline(never)]
    fn grow(&mut self) -> bool {
        let size = (2 * self.places.len()).max(16);
        let mut places = Vec::new();
        if places.try_reserve_exact(size).is_err() {
            return false;
        }
        places.resize(size, Place::default());
        for place in std::mem::replace(&mut self.places, places).into_iter().filter(|(key, _)| *key != 0) {
            let at = self.place(place.0);
            self.places[at] = place;
        }
        true
    }

    fn home(&self, key: u64) -> usize {
        self.seed.hash_one(key) as usize & (self.places.len() - 1)
    }

    /// Where a host is, or may be put. There is a free place always.
    #[inline(always)]
    fn place(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.places[at].0 != key && self.places[at].0 != 0 {
            at = (at + 1) & (self.places.len() - 1);
        }
        at
    }

    /// Asks for the line of a host.
    #[inline(always)]
    pub fn prefetch(&self, addr: u32, fib: u16) {
        if !self.places.is_empty() {
            quiver_tables::prefetch(&self.places[self.home(key(addr, fib))]);
        }
    }

    /// A host.
    #[inline(always)]
    pub fn get(&self, addr: u32, fib: u16) -> Option<&Host> {
        if self.places.is_empty() {
            return None;
        }
        let (found, host) = &self.places[self.place(key(addr, fib))];
        (*found != 0).then_some(host)
    }

    /// A host, new where it has no sessions yet: there must be [room](Self::reserve) then.
    #[inline(always)]
    pub fn entry(&mut self, addr: u32, fib: u16) -> &mut Host {
        let key = key(addr, fib);
        let at = self.place(key);
        self.len += usize::from(self.places[at].0 == 0);
        let (of, host) = &mut self.places[at];
        *of = key;
        host
    }

    /// A host has one session less.
    pub fn release(&mut self, addr: u32, fib: u16) {
        if self.get(addr, fib).is_none() {
            return;
        }
        let at = self.place(key(addr, fib));
        self.places[at].1.sessions -= 1;
        if self.places[at].1.sessions == 0 {
            self.remove(at);
        }
    }

    /// Frees a place, and moves up what is behind it and would not be found any more.
    fn remove(&mut self, mut free: usize) {
        let mask = self.places.len() - 1;
        let mut at = free;
        loop {
            at = (at + 1) & mask;
            let key = self.places[at].0;
            if key == 0 {
                break;
            }
            // Steps from where its search begins to where it is, and to the free place.
            let home = self.home(key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(free) & mask) {
                self.places[free] = self.places[at];
                free = at;
            }
        }
        self.places[free] = Place::default();
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_come_with_their_first_session_and_go_with_their_last() {
        let mut hosts = Hosts::new(7);
        assert!(hosts.get(1, 0).is_none());
        hosts.release(1, 0);
        for (addr, fib) in [(1, 0), (1, 1), (1, 0)] {
            assert!(hosts.reserve());
            hosts.entry(addr, fib).sessions += 1;
        }
        assert_eq!((hosts.len(), hosts.get(1, 0).map(|host| host.sessions)), (2, Some(2)));
        hosts.release(1, 0);
        hosts.release(1, 0);
        hosts.release(1, 0);
        assert!(hosts.get(1, 0).is_none());
        assert_eq!(hosts.len(), 1);
    }

    proptest! {
        #[test]
        fn hosts_are_those_of_a_map(seed: u64, steps in proptest::collection::vec((any::<bool>(), 0..60_u32), 1..400)) {
            let (mut hosts, mut model) = (Hosts::new(seed), HashMap::<u32, u32>::new());
            for (begins, addr) in steps {
                if begins {
                    prop_assert!(hosts.reserve());
                    hosts.entry(addr, 3).sessions += 1;
                    *model.entry(addr).or_default() += 1;
                } else {
                    hosts.release(addr, 3);
                    if let Some(sessions) = model.get_mut(&addr) {
                        *sessions -= 1;
                    }
                    model.retain(|_, sessions| *sessions > 0);
                }
                prop_assert_eq!(hosts.len(), model.len());
                for addr in 0..60 {
                    prop_assert_eq!(hosts.get(addr, 3).map(|host| host.sessions), model.get(&addr).copied());
                }
            }
        }
    }
}
