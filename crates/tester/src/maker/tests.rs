use super::*;
use crate::profile::Profile;
use crate::signature::Reading;
use proptest::prelude::*;
use quiver_wire::checksum::{Sum, l4_sum_v4, l4_sum_v6};
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

const AROUND: Surroundings = Surroundings {
    src: MacAddr([2, 0, 0, 0, 0, 1]),
    dst: Some(MacAddr([2, 0, 0, 0, 0, 2])),
    ethernet: true,
    id: 3,
    tag: 9,
    seed: 1,
};

fn stream(lines: &str) -> Stream {
    let lines: String = lines.lines().map(|l| format!("  {}\n", l.trim())).collect();
    Profile::of_yaml("p", &format!("name: p\nstreams:\n- name: s\n{lines}")).unwrap().streams.remove(0)
}

fn maker(lines: &str, size: u16) -> Maker {
    Maker::new(&stream(lines), Some(&Size::Fixed(size)), &AROUND).unwrap()
}

/// Everything that a receiver checks, by a full sum over the finished bytes.
fn assert_intact(frame: &[u8], l3: usize) {
    let ip = &frame[l3..];
    if ip[0] >> 4 == 4 {
        let header = Ipv4Header::parse(ip).unwrap();
        assert!(Sum::of(&ip[..20]).is_valid(), "IPv4 header");
        assert_eq!(usize::from(header.total_len.get()), ip.len());
        let l4 = &ip[20..];
        match header.protocol {
            IpProtocol::ICMP => assert!(Sum::of(l4).is_valid(), "ICMP"),
            protocol => assert!(l4_sum_v4(&header, protocol, l4).is_valid(), "{protocol:?}"),
        }
    } else {
        let header = Ipv6Header::parse(ip).unwrap();
        assert_eq!(usize::from(header.payload_len.get()), ip.len() - 40);
        assert!(l4_sum_v6(&header, header.next_header, &ip[40..]).is_valid(), "{:?}", header.next_header);
    }
}

#[test]
fn each_frame_has_its_size_number_time_and_right_sums() {
    for (lines, size) in [
        ("ipv4: {}\nudp: { src: 1000, dst: 7 }", 64),
        ("ipv4: {}\nudp: {}", 65),
        ("ipv6: {}\nudp: {}", 84),
        ("ipv4: {}\ntcp: {}", 77),
        ("ipv6: {}\ntcp: {}", 1518),
        ("ipv4: {}\nicmp: { id: 4 }", 101),
        ("ipv6: {}\nicmp: {}", 102),
    ] {
        let mut maker = maker(lines, size);
        for n in 0..300_u32 {
            let time = u64::from(n) * 1_000_003;
            let mut frame = maker.make_bytes(time);
            assert_eq!(frame.len(), usize::from(size) - 4);
            let wanted = Signature { tag: 9, stream: 3, sequence: FIRST.wrapping_add(n), time };
            assert_eq!(Signature::read(&frame), Reading::Valid(wanted), "{lines}");
            assert_intact(&frame, 14);
            maker.restamp(&mut frame, time + 77);
            assert_eq!(Signature::read(&frame), Reading::Valid(Signature { time: time + 77, ..wanted }));
            assert_intact(&frame, 14);
        }
    }
}

#[test]
fn fields_take_the_values_that_the_profile_says() {
    let lines = "ipv4: { src: { decrement: { first: 10.0.0.3, last: 10.0.0.1 } }, dst: [198.19.0.9, 198.19.0.5] }
                 udp: { src: { increment: { first: 5, count: 3, step: 10 } }, dst: { random: { first: 1, last: 4, seed: 3 } } }
                 vlan: [ { id: { increment: { first: 1, last: 2 } }, priority: 5, service: true }, { id: 7 } ]";
    let mut maker = maker(lines, 100);
    let (mut sources, mut targets, mut ports, mut tags, mut drawn) = (vec![], vec![], vec![], vec![], [0; 5]);
    for _ in 0..400 {
        let frame = maker.make_bytes(0);
        assert_intact(&frame, 22);
        let ip = Ipv4Header::parse(&frame[22..]).unwrap();
        sources.push(ip.src_addr().octets()[3]);
        targets.push(ip.dst_addr().octets()[3]);
        ports.push(u16::from_be_bytes([frame[42], frame[43]]));
        drawn[usize::from(frame[45])] += 1;
        tags.push([frame[12], frame[13], frame[14], frame[15]]);
        assert_eq!(frame[16..22], [0x81, 0, 0, 7, 8, 0]);
    }
    assert_eq!(sources[..4], [3, 2, 1, 3]);
    assert_eq!(targets[..3], [9, 5, 9]);
    assert_eq!(ports[..4], [5, 15, 25, 5]);
    assert_eq!(tags[..2], [[0x88, 0xa8, 0xa0, 1], [0x88, 0xa8, 0xa0, 2]]);
    assert!(drawn[0] == 0 && drawn[1..].iter().all(|n| *n > 60), "{drawn:?}");
}

