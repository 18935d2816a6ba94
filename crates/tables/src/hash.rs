//! A bounded hash table of fixed-size keys: lookups without locks, one writer, no pauses.
//!
//! ```text
//!   buckets, one cache line each                                     entries, in an array of their own
//!   +-------------------+-----+-------------------+----------+       +---------+-------+
//!   | tag, entry number | ... | tag, entry number | overflow |  ---> |   key   | value |
//!   +-------------------+-----+-------------------+----------+       +---------+-------+
//!      7 slots of 8 bytes                           8 bytes
//! ```
//!
//! A lookup reads the bucket its hash points at, compares 32-bit tags, and reads the entry of a slot whose tag agrees. If
//! the bucket's *overflow* is not zero, some entry that belongs here (or before) has found it full and lies in a bucket
//! further on: only then the next one is read. Overflow counts such entries and goes down when they are deleted, so
//! deletions leave nothing behind. Nothing ever moves: an entry that exists is found by every concurrent lookup.
//!
//! There are buckets for a load of 4 of 7 slots when the table is full, so about 5 % of the buckets overflow then. Entries
//! are filled before their slot is published, and after removal they wait out a grace period; a full table says so.
//! The hash is computed apart, so that a vector's hashes can be computed and its buckets fetched before the first lookup.
//!
//! A table may have several writers, each for the keys of its share of the buckets ([`BoundedHash::shards`]); readers see one table.

use crate::error::OutOfMemory;
use crate::mem::{AtomicRecord, Budget, PageKind, SharedArray};
use crate::qsbr::{Domain, Limbo};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use thiserror::Error;

mod key;
#[cfg(test)]
mod tests;
pub use key::{Key, Noted, WithNote};

const SLOTS: usize = 7;
/// Entries per bucket of a full table.
const LOAD: usize = 4;
/// Lookups that a batch has under way.
const LANES: usize = 8;

/// Why an insertion was refused. The table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InsertError {
    /// It holds as many entries as it was made for, counting removed ones that a reader may still look at.
    #[error("the table is full")]
    Full,
    /// No memory for another entry.
    #[error("out of memory")]
    OutOfMemory,
}

impl From<OutOfMemory> for InsertError {
    fn from(_: OutOfMemory) -> Self {
        InsertError::OutOfMemory
    }
}

/// Seven slots (tag in the high half, entry number plus one in the low half; 0: empty) and the overflow count.
type Bucket = [AtomicU64; SLOTS + 1];

#[derive(Debug)]
struct Table<E: AtomicRecord> {
    buckets: SharedArray<Bucket>,
    entries: SharedArray<E>,
    seed: u64,
    /// Buckets of each writer, which follow each other.
    share: usize,
}

impl<E: AtomicRecord> Table<E> {
    /// The bucket at `index`.
    #[inline(always)]
    fn bucket(&self, index: usize) -> &Bucket {
        debug_assert!(index < self.buckets.capacity());
        // SAFETY: callers have the index from `home` or `following`, which stay below the number of buckets.
        unsafe { self.buckets.at(index) }
    }

    /// The bucket that a hash belongs to: its high half scaled to the number of buckets.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.capacity() as u128) >> 64) as usize
    }

    #[inline(always)]
    fn following(&self, index: usize) -> usize {
        // Round the writer's share.
        if (index + 1).is_multiple_of(self.share) { index + 1 - self.share } else { index + 1 }
    }
}

/// The tag: the hash's low half, which the choice of the bucket hardly uses.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash << 32
}

#[inline(always)]
fn slot_entry(slot: u64) -> usize {
    (slot as u32 as usize).wrapping_sub(1)
}

/// The readers' handle. Cheap to clone; for threads that are registered with the table's domain.
pub struct HashReader<K: Key> {
    table: Arc<Table<K::Entry>>,
}

impl<K: Key> Clone for HashReader<K> {
    fn clone(&self) -> Self {
        HashReader { table: self.table.clone() }
    }
}

impl<K: Key> fmt::Debug for HashReader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashReader").field("buckets", &self.table.buckets.capacity()).finish()
    }
}

impl<K: Key> HashReader<K> {
    /// The hash of a key, as the other methods want it. It differs from table to table.
    #[inline(always)]
    pub fn hash(&self, key: &K) -> u64 {
        key.hash_seeded(self.table.seed)
    }

