//! Access lists and where they are used, on the main thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_graph::stats::CombinedCounters;
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router};

use crate::nodes;
use crate::policy::{ListOf, Policy};
use crate::rule::Rule;
use crate::session::{self, SESSIONS_MAX, Sessions, Shown, TIMEOUTS};
use crate::view::{Bound, Side, View};

/// Numbers of lists are below this.
pub const LISTS_MAX: u32 = 65_536;
/// Rules of a list at most.
pub const RULES_MAX: usize = 65_536;
/// Bytes of a tag, as many as VPP's messages have room for.
pub const TAG_MAX: usize = 63;
/// Lists of an interface at most, in both directions: VPP's messages count them in a byte.
pub const USED_MAX: usize = 255;
/// Sessions at most that may be asked for.
pub const SESSIONS_LIMIT: u32 = 16_000_000;
/// The process that removes sessions which are over; VPP's name.
const CLEANER: &str = "acl-plugin-fa-cleaner-process";
/// How long a round over all shards takes, ns.
const ROUND: u64 = 5_000_000_000;
/// When the cleaner looks again where there is nothing to do, ns.
const NOTHING: u64 = 1_000_000_000;
/// Bytes of a VLAN tag.
const TAG: u32 = 4;
/// When it looks again where no rule begins sessions, ns: the first one that does wakes it.
const HOUR: u64 = 3_600_000_000_000;

/// A list.
#[derive(Clone)]
pub struct List {
    /// What its user calls it.
    pub tag: String,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    /// Packets and bytes by rule; none where they are not counted.
    counters: Option<Arc<CombinedCounters>>,
}

impl List {
    /// Packets and bytes of a rule.
    pub fn count(&self, rule: usize) -> Option<(u64, u64)> {
        self.counters.as_ref().map(|counters| counters.sum(rule as u32))
    }
}

/// How an interface uses lists; what comes in first, then what leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Numbers of its lists, in the order in which they are looked at.
    pub lists: [Vec<u32>; 2],
    /// EtherTypes that frames of layer 2 may have which are not IP; all where there is none.
    pub ether_types: [Vec<u16>; 2],
    /// Sessions that began before this version are over.
    since: u32,
    /// The version in which its lists changed last.
    version: u32,
}

impl Used {
    fn is_idle(&self) -> bool {
        !self.is_active(false) && !self.is_active(true)
    }

    fn is_active(&self, tx: bool) -> bool {
        let side = usize::from(tx);
        !self.lists[side].is_empty() || !self.ether_types[side].is_empty()
    }
}

/// What holds for all lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds by [`session::Timeout`].
    pub timeouts: [u32; 3],
    /// Sessions at most.
    pub sessions: u32,
    /// Whether a session is looked at again when lists have changed.
    pub reclassify: bool,
    /// Whether later fragments are in no rule that looks at ports.
    pub ported_fragments: bool,
    /// Whether packets are counted by rule.
    pub counters: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timeouts: TIMEOUTS, sessions: SESSIONS_MAX, reclassify: false, ported_fragments: false, counters: true }
    }
}

/// The plugin's state on the main thread.
pub struct Acls {
    lists: BTreeMap<u32, List>,
    used: BTreeMap<u32, Used>,
    settings: Settings,
    version: u32,
    sessions: Option<Arc<Sessions>>,
    /// The shard that is swept next.
    swept: usize,
    published: Published<View>,
}

impl PluginState for Acls {
    const OFF: &'static str = "the plugin of access lists is off";
}

impl Acls {
    /// Lists by number.
    pub fn lists(&self) -> impl Iterator<Item = (u32, &List)> {
        self.lists.iter().map(|(number, list)| (*number, list))
    }

    /// A list.
    ///
    /// # Errors
    /// There is none.
    pub fn list(&self, number: u32) -> Result<&List, OpError> {
        self.lists.get(&number).ok_or_else(|| no_list(number))
    }

    /// Interfaces that use lists.
    pub fn used(&self) -> impl Iterator<Item = (IfIndex, &Used)> {
        self.used.iter().map(|(interface, used)| (IfIndex(*interface), used))
    }

    /// How an interface uses lists.
    pub fn used_by(&self, interface: IfIndex) -> Used {
        self.used.get(&interface.0).cloned().unwrap_or_default()
    }

