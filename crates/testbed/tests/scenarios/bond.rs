//! Bonds: two routers with several links between them, and a bridge of the kernel at the two ends of an active-backup bond. The kernels that
//! tests run on have no bonds of their own (`bonding`), so the other side of a bond with several active members is a router, too.

use std::time::Duration;

use crate::common;

use common::{BOUND, assert_buffers_are_back, assert_router_pings, counter, eventually, iperf3, ping_in_turn, workers};
use quiver_testbed::stuck::while_stopped;
use quiver_testbed::{Host, LinkOptions, Router, Scenario};

/// Links of a bond.
const LINKS: usize = 3;

/// Hosts a and b, each behind a router of its own, and links `l0`, `l1`, … between the routers.
struct Scene {
    hosts: [Host; 2],
    middles: [Host; 2],
}

impl Scene {
    fn new() -> Self {
        let hosts = ["a", "b"].map(|name| Host::new(name).unwrap());
        let middles = ["left", "right"].map(|name| Host::new(name).unwrap());
        let off = |host: &Host, name: &str| host.disable_ipv6(name).unwrap();
        for (host, middle) in hosts.iter().zip(&middles) {
            host.veth("eth0", middle, "r0", &LinkOptions::default()).unwrap();
            off(middle, "r0");
        }
        for n in 0..LINKS {
            let name = format!("l{n}");
            middles[0].veth(&name, &middles[1], &name, &LinkOptions::default()).unwrap();
            middles.iter().for_each(|middle| off(middle, &name));
        }
        Self { hosts, middles }
    }

    /// The routers with all links in a bond, up.
    fn routers(&self, workers: u32, mode: &str) -> [Router; 2] {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let mut commands = "create host-interface name r0\nset interface state host-r0 up\n".to_owned();
        commands += &format!("create bond mode {mode}\n");
        for n in 0..LINKS {
            commands +=
                &format!("create host-interface name l{n}\nbond add BondEthernet0 host-l{n}\nset interface state host-l{n} up\n");
        }
        commands += "set interface state BondEthernet0 up\n";
        self.middles.each_ref().map(|middle| {
            let router = Router::start(middle, &cpu).expect("router");
            router.script(&commands).expect("configuration");
            router
        })
    }

    /// Host a in 10.0.1.0/24, b in 10.0.2.0/24 and 2001:db8:2::/64, 10.0.9.0/24 and 2001:db8:9::/64 on `between`.
    fn route(&self, routers: &[Router; 2], between: &str) {
        for (n, other) in [(1, 2), (2, 1)] {
            let (host, router) = (&self.hosts[n - 1], &routers[n - 1]);
            host.address("eth0", &format!("10.0.{n}.2/24")).unwrap();
            host.address("eth0", &format!("2001:db8:{n}::2/64")).unwrap();
            host.route("default", &format!("10.0.{n}.1")).unwrap();
            host.route("default", &format!("2001:db8:{n}::1")).unwrap();
            router
                .script(&format!(
                    "set interface ip address host-r0 10.0.{n}.1/24\nset interface ip address host-r0 2001:db8:{n}::1/64\n\
                     set interface ip address {between} 10.0.9.{n}/24\nset interface ip address {between} 2001:db8:9::{n}/64\n\
                     ip route add 10.0.{other}.0/24 via 10.0.9.{other} {between}\n\
                     ip route add 2001:db8:{other}::/64 via 2001:db8:9::{other} {between}"
                ))
                .expect("routes");
        }
    }
}

/// The routers' addresses are checked for duplicates when the link comes up: until then nothing is forwarded by them.
fn eventually_reaches6(a: &Host) {
    eventually("IPv6 through both routers", BOUND, || a.pings("2001:db8:2::2", 1).unwrap());
}

fn active_members(router: &Router) -> usize {
    let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show bond").unwrap()).unwrap();
    let members = shown[0]["members"].as_array().unwrap();
    members.iter().filter(|member| member["active"] == true).count()
}

/// The fewest flows that take the link that is cut, and the fewest that take another.
const FLOWS: usize = 3;

/// The most flows from host a, each to an address of b of its own. Each router hashes flows with a random seed, so the links that they take
/// differ from run to run. Some ten flows suffice; a hundred leave nothing to chance.
const FLOWS_MAX: usize = 100;

/// Answers that each flow waits for while a link is cut: 4 s. Some ten flows fill no ring of a router that has no processor for as long.
const ANSWERS: u32 = 80;

