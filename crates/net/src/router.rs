//! The router's state on the main thread: what operations work on.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use quiver_buffer::{Region, RegionConfig, RegionError};
use quiver_graph::clock::Clock;
use quiver_graph::reactor::Notify;
use quiver_graph::stats::Stats;
use quiver_graph::{ArcSpec, Graph, GraphError, Hold, IfIndex, NodeSpec, Published, RxMode, STATS_BYTES, ThreadPlan, TxState};
use quiver_tables::qsbr;

use crate::data::{DataPlane, IfRecords};
use crate::ethernet::MoreMacs;
use crate::ethernet::vlan::VlanTable;
use crate::fib::Fib;
use crate::group::Groups;
use crate::interface::output::Nowhere;
use crate::interface::{IfEvent, InterfaceError, Interfaces};
use crate::l2::L2;
use crate::linux::HostInterfaces;
use crate::mfib::Mfib;
use crate::nd::Nd;
use crate::neighbor::Neighbors;
use crate::restart::Subject;
use crate::workers::WorkerListener;
use crate::{arp, ethernet, fib, frag, group, icmp, interface, ip, l2, local, mfib, nd, neighbor, pg, punt, rss};

/// What a router is made of at start.
#[derive(Clone, Debug, Default)]
pub struct RouterConfig {
    /// Packet memory.
    pub buffers: RegionConfig,
    /// Worker threads; none: the main thread forwards.
    pub workers: Vec<ThreadPlan>,
    /// Memory node of the main thread, counted as in [`ThreadPlan::numa`].
    pub main_numa: usize,
    /// By [`ThreadPlan::numa`]: the kernel's number of that memory node where it is to have a copy of the forwarding tables.
    /// Empty: there is one of each, which all threads read.
    pub fib_nodes: Vec<Option<u32>>,
}

/// Why the router could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Packet memory.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Interfaces.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The operating system.
    #[error("{doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What it said.
        error: std::io::Error,
    },
    /// No memory for a table.
    #[error("no memory for {0}")]
    Memory(&'static str),
}

/// Work of a module that time drives: is called on the main thread when it is due, is told the time (ns of the router's
/// clock), and says when it wants to be called next. It must be done within some 50 µs and go on at its next call.
pub type ProcessFn = fn(&mut Router, u64) -> u64;

/// A module's process as `show runtime` lists it.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Name.
    pub name: &'static str,
    /// When it wants to run next, ns of the router's clock.
    pub due: u64,
    /// Times it ran.
    pub calls: u64,
    /// Raw clock ticks it took.
    pub clocks: u64,
    run: ProcessFn,
}

/// A worker's way to make a process run: for nodes that have left something for it in a channel.
#[derive(Clone)]
pub struct ProcessSignal {
    alarm: Arc<Alarm>,
    bit: u64,
}

impl ProcessSignal {
    fn new(alarm: &Arc<Alarm>, name: &str) -> Self {
        // 64 bits are plenty; should there ever be more names, some share one and run once too often.
        let number = name.bytes().fold(0_u64, |n, b| n.wrapping_mul(31).wrapping_add(b.into()));
        Self { alarm: alarm.clone(), bit: 1 << (number % 64) }
    }

    /// Makes the process run soon. Cheap where it was asked for already.
    pub fn raise(&self) {
        // What the process is to find was written before this look, or the look sees that the process has not begun yet: else both
        // could miss each other. `run_processes` has the other one.
        fence(Ordering::SeqCst);
        if self.alarm.raised.load(Ordering::Relaxed) & self.bit == 0 {
            self.alarm.raised.fetch_or(self.bit, Ordering::Release);
            self.alarm.notify.notify();
        }
    }
}

/// Which processes workers want to run; one wake-up of the main loop for all of them.
struct Alarm {
    raised: AtomicU64,
    notify: Arc<Notify>,
}

/// Somebody who wants to know what happens to interfaces. Called on the main thread after the change was made.
pub type Listener = fn(&mut Router, &IfEvent);

