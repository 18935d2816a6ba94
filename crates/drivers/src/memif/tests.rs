//! Two ends in one process, over a real socket and real shared memory.

mod hostile;
mod passed;
mod traffic;
mod zero_copy;

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceNext, DeviceTx, Frame, Graph, IfIndex, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, PlacedQueue,
    Port, STATS_BYTES, Shared as SharedMemory, TxQueue, TxState, VectorNode, Verdict,
};
use quiver_tables::qsbr;

use super::*;

/// The only interface of each end.
const IF: IfIndex = IfIndex(1);
const KEY: Key = Key { socket: 1, id: 0 };

type Got = Arc<Mutex<Vec<Vec<u8>>>>;

/// Keeps what comes in.
struct Keep(Got);

impl VectorNode for Keep {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let mut got = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let mut bytes = vec![0; packet.total_len()];
            packet.copy_out(0, &mut bytes);
            got.push(bytes);
            let (packet, _) = packet.take();
            cx.free(packet);
        }
    }
}

/// Where frames are put in; only its edge matters.
struct Source;

impl VectorNode for Source {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, _: &mut NodeCx<'_>, _: &mut Frame) {}
}

/// A folder of this test's own.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("quiver-memif-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn socket(&self) -> String {
        self.0.join("m.sock").to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Packet buffers on small pages, which peers share here, cannot be sealed.
const TRUSTING: Limits = Limits { unsealed: true, ..Limits::DEFAULT };

/// One end: an interface and a graph that keeps what it receives.
pub(super) struct End {
    pub memif: Memif,
    pub port: MemifPort,
    pub graph: Graph,
    source: NodeId,
    input: NodeId,
    got: Got,
}

/// Sends back what comes in.
struct Echo;

impl VectorNode<SharedMemory> for Echo {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame<SharedMemory>) {
        cx.decide_all(frame, Verdict::slot(1));
    }
}

impl End {
    pub fn new(folder: &Folder, config: MemifConfig) -> Self {
        Self::with(folder, config, TRUSTING, Self::keeps)
    }

    /// An end whose peers may be anybody.
    pub fn wary(folder: &Folder, config: MemifConfig) -> Self {
        Self::with(folder, config, Limits::DEFAULT, Self::keeps)
    }

    fn keeps(got: Got) -> NodeSpec {
        NodeSpec::vector("ethernet-input", move |_| Keep(got.clone()))
    }

    /// An end that sends back what comes in, as it lies.
    pub fn echo(folder: &Folder, config: MemifConfig) -> Self {
        Self::with(folder, config, TRUSTING, |_| NodeSpec::vector("ethernet-input", |_| Echo).with_next("if1-tx"))
    }

    fn with(folder: &Folder, config: MemifConfig, limits: Limits, receiver: impl FnOnce(Got) -> NodeSpec) -> Self {
        Self::made(folder, config, limits, receiver, None)
    }

    /// An end that may get what another process passes on.
    fn made(
        folder: &Folder,
        config: MemifConfig,
        limits: Limits,
        receiver: impl FnOnce(Got) -> NodeSpec,
        rights: Option<Arc<dyn crate::rights::Rights>>,
    ) -> Self {
        let memif = Memif::new("/nowhere/memif.sock").unwrap();
        rights.into_iter().for_each(|rights| memif.set_rights(rights));
        let socket = SocketConfig { limits, ..SocketConfig::new(&folder.socket()) };
        memif.add_socket_with(config.key.socket, socket).unwrap();
        let region = RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() };
        let mut graph =
            Graph::new(Region::new(&region).unwrap(), Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        memif.set_buffers(graph.pools()[0].region().clone());
        let mut port = memif.create(config).unwrap();
        graph.interfaces().set_len(2);
        let (got, state) = (Got::default(), Arc::new(TxState::default()));
        state.set_up(true);
        let queue: RefCell<Option<Box<dyn TxQueue>>> = RefCell::new(Some(port.open_tx(0).unwrap()));
        let tx = NodeSpec::vector("if1-tx", move |_| DeviceTx::new(IF, state.clone(), queue.borrow_mut().take()));
        graph.add(vec![tx]).unwrap();
        let nodes = vec![receiver(got.clone()), NodeSpec::vector("source", |_| Source).with_next("if1-tx")];
        let source = graph.add(nodes).unwrap()[1];
        let arc = ArcPoint::new();
        let input = graph.add(vec![NodeSpec::input("memif-input", move |_| DeviceInput::new(arc.clone()))]).unwrap()[0];
        for (number, rx) in port.take_rx().unwrap().into_iter().enumerate() {
            let queue = PlacedQueue { interface: IF, queue: number as u16, next: DeviceNext::Ethernet.into(), up: true, rx };
            graph.input::<DeviceInput, _>(input, 0, move |node| node.place(queue)).unwrap();
        }
        Self { memif, port, graph, source, input, got }
    }

