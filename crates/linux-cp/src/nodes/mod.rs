//! The nodes, and the arcs that they are features of.

mod arp;
mod dhcp;
mod ethernet;
mod host;
mod local;
mod punt;

use std::fmt::Write as _;

use quiver_graph::{ArcPoint, FeatureSpec, GraphError, IfIndex, NodeCx, NodeSpec, Packet, Pkt, Snapshot, TraceEntry, flags};
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use crate::table::PairTable;

/// Sends frames to Linux.
pub const PUNT: &str = "linux-cp-punt";
/// Sends frames of Linux to the router's interface.
pub const HOST: &str = "linux-cp-xc";
/// Features by arc that an interface with a pair has on.
pub const PHY_FEATURES: [(&str, &str); 4] = [
    ("ip4-local", "linux-cp-punt-ip4"),
    ("ip6-local", "linux-cp-punt-ip6"),
    ("arp", "linux-cp-arp-phy"),
    ("ethernet-unknown", "linux-cp-punt-ethernet"),
];
/// The same, while the interface has no IPv4 address.
pub const DHCP_FEATURE: (&str, &str) = ("ip4-unicast", "linux-cp-dhcp");
/// The same of the TAP interface.
pub const HOST_FEATURE: (&str, &str) = ("device-input", HOST);

type Pairs = Snapshot<PairTable>;

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "linux-cp: from sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// A copy of a packet whose header of `back` bytes stands in front of its data, from that header on.
struct Copier {
    bytes: Vec<u8>,
}

impl Copier {
    fn copy(&mut self, cx: &mut NodeCx<'_>, packet: &mut Pkt<'_>, back: usize) -> Option<Packet> {
        if !packet.push(back) {
            return None;
        }
        self.bytes.clear();
        packet.for_each_segment(|bytes| self.bytes.extend_from_slice(bytes));
        let partial = packet.unfinished_checksum();
        packet.pull(back);
        let mut copy = cx.alloc_bytes(&self.bytes, packet.rx_if())?;
        let mut view = cx.view(&mut copy);
        view.mark(packet.context() & flags::LINK_MULTICAST);
        if let Some((start, offset)) = partial {
            view.set_unfinished_checksum(start, offset);
        }
        // All of the frame is there.
        view.set_aux(0);
        Some(copy)
    }
}

impl Clone for Copier {
    fn clone(&self) -> Self {
        Self { bytes: Vec::new() }
    }
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, pairs: &quiver_graph::Published<PairTable>) -> Result<(), GraphError> {
    let arcs: [ArcPoint; 6] = std::array::from_fn(|_| ArcPoint::new());
    let [ip4, ip6, arp, _, host, dhcp] = &arcs;
    let copier = || Copier { bytes: Vec::new() };
    let local = |family, arc: &ArcPoint| local::Local {
        family,
        pairs: pairs.snapshot(),
        upper: router.local_takers(family),
        arc: arc.clone(),
        copier: copier(),
    };
    let local_node = |family, arc: &ArcPoint, name: &str, end: &str| {
        NodeSpec::node(name, local(family, arc))
            .with_next(PUNT)
            .with_next(end)
            .on_arc(if family == FamilyId::V4 { "ip4-local" } else { "ip6-local" }, arc.clone())
    };
    let arp_node = arp::Arp {
        pairs: pairs.snapshot(),
        interfaces: router.data.interfaces.clone(),
        egress: router.egress4(),
        arc: arp.clone(),
        copier: copier(),
    };
    let nodes = vec![
        NodeSpec::node(PUNT, punt::Punt { pairs: pairs.snapshot() }).traced(trace),
        local_node(FamilyId::V4, ip4, PHY_FEATURES[0].1, "ip4-local").traced(trace),
        local_node(FamilyId::V6, ip6, PHY_FEATURES[1].1, "ip6-local").traced(trace),
        NodeSpec::node(PHY_FEATURES[2].1, arp_node).on_arc("arp", arp.clone()).traced(trace),
        NodeSpec::node(PHY_FEATURES[3].1, ethernet::Unknown { pairs: pairs.snapshot() })
            .on_arc("ethernet-unknown", arcs[3].clone())
            .traced(trace),
        NodeSpec::node(DHCP_FEATURE.1, dhcp::Dhcp { pairs: pairs.snapshot(), arc: dhcp.clone() })
            .with_next(PUNT)
            .with_next("ip4-lookup")
            .on_arc(DHCP_FEATURE.0, dhcp.clone())
            .traced(trace),
        NodeSpec::node(HOST, host::Host { pairs: pairs.snapshot(), arc: host.clone() })
            .on_arc("device-input", host.clone())
            .traced(trace),
    ];
    router.graph.add(nodes)?;
    let features = PHY_FEATURES.iter().chain([&DHCP_FEATURE, &HOST_FEATURE]);
    let feature = |(arc, node): &(&'static str, &'static str)| FeatureSpec {
        arc,
        node: (*node).into(),
        before: Vec::new(),
        after: Vec::new(),
    };
    router.graph.add_features(features.map(feature).collect())
}

/// Switches the features of a pair's two interfaces on.
///
/// # Errors
/// The graph's.
pub fn switch_on(router: &mut Router, phy: IfIndex, host: IfIndex) -> Result<(), GraphError> {
    for (arc, feature) in PHY_FEATURES {
        router.graph.set_feature(arc, feature, phy, true)?;
    }
    router.graph.set_feature(HOST_FEATURE.0, HOST_FEATURE.1, host, true).map(drop)
}

/// Switches them off.
pub fn switch_off(router: &mut Router, phy: IfIndex, host: IfIndex) {
    for (arc, feature) in PHY_FEATURES {
        // They are declared, so that this cannot fail.
        let _ = router.graph.set_feature(arc, feature, phy, false);
    }
    let _ = router.graph.set_feature(HOST_FEATURE.0, HOST_FEATURE.1, host, false);
    let _ = router.graph.set_feature(DHCP_FEATURE.0, DHCP_FEATURE.1, phy, false);
}

/// Has answers of DHCP servers go to Linux, while an interface with a pair has no IPv4 address.
pub fn follow_addresses(router: &mut Router, phy: IfIndex) {
    let Some(interface) = router.interfaces.get(phy) else { return };
    let has_none = !interface.addresses.iter().any(|(address, _)| address.is_ipv4());
    let _ = router.graph.set_feature(DHCP_FEATURE.0, DHCP_FEATURE.1, phy, has_none);
}
