//! The routes of a namespace as the kernel has them, and what the router's table must have of them.
//!
//! ```text
//!   Message ──► routes by prefix (order of the kernel's) ──► best ──► target ──► paths
//!                                                                      │          compared with what was told:
//!   links, next-hop objects, interfaces of the router ─────────────────┘          changes(), a minimal difference
//! ```
//!
//! *Targets.* Routes that lead to the same place share one [`Target`](crate::message::Target). A link, an object or an interface
//! that changes is resolved once for each target; then the routes of targets with another result are looked through.
//!
//! *What the kernel does not say.* A route that goes because its link, or its next-hop object, has gone is not announced. It is
//! removed here by the same rules: an object goes with its link or carrier, a group with its last member, a route with its
//! object, or when all its links are down. A comparison with the kernel follows (see `reader`).
//!
//! *Comparison.* Each route has the number of the list in which it was seen last. After a list, those with another number go.
//! Only what differs becomes a change.

mod entry;
mod mirror;
mod pushed;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use quiver_graph::IfIndex;
use quiver_wire::IpPrefix;
use serde::Serialize;

use crate::message::{Link, NextHop, Route, Target, flag};
use entry::{Entry, PUSHED, Stored};
pub use mirror::{Keyed, Mirror};
use pushed::Pushed;
pub use pushed::{PushedRoute, TooMany};
pub use target::{Paths, Refusal};
use target::{Surroundings, Targets};

/// The kernel's tables that are the router's table 0, in the order in which the kernel asks them: local, main, default.
const TABLE_0: [u32; 3] = [255, 254, 253];

/// The router's table for one of the kernel's, and its place among those that share it.
fn router_table(kernel: u32) -> (u32, u8) {
    let first = PUSHED + 1;
    TABLE_0.iter().position(|table| *table == kernel).map_or((kernel, first), |rank| (0, first + rank as u8))
}

/// What a route of the router's table is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    table: u32,
    len: u8,
    v6: bool,
    address: [u8; 16],
}

impl Key {
    fn new(table: u32, prefix: IpPrefix) -> Self {
        let mut address = [0; 16];
        match prefix.addr() {
            std::net::IpAddr::V4(a) => address[..4].copy_from_slice(&a.octets()),
            std::net::IpAddr::V6(a) => address = a.octets(),
        }
        Self { table, len: prefix.len(), v6: prefix.addr().is_ipv6(), address }
    }

    fn prefix(&self) -> Option<IpPrefix> {
        let [a, b, c, d, ..] = self.address;
        let address = if self.v6 { self.address.into() } else { std::net::IpAddr::from([a, b, c, d]) };
        IpPrefix::new(address, self.len).ok()
    }

    /// Multicast, and link-local addresses, which every interface has for itself.
    fn is_left_out(&self) -> bool {
        self.v6 && (self.address[0] == 0xff || self.address[0] == 0xfe && self.address[1] & 0xc0 == 0x80)
    }
}

/// What the router's table must change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteChange {
    /// The router's table.
    pub table: u32,
    /// Destination.
    pub prefix: IpPrefix,
    /// The paths that it is to have; none: it goes.
    pub paths: Option<Paths>,
}

/// What a comparison with the kernel found: changes that had not been announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Routes that the kernel has and the router had not.
    pub missing: u64,
    /// Routes that the router had and the kernel has not.
    pub extra: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// Differences that are shown by name.
const EXAMPLES: usize = 20;

impl Differences {
    fn note(&mut self, what: &str, key: &Key) {
        if self.examples.len() < EXAMPLES
            && let Some(prefix) = key.prefix()
        {
            self.examples.push(format!("{what} {prefix} table {}", key.table));
        }
    }
}

/// All routes of a namespace.
#[derive(Default)]
pub struct Rib {
    around: Surroundings,
    targets: Targets,
    entries: HashMap<Key, Entry>,
    /// Prefixes whose best route may have changed.
    dirty: VecDeque<Key>,
    /// Number of the list.
    generation: u8,
    /// Prefixes whose routes were announced since the list was asked for. The kernel reads a part of the list before it sends it, and
    /// announces that a route goes before it takes it out: what the list says of them may be older.
    announced: Option<HashSet<Key>>,
    by_protocol: BTreeMap<u8, u64>,
    /// Prefixes that the router's table has.
    told: u64,
    /// Routes for some packets only, which are left out.
    special: u64,
    differences: Differences,
    object_seen: HashMap<u32, u8>,
    pushed: Pushed,
}

