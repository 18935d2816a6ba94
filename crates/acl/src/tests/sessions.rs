//! Flows that a rule has let through.

use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::tcp::TcpFlags;

use super::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Hosts behind `x0` may begin flows, and all others nothing.
fn stateful() -> Scene {
    let mut s = scene();
    s.run("set acl-plugin acl permit+reflect src 10.0.0.0/24, permit+reflect src 2001:db8::/64 tag inside");
    s.run("set acl-plugin acl deny src 0.0.0.0/0, deny src ::/0 tag nothing");
    s.run("set acl-plugin interface x0 input acl 0");
    s.run("set acl-plugin interface x0 output acl 1");
    s
}

fn advance(s: &mut Scene, seconds: i64) {
    s.h.router.graph.clock().adjust(seconds * 1_000_000_000);
}

fn active(s: &mut Scene) -> usize {
    let text = s.run("show acl-plugin sessions");
    let at = text.find("active: ").unwrap() + 8;
    text[at..].split_whitespace().next().unwrap().parse().unwrap()
}

fn tcp(from: u8, to: u8, sport: u16, dport: u16, flags: u8) -> Vec<u8> {
    ip(false, from, to).tcp(sport, dport, TcpFlags(flags)).build()
}

#[test]
fn answers_of_a_session_pass_and_nothing_else() {
    for six in [false, true] {
        let mut s = stateful();
        assert!(!passes(&mut s, 1, &udp(six, 1, 0, 53, 1000)), "nobody has asked");
        assert!(passes(&mut s, 0, &udp(six, 0, 1, 1000, 53)));
        assert!(passes(&mut s, 1, &udp(six, 1, 0, 53, 1000)));
        for (from, sport, dport) in [(1, 53, 1001), (1, 54, 1000), (1, 1000, 53), (2, 53, 1000)] {
            assert!(!passes(&mut s, from, &udp(six, from, 0, sport, dport)), "{from} {sport} {dport}");
        }
        assert_eq!(active(&mut s), 1);
        let shown = s.run("show acl-plugin sessions verbose");
        let line = if six {
            "x0: [2001:db8::2]:1000 <-> [2001:db8:1::2]:53 proto 17"
        } else {
            "x0: 10.0.0.2:1000 <-> 10.0.1.2:53 proto 17"
        };
        assert!(shown.contains(line), "{shown}");
        assert!(shown.contains("(udp idle)"), "{shown}");
    }
}

#[test]
fn a_session_may_begin_with_what_leaves() {
    let mut s = scene();
    s.run("set acl-plugin acl permit+reflect src 10.0.0.0/24 tag inside");
    s.run("set acl-plugin acl deny src 0.0.0.0/0 tag nothing");
    s.run("set acl-plugin interface x1 output acl 0");
    s.run("set acl-plugin interface x1 input acl 1");
    assert!(!passes(&mut s, 1, &udp(false, 1, 0, 53, 1000)));
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1000, 53)));
    assert!(passes(&mut s, 1, &udp(false, 1, 0, 53, 1000)));
    assert!(!passes(&mut s, 1, &udp(false, 1, 0, 1000, 53)));
}

#[test]
fn queries_of_icmp_are_told_apart_and_only_answers_pass() {
    let echo4 = |kind, id: u32| Icmp4Header::new(Icmp4Type(kind), 0, id << 16 | 1);
    let echo6 = |kind, id: u32| Icmp6Header::new(Icmp6Type(kind), 0, id << 16 | 1);
    let mut s = stateful();
    for (six, ask, answer) in [(false, 8, 0), (true, 128, 129)] {
        let frame = |from: u8, kind: u8, id: u32| match six {
            false => ip(false, from, 1 - from).icmp4(echo4(kind, id)).payload(&[7; 8]).build(),
            true => ip(true, from, 1 - from).icmp6(echo6(kind, id)).payload(&[7; 8]).build(),
        };
        assert!(!passes(&mut s, 1, &frame(1, answer, 5)));
        assert!(passes(&mut s, 0, &frame(0, answer, 6)), "permitted as any packet");
        assert!(!passes(&mut s, 1, &frame(1, ask, 6)), "and begins nothing");
        assert!(passes(&mut s, 0, &frame(0, ask, 5)));
        assert!(passes(&mut s, 1, &frame(1, answer, 5)));
        assert!(!passes(&mut s, 1, &frame(1, answer, 4)), "another identifier");
        assert!(!passes(&mut s, 1, &frame(1, ask, 5)), "a question is no answer");
    }
}

