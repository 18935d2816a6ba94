//! Threads that hand packets to one another, join and leave while packets flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    Frame, Graph, HANDOFF_CAPACITY, Idle, IfIndex, InputNode, NoDrops, NoNext, NodeCx, NodeSpec, Published, STATS_BYTES, Snapshot,
    ThreadPlan, VectorNode, drop_reasons, next_nodes,
};
use quiver_tables::qsbr;

const FLOWS: u32 = 16;
/// Packets in a row that go on at the same node.
const RUN: usize = 4;
/// Bound of every wait: a hang, also where the processor is emulated and others have it.
const LONG: Duration = Duration::from_secs(300);

next_nodes! { enum SourceNext { Spread = "spread" } }
next_nodes! { enum SpreadNext { Even = "even", Odd = "odd" } }
drop_reasons! { enum SpreadDrop { Congestion = "congestion drop" } }

/// Numbered packets, a burst a turn, while it is told to.
struct Source {
    next: u64,
    orders: Arc<Orders>,
    active: bool,
}

#[derive(Default)]
struct Orders {
    /// Packets to send in all.
    limit: AtomicU64,
    sent: AtomicU64,
}

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        if !self.active {
            return 0;
        }
        let limit = self.orders.limit.load(Ordering::Acquire);
        let mut frame = cx.new_frame();
        while self.next < limit && frame.len() < 64 {
            let mut bytes = [0xa5; 60];
            bytes[..8].copy_from_slice(&self.next.to_be_bytes());
            if !cx.push_bytes(&mut frame, &bytes, IfIndex(1)) {
                break;
            }
            self.next += 1;
        }
        let n = frame.len();
        cx.send(SourceNext::Spread, frame);
        self.orders.sent.store(self.next, Ordering::Release);
        n
    }

    fn arm(&mut self, _: u64) -> Idle {
        let work = self.active && self.next < self.orders.limit.load(Ordering::Acquire);
        if work { Idle::Busy } else { Idle::Sleep { until: None } }
    }
}

/// Sends each packet to the thread of its flow, and to the node of its four flows.
struct Spread {
    threads: Snapshot<Vec<usize>>,
}

impl VectorNode for Spread {
    type Next = SpreadNext;
    type Drop = SpreadDrop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.threads.refresh();
        let threads = self.threads.get();
        cx.spread_each(frame, SpreadDrop::Congestion, |packet| {
            let flow = packet.head::<[u8; 8]>()[7] as usize % FLOWS as usize;
            let next = if (flow / RUN).is_multiple_of(2) { SpreadNext::Even } else { SpreadNext::Odd };
            (threads[flow % threads.len()], next.into())
        });
    }
}

#[derive(Default)]
struct Seen {
    packets: AtomicU64,
    disorder: AtomicU64,
    by_thread: [AtomicU64; 8],
    by_node: [AtomicU64; 2],
    /// Packets at the node of other flows.
    astray: AtomicU64,
}

/// The node of the flows whose fours have even numbers, or odd ones.
struct Sink {
    odd: usize,
    seen: Arc<Seen>,
    last: [u64; FLOWS as usize],
}

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let number = u64::from_be_bytes(cx.packet(frame, i).head());
            let flow = (number % u64::from(FLOWS)) as usize;
            if flow / RUN % 2 != self.odd {
                self.seen.astray.fetch_add(1, Ordering::Relaxed);
            }
            let last = &mut self.last[flow];
            if number < *last {
                self.seen.disorder.fetch_add(1, Ordering::Relaxed);
            }
            *last = number + 1;
        }
        self.seen.packets.fetch_add(frame.len() as u64, Ordering::Relaxed);
        self.seen.by_node[self.odd].fetch_add(frame.len() as u64, Ordering::Relaxed);
        self.seen.by_thread[cx.thread()].fetch_add(frame.len() as u64, Ordering::Relaxed);
        cx.consume_all(frame, IfIndex(2));
    }
}

struct Bed {
    graph: Graph,
    orders: Arc<Orders>,
    seen: Arc<Seen>,
    threads: Published<Vec<usize>>,
}

impl Bed {
    fn new(workers: usize) -> Self {
        let config = RegionConfig { buffers_per_numa: 8192, page_size: PageSize::Kb4, ..Default::default() };
        let region = Region::new(&config).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.start_workers(&vec![ThreadPlan::default(); workers]).unwrap();
        let (orders, seen) = (Arc::<Orders>::default(), Arc::<Seen>::default());
        let threads = Published::new(graph.fleet().threads());
        let (o, t) = (orders.clone(), threads.snapshot());
        let sink = |name, odd| {
            let seen = seen.clone();
            NodeSpec::vector(name, move |_| Sink { odd, seen: seen.clone(), last: [0; FLOWS as usize] })
        };
        graph
            .add(vec![
                sink("even", 0),
                sink("odd", 1),
                NodeSpec::vector("spread", move |_| Spread { threads: t.clone() }),
                NodeSpec::input("source", move |_| Source { next: 0, orders: o.clone(), active: false }),
            ])
            .unwrap();
        Self { graph, orders, seen, threads }
    }

