//! Arrays of small records that readers index while the writer grows and changes them.
//!
//! Load-balance buckets, adjacency records: the data path has an index and wants the record, in one load and without a
//! check that can fail. The array lives in reserved address space, so it grows without moving. A record is made of
//! atomics: each word of it is always whole, the record as such is not. So a record of several words is filled before its
//! index is published (by a store with release order, as the tables here do), and changed by filling another one.

use crate::error::OutOfMemory;
use crate::mem::{AtomicRecord, Budget, HUGE_PAGE, PageKind, SharedArray};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A record of atomics that is copied in and out as a plain value.
pub trait Slot: AtomicRecord {
    /// The plain value.
    type Value: Copy + Default;
    /// Copies the record out. The first word is read with acquire order.
    fn load(&self) -> Self::Value;
    /// Overwrites the record. The first word is written last, with release order.
    fn store(&self, value: Self::Value);
}

macro_rules! slot {
    ($atomic:ty, $value:ty) => {
        impl Slot for $atomic {
            type Value = $value;
            #[inline(always)]
            fn load(&self) -> $value {
                <$atomic>::load(self, Ordering::Acquire)
            }
            #[inline(always)]
            fn store(&self, value: $value) {
                <$atomic>::store(self, value, Ordering::Release);
            }
        }
        impl<const N: usize> Slot for [$atomic; N]
        where
            [$value; N]: Default,
        {
            type Value = [$value; N];
            #[inline(always)]
            fn load(&self) -> [$value; N] {
                let mut value = [0; N];
                for (i, word) in self.iter().enumerate() {
                    value[i] = word.load(if i == 0 { Ordering::Acquire } else { Ordering::Relaxed });
                }
                value
            }
            #[inline(always)]
            fn store(&self, value: [$value; N]) {
                for (i, word) in self.iter().enumerate().rev() {
                    word.store(value[i], if i == 0 { Ordering::Release } else { Ordering::Relaxed });
                }
            }
        }
    };
}
slot!(AtomicU32, u32);
slot!(AtomicU64, u64);

/// The owner's side: grows the array and writes records.
#[derive(Debug)]
pub struct AtomicSlots<T: Slot> {
    /// Where the array begins, which is fixed, and how many records the owner has made room for: copied here, they cost no further load.
    base: NonNull<T>,
    ready: usize,
    array: Arc<SharedArray<T>>,
}

// SAFETY: `base` points into `array`, which is shared by the same means and under the same conditions.
unsafe impl<T: Slot> Send for AtomicSlots<T> where Arc<SharedArray<T>>: Send {}
// SAFETY: as above; `ready` changes only for who has the array to itself.
unsafe impl<T: Slot> Sync for AtomicSlots<T> where Arc<SharedArray<T>>: Sync {}

/// The readers' side. Cheap to clone.
#[derive(Debug)]
pub struct SlotsReader<T: Slot> {
    /// Where the array begins and how far its reservation goes, both fixed: copied here, they cost a reader no further load.
    base: NonNull<T>,
    capacity: usize,
    /// The last index that there is.
    last: u32,
    array: Arc<SharedArray<T>>,
}

// SAFETY: `base` points into `array`, which is shared by the same means and under the same conditions.
unsafe impl<T: Slot> Send for SlotsReader<T> where Arc<SharedArray<T>>: Send {}
// SAFETY: as above.
unsafe impl<T: Slot> Sync for SlotsReader<T> where Arc<SharedArray<T>>: Sync {}

impl<T: Slot> Clone for SlotsReader<T> {
    fn clone(&self) -> Self {
        SlotsReader { array: self.array.clone(), ..*self }
    }
}

