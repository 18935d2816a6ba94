//! Streams whose frames have times of the devices: of the kernel, and of cards.

use crate::tester::{BOUND, RATE, keys, linked_hosts, router_on_sockets, run_profile, words};

use std::path::{Path, PathBuf};
use std::process::Command;

use quiver_testbed::{Output, Router, Scenario, skip};
use serde_json::Value;

/// A profile of a load and a stream with times beside it, in a file that ends with this.
struct Timed(PathBuf);

impl Timed {
    fn new(clock: &str, more: &str) -> Self {
        let file = std::env::temp_dir().join(format!("quiver-timed-{}-{clock}-{}.yaml", std::process::id(), more.len()));
        let timed = format!("{{ name: timed, {more}size: 64, timestamps: {clock}, ipv4: {{}}, udp: {{}} }}");
        let load = "{ name: load, ipv4: {}, udp: {} }";
        std::fs::write(&file, format!("name: p\nbidirectional: true\nstreams:\n- {load}\n- {timed}\n")).expect("a profile");
        Self(file)
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// All frames with times came back, beside the load, and have both of them but for those that came at first.
fn assert_timed(output: Output, clock: &str, router: &Router) {
    let text = output.trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    for direction in report["directions"].as_array().expect("directions") {
        let stream = &direction["streams"][1];
        let count = |of: &Value, key: &str| of[key].as_u64().expect("a count");
        let sent = count(stream, "sent");
        assert!(
            sent > 0 && sent + count(stream, "unsent") == 200 && count(stream, "received") == sent,
            "{stream}\n{}",
            router.dump()
        );
        let timed = &stream["timestamps"];
        assert_eq!((&timed["clock"], &timed["backwards"]), (&clock.into(), &0.into()), "{stream}");
        // The kernel takes a moment to begin with times of what comes.
        let [left, came, both] = ["left", "came", "timed"].map(|key| count(timed, key));
        assert!(left == sent && both == came && came > 0 && came <= sent, "{stream}");
        // Of each frame the one time lies within the other.
        let mean = |of: &Value| of["latency_ns"]["mean"].as_f64().expect("a mean");
        assert!(mean(timed) > 0.0 && mean(timed) < mean(stream), "{stream}");
        assert!(direction["streams"][0].get("timestamps").is_none(), "{direction}");
    }
}

/// The kernel timestamps frames at both ends, beside a load: what the tester itself adds to a latency is not in that.
#[test]
fn frames_have_the_times_of_the_devices_beside_the_testers() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, middle) = linked_hosts();
    let router = router_on_sockets(&middle);
    let ports = [("left", 2), ("right", 3)].map(|(name, n)| format!("af-packet:{name},{}", keys(n, false)));
    let of = |clock: &str, more: &str| run_profile(&outside, &ports, &Timed::new(clock, more).0, 64, RATE);
    assert_timed(of("kernel", "rate: 200pps, "), "kernel", &router);
    for (clock, more, words) in [
        ("card", "rate: 200pps, ", "streams with timestamps from port af-packet:left: device left: its card gives frames no times"),
        ("kernel", "rate: 10001pps, ", "10001 frames are too many: up to 10000 a second"),
        ("kernel", "", "streams[1].timestamps: frames with timestamps leave one at a time"),
    ] {
        let output = of(clock, more);
        assert!(!output.success() && output.stderr.contains(words) && output.stderr.lines().count() == 1, "{output}");
    }
    router.stop().unwrap();
}

/// The object that plays a card with a clock, preloaded; none where there is nothing to build it with.
fn card_with_clock(folder: &Path) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().ok().filter(|done| done.status.success())?;
    let (source, object) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/card_with_clock.c"), folder.join("card.so"));
    let flags = String::from_utf8(flags.stdout).expect("text");
    let done = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-DALLOW_EXPERIMENTAL_API"])
        .args(flags.split_whitespace())
        .arg("-o")
        .args([&object, &source])
        .output()
        .expect("cc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(object)
}

/// Ports of DPDK's give frames the times of a card's clock, where its driver has them; where not, or where they cannot be
/// compared, a line says so.
#[test]
fn frames_have_the_times_of_cards_on_dpdk() {
    let Some(_scenario) = Scenario::begin(&["cc", "pkg-config"]) else { return };
    let (outside, middle) = linked_hosts();
    let router = router_on_sockets(&middle);
    let Some(card) = card_with_clock(router.folder()) else { return skip("needs DPDK (libdpdk-dev and scripts/test)") };
    let ports: [String; 2] =
        [("left", 0), ("right", 1)].map(|(name, n)| format!("dpdk:net_af_packet{n},iface={name},{}", keys(n + 2, false)));
    let with = |of: &[&str], ports: &[String], clock: &str| {
        let profile = Timed::new(clock, "rate: 200pps, ");
        let trial = words(ports, &profile.0, 64, RATE);
        let words: Vec<&str> = ["env"].into_iter().chain(of.iter().copied()).chain(trial.iter().map(String::as_str)).collect();
        outside.run_args(&words, BOUND).expect("the tester runs")
    };
    let preload = format!("LD_PRELOAD={}", card.display());
    let plain = with(&[], &ports, "card");
    if plain.stderr.contains("built without DPDK") {
        return skip("needs a tester with DPDK (libdpdk-dev and scripts/test)");
    }
    assert_timed(with(&[&preload], &ports, "card"), "card", &router);
    let sockets = format!("af-packet:right,{}", keys(3, false));
    for (output, words) in [
        (plain, "net_af_packet0: its driver gives received frames no times"),
        (with(&[&preload, "CARD_APART=1"], &ports, "card"), "the cards of net_af_packet0 and net_af_packet1 have different clocks"),
        (with(&[], &ports, "kernel"), "the kernel does not see the frames of dpdk:net_af_packet0: take the card's times"),
        (
            with(&[&preload], &[ports[0].clone(), sockets], "card"),
            "have times of different clocks: take two af-packet: or two dpdk: ports",
        ),
    ] {
        assert!(!output.success() && output.stderr.contains(words) && output.stderr.trim_end().lines().count() == 1, "{output}");
    }
    // What a card says and cannot be, or does not say at all, makes a trial that is not valid.
    for (more, words) in [
        ("CARD_FOREIGN=1", "device net_af_packet1: a frame came at "),
        ("CARD_MUTE=01", "no frame has both times of the card: 0 have one at which they left"),
    ] {
        let output = with(&[&preload, more], &ports, "card");
        assert!(output.status.code() == Some(3) && output.stdout.contains(words), "{output}");
    }
    router.stop().unwrap();
}
