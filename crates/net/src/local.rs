//! Packets for this router itself.
//!
//! ```text
//!   lookup ──► ip4-receive ──┬── by protocol ──► ip4-icmp-input, ip4-udp-lookup, …
//!                │           ├── fragments ────► ip4-local-full-reassembly ══ring══► ip4-local-reassembly-input
//!        [ arc ip4-local ]   └── unknown ──────► ip4-icmp-error, ip4-punt                      │
//!                └─► ip4-local ◄───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Features of the arc `ip4-local` see packets first and can hand them to somebody else; those that they hand on are sorted in the
//! node of that name, as in `ip4-receive`.
//!
//! Other modules and plugins take protocols and ports by [`Router::register_ip_protocol`] and
//! [`Router::register_udp_port`]. Their node gets packets with the data at the IP header, trimmed to the IP length, whole
//! (fragments have been joined), transport checksum verified, and the offset of the upper layer in the aux lane.

pub(crate) mod address;
pub(crate) mod api;
pub mod datagram;
pub(crate) mod header;
mod limit;
pub mod reassembly;
mod receive;
pub(crate) mod table;
mod udp;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use quiver_graph::{ArcPoint, ArcSpec, GraphError, NodeSpec, Pkt};
use quiver_tables::OutOfMemory;
use quiver_tables::hash::InsertError;
use quiver_tables::qsbr::Domain;
use quiver_wire::ipv4::IpProtocol;

use self::address::SourceRecords;
pub use self::header::sum_range;
use self::header::{Behind, LocalFamily, node_name, trace};
use self::limit::{Limits, LimitsReader};
pub use self::limit::{UdpPeer, pair_key};
use self::reassembly::Reassembled;
use self::receive::Receive;
use self::table::SlotTable;
use self::udp::UdpLookup;
use crate::ip::{Family as _, FamilyId, V4, V6};
use crate::punt::tables::NODES;
use crate::{NetError, Router};

/// Why a protocol, port or type could not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Another node has it.
    #[error("{what} {number} is taken by `{node}'")]
    Taken {
        /// What was asked for.
        what: &'static str,
        /// Which one.
        number: u16,
        /// Who has it.
        node: String,
    },
    /// No such node, or no room for an edge to it.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No room for another peer whose datagrams a node takes.
    #[error("peers of UDP ports: {0}")]
    Peers(InsertError),
}

/// Who takes what, of one family: as tables for packets and as names for people.
struct Takers {
    /// Of `ip4-receive` and `ip4-local`, which have slots of their own.
    protocols: [SlotTable; 2],
    protocol_names: BTreeMap<u16, String>,
    ports: SlotTable,
    port_names: BTreeMap<u16, String>,
    /// Ports of tunnels, whose datagrams need no checksum over IPv6 either: not 0.
    unchecked: SlotTable,
    /// Ports of which the node takes the datagrams of some peers only.
    limits: Limits,
    icmp: SlotTable,
    icmp_names: BTreeMap<u16, String>,
}

impl Takers {
    fn new(domain: &Domain) -> Result<Self, OutOfMemory> {
        Ok(Self {
            protocols: [SlotTable::new(256), SlotTable::new(256)],
            protocol_names: BTreeMap::new(),
            ports: SlotTable::new(1 << 16),
            port_names: BTreeMap::new(),
            unchecked: SlotTable::new(1 << 16),
            limits: Limits::new(domain)?,
            icmp: SlotTable::new(256),
            icmp_names: BTreeMap::new(),
        })
    }
}

/// The module's state on the main thread.
pub(crate) struct Local {
    takers: [Takers; 2],
    pub(crate) sources: SourceRecords,
}

impl Local {
    pub(crate) fn icmp_types(&self, family: FamilyId) -> SlotTable {
        self.takers[family as usize].icmp.clone()
    }
}

/// What can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Protocol,
    Port,
    Icmp,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "ip protocol",
            Self::Port => "udp port",
            Self::Icmp => "icmp type",
        }
    }
}

