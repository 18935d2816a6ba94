//! What nodes read of the configuration: one snapshot, published by the main thread when something has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_tables::chunks::Chunks;

use crate::hash::Seed;
use crate::moved::Moved;
use crate::session::{Direction, Endpoint, Key, Session};
use crate::table::Timeouts;

/// First port that is given away: those below belong to services (RFC 6335).
pub const FIRST_PORT: u16 = 1024;
/// Ports that are given away, of each protocol and address.
pub const PORTS: u32 = 65_536 - FIRST_PORT as u32;

/// Whether sessions of a protocol have ports (or identifiers) of their own: ICMP, TCP, UDP.
pub fn has_ports(proto: u8) -> bool {
    matches!(proto, 1 | 6 | 17)
}

/// Which side of the NAT an interface is on; both is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Inside.
    pub inside: bool,
    /// Outside.
    pub outside: bool,
}

/// An address of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAddress {
    /// Address.
    pub addr: u32,
    /// Number and FIB of the table whose hosts it is for; none: for all.
    pub tenant: Option<(u32, u16)>,
    /// A port of it belongs to one inside endpoint whatever it speaks to, and anyone may speak to it.
    pub independent: bool,
}

/// Whether the source of packets from outside is changed too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Twice {
    /// It is not.
    #[default]
    No,
    /// It is.
    Always,
    /// Only where a host speaks to itself by its external address.
    ToSelf,
}

/// A static mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Protocol; none: all, addresses only.
    pub proto: Option<u8>,
    /// Inside; several share the work by weight (the sum of weights up to and with each).
    pub locals: Vec<(Endpoint, u32)>,
    /// As it is seen from outside; port 0 where only addresses are mapped.
    pub external: Endpoint,
    /// Number and FIB of the table that the inside belongs to.
    pub vrf: (u32, u16),
    /// Sessions begin outside only.
    pub out2in_only: bool,
    /// Whether sources from outside are changed too.
    pub twice: Twice,
    /// Not changed at all.
    pub identity: bool,
    /// How long a remote host comes back to the same inside host after its last session has ended, seconds; 0: not at all.
    pub affinity: u32,
}

impl Mapping {
    /// The inside endpoint for a packet from `remote` to port `port`.
    pub fn local_for(&self, remote: Endpoint, port: u16) -> Option<Endpoint> {
        let (last, total) = self.locals.last()?;
        let chosen = if self.locals.len() == 1 || *total == 0 {
            *last
        } else {
            let mixed = (u64::from(remote.addr) << 16 | u64::from(remote.port)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let at = ((mixed * u64::from(*total)) >> 32) as u32;
            self.locals.iter().find(|(_, sum)| at < *sum).unwrap_or(self.locals.last()?).0
        };
        // A mapping of addresses keeps the port.
        Some(if self.proto.is_none() { Endpoint::new(chosen.addr, port) } else { chosen })
    }
}

/// Maps and sets that packets are looked up in. Their keys are the operator's.
type HashMap<K, V> = std::collections::HashMap<K, V, Seed>;
type HashSet<K> = std::collections::HashSet<K, Seed>;

/// What nodes read. A copy shares pools, mappings and sides with its original: an interface that comes or goes costs the same beside a
/// large pool as beside a small one.
#[derive(Clone, Debug, Default)]
pub struct NatConfig {
    /// By interface.
    pub(crate) sides: Chunks<Side>,
    /// Addresses that sources get.
    pub pool: Arc<Vec<PoolAddress>>,
    /// Where in the pool an address is.
    pub pool_at: Arc<HashMap<u32, usize>>,
    /// Addresses that sources from outside get.
    pub twice_pool: Arc<Vec<PoolAddress>>,
    /// Every address that is the outside of something.
    pub external: Arc<HashSet<u32>>,
    /// Static mappings.
    pub mappings: Arc<Vec<Mapping>>,
    /// By external endpoint and protocol.
    pub(crate) by_external: Arc<HashMap<(Endpoint, u8), usize>>,
    /// Mappings of addresses, by external address.
    pub(crate) by_external_addr: Arc<HashMap<u32, usize>>,
    /// By local endpoint, protocol and FIB.
    pub(crate) by_local: Arc<HashMap<(Endpoint, u8, u16), usize>>,
    /// Mappings of addresses, by local address and FIB.
    pub(crate) by_local_addr: Arc<HashMap<(u32, u16), usize>>,
    /// Inside endpoints of mappings with several, by protocol and FIB.
    pub(crate) shared_ends: Arc<HashSet<(Endpoint, u8, u16)>>,
    /// Inside endpoints and addresses of mappings that sessions begin outside only of.
    pub(crate) silent_ends: Arc<HashSet<(Endpoint, u8, u16)>>,
    /// Addresses of the pool for sources from outside.
    pub(crate) twice_addrs: Arc<HashSet<u32>>,
    /// Sessions from when there were other threads.
    pub(crate) moved: Arc<Moved>,
    /// Interfaces by which packets are counted that leave there.
    pub(crate) outputs: Arc<BTreeSet<IfIndex>>,
    /// Pass packets that belong to no session.
    pub forwarding: bool,
    /// TCP packets without SYN begin sessions, too.
    pub non_syn: bool,
    /// Some interface is inside and outside.
    pub both: bool,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Greatest segment size that connections may agree on; 0: whatever they like.
    pub mss: u16,
    /// Most sessions of one host; 0: no limit.
    pub host_limit: u32,
    /// Most sessions that hosts of a table may have on a thread, by FIB.
    pub table_limits: BTreeMap<u16, u32>,
    /// Threads that share the work, in order of their port ranges.
    pub threads: Vec<usize>,
    /// FIB of the outside.
    pub outside_fib: u16,
    /// FIBs in which packets from inside may leave: that one, and those of outside interfaces.
    pub outside_fibs: Vec<u16>,
    /// The smallest of the interfaces' IPv4 MTUs: larger packets are looked at more closely.
    pub mtu: u16,
}

impl NatConfig {
    /// The side of an interface.
    pub fn side(&self, interface: IfIndex) -> Side {
        self.sides.get(interface.0 as usize).copied().unwrap_or_default()
    }

