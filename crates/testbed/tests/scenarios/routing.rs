//! What routing daemons and the kernel do to the router beside the usual: announcements that are lost, next-hop objects that go without a
//! word, links without a carrier, a router that is killed, and many interfaces with pairs.

use std::fs;

use crate::common;
use crate::linux_nl::Scene;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_tables::synth::Random;
use quiver_testbed::churn::{self, Prefixes};
use quiver_testbed::{Guard, Host, Router, Scenario, bird, is_short_pass};

fn no_difference(router: &Router) {
    let drift = router.cli("show lcp drift").unwrap();
    assert!(drift.contains("no difference"), "{drift}");
}

/// The number that `show lcp netlink` has for a key, all namespaces together.
fn figure(router: &Router, key: &str) -> u64 {
    let shown: serde_json::Value = serde_json::from_str(&router.cli_json("show lcp netlink").unwrap()).unwrap();
    shown["namespaces"].as_array().into_iter().flatten().filter_map(|namespace| namespace[key].as_u64()).sum()
}

/// Routes of Linux in the router's table 0.
fn routes(router: &Router) -> usize {
    router
        .cli("show ip fib summary")
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok())
        .sum()
}

#[test]
fn a_netlink_socket_that_overflows_loses_no_route() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::with_conf("cpu { workers 1 }\nlinux-nl { rx-buffer-size 64k }");
    let networks = 6000;
    let batch = |what: &str, range: std::ops::Range<usize>| -> String {
        range.map(|n| format!("route {what} 30.{}.{}.0/24 via 10.0.2.2\n", n / 256, n % 256)).collect()
    };
    let before = routes(&scene.router);
    scene.linux.ip(&batch("add", 0..networks / 2)).unwrap();
    eventually("the first half", BOUND, || routes(&scene.router) == before + networks / 2);
    // While the reader stands still the kernel has more to say than the socket holds.
    scene.router.signal(libc::SIGSTOP).unwrap();
    scene.linux.ip(&batch("del", 0..networks / 4)).unwrap();
    scene.linux.ip(&batch("add", networks / 2..networks)).unwrap();
    scene.router.signal(libc::SIGCONT).unwrap();
    eventually("the router is as the kernel", BOUND, || routes(&scene.router) == before + networks * 3 / 4);
    assert!(figure(&scene.router, "overruns") > 0, "nothing was lost: {}", scene.router.cli("show lcp netlink").unwrap());
    assert!(!scene.has_route("30.0.0.1") && scene.has_route("30.23.0.1"));
    no_difference(&scene.router);
}

#[test]
fn routes_by_next_hop_objects_go_with_the_link_and_groups_lead_on() {
    let Some(_scenario) = Scenario::begin(&["ip", "ping"]) else { return };
    let scene = Scene::new();
    scene.a.ip("addr add 198.51.100.9/32 dev lo").unwrap();
    scene.peer.ip("addr add 198.51.100.9/32 dev lo").unwrap();
    let ip = |line: &str| scene.linux.ip(line).unwrap();
    ip("nexthop add id 1 via 10.0.2.2 dev e1\nnexthop add id 2 via 10.0.1.2 dev e0\nnexthop add id 10 group 1/2");
    let single: String = (0..500).map(|n| format!("route add 30.{}.{}.0/24 nhid 1\n", n / 256, n % 256)).collect();
    ip(&single);
    ip("route add 198.51.100.9/32 nhid 10");
    eventually("all routes", BOUND, || scene.has_networks() == 500 && scene.has_route("198.51.100.9"));
    let paths = || {
        let shown = scene.router.cli("show ip fib 198.51.100.9").unwrap();
        (shown.contains("10.0.1.2"), shown.contains("10.0.2.2"))
    };
    assert_eq!(paths(), (true, true));
    // The kernel removes object 1 and what leads to it alone, and announces none of the routes.
    scene.peer.link_down("eth0").unwrap();
    eventually("routes by the object go", BOUND, || scene.has_networks() == 0);
    eventually("the group leads on", BOUND, || paths() == (true, false));
    let kernel = scene.linux.run("ip nexthop show", BOUND).unwrap().expect("ip nexthop");
    assert!(!kernel.contains("id 1 ") && kernel.contains("id 10 "), "{kernel}");
    assert!(scene.linux.run("ip route show 30.0.0.0/8", BOUND).unwrap().expect("ip route").is_empty());
    no_difference(&scene.router);
    scene.peer.link_up("eth0").unwrap();
    eventually("carrier", BOUND, || scene.linux.run("ip link show e1", BOUND).unwrap().expect("ip link").contains("LOWER_UP"));
    ip("nexthop add id 1 via 10.0.2.2 dev e1\nnexthop replace id 10 group 1/2");
    ip(&single);
    eventually("all are back", BOUND, || scene.has_networks() == 500 && paths() == (true, true));
    no_difference(&scene.router);
    assert_buffers_are_back(&scene.router);
}

