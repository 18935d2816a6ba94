//! VRRP with the real keepalived as the other router: hosts use a default gateway that moves between the two.

use std::time::Duration;

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_testbed::stuck::while_stopped;
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario};

/// Interval of both sides, hundredths of a second, where who is master changes and is waited for.
const INTERVAL: u32 = 50;
/// The interval where nobody may miss the other one: the machine of a test may do other things for some seconds, and who has no processor
/// for three intervals takes the other one for dead, rightly.
const LONG_INTERVAL: u32 = 200;
/// keepalived's priority.
const THEIRS: u32 = 150;
/// Virtual addresses on the side of the host.
const VIRTUAL: [&str; 2] = ["10.0.0.100", "2001:db8::100"];
/// Far hosts behind the other side.
const FAR: [&str; 2] = ["10.0.1.9", "2001:db8:1::9"];
/// MAC addresses of virtual router 51.
const MACS: [&str; 2] = ["00:00:5e:00:01:33", "00:00:5e:00:02:33"];

/// Two bridges, each with a host, the router and the peer on it.
struct Scene {
    bridges: Host,
    middle: Host,
    peer: Host,
    host: Host,
    _far: Host,
    /// Of both sides, hundredths of a second.
    interval: u32,
}

impl Scene {
    fn new() -> Self {
        Self::with_interval(INTERVAL)
    }

    fn with_interval(interval: u32) -> Self {
        let [bridges, middle, peer, host, far] = ["bridges", "router", "peer", "host", "far"].map(|name| Host::new(name).unwrap());
        let link = |port: &str, bridge: u32, other: &Host, name: &str| {
            bridges.veth(port, other, name, &LinkOptions::default()).unwrap();
            bridges.disable_ipv6(port).unwrap();
            bridges.ip(&format!("link set {port} master br{bridge}")).unwrap();
        };
        for bridge in [0, 1] {
            bridges.ip(&format!("link add br{bridge} type bridge mcast_snooping 0\nlink set br{bridge} up")).unwrap();
            link(&format!("r{bridge}"), bridge, &middle, &format!("r{bridge}"));
            middle.disable_ipv6(&format!("r{bridge}")).unwrap();
            link(&format!("p{bridge}"), bridge, &peer, &format!("eth{bridge}"));
        }
        link("host", 0, &host, "eth0");
        link("far", 1, &far, "eth0");
        peer.ip("addr add 10.0.0.2/24 dev eth0\naddr add 2001:db8::2/64 dev eth0 nodad\n\
             addr add 10.0.1.2/24 dev eth1\naddr add 2001:db8:1::2/64 dev eth1 nodad")
            .unwrap();
        peer.sysctl("net.ipv4.ip_forward", "1").unwrap();
        peer.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
        host.ip("addr add 10.0.0.9/24 dev eth0\naddr add 2001:db8::9/64 dev eth0 nodad\n\
             route add default via 10.0.0.100\nroute add default via 2001:db8::100")
            .unwrap();
        far.ip("addr add 10.0.1.9/24 dev eth0\naddr add 2001:db8:1::9/64 dev eth0 nodad\n\
             route add default via 10.0.1.100\nroute add default via 2001:db8:1::100")
            .unwrap();
        Self { bridges, middle, peer, host, _far: far, interval }
    }

    /// A router with virtual routers of this priority on both sides.
    fn router(&self, workers: u32, priority: u32) -> Router {
        let router = Router::start(&self.middle, &format!("cpu {{ workers {workers} }}")).expect("router");
        let interval = self.interval;
        let mut commands = String::new();
        for (side, vr_id) in [(0, 51), (1, 52)] {
            let (net4, net6) = (["10.0.0", "10.0.1"][side], ["2001:db8:", "2001:db8:1:"][side]);
            commands.push_str(&format!(
                "create host-interface name r{side}\nset interface state host-r{side} up\n\
                 set interface ip address host-r{side} {net4}.1/24\nset interface ip address host-r{side} {net6}:1/64\n\
                 vrrp vr add host-r{side} vr_id {vr_id} priority {priority} interval {interval} accept_mode {net4}.100\n\
                 vrrp vr add host-r{side} vr_id {vr_id} ipv6 priority {priority} interval {interval} accept_mode fe80::100 {net6}:100\n\
                 vrrp proto start host-r{side} vr_id {vr_id}\nvrrp proto start host-r{side} vr_id {vr_id} ipv6\n"
            ));
        }
        router.script(&commands).expect("configuration");
        router
    }

