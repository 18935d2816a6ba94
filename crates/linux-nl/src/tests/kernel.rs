//! The whole plugin on a made-up router, with the kernel of a test host.

use std::time::{Duration, Instant};

use quiver_command::config::{Schema, Source};
use quiver_command::operation::{Answer, Job, Outcome, Step, View};
use quiver_net::linux::HostInterface;
use quiver_net::ops::testing::{execute, registry};
use quiver_net::testing::Harness;
use quiver_net::{IfIndex, Router};
use quiver_testbed::{Guard, Host, Scenario};

use crate::reader::Command;
use crate::{control, ops};

/// What must happen does within this, on a machine however busy.
pub const BOUND: Duration = Duration::from_secs(120);

/// A comparison under way.
type Comparing = Box<dyn Job<Router, Answer>>;

pub struct Scene {
    pub harness: Harness,
    pub host: Host,
    /// Holds the host's namespace under a number.
    holder: Guard,
    interfaces: [IfIndex; 2],
}

impl Scene {
    /// A router with interfaces x0 and x1, whose counterparts are `e0` and `e1` in a test host.
    pub fn new(config: &str) -> Self {
        let host = Host::new("linux").unwrap();
        host.ip("link add e0 type veth peer name p0\nlink add e1 type veth peer name p1").unwrap();
        host.ip("link set p0 up\nlink set p1 up\nlink set e0 up\nlink set e1 up").unwrap();
        Self::with(host, config)
    }

    /// As [`Scene::new`], with links `e0` and `e1` that the host has already.
    pub fn with(host: Host, config: &str) -> Self {
        let holder = host.background("sleep 1000").unwrap();
        let mut harness = Harness::new();
        let interfaces = [harness.interface(0), harness.interface(1)];
        let config = crate::config::schema(Schema::new()).read(Source::file("f", config)).unwrap();
        control::start(&mut harness.router, &config).unwrap();
        let mut scene = Self { harness, host, holder, interfaces };
        scene.pair(0);
        scene.pair(1);
        scene
    }

    fn pair(&mut self, n: usize) {
        let name = format!("e{n}");
        let host_ifindex: u32 = self.run(&format!("cat /sys/class/net/{name}/ifindex")).trim().parse().unwrap();
        let namespace = Some(format!("pid:{}", self.holder.pid()));
        let host = HostInterface { interface: self.interfaces[n], namespace, host_name: name, host_ifindex };
        self.harness.router.add_host_interface(host).unwrap();
    }

    pub fn run(&self, line: &str) -> String {
        let output = self.host.run(line, BOUND).unwrap();
        assert!(output.success(), "{line}: {output}");
        output.stdout
    }

    pub fn command(&mut self, line: &str) -> String {
        let registry = registry(&[ops::register]);
        execute(&registry, &mut self.harness.router, line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Lets the router run until something holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Router) -> bool) {
        let end = Instant::now() + BOUND;
        while !holds(&self.harness.router) {
            self.harness.router.run_processes(0);
            if Instant::now() > end {
                let shown = self.command("show lcp netlink");
                let routes: String = self.command("show ip fib summary");
                panic!("{what} does not happen\n{shown}\n{routes}");
            }
            std::thread::yield_now();
        }
    }

    /// `show lcp drift`, with the router running meanwhile.
    pub fn drift(&mut self) -> String {
        let job = self.begin_drift();
        self.end_drift(job)
    }

    fn begin_drift(&mut self) -> Comparing {
        let registry = registry(&[ops::register]);
        let Ok(Outcome::Job(job)) = registry.execute(&mut self.harness.router, "show lcp drift", &View::TEXT) else {
            panic!("no job")
        };
        job
    }

    fn end_drift(&mut self, mut job: Comparing) -> String {
        let router = &mut self.harness.router;
        let end = Instant::now() + BOUND;
        loop {
            router.run_processes(0);
            match job.step(router, Duration::from_micros(50)) {
                Step::Done(answer) => return answer.unwrap().text,
                _ => assert!(Instant::now() < end, "no comparison"),
            }
        }
    }
}

fn prefix(text: &str) -> quiver_wire::IpPrefix {
    text.parse().unwrap()
}

/// Paths that the router has from Linux for a prefix; none: no such route.
pub fn paths(router: &Router, text: &str) -> usize {
    let route = router.route(0, prefix(text)).unwrap();
    let sources = route.map(|route| route.sources).unwrap_or_default();
    sources.iter().find(|s| s.source == quiver_net::fib::Source::Linux).map_or(0, |s| s.paths.len())
}

