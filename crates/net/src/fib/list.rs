//! Path lists and their load-balances, one to one: routes of a table with the same source and paths share them.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{Graph, IfIndex};
use quiver_tables::pool::IndexPool;
use quiver_tables::qsbr::{Domain, Limbo};

use super::FibError;
use super::adjacency::grow_visible;
use super::path::{Hop, Key, spread};
use super::records::{BUCKETS_MAX, Bucket, LOAD_BALANCES_MAX, LbRecord, Records};
use crate::ip::{FamilyId, FlowHash};

/// Runs of 2^n buckets: taken, given back, and free again after a grace period.
pub(crate) struct BucketRuns {
    free: [Vec<u32>; 16],
    end: u32,
    limbo: Limbo<(u32, u8)>,
}

impl BucketRuns {
    fn new(domain: &Domain) -> Self {
        Self { free: Default::default(), end: 0, limbo: Limbo::new(domain) }
    }

    fn take(&mut self, records: &mut Records, log2: u8) -> Result<u32, FibError> {
        let free = &mut self.free;
        self.limbo.reclaim(|(base, log2)| free[usize::from(log2 & 15)].push(base));
        if let Some(base) = self.free[usize::from(log2 & 15)].pop() {
            return Ok(base);
        }
        let base = self.end;
        let end = base + (1 << log2);
        if end > BUCKETS_MAX {
            return Err(FibError::Full("load-balance buckets"));
        }
        self.limbo.reserve(1).map_err(|_| FibError::Memory)?;
        records.reserve_buckets(end).map_err(|_| FibError::Memory)?;
        self.end = end;
        Ok(base)
    }

    fn give(&mut self, base: u32, log2: u8) {
        self.limbo.retire([(base, log2)]);
    }
}

/// A path list.
pub(crate) struct PathList {
    pub key: Rc<Key>,
    /// Prefixes that have it, as their best source or another.
    pub refs: u32,
    /// What the paths that are up come to: buckets with weights.
    pub resolved: Vec<(Bucket, u64)>,
    /// Adjacencies among them.
    pub adjacencies: BTreeSet<u32>,
    /// Where several buckets are.
    array: Option<(u32, u8)>,
}

impl PathList {
    /// Whether a path goes over this interface.
    pub fn over(&self, interface: IfIndex) -> bool {
        self.key.paths.iter().any(|p| p.interface() == Some(interface))
    }
}

/// All path lists, by load-balance index.
pub(crate) struct Lists {
    slots: Vec<Option<PathList>>,
    by_key: HashMap<Rc<Key>, u32>,
    numbers: IndexPool,
    runs: BucketRuns,
    /// Lists with a path to all of a link: family, interface, FIB, load-balance.
    attached: BTreeSet<(FamilyId, IfIndex, u32, u32)>,
    /// Packets and bytes forwarded, by load-balance: `/net/route/to`.
    pub counters: Arc<CombinedCounters>,
}

impl Lists {
    pub fn new(domain: &Domain, counters: Arc<CombinedCounters>) -> Self {
        let mut numbers = IndexPool::new(LOAD_BALANCES_MAX, domain);
        // Index 0 drops: leaf 0 means "no route".
        let _ = numbers.alloc();
        counters.set_len(1);
        let (by_key, attached) = (HashMap::new(), BTreeSet::new());
        Self { slots: vec![None], by_key, numbers, runs: BucketRuns::new(domain), attached, counters }
    }

