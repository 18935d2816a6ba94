//! Routes of Linux in the router: the real BIRD on host interfaces, and hosts that reach each other by what it learns.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario, bird};

/// Networks that the peer announces by BGP: 30.0.0.0/24 and so on.
pub const NETWORKS: usize = 500;

/// Host `a`, the router with its Linux side, and a peer that speaks OSPF and BGP:
///
/// ```text
///   a 10.0.1.2 ── r0 10.0.1.1 router 10.0.2.1 r1 ── 10.0.2.2 peer, 198.51.100.1
///                        │               │            BIRD
///                        e0    BIRD      e1
/// ```
pub struct Scene {
    pub a: Host,
    pub linux: Host,
    pub peer: Host,
    pub router: Router,
    pub middle: Host,
    /// By which the router finds the namespace.
    keeper: Guard,
}

/// The router with its interfaces, their pairs and the addresses, one of which comes from Linux.
fn router(middle: &Host, linux: &Host, keeper: &Guard, conf: &str) -> Router {
    let router = Router::start(middle, conf).expect("router");
    let netns = format!("pid:{}", keeper.pid());
    let commands = format!(
        "create host-interface name r0\ncreate host-interface name r1\n\
         set interface state host-r0 up\nset interface state host-r1 up\n\
         lcp lcp-sync on\n\
         lcp create host-r0 host-if e0 netns {netns}\nlcp create host-r1 host-if e1 netns {netns}\n\
         set interface ip address host-r0 10.0.1.1/24\n"
    );
    router.script(&commands).expect("configuration");
    // One address comes from either side.
    linux.address("e1", "10.0.2.1/24").unwrap();
    router
}

const CONF: &str = "cpu { workers 1 }";

impl Scene {
    pub fn new() -> Self {
        Self::with_conf(CONF)
    }

    pub fn with_conf(conf: &str) -> Self {
        let [a, middle, linux, peer] = ["a", "router", "linux", "peer"].map(|name| Host::new(name).unwrap());
        a.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        peer.veth("eth0", &middle, "r1", &LinkOptions::default()).unwrap();
        ["r0", "r1"].iter().for_each(|name| middle.disable_ipv6(name).unwrap());
        a.ip("addr add 10.0.1.2/24 dev eth0\nroute add default via 10.0.1.1").unwrap();
        peer.ip("addr add 10.0.2.2/24 dev eth0\naddr add 198.51.100.1/32 dev lo\nroute add default via 10.0.2.1").unwrap();
        // It asks for neighbours with its address on the link. By itself Linux asks with that of the packet at hand, 198.51.100.1, and the
        // router answers nobody who is not of the subnet: a test that takes long enough for it to ask would lose its answers.
        peer.sysctl("net.ipv4.conf.all.arp_announce", "2").unwrap();
        let keeper = linux.background("sleep 86400").unwrap();
        let router = router(&middle, &linux, &keeper, conf);
        Self { a, linux, peer, router, middle, keeper }
    }

    /// Kills the router as a crash would, and starts another one.
    pub fn restart_router(&mut self) {
        self.router.kill9().unwrap();
        eventually("host interfaces go with the router", BOUND, || self.linux.mac("e1").is_err());
        self.router = router(&self.middle, &self.linux, &self.keeper, CONF);
    }

    pub fn bird(&self, host: &Host, name: &str, text: &str) -> Guard {
        bird(host, &self.router.file("bird"), name, text).unwrap()
    }

    /// The same with IPv6: 2001:db8:1::/64 and 2001:db8:2::/64 in place of 10.0.1.0/24 and 10.0.2.0/24, 2001:db8:ffff::1 at the peer.
    pub fn with_ip6() -> Self {
        let scene = Self::new();
        scene.a.ip("addr add 2001:db8:1::2/64 dev eth0 nodad\nroute add default via 2001:db8:1::1").unwrap();
        scene.peer.ip("addr add 2001:db8:2::2/64 dev eth0 nodad\naddr add 2001:db8:ffff::1/128 dev lo").unwrap();
        scene.peer.ip("route add default via 2001:db8:2::1").unwrap();
        let addresses = [("host-r0", "2001:db8:1::1/64"), ("host-r1", "2001:db8:2::1/64")];
        for (interface, address) in addresses {
            scene.router.cli(&format!("set interface ip address {interface} {address}")).unwrap();
        }
        eventually("addresses in Linux, which no other host has", BOUND, || {
            let linux = scene.linux.run("ip -6 -o addr", BOUND).unwrap().expect("ip addr");
            addresses.iter().all(|(_, address)| linux.contains(address)) && !linux.contains("tentative")
        });
        scene
    }

