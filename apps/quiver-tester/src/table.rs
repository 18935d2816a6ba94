//! A report for people.

use std::fmt::Write;

use quiver_tester_core::disturbance::Disturbance;
use quiver_tester_core::report::{Counters, Cpu, Head, Report, Signed, Times};

/// The report as text, lines of at most some hundred characters.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    head(out, &report.head)?;
    writeln!(
        out,
        "{:<16}{:>13}{:>13}{:>11}{:>13}{:>9}{:>7}{:>9}",
        "direction", "intended", "sent", "unsent", "received", "lost", "dup", "reorder"
    )?;
    for d in &report.directions {
        counters(out, &d.name, &d.counters)?;
        if d.streams.len() > 1 {
            for s in &d.streams {
                counters(out, &format!("  {}", s.name), &s.counters)?;
            }
        }
    }
    if report.directions.len() > 1 {
        counters(out, "both", &report.totals)?;
    }
    for d in &report.directions {
        writeln!(
            out,
            "{:<16}tx {:.0} frames/s ({:.6} Gbit/s), rx {:.0} ({:.6}); left late by {:.1} us on average, p99 {:.1}, at most {:.1}",
            d.name,
            d.rates.tx_pps,
            d.rates.tx_l2_bps / 1e9,
            d.rates.rx_pps,
            d.rates.rx_l2_bps / 1e9,
            d.departure_error_ns.mean / 1e3,
            d.departure_error_ns.p99 / 1e3,
            d.departure_error_ns.max / 1e3
        )?;
        let c = &d.counters;
        if c.late + c.foreign + c.corrupted > 0 {
            writeln!(out, "{:<16}too late to tell {}, foreign {}, corrupted {}", "", c.late, c.foreign, c.corrupted)?;
        }
        times(out, &d.times)?;
        for s in d.streams.iter().filter(|s| s.counted_only) {
            writeln!(out, "{:<16}{}: counted only, its frames have no signature", "", s.name)?;
        }
        for (s, timed) in d.streams.iter().filter_map(|s| Some((s, s.timestamps.as_ref()?))) {
            let (whose, count) = (timed.clock.name(), timed.timed);
            writeln!(out, "{:<16}{}: {count} frames with times of the {whose}", "", s.name)?;
            times(out, &timed.times)?;
        }
        for (s, part) in d.streams.iter().filter_map(|s| Some((s, s.signed?))) {
            let (name, Signed { sent, received, lost }, bare) = (&s.name, part, s.counters.sent.saturating_sub(part.sent));
            writeln!(
                out,
                "{:<16}{name}: {sent} frames with a signature, {received} received, {lost} lost; {bare} counted only",
                ""
            )?;
        }
    }
    machine(out, &report.cpu, &report.machine, report.head.duration_s)?;
    for (d, hint) in report.directions.iter().filter_map(|d| Some((d, d.hint.as_ref()?))) {
        writeln!(out, "{}: {hint}", d.name)?;
    }
    verdict(out, &report.head)
}

/// What threads were busy with, and what the machine did to them.
pub fn machine(out: &mut String, cpu: &[Cpu], machine: &Disturbance, duration_s: f64) -> std::fmt::Result {
    for cpu in cpu {
        let core = cpu.core.map_or(String::new(), |core| format!(" on core {core}"));
        writeln!(out, "thread {}{core}: busy {:.1} %", cpu.thread, 100.0 * cpu.busy)?;
    }
    if machine.is_disturbed(duration_s) {
        let (stolen, preempted) = (machine.stolen_s.unwrap_or(0.0), machine.preempted.unwrap_or(0));
        writeln!(
            out,
            "the machine was disturbed: {stolen:.2} s went to others, and threads had to leave their core {preempted} times"
        )?;
    }
    Ok(())
}

/// What was measured, and when.
pub fn head(out: &mut String, head: &Head) -> std::fmt::Result {
    let Head { profile, engine, duration_s, clock, started, .. } = head;
    writeln!(out, "{profile} over {engine}, {duration_s} s from {started}, clock {clock}")
}

/// Whether a result is valid, and why not.
pub fn verdict(out: &mut String, head: &Head) -> std::fmt::Result {
    if head.valid {
        return writeln!(out, "valid");
    }
    head.reasons.iter().try_for_each(|reason| writeln!(out, "NOT VALID: {reason}"))
}

fn counters(out: &mut String, name: &str, c: &Counters) -> std::fmt::Result {
    let Counters { intended, sent, unsent, received, lost, duplicated, reordered, .. } = c;
    writeln!(out, "{name:<16}{intended:>13}{sent:>13}{unsent:>11}{received:>13}{lost:>9}{duplicated:>7}{reordered:>9}")
}

fn times(out: &mut String, times: &Times) -> std::fmt::Result {
    let us = |ns: u64| ns as f64 / 1e3;
    if let Some(l) = &times.latency_ns {
        writeln!(
            out,
            "{:<16}latency us: min {:.1} mean {:.1} p50 {:.1} p99 {:.1} p99.9 {:.1} max {:.1}, stdev {:.1}",
            "",
            us(l.min),
            l.mean / 1e3,
            us(l.p50),
            us(l.p99),
            us(l.p99_9),
            us(l.max),
            l.stdev / 1e3
        )?;
    }
    if let (Some(jitter), Some(pdv)) = (times.jitter_ns, &times.pdv_ns) {
        writeln!(
            out,
            "{:<16}jitter us {:.1} (RFC 3550); variation p99 {:.1}, max {:.1} (RFC 5481)",
            "",
            jitter / 1e3,
            us(pdv.p99),
            us(pdv.max)
        )?;
    }
    Ok(())
}
