//! The data path's own structures: prefix tables, a bounded hash, timers, growable arrays, and the rule by which memory is
//! used again. This crate knows addresses, keys, handles and 32-bit values; it knows no packets, interfaces or routes.
//! It may use the standard library and `libc`, and is one of the few crates with `unsafe` in it.
//!
//! # Theory of operation
//!
//! One thread writes a structure, any number of others read it at the same time, and nobody ever waits:
//!
//! ```text
//!   control thread                                      worker threads
//!   --------------                                      --------------
//!   Fib4, Fib6, BoundedHash, AtomicSlots                Lpm4, Lpm6, HashReader, SlotsReader
//!       |  &mut self: one writer                            |  &self: plain loads, no locks, no counters
//!       v                                                   v
//!   +-------------------------- shared memory (mem) --------------------------+
//!   |  reserved address space that never moves, made writable as it is needed |
//!   +-------------------------------------------------------------------------+
//!       |  unlinked parts                                   |  once a loop
//!       v                                                   v
//!   Limbo (stamp, index) ----- grace period (qsbr) ---- Reader::quiescent()
//! ```
//!
//! * **Changes are single stores.** A word changes from one right answer to another; what it points to is complete before
//!   (release), and readers load pointing words with acquire. There are no versions to check and nothing to retry.
//! * **What is replaced rests** until every reader has passed a quiescent state ([`qsbr`]). Indices, not pointers, are
//!   retired, so a retirement costs 16 bytes and no allocation of its own.
//! * **Memory is mapped, not allocated** ([`mem`]). Shared arrays have their final address from the start; growing makes
//!   more of the reservation writable. Every step can fail and says so; a failed operation has changed nothing, because
//!   whatever can fail comes before the first store that a reader could see.
//! * **Safety does not hang on the readers' manners.** All of a reservation is readable, every index is bounded by it, and
//!   all shared words are atomics. A thread that reads without being registered may get an outdated or a wrong answer, but
//!   cannot make the program misbehave otherwise.
//!
//! # Prefix tables
//!
//! ```text
//!                 insert / remove
//!                       |
//!                       v
//!   Fib4 / Fib6:  prefix store  --- gaps: "from a to b no longer prefix covers" --->  lookup structure
//!                 (patricia trie:                                                     (DIR-24-8, 16-8-8,
//!                  exact, cover, walk)                                                 poptrie)  --> readers
//! ```
//!
//! The [`store`] knows the prefixes; the lookup structure is only the function from addresses to leaves that follows from
//! them. So the words of the lookup structure hold no prefix lengths, and a removal needs no rebuilding: the prefix that
//! covers the removed one gives the leaf, the store gives the addresses. The default route is a word beside the structure.
//! A leaf is a number from 1 to [`LEAF_MAX`]; a lookup answers 0 where there is no route.
//!
//! A table may have a copy of its lookup structure on each of several memory nodes ([`Options::nodes`]): a reader takes the one
//! near it. The store exists once. A change is made in all copies or in none; the order in which readers see it is told in
//! `fib/copies.rs`.
//!
//! | structure | module | for | why |
//! |---|---|---|---|
//! | DIR-24-8 | [`lpm4`] | the big IPv4 table | one load for nearly every address |
//! | 16-8-8 | [`lpm4`] | many IPv4 tables | memory follows the routes |
//! | poptrie | [`lpm6`] | IPv6 | 24 bits directly, then few levels, compact enough to stay in cache |
//! | bucketed hash | [`hash`] | sessions, neighbours, MAC addresses | a line for the tags, one for the entry |
//! | trees of boxes | [`boxes`] | access lists | 16 ways a line; memory linear in the rules, whatever they are |
//! | wheel | [`timer`] | ageing | starting and stopping cost a few stores |
//! | index pool | [`pool`] | interface and entry indices | the lowest free one comes back, after its grace period |
//! | ring | [`ring`] | hand-off between workers | one writer, one reader, a line transfer a batch |
//! | chunks | [`chunks`] | snapshots of things by number | a change copies 64 elements, a copy shares the rest |
//! | slots | [`slots`] | load-balance buckets, adjacencies | read by index, without a lock or a length |
//!
//! # Where the time goes
//!
//! `cargo bench -p quiver-tables` prints build time, memory and clocks a lookup for each prefix table beside a textbook crate, and for
//! access lists beside a linear search.
//! Functions of the data path are `#[inline(always)]` and generic over nothing that the caller's target features could not
//! reach, so that a node compiled for x86-64-v3 has POPCNT and BMI2 in them.
//!
//! # Limits
//!
//! One writer a structure: the types enforce it (`&mut self`). A table's leaves say nothing about their own lifetime; the
//! caller keeps what a leaf stands for alive until a grace period after the last prefix with it is gone. Reserved address
//! space is generous (DIR-24-8: 0.6 GB, poptrie: 0.5 GB) and counts against `RLIMIT_AS`, though not against memory.

pub mod address;
pub mod boxes;
pub mod chunks;
mod cpu;
pub mod error;
mod fib;
pub mod hash;
mod lpm;
pub mod lpm4;
pub mod lpm6;
pub mod mem;
#[doc(hidden)]
pub mod model;
pub mod pool;
pub mod qsbr;
pub mod ring;
pub mod slots;
pub mod store;
mod sync;
#[doc(hidden)]
pub mod synth;
pub mod timer;

pub use cpu::prefetch;
pub use error::{OutOfMemory, TableError};
pub use fib::{CopyInfo, Fib4, Fib6, Options, TableMemory};

/// The greatest leaf of a prefix table: the two bits above it belong to the structures.
pub const LEAF_MAX: u32 = (1 << 30) - 1;
