//! Rules of the table of routes, and a comparison with a slow one under random events.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use quiver_graph::IfIndex;
use quiver_net::fib::{self, Path};
use quiver_wire::IpPrefix;

use super::{Paths, Refusal, Rib};
use crate::message::{Hop, Link, NextHop, Route, Target, flag};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn hop(link: u32, via: &str) -> Hop {
    Hop { link, via: Some(ip(via)), weight: 1, encapsulated: false }
}

fn route(text: &str, target: Target) -> Route {
    Route { table: 254, prefix: prefix(text), metric: 20, protocol: 12, tos: 0, by_source: false, target }
}

fn via(text: &str, hops: &[Hop]) -> Route {
    route(text, Target::Hops(hops.into()))
}

fn link(index: u32, up: bool) -> Link {
    Link { index, name: format!("e{index}"), up, carrier: up, mtu: 1500, master: None, vrf: None }
}

/// Links 1 to 3 belong to interfaces 11 to 13.
fn rib() -> Rib {
    let mut rib = Rib::default();
    rib.set_interfaces((1..=3).map(|n| (n, IfIndex(n + 10))).collect());
    for n in 1..=4 {
        rib.set_link(link(n, true));
    }
    rib
}

/// The router's table, as the changes make it.
#[derive(Default)]
struct Table {
    routes: BTreeMap<(u32, String), Paths>,
    changes: usize,
}

impl Table {
    fn follow(&mut self, rib: &mut Rib) -> usize {
        let before = self.changes;
        while let Some(change) = rib.change() {
            self.changes += 1;
            let key = (change.table, change.prefix.to_string());
            match change.paths {
                Some(paths) => drop(self.routes.insert(key, paths)),
                None => assert!(self.routes.remove(&key).is_some(), "{key:?} goes that was not there"),
            }
        }
        self.changes - before
    }

    fn paths(&self, text: &str) -> Option<Vec<Path>> {
        self.routes.get(&(0, text.to_owned())).map(|paths| paths.to_vec())
    }
}

fn neighbor(interface: u32, via: &str) -> Path {
    Path::neighbor(IfIndex(interface), ip(via))
}

#[test]
fn the_lowest_metric_decides_and_the_next_one_follows() {
    let (mut rib, mut table) = (rib(), Table::default());
    let low = via("10.1.0.0/16", &[hop(1, "192.0.2.1")]);
    let high = Route { metric: 30, ..via("10.1.0.0/16", &[hop(2, "192.0.2.2")]) };
    rib.add(&high, 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(12, "192.0.2.2")]));
    rib.add(&low, 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(11, "192.0.2.1")]));
    rib.remove(&low);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(12, "192.0.2.2")]));
    rib.remove(&high);
    table.follow(&mut rib);
    assert_eq!((table.paths("10.1.0.0/16"), rib.told(), rib.by_protocol().len()), (None, 0, 0));
}

#[test]
fn what_changes_and_changes_back_before_it_is_told_is_no_change() {
    let (mut rib, mut table) = (rib(), Table::default());
    let one = via("10.1.0.0/16", &[hop(1, "192.0.2.1")]);
    rib.add(&one, 0, false);
    assert_eq!(table.follow(&mut rib), 1);
    rib.remove(&one);
    rib.add(&one, 0, false);
    rib.add(&via("10.1.0.0/16", &[hop(2, "192.0.2.9")]), flag::REPLACE, false);
    rib.add(&one, flag::REPLACE, false);
    assert_eq!(table.follow(&mut rib), 0);
    assert_eq!(rib.by_protocol().get(&12), Some(&1));
}

