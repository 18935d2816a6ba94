//! Static mappings of all kinds.

use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::tcp::TcpFlags;

use super::*;

const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 20);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

#[test]
fn a_mapped_port_is_reached_from_outside_and_answers_under_its_outside_endpoint() {
    for workers in [0, 1, 2, 4] {
        let mut bed = Bed::new(workers, "nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 8080");
        let inside = bed.back(from_outside(EXTERNAL).tcp(40_000, 8080, TcpFlags::SYN));
        assert_eq!((inside.from(), inside.to()), ((REMOTE.into(), 40_000), (HOST, 80)));
        let answer = bed.out(from_inside(5).tcp(80, 40_000, TcpFlags::SYN | TcpFlags::ACK));
        assert_eq!((answer.from(), answer.to()), ((EXTERNAL, 8080), (REMOTE.into(), 40_000)));
        bed.nothing(bed.outside, from_outside(EXTERNAL).tcp(40_000, 8081, TcpFlags::SYN));
        bed.nothing(bed.outside, from_outside(EXTERNAL).udp(40_000, 8080));
        let own = bed.out(from_inside(5).tcp(80, 50_000, TcpFlags::SYN));
        assert_eq!(own.from(), (EXTERNAL, 8080), "what the host begins itself");
        bed.nothing(bed.inside, from_inside(6).udp(1, 2));
        assert_eq!(bed.count("out of ports"), 1);
        run(&mut bed.h, "nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 8080 del");
        bed.settle();
        assert_eq!(bed.sessions(), 0, "sessions go with the mapping");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn a_mapped_address_keeps_all_ports_and_protocols() {
    let mut bed = Bed::new(2, "nat44 add static mapping local 10.0.0.5 external 198.51.100.20");
    assert_eq!(bed.back(from_outside(EXTERNAL).udp(1, 4567)).to(), (HOST, 4567));
    assert_eq!(bed.out(from_inside(5).udp(4567, 1)).from(), (EXTERNAL, 4567));
    assert_eq!(bed.out(from_inside(5).tcp(3, 4, TcpFlags::SYN)).from(), (EXTERNAL, 3));
    let ping = bed.back(from_outside(EXTERNAL).echo_request(9, 1));
    assert_eq!((ping.dst, ping.identifier()), (HOST, 9));
    let reply = Icmp4Header::new(Icmp4Type::ECHO_REPLY, 0, 9 << 16 | 1);
    let out = bed.out(from_inside(5).icmp4(reply));
    assert_eq!((out.src, out.identifier()), (EXTERNAL, 9));
}

#[test]
fn an_interfaces_address_can_be_the_outside() {
    let lines = "nat44 add interface address x1\nnat44 add static mapping tcp local 10.0.0.5 22 external x1 2222";
    let mut bed = Bed::new(0, lines);
    let own = Ipv4Addr::new(198, 51, 100, 1);
    assert_eq!(bed.out(from_inside(2).udp(1, 2)).src, own);
    assert_eq!(bed.back(from_outside(own).tcp(9, 2222, TcpFlags::SYN)).to(), (HOST, 22));
    run(&mut bed.h, "set interface ip address del x1 198.51.100.1/24\nset interface ip address x1 198.51.100.7/24");
    run(&mut bed.h, "set ip neighbor x1 198.51.100.2 02:00:00:00:10:01 static\nip route add 0.0.0.0/0 via 198.51.100.2 x1");
    bed.settle();
    assert_eq!(bed.sessions(), 0, "sessions of the old address end");
    let new = Ipv4Addr::new(198, 51, 100, 7);
    assert_eq!(bed.out(from_inside(3).udp(1, 2)).src, new, "the pool follows the interface");
    assert_eq!(bed.back(from_outside(new).tcp(9, 2222, TcpFlags::SYN)).to(), (HOST, 22));
}

#[test]
fn an_identity_mapping_changes_nothing() {
    let mut bed = Bed::new(0, "nat44 add address 198.51.100.10\nnat44 add identity mapping 10.0.0.5 tcp 179");
    assert_eq!(bed.out(from_inside(5).tcp(179, 9, TcpFlags::SYN)).from(), (HOST, 179));
    assert_eq!(bed.back(from_outside(HOST).tcp(9, 179, TcpFlags::SYN)).to(), (HOST, 179));
    assert_eq!(bed.out(from_inside(5).tcp(180, 9, TcpFlags::SYN)).src, Ipv4Addr::new(198, 51, 100, 10));
}

#[test]
fn twice_nat_changes_both_ends_and_back() {
    for workers in [0, 2] {
        let lines = "nat44 add address 10.9.9.9 twice-nat\n\
             nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 80 twice-nat";
        let mut bed = Bed::new(workers, lines);
        let inside = bed.back(from_outside(EXTERNAL).tcp(40_000, 80, TcpFlags::SYN));
        assert_eq!((inside.src, inside.to()), ([10, 9, 9, 9].into(), (HOST, 80)));
        let answer = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(HOST, [10, 9, 9, 9]).tcp(80, inside.sport, TcpFlags::SYN);
        let out = bed.out(answer);
        assert_eq!((out.from(), out.to()), ((EXTERNAL, 80), (REMOTE.into(), 40_000)));
    }
}

#[test]
fn out2in_only_mappings_begin_outside() {
    let lines = "nat44 add address 198.51.100.10\n\
         nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 80 out2in-only";
    let mut bed = Bed::new(0, lines);
    assert_eq!(bed.out(from_inside(5).tcp(80, 9, TcpFlags::SYN)).src, Ipv4Addr::new(198, 51, 100, 10));
    assert_eq!(bed.back(from_outside(EXTERNAL).tcp(10, 80, TcpFlags::SYN)).to(), (HOST, 80));
    assert_eq!(bed.out(from_inside(5).tcp(80, 10, TcpFlags::ACK)).from(), (EXTERNAL, 80));
}

#[test]
fn several_hosts_share_the_work_and_a_session_stays_where_it_is() {
    for workers in [0, 4] {
        let lines = "nat44 add load-balancing static mapping protocol tcp external 198.51.100.20:80 \
             local 10.0.0.5:80 probability 1 local 10.0.0.6:8080 probability 1";
        let mut bed = Bed::new(workers, lines);
        let mut at = [0, 0];
        for port in 1000..1200 {
            let first = bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::SYN));
            let second = bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::ACK));
            assert_eq!(first.to(), second.to());
            let (n, expected) = if first.dst == HOST { (0, 80) } else { (1, 8080) };
            assert_eq!(first.dport, expected);
            at[n] += 1;
            let back = bed.out(from_inside(5 + n as u8).tcp(expected, port, TcpFlags::ACK));
            assert_eq!(back.from(), (EXTERNAL, 80));
        }
        assert!(at.iter().all(|n| *n > 60), "{at:?}");
    }
}

