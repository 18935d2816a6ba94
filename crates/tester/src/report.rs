//! What a trial says: the contract with the lab, `quiver-trial/1`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::disturbance::Disturbance;
use crate::latency::{Latencies, LatencySummary, Variation};
use crate::profile::Signing;
use crate::stamped::Timed;

/// Name of the schema.
pub const SCHEMA: &str = "quiver-trial/1";

/// Counts of frames. What was sent is either received or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// To be sent.
    pub intended: u64,
    /// Sent.
    pub sent: u64,
    /// Intended, but not sent.
    pub unsent: u64,
    /// Different frames that came back.
    pub received: u64,
    /// Sent, but not received.
    pub lost: u64,
    /// Further copies of frames received.
    pub duplicated: u64,
    /// Received behind a later one of their stream (RFC 4737).
    pub reordered: u64,
    /// So late that it could not be told whether they had come before; not among those received.
    pub late: u64,
    /// Not of this trial.
    pub foreign: u64,
    /// Of this trial, but damaged.
    pub corrupted: u64,
}

impl Counters {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.intended += other.intended;
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.received += other.received;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.late += other.late;
        self.foreign += other.foreign;
        self.corrupted += other.corrupted;
    }
}

/// Who measured.
#[derive(Clone, Debug, Serialize)]
pub struct Tester {
    /// Version of the program.
    pub version: String,
    /// Commit that it was built from, where that is known.
    pub commit: Option<String>,
}

/// Rates of a direction or stream over the time of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it; frames with FCS")]
pub struct Rates {
    pub tx_pps: f64,
    pub rx_pps: f64,
    pub tx_l2_bps: f64,
    pub rx_l2_bps: f64,
}

/// Actual less intended departure, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DepartureError {
    pub mean: f64,
    pub p99: f64,
    pub max: f64,
}

/// Times of a direction or stream; nothing where frames were counted only.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// One-way latency.
    pub latency_ns: Option<LatencySummary>,
    /// RFC 3550.
    pub jitter_ns: Option<f64>,
    /// RFC 5481.
    pub pdv_ns: Option<Variation>,
}

impl Times {
    /// Those of latencies.
    pub fn of(latencies: &Latencies) -> Self {
        match latencies.summary() {
            None => Self::default(),
            Some((latency, jitter, pdv)) => Self { latency_ns: Some(latency), jitter_ns: Some(jitter), pdv_ns: Some(pdv) },
        }
    }
}

/// The frames with a signature of a stream that has others, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "as in [`Counters`]")]
pub struct Signed {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamReport {
    /// Number in its direction.
    pub id: usize,
    /// Name in the profile.
    pub name: String,
    /// None of its frames had a signature.
    pub counted_only: bool,
    /// How many of them had one.
    pub signature: Signing,
    /// Those that had one, where only some had: their counts and times are exact, the others are counted only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// Counts.
    #[serde(flatten)]
    pub counters: Counters,
    /// Rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// Times.
    #[serde(flatten)]
    pub times: Times,
    /// What the devices' own times say, where its frames have such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamps: Option<Timed>,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// End, from the start of the trial.
    pub t_s: f64,
    /// Frames sent in it.
    pub sent: u64,
    /// Frames received in it.
    pub received: u64,
    /// Frames sent but not received by its end, less those of the sample before: may be below 0 where frames were under way.
    pub lost: i64,
}

/// A direction.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// `left-to-right` or `right-to-left`.
    pub name: String,
    /// Port that sends.
    pub tx: String,
    /// Port that receives.
    pub rx: String,
    /// Counts.
    #[serde(flatten)]
    pub counters: Counters,
    /// Rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// Departures.
    pub departure_error_ns: DepartureError,
    /// Times.
    #[serde(flatten)]
    pub times: Times,
    /// Streams.
    pub streams: Vec<StreamReport>,
    /// Course.
    pub series: Vec<Sample>,
    /// What to look at, where frames left and none came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A thread.
#[derive(Clone, Debug, Serialize)]
pub struct Cpu {
    /// What it does.
    pub thread: String,
    /// Core that it is pinned to.
    pub core: Option<u32>,
    /// Part of the time in which it had frames in hand, 0 to 1.
    pub busy: f64,
}

/// Another rate while a trial ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateChange {
    /// When, from the start of the trial.
    pub t_s: f64,
    /// The rate from then on.
    pub rate: String,
}

/// What every report begins with: who measured when, and whether the tester did what was asked of it.
#[derive(Clone, Debug, Serialize)]
pub struct Head {
    /// Name of the report's schema.
    pub schema: &'static str,
    /// Who measured.
    pub tester: Tester,
    /// When, RFC 3339.
    pub started: String,
    /// Name of the profile.
    pub profile: String,
    /// Seconds of sending, as far as it came.
    pub duration_s: f64,
    /// Whether the tester did what was asked of it.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// It was ended before its time.
    pub aborted: bool,
    /// Where times come from.
    pub clock: &'static str,
    /// Kind of the ports.
    pub engine: String,
}

/// What a trial was, for [`Head::new`].
pub(crate) struct Course<'a> {
    pub(crate) schema: &'static str,
    pub(crate) started: SystemTime,
    pub(crate) profile: &'a str,
    pub(crate) duration_s: f64,
    pub(crate) reasons: Vec<String>,
    pub(crate) aborted: bool,
}

impl Head {
    /// Of a trial on a bench that is over.
    pub(crate) fn new(bench: &Bench, course: Course<'_>) -> Self {
        Self {
            schema: course.schema,
            tester: Tester {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                commit: option_env!("QUIVER_COMMIT").map(str::to_owned),
            },
            started: rfc3339(course.started),
            profile: course.profile.to_owned(),
            duration_s: course.duration_s,
            valid: course.reasons.is_empty(),
            reasons: course.reasons,
            aborted: course.aborted,
            clock: bench.time().name(),
            engine: bench.engine(),
        }
    }
}

/// A trial.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Who measured when, with [`SCHEMA`].
    #[serde(flatten)]
    pub head: Head,
    /// Seconds of waiting for what was under way.
    pub settle_s: f64,
    /// Directions.
    pub directions: Vec<DirectionReport>,
    /// Sum of the directions.
    pub totals: Counters,
    /// Threads.
    pub cpu: Vec<Cpu>,
    /// What the machine did meanwhile.
    pub machine: Disturbance,
    /// Rates that it went on with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateChange>,
    /// What the tester itself could do, where that was measured and is to be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_test: Option<SelfTest>,
}

/// What a self-test has found, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// When, RFC 3339.
    pub started: String,
    /// Kind of the ports.
    pub engine: String,
    /// Frames a second received in each direction, as fast as it went.
    pub max_pps: f64,
    /// The rate that was to be held without a loss, and for how long.
    pub held_pps: Option<f64>,
    /// See `held_pps`, seconds.
    pub held_s: Option<f64>,
    /// Whether it was.
    pub loss_free: bool,
    /// The same in words.
    pub verdict: String,
}

/// A point in time as RFC 3339 writes it, in UTC.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin in March have their leap day at the end; 400 of them are 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", era * 400 + year + carry, since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
