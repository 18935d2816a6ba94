//! FRR of Debian on host interfaces: OSPF, BGP and IS-IS with neighbours behind the router's links, its routes by the kernel and by its
//! forwarding plane manager, and its sudden end under traffic.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use crate::common;
use crate::linux_nl::{NETWORKS, Scene, peer_configuration, peer_configuration6};

use common::{BOUND, answer_number, assert_buffers_are_back, eventually};
use quiver_testbed::{Frr, Guard, Host, Scenario};

const BGP: &str = "router bgp 64513\n bgp router-id 10.0.2.1\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
                   neighbor 10.0.2.2 remote-as 64512\n neighbor 10.0.2.2 timers connect 1\n";
/// A neighbour is lost after 20 s, as by BIRD's configuration: the machine of a test may stand still for longer than 4.
const OSPF: &str = "interface e1\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n \
                    ip ospf dead-interval 20\n!\nrouter ospf\n ospf router-id 10.0.2.1\n";

const BGP6: &str = "router bgp 64513\n bgp router-id 10.0.2.1\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
                    no bgp default ipv4-unicast\n neighbor 2001:db8:2::2 remote-as 64512\n \
                    neighbor 2001:db8:2::2 timers connect 1\n \
                    address-family ipv6 unicast\n  neighbor 2001:db8:2::2 activate\n exit-address-family\n";
const OSPF6: &str = "interface e1\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 hello-interval 1\n \
                     ipv6 ospf6 dead-interval 20\n!\nrouter ospf6\n ospf6 router-id 10.0.2.1\n";

/// FRR with BGP and OSPF in the router's namespace.
fn frr(scene: &Scene, zebra: &str, words: &str) -> Frr {
    let mut frr = Frr::new(&scene.linux).unwrap();
    start(&mut frr, zebra, words);
    frr
}

fn start(frr: &mut Frr, zebra: &str, words: &str) {
    frr.start("zebra", zebra, words).unwrap();
    frr.start("ospfd", OSPF, "").unwrap();
    frr.start("bgpd", BGP, "").unwrap();
}

/// Kills all at once, zebra first: it takes the routes of a daemon away that ends before it.
fn kill(frr: &mut Frr, daemons: [&str; 3]) {
    daemons.iter().for_each(|daemon| frr.kill(daemon).unwrap());
}

/// Removes the kernel's copies of FRR's routes.
fn remove_from_kernel(host: &Host) {
    let script = "for proto in bgp ospf; do ip route show proto $proto; done | sed 's/^\\([^ ]*\\).*/route del \\1/' | ip -batch -";
    host.sh(script, BOUND).unwrap().expect("ip route del");
    for proto in ["bgp", "ospf"] {
        let left = host.run(&format!("ip route show proto {proto}"), BOUND).unwrap().expect("ip route");
        assert_eq!(left, "", "{proto}");
    }
}

/// Pings from host `a` in short intervals until it is asked what was lost.
pub struct Traffic {
    ping: Guard,
    answers: PathBuf,
}

impl Traffic {
    pub fn start(scene: &Scene, address: &str) -> Self {
        let answers = scene.router.file("answers");
        let mut command = scene.a.command("ping");
        command.args(["-n", "-i", "0.01", "-W", "60", address]);
        command.stdin(Stdio::null()).stdout(File::create(&answers).unwrap()).stderr(Stdio::null());
        let traffic = Self { ping: scene.a.spawn(command).unwrap(), answers };
        traffic.goes_on();
        traffic
    }

    /// Numbers of the answers so far, in order.
    fn answered(&self) -> BTreeSet<u64> {
        std::fs::read_to_string(&self.answers).unwrap().lines().filter_map(answer_number).collect()
    }

    /// Waits for some more answers.
    fn goes_on(&self) {
        let before = self.answered().len();
        eventually("answers go on", BOUND, || self.answered().len() > before + 10);
    }

    /// Numbers of the answers, in order. Those that are still on their way are not waited for: a busy machine may have several.
    fn end(mut self) -> BTreeSet<u64> {
        self.goes_on();
        self.ping.signal(libc::SIGINT).unwrap();
        self.ping.wait(BOUND).unwrap();
        self.answered()
    }
}

