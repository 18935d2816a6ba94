//! What the tester itself can do: its ports back to back, as fast as it goes, then at nine tenths of that without a loss.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quiver_tester_core::bench::Bench;
use quiver_tester_core::disturbance::Disturbance;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::report::{Report, SelfTest};
use quiver_tester_core::trial::{self, Plan};
use quiver_tester_core::units::Rate;
use serde_json::{Value, json};

use crate::options::SelfTestOptions;
use crate::{Failure, measure, table};

/// Name of the schema.
const SCHEMA: &str = "quiver-self-test/1";
/// Part of its own maximum that the tester must hold without a loss.
const PART: f64 = 0.9;

/// What a self-test has found.
pub struct Outcome {
    /// Frames a second received in each direction, as fast as it went.
    most: f64,
    fastest: Report,
    /// The trial at [`PART`] of that; `None` where it did not come to it.
    held: Option<Report>,
}

impl Outcome {
    fn loss_free(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.head.valid && held.totals.lost == 0)
    }

    /// Whether the rate was held, and where not, whether the machine may be why.
    fn verdict(&self) -> String {
        let Some(held) = &self.held else { return "not tried: nothing came through".to_owned() };
        if self.loss_free() {
            return "held without a loss".to_owned();
        }
        let Disturbance { stolen_s, preempted } = held.machine;
        let lost = format!("not held: {} of {} frames lost", held.totals.lost, held.totals.sent);
        let valid = if held.head.valid { "" } else { ", the trial not valid" };
        if !held.machine.is_disturbed(held.head.duration_s) {
            return format!("{lost}{valid}, on a quiet machine");
        }
        let (stolen, preempted) = (stolen_s.unwrap_or(0.0), preempted.unwrap_or(0));
        format!(
            "{lost}{valid}; the machine was disturbed: {stolen:.2} s went to others, and threads had to leave their core {preempted} times"
        )
    }

    /// What later results carry.
    pub fn summary(&self) -> SelfTest {
        let held = self.held.as_ref();
        SelfTest {
            started: self.fastest.head.started.clone(),
            engine: self.fastest.head.engine.clone(),
            max_pps: self.most,
            held_pps: held.map(|_| self.most * PART),
            held_s: held.map(|held| held.head.duration_s),
            loss_free: self.loss_free(),
            verdict: self.verdict(),
        }
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let Self { fastest, held, .. } = self;
        let mut object = json!({ "schema": SCHEMA, "fastest": fastest, "held": held });
        if let (Some(object), Ok(Value::Object(summary))) = (object.as_object_mut(), serde_json::to_value(self.summary())) {
            object.extend(summary);
        }
        object
    }
}

/// What a file says that a self-test was stored in.
pub fn stored(file: &Path) -> Result<SelfTest, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::SelfTest(format!("{}: {error}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| failed(&e))?;
    let object: Value = serde_json::from_str(&text).map_err(|e| failed(&e))?;
    if object.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
        return Err(failed(&format!("no self-test: its schema is not {SCHEMA}")));
    }
    serde_json::from_value(object).map_err(|e| failed(&e))
}

/// Runs a self-test, stores it where that is asked for, and prints what it has found.
pub fn run(options: &SelfTestOptions, stop: &AtomicBool) -> Result<(), Failure> {
    let outcome = measure_both(options, stop)?;
    if let Some(file) = &options.out {
        fs::write(file, format!("{}\n", outcome.json())).map_err(|e| Failure::File(file.display().to_string(), e))?;
    }
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", outcome.json())?;
        return Ok(out.flush()?);
    }
    writeln!(out, "as fast as it goes: {:.0} frames/s received in each direction", outcome.most)?;
    out.write_all(table::text(&outcome.fastest).as_bytes())?;
    if let Some(held) = &outcome.held {
        writeln!(out, "\nat {:.0} % for {:.0} s: {}", PART * 100.0, held.head.duration_s, outcome.verdict())?;
        out.write_all(table::text(held).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// A self-test over memif within this process.
pub fn measure_own(duration: Duration, hold: Option<Duration>, stop: &AtomicBool) -> Result<Outcome, Failure> {
    measure_both(&SelfTestOptions { port: Vec::new(), size: 64, duration, hold, out: None, json: true }, stop)
}

fn measure_both(options: &SelfTestOptions, stop: &AtomicBool) -> Result<Outcome, Failure> {
    let mut ports = if options.port.is_empty() { own_ports()? } else { options.port.clone() };
    let [left, right] = &mut ports[..] else {
        return Err(Failure::SelfTest(format!("{} ports were given; two that are joined are needed, or none", ports.len())));
    };
    // Each is the other's next hop.
    for (port, last) in [(&mut *left, 1), (&mut *right, 2)] {
        port.mac.get_or_insert(own_mac(last));
    }
    (left.dst_mac, right.dst_mac) = (left.dst_mac.or(right.mac), right.dst_mac.or(left.mac));
    let mut plan = Plan { duration: options.duration, rate: Some(Rate::Max), ..Plan::new(trial::plain_profile(options.size)) };
    let mut bench = Bench::open(&ports, plan.max_frame())?;
    let fastest = measure(&mut bench, &plan, stop)?;
    // What came back, the slower direction.
    let most = fastest.directions.iter().map(|d| d.rates.rx_pps).fold(f64::INFINITY, f64::min);
    if stop.load(Ordering::Relaxed) || most < 1.0 {
        return Ok(Outcome { most, fastest, held: None });
    }
    plan.rate = Some(Rate::Pps(most * PART));
    plan.duration = options.hold.unwrap_or(options.duration);
    let held = Some(measure(&mut bench, &plan, stop)?);
    Ok(Outcome { most, fastest, held })
}

fn own_mac(last: u8) -> quiver_tester_core::MacAddr {
    quiver_tester_core::MacAddr([2, 0, 0, 0, 0, last])
}

/// Two ends of a memif connection within this process.
fn own_ports() -> Result<Vec<PortSpec>, Failure> {
    let socket = trial::own_socket("self");
    let port = |role: &str| {
        let text = format!("memif:socket={},id=0,role={role}", socket.display());
        text.parse().map_err(|e: quiver_tester_core::port::PortError| Failure::SelfTest(e.to_string()))
    };
    Ok(vec![port("server")?, port("client")?])
}
