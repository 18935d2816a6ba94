//! Frames never go round for ever: what would make them is refused, and what cannot be seen is bounded.

use proptest::prelude::*;

use super::*;
use crate::interface::{InterfaceError, L2Mode, SubMatch, VlanId};

fn loopbacks(h: &mut Harness, n: usize) -> Vec<IfIndex> {
    let all: Vec<IfIndex> = (0..n).map(|_| h.router.create_loopback(None, None).unwrap()).collect();
    for index in &all {
        h.router.set_interface_up(*index, true).unwrap();
    }
    all
}

fn sub(h: &mut Harness, parent: IfIndex, vlan: u16) -> IfIndex {
    let matching = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(vlan), inner: None, exact: false };
    let index = h.router.create_sub_interface(parent, vlan.into(), matching).unwrap();
    h.router.set_interface_up(index, true).unwrap();
    index
}

fn refused(result: Result<(), InterfaceError>) {
    let error = result.expect_err("a circle").to_string();
    assert!(error.contains("circle"), "{error}");
}

#[test]
fn cross_connects_of_loopbacks_in_a_circle_are_refused_whichever_comes_last() {
    for n in [2, 3, 9] {
        for last in 0..n {
            let mut h = Harness::new();
            let all = loopbacks(&mut h, n);
            let next = |at: usize| L2Mode::CrossConnect(all[(at + 1) % n]);
            for at in (0..n).filter(|at| *at != last) {
                h.router.set_l2(all[at], next(at)).unwrap();
            }
            refused(h.router.set_l2(all[last], next(last)));
            assert_eq!(h.router.interfaces.get(all[last]).unwrap().l2, L2Mode::L3, "nothing has changed");
            let device = h.interface(0);
            h.router.set_l2(all[last], L2Mode::CrossConnect(device)).unwrap();
            h.router.set_l2(device, L2Mode::CrossConnect(all[0])).unwrap();
            let sent = frame(mac(1), mac(2));
            let got = h.exchange(device, &sent);
            assert_eq!(got.len(), 1, "through the loopbacks up to the last, which leads out: {:?}", h.counts());
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn a_bridge_domain_between_loopbacks_is_part_of_a_circle() {
    let mut h = Harness::new();
    let all = loopbacks(&mut h, 2);
    let (device, tagged) = (h.interface(0), sub(&mut h, all[1], 7));
    // Received on loop0, its BVI, a frame is flooded to the sub-interface of loop1; received on loop1 it would go to loop0.
    h.router.set_bridge(all[0], 5, PortKind::Bvi, 0).unwrap();
    h.router.set_bridge(device, 5, PortKind::Normal, 0).unwrap();
    h.router.set_bridge(tagged, 5, PortKind::Normal, 0).unwrap();
    refused(h.router.set_l2(all[1], L2Mode::CrossConnect(all[0])));
    h.router.set_l2(tagged, L2Mode::L3).unwrap();
    h.router.set_l2(all[1], L2Mode::CrossConnect(all[0])).unwrap();
    let port = L2Mode::Bridge { domain: 5, index: 0, kind: PortKind::Normal, group: 0 };
    refused(h.router.set_l2(tagged, port));
    assert_eq!(h.router.bridge_domain(5).unwrap().ports.len(), 2);
    h.router.set_bridge(tagged, 6, PortKind::Normal, 0).unwrap();
}

#[test]
fn two_sub_interfaces_of_a_loopback_in_one_domain_would_double_every_frame() {
    let mut h = Harness::new();
    let parent = loopbacks(&mut h, 1)[0];
    let (a, b, c) = (sub(&mut h, parent, 1), sub(&mut h, parent, 2), sub(&mut h, parent, 3));
    h.router.set_bridge(a, 5, PortKind::Normal, 1).unwrap();
    assert!(h.router.set_bridge(b, 5, PortKind::Normal, 0).unwrap_err().to_string().contains("circle"));
    h.router.set_bridge(b, 5, PortKind::Normal, 1).unwrap();
    // Domain 5 leads nowhere; from domain 6 frames reach 5 and no further.
    h.router.set_bridge(c, 6, PortKind::Normal, 0).unwrap();
    refused(h.router.set_l2(b, L2Mode::CrossConnect(c)).and_then(|()| h.router.set_l2(c, L2Mode::CrossConnect(b))));
}

#[test]
fn ordinary_layer_2_is_not_refused() {
    let (mut h, x) = bed(0, 3);
    let all = loopbacks(&mut h, 3);
    h.router.set_bridge(all[0], 10, PortKind::Bvi, 0).unwrap();
    h.router.set_bridge(all[1], 11, PortKind::Bvi, 0).unwrap();
    h.router.set_l2(x[0], L2Mode::CrossConnect(x[1])).unwrap();
    h.router.set_l2(x[1], L2Mode::CrossConnect(x[0])).unwrap();
    h.router.set_l2(x[2], L2Mode::CrossConnect(all[0])).unwrap();
    h.router.set_l2(all[2], L2Mode::CrossConnect(all[0])).unwrap();
    h.router.set_l2(all[2], L2Mode::L3).unwrap();
}

/// Makes the circle that configuration refuses, as a bug in the check would.
fn force(h: &mut Harness, index: IfIndex, peer: IfIndex) {
    h.router.enter_mode(index, L2Mode::CrossConnect(peer)).unwrap();
}

#[test]
fn a_circle_that_is_there_all_the_same_costs_its_frames_and_nothing_else() {
    for workers in [0, 1, 2] {
        let mut h = Harness::with_workers(workers);
        let all = loopbacks(&mut h, 2);
        let (x, y) = (h.interface(0), h.interface(1));
        h.router.set_l2(x, L2Mode::CrossConnect(all[0])).unwrap();
        h.router.set_l2(y, L2Mode::CrossConnect(x)).unwrap();
        force(&mut h, all[0], all[1]);
        force(&mut h, all[1], all[0]);
        let sent = frame(mac(1), mac(2));
        h.inject_many(x, &vec![sent.clone(); 40], 0);
        h.inject_many(y, &vec![sent; 30], 0);
        assert_eq!(h.run().len(), 30, "those of the other cross-connect pass");
        assert_eq!(h.count("packet-loop", "packet loop"), 40);
        assert_eq!(h.counts().values().sum::<u64>(), 40, "{:?}", h.counts());
        h.assert_buffers_held(0);
    }
}

#[derive(Clone, Debug)]
enum Change {
    Connect(usize, usize),
    Bridge(usize, u32, bool, u8),
    Route(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..PLACES;
    prop_oneof![
        4 => (at.clone(), at.clone()).prop_map(|(a, b)| Change::Connect(a, b)),
        4 => (at.clone(), 1..4_u32, any::<bool>(), 0..2_u8).prop_map(|(a, d, bvi, g)| Change::Bridge(a, d, bvi, g)),
        1 => at.prop_map(Change::Route),
    ]
}

/// Three devices, four loopbacks with two sub-interfaces each.
const PLACES: usize = 3 + 4 * 3;

/// Whether a frame sent to the places is ever cut off, and whether all buffers come back.
fn frames_end(changes: &[Change], forced: bool) -> u64 {
    let mut h = Harness::with_buffers(0, 2048);
    let mut places: Vec<IfIndex> = (0..3).map(|n| h.interface(n)).collect();
    for parent in loopbacks(&mut h, 4) {
        places.push(parent);
        places.extend([1, 2].map(|vlan| sub(&mut h, parent, vlan)));
    }
    for change in changes {
        // What is refused is none of this test's business.
        let _ = match *change {
            Change::Connect(a, b) if forced => h.router.enter_mode(places[a], L2Mode::CrossConnect(places[b])),
            Change::Connect(a, b) => h.router.set_l2(places[a], L2Mode::CrossConnect(places[b])),
            Change::Bridge(a, domain, bvi, group) => {
                let kind = if bvi { PortKind::Bvi } else { PortKind::Normal };
                h.router.set_l2(places[a], L2Mode::Bridge { domain, index: 0, kind, group })
            }
            Change::Route(a) => h.router.set_l2(places[a], L2Mode::L3),
        };
    }
    settle(&mut h);
    for place in &places {
        for vlan in [None, Some(1), Some(2), Some(3)] {
            let packet = Packet::ethernet(mac(1), MacAddr::BROADCAST);
            let packet = if let Some(vlan) = vlan { packet.vlan(vlan) } else { packet };
            h.inject(*place, &packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"round?").pad_to(60).build());
        }
        h.run();
        settle(&mut h);
    }
    h.assert_buffers_held(0);
    h.count("packet-loop", "packet loop")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_configuration_allows_never_loops(changes in proptest::collection::vec(change(), 1..40)) {
        prop_assert_eq!(frames_end(&changes, false), 0);
    }

    #[test]
    fn whatever_the_modes_are_an_iteration_ends_and_buffers_are_whole(changes in proptest::collection::vec(change(), 1..40)) {
        frames_end(&changes, true);
    }
}
