//! One connection of TCP through each of the ways, in turns: what a host behind the router gets.

use std::io;
use std::time::{Duration, Instant};

use quiver_testbed::{Offloads, TwoHosts, TwoHostsOptions};

use crate::spread;
use crate::way::{Way, prepare};

/// After which something hangs.
const BOUND: Duration = Duration::from_secs(120);

/// Measures and prints. Without offloads the hosts cut segments themselves, as for a card that cannot.
///
/// # Errors
/// What could not be set up, or no connection.
pub fn measure(rounds: u64, time: Duration) -> io::Result<()> {
    println!("{rounds} rounds of {time:?}, one connection of iperf3: Gbit/s, segments sent again; median (smallest-largest)");
    for (offloads, name) in [(Offloads::Off, "without offloads"), (Offloads::On, "with offloads")] {
        let mut results = Way::ALL.into_iter().filter(|way| *way != Way::Nobody).map(|way| (way, Vec::new())).collect::<Vec<_>>();
        for _ in 0..rounds {
            for (way, runs) in &mut results {
                runs.push(one(*way, offloads, time)?);
            }
        }
        for (way, runs) in &results {
            let (rates, again) = (runs.iter().map(|run| run.0).collect(), runs.iter().map(|run| run.1).collect());
            println!("{name:<18}{:<24}{:>24}{:>36}", way.name(), spread(rates), spread(again));
        }
    }
    Ok(())
}

/// Gbit/s that arrived, and segments sent again.
fn one(way: Way, offloads: Offloads, time: Duration) -> io::Result<(f64, f64)> {
    let scene = TwoHosts::new(TwoHostsOptions { offloads, ..TwoHostsOptions::default() })?;
    let _router = prepare(&scene, way, false)?;
    let deadline = Instant::now() + BOUND;
    while !scene.a.pings(TwoHosts::B4, 1)? {
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("no answer through {}", way.name())));
        }
    }
    let shown = scene.a.iperf3(&scene.b, &format!("-J -c {} -t {}", TwoHosts::B4, time.as_secs()), BOUND)?;
    let report: serde_json::Value = serde_json::from_str(&shown.stdout)?;
    let figure = |end: &str, what: &str| report["end"][end][what].as_f64();
    match (figure("sum_received", "bits_per_second"), figure("sum_sent", "retransmits")) {
        (Some(rate), Some(again)) => Ok((rate / 1e9, again)),
        _ => Err(io::Error::other(format!("iperf3 through {}: {shown}", way.name()))),
    }
}
