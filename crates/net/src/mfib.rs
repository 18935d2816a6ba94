//! Multicast routes: where packets to a group go, and from which interfaces they are taken.
//!
//! ```text
//!  ip4-input ─► ip4-multicast arc ─► ip4-mfib-forward-lookup ─┬─► a packet for each interface ─► ip4-output arc ─► <if>-output
//!                                      │ (S,G), then (*,G/len) ├─► one for a neighbour ─► ip4-rewrite
//!                                      │                       └─► this router: ip4-receive
//!                                      └─► groups of the link: ip4-receive
//! ```
//!
//! A route has paths: interfaces with what is done there, *Accept* (packets are taken from it, all others fail the check of the
//! reverse path) and *Forward* (copies go there, never back to where a packet came from), and this router itself. Routes are set by
//! hand or by a program; a group that a route brings to this router is [listened to](crate::group) on the interfaces it accepts from.
//!
//! Packets to groups of the link (224.0.0.0/24, `ff02::/16`) and of group membership are for this router and are never forwarded, and
//! neither is what comes from a link-local source. Loops end by TTL.
//!
//! Not done here: routing protocols (PIM), and signals of packets to programs.

pub(crate) mod api;
mod forwarding;
mod node;
pub mod ops;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use quiver_graph::stats::{CombinedCounters, Stats};
use quiver_graph::{ArcPoint, IfIndex, NextNodes, NodeSpec, Published};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::FibError;
use crate::interface::IfEvent;
use crate::ip::{FamilyId, V4, V6};
use crate::local::header::trace;
use forwarding::{Forwarding, Leg, Route, Table, masked, number};
use node::{GroupFamily, Multicast};

/// Most multicast routes of all tables.
pub const ROUTES_MAX: usize = 16_384;
/// Most paths of one.
pub const PATHS_MAX: usize = 256;
/// Who listens to groups that routes bring to this router.
const USER: &str = "mroute";

/// Which packets a route is for: those to a group from one source, or to a prefix of groups from all. In text `232.0.0.0/8`, or
/// `10.0.0.1,232.1.1.1/32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct GroupPrefix {
    group: IpAddr,
    len: u8,
    source: Option<IpAddr>,
}

impl GroupPrefix {
    /// A prefix. With a source its length is that of an address, whatever `len` is.
    ///
    /// # Errors
    /// No groups, addresses of two families, a length that is too long.
    pub fn new(source: Option<IpAddr>, group: IpAddr, len: u8) -> Result<Self, MfibError> {
        let family = FamilyId::of(&group);
        let bits = family.bits();
        let source = source.filter(|source| !source.is_unspecified());
        let len = if source.is_some() { bits } else { len };
        if len > bits || source.is_some_and(|source| FamilyId::of(&source) != family || source.is_multicast()) {
            return Err(MfibError::Prefix);
        }
        let masked = masked(number(group), len, bits);
        let group = match group {
            IpAddr::V4(_) => IpAddr::V4((masked as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(masked.into()),
        };
        // All groups, or some of them.
        if len == 0 && group.is_unspecified() || group.is_multicast() {
            return Ok(Self { group, len, source });
        }
        Err(MfibError::NoGroup(group))
    }

    /// First group.
    pub fn group(&self) -> IpAddr {
        self.group
    }

    /// Bits that groups have in common.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// It is for all groups.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The only source.
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    fn family(&self) -> FamilyId {
        FamilyId::of(&self.group)
    }
}

impl fmt::Display for GroupPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = self.source {
            write!(f, "{source},")?;
        }
        write!(f, "{}/{}", self.group, self.len)
    }
}

impl FromStr for GroupPrefix {
    type Err = MfibError;

