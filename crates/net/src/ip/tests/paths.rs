//! Several paths, several tables, next hops that are looked up.

use std::collections::BTreeMap;

use super::*;
use crate::fib::ResolveVia;

/// How often each interface was left by `n` flows to a destination.
fn spread(h: &mut Harness, from: IfIndex, dst: &str, n: u16) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for chunk in (0..n).collect::<Vec<u16>>().chunks(200) {
        let src = if dst.contains(':') { "2001:db8::2" } else { "10.0.0.2" };
        let packet = |port: &u16| Packet { ports: (1000 + port, 80), ..Packet::new(src, dst) };
        let frames: Vec<Vec<u8>> = chunk.iter().map(|p| packet(p).frame(host_mac(0), router_mac(0))).collect();
        h.inject_many(from, &frames, 0);
        for (i, _) in h.run() {
            *counts.entry(i.0).or_default() += 1;
        }
    }
    counts
}

fn hop(x: &[IfIndex], n: u8) -> Path {
    Path::neighbor(x[usize::from(n)], IpAddr::from([10, 0, n, 2]))
}

fn hop6(x: &[IfIndex], n: u8) -> Path {
    Path::neighbor(x[usize::from(n)], ip(&format!("2001:db8:{n}::2")))
}

#[test]
fn flows_spread_by_weight_and_each_keeps_its_path() {
    let (mut h, x) = bed(0, 4);
    let n = 2000;
    for (prefix_text, dst, paths) in [
        ("192.0.2.0/24", "192.0.2.9", vec![Path { weight: 2, ..hop(&x, 1) }, hop(&x, 2), hop(&x, 3)]),
        ("2001:db8:99::/48", "2001:db8:99::9", vec![Path { weight: 2, ..hop6(&x, 1) }, hop6(&x, 2), hop6(&x, 3)]),
    ] {
        h.router.add_route(0, prefix(prefix_text), Source::Cli, paths).unwrap();
        let counts = spread(&mut h, x[0], dst, n);
        for (index, share) in [(x[1], 0.5), (x[2], 0.25), (x[3], 0.25)] {
            let expected = f64::from(n) * share;
            // Binomial: five standard deviations.
            let allowed = 5.0 * (expected * (1.0 - share)).sqrt();
            let got = f64::from(counts.get(&index.0).copied().unwrap_or(0));
            assert!((got - expected).abs() < allowed, "{dst} {index}: {got} of {n}, expected {expected} +- {allowed}");
        }
        assert_eq!(spread(&mut h, x[0], dst, n), counts, "the same flows take the same paths again");
    }
    h.assert_buffers_held(0);
}

#[test]
fn fragments_of_a_datagram_stay_together() {
    let (mut h, x) = bed(0, 3);
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![hop(&x, 1), hop(&x, 2)]).unwrap();
    let mut left_on = Vec::new();
    for (port, more, offset) in [(1, 0x20, 0_u8), (2, 0x20, 10), (3, 0, 20)] {
        // What lies where ports would be differs from fragment to fragment.
        let packet = Packet { ports: (port, port), ..Packet::new("10.0.0.2", "192.0.2.1") };
        let mut frame = packet.frame(host_mac(0), router_mac(0));
        (frame[20], frame[21]) = (more, offset);
        frame[24..26].fill(0);
        let sum = quiver_wire::checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        left_on.push(h.exchange(x[0], &frame)[0].0);
    }
    assert!(left_on.iter().all(|i| *i == left_on[0]), "{left_on:?}");
}

