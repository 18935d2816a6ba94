//! LACP through the nodes: two bonds of one router, whose members are connected with one another.

use std::time::{Duration, Instant};

use quiver_net::ops::testing::assert_rebuilt;

use super::*;
use crate::lacp::lag::{Mux, Receive};
use crate::lacp::pdu::Pdu;
use crate::ops::{PortInfo, ports};

/// x0 and x1 lead to x2 and x3.
fn other(name: &str) -> &'static str {
    match name {
        "x0" => "x2",
        "x1" => "x3",
        "x2" => "x0",
        _ => "x1",
    }
}

fn bed_of_two(workers: usize) -> Harness {
    let mut h = bed(workers);
    run(
        &mut h,
        "create bond mode lacp load-balance l34
         create bond mode lacp
         bond add BondEthernet0 x0
         bond add BondEthernet0 x1
         bond add BondEthernet1 x2 passive
         bond add BondEthernet1 x3 passive
         set interface state BondEthernet0 up
         set interface state BondEthernet1 up",
    );
    h
}

/// Carries frames of LACP over until `wanted` holds; gives them.
fn carry(h: &mut Harness, what: &str, mut wanted: impl FnMut(&mut Harness) -> bool) -> Vec<(String, Vec<u8>)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut all, mut thread) = (Vec::new(), 0);
    while !wanted(h) {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        for (interface, frame) in h.run() {
            if frame[12..14] != [0x88, 0x09] {
                continue;
            }
            let name = h.router.interfaces.name(interface);
            thread += 1;
            receive(h, other(&name), std::slice::from_ref(&frame), thread);
            all.push((name, frame));
        }
        let now = h.router.graph.clock().timer_now();
        h.router.run_processes(now);
    }
    all
}

fn shown(h: &mut Harness) -> Vec<PortInfo> {
    ports(&mut h.router, None).unwrap()
}

fn come_up(h: &mut Harness) -> Vec<(String, Vec<u8>)> {
    carry(h, "both are up", |h| link(h, "BondEthernet0") && link(h, "BondEthernet1") && all_distribute(h))
}

fn all_distribute(h: &mut Harness) -> bool {
    shown(h).iter().all(|port| port.mux == Mux::Distributing)
}