#[test]
fn appended_ipv4_routes_wait_and_prepended_ones_come_first() {
    let (mut rib, mut table) = (rib(), Table::default());
    let routes: Vec<Route> = (1..=3).map(|n| via("10.1.0.0/16", &[hop(n, "192.0.2.1")])).collect();
    rib.add(&routes[0], 0, false);
    rib.add(&routes[1], flag::APPEND, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16").unwrap()[0].interface(), Some(IfIndex(11)));
    rib.add(&routes[2], 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16").unwrap()[0].interface(), Some(IfIndex(13)));
    rib.remove(&routes[2]);
    rib.remove(&routes[0]);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16").unwrap()[0].interface(), Some(IfIndex(12)));
}

#[test]
fn ipv6_next_hops_come_as_a_whole_and_go_one_by_one() {
    let (mut rib, mut table) = (rib(), Table::default());
    let (a, b) = (hop(1, "fe80::1"), hop(2, "fe80::2"));
    rib.add(&via("2001:db8::/32", &[a]), 0, false);
    rib.add(&via("2001:db8::/32", &[a, b]), flag::APPEND, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("2001:db8::/32").unwrap(), [neighbor(11, "fe80::1"), neighbor(12, "fe80::2")]);
    rib.remove(&via("2001:db8::/32", &[a]));
    table.follow(&mut rib);
    assert_eq!(table.paths("2001:db8::/32").unwrap(), [neighbor(12, "fe80::2")]);
    rib.remove(&via("2001:db8::/32", &[b]));
    table.follow(&mut rib);
    assert_eq!(table.paths("2001:db8::/32"), None);
}

#[test]
fn weights_kinds_and_tables_come_out_as_paths() {
    let (mut rib, mut table) = (rib(), Table::default());
    let heavy = Hop { weight: 3, ..hop(1, "192.0.2.1") };
    rib.add(&via("10.1.0.0/16", &[heavy, hop(2, "192.0.2.2")]), 0, false);
    rib.add(&route("10.2.0.0/16", Target::Blackhole), 0, false);
    rib.add(&route("10.3.0.0/16", Target::Unreachable), 0, false);
    rib.add(&route("10.4.0.0/16", Target::Prohibit), 0, false);
    rib.add(&Route { table: 7, ..route("10.5.0.0/16", Target::Blackhole) }, 0, false);
    let on_link = Hop { via: None, ..hop(3, "0.0.0.0") };
    rib.add(&via("10.6.0.0/16", &[on_link]), 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16").unwrap(), [Path { weight: 3, ..neighbor(11, "192.0.2.1") }, neighbor(12, "192.0.2.2")]);
    assert_eq!(table.paths("10.2.0.0/16").unwrap()[0].hop, fib::Hop::Drop);
    assert_eq!(table.paths("10.3.0.0/16").unwrap()[0].hop, fib::Hop::Unreachable);
    assert_eq!(table.paths("10.4.0.0/16").unwrap()[0].hop, fib::Hop::Prohibited);
    assert_eq!(table.paths("10.6.0.0/16").unwrap()[0].hop, fib::Hop::Attached { interface: IfIndex(13), source: None });
    assert!(table.routes.contains_key(&(7, "10.5.0.0/16".into())));
    let huge = Hop { weight: 60_000, ..hop(1, "192.0.2.1") };
    rib.add(&via("10.1.0.0/16", &[huge, hop(2, "192.0.2.2")]), flag::REPLACE, false);
    table.follow(&mut rib);
    let weights: Vec<u8> = table.paths("10.1.0.0/16").unwrap().iter().map(|path| path.weight).collect();
    assert_eq!(weights, [255, 1]);
}

#[test]
fn main_hides_default_where_both_have_a_prefix() {
    let (mut rib, mut table) = (rib(), Table::default());
    rib.add(&Route { table: 253, metric: 0, ..via("10.1.0.0/16", &[hop(2, "192.0.2.2")]) }, 0, false);
    rib.add(&via("10.1.0.0/16", &[hop(1, "192.0.2.1")]), 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(11, "192.0.2.1")]));
}

#[test]
fn what_the_router_cannot_do_is_counted_by_reason() {
    let (mut rib, mut table) = (rib(), Table::default());
    rib.add(&via("10.1.0.0/16", &[hop(4, "192.0.2.1")]), 0, false);
    rib.add(&via("2001:db8::/32", &[hop(1, "192.0.2.1")]), 0, false);
    rib.add(&via("10.3.0.0/16", &[Hop { encapsulated: true, ..hop(1, "192.0.2.1") }]), 0, false);
    rib.add(&route("10.4.0.0/16", Target::Object(9)), 0, false);
    rib.add(&Route { tos: 8, ..via("10.5.0.0/16", &[hop(1, "192.0.2.1")]) }, 0, false);
    rib.add(&via("fe80::/64", &[Hop { via: None, ..hop(1, "::") }]), 0, false);
    assert_eq!((table.follow(&mut rib), rib.special()), (0, 1));
    let refused = rib.refused();
    for why in [Refusal::NoInterface, Refusal::OtherFamily, Refusal::Encapsulation, Refusal::NoObject] {
        assert_eq!(refused.get(&why), Some(&1), "{why:?}");
    }
    // A pair is made for link 4.
    rib.set_interfaces((1..=4).map(|n| (n, IfIndex(n + 10))).collect());
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(14, "192.0.2.1")]));
    // And removed: what depends on it goes.
    rib.set_interfaces((1..=3).map(|n| (n, IfIndex(n + 10))).collect());
    table.follow(&mut rib);
    assert!(table.routes.is_empty());
}

