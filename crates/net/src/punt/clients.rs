//! Clients: programs on this machine that get punted packets by a Unix socket, each as a datagram.
//!
//! ```text
//!   ip4-punt ─► ip4-punt-redirect ── a client has its port, protocol or reason ──► datagram to the client's socket
//!                                                                                   8 bytes: interface, 0; the frame
//!   punt-socket-rx ◄── datagram to the router's socket (`punt { socket }`): 8 bytes: interface, action; a frame or a packet
//!     ├─► ip4-lookup, ip6-lookup (action 1, 2)
//!     └─► output of the interface (action 0)
//! ```
//!
//! Threads send by the router's socket, which never waits: what a client cannot take, one that has stopped or that has gone, is dropped
//! and counted. A client's socket is looked up by its path for each packet, so that a client that comes back gets packets again.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_graph::{IfIndex, NodeCx, NodeSpec, Pkt, VectorNode, drop_reasons, flags, next_nodes};
use quiver_wire::ipv4::IpProtocol;

use super::{L4, Punt, PuntError};
use crate::Router;
use crate::ip::FamilyId;

/// Clients at most.
pub const CLIENTS_MAX: usize = 4096;
/// Bytes before the frame: number of the interface and action, in the machine's byte order, as VPP has it.
pub(crate) const DESCRIPTOR: usize = 8;
/// The longest Ethernet header: two tags.
const LINK_MAX: usize = 22;
/// Bytes of a datagram at most: a joined packet with its link header.
const DATAGRAM_MAX: usize = DESCRIPTOR + LINK_MAX + 65_535;
/// The port of IKE behind NAT (RFC 3948), whose messages begin with a marker of zeros.
const IKE_NAT: u16 = 4500;

quiver_command::words! {
    /// Why a packet is punted, where that has a name of VPP's. There is no IPsec here: ESP packets for the router are of no tunnel.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Reason {
        /// ESP over IPv4.
        Ipsec4NoSuchTunnel = "ipsec4-no-such-tunnel",
        /// ESP over IPv6.
        Ipsec6NoSuchTunnel = "ipsec6-no-such-tunnel",
        /// UDP port 4500 over IPv4 with an SPI of 0: IKE (RFC 3948, 2.2).
        Ipsec4SpiOverUdp0 = "ipsec4-spi-o-udp-0",
    }
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ipsec4NoSuchTunnel, Self::Ipsec6NoSuchTunnel, Self::Ipsec4SpiOverUdp0];

    /// Its number, from 1.
    pub const fn number(self) -> u32 {
        self as u32 + 1
    }

    fn esp(family: FamilyId) -> Self {
        if family == FamilyId::V4 { Self::Ipsec4NoSuchTunnel } else { Self::Ipsec6NoSuchTunnel }
    }
}

/// Which packets a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Those to a port.
    Port(FamilyId, L4, u16),
    /// Those of a protocol.
    Protocol(FamilyId, IpProtocol),
    /// Those punted for a reason.
    Reason(Reason),
}

/// The clients as nodes know them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    socket: Option<Arc<UnixDatagram>>,
    by_packets: HashMap<Wanted, SocketAddr>,
    /// Bytes of the link header by interface.
    links: Vec<u8>,
}

impl Clients {
    /// Whether there are any.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.by_packets.is_empty()
    }

    /// The client of a packet. `upper`: its bytes from the upper layer on.
    pub fn find(&self, family: FamilyId, protocol: IpProtocol, upper: &[u8]) -> Option<&SocketAddr> {
        let port = || upper.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]]));
        let of = |wanted: Wanted| self.by_packets.get(&wanted);
        let by_port = match protocol {
            IpProtocol::UDP if is_ike(family, upper) && of(Wanted::Reason(Reason::Ipsec4SpiOverUdp0)).is_some() => {
                of(Wanted::Reason(Reason::Ipsec4SpiOverUdp0))
            }
            IpProtocol::UDP => port().and_then(|port| of(Wanted::Port(family, L4::Udp, port))),
            IpProtocol::TCP => port().and_then(|port| of(Wanted::Port(family, L4::Tcp, port))),
            IpProtocol::ESP => of(Wanted::Reason(Reason::esp(family))),
            _ => None,
        };
        by_port.or_else(|| of(Wanted::Protocol(family, protocol)))
    }

    /// Sends a packet whose data begins at its IP header, with its link header.
    ///
    /// # Errors
    /// The client has gone, or takes nothing now.
    pub fn send(&self, packet: &Pkt<'_>, client: &SocketAddr, room: &mut Room) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        let rx = packet.rx_if();
        let link = self.links.get(rx.0 as usize).copied().unwrap_or_default();
        let Some(bytes) = room.fill(packet, rx, link) else { return Err(io::ErrorKind::InvalidData.into()) };
        socket.send_to_addr(bytes, client).map(drop)
    }
}

