//! Values of varying fields, one after the other.

use crate::profile::{Field, Value};
use crate::random::Random;

/// How a field gets its next value.
#[derive(Clone, Debug)]
pub(super) enum Engine {
    Count { value: u128, first: u128, last: u128, step: u128 },
    Down { value: u128, first: u128, last: u128, step: u128 },
    List { values: Vec<u128>, at: usize },
    Random { random: Random, first: u128, span: u128 },
}

impl Engine {
    pub(super) fn of<T: Value>(field: &Field<T>, seed: u64) -> Option<Self> {
        Some(match field {
            Field::Fixed(_) => return None,
            Field::List(values) => Self::List { values: values.iter().map(|v| v.number()).collect(), at: 0 },
            Field::Increment { first, last, step } => {
                Self::Count { value: first.number(), first: first.number(), last: last.number(), step: *step }
            }
            Field::Decrement { first, last, step } => {
                Self::Down { value: first.number(), first: first.number(), last: last.number(), step: *step }
            }
            Field::Random { first, last, seed: own } => Self::Random {
                random: Random::new(own.unwrap_or(seed)),
                first: first.number(),
                // Wraps to 0 for all of 128 bits.
                span: (last.number() - first.number()).wrapping_add(1),
            },
        })
    }

    /// The next values: lower halves, and upper ones where there is room for them (as for them all, or for none).
    pub(super) fn fill(&mut self, low: &mut [u64], high: &mut [u64]) {
        match self {
            // Values of one word, as all but IPv6 addresses are.
            Self::Random { random, first, span } if high.is_empty() && (1..=1 << 63).contains(span) => {
                let (first, span) = (*first as u64, *span as u64);
                low.iter_mut().for_each(|value| *value = first.wrapping_add(random.below(span)));
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
            Self::Count { value, first, last, step } => {
                let now = *value;
                *value = if *last - now >= *step { now + *step } else { *first };
                now
            }
            Self::Down { value, first, last, step } => {
                let now = *value;
                *value = if now - *last >= *step { now - *step } else { *first };
                now
            }
            Self::List { values, at } => {
                let now = values[*at];
                *at = if *at + 1 == values.len() { 0 } else { *at + 1 };
                now
            }
            Self::Random { random, first, span } => match u64::try_from(*span) {
                Ok(span) if span > 0 => *first + u128::from(random.below(span)),
                _ => {
                    let wide = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
                    if *span == 0 { wide } else { *first + wide % *span }
                }
            },
        }
    }
}
