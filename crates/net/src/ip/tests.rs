//! Forwarding scenarios over the whole graph, frame by frame.

use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::IpPrefix;

use super::*;
use crate::fib::{Hop, Path, Source};
use crate::testing::{Harness, host_mac, router_mac};

mod changes;
mod drops;
mod groups;
mod numa;
mod packets;
mod paths;
mod state;
use packets::{Packet, forwarded, ip};

/// A router with interfaces x0, x1, …: 10.0.N.1/24 and 2001:db8:N::1/64, up, the host 10.0.N.2 (2001:db8:N::2) known.
fn bed(workers: usize, interfaces: u8) -> (Harness, Vec<IfIndex>) {
    bed_of(Harness::with_workers(workers), interfaces)
}

/// The same of this router.
fn bed_of(h: Harness, interfaces: u8) -> (Harness, Vec<IfIndex>) {
    let mut h = h.silent();
    let all: Vec<IfIndex> = (0..interfaces).map(|n| h.interface(n)).collect();
    for (n, index) in (0..).zip(&all) {
        h.router.add_address(*index, IpAddr::from([10, 0, n, 1]), 24).unwrap();
        h.router.add_address(*index, ip(&format!("2001:db8:{n}::1")), 64).unwrap();
        for host in [IpAddr::from([10, 0, n, 2]), ip(&format!("2001:db8:{n}::2"))] {
            h.router.neighbor_update(*index, host, Some(host_mac(n))).unwrap();
        }
    }
    (h, all)
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

#[test]
fn an_icmp_request_survives_the_aux_lane() {
    for (kind, code, data) in [(3, 4, 1500), (11, 0, 0), (255, 255, u16::MAX)] {
        assert_eq!(icmp_of_aux(icmp_aux(kind, code, data)), (kind, code, data));
    }
}

#[test]
fn packets_between_connected_links_change_only_in_hop_count_and_link_header() {
    for workers in [0, 1, 2, 4] {
        let (mut h, x) = bed(workers, 2);
        for packet in [
            Packet::new("10.0.0.2", "10.0.1.2"),
            Packet::new("2001:db8::2", "2001:db8:1::2"),
            Packet { ttl: 2, ..Packet::new("10.0.0.2", "10.0.1.2") },
            Packet { ttl: 2, len: 1200, ..Packet::new("2001:db8::2", "2001:db8:1::2") },
            Packet { tos: 0xb8, len: 1472, ..Packet::new("10.0.0.2", "10.0.1.2") },
        ] {
            let frame = packet.frame(host_mac(0), router_mac(0));
            h.inject_many(x[0], &vec![frame.clone(); 70], workers);
            let out = h.run();
            assert_eq!(out.len(), 70, "{packet:?}: {:?}", h.counts());
            let expected = forwarded(&frame, router_mac(1), host_mac(1));
            assert!(out.iter().all(|(i, f)| *i == x[1] && *f == expected), "{packet:?}: {:02x?}\n{expected:02x?}", out[0].1);
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_static_route_leads_to_its_next_hop() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        let hop = |n: u8| Path::neighbor(x[usize::from(n)], IpAddr::from([10, 0, n, 2]));
        let frame = Packet::new("10.0.0.2", "198.51.100.7").frame(host_mac(0), router_mac(0));
        assert!(h.exchange(x[0], &frame).is_empty());
        assert_eq!(h.count("ip4-drop", "no route"), 1);
        h.router.add_route(0, prefix("198.51.100.0/24"), Source::Cli, vec![hop(1)]).unwrap();
        assert_eq!(h.exchange(x[0], &frame), [(x[1], forwarded(&frame, router_mac(1), host_mac(1)))]);
        h.router.replace_route(0, prefix("198.51.100.0/24"), Source::Cli, vec![hop(2)]).unwrap();
        assert_eq!(h.exchange(x[0], &frame), [(x[2], forwarded(&frame, router_mac(2), host_mac(2)))]);
        h.router.remove_route(0, prefix("198.51.100.0/24"), Source::Cli, None).unwrap();
        assert!(h.exchange(x[0], &frame).is_empty());
        h.router.add_route(0, prefix("2001:db8:ff::/48"), Source::Cli, vec![Path::recursive(ip("2001:db8:2::2"))]).unwrap();
        let frame = Packet::new("2001:db8::2", "2001:db8:ff::9").frame(host_mac(0), router_mac(0));
        assert_eq!(h.exchange(x[0], &frame), [(x[2], forwarded(&frame, router_mac(2), host_mac(2)))]);
        h.router.add_route(0, prefix("203.0.113.0/24"), Source::Cli, vec![Path::new(Hop::Drop)]).unwrap();
        let frame = Packet::new("10.0.0.2", "203.0.113.1").frame(host_mac(0), router_mac(0));
        assert!(h.exchange(x[0], &frame).is_empty());
        assert_eq!(h.count("ip4-drop", "dropped by a route"), 1);
        h.assert_buffers_held(0);
    }
}
