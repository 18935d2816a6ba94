//! Punted packets over the whole graph, frame by frame; and the messages.

mod sockets;

use std::net::IpAddr;
use std::rc::Rc;

use quiver_api::Catalog;
use quiver_api::defs::*;
use quiver_graph::IfIndex;
use quiver_wire::build::Packet;
use quiver_wire::tcp::TcpFlags;

use super::{L4, path_to};
use crate::api::testing::{ask, assert_names, read};
use crate::api::{Handlers, Table, address as wire_address};
use crate::fib::{Hop, Path, Source};
use crate::icmp::RateLimit;
use crate::ip::FamilyId;
use crate::testing::{Harness, host_mac, router_mac};

const FAMILIES: [FamilyId; 2] = [FamilyId::V4, FamilyId::V6];

fn address(family: FamilyId, net: u8, host: u8) -> IpAddr {
    match family {
        FamilyId::V4 => IpAddr::from([10, 0, net, host]),
        FamilyId::V6 => IpAddr::from([0x2001, 0xdb8, net.into(), 0, 0, 0, 0, host.into()]),
    }
}

/// Interfaces x0, x1: host 1 of net N, whose host 2 is known.
fn bed(workers: usize) -> (Harness, [IfIndex; 2]) {
    let mut h = Harness::with_workers(workers);
    let all = [0, 1].map(|n| h.interface(n));
    for (n, index) in (0..).zip(&all) {
        for (family, len) in [(FamilyId::V4, 24), (FamilyId::V6, 64)] {
            h.router.add_address(*index, address(family, n, 1), len).unwrap();
            h.router.neighbor_update(*index, address(family, n, 2), Some(host_mac(n))).unwrap();
            h.router.set_icmp_rate_limit(family, RateLimit { total: 0, ..RateLimit::default() });
        }
    }
    (h, all)
}

fn ip(family: FamilyId) -> Packet {
    match (address(family, 0, 2), address(family, 0, 1)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Packet::new().ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Packet::new().ipv6(src, dst),
        _ => unreachable!("one family"),
    }
}

/// From the host behind x0.
fn frame(packet: &Packet) -> Vec<u8> {
    let packet = packet.build();
    let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&router_mac(0).0[..], &host_mac(0).0, &kind, &packet].concat()
}

/// The same as it leaves by x1, its IP packet unchanged.
fn redirected(frame: &[u8]) -> Vec<u8> {
    [&host_mac(1).0[..], &router_mac(1).0, &frame[12..]].concat()
}

/// Protocol and type of an ICMP error.
fn error_of(family: FamilyId, frame: &[u8]) -> (u8, u8) {
    let at = if family == FamilyId::V4 { 34 } else { 54 };
    (frame[at], frame[at + 1])
}

