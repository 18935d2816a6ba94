//! An iteration ends, whatever nodes do: made-up nodes that send packets round and round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quiver_buffer::{PageSize, Region, RegionConfig};
use quiver_graph::clock::Clock;
use quiver_graph::stats::Stats;
use quiver_graph::{
    Frame, Graph, IfIndex, InputNode, NoDrops, NoNext, NodeCx, NodeId, NodeSpec, STATS_BYTES, ThreadPlan, VectorNode, next_nodes,
};
use quiver_tables::qsbr;

next_nodes! { enum RoundNext { Back = "back", Out = "out" } }
next_nodes! { enum BackNext { Round = "round" } }

/// Sends a packet out when its aux lane, a TTL, has come to 0; else round, with copies.
struct Round {
    copies: usize,
}

/// In place of a TTL: none is taken.
const FOR_EVER: u32 = u32::MAX;

impl VectorNode for Round {
    type Next = RoundNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let ttl = packet.aux();
            if ttl == 0 {
                cx.decide(i, RoundNext::Out);
                continue;
            }
            let left = if ttl == FOR_EVER { ttl } else { ttl - 1 };
            packet.set_aux(left);
            cx.decide(i, RoundNext::Back);
            for _ in 0..self.copies {
                let Some(mut copy) = cx.alloc_bytes(b"copy", IfIndex(1)) else { break };
                cx.view(&mut copy).set_aux(left);
                cx.emit(RoundNext::Back, copy);
            }
        }
    }
}

struct Back;

impl VectorNode for Back {
    type Next = BackNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.decide_all(frame, BackNext::Round);
    }
}

/// Where packets leave: they are only counted.
struct Out(Arc<AtomicU64>);

impl VectorNode for Out {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        for i in 0..frame.len() {
            let (packet, _) = cx.packet(frame, i).take();
            cx.free(packet);
        }
        self.0.fetch_add(frame.len() as u64, Relaxed);
    }
}

next_nodes! { enum SourceNext { Round = "round" } }

/// Brings in one packet that goes round for ever.
struct Source(bool);

impl InputNode for Source {
    type Next = SourceNext;
    type Drop = NoDrops;

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        if std::mem::replace(&mut self.0, true) {
            return 0;
        }
        let mut frame = cx.new_frame();
        assert!(cx.push_bytes(&mut frame, b"round and round", IfIndex(1)));
        cx.packet(&mut frame, 0).set_aux(FOR_EVER);
        cx.send(SourceNext::Round, frame);
        1
    }
}

struct Bed {
    graph: Graph,
    round: NodeId,
    out: Arc<AtomicU64>,
}

impl Bed {
    fn new(workers: usize, copies: usize) -> Self {
        let region = Region::new(&RegionConfig { buffers_per_numa: 4096, page_size: PageSize::Kb4, ..Default::default() }).unwrap();
        let mut graph = Graph::new(region, Stats::new(STATS_BYTES).unwrap(), Clock::new(), qsbr::Domain::new());
        graph.start_workers(&vec![ThreadPlan::default(); workers]).unwrap();
        let out = Arc::new(AtomicU64::new(0));
        let seen = out.clone();
        let specs = vec![
            NodeSpec::vector("round", move |_| Round { copies }),
            NodeSpec::vector("back", |_| Back),
            NodeSpec::vector("out", move |_| Out(seen.clone())),
        ];
        let round = graph.add(specs).unwrap()[0];
        Self { graph, round, out }
    }

    /// Puts in packets of these TTLs on one thread, as one burst, and runs them to their end.
    fn send(&mut self, ttls: &[u32]) {
        let (round, ttls) = (self.round, ttls.to_vec());
        let thread = self.graph.fleet().threads()[0];
        self.graph.fleet().on(thread, move |w| {
            w.at_node(round, |cx| {
                for ttl in &ttls {
                    let mut packet = cx.alloc_bytes(b"round and round", IfIndex(1)).unwrap();
                    cx.view(&mut packet).set_aux(*ttl);
                    cx.emit(RoundNext::Back, packet);
                }
            })
        });
        self.graph.fleet().each(|w| w.step());
    }

