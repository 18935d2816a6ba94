//! ARP and neighbour discovery against kernel hosts: learning, ageing, moves, announcements, router advertisements,
//! duplicate addresses.

use crate::common;

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
    eventually("IPv4 is back", BOUND, || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
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
    eventually("both are gone", BOUND, || !neighbors(&router).contains(TwoHosts::B4) && !neighbors(&router).contains(TwoHosts::B6));
    scene.b.link_up("eth0").expect("up");
    let _ = scene.b.address("eth0", "2001:db8:2::2/64");
    scene.b.route("default", "10.0.2.1").expect("route");
    eventually("IPv4 is learned again", BOUND, || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
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
    eventually("the announcement is taken", BOUND, || kernel_neighbor(&scene.a, "10.0.1.9").contains(&mac));
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
    eventually("an address of the prefix", BOUND, || addresses().contains("2001:db8:aa:"));
    let routes = || scene.a.run("ip -6 route show", BOUND).expect("routes").stdout;
    eventually("a default route by the router", BOUND, || routes().contains("proto ra"));
    // From an address that the host made itself.
    eventually("an answer", BOUND, || scene.a.pings("2001:db8:aa::1", 1).expect("ping"));
    let shown = router.cli("show ip6 interface host-r0").expect("show ip6 interface");
    assert!(shown.contains("prefix 2001:db8:aa::, length 64, valid 1000, preferred 500"), "{shown}");
    // RFC 4861, 6.2.5: a router that stops says so, and hosts give up their default route at once.
    router.stop().expect("stop");
    eventually("no default route by the router", BOUND, || !routes().contains("proto ra"));
}

#[test]
fn an_address_that_a_host_has_already_is_not_taken() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    router.cli(&format!("set interface ip address host-r0 {}/64", TwoHosts::A6)).expect("address");
    let shown = || router.cli("show ip6 interface host-r0").expect("show ip6 interface");
    eventually("the duplicate is found", BOUND, || shown().contains("duplicate"));
    assert!(scene.a.reaches(TwoHosts::B6, 5).expect("ping"), "the host keeps its address");
}

#[test]
fn arping_finds_hosts_and_corrects_what_they_believe() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    let mac = scene.a.run("cat /sys/class/net/eth0/address", BOUND).expect("address").stdout.trim().to_owned();
    for (address, what) in [(TwoHosts::A4, "ARP Replies"), (TwoHosts::A6, "ICMP6 neighbor advertisements")] {
        // It waits for answers for a second.
        eventually(&format!("three answers from {address}"), BOUND, || {
            let text = router.cli(&format!("arping {address} host-r0 repeat 3 interval 0.05"));
            text.is_ok_and(|text| text.ends_with(&format!("Received 3 {what} from {mac} ({address})\n")))
        });
    }
    let nobody = router.cli("arping 10.0.1.77 host-r0").unwrap_err().to_string();
    assert!(nobody.contains("Received 0 Reply"), "{nobody}");
    scene.a.ip("neighbor replace 10.0.1.1 lladdr 02:00:00:00:01:99 dev eth0 nud stale").expect("entry");
    router.cli("arping gratuitous 10.0.1.1 host-r0").expect("arping gratuitous");
    let own = router.cli("show hardware-interfaces host-r0").expect("show hardware");
    let own = own.split_whitespace().skip_while(|w| *w != "address").nth(1).expect("link address").to_owned();
    eventually("the announcement is taken", BOUND, || kernel_neighbor(&scene.a, "10.0.1.1").contains(&own));
    assert_buffers_are_back(&router);
}

/// BIRD as the router of a link.
const ADVERTISER: &str = "protocol device {}\nprotocol radv {\n  interface \"eth0\" {\n    max ra interval 5;\n    default lifetime 600;\n    \
                          prefix 2001:db8:cc::/64 { valid lifetime 7200; preferred lifetime 3600; };\n  };\n}\n";

#[test]
fn the_router_has_an_address_and_a_default_route_by_birds_advertisements() {
    let Some(_scenario) = Scenario::begin(&["bird", "ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    scene.b.ip("addr add 2001:db8:cc::2/64 dev eth0 nodad\naddr add 2001:db8:ffff::1/128 dev lo").expect("addresses");
    scene.b.ip("route add 2001:db8:1::/64 via 2001:db8:2::1").expect("route");
    router.cli("ip6 nd address autoconfig host-r1 default-route").expect("autoconfig");
    let mut bird = quiver_testbed::bird(&scene.b, &router.file("bird"), "radv", ADVERTISER).expect("bird");
    let shown = || router.cli("show interface address host-r1").expect("addresses");
    eventually("an address by the advertised prefix", BOUND, || shown().contains("2001:db8:cc:"));
    let own = shown().split_whitespace().find(|word| word.starts_with("2001:db8:cc:")).expect("address").to_owned();
    let own = own.split('/').next().expect("address").to_owned();
    eventually("host b reaches it", BOUND, || scene.b.pings(&own, 1).expect("ping"));
    // What no other route leads to goes to the advertising router, also from the other side.
    eventually("host a by the default route", BOUND, || scene.a.pings("2001:db8:ffff::1", 1).expect("ping"));
    // BIRD says that it is no router any more when it is told to end.
    bird.signal(libc::SIGTERM).expect("signal");
    let route = || router.cli("show ip6 fib ::/0").expect("route");
    eventually("no default route", BOUND, || !route().contains("autoconfig"));
    assert_buffers_are_back(&router);
}

#[test]
fn a_host_on_another_link_is_reached_as_if_it_were_here() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    // An address of host a's prefix, behind the other interface.
    scene.b.ip("addr add 2001:db8:1::77/128 dev eth0 nodad").expect("address");
    assert!(!scene.a.pings("2001:db8:1::77", 1).expect("ping"), "nobody answers for it");
    router.cli("set ip6 nd proxy host-r1 2001:db8:1::77").expect("proxy");
    scene.a.ip("neighbor flush dev eth0").expect("flush");
    eventually("an answer", BOUND, || scene.a.pings("2001:db8:1::77", 1).expect("ping"));
    let own = router.cli("show hardware-interfaces host-r0").expect("show hardware");
    let own = own.split_whitespace().skip_while(|w| *w != "address").nth(1).expect("link address").to_owned();
    assert!(kernel_neighbor(&scene.a, "2001:db8:1::77").contains(&own), "by the router's own address");
    assert_buffers_are_back(&router);
}
