//! The node.

use std::sync::atomic::Ordering::Relaxed;

use quiver_graph::{
    ArcPoint, Batch, FastPath, FeatureSpec, Graph, GraphError, IfIndex, Node, NodeCx, NodeSpec, Pkt, Sent, Shared, Verdict,
    drop_reasons, flags, next_nodes,
};

use crate::Limits;

pub const ARC: &str = "ip4-unicast";
pub const NODE: &str = "ttl-limit";

next_nodes! { enum Next { Lookup = "ip4-lookup" } }
drop_reasons! {
    enum Drop {
        /// The packet's TTL is below that of `set ttl-limit`.
        Low = "ttl below the limit",
    }
}

#[derive(Clone)]
struct TtlLimit {
    limits: Limits,
    arc: ArcPoint,
}

impl TtlLimit {
    #[inline(always)]
    fn least(&self, interface: IfIndex) -> u8 {
        self.limits.get(interface.0 as usize).map_or(0, |least| least.load(Relaxed))
    }
}

impl Node<Shared> for TtlLimit {
    type Next = Next;
    type Drop = Drop;

    #[inline(always)]
    fn packet(&mut self, _: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        if packet.head_at::<u8, 8>() < self.least(packet.rx_if()) {
            return packet.drop(Drop::Low);
        }
        self.arc.next(packet.rx_if(), Next::Lookup.into())
    }
}

impl FastPath<Shared> for TtlLimit {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let interface = batch.first_rx_if();
        let least = self.least(interface);
        let low = batch.heads::<u8, 8>().iter().fold(false, |low, ttl| low | (*ttl < least));
        (!low && batch.all_from(interface, flags::CHAINED)).then(|| batch.send_all(self.arc.next(interface, Next::Lookup.into())))
    }
}

pub fn declare(graph: &mut Graph, limits: &Limits) -> Result<(), GraphError> {
    let arc = ArcPoint::new();
    graph.add(vec![NodeSpec::fast(NODE, TtlLimit { limits: limits.clone(), arc: arc.clone() }).on_arc(ARC, arc)])?;
    graph.add_features(vec![FeatureSpec { arc: ARC, node: NODE.into(), before: Vec::new(), after: Vec::new() }])
}
