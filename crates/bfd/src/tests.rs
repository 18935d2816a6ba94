//! Machine, nodes, commands and messages.

mod api;
mod auth;
mod commands;
mod echo;
mod forwarding;
mod machine;
mod multihop;
mod nodes;
mod restart;
mod scale;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_net::testing::{Harness, error, host_mac, router_mac, run};
use quiver_wire::build::Packet;

use crate::ops::SessionInfo;
use crate::packet::{Control, LEN, State};

const LOCAL: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];
const PEER: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2))];

/// A router with x0 and x1, and hosts that it knows on x0.
fn bed(workers: usize) -> Harness {
    let mut h = Harness::with_plugin(&crate::plugin(), workers, 2);
    run(
        &mut h,
        "set interface ip address x0 10.0.0.1/24
         set interface ip address x0 2001:db8::1/64
         set interface ip address x1 10.0.1.1/24
         set ip neighbor x0 10.0.0.2 02:00:00:00:10:00 static
         set ip neighbor x0 2001:db8::2 02:00:00:00:10:00 static",
    );
    h
}

fn add(family: usize) -> String {
    let (local, peer) = (LOCAL[family], PEER[family]);
    format!(
        "bfd udp session add interface x0 local-addr {local} peer-addr {peer} desired-min-tx 20000 required-min-rx 20000 detect-mult 3"
    )
}

fn x0(h: &Harness) -> IfIndex {
    h.router.interfaces.by_name("x0").unwrap().index
}

/// A frame of the peer's.
fn frame(family: usize, ttl: u8, data: &[u8]) -> Vec<u8> {
    let frame = Packet::ethernet(host_mac(0), router_mac(0));
    let frame = match (PEER[family], LOCAL[family]) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => frame.ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => frame.ipv6(src, dst),
        _ => unreachable!(),
    };
    frame.ttl(ttl).udp(50_000, 3784).payload(data).build()
}

fn control(state: State, your_discriminator: u32) -> Control {
    Control {
        state,
        your_discriminator,
        // Nearly a minute, so that a test which is held up for a while does not lose the session.
        detect_mult: 255,
        desired_min_tx: 200_000,
        my_discriminator: 77,
        required_min_rx: 20_000,
        ..Control::default()
    }
}

/// What a frame to the peer says, with its TTL and link header checked.
fn said(family: usize, frame: &[u8]) -> Control {
    let header = if family == 0 { 20 } else { 40 };
    assert_eq!(frame[..6], host_mac(0).0);
    assert_eq!(frame[14 + if family == 0 { 8 } else { 7 }], 255);
    let udp = &frame[14 + header..];
    assert!(u16::from_be_bytes([udp[0], udp[1]]) >= 49_152);
    let control = Control::parse(&udp[8..]).unwrap();
    assert_eq!(u16::from_be_bytes([udp[2], udp[3]]), 3784);
    assert!(control.authenticated || udp.len() == 8 + LEN);
    control
}

/// Puts a packet in and waits until an answer satisfies `wanted`.
fn until_said(h: &mut Harness, family: usize, what: &str, wanted: impl Fn(&Control) -> bool) -> Control {
    let mut found = None;
    h.until(what, |h| {
        let said: Vec<Control> =
            h.run().iter().filter(|(_, f)| f.len() > 60 && f[23 - 3 * family] == 17).map(|(_, f)| said(family, f)).collect();
        found = found.or_else(|| said.into_iter().find(|control| wanted(control)));
        found.is_some()
    });
    found.unwrap()
}

/// Brings the session with the peer up; gives its discriminator.
fn come_up(h: &mut Harness, family: usize, thread: usize) -> u32 {
    come_up_with(h, family, thread, 255)
}

/// The same, with the detection multiplier of the peer.
fn come_up_with(h: &mut Harness, family: usize, thread: usize, detect_mult: u8) -> u32 {
    let control = |state, your| Control { detect_mult, ..control(state, your) };
    let x0 = x0(h);
    let first = until_said(h, family, "a first packet", |c| c.state == State::Down);
    assert_eq!((first.your_discriminator, first.desired_min_tx, first.required_min_rx), (0, 1_000_000, 20_000));
    h.inject_many(x0, &[frame(family, 255, &control(State::Down, 0).to_bytes())], thread);
    let init = until_said(h, family, "an answer", |c| c.state == State::Init);
    assert_eq!(init.your_discriminator, 77);
    h.inject_many(x0, &[frame(family, 255, &control(State::Init, init.my_discriminator).to_bytes())], thread);
    let up = until_said(h, family, "up", |c| c.state == State::Up);
    assert!(up.poll, "the interval is another now");
    assert_eq!(up.desired_min_tx, 20_000);
    init.my_discriminator
}

fn sessions(h: &mut Harness) -> Vec<SessionInfo> {
    let shown =
        quiver_net::ops::done(quiver_command::request::Execute::execute(crate::ops::ShowSessions {}, &mut h.router).unwrap());
    shown.unwrap().0
}
