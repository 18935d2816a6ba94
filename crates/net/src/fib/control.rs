//! What the rest of the router asks of the FIB.

use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::{IpPrefix, MacAddr};

use super::adjacency::{AdjKey, AdjKind, Adjacency, AdjacencyInfo, Env};
use super::events::on_interface;
use super::path::{Hop, Path};
use super::records::{Bucket, Class};
use super::route::{Bulk, Change};
use super::source::Source;
use super::table::{Select, by_family, default_name, number};
use super::{Fib, FibError};
use crate::interface::IfEvent;
use crate::ip::{Family as _, FamilyId, FlowHash, PrefixTable as _, V4, V6};
use crate::watch::{ForwardingWatch, Watch};
use crate::{NetError, Router};

/// What the FIB says of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRoute {
    /// Length of the prefix that decides.
    pub prefix_len: u8,
    /// Its source.
    pub source: Source,
    /// Its paths.
    pub paths: Vec<Path>,
    /// Load-balance, which is the route's index in the statistics.
    pub load_balance: u32,
    /// What packets find: 2^n buckets.
    pub buckets: Vec<Bucket>,
    /// Interface of the first bucket that leaves by one.
    pub interface: Option<IfIndex>,
}

/// Prepares tables 0 and the listener; nodes and arcs exist.
pub(crate) fn init(router: &mut Router) -> Result<(), NetError> {
    router.listen(on_interface);
    let made = router.with_fib(|fib, env| {
        fib.add_table::<V4>(env, 0, None)?;
        fib.add_table::<V6>(env, 0, None)
    });
    made.map_err(|_| NetError::Memory("route tables"))?;
    Ok(())
}

impl Fib {
    fn add_table<F: Select>(&mut self, env: &mut Env<'_>, id: u32, name: Option<&str>) -> Result<u32, FibError> {
        let name = name.map_or_else(|| default_name(F::ID, id), Into::into);
        let (domain, budget) = (self.domain.clone(), self.budget.clone());
        let fib = F::tables_mut(self).add(id, name, &domain, &budget)?;
        for (prefix, source, hop) in specials(F::ID) {
            let at = (number::<F>(prefix.addr())?, prefix.len());
            let done = self.set::<F>(env, fib, at, source, vec![Path::new(hop)], Change::Replace);
            if let Err(error) = done {
                let _ = self.remove_table::<F>(env, fib);
                return Err(error);
            }
        }
        Ok(fib)
    }

    fn remove_table<F: Select>(&mut self, env: &mut Env<'_>, fib: u32) -> Result<(), FibError> {
        self.flush::<F>(env, fib)?;
        F::tables_mut(self).remove(fib);
        Ok(())
    }

    fn info(&self, index: u32, adjacency: &Adjacency) -> AdjacencyInfo {
        let AdjKey { family, interface, kind } = adjacency.key;
        AdjacencyInfo { index, family, interface, kind, mac: adjacency.mac, record: self.records.adjacency(index) }
    }

    pub(crate) fn find<F: Select>(&self, id: u32, address: IpAddr) -> Option<FoundRoute> {
        let table = F::tables(self).get(F::tables(self).fib(id).ok()?)?;
        let (prefix_len, lb) = table.routes.longest_match(F::number(address)?)?;
        let list = self.lists.get(lb)?;
        let buckets = self.lists.buckets(&self.records, lb);
        let leaves = |b: &&Bucket| matches!(b.class(), Class::Rewrite | Class::Incomplete | Class::Glean);
        let interface = buckets.iter().find(leaves).and_then(|b| self.adjacencies.get(b.index())).map(|a| a.key.interface);
        let paths = list.key.paths.to_vec();
        Some(FoundRoute { prefix_len, source: list.key.source, paths, load_balance: lb, buckets, interface })
    }
}

/// What every table has from the start.
fn specials(family: FamilyId) -> Vec<(IpPrefix, Source, Hop)> {
    let texts: &[(&str, Source, Hop)] = match family {
        FamilyId::V4 => &[
            ("0.0.0.0/0", Source::DefaultRoute, Hop::Drop),
            ("0.0.0.0/32", Source::Special, Hop::Drop),
            ("224.0.0.0/4", Source::Special, Hop::Drop),
            ("240.0.0.0/4", Source::Special, Hop::Drop),
            ("255.255.255.255/32", Source::Special, Hop::Receive),
        ],
        FamilyId::V6 => &[("::/0", Source::DefaultRoute, Hop::Drop), ("fe80::/10", Source::Special, Hop::LinkLocal)],
    };
    texts.iter().filter_map(|(p, s, h)| p.parse().ok().map(|p| (p, *s, *h))).collect()
}

