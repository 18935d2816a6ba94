//! IPv4 and IPv6 forwarding nodes: input checks, lookup, rewrite. One text for both families, over [`Family`].
//!
//! ```text
//!                 ip4-unicast arc                       aux = adjacency            ip4-output arc
//!  ip4-input ──► [features] ──► ip4-lookup ──┬──► ip4-rewrite ──► [features] ──► <if>-output
//!      │                          │          ├──► ip4-arp, ip4-glean     (MAC address not known)
//!      │                          │          ├──► ip4-receive            (ours)
//!      └─► ip4-multicast arc      │          ├──► ip4-drop, ip4-punt, ip4-null
//!                                 ├──────────┴──► lookup-ip4-dst, -src    (another table)
//!                                 └───► interface-rx-dpo-ip4 ──► ip4-input  (as if from another interface)
//! ```
//!
//! What a packet needs of the tables is reached through records of [`crate::DataPlane`]; the FIB writes them.

use std::fmt::Write as _;

use quiver_graph::{ArcPoint, ArcSpec, End, Graph, GraphError, NodeSpec, Then, TraceEntry};

use crate::ethernet::EthernetInput;
use crate::ethernet::vlan::EthernetVlan;
use crate::icmp::NoRoute;
use crate::run_counter::RunCounter;
use crate::{Router, trace};
use ends::{Ip4Null, Ip6LinkLocal, Ip6Null, IpDrop};
use lookup::LookupIn;

mod address;
pub(crate) mod api;
pub mod bare;
pub(crate) mod configuration;
mod egress;
mod ends;
mod family;
mod hash;
mod input;
mod lookup;
pub mod ops;
mod rewrite;
mod rx;
#[cfg(test)]
mod tests;

pub use address::{AddressError, unspecified};
pub use egress::{Egress, Egress4, Reach, Way};
pub use family::{Family, FamilyId, PrefixTable, V4, V6};
pub use hash::FlowHash;
pub use input::{Input, InputFamily};
pub use lookup::Lookup;
pub(crate) use lookup::{Next4, Next6, Tables, verdict};
pub use rewrite::{Rewrite, RewriteFamily};

/// Aux lane for `ip4-icmp-error` and `ip6-icmp-error`: which error to send. `data` goes where the type has a number (next
/// hop's MTU of "fragmentation needed" and "packet too big").
#[inline(always)]
pub const fn icmp_aux(kind: u8, code: u8, data: u16) -> u32 {
    (kind as u32) << 24 | (code as u32) << 16 | data as u32
}

/// What [`icmp_aux`] put into the lane: type, code, data.
#[inline(always)]
pub const fn icmp_of_aux(aux: u32) -> (u8, u8, u16) {
    ((aux >> 24) as u8, (aux >> 16) as u8, aux as u16)
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let mut nodes = Vec::new();
    nodes.extend(family_nodes::<V4>(router));
    nodes.extend(family_nodes::<V6>(router));
    nodes.push(NodeSpec::node("ip4-null", Ip4Null));
    nodes.push(NodeSpec::node("ip6-null", Ip6Null));
    nodes.push(bare::node());
    nodes.push(NodeSpec::node("ip6-link-local", Ip6LinkLocal { table: router.fib().link_locals.reader() }));
    nodes
}

fn family_nodes<F: crate::fib::Select + InputFamily + RewriteFamily + rx::RxFamily>(router: &Router) -> Vec<NodeSpec> {
    let prefix = F::ID.node_prefix();
    let name = |suffix: &str| format!("{prefix}-{suffix}");
    let interfaces = &router.data.interfaces;
    let rx = interfaces.clone();
    let looked_up = move |entry: &TraceEntry, out: &mut String| {
        let _ = writeln!(out, "fib {} dpo-idx {}", F::fib_of(rx.fibs(entry.rx_if)), entry.aux);
        trace::ip(F::ID)(entry, out);
    };
    let tables: Tables<F> = router.lookup_tables();
    let routes = RunCounter::new(&router.fib().lists.counters);
    let lookup = Lookup::new(interfaces.clone(), tables.clone(), routes.clone());
    let lookup_in = |by: &str, tables, source| {
        let node = LookupIn { tables, count: routes.clone(), source };
        NodeSpec::node(format!("lookup-{prefix}-{by}"), node).traced(trace::ip(F::ID))
    };
    vec![
        input_node::<F>(router),
        NodeSpec::fast(name("lookup"), lookup).traced(looked_up),
        lookup_in("dst", tables.clone(), false),
        lookup_in("src", tables, true),
        rx::node::<F>(router),
        rewrite_node::<F>(router),
        NodeSpec::node(name("drop"), IpDrop { answers: NoRoute::of(router, F::ID) })
            .with_next(name("icmp-error"))
            .traced(trace::ip(F::ID)),
    ]
}