#[test]
fn back_ends_come_and_go_with_their_sessions() {
    let lines = "nat44 add load-balancing static mapping protocol tcp external 198.51.100.20:80 local 10.0.0.5:80 probability 1";
    let mut bed = Bed::new(0, lines);
    let back_end = "nat44 add load-balancing back-end protocol tcp external 198.51.100.20:80 local 10.0.0.6:8080 probability 1";
    run(&mut bed.h, back_end);
    let hosts = |bed: &mut Bed| {
        let to = (1000..1100).map(|port| bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::SYN)).to());
        to.fold([0, 0], |[a, b], to| if to == (HOST, 80) { [a + 1, b] } else { [a, b + usize::from(to.1 == 8080)] })
    };
    let [first, second] = hosts(&mut bed);
    assert!(first > 30 && second > 30 && first + second == 100, "{first} {second}");
    assert!(error(&mut bed.h, back_end).contains("back-end 10.0.0.6:8080 exists already"));
    run(&mut bed.h, &format!("{back_end} del"));
    bed.settle();
    assert_eq!(bed.sessions(), first as u32, "the others' sessions stay");
    assert_eq!(hosts(&mut bed), [100, 0]);
    assert!(error(&mut bed.h, &format!("{back_end} del")).contains("no back-end 10.0.0.6:8080"));
    let last = back_end.replace("10.0.0.6:8080", "10.0.0.5:80");
    assert!(error(&mut bed.h, &format!("{last} del")).contains("the only one"));
    assert!(error(&mut bed.h, &back_end.replace(":80 local", ":81 local")).contains("no load-balanced static mapping"));
}

