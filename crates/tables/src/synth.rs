//! Routing tables for tests and benches: generated ones with the prefix lengths of the real ones, and a reader for those.
//!
//! Everything follows from the seed. A generated table has the real one's length histogram (full tables of January 2024)
//! and resembles it in what a lookup structure feels: prefixes crowd in some blocks and leave others empty, and about half
//! of them lie under another one.

use crate::address::Address;
use std::collections::HashSet;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Prefixes of the real IPv4 table by length.
pub const LENGTHS4: [(u8, u32); 25] = [
    (8, 16),
    (9, 13),
    (10, 38),
    (11, 103),
    (12, 299),
    (13, 581),
    (14, 1203),
    (15, 2100),
    (16, 13490),
    (17, 8235),
    (18, 13798),
    (19, 24870),
    (20, 42611),
    (21, 50750),
    (22, 108_623),
    (23, 96510),
    (24, 537_698),
    (25, 20),
    (26, 3),
    (27, 11),
    (28, 18),
    (29, 17),
    (30, 3),
    (31, 3),
    (32, 886),
];

/// Prefixes of the real IPv6 table by length.
pub const LENGTHS6: [(u8, u32); 46] = [
    (16, 1),
    (19, 1),
    (20, 16),
    (21, 3),
    (22, 7),
    (23, 8),
    (24, 30),
    (25, 8),
    (26, 15),
    (27, 20),
    (28, 193),
    (29, 4371),
    (30, 650),
    (31, 284),
    (32, 22548),
    (33, 2926),
    (34, 2603),
    (35, 1043),
    (36, 5996),
    (37, 880),
    (38, 1617),
    (39, 1377),
    (40, 13418),
    (41, 903),
    (42, 2301),
    (43, 1001),
    (44, 14365),
    (45, 1553),
    (46, 3039),
    (47, 3153),
    (48, 75488),
    (49, 11),
    (50, 3),
    (52, 1),
    (55, 1),
    (56, 24),
    (58, 20),
    (60, 2),
    (64, 184),
    (112, 2),
    (122, 1),
    (124, 4),
    (125, 9),
    (126, 19),
    (127, 42),
    (128, 6),
];

/// A small, good generator (splitmix64): the same numbers everywhere for a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// `n` different IPv4 prefixes in random order.
pub fn ipv4(n: usize, seed: u64) -> Vec<(u32, u8)> {
    let mut random = Random::new(seed);
    // Three fifths of the unicast /16s are in use.
    let blocks: Vec<u32> = (0x0100u32..0xe000).filter(|_| random.below(5) < 3).map(|b| b << 16).collect();
    generate(&LENGTHS4, n, &mut random, |r| {
        let block = blocks[r.below(blocks.len() as u64) as usize];
        block | r.bits() as u32 & 0xffff
    })
}

/// `n` different IPv6 prefixes in random order.
pub fn ipv6(n: usize, seed: u64) -> Vec<(u128, u8)> {
    const TOPS: [u16; 24] = [
        0x2001, 0x2001, 0x2400, 0x2401, 0x2402, 0x2403, 0x2404, 0x2405, 0x2406, 0x2407, 0x2408, 0x2600, 0x2602, 0x2604, 0x2605,
        0x2606, 0x2607, 0x2620, 0x2803, 0x2804, 0x2a00, 0x2a02, 0x2a06, 0x2c0f,
    ];
    let mut random = Random::new(seed);
    generate(&LENGTHS6, n, &mut random, |r| {
        let top = TOPS[r.below(TOPS.len() as u64) as usize];
        u128::from(top) << 112 | u128::from(r.bits()) << 48 | u128::from(r.bits() >> 16)
    })
}

/// What the generator needs beyond [`Address`].
trait Splice: Address {
    /// The bits of `self` before `len`, those of `other` from there on.
    fn splice(self, len: u8, other: Self) -> Self;
}

impl Splice for u32 {
    fn splice(self, len: u8, other: Self) -> Self {
        self.first(len) | other & 0u32.last(len)
    }
}

impl Splice for u128 {
    fn splice(self, len: u8, other: Self) -> Self {
        self.first(len) | other & 0u128.last(len)
    }
}

fn generate<A: Splice>(
    lengths: &[(u8, u32)],
    n: usize,
    random: &mut Random,
    mut address: impl FnMut(&mut Random) -> A,
) -> Vec<(A, u8)> {
    let total: u64 = lengths.iter().map(|(_, count)| u64::from(*count)).sum();
    let (mut seen, mut table) = (HashSet::with_capacity(n), Vec::<(A, u8)>::with_capacity(n));
    let mut sum = 0;
    for (len, count) in lengths {
        // Running sums, so that rounding does not lose prefixes; the shortest lengths come first, to nest under.
        sum += u64::from(*count);
        let until = (u128::from(sum) * n as u128 / u128::from(total)) as usize;
        let shorter = table.len() as u64;
        let mut tries = 0;
        while table.len() < until && tries < 64 * n {
            tries += 1;
            let random_address = address(random);
            let nested = shorter > 0 && random.below(2) == 0;
            let at = if nested {
                let (above, above_len) = table[random.below(shorter) as usize];
                above.splice(above_len, random_address)
            } else {
                random_address
            };
            let prefix = (at.first(*len), *len);
            if seen.insert(prefix) {
                table.push(prefix);
            }
        }
    }
    for i in (1..table.len()).rev() {
        table.swap(i, random.below(i as u64 + 1) as usize);
    }
    table
}

