//! Where would a packet go? For features of plugins that must know before the lookup node has decided.

use quiver_graph::{IfIndex, NodeCx};

use super::lookup::Tables;
use super::{Family, V4, V6};
use crate::Router;
use crate::data::IfTable;
use crate::fib::AdjTable;
use crate::fib::Select;
use crate::fib::records::{Bucket, Class, LbRecord};

/// The way of a packet, as far as it is known from its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is for this router.
    Local,
    /// It leaves by this interface; the first of several where there are equal paths.
    Interface(IfIndex),
    /// It is dropped, punted or answered by an error, or its source address decides.
    Nowhere,
}

/// By which interfaces packets to an address would leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// By any.
    pub any: bool,
    /// By the one that was asked for.
    pub same: bool,
}

/// Tables that a packet may be sent through.
const TABLES_MAX: usize = 8;

/// Looks destinations up, in a node. Not for every packet: it does not overlap its loads. One that was never refreshed has the
/// tables that there were when it was made.
#[derive(Clone)]
pub struct Egress<F: Family> {
    tables: Tables<F>,
    interfaces: IfTable,
    adjacencies: AdjTable,
}

/// For IPv4.
pub type Egress4 = Egress<V4>;

impl<F: Family> Egress<F> {
    /// Picks up tables that have come or gone, once a vector.
    #[inline(always)]
    pub fn refresh(&mut self, cx: &NodeCx<'_>) {
        self.tables.refresh(cx);
    }

    /// The FIB that a bucket sends packets on to, whatever their source; none where it decides.
    fn onward(&self, bucket: Bucket) -> Option<u32> {
        match bucket.class() {
            Class::Lookup => Some(bucket.index()),
            Class::InterfaceRx => Some(F::fib_of(self.interfaces.fibs(IfIndex(bucket.index())))),
            _ => None,
        }
    }