impl Rib {
    /// Which interface of the router each link of the namespace belongs to.
    pub fn set_interfaces(&mut self, interfaces: HashMap<u32, IfIndex>) {
        self.around.interfaces = interfaces;
        self.resolve_again(None);
    }

    /// The interface of the router for a link.
    pub fn interface(&self, link: u32) -> Option<IfIndex> {
        self.around.interfaces.get(&link).copied()
    }

    /// The table of the VRF that a link belongs to.
    pub fn vrf_of(&self, link: &Link) -> Option<u32> {
        self.around.links.get(&link.master?)?.vrf
    }

    /// A link and those that belong to it.
    pub fn link_and_members(&self, index: u32) -> impl Iterator<Item = &Link> {
        self.around.links.values().filter(move |link| link.index == index || link.master == Some(index))
    }

    /// Whether a link is up with its carrier; one that is not known is.
    pub fn link_is_up(&self, link: u32) -> bool {
        self.around.links.get(&link).is_none_or(|link| link.up && link.carrier)
    }

    /// Prefixes that wait to be looked at.
    pub fn waiting(&self) -> usize {
        self.dirty.len()
    }

    /// A list of a comparison is asked for: what of it is not seen from now on goes at its end.
    pub fn begin_list(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.announced = Some(HashSet::new());
    }

    /// A comparison begins.
    pub fn begin_comparison(&mut self) {
        self.differences = Differences::default();
    }

    /// What the last comparison found.
    pub fn differences(&self) -> &Differences {
        &self.differences
    }

    /// A route is there; `from_dump`: it is part of a comparison, not an announcement.
    pub fn add(&mut self, route: &Route, flags: u16, from_dump: bool) {
        if route.tos != 0 || route.by_source {
            self.special += u64::from(!from_dump);
            return;
        }
        let (table, rank) = router_table(route.table);
        let key = Key::new(table, route.prefix);
        if key.is_left_out() {
            return;
        }
        let is_old = from_dump && self.announced.as_ref().is_some_and(|announced| announced.contains(&key));
        if !from_dump && let Some(announced) = &mut self.announced {
            announced.insert(key);
        }
        let target = self.targets.take(key.v6, &route.target, &self.around);
        let new = Stored { metric: route.metric, target, protocol: route.protocol, rank, generation: self.generation };
        if is_old {
            self.entries.get_mut(&key).map(|entry| entry.confirm(&new));
            return self.targets.give(target);
        }
        let entry = self.entries.entry(key).or_default();
        if entry.confirm(&new) {
            self.targets.give(target);
            return;
        }
        if from_dump {
            self.differences.missing += 1;
            self.differences.note("missing", &key);
        }
        let before = entry.best_target();
        let targets = &self.targets;
        let is_group =
            |number: u32| matches!(targets.target(number), Some(Target::Hops(hops)) if hops.iter().all(|h| h.via.is_some()));
        let replaces = |old: &Stored| match (from_dump, key.v6) {
            (true, _) => false,
            (false, _) if flags & flag::REPLACE != 0 => true,
            // The kernel announces all next hops of such a route, whichever was added.
            (false, true) => is_group(old.target) && is_group(target),
            (false, false) => false,
        };
        let last = from_dump || key.v6 || flags & flag::APPEND != 0;
        let replaced = entry.insert(new, replaces, last);
        *self.by_protocol.entry(route.protocol).or_default() += 1;
        if let Some(old) = replaced {
            self.forget(&old);
        }
        self.after(key, before);
    }

