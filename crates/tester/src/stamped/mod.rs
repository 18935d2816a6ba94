//! Streams whose frames have times of the devices: a network card's, or the kernel's. What the tester's own work adds is not in them.
//!
//! ```text
//!   pace ──► maker ──► packet socket ──► device ═══ device under test ═══ device ──┬──► the port's driver: counted as all frames are
//!                         │ left at                                      came at │
//!                         └──────────────► account: pairs by number ◄────────────┘
//! ```
//!
//! A thread for each direction sends these frames one at a time, beside the threads that send the load, and takes their times. It
//! sleeps in between.

mod account;
mod thread;

use std::sync::Arc;

use quiver_drivers::stamped::{CardClock, Clock, StampError, StampedRx, StampedTx, Tail};
use serde::{Deserialize, Serialize};

pub use account::{Account, Timed};
pub use thread::Running;

use crate::bench::Opened;
use crate::maker::Maker;
use crate::pace::Pace;
use crate::port::Engine;
use crate::signature;
use crate::source::Sent;

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
    /// The port is no device of the kernel's, or its frames never come to a socket.
    #[error("its frames need devices with packet sockets: {0} is no af-packet: port")]
    Port(String),
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
    #[error("the cards of {tx} and {rx} have clocks of their own (/dev/ptp{} and /dev/ptp{}): take two ports of one card, or the kernel's times", clocks.0, clocks.1)]
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
    tx: StampedTx,
    rx: StampedRx,
    /// They give times for as long as these live.
    _cards: Vec<CardClock>,
    streams: Vec<Stream>,
    sent: Arc<Sent>,
    tag: u8,
    clock: Timestamps,
}

impl Ready {
    /// Opens the sockets of a direction; `sent` is told what leaves.
    ///
    /// # Errors
    /// The ports or their cards give no such times.
    pub fn new(
        ports: (&Opened, &Opened),
        tag: u8,
        clocks: &[Timestamps],
        streams: Vec<Stream>,
        sent: Arc<Sent>,
    ) -> Result<Self, TimesError> {
        let device = |port: &Opened| match &port.spec.engine {
            Engine::AfPacket(name) => Ok(name.clone()),
            _ => Err(TimesError::Port(port.spec.to_string())),
        };
        let (from, to) = (device(ports.0)?, device(ports.1)?);
        let &[clock, ref others @ ..] = clocks else { unreachable!("a direction with times has a stream with times") };
        if others.iter().any(|other| *other != clock) {
            return Err(TimesError::Mixed);
        }
        let total = |s: &Stream| s.pace.total().unwrap_or(u64::MAX);
        if let Some(many) = streams.iter().map(total).find(|n| *n > MOST) {
            return Err(TimesError::Many(many as f64));
        }
        let mut cards = Vec::new();
        if clock == Timestamps::Card {
            let sends = CardClock::switch_on(&from)?;
            // A device that sends and receives is one card.
            let receives = if from == to { None } else { Some(CardClock::switch_on(&to)?) };
            if let Some(other) = receives.as_ref().filter(|other| other.number() != sends.number()) {
                let clocks = (sends.number(), other.number());
                return Err(TimesError::Clocks { tx: ports.0.spec.to_string(), rx: ports.1.spec.to_string(), clocks });
            }
            cards = [Some(sends), receives].into_iter().flatten().collect();
        }
        let ids = streams.iter().map(|s| s.id);
        let range = (ids.clone().min().unwrap_or(0), ids.max().unwrap_or(0));
        let tail = signature::tail(tag, range);
        let tail = Tail { word: tail.0, range: tail.1 };
        let (tx, rx) = (StampedTx::open(&from, clock.clock())?, StampedRx::open(&to, clock.clock(), tail)?);
        Ok(Self { tx, rx, _cards: cards, streams, sent, tag, clock })
    }
}
