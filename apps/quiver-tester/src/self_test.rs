//! What the tester itself can do: its ports back to back, as fast as it goes, then at nine tenths of that without a loss.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quiver_tester_core::bench::Bench;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::report::Report;
use quiver_tester_core::trial::{self, Plan};
use quiver_tester_core::units::Rate;
use serde_json::{Value, json};

use crate::options::SelfTestOptions;
use crate::{Failure, measure, table};

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
        self.held.as_ref().is_some_and(|held| held.valid && held.totals.lost == 0)
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let Self { most, fastest, held } = self;
        json!({
            "schema": "quiver-self-test/1", "max_pps": most, "held_pps": held.as_ref().map(|_| most * PART),
            "loss_free": self.loss_free(), "fastest": fastest, "held": held,
        })
    }
}

/// Runs a self-test and prints what it has found.
pub fn run(options: &SelfTestOptions, stop: &AtomicBool) -> Result<(), Failure> {
    let outcome = measure_both(options, stop)?;
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", outcome.json())?;
        return Ok(out.flush()?);
    }
    writeln!(out, "as fast as it goes: {:.0} frames/s received in each direction", outcome.most)?;
    out.write_all(table::text(&outcome.fastest).as_bytes())?;
    if let Some(held) = &outcome.held {
        writeln!(
            out,
            "\nat {:.0} %:{}",
            PART * 100.0,
            if outcome.loss_free() { " no loss" } else { " NOT valid and without loss" }
        )?;
        out.write_all(table::text(held).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// The usual self-test, over memif within this process.
pub fn measure_own(stop: &AtomicBool) -> Result<Outcome, Failure> {
    measure_both(&SelfTestOptions { port: Vec::new(), size: 64, duration: Duration::from_secs(2), json: true }, stop)
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
