//! AgentX (RFC 2741) as bytes: what a subagent reads from its master agent, and what it writes.
//!
//! ```text
//!   SNMP manager ── UDP ── master agent (snmpd) ── AgentX, a stream socket ── subagent
//!                                                  Open, Register, Notify ◄──  │
//!                                                  Get, GetNext, GetBulk  ──►  │
//!                                                  Response               ◄──  │
//! ```
//!
//! A protocol data unit (PDU) is a header of 20 bytes and a payload. A session has one byte order; what is written here is in network byte
//! order, what is read may be in either. Index allocation and agent capabilities (RFC 2741, 6.2.12 to 6.2.15) are left out.
//!
//! Uses the standard library; must never know routers, sockets or MIBs.
#![forbid(unsafe_code)]

mod oid;
mod read;
mod value;
mod write;

pub use oid::{LONGEST as LONGEST_OID, Oid};
pub use read::{Front, Pdu, Range, Request, front};
pub use value::{Bind, Value};
pub use write::{Session, notify, open, register, response};

/// Bytes of the header (RFC 2741, 6.1).
pub const HEADER: usize = 20;
/// Longest payload that is taken, bytes. A request of SNMP is 65,507 bytes at most; names are up to four times as long here.
pub const LONGEST: usize = 1 << 20;

/// Types of PDUs (RFC 2741, 6.1).
mod kind {
    pub const OPEN: u8 = 1;
    pub const CLOSE: u8 = 2;
    pub const REGISTER: u8 = 3;
    pub const GET: u8 = 5;
    pub const GET_NEXT: u8 = 6;
    pub const GET_BULK: u8 = 7;
    pub const TEST_SET: u8 = 8;
    pub const COMMIT_SET: u8 = 9;
    pub const UNDO_SET: u8 = 10;
    pub const CLEANUP_SET: u8 = 11;
    pub const NOTIFY: u8 = 12;
    pub const RESPONSE: u8 = 18;
}

/// Flags of a header (RFC 2741, 6.1).
mod flag {
    pub const NON_DEFAULT_CONTEXT: u8 = 0x08;
    pub const NETWORK_BYTE_ORDER: u8 = 0x10;
}

/// `res.error` of a response (RFC 2741, 6.2.16; RFC 3416, 3).
pub mod status {
    /// All is well.
    pub const NO_ERROR: u16 = 0;
    /// The variable cannot be written.
    pub const NOT_WRITABLE: u16 = 17;
    /// A session that the master does not know.
    pub const NOT_OPEN: u16 = 257;
    /// A PDU that cannot be read.
    pub const PARSE_ERROR: u16 = 266;
}

/// Why bytes are not a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The payload ends too early.
    #[error("a PDU ends too early")]
    Short,
    /// Another version of AgentX.
    #[error("AgentX version {0}, 1 is wanted")]
    Version(u8),
    /// A length that no request needs, or that is no multiple of 4.
    #[error("a PDU of {0} bytes")]
    Length(u32),
    /// An object identifier with more than 128 parts.
    #[error("an object identifier of more than 128 parts")]
    Oid,
}