#[test]
fn only_the_most_preferred_paths_that_are_up_are_used() {
    let (mut h, x) = bed(0, 4);
    let backup = Path { preference: 1, ..hop(&x, 3) };
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![hop(&x, 1), hop(&x, 2), backup]).unwrap();
    let on = |h: &mut Harness| spread(h, x[0], "192.0.2.1", 100).into_keys().collect::<Vec<u32>>();
    assert_eq!(on(&mut h), [x[1].0, x[2].0]);
    h.router.set_interface_up(x[1], false).unwrap();
    assert_eq!(on(&mut h), [x[2].0]);
    h.router.set_link(x[2], quiver_graph::Link { up: false, speed: None });
    assert_eq!(on(&mut h), [x[3].0]);
    h.router.delete_interface(x[3]).unwrap();
    assert!(on(&mut h).is_empty());
    h.router.set_interface_up(x[1], true).unwrap();
    assert_eq!(on(&mut h), [x[1].0]);
    h.assert_buffers_held(0);
}

#[test]
fn tables_are_apart_unless_a_route_joins_them() {
    let (mut h, x) = bed(0, 3);
    let red = h.router.add_table(FamilyId::V4, Some(7), None).unwrap();
    h.router.remove_addresses(x[2]).unwrap();
    h.router.set_interface_table(x[2], FamilyId::V4, red).unwrap();
    // The same addresses as on x1, in the other table.
    h.router.add_address(x[2], ip("10.0.1.1"), 24).unwrap();
    h.router.neighbor_update(x[2], ip("10.0.1.2"), Some(host_mac(2))).unwrap();
    let frame = Packet::new("10.0.0.2", "10.0.1.2").frame(host_mac(0), router_mac(0));
    assert_eq!(h.exchange(x[0], &frame)[0].0, x[1]);
    let back = Packet::new("10.0.1.2", "10.0.0.2").frame(host_mac(2), router_mac(2));
    assert!(h.exchange(x[2], &back).is_empty(), "table 7 knows nothing of table 0");
    assert_eq!(h.count("ip4-drop", "no route"), 1);
    h.router.add_route(7, prefix("10.0.0.0/24"), Source::Cli, vec![Path::new(Hop::Lookup(0))]).unwrap();
    assert_eq!(h.exchange(x[2], &back)[0].0, x[0]);
    h.router.add_route(0, prefix("172.16.0.0/12"), Source::Cli, vec![Path::new(Hop::Lookup(7))]).unwrap();
    h.router.add_route(7, prefix("172.16.0.0/12"), Source::Cli, vec![Path::new(Hop::Lookup(0))]).unwrap();
    let lost = Packet::new("10.0.0.2", "172.16.0.1").frame(host_mac(0), router_mac(0));
    assert!(h.exchange(x[0], &lost).is_empty());
    assert_eq!(h.count("lookup-ip4-dst", "lookup loop between tables"), 1);
    h.router.remove_addresses(x[2]).unwrap();
    h.router.set_interface_table(x[2], FamilyId::V4, 0).unwrap();
    assert!(h.router.remove_table(FamilyId::V4, 7).is_err(), "a route uses it");
    h.assert_buffers_held(0);
}

#[test]
fn a_route_can_have_the_source_address_decide() {
    let (mut h, x) = bed(0, 3);
    for (family, all, of, dst, src, other, hop) in [
        (FamilyId::V4, "192.0.2.0/24", "198.51.100.0/24", "192.0.2.1", "198.51.100.9", "203.0.113.1", hop(&x, 2)),
        (FamilyId::V6, "2001:db8:90::/48", "2001:db8:a0::/48", "2001:db8:90::1", "2001:db8:a0::9", "2001:db8:b0::1", hop6(&x, 2)),
    ] {
        h.router.add_table(family, Some(7), None).unwrap();
        h.router.add_route(0, prefix(all), Source::Cli, vec![Path::new(Hop::SourceLookup(7))]).unwrap();
        h.router.add_route(7, prefix(of), Source::Cli, vec![hop]).unwrap();
        let leaves = |h: &mut Harness, src: &str| {
            let frame = Packet::new(src, dst).frame(host_mac(0), router_mac(0));
            h.exchange(x[0], &frame).first().map(|(i, _)| *i)
        };
        assert_eq!((leaves(&mut h, src), leaves(&mut h, other)), (Some(x[2]), None), "{all}");
        // By the source, then by the destination; and round for ever.
        h.router.add_route(7, prefix(of), Source::Cli, vec![Path::new(Hop::Lookup(0))]).unwrap();
        assert_eq!(leaves(&mut h, src), None);
        let node = format!("lookup-{}-src", family.node_prefix());
        assert_eq!(h.count(&node, "lookup loop between tables"), 1);
        assert!(h.router.remove_table(family, 7).is_err(), "a route of another table uses it");
    }
    h.assert_buffers_held(0);
}

