//! `<tunnel>-tx`: puts the outer headers in front of a frame.

use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::{IfIndex, InterfaceCounters, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, flags, next_nodes};
use quiver_net::local::sum_range;
use quiver_net::rss::{HashInput, flow_hash};
use quiver_wire::checksum::{Sum, complete};
use quiver_wire::ethernet::EtherType;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;
use quiver_wire::{Header, U16Be};

use crate::header;

next_nodes! {
    /// Where packets go.
    pub enum Next { V4 = "ip4-lookup", V6 = "ip6-lookup", Group = "neighbor-output" }
}

drop_reasons! {
    /// Why frames do not enter a tunnel.
    pub enum Drop {
        /// The frame is a packet of the tunnel itself: the route to the other end leads into the tunnel.
        ///
        /// Causes: a route learned or set for a prefix that has the tunnel's destination in it, by the tunnel.
        /// Check: `show ip fib TABLE DESTINATION`: the route to the destination must leave by another interface.
        /// See: `show vxlan tunnel`, `show ip fib`.
        Loop = "the route to the other end leads into the tunnel",
        /// There is no room for the outer headers in front of the frame, or the packet would be longer than IP allows.
        ///
        /// Causes: tunnels in tunnels; a loop of several tunnels.
        /// Check: the routes to the destinations of all tunnels.
        /// See: `show vxlan tunnel`.
        NoRoom = "no room for the outer headers",
        /// The interface of the tunnel's group has gone.
        NoInterface = "interface of the group has gone",
        /// The packet to the group is larger than the MTU of its interface.
        ///
        /// Causes: the MTU of the group's interface leaves no room for 50 bytes (IPv6: 70) beside the frame.
        /// Check: `show interface` for the MTU of the group's interface; raise it.
        /// See: `show interface`, `set interface mtu`.
        TooBig = "packet too big for the interface of the group",
    }
}

/// TTL and hop limit of outer headers, as VPP's.
const TTL: u8 = 254;
/// Outer source ports: the dynamic ones (RFC 7348, section 5).
const PORTS: u16 = 0xc000;
/// Bytes of a link header with two tags.
const LINK_MAX: usize = 22;

/// The outer headers without what differs by packet.
#[derive(Clone, Copy, Debug)]
pub struct Outer {
    /// Own address.
    pub src: IpAddr,
    /// The other end's, or a group.
    pub dst: IpAddr,
    /// UDP port of the other end.
    pub port: u16,
    /// Network identifier.
    pub vni: u32,
    /// FIB in which `dst` is looked up.
    pub fib: u32,
}

/// How packets to a group leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The interface.
    pub interface: IfIndex,
    /// Its largest IP packet.
    pub mtu: usize,
    /// Link header; the last `len` bytes count.
    link: [u8; LINK_MAX],
    len: usize,
}

impl Leg {
    /// A leg with a link header; none where that is too long.
    pub fn new(interface: IfIndex, mtu: usize, header: &[u8]) -> Option<Self> {
        let mut link = [0; LINK_MAX];
        link.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self { interface, mtu, link, len: header.len() })
    }
}

/// The node.
#[derive(Clone)]
pub struct Output {
    tunnel: IfIndex,
    outer: Outer,
    leg: Snapshot<Option<Leg>>,
    seed: u64,
    counters: Arc<InterfaceCounters>,
    /// Of the next packet, which may be cut on its way (RFC 6864).
    identification: u16,
    /// Packets and bytes of this vector.
    sum: (u64, u64),
    /// A packet of several segments whose checksum is finished.
    bytes: Vec<u8>,
}

impl Output {
    /// The node of a tunnel.
    pub fn new(tunnel: IfIndex, outer: Outer, leg: Snapshot<Option<Leg>>, seed: u64, counters: Arc<InterfaceCounters>) -> Self {
        Self { tunnel, outer, leg, seed, counters, identification: 0, sum: (0, 0), bytes: Vec::new() }
    }

    /// Whether a frame is a packet of this tunnel.
    fn is_own(&self, packet: &Pkt<'_>) -> bool {
        let ether_type = EtherType(packet.head_at::<U16Be, 12>().get());
        let (src, dst, at): (IpAddr, IpAddr, usize) = match ether_type {
            EtherType::IPV4 => {
                let ip: Ipv4Header = packet.head_at::<_, 14>();
                (ip.src_addr().into(), ip.dst_addr().into(), 14 + Ipv4Header::LEN)
            }
            EtherType::IPV6 => {
                let ip: Ipv6Header = packet.head_at::<_, 14>();
                (ip.src_addr().into(), ip.dst_addr().into(), 14 + Ipv6Header::LEN)
            }
            _ => return false,
        };
        (src, dst) == (self.outer.src, self.outer.dst)
            && packet.read_at::<UdpHeader>(at).is_some_and(|udp| udp.dst_port.get() == self.outer.port)
            && packet.read_at(at + UdpHeader::LEN).and_then(header::parse) == Some(self.outer.vni)
    }

