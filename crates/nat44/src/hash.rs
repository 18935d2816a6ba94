//! A hash of few words: two multiplications each. SipHash took as long as the rest of a look-up.

use std::hash::{BuildHasher, Hasher};

/// Both halves of a product, folded.
#[inline(always)]
pub fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// Makes hashes by a seed. Whoever does not know it cannot make keys meet; for keys that only the operator chooses, the default will do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seed(pub u64);

impl BuildHasher for Seed {
    type Hasher = Mix;

    #[inline(always)]
    fn build_hasher(&self) -> Mix {
        Mix { seed: self.0, state: self.0 }
    }
}

/// See [`Seed`].
pub struct Mix {
    seed: u64,
    state: u64,
}

macro_rules! words {
    ($($name:ident: $word:ty),*) => {
        $(
            #[inline(always)]
            fn $name(&mut self, word: $word) {
                self.write_u64(word.into());
            }
        )*
    };
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    words!(write_u8: u8, write_u16: u16, write_u32: u32);

    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(fold(word ^ self.state, 0x9e37_79b9_7f4a_7c15) ^ self.seed, 0xbb67_ae85_84ca_a73b);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_spread() {
        let hash = |word: u64| Seed(0x1234).hash_one(word);
        // Each bit of the hash, the lowest and the highest above all, is set for about half of a subnet's hosts.
        for bit in 0..64 {
            let set = (0..1024_u32).filter(|n| hash(u64::from(0x0a00_0000 + n) << 16) >> bit & 1 == 1).count();
            assert!((384..640).contains(&set), "bit {bit}: {set} of 1024");
        }
        assert_ne!(Seed(1).hash_one(5_u64), Seed(2).hash_one(5_u64));
    }

    #[test]
    fn a_key_of_several_words_is_all_of_them() {
        let hash = |key: (u32, u16, u8)| Seed(7).hash_one(key);
        let all = [hash((1, 2, 3)), hash((1, 2, 4)), hash((1, 3, 3)), hash((2, 2, 3)), hash((2, 1, 3))];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_eq!(hash((1, 2, 3)), hash((1, 2, 3)));
    }
}