    /// Asks the CPU to fetch the bucket that the hash points at.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.table.buckets.prefetch(self.table.home(hash));
    }

    /// The value of a key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<u32> {
        self.get_hashed(key, self.hash(key))
    }

    /// The value of a key whose hash is known.
    #[inline(always)]
    pub fn get_hashed(&self, key: &K, hash: u64) -> Option<u32> {
        self.find_hashed(key, hash).map(|(_, value)| value)
    }

    /// The number of a key's entry, and its value. As long as a reader may look at the entry no other one has its number, which is
    /// below the table's capacity.
    #[inline(always)]
    pub fn find(&self, key: &K) -> Option<(u32, u32)> {
        self.find_hashed(key, self.hash(key))
    }

    /// As [`find`](Self::find), for a hash that is known.
    #[inline(always)]
    pub fn find_hashed(&self, key: &K, hash: u64) -> Option<(u32, u32)> {
        let table = &*self.table;
        let mut index = table.home(hash);
        for _ in 0..table.share {
            let bucket = table.bucket(index);
            for slot in &bucket[..SLOTS] {
                let slot = slot.load(Ordering::Acquire);
                // An empty slot is 0 and has an entry number of 0, which no full one has.
                if (slot ^ tag(hash)) >> 32 == 0 && slot as u32 != 0 {
                    // SAFETY: slots hold numbers of entries inside the reservation, plus one.
                    let entry = unsafe { table.entries.at(slot_entry(slot)) };
                    if key.is_in(entry) {
                        return Some((slot_entry(slot) as u32, K::value(entry).load(Ordering::Relaxed)));
                    }
                }
            }
            if bucket[SLOTS].load(Ordering::Acquire) == 0 {
                return None;
            }
            index = table.following(index);
        }
        None
    }

    /// The number of an entry that a hash points at: nearly always the key's, where the table has it. Without a branch that depends on
    /// where in the bucket it stands, so that entries can be fetched before they are compared.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = self.table.bucket(self.table.home(hash));
        let mut mask = 0_u32;
        for (at, slot) in bucket[..SLOTS].iter().enumerate() {
            let slot = slot.load(Ordering::Acquire);
            mask |= u32::from((slot ^ tag(hash)) >> 32 == 0 && slot as u32 != 0) << at;
        }
        let slot = bucket.get(mask.trailing_zeros() as usize)?.load(Ordering::Acquire);
        // It may have been emptied meanwhile.
        u32::try_from(slot_entry(slot)).ok()
    }

    /// Asks the CPU to fetch an entry.
    #[inline(always)]
    pub fn prefetch_entry(&self, number: u32) {
        self.table.entries.prefetch(number as usize);
    }

    /// The value of the entry with this number, where it has this key.
    #[inline(always)]
    pub fn value_at(&self, number: u32, key: &K) -> Option<u32> {
        let entries = &self.table.entries;
        if number as usize >= entries.capacity() {
            return None;
        }
        // SAFETY: just compared; all of a reservation is readable.
        let entry = unsafe { entries.at(number as usize) };
        key.is_in(entry).then(|| K::value(entry).load(Ordering::Relaxed))
    }

    /// Which of the table's writers ([`BoundedHash::shards`]) has the keys with this hash.
    pub fn shard(&self, hash: u64) -> usize {
        self.table.home(hash) / self.table.share
    }

    /// Looks several keys up, their buckets being fetched ahead; stops at the end of the shortest slice. `hashes` is where
    /// the hashes go, for use with [`get_hashed`](Self::get_hashed) or an insertion afterwards.
    #[inline(always)]
    pub fn get_batch(&self, keys: &[K], hashes: &mut [u64], out: &mut [Option<u32>]) {
        let n = keys.len().min(hashes.len()).min(out.len());
        let (keys, hashes, out) = (&keys[..n], &mut hashes[..n], &mut out[..n]);
        for (key, hash) in keys.iter().zip(hashes.iter_mut()) {
            *hash = self.hash(key);
        }
        for hash in hashes.iter().take(LANES) {
            self.prefetch(*hash);
        }
        for i in 0..n {
            if let Some(hash) = hashes.get(i + LANES) {
                self.prefetch(*hash);
            }
            out[i] = self.get_hashed(&keys[i], hashes[i]);
        }
    }
}

impl<K: WithNote> HashReader<K> {
    /// The note of the entry with this number: a word that is 0 when the entry is made, and that readers may change.
    #[inline(always)]
    pub fn note(&self, number: u32) -> Option<&AtomicU64> {
        let entries = &self.table.entries;
        // SAFETY: below the number of those that may be written.
        ((number as usize) < entries.committed()).then(|| K::note(unsafe { entries.at(number as usize) }))
    }
}

