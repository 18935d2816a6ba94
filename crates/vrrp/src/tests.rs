//! Machine, nodes, commands and messages.

mod api;
mod commands;
mod forwarding;
mod machine;
mod nodes;
mod restart;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_net::ip::FamilyId;
use quiver_net::testing::{Harness, error, host_mac, run};
use quiver_wire::MacAddr;

use crate::machine::State;
use crate::ops::RouterInfo;
use crate::packet::{Advertisement, group, group_mac, virtual_mac};

const FAMILIES: [FamilyId; 2] = [FamilyId::V4, FamilyId::V6];
/// The other router.
const PEER: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2))];
/// A host on the link.
const HOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9))];
/// The virtual address.
const VIRTUAL: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100))];

/// A router with x0 and x1, and hosts that it knows.
fn bed(workers: usize) -> Harness {
    let mut h = Harness::with_plugin(&crate::plugin(), workers, 2);
    run(
        &mut h,
        "set ip6 dad disable
         set interface ip address x0 10.0.0.1/24
         set interface ip address x0 2001:db8::1/64
         set interface ip address x1 10.0.1.1/24
         set interface ip address x1 2001:db8:1::1/64
         set ip neighbor x0 10.0.0.9 02:00:00:00:10:00 static
         set ip neighbor x0 10.0.0.2 02:00:00:00:10:00 static
         set ip neighbor x0 2001:db8::9 02:00:00:00:10:00 static
         set ip neighbor x1 10.0.1.9 02:00:00:00:10:01 static
         set ip neighbor x1 2001:db8:1::9 02:00:00:00:10:01 static",
    );
    h
}

fn x0(h: &Harness) -> IfIndex {
    h.router.interfaces.by_name("x0").unwrap().index
}

/// Adds virtual router 7 of a family on x0 and starts it.
fn begin(h: &mut Harness, family: FamilyId, options: &str) {
    let (address, ipv6) = (VIRTUAL[family as usize], if family == FamilyId::V6 { "ipv6" } else { "" });
    run(h, &format!("vrrp vr add x0 vr_id 7 {options} {address}\nvrrp proto start x0 vr_id 7 {ipv6}"));
}

/// An advertisement of the other router, as a frame.
fn heard(family: FamilyId, priority: u8, interval: u16) -> Vec<u8> {
    let (advertisement, src) = (Advertisement { vr_id: 7, priority, interval }, PEER[family as usize]);
    framed(family, &advertisement.packet(src, group(family), &[VIRTUAL[family as usize]]))
}

fn framed(family: FamilyId, packet: &[u8]) -> Vec<u8> {
    let mut frame = group_mac(family).0.to_vec();
    frame.extend(host_mac(0).0);
    frame.extend(if family == FamilyId::V4 { [8, 0] } else { [0x86, 0xdd] });
    frame.extend(packet);
    frame
}

/// What frames of virtual router 7 say.
#[derive(Debug, PartialEq)]
enum Said {
    Advertisement(Advertisement),
    Announcement,
}

fn said(family: FamilyId, frame: &[u8]) -> Option<Said> {
    let mac = virtual_mac(family, 7);
    if frame.get(6..12)? != mac.0 {
        return None;
    }
    match (&frame[12..14], family) {
        ([8, 6], FamilyId::V4) => {
            assert_eq!((&frame[..6], &frame[22..28], &frame[28..32]), (&[255; 6][..], &mac.0[..], &frame[38..42]));
            assert_eq!(frame[28..32], [10, 0, 0, 100]);
            Some(Said::Announcement)
        }
        ([0x86, 0xdd], FamilyId::V6) if frame[54] == 136 => {
            assert_eq!((&frame[..6], &frame[frame.len() - 6..]), (&[0x33, 0x33, 0, 0, 0, 1][..], &mac.0[..]));
            Some(Said::Announcement)
        }
        _ => {
            assert_eq!(frame[..6], group_mac(family).0);
            let (src, at): (IpAddr, _) = match family {
                FamilyId::V4 => (<[u8; 4]>::try_from(&frame[26..30]).unwrap().into(), 34),
                FamilyId::V6 => (<[u8; 16]>::try_from(&frame[22..38]).unwrap().into(), 54),
            };
            assert_eq!(frame[if family == FamilyId::V4 { 22 } else { 21 }], 255, "TTL");
            Some(Said::Advertisement(Advertisement::parse(src, group(family), &frame[at..]).unwrap()))
        }
    }
}

/// What virtual router 7 has said since the last call. What the router says for itself (that it listens to groups) does not count.
fn hear(h: &mut Harness, family: FamilyId) -> Vec<Said> {
    h.run().iter().filter_map(|(_, frame)| said(family, frame)).collect()
}

fn settle(h: &mut Harness) {
    let now = h.router.graph.clock().timer_now();
    h.router.wake_process(crate::process::NAME, 0);
    while h.router.run_processes(now).is_some_and(|due| due <= now) {}
}

/// Lets time pass until virtual router 7 has a state; gives what it has said meanwhile.
fn until(h: &mut Harness, family: FamilyId, state: State) -> Vec<Said> {
    let mut all = Vec::new();
    h.until(state.name(), |h| {
        all.extend(hear(h, family));
        settle(h);
        info(h, family).state == state
    });
    all.extend(hear(h, family));
    settle(h);
    all
}

fn routers(h: &mut Harness) -> Vec<RouterInfo> {
    let request = crate::ops::ShowRouters { interface: None };
    quiver_net::ops::done(quiver_command::request::Execute::execute(request, &mut h.router).unwrap()).unwrap().0
}

fn info(h: &mut Harness, family: FamilyId) -> RouterInfo {
    routers(h).into_iter().find(|router| router.ipv6 == (family == FamilyId::V6)).unwrap()
}

fn mac(family: FamilyId) -> MacAddr {
    virtual_mac(family, 7)
}