pub fn assert_nothing_is_lost(traffic: Traffic) {
    let answered = traffic.end();
    let last = answered.last().copied().unwrap_or_default();
    let lost: Vec<u64> = (1..=last).filter(|number| !answered.contains(number)).collect();
    println!("{last} packets answered or lost: {lost:?}");
    assert!(lost.is_empty(), "of {last}: {lost:?}");
}

#[test]
fn routes_of_frr_by_ospf_and_bgp_outlive_its_daemons_under_traffic() {
    let Some(_scenario) = Scenario::begin(&["bird", Frr::PROGRAM, "ping"]) else { return };
    let scene = Scene::new();
    let mut other = scene.bird(&scene.peer, "theirs", &peer_configuration());
    // Its own routes of the last run are kept for longer than the test lasts after a start.
    let mut frr = frr(&scene, "", "-K 3600");
    eventually("OSPF's route", BOUND, || scene.has_route("198.51.100.1"));
    eventually("BGP's routes", BOUND, || scene.has_networks() == NETWORKS);
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "through the router, by FRR's route");
    let shown = scene.router.cli("show lcp netlink").unwrap();
    assert!(shown.contains("bgp 500") && shown.contains("ospf "), "{shown}");

    other.kill().unwrap();
    eventually("OSPF's route goes", BOUND, || !scene.has_route("198.51.100.1"));
    eventually("BGP's routes go", BOUND, || scene.has_networks() == 0);
    let _other = scene.bird(&scene.peer, "theirs", &peer_configuration());
    eventually("both are back", BOUND, || scene.has_route("198.51.100.1") && scene.has_networks() == NETWORKS);

    let traffic = Traffic::start(&scene, "198.51.100.1");
    kill(&mut frr, ["zebra", "bgpd", "ospfd"]);
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while FRR is dead");
    assert_eq!(scene.has_networks(), NETWORKS);
    start(&mut frr, "", "-K 3600");
    eventually("its neighbour is full again", BOUND, || frr.show("ospfd", "show ip ospf neighbor").unwrap().contains("Full"));
    eventually("BGP is back", BOUND, || frr.show("bgpd", "show bgp summary").unwrap().contains(&format!(" {NETWORKS} ")));
    assert_nothing_is_lost(traffic);
    assert_eq!(scene.has_networks(), NETWORKS);
    assert_buffers_are_back(&scene.router);
}

#[test]
fn routes_of_frr_come_by_its_forwarding_plane_manager_and_are_held_when_zebra_is_killed() {
    let Some(_scenario) = Scenario::begin(&["bird", Frr::PROGRAM, "ping"]) else { return };
    let scene = Scene::new();
    scene.router.cli("lcp fpm listen 127.0.0.1:2620 hold-time 3600").unwrap();
    let _other = scene.bird(&scene.peer, "theirs", &peer_configuration());
    let zebra = "fpm address 127.0.0.1 port 2620\n";
    let words = "-M dplane_fpm_nl";
    let mut frr = frr(&scene, zebra, words);
    let shows = |text: &str| scene.router.cli("show lcp fpm").unwrap().contains(text);
    eventually("BGP's routes by FPM", BOUND, || shows(&format!("bgp {NETWORKS}")) && shows("ospf "));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "by FRR's route");
    let traffic = Traffic::start(&scene, "198.51.100.1");
    kill(&mut frr, ["zebra", "bgpd", "ospfd"]);
    // While zebra lived it would have put them back.
    remove_from_kernel(&scene.linux);
    eventually("the connection ends", BOUND, || shows("closed by the daemon") || shows("reset"));
    assert!(shows("routes that are not sent again go in") && shows(": listening"));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while FRR is dead");
    let drift = scene.router.cli("show lcp drift").unwrap();
    assert!(drift.contains("no difference"), "{drift}");
    assert_eq!(scene.has_networks(), NETWORKS);
    // It is back within the hold time and learns all again; nothing was lost.
    start(&mut frr, zebra, words);
    eventually("BGP is back", BOUND, || frr.show("bgpd", "show bgp summary").unwrap().contains(&format!(" {NETWORKS} ")));
    eventually("all is sent again", BOUND, || shows("hold time: 0 routes that are not sent again go in"));
    scene.router.cli("lcp fpm listen 127.0.0.1:2620 hold-time 1").unwrap();
    eventually("the hold time passes", BOUND, || !shows("hold time: "));
    assert!(shows(&format!("bgp {NETWORKS}")) && shows("connected from 127.0.0.1") && shows(" 0 malformed"));
    assert_nothing_is_lost(traffic);
    // It goes for good.
    kill(&mut frr, ["zebra", "bgpd", "ospfd"]);
    remove_from_kernel(&scene.linux);
    eventually("what it sent goes", BOUND, || scene.has_networks() == 0 && !scene.has_route("198.51.100.1"));
    assert!(scene.a.reaches("10.0.2.2", 3).unwrap(), "the link's own route stays");
    assert_buffers_are_back(&scene.router);
}

