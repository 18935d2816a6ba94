//! How forwarding scales with workers: a packet generator in each worker, five nodes, no device.
//!
//! `cargo bench -p quiver-graph --bench workers [-- ROUNDS]` prints packets a second for 1, 2, … workers on CPUs of their own,
//! medians of interleaved rounds, and what hand-off costs: the same with every packet handed to the next worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quiver_buffer::{Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::topology::allowed_cpus;
use quiver_graph::{
    Frame, Graph, IfIndex, InputNode, NoDrops, NoNext, Node, NodeCx, NodeSpec, Pkt, STATS_BYTES, ThreadPlan, VectorNode, Verdict,
    drop_reasons, next_nodes,
};
use quiver_tables::qsbr;

next_nodes! { enum SourceNext { Spread = "spread" } }
next_nodes! { enum SpreadNext { First = "check-1" } }
drop_reasons! { enum SpreadDrop { Congestion = "congestion drop" } }
drop_reasons! { enum CheckDrop { Short = "too short" } }

/// A vector of 60-byte packets each turn, while it is on.
struct Source {
    on: bool,
    packet: [u8; 60],
}

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        if !self.on {
            return 0;
        }
        let mut frame = cx.new_frame();
        while cx.push_bytes(&mut frame, &self.packet, IfIndex(1)) {}
        let n = frame.len();
        cx.send(SourceNext::Spread, frame);
        n
    }
}

/// Hands every packet to another thread, or none.
struct Spread {
    to: Arc<AtomicU64>,
}

impl VectorNode for Spread {
    type Next = SpreadNext;
    type Drop = SpreadDrop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        let (own, step) = (cx.thread(), self.to.load(Ordering::Relaxed) as usize);
        if step == 0 {
            return cx.decide_all(frame, SpreadNext::First);
        }
        let to = if own >= step { 1 } else { own + 1 };
        cx.spread(frame, SpreadNext::First, SpreadDrop::Congestion, |_| to);
    }
}

/// Reads the header, decides, writes a little: what forwarding nodes do.
#[derive(Clone)]
struct Check {
    sum: u64,
}

impl Node for Check {
    type Next = NoNext;
    type Drop = CheckDrop;

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        if packet.len() < 60 {
            return packet.drop(CheckDrop::Short);
        }
        let word = u64::from_be_bytes(packet.head()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = self.sum.wrapping_add(word);
        packet.set_head(word.to_be_bytes());
        Verdict::slot(1)
    }
}

/// Frees what comes.
struct Sink;

impl VectorNode for Sink {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.consume_all(frame, IfIndex(2));
    }
}

struct Bed {
    graph: Graph,
    to: Arc<AtomicU64>,
}

impl Bed {
    fn new() -> Self {
        let region = Region::new(&RegionConfig::default()).expect("packet memory");
        let stats = Stats::new(STATS_BYTES).expect("statistics memory");
        let mut graph = Graph::new(region, stats, Clock::new(), qsbr::Domain::new());
        let to = Arc::<AtomicU64>::default();
        let shared = to.clone();
        let check = |name: &str, next: &str| NodeSpec::node(name, Check { sum: 0 }).with_next(next);
        graph
            .add(vec![
                NodeSpec::vector("sink", |_| Sink),
                check("check-1", "check-2"),
                check("check-2", "check-3"),
                check("check-3", "check-4"),
                check("check-4", "sink"),
                NodeSpec::vector("spread", move |_| Spread { to: shared.clone() }),
                NodeSpec::input("source", |_| Source { on: false, packet: [0x45; 60] }),
            ])
            .expect("nodes");
        Self { graph, to }
    }

    /// Packets a second with so many workers.
    fn run(&mut self, workers: usize, cpus: &[u32], hand_off: bool, time: Duration) -> f64 {
        for cpu in cpus.iter().take(workers) {
            self.graph.add_worker(&ThreadPlan { cpu: Some(*cpu), ..Default::default() }).expect("worker");
        }
        self.graph.retire(0).expect("main leaves");
        self.to.store(if hand_off { workers as u64 } else { 0 }, Ordering::Relaxed);
        let source = self.graph.node("source").expect("source");
        let sink = self.graph.node("sink").expect("sink");
        for thread in 1..=workers {
            self.graph.input::<Source, _>(source, thread, |s| s.on = true);
        }
        std::thread::sleep(Duration::from_millis(50));
        let seen = |g: &Graph| (1..=workers).map(|t| g.figures(sink, t).vectors).sum::<u64>();
        let (before, start) = (seen(&self.graph), Instant::now());
        std::thread::sleep(time);
        let rate = (seen(&self.graph) - before) as f64 / start.elapsed().as_secs_f64();
        for thread in 1..=workers {
            self.graph.input::<Source, _>(source, thread, |s| s.on = false);
        }
        self.graph.add_main();
        for thread in (1..=workers).rev() {
            self.graph.retire(thread).expect("worker leaves");
        }
        rate
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(7_usize);
    let cpus = allowed_cpus().expect("CPUs");
    let most = cpus.len().min(8);
    let mut bed = Bed::new();
    let mut plain = vec![Vec::new(); most];
    let mut handed = vec![Vec::new(); most];
    // Interleaved, so that whatever else the machine does falls on all alike.
    for _ in 0..rounds {
        for workers in 1..=most {
            plain[workers - 1].push(bed.run(workers, &cpus, false, Duration::from_millis(300)));
            if workers > 1 {
                handed[workers - 1].push(bed.run(workers, &cpus, true, Duration::from_millis(300)));
            }
        }
    }
    let pairs: Vec<f64> = (0..rounds).filter_map(|r| Some(plain.get(1)?[r] / plain[0][r])).collect();
    let one = median(plain[0].clone());
    println!("{:<10}{:>14}{:>12}{:>22}", "workers", "Mpps", "x one", "all handed over, Mpps");
    for (at, (plain, handed)) in plain.into_iter().zip(handed).enumerate() {
        let rate = median(plain);
        let with = if handed.is_empty() { "-".to_owned() } else { format!("{:.2}", median(handed) / 1e6) };
        println!("{:<10}{:>14.2}{:>12.3}{:>22}", at + 1, rate / 1e6, rate / one, with);
    }
    if !pairs.is_empty() {
        println!("2 workers against 1 in the same round: median x {:.3}", median(pairs));
    }
}
