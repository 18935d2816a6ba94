//! Changes while packets flow.

use quiver_wire::MacAddr;

use super::*;
use crate::interface::{Mtu, SubMatch, VlanId};

#[test]
fn routes_and_neighbours_change_under_traffic_and_no_packet_is_lost() {
    for workers in [1, 2, 4] {
        let (mut h, x) = bed(workers, 3);
        let path = |n: u8, host: u8| Path::neighbor(x[usize::from(n)], IpAddr::from([10, 0, n, host]));
        for n in 1..3 {
            h.router.neighbor_update(x[usize::from(n)], IpAddr::from([10, 0, n, 3]), Some(host_mac(n + 10))).unwrap();
        }
        h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![path(1, 2)]).unwrap();
        let frames: Vec<Vec<u8>> = (0..64)
            .map(|p| Packet { ports: (p, 9), ..Packet::new("10.0.0.2", "192.0.2.1") }.frame(host_mac(0), router_mac(0)))
            .collect();
        let (mut sent, mut out) = (0, Vec::new());
        for round in 0..60_u8 {
            for thread in 0..workers {
                h.cast_many(x[0], &frames, thread);
                sent += frames.len();
            }
            // While the workers are at it.
            match round % 6 {
                0 => h.router.replace_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![path(2, 2)]).unwrap(),
                1 => h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![path(1, 3), path(2, 3)]).unwrap(),
                2 => h.router.neighbor_update(x[2], ip("10.0.2.2"), Some(host_mac(20 + round % 3))).unwrap(),
                3 => h.router.set_mac(x[1], router_mac(100 + round)).unwrap(),
                4 => h.router.add_route(0, prefix("192.0.2.0/28"), Source::Cli, vec![path(1, 2)]).unwrap(),
                _ => h.router.remove_route(0, prefix("192.0.2.0/28"), Source::Cli, None).unwrap(),
            }
            out.extend(h.run());
            h.router.reclaim();
        }
        out.extend(h.run());
        assert_eq!(out.len(), sent, "{workers} workers: {:?}", h.counts());
        for (_, frame) in &out {
            let header = &frame[14..34];
            assert_eq!(quiver_wire::checksum::checksum(header), 0);
            assert_eq!(frame[22], 63);
            assert_eq!(frame[..4], [2, 0, 0, 0], "a host's MAC address, whole: {:02x?}", &frame[..14]);
            assert_eq!(frame[6..11], [2, 0xfe, 0, 0, 0], "the router's MAC address, whole: {:02x?}", &frame[..14]);
            assert_eq!(frame[12..14], [8, 0]);
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn broadcasts_to_a_link_are_dropped_unless_they_are_asked_for() {
    let (mut h, x) = bed(0, 2);
    let frame = Packet::new("10.0.0.2", "10.0.1.255").frame(host_mac(0), router_mac(0));
    let network = Packet::new("10.0.0.2", "10.0.1.0").frame(host_mac(0), router_mac(0));
    let other = Packet::new("10.0.0.2", "10.0.2.255").frame(host_mac(0), router_mac(0));
    assert!(h.exchange(x[0], &frame).is_empty());
    h.router.set_directed_broadcast(x[1], true).unwrap();
    let everybody = forwarded(&frame, router_mac(1), MacAddr::BROADCAST);
    assert_eq!(h.exchange(x[0], &frame), [(x[1], everybody.clone())]);
    assert!(h.exchange(x[0], &network).is_empty());
    // Addresses that come and go; two of one prefix share it.
    h.router.add_address(x[1], ip("10.0.2.1"), 24).unwrap();
    h.router.add_address(x[1], ip("10.0.1.7"), 24).unwrap();
    assert_eq!(h.exchange(x[0], &other).len(), 1);
    h.router.remove_address(x[1], ip("10.0.2.1"), 24).unwrap();
    h.router.remove_address(x[1], ip("10.0.1.1"), 24).unwrap();
    assert!(h.exchange(x[0], &other).is_empty());
    assert_eq!(h.exchange(x[0], &frame), [(x[1], everybody)]);
    h.router.set_directed_broadcast(x[1], false).unwrap();
    assert!(h.exchange(x[0], &frame).is_empty());
    assert!(h.router.find_adjacency(x[1], ip("10.0.1.255")).is_none());
    h.assert_buffers_held(0);
}

#[test]
fn an_address_of_127_is_for_loopbacks_only() {
    let (mut h, x) = bed(0, 1);
    assert!(h.router.add_address(x[0], ip("127.0.0.1"), 32).is_err());
    let loopback = h.router.create_loopback(None, None).unwrap();
    h.router.add_address(loopback, ip("127.0.0.1"), 32).unwrap();
    h.router.remove_address(loopback, ip("127.0.0.1"), 32).unwrap();
}

#[test]
fn a_new_mtu_and_a_new_link_address_change_the_record_in_place() {
    let (mut h, x) = bed(0, 2);
    let frame = Packet { len: 600, dont_fragment: true, ..Packet::new("10.0.0.2", "10.0.1.2") }.frame(host_mac(0), router_mac(0));
    let before = h.router.find_adjacency(x[1], ip("10.0.1.2")).unwrap();
    h.router.set_mtu(x[1], Mtu { l3: 500, ip4: 0, ip6: 0, mpls: 0 }).unwrap();
    let out = h.exchange(x[0], &frame);
    assert_eq!((out.len(), out[0].0, out[0].1[34], out[0].1[35]), (1, x[0], 3, 4), "fragmentation needed");
    assert_eq!(out[0].1[40..42], 500_u16.to_be_bytes(), "the next hop's MTU");
    h.router.set_mtu(x[1], Mtu { l3: 1500, ip4: 0, ip6: 0, mpls: 0 }).unwrap();
    h.router.set_mac(x[1], router_mac(99)).unwrap();
    assert_eq!(h.exchange(x[0], &frame), [(x[1], forwarded(&frame, router_mac(99), host_mac(1)))]);
    assert_eq!(h.router.find_adjacency(x[1], ip("10.0.1.2")), Some(before));
    h.assert_buffers_held(0);
}

#[test]
fn a_neighbour_behind_tags_moves_when_its_link_address_changes() {
    let (mut h, x) = bed(0, 2);
    let tagged = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(5), inner: None, exact: true };
    let sub = h.router.create_sub_interface(x[1], 5, tagged).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, ip("10.5.0.1"), 24).unwrap();
    let frame = Packet::new("10.0.0.2", "10.5.0.2").frame(host_mac(0), router_mac(0));
    let mut before = None;
    for n in [7, 8] {
        let mac = MacAddr([2, n, n, n, n, n]);
        h.router.neighbor_update(sub, ip("10.5.0.2"), Some(mac)).unwrap();
        let mut expected = forwarded(&frame, router_mac(1), mac);
        expected.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(h.exchange(x[0], &frame), [(x[1], expected)]);
        let index = h.router.find_adjacency(sub, ip("10.5.0.2"));
        assert_ne!(index, before, "a MAC address over two words cannot change under traffic");
        before = index;
    }
    h.router.set_interface_up(x[1], false).unwrap();
    assert!(h.exchange(x[0], &frame).is_empty(), "a sub-interface is down with its parent");
    assert_eq!(h.count("ip4-drop", "no route"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn what_is_removed_leaves_nothing_behind() {
    let (mut h, x) = bed(2, 2);
    let state = |h: &Harness| (h.router.adjacencies().len(), h.router.routes(FamilyId::V4, 0, None, 1000).unwrap().len());
    let before = state(&h);
    for round in 0..20 {
        let new = h.interface(9);
        h.router.add_address(new, ip("10.9.0.1"), 24).unwrap();
        h.router.add_address(new, ip("2001:db8:9::1"), 64).unwrap();
        h.router.neighbor_update(new, ip("10.9.0.2"), Some(host_mac(9))).unwrap();
        h.router.neighbor_update(new, ip("fe80::9"), Some(host_mac(9))).unwrap();
        h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![Path::neighbor(new, ip("10.9.0.2"))]).unwrap();
        h.router.add_route(0, prefix("198.51.100.0/24"), Source::Cli, vec![Path::recursive(ip("10.9.0.2"))]).unwrap();
        let frame = Packet::new("10.0.0.2", "192.0.2.1").frame(host_mac(0), router_mac(0));
        assert_eq!(h.exchange(x[0], &frame).len(), 1);
        h.router.delete_interface(new).unwrap();
        assert!(h.exchange(x[0], &frame).is_empty(), "round {round}");
        for p in ["192.0.2.0/24", "198.51.100.0/24"] {
            h.router.remove_route(0, prefix(p), Source::Cli, None).unwrap();
        }
        assert_eq!(state(&h), before, "round {round}");
        h.run();
        h.router.reclaim();
    }
    h.assert_buffers_held(0);
}
