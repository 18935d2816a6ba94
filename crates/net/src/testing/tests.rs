//! The harness itself, and what every node relies on.

use super::*;
use crate::interface::{L2Mode, SubMatch, VlanId};

fn frame(dst: MacAddr, rest: &[u8]) -> Vec<u8> {
    let mut bytes = dst.0.to_vec();
    bytes.extend(host_mac(0).0);
    bytes.extend(rest);
    bytes.resize(60, 0xa5);
    bytes
}

#[test]
fn a_cross_connect_passes_frames_whole_in_the_directions_configured() {
    for workers in [0, 1, 2, 4] {
        let mut h = Harness::with_workers(workers);
        let (a, b) = (h.interface(0), h.interface(1));
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        let sent = frame(host_mac(9), &[0x88, 0xb5, 1, 2, 3]);
        h.inject_many(a, &vec![sent.clone(); 300], workers);
        let got = h.run();
        assert_eq!(got.len(), 300);
        assert!(got.iter().all(|(i, f)| *i == b && *f == sent));
        assert!(h.exchange(b, &sent).is_empty(), "the other direction was not asked for");
        assert_eq!(h.count("ethernet-input", "l3 mac mismatch"), 1);
        h.router.set_l2(a, L2Mode::L3).unwrap();
        assert!(h.exchange(a, &sent).is_empty());
        h.assert_buffers_held(0);
    }
}

#[test]
fn frames_are_sorted_to_sub_interfaces_by_their_tags() {
    let mut h = Harness::new();
    let (a, b) = (h.interface(0), h.interface(1));
    let tagged = |v| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(v), inner: None, exact: true };
    let sub = h.router.create_sub_interface(a, 10, tagged(10)).unwrap();
    assert_eq!(h.router.interfaces.name(sub), "x0.10");
    assert!(h.router.create_sub_interface(a, 11, tagged(10)).is_err(), "tags twice");
    assert!(h.router.create_sub_interface(sub, 1, tagged(1)).is_err(), "no sub-interface of a sub-interface");
    h.router.set_l2(sub, L2Mode::CrossConnect(b)).unwrap();
    let sent = frame(host_mac(9), &[0x81, 0x00, 0x00, 10, 0x88, 0xb5]);
    assert!(h.exchange(a, &sent).is_empty());
    assert_eq!(h.count("ethernet-vlan", "subinterface down"), 1);
    h.router.set_interface_up(sub, true).unwrap();
    assert_eq!(h.exchange(a, &sent), [(b, sent.clone())]);
    assert_eq!(h.router.graph.interfaces().rx.sum(sub.0), (1, 60));
    let other = frame(host_mac(9), &[0x81, 0x00, 0x00, 11, 0x88, 0xb5]);
    assert!(h.exchange(a, &other).is_empty());
    assert_eq!(h.count("ethernet-vlan", "unknown vlan"), 1);
    h.router.delete_interface(a).unwrap();
    assert!(h.router.interfaces.get(sub).is_none(), "sub-interfaces go with their parent");
    h.assert_buffers_held(0);
}

#[test]
fn an_interface_that_is_down_takes_and_sends_nothing() {
    let mut h = Harness::new();
    let (a, b) = (h.interface(0), h.interface(1));
    h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
    let sent = frame(host_mac(9), &[0x88, 0xb5]);
    h.router.set_interface_up(b, false).unwrap();
    assert!(h.exchange(a, &sent).is_empty());
    assert_eq!(h.count("x1-output", "interface is down"), 1);
    h.router.set_interface_up(a, false).unwrap();
    assert!(h.exchange(a, &sent).is_empty());
    assert_eq!(h.count("ethernet-input", "interface is down"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn numbers_and_nodes_of_deleted_interfaces_are_used_again() {
    let mut h = Harness::with_workers(2);
    let a = h.interface(0);
    let nodes = h.router.graph.nodes().len();
    for _ in 0..50 {
        let b = h.interface(1);
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        h.exchange(a, &frame(host_mac(9), &[0x88, 0xb5]));
        h.router.delete_interface(b).unwrap();
        h.exchange(a, &frame(host_mac(9), &[0x88, 0xb5]));
        h.router.reclaim();
    }
    assert_eq!(h.router.graph.nodes().len(), nodes);
    let l2 = h.router.graph.nodes().into_iter().find(|n| n.name == "l2-input").unwrap();
    assert!(l2.nexts.len() <= 3, "{:?}", l2.nexts);
    assert!(h.router.interfaces.end() <= 4, "numbers are reused after their grace period");
    h.assert_buffers_held(0);
}
