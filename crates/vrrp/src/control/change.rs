//! Changes of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::interface::L2Mode;
use quiver_net::ip::FamilyId;
use quiver_net::ops::graph_error;

use super::follow::{follow, listen, refresh};
use super::{ADDRESSES_MAX, Configured, PEERS_MAX, ROUTERS_MAX, Settings, TRACKED_MAX, Vrrp, is_own, unknown};
use crate::machine::{Machine, OWNER, State};
use crate::nodes::FEATURES;
use crate::packet::virtual_mac;
use crate::thread::{Entry, Key};

fn too_many(what: &str, most: usize) -> OpError {
    OpError::new(retval::LIMIT_EXCEEDED, format!("more than {most} {what}")).key("vrrp")
}

fn in_family(family: FamilyId, addresses: &[IpAddr]) -> Result<(), OpError> {
    match addresses.iter().find(|address| FamilyId::of(address) != family) {
        Some(other) => {
            Err(OpError::new(retval::INVALID_VALUE, format!("{other} is of the other family")).key("address").value(other))
        }
        None => Ok(()),
    }
}

fn check(router: &Router, key: &Key, settings: &Settings) -> Result<(), OpError> {
    let interface = router.interfaces.expect(key.interface)?;
    let refuse = |text: String| Err(OpError::new(retval::INVALID_INTERFACE, text).key("interface").value(&interface.name));
    if !interface.has_link_layer() || interface.mac.is_zero() {
        return refuse(format!("{} has no MAC addresses", interface.name));
    }
    if interface.l2 != L2Mode::L3 {
        return refuse(format!("{} is part of a bridge or cross-connect, where there are no virtual routers", interface.name));
    }
    let addresses = &settings.addresses;
    if addresses.is_empty() {
        return Err(OpError::new(retval::INVALID_SRC_ADDRESS, "a virtual router has at least one address").key("address"));
    }
    if addresses.len() > ADDRESSES_MAX {
        return Err(too_many("addresses", ADDRESSES_MAX));
    }
    in_family(key.family, addresses)?;
    let mut seen = BTreeSet::new();
    for address in addresses {
        let wrong = |code, text: String| Err(OpError::new(code, text).key("address").value(address));
        let is_host = match address {
            IpAddr::V4(a) => !quiver_wire::ipv4::is_martian_src(a.to_bits()),
            IpAddr::V6(a) => !(a.is_unspecified() || a.is_loopback() || a.is_multicast()),
        };
        if !is_host || !seen.insert(*address) {
            return wrong(retval::INVALID_SRC_ADDRESS, format!("{address} cannot be a virtual address, or not twice"));
        }
        match (settings.config.priority == OWNER, is_own(router, key.interface, *address)) {
            (true, false) => {
                let text = format!("priority 255 is for the interface's own addresses, and {} has no {address}", interface.name);
                return wrong(retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, text);
            }
            (false, true) => {
                let text = format!("{address} is {}'s own address: it takes priority 255", interface.name);
                return wrong(retval::INVALID_SRC_ADDRESS, text);
            }
            _ => {}
        }
        let of_another = |(other, configured): &(&Key, &Configured)| {
            *other != key && other.interface == key.interface && configured.settings.addresses.contains(address)
        };
        if let Some((other, _)) = router.state::<Vrrp>()?.routers().find(of_another) {
            return wrong(retval::ADDRESS_IN_USE, format!("virtual router {} has {address} already", other.vr_id));
        }
    }
    Ok(())
}

/// Switches the features of a family on where an interface has its first virtual router, off with its last.
fn switch(router: &mut Router, vrrp: &Vrrp, key: &Key) -> Result<(), OpError> {
    let on = vrrp.routers.keys().any(|other| (other.interface, other.family) == (key.interface, key.family));
    for (arc, node) in FEATURES[key.family as usize] {
        router.graph.set_feature(arc, node, key.interface, on).map_err(|error| graph_error(&error))?;
    }
    Ok(())
}

