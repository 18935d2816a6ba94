//! Copies, commands and messages, in a router with made-up interfaces `x0` to `x3`.

use quiver_api::defs::InterfaceIndex;
use quiver_net::api::testing::{ask, read, table};
use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac};
use quiver_wire::build::Packet;

use crate::api::*;

fn bare() -> Harness {
    Harness::with_plugin(&crate::plugin(), 0, 4)
}

/// `x0` and `x1` are cross-connected.
fn scene() -> Scene {
    let mut s = Scene { h: bare() };
    s.run("set interface l2 xconnect x0 x1");
    s.run("set interface l2 xconnect x1 x0");
    s
}

/// Where a frame that comes in on an interface leaves, in order.
fn leaves(s: &mut Scene, name: &str) -> Vec<String> {
    let frame = Packet::ethernet(host_mac(7), host_mac(8)).ipv4([1, 2, 3, 4], [4, 3, 2, 1]).udp(1, 2).payload(&[7; 99]).build();
    let interface = s.interface(name);
    let sent = s.h.exchange(interface, &frame);
    assert!(sent.iter().all(|(_, copy)| *copy == frame));
    let mut names: Vec<String> = sent.iter().map(|(index, _)| s.h.router.interfaces.name(*index)).collect();
    names.sort();
    names
}

#[test]
fn frames_of_layer_2_are_copied_in_the_directions_asked_for() {
    let mut s = scene();
    for (state, from, to) in [("rx", 1, 0), ("tx", 0, 1), ("both", 1, 1)] {
        s.run(&format!("set interface span x0 l2 destination x2 {state}"));
        let expected = |out: &str, copies: usize| [vec![out.to_owned()], vec!["x2".to_owned(); copies]].concat();
        assert_eq!(leaves(&mut s, "x0"), expected("x1", from), "{state}");
        assert_eq!(leaves(&mut s, "x1"), expected("x0", to), "{state}");
    }
    assert_eq!(s.h.count("span-l2-input", "SPAN copies sent"), 2);
    s.run("set interface span x0 l2 disable");
    assert_eq!(leaves(&mut s, "x0"), ["x1"]);
    s.h.assert_buffers_held(0);
}

#[test]
fn frames_that_leave_a_device_are_copied() {
    let mut s = scene();
    s.run("set interface span x1 destination x2 tx");
    s.run("set interface span x1 destination x3 tx");
    assert_eq!(leaves(&mut s, "x0"), ["x1", "x2", "x3"]);
    s.run("set interface span x1 destination x2 disable");
    assert_eq!(leaves(&mut s, "x0"), ["x1", "x3"]);
    s.h.assert_buffers_held(0);
}

#[test]
fn a_copy_is_not_copied() {
    let mut s = scene();
    s.run("set interface span x1 destination x2 tx");
    s.run("set interface span x2 destination x1 tx");
    s.run("set interface span x2 destination x3 tx");
    assert_eq!(leaves(&mut s, "x0"), ["x1", "x2"]);
    s.h.assert_buffers_held(0);
}

#[test]
fn a_mirror_ends_with_its_destination() {
    let mut s = scene();
    s.run("set interface span x0 l2 destination x2");
    s.run("set interface span x1 destination x2 tx");
    let x2 = s.interface("x2");
    s.h.router.delete_interface(x2).unwrap();
    assert_eq!(s.run("show interface span"), "");
    assert_eq!(leaves(&mut s, "x0"), ["x1"]);
    s.h.assert_buffers_held(0);
}

#[test]
fn what_cannot_be_mirrored_is_refused() {
    let mut s = scene();
    s.run("create sub-interfaces x3 100");
    for (words, why) in [
        ("x0", "destination"),
        ("x0 destination x0", "itself"),
        ("x0 destination local0", "no Ethernet frames"),
        ("x3.100 destination x2", "sub-interface"),
        ("x9 destination x2", "unknown interface"),
    ] {
        let error = s.error(&format!("set interface span {words}"));
        assert!(error.contains(why), "{words}: {error}");
    }
}

#[test]
fn the_configuration_makes_the_same_mirrors_again() {
    let lines = "set interface span x0 destination x1 rx
set interface span x0 l2 destination x2 tx
set interface span x3 destination x2";
    assert_rebuilt(&[crate::ops::register], bare, lines, &["show interface span"]);
}

#[test]
fn mirrors_are_set_and_shown_by_messages() {
    let table = table(add);
    let mut s = scene();
    let (x0, x2) = (s.interface("x0").0, s.interface("x2").0);
    let set = |state, to| SwInterfaceSpanEnableDisable {
        sw_if_index_from: InterfaceIndex(x0),
        sw_if_index_to: InterfaceIndex(to),
        state,
        is_l2: true,
    };
    let mut change = |message: &SwInterfaceSpanEnableDisable| ask(&mut s.h, &table, 1, message);
    assert_eq!(change(&set(SpanState::SPAN_STATE_API_RX_TX, x2)), [0_i32.to_be_bytes()]);
    assert_eq!(change(&set(SpanState::SPAN_STATE_API_RX, x0)), [(-71_i32).to_be_bytes()]);
    let all = ask(&mut s.h, &table, 1, &SwInterfaceSpanDump { is_l2: true });
    let details: SwInterfaceSpanDetails = read(&all[0]);
    assert_eq!((all.len(), details.sw_if_index_to.0, details.state), (1, x2, SpanState::SPAN_STATE_API_RX_TX));
    assert!(ask(&mut s.h, &table, 1, &SwInterfaceSpanDump { is_l2: false }).is_empty());
    assert_eq!(ask(&mut s.h, &table, 1, &set(SpanState::SPAN_STATE_API_DISABLED, x2)), [0_i32.to_be_bytes()]);
    assert!(ask(&mut s.h, &table, 1, &SwInterfaceSpanDump { is_l2: true }).is_empty());
}
