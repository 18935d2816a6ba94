//! A vector of plain values in a mapping of its own: grows without copying, fails instead of aborting.

use super::{Budget, HUGE_PAGE, STEP, machine_has, resident, round_up};
use crate::error::OutOfMemory;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// A growable array of `Copy` values with one owner. Growing moves page tables, not data (`mremap`).
#[derive(Debug)]
pub struct PodVec<T: Copy> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
    budget: Budget,
    _values: PhantomData<T>,
}

// SAFETY: it owns its mapping like a Vec does, and hands out references only through & and &mut self.
unsafe impl<T: Copy + Send> Send for PodVec<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Sync> Sync for PodVec<T> {}

impl<T: Copy> PodVec<T> {
    /// An empty vector, which holds no memory yet.
    pub fn new(budget: &Budget) -> Self {
        const { assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0) };
        PodVec { base: NonNull::dangling(), len: 0, bytes: 0, budget: budget.clone(), _values: PhantomData }
    }

    /// Makes room for `more` values beyond the present ones.
    #[inline]
    pub fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let want = self.len.checked_add(more).ok_or(OutOfMemory)?;
        if want <= self.bytes / size_of::<T>() { Ok(()) } else { self.grow(want) }
    }

    #[cold]
    fn grow(&mut self, values: usize) -> Result<(), OutOfMemory> {
        let least = values.checked_mul(size_of::<T>()).ok_or(OutOfMemory)?;
        let roomy = round_up(least.max(self.bytes + self.bytes / 8), STEP)?;
        // Near the limit, take what is needed and no more.
        self.resize_mapping(roomy).or_else(|_| self.resize_mapping(round_up(least, STEP)?))
    }

    fn resize_mapping(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let more = bytes - self.bytes;
        self.budget.take(more)?;
        let raw = if bytes > HUGE_PAGE && !machine_has(more) {
            libc::MAP_FAILED
        } else if self.bytes == 0 {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
            unsafe { libc::mmap(null_mut(), bytes, prot, flags | libc::MAP_NORESERVE, -1, 0) }
        } else {
            // SAFETY: [base, base + self.bytes) is our whole mapping; nobody borrows from it while we hold &mut self.
            unsafe { libc::mremap(self.base.as_ptr().cast(), self.bytes, bytes, libc::MREMAP_MAYMOVE) }
        };
        match NonNull::new(raw.cast()) {
            Some(base) if raw != libc::MAP_FAILED => {
                (self.base, self.bytes) = (base, bytes);
                Ok(())
            }
            _ => {
                self.budget.give(more);
                Err(OutOfMemory)
            }
        }
    }

    /// Appends a value.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), OutOfMemory> {
        self.reserve(1)?;
        // SAFETY: `reserve` has made room for a value at `len`.
        unsafe { self.base.as_ptr().add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    /// Takes the last value off.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.last().copied()?;
        self.len -= 1;
        Some(last)
    }

    /// Appends copies of `value` until there are `len` values; does nothing if there are.
    pub fn extend_to(&mut self, len: usize, value: T) -> Result<(), OutOfMemory> {
        if len > self.len {
            self.reserve(len - self.len)?;
            while self.len < len {
                self.push(value)?;
            }
        }
        Ok(())
    }

    /// Bytes of real memory.
    pub fn resident(&self) -> usize {
        if self.bytes == 0 { 0 } else { resident(self.base.cast(), self.bytes) }
    }
}

impl<T: Copy> Deref for PodVec<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` values have been written; `base` is aligned, dangling only when `len` is 0.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for PodVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and &mut self makes the borrow unique.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for PodVec<T> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: our whole mapping, which nobody borrows any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
            self.budget.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_its_values_while_growing() {
        let mut v = PodVec::new(&Budget::unlimited());
        assert_eq!((v.len(), v.pop(), v.resident()), (0, None::<u64>, 0));
        for i in 0..100_000u64 {
            v.push(i * i).unwrap();
        }
        assert!(v.iter().enumerate().all(|(i, x)| *x == (i * i) as u64));
        assert!(v.resident() >= 800_000);
        v.extend_to(100_002, 5).unwrap();
        assert_eq!((v.pop(), v.len()), (Some(5), 100_001));
    }

    #[test]
    fn fails_at_its_limit_and_stays_whole() {
        let b = Budget::limited(STEP);
        let mut v = PodVec::new(&b);
        let n = (0..).take_while(|_| v.push([1u8; 24]).is_ok()).count();
        assert_eq!((n, v.len(), b.used()), (STEP / 24, STEP / 24, STEP));
        assert!(v.iter().all(|x| *x == [1; 24]));
        drop(v);
        assert_eq!(b.used(), 0);
    }
}
