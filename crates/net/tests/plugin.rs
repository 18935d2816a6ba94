//! What a plugin can do with the graph by what is public: a feature node with a fast path, between the router's fused chains, and
//! a chain that leads from the router's nodes through it.

use std::net::IpAddr;

use quiver_graph::{
    ArcPoint, Batch, End, FastPath, FeatureSpec, Node, NodeCx, NodeSpec, Pkt, Sent, Shared, Then, Verdict, drop_reasons, flags,
    next_nodes,
};
use quiver_net::IfIndex;
use quiver_net::ethernet::EthernetInput;
use quiver_net::ip::{Input, Lookup, Rewrite, V4};
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::build::Packet;

const NODE: &str = "plugin-ports";

next_nodes! { enum Next { Lookup = "ip4-lookup" } }
drop_reasons! { enum Refused { Port = "refused port" } }

/// Refuses packets to UDP port 9.
#[derive(Clone)]
struct Ports {
    arc: ArcPoint,
}

const REFUSED: u16 = 9_u16.to_be();

impl Node<Shared> for Ports {
    type Next = Next;
    type Drop = Refused;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        if packet.head_at::<u16, 22>() == REFUSED {
            return packet.drop(Refused::Port);
        }
        self.arc.next(packet.rx_if(), Next::Lookup.into())
    }
}

impl FastPath<Shared> for Ports {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let interface = batch.first_rx_if();
        let ports: [u16; W] = batch.heads::<_, 22>();
        let refused = ports.iter().fold(false, |refused, port| refused | (*port == REFUSED));
        if refused || !batch.all_from(interface, flags::CHAINED) {
            return None;
        }
        Some(batch.send_all(self.arc.next(interface, Next::Lookup.into())))
    }
}

type Chain = Then<EthernetInput, Then<Input<V4>, Then<Ports, Then<Lookup<V4>, End<Rewrite<V4>>>>>>;
const CHAIN: [&str; 5] = ["ethernet-input", "ip4-input", NODE, "ip4-lookup", "ip4-rewrite"];

/// A router with the plugin's feature on x0, and its chain, where wanted. The host behind x1 is known.
fn router(fused: bool, has_chain: bool) -> (Harness, IfIndex) {
    let mut h = Harness::new();
    let x = [h.interface(0), h.interface(1)];
    for (n, index) in (0..).zip(x) {
        h.router.add_address(index, IpAddr::from([10, 0, n, 1]), 24).unwrap();
        h.router.neighbor_update(index, IpAddr::from([10, 0, n, 2]), Some(host_mac(n))).unwrap();
    }
    let arc = ArcPoint::new();
    let spec = NodeSpec::fast(NODE, Ports { arc: arc.clone() }).on_arc("ip4-unicast", arc);
    h.router.graph.add(vec![spec]).unwrap();
    let feature = FeatureSpec { arc: "ip4-unicast", node: NODE.into(), before: Vec::new(), after: Vec::new() };
    h.router.graph.add_features(vec![feature]).unwrap();
    if has_chain {
        h.router.graph.fuse::<Chain>(&CHAIN).unwrap();
    }
    h.router.graph.set_fusion(fused);
    h.router.graph.set_feature("ip4-unicast", NODE, x[0], true).unwrap();
    (h, x[0])
}

/// Twenty packets, of which each `refused`th goes to the refused port.
fn frames(refused: usize) -> Vec<Vec<u8>> {
    let frame = |n: usize| {
        let port = if n % refused == refused - 1 { 9 } else { 80 };
        let payload = [n as u8; 20];
        Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 1, 2]).udp(1000, port).payload(&payload).build()
    };
    (0..20).map(frame).collect()
}

/// Packets and clocks of the chain's nodes.
fn figures(h: &Harness) -> [(u64, bool); 5] {
    CHAIN.map(|name| {
        let figures = h.router.graph.figures(h.router.graph.node(name).unwrap(), 0);
        (figures.vectors, figures.clocks > 0)
    })
}

#[test]
fn a_fused_chain_leads_through_a_plugins_feature() {
    for fused in [false, true] {
        let (mut h, x0) = router(fused, true);
        // The first vectors show that packets leave the router's own chain: then the one behind it is taken.
        for _ in 0..40 {
            h.inject_many(x0, &frames(usize::MAX), 0);
            assert_eq!(h.run().len(), 20);
        }
        h.router.graph.clear_runtime();
        h.inject_many(x0, &frames(10), 0);
        assert_eq!(h.run().len(), 18);
        assert_eq!(h.count(NODE, "refused port"), 2);
        // Clocks of a chain count for its first node.
        let alone = !fused;
        assert_eq!(figures(&h), [(20, true), (20, alone), (20, alone), (18, alone), (18, alone)], "fused: {fused}");
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_feature_runs_between_a_chain_before_it_and_one_after_it() {
    let (mut h, x0) = router(true, false);
    let pass = |h: &mut Harness, vectors: usize| {
        for _ in 0..vectors {
            h.inject_many(x0, &frames(usize::MAX), 0);
            assert_eq!(h.run().len(), 20);
        }
    };
    pass(&mut h, 40);
    h.router.graph.clear_runtime();
    pass(&mut h, 1);
    assert_eq!(figures(&h), [(20, true), (20, false), (20, true), (20, true), (20, false)]);
    // Without it, the whole chain is tried again before long. While the short one is in use, it seldom is.
    h.router.graph.set_feature("ip4-unicast", NODE, x0, false).unwrap();
    pass(&mut h, 300);
    h.router.graph.clear_runtime();
    pass(&mut h, 1);
    assert_eq!(figures(&h), [(20, true), (20, false), (0, false), (20, false), (20, false)]);
    h.assert_buffers_held(0);
}

#[test]
fn a_chain_without_its_edges_waits_for_them() {
    let (mut h, x0) = router(true, true);
    h.router.graph.set_feature("ip4-unicast", NODE, x0, false).unwrap();
    for _ in 0..20 {
        h.inject_many(x0, &frames(10), 0);
        assert_eq!(h.run().len(), 20, "no feature is on");
    }
    h.router.graph.set_feature("ip4-unicast", NODE, x0, true).unwrap();
    h.inject_many(x0, &frames(10), 0);
    assert_eq!(h.run().len(), 18);
    h.assert_buffers_held(0);
}
