//! Messages of `graph.api`.

use super::*;

module! {
    graph "1.0.0"
    enums {
        NodeFlag "node_flag": u32 { NODE_FLAG_FRAME_NO_FREE_AFTER_DISPATCH = 1, NODE_FLAG_IS_OUTPUT = 2, NODE_FLAG_IS_DROP = 4, NODE_FLAG_IS_PUNT = 8, NODE_FLAG_IS_HANDOFF = 16, NODE_FLAG_TRACE = 32, NODE_FLAG_SWITCH_FROM_INTERRUPT_TO_POLLING_MODE = 64, NODE_FLAG_SWITCH_FROM_POLLING_TO_INTERRUPT_MODE = 128, NODE_FLAG_TRACE_SUPPORTED = 256 }
    }
    messages {
        client GraphNodeGet "graph_node_get" -> graph_node_get_reply => graph_node_details { cursor: u32, index: u32, name: Text<64>, flags: NodeFlag, want_arcs: bool }
        context GraphNodeGetReply "graph_node_get_reply" { retval: i32, cursor: u32 }
        context GraphNodeDetails "graph_node_details" { index: u32, name: Text<64>, flags: NodeFlag, n_arcs: u32, arcs_out: Vec<u32> = n_arcs }
    }
}
