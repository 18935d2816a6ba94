//! Ethernet: where frames come in, and VLAN tags.

mod input;
pub mod vlan;

pub use input::EthernetInput;
use quiver_graph::NodeSpec;

use crate::{Router, trace};

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let interfaces = router.data.interfaces.clone();
    let vlan = vlan::EthernetVlan {
        interfaces: interfaces.clone(),
        table: router.vlans.snapshot(),
        counters: router.graph.interfaces().clone(),
    };
    vec![
        NodeSpec::fast("ethernet-input", EthernetInput::new(interfaces)).traced(trace::link).takes_shared(),
        NodeSpec::node("ethernet-vlan", vlan).traced(trace::link),
    ]
}