    /// The bucket that decides, not one that names another table.
    fn bucket(&self, fib: u32, destination: F::Addr) -> Option<Bucket> {
        let mut fib = fib;
        for _ in 0..TABLES_MAX {
            let lb = self.tables.lookup(fib, destination);
            let bucket = self.tables.load_balances.choose(lb, |_| 0);
            match self.onward(bucket) {
                Some(next) => fib = next,
                None => return Some(bucket),
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

    /// By which interfaces packets to an address leave, over all equal paths. A link-local address is known on each link.
    #[inline(always)]
    pub fn reach(&self, fib: u32, address: F::Addr, interface: IfIndex) -> Reach {
        let lb = self.tables.load_balances.get(self.tables.lookup(fib, address));
        match self.leaves_by(lb) {
            Some(by) => Reach { any: true, same: by == interface },
            None => self.reach_by_any(lb, address, interface, TABLES_MAX),
        }
    }

    /// Whether packets to each of these addresses have one path, which leaves by `interface` or, where there is none, by any: `false` also
    /// where that takes longer to find out.
    #[inline(always)]
    pub fn all_reached<const W: usize>(&self, fib: u32, addresses: &[F::Addr; W], interface: Option<IfIndex>) -> bool {
        let lbs = self.tables.lookup_batch(fib, addresses);
        let by = |lb: &u32| self.leaves_by(self.tables.load_balances.get(*lb));
        lbs.iter().fold(true, |all, lb| all & by(lb).is_some_and(|by| interface.is_none_or(|wanted| wanted == by)))
    }

    /// The interface of a load-balance with one bucket that leads to one.
    #[inline(always)]
    fn leaves_by(&self, lb: LbRecord) -> Option<IfIndex> {
        let leaves = matches!(lb.bucket().class(), Class::Rewrite | Class::Incomplete | Class::Glean);
        (!lb.is_many() && leaves).then(|| self.adjacencies.tx_if(lb.bucket().index()))
    }

    #[cold]
    #[inline(never)]
    fn reach_by_any(&self, lb: LbRecord, address: F::Addr, interface: IfIndex, tables: usize) -> Reach {
        let mut reach = Reach::default();
        for number in 0..1 << lb.buckets_log2() {
            let bucket = if lb.is_many() { self.tables.load_balances.bucket(lb.position(number)) } else { lb.bucket() };
            let found = match bucket.class() {
                Class::Rewrite | Class::Incomplete | Class::Glean => {
                    Reach { any: true, same: self.adjacencies.tx_if(bucket.index()) == interface }
                }
                Class::LinkLocal => Reach { any: true, same: true },
                _ => match self.onward(bucket).filter(|_| tables > 0) {
                    Some(fib) => {
                        let lb = self.tables.load_balances.get(self.tables.lookup(fib, address));
                        self.reach_by_any(lb, address, interface, tables - 1)
                    }
                    None => Reach::default(),
                },
            };
            reach = Reach { any: reach.any | found.any, same: reach.same | found.same };
            if reach.same {
                break;
            }
        }
        reach
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
    /// What a node needs to look addresses up.
    pub(crate) fn lookup_tables<F: Select>(&self) -> Tables<F> {
        Tables::new(F::tables(self.fib()).published.snapshot(), self.data.load_balances.clone())
    }

    fn egress<F: Select>(&self) -> Egress<F> {
        Egress {
            tables: self.lookup_tables(),
            interfaces: self.data.interfaces.clone(),
            adjacencies: self.data.adjacencies.clone(),
        }
    }

    /// What a node needs to ask for the way of IPv4 packets.
    pub fn egress4(&self) -> Egress4 {
        self.egress()
    }

    /// What a node needs to ask for the way of IPv6 packets.
    pub fn egress6(&self) -> Egress<V6> {
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
        let egress = h.router.egress4();
        let found = [0x0a00_0001, 0x0a00_0002, 0x0b00_0001].map(|to| egress.find(0, to));
        assert_eq!(found, [Way::Local, Way::Interface(x), Way::Nowhere]);
        assert_eq!(egress.clone().find(7, 0x0a00_0001), Way::Nowhere, "no such table");
    }

    #[test]
    fn an_address_is_reached_by_all_paths_of_its_route_through_all_tables() {
        let mut h = Harness::new();
        let (x, y, z) = (h.interface(0), h.interface(1), h.interface(2));
        for (interface, address) in [(x, "10.0.0.1"), (y, "10.0.1.1"), (z, "10.0.2.1")] {
            h.router.add_address(interface, address.parse().unwrap(), 24).unwrap();
        }
        let lines = "ip table add 7
ip route add 20.0.0.0/8 via 10.0.0.9 x0
ip route add 20.0.0.0/8 via 10.0.1.9 x1
ip route add 21.0.0.0/8 via drop
ip route add 0.0.0.0/0 table 7 via ip4-lookup-in-table 0";
        lines.lines().for_each(|line| drop(crate::ops::testing::run(&mut h.router, line)));
        let fib = h.router.fib_of_table(super::super::FamilyId::V4, 7).unwrap();
        let egress = h.router.egress4();
        let none = Reach::default();
        let (any, same) = (Reach { any: true, same: false }, Reach { any: true, same: true });
        for fib in [0, fib] {
            let found = [x, y, z].map(|interface| egress.reach(fib, 0x1400_0001, interface));
            assert_eq!(found, [same, same, any], "two paths");
            assert_eq!([x, y].map(|interface| egress.reach(fib, 0x0a00_0009, interface)), [same, any], "a link");
            assert_eq!([0x0a00_0001, 0x1500_0001, 0x1600_0001].map(|to| egress.reach(fib, to, x)), [none; 3]);
        }
        assert!(egress.all_reached(0, &[0x0a00_0002, 0x0a00_0003], Some(x)));
        assert!(egress.all_reached(0, &[0x0a00_0002, 0x0a00_0103], None));
        assert!(!egress.all_reached(0, &[0x0a00_0002, 0x0a00_0103], Some(x)) && !egress.all_reached(0, &[0x1400_0001], None));
    }
}
