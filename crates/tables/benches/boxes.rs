//! What access lists cost: build time, memory and clocks a lookup, beside a linear search.
//!
//! `cargo bench -p quiver-tables --bench boxes [-- [--rounds N] [--only TEXT]]`. Lists are generated (`rules`), and the same in each run.
//! Four of five keys lie in a rule, with all rules alike; the fifth is in none. *single*: a loop of `find`; *batch*: `find_batch` of 8.
//! Rounds visit all in turn; figures are medians of short runs, with the least and the greatest. Clocks are ticks of the time stamp counter
//! (CNTVCT on Arm).

use quiver_tables::boxes::{Boxes, Ranges};
use quiver_tables::synth::Random;
use std::hint::black_box;
use std::time::Instant;

#[allow(dead_code, reason = "shared with the bench of prefix tables, which takes more of it")]
#[path = "lpm/measure.rs"]
mod measure;
#[path = "boxes/rules.rs"]
mod rules;
use measure::{Median, ticks};

const KEYS: usize = 1 << 16;
/// Keys that the linear search answers.
const FEW: usize = 1 << 10;
/// Keys of a run: so few that most runs end before another program has the processor.
const SLICE: usize = 1 << 11;
/// The same for the linear search.
const FEW_SLICE: usize = 1 << 4;
const BATCH: usize = 8;

#[derive(Clone, Copy)]
enum Way {
    Linear,
    Single,
    Batch,
}
/// Ways of a search, with the keys of a round and of a run.
const WAYS: [(Way, &str, usize, usize); 3] =
    [(Way::Linear, "linear", FEW, FEW_SLICE), (Way::Single, "single", KEYS, SLICE), (Way::Batch, "batch", KEYS, SLICE)];

#[inline(always)]
fn body<const D: usize>(boxes: &Boxes<D>, rules: &[Ranges<D>], keys: &[[u32; D]], way: Way) -> u32 {
    let mut sum = 0u32;
    let mut add = |found: Option<u32>| sum = sum.wrapping_add(found.unwrap_or(1));
    match way {
        Way::Linear => {
            keys.iter().for_each(|key| add(rules.iter().position(|rule| rule.has(key, 0)).map(|at| at as u32)));
        }
        Way::Single => keys.iter().for_each(|key| add(boxes.find(key, 0))),
        Way::Batch => {
            for keys in keys.as_chunks::<BATCH>().0 {
                boxes.find_batch(keys, &[0; BATCH]).into_iter().for_each(&mut add);
            }
        }
    }
    sum
}

/// The body as nodes are compiled: for x86-64-v3 where the machine has it.
fn run<const D: usize>(boxes: &Boxes<D>, rules: &[Ranges<D>], keys: &[[u32; D]], way: Way) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
        fn v3<const D: usize>(boxes: &Boxes<D>, rules: &[Ranges<D>], keys: &[[u32; D]], way: Way) -> u32 {
            body(boxes, rules, keys, way)
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: every CPU with AVX2 and BMI2 has the other features too.
            return unsafe { v3(boxes, rules, keys, way) };
        }
    }
    body(boxes, rules, keys, way)
}

struct Subject {
    name: String,
    build_ms: f64,
    bytes: usize,
    run: Box<dyn Fn(Way, std::ops::Range<usize>) -> u32>,
    clocks: [Median; WAYS.len()],
}

fn subject<const D: usize>(name: &str, family: &rules::Family, n: usize) -> Subject {
    let list = rules::list::<D>(family, n, 1);
    let start = Instant::now();
    let boxes = Boxes::new(&list).expect("memory for a list");
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let bytes = boxes.memory_bytes();
    let mut random = Random::new(2);
    let keys: Vec<[u32; D]> = (0..KEYS)
        .map(|k| match k % 5 {
            4 => std::iter::repeat_with(|| rules::anywhere(family, &mut random))
                .take(10_000)
                .find(|key| boxes.find(key, 0).is_none())
                .expect("keys without a rule"),
            _ => rules::inside(&list[random.below(n as u64) as usize], &mut random),
        })
        .collect();
    for key in &keys[..FEW] {
        assert_eq!(boxes.find(key, 0), list.iter().position(|rule| rule.has(key, 0)).map(|at| at as u32));
    }
    let name = format!("{name}, {n} rules");
    Subject {
        name,
        build_ms,
        bytes,
        run: Box::new(move |way, part| run(&boxes, &list, &keys[part], way)),
        clocks: Default::default(),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let rounds = value("--rounds").and_then(|rounds| rounds.parse().ok()).unwrap_or(9);
    let mut subjects = Vec::new();
    for n in [100, 1000, 10_000] {
        subjects.push(subject::<5>("IPv4", &rules::IPV4, n));
        subjects.push(subject::<11>("IPv6", &rules::IPV6, n));
    }
    if let Some(only) = value("--only") {
        subjects.retain(|subject| subject.name.contains(only));
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            for (k, (way, _, keys, slice)) in WAYS.iter().enumerate() {
                for from in (0..*keys).step_by(*slice) {
                    let part = from..(from + slice).min(*keys);
                    let (clock, count) = (ticks(), part.len());
                    black_box((subject.run)(*way, part));
                    subject.clocks[k].add((ticks() - clock) as f64 / count as f64);
                }
            }
        }
    }
    println!("{rounds} rounds of {KEYS} keys; median [least..greatest] clocks a lookup");
    for subject in &subjects {
        println!("\n{}: built in {:.1} ms, {:.1} kB", subject.name, subject.build_ms, subject.bytes as f64 / 1e3);
        let linear = subject.clocks[0].median();
        for ((_, way, _, _), clocks) in WAYS.iter().zip(&subject.clocks) {
            println!("    {way:<10} {clocks:<34} x{:.1} of linear", linear / clocks.median());
        }
    }
}
