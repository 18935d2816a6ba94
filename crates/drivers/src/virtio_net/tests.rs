use proptest::prelude::*;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::tcp::TcpFlags;

use super::*;

const TAG: [u8; 4] = [0x88, 0xa8, 0x20, 0x07];
const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn tcp(payload: usize) -> Packet {
    let bytes: Vec<u8> = (0..payload).map(|i| ((i * 7) >> 2) as u8).collect();
    Packet::ethernet(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1000, 2000, TcpFlags::ACK | TcpFlags::PSH).payload(&bytes)
}

/// What comes out, and how it ended, with room for `room` frames.
fn run(
    frame: &mut [u8],
    header: VnetHeader,
    tag: Option<[u8; 4]>,
    link: LinkLayer,
    from: usize,
    room: usize,
) -> (Vec<Vec<u8>>, Delivery) {
    let mut out = Vec::new();
    let end = deliver(frame, header, tag, link, from, |parts| {
        if out.len() == room {
            return false;
        }
        out.push(parts.concat());
        true
    });
    (out, end)
}

fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn gso(gso_type: u8, size: u16) -> VnetHeader {
    VnetHeader { flags: VnetHeader::NEEDS_CSUM, gso_type, gso_size: size, ..VnetHeader::default() }
}

#[test]
fn an_ordinary_frame_comes_out_as_it_is() {
    let mut frame = tcp(100).build();
    let whole = frame.clone();
    let (out, end) = run(&mut frame, VnetHeader::default(), None, LinkLayer::Ethernet, 0, 9);
    assert_eq!((out, end), (vec![whole], Delivery::Done));
}

#[test]
fn a_stripped_tag_is_put_back_outside_of_tags_that_stayed() {
    for inner in [false, true] {
        let packet =
            if inner { Packet::ethernet(A, B).vlan(10).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"x") } else { tcp(3) };
        let mut frame = packet.build();
        let expected = tagged(&frame, TAG);
        let (out, end) = run(&mut frame, VnetHeader::default(), Some(TAG), LinkLayer::Ethernet, 0, 9);
        assert_eq!((out, end), (vec![expected], Delivery::Done));
    }
}

#[test]
fn a_frame_too_short_for_a_tag_is_damaged() {
    for len in 0..12 {
        let (out, end) = run(&mut vec![1; len], VnetHeader::default(), Some(TAG), LinkLayer::Ethernet, 0, 9);
        assert_eq!((out.len(), end), (0, Delivery::Damaged));
    }
    let (_, end) = run(&mut [1; 12], VnetHeader::default(), Some(TAG), LinkLayer::Ethernet, 0, 9);
    assert_eq!(end, Delivery::Done);
}

#[test]
fn an_unfinished_checksum_is_finished_in_place() {
    let whole = tcp(77).build();
    let pseudo =
        checksum::Sum::new().add_pseudo_v4(0x0a00_0001, 0x0a00_0002, quiver_wire::ipv4::IpProtocol::TCP, (whole.len() - 34) as u16);
    let mut frame = whole.clone();
    // The sender leaves the pseudo-header's sum, not inverted.
    frame[50..52].copy_from_slice(&(!pseudo.checksum()).to_be_bytes());
    let header = VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: 34, csum_offset: 16, ..VnetHeader::default() };
    let (out, end) = run(&mut frame, header, Some(TAG), LinkLayer::Ethernet, 0, 9);
    assert_eq!((out, end), (vec![tagged(&whole, TAG)], Delivery::Done));
    let outside = VnetHeader { csum_start: 130, csum_offset: 16, ..header };
    assert_eq!(run(&mut frame, outside, None, LinkLayer::Ethernet, 0, 9).1, Delivery::Damaged);
}

#[test]
fn a_super_frame_goes_on_where_the_vector_was_full() {
    let whole = tcp(10_000).build();
    let all = run(&mut whole.clone(), gso(1, 1448), None, LinkLayer::Ethernet, 0, 99);
    assert_eq!((all.0.len(), all.1), (7, Delivery::Done));
    for room in 1..=7 {
        let (mut out, mut from) = (Vec::new(), 0);
        loop {
            let (some, end) = run(&mut whole.clone(), gso(1, 1448), None, LinkLayer::Ethernet, from, room);
            out.extend(some);
            match end {
                Delivery::Full(next) => from = next,
                Delivery::Done => break,
                Delivery::Damaged => panic!("damaged"),
            }
        }
        assert!(out == all.0, "room {room}");
    }
}

#[test]
fn segments_carry_the_tag_and_ip_devices_have_none() {
    let whole = tcp(3000).build();
    let (plain, _) = run(&mut whole.clone(), gso(0x81, 1000), None, LinkLayer::Ethernet, 0, 99);
    let (with_tag, _) = run(&mut whole.clone(), gso(0x81, 1000), Some(TAG), LinkLayer::Ethernet, 0, 99);
    let expected: Vec<_> = plain.iter().map(|f| tagged(f, TAG)).collect();
    assert!(with_tag == expected);
    let (ip, end) = run(&mut whole.clone()[14..], gso(1, 1000), Some(TAG), LinkLayer::Ip, 0, 99);
    assert_eq!(end, Delivery::Done);
    assert!(ip.iter().zip(&plain).all(|(ip, plain)| *ip == plain[14..]));
}

#[test]
fn an_oversized_datagram_of_the_old_kind_goes_on_whole() {
    let mut frame = Packet::ethernet(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload_len(5000).build();
    let len = frame.len();
    let header = VnetHeader { csum_start: 34, csum_offset: 6, ..gso(VnetHeader::GSO_UFO, 1480) };
    let (out, end) = run(&mut frame, header, None, LinkLayer::Ethernet, 0, 9);
    assert_eq!((out.len(), out[0].len(), end), (1, len, Delivery::Done));
}

#[test]
fn what_contradicts_itself_is_damaged() {
    let mut frame = tcp(3000).build();
    for header in [gso(1, 0), gso(2, 1000), gso(4, 1000), gso(5, 1000), gso(0x7f, 1000)] {
        assert_eq!(run(&mut frame, header, None, LinkLayer::Ethernet, 0, 9), (vec![], Delivery::Damaged), "{header:?}");
    }
    assert_eq!(run(&mut frame[..40], gso(1, 1000), None, LinkLayer::Ethernet, 0, 9).1, Delivery::Damaged);
}

proptest! {
    #[test]
    fn no_header_and_no_frame_make_it_panic(
        mut frame in proptest::collection::vec(any::<u8>(), 0..200),
        header: [u8; 10], tag: Option<[u8; 4]>, ip: bool, from in 0_usize..20, mutate: bool,
    ) {
        if mutate {
            // Something near a right frame goes deeper than noise.
            let mut right = tcp(60).build();
            right.iter_mut().zip(&frame).filter(|(_, n)| **n < 8).for_each(|(r, n)| *r ^= *n);
            frame = right;
        }
        let link = if ip { LinkLayer::Ip } else { LinkLayer::Ethernet };
        let header = VnetHeader::parse(&header).unwrap();
        let total = frame.len();
        let (out, _) = run(&mut frame, header, tag, link, from, 300);
        prop_assert!(out.iter().all(|f| f.len() <= total + 4));
    }
}
