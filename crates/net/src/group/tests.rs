//! Reports as they leave, and queries as they come in.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use quiver_graph::IfIndex;
use quiver_wire::build::Packet;
use quiver_wire::checksum::Sum;
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::{MacAddr, U32Be};

use crate::ip::FamilyId;
use crate::nd::DadConfig;
use crate::neighbor::state::SECOND;
use crate::testing::{Harness, host_mac, router_mac};

type Sent = Vec<(IfIndex, Vec<u8>)>;

/// Interface, source, and the type and group of each record.
type Report = (IfIndex, u128, Vec<(u8, String)>);

/// Runs all processes until `seconds` from now, and gives what leaves.
fn pass(h: &mut Harness, seconds: u64) -> Sent {
    let mut now = h.router.graph.clock().timer_now();
    let end = now + seconds * SECOND;
    let mut all = Vec::new();
    while now <= end {
        let next = h.router.run_processes(now);
        all.extend(h.run());
        now = next.unwrap_or(u64::MAX).max(now + 1);
    }
    all
}

/// Records of the reports of MLDv2 among frames, checked: type, group.
fn mld(frames: &Sent) -> Vec<Report> {
    let mut all = Vec::new();
    for (interface, frame) in frames {
        if frame[12..14] != [0x86, 0xdd] || frame[20] != 0 {
            continue;
        }
        let ip = Ipv6Header::parse(&frame[14..]).unwrap();
        assert_eq!((ip.hop_limit, ip.dst_addr().to_string()), (1, "ff02::16".to_owned()));
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
        assert_eq!(frame[54..62], [58, 0, 5, 2, 0, 0, 1, 0], "router alert");
        let message = &frame[62..];
        let sum = Sum::new().add_pseudo_v6(ip.src.get(), ip.dst.get(), IpProtocol::ICMPV6, message.len() as u32);
        assert!(sum.add_bytes(message).is_valid());
        assert_eq!((message[0], message.len()), (143, 8 + 20 * usize::from(message[7])));
        let record = |r: &[u8]| (r[0], std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&r[4..20]).unwrap()).to_string());
        all.push((*interface, ip.src.get(), message[8..].chunks(20).map(record).collect()));
    }
    all
}

fn router_with_ip6() -> (Harness, IfIndex) {
    let mut h = Harness::new();
    let x = h.interface(0);
    h.router.add_address(x, "2001:db8::1".parse().unwrap(), 64).unwrap();
    (h, x)
}

#[test]
fn groups_of_addresses_are_told_before_the_first_question_of_duplicate_detection() {
    let (mut h, x) = router_with_ip6();
    let now = h.router.graph.clock().timer_now();
    h.router.run_processes(now);
    let first = h.run();
    let told = mld(&first[..1].to_vec());
    let link_local = router_mac(0).link_local();
    let groups: Vec<String> = ["ff02::2", "ff02::16", "ff02::1:ff00:1"].map(String::from).into();
    let own = quiver_wire::ipv6::address::solicited_node(link_local).to_string();
    let mut expected: Vec<(u8, String)> = groups.into_iter().chain([own, "ff05::2".to_owned()]).map(|g| (4, g)).collect();
    expected.sort_by_key(|(_, g)| g.parse::<std::net::Ipv6Addr>().unwrap());
    assert_eq!(told, [(x, 0, expected.clone())], "all at once, from no address yet");
    // Solicitations come behind it: at once for the address that was given, in a while for the link-local one.
    let asked = |frames: &[(IfIndex, Vec<u8>)]| frames.iter().filter(|(_, f)| f[54] == 135).count();
    assert_eq!(asked(&first[1..]), 1);
    // Told again within a second, and once the link-local address is known to be ours, from it.
    let later = pass(&mut h, 3);
    assert_eq!(asked(&later), 1);
    let later = mld(&later);
    assert!(later.iter().any(|(_, src, _)| *src == 0));
    let known: Vec<_> = later.iter().filter(|(_, src, _)| *src == link_local.to_bits()).collect();
    assert_eq!(known.len(), 2);
    assert!(known.iter().all(|(_, _, records)| *records == expected));
}