    pub fn is_up(&mut self) -> bool {
        self.port.link().up
    }

    pub fn info(&self) -> InterfaceInfo {
        self.memif.interface(KEY).unwrap()
    }

    /// Puts frames into the tx node, all at once.
    pub fn send(&mut self, frames: &[Vec<u8>]) {
        let (source, frames) = (self.source, frames.to_vec());
        self.graph.fleet().on(0, move |w| {
            w.at_node(source, |cx| {
                for frame in &frames {
                    let packet = cx.alloc_bytes(frame, IF).expect("a buffer");
                    cx.emit(Verdict::slot(1), packet);
                }
            });
            w.step();
        });
    }

    /// Receives once, and says what came.
    pub fn poll(&mut self) -> Vec<Vec<u8>> {
        self.graph.fleet().each(|w| w.step());
        std::mem::take(&mut *self.got.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Polls until nothing more comes.
    pub fn poll_all(&mut self) -> Vec<Vec<u8>> {
        let mut all = self.poll();
        loop {
            match self.poll() {
                more if more.is_empty() => return all,
                more => all.extend(more),
            }
        }
    }

    pub fn arm(&mut self) -> quiver_graph::Idle {
        use quiver_graph::InputNode;
        self.graph.input::<DeviceInput, _>(self.input, 0, |node| node.arm(0)).unwrap()
    }

    pub fn event_fd(&mut self) -> RawFd {
        use quiver_graph::InputNode;
        let fds = self.graph.input::<DeviceInput, _>(self.input, 0, |node| {
            let mut fds = Vec::new();
            node.event_fds(&mut fds);
            fds
        });
        fds.unwrap()[0]
    }

    pub fn counter(&self, name: &str) -> u64 {
        let found = self.graph.interfaces().simple().into_iter().find(|(n, _)| *n == name);
        found.map(|(_, c)| c.sum(IF.0)).unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Every buffer is back.
    pub fn assert_pool_is_whole(&mut self) {
        self.graph.fleet().each(|w| w.step());
        let used: Vec<_> = self.graph.pools().iter().map(|p| p.usage().used()).collect();
        assert!(used.iter().all(|n| *n == 0), "buffers in use: {used:?}");
    }
}

pub(super) fn server() -> MemifConfig {
    MemifConfig { role: Role::Server, ..MemifConfig::new(KEY) }
}

pub(super) fn client() -> MemifConfig {
    MemifConfig::new(KEY)
}

/// Bound of what peers are waited for: a hang.
pub(super) const LONG: std::time::Duration = std::time::Duration::from_secs(120);

/// Runs both control sides until `done`.
pub(super) fn run_until(ends: &mut [&mut End], what: &str, mut done: impl FnMut(&mut [&mut End]) -> bool) {
    let deadline = std::time::Instant::now() + LONG;
    while !done(ends) {
        ends.iter().for_each(|end| drop(end.memif.run()));
        if std::time::Instant::now() > deadline {
            let infos: Vec<_> = ends.iter().map(|e| e.info()).collect();
            panic!("{what}: {infos:#?}");
        }
    }
}

/// Both up and connected.
pub(super) fn connect(a: &mut End, b: &mut End) {
    a.port.set_up(true).unwrap();
    b.port.set_up(true).unwrap();
    run_until(&mut [a, b], "connecting", |ends| ends.iter_mut().all(|e| e.is_up()));
}

/// Bytes that differ from frame to frame.
pub(super) fn frame(number: usize, len: usize) -> Vec<u8> {
    let mut x = (number as u32).wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
