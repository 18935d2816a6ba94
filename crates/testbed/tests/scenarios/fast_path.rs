//! The fast path of AF_XDP and host interfaces between kernel hosts: what stays in the kernel passes and counts as what the graph forwards,
//! and changes take effect with their command.

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{BOUND, counter, eventually, iperf3, lost_pings};
use quiver_testbed::{Host, Offloads, Router, Scenario, TwoHosts, TwoHostsOptions, skip_for_kernel};

/// Where packets meet the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// AF_XDP.
    Driver,
    /// Packet sockets.
    Ingress,
}

impl Hook {
    /// Whether the kernel has it.
    fn is_there(self) -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_there = self == Self::Driver || version >= (6, 6);
        if !is_there {
            skip_for_kernel("has no ingress hook for programs (Linux 6.6)");
        }
        is_there
    }
}

/// Interfaces `x0` and `x1`, with these hooks.
fn commands(hooks: [Hook; 2]) -> String {
    let one = |n: usize| {
        let net = n + 1;
        let create = match hooks[n] {
            Hook::Driver => format!("create interface af_xdp host-if r{n} name x{n} native"),
            Hook::Ingress => format!("create host-interface name r{n}\nset interface name host-r{n} x{n}"),
        };
        format!(
            "{create}
             set interface state x{n} up
             set interface ip address x{n} 10.0.{net}.1/24
             set interface ip address x{n} 2001:db8:{net}::1/64\n"
        )
    };
    format!("set host-interface fast-path on\n{}{}", one(0), one(1))
}

/// Deletes both, and waits until all packet buffers are back.
fn delete(router: &Router, hooks: [Hook; 2]) {
    for (n, hook) in hooks.into_iter().enumerate() {
        let line = match hook {
            Hook::Driver => format!("delete interface af_xdp x{n}"),
            Hook::Ingress => format!("delete host-interface name r{n}"),
        };
        router.cli(&line).unwrap();
    }
    common::assert_buffers_are_back(router);
}

/// A veth takes frames of other devices' programs while its other end works as a card does.
fn scene(offloads: Offloads) -> TwoHosts {
    let scene = TwoHosts::new(TwoHostsOptions { offloads, ..Default::default() }).unwrap();
    for host in [&scene.a, &scene.b] {
        host.run("ethtool -K eth0 gro on", BOUND).unwrap().expect("ethtool");
    }
    scene
}

/// What `show xdp fast-path` says.
fn shown(router: &Router) -> serde_json::Value {
    serde_json::from_str(&router.cli_json("show xdp fast-path").unwrap()).unwrap()
}

/// Packets that came in by an interface and left in the kernel, IPv4 and IPv6, and those that left by it.
fn forwarded(router: &Router, name: &str) -> [u64; 3] {
    let all = shown(router);
    let found = all["interfaces"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default();
    ["received4", "received6", "sent"].map(|key| found[key].as_u64().unwrap_or(0))
}

/// Ready: both interfaces take part, and pings pass without the graph.
fn ready(scene: &TwoHosts, router: &Router) {
    for (to, family) in [(TwoHosts::B4, 0), (TwoHosts::B6, 1)] {
        eventually(&format!("{to} is reached in the kernel"), BOUND, || {
            let before = [forwarded(router, "x0"), forwarded(router, "x1")];
            let answered = scene.a.pings(to, 1).unwrap();
            let after = [forwarded(router, "x0"), forwarded(router, "x1")];
            answered && (0..2).all(|n| after[n][family] > before[n][family])
        });
    }
}

#[test]
fn what_the_graph_has_decided_stays_in_the_driver_and_counts_the_same() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "ethtool", Scenario::BPF]) else { return };
    stays_in_the_kernel([Hook::Driver; 2]);
}

#[test]
fn what_the_graph_has_decided_stays_at_the_ingress_hook_and_counts_the_same() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "ethtool", Scenario::BPF]) else { return };
    stays_in_the_kernel([Hook::Ingress; 2]);
}

#[test]
fn what_the_graph_has_decided_goes_from_hook_to_hook() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3", "ethtool", Scenario::BPF]) else { return };
    stays_in_the_kernel([Hook::Driver, Hook::Ingress]);
}

