//! A device of the test's own process: two memif interfaces, a node between them, a worker.
#![allow(dead_code)]

pub mod hold;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_drivers::memif::{Key, Memif, MemifConfig, Role};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceNext, DeviceTx, Graph, IfIndex, NoNext, NodeSpec, PlacedQueue, Port, STATS_BYTES, ThreadPlan,
    TxQueue, TxState, VectorNode,
};
use quiver_tables::qsbr;

/// A socket's file of this test's own, gone with it.
pub struct Socket(PathBuf);

impl Socket {
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("quiver-impaired-{}-{name}.sock", std::process::id())))
    }

    pub fn ports(&self, keys: &str) -> Vec<quiver_tester_core::port::PortSpec> {
        let port = |id: u32| {
            let text =
                format!("memif:socket={},id={id},role=client,ring=16384,dst-mac=02:00:00:00:00:0{id}{keys}", self.0.display());
            text.parse().expect("a port")
        };
        vec![port(0), port(1)]
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The device: two memif interfaces, a node between them and a worker. Served until told to stop.
fn device<N: VectorNode<Next = NoNext>>(socket: &Socket, node: impl Fn() -> N + Send + Sync + 'static, stop: &AtomicBool) {
    let memif = Memif::new("/nonexistent/unused.sock").expect("memif");
    memif.add_socket(1, &socket.0.to_string_lossy()).expect("a socket");
    let region = RegionConfig { buffers_per_numa: 16_384, page_size: PageSize::Kb4, ..Default::default() };
    let stats = Stats::new(STATS_BYTES).expect("counters");
    let mut graph = Graph::new(Region::new(&region).expect("buffers"), stats, Clock::new(), qsbr::Domain::new());
    graph.start_workers(&[ThreadPlan::default()]).expect("a worker");
    graph.interfaces().set_len(3);
    let thread = graph.fleet().threads()[0];
    let mut ports = Vec::new();
    for id in [0, 1] {
        let mut port = memif.create(MemifConfig { role: Role::Server, ..MemifConfig::new(Key { socket: 1, id }) }).expect("a port");
        let (interface, state) = (IfIndex(id + 1), Arc::new(TxState::default()));
        state.set_up(true);
        let queue: RefCell<Option<Box<dyn TxQueue>>> = RefCell::new(Some(port.open_tx(thread).expect("a queue")));
        let make = move |_: &quiver_graph::MakeCx| DeviceTx::new(interface, state.clone(), queue.borrow_mut().take());
        graph.add(vec![NodeSpec::vector(format!("if{interface}-tx"), make)]).expect("a node");
        ports.push(port);
    }
    let make = move |_: &quiver_graph::MakeCx| node();
    graph.add(vec![NodeSpec::vector("ethernet-input", make).with_next("if1-tx").with_next("if2-tx")]).expect("a node");
    let arc = ArcPoint::new();
    let input = graph.add(vec![NodeSpec::input("memif-input", move |_| DeviceInput::new(arc.clone()))]).expect("a node")[0];
    for (id, port) in ports.iter_mut().enumerate() {
        let rx = port.take_rx().expect("queues").remove(0);
        let queue = PlacedQueue { interface: IfIndex(id as u32 + 1), queue: 0, next: DeviceNext::Ethernet.into(), up: true, rx };
        graph.input::<DeviceInput, _>(input, thread, move |node| node.place(queue));
        port.set_up(true).expect("up");
    }
    while !stop.load(Ordering::Acquire) {
        memif.run();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// For how long trials wait for what is under way: threads that poll, more than there are processors, keep one another waiting.
pub const SETTLE: Duration = Duration::from_secs(3);

/// Ends the device, and what else waits for that, also when a check fails.
pub struct End<'a>(pub &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One device at a time in a process: each has threads that poll, and with those of all tests together none would come to its work.
static TURN: Mutex<()> = Mutex::new(());

/// Runs trials while a device with this node is there, and tells what ends both.
pub fn with_node<N: VectorNode<Next = NoNext>, R>(
    name: &str,
    node: impl Fn() -> N + Send + Sync + 'static,
    work: impl FnOnce(&Socket, &AtomicBool) -> R,
) -> R {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (socket, stop) = (Socket::new(name), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| device(&socket, node, &stop));
        let _end = End(&stop);
        work(&socket, &stop)
    })
}
