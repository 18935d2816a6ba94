//! Sizes of frames, in bytes with FCS.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// Smallest Ethernet frame with FCS.
pub const MIN: u16 = 64;
/// Largest frame with FCS that a stream can have.
pub const MAX: u16 = 9216;
/// The mix known as simple IMIX: sizes and weights (RFC 6985 tells why a mix must be spelt out).
pub const SIMPLE_IMIX: [(u16, u32); 3] = [(64, 7), (594, 4), (1518, 1)];
/// Largest sum of weights.
const WEIGHTS: u32 = 4096;

/// Sizes of a stream's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// All the same.
    Fixed(u16),
    /// In turn.
    List(Vec<u16>),
    /// By weight, spread evenly, over again.
    Mix(Vec<(u16, u32)>),
    /// Uniformly drawn.
    Random {
        /// Smallest.
        min: u16,
        /// Largest.
        max: u16,
        /// Seed of the draw; the stream's own for `None`.
        seed: Option<u64>,
    },
}

impl Size {
    /// All sizes that occur, each once, ascending.
    pub fn all(&self) -> Vec<u16> {
        let mut all = match self {
            Self::Fixed(n) => vec![*n],
            Self::List(sizes) => sizes.clone(),
            Self::Mix(parts) => parts.iter().map(|(size, _)| *size).collect(),
            Self::Random { min, max, .. } => (*min..=*max).collect(),
        };
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Mean size, bytes with FCS.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(n) => f64::from(*n),
            Self::List(sizes) => sizes.iter().map(|n| f64::from(*n)).sum::<f64>() / sizes.len() as f64,
            Self::Mix(parts) => {
                let weights: f64 = parts.iter().map(|(_, w)| f64::from(*w)).sum();
                parts.iter().map(|(size, w)| f64::from(*size) * f64::from(*w)).sum::<f64>() / weights
            }
            Self::Random { min, max, .. } => f64::midpoint(f64::from(*min), f64::from(*max)),
        }
    }

    /// The order in which sizes follow one another, where it is fixed.
    pub fn order(&self) -> Vec<u16> {
        match self {
            Self::Fixed(n) => vec![*n],
            Self::List(sizes) => sizes.clone(),
            Self::Mix(parts) => {
                // Each size gains its weight at every step, and the one with the most has its turn and pays the sum.
                let sum: i64 = parts.iter().map(|(_, w)| i64::from(*w)).sum();
                let mut credit = vec![0_i64; parts.len()];
                (0..sum)
                    .map(|_| {
                        credit.iter_mut().zip(parts).for_each(|(c, (_, w))| *c += i64::from(*w));
                        let (at, _) =
                            credit.iter().enumerate().max_by_key(|(i, c)| (**c, std::cmp::Reverse(*i))).unwrap_or((0, &0));
                        credit[at] -= sum;
                        parts[at].0
                    })
                    .collect()
            }
            Self::Random { .. } => Vec::new(),
        }
    }
}

/// A size, checked.
struct Bytes(u16);

struct SizeVisitor;

fn check<E: Error>(n: u64) -> Result<u16, E> {
    let range = u64::from(MIN)..=u64::from(MAX);
    if range.contains(&n) {
        Ok(n as u16)
    } else {
        Err(E::invalid_value(de::Unexpected::Unsigned(n), &"a size of 64 to 9216 bytes (with FCS)"))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        check(u64::deserialize(deserializer)?).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    size: Bytes,
    weight: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Draw {
    min: Bytes,
    max: Bytes,
    seed: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Varied {
    Imix(Vec<Part>),
    Random(Draw),
    List(Vec<Bytes>),
}

impl<'de> Visitor<'de> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in bytes with FCS, a list of sizes, `imix', or one of imix, random, list")
    }
    fn visit_u64<E: Error>(self, n: u64) -> Result<Size, E> {
        check(n).map(Size::Fixed)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        if text == "imix" { Ok(Size::Mix(SIMPLE_IMIX.to_vec())) } else { Err(E::invalid_value(de::Unexpected::Str(text), &self)) }
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Size, A::Error> {
        let mut sizes = Vec::new();
        while let Some(Bytes(n)) = seq.next_element()? {
            sizes.push(n);
        }
        if sizes.is_empty() { Err(A::Error::custom("an empty list has no size for a frame")) } else { Ok(Size::List(sizes)) }
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Size, A::Error> {
        match Varied::deserialize(MapAccessDeserializer::new(map))? {
            Varied::List(sizes) if sizes.is_empty() => Err(A::Error::custom("an empty list has no size for a frame")),
            Varied::List(sizes) => Ok(Size::List(sizes.into_iter().map(|s| s.0).collect())),
            Varied::Random(d) if d.max.0 < d.min.0 => Err(A::Error::custom("`max' lies below `min'")),
            Varied::Random(d) => Ok(Size::Random { min: d.min.0, max: d.max.0, seed: d.seed }),
            Varied::Imix(parts) => {
                let sum = parts.iter().try_fold(0_u32, |sum, p| sum.checked_add(p.weight));
                if parts.iter().any(|p| p.weight == 0) || !sum.is_some_and(|n| (1..=WEIGHTS).contains(&n)) {
                    return Err(A::Error::custom(format_args!("weights are whole numbers from 1, together at most {WEIGHTS}")));
                }
                Ok(Size::Mix(parts.into_iter().map(|p| (p.size.0, p.weight)).collect()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_has_each_size_as_often_as_it_weighs_and_spread() {
        let mix = Size::Mix(SIMPLE_IMIX.to_vec());
        let order = mix.order();
        assert_eq!(order.len(), 12);
        for (size, weight) in SIMPLE_IMIX {
            assert_eq!(order.iter().filter(|s| **s == size).count(), weight as usize);
        }
        assert!(order.windows(3).all(|w| w != [64, 64, 64]), "{order:?}");
        assert!((mix.mean() - (64.0 * 7.0 + 594.0 * 4.0 + 1518.0) / 12.0).abs() < 1e-9);
    }
}