#[test]
fn a_solicited_node_group_is_left_with_the_last_address_that_needs_it() {
    let (mut h, x) = router_with_ip6();
    // It keeps its link-local address.
    h.router.enable_ip6(x).unwrap();
    h.router.add_address(x, "2001:db8:0:1::1".parse().unwrap(), 64).unwrap();
    pass(&mut h, 5);
    h.router.remove_address(x, "2001:db8::1".parse().unwrap(), 64).unwrap();
    assert_eq!(mld(&pass(&mut h, 5)), []);
    h.router.remove_address(x, "2001:db8:0:1::1".parse().unwrap(), 64).unwrap();
    let told = mld(&pass(&mut h, 5));
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(_, _, records)| *records == [(3, "ff02::1:ff00:1".to_owned())]));
}

#[test]
fn an_interface_that_comes_up_again_tells_its_groups_again_and_so_do_its_sub_interfaces() {
    use crate::interface::{SubMatch, VlanId};
    let (mut h, x) = router_with_ip6();
    let tagged = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(99), inner: None, exact: true };
    let sub = h.router.create_sub_interface(x, 99, tagged).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, "2001:db8:9::1".parse().unwrap(), 64).unwrap();
    pass(&mut h, 5);
    h.router.set_interface_up(x, false).unwrap();
    assert_eq!(mld(&pass(&mut h, 5)), []);
    h.router.set_interface_up(x, true).unwrap();
    let frames = pass(&mut h, 5);
    assert!(mld(&frames).iter().any(|(i, _, records)| *i == x && records.len() == 5));
    let tagged = frames.iter().any(|(i, f)| *i == x && f[12..16] == [0x81, 0, 0, 99] && f[16..18] == [0x86, 0xdd] && f[24] == 0);
    assert!(tagged, "the report of the sub-interface is tagged");
}

fn mld_query(src: &str, hop_limit: u8, alert: bool, group: &str, rest: &[u8]) -> Vec<u8> {
    let src: std::net::Ipv6Addr = src.parse().unwrap();
    let group: std::net::Ipv6Addr = group.parse().unwrap();
    let dst: std::net::Ipv6Addr = if group.is_unspecified() { "ff02::1".parse().unwrap() } else { group };
    let packet = Packet::ethernet(host_mac(0), MacAddr::from_ipv6_multicast(dst)).ipv6(src, dst);
    let packet = if alert { packet.hop_by_hop(&[5, 2, 0, 0, 1, 0]) } else { packet };
    let header = Icmp6Header { icmp_type: Icmp6Type(130), rest: U32Be::new(1000 << 16), ..Default::default() };
    packet.icmp6(header).payload(&[&group.octets()[..], rest].concat()).ttl(hop_limit).build()
}

const V2: [u8; 4] = [2, 125, 0, 0];
const QUERY: &str = "icmp6-multicast-listener-query";

#[test]
fn queries_of_this_link_are_answered_and_no_others() {
    let (mut h, x) = router_with_ip6();
    pass(&mut h, 5);
    for (frame, reason) in [
        (mld_query("fe80::9", 1, true, "::", &V2), "membership queries received"),
        (mld_query("fe80::9", 1, true, "ff02::1:ff00:1", &V2), "membership queries received"),
        (mld_query("fe80::9", 2, true, "::", &V2), "TTL or hop limit is not 1"),
        (mld_query("2001:db8::9", 1, true, "::", &V2), "source is not link-local"),
        (mld_query("fe80::9", 1, false, "::", &V2), "no router alert option"),
        (mld_query("fe80::9", 1, true, "::", &V2[..2]), "message too short"),
    ] {
        let before = h.count(QUERY, reason);
        h.inject(x, &frame);
        h.run();
        assert_eq!(h.count(QUERY, reason), before + 1, "{reason}: {:?}", h.counts());
        let answers = mld(&pass(&mut h, 5));
        let records: Vec<usize> = answers.iter().map(|(_, _, records)| records.len()).collect();
        let expected: &[usize] = match reason {
            "membership queries received" if before == 0 => &[5],
            "membership queries received" => &[1],
            _ => &[],
        };
        assert_eq!(records, expected, "{reason}");
    }
    h.assert_buffers_held(0);
}