#[test]
fn ipv4_leads_by_ipv6_neighbours() {
    let (mut rib, mut table) = (rib(), Table::default());
    rib.add(&via("10.2.0.0/16", &[hop(1, "fe80::1"), hop(2, "192.0.2.2")]), 0, false);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.2.0.0/16"), Some(vec![neighbor(11, "fe80::1"), neighbor(12, "192.0.2.2")]));
}

#[test]
fn routes_follow_their_objects_groups_and_links_without_a_word() {
    let (mut rib, mut table) = (rib(), Table::default());
    rib.set_object(1, NextHop::One(hop(1, "192.0.2.1")));
    rib.set_object(2, NextHop::One(hop(2, "192.0.2.2")));
    rib.set_object(10, NextHop::Group(vec![(1, 1), (2, 4)]));
    rib.set_object(3, NextHop::Blackhole);
    for (text, id) in [("10.1.0.0/16", 1), ("10.2.0.0/16", 10), ("10.3.0.0/16", 3)] {
        rib.add(&route(text, Target::Object(id)), 0, false);
    }
    table.follow(&mut rib);
    let both = vec![neighbor(11, "192.0.2.1"), Path { weight: 4, ..neighbor(12, "192.0.2.2") }];
    assert_eq!(table.paths("10.2.0.0/16"), Some(both));
    assert_eq!(table.paths("10.3.0.0/16").unwrap()[0].hop, fib::Hop::Drop);
    // An object that changes moves all that lead to it.
    rib.set_object(1, NextHop::One(hop(3, "192.0.2.3")));
    assert_eq!(table.follow(&mut rib), 2);
    assert_eq!(table.paths("10.1.0.0/16"), Some(vec![neighbor(13, "192.0.2.3")]));
    // Link 3 loses its carrier: the kernel removes the object, its memberships and its routes.
    rib.set_link(Link { carrier: false, ..link(3, true) });
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), None);
    assert_eq!(table.paths("10.2.0.0/16").unwrap().len(), 1);
    rib.remove_object(2);
    table.follow(&mut rib);
    assert_eq!(table.paths("10.2.0.0/16"), None, "the group is empty");
    assert_eq!(rib.objects(), 1);
    rib.set_link(link(3, true));
    table.follow(&mut rib);
    assert_eq!(table.routes.len(), 1, "nothing comes back by itself");
}

#[test]
fn a_link_that_goes_down_takes_its_routes_and_a_part_of_others() {
    let (mut rib, mut table) = (rib(), Table::default());
    rib.add(&via("10.1.0.0/16", &[hop(1, "192.0.2.1")]), 0, false);
    rib.add(&via("10.2.0.0/16", &[hop(1, "192.0.2.1"), hop(2, "192.0.2.2")]), 0, false);
    table.follow(&mut rib);
    rib.set_link(link(1, false));
    assert_eq!(table.follow(&mut rib), 2);
    assert_eq!(table.paths("10.1.0.0/16"), None);
    assert_eq!(table.paths("10.2.0.0/16"), Some(vec![neighbor(12, "192.0.2.2")]));
    rib.set_link(link(1, true));
    table.follow(&mut rib);
    assert_eq!(table.paths("10.1.0.0/16"), None, "the kernel has removed it");
    assert_eq!(table.paths("10.2.0.0/16").unwrap().len(), 2, "the kernel uses the next hop again");
    rib.remove_link(2);
    rib.remove_link(1);
    table.follow(&mut rib);
    assert!(table.routes.is_empty());
}

