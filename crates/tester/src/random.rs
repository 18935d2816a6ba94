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

/// Draws places of a list in proportion to their weights, each in the same short time: every column of a table is one place and what
/// fills it up of another one (A. J. Walker's aliases, filled in the way of M. D. Vose, IEEE TSE 17(9), 1991).
#[derive(Clone, Debug)]
pub struct Alias {
    /// Part of the column, of 2^32, that is its own place's; and whose the rest is.
    columns: Box<[(u32, u32)]>,
}

impl Alias {
    /// For weights of at least one place, all above 0, and of less than 2^32 places.
    pub fn new(weights: impl Iterator<Item = f64>) -> Self {
        let mut heights: Vec<f64> = weights.collect();
        let scale = heights.len() as f64 / heights.iter().sum::<f64>();
        heights.iter_mut().for_each(|h| *h *= scale);
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..heights.len()).partition(|i| heights[*i] < 1.0);
        let mut columns: Vec<(u32, u32)> = (0..heights.len()).map(|i| (u32::MAX, i as u32)).collect();
        while let (Some(small), Some(large)) = (low.pop(), high.pop()) {
            columns[small] = ((heights[small] * 4_294_967_296.0) as u32, large as u32);
            heights[large] -= 1.0 - heights[small];
            if heights[large] < 1.0 { low.push(large) } else { high.push(large) }
        }
        Self { columns: columns.into_boxed_slice() }
    }

    /// Of each column the part that is its own place's, of 2^32, and whose the rest is.
    pub(crate) fn columns(&self) -> &[(u32, u32)] {
        &self.columns
    }

    /// A place.
    #[inline(always)]
    pub fn draw(&self, random: &mut Random) -> usize {
        // Whole part: the column. What follows the point: where in it.
        let drawn = u128::from(random.next_u64()) * self.columns.len() as u128;
        let column = (drawn >> 64) as usize;
        let (own, other) = self.columns[column];
        if ((drawn >> 32) as u32) < own { column } else { other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_drawn_as_often_as_they_weigh() {
        for weights in [vec![1.0], vec![1.0, 1.0], vec![5.0, 0.5, 1.0, 3.5], (1..=100).map(|r| 1.0 / f64::from(r)).collect()] {
            let (table, mut random) = (Alias::new(weights.iter().copied()), Random::new(3));
            let mut drawn = vec![0_u32; weights.len()];
            let n = 400_000;
            (0..n).for_each(|_| drawn[table.draw(&mut random)] += 1);
            let sum: f64 = weights.iter().sum();
            for (count, weight) in drawn.iter().zip(&weights) {
                let p = weight / sum;
                // Five standard deviations of a binomial count.
                let bound = 5.0 * (f64::from(n) * p * (1.0 - p)).sqrt() + 1e-9;
                assert!((f64::from(*count) - f64::from(n) * p).abs() <= bound, "{count} of {n} for {p}");
            }
        }
    }

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
