//! `vxlan4-input` and `vxlan6-input`: takes the outer headers off; the frame goes on as received on the tunnel.

use std::net::IpAddr;
use std::sync::Arc;

use quiver_graph::{IfIndex, InterfaceCounters, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, flags, next_nodes};
use quiver_net::data::IfTable;
use quiver_net::ip::FamilyId;
use quiver_wire::ipv4::Ipv4Header;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;

use crate::header;
use crate::table::{Key, Tunnels};

next_nodes! {
    /// Where frames go.
    pub enum Next { Ethernet = "ethernet-input" }
}

drop_reasons! {
    /// Why packets to a port of tunnels are dropped, and what else is counted of them.
    pub enum Drop {
        /// There is no tunnel with these addresses, this VNI, this port and the table of the interface.
        ///
        /// Causes: the peer's VNI or address is another one; a VLAN, NAT or route leads the packets to another table; the peer has a
        /// tunnel to this router, and this router has none to it.
        /// Check: compare `show vxlan tunnel` with a capture of drops.
        /// See: `show vxlan tunnel`, `pcap trace drop`.
        NoTunnel = "no such tunnel",
        /// The packet is too short for a VXLAN header, or its header has no valid VNI.
        BadHeader = "bad VXLAN header",
        /// A frame was taken out of its tunnel.
        Decapsulated = "good packets decapsulated" (info),
    }
}

/// The node. Packets come in whole, checked and trimmed, the offset of the UDP header in the aux lane.
#[derive(Clone)]
pub(super) struct Input {
    family: FamilyId,
    tunnels: Snapshot<Tunnels>,
    interfaces: IfTable,
    counters: Arc<InterfaceCounters>,
    /// The last packet's tunnel, of this vector.
    last: Option<(Key, IfIndex)>,
    /// Packets and bytes that are not counted for it yet.
    sum: (u64, u64),
}

impl Input {
    pub fn new(family: FamilyId, tunnels: Snapshot<Tunnels>, interfaces: IfTable, counters: Arc<InterfaceCounters>) -> Self {
        Self { family, tunnels, interfaces, counters, last: None, sum: (0, 0) }
    }

    /// What a packet has of its tunnel's key, and the bytes of the frame in it.
    fn key(&self, packet: &Pkt<'_>) -> Option<(Key, usize)> {
        let at = packet.aux() as usize;
        let udp: UdpHeader = packet.read_at(at)?;
        let payload = udp.payload_len(packet.total_len().checked_sub(at)?)?;
        let vni = header::parse(packet.read_at(at + size_of::<UdpHeader>())?)?;
        let fibs = self.interfaces.fibs(packet.rx_if());
        let (local, remote, fib): (IpAddr, IpAddr, u32) = match self.family {
            FamilyId::V4 => {
                let ip: Ipv4Header = packet.head();
                (ip.dst_addr().into(), ip.src_addr().into(), fibs.0)
            }
            FamilyId::V6 => {
                let ip: Ipv6Header = packet.head();
                (ip.dst_addr().into(), ip.src_addr().into(), fibs.1)
            }
        };
        let fib = packet.table().unwrap_or(fib);
        Some((Key { local, remote, vni, port: udp.dst_port.get(), fib }, payload.checked_sub(header::LEN)?))
    }

    /// Counts what is not counted yet.
    fn flush(&mut self, cx: &mut NodeCx<'_>) {
        let (packets, bytes) = std::mem::take(&mut self.sum);
        if let Some((_, tunnel)) = self.last
            && packets > 0
        {
            self.counters.rx.add(cx.thread(), tunnel.0, packets, bytes);
            cx.count(Drop::Decapsulated, packets);
        }
    }
}

impl Node for Input {
    type Next = Next;
    type Drop = Drop;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.tunnels.refresh();
        self.last = None;
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let Some((key, len)) = self.key(&packet) else { return packet.drop(Drop::BadHeader) };
        let tunnel = match self.last {
            Some((last, tunnel)) if last == key => tunnel,
            _ => {
                self.flush(cx);
                let Some(tunnel) = self.tunnels.get().find(key) else {
                    self.last = None;
                    return packet.drop(Drop::NoTunnel);
                };
                self.last = Some((key, tunnel));
                tunnel
            }
        };
        // `key` has read the headers, so that they lie in the first segment.
        packet.pull(packet.aux() as usize + size_of::<UdpHeader>() + header::LEN);
        packet.trim(len);
        // What was said of the outer packet does not hold for the frame. A sender in Linux may have left the inner checksum to us.
        if packet.unfinished_checksum().is_none() {
            packet.clear_unfinished_checksum();
        }
        if packet.table().is_some() {
            packet.set_table(u32::MAX);
        }
        packet.unmark(flags::LOCAL | flags::LINK_MULTICAST);
        packet.set_rx_if(tunnel);
        self.sum.0 += 1;
        self.sum.1 += len as u64;
        Next::Ethernet.into()
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.flush(cx);
    }
}