#[test]
fn while_a_link_has_no_carrier_packets_follow_the_covering_route() {
    let Some(_scenario) = Scenario::begin(&["ip", "ping"]) else { return };
    let scene = Scene::new();
    // The kernel keeps this route while its link has no carrier, until a routing daemon takes it back.
    scene.linux.ip("route add 198.51.100.0/24 via 10.0.2.2\nroute add 198.51.0.0/16 via 10.0.1.2").unwrap();
    let leads_to = |next_hop: &str| scene.router.cli("show ip fib 198.51.100.1").unwrap().contains(&format!("via {next_hop} "));
    eventually("both routes", BOUND, || leads_to("10.0.2.2"));
    scene.peer.link_down("eth0").unwrap();
    eventually("the covering route is used", BOUND, || leads_to("10.0.1.2"));
    let kernel = scene.linux.run("ip route show 198.51.100.0/24", BOUND).unwrap().expect("ip route");
    assert!(kernel.contains("linkdown"), "the kernel has it: {kernel}");
    no_difference(&scene.router);
    scene.peer.ip("link set eth0 up\nroute add default via 10.0.2.1").unwrap();
    eventually("the route is used again", BOUND, || leads_to("10.0.2.2"));
    assert!(scene.a.reaches("198.51.100.1", 5).unwrap());
    no_difference(&scene.router);
}

#[test]
fn ipv4_routes_of_bird_lead_by_ipv6_next_hops() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird", "ping"]) else { return };
    let scene = Scene::with_ip6();
    let end = |id: &str, number: u32, neighbor: &str, theirs: u32, more: &str, channel: &str| {
        format!(
            "router id {id};\nprotocol device {{ scan time 1; }}\n{more}\n\
             protocol bgp {{ local as {number}; neighbor {neighbor} as {theirs}; connect delay time 1; connect retry time 2; \
             ipv4 {{ extended next hop on; {channel} }}; }}\n"
        )
    };
    let kernel = "protocol kernel { ipv4 { import none; export all; }; }";
    let network = format!("protocol static {{ ipv4; route {NETWORK} blackhole; }}");
    let ours = end("10.0.2.1", 64_513, "2001:db8:2::2", 64_512, kernel, "import all; export none;");
    let theirs = end("10.0.2.2", 64_512, "2001:db8:2::1", 64_513, &network, "import none; export all;");
    let _ours = scene.bird(&scene.linux, "ours", &ours);
    let mut other = scene.bird(&scene.peer, "theirs", &theirs);
    eventually("the route", BOUND, || scene.has_route("198.51.100.1"));
    let kernel = scene.linux.run(&format!("ip route show {NETWORK}"), BOUND).unwrap().expect("ip route");
    assert!(kernel.contains("via inet6 2001:db8:2::2"), "{kernel}");
    let shown = scene.router.cli("show ip fib 198.51.100.1").unwrap();
    assert!(shown.contains("2001:db8:2::2"), "{shown}");
    assert!(scene.a.reaches("198.51.100.1", 5).unwrap());
    no_difference(&scene.router);
    other.kill().unwrap();
    eventually("the route goes", BOUND, || !scene.has_route("198.51.100.1"));
    assert_buffers_are_back(&scene.router);
}

/// Sub-interfaces, and as many loopbacks: `QUIVER_PAIRS` (1000 for the full count). The kernel removes such devices one by one, under the lock
/// of all its namespaces, so that other scenarios wait for it: usually there are fewer.
fn pairs_of_each_kind() -> usize {
    let asked = std::env::var("QUIVER_PAIRS").ok().map(|text| text.parse().expect("QUIVER_PAIRS is a number"));
    asked.unwrap_or(if is_short_pass() { 20 } else { 100 })
}

/// Runs commands from files, each with those of so many interfaces.
fn run_in_parts(router: &Router, commands: &[String]) {
    for part in commands.chunks(25) {
        let file = router.file("part.cli");
        fs::write(&file, part.concat()).unwrap();
        router.cli(&format!("exec {}", file.display())).unwrap();
    }
}

