//! Memif side by side: each device on processor 0 between two ports of the same source, DPDK's testpmd on processor 1.
//!
//! `cargo bench -p quiver-testbed --bench memif [-- SECONDS [ROUNDS [NAME…]]]`
//!
//! Devices are Quiver, VPP, and testpmd that moves packets from port to port without a look at them. A NAME measures only cases that begin
//! so. Cases take turns in each round, forwards and backwards; a line has the median of the rounds with the smallest and the largest.
//!
//! Figures of a case say different things. *Sent* and *received* are the source's, both ports together: they depend on the source as much as
//! on the device, for each waits for what the other one does to shared lines. *Clocks* are TSC ticks a packet over the nodes that have seen
//! packets: memif-input, graph, transmission. With VPP they have its empty polls in them, with Quiver not; *idle* is the share of
//! Quiver's turns without packets; such turns are short.
//!
//! - VPP is what `QUIVER_VPP` names, else `vpp` in `PATH`; it needs its plugin `memif`. Without a VPP its cases are left out.
//! - Quiver is `QUIVER_BIN`, or the release build (`make build`). Both keep their own defaults for buffers.
//! - `QUIVER_FRAME` is the length of frames, 64 bytes where it says nothing.
//!
//! Needs root, two processors and `dpdk-testpmd`.

#[path = "../../tests/common/mod.rs"]
mod common;
mod device;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use common::testpmd::PROGRAM;
use device::{Case, Device, Figures, Owner, Pattern};
use quiver_testbed::{Scenario, Vpp};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// All cases, in the order of the table.
fn cases(vpp: bool) -> Vec<Case> {
    let patterns = [Pattern::CrossConnect, Pattern::OnePort, Pattern::Split];
    let of = |device: Device, patterns: &[Pattern]| {
        patterns.iter().map(|pattern| Case { device, pattern: *pattern }).collect::<Vec<_>>()
    };
    let mut all = of(Device::Quiver(Owner::Source), &patterns);
    if vpp {
        all.extend(of(Device::Vpp, &patterns));
    }
    all.extend(of(Device::Testpmd, &patterns[..1]));
    all.extend(of(Device::Quiver(Owner::Router), &patterns[..2]));
    all.extend(of(Device::Quiver(Owner::RouterZeroCopy), &patterns[..2]));
    all
}

fn main() -> Outcome<()> {
    // Under `cargo test --benches` nothing is measured.
    if std::env::args().any(|word| word == "--test") {
        return Ok(());
    }
    let Some(_scenario) = Scenario::alone(&[PROGRAM]) else { return Ok(()) };
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |at: usize, usual: u64| words.get(at).map_or(Ok(usual), |word| word.parse());
    let (seconds, rounds) = (number(0, 3)?.max(1), number(1, 3)?.max(1));
    let names = words.get(2..).unwrap_or_default();
    let vpp = Vpp::binary()?;
    if vpp.is_none() {
        println!("SKIP: no VPP (QUIVER_VPP names one)");
    }
    let mut cases = cases(vpp.is_some());
    cases.retain(|case| names.is_empty() || names.iter().any(|name| case.name().starts_with(name.as_str())));
    if cases.is_empty() {
        return Err(format!("no case begins so: {names:?}").into());
    }
    println!(
        "memif, frames of {} bytes, rings of {}; {rounds} rounds of {seconds} s; memory of testpmd {:?}",
        device::frame_bytes()?,
        1 << device::LOG2_RING,
        device::memory()
    );
    let mut results: Vec<Vec<Figures>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            results[at].push(device::run(&cases[at], vpp.as_deref().map(Path::new), Duration::from_secs(seconds))?);
        }
    }
    println!("\n{:<44}{:>24}{:>24}{:>24}{:>9}", "millions of packets a second; clocks", "sent", "received", "clocks", "idle, %");
    for (case, all) in cases.iter().zip(&results) {
        let of = |f: fn(&Figures) -> f64, digits: usize| spread(all.iter().map(f).collect(), digits);
        println!(
            "{:<44}{:>24}{:>24}{:>24}{:>9}",
            case.name(),
            of(|f| f.sent / 1e6, 2),
            of(|f| f.received / 1e6, 2),
            of(Figures::clocks, 1),
            of(|f| 100.0 * f.idle, 0).split(' ').next().unwrap_or("-"),
        );
    }
    println!("\nclocks a packet by node, median run");
    for (case, all) in cases.iter().zip(&mut results) {
        all.sort_by(|a, b| a.clocks().total_cmp(&b.clocks()));
        let nodes: Vec<String> = all[all.len() / 2].nodes.iter().map(|(node, cost)| format!("{node} {cost:.1}")).collect();
        println!("{:<44}{}", case.name(), nodes.join(", "));
    }
    println!();
    for (case, all) in cases.iter().zip(&results) {
        let of = |f: fn(&Figures) -> f64| figures(all.iter().map(f).collect());
        let (sent, received, clocks) = (of(|f| f.sent / 1e6), of(|f| f.received / 1e6), of(Figures::clocks));
        println!("{}", json!({ "case": case.name(), "sent": sent, "received": received, "clocks": clocks }));
    }
    Ok(())
}

/// The same of a JSON line; null where a case does not have the figure.
fn figures(mut all: Vec<f64>) -> Value {
    all.retain(|figure| !figure.is_nan());
    all.sort_by(f64::total_cmp);
    match all.as_slice() {
        [] => Value::Null,
        [first, ..] => json!({ "median": all[all.len() / 2], "least": first, "most": all[all.len() - 1] }),
    }
}

/// Median, smallest and largest; figures that a case does not have are NaN.
fn spread(mut all: Vec<f64>, digits: usize) -> String {
    all.retain(|figure| !figure.is_nan());
    all.sort_by(f64::total_cmp);
    match all.as_slice() {
        [] => "-".to_owned(),
        [one] => format!("{one:.digits$}"),
        [first, .., last] => format!("{:.digits$} ({first:.digits$} to {last:.digits$})", all[all.len() / 2]),
    }
}
