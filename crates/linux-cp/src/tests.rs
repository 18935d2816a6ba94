//! Packets of a pair, in a router with made-up interfaces: `x1` is the router's interface, `x2` stands for the TAP.

mod api;

use quiver_command::grammar::IfRef;
use quiver_command::operation::{Operation as _, Outcome, run_to_end};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::interface::{SubMatch, VlanId};
use quiver_net::ops::testing::{configuration, execute, registry};
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::MacAddr;
use quiver_wire::ipv4::IpProtocol;

use crate::control::testing::{begin, pair_with};
use crate::ops::CreatePair;

const GROUP: MacAddr = MacAddr([0x01, 0, 0x5e, 0, 0, 5]);

struct Scene {
    h: Harness,
    phy: IfIndex,
    host: IfIndex,
}

/// `x1` with 10.0.0.1/24 and a pair.
fn scene() -> Scene {
    let mut h = Harness::new();
    begin(&mut h.router);
    let (phy, host) = (h.interface(1), h.interface(2));
    h.router.add_address(phy, "10.0.0.1".parse().unwrap(), 24).unwrap();
    pair_with(&mut h.router, phy, host).unwrap();
    Scene { h, phy, host }
}

fn ethernet(dst: MacAddr, ether_type: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = dst.0.to_vec();
    bytes.extend(host_mac(1).0);
    bytes.extend(ether_type.to_be_bytes());
    bytes.extend(content);
    bytes
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    bytes.extend(0x8100_u16.to_be_bytes());
    bytes.extend(vlan.to_be_bytes());
    bytes.extend(&frame[12..]);
    bytes
}

/// An IPv4 packet with a right header checksum.
fn ip4(protocol: IpProtocol, dst: [u8; 4], content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 1, protocol.0, 0, 0, 10, 0, 0, 9];
    bytes.extend(dst);
    bytes[2..4].copy_from_slice(&((20 + content.len()) as u16).to_be_bytes());
    let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
    let folded = (words & 0xffff) + (words >> 16);
    bytes[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    bytes.extend(content);
    bytes
}

fn arp(operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, operation];
    bytes.extend(host_mac(1).0);
    bytes.extend(sender);
    bytes.extend(if operation == 1 { [0; 6] } else { router_mac(1).0 });
    bytes.extend(target);
    bytes
}

#[test]
fn packets_for_the_router_go_to_linux_with_their_ethernet_header() {
    let Scene { mut h, phy, host } = scene();
    let tcp = ip4(IpProtocol::TCP, [10, 0, 0, 1], &[0xa5; 40]);
    let echo = ip4(IpProtocol::ICMP, [10, 0, 0, 1], &[8, 0, 0, 0, 0, 1, 0, 1]);
    let mut fragment = ip4(IpProtocol::UDP, [10, 0, 0, 1], &[0; 16]);
    // More fragments; the header's sum with it.
    fragment[6] |= 0x20;
    let sum = u16::from_be_bytes([fragment[10], fragment[11]]) - 0x2000;
    fragment[10..12].copy_from_slice(&sum.to_be_bytes());
    for packet in [tcp, echo, fragment] {
        let frame = ethernet(router_mac(1), 0x0800, &packet);
        assert_eq!(h.exchange(phy, &frame), [(host, frame.clone())]);
    }
    let hello = ethernet(GROUP, 0x0800, &ip4(IpProtocol(89), [224, 0, 0, 5], &[2, 1, 0, 44]));
    assert_eq!(h.exchange(phy, &hello), [(host, hello.clone())]);
    h.assert_buffers_held(0);
}

#[test]
fn what_a_node_listens_to_stays_in_the_router() {
    let Scene { mut h, phy, host } = scene();
    let bfd = ethernet(router_mac(1), 0x0800, &ip4(IpProtocol::UDP, [10, 0, 0, 1], &[0, 9, 0x0e, 0xc8, 0, 8, 0, 0]));
    assert_eq!(h.exchange(phy, &bfd), [(host, bfd.clone())]);
    h.router.register_udp_port(quiver_net::ip::FamilyId::V4, 3784, "null-node").unwrap();
    assert!(h.exchange(phy, &bfd).is_empty());
    assert_eq!(h.count("null-node", "blackholed packets"), 1);
    // As long as the router may have asked, an answer is for both.
    let answer = ethernet(router_mac(1), 0x0800, &ip4(IpProtocol::ICMP, [10, 0, 0, 1], &[0, 0, 0xff, 0xfd, 0, 1, 0, 1]));
    assert_eq!(h.exchange(phy, &answer), [(host, answer.clone())]);
    assert_eq!(h.count("linux-cp-punt-ip4", "packets copied to the host"), 1);
    h.assert_buffers_held(0);
}

