use super::*;
use crate::build::Packet;
use crate::checksum::{l4_sum_v4, l4_sum_v6};
use crate::{MacAddr, vlan::Tci};
use core::net::Ipv6Addr;
use proptest::prelude::*;

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn super_frame(kind: GsoKind, ipv6: bool, tags: usize, payload: usize) -> (Vec<u8>, usize) {
    let mut packet = Packet::ethernet(SRC, DST);
    for id in 0..tags {
        packet = packet.tag(crate::ethernet::EtherType::VLAN, Tci(id as u16 + 1));
    }
    packet = if ipv6 {
        packet.ipv6(A6, B6)
    } else {
        packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).options(&[148, 4]).identification(0xfffe)
    };
    let flags = TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN | TcpFlags::CWR;
    packet = match kind {
        GsoKind::Udp => packet.udp(5, 6),
        _ => packet.tcp(5, 6, flags).options(&[1, 1, 8, 10]).sequence(u32::MAX - 1000),
    };
    (packet.payload_len(payload).build(), 14 + 4 * tags)
}

/// All segments as frames of their own.
fn cut(plan: &Segments<'_>, frame: &[u8]) -> Vec<Vec<u8>> {
    plan.iter()
        .map(|segment| {
            let mut bytes = vec![0xa5; plan.header_len()];
            assert_eq!(plan.write_header(segment.index, &mut bytes), Some(plan.header_len()));
            bytes.extend(&frame[segment.payload]);
            bytes
        })
        .collect()
}

fn check(kind: GsoKind, ipv6: bool, tags: usize, payload: usize, size: u16) {
    let (frame, l3) = super_frame(kind, ipv6, tags, payload);
    let plan = Segments::new(&frame, l3, kind, size).unwrap();
    let segments = cut(&plan, &frame);
    assert_eq!(segments.len(), payload.div_ceil(size.into()).max(1));
    let mut joined: Vec<u8> = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        let packet = &segment[l3..];
        assert_eq!(segment[..l3], frame[..l3]);
        let (l4, valid) = if ipv6 {
            let ip = Ipv6Header::parse(packet).unwrap();
            assert_eq!(usize::from(ip.payload_len.get()) + 40, packet.len());
            (40, l4_sum_v6(&ip, ip.next_header, &packet[40..]).is_valid())
        } else {
            let ip = Ipv4Header::parse(packet).unwrap();
            assert_eq!(usize::from(ip.total_len.get()), packet.len());
            assert_eq!(ip.identification.get(), 0xfffeu16.wrapping_add(i as u16));
            let l4 = ip.header_len();
            (l4, l4_sum_v4(&ip, ip.protocol, &packet[l4..]).is_valid())
        };
        assert!(valid, "checksum of segment {i}");
        let is_last = i + 1 == segments.len();
        if kind == GsoKind::Udp {
            let udp = UdpHeader::read_at(packet, l4).unwrap();
            assert_eq!(usize::from(udp.length.get()), packet.len() - l4);
        } else {
            let tcp = TcpHeader::read_at(packet, l4).unwrap();
            let offset = joined.len() as u32;
            assert_eq!(tcp.sequence.get(), (u32::MAX - 1000).wrapping_add(offset));
            assert!(tcp.flags.contains(TcpFlags::ACK));
            assert_eq!(tcp.flags.contains(TcpFlags::FIN | TcpFlags::PSH), is_last);
            assert_eq!(tcp.flags.intersects(TcpFlags::FIN | TcpFlags::PSH), is_last);
            assert_eq!(tcp.flags.contains(TcpFlags::CWR), i == 0);
        }
        assert!(is_last || segment.len() - plan.header_len() == usize::from(size));
        joined.extend(&segment[plan.header_len()..]);
    }
    assert_eq!(joined, frame[plan.header_len()..]);
}

#[test]
fn a_full_super_frame_of_each_kind_is_cut_right() {
    for tags in 0..3 {
        check(GsoKind::TcpV4, false, tags, 65_000, 1448);
        check(GsoKind::TcpV6, true, tags, 65_000, 1428);
        check(GsoKind::Udp, false, tags, 65_000, 1400);
        check(GsoKind::Udp, true, tags, 65_000, 1400);
    }
}

#[test]
fn payloads_around_the_segment_size_make_the_right_number() {
    for payload in [0, 1, 99, 100, 101, 199, 200, 201, 255, 256, 257] {
        check(GsoKind::TcpV4, false, 0, payload, 100);
        check(GsoKind::Udp, true, 0, payload, 100);
        check(GsoKind::TcpV6, true, 0, payload, 1);
    }
}

