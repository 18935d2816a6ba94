//! Policers and where they are used, on the main thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_command::operation::{OpError, retval};
use quiver_graph::stats::MAX_THREADS;
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::ip::FamilyId;
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router, WorkerEvent};

use crate::meter::Rates;
use crate::nodes::{self, Counters};
use crate::policer::{Action, Policer};
use crate::view::{Bound, Place, View};

/// Numbers of policers are below this: the space of a counter is that of all threads, and there are three.
pub const POLICERS_MAX: u32 = 4096;
/// Bytes of a name, as many as VPP's messages have room for.
pub const NAME_MAX: usize = 63;
/// Bytes of a VLAN tag.
const TAG: u32 = 4;
/// Both families.
const FAMILIES: [FamilyId; 2] = [FamilyId::V4, FamilyId::V6];

quiver_command::words! {
    /// How a burst is rounded.
    pub enum Round {
        /// To the next one.
        Closest = "closest",
        /// Upwards.
        Up = "up",
        /// Downwards.
        Down = "down",
    }
}

/// What a policer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rates and bursts.
    pub rates: Rates,
    /// Kept for VPP's clients: rates and bursts are exact here.
    pub round: Round,
    /// Whether the colour counts that packets have already.
    pub color_aware: bool,
    /// What happens to packets that conform, exceed, violate.
    pub actions: [Action; 3],
}

/// A policer.
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it does.
    pub config: Config,
    /// Number of the worker that it is bound to.
    pub worker: Option<u32>,
    /// What nodes have of it.
    pub policer: Arc<Policer>,
}

/// The plugin's state on the main thread.
pub struct Policers {
    entries: BTreeMap<u32, Entry>,
    names: BTreeMap<String, u32>,
    /// By whether packets leave, and by interface.
    applied: BTreeMap<(bool, u32), u32>,
    punts: [Option<u32>; 2],
    counters: Counters,
    published: Published<View>,
}

impl PluginState for Policers {
    const OFF: &'static str = "the plugin of policers is off";
}

impl Policers {
    /// Policers by number.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(index, entry)| (*index, entry))
    }

    /// A policer.
    ///
    /// # Errors
    /// There is none.
    pub fn entry(&self, index: u32) -> Result<&Entry, OpError> {
        self.entries.get(&index).ok_or_else(|| no_index(index))
    }

    /// The number of a policer.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<u32, OpError> {
        let none =
            || OpError::new(retval::NO_SUCH_ENTRY, format!("there is no policer `{name}'")).key("name").value(name.to_owned());
        self.names.get(name).copied().ok_or_else(none)
    }

    /// Where policers are used on interfaces: whether on packets that leave, the interface, the policer.
    pub fn applied(&self) -> impl Iterator<Item = (bool, IfIndex, u32)> {
        self.applied.iter().map(|((tx, interface), index)| (*tx, IfIndex(*interface), *index))
    }

    /// The policer of punted packets.
    pub fn punt(&self, family: FamilyId) -> Option<u32> {
        self.punts[family as usize]
    }

    /// Packets and bytes of a policer that conform, exceed and violate.
    pub fn counts(&self, index: u32) -> [(u64, u64); 3] {
        self.counters.each_ref().map(|counter| counter.sum(index))
    }

    fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut view = View::clone(&self.published.get());
        change(&mut view);
        self.published.publish(view);
    }
}

fn no_index(index: u32) -> OpError {
    OpError::new(retval::NO_SUCH_ENTRY, format!("there is no policer {index}")).key("index").value(index)
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published = Published::new(View::default());
    let counters =
        ["conform", "exceed", "violate"].map(|name| router.graph.stats().combined(&format!("/net/policer/{name}"), POLICERS_MAX));
    nodes::declare(router, &published, &counters)?;
    let (entries, names, applied) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    router.add_part(Policers { entries, names, applied, punts: [None; 2], counters, published });
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = *event {
            forget(router, index);
        }
    });
    router.listen_workers(|router, event| {
        if let WorkerEvent::Leaving(thread) = *event {
            move_away(router, thread);
        }
    });
    Ok(())
}

