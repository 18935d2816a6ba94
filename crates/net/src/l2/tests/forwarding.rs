//! Learning, flooding, limits, configured entries, ageing.

use super::*;

#[test]
fn an_unknown_destination_is_flooded_and_a_known_one_is_not() {
    for workers in [0, 1, 2, 4] {
        let (mut h, x) = bed(workers, 3);
        let (a, b) = (mac(1), mac(2));
        assert_eq!(send(&mut h, x[0], &frame(a, b)), [x[1], x[2]]);
        assert_eq!(send(&mut h, x[1], &frame(b, a)), [x[0]], "a was learned");
        assert_eq!(send(&mut h, x[0], &frame(a, b)), [x[1]], "b was learned");
        assert_eq!(send(&mut h, x[0], &frame(a, MacAddr::BROADCAST)), [x[1], x[2]]);
        assert_eq!(send(&mut h, x[0], &frame(mac(3), a)), [], "not back to where it came from");
        assert_eq!(h.count("l2-bridge", "L2 reflection"), 1);
        assert_eq!(send(&mut h, x[2], &frame(a, b)), [x[1]]);
        assert_eq!(send(&mut h, x[1], &frame(b, a)), [x[2]], "a has moved");
        assert_eq!(h.count("l2-bridge", "L2 mac moves"), 1);
        assert_eq!(h.router.mac_counts(), (3, 3));
        h.assert_buffers_held(0);
    }
}

#[test]
fn vectors_of_all_sizes_go_each_their_own_way() {
    for n in [0, 1, 3, 31, 32, 33, 255, 256, 257, 300] {
        let (mut h, x) = bed(1, 4);
        for k in 0..3 {
            send(&mut h, x[k + 1], &frame(mac(k as u32), MacAddr::BROADCAST));
        }
        let frames: Vec<Vec<u8>> = (0..n).map(|k| frame(mac(99), mac(k % 3))).collect();
        h.inject_many(x[0], &frames, 0);
        let mut left = [0; 3];
        for (port, bytes) in h.run() {
            let k = bytes[5] as usize;
            assert_eq!(port, x[k + 1]);
            left[k] += 1;
        }
        assert_eq!(left.map(|k: u32| k), [n.div_ceil(3), (n + 1) / 3, n / 3]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_flooded_frame_of_several_buffers_is_whole_on_every_port() {
    let (mut h, x) = bed(1, 4);
    let long = Packet::ethernet(mac(1), mac(2)).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[0x5a; 5000]).build();
    assert_eq!(send(&mut h, x[3], &long), [x[0], x[1], x[2]]);
    h.assert_buffers_held(0);
}

#[test]
fn group_and_zero_sources_are_dropped_and_not_learned() {
    let (mut h, x) = bed(0, 2);
    for source in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1]), MacAddr::ZERO] {
        assert_eq!(send(&mut h, x[0], &frame(source, mac(2))), []);
    }
    assert_eq!((h.count("l2-bridge", "source address is a group or zero"), h.router.mac_counts()), (3, (0, 0)));
}

#[test]
fn protocols_of_one_link_stay_on_it_and_spanning_tree_passes() {
    let (mut h, x) = bed(0, 2);
    for last in 0..=16 {
        let out = send(&mut h, x[0], &frame(mac(1), MacAddr([1, 0x80, 0xc2, 0, 0, last])));
        assert_eq!(out.is_empty(), (1..16).contains(&last), "{last}");
    }
    assert_eq!(h.count("l2-bridge", "link-local protocol address"), 15);
}

#[test]
fn ports_of_one_split_horizon_group_do_not_send_to_each_other() {
    let (mut h, x) = bed(2, 4);
    for port in [x[0], x[1]] {
        h.router.set_bridge(port, 10, PortKind::Normal, 7).unwrap();
    }
    assert_eq!(send(&mut h, x[0], &frame(mac(1), mac(2))), [x[2], x[3]]);
    assert_eq!(send(&mut h, x[1], &frame(mac(2), mac(1))), [], "known, but of the same group");
    assert_eq!(h.count("l2-bridge", "L2 split horizon"), 1);
    assert_eq!(send(&mut h, x[2], &frame(mac(3), MacAddr::BROADCAST)), [x[0], x[1], x[3]]);
}

#[test]
fn domains_know_nothing_of_each_other() {
    let (mut h, x) = bed(1, 4);
    for port in [x[2], x[3]] {
        h.router.set_bridge(port, 20, PortKind::Normal, 0).unwrap();
    }
    send(&mut h, x[0], &frame(mac(1), MacAddr::BROADCAST));
    assert_eq!(send(&mut h, x[2], &frame(mac(2), mac(1))), [x[3]], "flooded in its own domain");
    assert_eq!(send(&mut h, x[1], &frame(mac(2), mac(1))), [x[0]]);
    assert_eq!(h.router.macs().len(), 3, "the same address in two domains is two entries");
    assert!(h.router.delete_bridge_domain(20).is_err(), "it has ports");
    for port in [x[2], x[3]] {
        h.router.set_l2(port, crate::interface::L2Mode::L3).unwrap();
    }
    h.router.delete_bridge_domain(20).unwrap();
    assert_eq!(h.router.macs().len(), 2);
    assert_eq!(send(&mut h, x[2], &frame(mac(2), mac(1))), [], "routed again: not for this router");
}

