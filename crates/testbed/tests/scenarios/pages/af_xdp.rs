//! AF_XDP interfaces between kernel hosts: what passes, what is left behind, what happens when things go away.

use crate::common;

use common::left::{Left, Survivor};
use common::{BOUND, counter, eventually, iperf3, kills, number_after, workers};
use quiver_testbed::{Offloads, Router, Scenario, Side, Tag, TwoHosts, TwoHostsOptions};

/// Interfaces `x0` and `x1` on both sides; `more` is added to the commands that create them.
fn commands(more: &str) -> String {
    let mut text = String::new();
    for n in 0..2 {
        let net = n + 1;
        text.push_str(&format!(
            "create interface af_xdp host-if r{n} name x{n} {more}
             set interface state x{n} up
             set interface ip address x{n} 10.0.{net}.1/24
             set interface ip address x{n} 2001:db8:{net}::1/64\n"
        ));
    }
    text
}

/// Whether an XDP program is attached to a device of the router's host.
fn has_program(scene: &TwoHosts, device: &str) -> bool {
    let text = scene.middle.run(&format!("ip link show dev {device}"), BOUND).unwrap().expect("ip link");
    text.contains("xdp")
}

/// All buffers that are in use are those that the kernel has from AF_XDP.
fn assert_no_buffer_is_lost(router: &Router) {
    let used = || -> u64 {
        let text = router.cli("show buffers").expect("show buffers");
        text.lines().skip(1).filter_map(|l| l.split_whitespace().next_back()?.parse::<u64>().ok()).sum()
    };
    let lent = || -> u64 {
        let text = router.cli("show af_xdp").expect("show af_xdp");
        let of = |line: &str| ["lent rx", " tx"].iter().filter_map(|key| number_after(line, key)).sum::<f64>() as u64;
        text.lines().filter(|l| l.contains("buffers lent")).map(of).sum()
    };
    eventually("buffers are with the kernel or back", BOUND, || used() == lent());
}

fn assert_pings(scene: &TwoHosts) {
    for to in [TwoHosts::B4, TwoHosts::B6, "10.0.1.1", "2001:db8:1::1"] {
        // The router uses an IPv6 address only after duplicate address detection.
        eventually(&format!("ping {to}"), BOUND, || scene.a.pings(to, 1).unwrap());
    }
}

#[test]
fn kernel_hosts_reach_each_other_whatever_their_offloads() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", Scenario::BPF]) else { return };
    for attach in ["native", "generic"] {
        for offloads in [Offloads::On, Offloads::Off] {
            for workers in workers() {
                let scene = TwoHosts::new(TwoHostsOptions { offloads, ..Default::default() }).unwrap();
                let router = scene.start_router_with(*workers, "", &commands(attach)).unwrap();
                assert!(has_program(&scene, "r0") && has_program(&scene, "r1"));
                assert_pings(&scene);
                for size in [0, 1, 17, 18, 19, 1000, 1471, 1472] {
                    let line = format!("ping -c 1 -W 60 -M do -s {size} {}", TwoHosts::B4);
                    assert!(scene.a.run(&line, BOUND).unwrap().success(), "{size} bytes, {attach}, {offloads:?}");
                }
                // In fragments: reassembled by the hosts.
                assert!(scene.a.run(&format!("ping -c 2 -W 60 -s 20000 {}", TwoHosts::B4), BOUND).unwrap().success());
                for line in [
                    format!("-c {} -n 32M", TwoHosts::B4),
                    format!("-c {} -n 32M -R", TwoHosts::B6),
                    format!("-c {} -n 4M -u -b 50M -l 1200", TwoHosts::B4),
                ] {
                    let out = iperf3(&scene.a, &scene.b, &line);
                    let bits = out.lines().rfind(|l| l.contains("receiver")).unwrap_or_default().to_owned();
                    assert!(bits.contains("Gbits/sec") || bits.contains("Mbits/sec"), "{attach} {offloads:?} {line}: {out}");
                    println!("{attach} {offloads:?} {workers} workers: {line}: {bits}");
                }
                assert_no_buffer_is_lost(&router);
                router.script("delete interface af_xdp x0\ndelete interface af_xdp x1").unwrap();
                common::assert_buffers_are_back(&router);
                eventually("no program is left", BOUND, || !has_program(&scene, "r0") && !has_program(&scene, "r1"));
                router.stop().unwrap();
            }
        }
    }
}

#[test]
fn several_queues_share_the_load_and_the_memory() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions { queues: 2, ..Default::default() }).unwrap();
    let router = scene.start_router_with(2, "", &commands("num-rx-queues all")).unwrap();
    let text = router.cli("show af_xdp x0").unwrap();
    assert!(text.contains("queue 0:") && text.contains("queue 1:") && text.contains("XDP native copy"), "{text}");
    let placed = router.cli("show interface rx-placement").unwrap();
    assert_eq!(placed.matches("af_xdp-input").count(), 2, "a queue on each worker:\n{placed}");
    assert_pings(&scene);
    iperf3(&scene.a, &scene.b, &format!("-c {} -n 64M -P 8", TwoHosts::B4));
    assert_no_buffer_is_lost(&router);
    router.cli("delete interface af_xdp x0").unwrap();
    let text = router.cli("create interface af_xdp host-if r0 num-rx-queues 1").unwrap();
    assert_eq!(text, "r0/0\n");
    let text = router.cli("show af_xdp r0/0").unwrap();
    assert!(text.contains("1 of 2 queues in use"), "{text}");
    let error = router.cli("create interface af_xdp host-if r1 num-rx-queues 3").unwrap_err();
    assert!(error.contains("invalid num-rx-queues 3 for r1: expected 1 to 2"), "{error}");
}

