//! The graph as a whole: made-up nodes, real workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::STATS_BYTES;
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, ArcSpec, Batch, FastPath, FeatureSpec, Frame, Graph, GraphError, IfIndex, InputNode, Level, NoDrops, NoNext, Node,
    NodeCx, NodeSpec, Pkt, Sent, ThreadPlan, VectorNode, Verdict, drop_reasons, flags, next_nodes,
};
use quiver_tables::qsbr;

next_nodes! { enum SourceNext { Check = "check" } }
next_nodes! { enum CheckNext { Sink = "sink" } }
drop_reasons! { enum CheckDrop { Odd = "odd packets" } }

/// Brings in `left` packets, numbered in their first bytes, `burst` at a time.
struct Source {
    left: u64,
    burst: usize,
    number: u32,
    size: usize,
}

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;
    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let mut sent = 0;
        while sent < self.burst && self.left > 0 {
            let mut bytes = vec![0xa5; self.size.max(4)];
            bytes[..4].copy_from_slice(&self.number.to_be_bytes());
            let Some(packet) = cx.alloc_bytes(&bytes, IfIndex(1 + self.number % 2)) else { break };
            cx.emit(SourceNext::Check, packet);
            self.number += 1;
            self.left -= 1;
            sent += 1;
        }
        sent
    }
}

/// Drops odd numbers, sends even ones on.
#[derive(Clone)]
struct Check {
    arc: ArcPoint,
}

impl Node for Check {
    type Next = CheckNext;
    type Drop = CheckDrop;
    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let number: [u8; 4] = packet.head();
        if number[3] & 1 != 0 {
            return packet.drop(CheckDrop::Odd);
        }
        packet.set_aux(u32::from_be_bytes(number));
        self.arc.next(packet.rx_if(), CheckNext::Sink.into())
    }
}

/// Batches of even numbers of one interface that has no feature.
impl FastPath for Check {
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let numbers = batch.heads::<[u8; 4], 0>();
        let interface = batch.first_rx_if();
        if numbers.iter().any(|number| number[3] & 1 != 0) || !batch.all_from(interface, flags::ANY) {
            return None;
        }
        batch.set_aux(numbers.map(u32::from_be_bytes));
        Some(batch.send_all(self.arc.next(interface, CheckNext::Sink.into())))
    }
}

#[derive(Default)]
struct Seen {
    packets: AtomicU64,
    bytes: AtomicU64,
    disorder: AtomicU64,
    by_feature: AtomicU64,
}

struct Sink {
    seen: Arc<Seen>,
    last: Option<u32>,
}

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = CheckDrop;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let packet = cx.packet(frame, i);
            let number = packet.aux();
            if self.last.is_some_and(|l| l >= number) {
                self.seen.disorder.fetch_add(1, Ordering::Relaxed);
            }
            self.last = Some(number);
            self.seen.packets.fetch_add(1, Ordering::Relaxed);
            self.seen.bytes.fetch_add(packet.total_len() as u64, Ordering::Relaxed);
            let (owned, _) = packet.take();
            cx.free(owned);
        }
    }
}

/// Counts and passes on: a feature.
#[derive(Clone)]
struct Feature {
    seen: Arc<Seen>,
    arc: ArcPoint,
}

impl Node for Feature {
    type Next = CheckNext;
    type Drop = NoDrops;
    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        self.seen.by_feature.fetch_add(1, Ordering::Relaxed);
        self.arc.next(packet.rx_if(), CheckNext::Sink.into())
    }
}

struct Bed {
    graph: Graph,
    seen: Arc<Seen>,
}

