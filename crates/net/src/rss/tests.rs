use std::collections::HashMap;

use super::*;
use crate::interface::L2Mode;
use crate::testing::{Harness, host_mac};

const SYMMETRIC: HashInput = HashInput { symmetric: true, l4: true };

fn frame(flow: u16, number: u32) -> Vec<u8> {
    let mut frame = host_mac(9).0.to_vec();
    frame.extend(host_mac(1).0);
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend([0, 80, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn config(workers: &[usize]) -> Option<RssConfig> {
    Some(RssConfig { workers: workers.to_vec(), input: SYMMETRIC })
}

/// Puts frames in at `worker-handoff`, as the packet generator does.
fn send(h: &mut Harness, interface: IfIndex, frames: Vec<Vec<u8>>) {
    let node = h.router.graph.node(NODE).unwrap();
    let inject = h.router.graph.node("test-inject").unwrap();
    let to = h.router.graph.edge(inject, node).unwrap();
    let thread = h.router.graph.fleet().threads()[0];
    h.router.graph.fleet().on(thread, move |w| {
        w.at_node(inject, |cx| {
            for bytes in &frames {
                let packet = cx.alloc_bytes(bytes, interface).unwrap();
                cx.emit(to, packet);
            }
        })
    });
}

#[test]
fn flows_are_spread_over_the_workers_named_and_stay_in_order() {
    for workers in [1, 2, 4] {
        let mut h = Harness::with_workers(workers);
        let (a, b) = (h.interface(0), h.interface(1));
        h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
        let all: Vec<usize> = (0..workers).collect();
        h.router.set_rss(a, config(&all)).unwrap();
        assert_eq!(h.router.rss(a).unwrap().workers, all);
        let mut got = Vec::new();
        for round in 0..10_u32 {
            // No more at a time than a ring holds.
            send(&mut h, a, (0..1000_u32).map(|n| frame((n % 50) as u16, round * 1000 + n)).collect());
            h.until("all have left", |h| {
                got.extend(h.run());
                got.len() == 1000 * (round as usize + 1)
            });
        }
        let mut last: HashMap<u16, u32> = HashMap::new();
        for (_, frame) in &got {
            let flow = u16::from_be_bytes([frame[34], frame[35]]);
            let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
            let before = last.insert(flow, number);
            assert!(before.is_none_or(|b| b < number), "flow {flow}: {number} after {before:?}");
        }
        for thread in h.router.graph.fleet().threads() {
            let node = h.router.graph.node("l2-input").unwrap();
            assert!(h.router.graph.figures(node, thread).vectors > 500, "thread {thread} has its share");
        }
        assert_eq!(h.count(NODE, "congestion drop"), 0);
        assert_eq!(h.count(NODE, "packets handed off") > 0, workers > 1);
        h.router.set_rss(a, None).unwrap();
        assert!(h.router.rss(a).is_none() && h.router.graph.features_of(a).is_empty());
        h.assert_buffers_held(0);
    }
}

#[test]
fn workers_that_leave_are_passed_over_and_used_again_when_they_return() {
    let mut h = Harness::with_workers(4);
    let (a, b) = (h.interface(0), h.interface(1));
    h.router.set_l2(a, L2Mode::CrossConnect(b)).unwrap();
    h.router.set_rss(a, config(&[1, 2, 3])).unwrap();
    let plans = vec![quiver_graph::ThreadPlan::default(); 4];
    for workers in [2, 1, 0, 3, 4] {
        h.router.set_workers(&plans[..workers]).unwrap();
        send(&mut h, a, (0..1000_u32).map(|n| frame(n as u16, n)).collect());
        let mut got = Vec::new();
        h.until("all have left", |h| {
            got.extend(h.run());
            got.len() == 1000
        });
    }
    assert_eq!(h.count(NODE, "congestion drop"), 0);
    let node = h.router.graph.node("l2-input").unwrap();
    assert!((2..=4).all(|t| h.router.graph.figures(node, t).vectors > 0));
    h.router.delete_interface(a).unwrap();
    h.assert_buffers_held(0);
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let mut h = Harness::with_workers(2);
    let a = h.interface(0);
    assert!(matches!(h.router.set_rss(a, config(&[2])), Err(InterfaceError::Range { what: "worker", value: 2, .. })));
    assert!(h.router.set_rss(a, config(&[])).is_err());
    assert!(h.router.set_rss(IfIndex(77), config(&[0])).is_err());
    assert!(h.router.set_rss(IfIndex::LOCAL0, config(&[0])).is_err());
    assert!(h.router.rss(a).is_none() && h.router.graph.features_of(a).is_empty());
}
