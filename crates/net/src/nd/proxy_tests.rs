use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;
use quiver_wire::build::Packet;
use quiver_wire::ipv6::address::solicited_node;
use quiver_wire::ndp::NdpOption;

use crate::ip::FamilyId;
use crate::nd::DadConfig;
use crate::ops::testing::{error, run};
use crate::testing::{Harness, host_mac, router_mac};

const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const NEAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3);

/// `x0` with the prefix, `x1` with a link-local address alone.
fn bed() -> (Harness, IfIndex, IfIndex) {
    let mut h = Harness::new();
    h.router.set_dad_config(DadConfig { transmits: 0, ..DadConfig::default() });
    let (x, y) = (h.interface(0), h.interface(1));
    h.router.add_address(x, OWN.into(), 64).unwrap();
    h.router.enable_ip6(y).unwrap();
    h.run();
    (h, x, y)
}

/// The answer to a solicitation: to whom, the target, its flags.
fn asked(h: &mut Harness, on: IfIndex, n: u8, source: Ipv6Addr, target: Ipv6Addr) -> Option<(MacAddr, Ipv6Addr, u8)> {
    let group = solicited_node(target);
    let packet =
        Packet::ethernet(host_mac(n), MacAddr::from_ipv6_multicast(group)).ipv6(source, group).neighbor_solicitation(target);
    let packet = if source.is_unspecified() { packet } else { packet.ndp_option(NdpOption::SourceLinkAddress(host_mac(n))) };
    let frames = h.exchange(on, &packet.build());
    let answer = frames.into_iter().find(|(interface, frame)| *interface == on && frame.get(54) == Some(&136))?.1;
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&answer[at..at + 16]).unwrap());
    assert_eq!((address(22), &answer[80..86]), (address(62), &router_mac(n).0[..]), "from the target, with our MAC address");
    Some((MacAddr(answer[..6].try_into().unwrap()), address(62), answer[58]))
}

#[test]
fn a_host_behind_another_interface_is_answered_for_and_routed_to() {
    let (mut h, x, y) = bed();
    assert_eq!(asked(&mut h, y, 1, FAR, OWN), None, "an address of another link");
    assert_eq!(asked(&mut h, x, 0, NEAR, FAR), None);
    run(&mut h.router, "set ip6 nd proxy x1 2001:db8::3");
    assert_eq!(run(&mut h.router, "show ip6 nd proxy"), "2001:db8::3 behind x1\n");
    // Router and solicited, not override: what the host says itself is worth more.
    assert_eq!(asked(&mut h, x, 0, NEAR, FAR), Some((host_mac(0), FAR, 0xc0)));
    assert_eq!(asked(&mut h, y, 1, FAR, OWN), Some((host_mac(1), OWN, 0xc0)), "this router stands for the link there");
    assert_eq!(asked(&mut h, y, 1, FAR, FAR.to_bits().wrapping_add(9).into()), None, "but not for what it does not have");
    let now = h.router.graph.clock().timer_now();
    h.router.run_processes(now);
    assert!(h.router.neighbor(y, FAR.into()).is_some());
    let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv6(NEAR, FAR).udp(1, 2).payload_len(8).build();
    let out = h.exchange(x, &packet);
    assert!(out.iter().any(|(interface, frame)| *interface == y && frame[..6] == host_mac(1).0), "{out:?}");
    // Duplicate detection: of the host itself, and of another one.
    assert_eq!(asked(&mut h, y, 1, Ipv6Addr::UNSPECIFIED, FAR), None);
    let all = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(asked(&mut h, x, 0, Ipv6Addr::UNSPECIFIED, FAR), Some((all, FAR, 0x80)));
    let groups =
        |h: &Harness, on| h.router.groups(on, FamilyId::V6).into_iter().any(|g| g.group == IpAddr::V6(solicited_node(FAR)));
    assert_eq!([groups(&h, x), groups(&h, y)], [true, false], "its solicitations are listened to on the other links");
    run(&mut h.router, "set ip6 nd proxy x1 del 2001:db8::3");
    assert!(!groups(&h, x) && h.router.neighbor(y, FAR.into()).is_none());
    assert_eq!([asked(&mut h, x, 0, NEAR, FAR), asked(&mut h, y, 1, FAR, OWN)], [None, None]);
    h.assert_buffers_held(0);
}

#[test]
fn a_host_is_behind_one_interface_and_goes_with_it() {
    let (mut h, _, y) = bed();
    h.router.set_nd_proxy(y, FAR, true).unwrap();
    h.router.set_nd_proxy(y, FAR, true).unwrap();
    for (line, expected) in [
        ("set ip6 nd proxy x0 2001:db8::3", "2001:db8::3 is answered for already, behind x1"),
        ("set ip6 nd proxy x0 del 2001:db8::3", "2001:db8::3 behind x0 is not answered for"),
        ("set ip6 nd proxy x1 fe80::3", "a global unicast address is needed"),
        ("set ip6 nd proxy x1 ff02::1", "a global unicast address is needed"),
    ] {
        let text = error(&mut h.router, line);
        assert!(text.contains(expected), "{line}: {text}");
    }
    h.router.delete_interface(y).unwrap();
    assert!(h.router.nd_proxies().is_empty());
    assert!(h.router.route(0, "2001:db8::3/128".parse().unwrap()).unwrap().is_none());
}

#[test]
fn a_mirror_answers_a_host_that_has_our_own_address() {
    let (mut h, x, y) = bed();
    h.router.set_unnumbered(y, Some(x)).unwrap();
    assert_eq!(asked(&mut h, y, 1, OWN, FAR), None, "a conflict");
    run(&mut h.router, "set interface ip6-nd proxy x1 enable");
    assert_eq!(run(&mut h.router, "show ip6 nd proxy"), "all on x1\n");
    assert_eq!(asked(&mut h, y, 1, OWN, FAR), Some((host_mac(1), FAR, 0xc0)));
    assert_eq!(asked(&mut h, y, 1, Ipv6Addr::UNSPECIFIED, FAR), None, "whoever takes an address there may have it");
    run(&mut h.router, "set interface ip6-nd proxy x1 disable");
    assert_eq!(asked(&mut h, y, 1, OWN, FAR), None);
}