/// Whether a datagram to the port of IKE behind NAT has its marker.
fn is_ike(family: FamilyId, upper: &[u8]) -> bool {
    let port = IKE_NAT.to_be_bytes();
    family == FamilyId::V4 && upper.get(2..4) == Some(&port) && upper.get(8..12) == Some(&[0; 4])
}

/// Where a datagram is put together.
#[derive(Clone)]
pub(crate) struct Room(Vec<u8>);

impl Room {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    fn fill(&mut self, packet: &Pkt<'_>, rx: IfIndex, link: u8) -> Option<&[u8]> {
        if self.0.is_empty() {
            // Once for each node that sends at all.
            self.0.resize(DATAGRAM_MAX, 0);
        }
        let at = DESCRIPTOR + usize::from(link);
        let len = at + packet.total_len();
        let room = self.0.get_mut(..len)?;
        room[..4].copy_from_slice(&rx.0.to_ne_bytes());
        room[4..DESCRIPTOR].fill(0);
        let header = &mut room[DESCRIPTOR..at];
        match link {
            0 => {}
            14 => header.copy_from_slice(&packet.read_before::<[u8; 14]>(14)?),
            18 => header.copy_from_slice(&packet.read_before::<[u8; 18]>(18)?),
            22 => header.copy_from_slice(&packet.read_before::<[u8; LINK_MAX]>(LINK_MAX)?),
            _ => return None,
        }
        let copied = packet.copy_out(0, &mut room[at..]);
        (at + copied == len).then_some(&self.0[..len])
    }
}

/// Clients on the main thread.
#[derive(Default)]
pub(crate) struct Sockets {
    server: Option<(Arc<UnixDatagram>, PathBuf)>,
    /// As they were registered.
    clients: Vec<(Wanted, PathBuf)>,
}