/// Makes a policer; gives its number, the lowest free one.
///
/// # Errors
/// The name is taken, rates that cannot be, no room.
pub fn add(router: &mut Router, name: &str, config: Config) -> Result<u32, OpError> {
    let wrong = |text: String| Err(OpError::new(retval::INVALID_VALUE, text).key("name").value(name.to_owned()));
    let limits = config.rates.limits(config.color_aware)?;
    let state = router.state_mut::<Policers>()?;
    if name.is_empty() || name.len() > NAME_MAX {
        return wrong(format!("a name has 1 to {NAME_MAX} bytes"));
    }
    if state.names.contains_key(name) {
        let text = format!("policer `{name}' exists already");
        return Err(OpError::new(retval::VALUE_EXIST, text).key("name").value(name.to_owned()));
    }
    let free = (0..POLICERS_MAX).find(|index| !state.entries.contains_key(index));
    let full = || OpError::new(retval::LIMIT_EXCEEDED, format!("there are at most {POLICERS_MAX} policers")).key("name");
    let index = free.ok_or_else(full)?;
    let policer = Arc::new(Policer::new(index, limits, config.actions));
    state.names.insert(name.to_owned(), index);
    state.entries.insert(index, Entry { name: name.to_owned(), config, worker: None, policer });
    clear(router, index)?;
    Ok(index)
}

/// Changes what a policer does: its buckets are full and its counters 0 then, as in VPP. It stays where it is used and bound.
///
/// # Errors
/// No such policer, rates that cannot be.
pub fn update(router: &mut Router, index: u32, config: Config) -> Result<(), OpError> {
    let limits = config.rates.limits(config.color_aware)?;
    let state = router.state_mut::<Policers>()?;
    let entry = state.entries.get_mut(&index).ok_or_else(|| no_index(index))?;
    let policer = Arc::new(Policer::new(index, limits, config.actions));
    policer.give(entry.policer.owner());
    (entry.config, entry.policer) = (config, policer);
    let (policer, mut view) = (entry.policer.clone(), View::clone(&state.published.get()));
    for (tx, interface, _) in state.applied().filter(|(.., used)| *used == index) {
        let place = if tx { Place::L2Out } else { Place::L2In };
        let Some(Bound { link, .. }) = view.get(place, interface).cloned() else { continue };
        view.set(tx, interface, Some(Bound { policer: policer.clone(), link }));
    }
    for family in FAMILIES.into_iter().filter(|family| state.punt(*family) == Some(index)) {
        view.set_punt(family, Some(policer.clone()));
    }
    state.published.publish(view);
    clear(router, index)
}

/// Zeroes a policer's counters, on each thread by itself; so none goes on with what was published before.
fn clear(router: &mut Router, index: u32) -> Result<(), OpError> {
    let counters = router.state::<Policers>()?.counters.clone();
    let running = router.graph.fleet().threads();
    for counter in &counters {
        counter.set_len(counter.len().max(index + 1));
        (0..MAX_THREADS).filter(|thread| !running.contains(thread)).for_each(|thread| counter.clear_index_thread(thread, index));
    }
    router.graph.fleet().each(move |worker| counters.iter().for_each(|counter| counter.clear_index_thread(worker.thread(), index)));
    Ok(())
}

/// Deletes a policer.
///
/// # Errors
/// No such policer, or it is in use.
pub fn delete(router: &mut Router, index: u32) -> Result<(), OpError> {
    let state = router.state::<Policers>()?;
    let name = state.entry(index)?.name.clone();
    let by_interface = state
        .applied()
        .find(|(.., used)| *used == index)
        .map(|(tx, interface, _)| format!("the {} of {}", if tx { "output" } else { "input" }, router.interfaces.name(interface)));
    let by_punt = || FAMILIES.iter().any(|family| state.punt(*family) == Some(index)).then(|| "punted packets".to_owned());
    if let Some(user) = by_interface.or_else(by_punt) {
        let text = format!("policer `{name}' is in use by {user}");
        return Err(OpError::new(retval::INSTANCE_IN_USE, text).key("name").value(name));
    }
    let state = router.state_mut::<Policers>()?;
    state.entries.remove(&index);
    state.names.remove(&name);
    Ok(())
}

/// Fills a policer's buckets.
///
/// # Errors
/// No such policer.
pub fn reset(router: &Router, index: u32) -> Result<(), OpError> {
    router.state::<Policers>()?.entry(index).map(|entry| entry.policer.fill())
}

