//! FRR's `bfdd`: as the peer of the router's sessions, with echo packets, and as the BFD of a host interface beside them.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_testbed::{Frr, Host, LinkOptions, Router, Scenario};

/// Both sides send every 50 ms. The machine of a test may do other things for longer than three of these: 2.5 s, where a session that is
/// lost for a moment does no harm.
const TIMING: &str = "desired-min-tx 50000 required-min-rx 50000 detect-mult 50";
/// 10 s, where it must not be lost.
const PATIENT: &str = "desired-min-tx 50000 required-min-rx 50000 detect-mult 200";

/// A peer in FRR's words, which is lost after 10 s.
fn peer(address: &str, own: &str, interface: &str, more: &str) -> String {
    format!(
        " peer {address} local-address {own} interface {interface}\n  detect-multiplier 200\n  receive-interval 50\n  \
         transmit-interval 50\n{more} !\n"
    )
}

/// `bfdd` with peers.
fn bfdd(host: &Host, peers: &str) -> Frr {
    let mut frr = Frr::new(host).unwrap();
    frr.start("zebra", "", "").unwrap();
    let control = frr.file("bfdd.sock").display().to_string();
    frr.start("bfdd", &format!("bfd\n{peers}!\n"), &format!("--bfdctl {control}")).unwrap();
    frr
}

/// Echo packets of a `bfdd` that have come back to it.
fn echoes(frr: &Frr) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&frr.show("bfdd", "show bfd peers counters json").unwrap()).unwrap();
    shown.as_array().unwrap().iter().filter_map(|peer| peer["echo-packet-input"].as_u64()).sum()
}

/// How many sessions of `bfdd` are up.
fn theirs_up(frr: &Frr) -> usize {
    frr.show("bfdd", "show bfd peers json").unwrap().matches("\"status\":\"up\"").count()
}

fn ours(router: &Router) -> Vec<serde_json::Value> {
    let shown = router.cli_json("show bfd sessions").unwrap();
    serde_json::from_str(&shown).unwrap()
}

fn ours_up(router: &Router) -> usize {
    ours(router).iter().filter(|session| session["state"] == "up").count()
}

#[test]
fn bfdd_comes_up_and_echo_packets_return_in_both_directions() {
    let Some(_scenario) = Scenario::begin(&["ip", Frr::PROGRAM]) else { return };
    let [middle, host] = ["router", "peer"].map(|name| Host::new(name).unwrap());
    host.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
    middle.disable_ipv6("r0").unwrap();
    host.ip("addr add 10.0.0.2/24 dev eth0\naddr add 2001:db8::2/64 dev eth0 nodad").unwrap();
    // The kernel forwards the router's echo packets back to where they came from.
    host.sh(
        "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/eth0/send_redirects; \
             echo 0 > /proc/sys/net/ipv4/conf/all/send_redirects",
        BOUND,
    )
    .unwrap()
    .expect("forwarding");
    let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
    let add =
        |local: &str, peer: &str| format!("bfd udp session add interface host-r0 local-addr {local} peer-addr {peer} {TIMING}\n");
    router
        .script(&format!(
            "create host-interface name r0\nset interface state host-r0 up\n\
             set interface ip address host-r0 10.0.0.1/24\nset interface ip address host-r0 2001:db8::1/64\n\
             create loopback interface\nset interface state loop0 up\nset interface ip address loop0 10.255.0.1/31\n{}{}",
            add("10.0.0.1", "10.0.0.2"),
            add("2001:db8::1", "2001:db8::2"),
        ))
        .expect("configuration");
    // It sends seldom, and so notices later than ours that they come back no longer: 50 of them, as our multiplier says.
    let echo = "  echo-mode\n  echo receive-interval 50\n  echo transmit-interval 200\n";
    let peers = peer("10.0.0.1", "10.0.0.2", "eth0", echo) + &peer("2001:db8::1", "2001:db8::2", "eth0", "");
    let mut frr = bfdd(&host, &peers);
    eventually("our sessions up", BOUND, || ours_up(&router) == 2);
    eventually("bfdd's sessions up", BOUND, || theirs_up(&frr) == 2);
    // It addresses them to itself: the router forwards them like any packet.
    eventually("bfdd's echo packets come back", BOUND, || echoes(&frr) > 5);
    router.cli("bfd udp echo-source set interface loop0").unwrap();
    let returned = || ours(&router).iter().any(|session| session["echo_received"].as_u64() > Some(5));
    eventually("our echo packets come back", BOUND, returned);
    eventually("all sessions are up beside them", BOUND, || (ours_up(&router), theirs_up(&frr)) == (2, 2));
    // The peer's kernel forwards nothing any more, and its bfdd goes on.
    host.sh("echo 0 > /proc/sys/net/ipv4/ip_forward", BOUND).unwrap().expect("no forwarding");
    // Ours notices first: bfdd waits for its own echo packets for 10 s. Control packets still pass, so the session is up again a moment
    // later: the log has seen it.
    let failed = || router.log().contains("Echo Function Failed");
    eventually("the echo function notices", BOUND, failed);
    host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward", BOUND).unwrap().expect("forwarding");
    eventually("up again", BOUND, || ours_up(&router) == 2 && theirs_up(&frr) == 2);
    // While echo packets come back, control packets may be missing for long: they do so no longer.
    frr.kill("bfdd").unwrap();
    host.sh("echo 0 > /proc/sys/net/ipv4/ip_forward", BOUND).unwrap().expect("no forwarding");
    eventually("down without bfdd", BOUND, || ours_up(&router) == 0);
    assert_buffers_are_back(&router);
}