/// Adds a virtual router, which has to be started. Gives its number.
///
/// # Errors
/// It exists, or there are too many; an interface or addresses that cannot be.
pub fn add(router: &mut Router, key: Key, settings: Settings) -> Result<u32, OpError> {
    if router.state::<Vrrp>()?.routers.contains_key(&key) {
        let text = format!("virtual router {} is on {} already", key.vr_id, router.interfaces.name(key.interface));
        return Err(OpError::new(retval::ENTRY_ALREADY_EXISTS, text).key("vr_id").value(key.vr_id));
    }
    check(router, &key, &settings)?;
    let id = router.with_state::<Vrrp, _>(|router, vrrp| {
        if vrrp.routers.len() >= ROUTERS_MAX {
            return Err(too_many("virtual routers", ROUTERS_MAX));
        }
        let taken: BTreeSet<u32> = vrrp.routers.values().map(|configured| configured.id).collect();
        let id = (0..).find(|id| !taken.contains(id)).unwrap_or(u32::MAX);
        vrrp.serials = vrrp.serials.wrapping_add(1);
        let (serial, owner, master) = (vrrp.serials, vrrp.idlest(router), Arc::new(AtomicBool::new(false)));
        let addresses: Arc<[IpAddr]> = settings.addresses.clone().into();
        let mut entry = Entry::new(Machine::new(settings.config), key, serial, addresses, master.clone());
        entry.unicast = settings.unicast;
        let configured = Configured {
            id,
            settings,
            peers: Vec::new(),
            tracked: BTreeMap::new(),
            started: false,
            owner,
            state: State::Initialize,
            serial,
            master: master.clone(),
            station: None,
            source: None,
            received: Vec::new(),
        };
        vrrp.routers.insert(key, configured);
        if let Err(error) = switch(router, vrrp, &key) {
            vrrp.routers.remove(&key);
            return Err(error);
        }
        router.accept_mac(key.interface, virtual_mac(key.family, key.vr_id), master);
        vrrp.on(router, owner, move |routers| routers.insert(entry));
        Ok(id)
    })?;
    listen(router, key.interface, key.family);
    refresh(router, &key);
    Ok(id)
}

/// Changes a virtual router without a new election, unless it becomes or was the owner of its addresses. Gives its number.
///
/// # Errors
/// There is none; addresses that cannot be.
pub fn update(router: &mut Router, key: Key, settings: Settings) -> Result<u32, OpError> {
    let configured = router.state::<Vrrp>()?.routers.get(&key).ok_or_else(|| unknown(router, &key))?;
    if let Some(dec) =
        configured.tracked.values().find(|dec| **dec >= settings.config.priority || settings.config.priority == OWNER)
    {
        return Err(tracked_too_much(*dec, settings.config.priority));
    }
    check(router, &key, &settings)?;
    let id = router.with_state::<Vrrp, _>(|router, vrrp| {
        let configured = vrrp.routers.get_mut(&key).ok_or_else(|| unknown(router, &key))?;
        configured.settings = settings.clone();
        let (serial, owner, id, now) = (configured.serial, configured.owner, configured.id, router.graph.clock().now());
        vrrp.on(router, owner, move |routers| {
            if let Some(entry) = routers.get_mut(serial) {
                entry.addresses = settings.addresses.into();
                entry.unicast = settings.unicast;
                entry.machine.set_config(settings.config, now);
            }
            routers.settle(serial);
        });
        Ok(id)
    })?;
    listen(router, key.interface, key.family);
    refresh(router, &key);
    follow(router, &key);
    Ok(id)
}

/// Starts the protocol, or ends it; a master that ends says so.
///
/// # Errors
/// There is no such virtual router, or a unicast one has no peers.
pub fn set_started(router: &mut Router, key: &Key, start: bool) -> Result<(), OpError> {
    router.with_state::<Vrrp, _>(|router, vrrp| {
        let configured = vrrp.routers.get_mut(key).ok_or_else(|| unknown(router, key))?;
        if start && configured.settings.unicast && configured.peers.is_empty() {
            let error = OpError::new(retval::INIT_FAILED, "a unicast virtual router needs peers before it starts").key("vr_id");
            return Err(error.remedy("`vrrp peers' sets them"));
        }
        configured.started = start;
        let (serial, owner, now) = (configured.serial, configured.owner, router.graph.clock().now());
        vrrp.on(router, owner, move |routers| {
            if let Some(entry) = routers.get_mut(serial) {
                if start {
                    entry.machine.start(now);
                } else {
                    entry.machine.stop();
                }
            }
            routers.settle(serial);
        });
        Ok(())
    })?;
    router.wake_process(crate::process::NAME, 0);
    Ok(())
}

/// Removes a virtual router; a master says that it ends.
///
/// # Errors
/// There is no such virtual router.
pub fn remove(router: &mut Router, key: &Key) -> Result<(), OpError> {
    let configured = router.with_state::<Vrrp, _>(|router, vrrp| {
        let configured = vrrp.routers.remove(key).ok_or_else(|| unknown(router, key))?;
        router.refuse_mac(key.interface, virtual_mac(key.family, key.vr_id));
        let serial = configured.serial;
        vrrp.on(router, configured.owner, move |routers| {
            if let Some(entry) = routers.get_mut(serial) {
                entry.machine.stop();
                entry.leaving = true;
            }
            routers.settle(serial);
        });
        vrrp.publish(router);
        switch(router, vrrp, key)?;
        Ok(configured)
    })?;
    listen(router, key.interface, key.family);
    super::follow::give_back(router, key, &configured.received);
    for (_, lb) in configured.peers {
        router.release_next_hop(lb);
    }
    Ok(())
}

