//! Real hosts, the router between them: what a user would try first.

use crate::common;

use common::left::Survivor;
use common::{BOUND, assert_buffers_are_back, counter, errors, eventually, iperf3, kills, number_after, ping_in_turn, workers};
use quiver_testbed::{LinkOptions, Offloads, Scenario, Side, TwoHosts, TwoHostsOptions, is_short_pass};

fn scene(offloads: Offloads) -> TwoHosts {
    TwoHosts::new(TwoHostsOptions { offloads, ..Default::default() }).expect("two hosts")
}

/// Pings in both directions and both families.
fn assert_reachable(scene: &TwoHosts) {
    for (host, to) in [(&scene.a, TwoHosts::B4), (&scene.b, TwoHosts::A4), (&scene.a, TwoHosts::B6), (&scene.b, TwoHosts::A6)] {
        // The router uses an IPv6 address when it has asked for a second whether somebody else has it (RFC 4862).
        eventually(&format!("an answer from {to}"), BOUND, || host.pings(to, 1).expect("ping"));
        assert!(host.reaches(to, 2).expect("ping"), "no answer from {to}");
    }
}

#[test]
fn tcp_and_udp_pass_in_both_directions_and_nothing_is_lost_inside() {
    let Some(_scenario) = Scenario::begin(&["iperf3"]) else { return };
    for (offloads, workers) in [(Offloads::On, 1), (Offloads::Off, 2)] {
        let scene = scene(offloads);
        let router = scene.start_router(workers).expect("router");
        assert_reachable(&scene);
        let amount = if is_short_pass() { "16M" } else { "256M" };
        for to in [TwoHosts::B4, TwoHosts::B6] {
            for reverse in ["", "--reverse"] {
                let out = iperf3(&scene.a, &scene.b, &format!("--client {to} --bytes {amount} --json {reverse}"));
                let sum = &out[out.find("\"sum_received\"").expect("a sum")..];
                assert!(number_after(sum, "\"bytes\"").expect("bytes") > 1e6, "{out}");
            }
            let line = format!("--client {to} --udp --bitrate 20M --length 1200 --bytes 4M --json");
            iperf3(&scene.a, &scene.b, &line);
        }
        // What the router was given it has sent, or it says why not: no drop reason but the hosts' own chatter.
        for (node, reason) in [("ip4-input", "checksum"), ("ip4-input", "length"), ("ip6-input", "length")] {
            assert_eq!(errors(&router, node, reason), 0, "{node}: {reason}");
        }
        assert_buffers_are_back(&router);
    }
}

#[test]
fn interface_and_error_counters_tell_what_happened() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene(Offloads::Off);
    let router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    router.cli("clear interfaces").expect("clear");
    ping_in_turn(&scene.a, 10, TwoHosts::B4);
    for (interface, word, least) in [("host-r0", "rx packets", 10), ("host-r1", "tx packets", 10), ("host-r0", "rx bytes", 980)] {
        eventually(&format!("{interface} {word}"), BOUND, || counter(&router, interface, word) >= least);
    }
    // A destination nobody has: the router says so, and counts it.
    let out = scene.a.run("ping -c 1 -W 2 203.0.113.9", BOUND).expect("ping");
    assert!(!out.success());
    let text = router.cli("show errors").expect("errors");
    assert!(
        text.starts_with("   Count                  Node                              Reason               Severity"),
        "{text}"
    );
}

