//! Next hops that somebody watches. A load-balance of its own leads there, whatever the tables say; and while the next hop is found
//! dead, routes do not use it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use quiver_graph::IfIndex;

use super::adjacency::{AdjKey, AdjKind, Env};
use super::path::Path;
use super::records::{Bucket, Class};
use super::source::Source;
use super::table::{Select, by_family};
use super::{Fib, FibError};
use crate::Router;
use crate::ip::FamilyId;

impl Fib {
    fn set_next_hop_usable(&mut self, env: &mut Env<'_>, interface: IfIndex, address: IpAddr, usable: bool) -> usize {
        let next_hop = (interface, address);
        if usable {
            let lists = self.withheld.remove(&next_hop).unwrap_or_default();
            return self.refresh_counted(env, lists);
        }
        if self.withheld.contains_key(&next_hop) {
            return 0;
        }
        self.withheld.insert(next_hop, BTreeSet::new());
        let key = AdjKey { family: FamilyId::of(&address), interface, kind: AdjKind::Neighbor(address) };
        let keys = [key, key.of_other_family()];
        let adjacencies = keys.iter().filter_map(|key| self.adjacencies.get(self.adjacencies.find(key)?));
        let users = adjacencies.flat_map(|a| a.users.iter().copied()).collect();
        self.refresh_counted(env, users)
    }

    /// The same for a next hop that a table leads to.
    fn set_remote_next_hop_usable<F: Select>(&mut self, env: &mut Env<'_>, table: u32, address: IpAddr, usable: bool) -> usize {
        let changed = match usable {
            true => self.withheld_remote.remove(&(table, address)),
            false => self.withheld_remote.insert((table, address)),
        };
        let (Ok(fib), Some(hop)) = (F::tables(self).fib(table), F::number(address)) else { return 0 };
        if !changed {
            return 0;
        }
        let lists = F::tables(self).users(fib, hop);
        self.refresh_counted(env, lists)
    }

    /// The buckets of a list but those that lead to a withheld next hop. It is noted that the list would use that.
    pub(super) fn without_withheld(&mut self, lb: u32, mut buckets: Vec<(Bucket, u64)>) -> Vec<(Bucket, u64)> {
        if self.withheld.is_empty() {
            return buckets;
        }
        buckets.retain(|(bucket, _)| {
            if !matches!(bucket.class(), Class::Incomplete | Class::Rewrite) {
                return true;
            }
            let Some(AdjKey { interface, kind: AdjKind::Neighbor(address), .. }) =
                self.adjacencies.get(bucket.index()).map(|a| a.key)
            else {
                return true;
            };
            let Some(lists) = self.withheld.get_mut(&(interface, address)) else { return true };
            lists.insert(lb);
            self.adjacencies.release(bucket.index());
            false
        });
        buckets
    }
}

impl Router {
    /// A load-balance that leads to a neighbour on an interface, and nowhere while the interface is down. It is kept until
    /// [`release_next_hop`](Self::release_next_hop); its one bucket follows the neighbour's MAC address.
    ///
    /// # Errors
    /// No such interface, an address that no host has, no room.
    pub fn hold_next_hop(&mut self, interface: IfIndex, address: IpAddr) -> Result<u32, FibError> {
        self.hold_paths(FamilyId::of(&address), vec![Path::neighbor(interface, address)])
    }

    /// The same for several paths, none of which leads to another table.
    ///
    /// # Errors
    /// As [`hold_next_hop`](Self::hold_next_hop).
    pub(crate) fn hold_paths(&mut self, family: FamilyId, paths: Vec<Path>) -> Result<u32, FibError> {
        self.with_fib(|fib, env| {
            // The neighbour's own route has the same list. Table 0 is always there, and of such paths no table matters.
            let lb = by_family!(family, F => fib.obtain::<F>(env, 0, Source::Adjacency, paths))?;
            if let Some(list) = fib.lists.get_mut(lb) {
                list.refs += 1;
            }
            Ok(lb)
        })
    }

    /// Takes a neighbour out of all load-balances that lead to it but those of [`hold_next_hop`](Self::hold_next_hop), or puts it
    /// back: routes go by their other paths, and are dropped where they have none. Gives the number of path lists that were resolved
    /// again: prefixes with the same paths share one, so it does not depend on how many prefixes there are.
    pub fn set_next_hop_usable(&mut self, interface: IfIndex, address: IpAddr, usable: bool) -> usize {
        self.with_fib(|fib, env| fib.set_next_hop_usable(env, interface, address, usable))
    }

