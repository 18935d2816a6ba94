//! Echo, errors, fragmentation and reassembly over the whole graph, frame by frame.

mod through;

use std::net::IpAddr;
use std::time::Duration;

use quiver_graph::IfIndex;
use quiver_wire::build::Packet;
use quiver_wire::checksum::{Sum, l4_sum_v6};
use quiver_wire::fragment::{Ipv4Fragments, Ipv6Fragments, Reassembly};
use quiver_wire::icmp4::{Icmp4Header, Icmp4Type};
use quiver_wire::icmp6::{Icmp6Header, Icmp6Type};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::{Ipv6Header, upper_layer};
use quiver_wire::{Header, IpPrefix};

use super::RateLimit;
use crate::fib::{Hop, Path, Source};
use crate::interface::Mtu;
use crate::ip::FamilyId;
use crate::local::reassembly::{Limits, Through};
use crate::testing::{Harness, host_mac, router_mac};

const FAMILIES: [FamilyId; 2] = [FamilyId::V4, FamilyId::V6];
const WORKERS: [usize; 4] = [0, 1, 2, 4];

/// 10.0.`net`.`host` or 2001:db8:`net`::`host`.
fn address(family: FamilyId, net: u8, host: u8) -> IpAddr {
    match family {
        FamilyId::V4 => IpAddr::from([10, 0, net, host]),
        FamilyId::V6 => IpAddr::from([0x2001, 0xdb8, net.into(), 0, 0, 0, 0, host.into()]),
    }
}

/// A router with interfaces x0, x1, …: host 1 of net N, whose host 2 is known.
fn bed(workers: usize, interfaces: u8) -> (Harness, Vec<IfIndex>) {
    let mut h = Harness::with_workers(workers);
    let all: Vec<IfIndex> = (0..interfaces).map(|n| h.interface(n)).collect();
    for (n, index) in (0..).zip(&all) {
        for (family, len) in [(FamilyId::V4, 24), (FamilyId::V6, 64)] {
            h.router.add_address(*index, address(family, n, 1), len).unwrap();
            h.router.neighbor_update(*index, address(family, n, 2), Some(host_mac(n))).unwrap();
        }
        let unlimited = RateLimit { total: 0, ..RateLimit::default() };
        FAMILIES.iter().for_each(|family| h.router.set_icmp_rate_limit(*family, unlimited));
    }
    (h, all)
}

fn ip(src: IpAddr, dst: IpAddr) -> Packet {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Packet::new().ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Packet::new().ipv6(src, dst),
        _ => panic!("two families"),
    }
}

/// A frame of the host behind x`net` around an IP packet.
fn frame(net: u8, packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&router_mac(net).0[..], &host_mac(net).0, &kind, packet].concat()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7) ^ (i >> 8)) as u8).collect()
}

fn echo(family: FamilyId, dst: IpAddr, sequence: u16, data: usize) -> Vec<u8> {
    ip(address(family, 0, 2), dst).echo_request(77, sequence).payload(&pattern(data)).build()
}

/// The first fragment of a datagram of this name.
fn first_fragment(family: FamilyId, name: u16) -> Vec<u8> {
    let mut request = echo(family, address(family, 0, 1), name, 4000);
    if family == FamilyId::V4 {
        let mut header = Ipv4Header::read(&request).unwrap();
        header.identification = name.into();
        header.fill_checksum();
        header.write(&mut request).unwrap();
    }
    let mut first = cut(&request, 1500).remove(0);
    if family == FamilyId::V6 {
        first[44..48].copy_from_slice(&u32::from(name).to_be_bytes());
    }
    first
}

/// The IP packets of frames that left to the host behind x`net`.
fn packets(got: Vec<(IfIndex, Vec<u8>)>, interface: IfIndex, net: u8) -> Vec<Vec<u8>> {
    got.into_iter()
        .map(|(i, bytes)| {
            assert_eq!(i, interface);
            assert_eq!(bytes[..6], host_mac(net).0);
            bytes[14..].to_vec()
        })
        .collect()
}

