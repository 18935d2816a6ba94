use super::*;
use crate::synth::Random;

/// The slow, obviously right version.
fn linear<const D: usize>(rules: &[Ranges<D>], key: &[u32; D], flags: u8) -> Option<u32> {
    rules.iter().position(|rule| rule.has(key, flags)).map(|at| at as u32)
}

/// Holds a list against the linear search: with keys at the corners of its rules and anywhere.
fn check<const D: usize>(rules: &[Ranges<D>], seed: u64) -> Boxes<D> {
    let boxes = Boxes::new(rules).unwrap();
    assert_eq!((boxes.len(), boxes.is_empty()), (rules.len(), rules.is_empty()));
    let lines = 64 * Boxes::<D>::LINES;
    let slots = 1 + rules.len() * SLOTS_A_RULE + TREES * SLOTS_A_TREE;
    assert!(boxes.memory_bytes() <= lines * slots + TREES * size_of::<Tree>(), "{} bytes", boxes.memory_bytes());
    let mut random = Random::new(seed);
    let mut keys = Vec::new();
    for _ in 0..4000 {
        let mut key = [0; D].map(|_: u32| random.bits() as u32);
        if !rules.is_empty() && random.below(8) > 0 {
            let rule = rules[random.below(rules.len() as u64) as usize];
            // Mostly one rule's corner, sometimes one field outside it.
            let outside = random.below(3 * D as u64) as usize;
            for (j, value) in key.iter_mut().enumerate() {
                *value = match (j == outside, random.below(3)) {
                    (false, 0) => rule.low[j],
                    (false, 1) => rule.high[j],
                    (false, _) => between(rule.low[j], rule.high[j], &mut random),
                    (true, 0) => rule.low[j].wrapping_sub(1),
                    (true, 1) => rule.high[j].wrapping_add(1),
                    (true, _) => random.bits() as u32,
                };
            }
        }
        keys.push((key, random.bits() as u8));
    }
    for (key, flags) in &keys {
        assert_eq!(boxes.find(key, *flags), linear(rules, key, *flags), "seed {seed}, key {key:?}, flags {flags:#x}");
    }
    check_batch::<D, 1>(&boxes, &keys);
    check_batch::<D, 4>(&boxes, &keys);
    check_batch::<D, 8>(&boxes, &keys);
    boxes
}

fn check_batch<const D: usize, const W: usize>(boxes: &Boxes<D>, keys: &[([u32; D], u8)]) {
    for batch in keys.as_chunks::<W>().0 {
        let (keys, flags) = (batch.map(|(key, _)| key), batch.map(|(_, flags)| flags));
        let alone: [_; W] = std::array::from_fn(|w| boxes.find(&keys[w], flags[w]));
        assert_eq!(boxes.find_batch(&keys, &flags), alone);
    }
}

fn between(low: u32, high: u32, random: &mut Random) -> u32 {
    low.wrapping_add(random.below(u64::from(high.wrapping_sub(low)) + 1) as u32)
}

const ALL: [u32; 2] = [0, u32::MAX];

/// A rule with these ranges, whatever the flags are.
fn rule<const D: usize>(ranges: [[u32; 2]; D]) -> Ranges<D> {
    Ranges { low: ranges.map(|range| range[0]), high: ranges.map(|range| range[1]), flags_mask: 0, flags_value: 0 }
}

/// Any ranges: wide, narrow, single values, a few empty ones; crowded, so that many overlap.
fn random_rules<const D: usize>(n: usize, random: &mut Random) -> Vec<Ranges<D>> {
    let crowd = if random.below(2) == 0 { u32::MAX } else { 0xff };
    let mut rules = Vec::new();
    for _ in 0..n {
        let mut made = rule([ALL; D]);
        for j in 0..D {
            let at = random.bits() as u32 & crowd;
            [made.low[j], made.high[j]] = match random.below(8) {
                0..3 => ALL,
                3..5 => [at, at],
                5 => [at & !0xf, at | 0xf],
                6 => [at, at.saturating_add(random.bits() as u32 & crowd)],
                _ => [at & 0xffff, random.bits() as u32 | 0xffff],
            };
        }
        if random.below(4) == 0 {
            (made.flags_mask, made.flags_value) = (random.bits() as u8, random.bits() as u8);
            made.flags_value &= made.flags_mask | random.bits() as u8 & random.bits() as u8;
        }
        if random.below(32) == 0 {
            let j = random.below(D as u64) as usize;
            (made.low[j], made.high[j]) = (9, 8);
        }
        rules.push(made);
    }
    rules
}

