//! Which buffers the kernel has from us: one bit for each buffer of the region.
//!
//! An address that comes out of a ring is believed only if its buffer was put into one, so no buffer can get two owners; and
//! when the socket is closed, what the kernel did not give back is known exactly.

/// A set of buffer indices.
#[derive(Debug)]
pub(super) struct Lent {
    bits: Box<[u64]>,
    count: u32,
}

impl Lent {
    /// None of `capacity` buffers.
    pub(super) fn new(capacity: u32) -> Self {
        Self { bits: vec![0; (capacity as usize).div_ceil(64)].into_boxed_slice(), count: 0 }
    }

    /// How many are lent.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Notes that a buffer of the region goes to the kernel.
    #[inline(always)]
    pub(super) fn lend(&mut self, buffer: u32) {
        if let Some(word) = self.bits.get_mut(buffer as usize / 64) {
            *word |= 1 << (buffer % 64);
            self.count += 1;
        }
    }

    /// Notes that it is back; `false` where it was not lent.
    #[inline(always)]
    pub(super) fn take_back(&mut self, buffer: u32) -> bool {
        let Some(word) = self.bits.get_mut(buffer as usize / 64) else { return false };
        let bit = 1 << (buffer % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// Empties the set into a list.
    pub(super) fn drain(&mut self) -> Vec<u32> {
        let mut list = Vec::with_capacity(self.count as usize);
        for (at, word) in self.bits.iter_mut().enumerate() {
            let mut left = std::mem::take(word);
            while left != 0 {
                list.push(at as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        self.count = 0;
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lent_comes_back_once() {
        for capacity in [1, 63, 64, 65, 1000] {
            let mut lent = Lent::new(capacity);
            let some: Vec<u32> = (0..capacity).filter(|i| i % 3 == 0).collect();
            some.iter().for_each(|i| lent.lend(*i));
            assert_eq!(lent.count() as usize, some.len());
            assert!(lent.take_back(0) && !lent.take_back(0));
            assert!(!lent.take_back(capacity + 64) && !lent.take_back(u32::MAX), "not of this region");
            assert!(capacity < 2 || !lent.take_back(1), "never lent");
            assert_eq!(lent.drain(), some[1..]);
            assert_eq!((lent.count(), lent.drain()), (0, vec![]));
        }
    }
}
