//! What a part came to, as text and as JSON.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::watch::Target;

/// Main's CPU time between two answers from which on it is said what the requests were.
const LONG: Duration = Duration::from_millis(100);
/// Finds that are kept.
const FINDS: usize = 20;

/// What a part came to.
pub struct Outcome {
    part: &'static str,
    single: bool,
    begun: Instant,
    took: Duration,
    /// Inputs that the router was given.
    pub count: u64,
    /// Requests that it accepted, where there are answers.
    pub accepted: u64,
    pub rounds: u64,
    /// Most of main's CPU time between two answers, and for what.
    pub longest: (Duration, String),
    /// Highest memory at the end of a round, bytes; and descriptors that were more than at its start.
    pub memory: u64,
    pub descriptors: i64,
    /// What should not be: crashes, hangs, counters that do not fit, buffers that do not come back.
    pub finds: Vec<String>,
}

impl Outcome {
    /// Begins a part; `single`: there is one request in flight.
    pub fn new(part: &'static str, single: bool) -> Self {
        let longest = (Duration::ZERO, String::new());
        let (begun, took) = (Instant::now(), Duration::ZERO);
        Self { part, single, begun, took, count: 0, accepted: 0, rounds: 0, longest, memory: 0, descriptors: 0, finds: Vec::new() }
    }

    /// Notes what should not be.
    pub fn find(&mut self, seed: u64, what: impl fmt::Display) {
        let find = format!("round of seed {seed}: {what}");
        // At once: a long run may be cut off before its report.
        eprintln!("FOUND {find}");
        if self.finds.len() < FINDS {
            self.finds.push(find);
        }
    }

    /// Notes how long main worked for some requests.
    pub fn worked(&mut self, cpu: Duration, what: impl FnOnce() -> String) {
        if cpu > self.longest.0 {
            self.longest = (cpu, what());
        }
    }

    /// Ends a round: the router must still be there; a client that failed says how.
    pub fn end_round(&mut self, seed: u64, target: &mut Target, result: Result<(), String>) {
        self.rounds += 1;
        self.took = self.begun.elapsed();
        eprintln!("{}: round {}, {} in all", self.part, self.rounds, self.count);
        if target.is_gone() {
            return self.find(seed, format!("the router has ended: {}", target.last_words()));
        }
        if let Err(what) = result {
            self.find(seed, what);
        }
        if self.single && self.longest.0 >= LONG {
            let (cpu, request) = std::mem::take(&mut self.longest);
            self.find(seed, format!("{:.1} ms of main's CPU time for {request}", cpu.as_secs_f64() * 1e3));
        }
        if let Some((before, after)) = target.usage() {
            self.memory = self.memory.max(after.memory());
            self.descriptors = self.descriptors.max(after.descriptors as i64 - before.descriptors as i64);
        }
    }

    fn rate(&self) -> u64 {
        (self.count as f64 / self.took.as_secs_f64().max(0.001)) as u64
    }

    /// Whether so much was found that more would say nothing new: a round that fails at once would be begun again for ever.
    pub fn has_enough(&self) -> bool {
        self.finds.len() >= 8
    }

    /// Whether nothing was found.
    pub fn is_well(&self) -> bool {
        self.finds.is_empty() && self.count > 0
    }

    fn value(&self) -> Value {
        json!({
            "part": self.part, "count": self.count, "accepted": self.accepted, "rounds": self.rounds,
            "seconds": self.took.as_secs_f64(), "rate": self.rate(),
            "longest_ms": self.longest.0.as_secs_f64() * 1e3, "longest_of": self.longest.1,
            "memory": self.memory, "descriptors_more": self.descriptors, "finds": self.finds, "well": self.is_well(),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, count, accepted, rounds, took, memory, descriptors, .. } = self;
        write!(f, "{part}: {count} in {rounds} rounds, {:.1} s, {}/s", took.as_secs_f64(), self.rate())?;
        if *accepted > 0 {
            write!(f, "; {accepted} accepted")?;
        }
        write!(f, "; longest {:.1} ms of main's CPU time", self.longest.0.as_secs_f64() * 1e3)?;
        if self.longest.0 >= LONG {
            write!(f, " ({})", self.longest.1)?;
        }
        write!(f, "; memory {} MB, {descriptors:+} descriptors", memory >> 20)?;
        if self.finds.is_empty() {
            return write!(f, "; nothing found");
        }
        self.finds.iter().try_for_each(|find| write!(f, "\n  FOUND {find}"))
    }
}

/// All parts as one JSON object.
pub fn json(seed: u64, outcomes: &[Outcome]) -> String {
    json!({ "seed": seed, "parts": outcomes.iter().map(Outcome::value).collect::<Vec<_>>() }).to_string()
}