impl Sockets {
    /// Whether there are clients.
    pub fn any(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Whether any client gets the packets of a port.
    pub fn wants_port(&self, family: FamilyId, l4: L4, port: u16) -> bool {
        let by_reason =
            (family, l4, port) == (FamilyId::V4, L4::Udp, IKE_NAT) && self.has(Wanted::Reason(Reason::Ipsec4SpiOverUdp0));
        by_reason || self.has(Wanted::Port(family, l4, port))
    }

    /// The same of a protocol.
    pub fn wants_protocol(&self, family: FamilyId, protocol: IpProtocol) -> bool {
        let by_reason = protocol == IpProtocol::ESP && self.has(Wanted::Reason(Reason::esp(family)));
        by_reason || self.has(Wanted::Protocol(family, protocol))
    }

    fn has(&self, wanted: Wanted) -> bool {
        self.clients.iter().any(|(other, _)| *other == wanted)
    }
}

impl Router {
    /// Gives packets to clients by this socket, which has this path, and lets clients register.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_punt_socket(&mut self, socket: Arc<UnixDatagram>, path: &Path) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        if let Some(part) = self.part_mut::<Punt>() {
            part.sockets.server = Some((socket, path.to_owned()));
        }
        Ok(())
    }

    /// The path of the router's socket; none where clients cannot register.
    pub fn punt_socket(&self) -> Option<&Path> {
        self.part::<Punt>()?.sockets.server.as_ref().map(|(_, path)| path.as_path())
    }

    /// Sends such packets to a client's socket. It takes the place of the client before it.
    ///
    /// # Errors
    /// No socket of the router's own, a path that cannot be, no room.
    pub fn register_punt_client(&mut self, wanted: Wanted, path: &Path) -> Result<(), PuntError> {
        let own = self.punt_socket().ok_or(PuntError::NoSocket)?;
        if !path.is_absolute() || path == own || SocketAddr::from_pathname(path).is_err() {
            return Err(PuntError::SocketPath(path.to_owned()));
        }
        let Some(part) = self.part_mut::<Punt>() else { return Ok(()) };
        let clients = &mut part.sockets.clients;
        let full = clients.len() >= CLIENTS_MAX;
        match clients.iter_mut().find(|(other, _)| *other == wanted) {
            Some((_, known)) => *known = path.to_owned(),
            None if full => return Err(PuntError::Full(CLIENTS_MAX, "punt sockets")),
            None => clients.push((wanted, path.to_owned())),
        }
        self.publish_punt_clients(Some(wanted));
        Ok(())
    }

    /// No longer sends such packets to a client. As in VPP, nothing happens where there is none.
    pub fn deregister_punt_client(&mut self, wanted: Wanted) {
        let Some(part) = self.part_mut::<Punt>() else { return };
        part.sockets.clients.retain(|(other, _)| *other != wanted);
        self.publish_punt_clients(Some(wanted));
    }

    /// Clients, in the order in which they were registered.
    pub fn punt_clients(&self) -> Vec<(Wanted, PathBuf)> {
        self.part::<Punt>().map(|part| part.sockets.clients.clone()).unwrap_or_default()
    }

    /// Has nodes know clients, and the nodes before them which packets are punted.
    pub(super) fn publish_punt_clients(&mut self, changed: Option<Wanted>) {
        let link = |interface: &crate::Interface| match interface.link_header_len() {
            0 => 0,
            header => header as u8 + 4 * interface.tags().len() as u8,
        };
        let mut links = Vec::new();
        for interface in self.interfaces.iter() {
            let at = interface.index.0 as usize;
            links.resize(links.len().max(at + 1), 0);
            links[at] = link(interface);
        }
        let Some(part) = self.part_mut::<Punt>() else { return };
        let address = |(wanted, path): &(Wanted, PathBuf)| Some((*wanted, SocketAddr::from_pathname(path).ok()?));
        let by_packets: HashMap<_, _> = part.sockets.clients.iter().filter_map(address).collect();
        let socket = part.sockets.server.as_ref().map(|(socket, _)| socket.clone());
        part.clients.publish(Arc::new(Clients { socket, by_packets, links }));
        match changed {
            Some(Wanted::Port(family, l4, port)) => part.mark_port(family, l4, port),
            Some(Wanted::Protocol(family, protocol)) => part.mark_protocol(family, protocol),
            Some(Wanted::Reason(Reason::Ipsec4SpiOverUdp0)) => part.mark_port(FamilyId::V4, L4::Udp, IKE_NAT),
            Some(Wanted::Reason(Reason::Ipsec4NoSuchTunnel)) => part.mark_protocol(FamilyId::V4, IpProtocol::ESP),
            Some(Wanted::Reason(Reason::Ipsec6NoSuchTunnel)) => part.mark_protocol(FamilyId::V6, IpProtocol::ESP),
            None => {}
        }
    }

    /// A client's datagram: it leaves by an interface, or goes to where its destination leads. What is wrong with it is counted.
    pub fn take_from_punt_client(&mut self, datagram: &[u8]) {
        let (link, packet) = match Sent::read(datagram) {
            Ok(Sent::Frame(interface, frame)) if self.interfaces.get(interface).is_some_and(|i| i.has_link_layer()) => {
                self.send_frames(vec![(interface, frame.to_vec())]);
                return self.at_punt_socket(|cx| cx.count(RxReason::Received, 1));
            }
            Ok(Sent::Packet(interface, family, packet)) if self.interfaces.get(interface).is_some() => {
                ((interface, family), packet.to_vec())
            }
            Ok(_) => return self.at_punt_socket(|cx| cx.count(RxReason::Action, 1)),
            Err(reason) => return self.at_punt_socket(move |cx| cx.count(reason, 1)),
        };
        let (interface, family) = link;
        self.at_punt_socket(move |cx| {
            let Some(mut packet) = cx.alloc_bytes(&packet, interface) else { return cx.count(RxReason::NoBuffer, 1) };
            cx.view(&mut packet).mark(flags::LOCAL);
            cx.count(RxReason::Received, 1);
            cx.emit(if family == FamilyId::V4 { RxNext::Ip4 } else { RxNext::Ip6 }, packet);
        });
    }

    fn at_punt_socket(&mut self, f: impl FnOnce(&mut NodeCx<'_>) + Send + 'static) {
        let Some(node) = self.graph.node(RX_NODE) else { return };
        let fleet = self.graph.fleet();
        let Some(thread) = fleet.threads().first().copied() else { return };
        fleet.cast(thread, move |worker| {
            worker.at_node(node, f);
        });
    }
}

