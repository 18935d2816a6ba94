//! What changes do to the router.

use std::net::IpAddr;
use std::sync::Arc;

use quiver_net::fib::{Path, Source};
use quiver_net::ip::FamilyId;
use quiver_net::linux::HostInterface;
use quiver_net::neighbor::State;
use quiver_net::testing::{Harness, host_mac};
use quiver_net::{IfIndex, Router};
use quiver_wire::IpPrefix;

use crate::apply::Applied;
use crate::message::NeighborState;
use crate::reader::{Change, LinkChange};
use crate::rib::{Differences, RouteChange};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

/// A router with an interface that has a counterpart, and what is applied to it.
struct Scene {
    harness: Harness,
    interface: IfIndex,
    applied: Applied,
    checked: Differences,
}

impl Scene {
    fn new() -> Self {
        let mut harness = Harness::new();
        let interface = harness.interface(0);
        let host = HostInterface { interface, namespace: None, host_name: "e0".into(), host_ifindex: 7 };
        harness.router.add_host_interface(host).unwrap();
        Self { harness, interface, applied: Applied::default(), checked: Differences::default() }
    }

    fn apply(&mut self, change: Change) {
        self.applied.apply(&mut self.harness.router, change, &mut self.checked);
    }

    fn router(&mut self) -> &mut Router {
        &mut self.harness.router
    }

    fn route(&self, table: u32, text: &str, via: Option<&str>) -> RouteChange {
        let paths = via.map(|via| Arc::from([Path::neighbor(self.interface, ip(via))]));
        RouteChange { table, prefix: prefix(text), paths }
    }

    fn neighbor(&mut self, mac: Option<u8>, permanent: bool) {
        let state = mac.map(|n| NeighborState { mac: host_mac(n), permanent });
        self.apply(Change::Neighbor(self.interface, ip("10.0.0.2"), state));
    }

    fn known(&self) -> Option<(State, Option<quiver_wire::MacAddr>)> {
        self.harness.router.neighbor(self.interface, ip("10.0.0.2")).map(|n| (n.state, n.mac))
    }
}

fn source(router: &Router, table: u32, text: &str) -> Option<Source> {
    router.route(table, prefix(text)).ok().flatten().map(|route| route.sources[0].source)
}

#[test]
fn routes_of_linux_win_over_users_and_lose_to_addresses() {
    let mut s = Scene::new();
    let interface = s.interface;
    s.router().add_address(interface, ip("10.0.0.1"), 24).unwrap();
    let user = vec![Path::neighbor(interface, ip("10.0.0.9"))];
    s.router().add_route(0, prefix("192.0.2.0/24"), Source::Cli, user).unwrap();
    s.apply(Change::Route(s.route(0, "192.0.2.0/24", Some("10.0.0.2"))));
    s.apply(Change::Route(s.route(0, "10.0.0.0/24", Some("10.0.0.2"))));
    assert_eq!(source(s.router(), 0, "192.0.2.0/24"), Some(Source::Linux));
    assert_eq!(source(s.router(), 0, "10.0.0.0/24"), Some(Source::Interface));
    s.apply(Change::Route(s.route(0, "192.0.2.0/24", None)));
    assert_eq!(source(s.router(), 0, "192.0.2.0/24"), Some(Source::Cli));
    // One that has gone already is no error.
    s.apply(Change::Route(s.route(0, "192.0.2.0/24", None)));
    s.apply(Change::Route(s.route(99, "192.0.2.0/24", None)));
    assert_eq!((s.applied.refused, s.applied.routes), (0, 5));
}

#[test]
fn a_route_that_the_router_refuses_is_counted_and_does_not_stay_as_it_was() {
    let mut s = Scene::new();
    s.apply(Change::Route(s.route(0, "192.0.2.0/24", Some("10.0.0.2"))));
    s.apply(Change::Route(s.route(0, "192.0.2.0/24", Some("224.0.0.1"))));
    assert_eq!((s.applied.refused, source(s.router(), 0, "192.0.2.0/24")), (1, None));
    assert!(s.applied.last.as_ref().unwrap().contains("192.0.2.0/24"));
}