/// A leaf for a prefix, skewed like real next hops: two carry about 89 % of the prefixes, sixty share the rest.
pub fn leaf<A: Into<u128>>(prefix: A, len: u8, seed: u64) -> u32 {
    let h = prefix_hash(prefix, len, seed);
    match h % 1000 {
        0..560 => 1,
        560..890 => 2,
        _ => {
            // Each next hop has half as many again as the next eight together: a quick fall with a long tail.
            let tail = (h >> 32) as u32;
            3 + (tail.leading_zeros() * 8 + (tail & 7)).min(59)
        }
    }
}

/// A leaf for a prefix, evenly out of 256.
pub fn leaf_uniform<A: Into<u128>>(prefix: A, len: u8, seed: u64) -> u32 {
    1 + (prefix_hash(prefix, len, seed) & 255) as u32
}

fn prefix_hash<A: Into<u128>>(prefix: A, len: u8, seed: u64) -> u64 {
    let p = prefix.into();
    mix(mix(p as u64 ^ seed).wrapping_add((p >> 64) as u64).wrapping_add(u64::from(len)))
}

/// Addresses inside random prefixes of a table, with random bits behind them.
pub fn addresses4(table: &[(u32, u8)], n: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| pick(table, &mut random).map_or(0, |(p, len)| p.splice(len, random.bits() as u32))).collect()
}

/// As [`addresses4`], for IPv6.
pub fn addresses6(table: &[(u128, u8)], n: usize, seed: u64) -> Vec<u128> {
    let mut random = Random::new(seed);
    let wide = |r: &mut Random| u128::from(r.bits()) << 64 | u128::from(r.bits());
    (0..n).map(|_| pick(table, &mut random).map_or(0, |(p, len)| p.splice(len, wide(&mut random)))).collect()
}

fn pick<A: Copy>(table: &[(A, u8)], random: &mut Random) -> Option<(A, u8)> {
    table.get(random.below(table.len() as u64) as usize).copied()
}

/// Where the real tables are, if this machine has them: `QUIVER_ROUTES`, or `shared/data/routes` beside the repository.
pub fn routes_folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/routes");
    std::env::var_os("QUIVER_ROUTES").map(PathBuf::from).or(Some(beside)).filter(|p| p.is_dir())
}

/// The real IPv4 table, or a generated one of its size; and which of the two it is.
pub fn full_table4() -> (Vec<(u32, u8)>, &'static str) {
    let real = real_table("ipv4-bgp-prefixes.txt.xz", |ip, len| match ip {
        IpAddr::V4(ip) => Some((ip.to_bits(), len)),
        IpAddr::V6(_) => None,
    });
    real.map_or_else(|| (ipv4(901_899, 1), "generated"), |table| (table, "real"))
}

/// The real IPv6 table, or a generated one of its size; and which of the two it is.
pub fn full_table6() -> (Vec<(u128, u8)>, &'static str) {
    let real = real_table("ipv6-bgp-prefixes.txt.xz", |ip, len| match ip {
        IpAddr::V6(ip) => Some((ip.to_bits(), len)),
        IpAddr::V4(_) => None,
    });
    real.map_or_else(|| (ipv6(160_147, 1), "generated"), |table| (table, "real"))
}

/// Reads a table of one prefix a line, unpacked by the `xz` program. None if anything about it is not as it should be.
fn real_table<T>(name: &str, convert: impl Fn(IpAddr, u8) -> Option<T>) -> Option<Vec<T>> {
    let file = std::fs::File::open(routes_folder()?.join(name)).ok()?;
    let mut xz = Command::new("xz").arg("-dc").stdin(file).stdout(Stdio::piped()).spawn().ok()?;
    let mut text = String::new();
    let read = xz.stdout.take()?.read_to_string(&mut text);
    if !xz.wait().ok()?.success() || read.is_err() {
        return None;
    }
    text.lines()
        .map(|line| {
            let (ip, len) = line.trim().split_once('/')?;
            convert(ip.parse().ok()?, len.parse().ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_tables_have_the_real_lengths_and_no_duplicates() {
        let table = ipv4(50_000, 3);
        assert_eq!(table.len(), 50_000);
        assert_eq!(table, ipv4(50_000, 3));
        assert_ne!(table, ipv4(50_000, 4));
        assert_eq!(table.iter().collect::<HashSet<_>>().len(), table.len());
        let share = table.iter().filter(|(_, len)| *len == 24).count() as f64 / 50_000.0;
        assert!((share - 537_698.0 / 901_899.0).abs() < 0.001, "{share}");
        assert!(table.iter().all(|(p, len)| p.first(*len) == *p));
        let table = ipv6(20_000, 3);
        assert_eq!((table.len(), table.iter().collect::<HashSet<_>>().len()), (20_000, 20_000));
    }

    #[test]
    fn two_leaves_carry_most_prefixes() {
        let mut counts = [0u32; 64];
        for i in 0..100_000u32 {
            counts[leaf(i << 8, 24, 1) as usize] += 1;
        }
        assert!((88_000..90_000).contains(&(counts[1] + counts[2])) && counts[0] == 0);
        assert!(counts.iter().filter(|c| **c > 0).count() > 40);
    }

    #[test]
    fn addresses_lie_in_the_table() {
        let table = vec![(0x0a00_0000u32, 8u8)];
        assert!(addresses4(&table, 100, 1).iter().all(|a| a >> 24 == 10));
        assert_eq!(addresses4(&[], 2, 1), [0, 0]);
        assert!(addresses6(&[(1 << 127, 1)], 100, 1).iter().all(|a| a >> 127 == 1));
    }
}