#[test]
fn an_older_router_is_answered_in_its_version() {
    let (mut h, x) = router_with_ip6();
    pass(&mut h, 5);
    h.inject(x, &mld_query("fe80::9", 1, true, "ff02::1:ff00:1", &[]));
    h.run();
    let frames = pass(&mut h, 5);
    let group: std::net::Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
    let (_, frame) = frames.iter().find(|(_, f)| f[20] == 0).expect("a report");
    assert_eq!((frame[62], frame.len()), (131, 62 + 24));
    assert_eq!((&frame[38..54], &frame[70..86]), (&group.octets()[..], &group.octets()[..]), "to the group itself");
    assert_eq!(h.router.group_figures(x, FamilyId::V6).unwrap().version, quiver_wire::group::Version::Second);
}

#[test]
fn reports_of_other_hosts_are_no_errors() {
    let (mut h, x) = router_with_ip6();
    h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
    let dst: std::net::Ipv6Addr = "ff02::16".parse().unwrap();
    let report = |kind| {
        let src: std::net::Ipv6Addr = "fe80::9".parse().unwrap();
        let packet =
            Packet::ethernet(host_mac(0), MacAddr::from_ipv6_multicast(dst)).ipv6(src, dst).hop_by_hop(&[5, 2, 0, 0, 1, 0]);
        packet.icmp6(Icmp6Header { icmp_type: Icmp6Type(kind), ..Default::default() }).payload(&[0; 16]).ttl(1).build()
    };
    for kind in [131, 132, 143] {
        h.inject(x, &report(kind));
    }
    for message in [[0x16, 0, 0, 0, 239, 1, 1, 1], [0x22, 0, 0, 0, 0, 0, 0, 0]] {
        h.inject(x, &igmp([224, 0, 0, 22], 1, true, &message));
    }
    // A report of version 2 goes to its group, which has no route.
    h.inject(x, &igmp([239, 1, 1, 1], 1, true, &[0x16, 0, 0, 0, 239, 1, 1, 1]));
    h.run();
    let counts = h.counts();
    let errors: Vec<_> = counts.keys().filter(|c| !c.contains("reports received")).collect();
    assert_eq!((h.count("icmp6-multicast-listener-report", "membership reports received"), errors), (3, vec![]));
    assert_eq!(h.count("igmp-input", "membership reports received"), 3);
}

fn igmp(dst: [u8; 4], ttl: u8, alert: bool, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let sum = quiver_wire::checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mac = MacAddr::from_ipv4_multicast(dst.into());
    let packet = Packet::ethernet(host_mac(0), mac).ipv4([10, 0, 0, 9], dst).ttl(ttl).next(2);
    let packet = if alert { packet.options(&[148, 4, 0, 0]) } else { packet };
    packet.payload(&message).build()
}