    /// Starts keepalived on the peer. Its files are in the router's folder; it needs them at its start alone.
    fn keepalived(&self, router: &Router) -> Guard {
        let folder = router.file("keepalived");
        std::fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let mut text = "global_defs {\n  vrrp_version 3\n}\n".to_owned();
        for (side, vr_id) in [(0, 51), (1, 52)] {
            let (net4, net6) = (["10.0.0", "10.0.1"][side], ["2001:db8:", "2001:db8:1:"][side]);
            for (family, addresses) in [(4, format!("{net4}.100/24")), (6, format!("fe80::100/64\n    {net6}:100/64"))] {
                let native = if family == 6 { "native_ipv6" } else { "" };
                text.push_str(&format!(
                    "vrrp_instance side{side}_{family} {{\n  {native}\n  interface eth{side}\n  state BACKUP\n  \
                     virtual_router_id {vr_id}\n  priority {THEIRS}\n  advert_int {}\n  \
                     virtual_ipaddress {{\n    {addresses}\n  }}\n}}\n",
                    f64::from(self.interval) / 100.0
                ));
            }
        }
        std::fs::write(at("conf"), text).unwrap();
        let line = format!("keepalived -n -l -P -f {} -p {} -r {}", at("conf"), at("pid"), at("vrrp.pid"));
        self.peer.background(&line).unwrap()
    }

    /// Kills keepalived, and waits until the process has gone that it has made: that one ends by itself, a moment later, and while it is
    /// there, another keepalived takes it for a daemon that runs, and does not start.
    fn kill(daemon: &mut Guard, router: &Router) {
        let pid = std::fs::read_to_string(router.file("keepalived").join("vrrp.pid")).unwrap();
        daemon.kill().unwrap();
        let process = format!("/proc/{}", pid.trim());
        eventually("keepalived has gone", BOUND, || !std::path::Path::new(&process).exists());
    }

    /// How many of the peer's virtual addresses of both sides it has.
    fn theirs(&self) -> usize {
        let shown = self.peer.run("ip -o addr show", BOUND).unwrap().stdout;
        ["10.0.0.100/", "2001:db8::100/", "10.0.1.100/", "2001:db8:1::100/"]
            .iter()
            .filter(|address| shown.contains(**address))
            .count()
    }

    /// Waits until one of the two is the master of all four virtual routers.
    fn until_master(&self, router: &Router, ours: bool) {
        let (state, theirs) = if ours { ("master", 0) } else { ("backup", 4) };
        eventually(state, BOUND, || states(router).iter().all(|is| is == state) && self.theirs() == theirs);
    }

    /// Hosts reach the gateway, and through it the far host, by the MAC address of the master. On a machine that stood still the other one
    /// may just have been it for a moment.
    fn assert_reached(&self, ours: bool) {
        for (address, mac) in VIRTUAL.iter().zip(MACS) {
            let by_the_masters = || {
                let neighbours = self.host.run(&format!("ip neigh show {address}"), BOUND).unwrap().stdout;
                neighbours.contains("lladdr") && neighbours.contains(mac) == ours
            };
            eventually(&format!("{address} answers, ours: {ours}"), BOUND, || {
                self.host.pings(address, 1).unwrap() && by_the_masters()
            });
        }
        for address in FAR {
            eventually(&format!("the way to {address}"), BOUND, || self.host.pings(address, 1).unwrap());
        }
    }
}

/// States of our virtual routers.
fn states(router: &Router) -> Vec<String> {
    let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show vrrp vr").unwrap()).unwrap();
    let state = |router: &serde_json::Value| router["state"].as_str().unwrap_or_default().to_owned();
    shown.as_array().unwrap().iter().map(state).collect()
}

/// Advertisements that our virtual routers have sent.
fn sent(router: &Router) -> Vec<u64> {
    let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show vrrp vr").unwrap()).unwrap();
    shown.as_array().unwrap().iter().map(|router| router["sent"].as_u64().unwrap()).collect()
}

const NEEDS: [&str; 3] = ["ip", "ping", "keepalived"];

#[test]
fn keepalived_takes_over_when_the_router_ends_and_gives_way_when_it_is_back() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    for workers in [0, 2] {
        let scene = Scene::new();
        let mut router = scene.router(workers, 200);
        let _daemon = scene.keepalived(&router);
        scene.until_master(&router, true);
        scene.assert_reached(true);
        assert_buffers_are_back(&router);
        if workers == 0 {
            // It says that it ends.
            router.stop().unwrap();
        } else {
            router.kill9().unwrap();
        }
        eventually("keepalived has the addresses", BOUND, || scene.theirs() == 4);
        scene.assert_reached(false);
        let router = scene.router(workers, 200);
        scene.until_master(&router, true);
        scene.assert_reached(true);
    }
}

