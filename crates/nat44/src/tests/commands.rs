//! What commands say.

use super::*;

#[test]
fn the_configuration_is_shown_as_usual() {
    let mut bed = Bed::new(
        0,
        "nat44 add address 10.0.1.100\nnat44 add address 10.0.1.101 twice-nat\n\
         nat44 add static mapping tcp local 10.0.0.5 80 external 10.0.1.100 8080\n\
         nat44 add static mapping local 10.0.0.6 external 10.0.1.106 out2in-only\n\
         nat44 add identity mapping 10.0.0.7 udp 500\nnat44 add interface address x1\n\
         nat44 add load-balancing static mapping protocol tcp external 10.0.1.100:90 local 10.0.0.5:80 probability 1 \
         local 10.0.0.6:80 probability 2 twice-nat",
    );
    let pools = "NAT44 pool addresses:\n10.0.1.100\n  tenant VRF independent\n198.51.100.1\n  tenant VRF independent\n";
    let twice = "NAT44 twice-nat pool addresses:\n10.0.1.101\n  tenant VRF independent\n";
    assert_eq!(run(&mut bed.h, "show nat44 addresses"), format!("{pools}{twice}"));
    assert_eq!(
        run(&mut bed.h, "show nat44 static mappings"),
        "NAT44 static mappings:\n TCP local 10.0.0.5:80 external 10.0.1.100:8080 vrf 0  \n\
         \x20local 10.0.0.6 external 10.0.1.106 vrf 0  out2in-only\n\
         \x20identity mapping UDP 10.0.0.7:500 vrf 0\n\
         \x20TCP external 10.0.1.100:90 twice-nat \n\
         \x20 local 10.0.0.5:80 vrf 0 probability 1\n\x20 local 10.0.0.6:80 vrf 0 probability 2\n"
    );
    assert_eq!(run(&mut bed.h, "show nat44 interfaces"), "NAT44 interfaces:\n x0 in\n x1 out\n");
    let interfaces = "NAT44 pool address interfaces:\n x1\nNAT44 twice-nat pool address interfaces:\n";
    assert_eq!(run(&mut bed.h, "show nat44 interface address"), interfaces);
    run(&mut bed.h, "set nat timeout udp 10 icmp 20");
    let timeouts = "udp timeout: 10sec\ntcp-established timeout: 7440sec\ntcp-transitory timeout: 240sec\nicmp timeout: 20sec\n";
    assert_eq!(run(&mut bed.h, "show nat timeouts"), timeouts);
    run(&mut bed.h, "set nat timeout reset");
    assert!(run(&mut bed.h, "show nat timeouts").starts_with("udp timeout: 300sec"));
}

#[test]
fn sessions_are_shown_as_usual_and_deleted() {
    let mut bed = Bed::usual(0);
    let out = bed.out(from_inside(2).udp(1234, 2345).payload(b"x"));
    let port = out.sport;
    let o2i = format!("match: saddr 203.0.113.9 sport 2345 daddr 198.51.100.10 dport {port} proto UDP fib_idx 0");
    let shown = run(&mut bed.h, "show nat44 sessions");
    let expected = format!(
        "NAT44 ED sessions:\n-------- thread 0 {}: 1 sessions --------\n\
         \x20   i2o 10.0.0.2 proto UDP port 1234 fib 0\n    o2i 198.51.100.10 proto UDP port {port} fib 0\n\
         \x20      external host 203.0.113.9:2345\n\
         \x20      i2o flow: match: saddr 10.0.0.2 sport 1234 daddr 203.0.113.9 dport 2345 proto UDP fib_idx 0 \
         rewrite: saddr 198.51.100.10 sport {port} daddr 203.0.113.9 txfib 0 \n\
         \x20      o2i flow: {o2i} rewrite: saddr 203.0.113.9 daddr 10.0.0.2 dport 1234 txfib 0 \n\
         \x20      index 0\n       last heard 0.00\n       timeout in 300.00\n       total pkts 1, total bytes 29\n\
         \x20      dynamic translation\n",
        quiver_graph::thread_name(0)
    );
    assert_eq!(shown, expected);
    assert!(run(&mut bed.h, "show nat44 sessions filter i2o saddr 10.0.0.2 proto udp").contains("index 0"));
    assert!(!run(&mut bed.h, "show nat44 sessions filter o2i dport 1").contains("index 0"));
    assert!(run(&mut bed.h, "show nat44 summary").contains("total udp sessions: 1\n"));
    let tables = run(&mut bed.h, "show nat44 hash tables verbose");
    assert!(
        tables.contains("2 entries of 1 sessions, at most 131072\n  hosts: 1\n") && tables.ends_with("static mappings: 0\n"),
        "{tables}"
    );
    run(&mut bed.h, &format!("nat44 del session out 198.51.100.10:{port} udp"));
    assert_eq!(bed.sessions(), 0);
    assert!(error(&mut bed.h, "nat44 del session in 10.0.0.2:1234 udp").contains("no session of 10.0.0.2:1234"));
}

#[test]
fn a_wrong_command_is_one_line_that_names_what_is_wrong() {
    let mut bed = Bed::usual(0);
    assert!(error(&mut bed.h, "nat44 plugin enable").contains("already enabled"));
    for (line, expected) in [
        ("nat44 add address 198.51.100.10", "198.51.100.10 exists already"),
        ("nat44 add address 198.51.100.12 del", "no address 198.51.100.12"),
        ("nat44 add address 198.51.100.12 - 198.51.100.11", "no range"),
        ("nat44 add static mapping local 10.0.0.5", "external address"),
        ("nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20", "both ports"),
        ("nat44 add static mapping local 10.0.0.5 external x9", "unknown interface `x9'"),
        ("nat44 add static mapping local 10.0.0.5 external 198.51.100.20 del", "no such static mapping"),
        ("set interface nat44 in x9", "unknown interface `x9'"),
        ("set interface nat44", "interface"),
        ("set interface nat44 out x0 del", "no NAT44 on x0"),
        ("set interface nat44 out x1 output-feature del", "no NAT44 output feature on x1"),
        ("set nat timeout udp 0", "expected 1 to 1000000"),
        ("set nat timeout", "timeout"),
        ("nat44 del session in 10.0.0.2 udp", "endpoint"),
    ] {
        let error = error(&mut bed.h, line);
        assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
    }
    run(&mut bed.h, "nat44 plugin disable");
    for line in ["nat44 plugin disable", "nat44 add address 1.2.3.4", "set interface nat44 in x0", "nat44 forwarding enable"] {
        assert!(error(&mut bed.h, line).contains("not enabled"), "{line}");
    }
    assert!(error(&mut bed.h, "nat44 plugin enable sessions 0").contains("out of range"));
}
