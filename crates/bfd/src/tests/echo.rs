//! Echo packets: in virtual time, and in a router.

use quiver_net::testing::{host_mac, router_mac};
use quiver_wire::build::Packet;

use super::{add, bed, come_up, control, frame, run, sessions, until_said, x0};
use crate::packet::{Control, State, diagnostic};
use crate::session::{Echoes, Session, Timing};

const MS: u64 = 1_000_000;
const FAST: Timing = Timing { desired_min_tx: 10_000, required_min_rx: 10_000, detect_mult: 3 };

/// What the peer says; it returns echo packets every 20 ms.
fn peer(state: State) -> Control {
    Control { required_min_echo_rx: 20_000, desired_min_tx: 20_000, ..control(state, 1) }
}

/// A session that is up and sends echo packets; the time is 0.
fn echoing() -> Session {
    let mut session = Session::new(1, FAST, 1, 0);
    session.set_echoes(Echoes::Sent, 0);
    session.receive(&peer(State::Init), 0);
    assert_eq!(session.state(), State::Up);
    session
}

/// Sends what is due until a time, and has `back` of the echo packets come back after a millisecond; gives when they were sent.
fn go(session: &mut Session, until: u64, back: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut sent = Vec::new();
    let mut returning = Vec::new();
    loop {
        let arrival = returning.first().copied().unwrap_or(u64::MAX);
        let now = session.due().min(arrival);
        if now > until {
            return sent;
        }
        if arrival <= now {
            returning.remove(0);
            session.echo_returned(now - MS, now);
        }
        let tick = session.tick(now);
        if tick.echo {
            sent.push(now);
            if back(now) {
                returning.push(now + MS);
            }
        }
        if tick.send {
            session.send(false, now);
        }
    }
}

#[test]
fn echo_packets_keep_to_the_slower_interval_and_control_packets_slow_down() {
    let mut session = echoing();
    assert!(session.tick(0).echo, "the first one at once");
    let said = session.send(false, 0);
    assert_eq!((said.required_min_rx, said.required_min_echo_rx, said.poll), (1_000_000, 1, true));
    assert_eq!(session.status().echo_interval, 20_000);
    let sent = go(&mut session, 3000 * MS, |_| true);
    assert_eq!(session.state(), State::Up);
    assert!(sent.len() >= 149 && sent.windows(2).all(|pair| (15 * MS..=20 * MS).contains(&(pair[1] - pair[0]))), "{sent:?}");
}

#[test]
fn a_path_that_returns_nothing_is_down_after_the_detection_time() {
    let mut session = echoing();
    go(&mut session, 1000 * MS, |_| true);
    assert_eq!(session.state(), State::Up);
    // The last that came back did so at most 20 ms ago.
    let sent = go(&mut session, 1039 * MS, |_| false);
    assert_eq!(session.state(), State::Up, "three intervals from the last that came back");
    assert!(!sent.is_empty());
    go(&mut session, 1065 * MS, |_| false);
    let status = session.status();
    assert_eq!((status.state, status.diagnostic, status.failed), (State::Down, diagnostic::ECHO_FAILED, true));
    assert_eq!(status.echo_interval, 0);
    assert_eq!(session.send(false, 1065 * MS).required_min_rx, 10_000, "control packets are back");
}

#[test]
fn a_peer_whose_echoes_are_lost_has_the_short_detection_time_from_then_on() {
    let mut session = echoing();
    // It sends control packets each second, as it was asked to.
    session.receive(&Control { detect_mult: 3, ..peer(State::Up) }, MS);
    go(&mut session, 500 * MS, |_| true);
    let mut now = 500 * MS;
    while session.state() == State::Up {
        now = session.due();
        if session.tick(now).send {
            session.send(false, now);
        }
    }
    assert!(session.due() > now, "it has nothing more to do at this time");
    assert_eq!(session.status().remote.discriminator, 77);
    session.tick(now + 59 * MS);
    assert_eq!(session.status().remote.discriminator, 77, "three times 20 ms have not passed");
    session.tick(now + 60 * MS);
    assert_eq!(session.status().remote.discriminator, 0);
}

