//! Which MAC address is behind which interface: a hash that workers read without locks and main alone writes.
//!
//! ```text
//!   bucket, one cache line:  | key 0 | key 1 | key 2 | key 3 | value 0 | value 1 | value 2 | value 3 |
//!   key                      | bridge-domain index (16) | MAC address (48) |                        0: empty
//!   value                    | - (16) | last heard, s (16) | flags (8) | interface (24) |             0: none
//! ```
//!
//! A look-up reads one line; only where a bucket has no empty slot does it go on to the next one, at most [`PROBES`] times.
//! A slot that is freed in such a full bucket becomes a tombstone, so that what lies further on is still found. The table
//! doubles when it is half full: main fills the bigger one beside the old one, some buckets at a time, then publishes it.
//!
//! A reader that meets a slot just as main uses it for another key may read the other's value once. It then sends one packet
//! the way of another address; that it cannot leave the bridge domain is checked at the egress port.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quiver_graph::{IfIndex, Published, Snapshot};
use quiver_wire::MacAddr;

/// Slots of a bucket.
const SLOTS: usize = 4;
/// Buckets that one key may lie in. A walk ends at the first that is not full, so many cost nothing; with 8, one table in 30
/// had no room for some key when it was half full, however well keys were spread.
const PROBES: usize = 32;
/// Buckets of a new table: 4,096 entries before it grows.
const FIRST_BUCKETS: usize = 2048;
/// Most entries in all (VPP's default limit).
pub const MAC_LIMIT: u32 = 16_777_216;
/// A key that no frame can have: its address is a group.
const TOMBSTONE: u64 = u64::MAX;
const IF_MASK: u64 = (1 << 24) - 1;
const ADDRESS: u64 = (1 << 48) - 1;

/// What is known of an address, as the table holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MacValue(pub u64);

impl MacValue {
    const PRESENT: u64 = 1 << 24;
    /// Configured: stays where it is.
    pub const STATIC: u64 = 1 << 25;
    /// Frames from and to it are dropped.
    pub const FILTER: u64 = 1 << 26;
    /// The address of the domain's BVI.
    pub const BVI: u64 = 1 << 27;
    /// Heard, not configured.
    pub const LEARNED: u64 = 1 << 28;

    pub fn new(interface: IfIndex, flags: u64, stamp: u16) -> Self {
        Self(u64::from(interface.0) & IF_MASK | flags | Self::PRESENT | u64::from(stamp) << 32)
    }

    /// What the low half of a learned address's value is where it is behind `interface`: one comparison in the node.
    #[inline(always)]
    pub const fn learned_on(interface: IfIndex) -> u32 {
        (interface.0 & IF_MASK as u32) | Self::PRESENT as u32 | Self::LEARNED as u32
    }

    /// The same of a static one.
    #[inline(always)]
    pub const fn static_on(interface: IfIndex) -> u32 {
        (interface.0 & IF_MASK as u32) | Self::PRESENT as u32 | Self::STATIC as u32
    }

    #[inline(always)]
    pub fn interface(self) -> IfIndex {
        IfIndex((self.0 & IF_MASK) as u32)
    }

    #[inline(always)]
    pub fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Zero where frames to the address are sent on.
    #[inline(always)]
    pub const fn obstacle(self) -> u64 {
        (self.0 ^ Self::PRESENT) & (Self::PRESENT | Self::FILTER)
    }

    #[inline(always)]
    pub fn stamp(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub fn with_stamp(self, stamp: u16) -> Self {
        Self(self.0 & 0xffff_ffff | u64::from(stamp) << 32)
    }
}

/// Key of an address in a bridge domain.
#[inline(always)]
pub(super) const fn key(domain: u16, address: u64) -> u64 {
    (domain as u64) << 48 | address & ADDRESS
}

pub(super) fn key_parts(key: u64) -> (u16, MacAddr) {
    ((key >> 48) as u16, MacAddr::from_u64(key & ADDRESS))
}

/// A cache line of keys and their values.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Bucket([AtomicU64; 2 * SLOTS]);

impl Bucket {
    /// The value of a key, 0 where it is not here. All slots are looked at: where an address lies is random, and a
    /// mispredicted branch costs more than three comparisons.
    #[inline(always)]
    pub fn value(&self, key: u64) -> MacValue {
        let mut same = 0;
        for slot in 0..SLOTS {
            same |= u32::from(self.0[slot].load(Ordering::Acquire) == key) << slot;
        }
        // Where none is the same, the first slot's value is read for nothing.
        let value = self.0[SLOTS + (same.trailing_zeros() as usize & (SLOTS - 1))].load(Ordering::Relaxed);
        MacValue(if same == 0 { 0 } else { value })
    }