    pub fn get(&self, lb: u32) -> Option<&PathList> {
        self.slots.get(lb as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, lb: u32) -> Option<&mut PathList> {
        self.slots.get_mut(lb as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &PathList)> {
        self.slots.iter().enumerate().filter_map(|(i, l)| l.as_ref().map(|l| (i as u32, l)))
    }

    pub fn find(&self, key: &Key) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    /// FIBs in which some route leads to all of an interface's link.
    pub fn attached_fibs(&self, family: FamilyId, interface: IfIndex) -> BTreeSet<u32> {
        let range = (family, interface, 0, 0)..=(family, interface, u32::MAX, u32::MAX);
        self.attached.range(range).map(|(.., fib, _)| *fib).collect()
    }

    fn note_attached(&mut self, lb: u32, key: &Key, there: bool) {
        for path in &key.paths {
            let Hop::Attached { interface, .. } = path.hop else { continue };
            let entry = (key.family, interface, key.fib, lb);
            if there {
                self.attached.insert(entry);
            } else {
                self.attached.remove(&entry);
            }
        }
    }

    /// A new list without references and resolved to nothing: its load-balance drops.
    pub fn add(&mut self, graph: &mut Graph, records: &mut Records, key: Key) -> Result<u32, FibError> {
        let lb = self.numbers.alloc().map_err(|_| FibError::Full("load-balances"))?;
        if records.reserve_lb(lb).is_err() {
            self.numbers.free_now(lb);
            return Err(FibError::Memory);
        }
        records.set_lb(lb, LbRecord::single(Bucket::NO_PATH));
        let at = lb as usize;
        if at < self.slots.len() {
            let counters = self.counters.clone();
            graph.each_row(move |row| counters.clear_index_thread(row, lb));
        } else {
            self.slots.resize_with(at + 1, || None);
            grow_visible(&self.counters, lb);
        }
        let key = Rc::new(key);
        self.by_key.insert(key.clone(), lb);
        self.note_attached(lb, &key, true);
        self.slots[at] = Some(PathList { key, refs: 0, resolved: Vec::new(), adjacencies: BTreeSet::new(), array: None });
        Ok(lb)
    }

    /// Takes a list out that nobody refers to; its index is free after a grace period.
    pub fn remove(&mut self, lb: u32) -> Option<PathList> {
        let list = self.slots.get_mut(lb as usize)?.take()?;
        if self.by_key.get(&list.key) == Some(&lb) {
            self.by_key.remove(&list.key);
        }
        if let Some((base, log2)) = list.array {
            self.runs.give(base, log2);
        }
        self.note_attached(lb, &list.key, false);
        self.numbers.free(lb);
        Some(list)
    }

    /// Gives a list another key (its interface is gone). Where another list has that key already, both stay.
    pub fn rekey(&mut self, lb: u32, key: Key) {
        let Some(list) = self.slots.get_mut(lb as usize).and_then(Option::as_mut) else { return };
        if self.by_key.get(&list.key) == Some(&lb) {
            self.by_key.remove(&list.key);
        }
        let key = Rc::new(key);
        let old = std::mem::replace(&mut list.key, key.clone());
        self.note_attached(lb, &old, false);
        self.note_attached(lb, &key, true);
        self.by_key.entry(key).or_insert(lb);
    }

    /// Publishes what a list has been resolved to: one store where it was and is one bucket, one per changed bucket where
    /// their number stays, else a new array and one store. Where there is no room for an array, packets take the first path.
    pub fn publish(&mut self, records: &mut Records, lb: u32, hash: FlowHash) -> Result<(), FibError> {
        let Some(list) = self.slots.get_mut(lb as usize).and_then(Option::as_mut) else { return Ok(()) };
        let weights: Vec<u64> = list.resolved.iter().map(|(_, w)| *w).collect();
        let counts = spread(&weights);
        let buckets: Vec<Bucket> =
            list.resolved.iter().zip(&counts).flat_map(|((b, _), n)| std::iter::repeat_n(*b, *n as usize)).collect();
        let log2 = buckets.len().max(1).trailing_zeros() as u8;
        if log2 == 0 {
            records.set_lb(lb, LbRecord::single(buckets.first().copied().unwrap_or(Bucket::NO_PATH)));
            if let Some((base, log2)) = list.array.take() {
                self.runs.give(base, log2);
            }
            return Ok(());
        }
        let (base, old) = match list.array {
            Some((base, have)) if have == log2 => (base, None),
            old => match self.runs.take(records, log2) {
                Ok(base) => (base, old),
                Err(error) => {
                    // Buckets of the old array may lead to what is about to go.
                    records.set_lb(lb, LbRecord::single(buckets.first().copied().unwrap_or(Bucket::NO_PATH)));
                    if let Some((base, log2)) = list.array.take() {
                        self.runs.give(base, log2);
                    }
                    return Err(error);
                }
            },
        };
        for (at, bucket) in (base..).zip(&buckets) {
            records.set_bucket(at, *bucket);
        }
        records.set_lb(lb, LbRecord::many(base, log2, hash));
        list.array = Some((base, log2));
        if let Some((base, log2)) = old {
            self.runs.give(base, log2);
        }
        Ok(())
    }

    /// Buckets as packets find them.
    pub fn buckets(&self, records: &Records, lb: u32) -> Vec<Bucket> {
        match self.get(lb).and_then(|l| l.array) {
            Some((base, log2)) => (base..base + (1 << log2)).map(|at| records.bucket(at)).collect(),
            None => vec![records.lb(lb).bucket()],
        }
    }
}