impl Bed {
    fn new(workers: usize, packets: u64, burst: usize, size: usize) -> Self {
        let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.start_workers(&vec![ThreadPlan::default(); workers]).unwrap();
        let seen = Arc::new(Seen::default());
        let (s1, s2) = (seen.clone(), seen.clone());
        graph.add(vec![NodeSpec::vector("sink", move |_| Sink { seen: s1.clone(), last: None })]).unwrap();
        let (check, feature) = (ArcPoint::new(), ArcPoint::new());
        graph
            .add(vec![
                NodeSpec::fast("check", Check { arc: check.clone() }).on_arc("test", check),
                NodeSpec::node("feature", Feature { seen: s2, arc: feature.clone() }).on_arc("test", feature),
            ])
            .unwrap();
        graph.add_arc(ArcSpec { name: "test", starts: vec!["check".into()], end: "sink".into() }).unwrap();
        graph.add_features(vec![FeatureSpec { arc: "test", node: "feature".into(), before: vec![], after: vec![] }]).unwrap();
        graph.add(vec![NodeSpec::input("source", move |_| Source { left: packets, burst, number: 0, size })]).unwrap();
        Self { graph, seen }
    }

    /// Runs until all packets of all threads are through.
    fn run(&mut self, packets_per_thread: u64) {
        let threads = self.graph.fleet().threads().len() as u64;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
        loop {
            let local = self.graph.fleet().step_here();
            let figures: u64 = self.graph.loop_figures().iter().map(|(_, f)| f.input).sum();
            if figures == packets_per_thread * threads && local.unwrap_or(0) == 0 {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "only {figures} packets");
        }
    }

    fn count(&self, node: &str, text: &str) -> u64 {
        self.graph.error_counts().iter().filter(|(_, e, _)| e.node == node && e.text == text).map(|(_, _, n)| n).sum()
    }

    /// Every buffer is in the pool or in a cache.
    fn assert_pool_is_whole(&mut self) {
        self.graph.fleet().each(|_| ());
        for pool in self.graph.pools() {
            assert_eq!(pool.usage().used(), 0, "{:?}", pool.usage());
        }
    }
}

#[test]
fn every_packet_is_sent_or_dropped_for_a_reason_with_any_number_of_workers() {
    for workers in [0, 1, 2, 4] {
        for burst in [1, 3, 4, 5, 255, 256] {
            let mut bed = Bed::new(workers, 1000, burst, 60);
            bed.run(1000);
            let threads = workers.max(1) as u64;
            assert_eq!(bed.seen.packets.load(Ordering::Relaxed), 500 * threads);
            assert_eq!(bed.count("check", "odd packets"), 500 * threads);
            assert_eq!(bed.seen.disorder.load(Ordering::Relaxed), 0);
            bed.assert_pool_is_whole();
        }
    }
}

#[test]
fn all_loops_of_a_node_do_the_same() {
    for width in [1, 2, 4, 8] {
        for level in Level::ALL.into_iter().filter(|l| l.available()) {
            for prefetch in [0, 1, 8] {
                let mut bed = Bed::new(0, 999, 250, 60);
                bed.graph.set_loop("check", Some(width), Some(prefetch), Some(level)).unwrap();
                bed.run(999);
                assert_eq!(bed.seen.packets.load(Ordering::Relaxed), 500, "{width} {level:?} {prefetch}");
                assert_eq!(bed.count("check", "odd packets"), 499);
                bed.assert_pool_is_whole();
            }
        }
    }
}

#[test]
fn vector_size_is_a_setting() {
    for size in [4, 5, 255, 1024] {
        let mut bed = Bed::new(0, 3000, size, 60);
        bed.graph.set_vector_size(size).unwrap();
        bed.run(3000);
        assert_eq!(bed.seen.packets.load(Ordering::Relaxed), 1500);
        assert_eq!(bed.seen.disorder.load(Ordering::Relaxed), 0);
        bed.assert_pool_is_whole();
    }
    let mut bed = Bed::new(0, 0, 1, 60);
    for size in [0, 3, 1025] {
        assert!(matches!(bed.graph.set_vector_size(size), Err(GraphError::Range { .. })));
    }
}

#[test]
fn packets_larger_than_a_buffer_are_chained_and_freed() {
    let mut bed = Bed::new(1, 100, 50, 9000);
    bed.run(100);
    assert_eq!(bed.seen.bytes.load(Ordering::Relaxed), 50 * 9000);
    bed.assert_pool_is_whole();
}