/// Packets lost by each of the first `flows` flows until it has had so many answers; all, where it had none. What is still on its way then
/// is not lost: only gaps in the answers' numbers count.
fn losses(a: &Host, flows: usize, answers: u32) -> Vec<u32> {
    let one = format!("ping -n -w 60 -i 0.05 -c {answers} 10.0.2.$((100 + n)) | sed -n \"s/.*icmp_seq=\\([0-9]*\\) .*/$n \\1/p\"");
    let script = format!("for n in $(seq 0 {}); do {one} & done; wait", flows - 1);
    let out = a.sh(&script, BOUND).unwrap().expect("ping");
    let mut seen = vec![(0, 0); flows];
    for line in out.lines() {
        let mut words = line.split_whitespace().map(|word| word.parse::<u32>());
        if let (Some(Ok(flow)), Some(Ok(number))) = (words.next(), words.next()) {
            let (count, last) = &mut seen[flow as usize];
            (*count, *last) = (*count + 1, number.max(*last));
        }
    }
    seen.into_iter().map(|(count, last)| if count == 0 { answers } else { last - count }).collect()
}

#[test]
fn flows_cross_a_bond_and_a_link_that_is_cut_hurts_its_own_alone() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let scene = Scene::new();
        let routers = scene.routers(*workers, "xor load-balance l34");
        scene.route(&routers, "BondEthernet0");
        let [a, b] = &scene.hosts;
        assert!(a.reaches("10.0.2.2", 3).unwrap());
        eventually_reaches6(a);
        let out = iperf3(a, b, "-c 10.0.2.2 -P 8 -n 64M");
        println!("{workers} workers: {}", out.lines().rfind(|l| l.contains("receiver")).unwrap_or(""));
        // Which flows take link 0, there or back: the ones whose packets it counts.
        let crossing = || routers.each_ref().map(|router| counter(router, "host-l0", "tx packets"));
        let mut by_link0 = Vec::new();
        let enough = |flows: &[bool]| [true, false].iter().all(|by| flows.iter().filter(|flow| *flow == by).count() >= FLOWS);
        let is_used = |n: usize| counter(&routers[0], &format!("host-l{n}"), "tx packets") > 0;
        while !enough(&by_link0) || !(0..LINKS).all(is_used) {
            let n = by_link0.len();
            assert!(n < FLOWS_MAX, "{by_link0:?}");
            b.address("eth0", &format!("10.0.2.{}/24", 100 + n)).unwrap();
            let before = crossing();
            ping_in_turn(a, 16, &format!("10.0.2.{}", 100 + n));
            // Half of them: the last may not be counted yet, and routers ask for neighbours now and then.
            let after = crossing();
            by_link0.push(before.iter().zip(after).any(|(before, after)| after >= before + 8));
        }
        let flows = by_link0.len();
        let start: u64 = crossing().iter().sum();
        let lost = std::thread::scope(|scope| {
            let sender = scope.spawn(|| losses(a, flows, ANSWERS));
            eventually("traffic on link 0", BOUND, || crossing().iter().sum::<u64>() > start + 20);
            scene.middles[1].link_down("l0").unwrap();
            eventually("both have noticed", BOUND, || routers.each_ref().map(active_members) == [LINKS - 1; 2]);
            sender.join().unwrap()
        });
        println!("{workers} workers: lost {lost:?}, of those by the link that was cut {by_link0:?}");
        for (flow, lost) in lost.iter().enumerate() {
            assert!(by_link0[flow] || *lost == 0, "flow {flow} has lost {lost}");
            assert!(*lost < ANSWERS, "flow {flow} has another link now");
        }
        scene.middles[1].link_up("l0").unwrap();
        eventually("all links again", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
        assert_eq!(losses(a, flows, 10), vec![0; flows]);
        routers.iter().for_each(assert_buffers_are_back);
    }
}

