//! Packets, commands and messages, in a router with made-up interfaces: `x0` with 10.0.0.1/24 and 2001:db8::1/64 leads to the peers.

mod messages;
mod paths;

use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac, router_mac};
use quiver_wire::build::Packet;

use crate::header;

fn bare() -> Harness {
    Harness::with_plugin(&crate::plugin(), 0, 3)
}

fn scene() -> Scene {
    let mut s = Scene { h: bare() };
    let x0 = s.interface("x0");
    s.h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
    s.h.router.add_address(x0, "2001:db8::1".parse().unwrap(), 64).unwrap();
    s.run(&format!("set ip neighbor x0 10.0.0.2 {}", host_mac(0)));
    s.run(&format!("set ip neighbor x0 2001:db8::2 {}", host_mac(0)));
    s.h.run();
    s
}

/// `x1` cross-connected with a tunnel made by these words.
fn connected(words: &str) -> Scene {
    let mut s = scene();
    s.run(&format!("create vxlan tunnel {words}"));
    s.run("set interface l2 xconnect x1 vxlan_tunnel0");
    s.run("set interface l2 xconnect vxlan_tunnel0 x1");
    s
}

/// A frame between two hosts of the segment.
fn inner(port: u16, len: usize) -> Vec<u8> {
    Packet::ethernet(host_mac(7), host_mac(8)).ipv4([1, 2, 3, 4], [4, 3, 2, 1]).udp(port, 9).payload(&vec![0xa5; len]).build()
}

/// A frame as a peer sends it.
fn outer4(src: [u8; 4], dst: [u8; 4], port: u16, vni: u32, frame: &[u8]) -> Vec<u8> {
    let content = [&header::emit(vni)[..], frame].concat();
    Packet::ethernet(host_mac(0), router_mac(0)).ipv4(src, dst).udp(50_000, port).payload(&content).build()
}

#[test]
fn the_configuration_makes_the_same_tunnels_again() {
    let lines = "create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13
create vxlan tunnel src 2001:db8::1 dst 2001:db8::2 vni 7 instance 4 encap-vrf-id 9 src_port 8472 dst_port 8473
create vxlan tunnel src 10.0.0.1 group 239.1.1.1 x0 vni 13
set interface state vxlan_tunnel4 down";
    assert_rebuilt(&[crate::ops::register], bare, lines, &["show vxlan tunnel", "show ip mfib"]);
}

#[test]
fn the_table_of_a_tunnel_stays_until_the_last_tunnel_has_gone() {
    let mut s = scene();
    let has = |s: &Scene| s.h.router.fib_of_table(quiver_net::ip::FamilyId::V4, 9).is_some();
    for made in [true, false] {
        if made {
            s.run("ip table add 9");
        }
        for vni in [1, 2] {
            s.run(&format!("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni {vni} encap-vrf-id 9"));
        }
        if made {
            s.run("ip table del 9");
        }
        s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 1 encap-vrf-id 9 del");
        assert!(has(&s));
        s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 2 encap-vrf-id 9 del");
        assert!(!has(&s), "made by the user: {made}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut s = scene();
    s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13");
    for (words, why) in [
        ("src 10.0.0.1 vni 1", "dst address not specified"),
        ("src 10.0.0.1 dst 2001:db8::2 vni 1", "both IPv4 and IPv6"),
        ("src 10.0.0.1 dst 10.0.0.1 vni 1", "identical"),
        ("src 10.0.0.1 dst 239.1.1.1 vni 1", "group"),
        ("src 10.0.0.1 group 10.0.0.2 x0 vni 1", "not multicast"),
        ("src 10.0.0.1 group 224.0.0.5 x0 vni 1", "224.0.0.5"),
        ("src 239.1.1.1 dst 10.0.0.2 vni 1", "address of a host"),
        ("src 10.0.0.1 dst 10.0.0.2 vni 16777216", "vni"),
        ("src 10.0.0.1 dst 10.0.0.2 vni 13", "exists"),
        ("src 10.0.0.1 dst 10.0.0.2 vni 14 instance 0", "in use"),
        ("src 10.0.0.1 dst 10.0.0.2 vni 14 del", "does not exist"),
        ("src 10.0.0.1 dst 10.0.0.2 vni 14 decap-next node ip4-input", "expected `l2'"),
    ] {
        let error = s.error(&format!("create vxlan tunnel {words}"));
        assert!(error.contains(why), "{words}: {error}");
    }
    assert_eq!(s.h.router.udp_ports(quiver_net::ip::FamilyId::V4), [(4789, "vxlan4-input".to_owned())]);
    let shown = "[0] instance 0 src 10.0.0.1 dst 10.0.0.2 src_port 4789 dst_port 4789 vni 13 fib-idx 0 sw-if-idx 4\n";
    assert_eq!(s.run("show vxlan tunnel"), shown);
    s.run("create vxlan tunnel src 10.0.0.1 dst 10.0.0.2 vni 13 del");
    assert_eq!(s.run("show vxlan tunnel"), "No vxlan tunnels configured...\n");
    assert!(s.h.router.udp_ports(quiver_net::ip::FamilyId::V4).is_empty(), "the port is given up");
    s.h.assert_buffers_held(0);
}
