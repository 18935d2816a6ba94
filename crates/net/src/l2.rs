//! Layer 2: cross-connects, bridge domains, tag rewrite.
//!
//! ```text
//!   ethernet-input ─► l2-input ─┬─► <peer>-output                         cross-connect
//!                         │     └─► l2-bridge ─┬─► <if>-output            destination known
//!                         └─ l2-input-vtr ─►   ├─► l2-flood ─► copies     group, or not known
//!                            (tags)            ├─► l2-arp-term ─► …       a question that the domain can answer
//!                                              └─► l2-bvi ─► ip4-input …  for the router itself
//!   <bvi>-tx ─► ethernet-input (of the BVI) ─► l2-input ─► l2-bridge      from the router
//! ```
//!
//! Between the tag rewrite and either side frames can pass a node of a plugin, a filter (`Router::set_l2_filter`).
//!
//! A *bridge domain* is a set of ports among which frames pass by destination address, as in a switch. Addresses are
//! *learned* from sources. A worker that meets an address that is new, or elsewhere than known, reports it to the main thread
//! over a bounded channel; main alone writes the table ([`mac`]), which workers read without locks. Until main has done so,
//! some tens of microseconds, frames to the address are flooded. When an address was heard last is a stamp of seconds in its
//! value, changed by workers at most once a second (`docs/decisions/0006-learning.md`).
//!
//! Rules kept, and tested: no frame goes back where it came from, to another domain, or between ports of one split-horizon
//! group; no group address is learned; pause frames, LACP, LLDP and other protocols of one link (01:80:c2:00:00:01 to :0f)
//! are not passed on. Spanning tree's frames (:00) pass like other groups: this bridge takes no part in it, and its
//! neighbours must see each other through it.
//!
//! A *BVI* is the router's own port: an interface of that kind (`bvi create`) or a loopback. Its address is a configured entry of the table.
//!
//! Limits: 65,535 domains, 16,777,216 addresses in all; no spanning tree, no multicast snooping (groups are flooded); one
//! BVI a domain; tags of a frame are told apart by sub-interfaces, not within a domain.

pub(crate) mod api;
mod bridge;
mod bvi;
mod control;
mod domain;
mod events;
mod flood;
mod hosts;
mod input;
mod learn;
mod loops;
mod mac;
mod macs;
pub mod ops;
mod port;
mod process;
mod restart;
mod rewrite;
mod suppress;
#[cfg(test)]
mod tests;
mod wiring;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use quiver_graph::{End, Graph, GraphError, IfIndex, NodeId, NodeSpec, Published, Then, TraceEntry, Verdict};

use crate::ethernet::EthernetInput;
use crate::router::ProcessSignal;
use crate::{NetError, Router};
pub use bridge::Bridge;
pub use control::{L2Error, PortSwitch};
pub use domain::{BdSwitch, BridgeDomain, BridgePort, PortKind};
use domain::{DomainView, Domains};
pub(crate) use domain::{LEARN_LIMIT, MAC_AGE, PORT_LEARN_LIMIT};
pub(crate) use events::SCAN_DELAY;
pub use input::L2Input;
use learn::{Reports, Teller};
pub use mac::MAC_LIMIT;
use mac::MacFib;
pub use macs::{Flush, MacEntry, MacKind};
use port::Ports;
use rewrite::Rewrites;
pub use rewrite::{Tag, TagRewrite};
use wiring::L2Filters;
pub use wiring::Onward;

/// Name of the process that learns and forgets.
pub(crate) const PROCESS: &str = "l2fib";

/// Slots by which two nodes reach a port.
#[derive(Clone, Copy, Debug)]
struct Ways {
    bridge: Verdict,
    flood: Verdict,
}

