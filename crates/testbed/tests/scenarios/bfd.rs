//! BFD with the real BIRD as the other side.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common;

use common::{BOUND, assert_buffers_are_back, counter, eventually};
use quiver_testbed::stuck::while_stopped;
use quiver_testbed::{Guard, Host, LinkOptions, Router, Scenario, bird};

/// How often both sides send, in milliseconds, and how many packets may be missing. The machine of a test may do other things for longer
/// than three of these; on one that does nothing else, QUIVER_BFD_MULTIPLIER=3 shows that three are enough.
#[derive(Clone, Copy)]
struct Timing {
    interval: u32,
    multiplier: u32,
}

/// Where it is to be noticed that the other side stops: 2.5 s.
fn brief() -> Timing {
    let asked = std::env::var("QUIVER_BFD_MULTIPLIER").ok().map(|text| text.parse().expect("QUIVER_BFD_MULTIPLIER is a number"));
    Timing { interval: 10, multiplier: asked.unwrap_or(250) }
}

/// Where no session may be lost although either side's process, or the whole machine, stands still: 10 s.
const PATIENT: Timing = Timing { interval: 40, multiplier: 250 };

impl Timing {
    fn detection(self) -> Duration {
        Duration::from_millis(u64::from(self.interval * self.multiplier))
    }
}

struct Scene {
    middle: Host,
    peer: Host,
    router: Router,
    timing: Timing,
}

impl Scene {
    fn new(workers: u32, timing: Timing) -> Self {
        let [middle, peer] = ["router", "peer"].map(|name| Host::new(name).unwrap());
        peer.veth("eth0", &middle, "r0", &LinkOptions::default()).unwrap();
        middle.disable_ipv6("r0").unwrap();
        peer.ip("addr add 10.0.0.2/24 dev eth0\naddr add 2001:db8::2/64 dev eth0 nodad").unwrap();
        let router = Router::start(&middle, &format!("cpu {{ workers {workers} }}")).expect("router");
        let (interval, multiplier) = (timing.interval * 1000, timing.multiplier);
        let add = |local: &str, peer: &str| {
            format!(
                "bfd udp session add interface host-r0 local-addr {local} peer-addr {peer} \
                 desired-min-tx {interval} required-min-rx {interval} detect-mult {multiplier}\n"
            )
        };
        let commands = format!(
            "create host-interface name r0\nset interface state host-r0 up\n\
             set interface ip address host-r0 10.0.0.1/24\nset interface ip address host-r0 2001:db8::1/64\n{}{}",
            add("10.0.0.1", "10.0.0.2"),
            add("2001:db8::1", "2001:db8::2")
        );
        router.script(&commands).expect("configuration");
        Self { middle, peer, router, timing }
    }

    fn bird(&self) -> Guard {
        let text = format!(
            "router id 10.0.0.2;\nlog \"{}\" all;\nprotocol device {{ scan time 1; }}\n\
             protocol bfd {{\n  debug {{ events }};\n  interface \"eth0\" {{ interval {} ms; multiplier {}; }};\n  \
             neighbor 10.0.0.1 dev \"eth0\" local 10.0.0.2;\n  neighbor 2001:db8::1 dev \"eth0\" local 2001:db8::2;\n}}\n",
            self.birds_log().display(),
            self.timing.interval,
            self.timing.multiplier
        );
        bird(&self.peer, &self.router.file("bird"), "peer", &text).unwrap()
    }

    /// Our states of both sessions.
    fn ours(&self) -> Vec<String> {
        let shown: serde_json::Value = serde_json::from_str(&self.router.cli_json("show bfd sessions").unwrap()).unwrap();
        let state = |session: &serde_json::Value| session["state"].as_str().unwrap_or_default().to_owned();
        shown.as_array().unwrap().iter().map(state).collect()
    }

    fn birds_log(&self) -> PathBuf {
        self.router.file("bird.log")
    }

    /// How many of BIRD's sessions are up.
    fn theirs_up(&self) -> usize {
        let ctl = self.router.file("bird").join("peer.ctl");
        let shown = self.peer.run(&format!("birdc -s {} show bfd sessions", ctl.display()), BOUND).unwrap();
        shown.stdout.lines().filter(|line| line.contains("eth0") && line.contains(" Up ")).count()
    }

    /// What BIRD has logged of changes of its sessions' states. Its `Since` will not do: BIRD computes that anew for each answer, and the
    /// last digit differs between two.
    fn their_changes(&self) -> Vec<String> {
        let log = fs::read_to_string(self.birds_log()).unwrap();
        log.lines().filter(|line| line.contains("changed state from")).map(str::to_owned).collect()
    }

    fn until_up(&self) {
        eventually("our sessions up", BOUND, || self.ours() == ["up", "up"]);
        eventually("BIRD's sessions up", BOUND, || self.theirs_up() == 2);
    }

    /// Both sides send as often as they were told to: before a session is up they send once a second.
    fn until_fast(&self) {
        let interval = format!(" {}", self.timing.interval * 1000);
        for session in [0, 1] {
            eventually("the intervals", BOUND, || self.line(session, "Transmit interval").contains(&interval));
        }
    }

    /// How often each session has come up so far.
    fn ups(&self) -> [Option<String>; 2] {
        [0, 1].map(|session| self.line(session, "times up").split(", ").last().map(str::to_owned))
    }

    /// What each session has sent and received so far.
    fn packets(&self) -> Vec<[u64; 2]> {
        let shown: serde_json::Value = serde_json::from_str(&self.router.cli_json("show bfd sessions").unwrap()).unwrap();
        shown.as_array().unwrap().iter().map(|session| ["sent", "received"].map(|key| session[key].as_u64().unwrap())).collect()
    }

