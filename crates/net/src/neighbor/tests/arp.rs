//! Resolution, answers, ageing, changes.

use super::*;

#[test]
fn held_packets_leave_in_order_when_the_answer_comes() {
    for workers in [0, 1, 2, 4] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        let frames: Vec<Vec<u8>> = (1..=6).map(|n| packet(host(1, 2), n)).collect();
        h.inject_many(x[0], &frames, workers);
        let out = h.run();
        let asked = requests(&out);
        assert_eq!(asked.len(), 1, "{:?}", h.counts());
        let expected = ArpHeader::request((router_mac(1), host(1, 1)), host(1, 2));
        assert_eq!(asked[0], (x[1], MacAddr::BROADCAST, expected));
        assert!(packets(&out).is_empty());
        assert!(time.settle(&mut h).is_empty(), "main does not ask at once again");
        h.assert_buffers_held(4);
        // The answer may come in on another thread than the one that holds.
        h.inject_many(x[1], &[arp_reply(1, (host_mac(1), host(1, 2)))], workers + 1);
        h.run();
        let out = time.settle(&mut h);
        assert_eq!(packets(&out), [3, 4, 5, 6].map(|n| (host_mac(1), n)), "the newest four, in order");
        assert!(out.iter().all(|(i, f)| *i == x[1] && f[6..12] == router_mac(1).0));
        assert_eq!(h.count("ip4-glean", "more packets than are held for a neighbour"), 2);
        // From now on nobody is asked.
        let out = h.exchange(x[0], &packet(host(1, 2), 7));
        assert_eq!(packets(&out), [(host_mac(1), 7)]);
        assert_eq!(out.len(), 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn no_packet_is_held_where_none_may_be() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { hold: 0, ..Default::default() });
        let out = h.exchange(x[0], &packet(host(1, 2), 1));
        assert_eq!(requests(&out).len(), 1);
        assert_eq!(h.count("ip4-glean", "more packets than are held for a neighbour"), 1);
        h.assert_buffers_held(0);
        h.exchange(x[1], &arp_reply(1, (host_mac(1), host(1, 2))));
        assert!(time.settle(&mut h).is_empty(), "nothing waited for the answer");
        assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 2))), [(host_mac(1), 2)]);
    }
}

#[test]
fn a_next_hop_is_asked_for_by_its_adjacency() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        let path = crate::fib::Path::neighbor(x[1], host(1, 9).into());
        h.router.add_route(0, "198.51.100.0/24".parse().unwrap(), crate::fib::Source::Cli, vec![path]).unwrap();
        let out = h.exchange(x[0], &packet(Ipv4Addr::new(198, 51, 100, 7), 1));
        assert_eq!(requests(&out)[0].2.target_ip(), host(1, 9), "{:?}", h.counts());
        h.exchange(x[1], &arp_reply(1, (host_mac(9), host(1, 9))));
        assert_eq!(packets(&time.settle(&mut h)), [(host_mac(9), 1)]);
        assert_eq!(h.count("ip4-arp", "ARP requests sent"), 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_host_that_does_not_answer_is_asked_three_times_and_its_packets_get_an_error() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let mut time = Time::new(&h);
        h.router.add_neighbor(x[0], host(0, 2).into(), host_mac(0), true, false).unwrap();
        let out = h.exchange(x[0], &packet(host(1, 2), 1));
        assert_eq!(requests(&out).len(), 1);
        let out = time.pass(&mut h, 5);
        assert_eq!(requests(&out).len(), 2, "three in all");
        // RFC 1812, 5.2.7.1: host unreachable, to the sender.
        let error = out.iter().find(|(i, f)| *i == x[0] && f[12..14] == [8, 0]).expect("an ICMP error");
        assert_eq!((&error.1[..6], &error.1[34..36]), (&host_mac(0).0[..], &[3, 1][..]));
        assert!(h.router.neighbor(x[1], host(1, 2).into()).is_none());
        assert_eq!(h.router.neighbor_figures(FamilyId::V4).lost, 1);
        h.assert_buffers_held(0);
        // The next packet begins anew.
        let out = h.exchange(x[0], &packet(host(1, 2), 2));
        assert_eq!(requests(&out).len(), 1);
        time.pass(&mut h, 5);
        h.assert_buffers_held(0);
    }
}

