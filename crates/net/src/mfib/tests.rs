//! Multicast routes: what leaves where, and what does not.

use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::checksum::Sum;
use quiver_wire::ipv4::Ipv4Header;

use crate::api::testing::{ask, read};
use crate::ops::testing::{assert_rebuilt, error, run};
use crate::testing::{Harness, host_mac, router_mac};

const GROUP: [u8; 4] = [232, 129, 1, 1];
const NODE: &str = "ip4-mfib-forward-lookup";

/// A router with four interfaces x0 to x3 of 10.0.N.0/24 and 2001:db8:N::/64, and these lines.
fn bed(workers: usize, lines: &str) -> (Harness, Vec<IfIndex>) {
    let mut h = Harness::with_workers(workers);
    h.router.set_dad_config(crate::nd::DadConfig { transmits: 0, ..Default::default() });
    let all: Vec<IfIndex> = (0..4).map(|n| h.interface(n)).collect();
    for (n, interface) in all.iter().enumerate() {
        h.router.add_address(*interface, format!("10.0.{n}.1").parse().unwrap(), 24).unwrap();
        h.router.add_address(*interface, format!("2001:db8:{n}::1").parse().unwrap(), 64).unwrap();
    }
    lines.lines().map(str::trim).for_each(|line| drop(run(&mut h.router, line)));
    h.run();
    (h, all)
}

fn interfaces_only() -> Harness {
    let mut h = Harness::new();
    for n in 0..4 {
        h.interface(n);
    }
    h
}

fn packet4(src: [u8; 4], dst: [u8; 4]) -> Packet {
    Packet::ethernet(host_mac(0), MacAddr::from_ipv4_multicast(dst.into())).ipv4(src, dst)
}

fn udp4(src: [u8; 4], dst: [u8; 4], ttl: u8) -> Vec<u8> {
    packet4(src, dst).ttl(ttl).udp(1, 2).payload(b"hello").build()
}

fn address6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn udp6(src: &str, dst: &str, limit: u8, len: usize) -> Vec<u8> {
    let dst = address6(dst);
    let frame = Packet::ethernet(host_mac(0), MacAddr::from_ipv6_multicast(dst)).ipv6(address6(src), dst).ttl(limit);
    frame.udp(1, 2).payload(&vec![7; len]).build()
}

