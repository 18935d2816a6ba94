//! Keys of fixed size, as 64-bit words; with a word beside them that readers may write, if wanted.

use super::ValueWord;
use crate::mem::AtomicRecord;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// A key of a [`BoundedHash`](super::BoundedHash): `u32`, `u64`, `u128`, or 8, 16, 24, 40, 64 or 80 bytes.
pub trait Key: sealed::Sealed + Copy + Eq + Hash + std::fmt::Debug + Send + Sync + 'static {
    /// How a key and its value lie in memory.
    #[doc(hidden)]
    type Entry: AtomicRecord;
    /// The hash of the key under a seed.
    #[doc(hidden)]
    fn hash_seeded(&self, seed: u64) -> u64;
    /// Whether the entry has this key.
    #[doc(hidden)]
    fn is_in(&self, entry: &Self::Entry) -> bool;
    /// Writes the key into an entry that no reader reaches.
    #[doc(hidden)]
    fn write(&self, entry: &Self::Entry);
    /// The entry's key.
    #[doc(hidden)]
    fn read(entry: &Self::Entry) -> Self;
    /// The entry's value.
    #[doc(hidden)]
    fn value(entry: &Self::Entry) -> &ValueWord;
}

/// `W` words of key, and the value.
#[doc(hidden)]
#[repr(C, align(8))]
#[derive(Debug)]
pub struct Words<const W: usize> {
    key: [AtomicU64; W],
    value: ValueWord,
    _rest: ValueWord,
}

// SAFETY: atomics only, the last two filling a word, so there is no padding.
unsafe impl<const W: usize> AtomicRecord for Words<W> {}

/// Multiplies to 128 bits and folds: every bit of either factor reaches every bit of the result.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Odd constants from the binary digits of the square roots of 2, 3, 5 and so on.
const ROOTS: [u64; 5] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1, 0x510e_527f_ade6_82d1];

#[inline(always)]
fn hash_words<const W: usize>(words: &[u64; W], seed: u64) -> u64 {
    let mut h = seed;
    for (i, word) in words.iter().enumerate() {
        h = fold(h ^ word ^ ROOTS[i % ROOTS.len()], ROOTS[(i + 1) % ROOTS.len()]);
    }
    // Once more, so that the last word too has gone through two rounds: tag and bucket come from different halves.
    fold(h ^ seed, ROOTS[1])
}

macro_rules! key {
    ($key:ty, $w:literal, $split:expr, $join:expr) => {
        impl sealed::Sealed for $key {}
        impl Key for $key {
            type Entry = Words<$w>;
            #[inline(always)]
            fn hash_seeded(&self, seed: u64) -> u64 {
                let split: fn(&$key) -> [u64; $w] = $split;
                hash_words(&split(self), seed)
            }
            #[inline(always)]
            fn is_in(&self, entry: &Words<$w>) -> bool {
                let split: fn(&$key) -> [u64; $w] = $split;
                let mut differ = 0;
                for (mine, its) in split(self).iter().zip(&entry.key) {
                    differ |= mine ^ its.load(Ordering::Relaxed);
                }
                differ == 0
            }
            fn write(&self, entry: &Words<$w>) {
                let split: fn(&$key) -> [u64; $w] = $split;
                for (mine, its) in split(self).iter().zip(&entry.key) {
                    its.store(*mine, Ordering::Relaxed);
                }
            }
            fn read(entry: &Words<$w>) -> Self {
                let join: fn([u64; $w]) -> $key = $join;
                let mut words = [0; $w];
                for (word, its) in words.iter_mut().zip(&entry.key) {
                    *word = its.load(Ordering::Relaxed);
                }
                join(words)
            }
            #[inline(always)]
            fn value(entry: &Words<$w>) -> &ValueWord {
                &entry.value
            }
        }
    };
}

#[inline(always)]
fn words_of<const W: usize>(bytes: &[u8]) -> [u64; W] {
    let mut words = [0; W];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

fn bytes_of<const W: usize, const B: usize>(words: [u64; W]) -> [u8; B] {
    let mut bytes = [0; B];
    for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    bytes
}

key!(u32, 1, |k| [u64::from(*k)], |w| w[0] as u32);
key!(u64, 1, |k| [*k], |w| w[0]);
key!(u128, 2, |k| [*k as u64, (*k >> 64) as u64], |w| u128::from(w[0]) | u128::from(w[1]) << 64);
key!([u8; 8], 1, |k| words_of(k), bytes_of);
key!([u8; 16], 2, |k| words_of(k), bytes_of);
key!([u8; 24], 3, |k| words_of(k), bytes_of);
key!([u8; 40], 5, |k| words_of(k), bytes_of);
key!([u8; 64], 8, |k| words_of(k), bytes_of);
key!([u8; 80], 10, |k| words_of(k), bytes_of);

/// A key whose entries have a note: a word of 64 bits in the entry's line, for what changes with each use.
pub trait WithNote: Key {
    /// The note of an entry.
    #[doc(hidden)]
    fn note(entry: &Self::Entry) -> &AtomicU64;
}

/// A key with a note: `u128` or 40 bytes. Its entries lie in one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Noted<K>(pub K);

macro_rules! noted {
    ($key:ty, $w:literal, $rest:literal, $entry:ident, $align:literal) => {
        #[doc(hidden)]
        #[repr(C, align($align))]
        #[derive(Debug)]
        pub struct $entry {
            words: Words<$w>,
            note: AtomicU64,
            _rest: [AtomicU64; $rest],
        }

        // SAFETY: atomics only, which fill the alignment, so there is no padding.
        unsafe impl AtomicRecord for $entry {}
        const _: () = assert!(size_of::<$entry>() == 8 * ($w + 2 + $rest));

        impl sealed::Sealed for Noted<$key> {}
        impl Key for Noted<$key> {
            type Entry = $entry;
            #[inline(always)]
            fn hash_seeded(&self, seed: u64) -> u64 {
                self.0.hash_seeded(seed)
            }
            #[inline(always)]
            fn is_in(&self, entry: &$entry) -> bool {
                self.0.is_in(&entry.words)
            }
            fn write(&self, entry: &$entry) {
                self.0.write(&entry.words);
                entry.note.store(0, Ordering::Relaxed);
            }
            fn read(entry: &$entry) -> Self {
                Self(<$key>::read(&entry.words))
            }
            #[inline(always)]
            fn value(entry: &$entry) -> &ValueWord {
                <$key>::value(&entry.words)
            }
        }
        impl WithNote for Noted<$key> {
            #[inline(always)]
            fn note(entry: &$entry) -> &AtomicU64 {
                &entry.note
            }
        }
    };
}

noted!(u128, 2, 0, Noted16, 32);
noted!([u8; 40], 5, 1, Noted40, 64);
