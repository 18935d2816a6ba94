//! The graph as the main thread knows it: names, edges, arcs, and every change to them.

use std::collections::HashMap;
use std::sync::Arc;

use quiver_buffer::{Pool, Region};
use quiver_tables::qsbr;

use crate::clock::Clock;
use crate::context::{NULL_NODE, NodeId};
use crate::drop::{ErrorDrop, NullNode};
use crate::elog::EventLog;
use crate::feature::{ArcPoint, ArcSpec, FeatureSpec, order};
use crate::fleet::{Fleet, ThreadInfo, ThreadPlan};
use crate::frame::{IfIndex, VECTOR_DEFAULT, VECTOR_MAX};
use crate::handoff::HandoffInput;
use crate::interface::InterfaceCounters;
use crate::node::{InputNode, LoopConfig, Severity, Verdict};
use crate::spec::{MakeCx, NodeKind, NodeSpec};
use crate::staged::Level;
use crate::stats::{MAX_THREADS, Names, Stats};
use crate::trace::{TraceEntry, TraceRecord};
use crate::worker::{LoopFigures, NodeCounters, NodePeak, Shared, Slot, Worker};

/// Most nodes of a graph, interface nodes included.
pub const MAX_NODES: u32 = 40_000;
/// Most drop reasons of all nodes.
const MAX_ERRORS: u32 = 200_000;

/// Size of the statistics memory that holds all counters for the largest number of threads, bytes. It is sparse: only what
/// is written takes memory.
pub const STATS_BYTES: usize = 1 << 30;

/// Why the graph refused a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A name twice.
    #[error("node `{0}' exists already")]
    Duplicate(String),
    /// A next node or a feature that nobody declared.
    #[error("no node `{name}' (named by `{by}')")]
    UnknownNode {
        /// The missing name.
        name: String,
        /// Who named it.
        by: String,
    },
    /// No such node.
    #[error("no node `{0}'")]
    NoSuchNode(String),
    /// No such arc.
    #[error("no feature arc `{0}'")]
    NoSuchArc(String),
    /// No such feature on the arc.
    #[error("no feature `{feature}' on arc `{arc}'")]
    NoSuchFeature {
        /// Feature.
        feature: String,
        /// Arc.
        arc: String,
    },
    /// A node that was declared without a point on the arc it is used on.
    #[error("node `{node}' has no place on feature arc `{arc}'")]
    NotOnArc {
        /// Node.
        node: String,
        /// Arc.
        arc: String,
    },
    /// Features that want to be before one another.
    #[error("features of arc `{arc}' cannot be ordered: {nodes}")]
    Cycle {
        /// Arc.
        arc: String,
        /// Those on the cycle.
        nodes: String,
    },
    /// A value out of range.
    #[error("{what} {value} is out of range, expected {expected}")]
    Range {
        /// What was set.
        what: &'static str,
        /// The value.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// The processor lacks an instruction set.
    #[error("this processor cannot run variant {0}")]
    Variant(&'static str),
    /// The node is not a multi-loop.
    #[error("node `{0}' takes whole vectors and has no multi-loop to set")]
    NotStaged(String),
    /// Tables are full.
    #[error("no room for more nodes")]
    Full,
    /// A thread could not be started or placed.
    #[error("cannot start worker {thread}: {error}")]
    Thread {
        /// Its number.
        thread: usize,
        /// What the kernel said.
        error: String,
    },
}

struct Entry {
    spec: NodeSpec,
    nexts: Vec<u16>,
    error_base: u32,
    loop_config: LoopConfig,
    level: Level,
}

/// A drop reason of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorInfo {
    /// Node that counts it.
    pub node: String,
    /// Reason.
    pub text: &'static str,
    /// Severity.
    pub severity: Severity,
}

