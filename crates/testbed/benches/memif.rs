//! Memif side by side: the router on processor 0 between two ports of a testpmd source on processor 1, and DPDK's testpmd in
//! the router's place. Needs root, two processors, `dpdk-testpmd` and a release build of quiver (`make build`).
//!
//! `cargo bench -p quiver-testbed --bench memif [-- SECONDS [ROUNDS]]`
//!
//! Cases take turns, and each line is the median of the rounds with the smallest and the largest.
//! Two figures for each case, and they say different things. *Received* is what the source got back a second, both
//! directions together: it depends on the source as much as on the router. *Clocks* are TSC ticks a packet over memif-input,
//! graph and tx nodes, without empty polls; where over 5 % of the polls are empty the source could not send more.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::eventually;
use common::testpmd::{PROGRAM, Testpmd, Vdev};
use quiver_testbed::{Host, Router, Scenario};
use serde_json::Value;

/// Where frames of testpmd's flow generator are addressed to.
const MAC: &str = "00:01:02:03:04:01";

/// Which end owns the memory.
#[derive(Clone, Copy)]
enum Owner {
    Source,
    Router,
    /// The router's, and packets stay where they are.
    RouterZeroCopy,
}

fn vdevs(socket: &Path, server: bool) -> [Vdev; 2] {
    [0, 1].map(|id| if server { Vdev::server(socket, id) } else { Vdev::client(socket, id) })
}

/// Memory for testpmd: huge pages where there are enough, else plain ones.
fn memory() -> &'static [&'static str] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|l| l.strip_prefix("HugePages_Free:")?.trim().parse::<u32>().ok()).unwrap_or(0);
    if free >= 300 { &["--in-memory", "-m", "256"] } else { &["--no-shconf", "--no-huge", "-m", "256"] }
}

fn testpmd(host: &Host, folder: &Path, socket: &Path, server: bool, mode: &str, cpu: u32) -> Testpmd {
    let lcores = format!("0@0,1@{cpu}");
    let eal: Vec<&str> = ["--lcores", &lcores].into_iter().chain(memory().iter().copied()).collect();
    Testpmd::start_on(host, folder, &vdevs(socket, server), 1, &[&format!("--forward-mode={mode}")], &eal)
}

/// Packets a second that the source receives, all ports together, over `time`.
fn received(source: &mut Testpmd, time: Duration) -> f64 {
    let sum = |source: &mut Testpmd| source.packets().iter().map(|(rx, _)| rx).sum::<u64>();
    let (start, before) = (Instant::now(), sum(source));
    std::thread::sleep(time);
    (sum(source) - before) as f64 / start.elapsed().as_secs_f64()
}

struct Figures {
    received: f64,
    nodes: Vec<(String, f64)>,
    /// Packets of the input node and in all tx nodes.
    handled: f64,
    vectors_per_call: f64,
    empty: f64,
}

impl Figures {
    /// TSC ticks a packet in all nodes.
    fn clocks(&self) -> f64 {
        self.nodes.iter().map(|(_, cost)| cost).sum()
    }
}

fn router_case(owner: Owner, routed: bool, time: Duration) -> Figures {
    let host = Host::new("bench").expect("a host");
    let router = Router::start(&host, "cpu { main-core 0 }\nbuffers { buffers-per-numa 16384 }").expect("router");
    let socket = router.folder().join("m.sock");
    let role = match owner {
        Owner::Source => "master",
        Owner::Router => "slave",
        Owner::RouterZeroCopy => "slave zero-copy",
    };
    let mut lines = format!("create memif socket id 1 filename {}\n", socket.display());
    for id in [0, 1] {
        lines += &format!("create interface memif id {id} socket-id 1 {role} hw-addr {MAC}\nset interface state memif1/{id} up\n");
    }
    lines += if routed {
        "set interface ip address memif1/0 192.0.2.1/24\nset interface ip address memif1/1 198.51.100.1/24\n\
         set ip neighbor memif1/1 198.51.100.2 02:00:00:00:00:02\nip route add 10.253.0.0/16 via 198.51.100.2 memif1/1"
    } else {
        "set interface l2 xconnect memif1/0 memif1/1\nset interface l2 xconnect memif1/1 memif1/0"
    };
    router.script(&lines).expect("configuration");
    let mut source = testpmd(&host, router.folder(), &socket, !matches!(owner, Owner::Source), "flowgen", 1);
    let up = || router.cli("show memif").is_ok_and(|t| t.matches(" connected").count() == 2);
    eventually("both ports connected", Duration::from_secs(20), up);
    source.tell("start");
    std::thread::sleep(Duration::from_millis(1500));
    router.cli("clear runtime").expect("clear runtime");
    let pps = received(&mut source, time);
    let text = router.cli_json("show runtime").expect("show runtime");
    let runtime: Value = serde_json::from_str(&text).expect("JSON");
    let thread = &runtime["threads"][0];
    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
    let nodes = thread["nodes"].as_array().cloned().unwrap_or_default();
    let is_graph = |n: &&Value| ["polling", "active", "fused"].iter().any(|state| n["state"] == *state);
    let of_packets = |n: &&Value| is_graph(n) && number(&n["vectors"]) > 0.0;
    let input = nodes.iter().find(|n| n["name"] == "memif-input").expect("memif-input has run");
    let packets = number(&input["vectors"]);
    let cost = |n: &Value| (n["name"].as_str().unwrap_or("").to_owned(), number(&n["clocks"]) / packets);
    let loops = number(&thread["loops_per_second"]) * number(&thread["interval"]);
    let figures = Figures {
        received: pps,
        nodes: nodes.iter().filter(of_packets).map(cost).collect(),
        handled: packets / number(&thread["seconds"]),
        vectors_per_call: packets / number(&input["calls"]),
        empty: 1.0 - (number(&input["calls"]) / loops.max(1.0)).min(1.0),
    };
    source.quit();
    router.stop().expect("a clean end");
    figures
}

