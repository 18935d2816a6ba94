//! The graph as the main thread knows it: names, edges, and every change to them.

mod arcs;
mod edges;
mod error;
mod figures;
mod threads;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quiver_buffer::{Pool, Region};
use quiver_tables::qsbr;

use crate::clock::Clock;
use crate::context::{NULL_NODE, NodeId};
use crate::drop::{ErrorDrop, NullNode, PacketLoop};
use crate::elog::EventLog;
use crate::fleet::{Fleet, ThreadInfo};
use crate::frame::VECTOR_DEFAULT;
use crate::handoff::HandoffInput;
use crate::hold::Hold;
use crate::interface::InterfaceCounters;
use crate::level::Level;
use crate::node::{ErrorText, LoopConfig, Severity, Verdict};
use crate::pulse::Pulses;
use crate::spec::{Loop, MakeCx, NodeKind, NodeSpec};
use crate::stats::{Names, SimpleCounters, Stats, path_part};
use crate::worker::{NodeCounters, Shared, Slot, Worker};

use arcs::ArcState;
use edges::{Incoming, Nexts};
pub use error::GraphError;

/// Most nodes of a graph, interface nodes included.
pub const MAX_NODES: u32 = 40_000;
/// Most drop reasons of all nodes.
const MAX_ERRORS: u32 = 200_000;

/// Size of the statistics memory that holds all counters for the largest number of threads, bytes. It is sparse: only what
/// is written takes memory.
pub const STATS_BYTES: usize = 1 << 30;

/// Counters of a node, `/sys/node/<counter>` for all and `/nodes/<node>/<counter>` for one.
const NODE_COUNTERS: [&str; 4] = ["calls", "vectors", "clocks", "suspends"];

fn node_link(node: &str, counter: &str) -> String {
    format!("/nodes/{}/{counter}", path_part(node))
}

struct Entry {
    spec: NodeSpec,
    nexts: Nexts,
    error_base: u32,
    loop_config: LoopConfig,
    level: Level,
}

impl Entry {
    /// Whether its loop runs as it does by itself.
    fn is_usual(&self) -> bool {
        self.loop_config == self.spec.loop_config && self.level == Level::best()
    }
}

/// A drop reason of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorInfo {
    /// Node that counts it.
    pub node: String,
    /// Reason.
    pub text: &'static str,
    /// What has happened, in a sentence.
    pub about: &'static str,
    /// Severity.
    pub severity: Severity,
    /// What its declaration says.
    pub declared: &'static ErrorText,
}

/// Counters of what happens outside any node.
#[derive(Clone)]
pub struct EventCounts {
    errors: Arc<SimpleCounters>,
    base: u32,
    n: u32,
}

impl EventCounts {
    /// Counts one of them, by its place in the list.
    pub fn count(&self, at: u32) {
        if at < self.n {
            self.errors.add(0, self.base + at, 1);
        }
    }
}

/// A node as displays show it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Input or internal.
    pub kind: NodeKind,
    /// Next nodes by slot; slot 0 is `error-drop`.
    pub nexts: Vec<String>,
    /// How its loop runs, where it has one.
    pub multi_loop: Option<(LoopConfig, Level)>,
}

/// Counters of one node on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Calls.
    pub calls: u64,
    /// Packets.
    pub vectors: u64,
    /// Clock ticks.
    pub clocks: u64,
    /// Resumptions (process nodes).
    pub suspends: u64,
}

/// The main thread's handle of the graph.
pub struct Graph {
    entries: Vec<Option<Entry>>,
    /// Numbers of removed nodes.
    free: BTreeSet<u16>,
    incoming: Incoming,
    by_name: HashMap<String, u16>,
    errors: Vec<Option<ErrorInfo>>,
    free_errors: HashMap<usize, Vec<u32>>,
    arcs: HashMap<&'static str, ArcState>,
    arc_order: Vec<&'static str>,
    fleet: Fleet,
    shared: Shared,
    node_names: Arc<Names>,
    stats: Arc<Stats>,
    vector_size: usize,
    /// Memory node of main.
    main_numa: usize,
    /// Fused chains, as each worker takes them up.
    chains: Vec<(&'static [&'static str], Recipe)>,
    fusion: bool,
    domain: qsbr::Domain,
    on_feature: Option<Box<dyn Fn(crate::IfIndex) + Send>>,
}

type Recipe = Arc<dyn Fn(&mut Worker) + Send + Sync>;

