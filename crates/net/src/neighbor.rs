//! Neighbours: which MAC address belongs to a next hop, for ARP and ND alike.
//!
//! ```text
//!  worker:  ip4-arp, ip6-discover-neighbor, gleans ─── Wanted ──┐       arp-reply, icmp6-neighbor-… ─── Heard ──┐
//!              │ holds the packet, sends a first request        ▼                                               ▼
//!  main:       │                                     ┌── neighbour table (state.rs, table.rs) ◄── one bounded channel
//!              │                                     │   timers: repeat, age, probe
//!              ▼                                     ▼
//!           released ◄──── settle ─────── adjacency completed (one store for each bucket that leads to it)
//! ```
//!
//! *A neighbour is asked for by the thread that has a packet for it*, at once; main repeats the request each second and
//! gives up after three. Threads ask once for each neighbour and at a bounded rate in all, and hold a few packets each
//! ([`hold`]). Requests for own addresses are answered by the thread that receives them; what it learns goes to main.
//!
//! *States* are those of RFC 4861, section 7.3, for both families: a confirmation holds for half a minute; after that a
//! neighbour that is used is probed by unicast, and one that does not answer is removed, so that the next packet asks
//! everybody. Whether it is used is told by the counters of its adjacency: forwarding itself pays nothing.
//!
//! *Limits.* Dynamic entries of a family are bounded in all and for each interface ([`NeighborConfig`]), those that are only asked
//! for more tightly; so are held packets and requests a second, by who sends the packets ([`crate::owner`]), and facts on their way
//! to main, by kind and interface. A flood or a scan pushes out its own; what is dropped is counted (`docs/security-wire.md`).
//!
//! Not done here: secure ND (RFC 3971), and anything for links that are not Ethernet.

mod announce;
pub(crate) mod api;
mod arping;
mod ask;
mod asked;
mod change;
mod facts;
mod hold;
pub mod ops;
mod output;
mod process;
mod rate;
mod restart;
mod shares;
pub(crate) mod state;
mod station;
mod table;
mod view;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::stats::SimpleCounters;
use quiver_graph::{IfIndex, MAX_INTERFACES, NodeId, NodeSpec, Published};
use quiver_wire::MacAddr;

use crate::ip::{FamilyId, V4, V6};
use crate::{NetError, ProcessSignal, Router};

use announce::Announcements;
use arping::Arpings;
pub(crate) use arping::Ears;
use ask::{Ask, AskFamily, Outcome, Target};
pub(crate) use change::is_running;
use facts::FactReceiver;
pub(crate) use facts::{Fact, FactSender, Teller, What};
use hold::Holds;
pub(crate) use hold::Key;
pub(crate) use output::ViewSnapshot;
use output::{NeighborOutput, OutputSlots};
pub use state::{Evidence, State};
pub use station::Station;
use table::Table;
pub use table::{NeighborConfig, NeighborFigures};
pub use view::ProxyRange;
pub(crate) use view::{View, Views};

/// Name of the process that applies what workers tell, and runs the timers.
pub(crate) const PROCESS: &str = "ip-neighbor-process";

/// A neighbour, for display and for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Interface.
    pub interface: IfIndex,
    /// Address.
    pub address: IpAddr,
    /// MAC address; `None` while it is asked for.
    pub mac: Option<MacAddr>,
    /// State.
    pub state: State,
    /// Without a host route in the FIB.
    pub no_fib_entry: bool,
    /// When it was last heard of, ns of timer time.
    pub heard: u64,
}

/// What happened to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborEvent {
    /// Its MAC address is known now.
    Added(NeighborInfo),
    /// Its MAC address is another one.
    Changed(NeighborInfo),
    /// It is gone, as it was.
    Removed(NeighborInfo),
    /// Somebody else uses our address.
    Conflict {
        /// Interface.
        interface: IfIndex,
        /// The address.
        address: IpAddr,
        /// Who.
        mac: MacAddr,
    },
}

/// Somebody who wants to know what happens to neighbours; called on the main thread after the change.
pub type NeighborListener = fn(&mut Router, &NeighborEvent);