    /// A route has gone.
    pub fn remove(&mut self, route: &Route) {
        let (table, rank) = router_table(route.table);
        let key = Key::new(table, route.prefix);
        if route.tos != 0 || route.by_source {
            return;
        }
        if let Some(announced) = &mut self.announced {
            announced.insert(key);
        }
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let before = entry.best_target();
        let target = self.targets.find(key.v6, &route.target);
        let same = |old: &Stored| (old.metric, old.rank) == (route.metric, rank);
        let exact = entry.routes().iter().position(|old| same(old) && old.protocol == route.protocol && Some(old.target) == target);
        let Some(at) = exact.or_else(|| entry.routes().iter().position(same)) else { return };
        let old = entry.remove(at);
        // Of an IPv6 route with several next hops, those that go are announced.
        let rest = match (exact, key.v6, self.targets.target(old.target), &route.target) {
            (None, true, Some(Target::Hops(have)), Target::Hops(gone)) => {
                let lead_alike = |a: &crate::message::Hop, b: &crate::message::Hop| (a.link, a.via) == (b.link, b.via);
                let rest: Vec<_> = have.iter().filter(|hop| !gone.iter().any(|g| lead_alike(hop, g))).copied().collect();
                if rest.is_empty() { None } else { Some(Target::Hops(rest.into())) }
            }
            _ => None,
        };
        if let Some(rest) = rest {
            let target = self.targets.take(true, &rest, &self.around);
            *self.by_protocol.entry(old.protocol).or_default() += 1;
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.insert(Stored { target, generation: self.generation, ..old }, |_| false, false);
            }
        }
        self.forget(&old);
        self.after(key, before);
    }

    /// Counts for a route that is not in its entry any more.
    fn forget(&mut self, old: &Stored) {
        self.targets.give(old.target);
        self.pushed.removed(old);
        let by_protocol = if old.rank == PUSHED { &mut self.pushed.by_protocol } else { &mut self.by_protocol };
        if let Some(n) = by_protocol.get_mut(&old.protocol) {
            *n -= 1;
            if *n == 0 {
                by_protocol.remove(&old.protocol);
            }
        }
    }

    /// An entry has changed: its prefix is looked at when changes are taken.
    fn after(&mut self, key: Key, before: Option<u32>) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        // Numbers of targets are used again, so an equal one means something only while a route still has it.
        let same = before.is_some() && before == entry.best_target();
        if !same && !std::mem::replace(&mut entry.dirty, true) {
            self.dirty.push_back(key);
        }
    }

    /// The end of the part of a comparison that lists routes of a family.
    pub fn sweep_routes(&mut self, v6: bool) {
        self.announced = None;
        let generation = self.generation;
        let (mut extra, mut gone) = (Vec::new(), Vec::new());
        for (key, entry) in self.entries.iter_mut().filter(|(key, _)| key.v6 == v6) {
            let before = gone.len();
            entry.retain(|route| route.rank == PUSHED || route.generation == generation, &mut gone);
            if gone.len() > before {
                if !std::mem::replace(&mut entry.dirty, true) {
                    self.dirty.push_back(*key);
                }
                extra.push(*key);
            }
        }
        self.differences.extra += gone.len() as u64;
        extra.iter().for_each(|key| self.differences.note("extra", key));
        gone.iter().for_each(|route| self.forget(route));
    }

    /// A link is there, or has changed.
    pub fn set_link(&mut self, link: Link) {
        let index = link.index;
        let (up, carrier) = (link.up, link.carrier);
        let before = self.around.links.insert(index, link);
        let was_up = before.as_ref().is_none_or(|b| b.up);
        let had_carrier = before.as_ref().is_none_or(|b| b.up && b.carrier);
        if was_up != up || had_carrier != (up && carrier) {
            self.link_changed(index, up, up && carrier);
        }
    }

    /// A link has gone.
    pub fn remove_link(&mut self, index: u32) {
        self.link_changed(index, false, false);
        self.around.links.remove(&index);
    }

    fn link_changed(&mut self, index: u32, up: bool, carrier: bool) {
        if !carrier {
            let on_link = |(id, object): (&u32, &NextHop)| matches!(object, NextHop::One(hop) if hop.link == index).then_some(*id);
            let gone: Vec<u32> = self.around.objects.iter().filter_map(on_link).collect();
            for id in gone {
                self.remove_object(id);
            }
        }
        if !up {
            let links = &self.around.links;
            let is_down = |link: u32| link == index || links.get(&link).is_none_or(|l| !l.up);
            let all_down = |target: &Target| match target {
                Target::Hops(hops) => hops.iter().any(|hop| hop.link == index) && hops.iter().all(|hop| is_down(hop.link)),
                _ => false,
            };
            let gone = self.targets.marked(all_down);
            self.remove_targets(&gone);
        }
        self.resolve_again(None);
    }

    /// A next-hop object is there, or has changed.
    pub fn set_object(&mut self, id: u32, object: NextHop) {
        self.object_seen.insert(id, self.generation);
        let is_new = self.around.objects.insert(id, object).is_none();
        if is_new {
            // Only routes that came before it can lead to it.
            let numbers: Vec<u32> = [false, true].iter().filter_map(|v6| self.targets.find(*v6, &Target::Object(id))).collect();
            self.resolve_again(Some(&numbers));
        } else {
            self.resolve_again(None);
        }
    }

    /// A next-hop object has gone, and with it, without a word of the kernel, routes and memberships.
    pub fn remove_object(&mut self, id: u32) {
        self.object_seen.remove(&id);
        if self.around.objects.remove(&id).is_none() {
            return;
        }
        let mut empty = Vec::new();
        for (group, object) in &mut self.around.objects {
            if let NextHop::Group(members) = object {
                let before = members.len();
                members.retain(|(member, _)| *member != id);
                if members.is_empty() && before > 0 {
                    empty.push(*group);
                }
            }
        }
        let gone = self.targets.marked(|target| *target == Target::Object(id));
        self.remove_targets(&gone);
        for group in empty {
            self.remove_object(group);
        }
        self.resolve_again(None);
    }

    /// The end of the part of a comparison that lists objects.
    pub fn sweep_objects(&mut self) {
        let generation = self.generation;
        let gone: Vec<u32> = self.object_seen.iter().filter(|(_, seen)| **seen != generation).map(|(id, _)| *id).collect();
        for id in gone {
            self.remove_object(id);
        }
        // A group may have been listed before its members.
        self.resolve_again(None);
    }

    /// Removes the routes with these targets.
    fn remove_targets(&mut self, marks: &[bool]) {
        if marks.is_empty() {
            return;
        }
        let is_marked = |target: u32| marks.get(target as usize).copied().unwrap_or(false);
        // A routing daemon withdraws its routes itself.
        self.retain(|route| route.rank == PUSHED || !is_marked(route.target));
    }

    /// Keeps the routes for which `keep` holds; gives how many have gone.
    fn retain(&mut self, keep: impl Fn(&Stored) -> bool) -> usize {
        let mut gone = Vec::new();
        for (key, entry) in &mut self.entries {
            let before = gone.len();
            entry.retain(&keep, &mut gone);
            if gone.len() > before && !std::mem::replace(&mut entry.dirty, true) {
                self.dirty.push_back(*key);
            }
        }
        gone.iter().for_each(|route| self.forget(route));
        gone.len()
    }

    /// Resolves targets again and looks through the routes of those with another result.
    fn resolve_again(&mut self, only: Option<&[u32]>) {
        let changed = self.targets.resolve_again(only, &self.around);
        if changed.is_empty() {
            return;
        }
        let mut dirty = Vec::new();
        for (key, entry) in &mut self.entries {
            let concerned = entry.best_target().is_some_and(|target| changed.get(target as usize).copied().unwrap_or(false));
            if concerned && !std::mem::replace(&mut entry.dirty, true) {
                dirty.push(*key);
            }
        }
        // In the order of addresses: neighbours in the router's table are near one another in memory, too, and there may be a million.
        dirty.sort_unstable_by_key(|key| (key.v6, key.table, key.address, key.len));
        self.dirty.extend(dirty);
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.retain(|_| false);
        self.around.objects.clear();
        self.object_seen.clear();
        self.forget_pushed_objects();
    }

    /// Whether there may be changes.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The next change, which counts as told.
    pub fn change(&mut self) -> Option<RouteChange> {
        while let Some(key) = self.dirty.pop_front() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.dirty = false;
            let paths = entry.best_target().and_then(|target| self.targets.paths(target)).cloned();
            let change = (entry.told != paths).then(|| key.prefix()).flatten();
            self.told = self.told + u64::from(paths.is_some()) - u64::from(entry.told.is_some());
            entry.told.clone_from(&paths);
            if entry.is_empty() {
                self.entries.remove(&key);
            }
            if let Some(prefix) = change {
                return Some(RouteChange { table: key.table, prefix, paths });
            }
        }
        // After a full table has come or gone, memory that is not needed goes back.
        if self.entries.capacity() / 8 > self.entries.len().max(4096) {
            self.entries.shrink_to_fit();
        }
        None
    }

    /// Table and prefix of what the router's table was told to have.
    pub fn all_told(&self) -> impl Iterator<Item = (u32, IpPrefix)> {
        let told = |(key, entry): (&Key, &Entry)| entry.told.as_ref().and_then(|_| Some((key.table, key.prefix()?)));
        self.entries.iter().filter_map(told)
    }

    /// What the router's table was told to have for a prefix.
    pub fn told_of(&self, table: u32, prefix: IpPrefix) -> Option<RouteChange> {
        let paths = self.entries.get(&Key::new(table, prefix))?.told.clone()?;
        Some(RouteChange { table, prefix, paths: Some(paths) })
    }

    /// Routes of the kernel by protocol.
    pub fn by_protocol(&self) -> &BTreeMap<u8, u64> {
        &self.by_protocol
    }

    /// Prefixes that the router's table has of these.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Next-hop objects.
    pub fn objects(&self) -> usize {
        self.around.objects.len()
    }

    /// Announced routes that hold for some packets only (type of service, source), which are left out.
    pub fn special(&self) -> u64 {
        self.special
    }

    /// Routes whose target the router does not take.
    pub fn refused(&self) -> HashMap<Refusal, u64> {
        self.targets.refused()
    }
}
