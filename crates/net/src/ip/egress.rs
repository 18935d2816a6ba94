//! Where would a packet go? For features of plugins that must know before the lookup node has decided.

use quiver_graph::IfIndex;

use super::lookup::Tables;
use super::{Family, V4, V6};
use crate::Router;
use crate::fib::AdjTable;
use crate::fib::Select;
use crate::fib::records::{Bucket, Class};

/// The way of a packet, as far as it is known from its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is for this router.
    Local,
    /// It leaves by this interface; the first of several where there are equal paths.
    Interface(IfIndex),
    /// It is dropped, punted or answered by an error.
    Nowhere,
}

/// Tables that a packet may be sent through.
const TABLES_MAX: usize = 8;

/// Looks destinations up, in a node. Not for every packet: it does not overlap its loads.
pub struct Egress<F: Family> {
    tables: Tables<F>,
    adjacencies: AdjTable,
    published: quiver_graph::Snapshot<Vec<Option<F::Reader>>>,
}

/// For IPv4.
pub type Egress4 = Egress<V4>;

impl<F: Family> Clone for Egress<F> {
    fn clone(&self) -> Self {
        let tables = Tables::new(self.published.clone(), self.tables.load_balances.clone());
        Self { tables, adjacencies: self.adjacencies.clone(), published: self.published.clone() }
    }
}

impl<F: Family> Egress<F> {
    /// Picks up tables that have come or gone, once a vector.
    #[inline(always)]
    pub fn refresh(&mut self) {
        self.tables.refresh();
    }

    /// The bucket that decides, not one that names another table.
    fn bucket(&self, fib: u32, destination: F::Addr) -> Option<Bucket> {
        let mut fib = fib;
        for _ in 0..TABLES_MAX {
            let lb = self.tables.lookup(fib, destination);
            let bucket = self.tables.load_balances.choose(lb, |_| 0);
            match bucket.class() {
                Class::Lookup => fib = bucket.index(),
                _ => return Some(bucket),
            }
        }
        None
    }

    /// The way of a packet with this destination that is looked up in this FIB.
    pub fn find(&self, fib: u32, destination: F::Addr) -> Way {
        let Some(bucket) = self.bucket(fib, destination) else { return Way::Nowhere };
        match bucket.class() {
            Class::Receive => Way::Local,
            Class::Rewrite | Class::Incomplete | Class::Glean => Way::Interface(self.adjacencies.get(bucket.index()).tx_if),
            _ => Way::Nowhere,
        }
    }

    /// Whether a host is a neighbour on an interface, by its route: one to the link as a whole, or to itself there.
    pub fn is_attached(&self, fib: u32, host: F::Addr, interface: IfIndex) -> bool {
        let Some(bucket) = self.bucket(fib, host) else { return false };
        let adjacency = || self.adjacencies.get(bucket.index());
        match bucket.class() {
            Class::Glean => adjacency().tx_if == interface,
            Class::Rewrite | Class::Incomplete => {
                let adjacency = adjacency();
                adjacency.tx_if == interface && F::of_number(adjacency.next_hop) == host
            }
            _ => false,
        }
    }
}

impl Router {
    fn egress<F: Select>(&self) -> Egress<F> {
        let published = F::tables(self.fib()).published.snapshot();
        let tables = Tables::new(published.clone(), self.data.load_balances.clone());
        Egress { tables, adjacencies: self.data.adjacencies.clone(), published }
    }

    /// What a node needs to ask for the way of IPv4 packets.
    pub fn egress4(&self) -> Egress4 {
        self.egress()
    }

    /// What a node needs to ask for the way of IPv6 packets.
    pub(crate) fn egress6(&self) -> Egress<V6> {
        self.egress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    #[test]
    fn destinations_are_local_on_an_interface_or_nowhere() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        let mut egress = h.router.egress4();
        egress.refresh();
        let found = [0x0a00_0001, 0x0a00_0002, 0x0b00_0001].map(|to| egress.find(0, to));
        assert_eq!(found, [Way::Local, Way::Interface(x), Way::Nowhere]);
        assert_eq!(egress.clone().find(7, 0x0a00_0001), Way::Nowhere, "no such table");
    }
}
