//! `ip-input`: packets of interfaces without a link layer (memif in IP mode), to where their version says.

use quiver_graph::{Frame, NodeCx, NodeSpec, VectorNode, Verdict, drop_reasons, next_nodes};

next_nodes! {
    /// Where packets go.
    pub enum Next { Ip4 = "ip4-input", Ip6 = "ip6-input" }
}

drop_reasons! {
    /// Why packets are dropped.
    pub enum Drop {
        Version = "unknown ip version",
    }
}

/// Name of the node.
pub(crate) const NODE: &str = "ip-input";

struct IpInput;

impl VectorNode for IpInput {
    type Next = Next;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            // Past the end of an empty packet the byte is stale: the next node drops it for its length.
            let verdict: Verdict = match packet.head::<u8>() >> 4 {
                4 => Next::Ip4.into(),
                6 => Next::Ip6.into(),
                _ => packet.drop(Drop::Version),
            };
            cx.decide(i, verdict);
        }
    }
}

pub(crate) fn node() -> NodeSpec {
    NodeSpec::vector(NODE, |_| IpInput)
}
