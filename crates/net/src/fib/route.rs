//! Setting and removing routes: sources, references, and what a change of a prefix brings with it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use quiver_tables::address::Address;

use super::adjacency::{AdjKey, AdjKind, Env};
use super::path::{Hop, Key, Path, merge, without};
use super::source::Source;
use super::table::{Select, by_family, number};
use super::{Fib, FibError};
use crate::ip::{Family, FamilyId, PrefixTable};

/// How new paths meet those that a prefix has from the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// They join them.
    Add,
    /// They take their place.
    Replace,
}

impl Fib {
    /// The paths that a prefix has from a source, and their load-balance.
    pub(crate) fn of_source<F: Select>(&self, fib: u32, prefix: F::Addr, len: u8, source: Source) -> Option<u32> {
        let table = F::tables(self).get(fib)?;
        let best = table.routes.get(prefix, len)?;
        let others = table.others.get(&(prefix.first(len), len)).into_iter().flatten().copied();
        std::iter::once(best).chain(others).find(|lb| self.lists.get(*lb).is_some_and(|l| l.key.source == source))
    }

    /// Checks paths and puts them in order, so that equal lists are equal.
    fn check<F: Select>(&self, env: &Env<'_>, mut paths: Vec<Path>) -> Result<Box<[Path]>, FibError> {
        if paths.is_empty() {
            return Err(FibError::Empty);
        }
        if paths.len() > 1 && paths.iter().any(|p| !p.may_share()) {
            return Err(FibError::Alone);
        }
        for path in &mut paths {
            path.weight = path.weight.max(1);
            if let Some(interface) = path.interface() {
                env.interfaces.get(interface).ok_or(FibError::NoInterface(interface.0))?;
            }
            if let Some(address) = path.next_hop() {
                let impossible = match address {
                    IpAddr::V4(a) => a.is_unspecified() || a.is_multicast() || a.is_broadcast(),
                    IpAddr::V6(a) => a.is_unspecified() || a.is_multicast(),
                };
                if impossible {
                    return Err(FibError::NextHop(address));
                }
            }
            if let Some((family, table)) = path.table(F::ID) {
                by_family!(family, G => <G as Select>::tables(self).fib(table))?;
            }
        }
        paths.sort_unstable();
        Ok(paths.into())
    }

    /// The list of these paths, made and resolved if there is none. It has no reference from this yet.
    pub(crate) fn obtain<F: Select>(
        &mut self,
        env: &mut Env<'_>,
        fib: u32,
        source: Source,
        paths: Vec<Path>,
    ) -> Result<u32, FibError> {
        let key = Key { family: F::ID, fib, source, paths: self.check::<F>(env, paths)? };
        if let Some(lb) = self.lists.find(&key) {
            return Ok(lb);
        }
        let lb = self.lists.add(env.graph, &mut self.records, key)?;
        self.track(lb);
        if let Err(error) = self.resolve(env, lb) {
            self.release(lb);
            return Err(error);
        }
        Ok(lb)
    }

    /// Next hops of a list that tables are asked for, whatever their family.
    fn hops(&self, lb: u32) -> Vec<(u32, IpAddr)> {
        let paths = self.lists.get(lb).map(|l| l.key.paths.clone()).unwrap_or_default();
        let hop = |p: &Path| match p.hop {
            Hop::Recursive { table, address, .. } => {
                Some((by_family!(FamilyId::of(&address), G => <G as Select>::tables(self).fib(table)).ok()?, address))
            }
            _ => None,
        };
        paths.iter().filter_map(hop).collect()
    }

    fn track(&mut self, lb: u32) {
        for (fib, address) in self.hops(lb) {
            by_family!(FamilyId::of(&address), G => {
                if let Some(hop) = <G as Family>::number(address) {
                    <G as Select>::tables_mut(self).track(fib, hop, lb);
                }
            });
        }
    }

    fn untrack(&mut self, lb: u32) {
        for (fib, address) in self.hops(lb) {
            by_family!(FamilyId::of(&address), G => {
                if let Some(hop) = <G as Family>::number(address) {
                    <G as Select>::tables_mut(self).untrack(fib, hop, lb);
                }
            });
        }
    }

    /// Path lists, of both families, whose next hops this one covers.
    pub(crate) fn dependants(&self, lb: u32) -> BTreeSet<u32> {
        let mut all = self.v4.dependants(lb);
        all.extend(self.v6.dependants(lb));
        all
    }

