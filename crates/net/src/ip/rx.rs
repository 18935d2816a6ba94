//! `interface-rx-dpo-ip4`, `interface-rx-dpo-ip6`: packets of a route with `via rx-ip4 IF` are taken as if they had come in on that
//! interface: its table, its features, its counters.

use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{IfIndex, NextNodes, Node, NodeCx, NodeSpec, Pkt, Verdict, drop_reasons, next_nodes};

use super::{FamilyId, V4, V6};
use crate::{Router, trace};

next_nodes! {
    /// Where IPv4 packets begin again.
    pub enum Next4 { Input = "ip4-input" }
}
next_nodes! {
    /// Where IPv6 packets begin again.
    pub enum Next6 { Input = "ip6-input" }
}

drop_reasons! {
    /// Why packets do not begin again.
    pub enum Drop {
        /// Routes have had the packet taken from one interface after another more often than a packet may be.
        ///
        /// Causes: routes with `via rx-ip4 IF` or `via rx-ip6 IF` whose tables lead to one another.
        /// Check: follow the address: `show ip fib ADDRESS`, then `show ip fib table ID ADDRESS` with the table of the interface.
        /// See: `show ip fib table ID ADDRESS`, `ip route add`.
        Loop = "taken from too many interfaces",
    }
}

/// What differs between the families here.
pub(super) trait RxFamily: super::Family {
    type Next: NextNodes + 'static;
    const INPUT: Self::Next;
}

impl RxFamily for V4 {
    type Next = Next4;
    const INPUT: Next4 = Next4::Input;
}

impl RxFamily for V6 {
    type Next = Next6;
    const INPUT: Next6 = Next6::Input;
}

/// The node: the aux lane names the interface.
#[derive(Clone)]
struct InterfaceRx<F> {
    received: Arc<CombinedCounters>,
    family: std::marker::PhantomData<F>,
}

impl<F: RxFamily> Node for InterfaceRx<F> {
    type Next = F::Next;
    type Drop = Drop;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        if !packet.take_again() {
            return packet.drop(Drop::Loop);
        }
        let interface = IfIndex(packet.aux());
        if packet.table().is_some() {
            // What a feature of the interface before has chosen.
            packet.set_table(u32::MAX);
        }
        packet.set_rx_if(interface);
        self.received.add(cx.thread(), interface.0, 1, packet.total_len() as u64);
        F::INPUT.into()
    }
}

pub(super) fn node<F: RxFamily>(router: &Router) -> NodeSpec {
    let received = router.graph.interfaces().rx.clone();
    let node = InterfaceRx::<F> { received, family: std::marker::PhantomData };
    NodeSpec::node(name(F::ID), node).traced(trace::ip(F::ID))
}

fn name(family: FamilyId) -> String {
    format!("interface-rx-dpo-{}", family.node_prefix())
}