#[test]
fn tuples_stay_together_in_turns_and_when_drawn() {
    for order in ["turns", "random"] {
        let lines = format!(
            "ipv4: {{}}
             tcp: {{ flags: [ syn, ack ] }}
             tuples: {{ order: {order}, values: [ {{ src: 10.0.0.1, dst: 10.1.0.9, src_port: 1001, dst_port: 99 }},
             {{ src: 10.0.0.2, dst: 10.1.0.8, src_port: 1002, dst_port: 98 }}, {{ src: 10.0.0.3, dst: 10.1.0.7, src_port: 1003, dst_port: 97 }} ] }}"
        );
        let mut maker = maker(&lines, 80);
        let mut seen = [0_u32; 4];
        for _ in 0..600 {
            let frame = maker.make_bytes(0);
            assert_intact(&frame, 14);
            let n = frame[29];
            assert_eq!(frame[47], 0x12, "SYN and ACK");
            assert_eq!([frame[33], frame[35], frame[37]], [10 - n, 0xe8 + n, 100 - n], "{order}");
            seen[usize::from(n)] += 1;
        }
        assert!(seen[0] == 0 && seen[1..].iter().all(|n| *n > 150), "{order}: {seen:?}");
        assert!((order == "turns") == (seen[1..] == [200; 3]), "{order}: {seen:?}");
    }
}

#[test]
fn values_are_held_as_long_as_the_profile_says() {
    let lines = "ipv4: { src: { increment: { first: 10.0.0.1, count: 3 } } }
                 udp: { src: { increment: { first: 5, count: 2, every: 3 } }, dst: { decrement: { first: 9, last: 8, every: 2 } } }";
    let mut maker = maker(lines, 64);
    let frames: Vec<_> = (0..7).map(|_| maker.make_bytes(0)).map(|f| [f[29], f[35], f[37]]).collect();
    assert_eq!(frames, [[1, 5, 9], [2, 5, 9], [3, 5, 8], [1, 6, 8], [2, 6, 9], [3, 6, 9], [1, 5, 8]]);
}

#[test]
fn prefixes_are_drawn_by_rank_and_hosts_evenly_within_them() {
    let lines = "ipv4: { dst: { zipf: { prefixes: [ 10.0.0.0/8, 192.0.2.7/32, 172.16.0.0/31 ], exponent: 1 } } }
                 udp: { src: 1, dst: 2 }";
    let mut maker = maker(lines, 64);
    let (mut ranks, mut odd) = ([0_u32; 3], 0);
    for _ in 0..110_000 {
        let frame = maker.make_bytes(0);
        match frame[30..34] {
            [10, _, _, last] => {
                ranks[0] += 1;
                odd += u32::from(last) & 1;
            }
            [192, 0, 2, 7] => ranks[1] += 1,
            [172, 16, 0, 0 | 1] => ranks[2] += 1,
            _ => panic!("{frame:02x?}"),
        }
    }
    // 6 : 3 : 2 of 11; bounds of five standard deviations.
    assert!(ranks[0].abs_diff(60_000) < 830 && ranks[1].abs_diff(30_000) < 740 && ranks[2].abs_diff(20_000) < 640, "{ranks:?}");
    assert!(odd.abs_diff(30_000) < 900, "{odd}");
}

#[test]
fn what_is_left_out_is_as_the_documents_say() {
    let mut maker = maker("ipv4: {}\nudp: {}", 64);
    let mut least = [u16::MAX; 2];
    for _ in 0..20_000 {
        let frame = maker.make_bytes(0);
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(frame[26..34], [198, 18, 0, 2, 198, 19, 0, 2]);
        let [src, dst] = [34, 36].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
        least = [least[0].min(src), least[1].min(dst)];
        assert!(src >= 1024 && (1..=49_151).contains(&dst));
    }
    assert!(least[0] < 1100 && least[1] < 50, "{least:?}");
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let lines = "ipv6: { dst: { random: { first: '2001:2:0:8000::', last: '2001:2:0:8000::ffff' } } }\nudp: {}\nsize: { random: { min: 90, max: 300 } }";
    let frames = |seed: u64| {
        let mut maker = Maker::new(&stream(lines), None, &Surroundings { seed, ..AROUND }).unwrap();
        (0..100).map(|n| maker.make_bytes(n)).collect::<Vec<_>>()
    };
    assert_eq!(frames(1), frames(1));
    assert_ne!(frames(1), frames(2));
    frames(3).iter().for_each(|f| assert_intact(f, 14));
}

