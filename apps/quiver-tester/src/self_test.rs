//! What the tester itself can do: its ports back to back, as fast as it goes, then at nine tenths of that without a loss.

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;

use quiver_tester_core::bench::Bench;
use quiver_tester_core::port::PortSpec;
use quiver_tester_core::trial::{self, Plan};
use quiver_tester_core::units::Rate;

use crate::options::SelfTestOptions;
use crate::{Failure, measure, print, table};

/// Part of its own maximum that the tester must hold without a loss.
const PART: f64 = 0.9;

pub fn run(options: &SelfTestOptions, stop: &AtomicBool) -> Result<(), Failure> {
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
    if stop.load(std::sync::atomic::Ordering::Relaxed) || !most.is_finite() || most < 1.0 {
        return print(&fastest, options.json);
    }
    plan.rate = Some(Rate::Pps(most * PART));
    let held = measure(&mut bench, &plan, stop)?;
    let loss_free = held.valid && held.totals.lost == 0;
    let mut out = io::stdout().lock();
    if options.json {
        let whole = serde_json::json!({
            "schema": "quiver-self-test/1", "max_pps": most, "held_pps": most * PART, "loss_free": loss_free,
            "fastest": fastest, "held": held,
        });
        writeln!(out, "{whole}")?;
    } else {
        writeln!(out, "as fast as it goes: {most:.0} frames/s received in each direction")?;
        writeln!(out, "at {:.0} %:{}", PART * 100.0, if loss_free { " no loss" } else { " NOT without loss" })?;
        out.write_all(table::text(&held).as_bytes())?;
    }
    Ok(out.flush()?)
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
