//! Connections of TCP with what applications say over them: clients behind the left port, servers behind the right one.
//!
//! ```text
//!   profile ──► engine: opens connections at their times
//!                 │
//!                 ├─ stack of the clients ── left port  ──► device ──► right port ── stack of the servers ─┐
//!                 │        client: request, response, …                     server: request, response, …   │
//!                 └────────────────────── account: what became of each connection ◄────────────────────────┘
//! ```
//!
//! TCP itself is smoltcp's: handshakes, retransmission, windows and congestion control are those of a host. Each end has its own
//! connections and learns of the other end's by packets alone, so whatever lies between (a NAT, a firewall, a lossy path) does to
//! them what it would do to those of real hosts. Every byte that arrives is compared with what was sent.
//!
//! | module | what it is |
//! |---|---|
//! | [`profile`] | what connections there are, and what is said over them |
//! | [`segment`] | what must be known of a packet |
//! | [`stack`] | the connections of one end |
//! | [`ends`] | client and server: requests and responses |
//! | [`account`] | what became of connections |
//! | [`engine`] | both ends, and when connections open |
//! | [`trial`] | a measurement over the tester's ports |
//! | [`report`] | its result |
//! | [`request`] | what a client of the server asks for |
//!
//! Not here: TLS, HTTP beyond its bytes, UDP (see [`crate::stateful`]).

pub mod account;
pub mod ends;
pub mod engine;
pub mod profile;
pub mod report;
pub mod request;
pub mod segment;
pub mod stack;
#[cfg(test)]
mod tests;
pub mod trial;

pub use engine::{Engine, Shared};
pub use profile::Profile;
pub use report::Report;
pub use request::TcpRequest;
pub use trial::{Plan, run};

/// Which end of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Those who open them: behind the left port.
    Client,
    /// Those who answer: behind the right port.
    Server,
}