/// Cuts a packet as a host would.
fn cut(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    if packet[0] >> 4 == 4 {
        for f in Ipv4Fragments::new(packet, mtu).unwrap() {
            let mut bytes = vec![0; f.header_len()];
            f.write_header(&mut bytes);
            out.push([bytes, packet[f.payload].to_vec()].concat());
        }
    } else {
        for f in Ipv6Fragments::new(packet, mtu, 0xabcd).unwrap() {
            let mut bytes = vec![0; f.header_len()];
            f.write_header(&mut bytes);
            out.push([bytes, packet[f.payload].to_vec()].concat());
        }
    }
    out
}

/// The payload of the datagram that fragments (or one whole packet) make, checked by the rules of a host.
fn join(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut parts = Reassembly::new(10_000, 65_535);
    let mut whole = Vec::new();
    for packet in packets {
        let (offset, more, at) = if packet[0] >> 4 == 4 {
            let h = Ipv4Header::parse(packet).unwrap();
            assert_eq!(usize::from(h.total_len.get()), packet.len());
            (h.fragment_offset(), h.more_fragments(), h.header_len())
        } else {
            let h = Ipv6Header::parse(packet).unwrap();
            assert_eq!(usize::from(h.payload_len.get()) + 40, packet.len());
            let upper = upper_layer(&h, packet).unwrap();
            match upper.fragment {
                Some(f) => (f.offset.into(), f.more, usize::from(upper.fragment_offset) + 8),
                None => (0, false, 40),
            }
        };
        parts.insert(offset as u16, packet.len() - at, more, packet[at..].to_vec()).unwrap();
    }
    assert!(parts.is_complete());
    parts.pieces().iter().for_each(|p| whole.extend(&p.tag));
    whole
}

fn checksum_is_right(packet: &[u8], icmp: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => Sum::of(icmp).is_valid(),
        _ => l4_sum_v6(&Ipv6Header::read(packet).unwrap(), IpProtocol::ICMPV6, icmp).is_valid(),
    }
}