#[test]
fn requests_for_own_addresses_are_answered_and_teach_the_sender() {
    for workers in [0, 1, 2] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        let sender = (host_mac(0), host(0, 2));
        let mut request = arp_request(sender, host(0, 1));
        request.resize(60, 0);
        let out = h.exchange(x[0], &request);
        let expected = arp(host_mac(0), ArpHeader::new(ArpOperation::REPLY, (router_mac(0), host(0, 1)), sender));
        assert_eq!(out, [(x[0], expected)]);
        time.settle(&mut h);
        let known = h.router.neighbor(x[0], host(0, 2).into()).unwrap();
        assert_eq!((known.mac, known.state), (Some(host_mac(0)), State::Stale));
        let mut frame = packet(host(0, 2), 5);
        frame[..6].copy_from_slice(&router_mac(1).0);
        assert_eq!(packets(&h.exchange(x[1], &frame)), [(host_mac(0), 5)]);
        for target in [host(1, 1), host(0, 9)] {
            assert!(h.exchange(x[0], &arp_request(sender, target)).is_empty(), "{target} is not ours here");
        }
        assert_eq!(h.count("arp-reply", "ARP replies sent"), 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn an_announcement_updates_who_is_known_and_makes_no_entry() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        let announce = |mac| arp_request((mac, host(1, 2)), host(1, 2));
        h.exchange(x[1], &announce(host_mac(1)));
        time.settle(&mut h);
        assert!(h.router.neighbors(FamilyId::V4).is_empty());
        h.router.add_neighbor(x[1], host(1, 2).into(), host_mac(1), false, false).unwrap();
        h.exchange(x[1], &announce(host_mac(7)));
        time.settle(&mut h);
        assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 1))), [(host_mac(7), 1)]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_static_entry_stays_whatever_is_heard_and_however_old() {
    let (mut h, x) = bed(0, 2);
    let mut time = Time::new(&h);
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { age: 1, ..Default::default() });
    h.router.add_neighbor(x[1], host(1, 2).into(), host_mac(1), true, false).unwrap();
    h.exchange(x[1], &arp_request((host_mac(7), host(1, 2)), host(1, 1)));
    h.exchange(x[1], &arp_reply(1, (host_mac(7), host(1, 2))));
    time.pass(&mut h, 20);
    assert_eq!(h.router.flush_neighbors(FamilyId::V4, None), 0);
    assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 1))), [(host_mac(1), 1)]);
    h.router.set_interface_up(x[1], false).unwrap();
    h.router.set_interface_up(x[1], true).unwrap();
    time.pass(&mut h, 3);
    assert_eq!(packets(&h.exchange(x[0], &packet(host(1, 2), 2))), [(host_mac(1), 2)]);
    h.router.remove_neighbor(x[1], host(1, 2).into()).unwrap();
    assert_eq!(requests(&h.exchange(x[0], &packet(host(1, 2), 3))).len(), 1);
    assert!(h.router.remove_neighbor(x[1], host(1, 3).into()).is_err());
}

#[test]
fn a_neighbour_in_use_is_probed_by_unicast_and_one_that_is_not_stays_unasked() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let mut time = Time::new(&h);
        for n in [2, 3] {
            h.exchange(x[1], &arp_request((host_mac(n - 1), host(1, n)), host(1, 1)));
        }
        h.router.add_neighbor(x[1], host(1, 4).into(), host_mac(4), false, false).unwrap();
        assert!(requests(&time.pass(&mut h, 60)).is_empty());
        h.exchange(x[0], &packet(host(1, 2), 1));
        h.exchange(x[0], &packet(host(1, 4), 1));
        let mut asked = Vec::new();
        while asked.is_empty() {
            asked = requests(&time.pass(&mut h, 1));
        }
        let expected = ArpHeader::request((router_mac(1), host(1, 1)), host(1, 2));
        assert_eq!(asked, [(x[1], host_mac(1), expected)], "not whom the user has configured");
        assert_eq!(h.router.neighbor(x[1], host(1, 2).into()).unwrap().state, State::Probe);
        h.exchange(x[1], &arp_reply(1, (host_mac(1), host(1, 2))));
        time.settle(&mut h);
        assert_eq!(h.router.neighbor(x[1], host(1, 2).into()).unwrap().state, State::Reachable);
        // It goes silent while it is used.
        let mut probes = 0;
        for n in 0..90 {
            h.exchange(x[0], &packet(host(1, 2), n));
            probes += requests(&time.pass(&mut h, 1)).iter().filter(|(_, dst, _)| *dst == host_mac(1)).count();
        }
        assert_eq!(probes, 3);
        assert!(h.router.neighbor(x[1], host(1, 2).into()).is_none_or(|n| n.mac.is_none()));
        assert!(h.router.neighbor(x[1], host(1, 3).into()).is_some());
        // The last packet waits for the lost neighbour, and then the error about it for its sender, who does not answer either.
        time.pass(&mut h, 20);
        h.assert_buffers_held(0);
    }
}

