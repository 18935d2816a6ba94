//! Simple (one number) and combined (packets and bytes) counters: a row for each thread, an element for each object.
//!
//! ```text
//! outer vector: | row 0 | row 1 | … | row 63 |        pointers, count = visible threads
//! row:          | 56 B unused, count | element 0 | … | element capacity-1 | spare |
//! ```
//!
//! Rows of all 64 threads are reserved at creation as sparse space, so nothing ever moves and the hot path needs three
//! constants: where row 0 starts, the distance of rows, and the capacity. A row has one writer, its thread; so an
//! increment is a load and a store. Rows begin on a pair of cache lines of their own. An index beyond the capacity counts
//! in the spare element, a thread number beyond the maximum in a row of nobody; both are visible as [`ignored`].
//!
//! [`ignored`]: SimpleCounters::ignored

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::MAX_THREADS;
use super::segment::{ROW_ALIGN, Segment, VECTOR_HEADER, Writer};

/// The rows of one counter; `WORDS` u64 make one element.
///
/// Invariants: `rows` points to `MAX_THREADS + 1` rows, `stride` bytes apart, each with room for `capacity + 1` elements;
/// all of it lies in `segment`, is 8-aligned, belongs to this value alone, and is accessed through atomics only.
pub(super) struct Rows<const WORDS: usize> {
    rows: NonNull<u8>,
    stride: usize,
    capacity: u32,
    len: AtomicU32,
    /// Offset of the outer vector's data; 0 for rows that are not in the directory.
    pub(super) outer: usize,
    first_row: usize,
    segment: Arc<Segment>,
}

// SAFETY: the memory belongs to the segment, which is Send and Sync, and is accessed through atomics only.
unsafe impl<const WORDS: usize> Send for Rows<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Rows<WORDS> {}

impl<const WORDS: usize> Rows<WORDS> {
    /// Reserves the rows; nothing where the segment has no room for them.
    pub(super) fn reserve(segment: &Arc<Segment>, writer: &mut Writer, capacity: u32) -> Option<Self> {
        let elements = capacity as usize + 1;
        let stride = (VECTOR_HEADER + elements * WORDS * 8).next_multiple_of(ROW_ALIGN);
        let bytes = stride * (MAX_THREADS + 1);
        let outer = writer.vector(MAX_THREADS * 8)?;
        let first_row = writer.reserve(bytes)? + VECTOR_HEADER;
        let rows = segment.pointer(first_row, bytes - VECTOR_HEADER)?;
        for thread in 0..MAX_THREADS {
            let address = segment.address(first_row + thread * stride);
            segment.word(outer + thread * 8).store(address, Ordering::Relaxed);
        }
        let rows = Self { rows, stride, capacity, len: AtomicU32::new(0), outer, first_row, segment: Arc::clone(segment) };
        rows.show_threads();
        Some(rows)
    }

    /// Raises the outer vector to the segment's threads. Within [`Segment::change`], or before the entry is visible.
    pub(super) fn show_threads(&self) {
        let threads = self.segment.threads();
        self.show_len();
        // At most MAX_THREADS, so the conversion keeps the value.
        self.segment.count(self.outer).store(threads as u32, Ordering::Release);
    }

    fn show_len(&self) {
        let len = self.len.load(Ordering::Relaxed);
        for thread in 0..self.segment.threads() {
            let row = self.first_row + thread * self.stride;
            self.segment.count(row).store(len, Ordering::Release);
        }
    }

    fn set_len(&self, len: u32) {
        let len = len.min(self.capacity);
        let writer = self.segment.lock();
        if self.len.swap(len, Ordering::Relaxed) != len {
            self.segment.change(&writer, || self.show_len());
        }
    }

    /// The first word of an element. Any thread and index is allowed: see the module's text on spare places.
    #[inline(always)]
    fn element(&self, thread: usize, index: u32) -> NonNull<AtomicU64> {
        let row = thread.min(MAX_THREADS);
        let index = index.min(self.capacity) as usize;
        // SAFETY: row <= MAX_THREADS and index <= capacity, so the element is inside what `rows` points to.
        unsafe { self.rows.add(row * self.stride + index * (WORDS * 8)) }.cast()
    }

    #[inline(always)]
    fn word<const WORD: usize>(&self, thread: usize, index: u32) -> &AtomicU64 {
        const { assert!(WORD < WORDS) };
        // SAFETY: `element` is inside the rows and has WORDS words, 8-aligned, that live as long as `self`.
        unsafe { &*self.element(thread, index).add(WORD).as_ptr() }
    }

