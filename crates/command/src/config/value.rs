//! Values of a configuration, read as what they are meant to be.

use super::{ConfigError, Source};
use crate::grammar::{
    nearest,
    values::{Number, parse_number, parse_size},
};
use std::{
    collections::BTreeSet,
    ops::{Range, RangeInclusive},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The largest core number that is believed. Linux itself is built for at most 8192.
const MOST_CORES: u32 = 8192;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket; a relative path is left to the reader.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// Name or address, an IPv6 address without brackets; empty for all addresses.
        host: String,
        /// The port.
        port: u16,
    },
}

/// A value and its place in the text.
#[derive(Clone)]
pub struct Value {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) span: Range<usize>,
    pub(super) source: Arc<Source>,
}

impl std::fmt::Debug for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (line, column) = self.source.position(self.span.start);
        write!(formatter, "{:?} at {}:{line}:{column}", self.text, self.source.name)
    }
}

impl Value {
    /// The text as it stands there.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error that points at this value; for whoever finds out later that it cannot be used.
    pub fn error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.source, self.span.clone(), message)
    }

    /// The error for a value of the wrong kind.
    pub fn bad(&self, expected: &str) -> ConfigError {
        let about = if self.key.is_empty() { String::new() } else { format!(" for `{}'", self.key) };
        let shown = crate::operation::excerpt(&self.text);
        self.error(format!("invalid value `{shown}'{about}")).help(format!("expected {expected}"))
    }

    /// A whole number in decimal or `0x`.
    pub fn number<T: Number>(&self) -> Result<T, ConfigError> {
        let number = parse_number(&self.text).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.bad(&format!("a number from 0 to {}", T::MAX)))
    }

    /// A whole number in a range.
    pub fn number_in<T: Number>(&self, range: RangeInclusive<T>) -> Result<T, ConfigError> {
        let number = parse_number(&self.text).and_then(|number| T::try_from(number).ok());
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| self.bad(&format!("a number from {} to {}", range.start(), range.end())))
    }

    /// A 32-bit number.
    pub fn u32(&self) -> Result<u32, ConfigError> {
        self.number()
    }

    /// A number with a fraction, not negative: seconds.
    pub fn decimal(&self) -> Result<f64, ConfigError> {
        let number = self.text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| self.bad("a number such as 0.5"))
    }

    /// Bytes, with `k`, `m`, `g` or `t` for powers of 1024, and an optional `b` behind.
    pub fn size(&self) -> Result<u64, ConfigError> {
        parse_size(&self.text).ok_or_else(|| self.bad("a size such as 2048, 64k, 16M or 1G"))
    }

    /// Cores, `2-4,6`; sorted, each once.
    pub fn cpu_list(&self) -> Result<Vec<u32>, ConfigError> {
        let expected = "a list of cores such as 2-4,6";
        let mut cores = BTreeSet::new();
        for part in self.text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let core = |text: &str| parse_number(text).and_then(|core| u32::try_from(core).ok());
            let (Some(first), Some(last)) = (core(first), core(last)) else { return Err(self.bad(expected)) };
            if first > last {
                return Err(self.bad(expected).help(format!("`{part}' ends before it starts")));
            }
            if last >= MOST_CORES {
                return Err(self.bad(expected).help(format!("there is no core {last}")));
            }
            cores.extend(first..=last);
        }
        Ok(cores.into_iter().collect())
    }

    /// Cores from a mask in hexadecimal, `0x3c`; any length.
    pub fn cpu_mask(&self) -> Result<Vec<u32>, ConfigError> {
        let digits = self.text.strip_prefix("0x").unwrap_or(&self.text);
        let good = !digits.is_empty() && digits.len() * 4 <= MOST_CORES as usize;
        let mut cores = Vec::new();
        for (place, digit) in (0_u32..).zip(digits.chars().rev()) {
            let bits = digit.to_digit(16).filter(|_| good).ok_or_else(|| self.bad("a mask such as 0x3c"))?;
            cores.extend((0..4).filter(|bit| bits >> bit & 1 == 1).map(|bit| place * 4 + bit));
        }
        if good { Ok(cores) } else { Err(self.bad("a mask such as 0x3c")) }
    }

    /// `on`/`off`, `enable`/`disable`, `yes`/`no`, `true`/`false`, `1`/`0`.
    pub fn switch(&self) -> Result<bool, ConfigError> {
        match self.text.as_str() {
            "on" | "enable" | "yes" | "true" | "1" => Ok(true),
            "off" | "disable" | "no" | "false" | "0" => Ok(false),
            _ => Err(self.bad("`on' or `off'")),
        }
    }

    /// One of these words.
    pub fn one_of<T: Clone>(&self, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == self.text) {
            return Ok(choice.clone());
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("`{word}'")).collect();
        let expected = words.join(", ");
        Err(match nearest(&self.text, choices.iter().map(|(word, _)| *word)) {
            Some(meant) => self.bad(&expected).help(format!("did you mean `{meant}'? expected {expected}")),
            None => self.bad(&expected),
        })
    }

    /// A path.
    pub fn path(&self) -> &Path {
        Path::new(&self.text)
    }

    /// A Unix socket's path, or `host:port`.
    pub fn listen(&self) -> Result<Listen, ConfigError> {
        if self.text.contains('/') {
            return Ok(Listen::Unix(PathBuf::from(&self.text)));
        }
        let Some((host, port)) = self.text.rsplit_once(':') else {
            return Ok(Listen::Unix(PathBuf::from(&self.text)));
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match parse_number(port).map(u16::try_from) {
            Some(Ok(port)) => Ok(Listen::Tcp { host: host.to_owned(), port }),
            _ => Err(self.bad("a path, or host:port with a port from 0 to 65535")),
        }
    }
}
