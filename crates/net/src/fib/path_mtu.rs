//! Path MTUs: what a neighbour is known to take where that is less than its link does. Packets to it are cut or refused by
//! the smaller of the two.
//!
//! A path MTU is kept by table and address, whether the neighbour is known yet or not, and works on the adjacency of that
//! address on each interface of the table. Next hops that are no neighbours have no adjacency of their own, so they are refused.

use std::net::IpAddr;

use super::adjacency::AdjKind;
use super::path::Hop;
use super::{Fib, FibError};
use crate::Router;
use crate::fib::adjacency::Env;
use crate::ip::FamilyId;

/// What hosts and routers take at least: RFC 791, section 3.2 (the Internet header with options and 8 bytes), and RFC 8200,
/// section 5.
const LEAST: (u16, u16) = (68, 1280);

/// A path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathMtu {
    /// User's number of the table.
    pub table: u32,
    /// Neighbour.
    pub next_hop: IpAddr,
    /// Bytes of an IP packet, at most.
    pub mtu: u16,
}

impl Router {
    /// Sets what a neighbour takes, or takes the limit away.
    ///
    /// # Errors
    /// No such table, an address that is on none of its links, or fewer bytes than every link takes. Taking away what is not
    /// there is none.
    pub fn set_path_mtu(&mut self, table: u32, next_hop: IpAddr, mtu: Option<u16>) -> Result<(), FibError> {
        let family = FamilyId::of(&next_hop);
        if !self.tables(family).iter().any(|t| t.id == table) {
            return Err(FibError::NoTable { family, id: table });
        }
        let Some(mtu) = mtu else {
            if self.fib.adjacencies.path_mtus.remove(&(table, next_hop)).is_some() {
                self.with_fib(|fib, env| fib.refresh_neighbors(env, table, next_hop));
            }
            return Ok(());
        };
        let least = if next_hop.is_ipv4() { LEAST.0 } else { LEAST.1 };
        if mtu < least {
            return Err(FibError::PathMtu { mtu, least });
        }
        if !self.is_on_link(table, next_hop) {
            return Err(FibError::NotOnLink(next_hop));
        }
        self.fib.adjacencies.path_mtus.insert((table, next_hop), mtu);
        self.with_fib(|fib, env| fib.refresh_neighbors(env, table, next_hop));
        Ok(())
    }

    /// All of them, by table and address.
    pub fn path_mtus(&self) -> Vec<PathMtu> {
        let entries = self.fib.adjacencies.path_mtus.iter();
        entries.map(|((table, next_hop), mtu)| PathMtu { table: *table, next_hop: *next_hop, mtu: *mtu }).collect()
    }

    /// Whether a table's route to an address leads onto a link that has it as a neighbour.
    fn is_on_link(&self, table: u32, address: IpAddr) -> bool {
        let hop = self.route_lookup(table, address).and_then(|route| route.paths.first().map(|path| path.hop));
        match hop {
            Some(Hop::Attached { .. }) => true,
            Some(Hop::Neighbor { address: hop, .. }) => hop == address,
            _ => false,
        }
    }
}

impl Fib {
    /// Brings the adjacencies of an address in a table up to date with its path MTU.
    fn refresh_neighbors(&mut self, env: &mut Env<'_>, table: u32, address: IpAddr) {
        let of_table = |i: &crate::Interface| if address.is_ipv4() { i.tables.0 == table } else { i.tables.1 == table };
        let concerned = |(_, a): &(u32, &super::adjacency::Adjacency)| {
            a.key.kind == AdjKind::Neighbor(address) && env.interfaces.get(a.key.interface).is_some_and(of_table)
        };
        let all: Vec<_> = self.adjacencies.iter().filter(concerned).map(|(index, a)| (index, a.mac)).collect();
        for (index, mac) in all {
            // Where no record is free, the old limit stays.
            let _ = self.update_adjacency(env, index, mac);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::{Path, Source};
    use crate::testing::{Harness, host_mac};

    fn mtu(h: &Harness, interface: quiver_graph::IfIndex, address: IpAddr) -> u16 {
        let index = h.router.find_adjacency(interface, address).unwrap();
        h.router.adjacency_info(index).unwrap().record.mtu
    }

    #[test]
    fn the_smaller_of_link_and_path_counts_whenever_either_changes() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        h.router.add_address(x, "2001:db8::1".parse().unwrap(), 64).unwrap();
        for (host, path) in [("10.0.0.2", 900), ("2001:db8::2", 1300)] {
            let host: IpAddr = host.parse().unwrap();
            // Before the neighbour is known.
            h.router.set_path_mtu(0, host, Some(path)).unwrap();
            h.router.neighbor_update(x, host, Some(host_mac(2))).unwrap();
            assert_eq!(mtu(&h, x, host), path);
            h.router.set_path_mtu(0, host, Some(9000)).unwrap();
            let link = mtu(&h, x, host);
            assert!(link < 9000, "the link's own");
            h.router.set_path_mtu(0, host, Some(path)).unwrap();
            assert_eq!(mtu(&h, x, host), path);
            h.router.neighbor_update(x, host, None).unwrap();
            h.router.neighbor_update(x, host, Some(host_mac(3))).unwrap();
            assert_eq!(mtu(&h, x, host), path, "another MAC address");
            h.router.set_path_mtu(0, host, None).unwrap();
            assert_eq!(mtu(&h, x, host), link);
            h.router.set_path_mtu(0, host, None).unwrap();
        }
        assert!(h.router.path_mtus().is_empty());
    }

    #[test]
    fn what_cannot_be_a_path_mtu_is_refused() {
        let mut h = Harness::new();
        let x = h.interface(0);
        h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
        h.router.add_address(x, "2001:db8::1".parse().unwrap(), 64).unwrap();
        h.router
            .add_route(0, "192.0.2.0/24".parse().unwrap(), Source::Cli, vec![Path::recursive("10.0.0.2".parse().unwrap())])
            .unwrap();
        let mut set = |table, host: &str, mtu| h.router.set_path_mtu(table, host.parse().unwrap(), Some(mtu)).unwrap_err();
        assert_eq!(set(7, "10.0.0.2", 900), FibError::NoTable { family: FamilyId::V4, id: 7 });
        assert_eq!(set(0, "10.0.0.2", 67), FibError::PathMtu { mtu: 67, least: 68 });
        assert_eq!(set(0, "2001:db8::2", 1279), FibError::PathMtu { mtu: 1279, least: 1280 });
        for host in ["192.0.2.1", "198.51.100.1", "10.0.0.1"] {
            assert_eq!(set(0, host, 900), FibError::NotOnLink(host.parse().unwrap()));
        }
        assert!(h.router.path_mtus().is_empty());
    }
}