    /// Finishes a checksum that was left to a device: none looks for it behind the outer headers.
    #[cold]
    fn finish_checksum(&mut self, packet: &mut Pkt<'_>) {
        if let Some((start, offset)) = packet.unfinished_checksum() {
            self.bytes.clear();
            packet.for_each_segment(|part| self.bytes.extend_from_slice(part));
            let at = usize::from(start) + usize::from(offset);
            if complete(&mut self.bytes, start, offset).is_ok()
                && let Some(sum) = self.bytes.get(at..at + 2)
                && let Some(place) = packet.bytes_mut().get_mut(at..at + 2)
            {
                place.copy_from_slice(sum);
            }
        }
        packet.clear_unfinished_checksum();
    }

    /// Puts the outer headers in front; `None` where they do not fit.
    fn encapsulate(&mut self, packet: &mut Pkt<'_>) -> Option<()> {
        let hash = flow_hash(packet.bytes(), HashInput { symmetric: false, l4: true }, self.seed);
        let udp_len = u16::try_from(UdpHeader::LEN + header::LEN + packet.total_len()).ok()?;
        let Outer { src, dst, port, vni, .. } = self.outer;
        let mut udp = UdpHeader::new(PORTS | hash as u16, port, udp_len - UdpHeader::LEN as u16);
        let vxlan = header::emit(vni);
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = Ipv4Header::new(src, dst, IpProtocol::UDP);
                ip.total_len = U16Be::new(udp_len.checked_add(Ipv4Header::LEN as u16)?);
                ip.identification = U16Be::new(self.identification);
                self.identification = self.identification.wrapping_add(1);
                ip.ttl = TTL;
                ip.fill_checksum();
                packet.push(Ipv4Header::LEN + UdpHeader::LEN + header::LEN).then_some(())?;
                packet.set_head(ip);
                // No checksum: it "SHOULD be transmitted as zero" (RFC 7348, section 5).
                packet.set_head_at::<_, { Ipv4Header::LEN }>(udp);
                packet.set_head_at::<_, { Ipv4Header::LEN + UdpHeader::LEN }>(vxlan);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut ip = Ipv6Header::new(src, dst, IpProtocol::UDP);
                ip.payload_len = U16Be::new(udp_len);
                ip.hop_limit = TTL;
                packet.push(Ipv6Header::LEN + UdpHeader::LEN + header::LEN).then_some(())?;
                packet.set_head(ip);
                packet.set_head_at::<_, { Ipv6Header::LEN }>(udp);
                packet.set_head_at::<_, { Ipv6Header::LEN + UdpHeader::LEN }>(vxlan);
                let pseudo = Sum::new().add_pseudo_v6(src.to_bits(), dst.to_bits(), IpProtocol::UDP, udp_len.into());
                udp.checksum = U16Be::new(sum_range(packet, Ipv6Header::LEN, udp_len.into(), pseudo).udp_checksum());
                packet.set_head_at::<_, { Ipv6Header::LEN }>(udp);
            }
            _ => return None,
        }
        Some(())
    }

    /// Sends a packet to the tunnel's group.
    fn to_group(&self, packet: &mut Pkt<'_>) -> Verdict {
        let Some(leg) = self.leg.get() else { return packet.drop(Drop::NoInterface) };
        if packet.total_len() > leg.mtu {
            return packet.drop(Drop::TooBig);
        }
        if !packet.push(leg.len) {
            return packet.drop(Drop::NoRoom);
        }
        if let (Some(place), Some(link)) = (packet.bytes_mut().get_mut(..leg.len), leg.link.get(..leg.len)) {
            place.copy_from_slice(link);
        }
        packet.set_aux(leg.interface.0);
        Next::Group.into()
    }
}

impl Node for Output {
    type Next = Next;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        // Threads and tunnels between the same ends begin apart.
        self.identification = (thread as u16).wrapping_mul(0x3d09).wrapping_add((self.tunnel.0 as u16).wrapping_mul(0x9e37));
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.leg.refresh();
    }

    fn packet(&mut self, _cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        if self.is_own(&packet) {
            return packet.drop(Drop::Loop);
        }
        if packet.has(flags::CHECKSUM) {
            self.finish_checksum(&mut packet);
        }
        let len = packet.total_len() as u64;
        if self.encapsulate(&mut packet).is_none() {
            return packet.drop(Drop::NoRoom);
        }
        self.sum.0 += 1;
        self.sum.1 += len;
        // A packet of the router itself.
        packet.set_rx_if(IfIndex::LOCAL0);
        packet.unmark(flags::LINK_MULTICAST);
        packet.mark(flags::LOCAL);
        if self.outer.dst.is_multicast() {
            return self.to_group(&mut packet);
        }
        // The first table needs no word of its own: it is that of `local0`.
        if self.outer.fib != 0 || packet.table().is_some() {
            packet.set_table(self.outer.fib);
        }
        if self.outer.dst.is_ipv4() { Next::V4.into() } else { Next::V6.into() }
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        let (packets, bytes) = std::mem::take(&mut self.sum);
        self.counters.tx.add(cx.thread(), self.tunnel.0, packets, bytes);
    }
}