#[test]
fn large_frames_come_and_go_in_pieces() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", Scenario::BPF]) else { return };
    for attach in ["native", "generic"] {
        for offloads in [Offloads::On, Offloads::Off] {
            let scene = TwoHosts::new(TwoHostsOptions { mtu: 9000, offloads, ..Default::default() }).unwrap();
            let router = scene.start_router_with(1, "", &commands(attach)).unwrap();
            if !router.cli("show af_xdp x0").unwrap().contains("frames in pieces") {
                return quiver_testbed::skip_for_kernel("has no AF_XDP frames in pieces");
            }
            assert_pings(&scene);
            for size in [1472, 1765, 2020, 2021, 4000, 8972] {
                let line = format!("ping -c 1 -W 60 -M do -s {size} {}", TwoHosts::B4);
                assert!(scene.a.run(&line, BOUND).unwrap().success(), "{size} bytes, {attach}");
            }
            iperf3(&scene.a, &scene.b, &format!("-c {} -n 32M", TwoHosts::B4));
            assert_no_buffer_is_lost(&router);
        }
    }
}

#[test]
fn vlans_are_routed_where_the_peer_leaves_tags_in_the_frame() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", Scenario::BPF]) else { return };
    for attach in ["native", "generic"] {
        let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
        let vlan = "create sub-interfaces x0 10\nset interface state x0.10 up\nset interface ip address x0.10 10.7.0.1/24";
        let router = scene.start_router_with(1, "", &format!("{}{vlan}", commands(attach))).unwrap();
        scene.a.run("ethtool -K eth0 txvlan off", BOUND).unwrap().expect("ethtool");
        let _tags = scene.a.speak_vlan("eth0", &[Tag::dot1q(10)]).unwrap();
        scene.a.address("eth0", "10.7.0.2/24").unwrap();
        scene.a.route("10.0.2.0/24", "10.7.0.1").unwrap();
        for to in ["10.7.0.1", TwoHosts::B4] {
            eventually(&format!("ping {to}, {attach}"), BOUND, || scene.a.pings(to, 1).unwrap());
            // A tag comes on top of the MTU.
            let line = format!("ping -c 1 -W 60 -M do -s 1472 {to}");
            assert!(scene.a.run(&line, BOUND).unwrap().success(), "{to}, {attach}");
        }
        assert_no_buffer_is_lost(&router);
    }
}

#[test]
fn a_device_is_taken_up_again_after_it_was_down_or_deleted() {
    let Some(_scenario) = Scenario::begin(&["ping", Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let router = scene.start_router_with(1, "", &commands("")).unwrap();
    assert_pings(&scene);
    scene.a.link_down("eth0").unwrap();
    eventually("the link is down", BOUND, || router.cli("show hardware-interfaces brief x0").unwrap().contains("down"));
    scene.a.link_up("eth0").unwrap();
    scene.a.route("default", "10.0.1.1").unwrap();
    eventually("it works again", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
    // From the side that stays.
    let flood = scene.b.background("ping -q -f 10.0.1.2").unwrap();
    let mut survivor = Survivor::default();
    for _ in 0..kills(2, 10) {
        let before = counter(&router, "x1", "rx packets");
        eventually("load", BOUND, || counter(&router, "x1", "rx packets") > before + 100);
        scene.middle.delete_link("r0").unwrap();
        eventually("the router sees it", BOUND, || router.cli("show af_xdp x0").unwrap().contains("device is gone"));
        assert!(scene.b.reaches("10.0.2.1", 2).unwrap(), "the other interface goes on");
        scene.connect(Side::A).unwrap();
        eventually("it works again", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
        assert!(has_program(&scene, "r0"));
        survivor.check(&router);
    }
    drop(flood);
    assert_no_buffer_is_lost(&router);
    router.script("set interface state x0 down\nset interface state x0 up").unwrap();
    eventually("after down and up", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
    router.script("delete interface af_xdp x0\ndelete interface af_xdp x1").unwrap();
    common::assert_buffers_are_back(&router);
}

pub fn nothing_is_left_of_a_killed_router() {
    let Some(_scenario) = Scenario::alone(&["ping", Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let flood = scene.a.background(&format!("ping -q -f {}", TwoHosts::B4)).unwrap();
    let before = Left::now(&scene.middle);
    for _ in 0..kills(3, 10) {
        let mut router = scene.start_router_with(1, "", &commands("")).unwrap();
        eventually("traffic passes", BOUND, || counter(&router, "x1", "rx packets") > 5);
        router.kill9().unwrap();
        drop(router);
        eventually("no program is left", BOUND, || !has_program(&scene, "r0") && !has_program(&scene, "r1"));
    }
    before.assert_same(&scene.middle);
    drop(flood);
}

#[test]
fn a_device_that_another_program_has_is_left_alone() {
    let Some(_scenario) = Scenario::begin(&[Scenario::BPF]) else { return };
    let scene = TwoHosts::new(TwoHostsOptions::default()).unwrap();
    let first = scene.start_router_with(0, "", &commands("")).unwrap();
    let second = scene.start_router_with(0, "", "").unwrap();
    let error = second.cli("create interface af_xdp host-if r0").unwrap_err();
    assert!(error.contains("r0") && error.contains("another program") && !error.contains('\n'), "{error}");
    let error = second.cli("create interface af_xdp host-if r0 zero-copy").unwrap_err();
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(second.cli("show af_xdp").unwrap(), "");
    assert_pings(&scene);
    first.stop().unwrap();
    eventually("free again", BOUND, || second.cli("create interface af_xdp host-if r0").is_ok());
}
