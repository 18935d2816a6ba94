//! What hosts on the link see: who answers for the virtual address, and where packets to it and through it go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_net::ip::FamilyId;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::MacAddr;
use quiver_wire::arp::ArpHeader;
use quiver_wire::build::Packet;
use quiver_wire::ndp::NdpOption;

use super::{FAMILIES, HOST, VIRTUAL, bed, begin, heard, mac, run, settle, until, x0};
use crate::machine::State;

fn v4(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else { unreachable!() };
    address
}

fn v6(address: IpAddr) -> Ipv6Addr {
    let IpAddr::V6(address) = address else { unreachable!() };
    address
}

/// Who answers the host's question for the virtual address, by the MAC address that the answer tells. `to`: whom the host asks.
fn asked(h: &mut Harness, family: FamilyId, to: Option<MacAddr>) -> Option<MacAddr> {
    let question = match family {
        FamilyId::V4 => {
            let to = to.unwrap_or(MacAddr::BROADCAST);
            Packet::ethernet(host_mac(0), to).arp(ArpHeader::request((host_mac(0), v4(HOST[0])), v4(VIRTUAL[0]))).build()
        }
        FamilyId::V6 => {
            let address = v6(VIRTUAL[1]);
            let group = quiver_wire::ipv6::address::solicited_node(address);
            let (mac, dst) = to.map_or((MacAddr::from_ipv6_multicast(group), group), |mac| (mac, address));
            let frame = Packet::ethernet(host_mac(0), mac).ipv6(v6(HOST[1]), dst).ttl(255).neighbor_solicitation(address);
            frame.ndp_option(NdpOption::SourceLinkAddress(host_mac(0))).build()
        }
    };
    let x0 = x0(h);
    let answers = h.exchange(x0, &question);
    let of = |frame: &Vec<u8>| match (&frame[12..14], family) {
        ([8, 6], FamilyId::V4) if frame[20..22] == [0, 2] => Some(MacAddr(frame[22..28].try_into().unwrap())),
        ([0x86, 0xdd], FamilyId::V6) if frame[54] == 136 && frame[..6] == host_mac(0).0 => {
            assert_eq!(frame[22..38], v6(VIRTUAL[1]).octets());
            assert_eq!(frame[58] & 0xe0, 0xe0, "of a router, solicited, in place of what was known");
            Some(MacAddr(frame[frame.len() - 6..].try_into().unwrap()))
        }
        _ => None,
    };
    let told: Vec<(MacAddr, MacAddr)> =
        answers.iter().filter_map(|(_, f)| Some((of(f)?, MacAddr(f[6..12].try_into().unwrap())))).collect();
    assert!(told.len() <= 1 && told.iter().all(|(told, source)| told == source), "{told:?}");
    told.first().map(|(told, _)| *told)
}

fn ping(family: FamilyId, to: MacAddr, dst: IpAddr) -> Vec<u8> {
    let frame = Packet::ethernet(host_mac(0), to);
    let frame = match family {
        FamilyId::V4 => frame.ipv4(v4(HOST[0]), v4(dst)),
        FamilyId::V6 => frame.ipv6(v6(HOST[1]), v6(dst)),
    };
    frame.echo_request(1, 1).build()
}

/// Whether a ping to the virtual address is answered.
fn answers(h: &mut Harness, family: FamilyId) -> bool {
    let x0 = x0(h);
    let reply = |frame: &Vec<u8>| match family {
        FamilyId::V4 => frame[12..14] == [8, 0] && frame[23] == 1 && frame[34] == 0,
        FamilyId::V6 => frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == 129,
    };
    h.exchange(x0, &ping(family, mac(family), VIRTUAL[family as usize])).iter().any(|(_, frame)| reply(frame))
}

/// Whether a packet to the virtual MAC address is forwarded to x1.
fn forwards(h: &mut Harness, family: FamilyId) -> bool {
    let (x0, x1) = (x0(h), h.router.interfaces.by_name("x1").unwrap().index);
    let dst = match family {
        FamilyId::V4 => IpAddr::from([10, 0, 1, 9]),
        FamilyId::V6 => "2001:db8:1::9".parse().unwrap(),
    };
    h.exchange(x0, &ping(family, mac(family), dst)).iter().any(|(out, frame)| *out == x1 && frame[..6] == host_mac(1).0)
}