#[test]
fn a_feature_is_on_where_it_was_switched_on() {
    let mut bed = Bed::new(0, 1000, 100, 60);
    // Even numbers come in on interface 1.
    assert!(bed.graph.set_feature("test", "feature", IfIndex(2), true).unwrap());
    bed.graph.fleet().step_here();
    assert_eq!(bed.seen.by_feature.load(Ordering::Relaxed), 0);
    assert!(bed.graph.set_feature("test", "feature", IfIndex(1), true).unwrap());
    assert!(!bed.graph.set_feature("test", "feature", IfIndex(1), true).unwrap());
    bed.graph.fleet().step_here();
    assert_eq!(bed.seen.by_feature.load(Ordering::Relaxed), 50);
    assert_eq!(bed.graph.features_of(IfIndex(1)), [("test", vec!["feature".to_owned()])]);
    bed.graph.forget_interface(IfIndex(1));
    bed.run(1000);
    assert_eq!(bed.seen.by_feature.load(Ordering::Relaxed), 50);
    assert_eq!(bed.seen.packets.load(Ordering::Relaxed), 500);
    assert!(bed.graph.set_feature("test", "nothing", IfIndex(1), true).is_err());
    assert!(bed.graph.set_feature("nothing", "feature", IfIndex(1), true).is_err());
}

#[test]
fn a_removed_node_leaves_no_packet_unaccounted_for() {
    let mut bed = Bed::new(2, 5000, 64, 60);
    let sink = bed.graph.node("sink").unwrap();
    bed.graph.remove(sink).unwrap();
    bed.run(5000);
    let gone = bed.count("null-node", "blackholed packets");
    let seen = bed.seen.packets.load(Ordering::Relaxed);
    assert_eq!(gone + seen, 5000);
    assert!(gone > 0 || seen > 0);
    assert_eq!(bed.count("check", "odd packets"), 5000);
    bed.assert_pool_is_whole();
    assert!(bed.graph.remove(sink).is_err());
}

#[test]
fn names_must_be_unique_and_next_nodes_known() {
    let mut bed = Bed::new(0, 0, 1, 60);
    let seen = bed.seen.clone();
    let sink = move |name: &str| {
        let seen = seen.clone();
        NodeSpec::vector(name, move |_| Sink { seen: seen.clone(), last: None })
    };
    assert_eq!(bed.graph.add(vec![sink("sink")]), Err(GraphError::Duplicate("sink".into())));
    let unknown = bed.graph.add(vec![sink("fresh"), sink("other").with_next("nowhere")]);
    assert_eq!(unknown, Err(GraphError::UnknownNode { name: "nowhere".into(), by: "other".into() }));
    assert_eq!(bed.graph.node("fresh"), None, "all or none");
}

#[test]
fn a_traced_packet_shows_every_station() {
    let mut bed = Bed::new(0, 10, 10, 60);
    let source = bed.graph.node("source").unwrap();
    bed.graph.fleet().each(move |w| w.trace_add(source, 2, None));
    bed.run(10);
    // This source emits packets one by one; traces start on frames that an input node sends.
    assert!(bed.graph.traces().iter().all(|(_, r)| r.len() <= 2));
}