    /// Puts an interface on a side.
    pub fn set_side(&mut self, interface: IfIndex, side: Side) {
        *self.sides.get_mut(interface.0 as usize) = side;
    }

    /// Whether a pool has an address for the hosts of a FIB.
    pub fn has_address(&self, fib: u16) -> bool {
        self.pool.iter().any(|p| p.tenant.is_none_or(|(_, tenant)| tenant == fib))
    }

    /// Whether a mapping of an endpoint has it as its outside.
    pub fn is_mapped(&self, outside: Endpoint, proto: u8) -> bool {
        self.by_external.contains_key(&(outside, proto))
    }

    /// The mapping that packets from outside to this endpoint belong to.
    pub fn mapping_of_external(&self, to: Endpoint, proto: u8) -> Option<&Mapping> {
        let index = self.by_external.get(&(to, proto)).or_else(|| self.by_external_addr.get(&to.addr))?;
        self.mappings.get(*index)
    }

    /// The mapping that packets of this inside endpoint belong to.
    pub fn mapping_of_local(&self, from: Endpoint, proto: u8, fib: u16) -> Option<&Mapping> {
        let index = self.by_local.get(&(from, proto, fib)).or_else(|| self.by_local_addr.get(&(from.addr, fib)))?;
        self.mappings.get(*index)
    }

