//! The two address families as types, so that tables and nodes are written once.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::{Batch, Memory, NextNodes, Pkt, Shared};
use quiver_tables::address::Address;
use quiver_tables::lpm4::{Kind, Lpm4, Lpm4Lookup};
use quiver_tables::lpm6::Lpm6;
use quiver_tables::mem::{Budget, PageKind};
use quiver_tables::qsbr::Domain;
use quiver_tables::{Fib4, Fib6, Options, TableError, TableMemory};
use quiver_wire::{Ipv4Prefix, Ipv6Prefix, U32Be, U128Be};

use super::hash::{FlowHash, hash4, hash6};
use super::lookup;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::V4 {}
    impl Sealed for super::V6 {}
}

/// A family as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FamilyId {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl FamilyId {
    /// Family of an address.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// `ip4` or `ip6`, as nodes are named.
    pub const fn node_prefix(self) -> &'static str {
        match self {
            Self::V4 => "ip4",
            Self::V6 => "ip6",
        }
    }
}

impl Display for FamilyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V4;
/// IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct V6;

/// What differs between IPv4 and IPv6.
pub trait Family: sealed::Sealed + Copy + Debug + Eq + Hash + Send + Sync + 'static {
    /// An address as a number, first bit highest.
    type Addr: Address;
    /// A prefix table, on the main thread.
    type Table: PrefixTable<Self::Addr>;
    /// The same, as nodes read it.
    type Reader: Clone + Send + Sync + 'static;
    /// Next nodes of the lookup, in the order of [`crate::fib::Class`].
    type LookupNext: NextNodes;
    /// As a value.
    const ID: FamilyId;
    /// Bits of an address.
    const BITS: u8 = Self::ID.bits();

    /// The number behind an address, where it is of this family.
    fn number(address: IpAddr) -> Option<Self::Addr>;

    /// The address behind a number.
    fn address(number: Self::Addr) -> IpAddr;

    /// An address as adjacency records have it.
    fn of_number(number: u128) -> Self::Addr;

    /// First address of the `n`th prefix of this length after the one that holds `address`; `None` past the last.
    fn nth(address: Self::Addr, len: u8, n: u64) -> Option<Self::Addr>;

    /// An empty table; `main` is the one that many routes are expected in. `nodes` are the memory nodes with a copy, as in
    /// [`Options::nodes`].
    ///
    /// # Errors
    /// No memory.
    fn table(main: bool, domain: &Domain, budget: &Budget, nodes: &[u32]) -> Result<Self::Table, TableError>;

    /// The nodes' handle of a copy of a table.
    fn reader(table: &Self::Table, copy: usize) -> Self::Reader;

    /// Leaf of the longest prefix that contains an address.
    fn lookup(reader: &Self::Reader, address: Self::Addr) -> u32;

    /// Whether the lines that lookups begin with are too many to be near, so that asking for them ahead is worth its instructions.
    fn is_wide(reader: &Self::Reader) -> bool;

    /// Fetches the line of the table that a lookup of this address begins with.
    fn prefetch(reader: &Self::Reader, address: Self::Addr);

    /// Prefetch distance of the lookup node. Most IPv4 lookups are one load, which is asked for ahead of its time (measured with all
    /// routes of the Internet: half of the clocks); for IPv6 the first of several loads is seldom the one that is waited for.
    const LOOKUP_PREFETCH: u8;

    /// Leaves for a batch of addresses.
    fn lookup_batch<const W: usize>(reader: &Self::Reader, addresses: &[Self::Addr; W]) -> [u32; W];

    /// This family's of an interface's two FIBs.
    fn fib_of(fibs: (u32, u32)) -> u32;

    /// Destination of a packet whose data begins at its IP header.
    fn destination<M: Memory>(packet: &Pkt<'_, M>) -> Self::Addr;

    /// Source of such a packet.
    fn source<M: Memory>(packet: &Pkt<'_, M>) -> Self::Addr;

    /// Destinations of a batch of such packets.
    fn destinations<const W: usize>(batch: &Batch<'_, W>) -> [Self::Addr; W];

    /// Flow hash of such a packet.
    fn flow_hash(packet: &Pkt<'_, Shared>, config: FlowHash) -> u32;
}

/// What the prefix tables of both families can do; see [`Fib4`].
pub trait PrefixTable<A>: 'static {
    /// Sets the leaf of a prefix.
    ///
    /// # Errors
    /// No memory; nothing has changed.
    fn insert(&mut self, prefix: A, len: u8, leaf: u32) -> Result<Option<u32>, TableError>;
    /// Takes a prefix out.
    ///
    /// # Errors
    /// No memory; nothing has changed.
    fn remove(&mut self, prefix: A, len: u8) -> Result<Option<u32>, TableError>;
    /// Leaf of exactly this prefix.
    fn get(&self, prefix: A, len: u8) -> Option<u32>;
    /// The longest prefix that contains this one and is not it.
    fn cover(&self, prefix: A, len: u8) -> Option<(u8, u32)>;
    /// The longest prefix that contains an address.
    fn longest_match(&self, address: A) -> Option<(u8, u32)>;
    /// All prefixes by address, shorter before longer.
    fn iter(&self) -> Box<dyn Iterator<Item = (A, u8, u32)> + '_>;
    /// Those after a prefix in that order.
    fn iter_after(&self, prefix: A, len: u8) -> Box<dyn Iterator<Item = (A, u8, u32)> + '_>;
    /// Number of prefixes.
    fn count(&self) -> usize;
    /// Its memory by parts.
    fn memory(&self) -> TableMemory;
    /// Begins a batch: readers may see none of its changes until it ends.
    fn begin(&mut self);
    /// Ends a batch.
    fn commit(&mut self);
}

macro_rules! prefix_table {
    ($table:ty, $addr:ty) => {
        impl PrefixTable<$addr> for $table {
            fn insert(&mut self, prefix: $addr, len: u8, leaf: u32) -> Result<Option<u32>, TableError> {
                <$table>::insert(self, prefix, len, leaf)
            }
            fn remove(&mut self, prefix: $addr, len: u8) -> Result<Option<u32>, TableError> {
                <$table>::remove(self, prefix, len)
            }
            fn get(&self, prefix: $addr, len: u8) -> Option<u32> {
                <$table>::get(self, prefix, len)
            }
            fn cover(&self, prefix: $addr, len: u8) -> Option<(u8, u32)> {
                <$table>::cover(self, prefix, len)
            }
            fn longest_match(&self, address: $addr) -> Option<(u8, u32)> {
                <$table>::longest_match(self, address)
            }
            fn iter(&self) -> Box<dyn Iterator<Item = ($addr, u8, u32)> + '_> {
                Box::new(<$table>::iter(self))
            }
            fn iter_after(&self, prefix: $addr, len: u8) -> Box<dyn Iterator<Item = ($addr, u8, u32)> + '_> {
                Box::new(<$table>::iter_after(self, prefix, len))
            }
            fn count(&self) -> usize {
                self.len()
            }
            fn memory(&self) -> TableMemory {
                <$table>::memory(self)
            }
            fn begin(&mut self) {
                <$table>::begin(self);
            }
            fn commit(&mut self) {
                <$table>::commit(self);
            }
        }
    };
}
prefix_table!(Fib4, u32);
prefix_table!(Fib6, u128);