#[test]
fn buffers_that_run_out_are_counted_and_come_back() {
    let region = Region::new(&RegionConfig { buffers_per_numa: 256, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
    let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
    let null = graph.node("null-node").unwrap();
    let held = graph
        .fleet()
        .on(0, move |w| {
            w.at_node(null, |cx| {
                let mut held = Vec::new();
                while let Some(p) = cx.alloc(60, IfIndex(3)) {
                    held.push(p);
                }
                let n = held.len();
                held.into_iter().for_each(|p| cx.free(p));
                n
            })
        })
        .flatten()
        .unwrap();
    assert_eq!(held, graph.pools()[0].usage().total as usize);
    assert_eq!(graph.interfaces().rx_no_buf.sum(3), 1);
    graph.fleet().step_here();
    assert_eq!(graph.pools()[0].usage().used(), 0);
}

next_nodes! { enum JoinNext { Sink = "sink" } }

/// Joins all packets of a vector to one, cuts that to `cut` bytes, and reports its bytes.
struct Join {
    cut: usize,
    seen: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl VectorNode for Join {
    type Next = JoinNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let (head, _) = cx.packet(frame, 0).take();
        let mut joining = cx.join(head);
        for i in 1..frame.len() {
            let (packet, _) = cx.packet(frame, i).take();
            cx.join_next(&mut joining, packet);
        }
        let mut packet = cx.join_end(joining);
        cx.cut(&mut packet, self.cut);
        let mut bytes = vec![0; self.cut + 1];
        let n = cx.view(&mut packet).copy_out(0, &mut bytes);
        assert_eq!(n, cx.view(&mut packet).total_len());
        bytes.truncate(n);
        *self.seen.lock().unwrap() = bytes;
        cx.free(packet);
    }
}

#[test]
fn joined_and_cut_packets_keep_their_bytes_and_give_back_their_buffers() {
    let sizes = [10_usize, 3000, 1, 2048, 5000, 0, 7];
    let whole: Vec<u8> = sizes.iter().flat_map(|n| (0..*n).map(move |i| (i * 7 + n) as u8)).collect();
    for cut in [0, 1, 9, 10, 11, 2058, 2059, 3010, 3011, 5059, whole.len() - 7, whole.len(), whole.len() + 50] {
        let region = Region::new(&RegionConfig { buffers_per_numa: 256, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        let seen = Arc::default();
        let shared = Arc::clone(&seen);
        let sink = NodeSpec::vector("sink", |_| Drain);
        let join = NodeSpec::vector("join", move |_| Join { cut, seen: Arc::clone(&shared) });
        let ids = graph.add(vec![sink, join, NodeSpec::vector("feed", |_| Feed)]).unwrap();
        graph.fleet().on(0, move |w| {
            w.at_node(ids[2], |cx| {
                for n in sizes {
                    let bytes: Vec<u8> = (0..n).map(|i| (i * 7 + n) as u8).collect();
                    let packet = cx.alloc_bytes(&bytes, IfIndex(1)).unwrap();
                    cx.emit(FeedNext::Join, packet);
                }
            });
            w.step();
        });
        assert_eq!(*seen.lock().unwrap(), whole[..cut.min(whole.len())], "cut {cut}");
        assert_eq!(graph.pools()[0].usage().used(), 0, "cut {cut}");
    }
}

next_nodes! { enum FeedNext { Join = "join" } }

struct Feed;

impl VectorNode for Feed {
    type Next = FeedNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.decide_all(frame, FeedNext::Join);
    }
}

/// Frees what comes.
struct Drain;

impl VectorNode for Drain {
    type Next = NoNext;
    type Drop = NoDrops;
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.consume_all(frame, IfIndex(0));
    }
}

#[test]
fn an_unfinished_checksum_stays_where_it_is_when_headers_come_and_go() {
    let region = Region::new(&RegionConfig { buffers_per_numa: 256, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
    let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
    let null = graph.node("null-node").unwrap();
    let places = graph.fleet().on(0, move |w| {
        w.at_node(null, |cx| {
            let mut packet = cx.alloc(100, IfIndex(1)).unwrap();
            let mut view = cx.view(&mut packet);
            let mut places = vec![view.unfinished_checksum()];
            view.set_unfinished_checksum(34, 16);
            places.push(view.unfinished_checksum());
            assert!(view.push(4));
            places.push(view.unfinished_checksum());
            assert!(view.pull(18));
            places.push(view.unfinished_checksum());
            assert!(view.pull(30));
            places.push(view.unfinished_checksum());
            cx.free(packet);
            places
        })
    });
    assert_eq!(places.flatten().unwrap(), [None, Some((34, 16)), Some((38, 16)), Some((20, 16)), None]);
}
