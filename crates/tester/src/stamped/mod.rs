//! Streams whose frames have times of the devices: a network card's, or the kernel's. What the tester's own work adds is not in them.
//!
//! ```text
//!   pace ──► maker ──► sender ──► device ═══ device under test ═══ device ──┬──► the port's driver: counted as all frames are
//!                         │ left at                                 came at │
//!                         └───────────► account: pairs by number ◄──────────┘
//! ```
//!
//! A thread for each direction sends these frames one at a time, beside the threads that send the load, and takes their times. It
//! sleeps in between.

mod account;
pub(crate) mod ports;
mod thread;

use std::sync::Arc;

use quiver_drivers::stamped::{Clock, StampError, Tail};
use serde::{Deserialize, Serialize};

pub use account::{Account, Timed};
use ports::Ends;
pub use thread::Running;

use crate::bench::Bench;
use crate::maker::Maker;
use crate::pace::Pace;
use crate::source::Sent;
use crate::{profile, signature};

/// Most frames a second of such a stream: each one is a system call or three.
pub const FASTEST: f64 = 10_000.0;
/// Most of its frames in a trial: their times are kept until it ends.
pub const MOST: u64 = 1 << 24;

/// Whose times the frames of a stream have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Timestamps {
    /// The network cards'.
    Card,
    /// The kernel's.
    Kernel,
}

impl Timestamps {
    /// Whose they are.
    pub fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Kernel => "kernel",
        }
    }

    fn clock(self) -> Clock {
        match self {
            Self::Card => Clock::Card,
            Self::Kernel => Clock::Kernel,
        }
    }
}

/// A stream that is to be sent with times.
pub struct Stream {
    /// Its place among the direction's.
    pub at: usize,
    /// Its number on the wire.
    pub id: u16,
    /// Makes its frames.
    pub maker: Maker,
    /// When they are due.
    pub pace: Pace,
}

/// What the times of a direction's streams say.
#[derive(Debug, Default)]
pub struct Found {
    /// Of each stream with times, by its place in the direction.
    pub streams: Vec<(usize, Timed)>,
    /// What went wrong, in one line.
    pub failed: Option<String>,
}

impl Found {
    /// Nothing.
    pub fn failed(why: String) -> Self {
        Self { streams: Vec::new(), failed: Some(why) }
    }
}

/// Why frames cannot have times, in one line.
#[derive(Debug, thiserror::Error)]
pub enum TimesError {
    /// The port is no device that knows times.
    #[error("frames with times need af-packet: or dpdk: ports: {0} is none")]
    Port(String),
    /// A port that the kernel knows nothing of.
    #[error("the kernel does not see the frames of {0}: take the card's times")]
    Unseen(String),
    /// Two sorts of ports.
    #[error("{0} and {1} have times of different clocks: take two af-packet: or two dpdk: ports")]
    Kinds(String, String),
    /// DPDK gives none, and says why.
    #[error("{0}")]
    Dpdk(String),
    /// Two sorts of times in one direction.
    #[error("the streams of a direction have times of the card or of the kernel, not of both")]
    Mixed,
    /// Too many frames.
    #[error("{0:.0} frames are too many: up to {FASTEST:.0} a second and {MOST} in a trial can have timestamps")]
    Many(f64),
    /// The device or its card.
    #[error(transparent)]
    Device(#[from] StampError),
    /// Times that cannot be compared.
    #[error("the cards of {tx} and {rx} have different clocks (/dev/ptp{} and /dev/ptp{}): take two ports of one card, or the kernel's times", clocks.0, clocks.1)]
    Clocks {
        /// The port that sends.
        tx: String,
        /// The port that receives.
        rx: String,
        /// Numbers of their clocks.
        clocks: (i32, i32),
    },
}

/// The streams of a direction, ready to be sent.
pub struct Ready {
    ends: Ends,
    streams: Vec<Stream>,
    sent: Arc<Sent>,
    tag: u8,
    clock: Timestamps,
}

impl Ready {
    /// Opens both ends of a direction; `sent` is told what leaves.
    ///
    /// # Errors
    /// The ports or their cards give no such times.
    pub fn new(
        bench: &mut Bench,
        ports: (usize, usize),
        tag: u8,
        clocks: &[Timestamps],
        streams: Vec<Stream>,
        sent: Arc<Sent>,
    ) -> Result<Self, TimesError> {
        let clock = one(clocks)?;
        let total = |s: &Stream| s.pace.total().unwrap_or(u64::MAX);
        if let Some(many) = streams.iter().map(total).find(|n| *n > MOST) {
            return Err(TimesError::Many(many as f64));
        }
        let ids = streams.iter().map(|s| s.id);
        let range = (ids.clone().min().unwrap_or(0), ids.max().unwrap_or(0));
        let tail = signature::tail(tag, range);
        let tail = Tail { word: tail.0, range: tail.1 };
        let ends = ports::open(bench, ports, clock, tail)?;
        Ok(Self { ends, streams, sent, tag, clock })
    }
}

/// The one clock of a direction's streams with times.
fn one(clocks: &[Timestamps]) -> Result<Timestamps, TimesError> {
    let &[clock, ref others @ ..] = clocks else { unreachable!("a direction with times has a stream with times") };
    if others.iter().all(|other| *other == clock) { Ok(clock) } else { Err(TimesError::Mixed) }
}

/// Has the ports of a direction give its streams times, where that takes a new start of a device.
///
/// # Errors
/// They give no such times.
pub fn switch_on(bench: &mut Bench, ports: (usize, usize), streams: &[profile::Stream]) -> Result<(), TimesError> {
    let clocks: Vec<Timestamps> = streams.iter().filter_map(|stream| stream.timestamps).collect();
    if clocks.is_empty() { Ok(()) } else { ports::switch_on(bench, ports, one(&clocks)?) }
}
