//! How near the latencies that the tester reports come to known ones: frames pass a device of this process that holds each of them
//! for so long and knows for how long exactly (`tests/common/hold.rs`). Needs two processors that nobody else uses.
//!
//! `cargo bench -p quiver-tester-core --bench truth [-- SECONDS [ROUNDS]]`
//!
//! One JSON object a delay and line, ns: the device knows when it released a frame (`known`) and when the answer to a question right
//! behind it had come (`answered`); what the tester reports must lie between them, and by `off_ns` of the medians, as median, least
//! and most of the rounds, its account is later than the release: 1 µs and 1 % of the delay are `allowed`. Means and most of all rounds.

#[path = "../tests/common/mod.rs"]
mod common;

use common::hold::{at, latencies, mean, measure};

/// What one run found, ns.
struct Round {
    known: u64,
    told: u64,
    answered: u64,
    means: (f64, f64),
    most: (u64, u64),
    frames: u64,
    valid: bool,
}

fn round(delay: u64, seconds: f64) -> Round {
    // Never two frames at a time.
    let (mut ages, report) = measure("bench", &[delay], 0.5e9 / delay as f64, seconds);
    ages.released.sort_unstable();
    ages.answered.sort_unstable();
    let told = latencies(&report);
    Round {
        known: at(&ages.released, 0.5),
        told: told.p50,
        answered: at(&ages.answered, 0.5),
        means: (mean(&ages.released), told.mean),
        most: (ages.released.last().copied().unwrap_or(0), told.max),
        frames: told.count,
        valid: report.head.valid,
    }
}

fn main() {
    // Under `cargo test --benches` nothing is measured.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let mut numbers = std::env::args().filter_map(|word| word.parse::<f64>().ok());
    let (seconds, count) = (numbers.next().unwrap_or(3.0), numbers.next().unwrap_or(5.0).max(1.0) as usize);
    for delay in [1_000_000, 2_000_000, 10_000_000] {
        let rounds: Vec<Round> = (0..count).map(|_| round(delay, seconds)).collect();
        let mut off: Vec<u64> = rounds.iter().map(|r| r.told.abs_diff(r.known)).collect();
        off.sort_unstable();
        let most = |of: fn(&Round) -> f64| rounds.iter().map(of).fold(0.0, f64::max).round();
        let line = serde_json::json!({
            "case": "truth", "delay_ns": delay, "rounds": count,
            "frames": rounds.iter().map(|r| r.frames).sum::<u64>(),
            "off_ns": { "median": off[off.len() / 2], "min": off[0], "max": off[off.len() - 1] },
            "allowed_ns": 1_000 + delay / 100,
            "rounds_within": rounds.iter().filter(|r| r.told.abs_diff(r.known) <= 1_000 + r.known / 100).count(),
            "rounds_between": rounds.iter().filter(|r| (r.known..=r.answered + r.answered / 1_000).contains(&r.told)).count(),
            "known_mean_ns": most(|r| r.means.0), "mean_ns": most(|r| r.means.1),
            "known_max_ns": most(|r| r.most.0 as f64), "max_ns": most(|r| r.most.1 as f64),
            "valid": rounds.iter().filter(|r| r.valid).count(),
        });
        println!("{line}");
    }
}
