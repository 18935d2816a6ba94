//! A batch of packets is decided as the same packets one by one: same bytes out, same order, same counters. So are packets in a
//! fused chain of nodes, but for the order of packets that go to different nodes.

use proptest::prelude::*;
use quiver_graph::{FeatureSpec, Level, NoDrops, Node, NodeCx, Pkt, Verdict, flags, next_nodes};

use super::*;
use crate::fib::records;
use crate::ip::FamilyId;

const NODES: [&str; 7] = ["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite", "ip6-input", "ip6-lookup", "ip6-rewrite"];

/// Packets of a host behind x0: plain ones to several neighbours, then all that is out of the ordinary.
fn kinds() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let framed = |packet: &Packet| packet.frame(host_mac(0), router_mac(0));
    let mut plain = Vec::new();
    for n in 1..4 {
        for len in [0, 18, 700] {
            plain.push(framed(&Packet { len, ..Packet::new("10.0.0.2", &format!("10.0.{n}.2")) }));
            plain.push(framed(&Packet { len, ttl: 2, ..Packet::new("2001:db8::2", &format!("2001:db8:{n}::2")) }));
            plain.push(framed(&Packet { len, ..Packet::new("10.0.0.2", &format!("198.51.{n}.7")) }));
        }
    }
    let mut odd: Vec<Vec<u8>> = drops::bad_packets().into_iter().map(|(_, _, frame)| frame).collect();
    for (src, dst) in [("10.0.0.2", "10.0.2.2"), ("2001:db8::2", "2001:db8:2::2")] {
        let packet = Packet::new(src, dst);
        odd.extend([0, 1].map(|ttl| framed(&Packet { ttl, ..packet.clone() })));
        odd.push(framed(&Packet { len: 1600, ..packet.clone() }));
        odd.push(framed(&Packet { len: 1600, dont_fragment: true, ..packet.clone() }));
        odd.push(packet.frame(host_mac(0), router_mac(9)));
    }
    // To the router itself, over several ways, through another table.
    odd.push(framed(&Packet::new("10.0.0.2", "10.0.1.1")));
    odd.extend((1..9).map(|host| framed(&Packet::new("10.0.0.2", &format!("203.0.113.{host}")))));
    (plain, odd)
}

fn bed_with_routes() -> (Harness, Vec<IfIndex>) {
    let (mut h, x) = bed(0, 4);
    for n in 1..4 {
        let hop = |n: u8| Path::neighbor(x[usize::from(n)], IpAddr::from([10, 0, n, 2]));
        h.router.add_route(0, prefix(&format!("198.51.{n}.0/24")), Source::Cli, vec![hop(n)]).unwrap();
        h.router.add_route(0, prefix("203.0.113.0/24"), Source::Cli, vec![hop(n)]).unwrap();
    }
    for family in [FamilyId::V4, FamilyId::V6] {
        let limit = crate::icmp::RateLimit { per_worker: 0, total: 0, burst: 0 };
        h.router.set_icmp_rate_limit(family, limit);
    }
    (h, x)
}

fn router(width: u8, prefetch: u8, level: Level) -> (Harness, Vec<IfIndex>) {
    let (mut h, x) = bed_with_routes();
    h.router.graph.set_fusion(false);
    for node in NODES {
        h.router.graph.set_loop(node, Some(width), Some(prefetch), Some(level)).unwrap();
    }
    (h, x)
}

next_nodes! { enum PassedNext { Lookup = "ip4-lookup" } }

const FEATURE: &str = "test-feature";

/// A feature that lets everything pass.
#[derive(Clone)]
struct Pass(ArcPoint);

impl Node for Pass {
    type Next = PassedNext;
    type Drop = NoDrops;
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        self.0.next(packet.rx_if(), PassedNext::Lookup.into())
    }
}

fn add_feature(graph: &mut Graph) {
    let point = ArcPoint::new();
    graph.add(vec![NodeSpec::node(FEATURE, Pass(point.clone())).on_arc("ip4-unicast", point)]).unwrap();
    let spec = FeatureSpec { arc: "ip4-unicast", node: FEATURE.into(), before: Vec::new(), after: Vec::new() };
    graph.add_features(vec![spec]).unwrap();
}

/// What is picked of packets, by kind, which, and how many of them.
type Picks = Vec<(u8, proptest::sample::Index, usize)>;

fn picks() -> impl Strategy<Value = Picks> {
    proptest::collection::vec((0..12_u8, any::<proptest::sample::Index>(), 1..20_usize), 1..40)
}

fn picked(picks: &Picks) -> Vec<Vec<u8>> {
    let (plain, odd) = kinds();
    let mut frames = Vec::new();
    for (kind, pick, run) in picks {
        if *kind == 0 {
            frames.push(pick.get(&odd).clone());
        } else if *kind < 6 {
            // A run to one neighbour, and below neighbours in turn.
            frames.extend(std::iter::repeat_n(pick.get(&plain).clone(), *run));
        } else {
            frames.extend(plain.iter().cycle().skip(pick.index(plain.len())).take(*run).cloned());
        }
    }
    frames.truncate(300);
    frames
}

/// On which interfaces packets come in: so many in a row on each, in this order and over again.
fn spread() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop_oneof![Just(vec![(0, 300)]), proptest::collection::vec((0..4_usize, 1..12_usize), 1..6)]
}

/// What goes with packets, over and over again: mostly nothing.
fn marks() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![2 => Just(vec![0]), 1 => proptest::collection::vec(prop_oneof![6 => Just(0_u8), 4 => 1..5_u8], 1..40)]
}

