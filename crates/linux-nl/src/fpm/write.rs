//! Routes and next-hop objects as a daemon would send them: what one process saves for the next.
//!
//! The next process reads them as it reads the stream, by the same code and within the same limits.

use std::net::IpAddr;

use super::frame::{FRAME_MOST, HEADER, NETLINK, VERSION};
use crate::message::{AF_INET, AF_INET6, HEADER as MESSAGE_HEADER, Hop, NextHop, Target, kind, nha, rta};
use crate::rib::{PushedRoute, Rib};

/// A frame is closed when it has this many bytes: the longest message, of a route with 256 next hops, still has room.
const FULL: usize = FRAME_MOST / 2;

/// Appends a frame with these messages.
pub fn frame(out: &mut Vec<u8>, messages: &[u8]) {
    let length = (messages.len() + HEADER) as u16;
    out.extend([VERSION, NETLINK]);
    out.extend(length.to_be_bytes());
    out.extend(messages);
}

/// All objects, then all routes, in frames.
pub fn all(rib: &Rib) -> Vec<u8> {
    let (mut out, mut messages) = (Vec::new(), Vec::new());
    let mut add = |write: &mut dyn FnMut(&mut Vec<u8>)| {
        write(&mut messages);
        if messages.len() >= FULL {
            frame(&mut out, &messages);
            messages.clear();
        }
    };
    for (id, object) in rib.all_pushed_objects() {
        add(&mut |out| write_object(out, id, object));
    }
    for route in rib.all_pushed_routes() {
        add(&mut |out| write_route(out, &route));
    }
    if !messages.is_empty() {
        frame(&mut out, &messages);
    }
    out
}

/// Writes something whose length stands in its first bytes, and fills that up to a multiple of four.
fn measured(out: &mut Vec<u8>, length: impl Fn(usize) -> Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    write(out);
    let length = length(out.len() - at);
    out[at..at + length.len()].copy_from_slice(&length);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A message (`struct nlmsghdr`).
fn message(out: &mut Vec<u8>, kind: u16, fixed: &[u8], attributes: impl FnOnce(&mut Vec<u8>)) {
    let length = |n: usize| (n as u32).to_ne_bytes().to_vec();
    measured(out, length, |out| {
        let at = out.len();
        out.resize(at + MESSAGE_HEADER, 0);
        out[at + 4..at + 6].copy_from_slice(&kind.to_ne_bytes());
        out.extend(fixed);
        attributes(out);
    });
}

fn attribute(out: &mut Vec<u8>, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let length = |n: usize| (n as u16).to_ne_bytes().to_vec();
    measured(out, length, |out| {
        out.extend([0; 2]);
        out.extend(kind.to_ne_bytes());
        write(out);
    });
}

fn number(out: &mut Vec<u8>, kind: u16, value: u32) {
    attribute(out, kind, |out| out.extend(value.to_ne_bytes()));
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => out.extend(a.octets()),
        IpAddr::V6(a) => out.extend(a.octets()),
    }
}

const fn family(v6: bool) -> u8 {
    if v6 { AF_INET6 } else { AF_INET }
}

fn write_object(out: &mut Vec<u8>, id: u32, object: &NextHop) {
    let v6 = matches!(object, NextHop::One(Hop { via: Some(IpAddr::V6(_)), .. }));
    // struct nhmsg: family, scope, protocol, reserved, flags.
    message(out, kind::NEW_NEXT_HOP, &[family(v6), 0, 0, 0, 0, 0, 0, 0], |out| {
        number(out, nha::ID, id);
        match object {
            NextHop::One(hop) => {
                number(out, nha::OIF, hop.link);
                if let Some(via) = hop.via {
                    attribute(out, nha::GATEWAY, |out| address(out, via));
                }
                if hop.encapsulated {
                    attribute(out, nha::ENCAP, |_| {});
                }
            }
            NextHop::Blackhole => attribute(out, nha::BLACKHOLE, |_| {}),
            // struct nexthop_grp: object, weight less one, its high byte, padding.
            NextHop::Group(members) => attribute(out, nha::GROUP, |out| {
                for (id, weight) in members {
                    let [high, low] = (weight.max(&1) - 1).to_be_bytes();
                    out.extend(id.to_ne_bytes());
                    out.extend([low, high, 0, 0]);
                }
            }),
            NextHop::Other => attribute(out, nha::FDB, |_| {}),
        }
    });
}

fn write_route(out: &mut Vec<u8>, route: &PushedRoute<'_>) {
    let v6 = route.prefix.addr().is_ipv6();
    let what = match route.target {
        Target::Hops(_) | Target::Object(_) | Target::PushedObject(_) => 1,
        Target::Blackhole => 6,
        Target::Unreachable => 7,
        Target::Prohibit => 8,
    };
    // struct rtmsg: family, length, source length, tos, table, protocol, scope, type, flags.
    let fixed = [family(v6), route.prefix.len(), 0, 0, 0, route.protocol, 0, what, 0, 0, 0, 0];
    message(out, kind::NEW_ROUTE, &fixed, |out| {
        attribute(out, rta::DST, |out| address(out, route.prefix.addr()));
        number(out, rta::TABLE, route.table);
        match route.target {
            Target::Hops(hops) => match &hops[..] {
                [hop] if hop.weight == 1 => {
                    number(out, rta::OIF, hop.link);
                    write_hop(out, hop, v6);
                }
                hops => attribute(out, rta::MULTIPATH, |out| hops.iter().for_each(|hop| write_next_hop(out, hop, v6))),
            },
            Target::Object(id) | Target::PushedObject(id) => number(out, rta::NH_ID, *id),
            Target::Blackhole | Target::Unreachable | Target::Prohibit => {}
        }
    });
}