    /// Makes the indices from `mappings` and pools.
    pub fn index(&mut self) {
        let (mut by_external, mut by_external_addr) = (HashMap::default(), HashMap::default());
        let (mut by_local, mut by_local_addr) = (HashMap::default(), HashMap::default());
        self.pool_at = Arc::new(self.pool.iter().enumerate().map(|(at, p)| (p.addr, at)).collect());
        let (mut shared_ends, mut silent_ends) = (HashSet::default(), HashSet::default());
        self.twice_addrs = Arc::new(self.twice_pool.iter().map(|p| p.addr).collect());
        let mut external: HashSet<u32> = self.pool.iter().chain(self.twice_pool.iter()).map(|p| p.addr).collect();
        for (n, mapping) in self.mappings.iter().enumerate() {
            // The address of an identity mapping is its host's own.
            if !mapping.identity {
                external.insert(mapping.external.addr);
            }
            match mapping.proto {
                Some(proto) => drop(by_external.insert((mapping.external, proto), n)),
                None => drop(by_external_addr.insert(mapping.external.addr, n)),
            }
            let end = |local: &Endpoint| Some((*local, mapping.proto?, mapping.vrf.1));
            if mapping.locals.len() > 1 {
                shared_ends.extend(mapping.locals.iter().filter_map(|(local, _)| end(local)));
            }
            if mapping.out2in_only {
                silent_ends.extend(mapping.locals.iter().filter_map(|(local, _)| end(local)));
                continue;
            }
            for (local, _) in &mapping.locals {
                match mapping.proto {
                    Some(proto) => drop(by_local.insert((*local, proto, mapping.vrf.1), n)),
                    None => drop(by_local_addr.insert((local.addr, mapping.vrf.1), n)),
                }
            }
        }
        (self.by_external, self.by_external_addr) = (Arc::new(by_external), Arc::new(by_external_addr));
        (self.by_local, self.by_local_addr) = (Arc::new(by_local), Arc::new(by_local_addr));
        self.external = Arc::new(external);
        (self.shared_ends, self.silent_ends) = (Arc::new(shared_ends), Arc::new(silent_ends));
    }

    /// Whether a mapping has this endpoint as its inside, also one that sessions begin outside only of.
    pub fn is_inside_end(&self, end: Endpoint, proto: u8, fib: u16) -> bool {
        self.silent_ends.contains(&(end, proto, fib)) || self.mapping_of_local(end, proto, fib).is_some()
    }

    /// Position of the thread that a host's sessions belong to. Consecutive addresses belong to consecutive threads, which spreads the
    /// hosts of a small network evenly. A hash moves each block of sixteen, for networks that use every fourth address.
    pub fn owner_of_host(&self, addr: u32) -> usize {
        let block = (addr >> 4).wrapping_mul(0x9e37_79b9) >> 16;
        (addr.wrapping_add(block) as usize).checked_rem(self.threads.len()).unwrap_or(0)
    }

    /// Position of the thread that gives away a port.
    pub fn owner_of_port(&self, port: u16) -> usize {
        let port = u64::from(port.max(FIRST_PORT) - FIRST_PORT);
        (port * self.threads.len() as u64 / u64::from(PORTS)) as usize
    }

    /// Ports that the thread at a position gives away: first and number.
    pub fn ports_of(&self, position: usize) -> (u16, u16) {
        let n = self.threads.len().max(1) as u64;
        let start = |k: u64| (k * u64::from(PORTS)).div_ceil(n) as u32;
        let (first, end) = (start(position as u64), start(position as u64 + 1));
        (FIRST_PORT + first as u16, (end - first).min(u32::from(u16::MAX)) as u16)
    }

    /// Position of the thread that packets from outside to an endpoint belong to.
    pub fn owner_of_external(&self, from: Endpoint, to: Endpoint, proto: u8, fib: u16) -> usize {
        let mapping = self.mapping_of_external(to, proto).filter(|m| has_ports(proto) || !m.out2in_only);
        match mapping.and_then(|m| Some((m.local_for(from, to.port)?, m.vrf.1))) {
            // Which of several it is may change, and the remote host does not.
            Some((local, inside)) if self.shared_ends.contains(&(local, proto, inside)) => self.owner_of_host(from.addr),
            Some((local, _)) => self.owner_of_host(local.addr),
            // There is no port that tells: both directions know the remote host.
            None if !has_ports(proto) => self.owner_of_host(from.addr),
            None if self.external.contains(&to.addr) => self.owner_of_port(to.port),
            // It goes to a host inside by its own address (forwarding), or is an answer that comes in on an outside interface.
            None if !self.is_inside_end(to, proto, fib) && self.is_inside_end(from, proto, fib) => {
                self.owner_of_internal(from, to, proto, fib)
            }
            None => self.owner_of_host(to.addr),
        }
    }