#[test]
fn padding_behind_the_packet_is_left_out() {
    let (mut frame, l3) = super_frame(GsoKind::TcpV4, false, 0, 300);
    let len = frame.len();
    frame.resize(len + 7, 0xee);
    let plan = Segments::new(&frame, l3, GsoKind::TcpV4, 100).unwrap();
    assert_eq!(plan.count(), 3);
    assert_eq!(plan.payload(2).end, len);
    assert_eq!(plan.payload(3), len..len);
    assert_eq!(plan.payload(usize::MAX), len..len);
}

#[test]
fn a_super_frame_without_a_stated_length_is_cut_to_its_end() {
    let (mut frame, l3) = super_frame(GsoKind::TcpV6, true, 0, 100_000);
    frame[l3 + 4..l3 + 6].fill(0);
    let plan = Segments::new(&frame, l3, GsoKind::TcpV6, 1000).unwrap();
    assert_eq!(plan.count(), 100);
    let mut header = vec![0; plan.header_len()];
    plan.write_header(99, &mut header).unwrap();
    assert_eq!(Ipv6Header::read_at(&header, l3).unwrap().payload_len.get(), 24 + 1000);
}

#[test]
fn what_cannot_be_cut_has_its_reason() {
    let (tcp4, l3) = super_frame(GsoKind::TcpV4, false, 0, 300);
    let (tcp6, _) = super_frame(GsoKind::TcpV6, true, 0, 300);
    let error = |frame: &[u8], kind, size| Segments::new(frame, l3, kind, size).unwrap_err();
    assert_eq!(error(&tcp4, GsoKind::TcpV4, 0), GsoError::ZeroSize);
    assert_eq!(error(&tcp4, GsoKind::TcpV6, 100), GsoError::WrongProtocol);
    assert_eq!(error(&tcp6, GsoKind::TcpV4, 100), GsoError::WrongProtocol);
    assert_eq!(error(&tcp4, GsoKind::Udp, 100), GsoError::WrongProtocol);
    assert_eq!(error(&tcp4, GsoKind::TcpV4, u16::MAX), GsoError::TooLarge);
    for len in 0..tcp4.len() {
        assert_eq!(error(&tcp4[..len], GsoKind::TcpV4, 100), GsoError::Truncated, "{len}");
    }
    let mut bad = tcp4.clone();
    bad[l3 + 6] = 0x20;
    assert_eq!(error(&bad, GsoKind::TcpV4, 100), GsoError::Fragment);
    let mut bad = tcp4.clone();
    bad[l3] = 0x44;
    assert_eq!(error(&bad, GsoKind::TcpV4, 100), GsoError::BadHeader);
    let mut bad = tcp4;
    bad[l3 + 24 + 12] = 0x40;
    assert_eq!(error(&bad, GsoKind::TcpV4, 100), GsoError::BadHeader);
    let routed = |segments_left| {
        let routing = [0, segments_left, 0, 0, 0, 0];
        Packet::ethernet(SRC, DST)
            .ipv6(A6, B6)
            .extension(IpProtocol::ROUTING, &routing)
            .tcp(1, 2, TcpFlags::ACK)
            .payload_len(300)
            .build()
    };
    assert_eq!(error(&routed(1), GsoKind::TcpV6, 100), GsoError::Routing);
    assert_eq!(Segments::new(&routed(0), l3, GsoKind::TcpV6, 100).unwrap().count(), 3);
}

#[test]
fn virtio_types_are_known() {
    let known = |gso_type| GsoKind::from_virtio(gso_type);
    assert_eq!([known(1), known(0x81)], [Some(GsoKind::TcpV4); 2]);
    assert_eq!(known(4), Some(GsoKind::TcpV6));
    assert_eq!(known(5), Some(GsoKind::Udp));
    assert_eq!([known(0), known(3), known(0x80)], [None; 3]);
}

#[test]
fn a_header_buffer_too_short_is_left_alone() {
    let (frame, l3) = super_frame(GsoKind::TcpV4, false, 0, 300);
    let plan = Segments::new(&frame, l3, GsoKind::TcpV4, 100).unwrap();
    let mut out = vec![0xa5; plan.header_len() - 1];
    assert_eq!(plan.write_header(0, &mut out), None);
    assert!(out.iter().all(|byte| *byte == 0xa5));
    assert_eq!(plan.write_header(3, &mut [0; 200]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_payload_and_size_are_cut_right(kind in 0..4, payload in 0usize..20_000, size in 1u16..9000) {
        match kind {
            0 => check(GsoKind::TcpV4, false, 1, payload, size.max(20)),
            1 => check(GsoKind::TcpV6, true, 0, payload, size.max(20)),
            2 => check(GsoKind::Udp, false, 0, payload, size.max(20)),
            _ => check(GsoKind::Udp, true, 2, payload, size.max(20)),
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes: Vec<u8>, first in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()], size: u16) {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
            if let Ok(plan) = Segments::new(&bytes, 0, kind, size) {
                let _ = cut(&plan, &bytes);
            }
        }
    }
}