/// The router, as its main thread holds it.
pub struct Router {
    /// Nodes, threads, counters.
    pub graph: Graph,
    /// What the data path reads; clone it into nodes.
    pub data: DataPlane,
    /// Writers' side of the interface records in `data`.
    pub records: IfRecords,
    /// Interfaces by index and name.
    pub interfaces: Interfaces,
    /// Interfaces of Linux that stand for some of them.
    pub(crate) host_interfaces: HostInterfaces,
    /// Routes and adjacencies.
    pub(crate) fib: Fib,
    /// Multicast routes.
    pub(crate) mfib: Mfib,
    /// Neighbours of both families.
    pub(crate) neighbors: Neighbors,
    /// Own IPv6 addresses' checks, router advertisements.
    pub(crate) nd: Nd,
    /// Groups that interfaces listen to.
    pub(crate) groups: Groups,
    /// Bridge domains, MAC addresses, tag rewrites.
    pub(crate) l2: L2,
    /// Which tags belong to which sub-interface.
    pub(crate) vlans: Published<VlanTable>,
    /// MAC addresses that interfaces accept beside their own.
    pub(crate) more_macs: Published<MoreMacs>,
    /// Whether each interface may send; shared with its nodes.
    pub(crate) states: HashMap<IfIndex, Arc<TxState>>,
    /// Round robin of queue placement.
    pub(crate) next_thread: usize,
    /// Mode of new receive queues.
    pub(crate) rx_default: RxMode,
    /// The kernel's number of each memory node, by [`ThreadPlan::numa`].
    pub(crate) numa_numbers: Vec<u32>,
    /// Threads that are about to leave.
    pub(crate) leaving: Vec<usize>,
    pub(crate) worker_listeners: Vec<WorkerListener>,
    listeners: Vec<Listener>,
    at_stop: Vec<fn(&mut Router)>,
    /// Who counts elsewhere what belongs to the router's counters.
    counters: Vec<fn(&mut Router)>,
    /// Called when what is left to another process changes.
    pub(crate) hold_listeners: Vec<fn(&mut Router, Hold)>,
    /// Parts of the state that outlive the process.
    pub(crate) subjects: Vec<Subject>,
    processes: Vec<Process>,
    alarm: Arc<Alarm>,
    parts: HashMap<TypeId, Box<dyn Any>>,
}

impl Router {
    /// A router with `local0` and the nodes of all modules of this crate.
    ///
    /// # Errors
    /// No memory, no threads.
    pub fn new(config: &RouterConfig) -> Result<Self, NetError> {
        let region = Region::new(&config.buffers)?;
        let stats = Stats::new(STATS_BYTES).map_err(|error| NetError::System { doing: "statistics memory", error })?;
        let domain = qsbr::Domain::new();
        let mut graph = Graph::new(region, stats, Clock::new(), domain.clone());
        graph.set_main_numa(config.main_numa);
        graph.start_workers(&config.workers)?;
        let notify = Notify::new().map_err(|error| NetError::System { doing: "eventfd", error })?;
        let records = IfRecords::new().map_err(|_| NetError::Memory("interface records"))?;
        let copies = fib::numa::Copies::new(&config.fib_nodes);
        let fib = Fib::new(&domain, graph.stats(), &copies).map_err(|_| NetError::Memory("the forwarding table"))?;
        let data = DataPlane {
            interfaces: records.reader(),
            load_balances: fib.records.load_balances(),
            adjacencies: fib.records.adjacencies(),
        };
        let interfaces = Interfaces::new(&domain);
        let alarm = Arc::new(Alarm { raised: AtomicU64::new(0), notify });
        let seed = graph.clock().ticks();
        let mfib = Mfib::new(graph.stats());
        let mut router = Self {
            graph,
            data,
            records,
            interfaces,
            host_interfaces: HostInterfaces::default(),
            fib,
            mfib,
            neighbors: Neighbors::new(ProcessSignal::new(&alarm, neighbor::PROCESS), seed)?,
            nd: Nd::new(ProcessSignal::new(&alarm, nd::PROCESS), seed.rotate_left(7)),
            groups: Groups::new(ProcessSignal::new(&alarm, group::PROCESS), seed.rotate_left(41)),
            l2: L2::new(ProcessSignal::new(&alarm, l2::PROCESS), seed.rotate_left(23))?,
            vlans: Published::new(VlanTable::default()),
            more_macs: Published::new(MoreMacs::default()),
            states: HashMap::new(),
            next_thread: 0,
            rx_default: RxMode::default(),
            numa_numbers: config.buffers.numbers().collect(),
            leaving: Vec::new(),
            worker_listeners: Vec::new(),
            listeners: Vec::new(),
            at_stop: Vec::new(),
            counters: Vec::new(),
            hold_listeners: Vec::new(),
            subjects: Vec::new(),
            processes: Vec::new(),
            alarm,
            parts: HashMap::new(),
        };
        rss::prepare(&mut router);
        local::prepare(&mut router)?;
        icmp::prepare(&mut router);
        punt::prepare(&mut router);
        router.add_nodes()?;
        local::init(&mut router)?;
        router.create_local0();
        fib::init(&mut router)?;
        interface::restart::init(&mut router);
        // Before duplicate detection: its first question is told of.
        group::init(&mut router)?;
        mfib::init(&mut router);
        neighbor::init(&mut router);
        nd::init(&mut router)?;
        l2::init(&mut router);
        pg::init(&mut router)?;
        Ok(router)
    }