    /// Moves the source to a thread, as queues are moved.
    fn place_source(&mut self, from: Option<usize>, to: usize) {
        let node = self.graph.node("source").unwrap();
        let take = |s: &mut Source| {
            s.active = false;
            s.next
        };
        let next = from.map_or(0, |from| self.graph.input::<Source, _>(node, from, take).unwrap());
        self.graph.input::<Source, _>(node, to, move |s| (s.next, s.active) = (next, true)).unwrap();
    }

    fn dropped(&self) -> u64 {
        self.graph.error_counts().iter().filter(|(_, e, _)| e.node == "spread").map(|(_, _, n)| n).sum()
    }

    /// Sends `n` more packets.
    fn order(&mut self, n: u64) {
        self.orders.limit.fetch_add(n, Ordering::AcqRel);
        self.graph.fleet().each(|_| ());
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + LONG;
        while self.seen.packets.load(Ordering::Relaxed) + self.dropped() < self.orders.limit.load(Ordering::Relaxed) {
            if self.graph.fleet().step_here().is_none() {
                std::thread::sleep(Duration::from_micros(200));
            }
            assert!(Instant::now() < deadline, "only {:?} packets", self.seen.packets);
        }
    }

    fn assert_pool_is_whole(&mut self) {
        self.graph.fleet().each(|w| w.step());
        for pool in self.graph.pools() {
            assert_eq!(pool.usage().used(), 0, "{:?}", pool.usage());
        }
    }
}

#[test]
fn packets_go_on_at_the_thread_of_their_flow_in_order() {
    for workers in [0, 1, 2, 4] {
        let mut bed = Bed::new(workers);
        let threads = bed.graph.fleet().threads();
        bed.place_source(None, threads[0]);
        for _ in 0..20 {
            // No more than a ring holds, so that nothing is lost whoever runs when.
            bed.order(1000);
            bed.wait();
        }
        assert_eq!(bed.seen.packets.load(Ordering::Relaxed), 20_000);
        assert_eq!(bed.seen.disorder.load(Ordering::Relaxed), 0);
        assert_eq!(bed.seen.astray.load(Ordering::Relaxed), 0);
        assert_eq!(bed.seen.by_node.each_ref().map(|n| n.load(Ordering::Relaxed)), [10_000; 2]);
        for thread in &threads {
            let share = 20_000 / threads.len() as u64;
            let got = bed.seen.by_thread[*thread].load(Ordering::Relaxed);
            assert!(got.abs_diff(share) <= share / 2, "thread {thread}: {got}");
        }
        bed.assert_pool_is_whole();
    }
}

