//! `make demo`: a router between two hosts, real traffic through it, and what the router says about it.
//!
//! With root: two Linux hosts in network namespaces of their own, `quiver` in a third between them, ping, traceroute and
//! `iperf3` in both address families. Without root (or where the kernel forbids namespaces) the same graph is fed by the
//! packet generator, and the demo says what it left out. Nothing stays behind either way.
//! `make demo ARGS=--long` sends for longer, so that one can judge by it: 30 s of TCP, 60 s of 100,000 small datagrams a second.

mod generator;
mod hosts;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use report::Report;

/// Where pictures are kept.
fn folder() -> PathBuf {
    let target = std::env::current_exe().ok().and_then(|p| p.parent()?.parent().map(PathBuf::from));
    target.unwrap_or_else(std::env::temp_dir).join("demo")
}

fn main() -> ExitCode {
    let load = match std::env::args().nth(1).as_deref() {
        None => hosts::Load::SHORT,
        Some("--long") => hosts::Load::LONG,
        Some(other) => {
            eprintln!("quiver-demo: unknown option `{other}': --long, for 30 s of TCP and 60 s of UDP, or none");
            return ExitCode::FAILURE;
        }
    };
    let folder = folder();
    let mut report = Report::default();
    let result = match hosts::possible() {
        Ok(()) => hosts::run(&mut report, &folder, load),
        Err(reason) => {
            println!("No hosts in network namespaces: {reason}.\nThe same graph runs from the packet generator instead.\n");
            generator::run(&mut report, &folder)
        }
    };
    report.print();
    match result {
        Ok(()) if report.all_well() => ExitCode::SUCCESS,
        Ok(()) => {
            eprintln!("quiver-demo: not everything went as it should, see above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("quiver-demo: {error}");
            ExitCode::FAILURE
        }
    }
}
