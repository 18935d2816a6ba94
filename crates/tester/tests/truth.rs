//! Latencies on the wall clock, against a device that knows each of them.

mod common;

use common::hold::{Ages, at, latencies, mean, measure};

/// Digits that a histogram keeps: a value is told at most so much too high.
const RESOLUTION: f64 = 1.001;

#[test]
fn latencies_reported_lie_between_what_the_device_knows_of_each_frame() {
    // A millisecond and more, by turns; 1,000 frames, some four milliseconds apart.
    let (Ages { mut released, mut answered }, report) = measure("truth", &[1_000_000, 1_300_000, 2_500_000], 250.0, 4.0);
    let counters = &report.directions[0].counters;
    let n = counters.sent;
    assert!(n > 0);
    assert_eq!((counters.received, counters.lost, released.len() as u64, answered.len() as u64), (n, 0, n, n), "{report:?}");
    assert!(released.iter().zip(&answered).all(|(r, a)| r <= a));
    released.sort_unstable();
    answered.sort_unstable();
    let told = latencies(&report);
    let last = released.len() - 1;
    assert_eq!(told.count, n);
    assert!((released[0]..=answered[0]).contains(&told.min), "{told:?}");
    assert!((released[last]..=answered[last]).contains(&told.max), "{told:?}");
    assert!((mean(&released)..=mean(&answered)).contains(&told.mean), "{told:?}");
    for (quantile, value) in [(0.5, told.p50), (0.99, told.p99), (0.999, told.p99_9)] {
        let (least, most) = (at(&released, quantile), at(&answered, quantile));
        assert!(value >= least && value as f64 <= most as f64 * RESOLUTION + 1.0, "{quantile}: {least} {value} {most}");
    }
    // How near they came is a question of the machine's quiet, and the bench's.
    let (known, allowed) = (at(&released, 0.5), 1_000 + at(&released, 0.5) / 100);
    println!("median: known {known} ns, reported {} ns, {allowed} ns off would do", told.p50);
}