#[test]
fn errors_about_packets_of_a_session_pass() {
    let mut s = stateful();
    for six in [false, true] {
        let error = |sport: u16| {
            let quoted = udp(six, 0, 2, sport, 53);
            match six {
                false => ip(false, 1, 0).icmp4(Icmp4Header::new(Icmp4Type(3), 4, 1280)).payload(&quoted[14..]).build(),
                true => ip(true, 1, 0).icmp6(Icmp6Header::new(Icmp6Type(2), 0, 1280)).payload(&quoted[14..]).build(),
            }
        };
        assert!(!passes(&mut s, 1, &error(1000)));
        assert!(passes(&mut s, 0, &udp(six, 0, 2, 1000, 53)));
        assert!(passes(&mut s, 1, &error(1000)), "of a router on the way, {six}");
        assert!(!passes(&mut s, 1, &error(1001)));
        // A quote that is cut off is in no session.
        let mut cut = error(1000);
        cut.truncate(14 + if six { 40 } else { 20 } + 8 + 10);
        assert_eq!(out(&mut s, 1, &cut), 0);
    }
}

#[test]
fn a_silent_session_is_over_after_its_timeout() {
    let mut s = stateful();
    s.run("set acl-plugin session timeout udp idle 30");
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1000, 53)));
    for _ in 0..3 {
        advance(&mut s, 29);
        assert!(passes(&mut s, 1, &udp(false, 1, 0, 53, 1000)), "each packet begins the time anew");
    }
    advance(&mut s, 31);
    assert!(!passes(&mut s, 1, &udp(false, 1, 0, 53, 1000)));
    assert_eq!(active(&mut s), 0);
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1000, 53)), "it begins again");
    assert!(passes(&mut s, 1, &udp(false, 1, 0, 53, 1000)));
}

#[test]
fn the_state_of_a_connection_chooses_its_timeout() {
    let mut s = stateful();
    s.run("set acl-plugin session timeout tcp transient 10");
    s.run("set acl-plugin session timeout tcp idle 1000");
    let open = |s: &mut Scene, port| {
        assert!(passes(s, 0, &tcp(0, 1, port, 80, SYN)));
        assert!(passes(s, 1, &tcp(1, 0, 80, port, SYN | ACK)));
        assert!(passes(s, 0, &tcp(0, 1, port, 80, ACK)));
    };
    assert!(passes(&mut s, 0, &tcp(0, 1, 1, 80, SYN)));
    open(&mut s, 2);
    assert!(s.run("show acl-plugin sessions verbose").contains("(tcp idle)"));
    advance(&mut s, 11);
    assert!(!passes(&mut s, 1, &tcp(1, 0, 80, 1, SYN | ACK)), "half open");
    assert!(passes(&mut s, 1, &tcp(1, 0, 80, 2, ACK)), "established");
    assert!(passes(&mut s, 0, &tcp(0, 1, 2, 80, FIN | ACK)));
    advance(&mut s, 11);
    assert!(!passes(&mut s, 1, &tcp(1, 0, 80, 2, FIN | ACK)), "ended");
    // The same ports for another connection.
    open(&mut s, 3);
    assert!(passes(&mut s, 0, &tcp(0, 1, 3, 80, FIN | ACK)));
    open(&mut s, 3);
    advance(&mut s, 900);
    assert!(passes(&mut s, 1, &tcp(1, 0, 80, 3, ACK)));
}

