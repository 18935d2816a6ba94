//! Events at rest: what a snapshot, and a saved file, consist of.
//!
//! The file is little-endian; a string is its length in a u32 and its UTF-8 bytes:
//!
//! ```text
//! 8 bytes   "QUIVEREL"
//! u32       version, 1
//! u32       number of kinds, then for each its format string
//! u32       number of threads, then for each its name
//! u64       number of events, then for each, in the order of time, 32 bytes:
//!           u64 nanoseconds of CLOCK_MONOTONIC, u64 ticks, u32 thread, u32 kind, u32 a, u32 b
//! ```

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::EventKind;

const MAGIC: &[u8; 8] = b"QUIVEREL";
const VERSION: u32 = 1;
/// A longer string in a file is an error: format strings are short.
const STRING_MAX: usize = 4096;
/// No file is larger than the largest rings of all threads would make it.
const FILE_MAX: u64 = 64 << 30;

/// One event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Raw ticks.
    pub ticks: u64,
    /// Index of the thread's ring.
    pub thread: u32,
    /// What.
    pub kind: EventKind,
    /// First argument.
    pub a: u32,
    /// Second argument.
    pub b: u32,
}

/// Events in the order of time, and what it takes to read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Format strings by kind.
    pub kinds: Vec<String>,
    /// Names by thread.
    pub threads: Vec<String>,
    /// The events.
    pub events: Vec<Event>,
}

impl Recording {
    /// An event in words: its kind's format with the arguments filled in.
    pub fn text(&self, event: &Event) -> String {
        match self.kinds.get(event.kind.0 as usize) {
            Some(format) => fill(format, [event.a, event.b]),
            None => format!("unknown event {} {} {}", event.kind.0, event.a, event.b),
        }
    }

    /// The newest `limit` events, a line for each: seconds since `origin_ns`, thread, text.
    pub fn render(&self, origin_ns: u64, limit: usize) -> String {
        let skipped = self.events.len().saturating_sub(limit);
        let mut lines = String::new();
        for event in &self.events[skipped..] {
            let seconds = event.ns.wrapping_sub(origin_ns) as i64 as f64 / 1e9;
            let thread = self.threads.get(event.thread as usize).map_or("?", String::as_str);
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{seconds:18.9}: {thread}: {}", self.text(event));
        }
        lines
    }

    /// Reads a file of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// Those of the file system, and `InvalidData` with what is wrong for any other file.
    pub fn load(path: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
        Self::from_bytes(&bytes).map_err(|what| {
            let text = format!("{}: no event log: {what}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// What a saved file consists of.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.events.len() * 32);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for strings in [&self.kinds, &self.threads] {
            bytes.extend_from_slice(&(strings.len() as u32).to_le_bytes());
            for string in strings {
                let mut end = string.len().min(STRING_MAX);
                while !string.is_char_boundary(end) {
                    end -= 1;
                }
                bytes.extend_from_slice(&(end as u32).to_le_bytes());
                bytes.extend_from_slice(&string.as_bytes()[..end]);
            }
        }
        bytes.extend_from_slice(&(self.events.len() as u64).to_le_bytes());
        for event in &self.events {
            bytes.extend_from_slice(&event.ns.to_le_bytes());
            bytes.extend_from_slice(&event.ticks.to_le_bytes());
            for word in [event.thread, event.kind.0, event.a, event.b] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    fn from_bytes(mut bytes: &[u8]) -> Result<Self, &'static str> {
        let from = &mut bytes;
        if take(from, MAGIC.len())? != MAGIC {
            return Err("wrong first bytes");
        }
        if take_u32(from)? != VERSION {
            return Err("unknown version");
        }
        let kinds = take_strings(from)?;
        let threads = take_strings(from)?;
        let count = take_u64(from)?;
        if count.checked_mul(32) != Some(from.len() as u64) {
            return Err("number of events does not fit the size");
        }
        let mut events = Vec::with_capacity(from.len() / 32);
        while !from.is_empty() {
            events.push(Event {
                ns: take_u64(from)?,
                ticks: take_u64(from)?,
                thread: take_u32(from)?,
                kind: EventKind(take_u32(from)?),
                a: take_u32(from)?,
                b: take_u32(from)?,
            });
        }
        Ok(Self { kinds, threads, events })
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], &'static str> {
    let (taken, rest) = from.split_at_checked(count).ok_or("it is cut off")?;
    *from = rest;
    Ok(taken)
}

fn take_u32(from: &mut &[u8]) -> Result<u32, &'static str> {
    let bytes = take(from, 4)?;
    Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

fn take_u64(from: &mut &[u8]) -> Result<u64, &'static str> {
    let low = take_u32(from)?;
    Ok(u64::from(take_u32(from)?) << 32 | u64::from(low))
}

fn take_strings(from: &mut &[u8]) -> Result<Vec<String>, &'static str> {
    let count = take_u32(from)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        let length = take_u32(from)? as usize;
        if length > STRING_MAX {
            return Err("a string is too long");
        }
        let text = std::str::from_utf8(take(from, length)?);
        strings.push(text.map_err(|_| "a string is not UTF-8")?.to_owned());
    }
    Ok(strings)
}

