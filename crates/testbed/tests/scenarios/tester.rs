//! The tester against the router, with every shipped profile over memif, and over AF_PACKET in network namespaces.

use crate::common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::assert_buffers_are_back;
use quiver_testbed::{Host, LinkOptions, Output, Router, Scenario, Tag, is_short_pass, skip};
use serde_json::Value;

/// Time for one trial.
pub const BOUND: Duration = Duration::from_secs(180);
/// Fewer frames than the tester's rings hold: however slow the machine is, none is lost by accident.
pub const RATE: &str = "2000pps";

/// The tester's program: `$QUIVER_TESTER_BIN`, else the one beside the router's.
fn program() -> PathBuf {
    let named = std::env::var_os("QUIVER_TESTER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| Router::binary().expect("a router").with_file_name("quiver-tester"))
}

fn profile(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/quiver-tester/profiles").join(format!("{name}.yaml"))
}

fn tester(host: &Host, ports: &[String], profile_name: &str, size: u16) -> Output {
    tester_at(host, ports, profile_name, size, RATE)
}

fn tester_at(host: &Host, ports: &[String], profile_name: &str, size: u16, rate: &str) -> Output {
    run_profile(host, ports, &profile(profile_name), size, rate)
}

pub fn run_profile(host: &Host, ports: &[String], profile: &Path, size: u16, rate: &str) -> Output {
    let words = words(ports, profile, size, rate);
    host.run_args(&words.iter().map(String::as_str).collect::<Vec<_>>(), BOUND).expect("the tester runs")
}

/// The command line of a trial.
pub fn words(ports: &[String], profile: &Path, size: u16, rate: &str) -> Vec<String> {
    let (program, size) = (program(), size.to_string());
    let mut words = vec![program.to_str().expect("a path"), "trial", "--json", "--rate", rate, "--duration", "1", "--size", &size];
    // A router that is kept from running has what it got in its rings; once all has come nobody waits.
    words.extend(["--settle", "15", "--wait", "60"]);
    words.extend(["--profile", profile.to_str().expect("a path")]);
    ports.iter().for_each(|port| words.extend(["--port", port]));
    words.into_iter().map(str::to_owned).collect()
}

/// Every frame sent came back once, and in its order, in all directions.
fn assert_all_came_back(output: Output, directions: usize, router: &Router) {
    assert_all_of(2000, output, directions, router);
}

fn assert_all_of(intended: u64, output: Output, directions: usize, router: &Router) {
    assert_none(&["lost", "duplicated", "reordered", "late", "corrupted"], intended, output, directions, router);
}

/// Every frame sent came back, and there is none of what is named here.
fn assert_none(wrong: &[&str], intended: u64, output: Output, directions: usize, router: &Router) {
    let text = output.trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!((&report["schema"], report["directions"].as_array().map(Vec::len)), (&"quiver-trial/1".into(), Some(directions)));
    for direction in report["directions"].as_array().expect("directions") {
        let count = |key: &str| direction[key].as_u64().expect("a count");
        // A machine that is busy may keep the tester from sending all; what it sent must be here.
        assert!(count("sent") > 0 && count("sent") + count("unsent") == intended, "{direction}");
        assert_eq!(count("received"), count("sent"), "{direction}\n{}", router.dump());
        for key in wrong {
            assert_eq!(count(key), 0, "{key}: {direction}");
        }
        assert_eq!(direction["latency_ns"]["count"].as_u64(), Some(count("sent")));
    }
}

/// Networks of both sides, and the tester as the next hop to all that profiles name.
fn addresses(left: &str, right: &str) -> String {
    let (here, there) = (("198.18.0.0/16", "2001:2::/64", "16.0.0.0/8"), ("198.19.0.0/16", "2001:2:0:8000::/64", "48.0.0.0/8"));
    [(left, 2, here), (right, 3, there)]
        .map(|(name, n, (v4, v6, others))| {
            format!(
                "set interface state {name} up\nset interface ip address {name} 192.0.{n}.1/24\n\
                 set interface ip address {name} fd00:{n}::1/64\nip route add {v4} via 192.0.{n}.2 {name}\n\
                 ip route add {v6} via fd00:{n}::2 {name}\nip route add {others} via 192.0.{n}.2 {name}\n"
            )
        })
        .concat()
}

pub fn keys(n: u32, v6: bool) -> String {
    let gateway = if v6 { format!("fd00:{n}::1") } else { format!("192.0.{n}.1") };
    format!("ip4=192.0.{n}.2/24,ip6=fd00:{n}::2/64,gateway={gateway}")
}

/// The tester's host and the router's, with two links between them of which the kernel makes no use.
pub fn linked_hosts() -> (Host, Host) {
    let (outside, middle) = (Host::new("tester").unwrap(), Host::new("router").unwrap());
    for (ours, theirs) in [("left", "r0"), ("right", "r1")] {
        outside.veth(ours, &middle, theirs, &LinkOptions::default()).unwrap();
        outside.disable_ipv6(ours).unwrap();
        middle.disable_ipv6(theirs).unwrap();
    }
    (outside, middle)
}

/// A router whose ports are packet sockets on the links to the tester's host.
pub fn router_on_sockets(middle: &Host) -> Router {
    let router = Router::start(middle, "").expect("router");
    let interfaces = "create host-interface name r0\ncreate host-interface name r1\n";
    router.script(&format!("{interfaces}{}", addresses("host-r0", "host-r1"))).expect("configuration");
    router
}

#[test]
fn frames_pass_the_router_whole_between_network_namespaces() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, middle) = linked_hosts();
    let router = router_on_sockets(&middle);
    let ports = [("left", 2), ("right", 3)].map(|(name, n)| format!("af-packet:{name},{}", keys(n, false)));
    assert_all_came_back(tester(&outside, &ports, "bidirectional-ipv4", 64), 2, &router);
    router.stop().unwrap();
}