    fn from_str(text: &str) -> Result<Self, MfibError> {
        let (source, rest) = text.split_once(',').map_or((None, text), |(source, rest)| (Some(source), rest));
        let source = source.map(|s| s.parse().map_err(|_| MfibError::Prefix)).transpose()?;
        let (group, len) = rest.split_once('/').map_or((rest, None), |(group, len)| (group, Some(len)));
        let group: IpAddr = group.parse().map_err(|_| MfibError::Prefix)?;
        let len = len.map_or(Ok(FamilyId::of(&group).bits()), |len| len.parse().map_err(|_| MfibError::Prefix))?;
        Self::new(source, group, len)
    }
}

impl From<GroupPrefix> for String {
    fn from(prefix: GroupPrefix) -> Self {
        prefix.to_string()
    }
}

impl TryFrom<String> for GroupPrefix {
    type Error = MfibError;
    fn try_from(text: String) -> Result<Self, MfibError> {
        text.parse()
    }
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// This router.
    Local,
    /// All hosts behind an interface.
    Interface(IfIndex),
    /// One of them.
    Neighbor(IfIndex, IpAddr),
}

impl To {
    fn interface(self) -> Option<IfIndex> {
        match self {
            Self::Local => None,
            Self::Interface(index) | Self::Neighbor(index, _) => Some(index),
        }
    }
}

/// What is done at an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFlags {
    /// Packets are taken from it.
    pub accept: bool,
    /// Packets go there.
    pub forward: bool,
}

/// What is done with all packets of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteFlags {
    /// They are taken from any interface.
    pub accept_all: bool,
    /// They are dropped.
    pub drop: bool,
}

/// A multicast route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mroute {
    /// Its packets.
    pub prefix: GroupPrefix,
    /// What is done with all of them.
    pub flags: RouteFlags,
    /// Its paths.
    pub paths: BTreeMap<To, PathFlags>,
    /// Its place in the counters `/net/mroute`.
    pub index: u32,
    /// A client of the binary API said it last.
    pub client: bool,
    /// A plugin needs it, and nobody else has said it: it is not part of the configuration.
    pub plugin: bool,
}

/// Why a multicast route was refused; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MfibError {
    /// No such table, or the next hop cannot be.
    #[error(transparent)]
    Fib(#[from] FibError),
    /// What is no prefix.
    #[error("no prefix of groups: expected GROUP[/LENGTH], or SOURCE,GROUP")]
    Prefix,
    /// An address that is no group.
    #[error("{0} is no group")]
    NoGroup(IpAddr),
    /// Groups that are never forwarded.
    #[error("{0} stays on its link: it is for this router, and is never forwarded")]
    Link(GroupPrefix),
    /// Too many.
    #[error("more than {0} {1}")]
    Full(usize, &'static str),
    /// No such route.
    #[error("no multicast route {0}")]
    NoRoute(GroupPrefix),
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
}

/// State of this module on the main thread.
pub(crate) struct Mfib {
    routes: BTreeMap<(FamilyId, u32, GroupPrefix), Mroute>,
    /// Load-balances of the neighbours that paths lead to, with how many do.
    neighbors: HashMap<(IfIndex, IpAddr), (u32, usize)>,
    published: [Published<Forwarding>; 2],
    counters: Arc<CombinedCounters>,
    free: BTreeSet<u32>,
    next: u32,
}

impl Mfib {
    pub fn new(stats: &Stats) -> Self {
        let table = |bits| Published::new(Forwarding { bits, tables: HashMap::new() });
        let counters = stats.combined("/net/mroute", ROUTES_MAX as u32);
        Self {
            routes: BTreeMap::new(),
            neighbors: HashMap::new(),
            published: [table(32), table(128)],
            counters,
            free: BTreeSet::new(),
            next: 0,
        }
    }

    fn of_table(&self, family: FamilyId, table: u32) -> impl Iterator<Item = &Mroute> {
        let all = self.routes.range((family, table, GroupPrefix::LEAST)..);
        all.take_while(move |((f, t, _), _)| (*f, *t) == (family, table)).map(|(_, route)| route)
    }

    fn take_index(&mut self) -> u32 {
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.counters.set_len(self.next);
        index
    }
}

impl GroupPrefix {
    const LEAST: Self = Self { group: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), len: 0, source: None };
}

