//! Random traffic, timeouts, exhaustion and reconfiguration: the tables stay consistent.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::session::{Session, flag};

#[derive(Clone, Debug)]
enum Step {
    Out { thread: usize, host: u8, port: u16, remote: u8, tcp: bool },
    Back { thread: usize, known: usize },
    Stray { port: u16 },
    Pass { seconds: u64 },
    Pool { address: u8, add: bool },
    Delete { known: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..4_usize, 2..8_u8, 1..6_u16, 1..4_u8, any::<bool>())
            .prop_map(|(thread, host, port, remote, tcp)| Step::Out { thread, host, port, remote, tcp }),
        6 => (0..4_usize, any::<usize>()).prop_map(|(thread, known)| Step::Back { thread, known }),
        1 => (1024..65_535_u16).prop_map(|port| Step::Stray { port }),
        1 => (0..400_u64).prop_map(|seconds| Step::Pass { seconds }),
        1 => (10..13_u8, any::<bool>()).prop_map(|(address, add)| Step::Pool { address, add }),
        1 => any::<usize>().prop_map(|known| Step::Delete { known }),
    ]
}

/// All sessions of all threads; asserts what must always be so.
fn check(bed: &mut Bed) -> Vec<Session> {
    let mut all = Vec::new();
    let (mut outside, mut inside) = (HashMap::new(), HashMap::new());
    let (mut bound, mut owned) = (HashMap::new(), HashMap::new());
    for (position, thread) in crate::control::threads(&bed.h.router).into_iter().enumerate() {
        let (list, _) = crate::control::dump(&mut bed.h.router, thread, 0, 100_000);
        for (id, session) in list {
            // No outside endpoint is given twice for one remote endpoint, over all threads; nor an inside one.
            assert_eq!(outside.insert(session.o2i, session), None, "{session:?}");
            assert_eq!(inside.insert(session.i2o, session), None, "{session:?}");
            let config = bed.h.router.part::<crate::control::Nat>().unwrap().config.clone();
            assert_eq!(config.owner_of_host(session.inside().addr), position);
            assert_eq!(config.owner_of_port(session.outside().port), position);
            assert!(session.outside().port >= 1024);
            if session.flags & flag::INDEPENDENT != 0 {
                let (inside, outside) = ((session.inside(), session.i2o.proto()), (session.outside(), session.i2o.proto()));
                assert_eq!(*bound.entry(inside).or_insert(outside), outside, "one outside endpoint whatever the remote one");
                assert_eq!(*owned.entry(outside).or_insert(inside), inside, "of one inside endpoint");
            }
            let found = crate::control::on_thread(&mut bed.h.router, thread, move |nat| {
                (nat.sessions.find(session.i2o), nat.sessions.find(session.o2i))
            });
            assert_eq!(found, Some((Some(id), Some(id))), "both keys lead to it");
            all.push(session);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_tables_stay_consistent(workers in proptest::sample::select(vec![0_usize, 1, 2, 4]), independent: bool, steps in proptest::collection::vec(step(), 1..60)) {
        let kind = if independent { " endpoint-independent" } else { "" };
        let mut bed = Bed::new(workers, &format!("nat44 plugin enable sessions 40\nnat44 add address 198.51.100.10{kind}"));
        let mut pool = vec![10_u8];
        for step in steps {
            let known = check(&mut bed);
            let pick = |n: usize| known.get(n % known.len().max(1)).copied();
            match step {
                Step::Out { thread, host, port, remote, tcp } => {
                    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, host], [203, 0, 113, remote]);
                    let packet = if tcp { packet.tcp(port, 80, quiver_wire::tcp::TcpFlags::SYN) } else { packet.udp(port, 80) };
                    let got = bed.send_on(thread, bed.inside, packet.build());
                    prop_assert!(got.len() <= 1);
                    if let Some((on, frame)) = got.first() {
                        let seen = Seen::of(frame);
                        prop_assert_eq!(*on, bed.outside);
                        prop_assert!(pool.iter().any(|a| Ipv4Addr::new(198, 51, 100, *a) == seen.src));
                        let before = known.iter().find(|s| s.inside().addr == u32::from(Ipv4Addr::new(10, 0, 0, host))
                            && s.inside().port == port && s.remote().addr == seen.dst.to_bits() && (s.i2o.proto() == 6) == tcp);
                        if let Some(before) = before {
                            prop_assert_eq!((before.outside().addr, before.outside().port), (seen.src.to_bits(), seen.sport));
                        }
                    } else {
                        let refused = ["maximum sessions exceeded", "out of ports"];
                        prop_assert!(refused.iter().any(|r| bed.count(r) > 0), "{:?}", bed.h.counts());
                    }
                }
                Step::Back { thread, known: n } => {
                    let Some(session) = pick(n) else { continue };
                    let (from, to) = (session.remote(), session.outside());
                    let packet = Packet::ethernet(host_mac(1), router_mac(1)).ipv4(Ipv4Addr::from_bits(from.addr), Ipv4Addr::from_bits(to.addr));
                    let packet = if session.i2o.proto() == 6 {
                        packet.tcp(from.port, to.port, quiver_wire::tcp::TcpFlags::ACK)
                    } else {
                        packet.udp(from.port, to.port)
                    };
                    let got = bed.send_on(thread, bed.outside, packet.build());
                    prop_assert_eq!(got.len(), 1, "{:?}", bed.h.counts());
                    let seen = Seen::of(&got[0].1);
                    prop_assert_eq!((seen.dst.to_bits(), seen.dport), (session.inside().addr, session.inside().port));
                }
                Step::Stray { port } => {
                    let packet = Packet::ethernet(host_mac(1), router_mac(1)).ipv4([203, 0, 113, 99], [198, 51, 100, 10]).udp(7, port);
                    let got = bed.send_on(0, bed.outside, packet.build());
                    // Where mapping is independent, someone may have been given this very port.
                    let theirs = |s: &Session| s.outside().port == port && s.flags & flag::INDEPENDENT != 0;
                    prop_assert_eq!(got.len(), usize::from(known.iter().any(theirs)));
                }
                Step::Pass { seconds } => {
                    bed.pass(seconds);
                    bed.h.run();
                }
                Step::Pool { address, add } => {
                    let line = format!("nat44 add address 198.51.100.{address}{}", if add { kind } else { " del" });
                    if bed.h.execute(&line).is_ok() {
                        if add { pool.push(address) } else { pool.retain(|a| *a != address) }
                    }
                    bed.settle();
                    let gone = |s: &Session| !pool.contains(&(s.outside().addr as u8));
                    prop_assert!(!check(&mut bed).iter().any(gone));
                }
                Step::Delete { known: n } => {
                    let Some(session) = pick(n) else { continue };
                    let proto = if session.i2o.proto() == 6 { "tcp" } else { "udp" };
                    run(&mut bed.h, &format!("nat44 del session in {} {proto} external-host {}", session.inside(), session.remote()));
                }
            }
        }
        check(&mut bed);
        bed.h.assert_buffers_held(0);
    }
}
