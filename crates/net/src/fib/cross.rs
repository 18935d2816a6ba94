//! IPv4 by IPv6 neighbours (RFC 8950) and IPv6 by IPv4 ones, looked at from outside.

use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::build::Packet;

use super::*;
use crate::testing::{Harness, host_mac, router_mac};

const NEXT_HOP: &str = "2001:db8::2";

/// Interface 0 with IPv4 and a source of packets, interface 1 with IPv6 alone, and a route out of it.
fn scene() -> (Harness, IfIndex, IfIndex) {
    let mut h = Harness::new().silent();
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
fn a_link_that_goes_down_takes_the_path() {
    let (mut h, x0, x1) = scene();
    set_neighbor(&mut h, x1);
    h.router.set_interface_up(x1, false).unwrap();
    assert!(sent(&mut h, x0, x1).is_empty());
    h.router.set_interface_up(x1, true).unwrap();
    set_neighbor(&mut h, x1);
    assert_forwarded(&mut h, x0, x1);
}

/// As [`sent`], for an IPv6 packet.
fn sent6(h: &mut Harness, x0: IfIndex, x1: IfIndex, to: &str) -> Vec<Vec<u8>> {
    let to: std::net::Ipv6Addr = to.parse().unwrap();
    let from: std::net::Ipv6Addr = "2001:db8:1::9".parse().unwrap();
    let frame = Packet::ethernet(host_mac(0), router_mac(0)).ipv6(from, to).udp(1, 2).payload_len(18).build();
    h.exchange(x0, &frame).into_iter().filter(|(interface, _)| *interface == x1).map(|(_, frame)| frame).collect()
}

#[test]
fn ipv6_goes_by_an_ipv4_neighbour_which_arp_asks_for() {
    let (mut h, x0, x1) = scene();
    h.router.add_address(x0, "2001:db8:1::1".parse().unwrap(), 64).unwrap();
    h.router.add_address(x1, "10.0.1.1".parse().unwrap(), 24).unwrap();
    h.run();
    let next_hop: IpAddr = "10.0.1.2".parse().unwrap();
    let set = |h: &mut Harness, prefix: &str, path| {
        h.router.replace_route(0, prefix.parse().unwrap(), Source::Cli, vec![path]).unwrap();
    };
    set(&mut h, "2001:db8:9::/48", Path::neighbor(x1, next_hop));
    let frames = sent6(&mut h, x0, x1, "2001:db8:9::9");
    assert!(frames.len() == 1 && frames[0][12..14] == [8, 6], "{frames:?}");
    h.router.add_neighbor(x1, next_hop, host_mac(1), true, false).unwrap();
    let forwarded = |h: &mut Harness, to| {
        let frames = sent6(h, x0, x1, to);
        frames.len() == 1 && frames[0][..6] == host_mac(1).0 && frames[0][12..14] == [0x86, 0xdd]
    };
    assert!(forwarded(&mut h, "2001:db8:9::9"));
    // By a next hop that the table of the other family leads to: a link's, another route's, and one that comes later.
    set(&mut h, "2001:db8:a::/48", Path::recursive(next_hop));
    set(&mut h, "10.7.0.0/16", Path::recursive("2001:db8:9::7".parse().unwrap()));
    set(&mut h, "2001:db8:b::/48", Path::recursive("10.7.0.7".parse().unwrap()));
    set(&mut h, "2001:db8:c::/48", Path::recursive("10.6.0.6".parse().unwrap()));
    assert_eq!(["2001:db8:a::1", "2001:db8:b::1", "2001:db8:c::1"].map(|to| forwarded(&mut h, to)), [true, true, false]);
    set(&mut h, "10.6.0.0/16", Path::recursive(next_hop));
    assert!(forwarded(&mut h, "2001:db8:c::1"));
    // The neighbour is lost and found, and what the next hop is reached by goes.
    h.router.remove_neighbor(x1, next_hop).unwrap();
    assert!(!forwarded(&mut h, "2001:db8:b::1"));
    h.router.add_neighbor(x1, next_hop, host_mac(1), true, false).unwrap();
    assert!(forwarded(&mut h, "2001:db8:b::1"));
    h.router.remove_route(0, "2001:db8:9::/48".parse().unwrap(), Source::Cli, None).unwrap();
    assert!(!forwarded(&mut h, "2001:db8:b::1"));
    // A loop through both families is none of packets.
    set(&mut h, "10.6.0.0/16", Path::recursive("2001:db8:c::6".parse().unwrap()));
    assert!(!forwarded(&mut h, "2001:db8:c::1"));
    h.assert_buffers_held(0);
}

#[test]
fn a_table_that_next_hops_of_the_other_family_are_looked_up_in_stays() {
    let (mut h, ..) = scene();
    h.router.add_table(FamilyId::V6, Some(7), None).unwrap();
    let path = Path::new(Hop::Recursive { table: 7, address: NEXT_HOP.parse().unwrap(), via: ResolveVia::Any });
    let prefix = "10.8.0.0/16".parse().unwrap();
    h.router.replace_route(0, prefix, Source::Cli, vec![path]).unwrap();
    assert!(matches!(h.router.remove_table(FamilyId::V6, 7), Err(FibError::TableInUse { .. })));
    let missing = Path::new(Hop::Recursive { table: 8, address: NEXT_HOP.parse().unwrap(), via: ResolveVia::Any });
    assert!(matches!(h.router.replace_route(0, prefix, Source::Cli, vec![missing]), Err(FibError::NoTable { .. })));
}