/// A profile's file with a stream each way, with these tags.
struct Tagged(PathBuf);

impl Tagged {
    fn new(left: &str, right: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("quiver-tagged-{}-{:?}.yaml", std::process::id(), std::thread::current().id()));
        let stream = |side: &str, here: u8, there: u8, vlan: &str| {
            format!(
                "- {{ name: {side}, from: {side}, vlan: {vlan}, ipv4: {{ src: 192.0.{here}.2, dst: 192.0.{there}.2 }}, udp: {{}} }}\n"
            )
        };
        let text = format!("name: tagged\nstreams:\n{}{}", stream("left", 2, 3, left), stream("right", 3, 2, right));
        std::fs::write(&path, text).expect("a profile");
        Self(path)
    }
}

impl Drop for Tagged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Its gateways are a sub-interface of the router behind one tag and one behind two, then the kernel of a host; IPv6 asks, too.
#[test]
fn gateways_behind_tags_are_asked_and_answered_under_them() {
    let Some(_scenario) = Scenario::begin(&[Scenario::BPF]) else { return };
    let tagged = Tagged::new("[ { id: 100 } ]", "[ { id: 200, service: true }, { id: 7 } ]");
    let ports = |v6: bool| {
        [("left", 2, "100"), ("right", 3, "200.7")].map(|(name, n, vlan)| format!("af-packet:{name},vlan={vlan},{}", keys(n, v6)))
    };
    let trial = |host: &Host, v6: bool| run_profile(host, &ports(v6), &tagged.0, 100, RATE);
    let (outside, middle) = linked_hosts();
    let router = Router::start(&middle, "").expect("router");
    let interfaces = "create host-interface name r0\ncreate host-interface name r1\nset interface state host-r0 up\n\
                      set interface state host-r1 up\ncreate sub-interfaces host-r0 100\n\
                      create sub-interfaces host-r1 200 dot1ad 200 inner-dot1q 7 exact-match\n";
    router.script(&format!("{interfaces}{}", addresses("host-r0.100", "host-r1.200"))).expect("configuration");
    assert_all_came_back(trial(&outside, false), 2, &router);
    // Who has not been asked under its own tag is not taken for the gateway.
    let output = tester(&outside, &ports(true), "static", 64);
    let words = "does not carry the tags of port af-packet:left's gateway (vlan=100)";
    assert!(!output.success() && output.stderr.contains(words) && output.stderr.lines().count() == 1, "{output}");
    router.stop().unwrap();
    // Kernels without VLAN devices speak VLAN by a program of the testbed's.
    let tags = [("r0", 2, vec![Tag::dot1q(100)]), ("r1", 3, vec![Tag::dot1ad(200), Tag::dot1q(7)])];
    let _spoken = tags.map(|(device, n, tags)| {
        middle.address(device, &format!("192.0.{n}.1/24")).expect("an address");
        middle.speak_vlan(device, &tags).expect("tags")
    });
    middle.sysctl("net.ipv4.ip_forward", "1").expect("forwarding");
    let text = trial(&outside, false).trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    let totals = ["sent", "received", "lost", "foreign"].map(|key| report["totals"][key].as_u64().expect("a count"));
    assert!(totals[0] > 0 && totals == [totals[0], totals[0], 0, 0], "{report}");
}