#[test]
fn the_six_commands_of_the_measurement_paper_run_as_printed() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene(Offloads::Off);
    let router = scene.start_router_with(1, "", "create host-interface name r0\ncreate host-interface name r1").expect("router");
    // Seed 001, section V.C, but for the interface names; line continuations included.
    let file = router.file("paper.cmd");
    let four = "set interface ip address \\\nhost-r0 198.18.0.1/24\nset interface ip address \\\nhost-r1 198.19.0.1/24\n\
        set interface state host-r0 up\nset interface state host-r1 up\n\
        set ip neighbor host-r0 \\\n198.18.0.2 02:00:00:00:01:02\nset ip neighbor host-r1 \\\n198.19.0.2 02:00:00:00:02:02\n";
    let six = "set interface ip address \\\nhost-r0 2001:2::1/64\nset interface ip address \\\nhost-r1 2001:2:0:8000::1/64\n\
        set ip neighbor host-r0 \\\n2001:2::2 02:00:00:00:01:02\nset ip neighbor host-r1 \\\n2001:2:0:8000::2 02:00:00:00:02:02\n";
    for script in [four, six] {
        std::fs::write(&file, script).expect("script");
        router.cli(&format!("exec {}", file.display())).expect("runs as printed");
    }
    for (host, four, six, gateway4, gateway6) in [
        (&scene.a, "198.18.0.2/24", "2001:2::2/64", "198.18.0.1", "2001:2::1"),
        (&scene.b, "198.19.0.2/24", "2001:2:0:8000::2/64", "198.19.0.1", "2001:2:0:8000::1"),
    ] {
        host.address("eth0", four).expect("address");
        host.address("eth0", six).expect("address");
        host.route("198.16.0.0/12", gateway4).expect("route");
        host.route("2001:2::/48", gateway6).expect("route");
    }
    assert!(scene.a.run("ping -c 2 -W 60 -I 198.18.0.2 198.19.0.2", BOUND).expect("ping").success());
    assert!(scene.a.run("ping -c 2 -W 60 -I 2001:2::2 2001:2:0:8000::2", BOUND).expect("ping").success());
}

#[test]
fn a_link_that_flaps_and_a_device_that_goes_and_returns_keep_working() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene(Offloads::On);
    let mut router = scene.start_router(1).expect("router");
    assert_reachable(&scene);
    for _ in 0..if is_short_pass() { 1 } else { 3 } {
        scene.a.link_down("eth0").expect("down");
        eventually("the router sees the link go", BOUND, || {
            router.cli("show hardware-interfaces host-r0").expect("show").contains("down")
        });
        scene.a.link_up("eth0").expect("up");
        // The kernel forgets routes and IPv6 addresses of a link that goes down.
        let _ = scene.a.address("eth0", "2001:db8:1::2/64");
        let _ = scene.a.route("default", "10.0.1.1");
        let _ = scene.a.route("default", "2001:db8:1::1");
        eventually("reachable again after a flap", BOUND, || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
    }
    // From the side that stays.
    let flood = scene.b.background("ping -q -f 10.0.1.2").expect("ping");
    let mut survivor = Survivor::default();
    for _ in 0..kills(1, 6) {
        let before = counter(&router, "host-r1", "rx packets");
        eventually("load", BOUND, || counter(&router, "host-r1", "rx packets") > before + 100);
        scene.a.delete_link("eth0").expect("delete");
        eventually("the router sees the device go", BOUND, || {
            router.cli("show hardware-interfaces host-r0").expect("show").contains("down")
        });
        scene.connect(Side::A).expect("a new device of that name");
        eventually("reachable again on a new device", BOUND, || scene.a.pings(TwoHosts::B4, 1).expect("ping"));
        assert!(scene.a.reaches(TwoHosts::B6, 2).expect("ping"));
        survivor.check(&router);
    }
    drop(flood);
    assert!(router.is_running());
    assert_buffers_are_back(&router);
}

fn assert_reachable_after_restart(scene: &TwoHosts) {
    let router = scene.start_router(2).expect("router");
    assert_reachable(scene);
    router.stop().expect("a clean end");
}