/// `struct rtnexthop` with its attributes: length, flags, weight less one, link.
fn write_next_hop(out: &mut Vec<u8>, hop: &Hop, v6: bool) {
    let length = |n: usize| (n as u16).to_ne_bytes().to_vec();
    measured(out, length, |out| {
        out.extend([0, 0, 0, hop.weight.clamp(1, 256).wrapping_sub(1) as u8]);
        out.extend(hop.link.to_ne_bytes());
        write_hop(out, hop, v6);
    });
}

fn write_hop(out: &mut Vec<u8>, hop: &Hop, v6: bool) {
    match hop.via {
        Some(via) if via.is_ipv6() == v6 => attribute(out, rta::GATEWAY, |out| address(out, via)),
        // struct rtvia: a next hop of the other family.
        Some(via) => attribute(out, rta::VIA, |out| {
            out.extend(u16::from(family(via.is_ipv6())).to_ne_bytes());
            address(out, via);
        }),
        None => {}
    }
    if hop.encapsulated {
        attribute(out, rta::ENCAP, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quiver_wire::IpPrefix;

    use super::super::{frame::Frames, push};
    use super::*;
    use crate::message::{Envelopes, Message, Route};

    fn read(bytes: &[u8]) -> Rib {
        let (mut rib, mut frames) = (Rib::default(), Frames::default());
        frames.push(bytes);
        while let Some(frame) = frames.next_frame() {
            for envelope in Envelopes::new(frame.unwrap()) {
                push(&mut rib, Message::parse(&envelope.unwrap()).unwrap());
            }
        }
        rib
    }

    fn address_of(v6: bool) -> BoxedStrategy<IpAddr> {
        if v6 {
            any::<std::net::Ipv6Addr>().prop_map(IpAddr::V6).boxed()
        } else {
            any::<std::net::Ipv4Addr>().prop_map(IpAddr::V4).boxed()
        }
    }

    fn hop() -> impl Strategy<Value = Hop> {
        let via = prop_oneof![Just(None), address_of(false).prop_map(Some), address_of(true).prop_map(Some)];
        (1..9_u32, via, 1..=256_u16, prop::bool::weighted(0.1)).prop_map(|(link, via, weight, encapsulated)| Hop {
            link,
            via,
            weight,
            encapsulated,
        })
    }

    fn target() -> impl Strategy<Value = Target> {
        let hops = prop::collection::btree_set(hop(), 1..5).prop_map(|hops| Target::Hops(hops.into_iter().collect()));
        let fixed = prop_oneof![Just(Target::Blackhole), Just(Target::Unreachable), Just(Target::Prohibit)];
        prop_oneof![hops, any::<u32>().prop_map(Target::Object), fixed]
    }

    fn route() -> impl Strategy<Value = Route> {
        let prefix = any::<bool>().prop_flat_map(|v6| (address_of(v6), 0..=if v6 { 128 } else { 32_u8 }));
        (prefix, target(), any::<u8>(), 0..9_u32).prop_map(|((address, len), target, protocol, table)| Route {
            table: 1000 + table,
            prefix: IpPrefix::new(address, len).unwrap().masked(),
            metric: 0,
            protocol,
            tos: 0,
            by_source: false,
            target,
        })
    }

    fn object() -> impl Strategy<Value = NextHop> {
        let one = hop().prop_map(|hop| NextHop::One(Hop { weight: 1, ..hop }));
        let group = prop::collection::vec((any::<u32>(), 1..=65_535_u16), 0..5).prop_map(NextHop::Group);
        prop_oneof![one, group, Just(NextHop::Blackhole), Just(NextHop::Other)]
    }

    fn contents(rib: &Rib) -> (Vec<(u32, NextHop)>, Vec<String>) {
        let mut objects: Vec<_> = rib.all_pushed_objects().map(|(id, object)| (id, object.clone())).collect();
        objects.sort_by_key(|(id, _)| *id);
        let mut routes: Vec<_> = rib.all_pushed_routes().map(|route| format!("{route:?}")).collect();
        routes.sort();
        (objects, routes)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            routes in prop::collection::vec(route(), 0..40),
            objects in prop::collection::btree_map(any::<u32>(), object(), 0..9),
        ) {
            let mut rib = Rib::default();
            objects.into_iter().for_each(|(id, object)| rib.push_object(id, object).unwrap());
            routes.iter().for_each(|route| rib.push(route).unwrap());
            prop_assert_eq!(contents(&read(&all(&rib))), contents(&rib));
        }
    }

    #[test]
    fn as_many_routes_as_do_not_fit_in_a_frame_are_in_several() {
        let mut rib = Rib::default();
        let hops: Vec<Hop> = (1..=256).map(|link| Hop { link, via: None, weight: 2, encapsulated: false }).collect();
        for n in 0..3000_u32 {
            let prefix = IpPrefix::new(IpAddr::from((0x0a00_0000 + n * 256).to_be_bytes()), 24).unwrap();
            let target = if n % 100 == 0 { Target::Hops(hops.clone().into()) } else { Target::Blackhole };
            rib.push(&Route { table: 254, prefix, metric: 0, protocol: 186, tos: 0, by_source: false, target }).unwrap();
        }
        let bytes = all(&rib);
        assert!(bytes.len() > FRAME_MOST);
        assert_eq!(contents(&read(&bytes)), contents(&rib));
    }
}