impl<T: Slot> AtomicSlots<T> {
    /// Reserves address space for `capacity` records. Memory is taken as records are written.
    pub fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        Self::with_options(capacity, PageKind::Base, &Budget::unlimited())
    }

    /// As [`new`](Self::new), with a choice of pages and a memory limit.
    pub fn with_options(capacity: usize, pages: PageKind, budget: &Budget) -> Result<Self, OutOfMemory> {
        let array = Arc::new(SharedArray::reserve(capacity.max(1), pages, budget)?);
        Ok(AtomicSlots { base: array.base(), ready: 0, array })
    }

    /// Makes room for the records `0..n`. Afterwards [`set`](Self::set) of one of them cannot fail.
    pub fn grow(&mut self, n: usize) -> Result<(), OutOfMemory> {
        self.array.commit(n)?;
        self.ready = self.array.committed();
        Ok(())
    }

    /// Writes a record, growing the array if need be.
    pub fn set(&mut self, index: u32, value: T::Value) -> Result<(), OutOfMemory> {
        if index as usize >= self.ready {
            self.grow((index as usize).checked_add(1).ok_or(OutOfMemory)?)?;
        }
        self.slot(index).ok_or(OutOfMemory)?.store(value);
        Ok(())
    }

    /// The record at `index` itself, if the owner has made room for it: for changing single words in place.
    #[inline(always)]
    pub fn slot(&self, index: u32) -> Option<&T> {
        // SAFETY: that many records are committed, and none is ever given back.
        ((index as usize) < self.ready).then(|| unsafe { self.base.add(index as usize).as_ref() })
    }

    /// The value at `index`; zero where nothing was written.
    #[inline(always)]
    pub fn get(&self, index: u32) -> T::Value {
        load(&self.array, index)
    }

    /// The readers' handle.
    pub fn reader(&self) -> SlotsReader<T> {
        let capacity = self.array.capacity();
        // There is at least one record, and indices have 32 bits.
        let last = u32::try_from(capacity - 1).unwrap_or(u32::MAX);
        SlotsReader { base: self.array.base(), capacity, last, array: self.array.clone() }
    }

    /// Bytes of real memory.
    pub fn memory_bytes(&self) -> usize {
        self.array.resident()
    }

    /// A handle by which another thread gets memory ahead.
    pub fn ahead(&self) -> Ahead<T> {
        Ahead { array: self.array.clone(), ready: 0 }
    }
}

/// Gets real memory for records before they are written, so that a data path does not wait until the kernel has cleared a page:
/// a large page takes 50 to 500 µs. Any thread may have it; records that are there stay as they are.
#[derive(Debug)]
pub struct Ahead<T: Slot> {
    array: Arc<SharedArray<T>>,
    /// Bytes from the start that have memory.
    ready: usize,
}

impl<T: Slot> Ahead<T> {
    /// Gets memory for more of the records `0..n`, one large page at most; `true` while there is more to get. Where the
    /// machine has none to spare, nothing is done: records get theirs when they are written, or are refused.
    pub fn step(&mut self, n: usize) -> bool {
        let end = n.min(self.array.capacity()) * size_of::<T>();
        let to = end.min(self.ready + HUGE_PAGE);
        if !self.array.populate(self.ready, to) {
            return false;
        }
        self.ready = to;
        to < end
    }
}

impl<T: Slot> SlotsReader<T> {
    /// The value at `index`; zero where nothing was written and past the capacity.
    #[inline(always)]
    pub fn get(&self, index: u32) -> T::Value {
        self.at(index).map_or_else(T::Value::default, T::load)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Option<&T> {
        // SAFETY: inside the reservation, which lives as long as `array` and all of which may be read; what is not committed
        // reads as zeros.
        ((index as usize) < self.capacity).then(|| unsafe { self.base.add(index as usize).as_ref() })
    }

    /// Asks the CPU to fetch the record's line.
    #[inline(always)]
    pub fn prefetch(&self, index: u32) {
        self.array.prefetch(index as usize);
    }

    /// Records that the reservation has room for.
    pub fn capacity(&self) -> usize {
        self.array.capacity()
    }
}

impl<const N: usize> SlotsReader<[AtomicU64; N]>
where
    [u64; N]: Default,
{
    /// `M` words of the record from word `FROM` on; zeros past the capacity. Compilers do not leave out atomic loads whose
    /// value is not used, so a reader that needs a part asks for that part.
    #[inline(always)]
    pub fn words<const FROM: usize, const M: usize>(&self, index: u32) -> [u64; M] {
        self.at(index).map_or([0; M], part::<FROM, M, N>)
    }
}

/// A [`SlotsReader`]'s array for the time of a few reads, in two words that stay in registers: a reader behind a reference is
/// read again after each load with acquire order. It has no way for an index that does not exist: past the last record it
/// reads the last.
#[derive(Debug)]
pub struct SlotsView<'a, T> {
    base: NonNull<T>,
    last: u32,
    array: PhantomData<&'a T>,
}

impl<T> Clone for SlotsView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SlotsView<'_, T> {}

impl<T: Slot> SlotsReader<T> {
    /// The array for a few reads.
    #[inline(always)]
    pub fn view(&self) -> SlotsView<'_, T> {
        SlotsView { base: self.base, last: self.last, array: PhantomData }
    }
}

