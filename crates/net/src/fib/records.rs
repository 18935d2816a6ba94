//! What the data path reads of the FIB: load-balances, their buckets, adjacencies. All of it is written by the main thread,
//! word by word, so that a packet finds a whole answer at any time.
//!
//! ```text
//!  leaf ──► load-balance record (u64) ──► bucket (u32: class and index) ──► adjacency record (64 bytes)
//!            one bucket: inline            several: an array of 2^n, chosen by the flow hash
//! ```

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quiver_graph::IfIndex;
use quiver_tables::OutOfMemory;
use quiver_tables::slots::{AtomicSlots, SlotsReader, SlotsView};

use crate::ip::FlowHash;
use crate::watch::Watch;

/// Most load-balances (distinct path lists). Routes with the same paths share one.
pub const LOAD_BALANCES_MAX: u32 = 1 << 18;
/// Most adjacencies.
pub const ADJACENCIES_MAX: u32 = 1 << 17;
/// Most buckets of all load-balances together.
pub const BUCKETS_MAX: u32 = 1 << 22;

/// What happens to a packet, as a bucket says it. The order is that of the lookup nodes' next slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Dropped.
    Drop = 0,
    /// Handed to the host.
    Punt = 1,
    /// For this router.
    Receive = 2,
    /// On a link, neighbour not yet asked for; the index is the glean adjacency.
    Glean = 3,
    /// To a neighbour whose MAC address is not known.
    Incomplete = 4,
    /// To a neighbour.
    Rewrite = 5,
    /// Looked up again in the table whose FIB index is the bucket's index.
    Lookup = 6,
    /// Answered by an ICMP error: the index is a [`Null`].
    Null = 7,
    /// A link-local destination: decided by interface.
    LinkLocal = 8,
    /// Its source address is looked up in the table whose FIB index is the bucket's index.
    SourceLookup = 9,
    /// Taken as if it had come in on the interface that is the bucket's index.
    InterfaceRx = 10,
}

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 11;
    const ALL: [Self; Self::COUNT] = [
        Self::Drop,
        Self::Punt,
        Self::Receive,
        Self::Glean,
        Self::Incomplete,
        Self::Rewrite,
        Self::Lookup,
        Self::Null,
        Self::LinkLocal,
        Self::SourceLookup,
        Self::InterfaceRx,
    ];
}

/// Which answer [`Class::Null`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Null {
    /// None.
    Silent = 0,
    /// Destination unreachable.
    Unreachable = 1,
    /// Administratively prohibited.
    Prohibited = 2,
}

/// Why a bucket of [`Class::Drop`] drops: its index.
pub struct DropIndex;

impl DropIndex {
    /// Nothing but the default covers the destination.
    pub const NO_ROUTE: u32 = 0;
    /// A route says so.
    pub const BY_ROUTE: u32 = 1;
    /// The address belongs to no host.
    pub const SPECIAL: u32 = 2;
    /// No path of the route is up.
    pub const NO_PATH: u32 = 3;
}

/// Class and index in one word: what a packet needs to know to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub(crate) u32);

const CLASS_SHIFT: u32 = 28;

impl Bucket {
    /// Dropped because there is no route.
    pub const DROP: Self = Self::new(Class::Drop, DropIndex::NO_ROUTE);
    /// Dropped because no path is up.
    pub const NO_PATH: Self = Self::new(Class::Drop, DropIndex::NO_PATH);

    /// A bucket; the index is below 2^28.
    pub const fn new(class: Class, index: u32) -> Self {
        Self((class as u32) << CLASS_SHIFT | index)
    }

    /// The class.
    pub fn class(self) -> Class {
        Class::ALL.get(self.slot() as usize).copied().unwrap_or(Class::Drop)
    }

    /// The class as a number.
    #[inline(always)]
    pub(crate) const fn slot(self) -> u16 {
        (self.0 >> CLASS_SHIFT) as u16
    }

    /// Adjacency, FIB index, interface or [`Null`], by class.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0 & ((1 << CLASS_SHIFT) - 1)
    }
}

/// A load-balance as one word: the only bucket, or where the buckets are, how many, and what chooses among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbRecord(pub(crate) u64);

