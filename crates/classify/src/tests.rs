//! Packets, tables and sessions, in a router with made-up interfaces: `x0`, `x1` and `x2` with 10.0.n.1/24 and 2001:db8:n::1/64.

use quiver_net::api::testing::{ask, assert_names, read, table};
use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac, router_mac};
use quiver_wire::build::Packet;

use crate::api::*;

/// Without addresses.
fn bare() -> Harness {
    Harness::with_plugin(&crate::plugin(), 0, 3)
}

fn scene() -> Scene {
    Scene { h: bare().with_hosts() }
}

/// How many of 30 packets from a source on `x0` to a port of the host on `x1` leave.
fn pass(s: &mut Scene, source: &str, port: u16) -> usize {
    let packet = Packet::ethernet(host_mac(0), router_mac(0));
    let packet = match source.contains(':') {
        false => packet.ipv4(source.parse::<std::net::Ipv4Addr>().unwrap(), [10, 0, 1, 2]),
        true => packet.ipv6(source.parse::<std::net::Ipv6Addr>().unwrap(), "2001:db8:1::2".parse::<std::net::Ipv6Addr>().unwrap()),
    };
    let frame = packet.udp(1000, port).payload(b"content").build();
    let x0 = s.interface("x0");
    let mut passed = s.h.exchange(x0, &frame).len();
    s.h.inject_many(x0, &vec![frame; 29], 0);
    passed += s.h.run().len();
    s.h.assert_buffers_held(0);
    passed
}

#[test]
fn sessions_permit_and_the_last_table_denies() {
    let mut s = scene();
    assert_eq!(s.run("classify table mask l3 ip4 src acl-miss-next deny"), "table 0\n");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9");
    assert_eq!(pass(&mut s, "10.0.0.8", 5), 30, "no interface uses it");
    s.run("set interface input acl intfc x0 ip4-table 0");
    assert_eq!((pass(&mut s, "10.0.0.9", 5), pass(&mut s, "10.0.0.8", 5)), (30, 0), "the frame's bytes, from before the IP header");
    assert_eq!(pass(&mut s, "2001:db8:0::9", 5), 30);
    assert_eq!((s.h.count("ip4-inacl", "input ACL hits"), s.h.count("ip4-inacl", "input ACL misses")), (30, 30));
    assert_eq!(s.h.count("ip4-inacl", "input ACL table-miss drops"), 30);
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.8 acl-hit-next permit");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 acl-hit-next deny");
    assert_eq!((pass(&mut s, "10.0.0.9", 5), pass(&mut s, "10.0.0.8", 5)), (0, 30));
    assert_eq!(s.h.count("ip4-inacl", "input ACL session deny drops"), 30);
    s.run("classify session table-index 0 del match l3 ip4 src 10.0.0.9");
    assert!(s.error("classify session table-index 0 del match l3 ip4 src 10.0.0.9").contains("no such session"));
    s.run("set interface input acl intfc x0 ip4-table 0 del");
    assert_eq!(pass(&mut s, "10.0.0.9", 5), 30);
    assert!(s.error("set interface input acl intfc x0 ip4-table 0 del").contains("is not the input ACL of x0"));
}

#[test]
fn a_packet_goes_through_the_chain() {
    let mut s = scene();
    // With the node's data: the IP header, and the Ethernet header before it.
    s.run("classify table table 7 mask l2 none l3 ip4 proto l4 dst_port current-data-flag 1 acl-miss-next deny");
    s.run("classify session table-index 7 match l2 none l3 ip4 proto 17 l4 dst_port 53");
    s.run("classify table mask l2 src current-data-flag 1 current-data-offset -14 next-table 7");
    s.run(&format!("classify session table-index 0 match l2 src {} acl-hit-next permit", host_mac(0)));
    s.run("set interface input acl intfc x0 ip4-table 0");
    assert_eq!(pass(&mut s, "10.0.0.9", 5), 30);
    s.run(&format!("classify session table-index 0 match l2 src {} del", host_mac(0)));
    assert_eq!((pass(&mut s, "10.0.0.9", 53), pass(&mut s, "10.0.0.9", 5)), (30, 0));
    assert_eq!(s.h.count("ip4-inacl", "input ACL hits after chain walk"), 30);
    assert!(s.error("classify table table 7 next-table 0").contains("chains have an end"));
    assert!(s.error("classify table table 7 next-table 7").contains("cannot follow itself"));
    assert!(s.error("classify table table 7 next-table 9").contains("no classifier table 9"));
    assert_eq!(s.error("classify table table 7 del"), "classify table: classifier table 7 is in use by table 0, which it follows");
    assert_eq!(s.error("classify table table 0 del"), "classify table: classifier table 0 is in use by the input ACL of x0");
    s.run("set interface input acl intfc x0 ip4-table 0 del");
    s.run("classify table table 0 del-chain");
    assert_eq!(s.run("show classify tables"), "No classifier tables configured\n");
}

