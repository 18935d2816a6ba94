//! Ethernet: where frames come in, and VLAN tags.

mod input;
pub mod vlan;

pub(crate) use input::EthernetInput;
use quiver_graph::NodeSpec;

use crate::{Router, trace};

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let data = router.data.clone();
    let (data2, vlans) = (data.clone(), router.vlans.snapshot());
    let counters = router.graph.interfaces().clone();
    vec![
        NodeSpec::staged("ethernet-input", move |_| EthernetInput::new(data.interfaces.clone())).traced(trace::link).takes_shared(),
        NodeSpec::vector("ethernet-vlan", move |_| vlan::EthernetVlan {
            interfaces: data2.interfaces.clone(),
            table: vlans.clone(),
            counters: counters.clone(),
        })
        .traced(trace::link),
    ]
}