/// What is changed of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its flags; `None`: as they are.
    pub flags: Option<RouteFlags>,
    /// Paths that are added, or get these flags.
    pub paths: Vec<(To, PathFlags)>,
    /// All other paths go.
    pub replace: bool,
    /// A client of the binary API says it.
    pub client: bool,
    /// A plugin needs it.
    pub plugin: bool,
}

impl Router {
    /// Adds a multicast route or changes one; gives its place in the counters.
    ///
    /// # Errors
    /// See [`MfibError`].
    pub fn change_mroute(&mut self, table: u32, prefix: GroupPrefix, change: &Change) -> Result<u32, MfibError> {
        let family = prefix.family();
        self.fib_of_table(family, table).ok_or(FibError::NoTable { family, id: table })?;
        if stays_on_link(&prefix) {
            return Err(MfibError::Link(prefix));
        }
        for interface in change.paths.iter().filter_map(|(to, _)| to.interface()) {
            self.interfaces.get(interface).ok_or(MfibError::NoInterface(interface.0))?;
        }
        let key = (family, table, prefix);
        let mut paths = match self.mfib.routes.get(&key) {
            Some(route) if !change.replace => route.paths.clone(),
            None if self.mfib.routes.len() >= ROUTES_MAX => return Err(MfibError::Full(ROUTES_MAX, "multicast routes")),
            _ => BTreeMap::new(),
        };
        paths.extend(change.paths.iter().copied());
        if paths.len() > PATHS_MAX {
            return Err(MfibError::Full(PATHS_MAX, "paths of a multicast route"));
        }
        let before = self.mfib.routes.get(&key).cloned();
        let old: Vec<To> = before.iter().flat_map(|route| route.paths.keys().copied()).collect();
        self.hold_neighbors(&old, &paths.keys().copied().collect::<Vec<_>>())?;
        let plugin = change.plugin && before.as_ref().is_none_or(|route| route.plugin);
        let client = if change.plugin { before.as_ref().is_some_and(|route| route.client) } else { change.client };
        let index = before.as_ref().map_or_else(|| self.mfib.take_index(), |route| route.index);
        let usual = before.map_or_else(RouteFlags::default, |route| route.flags);
        let flags = change.flags.unwrap_or(if change.replace { RouteFlags::default() } else { usual });
        self.mfib.routes.insert(key, Mroute { prefix, flags, paths, index, client, plugin });
        self.mroutes_changed(family, table);
        Ok(index)
    }

    /// Removes paths of a multicast route, and the route with its last one; all where none are named.
    ///
    /// # Errors
    /// There is no such route.
    pub fn remove_mroute(&mut self, table: u32, prefix: GroupPrefix, paths: &[To]) -> Result<(), MfibError> {
        let family = prefix.family();
        let key = (family, table, prefix);
        let route = self.mfib.routes.get_mut(&key).ok_or(MfibError::NoRoute(prefix))?;
        let old: Vec<To> = route.paths.keys().copied().collect();
        let left: Vec<To> = old.iter().filter(|to| !paths.is_empty() && !paths.contains(to)).copied().collect();
        route.paths.retain(|to, _| left.contains(to));
        if route.paths.is_empty() && (paths.is_empty() || route.flags == RouteFlags::default()) {
            let index = route.index;
            self.mfib.routes.remove(&key);
            // The next route begins to count at 0.
            let counters = self.mfib.counters.clone();
            self.graph.each_row(move |row| counters.clear_index_thread(row, index));
            self.mfib.free.insert(index);
        }
        // Giving back never fails.
        let _ = self.hold_neighbors(&old, &left);
        self.mroutes_changed(family, table);
        Ok(())
    }

    /// Multicast routes of a table, in order.
    pub fn mroutes(&self, family: FamilyId, table: u32) -> impl Iterator<Item = &Mroute> {
        self.mfib.of_table(family, table)
    }

