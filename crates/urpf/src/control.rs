//! Settings: which interfaces check what, and whose sources are accepted all the same.

use std::collections::{BTreeMap, BTreeSet};

use quiver_command::operation::{OpError, retval};
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::ip::{Family, FamilyId, V4, V6};
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, PluginState, Router};
use quiver_wire::IpPrefix;

use crate::nodes;
use crate::ops::{Direction, Mode};
use crate::table::{Check, Checks};

/// Who holds tables, in errors.
const HOLDER: &str = "checks of source addresses (uRPF)";

/// Which check is meant: the number of an interface, family, direction.
pub type Key = (u32, FamilyId, Direction);

/// How sources are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Strictly or loosely; [`Mode::Off`] is not kept.
    pub mode: Mode,
    /// Table in which sources are looked up, by its number, where it is not the interface's.
    pub table: Option<u32>,
}

/// The plugin's state on the main thread.
pub struct Urpf {
    settings: BTreeMap<Key, Setting>,
    accepted: BTreeSet<(u32, IpPrefix)>,
    published: (Published<Checks<V4>>, Published<Checks<V6>>),
}

impl PluginState for Urpf {
    const OFF: &'static str = "the plugin of checks of source addresses (uRPF) is off";
}

impl Urpf {
    /// Checks that are on, by interface.
    pub fn settings(&self) -> impl Iterator<Item = (Key, Setting)> {
        self.settings.iter().map(|(key, setting)| (*key, *setting))
    }

    /// Prefixes whose sources are accepted, with the numbers of their tables.
    pub fn accepted(&self) -> impl Iterator<Item = (u32, IpPrefix)> {
        self.accepted.iter().copied()
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published = (Published::new(Checks::default()), Published::new(Checks::default()));
    nodes::declare::<V4>(router, &router.egress4(), &published.0)?;
    nodes::declare::<V6>(router, &router.egress6(), &published.1)?;
    router.add_part(Urpf { settings: BTreeMap::new(), accepted: BTreeSet::new(), published });
    router.listen(|router, event| {
        if let IfEvent::Deleted(index) = *event {
            forget(router, index);
        }
    });
    Ok(())
}

/// Changes how an interface checks sources.
///
/// # Errors
/// No such table; nothing has changed.
pub fn set(router: &mut Router, interface: IfIndex, family: FamilyId, direction: Direction, new: Setting) -> Result<(), OpError> {
    let key = (interface.0, family, direction);
    let wanted = (new.mode != Mode::Off).then_some(new);
    let old = router.state::<Urpf>()?.settings.get(&key).copied();
    if wanted == old {
        return Ok(());
    }
    if let Some(table) = wanted.and_then(|setting| setting.table) {
        router.hold_table(family, table, HOLDER)?;
    }
    let state = router.state_mut::<Urpf>()?;
    match wanted {
        Some(setting) => drop(state.settings.insert(key, setting)),
        None => drop(state.settings.remove(&key)),
    }
    publish(router)?;
    // The new check is on before the old one goes: no packet passes unchecked.
    let done = switch(router, key, wanted, true)
        .and_then(|()| switch(router, key, old.filter(|old| wanted.is_none_or(|new| new.mode != old.mode)), false));
    if let Some(table) = old.and_then(|setting| setting.table) {
        router.release_table(family, table, HOLDER);
    }
    done.map_err(|error| graph_error(&error))
}

fn switch(router: &mut Router, key: Key, setting: Option<Setting>, on: bool) -> Result<(), GraphError> {
    let (interface, family, direction) = key;
    match setting.and_then(|setting| nodes::feature(family, direction, setting.mode)) {
        Some((arc, node)) => router.graph.set_feature(arc, node, IfIndex(interface), on).map(drop),
        None => Ok(()),
    }
}

/// Accepts the sources of a prefix under checks in a table, or no longer.
///
/// # Errors
/// No such table, or the prefix is not accepted.
pub fn set_accepted(router: &mut Router, table: u32, prefix: IpPrefix, accept: bool) -> Result<(), OpError> {
    let (family, entry) = (FamilyId::of(&prefix.addr()), (table, prefix));
    if router.state::<Urpf>()?.accepted.contains(&entry) == accept {
        let missing = || OpError::new(retval::NO_SUCH_ENTRY, format!("{prefix} is not accepted in table {table}")).key("prefix");
        return if accept { Ok(()) } else { Err(missing()) };
    }
    if accept {
        router.hold_table(family, table, HOLDER)?;
        router.state_mut::<Urpf>()?.accepted.insert(entry);
    } else {
        router.release_table(family, table, HOLDER);
        router.state_mut::<Urpf>()?.accepted.remove(&entry);
    }
    publish(router)
}

/// An interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    let Ok(state) = router.state_mut::<Urpf>() else { return };
    let gone: Vec<_> = state.settings().filter(|((interface, ..), _)| *interface == index.0).collect();
    for (key, setting) in &gone {
        let Ok(state) = router.state_mut::<Urpf>() else { return };
        state.settings.remove(key);
        // The feature is declared, so that this cannot fail.
        let _ = switch(router, *key, Some(*setting), false);
        if let Some(table) = setting.table {
            router.release_table(key.1, table, HOLDER);
        }
    }
    if !gone.is_empty() {
        let _ = publish(router);
    }
}

/// Has the nodes know what holds now.
fn publish(router: &Router) -> Result<(), OpError> {
    let state = router.state::<Urpf>()?;
    state.published.0.publish(checks(router, state));
    state.published.1.publish(checks(router, state));
    Ok(())
}

fn checks<F: Family>(router: &Router, state: &Urpf) -> Checks<F> {
    let mut all = Checks::default();
    for ((interface, family, direction), setting) in state.settings().filter(|((_, family, _), _)| *family == F::ID) {
        let index = IfIndex(interface);
        let tagged = |interface: &quiver_net::Interface| ETHERNET + TAG * interface.tags().len();
        let known = router.interfaces.get(index).filter(|interface| interface.has_link_layer());
        let fib = setting.table.and_then(|table| router.fib_of_table(family, table));
        all.set(direction, index, Check { fib, link_header: known.map_or(0, tagged) });
    }
    for (table, prefix) in state.accepted() {
        if let (Some(fib), Some(address)) = (router.fib_of_table(F::ID, table), F::number(prefix.addr())) {
            all.accept(fib, address, prefix.len());
        }
    }
    all
}

/// Bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;
/// Bytes of a VLAN tag.
const TAG: usize = 4;
