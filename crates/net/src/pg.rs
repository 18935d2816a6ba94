//! Packet generator: streams of made or recorded packets that come in on `pg` interfaces, and capture of what leaves there.
//!
//! ```text
//!   stream (template + fields that vary, or a pcap file) ──► pg-input ──► any node, as received on pg0
//!   … ──► pg0-output ──► pg0-tx ──► pcap file, or away
//! ```
//!
//! A stream runs on one worker. It says that it has stopped only when everything it sent has left the graph.

pub(crate) mod api;
mod capture;
mod control;
mod field;
mod input;
pub mod ops;
pub mod parse;
mod resum;
mod stream;

pub use capture::{CreateFile, Written};
pub use control::{Mode, PG, PgError, PgInterface, StreamInfo};
pub use field::{Field, Vary};
pub use stream::{Sizes, Source, StreamSpec, Template};

pub(crate) use control::{init, nodes};
