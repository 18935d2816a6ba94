//! What became of connections.

use serde::Serialize;

use crate::latency::{Latencies, LatencySummary};

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody reset it.
    Reset,
    /// Nobody answered for too long.
    TimedOut,
    /// Other bytes arrived than were sent.
    Corrupted,
}

/// Connections of a kind, as they end.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// What clients have counted.
    pub counts: Counts,
    /// From the first segment until the client could write, ns.
    pub connect: Latencies,
    /// From a request's first byte until its response's last one, ns.
    pub exchange: Latencies,
    /// Connections that servers have reset because a request was not what was sent: clients will see no more than the reset.
    pub refused: u64,
}

/// Numbers of connections, and what was said over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Whose first segment was sent.
    pub opened: u64,
    /// Over which the client could write.
    pub established: u64,
    /// That said all, and were closed by both ends.
    pub completed: u64,
    /// That were reset.
    pub reset: u64,
    /// Of which nothing was heard for too long.
    pub timed_out: u64,
    /// Over which other bytes arrived than were sent.
    pub corrupted: u64,
    /// That had not ended when the trial did.
    pub unfinished: u64,
    /// Requests that were answered.
    pub exchanges: u64,
    /// Bytes that servers have read.
    pub request_bytes: u64,
    /// Bytes that clients have read.
    pub response_bytes: u64,
}

impl Counts {
    /// Connections that did not do what they were opened for.
    pub fn failed(&self) -> u64 {
        self.reset + self.timed_out + self.corrupted + self.unfinished
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        let Self {
            opened,
            established,
            completed,
            reset,
            timed_out,
            corrupted,
            unfinished,
            exchanges,
            request_bytes,
            response_bytes,
        } = other;
        self.opened += opened;
        self.established += established;
        self.completed += completed;
        self.reset += reset;
        self.timed_out += timed_out;
        self.corrupted += corrupted;
        self.unfinished += unfinished;
        self.exchanges += exchanges;
        self.request_bytes += request_bytes;
        self.response_bytes += response_bytes;
    }
}

/// All kinds of connections of a trial.
#[derive(Clone, Debug)]
pub struct Account {
    kinds: Vec<Kind>,
}

impl Account {
    /// Of so many kinds.
    pub fn new(kinds: usize) -> Self {
        Self { kinds: vec![Kind::default(); kinds] }
    }

    /// The kinds, in the profile's order.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// A kind.
    ///
    /// # Panics
    /// The profile has fewer.
    pub fn of(&mut self, kind: usize) -> &mut Kind {
        &mut self.kinds[kind]
    }

    /// Notes how a client's connection failed.
    pub fn failed(&mut self, kind: usize, how: Failure) {
        let Kind { counts, refused, .. } = self.of(kind);
        match how {
            Failure::Reset if *refused > 0 => {
                *refused -= 1;
                counts.corrupted += 1;
            }
            Failure::Reset => counts.reset += 1,
            Failure::TimedOut => counts.timed_out += 1,
            Failure::Corrupted => counts.corrupted += 1,
        }
    }

    /// Sums of all kinds: counts, times until connections stood, times of exchanges.
    pub fn totals(&self) -> (Counts, Option<LatencySummary>, Option<LatencySummary>) {
        let mut counts = Counts::default();
        let (mut connect, mut exchange) = (Latencies::default(), Latencies::default());
        for kind in &self.kinds {
            counts.add(&kind.counts);
            connect.merge(&kind.connect);
            exchange.merge(&kind.exchange);
        }
        (counts, summary(&connect), summary(&exchange))
    }
}

/// Percentiles; nothing where nothing was measured.
pub(super) fn summary(times: &Latencies) -> Option<LatencySummary> {
    times.summary().map(|(summary, _, _)| summary)
}
