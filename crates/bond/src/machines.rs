//! The machines of LACP as main knows them: which thread has those of each bond, and what it is told.

use quiver_graph::IfIndex;
use quiver_net::{Router, WorkerEvent};
use quiver_wire::MacAddr;

use quiver_command::operation::OpError;
use quiver_net::ops::graph_error;

use crate::control::{Bonds, Machines, Member};
use crate::follow;
use crate::lacp::lag::{Kept, Lag};
use crate::lacp::thread::{Entry, Lags};
use crate::nodes::{LACP_OUTPUT, Outputs};

/// Name of the process that looks at members after a thread has said that they have changed.
pub(crate) const PROCESS: &str = "lacp-changes";

/// One call; says when to call next.
pub(crate) fn process(router: &mut Router, _now: u64) -> u64 {
    for bond in speaking(router) {
        follow::update(router, bond);
    }
    u64::MAX
}

/// Bonds with LACP.
pub(crate) fn speaking(router: &Router) -> Vec<IfIndex> {
    let Ok(state) = router.state::<Bonds>() else { return Vec::new() };
    state.iter().filter(|(_, bond)| bond.lacp.is_some()).map(|(index, _)| index).collect()
}

/// Runs `f` on the machines of a thread, there.
fn on_thread<R: Send + 'static>(
    router: &mut Router,
    thread: usize,
    f: impl FnOnce(&mut Lags, u64) -> R + Send + 'static,
) -> Option<R> {
    let shared = router.state::<Bonds>().ok()?.parts.threads.get(thread)?.clone();
    let now = router.graph.clock().now();
    router.graph.fleet().on(thread, move |_| f(&mut shared.lock(now), now))
}

/// The same for the machines of a bond.
fn on_bond<R: Send + 'static>(
    router: &mut Router,
    bond: IfIndex,
    f: impl FnOnce(&mut Entry, u64) -> R + Send + 'static,
) -> Option<R> {
    let owner = router.state::<Bonds>().ok()?.get(bond)?.lacp?.owner;
    on_thread(router, owner, move |lags, now| lags.change(bond, |entry| f(entry, now)))?
}

/// The thread with the fewest bonds.
fn idlest(router: &Router) -> usize {
    let Ok(state) = router.state::<Bonds>() else { return 0 };
    let load = |thread: &usize| state.iter().filter(|(_, bond)| bond.lacp.is_some_and(|lacp| lacp.owner == *thread)).count();
    router.staying_workers().into_iter().min_by_key(load).unwrap_or(0)
}

/// Gives a new bond machines.
pub(crate) fn begin(router: &mut Router, index: IfIndex, system: MacAddr) {
    let owner = idlest(router);
    let Some(bond) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(index)) else { return };
    bond.lacp = Some(Machines { owner, ready: 0 });
    // Each bond has a key of its own, and 0 is none.
    let key = (bond.id % u32::from(u16::MAX)) as u16 + 1;
    let entry = Entry::new(Lag::new(system, key), bond.masks.clone());
    on_thread(router, owner, move |lags, _| lags.insert(index, entry));
}

/// A bond goes.
pub(crate) fn end(router: &mut Router, index: IfIndex) {
    let Some(lacp) = router.state::<Bonds>().ok().and_then(|state| state.get(index)?.lacp) else { return };
    on_thread(router, lacp.owner, move |lags, _| drop(lags.remove(index)));
}

/// A member begins to speak; its link is still taken to be down.
pub(crate) fn add_member(router: &mut Router, bond: IfIndex, interface: IfIndex) -> Result<(), OpError> {
    let output = router.interfaces.expect(interface)?.output;
    let Some(member) = router.state::<Bonds>()?.member(interface).copied() else { return Ok(()) };
    if let Some(node) = router.graph.node(LACP_OUTPUT) {
        let slot = router.graph.edge(node, output).map_err(|error| graph_error(&error))?;
        change_outputs(router, |outputs| {
            outputs.insert(interface, slot);
        });
    }
    let Member { place, own_mac, config, .. } = member;
    on_bond(router, bond, move |entry, _| entry.add(place, interface, own_mac, config));
    Ok(())
}

/// A member falls silent.
pub(crate) fn remove_member(router: &mut Router, bond: IfIndex, member: &Member) {
    let (place, interface) = (member.place, member.interface);
    on_bond(router, bond, move |entry, now| entry.remove(place, now));
    change_outputs(router, |outputs| {
        outputs.remove(&interface);
    });
    if let Some(lacp) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(bond)?.lacp.as_mut()) {
        lacp.ready &= !(1 << place);
    }
}

fn change_outputs(router: &Router, change: impl FnOnce(&mut Outputs)) {
    let Ok(state) = router.state::<Bonds>() else { return };
    let mut outputs = Outputs::clone(&state.parts.outputs.get());
    change(&mut outputs);
    state.parts.outputs.publish(outputs);
}

/// Says whose links are up.
pub(crate) fn set_ready(router: &mut Router, bond: IfIndex, ready: u32) {
    let Some(lacp) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(bond)?.lacp.as_mut()) else { return };
    let changed = std::mem::replace(&mut lacp.ready, ready) ^ ready;
    if changed == 0 {
        return;
    }
    on_bond(router, bond, move |entry, now| {
        for place in (0..u32::BITS as u8).filter(|place| changed >> place & 1 != 0) {
            entry.lag.enable(place, ready >> place & 1 != 0, now);
        }
    });
}

/// The bond has another MAC address.
pub(crate) fn set_system(router: &mut Router, bond: IfIndex) {
    let Some(mac) = router.interfaces.get(bond).map(|interface| interface.mac) else { return };
    on_bond(router, bond, move |entry, now| entry.lag.set_system(mac, now));
}

/// The machines of a bond as they are now.
pub(crate) fn lag(router: &mut Router, bond: IfIndex) -> Option<Lag> {
    let owner = router.state::<Bonds>().ok()?.get(bond)?.lacp?.owner;
    on_thread(router, owner, move |lags, _| lags.get(bond).map(|entry| entry.lag.clone()))?
}

/// Has ports of a bond go on as those of another process; gives how many do.
pub(crate) fn adopt(router: &mut Router, bond: IfIndex, ports: Vec<(u8, Kept)>) -> u64 {
    on_bond(router, bond, move |entry, now| entry.lag.adopt(&ports, now)).unwrap_or(0)
}

/// Machines of a thread that leaves go on at others, with their timers as they are.
pub(crate) fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let WorkerEvent::Leaving(thread) = *event else { return };
    let entries = on_thread(router, thread, |lags, _| lags.take_all()).unwrap_or_default();
    for (index, entry) in entries {
        let owner = idlest(router);
        if let Some(lacp) = router.state_mut::<Bonds>().ok().and_then(|state| state.get_mut(index)?.lacp.as_mut()) {
            lacp.owner = owner;
            on_thread(router, owner, move |lags, _| lags.insert(index, entry));
        }
    }
    if let Ok(state) = router.state::<Bonds>() {
        state.publish_members();
    }
}
