use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::build::Packet;
use quiver_wire::ndp::{NdpOption, PrefixInfo, RouterAdvertisement};
use quiver_wire::{Header, Ipv6Prefix, MacAddr};

use super::*;
use crate::fib::{Path, Source};
use crate::nd::DadConfig;
use crate::neighbor::state::SECOND;
use crate::ops::testing::{error, run as command};
use crate::restart::Round;
use crate::testing::{Harness, host_mac, router_mac};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
/// Of `x0`'s MAC address in 2001:db8:1::/64.
const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0xfe, 0xff, 0xfe00, 0);
const HOUR: u64 = 3600 * SECOND;

fn bed() -> (Harness, IfIndex) {
    let mut h = Harness::new();
    h.router.set_dad_config(DadConfig { transmits: 0, ..DadConfig::default() });
    let x = h.interface(0);
    (h, x)
}

fn info(prefix: &str, valid: u32, preferred: u32) -> PrefixInfo {
    PrefixInfo::new(prefix.parse::<Ipv6Prefix>().unwrap(), valid, preferred)
}

/// What an advertisement with this lifetime and these prefixes says, as the node tells it.
fn advert(x: IfIndex, flags: u32, lifetime: u16, prefixes: &[PrefixInfo]) -> Advert {
    let mut message = RouterAdvertisement::new(lifetime);
    message.icmp.rest = (message.icmp.rest.get() | flags << 16).into();
    let mut packet =
        Packet::ethernet(host_mac(0), MacAddr([0x33, 0x33, 0, 0, 0, 1])).ipv6(ROUTER, "ff02::1".parse::<Ipv6Addr>().unwrap());
    packet = packet.router_advertisement(message);
    for prefix in prefixes {
        packet = packet.ndp_option(NdpOption::Prefix(*prefix));
    }
    let bytes = packet.build();
    let ip = quiver_wire::ipv6::Ipv6Header::read(&bytes[14..]).unwrap();
    Advert::read(x, &ip, &bytes[54..]).unwrap()
}

fn hear(h: &mut Harness, x: IfIndex, now: u64, lifetime: u16, prefixes: &[PrefixInfo]) {
    let advert = advert(x, 0, lifetime, prefixes);
    solicit::heard(&mut h.router, &advert);
    autoconfig::heard(&mut h.router, &advert, now);
}

fn default_paths(h: &Harness) -> Vec<Path> {
    let route = h.router.route(0, "::/0".parse().unwrap()).unwrap();
    let sources = route.into_iter().flat_map(|route| route.sources);
    sources.filter(|s| s.source == Source::Autoconfig).flat_map(|s| s.paths.to_vec()).collect()
}

fn has(h: &Harness, x: IfIndex, address: Ipv6Addr) -> bool {
    h.router.interfaces.get(x).unwrap().addresses.iter().any(|(a, _)| *a == IpAddr::V6(address))
}

fn now(h: &Harness) -> u64 {
    h.router.graph.clock().timer_now()
}

#[test]
fn an_advertisement_gives_an_address_and_a_default_route_until_their_lifetimes_end() {
    let (mut h, x) = bed();
    command(&mut h.router, "ip6 nd address autoconfig x0 default-route");
    let now = now(&h);
    hear(&mut h, x, now, 1800, &[info("2001:db8:1::/64", 100, 50), info("2001:db8:2::/63", 100, 50), info("fe80::/64", 100, 50)]);
    assert!(has(&h, x, ADDRESS) && h.router.is_autoconfigured(x, ADDRESS.into()));
    assert_eq!(h.router.learned_addresses(x).len(), 1, "no other length than 64, no link-local one");
    let path = Path { preference: 1, ..Path::neighbor(x, ROUTER.into()) };
    assert_eq!(default_paths(&h), [path]);
    assert_eq!(autoconfig::run(&mut h.router, now), now + 100 * SECOND);
    let text = command(&mut h.router, "show ip6 nd autoconfig x0");
    assert!(text.starts_with("x0: addresses and default route\n  address 2001:db8:1:0:fe:ff:fe00:0/64, valid "), "{text}");
    assert!(text.contains("  router fe80::9, table 0, preference medium, lifetime 1"), "{text}");
    autoconfig::run(&mut h.router, now + 100 * SECOND);
    assert!(!has(&h, x, ADDRESS) && h.router.learned_addresses(x).is_empty());
    assert_eq!(default_paths(&h), [path]);
    autoconfig::run(&mut h.router, now + 1800 * SECOND);
    assert!(default_paths(&h).is_empty());
    // A router says that it is none any more.
    hear(&mut h, x, now, 1800, &[]);
    hear(&mut h, x, now, 0, &[]);
    assert!(default_paths(&h).is_empty());
    assert!(!has(&h, x, ADDRESS), "none without its prefix");
}