/// The same profile by programs in the kernel and by sockets, against a router whose ports have programs too.
#[test]
fn the_engine_in_the_kernel_counts_what_the_others_count() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, middle) = linked_hosts();
    let router = Router::start(&middle, "").expect("router");
    // A veth takes frames of other devices' programs while its peer has a program. The tester's goes between two trials, and the
    // router's fast path learns of it within a second only (docs/decisions/0079-fast-path.md).
    let interfaces =
        "set xdp fast-path off\ncreate interface af_xdp host-if r0 name x0\ncreate interface af_xdp host-if r1 name x1\n";
    router.script(&format!("{interfaces}{}", addresses("x0", "x1"))).expect("configuration");
    // No more frames than the device's ring holds (256): however slow the machine is, none is lost by accident.
    for kind in ["xdp", "af-packet"] {
        let ports = [("left", 2), ("right", 3)].map(|(name, n)| format!("{kind}:{name},{}", keys(n, false)));
        for profile in ["bidirectional-ipv4", "round-robin"] {
            let output = tester_at(&outside, &ports, profile, 64, "200pps");
            if output.stderr.contains("built without clang") {
                return skip(&format!("needs a tester built where clang is: {}", output.stderr.trim_end()));
            }
            assert_all_of(200, output, if profile == "round-robin" { 1 } else { 2 }, &router);
        }
        // Departures and values of many kinds, from two threads.
        let file = router.folder().join("mixed.yaml");
        std::fs::write(&file, MIXED).unwrap();
        let ports = [("left", 2), ("right", 3)].map(|(name, n)| format!("{kind}:{name},tx-core=0,tx-core=1,{}", keys(n, false)));
        let output = run_profile(&outside, &ports, &file, 64, "100pps");
        // Two threads share each stream, so one that gets no processor is overtaken by the other.
        assert_none(&["lost", "duplicated", "late", "corrupted"], 150, output, 1, &router);
    }
    router.stop().unwrap();
}

const MIXED: &str = "
name: mixed
streams:
- { name: poisson, departures: poisson, ipv4: { dst: { zipf: { prefixes: [ 198.19.0.0/24, 198.19.1.0/28 ] } } }, udp: {} }
- { name: bursts, rate: 1000pps, size: 64, burst: { frames: 10, count: 3, gap: 100ms }, ipv4: { src: [ 198.18.0.9, 198.18.0.7 ] }, udp: {} }
- { name: after, after: bursts, rate: 100pps, size: { random: { min: 64, max: 1518 } }, burst: { frames: 20 }, ipv4: {}, udp: {} }
";

/// Two threads receive for each port, from sockets that share its frames by flow.
#[test]
fn several_threads_that_receive_keep_one_account() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, middle) = linked_hosts();
    let router = router_on_sockets(&middle);
    let ports =
        [("left", 2), ("right", 3)].map(|(name, n)| format!("af-packet:{name},tx-core=0,rx-core=0,rx-core=1,{}", keys(n, false)));
    let text = tester(&outside, &ports, "bidirectional-ipv4", 64).trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    for direction in report["directions"].as_array().expect("directions") {
        let count = |key: &str| direction[key].as_u64().expect("a count");
        assert!(count("sent") > 0, "{direction}");
        // In which order two threads take frames is nobody's promise.
        assert_eq!([count("received"), count("lost"), count("duplicated"), count("late")], [count("sent"), 0, 0, 0], "{direction}");
    }
    let threads: Vec<&str> = report["cpu"].as_array().expect("threads").iter().filter_map(|t| t["thread"].as_str()).collect();
    assert_eq!(threads, ["tx0+rx0+tx1+rx1", "rx0+rx1"]);
    router.stop().unwrap();
}

/// A router drops frames for another Ethernet address: the report says where to look, and the trial is valid, for all left in time.
#[test]
fn frames_for_a_wrong_ethernet_address_have_a_hint() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, middle) = linked_hosts();
    let router = router_on_sockets(&middle);
    let ports = ["left", "right"].map(|name| format!("af-packet:{name},dst-mac=02:00:00:00:00:01"));
    let text = tester(&outside, &ports, "static", 64).trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    let direction = &report["directions"][0];
    assert_eq!(direction["received"], 0, "{report}");
    assert!(direction["hint"].as_str().is_some_and(|h| h.contains("is 02:00:00:00:00:01 ")), "{report}");
    router.stop().unwrap();
}

