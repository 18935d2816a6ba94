//! One sender on the wire floods every table that a sender can fill, while an honest host on the same wire and one on another
//! keep their entries and get every ping through.
//!
//! The flood is paced by counts: after each chunk, which fits into the interface's ring, the hosts' pings show that the router has
//! taken it. So what a ping could lose it would lose to a table, not to a full ring.

use std::net::Ipv4Addr;

use crate::common::{BOUND, errors, eventually};
use quiver_testbed::{Host, LinkOptions, RawPort, Router, Scenario};
use quiver_wire::MacAddr;
use quiver_wire::arp::ArpHeader;
use quiver_wire::build::Packet;

/// Frames between two rounds of pings.
const CHUNK: u32 = 300;
const CHUNKS: u32 = 8;

/// Host a (and the flooder) behind r0, host b behind r1: 10.1.0.0/16 and 10.2.0.0/16, 2001:db8:1::/64 and 2001:db8:2::/64.
struct Wire {
    a: Host,
    b: Host,
    middle: Host,
}

const ROUTER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);

fn wire() -> Wire {
    let wire = Wire { a: Host::new("a").unwrap(), b: Host::new("b").unwrap(), middle: Host::new("router").unwrap() };
    for (n, host) in [(1, &wire.a), (2, &wire.b)] {
        let port = format!("r{}", n - 1);
        let options = LinkOptions { macs: [Some([2, 0, 0, 0, n, 2]), Some([2, 0, 0, 0, n, 1])], ..Default::default() };
        host.veth("eth0", &wire.middle, &port, &options).unwrap();
        wire.middle.disable_ipv6(&port).unwrap();
    }
    wire
}

/// Each of these addresses answers a ping of `size` bytes.
fn assert_all_answered(from: &Host, to: &[&str], size: u32, when: &str) {
    for address in to {
        let out = from.run(&format!("ping -c 1 -W 60 -s {size} {address}"), BOUND).unwrap();
        assert!(out.success(), "{when}: {} to {address}, {size} bytes: {out}", from.name());
    }
}

/// Floods in chunks; after each, both hosts reach each other and the router, in small packets and in big ones.
fn flood(wire: &Wire, what: &str, to: [&[&str]; 2], mut frame: impl FnMut(u32) -> Vec<u8>) {
    let port: RawPort = wire.a.raw("eth0").unwrap();
    for chunk in 0..CHUNKS {
        for n in chunk * CHUNK..(chunk + 1) * CHUNK {
            port.send(&frame(n)).unwrap();
        }
        for size in [56, 5000] {
            assert_all_answered(&wire.a, to[0], size, what);
            assert_all_answered(&wire.b, to[1], size, what);
        }
    }
}

fn routed(wire: &Wire) -> Router {
    for (n, host) in [(1, &wire.a), (2, &wire.b)] {
        host.address("eth0", &format!("10.{n}.0.2/16")).unwrap();
        host.address("eth0", &format!("2001:db8:{n}::2/64")).unwrap();
        host.route("default", &format!("10.{n}.0.1")).unwrap();
        host.route("default", &format!("2001:db8:{n}::1")).unwrap();
    }
    let router = Router::start(&wire.middle, "cpu { workers 1 }").expect("router");
    let commands = "
        create host-interface name r0 hw-addr 02:00:00:00:01:01
        create host-interface name r1 hw-addr 02:00:00:00:02:01
        set interface state host-r0 up
        set interface state host-r1 up
        set interface ip address host-r0 10.1.0.1/16
        set interface ip address host-r1 10.2.0.1/16
        set interface ip address host-r0 2001:db8:1::1/64
        set interface ip address host-r1 2001:db8:2::1/64
        set ip neighbor-config ip4 interface-limit 200
        set ip neighbor-config ip6 interface-limit 200
        set ip4-full-reassembly max-reassemblies 100 max-per-source 50
        set ip6-full-reassembly max-reassemblies 100 max-per-source 50";
    router.script(commands).expect("commands");
    for (host, other) in [(&wire.a, 2), (&wire.b, 1)] {
        // An IPv6 address is used when it has been asked for a second whether somebody else has it.
        for address in [format!("10.{other}.0.2"), format!("2001:db8:{other}::2")] {
            eventually("the hosts reach each other", BOUND, || host.pings(&address, 1).expect("ping"));
        }
    }
    router
}

/// A sender that does not exist, on the wire of host a.
fn nobody(n: u32) -> (MacAddr, Ipv4Addr) {
    let [_, _, c, d] = n.to_be_bytes();
    (MacAddr([2, 0xee, 0, 0, c, d]), Ipv4Addr::new(10, 1, 100 + c, d))
}

