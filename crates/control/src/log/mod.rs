//! The router's log: `tracing` events to standard error, a file or systemd's journal, and to a ring that `show logging` reads.
//!
//! The class of an event is its target, `ip/neighbor`; a module path `quiver_net::ip::neighbor` becomes that too. Each class
//! has a level and a limit of lines a second; what exceeds the limit is left out, and one line says so. `tracing`'s `INFO` is
//! `notice` here, `TRACE` is `debug` like `DEBUG`.

mod file;
mod journal;
mod layer;
mod output;
mod ring;

pub use file::{LogFile, anew};
pub use journal::JournalSocket;
pub use layer::{LogLayer, flush, install};
pub use output::{Output, is_journal};
pub use ring::{ClassInfo, Fields, Form, Line, Log, Settings};

use serde::{Deserialize, Serialize};

/// Classes of the router itself; plugins declare their own.
pub const CLASSES: &[&str] = &[
    "api",
    "audit",
    "buffer",
    "cli",
    "fib",
    "interface",
    "ip/neighbor",
    "ip6/dad",
    "ip6/nd",
    "l2fib",
    "memif",
    "panic",
    "pcap",
    "pg",
    "plugin",
    "privilege",
    "startup",
    "watchdog",
];

/// How much something matters, as syslog grades it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The router cannot be used.
    Emerg,
    /// Something must be done at once.
    Alert,
    /// A part has failed.
    Crit,
    /// Something failed.
    Error,
    /// Something is not as it should be.
    Warn,
    /// Normal, and worth knowing.
    Notice,
    /// Normal.
    Info,
    /// For who develops.
    Debug,
    /// As a threshold: nothing passes.
    Disabled,
}

impl Level {
    /// Names as commands and files use them.
    pub const NAMES: [(&'static str, Self); 10] = [
        ("emerg", Self::Emerg),
        ("alert", Self::Alert),
        ("crit", Self::Crit),
        ("error", Self::Error),
        ("err", Self::Error),
        ("warn", Self::Warn),
        ("notice", Self::Notice),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("disabled", Self::Disabled),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, level)| *level == self).map_or("notice", |(name, _)| name)
    }

    /// Whether an event of level `event` passes this threshold.
    pub fn passes(self, event: Self) -> bool {
        self != Self::Disabled && event <= self
    }
}

impl From<&tracing::Level> for Level {
    fn from(level: &tracing::Level) -> Self {
        match *level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Notice,
            _ => Self::Debug,
        }
    }
}