    /// Whether the router has a route of Linux for an address.
    pub fn has_route(&self, address: &str) -> bool {
        let family = if address.contains(':') { "ip6" } else { "ip" };
        self.router.cli(&format!("show {family} fib {address}")).is_ok_and(|text| text.contains("lcp-rt"))
    }

    pub fn has_networks(&self) -> usize {
        self.count("show ip fib", "30.")
    }

    pub fn has_networks6(&self) -> usize {
        self.count("show ip6 fib", "2001:db8:3")
    }

    fn count(&self, command: &str, begin: &str) -> usize {
        self.router.cli(command).unwrap().lines().filter(|line| line.starts_with(begin)).count()
    }
}

/// One end of the link between router and peer.
struct End {
    id: &'static str,
    address6: &'static str,
    number: u32,
    interface: &'static str,
}

const OURS: End = End { id: "10.0.2.1", address6: "2001:db8:2::1", number: 64_513, interface: "e1" };
const THEIRS: End = End { id: "10.0.2.2", address6: "2001:db8:2::2", number: 64_512, interface: "eth0" };

/// What of BIRD's configuration differs by IP version: the name of its tables, and the version of OSPF.
struct Family {
    name: &'static str,
    ospf: &'static str,
    neighbor: fn(&End) -> &'static str,
}

const FOUR: Family = Family { name: "ipv4", ospf: "v2", neighbor: |end| end.id };
const SIX: Family = Family { name: "ipv6", ospf: "v3", neighbor: |end| end.address6 };

/// BIRD's configuration at one end, with filters of BGP and OSPF.
fn configuration(family: &Family, own: &End, other: &End, more: &str, bgp: &str, ospf: &str) -> String {
    let Family { name, ospf: version, .. } = family;
    let (id, number, interface) = (own.id, own.number, own.interface);
    let (neighbor, theirs) = ((family.neighbor)(other), other.number);
    format!(
        "router id {id};\nprotocol device {{ scan time 1; }}\n{more}\n\
         protocol bgp {{ local as {number}; neighbor {neighbor} as {theirs}; connect delay time 1; connect retry time 2; \
         {name} {{ {bgp} }}; }}\n\
         protocol ospf {version} {{ {name} {{ {ospf} }}; \
         area 0 {{ interface \"{interface}\" {{ type ptp; hello 1; dead count 20; }}; }}; }}\n"
    )
}

/// The BIRD beside the router: all that it learns goes to the kernel and stays there without it.
fn own_configuration(family: &Family) -> String {
    let kernel = format!("protocol kernel {{ {} {{ import none; export all; }}; persist; }}", family.name);
    let all = "import all; export none;";
    configuration(family, &OURS, &THEIRS, &kernel, all, all)
}

fn peer(family: &Family, one: &str, networks: impl Fn(usize) -> String) -> String {
    let bulk: String = (0..NETWORKS).map(|n| format!("route {} blackhole;\n", networks(n))).collect();
    let name = family.name;
    let statics = format!("protocol static bulk {{ {name}; {bulk} }}\nprotocol static one {{ {name}; route {one} blackhole; }}");
    let (bgp, ospf) = ("import none; export where proto = \"bulk\";", "import none; export where proto = \"one\";");
    configuration(family, &THEIRS, &OURS, &statics, bgp, ospf)
}

/// The peer's BIRD: a network by OSPF, and [`NETWORKS`] by BGP.
pub fn peer_configuration() -> String {
    peer(&FOUR, "198.51.100.0/24", |n| format!("30.{}.{}.0/24", n / 256, n % 256))
}

/// The same with IPv6.
pub fn peer_configuration6() -> String {
    peer(&SIX, "2001:db8:ffff::/48", |n| format!("2001:db8:{:x}::/48", 0x3000 + n))
}