/// Where frames to a group went.
fn interfaces(frames: &[(IfIndex, Vec<u8>)]) -> Vec<u32> {
    let mut all: Vec<u32> = frames.iter().map(|(i, _)| i.0).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_packet_leaves_by_all_interfaces_of_its_route_with_its_group_s_mac_address() {
    let lines = "ip mroute add 232.129.1.1 via x0 Accept via x1 Forward
        ip mroute add 232.129.1.1 via x2 Forward via x3 Forward";
    for workers in [0, 1, 2] {
        let (mut h, x) = bed(workers, lines);
        let sent = udp4([1, 1, 1, 1], GROUP, 9);
        let frames = h.exchange(x[0], &sent);
        assert_eq!(interfaces(&frames), [x[1].0, x[2].0, x[3].0]);
        for (interface, frame) in &frames {
            assert_eq!(frame[..6], [0x01, 0x00, 0x5e, 0x01, 1, 1], "23 bits of the group");
            assert_eq!(frame[6..12], router_mac((interface.0 - x[0].0) as u8).0);
            let ip = Ipv4Header::parse(&frame[14..]).unwrap();
            assert_eq!((ip.ttl, ip.src_addr(), ip.dst_addr()), (8, Ipv4Addr::new(1, 1, 1, 1), GROUP.into()));
            assert_eq!(frame[34..], sent[34..]);
        }
        assert_eq!(h.count(NODE, "multicast packets sent"), 3);
        let route = h.router.mroutes(crate::ip::FamilyId::V4, 0).next().unwrap().clone();
        assert_eq!(h.router.mroute_counts(&route), (1, sent.len() as u64 - 14));
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_source_s_route_then_the_longest_prefix_decides() {
    let lines = "ip mroute add 1.1.1.1 232.129.1.1 via x0 Accept via x1 Forward
        ip mroute add 232.129.1.1 via x0 Accept via x2 Forward
        ip mroute add 232.0.0.0/8 via x0 Accept via x3 Forward";
    let (mut h, x) = bed(0, lines);
    let mut to = |src, dst| interfaces(&h.exchange(x[0], &udp4(src, dst, 9)));
    assert_eq!(to([1, 1, 1, 1], GROUP), [x[1].0]);
    assert_eq!(to([1, 1, 1, 2], GROUP), [x[2].0]);
    assert_eq!(to([1, 1, 1, 1], [232, 9, 9, 9]), [x[3].0]);
    assert_eq!(to([1, 1, 1, 1], [233, 9, 9, 9]), Vec::<u32>::new());
    assert_eq!(h.count(NODE, "no multicast route"), 1);
}

#[test]
fn packets_are_taken_from_accepting_interfaces_only_and_never_go_back() {
    let both = "via x0 Accept Forward via x1 Accept Forward via x2 Forward";
    let (mut h, x) = bed(0, &format!("ip mroute add 232.129.1.1 {both}\nip mroute add 232.1.1.2 via x1 Forward Accept-all-itf"));
    let mut from = |n: usize, dst| interfaces(&h.exchange(x[n], &udp4([1, 1, 1, 1], dst, 9)));
    assert_eq!(from(0, GROUP), [x[1].0, x[2].0]);
    assert_eq!(from(1, GROUP), [x[0].0, x[2].0]);
    assert_eq!(from(2, GROUP), Vec::<u32>::new());
    assert_eq!(from(3, [232, 1, 1, 2]), [x[1].0]);
    assert_eq!(from(1, [232, 1, 1, 2]), Vec::<u32>::new());
    assert_eq!(h.count(NODE, "multicast RPF check failed"), 1);
    assert_eq!(h.count(NODE, "multicast route forwards to no other interface"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn what_must_stay_on_the_link_is_not_forwarded() {
    let lines = "ip mroute add 0.0.0.0/0 via x1 Forward Accept-all-itf
        ip mroute add ::/0 via x1 Forward Accept-all-itf";
    let (mut h, x) = bed(0, lines);
    for frame in [
        udp4([1, 1, 1, 1], [224, 0, 0, 5], 9),
        udp4([1, 1, 1, 1], GROUP, 1),
        udp4([0, 0, 0, 0], GROUP, 9),
        packet4([10, 0, 0, 9], GROUP).ttl(9).next(2).payload(&[0x16, 0, 1, 1, 232, 129, 1, 1]).build(),
        udp6("2001:db8::9", "ff02::5", 9, 5),
        udp6("2001:db8::9", "ff0e::5", 1, 5),
        udp6("fe80::9", "ff0e::5", 9, 5),
    ] {
        assert_eq!(h.exchange(x[0], &frame), [], "{frame:02x?}");
    }
    for (node, what, times) in [
        (NODE, "multicast TTL or hop limit exceeded", 1),
        (NODE, "multicast source has only the scope of the link", 1),
        ("ip6-mfib-forward-lookup", "multicast TTL or hop limit exceeded", 1),
        ("ip6-mfib-forward-lookup", "multicast source has only the scope of the link", 1),
    ] {
        assert_eq!(h.count(node, what), times, "{node} {what}: {:?}", h.counts());
    }
    assert_eq!(interfaces(&h.exchange(x[0], &udp6("2001:db8::9", "ff0e::5", 9, 5))), [x[1].0]);
}

#[test]
fn ipv6_packets_are_forwarded_and_too_large_ones_are_answered() {
    let lines = "ip mroute add 2001:db8::9 ff0e::5 via x0 Accept via x1 Forward via x2 Forward
        set interface mtu packet 1300 x2
        set ip neighbor x0 2001:db8::9 02:00:00:00:10:00 static";
    let (mut h, x) = bed(0, lines);
    let frames = h.exchange(x[0], &udp6("2001:db8::9", "ff0e::5", 9, 5));
    assert_eq!(interfaces(&frames), [x[1].0, x[2].0]);
    for (_, frame) in &frames {
        assert_eq!((&frame[..6], frame[21]), (&[0x33, 0x33, 0, 0, 0, 5][..], 8));
    }
    let frames = h.exchange(x[0], &udp6("2001:db8::9", "ff0e::5", 9, 1400));
    let answer = frames.iter().find(|(i, _)| *i == x[0]).expect("an ICMP error");
    assert_eq!((answer.1[54], &answer.1[58..62]), (2, &1300_u32.to_be_bytes()[..]), "packet too big");
    assert_eq!(frames.iter().filter(|(i, f)| *i == x[1] && f.len() > 1400).count(), 1);
    assert_eq!(interfaces(&frames).iter().filter(|i| **i == x[2].0).count(), 0);
    h.assert_buffers_held(0);
}

#[test]
fn ipv4_packets_are_cut_where_an_interface_takes_less() {
    let lines = "ip mroute add 232.129.1.1 via x0 Accept via x1 Forward via x2 Forward
        set interface mtu packet 600 x1
        set interface mtu packet 600 x2";
    let (mut h, x) = bed(0, lines);
    let large = |packet: Packet| packet.ttl(9).udp(1, 2).payload(&[7; 1000]).build();
    let sent = large(packet4([1, 1, 1, 1], GROUP));
    let frames = h.exchange(x[0], &sent);
    assert_eq!(interfaces(&frames), [x[1].0, x[1].0, x[2].0, x[2].0]);
    for interface in [x[1], x[2]] {
        let mut payload: Vec<u8> = Vec::new();
        for (_, frame) in frames.iter().filter(|(i, _)| *i == interface) {
            let ip = Ipv4Header::parse(&frame[14..]).unwrap();
            assert!(frame.len() <= 614 && ip.ttl == 8 && ip.is_fragment());
            payload.extend(&frame[34..]);
        }
        assert_eq!(payload, sent[34..]);
    }
    let frames = h.exchange(x[0], &large(packet4([1, 1, 1, 1], GROUP).dont_fragment()));
    assert_eq!(
        (frames, h.count(NODE, "multicast packet too big for an interface")),
        (vec![], 2),
        "no error about a group's packet"
    );
    h.assert_buffers_held(0);
}

#[test]
fn a_packet_can_go_to_one_neighbour_and_to_this_router_as_well() {
    let lines = "set ip neighbor x1 10.0.1.9 02:00:00:00:10:01 static
        ip mroute add 232.129.1.1 via x0 Accept via 10.0.1.9 x1 Forward via local Forward via x2 Forward";
    let (mut h, x) = bed(0, lines);
    let frames = h.exchange(x[0], &udp4([1, 1, 1, 1], GROUP, 9));
    assert_eq!(interfaces(&frames), [x[1].0, x[2].0]);
    let neighbor = frames.iter().find(|(i, _)| *i == x[1]).unwrap();
    assert_eq!((&neighbor.1[..6], neighbor.1[22]), (&host_mac(1).0[..], 8));
    assert_eq!(h.count("ip4-udp-lookup", "No listener for dst port"), 1, "{:?}", h.counts());
    let listened: Vec<String> = h.router.groups(x[0], crate::ip::FamilyId::V4).into_iter().map(|l| l.group.to_string()).collect();
    assert_eq!(listened, ["232.129.1.1"], "routers are told that this one listens");
    run(&mut h.router, "ip mroute del 232.129.1.1");
    assert_eq!(h.router.groups(x[0], crate::ip::FamilyId::V4), []);
    h.assert_buffers_held(0);
}

#[test]
fn unfinished_checksums_are_finished_in_copies() {
    let (mut h, x) = bed(0, "ip mroute add 232.129.1.1 via x0 Accept via x1 Forward via x2 Forward");
    let mut frame = udp4([1, 1, 1, 1], GROUP, 9);
    let pseudo = Sum::new().add_pseudo_v4(0x0101_0101, u32::from_be_bytes(GROUP), quiver_wire::ipv4::IpProtocol::UDP, 13);
    frame[40..42].copy_from_slice(&pseudo.folded().to_be_bytes());
    h.inject_marked(x[0], &[frame], 0, |_, packet| packet.set_unfinished_checksum(34, 6));
    let frames = h.run();
    let (_, copy) = frames.iter().find(|(i, _)| *i == x[1]).unwrap();
    assert!(pseudo.add_bytes(&copy[34..47]).is_valid());
}

#[test]
fn routes_are_of_the_table_of_the_interface_and_go_with_it() {
    let (mut h, x) = bed(0, "");
    run(&mut h.router, "ip table add 7");
    h.router.remove_addresses(x[3]).unwrap();
    run(&mut h.router, "set interface ip table x3 7");
    run(&mut h.router, "set interface ip address x3 10.0.3.1/24");
    run(&mut h.router, "ip mroute add table 7 232.129.1.1 via x3 Accept via x1 Forward");
    assert_eq!(interfaces(&h.exchange(x[3], &udp4([1, 1, 1, 1], GROUP, 9))), [x[1].0]);
    assert_eq!(h.exchange(x[0], &udp4([1, 1, 1, 1], GROUP, 9)), []);
    h.router.remove_addresses(x[3]).unwrap();
    run(&mut h.router, "set interface ip table x3 0");
    run(&mut h.router, "ip table del 7");
    assert_eq!(h.router.mroutes(crate::ip::FamilyId::V4, 7).count(), 0);
    // Another table in the same place has none of its routes.
    run(&mut h.router, "ip table add 8");
    run(&mut h.router, "set interface ip table x3 8");
    run(&mut h.router, "set interface ip address x3 10.0.3.1/24");
    assert_eq!(h.exchange(x[3], &udp4([1, 1, 1, 1], GROUP, 9)), []);
}

#[test]
fn an_interface_that_goes_takes_its_paths_along() {
    let (mut h, x) = bed(0, "ip mroute add 232.129.1.1 via x0 Accept via x1 Forward\nip mroute add 232.1.1.2 via x1 Forward");
    let loopback = h.router.create_loopback(None, None).unwrap();
    let name = h.router.interfaces.name(loopback);
    run(&mut h.router, &format!("ip mroute add 232.129.1.1 via {name} Forward"));
    run(&mut h.router, &format!("ip mroute add 232.1.1.3 via {name} Accept"));
    h.router.delete_interface(loopback).unwrap();
    let left: Vec<(String, usize)> =
        h.router.mroutes(crate::ip::FamilyId::V4, 0).map(|r| (r.prefix.to_string(), r.paths.len())).collect();
    assert_eq!(left, [("232.1.1.2/32".to_owned(), 1), ("232.129.1.1/32".to_owned(), 2)]);
    assert_eq!(interfaces(&h.exchange(x[0], &udp4([1, 1, 1, 1], GROUP, 9))), [x[1].0]);
}

#[test]
fn what_cannot_be_is_refused() {
    let (mut h, _) = bed(0, "");
    for (line, why) in [
        ("ip mroute add 10.0.0.0/8 via x0 Accept", "no group"),
        ("ip mroute add 224.0.0.5 via x0 Accept", "stays on its link"),
        ("ip mroute add ff02::5 via x0 Accept", "stays on its link"),
        ("ip mroute add 2001:db8::1 232.1.1.1 via x0 Accept", "no prefix of groups"),
        ("ip mroute add 232.1.1.1 table 9 via x0 Accept", "table id 9"),
        ("ip mroute add 232.1.1.1 via x9 Accept", "x9"),
        ("ip mroute add 232.1.1.1", "without paths"),
        ("ip mroute del 232.1.1.1", "no multicast route"),
    ] {
        let error = error(&mut h.router, line);
        assert!(error.contains(why), "{line}: {error}");
    }
    assert_eq!(h.router.mroutes(crate::ip::FamilyId::V4, 0).count(), 0);
}

#[test]
fn routes_are_shown_and_configured_again() {
    let lines = "ip mroute add 1.1.1.1 232.129.1.1 via x0 Accept via x1 Accept Forward via 10.0.2.9 x2 Forward via local Forward
        ip mroute add 233.0.0.0/8 via x0 Forward Accept-all-itf
        ip mroute add ff0e::5 via x0 Forward
        ip mroute add 239.0.0.0/8 Drop";
    let (mut h, x) = bed(0, lines);
    assert_eq!(h.exchange(x[0], &udp4([1, 1, 1, 1], [239, 1, 1, 1], 9)), []);
    assert_eq!(h.count(NODE, "dropped by a multicast route"), 1);
    let shown = run(&mut h.router, "show ip mfib");
    let expected = "ipv4-VRF:0, table 0\n (*, 224.0.0.0/24): Accept-all-itf special packets 0 bytes 0\n  via local Forward\n \
         (1.1.1.1, 232.129.1.1/32): packets 0 bytes 0\n  via local Forward\n  via x0 Accept\n  via x1 Accept Forward\n  \
         via 10.0.2.9 x2 Forward\n (*, 233.0.0.0/8): Accept-all-itf packets 0 bytes 0\n  via x0 Forward\n \
         (*, 239.0.0.0/8): Drop packets 1 bytes 33\n";
    assert_eq!(shown, expected);
    assert!(run(&mut h.router, "show ip6 mfib ff0e::5").contains("(*, ff0e::5/128)"));
    assert_rebuilt(&[], interfaces_only, lines, &["show ip mfib", "show ip6 mfib"]);
}

#[test]
fn messages_add_dump_replace_and_remove_routes() {
    use quiver_api::defs::*;
    let (mut h, x) = bed(0, "ip mroute add 232.9.9.9 via x0 Accept");
    let table = crate::api::Table::new(crate::api::handlers());
    let route = |source: [u8; 4], len, flags: &[(u32, u32)]| {
        let mut addresses = [[0; 16]; 2];
        addresses[0][..4].copy_from_slice(&GROUP);
        addresses[1][..4].copy_from_slice(&source);
        let path = |(index, itf): &(u32, u32)| MfibPath {
            itf_flags: MfibItfFlags(*itf),
            path: FibPath { sw_if_index: *index, ..Default::default() },
        };
        let prefix = Mprefix {
            af: AddressFamily::ADDRESS_IP4,
            grp_address_length: len,
            grp_address: AddressUnion(addresses[0]),
            src_address: AddressUnion(addresses[1]),
        };
        let paths: Vec<MfibPath> = flags.iter().map(path).collect();
        IpMroute { prefix, n_paths: paths.len() as u8, paths, ..Default::default() }
    };
    let change = |h: &mut Harness, is_add, route: IpMroute| -> IpMrouteAddDelReply {
        read(&ask(h, &table, 1, &IpMrouteAddDel { is_add, is_multipath: true, route })[0])
    };
    let dump_all = |h: &mut Harness| -> Vec<IpMrouteDetails> {
        ask(h, &table, 1, &IpMrouteDump::default()).iter().map(|answer| read(answer)).collect()
    };
    let added = change(&mut h, true, route([1, 1, 1, 1], 27, &[(x[0].0, 2), (x[1].0, 4)]));
    assert_eq!((added.retval, added.stats_index), (0, 1));
    assert_eq!(interfaces(&h.exchange(x[0], &udp4([1, 1, 1, 1], GROUP, 9))), [x[1].0]);
    let signal = IpMroute { entry_flags: MfibEntryFlags(1), ..route([0; 4], 32, &[]) };
    assert_ne!(change(&mut h, true, signal).retval, 0, "signals are not there");
    let dump = dump_all(&mut h);
    let lens: Vec<(u16, u8)> = dump.iter().map(|d| (d.route.prefix.grp_address_length, d.route.n_paths)).collect();
    // Behind the routes that somebody has said come those that hold in every table.
    assert_eq!(lens, [(32, 1), (64, 2), (0, 0), (32, 1), (32, 1)]);
    assert_eq!(
        dump[2].route.entry_flags.0 & MfibEntryFlags::MFIB_API_ENTRY_FLAG_DROP.0,
        MfibEntryFlags::MFIB_API_ENTRY_FLAG_DROP.0
    );
    let other = IpMrouteDump { table: IpTable { table_id: 0, is_ip6: true, ..Default::default() } };
    assert_eq!(ask(&mut h, &table, 1, &other).len(), 5);
    let missing = IpMrouteDump { table: IpTable { table_id: 99, ..Default::default() } };
    assert_eq!(ask(&mut h, &table, 1, &missing).len(), 0, "no table, no entries");
    assert_eq!(dump[1].route.paths[0].itf_flags.0, 2);
    assert_eq!(ask(&mut h, &table, 1, &IpMtableDump::default()).len(), 2);
    ask(&mut h, &table, 1, &IpTableReplaceBegin::default());
    ask(&mut h, &table, 1, &IpTableReplaceEnd::default());
    let dump = dump_all(&mut h);
    assert_eq!(dump.len(), 1 + 3, "that of the command line stays");
    let gone = change(&mut h, false, route([0; 4], 32, &[]));
    assert_eq!(gone.retval, 0, "what is not there has not to be removed");
}