/// BIRD takes seconds to withdraw a full table. Until then packets must not be dropped where a shorter prefix leads on.
#[test]
fn a_route_is_not_used_while_none_of_its_links_has_a_carrier() {
    let (mut rib, mut table) = (rib(), Table::default());
    let without_carrier = |index| Link { carrier: false, ..link(index, true) };
    rib.add(&via("10.0.0.0/8", &[hop(1, "192.0.2.1")]), 0, false);
    rib.add(&via("20.0.0.0/8", &[hop(1, "192.0.2.1"), hop(2, "192.0.2.2")]), 0, false);
    assert_eq!(table.follow(&mut rib), 2);
    rib.set_link(without_carrier(1));
    assert_eq!(table.follow(&mut rib), 1, "the table leaves out one of several paths by itself");
    assert_eq!(table.paths("10.0.0.0/8"), None);
    assert_eq!(table.paths("20.0.0.0/8").map(|paths| paths.len()), Some(2));
    assert_eq!(rib.refused(), [(Refusal::LinkDown, 1)].into());
    rib.set_link(without_carrier(2));
    assert_eq!(table.follow(&mut rib), 1, "the last one takes it");
    rib.set_link(link(2, true));
    rib.set_link(link(1, true));
    assert_eq!(table.follow(&mut rib), 2, "the kernel has kept them");
    assert_eq!(table.paths("10.0.0.0/8"), Some(vec![neighbor(11, "192.0.2.1")]));
    // What the routing daemon takes back meanwhile is no change.
    rib.set_link(without_carrier(1));
    assert_eq!(table.follow(&mut rib), 1);
    rib.remove(&via("10.0.0.0/8", &[hop(1, "192.0.2.1")]));
    assert_eq!(table.follow(&mut rib), 0);
}

#[test]
fn a_comparison_changes_only_what_differs() {
    let (mut rib, mut table) = (rib(), Table::default());
    let routes: Vec<Route> = (0..200).map(|n| via(&format!("10.{n}.0.0/16"), &[hop(1 + n % 3, "192.0.2.1")])).collect();
    routes.iter().for_each(|route| rib.add(route, 0, false));
    assert_eq!(table.follow(&mut rib), 200);
    // Announcements were lost: 3 has gone, 4 has another next hop, 200 is new.
    rib.begin_comparison();
    rib.begin_list();
    let moved = via("10.4.0.0/16", &[hop(3, "192.0.2.77")]);
    let new = via("10.200.0.0/16", &[hop(1, "192.0.2.1")]);
    for route in routes.iter().filter(|r| ![routes[3].prefix, routes[4].prefix].contains(&r.prefix)).chain([&moved, &new]) {
        rib.add(route, 0, true);
    }
    rib.sweep_routes(false);
    assert_eq!(table.follow(&mut rib), 3);
    assert_eq!((rib.differences().missing, rib.differences().extra), (2, 2));
    assert!(rib.differences().examples.contains(&"extra 10.3.0.0/16 table 0".to_owned()), "{:?}", rib.differences());
    assert_eq!(table.paths("10.4.0.0/16"), Some(vec![neighbor(13, "192.0.2.77")]));
    assert_eq!((table.routes.len(), rib.told()), (200, 200));
    // All withdrawn.
    rib.clear();
    assert_eq!(table.follow(&mut rib), 200);
    assert_eq!((table.routes.len(), rib.told(), rib.all_told().count()), (0, 0, 0));
}