#[test]
fn two_bonds_agree_and_packets_pass() {
    for workers in [0, 2] {
        let mut h = bed_of_two(workers);
        assert!(!link(&h, "BondEthernet0"), "the other side has not agreed");
        let frames = come_up(&mut h);
        for (name, frame) in &frames {
            let own: u8 = name[1..].parse().unwrap();
            assert_eq!(frame[..6], [1, 0x80, 0xc2, 0, 0, 2]);
            assert_eq!(frame[6..12], quiver_net::testing::router_mac(own).0, "the member's own MAC address");
            assert!(Pdu::parse(&frame[14..]).is_some() && frame.len() == 124);
        }
        for port in shown(&mut h) {
            assert_eq!((port.receive, port.selected, port.enabled, port.bad), (Receive::Current, true, true, 0));
            assert!(port.received > 0 && port.sent > 0 && port.interval == Some(1));
            assert_eq!(port.partner.states.contains(&"activity"), port.bond == "BondEthernet1");
        }
        let text = run(&mut h, "show lacp");
        assert_eq!(text.matches("RX-state: current, MUX-state: collecting distributing").count(), 4, "{text}");
        let details = run(&mut h, "show lacp x2 details");
        assert!(details.contains("x2 of BondEthernet1") && details.contains("sends every 1 s"), "{details}");

        run(
            &mut h,
            "set interface ip address BondEthernet0 10.0.0.1/24\nset ip neighbor BondEthernet0 10.0.0.2 02:00:00:00:20:02 static",
        );
        let frame =
            Packet::ethernet(host_mac(0), mac(&h, "BondEthernet1")).ipv4([10, 9, 9, 9], [10, 0, 0, 2]).udp(1, 2).payload(&[7; 40]);
        let frame = frame.build();
        run(&mut h, "set interface ip address BondEthernet1 10.9.9.1/24");
        receive(&mut h, "x3", std::slice::from_ref(&frame), 0);
        let out = h.run();
        let of_flow: Vec<&IfIndex> = out.iter().filter(|(_, f)| f.len() == frame.len()).map(|(by, _)| by).collect();
        assert_eq!(of_flow.len(), 1);
        assert!([index(&h, "x0"), index(&h, "x1")].contains(of_flow[0]));

        set_link(&mut h, "x1", false);
        assert_eq!(active(&h), ["x0"], "at once");
        run(&mut h, "bond del x0");
        assert!(!link(&h, "BondEthernet0"));
        h.run();
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_member_receives_nothing_before_the_other_side_has_agreed() {
    let mut h = bed_of_two(0);
    let frame = flow(&h, 1);
    receive(&mut h, "x0", &[frame], 0);
    h.run();
    assert_eq!(h.count("bond-input", "received by a member that is not active"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn markers_are_answered_and_what_is_no_unit_is_counted() {
    let mut h = bed_of_two(1);
    h.run();
    let slow = |rest: &[u8]| {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0x20, 2, 0x88, 0x09];
        frame.extend(rest);
        frame.resize(124, 0);
        frame
    };
    let marker = slow(&[2, 1, 1, 16, 0, 3, 9, 9, 9, 9, 9, 9, 1, 2, 3, 4]);
    receive(&mut h, "x2", std::slice::from_ref(&marker), 0);
    let mut answers = Vec::new();
    h.until("an answer", |h| {
        answers.extend(h.run().into_iter().filter(|(_, frame)| frame.get(14) == Some(&2)));
        !answers.is_empty()
    });
    let (by, answer) = &answers[0];
    assert_eq!((*by, &answer[6..12], answer[16]), (index(&h, "x2"), &quiver_net::testing::router_mac(2).0[..], 2));
    assert_eq!(answer[17..], marker[17..]);
    receive(&mut h, "x2", &[slow(&[7]), slow(&[1, 1, 9]), vec![1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0x20, 2, 0x88, 0x09]], 0);
    h.until("all are counted", |h| {
        h.run();
        h.count("lacp-session", "bad data unit") == 3
    });
    let port = shown(&mut h).into_iter().find(|port| port.interface == "x2").unwrap();
    assert_eq!((port.bad, port.markers), (3, 1));
    h.assert_buffers_held(0);
}

#[test]
fn machines_move_to_another_thread_with_their_state() {
    use quiver_graph::ThreadPlan;
    let mut h = bed_of_two(2);
    come_up(&mut h);
    h.router.set_workers(&[ThreadPlan::default()]).unwrap();
    assert!(all_distribute(&mut h));
    h.router.set_workers(&[]).unwrap();
    assert!(all_distribute(&mut h));
    let before: u64 = shown(&mut h).iter().map(|port| port.received).sum();
    carry(&mut h, "they go on", |h| shown(h).iter().map(|port| port.received).sum::<u64>() > before + 4);
    assert!(all_distribute(&mut h));
    h.assert_buffers_held(0);
}

#[test]
fn lacp_refuses_what_cannot_be() {
    let mut h = bed(0);
    run(&mut h, "create bond mode xor\nbond add BondEthernet0 x0");
    assert!(error(&mut h, "bond add BondEthernet0 x1 passive").contains("only members of bonds with LACP"));
    assert!(error(&mut h, "show lacp x0").contains("x0 is not a member of a bond with LACP"));
    assert_eq!(bonds(&h)[0].members.len(), 1);
}

#[test]
fn lacp_is_configured_again_as_it_was() {
    assert_rebuilt(
        &[crate::ops::register],
        || Harness::with_plugin(&crate::plugin(), 1, 0),
        "create packet-generator interface pg0
         create packet-generator interface pg1
         create packet-generator interface pg2
         create bond mode lacp load-balance l23
         bond add BondEthernet0 pg1 passive
         bond add BondEthernet0 pg0 long-timeout
         bond add BondEthernet0 pg2 passive long-timeout
         set interface state pg0 up",
        &["show bond details"],
    );
}