#[test]
fn routes_objects_and_addresses_of_linux_come_and_go() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new("");
    scene.host.ip("addr add 10.0.0.1/24 dev e0\naddr add 10.0.1.1/24 dev e1\naddr add 2001:db8::1/64 dev e0 nodad").unwrap();
    let x0 = scene.interfaces[0];
    scene.until("addresses", move |r| r.interfaces.get(x0).unwrap().addresses.len() >= 2);
    scene.host.ip("route add 192.0.2.0/24 via 10.0.0.2 proto bird\nroute add blackhole 198.51.100.0/24").unwrap();
    scene.host.ip("route add 203.0.113.0/24 nexthop via 10.0.0.2 weight 3 nexthop via 10.0.1.2").unwrap();
    scene.host.ip("route add 2001:db8:1::/48 via 2001:db8::2").unwrap();
    scene.until("routes", |r| paths(r, "192.0.2.0/24") == 1 && paths(r, "198.51.100.0/24") == 1);
    scene.until("several paths", |r| paths(r, "203.0.113.0/24") == 2);
    scene.until("IPv6", |r| paths(r, "2001:db8:1::/48") == 1);
    let shown = scene.command("show lcp netlink");
    assert!(shown.contains("bird 1") && shown.contains("following"), "{shown}");
    assert!(scene.command("show ip fib 192.0.2.1").contains("lcp-rt"));
    // A table of Linux' is made with its first route and goes with its last one.
    let has_table = |r: &Router| r.tables(quiver_net::ip::FamilyId::V4).iter().any(|table| table.id == 7);
    scene.host.ip("route add 10.20.0.0/16 via 10.0.0.2 table 7\nroute add 10.21.0.0/16 via 10.0.0.2 table 7").unwrap();
    scene.until("a table", move |r| has_table(r) && r.route(7, prefix("10.21.0.0/16")).unwrap().is_some());
    scene.host.ip("route flush table 7").unwrap();
    scene.until("the table goes", move |r| !has_table(r));
    // Next-hop objects: routes that go with their object go without a word.
    scene.host.ip("nexthop add id 1 via 10.0.0.2 dev e0\nnexthop add id 2 via 10.0.1.2 dev e1").unwrap();
    scene.host.ip("nexthop add id 10 group 1/2\nroute add 10.10.0.0/16 nhid 10\nroute add 10.11.0.0/16 nhid 1").unwrap();
    scene.until("routes by objects", |r| paths(r, "10.10.0.0/16") == 2 && paths(r, "10.11.0.0/16") == 1);
    scene.host.ip("nexthop del id 1").unwrap();
    scene.until("an object goes", |r| paths(r, "10.10.0.0/16") == 1 && paths(r, "10.11.0.0/16") == 0);
    // A link goes down: all that the kernel removes with it.
    scene.host.ip("link set e1 down").unwrap();
    scene.until("a link goes down", |r| paths(r, "10.10.0.0/16") == 0 && paths(r, "203.0.113.0/24") == 1);
    let x1 = scene.interfaces[1];
    scene.until("the interface follows", move |r| !r.interfaces.get(x1).unwrap().admin_up);
    assert!(scene.drift().contains("no difference"), "{}", scene.drift());
    scene.host.ip("link set e1 up\nlink set e0 mtu 1400").unwrap();
    scene.until("it is up again", move |r| r.interfaces.get(x1).unwrap().admin_up);
    scene.until("the size follows", move |r| r.interfaces.get(x0).unwrap().mtu.l3 == 1400);
    // Neighbours.
    scene.host.ip("neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 dev e0 nud permanent").unwrap();
    let two = "10.0.0.2".parse().unwrap();
    scene.until("a neighbour", move |r| r.neighbor(x0, two).is_some_and(|n| n.state == quiver_net::neighbor::State::Permanent));
    scene.host.ip("neigh del 10.0.0.2 dev e0").unwrap();
    scene.until("it goes", move |r| r.neighbor(x0, two).is_none());
    // The pair goes: routes by it go, addresses stay.
    scene.harness.router.remove_host_interface(x0);
    scene.until("routes of a pair that goes", |r| paths(r, "192.0.2.0/24") == 0);
    assert_eq!(paths(&scene.harness.router, "198.51.100.0/24"), 1);
    assert!(!scene.harness.router.interfaces.get(x0).unwrap().addresses.is_empty());
    scene.harness.router.remove_host_interface(x1);
    scene.until("the last pair", |r| paths(r, "198.51.100.0/24") == 0);
    scene.until("the reader ends", |r| r.part::<control::LinuxNl>().unwrap().readers.is_empty());
    // And again.
    scene.pair(0);
    scene.until("routes are back", |r| paths(r, "192.0.2.0/24") == 1 && paths(r, "198.51.100.0/24") == 1);
}