#[test]
fn only_the_master_answers_for_the_address_and_forwards() {
    for workers in [0, 1] {
        for family in FAMILIES {
            let mut h = bed(workers);
            begin(&mut h, family, "interval 1 accept_mode");
            let x0 = x0(&h);
            // Before that it may have no address yet, and hear nobody.
            until(&mut h, family, State::Master);
            h.inject(x0, &heard(family, 200, 4000));
            until(&mut h, family, State::Backup);
            assert_eq!((asked(&mut h, family, None), forwards(&mut h, family), answers(&mut h, family)), (None, false, false));
            h.inject_many(x0, &[heard(family, 200, 1), heard(family, 0, 1)], 0);
            until(&mut h, family, State::Master);
            assert_eq!(asked(&mut h, family, None), Some(mac(family)));
            assert_eq!(asked(&mut h, family, Some(mac(family))), Some(mac(family)), "asked alone, as hosts do to confirm");
            assert!(forwards(&mut h, family) && answers(&mut h, family));
            h.inject(x0, &heard(family, 200, 4000));
            until(&mut h, family, State::Backup);
            assert_eq!((asked(&mut h, family, None), forwards(&mut h, family), answers(&mut h, family)), (None, false, false));
            h.run();
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn without_the_accept_mode_the_address_is_only_a_way_through() {
    for family in FAMILIES {
        let mut h = bed(1);
        begin(&mut h, family, "interval 1");
        until(&mut h, family, State::Master);
        assert_eq!(asked(&mut h, family, None), Some(mac(family)));
        assert_eq!(asked(&mut h, family, Some(mac(family))), Some(mac(family)), "discovery is answered all the same");
        assert_eq!((forwards(&mut h, family), answers(&mut h, family)), (true, false));
        let node = ["vrrp4-local", "vrrp6-local"][family as usize];
        assert_eq!(h.count(node, "virtual address without accept mode"), 1, "{:?}", h.counts());
    }
}

#[test]
fn the_owner_answers_with_the_virtual_mac_while_it_runs_and_with_its_own_after_that() {
    let mut h = bed(1);
    run(&mut h, "vrrp vr add x0 vr_id 7 priority 255 10.0.0.1\nvrrp proto start x0 vr_id 7");
    until_owner(&mut h);
    let ask = |h: &mut Harness| {
        let question = ArpHeader::request((host_mac(0), v4(HOST[0])), Ipv4Addr::new(10, 0, 0, 1));
        let x0 = x0(h);
        let frames = h.exchange(x0, &Packet::ethernet(host_mac(0), MacAddr::BROADCAST).arp(question).build());
        let reply = |(_, f): &(_, Vec<u8>)| (f[12..14] == [8, 6] && f[21] == 2).then(|| MacAddr(f[22..28].try_into().unwrap()));
        frames.iter().find_map(reply)
    };
    assert_eq!(ask(&mut h), Some(mac(FamilyId::V4)));
    run(&mut h, "vrrp proto stop x0 vr_id 7");
    h.run();
    settle(&mut h);
    assert_eq!(ask(&mut h), Some(router_mac(0)));
    run(&mut h, "vrrp vr del x0 vr_id 7");
    assert_eq!(ask(&mut h), Some(router_mac(0)));
}

fn until_owner(h: &mut Harness) {
    h.until("the owner is the master", |h| {
        h.run();
        settle(h);
        super::info(h, FamilyId::V4).state == State::Master
    });
}

#[test]
fn link_local_virtual_addresses_are_received_by_the_master_alone() {
    let mut h = bed(1);
    run(&mut h, "vrrp vr add x0 vr_id 7 interval 1 accept_mode fe80::100 2001:db8::100\nvrrp proto start x0 vr_id 7 ipv6");
    until(&mut h, FamilyId::V6, State::Master);
    let x0 = x0(&h);
    let ping = |h: &mut Harness| {
        let frame = Packet::ethernet(host_mac(0), mac(FamilyId::V6));
        let host = "fe80::9".parse::<Ipv6Addr>().unwrap();
        h.exchange(x0, &frame.ipv6(host, "fe80::100".parse::<Ipv6Addr>().unwrap()).echo_request(1, 1).build());
        h.count("ip6-icmp-echo-request", "echo replies sent")
    };
    assert_eq!(ping(&mut h), 1);
    run(&mut h, "vrrp vr del x0 vr_id 7 ipv6");
    h.run();
    assert_eq!(ping(&mut h), 1);
}