    fn key(&self, slot: usize) -> u64 {
        self.0[slot].load(Ordering::Acquire)
    }

    fn is_full(&self) -> bool {
        (0..SLOTS).all(|slot| self.key(slot) != 0)
    }

    fn slot_of(&self, key: u64) -> Option<usize> {
        (0..SLOTS).find(|slot| self.key(*slot) == key)
    }

    fn put(&self, slot: usize, key: u64, value: u64) {
        self.0[SLOTS + slot].store(value, Ordering::Relaxed);
        self.0[slot].store(key, Ordering::Release);
    }
}

/// The table, as workers read it.
pub(super) struct MacTable {
    buckets: Box<[Bucket]>,
    shift: u32,
    seed: u64,
    /// Another number that nobody can guess, odd.
    factor: u64,
}

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a seed into a factor for products.
const fn factor(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb) | 1
}

impl MacTable {
    fn new(buckets: usize, seed: u64) -> Option<Self> {
        let buckets = buckets.max(2).next_power_of_two();
        let mut list = Vec::new();
        list.try_reserve_exact(buckets).ok()?;
        list.resize_with(buckets, Bucket::default);
        Some(Self { buckets: list.into_boxed_slice(), shift: 64 - buckets.trailing_zeros(), seed, factor: factor(seed) })
    }

