//! Adjacencies: how to reach a neighbour, or how to ask for one.
//!
//! A record that packets can reach changes by one store or not at all. Where more than a word must change (own MAC address,
//! length of the link header), the adjacency moves: a new record is filled, the buckets that lead to it are stored, and the
//! old index is free after a grace period.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{Graph, IfIndex};
use quiver_tables::pool::IndexPool;
use quiver_tables::qsbr::Domain;
use quiver_wire::MacAddr;
use quiver_wire::ethernet::EtherType;

use super::FibError;
use super::records::{ADJACENCIES_MAX, AdjRecord, Bucket, Class, Records};
use crate::interface::{Interface, Interfaces};
use crate::ip::FamilyId;

/// What the FIB needs to know of the rest of the router while it changes.
pub(crate) struct Env<'a> {
    pub interfaces: &'a Interfaces,
    pub graph: &'a mut Graph,
}

impl Env<'_> {
    /// Whether packets can leave there: it and its parent are up, and the parent's link is.
    pub fn is_up(&self, index: IfIndex) -> bool {
        let Some(interface) = self.interfaces.get(index) else { return false };
        let parent = self.interfaces.get(interface.parent);
        interface.admin_up && interface.link.up && parent.is_some_and(|p| p.admin_up && p.link.up)
    }
}

/// What an adjacency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdjKind {
    /// One neighbour.
    Neighbor(IpAddr),
    /// All of a link: asks for the packet's destination; the address is ours there.
    Glean(Option<IpAddr>),
}

/// What one is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdjKey {
    pub family: FamilyId,
    pub interface: IfIndex,
    pub kind: AdjKind,
}

impl AdjKey {
    /// Packets of one family go to a neighbour of the other (RFC 8950 for IPv4): the neighbour's MAC address is found by its own family's means.
    pub fn is_cross(&self) -> bool {
        self.of_neighbor() != *self
    }

    /// The same for packets of the other family.
    pub const fn of_other_family(&self) -> Self {
        let family = match self.family {
            FamilyId::V4 => FamilyId::V6,
            FamilyId::V6 => FamilyId::V4,
        };
        Self { family, ..*self }
    }

    /// The neighbour's adjacency for packets of its own family.
    pub fn of_neighbor(&self) -> Self {
        match self.kind {
            AdjKind::Neighbor(address) => Self { family: FamilyId::of(&address), ..*self },
            AdjKind::Glean(_) => *self,
        }
    }
}

/// An adjacency as the main thread sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdjacencyInfo {
    /// Its index.
    pub index: u32,
    /// Packets' family.
    pub family: FamilyId,
    /// Interface.
    pub interface: IfIndex,
    /// Neighbour or link.
    pub kind: AdjKind,
    /// Neighbour's MAC address, where known.
    pub mac: Option<MacAddr>,
    /// The record that packets read.
    pub record: AdjRecord,
}

#[derive(Clone)]
pub(crate) struct Adjacency {
    pub key: AdjKey,
    pub mac: Option<MacAddr>,
    /// Load-balances with a bucket that leads here.
    pub users: BTreeSet<u32>,
    /// Whether its link header has ever been in use.
    published: bool,
    /// The link has no addresses: packets go out as they are, to whoever is at the other end.
    direct: bool,
    /// Whether the neighbour may have host routes (not one with `no-fib-entry`).
    pub host_route: bool,
    /// FIBs that have the neighbour's host route.
    pub in_fibs: Vec<u32>,
}

impl Adjacency {
    pub fn bucket(&self, index: u32) -> Bucket {
        let class = match (self.key.kind, self.mac) {
            _ if self.direct => Class::Rewrite,
            (AdjKind::Glean(_), _) => Class::Glean,
            (AdjKind::Neighbor(_), Some(_)) => Class::Rewrite,
            (AdjKind::Neighbor(_), None) => Class::Incomplete,
        };
        Bucket::new(class, index)
    }

