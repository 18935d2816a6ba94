//! Duplicate address detection (RFC 4862, section 5.4): an address is tentative until nobody has said that it is taken.
//!
//! It starts when an address is added to an interface that is up, and again for all addresses when an interface comes up or
//! gets another MAC address. A duplicate is written to the log, its routes to this router are taken out, and it is tried
//! again when the link comes up next; or it is taken off the interface, where that is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::IfIndex;
use quiver_wire::ipv6::address::is_link_local;
use quiver_wire::{IpPrefix, MacAddr};

use super::PROCESS;
use super::message::probe;
use crate::Router;
use crate::fib::{Hop, Path, Source};
use crate::neighbor::state::SECOND;
use crate::neighbor::{NeighborEvent, is_running};

/// How far an IPv6 address of ours has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// It is not known yet whether somebody else has it.
    Tentative,
    /// In use.
    Preferred,
    /// Somebody else has it: not used.
    Duplicate,
}

/// How addresses are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DadConfig {
    /// How often it is asked whether somebody has the address (DupAddrDetectTransmits); 0: addresses are used at once.
    pub transmits: u8,
    /// Milliseconds between two questions, and from the last one until the address is used (RetransTimer).
    pub delay_ms: u16,
}

impl Default for DadConfig {
    fn default() -> Self {
        Self { transmits: 1, delay_ms: 1000 }
    }
}

/// An address and its timer.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub state: AddressState,
    sent: u8,
    due: Option<u64>,
}

type Key = (IfIndex, Ipv6Addr);

/// Nanoseconds.
const MILLISECOND: u64 = 1_000_000;
/// The first question about a link-local address waits so long, ns.
const LEAST_WAIT: u64 = SECOND / 4;
const MOST_WAIT: u64 = SECOND;
/// Checks made at a time.
const AT_ONCE: usize = 64;

/// All own addresses, and those among them whose timer runs.
#[derive(Default)]
pub(super) struct Addresses {
    all: BTreeMap<Key, Address>,
    timers: BTreeSet<(u64, Key)>,
}

impl Addresses {
    pub fn get(&self, key: &Key) -> Option<&Address> {
        self.all.get(key)
    }

    fn set(&mut self, key: Key, address: Address) {
        self.remove(&key);
        self.timers.extend(address.due.map(|due| (due, key)));
        self.all.insert(key, address);
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(due) = self.all.remove(key).and_then(|address| address.due) {
            self.timers.remove(&(due, *key));
        }
    }

    /// An interface is gone.
    pub fn forget(&mut self, interface: IfIndex) {
        let (first, last) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX));
        let keys: Vec<Key> = self.all.range((interface, first)..=(interface, last)).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    /// Whether some are being checked.
    pub fn are_checked(&self) -> bool {
        !self.timers.is_empty()
    }

    fn next_due(&self) -> Option<u64> {
        self.timers.first().map(|(due, _)| *due)
    }
}

impl Router {
    /// How addresses are checked.
    pub fn dad_config(&self) -> DadConfig {
        self.nd.dad
    }

    /// Sets how addresses that are added from now on are checked.
    pub fn set_dad_config(&mut self, config: DadConfig) {
        self.nd.dad = config;
    }

    /// Whether an address that somebody else has is taken off its interface, and how many were.
    pub fn dad_autoremove(&self) -> (bool, u64) {
        (self.nd.autoremove, self.nd.removed)
    }

    /// Takes such addresses off from now on, or leaves them where they are, unused. Taking them off has them checked.
    pub fn set_dad_autoremove(&mut self, on: bool) {
        self.nd.autoremove = on;
        if on && self.nd.dad.transmits == 0 {
            self.nd.dad.transmits = DadConfig::default().transmits;
        }
    }
}

/// Takes an address off that somebody else has. The link-local one that the router made itself stays, unused: without one there is
/// no IPv6 on the link (RFC 4862, 5.4.5).
fn take_off(router: &mut Router, interface: IfIndex, address: Ipv6Addr) {
    let known = |i: &crate::Interface| i.addresses.iter().find(|(own, _)| *own == IpAddr::V6(address)).map(|(_, len)| *len);
    let Some(len) = router.interfaces.get(interface).and_then(known) else { return };
    if is_link_local(address.to_bits()) {
        return;
    }
    let name = router.interfaces.name(interface);
    match router.remove_address(interface, address.into(), len) {
        Ok(()) => {
            router.nd.removed += 1;
            tracing::warn!(target: "ip6/dad", interface = %name, %address, "duplicate address {address}/{len} was taken off {name}");
        }
        Err(error) => tracing::error!(target: "ip6/dad", interface = %name, %address, "{address}/{len} stays on {name}: {error}"),
    }
}