#[test]
fn a_port_that_nobody_listens_on_is_answered_punted_and_redirected_as_configured() {
    for workers in [0, 2] {
        for family in FAMILIES {
            let (mut h, x) = bed(workers);
            // A time to live of 1 would not survive forwarding.
            let sent = frame(&ip(family).ttl(1).udp(1000, 4500).payload(b"data"));
            let unreachable = if family == FamilyId::V4 { (3, 3) } else { (1, 4) };
            let answers = h.exchange(x[0], &sent);
            assert_eq!((answers.len(), error_of(family, &answers[0].1)), (1, unreachable));
            h.router.set_punt_port(family, L4::Udp, Some(4500), true);
            assert!(h.exchange(x[0], &sent).is_empty(), "punted, and nobody takes it");
            let node = if family == FamilyId::V4 { "ip4-punt" } else { "ip6-punt" };
            assert_eq!(h.count(node, "punted without a redirect"), 1);
            h.router.set_punt_redirect(family, Some(x[0]), vec![path_to(x[1], Some(address(family, 1, 2)))]).unwrap();
            assert_eq!(h.exchange(x[0], &sent), [(x[1], redirected(&sent))]);
            h.router.set_punt_port(family, L4::Udp, Some(4500), false);
            let answers = h.exchange(x[0], &sent);
            assert_eq!(error_of(family, &answers[0].1), unreachable, "a redirect alone takes no UDP");
            h.router.set_punt_port(family, L4::Udp, None, true);
            assert_eq!(h.exchange(x[0], &sent), [(x[1], redirected(&sent))], "all ports");
            assert_eq!(h.count(node, "punted packets redirected"), 2);
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn protocols_that_nobody_takes_are_redirected_by_the_interface_they_came_in_on_and_else_answered() {
    for family in FAMILIES {
        let (mut h, x) = bed(0);
        let tcp = frame(&ip(family).tcp(1000, 179, TcpFlags::SYN));
        let to = || vec![path_to(x[1], Some(address(family, 1, 2)))];
        h.router.set_punt_redirect(family, Some(x[1]), to()).unwrap();
        let unreachable = if family == FamilyId::V4 { (3, 2) } else { (4, 1) };
        let answers = h.exchange(x[0], &tcp);
        assert_eq!((answers.len(), error_of(family, &answers[0].1)), (1, unreachable), "the redirect of another interface");
        h.router.set_punt_redirect(family, None, to()).unwrap();
        assert_eq!(h.exchange(x[0], &tcp), [(x[1], redirected(&tcp))], "that of any");
        h.router.set_punt_redirect(family, Some(x[0]), Vec::new()).unwrap();
        assert!(h.exchange(x[0], &tcp).is_empty(), "its own has no path");
        h.router.remove_punt_redirect(family, Some(x[0])).unwrap();
        h.router.delete_interface(x[1]).unwrap();
        assert_eq!(h.router.punt_redirects(family), [], "redirects go with the interface they lead to");
        h.router.set_punt_port(family, L4::Tcp, Some(179), true);
        assert!(h.exchange(x[0], &tcp).is_empty(), "asked for, so not answered");
        h.assert_buffers_held(0);
    }
}

#[test]
fn echo_stays_with_the_router_and_a_punting_route_is_redirected() {
    let (mut h, x) = bed(0);
    h.router.set_punt_redirect(FamilyId::V4, None, vec![path_to(x[1], Some(address(FamilyId::V4, 1, 2)))]).unwrap();
    let echo = frame(&ip(FamilyId::V4).echo_request(1, 2));
    assert_eq!(h.exchange(x[0], &echo)[0].0, x[0]);
    h.router.add_route(0, "192.0.2.0/24".parse().unwrap(), Source::Cli, vec![Path::new(Hop::Punt)]).unwrap();
    let away = frame(&Packet::new().ipv4([10, 0, 0, 2], [192, 0, 2, 1]).udp(1, 2));
    assert_eq!(h.exchange(x[0], &away), [(x[1], redirected(&away))]);
}

#[test]
fn a_group_of_a_routing_protocol_is_dropped_or_redirected() {
    let (mut h, x) = bed(0);
    let mut ospf = frame(&Packet::new().ipv4([10, 0, 0, 2], [224, 0, 0, 5]).next(89).payload(b"hello"));
    ospf[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 5]);
    assert!(h.exchange(x[0], &ospf).is_empty());
    h.router.set_punt_redirect(FamilyId::V4, Some(x[1]), vec![path_to(x[1], None)]).unwrap();
    assert!(h.exchange(x[0], &ospf).is_empty());
    assert_eq!(h.count("ip4-punt", "unknown ip protocol"), 1);
    h.router.set_punt_redirect(FamilyId::V4, Some(x[0]), vec![path_to(x[1], Some(address(FamilyId::V4, 1, 2)))]).unwrap();
    assert_eq!(h.exchange(x[0], &ospf), [(x[1], redirected(&ospf))]);
}

#[test]
fn redirects_lead_to_links_only() {
    let (mut h, x) = bed(0);
    for (paths, part) in [
        (vec![Path::recursive(address(FamilyId::V4, 1, 2))], "an interface is missing"),
        (vec![Path::neighbor(x[1], address(FamilyId::V6, 1, 2))], "of the other family"),
        (vec![Path::new(Hop::Punt)], "an interface is missing"),
        (vec![path_to(x[1], None); super::PATHS_MAX + 1], "more than"),
        (vec![path_to(IfIndex(77), None)], "unknown interface index 77"),
    ] {
        let error = h.router.set_punt_redirect(FamilyId::V4, None, paths).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(h.router.set_punt_redirect(FamilyId::V4, Some(IfIndex(77)), Vec::new()).is_err());
    assert!(h.router.remove_punt_redirect(FamilyId::V4, None).is_err());
}

#[test]
fn redirects_are_added_dumped_and_removed_by_messages() {
    assert_names(
        &Catalog::default(),
        &[
            "ip_punt_redirect_6580f635",
            "ip_punt_redirect_dump_2d033de4",
            "ip_punt_redirect_details_2cef63e7",
            "add_del_ip_punt_redirect_v2_9e804227",
            "ip_punt_redirect_v2_dump_d817a484",
            "ip_punt_redirect_v2_details_7ba42e1d",
            "set_punt_47d0e347",
        ],
    );
    let (mut h, x) = bed(0);
    let mut handlers = Handlers::default();
    super::api::add(&mut handlers);
    let table = Rc::new(Table::new(handlers));
    let number = |index: IfIndex| InterfaceIndex(index.0);
    let nh = wire_address(address(FamilyId::V4, 1, 2));
    let punt = PuntRedirect { rx_sw_if_index: number(x[0]), tx_sw_if_index: number(x[1]), nh };
    let set = |h: &mut Harness, is_add| {
        let m = IpPuntRedirect { punt: punt.clone(), is_add };
        read::<IpPuntRedirectReply>(&ask(h, &table, 1, &m)[0]).retval
    };
    assert_eq!(set(&mut h, true), 0);
    let all = IpPuntRedirectDump { sw_if_index: InterfaceIndex(u32::MAX), is_ipv6: false };
    let dumped = |h: &mut Harness, m: &IpPuntRedirectDump| -> Vec<PuntRedirect> {
        ask(h, &table, 1, m).iter().map(|details| read::<IpPuntRedirectDetails>(details).punt).collect()
    };
    assert_eq!(dumped(&mut h, &all), std::slice::from_ref(&punt));
    assert_eq!(dumped(&mut h, &IpPuntRedirectDump { sw_if_index: number(x[1]), ..all.clone() }), []);
    assert_eq!(dumped(&mut h, &IpPuntRedirectDump { is_ipv6: true, ..all.clone() }), []);
    let v2 = IpPuntRedirectV2Dump { sw_if_index: number(x[0]), ..Default::default() };
    let details = read::<IpPuntRedirectV2Details>(&ask(&mut h, &table, 1, &v2)[0]).punt;
    assert_eq!((details.paths.len(), details.paths[0].sw_if_index), (1, x[1].0));
    assert_eq!([set(&mut h, false), set(&mut h, false)], [0, -6]);
    let again = AddDelIpPuntRedirectV2 { is_add: true, punt: details };
    assert_eq!(read::<AddDelIpPuntRedirectV2Reply>(&ask(&mut h, &table, 1, &again)[0]).retval, 0);
    assert_eq!(dumped(&mut h, &all), std::slice::from_ref(&punt));

    let port = |r#type, room: [u8; 4]| Punt { r#type, punt: PuntUnion(room) };
    let punted = |h: &mut Harness, punt| read::<SetPuntReply>(&ask(h, &table, 1, &SetPunt { is_add: true, punt })[0]).retval;
    assert_eq!(punted(&mut h, port(PuntType::PUNT_API_TYPE_L4, [1, 17, 0x11, 0x94])), 0);
    assert_eq!(h.router.punt_ports(FamilyId::V6), [(L4::Udp, Some(4500))]);
    assert_eq!(punted(&mut h, port(PuntType::PUNT_API_TYPE_L4, [0, 6, 0xff, 0xff])), 0);
    assert_eq!(h.router.punt_ports(FamilyId::V4), [(L4::Tcp, None)]);
    assert_eq!(punted(&mut h, port(PuntType::PUNT_API_TYPE_IP_PROTO, [0, 89, 0, 0])), -8);
    assert_eq!(punted(&mut h, port(PuntType::PUNT_API_TYPE_L4, [0, 89, 0, 1])), -8);
}
