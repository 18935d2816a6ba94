//! Stateful gateways after RFC 9693: what opens connections, how fast, how many, and what they carry once they are open.
//!
//! ```text
//!   phase 1   initiator (left port) ─► device ─► responder (right port): learns the four-tuples that come out
//!                a frame a connection, each with a four-tuple of its own              state table
//!   phase 2   initiator ◄─ device ◄─ responder: frames made of the state table
//!             initiator ─► device ─► responder: connections that are open, where both directions are wanted
//! ```
//!
//! Phase 1 alone fills the device's connection tracking table and the responder's state table. A connection is *validated* when a
//! frame that the responder makes of its entry reaches the initiator with the initiator's own four-tuple (section 4.7); only then
//! it counts. All measurements are made of these two phases: [`procedure`] says which follow one another, and knows no ports;
//! [`gateway`] runs them.
//!
//! | module | what it is |
//! |---|---|
//! | [`connections`] | connections by number, each with a four-tuple |
//! | [`table`] | the state table, and what learns and checks |
//! | [`phase`] | what became of a phase; what can run one |
//! | [`procedure`] | the measurements |
//! | [`gateway`] | phases over the tester's ports |
//! | [`request`] | what to measure, as it is asked for |
//!
//! Not here: TCP with its states (RFC 9693 uses UDP), test frames of background traffic.

pub mod connections;
pub mod gateway;
pub mod phase;
pub mod procedure;
pub mod request;
#[cfg(test)]
mod simulated;
pub mod table;

pub use connections::{AddressRange, Connections, Ends, Order, PortRange};
pub use gateway::Gateway;
pub use phase::{Apparatus, Phase, StatefulError, Step};
pub use procedure::{Measure, Outcome, Settings, run};
pub use request::StatefulRequest;
