//! `ip4-receive` and `ip6-receive`: the packet is for this router; who takes it?
//!
//! `ip4-local` and `ip6-local` are the same node under another name: where reassembled datagrams come in again, and where the
//! arc of that name ends, which begins here: its features see every packet for this router before anything is checked.

use std::marker::PhantomData;

use quiver_graph::{ArcPoint, NoNext, Node, NodeCx, Pkt, Verdict, drop_reasons, flags};
use quiver_wire::Header;
use quiver_wire::ipv4::IpProtocol;
use quiver_wire::udp::UdpHeader;

use super::header::{Behind, LocalFamily, PROBLEM6, checksum_ok, sum_range};
use super::table::SlotTable;
use crate::data::IfTable;
use crate::fib::Class;
use crate::ip::{Family, FamilyId, Tables, icmp_aux};
use crate::punt::tables::PuntTables;

drop_reasons! {
    /// Why packets for this router are dropped.
    pub enum Drop {
        /// The router does not handle this protocol.
        ///
        /// Causes: a protocol of a routing daemon (OSPF, VRRP) or of a tunnel, addressed to the router, for which no plugin is on.
        /// Check: to give such packets to a daemon in Linux, mirror the interface: `lcp create`. `show plugins` lists what is on.
        /// See: `show lcp`, `show plugins`.
        UnknownProtocol = "unknown ip protocol",
        /// The checksum of the TCP segment is wrong.
        ///
        /// Causes: a damaged packet, or a sender that leaves checksums to a device that does not fill them in (virtual machines,
        /// veth).
        /// Check: on Linux' side of a TAP or veth, `ethtool -K IF tx off`; else `show hardware-interfaces` for receive errors.
        /// See: `show hardware-interfaces`.
        TcpChecksum = "bad tcp checksum",
        /// The checksum of the UDP datagram is wrong.
        ///
        /// Causes: a damaged packet, or a sender that leaves checksums to a device that does not fill them in (virtual machines,
        /// veth).
        /// Check: on Linux' side of a TAP or veth, `ethtool -K IF tx off`; else `show hardware-interfaces` for receive errors.
        /// See: `show hardware-interfaces`.
        UdpChecksum = "bad udp checksum",
        /// The lengths in the UDP and IP headers do not agree.
        UdpLength = "inconsistent udp/ip lengths",
        /// The source address is one of the router's own.
        ///
        /// Causes: a loop in the network, or a host that uses an address of the router.
        /// Check: find the sender by its MAC address in a capture of drops.
        /// See: `pcap trace drop`, `show interface address`.
        Spoofed = "spoofed local-address packet drops",
        /// The source address is no host's.
        Source = "source address not valid",
        /// The packet is shorter than its headers say.
        Length = "packet shorter than its headers say",
        /// Extension headers or options do not add up.
        Malformed = "malformed extension headers or options",
        /// The packet says that nothing follows its headers.
        Empty = "no next header",
        /// A packet of an unknown protocol gets an ICMP error.
        ProtocolUnreachable = "protocol unreachable asked for" (info),
        /// A packet with an unknown extension header gets an ICMP error.
        HeaderProblem = "parameter problem asked for" (info),
    }
}

/// Slots that are the same in both nodes: declared first, in this order.
pub(super) const TO_REASSEMBLY: Verdict = Verdict::slot(1);
/// See [`TO_REASSEMBLY`].
pub(super) const TO_ICMP_ERROR: Verdict = Verdict::slot(2);
/// Slot of the first node of [`Punted`](crate::punt::tables::Punted); see [`TO_REASSEMBLY`].
const PUNT: u16 = 3;

/// The node.
#[derive(Clone)]
pub(super) struct Receive<F: Family> {
    pub protocols: SlotTable,
    /// Ports of tunnels over IPv6: not 0.
    pub unchecked: SlotTable,
    pub punts: PuntTables,
    pub interfaces: IfTable,
    pub tables: Tables<F>,
    /// Features; none follow in the node where the arc ends.
    pub arc: ArcPoint,
    pub family: PhantomData<F>,
}

impl<F: LocalFamily> Node for Receive<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.tables.refresh(cx);
    }

    /// The aux lane says for those who take the packet where the upper layer begins, bytes from the IP header.
    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let feature = self.arc.next(packet.rx_if(), Verdict::DROP);
        if feature != Verdict::DROP {
            return feature;
        }
        let Some(len) = F::length(&packet) else { return packet.drop(Drop::Length) };
        packet.trim(len);
        let (protocol, offset, pointer) = match F::behind(&packet) {
            Behind::Upper { protocol, offset, pointer } => (protocol, offset, pointer),
            Behind::Fragment => return self.fragment(packet),
            Behind::Problem(aux) => {
                cx.count(Drop::HeaderProblem, 1);
                packet.set_aux(aux);
                return TO_ICMP_ERROR;
            }
            Behind::Malformed => return packet.drop(Drop::Malformed),
            Behind::Nothing => return packet.drop(Drop::Empty),
        };
        if let Some(reason) = self.check_source(&packet, protocol, usize::from(offset)) {
            return packet.drop(reason);
        }
        if let Some(reason) = self.check_transport(&packet, protocol, usize::from(offset)) {
            return packet.drop(reason);
        }
        let slot = self.protocols.get(protocol.0.into());
        if slot == 0 {
            return unknown::<F>(cx, packet, &self.punts, (protocol, offset, pointer));
        }
        packet.set_aux(offset.into());
        Verdict::slot(slot)
    }
}

