//! Where would a packet go? For features of plugins that must know before the lookup node has decided.

use quiver_graph::IfIndex;

use super::lookup::Tables;
use super::{Family, V4};
use crate::Router;
use crate::fib::AdjTable;
use crate::fib::Select;
use crate::fib::records::Class;

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

/// Looks IPv4 destinations up, in a node. Not for every packet: it does not overlap its loads.
pub struct Egress4 {
    tables: Tables<V4>,
    adjacencies: AdjTable,
    published: quiver_graph::Snapshot<Vec<Option<<V4 as Family>::Reader>>>,
}

impl Clone for Egress4 {
    fn clone(&self) -> Self {
        let tables = Tables::new(self.published.clone(), self.tables.load_balances.clone());
        Self { tables, adjacencies: self.adjacencies.clone(), published: self.published.clone() }
    }
}

impl Egress4 {
    /// Picks up tables that have come or gone, once a vector.
    #[inline(always)]
    pub fn refresh(&mut self) {
        self.tables.refresh();
    }

    /// The way of a packet with this destination that is looked up in this FIB.
    pub fn find(&self, fib: u32, destination: u32) -> Way {
        let mut fib = fib;
        for _ in 0..TABLES_MAX {
            let lb = self.tables.lookup(fib, destination);
            let bucket = self.tables.load_balances.choose(lb, |_| 0);
            match bucket.class() {
                Class::Receive => return Way::Local,
                Class::Rewrite | Class::Incomplete | Class::Glean => {
                    return Way::Interface(self.adjacencies.get(bucket.index()).tx_if);
                }
                Class::Lookup => fib = bucket.index(),
                _ => return Way::Nowhere,
            }
        }
        Way::Nowhere
    }
}

impl Router {
    /// What a node needs to ask for the way of IPv4 packets.
    pub fn egress4(&self) -> Egress4 {
        let published = V4::tables(self.fib()).published.snapshot();
        let tables = Tables::new(published.clone(), self.data.load_balances.clone());
        Egress4 { tables, adjacencies: self.data.adjacencies.clone(), published }
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
