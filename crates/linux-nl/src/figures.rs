//! What is shown of a reader.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;

use crate::rib::{Differences, Refusal};

/// Figures of the reader of a namespace, as it publishes them.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Bytes that the kernel lets wait.
    pub receive_buffer: usize,
    /// Messages of the kernel.
    pub messages: u64,
    /// Those that could not be read.
    pub malformed: u64,
    /// Times that the socket could not hold what the kernel said.
    pub overruns: u64,
    /// Comparisons with the kernel, the first one at the start.
    pub comparisons: u64,
    /// What the last one took.
    pub dump_time: Duration,
    /// What it found.
    pub differences: Differences,
    /// One is under way.
    pub is_comparing: bool,
    /// The router's table is to be checked.
    pub checking: bool,
    /// Changes sent to the main thread.
    pub changes: u64,
    /// Prefixes that have changed and are not sent.
    pub waiting: usize,
    /// Routes of the kernel by protocol.
    pub by_protocol: BTreeMap<u8, u64>,
    /// Prefixes that the router's table has of these.
    pub told: u64,
    /// Routes that the router does not take, by reason.
    pub refused: HashMap<Refusal, u64>,
    /// Announced routes that hold for some packets only.
    pub special: u64,
    /// Next-hop objects.
    pub objects: usize,
    /// Neighbours.
    pub neighbors: usize,
    /// Addresses.
    pub addresses: usize,
    /// Times that routes of the process before were taken up.
    pub restored: u64,
    /// Why the kernel is no longer followed.
    pub failed: Option<String>,
    /// A routing daemon's stream.
    pub fpm: FpmFigures,
}

/// Figures of a routing daemon's stream (FPM).
#[derive(Clone, Debug, Default)]
pub struct FpmFigures {
    /// Where it is listened.
    pub address: Option<String>,
    /// What has come.
    pub stream: FpmStream,
    /// Routes by protocol.
    pub by_protocol: BTreeMap<u8, u64>,
    /// Next-hop objects.
    pub objects: usize,
    /// After this time routes go that are not sent again.
    pub hold: Option<Duration>,
    /// How many these are.
    pub held: u64,
    /// Routes that went so.
    pub expired: u64,
}

/// What has come of such streams.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FpmStream {
    /// Who is connected.
    pub peer: Option<String>,
    /// Connections so far.
    pub connections: u64,
    /// Frames.
    pub frames: u64,
    /// Messages in them.
    pub messages: u64,
    /// Those that could not be read.
    pub malformed: u64,
    /// Those about other things than routes and next hops.
    pub ignored: u64,
    /// Those that were more than is kept.
    pub too_many: u64,
    /// Connections that ended because what came was no such stream.
    pub refused_streams: u64,
    /// Why the last connection ended.
    pub last_end: Option<String>,
}
