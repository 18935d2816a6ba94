//! TAP interfaces: hosts whose only way out is a device that the router has made for them.

use crate::common;

use common::left::{Left, Survivor};
use common::{BOUND, assert_buffers_are_back, counter, eventually, iperf3, kills, workers};
use quiver_testbed::{Guard, Host, Router, Scenario, is_short_pass};

/// Two hosts without any link, a process in each by which the router finds them, and where the router runs.
struct Hosts {
    a: Host,
    middle: Host,
    b: Host,
    keepers: [Guard; 2],
}

impl Hosts {
    fn new() -> Self {
        let (a, middle, b) = (Host::new("a").unwrap(), Host::new("router").unwrap(), Host::new("b").unwrap());
        let keepers = [a.background("sleep 86400").unwrap(), b.background("sleep 86400").unwrap()];
        Self { a, middle, b, keepers }
    }

    fn router(&self, workers: u32) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        Router::start(&self.middle, &cpu).expect("router")
    }

    /// Commands that give each host a device `net0` and connect them.
    fn commands(&self, more: &str) -> String {
        let mut text = String::new();
        for (n, keeper) in self.keepers.iter().enumerate() {
            let (net, pid) = (n + 1, keeper.pid());
            text.push_str(&format!(
                "create tap id {n} host-ns pid:{pid} host-if-name net0 host-ip4-addr 10.0.{net}.2/24 host-ip4-gw 10.0.{net}.1 \
                 host-ip6-addr 2001:db8:{net}::2/64 host-ip6-gw 2001:db8:{net}::1 {more}
                 set interface state tap{n} up
                 set interface ip address tap{n} 10.0.{net}.1/24
                 set interface ip address tap{n} 2001:db8:{net}::1/64\n"
            ));
        }
        text
    }

    fn assert_connected(&self) {
        for to in ["10.0.2.2", "2001:db8:2::2", "10.0.1.1"] {
            eventually(&format!("ping {to}"), BOUND, || self.a.pings(to, 1).unwrap());
        }
    }
}

fn has_device(host: &Host, name: &str) -> bool {
    host.mac(name).is_ok()
}

#[test]
fn hosts_reach_each_other_with_any_offloads_and_queues() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for more in ["", "gso", "csum-offload", "num-rx-queues 2", "gso num-rx-queues 2 rx-ring-size 512"] {
        for workers in workers() {
            let hosts = Hosts::new();
            let router = hosts.router(*workers);
            router.script(&hosts.commands(more)).unwrap();
            hosts.assert_connected();
            for size in [0, 1, 17, 18, 1471, 1472, 20_000] {
                let line = format!("ping -c 1 -W 60 -s {size} 10.0.2.2");
                assert!(hosts.a.run(&line, BOUND).unwrap().success(), "{size} bytes, {more}");
            }
            for line in ["-c 10.0.2.2 -n 32M", "-c 2001:db8:2::2 -n 32M -R", "-c 10.0.2.2 -n 2M -u -b 20M -l 1200"] {
                let out = iperf3(&hosts.a, &hosts.b, line);
                println!("{more}, {workers} workers: {line}: {}", out.lines().rfind(|l| l.contains("receiver")).unwrap_or(""));
            }
            let text = router.cli("show tap tap0").unwrap();
            assert!(text.contains("name \"net0\"") && text.contains("host-carrier-up: 1"), "{text}");
            assert_buffers_are_back(&router);
            router.cli("delete tap tap0").unwrap();
            eventually("the device goes with the interface", BOUND, || !has_device(&hosts.a, "net0"));
            router.stop().unwrap();
            eventually("the device goes with the router", BOUND, || !has_device(&hosts.b, "net0"));
        }
    }
}