#[test]
fn an_active_backup_bond_moves_to_its_other_link_and_a_bridge_learns_where_it_is() {
    let Some(_scenario) = Scenario::begin(&["ping", "bridge", "iperf3"]) else { return };
    for workers in workers() {
        let [a, lan, middle] = ["a", "lan", "router"].map(|name| Host::new(name).unwrap());
        a.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        lan.ip("link add br0 type bridge\nlink set br0 up").unwrap();
        for n in 0..2 {
            lan.veth(&format!("p{n}"), &middle, &format!("l{n}"), &LinkOptions::default()).unwrap();
            lan.ip(&format!("link set p{n} master br0\nlink set p{n} up")).unwrap();
            middle.disable_ipv6(&format!("l{n}")).unwrap();
        }
        middle.disable_ipv6("r0").unwrap();
        a.address("eth0", "10.0.1.2/24").unwrap();
        a.route("default", "10.0.1.1").unwrap();
        lan.address("br0", "10.0.9.2/24").unwrap();
        lan.route("10.0.1.0/24", "10.0.9.1").unwrap();
        let cpu = if *workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&middle, &cpu).expect("router");
        let commands = "create host-interface name r0\ncreate host-interface name l0\ncreate host-interface name l1\n\
             create bond mode active-backup hw-addr 02:fe:00:00:00:42\nbond add BondEthernet0 host-l0\nbond add BondEthernet0 host-l1\n\
             set interface state host-r0 up\nset interface state host-l0 up\nset interface state host-l1 up\n\
             set interface state BondEthernet0 up\nset interface ip address host-r0 10.0.1.1/24\n\
             set interface ip address BondEthernet0 10.0.9.1/24";
        router.script(commands).expect("configuration");
        assert!(a.reaches("10.0.9.2", 3).unwrap());
        iperf3(&a, &lan, "-c 10.0.9.2 -n 32M");
        let port = || {
            let entries = lan.run("bridge fdb show br br0 dynamic", BOUND).unwrap().stdout;
            let entry = entries.lines().find(|line| line.starts_with("02:fe:00:00:00:42")).unwrap_or_default();
            entry.split_whitespace().nth(2).unwrap_or_default().to_owned()
        };
        assert_eq!(port(), "p0");
        lan.link_down("p0").unwrap();
        // Nobody sends: the router tells where it is by itself.
        eventually("the bridge has learned", BOUND, || port() == "p1");
        assert!(a.reaches("10.0.9.2", 3).unwrap());
        lan.link_up("p0").unwrap();
        router.cli("set interface bond host-l0 weight 1").unwrap();
        eventually("back at the preferred link", BOUND, || port() == "p0");
        assert!(a.reaches("10.0.9.2", 3).unwrap());
        assert_buffers_are_back(&router);
    }
}

#[test]
fn vlans_a_bridge_and_a_pair_in_linux_work_on_a_bond() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = Scene::new();
    // One more host on each side, in one network that the routers bridge over VLAN 20 of the bond.
    let (c, d, linux) = (Host::new("c").unwrap(), Host::new("d").unwrap(), Host::new("linux").unwrap());
    for ((host, middle), address) in [&c, &d].into_iter().zip(&scene.middles).zip(["10.0.20.3/24", "10.0.20.4/24"]) {
        host.veth("eth0", middle, "r1", &LinkOptions::default()).unwrap();
        middle.disable_ipv6("r1").unwrap();
        host.address("eth0", address).unwrap();
    }
    let routers = scene.routers(1, "xor load-balance l23");
    for router in &routers {
        let commands = "create host-interface name r1\nset interface state host-r1 up\n\
             create sub-interfaces BondEthernet0 10\nset interface state BondEthernet0.10 up\n\
             create sub-interfaces BondEthernet0 20\nset interface state BondEthernet0.20 up\n\
             set interface l2 bridge host-r1 20\nset interface l2 bridge BondEthernet0.20 20\n\
             set interface l2 tag-rewrite BondEthernet0.20 pop 1";
        router.script(commands).expect("VLANs");
    }
    scene.route(&routers, "BondEthernet0.10");
    let [a, _] = &scene.hosts;
    assert!(a.reaches("10.0.2.2", 3).unwrap(), "routed over VLAN 10");
    eventually_reaches6(a);
    assert!(c.reaches("10.0.20.4", 3).unwrap(), "bridged over VLAN 20");
    // Untagged, Linux on one side speaks with the other router.
    let keeper = linux.background("sleep 86400").unwrap();
    routers[0].cli(&format!("lcp create BondEthernet0 host-if bond0 netns pid:{}", keeper.pid())).unwrap();
    routers[1].cli("set interface ip address BondEthernet0 10.0.30.2/24").unwrap();
    linux.address("bond0", "10.0.30.1/24").unwrap();
    assert!(linux.reaches("10.0.30.2", 3).unwrap(), "from Linux");
    assert_router_pings(&routers[1], "10.0.30.1");
    for n in 0..LINKS - 1 {
        scene.middles[0].link_down(&format!("l{n}")).unwrap();
    }
    eventually("one link is left", BOUND, || routers.each_ref().map(active_members) == [1; 2]);
    assert!(a.reaches("10.0.2.2", 3).unwrap() && c.reaches("10.0.20.4", 3).unwrap() && linux.reaches("10.0.30.2", 3).unwrap());
    routers.iter().for_each(assert_buffers_are_back);
}

