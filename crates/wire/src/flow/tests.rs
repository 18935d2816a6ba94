use super::*;
use crate::build::Packet;
use crate::tcp::TcpFlags;
use core::net::Ipv6Addr;
use proptest::prelude::*;

const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

#[test]
fn ports_are_found_behind_options_and_extension_headers() {
    let v4 = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).options(&[148, 4]).udp(5, 6).build();
    let flow = FlowV4::parse(&v4).unwrap();
    assert_eq!((flow.src, flow.dst), (0x0a00_0001, 0x0a00_0002));
    assert_eq!((flow.src_port, flow.dst_port, flow.protocol), (5, 6, IpProtocol::UDP));
    let v6 = Packet::new()
        .ipv6(A6, B6)
        .flow_label(0x12345)
        .hop_by_hop(&[5, 2, 0, 0, 1, 0])
        .destination_options(&[1, 4])
        .tcp(7, 8, TcpFlags::SYN)
        .build();
    let flow = FlowV6::parse(&v6).unwrap();
    assert_eq!((flow.src_port, flow.dst_port, flow.protocol), (7, 8, IpProtocol::TCP));
    assert_eq!(flow.flow_label, 0x12345);
}

#[test]
fn all_fragments_of_a_datagram_are_one_flow_without_ports() {
    let v4 = |offset, more| {
        let packet = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(9, offset, more);
        FlowV4::parse(&packet.udp(5, 6).build()).unwrap()
    };
    assert_eq!(v4(0, true), v4(8, false));
    assert_eq!((v4(0, true).src_port, v4(0, false).src_port), (0, 5));
    let v6 = |offset, more| {
        let packet = Packet::new().ipv6(A6, B6).fragment(9, offset, more);
        FlowV6::parse(&packet.udp(5, 6).build()).unwrap()
    };
    assert_eq!(v6(0, true), v6(8, false));
    assert_eq!(v6(8, true).protocol, IpProtocol::UDP);
    // an atomic fragment is a whole datagram
    assert_eq!((v6(0, true).src_port, v6(0, false).src_port), (0, 5));
}

#[test]
fn icmp_and_truncated_packets_have_no_ports() {
    let ping = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).echo_request(1, 2).build();
    assert_eq!(FlowV4::parse(&ping).unwrap().src_port, 0);
    assert_eq!(echo_identifier(&ping[20..]), Some(1));
    let udp = Packet::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(5, 6).build();
    assert_eq!(FlowV4::parse(&udp[..23]).unwrap().src_port, 0);
    assert_eq!(FlowV4::parse(&udp[..19]), None);
}

/// The worst bucket of `n` flows over `buckets`, in standard deviations above the mean of a fair throw.
fn worst_bucket(buckets: u32, hashes: impl Iterator<Item = u32>) -> f64 {
    let mut counts = vec![0u32; buckets as usize];
    let mut n = 0;
    for hash in hashes {
        // both ways in which a bucket is picked from a hash
        counts[(hash % buckets) as usize] += 1;
        counts[((u64::from(hash) * u64::from(buckets)) >> 32) as usize] += 1;
        n += 2;
    }
    let mean = f64::from(n) / f64::from(buckets);
    let worst = counts.iter().map(|&count| (f64::from(count) - mean).abs()).fold(0.0, f64::max);
    worst / (2.0 * mean).sqrt()
}

