//! Access lists: whatever the rules are, a lookup finds what a linear search finds, alone and in batches, within the memory that is stated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_tables::boxes::{Boxes, Ranges, SLOTS_A_RULE, SLOTS_A_TREE, TREES};

/// A rule of D fields from bytes: the kind of each range and one or two values, mostly close to each other so that rules overlap.
fn rule<const D: usize>(bytes: &mut impl Iterator<Item = u8>) -> Option<Ranges<D>> {
    let flags = bytes.next()?;
    let mut rule = Ranges { low: [0; D], high: [u32::MAX; D], flags_mask: flags >> 4 & 3, flags_value: flags & 3 };
    for j in 0..D {
        let value = |byte: u8| u32::from(byte & 0xf) | if byte & 0x10 == 0 { 0 } else { !0xf };
        match bytes.next()? {
            kind if kind & 0xc0 == 0 => {}
            kind if kind & 0x80 == 0 => (rule.low[j], rule.high[j]) = (value(kind), value(kind)),
            kind => (rule.low[j], rule.high[j]) = (value(kind), value(bytes.next()?)),
        }
    }
    Some(rule)
}

fn check<const D: usize>(bytes: &[u8], lines: usize) {
    let mut bytes = bytes.iter().copied();
    let rules: Vec<Ranges<D>> = std::iter::from_fn(|| rule(&mut bytes)).take(500).collect();
    let boxes = Boxes::new(&rules).expect("memory for some rules");
    assert!(boxes.memory_bytes() <= 64 * lines * (1 + rules.len() * SLOTS_A_RULE + TREES * SLOTS_A_TREE) + 1024);
    // Keys at the corners of two rules each: some fields of one, some of the other, beside or on the end of the range.
    for (at, rule) in rules.iter().enumerate() {
        let other = &rules[at * 7 % rules.len()];
        let keys: [[u32; D]; 4] = std::array::from_fn(|k| {
            std::array::from_fn(|j| {
                let from = if (at + j) % 3 == 0 { other } else { rule };
                match (k + j * at) % 4 {
                    0 => from.low[j],
                    1 => from.high[j],
                    2 if j == at % D => from.low[j].wrapping_sub(1),
                    3 if j == at % D => from.high[j].wrapping_add(1),
                    _ => from.low[j],
                }
            })
        });
        let flags = [rule.flags_value, other.flags_value, 0, 0xff];
        let found = keys.iter().zip(flags).map(|(key, flags)| boxes.find(key, flags)).collect::<Vec<_>>();
        let linear = |(key, flags)| rules.iter().position(|rule| rule.has(key, flags)).map(|at| at as u32);
        assert_eq!(found, keys.iter().zip(flags).map(linear).collect::<Vec<_>>());
        assert_eq!(boxes.find_batch(&keys, &flags).to_vec(), found);
    }
}

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((how, bytes)) if how & 1 == 0 => check::<5>(bytes, 1),
        Some((_, bytes)) => check::<11>(bytes, 2),
        None => {}
    }
});
