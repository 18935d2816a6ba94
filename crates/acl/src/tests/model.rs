//! Random rules and packets, held against rules read one after the other.

use std::net::IpAddr;

use quiver_tables::synth::Random;
use quiver_wire::IpPrefix;
use quiver_wire::tcp::TcpFlags;

use super::*;
use crate::packet::{Family, Four, Six};
use crate::policy::{ListOf, Policy, RulesOf};
use crate::rule::{Action, Flags, Ports, Rule};

/// A packet by what it is.
#[derive(Clone, Copy, Debug)]
struct What {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    ports: (u16, u16),
    tcp_flags: u8,
    later: bool,
}

const PROTOCOLS: [u8; 5] = [1, 6, 17, 47, 58];

fn address(random: &mut Random, six: bool) -> IpAddr {
    let low = random.below(4) << 6 | random.below(4);
    if six {
        std::net::Ipv6Addr::from_bits((0x2001_0db8_u128 + u128::from(random.below(2))) << 96 | u128::from(low)).into()
    } else {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + random.below(3) as u32 * 0x0100_0000 + low as u32).into()
    }
}

fn prefix(random: &mut Random, six: bool) -> IpPrefix {
    let bits = if six { 128 } else { 32 };
    let len = [0, 6, bits - 8, bits - 2, bits][random.below(5) as usize];
    IpPrefix::new(address(random, six), len).unwrap().masked()
}

fn ports(random: &mut Random) -> Ports {
    let (a, b) = (random.below(12) as u16, random.below(12) as u16);
    match random.below(3) {
        0 => Ports::default(),
        1 => Ports { first: a, last: a },
        _ => Ports { first: a.min(b), last: a.max(b) },
    }
}

fn rule(random: &mut Random) -> Rule {
    let six = random.below(2) == 1;
    let (src, dst) = (prefix(random, six), prefix(random, six));
    let action = [Action::Deny, Action::Permit][random.below(2) as usize];
    if random.below(4) == 0 {
        return Rule { action, src, dst, proto: 0, sport: Ports::default(), dport: Ports::default(), tcp_flags: Flags::default() };
    }
    let proto = PROTOCOLS[random.below(5) as usize];
    let tcp_flags = if random.below(2) == 0 { Flags::default() } else { Flags { value: 2, mask: 18 } };
    Rule { action, src, dst, proto, sport: ports(random), dport: ports(random), tcp_flags }
}

fn what(random: &mut Random, six: bool) -> What {
    let proto = PROTOCOLS[random.below(5) as usize];
    What {
        src: address(random, six),
        dst: address(random, six),
        proto,
        ports: (random.below(13) as u16, random.below(13) as u16),
        tcp_flags: if proto == 6 { [2, 16, 18, 0][random.below(4) as usize] } else { 0 },
        later: random.below(8) == 0,
    }
}

fn bytes(what: &What) -> Vec<u8> {
    let packet = match (what.src, what.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let fragment = if what.later { 100 } else { 0 };
            Packet::new().ipv4(src, dst).edit_ipv4(|header| header.fragment = quiver_wire::U16Be::new(fragment))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let packet = Packet::new().ipv6(src, dst);
            if what.later { packet.fragment(1, 800, false) } else { packet }
        }
        _ => unreachable!("of one family"),
    };
    let (sport, dport) = what.ports;
    let head = [sport as u8, dport as u8, 0, 0, 0, 0, 0, 0];
    match what.proto {
        6 => packet.tcp(sport, dport, TcpFlags(what.tcp_flags)).build(),
        17 => packet.udp(sport, dport).build(),
        proto => packet.payload(&head).next(proto.into()).build(),
    }
}

/// What VPP's rules say (acl_types.api), one after the other.
fn first(rules: &[Rule], what: &What, ported: bool) -> Option<usize> {
    let inside = |ports: Ports, port: u16| (ports.first..=ports.last).contains(&port);
    rules.iter().position(|rule| {
        if !rule.src.contains(what.src) || !rule.dst.contains(what.dst) {
            return false;
        }
        if rule.proto == 0 {
            return true;
        }
        if rule.proto != what.proto {
            return false;
        }
        let has_ports = [1, 6, 17, 58].contains(&rule.proto);
        let any = rule.sport == Ports::default() && rule.dport == Ports::default();
        if what.later {
            return !ported || (any && !has_ports);
        }
        // ICMP of the other family is a protocol like any other.
        let of_family = what.proto == if what.src.is_ipv4() { 58 } else { 1 };
        if !has_ports || of_family {
            return any && !of_family;
        }
        let flags = rule.proto != 6 || what.tcp_flags & rule.tcp_flags.mask == rule.tcp_flags.value;
        inside(rule.sport, what.ports.0) && inside(rule.dport, what.ports.1) && flags
    })
}

#[test]
fn the_first_rule_that_matches_is_found() {
    let mut random = Random::new(7);
    for round in 0..60 {
        let n = [1, 2, 7, 30, 200, 1000][round % 6];
        let rules: Vec<Rule> = (0..n).map(|_| rule(&mut random)).collect();
        let (head, tail) = rules.split_at(n / 3);
        let lists = [ListOf { number: 4, rules: head, counters: None }, ListOf { number: 9, rules: tail, counters: None }];
        let policy = Policy::new(&lists).unwrap();
        for at in 0..400 {
            let what = what(&mut random, at % 2 == 1);
            let bytes = bytes(&what);
            for ported in [false, true] {
                let found = match what.src {
                    IpAddr::V4(_) => Four::find(&policy, &Four::look(&bytes).unwrap(), ported),
                    IpAddr::V6(_) => Six::find(&policy, &Six::look(&bytes).unwrap(), ported),
                };
                let found = found.map(|found| if found.acl == 4 { found.rule as usize } else { found.rule as usize + head.len() });
                assert_eq!(found, first(&rules, &what, ported), "{what:?} {ported}");
            }
        }
    }
}
