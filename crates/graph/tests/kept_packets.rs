//! Devices that work on packet memory itself: what they are handed, keep and give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_buffer::{PageSize, Pool, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    ArcPoint, DeviceInput, DeviceTx, Graph, IfIndex, NodeSpec, PlacedQueue, RxBurst, RxQueue, RxState, STATS_BYTES, Segment,
    TxBatch, TxDrop, TxQueue, TxState, Verdict,
};
use quiver_tables::qsbr;

/// Brings in `left` packets in buffers that it has taken before; every third lies in two of them.
struct Source {
    left: usize,
    fresh: Vec<u32>,
}

impl RxQueue for Source {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        while self.left > 0 && burst.room() > 0 {
            let count = if self.left.is_multiple_of(3) { 2 } else { 1 };
            let wanted = count - self.fresh.len().min(count);
            assert_eq!(burst.take_buffers(wanted, &mut self.fresh), wanted);
            let segments: Vec<Segment> =
                self.fresh.drain(..count).map(|buffer| Segment { buffer, offset: 300, len: 100 + self.left as u32 % 7 }).collect();
            // SAFETY: the buffers were just taken, each once.
            unsafe {
                let too_far = Segment { offset: 2300, ..segments[0] };
                assert!(!burst.adopt(&[too_far]) && !burst.adopt(&[]), "not within its buffer");
                assert!(burst.adopt(&segments));
            }
            self.left -= 1;
        }
        RxState::Up
    }
}

/// What a device does with the packets handed to it, in turn.
#[derive(Clone, Copy, PartialEq)]
enum Treats {
    Keeps,
    Copies,
    Refuses,
    /// Keeps it, and changes its mind at the end of the vector, as do all after it.
    TakesBack,
}

#[derive(Default)]
struct Counts {
    kept: AtomicU64,
    copied: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
}

struct Device {
    pattern: Vec<Treats>,
    /// Takes so many of a vector.
    most: usize,
    at: usize,
    held: Vec<u32>,
    counts: Arc<Counts>,
    pools: Vec<Arc<Pool>>,
}

impl TxQueue for Device {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let sent = std::mem::take(&mut self.held);
        // SAFETY: kept in an earlier call, and forgotten now.
        unsafe { batch.give_back(&sent) };
        let mut n = batch.len().min(self.most);
        let mut back: Vec<(usize, Segment)> = Vec::new();
        for i in 0..n {
            if !back.is_empty() || self.pattern[self.at % self.pattern.len()] == Treats::TakesBack {
                let mut segments = Vec::new();
                batch.keep(i, &mut segments);
                back.push((i, segments[0]));
                self.at += 1;
                continue;
            }
            let count = match self.pattern[self.at % self.pattern.len()] {
                Treats::Keeps => {
                    let mut segments = Vec::new();
                    batch.keep(i, &mut segments);
                    assert!(segments.iter().all(|s| s.offset == 300 && s.len >= 100));
                    self.held.extend(segments.iter().map(|s| s.buffer));
                    &self.counts.kept
                }
                Treats::Copies => &self.counts.copied,
                Treats::Refuses => {
                    batch.refuse(i, TxDrop::TooLarge);
                    &self.counts.refused
                }
                Treats::TakesBack => unreachable!("handled above"),
            };
            count.fetch_add(1, Ordering::Relaxed);
            self.at += 1;
        }
        for (i, first) in back {
            n = n.min(i);
            // SAFETY: kept just above, and left as it was.
            unsafe { batch.take_back(i, first.buffer) };
        }
        self.counts.left.fetch_add((batch.len() - n) as u64, Ordering::Relaxed);
        n
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.pools[0].give(&self.held);
    }
}

fn run(pattern: &[Treats], most: usize, vector: usize) {
    const PACKETS: usize = 1000;
    let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
    let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
    graph.start_workers(&[]).unwrap();
    graph.set_vector_size(vector).unwrap();
    graph.interfaces().set_len(2);
    let counts = Arc::new(Counts::default());
    let state = Arc::new(TxState::default());
    state.set_up(true);
    let (pools, shared, pattern) = (graph.pools().to_vec(), counts.clone(), pattern.to_vec());
    let make = move |_: &_| {
        let (pattern, counts, pools) = (pattern.clone(), shared.clone(), pools.clone());
        let device = Device { pattern, most, at: 0, held: Vec::new(), counts, pools };
        DeviceTx::new(IfIndex(1), state.clone(), Some(Box::new(device)))
    };
    graph.add(vec![NodeSpec::vector("ethernet-input", make)]).unwrap();
    let point = ArcPoint::new();
    let input = graph.add(vec![NodeSpec::input("source-input", move |_| DeviceInput::new(point.clone()))]).unwrap()[0];
    let rx = Box::new(Source { left: PACKETS, fresh: Vec::new() });
    let queue = PlacedQueue { interface: IfIndex(1), queue: 0, next: Verdict::slot(1), up: true, rx };
    graph.input::<DeviceInput, _>(input, 0, move |node| node.place(queue));
    for _ in 0..PACKETS {
        graph.fleet().step_here();
    }
    let at = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let sent = at(&counts.kept) + at(&counts.copied);
    assert_eq!(sent + at(&counts.refused) + at(&counts.left), PACKETS as u64);
    let (packets, bytes) = graph.interfaces().tx.sum(1);
    assert_eq!(packets, sent);
    assert!(bytes >= 100 * sent);
    let drops: u64 = graph.error_counts().iter().map(|(_, _, n)| n).sum();
    assert_eq!(drops, at(&counts.refused) + at(&counts.left));
    let node = graph.node("ethernet-input").unwrap();
    graph.remove(node).unwrap();
    graph.fleet().step_here();
    graph.fleet().each(|_| ());
    assert_eq!(graph.pools()[0].usage().used(), 0, "{:?}", graph.pools()[0].usage());
}

#[test]
fn kept_copied_refused_and_left_packets_are_each_accounted_for_once() {
    use Treats::{Copies, Keeps, Refuses, TakesBack};
    for vector in [4, 5, 255, 256, 257] {
        for most in [0, 1, 3, 128, 1000] {
            for pattern in [
                vec![Keeps],
                vec![Keeps, Copies],
                vec![Refuses, Keeps, Copies, Keeps],
                vec![Copies],
                vec![Refuses],
                vec![TakesBack],
                vec![Keeps, Copies, Refuses, Keeps, TakesBack],
            ] {
                run(&pattern, most, vector);
            }
        }
    }
}