fn testpmd_case(time: Duration) -> f64 {
    let host = Host::new("bench").expect("a host");
    let folder = std::env::temp_dir().join(format!("quiver-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let socket = folder.join("m.sock");
    let mut middle = testpmd(&host, &folder, &socket, true, "io", 0);
    eventually("its socket", Duration::from_secs(20), || socket.exists());
    let mut source = testpmd(&host, &folder, &socket, false, "flowgen", 1);
    std::thread::sleep(Duration::from_secs(2));
    middle.tell("start");
    source.tell("start");
    std::thread::sleep(Duration::from_millis(1500));
    let pps = received(&mut source, time);
    source.quit();
    middle.quit();
    let _ = std::fs::remove_dir_all(&folder);
    pps
}

fn main() {
    // Under `cargo test --benches` nothing is measured.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let Some(_scenario) = Scenario::alone(&[PROGRAM]) else { return };
    let mut numbers = std::env::args().filter_map(|a| a.parse::<u64>().ok());
    let (seconds, rounds) = (numbers.next().unwrap_or(3), numbers.next().unwrap_or(3));
    let time = Duration::from_secs(seconds);
    println!("memif, 64-byte frames, testpmd flowgen as source; {rounds} rounds of {seconds} s; testpmd memory {:?}", memory());
    let owners = [(Owner::Source, "source's memory"), (Owner::Router, "router's memory"), (Owner::RouterZeroCopy, "zero-copy")];
    let mut cases: Vec<(String, Vec<Figures>)> = Vec::new();
    let mut peer = Vec::new();
    for _ in 0..rounds {
        for (owner, who) in owners {
            for (routed, what) in [(false, "cross-connect"), (true, "IPv4, all out of one port")] {
                let name = format!("quiver, {what}, {who}");
                let figures = router_case(owner, routed, time);
                match cases.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, all)) => all.push(figures),
                    None => cases.push((name, vec![figures])),
                }
            }
        }
        peer.push(testpmd_case(time) / 1e6);
    }
    for (name, mut all) in cases {
        let of = |f: fn(&Figures) -> f64| spread(all.iter().map(f).collect());
        println!("\n{name}");
        println!("  received, M/s           {}", of(|f| f.received / 1e6));
        println!("  handled, M/s            {}", of(|f| f.handled / 1e6));
        println!("  clocks a packet         {}", of(Figures::clocks));
        println!("  packets a poll          {}", of(|f| f.vectors_per_call));
        let limited = if all.iter().any(|f| f.empty > 0.05) { "  source-limited" } else { "" };
        println!("  empty polls, %          {}{limited}", of(|f| 100.0 * f.empty));
        all.sort_by(|a, b| a.clocks().total_cmp(&b.clocks()));
        for (node, cost) in &all[all.len() / 2].nodes {
            println!("    {node:<22}{cost:>8.1}");
        }
    }
    println!("\ntestpmd io in the router's place\n  received, M/s           {}", spread(peer));
}

/// Median, smallest and largest.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    match all.as_slice() {
        [] => String::new(),
        [first, .., last] => format!("{:>8.2} ({first:.2} to {last:.2})", all[all.len() / 2]),
        [one] => format!("{one:>8.2}"),
    }
}
