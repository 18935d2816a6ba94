//! What the tester can send, receive and account for: on processor 0, against testpmd's `io` on processor 1 over memif, with
//! testpmd's `flowgen` in the tester's place beside it; and on a veth, by programs in the kernel and by AF_XDP sockets, those beside
//! DPDK's. Needs root, two processors, `dpdk-testpmd` and optimised builds of `quiver` and `quiver-tester` (`make build`).
//!
//! `cargo bench -p quiver-testbed --bench tester [-- SECONDS [ROUNDS]] [--case PART OF A NAME]`
//!
//! One JSON object a case and line: frames a second received and accounted for, all ports together, as median, least and most of the
//! rounds, in which the cases take turns; frames that are neither received nor lost, which must be none; processor time that the
//! hypervisor gave to others (of one processor), without which figures of virtual machines say little.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::eventually;
use common::testpmd::{PROGRAM, Testpmd, Vdev};
use quiver_testbed::{Host, LinkOptions, Router, Scenario};
use serde_json::{Value, json};

/// Name, and what varies.
const CASES: [(&str, &str); 3] = [
    ("fixed headers", "{ ipv4: {}, udp: { src: 1024, dst: 9 } }"),
    ("one varying field", "{ ipv4: { dst: { increment: { first: 198.19.0.1, count: 255 } } }, udp: { src: 1024, dst: 9 } }"),
    (
        "random 5-tuples",
        "{ ipv4: { src: { random: { first: 198.18.0.1, last: 198.18.255.254 } }, dst: { random: { first: 198.19.0.1, last: 198.19.255.254 } } }, udp: {} }",
    ),
];

