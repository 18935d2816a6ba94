//! Data path, commands and messages.

mod api;
mod commands;
mod lacp;
mod machine;
mod paths;
mod restart;

use quiver_graph::{Frame, IfIndex, NoDrops, NodeCx, NodeSpec, VectorNode, next_nodes};
use quiver_net::testing::{Harness, error, host_mac, index, run};
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;

use crate::ops::BondInfo;

next_nodes! { enum ReceiveNext { Bond = "bond-input" } }

/// Where frames come in, as from a device whose interface is a member.
struct Receive;

impl VectorNode for Receive {
    type Next = ReceiveNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.decide_all(frame, ReceiveNext::Bond);
    }
}

/// A router with the plugin and interfaces x0 to x3.
fn bed(workers: usize) -> Harness {
    let mut h = Harness::with_plugin(&crate::plugin(), workers, 0);
    h.router.graph.add(vec![NodeSpec::vector("test-receive", |_| Receive)]).unwrap();
    for n in 0..4 {
        h.interface(n);
    }
    h
}

/// Puts frames in that a member receives.
fn receive(h: &mut Harness, member: &str, frames: &[Vec<u8>], thread: usize) {
    let (interface, frames) = (index(h, member), frames.to_vec());
    let node = h.router.graph.node("test-receive").unwrap();
    let threads = h.router.graph.fleet().threads();
    h.router.graph.fleet().on(threads[thread % threads.len()], move |w| {
        w.at_node(node, |cx| {
            for bytes in &frames {
                let packet = cx.alloc_bytes(bytes, interface).expect("a buffer");
                cx.emit(ReceiveNext::Bond, packet);
            }
        })
    });
}

fn mac(h: &Harness, name: &str) -> MacAddr {
    h.router.interfaces.by_name(name).unwrap().mac
}

fn link(h: &Harness, name: &str) -> bool {
    h.router.interfaces.by_name(name).unwrap().link.up
}

fn set_link(h: &mut Harness, name: &str, up: bool) {
    let index = index(h, name);
    h.router.set_link(index, quiver_graph::Link { up, speed: None });
}

/// A packet of flow `n` from the host behind x3 to 20.0.0.1.
fn flow(h: &Harness, n: u16) -> Vec<u8> {
    let frame = Packet::ethernet(host_mac(3), mac(h, "x3")).ipv4([10, 0, 3, 2], [20, 0, 0, 1]);
    frame.udp(1000 + n, 9).payload(&n.to_be_bytes()).build()
}

/// The number of a flow's packet that has left; none where it is another packet.
fn number(frame: &[u8]) -> Option<u16> {
    let udp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
    udp.then(|| u16::from_be_bytes([frame[42], frame[43]]))
}

fn bonds(h: &Harness) -> Vec<BondInfo> {
    crate::ops::shown(&h.router, None).unwrap()
}

fn active(h: &Harness) -> Vec<String> {
    bonds(h)[0].active().map(|member| member.interface.clone()).collect()
}

/// A bond of x0, x1 and x2 with an address and a route by a host there; packets come in on x3.
fn routed(workers: usize, mode: &str) -> Harness {
    let mut h = bed(workers);
    run(
        &mut h,
        &format!(
            "create bond mode {mode}
             bond add BondEthernet0 x0
             bond add BondEthernet0 x1
             bond add BondEthernet0 x2
             set interface state BondEthernet0 up
             set interface ip address BondEthernet0 10.0.0.1/24
             set interface ip address x3 10.0.3.1/24
             set ip neighbor BondEthernet0 10.0.0.2 02:00:00:00:20:02 static
             ip route add 20.0.0.0/8 via 10.0.0.2 BondEthernet0"
        ),
    );
    h.run();
    h
}

/// Sends so many flows through the router: by which interface each packet has left.
fn forwarded(h: &mut Harness, flows: u16, thread: usize) -> Vec<(u16, IfIndex)> {
    let frames: Vec<Vec<u8>> = (0..flows).map(|n| flow(h, n)).collect();
    let x3 = index(h, "x3");
    h.inject_many(x3, &frames, thread);
    h.run().into_iter().filter_map(|(interface, frame)| Some((number(&frame)?, interface))).collect()
}
