//! Messages as the kernel writes them, and bytes that it does not write.

use std::net::IpAddr;

use proptest::prelude::*;
use quiver_wire::MacAddr;

use crate::message::{Envelope, Envelopes, Hop, Malformed, Message, NeighborState, NextHop, Target, kind};

pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

pub fn message(kind: u16, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed, &attributes.concat()].concat();
    let mut bytes = ((body.len() + 16) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0, 0]);
    bytes.extend(7_u32.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
    let mut all = Envelopes::new(bytes);
    let envelope = all.next().unwrap()?;
    assert!(all.next().is_none());
    assert_eq!(envelope.sequence, 7);
    Message::parse(&envelope)
}

/// `struct rtmsg`: family, length, source length, tos, table, protocol, scope, type, flags.
pub const fn rtmsg(family: u8, len: u8, what: u8) -> [u8; 12] {
    [family, len, 0, 0, 254, 12, 0, what, 0, 0, 0, 0]
}

fn route(bytes: &[u8]) -> crate::message::Route {
    match parse(bytes) {
        Ok(Message::Route(route)) => route,
        other => panic!("{other:?}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_route_with_one_next_hop() {
    let attributes = [
        number(15, 1000),
        attribute(1, &[10, 1, 0, 0]),
        number(6, 32),
        attribute(5, &[192, 0, 2, 1]),
        number(4, 3),
        // Metrics, with an attribute that nobody knows: not looked at.
        attribute(0x8000 | 8, &attribute(77, &[1, 2, 3])),
    ];
    let route = route(&message(kind::NEW_ROUTE, &rtmsg(2, 16, 1), &attributes));
    assert_eq!((route.table, route.metric, route.protocol), (1000, 32, 12));
    assert_eq!(route.prefix, "10.1.0.0/16".parse().unwrap());
    let hop = Hop { link: 3, via: Some(ip("192.0.2.1")), weight: 1, encapsulated: false };
    assert_eq!(route.target, Target::Hops([hop].into()));
}

#[test]
fn a_route_with_several_next_hops_of_both_families() {
    let mut first = vec![0, 0, 0, 4, 3, 0, 0, 0];
    first.extend(attribute(5, &[192, 0, 2, 1]));
    first[0] = first.len() as u8;
    let mut second = vec![0, 0, 0, 0, 5, 0, 0, 0];
    let mut v6 = 10_u16.to_ne_bytes().to_vec();
    v6.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    second.extend(attribute(18, &v6));
    second[0] = second.len() as u8;
    let several = attribute(9, &[first, second].concat());
    let route = route(&message(kind::NEW_ROUTE, &rtmsg(2, 0, 1), &[several]));
    let hops = [
        Hop { link: 3, via: Some(ip("192.0.2.1")), weight: 5, encapsulated: false },
        Hop { link: 5, via: Some(ip("fe80::9")), weight: 1, encapsulated: false },
    ];
    assert_eq!(route.target, Target::Hops(hops.into()));
    assert_eq!(route.prefix, "0.0.0.0/0".parse().unwrap());
}

#[test]
fn kinds_of_routes() {
    let of = |what: u8| parse(&message(kind::NEW_ROUTE, &rtmsg(10, 0, what), &[number(4, 1)]));
    for (what, target) in [(6, Target::Blackhole), (7, Target::Unreachable), (8, Target::Prohibit)] {
        assert!(matches!(of(what), Ok(Message::Route(route)) if route.target == target), "{what}");
    }
    // Local, broadcast, multicast, throw.
    for what in [2, 3, 5, 9] {
        assert_eq!(of(what), Ok(Message::Other));
    }
    let object = route(&message(kind::NEW_ROUTE, &rtmsg(2, 0, 1), &[number(30, 42), attribute(5, &[192, 0, 2, 1])]));
    assert_eq!(object.target, Target::Object(42));
    let cloned = [10, 0, 0, 0, 254, 12, 0, 1, 0, 2, 0, 0];
    assert_eq!(parse(&message(kind::NEW_ROUTE, &cloned, &[])), Ok(Message::Other));
}

#[test]
fn next_hop_objects_and_groups() {
    let nhmsg = [2, 0, 12, 0, 0, 0, 0, 0];
    let one = message(kind::NEW_NEXT_HOP, &nhmsg, &[number(1, 5), number(5, 3), attribute(6, &[192, 0, 2, 1])]);
    let hop = Hop { link: 3, via: Some(ip("192.0.2.1")), weight: 1, encapsulated: false };
    assert_eq!(parse(&one), Ok(Message::NextHop(5, NextHop::One(hop))));
    let members = [5_u32.to_ne_bytes(), [3, 0, 0, 0], 6_u32.to_ne_bytes(), [1, 2, 0, 0]].concat();
    // A resilient group says how it is made in an attribute of its own.
    let group = message(kind::NEW_NEXT_HOP, &nhmsg, &[number(1, 9), attribute(2, &members), attribute(0x8000 | 12, &number(1, 8))]);
    assert_eq!(parse(&group), Ok(Message::NextHop(9, NextHop::Group(vec![(5, 4), (6, 0x202)]))));
    let blackhole = message(kind::NEW_NEXT_HOP, &nhmsg, &[number(1, 7), attribute(4, &[])]);
    assert_eq!(parse(&blackhole), Ok(Message::NextHop(7, NextHop::Blackhole)));
    assert_eq!(parse(&message(kind::DEL_NEXT_HOP, &nhmsg, &[number(1, 7)])), Ok(Message::NextHopGone(7)));
    assert_eq!(parse(&message(kind::NEW_NEXT_HOP, &nhmsg, &[])), Err(Malformed), "without a number");
}

#[test]
fn links_and_vrfs() {
    let ifinfomsg = [0, 0, 1, 0, 8, 0, 0, 0, 0x41, 0, 1, 0, 0, 0, 0, 0];
    let data = attribute(2, &number(1, 1000));
    let info = attribute(18, &[attribute(1, b"vrf\0"), data].concat());
    let bytes = message(kind::NEW_LINK, &ifinfomsg, &[attribute(3, b"red\0"), number(4, 65_575), number(10, 4), info]);
    let Ok(Message::Link(link)) = parse(&bytes) else { panic!("no link") };
    assert_eq!((link.index, link.name.as_str(), link.mtu), (8, "red", 65_575));
    assert_eq!((link.up, link.carrier, link.master, link.vrf), (true, true, Some(4), Some(1000)));
    let bridge = [7, 0, 1, 0, 8, 0, 0, 0, 0x41, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(parse(&message(kind::NEW_LINK, &bridge, &[number(4, 1500)])), Ok(Message::Other));
    assert_eq!(parse(&message(kind::DEL_LINK, &bridge, &[])), Ok(Message::Other), "it only leaves the bridge");
    assert_eq!(parse(&message(kind::DEL_LINK, &ifinfomsg, &[])), Ok(Message::LinkGone(8)));
}

#[test]
fn addresses_and_neighbours() {
    let ifaddrmsg = [2, 24, 0, 0, 3, 0, 0, 0];
    let (own, peer) = (attribute(2, &[10, 0, 0, 1]), attribute(1, &[10, 0, 0, 2]));
    let expected = |address: &str, len| Message::Address { link: 3, address: (ip(address), len), is_there: true };
    assert_eq!(
        parse(&message(kind::NEW_ADDRESS, &ifaddrmsg, &[attribute(1, &[10, 0, 0, 1]), own.clone()])),
        Ok(expected("10.0.0.1", 24))
    );
    assert_eq!(
        parse(&message(kind::NEW_ADDRESS, &ifaddrmsg, &[peer, own])),
        Ok(expected("10.0.0.1", 32)),
        "a peer has its own prefix"
    );
    let ndmsg = |state: u16, flags: u8| {
        let [low, high] = state.to_ne_bytes();
        [2, 0, 0, 0, 3, 0, 0, 0, low, high, flags, 1]
    };
    let attributes = [attribute(1, &[10, 0, 0, 9]), attribute(2, &[2, 0, 0, 0, 0, 9])];
    let known = |permanent| Some(NeighborState { mac: MacAddr([2, 0, 0, 0, 0, 9]), permanent });
    for (state, expected) in [(0x02, known(false)), (0x04, known(false)), (0x80, known(true)), (0x20, None), (0x01, None)] {
        let expected = Message::Neighbor { link: 3, address: ip("10.0.0.9"), state: expected };
        assert_eq!(parse(&message(kind::NEW_NEIGHBOR, &ndmsg(state, 0), &attributes)), Ok(expected), "{state:#x}");
    }
    assert_eq!(parse(&message(kind::NEW_NEIGHBOR, &ndmsg(0x80, 0x08), &attributes)), Ok(Message::Other), "a proxy");
    let gone = Message::Neighbor { link: 3, address: ip("10.0.0.9"), state: None };
    assert_eq!(parse(&message(kind::DEL_NEIGHBOR, &ndmsg(0x04, 0), &attributes)), Ok(gone));
}

#[test]
fn bytes_that_are_cut_short_are_malformed() {
    let whole = message(kind::NEW_ROUTE, &rtmsg(2, 16, 1), &[attribute(1, &[10, 1, 0, 0]), number(4, 3)]);
    let envelope = Envelopes::new(&whole).next().unwrap().unwrap();
    for end in 0..envelope.body.len() {
        let cut = Envelope { body: &envelope.body[..end], ..envelope };
        let parsed = Message::parse(&cut);
        // At the end of an attribute it is a message with fewer attributes.
        assert!(parsed == Err(Malformed) || [12, 20].contains(&end), "{end}: {parsed:?}");
    }
    for end in 1..16 {
        assert_eq!(Envelopes::new(&whole[..end]).next(), Some(Err(Malformed)));
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(kinds in 0..128_u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Message::parse(&Envelope { kind: kinds, flags: 0, sequence: 0, body: &body });
        Envelopes::new(&body).for_each(drop);
    }

    #[test]
    fn no_changed_byte_panics(at in any::<prop::sample::Index>(), to in any::<u8>(), which in 0..3_usize) {
        let hop = [&[12, 0, 0, 1, 3, 0, 0, 0][..], &[0; 4]].concat();
        let mut bytes = match which {
            0 => message(kind::NEW_ROUTE, &rtmsg(2, 16, 1), &[attribute(1, &[10, 1, 0, 0]), attribute(9, &hop)]),
            1 => message(kind::NEW_NEXT_HOP, &[2, 0, 0, 0, 0, 0, 0, 0], &[number(1, 9), attribute(2, &[0; 16])]),
            _ => message(kind::NEW_LINK, &[0; 16], &[number(4, 1500), attribute(18, &attribute(1, b"vrf\0"))]),
        };
        let at = at.index(bytes.len());
        bytes[at] = to;
        for envelope in Envelopes::new(&bytes).flatten() {
            let _ = Message::parse(&envelope);
        }
    }
}
