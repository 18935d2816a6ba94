//! Packets and settings, in a router with made-up interfaces: `x0`, `x1` and `x2` with 10.0.n.1/24 and 2001:db8:n::1/64. Rates are so
//! low, and frames so large, that one more takes eight seconds: while a test runs exactly the burst passes.

mod messages;
mod workers;

use quiver_net::ops::testing::assert_rebuilt;
use quiver_net::testing::{Harness, Scene, host_mac, router_mac};
use quiver_wire::build::Packet;
use quiver_wire::checksum::checksum;

/// Without addresses.
fn bare() -> Harness {
    bare_with(0)
}

fn bare_with(workers: usize) -> Harness {
    Harness::with_plugin(&crate::plugin(), workers, 3)
}

fn scene() -> Scene {
    scene_with(0)
}

fn scene_with(workers: usize) -> Scene {
    Scene { h: bare_with(workers).with_hosts() }
}

/// A frame of 1000 bytes from the host on `x0` to that on `x1`.
fn frame(six: bool) -> Vec<u8> {
    let packet = Packet::ethernet(host_mac(0), router_mac(0));
    let packet = match six {
        false => packet.ipv4([10, 0, 0, 2], [10, 0, 1, 2]).udp(1, 2).payload(&[0xa5; 958]),
        true => {
            let address = |net: u16| std::net::Ipv6Addr::from([0x2001, 0xdb8, net, 0, 0, 0, 0, 2]);
            packet.ipv6(address(0), address(1)).udp(1, 2).payload(&[0xa5; 938])
        }
    };
    let frame = packet.build();
    assert_eq!(frame.len(), LEN);
    frame
}

/// Bytes of [`frame`].
const LEN: usize = 1000;
/// All that [`pass`] sends.
const SENT: usize = 38;

/// What leaves of some frames that come in on `x0`, one by one and many at a time.
fn sent(s: &mut Scene, frame: &[u8]) -> Vec<Vec<u8>> {
    let x0 = s.interface("x0");
    let mut out = s.h.exchange(x0, frame);
    for many in [8, 29] {
        s.h.inject_many(x0, &vec![frame.to_vec(); many], 0);
        out.extend(s.h.run());
    }
    s.h.assert_buffers_held(0);
    out.into_iter().map(|(_, frame)| frame).collect()
}

fn pass(s: &mut Scene, six: bool) -> usize {
    sent(s, &frame(six)).len()
}

/// Packets and bytes that conform, exceed and violate.
fn counts(s: &Scene, index: u32) -> [(u64, u64); 3] {
    s.h.router.state::<crate::control::Policers>().unwrap().counts(index)
}

/// So many of [`frame`], as they are counted.
fn frames(n: usize) -> (u64, u64) {
    (n as u64, (n * LEN) as u64)
}

#[test]
fn exactly_the_burst_passes_in_both_directions_and_of_both_families() {
    for (direction, node) in [("input x0", "policer-input"), ("output x1", "policer-output")] {
        for six in [false, true] {
            // At the borders of batches, and in the middle of one.
            for burst in [0, 1, 4, 7, 8, 9, 12, 16, 31, 37, 38, 39] {
                let mut s = scene();
                s.run(&format!("policer add name a cir 1 cb {}", burst * LEN + 60));
                let (command, interface) = direction.split_once(' ').unwrap();
                s.run(&format!("policer {command} name a {interface}"));
                let passed = burst.min(SENT);
                assert_eq!(pass(&mut s, six), passed, "{direction}, a burst of {burst}");
                assert_eq!(counts(&s, 0), [frames(passed), (0, 0), frames(SENT - passed)]);
                let node = if six { format!("ip6-{node}") } else { node.to_owned() };
                assert_eq!(s.h.count(&node, "Packets Dropped"), (SENT - passed) as u64);
                assert_eq!(s.h.count(&node, "Packets Transmitted"), passed as u64);
                s.run(&format!("policer {command} unapply name a {interface}"));
                assert_eq!(pass(&mut s, six), SENT);
            }
        }
    }
}

#[test]
fn time_fills_the_bucket() {
    let mut s = scene();
    // 100 bytes a ms.
    s.run("policer add name a cir 800 cb 10000");
    s.run("policer input name a x0");
    assert!(pass(&mut s, false) < SENT);
    let x0 = s.interface("x0");
    s.h.until("a packet conforms again", |h| !h.exchange(x0, &frame(false)).is_empty());
}