#[test]
fn a_path_that_has_never_returned_any_is_down_an_interval_later() {
    let mut session = echoing();
    go(&mut session, 79 * MS, |_| false);
    assert_eq!(session.state(), State::Up);
    go(&mut session, 80 * MS, |_| false);
    assert_eq!(session.status().diagnostic, diagnostic::ECHO_FAILED);
}

#[test]
fn an_echo_packet_counts_once_and_none_of_the_future_does() {
    let mut session = echoing();
    session.tick(0);
    session.echo_returned(0, MS);
    session.tick(20 * MS);
    session.echo_returned(20 * MS, 21 * MS);
    // The first again and again, the newest again, and one that has not been sent.
    for now in 22..80 {
        session.echo_returned(0, now * MS);
        session.echo_returned(20 * MS, now * MS);
        session.echo_returned(u64::MAX, now * MS);
        session.tick(now * MS);
    }
    assert_eq!(session.state(), State::Up);
    session.tick(81 * MS);
    assert_eq!(session.status().diagnostic, diagnostic::ECHO_FAILED);
}

#[test]
fn echo_packets_end_with_the_wish_of_the_peer_or_their_source() {
    let mut session = echoing();
    go(&mut session, 100 * MS, |_| true);
    session.receive(&Control { required_min_echo_rx: 0, ..peer(State::Up) }, 100 * MS);
    assert!(go(&mut session, 1000 * MS, |_| true).is_empty());
    assert_eq!((session.state(), session.status().echo_interval), (State::Up, 0));
    session.receive(&peer(State::Up), 1000 * MS);
    assert!(!go(&mut session, 1100 * MS, |_| true).is_empty());
    session.set_echoes(Echoes::Returned, 1100 * MS);
    assert!(go(&mut session, 2000 * MS, |_| true).is_empty());
    let said = session.send(false, 2000 * MS);
    assert_eq!((said.required_min_echo_rx, said.poll), (1, true));
}

/// Frames to the echo port among what has left.
fn echoes(h: &mut quiver_net::testing::Harness, family: usize) -> Vec<Vec<u8>> {
    let port = 14 + [20, 40][family] + 2;
    let is_echo = |frame: &Vec<u8>| frame.get(port..port + 2) == Some(&3785_u16.to_be_bytes()[..]);
    h.run().into_iter().map(|(_, frame)| frame).filter(is_echo).collect()
}

#[test]
fn own_echo_packets_go_to_the_peer_and_are_taken_when_they_come_back() {
    for (family, workers) in [(0, 0), (0, 2), (1, 1)] {
        let mut h = bed(workers);
        run(
            &mut h,
            &format!(
                "set interface ip address x1 2001:db8:1::2/127
                 bfd udp echo-source set interface x1
                 {}",
                add(family)
            ),
        );
        let shown = run(&mut h, "show bfd echo-source");
        assert!(shown.contains("10.0.1.0") && shown.contains("2001:db8:1::3"), "{shown}");
        let own = come_up(&mut h, family, 0);
        let x0 = x0(&h);
        let up = Control { required_min_echo_rx: 20_000, ..control(State::Up, own) };
        h.inject(x0, &frame(family, 255, &up.to_bytes()));
        let mut sent = Vec::new();
        h.until("an echo packet", |h| {
            sent = echoes(h, family);
            !sent.is_empty()
        });
        let mut back = sent.remove(0);
        assert_eq!(back[..6], host_mac(0).0, "to the peer");
        // As the peer forwards it.
        back[..6].copy_from_slice(&router_mac(0).0);
        back[6..12].copy_from_slice(&host_mac(0).0);
        h.inject_many(x0, &[back.clone()], 1);
        h.until("its return", |h| {
            h.run();
            sessions(h)[0].echo_received == 1
        });
        let mut forged = back;
        // Other words of the proof, with the same sum.
        let proof = forged.len() - 8;
        forged[proof..].rotate_left(2);
        h.inject(x0, &forged);
        let node = ["bfd-udp-echo4-input", "bfd-udp-echo6-input"][family];
        h.until("a forged one", |h| {
            h.run();
            h.count(node, "no session with this peer") == 1
        });
        let session = sessions(&mut h).remove(0);
        assert!(session.echo_sent >= 1 && session.echo_received == 1);
        run(&mut h, "bfd udp echo-source del");
        assert_eq!(sessions(&mut h)[0].echo_interval, 0);
        assert!(run(&mut h, "show bfd echo-source").contains("not set"));
    }
}

