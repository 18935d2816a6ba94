use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// A packet whose payload is `rest`, the first of it of type `next`.
fn packet(next: IpProtocol, rest: &[u8]) -> Vec<u8> {
    let mut header = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, next);
    header.payload_len = U16Be::new(rest.len() as u16);
    [header.as_bytes(), rest].concat()
}

fn walk(next: IpProtocol, rest: &[u8]) -> Result<UpperLayer, ExtensionError> {
    let packet = packet(next, rest);
    upper_layer(&Ipv6Header::parse(&packet).unwrap(), &packet)
}

#[test]
fn each_failed_check_has_its_reason() {
    let good = packet(IpProtocol::UDP, &[0; 8]);
    assert!(Ipv6Header::parse(&good).is_ok());
    assert_eq!(Ipv6Header::parse(&good[..39]), Err(Ipv6Error::TooShort));
    assert_eq!(Ipv6Header::parse(&good[..47]), Err(Ipv6Error::Truncated));
    let mut bad = good.clone();
    bad[0] = 0x45;
    assert_eq!(Ipv6Header::parse(&bad), Err(Ipv6Error::BadVersion));
}

#[test]
fn bit_fields_round_trip_all_their_values() {
    let mut header = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::TCP);
    for label in 0..1 << 20 {
        header.set_flow_label(label);
        header.set_traffic_class((label >> 3) as u8);
        assert_eq!((header.flow_label(), header.version()), (label, 6));
        assert_eq!(header.dscp() << 2 | header.ecn(), (label >> 3) as u8);
    }
    header.set_flow_label(u32::MAX);
    assert_eq!((header.flow_label(), header.version()), (0xf_ffff, 6));
    for value in 0..=u16::MAX {
        let fragment = FragmentHeader { offset_flags: U16Be::new(value), ..Default::default() };
        let info = fragment.info();
        let again = FragmentHeader::new(IpProtocol(0), info.offset, info.more, 0);
        assert_eq!(again.offset_flags.get(), value & !6);
        assert_eq!(info.is_atomic(), value & !6 == 0);
    }
}

#[test]
fn without_extension_headers_the_upper_layer_is_at_40() {
    let upper = walk(IpProtocol::UDP, &[0; 8]).unwrap();
    assert_eq!((upper.protocol, upper.offset, upper.pointer), (IpProtocol::UDP, 40, 6));
    assert_eq!(upper.fragment, None);
    assert!(!upper.hop_by_hop);
}

#[test]
fn the_recommended_order_is_walked_to_its_end() {
    let mut rest = vec![43, 0, 1, 4, 0, 0, 0, 0]; // hop-by-hop
    rest.extend([44, 2, 4, 1, 0, 0, 0, 0]); // routing, 24 bytes, one segment left
    rest.extend([0; 16]);
    rest.extend([51, 0, 0, 0, 0, 0, 0, 7]); // first fragment, the only one
    rest.extend([60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]); // AH counts in 4 bytes
    rest.extend([17, 0, 1, 4, 0, 0, 0, 0]); // destination options
    let l4 = rest.len();
    rest.extend([0; 8]);
    let upper = walk(IpProtocol::HOP_BY_HOP, &rest).unwrap();
    assert_eq!(
        upper,
        UpperLayer {
            protocol: IpProtocol::UDP,
            offset: 40 + l4 as u16,
            pointer: 40 + l4 as u16 - 8,
            fragment: Some(FragmentInfo { identification: 7, offset: 0, more: false }),
            fragment_offset: 72,
            routing_offset: 48,
            hop_by_hop: true,
        }
    );
}

#[test]
fn a_later_fragment_ends_the_walk_with_what_it_is_a_part_of() {
    // the data would read as a hop-by-hop header
    let upper = walk(IpProtocol::FRAGMENT, &[60, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0]).unwrap();
    assert_eq!((upper.protocol, upper.offset), (IpProtocol::DESTINATION_OPTIONS, 48));
    let info = FragmentInfo { identification: 1, offset: 8, more: true };
    assert_eq!(upper.fragment, Some(info));
}

#[test]
fn esp_and_no_next_header_end_the_walk() {
    for last in [IpProtocol::ESP, IpProtocol::NO_NEXT_HEADER, IpProtocol(200)] {
        let upper = walk(IpProtocol::DESTINATION_OPTIONS, &[last.0, 0, 1, 4, 0, 0, 0, 0]).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.pointer), (last, 48, 40));
    }
}

