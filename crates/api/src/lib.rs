//! VPP's binary API as bytes: what messages there are, how they are laid out, and how they are framed on a socket.
//!
//! ```text
//!   defs/*.rs ── module! ──► Rust structs ── codec ──► bytes ── frame ──► socket
//!                     └────► schema ──► crc (message table), json (clients that load definitions)
//! ```
//!
//! A message is declared once, in `defs`; encoding, decoding, CRC and JSON follow from the declaration. Names, fields and
//! values are those of VPP 26.06, so that its clients work unchanged.
//!
//! Uses the standard library and `serde_json`; must never know routers, sockets or operations.
#![forbid(unsafe_code)]

mod catalog;
mod codec;
mod crc;
pub mod defs;
pub mod frame;
mod json;
#[macro_use]
mod macros;
pub mod module;
mod schema;

pub use catalog::{Catalog, Entry, MODULES};
pub use codec::{Bytes, Many, Reader, Text, Wire, WireError};
pub use crc::crc;
pub use json::{all as json_of_all, module as json_of};
pub use schema::{Array, Definition, Field, Head, Kind, Message, MessageInfo, Module, Type, Value};
