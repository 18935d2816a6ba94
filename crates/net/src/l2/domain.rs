//! Bridge domains: what the main thread knows of them, and what it publishes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::{IfIndex, Verdict};
use quiver_wire::MacAddr;

use super::port::port_flags;

/// What a port of a bridge domain is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortKind {
    /// A port like others.
    #[default]
    Normal,
    /// The router's own end: a BVI or loopback whose addresses hosts of the domain reach.
    Bvi,
    /// All frames to unknown destinations go here, and nothing else is flooded to it.
    UnknownForward,
}

/// A port of a bridge domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgePort {
    /// Interface.
    pub interface: IfIndex,
    /// What it is for.
    pub kind: PortKind,
    /// Split-horizon group: ports of the same one, other than 0, do not send to each other.
    pub group: u8,
    /// Sources of its frames are learned.
    pub learn: bool,
    /// Its frames are forwarded to known destinations.
    pub forward: bool,
    /// Its frames to groups are flooded.
    pub flood: bool,
    /// Its frames to unknown destinations are flooded.
    pub unknown_flood: bool,
    /// Its ARP and ND questions are answered from the domain's table.
    pub arp_term: bool,
    /// Times its addresses were flushed.
    pub sequence: u8,
    /// Most addresses that are learned from its frames.
    pub learn_limit: u32,
    /// Addresses learned behind it.
    pub learned: u32,
}

/// Addresses that a new domain, and a new port of one, may learn. Half for a port: one that is flooded with source addresses leaves
/// as many to all others. Two ports can still learn a million between them.
pub(crate) const LEARN_LIMIT: u32 = 1 << 20;
pub(crate) const PORT_LEARN_LIMIT: u32 = LEARN_LIMIT / 2;
/// Minutes after which a silent address is forgotten in a new domain: the recommended ageing time of IEEE 802.1D, table 7-5.
pub(crate) const MAC_AGE: u8 = 5;

impl BridgePort {
    pub(super) fn new(interface: IfIndex, kind: PortKind, group: u8) -> Self {
        let on = true;
        Self {
            interface,
            kind,
            group,
            learn: on,
            forward: on,
            flood: on,
            unknown_flood: on,
            arp_term: on,
            sequence: 0,
            learn_limit: PORT_LEARN_LIMIT,
            learned: 0,
        }
    }

    fn has_room(&self) -> bool {
        self.learned < self.learn_limit
    }
}

/// What can be switched in a bridge domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BdSwitch {
    /// Learning of addresses.
    Learn,
    /// Forwarding to known destinations.
    Forward,
    /// Flooding of frames to unknown destinations.
    UnknownFlood,
    /// Flooding of frames to groups.
    Flood,
    /// Answers to ARP and ND from the domain's table.
    ArpTerm,
    /// ARP requests are sent to the one asked for, instead of being answered.
    ArpForward,
}

/// A bridge domain, as the main thread knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeDomain {
    /// The user's number, 1 to 16,777,215.
    pub id: u32,
    /// Its index in the data path.
    pub index: u16,
    /// [`BdSwitch::Learn`].
    pub learn: bool,
    /// [`BdSwitch::Forward`].
    pub forward: bool,
    /// [`BdSwitch::UnknownFlood`].
    pub unknown_flood: bool,
    /// [`BdSwitch::Flood`].
    pub flood: bool,
    /// [`BdSwitch::ArpTerm`].
    pub arp_term: bool,
    /// [`BdSwitch::ArpForward`].
    pub arp_forward: bool,
    /// Minutes after which a silent address is forgotten; 0: never.
    pub mac_age: u8,
    /// Most learned addresses.
    pub learn_limit: u32,
    /// Learned addresses.
    pub learned: u32,
    /// User's text.
    pub tag: Option<String>,
    /// Ports in order of joining.
    pub ports: Vec<BridgePort>,
    /// Link addresses known by configuration.
    pub neighbors: BTreeMap<IpAddr, MacAddr>,
    /// Times its addresses were flushed.
    pub sequence: u8,
}

impl BridgeDomain {
    pub(super) fn new(id: u32, index: u16) -> Self {
        Self {
            id,
            index,
            learn: true,
            forward: true,
            unknown_flood: true,
            flood: true,
            arp_term: false,
            arp_forward: false,
            mac_age: 0,
            learn_limit: LEARN_LIMIT,
            learned: 0,
            tag: None,
            ports: Vec::new(),
            neighbors: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Its BVI.
    pub fn bvi(&self) -> Option<IfIndex> {
        self.ports.iter().find(|p| p.kind == PortKind::Bvi).map(|p| p.interface)
    }

    /// Where frames to unknown destinations go instead of to all ports.
    pub fn unknown_forward(&self) -> Option<IfIndex> {
        self.ports.iter().find(|p| p.kind == PortKind::UnknownForward).map(|p| p.interface)
    }

    /// A port.
    pub fn port(&self, interface: IfIndex) -> Option<&BridgePort> {
        self.ports.iter().find(|p| p.interface == interface)
    }

    pub(super) fn switch(&mut self, which: BdSwitch) -> &mut bool {
        match which {
            BdSwitch::Learn => &mut self.learn,
            BdSwitch::Forward => &mut self.forward,
            BdSwitch::UnknownFlood => &mut self.unknown_flood,
            BdSwitch::Flood => &mut self.flood,
            BdSwitch::ArpTerm => &mut self.arp_term,
            BdSwitch::ArpForward => &mut self.arp_forward,
        }
    }

    /// Whether another address may be learned behind a port.
    pub(super) fn has_room_for(&self, port: &BridgePort) -> bool {
        self.learned < self.learn_limit && port.has_room()
    }

    pub(super) fn port_mut(&mut self, interface: IfIndex) -> Option<&mut BridgePort> {
        self.ports.iter_mut().find(|p| p.interface == interface)
    }

    /// The flags of a port's word: what both the port and the domain want.
    pub(super) fn flags(&self, port: &BridgePort) -> u16 {
        use port_flags::*;
        // A BVI's only source is its own address, which is known.
        let learns = port.learn && port.kind != PortKind::Bvi;
        [
            (MEMBER, true),
            (LEARN, learns && self.learn),
            (ROOM, self.has_room_for(port)),
            (FORWARD, port.forward && self.forward),
            (FLOOD_UNKNOWN, port.unknown_flood && (self.unknown_flood || self.unknown_forward().is_some())),
            (FLOOD_GROUPS, port.flood && self.flood),
            (AGE, self.mac_age > 0),
            (SUPPRESS, port.arp_term && self.arp_term),
        ]
        .into_iter()
        .fold(0, |flags, (flag, on)| if on { flags | flag } else { flags })
    }
}

/// A port that frames may be flooded to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloodPort {
    pub interface: IfIndex,
    /// Slot of `l2-flood`.
    pub slot: Verdict,
    pub group: u8,
    /// `false` for a port that takes only frames to unknown destinations.
    pub floods: bool,
    pub is_bvi: bool,
}

/// A domain as the data path sees it.
#[derive(Debug, Default)]
pub(super) struct DomainView {
    pub ports: Vec<FloodPort>,
    pub unknown: Option<FloodPort>,
    pub neighbors: HashMap<IpAddr, MacAddr>,
    pub unicast_arp: bool,
}

/// All domains, by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains(pub Vec<Option<Arc<DomainView>>>);

impl Domains {
    #[inline]
    pub fn get(&self, index: u16) -> Option<&DomainView> {
        self.0.get(usize::from(index))?.as_deref()
    }
}
