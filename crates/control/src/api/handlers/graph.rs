//! `graph_node_get`: the nodes of the graph, and where each sends packets.

use quiver_api::Text;
use quiver_api::defs::*;
use quiver_command::operation::retval;
use quiver_graph::{NodeInfo, NodeKind};
use quiver_net::api::{ALL, Call, Flow, Handlers};

/// Nodes sent in one slice of the main thread.
const AT_ONCE: usize = 256;

pub(super) fn add(handlers: &mut Handlers) {
    handlers.call::<GraphNodeGet>(get);
    handlers.reads::<GraphNodeGet>();
}

/// VPP's flags of a node, as far as they say something here.
fn flags(node: &NodeInfo) -> NodeFlag {
    let says = [
        (node.name.ends_with("-output") || node.name.ends_with("-tx"), NodeFlag::NODE_FLAG_IS_OUTPUT),
        (node.name == "error-drop", NodeFlag::NODE_FLAG_IS_DROP),
        (node.name.ends_with("-punt"), NodeFlag::NODE_FLAG_IS_PUNT),
        (node.name.ends_with("-handoff"), NodeFlag::NODE_FLAG_IS_HANDOFF),
        // Packets are traced from the node on that brings them in.
        (node.kind == NodeKind::Input, NodeFlag::NODE_FLAG_TRACE_SUPPORTED),
    ];
    NodeFlag(says.into_iter().filter(|(on, _)| *on).fold(0, |bits, (_, flag)| bits | flag.0))
}

fn get(call: &mut Call<'_>, m: GraphNodeGet) -> Flow {
    let mut nodes = call.router.graph.nodes();
    nodes.sort_by_key(|node| node.id.0);
    let chosen = |node: &NodeInfo| match (m.index, m.name.0.as_str(), m.flags.0) {
        (ALL, "", 0) => true,
        (ALL, "", wanted) => flags(node).0 & wanted != 0,
        (ALL, name, _) => node.name == name,
        (index, ..) => u32::from(node.id.0) == index,
    };
    let index = |name: &String| nodes.iter().find(|node| node.name == *name).map_or(ALL, |node| node.id.0.into());
    let from = if m.cursor == ALL { 0 } else { m.cursor };
    let details = |node: &NodeInfo| GraphNodeDetails {
        index: node.id.0.into(),
        name: Text(node.name.clone()),
        flags: flags(node),
        n_arcs: 0,
        arcs_out: if m.want_arcs { node.nexts.iter().map(index).collect() } else { Vec::new() },
    };
    let found = nodes.iter().filter(|node| u32::from(node.id.0) >= from && chosen(node));
    let found: Vec<GraphNodeDetails> = found.map(details).collect();
    // One that is asked for by name or number, and is not there, is a mistake.
    let one = m.index != ALL || !m.name.0.is_empty();
    let retval = if one && found.is_empty() { retval::NO_SUCH_ENTRY } else { 0 };
    let mut next = 0;
    Flow::More(Box::new(move |call| {
        let end = found.len().min(next + AT_ONCE);
        found[next..end].iter().for_each(|details| call.send(details));
        next = end;
        if next < found.len() {
            return false;
        }
        call.send(&GraphNodeGetReply { retval, cursor: ALL });
        true
    }))
}
