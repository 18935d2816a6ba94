//! Packets through the nodes.

use quiver_net::testing::router_mac;
use quiver_wire::build::Packet;

use super::decode::{Collector, number};
use super::*;

/// A frame to the host behind x1, from the one behind x0.
fn frame(port: u16, is_six: bool) -> Vec<u8> {
    let frame = Packet::ethernet(host_mac(0), router_mac(0));
    let frame = match is_six {
        false => frame.ipv4([10, 0, 0, 2], [10, 0, 1, 2]),
        true => {
            let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
            frame.ipv6(address("2001:db8:0::2"), address("2001:db8:1::2"))
        }
    };
    frame.udp(port, 53).payload(&[7; 40]).build()
}

/// Has everything sent and gives what the collector hears, with the frames that left elsewhere.
fn collect(h: &mut Harness, collector: &mut Collector) -> usize {
    let x2 = index(h, "x2");
    let mut others = 0;
    let mut frames = h.run();
    run(h, "ipfix flush");
    frames.extend(h.run());
    for (by, frame) in frames {
        // To the collector: IPv4, UDP, port 2055.
        if by == x2 && frame.get(36..38) == Some(&2055_u16.to_be_bytes()) {
            assert_eq!(frame[26..34], [10, 0, 2, 1, 10, 0, 2, 2]);
            collector.hear(&frame[42..]);
        } else {
            others += 1;
        }
    }
    others
}

#[test]
fn each_packet_is_recorded_on_its_way_in_and_out() {
    for (workers, is_six) in [(0, false), (1, true), (2, false), (2, true)] {
        let mut h = bed(workers);
        let which = if is_six { "ip6" } else { "ip4" };
        run(
            &mut h,
            &format!(
                "flowprobe params record l2 l3 l4 active 0 passive 0
                 flowprobe feature add-del x0 {which} rx
                 flowprobe feature add-del x1 {which} tx"
            ),
        );
        let (mut collector, [x0, x1]) = (Collector::default(), ["x0", "x1"].map(|name| index(&h, name)));
        for thread in 0..workers.max(1) {
            let frames: Vec<Vec<u8>> = (0..20).map(|n| frame(1000 + n, is_six)).collect();
            h.inject_many(x0, &frames, thread);
        }
        let passed = collect(&mut h, &mut collector);
        let packets = 20 * workers.max(1);
        assert_eq!(passed, packets, "all go on");
        assert_eq!((collector.records.len(), collector.lost), (2 * packets, 0));
        for record in &collector.records {
            let leaves = number(record, 61) == 1;
            let (ingress, egress) = (number(record, 10), number(record, 14));
            assert_eq!((ingress, egress), (x0.0.into(), if leaves { x1.0.into() } else { 0 }));
            let macs = if leaves { [router_mac(1), host_mac(1)] } else { [host_mac(0), router_mac(0)] };
            assert_eq!([&record[&56], &record[&80]], macs.each_ref().map(|mac| &mac.0[..]), "leaves: {leaves}");
            assert_eq!(number(record, 1), if is_six { 88 } else { 68 });
            assert!((1000..1020).contains(&number(record, 7)));
        }
        h.assert_buffers_held(0);
        run(&mut h, &format!("flowprobe feature add-del x0 {which} rx disable\nflowprobe feature add-del x1 {which} tx disable"));
        h.inject(x0, &frame(1, is_six));
        let before = collector.records.len();
        collect(&mut h, &mut collector);
        assert_eq!(collector.records.len(), before);
    }
}

