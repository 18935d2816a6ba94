//! Sessions go on when workers come and go.

use quiver_graph::ThreadPlan;
use quiver_wire::tcp::TcpFlags;

use super::*;

const LINES: &str = "nat44 add address 198.51.100.10\n\
                     nat44 add address 198.51.100.11 tenant-vrf 0\n\
                     nat44 add static mapping tcp local 10.0.0.3 22 external 198.51.100.20 2222\n\
                     nat44 add load-balancing static mapping protocol tcp external 198.51.100.21:80 local 10.0.0.4:80 probability 50 \
                     local 10.0.0.5:80 probability 50 affinity 60";
const SERVICES: [(Ipv4Addr, u16); 2] = [(Ipv4Addr::new(198, 51, 100, 20), 2222), (Ipv4Addr::new(198, 51, 100, 21), 80)];

fn set(bed: &mut Bed, workers: usize) {
    bed.h.router.set_workers(&vec![ThreadPlan::default(); workers]).unwrap();
    bed.h.run();
}

/// A segment of an open connection there and back: by which endpoint it goes.
fn segment(bed: &mut Bed, host: u8, port: u16, flags: [TcpFlags; 2]) -> (Ipv4Addr, u16) {
    let outside = bed.out(from_inside(host).tcp(port, 443, flags[0])).from();
    let back = bed.back(from_outside(outside.0).tcp(443, outside.1, flags[1]));
    assert_eq!(back.to(), (Ipv4Addr::new(10, 0, 0, host), port));
    outside
}

#[test]
fn connections_go_on_when_workers_come_and_go() {
    let flows: Vec<(u8, u16)> = (2..11).flat_map(|host| (0..6).map(move |n| (host, 2000 + 9000 * n))).collect();
    let mut bed = Bed::new(2, LINES);
    let syn = [TcpFlags::SYN, TcpFlags::SYN | TcpFlags::ACK];
    let outside: Vec<_> = flows.iter().map(|(host, port)| segment(&mut bed, *host, *port, syn)).collect();
    let served: Vec<_> =
        SERVICES.iter().map(|(addr, port)| bed.back(from_outside(*addr).tcp(7, *port, TcpFlags::SYN)).to()).collect();
    let sessions = bed.sessions();
    for workers in [4, 1, 3, 0, 2, 4] {
        set(&mut bed, workers);
        assert_eq!(bed.sessions(), sessions, "{workers} workers");
        for ((host, port), outside) in flows.iter().zip(&outside) {
            assert_eq!(segment(&mut bed, *host, *port, [TcpFlags::ACK; 2]), *outside, "{workers} workers");
        }
        for (((addr, port), to), n) in SERVICES.iter().zip(&served).zip(0..) {
            assert_eq!(bed.back(from_outside(*addr).tcp(7, *port, TcpFlags::ACK)).to(), *to, "{workers} workers, service {n}");
            let answer = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(to.0.octets(), REMOTE);
            assert_eq!(bed.out(answer.tcp(to.1, 7, TcpFlags::ACK)).from(), (*addr, *port), "{workers} workers, service {n}");
        }
        // New ones begin as ever, and get ports that nobody has.
        let new = segment(&mut bed, 2, 30_000 + workers as u16, syn);
        assert!(!outside.contains(&new));
        run(&mut bed.h, &format!("nat44 del session in 10.0.0.2:{} tcp external-host 203.0.113.9:443", 30_000 + workers));
        assert_eq!(bed.sessions(), sessions, "{workers} workers");
    }
    assert_eq!((bed.count("no translation"), bed.count("non-SYN packet try to create session")), (0, 0));
    bed.h.assert_buffers_held(0);
}

#[test]
fn endpoints_that_are_independent_of_the_remote_stay_so() {
    let mut bed = Bed::new(4, "nat44 add address 198.51.100.10 endpoint-independent");
    let remote = |n: u8, host: u8| Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, host], [203, 0, 113, n]);
    let outside: Vec<_> = (2..11).map(|host| bed.out(remote(1, host).udp(4000, 9)).from()).collect();
    for workers in [1, 3, 2] {
        set(&mut bed, workers);
        for (host, outside) in (2..11).zip(&outside) {
            assert_eq!(bed.out(remote(10 + workers as u8, host).udp(4000, 9)).from(), *outside, "{workers} workers");
        }
    }
}

#[test]
fn what_has_moved_and_ended_is_forgotten() {
    let mut bed = Bed::new(4, LINES);
    for host in 2..11 {
        bed.out(from_inside(host).udp(4000, 9));
    }
    set(&mut bed, 3);
    let moved = |bed: &Bed| !bed.h.router.part::<crate::control::Nat>().unwrap().config.moved.is_empty();
    assert!(moved(&bed), "some of nine hosts belong to other threads than their ports");
    run(&mut bed.h, "clear nat44 ed sessions");
    bed.settle();
    for _ in 0..20 {
        bed.pass(1);
    }
    assert!(!moved(&bed));
}
