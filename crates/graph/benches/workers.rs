//! How forwarding scales with workers: a packet generator in each worker, five nodes, no device.
//!
//! `cargo bench -p quiver-graph --bench workers [-- ROUNDS]` prints packets a second for 1, 2, … workers, each on its own CPU, and for
//! 16 workers that share these CPUs. Columns:
//!
//! * *by one worker*: the rate divided by that of one worker.
//! * *by apart*: the rate divided by that of as many graphs that share nothing. They show what the machine itself allows: its cores
//!   share a clock budget and a memory.
//! * *handed over*: every packet goes to the next worker. The clocks of a hand-off are those of both ends.
//!
//! Settings take turns, and a ratio compares rates of one round. Figures are medians (least - most). `-- hand-off` measures hand-offs
//! only, for profiles. Reserve 300 huge pages first: a router's packets lie in such pages.

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

    /// Starts workers on these CPUs; their generators make packets from now on.
    fn start(&mut self, cpus: &[u32], hand_off: bool) {
        for cpu in cpus {
            self.graph.add_worker(&ThreadPlan { cpu: Some(*cpu), ..Default::default() }).expect("worker");
        }
        self.graph.retire(0).expect("main leaves");
        self.to.store(if hand_off { cpus.len() as u64 } else { 0 }, Ordering::Relaxed);
        self.switch(cpus.len(), true);
    }

    fn switch(&mut self, workers: usize, on: bool) {
        let source = self.graph.node("source").expect("source");
        for thread in 1..=workers {
            self.graph.input::<Source, _>(source, thread, move |s| s.on = on);
        }
    }

    /// Packets that have left the graph since these workers started.
    fn seen(&self, workers: usize) -> u64 {
        let sink = self.graph.node("sink").expect("sink");
        (1..=workers).map(|thread| self.graph.figures(sink, thread).vectors).sum()
    }

    fn stop(&mut self, workers: usize) {
        self.switch(workers, false);
        self.graph.add_main();
        for thread in (1..=workers).rev() {
            self.graph.retire(thread).expect("worker leaves");
        }
    }
}

/// How workers are measured.
#[derive(Clone, Copy, PartialEq)]
enum Setting {
    /// Workers of one graph.
    Together,
    /// The same, and each packet goes to the next worker.
    HandedOver,
    /// Graphs of one worker each, with nothing in common: what the machine gives.
    Apart,
}

/// Packets a second of workers on these CPUs.
fn run(beds: &mut [Bed], setting: Setting, cpus: &[u32], time: Duration) -> f64 {
    let groups: Vec<&[u32]> = if setting == Setting::Apart { cpus.chunks(1).collect() } else { vec![cpus] };
    let beds = &mut beds[..groups.len()];
    for (bed, cpus) in beds.iter_mut().zip(&groups) {
        bed.start(cpus, setting == Setting::HandedOver);
    }
    std::thread::sleep(Duration::from_millis(50));
    let seen = |beds: &[Bed]| beds.iter().zip(&groups).map(|(bed, cpus)| bed.seen(cpus.len())).sum::<u64>();
    let (before, start) = (seen(beds), Instant::now());
    std::thread::sleep(time);
    let rate = (seen(beds) - before) as f64 / start.elapsed().as_secs_f64();
    for (bed, cpus) in beds.iter_mut().zip(&groups) {
        bed.stop(cpus.len());
    }
    rate
}

/// Figures of one column, a round each.
#[derive(Default)]
struct Column(Vec<f64>);

impl Column {
    /// Median, least and most.
    fn text(&mut self, digits: usize) -> String {
        self.0.sort_by(f64::total_cmp);
        match self.0[..] {
            [] => String::new(),
            [least, .., most] => format!("{:.digits$} ({least:.digits$} - {most:.digits$})", self.0[self.0.len() / 2]),
            [one] => format!("{one:.digits$}"),
        }
    }
}

/// The last row: more workers than processors.
const OVERSUBSCRIBED: usize = 16;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(7_usize);
    let cpus = allowed_cpus().expect("CPUs");
    let cpus = &cpus[..cpus.len().min(8)];
    let mut beds: Vec<Bed> = cpus.iter().map(|_| Bed::new()).collect();
    let hz = Clock::new().ticks_per_second() as f64;
    let mut rate = |setting, workers: usize| {
        let places: Vec<u32> = cpus.iter().copied().cycle().take(workers).collect();
        run(&mut beds, setting, &places, Duration::from_millis(300))
    };
    if words.iter().any(|word| word == "hand-off") {
        let mut rates = Column((0..rounds).map(|_| rate(Setting::HandedOver, cpus.len()) / 1e6).collect());
        println!("{} workers, all handed over, Mpps: {}", cpus.len(), rates.text(2));
        return;
    }
    let counts: Vec<usize> = (1..=cpus.len()).chain((cpus.len() < OVERSUBSCRIBED).then_some(OVERSUBSCRIBED)).collect();
    println!(
        "{:<8}{:>22}{:>22}{:>22}{:>22}{:>22}{:>22}",
        "workers", "Mpps", "by one worker", "by apart", "handed over, Mpps", "by not handed over", "clocks of a hand-off"
    );
    for workers in counts {
        let mut columns: [Column; 6] = Default::default();
        // In turns, so that whatever else the machine does falls on all alike.
        for _ in 0..rounds {
            let together = rate(Setting::Together, workers);
            columns[0].0.push(together / 1e6);
            if workers == 1 {
                continue;
            }
            columns[1].0.push(together / rate(Setting::Together, 1));
            if workers <= cpus.len() {
                columns[2].0.push(together / rate(Setting::Apart, workers));
            }
            let handed = rate(Setting::HandedOver, workers);
            columns[3].0.push(handed / 1e6);
            columns[4].0.push(handed / together);
            columns[5].0.push(workers.min(cpus.len()) as f64 * hz * (handed.recip() - together.recip()));
        }
        let texts = columns.iter_mut().zip([1, 3, 3, 1, 2, 0]).map(|(column, digits)| column.text(digits));
        println!("{workers:<8}{}", texts.map(|text| format!("{text:>22}")).collect::<String>());
    }
}