    /// The bucket that a key belongs to. The seed is random: who chooses addresses cannot choose buckets.
    #[inline(always)]
    pub fn home(&self, key: u64) -> usize {
        let wide = u128::from(key ^ self.seed) * u128::from(self.factor);
        // One product maps addresses in a row to places in a row, which for some factors lie in a few heaps. Its halves folded
        // and multiplied once more lie anywhere (of 10,000 tables half full of addresses in a row, 85 had no room, and then 0).
        let folded = wide as u64 ^ (wide >> 64) as u64;
        (folded.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    /// A bucket without keys.
    #[inline(always)]
    pub fn nowhere() -> &'static Bucket {
        static NOWHERE: Bucket = Bucket([const { AtomicU64::new(0) }; 2 * SLOTS]);
        &NOWHERE
    }

    /// The bucket at home, asked for ahead of [`Bucket::value`].
    #[inline(always)]
    pub fn fetch(&self, home: usize) -> &Bucket {
        let bucket = self.buckets.get(home).unwrap_or(Self::nowhere());
        quiver_tables::prefetch(bucket);
        bucket
    }

    /// The value of a key that lies at home, where nearly all do; 0 where it does not.
    #[inline(always)]
    pub fn near(&self, key: u64, home: usize) -> MacValue {
        self.buckets.get(home).map_or(MacValue(0), |bucket| bucket.value(key))
    }

    /// The value of a key whose home is known; 0 where there is none.
    #[inline(always)]
    pub fn find(&self, key: u64, home: usize) -> MacValue {
        let value = self.near(key, home);
        if value.0 != 0 { value } else { self.find_further(key, home) }
    }

    #[cold]
    #[inline(never)]
    fn find_further(&self, key: u64, home: usize) -> MacValue {
        MacValue(self.place(key, home).map_or(0, |(bucket, slot)| bucket.0[SLOTS + slot].load(Ordering::Relaxed)))
    }

    /// The buckets in which a key may lie.
    fn way(&self, home: usize) -> impl Iterator<Item = &Bucket> {
        let last = self.buckets.len() - 1;
        (0..PROBES).filter_map(move |step| self.buckets.get((home + step) & last))
    }

    fn place(&self, key: u64, home: usize) -> Option<(&Bucket, usize)> {
        for bucket in self.way(home) {
            if let Some(slot) = bucket.slot_of(key) {
                return Some((bucket, slot));
            }
            if !bucket.is_full() {
                return None;
            }
        }
        None
    }

    /// Notes when an address was heard last, unless main has changed its value meanwhile. Any thread may.
    #[cold]
    pub fn touch(&self, key: u64, home: usize, old: MacValue, new: MacValue) {
        if let Some((bucket, slot)) = self.place(key, home) {
            let _ = bucket.0[SLOTS + slot].compare_exchange(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Main only: a key that is not there yet. `false` where all its buckets are full.
    fn insert(&self, key: u64, value: u64) -> bool {
        for bucket in self.way(self.home(key)) {
            if let Some(slot) = (0..SLOTS).find(|slot| [0, TOMBSTONE].contains(&bucket.key(*slot))) {
                bucket.put(slot, key, value);
                return true;
            }
        }
        false
    }

    /// Main only.
    fn set(&self, key: u64, value: u64) -> bool {
        let place = self.place(key, self.home(key));
        if let Some((bucket, slot)) = place {
            bucket.0[SLOTS + slot].store(value, Ordering::Relaxed);
        }
        place.is_some()
    }

    /// Main only.
    fn remove(&self, key: u64) -> bool {
        let home = self.home(key);
        let Some((bucket, slot)) = self.place(key, home) else { return false };
        let full = bucket.is_full();
        bucket.0[slot].store(if full { TOMBSTONE } else { 0 }, Ordering::Release);
        bucket.0[SLOTS + slot].store(0, Ordering::Relaxed);
        let at = (0..PROBES).map(|step| (home + step) & (self.buckets.len() - 1));
        if full && let Some(at) = at.into_iter().find(|at| std::ptr::eq(&raw const self.buckets[*at], bucket)) {
            self.clear_tombstones(at);
        }
        true
    }

    /// Empties tombstones of a bucket that no key lies beyond.
    fn clear_tombstones(&self, at: usize) {
        let last = self.buckets.len() - 1;
        for step in 1..PROBES {
            let Some(bucket) = self.buckets.get((at + step) & last) else { return };
            for slot in 0..SLOTS {
                let key = bucket.key(slot);
                // How far behind its home a key lies: as far as here or further, and it has passed `at`.
                if key != 0 && key != TOMBSTONE && ((at + step) & last).wrapping_sub(self.home(key)) & last >= step {
                    return;
                }
            }
            if !bucket.is_full() {
                break;
            }
        }
        for slot in self.buckets[at].0[..SLOTS].iter().filter(|slot| slot.load(Ordering::Relaxed) == TOMBSTONE) {
            slot.store(0, Ordering::Release);
        }
    }

    /// Keys and values of one bucket.
    fn bucket(&self, at: usize) -> impl Iterator<Item = (u64, MacValue)> {
        let bucket = &self.buckets[at];
        (0..SLOTS).filter_map(move |slot| {
            let (key, value) = (bucket.key(slot), bucket.0[SLOTS + slot].load(Ordering::Relaxed));
            (key != 0 && key != TOMBSTONE).then_some((key, MacValue(value)))
        })
    }
}

/// The writer's side.
pub(super) struct MacFib {
    shared: Published<Arc<MacTable>>,
    table: Arc<MacTable>,
    /// The table that will follow, and how many buckets have been taken over.
    next: Option<(Arc<MacTable>, usize)>,
    /// Buckets of the last table that was to follow and had no room; 0 where none had.
    failed: usize,
    len: usize,
}

/// Buckets taken over in one step, some 20 µs.
const GROW_STEP: usize = 512;

impl MacFib {
    /// An empty table; `None` without memory.
    pub fn new(seed: u64) -> Option<Self> {
        let table = Arc::new(MacTable::new(FIRST_BUCKETS, seed)?);
        Some(Self { shared: Published::new(table.clone()), table, next: None, failed: 0, len: 0 })
    }

    pub fn snapshot(&self) -> Snapshot<Arc<MacTable>> {
        self.shared.snapshot()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, key: u64) -> Option<MacValue> {
        Some(self.table.find(key, self.table.home(key))).filter(|value| value.0 != 0)
    }

    /// Sets the value of a key; `false` where there is no room for another one.
    pub fn set(&mut self, key: u64, value: MacValue) -> bool {
        if let Some((next, _)) = &self.next
            && !next.set(key, value.0)
            && self.table.place(key, self.table.home(key)).is_none()
            && !next.insert(key, value.0)
        {
            self.give_up();
        }
        if self.table.set(key, value.0) {
            return true;
        }
        if self.len >= MAC_LIMIT as usize || !self.table.insert(key, value.0) {
            if let Some((next, _)) = &self.next {
                next.remove(key);
            }
            self.grow();
            return false;
        }
        self.len += 1;
        if self.len > 2 * self.table.buckets.len() {
            self.grow();
        }
        true
    }

    pub fn remove(&mut self, key: u64) -> bool {
        if let Some((next, _)) = &self.next {
            next.remove(key);
        }
        let removed = self.table.remove(key);
        self.len -= usize::from(removed);
        removed
    }

    /// Starts to fill a table of twice the size, or twice as big as the one that was too small.
    fn grow(&mut self) {
        let buckets = 2 * self.failed.max(self.table.buckets.len());
        if self.next.is_none() && buckets <= MAC_LIMIT as usize / 2 {
            self.next = MacTable::new(buckets, self.table.seed.rotate_left(17)).map(|table| (Arc::new(table), 0));
        }
    }

    /// The table that was being filled has no room for a key.
    fn give_up(&mut self) {
        self.failed = self.next.take().map_or(0, |(next, _)| next.buckets.len());
    }

    /// Goes on growing; `true` while there is more to do.
    pub fn step(&mut self) -> bool {
        let Some((next, at)) = &mut self.next else { return false };
        let end = (*at + GROW_STEP).min(self.table.buckets.len());
        // What was added meanwhile is in both already.
        let fits = |(key, value): (u64, MacValue)| next.set(key, value.0) || next.insert(key, value.0);
        if !(*at..end).flat_map(|at| self.table.bucket(at)).all(fits) {
            self.give_up();
            self.grow();
            return self.next.is_some();
        }
        *at = end;
        if end < self.table.buckets.len() {
            return true;
        }
        self.table = next.clone();
        self.shared.publish(self.table.clone());
        (self.next, self.failed) = (None, 0);
        false
    }

    /// Buckets, for walks in parts.
    pub fn buckets(&self) -> usize {
        self.table.buckets.len()
    }

    /// Keys and values in some buckets.
    pub fn range(&self, buckets: std::ops::Range<usize>) -> Vec<(u64, MacValue)> {
        let end = buckets.end.min(self.table.buckets.len());
        (buckets.start..end).flat_map(|at| self.table.bucket(at)).collect()
    }

    /// All keys and values.
    pub fn all(&self) -> Vec<(u64, MacValue)> {
        self.range(0..self.buckets())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn value(n: u32) -> MacValue {
        MacValue::new(IfIndex(n), MacValue::LEARNED, n as u16)
    }

    /// Whoever numbers stations, or varies one byte of their addresses, finds room for them whatever the seed is.
    #[test]
    fn addresses_in_a_row_fill_half_of_any_table() {
        const BUCKETS: usize = 1024;
        for seed in (0..400_u64).map(|n| n.wrapping_mul(0xd6e8_feb8_6659_fd93)) {
            for stride in [0, 8, 16, 24] {
                let table = MacTable::new(BUCKETS, seed).unwrap();
                for n in 0..2 * BUCKETS as u64 {
                    let key = key(1, 0x0257_0000_0000 + (n << stride));
                    assert!(table.insert(key, 1), "seed {seed:#x}, stride {stride}: no room for number {n}");
                }
            }
        }
    }

    /// A bigger table that has no room all the same is followed by one that is bigger still.
    #[test]
    fn a_table_that_was_too_small_is_followed_by_a_bigger_one() {
        let mut fib = MacFib::new(7).unwrap();
        let first = fib.buckets();
        for n in 0..100 {
            assert!(fib.set(key(1, 0x0257_0000_0000 + n), value(1)));
        }
        fib.grow();
        fib.give_up();
        fib.grow();
        while fib.step() {}
        assert_eq!((fib.buckets(), fib.len(), fib.failed), (4 * first, 100, 0));
        assert!((0..100).all(|n| fib.get(key(1, 0x0257_0000_0000 + n)) == Some(value(1))));
    }

    #[test]
    fn a_value_keeps_its_parts() {
        let v = MacValue::new(IfIndex(16_383), MacValue::STATIC | MacValue::BVI, 0xfedc);
        assert_eq!((v.interface(), v.stamp(), v.is(MacValue::FILTER)), (IfIndex(16_383), 0xfedc, false));
        assert_eq!((v.with_stamp(3).stamp(), v.with_stamp(3).interface()), (3, IfIndex(16_383)));
        assert_eq!(value(7).0 as u32, MacValue::learned_on(IfIndex(7)));
    }

    #[test]
    fn a_hundred_thousand_addresses_are_found_while_the_table_grows() {
        let mut fib = MacFib::new(1).unwrap();
        let mut reader = fib.snapshot();
        for n in 0..100_000_u64 {
            let (key, value) = (key(3, n + 1), value(n as u32 % 100));
            // A table that is full before it has grown is waited for, as a command does.
            if !fib.set(key, value) {
                while fib.step() {}
                assert!(fib.set(key, value));
            }
            fib.step();
        }
        while fib.step() {}
        reader.refresh();
        let table = reader.get();
        for n in 0..100_000_u64 {
            let k = key(3, n + 1);
            assert_eq!(table.find(k, table.home(k)), value(n as u32 % 100));
            assert_eq!(table.find(key(4, n + 1), table.home(key(4, n + 1))).0, 0, "another domain's");
        }
        assert_eq!((fib.len(), fib.all().len()), (100_000, 100_000));
        assert!(fib.buckets() >= 50_000);
    }

    #[test]
    fn a_touch_does_not_undo_what_main_has_written() {
        let mut fib = MacFib::new(1).unwrap();
        let table = fib.table.clone();
        fib.set(5, value(1));
        let seen = fib.get(5).unwrap();
        fib.set(5, value(2));
        table.touch(5, table.home(5), seen, seen.with_stamp(9));
        assert_eq!(fib.get(5), Some(value(2)));
        table.touch(5, table.home(5), value(2), value(2).with_stamp(9));
        assert_eq!(fib.get(5).unwrap().stamp(), 9);
    }

    proptest! {
        /// Few buckets and few keys, so that buckets are full, keys lie beyond their home and slots are used again.
        #[test]
        fn the_table_agrees_with_a_map(seed: u64, steps in proptest::collection::vec((0..3_u8, 1..60_u64, 1..100_u32), 1..400)) {
            let table = Arc::new(MacTable::new(8, seed).unwrap());
            let mut fib = MacFib { shared: Published::new(table.clone()), table, next: None, failed: 0, len: 0 };
            let mut model = HashMap::new();
            for (what, k, n) in steps {
                match what {
                    0 => {
                        if fib.set(k, value(n)) {
                            model.insert(k, value(n));
                        } else {
                            prop_assert!(!model.contains_key(&k), "a known key can always be changed");
                        }
                    }
                    1 => prop_assert_eq!(fib.remove(k), model.remove(&k).is_some()),
                    _ => drop(fib.step()),
                }
                prop_assert_eq!(fib.len(), model.len());
            }
            while fib.step() {}
            for k in 1..60 {
                prop_assert_eq!(fib.get(k), model.get(&k).copied(), "key {}", k);
            }
            prop_assert_eq!(fib.all().into_iter().collect::<HashMap<_, _>>(), model);
        }
    }
}