    /// Interfaces that use a list for what comes in, or what leaves.
    pub fn users(&self, number: u32, tx: bool) -> Vec<IfIndex> {
        self.used().filter(|(_, used)| used.lists[usize::from(tx)].contains(&number)).map(|(interface, _)| interface).collect()
    }

    /// What holds for all lists.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The table of sessions, where a rule may begin some.
    pub fn sessions(&self) -> Option<&Sessions> {
        self.sessions.as_deref()
    }

    /// Bytes that the structures of all policies take.
    pub fn memory_bytes(&self) -> usize {
        let view = self.published.get();
        let sides = self.used().filter_map(|(interface, _)| view.get(interface)).flat_map(|bound| &bound.sides);
        let policies: HashMap<*const Policy, usize> =
            sides.filter_map(|side| side.policy.as_ref()).map(|policy| (Arc::as_ptr(policy), policy.memory_bytes())).collect();
        policies.values().sum()
    }

    /// Shows sessions that are not over.
    pub fn each_session(&self, router: &Router, f: impl FnMut(Shown)) {
        let view = self.published.get();
        let since = |interface: u32, value: u32| is_stale(&view, interface, value);
        if let Some(sessions) = &self.sessions {
            sessions.each(session::ticks(router.graph.clock().timer_now()), &since, f);
        }
    }

    /// The policy of some lists: that of an interface which has the same, or a new one.
    fn policy(&self, view: &View, numbers: &[u32], made: &mut HashMap<Vec<u32>, Arc<Policy>>) -> Result<Arc<Policy>, OpError> {
        if let Some(policy) = made.get(numbers) {
            return Ok(policy.clone());
        }
        let same = self
            .used()
            .flat_map(|(interface, used)| used.lists.iter().enumerate().map(move |(side, lists)| (interface, side, lists)));
        let same = same
            .filter(|(.., lists)| *lists == numbers)
            .find_map(|(interface, side, _)| view.get(interface)?.sides[side].policy.clone());
        if let Some(policy) = same {
            return Ok(policy);
        }
        let lists = numbers.iter().map(|number| {
            let list = self.list(*number)?;
            Ok(ListOf { number: *number, rules: &list.rules, counters: list.counters.as_ref() })
        });
        let lists = lists.collect::<Result<Vec<_>, OpError>>()?;
        let policy = Arc::new(Policy::new(&lists).map_err(|_| no_memory())?);
        made.insert(numbers.to_vec(), policy.clone());
        Ok(policy)
    }
}

/// Whether sessions of an interface are over for what was configured.
fn is_stale(view: &View, interface: u32, value: u32) -> bool {
    view.get(IfIndex(interface)).is_none_or(|bound| !bound.stateful || nodes::is_stale(value, bound.since))
}

fn no_memory() -> OpError {
    OpError::new(retval::TABLE_TOO_BIG, "no memory for the access lists")
}

fn no_list(number: u32) -> OpError {
    OpError::new(retval::NO_SUCH_ENTRY, format!("there is no access list {number}")).key("acl").value(number)
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published = Published::new(View::default());
    nodes::declare(router, &published)?;
    let (lists, used) = Default::default();
    router.add_part(Acls { lists, used, settings: Settings::default(), version: 1, sessions: None, swept: 0, published });
    router.add_process(CLEANER, clean);
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = *event {
            forget(router, index);
        }
    });
    Ok(())
}

/// Removes sessions that are over, a shard at a time.
fn clean(router: &mut Router, now: u64) -> u64 {
    let Ok(state) = router.state_mut::<Acls>() else { return now + HOUR };
    let Some(sessions) = state.sessions.clone() else { return now + HOUR };
    if sessions.is_empty() {
        return now + NOTHING;
    }
    let shards = sessions.shards();
    let view = state.published.get();
    sessions.sweep(state.swept, session::ticks(now), &|interface, value| is_stale(&view, interface, value));
    state.swept = (state.swept + 1) % shards;
    now + ROUND / shards as u64
}

