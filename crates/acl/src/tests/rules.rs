//! Which rule has a packet, and what commands say.

use quiver_graph::TraceEntry;

use super::*;

#[test]
fn what_no_rule_permits_is_dropped_and_counted_in_both_directions_and_families() {
    for (direction, interface, name) in [("input", "x0", "in"), ("output", "x1", "out")] {
        for six in [false, true] {
            let mut s = scene();
            let node = format!("acl-plugin-{name}-ip{}-fa", if six { 6 } else { 4 });
            let [src, dst] = if six { ["2001:db8::/64", "2001:db8:1::/64"] } else { ["10.0.0.0/24", "10.0.1.0/24"] };
            assert!(passes(&mut s, 0, &udp(six, 0, 1, 1, 53)), "without lists all goes on");
            let rules = format!("permit src {src} dst {dst} proto udp dport 53, deny src {src} proto udp dport 54");
            assert_eq!(s.run(&format!("set acl-plugin acl {rules}")), "ACL index:0\n");
            s.run(&format!("set acl-plugin interface {interface} {direction} acl 0"));
            assert!(passes(&mut s, 0, &udp(six, 0, 1, 1, 53)), "{node}");
            assert!(!passes(&mut s, 0, &udp(six, 0, 1, 1, 54)), "{node}");
            assert!(!passes(&mut s, 0, &udp(six, 0, 1, 1, 55)), "{node}");
            assert!(!passes(&mut s, 0, &udp(!six, 0, 1, 1, 53)), "no rule of the other family permits anything");
            let count = |text: &str| s.h.count(&node, text);
            assert_eq!([count("ACL permit packets"), count("ACL deny packets"), count("ACL deny packets in no rule")], [38; 3]);
            assert_eq!(count("checked packets"), 3 * 38);
            let shown = s.run("show acl-plugin acl");
            let bytes = 38 * (32 + if six { 48 } else { 28 }) + if direction == "output" { 38 * 14 } else { 0 };
            assert!(shown.contains(&format!("dport 53 [38 packets, {bytes} bytes]")), "{shown}");
            s.run(&format!("set acl-plugin interface {interface} {direction} acl 0 del"));
            assert!(passes(&mut s, 0, &udp(six, 0, 1, 1, 55)));
            s.run("delete acl-plugin acl index 0");
            assert_eq!(s.run("show acl-plugin acl"), "");
        }
    }
}

#[test]
fn lists_are_looked_at_in_order_and_the_first_rule_counts() {
    let mut s = scene();
    s.run("set acl-plugin acl deny dst 10.0.1.0/24 proto 17 dport 7 tag first");
    s.run("set acl-plugin acl permit tag second");
    s.run("set acl-plugin interface x0 input acl 0");
    s.run("set acl-plugin interface x0 input acl 1");
    assert!(!passes(&mut s, 0, &udp(false, 0, 1, 1, 7)));
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1, 8)));
    s.run("set acl-plugin interface x0 input acl 0 del");
    s.run("set acl-plugin interface x0 input acl 0 add");
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1, 7)), "behind the one that permits all");
    assert!(s.run("show acl-plugin interface").contains("  input acl(s): 1, 0"));
    s.run("set acl-plugin lists x0 input acl 0 acl 1");
    assert!(!passes(&mut s, 0, &udp(false, 0, 1, 1, 7)), "in the order that is given");
    s.run("set acl-plugin lists x0 input acl 1");
    // Other rules of a list that is in use hold at once.
    s.run("set acl-plugin acl index 1 deny src 0.0.0.0/0 tag second");
    assert!(!passes(&mut s, 0, &udp(false, 0, 1, 1, 8)));
}

