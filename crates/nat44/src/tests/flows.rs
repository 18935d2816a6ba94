//! Flows of every kind, there and back.

use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::tcp::TcpFlags;

use super::*;

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[test]
fn udp_goes_out_under_an_outside_endpoint_and_comes_back() {
    for workers in [0, 1, 2, 4] {
        let mut bed = Bed::usual(workers);
        let out = bed.out(from_inside(2).udp(1025, 53).payload(b"question"));
        assert_eq!((out.src, out.to()), (POOL, (REMOTE.into(), 53)));
        assert!(out.sport >= 1024);
        for thread in 0..4 {
            let answer = from_outside(POOL).udp(53, out.sport).payload(b"answer");
            let got = bed.send_on(thread, bed.outside, answer.build());
            let back = bed.one(got, bed.inside);
            assert_eq!((back.from(), back.to()), ((REMOTE.into(), 53), (HOST, 1025)));
            assert!(back.bytes.ends_with(b"answer"));
        }
        let again = bed.out(from_inside(2).udp(1025, 53).payload(b"question"));
        assert_eq!((again.sport, bed.sessions()), (out.sport, 1));
        let other = bed.out(from_inside(2).udp(1026, 53).payload(b"question"));
        assert!(other.sport != out.sport && other.src == POOL, "the same address for all flows of a host");
        bed.nothing(bed.outside, from_outside(POOL).udp(54, out.sport));
        bed.nothing(bed.outside, Packet::ethernet(host_mac(1), router_mac(1)).ipv4([203, 0, 113, 10], POOL).udp(53, out.sport));
        assert_eq!(bed.count("no translation"), 2);
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn vectors_of_all_sizes_are_translated_each_packet_its_own_way() {
    for n in [1, 31, 32, 33, 255, 256, 257] {
        let mut bed = Bed::usual(1);
        for round in 0..2 {
            let frames: Vec<_> = (0..n).map(|k| from_host([10, 1, (k >> 8) as u8, k as u8]).udp(1000, 2000).build()).collect();
            bed.h.inject_many(bed.inside, &frames, 0);
            let mut ports: Vec<u16> = bed.h.run().iter().map(|(_, f)| Seen::of(f).sport).collect();
            ports.sort_unstable();
            ports.dedup();
            assert_eq!((ports.len(), bed.sessions()), (n, n as u32), "round {round}: {:?}", bed.h.counts());
        }
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn a_udp_packet_without_checksum_stays_without() {
    let mut bed = Bed::usual(0);
    for _ in 0..2 {
        let out = bed.out(from_inside(2).udp(1025, 53).checksum(0).payload(b"x"));
        assert_eq!(&out.bytes[40..42], [0, 0]);
    }
}

#[test]
fn tcp_is_followed_from_syn_to_fin() {
    let mut bed = Bed::usual(1);
    let syn = bed.out(from_inside(2).tcp(40_000, 80, TcpFlags::SYN));
    let flags = |s: &mut Bed| {
        let thread = crate::control::threads(&s.h.router)[0];
        let (list, _) = crate::control::dump(&mut s.h.router, thread, 0, 10);
        crate::session::tcp::is_established(list[0].1.tcp)
    };
    assert!(!flags(&mut bed));
    bed.back(from_outside(POOL).tcp(80, syn.sport, TcpFlags::SYN | TcpFlags::ACK));
    assert!(flags(&mut bed));
    bed.out(from_inside(2).tcp(40_000, 80, TcpFlags::ACK).payload(b"GET /"));
    bed.pass(7000);
    assert_eq!(bed.sessions(), 1, "an open connection lives for 7,440 s");
    bed.out(from_inside(2).tcp(40_000, 80, TcpFlags::FIN | TcpFlags::ACK));
    bed.back(from_outside(POOL).tcp(80, syn.sport, TcpFlags::FIN | TcpFlags::ACK));
    assert!(!flags(&mut bed));
    bed.pass(230);
    assert_eq!(bed.sessions(), 1);
    bed.pass(15);
    assert_eq!(bed.sessions(), 0, "a closed one for 240 s");
}

#[test]
fn echo_has_its_identifier_translated() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        let out = bed.out(from_inside(2).echo_request(77, 1).payload(b"ping"));
        assert_eq!(out.src, POOL);
        let other = bed.out(from_inside(3).echo_request(77, 1).payload(b"ping"));
        assert_ne!(out.identifier(), other.identifier(), "two hosts with the same identifier");
        let reply = Icmp4Header::new(Icmp4Type::ECHO_REPLY, 0, u32::from(out.identifier()) << 16 | 1);
        let back = bed.back(from_outside(POOL).icmp4(reply).payload(b"ping"));
        assert_eq!((back.dst, back.identifier()), (HOST, 77));
        bed.pass(61);
        assert_eq!(bed.sessions(), 0);
    }
}

/// An ICMP error from `source` about a packet that has left.
fn about(source: [u8; 4], to: Ipv4Addr, seen: &Seen, macs: u8) -> Packet {
    let header = Icmp4Header::new(Icmp4Type::DESTINATION_UNREACHABLE, 4, 1400);
    Packet::ethernet(host_mac(macs), router_mac(macs)).ipv4(source, to).icmp4(header).payload(&seen.bytes[14..14 + 28])
}

#[test]
fn errors_about_translated_packets_reach_their_host_with_the_packet_as_it_sent_it() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        let request = from_inside(2).udp(1025, 53).payload(b"question");
        let out = bed.out(request.clone());
        // A router on the way is not the flow's other end: its address stays.
        let back = bed.back(about([192, 0, 2, 77], POOL, &out, 1));
        assert_eq!((back.src, back.dst), (Ipv4Addr::new(192, 0, 2, 77), HOST));
        let inner = &back.bytes[42..];
        let ip = Ipv4Header::parse(&[inner, &[0; 40]].concat()).or_else(|e| Ipv4Header::read(inner).ok_or(e)).unwrap();
        assert_eq!((Ipv4Addr::from_bits(ip.src.get()), Ipv4Addr::from_bits(ip.dst.get())), (HOST, Ipv4Addr::from(REMOTE)));
        // As it was sent, but for the TTL that routers took.
        let sent = request.ttl(63).build();
        assert_eq!(inner[..28], sent[14..42], "addresses, ports and both checksums");
        let mut wrong = about([192, 0, 2, 77], POOL, &out, 1).build();
        wrong[36] ^= 1;
        assert_eq!(bed.send_on(0, bed.outside, wrong), []);
        assert_eq!(bed.count("wrong ICMP checksum") + bed.h.count("nat44-ed-out2in", "no translation"), 1);
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn errors_from_inside_do_not_show_who_sent_them() {
    let mut bed = Bed::usual(1);
    let out = bed.out(from_inside(2).udp(1025, 53).payload(b"question"));
    let back = bed.back(from_outside(POOL).udp(53, out.sport).payload(b"answer"));
    let got = bed.out(about([10, 0, 0, 99], REMOTE.into(), &back, 0));
    assert_eq!((got.src, got.dst), (POOL, REMOTE.into()));
    let inner = Ipv4Header::read(&got.bytes[42..]).unwrap();
    assert_eq!(Ipv4Addr::from_bits(inner.dst.get()), POOL);
    assert_eq!(u16::from_be_bytes([got.bytes[64], got.bytes[65]]), out.sport);
}

#[test]
fn an_error_about_no_session_is_dropped() {
    let mut bed = Bed::usual(0);
    let seen = Seen::of(&Packet::ethernet(host_mac(0), router_mac(0)).ipv4(POOL, REMOTE).udp(5000, 53).payload(&[0; 8]).build());
    bed.nothing(bed.outside, about([192, 0, 2, 77], POOL, &seen, 1));
    assert_eq!((bed.count("no translation"), bed.sessions()), (1, 0));
}

#[test]
fn protocols_without_ports_are_translated_by_address() {
    let mut bed = Bed::usual(1);
    let gre = |from: Packet| from.next(47).payload(&[0, 0, 8, 0, 1, 2, 3, 4]);
    let out = bed.out(gre(from_inside(2)));
    assert_eq!(out.src, POOL);
    assert_eq!(bed.back(gre(from_outside(POOL))).dst, HOST);
    bed.nothing(bed.inside, gre(from_inside(3)));
    assert_eq!(bed.count("out of ports"), 1, "one host a remote host and outside address");
}

#[test]
fn what_does_not_cross_the_nat_is_left_alone() {
    let mut bed = Bed::usual(0);
    let got = bed.h.exchange(
        bed.inside,
        &Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).echo_request(1, 1).build(),
    );
    assert_eq!(got.len(), 1, "the router answers: {:?}", bed.h.counts());
    let got = bed.h.exchange(
        bed.outside,
        &Packet::ethernet(host_mac(1), router_mac(1)).ipv4(REMOTE, [198, 51, 100, 1]).echo_request(1, 1).build(),
    );
    assert_eq!(got.len(), 1, "on its outside address too: {:?}", bed.h.counts());
    let got = bed
        .h
        .exchange(bed.inside, &Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 0, 3]).udp(1, 2).build());
    assert_eq!(Seen::of(&got[0].1).src, HOST, "between hosts inside");
    assert_eq!(bed.sessions(), 0);
    // From outside straight to an inside address.
    bed.nothing(bed.outside, from_outside(HOST).udp(1, 2));
    run(&mut bed.h, "nat44 forwarding enable");
    assert_eq!(bed.back(from_outside(HOST).udp(1, 2)).to(), (HOST, 2));
}

