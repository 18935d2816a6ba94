//! Cross-connects and VLANs, with kernel hosts that speak tags.

use crate::common;

use common::{BOUND, assert_buffers_are_back, errors, workers};
use quiver_testbed::{Host, LinkOptions, Offloads, Router, Scenario, Tag};

/// Two hosts in one network, the router's ports between them.
struct Wire {
    a: Host,
    middle: Host,
    b: Host,
}

impl Wire {
    fn new(offloads: Offloads) -> Self {
        let wire = Self { a: Host::new("a").unwrap(), middle: Host::new("router").unwrap(), b: Host::new("b").unwrap() };
        for (host, port, n) in [(&wire.a, "r0", 1), (&wire.b, "r1", 2)] {
            let options = LinkOptions { offloads, macs: [Some([2, 0, 0, 0, n, 2]), None], ..Default::default() };
            host.veth("eth0", &wire.middle, port, &options).unwrap();
            wire.middle.disable_ipv6(port).unwrap();
            host.address("eth0", &format!("192.0.2.{n}/24")).unwrap();
            host.address("eth0", &format!("2001:db8::{n}/64")).unwrap();
        }
        wire
    }

    fn router(&self, workers: u32, commands: &str) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&self.middle, &cpu).expect("router");
        let ports = "create host-interface name r0\ncreate host-interface name r1\n\
            set interface state host-r0 up\nset interface state host-r1 up\n";
        router.script(&format!("{ports}{commands}")).expect("configuration");
        router
    }

    fn assert_connected(&self) {
        assert!(self.a.reaches("192.0.2.2", 2).unwrap() && self.b.reaches("192.0.2.1", 2).unwrap(), "IPv4");
        assert!(self.a.reaches("2001:db8::2", 2).unwrap(), "IPv6");
    }
}

#[test]
fn a_cross_connect_is_a_wire() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", "iperf3"]) else { return };
    for offloads in [Offloads::On, Offloads::Off] {
        for workers in workers() {
            let wire = Wire::new(offloads);
            let both = "set interface l2 xconnect host-r0 host-r1\nset interface l2 xconnect host-r1 host-r0";
            let router = wire.router(*workers, both);
            wire.assert_connected();
            let _server = wire.b.background("iperf3 --server").unwrap();
            assert!(wire.b.wait_for_listener(5201, BOUND).unwrap());
            let out = wire.a.run("iperf3 --client 192.0.2.2 --time 1", BOUND).unwrap();
            assert!(out.success(), "{out}");
            router.cli("set interface l3 host-r0").unwrap();
            assert!(!wire.a.pings("192.0.2.2", 1).unwrap(), "the wire was cut");
            assert_buffers_are_back(&router);
        }
    }
}

#[test]
fn hosts_in_vlans_are_routed_by_sub_interfaces() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else { return };
    for (tags_a, tags_b, sub_a, sub_b) in [
        (vec![Tag::dot1q(10)], vec![Tag::dot1q(20)], "host-r0 10", "host-r1 20"),
        (
            vec![Tag::dot1ad(100), Tag::dot1q(10)],
            vec![Tag::dot1q(200), Tag::dot1q(20)],
            "host-r0 10 dot1ad 100 inner-dot1q 10 exact-match",
            "host-r1 20 dot1q 200 inner-dot1q 20 exact-match",
        ),
    ] {
        let wire = Wire::new(Offloads::Off);
        let commands = format!(
            "create sub-interfaces {sub_a}\ncreate sub-interfaces {sub_b}\n\
             set interface state host-r0.10 up\nset interface state host-r1.20 up\n\
             set interface ip address host-r0.10 10.1.0.1/24\nset interface ip address host-r1.20 10.2.0.1/24\n\
             set interface ip address host-r0.10 2001:db8:a::1/64\nset interface ip address host-r1.20 2001:db8:b::1/64"
        );
        let router = wire.router(1, &commands);
        let _tags = (wire.a.speak_vlan("eth0", &tags_a).unwrap(), wire.b.speak_vlan("eth0", &tags_b).unwrap());
        for (host, n, net6) in [(&wire.a, 1, 'a'), (&wire.b, 2, 'b')] {
            host.address("eth0", &format!("10.{n}.0.2/24")).unwrap();
            host.address("eth0", &format!("2001:db8:{net6}::2/64")).unwrap();
            host.route("10.0.0.0/8", &format!("10.{n}.0.1")).unwrap();
            host.route("2001:db8::/32", &format!("2001:db8:{net6}::1")).unwrap();
        }
        for to in ["10.1.0.1", "10.2.0.2", "2001:db8:b::2"] {
            // The router uses an IPv6 address only after duplicate address detection.
            common::eventually(&format!("{to} with {tags_a:?}"), BOUND, || wire.a.pings(to, 1).unwrap());
        }
        // The MTU is the packet's and a tag comes on top; a veth allows one tag beyond it, not two.
        let size = 1472 - 4 * (tags_a.len() - 1);
        let line = format!("ping -c 2 -W 60 -s {size} -M do 10.2.0.2");
        assert!(wire.a.run(&line, BOUND).unwrap().success(), "{size} bytes with {tags_a:?}");
        assert_buffers_are_back(&router);
    }
}

#[test]
fn frames_with_unknown_tags_are_counted() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let wire = Wire::new(Offloads::Off);
    let router = wire.router(1, "create sub-interfaces host-r0 10\nset interface state host-r0.10 up");
    let raw = wire.a.raw("eth0").unwrap();
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 1, 2, 0x81, 0, 0, 11, 8, 0]);
    frame.resize(64, 0xa5);
    for _ in 0..5 {
        raw.send(&frame).unwrap();
    }
    common::eventually("five frames counted", BOUND, || errors(&router, "ethernet-vlan", "unknown vlan") == 5);
    assert_buffers_are_back(&router);
}
