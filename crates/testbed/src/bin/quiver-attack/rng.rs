//! Numbers drawn from a seed (splitmix64), and odd ones.

/// The source of all that is drawn.
pub struct Rng(u64);

impl Rng {
    /// One for a round of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of some.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number that somebody may not have thought of, more often than others.
    pub fn odd(&mut self) -> u64 {
        let edge = 1_u64 << self.below(64);
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => edge,
            3 => edge - 1,
            4 => edge.wrapping_neg(),
            5 => self.next(),
            _ => self.next() % 16,
        }
    }
}