impl<F: LocalFamily> Receive<F> {
    fn fragment(&self, mut packet: Pkt<'_>) -> Verdict {
        // A fragment tells no more than the source's validity; the rest is checked of the whole datagram.
        match self.check_source(&packet, IpProtocol(255), usize::MAX) {
            Some(reason) => packet.drop(reason),
            None => TO_REASSEMBLY,
        }
    }

    /// RFC 1812, 5.3.7: no answer may go to an address that is nobody's, and nobody else sends from ours. DHCP clients and
    /// IGMP hosts, and IPv6 hosts that look whether their address is free, have no address yet.
    #[inline(always)]
    fn check_source(&self, packet: &Pkt<'_>, protocol: IpProtocol, offset: usize) -> Option<Drop> {
        let (src, _) = F::addresses(packet);
        if !F::is_source(src) {
            return if packet.has(flags::LOCAL) || may_have_no_address::<F>(packet, protocol, offset) {
                None
            } else {
                Some(Drop::Source)
            };
        }
        let from_here = packet.has(flags::LOCAL) || F::is_discovery(packet, protocol);
        (!from_here && self.is_own(packet, src)).then_some(Drop::Spoofed)
    }

    /// Whether an address is one of this router's where the packet came in.
    #[inline(always)]
    fn is_own(&self, packet: &Pkt<'_>, address: F::Addr) -> bool {
        let fib = packet.table().unwrap_or_else(|| F::fib_of(self.interfaces.fibs(packet.rx_if())));
        let record = self.tables.load_balances.get(self.tables.lookup(fib, address));
        !record.is_many() && record.bucket().class() == Class::Receive
    }

    #[inline(always)]
    fn check_transport(&self, packet: &Pkt<'_>, protocol: IpProtocol, offset: usize) -> Option<Drop> {
        match protocol {
            IpProtocol::UDP => self.check_udp(packet, offset),
            IpProtocol::TCP => (!checksum_ok::<F>(packet, protocol, offset)).then_some(Drop::TcpChecksum),
            _ => None,
        }
    }

    /// RFC 768, RFC 1122 4.1.3.4, RFC 8200 8.1 (no zero checksum in IPv6, but for tunnels). Bytes past UDP's own length are not covered.
    #[inline(always)]
    fn check_udp(&self, packet: &Pkt<'_>, offset: usize) -> Option<Drop> {
        let available = packet.total_len() - offset;
        let Some(udp) = UdpHeader::read_at(packet.bytes(), offset) else { return Some(Drop::UdpLength) };
        let Some(payload) = udp.payload_len(available) else { return Some(Drop::UdpLength) };
        if packet.has(flags::CHECKSUM) || (udp.checksum.get() == 0 && self.needs_none(udp.dst_port.get())) {
            return None;
        }
        let len = UdpHeader::LEN + payload;
        let sum = sum_range(packet, offset, len, F::pseudo(packet, IpProtocol::UDP, len));
        (udp.checksum.get() == 0 || !sum.is_valid()).then_some(Drop::UdpChecksum)
    }

    /// Whether datagrams to a port need no checksum.
    #[inline(always)]
    fn needs_none(&self, port: u16) -> bool {
        F::ID == FamilyId::V4 || self.unchecked.get(port) != 0
    }
}

/// RFC 1122, 3.2.2.1 and RFC 8200, 4.
#[cold]
fn unknown<F: LocalFamily>(
    cx: &mut NodeCx<'_>,
    mut packet: Pkt<'_>,
    punts: &PuntTables,
    (protocol, offset, pointer): (IpProtocol, u16, u16),
) -> Verdict {
    let upper = packet.bytes().get(usize::from(offset)..).unwrap_or_default();
    if let Some(punt) = punts.unknown(protocol, upper).verdict(PUNT) {
        packet.set_aux(offset.into());
        return punt;
    }
    let (_, dst) = F::addresses(&packet);
    if F::is_group(dst) {
        return packet.drop(Drop::UnknownProtocol);
    }
    cx.count(Drop::ProtocolUnreachable, 1);
    packet.set_aux(match F::ID {
        FamilyId::V4 => icmp_aux(3, quiver_wire::icmp4::unreachable::PROTOCOL, 0),
        FamilyId::V6 => icmp_aux(PROBLEM6, quiver_wire::icmp6::parameter_problem::NEXT_HEADER, pointer),
    });
    TO_ICMP_ERROR
}

/// Whether the unspecified source address is in order.
#[cold]
fn may_have_no_address<F: LocalFamily>(packet: &Pkt<'_>, protocol: IpProtocol, offset: usize) -> bool {
    let (src, _) = F::addresses(packet);
    if src != F::Addr::default() {
        return false;
    }
    match protocol {
        IpProtocol::IGMP | IpProtocol::ICMPV6 => true,
        // To a DHCP server
        IpProtocol::UDP => UdpHeader::read_at(packet.bytes(), offset).is_some_and(|udp| udp.dst_port.get() == 67),
        _ => false,
    }
}