#[test]
fn what_a_thread_does_not_take_is_dropped_and_counted() {
    let mut bed = Bed::new(2);
    bed.threads.publish(vec![2]);
    bed.place_source(None, 1);
    let hold = Arc::new(AtomicBool::new(true));
    let held = hold.clone();
    let (holds, is_held) = std::sync::mpsc::channel();
    bed.graph.fleet().cast(2, move |_| {
        holds.send(()).unwrap();
        while held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    // Or it might be about to take what waits for it.
    is_held.recv().unwrap();
    // Each run of packets for one node takes a place for its head.
    let fit = (HANDOFF_CAPACITY - HANDOFF_CAPACITY / (RUN + 1)) as u64;
    let total = fit + 1000;
    bed.orders.limit.store(total, Ordering::Release);
    bed.graph.fleet().on(1, |_| ());
    let deadline = Instant::now() + LONG;
    while bed.orders.sent.load(Ordering::Acquire) < total {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    hold.store(false, Ordering::Release);
    bed.wait();
    assert_eq!(bed.dropped(), 1000);
    assert_eq!(bed.seen.packets.load(Ordering::Relaxed), fit);
    assert_eq!(bed.seen.disorder.load(Ordering::Relaxed), 0);
    bed.assert_pool_is_whole();
    // A thread that is not there takes nothing.
    bed.threads.publish(vec![7]);
    bed.order(100);
    bed.wait();
    assert_eq!(bed.dropped(), 1100);
    bed.assert_pool_is_whole();
}

#[test]
fn a_sleeping_thread_is_woken_for_what_is_handed_to_it() {
    let mut bed = Bed::new(2);
    bed.threads.publish(vec![2]);
    bed.place_source(None, 1);
    let mut late = 0;
    for round in 1..=20 {
        // Longer than a thread polls on its own; far shorter than it sleeps at most.
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        bed.order(1);
        while bed.seen.packets.load(Ordering::Relaxed) < round {
            assert!(start.elapsed() < LONG, "round {round}");
            std::thread::yield_now();
        }
        late += u32::from(start.elapsed() > Duration::from_millis(500));
    }
    // One that is not woken sleeps for a second each time; a busy machine keeps it waiting now and then, an emulated one often.
    assert!(late <= 15, "{late} of 20 late");
}

#[test]
fn threads_join_and_leave_under_traffic_and_every_packet_is_accounted_for() {
    let mut bed = Bed::new(1);
    bed.place_source(None, 1);
    let readers = bed.graph.domain().readers();
    // Without end: what is not sent in time is not asked for.
    bed.orders.limit.store(u64::MAX / 2, Ordering::Release);
    bed.graph.fleet().each(|_| ());
    for round in 0..10 {
        for wanted in [4, 2, 3, 1] {
            while bed.graph.fleet().workers() < wanted {
                let thread = bed.graph.add_worker(&ThreadPlan::default()).unwrap();
                assert_eq!(thread, bed.graph.fleet().workers());
                bed.threads.publish(bed.graph.fleet().threads());
            }
            std::thread::sleep(Duration::from_millis(2));
            while bed.graph.fleet().workers() > wanted {
                let last = bed.graph.fleet().workers();
                bed.threads.publish((1..last).collect());
                bed.graph.fleet().each(|_| ());
                bed.graph.retire(last).unwrap();
            }
            if round % 5 == 4 {
                // Main takes part for a while, and has the source.
                bed.graph.add_main();
                bed.place_source(Some(1), 0);
                bed.threads.publish(bed.graph.fleet().threads());
                for _ in 0..50 {
                    bed.graph.fleet().step_here();
                }
                bed.threads.publish((1..=wanted).collect());
                bed.place_source(Some(0), 1);
                bed.graph.fleet().each(|_| ());
                bed.graph.retire(0).unwrap();
            }
            assert_eq!(bed.graph.domain().readers(), readers + wanted - 1);
        }
    }
    bed.orders.limit.store(0, Ordering::Release);
    let node = bed.graph.node("source").unwrap();
    let sent = bed.graph.input::<Source, _>(node, 1, |s| s.next).unwrap();
    bed.orders.limit.store(sent, Ordering::Release);
    bed.wait();
    let seen = bed.seen.packets.load(Ordering::Relaxed);
    assert_eq!(seen + bed.dropped(), sent, "each packet arrived, or was dropped for a reason");
    assert!(seen > 0);
    bed.assert_pool_is_whole();
    assert!(bed.graph.retire(1).is_err(), "one thread must forward");
    assert!(bed.graph.retire(2).is_err(), "it is not there");
}

#[test]
fn no_two_threads_write_a_cache_line() {
    let mut bed = Bed::new(4);
    bed.place_source(None, 1);
    bed.order(5000);
    bed.wait();
    // Nodes that come later are made for one thread after the other.
    let many = (0..100).map(|n| NodeSpec::vector(format!("later-{n}"), |_| Small(0)));
    bed.graph.add(many.collect()).unwrap();
    bed.graph.add_worker(&ThreadPlan::default()).unwrap();
    bed.order(5000);
    bed.wait();
    let written = bed.graph.fleet().each(|w| (w.thread(), w.written()));
    let mut owners = std::collections::HashMap::new();
    let mut lines = 0;
    for (thread, ranges) in written {
        assert!(ranges.len() > 100);
        // Nodes without state have no line.
        for (address, bytes) in ranges.into_iter().filter(|(_, bytes)| *bytes > 0) {
            for line in address / 64..(address + bytes).div_ceil(64) {
                lines += 1;
                let owner = owners.insert(line, thread);
                assert!(owner.is_none_or(|o| o == thread), "line {line:#x} is written by {owner:?} and {thread}");
            }
        }
    }
    assert!(lines > 1000);
    // Counters: a row a thread.
    let figures = |name, thread| bed.graph.figures(bed.graph.node(name).unwrap(), thread).vectors;
    let sum: u64 = (0..6).map(|thread| figures("even", thread) + figures("odd", thread)).sum();
    assert_eq!(sum, bed.seen.packets.load(Ordering::Relaxed));
}

/// A node of a few bytes.
struct Small(u8);

impl VectorNode for Small {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.0 = self.0.wrapping_add(1);
        cx.consume_all(frame, IfIndex(0));
    }
}