#[test]
fn echo_requests_of_all_sizes_are_answered() {
    for workers in WORKERS {
        let (mut h, x) = bed(workers, 1);
        for family in FAMILIES {
            let most = if family == FamilyId::V4 { 65_507 } else { 65_527 };
            for (n, size) in
                [0, 1, 7, 8, 9, 56, 1000, 1452, 1472, 1473, 1480, 2020, 3000, 9000, 40_001, most].into_iter().enumerate()
            {
                let request = echo(family, address(family, 0, 1), n as u16, size);
                let pieces: Vec<_> = if request.len() > 1500 { cut(&request, 1500) } else { vec![request.clone()] };
                for (i, piece) in pieces.iter().enumerate() {
                    h.inject_many(x[0], &[frame(0, piece)], i);
                }
                let got = packets(h.run(), x[0], 0);
                assert!(!got.is_empty(), "{workers} workers, {size} bytes: {:?}", h.counts());
                assert!(got.iter().all(|p| p.len() <= 1500));
                let reply = join(&got);
                assert!(checksum_is_right(&got[0], &reply), "{size}");
                let header = Icmp4Header::read(&reply).unwrap();
                let kind = if family == FamilyId::V4 { 0 } else { 129 };
                assert_eq!((header.icmp_type.0, header.identifier(), header.sequence()), (kind, 77, n as u16));
                assert_eq!(reply[8..], pattern(size));
            }
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_reply_comes_from_the_address_asked_with_a_fresh_hop_count() {
    let (mut h, x) = bed(0, 2);
    let request = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 1)).tos(0xb9).ttl(1).echo_request(1, 2).build();
    let got = packets(h.exchange(x[0], &frame(0, &request)), x[0], 0);
    let header = Ipv4Header::parse(&got[0]).unwrap();
    assert_eq!((header.src_addr(), header.dst_addr()), ("10.0.1.1".parse().unwrap(), "10.0.0.2".parse().unwrap()));
    assert_eq!((header.ttl, header.tos), (64, 0xb8));
    let request = ip(address(FamilyId::V6, 0, 2), address(FamilyId::V6, 1, 1)).ttl(1).destination_options(&[]).echo_request(1, 2);
    let got = packets(h.exchange(x[0], &frame(0, &request.build())), x[0], 0);
    let header = Ipv6Header::parse(&got[0]).unwrap();
    assert_eq!((header.src_addr(), header.hop_limit), ("2001:db8:1::1".parse().unwrap(), 64));
    assert_eq!(header.next_header, IpProtocol::ICMPV6, "extension headers are not sent back");
}

#[test]
fn nobody_else_sends_from_our_addresses() {
    let (mut h, x) = bed(0, 2);
    for family in FAMILIES {
        let request = ip(address(family, 1, 1), address(family, 0, 1)).echo_request(1, 2).build();
        assert!(h.exchange(x[0], &frame(0, &request)).is_empty());
        let name = format!("{}-receive", family.node_prefix());
        assert_eq!(h.count(&name, "spoofed local-address packet drops"), 1, "{:?}", h.counts());
    }
    h.assert_buffers_held(0);
}

#[test]
fn damaged_and_misdirected_messages_are_not_answered() {
    let (mut h, x) = bed(0, 1);
    for family in FAMILIES {
        let mut request = echo(family, address(family, 0, 1), 1, 56);
        *request.last_mut().unwrap() ^= 1;
        assert!(h.exchange(x[0], &frame(0, &request)).is_empty());
        let name = format!("{}-icmp-input", family.node_prefix());
        assert_eq!(h.count(&name, "bad icmp checksum"), 1);
        let mut bytes = frame(0, &echo(family, address(family, 0, 1), 1, 56));
        bytes[..6].fill(0xff);
        assert!(h.exchange(x[0], &bytes).is_empty(), "broadcast on the link");
    }
    h.assert_buffers_held(0);
}

/// The error in a packet to 10.0.0.2 or 2001:db8::2 from host 1 of net `from`: type, code, rest, quote.
fn error(packet: &[u8], family: FamilyId, from: u8) -> (u8, u8, u32, Vec<u8>) {
    let (src, dst, icmp) = match family {
        FamilyId::V4 => {
            let h = Ipv4Header::parse(packet).unwrap();
            assert!(packet.len() <= 576);
            (IpAddr::V4(h.src_addr()), IpAddr::V4(h.dst_addr()), &packet[20..])
        }
        FamilyId::V6 => {
            let h = Ipv6Header::parse(packet).unwrap();
            assert!(packet.len() <= 1280);
            (IpAddr::V6(h.src_addr()), IpAddr::V6(h.dst_addr()), &packet[40..])
        }
    };
    assert_eq!((src, dst), (address(family, from, 1), address(family, 0, 2)));
    assert!(checksum_is_right(packet, icmp));
    let header = Icmp4Header::read(icmp).unwrap();
    (header.icmp_type.0, header.code, header.rest.get(), icmp[8..].to_vec())
}

#[test]
fn time_exceeded_comes_from_the_interface_it_came_in_on_and_quotes_what_fits() {
    for workers in WORKERS {
        let (mut h, x) = bed(workers, 2);
        for family in FAMILIES {
            let (kind, room) = if family == FamilyId::V4 { (11, 548) } else { (3, 1232) };
            for size in [0, 100, 1400] {
                let packet = ip(address(family, 0, 2), address(family, 1, 2)).ttl(1).udp(1, 2).payload(&pattern(size)).build();
                h.inject_many(x[0], &[frame(0, &packet)], workers);
                let got = packets(h.run(), x[0], 0);
                assert_eq!(got.len(), 1, "{:?}", h.counts());
                assert_eq!(error(&got[0], family, 0), (kind, 0, 0, packet[..packet.len().min(room)].to_vec()));
            }
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn what_is_not_served_is_answered_by_its_code() {
    let (mut h, x) = bed(0, 2);
    for family in FAMILIES {
        let (me, host) = (address(family, 0, 1), address(family, 0, 2));
        let is_v4 = family == FamilyId::V4;
        let udp = ip(host, me).udp(1000, 33434).payload(&pattern(30)).build();
        let unknown = ip(host, me).next(200).payload(&pattern(30)).build();
        let tcp = ip(host, me).tcp(1000, 80, quiver_wire::tcp::TcpFlags::SYN).build();
        let codes = if is_v4 { [(3, 3, 0), (3, 2, 0), (3, 2, 0)] } else { [(1, 4, 0), (4, 1, 6), (4, 1, 6)] };
        for (packet, (kind, code, rest)) in [udp, unknown, tcp].iter().zip(codes) {
            let got = packets(h.exchange(x[0], &frame(0, packet)), x[0], 0);
            assert_eq!(got.len(), 1, "{:?}", h.counts());
            assert_eq!(error(&got[0], family, 0), (kind, code, rest, packet.clone()));
        }
    }
    h.assert_buffers_held(0);
}

#[test]
fn routes_that_refuse_are_answered() {
    let (mut h, x) = bed(0, 1);
    for (text, hop, four, six) in [
        ("198.51.100.0/24 2001:db8:aa::/48", Hop::Unreachable, (3, 1), (1, 0)),
        ("203.0.113.0/24 2001:db8:bb::/48", Hop::Prohibited, (3, 13), (1, 1)),
    ] {
        for (prefix, family) in text.split(' ').zip(FAMILIES) {
            let prefix: IpPrefix = prefix.parse().unwrap();
            h.router.add_route(0, prefix, Source::Cli, vec![Path::new(hop)]).unwrap();
            let dst: IpAddr = if family == FamilyId::V4 {
                prefix.to_string().replace("0/24", "7").parse().unwrap()
            } else {
                prefix.to_string().replace("/48", "7").parse().unwrap()
            };
            let packet = ip(address(family, 0, 2), dst).udp(1, 2).build();
            let got = packets(h.exchange(x[0], &frame(0, &packet)), x[0], 0);
            assert_eq!(got.len(), 1, "{dst}: {:?}", h.counts());
            let (kind, code, ..) = error(&got[0], family, 0);
            assert_eq!((kind, code), if family == FamilyId::V4 { four } else { six }, "{dst}");
        }
    }
}

#[test]
fn what_no_route_carries_on_is_dropped_and_its_sender_told_unless_the_router_keeps_silent() {
    for workers in WORKERS {
        let (mut h, x) = bed(workers, 1);
        for (family, far, told) in [(FamilyId::V4, "198.51.100.7", (3, 0)), (FamilyId::V6, "2001:db8:aa::7", (1, 0))] {
            let drop = if family == FamilyId::V4 { "ip4-drop" } else { "ip6-drop" };
            let packet = ip(address(family, 0, 2), far.parse().unwrap()).udp(1, 2).payload(&pattern(1400)).build();
            h.inject_many(x[0], &[frame(0, &packet)], workers);
            let got = packets(h.run(), x[0], 0);
            assert_eq!(got.len(), 1, "{:?}", h.counts());
            let (kind, code, rest, quoted) = error(&got[0], family, 0);
            assert_eq!(((kind, code), rest), (told, 0));
            assert!(quoted.len() > 500 && packet.starts_with(&quoted));
            assert_eq!(h.count(drop, "no route"), 1, "the packet itself is a drop");
            let icmp = echo_error(family, far.parse().unwrap());
            assert!(h.exchange(x[0], &frame(0, &icmp)).is_empty(), "no error about an error");
            h.router.set_icmp_rate_limit(family, RateLimit { per_worker: 0, total: 1, burst: 2 });
            h.inject_many(x[0], &vec![frame(0, &packet); 10], workers);
            assert_eq!(h.run().len(), 2);
            assert_eq!(h.router.icmp_rate_limit_figures(family).suppressed, 8);
            h.router.set_icmp_rate_limit(family, RateLimit { total: 0, ..RateLimit::default() });
            h.router.set_answers_no_route(family, false);
            assert!(h.exchange(x[0], &frame(0, &packet)).is_empty());
            assert_eq!(h.count(drop, "no route"), 13);
        }
        h.assert_buffers_held(0);
    }
}

/// An ICMP error from the host behind x0.
fn echo_error(family: FamilyId, dst: IpAddr) -> Vec<u8> {
    let packet = ip(address(family, 0, 2), dst);
    match family {
        FamilyId::V4 => packet.icmp4(Icmp4Header::new(Icmp4Type::TIME_EXCEEDED, 0, 0)).payload(&pattern(64)).build(),
        FamilyId::V6 => packet.icmp6(Icmp6Header::new(Icmp6Type::TIME_EXCEEDED, 0, 0)).payload(&pattern(64)).build(),
    }
}

#[test]
fn nobody_is_told_about_what_must_not_be_answered() {
    let (mut h, x) = bed(0, 2);
    let (host, far) = (address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2));
    let expired = |p: Packet| p.ttl(1);
    let quoted = ip(far, host).udp(1, 2).build();
    let icmp = Icmp4Header::new(Icmp4Type::TIME_EXCEEDED, 0, 0);
    let about_error = expired(ip(host, far)).icmp4(icmp).payload(&quoted).build();
    let later = expired(ip(host, far)).fragment(1, 800, true).next(17).payload(&pattern(64)).build();
    let first = expired(ip(host, far)).fragment(1, 0, true).next(17).payload(&pattern(64)).build();
    let echo = expired(ip(host, far)).echo_request(1, 1).build();
    for (packet, reason) in [(about_error, "no error about an error message"), (later, "no error about a later fragment")] {
        assert!(h.exchange(x[0], &frame(0, &packet)).is_empty());
        assert_eq!(h.count("ip4-icmp-error", reason), 1);
    }
    assert_eq!(h.exchange(x[0], &frame(0, &first)).len(), 1);
    assert_eq!(h.exchange(x[0], &frame(0, &echo)).len(), 1);
    let (host, far) = (address(FamilyId::V6, 0, 2), address(FamilyId::V6, 1, 2));
    let icmp = Icmp6Header::new(Icmp6Type::TIME_EXCEEDED, 0, 0);
    let about_error = expired(ip(host, far)).icmp6(icmp).payload(&pattern(64)).build();
    let later = expired(ip(host, far)).fragment(1, 800, true).next(17).payload(&pattern(64)).build();
    for (packet, reason) in [(about_error, "no error about an error message"), (later, "no error about a later fragment")] {
        assert!(h.exchange(x[0], &frame(0, &packet)).is_empty());
        assert_eq!(h.count("ip6-icmp-error", reason), 1);
    }
    h.assert_buffers_held(0);
}

#[test]
fn errors_are_limited_and_those_kept_back_are_counted() {
    for workers in [0, 2] {
        let (mut h, x) = bed(workers, 2);
        for family in FAMILIES {
            h.router.set_icmp_rate_limit(family, RateLimit { per_worker: 0, total: 1, burst: 5 });
            let packet = ip(address(family, 0, 2), address(family, 1, 2)).ttl(1).udp(1, 2).build();
            h.inject_many(x[0], &vec![frame(0, &packet); 100], workers);
            assert_eq!(h.run().len(), 5);
            let figures = h.router.icmp_rate_limit_figures(family);
            assert_eq!((figures.sent, figures.suppressed), (5, 95));
        }
        h.assert_buffers_held(0);
    }
}

fn set_mtu(h: &mut Harness, interface: IfIndex, l3: u32) {
    h.router.set_mtu(interface, Mtu { l3, ip4: 0, ip6: 0, mpls: 0 }).unwrap();
}

#[test]
fn too_big_is_told_with_the_mtu_or_cut_to_it() {
    for workers in WORKERS {
        let (mut h, x) = bed(workers, 2);
        set_mtu(&mut h, x[1], 1300);
        let packet = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2)).dont_fragment().udp(1, 2).payload(&pattern(1400));
        let got = packets(h.exchange(x[0], &frame(0, &packet.build())), x[0], 0);
        assert_eq!(error(&got[0], FamilyId::V4, 0).0, 3);
        assert_eq!((error(&got[0], FamilyId::V4, 0).1, error(&got[0], FamilyId::V4, 0).2), (4, 1300));
        let packet = ip(address(FamilyId::V6, 0, 2), address(FamilyId::V6, 1, 2)).udp(1, 2).payload(&pattern(1400));
        let got = packets(h.exchange(x[0], &frame(0, &packet.build())), x[0], 0);
        let (kind, code, mtu, _) = error(&got[0], FamilyId::V6, 0);
        assert_eq!((kind, code, mtu), (2, 0, 1300));
        for mtu in [68, 100, 576, 1300, 1499] {
            set_mtu(&mut h, x[1], mtu);
            let packet = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2)).identification(9).udp(1, 2);
            let packet = packet.payload(&pattern(1472)).build();
            let got = packets(h.exchange(x[0], &frame(0, &packet)), x[1], 1);
            assert!(got.iter().all(|p| p.len() <= mtu as usize && Ipv4Header::parse(p).unwrap().ttl == 63));
            assert_eq!(join(&got), packet[20..], "{mtu}");
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn a_fragment_is_cut_further_and_options_are_copied_as_they_say() {
    let (mut h, x) = bed(0, 2);
    let packet = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2)).options(&[7, 3, 4, 148, 4, 0, 0, 0]).udp(1, 2);
    let packet = packet.payload(&pattern(4000)).build();
    set_mtu(&mut h, x[1], 576);
    let mut got = Vec::new();
    for piece in cut(&packet, 1500) {
        got.extend(packets(h.exchange(x[0], &frame(0, &piece)), x[1], 1));
    }
    assert_eq!(join(&got), packet[28..]);
    assert_eq!(got[0][20..28], [7, 3, 4, 148, 4, 0, 0, 0]);
    assert_eq!((got[1][0], &got[1][20..24]), (0x46, &[148, 4, 0, 0][..]));
    h.assert_buffers_held(0);
}

