//! Hosts inside that reach each other by their outside endpoints.

use quiver_wire::tcp::TcpFlags;

use super::*;

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 20);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

fn between(from: [u8; 4], to: Ipv4Addr) -> Packet {
    Packet::ethernet(host_mac(0), router_mac(0)).ipv4(from, to)
}

/// What comes of a packet from inside that stays inside: exactly one.
fn turned(bed: &mut Bed, packet: Packet) -> Seen {
    let mut got = bed.send_on(0, bed.inside, packet.build());
    got.extend(bed.h.run());
    bed.one(got, bed.inside)
}

#[test]
fn a_host_reaches_another_by_its_outside_address_with_all_protocols() {
    for workers in [0, 2, 4] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "nat44 add static mapping local 10.0.0.5 external 198.51.100.20");
        for host in 2..5 {
            let own = [10, 0, 0, host];
            let there = turned(&mut bed, between(own, EXTERNAL).tcp(1234, 8765, TcpFlags::SYN));
            assert_eq!((there.src, there.to()), (POOL, (SERVER, 8765)), "{workers} workers");
            let back = turned(&mut bed, between(SERVER.octets(), POOL).tcp(8765, there.sport, TcpFlags::SYN | TcpFlags::ACK));
            assert_eq!((back.from(), back.to()), ((EXTERNAL, 8765), (own.into(), 1234)));
            bed.h.assert_buffers_held(0);
        }
        let gre = |packet: Packet| packet.next(47).payload(&[0, 0, 8, 0, 0xaa, 0xbb, 0xcc, 0xdd]);
        let there = turned(&mut bed, gre(between([10, 0, 0, 2], EXTERNAL)));
        assert_eq!((there.src, there.dst), (POOL, SERVER), "{workers} workers");
        let back = turned(&mut bed, gre(between(SERVER.octets(), POOL)));
        assert_eq!((back.src, back.dst), (EXTERNAL, Ipv4Addr::new(10, 0, 0, 2)), "{workers} workers");
        bed.h.assert_buffers_held(0);
    }
}

/// An interface that had been outside kept what followed there: between hosts inside packets went on without translation.
#[test]
fn an_interface_that_was_outside_once_turns_packets_round() {
    for workers in [0, 4] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "nat44 add static mapping local 10.0.0.5 external 198.51.100.20");
        run(&mut bed.h, "set interface nat44 out x0\nset interface nat44 out x0 del");
        for host in 2..5 {
            let there = turned(&mut bed, between([10, 0, 0, host], EXTERNAL).tcp(1234, 8765, TcpFlags::SYN));
            assert_eq!((there.src, there.to()), (POOL, (SERVER, 8765)), "{workers} workers");
        }
        bed.h.assert_buffers_held(0);
    }
}