/// Publishes what changed: the interfaces named, with policies built anew where `fresh`. Nothing has changed where it fails.
fn publish(router: &mut Router, changed: &[(IfIndex, Used)], fresh: bool) -> Result<(), OpError> {
    let links: Vec<u32> = changed.iter().map(|(interface, _)| link_header(router, *interface)).collect();
    let domain = router.graph.domain().clone();
    let state = router.state_mut::<Acls>()?;
    let mut view = View::clone(&state.published.get());
    let (mut made, old) = (HashMap::new(), if fresh { View::default() } else { view.clone() });
    let mut bounds = Vec::new();
    for ((interface, used), link) in changed.iter().zip(links) {
        let mut sides: [Side; 2] = Default::default();
        for (side, of) in sides.iter_mut().enumerate() {
            if !used.lists[side].is_empty() {
                of.policy = Some(state.policy(&old, &used.lists[side], &mut made)?);
            }
            of.ether_types = Some(&used.ether_types[side]).filter(|types| !types.is_empty()).map(|types| types.as_slice().into());
        }
        let stateful = sides.iter().any(|side| side.policy.as_ref().is_some_and(|policy| policy.reflects));
        let bound = Bound { sides, stateful, since: used.since, version: used.version, link };
        bounds.push((*interface, Some(Arc::new(bound)).filter(|_| !used.is_idle())));
    }
    let stateful = bounds.iter().any(|(_, bound)| bound.as_ref().is_some_and(|bound| bound.stateful));
    let mut begun = false;
    if stateful && state.sessions.is_none() {
        let Settings { sessions, timeouts, .. } = state.settings;
        let sessions = Sessions::new(sessions, timeouts, &domain).map_err(|_| no_memory())?;
        (state.sessions, begun) = (Some(Arc::new(sessions)), true);
    }
    for (interface, bound) in bounds {
        *view.interfaces.get_mut(interface.0 as usize) = bound;
    }
    view.sessions.clone_from(&state.sessions);
    (view.reclassify, view.ported_fragments) = (state.settings.reclassify, state.settings.ported_fragments);
    view.version = state.version;
    state.published.publish(view);
    if begun {
        router.wake_process(CLEANER, 0);
    }
    Ok(())
}

/// Makes a list, with the lowest free number where none is given, or gives the list of that number other rules; gives its number.
///
/// # Errors
/// Rules that cannot be, no room, no list of that number (`must_be`).
pub fn add_replace(router: &mut Router, number: Option<u32>, tag: &str, rules: Vec<Rule>, must_be: bool) -> Result<u32, OpError> {
    check(tag, &rules)?;
    let state = router.state::<Acls>()?;
    if let (Some(number), true) = (number, must_be) {
        state.list(number)?;
    }
    let number = number.or_else(|| (0..LISTS_MAX).find(|number| !state.lists.contains_key(number)));
    let full = || OpError::new(retval::LIMIT_EXCEEDED, format!("there are at most {LISTS_MAX} access lists")).key("index");
    let number = number.filter(|number| *number < LISTS_MAX).ok_or_else(full)?;
    let counted = state.settings.counters;
    let counters = counters(router, number, if counted { rules.len() } else { 0 });
    let state = router.state_mut::<Acls>()?;
    let before = state.lists.insert(number, List { tag: tag.to_owned(), rules, counters });
    let changed = change(state, |used| used.lists.iter().flatten().any(|list| *list == number));
    if changed.is_empty() {
        return Ok(number);
    }
    let done = publish(router, &changed, true);
    let state = router.state_mut::<Acls>()?;
    match done {
        Ok(()) => keep(state, changed),
        Err(error) => {
            match before {
                Some(before) => state.lists.insert(number, before),
                None => state.lists.remove(&number),
            };
            return Err(error);
        }
    }
    Ok(number)
}

/// Interfaces of which something changes, as they are in the next version.
fn change(state: &mut Acls, concerns: impl Fn(&Used) -> bool) -> Vec<(IfIndex, Used)> {
    state.version += 1;
    let version = state.version;
    let changed = state.used.iter().filter(|(_, used)| concerns(used));
    changed.map(|(interface, used)| (IfIndex(*interface), Used { version, ..used.clone() })).collect()
}

fn keep(state: &mut Acls, changed: Vec<(IfIndex, Used)>) {
    for (interface, used) in changed {
        if used.is_idle() {
            state.used.remove(&interface.0);
        } else {
            state.used.insert(interface.0, used);
        }
    }
}

