//! Sessions with a router that is not on the link.

use quiver_graph::IfIndex;
use quiver_net::ip::FamilyId;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::build::Packet;

use super::{bed, control, error, run, sessions};
use crate::packet::{Control, State};
use crate::process;

const FAR: [u8; 4] = [192, 0, 2, 9];
const OWN: [u8; 4] = [10, 0, 1, 1];
const OF: &str = "multihop local-addr 10.0.1.1 peer-addr 192.0.2.9";

fn add() -> String {
    format!("bfd udp session add {OF} desired-min-tx 20000 required-min-rx 20000 detect-mult 3")
}

/// A packet of the peer, which has come over some routers.
fn frame(n: u8, state: State, your_discriminator: u32) -> Vec<u8> {
    let data = Control { detect_mult: 3, ..control(state, your_discriminator) }.to_bytes();
    Packet::ethernet(host_mac(n), router_mac(n)).ipv4(FAR, OWN).ttl(250).udp(50_000, 4784).payload(&data).build()
}

/// Waits for a packet to the peer in a state; where it left, and what it says.
fn said(h: &mut Harness, state: State) -> (IfIndex, Control) {
    let mut found = None;
    h.until("a packet to the peer", |h| {
        for (interface, frame) in h.run() {
            if frame.len() < 66 || frame[30..34] != FAR {
                continue;
            }
            assert_eq!((&frame[26..30], frame[22], &frame[36..38]), (&OWN[..], 255, &4784_u16.to_be_bytes()[..]));
            let control = Control::parse(&frame[42..]).unwrap();
            assert_eq!(control.required_min_echo_rx, 0, "echo packets do not cross routers");
            if control.state == state {
                found = Some((interface, control));
            }
        }
        found.is_some()
    });
    found.unwrap()
}

fn settle(h: &mut Harness) {
    let now = h.router.graph.clock().timer_now();
    h.router.wake_process(process::NAME, 0);
    while h.router.run_processes(now).is_some_and(|due| due <= now) {}
}

#[test]
fn packets_follow_the_routes_and_come_in_anywhere_in_the_table() {
    for workers in [0, 2] {
        let mut h = bed(workers);
        run(
            &mut h,
            &format!(
                "set ip neighbor x1 10.0.1.2 02:00:00:00:10:01 static
                 ip route add 192.0.2.0/24 via 10.0.0.2 x0
                 {}",
                add()
            ),
        );
        let [x0, x1] = ["x0", "x1"].map(|name| h.router.interfaces.by_name(name).unwrap().index);
        let (by, first) = said(&mut h, State::Down);
        assert_eq!(by, x0);
        h.inject_many(x1, &[frame(1, State::Init, first.my_discriminator)], 1);
        assert_eq!(said(&mut h, State::Up).0, x0, "whichever interface the peer is heard by");
        run(&mut h, "ip route add 192.0.2.9/32 via 10.0.1.2 x1");
        h.until("the other way", |h| {
            run(h, &add().replace("session add", "session mod"));
            h.run().iter().any(|(by, frame)| *by == x1 && frame.len() >= 66 && frame[30..34] == FAR)
        });
        let session = sessions(&mut h).remove(0);
        assert_eq!((session.interface, session.table), (None, Some(0)));
        assert!(run(&mut h, "show bfd sessions").contains("multihop"));
        run(&mut h, &format!("bfd udp session del {OF}"));
        assert!(!h.router.udp_ports(FamilyId::V4).iter().any(|(port, _)| [3784, 4784].contains(port)));
        h.run();
        h.assert_buffers_held(0);
    }
}