/// Which protocols and UDP ports nodes of this program take, for a feature that hands what nobody takes to another stack.
#[derive(Clone)]
pub struct LocalTakers {
    family: FamilyId,
    protocols: SlotTable,
    ports: SlotTable,
    limits: LimitsReader,
}

impl LocalTakers {
    /// Whether a node takes an IP protocol.
    #[inline(always)]
    pub fn has_protocol(&self, protocol: IpProtocol) -> bool {
        self.protocols.get(protocol.0.into()) != 0
    }

    /// Whether a node takes a UDP datagram to this port, whose data begins with its IP header.
    #[inline(always)]
    pub fn takes_udp(&self, packet: &Pkt<'_>, port: u16) -> bool {
        self.ports.get(port) != 0 && (!self.limits.has(port) || self.is_allowed(packet, port))
    }

    #[cold]
    fn is_allowed(&self, packet: &Pkt<'_>, port: u16) -> bool {
        let (peer, local) = match self.family {
            FamilyId::V4 => {
                let (src, dst) = V4::addresses(packet);
                (V4::address(src), V4::address(dst))
            }
            FamilyId::V6 => {
                let (src, dst) = V6::addresses(packet);
                (V6::address(src), V6::address(dst))
            }
        };
        self.limits.allows(port, packet.rx_if(), local, peer)
    }
}

/// The upper layer of a packet whose data begins with its IP header: protocol, and where it begins, bytes from there. `None` for
/// fragments, for headers that are damaged or ask for an error, and where nothing follows them.
#[inline(always)]
pub fn upper_layer(family: FamilyId, packet: &Pkt<'_>) -> Option<(IpProtocol, usize)> {
    let behind = match family {
        FamilyId::V4 => V4::length(packet).map(|_| V4::behind(packet)),
        FamilyId::V6 => V6::length(packet).map(|_| V6::behind(packet)),
    };
    match behind? {
        Behind::Upper { protocol, offset, .. } => Some((protocol, offset.into())),
        _ => None,
    }
}

/// The nodes that sort what comes in for this router, after `ip4-` or `ip6-`.
const RECEIVE: [&str; 2] = ["receive", "local"];
const UDP: &str = "udp-lookup";

impl Router {
    /// Hands packets for this router of an IP protocol to a node, which finds the offset of the upper layer in the aux lane.
    ///
    /// # Errors
    /// No such node, or another one has the protocol.
    pub fn register_ip_protocol(&mut self, family: FamilyId, protocol: IpProtocol, node: &str) -> Result<(), RegisterError> {
        self.take(family, What::Protocol, protocol.0.into(), node)
    }

    /// Hands UDP datagrams for this router on a port to a node, which finds the offset of the UDP header in the aux lane.
    ///
    /// # Errors
    /// No such node, or another one has the port.
    pub fn register_udp_port(&mut self, family: FamilyId, port: u16, node: &str) -> Result<(), RegisterError> {
        self.take(family, What::Port, port, node)
    }

    /// Takes datagrams to a port of IPv6 without a checksum too, as a tunnel may that finds each packet by its addresses (RFC 6935, 5;
    /// RFC 6936, 5), until the port is given up. Over IPv4 all ports do.
    pub fn allow_udp_without_checksum(&mut self, port: u16) {
        if let Some(part) = self.part_mut::<Local>() {
            part.takers[FamilyId::V6 as usize].unchecked.set(port, 1);
        }
    }

    /// Hands ICMP messages of a type to a node, which finds the offset of the ICMP header in the aux lane; the checksum has
    /// been verified, and for neighbour discovery the hop limit and the code too.
    ///
    /// # Errors
    /// No such node, or another one has the type.
    pub fn register_icmp_type(&mut self, family: FamilyId, kind: u8, node: &str) -> Result<(), RegisterError> {
        self.take(family, What::Icmp, kind.into(), node)
    }