/// What stops a trial of ten minutes once frames leave: its device goes, or somebody ends it. It says what it has.
#[test]
fn a_trial_that_is_cut_short_ends_with_its_report_and_the_reason() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for (deed, status, words) in
        [("ip link del left", 3, "port af-packet:left: its link went down during the trial"), ("kill -INT $!", 130, "ended after ")]
    {
        let (outside, _middle) = linked_hosts();
        let mac = "dst-mac=02:00:00:00:00:01";
        // Frames sent are the eleventh column.
        let script = format!(
            "{} trial --json --rate {RATE} --duration 600 --size 64 --profile {} --port af-packet:left,{mac} --port af-packet:right,{mac} &
             until [ \"$(awk '$1 == \"left:\" {{ print ($11 > 100) }}' /proc/net/dev)\" = 1 ]; do sleep 0.05; done
             {deed}
             wait $!",
            program().display(),
            profile("bidirectional-ipv4").display()
        );
        let output = outside.sh(&script, BOUND).expect("a shell");
        assert_eq!(output.status.code(), Some(status), "{deed}: {output}");
        let report: Value = serde_json::from_str(output.stdout.lines().last().unwrap_or_default()).expect("JSON");
        let reasons = report["reasons"].as_array().expect("reasons");
        assert!(reasons.iter().any(|r| r.as_str().is_some_and(|r| r.starts_with(words))), "{report}");
        assert_eq!((&report["valid"], &report["aborted"]), (&false.into(), &(status == 130).into()), "{report}");
        assert!(report["totals"]["sent"].as_u64() > Some(0) && report["duration_s"].as_f64() < Some(600.0), "{report}");
    }
}