/// Frames that a host's device has received.
fn received_frames(host: &Host) -> u64 {
    let shown = host.run("cat /sys/class/net/eth0/statistics/rx_packets", BOUND).unwrap().expect("cat");
    shown.trim().parse().unwrap()
}

fn stays_in_the_kernel(hooks: [Hook; 2]) {
    if !hooks.into_iter().all(Hook::is_there) {
        return;
    }
    for offloads in [Offloads::On, Offloads::Off] {
        let scene = scene(offloads);
        let router = scene.start_router_with(1, "", &commands(hooks)).unwrap();
        ready(&scene, &router);
        let read = || [counter(&router, "x0", "rx packets"), counter(&router, "x1", "tx packets"), forwarded(&router, "x0")[0]];
        let before = read();
        assert_eq!(lost_pings(&scene.a, 200, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
        for (name, n) in [("rx packets", 0), ("tx packets", 1), ("in the kernel", 2)] {
            eventually(name, BOUND, || read()[n] >= before[n] + 200);
        }
        for size in [0, 1, 17, 18, 19, 1000, 1471, 1472] {
            let line = format!("ping -c 1 -W 60 -M do -s {size} {}", TwoHosts::B4);
            assert!(scene.a.run(&line, BOUND).unwrap().success(), "{size} bytes, {offloads:?}");
        }
        // In fragments, which take the graph.
        assert!(scene.a.run(&format!("ping -c 2 -W 60 -s 20000 {}", TwoHosts::B4), BOUND).unwrap().success());
        for line in [
            format!("-c {} -n 64M", TwoHosts::B4),
            format!("-c {} -n 64M -R", TwoHosts::B6),
            format!("-c {} -n 4M -u -b 50M -l 1200", TwoHosts::B4),
        ] {
            let before = [forwarded(&router, "x0"), forwarded(&router, "x1")];
            let (frames, segments) = (received_frames(&scene.b), counter(&router, "x1", "tx packets"));
            let out = iperf3(&scene.a, &scene.b, &line);
            let bits = out.lines().rfind(|l| l.contains("receiver")).unwrap_or_default();
            assert!(bits.contains("Gbits/sec") || bits.contains("Mbits/sec"), "{offloads:?} {line}: {out}");
            let after = [forwarded(&router, "x0"), forwarded(&router, "x1")];
            println!(
                "{offloads:?} {line}: {bits}; in the kernel from x0 {:?} to {:?}, x1 {:?} to {:?}",
                before[0], after[0], before[1], after[1]
            );
            assert!(after.iter().flatten().sum::<u64>() > before.iter().flatten().sum::<u64>() + 2000, "{before:?} {after:?}");
            if hooks == [Hook::Ingress; 2] && offloads == Offloads::On && line.ends_with("64M") {
                // Super-frames pass whole, and count as the segments that they stand for.
                let frames = received_frames(&scene.b) - frames;
                let segments = counter(&router, "x1", "tx packets") - segments;
                assert!(segments > 40_000 && segments > 4 * frames, "{segments} segments in {frames} frames");
            }
        }
        // The graph answers a packet at its last hop.
        assert!(!scene.a.run(&format!("ping -c 1 -W 2 -t 1 {}", TwoHosts::B4), BOUND).unwrap().success());
        let routes = router.cli("show ip fib 10.0.2.2/32").unwrap();
        assert!(routes.contains("10.0.2.2"), "{routes}");
        delete(&router, hooks);
        router.stop().unwrap();
    }
}

#[test]
fn commands_take_effect_under_load_before_they_are_answered() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", Scenario::BPF]) else { return };
    commands_take_effect(Hook::Driver);
}

#[test]
fn commands_take_effect_at_the_ingress_hook_before_they_are_answered() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", Scenario::BPF]) else { return };
    commands_take_effect(Hook::Ingress);
}

