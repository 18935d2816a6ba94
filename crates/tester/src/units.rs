//! Rates as people write them, and what they mean in frames a second.

use std::fmt;
use std::str::FromStr;

/// Bytes that a frame takes on an Ethernet line beside itself: preamble, start delimiter and the gap behind it (IEEE 802.3).
pub const L1_OVERHEAD: f64 = 20.0;

/// A load, as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Frames a second.
    Pps(f64),
    /// Bits a second of frames with their FCS.
    L2(f64),
    /// Bits a second on the line: preamble and gap included.
    L1(f64),
    /// Parts in a hundred of a stated line rate.
    Percent(f64),
    /// As fast as it goes.
    Max,
}

/// Why a text is no rate, or a rate cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not a rate.
    #[error("`{0}' is no rate: 100000pps, 1.5Mpps, 1Gbps (frames with FCS), 1GbpsL1 (with preamble and gap), 50% or max")]
    Text(String),
    /// Percent of nothing.
    #[error("a rate in percent needs the line's rate: --line-rate 10Gbps")]
    NoLine,
    /// More than the line carries.
    #[error("{rate} is more than a line of {line_gbps} Gbit/s carries: at most {most} frames of {mean} bytes a second")]
    OverLine {
        /// What was asked for.
        rate: String,
        /// The line's rate.
        line_gbps: String,
        /// Frames a second that it carries.
        most: u64,
        /// Mean size with FCS.
        mean: String,
    },
    /// Not a line's rate.
    #[error("`{0}' is no line rate: 1Gbps, 25Gbps, …")]
    Line(String),
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError::Text(text.to_owned());
        let word = text.trim();
        if word == "max" {
            return Ok(Self::Max);
        }
        let digits = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
        let (number, unit) = word.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let unit = unit.trim_start();
        if unit == "%" {
            return (number > 0.0 && number <= 100.0).then_some(Self::Percent(number)).ok_or_else(wrong);
        }
        let (factor, unit) = match unit.as_bytes().first() {
            Some(b'k') => (1e3, &unit[1..]),
            Some(b'M') => (1e6, &unit[1..]),
            Some(b'G') => (1e9, &unit[1..]),
            Some(b'T') => (1e12, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * factor;
        if !(value.is_finite() && value > 0.0) {
            return Err(wrong());
        }
        match unit {
            "pps" => Ok(Self::Pps(value)),
            "bps" => Ok(Self::L2(value)),
            "bpsL1" => Ok(Self::L1(value)),
            _ => Err(wrong()),
        }
    }
}

impl Rate {
    /// Frames a second for frames of `mean` bytes with FCS, over a line of so many bits a second; `None` for [`Rate::Max`].
    ///
    /// # Errors
    /// Percent of a line whose rate is not known, or more bits than it carries.
    pub fn pps(self, mean: f64, line: Option<f64>) -> Result<Option<f64>, RateError> {
        let most = line.map(|bits| bits / ((mean + L1_OVERHEAD) * 8.0));
        let pps = match self {
            Self::Pps(pps) => pps,
            Self::L2(bits) => bits / (mean * 8.0),
            Self::L1(bits) => bits / ((mean + L1_OVERHEAD) * 8.0),
            Self::Percent(percent) => most.ok_or(RateError::NoLine)? * percent / 100.0,
            Self::Max => return Ok(None),
        };
        match (line, most) {
            // Frames a second are taken as they are: whoever counts them may mean a port that has no line, such as memif. A line's
            // rate is often rounded.
            (Some(line), Some(most)) if matches!(self, Self::L1(_) | Self::L2(_)) && pps > most * 1.001 => {
                let (line_gbps, mean) = ((line / 1e9).to_string(), format!("{mean:.1}").trim_end_matches(".0").to_owned());
                Err(RateError::OverLine { rate: self.to_string(), line_gbps, most: most as u64, mean })
            }
            _ => Ok(Some(pps)),
        }
    }
}

/// Bits a second of a line, such as `10Gbps`.
///
/// # Errors
/// Anything else.
pub fn line_rate(text: &str) -> Result<f64, RateError> {
    match text.parse() {
        Ok(Rate::L2(bits) | Rate::L1(bits)) => Ok(bits),
        _ => Err(RateError::Line(text.to_owned())),
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pps(n) => write!(f, "{n}pps"),
            Self::L2(n) => write!(f, "{n}bps"),
            Self::L1(n) => write!(f, "{n}bpsL1"),
            Self::Percent(n) => write!(f, "{n}%"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// A length of time, ns, written with its unit: `10us`, `1.5ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub u64);

/// Longest span, ns: a day.
const LONGEST: f64 = 86_400e9;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}' is no time of up to a day: 100ns, 10us, 1.5ms, 2s");
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim_start() {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let ns = number.parse::<f64>().map_err(|_| wrong())? * factor;
        (0.0..=LONGEST).contains(&ns).then_some(Self(ns.round() as u64)).ok_or_else(wrong)
    }
}

impl<'de> serde::Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_all_kinds_mean_what_they_say() {
        let pps = |text: &str| text.parse::<Rate>().unwrap().pps(64.0, Some(10e9)).unwrap();
        assert_eq!(pps("100000pps"), Some(1e5));
        assert_eq!(pps("1.5Mpps"), Some(1.5e6));
        assert_eq!(pps("512Mbps"), Some(1e6));
        assert_eq!(pps("672MbpsL1"), Some(1e6));
        // RFC 2544: 14,880,952 frames of 64 bytes a second fill 10 Gbit/s.
        assert_eq!(pps("100%").map(f64::floor), Some(14_880_952.0));
        assert_eq!(pps("max"), None);
        assert_eq!(pps("15Mpps"), Some(15e6));
        assert_eq!(pps("10GbpsL1").map(f64::floor), Some(14_880_952.0));
        let over = "2GbpsL1".parse::<Rate>().unwrap().pps(64.0, Some(1e9)).unwrap_err().to_string();
        assert_eq!(over, "2000000000bpsL1 is more than a line of 1 Gbit/s carries: at most 1488095 frames of 64 bytes a second");
    }

    #[test]
    fn times_have_units_and_an_end() {
        let ns = |text: &str| text.parse::<Span>().map(|s| s.0).ok();
        assert_eq!((ns("0.1us"), ns("1.5ms"), ns("2 s"), ns("0s")), (Some(100), Some(1_500_000), Some(2_000_000_000), Some(0)));
        for text in ["", "5", "ms", "-1ms", "1h", "1.2.3ms", "90000s", "1e3ms"] {
            assert_eq!(ns(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "fast", "1", "pps", "-1pps", "0pps", "1Xpps", "101%", "0%", "1.2.3pps", "1Gbpsl1", "infpps"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Text(text.to_owned())), "{text}");
        }
        assert_eq!("5%".parse::<Rate>().unwrap().pps(64.0, None), Err(RateError::NoLine));
        assert!(line_rate("5pps").is_err());
        assert_eq!(line_rate("10Gbps"), Ok(10e9));
    }
}