/// The table's owner: the only one that inserts and removes; of several, the only one of its share.
pub struct BoundedHash<K: Key> {
    reader: HashReader<K>,
    /// The first of its buckets, and of its entries.
    first: (usize, usize),
    capacity: usize,
    len: usize,
    /// Entries ever used.
    fresh: usize,
    /// Free entries, by a chain through their value words: entry number plus one, 0 at the end.
    free: u32,
    limbo: Limbo<u32>,
    _key: PhantomData<K>,
}

impl<K: Key> fmt::Debug for BoundedHash<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedHash").field("capacity", &self.capacity).field("len", &self.len).finish()
    }
}

impl<K: Key> BoundedHash<K> {
    /// A table for `capacity` entries, read by the threads of `domain`. The hash is seeded at random.
    pub fn new(capacity: u32, domain: &Domain) -> Result<Self, OutOfMemory> {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(capacity);
        Self::with_options(capacity, domain, seed, PageKind::Base, &Budget::unlimited())
    }

    /// As [`new`](Self::new), with a seed, a choice of pages and a memory limit.
    pub fn with_options(capacity: u32, domain: &Domain, seed: u64, pages: PageKind, budget: &Budget) -> Result<Self, OutOfMemory> {
        let reader = Self::reserve(1, capacity as usize, seed, pages, budget)?;
        Ok(Self::writer(reader, 0, capacity as usize, domain))
    }

    /// The writers of one table, each of which has room for `capacity` entries. [`HashReader::shard`] says which of them has a key: no
    /// other may insert or remove it. All of the memory is set aside now, and taken as it is written.
    pub fn shards(
        count: usize,
        capacity: u32,
        domain: &Domain,
        seed: u64,
        pages: PageKind,
        budget: &Budget,
    ) -> Result<Vec<Self>, OutOfMemory> {
        let reader = Self::reserve(count.max(1), capacity as usize, seed, pages, budget)?;
        reader.table.entries.commit(reader.table.entries.capacity())?;
        Ok((0..count.max(1)).map(|at| Self::writer(reader.clone(), at, capacity as usize, domain)).collect())
    }

    fn reserve(count: usize, capacity: usize, seed: u64, pages: PageKind, budget: &Budget) -> Result<HashReader<K>, OutOfMemory> {
        let share = capacity.div_ceil(LOAD).max(1);
        let buckets = SharedArray::reserve(share.checked_mul(count).ok_or(OutOfMemory)?, pages, budget)?;
        buckets.commit(buckets.capacity())?;
        let all = capacity.max(1).checked_mul(count).filter(|all| u32::try_from(*all).is_ok()).ok_or(OutOfMemory)?;
        let entries = SharedArray::reserve(all, pages, budget)?;
        Ok(HashReader { table: Arc::new(Table { buckets, entries, seed, share }) })
    }

    fn writer(reader: HashReader<K>, at: usize, capacity: usize, domain: &Domain) -> Self {
        let first = (at * reader.table.share, at * capacity.max(1));
        BoundedHash { reader, first, capacity, len: 0, fresh: 0, free: 0, limbo: Limbo::new(domain), _key: PhantomData }
    }

    /// The readers' handle; it has the lookups. The owner may look up here too.
    pub fn reader(&self) -> &HashReader<K> {
        &self.reader
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many entries there can be.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: &K) -> u64 {
        self.reader.hash(key)
    }