#[test]
fn malformed_chains_name_the_place() {
    let truncated = walk(IpProtocol::ROUTING, &[17, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(truncated, Err(ExtensionError::Truncated(40)));
    assert_eq!(walk(IpProtocol::FRAGMENT, &[]), Err(ExtensionError::Truncated(40)));
    let late = walk(IpProtocol::DESTINATION_OPTIONS, &[0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(late, Err(ExtensionError::HopByHopNotFirst(40)));
    let chain = |n: usize| walk(IpProtocol::DESTINATION_OPTIONS, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(n));
    let too_many = Err(ExtensionError::TooMany(40 + 8 * MAX_EXTENSIONS as u16));
    assert_eq!(chain(MAX_EXTENSIONS + 1), too_many);
    assert_eq!(chain(MAX_EXTENSIONS), too_many);
    assert_eq!(chain(2), Err(ExtensionError::Truncated(56)));
}

#[test]
fn bytes_past_the_payload_length_are_not_walked() {
    let mut packet = packet(IpProtocol::DESTINATION_OPTIONS, &[17, 1, 1, 4, 0, 0, 0, 0]);
    packet.extend([0; 64]);
    let header = Ipv6Header::parse(&packet).unwrap();
    assert_eq!(upper_layer(&header, &packet), Err(ExtensionError::Truncated(40)));
}

/// Chains of plausible headers more often than chance would have it.
fn any_chain() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let kind = prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(51), Just(17), any::<u8>()];
    let extension = (kind.clone(), 0u8..3, any::<[u8; 6]>(), 0usize..40).prop_map(|(next, len, rest, size)| {
        let mut bytes = vec![next, len];
        bytes.extend(rest);
        bytes.resize(size.max(8), 0);
        bytes
    });
    (kind, prop::collection::vec(extension, 0..12).prop_map(|parts| parts.concat()))
}

proptest! {
    #[test]
    fn the_walk_stays_within_the_packet((next, rest) in any_chain()) {
        let packet = packet(IpProtocol(next), &rest);
        let header = Ipv6Header::parse(&packet).unwrap();
        if let Ok(upper) = upper_layer(&header, &packet) {
            prop_assert!(usize::from(upper.offset) <= packet.len());
            prop_assert!(upper.pointer < upper.offset);
            prop_assert_eq!(packet[usize::from(upper.pointer)], upper.protocol.0);
        }
        prop_assert!(Extensions::new(&header, &packet).count() <= MAX_EXTENSIONS + 1);
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        if let Some(header) = Ipv6Header::read(&bytes) {
            let _ = upper_layer(&header, &bytes);
        }
        let _ = upper_layer(&Ipv6Header::default(), &bytes);
    }

    #[test]
    fn etherparse_walks_to_the_same_place((next, rest) in any_chain()) {
        // etherparse knows more headers and no limit: only chains that both understand are compared
        let packet = packet(IpProtocol(next), &rest);
        let header = Ipv6Header::parse(&packet).unwrap();
        let ours = upper_layer(&header, &packet);
        let theirs = etherparse::Ipv6Slice::from_slice(&packet);
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            let payload = theirs.payload();
            if ![135, 139, 140, 253, 254].contains(&ours.protocol.0) && ours.fragment.is_none_or(|f| f.offset == 0) {
                prop_assert_eq!(payload.ip_number.0, ours.protocol.0);
                prop_assert_eq!(packet.len() - payload.payload.len(), usize::from(ours.offset));
            }
        }
    }

    #[test]
    fn etherparse_reads_what_we_write(
        class: u8, label in 0u32..1 << 20, hop_limit: u8, next: u8, src: u128, dst: u128, len: u16,
    ) {
        let mut ours = Ipv6Header::new(src.into(), dst.into(), IpProtocol(next));
        ours.set_traffic_class(class);
        ours.set_flow_label(label);
        ours.hop_limit = hop_limit;
        ours.payload_len = U16Be::new(len);
        let (theirs, _) = etherparse::Ipv6Header::from_slice(ours.as_bytes()).unwrap();
        prop_assert_eq!((theirs.traffic_class, theirs.flow_label.value()), (class, label));
        prop_assert_eq!((theirs.hop_limit, theirs.next_header.0, theirs.payload_length), (hop_limit, next, len));
        prop_assert_eq!((theirs.source, theirs.destination), (src.to_be_bytes(), dst.to_be_bytes()));
        let again = theirs.to_bytes();
        prop_assert_eq!(Ipv6Header::read(&again), Some(ours));
    }
}
