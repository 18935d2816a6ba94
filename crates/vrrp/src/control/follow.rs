//! What follows from the state of interfaces and of virtual routers.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_net::fib::{Hop, Path, Source};
use quiver_net::ip::FamilyId;
use quiver_net::nd::AddressState;
use quiver_net::{IfEvent, Router};
use quiver_wire::IpPrefix;
use quiver_wire::ipv6::address::{is_link_local, solicited_node};

use super::{Configured, Vrrp, change, is_own};
use crate::machine::State;
use crate::packet::virtual_mac;
use crate::thread::Key;

/// The address that advertisements of a virtual router have as source: the interface's first one that is not virtual, of IPv6 its
/// link-local one.
fn source(router: &Router, key: &Key, configured: &Configured) -> Option<IpAddr> {
    if !router.is_running(key.interface) {
        return None;
    }
    let own = router.interfaces.get(key.interface)?.addresses.iter().map(|(address, _)| *address);
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => key.family == FamilyId::V4,
        IpAddr::V6(a) => {
            key.family == FamilyId::V6
                && is_link_local(a.to_bits())
                && router.address_state(key.interface, *a) == AddressState::Preferred
        }
    };
    let own: Vec<IpAddr> = own.filter(usable).collect();
    own.iter().find(|address| !configured.settings.addresses.contains(address)).or(own.first()).copied()
}

/// Tells a virtual router's thread what its interface is like now.
pub(super) fn refresh(router: &mut Router, key: &Key) {
    let done = router.with_state::<Vrrp, _>(|router, vrrp| {
        let Some(configured) = vrrp.routers.get(key) else { return Ok(()) };
        let source = source(router, key, configured);
        let station =
            router.station(key.interface, virtual_mac(key.family, key.vr_id), &configured.settings.addresses).map(Arc::new);
        let down = |(interface, _): &(&IfIndex, &u8)| !router.is_running(**interface);
        let decrement: u32 = configured.tracked.iter().filter(down).map(|(_, decrement)| u32::from(*decrement)).sum();
        let (serial, owner, now) = (configured.serial, configured.owner, router.graph.clock().now());
        if let Some(configured) = vrrp.routers.get_mut(key) {
            configured.source = source;
            configured.station = station.clone();
        }
        vrrp.on(router, owner, move |routers| {
            if let Some(entry) = routers.get_mut(serial) {
                entry.station = station;
                entry.machine.set_decrement(decrement, now);
                entry.machine.set_source(source, now);
            }
            routers.settle(serial);
        });
        vrrp.publish(router);
        Ok(())
    });
    if let Err(error) = done {
        tracing::warn!(target: "vrrp", "{error}");
    }
    router.wake_process(crate::process::NAME, 0);
}

/// Looks whether interfaces of virtual routers that cannot send have a usable address by now; whether some have to be looked at again.
pub(crate) fn look(router: &mut Router) -> bool {
    let Ok(vrrp) = router.state::<Vrrp>() else { return false };
    let waits = |(key, configured): &(&Key, &Configured)| {
        configured.started && configured.source.is_none() && key.family == FamilyId::V6 && router.is_running(key.interface)
    };
    let ready = |(key, configured): &(&Key, &Configured)| source(router, key, configured).is_some();
    let (ready, waiting): (Vec<_>, Vec<_>) = vrrp.routers().filter(waits).partition(ready);
    let (ready, again): (Vec<Key>, bool) = (ready.into_iter().map(|(key, _)| *key).collect(), !waiting.is_empty());
    ready.iter().for_each(|key| refresh(router, key));
    again
}