    /// Packets and bytes of a multicast route.
    pub fn mroute_counts(&self, route: &Mroute) -> (u64, u64) {
        self.mfib.counters.sum(route.index)
    }

    /// A table was removed, or emptied, that had this FIB index.
    pub(crate) fn forget_mroutes(&mut self, family: FamilyId, table: u32, fib: u32) {
        self.sweep_mroutes(family, table, |_| false);
        let published = &self.mfib.published[family as usize];
        let mut all = Forwarding::clone(&published.get());
        if all.tables.remove(&fib).is_some() {
            published.publish(all);
        }
    }

    /// Removes all multicast routes of a table that `stays` is not true of.
    pub(crate) fn sweep_mroutes(&mut self, family: FamilyId, table: u32, stays: impl Fn(&Mroute) -> bool) {
        let gone: Vec<GroupPrefix> = self.mroutes(family, table).filter(|route| !stays(route)).map(|route| route.prefix).collect();
        for prefix in gone {
            let _ = self.remove_mroute(table, prefix, &[]);
        }
    }

    /// Takes load-balances for neighbours that are new among paths, and gives back those of others.
    fn hold_neighbors(&mut self, old: &[To], new: &[To]) -> Result<(), MfibError> {
        let mut held = Vec::new();
        for to in new.iter().filter(|to| !old.contains(to)) {
            let To::Neighbor(interface, address) = *to else { continue };
            let key = (interface, address);
            if let Some((_, users)) = self.mfib.neighbors.get_mut(&key) {
                *users += 1;
                held.push(*to);
                continue;
            }
            match self.hold_next_hop(interface, address) {
                Ok(lb) => {
                    self.mfib.neighbors.insert(key, (lb, 1));
                    held.push(*to);
                }
                Err(error) => {
                    self.give_back(&held);
                    return Err(error.into());
                }
            }
        }
        let gone: Vec<To> = old.iter().filter(|to| !new.contains(to)).copied().collect();
        self.give_back(&gone);
        Ok(())
    }

    fn give_back(&mut self, gone: &[To]) {
        for to in gone {
            let To::Neighbor(interface, address) = *to else { continue };
            let key = (interface, address);
            let Some((lb, users)) = self.mfib.neighbors.get_mut(&key) else { continue };
            *users -= 1;
            if *users == 0 {
                let lb = *lb;
                self.mfib.neighbors.remove(&key);
                self.release_next_hop(lb);
            }
        }
    }

    /// Tells nodes of a table, and links of groups that come to this router.
    fn mroutes_changed(&mut self, family: FamilyId, table: u32) {
        self.publish_mroutes(family, table);
        let mut wanted: BTreeMap<IfIndex, BTreeSet<IpAddr>> = BTreeMap::new();
        for ((f, ..), route) in &self.mfib.routes {
            let is_local = route.paths.get(&To::Local).is_some_and(|flags| flags.forward);
            for (to, flags) in &route.paths {
                let Some(interface) = to.interface().filter(|_| *f == family) else { continue };
                let groups = wanted.entry(interface).or_default();
                if is_local && flags.accept && route.prefix.len == family.bits() {
                    groups.insert(route.prefix.group);
                }
            }
        }
        let all: Vec<IfIndex> = self.interfaces.iter().map(|i| i.index).collect();
        for interface in all {
            let groups = wanted.remove(&interface).unwrap_or_default();
            self.want_groups(interface, family, USER, &groups);
        }
    }

    fn publish_mroutes(&mut self, family: FamilyId, table: u32) {
        let Some(fib) = self.fib_of_table(family, table) else { return };
        let mut built = Table::default();
        for route in self.mfib.of_table(family, table) {
            let source = route.prefix.source.map(number);
            built.insert(source, number(route.prefix.group), route.prefix.len, Arc::new(self.compile(route, family)));
        }
        let published = &self.mfib.published[family as usize];
        let mut all = Forwarding::clone(&published.get());
        all.tables.insert(fib, Arc::new(built));
        published.publish(all);
    }

