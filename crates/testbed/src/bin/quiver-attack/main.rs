//! `scripts/attack`: what somebody on the wire, or a client gone mad, could do to a router, played against one in a namespace
//! of its own.
//!
//! ```text
//!   frames N   mutated frames through bridge, tags, IPv4/6, ND, NAT44, reassembly, with traces and capture on
//!   memif N    the same through memif: none of them twice, and more a second
//!   rings N    memif rings with words in them that should not be there, in both roles
//!   api N      binary API messages of every kind, with odd values
//!   cli N      command lines by the commands' own syntax, with odd values
//! ```
//!
//! Everything is drawn from a seed, which is printed. Work is done in rounds; each round has a router and a seed of its own, so a
//! find is repeated by its round's seed alone: `scripts/attack api 20000 --seed THAT`. A part fails where the router ends, does not
//! answer, keeps buffers, or does not count what it received. The longest CPU time of main between two answers is reported, with the
//! requests that may have taken it where that is 100 ms or more; with one request in flight it is known which, and the part fails.

mod api;
mod cli;
mod frames;
mod memif;
mod report;
mod requests;
mod rings;
mod rng;
mod scene;
mod watch;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use report::Outcome;

const USAGE: &str = "quiver-attack [frames N] [memif N] [rings N] [api N] [cli N]
    [--seconds S] [--seed N] [--in-flight N] [--json]
  without parts: all of them, for S seconds in all (60 where nothing is said)
  with --seconds, each part ends after its share of them, or after N
  with --in-flight 1 (16 where nothing is said), a request that takes 100 ms of main's CPU time is a find";

/// A part by its name.
type Part = (&'static str, fn(&Plan) -> Outcome);
const PARTS: [Part; 5] =
    [("frames", frames::run), ("memif", memif::run), ("rings", rings::run), ("api", api::run), ("cli", cli::run)];

/// What a part plays, and for how long.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    count: u64,
    until: Option<Instant>,
    /// Requests in flight.
    in_flight: u64,
}

impl Plan {
    /// Whether another round is due after so many.
    fn goes_on(&self, done: u64) -> bool {
        done < self.count && self.until.is_none_or(|until| Instant::now() < until)
    }
}

struct Arguments {
    parts: Vec<(String, u64)>,
    seconds: Option<u64>,
    seed: u64,
    in_flight: u64,
    json: bool,
}

fn arguments() -> Result<Arguments, String> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    let mut all = Arguments { parts: Vec::new(), seconds: None, seed: clock % 1_000_000_007, in_flight: 16, json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = |of: &str| {
            let text = words.next().ok_or_else(|| format!("{of} wants a number"))?;
            // 1e9 is easier to write than nine zeros.
            text.parse::<u64>()
                .or_else(|_| text.parse::<f64>().map(|n| n as u64))
                .map_err(|_| format!("{of}: `{text}' is no number"))
        };
        match word.as_str() {
            name if PARTS.iter().any(|(part, _)| *part == name) => {
                let count = number(&word)?;
                all.parts.push((word, count));
            }
            "--seconds" => all.seconds = Some(number("--seconds")?),
            "--seed" => all.seed = number("--seed")?,
            "--in-flight" => all.in_flight = number("--in-flight")?.clamp(1, 64),
            "--json" => all.json = true,
            "--help" | "-h" => return Err(USAGE.into()),
            other => return Err(format!("unknown argument `{other}'\n{USAGE}")),
        }
    }
    if all.parts.is_empty() {
        all.parts = PARTS.iter().map(|(part, _)| ((*part).to_owned(), u64::MAX)).collect();
        all.seconds = all.seconds.or(Some(60));
    }
    Ok(all)
}

fn main() -> ExitCode {
    let all = match arguments() {
        Ok(all) => all,
        Err(text) => {
            eprintln!("quiver-attack: {text}");
            return ExitCode::FAILURE;
        }
    };
    if !all.json {
        println!("seed {}", all.seed);
    }
    let share = all.seconds.map(|s| Duration::from_secs(s) / all.parts.len() as u32);
    let mut outcomes = Vec::new();
    for (part, count) in &all.parts {
        let until = share.map(|share| Instant::now() + share);
        let plan = Plan { seed: all.seed, count: *count, until, in_flight: all.in_flight };
        let Some((_, run)) = PARTS.iter().find(|(name, _)| name == part) else { continue };
        let outcome = run(&plan);
        if !all.json {
            println!("{outcome}");
        }
        outcomes.push(outcome);
    }
    if all.json {
        println!("{}", report::json(all.seed, &outcomes));
    }
    if outcomes.iter().all(Outcome::is_well) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
