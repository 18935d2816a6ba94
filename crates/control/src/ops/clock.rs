//! `show clock`, `set clock adjust`.

use std::fmt::Write as _;
use std::time::SystemTime;

use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::clock::Source;
use quiver_net::Router;
use serde::Serialize;

use crate::system::System;
use quiver_command::calendar::Civil;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowClock>().declare::<AdjustClock>();
}

request! {
    /// Shows the time.
    pub read ShowClock "clock_show" ["show clock"] {
        /// Where the time comes from.
        pub verbose: bool = "verbose",
    }
}

/// The answer of [`ShowClock`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Time {
    /// Seconds since the router was started, with all adjustments.
    pub seconds: f64,
    /// The date.
    pub date: String,
    /// More, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<TimeSource>,
}

/// Where the time comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimeSource {
    /// The counter or the kernel.
    pub source: &'static str,
    /// "Clocks" in a second.
    pub ticks_per_second: u64,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// Seconds by which timers are ahead.
    pub adjustment: f64,
}

impl Execute<Router> for ShowClock {
    type Reply = Time;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Time>, OpError> {
        let (clock, started) = (router.graph.clock(), System::of(router)?.started);
        let source = || TimeSource {
            source: if clock.source() == Source::Counter { "cycle counter" } else { "kernel" },
            ticks_per_second: clock.ticks_per_second(),
            monotonic_ns: clock.now(),
            adjustment: clock.adjustment() as f64 / 1e9,
        };
        Ok(Outcome::Done(Time {
            seconds: clock.timer_now().wrapping_sub(started) as i64 as f64 / 1e9,
            date: Civil::of(SystemTime::now()).http_date(),
            source: self.verbose.then(source),
        }))
    }
}

impl Text for Time {
    fn text(&self, out: &mut String, _view: &View) {
        let _ = writeln!(out, "Time now {:.6}, {}", self.seconds, self.date);
        if let Some(source) = &self.source {
            let TimeSource { source, ticks_per_second, monotonic_ns, adjustment } = source;
            let _ = writeln!(out, "  from the {source}, {ticks_per_second} ticks a second");
            let _ = writeln!(out, "  CLOCK_MONOTONIC {monotonic_ns} ns, timers adjusted by {adjustment:.6} s");
        }
    }
}

request! {
    /// Shifts the time that timers follow: what is due by then happens at once.
    pub change AdjustClock "clock_adjust" ["set clock adjust"] {
        /// Seconds. There is no way back: what waits for a time would wait for as long as that.
        pub seconds: f64 = "<seconds>",
    }
}

impl Execute<Router> for AdjustClock {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let clock = router.graph.clock();
        // Those of earlier ones with it, which come as nanoseconds.
        let all = self.seconds + clock.adjustment() as f64 / 1e9;
        if !(self.seconds >= 0.0 && all <= ADJUSTMENT_MAX) {
            let years = ADJUSTMENT_MAX / 3.2e7;
            let error = format!("time goes forwards, {years} years in all at most");
            return Err(OpError::new(retval::INVALID_VALUE, error).key("seconds").value(self.seconds));
        }
        clock.adjust((self.seconds * 1e9) as i64);
        Ok(Outcome::Done(()))
    }
}

/// Seconds by which timers may be ahead: a hundred years are enough for every timer, and far from the end of 64 bits.
const ADJUSTMENT_MAX: f64 = 3.2e9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forwards_and_not_for_ever() {
        use crate::ops::testing::{error, run};
        let mut h = quiver_net::testing::Harness::new();
        for line in ["set clock adjust -1", "set clock adjust -1e300", "set clock adjust 3.3e9", "set clock adjust nan"] {
            let error = error(&mut h.router, line);
            assert!(error.contains("seconds") && !error.contains('\n'), "{line}: {error}");
        }
        run(&mut h.router, "set clock adjust 3e9");
        run(&mut h.router, "set clock adjust 0");
        assert!(error(&mut h.router, "set clock adjust 3e9").contains("100 years"), "both together");
        assert_eq!(h.router.graph.clock().adjustment(), 3_000_000_000_000_000_000);
    }

    #[test]
    fn show_clock_is_of_the_usual_form() {
        let time = Time { seconds: 41.638368, date: "Sat, 21 Nov 2026 05:16:16 GMT".into(), source: None };
        let mut out = String::new();
        time.text(&mut out, &View::TEXT);
        assert_eq!(out, "Time now 41.638368, Sat, 21 Nov 2026 05:16:16 GMT\n");
    }
}