#[test]
fn icmp_types_and_tcp_flags_are_looked_at() {
    let mut s = scene();
    let syn = |flags| ip(false, 0, 1).tcp(1, 80, quiver_wire::tcp::TcpFlags(flags)).build();
    s.run("set acl-plugin acl permit proto icmp sport 8 dport 0, permit proto tcp dport 80 tcpflags 2 mask 18");
    s.run("set acl-plugin interface x0 input acl 0");
    assert!(passes(&mut s, 0, &ip(false, 0, 1).echo_request(1, 1).build()));
    let unreachable = quiver_wire::icmp4::Icmp4Header::new(quiver_wire::icmp4::Icmp4Type(3), 1, 0);
    assert!(!passes(&mut s, 0, &ip(false, 0, 1).icmp4(unreachable).payload(&[0; 28]).build()));
    assert!(passes(&mut s, 0, &syn(0x02)), "SYN without ACK");
    assert!(!passes(&mut s, 0, &syn(0x12)));
    assert!(!passes(&mut s, 0, &syn(0x10)));
}

#[test]
fn later_fragments_are_in_rules_with_ports_or_not_as_it_is_set() {
    let mut s = scene();
    let fragment = |offset: u16| {
        let packet = ip(false, 0, 1).edit_ipv4(|header| header.fragment = quiver_wire::U16Be::new(offset));
        packet.udp(1, 53).payload(&[0; 32]).build()
    };
    s.run("set acl-plugin acl permit proto udp dport 53");
    s.run("set acl-plugin interface x0 input acl 0");
    assert!(passes(&mut s, 0, &fragment(0x2000)), "the first one has ports");
    assert!(passes(&mut s, 0, &fragment(100)));
    s.run("set acl-plugin l4-match-nonfirst-fragment 0");
    assert!(passes(&mut s, 0, &fragment(0x2000)));
    assert!(!passes(&mut s, 0, &fragment(100)));
    s.run("set acl-plugin l4-match-nonfirst-fragment 1");
    // As VPP: such a rule denies them as well.
    s.run("set acl-plugin acl index 0 deny proto udp dport 53, permit src 0.0.0.0/0");
    assert!(!passes(&mut s, 0, &fragment(100)));
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1, 54)));
}