fn commands_take_effect(hook: Hook) {
    if !hook.is_there() {
        return;
    }
    let (own, input) = match hook {
        Hook::Driver => ("xdp", "af_xdp-input"),
        Hook::Ingress => ("host-interface", "af-packet-input"),
    };
    let (off, on) = (format!("set {own} fast-path off"), format!("set {own} fast-path on"));
    let scene = scene(Offloads::On);
    let router = scene.start_router_with(1, "", &commands([hook; 2])).unwrap();
    ready(&scene, &router);
    let flood = scene.a.background(&format!("ping -q -f {}", TwoHosts::B4)).unwrap();
    // What stops the fast path from x0 to x1, and what lets it go on; whether hosts still reach each other meanwhile.
    for (stop, go, reached) in [
        ("ip route add 10.0.2.2/32 via drop", "ip route del 10.0.2.2/32 via drop", false),
        (&off, &on, true),
        ("set urpf ip4 rx strict x0", "set urpf ip4 rx off x0", true),
        ("set interface state x1 down", "set interface state x1 up", false),
    ] {
        let moving = || {
            let before = forwarded(&router, "x0")[0];
            eventually(&format!("packets pass in the kernel before `{stop}'"), BOUND, || forwarded(&router, "x0")[0] > before);
        };
        moving();
        router.cli(stop).unwrap();
        let before = forwarded(&router, "x0")[0];
        if reached {
            eventually("they pass by the graph", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
        } else {
            assert!(!scene.a.pings(TwoHosts::B4, 1).unwrap(), "{stop}");
        }
        let after = forwarded(&router, "x0")[0];
        assert!(after == before || stop.contains("off"), "{stop}: {before} to {after} packets stayed in the kernel");
        router.cli(go).unwrap();
        eventually("they pass again", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
    }
    drop(flood);
    // A trace sees what would have stayed in the kernel. Hosts ask for each other meanwhile, so it has room for more than a ping.
    ready(&scene, &router);
    router.cli(&format!("trace add {input} 100")).unwrap();
    eventually("the trace has a packet", BOUND, || {
        scene.a.pings(TwoHosts::B4, 1).unwrap() && router.cli("show trace").unwrap().contains("ip4-rewrite")
    });
    let text = router.cli("show xdp fast-path").unwrap();
    assert!(text.starts_with("fast path: on, packets take the graph: traces or captures look at every packet\n"), "{text}");
    router.cli("clear trace").unwrap();
    ready(&scene, &router);
}

#[test]
fn a_device_that_takes_no_frames_is_left_to_the_graph() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", Scenario::BPF]) else { return };
    let scene = scene(Offloads::On);
    let router = scene.start_router_with(1, "", &commands([Hook::Driver; 2])).unwrap();
    ready(&scene, &router);
    // Without GRO a veth's end hands nothing on that a program sends there.
    scene.b.run("ethtool -K eth0 gro off", BOUND).unwrap().expect("ethtool");
    eventually("the router has noticed", BOUND, || {
        router.cli("show xdp fast-path").unwrap().contains("out  none: its device takes no frames of others")
    });
    let before = forwarded(&router, "x0")[0];
    assert_eq!(lost_pings(&scene.a, 20, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
    assert_eq!(forwarded(&router, "x0")[0], before);
    scene.b.run("ethtool -K eth0 gro on", BOUND).unwrap().expect("ethtool");
    ready(&scene, &router);
    // A device that went and returned has the program again.
    scene.middle.delete_link("r0").unwrap();
    eventually("the router sees it", BOUND, || router.cli("show af_xdp x0").unwrap().contains("device is gone"));
    scene.connect(quiver_testbed::Side::A).unwrap();
    scene.a.run("ethtool -K eth0 gro on", BOUND).unwrap().expect("ethtool");
    ready(&scene, &router);
    delete(&router, [Hook::Driver; 2]);
}

/// Two host interfaces that forward at the ingress hook; `None`, visibly, where that cannot be.
fn at_ingress(workers: u32) -> Option<(Scenario, TwoHosts, Router)> {
    let scenario = Scenario::begin(&["ping", "ethtool", Scenario::BPF]).filter(|_| Hook::Ingress.is_there())?;
    let scene = scene(Offloads::On);
    let router = scene.start_router_with(workers, "", &commands([Hook::Ingress; 2])).unwrap();
    ready(&scene, &router);
    Some((scenario, scene, router))
}

/// What `ping` says that goes on for as long as something is done. It waits for each answer, and would tell of a second one.
fn pings_while(scene: &TwoHosts, what: impl FnOnce()) -> String {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let mut all = String::new();
            while !stop.load(Ordering::Relaxed) {
                let line = format!("ping -n -i 0.002 -c 200 -W 60 {}", TwoHosts::B4);
                all += &scene.a.run(&line, BOUND).unwrap().expect("ping");
            }
            all
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        stop.store(true, Ordering::Relaxed);
        let said = pings.join().unwrap();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        said
    })
}

fn assert_all_answered_once(said: &str) {
    let rounds = said.matches(" packets transmitted").count();
    let whole = said.matches("200 packets transmitted, 200 received, 0% packet loss").count();
    assert!(rounds > 0 && whole == rounds && !said.contains("DUP!") && !said.contains("duplicates"), "{said}");
}

#[test]
fn nothing_is_lost_or_doubled_while_the_ingress_hook_comes_and_goes() {
    let Some((_scenario, scene, router)) = at_ingress(1) else { return };
    let said = pings_while(&scene, || {
        for _ in 0..10 {
            router.cli("set host-interface fast-path off").unwrap();
            let before = counter(&router, "x0", "rx packets");
            eventually("packets pass the graph", BOUND, || counter(&router, "x0", "rx packets") > before + 5);
            router.cli("set host-interface fast-path on").unwrap();
            eventually("packets pass in the kernel", BOUND, || forwarded(&router, "x0")[0] > 5);
        }
    });
    assert_all_answered_once(&said);
    delete(&router, [Hook::Ingress; 2]);
}

#[test]
fn a_host_interface_whose_device_returns_has_its_hook_again() {
    let Some((_scenario, scene, router)) = at_ingress(2) else { return };
    scene.middle.delete_link("r0").unwrap();
    eventually("the router sees it", BOUND, || router.cli("show hardware-interfaces x0").unwrap().contains("device is gone"));
    scene.connect(quiver_testbed::Side::A).unwrap();
    ready(&scene, &router);
    // Several receive queues, which share the device's flows.
    router.cli("delete host-interface name r0").unwrap();
    router
        .script(
            "create host-interface name r0 num-rx-queues 2\nset interface name host-r0 x0\nset interface state x0 up
             set interface ip address x0 10.0.1.1/24\nset interface ip address x0 2001:db8:1::1/64",
        )
        .unwrap();
    ready(&scene, &router);
    assert_eq!(lost_pings(&scene.a, 200, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
    delete(&router, [Hook::Ingress; 2]);
}

#[test]
fn nothing_is_doubled_while_another_process_takes_over() {
    let Some((_scenario, scene, mut router)) = at_ingress(1) else { return };
    for _ in 0..3 {
        // Some are lost between the processes (docs/performance.md, a restart).
        let said = pings_while(&scene, || router.take_over(&scene.middle, None).unwrap());
        assert!(said.contains("packets transmitted") && !said.contains("DUP!") && !said.contains("duplicates"), "{said}");
        ready(&scene, &router);
    }
    delete(&router, [Hook::Ingress; 2]);
}

#[test]
fn frames_go_straight_to_the_other_end_of_a_veth_where_no_program_would_miss_them() {
    let Some((_scenario, scene, router)) = at_ingress(1) else { return };
    let is_direct = |name: &str| {
        let shown = shown(&router);
        shown["interfaces"].as_array().unwrap().iter().any(|one| one["name"] == name && one["direct"] == true)
    };
    // Frames that do not pass the device are not in its counters.
    let sent = || scene.middle.run("cat /sys/class/net/r1/statistics/tx_packets", BOUND).unwrap().expect("cat");
    assert!(is_direct("x0") && is_direct("x1"), "{}", shown(&router));
    let (frames, before) = (sent(), forwarded(&router, "x1")[2]);
    assert_eq!(lost_pings(&scene.a, 50, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
    assert!(forwarded(&router, "x1")[2] >= before + 50);
    let passed = sent().trim().parse::<u64>().unwrap() - frames.trim().parse::<u64>().unwrap();
    assert!(passed < 25, "{passed} of 50 frames passed the device");
    // A program in the driver hook at the other end sees every frame again.
    let wall = scene.b.wall("eth0").unwrap();
    eventually("the router has noticed the program", BOUND, || !is_direct("x1"));
    assert!(is_direct("x0"));
    assert!(!scene.a.pings(TwoHosts::B4, 1).unwrap(), "the program drops all");
    drop(wall);
    eventually("the router has noticed that it is gone", BOUND, || is_direct("x1"));
    ready(&scene, &router);
    delete(&router, [Hook::Ingress; 2]);
}
