//! Scenarios over the whole graph.

use std::net::Ipv4Addr;

use quiver_graph::IfIndex;
use quiver_net::testing::{Harness, error, host_mac, index, router_mac, run};
use quiver_wire::Header;
use quiver_wire::build::Packet;
use quiver_wire::checksum::Sum;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};

mod api;
mod commands;
mod flows;
mod fragments;
mod hairpin;
mod independent;
mod ipfix;
mod limits;
mod mappings;
mod model;
mod restart;
mod sides;
mod spread;
mod tables;

/// x0 inside with 10.0.0.1/8, x1 outside with 198.51.100.1/24, behind which everything else is.
struct Bed {
    h: Harness,
    inside: IfIndex,
    outside: IfIndex,
    now: u64,
}

const REMOTE: [u8; 4] = [203, 0, 113, 9];

impl Bed {
    fn new(workers: usize, lines: &str) -> Self {
        let mut h = Harness::with_plugin(&crate::plugin(), workers, 2);
        let (inside, outside) = (index(&h, "x0"), index(&h, "x1"));
        run(&mut h, "set interface ip address x0 10.0.0.1/8\nset interface ip address x1 198.51.100.1/24");
        run(&mut h, "set ip neighbor x1 198.51.100.2 02:00:00:00:10:01 static\nip route add 0.0.0.0/0 via 198.51.100.2 x1");
        for n in 2..12 {
            run(&mut h, &format!("set ip neighbor x0 10.0.0.{n} 02:00:00:00:10:00 static"));
        }
        if !lines.contains("nat44 plugin enable") {
            run(&mut h, "nat44 plugin enable");
        }
        run(&mut h, lines);
        run(&mut h, "set interface nat44 in x0 out x1");
        let now = h.router.graph.clock().timer_now();
        let mut bed = Self { h, inside, outside, now };
        bed.settle();
        bed.h.run();
        bed
    }

    /// With one address in the pool.
    fn usual(workers: usize) -> Self {
        Self::new(workers, "nat44 add address 198.51.100.10")
    }

    fn settle(&mut self) {
        self.h.router.wake_process(crate::process::NAME, 0);
        while self.h.router.run_processes(self.now).is_some_and(|due| due <= self.now) {}
    }

    fn pass(&mut self, seconds: u64) {
        self.now += seconds * 1_000_000_000;
        self.settle();
        // What other modules send as time goes by is not looked at.
        self.h.run();
    }

    /// Puts a frame in on a thread and gives what leaves, also by way of other threads.
    fn send_on(&mut self, thread: usize, from: IfIndex, frame: Vec<u8>) -> Vec<(IfIndex, Vec<u8>)> {
        self.h.inject_many(from, &[frame], thread);
        let mut out = self.h.run();
        out.extend(self.h.run());
        out
    }

    /// What comes of a packet from inside: exactly one on the outside.
    fn out(&mut self, packet: Packet) -> Seen {
        let got = self.send_on(0, self.inside, packet.build());
        self.one(got, self.outside)
    }

    /// What comes of a packet from outside: exactly one on the inside.
    fn back(&mut self, packet: Packet) -> Seen {
        let got = self.send_on(0, self.outside, packet.build());
        self.one(got, self.inside)
    }

    fn one(&self, got: Vec<(IfIndex, Vec<u8>)>, on: IfIndex) -> Seen {
        assert_eq!(got.len(), 1, "one packet leaves; counters: {:?}", self.h.counts());
        assert_eq!(got[0].0, on);
        Seen::of(&got[0].1)
    }

    fn nothing(&mut self, from: IfIndex, packet: Packet) {
        let got = self.send_on(0, from, packet.build());
        assert_eq!(got, [], "nothing leaves");
    }

    fn sessions(&mut self) -> u32 {
        crate::control::threads(&self.h.router)
            .into_iter()
            .map(|t| crate::control::on_thread(&mut self.h.router, t, |nat| nat.sessions.len()).unwrap())
            .sum()
    }

    fn count(&self, text: &str) -> u64 {
        crate::nodes::TRANSLATE.iter().map(|node| self.h.count(node, text)).sum()
    }
}

/// A packet that has left, its checksums found right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    sport: u16,
    dport: u16,
    bytes: Vec<u8>,
}

impl Seen {
    fn of(frame: &[u8]) -> Self {
        let ip = Ipv4Header::parse(&frame[14..]).expect("a right IPv4 header");
        let l4 = &frame[14 + ip.header_len()..14 + usize::from(ip.total_len.get())];
        let word = |at: usize| u16::from_be_bytes([l4[at], l4[at + 1]]);
        let whole = !ip.is_fragment();
        let sum = match ip.protocol {
            IpProtocol::ICMP => Sum::of(l4),
            p => Sum::new().add_pseudo_v4(ip.src.get(), ip.dst.get(), p, l4.len() as u16).add_bytes(l4),
        };
        let no_sum = ip.protocol == IpProtocol::UDP && word(6) == 0;
        if whole && [IpProtocol::ICMP, IpProtocol::UDP, IpProtocol::TCP].contains(&ip.protocol) {
            assert!(no_sum || sum.is_valid(), "checksum of {frame:02x?}");
        }
        let (src, dst) = (Ipv4Addr::from_bits(ip.src.get()), Ipv4Addr::from_bits(ip.dst.get()));
        Self { src, dst, sport: word(0), dport: word(2), bytes: frame.to_vec() }
    }

    fn from(&self) -> (Ipv4Addr, u16) {
        (self.src, self.sport)
    }

    fn to(&self) -> (Ipv4Addr, u16) {
        (self.dst, self.dport)
    }

    /// Identifier of an ICMP query.
    fn identifier(&self) -> u16 {
        u16::from_be_bytes([self.bytes[38], self.bytes[39]])
    }
}

fn from_inside(host: u8) -> Packet {
    from_host([10, 0, 0, host])
}

fn from_host(host: [u8; 4]) -> Packet {
    Packet::ethernet(host_mac(0), router_mac(0)).ipv4(host, REMOTE)
}

fn from_outside(to: Ipv4Addr) -> Packet {
    Packet::ethernet(host_mac(1), router_mac(1)).ipv4(REMOTE, to)
}