impl LbRecord {
    /// One bucket.
    pub const fn single(bucket: Bucket) -> Self {
        Self(bucket.0 as u64)
    }

    /// 2^`log2` buckets from `base` on.
    pub const fn many(base: u32, log2: u8, hash: FlowHash) -> Self {
        Self(base as u64 | (log2 as u64) << 32 | (hash.0 as u64) << 36)
    }

    /// Whether there are several buckets.
    #[inline(always)]
    pub const fn is_many(self) -> bool {
        self.buckets_log2() != 0
    }

    /// How many buckets there are, as a power of two.
    #[inline(always)]
    pub(crate) const fn buckets_log2(self) -> u64 {
        self.0 >> 32 & 0xf
    }

    /// The only bucket, where there is one.
    #[inline(always)]
    pub const fn bucket(self) -> Bucket {
        Bucket(self.0 as u32)
    }

    /// Position of the bucket that a flow hash chooses.
    #[inline(always)]
    pub const fn position(self, hash: u32) -> u32 {
        (self.0 as u32).wrapping_add(hash & ((1 << (self.0 >> 32 & 0xf)) - 1))
    }

    /// What the flow hash takes in.
    #[inline(always)]
    pub const fn hash(self) -> FlowHash {
        FlowHash((self.0 >> 36) as u16)
    }
}

/// Readers' side of load-balances.
#[derive(Clone, Debug)]
pub struct LbTable {
    records: SlotsReader<AtomicU64>,
    buckets: SlotsReader<AtomicU32>,
}

impl LbTable {
    /// The record of a load-balance; one that does not exist drops.
    #[inline(always)]
    pub fn get(&self, index: u32) -> LbRecord {
        LbRecord(self.records.get(index))
    }

    /// A bucket of an array.
    #[inline(always)]
    pub fn bucket(&self, position: u32) -> Bucket {
        Bucket(self.buckets.get(position))
    }

    /// The bucket for a flow; `hash` is asked only where there is a choice.
    #[inline(always)]
    pub fn choose(&self, index: u32, hash: impl FnOnce(FlowHash) -> u32) -> Bucket {
        let record = self.get(index);
        if record.is_many() { self.bucket(record.position(hash(record.hash()))) } else { record.bucket() }
    }
}

/// Bytes of a rewrite that a record can hold, right-aligned: Ethernet with two tags is 22.
pub const REWRITE_MAX: usize = 24;

/// An adjacency as the data path sees it: one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdjRecord {
    /// Interface that packets leave on.
    pub tx_if: IfIndex,
    /// Slot of `ip4-rewrite` or `ip6-rewrite` that leads to the interface's output node.
    pub next: u16,
    /// Largest layer-3 packet, bytes.
    pub mtu: u16,
    /// Length of the link header, bytes.
    pub rewrite_len: u8,
    /// The link header, in the last `rewrite_len` of these bytes.
    pub rewrite: [u8; REWRITE_MAX],
    /// Next hop of a neighbour; own address on the link of a glean adjacency. IPv4 in the low 32 bits.
    pub next_hop: u128,
}

pub(crate) type AdjWords = [u64; 8];

impl AdjRecord {
    /// The link header.
    pub fn link_header(&self) -> &[u8] {
        &self.rewrite[REWRITE_MAX - usize::from(self.rewrite_len).min(REWRITE_MAX)..]
    }

    /// Sets the link header, at most [`REWRITE_MAX`] bytes of it.
    pub fn set_link_header(&mut self, header: &[u8]) {
        let len = header.len().min(REWRITE_MAX);
        self.rewrite = [0; REWRITE_MAX];
        self.rewrite[REWRITE_MAX - len..].copy_from_slice(&header[..len]);
        self.rewrite_len = len as u8;
    }

