//! Every reason to drop, one packet each.

use super::*;

/// Changes bytes of an IPv4 header and makes its checksum right again.
fn v4(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Packet::new("10.0.0.2", "10.0.1.2").frame(host_mac(0), router_mac(0));
    change(&mut frame);
    frame[24..26].fill(0);
    let end = (14 + usize::from(frame[14] & 0xf) * 4).min(frame.len());
    let sum = quiver_wire::checksum::checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn v6(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Packet::new("2001:db8::2", "2001:db8:1::2").frame(host_mac(0), router_mac(0));
    change(&mut frame);
    frame
}

fn src4(address: [u8; 4]) -> Vec<u8> {
    v4(|f| f[26..30].copy_from_slice(&address))
}

fn dst4(address: [u8; 4]) -> Vec<u8> {
    v4(|f| f[30..34].copy_from_slice(&address))
}

fn address6(at: usize, text: &str) -> Vec<u8> {
    let IpAddr::V6(a) = ip(text) else { panic!("not IPv6") };
    v6(|f| f[at..at + 16].copy_from_slice(&a.octets()))
}

fn with_options(options: &[u8]) -> Vec<u8> {
    Packet { options: options.to_vec(), ..Packet::new("10.0.0.2", "10.0.1.2") }.frame(host_mac(0), router_mac(0))
}

fn to_all(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].fill(0xff);
    frame
}

/// Packets of a host behind x0, and the node and the reason that each is dropped for.
pub fn bad_packets() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("ip4-input", "ip4 length < 20 bytes", v4(|f| f.truncate(14 + 19))),
        ("ip4-input", "ip4 length < 20 bytes", v4(|f| f[16..18].copy_from_slice(&19_u16.to_be_bytes()))),
        ("ip4-input", "ip4 length > l2 length", v4(|f| f[16..18].copy_from_slice(&1000_u16.to_be_bytes()))),
        ("ip4-input", "ip4 version != 4", v4(|f| f[14] = 0x55)),
        ("ip4-input", "ip4 header length", v4(|f| f[14] = 0x44)),
        ("ip4-input", "bad ip4 checksum", {
            let mut f = v4(|_| ());
            f[25] ^= 1;
            f
        }),
        ("ip4-input", "ip4 fragment offset == 1", v4(|f| (f[21], f[23]) = (1, 6))),
        ("ip4-input", "ip4 source route option", with_options(&[131, 7, 4, 10, 0, 0, 9, 0])),
        ("ip4-input", "ip4 source route option", with_options(&[137, 7, 4, 10, 0, 0, 9, 0])),
        ("ip4-input", "malformed ip4 options", with_options(&[7, 1, 4, 0])),
        ("ip4-input", "malformed ip4 options", with_options(&[7, 40, 4, 0])),
        ("ip4-input", "ip4 source address cannot be one", src4([127, 0, 0, 1])),
        ("ip4-input", "ip4 source address cannot be one", src4([224, 0, 0, 1])),
        ("ip4-input", "ip4 source address cannot be one", src4([255, 255, 255, 255])),
        ("ip4-input", "ip4 source address cannot be one", src4([0, 0, 0, 0])),
        ("ip4-input", "ip4 destination address cannot be one", dst4([127, 0, 0, 1])),
        ("ip4-input", "ip4 destination address cannot be one", dst4([0, 0, 0, 0])),
        ("ip4-input", "ip4 destination address cannot be one", dst4([241, 0, 0, 1])),
        ("ip4-input", "ip4 unicast in a link broadcast", to_all(v4(|_| ()))),
        ("ip4-drop", "no route", dst4([9, 9, 9, 9])),
        ("ip4-drop", "special address", dst4([10, 0, 1, 255])),
        ("ip4-drop", "special address", dst4([10, 0, 1, 0])),
        ("ip4-mfib-forward-lookup", "no multicast route", dst4([239, 1, 1, 1])),
        ("ip6-input", "ip6 length < 40 bytes", v6(|f| f.truncate(14 + 39))),
        ("ip6-input", "ip6 length > l2 length", v6(|f| f[18] = 8)),
        ("ip6-input", "ip6 version != 6", v6(|f| f[14] = 0x70)),
        ("ip6-input", "ip6 source address cannot be one", address6(22, "ff02::1")),
        ("ip6-input", "ip6 source address cannot be one", address6(22, "::")),
        ("ip6-input", "ip6 source address cannot be one", address6(22, "::1")),
        ("ip6-input", "ip6 destination address cannot be one", address6(38, "::")),
        ("ip6-input", "ip6 destination address cannot be one", address6(38, "::1")),
        ("ip6-input", "ip6 destination address cannot be one", address6(38, "ff01::1")),
        ("ip6-input", "ip6 unicast in a link multicast", to_all(v6(|_| ()))),
        ("ip6-drop", "no route", address6(38, "2001:db9::1")),
        ("ip6-mfib-forward-lookup", "no multicast route", address6(38, "ff0e::1")),
    ]
}

