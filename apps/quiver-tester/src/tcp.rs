//! `tcp`: connections with requests and responses.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_tester_core::bench::Bench;
use quiver_tester_core::latency::LatencySummary;
use quiver_tester_core::tcp::report::{Connections, Report};
use quiver_tester_core::tcp::{Profile, run as measure};
use quiver_tester_core::trial::Progress;

use crate::options::TcpOptions;
use crate::{Failure, table};

/// Measures and prints what was found; whether it is valid.
pub fn run(options: &TcpOptions, stop: &AtomicBool) -> Result<bool, Failure> {
    let plan = options.plan(Profile::load(&options.profile)?);
    let mut bench = Bench::open(&options.port, plan.max_frame())?;
    let shows = io::stderr().is_terminal();
    let mut watch = |progress: &Progress| {
        if shows && progress.of_s > 0.0 {
            let Progress { t_s, of_s, sent, received } = progress;
            eprint!("\r{t_s:6.1} of {of_s} s: {sent} opened, {received} ended ");
        }
        !stop.load(Ordering::Relaxed)
    };
    let report = measure(&mut bench, &plan, &mut watch);
    if shows {
        eprint!("\r\x1b[K");
    }
    let report = report?;
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(text(&report).as_bytes())?;
    }
    out.flush()?;
    Ok(report.head.valid)
}

/// The report for people.
fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = print(report, &mut out);
    out
}

fn print(report: &Report, out: &mut String) -> std::fmt::Result {
    let rates = &report.rates;
    table::head(out, &report.head)?;
    writeln!(
        out,
        "{:<16}{:>10}{:>13}{:>11}{:>8}{:>11}{:>11}{:>12}",
        "connections", "opened", "established", "completed", "reset", "timed out", "corrupted", "unfinished"
    )?;
    for kind in &report.connections {
        numbers(out, &kind.name, &kind.connections)?;
    }
    if report.connections.len() > 1 {
        numbers(out, "all", &report.totals)?;
    }
    for kind in &report.connections {
        times(out, &kind.name, "connect", kind.connections.connect_ns.as_ref())?;
        times(out, &kind.name, "exchange", kind.connections.exchange_ns.as_ref())?;
    }
    writeln!(
        out,
        "{:.0} connections/s opened, {:.0} established; {:.0} exchanges/s; {:.6} Gbit/s of requests, {:.6} of responses",
        rates.opened_cps,
        rates.established_cps,
        rates.exchanges_per_s,
        rates.request_bps / 1e9,
        rates.response_bps / 1e9
    )?;
    for (name, s) in [("clients", report.client), ("servers", report.server)] {
        writeln!(
            out,
            "{name}: {} segments sent, {} of them again; {} received, {} of no connection",
            s.sent, s.retransmitted, s.received, s.strange
        )?;
    }
    let late = &report.open_error_ns;
    writeln!(
        out,
        "{} open at once at most; opened late by {:.1} us on average, p99 {:.1}, at most {:.1}",
        report.most_open,
        late.mean / 1e3,
        late.p99 / 1e3,
        late.max / 1e3
    )?;
    table::machine(out, &report.cpu, &report.machine, report.head.duration_s)?;
    if let Some(hint) = &report.hint {
        writeln!(out, "{hint}")?;
    }
    table::verdict(out, &report.head)
}

fn numbers(out: &mut String, name: &str, connections: &Connections) -> std::fmt::Result {
    let c = &connections.counts;
    writeln!(
        out,
        "{name:<16}{:>10}{:>13}{:>11}{:>8}{:>11}{:>11}{:>12}",
        c.opened, c.established, c.completed, c.reset, c.timed_out, c.corrupted, c.unfinished
    )
}

fn times(out: &mut String, name: &str, what: &str, times: Option<&LatencySummary>) -> std::fmt::Result {
    let Some(l) = times else { return Ok(()) };
    let us = |ns: u64| ns as f64 / 1e3;
    writeln!(
        out,
        "{name:<16}{what} us: min {:.1} mean {:.1} p50 {:.1} p99 {:.1} max {:.1}, of {}",
        us(l.min),
        l.mean / 1e3,
        us(l.p50),
        us(l.p99),
        us(l.max),
        l.count
    )
}