#[test]
fn yellow_and_red_packets_are_marked() {
    for six in [false, true] {
        for direction in ["input name a x0", "output name a x1"] {
            let mut s = scene();
            s.run(
                "policer add name a type 1r3c cir 1 cb 5000 eb 10000 exceed-action mark-and-transmit AF13 \
                 violate-action mark-and-transmit 63",
            );
            s.run(&format!("policer {direction}"));
            let out = sent(&mut s, &frame(six));
            let dscp = |frame: &Vec<u8>| u16::from_be_bytes([frame[14], frame[15]]) >> if six { 6 } else { 2 } & 63;
            let marks: Vec<u16> = out.iter().map(|frame| dscp(frame) & 63).collect();
            assert_eq!(marks, [vec![0; 5], vec![14; 10], vec![63; 23]].concat());
            assert!(six || out.iter().all(|frame| checksum(&frame[14..34]) == 0));
            assert_eq!(counts(&s, 0), [frames(5), frames(10), frames(23)]);
        }
    }
}

#[test]
fn frames_of_a_bridge_are_policed_and_marked_behind_their_tags() {
    for (direction, node) in [("input name a x0", "l2-policer-input"), ("output name a x1", "l2-policer-output")] {
        let mut s = scene();
        s.run("set interface l2 bridge x0 1");
        s.run("set interface l2 bridge x1 1");
        s.run(&format!("policer add name a cir 1 cb {} violate-action mark-and-transmit EF", 10 * (LEN + 4)));
        s.run(&format!("policer {direction}"));
        let mut tagged = frame(false);
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        let out = sent(&mut s, &tagged);
        let marks: Vec<u8> = out.iter().map(|frame| frame[19] >> 2).collect();
        assert_eq!(marks, [vec![0; 10], vec![46; 28]].concat(), "{direction}");
        assert!(out.iter().all(|frame| checksum(&frame[18..38]) == 0));
        assert_eq!(counts(&s, 0)[2], (28, 28 * (LEN as u64 + 4)));
        assert_eq!(s.h.count(node, "Packets Transmitted"), SENT as u64);
        s.run(&format!("policer {}", direction.replace("name", "unapply name")));
        assert_eq!(sent(&mut s, &tagged).len(), SENT);
        assert_eq!(counts(&s, 0)[2].0, 28);
    }
}

#[test]
fn a_classifier_s_filter_and_a_policer_stand_on_one_bridge_port() {
    let mut s = scene();
    s.h.add_plugin(&quiver_classify::plugin());
    s.run("set interface l2 bridge x0 1");
    s.run("set interface l2 bridge x1 1");
    s.run("policer add name a cir 1 cb 10000");
    s.run("classify table mask l3 ip4 dst acl-miss-next permit");
    s.run("classify session table-index 0 match l3 ip4 dst 10.0.1.3 acl-hit-next deny");
    s.run("policer input name a x0");
    s.run("set interface input acl intfc x0 l2-table 0");
    let mut denied = frame(false);
    denied[33] = 3;
    assert_eq!((sent(&mut s, &denied).len(), counts(&s, 0)), (0, [(0, 0); 3]), "what is denied costs no tokens");
    assert_eq!(pass(&mut s, false), 10);
    s.run("set interface input acl intfc x0 l2-table 0 del");
    s.run("policer reset name a");
    assert_eq!((sent(&mut s, &denied).len(), pass(&mut s, false)), (10, 0));
    s.run("policer input unapply name a x0");
    assert_eq!((sent(&mut s, &denied).len(), pass(&mut s, false)), (SENT, SENT));
}

#[test]
fn tags_of_a_sub_interface_count() {
    use quiver_net::interface::{SubMatch, VlanId};
    let mut s = scene();
    let tagged = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(7), inner: None, exact: true };
    let x0 = s.interface("x0");
    let sub = s.h.router.create_sub_interface(x0, 7, tagged).unwrap();
    s.h.router.set_interface_up(sub, true).unwrap();
    s.h.router.add_address(sub, "10.7.0.1".parse().unwrap(), 24).unwrap();
    s.run("policer add name a cir 1 cb 10040");
    s.run("policer input name a x0.7");
    let mut frame = frame(false);
    frame.splice(12..12, [0x81, 0, 0, 7]);
    assert_eq!(sent(&mut s, &frame).len(), 10);
    assert_eq!(counts(&s, 0)[0], (10, 10_040));
    s.h.router.delete_interface(sub).unwrap();
    s.run("policer del name a");
}

#[test]
fn rates_in_packets_count_packets() {
    let mut s = scene();
    s.run("policer add name a rate pps cir 1 cb 5000");
    s.run("policer input name a x0");
    // One more a second.
    let start = std::time::Instant::now();
    let passed = pass(&mut s, false);
    let more = start.elapsed().as_secs() as usize;
    assert!((5..=5 + more).contains(&passed), "{passed} in {more} s");
}

