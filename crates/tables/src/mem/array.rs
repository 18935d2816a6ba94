//! A reserved array of atomics that one side grows while others read it.

use std::ptr::NonNull;

use super::{Budget, PageKind, Pages};
use crate::error::OutOfMemory;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A record made of atomics only: valid when all bytes are zero, and shareable while it changes.
///
/// # Safety
/// Every bit pattern is valid, there is no padding, dropping does nothing, and all access through a shared reference is
/// atomic.
pub unsafe trait AtomicRecord: Sync + Send + 'static {}

// SAFETY: an integer with atomic access.
unsafe impl AtomicRecord for AtomicU32 {}
// SAFETY: an integer with atomic access.
unsafe impl AtomicRecord for AtomicU64 {}
// SAFETY: an array of such records is one.
unsafe impl<T: AtomicRecord, const N: usize> AtomicRecord for [T; N] {}

/// [`Pages`] seen as records. The base address and the capacity never change.
#[derive(Debug)]
pub(crate) struct SharedArray<T> {
    pages: Pages,
    capacity: usize,
    _records: PhantomData<T>,
}

impl<T: AtomicRecord> SharedArray<T> {
    /// Reserves room for `capacity` records, all zero.
    pub fn reserve(capacity: usize, kind: PageKind, budget: &Budget) -> Result<Self, OutOfMemory> {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0) };
        let bytes = capacity.checked_mul(size_of::<T>()).ok_or(OutOfMemory)?;
        Ok(SharedArray { pages: Pages::reserve(bytes, kind, budget)?, capacity, _records: PhantomData })
    }

    /// Makes the first `n` records writable.
    #[inline]
    pub fn commit(&self, n: usize) -> Result<(), OutOfMemory> {
        if n > self.capacity {
            return Err(OutOfMemory);
        }
        self.pages.commit(n * size_of::<T>())
    }

    /// Asks for memory of a node; see [`Pages::place`].
    pub fn place(&self, node: u32) -> std::io::Result<()> {
        self.pages.place(node)
    }

    /// Gets real memory for bytes `from..to`; see [`Pages::populate`].
    pub fn populate(&self, from: usize, to: usize) -> bool {
        self.pages.populate(from, to)
    }

    /// How many records fit into the reservation; all of them may be read.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the records begin: fixed as long as the array lives.
    pub fn base(&self) -> NonNull<T> {
        self.pages.base().cast()
    }

    /// How many records are writable.
    #[inline]
    pub fn committed(&self) -> usize {
        (self.pages.committed() / size_of::<T>()).min(self.capacity)
    }

    /// The record at `i`, without a check.
    ///
    /// # Safety
    /// `i < self.capacity()`; records at and past [`committed`](Self::committed) must only be loaded from, not stored to.
    #[inline(always)]
    pub unsafe fn at(&self, i: usize) -> &T {
        debug_assert!(i < self.capacity);
        // SAFETY: the caller keeps `i` inside the reservation, which is mapped, readable and aligned for `T` (page
        // aligned base, whole records), and zero bytes are a valid `T`.
        unsafe { &*self.pages.base().cast::<T>().as_ptr().add(i) }
    }

    /// The record at `i` for storing, or nothing where it is not writable.
    #[inline]
    pub fn writable(&self, i: usize) -> Option<&T> {
        // SAFETY: committed() never exceeds the capacity.
        (i < self.committed()).then(|| unsafe { self.at(i) })
    }

    /// Asks the CPU to fetch the line of record `i`; harmless for any `i`.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        crate::cpu::prefetch(self.pages.base().cast::<T>().as_ptr().wrapping_add(i));
    }

    /// Bytes of real memory.
    pub fn resident(&self) -> usize {
        self.pages.resident()
    }
}
