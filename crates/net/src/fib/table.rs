//! Tables of one family: which prefixes exist, from which sources, and which next hops are looked up in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use quiver_graph::{IfIndex, Published};
use quiver_tables::address::Address;
use quiver_tables::mem::Budget;
use quiver_tables::qsbr::Domain;

use super::numa::{self, Copies, Placed};
use super::{Fib, FibError};
use crate::ip::{Family, FamilyId, FlowHash, PrefixTable, V4, V6};

/// A table: a VRF's part for one family.
pub(crate) struct Table<F: Family> {
    /// User's number.
    pub id: u32,
    /// User's name.
    pub name: String,
    /// The user wants it; one deleted meanwhile stays until no interface uses it.
    pub wanted: bool,
    /// What uses it beside interfaces and routes, once for each use: it cannot be removed.
    pub holders: Vec<&'static str>,
    /// Uses that it outlives a deletion for, as it does for interfaces; it goes with the last.
    pub kept: usize,
    /// What chooses among equal paths.
    pub flow_hash: FlowHash,
    /// Prefix to load-balance of its best source.
    pub routes: F::Table,
    /// Load-balances of the other sources of prefixes that have several. Few prefixes do.
    pub others: HashMap<(F::Addr, u8), Vec<u32>>,
}

/// A next hop that recursive paths ask a table for.
pub(crate) struct Track {
    /// Longest match: prefix length and load-balance.
    pub cover: Option<(u8, u32)>,
    /// Path lists that ask.
    pub users: BTreeSet<u32>,
}

/// All tables of a family.
pub(crate) struct Tables<F: Family> {
    slots: Vec<Option<Table<F>>>,
    /// User's number to FIB index.
    pub ids: BTreeMap<u32, u32>,
    /// Handles for nodes.
    pub published: Published<Placed<F>>,
    copies: Copies,
    tracked: BTreeMap<(u32, F::Addr), Track>,
    /// Next hops whose cover is this load-balance.
    covered_by: HashMap<u32, BTreeSet<(u32, F::Addr)>>,
    /// Neighbours whose MAC address is known and that may have host routes.
    pub neighbors: BTreeSet<(F::Addr, IfIndex)>,
}

impl<F: Family> Tables<F> {
    /// No table yet; those that come have these copies.
    pub fn new(copies: Copies) -> Self {
        Self {
            slots: Vec::new(),
            ids: BTreeMap::new(),
            published: Published::new(copies.by_place(|_| Vec::new())),
            copies,
            tracked: BTreeMap::new(),
            covered_by: HashMap::new(),
            neighbors: BTreeSet::new(),
        }
    }