#[test]
fn arp_messages_reach_linux_but_for_requests_that_the_router_answers() {
    let Scene { mut h, phy, host } = scene();
    let reply = ethernet(router_mac(1), 0x0806, &arp(2, [10, 0, 0, 9], [10, 0, 0, 1]));
    assert_eq!(h.exchange(phy, &reply), [(host, reply.clone())]);
    let other = ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, [10, 0, 0, 9], [10, 0, 0, 77]));
    assert_eq!(h.exchange(phy, &other), [(host, other.clone())]);
    let request = ethernet(MacAddr::BROADCAST, 0x0806, &arp(1, [10, 0, 0, 9], [10, 0, 0, 1]));
    let answered = h.exchange(phy, &request);
    assert_eq!(answered.len(), 1, "one answer, and no copy");
    assert_eq!(answered[0].0, phy);
    h.assert_buffers_held(0);
}

#[test]
fn frames_of_other_protocols_reach_linux_where_they_are_wanted() {
    let Scene { mut h, phy, host } = scene();
    let isis = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x14]), 47, &[0xfe, 0xfe, 0x03, 0x83, 27, 1, 0]);
    assert_eq!(h.exchange(phy, &isis), [(host, isis.clone())]);
    let lldp = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]), 0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 9]);
    assert_eq!(h.exchange(phy, &lldp), [(host, lldp.clone())]);
    let slow = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, 2]), 0x8809, &[1; 50]);
    assert!(h.exchange(phy, &slow).is_empty());
    assert_eq!(h.count("linux-cp-punt-ethernet", "ethernet type not enabled"), 1);
    crate::control::enable_type(&mut h.router, 0x8809).unwrap();
    assert_eq!(h.exchange(phy, &slow), [(host, slow.clone())]);
    for own in [0x0800, 0x86dd, 0x0806, 0x8100, 0x05ff] {
        assert!(crate::control::enable_type(&mut h.router, own).is_err(), "{own:#06x}");
    }
    h.assert_buffers_held(0);
}

#[test]
fn a_sub_interface_s_tags_are_taken_out() {
    let Scene { mut h, phy, .. } = scene();
    let matching = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(10), inner: None, exact: true };
    let sub = h.router.create_sub_interface(phy, 10, matching).unwrap();
    h.router.set_interface_up(sub, true).unwrap();
    h.router.add_address(sub, "10.1.0.1".parse().unwrap(), 24).unwrap();
    let host = h.interface(3);
    pair_with(&mut h.router, sub, host).unwrap();
    let plain = ethernet(router_mac(1), 0x0800, &ip4(IpProtocol::TCP, [10, 1, 0, 1], &[0xa5; 40]));
    assert_eq!(h.exchange(phy, &tagged(&plain, 10)), [(host, plain)]);
    let lldp = ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]), 0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 9]);
    assert_eq!(h.exchange(phy, &tagged(&lldp, 10)), [(host, lldp)]);
    let reply = ethernet(router_mac(1), 0x0806, &arp(2, [10, 1, 0, 9], [10, 1, 0, 1]));
    assert_eq!(h.exchange(phy, &tagged(&reply, 10)), [(host, reply)]);
    h.assert_buffers_held(0);
}

#[test]
fn an_interface_without_an_address_takes_what_is_for_groups() {
    let mut h = Harness::new();
    begin(&mut h.router);
    let (phy, host) = (h.interface(1), h.interface(2));
    let hello = ethernet(GROUP, 0x0800, &ip4(IpProtocol(89), [224, 0, 0, 5], &[2, 1, 0, 44]));
    assert!(h.exchange(phy, &hello).is_empty());
    pair_with(&mut h.router, phy, host).unwrap();
    assert_eq!(h.exchange(phy, &hello), [(host, hello.clone())]);
    crate::control::delete(&mut h.router, phy).unwrap();
    assert!(h.exchange(phy, &hello).is_empty());
    assert!(h.router.interfaces.get(host).is_none(), "the TAP goes with the pair");
    assert_eq!(h.router.interfaces.get(phy).map(|i| i.addresses.len()), Some(0), "IPv6 is off again");
}

#[test]
fn a_pair_goes_with_either_of_its_interfaces() {
    for side in [0, 1] {
        let Scene { mut h, phy, host } = scene();
        h.router.delete_interface([phy, host][side]).unwrap();
        assert_eq!(h.router.state::<crate::control::Lcp>().unwrap().pairs().count(), 0);
        assert_eq!(h.router.host_interfaces().iter().count(), 0);
        assert_eq!(h.router.interfaces.get(phy).is_some(), side == 1);
        assert!(h.router.interfaces.get(host).is_none());
        h.assert_buffers_held(0);
    }
}

fn error(router: &mut Router, line: &str) -> String {
    execute(&registry(&[crate::ops::register]), router, line).err().unwrap_or_else(|| panic!("{line}: no error"))
}

fn run(router: &mut Router, line: &str) -> String {
    execute(&registry(&[crate::ops::register]), router, line).unwrap_or_else(|e| panic!("{line}: {e}"))
}