#[test]
fn counting_fields_spread_evenly() {
    let all = FlowFields::DEFAULT;
    for buckets in [2, 3, 4, 7, 8, 16, 64] {
        for step in [1u32, 2, 256, 65_536] {
            let flow = |i: u32| FlowV4 {
                src: 0x0a00_0001,
                dst: 0xc0a8_0000u32.wrapping_add(i.wrapping_mul(step)),
                protocol: IpProtocol::UDP,
                ..FlowV4::default()
            };
            let worst = worst_bucket(buckets, (0..20_000).map(|i| flow_hash_v4(&flow(i), all)));
            assert!(worst < 5.0, "addresses by {step} over {buckets}: {worst:.1} deviations");
            let flow = |i: u32| FlowV6 {
                src: A6.to_bits(),
                dst: B6.to_bits() + ((u128::from(i) * u128::from(step)) << 48),
                ..FlowV6::default()
            };
            let worst = worst_bucket(buckets, (0..20_000).map(|i| flow_hash_v6(&flow(i), all)));
            assert!(worst < 5.0, "IPv6 addresses by {step} over {buckets}: {worst:.1} deviations");
        }
        let flow = |i: u32| FlowV4 { src_port: i as u16, dst_port: 80, ..FlowV4::default() };
        for fields in [all, all | FlowFields::SYMMETRIC, FlowFields::SPORT] {
            let worst = worst_bucket(buckets, (0..20_000).map(|i| flow_hash_v4(&flow(i), fields)));
            assert!(worst < 5.0, "ports over {buckets} by {fields}: {worst:.1} deviations");
        }
    }
}

#[test]
fn every_selection_has_a_name_that_reads_back() {
    let names = "src dst sport dport proto reverse symmetric flowlabel";
    let all = names.split(' ').map(|name| FlowFields::from_name(name).unwrap());
    let all = all.fold(FlowFields::NONE, FlowFields::union);
    assert_eq!(all.to_string(), names);
    assert_eq!(FlowFields::from_name("gtpv1teid"), None);
    assert_eq!(FlowFields::default().to_string(), "src dst sport dport proto");
}

fn any_v4() -> impl Strategy<Value = FlowV4> {
    any::<(u32, u32, u16, u16, u8)>().prop_map(|(src, dst, src_port, dst_port, protocol)| FlowV4 {
        src,
        dst,
        src_port,
        dst_port,
        protocol: IpProtocol(protocol),
    })
}

fn any_v6() -> impl Strategy<Value = FlowV6> {
    (any_v4(), any::<(u128, u128)>(), 0u32..1 << 20).prop_map(|(v4, (src, dst), flow_label)| FlowV6 {
        src,
        dst,
        src_port: v4.src_port,
        dst_port: v4.dst_port,
        protocol: v4.protocol,
        flow_label,
    })
}

proptest! {
    #[test]
    fn symmetric_hashes_agree_for_both_directions(v4 in any_v4(), v6 in any_v6()) {
        let fields = FlowFields::DEFAULT | FlowFields::SYMMETRIC;
        prop_assert_eq!(flow_hash_v4(&v4, fields), flow_hash_v4(&v4.reversed(), fields));
        prop_assert_eq!(flow_hash_v6(&v6, fields), flow_hash_v6(&v6.reversed(), fields));
        let (there, back) = (FlowFields::DEFAULT, FlowFields::DEFAULT | FlowFields::REVERSE);
        prop_assert_eq!(flow_hash_v4(&v4, there), flow_hash_v4(&v4.reversed(), back));
        prop_assert_eq!(flow_hash_v6(&v6, there), flow_hash_v6(&v6.reversed(), back));
    }

    #[test]
    fn only_fields_that_count_change_the_hash(a in any_v6(), b in any_v6()) {
        use FlowFields as F;
        let mixed = FlowV6 { src: b.src, ..a };
        let others = F::DST | F::SPORT | F::DPORT | F::PROTO | F::FLOW_LABEL;
        prop_assert_eq!(flow_hash_v6(&a, others), flow_hash_v6(&mixed, others));
        let mixed = FlowV6 { dst_port: b.dst_port, flow_label: b.flow_label, ..a };
        let others = F::SRC | F::DST | F::SPORT | F::PROTO;
        prop_assert_eq!(flow_hash_v6(&a, others), flow_hash_v6(&mixed, others));
        prop_assert_eq!(flow_hash_v6(&a, F::NONE), flow_hash_v6(&b, F::NONE));
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = (FlowV4::parse(&bytes), FlowV6::parse(&bytes), echo_identifier(&bytes));
    }
}
