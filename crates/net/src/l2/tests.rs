//! Bridging over the whole graph, frame by frame.

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;

use super::*;
use crate::testing::{Harness, host_mac, router_mac};

mod events;
mod forwarding;
mod groups;
mod limits;
mod loops;
mod model;
mod router_port;
mod tags;

const SECOND: u64 = 1_000_000_000;

/// A router with so many ports x0, x1, … in bridge domain 10.
fn bed(workers: usize, ports: u8) -> (Harness, Vec<IfIndex>) {
    let mut h = Harness::with_workers(workers);
    let all: Vec<IfIndex> = (0..ports).map(|n| h.interface(n)).collect();
    for port in &all {
        h.router.set_bridge(*port, 10, PortKind::Normal, 0).unwrap();
    }
    (h, all)
}

/// Lets main take in what workers have told it.
fn settle(h: &mut Harness) {
    let now = h.router.graph.clock().timer_now();
    settle_at(h, now);
}

fn settle_at(h: &mut Harness, now: u64) {
    h.router.wake_process(PROCESS, 0);
    while h.router.run_processes(now).is_some_and(|due| due <= now) {}
}

fn mac(n: u32) -> MacAddr {
    let n = n.to_be_bytes();
    MacAddr([0x02, 0x11, n[0], n[1], n[2], n[3]])
}

fn frame(src: MacAddr, dst: MacAddr) -> Vec<u8> {
    Packet::ethernet(src, dst).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"bridged").pad_to(60).build()
}

/// Puts a frame in, gives where copies left, in order of ports, and lets main learn.
fn send(h: &mut Harness, from: IfIndex, frame: &[u8]) -> Vec<IfIndex> {
    h.inject(from, frame);
    let mut out: Vec<IfIndex> = Vec::new();
    for (port, bytes) in h.run() {
        assert_eq!(bytes, frame, "frames pass whole");
        out.push(port);
    }
    settle(h);
    out.sort_unstable();
    out
}