#[test]
fn many_sub_interfaces_and_loopbacks_have_host_interfaces() {
    let Some(_scenario) = Scenario::begin(&["ip", "ping"]) else { return };
    let each = pairs_of_each_kind();
    let host = Host::new("router").unwrap();
    let linux = Host::new("linux").unwrap();
    let keeper = linux.background("sleep 86400").unwrap();
    let router = Router::start(&host, "cpu { workers 1 }").unwrap();
    let first = format!(
        "lcp default netns pid:{}\nlcp lcp-sync on\nlcp lcp-auto-subint on\ncreate packet-generator interface pg0\n\
         set interface state pg0 up\nlcp create pg0 host-if e0\n",
        keeper.pid()
    );
    let commands = (1..=each).map(|n| {
        format!(
            "create sub-interfaces pg0 {n} dot1q {n} exact-match\nset interface state pg0.{n} up\n\
             create loopback interface instance {n}\nset interface state loop{n} up\n\
             set interface ip address loop{n} 10.{}.{}.1/32\nlcp create loop{n} host-if lo{n}\n",
            n / 256,
            n % 256
        )
    });
    run_in_parts(&router, &std::iter::once(first).chain(commands).collect::<Vec<_>>());
    let pairs = || router.cli("show lcp").unwrap().lines().filter(|line| line.starts_with("itf-pair:")).count();
    eventually("all pairs", BOUND, || pairs() == 2 * each + 1);
    let links = || linux.run("ip -o link", BOUND).unwrap().expect("ip link");
    let of = |text: &str, begin: &str| text.lines().filter(|line| line.contains(&format!(": {begin}"))).count();
    let addresses = || linux.run("ip -4 -o addr show scope global", BOUND).unwrap().expect("ip addr").lines().count();
    // Linux is told by another thread.
    eventually("host interfaces and addresses", BOUND, || {
        let links = links();
        (of(&links, "e0."), of(&links, "lo") - 1, addresses()) == (each, each, each)
    });
    // Each is read: what Linux sends on the last ones leaves there.
    let sent = |name: &str| common::counter(&router, name, "tx packets");
    for name in [format!("pg0.{each}"), "pg0.1".to_owned()] {
        let host_if = name.replace("pg0", "e0");
        linux.ip(&format!("addr add 10.200.0.1/24 dev {host_if}")).unwrap();
        let before = sent(&name);
        // Nothing leaves before Linux has been told that it is up.
        eventually("an ARP request leaves", BOUND, || {
            let _ = linux.pings("10.200.0.2", 1);
            sent(&name) > before
        });
        linux.ip(&format!("addr del 10.200.0.1/24 dev {host_if}")).unwrap();
    }
    // A parent's pair that goes takes none of its children's; interfaces take theirs.
    let removal = (1..=each).map(|n| format!("delete sub-interface pg0.{n}\ndelete loopback interface intfc loop{n}\n"));
    run_in_parts(&router, &removal.collect::<Vec<_>>());
    eventually("pairs go", BOUND, || pairs() == 1);
    eventually("host interfaces go", BOUND, || of(&links(), "e0.") + of(&links(), "lo") == 1);
    assert_buffers_are_back(&router);
}

/// Both BIRDs keep each other's routes over a restart.
fn graceful(name: &str, own: (&str, u32), other: (&str, u32), more: &str, channel: &str) -> String {
    let ((id, number), (neighbor, theirs)) = (own, other);
    format!(
        "router id {id};\nprotocol device {{ scan time 1; }}\n{more}\n\
         protocol bgp {name} {{ local as {number}; neighbor {neighbor} as {theirs}; graceful restart on; connect delay time 1; \
         connect retry time 2; error wait time 1, 2; ipv4 {{ {channel} }}; }}\n"
    )
}

const NETWORK: &str = "198.51.100.0/24";

fn birds(scene: &Scene) -> (Guard, Guard) {
    (ours(scene, ""), theirs(scene))
}

fn ours(scene: &Scene, words: &str) -> Guard {
    let kernel = "protocol kernel { ipv4 { import none; export where proto = \"north\"; }; persist; graceful restart; }\n\
                  protocol static own { ipv4; route 10.0.1.0/24 blackhole; }";
    let text = graceful("north", ("10.0.2.1", 64_513), ("10.0.2.2", 64_512), kernel, "import all; export where proto = \"own\";");
    quiver_testbed::bird_with(&scene.linux, &scene.router.file("bird"), "ours", &text, words).unwrap()
}

fn theirs(scene: &Scene) -> Guard {
    // The way back to host a is known by BGP alone.
    let kernel = format!(
        "protocol kernel {{ ipv4 {{ import none; export where proto = \"south\"; }}; }}\n\
         protocol static own {{ ipv4; route {NETWORK} blackhole; }}"
    );
    let text = graceful("south", ("10.0.2.2", 64_512), ("10.0.2.1", 64_513), &kernel, "import all; export where proto = \"own\";");
    bird(&scene.peer, &scene.router.file("bird"), "theirs", &text).unwrap()
}

