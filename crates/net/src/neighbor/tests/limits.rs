//! Floods, full tables, nonsense.

use proptest::prelude::*;

use super::*;

#[test]
fn a_scan_of_a_big_prefix_exhausts_nothing() {
    for workers in [0, 2] {
        let mut h = Harness::with_workers(workers);
        let (a, b) = (h.interface(0), h.interface(1));
        h.router.add_address(a, host(0, 1).into(), 24).unwrap();
        h.router.add_address(b, Ipv4Addr::new(172, 16, 0, 1).into(), 16).unwrap();
        let mut time = Time::new(&h);
        time.pass(&mut h, 3);
        let mut asked = 0;
        for block in 0..64_u32 {
            let frame = |n: u32| packet(Ipv4Addr::from_bits(0xac10_0100 + block * 256 + n), 1);
            let frames: Vec<Vec<u8>> = (0..256).map(frame).collect();
            h.inject_many(a, &frames, block as usize);
            asked += requests(&h.run()).len();
            time.settle(&mut h);
            let used: u32 = h.router.graph.pools().iter().map(|p| p.usage().used()).sum();
            assert!(used <= 2 * 512 + 64, "{used} buffers");
        }
        let throttled = ["", ", source wants too many"].map(|end| h.count("ip4-glean", &format!("ARP requests throttled{end}")));
        let throttled: u64 = throttled.iter().sum();
        assert_eq!(asked as u64 + throttled, 64 * 256, "{:?}", h.counts());
        assert!(h.router.neighbor_figures(FamilyId::V4).pending <= 4096);
        // Who is known already is served all the while.
        h.router.add_neighbor(b, Ipv4Addr::new(172, 16, 0, 2).into(), host_mac(1), false, false).unwrap();
        assert_eq!(packets(&h.exchange(a, &packet(Ipv4Addr::new(172, 16, 0, 2), 9))), [(host_mac(1), 9)]);
        time.pass(&mut h, 10);
        assert_eq!(h.router.neighbor_figures(FamilyId::V4).entries, 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_full_table_refuses_new_neighbours_and_keeps_the_old() {
    let (mut h, x) = bed(0, 2);
    let mut time = Time::new(&h);
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { limit: 3, recycle: false, ..Default::default() });
    for n in 2..7 {
        h.exchange(x[1], &arp_request((host_mac(n), host(1, n)), host(1, 1)));
        time.settle(&mut h);
    }
    let known = |h: &Harness| h.router.neighbors(FamilyId::V4).iter().map(|n| n.address.to_string()).collect::<Vec<_>>();
    assert_eq!(known(&h), ["10.0.1.2", "10.0.1.3", "10.0.1.4"]);
    assert_eq!(h.router.neighbor_figures(FamilyId::V4).refused, 2);
    assert_eq!(h.router.add_neighbor(x[1], host(1, 9).into(), host_mac(9), false, false), Err(NeighborError::Full(3)));
    assert!(h.router.find_adjacency(x[1], host(1, 9).into()).is_none(), "nothing is left of it in the FIB");
    // A packet for one more waits in vain, but not for ever.
    h.exchange(x[0], &packet(host(1, 8), 1));
    time.settle(&mut h);
    h.assert_buffers_held(0);
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { limit: 3, recycle: true, ..Default::default() });
    time.pass(&mut h, 1);
    h.exchange(x[1], &arp_request((host_mac(8), host(1, 8)), host(1, 1)));
    time.settle(&mut h);
    assert_eq!(known(&h), ["10.0.1.3", "10.0.1.4", "10.0.1.8"]);
    assert!(h.router.find_adjacency(x[1], host(1, 2).into()).is_none());
}

#[test]
fn impossible_entries_are_refused() {
    let (mut h, x) = bed(0, 1);
    let add = |h: &mut Harness, i, address: &str, mac| h.router.add_neighbor(i, address.parse().unwrap(), mac, true, false);
    assert_eq!(add(&mut h, IfIndex(99), "10.0.0.2", host_mac(1)), Err(NeighborError::NoInterface(99)));
    assert!(matches!(add(&mut h, x[0], "224.0.0.5", host_mac(1)), Err(NeighborError::Address(_))));
    assert!(matches!(add(&mut h, x[0], "::1", host_mac(1)), Err(NeighborError::Address(_))));
    assert!(matches!(add(&mut h, x[0], "10.0.0.2", MacAddr::BROADCAST), Err(NeighborError::Mac(_))));
    assert!(h.router.neighbors(FamilyId::V4).is_empty());
}

#[test]
fn an_entry_without_fib_entry_makes_no_route() {
    let (mut h, x) = bed(0, 1);
    h.router.add_neighbor(x[0], host(0, 2).into(), host_mac(1), true, true).unwrap();
    let len = |h: &Harness| h.router.route_lookup(0, host(0, 2).into()).unwrap().prefix_len;
    assert_eq!(len(&h), 24);
    h.router.add_neighbor(x[0], host(0, 2).into(), host_mac(1), true, false).unwrap();
    assert_eq!(len(&h), 32);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn random_arp_messages_break_nothing(
        messages in prop::collection::vec((any::<u8>(), any::<[u8; 28]>(), 0_usize..60, any::<bool>()), 1..80)
    ) {
        let (mut h, x) = bed(0, 2);
        let mut time = Time::new(&h);
        let n = messages.len() as u64;
        let before: u64 = h.counts().values().sum();
        let mut out = 0;
        for (how, mut bytes, len, good) in messages {
            if good {
                // Mostly well-formed, with addresses of the links.
                bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1 + (how & 1)]);
                bytes[8] &= 0xfe;
                let (sender, target) = (host(how >> 2 & 1, bytes[17] & 7), host(how >> 3 & 1, bytes[27] & 7));
                bytes[14..18].copy_from_slice(&sender.octets());
                bytes[24..28].copy_from_slice(&target.octets());
            }
            let mut frame = MacAddr::BROADCAST.0.to_vec();
            frame.extend_from_slice(&bytes[8..14]);
            frame.extend([8, 6]);
            frame.extend_from_slice(&bytes);
            frame.resize(14 + if good { 46 } else { len }, 0);
            out += h.exchange(x[usize::from(how & 1)], &frame).len() as u64;
            time.settle(&mut h);
        }
        let counts = h.counts();
        let after: u64 = counts.iter().filter(|(k, _)| !k.contains("learned") && !k.contains("sent")).map(|(_, n)| n).sum();
        prop_assert_eq!(after - before + out, n, "every message has one end: {:?}", counts);
        for neighbor in h.router.neighbors(FamilyId::V4) {
            prop_assert!(neighbor.mac.is_some_and(|m| m.is_unicast()));
        }
        time.pass(&mut h, 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_flood_of_senders_pushes_out_itself_and_what_it_leaves_is_forgotten() {
    let (mut h, x) = bed(0, 2);
    let mut time = Time::new(&h);
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { interface_limit: 50, ..Default::default() });
    // One host that is sent packets, one that is the next hop of a route; both only ever asked.
    for n in [2, 3] {
        h.exchange(x[1], &arp_request((host_mac(n), host(1, n)), host(1, 1)));
        time.settle(&mut h);
    }
    h.exchange(x[0], &packet(host(1, 2), 1));
    let path = crate::fib::Path::neighbor(x[1], host(1, 3).into());
    let route = quiver_wire::IpPrefix::new("172.16.0.0".parse().unwrap(), 16).unwrap();
    h.router.add_route(0, route, crate::fib::Source::Api, vec![path]).unwrap();
    for round in 0..4_u8 {
        for n in 10..210 {
            let mac = MacAddr([2, 0xee, 0, 0, round, n]);
            h.inject(x[1], &arp_request((mac, host(1, n)), host(1, 1)));
        }
        h.run();
        time.settle(&mut h);
    }
    let known = |h: &Harness, n| h.router.neighbor(x[1], host(1, n).into()).is_some();
    assert!(known(&h, 2) && known(&h, 3), "{:?}", h.router.neighbors(FamilyId::V4));
    let figures = h.router.neighbor_figures(FamilyId::V4);
    assert_eq!((figures.fullest, figures.refused), (Some((x[1], 50)), 0));
    assert!(figures.recycled >= 100, "{figures:?}");
    // A host that is new is found while the table is full.
    assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 250), 7))), []);
    time.settle(&mut h);
    h.inject(x[1], &arp_reply(1, (host_mac(9), host(1, 250))));
    let mut out = h.run();
    out.extend(time.settle(&mut h));
    assert_eq!(packets(&out), [(host_mac(9), 7)]);
    // Senders outside the prefix make no entry.
    h.exchange(x[1], &arp_request((host_mac(7), Ipv4Addr::new(172, 31, 0, 1)), host(1, 1)));
    time.settle(&mut h);
    assert!(h.router.neighbor(x[1], Ipv4Addr::new(172, 31, 0, 1).into()).is_none());
    // Ten silent minutes later the flood is gone; the next hop stays.
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { probe: false, unused: 60, ..Default::default() });
    time.pass(&mut h, 130);
    let left: Vec<_> = h.router.neighbors(FamilyId::V4).iter().map(|n| n.address).collect();
    assert_eq!(left, [IpAddr::from(host(1, 3))]);
    h.assert_buffers_held(0);
}
