//! LLDP with the lldpd of Debian at the other end of the link.

use std::path::PathBuf;

use serde_json::Value;

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually, workers};
use quiver_testbed::{Guard, Host, LinkOptions, Output, Router, Scenario};

/// lldpd in a host, and where it is asked.
struct Lldpd<'a> {
    host: &'a Host,
    socket: PathBuf,
    guard: Guard,
}

impl<'a> Lldpd<'a> {
    /// Starts it on interfaces (a pattern). Its control program gives its rights up before it looks for the socket, so that is in a folder
    /// that everybody can enter, unlike the router's.
    fn start(host: &'a Host, folder: &common::Open, interfaces: &str) -> Self {
        let socket = folder.0.join(format!("{}.sock", host.name()));
        let line = format!("lldpd -d -u {} -I {interfaces} -C {interfaces} -S peer -m 10.0.0.2", socket.display());
        let guard = host.background(&line).unwrap();
        let lldpd = Self { host, socket, guard };
        // Its socket is there before it answers.
        eventually("lldpd answers", BOUND, || lldpd.ask().success());
        lldpd
    }

    fn ask(&self) -> Output {
        self.host.run(&format!("lldpcli -u {} -f json0 show neighbors", self.socket.display()), BOUND).unwrap()
    }

    /// What it knows of its neighbours: one object for each, with the name of the interface as only key.
    fn neighbors(&self) -> Vec<Value> {
        let all: Value = serde_json::from_str(&self.ask().expect("lldpcli")).unwrap();
        let interfaces = all["lldp"][0]["interface"].as_array().cloned();
        interfaces.unwrap_or_default()
    }
}

/// A value of lldpcli's `json0`, where everything is a list.
fn value(of: &Value, path: &[&str]) -> String {
    let found = path.iter().fold(of, |of, key| &of[*key][0]);
    found["value"].as_str().unwrap_or_default().to_owned()
}

/// The router's ports with their neighbours.
fn ports(router: &Router) -> Vec<Value> {
    let shown: Value = serde_json::from_str(&router.cli_json("show lldp").unwrap()).unwrap();
    shown["ports"].as_array().cloned().unwrap_or_default()
}

fn known(router: &Router) -> Vec<usize> {
    ports(router).iter().map(|port| port["neighbors"].as_array().map_or(0, Vec::len)).collect()
}

#[test]
fn the_router_and_lldpd_know_one_another() {
    let Some(_scenario) = Scenario::begin(&["lldpd", "lldpcli"]) else { return };
    for workers in workers() {
        let [a, middle] = ["a", "router"].map(|name| Host::new(name).unwrap());
        a.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        middle.disable_ipv6("r0").unwrap();
        let cpu = if *workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&middle, &cpu).expect("router");
        router
            .script(
                "create host-interface name r0\nset interface state host-r0 up\nset lldp system-name edge1\n\
                 set interface lldp host-r0 port-desc \"to a\" mgmt-ip4 192.0.2.1",
            )
            .expect("configuration");
        let folder = common::Open::new();
        let lldpd = Lldpd::start(&a, &folder, "eth0");
        // The router sends every 30 s, but to a new neighbour at once.
        eventually("lldpd knows the router", BOUND, || lldpd.neighbors().len() == 1);
        let router_there = lldpd.neighbors().remove(0);
        let chassis = |path: &[&str]| value(&router_there, &[&["chassis"][..], path].concat());
        let port = |path: &[&str]| value(&router_there, &[&["port"][..], path].concat());
        assert_eq!((chassis(&["name"]), chassis(&["mgmt-ip"])), ("edge1".into(), "192.0.2.1".into()), "{router_there}");
        assert_eq!((port(&["id"]), port(&["descr"]), port(&["ttl"])), ("host-r0".into(), "to a".into(), "121".into()));
        eventually("the router knows lldpd", BOUND, || known(&router) == [1]);
        let there = &ports(&router)[0]["neighbors"][0];
        assert_eq!(there["port_description"], "eth0", "{there}");
        assert_eq!((&there["system_description"], &there["ttl"]), (&"peer".into(), &120.into()));
        assert_eq!(there["management"][0]["address"], "10.0.0.2");
        assert_eq!(there["chassis"]["kind"], "mac-address");

        // The link goes: what both know stays for its time, and they go on when it is back.
        middle.link_down("r0").unwrap();
        eventually("the port is down", BOUND, || ports(&router)[0]["up"] == false);
        assert_eq!(known(&router), [1]);
        middle.link_up("r0").unwrap();
        eventually("the port is up", BOUND, || ports(&router)[0]["up"] == true);

        router.cli("set interface lldp host-r0 disable").unwrap();
        eventually("lldpd is told of the end", BOUND, || lldpd.neighbors().is_empty());
        router.cli("set interface lldp host-r0").unwrap();
        eventually("lldpd knows the router again", BOUND, || lldpd.neighbors().len() == 1);
        assert_buffers_are_back(&router);
        router.stop().unwrap();
        eventually("the router has said that it stops", BOUND, || lldpd.neighbors().is_empty());
    }
}

