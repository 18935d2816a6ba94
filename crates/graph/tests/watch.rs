//! Queues whose device is asked by a system call: where there are several, only those with packets are asked.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceTx, Graph, IfIndex, NodeId, NodeSpec, PlacedQueue, RxBurst, RxQueue, RxState, STATS_BYTES,
    TxBatch, TxQueue, TxState, Verdict,
};
use quiver_tables::qsbr;

/// Numbers of the queues that were asked, in order.
type Asked = Arc<Mutex<Vec<u32>>>;

/// Packets are what waits in a socket.
struct Queue {
    number: u32,
    socket: UnixDatagram,
    asked: Asked,
}

impl RxQueue for Queue {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        self.asked.lock().unwrap().push(self.number);
        let mut bytes = [0; 60];
        while burst.room() > 0 && self.socket.recv(&mut bytes).is_ok() {
            assert!(burst.push(&bytes));
        }
        RxState::Up
    }

    fn event_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn asks_by_call(&self) -> bool {
        true
    }
}

struct Sink;

impl TxQueue for Sink {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        batch.len()
    }
}

struct Scene {
    graph: Graph,
    input: NodeId,
    asked: Asked,
    senders: Vec<UnixDatagram>,
}

impl Scene {
    fn new(queues: u32) -> Self {
        let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.start_workers(&[]).unwrap();
        graph.interfaces().set_len(queues + 2);
        let state = Arc::new(TxState::default());
        state.set_up(true);
        let make = move |_: &_| DeviceTx::new(IfIndex(1), state.clone(), Some(Box::new(Sink)));
        graph.add(vec![NodeSpec::vector("ethernet-input", make)]).unwrap();
        let point = ArcPoint::new();
        let input = graph.add(vec![NodeSpec::input("queue-input", move |_| DeviceInput::new(point.clone()))]).unwrap()[0];
        let mut scene = Self { graph, input, asked: Asked::default(), senders: Vec::new() };
        (0..queues).for_each(|_| scene.place());
        scene.poll();
        scene
    }

    fn place(&mut self) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let number = self.senders.len() as u32;
        self.senders.push(theirs);
        let rx = Box::new(Queue { number, socket: ours, asked: self.asked.clone() });
        let queue = PlacedQueue { interface: IfIndex(number + 1), queue: 0, next: Verdict::slot(1), up: true, rx };
        self.with(move |node| node.place(queue));
    }

    fn with(&mut self, change: impl FnOnce(&mut DeviceInput) + Send + 'static) {
        self.graph.input::<DeviceInput, _>(self.input, 0, change);
    }

    fn send(&self, queue: usize) {
        self.senders[queue].send(&[0xa5; 60]).unwrap();
    }

    /// Which queues are asked in an iteration.
    fn poll(&mut self) -> Vec<u32> {
        self.graph.fleet().step_here();
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[test]
fn of_several_queues_those_with_packets_are_asked_until_they_are_empty() {
    let mut scene = Scene::new(200);
    assert!(scene.poll().is_empty(), "all were asked once and are empty");
    scene.send(3);
    scene.send(150);
    assert_eq!(scene.poll(), [3, 150]);
    scene.send(150);
    assert_eq!(scene.poll(), [3, 150], "they may have more");
    assert_eq!(scene.poll(), [150]);
    assert!(scene.poll().is_empty());
    (0..200).for_each(|queue| scene.send(queue));
    let mut asked: Vec<u32> = (0..20).flat_map(|_| scene.poll()).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked, (0..200).collect::<Vec<_>>(), "more than are found by one call");
}

#[test]
fn one_queue_is_asked_each_time() {
    let mut scene = Scene::new(1);
    assert_eq!((scene.poll(), scene.poll()), (vec![0], vec![0]));
    scene.place();
    assert_eq!(scene.poll(), [0, 1]);
    assert!(scene.poll().is_empty());
}

#[test]
fn queues_come_and_go_up_and_down() {
    let mut scene = Scene::new(3);
    scene.with(|node| assert!(node.unplace(IfIndex(1), 0).is_some()));
    scene.send(1);
    scene.send(2);
    assert_eq!(scene.poll(), [1, 2], "another place, the same queue");
    scene.poll();
    scene.with(|node| node.set_up(IfIndex(2), false));
    scene.send(1);
    assert!(scene.poll().is_empty());
    scene.with(|node| node.set_up(IfIndex(2), true));
    assert_eq!(scene.poll(), [1]);
    scene.poll();
    scene.with(|node| {
        let moving = node.take(IfIndex(3), 0).unwrap();
        node.adopt(moving);
        node.renew(IfIndex(2));
    });
    scene.poll();
    scene.send(1);
    scene.send(2);
    assert_eq!(scene.poll(), [1, 2]);
    scene.place();
    scene.poll();
    scene.send(3);
    assert!(scene.poll().contains(&3));
}