/// Fills arguments into a format: `%d` and `%u` decimal, `%i` signed, `%x` hexadecimal, `%%` a percent sign. What is
/// neither, and verbs beyond the arguments, stay as they are.
fn fill(format: &str, arguments: [u32; 2]) -> String {
    let mut text = String::with_capacity(format.len() + 16);
    let mut arguments = arguments.into_iter();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let verb = rest.chars().next();
        let filled = match verb {
            Some('%') => Some("%".to_owned()),
            Some('d' | 'u') => arguments.next().map(|n| n.to_string()),
            Some('i') => arguments.next().map(|n| n.cast_signed().to_string()),
            Some('x') => arguments.next().map(|n| format!("{n:x}")),
            _ => None,
        };
        match (filled, verb) {
            (Some(filled), Some(verb)) => {
                text.push_str(&filled);
                rest = &rest[verb.len_utf8()..];
            }
            _ => text.push('%'),
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let event = |ns, thread, kind, a, b| Event { ns, ticks: ns * 2, thread, kind: EventKind(kind), a, b };
        Recording {
            kinds: vec!["rx-placement if %d worker %d".into(), "mode %x".into()],
            threads: vec!["main".into(), "worker 1".into()],
            events: vec![event(1_500_000_000, 0, 0, 3, 1), event(2_000_000_001, 1, 1, 255, 0), event(3, 7, 9, 1, 2)],
        }
    }

    #[test]
    fn formats_take_their_arguments_in_order_and_nothing_else_breaks_them() {
        let cases = [
            ("if %d worker %d", "if 7 worker 4294967295"),
            ("%x%i", "7-1"),
            ("100%% of %u", "100% of 7"),
            ("%d %d %d", "7 4294967295 %d"),
            ("%", "%"),
            ("%é%q", "%é%q"),
            ("", ""),
        ];
        for (format, expected) in cases {
            assert_eq!(fill(format, [7, u32::MAX]), expected);
        }
    }

    #[test]
    fn lines_show_time_thread_and_text() {
        let text = recording().render(1_000_000_000, 10);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "       0.500000000: main: rx-placement if 3 worker 1");
        assert_eq!(lines[1], "       1.000000001: worker 1: mode ff");
        assert_eq!(lines[2], "      -0.999999997: ?: unknown event 9 1 2");
        assert_eq!(recording().render(0, 1).lines().count(), 1);
    }

    #[test]
    fn a_saved_file_loads_as_it_was() {
        let path = std::env::temp_dir().join(format!("quiver-elog-{}", std::process::id()));
        std::fs::write(&path, recording().to_bytes()).unwrap();
        let loaded = Recording::load(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(loaded.unwrap(), recording());
        assert!(Recording::load(&path).is_err());
    }

    #[test]
    fn a_damaged_file_is_an_error_at_every_length_and_byte() {
        let good = recording().to_bytes();
        for length in 0..good.len() {
            assert!(Recording::from_bytes(&good[..length]).is_err(), "cut at {length}");
        }
        // No value of any byte may panic or allocate without bound.
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = Recording::from_bytes(&bad);
            }
        }
    }
}