#[test]
fn what_is_cut_off_is_in_no_rule_of_its_protocol() {
    let mut s = scene();
    let short = |bytes: usize| {
        let mut frame = ip(false, 0, 1).udp(1, 53).payload(&[]).build();
        frame.truncate(14 + 20 + bytes);
        frame[16..18].copy_from_slice(&(20 + bytes as u16).to_be_bytes());
        let sum = {
            frame[24..26].fill(0);
            quiver_wire::checksum::checksum(&frame[14..34])
        };
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    s.run("set acl-plugin acl permit proto udp");
    s.run("set acl-plugin interface x0 input acl 0");
    assert!(passes(&mut s, 0, &udp(false, 0, 1, 1, 53)));
    assert!(!passes(&mut s, 0, &short(2)));
    s.run("set acl-plugin acl index 0 permit src 0.0.0.0/0");
    assert!(passes(&mut s, 0, &short(2)), "a rule without a protocol looks at addresses alone");
}

#[test]
fn extension_headers_are_passed_over_and_a_chain_that_cannot_be_followed_is_dropped() {
    let mut s = scene();
    s.run("set acl-plugin acl deny src ::/0 proto tcp, permit src ::/0");
    s.run("set acl-plugin interface x1 output acl 0");
    let options = |n: usize| (0..n).fold(ip(true, 0, 1), |packet, _| packet.destination_options(&[]));
    assert!(passes(&mut s, 0, &options(3).udp(1, 2).build()));
    assert!(!passes(&mut s, 0, &options(3).tcp(1, 2, quiver_wire::tcp::TcpFlags::SYN).build()));
    assert!(!passes(&mut s, 0, &options(9).udp(1, 2).build()));
    assert_eq!(s.h.count("acl-plugin-out-ip6-fa", "ACL deny packets with unreadable headers"), 38);
}

#[test]
fn a_trace_names_the_rule() {
    let mut s = scene();
    s.run("set acl-plugin acl deny proto udp dport 9, permit src 0.0.0.0/0");
    s.run("set acl-plugin interface x0 input acl 0");
    let (x0, node) = (s.interface("x0"), s.h.router.graph.node("acl-plugin-in-ip4-fa").unwrap().0);
    let text = |dport: u16, next: u16| {
        let bytes = udp(false, 0, 1, 1, dport)[14..].to_vec();
        let (len, pulled) = (bytes.len(), Vec::new());
        let (time, flags, aux, offset, moved, buffer) = Default::default();
        let entry = TraceEntry { node, next, time, rx_if: x0, flags, aux, len, offset, moved, pulled, buffer, bytes };
        let mut out = String::new();
        s.h.router.graph.format_trace(&entry, &mut out);
        out
    };
    assert_eq!(text(9, 0), format!("acl-plugin: sw_if_index {x0}, next index 0: denied\n    match: acl 0 rule 0, deny"));
    assert_eq!(text(10, 7), format!("acl-plugin: sw_if_index {x0}, next index 7: went on\n    match: acl 0 rule 1, permit"));
}

#[test]
fn wrong_commands_say_why_and_change_nothing() {
    let mut s = scene();
    s.run("set acl-plugin acl permit tag a");
    s.run("set acl-plugin interface x0 input acl 0");
    let before = s.run("show acl-plugin acl") + &s.run("show acl-plugin interface");
    for (line, says) in [
        ("set acl-plugin acl", "rules"),
        ("set acl-plugin acl allow", "expected deny, permit or permit+reflect"),
        ("set acl-plugin acl permit src 10.0.0.0/33", "expected a prefix"),
        ("set acl-plugin acl permit src 10.0.0.0/8 dst 2001:db8::/32", "two families"),
        ("set acl-plugin acl permit proto 300", "expected 0 to 255"),
        ("set acl-plugin acl permit proto tcp dport 5-1", "expected a port"),
        ("set acl-plugin acl permit dport 5", "need a protocol"),
        ("set acl-plugin acl permit,", "rule"),
        ("set acl-plugin acl permit, deny extra", "extra"),
        ("set acl-plugin acl index 70000 permit", "70000"),
        ("set acl-plugin interface x0 input acl 0", "used for input already"),
        ("set acl-plugin interface x0 input acl 9", "no access list 9"),
        ("set acl-plugin interface x0 output acl 0 del", "not used there"),
        ("set acl-plugin interface x9 input acl 0", "x9"),
        ("delete acl-plugin acl index 0", "in use by the input of x0"),
        ("delete acl-plugin acl index 1", "no access list 1"),
        ("set acl-plugin session timeout udp idle 0", "0"),
        ("set acl-plugin session timeout tcp later 5", "later"),
        ("set acl-plugin session table max-entries 0", "0"),
        ("set acl-plugin reclassify-sessions 2", "2"),
    ] {
        let error = s.error(line);
        assert!(error.contains(says), "{line}: {error}");
    }
    assert_eq!(s.run("show acl-plugin acl") + &s.run("show acl-plugin interface"), before);
}

#[test]
fn the_configuration_says_it_all() {
    let lines = "set acl-plugin acl index 3 permit+reflect src 10.0.0.0/8 proto tcp sport 1024-65535 dport 80 tcpflags 2 mask 18, deny src ::/0 tag three
        set acl-plugin acl permit
        set acl-plugin interface x0 output acl 3
        set acl-plugin interface x0 input acl 3
        set acl-plugin interface x0 input acl 0
        set acl-plugin lists x2 output acl 3 acl 0
        set acl-plugin ethertype x1 input type 2054 type 0x88cc
        set acl-plugin session timeout tcp transient 7
        set acl-plugin session table max-entries 1000
        set acl-plugin reclassify-sessions 1
        set acl-plugin l4-match-nonfirst-fragment 0";
    let shows = ["show acl-plugin acl", "show acl-plugin interface acl", "show acl-plugin settings"];
    assert_rebuilt(&[crate::ops::register], bare, lines, &shows);
}
