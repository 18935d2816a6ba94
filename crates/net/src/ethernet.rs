//! Ethernet: where frames come in, and VLAN tags.
//!
//! Frames of a type that the router does not know are dropped. Features of the arc `ethernet-unknown` get them instead, whole, tags
//! included. They get LLDP also where an interface is a port of a bridge, or untagged frames belong to a sub-interface.

mod input;
mod more;
#[cfg(test)]
mod tests;
pub mod vlan;

pub use input::EthernetInput;
pub(crate) use more::MoreMacs;
use quiver_graph::{ArcPoint, ArcSpec, NodeSpec};

use crate::run_counter::RunCounter;
use crate::{Router, trace};

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let interfaces = router.data.interfaces.clone();
    let unknown = [ArcPoint::new(), ArcPoint::new()];
    let vlan = vlan::EthernetVlan {
        interfaces: interfaces.clone(),
        table: router.vlans.snapshot(),
        cache: vlan::Cache::new(),
        count: RunCounter::new(&router.graph.interfaces().rx),
        unknown: unknown[1].clone(),
        more: router.more_macs.snapshot(),
    };
    let input = EthernetInput::new(interfaces, unknown[0].clone(), router.more_macs.snapshot());
    let [of_input, of_vlan] = unknown;
    vec![
        NodeSpec::fast("ethernet-input", input).traced(trace::link).on_arc(UNKNOWN, of_input),
        NodeSpec::fast("ethernet-vlan", vlan).traced(trace::link).on_arc(UNKNOWN, of_vlan),
    ]
}

/// The arc of frames of unknown types.
const UNKNOWN: &str = "ethernet-unknown";

/// The arc of this module.
pub(crate) fn arc() -> ArcSpec {
    ArcSpec { name: UNKNOWN, starts: vec!["ethernet-input".into(), "ethernet-vlan".into()], end: "null-node".into() }
}
