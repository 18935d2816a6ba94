//! Which way packets take.

use std::collections::BTreeMap;

use quiver_graph::IfIndex;
use quiver_net::interface::L2Mode;
use quiver_net::testing::{host_mac, router_mac};
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;

use super::*;

fn of_flows(got: &[(u16, IfIndex)]) -> BTreeMap<u16, IfIndex> {
    got.iter().copied().collect()
}

#[test]
fn each_flow_keeps_to_one_member_and_all_members_are_used() {
    for workers in [0, 1, 2] {
        let mut h = routed(workers, "xor load-balance l34");
        let first = forwarded(&mut h, 200, 0);
        assert_eq!(first.len(), 200);
        for name in ["x0", "x1", "x2"] {
            let member = index(&h, name);
            let share = first.iter().filter(|(_, by)| *by == member).count();
            assert!((30..110).contains(&share), "{name} has {share} of 200");
        }
        let again = forwarded(&mut h, 200, workers);
        assert_eq!(of_flows(&first), of_flows(&again), "on any thread");
        let bond = index(&h, "BondEthernet0");
        assert_eq!(h.router.graph.interfaces().tx.sum(bond.0).0, 400);
        h.assert_buffers_held(0);
    }
}

#[test]
fn without_ports_all_flows_of_two_hosts_keep_to_one_member() {
    for mode in ["xor", "xor load-balance l2", "xor load-balance l23"] {
        let mut h = routed(1, mode);
        let got = forwarded(&mut h, 50, 0);
        assert_eq!(got.len(), 50);
        assert!(got.iter().all(|(_, by)| *by == got[0].1), "{mode}");
    }
}

#[test]
fn a_member_that_goes_down_moves_its_own_flows_and_no_others() {
    let mut h = routed(1, "xor load-balance l34");
    let before = of_flows(&forwarded(&mut h, 200, 0));
    let x1 = index(&h, "x1");
    for by_link in [true, false] {
        if by_link {
            set_link(&mut h, "x1", false);
        } else {
            run(&mut h, "set interface state x1 down");
        }
        let during = of_flows(&forwarded(&mut h, 200, 0));
        assert_eq!(during.len(), 200, "no packet is lost");
        for (flow, by) in &during {
            assert!(*by != x1 && (before[flow] == x1 || before[flow] == *by), "{flow}");
        }
        assert_eq!(active(&h), ["x0", "x2"]);
        set_link(&mut h, "x1", true);
        run(&mut h, "set interface state x1 up");
        assert_eq!(of_flows(&forwarded(&mut h, 200, 0)), before, "they come back");
    }
    assert_eq!(h.count("x1-output", "interface is down"), 0);
    h.assert_buffers_held(0);
}

#[test]
fn packets_go_round_robin_or_to_all() {
    let mut h = routed(0, "round-robin");
    let got = forwarded(&mut h, 9, 0);
    for name in ["x0", "x1", "x2"] {
        assert_eq!(got.iter().filter(|(_, by)| *by == index(&h, name)).count(), 3, "{name}");
    }
    let mut h = routed(1, "broadcast");
    let got = forwarded(&mut h, 5, 0);
    assert_eq!(got.len(), 15);
    for flow in 0..5 {
        let mut by: Vec<u32> = got.iter().filter(|(n, _)| *n == flow).map(|(_, by)| by.0).collect();
        by.sort_unstable();
        assert_eq!(by, ["x0", "x1", "x2"].map(|name| index(&h, name).0), "flow {flow}");
    }
    let bond = index(&h, "BondEthernet0");
    assert_eq!(h.router.graph.interfaces().tx.sum(bond.0).0, 5, "a packet counts once");
    h.assert_buffers_held(0);
}

/// Gratuitous ARP requests among frames: who sent them, and where.
fn announced(frames: &[(IfIndex, Vec<u8>)]) -> Vec<IfIndex> {
    let gratuitous = |frame: &[u8]| frame[..6] == [0xff; 6] && frame[12..14] == [8, 6] && frame[28..32] == frame[38..42];
    frames.iter().filter(|(_, frame)| gratuitous(frame)).map(|(interface, _)| *interface).collect()
}