#[test]
fn a_mix_of_sizes_is_made_in_its_order_and_packets_without_link_layer_are_whole() {
    let mut maker = Maker::new(&stream("ipv4: {}\nudp: {}\nsize: imix"), None, &AROUND).unwrap();
    let sizes: Vec<usize> = (0..12).map(|_| maker.make_bytes(0).len() + 4).collect();
    assert_eq!((sizes.iter().filter(|s| **s == 64).count(), sizes.iter().sum::<usize>()), (7, 64 * 7 + 594 * 4 + 1518));
    assert_eq!(maker.largest(), 1514);
    let around = Surroundings { ethernet: false, dst: None, ..AROUND };
    let mut maker = Maker::new(&stream("ipv6: {}\nudp: {}"), Some(&Size::Fixed(84)), &around).unwrap();
    let packet = maker.make_bytes(5);
    assert_eq!(packet.len(), 66);
    assert_intact(&packet, 0);
}

#[test]
fn what_cannot_be_made_is_refused_with_what_would_do() {
    let refused = |lines: &str, size: Option<Size>, around: Surroundings| {
        Maker::new(&stream(lines), size.as_ref(), &around).unwrap_err().to_string()
    };
    let size = Some(Size::Fixed(64));
    assert!(refused("ipv4: {}", size.clone(), Surroundings { dst: None, ..AROUND }).contains("`gateway=ADDRESS'"));
    assert!(refused("ipv4: {}", None, AROUND).contains("--size"));
    assert!(refused("ipv6: {}\nudp: {}", size.clone(), AROUND).contains("84 bytes or more"));
    assert!(refused("ethernet: {}", size, Surroundings { ethernet: false, ..AROUND }).contains("IP packets only"));
}

#[test]
fn frames_without_signature_or_ip_are_whole_too() {
    let mut bare = maker("ipv6: {}\nudp: { src: 1, dst: 2 }\nsignature: none", 66);
    assert_intact(&bare.make_bytes(0), 14);
    let mut plain = maker("ethernet: { dst: { increment: { first: '02:00:00:00:00:10', count: 2 } } }", 64);
    let (a, b) = (plain.make_bytes(0), plain.make_bytes(0));
    assert_eq!((a[5], b[5], [a[12], a[13]]), (0x10, 0x11, [0x88, 0xb5]));
    assert!(matches!(Signature::read(&b), Reading::Valid(_)));
}

proptest! {
    #[test]
    fn sums_are_right_whatever_varies(size in 96_u16..1519, seed: u64, v6: bool, tcp: bool, tags in 0_usize..3, time: u64) {
        let ip = if v6 {
            "ipv6: { src: { random: { first: '::', last: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' } }, dst: { increment: { first: '2001:2::ffff:fff0', count: 100, step: '0:0:0:1::' } } }"
        } else {
            "ipv4: { src: { random: { first: 0.0.0.0, last: 255.255.255.255 } }, dst: { decrement: { first: 10.1.0.5, last: 10.0.255.1 } } }"
        };
        let lines = format!("{ip}\n{}: {{}}\nvlan: [{}]", if tcp { "tcp" } else { "udp" }, vec!["{ id: 5 }"; tags].join(", "));
        let size = size + 4 * tags as u16;
        let mut maker = Maker::new(&stream(&lines), Some(&Size::Fixed(size)), &Surroundings { seed, ..AROUND }).unwrap();
        for n in 0..5 {
            assert_intact(&maker.make_bytes(time.wrapping_add(n)), 14 + 4 * tags);
        }
    }
}

/// What a frame holds from its first byte on, as far as it is given.
fn assert_begins(frame: &[u8], with: &[u8]) {
    assert_eq!(frame.get(..with.len()), Some(with), "{frame:02x?}");
}

