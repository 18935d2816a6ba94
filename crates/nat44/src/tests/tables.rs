//! Outside interfaces of other tables.

use quiver_wire::arp::ArpHeader;
use quiver_wire::mac::MacAddr;

use super::*;

const POOL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const FAR: [u8; 4] = [192, 0, 2, 2];

/// An interface of a table, with a neighbour.
fn add(bed: &mut Bed, n: u8, table: u32, address: &str, neighbor: Ipv4Addr) -> IfIndex {
    let index = bed.h.interface(n);
    run(&mut bed.h, &format!("set interface ip table x{n} {table}\nset interface ip address x{n} {address}"));
    run(&mut bed.h, &format!("set ip neighbor x{n} {neighbor} {} static", host_mac(n)));
    index
}

fn there_and_back(bed: &mut Bed, (from, host): (IfIndex, Packet), outside: (IfIndex, u8), inside: (Ipv4Addr, u16)) {
    let got = bed.send_on(0, from, host.build());
    let out = bed.one(got, outside.0);
    assert_eq!((out.src, out.to()), (POOL, (FAR.into(), 53)));
    for thread in 0..2 {
        let n = outside.1;
        let answer = Packet::ethernet(host_mac(n), router_mac(n)).ipv4(FAR, POOL).udp(53, out.sport).payload(b"answer");
        let got = bed.send_on(thread, outside.0, answer.build());
        assert_eq!(bed.one(got, from).to(), inside);
    }
}

#[test]
fn an_outside_interface_of_another_table_is_found_where_the_hosts_own_has_no_route() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "ip route del 0.0.0.0/0 via 198.51.100.2 x1\nip table add 34");
        let outside = add(&mut bed, 2, 34, "192.0.2.1/24", FAR.into());
        let host = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], FAR).udp(1025, 53).payload(b"question");
        run(&mut bed.h, "set interface nat44 out x2");
        let inside = bed.inside;
        there_and_back(&mut bed, (inside, host), (outside, 2), (Ipv4Addr::new(10, 0, 0, 2), 1025));
        assert_eq!(bed.sessions(), 1);
        let request = ArpHeader::request((host_mac(2), FAR.into()), POOL);
        let frame = Packet::ethernet(host_mac(2), MacAddr::BROADCAST).arp(request).build();
        assert_eq!(bed.send_on(0, outside, frame).len(), 1, "ARP is answered in that table");
        bed.h.assert_buffers_held(0);
    }
}

#[test]
fn output_feature_translates_within_a_table_and_follows_the_interface_to_another() {
    for workers in [0, 2] {
        let mut bed = Bed::usual(workers);
        run(&mut bed.h, "ip table add 22");
        let index = bed.h.interface(4);
        run(&mut bed.h, "set interface nat44 out x4 output-feature");
        let from = add(&mut bed, 3, 22, "172.16.0.1/24", Ipv4Addr::new(172, 16, 0, 2));
        run(&mut bed.h, "set interface ip table x4 22\nset interface ip address x4 192.0.2.1/24");
        run(&mut bed.h, &format!("set ip neighbor x4 192.0.2.2 {} static", host_mac(4)));
        let host = Packet::ethernet(host_mac(3), router_mac(3)).ipv4([172, 16, 0, 2], FAR).udp(1025, 53).payload(b"question");
        there_and_back(&mut bed, (from, host), (index, 4), (Ipv4Addr::new(172, 16, 0, 2), 1025));
        let fibs = bed.h.router.part::<crate::control::Nat>().unwrap().config.outside_fibs.len();
        assert_eq!(fibs, 2, "table 0 and table 22");
        bed.h.assert_buffers_held(0);
    }
}
