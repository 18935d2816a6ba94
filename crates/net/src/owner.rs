//! On whose account a packet is held, so that one sender cannot take what others need.
//!
//! An owner is a place where packets come from: an interface (one of [`INTERFACES`] groups by index) and a source (one of
//! [`SOURCES`] groups by hash; an IPv6 source is a /64, because a host may choose any address of its prefix). The hash is
//! seeded, so a sender cannot choose whose group it shares. All is bounded: finding the owner that has the most is a walk over
//! two short arrays.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use quiver_graph::IfIndex;

/// Groups of interfaces, and groups of sources of each.
pub(crate) const INTERFACES: usize = 16;
pub(crate) const SOURCES: usize = 64;

/// A place where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u16);

impl Owner {
    /// Below [`INTERFACES`] times [`SOURCES`].
    pub fn number(self) -> usize {
        self.0.into()
    }

    /// By numbers of its groups.
    pub const fn new(interface: u32, source: u32) -> Self {
        Self(((interface as usize % INTERFACES) * SOURCES + source as usize % SOURCES) as u16)
    }

    /// Of a packet.
    pub fn of(interface: IfIndex, source: IpAddr) -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let number = match source {
            IpAddr::V4(a) => u64::from(a.to_bits()),
            IpAddr::V6(a) => (a.to_bits() >> 64) as u64,
        };
        Self::new(interface.0, SEED.hash_one((interface.0, number)) as u32)
    }

    /// Number of its group of interfaces.
    pub fn interface(self) -> usize {
        usize::from(self.0) / SOURCES
    }
}

/// How much each owner has of something.
pub(crate) struct Counts {
    owners: Box<[u32]>,
    interfaces: [u32; INTERFACES],
}

impl Default for Counts {
    fn default() -> Self {
        Self { owners: vec![0; INTERFACES * SOURCES].into(), interfaces: [0; INTERFACES] }
    }
}

impl Counts {
    /// What an owner has.
    pub fn of(&self, owner: Owner) -> usize {
        self.owners[owner.number()] as usize
    }

    /// What all have.
    pub fn total(&self) -> usize {
        self.interfaces.iter().sum::<u32>() as usize
    }

    /// It has so many more.
    pub fn add(&mut self, owner: Owner, n: u32) {
        self.owners[owner.number()] += n;
        self.interfaces[owner.interface()] += n;
    }

    /// It has so many fewer.
    pub fn sub(&mut self, owner: Owner, n: u32) {
        self.owners[owner.number()] -= n;
        self.interfaces[owner.interface()] -= n;
    }

    /// The owner that has the most, of the interface that has the most; `None` where nobody has anything.
    pub fn greediest(&self) -> Option<Owner> {
        let (interface, most) = self.interfaces.iter().enumerate().max_by_key(|(_, n)| **n)?;
        let first = interface * SOURCES;
        let owner = (first..first + SOURCES).max_by_key(|at| self.owners[*at])?;
        (*most > 0).then_some(Owner(owner as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greediest_is_the_one_with_most_on_the_fullest_interface() {
        let mut counts = Counts::default();
        assert_eq!(counts.greediest(), None);
        for (interface, source, n) in [(1, 1, 6), (2, 1, 3), (2, 2, 4), (2, 3, 2)] {
            (0..n).for_each(|_| counts.add(Owner::new(interface, source), 1));
        }
        assert_eq!(counts.greediest(), Some(Owner::new(2, 2)));
        counts.sub(Owner::new(2, 2), 4);
        assert_eq!((counts.greediest(), counts.total()), (Some(Owner::new(1, 1)), 11));
    }

    #[test]
    fn a_host_is_one_source_whatever_address_of_its_prefix_it_takes() {
        let of = |a: &str| Owner::of(IfIndex(3), a.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert!((0..64).any(|n| of(&format!("2001:db8:{n:x}::1")) != of("2001:db8::1")));
        assert!((0..64).any(|n| of(&format!("10.0.0.{n}")) != of("10.0.1.1")));
    }
}
