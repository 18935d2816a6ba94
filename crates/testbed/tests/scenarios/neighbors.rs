//! ARP and neighbour discovery against kernel hosts: learning, ageing, moves, announcements, router advertisements,
//! duplicate addresses.

use crate::common;

use std::time::Duration;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_testbed::{Host, Router, Scenario, TwoHosts, TwoHostsOptions};

/// Another link address for host b.
const NEW_MAC: &str = "02:00:00:00:02:77";

fn scene() -> TwoHosts {
    TwoHosts::new(TwoHostsOptions::default()).expect("two hosts")
}

fn neighbors(router: &Router) -> String {
    router.cli("show ip neighbors").expect("show ip neighbors")
}

fn assert_reachable(scene: &TwoHosts) {
    for to in [TwoHosts::B4, TwoHosts::B6] {
        // The router uses an IPv6 address when it has asked for a second whether somebody else has it (RFC 4862).
        eventually(&format!("an answer from {to}"), BOUND, || scene.a.pings(to, 1).expect("ping"));
    }
}

/// The kernel's entry for an address.
fn kernel_neighbor(host: &Host, address: &str) -> String {
    host.run(&format!("ip neighbor show {address}"), BOUND).expect("ip neighbor").stdout
}

#[test]
fn a_host_that_changes_its_link_address_is_found_again() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    scene.b.ip(&format!("link set eth0 down\nlink set eth0 address {NEW_MAC}\nlink set eth0 up")).expect("new address");
    // The kernel may have kept it.
    let _ = scene.b.address("eth0", "2001:db8:2::2/64");
    scene.b.route("default", "10.0.2.1").expect("route");
    // What the host says of itself on coming back, or the probes of what is in use, correct the entry.
    eventually("IPv4 is back", Duration::from_secs(60), || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
    assert!(neighbors(&router).contains(NEW_MAC), "{}", neighbors(&router));
    assert_buffers_are_back(&router);
}

#[test]
fn silent_neighbours_are_removed_at_their_age_and_learned_again() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    assert!(neighbors(&router).contains(TwoHosts::B4) && neighbors(&router).contains(TwoHosts::B6));
    for family in ["ip4", "ip6"] {
        router.cli(&format!("set ip neighbor-config {family} age 2")).expect("age");
    }
    scene.b.link_down("eth0").expect("down");
    // The far end of the pair loses its carrier with it; the neighbours are asked, do not answer, and go.
    eventually("both are gone", Duration::from_secs(60), || {
        !neighbors(&router).contains(TwoHosts::B4) && !neighbors(&router).contains(TwoHosts::B6)
    });
    scene.b.link_up("eth0").expect("up");
    let _ = scene.b.address("eth0", "2001:db8:2::2/64");
    scene.b.route("default", "10.0.2.1").expect("route");
    eventually("IPv4 is learned again", Duration::from_secs(30), || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
}

#[test]
fn an_address_that_the_router_takes_over_is_announced_to_hosts() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    // The host believes that somebody else has the address which the router then gets.
    scene.a.ip("neighbor replace 10.0.1.9 lladdr 02:00:00:00:01:99 dev eth0 nud stale").expect("entry");
    router.cli("set interface ip address host-r0 10.0.1.9/24").expect("address");
    let own = router.cli("show hardware-interfaces host-r0").expect("show hardware");
    let mac = own.split_whitespace().skip_while(|w| *w != "address").nth(1).expect("link address").to_owned();
    eventually("the announcement is taken", Duration::from_secs(20), || kernel_neighbor(&scene.a, "10.0.1.9").contains(&mac));
}

#[test]
fn hosts_configure_themselves_by_the_routers_advertisements() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    scene.a.accept_router_advertisements("eth0", true).expect("accept");
    let router = scene.start_router(1).expect("router");
    router.cli("ip6 nd host-r0 prefix 2001:db8:aa::/64 1000 500").expect("prefix");
    router.cli("set interface ip address host-r0 2001:db8:aa::1/64").expect("address");
    let addresses = || scene.a.run("ip -6 addr show dev eth0", BOUND).expect("addresses").stdout;
    eventually("an address of the prefix", Duration::from_secs(30), || addresses().contains("2001:db8:aa:"));
    let routes = || scene.a.run("ip -6 route show", BOUND).expect("routes").stdout;
    eventually("a default route by the router", Duration::from_secs(10), || routes().contains("proto ra"));
    // From an address that the host made itself.
    eventually("an answer", BOUND, || scene.a.pings("2001:db8:aa::1", 1).expect("ping"));
    let shown = router.cli("show ip6 interface host-r0").expect("show ip6 interface");
    assert!(shown.contains("prefix 2001:db8:aa::, length 64, valid 1000, preferred 500"), "{shown}");
    // RFC 4861, 6.2.5: a router that stops says so, and hosts give up their default route at once.
    router.stop().expect("stop");
    eventually("no default route by the router", Duration::from_secs(10), || !routes().contains("proto ra"));
}

#[test]
fn an_address_that_a_host_has_already_is_not_taken() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    router.cli(&format!("set interface ip address host-r0 {}/64", TwoHosts::A6)).expect("address");
    let shown = || router.cli("show ip6 interface host-r0").expect("show ip6 interface");
    eventually("the duplicate is found", Duration::from_secs(20), || shown().contains("duplicate"));
    assert!(scene.a.reaches(TwoHosts::B6, 5).expect("ping"), "the host keeps its address");
}
