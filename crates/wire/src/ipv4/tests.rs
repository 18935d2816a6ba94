use super::*;
use crate::checksum;
use proptest::prelude::*;

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 9);

fn packet(payload: usize, change: impl FnOnce(&mut Ipv4Header)) -> Vec<u8> {
    let mut header = Ipv4Header::new(SRC, DST, IpProtocol::UDP);
    header.total_len = U16Be::new(20 + payload as u16);
    change(&mut header);
    header.fill_checksum();
    let mut bytes = vec![0xa5; 20 + payload];
    header.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn each_failed_check_of_rfc_1812_has_its_reason() {
    let good = packet(8, |_| {});
    assert!(Ipv4Header::parse(&good).is_ok());
    assert_eq!(Ipv4Header::parse(&good[..19]), Err(Ipv4Error::TooShort));
    assert_eq!(Ipv4Header::parse(&[]), Err(Ipv4Error::TooShort));
    let mut bad = good.clone();
    bad[10] ^= 1;
    assert_eq!(Ipv4Header::parse(&bad), Err(Ipv4Error::BadChecksum));
    for (first_byte, reason) in [
        (0x65, Ipv4Error::BadVersion),
        (0x44, Ipv4Error::BadHeaderLength),
        (0x40, Ipv4Error::BadHeaderLength),
        (0x4f, Ipv4Error::BadHeaderLength),
    ] {
        let bad = packet(8, |h| h.version_ihl = first_byte);
        assert_eq!(Ipv4Header::parse(&bad), Err(reason));
    }
    let bad = packet(8, |h| h.total_len = U16Be::new(19));
    assert_eq!(Ipv4Header::parse(&bad), Err(Ipv4Error::BadTotalLength));
    let bad = packet(8, |h| h.total_len = U16Be::new(29));
    assert_eq!(Ipv4Header::parse(&bad), Err(Ipv4Error::Truncated));
}

#[test]
fn link_layer_padding_is_no_error() {
    let mut padded = packet(1, |_| {});
    padded.resize(46, 0);
    let header = Ipv4Header::parse(&padded).unwrap();
    assert_eq!(header.payload_len(), 1);
}

#[test]
fn bit_fields_round_trip_all_their_values() {
    let mut header = Ipv4Header::default();
    for (dscp, ecn) in (0..64).flat_map(|dscp| (0..4).map(move |ecn| (dscp, ecn))) {
        header.set_dscp(dscp);
        header.set_ecn(ecn);
        assert_eq!((header.dscp(), header.ecn()), (dscp, ecn));
    }
    for words in 0..16 {
        header.set_header_len(words * 4);
        assert_eq!((header.version(), header.header_len()), (4, words * 4));
        assert_eq!(header.has_options(), words > 5);
    }
    for value in 0..=u16::MAX {
        header.fragment = U16Be::new(value);
        let again = (u16::from(header.dont_fragment()) << 14)
            | (u16::from(header.more_fragments()) << 13)
            | (header.fragment_offset() / 8) as u16;
        assert_eq!(again, value & 0x7fff);
        assert_eq!(header.is_fragment(), value & 0x3fff != 0);
        assert_eq!(header.is_later_fragment(), value & 0x1fff != 0);
    }
}

#[test]
fn a_hop_repairs_the_checksum_for_every_ttl_and_checksum() {
    for ttl in 1..=255u32 {
        // every checksum a valid header can have; 0xffff is none of them
        for checksum in (0..0xffff).step_by(if ttl == 64 { 1 } else { 251 }) {
            let word = ttl << 24 | 17 << 16 | checksum;
            let update = Update::new(checksum as u16).u16((word >> 16) as u16, (word.wrapping_sub(1 << 24) >> 16) as u16);
            let slow = (ttl - 1) << 24 | 17 << 16 | u32::from(update.finish());
            assert_eq!(ttl_word_decremented(word), slow, "ttl {ttl} checksum {checksum:#x}");
            assert_eq!(ttl_word_decremented_raw(word.to_be()), slow.to_be(), "ttl {ttl} checksum {checksum:#x}");
        }
    }
}

#[test]
fn only_the_second_eight_bytes_of_tcp_are_a_tiny_fragment() {
    let tiny = |protocol, fragment| {
        let header = Ipv4Header { protocol, fragment: U16Be::new(fragment), ..Default::default() };
        header.is_tiny_tcp_fragment()
    };
    assert!(tiny(IpProtocol::TCP, 1) && tiny(IpProtocol::TCP, 0x2001));
    assert!(!tiny(IpProtocol::UDP, 1) && !tiny(IpProtocol::TCP, 2) && !tiny(IpProtocol::TCP, 0));
}

/// A header in bytes with a correct checksum more often than chance would have it.
fn any_header() -> impl Strategy<Value = Vec<u8>> {
    (proptest::collection::vec(any::<u8>(), 0..80), any::<bool>(), any::<bool>()).prop_map(|(mut bytes, plain, checksum_right)| {
        if plain && bytes.len() >= 20 {
            bytes[0] = 0x45;
            bytes[2] = 0;
            bytes[3] %= 80;
        }
        if checksum_right && let Some(mut header) = Ipv4Header::read(&bytes) {
            let end = header.header_len().clamp(20, bytes.len());
            header.fill_checksum_with_options(&bytes[20..end]);
            header.write(&mut bytes).unwrap();
        }
        bytes
    })
}

proptest! {
    #[test]
    fn the_fast_check_agrees_with_the_full_one(bytes in any_header()) {
        let full = Ipv4Header::parse(&bytes).is_ok_and(|header| !header.has_options());
        let fast = Ipv4Header::read(&bytes).is_some_and(|h| h.is_plain_and_valid(bytes.len()));
        prop_assert_eq!(fast, full);
    }

    #[test]
    fn a_valid_header_stays_valid_through_updates(
        bytes: [u8; 20], ttl in 1u8.., total_len: u16, tos: u8,
    ) {
        let mut header = Ipv4Header::read(&bytes).unwrap();
        header.version_ihl = 0x45;
        header.ttl = ttl;
        header.fill_checksum();
        prop_assert_eq!(header.checksum.get(), {
            let zeroed = Ipv4Header { checksum: U16Be::ZERO, ..header };
            checksum::checksum(zeroed.as_bytes())
        });
        header.decrement_ttl();
        prop_assert!(header.has_valid_checksum_without_options() && header.ttl == ttl - 1);
        header.update_total_len(total_len);
        prop_assert!(header.has_valid_checksum_without_options());
        header.update_tos(tos);
        prop_assert!(header.has_valid_checksum_without_options());
    }

    #[test]
    fn etherparse_reads_what_we_write(
        src: u32, dst: u32, ttl: u8, id: u16, dscp in 0u8..64, ecn in 0u8..4, payload in 0u16..1400,
        offset in 0u16..0x2000, df: bool, mf: bool,
    ) {
        let bytes = packet(payload.into(), |h| {
            h.src = U32Be::new(src);
            h.dst = U32Be::new(dst);
            h.ttl = ttl;
            h.identification = U16Be::new(id);
            h.set_dscp(dscp);
            h.set_ecn(ecn);
            h.fragment = U16Be::new(u16::from(df) << 14 | u16::from(mf) << 13 | offset);
        });
        let (theirs, rest) = etherparse::Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(rest.len(), usize::from(payload));
        prop_assert_eq!(theirs.calc_header_checksum(), theirs.header_checksum);
        prop_assert_eq!((theirs.source, theirs.destination), (src.to_be_bytes(), dst.to_be_bytes()));
        prop_assert_eq!((theirs.time_to_live, theirs.identification), (ttl, id));
        prop_assert_eq!((theirs.dscp.value(), theirs.ecn.value()), (dscp, ecn));
        prop_assert_eq!((theirs.dont_fragment, theirs.more_fragments), (df, mf));
        prop_assert_eq!(theirs.fragment_offset.value(), offset);
        let mut again = Vec::new();
        theirs.write(&mut again).unwrap();
        prop_assert_eq!(&again[..], &bytes[..20]);
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Ipv4Header::parse(&bytes);
        let _ = Ipv4Options::of_packet(&bytes).count();
    }
}
