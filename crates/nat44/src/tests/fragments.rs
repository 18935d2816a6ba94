//! Fragments, in order and out of order (RFC 4787, REQ-14).

use super::*;
use crate::early::{HELD_MAX, HELD_SOURCE, PATIENCE};

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);

fn piece(packet: Packet, id: u16, offset: usize, more: bool, bytes: &[u8]) -> Vec<u8> {
    let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
    packet.identification(id).edit_ipv4(|h| h.fragment = quiver_wire::U16Be::new(field)).next(17).payload(bytes).build()
}

/// The three fragments of a UDP datagram.
fn pieces(packet: &Packet, id: u16, ports: (u16, u16)) -> [Vec<u8>; 3] {
    let whole = packet.clone().identification(id).udp(ports.0, ports.1).payload(&[0x55; 64]).build();
    let l4 = &whole[34..];
    [(0, 24), (24, 48), (48, l4.len())].map(|(from, to)| piece(packet.clone(), id, from, to < l4.len(), &l4[from..to]))
}

/// Puts fragments that have left together, whatever their order; the checksum must be right.
fn joined(got: &[(IfIndex, Vec<u8>)], on: IfIndex) -> Seen {
    let mut parts: Vec<_> = got.iter().map(|(_, f)| (Ipv4Header::read(&f[14..]).unwrap().fragment.get() & 0x1fff, f)).collect();
    parts.sort_by_key(|(offset, _)| *offset);
    assert!(parts.len() == 3 && got.iter().all(|(index, _)| *index == on), "{got:02x?}");
    let l4: Vec<u8> = parts.iter().flat_map(|(_, f)| f[34..].to_vec()).collect();
    let ips = parts.iter().map(|(_, f)| Ipv4Header::read(&f[14..]).unwrap());
    let ends: Vec<_> = ips.map(|ip| (ip.src.get(), ip.dst.get())).collect();
    assert!(ends.iter().all(|e| *e == ends[0]), "{ends:x?}");
    let sum = Sum::new().add_pseudo_v4(ends[0].0, ends[0].1, IpProtocol::UDP, l4.len() as u16).add_bytes(&l4);
    assert!(sum.is_valid());
    Seen {
        src: Ipv4Addr::from_bits(ends[0].0),
        dst: Ipv4Addr::from_bits(ends[0].1),
        sport: u16::from_be_bytes([l4[0], l4[1]]),
        dport: u16::from_be_bytes([l4[2], l4[3]]),
        bytes: l4,
    }
}

const ORDERS: [[usize; 3]; 4] = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]];

#[test]
fn fragments_are_translated_in_any_order_there_and_back() {
    for workers in [0, 2, 4] {
        for (n, order) in ORDERS.into_iter().enumerate() {
            let mut bed = Bed::usual(workers);
            let (id, port) = (100 + n as u16, 1025 + n as u16);
            let out = pieces(&from_inside(2), id, (port, 53));
            let frames = order.map(|at| out[at].clone());
            bed.h.inject_many(bed.inside, &frames, 1);
            let mut got = bed.h.run();
            got.extend(bed.h.run());
            got.extend(bed.h.run());
            let seen = joined(&got, bed.outside);
            assert_eq!((seen.src, seen.to()), (POOL, (REMOTE.into(), 53)), "{workers} workers, order {order:?}");
            let back = pieces(&from_outside(POOL), id, (53, seen.sport));
            let mut got = Vec::new();
            for at in order {
                got.extend(bed.send_on(1, bed.outside, back[at].clone()));
                got.extend(bed.h.run());
            }
            let seen = joined(&got, bed.inside);
            assert_eq!((seen.from(), seen.to()), ((REMOTE.into(), 53), (Ipv4Addr::new(10, 0, 0, 2), port)));
            assert_eq!((bed.count("fragment before its first"), bed.sessions()), (0, 1));
            bed.h.assert_buffers_held(0);
        }
    }
}