#[test]
fn chains_are_bounded_and_so_are_tables() {
    let mut s = scene();
    s.run("classify table mask l3 ip4 src memory-size 1000");
    for n in 1..64 {
        s.run(&format!("classify table mask l3 ip4 src next-table {}", n - 1));
    }
    assert!(s.error("classify table mask l3 ip4 src next-table 63").contains("at most 64 tables"));
    s.run("classify table mask l3 ip4 src");
    assert!(s.error("classify table table 0 next-table 64").contains("at most 64 tables"), "seen from its end");
    for n in 0..8 {
        s.run(&format!("classify session table-index 0 match l3 ip4 src 10.0.0.{n}"));
    }
    assert!(s.error("classify session table-index 0 match l3 ip4 src 10.0.0.9").contains("enough for 8 sessions"));
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.7 opaque-index 5");
    for wrong in ["mask hex 00", "mask l3 ip4 src table 4096", "mask l3 ip4 src buckets 0", "mask l3 ip4 src memory-size 0"] {
        s.error(&format!("classify table {wrong}"));
    }
    assert!(s.error("classify table").contains("missing mask"));
}

#[test]
fn what_leaves_is_classified_by_its_ip_header() {
    let mut s = scene();
    s.run("classify table mask l2 none l3 ip4 src current-data-flag 1 acl-miss-next deny");
    s.run("classify session table-index 0 match l2 none l3 ip4 src 10.0.0.9");
    s.run("classify table mask l2 none l3 ip6 src acl-miss-next deny");
    s.run("classify session table-index 1 match l2 none l3 ip6 src 2001:db8:0::9");
    s.run("classify table mask l2 dst current-data-flag 1 current-data-offset -14 acl-miss-next deny");
    s.run(&format!("classify session table-index 2 match l2 dst {}", host_mac(1)));
    s.run("set interface output acl intfc x1 ip4-table 0");
    s.run("set interface output acl intfc x1 ip6-table 1");
    assert_eq!((pass(&mut s, "10.0.0.9", 5), pass(&mut s, "10.0.0.8", 5)), (30, 0));
    assert_eq!((pass(&mut s, "2001:db8:0::9", 5), pass(&mut s, "2001:db8:0::8", 5)), (30, 0));
    assert_eq!(s.h.count("ip4-outacl", "output ACL table-miss drops"), 30);
    s.run("set interface output acl intfc x1 ip4-table 0 del");
    s.run("set interface output acl intfc x1 ip4-table 2");
    assert_eq!(pass(&mut s, "10.0.0.8", 5), 30, "the frame that it leaves in");
}

#[test]
fn packets_are_routed_by_another_table() {
    let mut s = scene();
    s.run("classify table mask l3 ip4 src");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 action set-ip4-fib-id 200");
    s.run("ip route add 10.0.1.0/24 table 200 via 10.0.2.2 x2");
    s.run("set interface input acl intfc x0 ip4-table 0");
    let x0 = s.interface("x0");
    let to = |source: [u8; 4]| Packet::ethernet(host_mac(0), router_mac(0)).ipv4(source, [10, 0, 1, 2]).udp(1, 2).build();
    let by = |s: &mut Scene, source| s.h.exchange(x0, &to(source))[0].1[..6].to_vec();
    assert_eq!(by(&mut s, [10, 0, 0, 9]), host_mac(2).0, "table 200");
    assert_eq!(by(&mut s, [10, 0, 0, 8]), host_mac(1).0, "its own");
    assert!(s.error("ip table del 200").contains("in use by sessions of the classifier"));
    s.run("ip route del 10.0.1.0/24 table 200");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 del");
    assert!(s.error("ip route add 10.0.1.0/24 table 200 via 10.0.2.2 x2").contains("200"), "it was made for the session");
    s.run("ip table add 201");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 action set-ip4-fib-id 201");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9");
    s.run("ip table del 201");
}

