//! Which interfaces are mirrored where, on the main thread.

use std::collections::{BTreeMap, BTreeSet};

use quiver_command::operation::{OpError, retval};
use quiver_graph::{GraphError, IfIndex, Published};
use quiver_net::interface::Kind;
use quiver_net::ops::graph_error;
use quiver_net::{IfEvent, Interface, InterfaceError, PluginState, Router};

use crate::mirrors::{Leg, Mirrors, Place};
use crate::nodes;

/// Directions of a mirrored interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// What comes in.
    pub rx: bool,
    /// What leaves.
    pub tx: bool,
}

/// The plugin's state.
pub struct Span {
    /// Destinations by place and mirrored interface.
    mirrored: BTreeMap<(Place, u32), BTreeSet<u32>>,
    published: Vec<(Place, Published<Mirrors>)>,
}

impl PluginState for Span {
    const OFF: &'static str = "the plugin of SPAN is off";
}

impl Span {
    /// All mirrors of the layer: mirrored interface, destination, directions; in order.
    pub fn mirrors(&self, l2: bool) -> Vec<(IfIndex, IfIndex, Directions)> {
        let mut all: BTreeMap<(u32, u32), Directions> = BTreeMap::new();
        for ((place, from), to) in self.mirrored.iter().filter(|((place, _), _)| place.is_l2() == l2) {
            for to in to {
                let directions = all.entry((*from, *to)).or_default();
                *if place.is_tx() { &mut directions.tx } else { &mut directions.rx } = true;
            }
        }
        all.into_iter().map(|((from, to), directions)| (IfIndex(from), IfIndex(to), directions)).collect()
    }

    fn legs(&self, place: Place, from: IfIndex) -> usize {
        self.mirrored.get(&(place, from.0)).map_or(0, BTreeSet::len)
    }
}

/// Adds nodes and state.
///
/// # Errors
/// The graph's.
pub fn start(router: &mut Router) -> Result<(), GraphError> {
    let published: Vec<_> = Place::ALL.into_iter().map(|place| (place, Published::new(Mirrors::new()))).collect();
    nodes::declare(router, &published)?;
    router.add_part(Span { mirrored: BTreeMap::new(), published });
    router.listen(on_interface);
    Ok(())
}

fn wrong(interface: &Interface, why: &str) -> OpError {
    let text = format!("{} {why}", interface.name);
    OpError::new(retval::INVALID_INTERFACE, text).key("interface").value(&interface.name)
}

/// What cannot be mirrored, or be a destination.
fn check(router: &Router, from: IfIndex, to: Option<IfIndex>, l2: bool, directions: Directions) -> Result<(), OpError> {
    let source = router.interfaces.expect(from)?;
    if !l2 && directions.rx && matches!(source.kind, Kind::Sub(_)) {
        return Err(wrong(source, "is a sub-interface: its frames come in at its device; say `l2', or mirror the device"));
    }
    for index in [Some(from), to].into_iter().flatten() {
        let interface = router.interfaces.expect(index)?;
        if interface.kind == Kind::Local || !interface.has_link_layer() {
            return Err(wrong(interface, "has no Ethernet frames"));
        }
    }
    if to == Some(from) {
        return Err(wrong(source, "cannot be mirrored to itself"));
    }
    Ok(())
}

/// Mirrors these directions of an interface to a destination, and no others; without a destination, to none at all.
///
/// # Errors
/// No such interface, or one that cannot be mirrored or be a destination.
pub fn set(router: &mut Router, from: IfIndex, to: Option<IfIndex>, l2: bool, directions: Directions) -> Result<(), OpError> {
    let none = directions == Directions::default();
    if to.is_none() && !none {
        return Err(OpError::new(retval::INVALID_INTERFACE, "a mirror needs a destination").key("destination"));
    }
    router.interfaces.expect(from)?;
    if !none {
        check(router, from, to, l2, directions)?;
    }
    for (tx, on) in [(false, directions.rx), (true, directions.tx)] {
        change(router, Place::of(l2, tx), from, to, on)?;
    }
    Ok(())
}

/// Changes one place.
fn change(router: &mut Router, place: Place, from: IfIndex, to: Option<IfIndex>, on: bool) -> Result<(), OpError> {
    let state = router.state_mut::<Span>()?;
    let before = state.legs(place, from);
    let key = (place, from.0);
    match (to, on) {
        (Some(to), true) => drop(state.mirrored.entry(key).or_default().insert(to.0)),
        (Some(to), false) => {
            if let Some(legs) = state.mirrored.get_mut(&key) {
                legs.remove(&to.0);
            }
        }
        (None, _) => drop(state.mirrored.remove(&key)),
    }
    if state.legs(place, from) == 0 {
        state.mirrored.remove(&key);
    }
    let after = state.legs(place, from);
    publish(router, place)?;
    if (before > 0) == (after > 0) {
        return Ok(());
    }
    match place.arc() {
        Some(arc) => router.graph.set_feature(arc, place.node(), from, after > 0).map(drop).map_err(|error| graph_error(&error)),
        None => router.set_l2_filter(from, place.is_tx(), place.node(), after > 0).map_err(OpError::from),
    }
}

/// Publishes a place with the ways to its destinations as they are now.
fn publish(router: &mut Router, place: Place) -> Result<(), InterfaceError> {
    let Some(state) = router.part::<Span>() else { return Ok(()) };
    let mirrored: Vec<(u32, BTreeSet<u32>)> =
        state.mirrored.iter().filter(|((of, _), _)| *of == place).map(|((_, from), to)| (*from, to.clone())).collect();
    let node = router.graph.node(place.node()).ok_or_else(|| GraphError::NoSuchNode(place.node().into()))?;
    let mut all = Mirrors::new();
    for (from, to) in mirrored {
        for to in to.into_iter().map(IfIndex) {
            let output = if place.is_l2() { router.l2_output(to)? } else { router.interfaces.expect(to)?.output };
            let slot = router.graph.edge(node, output)?;
            all.entry(IfIndex(from)).or_default().push(Leg { interface: to, slot });
        }
    }
    if let Some(state) = router.part::<Span>() {
        state.published.iter().filter(|(of, _)| *of == place).for_each(|(_, published)| published.publish(all.clone()));
    }
    Ok(())
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Deleted(index) => forget(router, index),
        // The way to a destination's output may be another one.
        IfEvent::L2(index) => {
            for place in Place::ALL.into_iter().filter(|place| place.is_l2()) {
                let uses = |state: &Span| state.mirrored.iter().any(|((of, _), to)| *of == place && to.contains(&index.0));
                if router.part::<Span>().is_some_and(uses) {
                    // Its interfaces exist, or `forget` has taken them out.
                    let _ = publish(router, place);
                }
            }
        }
        _ => {}
    }
}

/// An interface goes: it is no longer mirrored, and no destination.
fn forget(router: &mut Router, index: IfIndex) {
    let Some(state) = router.part::<Span>() else { return };
    let of = |l2| state.mirrors(l2).into_iter().map(move |(from, to, _)| (l2, from, to));
    let gone: Vec<_> = of(false).chain(of(true)).filter(|(_, from, to)| [*from, *to].contains(&index)).collect();
    for (l2, from, to) in gone {
        let _ = set(router, from, Some(to), l2, Directions::default());
    }
}