#[test]
fn two_routers_agree_on_their_links_by_lacp() {
    let Some(_scenario) = Scenario::begin(&["ping", "iperf3"]) else { return };
    for workers in workers() {
        let scene = Scene::new();
        let mut routers = scene.routers(*workers, "lacp load-balance l34");
        // One side need not begin, and may be spoken to seldom.
        let again: String = (0..LINKS)
            .map(|n| {
                format!(
                    "bond del host-l{n}\nbond add BondEthernet0 host-l{n} passive{}\n",
                    if n == 0 { " long-timeout" } else { "" }
                )
            })
            .collect();
        routers[1].script(&again).expect("members anew");
        scene.route(&routers, "BondEthernet0");
        eventually("all links", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
        let [a, b] = &scene.hosts;
        assert!(a.reaches("10.0.2.2", 3).unwrap());
        eventually_reaches6(a);
        let out = iperf3(a, b, "-c 10.0.2.2 -P 8 -n 64M");
        println!("{workers} workers: {}", out.lines().rfind(|l| l.contains("receiver")).unwrap_or(""));
        until_current(&routers[0]);

        scene.middles[1].link_down("l0").unwrap();
        eventually("one link less", BOUND, || routers.each_ref().map(active_members) == [LINKS - 1; 2]);
        assert!(a.reaches("10.0.2.2", 3).unwrap());
        scene.middles[1].link_up("l0").unwrap();
        eventually("all links again", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);

        // The other side is silent, and its links stay up. Where it wants to hear seldom it is heard seldom, and lost later.
        routers[1].signal(libc::SIGSTOP).unwrap();
        eventually("the other side is lost", BOUND, || active_members(&routers[0]) == 0);
        assert!(routers[0].cli("show hardware-interfaces BondEthernet0").unwrap().contains("down"));
        routers[1].signal(libc::SIGCONT).unwrap();
        eventually("it is back", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
        assert!(a.reaches("10.0.2.2", 3).unwrap());

        routers[1].cli("delete bond BondEthernet0").unwrap();
        eventually("nobody is there", BOUND, || active_members(&routers[0]) == 0);
        routers.iter().for_each(assert_buffers_are_back);
    }
}

/// Every member of a router's bond is in use and hears its partner.
fn until_current(router: &Router) {
    eventually("all are current, collecting and distributing", BOUND, || {
        let shown = router.cli("show lacp").unwrap();
        shown.matches("RX-state: current, MUX-state: collecting distributing").count() == LINKS
    });
}

/// Data units of LACP that a router has received by each member.
fn units(router: &Router) -> Vec<u64> {
    let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show lacp").unwrap()).unwrap();
    shown.as_array().unwrap().iter().map(|port| port["received"].as_u64().unwrap()).collect()
}

#[test]
fn a_partner_of_lacp_does_not_notice_that_another_process_takes_over() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    for workers in [0, 2] {
        let scene = Scene::new();
        let mut routers = scene.routers(workers, "lacp load-balance l34");
        scene.route(&routers, "BondEthernet0");
        eventually("all links", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
        assert!(scene.hosts[0].reaches("10.0.2.2", 3).unwrap());
        let changes = |router: &Router| router.log().matches("active members").count();
        let before = changes(&routers[1]);
        routers[0].take_over(&scene.middles[0], None).unwrap();
        assert_eq!(routers.each_ref().map(active_members), [LINKS; 2], "at once");
        // One comes each second, and after three seconds without a partner is lost.
        let heard = units(&routers[1]);
        eventually("data units go on", BOUND, || units(&routers[1]).iter().zip(&heard).all(|(now, before)| *now >= before + 5));
        assert_eq!(routers.each_ref().map(active_members), [LINKS; 2]);
        assert_eq!(changes(&routers[1]), before, "no member was lost meanwhile");
        assert!(scene.hosts[0].reaches("10.0.2.2", 3).unwrap());
        routers.iter().for_each(assert_buffers_are_back);
    }
}

#[test]
fn workers_speak_lacp_while_main_stands_still() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let scene = Scene::new();
    let routers = scene.routers(1, "lacp");
    eventually("all links", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
    let changes = || routers.each_ref().map(|router| router.log().matches("active members").count());
    let before = changes();
    // Longer than it takes to lose the other side.
    while_stopped(routers[0].pid(), || std::thread::sleep(Duration::from_secs(5))).unwrap();
    assert_eq!(routers.each_ref().map(active_members), [LINKS; 2]);
    assert_eq!((changes(), before.contains(&0)), (before, false), "no member was lost meanwhile");
}

#[test]
fn linux_works_on_a_bond_with_lacp_and_on_its_sub_interfaces() {
    let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    let (scene, linux) = (Scene::new(), Host::new("linux").unwrap());
    let routers = scene.routers(1, "lacp load-balance l34");
    let keeper = linux.background("sleep 86400").unwrap();
    // Even where Linux is to have frames of LACP's type, the router's stay with the router: no member is lost.
    let commands = format!(
        "lcp default netns pid:{}\nlcp lcp-sync on\nlcp lcp-auto-subint on\nlcp ethertype enable 0x8809\n\
         lcp create BondEthernet0 host-if bond0\n\
         create sub-interfaces BondEthernet0 10\nset interface state BondEthernet0.10 up\n\
         create sub-interfaces BondEthernet0 20 dot1ad 20 inner-dot1q 7 exact-match\nset interface state BondEthernet0.20 up\n\
         set interface ip address BondEthernet0 10.0.30.1/24\nset interface ip address BondEthernet0.10 10.0.31.1/24\n\
         set interface ip address BondEthernet0.20 10.0.32.1/24",
        keeper.pid()
    );
    routers[0].script(&commands).expect("pairs");
    let other = "create sub-interfaces BondEthernet0 10\nset interface state BondEthernet0.10 up\n\
         create sub-interfaces BondEthernet0 20 dot1ad 20 inner-dot1q 7 exact-match\nset interface state BondEthernet0.20 up\n\
         set interface ip address BondEthernet0 10.0.30.2/24\nset interface ip address BondEthernet0.10 10.0.31.2/24\n\
         set interface ip address BondEthernet0.20 10.0.32.2/24";
    routers[1].script(other).expect("addresses");
    eventually("all links", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
    let mac = routers[0].cli("show bond details").unwrap();
    let all_reach = || {
        for net in ["10.0.30", "10.0.31", "10.0.32"] {
            assert!(linux.reaches(&format!("{net}.2"), 3).unwrap(), "{net} from Linux");
            assert_router_pings(&routers[1], &format!("{net}.1"));
        }
    };
    all_reach();
    let shown = routers[0].cli("show lcp").unwrap();
    for (phy, host) in [("BondEthernet0", "bond0"), ("BondEthernet0.10", "bond0.10"), ("BondEthernet0.20", "bond0.20")] {
        assert!(shown.lines().any(|line| line.contains(&format!(" {phy} ")) && line.contains(&format!(" {host} "))), "{shown}");
        let own: String = linux.mac(host).unwrap().map(|byte| format!("{byte:02x}")).join(":");
        assert!(mac.contains(&format!("MAC address: {own}")), "{host} has {own}: {mac}");
    }
    // The bond's link is that of its host interfaces.
    let carrier = |name: &str| linux.run(&format!("ip -o link show {name}"), BOUND).unwrap().stdout.contains("LOWER_UP");
    for n in 0..LINKS - 1 {
        scene.middles[0].link_down(&format!("l{n}")).unwrap();
    }
    eventually("one link is left", BOUND, || routers.each_ref().map(active_members) == [1; 2]);
    all_reach();
    scene.middles[0].link_down(&format!("l{}", LINKS - 1)).unwrap();
    eventually("Linux has no carrier", BOUND, || !carrier("bond0") && !carrier("bond0.10"));
    for n in 0..LINKS {
        scene.middles[0].link_up(&format!("l{n}")).unwrap();
    }
    eventually("all links again", BOUND, || routers.each_ref().map(active_members) == [LINKS; 2]);
    eventually("Linux has a carrier", BOUND, || carrier("bond0") && carrier("bond0.20"));
    all_reach();
    until_current(&routers[0]);
    routers.iter().for_each(assert_buffers_are_back);
}