#[test]
fn frames_of_a_bridge_are_classified_as_they_come_in_and_leave() {
    let mut s = Scene { h: bare() };
    let (x0, x1) = (s.interface("x0"), s.interface("x1"));
    for n in 0..3 {
        s.run(&format!("set interface l2 bridge x{n} 10"));
    }
    let frame = |from: u8| {
        let packet = Packet::ethernet(host_mac(from), quiver_wire::MacAddr([0xff; 6])).ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        packet.udp(1, 2).payload(b"bridged").pad_to(60).build()
    };
    let ports = |s: &mut Scene, from: u8| {
        let mut out: Vec<u32> = s.h.exchange(x0, &frame(from)).into_iter().map(|(port, _)| port.0).collect();
        out.sort_unstable();
        out.len()
    };
    s.run("classify table mask l2 src acl-miss-next deny");
    s.run(&format!("classify session table-index 0 match l2 src {}", host_mac(0)));
    s.run("set interface input acl intfc x0 l2-table 0");
    assert_eq!((ports(&mut s, 0), ports(&mut s, 9)), (2, 0));
    assert_eq!(s.h.count("l2-input-acl", "input ACL table-miss drops"), 1);
    s.run("set interface input acl intfc x0 l2-table 0 del");
    s.run("set interface output acl intfc x1 l2-table 0");
    assert_eq!((ports(&mut s, 0), ports(&mut s, 9)), (2, 1), "not by x1");
    assert_eq!(s.h.count("l2-output-acl", "output ACL table-miss drops"), 1);
    // Where frames go changes, what is classified does not.
    s.run("set interface input acl intfc x0 l2-table 0");
    s.run("set interface l2 xconnect x0 x1");
    assert_eq!((ports(&mut s, 0), ports(&mut s, 9)), (1, 0));
    assert!(s.run("show inacl type l2").contains("x0"));
    s.run("set interface input acl intfc x0 l2-table 0 del");
    s.run("set interface output acl intfc x1 l2-table 0 del");
    assert_eq!(ports(&mut s, 9), 1);
    s.run("set interface output acl intfc x1 l2-table 0");
    s.h.router.delete_interface(x1).unwrap();
    s.run("classify table table 0 del");
    s.h.assert_buffers_held(0);
}

#[test]
fn punted_packets_are_classified_for_all_interfaces() {
    let mut s = scene();
    s.run("set punt ip4 udp 4500");
    s.run("ip punt redirect add rx x0 via 10.0.1.2 x1");
    let x0 = s.interface("x0");
    let sent = |port| Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 0, 1]).udp(port, 4500).build();
    let passes = |s: &mut Scene, port| s.h.exchange(x0, &sent(port)).len();
    assert_eq!(passes(&mut s, 7), 1);
    s.run("classify table mask l3 ip4 proto l4 src_port acl-miss-next deny");
    s.run("classify session table-index 0 match l3 ip4 proto 17 l4 src_port 7");
    assert!(s.error("set interface input acl intfc x0 ip4-punt-table 0").contains("local0"));
    s.run("set interface input acl intfc local0 ip4-punt-table 0");
    assert_eq!((passes(&mut s, 7), passes(&mut s, 8)), (1, 0));
    assert_eq!(s.h.count("ip4-punt-acl", "input ACL table-miss drops"), 1);
    s.run("set interface input acl intfc local0 ip4-punt-table 0 del");
    assert_eq!(passes(&mut s, 8), 1);
}

#[test]
fn it_is_shown_and_made_again() {
    let mut s = scene();
    s.run("classify table mask l3 ip4 src acl-miss-next deny");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 opaque-index 3");
    s.run("set interface input acl intfc x0 ip4-table 0");
    let shown = s.run("show classify tables verbose");
    let memory = shown.lines().find(|line| line.contains("memory")).unwrap().to_owned();
    let expected = format!(
        "  TableIdx  Sessions   NextTbl  NextNode
         0         1        -1         0
  nbuckets 2, skip 1 match 1 flag 0 offset 0
  mask 00000000000000000000ffffffff0000
{memory}
    000000000000000000000a0000090000
      next_index -1 advance 0 opaque 3 action none
      hits 0
"
    );
    assert_eq!(shown, expected);
    assert!(s.error("show classify tables index 3").contains("no classifier table 3"));
    assert_eq!(s.run("show inacl type ip4").lines().count(), 2);
    assert_eq!(s.run("show outacl type ip4"), "No output ACL tables configured\n");
    let lines = "classify table mask l3 ip4 src acl-miss-next deny
classify table mask hex 00000000000000000000000000000000000000000000000000000000ffff skip 0 match 2 next-table 0 current-data-flag 1 current-data-offset -14 table 9
classify session table-index 0 match l3 ip4 src 10.0.0.9 opaque-index 3 action set-ip6-fib-id 0
classify session table-index 9 match hex 0000000000000000000000000000000000000000000000000000000086dd acl-hit-next deny advance -4
set interface input acl intfc x0 ip4-table 9
set interface output acl intfc x1 ip6-table 0
set interface output acl intfc x2 l2-table 0
set interface input acl intfc local0 ip6-punt-table 9";
    assert_rebuilt(&[crate::ops::register], bare, lines, &["show classify tables verbose", "show inacl type ip4"]);
    let x0 = s.interface("x0");
    s.h.router.delete_interface(x0).unwrap();
    assert_eq!(s.run("show inacl type ip4"), "No input ACL tables configured\n");
    s.run("classify table table 0 del");
}