#[test]
fn random_rules_are_found_as_by_a_linear_search() {
    for (seed, n) in [0, 1, 2, 7, 8, 9, 100, 1000].into_iter().enumerate() {
        for seed in (0..4).map(|k| seed as u64 * 4 + k) {
            let mut random = Random::new(seed);
            check(&random_rules::<5>(n, &mut random), seed);
            check(&random_rules::<11>(n, &mut random), seed);
        }
    }
}

#[test]
fn other_numbers_of_fields_are_right_too() {
    let mut random = Random::new(1);
    check(&random_rules::<1>(100, &mut random), 1);
    check(&random_rules::<2>(100, &mut random), 2);
    check(&random_rules::<6>(100, &mut random), 3);
    check(&random_rules::<13>(100, &mut random), 4);
}

#[test]
fn of_identical_rules_the_first_is_found() {
    let one = rule([[5, 9], ALL, [6, 6], [0, 65536], [80, 80]]);
    let boxes = check(&[one; 500], 1);
    assert_eq!(boxes.find(&[5, 0, 6, 1, 80], 0), Some(0));
    assert_eq!(boxes.find(&[4, 0, 6, 1, 80], 0), None);
}

#[test]
fn nested_rules_are_found_from_within() {
    let inside = |n: u32| rule([[n, 4000 - n], [n, 4000 - n], [6, 17], ALL, ALL]);
    let outer_first: Vec<_> = (0..1000).map(inside).collect();
    let inner_first: Vec<_> = (0..1000).rev().map(inside).collect();
    check(&outer_first, 1);
    let boxes = check(&inner_first, 2);
    assert_eq!(boxes.find(&[10, 3990, 6, 0, 0], 0), Some(989));
}

#[test]
fn what_is_behind_a_rule_for_everything_is_never_found() {
    let mut rules = random_rules::<5>(50, &mut Random::new(3));
    rules.push(rule([ALL; 5]));
    rules.extend(random_rules::<5>(500, &mut Random::new(4)));
    let boxes = check(&rules, 1);
    assert_eq!(boxes.find(&[1, 2, 3, 4, 5], 0), linear(&rules, &[1, 2, 3, 4, 5], 0));
    assert_eq!(check(&[rule([ALL; 11]); 3], 2).find(&[u32::MAX; 11], 255), Some(0));
}

#[test]
fn rules_that_are_each_wide_in_other_fields_stay_within_the_bound() {
    // Slabs that cross each other in all fields: whatever is cut, most rules go to all parts.
    let mut random = Random::new(1);
    let slabs: Vec<_> = (0..2000)
        .map(|k| {
            let at = random.bits() as u32;
            let mut made = rule([ALL; 5]);
            (made.low[k % 5], made.high[k % 5]) = (at, at.saturating_add(1000));
            made
        })
        .collect();
    check(&slabs, 1);
    let pairs: Vec<_> = (0..2000)
        .map(|k| {
            let at = random.bits() as u32;
            let mut made = rule([ALL; 11]);
            (made.low[k % 11], made.high[k % 11]) = (at, at);
            (made.low[(k + 1) % 11], made.high[(k + 1) % 11]) = (1, u32::MAX - 1);
            made
        })
        .collect();
    check(&pairs, 2);
}

#[test]
fn flags_are_compared_under_their_mask() {
    let with = |flags_mask, flags_value| Ranges { flags_mask, flags_value, ..rule([[7, 7], ALL, ALL, ALL, ALL]) };
    let rules = [with(0x12, 0x02), with(0x12, 0x12), with(0, 0), with(0, 1)];
    let boxes = check(&rules, 1);
    let key = [7, 1, 2, 3, 4];
    assert_eq!([0x02, 0xee, 0x12, 0x10].map(|flags| boxes.find(&key, flags)), [Some(0), Some(0), Some(1), Some(2)]);
}

#[test]
fn the_ends_of_the_fields_are_values_like_others() {
    let low = rule([[0, 0]; 5]);
    let high = rule([[u32::MAX, u32::MAX]; 5]);
    let boxes = check(&[low, high], 1);
    assert_eq!([boxes.find(&[0; 5], 0), boxes.find(&[u32::MAX; 5], 9), boxes.find(&[1; 5], 0)], [Some(0), Some(1), None]);
    let empty = check::<5>(&[], 2);
    assert_eq!(empty.find(&[u32::MAX; 5], 0), None);
    check(&[rule([[0, 0]; 11]), rule([[u32::MAX, u32::MAX]; 11])], 3);
}
