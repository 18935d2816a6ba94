//! Changes of the neighbour table, with all that follows from them: adjacencies, events, held packets; and what happens to
//! it when interfaces change.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use quiver_graph::IfIndex;
use quiver_wire::ipv6::address::is_martian_src;
use quiver_wire::{IpPrefix, MacAddr};

use super::ask::Outcome;
use super::hold::Key;
use super::process::usage;
use super::state::{Effect, Evidence, SECOND, State};
use super::table::Made;
use super::view::{ProxyRange, View, Views};
use super::{NeighborError, NeighborEvent, NeighborInfo, PROCESS, info};
use crate::Router;
use crate::interface::IfEvent;
use crate::ip::FamilyId;

/// Announcements of an address, and the time between them (RFC 5227, ANNOUNCE_NUM and ANNOUNCE_INTERVAL).
const ANNOUNCE_INTERVAL: u64 = 2 * SECOND;

/// Addresses that a user can give a neighbour: those of 127/8 too, for a host behind this link that has one (RFC 1122, 3.2.1.3 keeps them
/// from leaving a host; who sets one knows why). None is learned.
fn may_be_set(address: IpAddr) -> bool {
    is_neighbor_address(address) || matches!(address, IpAddr::V4(a) if a.is_loopback())
}

fn is_neighbor_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => !quiver_wire::ipv4::is_martian_src(a.to_bits()),
        IpAddr::V6(a) => !is_martian_src(a.to_bits()),
    }
}

impl Router {
    /// Sets a neighbour: static, or dynamic as if it had been learned.
    ///
    /// # Errors
    /// No such interface, addresses that no neighbour can have, or the limit; nothing has changed then.
    pub fn add_neighbor(
        &mut self,
        interface: IfIndex,
        address: IpAddr,
        mac: MacAddr,
        permanent: bool,
        no_fib_entry: bool,
    ) -> Result<(), NeighborError> {
        self.interfaces.get(interface).ok_or(NeighborError::NoInterface(interface.0))?;
        if !may_be_set(address) {
            return Err(NeighborError::Address(address));
        }
        if !mac.is_unicast() {
            return Err(NeighborError::Mac(mac));
        }
        let now = self.graph.clock().timer_now();
        let (key, family) = ((interface, address), FamilyId::of(&address));
        let before = self.neighbor(interface, address);
        if before.is_some_and(|b| b.no_fib_entry != no_fib_entry) {
            self.neighbor_update(interface, address, None)?;
        }
        // The FIB first: where it has no room nothing has changed.
        self.update_adjacency_of(&key, Some(mac), no_fib_entry)?;
        let fib = &self.fib;
        let table = self.neighbors.table_mut(family);
        match table.set(key, mac, permanent, no_fib_entry, now, &|key| usage(fib, key)) {
            Ok(gone) => self.pushed_out(gone),
            Err(limit) => {
                let mac = before.and_then(|b| b.mac);
                self.update_adjacency_of(&key, mac, no_fib_entry)?;
                return Err(NeighborError::Full(limit));
            }
        }
        self.found(&key, before.and_then(|b| b.mac));
        Ok(())
    }