/// Two threads of one core that never sleep would keep each other from it for milliseconds.
#[test]
fn what_one_core_sends_both_ways_in_the_kernel_is_one_threads() {
    let Some(_scenario) = Scenario::begin(&[Scenario::BPF]) else { return };
    for (keys, threads) in [("tx-core=0", "1"), ("tx-core=0,tx-core=1", "2")] {
        let (outside, middle) = linked_hosts();
        for device in ["r0", "r1"] {
            middle.run(&format!("ethtool -K {device} gro on"), BOUND).expect("ethtool").expect("GRO");
        }
        let mac = "dst-mac=02:00:00:00:00:01";
        // Frames sent are the eleventh column. Nobody sends them on.
        let script = format!(
            "{} trial --json --rate {RATE} --duration 600 --size 64 --profile {} --port xdp:left,{mac},{keys} --port xdp:right,{mac},{keys} &
             for device in left right; do
                 until [ \"$(awk \"\\$1 == \\\"$device:\\\" {{ print (\\$11 > 100) }}\" /proc/net/dev)\" = 1 ] || ! kill -0 $!; do sleep 0.05; done
             done
             cat /proc/$!/task/*/comm | grep -c xdp-tx
             kill -INT $!
             wait $!",
            program().display(),
            profile("bidirectional-ipv4").display()
        );
        let output = outside.sh(&script, BOUND).expect("a shell");
        if output.stderr.contains("built without clang") {
            return skip(&format!("needs a tester built where clang is: {}", output.stderr.trim_end()));
        }
        assert_eq!(output.stdout.lines().next(), Some(threads), "{keys}: {output}");
        let report: Value = serde_json::from_str(output.stdout.lines().last().unwrap_or_default()).expect("JSON");
        for direction in report["directions"].as_array().expect("directions") {
            assert!(
                direction["sent"].as_u64() > Some(0) && direction["departure_error_ns"]["max"].as_f64() > Some(0.0),
                "{report}"
            );
        }
    }
}

#[test]
fn a_far_end_that_takes_no_frames_is_found_before_the_trial() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let (outside, other) = (Host::new("tester").unwrap(), Host::new("other").unwrap());
    // A plain veth has neither a program nor GRO.
    outside.veth("left", &other, "far", &LinkOptions::default()).unwrap();
    let output = tester(&outside, &["xdp:left,dst-mac=02:00:00:00:00:01".to_owned()], "static", 64);
    let words = if output.stderr.contains("built without clang") { "clang" } else { "the far end takes no frames" };
    assert!(!output.success() && output.stderr.contains(words) && output.stderr.lines().count() == 1, "{output}");
}

#[test]
fn what_cannot_run_is_one_clear_line() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    let host = Host::new("tester").unwrap();
    for (port, words) in [
        ("af-packet:nowhere", "port af-packet:nowhere: "),
        ("af-packet:", "a device's name is missing"),
        ("dpdk:net_nothing0", "port dpdk:net_nothing0: "),
    ] {
        let output = tester(&host, &[port.to_owned()], "static", 64);
        assert!(!output.success() && output.stdout.is_empty() && output.stderr.contains(words), "{output}");
    }
    let port = ["af-packet:lo,dst-mac=02:00:00:00:00:01".to_owned()];
    let output = tester_at(&host, &port, "static", 64, "101%");
    assert!(!output.success() && output.stderr.contains("`101%' is no rate"), "{output}");
    let output = tester(&host, &port, "nothing", 64);
    assert!(output.stderr.contains("nothing.yaml: No such file") && output.stderr.lines().count() == 1, "{output}");
}

/// Whatever pages the memory has that tester and router share.
mod pages {
    use super::*;

    #[test]
    fn every_shipped_profile_passes_the_router_whole_over_memif() {
        let Some(_scenario) = Scenario::begin(&[]) else { return };
        let host = Host::new("tester").unwrap();
        let router = Router::start(&host, "").expect("router");
        let socket = router.folder().join("tester.sock");
        let interfaces = format!(
            "create memif socket id 1 filename {}\ncreate interface memif id 0 socket-id 1 master\n\
             create interface memif id 1 socket-id 1 master\n",
            socket.display()
        );
        router.script(&format!("{interfaces}{}", addresses("memif1/0", "memif1/1"))).expect("configuration");
        let profiles = [
            ("bidirectional-ipv4", 2, 64),
            ("static", 1, 64),
            ("round-robin", 1, 64),
            ("uniform-random", 1, 64),
            ("bidirectional-ipv6", 2, 84),
            // 5,000 frames a second of its own for latencies.
            ("slavik2025", 2, 64),
        ];
        for (name, directions, size) in &profiles[..if is_short_pass() { 2 } else { profiles.len() }] {
            let v6 = *size == 84;
            let port = |id: u32| format!("memif:socket={},id={id},role=client,ring=16384,{}", socket.display(), keys(id + 2, v6));
            let intended = if *name == "slavik2025" { 7000 } else { 2000 };
            assert_all_of(intended, tester(&host, &[port(0), port(1)], name, *size), *directions, &router);
        }
        assert_buffers_are_back(&router);
        router.stop().unwrap();
    }

    /// DPDK's drivers at the tester's end: packet sockets, and memif, whose client looks for its peer by itself.
    #[test]
    fn ports_of_dpdk_count_what_the_others_count() {
        let Some(_scenario) = Scenario::begin(&[]) else { return };
        let (outside, middle) = linked_hosts();
        for memif in [false, true] {
            let router = Router::start(&middle, "").expect("router");
            let socket = router.folder().join("tester.sock");
            let (interfaces, names) = if memif {
                let ids = [0, 1].map(|id| format!("create interface memif id {id} socket-id 1 master\n")).concat();
                (format!("create memif socket id 1 filename {}\n{ids}", socket.display()), ("memif1/0", "memif1/1"))
            } else {
                ("create host-interface name r0\ncreate host-interface name r1\n".to_owned(), ("host-r0", "host-r1"))
            };
            router.script(&format!("{interfaces}{}", addresses(names.0, names.1))).expect("configuration");
            let ports = [("left", 0), ("right", 1)].map(|(name, n)| {
                let device = if memif {
                    format!("net_memif{n},role=client,id={n},socket={},socket-abstract=no", socket.display())
                } else {
                    format!("net_af_packet{n},iface={name}")
                };
                format!("dpdk:{device},{}", keys(n + 2, false))
            });
            for profile in ["bidirectional-ipv4", "round-robin"] {
                let output = tester(&outside, &ports, profile, 64);
                if output.stderr.contains("built without DPDK") {
                    return skip("needs a tester with DPDK (libdpdk-dev and scripts/test)");
                }
                assert_all_came_back(output, if profile == "round-robin" { 1 } else { 2 }, &router);
            }
            router.stop().unwrap();
        }
    }
}