#[test]
fn a_route_can_have_packets_taken_as_if_from_another_interface() {
    let (mut h, x) = bed(0, 3);
    let (v4, v6) =
        (h.router.add_table(FamilyId::V4, Some(7), None).unwrap(), h.router.add_table(FamilyId::V6, Some(7), None).unwrap());
    h.router.remove_addresses(x[1]).unwrap();
    h.router.set_interface_table(x[1], FamilyId::V4, v4).unwrap();
    h.router.set_interface_table(x[1], FamilyId::V6, v6).unwrap();
    for (own, host, len) in [("10.0.1.1", "10.0.1.2", 24), ("2001:db8:1::1", "2001:db8:1::2", 64)] {
        h.router.add_address(x[1], ip(own), len).unwrap();
        h.router.neighbor_update(x[1], ip(host), Some(host_mac(1))).unwrap();
    }
    for (all, dst, src, family) in [
        ("192.0.2.0/24", "192.0.2.1", "10.0.0.2", FamilyId::V4),
        ("2001:db8:90::/48", "2001:db8:90::1", "2001:db8::2", FamilyId::V6),
    ] {
        let rx = |index: IfIndex| vec![Path::new(Hop::InterfaceRx(index))];
        let hop = if family == FamilyId::V4 { hop(&x, 1) } else { hop6(&x, 1) };
        h.router.add_route(0, prefix(all), Source::Cli, rx(x[1])).unwrap();
        let frame = Packet::new(src, dst).frame(host_mac(0), router_mac(0));
        let received = |h: &Harness| h.router.graph.interfaces().rx.sum(x[1].0).0;
        let before = received(&h);
        assert!(h.exchange(x[0], &frame).is_empty(), "table 7 knows no way");
        h.router.add_route(7, prefix(all), Source::Cli, vec![hop]).unwrap();
        assert_eq!(h.exchange(x[0], &frame), [(x[1], forwarded(&frame, router_mac(1), host_mac(1)))]);
        assert_eq!(received(&h) - before, 2, "it counts as received there");
        // A feature of that interface sees them: the egress of other features follows, too.
        let found = match family {
            FamilyId::V4 => h.router.egress4().find(0, 0xc000_0201),
            FamilyId::V6 => h.router.egress6().find(0, "2001:db8:90::1".parse::<std::net::Ipv6Addr>().unwrap().to_bits()),
        };
        assert_eq!(found, Way::Interface(x[1]));
        // Two tables that lead to one another: the packet ends, and the router goes on.
        h.router.replace_route(7, prefix(all), Source::Cli, rx(x[0])).unwrap();
        assert!(h.exchange(x[0], &frame).is_empty());
        assert_eq!(h.count(&format!("interface-rx-dpo-{}", family.node_prefix()), "taken from too many interfaces"), 1);
        h.router.set_interface_up(x[1], false).unwrap();
        assert!(h.exchange(x[0], &frame).is_empty(), "one that is down takes nothing");
        h.router.set_interface_up(x[1], true).unwrap();
    }
    h.router.delete_interface(x[1]).unwrap();
    assert_eq!(h.router.route_lookup(0, ip("192.0.2.1")).unwrap().buckets[0].class(), crate::fib::records::Class::Drop);
    h.assert_buffers_held(0);
}