#[test]
fn a_fragment_waits_for_a_first_one_on_another_thread_and_not_for_ever() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        let [first, second, third] = pieces(&from_inside(2), 7, (1025, 53));
        assert_eq!(bed.send_on(1, bed.inside, second), []);
        assert_eq!(bed.send_on(0, bed.inside, third), []);
        bed.h.assert_buffers_held(2);
        assert_eq!(bed.send_on(0, bed.inside, first).len() + bed.h.run().len() + seconds(&mut bed, 1), 3);
        bed.h.assert_buffers_held(0);
        // One whose first never comes.
        let [_, lost, _] = pieces(&from_inside(2), 8, (1025, 53));
        assert_eq!(bed.send_on(1, bed.inside, lost), []);
        seconds(&mut bed, u64::from(PATIENCE) + 2);
        assert_eq!(early(&bed), 1);
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn reassembly_by_interface_comes_before_the_nat() {
    for workers in [0, 2] {
        for (how, packets) in [("ip4 shallow", 3), ("ip4", 1)] {
            let mut bed = Bed::usual(workers);
            run(&mut bed.h, &format!("set interface reassembly x0 {how}"));
            let out = pieces(&from_inside(2), 9, (1025, 53));
            let mut got = Vec::new();
            for at in [2, 0, 1] {
                got.extend(bed.send_on(1, bed.inside, out[at].clone()));
                got.extend(bed.h.run());
            }
            got.extend(bed.h.run());
            assert_eq!(got.len(), packets, "{how}, {workers} workers: {:?}", bed.h.counts());
            let seen = if packets == 1 { bed.one(got, bed.outside) } else { joined(&got, bed.outside) };
            assert_eq!((seen.src, seen.to()), (POOL, (REMOTE.into(), 53)));
            assert_eq!((early(&bed), bed.sessions()), (0, 1));
            bed.h.assert_buffers_held(0);
        }
    }
}

fn early(bed: &Bed) -> u64 {
    let text = "fragment before its first";
    bed.count(text) + crate::nodes::HANDOFF.iter().map(|node| bed.h.count(node, text)).sum::<u64>()
}

/// Lets time go by; gives the number of frames that leave.
fn seconds(bed: &mut Bed, n: u64) -> usize {
    bed.now += n * 1_000_000_000;
    bed.settle();
    bed.h.run().len() + bed.h.run().len()
}

#[test]
fn what_waits_is_bounded_and_a_source_pushes_out_its_own() {
    let mut bed = Bed::usual(0);
    let [_, quiet, _] = pieces(&from_inside(3), 1, (1025, 53));
    assert_eq!(bed.send_on(0, bed.inside, quiet), []);
    for id in 0..HELD_SOURCE as u16 + 10 {
        let [_, second, _] = pieces(&from_inside(2), id, (1025, 53));
        assert_eq!(bed.send_on(0, bed.inside, second), []);
    }
    bed.h.assert_buffers_held(1 + HELD_SOURCE as u32);
    assert_eq!(early(&bed), 10);
    for n in 0..2 * HELD_MAX {
        let [_, second, _] = pieces(&from_host([10, 1, (n >> 8) as u8, n as u8]), 1, (1025, 53));
        assert_eq!(bed.send_on(0, bed.inside, second), []);
    }
    bed.h.assert_buffers_held(HELD_MAX as u32);
    seconds(&mut bed, u64::from(PATIENCE) + 2);
    bed.h.assert_buffers_held(0);
}

#[test]
fn fragments_that_do_not_cross_the_nat_pass_at_once() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "nat44 forwarding enable");
        let [_, second, _] = pieces(&Packet::ethernet(host_mac(1), router_mac(1)).ipv4(REMOTE, [10, 0, 0, 2]), 5, (1025, 53));
        let got = bed.send_on(1, bed.outside, second);
        assert_eq!(got.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [bed.inside]);
        let [_, second, _] =
            pieces(&Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 3], [10, 0, 0, 2]), 6, (1025, 53));
        let got = bed.send_on(1, bed.inside, second);
        assert_eq!(got.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [bed.inside]);
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn nothing_waits_any_more_when_nat_is_switched_off() {
    let mut bed = Bed::usual(0);
    let [_, second, _] = pieces(&from_inside(2), 7, (1025, 53));
    assert_eq!(bed.send_on(0, bed.inside, second), []);
    run(&mut bed.h, "nat44 plugin disable");
    bed.h.assert_buffers_held(0);
}