/// The family of a prefix and its parts.
fn parts(prefix: IpPrefix) -> (FamilyId, IpAddr, u8) {
    (FamilyId::of(&prefix.addr()), prefix.addr(), prefix.len())
}

impl Router {
    /// Calls `f` with the FIB and what it needs of the rest.
    pub(crate) fn with_fib<R>(&mut self, f: impl FnOnce(&mut Fib, &mut Env<'_>) -> R) -> R {
        let Self { fib, interfaces, graph, .. } = self;
        f(fib, &mut Env { interfaces, graph })
    }

    /// Has somebody be told of every change of what packets are forwarded by.
    pub fn watch_forwarding(&mut self, keeper: Arc<dyn ForwardingWatch>) {
        let watch = Watch::new(Arc::clone(&keeper));
        self.fib.records.watch = watch.clone();
        self.records.watch = watch;
        self.graph.watch_features(move |interface| keeper.interface(interface));
    }

    /// Packets and bytes that took a load-balance and an adjacency, forwarded by somebody who keeps copies of both.
    pub fn count_forwarded(&self, load_balance: u32, adjacency: u32, packets: u64, bytes: u64) {
        self.fib.lists.counters.add(0, load_balance, packets, bytes);
        self.fib.adjacencies.counters.add(0, adjacency, packets, bytes);
    }

    /// The FIB, to be looked at.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// Adds paths to what a source has for a prefix in a table (user's number).
    ///
    /// # Errors
    /// See [`FibError`]; nothing has changed then.
    pub fn add_route(&mut self, table: u32, prefix: IpPrefix, source: Source, paths: Vec<Path>) -> Result<(), FibError> {
        self.set_route(table, prefix, source, paths, Change::Add)
    }

    /// Sets what a source has for a prefix.
    ///
    /// # Errors
    /// As [`Router::add_route`].
    pub fn replace_route(&mut self, table: u32, prefix: IpPrefix, source: Source, paths: Vec<Path>) -> Result<(), FibError> {
        self.set_route(table, prefix, source, paths, Change::Replace)
    }

    fn set_route(
        &mut self,
        table: u32,
        prefix: IpPrefix,
        source: Source,
        paths: Vec<Path>,
        change: Change,
    ) -> Result<(), FibError> {
        let (family, address, len) = parts(prefix);
        self.with_fib(|fib, env| {
            by_family!(family, F => {
                let at = <F as Select>::tables(fib).fib(table)?;
                fib.set::<F>(env, at, (number::<F>(address)?, len), source, paths, change)
            })
        })
    }

    /// Removes paths that a source has for a prefix, or all of them.
    ///
    /// # Errors
    /// No such table, route or path; nothing has changed then.
    pub fn remove_route(&mut self, table: u32, prefix: IpPrefix, source: Source, paths: Option<&[Path]>) -> Result<(), FibError> {
        let (family, address, len) = parts(prefix);
        self.with_fib(|fib, env| {
            by_family!(family, F => {
                let at = <F as Select>::tables(fib).fib(table)?;
                fib.unset::<F>(env, at, (number::<F>(address)?, len), source, paths)
            })
        })
    }

    /// Begins to add (or, with `remove`, to take away) `count` prefixes in a row with the same paths; go on with
    /// [`Router::step_bulk`].
    ///
    /// # Errors
    /// No such table, impossible paths, or fewer prefixes than that to the end of the address space.
    pub fn bulk_routes(
        &mut self,
        table: u32,
        prefix: IpPrefix,
        source: Source,
        paths: Vec<Path>,
        count: u64,
        remove: bool,
    ) -> Result<Bulk, FibError> {
        let (family, address, len) = parts(prefix);
        by_family!(family, F => {
            <F as Select>::tables(&self.fib).fib(table)?;
            let last = count.checked_sub(1).and_then(|n| F::nth(number::<F>(address).ok()?, len, n));
            last.ok_or(FibError::Count(count))?;
        });
        Ok(Bulk { table, address, len, source, paths, remove, count, done: 0 })
    }

    /// Goes on with a bulk for at most `n` prefixes. Where one fails, those before it stay and it can be tried again.
    ///
    /// # Errors
    /// As [`Router::add_route`].
    pub fn step_bulk(&mut self, bulk: &mut Bulk, n: u64) -> Result<(), FibError> {
        let family = FamilyId::of(&bulk.address);
        self.with_fib(|fib, env| by_family!(family, F => fib.bulk::<F>(env, bulk, n)))
    }

    /// What a table (user's number) says of an address.
    pub fn route_lookup(&self, table: u32, address: IpAddr) -> Option<FoundRoute> {
        by_family!(FamilyId::of(&address), F => self.fib.find::<F>(table, address))
    }

    /// Makes a table; the lowest free number where none is given. One that exists takes the name.
    ///
    /// # Errors
    /// Table 0, or no memory.
    pub fn add_table(&mut self, family: FamilyId, id: Option<u32>, name: Option<&str>) -> Result<u32, FibError> {
        if id == Some(0) {
            return Err(FibError::TableZero);
        }
        self.with_fib(|fib, env| {
            by_family!(family, F => {
                let tables = <F as Select>::tables_mut(fib);
                let Some(id) = id.or_else(|| (1..).find(|n| !tables.ids.contains_key(n))) else {
                    return Err(FibError::Full("tables"));
                };
                if let Ok(at) = tables.fib(id) {
                    if let Some(table) = tables.get_mut(at) {
                        table.wanted = true;
                        table.name = name.map_or_else(|| table.name.clone(), Into::into);
                    }
                    return Ok(id);
                }
                fib.add_table::<F>(env, id, name)?;
                Ok(id)
            })
        })
    }

    /// Removes a table with all its routes. One that interfaces are bound to, or that is [kept](Self::keep_table), loses the
    /// routes that users have set, and goes when the last of these leaves it.
    ///
    /// # Errors
    /// No such table, table 0, or one that is [held](Self::hold_table) or that routes of other tables use.
    pub fn remove_table(&mut self, family: FamilyId, id: u32) -> Result<(), FibError> {
        if id == 0 {
            return Err(FibError::TableZero);
        }
        let bound = |i: &&crate::Interface| match family {
            FamilyId::V4 => i.tables.0 == id,
            FamilyId::V6 => i.tables.1 == id,
        };
        let bound = self.interfaces.iter().any(|i| bound(&i)) || self.is_kept(family, id);
        let fib = self.fib_of_table(family, id);
        self.with_fib(|fib, env| {
            by_family!(family, F => {
                let tables = <F as Select>::tables(fib);
                let at = tables.fib(id)?;
                if let Some(by) = tables.get(at).and_then(|table| table.holders.first()) {
                    return Err(FibError::TableInUse { id, by: (*by).into() });
                }
                if bound {
                    if let Some(table) = <F as Select>::tables_mut(fib).get_mut(at) {
                        table.wanted = false;
                    }
                    return fib.remove_user_routes::<F>(env, at);
                }
                let leads = |l: &super::list::PathList| l.key.paths.iter().any(|p| p.table(l.key.family) == Some((family, id)));
                let other = |l: &super::list::PathList| (l.key.family, l.key.fib) != (family, at);
                if fib.lists.iter().any(|(_, l)| other(l) && leads(l)) {
                    return Err(FibError::TableInUse { id, by: "routes of other tables".into() });
                }
                fib.remove_table::<F>(env, at)
            })
        })?;
        if let Some(fib) = fib {
            self.forget_mroutes(family, id, fib);
        }
        Ok(())
    }

    /// Keeps a table from being removed, until [`Router::release_table`]; gives its FIB index. `by` says who needs it, for errors.
    ///
    /// # Errors
    /// No such table.
    pub fn hold_table(&mut self, family: FamilyId, id: u32, by: &'static str) -> Result<u32, FibError> {
        let fib = &mut self.fib;
        by_family!(family, F => {
            let tables = <F as Select>::tables_mut(fib);
            let at = tables.fib(id)?;
            if let Some(table) = tables.get_mut(at) {
                table.holders.push(by);
            }
            Ok(at)
        })
    }

    /// As [`Router::hold_table`], and makes the table where there is none. It then goes with its last holder, unless a user has made it
    /// too meanwhile, or set routes in it.
    ///
    /// # Errors
    /// No memory.
    pub fn hold_or_make_table(&mut self, family: FamilyId, id: u32, by: &'static str) -> Result<u32, FibError> {
        if self.fib_of_table(family, id).is_none() {
            self.add_table(family, Some(id), None)?;
            by_family!(family, F => {
                let tables = <F as Select>::tables_mut(&mut self.fib);
                if let Some(table) = tables.fib(id).ok().and_then(|at| tables.get_mut(at)) {
                    table.wanted = false;
                }
            });
        }
        self.hold_table(family, id, by)
    }

    /// Ends one [`Router::hold_or_make_table`].
    pub fn release_made_table(&mut self, family: FamilyId, id: u32, by: &'static str) {
        self.release_table(family, id, by);
        let users = by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            tables.fib(id).ok().is_some_and(|at| self.fib.has_user_routes::<F>(at))
        });
        if users {
            by_family!(family, F => {
                let tables = <F as Select>::tables_mut(&mut self.fib);
                if let Some(table) = tables.fib(id).ok().and_then(|at| tables.get_mut(at)) {
                    table.wanted = true;
                }
            });
        }
        self.left_table(family, id);
    }

    /// Uses a table as an interface does that is bound to it: it is made where there is none, can be deleted, and stays until
    /// [`Router::leave_kept_table`]. Gives its FIB index.
    ///
    /// # Errors
    /// No memory.
    pub fn keep_table(&mut self, family: FamilyId, id: u32) -> Result<u32, FibError> {
        let is_new = self.fib_of_table(family, id).is_none();
        if is_new {
            self.add_table(family, Some(id), None)?;
        }
        by_family!(family, F => {
            let tables = <F as Select>::tables_mut(&mut self.fib);
            let at = tables.fib(id)?;
            if let Some(table) = tables.get_mut(at) {
                table.kept += 1;
                table.wanted &= !is_new;
            }
            Ok(at)
        })
    }

    /// Ends one [`Router::keep_table`]. A table that nobody has made stays for the routes that users have set in it.
    pub fn leave_kept_table(&mut self, family: FamilyId, id: u32) {
        by_family!(family, F => {
            let Some(at) = <F as Select>::tables(&self.fib).fib(id).ok() else { return };
            let users = self.fib.has_user_routes::<F>(at);
            if let Some(table) = <F as Select>::tables_mut(&mut self.fib).get_mut(at) {
                table.kept = table.kept.saturating_sub(1);
                table.wanted |= users;
            }
        });
        self.left_table(family, id);
    }

    fn is_kept(&self, family: FamilyId, id: u32) -> bool {
        by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            tables.fib(id).ok().and_then(|at| tables.get(at)).is_some_and(|table| table.kept > 0)
        })
    }

    /// Ends one [`Router::hold_table`].
    pub fn release_table(&mut self, family: FamilyId, id: u32, by: &'static str) {
        let fib = &mut self.fib;
        by_family!(family, F => {
            let tables = <F as Select>::tables_mut(fib);
            if let Some(table) = tables.fib(id).ok().and_then(|at| tables.get_mut(at))
                && let Some(at) = table.holders.iter().position(|holder| *holder == by)
            {
                table.holders.swap_remove(at);
            }
        });
    }

    /// An interface has left a table: one that the user has deleted goes with the last. Where routes of other tables still
    /// lead to it, it waits to be deleted again.
    pub(crate) fn left_table(&mut self, family: FamilyId, id: u32) {
        let tables = |i: &crate::Interface| if family == FamilyId::V4 { i.tables.0 } else { i.tables.1 };
        let deleted = by_family!(family, F => {
            let tables = <F as Select>::tables(&self.fib);
            tables.fib(id).ok().and_then(|at| tables.get(at)).is_some_and(|t| !t.wanted)
        });
        if deleted && !self.is_kept(family, id) && !self.interfaces.iter().any(|i| tables(i) == id) {
            let _ = self.remove_table(family, id);
        }
    }

    /// Sets what chooses among equal paths of a table.
    ///
    /// # Errors
    /// No such table.
    pub fn set_flow_hash(&mut self, family: FamilyId, id: u32, hash: FlowHash) -> Result<(), FibError> {
        let fib = &mut self.fib;
        by_family!(family, F => {
            let at = <F as Select>::tables(fib).fib(id)?;
            if let Some(table) = <F as Select>::tables_mut(fib).get_mut(at) {
                table.flow_hash = hash;
            }
            let lists: Vec<u32> =
                fib.lists.iter().filter(|(_, l)| l.key.family == family && l.key.fib == at).map(|(lb, _)| lb).collect();
            for lb in lists {
                fib.lists.publish(&mut fib.records, lb, hash)?;
            }
            Ok(())
        })
    }

    /// What is mixed into the choice among equal paths of all tables.
    pub fn flow_hash_router_id(&self) -> u32 {
        self.fib.lists.router_id
    }

    /// Sets what is mixed into the choice among equal paths of all tables, so that routers that stand in a row do not all
    /// choose alike.
    ///
    /// # Errors
    /// No room for buckets.
    pub fn set_flow_hash_router_id(&mut self, id: u32) -> Result<(), FibError> {
        let fib = &mut self.fib;
        fib.lists.router_id = id;
        let lists: Vec<(u32, FamilyId, u32)> = fib.lists.iter().map(|(lb, l)| (lb, l.key.family, l.key.fib)).collect();
        for (lb, family, at) in lists {
            let hash = by_family!(family, F => <F as Select>::tables(fib).get(at).map(|t| t.flow_hash)).unwrap_or_default();
            fib.lists.publish(&mut fib.records, lb, hash)?;
        }
        Ok(())
    }

    /// Binds an interface to a table (user's number): its packets are looked up there.
    ///
    /// # Errors
    /// No such interface or table, or an interface that has addresses of the family. Link-local ones are in no table.
    pub fn set_interface_table(&mut self, index: IfIndex, family: FamilyId, id: u32) -> Result<(), FibError> {
        let interface = self.interfaces.get_mut(index).ok_or(FibError::NoInterface(index.0))?;
        let at = by_family!(family, F => <F as Select>::tables(&self.fib).fib(id)?);
        let link_local = |a: &IpAddr| matches!(a, IpAddr::V6(a) if is_link_local(a.to_bits()));
        if interface.addresses.iter().any(|(a, _)| FamilyId::of(a) == family && !link_local(a)) {
            return Err(FibError::HasAddresses(interface.name.clone()));
        }
        let left = match family {
            FamilyId::V4 => std::mem::replace(&mut interface.tables.0, id),
            FamilyId::V6 => std::mem::replace(&mut interface.tables.1, id),
        };
        self.records.update(index, |r| match family {
            FamilyId::V4 => r.fib4 = at,
            FamilyId::V6 => r.fib6 = at,
        });
        self.tell(&IfEvent::Table(index, family == FamilyId::V4));
        self.left_table(family, left);
        Ok(())
    }

    /// A neighbour's MAC address has become known or has changed (`Some`), or is not known any more (`None`). Buckets that
    /// lead to it are stored, one by one; the host routes of a neighbour that a route to its link covers come and go with it.
    ///
    /// # Errors
    /// No such interface, or no room; then nothing has changed.
    pub fn neighbor_update(&mut self, interface: IfIndex, address: IpAddr, mac: Option<MacAddr>) -> Result<(), FibError> {
        self.with_fib(|fib, env| fib.neighbor(env, interface, address, mac, true))
    }

    /// As [`Router::neighbor_update`], for a neighbour that gets no host route of its own (`no-fib-entry`).
    ///
    /// # Errors
    /// As there.
    pub fn neighbor_update_without_route(
        &mut self,
        interface: IfIndex,
        address: IpAddr,
        mac: Option<MacAddr>,
    ) -> Result<(), FibError> {
        self.with_fib(|fib, env| fib.neighbor(env, interface, address, mac, false))
    }

    /// The adjacency of a neighbour, where one is in use.
    pub fn find_adjacency(&self, interface: IfIndex, address: IpAddr) -> Option<u32> {
        self.fib.adjacencies.find(&AdjKey { family: FamilyId::of(&address), interface, kind: AdjKind::Neighbor(address) })
    }

    /// An adjacency.
    pub fn adjacency_info(&self, index: u32) -> Option<AdjacencyInfo> {
        self.fib.adjacencies.get(index).map(|a| self.fib.info(index, a))
    }

    /// All adjacencies, by index.
    pub fn adjacencies(&self) -> Vec<AdjacencyInfo> {
        self.fib.adjacencies.iter().map(|(i, a)| self.fib.info(i, a)).collect()
    }

    /// FIB index of the table with a user's number.
    pub fn fib_of_table(&self, family: FamilyId, id: u32) -> Option<u32> {
        by_family!(family, F => <F as Select>::tables(&self.fib).ids.get(&id).copied())
    }

    /// User's number of the table that a FIB index stands for.
    pub fn table_of_fib(&self, family: FamilyId, fib: u32) -> Option<u32> {
        by_family!(family, F => <F as Select>::tables(&self.fib).get(fib).map(|t| t.id))
    }
}
