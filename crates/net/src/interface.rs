//! Interfaces: their names, states, devices and nodes.
//!
//! ```text
//!   <kind>-input ──► ethernet-input ──► … ──► <name>-output ──► <name>-tx ──► device
//!                    (arc device-input)       (arc interface-output)
//! ```

pub mod api;
pub(crate) mod configuration;
mod create;
pub mod ops;
pub(crate) mod output;
pub(crate) mod placement;
mod relations;
pub(crate) mod restart;
mod state;
mod sub;

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::{IfIndex, Link, MAX_INTERFACES, NodeId, Port};
use quiver_tables::pool::IndexPool;
use quiver_tables::qsbr;
use quiver_wire::MacAddr;

use crate::l2::PortKind;

pub use configuration::{Origin, Tunnel};
pub use create::{NewInterface, Tx};
pub use placement::RxPlace;
pub use sub::{SubMatch, VLAN_MAX, VlanId};

/// A kind of interface. It is declared where such interfaces are made, and known nowhere else.
#[derive(Debug, PartialEq, Eq)]
pub struct InterfaceKind {
    /// The word for it in requests.
    pub name: &'static str,
    /// What errors call such an interface, with its article.
    pub called: &'static str,
    /// Type of device in the binary API.
    pub device_type: &'static str,
}

impl InterfaceKind {
    /// Loopback interfaces.
    pub const LOOPBACK: Self = Self { name: "loopback", called: "a loopback", device_type: "Loopback" };
    /// Interfaces by which the router is in a bridge domain.
    pub const BVI: Self = Self { name: "bvi", called: "a BVI", device_type: "BVI" };
    /// VLAN sub-interfaces, which have the type of their parent.
    pub const SUB: Self = Self { name: "sub", called: "a sub-interface", device_type: "" };
}

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `local0`.
    Local,
    /// A device behind the port contract.
    Device(&'static InterfaceKind),
    /// An interface whose end is a node of this program (loopback, packet generator).
    Virtual(&'static InterfaceKind),
    /// A VLAN sub-interface.
    Sub(SubMatch),
}

impl Kind {
    /// A loopback interface.
    pub const LOOPBACK: Self = Self::Virtual(&InterfaceKind::LOOPBACK);

    /// An interface by which the router is in a bridge domain. In none, it is as a loopback.
    pub const BVI: Self = Self::Virtual(&InterfaceKind::BVI);

    /// Whether what is sent on such an interface comes in on it again: a loopback, a BVI.
    pub fn is_loop(&self) -> bool {
        *self == Self::LOOPBACK || *self == Self::BVI
    }

    /// Its kind; `local0` has none.
    pub const fn declared(&self) -> Option<&'static InterfaceKind> {
        match self {
            Self::Local => None,
            Self::Device(kind) | Self::Virtual(kind) => Some(kind),
            Self::Sub(_) => Some(&InterfaceKind::SUB),
        }
    }
}

/// Largest packets and frames of an interface, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Largest layer-3 packet; the others fall back on it where they are 0.
    pub l3: u32,
    /// Largest IPv4 packet, or 0.
    pub ip4: u32,
    /// Largest IPv6 packet, or 0.
    pub ip6: u32,
    /// Largest MPLS packet, or 0.
    pub mpls: u32,
}

/// Layer-2 use of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2Mode {
    /// None: packets are routed.
    #[default]
    L3,
    /// Every frame goes to the peer.
    CrossConnect(IfIndex),
    /// A port of a bridge domain.
    Bridge {
        /// Its number.
        domain: u32,
        /// Its index in the data path.
        index: u16,
        /// What the port is for.
        kind: PortKind,
        /// Split-horizon group.
        group: u8,
    },
}

/// Bytes of an Ethernet header without tags: the difference between frames and layer-3 packets.
pub(crate) const ETHERNET_HEADER: u32 = 14;

