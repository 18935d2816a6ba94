//! The nodes; see the crate's drawing.

mod input;
mod lacp;
mod output;

use std::fmt::Write as _;

use quiver_graph::{ArcPoint, FeatureSpec, GraphError, NodeSpec, Published, TraceEntry};
use quiver_net::Router;

use crate::lacp::thread::Shared;
use crate::members::Members;
pub use lacp::Outputs;
pub use output::{Choice, Output};

/// The feature of members, and its arc.
pub const INPUT: (&str, &str) = ("device-input", "bond-input");
/// Sends frames of LACP by members.
pub const LACP_OUTPUT: &str = "lacp-output";

pub(crate) fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "bond: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// What nodes are made from.
pub struct Parts {
    /// Members of all bonds.
    pub members: Published<Members>,
    /// Slots of their output nodes at [`LACP_OUTPUT`].
    pub outputs: Published<Outputs>,
    /// Machines of LACP by thread; there are as many as threads can be.
    pub(crate) threads: Vec<Shared>,
}

/// Declares the nodes.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, parts: &Parts) -> Result<(), GraphError> {
    let arc = ArcPoint::new();
    let input = input::Input::new(parts.members.snapshot(), arc.clone(), router.graph.interfaces().clone());
    let (threads, timers) = (parts.threads.clone(), parts.threads.clone());
    router.graph.add(vec![
        NodeSpec::node(INPUT.1, input).on_arc(INPUT.0, arc).traced(trace),
        NodeSpec::node("lacp-input", lacp::Input { members: parts.members.snapshot() }).traced(trace),
        NodeSpec::vector("lacp-session", move |cx| lacp::Session { shared: threads[cx.thread % threads.len()].clone() })
            .traced(trace),
        NodeSpec::input("lacp-process", move |cx| lacp::Process { shared: timers[cx.thread % timers.len()].clone() }),
        NodeSpec::node(LACP_OUTPUT, lacp::Output { outputs: parts.outputs.snapshot() }).traced(trace),
    ])?;
    let feature = FeatureSpec { arc: INPUT.0, node: INPUT.1.into(), before: Vec::new(), after: Vec::new() };
    router.graph.add_features(vec![feature])
}
