//! The cases: configuration, frames, and what shows that the packets took the way that they should.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use quiver_tables::synth::{self, Random};
use quiver_testbed::churn::Prefixes;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::ethernet::EtherType;
use quiver_wire::vlan::Tci;

/// Where frames come in.
pub const IN: &str = "pg0";
/// Where they go out.
pub const OUT: &str = "pg1";
const MAC_IN: MacAddr = MacAddr([2, 0, 0, 0, 9, 0]);
const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
/// Frames of most captures, which are sent again and again.
const FRAMES: usize = 16_384;
/// Frames of those with sessions: one each.
const FLOWS: usize = 65_536;
/// Next hops of a full table.
const HOPS: usize = 64;
/// Addresses of the large bridge.
const ADDRESSES: usize = 100_000;
/// Bytes of a frame of IPv4 without tags, without FCS: payload of 22.
const LENGTH4: usize = 64;
/// The same of IPv6.
const LENGTH6: usize = 84;

/// A case.
#[derive(Clone, Default)]
pub struct Case {
    pub name: &'static str,
    /// Line by line.
    pub commands: Vec<String>,
    /// By `exec`, for what has many lines.
    pub bulk: Arc<str>,
    pub frames: Vec<Vec<u8>>,
    /// Largest vector, where it is not the generator's.
    pub vector: Option<u32>,
    /// Nodes that all packets must pass.
    pub nodes: &'static [&'static str],
    pub bytes_out: usize,
    /// Of NAT44, in the end.
    pub sessions: Option<usize>,
}

/// All of them; without real full tables those that are about them are missing, and `edge` has a default route in place of one.
pub fn all(tables: Option<&Prefixes>) -> Vec<Case> {
    let mut cases = vec![
        ip4("ip4", None),
        ip4("ip4, vectors of 4", Some(4)),
        ip6(),
        cross_connect(),
        bridge("bridge, 1 address", 1),
        bridge("bridge, 100,000 addresses", ADDRESSES),
        nat44(),
        acl("acl, 1,000 rules", "permit", FRAMES),
        acl("acl, 65,536 sessions", "permit+reflect", FLOWS),
    ];
    if let Some(tables) = tables {
        cases.extend([full4(tables), full6(tables)]);
    }
    cases.push(edge(tables));
    cases
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Both interfaces, and what follows.
fn ports(text: &str) -> Vec<String> {
    let mut all = lines(&format!(
        "create packet-generator interface {IN} hw-addr {MAC_IN}
         create packet-generator interface {OUT} hw-addr 02:00:00:00:09:10
         set interface state {IN} up
         set interface state {OUT} up"
    ));
    all.extend(lines(text));
    all
}

fn udp4(packet: Packet, from: [u8; 4], to: Ipv4Addr, port: u16) -> Vec<u8> {
    packet.ipv4(from, to).udp(port, 2000).payload_len(22).build()
}

fn plain() -> Packet {
    Packet::ethernet(SOURCE, MAC_IN)
}

/// An address of a customer within 10.64.0.0/10, one for each flow.
fn customer(flow: usize) -> [u8; 4] {
    [10, 65, (flow >> 8) as u8, flow as u8]
}

/// Numbers below `n`, each once, in random order: what comes next is in no cache by chance.
fn shuffled(n: usize) -> Vec<usize> {
    let (mut numbers, mut random) = ((0..n).collect::<Vec<_>>(), Random::new(7));
    for at in (1..n).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    numbers
}

/// One route, 1,024 destinations, 246 sources.
fn ip4(name: &'static str, vector: Option<u32>) -> Case {
    let frame = |n: usize| {
        let to = Ipv4Addr::new(198, 18, ((n % 1024) >> 8) as u8, (n % 1024) as u8);
        udp4(plain(), [192, 0, 2, 2 + (n % 246) as u8], to, 1024)
    };
    Case {
        name,
        commands: ports(&format!(
            "set interface ip address {IN} 192.0.2.1/24
             set interface ip address {OUT} 203.0.113.1/24
             set ip neighbor {OUT} 203.0.113.2 02:00:00:00:0a:02 static
             ip route add 198.18.0.0/16 via 203.0.113.2 {OUT}"
        )),
        frames: (0..FRAMES).map(frame).collect(),
        vector,
        nodes: &["ip4-lookup", "ip4-rewrite"],
        bytes_out: LENGTH4,
        ..Case::default()
    }
}

fn udp6(to: Ipv6Addr) -> Vec<u8> {
    plain().ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2), to).udp(1024, 2000).payload_len(22).build()
}

/// One route, 1,024 destinations.
fn ip6() -> Case {
    let frame = |n: usize| udp6(Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, (n % 1024) as u16));
    Case {
        name: "ip6",
        commands: ports(&format!(
            "set interface ip address {IN} 2001:db8::1/64
             set interface ip address {OUT} 2001:db8:1::1/64
             set ip neighbor {OUT} 2001:db8:1::2 02:00:00:00:0a:02 static
             ip route add 2001:db8:100::/48 via 2001:db8:1::2 {OUT}"
        )),
        frames: (0..FRAMES).map(frame).collect(),
        nodes: &["ip6-lookup", "ip6-rewrite"],
        bytes_out: LENGTH6,
        ..Case::default()
    }
}

