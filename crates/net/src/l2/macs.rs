//! The entries of the address table: configured, learned, forgotten, shown.

use std::sync::atomic::Ordering;

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::control::L2Error;
use super::domain::PortKind;
use super::events::Change;
use super::mac::{MacValue, key, key_parts};
use crate::Router;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacKind {
    /// Behind this interface, as if heard there: it can move and grow old.
    Learned(IfIndex),
    /// Behind this interface, for good.
    Static(IfIndex),
    /// The address of this BVI.
    Bvi(IfIndex),
    /// Frames from and to it are dropped.
    Filter,
}

/// An entry, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// Address.
    pub mac: MacAddr,
    /// Number and index of its bridge domain.
    pub domain: (u32, u16),
    /// What it says.
    pub kind: MacKind,
    /// Minutes since it was heard, where it grows old.
    pub age: Option<u16>,
    /// Times the domain's and the port's addresses were flushed.
    pub sequences: (u8, u8),
}

/// Which learned addresses to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// All.
    All,
    /// Those of a domain.
    Domain(u32),
    /// Those behind an interface.
    Interface(IfIndex),
}

impl Router {
    fn stamp_now(&self) -> u16 {
        self.l2.stamp.load(Ordering::Relaxed) as u16
    }

    /// Configures an address of a domain.
    ///
    /// # Errors
    /// No such domain, the interface is no port of it, no station's address, no room.
    pub fn add_mac(&mut self, id: u32, mac: MacAddr, kind: MacKind) -> Result<(), L2Error> {
        let domain = self.bridge_domain(id)?;
        if !mac.is_unicast() || mac.is_zero() {
            return Err(L2Error::NotAStation(mac));
        }
        let (interface, flags) = match kind {
            MacKind::Learned(i) => (i, MacValue::LEARNED),
            MacKind::Static(i) => (i, MacValue::STATIC),
            MacKind::Bvi(i) => (i, MacValue::STATIC | MacValue::BVI),
            MacKind::Filter => (IfIndex::LOCAL0, MacValue::STATIC | MacValue::FILTER),
        };
        if kind != MacKind::Filter {
            let port = domain.port(interface);
            let right = port.is_some_and(|p| !matches!(kind, MacKind::Bvi(_)) || p.kind == PortKind::Bvi);
            if !right {
                let what = if port.is_some() { "the BVIs" } else { "bridge domain" };
                return Err(L2Error::NotAPort(self.interfaces.name(interface), format!("{what} {id}")));
            }
        }
        let index = domain.index;
        let value = MacValue::new(interface, flags, self.stamp_now());
        self.set_mac_entry(id, key(index, mac.to_u64()), value)
    }

    /// Sets an entry and keeps count.
    fn set_mac_entry(&mut self, id: u32, key: u64, value: MacValue) -> Result<(), L2Error> {
        let old = self.l2.macs.get(key);
        if !self.l2.macs.set(key, value) {
            // The table may have begun to grow: the next try will do.
            while self.l2.macs.step() {}
            if !self.l2.macs.set(key, value) {
                return Err(L2Error::Full("MAC address"));
            }
        }
        self.wake_process(super::PROCESS, 0);
        self.count_learned(id, old, Some(value));
        Ok(())
    }

    /// Follows the numbers of learned addresses of a domain and its ports as one entry changes; ports are told when a limit is
    /// reached or left.
    fn count_learned(&mut self, id: u32, old: Option<MacValue>, new: Option<MacValue>) {
        let Some(domain) = self.l2.domains.get_mut(&id) else { return };
        let behind = |value: Option<MacValue>| value.filter(|v| v.is(MacValue::LEARNED)).map(MacValue::interface);
        let (before, after) = (behind(old), behind(new));
        if before == after {
            return;
        }
        let had_room = domain.learned < domain.learn_limit;
        let mut changed = Vec::new();
        for (interface, change) in [(before, -1), (after, 1)] {
            let Some(interface) = interface else { continue };
            domain.learned = domain.learned.saturating_add_signed(change);
            self.l2.learned = self.l2.learned.saturating_add_signed(change);
            let Some(port) = domain.port_mut(interface) else { continue };
            let port_had_room = port.learned < port.learn_limit;
            port.learned = port.learned.saturating_add_signed(change);
            if port_had_room != (port.learned < port.learn_limit) {
                changed.push(interface);
            }
        }
        if had_room != (domain.learned < domain.learn_limit) {
            return self.publish_ports(id);
        }
        changed.into_iter().for_each(|port| self.publish_port(port));
    }

    /// Removes an address of a domain, whatever it is.
    ///
    /// # Errors
    /// No such domain or entry.
    pub fn delete_mac(&mut self, id: u32, mac: MacAddr) -> Result<(), L2Error> {
        let key = key(self.bridge_domain(id)?.index, mac.to_u64());
        let value = self.l2.macs.get(key).ok_or(L2Error::NoEntry(id, mac))?;
        self.l2.macs.remove(key);
        self.l2.teller.again();
        self.count_learned(id, Some(value), None);
        Ok(())
    }

