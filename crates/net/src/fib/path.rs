//! What a route consists of, as the user says it.

use std::net::IpAddr;

use quiver_graph::IfIndex;

use super::source::Source;
use crate::ip::FamilyId;

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// To a neighbour on a link.
    Neighbor {
        /// Interface.
        interface: IfIndex,
        /// Next hop.
        address: IpAddr,
    },
    /// Every destination is a neighbour on this link. `source` is our address there, if any.
    Attached {
        /// Interface.
        interface: IfIndex,
        /// Own address, which asks for neighbours.
        source: Option<IpAddr>,
    },
    /// To a next hop that a table knows how to reach.
    Recursive {
        /// User's number of the table that resolves it.
        table: u32,
        /// Next hop.
        address: IpAddr,
        /// What may resolve it.
        via: ResolveVia,
    },
    /// Looked up again in another table (user's number).
    Lookup(u32),
    /// Its source address is looked up in a table (user's number), and the packet goes where that leads.
    SourceLookup(u32),
    /// Taken as if it had come in on another interface.
    InterfaceRx(IfIndex),
    /// For this router.
    Receive,
    /// Dropped.
    Drop,
    /// Handed to the host.
    Punt,
    /// Answered by "destination unreachable".
    Unreachable,
    /// Answered by "administratively prohibited".
    Prohibited,
    /// Decided by the interface's link-local table (IPv6).
    LinkLocal,
    /// Over an interface that is gone.
    Gone,
}

/// What may resolve a recursive next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResolveVia {
    /// Any route.
    #[default]
    Any,
    /// A host route only.
    Host,
    /// A directly connected prefix only.
    Attached,
}

/// One way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// Lower is preferred; only the most preferred paths that are up are used.
    pub preference: u8,
    /// Where it leads.
    pub hop: Hop,
    /// Share of the traffic among paths of equal preference, from 1.
    pub weight: u8,
}

impl Path {
    /// A path with weight 1 and preference 0.
    pub const fn new(hop: Hop) -> Self {
        Self { preference: 0, hop, weight: 1 }
    }

    /// To a neighbour.
    pub const fn neighbor(interface: IfIndex, address: IpAddr) -> Self {
        Self::new(Hop::Neighbor { interface, address })
    }

    /// To a next hop that table 0 resolves.
    pub const fn recursive(address: IpAddr) -> Self {
        Self::new(Hop::Recursive { table: 0, address, via: ResolveVia::Any })
    }

    /// Interface that it leaves on or is taken from, where it says so.
    pub const fn interface(&self) -> Option<IfIndex> {
        match self.hop {
            Hop::Neighbor { interface, .. } | Hop::Attached { interface, .. } | Hop::InterfaceRx(interface) => Some(interface),
            _ => None,
        }
    }

    /// Table that packets of a family are looked up in, or the next hop is (user's number): a next hop may be of the other family.
    pub(crate) const fn table(&self, packets: FamilyId) -> Option<(FamilyId, u32)> {
        match self.hop {
            Hop::Recursive { table, address, .. } => Some((FamilyId::of(&address), table)),
            Hop::Lookup(table) | Hop::SourceLookup(table) => Some((packets, table)),
            _ => None,
        }
    }

    /// Next hop, where it has one.
    pub const fn next_hop(&self) -> Option<IpAddr> {
        match self.hop {
            Hop::Neighbor { address, .. } | Hop::Recursive { address, .. } => Some(address),
            _ => None,
        }
    }

    /// Whether the path can stand beside others in a route.
    pub const fn may_share(&self) -> bool {
        matches!(self.hop, Hop::Neighbor { .. } | Hop::Attached { .. } | Hop::Recursive { .. } | Hop::Gone)
    }

    /// The path as it serves one host only: a link without a next hop leads to the host itself, as a neighbour there.
    pub const fn to_host(mut self, host: IpAddr) -> Self {
        let is_one = match host {
            IpAddr::V4(a) => !(a.is_unspecified() || a.is_multicast() || a.is_broadcast()),
            IpAddr::V6(a) => !(a.is_unspecified() || a.is_multicast()),
        };
        if let (true, Hop::Attached { interface, source: None }) = (is_one, self.hop) {
            self.hop = Hop::Neighbor { interface, address: host };
        }
        self
    }

    /// Whether two paths are the same way, whatever their weights.
    pub fn same_way(&self, other: &Self) -> bool {
        self.hop == other.hop && self.preference == other.preference
    }
}