#[test]
fn sessions_end_when_they_are_cleared_and_when_the_lists_go() {
    let mut s = stateful();
    let (ask, answer) = (udp(false, 0, 1, 1000, 53), udp(false, 1, 0, 53, 1000));
    assert!(passes(&mut s, 0, &ask) && passes(&mut s, 1, &answer));
    s.run("clear acl-plugin sessions x1");
    assert!(passes(&mut s, 1, &answer));
    s.run("clear acl-plugin sessions x0");
    assert!(!passes(&mut s, 1, &answer));
    assert!(passes(&mut s, 0, &ask) && passes(&mut s, 1, &answer));
    s.run("clear acl-plugin sessions");
    assert_eq!(active(&mut s), 0);
    assert!(!passes(&mut s, 1, &answer));
    assert!(passes(&mut s, 0, &ask));
    s.run("set acl-plugin interface x0 input acl 0 del");
    assert!(!passes(&mut s, 1, &answer), "nothing here begins sessions any more");
    s.run("set acl-plugin interface x0 output acl 1 del");
    s.run("set acl-plugin interface x0 output acl 1");
    s.run("set acl-plugin interface x0 input acl 0");
    assert!(!passes(&mut s, 1, &answer), "those of before do not come back");
}

#[test]
fn a_change_of_rules_leaves_sessions_alone_unless_they_are_looked_at_again() {
    for again in [false, true] {
        let mut s = stateful();
        s.run(&format!("set acl-plugin reclassify-sessions {}", u8::from(again)));
        let (ask, answer) = (udp(false, 0, 1, 1000, 53), udp(false, 1, 0, 53, 1000));
        assert!(passes(&mut s, 0, &ask) && passes(&mut s, 1, &answer));
        s.run("set acl-plugin acl index 0 permit+reflect src 10.0.0.0/24 proto udp dport 53 tag inside");
        assert!(passes(&mut s, 1, &answer) && passes(&mut s, 0, &ask) && passes(&mut s, 1, &answer));
        s.run("set acl-plugin acl index 0 permit+reflect src 10.0.0.0/24 proto tcp tag inside");
        assert_eq!(passes(&mut s, 0, &ask), !again);
        assert_eq!(passes(&mut s, 1, &answer), !again);
        assert_eq!(active(&mut s), usize::from(!again));
    }
}

#[test]
fn a_full_table_drops_the_unestablished_connections_that_are_oldest() {
    let mut s = stateful();
    s.run("set acl-plugin session table max-entries 100");
    for port in 0..100 {
        assert_eq!(out(&mut s, 0, &udp(false, 0, 1, 1000 + port, 53)), 1);
    }
    assert_eq!(out(&mut s, 0, &udp(false, 0, 1, 2000, 53)), 0, "all of them live");
    assert_eq!(s.h.count("acl-plugin-in-ip4-fa", "too many sessions to add new"), 1);
    assert_eq!(out(&mut s, 1, &udp(false, 1, 0, 53, 1000)), 1);
    s.run("clear acl-plugin sessions");
    advance(&mut s, 700);
    assert_eq!(out(&mut s, 0, &tcp(0, 1, 9, 80, SYN)) + out(&mut s, 1, &tcp(1, 0, 80, 9, SYN | ACK)), 2);
    assert_eq!(out(&mut s, 0, &tcp(0, 1, 9, 80, ACK)), 1);
    for n in 0..300 {
        advance(&mut s, 1);
        assert_eq!(out(&mut s, 0, &tcp(0, 1, 1000 + n, 80, SYN)), 1, "{n}");
        assert!(active(&mut s) <= 100);
    }
    assert_eq!(out(&mut s, 1, &tcp(1, 0, 80, 9, ACK)), 1, "the established one is there");
    assert_eq!(out(&mut s, 1, &tcp(1, 0, 80, 1299, SYN | ACK)), 1);
    s.h.assert_buffers_held(0);
}

#[test]
fn what_is_over_is_removed() {
    let mut s = stateful();
    // A table of one shard.
    s.run("set acl-plugin session table max-entries 2000");
    for port in 0..300 {
        out(&mut s, 0, &udp(port % 2 == 0, 0, 1, port, 53));
    }
    advance(&mut s, 601);
    let used = |s: &mut Scene| s.run("show acl-plugin sessions").contains("= 0\n");
    assert!(!used(&mut s));
    s.h.until("the cleaner has been round", |h| {
        let now = h.router.graph.clock().timer_now();
        h.router.wake_process("acl-plugin-fa-cleaner-process", now);
        h.router.run_processes(now);
        h.execute("show acl-plugin sessions").unwrap().contains("= 0\n")
    });
}
