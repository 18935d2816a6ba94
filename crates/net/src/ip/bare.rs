//! `ip-input`: packets of interfaces without a link layer (memif in IP mode), to where their version says.

use quiver_graph::{Node, NodeCx, NodeSpec, Pkt, Verdict, drop_reasons, next_nodes};

next_nodes! {
    /// Where packets go.
    pub enum Next { Ip4 = "ip4-input", Ip6 = "ip6-input" }
}

drop_reasons! {
    /// Why packets are dropped.
    pub enum Drop {
        /// The packet came over an interface without link headers and is neither IPv4 nor IPv6.
        Version = "unknown ip version",
    }
}

/// Name of the node.
pub const NODE: &str = "ip-input";

#[derive(Clone)]
struct IpInput;

impl Node for IpInput {
    type Next = Next;
    type Drop = Drop;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        // Past the end of an empty packet the byte is stale: the next node drops it for its length.
        match packet.head::<u8>() >> 4 {
            4 => Next::Ip4.into(),
            6 => Next::Ip6.into(),
            _ => packet.drop(Drop::Version),
        }
    }
}

pub(crate) fn node() -> NodeSpec {
    NodeSpec::node(NODE, IpInput)
}
