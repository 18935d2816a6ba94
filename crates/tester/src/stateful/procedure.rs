//! The measurements of RFC 9693, section 4, as sequences of phases. Pure: devices are somebody else's.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::phase::{Apparatus, Phase, StatefulError, Step, Verdict};
use crate::report::Report;

/// Name of the schema.
pub const SCHEMA: &str = "quiver-stateful/1";
/// How often a step is repeated that the tester itself spoilt. All are kept in the result.
const REPEATS: usize = 2;
/// Part of the rate at which connections must still be opened when their number doubles, and while their number is narrowed down:
/// below it the table counts as full (RFC 9693, section 4.10: beta and gamma).
const BETA: f64 = 0.2;
const GAMMA: f64 = 0.4;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Both phases once: how many connections of those asked for are open.
    Connections,
    /// The highest rate at which connections can be opened (section 4.6, 4.7).
    EstablishmentRate,
    /// How fast the device drops them when it is told to (section 4.9).
    TearDownRate,
    /// How many it can have (section 4.10).
    Capacity,
    /// The highest rate without loss over connections that are open (section 4.8).
    Throughput,
    /// One trial over connections that are open: loss rate, latency, delay variation (section 4.8).
    Trial,
}

/// All of them, as they are written.
pub const MEASURES: [(&str, Measure); 6] = [
    ("connections", Measure::Connections),
    ("establishment-rate", Measure::EstablishmentRate),
    ("tear-down-rate", Measure::TearDownRate),
    ("capacity", Measure::Capacity),
    ("throughput", Measure::Throughput),
    ("trial", Measure::Trial),
];

impl FromStr for Measure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = MEASURES.iter().find(|(name, _)| *name == text).map(|(_, measure)| *measure);
        let names: Vec<_> = MEASURES.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("`{text}' is no measurement: {}", names.join(", ")))
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MEASURES.iter().find(|(_, m)| m == self).map_or("", |(name, _)| name))
    }
}

impl Measure {
    /// Whether the device's table must be emptied between its steps.
    pub fn needs_clear(self) -> bool {
        matches!(self, Self::EstablishmentRate | Self::TearDownRate | Self::Capacity)
    }
}

/// How it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Connections to open; of `capacity` the number to begin with, which is known to be possible.
    pub connections: u64,
    /// Connections that there can be at most.
    pub total: u64,
    /// Connections opened a second in phase 1; the highest rate tried where that is searched for.
    pub open_pps: f64,
    /// Rate of the validation, as a part of that of phase 1.
    pub alpha: f64,
    /// Frames a second and direction in phase 2; the highest rate tried where that is searched for.
    pub traffic_pps: f64,
    /// Part of itself that a searched rate may be too low.
    pub precision: f64,
    /// By how many connections the capacity may be off.
    pub error: u64,
}

/// What was found. Only what the measurement measures is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Connections that are open: validated.
    pub connections: Option<u64>,
    /// Highest rate at which all connections were opened.
    pub establishment_rate_pps: Option<f64>,
    /// Connections dropped a second.
    pub tear_down_rate_cps: Option<f64>,
    /// What dropping all of them took, and what dropping none of them takes, seconds.
    pub tear_down_s: Option<f64>,
    /// See `tear_down_s`.
    pub tear_down_empty_s: Option<f64>,
    /// Connections that still carried frames afterwards.
    pub left: Option<u64>,
    /// Most connections that were all open.
    pub capacity: Option<u64>,
    /// Least number of them that were not; nothing where all that there can be were.
    pub capacity_below: Option<u64>,
    /// Highest rate without loss, frames a second and direction.
    pub throughput_pps: Option<f64>,
}

/// A measurement that is over.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What was measured.
    pub measure: Measure,
    /// How.
    pub settings: Settings,
    /// Whether what was found can be believed.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// It was ended before its time.
    pub aborted: bool,
    /// What was found.
    pub found: Found,
    /// All steps, in their order.
    pub steps: Vec<Step>,
    /// Phase 2 of `trial`.
    pub report: Option<Report>,
}

impl Outcome {
    fn new(measure: Measure, settings: Settings) -> Self {
        let (found, steps) = (Found::default(), Vec::new());
        Self { schema: SCHEMA, measure, settings, valid: true, reasons: Vec::new(), aborted: false, found, steps, report: None }
    }

    fn say(&mut self, reason: String) {
        self.valid = false;
        self.reasons.push(reason);
    }
}

