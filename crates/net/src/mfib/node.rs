//! `ip4-mfib-forward-lookup` and `ip6-mfib-forward-lookup`: packets to groups, for this router or to the interfaces of a route.
//!
//! Each interface gets a packet of its own, the last one the packet itself. Link header, hop and fragments are made here: the MAC
//! address follows from the group, which a route need not name.

use quiver_graph::stats::CombinedRow;
use quiver_graph::{ArcPoint, IfIndex, NextNodes, Node, NodeCx, Packet, Pkt, Snapshot, Verdict, drop_reasons, flags};
use quiver_wire::checksum::complete;
use quiver_wire::ethernet::EtherType;
use quiver_wire::fragment::Ipv4Fragments;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ipv6::address::{is_link_local, multicast_scope};
use quiver_wire::{Header, MacAddr};

use super::forwarding::{Forwarding, Leg, Route, number};
use crate::data::IfTable;
use crate::fib::LbTable;
use crate::ip::{Family, FamilyId, V4, V6, icmp_aux};
use crate::local::header::LocalFamily;
use crate::neighbor::ViewSnapshot;

drop_reasons! {
    /// Why packets to groups are dropped, and what else is counted of them.
    pub enum Drop {
        /// The destination is a group for which there is no multicast route.
        ///
        /// Causes: hosts and routers on the link use multicast (mDNS, SSDP), which is normal and harmless.
        /// Check: nothing, unless the router should forward the group: then add a route with `ip mroute add`.
        /// See: `show ip mfib`, `show ip6 mfib`.
        NoRoute = "no multicast route",
        /// The multicast route accepts packets from other interfaces, not from the one that this packet came in on.
        ///
        /// Causes: the source is reached by another interface; two routers forward the group onto one link; the path with
        /// `Accept` is missing.
        /// Check: `show ip mfib` lists the interfaces that a route accepts from.
        /// See: `show ip mfib`, `ip mroute add`.
        Rpf = "multicast RPF check failed",
        /// The multicast route says to drop.
        ByRoute = "dropped by a multicast route",
        /// No path of the multicast route forwards, but for the interface that the packet came in on.
        NoInterface = "multicast route forwards to no other interface",
        /// The TTL or hop limit is used up: the packet is not forwarded.
        Ttl = "multicast TTL or hop limit exceeded",
        /// The source is an address of this link or none, so that the packet is not forwarded.
        Source = "multicast source has only the scope of the link",
        /// The packet is larger than the MTU of an interface and must not be cut.
        ///
        /// Causes: an interface of the route has a smaller MTU than the one that the packets come in on.
        /// Check: `show interface` for the MTU; have the sender send smaller packets.
        /// See: `show interface`, `set interface mtu`.
        TooBig = "multicast packet too big for an interface",
        /// No packet buffer was free for the copy to one of the interfaces.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`.
        NoBuffer = "no buffer for a multicast copy",
        /// A packet was sent to an interface of a multicast route.
        Sent = "multicast packets sent" (info),
    }
}

/// What differs between the families here.
pub(super) trait GroupFamily: LocalFamily {
    /// Link-layer type.
    const ETHER_TYPE: EtherType;
    /// Length of the header without options.
    const HEADER: usize;
    /// Where packets for this router go.
    const RECEIVE: Self::LookupNext;

