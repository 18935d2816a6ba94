//! From paths to buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::adjacency::{AdjKey, AdjKind, Env};
use super::path::{Hop, Path, ResolveVia};
use super::records::{Bucket, Class, DropIndex, Null};
use super::source::Source;
use super::table::{Select, by_family};
use super::{Fib, FibError};
use crate::ip::{Family, FamilyId};

/// Weights are scaled by this, so that the shares inside a recursive path come out whole.
const SCALE: u64 = 1 << 20;

impl Fib {
    /// Resolves a path list and publishes what came out, if that is something new.
    ///
    /// # Errors
    /// No room for an adjacency or an array of buckets. What could be resolved is published, if need be one bucket alone.
    pub(crate) fn resolve(&mut self, env: &mut Env<'_>, lb: u32) -> Result<bool, FibError> {
        let Some(family) = self.lists.get(lb).map(|l| l.key.family) else { return Ok(false) };
        by_family!(family, F => self.resolve_in::<F>(env, lb))
    }

    fn resolve_in<F: Select>(&mut self, env: &mut Env<'_>, lb: u32) -> Result<bool, FibError> {
        let Some(key) = self.lists.get(lb).map(|l| l.key.clone()) else { return Ok(false) };
        let mut failed = None;
        let mut weights: BTreeMap<Bucket, u64> = BTreeMap::new();
        let mut order = Vec::new();
        let mut preference = None;
        // Paths are sorted by preference: the first ones that are up decide.
        for path in &key.paths {
            if preference.is_some_and(|p| path.preference > p) {
                break;
            }
            match self.contribute::<F>(env, lb, path) {
                Ok(buckets) => {
                    // A neighbour's own route stays: whoever finds out whether it is back sends by that.
                    let own = key.source == Source::Adjacency;
                    let buckets = if own { buckets } else { self.without_withheld(lb, buckets) };
                    for (bucket, weight) in buckets {
                        preference = Some(path.preference);
                        let sum = weights.entry(bucket).or_insert_with(|| {
                            order.push(bucket);
                            0
                        });
                        *sum += weight;
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        let resolved: Vec<(Bucket, u64)> = order.iter().map(|b| (*b, weights[b])).collect();
        let used: BTreeSet<u32> = resolved
            .iter()
            .filter(|(b, _)| matches!(b.class(), Class::Glean | Class::Incomplete | Class::Rewrite))
            .map(|(b, _)| b.index())
            .collect();
        let Some(list) = self.lists.get_mut(lb) else { return Ok(false) };
        let changed = list.resolved != resolved;
        list.resolved = resolved;
        let before = std::mem::replace(&mut list.adjacencies, used.clone());
        for index in &used {
            self.adjacencies.add_user(*index, lb);
        }
        if changed {
            let hash = F::tables(self).get(key.fib).map(|t| t.flow_hash).unwrap_or_default();
            failed = self.lists.publish(&mut self.records, lb, hash).err().or(failed);
        }
        // Only now that no bucket leads there any more.
        for index in before.difference(&used) {
            self.adjacencies.remove_user(*index, lb);
        }
        failed.map_or(Ok(changed), Err)
    }

    /// What one path comes to: buckets with scaled weights, none where it is not up.
    fn contribute<F: Select>(&mut self, env: &mut Env<'_>, lb: u32, path: &Path) -> Result<Vec<(Bucket, u64)>, FibError> {
        let weight = u64::from(path.weight) * SCALE;
        let one = |bucket| vec![(bucket, weight)];
        Ok(match path.hop {
            Hop::Neighbor { interface, address } if env.is_up(interface) => {
                one(self.adjacency_bucket::<F>(env, interface, AdjKind::Neighbor(address))?)
            }
            Hop::Attached { interface, source } if env.is_up(interface) => {
                one(self.adjacency_bucket::<F>(env, interface, AdjKind::Glean(source))?)
            }
            Hop::InterfaceRx(interface) if env.is_up(interface) => one(Bucket::new(Class::InterfaceRx, interface.0)),
            Hop::Neighbor { .. } | Hop::Attached { .. } | Hop::InterfaceRx(_) | Hop::Gone => Vec::new(),
            Hop::Recursive { table, address, via } => {
                if self.withheld_remote.contains(&(table, address)) {
                    return Ok(Vec::new());
                }
                let Some((host, cover)) = self.cover_of(table, address) else { return Ok(Vec::new()) };
                if via == ResolveVia::Host && !host || self.leads_to(cover, lb) {
                    return Ok(Vec::new());
                }
                self.through::<F>(env, cover, address, via, weight)?
            }
            Hop::Lookup(table) => match F::tables(self).fib(table) {
                Ok(fib) => one(Bucket::new(Class::Lookup, fib)),
                Err(_) => Vec::new(),
            },
            Hop::SourceLookup(table) => match F::tables(self).fib(table) {
                Ok(fib) => one(Bucket::new(Class::SourceLookup, fib)),
                Err(_) => Vec::new(),
            },
            Hop::Receive => one(Bucket::new(Class::Receive, lb)),
            Hop::Drop => {
                let why = match self.lists.get(lb).map(|l| l.key.source) {
                    Some(Source::DefaultRoute) => DropIndex::NO_ROUTE,
                    Some(Source::Special | Source::Interface) => DropIndex::SPECIAL,
                    _ => DropIndex::BY_ROUTE,
                };
                one(Bucket::new(Class::Drop, why))
            }
            Hop::Punt => one(Bucket::new(Class::Punt, 0)),
            Hop::Unreachable => one(Bucket::new(Class::Null, Null::Unreachable as u32)),
            Hop::Prohibited => one(Bucket::new(Class::Null, Null::Prohibited as u32)),
            Hop::LinkLocal => one(Bucket::new(Class::LinkLocal, 0)),
        })
    }

    /// The buckets of the list that covers a next hop; on a link to ask on, the next hop itself is the neighbour.
    fn through<F: Select>(
        &mut self,
        env: &mut Env<'_>,
        cover: u32,
        next_hop: IpAddr,
        via: ResolveVia,
        weight: u64,
    ) -> Result<Vec<(Bucket, u64)>, FibError> {
        let Some((inner, family)) = self.lists.get(cover).map(|l| (l.resolved.clone(), l.key.family)) else {
            return Ok(Vec::new());
        };
        let sum: u64 = inner.iter().map(|(_, w)| *w).sum();
        let mut buckets = Vec::new();
        for (bucket, w) in inner {
            let bucket = match bucket.class() {
                Class::Glean => {
                    let Some(interface) = self.adjacencies.get(bucket.index()).map(|a| a.key.interface) else { continue };
                    self.adjacency_bucket::<F>(env, interface, AdjKind::Neighbor(next_hop))?
                }
                Class::Incomplete | Class::Rewrite => {
                    let Some(key) = self.adjacencies.get(bucket.index()).map(|a| a.key) else { continue };
                    if via == ResolveVia::Attached && key.kind != AdjKind::Neighbor(next_hop) {
                        continue;
                    }
                    // Its header is that of the other family's packets.
                    if family == F::ID { bucket } else { self.adjacency_bucket::<F>(env, key.interface, key.kind)? }
                }
                // Another table: of the other family's packets.
                Class::Lookup | Class::SourceLookup | Class::InterfaceRx if family != F::ID => continue,
                Class::Lookup | Class::SourceLookup | Class::InterfaceRx => bucket,
                // A next hop that is dropped, ours, or unreachable is not up.
                _ => continue,
            };
            let share = (u128::from(weight) * u128::from(w) / u128::from(sum.max(1))) as u64;
            buckets.push((bucket, share.max(1)));
        }
        Ok(buckets)
    }

    fn adjacency_bucket<F: Family>(
        &mut self,
        env: &mut Env<'_>,
        interface: quiver_graph::IfIndex,
        kind: AdjKind,
    ) -> Result<Bucket, FibError> {
        let key = AdjKey { family: F::ID, interface, kind };
        let mut index = self.adjacencies.make(env, &mut self.records, key)?;
        if key.is_cross() {
            let own = self.adjacencies.find(&key.of_neighbor()).and_then(|own| self.adjacencies.get(own)?.mac);
            if own.is_some() {
                index = self.adjacencies.update(env, &mut self.records, index, own)?;
            }
        }
        Ok(self.adjacencies.get(index).map_or(Bucket::DROP, |a| a.bucket(index)))
    }

    /// What covers a next hop, of whichever family: whether that is a host route, and its list.
    fn cover_of(&self, table: u32, next_hop: IpAddr) -> Option<(bool, u32)> {
        by_family!(FamilyId::of(&next_hop), G => {
            let tables = <G as Select>::tables(self);
            let (len, cover) = tables.cover(tables.fib(table).ok()?, <G as Family>::number(next_hop)?)?;
            Some((len == <G as Family>::BITS, cover))
        })
    }

    /// Whether resolving `from` comes to `target`: a loop, if `target` resolves through `from`.
    fn leads_to(&self, from: u32, target: u32) -> bool {
        let mut seen = BTreeSet::new();
        let mut queue = vec![from];
        while let Some(lb) = queue.pop() {
            if lb == target {
                return true;
            }
            let Some(list) = self.lists.get(lb).filter(|_| seen.insert(lb)) else { continue };
            for path in &list.key.paths {
                if let Hop::Recursive { table, address, .. } = path.hop
                    && let Some((_, cover)) = self.cover_of(table, address)
                {
                    queue.push(cover);
                }
            }
        }
        false
    }
}