/// What a path list is known by: routes of a table that agree in all of it share one load-balance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub family: FamilyId,
    /// FIB index: the flow hash is the table's.
    pub fib: u32,
    pub source: Source,
    /// Sorted.
    pub paths: Box<[Path]>,
}

/// Paths of `old` with `new` among them: the same way twice takes the new weight, and a path that cannot share stands alone.
pub(crate) fn merge(old: &[Path], new: &[Path]) -> Vec<Path> {
    let mut paths: Vec<Path> = old.to_vec();
    for path in new {
        if !path.may_share() || paths.iter().any(|p| !p.may_share()) {
            paths.clear();
        }
        paths.retain(|p| !p.same_way(path));
        paths.push(*path);
    }
    paths
}

/// Paths of `old` without those of `gone`; `None` where one of them is not there.
pub(crate) fn without(old: &[Path], gone: &[Path]) -> Option<Vec<Path>> {
    let mut paths: Vec<Path> = old.to_vec();
    for path in gone {
        let at = paths.iter().position(|p| p.hop == path.hop)?;
        paths.remove(at);
    }
    Some(paths)
}

/// Most buckets of one load-balance.
const SPREAD_MAX: u64 = 4096;

/// How many of 2^n buckets each weight gets: the smallest n for which the shares are off by at most a tenth in sum, every
/// path having at least one. Weights 2 and 1 become 5 and 3 of 8.
pub(crate) fn spread(weights: &[u64]) -> Vec<u32> {
    let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    if sum == 0 {
        return Vec::new();
    }
    let mut n = (weights.len() as u64).next_power_of_two().min(SPREAD_MAX);
    loop {
        let ideal: Vec<u128> = weights.iter().map(|w| u128::from(*w) * u128::from(n)).collect();
        let mut counts: Vec<u128> = ideal.iter().map(|i| (i / sum).max(1)).collect();
        // Largest remainder gets what is left; the largest count gives what is too much.
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(ideal[*i] % sum));
        let mut turn = order.iter().cycle();
        while counts.iter().sum::<u128>() < u128::from(n) {
            if let Some(i) = turn.next() {
                counts[*i] += 1;
            }
        }
        while counts.iter().sum::<u128>() > u128::from(n) {
            // More paths than buckets: the last ones get none.
            let Some(at) = (0..counts.len()).max_by_key(|i| (counts[*i], *i)) else { break };
            counts[at] -= 1;
        }
        let error: u128 = ideal.iter().zip(&counts).map(|(i, c)| i.abs_diff(c * sum)).sum();
        if error * 10 <= sum * u128::from(n) || n >= SPREAD_MAX {
            return counts.into_iter().map(|c| c as u32).collect();
        }
        n *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_powers_of_two_within_a_tenth() {
        assert_eq!(spread(&[7]), [1]);
        assert_eq!(spread(&[1, 1]), [1, 1]);
        assert_eq!(spread(&[2, 1]), [5, 3]);
        assert_eq!(spread(&[1, 1, 1]), [6, 5, 5]);
        assert_eq!(spread(&[1; 64]), [1; 64]);
        assert!(spread(&[]).is_empty());
        for weights in [vec![1, 255], vec![255, 1, 1], vec![3, 5, 7, 11], vec![1; 33], vec![1 << 40, 1]] {
            let counts = spread(&weights);
            let n: u32 = counts.iter().sum();
            assert!(n.is_power_of_two() && u64::from(n) <= SPREAD_MAX, "{weights:?}: {counts:?}");
            assert!(counts.iter().all(|c| *c >= 1), "{weights:?}: {counts:?}");
        }
        let many = spread(&vec![1; 5000]);
        assert_eq!(many.iter().sum::<u32>(), 4096);
    }

    #[test]
    fn adding_a_path_again_changes_its_weight() {
        let hop = |n: u8| Path::recursive(IpAddr::from([10, 0, 0, n]));
        let heavy = Path { weight: 3, ..hop(1) };
        assert_eq!(merge(&[hop(1), hop(2)], &[heavy]), [hop(2), heavy]);
        assert_eq!(merge(&[hop(1)], &[Path::new(Hop::Drop)]), [Path::new(Hop::Drop)]);
        assert_eq!(merge(&[Path::new(Hop::Drop)], &[hop(1)]), [hop(1)]);
        assert_eq!(without(&[hop(1), hop(2)], &[heavy]), Some(vec![hop(2)]));
        assert_eq!(without(&[hop(1)], &[hop(2)]), None);
    }
}