/// An interface as the main thread knows it.
pub struct Interface {
    /// Its number.
    pub index: IfIndex,
    /// Its name, the only one of its kind; [`crate::Router::rename`] changes it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Administratively up.
    pub admin_up: bool,
    /// State of the link.
    pub link: Link,
    /// Own MAC address.
    pub mac: MacAddr,
    /// Of one of several links of a bond, whose MAC address is in `mac`: its own, for what it says about the link itself.
    pub member_mac: Option<MacAddr>,
    /// Largest packets.
    pub mtu: Mtu,
    /// Largest frame that the device takes, bytes without FCS.
    pub max_frame: u32,
    /// The interface that carries this one (itself, unless it is a sub-interface).
    pub parent: IfIndex,
    /// User's table numbers, IPv4 and IPv6.
    pub tables: (u32, u32),
    /// Addresses with prefix lengths, in order of configuration.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Borrows its addresses from another.
    pub unnumbered: Option<IfIndex>,
    /// Layer-2 use.
    pub l2: L2Mode,
    /// User's text.
    pub tag: Option<String>,
    /// Accepts frames to any address.
    pub promiscuous: bool,
    /// Packets to the broadcast addresses of its IPv4 prefixes are broadcast there instead of dropped.
    pub directed_broadcast: bool,
    /// IPv6 came with an address, and goes with the last one.
    pub ip6_by_address: bool,
    /// `<name>-output`.
    pub output: NodeId,
    /// `<name>-tx` (the parent's for a sub-interface).
    pub tx: NodeId,
    /// Device and placement of its queues.
    pub device: Option<Device>,
    /// How it began.
    pub origin: Origin,
    /// Features that the user has switched, by arc and feature: on or off.
    pub features: BTreeMap<(String, String), bool>,
}

/// The device behind an interface.
pub struct Device {
    /// The driver's object.
    pub port: Box<dyn Port>,
    /// Node that polls its queues.
    pub input: NodeId,
    /// Place of each receive queue.
    pub placement: Vec<RxPlace>,
    /// Transmit queues on their way to their thread.
    pub(crate) tx: placement::TxQueues,
}

impl Device {
    /// Threads that poll its queues, each once.
    fn threads(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.placement.iter().map(|p| p.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }
}

impl Interface {
    /// One that is down, of which nothing is known yet; packets to it go to this node.
    fn bare(index: IfIndex, name: String, kind: Kind, output: NodeId) -> Self {
        Self {
            index,
            origin: Origin { name: name.clone(), ..Origin::default() },
            name,
            kind,
            admin_up: false,
            link: Link::default(),
            mac: MacAddr::ZERO,
            member_mac: None,
            mtu: Mtu { l3: 0, ip4: 0, ip6: 0, mpls: 0 },
            max_frame: 0,
            parent: index,
            tables: (0, 0),
            addresses: Vec::new(),
            unnumbered: None,
            l2: L2Mode::L3,
            tag: None,
            promiscuous: false,
            directed_broadcast: false,
            ip6_by_address: false,
            output,
            tx: output,
            device: None,
            features: BTreeMap::new(),
        }
    }

    /// The driver's object of its device, where it is of this type: for what a driver's devices alone show.
    pub fn port<P: Port>(&self) -> Option<&P> {
        let port: &dyn Any = self.device.as_ref()?.port.as_ref();
        port.downcast_ref()
    }

    /// The same, for what can be changed of a driver's devices alone.
    pub fn port_mut<P: Port>(&mut self) -> Option<&mut P> {
        let port: &mut dyn Any = self.device.as_mut()?.port.as_mut();
        port.downcast_mut()
    }

    /// Largest IPv4 packet.
    pub fn mtu4(&self) -> u32 {
        if self.mtu.ip4 != 0 { self.mtu.ip4 } else { self.mtu.l3 }
    }

    /// Largest IPv6 packet.
    pub fn mtu6(&self) -> u32 {
        if self.mtu.ip6 != 0 { self.mtu.ip6 } else { self.mtu.l3 }
    }

    /// Source of frames about the link itself. Links of one bond may lead to several switches, none of which must learn the bond's address
    /// by them.
    pub fn link_mac(&self) -> MacAddr {
        self.member_mac.unwrap_or(self.mac)
    }