#[test]
fn what_a_list_says_of_routes_that_were_announced_meanwhile_is_older() {
    let (mut rib, mut table) = (rib(), Table::default());
    let [stays, goes, moves] = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"].map(|p| via(p, &[hop(1, "192.0.2.1")]));
    [&stays, &goes, &moves].into_iter().for_each(|route| rib.add(route, 0, false));
    assert_eq!(table.follow(&mut rib), 3);
    rib.begin_comparison();
    rib.begin_list();
    rib.remove(&goes);
    let moved = via("10.3.0.0/16", &[hop(2, "192.0.2.9")]);
    rib.add(&moved, flag::REPLACE, false);
    // It came too late for the list.
    let new = via("10.4.0.0/16", &[hop(1, "192.0.2.1")]);
    rib.add(&new, 0, false);
    [&stays, &goes, &moves].into_iter().for_each(|route| rib.add(route, 0, true));
    rib.sweep_routes(false);
    table.follow(&mut rib);
    assert_eq!((rib.differences().missing, rib.differences().extra), (0, 0), "{:?}", rib.differences());
    assert_eq!(table.paths("10.2.0.0/16"), None);
    assert_eq!(table.paths("10.3.0.0/16"), Some(vec![neighbor(12, "192.0.2.9")]));
    assert!(table.paths("10.1.0.0/16").is_some() && table.paths("10.4.0.0/16").is_some());
}

/// Events of a kernel with a few prefixes, metrics, next hops.
#[derive(Clone, Debug)]
enum Event {
    Add(u8, u32, u32),
    Remove(u8, u32),
    Link(u32, bool),
    Interfaces(u32),
    Tell,
    Dump,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..6_u8, 0..3_u32, 1..=4_u32).prop_map(|(p, m, l)| Event::Add(p, m, l)),
        2 => (0..6_u8, 0..3_u32).prop_map(|(p, m)| Event::Remove(p, m)),
        1 => (1..=4_u32, any::<bool>()).prop_map(|(l, up)| Event::Link(l, up)),
        1 => (0..=4_u32).prop_map(Event::Interfaces),
        1 => Just(Event::Tell),
        1 => Just(Event::Dump),
    ];
    prop::collection::vec(event, 0..60)
}

proptest! {
    /// The table is at any time what the kernel's best routes come to, whenever changes are taken.
    #[test]
    fn the_table_is_that_of_a_simple_model(events in events()) {
        let (mut rib, mut table) = (rib(), Table::default());
        // Prefix and metric to link; IPv4, replaced by metric.
        let mut kernel: BTreeMap<(u8, u32), u32> = BTreeMap::new();
        let mut up = [true; 5];
        let mut mapped = 3;
        let made = |p: u8, metric: u32, link: u32| Route { metric, ..via(&format!("10.{p}.0.0/16"), &[hop(link, "192.0.2.1")]) };
        for event in events {
            match event {
                Event::Add(p, metric, link) if up[link as usize] => {
                    kernel.insert((p, metric), link);
                    rib.add(&made(p, metric, link), flag::REPLACE, false);
                }
                Event::Add(..) => {}
                Event::Remove(p, metric) => if let Some(link) = kernel.remove(&(p, metric)) {
                    rib.remove(&made(p, metric, link));
                },
                Event::Link(index, now) => {
                    up[index as usize] = now;
                    if !now {
                        kernel.retain(|_, link| *link != index);
                    }
                    rib.set_link(link(index, now));
                }
                Event::Interfaces(n) => {
                    mapped = n;
                    rib.set_interfaces((1..=n).map(|n| (n, IfIndex(n + 10))).collect());
                }
                Event::Tell => drop(table.follow(&mut rib)),
                Event::Dump => {
                    rib.begin_comparison();
                    rib.begin_list();
                    for ((p, metric), link) in &kernel {
                        rib.add(&made(*p, *metric, *link), 0, true);
                    }
                    rib.sweep_routes(false);
                    prop_assert_eq!((rib.differences().missing, rib.differences().extra), (0, 0));
                }
            }
        }
        table.follow(&mut rib);
        for p in 0..6 {
            let best = kernel.range((p, 0)..=(p, u32::MAX)).next().map(|(_, link)| *link);
            let expected = best.filter(|link| *link <= mapped).map(|link| vec![neighbor(link + 10, "192.0.2.1")]);
            prop_assert_eq!(table.paths(&format!("10.{p}.0.0/16")), expected, "prefix {}", p);
        }
        prop_assert_eq!(rib.told() as usize, table.routes.len());
        prop_assert_eq!(rib.by_protocol().values().sum::<u64>() as usize, kernel.len());
    }
}
