//! Units of others, our own, and all that is none.

use std::net::IpAddr;

use proptest::prelude::*;

use super::write::{Local, dotted, encoded};
use super::*;

/// A TLV.
fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind << 1 | (value.len() >> 8) as u8, value.len() as u8];
    bytes.extend(value);
    bytes
}

/// Chassis, port and time to live.
fn mandatory(ttl: u16) -> Vec<u8> {
    [tlv(1, &[4, 2, 0, 0, 0, 0, 1]), tlv(2, b"\x05eth0"), tlv(3, &ttl.to_be_bytes())].concat()
}

fn unit_of(optional: &[Vec<u8>]) -> Vec<u8> {
    [mandatory(120), optional.concat(), vec![0, 0]].concat()
}

/// What lldpd 1.0.16 of Debian sends from a veth interface, without the Ethernet header.
fn lldpd() -> Vec<u8> {
    unit_of(&[
        tlv(5, b"peer"),
        tlv(6, b"Debian GNU/Linux 12 (bookworm)"),
        tlv(7, &[0, 0x9c, 0, 0x80]),
        tlv(8, &[5, 1, 10, 0, 0, 2, 2, 0, 0, 0, 7, 0]),
        tlv(8, &[17, 2, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 7, 0]),
        tlv(4, b"eth0"),
        tlv(127, &[0, 0x80, 0xc2, 1, 0, 20]),
        tlv(127, &[0, 0x12, 0x0f, 4, 0x05, 0xee]),
        tlv(127, &[0, 0x12, 0x0f, 1, 0, 0, 0, 0, 30]),
    ])
}

#[test]
fn a_unit_of_another_system_is_read() {
    let bytes = lldpd();
    let unit = Unit::parse(&bytes).unwrap();
    assert_eq!((unit.ttl, unit.discarded, unit.unrecognized), (120, 0, 1));
    let info = Info::from(&unit);
    assert_eq!((info.chassis.kind, &*info.chassis.value), (IdentifierKind::MacAddress, "02:00:00:00:00:01"));
    assert_eq!((info.port.kind, &*info.port.value), (IdentifierKind::InterfaceName, "eth0"));
    assert_eq!((info.system_name.as_deref(), info.port_description.as_deref()), (Some("peer"), Some("eth0")));
    assert_eq!(info.capabilities, [Capability::Bridge, Capability::WlanAccessPoint, Capability::Router, Capability::StationOnly]);
    assert_eq!(info.enabled_capabilities, [Capability::StationOnly]);
    let addresses: Vec<(&str, u32)> = info.management.iter().map(|one| (&*one.address, one.interface)).collect();
    assert_eq!(addresses, [("10.0.0.2", 7), ("fe80::2", 7)]);
    assert_eq!((info.port_vlan, info.largest_frame), (Some(20), Some(1518)));
}

#[test]
fn chassis_port_and_time_to_live_are_the_first_three_each_once() {
    let [chassis, port, ttl] = [tlv(1, &[7, b'a']), tlv(2, &[7, b'b']), tlv(3, &[0, 9])];
    let of = |parts: &[&[u8]]| Unit::parse(&parts.concat()).map(|unit| unit.ttl);
    assert_eq!(of(&[&chassis, &port, &ttl]), Ok(9), "the end mark can be missing");
    assert_eq!(of(&[&chassis, &port, &ttl, &[0, 0], &[0xff; 40]]), Ok(9), "padding");
    let wrong: [&[&[u8]]; 9] = [
        &[],
        &[&chassis],
        &[&port, &chassis, &ttl],
        &[&chassis, &ttl, &port],
        &[&chassis, &port, &ttl, &ttl],
        &[&chassis, &port, &ttl, &chassis],
        &[&tlv(1, &[7]), &port, &ttl],
        &[&chassis, &tlv(2, &[7; 257]), &ttl],
        &[&chassis, &port, &tlv(3, &[1])],
    ];
    for (at, parts) in wrong.iter().enumerate() {
        assert_eq!(of(parts), Err(Invalid::Mandatory), "{at}");
    }
    assert!(of(&[&tlv(1, &[7; 256]), &tlv(2, &[7; 256]), &ttl]).is_ok());
}

