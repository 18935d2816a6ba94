//! BIRD's BFD with authentication, and over several hops.

use crate::common;

use common::{BOUND, assert_buffers_are_back, eventually};
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario, bird};

/// Both sides send every 10 ms. The machine of a test may do other things for longer than three of these.
const TIMING: &str = "desired-min-tx 10000 required-min-rx 10000 detect-mult 250";

struct Scene {
    peer: Host,
    router: Router,
}

impl Scene {
    fn new(commands: &str) -> Self {
        let [middle, peer] = ["router", "peer"].map(|name| Host::new(name).unwrap());
        peer.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        middle.disable_ipv6("r0").unwrap();
        peer.ip("addr add 10.0.0.2/24 dev eth0\naddr add 192.0.2.2/32 dev lo\nroute add 192.0.2.1/32 via 10.0.0.1").unwrap();
        let router = Router::start(&middle, "cpu { workers 1 }").expect("router");
        router
            .script(&format!(
                "create host-interface name r0\nset interface state host-r0 up\n\
                 set interface ip address host-r0 10.0.0.1/24\n{commands}"
            ))
            .expect("configuration");
        Self { peer, router }
    }

    fn bird(&self, name: &str, bfd: &str) -> Guard {
        let text = format!("router id 10.0.0.2;\nprotocol device {{ scan time 1; }}\nprotocol bfd {{\n{bfd}\n}}\n");
        bird(&self.peer, &self.router.file("bird"), name, &text).unwrap()
    }

    fn ours(&self) -> serde_json::Value {
        let shown = self.router.cli_json("show bfd sessions").unwrap();
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()[0].clone()
    }

    fn is_up(&self, name: &str) -> bool {
        let ctl = self.router.file("bird").join(format!("{name}.ctl"));
        let shown = self.peer.run(&format!("birdc -s {} show bfd sessions", ctl.display()), BOUND).unwrap();
        self.ours()["state"] == "up" && shown.stdout.lines().any(|line| line.split_whitespace().any(|word| word == "Up"))
    }
}

#[test]
fn birds_packets_are_authenticated_in_each_of_its_ways() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    let of = "interface host-r0 local-addr 10.0.0.1 peer-addr 10.0.0.2";
    // "secret" and "other".
    let keys = |kind: &str| {
        format!(
            "bfd key set conf-key-id 1 type {kind} secret 736563726574\n\
             bfd key set conf-key-id 2 type {kind} secret 6f74686572\n"
        )
    };
    for (ours, theirs) in [
        ("simple-password", "simple"),
        ("keyed-md5", "keyed md5"),
        ("meticulous-keyed-md5", "meticulous keyed md5"),
        ("keyed-sha1", "keyed sha1"),
        ("meticulous-keyed-sha1", "meticulous keyed sha1"),
    ] {
        let scene = Scene::new(&format!("{}bfd udp session add {of} {TIMING} conf-key-id 1 bfd-key-id 7\n", keys(ours)));
        let bird = |name: &str, words: &str| {
            scene.bird(
                name,
                &format!(
                    "interface \"eth0\" {{ interval 10 ms; multiplier 50; {words} }};\n\
                     neighbor 10.0.0.1 dev \"eth0\" local 10.0.0.2;"
                ),
            )
        };
        let with = |secret: &str| format!("authentication {theirs}; password \"{secret}\" {{ id 7; }};");
        let mut daemon = bird("right", &with("secret"));
        eventually(&format!("up with {ours}"), BOUND, || scene.is_up("right"));
        // BIRD gets the other key, which ours waits for.
        scene.router.cli(&format!("bfd udp session auth activate {of} conf-key-id 2 bfd-key-id 7 delayed yes")).unwrap();
        assert_eq!(scene.ours()["auth_pending"], true);
        daemon.kill().unwrap();
        eventually("down without BIRD", BOUND, || scene.ours()["state"] == "down");
        let mut daemon = bird("other", &with("other"));
        eventually("up with the other key", BOUND, || scene.is_up("other"));
        eventually("the other key is taken", BOUND, || scene.ours()["auth_pending"] == false);
        daemon.kill().unwrap();
        eventually("down without BIRD", BOUND, || scene.ours()["state"] == "down");
        // Now the old key is a wrong one.
        let refused = || {
            let shown = scene.router.cli("show errors").unwrap();
            shown.lines().any(|line| line.contains("bfd-session") && line.contains("wrong digest or password"))
        };
        assert!(!refused());
        let _daemon = bird("wrong", &with("secret"));
        eventually("packets are refused", BOUND, refused);
        assert_ne!(scene.ours()["state"], "up");
        assert_buffers_are_back(&scene.router);
    }
}

#[test]
fn a_multihop_session_with_bird_comes_up_by_routes_and_is_lost_with_it() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    let scene = Scene::new(&format!(
        "create loopback interface\nset interface state loop0 up\nset interface ip address loop0 192.0.2.1/32\n\
         ip route add 192.0.2.2/32 via 10.0.0.2 host-r0\n\
         bfd key set conf-key-id 1 type meticulous-keyed-sha1 secret 736563726574\n\
         bfd udp session add multihop local-addr 192.0.2.1 peer-addr 192.0.2.2 {TIMING} conf-key-id 1 bfd-key-id 7\n"
    ));
    let multihop = "multihop { interval 10 ms; multiplier 250; authentication meticulous keyed sha1; password \"secret\" { id 7; }; };\n\
                    neighbor 192.0.2.1 local 192.0.2.2 multihop on;";
    let mut daemon = scene.bird("far", multihop);
    eventually("up over the route", BOUND, || scene.is_up("far"));
    daemon.kill().unwrap();
    eventually("down without BIRD", BOUND, || scene.ours()["state"] == "down" && scene.ours()["failed"] == true);
    let _daemon = scene.bird("far", multihop);
    eventually("up again", BOUND, || scene.is_up("far"));
    // Without a route nothing reaches BIRD.
    scene.router.cli("ip route del 192.0.2.2/32").unwrap();
    eventually("down without a route", BOUND, || scene.ours()["state"] != "up");
    assert_buffers_are_back(&scene.router);
}