    /// Whether a packet is for this router whatever routes say, and stays on its link: groups of the link, and messages of group
    /// membership, which may be addressed to any group.
    fn is_own(packet: &Pkt<'_>) -> bool;

    /// TTL or hop limit.
    fn ttl(packet: &Pkt<'_>) -> u8;

    /// Takes a hop in the header without options that `bytes` begin with.
    fn take_hop(bytes: &mut [u8]);

    /// MAC address of the packet's group.
    fn mac(packet: &Pkt<'_>) -> MacAddr;

    /// Whether the source may be forwarded from.
    fn is_global(source: Self::Addr) -> bool;

    /// Cuts a packet whose hop is still to be taken into packets of at most `mtu` bytes: calls `piece` with the header and payload of
    /// each.
    fn cut(bytes: &[u8], mtu: usize, piece: impl FnMut(&[u8], &[u8])) -> Option<()>;
}

impl GroupFamily for V4 {
    const ETHER_TYPE: EtherType = EtherType::IPV4;
    const HEADER: usize = Ipv4Header::LEN;
    const RECEIVE: Self::LookupNext = crate::ip::Next4::Receive;

    /// 224.0.0.0/24 is never forwarded (RFC 5771, 4).
    fn is_own(packet: &Pkt<'_>) -> bool {
        let header: Ipv4Header = packet.head();
        header.dst.get() >> 8 == 0x00e0_0000 || header.protocol == IpProtocol::IGMP
    }

    fn ttl(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv4Header>().ttl
    }

    fn take_hop(bytes: &mut [u8]) {
        if let Some(mut header) = Ipv4Header::read(bytes) {
            header.decrement_ttl();
            let _ = header.write_at(bytes, 0);
        }
    }

    fn mac(packet: &Pkt<'_>) -> MacAddr {
        MacAddr::from_ipv4_multicast(packet.head::<Ipv4Header>().dst_addr())
    }

    fn is_global(source: u32) -> bool {
        source != 0
    }

    fn cut(bytes: &[u8], mtu: usize, mut piece: impl FnMut(&[u8], &[u8])) -> Option<()> {
        let mut header = [0; quiver_wire::ipv4::MAX_HEADER_LEN];
        for fragment in Ipv4Fragments::new(bytes, mtu).ok()? {
            let len = fragment.write_header(&mut header)?;
            V4::take_hop(&mut header);
            piece(header.get(..len)?, bytes.get(fragment.payload)?);
        }
        Some(())
    }
}

/// ff05::2
const ALL_ROUTERS_OF_SITE: u128 = 0xff05 << 112 | 2;

impl GroupFamily for V6 {
    const ETHER_TYPE: EtherType = EtherType::IPV6;
    const HEADER: usize = Ipv6Header::LEN;
    const RECEIVE: Self::LookupNext = crate::ip::Next6::Receive;

    /// Groups of the scope of the link, and all routers of the site (RFC 4291, 2.8). MLD has a hop-by-hop header and hop limit 1.
    fn is_own(packet: &Pkt<'_>) -> bool {
        let header: Ipv6Header = packet.head();
        let dst = header.dst.get();
        let is_mld = header.next_header == IpProtocol::HOP_BY_HOP && header.hop_limit == 1;
        multicast_scope(dst) <= 2 || dst == ALL_ROUTERS_OF_SITE || is_mld
    }

    fn ttl(packet: &Pkt<'_>) -> u8 {
        packet.head::<Ipv6Header>().hop_limit
    }

    fn take_hop(bytes: &mut [u8]) {
        if let Some(limit) = bytes.get_mut(7) {
            *limit = limit.saturating_sub(1);
        }
    }

    fn mac(packet: &Pkt<'_>) -> MacAddr {
        MacAddr::from_ipv6_multicast(packet.head::<Ipv6Header>().dst_addr())
    }

    fn is_global(source: u128) -> bool {
        source != 0 && !is_link_local(source)
    }

    /// Only its source cuts a packet (RFC 8200, 4.5).
    fn cut(_: &[u8], _: usize, _: impl FnMut(&[u8], &[u8])) -> Option<()> {
        None
    }
}

/// Slot of `neighbor-output`: declared behind those of a lookup.
const fn to_output<F: Family>() -> Verdict {
    Verdict::slot(F::LookupNext::NAMES.len() as u16 + 1)
}

/// Slot of the node that answers with ICMP errors, declared next.
const fn to_icmp_error<F: Family>() -> Verdict {
    Verdict::slot(F::LookupNext::NAMES.len() as u16 + 2)
}

/// The node.
#[derive(Clone)]
pub(super) struct Multicast<F: Family> {
    pub interfaces: IfTable,
    pub forwarding: Snapshot<Forwarding>,
    pub views: ViewSnapshot,
    pub load_balances: LbTable,
    /// Features of the interfaces that packets leave by.
    pub output: ArcPoint,
    pub row: CombinedRow,
    /// The packet being copied.
    pub bytes: Vec<u8>,
    pub family: std::marker::PhantomData<F>,
}

impl<F: GroupFamily> Node for Multicast<F> {
    type Next = F::LookupNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.row = self.row.of_thread(thread);
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.forwarding.refresh();
        self.views.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        if F::is_own(&packet) {
            return receive::<F>(packet);
        }
        let rx = packet.rx_if();
        let fib = packet.table().unwrap_or_else(|| F::fib_of(self.interfaces.fibs(rx)));
        let (src, dst) = F::addresses(&packet);
        let found = self.forwarding.get().find(fib, number(F::address(src)), number(F::address(dst)));
        let Some(route) = found.cloned() else { return packet.drop(Drop::NoRoute) };
        self.row.add(route.counter, 1, packet.total_len() as u64);
        if route.drops {
            return packet.drop(Drop::ByRoute);
        }
        if !route.accepts(rx) {
            return packet.drop(Drop::Rpf);
        }
        let why = match () {
            () if F::ttl(&packet) < 2 => Some(Drop::Ttl),
            () if !F::is_global(src) => Some(Drop::Source),
            () if route.legs_from(rx).next().is_none() => Some(Drop::NoInterface),
            () => None,
        };
        match (why, route.local) {
            (Some(Drop::NoInterface), true) => receive::<F>(packet),
            (Some(why), true) => {
                cx.count(why, 1);
                receive::<F>(packet)
            }
            (Some(why), false) => packet.drop(why),
            (None, _) => self.replicate(cx, packet, &route),
        }
    }
}

fn receive<F: GroupFamily>(mut packet: Pkt<'_>) -> Verdict {
    packet.set_aux(0);
    F::RECEIVE.into()
}

impl<F: GroupFamily> Multicast<F> {
    /// Sends a packet to all interfaces of a route, and to this router where it listens.
    fn replicate(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_>, route: &Route) -> Verdict {
        let (rx, mac, len) = (packet.rx_if(), F::mac(&packet), packet.total_len());
        let unfinished = packet.unfinished_checksum();
        self.bytes.clear();
        packet.for_each_segment(|bytes| self.bytes.extend_from_slice(bytes));
        if let Some((start, offset)) = unfinished {
            let _ = complete(&mut self.bytes, start, offset);
        }
        let (mut packet, verdict) = packet.take();
        // The packet itself goes to the last interface that takes it as it is, unless it stays here or its sender is to be told.
        let whole = |leg: &&Leg| leg.next_hop.is_none() && len <= usize::from(leg.mtu);
        let told = F::ID == FamilyId::V6 && route.legs_from(rx).any(|leg| leg.next_hop.is_none() && len > usize::from(leg.mtu));
        let last = if route.local || told { None } else { route.legs_from(rx).filter(whole).last().map(|leg| leg.interface) };
        let mut too_big = None;
        for leg in route.legs_from(rx).filter(|leg| leg.next_hop.is_some() || Some(leg.interface) != last) {
            self.copy(cx, leg, mac, rx, &mut too_big);
        }
        match (last, too_big) {
            (Some(interface), _) => {
                cx.count(Drop::TooBig, too_big.is_some().into());
                self.send_itself(cx, packet, interface, mac);
            }
            (None, _) if route.local => {
                cx.count(Drop::TooBig, too_big.is_some().into());
                cx.view(&mut packet).set_aux(0);
                cx.emit(F::RECEIVE, packet);
            }
            // RFC 4443, 2.4 (e.3): also of a packet to a group.
            (None, Some(mtu)) if told => {
                cx.view(&mut packet).set_aux(icmp_aux(2, 0, mtu));
                cx.emit(to_icmp_error::<F>(), packet);
            }
            (None, Some(_)) => cx.drop_packet(packet, Drop::TooBig),
            (None, None) => cx.free(packet),
        }
        verdict
    }

    /// Sends a copy.
    fn copy(&self, cx: &mut NodeCx<'_>, leg: &Leg, mac: MacAddr, rx: IfIndex, too_big: &mut Option<u16>) {
        if let Some(lb) = leg.next_hop {
            let Some(mut copy) = cx.alloc_bytes(&self.bytes, rx) else { return cx.count(Drop::NoBuffer, 1) };
            let bucket = self.load_balances.choose(lb, |_| 0);
            cx.view(&mut copy).set_aux(bucket.index());
            cx.count(Drop::Sent, 1);
            return cx.emit(crate::ip::verdict(bucket), copy);
        }
        let Some(view) = self.views.get().get(leg.interface) else { return };
        let (link, link_len) = view.link_header(mac, F::ETHER_TYPE);
        let link = &link[..link_len];
        let emit = |cx: &mut NodeCx<'_>, header: &[u8], payload: &[u8]| {
            let Some(mut copy) = cx.alloc_parts(&[link, header, payload], rx) else { return cx.count(Drop::NoBuffer, 1) };
            cx.view(&mut copy).set_aux(leg.interface.0);
            cx.count(Drop::Sent, 1);
            cx.emit(self.output.next(leg.interface, to_output::<F>()), copy);
        };
        if self.bytes.len() <= usize::from(leg.mtu) {
            let Some((header, payload)) = self.bytes.split_at_checked(F::HEADER) else { return };
            let mut head = [0; 40];
            let Some(head) = head.get_mut(..F::HEADER) else { return };
            head.copy_from_slice(header);
            F::take_hop(head);
            return emit(cx, head, payload);
        }
        if F::cut(&self.bytes, leg.mtu.into(), |header, payload| emit(cx, header, payload)).is_none() {
            cx.count(Drop::TooBig, u64::from(too_big.is_some()));
            *too_big = Some(too_big.map_or(leg.mtu, |mtu| mtu.min(leg.mtu)));
        }
    }

    /// Sends the packet itself.
    fn send_itself(&self, cx: &mut NodeCx<'_>, mut packet: Packet, interface: IfIndex, mac: MacAddr) {
        let Some(view) = self.views.get().get(interface) else { return cx.drop_packet(packet, Drop::NoInterface) };
        let mut view_of = cx.view(&mut packet);
        F::take_hop(view_of.bytes_mut());
        if !view.push_link_header(&mut view_of, mac, F::ETHER_TYPE) {
            return cx.drop_packet(packet, Drop::NoBuffer);
        }
        view_of.set_aux(interface.0);
        // As a copy: marks of how it came in say nothing of how it leaves.
        view_of.unmark(flags::LINK_MULTICAST);
        cx.count(Drop::Sent, 1);
        cx.emit(self.output.next(interface, to_output::<F>()), packet);
    }
}