    /// One writer for each row, so no read-modify-write is needed; a second writer would only lose counts.
    #[inline(always)]
    fn add<const WORD: usize>(&self, thread: usize, index: u32, n: u64) {
        let word = self.word::<WORD>(thread, index);
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get<const WORD: usize>(&self, thread: usize, index: u32) -> u64 {
        if thread >= MAX_THREADS || index >= self.capacity {
            return 0;
        }
        self.word::<WORD>(thread, index).load(Ordering::Relaxed)
    }

    fn sum<const WORD: usize>(&self, index: u32) -> u64 {
        let threads = 0..self.segment.threads();
        threads.fold(0u64, |sum, thread| sum.wrapping_add(self.get::<WORD>(thread, index)))
    }

    fn ignored(&self) -> u64 {
        let spare = |row| self.word::<0>(row, self.capacity).load(Ordering::Relaxed);
        let threads = (0..self.segment.threads()).fold(0u64, |sum, row| sum.wrapping_add(spare(row)));
        // The row of nobody as a whole: only its elements up to the visible length are worth a look.
        let nobody = (0..self.len.load(Ordering::Relaxed)).map(|index| self.word::<0>(MAX_THREADS, index).load(Ordering::Relaxed));
        nobody.fold(threads.wrapping_add(spare(MAX_THREADS)), u64::wrapping_add)
    }

    fn clear_index(&self, thread: usize, index: u32) {
        if thread < MAX_THREADS && index < self.capacity {
            let first = self.element(thread, index);
            for word in 0..WORDS {
                // SAFETY: as in `word`: an element has WORDS words.
                unsafe { &*first.add(word).as_ptr() }.store(0, Ordering::Relaxed);
            }
        }
    }

    fn clear_thread(&self, thread: usize) {
        for index in 0..self.len.load(Ordering::Relaxed) {
            self.clear_index(thread, index);
        }
    }

    /// Empties all rows for a new owner. Only for rows that nobody else holds, and not for large ones: all of the
    /// capacity is swept, because counts may lie beyond the visible length.
    pub(super) fn reset(&self) {
        for thread in 0..self.segment.threads() {
            for index in 0..self.capacity {
                self.clear_index(thread, index);
            }
            self.word::<0>(thread, self.capacity).store(0, Ordering::Relaxed);
        }
        self.len.store(0, Ordering::Relaxed);
        self.show_threads();
    }
}

macro_rules! shared_methods {
    () => {
        pub(super) fn rows(&self) -> &Rows<{ Self::WORDS }> {
            &self.0
        }

        pub(super) fn new(rows: Rows<{ Self::WORDS }>) -> Self {
            Self(rows)
        }

        /// Sets how many elements readers see, at most the capacity. Counts beyond it are kept and appear when it grows.
        /// Raises the segment's epoch when it changes the length, so grow in steps where objects come by the million.
        pub fn set_len(&self, len: u32) {
            self.0.set_len(len);
        }

        /// The number of elements that readers see.
        pub fn len(&self) -> u32 {
            self.0.len.load(Ordering::Relaxed)
        }

        /// Whether readers see no element.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// The number of elements for which there is room. It never changes.
        pub fn capacity(&self) -> u32 {
            self.0.capacity
        }

        /// What was added to elements beyond the capacity.
        pub fn ignored(&self) -> u64 {
            self.0.ignored()
        }

        /// Sets all visible elements of one thread to 0. To be called by that thread, or while it does not count.
        pub fn clear_thread(&self, thread: usize) {
            self.0.clear_thread(thread);
        }

        /// Sets one element of one thread to 0. To be called by that thread, or while it does not count.
        pub fn clear_index_thread(&self, thread: usize, index: u32) {
            self.0.clear_index(thread, index);
        }
    };
}

/// A counter of one number for each object, kept apart for each thread.
pub struct SimpleCounters(Rows<1>);

impl SimpleCounters {
    pub(super) const WORDS: usize = 1;
    shared_methods!();

    /// Adds `n` to an object's count. To be called only by the thread whose number is `thread`.
    #[inline(always)]
    pub fn add(&self, thread: usize, index: u32, n: u64) {
        self.0.add::<0>(thread, index, n);
    }

    /// One thread's count of an object; 0 where there is none.
    pub fn get(&self, thread: usize, index: u32) -> u64 {
        self.0.get::<0>(thread, index)
    }