#[test]
fn igmp_reports_have_a_router_alert_and_answer_queries() {
    let mut h = Harness::new();
    let x = h.interface(0);
    h.router.add_address(x, "10.0.0.1".parse().unwrap(), 24).unwrap();
    let group: IpAddr = Ipv4Addr::new(224, 0, 0, 18).into();
    h.router.want_groups(x, FamilyId::V4, "test", &BTreeSet::from([group, "ff02::5".parse().unwrap()]));
    assert_eq!(h.router.groups(x, FamilyId::V4).len(), 1, "one of the other family is none");
    let told = |frames: Sent| {
        let frames: Vec<_> = frames.into_iter().filter(|(_, f)| f[12..14] == [8, 0] && f[23] == 2).collect();
        for (_, f) in &frames {
            let ip = Ipv4Header::parse(&f[14..]).unwrap();
            assert_eq!((ip.ttl, ip.tos, ip.header_len(), ip.src_addr()), (1, 0xc0, 24, Ipv4Addr::new(10, 0, 0, 1)));
            assert_eq!(f[34..38], [148, 4, 0, 0]);
            assert!(Sum::of(&f[38..14 + usize::from(ip.total_len.get())]).is_valid());
        }
        frames
            .into_iter()
            .map(|(_, f)| (f[30..34].to_vec(), f[38..].to_vec()))
            .map(|(dst, m)| (dst, m[0], m[7], m[8..].to_vec()))
            .collect::<Vec<_>>()
    };
    let joined = (vec![224, 0, 0, 22], 0x22, 1, vec![4, 0, 0, 0, 224, 0, 0, 18]);
    assert_eq!(told(pass(&mut h, 5)), [joined.clone(), joined]);
    let query = |rest: &[u8]| [&[0x11, 10, 0, 0, 0, 0, 0, 0][..], rest].concat();
    for (frame, reason, answers) in [
        (igmp([224, 0, 0, 1], 1, true, &query(&V2)), "membership queries received", 1),
        (igmp([224, 0, 0, 1], 1, false, &query(&V2)), "no router alert option", 0),
        (igmp([224, 0, 0, 1], 2, true, &query(&V2)), "TTL or hop limit is not 1", 0),
        (igmp([224, 0, 0, 1], 1, true, &[0x13, 0, 0, 0]), "unknown type", 0),
    ] {
        h.inject(x, &frame);
        h.run();
        assert_eq!((h.count("igmp-input", reason), told(pass(&mut h, 5)).len()), (1, answers), "{reason}");
    }
    let mut damaged = igmp([224, 0, 0, 1], 1, true, &query(&V2));
    damaged[39] ^= 1;
    h.inject(x, &damaged);
    h.run();
    assert_eq!((h.count("igmp-input", "bad igmp checksum"), told(pass(&mut h, 5)).len()), (1, 0));
    h.router.want_groups(x, FamilyId::V4, "test", &BTreeSet::new());
    let left = (vec![224, 0, 0, 22], 0x22, 1, vec![3, 0, 0, 0, 224, 0, 0, 18]);
    assert_eq!(told(pass(&mut h, 5)), [left.clone(), left]);
    assert_eq!(h.router.group_figures(x, FamilyId::V4), None, "nothing is left of it");
}

#[test]
fn a_report_is_cut_into_packets_of_the_mtu() {
    let mut h = Harness::new();
    h.router.set_dad_config(DadConfig { transmits: 0, ..Default::default() });
    let x = h.interface(0);
    h.router.add_address(x, "fe80::1".parse().unwrap(), 128).unwrap();
    pass(&mut h, 5);
    let groups: BTreeSet<IpAddr> = (0..200_u128).map(|n| IpAddr::V6((0xff05_u128 << 112 | n << 8 | 7).into())).collect();
    h.router.want_groups(x, FamilyId::V6, "test", &groups);
    let now = h.router.graph.clock().timer_now();
    h.router.run_processes(now);
    let sizes: Vec<usize> = mld(&h.run()).iter().map(|(_, _, records)| records.len()).collect();
    assert_eq!(sizes, [72, 72, 56]);
}

#[test]
fn a_flood_of_queries_takes_only_its_interface_s_share() {
    let (mut h, x) = router_with_ip6();
    let y = h.interface(1);
    h.router.add_address(y, "2001:db8:1::1".parse().unwrap(), 64).unwrap();
    pass(&mut h, 5);
    let query = mld_query("fe80::9", 1, true, "::", &V2);
    h.inject_many(x, &vec![query.clone(); 200], 0);
    h.inject(y, &query);
    h.run();
    assert_eq!(h.count(QUERY, "main thread too busy to be told"), 200 - 64);
    let answered: Vec<IfIndex> = mld(&pass(&mut h, 5)).iter().map(|(i, ..)| *i).collect();
    assert_eq!((answered.len(), answered.contains(&y)), (2, true), "one answer each");
}

#[test]
fn loopbacks_tell_nobody() {
    let mut h = Harness::new();
    let loopback = h.router.create_loopback(None, None).unwrap();
    h.router.set_interface_up(loopback, true).unwrap();
    h.router.add_address(loopback, "2001:db8::1".parse().unwrap(), 128).unwrap();
    pass(&mut h, 3);
    assert_eq!(h.router.group_figures(loopback, FamilyId::V6).map(|f| f.sent), Some(0));
}
