//! Software RSS: flows of an interface are spread over workers, for devices with fewer receive queues than there are workers.
//!
//! ```text
//!   <kind>-input ─► worker-handoff ──┬─► ethernet-input            on this worker
//!                   (arc device-input)└─► ring ─► ethernet-input   on the worker of the packet's flow
//! ```
//! (`ip-input` in the place of `ethernet-input` for interfaces without a link layer, such as memif in IP mode.)
//!
//! The worker that polls the queue looks at the headers only as far as the flow hash needs; all else happens on the flow's
//! worker. All packets of a flow go to the same worker over the same ring, so they stay in order. When the set of workers
//! changes, flows may move; packets of a flow that moves can overtake those still under way at that moment.
//!
//! What the hash takes in: addresses, protocol and (with [`RssConfig::l4`]) ports of IPv4 and IPv6, behind up to two VLAN tags;
//! of fragments no ports, so that all fragments of a datagram meet; of other frames the MAC addresses. A symmetric hash is
//! the same for both directions of a flow. It is seeded at random at start, so that nobody outside can choose who is overloaded.
//!
//! Limits: workers that are not there at the moment are passed over and used when they come.

mod flow;
pub mod ops;

use std::collections::BTreeMap;

use quiver_graph::{
    ArcPoint, FeatureSpec, Frame, IfIndex, NodeCx, NodeSpec, Published, Snapshot, VectorNode, Verdict, drop_reasons, next_nodes,
};

use crate::interface::Kind;
use crate::{IfEvent, InterfaceError, Router};

pub use flow::{HashInput, flow_hash, link_hash, packet_hash};

/// Name of the node.
const NODE: &str = "worker-handoff";

next_nodes! {
    /// Where packets go on.
    enum Next { Ethernet = "ethernet-input" }
}

drop_reasons! {
    /// Why packets are not handed over, and how many are.
    enum Drop {
        /// The queue to the worker that should take the packet is full.
        ///
        /// Causes: one worker gets more than it can process: a single large flow, or too few workers.
        /// Check: `show threads` and `show runtime` for the load of each worker; more workers, or another placement of queues.
        /// See: `show runtime summary`, `show interface rss`, `set interface rss`.
        Congestion = "congestion drop",
        /// The packet went to the worker that its flow belongs to.
        Handed = "packets handed off" (info),
    }
}

/// How an interface's flows are spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RssConfig {
    /// Workers that take part, by the users' numbers from 0.
    pub workers: Vec<usize>,
    /// What the hash takes in.
    pub input: HashInput,
}

/// An interface's spread as workers read it.
#[derive(Clone, Debug)]
struct Spread {
    threads: Vec<u8>,
    input: HashInput,
    /// Packets begin with an Ethernet header.
    link_layer: bool,
}

/// By interface.
type Table = Vec<Option<Spread>>;

/// The module's state on the main thread.
struct State {
    configs: BTreeMap<IfIndex, RssConfig>,
    published: Published<Table>,
    seed: u64,
}

/// `worker-handoff`.
struct WorkerHandoff {
    table: Snapshot<Table>,
    arc: ArcPoint,
    seed: u64,
}

impl VectorNode for WorkerHandoff {
    type Next = Next;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.table.refresh();
        let (own, table, arc, seed) = (cx.thread(), self.table.get(), &self.arc, self.seed);
        let handed = cx.spread_each(frame, Drop::Congestion, |packet| {
            let interface = packet.rx_if();
            let next = arc.next(interface, Verdict::from(Next::Ethernet));
            let Some(Some(spread)) = table.get(interface.0 as usize) else { return (own, next) };
            let hash = if spread.link_layer {
                flow_hash(packet.bytes(), spread.input, seed)
            } else {
                packet_hash(packet.bytes(), spread.input, seed)
            };
            // The high bits choose, without a division.
            let at = (u64::from(hash) * spread.threads.len() as u64) >> 32;
            (spread.threads.get(at as usize).map_or(own, |t| usize::from(*t)), next)
        });
        if handed > 0 {
            cx.count(Drop::Handed, handed as u64);
        }
    }
}