#[test]
fn hosts_reach_each_other_by_routes_of_bird_until_its_peer_is_killed() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird", "ping"]) else { return };
    let scene = Scene::new();
    eventually("addresses on both sides", BOUND, || {
        let shown = scene.router.cli("show interface address").unwrap();
        let linux = scene.linux.run("ip -4 -o addr", BOUND).unwrap().expect("ip addr");
        shown.contains("10.0.2.1/24") && linux.contains("10.0.1.1/24")
    });
    let ours = own_configuration(&FOUR);
    let mut daemon = scene.bird(&scene.linux, "ours", &ours);
    let mut other = scene.bird(&scene.peer, "theirs", &peer_configuration());
    eventually("OSPF's route", BOUND, || scene.has_route("198.51.100.1"));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "through the router, by OSPF's route");
    eventually("BGP's routes", BOUND, || scene.has_networks() == NETWORKS);

    // Without its routing daemon the router forwards on: the routes are the kernel's.
    daemon.kill().unwrap();
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap(), "while BIRD is dead");
    // Before another one, at its start, takes the routes away and adds them again.
    let drift = scene.router.cli("show lcp drift").unwrap();
    assert!(drift.contains("no difference"), "{drift}");
    let _daemon = scene.bird(&scene.linux, "ours", &ours);

    other.kill().unwrap();
    eventually("OSPF's route goes", BOUND, || !scene.has_route("198.51.100.1"));
    eventually("BGP's routes go", BOUND, || scene.has_networks() == 0);
    assert!(!scene.a.pings("198.51.100.1", 1).unwrap(), "nothing leads there any more");
    assert!(scene.a.reaches("10.0.2.2", 3).unwrap(), "the link's own route stays");
    assert_buffers_are_back(&scene.router);
}

#[test]
fn hosts_reach_each_other_by_ipv6_routes_of_bird() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird", "ping"]) else { return };
    let scene = Scene::with_ip6();
    let _daemon = scene.bird(&scene.linux, "ours", &own_configuration(&SIX));
    let mut other = scene.bird(&scene.peer, "theirs", &peer_configuration6());
    eventually("OSPFv3's route", BOUND, || scene.has_route("2001:db8:ffff::1"));
    assert!(scene.a.reaches("2001:db8:ffff::1", 3).unwrap(), "through the router, by OSPFv3's route");
    eventually("BGP's routes", BOUND, || scene.has_networks6() == NETWORKS);
    let drift = scene.router.cli("show lcp drift").unwrap();
    assert!(drift.contains("no difference"), "{drift}");

    other.kill().unwrap();
    eventually("OSPFv3's route goes", BOUND, || !scene.has_route("2001:db8:ffff::1"));
    eventually("BGP's routes go", BOUND, || scene.has_networks6() == 0);
    assert!(scene.a.reaches("2001:db8:2::2", 3).unwrap(), "the link's own route stays");
    assert_buffers_are_back(&scene.router);
}

#[test]
fn a_link_that_goes_down_in_linux_takes_interface_and_routes() {
    let Some(_scenario) = Scenario::begin(&["ip", "ping"]) else { return };
    let scene = Scene::new();
    scene.linux.ip("route add 198.51.100.0/24 via 10.0.2.2").unwrap();
    eventually("the route", BOUND, || scene.has_route("198.51.100.1"));
    assert!(scene.a.reaches("198.51.100.1", 3).unwrap());
    scene.linux.link_down("e1").unwrap();
    eventually("the route goes without a word of the kernel", BOUND, || !scene.has_route("198.51.100.1"));
    eventually("the interface follows", BOUND, || {
        let shown = scene.router.cli("show interface host-r1").unwrap();
        shown.lines().any(|line| line.starts_with("host-r1") && line.contains("down"))
    });
    scene.linux.link_up("e1").unwrap();
    scene.linux.ip("route replace 198.51.100.0/24 via 10.0.2.2").unwrap();
    eventually("it is back", BOUND, || scene.has_route("198.51.100.1"));
    assert!(scene.a.reaches("198.51.100.1", 5).unwrap());
    let shown = scene.router.cli("show lcp netlink").unwrap();
    assert!(shown.contains("following") && shown.contains("0 malformed"), "{shown}");
    assert_buffers_are_back(&scene.router);
}
