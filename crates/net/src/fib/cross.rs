//! IPv4 by IPv6 neighbours (RFC 8950), looked at from outside.

use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::build::Packet;

use super::*;
use crate::testing::{Harness, host_mac, router_mac};

const NEXT_HOP: &str = "2001:db8::2";

/// Interface 0 with IPv4 and a source of packets, interface 1 with IPv6 alone, and a route out of it.
fn scene() -> (Harness, IfIndex, IfIndex) {
    let mut h = Harness::new();
    // Addresses can be used at once.
    h.router.set_dad_config(crate::nd::DadConfig { transmits: 0, ..Default::default() });
    let (x0, x1) = (h.interface(0), h.interface(1));
    h.router.add_address(x0, "10.0.0.1".parse().unwrap(), 24).unwrap();
    h.router.add_address(x1, "2001:db8::1".parse().unwrap(), 64).unwrap();
    route(&mut h, x1);
    h.run();
    (h, x0, x1)
}

fn route(h: &mut Harness, x1: IfIndex) {
    let path = Path::neighbor(x1, NEXT_HOP.parse().unwrap());
    h.router.replace_route(0, "10.9.0.0/16".parse().unwrap(), Source::Cli, vec![path]).unwrap();
}

/// A packet that comes in on x0: what leaves on x1.
fn sent(h: &mut Harness, x0: IfIndex, x1: IfIndex) -> Vec<Vec<u8>> {
    let frame = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 9], [10, 9, 1, 1]).udp(1, 2).payload_len(18).build();
    h.exchange(x0, &frame).into_iter().filter(|(interface, _)| *interface == x1).map(|(_, frame)| frame).collect()
}

fn set_neighbor(h: &mut Harness, x1: IfIndex) {
    let address: IpAddr = NEXT_HOP.parse().unwrap();
    h.router.add_neighbor(x1, address, host_mac(1), true, false).unwrap();
}

fn assert_forwarded(h: &mut Harness, x0: IfIndex, x1: IfIndex) {
    let frames = sent(h, x0, x1);
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((&frame[..6], &frame[6..12], &frame[12..14]), (&host_mac(1).0[..], &router_mac(1).0[..], &[8, 0][..]));
    assert_eq!(frame[30..34], [10, 9, 1, 1]);
}

#[test]
fn packets_go_to_the_neighbour_with_the_type_of_ipv4() {
    let (mut h, x0, x1) = scene();
    set_neighbor(&mut h, x1);
    assert_forwarded(&mut h, x0, x1);
    // In the other order, too.
    h.router.remove_route(0, "10.9.0.0/16".parse().unwrap(), Source::Cli, None).unwrap();
    assert!(sent(&mut h, x0, x1).is_empty());
    route(&mut h, x1);
    assert_forwarded(&mut h, x0, x1);
    let before = h.router.fib.adjacencies.iter().count();
    h.router.remove_route(0, "10.9.0.0/16".parse().unwrap(), Source::Cli, None).unwrap();
    assert_eq!(h.router.fib.adjacencies.iter().count(), before - 1, "its adjacency goes with the last route");
    h.assert_buffers_held(0);
}

#[test]
fn a_neighbour_that_is_not_known_is_solicited_and_one_that_is_lost_too() {
    let (mut h, x0, x1) = scene();
    let solicited = |frames: &[Vec<u8>]| frames.len() == 1 && frames[0][12..14] == [0x86, 0xdd] && frames[0][54] == 135;
    assert!(solicited(&sent(&mut h, x0, x1)), "by neighbour discovery");
    assert!(sent(&mut h, x0, x1).is_empty(), "once");
    set_neighbor(&mut h, x1);
    assert_forwarded(&mut h, x0, x1);
    h.assert_buffers_held(0);
    // One that nobody has asked for yet: questions are a second apart.
    let (mut h, x0, x1) = scene();
    set_neighbor(&mut h, x1);
    assert_forwarded(&mut h, x0, x1);
    h.router.remove_neighbor(x1, NEXT_HOP.parse().unwrap()).unwrap();
    let frames = sent(&mut h, x0, x1);
    assert!(solicited(&frames), "{frames:?} {:?}", h.counts());
    h.assert_buffers_held(0);
}

#[test]
fn a_link_that_goes_down_takes_the_path_and_ipv6_has_no_way_by_ipv4() {
    let (mut h, x0, x1) = scene();
    set_neighbor(&mut h, x1);
    h.router.set_interface_up(x1, false).unwrap();
    assert!(sent(&mut h, x0, x1).is_empty());
    h.router.set_interface_up(x1, true).unwrap();
    let path = Path::neighbor(x1, "10.0.0.9".parse().unwrap());
    let refused = h.router.replace_route(0, "2001:db8:9::/48".parse().unwrap(), Source::Cli, vec![path]);
    assert!(matches!(refused, Err(FibError::Family { .. })), "{refused:?}");
    let path = Path::recursive(NEXT_HOP.parse().unwrap());
    let refused = h.router.replace_route(0, "10.8.0.0/16".parse().unwrap(), Source::Cli, vec![path]);
    assert!(matches!(refused, Err(FibError::Family { .. })), "without an interface: {refused:?}");
}