impl Family for V4 {
    type Addr = u32;
    type Table = Fib4;
    type Reader = Lpm4;
    type LookupNext = lookup::Next4;
    const LOOKUP_PREFETCH: u8 = 8;
    const ID: FamilyId = FamilyId::V4;

    fn nth(address: u32, len: u8, n: u64) -> Option<u32> {
        let prefix = Ipv4Prefix::new(Ipv4Addr::from_bits(address), len).ok()?;
        Some(prefix.nth(n.try_into().ok()?)?.network().to_bits())
    }

    fn table(main: bool, domain: &Domain, budget: &Budget, nodes: &[u32]) -> Result<Fib4, TableError> {
        // 64 MB of address space, of which only what routes cover is touched, for the table that may hold the Internet's
        // routes; the others take memory in proportion to their routes.
        let (kind, pages) = if main { (Kind::Dir24, PageKind::Transparent) } else { (Kind::Trie16, PageKind::Base) };
        Fib4::with_options(kind, domain, Options { pages, budget: budget.clone(), nodes: nodes.to_vec() })
    }

    fn reader(table: &Fib4, copy: usize) -> Lpm4 {
        table.reader_of(copy)
    }

    #[inline(always)]
    fn lookup(reader: &Lpm4, address: u32) -> u32 {
        reader.lookup(address)
    }

