//! The nodes; see the crate's drawing.

use std::fmt::Write as _;

use quiver_graph::{
    ArcPoint, FeatureSpec, Frame, GraphError, IfIndex, NoNext, NodeCx, NodeSpec, Pkt, Published, Shared as Memory, Snapshot,
    TraceEntry, VectorNode, Verdict, drop_reasons, flags,
};
use quiver_net::Router;
use quiver_net::local::datagram::{UdpPath, sender};

use crate::flows::{Noted, Shared};
use crate::key::Way;
use crate::observe::{self, Seen, WINDOW};
use crate::ops::Which;

/// Sends what threads have recorded.
pub const EXPORT: &str = "flowprobe-export";

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// A packet was recorded.
        Recorded = "packets recorded" (info),
        /// A flow began.
        New = "flows created" (info),
        /// A packet was not one of those that `sample` chooses.
        Skipped = "packets not sampled" (info),
        /// A packet of a flow that found no room in the table of its thread.
        Full = "packets not recorded: flow table is full",
    }
}

/// Bytes of the link header of packets of interfaces that record, by number of the interface; 0 where there is none.
pub type Links = Vec<u8>;

/// Arcs and node of a feature.
pub fn feature(which: Which, way: Way) -> (&'static [&'static str], &'static str) {
    match (which, way) {
        (Which::Ip4, Way::Rx) => (&["ip4-unicast", "ip4-multicast"], "flowprobe-input-ip4"),
        (Which::Ip6, Way::Rx) => (&["ip6-unicast", "ip6-multicast"], "flowprobe-input-ip6"),
        (Which::L2, Way::Rx) => (&["device-input"], "flowprobe-input-l2"),
        (Which::Ip4, Way::Tx) => (&["ip4-output"], "flowprobe-output-ip4"),
        (Which::Ip6, Way::Tx) => (&["ip6-output"], "flowprobe-output-ip6"),
        (Which::L2, Way::Tx) => (&["interface-output"], "flowprobe-output-l2"),
    }
}

/// Records packets, and lets all of them go on.
struct Probe {
    shared: Shared,
    which: Which,
    way: Way,
    links: Snapshot<Links>,
    arc: ArcPoint,
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);

impl Probe {
    fn interface(&self, packet: &Pkt<'_, Memory>) -> IfIndex {
        match self.way {
            Way::Rx => packet.rx_if(),
            Way::Tx => IfIndex(packet.aux()),
        }
    }

    /// What a packet is, and bytes of its frame; none where it is an export of the router itself.
    fn see(&self, packet: &Pkt<'_, Memory>, record: crate::key::Record, own: Option<&UdpPath>) -> Option<(Seen, u64)> {
        let interface = self.interface(packet);
        let link = usize::from(self.links.get().get(interface.0 as usize).copied().unwrap_or_default());
        let mut room = [0; WINDOW];
        let len = packet.copy_out(0, &mut room);
        let bytes = room.get(..len).unwrap_or_default();
        // Packets that leave have their link header already.
        let header = match (self.which, self.way) {
            (Which::L2, _) => quiver_wire::ethernet::skip_tags(bytes, 4).map_or(len, |(at, _)| at),
            (_, Way::Rx) => 0,
            (_, Way::Tx) => link,
        };
        let ip = bytes.get(header..).unwrap_or_default();
        if packet.has(flags::LOCAL) && own.is_some_and(|own| observe::is_to(ip, own)) {
            return None;
        }
        let frame_octets = packet.total_len() + if self.which != Which::L2 && self.way == Way::Rx { link } else { 0 };
        let mut seen = match self.which {
            Which::L2 => observe::frame(bytes, record, self.way),
            which => {
                let macs = match self.way {
                    Way::Rx if link > 0 => packet.read_before::<[u8; 12]>(link),
                    Way::Tx if link > 0 => bytes.first_chunk::<12>().copied(),
                    _ => None,
                };
                observe::packet(ip, which == Which::Ip4, macs.as_ref(), record, self.way)
            }
        };
        let (ingress, egress) = match self.way {
            Way::Rx => (interface.0, 0),
            Way::Tx => (packet.rx_if().0, interface.0),
        };
        seen.key.set_interfaces(ingress, egress);
        Some((seen, frame_octets as u64))
    }
}

impl VectorNode<Memory> for Probe {
    type Next = NoNext;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Memory>) {
        self.links.refresh();
        let now = cx.now();
        let (mut recorded, mut new, mut skipped, mut full) = (0, 0, 0, 0);
        // Once a vector: the flows are this thread's alone.
        let mut flows = self.shared.lock();
        let record = flows.params().record;
        let own = flows.stream.destination().map(|to| to.path);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let verdict = self.arc.next(self.interface(&packet), END);
            if !flows.choose() {
                skipped += 1;
            } else if let Some((seen, frame_octets)) = self.see(&packet, record, own.as_ref()) {
                match flows.note(&seen, frame_octets, now) {
                    Noted::Recorded => recorded += 1,
                    Noted::New => (recorded, new) = (recorded + 1, new + 1),
                    Noted::Full => full += 1,
                }
            }
            cx.decide(i, verdict);
        }
        drop(flows);
        for (event, n) in [(Event::Recorded, recorded), (Event::New, new), (Event::Skipped, skipped), (Event::Full, full)] {
            if n > 0 {
                cx.count(event, n);
            }
        }
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "flowprobe: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, threads: &[Shared], links: &Published<Links>) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for which in [Which::Ip4, Which::Ip6, Which::L2] {
        for way in [Way::Rx, Way::Tx] {
            let (arcs, name) = feature(which, way);
            for (at, arc) in arcs.iter().copied().enumerate() {
                let end = match (which, way) {
                    _ if arc == "ip4-multicast" => "ip4-mfib-forward-lookup",
                    _ if arc == "ip6-multicast" => "ip6-mfib-forward-lookup",
                    (Which::Ip4, Way::Rx) => "ip4-lookup",
                    (Which::Ip6, Way::Rx) => "ip6-lookup",
                    (Which::L2, Way::Rx) => "ethernet-input",
                    _ => "interface-output-end",
                };
                let name = if at == 0 { name.to_owned() } else { format!("{name}-multicast") };
                let (point, threads, links) = (ArcPoint::new(), threads.to_vec(), links.snapshot());
                let of_node = point.clone();
                let make = move |thread: usize| Probe {
                    shared: threads[thread % threads.len()].clone(),
                    which,
                    way,
                    links: links.clone(),
                    arc: of_node.clone(),
                };
                let spec = NodeSpec::vector(name.clone(), move |cx| make(cx.thread));
                nodes.push(spec.with_next(end).on_arc(arc, point).traced(trace));
                // Frames of a bond's member are seen before they become the bond's.
                let before = if arc == "device-input" { vec!["bond-input"] } else { Vec::new() };
                features.push(FeatureSpec { arc, node: name, before, after: Vec::new() });
            }
        }
    }
    nodes.push(sender(EXPORT, threads));
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
