//! The bench: ports opened, threads placed, nodes in their places, for one trial after the other.
//!
//! ```text
//!   tester-source (per thread, a lane for each port) ──► device          …-input ──► ethernet-input (ours: the sink) ──► ifN-tx
//! ```
//!
//! Control stays on the thread that made it, which also serves memif's control channels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_drivers::af_packet::{AfPacket, AfPacketConfig};
use quiver_drivers::af_xdp::{AfXdp, AfXdpConfig};
use quiver_drivers::memif::{Key, Memif, MemifConfig, Mode, Role};
use quiver_drivers::stamped::Tail;
use quiver_drivers::tap::{Tap, TapConfig};
use quiver_drivers::xdp_engine::{self, XdpEngine};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceNext, DeviceTx, Graph, IfIndex, NodeId, NodeSpec, PlacedQueue, Port, RxMode, STATS_BYTES,
    ThreadPlan, TxQueue, TxState, Verdict,
};
use quiver_tables::qsbr;
use quiver_wire::MacAddr;

use crate::answer::Host;
use crate::dpdk::{Dpdk, TimedEnds};
use crate::port::{Engine, PortSpec};
use crate::sink::{Inbox, Inboxes, Sink, lock};
use crate::source::{Job, Source};
use crate::tcp;
use crate::time::Time;

/// Packet buffers: a full ring of each port, twice, with room for what threads hold.
const BUFFERS: u32 = 16_384;
/// How often the control thread looks after sockets and clock while it waits.
pub(crate) const TURN: Duration = Duration::from_millis(2);
/// How often a neighbour is asked for.
const ASK: Duration = Duration::from_millis(300);

/// Why there is no bench: one line with what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Wrong number of ports.
    #[error("{0} ports were given; a trial takes one or two")]
    Ports(usize),
    /// A port could not be opened.
    #[error("port {port}: {error}")]
    Open {
        /// The port.
        port: String,
        /// What its driver said.
        error: String,
    },
    /// Threads, memory or nodes.
    #[error("cannot set up the tester: {0}")]
    Setup(String),
    /// Nobody at the other end.
    #[error("port {port}: no link within {seconds} s{why}")]
    NoLink {
        /// The port.
        port: String,
        /// How long was waited.
        seconds: u64,
        /// What the driver knows.
        why: String,
    },
    /// The gateway is silent.
    #[error("port {port}: {gateway} does not answer within {seconds} s: is it up, and is the port's own address in its network?")]
    NoNeighbor {
        /// The port.
        port: String,
        /// Who was asked for.
        gateway: IpAddr,
        /// How long was waited.
        seconds: u64,
    },
    /// Somebody ended the wait.
    #[error("interrupted")]
    Interrupted,
}

/// A port, opened.
pub struct Opened {
    /// As it was asked for.
    pub spec: PortSpec,
    /// Its interface in the graph.
    pub interface: IfIndex,
    /// Hardware address.
    pub mac: MacAddr,
    /// Threads that send.
    pub tx_threads: Vec<usize>,
    /// Threads that receive; the first answers what is asked of the port's host before a trial.
    pub rx_threads: Vec<usize>,
    port: Box<dyn Port>,
    /// What sends and receives test frames, where that is not the driver: then the driver has all others.
    pub(crate) kernel: Option<XdpEngine>,
    input: NodeId,
    queues: u16,
}

impl Opened {
    /// Whether it carries Ethernet frames.
    pub fn ethernet(&self) -> bool {
        !matches!(self.spec.engine, Engine::Memif { ip: true, .. })
    }

    /// Largest frame without FCS.
    pub fn max_frame(&self) -> usize {
        let most = self.port.max_frame();
        if self.kernel.is_some() { most.min(xdp_engine::FRAME_MAX) } else { most }
    }

    /// Whether its link carries.
    pub fn is_up(&mut self) -> bool {
        self.port.link().up
    }
}

