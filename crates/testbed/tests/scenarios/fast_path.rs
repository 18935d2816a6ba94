//! The fast path of AF_XDP interfaces between kernel hosts: what stays in the driver passes and counts as what the graph forwards, and
//! changes take effect with their command.

use crate::common;

use common::{BOUND, counter, eventually, iperf3, lost_pings};
use quiver_testbed::{Offloads, Router, Scenario, TwoHosts, TwoHostsOptions};

/// Interfaces `x0` and `x1`.
fn commands() -> String {
    let one = |n: u8| {
        let net = n + 1;
        format!(
            "create interface af_xdp host-if r{n} name x{n} native
             set interface state x{n} up
             set interface ip address x{n} 10.0.{net}.1/24
             set interface ip address x{n} 2001:db8:{net}::1/64\n"
        )
    };
    one(0) + &one(1)
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

/// Packets that came in by an interface and left in the driver, IPv4 and IPv6, and those that left by it.
fn forwarded(router: &Router, name: &str) -> [u64; 3] {
    let all = shown(router);
    let found = all["interfaces"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap_or_default();
    ["received4", "received6", "sent"].map(|key| found[key].as_u64().unwrap_or(0))
}

/// Ready: both interfaces take part, and pings pass without the graph.
fn ready(scene: &TwoHosts, router: &Router) {
    for (to, family) in [(TwoHosts::B4, 0), (TwoHosts::B6, 1)] {
        eventually(&format!("{to} is reached in the driver"), BOUND, || {
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
    for offloads in [Offloads::On, Offloads::Off] {
        let scene = scene(offloads);
        let router = scene.start_router_with(1, "", &commands()).unwrap();
        ready(&scene, &router);
        let read = || [counter(&router, "x0", "rx packets"), counter(&router, "x1", "tx packets"), forwarded(&router, "x0")[0]];
        let before = read();
        assert_eq!(lost_pings(&scene.a, 200, &format!("-i 0.01 {}", TwoHosts::B4)), Vec::<u64>::new());
        for (name, n) in [("rx packets", 0), ("tx packets", 1), ("in the driver", 2)] {
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
            let out = iperf3(&scene.a, &scene.b, &line);
            let bits = out.lines().rfind(|l| l.contains("receiver")).unwrap_or_default();
            assert!(bits.contains("Gbits/sec") || bits.contains("Mbits/sec"), "{offloads:?} {line}: {out}");
            let after = [forwarded(&router, "x0"), forwarded(&router, "x1")];
            println!(
                "{offloads:?} {line}: {bits}; in the driver from x0 {:?} to {:?}, x1 {:?} to {:?}",
                before[0], after[0], before[1], after[1]
            );
            assert!(after.iter().flatten().sum::<u64>() > before.iter().flatten().sum::<u64>() + 2000, "{before:?} {after:?}");
        }
        // The graph answers a packet at its last hop.
        assert!(!scene.a.run(&format!("ping -c 1 -W 2 -t 1 {}", TwoHosts::B4), BOUND).unwrap().success());
        let routes = router.cli("show ip fib 10.0.2.2/32").unwrap();
        assert!(routes.contains("10.0.2.2"), "{routes}");
        router.script("delete interface af_xdp x0\ndelete interface af_xdp x1").unwrap();
        common::assert_buffers_are_back(&router);
        router.stop().unwrap();
    }
}

#[test]
fn commands_take_effect_under_load_before_they_are_answered() {
    let Some(_scenario) = Scenario::begin(&["ping", "ethtool", Scenario::BPF]) else { return };
    let scene = scene(Offloads::On);
    let router = scene.start_router_with(1, "", &commands()).unwrap();
    ready(&scene, &router);
    let flood = scene.a.background(&format!("ping -q -f {}", TwoHosts::B4)).unwrap();
    // What stops the fast path from x0 to x1, and what lets it go on; whether hosts still reach each other meanwhile.
    for (stop, go, reached) in [
        ("ip route add 10.0.2.2/32 via drop", "ip route del 10.0.2.2/32 via drop", false),
        ("set xdp fast-path off", "set xdp fast-path on", true),
        ("set urpf ip4 rx strict x0", "set urpf ip4 rx off x0", true),
        ("set interface state x1 down", "set interface state x1 up", false),
    ] {
        let moving = || {
            let before = forwarded(&router, "x0")[0];
            eventually(&format!("packets pass in the driver before `{stop}'"), BOUND, || forwarded(&router, "x0")[0] > before);
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
        assert!(after == before || stop.contains("off"), "{stop}: {before} to {after} packets stayed in the driver");
        router.cli(go).unwrap();
        eventually("they pass again", BOUND, || scene.a.pings(TwoHosts::B4, 1).unwrap());
    }
    drop(flood);
    // A trace sees what would have stayed in the driver.
    ready(&scene, &router);
    router.cli("trace add af_xdp-input 1").unwrap();
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
    let router = scene.start_router_with(1, "", &commands()).unwrap();
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
    router.script("delete interface af_xdp x0\ndelete interface af_xdp x1").unwrap();
    common::assert_buffers_are_back(&router);
}
