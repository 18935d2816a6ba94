//! Bridge domains with kernel hosts as stations, and the kernel's own bridge as a neighbour.

use crate::common;

use common::{BOUND, assert_buffers_are_back, assert_router_pings, eventually, workers};
use quiver_testbed::{Host, LinkOptions, Offloads, Router, Scenario, Tag};

/// So many hosts in 192.0.2.0/24, each on a port of its own: host n has address 192.0.2.n behind port r(n-1).
struct Lan {
    hosts: Vec<Host>,
    middle: Host,
}

impl Lan {
    fn new(hosts: u8, offloads: Offloads) -> Self {
        let lan = Self {
            hosts: (1..=hosts).map(|n| Host::new(&format!("h{n}")).unwrap()).collect(),
            middle: Host::new("router").unwrap(),
        };
        for (n, host) in (1_u8..).zip(&lan.hosts) {
            let options = LinkOptions { offloads, macs: [Some([2, 0, 0, 0, n, 2]), None], ..Default::default() };
            let port = format!("r{}", n - 1);
            host.veth("eth0", &lan.middle, &port, &options).unwrap();
            lan.middle.disable_ipv6(&port).unwrap();
            host.address("eth0", &format!("192.0.2.{n}/24")).unwrap();
            host.address("eth0", &format!("2001:db8::{n}/64")).unwrap();
        }
        lan
    }

    /// A router with all ports up, and these commands after that.
    fn router(&self, workers: u32, commands: &str) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&self.middle, &cpu).expect("router");
        for n in 0..self.hosts.len() {
            router.script(&format!("create host-interface name r{n}\nset interface state host-r{n} up")).expect("port");
        }
        router.script(commands).expect("configuration");
        router
    }
}

fn bridge_all(ports: usize) -> String {
    (0..ports).map(|n| format!("set interface l2 bridge host-r{n} 10\n")).collect()
}

#[test]
fn hosts_of_a_domain_reach_each_other_and_only_each_other() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", "iperf3"]) else { return };
    for offloads in [Offloads::On, Offloads::Off] {
        for workers in workers() {
            let lan = Lan::new(4, offloads);
            let router = lan.router(*workers, &format!("{}set interface l2 bridge host-r3 20", bridge_all(3)));
            for (from, to) in [(0, 2), (1, 3), (2, 1)] {
                assert!(lan.hosts[from].reaches(&format!("192.0.2.{to}"), 3).unwrap(), "{from} to {to}");
                assert!(lan.hosts[from].reaches(&format!("2001:db8::{to}"), 3).unwrap(), "{from} to {to}, IPv6");
            }
            assert!(!lan.hosts[3].pings("192.0.2.1", 2).unwrap(), "another domain");
            let _server = lan.hosts[1].background("iperf3 --server").unwrap();
            assert!(lan.hosts[1].wait_for_listener(5201, BOUND).unwrap());
            let out = lan.hosts[0].run("iperf3 --client 192.0.2.2 --time 1", BOUND).unwrap();
            assert!(out.success(), "{out}");
            let fib = router.cli("show l2fib bd_id 10").unwrap();
            for (n, port) in [(1, "host-r0"), (2, "host-r1"), (3, "host-r2")] {
                let line = fib.lines().find(|l| l.contains(&format!("02:00:00:00:0{n}:02"))).unwrap_or_else(|| panic!("{fib}"));
                assert!(line.contains(port), "{line}");
            }
            assert_buffers_are_back(&router);
        }
    }
}

#[test]
fn a_host_that_moves_is_found_at_its_new_port() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let lan = Lan::new(3, Offloads::Off);
    let router = lan.router(1, &bridge_all(3));
    assert!(lan.hosts[0].reaches("192.0.2.3", 3).unwrap());
    // The third host goes away; the second takes over its addresses, as a virtual machine that was moved.
    lan.hosts[2].ip("link set eth0 down").unwrap();
    lan.hosts[1].ip("link set eth0 address 02:00:00:00:03:02\naddress add 192.0.2.3/24 dev eth0").unwrap();
    eventually("the moved host answers", BOUND, || {
        let _ = lan.hosts[1].pings("192.0.2.1", 1);
        lan.hosts[0].pings("192.0.2.3", 1).unwrap()
    });
    let line = router.cli("show l2fib bd_id 10").unwrap();
    assert!(line.lines().any(|l| l.contains("02:00:00:00:03:02") && l.contains("host-r1")), "{line}");
}

