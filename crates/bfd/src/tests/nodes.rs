//! Sessions in a router.

use quiver_graph::ThreadPlan;
use quiver_net::ip::FamilyId;
use quiver_net::testing::Harness;

use super::{add, bed, come_up, come_up_with, control, error, frame, run, sessions, until_said, x0};
use crate::packet::{LEN, State};
use crate::process;

pub(super) fn settle(h: &mut Harness) {
    let now = h.router.graph.clock().timer_now();
    h.router.wake_process(process::NAME, 0);
    while h.router.run_processes(now).is_some_and(|due| due <= now) {}
}

#[test]
fn a_session_comes_up_whichever_thread_receives_and_ends_in_silence() {
    for workers in [0, 1, 2] {
        for family in [0, 1] {
            let mut h = bed(workers);
            run(&mut h, &add(family));
            for thread in [0, 1] {
                come_up_with(&mut h, family, thread, 3);
                // The other side falls silent.
                let down = until_said(&mut h, family, "down", |c| c.state == State::Down);
                assert_eq!((down.diagnostic, down.your_discriminator), (1, 0));
                settle(&mut h);
                let session = sessions(&mut h).remove(0);
                assert_eq!((session.state, session.failed, session.ups), (State::Down, true, thread as u64 + 1));
                // It would send about once a second now: make it send at once.
                run(&mut h, &add(family).replace("session add", "session mod"));
            }
            let session = sessions(&mut h).remove(0);
            assert_eq!(session.received, 4);
            assert!(session.sent >= 6, "{}", session.sent);
            let line = add(family);
            let (_, rest) = line.split_once("add ").unwrap();
            let (of, _) = rest.split_once(" desired").unwrap();
            run(&mut h, &format!("bfd udp session del {of}"));
            h.run();
            h.assert_buffers_held(0);
        }
    }
}

#[test]
fn polls_are_answered_and_intervals_agreed_on() {
    let mut h = bed(1);
    run(&mut h, &add(0));
    let own = come_up(&mut h, 0, 0);
    let x0 = x0(&h);
    let mut poll = control(State::Up, own);
    (poll.poll, poll.required_min_rx) = (true, 90_000);
    h.inject(x0, &frame(0, 255, &poll.to_bytes()));
    let answer = until_said(&mut h, 0, "an answer", |c| c.is_final);
    assert!(!answer.poll);
    let mut last = control(State::Up, own);
    (last.is_final, last.required_min_rx) = (true, 90_000);
    h.inject(x0, &frame(0, 255, &last.to_bytes()));
    h.until("the interval of the peer", |h| sessions(h)[0].tx_interval == 90_000);
}

#[test]
fn packets_of_no_session_are_dropped_each_for_its_reason() {
    let mut h = bed(0);
    let x0 = x0(&h);
    let down = control(State::Down, 0).to_bytes();
    h.exchange(x0, &frame(0, 255, &down));
    assert_eq!(h.count("ip4-udp-lookup", "port unreachable asked for"), 1, "nobody listens while there are no sessions");
    run(&mut h, &add(0));
    let own = sessions(&mut h)[0].local_discriminator;
    let changed = |at: usize, value: u8| {
        let mut bytes = control(State::Down, own).to_bytes();
        bytes[at] = value;
        bytes
    };
    let cases = [
        (frame(0, 254, &down), "TTL or hop limit is not 255"),
        (frame(0, 255, &down[..LEN - 1]), "shorter than its length fields say"),
        (frame(0, 255, &changed(3, 99)), "shorter than its length fields say"),
        (frame(0, 255, &changed(0, 0)), "unknown version"),
        (frame(0, 255, &changed(2, 0)), "detection multiplier is 0"),
        (frame(0, 255, &changed(1, 0x41)), "multipoint bit is set"),
        (frame(0, 255, &control(State::Up, 0).to_bytes()), "your discriminator is 0 in a state that has one"),
        (frame(0, 255, &control(State::Up, own ^ 1).to_bytes()), "no session with this discriminator"),
    ];
    for (frame, reason) in cases {
        let before = h.count("bfd-udp4-input", reason);
        h.exchange(x0, &frame);
        assert_eq!(h.count("bfd-udp4-input", reason), before + 1, "{reason}: {:?}", h.counts());
    }
    let mut authenticated = control(State::Down, own).to_bytes().to_vec();
    authenticated[1] |= 4;
    authenticated[3] = 26;
    authenticated.extend([1, 2]);
    h.exchange(x0, &frame(0, 255, &authenticated));
    assert_eq!(h.count("bfd-session", "authenticated, the session is not"), 1);
    // Of another host on the link, with and without the session's number.
    let other = |data: &[u8]| {
        let frame = quiver_wire::build::Packet::ethernet(super::host_mac(0), super::router_mac(0));
        frame.ipv4([10, 0, 0, 9], [10, 0, 0, 1]).ttl(255).udp(50_000, 3784).payload(data).build()
    };
    h.exchange(x0, &other(&down));
    h.exchange(x0, &other(&control(State::Down, own).to_bytes()));
    assert_eq!(h.count("bfd-udp4-input", "no session with this peer"), 1);
    assert_eq!(h.count("bfd-udp4-input", "session is with another peer or on another interface"), 1);
    assert_eq!(sessions(&mut h)[0].state, State::Down, "none of them has moved it");
    assert_eq!(sessions(&mut h)[0].received, 0);
    h.assert_buffers_held(0);
}