#[test]
fn each_bad_packet_is_counted_under_its_reason_and_nothing_leaves() {
    let (mut h, x) = bed(0, 2);
    for (node, reason, frame) in bad_packets() {
        let before = h.count(node, reason);
        let out = h.exchange(x[0], &frame);
        assert_eq!(h.count(node, reason), before + 1, "{node}: {reason}; counters {:?}", h.counts());
        assert!(out.is_empty(), "{node}: {reason}: {out:02x?}");
    }
    h.assert_buffers_held(0);
}

#[test]
fn an_interface_without_addresses_takes_no_packets_of_the_family() {
    let (mut h, x) = bed(0, 2);
    h.router.remove_addresses(x[0]).unwrap();
    h.exchange(x[0], &v4(|_| ()));
    h.exchange(x[0], &v6(|_| ()));
    assert_eq!(h.count("ip4-input", "ip4 not enabled on the interface"), 1);
    assert_eq!(h.count("ip6-input", "ip6 not enabled on the interface"), 1);
    h.router.set_unnumbered(x[0], Some(x[1])).unwrap();
    assert_eq!(h.exchange(x[0], &v4(|_| ())).len(), 1, "borrowed addresses are enough");
    h.assert_buffers_held(0);
}

#[test]
fn options_that_a_router_leaves_alone_pass_unchanged() {
    let (mut h, x) = bed(0, 2);
    for options in [&[7, 7, 4, 0, 0, 0, 0, 0][..], &[1, 1, 1, 0], &[148, 4, 0, 0], &[68, 8, 5, 0, 0, 0, 0, 0]] {
        let frame = with_options(options);
        assert_eq!(h.exchange(x[0], &frame), [(x[1], forwarded(&frame, router_mac(1), host_mac(1)))], "{options:?}");
    }
    h.assert_buffers_held(0);
}

#[test]
fn a_packet_whose_last_hop_this_is_is_answered() {
    let (mut h, x) = bed(0, 2);
    for ttl in [0, 1] {
        for (src, dst, header) in [("10.0.0.2", "10.0.1.2", 20), ("2001:db8::2", "2001:db8:1::2", 40)] {
            let frame = Packet { ttl, ..Packet::new(src, dst) }.frame(host_mac(0), router_mac(0));
            let out = h.exchange(x[0], &frame);
            assert_eq!(out.len(), 1, "{src} {ttl}: {:?}", h.counts());
            assert_eq!(out[0].0, x[0]);
            let (kind, code) = (out[0].1[14 + header], out[0].1[14 + header + 1]);
            assert_eq!((kind, code), if header == 20 { (11, 0) } else { (3, 0) });
        }
    }
    h.assert_buffers_held(0);
}

#[test]
fn directed_broadcast_and_unknown_destinations_do_not_reach_a_link() {
    let (mut h, x) = bed(0, 2);
    assert!(h.exchange(x[0], &dst4([10, 0, 1, 255])).is_empty());
    h.router.set_link(x[1], quiver_graph::Link { up: false, speed: None });
    assert!(h.exchange(x[0], &v4(|_| ())).is_empty());
    assert_eq!(h.count("ip4-drop", "route without a path that is up"), 1);
    h.router.set_link(x[1], quiver_graph::Link { up: true, speed: None });
    assert_eq!(h.exchange(x[0], &v4(|_| ())).len(), 1);
    h.assert_buffers_held(0);
}