    /// Removes a list that nobody refers to.
    pub(crate) fn release(&mut self, lb: u32) {
        if self.lists.get(lb).is_none_or(|l| l.refs > 0) {
            return;
        }
        self.untrack(lb);
        if let Some(list) = self.lists.remove(lb) {
            for index in list.adjacencies {
                self.adjacencies.remove_user(index, lb);
            }
        }
    }

    pub(super) fn unref(&mut self, lb: u32) {
        if let Some(list) = self.lists.get_mut(lb) {
            list.refs = list.refs.saturating_sub(1);
        }
        self.release(lb);
    }

    /// Paths as a prefix has them: of one that is a single host, a link alone leads to that host. So the host has an adjacency
    /// of its own, which its MAC address goes into, and other routes can lead through it.
    fn of_prefix<F: Select>(prefix: F::Addr, len: u8, mut paths: Vec<Path>) -> Vec<Path> {
        if len == F::BITS {
            let host = F::address(prefix);
            paths.iter_mut().for_each(|path| *path = path.to_host(host));
        }
        paths
    }

    /// Sets what a prefix has from a source.
    pub(crate) fn set<F: Select>(
        &mut self,
        env: &mut Env<'_>,
        fib: u32,
        (prefix, len): (F::Addr, u8),
        source: Source,
        paths: Vec<Path>,
        change: Change,
    ) -> Result<(), FibError> {
        if len > F::BITS {
            return Err(FibError::PrefixLen(len));
        }
        let prefix = prefix.first(len);
        let paths = Self::of_prefix::<F>(prefix, len, paths);
        let paths = match (change, self.of_source::<F>(fib, prefix, len, source)) {
            (Change::Add, Some(old)) => merge(self.lists.get(old).map_or(&[][..], |l| &l.key.paths), &paths),
            _ => paths,
        };
        let lb = self.obtain::<F>(env, fib, source, paths)?;
        let done = self.attach::<F>(fib, prefix, len, lb);
        match done {
            Ok(old) => {
                self.changed::<F>(env, fib, prefix, len);
                old.inspect(|old| self.unref(*old));
                Ok(())
            }
            Err(error) => {
                self.release(lb);
                Err(error)
            }
        }
    }

    /// Gives a prefix this load-balance for its source; returns the one that it had from the same source, which has one
    /// reference too many now.
    fn attach<F: Select>(&mut self, fib: u32, prefix: F::Addr, len: u8, lb: u32) -> Result<Option<u32>, FibError> {
        let source = self.lists.get(lb).map_or(Source::DefaultRoute, |l| l.key.source);
        let lists = &self.lists;
        let source_of = |lb: u32| lists.get(lb).map_or(Source::DefaultRoute, |l| l.key.source);
        // Borrowed by field, because the sources of the lists are asked meanwhile.
        let table = F::tables(self).get(fib).ok_or(FibError::Memory)?;
        let best = table.routes.get(prefix, len);
        let better = best.filter(|b| source_of(*b) < source);
        let old = match better {
            // Another source decides: this one waits.
            Some(_) => {
                let waiting = table.others.get(&(prefix, len)).and_then(|o| o.iter().copied().find(|o| source_of(*o) == source));
                let Some(table) = F::tables_mut(self).get_mut(fib) else { return Err(FibError::Memory) };
                let others = table.others.entry((prefix, len)).or_default();
                others.retain(|o| Some(*o) != waiting);
                others.push(lb);
                waiting
            }
            None => {
                let same = best.filter(|b| source_of(*b) == source);
                let Some(table) = F::tables_mut(self).get_mut(fib) else { return Err(FibError::Memory) };
                table.routes.insert(prefix, len, lb).map_err(|_| FibError::Memory)?;
                if same.is_none()
                    && let Some(best) = best
                {
                    table.others.entry((prefix, len)).or_default().push(best);
                }
                same
            }
        };
        if let Some(list) = self.lists.get_mut(lb) {
            list.refs += 1;
        }
        Ok(old)
    }

    /// These lists, and those that come to them by their next hops. Where a next hop has another cover, all of these may
    /// have got into a loop or out of one, whether the buckets in between change or not.
    fn leading_to(&self, lists: BTreeSet<u32>) -> BTreeSet<u32> {
        let mut all = BTreeSet::new();
        let mut queue: Vec<u32> = lists.into_iter().collect();
        while let Some(lb) = queue.pop() {
            if all.insert(lb) {
                queue.extend(self.dependants(lb));
            }
        }
        all
    }

