//! Lookup tables, timers and reclamation; knows no packets.

pub mod address;
mod cpu;
pub mod error;
mod fib;
pub mod hash;
mod lpm;
pub mod lpm4;
pub mod lpm6;
pub mod mem;
pub mod pool;
pub mod qsbr;
pub mod slots;
pub mod store;
mod sync;
#[doc(hidden)]
pub mod synth;
pub mod timer;

pub use cpu::prefetch;
pub use error::{OutOfMemory, TableError};
pub use fib::{Fib4, Fib6, Options};

/// The greatest leaf of a prefix table: the two bits above it belong to the structures.
pub const LEAF_MAX: u32 = (1 << 30) - 1;