    /// Whether its packets have an Ethernet header; without one they are IP packets, and there are no neighbours to ask for.
    pub fn has_link_layer(&self) -> bool {
        !matches!(self.kind, Kind::Device(_) | Kind::Virtual(_)) || !self.mac.is_zero()
    }

    /// Bytes of a frame that are not of its layer-3 packet, without VLAN tags.
    pub fn link_header_len(&self) -> u32 {
        if self.has_link_layer() { ETHERNET_HEADER } else { 0 }
    }

    /// The link-local address that the interface gives itself (RFC 4291, 2.5.6). Without a MAC address it follows from what the driver has
    /// drawn for the device, or both ends of a link would have the same one; where there is no device, from its number.
    pub fn link_local(&self) -> Ipv6Addr {
        match &self.device {
            _ if !self.mac.is_zero() => self.mac.link_local(),
            Some(device) => MacAddr(device.port.identity()).link_local(),
            None => MacAddr::numbered(self.index.0).link_local(),
        }
    }

    /// Tags that frames of this interface carry, outermost first: TPID and VLAN id.
    pub fn tags(&self) -> Vec<(u16, u16)> {
        match &self.kind {
            Kind::Sub(m) => m.tags(),
            _ => Vec::new(),
        }
    }
}

/// What happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfEvent {
    /// It exists now.
    Created(IfIndex),
    /// It is about to go; it still exists while listeners run.
    Deleted(IfIndex),
    /// Administratively up or down.
    Admin(IfIndex, bool),
    /// The link came or went.
    Link(IfIndex, bool),
    /// Another MAC address.
    Mac(IfIndex),
    /// Another MTU.
    Mtu(IfIndex),
    /// An address was added (`true`) or removed.
    Address(IfIndex, IpAddr, u8, bool),
    /// Another table for IPv4 or IPv6 (`true`).
    Table(IfIndex, bool),
    /// Another layer-2 use.
    L2(IfIndex),
    /// Accepts frames to any address, or no longer.
    Promiscuous(IfIndex),
    /// Its device had gone and was opened anew.
    Device(IfIndex),
    /// An interface of Linux stands for it now (`true`), or no longer ([`crate::linux`]).
    HostInterface(IfIndex, bool),
}

/// Why an interface operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    /// No such name.
    #[error("unknown interface `{0}'")]
    UnknownName(String),
    /// No such number.
    #[error("unknown interface index {0}")]
    UnknownIndex(u32),
    /// The name is taken.
    #[error("interface `{0}' exists already")]
    Exists(String),
    /// All numbers are taken.
    #[error("no room for more than {MAX_INTERFACES} interfaces")]
    Full,
    /// Not possible for this kind of interface.
    #[error("{0}")]
    NotPossible(String),
    /// A value out of range.
    #[error("{what} {value} is out of range, expected {expected}")]
    Range {
        /// What was set.
        what: &'static str,
        /// The value.
        value: u64,
        /// What would do.
        expected: String,
    },
    /// The graph refused.
    #[error(transparent)]
    Graph(#[from] quiver_graph::GraphError),
    /// The device refused.
    #[error("{name}: {error}")]
    Device {
        /// Interface.
        name: String,
        /// What the operating system said.
        error: String,
    },
}

/// All interfaces.
pub struct Interfaces {
    by_index: BTreeMap<u32, Interface>,
    by_name: HashMap<String, IfIndex>,
    numbers: IndexPool,
    relations: relations::Relations,
    /// Numbers that interfaces had in the process before, by the names that they begin with.
    wanted: HashMap<String, u32>,
}

impl Interfaces {
    pub(crate) fn new(domain: &qsbr::Domain) -> Self {
        Self {
            by_index: BTreeMap::new(),
            by_name: HashMap::new(),
            numbers: IndexPool::new(MAX_INTERFACES, domain),
            relations: Default::default(),
            wanted: HashMap::new(),
        }
    }

    /// An interface.
    pub fn get(&self, index: IfIndex) -> Option<&Interface> {
        self.by_index.get(&index.0)
    }