#[test]
fn the_device_follows_the_interface_and_is_made_again_when_somebody_deletes_it() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let middle = Host::new("router").unwrap();
    let router = Router::start(&middle, "cpu { workers 1 }").unwrap();
    let create = "create tap host-ip4-addr 10.0.0.2/24 host-mac-addr 02:00:00:00:00:77 host-mtu-size 1400 host-if-name mine";
    assert_eq!(router.cli(create).unwrap(), "tap0\n");
    assert_eq!(middle.mac("mine").unwrap(), [2, 0, 0, 0, 0, 0x77]);
    assert!(router.cli("show interface tap0").unwrap().contains("1400/0/0/0"));
    let carrier = || middle.run("cat /sys/class/net/mine/carrier", BOUND).unwrap().stdout;
    eventually("no carrier while the interface is down", BOUND, || carrier().trim() == "0");
    router.script("set interface ip address tap0 10.0.0.1/24\nset interface state tap0 up").unwrap();
    eventually("carrier", BOUND, || carrier().trim() == "1");
    for _ in 0..3 {
        // The kernel's own announcements of lost carriers are a second apart, and made by a thread of its own.
        let state = || middle.run("cat /sys/class/net/mine/operstate", BOUND).unwrap().stdout;
        eventually("in operation", BOUND, || state().trim() == "up");
        router.cli("set interface state tap0 down").unwrap();
        assert_ne!(carrier().trim(), "1", "Linux knows at once");
        eventually("out of operation", BOUND, || state().trim() != "up");
        router.cli("set interface state tap0 up").unwrap();
    }
    eventually("the host reaches the router", BOUND, || middle.pings("10.0.0.1", 1).unwrap());
    let flood = middle.background("ping -q -f 10.0.0.1").unwrap();
    let mut survivor = Survivor::default();
    for _ in 0..kills(2, 10) {
        let before = counter(&router, "tap0", "rx packets");
        eventually("load", BOUND, || counter(&router, "tap0", "rx packets") > before + 100);
        middle.delete_link("mine").unwrap();
        eventually("it is made again", BOUND, || middle.pings("10.0.0.1", 1).unwrap());
        survivor.check(&router);
    }
    drop(flood);
    middle.set_mtu("mine", 1300).unwrap();
    eventually("the MTU follows", BOUND, || router.cli("show interface tap0").unwrap().contains("1300/0/0/0"));
    let error = router.cli("create tap host-if-name mine").unwrap_err();
    assert!(error.contains("mine exists already") && !error.contains('\n'), "{error}");
    let error = router.cli("create tap host-if-name other host-bridge nobridge").unwrap_err();
    assert!(error.contains("nobridge") && !has_device(&middle, "other"), "{error}");
    for _ in 0..if is_short_pass() { 3 } else { 20 } {
        router.cli("delete tap tap0").unwrap();
        assert_eq!(router.cli(create).unwrap(), "tap0\n");
    }
    assert_buffers_are_back(&router);
}

pub fn nothing_is_left_of_a_killed_router_but_what_is_persistent() {
    let Some(_scenario) = Scenario::alone(&["ping"]) else { return };
    let middle = Host::new("router").unwrap();
    let mut before = None;
    for round in 0..kills(3, 10) {
        let mut router = Router::start(&middle, "").unwrap();
        let attach = if round == 0 { "" } else { "attach" };
        router.cli("create tap host-if-name fleeting num-rx-queues 2").unwrap();
        router.cli(&format!("create tap host-if-name stays persist host-ip4-addr 10.0.0.2/24 {attach}")).unwrap();
        router.script("set interface ip address tap1 10.0.0.1/24\nset interface state tap1 up").unwrap();
        eventually("the host reaches the router", BOUND, || middle.pings("10.0.0.1", 1).unwrap());
        let flood = middle.background("ping -q -f 10.0.0.1").unwrap();
        let count = counter(&router, "tap1", "rx packets");
        eventually("load", BOUND, || counter(&router, "tap1", "rx packets") > count + 100);
        router.kill9().unwrap();
        drop(router);
        eventually("the device is gone", BOUND, || !has_device(&middle, "fleeting"));
        assert!(has_device(&middle, "stays"));
        drop(flood);
        before.get_or_insert_with(|| Left::now(&middle)).assert_same(&middle);
    }
}
