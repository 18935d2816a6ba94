//! The FIB against a slow, obviously right one; memory that ends; tables of real size.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use quiver_graph::IfIndex;
use quiver_tables::synth;
use quiver_wire::{IpPrefix, Ipv4Prefix};

use super::records::Class;
use super::*;
use crate::testing::{Harness, host_mac};

/// What a prefix has from each source; the user's next hops are looked up or neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Neighbor(u8),
    Via(Ipv4Addr),
    Drop,
}

#[derive(Default)]
struct Model {
    routes: BTreeMap<(u32, u8), BTreeMap<Source, Vec<To>>>,
}

/// Prefixes of one source with the same paths are one path list.
type List = (Source, Vec<To>);

impl Model {
    fn best(&self, address: u32) -> Option<(u8, List)> {
        let covers = |(p, l): (u32, u8)| l == 0 || (address ^ p) >> (32 - l) == 0;
        let (key, sources) = self.routes.iter().filter(|(k, _)| covers(**k)).max_by_key(|(k, _)| k.1)?;
        let (source, paths) = sources.iter().next()?;
        Some((key.1, (*source, paths.clone())))
    }

    /// Lists that the next hops of a list lead to, next ones only.
    fn covers(&self, list: &List) -> Vec<(Ipv4Addr, List)> {
        let via = list.1.iter().filter_map(|to| if let To::Via(a) = to { Some(*a) } else { None });
        via.filter_map(|a| Some((a, self.best(a.to_bits())?.1))).collect()
    }

    fn leads_to(&self, from: &List, target: &List, seen: &mut Vec<List>) -> bool {
        if from == target {
            return true;
        }
        if seen.contains(from) {
            return false;
        }
        seen.push(from.clone());
        self.covers(from).iter().any(|(_, next)| self.leads_to(next, target, seen))
    }