/// Sets the peers of a unicast virtual router.
///
/// # Errors
/// It is none, or runs; addresses that cannot be peers.
pub fn set_peers(router: &mut Router, key: &Key, peers: &[IpAddr]) -> Result<(), OpError> {
    in_family(key.family, peers)?;
    let configured = router.state::<Vrrp>()?.routers.get(key).ok_or_else(|| unknown(router, key))?;
    let refuse = |code, text: &str| Err(OpError::new(code, text).key("vr_id").value(key.vr_id));
    if !configured.settings.unicast {
        return refuse(retval::INVALID_ARGUMENT, "only a unicast virtual router has peers");
    }
    if configured.started && peers.is_empty() {
        return refuse(retval::INVALID_DST_ADDRESS, "a unicast virtual router that runs needs peers");
    }
    if peers.len() > PEERS_MAX {
        return Err(too_many("peers", PEERS_MAX));
    }
    let mut held: Vec<(IpAddr, u32)> = Vec::new();
    for peer in peers {
        match router.hold_next_hop(key.interface, *peer) {
            Ok(lb) => held.push((*peer, lb)),
            Err(error) => {
                for (_, lb) in held {
                    router.release_next_hop(lb);
                }
                return Err(OpError::new(retval::INVALID_DST_ADDRESS, error.to_string()).key("peer").value(peer));
            }
        }
    }
    let before = router.with_state::<Vrrp, _>(|router, vrrp| {
        let configured = vrrp.routers.get_mut(key).ok_or_else(|| unknown(router, key))?;
        let before = std::mem::replace(&mut configured.peers, held.clone());
        let (serial, owner) = (configured.serial, configured.owner);
        vrrp.on(router, owner, move |routers| {
            if let Some(entry) = routers.get_mut(serial) {
                entry.peers = held;
            }
        });
        vrrp.publish(router);
        Ok(before)
    })?;
    for (_, lb) in before {
        router.release_next_hop(lb);
    }
    Ok(())
}

fn tracked_too_much(decrement: u8, priority: u8) -> OpError {
    let text = match priority {
        OWNER => "the owner of the addresses (priority 255) tracks no interfaces".to_owned(),
        _ => format!("a tracked interface takes less than the priority, {priority}"),
    };
    OpError::new(retval::INVALID_VALUE, text).key("priority").value(decrement)
}

/// Has a virtual router track interfaces, or no longer.
///
/// # Errors
/// There is no such virtual router or interface; a decrement that leaves no priority.
pub fn set_tracked(router: &mut Router, key: &Key, interfaces: &[(IfIndex, u8)], track: bool) -> Result<(), OpError> {
    let configured = router.state::<Vrrp>()?.routers.get(key).ok_or_else(|| unknown(router, key))?;
    let mut tracked = configured.tracked.clone();
    let priority = configured.settings.config.priority;
    for (interface, decrement) in interfaces {
        router.interfaces.expect(*interface)?;
        if !track {
            if tracked.remove(interface).is_none() {
                let text = format!("{} is not tracked", router.interfaces.name(*interface));
                return Err(OpError::new(retval::NO_SUCH_ENTRY, text).key("track-index").value(interface.0));
            }
            continue;
        }
        if *decrement == 0 || *decrement >= priority || priority == OWNER {
            return Err(tracked_too_much(*decrement, priority));
        }
        tracked.insert(*interface, *decrement);
    }
    if tracked.len() > TRACKED_MAX {
        return Err(too_many("tracked interfaces", TRACKED_MAX));
    }
    router.with_state::<Vrrp, _>(|router, vrrp| {
        vrrp.routers.get_mut(key).ok_or_else(|| unknown(router, key))?.tracked = tracked;
        Ok(())
    })?;
    refresh(router, key);
    Ok(())
}

/// The program ends: masters say so, so that others take over at once.
pub(super) fn stop_all(router: &mut Router) {
    let keys: Vec<Key> = router.state::<Vrrp>().map(|vrrp| vrrp.routers.keys().copied().collect()).unwrap_or_default();
    for key in &keys {
        let _ = set_started(router, key, false);
    }
    if !keys.is_empty() {
        // Each thread goes through its nodes once more.
        router.graph.fleet().each(|worker| worker.step());
    }
}