fn run_processes(h: &mut Harness) -> Vec<(IfIndex, Vec<u8>)> {
    let now = h.router.graph.clock().timer_now();
    h.router.run_processes(now);
    h.run()
}

#[test]
fn an_active_backup_bond_uses_one_member_and_announces_itself_by_the_next() {
    let mut h = routed(1, "active-backup");
    run_processes(&mut h);
    let [x0, x1, x2] = ["x0", "x1", "x2"].map(|name| index(&h, name));
    let by = |h: &mut Harness| {
        let got = forwarded(h, 10, 0);
        assert_eq!(got.len(), 10);
        assert!(got.iter().all(|(_, by)| *by == got[0].1));
        got[0].1
    };
    assert_eq!((by(&mut h), active(&h)), (x0, vec!["x0".to_owned()]));
    set_link(&mut h, "x0", false);
    assert_eq!(announced(&run_processes(&mut h)), [x1], "where the bond is now");
    assert_eq!(by(&mut h), x1);
    set_link(&mut h, "x0", true);
    assert_eq!(by(&mut h), x1, "it stays where it is");
    run(&mut h, "set interface bond x2 weight 5");
    assert_eq!((announced(&run_processes(&mut h)), by(&mut h)), (vec![x2], x2), "but for a larger weight");
    run(&mut h, "bond del x2");
    assert_eq!(by(&mut h), x0);

    let frame = Packet::ethernet(host_mac(0), mac(&h, "BondEthernet0")).ipv4([10, 0, 0, 2], [10, 0, 3, 2]).udp(1, 2).build();
    receive(&mut h, "x1", std::slice::from_ref(&frame), 0);
    h.run();
    assert_eq!(h.count("bond-input", "received by a member that is not active"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn what_members_receive_is_the_bonds() {
    for workers in [0, 2] {
        let mut h = routed(workers, "xor");
        run(&mut h, "set ip neighbor x3 10.0.3.2 02:00:00:00:10:03 static");
        let bond = index(&h, "BondEthernet0");
        let to = |dst: MacAddr, n: u16| {
            let frame = Packet::ethernet(MacAddr([2, 0, 0, 0, 0x20, 2]), dst).ipv4([10, 0, 0, 2], [10, 0, 3, 2]);
            frame.udp(7, 9).payload(&n.to_be_bytes()).build()
        };
        let own = mac(&h, "BondEthernet0");
        assert_eq!(own, router_mac(0), "that of the first member");
        for (n, member) in (1..).zip(["x0", "x1", "x2"]) {
            receive(&mut h, member, &[to(own, n), to(own, n)], workers);
            let got = h.run();
            assert_eq!(got.iter().filter(|(by, f)| *by == index(&h, "x3") && number(f) == Some(n)).count(), 2, "{member}");
            assert_eq!(h.router.graph.interfaces().rx.sum(bond.0).0, 2 * u64::from(n));
        }
        receive(&mut h, "x1", &[to(router_mac(9), 1)], 0);
        h.run();
        assert_eq!(h.count("ethernet-input", "l3 mac mismatch"), 1);
        run(&mut h, "set interface state BondEthernet0 down");
        receive(&mut h, "x1", &[to(own, 1)], 0);
        assert!(h.run().iter().all(|(_, frame)| number(frame).is_none()));
        assert_eq!(h.count("ethernet-input", "interface is down"), 1);
        h.assert_buffers_held(0);
    }
}

#[test]
fn frames_of_one_link_stay_with_the_member_and_bpdus_are_the_bonds() {
    let mut h = routed(0, "xor");
    run(&mut h, "create bridge-domain 10\nset interface ip address del BondEthernet0 all");
    let [bond, x3] = ["BondEthernet0", "x3"].map(|name| index(&h, name));
    h.router.set_l2(bond, L2Mode::CrossConnect(x3)).unwrap();
    let frame = |last: u8, ether_type: u16| {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, last, 2, 0, 0, 0, 0x20, 2];
        frame.extend(ether_type.to_be_bytes());
        frame.resize(60, 0);
        frame
    };
    receive(&mut h, "x1", &[frame(0, 38), frame(1, 0x8808), frame(14, 0x88cc)], 0);
    let out: Vec<(IfIndex, Vec<u8>)> = h.run();
    assert_eq!(out, [(x3, frame(0, 38))]);
    assert_eq!(h.count("bond-input", "frames of one link, left to the member"), 2);
    assert_eq!(h.count("ethernet-input", "unknown ethernet type"), 2);
    h.assert_buffers_held(0);
}

#[test]
fn vlans_and_bridges_work_on_a_bond() {
    let mut h = bed(1);
    run(
        &mut h,
        "create bond mode xor
         bond add BondEthernet0 x0
         bond add BondEthernet0 x1
         set interface state BondEthernet0 up
         create sub-interfaces BondEthernet0 7
         set interface state BondEthernet0.7 up
         set interface ip address BondEthernet0.7 10.0.7.1/24
         set ip neighbor BondEthernet0.7 10.0.7.2 02:00:00:00:20:02 static
         set interface ip address x3 10.0.3.1/24
         ip route add 20.0.0.0/8 via 10.0.7.2 BondEthernet0.7",
    );
    h.run();
    let frames: Vec<Vec<u8>> = (0..4).map(|n| flow(&h, n)).collect();
    let x3 = index(&h, "x3");
    h.inject_many(x3, &frames, 0);
    let out = h.run();
    assert_eq!(out.iter().filter(|(_, f)| f[12..16] == [0x81, 0, 0, 7] && f[16..18] == [8, 0]).count(), 4);
    let sub = index(&h, "BondEthernet0.7");
    assert_eq!(h.router.graph.interfaces().tx.sum(sub.0).0, 4);

    run(&mut h, "delete sub-interface BondEthernet0.7\nset interface ip address del x3 10.0.3.1/24");
    run(&mut h, "create bridge-domain 10\nset interface l2 bridge BondEthernet0 10\nset interface l2 bridge x3 10");
    let frame = Packet::ethernet(host_mac(1), host_mac(3)).ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
    receive(&mut h, "x1", std::slice::from_ref(&frame), 0);
    assert_eq!(h.run(), [(x3, frame)], "flooded to the other port alone");
    let answer = Packet::ethernet(host_mac(3), host_mac(1)).ipv4([2, 2, 2, 2], [1, 1, 1, 1]).udp(2, 1).build();
    h.inject(x3, &answer);
    let out = h.run();
    assert_eq!(out.len(), 1);
    assert!([index(&h, "x0"), index(&h, "x1")].contains(&out[0].0));
    h.assert_buffers_held(0);
}

#[test]
fn a_bond_without_a_member_that_works_has_no_link_and_drops() {
    let mut h = routed(1, "xor");
    assert!(link(&h, "BondEthernet0"));
    for name in ["x0", "x1", "x2"] {
        assert!(link(&h, "BondEthernet0"), "with {name}");
        set_link(&mut h, name, false);
    }
    assert!(!link(&h, "BondEthernet0"));
    set_link(&mut h, "x2", true);
    assert!(link(&h, "BondEthernet0"));
    run(&mut h, "set interface state BondEthernet0 down");
    assert!(!link(&h, "BondEthernet0"), "as in VPP");
    run(&mut h, "set interface state BondEthernet0 up");
    assert!(link(&h, "BondEthernet0"));
    // Frames of a bridge do not ask for the link.
    run(&mut h, "set interface ip address del BondEthernet0 all\nset interface ip address del x3 all");
    let [bond, x3] = ["BondEthernet0", "x3"].map(|name| index(&h, name));
    h.router.set_l2(x3, L2Mode::CrossConnect(bond)).unwrap();
    set_link(&mut h, "x2", false);
    h.inject(x3, &[0xa5; 60]);
    h.run();
    assert_eq!(h.count("BondEthernet0-tx", "no active member"), 1);
    h.assert_buffers_held(0);
}