#[test]
fn what_is_switched_off_is_not_done() {
    let (mut h, x) = bed(0, 3);
    h.router.set_bridge_switch(10, BdSwitch::Learn, false).unwrap();
    send(&mut h, x[0], &frame(mac(1), mac(2)));
    assert_eq!(h.router.mac_counts(), (0, 0));
    h.router.set_bridge_switch(10, BdSwitch::Learn, true).unwrap();
    h.router.set_port_switch(x[0], PortSwitch::Learn, false).unwrap();
    send(&mut h, x[0], &frame(mac(1), mac(2)));
    send(&mut h, x[1], &frame(mac(2), mac(1)));
    assert_eq!(h.router.mac_counts(), (1, 1));
    h.router.set_bridge_switch(10, BdSwitch::UnknownFlood, false).unwrap();
    assert_eq!(send(&mut h, x[2], &frame(mac(3), mac(1))), []);
    h.router.set_bridge_switch(10, BdSwitch::Flood, false).unwrap();
    assert_eq!(send(&mut h, x[2], &frame(mac(3), MacAddr::BROADCAST)), []);
    assert_eq!(send(&mut h, x[2], &frame(mac(3), mac(2))), [x[1]]);
    h.router.set_port_switch(x[2], PortSwitch::Forward, false).unwrap();
    assert_eq!(send(&mut h, x[2], &frame(mac(3), mac(2))), []);
    let counts = ["unknown unicast, flooding is off", "multicast, flooding is off", "forwarding is off"];
    assert_eq!(counts.map(|text| h.count("l2-bridge", &format!("L2 {text}"))), [1, 1, 1]);
    h.router.set_bridge_switch(10, BdSwitch::Flood, true).unwrap();
    h.router.set_port_switch(x[2], PortSwitch::Flood, false).unwrap();
    assert_eq!(send(&mut h, x[2], &frame(mac(3), MacAddr::BROADCAST)), []);
    assert!(h.router.set_port_switch(IfIndex::LOCAL0, PortSwitch::Flood, false).is_err());
}

#[test]
fn unknown_destinations_can_have_a_port_of_their_own() {
    let (mut h, x) = bed(0, 3);
    h.router.set_bridge(x[2], 10, PortKind::UnknownForward, 0).unwrap();
    assert_eq!(send(&mut h, x[0], &frame(mac(1), mac(2))), [x[2]]);
    assert_eq!(send(&mut h, x[0], &frame(mac(1), MacAddr::BROADCAST)), [x[1]]);
    assert_eq!(send(&mut h, x[2], &frame(mac(2), mac(1))), [x[0]]);
    assert!(h.router.set_bridge(x[1], 10, PortKind::UnknownForward, 0).is_err(), "one is enough");
}

#[test]
fn a_full_domain_learns_no_more_but_follows_moves() {
    let (mut h, x) = bed(1, 3);
    h.router.set_learn_limit(10, 2).unwrap();
    for n in 1..=3 {
        send(&mut h, x[0], &frame(mac(n), MacAddr::BROADCAST));
    }
    send(&mut h, x[0], &frame(mac(3), MacAddr::BROADCAST));
    assert_eq!(h.router.mac_counts(), (2, 2));
    assert_eq!(h.count("l2-bridge", "L2 not learned due to limit"), 2);
    assert_eq!(send(&mut h, x[1], &frame(mac(1), mac(2))), [x[0]]);
    assert_eq!(send(&mut h, x[0], &frame(mac(2), mac(1))), [x[1]], "moved");
    h.router.delete_mac(10, mac(1)).unwrap();
    send(&mut h, x[0], &frame(mac(3), MacAddr::BROADCAST));
    assert_eq!(send(&mut h, x[1], &frame(mac(2), mac(3))), [x[0]], "there was room again");
}

#[test]
fn configured_addresses_stay_where_they_are() {
    let (mut h, x) = bed(0, 3);
    h.router.add_mac(10, mac(1), MacKind::Static(x[0])).unwrap();
    h.router.add_mac(10, mac(2), MacKind::Filter).unwrap();
    assert_eq!(send(&mut h, x[1], &frame(mac(3), mac(1))), [x[0]]);
    assert_eq!(send(&mut h, x[1], &frame(mac(1), mac(3))), [], "it is elsewhere by configuration");
    assert_eq!(send(&mut h, x[1], &frame(mac(3), mac(2))), []);
    assert_eq!(send(&mut h, x[1], &frame(mac(2), mac(3))), []);
    assert_eq!(h.count("l2-bridge", "L2 mac move violation"), 1);
    assert_eq!(h.count("l2-bridge", "l2fib filter"), 2);
    h.router.flush_macs(Flush::All).unwrap();
    assert_eq!(h.router.macs().iter().map(|m| m.kind).collect::<Vec<_>>(), [MacKind::Static(x[0]), MacKind::Filter]);
    assert!(h.router.add_mac(10, MacAddr::BROADCAST, MacKind::Filter).is_err());
    assert!(h.router.add_mac(10, mac(5), MacKind::Static(IfIndex(77))).is_err());
    assert!(h.router.add_mac(10, mac(5), MacKind::Bvi(x[0])).is_err());
    assert!(h.router.delete_mac(10, mac(9)).is_err() && h.router.delete_mac(11, mac(1)).is_err());
    h.router.delete_mac(10, mac(2)).unwrap();
    assert_eq!(send(&mut h, x[1], &frame(mac(3), mac(2))), [x[0], x[2]]);
}

