//! `stateful`: gateways that track connections, after RFC 9693.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_tester_core::bench::Bench;
use quiver_tester_core::stateful::phase::{Phase, Step, Verdict};
use quiver_tester_core::stateful::{Gateway, Outcome, StatefulError, StatefulRequest, run as measure};
use quiver_tester_core::trial::Progress;

use crate::options::StatefulOptions;
use crate::{Failure, table};

/// Largest frames without FCS that ports are opened for anyway.
const USUAL: usize = 1514;

/// Measures and prints what was found.
pub fn run(options: &StatefulOptions, stop: &AtomicBool) -> Result<(), Failure> {
    let request = options.request()?;
    // Whatever cannot be is said before ports are opened.
    request.plan(options.clear.clone())?;
    let mut bench = Bench::open(&options.port, request.max_frame().max(USUAL))?;
    let shows = io::stderr().is_terminal();
    let mut watch = |progress: &Progress| {
        if shows && progress.of_s > 0.0 {
            let Progress { t_s, of_s, sent, received } = progress;
            eprint!("\r{t_s:6.1} of {of_s:.1} s: {sent} sent, {received} received ");
        }
        !stop.load(Ordering::Relaxed)
    };
    let outcome = measured(&mut bench, &request, options.clear.clone(), &mut watch);
    if shows {
        eprint!("\r\x1b[K");
    }
    let outcome = outcome?;
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer(&mut out, &outcome).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&mut out, &outcome)?;
    }
    Ok(out.flush()?)
}

/// Measures over ports that are open.
pub fn measured(
    bench: &mut Bench,
    request: &StatefulRequest,
    clear: Option<String>,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Outcome, StatefulError> {
    let (connections, settings, course) = request.plan(clear)?;
    let mut gateway = Gateway::new(bench, connections, course, watch)?;
    measure(&mut gateway, request.measure, &settings)
}

fn print(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(out, "{}", outcome.measure)?;
    writeln!(
        out,
        "{:>12}{:>14}{:>12}{:>12}{:>12}{:>12}{:>14}{:>9}",
        "connections", "opened/s", "sent", "learnt", "validated", "misdirected", "phase 2", "verdict"
    )?;
    for step in &outcome.steps {
        let Step { connections, phase_1, validation, phase_2, verdict, .. } = step;
        let of = |phase: &Option<Phase>, text: fn(&Phase) -> String| phase.as_ref().map_or("-".to_owned(), text);
        let verdict = match verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Invalid => "invalid",
            Verdict::Aborted => "aborted",
        };
        writeln!(
            out,
            "{connections:>12}{:>14.0}{:>12}{:>12}{:>12}{:>12}{:>14}{verdict:>9}",
            phase_1.rate_pps,
            phase_1.sent,
            phase_1.connections,
            of(validation, |p| p.received.to_string()),
            of(validation, |p| p.misdirected.to_string()),
            of(phase_2, |p| format!("{:.0}/s -{}", p.rate_pps, p.sent - p.received.min(p.sent))),
        )?;
    }
    if let Some(report) = &outcome.report {
        out.write_all(table::text(report).as_bytes())?;
    }
    let found = &outcome.found;
    let mut line = |name: &str, value: Option<f64>, unit: &str| match value {
        Some(value) => writeln!(out, "{name}: {value:.0} {unit}"),
        None => Ok(()),
    };
    line("open connections", found.connections.map(|n| n as f64), "")?;
    line("establishment rate", found.establishment_rate_pps, "connections/s")?;
    line("tear-down rate", found.tear_down_rate_cps, "connections/s")?;
    line("capacity", found.capacity.map(|n| n as f64), "connections")?;
    line("too many", found.capacity_below.map(|n| n as f64), "connections")?;
    line("throughput", found.throughput_pps, "frames/s and direction")?;
    if outcome.valid {
        return writeln!(out, "valid");
    }
    outcome.reasons.iter().try_for_each(|reason| writeln!(out, "NOT VALID: {reason}"))
}