#[test]
fn a_large_chained_packet_is_cut() {
    let (mut h, x) = bed(0, 2);
    let packet = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2)).udp(1, 2).payload(&pattern(9100)).build();
    let got = packets(h.exchange(x[0], &frame(0, &packet)), x[1], 1);
    assert_eq!(join(&got), packet[20..]);
    // An error about it quotes its start, and all of its buffers come back.
    let packet = ip(address(FamilyId::V4, 0, 2), address(FamilyId::V4, 1, 2)).ttl(1).udp(1, 2).payload(&pattern(9100)).build();
    let got = packets(h.exchange(x[0], &frame(0, &packet)), x[0], 0);
    assert_eq!(error(&got[0], FamilyId::V4, 0).3, packet[..548]);
    h.assert_buffers_held(0);
}

#[test]
fn fragments_of_a_datagram_meet_on_one_worker_in_any_order() {
    for workers in WORKERS {
        let (mut h, x) = bed(workers, 1);
        for family in FAMILIES {
            for (n, order) in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1]].into_iter().enumerate() {
                let request = echo(family, address(family, 0, 1), n as u16, 4000);
                let pieces = cut(&request, 1500);
                assert_eq!(pieces.len(), 3);
                for (thread, at) in order.into_iter().enumerate() {
                    h.inject_many(x[0], &[frame(0, &pieces[at])], thread);
                }
                let got = packets(h.run(), x[0], 0);
                assert_eq!(join(&got)[8..], pattern(4000));
            }
        }
        h.assert_buffers_held(0);
    }
}