#[test]
fn without_configuration_and_without_the_flag_nothing_is_taken() {
    let (mut h, x) = bed();
    h.router.enable_ip6(x).unwrap();
    let now = now(&h);
    let prefix = info("2001:db8:1::/64", 100, 50);
    hear(&mut h, x, now, 1800, &[prefix]);
    assert!(!has(&h, x, ADDRESS) && default_paths(&h).is_empty());
    command(&mut h.router, "ip6 nd address autoconfig x0");
    hear(&mut h, x, now, 1800, &[PrefixInfo { flags: PrefixInfo::ON_LINK, ..prefix }, info("2001:db8:3::/64", 50, 100)]);
    assert!(h.router.learned_addresses(x).is_empty(), "not for addresses, or preferred for longer than valid");
    assert!(default_paths(&h).is_empty(), "addresses alone");
    // A prefix that is not on the link.
    hear(&mut h, x, now, 1800, &[PrefixInfo { flags: PrefixInfo::AUTONOMOUS, ..prefix }]);
    assert_eq!(h.router.learned_addresses(x)[0].1.len, 128);
    command(&mut h.router, "ip6 nd address autoconfig x0 disable");
    assert!(!has(&h, x, ADDRESS) && h.router.autoconfig(x).is_none());
    assert!(error(&mut h.router, "ip6 nd address autoconfig x9").contains("x9"));
}

#[test]
fn a_lifetime_of_less_than_two_hours_is_not_shortened() {
    let (mut h, x) = bed();
    h.router.set_autoconfig(x, Some(AutoconfigConfig::default())).unwrap();
    let now = now(&h);
    let valid = |h: &mut Harness, at: u64, valid: u32| {
        hear(h, x, now + at, 0, &[info("2001:db8:1::/64", valid, valid.min(60))]);
        let learned = h.router.learned_addresses(x)[0].1;
        (learned.valid - now, learned.preferred - now)
    };
    assert_eq!(valid(&mut h, 0, 36_000), (10 * HOUR, 60 * SECOND));
    assert_eq!(valid(&mut h, 0, 10_800), (3 * HOUR, 60 * SECOND), "more than two hours count as they are");
    assert_eq!(valid(&mut h, 0, 60), (2 * HOUR, 60 * SECOND), "less make it two hours");
    assert_eq!(valid(&mut h, HOUR, 60), (2 * HOUR, HOUR + 60 * SECOND), "what is left is not made less");
    assert_eq!(valid(&mut h, HOUR, 0), (2 * HOUR, HOUR), "but deprecated at once");
    assert_eq!(valid(&mut h, HOUR, 3601), (HOUR + 3601 * SECOND, HOUR + 60 * SECOND), "nor kept from becoming more");
    hear(&mut h, x, now, 0, &[info("2001:db8:1::/64", u32::MAX, u32::MAX)]);
    assert_eq!(h.router.learned_addresses(x)[0].1.valid, u64::MAX);
    autoconfig::run(&mut h.router, now + 1_000_000 * HOUR);
    assert!(has(&h, x, ADDRESS));
}

#[test]
fn a_deprecated_address_is_a_source_only_where_there_is_no_other() {
    let (mut h, x) = bed();
    h.router.set_autoconfig(x, Some(AutoconfigConfig::default())).unwrap();
    let now = now(&h);
    hear(&mut h, x, now, 0, &[info("2001:db8:1::/64", 1000, 0)]);
    let source = |h: &Harness| h.router.address_towards(x, "2001:db8:1::5".parse().unwrap()).unwrap();
    assert!(h.router.is_deprecated(x, ADDRESS.into()));
    assert_eq!(source(&h), IpAddr::V6(ADDRESS));
    let other: IpAddr = "2001:db8:1::1".parse().unwrap();
    h.router.add_address(x, other, 64).unwrap();
    assert_eq!(source(&h), other);
    assert_eq!(h.router.interface_address(x, crate::ip::FamilyId::V6).unwrap().0, other);
}