/// Why a neighbour operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeighborError {
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// No such entry.
    #[error("no neighbor {address} on {interface}")]
    NoEntry {
        /// Interface.
        interface: String,
        /// Address.
        address: IpAddr,
    },
    /// An address that no neighbour can have.
    #[error("{0} cannot be a neighbor's address")]
    Address(IpAddr),
    /// A MAC address that no neighbour can have.
    #[error("{0} is not a unicast MAC address")]
    Mac(MacAddr),
    /// The limit of dynamic entries.
    #[error("the limit of {0} dynamic neighbors is reached")]
    Full(u32),
    /// A proxy range that ends before it begins.
    #[error("the range ends before it begins: {0} to {1}")]
    Range(std::net::Ipv4Addr, std::net::Ipv4Addr),
    /// No such range.
    #[error("no such proxy range")]
    NoRange,
    /// The FIB refused.
    #[error(transparent)]
    Fib(#[from] crate::fib::FibError),
}

/// State of this module on the main thread.
pub(crate) struct Neighbors {
    v4: Table,
    v6: Table,
    pub views: Published<Views>,
    slots: OutputSlots,
    holds: Holds,
    facts: FactReceiver,
    pub sender: FactSender,
    epoch: Arc<AtomicU32>,
    listeners: Vec<NeighborListener>,
    /// Neighbours whose fate threads must be told.
    outcomes: Vec<(Key, Outcome)>,
    /// Announcements still to be repeated: when, where, which address.
    announcements: Announcements,
    /// Who listens to answers.
    arpings: Arpings,
    /// When the threads' holds are looked at next.
    sweep: u64,
    /// When a conflict was last written to the log.
    conflict_logged: u64,
}

impl Neighbors {
    fn table(&self, family: FamilyId) -> &Table {
        match family {
            FamilyId::V4 => &self.v4,
            FamilyId::V6 => &self.v6,
        }
    }

    fn table_mut(&mut self, family: FamilyId) -> &mut Table {
        match family {
            FamilyId::V4 => &mut self.v4,
            FamilyId::V6 => &mut self.v6,
        }
    }

    /// Counts a duplicate of an own address.
    pub(crate) fn count_conflict(&mut self, address: IpAddr) {
        self.table_mut(FamilyId::of(&address)).figures.conflicts += 1;
    }

    /// Threads must not think any more that main knows what they told.
    fn forget_told(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// An empty table.
    ///
    /// # Errors
    /// No address space.
    pub fn new(signal: ProcessSignal, seed: u64) -> Result<Self, NetError> {
        let (sender, facts, epoch) = facts::channel(signal);
        Ok(Self {
            v4: Table::new(seed),
            v6: Table::new(seed.rotate_left(32)),
            views: Published::new(Views::default()),
            slots: OutputSlots::new().map_err(|_| NetError::Memory("neighbours"))?,
            holds: Holds::default(),
            facts,
            sender,
            epoch,
            listeners: Vec::new(),
            outcomes: Vec::new(),
            announcements: Announcements::default(),
            arpings: Arpings::default(),
            sweep: 0,
            conflict_logged: 0,
        })
    }
}

impl Neighbors {
    /// What nodes tell of answers to `arping`.
    pub fn ears(&self) -> Ears {
        self.arpings.ears()
    }
}

/// Listens to interfaces and starts the process; nodes exist.
pub(crate) fn init(router: &mut Router) {
    router.listen(change::on_interface);
    router.add_process(PROCESS, process::run);
    restart::init(router);
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let slots = router.neighbors.slots.reader();
    let trace = |entry: &quiver_graph::TraceEntry, out: &mut String| {
        use std::fmt::Write;
        let _ = write!(out, "sw_if_index {}, {} bytes", entry.aux, entry.len);
    };
    let output = NodeSpec::node("neighbor-output", NeighborOutput { slots }).traced(trace);
    vec![
        output,
        asking::<V4>(router, "ip4-arp", Target::NextHop),
        asking::<V4>(router, "ip4-glean", Target::Destination),
        asking::<V6>(router, "ip6-discover-neighbor", Target::NextHop),
        asking::<V6>(router, "ip6-glean", Target::Destination),
    ]
}

/// The counter of requests that interfaces have sent.
fn requests_sent(router: &Router, family: FamilyId) -> Arc<SimpleCounters> {
    message_counter(router, if family == FamilyId::V4 { "arp/tx/requests" } else { "ip6-nd/tx/requests" })
}

/// A counter of messages by interface, below `/net`.
pub(crate) fn message_counter(router: &Router, name: &str) -> Arc<SimpleCounters> {
    let counter = router.graph.stats().simple(&format!("/net/{name}"), MAX_INTERFACES);
    counter.set_len(MAX_INTERFACES);
    counter
}

fn asking<F: AskFamily>(router: &Router, name: &'static str, target: Target) -> NodeSpec {
    let part = &router.neighbors;
    let node = Ask::<F> {
        target,
        sent: requests_sent(router, F::ID),
        adjacencies: router.data.adjacencies.clone(),
        views: part.views.snapshot(),
        hold: part.holds.of(0),
        holds: part.holds.clone(),
        facts: part.sender.clone(),
        family: std::marker::PhantomData,
    };
    NodeSpec::node(name, node).traced(move |entry, out| {
        use std::fmt::Write;
        let _ = write!(out, "{name}: adjacency {}, rx sw_if_index {}", entry.aux, entry.rx_if);
    })
}

impl Router {
    /// Calls `listener` for every neighbour event from now on.
    pub fn listen_neighbors(&mut self, listener: NeighborListener) {
        self.neighbors.listeners.push(listener);
    }