#[test]
fn a_unit_that_ends_within_a_tlv_is_thrown_away() {
    let bytes = lldpd();
    let mut ends = vec![bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        ends.push(at);
        at += 2 + (usize::from(bytes[at] & 1) << 8 | usize::from(bytes[at + 1]));
    }
    for len in 0..bytes.len() {
        let parsed = Unit::parse(&bytes[..len]);
        let whole = ends.contains(&len) && len >= mandatory(120).len();
        assert_eq!(parsed.is_ok(), whole, "{len} bytes");
    }
    assert_eq!(Unit::parse(&unit_of(&[tlv(0, &[1])])), Err(Invalid::Length), "an end mark is empty");
}

#[test]
fn optional_tlvs_that_are_wrong_or_stand_twice_are_left_out_and_counted() {
    let counts = |optional: &[Vec<u8>]| {
        let bytes = unit_of(optional);
        let unit = Unit::parse(&bytes).unwrap();
        (unit.discarded, unit.unrecognized)
    };
    let management = [5, 1, 10, 0, 0, 2, 2, 0, 0, 0, 7, 0];
    assert_eq!(counts(&[tlv(5, b"a"), tlv(5, b"b")]), (1, 0));
    assert_eq!(counts(&[tlv(6, &[b'x'; 256])]), (1, 0));
    assert_eq!(counts(&[tlv(7, &[0, 1, 0])]), (1, 0));
    assert_eq!(counts(&[tlv(8, &management), tlv(8, &management)]), (0, 0), "there can be several addresses");
    for len in 0..management.len() {
        assert_eq!(counts(&[tlv(8, &management[..len])]), (1, 0), "{len} bytes");
    }
    assert_eq!(counts(&[tlv(8, &[&management[..], &[1]].concat())]), (1, 0), "more than the OID's length says");
    assert_eq!(counts(&[tlv(127, &[0, 0x80, 0xc2])]), (1, 0));
    assert_eq!(counts(&[tlv(127, &[0, 0x80, 0xc2, 1, 0])]), (1, 0));
    assert_eq!(counts(&[tlv(127, &[0, 0x12, 0xbb, 1, 0]), tlv(9, &[]), tlv(126, &[1])]), (0, 3));
    let bytes = unit_of(&[tlv(5, b"first"), tlv(5, b"second")]);
    assert_eq!(Unit::parse(&bytes).unwrap().system_name, Some(&b"first"[..]));
}

#[test]
fn text_of_strangers_has_no_control_characters() {
    let bytes = unit_of(&[tlv(5, b"a\x1b[2J\nb\0\0"), tlv(6, &[0xff, b'x'])]);
    let info = Info::from(&Unit::parse(&bytes).unwrap());
    assert_eq!(info.system_name.as_deref(), Some("a\u{fffd}[2J\u{fffd}b"));
    assert_eq!(info.system_description.as_deref(), Some("\u{fffd}x"));
}

#[test]
fn identifiers_are_shown_as_their_kind_says() {
    let chassis = |subtype, value: &[u8]| Identifier::of_chassis(Id { subtype, value }).to_string();
    assert_eq!(chassis(4, &[2, 0, 0, 0, 0, 1]), "02:00:00:00:00:01");
    assert_eq!(chassis(4, &[2, 0]), "0200");
    assert_eq!(chassis(5, &[1, 192, 0, 2, 1]), "192.0.2.1");
    assert_eq!(chassis(5, &[9, 1]), "family 9 01");
    assert_eq!(chassis(7, b"rack 4"), "rack 4");
    assert_eq!(chassis(0, b"rack"), "7261636b");
    assert_eq!(Identifier::of_port(Id { subtype: 3, value: &[2, 0, 0, 0, 0, 1] }).to_string(), "02:00:00:00:00:01");
}