fn cross_connect() -> Case {
    Case {
        name: "cross-connect",
        commands: ports(&format!("set interface l2 xconnect {IN} {OUT}\nset interface l2 xconnect {OUT} {IN}")),
        frames: ip4("", None).frames,
        bytes_out: LENGTH4,
        ..Case::default()
    }
}

/// A domain of two ports with so many static addresses; frames go to them in random order.
fn bridge(name: &'static str, addresses: usize) -> Case {
    let address = |n: usize| MacAddr([2, 0, 1, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let mut bulk = String::new();
    for n in 0..addresses {
        let _ = writeln!(bulk, "l2fib add {} 1 {OUT} static", address(n));
    }
    let chosen = shuffled(addresses);
    let frame = |n: usize| {
        let packet = Packet::ethernet(SOURCE, address(chosen[n % addresses]));
        udp4(packet, [192, 0, 2, 2], Ipv4Addr::new(198, 18, 0, 1), 1024)
    };
    Case {
        name,
        commands: ports(&format!("create bridge-domain 1\nset interface l2 bridge {IN} 1\nset interface l2 bridge {OUT} 1")),
        bulk: bulk.into(),
        frames: (0..FRAMES).map(frame).collect(),
        bytes_out: LENGTH4,
        ..Case::default()
    }
}

/// Sessions from inside: 65,536 sources, one destination, in random order.
fn nat44() -> Case {
    let frame = |flow: usize| udp4(plain(), customer(flow), Ipv4Addr::new(198, 18, 0, 1), 1024);
    Case {
        name: "nat44, 65,536 sessions",
        commands: ports(&format!(
            "set interface ip address {IN} 10.64.0.1/10
             set interface ip address {OUT} 203.0.113.1/24
             set ip neighbor {OUT} 203.0.113.2 02:00:00:00:0a:02 static
             ip route add 198.18.0.0/16 via 203.0.113.2 {OUT}
             nat44 plugin enable sessions 131072
             nat44 add address 192.0.2.0 - 192.0.2.255
             set interface nat44 in {IN} out {OUT}"
        )),
        frames: shuffled(FLOWS).into_iter().map(frame).collect(),
        nodes: &["nat44-ed-in2out", "ip4-lookup", "ip4-rewrite"],
        bytes_out: LENGTH4,
        sessions: Some(FLOWS),
        ..Case::default()
    }
}

/// Rules of the access list.
const RULES: usize = 1_000;

/// An access list of the kind that providers have: destinations of /24 to /32, exact ports. `to` gives an address in the destination of
/// each rule; its rule is the only one that has it by chance and by the port.
fn rules(action: &str, to: impl Fn(usize) -> Ipv4Addr) -> String {
    let rule = |n: usize| {
        let (len, bits) = (24 + n as u32 % 9, to(n).to_bits());
        let net = Ipv4Addr::from(bits & (u32::MAX << (32 - len)));
        format!("{action} dst {net}/{len} proto 17 dport {}", rule_port(n))
    };
    format!("set acl-plugin acl {}\n", (0..RULES).map(rule).collect::<Vec<_>>().join(", "))
}

/// The destination port of a rule.
fn rule_port(rule: usize) -> u16 {
    2000 + rule as u16
}

/// Packets that the rules of a list have at random, in so many flows: each by its rule, or by the session that its rule began.
fn acl(name: &'static str, action: &str, flows: usize) -> Case {
    // Destinations all over the space, of which none is in two rules.
    let to = |rule: usize| Ipv4Addr::from(0x1400_0000 + rule as u32 * 0x0002_1107);
    let frame =
        |flow: usize| plain().ipv4(customer(flow), to(flow % RULES)).udp(1024, rule_port(flow % RULES)).payload_len(22).build();
    Case {
        name,
        commands: ports(&format!(
            "set interface ip address {IN} 10.64.0.1/10
             set interface ip address {OUT} 203.0.113.1/24
             set ip neighbor {OUT} 203.0.113.2 02:00:00:00:0a:02 static
             ip route add 0.0.0.0/0 via 203.0.113.2 {OUT}"
        )),
        bulk: format!("{}set acl-plugin interface {IN} input acl 0\n", rules(action, to)).into(),
        frames: shuffled(flows).into_iter().map(frame).collect(),
        nodes: &["acl-plugin-in-ip4-fa", "ip4-lookup", "ip4-rewrite"],
        bytes_out: LENGTH4,
        ..Case::default()
    }
}

/// The addresses of next hops and their neighbours on an interface.
fn hops(interface: &str) -> String {
    let mut text =
        format!("set interface ip address {interface} 203.0.113.1/24\nset interface ip address {interface} 2001:db8:1::1/64\n");
    for hop in 2..2 + HOPS {
        let mac = format!("02:00:00:00:0a:{hop:02x}");
        let _ = writeln!(text, "set ip neighbor {interface} 203.0.113.{hop} {mac} static");
        let _ = writeln!(text, "set ip neighbor {interface} 2001:db8:1::{hop:x} {mac} static");
    }
    text
}

fn routes4(tables: &Prefixes, interface: &str) -> Arc<str> {
    let mut text = String::new();
    for (n, (address, len)) in tables.four.iter().enumerate() {
        let _ = writeln!(text, "ip route add {}/{len} via 203.0.113.{} {interface}", Ipv4Addr::from(*address), 2 + n % HOPS);
    }
    text.into()
}

/// A full table over 64 next hops, random destinations in its prefixes.
fn full4(tables: &Prefixes) -> Case {
    let to = synth::addresses4(&tables.four, FRAMES, 42);
    Case {
        name: "ip4, full table",
        commands: ports(&format!("set interface ip address {IN} 192.0.2.1/24\n{}", hops(OUT))),
        bulk: routes4(tables, OUT),
        frames: to.into_iter().map(|to| udp4(plain(), [192, 0, 2, 2], to.into(), 1024)).collect(),
        nodes: &["ip4-lookup", "ip4-rewrite"],
        bytes_out: LENGTH4,
        ..Case::default()
    }
}

fn full6(tables: &Prefixes) -> Case {
    let mut bulk = String::new();
    for (n, (address, len)) in tables.six.iter().enumerate() {
        let _ = writeln!(bulk, "ip route add {}/{len} via 2001:db8:1::{:x} {OUT}", Ipv6Addr::from(*address), 2 + n % HOPS);
    }
    let to = synth::addresses6(&tables.six, FRAMES, 43);
    Case {
        name: "ip6, full table",
        commands: ports(&format!("set interface ip address {IN} 2001:db8::1/64\n{}", hops(OUT))),
        bulk: bulk.into(),
        frames: to.into_iter().map(|to| udp6(to.into())).collect(),
        nodes: &["ip6-lookup", "ip6-rewrite"],
        bytes_out: LENGTH6,
        ..Case::default()
    }
}

/// A provider's edge: customers behind two tags, an ACL of 1,000 rules with reflection, strict uRPF, a policer that never drops, NAT44 of
/// 65,536 flows, a full table, one tag out. The last rule has all of the flows: each begins a session.
fn edge(tables: Option<&Prefixes>) -> Case {
    let (inside, outside) = (format!("{IN}.10"), format!("{OUT}.30"));
    let (bulk, to): (Arc<str>, _) = match tables {
        Some(tables) => (routes4(tables, &outside), synth::addresses4(&tables.four, FLOWS, 44)),
        None => {
            let all = format!("ip route add 0.0.0.0/0 via 203.0.113.2 {outside}\n");
            (all.into(), (0..FLOWS as u32).map(|n| 0xc612_0000 + n).collect())
        }
    };
    // Addresses that no destination of the flows has.
    let mut acl = rules("permit+reflect", |rule| Ipv4Addr::from(0xf000_0000 + rule as u32 * 512));
    acl.truncate(acl.trim_end().len());
    let acl = format!("{acl}, permit+reflect src 10.64.0.0/10 dst 0.0.0.0/0\nset acl-plugin interface {inside} input acl 0\n");
    let bulk: Arc<str> = format!("{bulk}{acl}").into();
    let tagged = || plain().tag(EtherType::QINQ, Tci(10)).tag(EtherType::VLAN, Tci(20));
    let frame = |flow: usize| udp4(tagged(), customer(flow), to[flow].into(), 1024);
    Case {
        name: "edge",
        commands: ports(&format!(
            "create sub-interfaces {IN} 10 dot1ad 10 inner-dot1q 20 exact-match
             create sub-interfaces {OUT} 30 dot1q 30 exact-match
             set interface state {inside} up
             set interface state {outside} up
             set interface ip address {inside} 10.0.0.1/30
             set ip neighbor {inside} 10.0.0.2 {SOURCE} static
             ip route add 10.64.0.0/10 via 10.0.0.2 {inside}
             {}
             set urpf ip4 rx strict {inside}
             policer add name p type 2r3c-2698 cir 100000000 eir 100000000 cb 100000000 eb 100000000 conform-action transmit exceed-action transmit violate-action drop
             policer input name p {inside}
             nat44 plugin enable sessions 131072
             nat44 add address 192.0.2.0 - 192.0.2.255
             set interface nat44 in {inside} out {outside}",
            hops(&outside)
        )),
        bulk,
        frames: shuffled(FLOWS).into_iter().map(frame).collect(),
        nodes: &["acl-plugin-in-ip4-fa", "ip4-rx-urpf-strict", "policer-input", "nat44-ed-in2out", "ip4-lookup", "ip4-rewrite"],
        bytes_out: LENGTH4 + 4,
        sessions: Some(FLOWS),
        ..Case::default()
    }
}