#[test]
fn messages_are_those_of_vpp() {
    let table = table(add);
    let names = [
        "classify_add_del_table_6849e39e",
        "classify_add_del_table_reply_05486349",
        "classify_add_del_session_f20879f0",
        "classify_table_ids_51077d14",
        "classify_table_ids_reply_d1d20e1d",
        "classify_table_by_interface_f9e6675e",
        "classify_table_by_interface_reply_ed4197db",
        "classify_table_info_0cca2cd9",
        "classify_table_info_reply_4a573c0e",
        "classify_session_dump_0cca2cd9",
        "classify_session_details_60e3ef94",
        "input_acl_set_interface_de7ad708",
        "output_acl_set_interface_de7ad708",
    ];
    assert_names(table.catalog(), &names);
    let mut s = scene();
    let x0 = s.interface("x0").0;
    let mut mask = vec![0; 16];
    mask[12..].fill(0xff);
    let new = ClassifyAddDelTable {
        is_add: true,
        table_index: u32::MAX,
        nbuckets: 2,
        memory_size: 2 << 20,
        skip_n_vectors: 0,
        match_n_vectors: 1,
        next_table_index: u32::MAX,
        miss_next_index: 0,
        current_data_flag: 1,
        mask: mask.clone(),
        ..Default::default()
    };
    let made: ClassifyAddDelTableReply = read(&ask(&mut s.h, &table, 1, &new)[0]);
    assert_eq!((made.retval, made.new_table_index, made.match_n_vectors), (0, 0, 1));
    let short = ClassifyAddDelTable { match_n_vectors: 2, ..new.clone() };
    assert_eq!(read::<ClassifyAddDelTableReply>(&ask(&mut s.h, &table, 1, &short)[0]).retval, -7);
    let mut bytes = vec![0xee; 16];
    bytes[12..].copy_from_slice(&[10, 0, 0, 9]);
    let session = ClassifyAddDelSession {
        is_add: true,
        hit_next_index: u32::MAX,
        action: ClassifyAction::CLASSIFY_API_ACTION_SET_METADATA,
        metadata: 5,
        r#match: bytes,
        ..Default::default()
    };
    assert_eq!(read::<ClassifyAddDelSessionReply>(&ask(&mut s.h, &table, 1, &session)[0]).retval, 0);
    let none = ClassifyAddDelSession { table_index: 4, ..session.clone() };
    assert_eq!(read::<ClassifyAddDelSessionReply>(&ask(&mut s.h, &table, 1, &none)[0]).retval, -65);
    let acl = InputAclSetInterface {
        sw_if_index: quiver_api::defs::InterfaceIndex(x0),
        ip4_table_index: 0,
        ip6_table_index: u32::MAX,
        l2_table_index: u32::MAX,
        is_add: true,
    };
    assert_eq!(read::<InputAclSetInterfaceReply>(&ask(&mut s.h, &table, 1, &acl)[0]).retval, 0);
    assert_eq!((pass(&mut s, "10.0.0.9", 5), pass(&mut s, "10.0.0.8", 5)), (30, 0));
    let by: ClassifyTableByInterfaceReply =
        read(&ask(&mut s.h, &table, 1, &ClassifyTableByInterface { sw_if_index: acl.sw_if_index.clone() })[0]);
    assert_eq!((by.ip4_table_id, by.ip6_table_id, by.l2_table_id), (0, u32::MAX, u32::MAX));
    let ids: ClassifyTableIdsReply = read(&ask(&mut s.h, &table, 1, &ClassifyTableIds {})[0]);
    assert_eq!(ids.ids, [0]);
    let info: ClassifyTableInfoReply = read(&ask(&mut s.h, &table, 1, &ClassifyTableInfo { table_id: 0 })[0]);
    assert_eq!((info.active_sessions, info.mask), (1, mask));
    let details: ClassifySessionDetails = read(&ask(&mut s.h, &table, 1, &ClassifySessionDump { table_id: 0 })[0]);
    assert_eq!(details.r#match[10..], [0, 0, 10, 0, 0, 9]);
}

#[test]
fn filters_take_the_packets_that_are_named_and_count_them() {
    let mut s = scene();
    let frame =
        |source: [u8; 4], port| Packet::ethernet(host_mac(0), router_mac(0)).ipv4(source, [10, 0, 1, 2]).udp(port, 9).build();
    let taken = |s: &Scene, source, port| {
        let frame = frame(source, port);
        s.h.router.trace_filter().unwrap()(&[], &frame, frame.len())
    };
    assert!(taken(&s, [10, 0, 0, 1], 7), "without a filter each packet is");
    s.run("classify filter trace mask l3 ip4 src match l3 ip4 src 10.0.0.5");
    s.run("classify filter trace mask l3 ip4 src match l3 ip4 src 10.0.0.6");
    s.run("classify filter trace mask l3 ip4 proto l4 src_port match l3 ip4 proto 17 l4 src_port 7");
    let all = [([10, 0, 0, 5], 9), ([10, 0, 0, 6], 9), ([10, 0, 0, 7], 9), ([10, 0, 0, 7], 7), ([10, 0, 0, 5], 7)];
    assert_eq!(all.map(|(source, port)| taken(&s, source, port)), [true, true, false, true, true]);
    // A frame whose link header a node has pulled is the same frame.
    let whole = frame([10, 0, 0, 6], 9);
    assert!(s.h.router.trace_filter().unwrap()(&whole[..14], &whole[14..], whole.len() - 14));
    let shown = s.run("show classify tables verbose");
    assert!(shown.contains("hits 2\n") && shown.contains("hits 1\n"), "{shown}");
    // The mask with more bits is asked first.
    let filters =
        "Filter Used By                 Table(s)\n--------------                 --------\npacket tracer:                 ";
    assert_eq!(s.run("show classify filter"), format!("{filters}first table 0\npcap rx/tx/drop:               first table none\n"));
    assert!(s.run("show classify filter verbose").contains("packet tracer:                 table(s) 0 1 none\n"));
    assert!(s.error("classify table table 0 del").contains("in use by the filter of traces"));
    // A capture has another filter than a trace. A capture on one interface can have its own.
    let captured = |s: &Scene, interface: Option<&str>| {
        let frame = frame([10, 0, 0, 5], 9);
        s.h.router.capture_filter(interface.map(|name| s.interface(name))).unwrap()(&[], &frame, frame.len())
    };
    assert_eq!([None, Some("x1")].map(|of| captured(&s, of)), [false, false], "nothing is chosen");
    s.run("classify filter pcap mask l3 ip4 src match l3 ip4 src 10.0.0.9");
    s.run("classify filter x1 mask l3 ip4 src match l3 ip4 src 10.0.0.5");
    assert_eq!([None, Some("x0"), Some("x1")].map(|of| captured(&s, of)), [false, false, true]);
    s.run("classify filter trace mask l3 ip4 src match l3 ip4 src 10.0.0.5 del");
    assert_eq!(all.map(|(source, port)| taken(&s, source, port)), [false, true, false, true, true]);
    // What is made for a filter goes with it.
    for of in ["trace", "pcap", "x1"] {
        s.run(&format!("classify filter {of} del"));
    }
    assert!(taken(&s, [10, 0, 0, 1], 9));
    assert_eq!(s.run("show classify tables"), "No classifier tables configured\n");
    for (line, expected) in [
        ("classify filter", "trace, pcap or an interface"),
        ("classify filter trace", "missing mask"),
        ("classify filter trace mask l3 ip4 src", "missing match"),
        ("classify filter nowhere del", "unknown interface `nowhere'"),
        ("classify filter trace mask l3 ip4 src match l3 ip4 src 10.0.0.5 del", "no such mask"),
    ] {
        let error = s.error(line);
        assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
    }
}

#[test]
fn sessions_count_their_packets() {
    let mut s = scene();
    s.run("classify table mask l3 ip4 src");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9");
    s.run("set interface input acl intfc x0 ip4-table 0");
    for _ in 0..3 {
        pass(&mut s, "10.0.0.9", 7);
    }
    pass(&mut s, "10.0.0.8", 7);
    assert!(s.run("show classify tables verbose").contains("hits 90\n"));
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9 del");
    s.run("classify session table-index 0 match l3 ip4 src 10.0.0.9");
    assert!(s.run("show classify tables verbose").contains("hits 0\n"), "another session");
}