#[test]
fn overlapping_fragments_condemn_the_datagram_and_duplicates_do_not() {
    for family in FAMILIES {
        let (mut h, x) = bed(0, 1);
        let request = echo(family, address(family, 0, 1), 1, 4000);
        let (pieces, other) = (cut(&request, 1500), cut(&request, 1300));
        h.inject(x[0], &frame(0, &pieces[0]));
        h.inject(x[0], &frame(0, &pieces[0]));
        h.inject(x[0], &frame(0, &pieces[1]));
        h.inject(x[0], &frame(0, &pieces[2]));
        assert_eq!(join(&packets(h.run(), x[0], 0))[8..], pattern(4000), "{:?}", h.counts());
        h.inject(x[0], &frame(0, &pieces[0]));
        h.inject(x[0], &frame(0, &other[1]));
        assert!(h.run().is_empty());
        let node = format!("{}-local-reassembly-input", family.node_prefix());
        let counts =
            ["duplicate fragments", "overlapping fragments", "fragments of condemned packets"].map(|text| h.count(&node, text));
        assert_eq!(counts, [1, 1, 1]);
        h.assert_buffers_held(0);
    }
}

#[test]
fn what_does_not_come_in_time_is_given_up_and_told_where_the_first_part_came() {
    for family in FAMILIES {
        let (mut h, x) = bed(0, 1);
        let pieces = cut(&echo(family, address(family, 0, 1), 1, 4000), 1500);
        let timeout = Limits::default_of(family, Through::Full).timeout.as_nanos() as i64;
        h.inject(x[0], &frame(0, &pieces[0]));
        h.inject(x[0], &frame(0, &pieces[1]));
        assert!(h.run().is_empty());
        h.assert_buffers_held(2);
        let held = h.router.reassembly(family);
        assert_eq!((held[0].1.datagrams, held[0].1.fragments, held[0].2[0].fragments, held[0].2[0].has_first), (1, 2, 2, true));
        h.router.graph.clock().adjust(timeout - 1_000_000_000);
        assert!(h.run().is_empty());
        h.router.graph.clock().adjust(1_000_000_000);
        let got = packets(h.run(), x[0], 0);
        let (kind, code, _, quote) = error(&got[0], family, 0);
        assert_eq!((kind, code), if family == FamilyId::V4 { (11, 1) } else { (3, 1) });
        assert_eq!(quote, pieces[0][..quote.len()]);
        // Without the first part nobody is told.
        h.inject(x[0], &frame(0, &pieces[1]));
        assert!(h.run().is_empty());
        h.router.graph.clock().adjust(timeout + 1);
        assert!(h.run().is_empty());
        h.assert_buffers_held(0);
    }
}