/// The state of this module on the main thread.
pub(crate) struct L2 {
    ports: Ports,
    domains: BTreeMap<u32, BridgeDomain>,
    /// Number of the domain at each index.
    numbers: BTreeMap<u16, u32>,
    views: Published<Domains>,
    macs: MacFib,
    ways: HashMap<IfIndex, Ways>,
    rewrites: BTreeMap<IfIndex, TagRewrite>,
    /// Nodes of plugins that frames of an interface pass, by whether these leave.
    filters: BTreeMap<(IfIndex, bool), BTreeMap<&'static str, NodeId>>,
    /// Where each of these nodes sends frames.
    nexts: BTreeMap<&'static str, Published<L2Filters>>,
    changes: Published<Rewrites>,
    teller: Teller,
    heard: Reports,
    /// Seconds of timer time, for stamps.
    stamp: Arc<AtomicU32>,
    ageing: process::Ageing,
    events: events::MacEvents,
    hosts: hosts::Hosts,
    /// Learned addresses of all domains.
    learned: u32,
    /// Addresses that new domains may learn.
    learn_limit: u32,
}

impl L2 {
    pub(crate) fn new(signal: ProcessSignal, seed: u64) -> Result<Self, NetError> {
        let hosts = hosts::Hosts::new(signal.clone());
        let (teller, heard) = learn::channel(signal);
        Ok(Self {
            ports: Ports::new().map_err(|_| NetError::Memory("bridge ports"))?,
            domains: BTreeMap::new(),
            numbers: BTreeMap::new(),
            views: Published::new(Domains::default()),
            macs: MacFib::new(seed).ok_or(NetError::Memory("MAC addresses"))?,
            ways: HashMap::new(),
            rewrites: BTreeMap::new(),
            filters: BTreeMap::new(),
            nexts: BTreeMap::new(),
            changes: Published::new(Rewrites::default()),
            teller,
            heard,
            stamp: Arc::default(),
            ageing: process::Ageing::default(),
            events: events::MacEvents::default(),
            hosts,
            learned: 0,
            learn_limit: LEARN_LIMIT,
        })
    }

    /// Publishes one domain as the data path shall see it; `None` takes it out.
    fn publish(&mut self, index: u16, view: Option<DomainView>) {
        let mut all = Domains::clone(&self.views.get());
        let at = usize::from(index);
        if all.0.len() <= at {
            all.0.resize(at + 1, None);
        }
        all.0[at] = view.map(Arc::new);
        self.views.publish(all);
    }
}

/// Takes the module's part in the router's life.
pub(crate) fn init(router: &mut Router) {
    router.add_process(PROCESS, process::run);
    router.listen(wiring::on_event);
    restart::init(router);
}

fn trace(entry: &TraceEntry, out: &mut String) {
    use std::fmt::Write;
    let _ = write!(out, "sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let l2 = &router.l2;
    let (interfaces, counters) = (router.data.interfaces.clone(), router.graph.interfaces().clone());
    let input = input::spec(router);
    let bridge = Bridge::new(l2.ports.reader(), l2.macs.snapshot(), l2.stamp.clone(), l2.teller.clone());
    let bridge = NodeSpec::fast("l2-bridge", bridge);
    let flood = NodeSpec::node("l2-flood", flood::Flood::new(l2.ports.reader(), l2.views.snapshot()));
    let suppress =
        suppress::Suppress { ports: l2.ports.reader(), domains: l2.views.snapshot(), listener: l2.hosts.listener.clone() };
    let suppress = NodeSpec::node("l2-arp-term", suppress);
    let bvi = NodeSpec::node("l2-bvi", bvi::ToBvi { interfaces, counters });
    let rewrite =
        |name: &str, inwards| NodeSpec::node(name, rewrite::Rewrite { inwards, rewrites: l2.changes.snapshot() }).traced(trace);
    let nodes = [bridge, flood, suppress, bvi].map(|node| node.traced(trace));
    let rewrites = [rewrite("l2-input-vtr", true), rewrite("l2-output-vtr", false)];
    [input].into_iter().chain(nodes).chain(rewrites).collect()
}

/// Nodes that frames between layer-2 ports pass one after the other: those of a bridge, and those of a cross-connect.
pub(crate) fn fuse(graph: &mut Graph) -> Result<(), GraphError> {
    graph.fuse::<Then<EthernetInput, Then<L2Input, End<Bridge>>>>(&["ethernet-input", "l2-input", "l2-bridge"])?;
    graph.fuse::<Then<EthernetInput, End<L2Input>>>(&["ethernet-input", "l2-input"])
}
