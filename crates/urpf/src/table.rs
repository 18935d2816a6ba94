//! What the nodes know of interfaces and of accepted prefixes: published by the control side as a whole, read as a snapshot.

use std::collections::HashSet;

use quiver_graph::IfIndex;
use quiver_net::ip::Family;
use quiver_tables::address::Address as _;

use crate::ops::Direction;

/// What is known of an interface that checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// FIB in which sources are looked up; that of the interface where absent.
    pub fib: Option<u32>,
    /// Bytes of the link header that packets have when they leave.
    pub link_header: usize,
}

/// Prefixes of a length: FIB and first address.
type Prefixes<F> = HashSet<(u32, <F as Family>::Addr)>;

/// Settings and accepted prefixes of a family.
#[derive(Clone, Debug)]
pub struct Checks<F: Family> {
    /// By direction and number of the interface.
    by_interface: [Vec<Check>; 2],
    /// By length.
    accepted: Vec<(u8, Prefixes<F>)>,
}

impl<F: Family> Default for Checks<F> {
    fn default() -> Self {
        Self { by_interface: [Vec::new(), Vec::new()], accepted: Vec::new() }
    }
}

impl<F: Family> Checks<F> {
    /// Sets what is known of an interface.
    pub fn set(&mut self, direction: Direction, interface: IfIndex, check: Check) {
        let (all, at) = (&mut self.by_interface[direction as usize], interface.0 as usize);
        if all.len() <= at {
            all.resize(at + 1, Check::default());
        }
        all[at] = check;
    }

    /// What is known of an interface.
    #[inline(always)]
    pub fn get(&self, direction: Direction, interface: IfIndex) -> Check {
        self.by_interface[direction as usize].get(interface.0 as usize).copied().unwrap_or_default()
    }

    /// Accepts the sources of a prefix.
    pub fn accept(&mut self, fib: u32, address: F::Addr, len: u8) {
        let at = match self.accepted.iter().position(|(known, _)| *known == len) {
            Some(at) => at,
            None => {
                self.accepted.push((len, HashSet::new()));
                self.accepted.len() - 1
            }
        };
        self.accepted[at].1.insert((fib, address.first(len)));
    }

    /// Whether the sources of a prefix that holds this address are accepted. Asked only of packets that would be dropped.
    #[inline(never)]
    pub fn accepts(&self, fib: u32, address: F::Addr) -> bool {
        self.accepted.iter().any(|(len, prefixes)| prefixes.contains(&(fib, address.first(*len))))
    }
}