#[test]
fn recursive_routes_by_a_peer_that_is_lost_take_another_path() {
    let mut h = bed(1);
    h.interface(2);
    run(
        &mut h,
        &format!(
            "set interface ip address x2 10.0.2.1/24
             set ip neighbor x1 10.0.1.2 02:00:00:00:10:01 static
             ip route add 192.0.2.0/24 via 10.0.0.2 x0
             ip route add 20.0.0.0/8 via 192.0.2.9
             ip route add 20.0.0.0/8 via 10.0.1.2 x1 preference 10
             {}",
            add()
        ),
    );
    let [x0, x1] = ["x0", "x1"].map(|name| h.router.interfaces.by_name(name).unwrap().index);
    let out = |h: &Harness| {
        let route = h.router.route_lookup(0, "20.0.0.1".parse().unwrap()).unwrap();
        let leaves = route.buckets.iter().map(|bucket| h.router.data.adjacencies.get(bucket.index()).tx_if);
        leaves.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(out(&h), [x0]);
    let (_, first) = said(&mut h, State::Down);
    h.inject(x0, &frame(0, State::Init, first.my_discriminator));
    said(&mut h, State::Up);
    assert_eq!(out(&h), [x0]);
    let (by, down) = said(&mut h, State::Down);
    assert_eq!((by, down.diagnostic), (x0, 1), "packets to the peer itself go on");
    settle(&mut h);
    assert!(sessions(&mut h)[0].failed);
    assert_eq!(out(&h), [x1]);
    run(&mut h, &format!("bfd udp session del {OF}"));
    assert_eq!(out(&h), [x0]);
}

#[test]
fn a_session_in_another_table_holds_it_and_hears_what_comes_in_there() {
    let mut h = bed(0);
    h.interface(2);
    run(&mut h, "ip table add 7");
    let line = format!("{} table 7", add());
    assert!(error(&mut h, &line).contains("no interface in table 7 has the address 10.0.1.1"));
    run(
        &mut h,
        &format!(
            "set interface ip table x2 7
             set interface ip address x2 10.0.1.1/24
             set ip neighbor x2 10.0.1.2 02:00:00:00:10:02 static
             ip route add 192.0.2.0/24 table 7 via 10.0.1.2 x2
             {line}"
        ),
    );
    let x2 = h.router.interfaces.by_name("x2").unwrap().index;
    let x1 = h.router.interfaces.by_name("x1").unwrap().index;
    let (by, first) = said(&mut h, State::Down);
    assert_eq!(by, x2);
    h.inject(x1, &frame(1, State::Init, first.my_discriminator));
    h.run();
    let other = "session is with another peer or on another interface";
    assert_eq!(h.count("bfd-udp4-input", other), 1, "table 0 is another one");
    h.inject(x2, &frame(2, State::Init, first.my_discriminator));
    said(&mut h, State::Up);
    let refused = error(&mut h, "ip table del 7");
    assert!(refused.contains("BFD session"), "{refused}");
    assert!(run(&mut h, "show bfd session 0").contains("table 7"));
    run(&mut h, &format!("bfd udp session del {OF} table 7"));
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut h = bed(0);
    let line = |of: &str| add().replace(OF, of);
    for (of, text) in [
        ("multihop interface x0 local-addr 1.1.1.1 peer-addr 2.2.2.2", "interface cannot be specified when multihop is enabled"),
        ("local-addr 1.1.1.1 peer-addr 2.2.2.2", "interface must be set if not multihop"),
        ("interface x0 table 7 local-addr 10.0.0.1 peer-addr 10.0.0.2", "table is for multihop sessions"),
        ("multihop table 9 local-addr 10.0.0.1 peer-addr 10.0.0.2", "there is no table 9"),
        ("multihop local-addr 10.0.0.3 peer-addr 10.0.0.2", "no interface in table 0 has the address 10.0.0.3"),
        ("multihop local-addr 10.0.0.1 peer-addr 224.0.0.5", "no address of a router elsewhere"),
        ("multihop local-addr 2001:db8::1 peer-addr fe80::5", "no address of a router elsewhere"),
        ("multihop local-addr 2001:db8::1 peer-addr 10.0.0.1", "must be IPv4 or both IPv6"),
    ] {
        let refused = error(&mut h, &line(of));
        assert!(refused.contains(text), "{of}: {refused}");
    }
    assert!(sessions(&mut h).is_empty());
}
