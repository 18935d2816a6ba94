//! Access lists like those that people write, by the shares of ClassBench's ACL seeds: destinations are hosts and small networks that
//! crowd in some blocks, sources are often any; mostly TCP with one destination port or a range. What is specific tends to come first.

use quiver_tables::boxes::Ranges;
use quiver_tables::synth::Random;

/// What stands for "no ports", one above the last port.
const NO_PORTS: u32 = 65536;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMP: [u32; 2] = [1, 58];

/// An address family: words of an address, and how long its prefixes are.
pub struct Family {
    words: usize,
    block: u32,
    network: u32,
}

pub const IPV4: Family = Family { words: 1, block: 14, network: 24 };
pub const IPV6: Family = Family { words: 4, block: 40, network: 64 };

impl Family {
    /// An address in one of the blocks that are in use: about as many as a large company has.
    fn address(&self, random: &mut Random) -> [u32; 4] {
        let block = Random::new(random.below(40)).bits();
        let network = Random::new(block ^ random.below(400)).bits();
        let bits = |random: &mut Random| random.bits() as u32;
        if self.words == 1 {
            let host = bits(random) & 0xff;
            return [(block as u32 & 0xfffc_0000) | (network as u32 & 0x3_ff00) | host, 0, 0, 0];
        }
        [0x2a00_0000 | block as u32 & 0xff_ffff, block as u32 & 0xff00_0000 | network as u32 & 0xffff, 0, bits(random) & 0xfff]
    }

    /// The length of a prefix: a host, a network and a bit, a block, or any.
    fn length(&self, shares: [u64; 4], random: &mut Random) -> u32 {
        let all = 32 * self.words as u32;
        let mut at = random.below(100);
        for (k, share) in shares.iter().enumerate() {
            if at < *share {
                return match k {
                    0 => all,
                    1 => self.network + random.below(u64::from(all.min(self.network + 8) - self.network)) as u32,
                    2 => self.block - 6 + random.below(u64::from(self.network - self.block + 6)) as u32,
                    _ => 0,
                };
            }
            at -= share;
        }
        0
    }
}

/// `n` rules.
pub fn list<const D: usize>(family: &Family, n: usize, seed: u64) -> Vec<Ranges<D>> {
    let mut random = Random::new(seed);
    let mut rules: Vec<(u64, Ranges<D>)> = (0..n).map(|_| one(family, &mut random)).collect();
    rules.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    rules.into_iter().map(|(_, rule)| rule).collect()
}

fn one<const D: usize>(family: &Family, random: &mut Random) -> (u64, Ranges<D>) {
    let mut rule = Ranges { low: [0; D], high: [u32::MAX; D], flags_mask: 0, flags_value: 0 };
    let source = family.length([20, 20, 20, 40], random);
    // One address at least is given.
    let destination = family.length(if source == 0 { [55, 30, 15, 0] } else { [55, 30, 12, 3] }, random);
    for (field, length) in [(0, source), (family.words, destination)] {
        let address = family.address(random);
        for (word, bits) in address.into_iter().enumerate().take(family.words) {
            let mask = u32::MAX.checked_shl(32 - length.saturating_sub(32 * word as u32).min(32)).unwrap_or(0);
            rule.low[field + word] = bits & mask;
            rule.high[field + word] = bits | !mask;
        }
    }
    let mut set = |field: usize, low: u32, high: u32| (rule.low[field], rule.high[field]) = (low, high);
    let protocol = 2 * family.words;
    let icmp = ICMP[usize::from(family.words > 1)];
    match random.below(100) {
        0..6 => {
            set(protocol, 0, 255);
            set(protocol + 1, 0, NO_PORTS);
            set(protocol + 2, 0, NO_PORTS);
        }
        6..9 => {
            set(protocol, icmp, icmp);
            set(protocol + 1, 0, NO_PORTS);
            set(protocol + 2, 0, NO_PORTS);
        }
        which => {
            let number = if which < 25 { UDP } else { TCP };
            set(protocol, number, number);
            if random.below(20) == 0 {
                set(protocol + 1, 1024, 65535)
            } else {
                set(protocol + 1, 0, 65535)
            }
            let popular = [22, 25, 53, 80, 80, 443, 443, 443, 389, 445, 1433, 1521, 3306, 3389, 8080];
            match random.below(100) {
                0..50 => {
                    let port = popular[random.below(popular.len() as u64) as usize];
                    set(protocol + 2, port, port);
                }
                50..65 => {
                    let port = random.below(10_000) as u32;
                    set(protocol + 2, port, port);
                }
                65..75 => {
                    let port = 1024 + random.below(30_000) as u32;
                    set(protocol + 2, port, port + random.below(200) as u32);
                }
                75..82 => set(protocol + 2, 1024, 65535),
                _ => set(protocol + 2, 0, 65535),
            }
        }
    }
    (u64::from(source + destination) * 24 / family.words as u64 + random.below(24 * 24), rule)
}

/// A key somewhere in a rule.
pub fn inside<const D: usize>(rule: &Ranges<D>, random: &mut Random) -> [u32; D] {
    std::array::from_fn(|j| rule.low[j] + random.below(u64::from(rule.high[j] - rule.low[j]) + 1) as u32)
}

/// A key that could be any packet from, to or between the blocks that are in use.
pub fn anywhere<const D: usize>(family: &Family, random: &mut Random) -> [u32; D] {
    let mut key = [0; D];
    let mut end = || match random.below(2) {
        0 => family.address(random),
        _ => [0; 4].map(|_| random.bits() as u32),
    };
    let (source, destination) = (end(), end());
    key[..family.words].copy_from_slice(&source[..family.words]);
    key[family.words..2 * family.words].copy_from_slice(&destination[..family.words]);
    let rest = [TCP, 1024 + random.below(60_000) as u32, random.below(65_536) as u32];
    key[2 * family.words..].copy_from_slice(&rest);
    key
}
