//! Routes that a routing daemon sends beside the kernel (FPM).
//!
//! They stand in the same entries as the kernel's and come first: a daemon's choice has taken the kernel's other routes into account.
//! A prefix has one of them, whatever metric it names. They go when the daemon says so, or with it; a link that goes down takes them
//! out of the router's table until it is up again. Next-hop objects have numbers of their own.
//!
//! What a connection has not said since it began is of one before, and goes with [`Rib::sweep_pushed`].
//!
//! What is sent is bounded, whoever sends it: routes, next hops and objects. What is too much is refused, and the route that it
//! would have changed goes.

use std::collections::{BTreeMap, HashMap};

use super::entry::{PUSHED, Stored};
use super::{Key, Rib, TABLE_0, router_table};
use crate::message::{NextHop, Route, Target};
use quiver_wire::IpPrefix;

/// Most routes: some four times the Internet's.
const ROUTES: u64 = 4_000_000;
/// Most next hops that all routes have by themselves.
const HOPS: usize = 1 << 20;
/// Most next-hop objects.
const OBJECTS: usize = 1 << 16;
/// Most members of a group, and next hops of a route: what FRR can have.
const MEMBERS: usize = 256;

/// A route that was sent.
#[derive(Clone, Copy, Debug)]
pub struct PushedRoute<'a> {
    /// The kernel's table.
    pub table: u32,
    /// Destination.
    pub prefix: IpPrefix,
    /// Who made it.
    pub protocol: u8,
    /// Where it leads.
    pub target: &'a Target,
}

/// It would be more than the router keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// What belongs to these routes alone.
#[derive(Default)]
pub struct Pushed {
    pub by_protocol: BTreeMap<u8, u64>,
    /// Number of the connection.
    generation: u8,
    /// Routes that this connection has sent.
    fresh: u64,
    object_seen: HashMap<u32, u8>,
    /// Objects have changed, and what leads to them is to be resolved.
    is_dirty: bool,
}

/// One of the kernel's tables for a table of the router.
fn kernel_table(table: u32) -> u32 {
    if table == 0 { TABLE_0[1] } else { table }
}

impl Pushed {
    fn is_fresh(&self, route: &Stored) -> bool {
        route.rank == PUSHED && route.generation == self.generation
    }

    /// A route has gone.
    pub(super) fn removed(&mut self, old: &Stored) {
        // Numbers of connections come again after 256: one as old as that looks fresh.
        self.fresh = self.fresh.saturating_sub(u64::from(self.is_fresh(old)));
    }
}

impl Rib {
    /// A connection begins.
    pub fn begin_pushed(&mut self) {
        self.pushed.generation = self.pushed.generation.wrapping_add(1);
        self.pushed.fresh = 0;
    }

    /// A route is there, in place of the one of its prefix.
    ///
    /// # Errors
    /// It is too much; the prefix has none now.
    pub fn push(&mut self, route: &Route) -> Result<(), TooMany> {
        if route.tos != 0 || route.by_source {
            self.special += 1;
            return Ok(());
        }
        let key = Key::new(router_table(route.table).0, route.prefix);
        if key.is_left_out() {
            return Ok(());
        }
        let target = match &route.target {
            Target::Object(id) => Target::PushedObject(*id),
            other => other.clone(),
        };
        let hops = if let Target::Hops(hops) = &target { hops.len() } else { 0 };
        let first = self.entries.get(&key).and_then(|entry| entry.routes().first());
        let has_one = first.is_some_and(|route| route.rank == PUSHED);
        let has_fresh = first.is_some_and(|route| self.pushed.is_fresh(route));
        if hops > MEMBERS || self.targets.hops() + hops > HOPS || !has_one && self.pushed_routes() >= ROUTES {
            self.pull(route);
            return Err(TooMany);
        }
        let target = self.targets.take(key.v6, &target, &self.around);
        let generation = self.pushed.generation;
        let new = Stored { metric: 0, target, protocol: route.protocol, rank: PUSHED, generation };
        let entry = self.entries.entry(key).or_default();
        if entry.confirm(&new) {
            self.targets.give(target);
            self.pushed.fresh += u64::from(!has_fresh);
            return Ok(());
        }
        self.pushed.fresh += 1;
        let before = entry.best_target();
        let replaced = entry.insert(new, |_| true, false);
        *self.pushed.by_protocol.entry(route.protocol).or_default() += 1;
        if let Some(old) = replaced {
            self.forget(&old);
        }
        self.after(key, before);
        Ok(())
    }