#[test]
fn reassembly_holds_no_more_than_its_limits() {
    for family in FAMILIES {
        let (mut h, x) = bed(0, 1);
        let limits = Limits { datagrams: 10, per_source: 100, fragments: 4, kilobytes: 40, timeout: Duration::from_secs(30) };
        h.router.set_reassembly_limits(family, Through::Full, limits);
        for sequence in 0..50 {
            h.inject(x[0], &frame(0, &first_fragment(family, sequence)));
        }
        assert!(h.run().is_empty());
        h.assert_buffers_held(10);
        let node = format!("{}-local-reassembly-input", family.node_prefix());
        assert_eq!(h.count(&node, "drops due to concurrent reassemblies limit"), 40);
        h.router.set_reassembly_limits(family, Through::Full, Limits { kilobytes: 10, ..limits });
        let pieces = cut(&echo(family, address(family, 0, 1), 777, 4000), 1500);
        h.inject(x[0], &frame(0, &pieces[1]));
        h.run();
        h.assert_buffers_held(5);
    }
}

#[test]
fn a_source_that_sends_first_parts_without_end_starves_no_other() {
    for family in FAMILIES {
        for workers in WORKERS {
            let (mut h, x) = bed(workers, 2);
            let limits = Limits { datagrams: 40, per_source: 20, ..Limits::default_of(family, Through::Full) };
            h.router.set_reassembly_limits(family, Through::Full, limits);
            let rest = cut(&echo(family, address(family, 0, 1), 777, 4000), 1500);
            h.inject(x[0], &frame(0, &rest[0]));
            h.run();
            let flooder = || ip(address(family, 1, 99), address(family, 0, 1));
            for sequence in 0..200 {
                let flood = flooder().fragment(sequence, 0, true).next(17).payload(&pattern(64)).build();
                h.inject(x[1], &frame(1, &flood));
                if sequence % 50 == 0 {
                    h.run();
                }
            }
            h.run();
            h.inject(x[0], &frame(0, &rest[1]));
            h.inject(x[0], &frame(0, &rest[2]));
            let got = packets(h.run(), x[0], 0);
            assert_eq!(join(&got)[8..], pattern(4000), "{family} {workers}: {:?}", h.counts());
            let held: u32 = h.router.reassembly(family).iter().map(|(_, totals, _)| totals.datagrams).sum();
            let most = 20 * workers.max(1) as u32;
            assert!((1..=most).contains(&held), "{held} datagrams of the flooder");
        }
    }
}

