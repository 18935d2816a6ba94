//! ICMP as real hosts see it: echo in all sizes, traceroute, path MTU discovery, unreachable answers, the router's own ping.

use crate::common;

use common::{BOUND, assert_buffers_are_back, assert_router_pings, errors, eventually, iperf3, traceroute, workers};
use quiver_testbed::{Router, Scenario, TwoHosts, TwoHostsOptions};

/// The router's addresses on the side of host a.
const R4: &str = "10.0.1.1";
const R6: &str = "2001:db8:1::1";

fn scene() -> TwoHosts {
    TwoHosts::new(TwoHostsOptions::default()).expect("two hosts")
}

/// Both hosts have been reached once: neighbours are known.
fn warm(scene: &TwoHosts) {
    for (host, to) in [(&scene.a, TwoHosts::B4), (&scene.a, TwoHosts::B6), (&scene.b, TwoHosts::A4), (&scene.b, TwoHosts::A6)] {
        // The router uses an IPv6 address when it has asked for a second whether somebody else has it (RFC 4862).
        eventually(&format!("an answer from {to}"), BOUND, || host.pings(to, 1).expect("ping"));
    }
}

fn run(host: &quiver_testbed::Host, line: &str) -> String {
    let out = host.run(line, BOUND).expect("the program runs");
    assert!(out.success(), "{line}: {out}");
    out.stdout
}

fn limit_off(router: &Router) {
    router.cli("set ip icmp-rate-limit total unlimited").expect("no limit");
}

#[test]
fn the_router_answers_echo_requests_of_all_sizes() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    for workers in workers() {
        let scene = scene();
        let router = scene.start_router(*workers).expect("router");
        warm(&scene);
        for to in [R4, R6] {
            for size in [0, 1, 56, 1452, 1453, 1472, 1473, 2000, 9000, 65_507] {
                // IPv6 requests of this size do not fit a packet.
                let size = if to == R6 { size.min(65_487) } else { size };
                run(&scene.a, &format!("ping -c 2 -i 0.01 -W 60 -s {size} {to}"));
            }
        }
        assert_buffers_are_back(&router);
    }
}

#[test]
fn packets_over_the_mtu_pass_in_fragments_between_hosts() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    warm(&scene);
    for to in [TwoHosts::B4, TwoHosts::B6] {
        for size in [1472, 1473, 4000, 20_000] {
            run(&scene.a, &format!("ping -c 2 -i 0.01 -W 60 -s {size} {to}"));
        }
    }
    assert_buffers_are_back(&router);
}

#[test]
fn traceroute_shows_the_router_and_the_host_behind_it() {
    let Some(_scenario) = Scenario::begin(&["traceroute"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    limit_off(&router);
    warm(&scene);
    for (family, hop, to) in [("-4", R4, TwoHosts::B4), ("-6", R6, TwoHosts::B6)] {
        for method in ["", "-I"] {
            assert_eq!(traceroute(&scene.a, &format!("{family} {method}"), to), [hop, to], "{family} {method}");
        }
    }
}

#[test]
fn a_smaller_mtu_behind_the_router_is_found_and_tcp_passes() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let scene = scene();
        let router = scene.start_router(*workers).expect("router");
        limit_off(&router);
        warm(&scene);
        router.cli("set interface mtu packet 1400 host-r1").expect("mtu");
        // With don't-fragment the sender is told; IPv6 senders always are.
        let told = scene.a.run(&format!("ping -M do -c 1 -W 60 -s 1472 {}", TwoHosts::B4), BOUND).expect("ping");
        assert!(!told.success() && told.stdout.contains("mtu = 1400"), "{told}");
        let told = scene.a.run(&format!("ping -M do -c 1 -W 60 -s 1452 {}", TwoHosts::B6), BOUND).expect("ping");
        assert!(!told.success() && told.to_string().contains("1400"), "{told}");
        run(&scene.a, &format!("ping -M do -c 1 -W 60 -s 1372 {}", TwoHosts::B4));
        run(&scene.a, &format!("ping -M do -c 1 -W 60 -s 1352 {}", TwoHosts::B6));
        // Without it the router cuts.
        scene.a.sh("ip route flush cache", BOUND).expect("flush");
        run(&scene.a, &format!("ping -M dont -c 2 -i 0.01 -W 60 -s 1472 {}", TwoHosts::B4));
        eventually("both are cut", BOUND, || errors(&router, "ip4-frag", "packet fragmented") >= 2);
        scene.a.sh("ip route flush cache; ip -6 route flush cache", BOUND).expect("flush");
        for to in [TwoHosts::B4, TwoHosts::B6] {
            iperf3(&scene.a, &scene.b, &format!("--client {to} --bytes 16M"));
        }
        assert_buffers_are_back(&router);
    }
}