#[test]
fn a_comparison_ends_though_its_reader_does_and_another_one_begins() {
    let Some(_scenario) = Scenario::begin(&["ip"]) else { return };
    let mut scene = Scene::new("");
    let follower = |r: &Router| r.part::<control::LinuxNl>().unwrap().readers.values().next().map(|f| f.number);
    scene.until("the start", move |r| follower(r).is_some());
    let first = follower(&scene.harness.router);
    let (release, held) = std::sync::mpsc::channel();
    let own = scene.harness.router.part::<control::LinuxNl>().unwrap();
    own.readers.values().next().unwrap().command(Command::Hold(held));
    for x in scene.interfaces {
        scene.harness.router.remove_host_interface(x);
    }
    scene.until("it is told to end", |r| r.part::<control::LinuxNl>().unwrap().readers.values().all(|f| f.ending));
    let early = scene.begin_drift();
    let job = scene.begin_drift();
    scene.pair(0);
    drop(release);
    scene.until("another one", move |r| follower(r).is_some_and(|number| Some(number) != first));
    assert_eq!(scene.end_drift(job), "");
    assert_eq!(scene.end_drift(early), "");
    let waiting = &scene.harness.router.part::<control::LinuxNl>().unwrap().compared;
    assert!(waiting.is_empty(), "{waiting:?}");
}

#[test]
fn a_socket_that_overflows_leads_to_a_comparison_and_to_the_kernels_routes() {
    let Some(_scenario) = Scenario::begin(&["ip", "sh"]) else { return };
    let mut scene = Scene::new("linux-nl { rx-buffer-size 64k batch-size 16 }");
    scene.host.ip("addr add 10.0.0.1/24 dev e0").unwrap();
    let comparisons =
        |r: &Router| r.part::<control::LinuxNl>().unwrap().readers.values().next().map_or(0, |f| f.figures().comparisons);
    scene.until("the start", move |r| comparisons(r) > 0);
    let before = comparisons(&scene.harness.router);
    let (release, held) = std::sync::mpsc::channel();
    let own = scene.harness.router.part::<control::LinuxNl>().unwrap();
    own.readers.values().next().unwrap().command(Command::Hold(held));
    // More than 64 kB can hold, many times; every second one goes again.
    let script = "for n in $(seq 0 9999); do echo route add 20.$((n/256)).$((n%256)).0/24 via 10.0.0.2 dev e0; done; \
                  for n in $(seq 0 2 9999); do echo route del 20.$((n/256)).$((n%256)).0/24; done";
    let output = scene.host.sh(&format!("({script}) | ip -batch -"), BOUND).unwrap();
    assert!(output.success(), "{output}");
    drop(release);
    scene.until("5,000 routes", |r| r.tables(quiver_net::ip::FamilyId::V4)[0].routes >= 5000 && paths(r, "20.39.15.0/24") == 1);
    scene.until("those that went", |r| (0..10_000).step_by(2).all(|n| paths(r, &format!("20.{}.{}.0/24", n / 256, n % 256)) == 0));
    let shown = scene.command("show lcp netlink");
    assert!(shown.contains("boot 5000"), "{shown}");
    let figures = scene.harness.router.part::<control::LinuxNl>().unwrap().readers.values().next().unwrap().figures();
    assert!(figures.overruns > 0 && figures.comparisons > before, "{before}: {figures:?}");
    // Somebody changes the forwarding table behind our back.
    let gone = prefix("20.0.1.0/24");
    scene.harness.router.remove_route(0, gone, quiver_net::fib::Source::Linux, None).unwrap();
    let drift = scene.drift();
    assert!(drift.contains("1 differences, repaired") && drift.contains("repaired 20.0.1.0/24"), "{drift}");
    assert_eq!(paths(&scene.harness.router, "20.0.1.0/24"), 1);
    assert!(scene.drift().contains("no difference"));
}