#[test]
fn a_peers_echo_packets_are_forwarded_back_or_returned_where_they_are_for_the_router() {
    let mut h = bed(0);
    run(&mut h, &add(0));
    let x0 = x0(&h);
    let echo = |src: [u8; 4], dst: [u8; 4], ttl| {
        let frame = Packet::ethernet(host_mac(0), router_mac(0)).ipv4(src, dst);
        frame.ttl(ttl).udp(50_000, 3785).payload(b"something of the peer's").build()
    };
    let (peer, own) = ([10, 0, 0, 2], [10, 0, 0, 1]);
    // As RFC 5881 has it: to the peer itself.
    h.inject(x0, &echo(peer, peer, 255));
    let back = echoes(&mut h, 0).remove(0);
    assert_eq!((&back[..6], &back[26..34], back[22]), (&host_mac(0).0[..], &[10, 0, 0, 2, 10, 0, 0, 2][..], 254));
    // To the router, as FRR does.
    let sent = echo(peer, own, 255);
    h.inject(x0, &sent);
    let back = echoes(&mut h, 0).remove(0);
    assert_eq!((&back[26..30], &back[30..34], back[22]), (&own[..], &peer[..], 254));
    assert_eq!(back[34..], sent[34..]);
    assert!(quiver_wire::ipv4::Ipv4Header::parse(&back[14..]).is_ok(), "with a right checksum");
    assert_eq!(h.count("bfd-udp-echo4-input", "echo packets returned"), 1);
    // Once only, and no stranger's.
    h.inject(x0, &echo(peer, own, 254));
    h.inject(x0, &echo([10, 0, 0, 9], own, 255));
    assert!(echoes(&mut h, 0).is_empty());
    assert_eq!(h.count("bfd-udp-echo4-input", "TTL or hop limit is not 255"), 1);
    assert_eq!(h.count("bfd-udp-echo4-input", "no session with this peer"), 1);
    until_said(&mut h, 0, "a packet that offers it", |c| c.required_min_echo_rx == 1);
}

#[test]
fn the_echo_source_follows_addresses_and_goes_with_its_interface() {
    let mut h = bed(0);
    run(&mut h, &add(0));
    let shown = |h: &mut quiver_net::testing::Harness| run(h, "show bfd echo-source");
    run(&mut h, "bfd udp echo-source set interface x1");
    assert!(shown(&mut h).contains("IPv4 address usable as echo source: 10.0.1.0"));
    run(&mut h, "set interface ip address del x1 10.0.1.1/24");
    assert!(shown(&mut h).contains("IPv4 address usable as echo source: none"));
    // Beside each other: neither has a neighbour that is free.
    run(&mut h, "set interface ip address x1 10.0.1.2/24\nset interface ip address x1 10.0.1.3/24");
    assert!(shown(&mut h).contains("IPv4 address usable as echo source: none"));
    run(&mut h, "set interface ip address x1 10.0.9.1/32");
    assert!(shown(&mut h).contains("IPv4 address usable as echo source: none"), "a subnet of one address");
    let x1 = h.router.interfaces.by_name("x1").unwrap().index;
    h.router.delete_interface(x1).unwrap();
    assert!(shown(&mut h).contains("not set"));
}

#[test]
fn tos_is_that_of_all_packets() {
    let mut h = bed(0);
    run(&mut h, &add(0));
    let tos = |h: &mut quiver_net::testing::Harness| {
        let mut found = None;
        h.until("a packet", |h| {
            run(h, &add(0).replace("session add", "session mod"));
            found = h.run().iter().find(|(_, f)| f.len() > 60 && f[23] == 17).map(|(_, f)| f[15]);
            found.is_some()
        });
        found.unwrap()
    };
    assert_eq!(tos(&mut h), 192);
    run(&mut h, "bfd udp tos 184");
    assert_eq!(tos(&mut h), 184);
    assert!(run(&mut h, "show bfd").contains("TOS of packets: 184"));
}
