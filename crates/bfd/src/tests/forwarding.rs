//! Routes by a next hop with a session.

use quiver_graph::IfIndex;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_wire::build::Packet;

use super::{add, bed, come_up, come_up_with, control, frame, run, sessions, until_said, x0};
use crate::packet::State;
use crate::process;

/// Where a packet leaves that comes in on x2, as soon as main has taken its notices.
fn leaves(h: &mut Harness) -> Vec<IfIndex> {
    h.router.wake_process(process::NAME, 0);
    let now = h.router.graph.clock().timer_now();
    while h.router.run_processes(now).is_some_and(|due| due <= now) {}
    h.run();
    let x2 = h.router.interfaces.by_name("x2").unwrap().index;
    let sent = Packet::ethernet(host_mac(2), router_mac(2)).ipv4([10, 0, 2, 2], [20, 0, 0, 1]).udp(1, 9).payload(&[7; 40]).build();
    h.inject(x2, &sent);
    let mut out = Vec::new();
    h.until("the packet leaves", |h| {
        out.extend(h.run().into_iter().filter(|(_, frame)| frame.len() == sent.len()).map(|(interface, _)| interface));
        !out.is_empty()
    });
    out
}

/// A route by the peer on x0, and one by x1 for when that is dead.
fn two_ways() -> (Harness, [IfIndex; 2]) {
    let mut h = bed(1);
    let x1 = h.router.interfaces.by_name("x1").unwrap().index;
    h.interface(2);
    run(
        &mut h,
        "set interface ip address x2 10.0.2.1/24
         set ip neighbor x1 10.0.1.2 02:00:00:00:10:01 static
         ip route add 20.0.0.0/8 via 10.0.0.2 x0
         ip route add 20.0.0.0/8 via 10.0.1.2 x1 preference 10",
    );
    let x0 = x0(&h);
    (h, [x0, x1])
}

#[test]
fn packets_leave_by_the_backup_while_the_session_is_lost() {
    let (mut h, [x0, x1]) = two_ways();
    assert_eq!(leaves(&mut h), [x0]);
    run(&mut h, &add(0));
    assert_eq!(leaves(&mut h), [x0], "a session that has never been up says nothing about the path");
    for _ in 0..2 {
        come_up_with(&mut h, 0, 0, 3);
        until_said(&mut h, 0, "down", |c| c.state == State::Down);
        assert!(sessions(&mut h)[0].failed);
        assert_eq!(leaves(&mut h), [x1]);
        run(&mut h, &add(0).replace("session add", "session mod"));
    }
    come_up(&mut h, 0, 0);
    assert_eq!(leaves(&mut h), [x0], "it is up again");
}

#[test]
fn a_session_that_is_removed_or_switched_off_keeps_nothing_back() {
    let (mut h, [x0, x1]) = two_ways();
    let of = "interface x0 local-addr 10.0.0.1 peer-addr 10.0.0.2";
    for end in [format!("bfd udp session del {of}"), format!("bfd udp session set-flags {of} admin down")] {
        run(&mut h, &add(0));
        let own = come_up(&mut h, 0, 0);
        // The peer says that it does not hear us.
        h.inject(x0, &frame(0, 255, &control(State::Down, own).to_bytes()));
        until_said(&mut h, 0, "down", |c| c.state == State::Down);
        assert_eq!(leaves(&mut h), [x1]);
        run(&mut h, &end);
        assert_eq!(leaves(&mut h), [x0], "{end}");
    }
}