    /// A route has gone, wherever it led.
    pub fn pull(&mut self, route: &Route) {
        let key = Key::new(router_table(route.table).0, route.prefix);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let before = entry.best_target();
        let Some(at) = entry.routes().iter().position(|route| route.rank == PUSHED) else { return };
        let old = entry.remove(at);
        self.forget(&old);
        self.after(key, before);
    }

    /// A next-hop object is there, or has changed.
    ///
    /// # Errors
    /// It is too much; there is no such object now.
    pub fn push_object(&mut self, id: u32, object: NextHop) -> Result<(), TooMany> {
        let is_new = !self.around.pushed_objects.contains_key(&id);
        let members = if let NextHop::Group(members) = &object { members.len() } else { 0 };
        if members > MEMBERS || is_new && self.around.pushed_objects.len() >= OBJECTS {
            self.pull_object(id);
            return Err(TooMany);
        }
        self.pushed.object_seen.insert(id, self.pushed.generation);
        let changed = self.around.pushed_objects.get(&id) != Some(&object);
        self.pushed.is_dirty |= changed;
        if changed {
            self.around.pushed_objects.insert(id, object);
        }
        Ok(())
    }

    /// A next-hop object has gone.
    pub fn pull_object(&mut self, id: u32) {
        self.pushed.object_seen.remove(&id);
        self.pushed.is_dirty |= self.around.pushed_objects.remove(&id).is_some();
    }

    /// Follows objects that have changed; before changes are taken. Many of them cost as much as one.
    pub fn settle_pushed(&mut self) {
        if std::mem::take(&mut self.pushed.is_dirty) {
            let numbers = self.targets.pushed();
            self.resolve_again(Some(&numbers));
        }
    }

    /// Removes what the connection has not said; gives how many routes went.
    pub fn sweep_pushed(&mut self) -> usize {
        let generation = self.pushed.generation;
        let gone = self.retain(|route| route.rank != PUSHED || route.generation == generation);
        let old = |(id, seen): (&u32, &u8)| (*seen != generation).then_some(*id);
        let objects: Vec<u32> = self.pushed.object_seen.iter().filter_map(old).collect();
        objects.into_iter().for_each(|id| self.pull_object(id));
        gone
    }

    /// Removes all that was sent; gives how many routes went.
    pub fn clear_pushed(&mut self) -> usize {
        let gone = self.retain(|route| route.rank != PUSHED);
        self.forget_pushed_objects();
        gone
    }

    pub(super) fn forget_pushed_objects(&mut self) {
        self.around.pushed_objects.clear();
        self.pushed.object_seen.clear();
        self.pushed.is_dirty = true;
    }

    /// Routes that were sent, by protocol.
    pub fn pushed_by_protocol(&self) -> &BTreeMap<u8, u64> {
        &self.pushed.by_protocol
    }

    /// How many these are.
    pub fn pushed_routes(&self) -> u64 {
        self.pushed.by_protocol.values().sum()
    }

    /// Each of them.
    pub fn all_pushed_routes(&self) -> impl Iterator<Item = PushedRoute<'_>> {
        self.entries.iter().filter_map(|(key, entry)| {
            let route = entry.routes().first().filter(|route| route.rank == PUSHED)?;
            let (prefix, target) = (key.prefix()?, self.targets.target(route.target)?);
            Some(PushedRoute { table: kernel_table(key.table), prefix, protocol: route.protocol, target })
        })
    }

    /// Each object that was sent, by its number.
    pub fn all_pushed_objects(&self) -> impl Iterator<Item = (u32, &NextHop)> {
        self.around.pushed_objects.iter().map(|(id, object)| (*id, object))
    }

    /// How many of them this connection has not sent.
    pub fn pushed_before(&self) -> u64 {
        self.pushed_routes().saturating_sub(self.pushed.fresh)
    }

    /// Next-hop objects that were sent.
    pub fn pushed_objects(&self) -> usize {
        self.around.pushed_objects.len()
    }
}