#[test]
fn neighbours_older_than_the_age_are_removed() {
    let (mut h, x) = bed(0, 1);
    let mut time = Time::new(&h);
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { age: 10, ..Default::default() });
    h.exchange(x[0], &arp_request((host_mac(0), host(0, 2)), host(0, 1)));
    time.pass(&mut h, 9);
    assert!(h.router.neighbor(x[0], host(0, 2).into()).is_some());
    time.pass(&mut h, 6);
    assert!(h.router.neighbor(x[0], host(0, 2).into()).is_none());
}

#[test]
fn an_interface_that_goes_down_or_away_takes_its_neighbours_and_held_packets_along() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        let time = Time::new(&h);
        for (down, to) in [(true, 1), (false, 2)] {
            h.router.add_neighbor(x[to], host(to as u8, 2).into(), host_mac(1), false, false).unwrap();
            h.exchange(x[0], &packet(host(to as u8, 3), 1));
            time.settle(&mut h);
            h.assert_buffers_held(1);
            if down {
                h.router.set_interface_up(x[to], false).unwrap();
            } else {
                h.router.delete_interface(x[to]).unwrap();
            }
            time.settle(&mut h);
            assert!(h.router.neighbors(FamilyId::V4).is_empty());
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn own_addresses_are_announced_when_they_come_and_when_the_link_does() {
    let mut h = Harness::new();
    let x = h.interface(0);
    let mut time = Time::new(&h);
    let announced = |out: &[(IfIndex, Vec<u8>)]| announcements(out).len();
    h.router.add_address(x, host(0, 1).into(), 24).unwrap();
    let out = time.pass(&mut h, 1);
    assert_eq!(announcements(&out), [(x, MacAddr::BROADCAST, ArpHeader::request((router_mac(0), host(0, 1)), host(0, 1)))]);
    assert_eq!(announced(&time.pass(&mut h, 5)), 1, "once more two seconds later");
    h.router.set_interface_up(x, false).unwrap();
    assert_eq!(announced(&time.pass(&mut h, 5)), 0);
    h.router.set_interface_up(x, true).unwrap();
    assert_eq!(announced(&time.pass(&mut h, 5)), 2);
    h.router.set_mac(x, MacAddr([2, 9, 9, 9, 9, 9])).unwrap();
    let out = time.pass(&mut h, 5);
    assert_eq!((announced(&out), announcements(&out)[0].2.sender_mac), (2, MacAddr([2, 9, 9, 9, 9, 9])));
    let sent = message_counter(&h.router, "arp/tx/gratuitous").sum(x.0);
    assert_eq!(sent, 6, "each is counted");
    h.router.set_neighbor_config(FamilyId::V4, NeighborConfig { announce: false, ..Default::default() });
    h.router.set_mac(x, MacAddr([2, 9, 9, 9, 9, 8])).unwrap();
    assert_eq!(announced(&time.pass(&mut h, 5)), 0);
}

#[test]
fn somebody_with_our_address_is_noticed_and_contradicted_once() {
    let (mut h, x) = bed(0, 1);
    let mut time = Time::new(&h);
    time.pass(&mut h, 5);
    let mut defended = 0;
    for n in 0..20 {
        h.exchange(x[0], &arp_request((host_mac(5 + n % 2), host(0, 1)), host(0, 1)));
        defended += announcements(&time.pass(&mut h, 1)).len();
    }
    assert!((2..=3).contains(&defended), "once in ten seconds: {defended}");
    assert!(h.router.neighbor_figures(FamilyId::V4).conflicts >= 2);
    assert_eq!(h.count("arp-reply", "IP4 source address matches local interface"), 20);
    assert!(h.router.neighbors(FamilyId::V4).is_empty());
}

#[test]
fn proxied_ranges_are_answered_where_that_is_on() {
    let (mut h, x) = bed(0, 2);
    let sender = (host_mac(0), host(0, 2));
    let request = arp_request(sender, host(5, 7));
    let range = ProxyRange { table: 0, first: host(5, 0), last: host(5, 255) };
    h.router.set_proxy_range(range, true).unwrap();
    assert!(h.exchange(x[0], &request).is_empty(), "off by default");
    h.router.set_proxy_arp(x[0], true).unwrap();
    let out = h.exchange(x[0], &request);
    assert_eq!(arp_in(&out[0].1).unwrap().1, ArpHeader::new(ArpOperation::REPLY, (router_mac(0), host(5, 7)), sender));
    assert!(h.exchange(x[0], &arp_request(sender, host(6, 7))).is_empty(), "outside the range");
    h.router.set_proxy_range(range, false).unwrap();
    assert!(h.exchange(x[0], &request).is_empty());
    assert_eq!(h.router.set_proxy_range(range, false), Err(NeighborError::NoRange));
    let backwards = ProxyRange { first: host(5, 9), last: host(5, 1), table: 0 };
    assert!(h.router.set_proxy_range(backwards, true).is_err());
}

#[test]
fn an_address_that_a_route_makes_ours_is_answered_for_on_its_link_only() {
    let (mut h, x) = bed(0, 2);
    let local = vec![crate::fib::Path::new(crate::fib::Hop::Receive)];
    let ask = |h: &mut Harness, at: u8, target| h.exchange(x[usize::from(at)], &arp_request((host_mac(at), host(at, 2)), target));
    assert!(ask(&mut h, 0, host(0, 50)).is_empty());
    for prefix in ["10.0.0.50/32", "192.0.2.1/32"] {
        h.router.add_route(0, prefix.parse().unwrap(), crate::fib::Source::Cli, local.clone()).unwrap();
    }
    let out = ask(&mut h, 0, host(0, 50));
    assert_eq!(arp_in(&out[0].1).unwrap().1.sender_ip(), host(0, 50));
    assert!(ask(&mut h, 1, host(0, 50)).is_empty(), "not of that link");
    assert!(ask(&mut h, 0, Ipv4Addr::new(192, 0, 2, 1)).is_empty(), "of no link");
    h.router.remove_route(0, "10.0.0.50/32".parse().unwrap(), crate::fib::Source::Cli, None).unwrap();
    assert!(ask(&mut h, 0, host(0, 50)).is_empty());
}

#[test]
fn a_tag_that_only_tells_a_priority_is_as_none() {
    let (mut h, x) = bed(0, 2);
    let tagged = |frame: &[u8], tag: [u8; 4]| [&frame[..12], &tag, &frame[12..]].concat();
    let request = arp_request((host_mac(0), host(0, 2)), host(0, 1));
    let plain = h.exchange(x[0], &request);
    assert_eq!(plain.len(), 1);
    assert_eq!(h.exchange(x[0], &tagged(&request, [0x81, 0, 0xa0, 0])), plain, "any priority");
    assert_eq!(h.exchange(x[0], &tagged(&request, [0x88, 0xa8, 0, 0])), plain);
    assert!(h.exchange(x[0], &tagged(&request, [0x81, 0, 0xa0, 7])).is_empty(), "a VLAN");
    // With sub-interfaces too, what is behind the priority decides; one that takes all tags takes this one.
    let tags = |outer| crate::interface::SubMatch::Tagged { dot1ad: false, outer, inner: None, exact: false };
    let sub = h.router.create_sub_interface(x[0], 7, tags(crate::interface::VlanId::Exactly(7))).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, host(9, 1).into(), 24).unwrap();
    assert_eq!(h.exchange(x[0], &tagged(&request, [0x81, 0, 0xa0, 0])), plain);
    let inside = tagged(&arp_request((host_mac(0), host(9, 2)), host(9, 1)), [0x81, 0, 0, 7]);
    let answer = h.exchange(x[0], &inside);
    assert_eq!(answer.len(), 1);
    assert_eq!(h.exchange(x[0], &tagged(&inside, [0x81, 0, 0xa0, 0])), answer);
    assert!(h.exchange(x[0], &tagged(&request, [0x81, 0, 0xa0, 8])).is_empty());
    // A bridge passes the frame as it came.
    h.router.set_l2(x[0], crate::interface::L2Mode::CrossConnect(x[1])).unwrap();
    let frame = tagged(&request, [0x81, 0, 0xa0, 0]);
    assert_eq!(h.exchange(x[0], &frame), [(x[1], frame.clone())]);
    h.assert_buffers_held(0);
}