    /// Removes a neighbour.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_neighbor(&mut self, interface: IfIndex, address: IpAddr) -> Result<(), NeighborError> {
        let name = self.interfaces.get(interface).ok_or(NeighborError::NoInterface(interface.0))?.name.clone();
        if self.neighbor(interface, address).is_none() {
            return Err(NeighborError::NoEntry { interface: name, address });
        }
        self.drop_neighbor(&(interface, address), Outcome::Forgotten);
        Ok(())
    }

    /// Removes all dynamic neighbours of a family, of one interface or of all; gives their number.
    pub fn flush_neighbors(&mut self, family: FamilyId, interface: Option<IfIndex>) -> usize {
        let keys = self.neighbor_keys(family, interface, false);
        for key in &keys {
            self.drop_neighbor(key, Outcome::Forgotten);
        }
        keys.len()
    }

    pub(super) fn neighbor_keys(&self, family: FamilyId, interface: Option<IfIndex>, statics: bool) -> Vec<Key> {
        let wanted = |(_, entry): &(&Key, &super::table::Entry)| statics || !entry.is_static();
        let table = self.neighbors.table(family);
        match interface {
            Some(interface) => table.on(interface).filter(wanted).map(|(k, _)| *k).collect(),
            None => table.iter().filter(wanted).map(|(k, _)| *k).collect(),
        }
    }

    fn update_adjacency_of(&mut self, key: &Key, mac: Option<MacAddr>, no_fib: bool) -> Result<(), crate::fib::FibError> {
        if no_fib { self.neighbor_update_without_route(key.0, key.1, mac) } else { self.neighbor_update(key.0, key.1, mac) }
    }

    /// Takes an entry away: the adjacency is incomplete again, held packets get their outcome, listeners are told.
    pub(super) fn drop_neighbor(&mut self, key: &Key, outcome: Outcome) {
        let Some(entry) = self.neighbors.table_mut(FamilyId::of(&key.1)).remove(key) else { return };
        self.neighbors.forget_told();
        self.neighbors.outcomes.push((*key, outcome));
        let gone = info(key, &entry);
        if gone.mac.is_some() {
            // Fails only for an interface that is gone, whose adjacencies are too.
            let _ = self.update_adjacency_of(key, None, entry.no_fib);
            self.log_neighbor("delete", &gone);
            self.tell_neighbors(&NeighborEvent::Removed(gone));
        }
        self.wake_process(PROCESS, 0);
    }

    /// An entry had to go for another one; the table has removed it already.
    fn pushed_out(&mut self, gone: Option<Key>) {
        let Some(key) = gone else { return };
        let had_mac = self.find_adjacency(key.0, key.1).and_then(|a| self.adjacency_info(a)).and_then(|a| a.mac);
        let _ = self.neighbor_update(key.0, key.1, None);
        self.neighbors.forget_told();
        self.neighbors.outcomes.push((key, Outcome::Forgotten));
        if had_mac.is_some() {
            let gone =
                NeighborInfo { interface: key.0, address: key.1, mac: had_mac, state: State::Stale, no_fib_entry: false, heard: 0 };
            self.tell_neighbors(&NeighborEvent::Removed(gone));
        }
    }

    /// A neighbour's MAC address is known: held packets go, listeners are told.
    fn found(&mut self, key: &Key, before: Option<MacAddr>) {
        if let Some(adjacency) = self.find_adjacency(key.0, key.1) {
            self.neighbors.outcomes.push((*key, Outcome::Found(adjacency)));
            self.wake_process(PROCESS, 0);
        }
        let Some(now) = self.neighbor(key.0, key.1) else { return };
        match before {
            Some(mac) if Some(mac) == now.mac => {}
            Some(_) => {
                self.neighbors.forget_told();
                self.log_neighbor("change", &now);
                self.tell_neighbors(&NeighborEvent::Changed(now));
            }
            None => {
                self.log_neighbor("add", &now);
                self.tell_neighbors(&NeighborEvent::Added(now));
            }
        }
    }

    fn log_neighbor(&self, what: &str, neighbor: &NeighborInfo) {
        tracing::debug!(target: "ip/neighbor", "{what}: {}, {}", self.interfaces.name(neighbor.interface), neighbor.address);
    }

    /// A packet wants to go to a neighbour.
    pub(super) fn want_neighbor(&mut self, key: Key, now: u64) {
        let family = FamilyId::of(&key.1);
        if let Some(mac) = self.neighbor(key.0, key.1).map(|n| n.mac) {
            // Found meanwhile: the packet was looked up just before.
            if mac.is_some() {
                self.found(&key, mac);
            }
            return;
        }
        if self.interfaces.get(key.0).is_none_or(|i| !i.admin_up) {
            self.neighbors.outcomes.push((key, Outcome::Forgotten));
            return;
        }
        let fib = &self.fib;
        match self.neighbors.table_mut(family).want(key, now, &|key| usage(fib, key)) {
            Made::Yes(gone) => self.pushed_out(gone),
            Made::Full => self.neighbors.outcomes.push((key, Outcome::Forgotten)),
        }
    }

    /// A neighbour spoke.
    pub(super) fn hear_neighbor(&mut self, key: Key, evidence: Evidence, create: bool, now: u64) {
        let family = FamilyId::of(&key.1);
        if self.interfaces.get(key.0).is_none_or(|i| !i.admin_up) || !is_neighbor_address(key.1) {
            return;
        }
        let before = self.neighbor(key.0, key.1);
        let fib = &self.fib;
        let table = self.neighbors.table_mut(family);
        let effect = match (before, evidence) {
            (Some(_), _) => table.hear(&key, evidence, now).unwrap_or_default(),
            (None, Evidence::Seen(mac) | Evidence::Advert { mac: Some(mac), .. }) if create => {
                let made = table.learn(key, mac, now, &|key| usage(fib, key));
                // What answers us is confirmed at once.
                let effect = table.hear(&key, evidence, now);
                match made {
                    Made::Yes(gone) => self.pushed_out(gone),
                    Made::Full => return,
                }
                Effect { mac: true, ..effect.unwrap_or_default() }
            }
            _ => return,
        };
        if !effect.mac {
            return;
        }
        let Some(neighbor) = self.neighbor(key.0, key.1) else { return };
        if self.update_adjacency_of(&key, neighbor.mac, neighbor.no_fib_entry).is_err() {
            // No room in the FIB: the neighbour is as good as unknown.
            self.drop_neighbor(&key, Outcome::Forgotten);
            return;
        }
        self.found(&key, before.and_then(|b| b.mac));
    }

    /// Publishes what nodes must know of an interface; `gone`: it is being deleted.
    pub(crate) fn publish_view(&mut self, index: IfIndex, gone: bool) {
        let affected: Vec<IfIndex> = std::iter::once(index).chain(self.interfaces.borrowers(index)).collect();
        let mut views = Views::clone(&self.neighbors.views.get());
        for index in affected {
            views.set(index, if gone { None } else { self.make_view(index, &views) });
        }
        self.neighbors.views.publish(views);
    }

    fn make_view(&self, index: IfIndex, old: &Views) -> Option<View> {
        let interface = self.interfaces.get(index)?;
        let lender = interface.unnumbered.and_then(|l| self.interfaces.get(l));
        let mut view = View::of(interface, lender, |i, a| self.address_state(i, a));
        (view.proxy_arp, view.holds_proxy) = old.get(index).map_or((false, false), |v| (v.proxy_arp, v.holds_proxy));
        view.advertises = self.advertises(index);
        view.autoconfigures = self.autoconfig(index).is_some();
        view.mirrors6 = old.get(index).is_some_and(|v| v.mirrors6);
        Some(view)
    }

    /// Switches proxy ARP on an interface.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_proxy_arp(&mut self, index: IfIndex, on: bool) -> Result<(), NeighborError> {
        let view = self.neighbor_view(index).ok_or(NeighborError::NoInterface(index.0))?;
        let mut views = Views::clone(&self.neighbors.views.get());
        views.set(index, Some(View { proxy_arp: on, ..view }));
        self.neighbors.views.publish(views);
        Ok(())
    }

    /// Whether proxy ARP is on, by configuration.
    pub fn proxy_arp(&self, index: IfIndex) -> bool {
        self.neighbor_view(index).is_some_and(|v| v.proxy_arp)
    }

    /// Ranges for which proxy ARP answers, by configuration.
    pub fn proxy_ranges(&self) -> Vec<ProxyRange> {
        self.neighbors.views.get().proxies.to_vec()
    }

    /// Has an interface answer ARP for the ranges of [`hold_proxy_ranges`](Self::hold_proxy_ranges), or no more: a feature needs it,
    /// whatever is configured. An interface that is not there is passed over.
    pub fn hold_proxy_arp(&mut self, index: IfIndex, on: bool) {
        let Some(view) = self.neighbor_view(index).filter(|view| view.holds_proxy != on) else { return };
        let mut views = Views::clone(&self.neighbors.views.get());
        views.set(index, Some(View { holds_proxy: on, ..view }));
        self.neighbors.views.publish(views);
    }

    /// Replaces the ranges that a feature answers for; the configuration does not show them.
    pub fn hold_proxy_ranges(&mut self, ranges: Vec<ProxyRange>) {
        if *self.neighbors.views.get().held != *ranges {
            let mut views = Views::clone(&self.neighbors.views.get());
            views.held = ranges.into();
            self.neighbors.views.publish(views);
        }
    }

    /// Ranges that a feature answers for, and whether an interface does.
    pub(super) fn held_proxies(&self) -> (Vec<ProxyRange>, impl Fn(IfIndex) -> bool + use<>) {
        let views = self.neighbors.views.get();
        (views.held.to_vec(), move |index| views.get(index).is_some_and(|v| v.holds_proxy))
    }

    /// Adds or removes a range for which proxy ARP answers; adding it again changes nothing.
    ///
    /// # Errors
    /// A range that ends before it begins, or one that is not there.
    pub fn set_proxy_range(&mut self, range: ProxyRange, add: bool) -> Result<(), NeighborError> {
        if range.first > range.last {
            return Err(NeighborError::Range(range.first, range.last));
        }
        let mut ranges = self.proxy_ranges();
        let at = ranges.iter().position(|r| *r == range);
        match (at, add) {
            (None, true) => ranges.push(range),
            (Some(at), false) => drop(ranges.remove(at)),
            (None, false) => return Err(NeighborError::NoRange),
            (Some(_), true) => return Ok(()),
        }
        let mut views = Views::clone(&self.neighbors.views.get());
        views.proxies = Arc::from(ranges);
        self.neighbors.views.publish(views);
        Ok(())
    }

    /// Tells the link that an address is ours, soon and once more in a while.
    pub(crate) fn announce(&mut self, interface: IfIndex, address: IpAddr) {
        if !self.neighbor_config(FamilyId::of(&address)).announce {
            return;
        }
        let now = self.graph.clock().timer_now();
        self.neighbors.announcements.begin((interface, address), [now, now + ANNOUNCE_INTERVAL]);
        self.wake_process(PROCESS, now);
    }

    pub(super) fn send_announcement(&mut self, interface: IfIndex, address: IpAddr) {
        let Some(view) = self.neighbor_view(interface) else { return };
        let frame = match address {
            IpAddr::V4(a) => view.owns4(a.to_bits()).then(|| crate::arp::announcement(&view, a.to_bits())),
            IpAddr::V6(a) => crate::nd::announcement(&view, a.to_bits()),
        };
        if let Some(frame) = frame {
            if address.is_ipv4() {
                super::message_counter(self, "arp/tx/gratuitous").add(0, interface.0, 1);
            }
            self.send_frames(vec![(interface, frame)]);
        }
    }

    /// Tells the link of all addresses of an interface and its sub-interfaces, soon and once more in a while: they are reached by
    /// another way than before.
    pub fn announce_addresses(&mut self, index: IfIndex) {
        let family: Vec<IfIndex> = std::iter::once(index).chain(self.interfaces.subs(index)).collect();
        for index in family {
            if is_running(self, index) {
                self.announce_all(index);
            }
        }
    }

    fn announce_all(&mut self, interface: IfIndex) {
        let Some(i) = self.interfaces.get(interface) else { return };
        let addresses: Vec<IpAddr> = i.addresses.iter().map(|(a, _)| *a).collect();
        for address in addresses.into_iter().filter(IpAddr::is_ipv4) {
            self.announce(interface, address);
        }
        self.announce_v6(interface);
    }
}