/// Counters of a list, anew: `/acl/<number>/matches`, as in VPP. None for a list that is not counted.
fn counters(router: &Router, number: u32, rules: usize) -> Option<Arc<CombinedCounters>> {
    let (stats, name) = (router.graph.stats(), format!("/acl/{number}/matches"));
    stats.remove(&name);
    let rules = u32::try_from(rules).ok().filter(|rules| *rules > 0)?;
    let counters = stats.combined(&name, rules);
    counters.set_len(rules);
    Some(counters)
}

/// Whether rules can be.
///
/// # Errors
/// The first that cannot.
fn check(tag: &str, rules: &[Rule]) -> Result<(), OpError> {
    let wrong = |key: &'static str, text: String| Err(OpError::new(retval::INVALID_VALUE, text).key(key));
    if tag.len() > TAG_MAX || tag.contains(|c: char| c.is_control()) {
        return wrong("tag", format!("a tag has at most {TAG_MAX} bytes, and no control characters"));
    }
    if rules.is_empty() || rules.len() > RULES_MAX {
        return wrong("rules", format!("an access list has 1 to {RULES_MAX} rules"));
    }
    for (at, rule) in rules.iter().enumerate() {
        if std::mem::discriminant(&rule.src) != std::mem::discriminant(&rule.dst) {
            return wrong("rules", format!("rule {at}: source and destination are of two families"));
        }
        for (what, ports) in [("sport", rule.sport), ("dport", rule.dport)] {
            if ports.first > ports.last {
                return wrong("rules", format!("rule {at}: {what} {}-{} has its last one first", ports.first, ports.last));
            }
        }
        let has_ports = rule.sport != Default::default() || rule.dport != Default::default();
        if rule.proto == 0 && (has_ports || rule.tcp_flags.mask != 0) {
            return wrong("rules", format!("rule {at}: ports and TCP flags need a protocol"));
        }
    }
    Ok(())
}

/// Deletes a list.
///
/// # Errors
/// There is none, or an interface uses it.
pub fn delete(router: &mut Router, number: u32) -> Result<(), OpError> {
    let state = router.state::<Acls>()?;
    state.list(number)?;
    for (tx, code) in [(false, retval::ACL_IN_USE_INBOUND), (true, retval::ACL_IN_USE_OUTBOUND)] {
        if let Some(user) = state.users(number, tx).first() {
            let direction = if tx { "output" } else { "input" };
            let text = format!("access list {number} is in use by the {direction} of {}", router.interfaces.name(*user));
            return Err(OpError::new(code, text).key("acl").value(number));
        }
    }
    router.graph.stats().remove(&format!("/acl/{number}/matches"));
    router.state_mut::<Acls>()?.lists.remove(&number);
    Ok(())
}

/// Sets how an interface uses lists and EtherTypes.
///
/// # Errors
/// No such list, too many, one twice in a direction, or the graph's; nothing has changed then.
pub fn set(router: &mut Router, interface: IfIndex, lists: [Vec<u32>; 2], ether_types: [Vec<u16>; 2]) -> Result<(), OpError> {
    router.interfaces.expect(interface).map_err(OpError::from)?;
    let state = router.state_mut::<Acls>()?;
    for list in lists.iter().flatten() {
        state.list(*list)?;
    }
    if lists.iter().map(Vec::len).sum::<usize>() > USED_MAX || ether_types.iter().map(Vec::len).sum::<usize>() > USED_MAX {
        let text = format!("an interface has at most {USED_MAX} access lists or EtherTypes");
        return Err(OpError::new(retval::LIMIT_EXCEEDED, text).key("acl"));
    }
    for (direction, lists) in ["input", "output"].iter().zip(&lists) {
        let twice = lists.iter().enumerate().find(|(at, list)| lists[..*at].contains(list));
        if let Some((_, list)) = twice {
            let text = format!("access list {list} is used for {direction} already");
            return Err(OpError::new(retval::ENTRY_ALREADY_EXISTS, text).key("acl").value(*list));
        }
    }
    let before = state.used_by(interface);
    if (&before.lists, &before.ether_types) == (&lists, &ether_types) {
        return Ok(());
    }
    state.version += 1;
    // Sessions of an interface that had no lists are of another time.
    let since = if before.is_idle() { state.version } else { before.since };
    let used = Used { lists, ether_types, since, version: state.version };
    let changed = [(interface, used.clone())];
    publish(router, &changed, false)?;
    for tx in [false, true] {
        if before.is_active(tx) != used.is_active(tx)
            && let Err(error) = switch(router, interface, tx, used.is_active(tx))
        {
            // The features are declared, and what was switched can be switched back.
            let _ = switch(router, interface, tx, before.is_active(tx));
            let _ = publish(router, &[(interface, before)], false);
            return Err(error);
        }
    }
    keep(router.state_mut::<Acls>()?, changed.into());
    Ok(())
}