#[test]
fn labels_stand_between_tags_and_the_packet() {
    let lines = "ipv4: { dst: { increment: { first: 198.19.0.2, count: 9 } } }\nudp: {}\nvlan: [ { id: 5 } ]
                 mpls: [ { label: 1048575, tc: 5, ttl: 9 }, { label: 16 } ]";
    let mut made = maker(lines, 80);
    for _ in 0..20 {
        let frame = made.make_bytes(5);
        assert_begins(&frame[12..], &[0x81, 0, 0, 5, 0x88, 0x47, 0xff, 0xff, 0xfa, 9, 0, 1, 1, 64, 0x45]);
        assert_intact(&frame, 26);
        assert!(matches!(Signature::read(&frame), Reading::Valid(_)));
    }
}

#[test]
fn tunnels_wrap_packets_whose_sums_and_lengths_are_right() {
    for (tunnel, inner, outer, head) in [
        ("{ kind: ip, ipv4: {} }", "ipv4: {}\nudp: {}", 34, 0),
        ("{ kind: ip, ipv6: { src: '2001:db8::1', dst: '2001:db8::2', dscp: 3 } }", "ipv4: {}\ntcp: {}", 54, 0),
        ("{ kind: ip, ipv4: {} }", "ipv6: {}\nicmp: {}", 34, 0),
        ("{ kind: gre, ipv4: { ttl: 9 } }", "ipv6: {}\nudp: {}", 34, 4),
        ("{ kind: gre, ipv6: {}, key: 16909060 }", "ipv4: {}\nudp: {}", 54, 8),
        ("{ kind: vxlan, ipv4: {}, vni: 16777215 }", "ipv4: {}\nudp: {}", 34, 30),
        ("{ kind: vxlan, ipv6: {}, vni: 7, source-port: 50000 }", "ipv6: {}\nudp: {}", 54, 30),
    ] {
        let lines = format!("{inner}\ntunnel: {tunnel}");
        let smallest = stream(&lines).smallest();
        let mut made = maker(&lines, smallest + 11);
        for n in 0..5 {
            let mut frame = made.make_bytes(n);
            assert_eq!(frame.len(), usize::from(smallest) + 7, "{tunnel}");
            assert_intact(&frame, outer + head);
            made.restamp(&mut frame, n + 9);
            assert_intact(&frame, outer + head);
            assert!(matches!(Signature::read(&frame), Reading::Valid(s) if s.time == n + 9));
            if frame[14] >> 4 == 4 {
                let ip = Ipv4Header::parse(&frame[14..]).unwrap();
                assert!(Sum::of(&frame[14..34]).is_valid(), "outer IPv4 header");
                assert_eq!(usize::from(ip.total_len.get()), frame.len() - 14);
                assert_eq!(ip.src_addr().octets(), [198, 18, 0, 2]);
            } else {
                let ip = Ipv6Header::parse(&frame[14..]).unwrap();
                assert_eq!(usize::from(ip.payload_len.get()), frame.len() - 54);
            }
        }
    }
}

#[test]
fn tunnels_say_what_they_carry() {
    let of = |lines: &str| maker(lines, 200).make_bytes(0);
    let frame = of("ipv6: {}\nudp: {}\ntunnel: { kind: gre, ipv4: {}, key: 16909060 }");
    assert_eq!(frame[23], 47);
    assert_begins(&frame[34..], &[0x20, 0, 0x86, 0xdd, 1, 2, 3, 4, 0x60]);
    let frame = of("ipv4: {}\nudp: {}\ntunnel: { kind: gre, ipv4: {} }");
    assert_begins(&frame[34..], &[0, 0, 8, 0, 0x45]);
    let frame = of("ipv6: {}\nudp: {}\ntunnel: { kind: ip, ipv4: { dscp: 10 } }");
    assert_eq!((frame[15], frame[23]), (40, 41));
    let frame = of("ipv4: {}\nudp: {}\ntunnel: { kind: vxlan, ipv4: {}, vni: 4660, ethernet: { dst: '02:00:00:00:00:77' } }");
    // Ports, length, no checksum; then flags and identifier; then the frame within.
    assert_begins(&frame[34..], &[0xc0, 0, 0x12, 0xb5, 0, 162, 0, 0]);
    assert_begins(&frame[42..], &[8, 0, 0, 0, 0, 0x12, 0x34, 0, 2, 0, 0, 0, 0, 0x77, 2, 0, 0, 0, 1, 1, 8, 0, 0x45]);
}

#[test]
fn a_payload_stands_first_and_the_rest_counts_up() {
    let frame = maker("ipv4: {}\nudp: { src: 9, dst: 9 }\npayload: '474554FF'", 100).make_bytes(0);
    assert_begins(&frame[42..], &[0x47, 0x45, 0x54, 0xff, 4, 5, 6]);
    assert_intact(&frame, 14);
}
