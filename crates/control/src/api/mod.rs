//! VPP's binary API: connections, and the messages of the daemon and of the drivers' interfaces. The others are handled in `net`.
//!
//! ```text
//!   api.sock ─► connection ─► table: message number ─► handler ─► operation or Router
//!      ▲            │                                     │
//!      └────────────┴── replies, details, events ◄────────┘
//! ```
//!
//! Requests of one client are answered in the order in which they came; all clients share the total order of operations. What a
//! client does not read waits in a bounded buffer: it is not read from meanwhile.
//!
//! [`handlers`] has a file for each of VPP's modules; [`quiver_net::api`] is what they and plugins build on.

mod connection;
pub mod handlers;
#[cfg(test)]
mod tests;

pub use connection::serve;