/// What a client has sent.
enum Sent<'a> {
    /// A frame that leaves by an interface.
    Frame(IfIndex, &'a [u8]),
    /// A packet that is routed as if it had come in by an interface.
    Packet(IfIndex, FamilyId, &'a [u8]),
}

impl<'a> Sent<'a> {
    fn read(datagram: &'a [u8]) -> Result<Self, RxReason> {
        let (descriptor, rest) = datagram.split_at_checked(DESCRIPTOR).ok_or(RxReason::Short)?;
        let word = |at: usize| u32::from_ne_bytes([descriptor[at], descriptor[at + 1], descriptor[at + 2], descriptor[at + 3]]);
        let interface = IfIndex(word(0));
        match word(4) {
            0 if rest.len() > 14 => Ok(Self::Frame(interface, rest)),
            1 => Ok(Self::Packet(interface, FamilyId::V4, whole4(rest).ok_or(RxReason::Short)?)),
            2 => Ok(Self::Packet(interface, FamilyId::V6, whole6(rest).ok_or(RxReason::Short)?)),
            0 => Err(RxReason::Short),
            _ => Err(RxReason::Action),
        }
    }
}

/// An IPv4 packet without what follows it: lookups rely on its header.
fn whole4(bytes: &[u8]) -> Option<&[u8]> {
    let header = usize::from(bytes.first()? & 0xf) * 4;
    let len = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    (bytes[0] >> 4 == 4 && header >= 20 && len >= header).then(|| bytes.get(..len))?
}

/// The same of IPv6.
fn whole6(bytes: &[u8]) -> Option<&[u8]> {
    let len = 40 + usize::from(u16::from_be_bytes([*bytes.get(4)?, *bytes.get(5)?]));
    (bytes[0] >> 4 == 6).then(|| bytes.get(..len))?
}

/// The node of what clients send.
const RX_NODE: &str = "punt-socket-rx";

next_nodes! {
    /// Where clients' packets go.
    pub enum RxNext {
        Ip4 = "ip4-lookup",
        Ip6 = "ip6-lookup",
    }
}

drop_reasons! {
    /// What becomes of clients' datagrams.
    pub enum RxReason {
        /// The router has taken it.
        Received = "Socket RX" (info),
        /// There is no buffer for it.
        ///
        /// Causes: buffers are all in use.
        /// Check: `show buffers`.
        /// See: `show buffers`.
        NoBuffer = "buffer allocation failure",
        /// It is shorter than its descriptor, frame or packet says.
        ///
        /// Causes: an error of the client.
        /// Check: the client: 8 bytes of descriptor, then a frame, or a packet that begins with its IP header.
        /// See: `show punt socket registrations`.
        Short = "socket read failure",
        /// Its descriptor has no such action, or there is no such interface.
        ///
        /// Causes: an error of the client, or an interface that has gone.
        /// Check: the client: actions are 0 to 2, the interface is its number.
        /// See: `show interface`, `show punt socket registrations`.
        Action = "invalid packet descriptor",
    }
}

/// The node is no more than a name for what is counted and where it goes.
struct RxNode;

impl VectorNode for RxNode {
    type Next = RxNext;
    type Drop = RxReason;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut quiver_graph::Frame) {
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let verdict = packet.drop(RxReason::Action);
            cx.decide(i, verdict);
        }
    }
}

/// The node.
pub(super) fn node() -> NodeSpec {
    NodeSpec::vector(RX_NODE, |_| RxNode)
}