    /// An object's count over all threads.
    pub fn sum(&self, index: u32) -> u64 {
        self.0.sum::<0>(index)
    }
}

/// A counter of packets and bytes for each object, kept apart for each thread.
pub struct CombinedCounters(Rows<2>);

impl CombinedCounters {
    pub(super) const WORDS: usize = 2;
    shared_methods!();

    /// Adds to an object's packets and bytes. To be called only by the thread whose number is `thread`.
    #[inline(always)]
    pub fn add(&self, thread: usize, index: u32, packets: u64, bytes: u64) {
        self.0.add::<0>(thread, index, packets);
        self.0.add::<1>(thread, index, bytes);
    }

    /// The counts of one thread, to be added to by that thread only.
    pub fn row(self: &Arc<Self>, thread: usize) -> CombinedRow {
        CombinedRow(Row { first: self.0.element(thread, 0), capacity: self.0.capacity, counters: Arc::clone(self) })
    }

    /// One thread's (packets, bytes) of an object; zeros where there is none.
    pub fn get(&self, thread: usize, index: u32) -> (u64, u64) {
        (self.0.get::<0>(thread, index), self.0.get::<1>(thread, index))
    }

    /// An object's (packets, bytes) over all threads.
    pub fn sum(&self, index: u32) -> (u64, u64) {
        (self.0.sum::<0>(index), self.0.sum::<1>(index))
    }
}

/// The counts of one thread, found once: where each packet counts for another object, the way to the row is a third of the
/// work.
struct Row<const WORDS: usize, C> {
    /// Element 0 of `capacity` + 1 ones.
    first: NonNull<AtomicU64>,
    capacity: u32,
    counters: Arc<C>,
}

impl<const WORDS: usize, C> Clone for Row<WORDS, C> {
    fn clone(&self) -> Self {
        Self { counters: self.counters.clone(), ..*self }
    }
}

// SAFETY: the memory is kept by `counters`, which are Send and Sync, and is accessed through atomics only.
unsafe impl<const WORDS: usize, C: Send + Sync> Send for Row<WORDS, C> {}

impl<const WORDS: usize, C> Row<WORDS, C> {
    #[inline(always)]
    fn add(&self, index: u32, n: [u64; WORDS]) {
        let index = index.min(self.capacity) as usize;
        // SAFETY: index <= capacity, and the row has one element more than that, of so many words.
        let words = unsafe { self.first.add(index * WORDS).cast::<[AtomicU64; WORDS]>().as_ref() };
        for (word, n) in words.iter().zip(n) {
            word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }
}

/// One thread's counts of one or several [`SimpleCounters`] that are added to together.
#[derive(Clone)]
pub struct SimpleRows<const N: usize> {
    /// Elements 0 of at least `capacity` + 1 ones each.
    first: [NonNull<AtomicU64>; N],
    capacity: u32,
    counters: [Arc<SimpleCounters>; N],
}

// SAFETY: as for `Row`.
unsafe impl<const N: usize> Send for SimpleRows<N> {}

impl<const N: usize> SimpleRows<N> {
    /// The counts of one thread, to be added to by that thread only.
    pub fn new(counters: [&Arc<SimpleCounters>; N], thread: usize) -> Self {
        Self {
            first: counters.map(|c| c.0.element(thread, 0)),
            capacity: counters.iter().map(|c| c.0.capacity).min().unwrap_or(0),
            counters: counters.map(Arc::clone),
        }
    }

    /// The rows of another thread.
    pub fn of_thread(&self, thread: usize) -> Self {
        Self::new(self.counters.each_ref(), thread)
    }

    /// Adds to an object's counts, in the order of the counters. An index beyond the least capacity counts there.
    #[inline(always)]
    pub fn add(&self, index: u32, n: [u64; N]) {
        let index = index.min(self.capacity) as usize;
        for (first, n) in self.first.iter().zip(n) {
            // SAFETY: index <= capacity, and each row has one element more than that at least.
            let word = unsafe { first.add(index).as_ref() };
            word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }
}

/// One thread's counts of [`CombinedCounters`].
#[derive(Clone)]
pub struct CombinedRow(Row<2, CombinedCounters>);

impl CombinedRow {
    /// The row of another thread.
    pub fn of_thread(&self, thread: usize) -> Self {
        self.0.counters.row(thread)
    }

    /// As [`CombinedCounters::add`].
    #[inline(always)]
    pub fn add(&self, index: u32, packets: u64, bytes: u64) {
        self.0.add(index, [packets, bytes]);
    }
}
