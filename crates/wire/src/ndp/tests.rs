use super::*;
use crate::ipv4::IpProtocol;
use proptest::prelude::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const SLLA: NdpOption<'static> = NdpOption::SourceLinkAddress(MAC);

fn ip(src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Header {
    Ipv6Header { hop_limit: 255, ..Ipv6Header::new(src, dst, IpProtocol::ICMPV6) }
}

fn message(fixed: &[u8], options: &[NdpOption<'_>]) -> Vec<u8> {
    let mut bytes = fixed.to_vec();
    for option in options {
        let at = bytes.len();
        bytes.resize(at + option.wire_len(), 0xa5);
        assert_eq!(option.write(&mut bytes[at..]), Some(option.wire_len()));
    }
    bytes
}

fn solicitation(target: Ipv6Addr, options: &[NdpOption<'_>]) -> Vec<u8> {
    message(NeighborMessage::solicitation(target).as_bytes(), options)
}

#[test]
fn an_ordinary_solicitation_is_taken() {
    let group = address::solicited_node(HOST);
    assert_eq!(validate(&ip(LOCAL, group), &solicitation(HOST, &[SLLA])), Ok(()));
    let probe = ip(Ipv6Addr::UNSPECIFIED, group);
    assert_eq!(validate(&probe, &solicitation(HOST, &[])), Ok(()));
}

#[test]
fn each_rule_for_solicitations_has_its_reason() {
    let group = address::solicited_node(HOST);
    let good = solicitation(HOST, &[SLLA]);
    let far = Ipv6Header { hop_limit: 254, ..ip(LOCAL, group) };
    assert_eq!(validate(&far, &good), Err(NdpError::HopLimit));
    let from_nobody = ip(Ipv6Addr::UNSPECIFIED, group);
    assert_eq!(validate(&from_nobody, &good), Err(NdpError::BadSource));
    let to_host = ip(Ipv6Addr::UNSPECIFIED, HOST);
    assert_eq!(validate(&to_host, &solicitation(HOST, &[])), Err(NdpError::BadDestination));
    let near = ip(LOCAL, group);
    assert_eq!(validate(&near, &solicitation(group, &[])), Err(NdpError::BadTarget));
    assert_eq!(validate(&near, &good[..23]), Err(NdpError::TooShort));
    assert_eq!(validate(&near, &good[..25]), Err(NdpError::BadOption));
    let mut coded = good.clone();
    coded[1] = 1;
    assert_eq!(validate(&near, &coded), Err(NdpError::Code));
    let mut zero_length = good;
    zero_length[25] = 0;
    assert_eq!(validate(&near, &zero_length), Err(NdpError::BadOption));
}

#[test]
fn a_solicited_advertisement_is_not_multicast() {
    let flags = neighbor_flags::SOLICITED | neighbor_flags::OVERRIDE;
    let advertisement = NeighborMessage::advertisement(HOST, flags);
    let bytes = message(advertisement.as_bytes(), &[NdpOption::TargetLinkAddress(MAC)]);
    assert_eq!(validate(&ip(LOCAL, HOST), &bytes), Ok(()));
    let to_all = ip(LOCAL, address::ALL_NODES);
    assert_eq!(validate(&to_all, &bytes), Err(NdpError::SolicitedMulticast));
    let options = NdpOptions::of_message(&bytes).unwrap();
    assert_eq!(options.clone().target_link_address(), Some(MAC));
    assert_eq!(options.source_link_address(), None);
}

#[test]
fn routers_speak_from_link_local_addresses() {
    let advertisement = message(RouterAdvertisement::new(1800).as_bytes(), &[SLLA]);
    assert_eq!(validate(&ip(LOCAL, address::ALL_NODES), &advertisement), Ok(()));
    let global = ip(HOST, address::ALL_NODES);
    assert_eq!(validate(&global, &advertisement), Err(NdpError::BadSource));
    let redirect = |target: Ipv6Addr, destination: Ipv6Addr| Redirect {
        icmp: Icmp6Header::new(Icmp6Type::REDIRECT, 0, 0),
        target: U128Be::new(target.to_bits()),
        destination: U128Be::new(destination.to_bits()),
    };
    let check = |redirect: Redirect| validate(&ip(LOCAL, HOST), redirect.as_bytes());
    assert_eq!(check(redirect(LOCAL, HOST)), Ok(()));
    assert_eq!(check(redirect(HOST, HOST)), Ok(()));
    assert_eq!(check(redirect(HOST, LOCAL)), Err(NdpError::BadTarget));
    assert_eq!(check(redirect(LOCAL, address::ALL_NODES)), Err(NdpError::BadDestination));
}

#[test]
fn advertisement_fields_round_trip() {
    let mut advertisement = RouterAdvertisement::new(1800);
    for hop_limit in 0..=255 {
        for (managed, other) in [(false, false), (false, true), (true, false), (true, true)] {
            advertisement.set(hop_limit, managed, other);
            assert_eq!(advertisement.hop_limit(), hop_limit);
            assert_eq!((advertisement.managed(), advertisement.other_config()), (managed, other));
            assert_eq!(advertisement.router_lifetime(), 1800);
        }
    }
}

#[test]
fn an_option_too_long_for_its_length_byte_is_not_written() {
    let data = [0; 2040];
    let mut bytes = [0xa5; 4096];
    assert_eq!(NdpOption::Other { kind: 9, data: &data[..2038] }.write(&mut bytes), Some(2040));
    assert_eq!(NdpOption::Other { kind: 9, data: &data[..2039] }.write(&mut bytes), None);
    assert_eq!(SLLA.write(&mut bytes[..7]), None);
}

fn any_option() -> impl Strategy<Value = (u8, Vec<u8>, u128, u8)> {
    (0u8..6, prop::collection::vec(any::<u8>(), 6..40), any::<u128>(), 0u8..=128)
}

proptest! {
    #[test]
    fn options_round_trip(parts in prop::collection::vec(any_option(), 0..6)) {
        let options: Vec<_> = parts.iter().map(|(kind, data, number, len)| match kind {
            0 => NdpOption::SourceLinkAddress(MacAddr::from_u64(*number as u64)),
            1 => NdpOption::TargetLinkAddress(MacAddr::from_u64(*number as u64)),
            2 => {
                let prefix = Ipv6Prefix::new((*number).into(), *len).unwrap();
                NdpOption::Prefix(PrefixInfo::new(prefix, *number as u32, 5))
            }
            3 => NdpOption::RedirectedHeader(&data[..data.len() / 8 * 8]),
            4 => NdpOption::Mtu(*number as u32),
            // with type and length a whole number of units
            _ => NdpOption::Other { kind: 31, data: &data[..(data.len() + 2) / 8 * 8 - 2] },
        }).collect();
        let bytes = solicitation(HOST, &options);
        let again: Vec<_> = NdpOptions::of_message(&bytes).unwrap().map(Option::unwrap).collect();
        prop_assert_eq!(again, options);
    }

    #[test]
    fn random_messages_never_panic(kind in 130u8..140, mut bytes: Vec<u8>) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let _ = validate(&ip(LOCAL, HOST), &bytes);
    }
}
