//! Prefix tables for the control side: a prefix store and the lookup structure that is kept in step with it, or its copies
//! on several memory nodes.

use crate::address::Address;
use crate::error::TableError;
use crate::lpm::{LpmWriter, PrefixChange};
use crate::lpm4::{self, Lpm4, Lpm4Lookup, StrideWriter};
use crate::lpm6::{Lpm6, PoptrieWriter};
use crate::mem::{Budget, PageKind};
use crate::qsbr::Domain;
use crate::store::{Iter, PrefixStore};
use crate::{LEAF_MAX, OutOfMemory};

mod copies;
#[cfg(test)]
mod tests;
use copies::Copies;
pub use copies::CopyInfo;

/// The parts that both families share: every change goes to the store first, then to all copies of the lookup structure, and is
/// taken back in the store if that fails.
#[derive(Debug)]
struct Table<W: LpmWriter> {
    store: PrefixStore<W::Addr>,
    lpm: Copies<W>,
    budget: Budget,
}

impl<W: LpmWriter> Table<W> {
    fn new(options: Options, make: impl Fn(&Options) -> Result<W, OutOfMemory>) -> Result<Self, TableError> {
        let lpm = Copies::new(&options.nodes, || make(&options))?;
        Ok(Table { store: PrefixStore::new(&options.budget), lpm, budget: options.budget })
    }

    fn insert(&mut self, prefix: W::Addr, len: u8, leaf: u32) -> Result<Option<u32>, TableError> {
        check(W::Addr::BITS, len)?;
        if leaf == 0 || leaf > LEAF_MAX {
            return Err(TableError::Leaf(leaf));
        }
        let old = self.store.insert(prefix, len, leaf)?;
        if old == Some(leaf) {
            return Ok(old);
        }
        let done = if len == 0 {
            self.lpm.set_default(leaf);
            Ok(())
        } else {
            self.lpm.change(&PrefixChange { prefix, len, leaf, gone: false }, &self.store)
        };
        if let Err(e) = done {
            match old {
                Some(old) => _ = self.store.insert(prefix, len, old),
                None => _ = self.store.remove(prefix, len),
            }
            return Err(e.into());
        }
        Ok(old)
    }

    fn remove(&mut self, prefix: W::Addr, len: u8) -> Result<Option<u32>, TableError> {
        check(W::Addr::BITS, len)?;
        let Some(old) = self.store.remove(prefix, len) else {
            return Ok(None);
        };
        let done = if len == 0 {
            self.lpm.set_default(0);
            Ok(())
        } else {
            // The default route is a word of its own: where only it covers, the structure has no leaf.
            let cover = self.store.cover(prefix, len).filter(|(cover_len, _)| *cover_len > 0).map_or(0, |(_, leaf)| leaf);
            self.lpm.change(&PrefixChange { prefix, len, leaf: cover, gone: true }, &self.store)
        };
        if let Err(e) = done {
            // The store kept the nodes of what it has just removed, so this finds room.
            let back: Result<_, OutOfMemory> = self.store.insert(prefix, len, old);
            debug_assert!(back.is_ok());
            return Err(e.into());
        }
        Ok(Some(old))
    }

    fn memory(&self) -> TableMemory {
        TableMemory { store: self.store.memory_bytes(), copies: self.lpm.info() }
    }
}

/// The memory of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMemory {
    /// Bytes of the prefix store.
    pub store: usize,
    /// The copies of the lookup structure, in the order of [`Options::nodes`]; one where no nodes were named.
    pub copies: Vec<CopyInfo>,
}

impl TableMemory {
    /// All bytes together.
    pub fn total(&self) -> usize {
        self.store + self.copies.iter().map(|copy| copy.bytes).sum::<usize>()
    }
}

fn check(bits: u8, len: u8) -> Result<(), TableError> {
    if len <= bits { Ok(()) } else { Err(TableError::PrefixLength { len, bits }) }
}