#[test]
fn tables_keep_apart_what_is_in_them() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = scene(Offloads::Off);
    let commands = "
        create host-interface name r0
        create host-interface name r1
        ip table add 7
        ip6 table add 7
        set interface ip table host-r1 7
        set interface ip6 table host-r1 7
        set interface state host-r0 up
        set interface state host-r1 up
        set interface ip address host-r0 10.0.1.1/24
        set interface ip address host-r1 10.0.2.1/24
        set interface ip address host-r0 2001:db8:1::1/64
        set interface ip address host-r1 2001:db8:2::1/64
    ";
    let router = scene.start_router_with(2, "", commands).expect("router");
    // Each host reaches its own side's address, and nothing beyond.
    assert!(scene.a.reaches("10.0.1.1", 1).expect("ping") && scene.b.reaches("10.0.2.1", 1).expect("ping"));
    assert!(!scene.a.pings(TwoHosts::B4, 1).expect("ping"), "table 7 is not table 0");
    assert!(!scene.a.pings(TwoHosts::B6, 1).expect("ping"));
    // A route from one table into the other opens one direction, two open both.
    router.cli("ip route add 10.0.2.0/24 via ip4-lookup-in-table 7").expect("leak");
    router.cli("ip route add table 7 10.0.1.0/24 via ip4-lookup-in-table 0").expect("leak");
    assert!(scene.a.reaches(TwoHosts::B4, 2).expect("ping"));
}

#[test]
fn equal_paths_share_flows_and_keep_each_flow_on_one() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    // A second link between the router and host b.
    let scene = scene(Offloads::Off);
    let options =
        LinkOptions { offloads: Offloads::Off, macs: [Some([2, 0, 0, 0, 3, 2]), Some([2, 0, 0, 0, 3, 1])], ..Default::default() };
    scene.b.veth("eth1", &scene.middle, "r2", &options).expect("link");
    scene.b.address("eth1", "10.0.3.2/24").expect("address");
    let more = "
        create host-interface name r2
        set interface state host-r2 up
        set interface ip address host-r2 10.0.3.1/24
        ip route add 198.51.100.0/24 via 10.0.2.2 host-r1 via 10.0.3.2 host-r2
    ";
    let router = scene.start_router_with(1, "", &format!("{}{more}", TwoHosts::COMMANDS)).expect("router");
    assert_reachable(&scene);
    assert!(scene.b.reaches("10.0.3.1", 1).expect("ping"));
    router.cli("clear interfaces").expect("clear");
    // Many flows by many destinations; nobody answers, which does not matter here.
    let script = "for i in $(seq 1 200); do ping -c 1 -W 0.01 198.51.100.$i >/dev/null 2>&1 & done; wait";
    scene.a.sh(script, BOUND).expect("flows");
    let sent = || ["host-r1", "host-r2"].map(|interface| counter(&router, interface, "tx packets"));
    eventually("all have left", BOUND, || sent().iter().sum::<u64>() >= 200);
    let [one, two] = sent();
    // Of 200 flows over two equal paths fewer than 50 on one side happens once in 10^13 runs.
    assert!(one >= 50 && two >= 50, "{one} and {two} packets");
}

/// Whatever pages the buffers have.
mod pages {
    use super::*;

    #[test]
    fn hosts_reach_one_another_with_any_number_of_workers_and_offloads_on_and_off() {
        let Some(_scenario) = Scenario::begin(&["ping", "ethtool"]) else { return };
        for offloads in [Offloads::On, Offloads::Off] {
            for workers in workers() {
                let scene = scene(offloads);
                let router = scene.start_router(*workers).expect("router");
                assert_reachable(&scene);
                // All sizes around what changes: empty, header sizes, the MTU.
                for size in [0, 1, 17, 18, 56, 1400, 1471, 1472] {
                    let line = format!("ping -c 2 -i 0.01 -W 60 -s {size} {}", TwoHosts::B4);
                    assert!(scene.a.run(&line, BOUND).expect("ping").success(), "{size} bytes, {workers} workers");
                }
                assert_buffers_are_back(&router);
                router.stop().expect("a clean end");
            }
        }
    }

    #[test]
    fn a_router_that_was_killed_starts_again_and_forwards() {
        let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
        let scene = scene(Offloads::On);
        for _ in 0..kills(1, 3) {
            let mut router = scene.start_router(1).expect("router");
            assert_reachable(&scene);
            router.kill9().expect("kill");
        }
        assert_reachable_after_restart(&scene);
    }
}