    #[inline(always)]
    fn is_wide(reader: &Lpm4) -> bool {
        // A line holds sixteen /24s: these are 512 kB at most.
        matches!(reader, Lpm4::Dir24(table) if table.prefixes() > 8192)
    }

    #[inline(always)]
    fn prefetch(reader: &Lpm4, address: u32) {
        reader.prefetch(address);
    }

    #[inline(always)]
    fn fib_of(fibs: (u32, u32)) -> u32 {
        fibs.0
    }

    #[inline(always)]
    fn lookup_batch<const W: usize>(reader: &Lpm4, addresses: &[u32; W]) -> [u32; W] {
        let mut leaves = [0; W];
        reader.lookup_batch(addresses, &mut leaves);
        leaves
    }

    #[inline(always)]
    fn destination<M: Memory>(packet: &Pkt<'_, M>) -> u32 {
        packet.head_at::<U32Be, 16>().get()
    }

    #[inline(always)]
    fn source<M: Memory>(packet: &Pkt<'_, M>) -> u32 {
        packet.head_at::<U32Be, 12>().get()
    }

    #[inline(always)]
    fn destinations<const W: usize>(batch: &Batch<'_, W>) -> [u32; W] {
        batch.heads::<U32Be, 16>().map(U32Be::get)
    }

    fn flow_hash(packet: &Pkt<'_, Shared>, config: FlowHash) -> u32 {
        hash4(packet, config)
    }

    fn number(address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(a) => Some(a.to_bits()),
            IpAddr::V6(_) => None,
        }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn of_number(number: u128) -> u32 {
        number as u32
    }
}

impl Family for V6 {
    type Addr = u128;
    type Table = Fib6;
    type Reader = Lpm6;
    type LookupNext = lookup::Next6;
    const LOOKUP_PREFETCH: u8 = 0;
    const ID: FamilyId = FamilyId::V6;

    fn nth(address: u128, len: u8, n: u64) -> Option<u128> {
        Some(Ipv6Prefix::new(Ipv6Addr::from_bits(address), len).ok()?.nth(n.into())?.network().to_bits())
    }

    fn table(main: bool, domain: &Domain, budget: &Budget, nodes: &[u32]) -> Result<Fib6, TableError> {
        let pages = if main { PageKind::Transparent } else { PageKind::Base };
        Fib6::with_options(domain, Options { pages, budget: budget.clone(), nodes: nodes.to_vec() })
    }

    fn reader(table: &Fib6, copy: usize) -> Lpm6 {
        table.reader_of(copy)
    }

    #[inline(always)]
    fn lookup(reader: &Lpm6, address: u128) -> u32 {
        reader.lookup(address)
    }

    #[inline(always)]
    fn is_wide(_: &Lpm6) -> bool {
        true
    }

    #[inline(always)]
    fn prefetch(reader: &Lpm6, address: u128) {
        reader.prefetch(address);
    }

    #[inline(always)]
    fn fib_of(fibs: (u32, u32)) -> u32 {
        fibs.1
    }

    #[inline(always)]
    fn lookup_batch<const W: usize>(reader: &Lpm6, addresses: &[u128; W]) -> [u32; W] {
        reader.lookup_group(addresses)
    }

    #[inline(always)]
    fn destination<M: Memory>(packet: &Pkt<'_, M>) -> u128 {
        packet.head_at::<U128Be, 24>().get()
    }

    #[inline(always)]
    fn source<M: Memory>(packet: &Pkt<'_, M>) -> u128 {
        packet.head_at::<U128Be, 8>().get()
    }

    #[inline(always)]
    fn destinations<const W: usize>(batch: &Batch<'_, W>) -> [u128; W] {
        batch.heads::<U128Be, 24>().map(U128Be::get)
    }

    fn flow_hash(packet: &Pkt<'_, Shared>, config: FlowHash) -> u32 {
        hash6(packet, config)
    }

    fn number(address: IpAddr) -> Option<u128> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(a) => Some(a.to_bits()),
        }
    }

    fn address(number: u128) -> IpAddr {
        Ipv6Addr::from_bits(number).into()
    }

    fn of_number(number: u128) -> u128 {
        number
    }
}