#[test]
fn an_update_and_a_reset_fill_the_buckets() {
    let mut s = scene();
    s.run("policer add name a cir 1 cb 10000");
    s.run("policer input name a x0");
    assert_eq!((pass(&mut s, false), pass(&mut s, false)), (10, 0));
    s.run("policer reset name a");
    assert!(s.run("show policer").contains("cur lim 655360000, cur bkt 655360000,"));
    assert_eq!((pass(&mut s, false), pass(&mut s, false)), (10, 0));
    s.run("configure policer name a cir 1 cb 20000 conform-action mark-and-transmit CS7");
    assert_eq!(counts(&s, 0), [(0, 0); 3]);
    let marked = sent(&mut s, &frame(false)).into_iter().map(|frame| frame[15]).collect::<Vec<_>>();
    assert_eq!(marked, [56 << 2; 20]);
    assert!(s.error("configure policer name a cir 1 eir 2 cb 1").contains("a policer of one rate has cir only"));
    assert_eq!(pass(&mut s, false), 0, "nothing has changed");
}

#[test]
fn a_policer_in_use_stays_and_another_one_takes_its_place() {
    let mut s = scene();
    s.run("policer add name a cir 1 cb 1000");
    s.run("policer add name b cir 1 cb 20000");
    assert!(s.error("policer add name a cir 1 cb 1").contains("policer `a' exists already"));
    assert!(s.error("policer input name c x0").contains("there is no policer `c'"));
    assert!(s.error("policer input index 9 x0").contains("there is no policer 9"));
    assert!(s.error("policer input x0").contains("missing the policer's name"));
    assert!(s.error("policer bind name a").contains("missing the number of the worker"));
    s.run("policer input name a x0");
    assert!(s.error("policer del name a").contains("policer `a' is in use by the input of x0"));
    s.run("policer input name b x0");
    s.run("policer del index 0");
    assert_eq!(pass(&mut s, false), 20);
    assert!(s.error("policer output unapply name b x0").contains("policer `b' is not used there"));
    s.run("policer add name c cir 1 cb 1000");
    assert_eq!(counts(&s, 0), [(0, 0); 3], "the number is used again, its counts are not");
    let x0 = s.interface("x0");
    s.h.router.delete_interface(x0).unwrap();
    s.run("policer del name b");
}

#[test]
fn punted_packets_are_policed_before_they_are_redirected() {
    for (family, path, six) in [("ip", "10.0.1.2", false), ("ip6", "2001:db8:1::2", true)] {
        let mut s = scene();
        s.run(&format!("{family} punt redirect add rx x0 via {path} x1"));
        s.run(&format!("set punt {} udp 4500", if six { "ip6" } else { "ip4" }));
        let to_router = Packet::ethernet(host_mac(0), router_mac(0));
        let frame = match six {
            false => to_router.ipv4([10, 0, 0, 2], [10, 0, 0, 1]),
            true => {
                let address = |host: u16| std::net::Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
                to_router.ipv6(address(2), address(1))
            }
        };
        let frame = frame.udp(1, 4500).payload(&[0xa5; 958]).build();
        assert_eq!(sent(&mut s, &frame).len(), SENT);
        let bytes = frame.len() - 14;
        s.run(&format!("policer add name a cir 1 cb {}", 12 * bytes));
        s.run(&format!("{family} punt policer 0"));
        assert_eq!(sent(&mut s, &frame).len(), 12);
        assert_eq!(counts(&s, 0)[0], (12, 12 * bytes as u64));
        assert!(s.error("policer del name a").contains("is in use by punted packets"));
        s.run(&format!("{family} punt policer del"));
        assert_eq!(sent(&mut s, &frame).len(), SENT);
        s.run("policer del name a");
    }
}

#[test]
fn it_is_shown_and_made_again() {
    let mut s = scene();
    s.run("policer add name a type 2r3c-2698 cir 80 eir 100 cb 1000 eb 2000 exceed-action mark-and-transmit 1");
    s.run("policer input name a x2");
    let shown = "Name \"a\" type 2r3c-2698 cir 80 eir 100 cb 1000 eb 2000
rate type kbps, round type closest
conform action transmit, exceed action mark-and-transmit 1, violate action drop
Policer at index 0: dual rate, not color-aware
cir 85899 tok/period, pir 107374 tok/period, scale 16
cur lim 65536000, cur bkt 65536000, ext lim 131072000, ext bkt 131072000
last update 0
conform 0 packets, 0 bytes
exceed 0 packets, 0 bytes
violate 0 packets, 0 bytes
-----------
";
    assert_eq!(s.run("show policer"), shown);
    assert_eq!(s.run("show policer name a"), shown);
    assert!(s.error("show policer name b").contains("there is no policer `b'"));
    let lines = "policer add name a type 1r3c cir 8 cb 1000 eb 2000 rate pps round up color-aware conform-action drop
policer add name b cir 8 cb 1000 violate-action mark-and-transmit AF11
policer bind name b 0
policer input name a x0
policer output name b x0
policer input name b x1
ip punt policer name b
ip6 punt policer name a";
    assert_rebuilt(&[crate::ops::register], bare, lines, &["show policer"]);
}