    /// What packets read; `path`: what the way to the neighbour takes, where that is known.
    fn record(&self, env: &mut Env<'_>, path: Option<u16>) -> AdjRecord {
        let AdjKey { family, interface, kind } = self.key;
        let address = match kind {
            AdjKind::Neighbor(a) => Some(a),
            AdjKind::Glean(a) => a,
        };
        let mut record = AdjRecord { tx_if: interface, next_hop: address.map_or(0, number), ..AdjRecord::default() };
        let Some(interface) = env.interfaces.get(interface) else { return record };
        record.mtu = match family {
            FamilyId::V4 => interface.mtu4(),
            FamilyId::V6 => interface.mtu6(),
        } as u16;
        record.mtu = path.map_or(record.mtu, |path| record.mtu.min(path));
        if let Some(mac) = self.mac {
            record.set_link_header(&link_header(interface, mac, family));
        }
        let rewrite = env.graph.node(match family {
            FamilyId::V4 => "ip4-rewrite",
            FamilyId::V6 => "ip6-rewrite",
        });
        // A missing edge leaves slot 0: packets are dropped, and counted.
        if let Some(slot) = rewrite.and_then(|node| env.graph.edge(node, interface.output).ok()) {
            record.next = slot.index();
        }
        record
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The link header that a packet of this family gets on an interface.
pub(crate) fn link_header(interface: &Interface, dst: MacAddr, family: FamilyId) -> Vec<u8> {
    if !interface.has_link_layer() {
        return Vec::new();
    }
    let ether_type = if family == FamilyId::V4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let mut header = dst.0.to_vec();
    header.extend(interface.mac.0);
    for (tpid, id) in interface.tags() {
        header.extend(tpid.to_be_bytes());
        header.extend(id.to_be_bytes());
    }
    header.extend(ether_type.0.to_be_bytes());
    header
}

/// All adjacencies.
pub(crate) struct Adjacencies {
    slots: Vec<Option<Adjacency>>,
    by_key: HashMap<AdjKey, u32>,
    by_interface: HashMap<IfIndex, BTreeSet<u32>>,
    numbers: IndexPool,
    /// What neighbours take, by table and address.
    pub path_mtus: BTreeMap<(u32, IpAddr), u16>,
    /// Packets and bytes sent, by adjacency.
    pub counters: Arc<CombinedCounters>,
}

impl Adjacencies {
    pub fn new(domain: &Domain, counters: Arc<CombinedCounters>) -> Self {
        let mut numbers = IndexPool::new(ADJACENCIES_MAX, domain);
        // Index 0 is nobody's: a record of zeros.
        let _ = numbers.alloc();
        Self {
            slots: vec![None],
            by_key: HashMap::new(),
            by_interface: HashMap::new(),
            numbers,
            path_mtus: BTreeMap::new(),
            counters,
        }
    }

    pub fn get(&self, index: u32) -> Option<&Adjacency> {
        self.slots.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut Adjacency> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    pub fn find(&self, key: &AdjKey) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// Indices in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Adjacency)> {
        self.slots.iter().enumerate().filter_map(|(i, a)| a.as_ref().map(|a| (i as u32, a)))
    }

    /// A FIB is gone, with all its routes.
    pub fn forget_fib(&mut self, family: FamilyId, fib: u32) {
        for adjacency in self.slots.iter_mut().flatten().filter(|a| a.key.family == family) {
            adjacency.in_fibs.retain(|f| *f != fib);
        }
    }

    /// Indices of those on an interface, in order.
    pub fn on(&self, interface: IfIndex) -> impl Iterator<Item = u32> {
        self.by_interface.get(&interface).into_iter().flatten().copied()
    }

    fn take(&mut self, index: u32) -> Option<Adjacency> {
        let adjacency = self.slots.get_mut(index as usize)?.take()?;
        if let Some(all) = self.by_interface.get_mut(&adjacency.key.interface) {
            all.remove(&index);
            if all.is_empty() {
                self.by_interface.remove(&adjacency.key.interface);
            }
        }
        self.numbers.free(index);
        Some(adjacency)
    }

    fn path_mtu(&self, env: &Env<'_>, key: &AdjKey) -> Option<u16> {
        let AdjKind::Neighbor(address) = key.kind else { return None };
        let tables = env.interfaces.get(key.interface)?.tables;
        let table = if address.is_ipv4() { tables.0 } else { tables.1 };
        self.path_mtus.get(&(table, address)).copied()
    }

    /// The adjacency of this key, made if there is none.
    pub fn make(&mut self, env: &mut Env<'_>, records: &mut Records, key: AdjKey) -> Result<u32, FibError> {
        if let Some(index) = self.find(&key) {
            return Ok(index);
        }
        let direct = env.interfaces.get(key.interface).is_some_and(|i| !i.has_link_layer());
        let (users, in_fibs) = (BTreeSet::new(), Vec::new());
        let adjacency = Adjacency { key, mac: None, users, published: direct, direct, host_route: false, in_fibs };
        let record = adjacency.record(env, self.path_mtu(env, &key));
        let index = self.place(env, records, adjacency, &record)?;
        self.by_key.insert(key, index);
        Ok(index)
    }

    fn place(
        &mut self,
        env: &mut Env<'_>,
        records: &mut Records,
        adjacency: Adjacency,
        record: &AdjRecord,
    ) -> Result<u32, FibError> {
        let index = self.numbers.alloc().map_err(|_| FibError::Full("adjacencies"))?;
        if records.fill_adjacency(index, record).is_err() {
            self.numbers.free_now(index);
            return Err(FibError::Memory);
        }
        let at = index as usize;
        if at < self.slots.len() {
            // An index used before: its counters start at zero again.
            let counters = self.counters.clone();
            env.graph.each_row(move |row| counters.clear_index_thread(row, index));
        } else {
            self.slots.resize_with(at + 1, || None);
            grow_visible(&self.counters, index);
        }
        self.by_interface.entry(adjacency.key.interface).or_default().insert(index);
        self.slots[at] = Some(adjacency);
        Ok(index)
    }

    /// Brings a record up to date with its interface and the neighbour's MAC address. Gives the index where it is now:
    /// another one if packets could have seen half of the change.
    pub fn update(&mut self, env: &mut Env<'_>, records: &mut Records, index: u32, mac: Option<MacAddr>) -> Result<u32, FibError> {
        let path = self.get(index).and_then(|a| self.path_mtu(env, &a.key));
        let Some(adjacency) = self.get_mut(index) else { return Ok(index) };
        let before = std::mem::replace(&mut adjacency.mac, mac);
        if mac.is_none() && adjacency.published && !adjacency.direct {
            // Packets that were on their way to the rewrite may still read the record.
            return Ok(index);
        }
        let record = adjacency.record(env, path);
        if !adjacency.published {
            // No packet has ever been sent to the rewrite with this index.
            adjacency.published = mac.is_some();
            return records.fill_adjacency(index, &record).map(|()| index).map_err(|_| FibError::Memory);
        }
        if records.change_adjacency(index, &record) {
            return Ok(index);
        }
        let Some(adjacency) = self.slots[index as usize].clone() else { return Ok(index) };
        let key = adjacency.key;
        match self.place(env, records, adjacency, &record) {
            Ok(new) => {
                self.by_key.insert(key, new);
                self.take(index);
                Ok(new)
            }
            Err(error) => {
                if let Some(adjacency) = self.get_mut(index) {
                    adjacency.mac = before;
                }
                Err(error)
            }
        }
    }

    /// Notes that a load-balance leads here.
    pub fn add_user(&mut self, index: u32, lb: u32) {
        if let Some(adjacency) = self.get_mut(index) {
            adjacency.users.insert(lb);
        }
    }

    /// Notes that a load-balance does not lead here any more.
    pub fn remove_user(&mut self, index: u32, lb: u32) {
        if let Some(adjacency) = self.get_mut(index) {
            adjacency.users.remove(&lb);
        }
        self.release(index);
    }

    /// Forgets an adjacency that nobody needs.
    pub fn release(&mut self, index: u32) {
        if self.get(index).is_some_and(|a| a.users.is_empty() && (a.mac.is_none() || a.key.is_cross()))
            && let Some(adjacency) = self.take(index)
        {
            self.by_key.remove(&adjacency.key);
        }
    }
}

/// Makes counters visible up to an index, in steps: each step costs readers of the statistics a new look at the directory.
pub(crate) fn grow_visible(counters: &CombinedCounters, index: u32) {
    if index >= counters.len() {
        counters.set_len((index + 1).next_multiple_of(64).min(counters.capacity()));
    }
}