/// Ports and threads.
pub struct Bench {
    // Ports first: their queues use the region that the graph holds.
    ports: Vec<Opened>,
    hubs: Vec<(String, bool, Memif)>,
    graph: Graph,
    source: NodeId,
    sink: NodeId,
    inboxes: Inboxes,
    time: Time,
    tag: u8,
    // Last: what its queues hold goes before.
    dpdk: Dpdk,
}

fn setup(error: impl std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}

impl Bench {
    /// Opens ports and starts threads, for frames of up to `max_frame` bytes.
    ///
    /// # Errors
    /// What cannot be opened or made.
    pub fn open(specs: &[PortSpec], max_frame: usize) -> Result<Self, BenchError> {
        Self::open_at(specs, max_frame, None)
    }

    /// The same with a time of somebody else's in place of this machine's clock.
    ///
    /// # Errors
    /// What cannot be opened or made.
    pub fn open_at(specs: &[PortSpec], max_frame: usize, time: Option<Time>) -> Result<Self, BenchError> {
        if specs.is_empty() || specs.len() > 2 {
            return Err(BenchError::Ports(specs.len()));
        }
        let config = RegionConfig {
            buffers_per_numa: BUFFERS,
            data_size: (max_frame as u32).max(quiver_buffer::DEFAULT_DATA_SIZE as u32),
            page_size: PageSize::Default,
            ..Default::default()
        };
        let clock = Clock::new();
        let stats = Stats::new(STATS_BYTES).map_err(setup)?;
        let mut graph = Graph::new(Region::new(&config).map_err(setup)?, stats, clock.clone(), qsbr::Domain::new());
        let mut cores: Vec<u32> = specs.iter().flat_map(|s| s.tx_cores.iter().chain(&s.rx_cores).copied()).collect();
        cores.sort_unstable();
        cores.dedup();
        let plans: Vec<_> = match &cores[..] {
            [] => vec![ThreadPlan::default()],
            cores => cores.iter().map(|c| ThreadPlan { cpu: Some(*c), ..Default::default() }).collect(),
        };
        graph.start_workers(&plans).map_err(setup)?;
        graph.interfaces().set_len(specs.len() as u32 + 1);
        let threads = graph.fleet().threads();
        let thread_of = |core: Option<u32>| threads[core.and_then(|c| cores.binary_search(&c).ok()).unwrap_or(0)];
        let mut bench = Self {
            ports: Vec::new(),
            hubs: Vec::new(),
            source: NodeId(0),
            sink: NodeId(0),
            inboxes: Arc::new(Vec::new()),
            time: time.unwrap_or(Time::Real(clock)),
            graph,
            dpdk: Dpdk::start(specs)?,
            tag: std::process::id() as u8,
        };
        let mut opened = Vec::new();
        for (at, spec) in specs.iter().enumerate() {
            let mut tx_threads: Vec<usize> = match &spec.tx_cores[..] {
                [] => vec![thread_of(spec.rx_cores.first().copied())],
                cores => cores.iter().map(|c| thread_of(Some(*c))).collect(),
            };
            let mut rx_threads: Vec<usize> = match &spec.rx_cores[..] {
                [] => vec![tx_threads[0]],
                cores => cores.iter().map(|c| thread_of(Some(*c))).collect(),
            };
            // A thread has one lane of a port.
            for threads in [&mut tx_threads, &mut rx_threads] {
                threads.sort_unstable();
                threads.dedup();
            }
            opened.push(bench.open_port(spec, IfIndex(at as u32 + 1), tx_threads, rx_threads, max_frame)?);
        }
        let inbox = |(port, ring): &(Opened, usize)| {
            let spec = &port.spec;
            let host = Host::new(port.mac, port.ethernet(), spec.addresses.clone(), spec.answers.clone()).behind(spec.vlan.clone());
            Mutex::new(Inbox::new(host, *ring))
        };
        bench.inboxes = Arc::new(opened.iter().map(inbox).collect());
        bench.wire(opened)?;
        Ok(bench)
    }