#[test]
fn hosts_inside_reach_each_other_by_outside_endpoints() {
    for workers in [0, 1, 2, 4] {
        let lines = "nat44 add address 198.51.100.10\n\
             nat44 add static mapping tcp local 10.0.0.5 80 external 198.51.100.20 8080";
        let mut bed = Bed::new(workers, lines);
        let to_external = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], EXTERNAL);
        let got = bed.send_on(0, bed.inside, to_external.tcp(1111, 8080, TcpFlags::SYN).build());
        let seen = bed.one(got, bed.inside);
        // The source is the outside one (RFC 4787, REQ-9), so that the answer comes back here.
        assert_eq!((seen.src, seen.to()), ([198, 51, 100, 10].into(), (HOST, 80)));
        let answer = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(HOST, seen.src).tcp(80, seen.sport, TcpFlags::SYN);
        let got = bed.send_on(1, bed.inside, answer.build());
        let back = bed.one(got, bed.inside);
        assert_eq!((back.from(), back.to()), ((EXTERNAL, 8080), ([10, 0, 0, 2].into(), 1111)));
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn each_tables_hosts_have_pools_of_their_own() {
    let mut bed = Bed::new(0, "ip table add 7\nnat44 add address 198.51.100.10\nnat44 add address 198.51.100.77 tenant-vrf 7");
    let red = bed.h.interface(2);
    run(
        &mut bed.h,
        "set interface ip table x2 7\nset interface ip address x2 10.0.0.1/8\nip route add 0.0.0.0/0 table 7 via 198.51.100.2 x1",
    );
    run(&mut bed.h, "set ip neighbor x2 10.0.0.2 02:00:00:00:10:02\nset interface nat44 in x2");
    let usual = bed.out(from_inside(2).udp(5, 6));
    let packet = Packet::ethernet(host_mac(2), router_mac(2)).ipv4([10, 0, 0, 2], REMOTE).udp(5, 6).build();
    let mut sources = Vec::new();
    for port in 0..8_u16 {
        let mut frame = packet.clone();
        frame[35] = port as u8;
        // Without a checksum, so that the port can be changed here.
        frame[40..42].fill(0);
        let got = bed.send_on(0, red, frame);
        sources.push(bed.one(got, bed.outside));
    }
    assert_eq!(usual.src, Ipv4Addr::new(198, 51, 100, 10));
    let back = from_outside(sources[0].src).udp(6, sources[0].sport).build();
    let got = bed.send_on(0, bed.outside, back);
    assert_eq!((got[0].0, Seen::of(&got[0].1).dst), (red, [10, 0, 0, 2].into()), "the same address in two tables");
}

/// Client's first packet of a connection; gives the host that it went to.
fn served(bed: &mut Bed, port: u16) -> Ipv4Addr {
    bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::SYN)).dst
}

const BALANCED: &str = "nat44 add load-balancing static mapping protocol tcp external 198.51.100.20:80 local 10.0.0.5:80 probability 50 \
                        local 10.0.0.6:80 probability 50";