#[test]
fn an_unnumbered_interface_answers_for_what_it_borrows_and_asks_with_it() {
    let (mut h, x) = bed(0, 2);
    let time = Time::new(&h);
    let y = h.interface(5);
    h.router.set_unnumbered(y, Some(x[0])).unwrap();
    let out = h.exchange(y, &arp_request((host_mac(5), Ipv4Addr::new(172, 16, 0, 9)), host(0, 1)));
    assert_eq!(arp_in(&out[0].1).unwrap().1.sender_mac, router_mac(5), "{:?}", h.counts());
    time.settle(&mut h);
    let path = crate::fib::Path::neighbor(y, Ipv4Addr::new(172, 16, 0, 8).into());
    h.router.add_route(0, "198.51.100.0/24".parse().unwrap(), crate::fib::Source::Cli, vec![path]).unwrap();
    let out = h.exchange(x[0], &packet(Ipv4Addr::new(198, 51, 100, 7), 1));
    assert_eq!(requests(&out)[0].2.sender_ip(), host(0, 1));
    h.router.set_unnumbered(y, None).unwrap();
    let out = h.exchange(y, &arp_request((host_mac(5), Ipv4Addr::new(172, 16, 0, 9)), host(0, 1)));
    assert!(out.is_empty());
}

#[test]
fn sub_interfaces_ask_and_answer_with_their_tags() {
    let mut h = Harness::new();
    let x = h.interface(0);
    let tags = crate::interface::SubMatch::Tagged {
        dot1ad: false,
        outer: crate::interface::VlanId::Exactly(10),
        inner: Some(crate::interface::VlanId::Exactly(20)),
        exact: true,
    };
    let sub = h.router.create_sub_interface(x, 10, tags).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, host(0, 1).into(), 24).unwrap();
    let out = Time::new(&h).settle(&mut h);
    let tag = [0x81, 0, 0, 10, 0x81, 0, 0, 20, 8, 6];
    assert!(out.iter().any(|(i, f)| *i == x && f[12..22] == tag), "announced with tags: {out:02x?}");
    let request = arp_request((host_mac(0), host(0, 2)), host(0, 1));
    let tagged = [&request[..12], &tag[..8], &request[12..]].concat();
    let out = h.exchange(x, &tagged);
    assert_eq!(out.len(), 1, "{:?}", h.counts());
    assert_eq!(out[0].1[..22], [&host_mac(0).0[..], &router_mac(0).0, &tag].concat());
    Time::new(&h).settle(&mut h);
    assert_eq!(h.router.neighbor(sub, host(0, 2).into()).unwrap().mac, Some(host_mac(0)));
}