#[test]
fn a_router_that_goes_gives_back_what_it_holds() {
    // Workers hand what they hold over to one another while they leave, all at the same time.
    for _ in 0..20 {
        let (mut h, x) = bed(2, 1);
        for sequence in 0..200 {
            h.inject(x[0], &frame(0, &first_fragment(FamilyId::V4, sequence)));
        }
        h.run();
        h.assert_buffers_held(200);
        let node = h.router.graph.node("ip4-local-reassembly-input").unwrap();
        h.router.graph.remove(node).unwrap();
        h.run();
        h.assert_buffers_held(0);
    }
}

#[test]
fn atomic_fragments_are_whole_whatever_else_has_their_name() {
    let (mut h, x) = bed(0, 1);
    let (host, me) = (address(FamilyId::V6, 0, 2), address(FamilyId::V6, 0, 1));
    let pending = ip(host, me).fragment(0xabcd, 0, true).next(58).payload(&pattern(64)).build();
    h.inject(x[0], &frame(0, &pending));
    let atomic = ip(host, me).fragment(0xabcd, 0, false).echo_request(5, 6).payload(&pattern(40)).build();
    let got = packets(h.exchange(x[0], &frame(0, &atomic)), x[0], 0);
    assert_eq!(got.len(), 1, "{:?}", h.counts());
    assert_eq!(join(&got)[8..], pattern(40));
    h.assert_buffers_held(1);
}