fn switch(router: &mut Router, interface: IfIndex, tx: bool, on: bool) -> Result<(), OpError> {
    for six in [false, true] {
        let (arc, node) = nodes::feature(six, tx);
        router.graph.set_feature(arc, node, interface, on).map_err(|error| graph_error(&error))?;
    }
    router.set_l2_filter(interface, tx, nodes::filter(tx), on).map_err(OpError::from)
}

fn link_header(router: &Router, interface: IfIndex) -> u32 {
    router.interfaces.get(interface).map_or(0, |of| match of.link_header_len() {
        0 => 0,
        header => header + TAG * of.tags().len() as u32,
    })
}

/// Changes what holds for all lists. Another number of sessions ends those that there are.
///
/// # Errors
/// A timeout or number that cannot be; no memory.
pub fn configure(router: &mut Router, settings: Settings) -> Result<(), OpError> {
    let domain = router.graph.domain().clone();
    let state = router.state_mut::<Acls>()?;
    let before = state.settings;
    if settings.timeouts.contains(&0) {
        return Err(OpError::new(retval::INVALID_VALUE, "a timeout is at least a second").key("timeout"));
    }
    if !(1..=SESSIONS_LIMIT).contains(&settings.sessions) {
        let text = format!("expected 1 to {SESSIONS_LIMIT} sessions");
        return Err(OpError::new(retval::INVALID_VALUE, text).key("max-entries"));
    }
    if settings.sessions != before.sessions && state.sessions.is_some() {
        let table = Sessions::new(settings.sessions, settings.timeouts, &domain).map_err(|_| no_memory())?;
        (state.sessions, state.swept) = (Some(Arc::new(table)), 0);
    }
    if let Some(sessions) = &state.sessions {
        sessions.set_timeouts(settings.timeouts);
    }
    state.settings = settings;
    if settings.counters == before.counters {
        return publish(router, &[], false);
    }
    let sizes: Vec<(u32, usize)> = state.lists().map(|(number, list)| (number, list.rules.len())).collect();
    for (number, rules) in sizes {
        let counters = counters(router, number, if settings.counters { rules } else { 0 });
        if let Some(list) = router.state_mut::<Acls>()?.lists.get_mut(&number) {
            list.counters = counters;
        }
    }
    let state = router.state_mut::<Acls>()?;
    let all: Vec<(IfIndex, Used)> = state.used().map(|(interface, used)| (interface, used.clone())).collect();
    publish(router, &all, true)
}

/// Ends all sessions, or those of an interface.
///
/// # Errors
/// The plugin is off.
pub fn clear_sessions(router: &mut Router, interface: Option<IfIndex>) -> Result<(), OpError> {
    let state = router.state_mut::<Acls>()?;
    state.version += 1;
    let version = state.version;
    let all = state.used().filter(|(one, _)| interface.is_none_or(|interface| interface == *one));
    let changed: Vec<(IfIndex, Used)> = all.map(|(one, used)| (one, Used { since: version, ..used.clone() })).collect();
    publish(router, &changed, false)?;
    keep(router.state_mut::<Acls>()?, changed);
    Ok(())
}

/// An interface goes.
fn forget(router: &mut Router, interface: IfIndex) {
    let Ok(state) = router.state_mut::<Acls>() else { return };
    let Some(used) = state.used.remove(&interface.0) else { return };
    for tx in [false, true] {
        if used.is_active(tx) {
            // The features are declared, so that this cannot fail.
            let _ = switch(router, interface, tx, false);
        }
    }
    let _ = publish(router, &[(interface, Used::default())], false);
}
