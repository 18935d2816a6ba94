//! Interfaces on both sides, packets that pass untranslated, protocols without ports, connections that begin in their midst.

use quiver_wire::arp::ArpHeader;
use quiver_wire::mac::MacAddr;
use quiver_wire::tcp::TcpFlags;

use super::*;

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 20);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

#[test]
fn interfaces_that_are_inside_and_outside_translate_each_packet_once() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 8080");
        run(&mut bed.h, "set interface nat44 in x1 out x0");
        let out = bed.out(from_inside(5).udp(5000, 53).payload(b"question"));
        assert_eq!(out.src, POOL);
        assert_eq!(bed.back(from_outside(POOL).udp(53, out.sport).payload(b"answer")).to(), (HOST, 5000));
        assert_eq!(bed.sessions(), 1, "the answer begins none");
        let inside = bed.back(from_outside(EXTERNAL).tcp(40_000, 8080, TcpFlags::SYN));
        assert_eq!((inside.from(), inside.to()), ((REMOTE.into(), 40_000), (HOST, 80)));
        let answer = bed.out(from_inside(5).tcp(80, 40_000, TcpFlags::SYN | TcpFlags::ACK));
        assert_eq!(answer.from(), (EXTERNAL, 8080));
        // The plain way, of a session that is known.
        let inside = bed.back(from_outside(EXTERNAL).tcp(40_000, 8080, TcpFlags::ACK));
        assert_eq!((inside.from(), inside.to()), ((REMOTE.into(), 40_000), (HOST, 80)));
        assert_eq!(bed.sessions(), 2);
        // What nobody asked for begins nothing.
        bed.nothing(bed.outside, from_outside(POOL).udp(53, 9).payload(b"scan"));
        assert_eq!((bed.count("no translation"), bed.sessions()), (1, 2));
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn answers_to_a_connection_that_was_passed_on_are_not_translated() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "nat44 forwarding enable");
        for host in 2..8 {
            let to = Ipv4Addr::new(10, 0, 0, host);
            assert_eq!(bed.back(from_outside(to).tcp(40_000, 80, TcpFlags::SYN)).to(), (to, 80));
            assert_eq!(bed.out(from_inside(host).tcp(80, 40_000, TcpFlags::SYN | TcpFlags::ACK)).from(), (to, 80));
            assert_eq!(bed.back(from_outside(to).tcp(40_000, 80, TcpFlags::ACK)).to(), (to, 80));
            assert_eq!(bed.out(from_inside(host).tcp(40_001, 80, TcpFlags::SYN)).src, POOL, "its own is");
        }
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn answers_of_protocols_without_ports_reach_their_session_on_any_thread() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::usual(workers);
        for n in 2..10_u8 {
            let remote = [203, 0, 113, n];
            let esp = |packet: Packet| packet.next(50).payload(&[0, 0, 1, 0, 0, 0, 0, 1, 0xaa, 0xbb]);
            let there = esp(Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, n], remote)).build();
            let got = bed.send_on(n.into(), bed.inside, there);
            assert_eq!(bed.one(got, bed.outside).src, POOL);
            let back = esp(Packet::ethernet(host_mac(1), router_mac(1)).ipv4(remote, POOL)).build();
            let got = bed.send_on(usize::from(n) + 1, bed.outside, back);
            assert_eq!(bed.one(got, bed.inside).dst, Ipv4Addr::new(10, 0, 0, n), "{workers} workers");
        }
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn a_connection_that_nobody_knows_begins_with_its_syn_only() {
    let mut bed = Bed::usual(1);
    run(&mut bed.h, "nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 80");
    for flags in [TcpFlags::ACK, TcpFlags::SYN | TcpFlags::ACK, TcpFlags::RST, TcpFlags::FIN | TcpFlags::ACK] {
        bed.nothing(bed.inside, from_inside(2).tcp(40_000, 80, flags));
        bed.nothing(bed.outside, from_outside(EXTERNAL).tcp(40_000, 80, flags));
    }
    assert_eq!((bed.count("non-SYN packet try to create session"), bed.sessions()), (8, 0));
    assert_eq!(run(&mut bed.h, "show nat44 tcp-non-syn"), "tcp-non-syn drop\n");
    run(&mut bed.h, "nat44 tcp-non-syn translate");
    assert_eq!(run(&mut bed.h, "show nat44 tcp-non-syn"), "tcp-non-syn translate\n");
    assert_eq!(bed.out(from_inside(2).tcp(40_000, 80, TcpFlags::ACK)).src, POOL);
    assert_eq!(bed.back(from_outside(EXTERNAL).tcp(40_000, 80, TcpFlags::ACK)).to(), (HOST, 80));
    run(&mut bed.h, "nat44 tcp-non-syn drop");
    bed.nothing(bed.inside, from_inside(3).tcp(40_000, 80, TcpFlags::ACK));
}