#[test]
fn a_next_hop_is_looked_up_and_followed_when_its_route_changes() {
    let (mut h, x) = bed(0, 3);
    // Routes by a next hop that is itself behind another one.
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![Path::recursive(ip("172.16.0.9"))]).unwrap();
    let frame = Packet::new("10.0.0.2", "192.0.2.1").frame(host_mac(0), router_mac(0));
    let leaves = |h: &mut Harness| h.exchange(x[0], &frame).first().map(|(i, _)| *i);
    assert_eq!(leaves(&mut h), None, "only the default, which drops, covers the next hop");
    h.router.add_route(0, prefix("172.16.0.0/16"), Source::Cli, vec![Path::recursive(ip("10.0.1.2"))]).unwrap();
    assert_eq!(leaves(&mut h), Some(x[1]));
    h.router.add_route(0, prefix("172.16.0.0/24"), Source::Cli, vec![hop(&x, 2)]).unwrap();
    assert_eq!(leaves(&mut h), Some(x[2]), "a longer prefix covers it now");
    h.router.remove_route(0, prefix("172.16.0.0/24"), Source::Cli, None).unwrap();
    assert_eq!(leaves(&mut h), Some(x[1]));
    h.router.set_interface_up(x[1], false).unwrap();
    assert_eq!(leaves(&mut h), None);
    h.router.set_interface_up(x[1], true).unwrap();
    assert_eq!(leaves(&mut h), Some(x[1]));
    h.router.neighbor_update(x[1], ip("10.0.1.2"), Some(host_mac(7))).unwrap();
    assert_eq!(h.exchange(x[0], &frame)[0].1, forwarded(&frame, router_mac(1), host_mac(7)), "another MAC address");
    h.assert_buffers_held(0);
}

#[test]
fn a_next_hop_on_a_connected_link_is_the_neighbour_itself() {
    let (mut h, x) = bed(0, 2);
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![Path::recursive(ip("10.0.1.77"))]).unwrap();
    let index = h.router.find_adjacency(x[1], ip("10.0.1.77")).expect("an adjacency for the next hop");
    assert_eq!(h.router.adjacency_info(index).unwrap().mac, None);
    h.router.neighbor_update(x[1], ip("10.0.1.77"), Some(host_mac(7))).unwrap();
    let frame = Packet::new("10.0.0.2", "192.0.2.1").frame(host_mac(0), router_mac(0));
    assert_eq!(h.exchange(x[0], &frame), [(x[1], forwarded(&frame, router_mac(1), host_mac(7)))]);
    let via = |via| vec![Path::new(Hop::Recursive { table: 0, address: ip("10.0.1.88"), via })];
    h.router.replace_route(0, prefix("192.0.2.0/24"), Source::Cli, via(ResolveVia::Host)).unwrap();
    assert!(h.exchange(x[0], &frame).is_empty(), "no host route covers it");
    h.router.replace_route(0, prefix("192.0.2.0/24"), Source::Cli, via(ResolveVia::Attached)).unwrap();
    assert!(h.router.find_adjacency(x[1], ip("10.0.1.88")).is_some());
}

#[test]
fn routes_that_lead_to_one_another_drop_until_the_loop_is_opened() {
    let (mut h, x) = bed(0, 2);
    let via = |address: &str| vec![Path::recursive(ip(address))];
    h.router.add_route(0, prefix("172.16.0.0/16"), Source::Cli, via("172.17.0.1")).unwrap();
    h.router.add_route(0, prefix("172.17.0.0/16"), Source::Cli, via("172.18.0.1")).unwrap();
    h.router.add_route(0, prefix("172.18.0.0/16"), Source::Cli, via("172.16.0.1")).unwrap();
    h.router.add_route(0, prefix("172.19.0.0/16"), Source::Cli, via("172.19.0.1")).unwrap();
    let frames: Vec<Vec<u8>> = ["172.16.5.5", "172.17.5.5", "172.18.5.5", "172.19.5.5"]
        .iter()
        .map(|dst| Packet::new("10.0.0.2", dst).frame(host_mac(0), router_mac(0)))
        .collect();
    for frame in &frames {
        assert!(h.exchange(x[0], frame).is_empty());
    }
    assert_eq!(h.count("ip4-drop", "route without a path that is up"), 4);
    h.router.replace_route(0, prefix("172.17.0.0/16"), Source::Cli, vec![hop(&x, 1)]).unwrap();
    for frame in &frames[..3] {
        assert_eq!(h.exchange(x[0], frame).len(), 1);
    }
    h.router.replace_route(0, prefix("172.17.0.0/16"), Source::Cli, via("172.18.0.1")).unwrap();
    for frame in &frames {
        assert!(h.exchange(x[0], frame).is_empty());
    }
    h.assert_buffers_held(0);
}

