//! What ports send, and what they make of frames.

use quiver_graph::Link;
use quiver_net::interface::{L2Mode, SubMatch};
use quiver_net::testing::router_mac;

use super::{bed, index, names, neighbour, pass, ports, run, said, settle};
use crate::agent::NEIGHBOURS_MAX;
use crate::node::BOX;
use crate::pdu::Capability;

#[test]
fn a_port_says_who_it_is_while_it_is_up_and_at_its_end() {
    for workers in [0, 2] {
        let mut h = bed(workers);
        run(
            &mut h,
            "set lldp system-name edge1 tx-hold 3 tx-interval 10
             set interface lldp x1 port-desc \"to the core\" mgmt-ip4 192.0.2.1 mgmt-ip6 2001:db8::1 mgmt-oid 1.3.6.1
             set interface lldp x0",
        );
        let sent = settle(&mut h);
        let of = |name: &str| sent.iter().find(|(by, _)| *by == index(&h, name)).map(|(_, info)| info.clone()).unwrap();
        let (x0, x1) = (of("x0"), of("x1"));
        assert_eq!(sent.len(), 2);
        assert_eq!((&x0.chassis, x0.chassis.to_string()), (&x1.chassis, router_mac(0).to_string()), "one router, one chassis");
        assert_eq!((x0.port.to_string(), x1.port.to_string()), ("x0".to_owned(), "x1".to_owned()));
        assert_eq!((x1.ttl, x1.system_name.as_deref(), x1.port_description.as_deref()), (31, Some("edge1"), Some("to the core")));
        assert_eq!(x1.enabled_capabilities, [Capability::Router]);
        let managed: Vec<_> = x1.management.iter().map(|one| (&*one.address, one.oid.as_deref())).collect();
        assert_eq!(managed, [("192.0.2.1", Some("1.3.6.1")), ("2001:db8::1", Some("1.3.6.1"))]);
        assert_eq!(x0.management[0].address, router_mac(0).to_string());
        assert_eq!(x1.largest_frame, Some(1518));

        assert!(pass(&mut h, 9_900).is_empty());
        assert_eq!(pass(&mut h, 200).len(), 2);
        let x1 = index(&h, "x1");
        h.router.set_link(x1, Link { up: false, speed: None });
        assert_eq!(pass(&mut h, 10_100).len(), 1, "one link is down");
        h.router.set_link(x1, Link { up: true, speed: None });
        assert_eq!(settle(&mut h).len(), 1, "at once when it is back");

        run(&mut h, "set interface lldp x1 disable");
        let last = settle(&mut h);
        assert_eq!((last.len(), last[0].0, last[0].1.ttl), (1, x1, 0));
        run(&mut h, "set interface lldp x1 disable");
        assert!(settle(&mut h).is_empty(), "it is off already");
        h.router.say_last_words();
        assert_eq!(settle(&mut h).iter().map(|(by, info)| (*by, info.ttl)).collect::<Vec<_>>(), [(index(&h, "x0"), 0)]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn changes_of_what_a_port_says_are_sent_at_once() {
    let mut h = bed(0);
    run(&mut h, "set interface lldp x0");
    assert_eq!(settle(&mut h).len(), 1);
    run(&mut h, "set interface lldp x0 port-desc new");
    assert_eq!(settle(&mut h)[0].1.port_description.as_deref(), Some("new"));
    run(&mut h, "set interface lldp x0 port-desc new");
    assert!(settle(&mut h).is_empty(), "that is no change");
    run(&mut h, "set interface mtu packet 1400 x0");
    assert_eq!(settle(&mut h)[0].1.largest_frame, Some(1418));
    let (x0, x1) = (index(&h, "x0"), index(&h, "x1"));
    h.router.set_l2(x0, L2Mode::CrossConnect(x1)).unwrap();
    assert_eq!(settle(&mut h)[0].1.enabled_capabilities, [Capability::Bridge]);
    run(&mut h, "set lldp system-name \"\"");
    let host = settle(&mut h)[0].1.system_name.clone();
    assert_eq!(host, Some(rustix::system::uname().nodename().to_string_lossy().into_owned()));
}

#[test]
fn neighbours_are_known_until_they_fall_silent_or_say_that_they_go() {
    for workers in [0, 1] {
        let mut h = bed(workers);
        run(&mut h, "set interface lldp x0");
        settle(&mut h);
        let x0 = index(&h, "x0");
        h.inject_many(x0, &[said(1, 20), said(2, 60)], 0);
        let answers = settle(&mut h);
        assert_eq!(names(&h), ["system1", "system2"]);
        assert_eq!(answers.len(), 1, "a new neighbour is told at once");
        let port = &ports(&h)[0];
        assert_eq!(port.neighbors[0].info.management[0].address, "10.0.0.1");
        assert_eq!((port.statistics.frames_in, port.statistics.table_inserts), (2, 2));
        pass(&mut h, 15_000);
        h.inject(x0, &said(1, 20));
        settle(&mut h);
        pass(&mut h, 15_000);
        assert_eq!(names(&h), ["system1", "system2"]);
        pass(&mut h, 6_000);
        assert_eq!(names(&h), ["system2"]);
        assert_eq!(ports(&h)[0].statistics.ageouts, 1);
        h.inject(x0, &said(2, 0));
        settle(&mut h);
        assert!(names(&h).is_empty());
        h.assert_buffers_held(0);
    }
}

#[test]
fn frames_that_are_no_data_units_are_dropped_and_counted() {
    let mut h = bed(0);
    run(&mut h, "set interface lldp x0");
    settle(&mut h);
    let (x0, x1) = (index(&h, "x0"), index(&h, "x1"));
    let short = said(1, 9)[..40].to_vec();
    let mut elsewhere = said(1, 9);
    elsewhere[5] = 0x0d;
    let mut long = said(1, 9);
    long.resize(1515, 0);
    let mut other = said(1, 9);
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    let mut groups = [said(3, 9), said(4, 9)];
    (groups[0][5], groups[1][5]) = (0, 3);
    h.inject_many(x0, &[short, elsewhere, long, other], 0);
    h.inject_many(x0, &groups, 0);
    settle(&mut h);
    assert_eq!(names(&h), ["system3", "system4"], "by the other groups of LLDP");
    let expected = [
        ("lldp packets with bad TLVs", 1),
        ("not to a group of lldp", 1),
        ("data unit longer than 1500 bytes", 1),
        ("unknown ethernet type", 1),
        ("good lldp packets (processed)", 2),
    ];
    for (text, count) in expected {
        assert_eq!(h.count("lldp-input", text), count, "{text}");
    }
    let statistics = &ports(&h)[0].statistics;
    assert_eq!((statistics.frames_in, statistics.frames_discarded, statistics.frames_in_errors), (5, 3, 2));
    h.inject(x1, &said(1, 9));
    settle(&mut h);
    assert_eq!(h.count("ethernet-input", "unknown ethernet type"), 1, "where it is off");
    h.assert_buffers_held(0);
}

#[test]
fn lldp_is_heard_on_ports_of_a_bridge_and_where_untagged_frames_are_a_sub_interfaces() {
    let mut h = bed(0);
    run(&mut h, "set interface lldp x0\nset interface lldp x2");
    settle(&mut h);
    let [x0, x1, x2] = ["x0", "x1", "x2"].map(|name| index(&h, name));
    h.router.set_l2(x0, L2Mode::CrossConnect(x1)).unwrap();
    h.router.set_l2(x1, L2Mode::CrossConnect(x0)).unwrap();
    let sub = h.router.create_sub_interface(x2, 5, SubMatch::Untagged).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.inject(x0, &said(1, 9));
    h.inject(x2, &said(2, 9));
    settle(&mut h);
    let all = ports(&h);
    assert_eq!(all.iter().map(|port| port.neighbors.len()).collect::<Vec<_>>(), [1, 1]);
    // Where it is off, a cross-connect passes it on.
    run(&mut h, "set interface lldp x0 disable");
    settle(&mut h);
    let frame = said(1, 9);
    h.inject(x0, &frame);
    assert_eq!(h.run(), [(x1, frame)]);
    h.assert_buffers_held(0);
}

#[test]
fn a_flood_on_one_port_takes_nothing_from_another() {
    let mut h = bed(1);
    run(&mut h, "set interface lldp x0\nset interface lldp x1");
    settle(&mut h);
    let (x0, x1) = (index(&h, "x0"), index(&h, "x1"));
    let flood: Vec<Vec<u8>> = (0..200).map(|n| said(n, 1000)).collect();
    h.inject_many(x0, &flood, 0);
    h.inject(x1, &said(250, 1000));
    settle(&mut h);
    let all = ports(&h);
    assert_eq!((all[0].neighbors.len(), all[1].neighbors.len()), (BOX, 1), "what the box holds, at once");
    assert_eq!(h.count("lldp-input", "more data units than the port takes"), 200 - BOX as u64);
    // The box is emptied ten times a second.
    let left = all[0].statistics.frames_in;
    for _ in 0..20 {
        h.inject_many(x0, &flood, 0);
        pass(&mut h, 100);
    }
    let all = ports(&h);
    assert!(all[0].statistics.frames_in > left);
    assert!(all[0].statistics.table_inserts + all[0].statistics.table_drops <= 22 * BOX as u64);
    assert!(all[0].neighbors.len() <= NEIGHBOURS_MAX);
    h.assert_buffers_held(0);
}

#[test]
fn a_port_that_goes_leaves_nothing_behind() {
    let mut h = bed(1);
    let nodes = h.router.graph.nodes().len();
    for _ in 0..3 {
        run(&mut h, "set interface lldp x0");
        let x0 = index(&h, "x0");
        h.inject(x0, &said(1, 9));
        settle(&mut h);
        assert_eq!(names(&h), ["system1"]);
        h.router.delete_interface(x0).unwrap();
        assert!(ports(&h).is_empty());
        pass(&mut h, 60_000);
        h.router.reclaim();
        h.interface(0);
        assert!(ports(&h).is_empty(), "it is another one of the same name");
    }
    assert_eq!(h.router.graph.nodes().len(), nodes);
    h.assert_buffers_held(0);
}

#[test]
fn the_link_of_a_bond_speaks_with_its_own_address() {
    let mut h = bed(0);
    let x0 = index(&h, "x0");
    h.router.interfaces.get_mut(x0).unwrap().member_mac = Some(neighbour(9));
    run(&mut h, "set interface lldp x0");
    let now = h.router.graph.clock().timer_now();
    while h.router.run_processes(now).is_some_and(|next| next <= now) {}
    let out = h.run();
    assert_eq!(out[0].1[6..12], neighbour(9).0);
}