impl<'a, T: Slot> SlotsView<'a, T> {
    /// The value at `index`.
    #[inline(always)]
    pub fn get(self, index: u32) -> T::Value {
        self.at(index).load()
    }

    #[inline(always)]
    fn at(self, index: u32) -> &'a T {
        // SAFETY: inside the reservation, which lives for 'a and all of which may be read.
        unsafe { self.base.add(index.min(self.last) as usize).as_ref() }
    }
}

impl<const N: usize> SlotsView<'_, [AtomicU64; N]>
where
    [u64; N]: Default,
{
    /// `M` words of the record from word `FROM` on.
    #[inline(always)]
    pub fn words<const FROM: usize, const M: usize>(self, index: u32) -> [u64; M] {
        part::<FROM, M, N>(self.at(index))
    }
}

#[inline(always)]
fn part<const FROM: usize, const M: usize, const N: usize>(record: &[AtomicU64; N]) -> [u64; M] {
    const { assert!(FROM + M <= N) };
    let mut words = [0; M];
    let mut k = 0;
    while k < M {
        words[k] = record[FROM + k].load(if FROM + k == 0 { Ordering::Acquire } else { Ordering::Relaxed });
        k += 1;
    }
    words
}

#[inline(always)]
fn load<T: Slot>(array: &SharedArray<T>, index: u32) -> T::Value {
    if (index as usize) < array.capacity() {
        // SAFETY: just checked; what is not committed reads as zeros.
        unsafe { array.at(index as usize) }.load()
    } else {
        T::Value::default()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn reads_zero_where_nothing_was_written_and_past_the_end() {
        let mut s = AtomicSlots::<AtomicU32>::new(100_000).unwrap();
        let r = s.reader();
        assert_eq!((r.get(0), r.get(99_999), r.get(100_000), r.get(u32::MAX)), (0, 0, 0, 0));
        s.set(99_999, 7).unwrap();
        assert_eq!((r.get(99_999), r.get(99_998), s.get(99_999)), (7, 0, 7));
        assert_eq!((s.set(100_000, 1), s.set(u32::MAX, 1), r.get(100_000)), (Err(OutOfMemory), Err(OutOfMemory), 0));
    }

    #[test]
    fn records_of_several_words_come_back_whole() {
        let mut s = AtomicSlots::<[AtomicU64; 4]>::new(1000).unwrap();
        assert!(s.slot(3).is_none());
        for i in 0..1000u64 {
            s.set(i as u32, [i, i + 1, i + 2, i + 3]).unwrap();
        }
        let r = s.reader().clone();
        r.prefetch(u32::MAX);
        assert!((0..1000u64).all(|i| r.get(i as u32) == [i, i + 1, i + 2, i + 3]));
        assert_eq!((r.words::<1, 2>(7), r.words::<0, 1>(7), r.words::<3, 1>(u32::MAX)), ([8, 9], [7], [0]));
        s.slot(5).unwrap()[2].store(9, Ordering::Relaxed);
        assert_eq!(r.get(5), [5, 6, 9, 8]);
    }

    #[test]
    fn memory_is_got_ahead_in_steps_and_changes_no_record() {
        if !crate::mem::tests::can_populate() {
            return;
        }
        let n = 3 * HUGE_PAGE / 8;
        let mut s = AtomicSlots::<AtomicU64>::with_options(n, PageKind::Transparent, &Budget::unlimited()).unwrap();
        s.set(5, 7).unwrap();
        let mut ahead = s.ahead();
        let ahead = thread::spawn(move || {
            assert!(!ahead.step(0) && !ahead.step(1000), "one step is enough for these");
            assert!(ahead.step(n) && ahead.step(n) && !ahead.step(usize::MAX) && !ahead.step(n));
        });
        ahead.join().unwrap();
        assert!(s.memory_bytes() >= 8 * n, "{} bytes", s.memory_bytes());
        assert_eq!((s.get(5), s.get(6)), (7, 0));
        // All is writable, without growing; the owner meets what it has made room for itself.
        assert!(s.array.committed() >= n && s.slot(n as u32 - 1).is_none());
        s.set(n as u32 - 1, 9).unwrap();
        assert!(s.slot(n as u32 - 1).is_some());
    }

    #[test]
    fn running_out_of_memory_is_an_error() {
        let budget = Budget::limited(128 << 10);
        let mut s = AtomicSlots::<AtomicU64>::with_options(1 << 20, PageKind::Base, &budget).unwrap();
        assert_eq!((s.set(16_383, 1), s.set(16_384, 1), s.get(16_383)), (Ok(()), Err(OutOfMemory), 1));
    }
}