    /// Asks the CPU to fetch the bucket that the hash points at.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.reader.prefetch(hash);
    }

    /// The value of a key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<u32> {
        self.reader.get(key)
    }

    /// The value of a key whose hash is known.
    #[inline(always)]
    pub fn get_hashed(&self, key: &K, hash: u64) -> Option<u32> {
        self.reader.get_hashed(key, hash)
    }

    /// Looks several keys up; see [`HashReader::get_batch`].
    #[inline(always)]
    pub fn get_batch(&self, keys: &[K], hashes: &mut [u64], out: &mut [Option<u32>]) {
        self.reader.get_batch(keys, hashes, out);
    }

    /// Sets the value of a key; returns the one that it had.
    pub fn insert(&mut self, key: K, value: u32) -> Result<Option<u32>, InsertError> {
        self.insert_hashed(key, self.hash(&key), value)
    }

    /// As [`insert`](Self::insert), for a hash that is known.
    pub fn insert_hashed(&mut self, key: K, hash: u64, value: u32) -> Result<Option<u32>, InsertError> {
        let table = self.reader.table.clone();
        if let Some((_, _, entry)) = find(&table, &key, hash) {
            return Ok(Some(K::value(entry).swap(value, Ordering::Relaxed)));
        }
        self.reclaim();
        self.limbo.reserve(self.len + 1)?;
        let number = self.take_entry()?;
        // SAFETY: just taken, so inside the reservation and committed.
        let entry = unsafe { table.entries.at(number as usize) };
        key.write(entry);
        K::value(entry).store(value, Ordering::Relaxed);
        // There are more slots than entries, so an empty one is found before the walk is round.
        let mut index = table.home(hash);
        loop {
            let bucket = table.bucket(index);
            if let Some(slot) = bucket[..SLOTS].iter().find(|s| s.load(Ordering::Relaxed) == 0) {
                slot.store(tag(hash) | u64::from(number + 1), Ordering::Release);
                self.len += 1;
                return Ok(None);
            }
            bucket[SLOTS].fetch_add(1, Ordering::Release);
            index = table.following(index);
        }
    }

    /// Takes a key out; returns the value that it had.
    pub fn remove(&mut self, key: &K) -> Option<u32> {
        self.remove_hashed(key, self.hash(key))
    }

    /// As [`remove`](Self::remove), for a hash that is known.
    pub fn remove_hashed(&mut self, key: &K, hash: u64) -> Option<u32> {
        let table = self.reader.table.clone();
        let (index, slot, entry) = find(&table, key, hash)?;
        let value = K::value(entry).load(Ordering::Relaxed);
        let number = slot_entry(slot.swap(0, Ordering::Release)) as u32;
        // The buckets that it had passed over have one less beyond them.
        let mut passed = table.home(hash);
        while passed != index {
            table.bucket(passed)[SLOTS].fetch_sub(1, Ordering::Release);
            passed = table.following(passed);
        }
        self.len -= 1;
        self.limbo.retire([number]);
        Some(value)
    }

    fn take_entry(&mut self) -> Result<u32, InsertError> {
        let entries = &self.reader.table.entries;
        if self.free != 0 {
            let number = self.free - 1;
            // SAFETY: free entries were used before, so they are committed.
            self.free = K::value(unsafe { entries.at(number as usize) }).load(Ordering::Relaxed);
            return Ok(number);
        }
        if self.fresh >= self.capacity {
            return Err(InsertError::Full);
        }
        let number = self.first.1 + self.fresh;
        entries.commit(number + 1)?;
        self.fresh += 1;
        Ok(number as u32)
    }

    /// Makes entries usable again whose grace period is over. Insertion does it too.
    pub fn reclaim(&mut self) {
        let BoundedHash { limbo, free, reader, .. } = self;
        limbo.reclaim(|number| {
            // SAFETY: retired entries are committed, and their grace period is over.
            K::value(unsafe { reader.table.entries.at(number as usize) }).store(*free, Ordering::Relaxed);
            *free = number + 1;
        });
    }

    /// Calls `f` with every key and value, in no order.
    pub fn for_each(&self, mut f: impl FnMut(K, u32)) {
        self.for_each_numbered(|_, key, value| f(key, value));
    }

    /// Calls `f` with the number of every entry ([`HashReader::find`]), its key and its value, in no order.
    pub fn for_each_numbered(&self, mut f: impl FnMut(u32, K, u32)) {
        let table = &*self.reader.table;
        for index in self.first.0..self.first.0 + table.share {
            for slot in &table.bucket(index)[..SLOTS] {
                let slot = slot.load(Ordering::Relaxed);
                if slot as u32 != 0 {
                    // SAFETY: as in `get_hashed`.
                    let entry = unsafe { table.entries.at(slot_entry(slot)) };
                    f(slot_entry(slot) as u32, K::read(entry), K::value(entry).load(Ordering::Relaxed));
                }
            }
        }
    }

    /// Bytes of real memory: of the whole table, and of what this writer has beside it.
    pub fn memory_bytes(&self) -> usize {
        let table = &self.reader.table;
        table.buckets.resident() + table.entries.resident() + self.limbo.memory_bytes()
    }
}

/// Where a key is: bucket, slot and entry.
fn find<'a, K: Key>(table: &'a Table<K::Entry>, key: &K, hash: u64) -> Option<(usize, &'a AtomicU64, &'a K::Entry)> {
    let mut index = table.home(hash);
    for _ in 0..table.share {
        let bucket = table.bucket(index);
        for slot in &bucket[..SLOTS] {
            let word = slot.load(Ordering::Relaxed);
            if (word ^ tag(hash)) >> 32 == 0 && word as u32 != 0 {
                // SAFETY: as in `get_hashed`.
                let entry = unsafe { table.entries.at(slot_entry(word)) };
                if key.is_in(entry) {
                    return Some((index, slot, entry));
                }
            }
        }
        if bucket[SLOTS].load(Ordering::Relaxed) == 0 {
            return None;
        }
        index = table.following(index);
    }
    None
}

/// The value word of an entry of words: the last one, of 32 bits.
pub(crate) type ValueWord = AtomicU32;
