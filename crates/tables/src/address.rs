//! Addresses as numbers: what the prefix tables need to know of `u32` and `u128`.

use std::fmt::Debug;
use std::hash::Hash;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An IPv4 (`u32`) or IPv6 (`u128`) address as a number, first bit highest.
pub trait Address: sealed::Sealed + Copy + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// Bits of an address: 32 or 128.
    const BITS: u8;
    /// The address with its bits from `len` on cleared: the first address of the prefix.
    fn first(self, len: u8) -> Self;
    /// The address with its bits from `len` on set: the last address of the prefix.
    fn last(self, len: u8) -> Self;
    /// Bit `i`, counted from the first; 0 from the end of the address on.
    fn bit(self, i: u8) -> usize;
    /// How many leading bits two addresses share.
    fn common(self, other: Self) -> u8;
    /// The next address, if there is one.
    fn next(self) -> Option<Self>;
    /// The address before, if there is one.
    fn previous(self) -> Option<Self>;
}

macro_rules! address {
    ($t:ty) => {
        impl Address for $t {
            const BITS: u8 = <$t>::BITS as u8;
            #[inline(always)]
            fn first(self, len: u8) -> Self {
                self & !<$t>::MAX.checked_shr(len.into()).unwrap_or(0)
            }
            #[inline(always)]
            fn last(self, len: u8) -> Self {
                self | <$t>::MAX.checked_shr(len.into()).unwrap_or(0)
            }
            #[inline(always)]
            fn bit(self, i: u8) -> usize {
                if i < <Self as Address>::BITS { (self >> (<Self as Address>::BITS - 1 - i)) as usize & 1 } else { 0 }
            }
            #[inline(always)]
            fn common(self, other: Self) -> u8 {
                (self ^ other).leading_zeros() as u8
            }
            #[inline(always)]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            #[inline(always)]
            fn previous(self) -> Option<Self> {
                self.checked_sub(1)
            }
        }
    };
}
address!(u32);
address!(u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_enclose_the_prefix() {
        let a = 0x0a01_02ffu32;
        assert_eq!((a.first(24), a.last(24)), (0x0a01_0200, 0x0a01_02ff));
        assert_eq!((a.first(0), a.last(0)), (0, u32::MAX));
        assert_eq!((a.first(32), a.last(32)), (a, a));
        assert_eq!((1u128.first(128), 1u128.last(0)), (1, u128::MAX));
    }

    #[test]
    fn bits_count_from_the_first() {
        assert_eq!((0x8000_0001u32.bit(0), 0x8000_0001u32.bit(1), 0x8000_0001u32.bit(31)), (1, 0, 1));
        assert_eq!((1u128.bit(127), 1u128.bit(128)), (1, 0));
        assert_eq!((5u32.common(5), 5u32.common(4), 0u32.common(1 << 31)), (32, 31, 0));
    }
}
