//! Quiver and VPP with the same configuration, in turns: clocks a packet of the graph, each beside its peer of the same minutes.
//!
//! `cargo bench -p quiver-testbed --bench beside_vpp [-- SECONDS [ROUNDS [NAME…]]]`
//!
//! Each case is a list of commands that both understand, and a capture that the packet generator of each sends from memory as fast as it can. A
//! router has one thread, on processor 0, and a host of its own. It warms up until all frames have passed some times. Then clocks are counted for
//! SECONDS (3): what `show runtime` has for the nodes from `ethernet-input` to the output, without generator and device. Rounds (3) begin
//! with VPP and with Quiver in turns, and the ratio is of the two runs of a round. A NAME measures only cases that begin so.
//!
//! A run fails, and the bench with it, where packets are lost, come out with another length, or do not pass the nodes and sessions that
//! the case is about: a router that drops all is fast.
//!
//! - VPP is what `QUIVER_VPP` names, else `vpp` in `PATH`; its plugins lie where it looks for them, or in `QUIVER_VPP_PLUGINS`. Needed are
//!   `acl`, `nat`, `urpf` and `policer`. Without a VPP Quiver is measured alone.
//! - Quiver is `QUIVER_BIN`, or the release build. Both keep their own defaults for buffers.
//! - Full tables are read from `QUIVER_ROUTES` (see `quiver_tables::synth`); without them their cases are left out.
//!
//! What the kernel gives to others counts as clocks of the node that ran. On a machine with other work `chrt -f 10` before the command, once
//! the bench is built, keeps processor 0 for the router; a neighbour on the same core still makes it slower.
//!
//! Needs root. A table for people, and one JSON object a case and line.

mod cases;
mod device;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use device::{Measured, Side};
use quiver_tables::synth;
use quiver_testbed::churn::Prefixes;
use quiver_testbed::{Host, Scenario, Vpp, pin_thread};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Both routers' runs of a case, round by round; none where a run failed.
type Rounds = Vec<[Option<Measured>; 2]>;

fn main() -> Outcome<()> {
    // Under `cargo test --benches` nothing is measured.
    if std::env::args().any(|word| word == "--test") {
        return Ok(());
    }
    let Some(_scenario) = Scenario::alone(&[]) else { return Ok(()) };
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |at: usize, usual: u64| words.get(at).map_or(Ok(usual), |word| word.parse());
    let (seconds, rounds) = (number(0, 3)?, number(1, 3)?.max(1));
    let names = words.get(2..).unwrap_or_default();
    let vpp = Vpp::binary()?;
    match &vpp {
        Some(path) => println!("VPP: {}", path.display()),
        None => println!("SKIP: no VPP (QUIVER_VPP names one): Quiver is measured alone"),
    }
    let tables = synth::routes_folder().map(|_| Prefixes::full(usize::MAX)).filter(|(_, origin)| *origin == "real");
    match &tables {
        Some((tables, _)) => println!("full tables: {} prefixes of IPv4, {} of IPv6", tables.four.len(), tables.six.len()),
        None => println!("SKIP: no full tables (QUIVER_ROUTES names their folder): `edge' has a default route"),
    }
    let mut cases = cases::all(tables.as_ref().map(|(tables, _)| tables));
    cases.retain(|case| names.is_empty() || names.iter().any(|name| case.name.starts_with(name.as_str())));
    if cases.is_empty() {
        return Err(format!("no case begins so: {names:?}").into());
    }
    // A first host, so that the thread that starts routers is there and may use all processors; this one leaves theirs alone.
    drop(Host::new("first")?);
    let _ = pin_thread(1);
    let time = Duration::from_secs(seconds.max(1));
    println!("{} cases, {rounds} rounds of {seconds} s", cases.len());
    let mut results: Vec<Rounds> = vec![Vec::new(); cases.len()];
    let mut failures = Vec::new();
    for round in 0..rounds {
        for (case, results) in cases.iter().zip(&mut results) {
            let mut pair = [None, None];
            // What comes and stays meets each of the two first as often.
            let order = if round % 2 == 0 { [Side::Vpp, Side::Quiver] } else { [Side::Quiver, Side::Vpp] };
            for side in order.into_iter().filter(|side| *side == Side::Quiver || vpp.is_some()) {
                match device::run(side, vpp.as_deref().map(Path::new), case, time) {
                    Ok(measured) => pair[side as usize] = Some(measured),
                    Err(error) => failures.push(format!("{}, {side:?}, round {}: {error}", case.name, round + 1)),
                }
            }
            results.push(pair);
        }
    }
    println!("\n{:<28}{:>26}{:>26}{:>24}", "clocks a packet", "VPP", "Quiver", "ratio");
    for (case, rounds) in cases.iter().zip(&results) {
        let [vpp, quiver, ratio] = columns(rounds);
        println!("{:<28}{:>26}{:>26}{:>24}", case.name, spread(&vpp, 1), spread(&quiver, 1), spread(&ratio, 2));
    }
    println!();
    for (case, rounds) in cases.iter().zip(&results) {
        println!("{}", row(case.name, rounds));
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("{} runs failed", failures.len()).into()) }
}

/// Clocks of VPP, of Quiver, and Quiver's share of VPP's by round; each in ascending order.
fn columns(rounds: &Rounds) -> [Vec<f64>; 3] {
    let of = |side: Side| rounds.iter().filter_map(|pair| pair[side as usize].as_ref().map(|run| run.clocks)).collect();
    let ratios = rounds.iter().filter_map(|[vpp, quiver]| Some(quiver.as_ref()?.clocks / vpp.as_ref()?.clocks)).collect();
    let mut all: [Vec<f64>; 3] = [of(Side::Vpp), of(Side::Quiver), ratios];
    all.iter_mut().for_each(|column| column.sort_by(f64::total_cmp));
    all
}

/// Median, least and most.
fn spread(sorted: &[f64], digits: usize) -> String {
    match sorted {
        [] => "-".to_owned(),
        [one] => format!("{one:.digits$}"),
        [least, .., most] => format!("{:.digits$} ({least:.digits$} to {most:.digits$})", sorted[sorted.len() / 2]),
    }
}

fn row(name: &str, rounds: &Rounds) -> Value {
    let [vpp, quiver, ratio] = columns(rounds);
    let figures = |sorted: &[f64]| match sorted {
        [] => Value::Null,
        [least, ..] => json!({ "median": sorted[sorted.len() / 2], "least": least, "most": sorted[sorted.len() - 1] }),
    };
    let side = |side: Side, clocks: &[f64]| {
        let runs: Vec<&Measured> = rounds.iter().filter_map(|pair| pair[side as usize].as_ref()).collect();
        let mut object = figures(clocks);
        // The nodes are of the median run.
        if let Some(run) = runs.iter().find(|run| run.clocks == clocks[clocks.len() / 2]) {
            object["packets"] = runs.iter().map(|run| run.packets).sum::<u64>().into();
            object["bytes"] = run.bytes.into();
            object["nodes"] = json!(run.nodes.iter().cloned().collect::<BTreeMap<_, _>>());
        }
        object
    };
    json!({ "case": name, "vpp": side(Side::Vpp, &vpp), "quiver": side(Side::Quiver, &quiver), "ratio": figures(&ratio) })
}