    /// An interface, to be changed. What the data path must know goes through [`crate::Router`]'s functions instead.
    pub fn get_mut(&mut self, index: IfIndex) -> Option<&mut Interface> {
        self.by_index.get_mut(&index.0)
    }

    /// An interface that must exist.
    ///
    /// # Errors
    /// It does not.
    pub fn expect(&self, index: IfIndex) -> Result<&Interface, InterfaceError> {
        self.get(index).ok_or(InterfaceError::UnknownIndex(index.0))
    }

    /// By name.
    pub fn by_name(&self, name: &str) -> Option<&Interface> {
        self.get(*self.by_name.get(name)?)
    }

    fn insert(&mut self, interface: Interface) {
        self.relations.insert(&interface);
        self.by_name.insert(interface.name.clone(), interface.index);
        self.by_index.insert(interface.index.0, interface);
    }

    fn remove(&mut self, index: IfIndex) -> Option<Interface> {
        let interface = self.by_index.remove(&index.0)?;
        self.by_name.remove(&interface.name);
        self.relations.remove(&interface);
        Some(interface)
    }

    /// Gives an interface a name that none has.
    fn rename(&mut self, index: IfIndex, name: &str) -> Result<(), InterfaceError> {
        let interface = self.by_index.get_mut(&index.0).ok_or(InterfaceError::UnknownIndex(index.0))?;
        let old = std::mem::replace(&mut interface.name, name.into());
        self.by_name.remove(&old);
        self.relations.renamed(&old);
        self.by_name.insert(name.into(), index);
        Ok(())
    }

    /// Sub-interfaces of an interface.
    pub fn subs(&self, parent: IfIndex) -> impl Iterator<Item = IfIndex> {
        self.relations.subs_of(parent)
    }

    /// Interfaces that borrow the addresses of another.
    pub fn borrowers(&self, lender: IfIndex) -> impl Iterator<Item = IfIndex> {
        self.relations.borrowers_of(lender)
    }

    /// Makes an interface borrow its addresses, or no more.
    pub(crate) fn set_lender(&mut self, index: IfIndex, lender: Option<IfIndex>) {
        let Some(interface) = self.by_index.get_mut(&index.0) else { return };
        let before = std::mem::replace(&mut interface.unnumbered, lender);
        self.relations.borrow(index, before, lender);
    }

    /// Gives an interface an address.
    pub(crate) fn push_address(&mut self, index: IfIndex, address: IpAddr, len: u8) {
        let Some(interface) = self.by_index.get_mut(&index.0) else { return };
        interface.addresses.push((address, len));
        self.relations.address(interface, address, len, true);
    }

    /// Takes an address from an interface.
    pub(crate) fn take_address(&mut self, index: IfIndex, address: IpAddr, len: u8) {
        let Some(interface) = self.by_index.get_mut(&index.0) else { return };
        interface.addresses.retain(|a| *a != (address, len));
        self.relations.address(interface, address, len, false);
    }

    /// An address of a table whose prefix overlaps with a new one of an interface: its interface, it, and its length.
    pub(crate) fn conflict(&self, table: u32, index: IfIndex, new: quiver_wire::IpPrefix) -> Option<(IfIndex, IpAddr, u8)> {
        self.relations.prefixes.conflict(table, index, new)
    }

    /// By name, or by number where the text is one.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<IfIndex, InterfaceError> {
        let number = || name.parse().ok().map(IfIndex).filter(|i| self.get(*i).is_some());
        self.by_name(name).map(|i| i.index).or_else(number).ok_or_else(|| InterfaceError::UnknownName(name.into()))
    }

    /// Name for display.
    pub fn name(&self, index: IfIndex) -> String {
        self.get(index).map_or_else(|| format!("DELETED ({index})"), |i| i.name.clone())
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.by_index.values()
    }

    /// One more than the highest number in use.
    pub fn end(&self) -> u32 {
        self.by_index.keys().next_back().map_or(0, |i| i + 1)
    }
}