#[test]
fn tracepath_finds_the_mtu() {
    let Some(_scenario) = Scenario::begin(&["tracepath"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    limit_off(&router);
    warm(&scene);
    router.cli("set interface mtu packet 1360 host-r1").expect("mtu");
    for (family, to) in [("-4", TwoHosts::B4), ("-6", TwoHosts::B6)] {
        // It asks three times a hop, a second apart each: where none was answered in time it finds the end by a later one.
        let text = run(&scene.a, &format!("tracepath {family} -n -m 30 {to}"));
        assert!(text.contains("pmtu 1360") && text.contains("reached"), "{text}");
    }
}

#[test]
fn what_the_router_does_not_serve_is_refused_at_once() {
    let Some(_scenario) = Scenario::begin(&["python3"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    limit_off(&router);
    warm(&scene);
    for (family, to) in [("AF_INET", R4), ("AF_INET6", R6)] {
        let udp = format!(
            "import socket\ns=socket.socket(socket.{family},socket.SOCK_DGRAM)\ns.settimeout(60)\ns.connect(('{to}',9))\n\
             s.send(b'x')\ntry:\n  s.recv(9)\nexcept ConnectionRefusedError:\n  print('refused')\n"
        );
        let file = router.folder().join("udp.py");
        std::fs::write(&file, udp).expect("script");
        assert_eq!(run(&scene.a, &format!("python3 {}", file.display())), "refused\n", "{to}");
    }
}

#[test]
fn a_host_is_told_at_once_that_no_route_leads_there() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene();
    let router = scene.start_router(1).expect("router");
    limit_off(&router);
    warm(&scene);
    let ask = |to: &str, wait: u32| scene.a.run(&format!("ping -c 1 -W {wait} {to}"), BOUND).expect("ping").stdout;
    for (family, to, from, said) in [
        ("ip4", "198.51.100.7", R4, "Destination Net Unreachable"),
        ("ip6", "2001:db8:ff::7", R6, "Destination unreachable: No route"),
    ] {
        let text = ask(to, 60);
        assert!(text.contains(said) && text.contains(&format!("From {from}")), "{text}");
        router.cli(&format!("set ip icmp-unreachable {family} off")).expect("silence");
        let text = ask(to, 1);
        assert!(!text.contains("nreachable") && text.contains("100% packet loss"), "{text}");
    }
    for node in ["ip4-drop", "ip6-drop"] {
        eventually("told or not, it is a drop", BOUND, || errors(&router, node, "no route") == 2);
    }
    assert_buffers_are_back(&router);
}

#[test]
fn the_router_pings_hosts_and_tells_who_does_not_answer() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    for workers in workers() {
        let scene = scene();
        let router = scene.start_router(*workers).expect("router");
        warm(&scene);
        for to in [TwoHosts::A4, TwoHosts::B6] {
            assert_router_pings(&router, to);
            // It waits for the last answer for as long as between two requests.
            let text = router.cli(&format!("ping {to} repeat 3 interval 0.05")).unwrap_or_else(|said| said);
            assert!(text.contains("\nStatistics: 3 sent, "), "{text}");
            let text = router.cli(&format!("ping {to} repeat 1 interval 60 size 20000")).expect("ping");
            assert!(text.contains("1 sent, 1 received"), "{text}");
        }
        // The exit status says so, too.
        let text = router.cli("ping 10.0.1.99 repeat 2 interval 0.05").expect_err("nobody answers");
        assert!(text.ends_with("2 sent, 0 received, 100% packet loss\n"), "{text}");
        assert_buffers_are_back(&router);
    }
}