    fn open_port(
        &mut self,
        spec: &PortSpec,
        interface: IfIndex,
        tx_threads: Vec<usize>,
        rx_threads: Vec<usize>,
        max_frame: usize,
    ) -> Result<(Opened, usize), BenchError> {
        fn failed<E: std::fmt::Display>(spec: &PortSpec) -> impl Fn(E) -> BenchError {
            let port = spec.to_string();
            move |error| BenchError::Open { port: port.clone(), error: error.to_string() }
        }
        let mac = spec.mac.map(|m| m.0);
        let rx_queues = rx_threads.len();
        let mut kernel = None;
        let (port, ring): (Box<dyn Port>, usize) = match &spec.engine {
            Engine::AfPacket(name) => {
                let config = AfPacketConfig { mac, rx_queues, ..AfPacketConfig::new(name) };
                let ring = config.rx_size;
                (Box::new(AfPacket::open(config).map_err(failed(spec))?), ring)
            }
            Engine::Xdp(name) => {
                let config = AfPacketConfig { mac, ..AfPacketConfig::new(name) };
                let ring = config.rx_size;
                let port = AfPacket::open(config).map_err(failed(spec))?;
                let engine = XdpEngine::open(name, spec.rx_cores.first().copied()).map_err(failed(spec))?;
                if let Some(why) = engine.loose().filter(|_| !spec.rx_cores.is_empty()) {
                    return Err(failed(spec)(why.to_owned()));
                }
                kernel = Some(engine);
                (Box::new(port), ring)
            }
            Engine::AfXdp(name) => {
                let config = AfXdpConfig { mac, ..AfXdpConfig::new(name, self.graph.pools().to_vec()) };
                let ring = config.rx_size;
                (Box::new(AfXdp::open(config).map_err(failed(spec))?), ring)
            }
            Engine::Dpdk(devargs) => {
                let queues = (rx_queues, tx_threads.len() + rx_queues);
                let port = self.dpdk.open(devargs, mac, max_frame, queues, self.graph.pools()).map_err(failed(spec))?;
                (port, usize::MAX)
            }
            Engine::Tap(name) => {
                let config = TapConfig { mac, rx_queues, ..TapConfig::new(name) };
                (Box::new(Tap::open(config, Arc::new(quiver_drivers::rights::Direct)).map_err(failed(spec))?), 500)
            }
            Engine::Memif { socket, id, server, ip, ring, rx_ring } => {
                let hub = self.hub(socket, *server).map_err(failed(spec))?;
                let config = MemifConfig {
                    role: if *server { Role::Server } else { Role::Client },
                    mode: if *ip { Mode::Ip } else { Mode::Ethernet },
                    ring_size: *ring,
                    rx_ring_size: Some(*rx_ring),
                    tx_queues: tx_threads.iter().copied().max().unwrap_or(1).max(1),
                    rx_queues,
                    mac,
                    ..MemifConfig::new(Key { socket: 1, id: *id })
                };
                (Box::new(hub.create(config).map_err(failed(spec))?), *rx_ring as usize)
            }
        };
        // A device that keeps another address takes all frames.
        let mac = spec.mac.unwrap_or(MacAddr(port.mac().unwrap_or([2, 0, 0, 0, 0, interface.0 as u8])));
        let input = NodeId(0);
        Ok((Opened { spec: spec.clone(), interface, mac, tx_threads, rx_threads, port, kernel, input, queues: 0 }, ring))
    }

    /// The memif side for a socket in a role.
    fn hub(&mut self, socket: &str, server: bool) -> Result<Memif, String> {
        if let Some((_, _, hub)) = self.hubs.iter().find(|(path, role, _)| path == socket && *role == server) {
            return Ok(hub.clone());
        }
        let hub = Memif::new("/nonexistent/unused.sock").map_err(|e| e.to_string())?;
        hub.add_socket(1, socket).map_err(|e| e.to_string())?;
        self.hubs.push((socket.to_owned(), server, hub.clone()));
        Ok(hub)
    }