/// What a step goes through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Phase 1, and the validation where all came through.
    Open,
    /// Phase 1, and the validation of those that came through.
    OpenSome,
    /// Phase 1, and traffic where all came through.
    Traffic(u64),
}

/// Measures.
///
/// # Errors
/// A phase could not begin. One that has begun always ends in an outcome.
pub fn run(device: &mut dyn Apparatus, measure: Measure, settings: &Settings) -> Result<Outcome, StatefulError> {
    check(settings)?;
    let mut work = Work { device, settings, outcome: Outcome::new(measure, *settings) };
    match measure {
        Measure::Connections => work.connections()?,
        Measure::EstablishmentRate => work.establishment_rate()?,
        Measure::TearDownRate => work.tear_down_rate()?,
        Measure::Capacity => work.capacity()?,
        Measure::Throughput => work.throughput()?,
        Measure::Trial => work.trial()?,
    }
    if work.outcome.aborted {
        work.outcome.say("ended before its time".to_owned());
    }
    Ok(work.outcome)
}

/// Whether settings can be.
///
/// # Errors
/// In one line which of them cannot.
pub fn check(settings: &Settings) -> Result<(), StatefulError> {
    let wrong = |text: String| Err(StatefulError::Setting(text));
    let Settings { connections, total, open_pps, alpha, traffic_pps, precision, error } = *settings;
    if connections == 0 || connections > total {
        return wrong(format!("{connections} connections: 1 to {total} are possible with these addresses and ports"));
    }
    for (what, value) in [("rate of phase 1", open_pps), ("rate of phase 2", traffic_pps), ("part alpha", alpha)] {
        if !(value.is_finite() && value > 0.0) {
            return wrong(format!("a {what} is a number above 0"));
        }
    }
    if !(precision > 0.0 && precision < 1.0) || error == 0 {
        return wrong("a precision is a part above 0 and below 1, and the error of a capacity at least one connection".to_owned());
    }
    Ok(())
}

struct Work<'a> {
    device: &'a mut dyn Apparatus,
    settings: &'a Settings,
    outcome: Outcome,
}

/// The end of a search for a rate.
struct Rate {
    /// Highest rate that passed.
    best: Option<f64>,
    /// The lowest rate above it was not the device's fault.
    spoilt: Option<f64>,
}

