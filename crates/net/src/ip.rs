//! IPv4 and IPv6 forwarding nodes: input checks, lookup, rewrite. One text for both families, over [`Family`].
//!
//! ```text
//!                 ip4-unicast arc                       aux = adjacency            ip4-output arc
//!  ip4-input ──► [features] ──► ip4-lookup ──┬──► ip4-rewrite ──► [features] ──► <if>-output
//!      │                          │          ├──► ip4-arp, ip4-glean     (link address not known)
//!      │                          │          ├──► ip4-receive            (ours)
//!      └─► ip4-multicast arc      │          ├──► ip4-drop, ip4-punt, ip4-null
//!                                 └──────────┴──► lookup-ip4-dst          (another table)
//! ```
//!
//! What a packet needs of the tables is reached through records of [`crate::DataPlane`]; the FIB writes them.

use std::fmt::Write as _;
use std::sync::Arc;

use quiver_graph::{ArcPoint, ArcSpec, End, Graph, GraphError, MakeCx, NodeSpec, Then, TraceEntry};

use crate::ethernet::EthernetInput;
use crate::{Router, trace};
use ends::{Ip4Multicast, Ip4Null, Ip6LinkLocal, Ip6Multicast, Ip6Null, IpDrop, IpPunt};
use input::{Ip4Input, Ip6Input};
use lookup::{Lookup, LookupIn, RunCounter, Tables};
use rewrite::{Ip4Rewrite, Ip6Rewrite};

mod address;
pub(crate) mod bare;
mod egress;
mod ends;
mod family;
mod hash;
mod input;
mod lookup;
mod rewrite;
#[cfg(test)]
mod tests;

pub use address::{AddressError, unspecified};
pub(crate) use egress::Egress;
pub use egress::{Egress4, Way};
pub use family::{Family, FamilyId, PrefixTable, V4, V6};
pub use hash::FlowHash;

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
    nodes.push(NodeSpec::vector("ip4-null", |_| Ip4Null));
    nodes.push(NodeSpec::vector("ip6-null", |_| Ip6Null));
    nodes.push(NodeSpec::vector("ip4-mfib-forward-lookup", |_| Ip4Multicast));
    nodes.push(NodeSpec::vector("ip6-mfib-forward-lookup", |_| Ip6Multicast));
    let table = router.fib().link_locals.reader();
    nodes.push(bare::node());
    nodes.push(NodeSpec::vector("ip6-link-local", move |_| Ip6LinkLocal { table: table.clone() }));
    nodes
}

fn family_nodes<F: crate::fib::Select>(router: &Router) -> Vec<NodeSpec> {
    let name = |suffix: &str| format!("{}-{suffix}", F::ID.node_prefix());
    let fib = router.fib();
    let routes = fib.lists.counters.clone();
    let tables = F::tables(fib).published.snapshot();
    let load_balances = router.data.load_balances.clone();
    let interfaces = router.data.interfaces.clone();
    let rx = interfaces.clone();
    let looked_up = move |entry: &TraceEntry, out: &mut String| {
        let _ = writeln!(out, "fib {} dpo-idx {}", F::fib_of(rx.fibs(entry.rx_if)), entry.aux);
        trace::ip(F::ID)(entry, out);
    };
    let make_tables = move || Tables::<F>::new(tables.clone(), load_balances.clone());
    let (make_in, routes_in) = (make_tables.clone(), routes.clone());
    let lookup = move |cx: &MakeCx| Lookup::new(interfaces.clone(), make_tables(), RunCounter::new(&routes, cx.thread));
    let lookup_in = move |cx: &MakeCx| LookupIn { tables: make_in(), count: RunCounter::new(&routes_in, cx.thread) };
    vec![
        input_node(router, F::ID),
        NodeSpec::staged(name("lookup"), lookup).traced(looked_up).takes_shared(),
        NodeSpec::vector(format!("lookup-{}-dst", F::ID.node_prefix()), lookup_in).traced(trace::ip(F::ID)),
        rewrite_node(router, F::ID),
        NodeSpec::vector(name("drop"), |_| IpDrop).traced(trace::ip(F::ID)),
        NodeSpec::vector(name("punt"), |_| IpPunt).traced(trace::ip(F::ID)),
    ]
}

