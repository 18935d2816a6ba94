//! What is announced, where packets must arrive by it, and destinations to try.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use quiver_tables::synth::{self, Random};

/// Prefixes that the peer alone announces, each within one of the upstream's, beside a default route.
pub const PEER_PREFIXES: usize = 1000;
const PEER_LENGTH: u8 = 26;

/// A neighbour of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Announces the full table.
    Upstream,
    /// Announces a default route, and some more specific prefixes.
    Peer,
}

/// All announcements.
pub struct Table {
    /// The upstream's prefixes.
    pub upstream: Vec<(u32, u8)>,
    /// The peer's.
    pub peer: Vec<(u32, u8)>,
    /// Where the upstream's come from, in a word.
    pub origin: &'static str,
    reference: HashMap<(u32, u8), Side>,
}

/// An address as a prefix of a length.
fn masked(address: u32, len: u8) -> u32 {
    address & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// Addresses that somebody may route to and that are not the demo's own.
fn is_usable(address: u32) -> bool {
    let first = address >> 24;
    (1..224).contains(&first) && first != 10 && first != 127
}

impl Table {
    /// The real full table, or a generated one, cut to so many prefixes.
    pub fn new(most: usize) -> Self {
        let (mut upstream, origin) = synth::full_table4();
        upstream.retain(|(address, len)| *len > 0 && is_usable(*address));
        let mut random = Random::new(1);
        for at in (1..upstream.len()).rev() {
            upstream.swap(at, random.below(at as u64 + 1) as usize);
        }
        upstream.truncate(most);
        let mut reference: HashMap<(u32, u8), Side> = upstream.iter().map(|prefix| (*prefix, Side::Upstream)).collect();
        let mut peer = Vec::new();
        while peer.len() < PEER_PREFIXES.min(upstream.len()) {
            let (address, len) = upstream[random.below(upstream.len() as u64) as usize];
            let within = masked(address | (random.bits() as u32 & !masked(u32::MAX, len)), PEER_LENGTH);
            if len < PEER_LENGTH && reference.insert((within, PEER_LENGTH), Side::Peer).is_none() {
                peer.push((within, PEER_LENGTH));
            }
        }
        Self { upstream, peer, origin, reference }
    }

    /// Where a packet must arrive: by the longest prefix, one length after the other.
    pub fn side(&self, address: u32) -> Side {
        let found = (1..=32).rev().find_map(|len| self.reference.get(&(masked(address, len), len)));
        // The default route.
        found.copied().unwrap_or(Side::Peer)
    }

    /// Destinations: a quarter in prefixes of the peer, a quarter anywhere, the rest in prefixes of the upstream.
    pub fn destinations(&self, n: usize, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        let upstream = synth::addresses4(&self.upstream, n, seed);
        let peer = synth::addresses4(&self.peer, n, seed + 1);
        (0..n)
            .map(|at| match at % 4 {
                0 => peer[at],
                1 => std::iter::repeat_with(|| random.bits() as u32).find(|address| is_usable(*address)).unwrap_or_default(),
                _ => upstream[at],
            })
            .collect()
    }

    /// Destinations that go to the upstream and, when it has gone, to the peer.
    pub fn of_upstream(&self, n: usize) -> Vec<u32> {
        let mut all = synth::addresses4(&self.upstream, 4 * n, 7);
        all.retain(|address| self.side(*address) == Side::Upstream);
        all.sort_unstable();
        all.dedup();
        all.truncate(n);
        all
    }
}

/// A prefix as daemons read it.
pub fn text((address, len): &(u32, u8)) -> String {
    format!("{}/{len}", Ipv4Addr::from(*address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let prefix = |text: &str| u32::from(text.parse::<Ipv4Addr>().unwrap());
        let reference = [((prefix("20.0.0.0"), 8), Side::Upstream), ((prefix("20.1.2.64"), 26), Side::Peer)];
        let table = Table { upstream: Vec::new(), peer: Vec::new(), origin: "", reference: reference.into() };
        for (address, side) in [
            ("20.255.0.1", Side::Upstream),
            ("20.1.2.63", Side::Upstream),
            ("20.1.2.64", Side::Peer),
            ("20.1.2.127", Side::Peer),
            ("20.1.2.128", Side::Upstream),
            ("21.0.0.0", Side::Peer),
        ] {
            assert_eq!(table.side(prefix(address)), side, "{address}");
        }
    }
}