#[test]
fn mistakes_are_one_line_and_leave_nothing() {
    let Scene { mut h, phy, .. } = scene();
    h.interface(3);
    let any = SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(10), inner: None, exact: false };
    h.router.create_sub_interface(phy, 10, any).unwrap();
    let before = h.router.interfaces.iter().count();
    for (line, expected) in [
        ("lcp create local0 host-if e0", "local0"),
        ("lcp create x1 host-if e0", "x1 has a host interface already"),
        ("lcp create x2 host-if e0", "x2 is the host side of a pair"),
        ("lcp create x3", "host-if"),
        ("lcp create x3 host-if a-name-that-is-too-long", "host-if-name"),
        ("lcp create x3 host-if e0 netns no-such-namespace", "no-such-namespace"),
        ("lcp create x3 host-if e0 netns a-name-of-a-namespace-that-is-too-long", "netns"),
        ("lcp create x1.10 host-if e0", "exact-match"),
        ("lcp create y0 host-if e0", "unknown interface"),
        ("lcp delete x3", "x3 has no host interface"),
        ("lcp lcp-sync perhaps", "on"),
        ("lcp ethertype enable 0800", "ethertype"),
        ("lcp ethertype enable lldpp", "ethertype"),
    ] {
        let error = error(&mut h.router, line);
        assert!(error.contains(expected) && !error.contains('\n'), "{line}: {error}");
    }
    assert_eq!(h.router.interfaces.iter().count(), before);
}

#[test]
fn another_thread_makes_the_host_interface() {
    let Scene { mut h, .. } = scene();
    h.interface(3);
    let request = CreatePair { interface: IfRef("x3".into()), host_if: "e9".into(), netns: Some("no-such".into()), tun: false };
    let Ok(Outcome::Job(mut job)) = CreatePair::run(&mut h.router, request) else { panic!("made by the main thread") };
    assert!(job.exclusive(), "what comes next may build on it");
    let made = run_to_end(&mut *job, &mut h.router, &mut String::new(), std::thread::sleep);
    assert!(made.unwrap_err().message.contains("no-such"));
}

#[test]
fn sub_interfaces_wait_for_another_thread_one_after_the_other() {
    let Scene { mut h, phy, .. } = scene();
    run(&mut h.router, "lcp lcp-auto-subint on");
    let exactly = |id| SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(id), inner: None, exact: true };
    for id in [20, 30] {
        h.router.create_sub_interface(phy, u32::from(id), exactly(id)).unwrap();
    }
    let left = |router: &Router| router.state::<crate::control::Lcp>().unwrap().in_the_making();
    assert_eq!(left(&h.router), 2, "nothing is opened while the sub-interface is made");
    // There is no such namespace: each is tried, and said in the log.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while left(&h.router) > 0 {
        h.router.run_processes(0);
        assert!(std::time::Instant::now() < end, "they wait for ever");
    }
    assert_eq!(h.router.state::<crate::control::Lcp>().unwrap().pairs().count(), 1);
    h.router.create_sub_interface(phy, 40, exactly(40)).unwrap();
    run(&mut h.router, "lcp lcp-auto-subint off");
    assert_eq!(left(&h.router), 0, "those that wait are forgotten");
}

#[test]
fn settings_and_pairs_are_shown() {
    let Scene { mut h, .. } = scene();
    let text = run(&mut h.router, "show lcp");
    assert_eq!(
        text,
        "lcp default netns '<unset>'\nlcp lcp-auto-subint off\nlcp lcp-sync off\nitf-pair: [0] x1 x2 e0 7 type tap netns dataplane\n"
    );
    run(&mut h.router, "lcp default netns dataplane");
    run(&mut h.router, "lcp ethertype enable 0x8809");
    assert!(run(&mut h.router, "show lcp phy x2").starts_with("lcp default netns 'dataplane'\n"));
    assert!(!run(&mut h.router, "show lcp phy x2").contains("itf-pair"));
    assert_eq!(run(&mut h.router, "show lcp ethertype"), "0x88cc LLDP\n0x8809 SLOW_PROTOCOLS\nIEEE 802.2 (IS-IS and others)\n");
    run(&mut h.router, "lcp default clear netns");
    assert!(run(&mut h.router, "show lcp").starts_with("lcp default netns '<unset>'\n"));
}

#[test]
fn the_running_configuration_makes_the_pairs_again() {
    let Scene { mut h, .. } = scene();
    for line in ["lcp lcp-sync on", "lcp lcp-auto-subint on", "lcp default netns other", "lcp ethertype enable 0x8809"] {
        run(&mut h.router, line);
    }
    let text = configuration(&registry(&[crate::ops::register]), &h.router);
    let ours: Vec<&str> = text.lines().filter(|line| line.starts_with("lcp")).collect();
    assert_eq!(
        ours,
        [
            "lcp lcp-sync on",
            "lcp ethertype enable 0x8809",
            "lcp create x1 host-if e0 netns dataplane",
            "lcp default netns other",
            "lcp lcp-auto-subint on",
        ]
    );
}