#[test]
fn first_fragments_hold_all_headers_and_lengths_are_multiples_of_8() {
    let (mut h, x) = bed(0, 1);
    let (host, me) = (address(FamilyId::V6, 0, 2), address(FamilyId::V6, 0, 1));
    let mut headless = ip(host, me).fragment(1, 0, true).destination_options(&[1, 4]).build();
    // The options go on in the next fragment.
    headless[49] = 5;
    let got = packets(h.exchange(x[0], &frame(0, &headless)), x[0], 0);
    assert_eq!(got.len(), 1, "{:?}", h.counts());
    let (kind, code, ..) = error(&got[0], FamilyId::V6, 0);
    assert_eq!((kind, code), (4, 3));
    let odd = ip(host, me).fragment(2, 0, true).udp(1, 2).payload(&pattern(57)).build();
    let got = packets(h.exchange(x[0], &frame(0, &odd)), x[0], 0);
    let (kind, code, pointer, _) = error(&got[0], FamilyId::V6, 0);
    assert_eq!((kind, code, pointer), (4, 0, 4));
    let long = ip(host, me).fragment(3, 65_528, false).udp(1, 2).payload(&pattern(57)).build();
    let got = packets(h.exchange(x[0], &frame(0, &long)), x[0], 0);
    let (kind, code, pointer, _) = error(&got[0], FamilyId::V6, 0);
    assert_eq!((kind, code, pointer), (4, 0, 42));
    // Nothing at all is a part of nothing: no answer, whatever headers are missing.
    let empty = ip(host, me).fragment(4, 0, true).build();
    assert!(packets(h.exchange(x[0], &frame(0, &empty)), x[0], 0).is_empty(), "{:?}", h.counts());
    h.assert_buffers_held(0);
}