    /// Nobody takes the protocol any more: it is unreachable.
    pub fn unregister_ip_protocol(&mut self, family: FamilyId, protocol: IpProtocol) {
        self.give_up(family, What::Protocol, protocol.0.into());
    }

    /// Nobody listens on the port any more: it is unreachable.
    pub fn unregister_udp_port(&mut self, family: FamilyId, port: u16) {
        self.give_up(family, What::Port, port);
        if let Some(part) = self.part_mut::<Local>() {
            let takers = &mut part.takers[family as usize];
            takers.unchecked.set(port, 0);
            takers.limits.lift(port);
        }
    }

    /// Nobody takes the type any more.
    pub fn unregister_icmp_type(&mut self, family: FamilyId, kind: u8) {
        self.give_up(family, What::Icmp, kind.into());
    }

    /// Protocols that are taken, and by which nodes.
    pub fn ip_protocols(&self, family: FamilyId) -> Vec<(IpProtocol, String)> {
        self.taken(family, What::Protocol).into_iter().map(|(number, node)| (IpProtocol(number as u8), node)).collect()
    }

    /// UDP ports that nodes listen on.
    pub fn udp_ports(&self, family: FamilyId) -> Vec<(u16, String)> {
        self.taken(family, What::Port)
    }

    /// What nodes take, as nodes can ask it.
    ///
    /// # Panics
    /// Never: the state is made with the router.
    pub fn local_takers(&self, family: FamilyId) -> LocalTakers {
        let takers = &self.part::<Local>().expect("made with the router").takers[family as usize];
        LocalTakers { family, protocols: takers.protocols[0].clone(), ports: takers.ports.clone(), limits: takers.limits.reader() }
    }

    /// ICMP types that are taken, and by which nodes.
    pub fn icmp_types(&self, family: FamilyId) -> Vec<(u8, String)> {
        self.taken(family, What::Icmp).into_iter().map(|(number, node)| (number as u8, node)).collect()
    }

    fn taken(&self, family: FamilyId, what: What) -> Vec<(u16, String)> {
        let Some(part) = self.part::<Local>() else { return Vec::new() };
        let takers = &part.takers[family as usize];
        let names = match what {
            What::Protocol => &takers.protocol_names,
            What::Port => &takers.port_names,
            What::Icmp => &takers.icmp_names,
        };
        names.iter().map(|(number, node)| (*number, node.clone())).collect()
    }

    fn take(&mut self, family: FamilyId, what: What, number: u16, node: &str) -> Result<(), RegisterError> {
        let taken = self.taken(family, what);
        if let Some((_, owner)) = taken.into_iter().find(|(n, owner)| *n == number && owner != node) {
            return Err(RegisterError::Taken { what: what.name(), number, node: owner });
        }
        let to = self.graph.node(node).ok_or_else(|| GraphError::NoSuchNode(node.into()))?;
        let from = match what {
            What::Protocol => RECEIVE.to_vec(),
            What::Port => vec![UDP],
            What::Icmp => vec!["icmp-input"],
        };
        let mut slots = Vec::new();
        for name in from {
            let name = node_name(family, name);
            let from = self.graph.node(&name).ok_or(GraphError::NoSuchNode(name))?;
            slots.push(self.graph.edge(from, to)?.index());
        }
        self.set_taker(family, what, number, &slots, Some(node));
        Ok(())
    }

    fn give_up(&mut self, family: FamilyId, what: What, number: u16) {
        self.set_taker(family, what, number, &[0, 0], None);
    }

    fn set_taker(&mut self, family: FamilyId, what: What, number: u16, slots: &[u16], node: Option<&str>) {
        let Some(part) = self.part_mut::<Local>() else { return };
        let takers = &mut part.takers[family as usize];
        let (tables, names) = match what {
            What::Protocol => (&takers.protocols[..], &mut takers.protocol_names),
            What::Port => (std::slice::from_ref(&takers.ports), &mut takers.port_names),
            What::Icmp => (std::slice::from_ref(&takers.icmp), &mut takers.icmp_names),
        };
        for (table, slot) in tables.iter().zip(slots) {
            table.set(number, *slot);
        }
        match node {
            Some(node) => drop(names.insert(number, node.into())),
            None => drop(names.remove(&number)),
        }
    }
}