#[test]
fn a_flood_fills_no_table_of_a_router_for_others() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let wire = wire();
    let router = routed(&wire);
    let a: &[&str] = &["10.1.0.1", "10.2.0.2", "2001:db8:1::1", "2001:db8:2::2"];
    let b: &[&str] = &["10.2.0.1", "10.1.0.2", "2001:db8:2::1", "2001:db8:1::2"];
    flood(&wire, "ARP senders", [a, b], |n| {
        let sender = nobody(n);
        Packet::ethernet(sender.0, MacAddr::BROADCAST).arp(ArpHeader::request(sender, [10, 1, 0, 1].into())).build()
    });
    flood(&wire, "neighbor solicitations", [a, b], |n| {
        let (mac, _) = nobody(n);
        let source = format!("2001:db8:1::ee:{n:x}").parse::<std::net::Ipv6Addr>().unwrap();
        let target = "2001:db8:1::1".parse::<std::net::Ipv6Addr>().unwrap();
        let option = quiver_wire::ndp::NdpOption::SourceLinkAddress(mac);
        Packet::ethernet(mac, ROUTER_MAC).ipv6(source, target).neighbor_solicitation(target).ndp_option(option).build()
    });
    flood(&wire, "a scan", [a, b], |n| {
        let [_, _, c, d] = n.to_be_bytes();
        let source = nobody(1);
        let to = Packet::ethernet(source.0, ROUTER_MAC).ipv4(source.1, [10, 2, 100 + c, d]);
        to.udp(1, 2).payload_len(40).build()
    });
    for family in [4, 6] {
        flood(&wire, "first fragments", [a, b], |n| {
            let (mac, source) = nobody(1);
            let to = Packet::ethernet(mac, ROUTER_MAC);
            let to = if family == 4 {
                to.ipv4(source, [10, 1, 0, 1])
            } else {
                let source = format!("2001:db8:77::{n:x}").parse::<std::net::Ipv6Addr>().unwrap();
                to.ipv6(source, "2001:db8:1::1".parse::<std::net::Ipv6Addr>().unwrap())
            };
            to.fragment(n, 0, true).next(17).payload_len(64).build()
        });
    }
    let neighbors = router.cli("show ip neighbors").unwrap();
    for address in ["10.1.0.2 ", "10.2.0.2 ", "2001:db8:1::2 ", "2001:db8:2::2 "] {
        assert!(neighbors.contains(address), "{address} in {neighbors}");
    }
    let config = router.cli("show ip neighbor-config").unwrap();
    // How many of the flood's senders main has heard of depends on its time: most reports may be lost. None goes over the limit.
    let most = |line: &str| line.trim().strip_prefix("fullest interface: ")?.rsplit_once(' ')?.1.parse::<u32>().ok();
    let most: Vec<u32> = config.lines().filter_map(most).collect();
    assert!(most.len() == 2 && most.iter().all(|n| (1..=200).contains(n)), "{config}");
    for family in [4, 6] {
        let node = format!("ip{family}-local-reassembly-input");
        assert!(errors(&router, &node, "reassemblies limit of one source") > 0, "{}", router.cli("show errors").unwrap());
    }
}

#[test]
fn a_flood_of_source_addresses_leaves_a_bridge_to_others() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let wire = wire();
    for (n, host) in [(1, &wire.a), (2, &wire.b)] {
        host.address("eth0", &format!("10.3.0.{n}/16")).unwrap();
    }
    let router = Router::start(&wire.middle, "cpu { workers 1 }").expect("router");
    let commands = "
        create host-interface name r0
        create host-interface name r1
        create loopback interface
        set interface state host-r0 up
        set interface state host-r1 up
        set interface state loop0 up
        set interface l2 bridge loop0 5 bvi
        set interface l2 bridge host-r0 5
        set interface l2 bridge host-r1 5
        set interface l2 learn-limit host-r0 100
        set interface mtu packet 1500 loop0
        set interface ip address loop0 10.3.0.9/16";
    router.script(commands).expect("commands");
    assert_all_answered(&wire.a, &["10.3.0.2", "10.3.0.9"], 56, "before");
    assert_all_answered(&wire.b, &["10.3.0.1", "10.3.0.9"], 56, "before");
    flood(&wire, "source addresses", [&["10.3.0.2", "10.3.0.9"], &["10.3.0.1", "10.3.0.9"]], |n| {
        // To nobody, so that it is flooded, and the hosts' kernels have nothing to answer.
        Packet::ethernet(nobody(n).0, MacAddr([2, 0xdd, 0, 0, 0, 1])).ipv4([10, 3, 9, 9], [10, 3, 9, 8]).udp(1, 2).build()
    });
    let fib = router.cli("show l2fib bd_id 5").unwrap();
    for mac in ["02:00:00:00:01:02", "02:00:00:00:02:02"] {
        assert!(fib.contains(mac), "{mac} in {fib}");
    }
    let behind = fib.lines().filter(|l| l.contains("host-r0")).count();
    assert!(behind <= 100, "{behind} learned");
    assert!(errors(&router, "l2-bridge", "not learned due to limit") > 0, "{}", router.cli("show errors").unwrap());
    let domain = router.cli("show bridge-domain 5 detail").unwrap();
    assert!(domain.lines().any(|l| l.contains("host-r0") && l.contains(" 100 ")), "{domain}");
}
