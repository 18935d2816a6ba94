//! Making, changing and removing bridge domains and their ports.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use super::domain::{BdSwitch, BridgeDomain, BridgePort, MAC_AGE, PortKind};
use super::mac::MAC_LIMIT;
use super::macs::Flush;
use super::rewrite::TagRewrite;
use crate::Router;
use crate::data::if_flags;
use crate::interface::{IfEvent, InterfaceError, Kind, L2Mode, VLAN_MAX};

/// The greatest number of a domain.
const ID_MAX: u32 = 16_777_215;

/// Why a layer-2 operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum L2Error {
    /// No such domain.
    #[error("no bridge domain {0}")]
    NoDomain(u32),
    /// It exists already.
    #[error("bridge domain {0} exists already")]
    Exists(u32),
    /// It has ports.
    #[error("bridge domain {0} in use, by {1}")]
    InUse(u32, String),
    /// A value out of range.
    #[error("{what} {value} is out of range, expected {expected}")]
    Range {
        /// What was set.
        what: &'static str,
        /// The value.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// The domain has a BVI.
    #[error("bridge domain {0} has a BVI already: {1}")]
    HasBvi(u32, String),
    /// The interface is in no domain, or not in the one named.
    #[error("{0} is not a port of {1}")]
    NotAPort(String, String),
    /// No such address.
    #[error("no entry for {1} in bridge domain {0}")]
    NoEntry(u32, MacAddr),
    /// An address that no station can have.
    #[error("{0} is not the address of a station")]
    NotAStation(MacAddr),
    /// No room for another one.
    #[error("no room for another {0}")]
    Full(&'static str),
    /// A tag rewrite that the interface cannot have.
    #[error("{0}")]
    Rewrite(String),
    /// Interfaces.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
}

/// What can be switched on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSwitch {
    /// Learning from its frames.
    Learn,
    /// Forwarding of its frames to known destinations.
    Forward,
    /// Flooding of its frames to groups.
    Flood,
    /// Flooding of its frames to unknown destinations.
    UnknownFlood,
    /// Answers to its ARP and ND questions from the domain's table.
    ArpTerm,
}

impl Router {
    /// All bridge domains, by number.
    pub fn bridge_domains(&self) -> impl Iterator<Item = &BridgeDomain> {
        self.l2.domains.values()
    }

