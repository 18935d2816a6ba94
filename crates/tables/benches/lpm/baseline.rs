//! The `prefix-trie` crate in the same harness.

use super::Lookup;
use prefix_trie::PrefixMap;
use quiver_tables::synth;

/// IPv4 prefixes as `(address, length)`.
pub struct Trie4(PrefixMap<(u32, u8), u32>);

impl Trie4 {
    pub fn new(table: &[(u32, u8)]) -> Self {
        Trie4(table.iter().map(|(p, len)| ((*p, *len), synth::leaf(*p, *len, 7))).collect())
    }
}

impl Lookup<u32> for Trie4 {
    fn one(&self, addr: u32) -> u32 {
        self.0.get_lpm(&(addr, 32)).map_or(0, |(_, leaf)| *leaf)
    }
    fn many(&self, addrs: &[u32], out: &mut [u32]) {
        addrs.iter().zip(out).for_each(|(a, o)| *o = self.one(*a));
    }
}

/// IPv6 prefixes as `(address, length)`.
pub struct Trie6(PrefixMap<(u128, u8), u32>);

impl Trie6 {
    pub fn new(table: &[(u128, u8)]) -> Self {
        Trie6(table.iter().map(|(p, len)| ((*p, *len), synth::leaf(*p, *len, 7))).collect())
    }
}

impl Lookup<u128> for Trie6 {
    fn one(&self, addr: u128) -> u32 {
        self.0.get_lpm(&(addr, 128)).map_or(0, |(_, leaf)| *leaf)
    }
    fn many(&self, addrs: &[u128], out: &mut [u32]) {
        addrs.iter().zip(out).for_each(|(a, o)| *o = self.one(*a));
    }
}