macro_rules! fib {
    ($(#[$doc:meta])* $name:ident, $addr:ty, $writer:ty, $reader:ty) => {
        $(#[$doc])*
        ///
        /// Prefix bits past the length are ignored. Leaves are 1 to 2^30 - 1. A failed operation has changed nothing.
        #[derive(Debug)]
        pub struct $name {
            table: Table<$writer>,
        }

        impl $name {
            /// Sets the leaf of a prefix; returns the one that it had.
            pub fn insert(&mut self, prefix: $addr, len: u8, leaf: u32) -> Result<Option<u32>, TableError> {
                self.table.insert(prefix, len, leaf)
            }

            /// Takes a prefix out; returns the leaf that it had. Its addresses fall back to the prefix that covers it.
            pub fn remove(&mut self, prefix: $addr, len: u8) -> Result<Option<u32>, TableError> {
                self.table.remove(prefix, len)
            }

            /// The leaf of exactly this prefix.
            pub fn get(&self, prefix: $addr, len: u8) -> Option<u32> {
                self.table.store.get(prefix, len)
            }

            /// The longest prefix that contains this one and is not it: its length and leaf.
            pub fn cover(&self, prefix: $addr, len: u8) -> Option<(u8, u32)> {
                self.table.store.cover(prefix, len)
            }

            /// The longest prefix that contains `addr`: its length and leaf. Always up to date, also inside a batch.
            pub fn longest_match(&self, addr: $addr) -> Option<(u8, u32)> {
                self.table.store.lookup(addr)
            }

            /// All prefixes as `(first address, length, leaf)`, by address, shorter before longer.
            pub fn iter(&self) -> Iter<'_, $addr> {
                self.table.store.iter()
            }

            /// The prefixes in `prefix`/`len`, itself included, in order.
            pub fn iter_under(&self, prefix: $addr, len: u8) -> Iter<'_, $addr> {
                self.table.store.iter_under(prefix, len)
            }

            /// The prefixes after `prefix`/`len` in order: resumes a walk that has let others run in between.
            pub fn iter_after(&self, prefix: $addr, len: u8) -> Iter<'_, $addr> {
                self.table.store.iter_after(prefix, len)
            }

            /// How many prefixes there are, the default route included.
            pub fn len(&self) -> usize {
                self.table.store.len()
            }

            /// Whether there is no prefix.
            pub fn is_empty(&self) -> bool {
                self.table.store.is_empty()
            }

            /// Bytes of real memory that the table takes.
            pub fn memory_bytes(&self) -> usize {
                self.memory().total()
            }

            /// The same by its parts.
            pub fn memory(&self) -> TableMemory {
                self.table.memory()
            }

            /// How many copies of the lookup structure there are: one for each of [`Options::nodes`], but at least one.
            pub fn copy_count(&self) -> usize {
                self.table.lpm.count()
            }

            /// The data path's handle: cheap to clone, to be used by threads that are registered with the domain. It is that of
            /// the first copy.
            pub fn reader(&self) -> $reader {
                self.reader_of(0)
            }

            /// The table's memory limit, to read or to change.
            pub fn budget(&self) -> &Budget {
                &self.table.budget
            }

            /// Frees what is past its grace period. Every change does so too.
            pub fn reclaim(&mut self) {
                self.table.lpm.reclaim();
            }

            /// Makes many changes cheaper: readers may see none of them until `f` is done, then see all of them. Each
            /// change succeeds or fails by itself.
            pub fn batch<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
                self.begin();
                let result = f(self);
                self.commit();
                result
            }

            /// Starts a batch that ends with [`commit`](Self::commit); see [`batch`](Self::batch).
            pub fn begin(&mut self) {
                self.table.lpm.begin();
            }

            /// Ends a batch: readers see its changes. Cannot fail.
            pub fn commit(&mut self) {
                self.table.lpm.commit();
            }
        }
    };
}

fib! {
    /// An IPv4 table.
    Fib4, u32, Writer4, Lpm4
}

fib! {
    /// An IPv6 table.
    Fib6, u128, PoptrieWriter, Lpm6
}