#[test]
fn with_affinity_a_client_comes_back_to_its_host_for_so_many_seconds() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::new(workers, &format!("{BALANCED} affinity 300"));
        let first = served(&mut bed, 1);
        assert!((2..40).all(|port| served(&mut bed, port) == first), "{workers} workers");
        // Its sessions end, and it still is bound: also where other hosts have come since.
        run(&mut bed.h, "clear nat44 ed sessions");
        bed.settle();
        assert_eq!(bed.sessions(), 0);
        run(
            &mut bed.h,
            "nat44 add load-balancing back-end protocol tcp external 198.51.100.20:80 local 10.0.0.7:80 probability 90",
        );
        bed.pass(299);
        assert_eq!(served(&mut bed, 50), first, "{workers} workers");
        run(&mut bed.h, "clear nat44 ed sessions");
        bed.settle();
        bed.pass(301);
        let hosts: std::collections::HashSet<_> = (100..140)
            .map(|port| {
                let host = served(&mut bed, port);
                run(&mut bed.h, "clear nat44 ed sessions");
                bed.settle();
                bed.pass(301);
                host
            })
            .collect();
        assert!(hosts.len() > 1, "{workers} workers: it is chosen anew, not always the same one");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn connections_of_a_balanced_mapping_go_on_when_a_host_joins() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::new(workers, BALANCED);
        let hosts: Vec<_> = (1..40).map(|port| served(&mut bed, port)).collect();
        run(
            &mut bed.h,
            "nat44 add load-balancing back-end protocol tcp external 198.51.100.20:80 local 10.0.0.7:80 probability 90",
        );
        for (port, host) in (1..40).zip(&hosts) {
            assert_eq!(bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::ACK)).dst, *host, "{workers} workers");
            let answer = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(host.octets(), REMOTE);
            assert_eq!(bed.out(answer.tcp(80, port, TcpFlags::ACK)).from(), (EXTERNAL, 80), "{workers} workers");
        }
        assert_eq!(bed.sessions(), 39);
        // One is left: the mapping is like any other.
        for host in [7, 6] {
            run(
                &mut bed.h,
                &format!("nat44 add load-balancing back-end protocol tcp external 198.51.100.20:80 local 10.0.0.{host}:80 del"),
            );
            bed.settle();
        }
        let left: Vec<_> = (1..40).zip(&hosts).filter(|(_, host)| **host == HOST).collect();
        assert_eq!(bed.sessions() as usize, left.len());
        for (port, _) in left {
            assert_eq!(bed.back(from_outside(EXTERNAL).tcp(port, 80, TcpFlags::ACK)).dst, HOST, "{workers} workers");
            assert_eq!(bed.out(from_inside(5).tcp(80, port, TcpFlags::ACK)).from(), (EXTERNAL, 80), "{workers} workers");
        }
        assert_eq!(bed.count("non-SYN packet try to create session"), 0);
    }
}

#[test]
fn seconds_of_affinity_are_kept() {
    let mut bed = Bed::new(0, &format!("{BALANCED} affinity 300"));
    assert!(run(&mut bed.h, "show nat44 static mappings").contains("affinity 300"));
    assert_eq!(bed.h.router.part::<crate::control::Nat>().unwrap().statics[0].affinity, 300);
}

/// A host of a mapping that is behind an outside interface: VPP's way of destination NAT together with the output feature.
#[test]
fn answers_that_come_in_on_an_outside_interface_are_translated_back() {
    for workers in [0, 2, 4] {
        let lines = "nat44 forwarding enable\nnat44 add address 198.51.100.10\nset interface nat44 in x0 out x0\n\
                     nat44 add static mapping tcp local 198.51.100.2 8080 external 1.2.3.4 80 out2in-only";
        let mut bed = Bed::new(workers, lines);
        let service = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 5], [1, 2, 3, 4]);
        let there = bed.out(service.tcp(12_345, 80, TcpFlags::SYN));
        assert_eq!((there.from(), there.to()), ((HOST, 12_345), (Ipv4Addr::new(198, 51, 100, 2), 8080)), "{workers} workers");
        let answer = Packet::ethernet(host_mac(1), router_mac(1)).ipv4([198, 51, 100, 2], [10, 0, 0, 5]);
        let back = bed.back(answer.tcp(8080, 12_345, TcpFlags::SYN | TcpFlags::ACK));
        assert_eq!((back.from(), back.to()), ((Ipv4Addr::new(1, 2, 3, 4), 80), (HOST, 12_345)), "{workers} workers");
        bed.h.assert_buffers_held(0);
    }
}
