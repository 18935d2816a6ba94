//! Virtual routers in a router: what they send, and what they hear.

use quiver_graph::ThreadPlan;
use quiver_net::ip::FamilyId;
use quiver_net::testing::{host_mac, router_mac};

use super::{FAMILIES, PEER, Said, VIRTUAL, bed, begin, error, framed, hear, heard, info, routers, run, settle, until, x0};
use crate::machine::State;
use crate::packet::{Advertisement, group};

/// Advertisements among what was said.
fn priorities(said: &[Said]) -> Vec<u8> {
    let priority = |said: &Said| match said {
        Said::Advertisement(advertisement) => Some(advertisement.priority),
        Said::Announcement => None,
    };
    said.iter().filter_map(priority).collect()
}

#[test]
fn a_router_without_others_becomes_the_master_whichever_thread_has_it() {
    for workers in [0, 1, 2] {
        for family in FAMILIES {
            let mut h = bed(workers);
            begin(&mut h, family, "interval 1 priority 200");
            let all = until(&mut h, family, State::Master);
            assert_eq!(all[0], Said::Advertisement(Advertisement { vr_id: 7, priority: 200, interval: 1 }));
            assert_eq!(all[1], Said::Announcement);
            assert!(all[2..].iter().all(|said| *said != Said::Announcement), "once for its one address");
            run(&mut h, &format!("vrrp proto stop x0 vr_id 7 {}", if family == FamilyId::V6 { "ipv6" } else { "" }));
            let all = until(&mut h, family, State::Initialize);
            assert_eq!(priorities(&all).last(), Some(&0), "it says that it ends");
            assert_eq!(hear(&mut h, family), []);
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn the_better_router_is_the_master_on_whichever_thread_it_is_heard() {
    for workers in [0, 2] {
        for family in FAMILIES {
            let mut h = bed(workers);
            begin(&mut h, family, "interval 1");
            until(&mut h, family, State::Master);
            let x0 = x0(&h);
            for thread in [0, 1] {
                h.inject_many(x0, &[heard(family, 101, 4000)], thread);
                until(&mut h, family, State::Backup);
                let shown = info(&mut h, family);
                assert_eq!((shown.master, shown.master_interval, shown.master_down), (Some(PEER[family as usize]), 4000, 14438));
                assert_eq!(hear(&mut h, family), [], "a backup is silent");
                // It ends, and this one takes over after the skew of an interval of its own.
                h.inject_many(x0, &[heard(family, 101, 1), heard(family, 0, 1)], thread);
                let all = until(&mut h, family, State::Master);
                assert_eq!(all[1], Said::Announcement);
            }
            let shown = info(&mut h, family);
            assert_eq!(shown.received, 6);
            assert!(shown.sent > 2);
        }
    }
}

#[test]
fn preemption_is_up_to_the_operator() {
    let mut h = bed(1);
    // It waits longer than a machine stands still before it takes over.
    begin(&mut h, FamilyId::V4, "interval 4000 no_preempt");
    let x0 = x0(&h);
    h.inject(x0, &heard(FamilyId::V4, 50, 4000));
    h.run();
    assert_eq!(info(&mut h, FamilyId::V4).master, Some(PEER[0]));
}

#[test]
fn advertisements_that_do_not_count_are_dropped_each_for_its_reason() {
    let mut h = bed(0);
    let x0 = x0(&h);
    h.exchange(x0, &heard(FamilyId::V4, 200, 100));
    assert_eq!(h.count("ip4-receive", "unknown ip protocol") + h.count("ip4-local", "unknown ip protocol"), 1, "nobody listens");
    begin(&mut h, FamilyId::V4, "interval 4000");
    let packet = |ttl: u8, at: usize, byte: u8, fill: bool| {
        let advertisement = Advertisement { vr_id: 7, priority: 200, interval: 100 };
        let mut packet = advertisement.packet(PEER[0], group(FamilyId::V4), &[VIRTUAL[0]]);
        packet[8] = ttl;
        packet[20 + at] = byte;
        if fill {
            packet[26..28].fill(0);
            let sum = quiver_wire::checksum::checksum(&packet[20..]);
            packet[26..28].copy_from_slice(&sum.to_be_bytes());
        }
        packet[10..12].fill(0);
        let sum = quiver_wire::checksum::checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        framed(FamilyId::V4, &packet)
    };
    let cases = [
        (packet(254, 2, 200, false), "TTL or hop limit is not 255"),
        (packet(255, 0, 0x21, true), "unknown version"),
        (packet(255, 0, 0x32, true), "unknown type"),
        (packet(255, 3, 2, true), "shorter than its fields say"),
        (packet(255, 2, 201, false), "bad checksum"),
        (packet(255, 5, 0, true), "advertisement interval is 0"),
    ];
    for (frame, reason) in cases {
        h.exchange(x0, &frame);
        assert_eq!(h.count("vrrp4-local", reason), 1, "{reason}: {:?}", h.counts());
    }
    // To this router's own address, and of another virtual router, which may be a daemon's.
    let advertisement = Advertisement { vr_id: 7, priority: 200, interval: 100 };
    let mut unicast = framed(FamilyId::V4, &advertisement.packet(PEER[0], "10.0.0.1".parse().unwrap(), &[VIRTUAL[0]]));
    unicast[..6].copy_from_slice(&router_mac(0).0);
    h.exchange(x0, &unicast);
    assert_eq!(h.count("vrrp4-local", "multicast for a unicast virtual router, or unicast for another"), 1);
    h.exchange(x0, &framed(FamilyId::V4, &Advertisement { vr_id: 8, ..advertisement }.packet(PEER[0], group(FamilyId::V4), &[])));
    assert_eq!(h.count("ip4-local", "unknown ip protocol"), 1, "{:?}", h.counts());
    assert_eq!((info(&mut h, FamilyId::V4).received, info(&mut h, FamilyId::V4).master), (0, None), "none has moved it");
    h.assert_buffers_held(0);
}

#[test]
fn a_unicast_router_talks_to_its_peers_and_hears_them_alone() {
    let mut h = bed(1);
    run(&mut h, "vrrp vr add x0 vr_id 7 unicast interval 1 10.0.0.100");
    assert!(error(&mut h, "vrrp proto start x0 vr_id 7").contains("needs peers"));
    run(&mut h, "vrrp peers x0 vr_id 7 10.0.0.2 10.0.0.9\nvrrp proto start x0 vr_id 7");
    let mut to = Vec::new();
    h.until("advertisements to both", |h| {
        to.extend(
            h.run().iter().filter(|(_, f)| f[12..14] == [8, 0] && f[23] == 112).map(|(_, f)| (f[..6].to_vec(), f[30..34].to_vec())),
        );
        to.len() >= 2
    });
    assert_eq!(to[..2], [(host_mac(0).0.to_vec(), vec![10, 0, 0, 2]), (host_mac(0).0.to_vec(), vec![10, 0, 0, 9])]);
    let x0 = x0(&h);
    let packet = |from: &str| {
        let advertisement = Advertisement { vr_id: 7, priority: 200, interval: 4000 };
        let mut frame =
            framed(FamilyId::V4, &advertisement.packet(from.parse().unwrap(), "10.0.0.1".parse().unwrap(), &[VIRTUAL[0]]));
        frame[..6].copy_from_slice(&router_mac(0).0);
        frame
    };
    h.inject(x0, &packet("10.0.0.3"));
    h.inject(x0, &heard(FamilyId::V4, 200, 4000));
    h.run();
    assert_eq!(h.count("vrrp4-local", "sender is no peer"), 1);
    assert_eq!(h.count("vrrp4-local", "multicast for a unicast virtual router, or unicast for another"), 1);
    h.inject(x0, &packet("10.0.0.2"));
    until(&mut h, FamilyId::V4, State::Backup);
    run(&mut h, "vrrp vr del x0 vr_id 7");
    assert!(routers(&mut h).is_empty());
}

#[test]
fn tracked_interfaces_lower_the_priority() {
    let mut h = bed(1);
    begin(&mut h, FamilyId::V4, "interval 1");
    run(&mut h, "vrrp vr track-if add x0 vr_id 7 track-index x1 priority 30");
    until(&mut h, FamilyId::V4, State::Master);
    run(&mut h, "set interface state x1 down");
    let all = hear(&mut h, FamilyId::V4);
    // One that was due before the interface went down may come first.
    assert_eq!(priorities(&all).last(), Some(&70));
    assert_eq!(info(&mut h, FamilyId::V4).adjusted_priority, 70);
    let x1 = h.router.interfaces.by_name("x1").unwrap().index;
    h.router.delete_interface(x1).unwrap();
    assert_eq!((info(&mut h, FamilyId::V4).adjusted_priority, info(&mut h, FamilyId::V4).tracked.len()), (100, 0));
}

#[test]
fn an_interface_that_goes_down_ends_mastership_and_takes_its_routers_with_it() {
    let mut h = bed(2);
    for family in FAMILIES {
        begin(&mut h, family, "interval 1");
        until(&mut h, family, State::Master);
    }
    run(&mut h, "set interface state x0 down");
    for family in FAMILIES {
        until(&mut h, family, State::InterfaceDown);
    }
    let x0 = x0(&h);
    assert!(h.run().iter().all(|(by, _)| *by != x0));
    run(&mut h, "set interface state x0 up");
    for family in FAMILIES {
        until(&mut h, family, State::Master);
    }
    h.router.delete_interface(x0).unwrap();
    settle(&mut h);
    assert!(routers(&mut h).is_empty());
    h.run();
    h.assert_buffers_held(0);
}

#[test]
fn virtual_routers_of_a_worker_that_leaves_go_on_at_another() {
    let mut h = bed(2);
    for family in FAMILIES {
        begin(&mut h, family, "interval 1");
        until(&mut h, family, State::Master);
    }
    let threads = |h: &mut _| routers(h).into_iter().map(|router| router.thread).collect::<Vec<_>>();
    assert_ne!(threads(&mut h)[0], threads(&mut h)[1], "they are spread");
    h.router.set_workers(&[ThreadPlan::default()]).unwrap();
    assert_eq!(threads(&mut h)[0], threads(&mut h)[1]);
    h.router.set_workers(&[]).unwrap();
    for family in FAMILIES {
        assert_eq!(info(&mut h, family).state, State::Master);
        let x0 = x0(&h);
        h.inject(x0, &heard(family, 101, 4000));
        until(&mut h, family, State::Backup);
    }
}

#[test]
fn a_master_that_stops_with_the_program_says_so() {
    for workers in [0, 1] {
        let mut h = bed(workers);
        for family in FAMILIES {
            begin(&mut h, family, "interval 1");
            until(&mut h, family, State::Master);
        }
        h.router.say_last_words();
        let frames = h.run();
        for family in FAMILIES {
            let all: Vec<Said> = frames.iter().filter_map(|(_, frame)| super::said(family, frame)).collect();
            assert_eq!(priorities(&all).last(), Some(&0));
        }
    }
}