#[test]
fn the_router_takes_over_when_keepalived_dies_and_gives_way_when_it_is_back() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::new();
    let router = scene.router(1, 100);
    let mut daemon = scene.keepalived(&router);
    scene.until_master(&router, false);
    scene.assert_reached(false);
    Scene::kill(&mut daemon, &router);
    // Its addresses stay behind in a kernel whose daemon was killed: as if the machine had died, its link goes.
    for port in ["p0", "p1"] {
        scene.bridges.link_down(port).unwrap();
    }
    eventually("ours", BOUND, || states(&router).iter().all(|state| state == "master"));
    scene.assert_reached(true);
    scene.peer.ip("addr del 10.0.0.100/24 dev eth0\naddr del 10.0.1.100/24 dev eth1").unwrap();
    scene.peer.ip("addr del 2001:db8::100/64 dev eth0\naddr del 2001:db8:1::100/64 dev eth1").unwrap();
    scene.peer.ip("addr del fe80::100/64 dev eth0\naddr del fe80::100/64 dev eth1").unwrap();
    for port in ["p0", "p1"] {
        scene.bridges.link_up(port).unwrap();
    }
    let _daemon = scene.keepalived(&router);
    scene.until_master(&router, false);
    scene.assert_reached(false);
    assert_buffers_are_back(&router);
}

#[test]
fn a_tracked_interface_that_goes_down_gives_the_addresses_to_keepalived() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::new();
    let router = scene.router(1, 200);
    for ipv6 in ["", "ipv6"] {
        router.cli(&format!("vrrp vr track-if add host-r0 vr_id 51 {ipv6} track-index host-r1 priority 100")).unwrap();
    }
    let _daemon = scene.keepalived(&router);
    scene.until_master(&router, true);
    scene.bridges.link_down("r1").unwrap();
    eventually("keepalived has all", BOUND, || scene.theirs() == 4);
    eventually("states", BOUND, || {
        let states = states(&router);
        [0, 1, 2, 3].map(|at| states[at].as_str()) == ["backup", "backup", "interface_down", "interface_down"]
    });
    scene.assert_reached(false);
    scene.bridges.link_up("r1").unwrap();
    scene.until_master(&router, true);
    scene.assert_reached(true);
}

#[test]
fn keepalived_does_not_notice_that_another_process_takes_over() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    for workers in [0, 2] {
        let scene = Scene::with_interval(LONG_INTERVAL);
        let mut router = scene.router(workers, 200);
        let daemon = scene.keepalived(&router);
        scene.until_master(&router, true);
        scene.assert_reached(true);
        // What keepalived does to its host's addresses from here on.
        let path = router.file("addresses");
        let mut monitor = scene.peer.command("ip");
        monitor.args(["monitor", "address"]).stdout(std::fs::File::create(&path).unwrap());
        let monitor = scene.peer.spawn(monitor).unwrap();
        router.take_over(&scene.middle, None).unwrap();
        assert_eq!(states(&router), ["master"; 4], "at once");
        // More than keepalived misses before it takes the addresses.
        let before = sent(&router);
        eventually("advertisements go on", BOUND, || sent(&router).iter().zip(&before).all(|(now, before)| *now >= before + 5));
        assert_eq!((states(&router), scene.theirs()), (vec!["master".to_owned(); 4], 0));
        scene.assert_reached(true);
        drop(monitor);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "", "keepalived has not moved");
        let shown = router.cli("show restart").unwrap();
        assert!(shown.lines().any(|line| line.split_whitespace().eq("virtual routers 4".split_whitespace())), "{shown}");
        drop(daemon);
        assert_buffers_are_back(&router);
    }
}

#[test]
fn virtual_routers_of_workers_stay_master_while_main_stands_still() {
    let Some(_scenario) = Scenario::begin(&NEEDS) else { return };
    let scene = Scene::with_interval(LONG_INTERVAL);
    let router = scene.router(1, 200);
    let _daemon = scene.keepalived(&router);
    scene.until_master(&router, true);
    // Twice the silence after which keepalived takes over.
    let still = Duration::from_millis(u64::from(2 * 4 * 10 * LONG_INTERVAL));
    while_stopped(router.pid(), || std::thread::sleep(still)).unwrap();
    assert_eq!(scene.theirs(), 0, "keepalived has missed nothing");
    scene.assert_reached(true);
}