#[test]
fn bfdd_on_a_host_interface_has_sessions_beside_those_of_the_router() {
    let Some(_scenario) = Scenario::begin(&["ip", Frr::PROGRAM]) else { return };
    for workers in [0, 2] {
        let [middle, linux, host] = ["router", "linux", "peer"].map(|name| Host::new(name).unwrap());
        host.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        middle.disable_ipv6("r0").unwrap();
        host.ip("addr add 10.0.0.2/24 dev eth0").unwrap();
        let keeper = linux.background("sleep 86400").unwrap();
        let router = Router::start(&middle, &format!("cpu {{ workers {workers} }}")).expect("router");
        router
            .script(&format!(
                "create host-interface name r0\nset interface state host-r0 up\n\
                 set interface ip address host-r0 10.0.0.1/24\nset interface ip address host-r0 10.0.0.4/24\nlcp create host-r0 host-if e0 netns pid:{}\n",
                keeper.pid()
            ))
            .expect("configuration");
        linux.address("e0", "10.0.0.1/24").unwrap();
        linux.address("e0", "10.0.0.4/24").unwrap();
        // bfdd has one session per peer and interface, whatever its own address: the router's and the daemon's are two peers of it.
        let own = bfdd(&linux, &peer("10.0.0.2", "10.0.0.4", "e0", ""));
        let peers = peer("10.0.0.1", "10.0.0.2", "eth0", "") + &peer("10.0.0.4", "10.0.0.2", "eth0", "");
        let other = bfdd(&host, &peers);
        eventually("the daemon's session, while the router has none", BOUND, || theirs_up(&own) == 1);
        router.cli(&format!("bfd udp session add interface host-r0 local-addr 10.0.0.1 peer-addr 10.0.0.2 {PATIENT}")).unwrap();
        eventually("both", BOUND, || ours_up(&router) == 1 && theirs_up(&own) == 1 && theirs_up(&other) == 2);
        assert_eq!(ours(&router)[0]["ups"], 1);
        router.cli("bfd udp session del interface host-r0 local-addr 10.0.0.1 peer-addr 10.0.0.2").unwrap();
        eventually("the peer notices that one is gone", BOUND, || theirs_up(&other) == 1);
        assert_eq!(theirs_up(&own), 1, "the daemon's goes on");
        assert_buffers_are_back(&router);
    }
}