    /// Makes the nodes and places the queues.
    fn wire(&mut self, mut opened: Vec<(Opened, usize)>) -> Result<(), BenchError> {
        let mut sink = {
            let (time, inboxes) = (self.time.clone(), self.inboxes.clone());
            let shared = opened.iter().any(|(port, _)| port.rx_threads.len() > 1);
            NodeSpec::vector("ethernet-input", move |_| Sink::new(time.clone(), inboxes.clone(), shared))
        };
        for (port, _) in &mut opened {
            let (interface, state) = (port.interface, Arc::new(TxState::default()));
            state.set_up(true);
            // Answers leave from the thread that has received the question.
            let mut queues: HashMap<usize, Box<dyn TxQueue>> = HashMap::new();
            for thread in &port.rx_threads {
                queues.insert(*thread, port.port.open_tx(*thread).map_err(setup)?);
            }
            let queues = RefCell::new(queues);
            let name = format!("if{interface}-tx");
            sink = sink.with_next(name.clone());
            let make =
                move |cx: &quiver_graph::MakeCx| DeviceTx::new(interface, state.clone(), queues.borrow_mut().remove(&cx.thread));
            self.graph.add(vec![NodeSpec::vector(name, make)]).map_err(setup)?;
        }
        let time = self.time.clone();
        let source = NodeSpec::input("tester-source", move |_| Source::new(time.clone()));
        let nodes = self.graph.add(vec![sink, source]).map_err(setup)?;
        (self.sink, self.source) = (nodes[0], nodes[1]);
        for (mut port, _) in opened {
            let name = port.port.input_node();
            port.input = match self.graph.node(name) {
                Some(node) => node,
                None => {
                    let arc = ArcPoint::new();
                    let spec = NodeSpec::input(name, move |_| DeviceInput::new(arc.clone()));
                    self.graph.add(vec![spec]).map_err(setup)?[0]
                }
            };
            let interface = port.interface;
            for (queue, rx) in port.port.take_rx().map_err(setup)?.into_iter().enumerate() {
                let thread = port.rx_threads[queue % port.rx_threads.len()];
                let queue = PlacedQueue { interface, queue: queue as u16, next: DeviceNext::Ethernet.into(), up: true, rx };
                self.graph.input::<DeviceInput, _>(port.input, thread, move |node| node.place(queue));
                port.queues += 1;
            }
            let ethernet = port.ethernet();
            for thread in &port.tx_threads {
                let queue = port.port.open_tx(*thread).map_err(setup)?;
                self.graph.input::<Source, _>(self.source, *thread, move |node| node.add_lane(interface, queue, ethernet));
            }
            port.port.set_up(true).map_err(|e| BenchError::Open { port: port.spec.to_string(), error: e.to_string() })?;
            self.ports.push(port);
        }
        Ok(())
    }

    /// The ports.
    pub fn ports(&mut self) -> &mut [Opened] {
        &mut self.ports
    }

    /// What sends and receives for a port in the kernel.
    pub(crate) fn kernel(&self, port: usize) -> Option<&XdpEngine> {
        self.ports.get(port)?.kernel.as_ref()
    }

    /// Sees whether the far ends of ports of the kernel's take frames at all.
    ///
    /// # Errors
    /// One does not.
    pub fn probe(&mut self) -> Result<(), BenchError> {
        for port in &mut self.ports {
            let (text, mac) = (port.spec.to_string(), port.mac.0);
            if let Some(engine) = &mut port.kernel {
                engine.probe(mac).map_err(|e| BenchError::Open { port: text, error: e.to_string() })?;
            }
        }
        Ok(())
    }

