//! Candidates: changes that a session collects, to have all of them made at once; and the time in which a commit waits to be confirmed.
//!
//! ```text
//!  configure ──► changing commands are read and collected ──► commit ─────────────► made, all of them or none
//!                       │                                       │ confirmed 5m
//!                    discard, or the session ends               ▼
//!                                                            provisional ──► confirm, commit ──► recorded
//!                                                               │ the time is over, revert, or the router is killed
//!                                                               ▼
//!                                                            as before the commit
//! ```
//!
//! One session has a candidate at a time. While changes are provisional the journal holds its records back, whoever changes something.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quiver_command::change_log::{Collector, Hold, Record};
use quiver_command::configuration::Entry;
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;
use serde::Serialize;

/// Bytes of a candidate at most: some 300,000 routes.
const MOST: usize = 64 << 20;

/// A change that is collected.
#[derive(Debug, Clone, Serialize)]
pub struct Pending {
    /// The command, or the operation and its request where a program asked for it.
    pub command: String,
    /// What it asks for.
    #[serde(flatten)]
    pub record: Record,
}

/// The changes that a session has collected.
#[derive(Default)]
pub struct Candidate {
    changes: RefCell<Vec<Pending>>,
    bytes: Cell<usize>,
}

impl Candidate {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.changes.borrow().len()
    }

    /// All, in order.
    pub fn changes(&self) -> Vec<Pending> {
        self.changes.borrow().clone()
    }
}

impl Collector for Candidate {
    fn collect(&self, command: Option<&str>, record: Record) -> Result<(), OpError> {
        let command = command.map_or_else(|| format!("{} {}", record.operation, record.request.get()), str::to_owned);
        let bytes = self.bytes.get() + 2 * command.len() + record.request.get().len();
        if bytes > MOST {
            let error = OpError::new(retval::LIMIT_EXCEEDED, format!("the candidate is larger than {} MB", MOST >> 20));
            return Err(error.remedy("commit what there is, or use `exec <file> atomic'"));
        }
        self.bytes.set(bytes);
        self.changes.borrow_mut().push(Pending { command, record });
        Ok(())
    }
}

/// What a commit has changed, as long as it may go back.
pub struct Provisional {
    /// What was configured before it.
    pub before: Arc<Vec<Entry>>,
    /// The records since.
    pub hold: Hold,
}

/// The time in which a commit may be confirmed. A part of the router.
#[derive(Default)]
pub struct Window {
    provisional: RefCell<Option<Provisional>>,
    until: Cell<Option<Instant>>,
    waker: Cell<Option<Waker>>,
}

impl Window {
    /// That of a router.
    pub fn of(router: &mut Router) -> Rc<Self> {
        Rc::clone(router.part_or_default())
    }

    /// Opens it, or puts its end off: what was before the first commit counts.
    pub fn open(&self, provisional: Provisional, time: Duration) {
        let mut open = self.provisional.borrow_mut();
        match &*open {
            // Records within a hold come to those of the hold around it.
            Some(_) => provisional.hold.keep(),
            None => *open = Some(provisional),
        }
        self.until.set(Instant::now().checked_add(time));
        self.wake();
    }

    /// Something was changed as a whole: it is confirmed, or waits for it.
    pub fn committed(&self, provisional: Provisional, confirmed: Option<Span>) {
        match confirmed {
            Some(Span(time)) => self.open(provisional, time),
            None => {
                provisional.hold.keep();
                // One that waited for it is confirmed by this one.
                self.close().into_iter().for_each(|outer| outer.hold.keep());
            }
        }
    }

    /// Closes it, whatever becomes of what is provisional.
    pub fn close(&self) -> Option<Provisional> {
        self.until.set(None);
        self.wake();
        self.provisional.borrow_mut().take()
    }

    /// Whether something is provisional.
    pub fn is_open(&self) -> bool {
        self.provisional.borrow().is_some()
    }

    /// How long it may still be confirmed.
    pub fn left(&self) -> Option<Duration> {
        self.until.get().map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits until its end is another one than it was.
    pub fn poll_changed(&self, was: Option<Instant>, context: &Context<'_>) -> Poll<()> {
        if self.until.get() != was {
            return Poll::Ready(());
        }
        self.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }

    /// When it ends.
    pub fn until(&self) -> Option<Instant> {
        self.until.get()
    }

    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }
}

/// A time with its unit: `30s`, `5m`, `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// The longest time for which changes may be provisional.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds if seconds > 0 && seconds % 3600 == 0 => write!(f, "{}h", seconds / 3600),
            seconds if seconds > 0 && seconds % 60 == 0 => write!(f, "{}m", seconds / 60),
            seconds => write!(f, "{seconds}s"),
        }
    }
}

impl std::str::FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("from 1s to {}, with its unit: 30s, 5m, 2h", Self(LONGEST));
        let unit = match text.as_bytes().last() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            _ => return Err(wrong()),
        };
        let count: u64 = text.get(..text.len() - 1).and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
        let time = count.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)?;
        if time.is_zero() || time > LONGEST { Err(wrong()) } else { Ok(Self(time)) }
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl quiver_command::request::Value for Span {
    const KIND: &'static str = "time";

    fn take(
        args: &mut quiver_command::grammar::Args<'_>,
        argument: &quiver_command::request::Argument,
        _: usize,
    ) -> Result<Self, OpError> {
        let word = args.word(argument.what())?.into_owned();
        word.parse().map_err(|expected: String| OpError::invalid(argument.what(), &word, expected))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_an_end() {
        for (text, seconds) in [("1s", 1), ("90s", 90), ("5m", 300), ("24h", 86_400)] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_secs(seconds));
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for text in ["", "5", "m", "0s", "25h", "-1m", "1.5m", "99999999999999999999h", "5d", "5é"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_candidate_has_an_end() {
        let candidate = Candidate::default();
        let request = || serde_json::value::to_raw_value(&"x".repeat(1 << 20)).unwrap();
        let record = || Record { operation: "op".to_owned(), request: request() };
        let taken = (0..1000).take_while(|_| candidate.collect(Some("command"), record()).is_ok()).count();
        assert_eq!((taken, candidate.count()), (63, 63));
    }
}