    fn looped(&self) -> u64 {
        self.graph
            .error_counts()
            .iter()
            .filter(|(_, e, _)| (e.node.as_str(), e.text) == ("packet-loop", "packet loop"))
            .map(|e| e.2)
            .sum()
    }

    fn other_drops(&self) -> u64 {
        self.graph.error_counts().iter().filter(|(_, e, _)| e.node != "packet-loop").map(|e| e.2).sum()
    }

    fn assert_pool_is_whole(&mut self) {
        self.graph.fleet().each(|_| ());
        for pool in self.graph.pools() {
            assert_eq!(pool.usage().used(), 0, "{:?}", pool.usage());
        }
    }
}

#[test]
fn a_packet_that_goes_round_for_ever_is_dropped_for_its_own_reason() {
    for workers in [0, 1, 2] {
        for packets in [1, 4, 256, 1000] {
            let mut bed = Bed::new(workers, 0);
            bed.send(&vec![FOR_EVER; packets]);
            assert_eq!((bed.looped(), bed.other_drops()), (packets as u64, 0));
            bed.assert_pool_is_whole();
            bed.send(&[3, 4]);
            assert_eq!((bed.looped(), bed.out.load(Relaxed)), (packets as u64, 2), "the next iteration is as any");
            bed.assert_pool_is_whole();
        }
    }
}

#[test]
fn only_what_loops_is_dropped() {
    let mut bed = Bed::new(1, 0);
    let ttls: Vec<u32> = (0..300).map(|n| if n % 3 == 0 { FOR_EVER } else { n }).collect();
    bed.send(&ttls);
    assert_eq!((bed.looped(), bed.out.load(Relaxed), bed.other_drops()), (100, 200, 0));
    bed.assert_pool_is_whole();
}

#[test]
fn a_loop_that_a_ttl_ends_is_legal_at_any_length_that_a_router_has() {
    // 255 times at 30 nodes; here a time is two nodes.
    let ttl = 255 * 30 / 2;
    for packets in [1, 256] {
        let mut bed = Bed::new(0, 0);
        bed.send(&vec![ttl; packets]);
        assert_eq!((bed.looped(), bed.out.load(Relaxed)), (0, packets as u64));
        bed.assert_pool_is_whole();
    }
}

#[test]
fn a_loop_that_makes_more_packets_of_each_is_bounded_and_gives_all_buffers_back() {
    for copies in [1, 2, 7] {
        let mut bed = Bed::new(1, copies);
        bed.send(&[FOR_EVER]);
        let dropped = bed.looped();
        assert!(dropped > 1000, "it had filled the pool: {dropped}");
        assert_eq!(bed.other_drops(), 0);
        bed.assert_pool_is_whole();
        bed.send(&[0, 0]);
        assert_eq!(bed.out.load(Relaxed), 2);
        bed.assert_pool_is_whole();
    }
}

#[test]
fn what_waits_to_leave_leaves() {
    // In each time, half of the copies' parents go out: some wait at `out` when the bound comes.
    let mut bed = Bed::new(0, 1);
    bed.send(&[9]);
    assert_eq!((bed.out.load(Relaxed), bed.looped()), (512, 0), "copies that end are all there");
    bed.assert_pool_is_whole();
}

#[test]
fn the_end_of_a_loop_is_in_the_trace() {
    let mut bed = Bed::new(0, 0);
    let source = bed.graph.add(vec![NodeSpec::input("source", |_| Source(true))]).unwrap()[0];
    bed.graph.fleet().each(move |w| {
        w.trace_add(source, 1, None);
        w.input::<Source>(source).unwrap().0 = false;
        w.step()
    });
    assert_eq!(bed.looped(), 1);
    let record = bed.graph.traces().remove(0).1.remove(0);
    let names: Vec<_> = record.entries.iter().map(|entry| bed.graph.node_name(NodeId(entry.node))).collect();
    assert_eq!(names[..4], ["source", "round", "back", "round"]);
    assert_eq!(names[names.len() - 2..], ["packet-loop", "error-drop"], "{} stations", names.len());
    let mut text = String::new();
    bed.graph.format_trace(record.entries.last().unwrap(), &mut text);
    assert!(text.ends_with("packet-loop: packet loop"), "{text}");
    bed.assert_pool_is_whole();
}