#[test]
fn frames_are_recorded_with_their_headers() {
    let mut h = bed(1);
    run(&mut h, "flowprobe params record l2 l3 active 0 passive 0\nflowprobe feature add-del x0 l2 both");
    let (mut collector, x0) = (Collector::default(), index(&h, "x0"));
    h.inject(x0, &frame(9, false));
    collect(&mut h, &mut collector);
    // Those of the test's own come in behind the arc `device-input`, so only what leaves is seen.
    let back = Packet::ethernet(host_mac(1), router_mac(1)).ipv4([10, 0, 1, 2], [10, 0, 0, 2]).udp(53, 9).payload(&[7; 40]).build();
    let x1 = index(&h, "x1");
    h.inject(x1, &back);
    collect(&mut h, &mut collector);
    let record = collector.records.last().expect("what leaves is recorded");
    assert_eq!((number(record, 61), number(record, 256), number(record, 352), number(record, 1)), (1, 0x800, 82, 68));
    assert_eq!(record[&80], host_mac(0).0);
}

#[test]
fn what_the_router_exports_is_not_recorded_itself() {
    let mut h = bed(0);
    run(
        &mut h,
        "flowprobe params record l3 active 0 passive 0\nflowprobe feature add-del x2 ip4 tx\nflowprobe feature add-del x0 ip4 rx",
    );
    let (mut collector, x0) = (Collector::default(), index(&h, "x0"));
    h.inject(x0, &frame(9, false));
    for _ in 0..5 {
        collect(&mut h, &mut collector);
    }
    assert_eq!(collector.records.len(), 1, "the packet, and none of its records");
    // Others to the same host are.
    let other = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 2, 2]).udp(4739, 2056).build();
    h.inject(x0, &other);
    collect(&mut h, &mut collector);
    assert_eq!(collector.records.len(), 3, "in and out");
}

#[test]
fn flows_are_shown_and_counted() {
    let mut h = bed(2);
    run(&mut h, "flowprobe params record l3 l4\nflowprobe feature add-del x0 ip4 rx");
    let x0 = index(&h, "x0");
    for thread in 0..2 {
        let frames: Vec<Vec<u8>> = (0..6).map(|n| frame(1000 + n % 3, false)).collect();
        h.inject_many(x0, &frames, thread);
    }
    h.run();
    let table = run(&mut h, "show flowprobe table");
    assert!(table.starts_with("6 of 6 flows\n"), "{table}");
    assert!(table.contains("10.0.0.2 -> 10.0.1.2 17 1000 53: 2 packets, 136 octets"), "{table}");
    assert!(run(&mut h, "show flowprobe table x1").starts_with("0 of 6 flows"));
    assert!(run(&mut h, "show flowprobe table max 1").starts_with("2 of 6 flows"), "one of each thread");
    let node = |text: &str| h.count("flowprobe-input-ip4", text);
    assert_eq!((node("packets recorded"), node("flows created")), (12, 6));
    assert!(run(&mut h, "show flowprobe statistics").contains("3 of 65536 flows"));
}

#[test]
fn a_worker_that_leaves_tells_what_it_has_and_one_that_joins_records() {
    let mut h = bed(2);
    run(&mut h, "flowprobe params record l3 l4\nflowprobe feature add-del x0 ip4 rx");
    let (mut collector, x0) = (Collector::default(), index(&h, "x0"));
    h.inject_many(x0, &[frame(1, false)], 1);
    // The templates.
    collect(&mut h, &mut collector);
    assert!(collector.records.is_empty());
    h.router.set_workers(&[quiver_graph::ThreadPlan::default()]).unwrap();
    collect(&mut h, &mut collector);
    assert_eq!(collector.records.len(), 1);
    assert_eq!(number(&collector.records[0], 136), 4);
    h.router.set_workers(&[quiver_graph::ThreadPlan::default(), quiver_graph::ThreadPlan::default()]).unwrap();
    h.inject_many(x0, &[frame(2, false)], 1);
    h.run();
    assert!(run(&mut h, "show flowprobe table").starts_with("1 of 1 flows"));
    h.assert_buffers_held(0);
}

#[test]
fn an_interface_that_goes_takes_its_feature_along() {
    let mut h = bed(0);
    run(&mut h, "flowprobe params record l3\nflowprobe feature add-del x0 ip4 both");
    let x0 = index(&h, "x0");
    h.router.delete_interface(x0).unwrap();
    assert_eq!(run(&mut h, "show flowprobe feature"), "");
}