    /// Resolves what looks its next hops up through a prefix that has changed.
    fn changed<F: Select>(&mut self, env: &mut Env<'_>, fib: u32, prefix: F::Addr, len: u8) {
        self.records.watch.tell(|keeper| keeper.route(fib, F::address(prefix), len));
        let users = F::tables_mut(self).recover(fib, prefix, len);
        if !users.is_empty() {
            let all = self.leading_to(users);
            self.refresh(env, all);
        }
        // A link's route has come or gone, or another one hides it: its neighbours' host routes follow.
        if len < F::BITS && !F::tables(self).neighbors.is_empty() {
            for (address, interface) in F::tables(self).neighbors_in(prefix, len) {
                let key = AdjKey { family: F::ID, interface, kind: AdjKind::Neighbor(F::address(address)) };
                if let Some(index) = self.adjacencies.find(&key) {
                    // Where memory ends, packets come by the link's glean adjacency: slower, and counted.
                    let _ = self.host_route_in::<F>(env, index, fib);
                }
            }
        }
    }

    /// Removes what a prefix has from a source: some paths, or all of it. What another source has shows again.
    pub(crate) fn unset<F: Select>(
        &mut self,
        env: &mut Env<'_>,
        fib: u32,
        (prefix, len): (F::Addr, u8),
        source: Source,
        paths: Option<&[Path]>,
    ) -> Result<(), FibError> {
        if len > F::BITS {
            return Err(FibError::PrefixLen(len));
        }
        let prefix = prefix.first(len);
        let old = self.of_source::<F>(fib, prefix, len, source).ok_or(FibError::NoRoute)?;
        if let Some(gone) = paths {
            let have = self.lists.get(old).map(|l| l.key.paths.clone()).unwrap_or_default();
            let gone = Self::of_prefix::<F>(prefix, len, gone.to_vec());
            let rest = without(&have, &gone).ok_or(FibError::NoPath)?;
            if !rest.is_empty() {
                return self.set::<F>(env, fib, (prefix, len), source, rest, Change::Replace);
            }
        }
        let lists = &self.lists;
        let table = F::tables(self).get(fib).ok_or(FibError::NoRoute)?;
        let best = table.routes.get(prefix, len);
        let others = table.others.get(&(prefix, len)).cloned().unwrap_or_default();
        let heir = others.iter().copied().min_by_key(|o| lists.get(*o).map(|l| l.key.source));
        let Some(table) = F::tables_mut(self).get_mut(fib) else { return Err(FibError::NoRoute) };
        let leave = if best == Some(old) {
            match heir {
                Some(heir) => table.routes.insert(prefix, len, heir),
                None => table.routes.remove(prefix, len),
            }
            .map_err(|_| FibError::Memory)?;
            heir
        } else {
            Some(old)
        };
        if let Some(leave) = leave {
            let rest: Vec<u32> = others.into_iter().filter(|o| *o != leave).collect();
            if rest.is_empty() {
                table.others.remove(&(prefix, len));
            } else {
                table.others.insert((prefix, len), rest);
            }
        }
        self.changed::<F>(env, fib, prefix, len);
        self.unref(old);
        Ok(())
    }

    /// Whether users have set routes in a table.
    pub(crate) fn has_user_routes<F: Select>(&self, fib: u32) -> bool {
        let Some(table) = F::tables(self).get(fib) else { return false };
        table.routes.iter().any(|(prefix, len, _)| !self.user_sources::<F>(fib, prefix, len).is_empty())
    }

    /// Sources of a prefix that are users'.
    fn user_sources<F: Select>(&self, fib: u32, prefix: F::Addr, len: u8) -> Vec<Source> {
        let Some(table) = F::tables(self).get(fib) else { return Vec::new() };
        let others = table.others.get(&(prefix.first(len), len)).into_iter().flatten().copied();
        let all = table.routes.get(prefix, len).into_iter().chain(others);
        all.filter_map(|lb| self.lists.get(lb)).map(|list| list.key.source).filter(|source| source.is_user()).collect()
    }