fn local() -> Local {
    Local {
        chassis: MacAddr([2, 0xfe, 0, 0, 0, 1]),
        port: "host-eth1".into(),
        ttl: 121,
        port_description: Some("to the core".into()),
        system_name: Some("edge1".into()),
        system_description: Some("Quiver".into()),
        capabilities: (0x14, 0x10),
        ip4: Some([192, 0, 2, 1].into()),
        ip6: Some("2001:db8::1".parse().unwrap()),
        mac: MacAddr([2, 0xfe, 0, 0, 0, 2]),
        interface: 3,
        oid: encoded("1.3.6.1.4.1").unwrap(),
        largest_frame: Some(1518),
    }
}

#[test]
fn what_is_written_can_be_read() {
    let src = MacAddr([2, 0xfe, 0, 0, 0, 2]);
    let written = local().frame(src, 1514);
    assert_eq!(written.omitted, 0);
    assert_eq!(written.frame[..14], [1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0xfe, 0, 0, 0, 2, 0x88, 0xcc]);
    let unit = Unit::parse(&written.frame[14..]).unwrap();
    assert_eq!((unit.chassis.subtype, unit.port.subtype, unit.port.value), (4, 5, &b"host-eth1"[..]));
    assert_eq!((unit.capabilities, unit.largest_frame, unit.discarded), (Some((0x14, 0x10)), Some(1518), 0));
    let addresses: Vec<Address<'_>> = unit.management().map(|one| one.address).collect();
    assert_eq!(addresses, [IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap()].map(Address::Ip));
    assert_eq!(Info::from(&unit).management[0].oid.as_deref(), Some("1.3.6.1.4.1"));
    let last = local().last_frame(src);
    let unit = Unit::parse(&last[14..]).unwrap();
    assert_eq!((unit.ttl, unit.system_name), (0, None));

    let bare = Local { ip4: None, ip6: None, ..local() };
    let frame = bare.frame(src, 1514).frame;
    let addresses: Vec<Address<'_>> = Unit::parse(&frame[14..]).unwrap().management().map(|one| one.address).collect();
    assert_eq!(addresses, [Address::Mac(bare.mac)], "one at least");
}

#[test]
fn what_has_no_room_is_left_out() {
    let long = Local { system_name: Some("n".repeat(300)), port_description: Some("é".repeat(200)), ..local() };
    let whole = long.frame(MacAddr::ZERO, 1514);
    let unit = Unit::parse(&whole.frame[14..]).unwrap();
    assert_eq!((whole.omitted, unit.system_name.map(<[u8]>::len)), (0, Some(255)));
    assert_eq!(unit.port_description.map(<[u8]>::len), Some(254), "cut at a character");
    for most in 0..whole.frame.len() {
        let written = long.frame(MacAddr::ZERO, most);
        assert!(written.omitted > 0 && Unit::parse(&written.frame[14..]).is_ok());
        assert!(written.frame.len() <= most.max(54), "{} of {most}", written.frame.len());
    }
}

#[test]
fn oids_are_encoded_as_asn1_has_it() {
    assert_eq!(encoded("1.3.6.1.4.1.9999"), Some(vec![0x2b, 6, 1, 4, 1, 0xce, 0x0f]));
    assert_eq!(encoded("2.999.0"), Some(vec![0x88, 0x37, 0]));
    for text in ["", "1", "3.1", "1.40", "1.x", "1..2", "1.3.4294967296", "2.4294967295"] {
        assert_eq!(encoded(text), None, "{text}");
    }
    assert_eq!(dotted(&[0x88]), None);
    assert_eq!(dotted(&[0x80, 1]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_a_unit_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600), whole in any::<bool>()) {
        let bytes = if whole { [mandatory(7), bytes].concat() } else { bytes };
        if let Ok(unit) = Unit::parse(&bytes) {
            let info = Info::from(&unit);
            prop_assert!(info.management.len() <= MANAGEMENT_MAX);
        }
    }

    #[test]
    fn oids_are_decoded_to_what_they_were(first in 0..=2_u32, second in 0..40_u32, rest in prop::collection::vec(any::<u32>(), 0..8)) {
        let arcs: Vec<String> = [first, second].into_iter().chain(rest).map(|arc| arc.to_string()).collect();
        let text = arcs.join(".");
        prop_assert_eq!(dotted(&encoded(&text).unwrap()), Some(text));
    }
}
