//! VPP's binary API: one more face of the operations.
//!
//! ```text
//!   api.sock ─► connection ─► table: message number ─► handler ─► operation or Router
//!      ▲            │                                     │
//!      └────────────┴── replies, details ◄────────────────┘
//!                   ◄── events ◄── clients (a part of the router) ◄── its listeners
//! ```
//!
//! A handler turns a message into the request of an operation, runs it, and turns the reply or the error's code back. Requests
//! of one client are answered in the order in which they came; all clients share the total order of operations. What a client
//! does not read waits in a bounded buffer: it is not read from meanwhile.
//!
//! - `handlers`: a file for each of VPP's modules.
//! - [`Handlers`]: what a plugin adds its own to.

mod clients;
mod connection;
mod convert;
pub mod handlers;
mod table;
#[cfg(test)]
mod tests;
mod trace;

pub use clients::{ClientInfo, Clients, Wish, install};
pub use connection::serve;
pub use convert::{address, from_address, from_prefix, index_of, prefix, reference};
pub use table::{Call, Details, Dump, Flow, Handlers, Table};
pub use trace::{Recorded, Trace};