    /// Declares every node of this crate at once, because nodes of different modules name one another; then the arcs.
    fn add_nodes(&mut self) -> Result<(), NetError> {
        let mut nodes = vec![NodeSpec::node("interface-output-end", Nowhere)];
        nodes.extend(ethernet::nodes(self));
        nodes.extend(l2::nodes(self));
        nodes.extend(rss::nodes(self));
        nodes.extend(local::nodes(self));
        nodes.extend(icmp::nodes(self));
        nodes.extend(frag::nodes(self));
        nodes.extend(pg::nodes(self));
        nodes.extend(punt::nodes(self));
        nodes.extend(ip::nodes(self));
        nodes.extend(neighbor::nodes(self));
        nodes.extend(arp::nodes(self));
        nodes.extend(nd::nodes(self));
        nodes.extend(group::nodes(self));
        nodes.extend(mfib::nodes(self));
        self.graph.add(nodes)?;
        let arc = |name, end: &str| ArcSpec { name, starts: Vec::new(), end: end.into() };
        self.graph.add_arc(arc("device-input", "ethernet-input"))?;
        self.graph.add_arc_start("device-input", "pg-input")?;
        self.graph.add_features(vec![rss::feature()])?;
        self.graph.add_arc(arc("interface-output", "interface-output-end"))?;
        for arc in ip::arcs().into_iter().chain(arp::arcs()).chain(local::arcs()).chain(punt::arcs()).chain([ethernet::arc()]) {
            self.graph.add_arc(arc)?;
        }
        self.graph.add_features(local::reassembly::features())?;
        ip::fuse(&mut self.graph)?;
        Ok(l2::fuse(&mut self.graph)?)
    }

    /// Calls `listener` for every interface event from now on.
    pub fn listen(&mut self, listener: Listener) {
        self.listeners.push(listener);
    }

    /// Adds somebody who brings the router's counters up to date with what is counted outside of the graph.
    pub fn add_counters(&mut self, count: fn(&mut Router)) {
        self.counters.push(count);
    }

    /// Brings the counters up to date: for what shows them exactly. They are never older than a second without it.
    pub fn refresh_counters(&mut self) {
        for count in self.counters.clone() {
            count(self);
        }
    }

    /// Tells all listeners.
    pub(crate) fn tell(&mut self, event: &IfEvent) {
        for listener in self.listeners.clone() {
            listener(self, event);
        }
    }

    /// Calls `last` when the program stops, while its threads still send.
    pub fn at_stop(&mut self, last: fn(&mut Router)) {
        self.at_stop.push(last);
    }

    /// Has all say their last words to the network.
    pub fn say_last_words(&mut self) {
        for last in self.at_stop.clone() {
            last(self);
        }
        self.cease_all_advertising();
    }

    /// Adds a process; it runs for the first time as soon as the main loop comes to it.
    pub fn add_process(&mut self, name: &'static str, run: ProcessFn) {
        self.processes.push(Process { name, due: 0, calls: 0, clocks: 0, run });
    }

    /// Makes a process run at the latest at `time`, ns of [timer time](quiver_graph::clock::Clock::timer_now) (0: the next time the main loop comes round).
    pub fn wake_process(&mut self, name: &str, time: u64) {
        if let Some(process) = self.processes.iter_mut().find(|p| p.name == name) {
            process.due = process.due.min(time);
        }
    }