/// Metadata, a partial checksum, a link-layer multicast, made by this router.
fn mark(kind: u8, packet: &mut Pkt<'_>) {
    match kind {
        1 => packet.set_flow_hash(7),
        2 => packet.set_unfinished_checksum(14 + 20, 6),
        3 => packet.mark(flags::LINK_MULTICAST),
        4 => packet.mark(flags::LOCAL),
        _ => {}
    }
}

/// Puts packets in, as one vector. What is addressed to x0 is addressed to the interface where it comes in.
fn inject(h: &mut Harness, x: &[IfIndex], frames: &[Vec<u8>], spread: &[(usize, usize)], marks: &[u8]) {
    let mut frames = frames.iter().cloned().peekable();
    for (at, run) in spread.iter().cycle() {
        if frames.peek().is_none() {
            return;
        }
        let mut run: Vec<Vec<u8>> = frames.by_ref().take(*run).collect();
        for frame in run.iter_mut().filter(|frame| frame.starts_with(&router_mac(0).0)) {
            frame[..6].copy_from_slice(&router_mac(*at as u8).0);
        }
        let marks = marks.to_vec();
        h.inject_marked(x[*at], &run, 0, move |at, packet| mark(marks[at % marks.len()], packet));
    }
}

/// Packets and bytes of routes, then of adjacencies.
fn routes(h: &Harness) -> Vec<(u64, u64)> {
    let stats = h.router.graph.stats();
    let counters = [("/net/route/to", records::LOAD_BALANCES_MAX), ("/net/adjacency", records::ADJACENCIES_MAX)]
        .map(|(name, capacity)| stats.combined(name, capacity));
    counters.iter().flat_map(|c| (0..256).map(|i| c.sum(i)).collect::<Vec<_>>()).collect()
}

/// Packets and clocks of nodes.
fn figures(h: &Harness) -> Vec<(u64, u64)> {
    let of = |name| h.router.graph.figures(h.router.graph.node(name).unwrap(), 0);
    NODES.into_iter().map(of).map(|f| (f.vectors, f.clocks)).collect()
}

/// Numbers packets in their last two bytes, where there is room for that behind the headers.
fn number(frames: &mut [Vec<u8>]) {
    for (n, frame) in frames.iter_mut().enumerate() {
        let len = frame.len();
        if len >= 14 + 40 + 8 + 18 {
            frame[len - 2..].copy_from_slice(&(n as u16).to_be_bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn batches_decide_as_single_packets_do(picks in picks(), spread in spread(), marks in marks()) {
        let frames = picked(&picks);
        let mut first = None;
        for (width, prefetch) in [(1, 0), (2, 3), (4, 8), (8, 8), (8, 0)] {
            for level in Level::ALL.into_iter().filter(|level| level.available()) {
                let (mut h, x) = router(width, prefetch, level);
                inject(&mut h, &x, &frames, &spread, &marks);
                let all = (h.run(), h.counts(), routes(&h));
                let (expected, at) = first.get_or_insert_with(|| (all.clone(), (width, level)));
                prop_assert_eq!(&all, expected, "x{} {:?} and x{} {:?}", width, level, at.0, at.1);
                h.assert_buffers_held(0);
            }
        }
    }

    #[test]
    fn a_chain_decides_as_its_nodes_do(
        picks in picks(), feature in any::<bool>(), of in 0..4_u8, vector in 1..80_usize, spread in spread(), marks in marks(),
    ) {
        let mut frames = picked(&picks);
        // Of one family now and then, so that chains are chosen and left.
        frames.retain(|frame| of > 1 || (frame[12] == 8) == (of == 0));
        number(&mut frames);
        let outcomes = [false, true].map(|fused| {
            let (mut h, x) = bed_with_routes();
            h.router.graph.set_fusion(fused);
            add_feature(&mut h.router.graph);
            h.router.graph.set_feature("ip4-unicast", FEATURE, x[0], feature).unwrap();
            let mut out = Vec::new();
            for frames in frames.chunks(vector) {
                inject(&mut h, &x, frames, &spread, &marks);
                out.extend(h.run());
            }
            // Packets of a flow keep their order: they differ in their numbers alone.
            out.sort_by_key(|(interface, frame)| (interface.0, frame[..frame.len() - 2].to_vec()));
            h.assert_buffers_held(0);
            let packets: Vec<u64> = figures(&h).into_iter().map(|(packets, _)| packets).collect();
            (out, h.counts(), routes(&h), packets)
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
    }
}

#[test]
fn a_chain_is_used_only_where_nothing_asks_for_its_nodes() {
    let run = |change: &dyn Fn(&mut Harness)| {
        let (mut h, x) = bed_with_routes();
        change(&mut h);
        let frame = Packet::new("10.0.0.2", "10.0.2.2").frame(host_mac(0), router_mac(0));
        h.inject_many(x[0], &vec![frame; 20], 0);
        assert_eq!(h.run().len(), 20);
        let [ethernet, input, lookup] = [0, 1, 2].map(|node| figures(&h)[node]);
        assert_eq!((ethernet.0, input.0, lookup.0), (20, 20, 20));
        // Clocks of a chain count for its first node.
        assert!(ethernet.1 > 0);
        input.1 == 0 && lookup.1 == 0
    };
    assert!(run(&|_| ()), "by itself");
    assert!(!run(&|h| h.router.graph.set_fusion(false)), "switched off");
    assert!(!run(&|h| h.router.graph.set_loop("ip4-rewrite", Some(4), None, None).unwrap()), "a loop set by hand");
    assert!(
        run(&|h| {
            h.router.graph.set_loop("ip4-rewrite", Some(4), None, None).unwrap();
            h.router.graph.set_loop("ip4-rewrite", Some(8), None, None).unwrap();
        }),
        "and set back"
    );
}