/// Makes the state that the node is made from.
pub(crate) fn prepare(router: &mut Router) {
    use std::hash::{BuildHasher, RandomState};
    let state = State { configs: BTreeMap::new(), published: Published::new(Table::new()), seed: RandomState::new().hash_one(0) };
    router.add_part(state);
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = event
            && router.rss(*index).is_some()
        {
            let _ = router.set_rss(*index, None);
        }
    });
    router.listen_workers(|router, _| router.publish_rss());
}

/// The node of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let Some(state) = router.part::<State>() else { return Vec::new() };
    let (table, seed, arc) = (state.published.snapshot(), state.seed, ArcPoint::new());
    let point = arc.clone();
    let make = move |_: &_| WorkerHandoff { table: table.clone(), arc: point.clone(), seed };
    let node = NodeSpec::vector(NODE, make).on_arc("device-input", arc).traced(|entry, out| {
        use std::fmt::Write;
        let _ = write!(out, "{NODE}: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
    });
    vec![node]
}

/// Its place on the arc: first, so that all other features run on the flow's worker.
pub(crate) fn feature() -> FeatureSpec {
    FeatureSpec { arc: "device-input", node: NODE.into(), before: Vec::new(), after: Vec::new() }
}

impl Router {
    /// How an interface's flows are spread, where they are.
    pub fn rss(&self, index: IfIndex) -> Option<&RssConfig> {
        self.part::<State>()?.configs.get(&index)
    }

    /// Spreads an interface's flows over workers, or stops doing so.
    ///
    /// # Errors
    /// No such interface, one that it cannot be done for, or workers that do not exist.
    pub fn set_rss(&mut self, index: IfIndex, config: Option<RssConfig>) -> Result<(), InterfaceError> {
        let interface = self.interfaces.expect(index)?;
        let Some(config) = config else {
            self.graph.set_feature("device-input", NODE, index, false)?;
            if let Some(state) = self.part_mut::<State>() {
                state.configs.remove(&index);
            }
            self.publish_rss();
            return Ok(());
        };
        if interface.parent != index || interface.kind == Kind::Local {
            let text = format!("{} is not where packets come in: choose the device's interface", interface.name);
            return Err(InterfaceError::NotPossible(text));
        }
        let there = self.graph.fleet().workers();
        if let Some(worker) = config.workers.iter().find(|w| **w >= there) {
            let expected = if there == 0 { "none: there are no workers".into() } else { format!("0 to {}", there - 1) };
            return Err(InterfaceError::Range { what: "worker", value: *worker as u64, expected });
        }
        if config.workers.is_empty() {
            return Err(InterfaceError::NotPossible("no workers are named".into()));
        }
        if let Some(state) = self.part_mut::<State>() {
            state.configs.insert(index, config);
        }
        self.publish_rss();
        self.graph.set_feature("device-input", NODE, index, true)?;
        Ok(())
    }

    fn publish_rss(&mut self) {
        let staying = self.staying_workers();
        let Some(state) = self.part::<State>() else { return };
        let mut table = Table::new();
        for (index, config) in &state.configs {
            let threads: Vec<u8> = config.workers.iter().map(|w| w + 1).filter(|t| staying.contains(t)).map(|t| t as u8).collect();
            let at = index.0 as usize;
            if table.len() <= at {
                table.resize(at + 1, None);
            }
            let link_layer = self.interfaces.get(*index).is_none_or(|i| i.has_link_layer());
            table[at] = Some(Spread { threads, input: config.input, link_layer });
        }
        state.published.publish(table);
        // When this returns, no worker hands packets over by an older table.
        self.graph.fleet().each(|_| ());
    }
}

#[cfg(test)]
mod tests;