#[test]
fn what_will_not_leave_is_answered_as_it_came() {
    let mut bed = Bed::usual(1);
    let about = |got: &[(IfIndex, Vec<u8>)]| {
        assert_eq!(got.len(), 1);
        let seen = Seen::of(&got[0].1);
        let inner = Ipv4Header::read(&got[0].1[42..]).unwrap();
        (got[0].0, seen.dst, got[0].1[34], Ipv4Addr::from_bits(inner.src.get()))
    };
    let got = bed.send_on(0, bed.inside, from_inside(2).udp(1025, 53).ttl(1).payload(b"traceroute").build());
    assert_eq!((about(&got), bed.sessions()), ((bed.inside, HOST, 11, HOST), 0));
    let out = bed.out(from_inside(2).udp(1025, 53).payload(b"question"));
    let got = bed.send_on(0, bed.outside, from_outside(POOL).udp(53, out.sport).ttl(1).payload(b"answer").build());
    assert_eq!(about(&got), (bed.outside, REMOTE.into(), 11, REMOTE.into()));
    run(&mut bed.h, "set interface mtu packet 1000 x1");
    let long = from_inside(2).dont_fragment().udp(1025, 53).payload(&[0; 1100]).build();
    let got = bed.send_on(0, bed.inside, long);
    assert_eq!(about(&got), (bed.inside, HOST, 3, HOST));
    assert_eq!(u16::from_be_bytes([got[0].1[40], got[0].1[41]]), 1000, "the next hop's MTU");
    let got = bed.send_on(0, bed.inside, from_inside(2).udp(1025, 53).payload(&[0; 1100]).build());
    assert_eq!(got.len(), 2, "translated, then fragmented");
    let got = bed.send_on(
        0,
        bed.inside,
        Packet::ethernet(host_mac(0), router_mac(0)).ipv4(HOST, [10, 0, 0, 1]).ttl(1).echo_request(1, 1).build(),
    );
    assert_eq!(got.len(), 1, "for the router itself any TTL will do");
}