#[test]
fn events_tell_what_happened() {
    struct Heard(Vec<String>);
    fn listener(router: &mut Router, event: &NeighborEvent) {
        let text = match event {
            NeighborEvent::Added(n) => format!("added {} {}", n.address, n.mac.unwrap_or_default()),
            NeighborEvent::Changed(n) => format!("changed {} {}", n.address, n.mac.unwrap_or_default()),
            NeighborEvent::Removed(n) => format!("removed {} {}", n.address, n.mac.unwrap_or_default()),
            NeighborEvent::Conflict { address, .. } => format!("conflict {address}"),
        };
        router.part_mut::<Heard>().unwrap().0.push(text);
    }
    let (mut h, x) = bed(0, 1);
    let time = Time::new(&h);
    h.router.add_part(Heard(Vec::new()));
    h.router.listen_neighbors(listener);
    let (a, b) = (host_mac(1), host_mac(2));
    h.router.add_neighbor(x[0], host(0, 2).into(), a, false, false).unwrap();
    h.router.add_neighbor(x[0], host(0, 2).into(), a, false, true).unwrap();
    h.exchange(x[0], &arp_reply(0, (b, host(0, 2))));
    time.settle(&mut h);
    h.exchange(x[0], &packet(host(0, 9), 1));
    time.settle(&mut h);
    assert_eq!(h.router.flush_neighbors(FamilyId::V4, Some(x[0])), 2, "one of them was only asked for");
    let texts = &h.router.part::<Heard>().unwrap().0;
    assert_eq!(*texts, [format!("added 10.0.0.2 {a}"), format!("changed 10.0.0.2 {b}"), format!("removed 10.0.0.2 {b}")]);
}
