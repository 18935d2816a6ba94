//! What a trial of connections says: `quiver-tcp-trial/1`.

use serde::Serialize;

use super::account::Counts;
use super::stack::Segments;
use crate::disturbance::Disturbance;
use crate::latency::LatencySummary;
use crate::report::{Cpu, DepartureError, Head};

/// Name of the schema.
pub const SCHEMA: &str = "quiver-tcp-trial/1";

/// Connections of a kind, or of all.
#[derive(Clone, Debug, Serialize)]
pub struct Connections {
    /// Numbers.
    #[serde(flatten)]
    pub counts: Counts,
    /// From the first segment until the client could write, ns.
    pub connect_ns: Option<LatencySummary>,
    /// From a request's first byte until its response's last one, ns.
    pub exchange_ns: Option<LatencySummary>,
}

/// Connections of a kind, by its name.
#[derive(Clone, Debug, Serialize)]
pub struct OfKind {
    /// Name of the kind.
    pub name: String,
    /// Its connections.
    #[serde(flatten)]
    pub connections: Connections,
}

/// Rates over the time in which connections were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Connections opened a second.
    pub opened_cps: f64,
    /// Connections a second over which the client could write.
    pub established_cps: f64,
    /// Requests a second that were answered.
    pub exchanges_per_s: f64,
    /// Bits a second of requests that servers read: nothing of headers, nothing twice.
    pub request_bps: f64,
    /// The same of responses that clients read.
    pub response_bps: f64,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// End, from the start of the trial.
    pub t_s: f64,
    /// Connections opened in it.
    pub opened: u64,
    /// Connections in it that said all and were closed.
    pub completed: u64,
    /// Connections that failed in it.
    pub failed: u64,
    /// Connections open at its end.
    pub open: u64,
    /// Bytes of requests that servers read in it.
    pub request_bytes: u64,
    /// Bytes of responses that clients read in it.
    pub response_bytes: u64,
}

/// A trial.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Who measured when, with [`SCHEMA`]; its seconds are those in which connections were opened.
    #[serde(flatten)]
    pub head: Head,
    /// Connections to be opened.
    pub intended: u64,
    /// Of these not opened: too many were open, or all four-tuples in use, or the tester was late.
    pub not_opened: u64,
    /// Most that were open at once.
    pub most_open: u64,
    /// How much later than intended connections were opened, ns.
    pub open_error_ns: DepartureError,
    /// Connections of all kinds.
    #[serde(flatten)]
    pub totals: Connections,
    /// Rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// Segments of the clients.
    pub client: Segments,
    /// Segments of the servers.
    pub server: Segments,
    /// Packets that came and were no segments of TCP.
    pub foreign: u64,
    /// By kind.
    pub connections: Vec<OfKind>,
    /// Course.
    pub series: Vec<Sample>,
    /// Threads.
    pub cpu: Vec<Cpu>,
    /// What the machine did meanwhile.
    pub machine: Disturbance,
    /// What to look at, where no connection was established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