    pub(crate) fn pack(&self) -> AdjWords {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.rewrite[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        [
            u64::from(self.tx_if.0 & 0xff_ffff)
                | u64::from(self.rewrite_len) << 24
                | u64::from(self.next) << 32
                | u64::from(self.mtu) << 48,
            word(0),
            word(8),
            word(16),
            self.next_hop as u64,
            (self.next_hop >> 64) as u64,
            0,
            0,
        ]
    }

    fn unpack(words: AdjWords) -> Self {
        let mut rewrite = [0; REWRITE_MAX];
        for (to, from) in rewrite.chunks_exact_mut(8).zip(&words[1..4]) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        let AdjHead { tx_if, next, mtu, rewrite_len } = AdjHead::unpack(words[0]);
        let next_hop = u128::from(words[4]) | u128::from(words[5]) << 64;
        Self { tx_if, next, mtu, rewrite_len, rewrite, next_hop }
    }
}

/// The first word of an adjacency record: all that decides where a packet goes.
#[derive(Clone, Copy, Debug)]
pub struct AdjHead {
    /// See [`AdjRecord`].
    pub tx_if: IfIndex,
    /// See [`AdjRecord`].
    pub next: u16,
    /// See [`AdjRecord`].
    pub mtu: u16,
    /// See [`AdjRecord`].
    pub rewrite_len: u8,
}

impl AdjHead {
    #[inline(always)]
    pub(crate) fn unpack(word: u64) -> Self {
        Self {
            tx_if: IfIndex(word as u32 & 0xff_ffff),
            rewrite_len: (word >> 24) as u8,
            next: (word >> 32) as u16,
            mtu: (word >> 48) as u16,
        }
    }
}

/// Readers' side of adjacencies.
#[derive(Clone, Debug)]
pub struct AdjTable(SlotsReader<[AtomicU64; 8]>);

impl AdjTable {
    /// The record. One that does not exist is all zeros: it leads to slot 0, a drop.
    pub fn get(&self, index: u32) -> AdjRecord {
        AdjRecord::unpack(self.0.get(index))
    }

    /// Interface that packets leave on: one load.
    #[inline(always)]
    pub fn tx_if(&self, index: u32) -> IfIndex {
        AdjHead::unpack(self.view().head(index)).tx_if
    }

    /// The first word of the record, and the link header, right-aligned, in memory order.
    #[inline(always)]
    pub(crate) fn link(&self, index: u32) -> (u64, [u64; 3]) {
        let [head, rewrite @ ..] = self.0.words::<0, 4>(index);
        (head, rewrite)
    }
}

impl LbTable {
    /// Records for a few reads.
    #[inline(always)]
    pub(crate) fn records(&self) -> SlotsView<'_, AtomicU64> {
        self.records.view()
    }
}

/// Adjacencies for a few reads.
#[derive(Clone, Copy)]
pub(crate) struct AdjView<'a>(SlotsView<'a, [AtomicU64; 8]>);

impl AdjTable {
    /// Adjacencies for a few reads.
    #[inline(always)]
    pub(crate) fn view(&self) -> AdjView<'_> {
        AdjView(self.0.view())
    }
}

impl AdjView<'_> {
    /// The first word of the record.
    #[inline(always)]
    pub fn head(self, index: u32) -> u64 {
        let [head] = self.0.words::<0, 1>(index);
        head
    }

    /// The link header, right-aligned, in memory order.
    #[inline(always)]
    pub fn header(self, index: u32) -> [u64; 3] {
        self.0.words::<1, 3>(index)
    }

    /// The last 16 bytes of the link header, in memory order.
    #[inline(always)]
    pub fn ethernet(self, index: u32) -> [u64; 2] {
        self.0.words::<2, 2>(index)
    }
}

/// Writers' side of all of it.
#[derive(Debug)]
pub(crate) struct Records {
    lbs: AtomicSlots<AtomicU64>,
    buckets: AtomicSlots<AtomicU32>,
    adjacencies: AtomicSlots<[AtomicU64; 8]>,
    pub watch: Watch,
}

