//! Header fields that stay, count, take turns or are drawn.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_wire::MacAddr;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::supply::Supply;
use super::zipf::{Popular, Skew};

/// A type of header field.
pub trait Value: Copy + fmt::Debug + 'static {
    /// What a message calls it.
    const WHAT: &'static str;
    /// Bits of an IP address; 0 for what is none and so has no prefixes.
    const ADDRESS_BITS: u8;
    /// Largest value, as a number.
    const MAX: u128;
    /// From text.
    fn parse(text: &str) -> Option<Self>;
    /// As a number.
    fn number(self) -> u128;
    /// From a number that is at most [`Value::MAX`].
    fn of_number(number: u128) -> Self;
}

macro_rules! value {
    ($type:ty, $bits:literal, $what:literal, $max:expr, $parse:expr, $to:expr, $from:expr) => {
        impl Value for $type {
            const WHAT: &'static str = $what;
            const ADDRESS_BITS: u8 = $bits;
            const MAX: u128 = $max;
            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
            fn number(self) -> u128 {
                $to(self)
            }
            fn of_number(number: u128) -> Self {
                $from(number)
            }
        }
    };
}
value!(Ipv4Addr, 32, "an IPv4 address", u32::MAX as u128, |t: &str| t.parse().ok(), |a: Self| u128::from(a.to_bits()), |n| {
    Ipv4Addr::from_bits(n as u32)
});
value!(Ipv6Addr, 128, "an IPv6 address", u128::MAX, |t: &str| t.parse().ok(), |a: Self| a.to_bits(), Ipv6Addr::from_bits);
value!(u16, 0, "a number of 0 to 65535", u16::MAX as u128, |t: &str| t.parse().ok(), |n: Self| u128::from(n), |n| n as u16);
value!(MacAddr, 0, "an Ethernet address", (1 << 48) - 1, |t: &str| t.parse().ok(), |m: Self| u128::from(m.to_u64()), |n| {
    MacAddr::from_u64(n as u64)
});

/// One value, from text or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lit<T>(pub T);

struct LitVisitor<T>(PhantomData<T>);

impl<T: Value> Visitor<'_> for LitVisitor<T> {
    type Value = Lit<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Lit<T>, E> {
        T::parse(text).map(Lit).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &T::WHAT))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Lit<T>, E> {
        // A number for an address would be a slip.
        if T::MAX > u128::from(u16::MAX) || u128::from(n) > T::MAX {
            return Err(E::invalid_value(de::Unexpected::Unsigned(n), &T::WHAT));
        }
        Ok(Lit(T::of_number(n.into())))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Lit<T>, E> {
        Err(E::invalid_value(de::Unexpected::Signed(n), &T::WHAT))
    }
}

impl<'de, T: Value> Deserialize<'de> for Lit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LitVisitor(PhantomData))
    }
}

/// How a field varies from frame to frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Field<T> {
    /// Always the same.
    Fixed(T),
    /// In turn, over again after the last.
    List(Vec<T>),
    /// Upwards from `first` to `last` and over again.
    Increment {
        /// Where it begins.
        first: T,
        /// What it does not go beyond.
        last: T,
        /// By how much.
        step: u128,
        /// Frames that have each value before the next one.
        every: u64,
    },
    /// Downwards from `first` to `last` and over again.
    Decrement {
        /// Where it begins.
        first: T,
        /// What it does not go beyond.
        last: T,
        /// By how much.
        step: u128,
        /// Frames that have each value before the next one.
        every: u64,
    },
    /// Uniformly drawn from `first..=last`.
    Random {
        /// Smallest.
        first: T,
        /// Largest.
        last: T,
        /// Values lie so far from one another.
        step: u128,
        /// Seed of the draw; the stream's own for `None`.
        seed: Option<u64>,
    },
    /// Uniformly drawn from a list. Fields with lists of the same length and the same seed have values of the same place.
    Pick {
        /// The list.
        values: Vec<T>,
        /// Seed of the draw; the stream's own for `None`.
        seed: Option<u64>,
    },
    /// An address in a prefix that is drawn by its rank.
    Zipf {
        /// The prefixes, most popular first.
        popular: Popular,
        /// Seed of the draw; the stream's own for `None`.
        seed: Option<u64>,
    },
    /// Values that code works out.
    Supplied(Supply),
}

impl<T: Value> Field<T> {
    /// The value of the first frame, or the lowest one that can be drawn.
    pub fn first(&self) -> T {
        match self {
            Self::Fixed(v) => *v,
            Self::List(values) | Self::Pick { values, .. } => values[0],
            Self::Zipf { popular, .. } => T::of_number(popular.prefix(0).0),
            Self::Supplied(supply) => T::of_number(supply.values.value(0)),
            Self::Increment { first, .. } | Self::Decrement { first, .. } | Self::Random { first, .. } => *first,
        }
    }

    /// The one value that it always has.
    pub fn fixed(&self) -> Option<T> {
        match self {
            Self::Fixed(v) => Some(*v),
            _ => None,
        }
    }
}