#[test]
fn a_check_repairs_what_differs() {
    let mut s = Scene::new();
    for text in ["192.0.2.0/24", "192.0.2.1/32"] {
        let route = s.route(0, text, Some("10.0.0.2"));
        s.apply(Change::Route(route.clone()));
        s.apply(Change::Expect(route));
    }
    assert_eq!(s.checked, Differences::default());
    s.router().remove_route(0, prefix("192.0.2.1/32"), Source::Linux, None).unwrap();
    let other = s.route(0, "192.0.2.0/24", Some("10.0.0.3"));
    s.apply(Change::Route(other));
    for text in ["192.0.2.0/24", "192.0.2.1/32"] {
        s.apply(Change::Expect(s.route(0, text, Some("10.0.0.2"))));
    }
    assert_eq!((s.checked.missing, s.checked.examples.len()), (2, 2));
    assert_eq!(source(s.router(), 0, "192.0.2.1/32"), Some(Source::Linux));
}

#[test]
fn what_users_say_of_a_neighbour_stands() {
    let mut s = Scene::new();
    s.neighbor(Some(1), false);
    assert_eq!(s.known().unwrap().1, Some(host_mac(1)));
    s.neighbor(None, false);
    assert_eq!(s.known(), None);
    s.neighbor(Some(2), true);
    assert_eq!(s.known(), Some((State::Permanent, Some(host_mac(2)))));
    s.neighbor(None, false);
    assert_eq!(s.known(), None);
    let interface = s.interface;
    s.router().add_neighbor(interface, ip("10.0.0.2"), host_mac(9), true, false).unwrap();
    s.neighbor(Some(1), true);
    s.neighbor(None, false);
    assert_eq!(s.known(), Some((State::Permanent, Some(host_mac(9)))));
}

#[test]
fn an_interface_that_joins_a_vrf_takes_its_addresses_along() {
    let mut s = Scene::new();
    let interface = s.interface;
    s.apply(Change::Address(interface, (ip("10.0.0.1"), 24), true));
    s.apply(Change::Address(interface, (ip("2001:db8::1"), 64), true));
    s.apply(Change::Link(interface, LinkChange { table: Some(7), ..LinkChange::default() }));
    assert_eq!((s.applied.last.clone(), s.router().interfaces.get(interface).unwrap().tables), (None, (7, 7)));
    assert_eq!(source(s.router(), 7, "10.0.0.0/24"), Some(Source::Interface));
    assert_eq!(source(s.router(), 7, "2001:db8::/64"), Some(Source::Interface));
    assert_eq!(source(s.router(), 0, "10.0.0.0/24"), None);
    s.apply(Change::Route(s.route(7, "192.0.2.0/24", Some("10.0.0.2"))));
    s.apply(Change::Route(s.route(7, "192.0.2.0/24", None)));
    assert!(s.router().tables(FamilyId::V4).iter().any(|table| table.id == 7), "an interface is in it");
    s.apply(Change::Link(interface, LinkChange { table: Some(0), ..LinkChange::default() }));
    assert_eq!(s.router().interfaces.get(interface).unwrap().tables, (0, 0));
    assert_eq!(source(s.router(), 0, "10.0.0.0/24"), Some(Source::Interface));
    assert!(!s.router().tables(FamilyId::V4).iter().any(|table| table.id == 7), "it was made for the VRF");
}

#[test]
fn state_and_size_follow_while_there_is_a_counterpart() {
    let mut s = Scene::new();
    let interface = s.interface;
    let change = LinkChange { up: Some(false), mtu: Some(1400), table: None };
    s.apply(Change::Link(interface, change));
    let state = |s: &mut Scene| s.router().interfaces.get(interface).map(|i| (i.admin_up, i.mtu.l3)).unwrap();
    assert_eq!(state(&mut s), (false, 1400));
    s.router().remove_host_interface(interface);
    s.apply(Change::Link(interface, LinkChange { up: Some(true), mtu: Some(1300), table: None }));
    s.apply(Change::Address(interface, (ip("10.0.0.1"), 24), true));
    assert_eq!(state(&mut s), (false, 1400));
    assert!(s.router().interfaces.get(interface).unwrap().addresses.is_empty());
}
