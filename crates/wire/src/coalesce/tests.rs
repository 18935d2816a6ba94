use super::*;
use crate::MacAddr;
use crate::build::Packet;
use crate::gso::{GsoKind, Segments};
use core::net::Ipv6Addr;

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const DST: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// A super-frame of so many bytes of payload, cut into segments, as a wire brings them.
fn segments(ipv6: bool, payload: usize, size: u16) -> Vec<Vec<u8>> {
    let packet = Packet::ethernet(SRC, DST);
    let packet = if ipv6 {
        packet.ipv6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2))
    } else {
        packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).dont_fragment().identification(0xfffe)
    };
    let packet = packet.tcp(5, 6, TcpFlags::ACK | TcpFlags::PSH).options(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    let frame = packet.sequence(u32::MAX - 1000).payload_len(payload).build();
    let kind = if ipv6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
    cut(&frame, kind, size)
}

fn cut(frame: &[u8], kind: GsoKind, size: u16) -> Vec<Vec<u8>> {
    let plan = Segments::new(frame, L3, kind, size).unwrap();
    let header = |index| {
        let mut bytes = vec![0xa5; plan.header_len()];
        plan.write_header(index, &mut bytes).unwrap();
        bytes
    };
    plan.iter().map(|segment| [header(segment.index), frame[segment.payload].to_vec()].concat()).collect()
}

fn joined(frames: &[Vec<u8>]) -> (usize, Run) {
    let mut run = Run::begin(&frames[0], false).unwrap();
    let n = frames[1..].iter().take_while(|frame| run.join(frame, false)).count();
    (n + 1, run)
}

#[test]
fn what_is_joined_is_cut_into_the_same_frames() {
    for ipv6 in [false, true] {
        for payload in [2896, 2897, 4000, 60_000] {
            let frames = segments(ipv6, payload, 1448);
            let (n, run) = joined(&frames);
            assert_eq!((n, run.segments()), (frames.len(), frames.len()));
            let head = run.finish().unwrap();
            let payloads = frames.iter().map(|frame| &frame[run.header_len()..]);
            let frame = [head.headers()].into_iter().chain(payloads).collect::<Vec<_>>().concat();
            assert_eq!((head.csum_start, head.csum_offset), (if ipv6 { 54 } else { 34 }, 16));
            let mut finished = frame.clone();
            crate::checksum::complete(&mut finished, head.csum_start, head.csum_offset).unwrap();
            assert!(is_valid(&finished[L3..], usize::from(head.csum_start) - L3, ipv6));
            assert_eq!(cut(&frame, GsoKind::from_virtio(head.gso_type).unwrap(), head.gso_size), frames);
        }
    }
}

#[test]
fn what_differs_does_not_join() {
    let frames = segments(false, 3 * 1448, 1448);
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, bool, Change); 7] = [
        ("a wrong checksum", false, |f| f[100] ^= 1),
        ("another acknowledgment", true, |f| f[45] ^= 1),
        ("another window", true, |f| f[48] ^= 1),
        ("another time stamp", true, |f| f[61] ^= 1),
        ("padding", true, |f| f.push(0)),
        ("a tag", true, |f| f[12] = 0x81),
        ("another MAC address", true, |f| f[6] = 4),
    ];
    for (what, trusted, change) in changes {
        let mut next = frames[1].clone();
        change(&mut next);
        let mut run = Run::begin(&frames[0], trusted).unwrap();
        assert!(!run.join(&next, trusted), "{what}");
        assert_eq!(run.segments(), 1);
    }
    let mut run = Run::begin(&frames[0], false).unwrap();
    assert!(!run.join(&frames[2], false), "not the next one");
    assert!(run.join(&frames[1], false) && run.join(&frames[2], false));
    assert!(!run.join(&frames[1], false), "after one that pushes");
}

#[test]
fn nothing_begins_with_what_is_no_segment_of_a_stream() {
    let packet = || Packet::ethernet(SRC, DST).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).dont_fragment();
    for (what, frame) in [
        ("UDP", packet().udp(5, 6).payload_len(100).build()),
        ("SYN", packet().tcp(5, 6, TcpFlags::SYN).payload_len(100).build()),
        ("FIN", packet().tcp(5, 6, TcpFlags::ACK | TcpFlags::FIN).payload_len(100).build()),
        ("no payload", packet().tcp(5, 6, TcpFlags::ACK).build()),
        (
            "may be fragmented",
            Packet::ethernet(SRC, DST).ipv4([1, 0, 0, 1], [1, 0, 0, 2]).tcp(5, 6, TcpFlags::ACK).payload_len(9).build(),
        ),
    ] {
        assert!(Run::begin(&frame, true).is_none(), "{what}");
        for len in 0..frame.len() {
            assert!(Run::begin(&frame[..len], true).is_none(), "{what}");
        }
    }
}

#[test]
fn a_shorter_segment_is_the_last_and_a_longer_one_does_not_join() {
    let frames = segments(true, 1448 + 100, 1448);
    let (n, mut run) = joined(&frames);
    assert_eq!(n, 2);
    assert!(!run.join(&frames[1], false));
    let mut short = Run::begin(&segments(true, 3 * 100, 100)[0], false).unwrap();
    assert!(!short.join(&frames[1], false), "another place in the stream");
}

#[test]
fn no_more_is_joined_than_an_ip_packet_can_hold() {
    let many = segments(false, 65_000, 1000);
    let (n, run) = joined(&many);
    assert_eq!(n, 65);
    let head = run.finish().unwrap();
    assert_eq!(usize::from(u16::from_be_bytes([head.headers()[16], head.headers()[17]])), 65_000 + 52);
    let more = segments(true, 65_500, 1310);
    assert_eq!((more.len(), joined(&more).0), (50, 49), "the last one would be too much");
}