    pub(crate) fn tell_neighbors(&mut self, event: &NeighborEvent) {
        for listener in self.neighbors.listeners.clone() {
            listener(self, event);
        }
    }

    /// Neighbours of a family, by interface and address.
    pub fn neighbors(&self, family: FamilyId) -> Vec<NeighborInfo> {
        self.neighbors.table(family).iter().map(|(key, entry)| info(key, entry)).collect()
    }

    /// A neighbour.
    pub fn neighbor(&self, interface: IfIndex, address: IpAddr) -> Option<NeighborInfo> {
        let key = (interface, address);
        self.neighbors.table(FamilyId::of(&address)).get(&key).map(|entry| info(&key, entry))
    }

    /// Limits of a family's table.
    pub fn neighbor_config(&self, family: FamilyId) -> NeighborConfig {
        self.neighbors.table(family).config
    }

    /// Sets the limits of a family's table. Entries over a lower limit stay.
    pub fn set_neighbor_config(&mut self, family: FamilyId, config: NeighborConfig) {
        let now = self.graph.clock().timer_now();
        self.neighbors.holds.configure(family, config.hold, config.request_interval);
        self.neighbors.table_mut(family).configure(config, now);
        self.wake_process(PROCESS, 0);
    }

    /// Figures of a family's table.
    pub fn neighbor_figures(&self, family: FamilyId) -> NeighborFigures {
        self.neighbors.table(family).figures()
    }

    /// What ARP and ND nodes know of an interface.
    pub(crate) fn neighbor_view(&self, interface: IfIndex) -> Option<View> {
        self.neighbors.views.get().get(interface).cloned()
    }

    /// Sends whole frames, from the first thread, in the surroundings of one of this module's nodes.
    pub fn send_frames(&mut self, frames: Vec<(IfIndex, Vec<u8>)>) {
        let Some(node) = self.graph.node("ip4-arp") else { return };
        // A link without addresses has nobody to tell or to ask.
        let has_link_layer = |(index, _): &(IfIndex, Vec<u8>)| self.interfaces.get(*index).is_some_and(|i| i.has_link_layer());
        let frames: Vec<_> = frames.into_iter().filter(has_link_layer).collect();
        self.cast_at(node, move |cx| {
            for (interface, frame) in &frames {
                ask::send_plain(cx, *interface, frame);
            }
        });
    }

    fn cast_at(&mut self, node: NodeId, f: impl FnOnce(&mut quiver_graph::NodeCx<'_>) + Send + 'static) {
        let fleet = self.graph.fleet();
        let Some(thread) = fleet.threads().first().copied() else { return };
        fleet.cast(thread, move |w| {
            w.at_node(node, f);
        });
    }
}

fn info(key: &Key, entry: &table::Entry) -> NeighborInfo {
    NeighborInfo {
        interface: key.0,
        address: key.1,
        mac: entry.reach.mac,
        state: entry.reach.state,
        no_fib_entry: entry.no_fib,
        heard: entry.heard,
    }
}

#[cfg(test)]
mod tests;