    fn compile(&self, route: &Mroute, family: FamilyId) -> Route {
        let RouteFlags { accept_all, drop } = route.flags;
        let accept: BTreeSet<IfIndex> =
            route.paths.iter().filter(|(_, flags)| flags.accept).filter_map(|(to, _)| to.interface()).collect();
        let leg = |(to, flags): (&To, &PathFlags)| {
            let interface = self.interfaces.get(to.interface().filter(|_| flags.forward)?)?;
            let mtu = if family == FamilyId::V4 { interface.mtu4() } else { interface.mtu6() };
            let next_hop = match to {
                To::Neighbor(interface, address) => Some(self.mfib.neighbors.get(&(*interface, *address))?.0),
                _ => None,
            };
            Some(Leg { interface: interface.index, mtu: mtu.min(u16::MAX.into()) as u16, next_hop })
        };
        Route {
            counter: route.index,
            drops: drop,
            accepts_all: accept_all,
            accept: accept.into_iter().collect(),
            local: route.paths.get(&To::Local).is_some_and(|flags| flags.forward),
            legs: route.paths.iter().filter_map(leg).collect(),
        }
    }
}

/// Whether a prefix has only groups that are for this router anyway.
fn stays_on_link(prefix: &GroupPrefix) -> bool {
    match prefix.group {
        IpAddr::V4(a) => prefix.len >= 24 && a.octets()[..3] == [224, 0, 0],
        IpAddr::V6(a) => prefix.len >= 16 && quiver_wire::ipv6::address::multicast_scope(a.to_bits()) <= 2,
    }
}

/// Keeps routes in step with interfaces.
fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Deleted(index) => {
            let with = |route: &&Mroute| route.paths.keys().any(|to| to.interface() == Some(index));
            let all = router.mfib.routes.iter().filter(|(_, route)| with(route));
            let all: Vec<(u32, Mroute)> = all.map(|((_, table, _), route)| (*table, route.clone())).collect();
            for (table, route) in all {
                let gone: Vec<To> = route.paths.keys().filter(|to| to.interface() == Some(index)).copied().collect();
                let _ = router.remove_mroute(table, route.prefix, &gone);
            }
        }
        IfEvent::Mtu(index) => {
            let with = |route: &Mroute| route.paths.keys().any(|to| to.interface() == Some(index));
            let tables = router.mfib.routes.iter().filter(|(_, route)| with(route));
            let tables: BTreeSet<(FamilyId, u32)> = tables.map(|((family, table, _), _)| (*family, *table)).collect();
            tables.into_iter().for_each(|(family, table)| router.publish_mroutes(family, table));
        }
        _ => {}
    }
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    vec![node::<V4>(router), node::<V6>(router)]
}

fn node<F: GroupFamily>(router: &Router) -> NodeSpec {
    let prefix = F::ID.node_prefix();
    let output = ArcPoint::new();
    let node = Multicast::<F> {
        interfaces: router.data.interfaces.clone(),
        forwarding: router.mfib.published[F::ID as usize].snapshot(),
        views: router.neighbors.views.snapshot(),
        load_balances: router.data.load_balances.clone(),
        output: output.clone(),
        row: router.mfib.counters.row(0),
        bytes: Vec::new(),
        family: PhantomData,
    };
    debug_assert!(F::LookupNext::NAMES.len() > 1);
    let spec = NodeSpec::node(format!("{prefix}-mfib-forward-lookup"), node);
    let spec = spec.with_next("neighbor-output").with_next(format!("{prefix}-icmp-error"));
    spec.on_arc(if F::ID == FamilyId::V4 { "ip4-output" } else { "ip6-output" }, output).traced(trace::<F>)
}

pub(crate) fn init(router: &mut Router) {
    router.listen(on_interface);
}

#[cfg(test)]
mod tests;
