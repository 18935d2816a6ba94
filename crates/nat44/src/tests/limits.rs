//! When something runs out or goes away: counted, recovered, nothing leaked.

use std::collections::HashSet;

use super::*;

#[test]
fn the_thesis_scenario_loses_nothing() {
    for workers in [0, 1, 2] {
        let mut bed = Bed::new(workers, "nat44 add address 198.51.100.0 - 198.51.100.255");
        let mut outside = HashSet::new();
        for chunk in 0..256_u32 {
            let frames: Vec<_> =
                (0..256).map(|k| from_host([10, 1, chunk as u8, k as u8]).udp(1025, 12).payload(&[0; 12]).build()).collect();
            bed.h.inject_many(bed.inside, &frames, chunk as usize);
            let mut got = bed.h.run();
            got.extend(bed.h.run());
            assert_eq!(got.len(), 256, "{:?}", bed.h.counts());
            outside.extend(got.iter().map(|(_, f)| Seen::of(f).from()));
        }
        assert_eq!((bed.sessions(), outside.len()), (65_536, 65_536), "no outside endpoint twice");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn a_full_table_drops_new_flows_and_keeps_old_ones() {
    let mut bed = Bed::new(1, "nat44 plugin enable sessions 10\nnat44 add address 198.51.100.10");
    for port in 0..20 {
        bed.h.inject(bed.inside, &from_inside(2).udp(1000 + port, 9).build());
    }
    assert_eq!((bed.h.run().len(), bed.sessions(), bed.count("maximum sessions exceeded")), (10, 10, 10));
    bed.out(from_inside(2).udp(1003, 9));
    bed.pass(301);
    assert_eq!(bed.sessions(), 0);
    bed.out(from_inside(2).udp(1015, 9));
    bed.h.assert_buffers_held(0);
}

#[test]
fn a_host_has_no_more_sessions_than_it_may() {
    let mut bed = Bed::new(0, "nat44 add address 198.51.100.10\nset nat44 session limit 3");
    for port in 0..5 {
        bed.h.exchange(bed.inside, &from_inside(2).udp(1000 + port, 9).build());
    }
    assert_eq!((bed.sessions(), bed.count("maximum user sessions exceeded")), (3, 2));
    bed.out(from_inside(3).udp(1, 9));
    run(&mut bed.h, "nat44 del session in 10.0.0.2:1000 udp external-host 203.0.113.9:9");
    bed.out(from_inside(2).udp(1004, 9));
}

#[test]
fn the_hosts_of_a_table_have_no_more_sessions_than_they_may() {
    let mut bed = Bed::new(0, "nat44 add address 198.51.100.10\nset nat44 session limit 2 vrf 0");
    for host in 2..6 {
        bed.h.exchange(bed.inside, &from_inside(host).udp(1000, 9).build());
    }
    assert_eq!((bed.sessions(), bed.count("maximum sessions exceeded")), (2, 2));
    run(&mut bed.h, "nat44 del session in 10.0.0.2:1000 udp external-host 203.0.113.9:9");
    bed.out(from_inside(5).udp(1000, 9));
    run(&mut bed.h, "set nat44 session limit 0 vrf 0");
    bed.out(from_inside(6).udp(1000, 9));
}

#[test]
fn packets_are_counted_by_direction_path_protocol_and_interface() {
    let mut bed = Bed::new(1, "nat44 add address 198.51.100.10");
    let count = |bed: &Bed, name: &str, interface: IfIndex| {
        bed.h.router.graph.stats().simple(&format!("/nat44-ed/{name}"), 0).sum(interface.0)
    };
    bed.out(from_inside(2).udp(1000, 9));
    bed.out(from_inside(2).udp(1000, 9));
    bed.out(from_inside(2).udp(1001, 9));
    let slow = [count(&bed, "in2out/slowpath/udp", bed.inside), count(&bed, "in2out/slowpath/tcp", bed.inside)];
    assert_eq!((slow, count(&bed, "in2out/fastpath/udp", bed.inside)), ([2, 0], 1));
    assert_eq!(count(&bed, "in2out/slowpath/udp", bed.outside), 0);
    let total = |bed: &Bed| bed.h.router.graph.stats().simple("/nat44-ed/total-sessions", 0).sum(0);
    assert_eq!(total(&bed), 2);
    assert!(bed.h.router.graph.stats().refused().is_empty(), "there is room for all of them");
    run(&mut bed.h, "nat44 plugin disable");
    assert_eq!(total(&bed), 0, "at once");
}

/// Of the packets of known sessions some were counted as slow: those whose hash another session had, too.
#[test]
fn packets_of_known_sessions_are_fast_among_many() {
    let mut bed = Bed::usual(0);
    let frames: Vec<_> = (0..4000).map(|n| from_inside(2).udp(20_000 + n, 9).build()).collect();
    for round in [[4000, 0], [4000, 4000], [4000, 8000]] {
        for some in frames.chunks(100) {
            bed.h.inject_many(bed.inside, some, 0);
            bed.h.run();
        }
        let counts = ["slow", "fast"]
            .map(|path| bed.h.router.graph.stats().simple(&format!("/nat44-ed/in2out/{path}path/udp"), 0).sum(bed.inside.0));
        assert_eq!(counts, round);
    }
}

#[test]
fn ports_run_out_for_one_remote_endpoint_alone_and_come_back() {
    let mut bed = Bed::usual(0);
    let mut sent = 0_u32;
    // Hosts times ports, all to one endpoint: more than one address has.
    for host in 0..70 {
        let frames: Vec<_> = (0..1000).map(|p| from_host([10, 2, 0, host]).udp(10_000 + p, 9).build()).collect();
        // Where ports run out, nobody looks for one until the next second: that must not be most of what is sent.
        for second in frames.chunks(500) {
            for vector in second.chunks(250) {
                bed.h.inject_many(bed.inside, vector, 0);
                sent += vector.len() as u32;
                bed.h.run();
            }
            bed.pass(1);
        }
    }
    let sessions = bed.sessions();
    let refused = bed.count("out of ports") as u32;
    assert_eq!(sent, sessions + refused, "{:?}", bed.h.counts());
    assert!(sessions <= 64_512 && sessions > 58_000, "{sessions}: nine tenths of the ports are found");
    let other = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [203, 0, 113, 10]).udp(1, 9);
    bed.out(other);
    run(&mut bed.h, "clear nat44 ed sessions");
    bed.settle();
    assert_eq!(bed.sessions(), 0);
    bed.pass(1);
    bed.out(from_inside(2).udp(1, 9));
    bed.h.assert_buffers_held(0);
}

#[test]
fn what_is_taken_away_takes_its_sessions_along() {
    for workers in [0, 2] {
        let mut bed = Bed::new(workers, "nat44 add address 198.51.100.10 - 198.51.100.11");
        for host in 2..12 {
            bed.out(from_inside(host).udp(1, 9));
        }
        assert_eq!(bed.sessions(), 10);
        run(&mut bed.h, "nat44 add address 198.51.100.10 del");
        bed.settle();
        let left = bed.sessions();
        assert!(left < 10);
        for host in 2..12 {
            assert_eq!(bed.out(from_inside(host).udp(1, 9)).src, Ipv4Addr::new(198, 51, 100, 11));
        }
        run(&mut bed.h, "nat44 add address 198.51.100.11 del");
        bed.settle();
        assert_eq!(bed.sessions(), 0);
        bed.nothing(bed.inside, from_inside(2).udp(1, 9));
        bed.h.router.delete_interface(bed.outside).unwrap();
        bed.settle();
        bed.h.exchange(bed.inside, &from_inside(2).udp(1, 9).build());
        run(&mut bed.h, "nat44 plugin disable\nnat44 plugin enable");
        assert_eq!(run(&mut bed.h, "show nat44 interfaces"), "NAT44 interfaces:\n");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn idle_threads_forget_their_sessions_too() {
    let mut bed = Bed::usual(2);
    for host in 2..12 {
        bed.out(from_inside(host).udp(1, 9));
    }
    bed.pass(299);
    bed.h.run();
    assert_eq!(bed.sessions(), 10);
    bed.pass(3);
    bed.h.run();
    assert_eq!(bed.sessions(), 0);
    assert!(run(&mut bed.h, "show nat44 summary").contains("total timed out or deleted sessions: 10\n"));
}

#[test]
fn what_an_output_feature_translates_is_counted_by_the_interface_that_it_leaves_by() {
    for workers in [0, 2] {
        let mut bed = Bed::new(workers, "nat44 add address 198.51.100.10");
        run(&mut bed.h, "set interface nat44 in x0 out x1 del\nset interface nat44 out x1 output-feature");
        let count = |bed: &Bed, name: &str, interface: IfIndex| {
            bed.h.router.graph.stats().simple(&format!("/nat44-ed/in2out/{name}/udp"), 0).sum(interface.0)
        };
        // Of the first two, which come in one vector, neither found a session that was there before.
        let frame = from_inside(2).udp(1000, 9).build();
        bed.h.inject_many(bed.inside, &[frame.clone(), frame], 0);
        assert_eq!(bed.h.run().len() + bed.h.run().len(), 2);
        bed.out(from_inside(2).udp(1000, 9));
        for (interface, counts) in [(bed.outside, [2, 1]), (bed.inside, [0, 0])] {
            assert_eq!(["slowpath", "fastpath"].map(|name| count(&bed, name, interface)), counts, "{workers} workers");
        }
    }
}