#[test]
fn a_connected_route_shows_again_when_the_static_one_over_it_goes() {
    let (mut h, x) = bed(0, 3);
    let frame = Packet::new("10.0.0.2", "10.0.1.2").frame(host_mac(0), router_mac(0));
    // The neighbour's own route is a worse source than the user's.
    h.router.add_route(0, prefix("10.0.1.2/32"), Source::Cli, vec![hop(&x, 2)]).unwrap();
    assert_eq!(h.exchange(x[0], &frame)[0].0, x[2]);
    h.router.remove_route(0, prefix("10.0.1.2/32"), Source::Cli, None).unwrap();
    assert_eq!(h.exchange(x[0], &frame)[0].0, x[1]);
    // The interface's own route is a better one.
    h.router.add_route(0, prefix("10.0.1.0/24"), Source::Cli, vec![hop(&x, 2)]).unwrap();
    assert_eq!(h.exchange(x[0], &frame)[0].0, x[1]);
    h.router.remove_address(x[1], ip("10.0.1.1"), 24).unwrap();
    assert_eq!(h.exchange(x[0], &frame)[0].0, x[2], "the neighbour's route goes with the link");
    h.assert_buffers_held(0);
}

#[test]
fn unreachable_and_prohibited_destinations_are_answered() {
    let (mut h, x) = bed(0, 2);
    for (p, dst, hop, expected) in [
        ("192.0.2.0/24", "192.0.2.1", Hop::Unreachable, (3, 1)),
        ("198.51.100.0/24", "198.51.100.1", Hop::Prohibited, (3, 13)),
        ("2001:db8:a::/48", "2001:db8:a::1", Hop::Unreachable, (1, 0)),
        ("2001:db8:b::/48", "2001:db8:b::1", Hop::Prohibited, (1, 1)),
    ] {
        h.router.add_route(0, prefix(p), Source::Cli, vec![Path::new(hop)]).unwrap();
        let src = if dst.contains(':') { "2001:db8::2" } else { "10.0.0.2" };
        let frame = Packet::new(src, dst).frame(host_mac(0), router_mac(0));
        let out = h.exchange(x[0], &frame);
        let at = if dst.contains(':') { 54 } else { 34 };
        assert_eq!((out.len(), out[0].1[at], out[0].1[at + 1]), (1, expected.0, expected.1), "{dst}");
    }
    h.assert_buffers_held(0);
}

#[test]
fn a_punted_packet_is_counted_for_its_interface() {
    let (mut h, x) = bed(0, 2);
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![Path::new(Hop::Punt)]).unwrap();
    let frame = Packet::new("10.0.0.2", "192.0.2.1").frame(host_mac(0), router_mac(0));
    assert!(h.exchange(x[0], &frame).is_empty());
    assert_eq!((h.count("ip4-punt", "punted by a route"), h.router.graph.interfaces().punt.sum(x[0].0)), (1, 1));
    h.assert_buffers_held(0);
}

