//! What can go wrong with a table: one small enum, and the out-of-memory marker under it.

use thiserror::Error;

/// Memory ran out: the structure's [`Budget`](crate::mem::Budget), a resource limit, or the machine.
///
/// Whatever reports it has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("out of memory")]
pub struct OutOfMemory;

impl From<std::collections::TryReserveError> for OutOfMemory {
    fn from(_: std::collections::TryReserveError) -> Self {
        OutOfMemory
    }
}

/// Why a table operation was refused. The table is then exactly as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The prefix length exceeds the number of address bits.
    #[error("prefix length {len} is longer than {bits}, the bits of an address")]
    PrefixLength {
        /// The length that was given.
        len: u8,
        /// The longest length that this family has.
        bits: u8,
    },
    /// The leaf is 0, which means "no route", or does not fit into 30 bits.
    #[error("leaf {0:#x} is outside 1..2^30")]
    Leaf(u32),
    /// No memory for the change: raise the table's limit or free memory, then try again.
    #[error("out of memory")]
    OutOfMemory,
}

impl From<OutOfMemory> for TableError {
    fn from(_: OutOfMemory) -> Self {
        TableError::OutOfMemory
    }
}