#[test]
fn a_neighbour_that_ends_is_forgotten_at_once() {
    let Some(_scenario) = Scenario::begin(&["lldpd", "lldpcli"]) else { return };
    let [a, middle] = ["a", "router"].map(|name| Host::new(name).unwrap());
    a.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
    middle.disable_ipv6("r0").unwrap();
    let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
    router.script("create host-interface name r0\nset interface state host-r0 up\nset interface lldp host-r0").unwrap();
    let folder = common::Open::new();
    let mut lldpd = Lldpd::start(&a, &folder, "eth0");
    eventually("the router knows lldpd", BOUND, || known(&router) == [1]);
    lldpd.guard.signal(libc::SIGTERM).unwrap();
    eventually("it has said that it goes", BOUND, || known(&router) == [0]);
    let statistics = &ports(&router)[0]["statistics"];
    assert_eq!((&statistics["table_deletes"], &statistics["ageouts"]), (&1.into(), &0.into()));
    assert!(router.log().contains("speaks no more"), "{}", router.log());
}

#[test]
fn members_of_a_bond_speak_each_with_its_own_address() {
    let Some(_scenario) = Scenario::begin(&["lldpd", "lldpcli", "bridge", "ping"]) else { return };
    let [lan, middle] = ["lan", "router"].map(|name| Host::new(name).unwrap());
    lan.ip("link add br0 type bridge\nlink set br0 up").unwrap();
    for n in 0..2 {
        lan.veth(&format!("p{n}"), &middle, &format!("l{n}"), &LinkOptions::default()).unwrap();
        lan.ip(&format!("link set p{n} master br0\nlink set p{n} up")).unwrap();
        middle.disable_ipv6(&format!("l{n}")).unwrap();
    }
    lan.address("br0", "10.0.9.2/24").unwrap();
    lan.ask_neighbours_patiently("br0").unwrap();
    let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
    router
        .script(
            "create host-interface name l0\ncreate host-interface name l1\n\
             create bond mode active-backup hw-addr 02:fe:00:00:00:42\nbond add BondEthernet0 host-l0\nbond add BondEthernet0 host-l1\n\
             set interface state host-l0 up\nset interface state host-l1 up\nset interface state BondEthernet0 up\n\
             set interface ip address BondEthernet0 10.0.9.1/24\nset interface lldp host-l0\nset interface lldp host-l1",
        )
        .expect("configuration");
    assert!(router.cli("set interface lldp BondEthernet0").unwrap_err().contains("LLDP belongs on each of its members"));
    assert!(lan.reaches("10.0.9.1", 3).unwrap());
    let folder = common::Open::new();
    let lldpd = Lldpd::start(&lan, &folder, "p*");
    // The link that stands by, too.
    eventually("both links are known on both sides", BOUND, || lldpd.neighbors().len() == 2 && known(&router) == [1, 1]);
    let [first, second] = [0, 1].map(|at| value(&lldpd.neighbors()[at], &["chassis", "id"]));
    assert_eq!(first, second, "one router");
    let entries = lan.run("bridge fdb show br br0 dynamic", BOUND).unwrap().stdout;
    let of_bond: Vec<&str> = entries.lines().filter(|line| line.starts_with("02:fe:00:00:00:42")).collect();
    assert!(of_bond.len() == 1 && of_bond[0].contains("dev p0"), "the bridge has learned the bond where it is active: {entries}");
    assert!(lan.reaches("10.0.9.1", 3).unwrap());
    assert_buffers_are_back(&router);
}

#[test]
fn linux_gets_lldp_where_the_router_does_not_speak_it() {
    let Some(_scenario) = Scenario::begin(&["lldpd", "lldpcli"]) else { return };
    let [a, middle, linux] = ["a", "router", "linux"].map(|name| Host::new(name).unwrap());
    a.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
    middle.disable_ipv6("r0").unwrap();
    let keeper = linux.background("sleep 86400").unwrap();
    let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
    router
        .script(&format!(
            "create host-interface name r0\nset interface state host-r0 up\nlcp create host-r0 host-if e0 netns pid:{}",
            keeper.pid()
        ))
        .expect("configuration");
    linux.link_up("e0").unwrap();
    let folder = common::Open::new();
    let (outside, inside) = (Lldpd::start(&a, &folder, "eth0"), Lldpd::start(&linux, &folder, "e0"));
    eventually("the two lldpd know one another", BOUND, || [&outside, &inside].iter().all(|one| one.neighbors().len() == 1));
    drop(inside);
    router.cli("set interface lldp host-r0").unwrap();
    let mut seen = linux.raw("e0").unwrap();
    let from_outside = a.raw("eth0").unwrap();
    let of_type = |ether_type: u16, group: u8| {
        let mut frame = vec![1, 0x80, 0xc2, 0, 0, group, 2, 0, 0, 0, 0, 7];
        frame.extend(ether_type.to_be_bytes());
        frame.extend([2, 7, 4, 2, 0, 0, 0, 0, 7, 4, 2, 7, b'x', 6, 2, 0, 120, 0, 0]);
        frame.resize(60, 0);
        frame
    };
    let (lldp, other) = (of_type(0x88cc, 0x0e), of_type(46, 0x14));
    from_outside.send(&lldp).unwrap();
    from_outside.send(&other).unwrap();
    let first = seen.recv_matching(BOUND, |got| got == lldp || got == other).unwrap();
    assert_eq!(first, Some(other), "the router has kept the first one");
    // The other lldpd speaks every 30 s, and to new neighbours at once: the router's first words have made it speak.
    eventually("the router knows both", BOUND, || known(&router) == [2]);
    router.cli("set interface lldp host-r0 disable").unwrap();
    from_outside.send(&lldp).unwrap();
    assert!(seen.recv_matching(BOUND, |got| got == lldp).unwrap().is_some(), "to Linux again");
    assert_buffers_are_back(&router);
}
