//! How long a document with many interfaces and routes takes to be applied, and what becomes of packets meanwhile.
//!
//! `cargo bench -p quiver-testbed --bench apply [-- INTERFACES [ROUTES]]`
//!
//! Starts a router (`QUIVER_BIN`, or the release build) with one worker on processor 1, which sends generated packets through the FIB as fast
//! as it can; the main thread has processor 0. Then `quiverctl` has the router read a document with so many loopback interfaces, each with
//! an address, and so many routes: as a plan, applied, applied again, exported, and a rollback takes it back. For each: time, the longest time that the main
//! thread was in one turn (`show watchdog`, milliseconds), packets forwarded a second, and packets that were neither sent nor dropped
//! for a reason that was there before. Needs root for its own namespace.

use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router};

/// Packets come in on pg0 and leave on pg1, all for 198.51.100.0/24.
const SCENE: &str = "create packet-generator interface pg0
create packet-generator interface pg1
set interface state pg0 up
set interface state pg1 up
set interface ip address pg0 192.0.2.1/24
set interface ip address pg1 203.0.113.1/24
set ip neighbor pg1 203.0.113.2 02:00:00:00:00:02 static
ip route add 198.51.100.0/24 via 203.0.113.2 pg1
ip table add 9
packet-generator new { name flood interface pg0 node ip4-input size 46-46 data { UDP: 192.0.2.2 -> 198.51.100.1 - 198.51.100.254 UDP: 1024 -> 1024 incrementing 18 } }";

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` adds a word of its own.
    let mut numbers = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(|word| word.parse::<u32>());
    let interfaces = numbers.next().transpose()?.unwrap_or(10_000);
    let routes = numbers.next().transpose()?.unwrap_or(100_000);
    let host = Host::new("apply")?;
    let folder = std::env::temp_dir().join(format!("quiver-apply-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("wanted.yaml");
    std::fs::write(&file, document(interfaces, routes))?;
    let conf = format!("cpu {{ main-core 0 corelist-workers 1 }}\nfiles {{ folder {} }}", folder.display());
    let router = Router::start(&host, &conf)?;
    router.script(SCENE)?;
    router.cli("packet-generator enable-stream")?;
    measure(&router, "nothing", || {
        std::thread::sleep(Duration::from_secs(2));
        Ok(String::new())
    })?;
    let own = "own interfaces own routes/9";
    for (what, line) in [
        ("plan", format!("apply {} plan {own}", file.display())),
        ("apply", format!("apply {} {own}", file.display())),
        ("apply again", format!("apply {} {own}", file.display())),
        ("export", "show configuration yaml".to_owned()),
        ("rollback", "rollback 1".to_owned()),
    ] {
        measure(&router, what, || router.cli(&line))?;
    }
    router.stop()?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

/// Loopback interfaces with an address each, those that forward, and routes of table 9.
fn document(interfaces: u32, routes: u32) -> String {
    let mut text = "interfaces:
  pg0: {packet_generator: {}, up: true, addresses: [192.0.2.1/24]}
  pg1: {packet_generator: {}, up: true, addresses: [203.0.113.1/24]}
"
    .to_owned();
    for n in 0..interfaces {
        let _ = writeln!(
            text,
            "  loop{n}: {{loopback: {{}}, addresses: [100.{}.{}.{}/32], up: true}}",
            64 + (n >> 16),
            n >> 8 & 255,
            n & 255
        );
    }
    text += "routes:\n  9:\n";
    for n in 0..routes {
        let _ = writeln!(text, "    30.{}.{}.{}/32: [{{next_hop: 203.0.113.2, interface: pg1}}]", n >> 16, n >> 8 & 255, n & 255);
    }
    text
}

fn counter(router: &Router, interface: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let interfaces: serde_json::Value = serde_json::from_str(&router.cli_json(&format!("show interface {interface}"))?)?;
    let counters = interfaces["interfaces"][0]["counters"].as_array().into_iter().flatten();
    Ok(counters.filter(|counter| counter[0] == name).find_map(|counter| counter[1].as_u64()).unwrap_or(0))
}

/// Does something, and prints what became of packets meanwhile.
fn measure(router: &Router, what: &str, work: impl FnOnce() -> Result<String, String>) -> Result<(), Box<dyn Error>> {
    let dropped = |router: &Router| counter(router, "pg0", "drops");
    let (sent, drops, began) = (counter(router, "pg1", "tx packets")?, dropped(router)?, Instant::now());
    let said = work()?;
    let took = began.elapsed();
    let (sent, drops) = (counter(router, "pg1", "tx packets")? - sent, dropped(router)? - drops);
    let main = router.cli("show watchdog").unwrap_or_default();
    let main = main.lines().find(|line| line.contains("main")).unwrap_or_default().to_owned();
    let rate = sent as f64 / took.as_secs_f64();
    let last = said.lines().last().unwrap_or_default();
    println!(
        "{what}: {took:.2?}; {rate:.0} packets a second forwarded, {drops} lost; main: {main}; {}",
        &last[..last.len().min(100)]
    );
    Ok(())
}