/// Packets to the addresses of a virtual router are received here while this router is its master, and no longer after that.
pub(crate) fn follow(router: &mut Router, key: &Key) {
    let Ok(vrrp) = router.state::<Vrrp>() else { return };
    let Some((configured, interface)) = vrrp.routers.get(key).zip(router.interfaces.get(key.interface)) else { return };
    let table = if key.family == FamilyId::V4 { interface.tables.0 } else { interface.tables.1 };
    let wanted: Vec<(u32, IpAddr)> = match configured.state {
        State::Master => {
            let addresses = configured.settings.addresses.iter();
            addresses.filter(|address| !is_own(router, key.interface, **address)).map(|address| (table, *address)).collect()
        }
        _ => Vec::new(),
    };
    let before = configured.received.clone();
    let gone: Vec<_> = before.iter().filter(|entry| !wanted.contains(entry)).copied().collect();
    give_back(router, key, &gone);
    let mut received: Vec<_> = before.iter().filter(|entry| wanted.contains(entry)).copied().collect();
    for (table, address) in wanted.iter().filter(|entry| !before.contains(entry)) {
        let added = match address {
            IpAddr::V6(a) if is_link_local(a.to_bits()) => router.receive_link_local(key.interface, *a, true),
            _ => router.add_route(*table, IpPrefix::host(*address), Source::Plugin, vec![Path::new(Hop::Receive)]),
        };
        match added {
            Ok(()) => received.push((*table, *address)),
            Err(error) => tracing::warn!(target: "vrrp", "{address} is not received: {error}"),
        }
    }
    let kept =
        router.with_state::<Vrrp, _>(|_, vrrp| Ok(vrrp.routers.get_mut(key).map(|configured| configured.received = received)));
    debug_assert!(kept.is_ok());
}

/// Packets to these addresses are received here no longer.
pub(super) fn give_back(router: &mut Router, key: &Key, received: &[(u32, IpAddr)]) {
    for (table, address) in received {
        let removed = match address {
            // Meanwhile it may have become the interface's own.
            IpAddr::V6(a) if is_link_local(a.to_bits()) => match is_own(router, key.interface, *address) {
                true => Ok(()),
                false => router.receive_link_local(key.interface, *a, false),
            },
            _ => router.remove_route(*table, IpPrefix::host(*address), Source::Plugin, Some(&[Path::new(Hop::Receive)])),
        };
        if let Err(error) = removed {
            tracing::debug!(target: "vrrp", "{address}: {error}");
        }
    }
}

/// Listens to what happens to interfaces.
pub(super) fn on_interface(router: &mut Router, event: &IfEvent) {
    let Ok(vrrp) = router.state::<Vrrp>() else { return };
    if vrrp.routers.is_empty() {
        return;
    }
    match *event {
        IfEvent::Deleted(index) => forget(router, index),
        IfEvent::Admin(index, _) | IfEvent::Link(index, _) | IfEvent::Mac(index) | IfEvent::Address(index, ..) => {
            for key in concerned(router, index) {
                refresh(router, &key);
                follow(router, &key);
            }
        }
        IfEvent::Table(index, _) => concerned(router, index).iter().for_each(|key| follow(router, key)),
        _ => {}
    }
}

/// Has an interface listen to the group of advertisements and, so that solicitations arrive, to those of the virtual addresses (RFC
/// 9568, 6.4); a switch that snoops keeps others away.
pub(super) fn listen(router: &mut Router, interface: IfIndex, family: FamilyId) {
    let Ok(vrrp) = router.state::<Vrrp>() else { return };
    let mut groups = BTreeSet::new();
    for (_, Configured { settings, .. }) in vrrp.routers().filter(|(key, _)| (key.interface, key.family) == (interface, family)) {
        if !settings.unicast {
            groups.insert(crate::packet::group(family));
        }
        for address in &settings.addresses {
            if let IpAddr::V6(address) = address {
                groups.insert(solicited_node(*address).into());
            }
        }
    }
    router.want_groups(interface, family, "vrrp", &groups);
}

/// Virtual routers that are on an interface or on its sub-interfaces, or track one of these.
fn concerned(router: &Router, index: IfIndex) -> Vec<Key> {
    let Ok(vrrp) = router.state::<Vrrp>() else { return Vec::new() };
    let on = |interface: IfIndex| {
        interface == index || router.interfaces.get(interface).is_some_and(|interface| interface.parent == index)
    };
    let is = |(key, configured): &(&Key, &Configured)| on(key.interface) || configured.tracked.keys().any(|tracked| on(*tracked));
    vrrp.routers().filter(is).map(|(key, _)| *key).collect()
}

/// An interface goes.
fn forget(router: &mut Router, index: IfIndex) {
    for key in concerned(router, index) {
        if key.interface == index {
            if let Err(error) = change::remove(router, &key) {
                tracing::warn!(target: "vrrp", "{error}");
            }
            continue;
        }
        let _ = router.with_state::<Vrrp, _>(|_, vrrp| {
            Ok(vrrp.routers.get_mut(&key).and_then(|configured| configured.tracked.remove(&index)))
        });
        refresh(router, &key);
    }
}