impl Graph {
    /// A graph with `error-drop` alone, run by the main thread until workers are started.
    pub fn new(region: Region, stats: Arc<Stats>, clock: Arc<Clock>, domain: qsbr::Domain) -> Self {
        let region = Arc::new(region);
        let pools = (0..region.numa_nodes()).map(|n| Arc::new(Pool::new(region.clone(), n))).collect();
        let nodes = NodeCounters {
            calls: stats.simple("/sys/node/calls", MAX_NODES),
            vectors: stats.simple("/sys/node/vectors", MAX_NODES),
            clocks: stats.simple("/sys/node/clocks", MAX_NODES),
            suspends: stats.simple("/sys/node/suspends", MAX_NODES),
        };
        let interfaces = Arc::new(InterfaceCounters::new(&stats));
        let events = Arc::new(EventLog::new(clock.clone()));
        let shared = Shared {
            pools,
            clock,
            errors: stats.simple("/node/errors", MAX_ERRORS),
            interfaces: interfaces.clone(),
            nodes: Arc::new(nodes),
            events,
            pulses: Arc::default(),
            hold: Hold::None,
            observed: Arc::default(),
        };
        let mut graph = Self {
            entries: Vec::new(),
            free: BTreeSet::new(),
            incoming: Incoming::default(),
            by_name: HashMap::new(),
            errors: Vec::new(),
            free_errors: HashMap::new(),
            arcs: HashMap::new(),
            arc_order: Vec::new(),
            fleet: Fleet::new(domain.clone(), shared.pulses.clone()),
            shared,
            node_names: stats.names("/sys/node/names"),
            stats,
            vector_size: VECTOR_DEFAULT,
            main_numa: 0,
            chains: Vec::new(),
            fusion: true,
            domain,
            on_feature: None,
        };
        let drops = interfaces.drops.clone();
        let punts = interfaces.punt.clone();
        let looped = graph.shared.events.kind("packet loop: %d packets dropped");
        let added = graph.add(vec![
            NodeSpec::vector("error-drop", move |_| ErrorDrop { counter: drops.clone() }),
            NodeSpec::node("null-node", NullNode),
            NodeSpec::vector("error-punt", move |_| ErrorDrop { counter: punts.clone() }),
            NodeSpec::input("handoff-input", |_| HandoffInput),
            NodeSpec::node("packet-loop", PacketLoop { event: looped, packets: 0 }),
        ]);
        debug_assert!(added.is_ok());
        graph.shared.errors.set_len(graph.errors.len() as u32);
        let worker = graph.build(0, graph.main_numa);
        graph.fleet.run_here(worker);
        graph
    }