/// Starts the check of an address, or of one that is checked already anew.
pub(super) fn begin(router: &mut Router, interface: IfIndex, address: Ipv6Addr) {
    let before = router.nd.addresses.get(&(interface, address)).map(|a| a.state);
    let running = is_running(router, interface);
    let now = router.graph.clock().timer_now();
    if before == Some(AddressState::Duplicate) {
        set_received(router, interface, address, true);
    }
    let checked = router.nd.dad.transmits > 0;
    let state = if checked { AddressState::Tentative } else { AddressState::Preferred };
    // Without a link there is nobody to ask; the check starts when it comes up.
    let due = (checked && running).then(|| now + wait(router, address));
    router.nd.addresses.set((interface, address), Address { state, sent: 0, due });
    if due.is_some() {
        super::api::tell_dad(router, interface, address, state, 0);
        router.wake_process(PROCESS, now);
    } else if !checked && running {
        router.publish_view(interface, false);
        router.announce(interface, address.into());
    }
}

/// How long the first question about an address waits, ns. Links come up together, when power does, and each has its link-local address
/// first: those wait for a random time (RFC 4862, 5.4.2; MAX_RTR_SOLICITATION_DELAY).
fn wait(router: &mut Router, address: Ipv6Addr) -> u64 {
    if is_link_local(address.to_bits()) { LEAST_WAIT + router.nd.random.below(MOST_WAIT - LEAST_WAIT) } else { 0 }
}

/// Sends what is due and lets through what nobody objected to; says when to be called next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    let DadConfig { transmits, delay_ms } = router.nd.dad;
    let due = router.nd.addresses.timers.range(..(now + 1, (IfIndex(0), Ipv6Addr::UNSPECIFIED)));
    let list: Vec<Key> = due.take(AT_ONCE).map(|(_, key)| *key).collect();
    for key in list {
        let Some(entry) = router.nd.addresses.get(&key).copied() else { continue };
        if entry.sent < transmits {
            router
                .nd
                .addresses
                .set(key, Address { sent: entry.sent + 1, due: Some(now + u64::from(delay_ms) * MILLISECOND), ..entry });
            if let Some(view) = router.neighbor_view(key.0) {
                router.send_frames(vec![(key.0, probe(&view, key.1))]);
            }
            super::api::tell_dad(router, key.0, key.1, entry.state, entry.sent + 1);
            continue;
        }
        router.nd.addresses.set(key, Address { state: AddressState::Preferred, due: None, ..entry });
        super::api::tell_dad(router, key.0, key.1, AddressState::Preferred, entry.sent);
        router.publish_view(key.0, false);
        if is_link_local(key.1.to_bits()) {
            router.tell_groups_again(key.0);
        }
        router.announce(key.0, key.1.into());
        super::advertise::reconsider(router, key.0);
        super::host::reconsider(router, key.0);
    }
    router.nd.addresses.next_due().unwrap_or(now + 3600 * SECOND)
}

/// Somebody has the address too. `true` where it was tentative, or was given up before.
pub(super) fn duplicate(router: &mut Router, interface: IfIndex, address: Ipv6Addr, mac: MacAddr) -> bool {
    let Some(entry) = router.nd.addresses.get(&(interface, address)).copied() else { return false };
    match entry.state {
        AddressState::Preferred => return false,
        AddressState::Duplicate => return true,
        AddressState::Tentative => {}
    }
    router.nd.addresses.set((interface, address), Address { state: AddressState::Duplicate, due: None, ..entry });
    super::api::tell_dad(router, interface, address, AddressState::Duplicate, entry.sent);
    let name = router.interfaces.name(interface);
    tracing::error!(target: "ip6/dad", interface = %name, %address, "duplicate address {address} on {name}: {mac} has it; the address is not used");
    set_received(router, interface, address, false);
    router.publish_view(interface, false);
    router.neighbors.count_conflict(IpAddr::V6(address));
    router.tell_neighbors(&NeighborEvent::Conflict { interface, address: address.into(), mac });
    if router.nd.autoremove {
        take_off(router, interface, address);
    }
    true
}

/// Adds or removes the routes by which packets to an own address reach this router.
fn set_received(router: &mut Router, interface: IfIndex, address: Ipv6Addr, on: bool) {
    let Some(table) = router.interfaces.get(interface).map(|i| i.tables.1) else { return };
    let path = Path::new(Hop::Receive);
    let prefix = IpPrefix::host(address.into());
    // Fails only where the route is as wanted already, or memory ends: then the address stays as it was.
    let _ = if is_link_local(address.to_bits()) {
        router.set_own_link_local(interface, address.into(), on)
    } else if !router.has_routes(interface) {
        Ok(())
    } else if on {
        router.add_route(table, prefix, Source::Interface, vec![path])
    } else {
        router.remove_route(table, prefix, Source::Interface, Some(&[path]))
    };
}
