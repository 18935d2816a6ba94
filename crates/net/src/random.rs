//! Numbers by which timers differ.

/// Numbers that need not be hard to guess (xorshift): times only have to differ.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// 0 to `below` - 1; 0 for 0.
    pub fn below(&mut self, below: u64) -> u64 {
        (self.next() >> 11) % below.max(1)
    }

    /// 0 to 65,535.
    pub fn word(&mut self) -> u16 {
        (self.next() >> 32) as u16
    }
}