#[test]
fn routes_of_the_forwarding_plane_manager_outlive_the_process_of_the_router() {
    let Some(_scenario) = Scenario::begin(&["bird", Frr::PROGRAM, "ping"]) else { return };
    let mut scene = Scene::new();
    scene.router.cli("lcp fpm listen 127.0.0.1:2620 hold-time 3600").unwrap();
    let _other = scene.bird(&scene.peer, "theirs", &peer_configuration());
    let zebra = "fpm address 127.0.0.1 port 2620\n";
    let words = "-M dplane_fpm_nl";
    let mut frr = frr(&scene, zebra, words);
    let shows = |scene: &Scene, text: &str| scene.router.cli("show lcp fpm").unwrap().contains(text);
    eventually("BGP's routes by FPM", BOUND, || shows(&scene, &format!("bgp {NETWORKS}")) && shows(&scene, "ospf "));
    // zebra is connected: the new process has its routes, and zebra comes to it and confirms them.
    scene.router.take_over(&scene.middle, None).unwrap();
    assert_eq!(scene.has_networks(), NETWORKS, "from the first packet on");
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "by FRR's route");
    let report = scene.router.cli("show restart").unwrap();
    assert!(report.contains("routes of FPM"), "{report}");
    eventually("zebra is connected to the new process", BOUND, || {
        shows(&scene, "connected from 127.0.0.1") && shows(&scene, "hold time: 0 routes that are not sent again go in")
    });
    // Nobody is there to say them again: the process after that has them still.
    kill(&mut frr, ["zebra", "bgpd", "ospfd"]);
    remove_from_kernel(&scene.linux);
    eventually("the connection ends", BOUND, || shows(&scene, ": listening"));
    scene.router.take_over(&scene.middle, None).unwrap();
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while FRR is dead");
    assert_eq!(scene.has_networks(), NETWORKS);
    assert!(shows(&scene, "routes that are not sent again go in"), "they are held for the hold time");
    let drift = scene.router.cli("show lcp drift").unwrap();
    assert!(drift.contains("no difference"), "{drift}");
    start(&mut frr, zebra, words);
    eventually("all is sent again", BOUND, || shows(&scene, "hold time: 0 routes that are not sent again go in"));
    scene.router.cli("lcp fpm listen 127.0.0.1:2620 hold-time 1").unwrap();
    eventually("the hold time passes", BOUND, || !shows(&scene, "hold time: "));
    assert!(shows(&scene, &format!("bgp {NETWORKS}")) && shows(&scene, " 0 malformed"));
    assert_buffers_are_back(&scene.router);
}

#[test]
fn ipv6_routes_of_frr_come_by_its_forwarding_plane_manager() {
    let Some(_scenario) = Scenario::begin(&["bird", Frr::PROGRAM, "ping"]) else { return };
    let scene = Scene::with_ip6();
    scene.router.cli("lcp fpm listen 127.0.0.1:2620").unwrap();
    let _other = scene.bird(&scene.peer, "theirs", &peer_configuration6());
    let mut frr = Frr::new(&scene.linux).unwrap();
    frr.start("zebra", "fpm address 127.0.0.1 port 2620\n", "-M dplane_fpm_nl").unwrap();
    frr.start("ospf6d", OSPF6, "").unwrap();
    frr.start("bgpd", BGP6, "").unwrap();
    let shows = |text: &str| scene.router.cli("show lcp fpm").unwrap().contains(text);
    eventually("routes by FPM", BOUND, || shows(&format!("bgp {NETWORKS}")) && shows("ospf ") && shows(" 0 malformed"));
    assert_eq!(scene.has_networks6(), NETWORKS);
    assert!(scene.a.reaches("2001:db8:ffff::1", 3).unwrap(), "by FRR's route");
    // FPM alone: the kernel has lost them all.
    let remove =
        "for proto in bgp ospf; do ip -6 route show proto $proto; done | sed 's/^\\([^ ]*\\).*/route del \\1/' | ip -6 -batch -";
    kill(&mut frr, ["zebra", "bgpd", "ospf6d"]);
    scene.linux.sh(remove, BOUND).unwrap();
    let left = scene.linux.run("ip -6 route show proto bgp", BOUND).unwrap().expect("ip route");
    assert_eq!((left.as_str(), scene.has_networks6()), ("", NETWORKS), "routes are held while FRR is dead");
    assert!(scene.a.reaches("2001:db8:ffff::1", 3).unwrap());
    assert_buffers_are_back(&scene.router);
}