/// What a table may be told when it is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Huge pages for the lookup structure.
    pub pages: PageKind,
    /// The limit of all its parts together, all copies included.
    pub budget: Budget,
    /// A copy of the lookup structure on each of these memory nodes (the kernel's numbers), so that a reader finds one near it.
    /// Empty: one structure, wherever the kernel takes its memory from. A node that the kernel refuses has its copy elsewhere;
    /// see [`CopyInfo`].
    pub nodes: Vec<u32>,
}

impl Fib4 {
    /// An empty table whose readers are those of `domain`. DIR-24-8 asks for transparent huge pages.
    pub fn new(kind: lpm4::Kind, domain: &Domain) -> Result<Self, TableError> {
        let pages = if kind == lpm4::Kind::Dir24 { PageKind::Transparent } else { PageKind::Base };
        Self::with_options(kind, domain, Options { pages, ..Options::default() })
    }

    /// An empty table with a memory limit or a choice of pages.
    pub fn with_options(kind: lpm4::Kind, domain: &Domain, options: Options) -> Result<Self, TableError> {
        let make = |options: &Options| {
            let Options { pages, budget, nodes: _ } = options;
            Ok(match kind {
                lpm4::Kind::Dir24 => Writer4::Dir24(StrideWriter::new(domain, budget, *pages)?),
                lpm4::Kind::Trie16 => Writer4::Trie16(StrideWriter::new(domain, budget, *pages)?),
            })
        };
        Ok(Fib4 { table: Table::new(options, make)? })
    }

    /// The handle of a copy, by its place among [`Options::nodes`]; of the first where there is none.
    pub fn reader_of(&self, copy: usize) -> Lpm4 {
        match self.table.lpm.writer(copy) {
            Writer4::Dir24(w) => Lpm4::Dir24(w.reader()),
            Writer4::Trie16(w) => Lpm4::Trie16(w.reader()),
        }
    }

    /// What the data path answers: the leaf, or 0.
    pub fn lookup(&self, addr: u32) -> u32 {
        self.reader().lookup(addr)
    }
}

impl Fib6 {
    /// An empty table whose readers are those of `domain`.
    pub fn new(domain: &Domain) -> Result<Self, TableError> {
        Self::with_options(domain, Options::default())
    }

    /// An empty table with a memory limit or a choice of pages.
    pub fn with_options(domain: &Domain, options: Options) -> Result<Self, TableError> {
        let make = |options: &Options| PoptrieWriter::new(domain, &options.budget, options.pages);
        Ok(Fib6 { table: Table::new(options, make)? })
    }

    /// The handle of a copy, by its place among [`Options::nodes`]; of the first where there is none.
    pub fn reader_of(&self, copy: usize) -> Lpm6 {
        self.table.lpm.writer(copy).reader()
    }

    /// What the data path answers: the leaf, or 0.
    pub fn lookup(&self, addr: u128) -> u32 {
        self.reader().lookup(addr)
    }
}

/// The writing side of either IPv4 structure.
#[derive(Debug)]
enum Writer4 {
    Dir24(StrideWriter<24>),
    Trie16(StrideWriter<16>),
}

macro_rules! either {
    ($self:ident, $w:ident => $e:expr) => {
        match $self {
            Writer4::Dir24($w) => $e,
            Writer4::Trie16($w) => $e,
        }
    };
}

impl LpmWriter for Writer4 {
    type Addr = u32;

    fn prepare(&mut self, change: &PrefixChange<u32>, store: &PrefixStore<u32>) -> Result<(), OutOfMemory> {
        either!(self, w => w.prepare(change, store))
    }
    fn publish(&mut self, change: &PrefixChange<u32>, store: &PrefixStore<u32>) {
        either!(self, w => w.publish(change, store));
    }
    fn cancel(&mut self) {
        either!(self, w => w.cancel());
    }
    fn set_default(&mut self, leaf: u32) {
        either!(self, w => w.set_default(leaf));
    }
    fn reclaim(&mut self) {
        either!(self, w => w.reclaim());
    }
    fn place(&self, node: u32) -> std::io::Result<()> {
        either!(self, w => w.place(node))
    }
    fn memory_bytes(&self) -> usize {
        either!(self, w => w.memory_bytes())
    }
}
