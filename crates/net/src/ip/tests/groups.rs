//! A group of packets is decided as the same packets one by one: same bytes out, same order, same counters.

use proptest::prelude::*;
use quiver_graph::Level;

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

fn router(width: u8, prefetch: u8, level: Level) -> (Harness, Vec<IfIndex>) {
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
    for node in NODES {
        h.router.graph.set_loop(node, Some(width), Some(prefetch), Some(level)).unwrap();
    }
    (h, x)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn groups_decide_as_single_packets_do(
        picks in proptest::collection::vec((0..12_u8, any::<proptest::sample::Index>(), 1..20_usize), 1..40),
    ) {
        let (plain, odd) = kinds();
        let mut frames = Vec::new();
        for (kind, pick, run) in picks {
            if kind == 0 {
                frames.push(pick.get(&odd).clone());
            } else if kind < 6 {
                // A run to one neighbour, and below neighbours in turn.
                frames.extend(std::iter::repeat_n(pick.get(&plain).clone(), run));
            } else {
                frames.extend(plain.iter().cycle().skip(pick.index(plain.len())).take(run).cloned());
            }
        }
        frames.truncate(300);
        let mut first = None;
        for (width, prefetch) in [(1, 0), (2, 3), (4, 8), (8, 8), (8, 0)] {
            for level in Level::ALL.into_iter().filter(|level| level.available()) {
                let (mut h, x) = router(width, prefetch, level);
                h.inject_many(x[0], &frames, 0);
                let out = h.run();
                let stats = h.router.graph.stats();
                let counters = [("/net/route/to", records::LOAD_BALANCES_MAX), ("/net/adjacency", records::ADJACENCIES_MAX)]
                    .map(|(name, capacity)| stats.combined(name, capacity));
                let routes: Vec<_> = counters.iter().flat_map(|c| (0..256).map(|i| c.sum(i)).collect::<Vec<_>>()).collect();
                let all = (out, h.counts(), routes);
                let (expected, at) = first.get_or_insert_with(|| (all.clone(), (width, level)));
                prop_assert_eq!(&all, expected, "x{} {:?} and x{} {:?}", width, level, at.0, at.1);
                h.assert_buffers_held(0);
            }
        }
    }
}