/// Binds a policer to a worker, by its number from 0; or lets the worker have it that gets the next packet.
///
/// # Errors
/// No such policer or worker.
pub fn bind(router: &mut Router, index: u32, worker: Option<u32>) -> Result<(), OpError> {
    let threads = router.graph.fleet().worker_threads();
    router.state::<Policers>()?.entry(index)?;
    let thread = match worker {
        None => None,
        Some(worker) => Some(*threads.get(worker as usize).ok_or_else(|| {
            let text = format!("there is no worker {worker}; their numbers are below {}", threads.len());
            OpError::new(retval::INVALID_WORKER, text).key("worker").value(worker)
        })?),
    };
    let entry = router.state_mut::<Policers>()?.entries.get_mut(&index).ok_or_else(|| no_index(index))?;
    entry.worker = worker;
    entry.policer.give(thread);
    Ok(())
}

/// Polices what comes in by an interface, or what leaves (`tx`); or no longer. A policer takes the place of another one.
///
/// # Errors
/// No such policer, or it is not used there.
pub fn apply(router: &mut Router, index: u32, interface: IfIndex, tx: bool, on: bool) -> Result<(), OpError> {
    let link = router.interfaces.get(interface).map_or(0, |of| match of.link_header_len() {
        0 => 0,
        header => header + TAG * of.tags().len() as u32,
    });
    let state = router.state_mut::<Policers>()?;
    let entry = state.entry(index)?;
    let used = state.applied.get(&(tx, interface.0)).copied();
    if !on && used != Some(index) {
        let text = format!("policer `{}' is not used there", entry.name);
        return Err(OpError::new(retval::NO_SUCH_ENTRY, text).key("name"));
    }
    if on {
        let bound = Bound { policer: entry.policer.clone(), link };
        state.publish(|view| view.set(tx, interface, Some(bound)));
        state.applied.insert((tx, interface.0), index);
    }
    if on && used.is_some() {
        return Ok(());
    }
    let switched = switch(router, interface, tx, on);
    if !on || switched.is_err() {
        let state = router.state_mut::<Policers>()?;
        state.applied.remove(&(tx, interface.0));
        state.publish(|view| view.set(tx, interface, None));
    }
    switched
}

fn switch(router: &mut Router, interface: IfIndex, tx: bool, on: bool) -> Result<(), OpError> {
    for family in FAMILIES {
        let place = if tx { Place::Out(family) } else { Place::In(family) };
        let Some((arc, node)) = nodes::feature(place) else { continue };
        router.graph.set_feature(arc, node, interface, on).map_err(|error| graph_error(&error))?;
    }
    router.set_l2_filter(interface, tx, nodes::filter(tx), on).map_err(OpError::from)
}

/// Polices punted packets of a family, or (`None`) no longer.
///
/// # Errors
/// No such policer.
pub fn set_punt(router: &mut Router, family: FamilyId, index: Option<u32>) -> Result<(), OpError> {
    let state = router.state_mut::<Policers>()?;
    let policer = index.map(|index| state.entry(index).map(|entry| entry.policer.clone())).transpose()?;
    state.punts[family as usize] = index;
    let on = index.is_some();
    state.publish(|view| view.set_punt(family, policer));
    let Some((arc, node)) = nodes::feature(Place::Punt(family)) else { return Ok(()) };
    router.graph.set_feature(arc, node, IfIndex::LOCAL0, on).map(drop).map_err(|error| graph_error(&error))
}

/// An interface goes.
fn forget(router: &mut Router, interface: IfIndex) {
    for tx in [false, true] {
        let Ok(state) = router.state::<Policers>() else { return };
        let Some(index) = state.applied.get(&(tx, interface.0)).copied() else { continue };
        // The features are declared, so that this cannot fail.
        let _ = apply(router, index, interface, tx, false);
    }
}

/// A thread is about to leave: what it has goes to one that stays, and what nobody has too, so that the one that leaves does not take
/// it with its last packets. A policer that was bound to it is bound no longer.
fn move_away(router: &mut Router, leaving: usize) {
    let Some(stays) = router.staying_workers().first().copied() else { return };
    let workers = router.graph.fleet().worker_threads();
    let Ok(state) = router.state_mut::<Policers>() else { return };
    for entry in state.entries.values_mut() {
        let bound = entry.worker.and_then(|worker| workers.get(worker as usize).copied());
        if bound == Some(leaving) {
            entry.worker = None;
        }
        if entry.policer.owner().is_none_or(|owner| owner == leaving) {
            entry.policer.give(Some(stays));
        }
    }
}