    /// Each session sends and receives so many packets more.
    fn until_packets(&self, what: &str, count: u64) {
        let before = self.packets();
        eventually(what, BOUND, || {
            let now = self.packets();
            now.iter().flatten().zip(before.iter().flatten()).all(|(now, before)| *now > before + count)
        });
    }

    fn line(&self, session: u32, name: &str) -> String {
        let shown = self.router.cli(&format!("show bfd session {session}")).unwrap();
        shown.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name} in\n{shown}")).to_owned()
    }
}

#[test]
fn bird_comes_up_and_each_side_notices_that_the_other_stops() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    for workers in [0, 2] {
        let scene = Scene::new(workers, brief());
        let mut daemon = scene.bird();
        scene.until_up();
        scene.until_fast();
        daemon.kill().unwrap();
        eventually("down without BIRD", BOUND, || scene.ours() == ["down", "down"]);
        assert!(scene.line(0, "Diagnostic").contains("Control Detection Time Expired"));
        let _daemon = scene.bird();
        scene.until_up();
        let of = "interface host-r0 local-addr 10.0.0.1 peer-addr 10.0.0.2";
        scene.router.cli(&format!("bfd udp session set-flags {of} admin down")).unwrap();
        eventually("one of BIRD's goes down", BOUND, || scene.theirs_up() == 1);
        scene.router.cli(&format!("bfd udp session set-flags {of} admin up")).unwrap();
        scene.until_up();
        // Nothing is said: BIRD has to notice.
        scene.router.cli(&format!("bfd udp session del {of}")).unwrap();
        eventually("one of BIRD's goes down in silence", BOUND, || scene.theirs_up() == 1);
        assert_buffers_are_back(&scene.router);
    }
}

#[test]
fn bird_does_not_notice_that_another_process_takes_over() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    for workers in [0, 2] {
        let mut scene = Scene::new(workers, PATIENT);
        let _daemon = scene.bird();
        scene.until_up();
        scene.until_fast();
        let (ours, theirs) = (scene.ups(), scene.their_changes());
        assert!(theirs.iter().filter(|line| line.ends_with(" to Up")).count() >= 2, "{theirs:#?}");
        // After the last for longer than the detection time, by packets of both sides.
        for packets in [20, PATIENT.multiplier + 50] {
            scene.router.take_over(&scene.middle, None).unwrap();
            assert_eq!(scene.ours(), ["up", "up"], "at once");
            scene.until_packets("packets go on", u64::from(packets));
            assert_eq!((scene.theirs_up(), scene.their_changes()), (2, theirs.clone()), "no change since");
            assert_eq!(scene.ups(), ours);
        }
        assert_buffers_are_back(&scene.router);
    }
}

#[test]
fn sessions_of_workers_stay_up_while_main_stands_still() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    let scene = Scene::new(1, PATIENT);
    let _daemon = scene.bird();
    scene.until_up();
    scene.until_fast();
    let (ours, theirs) = (scene.ups(), scene.their_changes());
    // Longer than the detection time.
    let still = scene.timing.detection().mul_f32(1.2);
    while_stopped(scene.router.pid(), || std::thread::sleep(still)).unwrap();
    assert_eq!((scene.theirs_up(), scene.their_changes()), (2, theirs), "BIRD has missed nothing");
    assert_eq!(scene.ups(), ours);
    assert_eq!(scene.ours(), ["up", "up"]);
}

/// Packets that the generator makes at least in `sessions_stay_up_while_their_worker_is_full`.
fn flood() -> u64 {
    std::env::var("QUIVER_BFD_PACKETS").ok().map_or(0, |text| text.parse().expect("QUIVER_BFD_PACKETS is a number"))
}

#[test]
fn sessions_stay_up_while_their_worker_is_full() {
    let Some(_scenario) = Scenario::begin(&["ip", "bird"]) else { return };
    let scene = Scene::new(1, brief());
    let _daemon = scene.bird();
    scene.until_up();
    scene.until_fast();
    let (before, heard) = (scene.ups(), scene.packets());
    // The same worker makes and forwards packets as fast as it can, and does not end by itself.
    scene
        .router
        .script(
            "create packet-generator interface pg0\nset interface state pg0 up\nset interface ip address pg0 192.0.2.1/24\n\
             ip route add 198.51.100.0/24 via 192.0.2.9 pg0\nset ip neighbor pg0 192.0.2.9 02:00:00:00:00:09 static\n\
             packet-generator new { name flood interface pg0 node ip4-input size 64-64 limit 0 \
             data { UDP: 192.0.2.2 -> 198.51.100.1 - 198.51.100.254 UDP: 1024 -> 1024 incrementing 36 } }\n\
             packet-generator enable-stream flood\n",
        )
        .expect("a flood");
    let made = || counter(&scene.router, "pg0", "tx packets");
    // By packets of both sides for longer than the detection time: a session that is not served is lost meanwhile.
    scene.until_packets("packets go on", u64::from(scene.timing.multiplier) * 3 / 2);
    eventually("the flood was long enough", BOUND * 10, || made() > flood());
    scene.router.cli("packet-generator disable-stream flood").unwrap();
    let shown = scene.router.cli("show errors").unwrap();
    let late = shown.lines().find(|line| line.contains("control packets sent late")).unwrap_or("none late");
    println!("{} packets; of session 0 {} packets received; {late}", made(), scene.packets()[0][1] - heard[0][1]);
    assert_eq!(scene.ups(), before, "no session was lost");
    assert_eq!((scene.ours(), scene.theirs_up()), (vec!["up".to_owned(), "up".to_owned()], 2));
}
