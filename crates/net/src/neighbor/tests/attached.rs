//! Neighbours that a route to their link covers, not a prefix of an own address.

use super::*;
use crate::fib::{Hop, Path, Source};

fn to_link(interface: IfIndex) -> Vec<Path> {
    vec![Path::new(Hop::Attached { interface, source: None })]
}

const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 5);

/// Numbers of the packets that left for this MAC address, of 200 that were sent to a host.
fn forwarded(h: &mut Harness, from: IfIndex, to: Ipv4Addr, mac: MacAddr) -> usize {
    let frames: Vec<Vec<u8>> = (0..200).map(|n| packet(to, n)).collect();
    h.inject_many(from, &frames, 0);
    let out = h.run();
    assert!(requests(&out).is_empty(), "nobody is asked for");
    packets(&out).iter().filter(|(m, _)| *m == mac).count()
}

#[test]
fn a_known_neighbour_of_a_route_to_its_link_gets_every_packet() {
    for workers in [0, 2] {
        for route_first in [true, false] {
            let (mut h, x) = bed(workers, 2);
            let prefix = "10.9.0.0/24".parse().unwrap();
            if route_first {
                h.router.add_route(0, prefix, Source::Cli, to_link(x[1])).unwrap();
            }
            h.router.add_neighbor(x[1], NEIGHBOR.into(), host_mac(5), true, false).unwrap();
            if !route_first {
                assert_eq!(h.router.route_lookup(0, NEIGHBOR.into()).unwrap().prefix_len, 0);
                h.router.add_route(0, prefix, Source::Cli, to_link(x[1])).unwrap();
            }
            assert_eq!(forwarded(&mut h, x[0], NEIGHBOR, host_mac(5)), 200);
            h.router.remove_route(0, prefix, Source::Cli, None).unwrap();
            assert_eq!(h.router.route_lookup(0, NEIGHBOR.into()).unwrap().prefix_len, 0, "the host route went with it");
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn a_route_into_another_table_leads_to_known_neighbours() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 3);
        for family in [FamilyId::V4, FamilyId::V6] {
            h.router.add_table(family, Some(7), None).unwrap();
        }
        h.router.remove_address(x[0], host(0, 1).into(), 24).unwrap();
        h.router.set_interface_table(x[0], FamilyId::V4, 7).unwrap();
        h.router.add_address(x[0], host(0, 1).into(), 24).unwrap();
        h.router.add_neighbor(x[1], host(1, 5).into(), host_mac(5), false, false).unwrap();
        let leak: quiver_wire::IpPrefix = "10.0.1.0/24".parse().unwrap();
        h.router.add_route(7, leak, Source::Cli, to_link(x[1])).unwrap();
        Time::new(&h).settle(&mut h);
        assert_eq!(forwarded(&mut h, x[0], host(1, 5), host_mac(5)), 200);
        // A neighbour that comes later, and one that has no host routes.
        h.router.add_neighbor(x[1], host(1, 6).into(), host_mac(6), false, false).unwrap();
        h.router.add_neighbor(x[1], host(1, 7).into(), host_mac(7), false, true).unwrap();
        let len = |h: &Harness, table, n| h.router.route_lookup(table, host(1, n).into()).unwrap().prefix_len;
        assert_eq!([(7, 5), (7, 6), (7, 7), (0, 6), (0, 7)].map(|(t, n)| len(&h, t, n)), [32, 32, 24, 32, 24]);
        // A longer route to somewhere else hides the link, and shows it again.
        let hidden = "10.0.1.4/30".parse().unwrap();
        h.router.add_route(7, hidden, Source::Cli, vec![Path::new(Hop::Drop)]).unwrap();
        assert_eq!((len(&h, 7, 5), len(&h, 0, 5)), (30, 32));
        h.router.remove_route(7, hidden, Source::Cli, None).unwrap();
        assert_eq!(len(&h, 7, 5), 32);
        // A link of another interface is no link of this neighbour.
        h.router.replace_route(7, leak, Source::Cli, to_link(x[2])).unwrap();
        assert_eq!((len(&h, 7, 5), len(&h, 0, 5)), (24, 32));
        h.router.replace_route(7, leak, Source::Cli, to_link(x[1])).unwrap();
        h.router.remove_neighbor(x[1], host(1, 5).into()).unwrap();
        assert_eq!((len(&h, 7, 5), len(&h, 7, 6), len(&h, 0, 5)), (24, 32, 24));
        // A table that goes takes its host routes with it, and one of its number begins empty.
        h.router.remove_address(x[0], host(0, 1).into(), 24).unwrap();
        h.router.set_interface_table(x[0], FamilyId::V4, 0).unwrap();
        h.router.remove_table(FamilyId::V4, 7).unwrap();
        h.router.add_table(FamilyId::V4, Some(7), None).unwrap();
        assert_eq!(len(&h, 7, 6), 0);
        h.router.add_route(7, leak, Source::Cli, to_link(x[1])).unwrap();
        assert_eq!(len(&h, 7, 6), 32);
        h.assert_buffers_held(0);
    }
}

#[test]
fn an_unnumbered_interfaces_neighbours_are_of_its_lenders_link() {
    let (mut h, x) = bed(0, 2);
    let y = h.interface(2);
    h.router.add_neighbor(y, host(1, 5).into(), host_mac(5), true, false).unwrap();
    let found = |h: &Harness| h.router.route_lookup(0, host(1, 5).into()).unwrap().interface;
    assert_eq!(found(&h), Some(x[1]));
    h.router.set_unnumbered(y, Some(x[1])).unwrap();
    assert_eq!(found(&h), Some(y));
    h.router.set_unnumbered(y, None).unwrap();
    assert_eq!(found(&h), Some(x[1]));
}

#[test]
fn hosts_of_a_route_to_a_link_are_asked_for_and_their_answers_heard() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        let time = Time::new(&h);
        h.router.add_route(0, "10.9.0.0/24".parse().unwrap(), Source::Cli, to_link(x[1])).unwrap();
        let out = h.exchange(x[0], &packet(NEIGHBOR, 1));
        assert_eq!(requests(&out)[0].2.target_ip(), NEIGHBOR);
        h.exchange(x[1], &arp_reply(1, (host_mac(5), NEIGHBOR)));
        assert_eq!(packets(&time.settle(&mut h)), [(host_mac(5), 1)], "{:?}", h.counts());
        assert_eq!(forwarded(&mut h, x[0], NEIGHBOR, host_mac(5)), 200);
        // Such a host is answered; one that no route knows on this link is not.
        let asks = |n| arp_request((host_mac(n), Ipv4Addr::new(10, 9, 0, n)), host(1, 1));
        assert_eq!(h.exchange(x[1], &asks(6)).len(), 1);
        let before = h.count("arp-reply", "IP4 source address not local to subnet");
        assert!(h.exchange(x[0], &arp_request((host_mac(6), Ipv4Addr::new(10, 9, 0, 6)), host(0, 1))).is_empty());
        assert_eq!(h.count("arp-reply", "IP4 source address not local to subnet"), before + 1);
        h.assert_buffers_held(0);
    }
}
