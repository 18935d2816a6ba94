//! What plugins share that export records by IPFIX over UDP (RFC 7011): who collects them, and messages that are put together.
//!
//! ```text
//!   set ipfix exporter ─► Exporters, a part of the router ─► every plugin that has joined: a Stream for each observation domain
//!   records of a plugin ─► Stream: templates before them ─► Message ─► datagrams, sent by the plugin
//! ```
//!
//! It knows no flows, no sessions and no template but that they have numbers. It may use the router's tables, and what sends datagrams.

#![forbid(unsafe_code)]

pub mod exporter;
pub mod message;
pub mod stream;

pub use exporter::{Exporter, PORT};
pub use message::Message;
pub use stream::{Destination, Stream, Times};
