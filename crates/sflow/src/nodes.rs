//! The nodes; see the crate's drawing.

use std::fmt::Write as _;

use quiver_graph::{
    ArcPoint, FeatureSpec, Frame, GraphError, IfIndex, NoNext, NodeCx, NodeSpec, Shared as Memory, TraceEntry, VectorNode, Verdict,
    drop_reasons,
};
use quiver_net::Router;
use quiver_net::local::datagram::sender;

use crate::sampler::{HEADER_MAX, Shared};

/// Feature of frames that come in, and its arc.
pub const INPUT: (&str, &str) = ("device-input", "sflow");
/// Feature of frames that leave, and its arc.
pub const OUTPUT: (&str, &str) = ("interface-output", "sflow-output");
/// Sends what threads have sampled.
pub const EXPORT: &str = "sflow-export";

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// A frame that could have been sampled.
        Processed = "sflow packets processed" (info),
        /// A frame was sampled.
        Sampled = "sflow packets sampled" (info),
    }
}

/// Samples frames, and lets all of them go on.
struct Probe {
    shared: Shared,
    leaving: bool,
    arc: ArcPoint,
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);

impl VectorNode<Memory> for Probe {
    type Next = NoNext;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<Memory>) {
        let now = cx.now();
        let mut sampled = 0;
        // Once a vector: the sampler is this thread's alone.
        let mut sampler = self.shared.lock();
        let header = sampler.header().min(HEADER_MAX);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let (input, output) = if self.leaving { (packet.rx_if().0, packet.aux()) } else { (packet.rx_if().0, 0) };
            let source = if self.leaving { output } else { input };
            if sampler.choose(source) {
                let mut room = [0; HEADER_MAX];
                let len = packet.copy_out(0, &mut room[..header]);
                sampler.sample(source, input, output, packet.total_len() as u32, &room[..len.min(header)], now);
                sampled += 1;
            }
            let verdict = self.arc.next(IfIndex(source), END);
            cx.decide(i, verdict);
        }
        drop(sampler);
        cx.count(Event::Processed, frame.len() as u64);
        if sampled > 0 {
            cx.count(Event::Sampled, sampled);
        }
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "sflow: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, threads: &[Shared]) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for ((arc, name), end, leaving) in [(INPUT, "ethernet-input", false), (OUTPUT, "interface-output-end", true)] {
        let (point, threads) = (ArcPoint::new(), threads.to_vec());
        let of_node = point.clone();
        let make = move |thread: usize| Probe { shared: threads[thread % threads.len()].clone(), leaving, arc: of_node.clone() };
        nodes.push(NodeSpec::vector(name, move |cx| make(cx.thread)).with_next(end).on_arc(arc, point).traced(trace));
        // Frames of a bond's member are seen before they become the bond's.
        let before = if leaving { Vec::new() } else { vec!["bond-input"] };
        features.push(FeatureSpec { arc, node: name.into(), before, after: Vec::new() });
    }
    nodes.push(sender(EXPORT, threads));
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
