//! Values of varying fields, one after the other.

use crate::profile::supply::Supply;
use crate::profile::zipf::Popular;
use crate::profile::{Field, Value};
use crate::random::{Alias, Random};

/// Any number of so many bits.
fn host_part(random: &mut Random, bits: u8) -> u128 {
    match bits {
        0 => 0,
        1..=64 => u128::from(random.next_u64() >> (64 - bits)),
        _ => (u128::from(random.next_u64() >> (128 - bits)) << 64) | u128::from(random.next_u64()),
    }
}

/// How a field gets its next value.
#[derive(Clone, Debug)]
pub(super) enum Engine {
    Count {
        value: u128,
        first: u128,
        last: u128,
        step: u128,
        every: u64,
        left: u64,
    },
    Down {
        value: u128,
        first: u128,
        last: u128,
        step: u128,
        every: u64,
        left: u64,
    },
    List {
        values: Vec<u128>,
        at: usize,
    },
    /// One of `span` values, `step` apart.
    Random {
        random: Random,
        first: u128,
        span: u128,
        step: u128,
    },
    Pick {
        values: Vec<u128>,
        random: Random,
    },
    Zipf {
        popular: Popular,
        table: Alias,
        random: Random,
    },
    Supplied {
        supply: Supply,
        at: u64,
        /// From one value to the next, where others make those between.
        step: u64,
        random: Random,
    },
}

impl Engine {
    pub(super) fn of<T: Value>(field: &Field<T>, seed: u64) -> Option<Self> {
        let numbers = |values: &[T]| values.iter().map(|v| v.number()).collect();
        Some(match field {
            Field::Fixed(_) => return None,
            Field::List(values) => Self::List { values: numbers(values), at: 0 },
            Field::Pick { values, seed: own } => Self::Pick { values: numbers(values), random: Random::new(own.unwrap_or(seed)) },
            Field::Zipf { popular, seed: own } => Self::Zipf {
                table: Alias::new(popular.weights()),
                popular: popular.clone(),
                random: Random::new(own.unwrap_or(seed)),
            },
            Field::Supplied(supply) => {
                Self::Supplied { supply: supply.clone(), at: 0, step: 1, random: Random::new(supply.seed.unwrap_or(seed)) }
            }
            Field::Increment { first, last, step, every } => {
                let (first, last) = (first.number(), last.number());
                Self::Count { value: first, first, last, step: *step, every: *every, left: *every }
            }
            Field::Decrement { first, last, step, every } => {
                let (first, last) = (first.number(), last.number());
                Self::Down { value: first, first, last, step: *step, every: *every, left: *every }
            }
            Field::Random { first, last, step, seed: own } => Self::Random {
                random: Random::new(own.unwrap_or(seed)),
                first: first.number(),
                // Wraps to 0 for all of 128 bits.
                span: ((last.number() - first.number()) / step).wrapping_add(1),
                step: *step,
            },
        })
    }

    /// Makes the values for one of `parts` threads: of a supply by turns each `parts`-th one, so that all threads together make each
    /// once; of one that is drawn, draws of its own.
    pub(super) fn take_part(&mut self, part: u64, parts: u64) {
        if let Self::Supplied { supply, at, step, random } = self {
            (*at, *step) = (part % supply.count, parts);
            if let Some(seed) = supply.seed {
                *random = Random::new(seed.wrapping_add(part << 32));
            }
        }
    }

    /// The next values: lower halves, and upper ones where there is room for them (as for them all, or for none).
    pub(super) fn fill(&mut self, low: &mut [u64], high: &mut [u64]) {
        match self {
            // Values of one word, as all but IPv6 addresses are.
            Self::Random { random, first, span, step: 1 } if high.is_empty() && (1..=1 << 63).contains(span) => {
                let (first, span) = (*first as u64, *span as u64);
                low.iter_mut().for_each(|value| *value = first.wrapping_add(random.below(span)));
            }
            Self::Count { value, first, last, step, every: 1, .. } if high.is_empty() && *step <= u128::from(u64::MAX) => {
                let (mut now, first, last, step) = (*value as u64, *first as u64, *last as u64, *step as u64);
                for low in low.iter_mut() {
                    *low = now;
                    now = if last - now >= step { now + step } else { first };
                }
                *value = now.into();
            }
            _ => {
                for (k, low) in low.iter_mut().enumerate() {
                    let value = self.next();
                    *low = value as u64;
                    if let Some(high) = high.get_mut(k) {
                        *high = (value >> 64) as u64;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn next(&mut self) -> u128 {
        match self {
            Self::Count { value, first, last, step, every, left } => {
                let now = *value;
                *left -= 1;
                if *left == 0 {
                    *left = *every;
                    *value = if *last - now >= *step { now + *step } else { *first };
                }
                now
            }
            Self::Down { value, first, last, step, every, left } => {
                let now = *value;
                *left -= 1;
                if *left == 0 {
                    *left = *every;
                    *value = if now - *last >= *step { now - *step } else { *first };
                }
                now
            }
            Self::Pick { values, random } => values[random.below(values.len() as u64) as usize],
            Self::Supplied { supply, at, step, random } => {
                let n = if supply.seed.is_some() { random.below(supply.count) } else { *at };
                *at = if supply.count - *at > *step { *at + *step } else { (*at + *step) % supply.count };
                supply.values.value(n)
            }
            Self::Zipf { popular, table, random } => {
                let rank = table.draw(random);
                let ((address, _), host) = (popular.prefix(rank), popular.host_bits(rank));
                address | host_part(random, host)
            }
            Self::List { values, at } => {
                let now = values[*at];
                *at = if *at + 1 == values.len() { 0 } else { *at + 1 };
                now
            }
            Self::Random { random, first, span, step } => match u64::try_from(*span) {
                Ok(span) if span > 0 => *first + u128::from(random.below(span)) * *step,
                _ => {
                    let wide = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                    if *span == 0 { wide } else { *first + wide % *span * *step }
                }
            },
        }
    }
}
