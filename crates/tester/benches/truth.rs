//! How near the latencies that the tester reports come to known ones: frames pass a device of this process that holds each of them
//! for so long and knows for how long exactly (`tests/common/hold.rs`). Needs two processors that nobody else uses.
//!
//! `cargo bench -p quiver-tester-core --bench truth [-- SECONDS]`
//!
//! One JSON object a delay and line: medians, means and most of what the device knows and of what the tester reports, ns; `off` is the
//! difference of the medians, `allowed` 1 µs and 1 % of the known one.

#[path = "../tests/common/mod.rs"]
mod common;

use common::hold::{at, latencies, mean, measure};

fn main() {
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(5.0);
    for delay in [1_000_000, 2_000_000, 10_000_000] {
        // Never two frames at a time.
        let (mut ages, report) = measure("bench", &[delay], 0.5e9 / delay as f64, seconds);
        ages.released.sort_unstable();
        let (known, told) = (at(&ages.released, 0.5), latencies(&report));
        let (off, allowed) = (told.p50.abs_diff(known), 1_000 + known / 100);
        let (known_mean, known_max) = (mean(&ages.released), ages.released.last().copied().unwrap_or(0));
        println!(
            "{{\"case\": \"truth\", \"delay_ns\": {delay}, \"frames\": {}, \"known_median_ns\": {known}, \"median_ns\": {}, \"off_ns\": {off}, \
             \"allowed_ns\": {allowed}, \"within\": {}, \"known_mean_ns\": {known_mean:.0}, \"mean_ns\": {:.0}, \"known_max_ns\": {known_max}, \
             \"max_ns\": {}, \"valid\": {}}}",
            told.count,
            told.p50,
            off <= allowed,
            told.mean,
            told.max,
            report.valid
        );
    }
}