/// What stands behind `increment:` and `decrement:`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Value")]
struct Run<T> {
    first: Lit<T>,
    last: Option<Lit<T>>,
    count: Option<u64>,
    step: Option<Step<T>>,
    every: Option<u64>,
}

/// What stands behind `random:`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Value")]
struct Draw<T> {
    first: Lit<T>,
    last: Lit<T>,
    step: Option<Step<T>>,
    seed: Option<u64>,
}

/// What stands behind `pick:`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: Value")]
struct Choice<T> {
    values: Vec<Lit<T>>,
    seed: Option<u64>,
}

/// A step: a number, or for addresses the address that lies so far from 0.
struct Step<T>(u128, PhantomData<T>);

struct StepVisitor<T>(PhantomData<T>);

impl<T: Value> Visitor<'_> for StepVisitor<T> {
    type Value = Step<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from 1, or {} as distance", T::WHAT)
    }
    fn visit_u64<E: Error>(self, n: u64) -> Result<Step<T>, E> {
        if n == 0 { Err(E::invalid_value(de::Unexpected::Unsigned(n), &self)) } else { Ok(Step(n.into(), PhantomData)) }
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Step<T>, E> {
        let number = T::parse(text).map(Value::number).filter(|n| *n > 0);
        number.map(|n| Step(n, PhantomData)).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de, T: Value> Deserialize<'de> for Step<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StepVisitor(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", bound = "T: Value")]
enum Varied<T> {
    Increment(Run<T>),
    Decrement(Run<T>),
    List(Vec<Lit<T>>),
    Random(Draw<T>),
    Pick(Choice<T>),
    Zipf(Skew),
}

impl<T: Value> Run<T> {
    fn build<E: Error>(self, down: bool) -> Result<Field<T>, E> {
        let (first, step) = (self.first.0, self.step.map_or(1, |s| s.0));
        let from = first.number();
        let last = match (self.last, self.count) {
            (Some(_), Some(_)) => return Err(E::custom("give `last' or `count', not both")),
            (None, None) => return Err(E::custom("`last' or `count' is missing: where the values end")),
            (Some(last), None) => last.0.number(),
            (None, Some(count)) => {
                let end = u128::from(count)
                    .checked_sub(1)
                    .and_then(|n| n.checked_mul(step))
                    .and_then(|way| if down { from.checked_sub(way) } else { from.checked_add(way) });
                end.filter(|n| *n <= T::MAX)
                    .ok_or_else(|| E::custom(format_args!("{count} values from `first' on are none, or lie outside the field")))?
            }
        };
        if (down && last > from) || (!down && last < from) {
            let word = if down { "above" } else { "below" };
            return Err(E::custom(format_args!("`last' lies {word} `first'")));
        }
        let last = T::of_number(last);
        let every = self.every.unwrap_or(1);
        if every == 0 {
            return Err(E::custom("`every' is a number of frames from 1"));
        }
        Ok(if down { Field::Decrement { first, last, step, every } } else { Field::Increment { first, last, step, every } })
    }
}

impl<T: Value> Varied<T> {
    fn build<E: Error>(self) -> Result<Field<T>, E> {
        match self {
            Self::Increment(run) => run.build(false),
            Self::Decrement(run) => run.build(true),
            Self::List(values) if values.is_empty() => Err(E::custom("an empty list has no value for a frame")),
            Self::List(values) => Ok(Field::List(values.into_iter().map(|v| v.0).collect())),
            Self::Random(d) if d.last.0.number() < d.first.0.number() => Err(E::custom("`last' lies below `first'")),
            Self::Pick(c) if c.values.is_empty() => Err(E::custom("an empty list has no value for a frame")),
            Self::Pick(c) => Ok(Field::Pick { values: c.values.into_iter().map(|v| v.0).collect(), seed: c.seed }),
            Self::Zipf(skew) => skew.build::<T, E>(),
            Self::Random(d) => {
                Ok(Field::Random { first: d.first.0, last: d.last.0, step: d.step.map_or(1, |s| s.0), seed: d.seed })
            }
        }
    }
}

struct FieldVisitor<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for FieldVisitor<T> {
    type Value = Field<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or one of increment, decrement, list, pick, random, zipf", T::WHAT)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Field<T>, E> {
        LitVisitor(PhantomData).visit_str(text).map(|v: Lit<T>| Field::Fixed(v.0))
    }
    fn visit_u64<E: Error>(self, n: u64) -> Result<Field<T>, E> {
        LitVisitor(PhantomData).visit_u64(n).map(|v: Lit<T>| Field::Fixed(v.0))
    }
    fn visit_i64<E: Error>(self, n: i64) -> Result<Field<T>, E> {
        LitVisitor(PhantomData).visit_i64(n).map(|v: Lit<T>| Field::Fixed(v.0))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(v) = seq.next_element::<Lit<T>>()? {
            values.push(v);
        }
        Varied::List(values).build()
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field<T>, A::Error> {
        Varied::deserialize(MapAccessDeserializer::new(map))?.build()
    }
}

impl<'de, T: Value> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor(PhantomData))
    }
}
