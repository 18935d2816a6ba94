//! What parts share: rounds with a router each, slices with a client each.

use crate::Plan;
use crate::report::Outcome;
use crate::watch::Target;

/// Requests of a router.
const ROUND: u64 = 20_000;
/// Requests of a client, so that a bound of time is kept.
const SLICE: u64 = 1000;

/// A client's requests: report, router, seed, how many, how many of them in flight.
type Slice = fn(&mut Outcome, &Target, u64, u64, u64) -> Result<(), String>;

/// Plays rounds until the plan's bound.
pub fn play(part: &'static str, plan: &Plan, slice: Slice) -> Outcome {
    let mut outcome = Outcome::new(part, plan.in_flight == 1);
    while plan.goes_on(outcome.count) && !outcome.has_enough() {
        let seed = plan.seed.wrapping_add(outcome.rounds);
        let mut target = match Target::start(0) {
            Ok(target) => target,
            Err(error) => {
                outcome.find(seed, error);
                break;
            }
        };
        for command in ["create loopback interface", "create loopback interface", "create packet-generator interface pg0"] {
            let _ = target.router.cli(command);
        }
        let count = ROUND.min(plan.count - outcome.count);
        let mut left = count;
        let mut result = Ok(());
        while result.is_ok() && left > 0 && (left == count || plan.goes_on(outcome.count)) {
            let n = left.min(SLICE);
            // A slice's seed follows from the round's.
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(count - left);
            result = slice(&mut outcome, &target, seed, n, plan.in_flight);
            left -= n;
        }
        outcome.end_round(seed, &mut target, result);
        if !outcome.finds.is_empty() && target.is_gone() {
            break;
        }
    }
    outcome
}

/// A part's round: report, router, seed, plan.
type Round = fn(&mut Outcome, &mut Target, u64, &Plan) -> Result<(), String>;

/// Plays rounds without requests until the plan's bound. `workers`: of the router in the round of that number.
pub fn rounds(part: &'static str, plan: &Plan, workers: fn(u64) -> u32, round: Round) -> Outcome {
    let mut outcome = Outcome::new(part, false);
    while plan.goes_on(outcome.count) && !outcome.has_enough() {
        let seed = plan.seed.wrapping_add(outcome.rounds);
        let mut target = match Target::start(workers(outcome.rounds)) {
            Ok(target) => target,
            Err(error) => {
                outcome.find(seed, error);
                break;
            }
        };
        let result = round(&mut outcome, &mut target, seed, plan);
        outcome.end_round(seed, &mut target, result);
    }
    outcome
}