/// Whether packets can leave on an interface.
pub(crate) fn is_running(router: &Router, index: IfIndex) -> bool {
    let up = |i: &crate::Interface| i.admin_up && i.link.up;
    let Some(interface) = router.interfaces.get(index) else { return false };
    up(interface) && router.interfaces.get(interface.parent).is_some_and(up)
}

/// Listens to what happens to interfaces.
pub(super) fn on_interface(router: &mut Router, event: &IfEvent) {
    match *event {
        IfEvent::Created(index) => {
            let output = router.interfaces.get(index).map(|i| i.output);
            let node = router.graph.node("neighbor-output");
            // Without an edge, frames are dropped and counted.
            if let Some(slot) = node.zip(output).and_then(|(n, o)| router.graph.edge(n, o).ok()) {
                router.neighbors.slots.set(index, slot.index());
            }
            router.publish_view(index, false);
        }
        IfEvent::Deleted(index) => {
            for family in [FamilyId::V4, FamilyId::V6] {
                for key in router.neighbor_keys(family, Some(index), true) {
                    router.drop_neighbor(&key, Outcome::Forgotten);
                }
            }
            router.forget_nd(index);
            router.publish_view(index, true);
            router.neighbors.slots.set(index, 0);
            router.neighbors.announcements.forget(index);
            router.release_interface(index);
        }
        IfEvent::Admin(index, up) | IfEvent::Link(index, up) => {
            if !up {
                if matches!(event, IfEvent::Admin(..)) {
                    for family in [FamilyId::V4, FamilyId::V6] {
                        router.flush_neighbors(family, Some(index));
                    }
                }
                router.release_interface(index);
            }
            if matches!(event, IfEvent::Link(..)) {
                router.doubt_neighbors(index, up);
            }
            let family: Vec<IfIndex> = std::iter::once(index).chain(router.interfaces.subs(index)).collect();
            for index in family {
                router.link_changed(index);
                if is_running(router, index) {
                    router.announce_all(index);
                    router.ask_other_end(index);
                }
            }
        }
        IfEvent::Mac(index) => {
            router.publish_view(index, false);
            router.link_changed(index);
            if is_running(router, index) {
                router.announce_all(index);
            }
        }
        IfEvent::Address(index, address, len, added) => {
            if let IpAddr::V6(a) = address {
                router.address_changed(index, a, added);
            }
            router.publish_view(index, false);
            if !added {
                let link = IpPrefix::new(address, len);
                let lost: Vec<Key> = router
                    .neighbor_keys(FamilyId::of(&address), Some(index), false)
                    .into_iter()
                    .filter(|key| link.as_ref().is_ok_and(|l| l.contains(key.1)) && !router.still_on_link(key))
                    .collect();
                for key in lost {
                    router.drop_neighbor(&key, Outcome::Forgotten);
                }
            } else if address.is_ipv4() && is_running(router, index) {
                router.announce(index, address);
                router.ask_other_end(index);
            }
        }
        IfEvent::Table(index, _) => router.publish_view(index, false),
        IfEvent::Mtu(_) | IfEvent::L2(_) | IfEvent::Promiscuous(_) | IfEvent::Device(_) | IfEvent::HostInterface(..) => {}
    }
}