    /// Counters in shared memory.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The router's clock.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.shared.clock
    }

    /// The event log of all threads.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.shared.events
    }

    /// What all threads show of their progress.
    pub fn pulses(&self) -> &Arc<Pulses> {
        &self.shared.pulses
    }

    /// Tells a watchdog that main has done a part of what it does: between the parts of a change that has many and does not
    /// give the thread back.
    pub fn progress(&self) {
        self.fleet.progress();
    }

    /// Reclamation domain that all workers take part in.
    pub fn domain(&self) -> &qsbr::Domain {
        &self.domain
    }

    /// Pools of packet buffers, by NUMA node.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.shared.pools
    }

    pub(crate) fn shared_mut(&mut self) -> &mut Shared {
        &mut self.shared
    }

    /// Counters of interfaces.
    pub fn interfaces(&self) -> &Arc<InterfaceCounters> {
        &self.shared.interfaces
    }

    /// The threads.
    pub fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    /// Placement of the worker threads.
    pub fn thread_info(&self) -> Vec<ThreadInfo> {
        self.fleet.info()
    }

    /// Declares nodes; they may name one another and existing ones. All or none.
    ///
    /// # Errors
    /// A name twice, an unknown next node, or no room.
    pub fn add(&mut self, specs: Vec<NodeSpec>) -> Result<Vec<NodeId>, GraphError> {
        let mut names = HashMap::new();
        let mut free = self.free.iter();
        let mut fresh = self.entries.len() as u32;
        for spec in &specs {
            if self.by_name.contains_key(&spec.name) || names.contains_key(&spec.name) {
                return Err(GraphError::Duplicate(spec.name.clone()));
            }
            let id = free.next().map_or_else(
                || {
                    fresh += 1;
                    fresh - 1
                },
                |id| u32::from(*id),
            );
            if id >= MAX_NODES {
                return Err(GraphError::Full);
            }
            names.insert(spec.name.clone(), id as u16);
        }
        let mut resolved = Vec::new();
        for spec in &specs {
            let mut nexts = Vec::with_capacity(spec.nexts.len());
            for next in &spec.nexts {
                let id = names.get(next).or_else(|| self.by_name.get(next));
                let Some(id) = id else { return Err(GraphError::UnknownNode { name: next.clone(), by: spec.name.clone() }) };
                nexts.push(*id);
            }
            resolved.push(Nexts::new(&nexts));
        }
        let mut ids = Vec::new();
        for (spec, nexts) in specs.into_iter().zip(resolved) {
            let id = names[&spec.name];
            self.by_name.insert(spec.name.clone(), id);
            let error_base = self.claim_errors(&spec);
            self.node_names.set(u32::from(id), &spec.name);
            self.shared.pulses.set_name(id, &spec.name);
            for what in NODE_COUNTERS {
                // A refusal only means that the directory is full.
                let _ = self.stats.symlink(&node_link(&spec.name, what), &format!("/sys/node/{what}"), u32::from(id));
            }
            self.free.remove(&id);
            self.incoming.add_all(id, &nexts);
            let loop_config = spec.loop_config;
            let entry = Entry { spec, nexts, error_base, loop_config, level: Level::best() };
            while self.entries.len() <= id as usize {
                self.entries.push(None);
            }
            self.entries[id as usize] = Some(entry);
            ids.push(NodeId(id));
        }
        let n = self.entries.len() as u32;
        for counters in
            [&self.shared.nodes.calls, &self.shared.nodes.vectors, &self.shared.nodes.clocks, &self.shared.nodes.suspends]
        {
            counters.set_len(n);
        }
        for thread in self.fleet.threads() {
            let slots: Vec<(u16, Slot)> = ids.iter().filter_map(|id| self.instance(id.0, thread).map(|s| (id.0, s))).collect();
            self.fleet.on(thread, move |w| slots.into_iter().for_each(|(id, slot)| w.install(id, slot)));
        }
        Ok(ids)
    }

    /// Gives a node's reasons their numbers; those of a removed node with as many reasons are used again, zeroed.
    fn claim_errors(&mut self, spec: &NodeSpec) -> u32 {
        let base = self.claim_errors_of(&spec.name, spec.errors);
        for (link, at) in other_links(spec, base) {
            let _ = self.stats.symlink(&link, "/node/errors", at);
        }
        base
    }

    fn claim_errors_of(&mut self, owner: &str, errors: &'static [ErrorText]) -> u32 {
        let n = errors.len();
        let base = self.free_errors.get_mut(&n).and_then(Vec::pop).unwrap_or(self.errors.len() as u32);
        for (k, e) in errors.iter().enumerate() {
            let at = base as usize + k;
            if self.errors.len() <= at {
                self.errors.push(None);
            }
            let (node, text, about, severity) = (owner.to_owned(), e.text, e.about, e.severity);
            self.errors[at] = Some(ErrorInfo { node, text, about, severity, declared: e });
            // Names are unique by node and reason; a refusal only means that the directory is full.
            let _ = self.stats.symlink(&format!("/err/{owner}/{}", e.name), "/node/errors", at as u32);
        }
        self.shared.errors.set_len(self.errors.len() as u32);
        base
    }

    /// Counters of what happens outside any node, shown among the errors under `owner`. Main alone counts them.
    pub fn add_events(&mut self, owner: &str, texts: &'static [ErrorText]) -> EventCounts {
        let base = self.claim_errors_of(owner, texts);
        EventCounts { errors: self.shared.errors.clone(), base, n: texts.len() as u32 }
    }

    fn instance(&self, id: u16, thread: usize) -> Option<Slot> {
        let entry = self.entries.get(id as usize)?.as_ref()?;
        let mut body = (entry.spec.make)(&MakeCx { thread });
        if let crate::spec::Body::Internal(node) = &mut body {
            node.set_loop(entry.loop_config, entry.level);
        }
        Some(Slot {
            body,
            nexts: entry.nexts.slots().to_vec(),
            error_base: entry.error_base,
            prefetch: entry.loop_config.prefetch,
            takes_shared: entry.spec.takes_shared,
            usual: entry.is_usual(),
            passes: entry.spec.passes,
        })
    }

    fn build(&self, thread: usize, numa: usize) -> Worker {
        let mut worker = Worker::new(thread, &self.shared, numa, self.vector_size);
        for id in 0..self.entries.len() as u16 {
            if let Some(slot) = self.instance(id, thread) {
                worker.install(id, slot);
            }
        }
        self.chains.iter().for_each(|(_, chain)| chain(&mut worker));
        worker.set_fusion(self.fusion);
        worker
    }

    /// Removes a node. Packets on their way to it are dropped; its number is free for a new node.
    ///
    /// # Errors
    /// No such node.
    pub fn remove(&mut self, id: NodeId) -> Result<(), GraphError> {
        let entry =
            self.entries.get_mut(id.0 as usize).and_then(Option::take).ok_or_else(|| GraphError::NoSuchNode(id.0.to_string()))?;
        self.by_name.remove(&entry.spec.name);
        for what in NODE_COUNTERS {
            self.stats.unlink(&node_link(&entry.spec.name, what));
        }
        // First nobody sends there any more, then the instance goes.
        self.incoming.forget(id.0, &entry.nexts);
        let edges = self.incoming.take(id.0);
        for (from, slot) in &edges {
            if let Some(other) = self.entries.get_mut(usize::from(*from)).and_then(Option::as_mut) {
                other.nexts.lose(*slot);
            }
        }
        self.free.insert(id.0);
        self.fleet.each(move |w| edges.iter().for_each(|(from, slot)| w.set_edge(*from, usize::from(*slot), NULL_NODE)));
        // Now no thread hands packets over to it any more; those on their way come first.
        self.fleet.each(move |w| {
            w.take_in();
            w.uninstall(id.0);
        });
        for (link, _) in other_links(&entry.spec, entry.error_base) {
            self.stats.unlink(&link);
        }
        for (k, e) in entry.spec.errors.iter().enumerate() {
            let at = entry.error_base + k as u32;
            self.stats.unlink(&format!("/err/{}/{}", entry.spec.name, e.name));
            self.errors[at as usize] = None;
            let errors = self.shared.errors.clone();
            self.each_row(move |row| errors.clear_index_thread(row, at));
        }
        if !entry.spec.errors.is_empty() {
            self.free_errors.entry(entry.spec.errors.len()).or_default().push(entry.error_base);
        }
        let nodes = self.shared.nodes.clone();
        self.each_row(move |row| {
            for counters in [&nodes.calls, &nodes.vectors, &nodes.clocks, &nodes.suspends] {
                counters.clear_index_thread(row, u32::from(id.0));
            }
        });
        Ok(())
    }

    /// Number of a node.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).map(|i| NodeId(*i))
    }

    /// Name of a node.
    pub fn node_name(&self, id: NodeId) -> &str {
        self.entries.get(id.0 as usize).and_then(Option::as_ref).map_or("removed", |e| &e.spec.name)
    }

    /// The verdict with which `from` sends to `to`; the edge is added on all threads if it is new.
    ///
    /// # Errors
    /// No such node.
    pub fn edge(&mut self, from: NodeId, to: NodeId) -> Result<Verdict, GraphError> {
        if self.entries.get(to.0 as usize).is_none_or(Option::is_none) {
            return Err(GraphError::NoSuchNode(to.0.to_string()));
        }
        let entry = self
            .entries
            .get_mut(from.0 as usize)
            .and_then(Option::as_mut)
            .ok_or_else(|| GraphError::NoSuchNode(from.0.to_string()))?;
        if let Some(slot) = entry.nexts.find(to.0) {
            return Ok(Verdict(slot));
        }
        // A slot whose node was removed is used again, so that interfaces that come and go do not use slots up.
        let slot = entry.nexts.add(to.0);
        self.incoming.add(from.0, slot, to.0);
        self.fleet.each(move |w| w.set_edge(from.0, usize::from(slot), to.0));
        Ok(Verdict(slot))
    }

    /// All nodes, in order of number.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let name = |i: &u16| self.node_name(NodeId(*i)).to_owned();
        let info = |(i, e): (usize, &Entry)| NodeInfo {
            id: NodeId(i as u16),
            name: e.spec.name.clone(),
            kind: e.spec.kind,
            nexts: e.nexts.slots().iter().map(name).collect(),
            multi_loop: (e.spec.settable != Loop::Fixed).then_some((e.loop_config, e.level)),
        };
        self.entries.iter().enumerate().filter_map(|(i, e)| e.as_ref().map(|e| info((i, e)))).collect()
    }
}

/// The links to a node's errors under the other name that programs know them by, with their numbers.
fn other_links(spec: &NodeSpec, base: u32) -> impl Iterator<Item = (String, u32)> {
    let name = spec.errors_of;
    (base..).zip(spec.errors).filter_map(move |(at, error)| Some((format!("/err/{}/{}", name?, error.name), at)))
}