    /// A signal by which workers make a process run. The process need not have been added yet.
    pub fn process_signal(&self, name: &'static str) -> ProcessSignal {
        ProcessSignal::new(&self.alarm, name)
    }

    /// Is given when a worker wants a process to run: the main loop then calls [`Router::run_processes`].
    pub fn notify(&self) -> Arc<Notify> {
        self.alarm.notify.clone()
    }

    /// Runs the processes that are due at `now`, a timer time, each once, and says when the next one is.
    pub fn run_processes(&mut self, now: u64) -> Option<u64> {
        let raised = self.alarm.raised.swap(0, Ordering::Acquire);
        fence(Ordering::SeqCst);
        for at in 0..self.processes.len() {
            if raised & self.process_signal(self.processes[at].name).bit != 0 {
                self.processes[at].due = 0;
            }
            let Process { due, run, .. } = self.processes[at];
            if due > now {
                continue;
            }
            // While it runs it may ask, by `wake_process`, to run again earlier than it says.
            self.processes[at].due = u64::MAX;
            let start = self.graph.clock().ticks();
            let next = run(self, now);
            let clocks = self.graph.clock().ticks().wrapping_sub(start);
            let process = &mut self.processes[at];
            process.due = process.due.min(next);
            process.calls += 1;
            process.clocks += clocks;
        }
        self.processes.iter().map(|p| p.due).min()
    }

    /// All processes, for `show runtime`.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Starts the figures of all processes anew.
    pub fn clear_process_figures(&mut self) {
        self.processes.iter_mut().for_each(|process| (process.calls, process.clocks) = (0, 0));
    }

    /// State of a module or plugin, by its type.
    pub fn part<T: 'static>(&self) -> Option<&T> {
        self.parts.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// State of a module or plugin, to be changed.
    pub fn part_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.parts.get_mut(&TypeId::of::<T>())?.downcast_mut()
    }

    /// State of a module, to be changed; made where there is none yet.
    pub fn part_or_default<T: Default + 'static>(&mut self) -> &mut T {
        let part = self.parts.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        part.downcast_mut().unwrap_or_else(|| unreachable!("parts are found by their type"))
    }

    /// Adds the state of a module or plugin.
    pub fn add_part<T: 'static>(&mut self, part: T) {
        self.parts.insert(TypeId::of::<T>(), Box::new(part));
    }

    /// Takes a part out for a call that needs it beside the router; put it back with [`Router::add_part`].
    pub fn take_part<T: 'static>(&mut self) -> Option<T> {
        self.parts.remove(&TypeId::of::<T>())?.downcast().ok().map(|b| *b)
    }

    /// Frees what readers have let go of; called by the main loop now and then.
    pub fn reclaim(&mut self) {
        self.graph.domain().reclaim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    struct Runs(Vec<u64>);

    fn every_ten(router: &mut Router, now: u64) -> u64 {
        if let Some(runs) = router.part_mut::<Runs>() {
            runs.0.push(now);
        }
        now + 10
    }

    #[test]
    fn a_signal_from_another_thread_makes_a_process_run() {
        let mut h = Harness::new();
        h.router.add_part(Runs(Vec::new()));
        let signal = h.router.process_signal("every-ten");
        h.router.add_process("every-ten", every_ten);
        h.router.run_processes(5);
        std::thread::scope(|s| drop(s.spawn(|| signal.raise())));
        h.router.run_processes(6);
        h.router.run_processes(7);
        assert_eq!(h.router.part::<Runs>().unwrap().0, [5, 6]);
    }

    #[test]
    fn a_process_runs_when_it_is_due_or_woken() {
        let mut h = Harness::new();
        let before = h.router.processes().len();
        h.router.add_part(Runs(Vec::new()));
        h.router.add_process("every-ten", every_ten);
        for now in [5, 6, 14, 15, 30] {
            h.router.run_processes(now);
        }
        h.router.wake_process("every-ten", 31);
        h.router.run_processes(31);
        assert_eq!(h.router.part::<Runs>().unwrap().0, [5, 15, 30, 31]);
        let process = h.router.processes()[before];
        assert_eq!((process.name, process.due, process.calls), ("every-ten", 41, 4));
    }
}