fn input_node(router: &Router, family: FamilyId) -> NodeSpec {
    let interfaces = router.data.interfaces.clone();
    let counters = router.graph.interfaces();
    let (unicast, multicast) = (ArcPoint::new(), ArcPoint::new());
    let (u, m) = (unicast.clone(), multicast.clone());
    let counter = if family == FamilyId::V4 { counters.ip4.clone() } else { counters.ip6.clone() };
    let common = move |cx: &MakeCx| input::Common::new(interfaces.clone(), u.clone(), m.clone(), Arc::clone(&counter), cx.thread);
    let spec = match family {
        FamilyId::V4 => NodeSpec::staged("ip4-input", move |cx| Ip4Input(common(cx)))
            .on_arc("ip4-unicast", unicast)
            .on_arc("ip4-multicast", multicast),
        FamilyId::V6 => NodeSpec::staged("ip6-input", move |cx| Ip6Input(common(cx)))
            .on_arc("ip6-unicast", unicast)
            .on_arc("ip6-multicast", multicast),
    };
    spec.traced(trace::ip(family)).takes_shared()
}

fn rewrite_node(router: &Router, family: FamilyId) -> NodeSpec {
    let adjacencies = router.data.adjacencies.clone();
    let counters = router.fib().adjacencies.counters.clone();
    let output = ArcPoint::new();
    let o = output.clone();
    let common = move |cx: &MakeCx| rewrite::Common::new(adjacencies.clone(), o.clone(), RunCounter::new(&counters, cx.thread));
    let spec = match family {
        FamilyId::V4 => NodeSpec::staged("ip4-rewrite", move |cx| Ip4Rewrite(common(cx))).on_arc("ip4-output", output),
        FamilyId::V6 => NodeSpec::staged("ip6-rewrite", move |cx| Ip6Rewrite(common(cx))).on_arc("ip6-output", output),
    };
    spec.takes_shared().traced(move |entry, out| match entry.moved {
        // Not sent, but to be answered or cut.
        0 => trace::ip(family)(entry, out),
        _ => {
            let _ = writeln!(out, "tx_sw_if_index {}", entry.aux);
            trace::frame(entry, out);
        }
    })
}

/// Nodes that most packets pass one after the other.
pub(crate) fn fuse(graph: &mut Graph) -> Result<(), GraphError> {
    type Line4 = Then<Ip4Input, Then<Lookup<V4>, End<Ip4Rewrite>>>;
    type Line6 = Then<Ip6Input, Then<Lookup<V6>, End<Ip6Rewrite>>>;
    graph.fuse::<Line4>(&["ip4-input", "ip4-lookup", "ip4-rewrite"])?;
    graph.fuse::<Line6>(&["ip6-input", "ip6-lookup", "ip6-rewrite"])?;
    graph.fuse::<Then<EthernetInput, Line4>>(&["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite"])?;
    graph.fuse::<Then<EthernetInput, Line6>>(&["ethernet-input", "ip6-input", "ip6-lookup", "ip6-rewrite"])
}

/// The feature arcs of this module.
pub(crate) fn arcs() -> Vec<ArcSpec> {
    let arc = |name, start: &str, end: &str| ArcSpec { name, starts: vec![start.into()], end: end.into() };
    vec![
        arc("ip4-unicast", "ip4-input", "ip4-lookup"),
        arc("ip4-multicast", "ip4-input", "ip4-mfib-forward-lookup"),
        arc("ip4-output", "ip4-rewrite", "interface-output-end"),
        arc("ip6-unicast", "ip6-input", "ip6-lookup"),
        arc("ip6-multicast", "ip6-input", "ip6-mfib-forward-lookup"),
        arc("ip6-output", "ip6-rewrite", "interface-output-end"),
    ]
}