#[test]
fn routers_share_the_default_route_by_preference_and_go_with_their_interface() {
    let (mut h, x) = bed();
    let y = h.interface(1);
    for interface in [x, y] {
        h.router.set_autoconfig(interface, Some(AutoconfigConfig { default_route: true })).unwrap();
    }
    let now = now(&h);
    for (interface, flags) in [(x, 0x08), (y, 0x18)] {
        let advert = advert(interface, flags, 100, &[]);
        autoconfig::heard(&mut h.router, &advert, now);
    }
    let preferences = |h: &Harness| default_paths(h).iter().map(|p| (p.interface(), p.preference)).collect::<Vec<_>>();
    assert_eq!(preferences(&h), [(Some(x), 0), (Some(y), 2)]);
    h.router.delete_interface(x).unwrap();
    assert_eq!(preferences(&h), [(Some(y), 2)]);
    h.router.set_autoconfig(y, Some(AutoconfigConfig { default_route: false })).unwrap();
    assert!(default_paths(&h).is_empty());
}

#[test]
fn solicitations_are_repeated_until_a_router_answers() {
    let (mut h, x) = bed();
    assert!(matches!(h.router.solicit_routers(x, Some(SolicitConfig::default())), Err(HostError::NoIp6(_))));
    h.router.enable_ip6(x).unwrap();
    h.run();
    let sent = |h: &mut Harness, at: u64| {
        solicit::run(&mut h.router, at);
        h.run().into_iter().filter(|(_, frame)| frame.get(54) == Some(&133)).map(|(_, frame)| frame).collect::<Vec<_>>()
    };
    h.router.solicit_routers(x, Some(SolicitConfig { count: 2, ..SolicitConfig::default() })).unwrap();
    let start = now(&h);
    let frames = sent(&mut h, start);
    let [frame] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((&frame[..6], &frame[6..12]), (&[0x33, 0x33, 0, 0, 0, 2][..], &router_mac(0).0[..]));
    assert_eq!(frame[38..54], "ff02::2".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(frame[62..70], [[1, 1].as_slice(), &router_mac(0).0].concat()[..], "with our MAC address");
    assert!(sent(&mut h, start + SECOND / 2).is_empty());
    assert_eq!(sent(&mut h, start + 2 * SECOND).len(), 1);
    assert!(!h.router.solicits_routers(x), "two were asked for");
    h.router.solicit_routers(x, Some(SolicitConfig::default())).unwrap();
    let start = now(&h);
    assert_eq!(sent(&mut h, start).len(), 1);
    hear(&mut h, x, start, 0, &[]);
    assert!(h.router.solicits_routers(x), "one that is no router for us is no answer");
    hear(&mut h, x, start, 1, &[]);
    assert!(!h.router.solicits_routers(x));
    h.router.solicit_routers(x, Some(SolicitConfig::default())).unwrap();
    h.router.solicit_routers(x, None).unwrap();
    let later = now(&h) + HOUR;
    assert!(sent(&mut h, later).is_empty());
}

#[test]
fn frames_reach_the_process_and_what_is_learned_outlives_it() {
    let (mut h, x) = bed();
    h.router.set_autoconfig(x, Some(AutoconfigConfig { default_route: true })).unwrap();
    let packet =
        Packet::ethernet(host_mac(0), MacAddr([0x33, 0x33, 0, 0, 0, 1])).ipv6(ROUTER, "ff02::1".parse::<Ipv6Addr>().unwrap());
    let packet = packet.router_advertisement(RouterAdvertisement::new(1800)).ndp_option(NdpOption::SourceLinkAddress(host_mac(0)));
    let frame = packet.ndp_option(NdpOption::Prefix(info("2001:db8:1::/64", 3000, 2000))).build();
    h.inject(x, &frame);
    h.run();
    let now = now(&h);
    h.router.run_processes(now);
    assert!(has(&h, x, ADDRESS), "by the process");
    assert!(h.router.neighbor(x, ROUTER.into()).is_some(), "the router is a neighbour");
    let last = h.router.snapshot(Round::Last);
    let (mut new, y) = bed();
    new.router.set_autoconfig(y, Some(AutoconfigConfig { default_route: true })).unwrap();
    new.router.restore(&last, Round::Last).unwrap();
    assert_eq!(new.router.learned_addresses(y), h.router.learned_addresses(x));
    assert_eq!(new.router.learned_routers(y), h.router.learned_routers(x));
    assert!(has(&new, y, ADDRESS) && default_paths(&new).len() == 1);
    // The other one has given it up meanwhile.
    h.router.remove_address(x, ADDRESS.into(), 64).unwrap();
    let last = h.router.snapshot(Round::Last);
    new.router.restore(&last, Round::Last).unwrap();
    assert!(!has(&new, y, ADDRESS));
}