impl Records {
    /// Empty arrays; only address space is taken.
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut records = Self {
            lbs: AtomicSlots::new(LOAD_BALANCES_MAX as usize)?,
            buckets: AtomicSlots::new(BUCKETS_MAX as usize)?,
            adjacencies: AtomicSlots::new(ADJACENCIES_MAX as usize)?,
            watch: Watch::default(),
        };
        records.lbs.grow(1)?;
        Ok(records)
    }

    pub fn load_balances(&self) -> LbTable {
        LbTable { records: self.lbs.reader(), buckets: self.buckets.reader() }
    }

    pub fn adjacencies(&self) -> AdjTable {
        AdjTable(self.adjacencies.reader())
    }

    /// Makes room for a load-balance, so that [`Records::set_lb`] cannot fail.
    pub fn reserve_lb(&mut self, index: u32) -> Result<(), OutOfMemory> {
        self.lbs.grow(index as usize + 1)
    }

    pub fn set_lb(&mut self, index: u32, record: LbRecord) {
        // Room was made when the index was taken.
        let _ = self.lbs.set(index, record.0);
        self.watch.tell(|keeper| keeper.load_balance(index));
    }

    pub fn lb(&self, index: u32) -> LbRecord {
        LbRecord(self.lbs.get(index))
    }

    pub fn reserve_buckets(&mut self, end: u32) -> Result<(), OutOfMemory> {
        self.buckets.grow(end as usize)
    }

    pub fn set_bucket(&mut self, position: u32, bucket: Bucket) {
        if self.buckets.get(position) != bucket.0 {
            let _ = self.buckets.set(position, bucket.0);
        }
    }

    pub fn bucket(&self, position: u32) -> Bucket {
        Bucket(self.buckets.get(position))
    }

    /// Writes an adjacency record that no packet can reach yet.
    pub fn fill_adjacency(&mut self, index: u32, record: &AdjRecord) -> Result<(), OutOfMemory> {
        self.adjacencies.set(index, record.pack())?;
        self.watch.tell(|keeper| keeper.adjacency(index));
        Ok(())
    }

    /// Changes a record under traffic: possible where no more than one word differs. `false` and no change otherwise.
    pub fn change_adjacency(&mut self, index: u32, record: &AdjRecord) -> bool {
        let (old, new) = (self.adjacencies.get(index), record.pack());
        let mut differ = (0..new.len()).filter(|i| old[*i] != new[*i]);
        match (differ.next(), differ.next()) {
            (None, _) => true,
            (Some(at), None) => {
                if let Some(slot) = self.adjacencies.slot(index) {
                    slot[at].store(new[at], Ordering::Release);
                }
                self.watch.tell(|keeper| keeper.adjacency(index));
                true
            }
            _ => false,
        }
    }

    pub fn adjacency(&self, index: u32) -> AdjRecord {
        AdjRecord::unpack(self.adjacencies.get(index))
    }

    pub fn memory_bytes(&self) -> usize {
        self.lbs.memory_bytes() + self.buckets.memory_bytes() + self.adjacencies.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjacency_survives_packing() {
        let mut record =
            AdjRecord { tx_if: IfIndex(16_383), next: 65_535, mtu: 9000, next_hop: u128::MAX - 5, ..Default::default() };
        for len in [0, 14, 18, 22, 24] {
            let header: Vec<u8> = (1..=len).collect();
            record.set_link_header(&header);
            assert_eq!(record.link_header(), header);
            assert_eq!(AdjRecord::unpack(record.pack()), record);
        }
    }

    #[test]
    fn a_record_is_changed_in_place_only_by_one_store() {
        let mut records = Records::new().unwrap();
        let mut record = AdjRecord { tx_if: IfIndex(3), ..Default::default() };
        record.set_link_header(&[1; 14]);
        records.fill_adjacency(7, &record).unwrap();
        // Destination of an untagged header: bytes 10 to 16, inside one word.
        record.set_link_header(&[2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert!(records.change_adjacency(7, &record));
        assert_eq!(records.adjacency(7), record);
        let before = record;
        record.set_link_header(&[9; 14]);
        assert!(!records.change_adjacency(7, &record));
        assert_eq!(records.adjacency(7), before);
    }

    #[test]
    fn a_load_balance_is_one_word() {
        let bucket = Bucket::new(Class::LinkLocal, (1 << 28) - 1);
        assert_eq!((bucket.class(), bucket.index()), (Class::LinkLocal, (1 << 28) - 1));
        let single = LbRecord::single(bucket);
        assert!(!single.is_many() && single.bucket() == bucket);
        let many = LbRecord::many(4_000_000, 10, FlowHash::DEFAULT);
        assert!(many.is_many());
        assert_eq!((many.position(0), many.position(u32::MAX), many.hash()), (4_000_000, 4_001_023, FlowHash::DEFAULT));
        assert_eq!(Bucket(u32::MAX).class(), Class::Drop);
    }
}