#[test]
fn connections_that_no_pool_is_for_pass_from_their_syn_on() {
    let mut bed = Bed::new(0, "nat44 forwarding enable");
    for flags in [TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN | TcpFlags::ACK] {
        assert_eq!(bed.out(from_inside(5).tcp(40_000, 80, flags)).from(), (HOST, 40_000));
    }
    bed.h.assert_buffers_held(0);
}

#[test]
fn a_host_keeps_its_port_where_nobody_else_has_it() {
    let mut bed = Bed::usual(0);
    for port in [1024, 4500, 65_535] {
        assert_eq!(bed.out(from_inside(2).udp(port, 53)).from(), (POOL, port));
        assert_ne!(bed.out(from_inside(3).udp(port, 53)).from(), (POOL, port), "it is taken");
    }
    assert!(bed.out(from_inside(2).udp(500, 53)).sport >= 1024, "of a service");
}

#[test]
fn a_pool_makes_the_table_that_it_is_for() {
    let mut bed = Bed::usual(0);
    assert!(error(&mut bed.h, "nat44 add address 198.51.100.10 tenant-vrf 9").contains("198.51.100.10"));
    assert!(!run(&mut bed.h, "show ip table").contains("table_id:9"), "what is refused makes none");
    run(&mut bed.h, "nat44 add address 198.51.100.13 tenant-vrf 9");
    assert!(run(&mut bed.h, "show ip table").contains("table_id:9"));
}

#[test]
fn arp_is_answered_for_the_pool_and_proxy_arp_stays_as_it_was_configured() {
    let mut bed = Bed::usual(0);
    let asked = |bed: &mut Bed, index: IfIndex, port: u8, target: Ipv4Addr| {
        let sender = (host_mac(port), Ipv4Addr::from(if port == 0 { [10, 0, 0, 2] } else { [198, 51, 100, 2] }));
        let frame = Packet::ethernet(host_mac(port), MacAddr::BROADCAST).arp(ArpHeader::request(sender, target)).build();
        !bed.send_on(0, index, frame).is_empty()
    };
    let (inside, outside) = (bed.inside, bed.outside);
    let configured = Ipv4Addr::new(192, 0, 2, 1);
    run(&mut bed.h, "set arp proxy table-id 0 start 192.0.2.1 end 192.0.2.1\nset interface proxy-arp x0 enable");
    assert!(asked(&mut bed, outside, 1, POOL) && !asked(&mut bed, inside, 0, POOL));
    assert!(asked(&mut bed, inside, 0, configured) && !asked(&mut bed, outside, 1, configured));
    let on = |bed: &Bed| (bed.h.router.proxy_arp(inside), bed.h.router.proxy_arp(outside), bed.h.router.proxy_ranges().len());
    assert_eq!(on(&bed), (true, false, 1));
    assert!(run(&mut bed.h, "show arp proxy").contains("198.51.100.10 - 198.51.100.10"));
    // The sides change places and go: what NAT needs goes with them, what is configured does not.
    run(&mut bed.h, "set interface nat44 in x0 out x1 del\nset interface nat44 in x1 out x0");
    assert!(!asked(&mut bed, outside, 1, POOL) && asked(&mut bed, inside, 0, POOL) && asked(&mut bed, inside, 0, configured));
    run(&mut bed.h, "nat44 plugin disable");
    assert!(!asked(&mut bed, inside, 0, POOL) && asked(&mut bed, inside, 0, configured));
    assert_eq!(on(&bed), (true, false, 1));
}