#[test]
fn bgp_of_frr_restarts_gracefully_under_traffic() {
    let Some(_scenario) = Scenario::begin(&["bird", Frr::PROGRAM, "ping"]) else { return };
    let scene = Scene::new();
    // The way back to host a is known by BGP alone.
    scene.peer.ip("route del default").unwrap();
    let theirs = "router id 10.0.2.2;\nprotocol device { scan time 1; }\n\
                  protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }\n\
                  protocol static own { ipv4; route 198.51.100.0/24 blackhole; }\n\
                  protocol bgp south { local as 64512; neighbor 10.0.2.1 as 64513; graceful restart on; connect delay time 1; \
                  connect retry time 2; error wait time 1, 2; ipv4 { import all; export where proto = \"own\"; }; }\n";
    let _other = scene.bird(&scene.peer, "theirs", theirs);
    let bgp = format!("{BGP} bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n network 10.0.1.0/24\n");
    let start = |frr: &mut Frr| {
        frr.start("zebra", "", "-K 3600").unwrap();
        frr.start("bgpd", &bgp, "").unwrap();
    };
    let mut frr = Frr::new(&scene.linux).unwrap();
    start(&mut frr);
    eventually("BGP both ways", BOUND, || scene.has_route("198.51.100.1") && scene.a.pings("198.51.100.1", 1).unwrap());
    let traffic = Traffic::start(&scene, "198.51.100.1");
    ["zebra", "bgpd"].iter().for_each(|daemon| frr.kill(daemon).unwrap());
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while FRR is dead");
    start(&mut frr);
    eventually("the session is back", BOUND, || frr.show("bgpd", "show bgp neighbors").unwrap().contains("Established"));
    eventually("its routes are", BOUND, || frr.show("bgpd", "show bgp ipv4 unicast").unwrap().contains("198.51.100.0/24"));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap());
    assert_nothing_is_lost(traffic);
    assert_buffers_are_back(&scene.router);
}

#[test]
fn is_is_finds_its_neighbour_by_a_host_interface() {
    let Some(_scenario) = Scenario::begin(&[Frr::PROGRAM, "ping"]) else { return };
    let scene = Scene::new();
    let isis = |interface: &str, more: &str, n: u32| {
        // A neighbour is lost after 20 s: the machine of a test may stand still for longer than 4.
        let timers = " isis network point-to-point\n isis hello-interval 1\n isis hello-multiplier 20\n";
        format!(
            "interface {interface}\n ip router isis q\n{timers}!\n{more}\
             router isis q\n net 49.0001.0000.0000.000{n}.00\n is-type level-2-only\n metric-style wide\n"
        )
    };
    let mut ours = Frr::new(&scene.linux).unwrap();
    let mut theirs = Frr::new(&scene.peer).unwrap();
    for (frr, interface, more, n) in
        [(&mut ours, "e1", "", 1), (&mut theirs, "eth0", "interface lo\n ip router isis q\n isis passive\n!\n", 2)]
    {
        frr.start("zebra", "", "").unwrap();
        frr.start("isisd", &isis(interface, more, n), "").unwrap();
    }
    eventually("the neighbour is up", BOUND, || ours.show("isisd", "show isis neighbor").unwrap().contains("Up"));
    eventually("IS-IS's route", BOUND, || scene.has_route("198.51.100.1"));
    let shown = scene.router.cli("show lcp netlink").unwrap();
    assert!(shown.contains("isis "), "{shown}");
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "through the router, by IS-IS's route");
    theirs.kill("isisd").unwrap();
    eventually("the route goes", BOUND, || !scene.has_route("198.51.100.1"));
    assert_buffers_are_back(&scene.router);
}
