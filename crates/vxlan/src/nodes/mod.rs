//! The nodes; see the crate's drawing.

mod input;
mod output;

use std::fmt::Write as _;

use quiver_graph::{GraphError, NodeSpec, Published, TraceEntry};
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use crate::table::Tunnels;
pub use output::{Leg, Outer, Output};

/// The node that takes a family's packets.
pub const fn input_of(family: FamilyId) -> &'static str {
    match family {
        FamilyId::V4 => "vxlan4-input",
        FamilyId::V6 => "vxlan6-input",
    }
}

pub(crate) fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "vxlan: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares the nodes that all tunnels share.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, tunnels: &Published<Tunnels>) -> Result<(), GraphError> {
    let specs = [FamilyId::V4, FamilyId::V6].map(|family| {
        let interfaces = router.data.interfaces.clone();
        let input = input::Input::new(family, tunnels.snapshot(), interfaces, router.graph.interfaces().clone());
        NodeSpec::node(input_of(family), input).traced(trace)
    });
    router.graph.add(specs.into()).map(drop)
}