/// The arcs of a family: unicast, multicast, output.
const fn arc_names(family: FamilyId) -> [&'static str; 3] {
    match family {
        FamilyId::V4 => ["ip4-unicast", "ip4-multicast", "ip4-output"],
        FamilyId::V6 => ["ip6-unicast", "ip6-multicast", "ip6-output"],
    }
}

fn input_node<F: InputFamily>(router: &Router) -> NodeSpec {
    let counters = router.graph.interfaces();
    let counter = if F::ID == FamilyId::V4 { &counters.ip4 } else { &counters.ip6 };
    let points = [ArcPoint::new(), ArcPoint::new()];
    let node = Input::<F>::new(router.data.interfaces.clone(), points.clone(), counter);
    let ([unicast, multicast], names) = (points, arc_names(F::ID));
    let spec = NodeSpec::fast(format!("{}-input", F::ID.node_prefix()), node);
    spec.on_arc(names[0], unicast).on_arc(names[1], multicast).traced(trace::ip(F::ID))
}

fn rewrite_node<F: RewriteFamily>(router: &Router) -> NodeSpec {
    let output = ArcPoint::new();
    let count = RunCounter::new(&router.fib().adjacencies.counters);
    let node = Rewrite::<F>::new(router.data.adjacencies.clone(), output.clone(), count);
    let spec = NodeSpec::fast(format!("{}-rewrite", F::ID.node_prefix()), node).on_arc(arc_names(F::ID)[2], output);
    spec.traced(move |entry, out| match entry.moved {
        // Not sent, but to be answered or cut.
        0 => trace::ip(F::ID)(entry, out),
        _ => {
            let _ = writeln!(out, "tx_sw_if_index {}", entry.aux);
            trace::frame(entry, out);
        }
    })
}

/// Nodes that most packets pass one after the other. Those that pass features between input and lookup have a chain before them, and one
/// after them.
pub(crate) fn fuse(graph: &mut Graph) -> Result<(), GraphError> {
    type Out<F> = Then<Lookup<F>, End<Rewrite<F>>>;
    type Ip<F> = Then<Input<F>, Out<F>>;
    graph.fuse::<Then<EthernetInput, Ip<V4>>>(&["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite"])?;
    graph.fuse::<Then<EthernetInput, Ip<V6>>>(&["ethernet-input", "ip6-input", "ip6-lookup", "ip6-rewrite"])?;
    graph.fuse::<Ip<V4>>(&["ip4-input", "ip4-lookup", "ip4-rewrite"])?;
    graph.fuse::<Ip<V6>>(&["ip6-input", "ip6-lookup", "ip6-rewrite"])?;
    graph.fuse::<Then<EthernetInput, Then<EthernetVlan, End<Input<V4>>>>>(&["ethernet-input", "ethernet-vlan", "ip4-input"])?;
    graph.fuse::<Then<EthernetInput, Then<EthernetVlan, End<Input<V6>>>>>(&["ethernet-input", "ethernet-vlan", "ip6-input"])?;
    graph.fuse::<Then<EthernetInput, End<Input<V4>>>>(&["ethernet-input", "ip4-input"])?;
    graph.fuse::<Then<EthernetInput, End<Input<V6>>>>(&["ethernet-input", "ip6-input"])?;
    graph.fuse::<Out<V4>>(&["ip4-lookup", "ip4-rewrite"])?;
    graph.fuse::<Out<V6>>(&["ip6-lookup", "ip6-rewrite"])
}

/// The feature arcs of this module.
pub(crate) fn arcs() -> Vec<ArcSpec> {
    let arc = |name, start: &str, end: &str| ArcSpec { name, starts: vec![start.into()], end: end.into() };
    // Packets to groups leave by a node of their own.
    let output = |name, family: &str| ArcSpec {
        name,
        starts: vec![format!("{family}-rewrite"), format!("{family}-mfib-forward-lookup")],
        end: "interface-output-end".into(),
    };
    vec![
        arc("ip4-unicast", "ip4-input", "ip4-lookup"),
        arc("ip4-multicast", "ip4-input", "ip4-mfib-forward-lookup"),
        output("ip4-output", "ip4"),
        arc("ip6-unicast", "ip6-input", "ip6-lookup"),
        arc("ip6-multicast", "ip6-input", "ip6-mfib-forward-lookup"),
        output("ip6-output", "ip6"),
    ]
}