#[test]
fn bird_restarts_gracefully_under_traffic() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird", "ping"]) else { return };
    let scene = Scene::new();
    scene.peer.ip("route del default").unwrap();
    let (mut own, _other) = birds(&scene);
    eventually("BGP both ways", BOUND, || scene.has_route("198.51.100.1") && scene.a.pings("198.51.100.1", 1).unwrap());
    let traffic = crate::frr::Traffic::start(&scene, "198.51.100.1");
    own.kill().unwrap();
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while BIRD is dead");
    let own = ours(&scene, "-R");
    let socket = scene.router.file("bird").join("ours.ctl");
    let established =
        || scene.linux.run(&format!("birdc -s {} show protocols", socket.display()), BOUND).unwrap().stdout.contains("Established");
    eventually("the session is back", BOUND, established);
    let back = || scene.linux.run(&format!("birdc -s {} show status", socket.display()), BOUND).unwrap().stdout;
    eventually("recovery is over", BOUND, || !back().contains("Graceful restart recovery in progress"));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap());
    crate::frr::assert_nothing_is_lost(traffic);
    no_difference(&scene.router);
    drop(own);
    assert_buffers_are_back(&scene.router);
}

#[test]
fn the_router_is_killed_under_traffic_and_comes_back_with_its_routes() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird", "ping"]) else { return };
    let mut scene = Scene::new();
    scene.peer.ip("route del default").unwrap();
    let (_own, _other) = birds(&scene);
    let works = |scene: &Scene| scene.has_route("198.51.100.1") && scene.a.pings("198.51.100.1", 1).unwrap();
    eventually("BGP both ways", BOUND, || works(&scene));
    let rounds = common::kills(1, 2);
    for round in 0..rounds {
        scene.restart_router();
        eventually("BIRD finds its interfaces again, and BGP its neighbour", BOUND, || works(&scene));
        assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "round {round}");
        no_difference(&scene.router);
        assert_buffers_are_back(&scene.router);
    }
}

#[test]
fn nothing_is_lost_while_routes_churn_and_memory_is_as_before() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let n = if is_short_pass() { 5_000 } else { 50_000 };
    let (prefixes, _) = Prefixes::full(n);
    let mut scene = churn::Scene::new(prefixes, "cpu { workers 1 }").unwrap();
    let mut stream = scene.announcer(true).unwrap();
    let empty = scene.forwarded_by().unwrap();
    let settle = |scene: &churn::Scene| {
        scene.until("all is there", || {
            let there = scene.forwarded_by()?;
            if there == empty + scene.announced() && scene.installed().is_ok() { Ok(()) } else { Err(format!("{there}")) }
        })
    };
    // Prefixes, and bytes.
    let table = |scene: &churn::Scene| {
        let shown = scene.json("show ip fib memory").unwrap();
        let sum = |key: &str| -> u64 {
            let tables = shown["tables"].as_array().unwrap_or_else(|| panic!("{shown}"));
            tables.iter().map(|table| table[key].as_u64().unwrap_or_else(|| panic!("no {key}: {shown}"))).sum()
        };
        (sum("count"), sum("memory"))
    };
    scene.send(Some(20_000)).unwrap();
    let mut random = Random::new(7);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        scene.announce_all(&mut stream).unwrap();
        settle(&scene).unwrap();
        sizes.push(table(&scene));
        for _ in 0..4 {
            scene.change(&mut stream, &mut random, n).unwrap();
        }
        settle(&scene).unwrap();
    }
    let packets = scene.stop().unwrap();
    assert!(packets.received > 0);
    assert_eq!(packets.lost(), 0, "{packets:?}\n{}", scene.router.cli("show errors").unwrap());
    // The first round makes the tables as large as churn needs them. How many changes are under way at once depends on the machine's load, and
    // so does a handful of entries; a byte lost with each change of a round would be 20 times as much.
    let same = |pair: &[(u64, u64)]| pair[0].0 == pair[1].0 && pair[0].1.abs_diff(pair[1].1) < n as u64 / 5;
    assert!(sizes[1..].windows(2).all(same), "{sizes:#?}");
    no_difference(&scene.router);
    scene.withdraw_all(&mut stream).unwrap();
    settle(&scene).unwrap();
    assert_eq!(scene.announced(), 0);
    assert_buffers_are_back(&scene.router);
}