#[test]
fn addresses_go_with_flushes_links_and_ports() {
    let (mut h, x) = bed(1, 3);
    let all = |h: &mut Harness| {
        for (n, port) in x.iter().enumerate() {
            send(h, *port, &frame(mac(n as u32), MacAddr::BROADCAST));
        }
        assert_eq!(h.router.mac_counts(), (3, 3));
    };
    all(&mut h);
    h.router.flush_macs(Flush::Interface(x[0])).unwrap();
    assert_eq!(h.router.mac_counts(), (2, 2));
    h.router.flush_macs(Flush::Domain(10)).unwrap();
    assert_eq!(h.router.mac_counts(), (0, 0));
    all(&mut h);
    h.router.set_interface_up(x[1], false).unwrap();
    assert_eq!(h.router.mac_counts(), (2, 2));
    h.router.set_interface_up(x[1], true).unwrap();
    all(&mut h);
    h.router.delete_interface(x[2]).unwrap();
    assert_eq!(h.router.mac_counts(), (2, 2));
    assert_eq!(send(&mut h, x[0], &frame(mac(0), MacAddr::BROADCAST)), [x[1]]);
    assert_eq!(h.router.bridge_domain(10).unwrap().ports.len(), 2);
    h.assert_buffers_held(0);
}

#[test]
fn silent_addresses_are_forgotten_and_speaking_ones_are_not() {
    let (mut h, x) = bed(1, 2);
    h.router.set_mac_age(10, 2).unwrap();
    let start = h.router.graph.clock().timer_now();
    for n in 0..2 {
        send(&mut h, x[0], &frame(mac(n), MacAddr::BROADCAST));
    }
    settle_at(&mut h, start + 90 * SECOND);
    h.exchange(x[0], &frame(mac(1), MacAddr::BROADCAST));
    settle_at(&mut h, start + 150 * SECOND);
    let left: Vec<MacAddr> = h.router.macs().iter().map(|m| m.mac).collect();
    assert_eq!(left, [mac(1)]);
    assert_eq!(h.router.macs()[0].age, Some(1));
    settle_at(&mut h, start + 260 * SECOND);
    assert_eq!(h.router.mac_counts(), (0, 0));
}

#[test]
fn a_hundred_thousand_addresses_are_learned_from_several_workers() {
    let (mut h, x) = bed(4, 2);
    let mut known = 0;
    for round in 0..40 {
        if known == 100_000 {
            break;
        }
        for thread in 0..4 {
            let port = x[thread % 2];
            for chunk in 0..25 {
                // Each worker's stations are behind one port.
                let base = thread as u32 * 25_000 + chunk * 1000;
                let frames: Vec<_> = (0..1000).map(|n| frame(mac(base + n), mac(base + n))).collect();
                h.inject_many(port, &frames, thread);
                h.run();
                settle(&mut h);
            }
        }
        known = h.router.mac_counts().1;
        assert!(round < 39, "{known} learned");
    }
    assert_eq!(h.router.mac_counts(), (100_000, 100_000));
    assert_eq!(send(&mut h, x[1], &frame(mac(100_001), mac(7))), [x[0]]);
    h.assert_buffers_held(0);
}

#[test]
fn frames_of_configured_stations_pass_in_vectors_and_from_their_port_only() {
    let (mut h, x) = bed(1, 3);
    h.router.add_mac(10, mac(1), MacKind::Static(x[0])).unwrap();
    h.router.add_mac(10, mac(2), MacKind::Static(x[1])).unwrap();
    send(&mut h, x[0], &frame(mac(3), mac(2)));
    let of = |sources: &[u32]| -> Vec<Vec<u8>> { sources.iter().cycle().take(40).map(|n| frame(mac(*n), mac(2))).collect() };
    // Alone, and by turns with one that was learned.
    for sources in [&[1][..], &[1, 3]] {
        h.inject_many(x[0], &of(sources), 0);
        let out = h.run();
        assert_eq!((out.len(), out.iter().all(|(port, _)| *port == x[1])), (40, true), "{sources:?}");
    }
    h.inject_many(x[2], &of(&[1]), 0);
    assert_eq!(h.run(), []);
    assert_eq!(h.count("l2-bridge", "L2 mac move violation"), 40);
    h.assert_buffers_held(0);
}
