//! Multicast routes as nodes read them: a snapshot of a family's tables.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::IfIndex;

/// An address as a number.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The first `len` of `bits` bits of an address.
pub(super) fn masked(address: u128, len: u8, bits: u8) -> u128 {
    let host = u32::from(bits.saturating_sub(len));
    address & u128::MAX.checked_shl(host).unwrap_or(0)
}

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    pub interface: IfIndex,
    /// Largest IP packet.
    pub mtu: u16,
    /// Load-balance of the one neighbour that gets it; `None`: the group's MAC address.
    pub next_hop: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// Place in the counters.
    pub counter: u32,
    /// Everything is dropped.
    pub drops: bool,
    /// Packets are taken from any interface.
    pub accepts_all: bool,
    /// Else from these; in order.
    pub accept: Vec<IfIndex>,
    /// This router takes a copy.
    pub local: bool,
    pub legs: Vec<Leg>,
}

impl Route {
    /// Whether packets are taken from an interface.
    pub fn accepts(&self, rx: IfIndex) -> bool {
        self.accepts_all || self.accept.binary_search(&rx).is_ok()
    }

    /// Where packets of an interface go: never back.
    pub fn legs_from(&self, rx: IfIndex) -> impl Iterator<Item = &Leg> {
        self.legs.iter().filter(move |leg| leg.interface != rx)
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// Routes of one source and group.
    sources: HashMap<(u128, u128), Arc<Route>>,
    /// Routes of all sources, by length of the group's prefix, longest first.
    groups: Vec<(u8, HashMap<u128, Arc<Route>>)>,
}

impl Table {
    /// Adds a route of a source and a group, or of all sources and a prefix of groups.
    pub fn insert(&mut self, source: Option<u128>, group: u128, len: u8, route: Arc<Route>) {
        if let Some(source) = source {
            self.sources.insert((source, group), route);
            return;
        }
        let at = self.groups.partition_point(|(l, _)| *l > len);
        if self.groups.get(at).is_none_or(|(l, _)| *l != len) {
            self.groups.insert(at, (len, HashMap::new()));
        }
        if let Some((_, routes)) = self.groups.get_mut(at) {
            routes.insert(group, route);
        }
    }

    fn find(&self, bits: u8, source: u128, group: u128) -> Option<&Arc<Route>> {
        let one = self.sources.get(&(source, group));
        let longest = || self.groups.iter().find_map(|(len, routes)| routes.get(&masked(group, *len, bits)));
        one.or_else(longest)
    }
}

/// All tables of a family, by the index of the table of routes.
#[derive(Clone, Debug, Default)]
pub(super) struct Forwarding {
    pub bits: u8,
    pub tables: HashMap<u32, Arc<Table>>,
}

impl Forwarding {
    /// The route of a packet: of its source and group if there is one, else of the longest prefix of its group.
    pub fn find(&self, fib: u32, source: u128, group: u128) -> Option<&Arc<Route>> {
        self.tables.get(&fib)?.find(self.bits, source, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_s_route_is_found_before_the_longest_prefix_of_its_group() {
        let mut table = Table::default();
        let route = |counter| Arc::new(Route { counter, ..Route::default() });
        for (n, (source, group, len)) in
            [(None, 0xe800_0000, 8), (None, 0xe801_0101, 32), (Some(7), 0xe801_0101, 32), (None, 0, 0)].into_iter().enumerate()
        {
            table.insert(source, group, len, route(n as u32));
        }
        let all = Forwarding { bits: 32, tables: HashMap::from([(3, Arc::new(table))]) };
        let found = |source, group| all.find(3, source, group).map(|r| r.counter);
        assert_eq!(found(7, 0xe801_0101), Some(2));
        assert_eq!(found(8, 0xe801_0101), Some(1));
        assert_eq!(found(7, 0xe8ff_ffff), Some(0));
        assert_eq!(found(7, 0xe700_0000), Some(3));
        assert!(all.find(4, 7, 0xe801_0101).is_none(), "no such table");
    }

    #[test]
    fn masks_of_all_lengths() {
        assert_eq!([0, 8, 32].map(|len| masked(0xe801_0203, len, 32)), [0, 0xe800_0000, 0xe801_0203]);
        assert_eq!([0, 128].map(|len| masked(u128::MAX, len, 128)), [0, u128::MAX]);
    }
}