    /// A bridge domain.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn bridge_domain(&self, id: u32) -> Result<&BridgeDomain, L2Error> {
        self.l2.domains.get(&id).ok_or(L2Error::NoDomain(id))
    }

    fn domain_mut(&mut self, id: u32) -> Result<&mut BridgeDomain, L2Error> {
        self.l2.domains.get_mut(&id).ok_or(L2Error::NoDomain(id))
    }

    /// Makes a bridge domain: of this number, or of the lowest free one.
    ///
    /// # Errors
    /// It exists, or the number is 0 or too great.
    pub fn create_bridge_domain(&mut self, id: Option<u32>) -> Result<u32, L2Error> {
        let free = || (1..=ID_MAX).find(|id| !self.l2.domains.contains_key(id));
        let id = id.or_else(free).ok_or(L2Error::Full("bridge domain"))?;
        if !(1..=ID_MAX).contains(&id) {
            return Err(L2Error::Range { what: "bridge domain", value: id.into(), expected: "1 to 16777215" });
        }
        if self.l2.domains.contains_key(&id) {
            return Err(L2Error::Exists(id));
        }
        let free = (1..u16::MAX).find(|index| !self.l2.numbers.contains_key(index));
        let index = free.ok_or(L2Error::Full("bridge domain"))?;
        self.l2.numbers.insert(index, id);
        self.l2.domains.insert(id, BridgeDomain { learn_limit: self.l2.learn_limit, ..BridgeDomain::new(id, index) });
        self.set_mac_age(id, MAC_AGE)?;
        Ok(id)
    }

    /// Removes a bridge domain and its addresses.
    ///
    /// # Errors
    /// There is none, or it has ports.
    pub fn delete_bridge_domain(&mut self, id: u32) -> Result<(), L2Error> {
        let domain = self.bridge_domain(id)?;
        if let Some(port) = domain.ports.first() {
            return Err(L2Error::InUse(id, self.interfaces.name(port.interface)));
        }
        let index = domain.index;
        self.forget_macs(|_, at, _| at == index);
        self.l2.domains.remove(&id);
        self.l2.numbers.remove(&index);
        self.l2.publish(index, None);
        Ok(())
    }

    /// Switches something in a bridge domain.
    ///
    /// # Errors
    /// No such domain.
    pub fn set_bridge_switch(&mut self, id: u32, which: BdSwitch, on: bool) -> Result<(), L2Error> {
        *self.domain_mut(id)?.switch(which) = on;
        self.publish_domain(id);
        Ok(())
    }

    /// Sets after how many minutes a silent address is forgotten; 0: never.
    ///
    /// # Errors
    /// No such domain.
    pub fn set_mac_age(&mut self, id: u32, minutes: u8) -> Result<(), L2Error> {
        let domain = self.domain_mut(id)?;
        let (index, begins) = (domain.index, domain.mac_age == 0 && minutes > 0);
        domain.mac_age = minutes;
        if begins {
            let seconds = self.graph.clock().timer_now() / 1_000_000_000;
            self.l2.stamp.store(seconds as u32, Ordering::Relaxed);
            // Nobody has noted so far when addresses were heard: they are as good as new.
            self.stamp_macs(index);
        }
        self.publish_domain(id);
        self.wake_process(super::PROCESS, 0);
        Ok(())
    }

    /// How many addresses a new domain may learn.
    pub fn default_learn_limit(&self) -> u32 {
        self.l2.learn_limit
    }

    /// Sets it; domains that are there keep theirs.
    ///
    /// # Errors
    /// More than there can be in all.
    pub fn set_default_learn_limit(&mut self, limit: u32) -> Result<(), L2Error> {
        if !(1..=MAC_LIMIT).contains(&limit) {
            return Err(L2Error::Range { what: "learn limit", value: limit.into(), expected: "1 to 16777216" });
        }
        self.l2.learn_limit = limit;
        Ok(())
    }

    /// Sets how many addresses a domain may learn.
    ///
    /// # Errors
    /// No such domain, or more than there can be in all.
    pub fn set_learn_limit(&mut self, id: u32, limit: u32) -> Result<(), L2Error> {
        if !(1..=MAC_LIMIT).contains(&limit) {
            return Err(L2Error::Range { what: "learn limit", value: limit.into(), expected: "1 to 16777216" });
        }
        self.domain_mut(id)?.learn_limit = limit;
        self.publish_domain(id);
        Ok(())
    }

    /// Sets how many addresses may be learned behind a port.
    ///
    /// # Errors
    /// The interface is no port of a bridge domain, or more than there can be in all.
    pub fn set_port_learn_limit(&mut self, index: IfIndex, limit: u32) -> Result<(), L2Error> {
        if !(1..=MAC_LIMIT).contains(&limit) {
            return Err(L2Error::Range { what: "learn limit", value: limit.into(), expected: "1 to 16777216" });
        }
        let name = self.interfaces.expect(index)?.name.clone();
        let Some(port) = self.l2.domains.values_mut().find_map(|d| d.port_mut(index)) else {
            return Err(L2Error::NotAPort(name, "a bridge domain".into()));
        };
        port.learn_limit = limit;
        self.publish_port(index);
        Ok(())
    }

    /// Attaches a text of the user's to a domain.
    ///
    /// # Errors
    /// No such domain.
    pub fn set_bridge_tag(&mut self, id: u32, tag: Option<String>) -> Result<(), L2Error> {
        self.domain_mut(id)?.tag = tag;
        Ok(())
    }

    /// Tells a domain which MAC address belongs to an IP address, for answers in its place; `None` takes it back.
    ///
    /// # Errors
    /// No such domain or entry, or no station's address.
    pub fn set_bridge_neighbor(&mut self, id: u32, address: IpAddr, mac: Option<MacAddr>) -> Result<(), L2Error> {
        let domain = self.domain_mut(id)?;
        match mac {
            Some(mac) if !mac.is_unicast() || mac.is_zero() => return Err(L2Error::NotAStation(mac)),
            Some(mac) => drop(domain.neighbors.insert(address, mac)),
            None => match domain.neighbors.remove(&address) {
                Some(_) => {}
                None => return Err(L2Error::NotAPort(address.to_string(), format!("the ARP table of bridge domain {id}"))),
            },
        }
        self.publish_domain(id);
        Ok(())
    }

    /// Forgets all that a domain was told of MAC addresses behind IP addresses.
    ///
    /// # Errors
    /// No such domain.
    pub fn flush_bridge_neighbors(&mut self, id: u32) -> Result<(), L2Error> {
        self.domain_mut(id)?.neighbors.clear();
        self.publish_domain(id);
        Ok(())
    }

    /// Makes an interface a port of a bridge domain, which is made where it does not exist; it leaves the one that it was in.
    ///
    /// # Errors
    /// No such interface, a BVI that is of neither kind or not the first one, a loopback that is no BVI.
    pub fn set_bridge(&mut self, index: IfIndex, id: u32, kind: PortKind, group: u8) -> Result<(), L2Error> {
        let interface = self.interfaces.expect(index)?;
        let (name, is_loopback) = (interface.name.clone(), interface.kind.is_loop());
        let refuse = |why: &str| Err(InterfaceError::NotPossible(format!("{name} {why}")).into());
        if interface.kind == Kind::Local {
            return refuse("has no layer 2");
        }
        if !interface.has_link_layer() {
            return refuse("carries IP packets, not frames");
        }
        if (kind == PortKind::Bvi) != is_loopback {
            // What is sent on a loopback comes in on it again: as a common port it would send everything twice.
            return refuse(if is_loopback {
                "is a loopback or BVI, which can only be a bvi"
            } else {
                "is no BVI and no loopback, and cannot be a bvi"
            });
        }
        if let Some(domain) = self.l2.domains.get(&id) {
            let taken = if kind == PortKind::Bvi { domain.bvi() } else { None };
            if let Some(other) = taken.filter(|other| *other != index) {
                return Err(L2Error::HasBvi(id, self.interfaces.name(other)));
            }
            if kind == PortKind::UnknownForward && domain.unknown_forward().is_some_and(|other| other != index) {
                return refuse("cannot be uu-fwd: the bridge domain has one");
            }
            self.refuse_loop(index, L2Mode::Bridge { domain: id, index: domain.index, kind, group })?;
        } else {
            self.create_bridge_domain(Some(id))?;
        }
        self.leave_bridge(index);
        let domain = self.domain_mut(id)?;
        let mode = L2Mode::Bridge { domain: id, index: domain.index, kind, group };
        domain.ports.push(BridgePort::new(index, kind, group));
        self.enter_mode(index, mode)?;
        self.set_bvi_mac(index);
        Ok(())
    }

    /// Sends every frame of an interface to a peer, makes it a bridge port, or routes its packets again (`L2Mode::L3`, which
    /// ends its tag rewrite too).
    ///
    /// # Errors
    /// No such interface, or one that cannot be used so.
    pub fn set_l2(&mut self, index: IfIndex, mode: L2Mode) -> Result<(), InterfaceError> {
        let interface = self.interfaces.expect(index)?;
        if interface.kind == Kind::Local {
            return Err(InterfaceError::NotPossible("local0 has no layer 2".into()));
        }
        if !interface.has_link_layer() && mode != L2Mode::L3 {
            return Err(InterfaceError::NotPossible(format!("{} carries IP packets, not frames", interface.name)));
        }
        match mode {
            L2Mode::Bridge { domain, kind, group, .. } => {
                return self.set_bridge(index, domain, kind, group).map_err(|error| match error {
                    L2Error::Interface(error) => error,
                    other => InterfaceError::NotPossible(other.to_string()),
                });
            }
            L2Mode::CrossConnect(peer) => {
                let to = self.interfaces.expect(peer)?;
                if peer == index || to.kind == Kind::Local {
                    let text = format!("{} cannot be cross-connected to {}; it takes two interfaces", interface.name, to.name);
                    return Err(InterfaceError::NotPossible(text));
                }
            }
            L2Mode::L3 => drop(self.l2.rewrites.remove(&index)),
        }
        self.refuse_loop(index, mode)?;
        self.leave_bridge(index);
        self.enter_mode(index, mode)
    }

    pub(super) fn enter_mode(&mut self, index: IfIndex, mode: L2Mode) -> Result<(), InterfaceError> {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.l2 = mode;
        }
        self.wire(index)?;
        self.set_flags(index, if_flags::L2, mode != L2Mode::L3);
        self.tell(&IfEvent::L2(index));
        Ok(())
    }

    /// The bridge domain that an interface is a port of.
    pub(super) fn bridge_of(&self, index: IfIndex) -> Option<u32> {
        match self.interfaces.get(index)?.l2 {
            L2Mode::Bridge { domain, .. } => Some(domain),
            _ => None,
        }
    }

    /// Takes an interface out of its bridge domain, with its addresses.
    pub(super) fn leave_bridge(&mut self, index: IfIndex) {
        let Some(domain) = self.bridge_of(index).and_then(|id| self.l2.domains.get_mut(&id)) else { return };
        domain.ports.retain(|p| p.interface != index);
        let id = domain.id;
        self.l2.ways.remove(&index);
        self.publish_port(index);
        self.publish_domain(id);
        self.forget_macs(|_, _, value| value.interface() == index && !value.is(super::mac::MacValue::FILTER));
    }

    /// Switches something on a port.
    ///
    /// # Errors
    /// The interface is no port of a bridge domain.
    pub fn set_port_switch(&mut self, index: IfIndex, which: PortSwitch, on: bool) -> Result<(), L2Error> {
        let name = self.interfaces.expect(index)?.name.clone();
        let ports = self.l2.domains.values_mut().flat_map(|d| &mut d.ports);
        let Some(port) = ports.into_iter().find(|p| p.interface == index) else {
            return Err(L2Error::NotAPort(name, "a bridge domain".into()));
        };
        match which {
            PortSwitch::Learn => port.learn = on,
            PortSwitch::Forward => port.forward = on,
            PortSwitch::Flood => port.flood = on,
            PortSwitch::UnknownFlood => port.unknown_flood = on,
            PortSwitch::ArpTerm => port.arp_term = on,
        }
        self.publish_port(index);
        Ok(())
    }

    /// Sets what happens to the tags of an interface's frames, or takes it back. On an interface that is routed it waits until
    /// that is bridged or cross-connected.
    ///
    /// # Errors
    /// More tags to take off than the interface is known by, ids out of range.
    pub fn set_tag_rewrite(&mut self, index: IfIndex, rewrite: Option<TagRewrite>) -> Result<(), L2Error> {
        let interface = self.interfaces.expect(index)?;
        if let Some(rewrite) = &rewrite {
            let known = interface.tags().len();
            if usize::from(rewrite.pop) > known {
                let text = format!("{} is known by {known} tags: {} cannot be taken off", interface.name, rewrite.pop);
                return Err(L2Error::Rewrite(text));
            }
            if let Some((_, id)) = rewrite.push.iter().find(|(_, id)| *id > VLAN_MAX) {
                return Err(L2Error::Range { what: "vlan", value: u64::from(*id), expected: "0 to 4094" });
            }
            if rewrite.pop > 2 || rewrite.push.len() > 2 {
                return Err(L2Error::Range { what: "tags", value: 3, expected: "0 to 2" });
            }
        }
        match rewrite.filter(|r| *r != TagRewrite { pop: 0, push: Vec::new() }) {
            Some(rewrite) => drop(self.l2.rewrites.insert(index, rewrite)),
            None => drop(self.l2.rewrites.remove(&index)),
        }
        self.wire(index)?;
        self.tell(&IfEvent::L2(index));
        Ok(())
    }

    /// What happens to the tags of an interface's frames.
    pub fn tag_rewrite(&self, index: IfIndex) -> Option<&TagRewrite> {
        self.l2.rewrites.get(&index)
    }

    /// Forgets learned addresses.
    ///
    /// # Errors
    /// No such domain or interface.
    pub fn flush_macs(&mut self, which: Flush) -> Result<(), L2Error> {
        use super::mac::MacValue;
        match which {
            Flush::All => {
                for domain in self.l2.domains.values_mut() {
                    domain.sequence = domain.sequence.wrapping_add(1);
                }
                self.forget_macs(|_, _, value| value.is(MacValue::LEARNED));
            }
            Flush::Domain(id) => {
                let domain = self.domain_mut(id)?;
                domain.sequence = domain.sequence.wrapping_add(1);
                let index = domain.index;
                self.forget_macs(|_, at, value| at == index && value.is(MacValue::LEARNED));
            }
            Flush::Interface(interface) => {
                self.interfaces.expect(interface)?;
                for port in self.l2.domains.values_mut().flat_map(|d| &mut d.ports).filter(|p| p.interface == interface) {
                    port.sequence = port.sequence.wrapping_add(1);
                }
                self.forget_macs(|_, _, value| value.interface() == interface && value.is(MacValue::LEARNED));
            }
        }
        Ok(())
    }
}