    /// Interfaces that packets leave by. A path whose next hop leads back to its own list is not used.
    fn resolve(&self, list: &List) -> Vec<u8> {
        let mut out: Vec<u8> = list.1.iter().filter_map(|to| if let To::Neighbor(n) = to { Some(*n) } else { None }).collect();
        for (_, cover) in self.covers(list) {
            if !self.leads_to(&cover, list, &mut Vec::new()) {
                out.extend(self.resolve(&cover));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

const SOURCES: [Source; 3] = [Source::Api, Source::Cli, Source::Plugin];

#[derive(Clone, Debug)]
enum Op {
    Set(u32, u8, usize, Vec<To>),
    Unset(u32, u8, usize),
}

fn addresses() -> impl Strategy<Value = u32> {
    // Few bits vary, so that prefixes nest and next hops lie in them.
    (0_u32..4, 0_u32..4, 0_u32..4).prop_map(|(a, b, c)| 0x0b00_0000 | a << 22 | b << 14 | c << 6)
}

fn to() -> impl Strategy<Value = To> {
    prop_oneof![3 => (1_u8..4).prop_map(To::Neighbor), 3 => addresses().prop_map(|a| To::Via(Ipv4Addr::from_bits(a)))]
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop::sample::select(vec![8_u8, 10, 16, 18, 24, 26, 32]);
    let paths = prop_oneof![1 => Just(vec![To::Drop]), 4 => prop::collection::vec(to(), 1..3)];
    prop_oneof![
        3 => (addresses(), len.clone(), 0_usize..3, paths).prop_map(|(a, l, s, p)| Op::Set(a, l, s, p)),
        1 => (addresses(), len, 0_usize..3).prop_map(|(a, l, s)| Op::Unset(a, l, s)),
    ]
}

fn masked(address: u32, len: u8) -> u32 {
    address & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn path(x: &[IfIndex], to: &To) -> Path {
    match to {
        To::Neighbor(n) => Path::neighbor(x[usize::from(*n)], IpAddr::from([10, 0, *n, 2])),
        To::Via(a) => Path::recursive(IpAddr::V4(*a)),
        To::Drop => Path::new(Hop::Drop),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn agrees_with_a_slow_model_on_sources_covers_and_recursion(ops in prop::collection::vec(op(), 1..60)) {
        let mut h = Harness::with_buffers(0, 512);
        let x: Vec<IfIndex> = (0..4).map(|n| h.interface(n)).collect();
        let before = h.router.routes(FamilyId::V4, 0, None, 1000).unwrap();
        let mut model = Model::default();
        for op in &ops {
            match op {
                Op::Set(address, len, source, to) => {
                    let mut to = to.clone();
                    to.sort();
                    to.dedup();
                    let prefix = IpPrefix::new(Ipv4Addr::from_bits(*address).into(), *len).unwrap();
                    let paths = to.iter().map(|t| path(&x, t)).collect();
                    h.router.replace_route(0, prefix, SOURCES[*source], paths).unwrap();
                    model.routes.entry((masked(*address, *len), *len)).or_default().insert(SOURCES[*source], to);
                }
                Op::Unset(address, len, source) => {
                    let prefix = IpPrefix::new(Ipv4Addr::from_bits(*address).into(), *len).unwrap();
                    let key = (masked(*address, *len), *len);
                    let had = model.routes.get_mut(&key).and_then(|s| s.remove(&SOURCES[*source])).is_some();
                    model.routes.retain(|_, s| !s.is_empty());
                    prop_assert_eq!(h.router.remove_route(0, prefix, SOURCES[*source], None).is_ok(), had);
                }
            }
            for a in (0..64_u32).map(|n| 0x0b00_0000 | (n & 3) << 22 | (n >> 2 & 3) << 14 | (n >> 4) << 6) {
                let best = model.best(a);
                let expected = best.as_ref().map(|(_, list)| model.resolve(list)).unwrap_or_default();
                let found = h.router.route_lookup(0, Ipv4Addr::from_bits(a).into()).unwrap();
                let mut got: Vec<u8> = found
                    .buckets
                    .iter()
                    .filter(|b| b.class() == Class::Incomplete)
                    .filter_map(|b| h.router.adjacency_info(b.index()))
                    .filter_map(|i| x.iter().position(|y| *y == i.interface))
                    .map(|n| n as u8)
                    .collect();
                got.sort_unstable();
                got.dedup();
                prop_assert_eq!(&got, &expected, "{} after {:?}", Ipv4Addr::from_bits(a), op);
                prop_assert_eq!(found.prefix_len, best.map_or(0, |(len, _)| len));
            }
        }
        for ((address, len), sources) in std::mem::take(&mut model.routes) {
            for source in sources.into_keys() {
                let prefix = IpPrefix::new(Ipv4Addr::from_bits(address).into(), len).unwrap();
                h.router.remove_route(0, prefix, source, None).unwrap();
            }
        }
        prop_assert_eq!(h.router.routes(FamilyId::V4, 0, None, 1000).unwrap(), before);
        prop_assert!(h.router.adjacencies().is_empty());
    }
}

/// A router with x1 and the neighbour 10.0.1.2 there.
fn bed() -> (Harness, IfIndex) {
    let mut h = Harness::with_buffers(0, 512);
    let index = h.interface(1);
    h.router.add_address(index, IpAddr::from([10, 0, 1, 1]), 24).unwrap();
    h.router.neighbor_update(index, IpAddr::from([10, 0, 1, 2]), Some(host_mac(1))).unwrap();
    (h, index)
}

#[test]
fn a_host_behind_a_link_is_its_own_next_hop() {
    let (mut h, index) = bed();
    let link = Path::new(Hop::Attached { interface: index, source: None });
    for host in ["16.0.0.9/32", "2001:db8::9/128"] {
        let prefix: IpPrefix = host.parse().unwrap();
        h.router.add_route(0, prefix, Source::Cli, vec![link]).unwrap();
        assert_eq!(h.router.route_lookup(0, prefix.addr()).unwrap().paths, [Path::neighbor(index, prefix.addr())], "{host}");
        // Its MAC address goes into that adjacency, and it is removed as it was added.
        h.router.neighbor_update(index, prefix.addr(), Some(host_mac(9))).unwrap();
        assert_eq!(h.router.route_lookup(0, prefix.addr()).unwrap().buckets[0].class(), Class::Rewrite);
        h.router.remove_route(0, prefix, Source::Cli, Some(&[link])).unwrap();
        h.router.neighbor_update(index, prefix.addr(), None).unwrap();
    }
    // In a row of hosts each has its own.
    let mut bulk = h.router.bulk_routes(0, "16.0.0.0/32".parse().unwrap(), Source::Cli, vec![link], 3, false).unwrap();
    h.router.step_bulk(&mut bulk, 3).unwrap();
    let at = |n: u8| IpAddr::from([16, 0, 0, n]);
    assert!((0..3).all(|n| h.router.route_lookup(0, at(n)).unwrap().paths == [Path::neighbor(index, at(n))]));
    // A link is a link, and a group is no host.
    for prefix in ["16.1.0.0/31", "232.0.0.1/32"] {
        let prefix: IpPrefix = prefix.parse().unwrap();
        h.router.add_route(0, prefix, Source::Cli, vec![link]).unwrap();
        assert_eq!(h.router.route_lookup(0, prefix.addr()).unwrap().paths, [link], "{prefix}");
    }
}

#[test]
fn when_memory_ends_the_route_is_refused_and_the_others_stay() {
    let (mut h, index) = bed();
    let paths = vec![Path::neighbor(index, IpAddr::from([10, 0, 1, 2]))];
    let budget = h.router.fib().budget().clone();
    budget.set_limit(budget.used() + (1 << 20));
    let prefix: IpPrefix = "16.0.0.0/24".parse().unwrap();
    let mut bulk = h.router.bulk_routes(0, prefix, Source::Cli, paths.clone(), 1_000_000, false).unwrap();
    let error = loop {
        match h.router.step_bulk(&mut bulk, 1000) {
            Ok(()) => assert!(!bulk.is_finished(), "a million routes in a megabyte"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, FibError::Memory);
    let done = bulk.done();
    assert!(done > 1000, "{done}");
    let lookup =
        |h: &Harness, n: u64| h.router.route_lookup(0, Ipv4Addr::from_bits(0x1000_0000 + (n as u32) * 256 + 9).into()).unwrap();
    assert_eq!(lookup(&h, done - 1).prefix_len, 24);
    assert_eq!(lookup(&h, done).prefix_len, 0, "the one that failed is not there");
    let next = IpPrefix::V4(Ipv4Prefix::new(Ipv4Addr::from_bits(0x1000_0000 + done as u32 * 256), 24).unwrap());
    assert_eq!(h.router.add_route(0, next, Source::Cli, paths.clone()), Err(FibError::Memory));
    // The router goes on: what there is can be removed, and then there is room again.
    h.router.remove_route(0, prefix, Source::Cli, None).unwrap();
    h.router.add_route(0, next, Source::Cli, paths).unwrap();
    budget.set_limit(usize::MAX);
    h.router.step_bulk(&mut bulk, 1000).unwrap();
    assert_eq!(lookup(&h, done).prefix_len, 24);
}

#[test]
fn the_full_tables_load_and_answer_as_their_store_does() {
    let (mut h, index) = bed();
    // A tenth of the table in plain test runs; `make bench` loads all of it.
    let (table, _) = synth::full_table4();
    let table: Vec<(u32, u8)> = table.into_iter().step_by(10).filter(|(p, _)| p >> 24 != 10).collect();
    let hop = |n: u32| Path::neighbor(index, IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0100 + 2 + n % 60)));
    for (p, len) in &table {
        let prefix = IpPrefix::new(Ipv4Addr::from_bits(*p).into(), *len).unwrap();
        h.router.add_route(0, prefix, Source::Cli, vec![hop(synth::leaf(*p, *len, 1))]).unwrap();
    }
    let reader = <V4 as crate::ip::Family>::reader(&h.router.fib().v4.get(0).unwrap().routes, 0);
    let known: std::collections::HashSet<(u32, u8)> = table.iter().copied().collect();
    for a in synth::addresses4(&table, 10_000, 3) {
        let found = h.router.route_lookup(0, Ipv4Addr::from_bits(a).into()).unwrap();
        assert_eq!(<V4 as crate::ip::Family>::lookup(&reader, a), found.load_balance);
        assert!(known.contains(&(masked(a, found.prefix_len), found.prefix_len)), "{}", Ipv4Addr::from_bits(a));
    }
    assert!(h.router.fib().lists.iter().count() < 100, "routes with the same paths share a load-balance");
    for (p, len) in &table {
        let prefix = IpPrefix::new(Ipv4Addr::from_bits(*p).into(), *len).unwrap();
        h.router.remove_route(0, prefix, Source::Cli, None).unwrap();
    }
    assert_eq!(h.router.adjacencies().len(), 2, "the link and its neighbour");
}
