//! Pseudo-random numbers that are the same for the same seed, on every machine.

/// A generator of 64-bit numbers: SplitMix64, a counter behind a mixing function. Every number occurs once in its period of 2^64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// What the next number follows from.
    pub(crate) const fn state(&self) -> u64 {
        self.0
    }

    /// The next number.
    #[inline(always)]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0. The bias is at most n / 2^64.
    #[inline(always)]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// A number of more than 0 and at most 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_and_stay_in_range() {
        let mut random = Random::new(7);
        let mut bins = [0_u32; 10];
        for _ in 0..100_000 {
            bins[random.below(10) as usize] += 1;
            let unit = random.unit();
            assert!(unit > 0.0 && unit <= 1.0);
        }
        // Five standard deviations of a binomial count.
        assert!(bins.iter().all(|n| n.abs_diff(10_000) < 475), "{bins:?}");
        assert_eq!(random.below(0), 0);
    }
}
