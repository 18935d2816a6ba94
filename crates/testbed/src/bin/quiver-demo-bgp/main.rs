//! `make demo-bgp`: a full BGP table through a router, learned, tried and withdrawn, beside the same network with the kernel as router.
//!
//! Hosts in network namespaces of their own: a client, an upstream with BIRD that announces the full table, a peer with FRR that
//! announces a default route and some more specific prefixes, and between them Quiver, whose Linux side runs BIRD. Datagrams to
//! random destinations must arrive where a reference table says. Then the upstream's link is cut.
//!
//! `make demo-bgp ARGS=100000` takes so many prefixes. Needs root, BIRD and FRR. Nothing stays behind but the report.

mod measure;
mod network;
mod probe;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use network::Forwarder;
use quiver_testbed::{Frr, Scenario};
use table::Table;

fn main() -> ExitCode {
    let most = match std::env::args().nth(1).map(|word| (word.parse::<usize>(), word)) {
        None => usize::MAX,
        Some((Ok(most), _)) if most > 0 => most,
        Some((_, word)) => {
            eprintln!("quiver-demo-bgp: `{word}': expected a number of prefixes, or nothing");
            return ExitCode::FAILURE;
        }
    };
    // Nothing else of the test bed measures meanwhile.
    let Some(_alone) = Scenario::alone(&["bird", Frr::PROGRAM, "xz"]) else { return ExitCode::FAILURE };
    let begin = Instant::now();
    let table = Table::new(most);
    if table.origin != "real" {
        println!("The real table is not here (QUIVER_ROUTES names its folder): a GENERATED one of its size takes its place.");
    }
    let target = std::env::current_exe().ok().and_then(|file| file.parent()?.parent().map(PathBuf::from));
    let folder = target.unwrap_or_else(std::env::temp_dir).join("demo-bgp");
    let files = folder.join("run");
    let mut outcomes = Vec::new();
    for forwarder in [Forwarder::Quiver, Forwarder::Kernel] {
        match measure::run(forwarder, &table, &files) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                eprintln!("quiver-demo-bgp: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    // Only the report stays; what is not removed is in nobody's way.
    let _ = std::fs::remove_dir_all(&files);
    report::print(&table, &outcomes);
    match report::write(&folder, &table, &outcomes) {
        Ok(file) => println!("\n{:.0} s in all; with the timeline: {}", begin.elapsed().as_secs_f64(), file.display()),
        Err(error) => eprintln!("quiver-demo-bgp: no page: {}: {error}", folder.display()),
    }
    if outcomes.iter().all(measure::Outcome::is_well) {
        ExitCode::SUCCESS
    } else {
        eprintln!("quiver-demo-bgp: not everything went as it should, see above");
        ExitCode::FAILURE
    }
}