    /// Position of the thread that packets from an endpoint inside belong to.
    pub fn owner_of_internal(&self, from: Endpoint, to: Endpoint, proto: u8, fib: u16) -> usize {
        if !self.moved.is_empty()
            && let Some(position) = self.moved.find(Key::new(from, to, proto, Direction::In2Out, fib))
        {
            return position;
        }
        if self.shared_ends.contains(&(from, proto, fib)) {
            // Sources from outside that were changed have a port of the thread's.
            return if self.twice_addrs.contains(&to.addr) { self.owner_of_port(to.port) } else { self.owner_of_host(to.addr) };
        }
        let by_host = has_ports(proto) || self.mapping_of_local(from, proto, fib).is_some();
        let to_silent = || self.silent_ends.contains(&(to, proto, fib)) && !self.is_inside_end(from, proto, fib);
        self.owner_of_host(if by_host && !to_silent() { from.addr } else { to.addr })
    }

    /// Position of the thread that a session belongs to: the one that packets from outside come to.
    pub fn owner_of_session(&self, session: &Session) -> usize {
        let key = session.o2i;
        self.owner_of_external(key.src(), key.dst(), key.proto(), key.fib())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(locals: &[(u32, u16, u32)], proto: Option<u8>) -> Mapping {
        let mut sum = 0;
        let mut add = |(addr, port, weight): &(u32, u16, u32)| {
            sum += weight;
            (Endpoint::new(*addr, *port), sum)
        };
        Mapping {
            proto,
            locals: locals.iter().map(&mut add).collect(),
            external: Endpoint::new(100, if proto.is_some() { 80 } else { 0 }),
            vrf: (0, 0),
            out2in_only: false,
            twice: Twice::No,
            identity: false,
            affinity: 0,
        }
    }

    #[test]
    fn port_ranges_of_threads_are_disjoint_and_together_all_ports() {
        for n in 1..=7 {
            let config = NatConfig { threads: (1..=n).collect(), ..Default::default() };
            let mut next = u32::from(FIRST_PORT);
            for k in 0..n {
                let (first, count) = config.ports_of(k);
                assert_eq!(u32::from(first), next, "{n} threads");
                next += u32::from(count);
                for port in [first, first + (count - 1)] {
                    assert_eq!(config.owner_of_port(port), k, "{n} threads, port {port}");
                }
            }
            assert_eq!(next, 65_536);
        }
    }

    #[test]
    fn hosts_of_a_small_network_are_spread_over_all_threads() {
        for n in [2, 3, 4, 8] {
            let config = NatConfig { threads: (1..=n).collect(), ..Default::default() };
            let owners: HashSet<_> = (2..2 + n as u32).map(|host| config.owner_of_host(0xac10_0800 + host)).collect();
            assert_eq!(owners.len(), n, "neighbours");
            let mut hosts = vec![0; n];
            (0..4000).for_each(|customer| hosts[config.owner_of_host(0x0a00_0002 + 4 * customer)] += 1);
            assert!(hosts.iter().all(|hosts| (3200 / n..4800 / n).contains(hosts)), "every fourth address: {hosts:?}");
        }
    }

    #[test]
    fn work_is_shared_by_weight() {
        let m = mapping(&[(1, 80, 1), (2, 81, 3)], Some(6));
        let n = (0..40_000).filter(|k| m.local_for(Endpoint::new(*k, 7), 80) == Some(Endpoint::new(2, 81))).count();
        assert!((28_000..32_000).contains(&n), "{n}");
        let ends: HashSet<_> = (0..1000).map(|port| m.local_for(Endpoint::new(9, port), 80)).collect();
        assert_eq!(ends.len(), 2, "also that of one remote host");
    }

    #[test]
    fn mappings_with_ports_win_over_those_of_addresses() {
        let mut config = NatConfig {
            mappings: vec![mapping(&[(5, 0, 1)], None), mapping(&[(6, 8080, 1)], Some(6))].into(),
            ..Default::default()
        };
        config.index();
        let local = |port, proto| {
            let to = Endpoint::new(100, port);
            config.mapping_of_external(to, proto).and_then(|m| m.local_for(Endpoint::new(9, 9), port))
        };
        assert_eq!(local(80, 6), Some(Endpoint::new(6, 8080)));
        assert_eq!(local(80, 17), Some(Endpoint::new(5, 80)), "the port is kept");
        assert!(config.mapping_of_local(Endpoint::new(5, 1), 17, 0).is_some());
        assert!(config.mapping_of_local(Endpoint::new(5, 1), 17, 1).is_none(), "another table's host");
        assert!(config.external.contains(&100));
    }
}