struct ArcState {
    spec: ArcSpec,
    features: Vec<FeatureSpec>,
    ordered: Vec<usize>,
    /// By interface: which features are on.
    enabled: HashMap<u32, Vec<String>>,
    /// By interface: start and end, where they are its own.
    own: HashMap<u32, (String, String)>,
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
    domain: qsbr::Domain,
}

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
        };
        let mut graph = Self {
            entries: Vec::new(),
            by_name: HashMap::new(),
            errors: Vec::new(),
            free_errors: HashMap::new(),
            arcs: HashMap::new(),
            arc_order: Vec::new(),
            fleet: Fleet::new(domain.clone()),
            shared,
            node_names: stats.names("/sys/node/names"),
            stats,
            vector_size: VECTOR_DEFAULT,
            domain,
        };
        let drops = interfaces.drops.clone();
        let punts = interfaces.punt.clone();
        let added = graph.add(vec![
            NodeSpec::vector("error-drop", move |_| ErrorDrop { counter: drops.clone() }).takes_shared(),
            NodeSpec::vector("null-node", |_| NullNode).takes_shared(),
            NodeSpec::vector("error-punt", move |_| ErrorDrop { counter: punts.clone() }).takes_shared(),
            NodeSpec::input("handoff-input", |_| HandoffInput),
        ]);
        debug_assert!(added.is_ok());
        graph.shared.errors.set_len(graph.errors.len() as u32);
        let worker = graph.build(0, 0);
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

    /// Reclamation domain that all workers take part in.
    pub fn domain(&self) -> &qsbr::Domain {
        &self.domain
    }

    /// Pools of packet buffers, by NUMA node.
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.shared.pools
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
        let mut free: Vec<u16> = (0..self.entries.len() as u16).filter(|i| self.entries[*i as usize].is_none()).rev().collect();
        let mut fresh = self.entries.len() as u32;
        for spec in &specs {
            if self.by_name.contains_key(&spec.name) || names.contains_key(&spec.name) {
                return Err(GraphError::Duplicate(spec.name.clone()));
            }
            let id = free.pop().map_or_else(
                || {
                    fresh += 1;
                    fresh - 1
                },
                u32::from,
            );
            if id >= MAX_NODES {
                return Err(GraphError::Full);
            }
            names.insert(spec.name.clone(), id as u16);
        }
        let mut resolved = Vec::new();
        for spec in &specs {
            let mut nexts = vec![0_u16];
            for next in &spec.nexts {
                let id = names.get(next).or_else(|| self.by_name.get(next));
                let Some(id) = id else { return Err(GraphError::UnknownNode { name: next.clone(), by: spec.name.clone() }) };
                nexts.push(*id);
            }
            resolved.push(nexts);
        }
        let mut ids = Vec::new();
        for (spec, nexts) in specs.into_iter().zip(resolved) {
            let id = names[&spec.name];
            self.by_name.insert(spec.name.clone(), id);
            let error_base = self.claim_errors(&spec);
            self.node_names.set(u32::from(id), &spec.name);
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
        let n = spec.errors.len();
        let base = self.free_errors.get_mut(&n).and_then(Vec::pop).unwrap_or(self.errors.len() as u32);
        for (k, e) in spec.errors.iter().enumerate() {
            let at = base as usize + k;
            if self.errors.len() <= at {
                self.errors.push(None);
            }
            self.errors[at] = Some(ErrorInfo { node: spec.name.clone(), text: e.text, severity: e.severity });
            // Names are unique by node and reason; a refusal only means that the directory is full.
            let _ = self.stats.symlink(&format!("/err/{}/{}", spec.name, e.text), "/node/errors", at as u32);
        }
        self.shared.errors.set_len(self.errors.len() as u32);
        base
    }

    fn instance(&self, id: u16, thread: usize) -> Option<Slot> {
        let entry = self.entries.get(id as usize)?.as_ref()?;
        let mut body = (entry.spec.make)(&MakeCx { thread });
        if let crate::spec::Body::Internal(node) = &mut body {
            node.set_loop(entry.loop_config, entry.level);
        }
        Some(Slot {
            body,
            nexts: entry.nexts.clone(),
            error_base: entry.error_base,
            prefetch: entry.loop_config.prefetch,
            takes_shared: entry.spec.takes_shared,
        })
    }

    fn build(&self, thread: usize, numa: usize) -> Worker {
        let mut worker = Worker::new(thread, &self.shared, numa, self.vector_size);
        for id in 0..self.entries.len() as u16 {
            if let Some(slot) = self.instance(id, thread) {
                worker.install(id, slot);
            }
        }
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
        // First nobody sends there any more, then the instance goes.
        for other in self.entries.iter_mut().flatten() {
            for next in other.nexts.iter_mut().filter(|n| **n == id.0) {
                *next = NULL_NODE;
            }
        }
        self.fleet.each(move |w| w.redirect(id.0));
        // Now no thread hands packets over to it any more; those on their way come first.
        self.fleet.each(move |w| {
            w.take_in();
            w.uninstall(id.0);
        });
        for (k, e) in entry.spec.errors.iter().enumerate() {
            let at = entry.error_base + k as u32;
            self.stats.remove(&format!("/err/{}/{}", entry.spec.name, e.text));
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
        if let Some(slot) = entry.nexts.iter().position(|n| *n == to.0) {
            return Ok(Verdict(slot as u16));
        }
        // A slot whose node was removed is used again, so that interfaces that come and go do not use slots up.
        let free = entry
            .nexts
            .iter()
            .skip(1 + entry.spec.nexts.len())
            .position(|n| *n == NULL_NODE)
            .map(|p| p + 1 + entry.spec.nexts.len());
        let slot = free.unwrap_or(entry.nexts.len());
        if slot == entry.nexts.len() {
            entry.nexts.push(to.0);
        } else {
            entry.nexts[slot] = to.0;
        }
        self.fleet.each(move |w| w.set_edge(from.0, slot, to.0));
        Ok(Verdict(slot as u16))
    }

    /// All nodes, in order of number.
    pub fn nodes(&self) -> Vec<NodeInfo> {
        let name = |i: &u16| self.node_name(NodeId(*i)).to_owned();
        let info = |(i, e): (usize, &Entry)| NodeInfo {
            id: NodeId(i as u16),
            name: e.spec.name.clone(),
            kind: e.spec.kind,
            nexts: e.nexts.iter().map(name).collect(),
            multi_loop: e.spec.staged.then_some((e.loop_config, e.level)),
        };
        self.entries.iter().enumerate().filter_map(|(i, e)| e.as_ref().map(|e| info((i, e)))).collect()
    }

    /// Counters of a node on a thread.
    pub fn figures(&self, id: NodeId, thread: usize) -> NodeFigures {
        let (nodes, i) = (&self.shared.nodes, u32::from(id.0));
        NodeFigures {
            calls: nodes.calls.get(thread, i),
            vectors: nodes.vectors.get(thread, i),
            clocks: nodes.clocks.get(thread, i),
            suspends: nodes.suspends.get(thread, i),
        }
    }

    /// Figures of each thread's loop.
    pub fn loop_figures(&mut self) -> Vec<(usize, LoopFigures)> {
        self.fleet.each(|w| (w.thread(), w.figures()))
    }

    /// The most expensive call of each node by its number, for each thread.
    pub fn node_peaks(&mut self) -> Vec<(usize, Vec<NodePeak>)> {
        self.fleet.each(|w| (w.thread(), w.peaks().to_vec()))
    }

    /// Zeroes the error counters, each row by the thread that writes it, so that no count is lost half-way.
    pub fn clear_errors(&mut self) {
        let errors = self.shared.errors.clone();
        self.each_row(move |row| errors.clear_thread(row));
    }

    /// Zeroes the counters of one interface or of all, each row by the thread that writes it.
    pub fn clear_interfaces(&mut self, only: Option<IfIndex>) {
        let interfaces = self.shared.interfaces.clone();
        self.each_row(move |row| match only {
            Some(index) => interfaces.clear_index_thread(row, index.0),
            None => interfaces.clear_thread(row),
        });
    }

    /// Starts the figures of all nodes and loops anew.
    pub fn clear_runtime(&mut self) {
        let nodes = self.shared.nodes.clone();
        self.each_row(move |row| {
            for counters in [&nodes.calls, &nodes.vectors, &nodes.clocks, &nodes.suspends] {
                counters.clear_thread(row);
            }
        });
        self.fleet.each(Worker::clear_figures);
    }

    /// All drop reasons and counted events with their count, per thread that runs the graph; of threads that have left, what
    /// they have counted.
    pub fn error_counts(&self) -> Vec<(usize, ErrorInfo, u64)> {
        let threads = self.fleet.threads();
        let mut result = Vec::new();
        for (i, error) in self.errors.iter().enumerate() {
            let Some(error) = error else { continue };
            for thread in 0..self.stats.threads() {
                let count = self.shared.errors.get(thread, i as u32);
                if count > 0 || threads.contains(&thread) {
                    result.push((thread, error.clone(), count));
                }
            }
        }
        result
    }

    /// The reason behind an error code.
    pub fn error(&self, code: u32) -> Option<&ErrorInfo> {
        self.errors.get(code as usize).and_then(Option::as_ref)
    }

    /// Code of a reason, from its node and text.
    pub fn error_code(&self, node: &str, text: &str) -> Option<u32> {
        self.errors.iter().position(|e| e.as_ref().is_some_and(|e| e.node == node && e.text == text)).map(|i| i as u32)
    }

    /// Sets how a node's loop runs; what is `None` stays.
    ///
    /// # Errors
    /// No such node, one without a multi-loop, values out of range, an instruction set that the processor lacks.
    pub fn set_loop(
        &mut self,
        name: &str,
        width: Option<u8>,
        prefetch: Option<u8>,
        level: Option<Level>,
    ) -> Result<(), GraphError> {
        let id = self.node(name).ok_or_else(|| GraphError::NoSuchNode(name.into()))?;
        let entry = self.entries[id.0 as usize].as_mut().ok_or_else(|| GraphError::NoSuchNode(name.into()))?;
        if !entry.spec.staged {
            return Err(GraphError::NotStaged(name.into()));
        }
        let config = LoopConfig {
            width: width.unwrap_or(entry.loop_config.width),
            prefetch: prefetch.unwrap_or(entry.loop_config.prefetch),
        };
        if ![1, 2, 4, 8].contains(&config.width) {
            return Err(GraphError::Range { what: "multi-loop", value: config.width.into(), expected: "1, 2, 4 or 8" });
        }
        // The loop reads `width` packets ahead of the distance; the padding covers both.
        if usize::from(config.prefetch) + usize::from(config.width) > crate::frame::PREFETCH_MAX {
            return Err(GraphError::Range {
                what: "prefetch",
                value: config.prefetch.into(),
                expected: "0 to 16 less the multi-loop's width",
            });
        }
        let level = level.unwrap_or(entry.level);
        if !level.available() {
            return Err(GraphError::Variant(level.name()));
        }
        (entry.loop_config, entry.level) = (config, level);
        self.fleet.each(move |w| w.set_loop(id.0, config, level));
        Ok(())
    }

    /// Largest vector now.
    pub fn vector_size(&self) -> usize {
        self.vector_size
    }

    /// Sets the largest vector.
    ///
    /// # Errors
    /// Outside 4..=1024.
    pub fn set_vector_size(&mut self, n: usize) -> Result<(), GraphError> {
        if !(4..=VECTOR_MAX).contains(&n) {
            return Err(GraphError::Range { what: "vector size", value: n as u64, expected: "4 to 1024" });
        }
        self.vector_size = n;
        self.fleet.each(move |w| w.set_vector_size(n));
        Ok(())
    }

    /// Starts `plans.len()` workers in place of main (or of no worker where the list is empty); only at start, before any
    /// input node holds a queue.
    ///
    /// # Errors
    /// A thread that could not be started or placed; then nothing runs the graph any more and the caller must give up.
    pub fn start_workers(&mut self, plans: &[ThreadPlan]) -> Result<(), GraphError> {
        if plans.is_empty() {
            return Ok(());
        }
        self.fleet = Fleet::new(self.domain.clone());
        plans.iter().try_for_each(|plan| self.add_worker(plan).map(drop))
    }

    /// Starts a worker with instances of all nodes, while the others go on, and gives its thread number: the lowest free one.
    /// Recipes of nodes are called for that number before, so what they need for it must be there. No queue is moved.
    ///
    /// # Errors
    /// The thread could not be started or placed, or there are as many as counters have rows for; then nothing has changed.
    pub fn add_worker(&mut self, plan: &ThreadPlan) -> Result<usize, GraphError> {
        let thread = self.next_worker();
        if thread >= MAX_THREADS {
            return Err(GraphError::Thread { thread, error: format!("at most {} workers are supported", MAX_THREADS - 1) });
        }
        self.stats.set_threads(thread + 1);
        let worker = self.build_like_others(thread, plan.numa);
        self.fleet.spawn(worker, plan).map_err(|e| GraphError::Thread { thread, error: e.to_string() })?;
        Ok(thread)
    }

    /// The thread number that the next worker will have.
    pub fn next_worker(&self) -> usize {
        let threads = self.fleet.threads();
        (1..).find(|n| !threads.contains(n)).unwrap_or(MAX_THREADS)
    }

    /// Makes main run the graph beside the workers. Nothing happens where it does already.
    pub fn add_main(&mut self) {
        if !self.fleet.main_forwards() {
            let worker = self.build_like_others(0, 0);
            self.fleet.run_here(worker);
        }
    }

    /// Takes a thread out of those that run the graph, main (0) or a worker. What it has is run to its end before; its queues
    /// have been moved away, and nothing must refer to the thread any more that hands packets over.
    ///
    /// # Errors
    /// There is no such thread, or no other.
    pub fn retire(&mut self, thread: usize) -> Result<(), GraphError> {
        let threads = self.fleet.threads();
        let refused = |error: &str| Err(GraphError::Thread { thread, error: error.into() });
        if !threads.contains(&thread) {
            return refused("it does not run the graph");
        }
        if threads.len() == 1 {
            return refused("no other thread is left to forward");
        }
        self.fleet.retire(thread);
        Ok(())
    }

    /// An instance of everything, which also takes over what is asked of the threads that are there.
    fn build_like_others(&mut self, thread: usize, numa: usize) -> Worker {
        let mut worker = self.build(thread, numa);
        if let Some(other) = self.fleet.threads().first() {
            let sink = self.fleet.on(*other, |w| w.core.captures.sink()).flatten();
            worker.core.captures.set(sink);
        }
        worker
    }

    /// Calls `f` for each row of the counters, on the thread that writes it: on main for rows of threads that have left.
    pub fn each_row(&mut self, f: impl Fn(usize) + Send + Sync + 'static) {
        let threads = self.fleet.threads();
        (0..self.stats.threads()).filter(|row| !threads.contains(row)).for_each(&f);
        self.fleet.each(move |w| f(w.thread()));
    }

    /// Runs `f` on the concrete input node `id` of one thread.
    pub fn input<I: InputNode, R: Send + 'static>(
        &mut self,
        id: NodeId,
        thread: usize,
        f: impl FnOnce(&mut I) -> R + Send + 'static,
    ) -> Option<R> {
        self.fleet.on(thread, move |w| w.input::<I>(id).map(f)).flatten()
    }

    /// Declares a feature arc.
    ///
    /// # Errors
    /// Unknown nodes, or a start that has no point on the arc.
    pub fn add_arc(&mut self, spec: ArcSpec) -> Result<(), GraphError> {
        for node in spec.starts.iter().chain([&spec.end]) {
            if self.node(node).is_none() {
                return Err(GraphError::UnknownNode { name: node.clone(), by: spec.name.into() });
            }
        }
        for node in &spec.starts {
            self.arc_point(spec.name, node).ok_or_else(|| GraphError::NotOnArc { node: node.clone(), arc: spec.name.into() })?;
        }
        self.arc_order.push(spec.name);
        self.arcs.insert(
            spec.name,
            ArcState { spec, features: Vec::new(), ordered: Vec::new(), enabled: HashMap::new(), own: HashMap::new() },
        );
        Ok(())
    }

    /// Adds a node that starts an arc.
    ///
    /// # Errors
    /// Unknown arc or node, or a node without a point on the arc.
    pub fn add_arc_start(&mut self, arc: &str, node: &str) -> Result<(), GraphError> {
        self.arc_point(arc, node).ok_or_else(|| GraphError::NotOnArc { node: node.into(), arc: arc.into() })?;
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        state.spec.starts.push(node.into());
        Ok(())
    }

    /// Says that an interface's packets start and end an arc at nodes of their own (`<name>-output` and `<name>-tx`).
    ///
    /// # Errors
    /// Unknown arc, or a start without a point on it.
    pub fn set_arc_ends(&mut self, arc: &str, interface: IfIndex, start: &str, end: &str) -> Result<(), GraphError> {
        self.arc_point(arc, start).ok_or_else(|| GraphError::NotOnArc { node: start.into(), arc: arc.into() })?;
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        state.own.insert(interface.0, (start.into(), end.into()));
        Ok(())
    }

    /// Declares features; nodes must exist.
    ///
    /// # Errors
    /// Unknown arcs or nodes, or constraints that contradict one another.
    pub fn add_features(&mut self, features: Vec<FeatureSpec>) -> Result<(), GraphError> {
        for feature in features {
            if self.node(&feature.node).is_none() {
                return Err(GraphError::UnknownNode { name: feature.node, by: feature.arc.into() });
            }
            self.arc_point(feature.arc, &feature.node)
                .ok_or_else(|| GraphError::NotOnArc { node: feature.node.clone(), arc: feature.arc.into() })?;
            let arc = self.arcs.get_mut(feature.arc).ok_or_else(|| GraphError::NoSuchArc(feature.arc.into()))?;
            arc.features.push(feature);
            arc.ordered =
                order(&arc.features).map_err(|nodes| GraphError::Cycle { arc: arc.spec.name.into(), nodes: nodes.join(", ") })?;
        }
        Ok(())
    }

    fn arc_point(&self, arc: &str, node: &str) -> Option<ArcPoint> {
        let entry = self.entries[self.node(node)?.0 as usize].as_ref()?;
        entry.spec.points.iter().find(|(a, _)| *a == arc).map(|(_, p)| p.clone())
    }

    /// Switches a feature on an interface; `true` if that changed something.
    ///
    /// # Errors
    /// Unknown arc or feature.
    pub fn set_feature(&mut self, arc: &str, feature: &str, interface: IfIndex, on: bool) -> Result<bool, GraphError> {
        let state = self.arcs.get_mut(arc).ok_or_else(|| GraphError::NoSuchArc(arc.into()))?;
        if !state.features.iter().any(|f| f.node == feature) {
            return Err(GraphError::NoSuchFeature { feature: feature.into(), arc: arc.into() });
        }
        let list = state.enabled.entry(interface.0).or_default();
        if list.iter().any(|f| f == feature) == on {
            return Ok(false);
        }
        if on {
            list.push(feature.into());
        } else {
            list.retain(|f| f != feature);
        }
        self.publish_arc(arc, interface)?;
        Ok(true)
    }

    /// Features that are on for an interface, in order, by arc.
    pub fn features_of(&self, interface: IfIndex) -> Vec<(&'static str, Vec<String>)> {
        self.arc_order.iter().map(|name| (*name, self.arc_chain(name, interface))).filter(|(_, f)| !f.is_empty()).collect()
    }

    /// All arcs with their features in order.
    pub fn arcs(&self) -> Vec<(&'static str, Vec<String>)> {
        let names = |a: &ArcState| a.ordered.iter().map(|i| a.features[*i].node.clone()).collect();
        self.arc_order.iter().filter_map(|n| self.arcs.get(n).map(|a| (*n, names(a)))).collect()
    }

    fn arc_chain(&self, arc: &str, interface: IfIndex) -> Vec<String> {
        let Some(state) = self.arcs.get(arc) else { return Vec::new() };
        let Some(enabled) = state.enabled.get(&interface.0) else { return Vec::new() };
        state.ordered.iter().map(|i| &state.features[*i].node).filter(|n| enabled.contains(n)).cloned().collect()
    }

    /// Publishes an interface's chain back to front, so that a packet always finds a complete rest of the way.
    fn publish_arc(&mut self, arc: &str, interface: IfIndex) -> Result<(), GraphError> {
        let chain = self.arc_chain(arc, interface);
        let Some(state) = self.arcs.get(arc) else { return Ok(()) };
        let name = state.spec.name;
        let (starts, end) = match state.own.get(&interface.0) {
            Some((start, end)) => (vec![start.clone()], end.clone()),
            None => (state.spec.starts.clone(), state.spec.end.clone()),
        };
        let find = |g: &Self, n: &str| g.node(n).ok_or_else(|| GraphError::NoSuchNode(n.into()));
        let mut next = None;
        for feature in chain.iter().rev() {
            let from = find(self, feature)?;
            let target = find(self, next.unwrap_or(&end))?;
            let slot = self.edge(from, target)?;
            if let Some(point) = self.arc_point(name, feature) {
                point.set(interface, slot.0);
            }
            next = Some(feature);
        }
        for start in &starts {
            let slot = match next {
                Some(feature) => {
                    let (from, to) = (find(self, start)?, find(self, feature)?);
                    self.edge(from, to)?.0
                }
                None => 0,
            };
            if let Some(point) = self.arc_point(name, start) {
                point.set(interface, slot);
            }
        }
        Ok(())
    }

    /// Switches every feature of an interface off: it is going away.
    pub fn forget_interface(&mut self, interface: IfIndex) {
        for arc in self.arc_order.clone() {
            for feature in self.arc_chain(arc, interface) {
                let _ = self.set_feature(arc, &feature, interface, false);
            }
            if let Some(state) = self.arcs.get_mut(arc) {
                state.own.remove(&interface.0);
                state.enabled.remove(&interface.0);
            }
        }
    }

    /// Traces of all threads.
    pub fn traces(&mut self) -> Vec<(usize, Vec<TraceRecord>)> {
        self.fleet.each(|w| (w.thread(), w.traces()))
    }

    /// Puts a trace entry into words: the node's own, or where it goes.
    pub fn format_trace(&self, entry: &TraceEntry, out: &mut String) {
        use std::fmt::Write;
        let format = self.entries.get(entry.node as usize).and_then(Option::as_ref).and_then(|e| e.spec.trace.as_ref());
        match format {
            Some(format) => format(entry, out),
            None if entry.node == 0 || self.node_name(NodeId(entry.node)) == "error-punt" => {
                let reason = self.error(entry.aux).map_or_else(|| "unknown".into(), |e| format!("{}: {}", e.node, e.text));
                let _ = write!(out, "rx:sw_if_index {}\n{reason}", entry.rx_if);
            }
            None => {
                let _ = write!(out, "{} bytes, to {}", entry.len, self.node_name(NodeId(entry.next)));
            }
        }
    }
}