#[test]
fn sessions_of_a_worker_that_leaves_go_on_at_another() {
    let mut h = bed(2);
    run(&mut h, &add(0));
    run(&mut h, &add(1));
    let threads = |h: &mut Harness| sessions(h).into_iter().map(|session| session.thread).collect::<Vec<_>>();
    assert_ne!(threads(&mut h)[0], threads(&mut h)[1], "they are spread");
    let before = sessions(&mut h).iter().map(|session| session.local_discriminator).collect::<Vec<_>>();
    h.router.set_workers(&[ThreadPlan::default()]).unwrap();
    assert_eq!(threads(&mut h)[0], threads(&mut h)[1]);
    assert_eq!(sessions(&mut h).iter().map(|session| session.local_discriminator).collect::<Vec<_>>(), before);
    h.router.set_workers(&[]).unwrap();
    for family in [0, 1] {
        let x0 = x0(&h);
        h.inject(x0, &frame(family, 255, &control(State::Down, 0).to_bytes()));
        until_said(&mut h, family, "an answer from main", |c| c.state == State::Init);
    }
}

#[test]
fn sessions_go_with_their_interface_and_nobody_listens_behind_them() {
    let mut h = bed(1);
    run(&mut h, &add(0));
    run(&mut h, &add(1));
    let x0 = x0(&h);
    let has = |h: &Harness| h.router.udp_ports(FamilyId::V6).iter().any(|(port, _)| *port == 3784);
    assert!(has(&h));
    h.router.delete_interface(x0).unwrap();
    assert!(sessions(&mut h).is_empty() && !has(&h));
    assert!(error(&mut h, "show bfd session 0").contains("no session 0"));
}

#[test]
fn an_interface_that_is_down_is_sent_nothing() {
    let mut h = bed(0);
    run(&mut h, "set interface state x0 down");
    run(&mut h, &add(0));
    assert!(h.run().is_empty());
    assert_eq!(h.count("bfd-process", "no path to the peer"), 1);
}

#[test]
fn a_session_held_down_says_so_and_takes_nothing() {
    let mut h = bed(1);
    run(&mut h, &add(0));
    let own = come_up(&mut h, 0, 0);
    run(&mut h, "bfd udp session set-flags interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin down");
    let last = until_said(&mut h, 0, "admin down", |c| c.state == State::AdminDown);
    assert_eq!(last.diagnostic, 7);
    let x0 = x0(&h);
    h.inject(x0, &frame(0, 255, &control(State::Down, own).to_bytes()));
    h.run();
    assert_eq!(sessions(&mut h)[0].state, State::AdminDown);
    assert!(!sessions(&mut h)[0].failed);
    run(&mut h, "bfd udp session set-flags interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2 admin up");
    until_said(&mut h, 0, "down", |c| c.state == State::Down);
}