/// Makes the state that nodes are made from; before the nodes.
pub(crate) fn prepare(router: &mut Router) -> Result<(), NetError> {
    let sources = SourceRecords::new().map_err(|_| NetError::Memory("own addresses"))?;
    let domain = router.graph.domain();
    let memory = |_| NetError::Memory("peers of UDP ports");
    let takers = [Takers::new(domain).map_err(memory)?, Takers::new(domain).map_err(memory)?];
    router.add_part(Local { takers, sources });
    router.listen(address::on_event);
    reassembly::prepare(router);
    Ok(())
}

/// Takes the protocols that this crate serves; after the nodes.
pub(crate) fn init(router: &mut Router) -> Result<(), NetError> {
    for family in [FamilyId::V4, FamilyId::V6] {
        let icmp = if family == FamilyId::V4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let graph_error = |error| match error {
            RegisterError::Graph(error) => NetError::Graph(error),
            _ => NetError::Memory("own protocols"),
        };
        router.register_ip_protocol(family, icmp, &node_name(family, "icmp-input")).map_err(graph_error)?;
        router.register_ip_protocol(family, IpProtocol::UDP, &node_name(family, UDP)).map_err(graph_error)?;
    }
    crate::icmp::init(router).map_err(|error| match error {
        RegisterError::Graph(error) => NetError::Graph(error),
        _ => NetError::Memory("own message types"),
    })
}

const fn arc_name(family: FamilyId) -> &'static str {
    match family {
        FamilyId::V4 => "ip4-local",
        FamilyId::V6 => "ip6-local",
    }
}

/// The arcs of this module: they begin where packets for this router come in.
pub(crate) fn arcs() -> [ArcSpec; 2] {
    [FamilyId::V4, FamilyId::V6].map(|family| ArcSpec {
        name: arc_name(family),
        starts: vec![node_name(family, RECEIVE[0])],
        end: node_name(family, RECEIVE[1]),
    })
}

fn family_nodes<F: Reassembled + crate::fib::Select>(router: &Router) -> Vec<NodeSpec> {
    let Some(part) = router.part::<Local>() else { return Vec::new() };
    let takers = &part.takers[F::ID as usize];
    let name = |rest: &str| node_name(F::ID, rest);
    let mut nodes = Vec::new();
    for (at, rest) in RECEIVE.into_iter().enumerate() {
        let arc = ArcPoint::new();
        let node = Receive::<F> {
            protocols: takers.protocols[at].clone(),
            unchecked: takers.unchecked.clone(),
            punts: router.punt_tables(F::ID),
            interfaces: router.data.interfaces.clone(),
            tables: router.lookup_tables(),
            arc: arc.clone(),
            family: PhantomData,
        };
        let spec = NodeSpec::node(name(rest), node).with_next(name(reassembly::NODE)).with_next(name("icmp-error"));
        let spec = NODES.iter().fold(spec, |spec, node| spec.with_next(name(node)));
        let spec = spec.traced(trace::<F>);
        nodes.push(if at == 0 { spec.on_arc(arc_name(F::ID), arc) } else { spec });
    }
    let node = UdpLookup::<F> { ports: takers.ports.clone(), punts: router.punt_tables(F::ID), family: PhantomData };
    let spec = NodeSpec::node(name(UDP), node).with_next(name("icmp-error"));
    nodes.push(NODES.iter().fold(spec, |spec, node| spec.with_next(name(node))).traced(trace::<F>));
    nodes.extend(reassembly::nodes::<F>(router));
    nodes
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    let mut nodes = family_nodes::<V4>(router);
    nodes.extend(family_nodes::<V6>(router));
    nodes
}