    /// Has recursive paths by a next hop that a table leads to count as down, or as what they are again. Gives the number of path lists
    /// that were resolved again. Routes to the next hop itself stay.
    pub fn set_remote_next_hop_usable(&mut self, table: u32, address: IpAddr, usable: bool) -> usize {
        self.with_fib(
            |fib, env| by_family!(FamilyId::of(&address), F => fib.set_remote_next_hop_usable::<F>(env, table, address, usable)),
        )
    }

    /// Gives back what [`hold_next_hop`](Self::hold_next_hop) gave.
    pub fn release_next_hop(&mut self, lb: u32) {
        self.with_fib(|fib, _| fib.unref(lb));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use crate::IfIndex;
    use crate::fib::{Class, Path, Source};
    use crate::testing::{Harness, host_mac};
    use quiver_wire::IpPrefix;

    const PREFIXES: u32 = 20_000;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(n: u32) -> IpPrefix {
        IpPrefix::new(std::net::Ipv4Addr::from_bits(0x1400_0000 + n * 256).into(), 24).unwrap()
    }

    /// x0 and x1 with a known neighbour each.
    fn two_links() -> (Harness, [Path; 2]) {
        let mut h = Harness::new();
        let link = |h: &mut Harness, n: u8| {
            let x = h.interface(n);
            h.router.add_address(x, ip(&format!("10.0.{n}.1")), 24).unwrap();
            let peer = ip(&format!("10.0.{n}.2"));
            h.router.add_neighbor(x, peer, host_mac(n), true, false).unwrap();
            Path::neighbor(x, peer)
        };
        let paths = [link(&mut h, 0), link(&mut h, 1)];
        (h, paths)
    }

    /// Interfaces that packets to an address leave by, each once.
    fn out(h: &Harness, address: &str) -> Vec<IfIndex> {
        let route = h.router.route_lookup(0, ip(address)).unwrap();
        let leaves = |bucket: &crate::fib::Bucket| {
            (bucket.class() == Class::Rewrite).then(|| h.router.data.adjacencies.get(bucket.index()).tx_if)
        };
        let mut all: Vec<IfIndex> = route.buckets.iter().filter_map(leaves).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn a_dead_next_hop_leaves_many_prefixes_by_the_one_list_that_they_share() {
        let (mut h, [a, b]) = two_links();
        let [x0, x1] = [a, b].map(|path| path.interface().unwrap());
        for n in 0..PREFIXES {
            h.router.add_route(0, prefix(n), Source::Cli, vec![a, b]).unwrap();
        }
        let samples = ["20.0.0.1", "20.39.16.9", "20.78.31.255"];
        assert!(samples.iter().all(|to| out(&h, to) == [x0, x1]));
        let dead = ip("10.0.0.2");
        assert_eq!(h.router.set_next_hop_usable(x0, dead, false), 2, "the prefixes' list, and the neighbour's own, which stays");
        assert_eq!(h.router.set_next_hop_usable(x0, dead, false), 0, "it is dead already");
        assert!(samples.iter().all(|to| out(&h, to) == [x1]));
        assert_eq!(out(&h, "10.0.0.2"), [x0], "the neighbour itself can still be asked");
        // A route that comes meanwhile does not use it either.
        h.router.add_route(0, "30.0.0.0/8".parse().unwrap(), Source::Cli, vec![a]).unwrap();
        assert_eq!(out(&h, "30.0.0.1"), []);
        assert_eq!(h.router.set_next_hop_usable(x0, dead, true), 2, "the prefixes' list and that of the new route");
        assert!(samples.iter().all(|to| out(&h, to) == [x0, x1]));
        assert_eq!(out(&h, "30.0.0.1"), [x0]);
        assert_eq!(h.router.set_next_hop_usable(x0, dead, true), 0);
    }

    #[test]
    fn recursive_routes_and_backup_paths_follow() {
        let (mut h, [a, b]) = two_links();
        let [x0, x1] = [a, b].map(|path| path.interface().unwrap());
        let backup = Path { preference: 10, ..b };
        h.router.add_route(0, "192.0.2.1/32".parse().unwrap(), Source::Cli, vec![a, backup]).unwrap();
        for n in 0..100 {
            h.router.add_route(0, prefix(n), Source::Cli, vec![Path::recursive(ip("192.0.2.1"))]).unwrap();
        }
        // Straight through the link's own route.
        h.router.add_route(0, "40.0.0.0/8".parse().unwrap(), Source::Cli, vec![Path::recursive(ip("10.0.0.2"))]).unwrap();
        assert_eq!([out(&h, "20.0.9.1"), out(&h, "40.0.0.1")], [[x0], [x0]]);
        h.router.set_next_hop_usable(x0, ip("10.0.0.2"), false);
        assert_eq!(out(&h, "20.0.9.1"), [x1]);
        assert_eq!(out(&h, "40.0.0.1"), []);
        h.router.set_next_hop_usable(x0, ip("10.0.0.2"), true);
        assert_eq!([out(&h, "20.0.9.1"), out(&h, "40.0.0.1")], [[x0], [x0]]);
    }

    #[test]
    fn recursive_paths_by_a_remote_next_hop_that_is_lost_are_down_and_the_next_hop_is_still_reached() {
        let (mut h, [a, b]) = two_links();
        let [x0, x1] = [a, b].map(|path| path.interface().unwrap());
        let far = ip("192.0.2.1");
        h.router.add_route(0, "192.0.2.1/32".parse().unwrap(), Source::Cli, vec![a]).unwrap();
        let backup = Path { preference: 10, ..b };
        for n in 0..100 {
            h.router.add_route(0, prefix(n), Source::Cli, vec![Path::recursive(far), backup]).unwrap();
        }
        h.router.add_route(0, "192.0.2.9/32".parse().unwrap(), Source::Cli, vec![Path::recursive(ip("20.0.9.1"))]).unwrap();
        assert_eq!([out(&h, "20.0.9.1"), out(&h, "192.0.2.9")], [[x0], [x0]]);
        assert_eq!(h.router.set_remote_next_hop_usable(0, far, false), 2, "the prefixes' list, and the one that goes by it");
        assert_eq!(h.router.set_remote_next_hop_usable(0, far, false), 0);
        assert_eq!([out(&h, "20.0.9.1"), out(&h, "192.0.2.9"), out(&h, "192.0.2.1")], [[x1], [x1], [x0]]);
        h.router.add_route(0, "60.0.0.0/8".parse().unwrap(), Source::Cli, vec![Path::recursive(far)]).unwrap();
        assert_eq!(out(&h, "60.0.0.1"), []);
        assert_eq!(h.router.set_remote_next_hop_usable(0, far, true), 3);
        assert_eq!([out(&h, "20.0.9.1"), out(&h, "192.0.2.9"), out(&h, "60.0.0.1")], [[x0], [x0], [x0]]);
    }

    #[test]
    fn an_adjacency_that_only_a_dead_next_hop_needs_is_not_kept() {
        let (mut h, [a, _]) = two_links();
        let (x0, unknown) = (a.interface().unwrap(), ip("10.0.0.77"));
        let before = h.router.fib().adjacencies.iter().count();
        h.router.set_next_hop_usable(x0, unknown, false);
        h.router.add_route(0, "50.0.0.0/8".parse().unwrap(), Source::Cli, vec![Path::neighbor(x0, unknown)]).unwrap();
        assert_eq!(h.router.fib().adjacencies.iter().count(), before);
        h.router.set_next_hop_usable(x0, unknown, true);
        assert_eq!(h.router.fib().adjacencies.iter().count(), before + 1);
    }

    #[test]
    fn a_held_next_hop_follows_interface_and_neighbour_until_it_is_released() {
        let mut h = Harness::new();
        let x = h.interface(0);
        let peer = "192.0.2.7".parse().unwrap();
        let lb = h.router.hold_next_hop(x, peer).unwrap();
        assert_eq!(h.router.hold_next_hop(x, peer), Ok(lb), "one for all who hold it");
        let class = |h: &Harness| h.router.data.load_balances.get(lb).bucket().class();
        assert_eq!(class(&h), Class::Incomplete);
        h.router.add_neighbor(x, peer, host_mac(0), true, false).unwrap();
        assert_eq!(class(&h), Class::Rewrite);
        h.router.set_interface_up(x, false).unwrap();
        assert_eq!(class(&h), Class::Drop);
        h.router.set_interface_up(x, true).unwrap();
        h.router.release_next_hop(lb);
        assert_eq!(class(&h), Class::Rewrite, "the other holder still has it");
        h.router.release_next_hop(lb);
        assert!(h.router.fib().lists.get(lb).is_none());
    }
}