    pub fn get(&self, fib: u32) -> Option<&Table<F>> {
        self.slots.get(fib as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, fib: u32) -> Option<&mut Table<F>> {
        self.slots.get_mut(fib as usize)?.as_mut()
    }

    /// FIB index of a user's table number.
    pub fn fib(&self, id: u32) -> Result<u32, FibError> {
        self.ids.get(&id).copied().ok_or(FibError::NoTable { family: F::ID, id })
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Table<F>)> {
        self.slots.iter().enumerate().filter_map(|(i, t)| t.as_ref().map(|t| (i as u32, t)))
    }

    /// Makes a table without routes and shows it to the nodes.
    pub fn add(&mut self, id: u32, name: String, domain: &Domain, budget: &Budget) -> Result<u32, FibError> {
        let routes = F::table(id == 0, domain, budget, self.copies.nodes()).map_err(|_| FibError::Memory)?;
        if self.slots.is_empty() && F::ID == FamilyId::V4 {
            // The first one stands for all: the kernel treats the others alike.
            numa::warn_of_refused(&routes.memory());
        }
        let fib = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let table = Table {
            id,
            name,
            wanted: true,
            holders: Vec::new(),
            kept: 0,
            flow_hash: FlowHash::DEFAULT,
            routes,
            others: HashMap::new(),
        };
        if fib == self.slots.len() {
            self.slots.push(Some(table));
        } else {
            self.slots[fib] = Some(table);
        }
        self.ids.insert(id, fib as u32);
        self.publish();
        Ok(fib as u32)
    }

    /// Takes a table away from the nodes, then from here.
    pub fn remove(&mut self, fib: u32) {
        if let Some(table) = self.slots.get_mut(fib as usize).and_then(Option::take) {
            self.ids.remove(&table.id);
            self.publish();
        }
    }

    fn publish(&self) {
        let readers = |copy| self.slots.iter().map(|t| t.as_ref().map(|t| F::reader(&t.routes, copy))).collect();
        self.published.publish(self.copies.by_place(readers));
    }

    fn longest_match(&self, fib: u32, address: F::Addr) -> Option<(u8, u32)> {
        self.get(fib)?.routes.longest_match(address)
    }

    /// A path list asks for a next hop.
    pub fn track(&mut self, fib: u32, address: F::Addr, lb: u32) {
        let cover = self.longest_match(fib, address);
        let track = self.tracked.entry((fib, address)).or_insert_with(|| Track { cover, users: BTreeSet::new() });
        track.users.insert(lb);
        if let Some((_, by)) = cover {
            self.covered_by.entry(by).or_default().insert((fib, address));
        }
    }

    /// It does not any more.
    pub fn untrack(&mut self, fib: u32, address: F::Addr, lb: u32) {
        let Some(track) = self.tracked.get_mut(&(fib, address)) else { return };
        track.users.remove(&lb);
        if track.users.is_empty() {
            let cover = track.cover;
            self.tracked.remove(&(fib, address));
            self.uncover(cover, (fib, address));
        }
    }

    fn uncover(&mut self, cover: Option<(u8, u32)>, hop: (u32, F::Addr)) {
        if let Some((_, by)) = cover
            && let Some(hops) = self.covered_by.get_mut(&by)
        {
            hops.remove(&hop);
            if hops.is_empty() {
                self.covered_by.remove(&by);
            }
        }
    }

    /// The path lists that ask for a next hop.
    pub fn users(&self, fib: u32, address: F::Addr) -> BTreeSet<u32> {
        self.tracked.get(&(fib, address)).map(|track| track.users.clone()).unwrap_or_default()
    }

    /// What covers a tracked next hop.
    pub fn cover(&self, fib: u32, address: F::Addr) -> Option<(u8, u32)> {
        self.tracked.get(&(fib, address))?.cover
    }

    /// A prefix has come, gone, or has another load-balance: gives the path lists that must be resolved again.
    pub fn recover(&mut self, fib: u32, prefix: F::Addr, len: u8) -> BTreeSet<u32> {
        let mut users = BTreeSet::new();
        if self.tracked.is_empty() {
            return users;
        }
        let range = (fib, prefix.first(len))..=(fib, prefix.last(len));
        let hops: Vec<(u32, F::Addr)> = self.tracked.range(range).map(|(hop, _)| *hop).collect();
        for hop in hops {
            let now = self.longest_match(hop.0, hop.1);
            let Some(track) = self.tracked.get_mut(&hop) else { continue };
            if track.cover == now {
                continue;
            }
            users.extend(&track.users);
            let old = std::mem::replace(&mut track.cover, now);
            self.uncover(old, hop);
            if let Some((_, by)) = now {
                self.covered_by.entry(by).or_default().insert(hop);
            }
        }
        users
    }

    /// Neighbours with addresses inside a prefix.
    pub fn neighbors_in(&self, prefix: F::Addr, len: u8) -> Vec<(F::Addr, IfIndex)> {
        let range = (prefix.first(len), IfIndex(0))..=(prefix.last(len), IfIndex(u32::MAX));
        self.neighbors.range(range).copied().collect()
    }

    /// Path lists whose next hops this load-balance covers.
    pub fn dependants(&self, lb: u32) -> BTreeSet<u32> {
        let hops = self.covered_by.get(&lb).into_iter().flatten();
        hops.filter_map(|hop| self.tracked.get(hop)).flat_map(|t| t.users.iter().copied()).collect()
    }
}

/// A family's tables among the FIB's.
pub(crate) trait Select: Family {
    fn tables(fib: &Fib) -> &Tables<Self>;
    fn tables_mut(fib: &mut Fib) -> &mut Tables<Self>;
}

impl Select for V4 {
    fn tables(fib: &Fib) -> &Tables<Self> {
        &fib.v4
    }
    fn tables_mut(fib: &mut Fib) -> &mut Tables<Self> {
        &mut fib.v4
    }
}

impl Select for V6 {
    fn tables(fib: &Fib) -> &Tables<Self> {
        &fib.v6
    }
    fn tables_mut(fib: &mut Fib) -> &mut Tables<Self> {
        &mut fib.v6
    }
}

/// Calls a function generic over the family with the one that a value names.
macro_rules! by_family {
    ($family:expr, $F:ident => $body:expr) => {
        match $family {
            $crate::ip::FamilyId::V4 => {
                type $F = $crate::ip::V4;
                $body
            }
            $crate::ip::FamilyId::V6 => {
                type $F = $crate::ip::V6;
                $body
            }
        }
    };
}
pub(crate) use by_family;

/// The number behind an address that must be of the family.
pub(crate) fn number<F: Family>(address: std::net::IpAddr) -> Result<F::Addr, FibError> {
    F::number(address).ok_or(FibError::Family { expected: F::ID, address })
}

/// Name of a table nobody has named.
pub(crate) fn default_name(family: FamilyId, id: u32) -> String {
    format!("{family}-VRF:{id}")
}