impl Router {
    /// A link went down or came back: its neighbours, and those on its sub-interfaces, are likely the same ones. Those that
    /// are only asked for are given up.
    fn doubt_neighbors(&mut self, index: IfIndex, up: bool) {
        let now = self.graph.clock().timer_now();
        let all: Vec<IfIndex> = self.interfaces.iter().filter(|i| i.index == index || i.parent == index).map(|i| i.index).collect();
        for (interface, family) in all.into_iter().flat_map(|i| [(i, FamilyId::V4), (i, FamilyId::V6)]) {
            for key in self.neighbor_keys(family, Some(interface), false) {
                if self.neighbor(interface, key.1).is_some_and(|n| n.mac.is_none()) {
                    self.drop_neighbor(&key, Outcome::Forgotten);
                } else {
                    self.neighbors.table_mut(family).doubt(&key, up, now);
                }
            }
        }
        self.wake_process(PROCESS, now);
    }

    /// A link of two addresses (RFC 3021) has one neighbour, which is asked for before the first packet wants it.
    fn ask_other_end(&mut self, index: IfIndex) {
        let addresses = self.interfaces.get(index).map(|i| i.addresses.clone()).unwrap_or_default();
        let now = self.graph.clock().timer_now();
        for (address, len) in addresses {
            let IpAddr::V4(own) = address else { continue };
            let key = (index, IpAddr::V4(Ipv4Addr::from_bits(own.to_bits() ^ 1)));
            if len == 31 && self.neighbor(index, key.1).is_none() {
                self.want_neighbor(key, now);
                super::process::request(self, &key, None);
            }
        }
    }

    fn still_on_link(&self, key: &Key) -> bool {
        let Some(view) = self.neighbor_view(key.0) else { return false };
        match key.1 {
            IpAddr::V4(a) => view.on_link4(Ipv4Addr::to_bits(a)),
            IpAddr::V6(a) => view.on_link6(a.to_bits()),
        }
    }
}
