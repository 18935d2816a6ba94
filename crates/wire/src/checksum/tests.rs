use super::*;
use proptest::prelude::*;

/// RFC 1071 word by word, in network order.
fn slow(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn the_example_of_rfc_1071_sums_as_printed() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::of(&bytes).folded(), 0xddf2);
}

#[test]
fn sizes_around_every_loop_boundary_agree_with_the_slow_sum() {
    let bytes: Vec<u8> = (0..300u32).map(|i| (i * 167 + 13) as u8).collect();
    for start in 0..9 {
        for end in start..bytes.len() {
            assert_eq!(checksum(&bytes[start..end]), slow(&bytes[start..end]), "{start}..{end}");
        }
    }
}

#[test]
fn a_megabyte_of_ones_loses_no_carry() {
    let bytes = vec![0xff; 1 << 20];
    assert_eq!(checksum(&bytes), slow(&bytes));
    assert_eq!(checksum(&[]), 0xffff);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    assert_eq!(Sum::of(&[0xff, 0xff]).checksum(), 0);
    assert_eq!(Sum::of(&[0xff, 0xff]).udp_checksum(), 0xffff);
    assert_eq!(Sum::of(&[0xff, 0xfe]).udp_checksum(), 1);
}

#[test]
fn unfinished_checksums_outside_the_frame_are_refused() {
    let mut frame = [0xa5; 20];
    assert_eq!(complete(&mut frame, 21, 0), Err(OffloadError::StartPastEnd));
    assert_eq!(complete(&mut frame, 12, 7), Err(OffloadError::FieldPastEnd));
    assert_eq!(complete(&mut frame, 0xffff, 0xffff), Err(OffloadError::StartPastEnd));
    assert_eq!(frame, [0xa5; 20]);
    assert_eq!(complete(&mut frame, 12, 6), Ok(()));
}

#[test]
fn a_datagram_too_short_for_its_field_is_left_alone() {
    let mut l4 = [0xa5; 17];
    assert_eq!(fill_l4(IpProtocol::TCP, Sum::new(), &mut l4), None);
    assert_eq!(fill_l4(IpProtocol::GRE, Sum::new(), &mut l4), None);
    assert_eq!(l4, [0xa5; 17]);
}

proptest! {
    #[test]
    fn the_sum_agrees_with_the_slow_one(bytes: Vec<u8>) {
        prop_assert_eq!(checksum(&bytes), slow(&bytes));
    }

    #[test]
    fn pieces_of_any_length_sum_as_the_whole(bytes: Vec<u8>, cuts: [prop::sample::Index; 3]) {
        let mut cuts = cuts.map(|cut| cut.index(bytes.len() + 1));
        cuts.sort_unstable();
        let sum = Sum::of(&bytes[..cuts[0]])
            .add_bytes(&bytes[cuts[0]..cuts[1]])
            .add_bytes(&bytes[cuts[1]..cuts[2]])
            .add_bytes(&bytes[cuts[2]..]);
        prop_assert_eq!(sum.checksum(), slow(&bytes));
    }

    #[test]
    fn values_sum_as_their_network_order_bytes(a: u16, b: u32, c: u128) {
        let bytes = [&a.to_be_bytes()[..], &b.to_be_bytes(), &c.to_be_bytes()].concat();
        prop_assert_eq!(Sum::new().add_u16(a).add_u32(b).add_u128(c).checksum(), slow(&bytes));
    }

    #[test]
    fn an_update_agrees_with_the_full_sum(mut bytes: [u8; 40], a: u16, b: u32, c: u128) {
        // not all zero before and after: there the two forms of zero differ
        bytes[0] = 0x45;
        let before = slow(&bytes);
        let (old_a, old_b) = ([bytes[2], bytes[3]], [bytes[4], bytes[5], bytes[6], bytes[7]]);
        let old_c: [u8; 16] = bytes[8..24].try_into().unwrap();
        bytes[2..4].copy_from_slice(&a.to_be_bytes());
        bytes[4..8].copy_from_slice(&b.to_be_bytes());
        bytes[8..24].copy_from_slice(&c.to_be_bytes());
        let update = Update::new(before)
            .u16(u16::from_be_bytes(old_a), a)
            .u32(u32::from_be_bytes(old_b), b)
            .u128(u128::from_be_bytes(old_c), c);
        prop_assert_eq!(update.finish(), slow(&bytes));
    }

    #[test]
    fn a_filled_datagram_verifies_and_etherparse_agrees(
        src: u32, dst: u32, src6: u128, dst6: u128, payload: Vec<u8>,
    ) {
        let ip4 = Ipv4Header::new(src.into(), dst.into(), IpProtocol::UDP);
        let ip6 = Ipv6Header::new(src6.into(), dst6.into(), IpProtocol::UDP);
        let udp = crate::udp::UdpHeader::new(1, 2, payload.len() as u16);
        let theirs = etherparse::UdpHeader {
            source_port: 1, destination_port: 2, length: udp.length.get(), checksum: 0,
        };
        let mut l4 = [zerocopy::IntoBytes::as_bytes(&udp), &payload].concat();
        let len = l4.len();
        let pseudo = Sum::new().add_pseudo_v4(src, dst, IpProtocol::UDP, len as u16);
        fill_l4(IpProtocol::UDP, pseudo, &mut l4).unwrap();
        prop_assert!(l4_sum_v4(&ip4, IpProtocol::UDP, &l4).is_valid());
        let expected = theirs.calc_checksum_ipv4_raw(src.to_be_bytes(), dst.to_be_bytes(), &payload).unwrap();
        prop_assert_eq!(U16Be::read_at(&l4, 6).unwrap().get(), expected);
        let pseudo = Sum::new().add_pseudo_v6(src6, dst6, IpProtocol::UDP, len as u32);
        fill_l4(IpProtocol::UDP, pseudo, &mut l4).unwrap();
        prop_assert!(l4_sum_v6(&ip6, IpProtocol::UDP, &l4).is_valid());
        let expected = theirs.calc_checksum_ipv6_raw(src6.to_be_bytes(), dst6.to_be_bytes(), &payload).unwrap();
        prop_assert_eq!(U16Be::read_at(&l4, 6).unwrap().get(), expected);
    }

    #[test]
    fn a_completed_checksum_is_the_one_computed_at_once(src: u32, dst: u32, payload: Vec<u8>) {
        let udp = crate::udp::UdpHeader::new(7, 9, payload.len() as u16);
        let mut l4 = [zerocopy::IntoBytes::as_bytes(&udp), &payload].concat();
        let pseudo = Sum::new().add_pseudo_v4(src, dst, IpProtocol::UDP, l4.len() as u16);
        let mut unfinished = [&[0xa5; 34][..], &l4].concat();
        U16Be::new(pseudo.folded()).write_at(&mut unfinished, 34 + 6).unwrap();
        complete(&mut unfinished, 34, 6).unwrap();
        fill_l4(IpProtocol::UDP, pseudo, &mut l4).unwrap();
        prop_assert_eq!(&unfinished[34..], &l4[..]);
        prop_assert_eq!(&unfinished[..34], &[0xa5; 34][..]);
    }
}