    /// Has DPDK's devices give frames times that go from the first to the second.
    ///
    /// # Errors
    /// Why they give none, in a line.
    pub(crate) fn switch_times_on(&mut self, devices: [&Engine; 2]) -> Result<(), String> {
        self.dpdk.switch_times_on(devices, &mut self.graph)
    }

    /// What sends such frames, and what tells when those came that end as `tail` says.
    ///
    /// # Errors
    /// Why there is none, in a line.
    pub(crate) fn timed(&self, devices: [&Engine; 2], tail: Tail) -> Result<TimedEnds, String> {
        self.dpdk.timed(devices, tail)
    }

    /// What the ports receive.
    pub fn inboxes(&self) -> &Inboxes {
        &self.inboxes
    }

    /// The tester's time.
    pub fn time(&self) -> &Time {
        &self.time
    }

    /// The graph.
    pub fn graph(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// A tag that the last 255 trials did not have.
    pub fn next_tag(&mut self) -> u8 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    /// The name of the ports' kinds.
    pub fn engine(&self) -> String {
        let mut names: Vec<&str> = self.ports.iter().map(|p| p.spec.engine.name()).collect();
        names.dedup();
        names.join("+")
    }

    /// Looks after sockets and clock, and waits a moment.
    pub fn turn(&mut self) {
        self.turn_of(TURN);
    }

    /// The same for so long.
    pub fn turn_of(&mut self, pause: Duration) {
        self.serve();
        std::thread::sleep(pause);
    }

    /// Looks after sockets and clock.
    pub fn serve(&mut self) {
        for (_, _, hub) in &self.hubs {
            hub.run();
        }
        self.dpdk.serve(&mut self.graph);
        if let Time::Real(clock) = &self.time {
            clock.discipline();
        }
    }

    /// Waits until all ports have a link.
    ///
    /// # Errors
    /// One has none in time, or `go_on` says no.
    pub fn wait_for_links(&mut self, bound: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<(), BenchError> {
        let deadline = Instant::now() + bound;
        loop {
            self.turn();
            let Some(down) = self.ports.iter_mut().find_map(|p| (!p.is_up()).then_some(p)) else { return Ok(()) };
            if Instant::now() > deadline {
                let why = down.port.describe().pop().map_or(String::new(), |line| format!(" ({line})"));
                return Err(BenchError::NoLink { port: down.spec.to_string(), seconds: bound.as_secs(), why });
            }
            if !go_on() {
                return Err(BenchError::Interrupted);
            }
        }
    }

    /// Hardware addresses of the next hops, by port: as given, or asked for; `None` where there is no gateway.
    ///
    /// # Errors
    /// A gateway does not answer in time, or `go_on` says no.
    pub fn next_hops(&mut self, bound: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Option<MacAddr>>, BenchError> {
        let mut hops = Vec::new();
        for at in 0..self.ports.len() {
            let (spec, interface) = (self.ports[at].spec.clone(), self.ports[at].interface);
            let Some(gateway) = spec.gateway.filter(|_| spec.dst_mac.is_none() && self.ports[at].ethernet()) else {
                hops.push(spec.dst_mac);
                continue;
            };
            let (start, mut asked) = (Instant::now(), None::<Instant>);
            let mac = loop {
                if let Some(mac) = lock(&self.inboxes[at]).host.learnt(gateway) {
                    break mac;
                }
                if start.elapsed() > bound {
                    return Err(BenchError::NoNeighbor { port: spec.to_string(), gateway, seconds: bound.as_secs() });
                }
                if !go_on() {
                    return Err(BenchError::Interrupted);
                }
                if asked.is_none_or(|t| t.elapsed() > ASK) {
                    asked = Some(Instant::now());
                    let question = lock(&self.inboxes[at]).host.ask(gateway);
                    self.send(self.ports[at].rx_threads[0], interface, question);
                }
                self.turn();
            };
            hops.push(Some(mac));
        }
        Ok(hops)
    }

    /// Sends one frame.
    fn send(&mut self, thread: usize, interface: IfIndex, frame: Vec<u8>) {
        let sink = self.sink;
        self.graph.fleet().on(thread, move |worker| {
            worker.at_node(sink, |cx| {
                if let Some(packet) = cx.alloc_bytes(&frame, interface) {
                    cx.emit(Verdict::slot(interface.0 as u16), packet);
                }
            });
        });
    }

    /// Gives a job to a port's thread.
    pub fn start(&mut self, port: usize, thread: usize, job: Job) {
        let (source, interface) = (self.source, self.ports[port].interface);
        self.graph.input::<Source, _>(source, thread, move |node| node.start(interface, job));
    }

    /// Has streams of a port's thread go on with other gaps between their frames, ns, to the end of a trial of `duration` ns.
    pub fn change(&mut self, port: usize, thread: usize, gaps: Vec<Option<f64>>, duration: u64) {
        let (source, interface) = (self.source, self.ports[port].interface);
        self.graph.input::<Source, _>(source, thread, move |node| node.change(interface, &gaps, duration));
    }

    /// Has a port's first sending thread carry the packets of an end of connections to a neighbour, or nobody's any more.
    pub fn carry(&mut self, port: usize, what: Option<(tcp::Shared, tcp::End)>, to: Option<MacAddr>, is_ipv4: bool) {
        let (source, interface, thread) = (self.source, self.ports[port].interface, self.ports[port].tx_threads[0]);
        let head = lock(&self.inboxes[port]).host.head(to.unwrap_or(MacAddr([0; 6])), is_ipv4);
        self.graph.input::<Source, _>(source, thread, move |node| {
            node.carry(interface, what.map(|(engine, end)| (engine, end, head)));
        });
    }

    /// Ends all jobs.
    pub fn stop(&mut self) {
        let source = self.source;
        for thread in self.graph.fleet().threads() {
            self.graph.input::<Source, _>(source, thread, Source::stop);
        }
        self.ports.iter_mut().filter_map(|p| p.kernel.as_mut()).for_each(XdpEngine::stop);
    }

    /// Has threads that receive poll without end, or let their cores go while nothing comes.
    pub fn poll(&mut self, on: bool) {
        let mode = if on { RxMode::Polling } else { RxMode::Adaptive };
        for at in 0..self.ports.len() {
            let port = &self.ports[at];
            // What the driver receives there is rare, and the core is the kernel's.
            if port.kernel.is_some() {
                continue;
            }
            let (input, interface, queues) = (port.input, port.interface, port.queues);
            for thread in port.rx_threads.clone() {
                // Of each thread those queues that it has.
                self.graph.input::<DeviceInput, _>(input, thread, move |node| {
                    (0..queues).for_each(|q| {
                        node.set_mode(interface, q, mode);
                    });
                });
            }
        }
    }

    /// Clocks that each thread has spent on frames.
    pub fn clocks(&mut self) -> Vec<(usize, u64)> {
        let nodes: Vec<NodeId> = [self.source, self.sink].into_iter().chain(self.ports.iter().map(|p| p.input)).collect();
        let mut nodes = nodes;
        nodes.sort_unstable();
        nodes.dedup();
        let threads = self.graph.fleet().threads();
        threads.into_iter().map(|t| (t, nodes.iter().map(|n| self.graph.figures(*n, t).clocks).sum())).collect()
    }

    /// Frames that the tester's own side of a port has lost: missed by the device, or without a buffer.
    pub fn own_losses(&self, port: usize) -> u64 {
        let (interfaces, at) = (self.graph.interfaces(), self.ports[port].interface.0);
        let missed = self.dpdk.missed(&self.ports[port].spec.engine);
        missed + interfaces.rx_miss.sum(at) + interfaces.rx_no_buf.sum(at) + interfaces.rx_error.sum(at)
    }
}