    /// Removes what users have set in a table.
    pub(crate) fn remove_user_routes<F: Select>(&mut self, env: &mut Env<'_>, fib: u32) -> Result<(), FibError> {
        let Some(table) = F::tables(self).get(fib) else { return Ok(()) };
        let prefixes: Vec<(F::Addr, u8)> = table.routes.iter().map(|(prefix, len, _)| (prefix, len)).collect();
        for at in prefixes {
            for source in self.user_sources::<F>(fib, at.0, at.1) {
                match self.unset::<F>(env, fib, at, source, None) {
                    Ok(()) | Err(FibError::NoRoute) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Removes all routes of a table.
    pub(crate) fn flush<F: Select>(&mut self, env: &mut Env<'_>, fib: u32) -> Result<(), FibError> {
        let Some(table) = F::tables_mut(self).get_mut(fib) else { return Ok(()) };
        let others: Vec<u32> = std::mem::take(&mut table.others).into_values().flatten().collect();
        let mut routes: Vec<(F::Addr, u8, u32)> = table.routes.iter().collect();
        // Longer ones first: then no group is filled with what goes next.
        routes.sort_by_key(|(_, len, _)| std::cmp::Reverse(*len));
        let mut users = BTreeSet::new();
        for (prefix, len, _) in &routes {
            let Some(table) = F::tables_mut(self).get_mut(fib) else { break };
            table.routes.remove(*prefix, *len).map_err(|_| FibError::Memory)?;
            self.records.watch.tell(|keeper| keeper.route(fib, F::address(*prefix), *len));
            users.extend(F::tables_mut(self).recover(fib, *prefix, *len));
            // There may be millions: the thread is not given back between them.
            env.graph.progress();
        }
        let users = self.leading_to(users);
        self.refresh(env, users);
        self.adjacencies.forget_fib(F::ID, fib);
        for lb in routes.into_iter().map(|(_, _, lb)| lb).chain(others) {
            self.unref(lb);
            env.graph.progress();
        }
        Ok(())
    }
}

/// Many prefixes of one length, one after the other, with the same paths: `ip route add … count`. Made to be done in slices.
#[derive(Debug)]
pub struct Bulk {
    pub(crate) table: u32,
    pub(crate) address: IpAddr,
    pub(crate) len: u8,
    pub(crate) source: Source,
    pub(crate) paths: Vec<Path>,
    pub(crate) remove: bool,
    pub(crate) count: u64,
    pub(crate) done: u64,
}

impl Bulk {
    /// Prefixes done so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Whether all are.
    pub fn is_finished(&self) -> bool {
        self.done == self.count
    }
}

impl Fib {
    /// Goes on with a bulk for at most `n` prefixes.
    pub(crate) fn bulk<F: Select>(&mut self, env: &mut Env<'_>, bulk: &mut Bulk, n: u64) -> Result<(), FibError> {
        let fib = F::tables(self).fib(bulk.table)?;
        let address = number::<F>(bulk.address)?;
        // The list that most prefixes get: those that have nothing from this source yet.
        let plain = if bulk.remove { None } else { Some(self.obtain::<F>(env, fib, bulk.source, bulk.paths.clone())?) };
        if let Some(table) = F::tables_mut(self).get_mut(fib) {
            table.routes.begin();
        }
        let mut result = Ok(());
        for _ in 0..n.min(bulk.count - bulk.done) {
            let prefix = F::nth(address, bulk.len, bulk.done);
            let one = match prefix {
                None => Err(FibError::Count(bulk.count)),
                Some(prefix) => self.bulk_one::<F>(env, fib, prefix, bulk, plain),
            };
            if let Err(error) = one {
                result = Err(error);
                break;
            }
            bulk.done += 1;
        }
        if let Some(table) = F::tables_mut(self).get_mut(fib) {
            table.routes.commit();
        }
        plain.inspect(|lb| self.release(*lb));
        result
    }

    fn bulk_one<F: Select>(
        &mut self,
        env: &mut Env<'_>,
        fib: u32,
        prefix: F::Addr,
        bulk: &Bulk,
        plain: Option<u32>,
    ) -> Result<(), FibError> {
        let len = bulk.len;
        let Some(lb) = plain else {
            let paths = (!bulk.paths.is_empty()).then_some(&bulk.paths[..]);
            return self.unset::<F>(env, fib, (prefix, len), bulk.source, paths);
        };
        let Some(table) = F::tables_mut(self).get_mut(fib) else { return Err(FibError::NoRoute) };
        // What the prefix itself decides cannot be shared with the others.
        let own = len == F::BITS && bulk.paths.iter().any(|path| matches!(path.hop, Hop::Attached { .. }));
        if own || table.routes.get(prefix, len).is_some() {
            return self.set::<F>(env, fib, (prefix, len), bulk.source, bulk.paths.clone(), Change::Add);
        }
        table.routes.insert(prefix, len, lb).map_err(|_| FibError::Memory)?;
        if let Some(list) = self.lists.get_mut(lb) {
            list.refs += 1;
        }
        self.changed::<F>(env, fib, prefix, len);
        Ok(())
    }
}