#[test]
fn link_local_destinations_are_those_of_the_interface() {
    let (mut h, x) = bed(0, 3);
    // The same address on two links.
    for n in 1..3 {
        h.router.neighbor_update(x[usize::from(n)], ip("fe80::77"), Some(host_mac(n))).unwrap();
    }
    h.router.add_route(0, prefix("2001:db8:a::/48"), Source::Cli, vec![Path::neighbor(x[2], ip("fe80::77"))]).unwrap();
    let frame = Packet::new("2001:db8::2", "2001:db8:a::1").frame(host_mac(0), router_mac(0));
    assert_eq!(h.exchange(x[0], &frame), [(x[2], forwarded(&frame, router_mac(2), host_mac(2)))]);
    let local = Packet::new("fe80::5", "fe80::77").frame(host_mac(0), router_mac(1));
    assert_eq!(h.exchange(x[1], &local), [(x[1], forwarded(&local, router_mac(1), host_mac(1)))]);
    let escaping = Packet::new("fe80::5", "2001:db8:a::1").frame(host_mac(0), router_mac(0));
    h.router.neighbor_update(x[0], ip("fe80::5"), Some(host_mac(0))).unwrap();
    let out = h.exchange(x[0], &escaping);
    assert_eq!((out.len(), out[0].0, out[0].1[54], out[0].1[55]), (1, x[0], 1, 2), "beyond the scope of its source");
    h.assert_buffers_held(0);
}

#[test]
fn users_behind_a_gtp_tunnel_spread_by_its_endpoint() {
    let (mut h, x) = bed(0, 3);
    let gtp = |six: bool, port: u16, flags: u8, teid: u32| {
        let start = quiver_wire::build::Packet::ethernet(host_mac(0), router_mac(0));
        let start = match (six, ip("2001:db8::2"), ip("2001:db8:99::9")) {
            (true, IpAddr::V6(src), IpAddr::V6(dst)) => start.ipv6(src, dst),
            _ => start.ipv4([10, 0, 0, 2], [192, 0, 2, 9]),
        };
        let [a, b, c, d] = teid.to_be_bytes();
        start.udp(2152, port).payload(&[flags, 255, 0, 0, a, b, c, d]).pad_to(60).build()
    };
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![hop(&x, 1), hop(&x, 2)]).unwrap();
    h.router.add_route(0, prefix("2001:db8:99::/48"), Source::Cli, vec![hop6(&x, 1), hop6(&x, 2)]).unwrap();
    for (six, family) in [(false, FamilyId::V4), (true, FamilyId::V6)] {
        let used = |h: &mut Harness, port, flags| {
            let frames: Vec<Vec<u8>> = (1..=64).map(|teid| gtp(six, port, flags, teid)).collect();
            h.inject_many(x[0], &frames, 0);
            let out = h.run();
            assert_eq!(out.len(), 64, "{:?}", h.counts());
            out.into_iter().map(|(i, _)| i).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(used(&mut h, 2152, 0x30), 1, "one tunnel, one flow");
        h.router.set_flow_hash(family, 0, FlowHash(FlowHash::DEFAULT.0 | FlowHash::GTPV1TEID)).unwrap();
        assert_eq!(used(&mut h, 2152, 0x30), 2);
        assert_eq!((used(&mut h, 2153, 0x30), used(&mut h, 2152, 0x20)), (1, 1), "another port; GTP'");
    }
    h.assert_buffers_held(0);
}

#[test]
fn another_router_id_lets_flows_choose_other_paths() {
    let (mut h, x) = bed(0, 3);
    h.router.add_route(0, prefix("192.0.2.0/24"), Source::Cli, vec![hop(&x, 1), hop(&x, 2)]).unwrap();
    let on = |h: &mut Harness| {
        let frames = (0..64).map(|port| Packet { ports: (port, 1), ..Packet::new("10.0.0.2", "192.0.2.1") });
        let frames: Vec<_> = frames.map(|p| p.frame(host_mac(0), router_mac(0))).collect();
        frames.iter().map(|frame| h.exchange(x[0], frame)[0].0).collect::<Vec<_>>()
    };
    let plain = on(&mut h);
    h.router.set_flow_hash_router_id(0x0a00_0001).unwrap();
    assert!(plain.iter().zip(on(&mut h)).all(|(before, now)| *before != now), "of two paths each takes the other");
    h.router.set_flow_hash_router_id(2).unwrap();
    assert_eq!(on(&mut h), plain, "only as many bits as there are paths to choose from count");
    h.assert_buffers_held(0);
}