    /// Removes every entry that `which` picks by key, domain index and value.
    pub(super) fn forget_macs(&mut self, which: impl Fn(u64, u16, MacValue) -> bool) {
        for (key, value) in self.l2.macs.all() {
            let (index, _) = key_parts(key);
            if which(key, index, value) {
                self.forget_mac(key, value);
            }
        }
        // Somebody may want to be told.
        self.wake_process(super::PROCESS, 0);
    }

    pub(super) fn forget_mac(&mut self, key: u64, value: MacValue) {
        let (index, _) = key_parts(key);
        self.l2.macs.remove(key);
        self.l2.teller.again();
        if value.is(MacValue::LEARNED) {
            self.l2.events.note(value.interface(), key_parts(key).1, Change::Forgotten);
        }
        if let Some(id) = self.l2.numbers.get(&index).copied() {
            self.count_learned(id, Some(value), None);
        }
    }

    /// Makes all learned addresses of a domain as good as just heard.
    pub(super) fn stamp_macs(&mut self, index: u16) {
        let stamp = self.stamp_now();
        for (key, value) in self.l2.macs.all() {
            if key_parts(key).0 == index && value.is(MacValue::LEARNED) {
                self.l2.macs.set(key, value.with_stamp(stamp));
            }
        }
    }

    /// Where an interface is a BVI: its address is where frames for the router go.
    pub(super) fn set_bvi_mac(&mut self, index: IfIndex) {
        let Some(domain) = self.l2.domains.values().find(|d| d.bvi() == Some(index)) else { return };
        let (id, at) = (domain.id, domain.index);
        let Some(mac) = self.interfaces.get(index).map(|i| i.mac) else { return };
        let entry = key(at, mac.to_u64());
        self.forget_macs(|key, domain, value| domain == at && value.is(MacValue::BVI) && key != entry);
        if let Err(error) = self.add_mac(id, mac, MacKind::Bvi(index)) {
            tracing::warn!(target: "l2fib", "the BVI's address: {error}");
        }
    }

    /// How many addresses are known, and how many of them are learned.
    pub fn mac_counts(&self) -> (usize, usize) {
        (self.l2.macs.len(), self.l2.domains.values().map(|d| d.learned as usize).sum())
    }

    /// All addresses, by domain and address.
    pub fn macs(&self) -> Vec<MacEntry> {
        let now = self.stamp_now();
        let mut all: Vec<MacEntry> =
            self.l2.macs.all().into_iter().filter_map(|(key, value)| self.mac_entry(key, value, now)).collect();
        all.sort_by_key(|entry| (entry.domain, entry.mac.to_u64()));
        all
    }

    fn mac_entry(&self, key: u64, value: MacValue, now: u16) -> Option<MacEntry> {
        let (index, mac) = key_parts(key);
        let id = self.l2.numbers.get(&index)?;
        let domain = self.l2.domains.get(id)?;
        let interface = value.interface();
        let kind = if value.is(MacValue::FILTER) {
            MacKind::Filter
        } else if value.is(MacValue::BVI) {
            MacKind::Bvi(interface)
        } else if value.is(MacValue::STATIC) {
            MacKind::Static(interface)
        } else {
            MacKind::Learned(interface)
        };
        let grows = domain.mac_age > 0 && value.is(MacValue::LEARNED);
        Some(MacEntry {
            mac,
            domain: (*id, index),
            kind,
            age: grows.then(|| now.wrapping_sub(value.stamp()) / 60),
            sequences: (domain.sequence, domain.port(interface).map_or(0, |p| p.sequence)),
        })
    }

    /// An address was heard behind an interface.
    pub(super) fn learn_mac(&mut self, key: u64, interface: IfIndex) {
        let (index, _) = key_parts(key);
        let Some(id) = self.l2.numbers.get(&index).copied() else { return };
        let Some(domain) = self.l2.domains.get(&id) else { return };
        // The port may have left, or learning may have been switched off, since.
        let Some(port) = domain.port(interface).filter(|p| domain.learn && p.learn) else { return };
        let old = self.l2.macs.get(key);
        if old.is_some_and(|v| v.is(MacValue::STATIC)) {
            return;
        }
        // An address that moves counts for its new port.
        let stays = old.is_some_and(|v| v.interface() == interface);
        let room = if old.is_some() { stays || port.learned < port.learn_limit } else { domain.has_room_for(port) };
        // A client that is told of addresses may have set a limit for all of them.
        let limit = self.l2.events.learn_limit.unwrap_or(u32::MAX);
        if !room || old.is_none() && self.l2.learned >= limit {
            return;
        }
        let value = MacValue::new(interface, MacValue::LEARNED, self.stamp_now());
        // Without room it is flooded to, and reported again when it speaks again.
        if self.l2.macs.set(key, value) {
            self.count_learned(id, old, Some(value));
            let mac = key_parts(key).1;
            match old {
                None => self.l2.events.note(interface, mac, Change::Learned),
                Some(_) if !stays => self.l2.events.note(interface, mac, Change::Moved),
                Some(_) => {}
            }
        }
    }
}