#[test]
fn a_bvi_routes_between_a_domain_and_a_network() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let lan = Lan::new(3, Offloads::On);
        let commands = format!(
            "{}create loopback interface\nset interface l2 bridge loop0 10 bvi\nset interface state loop0 up\n\
             set interface ip address loop0 192.0.2.254/24\nset interface ip address host-r2 198.51.100.254/24",
            bridge_all(2)
        );
        let router = lan.router(*workers, &commands);
        lan.hosts[2].ip("address flush dev eth0").unwrap();
        lan.hosts[2].address("eth0", "198.51.100.3/24").unwrap();
        lan.hosts[2].route("192.0.2.0/24", "198.51.100.254").unwrap();
        lan.hosts[0].route("198.51.100.0/24", "192.0.2.254").unwrap();
        assert!(lan.hosts[0].reaches("192.0.2.2", 3).unwrap(), "within the domain");
        assert!(lan.hosts[0].reaches("192.0.2.254", 3).unwrap(), "the router itself");
        assert!(lan.hosts[0].reaches("198.51.100.3", 3).unwrap(), "through the router");
        assert_router_pings(&router, "192.0.2.1");
        let _server = lan.hosts[0].background("iperf3 --server").unwrap();
        assert!(lan.hosts[0].wait_for_listener(5201, BOUND).unwrap());
        let out = lan.hosts[2].run("iperf3 --client 192.0.2.1 --time 1", BOUND).unwrap();
        assert!(out.success(), "{out}");
        assert_buffers_are_back(&router);
    }
}

#[test]
fn vlans_are_one_network_after_their_tags_are_taken_off() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else { return };
    let lan = Lan::new(3, Offloads::Off);
    let router = lan.router(
        1,
        "create sub-interfaces host-r0 10\ncreate sub-interfaces host-r1 20\n\
         set interface state host-r0.10 up\nset interface state host-r1.20 up\n\
         set interface l2 bridge host-r0.10 10\nset interface l2 bridge host-r1.20 10\nset interface l2 bridge host-r2 10\n\
         set interface l2 tag-rewrite host-r0.10 pop 1\nset interface l2 tag-rewrite host-r1.20 pop 1",
    );
    let _tags =
        (lan.hosts[0].speak_vlan("eth0", &[Tag::dot1q(10)]).unwrap(), lan.hosts[1].speak_vlan("eth0", &[Tag::dot1q(20)]).unwrap());
    for (from, to) in [(0, 2), (0, 3), (1, 3), (2, 1)] {
        assert!(lan.hosts[from].reaches(&format!("192.0.2.{to}"), 3).unwrap(), "{from} to {to}");
    }
    router.cli("set interface l2 tag-rewrite host-r1.20 translate 1-1 dot1q 77").unwrap();
    assert!(!lan.hosts[2].pings("192.0.2.2", 2).unwrap(), "behind a tag that nobody speaks");
    assert_buffers_are_back(&router);
}

#[test]
fn the_kernels_bridge_and_ours_are_one_network() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    // Hosts 1 and 2 on our bridge; behind port r2 the kernel's bridge with one more host.
    let lan = Lan::new(3, Offloads::On);
    let far = Host::new("far").unwrap();
    let bridge = &lan.hosts[2];
    far.veth("eth0", bridge, "p1", &LinkOptions::default()).unwrap();
    far.address("eth0", "192.0.2.9/24").unwrap();
    bridge.ip("address flush dev eth0\nlink add br0 type bridge\nlink set eth0 master br0\nlink set p1 master br0").unwrap();
    bridge.ip("link set br0 up\nlink set p1 up\nlink set eth0 up").unwrap();
    let router = lan.router(1, &bridge_all(3));
    for host in &lan.hosts[..2] {
        assert!(host.reaches("192.0.2.9", 10).unwrap(), "{}", host.name());
    }
    assert!(far.reaches("192.0.2.1", 3).unwrap());
    assert_buffers_are_back(&router);
}

#[test]
fn a_table_of_addresses_spares_the_domain_its_questions() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let lan = Lan::new(3, Offloads::Off);
    let commands = format!(
        "{}set bridge-domain arp term 10\nset bridge-domain arp entry 10 192.0.2.2 02:00:00:00:02:02\n\
         set bridge-domain arp entry 10 2001:db8::2 02:00:00:00:02:02",
        bridge_all(3)
    );
    let router = lan.router(1, &commands);
    assert!(lan.hosts[0].reaches("192.0.2.2", 3).unwrap());
    assert!(lan.hosts[0].reaches("2001:db8::2", 3).unwrap());
    assert!(common::errors(&router, "l2-arp-term", "ARP replies sent") >= 1);
    assert!(common::errors(&router, "l2-arp-term", "neighbor advertisements sent") >= 1);
    let neighbors = lan.hosts[2].run("ip neigh show", BOUND).unwrap().stdout;
    assert!(!neighbors.contains("192.0.2.1 "), "nobody has asked the third host: {neighbors}");
}