fn program() -> PathBuf {
    let named = std::env::var_os("QUIVER_TESTER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| Router::binary().expect("a router").with_file_name("quiver-tester"))
}

/// Memory for testpmd: huge pages where there are enough, else plain ones.
fn memory() -> [&'static str; 3] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|l| l.strip_prefix("HugePages_Free:")?.trim().parse::<u32>().ok()).unwrap_or(0);
    [if free >= 300 { "--in-memory" } else { "--no-huge" }, "-m", "256"]
}

fn testpmd(host: &Host, folder: &Path, server: bool, mode: &str, processor: u32) -> Testpmd {
    let socket = folder.join("m.sock");
    let vdevs = [0, 1].map(|id| if server { Vdev::server(&socket, id) } else { Vdev::client(&socket, id) });
    let lcores = format!("0@0,1@{processor}");
    let eal: Vec<&str> = ["--lcores", &lcores].into_iter().chain(memory()).collect();
    Testpmd::start_on(host, folder, &vdevs, 1, &[&format!("--forward-mode={mode}")], &eal)
}

fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("quiver-bench-tester-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Seconds of processor time that the hypervisor has given to others, all processors together.
fn stolen() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // Hundredths of a second; the eighth number of the first line.
    text.split_whitespace().nth(8).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 100.0
}

/// Frames a second received, frames sent a second, and frames without an account.
fn trial(host: &Host, folder: &Path, ports: &[String], stream: &str, both: bool, seconds: u64) -> (f64, f64, i64) {
    let profile = folder.join("profile.yaml");
    let body = stream.trim_start_matches('{');
    std::fs::write(&profile, format!("{{ name: p, bidirectional: {both}, streams: [ {{ name: s, {body} ] }}")).expect("a profile");
    let (program, profile, seconds) = (program(), profile.display().to_string(), seconds.to_string());
    let mut words = vec![program.to_str().expect("a path"), "trial", "--json", "--rate", "max", "--size", "64"];
    words.extend(["--duration", &seconds, "--profile", &profile]);
    ports.iter().for_each(|port| words.extend(["--port", port]));
    let text = host.run_args(&words, Duration::from_secs(120)).expect("the tester runs").trial();
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
    let count = |key: &str| report["totals"][key].as_i64().unwrap_or(0);
    let unexplained = count("sent") - count("received") - count("lost") + count("foreign") + count("corrupted") + count("late");
    let second = report["duration_s"].as_f64().unwrap_or(1.0);
    (count("received") as f64 / second, count("sent") as f64 / second, unexplained)
}

/// The tester against testpmd, on one processor each.
fn memif(stream: &str, seconds: u64) -> (f64, f64, i64) {
    with_echo(|host, folder| {
        let port = |id: u32| {
            format!("memif:socket={}/m.sock,id={id},role=client,dst-mac=02:00:00:00:00:0{id},tx-core=0,rx-core=0", folder.display())
        };
        trial(host, folder, &[port(0), port(1)], stream, true, seconds)
    })
}

fn with_echo<R>(work: impl FnOnce(&Host, &Path) -> R) -> R {
    let host = Host::new("bench").expect("a host");
    let folder = folder();
    let mut echo = testpmd(&host, &folder, true, "io", 1);
    eventually("its socket", Duration::from_secs(20), || folder.join("m.sock").exists());
    // The socket is there before its ports are started.
    eventually("its ports", Duration::from_secs(20), || echo.log().contains("Done"));
    echo.tell("start");
    let result = work(&host, &folder);
    // Its peer has gone while it forwarded, which DPDK's memif does not always survive: it is not asked to end, but ended.
    echo.kill9();
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// testpmd's own source in the tester's place.
fn flowgen(seconds: u64) -> (f64, f64, i64) {
    with_echo(|host, folder| {
        let source = testpmd(host, folder, false, "flowgen", 0);
        std::thread::sleep(Duration::from_secs(2));
        counted(source, seconds)
    })
}

/// Starts testpmd's forwarding, and takes the rates of what it receives and sends.
fn counted(mut source: Testpmd, seconds: u64) -> (f64, f64, i64) {
    source.tell("start");
    std::thread::sleep(Duration::from_millis(500));
    let sums = |source: &mut Testpmd| source.packets().iter().fold((0, 0), |(r, t), (rx, tx)| (r + rx, t + tx));
    let (start, before) = (Instant::now(), sums(&mut source));
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, second) = (sums(&mut source), start.elapsed().as_secs_f64());
    source.quit();
    ((after.0 - before.0) as f64 / second, (after.1 - before.1) as f64 / second, 0)
}

/// Both ends of a veth, by programs in the kernel: sent by processor 0, received by processor 1.
fn veth(stream: &str, seconds: u64) -> (f64, f64, i64) {
    let (host, folder) = (Host::new("bench").expect("a host"), std::env::temp_dir());
    host.veth("left", &host, "right", &LinkOptions::default()).expect("a veth");
    let port = |name: &str| format!("xdp:{name},dst-mac=02:00:00:00:00:01,tx-core=0,rx-core=1");
    trial(&host, &folder, &[port("left"), port("right")], stream, false, seconds)
}

/// The two ends of a veth by AF_XDP sockets, both ways; each processor sends on one end and receives on the other.
fn sockets(stream: &str, seconds: u64) -> (f64, f64, i64) {
    let (host, folder) = (Host::new("bench").expect("a host"), folder());
    host.veth("left", &host, "right", &LinkOptions::default()).expect("a veth");
    let port = |name: &str, tx: u32| format!("af-xdp:{name},dst-mac=02:00:00:00:00:01,tx-core={tx},rx-core={}", 1 - tx);
    trial(&host, &folder, &[port("left", 0), port("right", 1)], stream, true, seconds)
}

/// The same by testpmd's `flowgen` on DPDK's `net_af_xdp`.
fn sockets_of_dpdk(seconds: u64) -> (f64, f64, i64) {
    let (host, folder) = (Host::new("bench").expect("a host"), folder());
    host.veth("left", &host, "right", &LinkOptions::default()).expect("a veth");
    let ends = ["--vdev=net_af_xdp0,iface=left", "--vdev=net_af_xdp1,iface=right", "--lcores", "0@0,1@0,2@1"];
    let eal: Vec<&str> = ends.into_iter().chain(memory()).collect();
    let source = Testpmd::start_on(&host, &folder, &[], 1, &["--forward-mode=flowgen", "--nb-cores=2"], &eal);
    eventually("its ports", Duration::from_secs(20), || source.log().contains("Done"));
    counted(source, seconds)
}

fn main() {
    // Under `cargo test --benches` nothing is measured.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let Some(_scenario) = Scenario::alone(&[PROGRAM]) else { return };
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u64>().ok());
    let (seconds, rounds) = (numbers.next().unwrap_or(2), numbers.next().unwrap_or(3).max(1));
    type Case = (String, Box<dyn Fn(u64) -> (f64, f64, i64)>);
    let mut cases: Vec<Case> = Vec::new();
    for (name, stream) in CASES {
        cases.push((format!("memif, {name}"), Box::new(|seconds| memif(stream, seconds))));
        cases.push((format!("veth by xdp:, {name}"), Box::new(|seconds| veth(stream, seconds))));
    }
    cases.push(("memif, testpmd flowgen in the tester's place".to_owned(), Box::new(flowgen)));
    cases.push(("veth by af-xdp:, fixed headers".to_owned(), Box::new(|seconds| sockets(CASES[0].1, seconds))));
    cases.push(("veth by net_af_xdp, testpmd flowgen".to_owned(), Box::new(sockets_of_dpdk)));
    let wanted = std::env::args().skip_while(|a| a != "--case").nth(1);
    cases.retain(|(name, _)| wanted.as_ref().is_none_or(|part| name.contains(part.as_str())));
    let mut results = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((_, run), results) in cases.iter().zip(&mut results) {
            let (start, before) = (Instant::now(), stolen());
            let (received, sent, unexplained) = run(seconds);
            results.push((received, sent, unexplained, (stolen() - before) / start.elapsed().as_secs_f64()));
        }
    }
    for ((name, _), mut results) in cases.into_iter().zip(results) {
        results.sort_by(|a, b| a.0.total_cmp(&b.0));
        let most = results.iter().map(|r| r.3).fold(0.0, f64::max);
        let mut sent: Vec<f64> = results.iter().map(|r| r.1).collect();
        sent.sort_by(f64::total_cmp);
        let line = json!({
            "case": name, "seconds": seconds, "rounds": rounds,
            "received_pps": { "median": results[results.len() / 2].0.round(), "min": results[0].0.round(), "max": results[results.len() - 1].0.round() },
            "sent_pps_median": sent[sent.len() / 2].round(),
            "unexplained": results.iter().map(|r| r.2).collect::<Vec<_>>(),
            "stolen_processors_max": (most * 100.0).round() / 100.0,
        });
        println!("{line}");
    }
}