impl Work<'_> {
    /// A step, again where the tester spoilt it.
    fn step(&mut self, connections: u64, pps: f64, way: Way) -> Result<Verdict, StatefulError> {
        let mut verdict = Verdict::Invalid;
        for _ in 0..=REPEATS {
            let step = self.once(connections, pps, way)?;
            verdict = step.verdict;
            self.outcome.steps.push(step);
            if verdict != Verdict::Invalid {
                break;
            }
        }
        self.outcome.aborted |= verdict == Verdict::Aborted;
        Ok(verdict)
    }

    fn once(&mut self, connections: u64, pps: f64, way: Way) -> Result<Step, StatefulError> {
        let clear_s = self.device.clear()?.map(|t| t.as_secs_f64());
        let phase_1 = self.device.open(connections, pps)?;
        let mut verdict = judge(&phase_1, connections);
        let mut step = Step { connections, clear_s, phase_1, validation: None, phase_2: None, verdict };
        let go_on = match way {
            Way::OpenSome => verdict != Verdict::Aborted && step.phase_1.connections > 0,
            Way::Open | Way::Traffic(_) => verdict == Verdict::Passed,
        };
        if go_on && matches!(way, Way::Open | Way::OpenSome) {
            let validation = self.device.validate(pps * self.settings.alpha)?;
            verdict = match (verdict, judge(&validation, connections)) {
                (_, Verdict::Aborted) => Verdict::Aborted,
                (Verdict::Passed, of_validation) => of_validation,
                (of_opening, _) => of_opening,
            };
            step.validation = Some(validation);
        }
        if let (true, Way::Traffic(rate)) = (go_on, way) {
            let (traffic, report) = self.device.traffic(f64::from_bits(rate))?;
            verdict = if traffic.aborted {
                Verdict::Aborted
            } else if !traffic.valid {
                Verdict::Invalid
            } else if traffic.received == traffic.sent {
                Verdict::Passed
            } else {
                Verdict::Failed
            };
            step.phase_2 = Some(traffic);
            self.outcome.report = report;
        }
        step.verdict = verdict;
        Ok(step)
    }

    /// The highest rate above `least` and up to `most` at which `passes`: `most` first unless it is known to fail, then halving.
    fn highest(
        &mut self,
        (least, most): (f64, f64),
        most_fails: bool,
        passes: &mut dyn FnMut(&mut Self, f64) -> Result<Verdict, StatefulError>,
    ) -> Result<Rate, StatefulError> {
        let (mut low, mut high, mut best, mut spoilt) = (least, most, None, None);
        let mut at = if most_fails { f64::midpoint(least, most) } else { most };
        loop {
            match passes(self, at)? {
                Verdict::Passed => (low, best) = (at, Some(at)),
                Verdict::Failed => (high, spoilt) = (at, None),
                Verdict::Invalid => (high, spoilt) = (at, Some(at)),
                Verdict::Aborted => return Ok(Rate { best, spoilt: None }),
            }
            // Nothing passes: below one frame a second there is nothing to search for.
            if low >= high || high - low <= self.settings.precision * high || (best.is_none() && high < 1.0) {
                return Ok(Rate { best, spoilt });
            }
            at = f64::midpoint(low, high);
        }
    }

    /// Says that a rate was bounded by the tester.
    fn note(&mut self, rate: &Rate) {
        if let Some(pps) = rate.spoilt {
            let last = self.outcome.steps.last();
            let phases =
                last.map(|s| [Some(&s.phase_1), s.validation.as_ref(), s.phase_2.as_ref()]).into_iter().flatten().flatten();
            let why: Vec<String> = phases.flat_map(|p| p.reasons.clone()).collect();
            let why = if why.is_empty() { String::new() } else { format!(", last because {}", why.join("; ")) };
            self.outcome.say(format!("at {pps:.0} frames/s the tester itself failed, so that the device may do better{why}"));
        }
    }

    fn connections(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, open_pps, .. } = *self.settings;
        let verdict = self.step(connections, open_pps, Way::OpenSome)?;
        let last = self.outcome.steps.last();
        let validated = last.and_then(|s| s.validation.as_ref()).map_or(0, |v| v.received - v.misdirected.min(v.received));
        self.outcome.found.connections = Some(validated);
        if verdict == Verdict::Invalid {
            let rate = Rate { best: None, spoilt: Some(open_pps) };
            self.note(&rate);
        }
        Ok(())
    }

    fn establishment_rate(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, open_pps, .. } = *self.settings;
        let rate = self.highest((0.0, open_pps), false, &mut |work, pps| work.step(connections, pps, Way::Open))?;
        self.outcome.found.establishment_rate_pps = rate.best;
        self.note(&rate);
        Ok(())
    }

    /// The rate of at least `part` of `pps` at which so many connections can be opened.
    fn rate_of(&mut self, connections: u64, pps: f64, part: f64) -> Result<Option<f64>, StatefulError> {
        let mut passes = |work: &mut Self, rate: f64| work.step(connections, rate, Way::Open);
        match passes(self, pps)? {
            Verdict::Passed => return Ok(Some(pps)),
            Verdict::Aborted => return Ok(None),
            Verdict::Failed | Verdict::Invalid => {}
        }
        // A table that is full is full at any rate: asked at the lowest one that would do before the rate is narrowed down.
        match passes(self, pps * part)? {
            Verdict::Passed => {}
            Verdict::Failed | Verdict::Aborted => return Ok(None),
            Verdict::Invalid => {
                let rate = Rate { best: None, spoilt: Some(pps * part) };
                self.note(&rate);
                return Ok(None);
            }
        }
        let rate = self.highest((pps * part, pps), true, &mut passes)?;
        Ok(Some(rate.best.unwrap_or(pps * part)))
    }

    fn capacity(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, total, open_pps, error, .. } = *self.settings;
        let rate = self.highest((0.0, open_pps), false, &mut |work, pps| work.step(connections, pps, Way::Open))?;
        let Some(mut pps) = rate.best else {
            self.note(&rate);
            self.outcome.found.capacity_below = Some(connections);
            if self.outcome.valid && !self.outcome.aborted {
                self.outcome
                    .say(format!("{connections} connections are too many to begin with: none of the rates tried opens them"));
            }
            return Ok(());
        };
        // Doubled until they do not fit.
        let (mut fits, mut fails) = (connections, None);
        while fits < total && fails.is_none() && !self.outcome.aborted {
            let more = fits.saturating_mul(2).min(total);
            match self.rate_of(more, pps, BETA)? {
                Some(rate) => (fits, pps) = (more, rate),
                None => fails = Some(more),
            }
        }
        while let Some(most) = fails.filter(|most| most - fits > error && !self.outcome.aborted) {
            let middle = fits.midpoint(most);
            match self.rate_of(middle, pps, GAMMA)? {
                Some(rate) => (fits, pps) = (middle, rate),
                None => fails = Some(middle),
            }
        }
        self.outcome.found.capacity = Some(fits);
        if !self.outcome.aborted {
            self.outcome.found.capacity_below = fails;
        }
        self.outcome.found.establishment_rate_pps = Some(pps);
        Ok(())
    }

    fn tear_down_rate(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, open_pps, alpha, .. } = *self.settings;
        // What the command takes by itself: once to empty the table, once with it empty.
        let without = "a tear-down rate needs a command that empties the device's table";
        self.device.clear()?.ok_or_else(|| StatefulError::Setting(without.to_owned()))?;
        let empty = self.device.clear()?.unwrap_or_default().as_secs_f64();
        let verdict = self.step(connections, open_pps, Way::Open)?;
        match verdict {
            Verdict::Passed => {}
            Verdict::Aborted => return Ok(()),
            Verdict::Failed => {
                self.outcome.say(format!("not all of {connections} connections were open: ask for less, or for less a second"));
                return Ok(());
            }
            Verdict::Invalid => {
                let rate = Rate { best: None, spoilt: Some(open_pps) };
                self.note(&rate);
                return Ok(());
            }
        }
        let full = self.device.clear()?.unwrap_or_default().as_secs_f64();
        let after = self.device.validate(open_pps * alpha)?;
        let found = &mut self.outcome.found;
        (found.tear_down_s, found.tear_down_empty_s, found.left) = (Some(full), Some(empty), Some(after.received));
        found.connections = Some(connections);
        let gone = connections - after.received.min(connections);
        found.tear_down_rate_cps = (full > empty).then(|| gone as f64 / (full - empty));
        self.outcome.aborted |= after.aborted;
        if full <= empty {
            self.outcome.say("dropping all connections took no longer than dropping none: more are needed".to_owned());
        }
        if after.received > 0 {
            self.outcome.say(format!("{} connections were left after the command", after.received));
        }
        Ok(())
    }

    fn throughput(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, open_pps, traffic_pps, .. } = *self.settings;
        let mut opened = true;
        let rate = self.highest((0.0, traffic_pps), false, &mut |work, pps| {
            let verdict = work.step(connections, open_pps, Way::Traffic(pps.to_bits()))?;
            // Without open connections there is nothing to search.
            let last = work.outcome.steps.last();
            if last.is_some_and(|s| s.phase_2.is_none()) && verdict != Verdict::Aborted {
                opened = false;
                return Ok(Verdict::Aborted);
            }
            Ok(verdict)
        })?;
        self.outcome.report = None;
        if opened {
            self.outcome.found.throughput_pps = rate.best;
            self.note(&rate);
        } else {
            self.not_open();
        }
        Ok(())
    }

    fn trial(&mut self) -> Result<(), StatefulError> {
        let Settings { connections, open_pps, traffic_pps, .. } = *self.settings;
        // Repeats are the caller's: a trial that was not valid is a result.
        let step = self.once(connections, open_pps, Way::Traffic(traffic_pps.to_bits()))?;
        let (verdict, traffic) = (step.verdict, step.phase_2.clone());
        self.outcome.steps.push(step);
        self.outcome.aborted = verdict == Verdict::Aborted;
        match traffic {
            Some(phase) => phase.reasons.iter().for_each(|reason| self.outcome.say(reason.clone())),
            None if !self.outcome.aborted => self.not_open(),
            None => {}
        }
        Ok(())
    }

    fn not_open(&mut self) {
        let Settings { connections, .. } = self.settings;
        let came = self.outcome.steps.last().map_or(0, |s| s.phase_1.connections);
        let reasons = self.outcome.steps.last().map(|s| s.phase_1.reasons.clone()).unwrap_or_default();
        self.outcome.say(format!("phase 1 opened {came} of {connections} connections, so that there was no phase 2"));
        reasons.into_iter().for_each(|reason| self.outcome.say(reason));
    }
}

/// What a phase that opens or validates says of the device.
fn judge(phase: &Phase, connections: u64) -> Verdict {
    if phase.aborted {
        Verdict::Aborted
    } else if !phase.valid {
        Verdict::Invalid
    } else if phase.is_whole(connections) {
        Verdict::Passed
    } else {
        Verdict::Failed
    }
}
