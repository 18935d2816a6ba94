//! IPv4 longest-prefix match: one table of leaves per address block, as wide as memory allows.
//!
//! ```text
//!   DIR-24-8                                     16-8-8
//!   root: 2^24 words                             root: 2^16 words
//!   +--------+--------+--------+--               +--------+--------+--
//!   | leaf 3 | leaf 3 | group -+----.            | leaf 3 | group -+----.
//!   +--------+--------+--------+--  |            +--------+--------+--  |
//!                          group of 256 words           group of 256 words (bits 16..24)
//!                          +--------+--------+--        +--------+--------+--
//!                          | leaf 7 | leaf 3 |          | leaf 3 | group -+--- (bits 24..32)
//!                          +--------+--------+--        +--------+--------+--
//! ```
//!
//! A word is a leaf (below 2^30; 0: no route here, ask the default word) or, with the top bit set, the index of a group
//! that tells addresses of this block apart by the next 8 bits. A lookup is one load per level and can be overlapped
//! freely: a plain loop over addresses is as fast as anything staged by hand.
//!
//! Both are the same code with a different root width (`stride`). Choose [`Kind::Dir24`] for the big table (64 MB of
//! address space, of which only what routes cover is touched) and [`Kind::Trie16`] where there are many tables.
//!
//! *Updates* are in place: the writer knows from the prefix store which addresses no longer prefix covers and stores the
//! new leaf there, one atomic word after the other. A group exists exactly while a prefix needs it, so the number of
//! groups follows from the prefixes alone. It is filled before it is linked, and after unlinking it waits out a grace
//! period. Reading threads must be registered with the table's [`Domain`](crate::qsbr::Domain); one that is not could
//! follow a group that has become another's, and get a wrong (never a wild) answer.

mod stride;
pub use stride::StrideReader;
pub(crate) use stride::StrideWriter;

/// The lookups that every IPv4 structure answers.
pub trait Lpm4Lookup {
    /// The leaf of the longest prefix that contains `addr`, or 0.
    fn lookup(&self, addr: u32) -> u32;

    /// Asks the CPU to fetch the line that a lookup of `addr` begins with.
    fn prefetch(&self, addr: u32);

    /// Looks every address up; stops at the end of the shorter slice.
    fn lookup_batch(&self, addrs: &[u32], out: &mut [u32]);
}

/// Which structure an IPv4 table uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// DIR-24-8: one load for most addresses; up to 64 MB.
    Dir24,
    /// 16-8-8: up to three loads; memory in proportion to the routes.
    #[default]
    Trie16,
}

/// DIR-24-8, the reading side.
pub type Dir24 = StrideReader<24>;
/// 16-8-8, the reading side.
pub type Trie16 = StrideReader<16>;

/// The reading side of an IPv4 table. Cheap to clone, and shared by any number of threads.
///
/// `match` it once per vector to have the structure's own inlined loop, or use the methods here.
#[derive(Clone, Debug)]
pub enum Lpm4 {
    /// The table is a DIR-24-8.
    Dir24(Dir24),
    /// The table is a 16-8-8 trie.
    Trie16(Trie16),
}

impl Lpm4 {
    /// Whether both read the same memory: the same copy of the same table.
    pub fn reads_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Lpm4::Dir24(a), Lpm4::Dir24(b)) => a.reads_same(b),
            (Lpm4::Trie16(a), Lpm4::Trie16(b)) => a.reads_same(b),
            _ => false,
        }
    }
}

impl Lpm4Lookup for Lpm4 {
    #[inline(always)]
    fn lookup(&self, addr: u32) -> u32 {
        match self {
            Lpm4::Dir24(t) => t.lookup(addr),
            Lpm4::Trie16(t) => t.lookup(addr),
        }
    }

    #[inline(always)]
    fn prefetch(&self, addr: u32) {
        match self {
            Lpm4::Dir24(t) => t.prefetch(addr),
            Lpm4::Trie16(t) => t.prefetch(addr),
        }
    }

    #[inline(always)]
    fn lookup_batch(&self, addrs: &[u32], out: &mut [u32]) {
        match self {
            Lpm4::Dir24(t) => t.lookup_batch(addrs, out),
            Lpm4::Trie16(t) => t.lookup_batch(addrs, out),
        }
    }
}
