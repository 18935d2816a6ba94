//! `ethernet-input`: for whom is the frame, and what is in it?

use quiver_graph::{
    ArcPoint, Batch, FastPath, IfIndex, Node, NodeCx, Pkt, Sent, Shared, Snapshot, Verdict, drop_reasons, flags, next_nodes,
};
use quiver_wire::MacAddr;
use quiver_wire::ethernet::{EtherType, EthernetHeader};

use super::MoreMacs;
use crate::data::{IfTable, if_flags};

next_nodes! {
    /// Where frames go.
    pub enum Next {
        Ip4 = "ip4-input",
        Ip6 = "ip6-input",
        Arp = "arp-input",
        L2 = "l2-input",
        Vlan = "ethernet-vlan",
    }
}

drop_reasons! {
    /// Why frames are dropped.
    pub enum Drop {
        /// The frame is for another MAC address than the interface's.
        ///
        /// Causes: a switch floods frames of other hosts to the router; a neighbor has an old MAC address of the router; the
        /// interface is promiscuous.
        /// Check: `show hardware-interfaces` for the MAC address, and the neighbor's ARP cache. Flooded frames are harmless.
        /// See: `show hardware-interfaces`, `set interface promiscuous`.
        OtherMac = "l3 mac mismatch",
        /// No node handles frames with this EtherType.
        ///
        /// Causes: protocols of the link that the router does not take part in: LLDP, spanning tree, PPPoE, MPLS.
        /// Check: nothing, if these are not meant for the router. A capture of drops shows what they are.
        /// See: `pcap trace drop`.
        UnknownType = "unknown ethernet type",
        /// The frame has a length instead of an EtherType; such frames are not handled.
        ///
        /// Causes: a switch speaks spanning tree or CDP.
        /// Check: nothing; switch it off at the port of the switch if the count disturbs.
        /// See: `pcap trace drop`.
        Llc = "unsupported llc/snap frame",
        /// The frame is shorter than an Ethernet header.
        Short = "ethernet frame too short",
        /// The interface is down.
        ///
        /// Causes: frames arrive at an interface that was created and never set up, or was set down.
        /// Check: `show interface`, then `set interface state IF up`.
        /// See: `show interface`, `set interface state IF up`.
        Down = "interface is down",
    }
}

/// The node.
///
/// Frames of IP to this router's own address on a routed interface, and all frames of a layer-2 interface, are decided by a
/// comparison or two against what [`Run`] keeps of their interface; [`decide`] has the rules, for any frame.
#[derive(Clone)]
pub struct EthernetInput {
    interfaces: IfTable,
    run: Run,
    /// Features that take frames of unknown types.
    unknown: ArcPoint,
    /// MAC addresses beside the interfaces' own.
    more: Snapshot<MoreMacs>,
}

impl EthernetInput {
    pub(super) fn new(interfaces: IfTable, unknown: ArcPoint, more: Snapshot<MoreMacs>) -> Self {
        Self { interfaces, run: Run::NONE, unknown, more }
    }

    /// Sends frames with tags to the node that sorts them, where all have some and come from the interface of the run.
    #[inline(always)]
    fn tagged<const W: usize>(&self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let types: [u16; W] = batch.heads::<_, 12>();
        let all = types.iter().fold(true, |all, t| all & is_tag(u16::from_be(*t)));
        if !all || !batch.all_from(IfIndex(self.run.interface), flags::LOCAL) {
            return None;
        }
        batch.all_have(size_of::<EthernetHeader>() as u32).then(|| batch.send_all(Next::Vlan.into()))
    }

    /// Begins another run where the interface is another one.
    #[inline(always)]
    fn turn_to(&mut self, interface: IfIndex) {
        if interface.0 != self.run.interface {
            self.run = Run::of(&self.interfaces, interface);
        }
    }
}

/// What is kept of the interface of a run of frames, for the time of a vector.
#[derive(Clone, Copy)]
struct Run {
    interface: u32,
    /// First word of a frame to the interface's own address, without the source's bytes; none is like [`Run::NO_FRAME`].
    mine: u64,
    /// Whether all frames go to `l2-input`.
    l2: bool,
    /// Whether frames with tags go to `ethernet-vlan`.
    tagged: bool,
}

impl Run {
    /// The low 16 bits are always shifted out of a frame's first word.
    const NO_FRAME: u64 = 1;
    const NONE: Self = Self { interface: u32::MAX, mine: Self::NO_FRAME, l2: false, tagged: false };

    #[inline(never)]
    fn of(interfaces: &IfTable, interface: IfIndex) -> Self {
        Self::kept(interface, interfaces.link(interface))
    }

    /// Of an interface's address and flags, as [`IfTable::link`] has them.
    #[inline(always)]
    fn kept(interface: IfIndex, link: u64) -> Self {
        let flags = (link >> 48) as u16;
        let kind = flags & (if_flags::UP | if_flags::L2 | if_flags::TAGGED | if_flags::UNTAGGED);
        let l2 = kind == if_flags::UP | if_flags::L2;
        let tagged = kind & (if_flags::UP | if_flags::TAGGED) == if_flags::UP | if_flags::TAGGED;
        Self { interface: interface.0, mine: mine(link), l2, tagged }
    }
}

/// First word of a frame to a routed interface's own address, without the source's bytes, as `word << 16` has it; like no frame's where the
/// interface is down, layer 2, or leaves untagged frames to a sub-interface. `link`: as [`IfTable::link`] has it.
#[inline(always)]
pub(super) fn mine(link: u64) -> u64 {
    let flags = (link >> 48) as u16;
    let routed = flags & (if_flags::UP | if_flags::L2 | if_flags::UNTAGGED) == if_flags::UP;
    // In the frame the address stands from the first byte on.
    if routed { (link << 16).swap_bytes() << 16 } else { Run::NO_FRAME }
}

/// Verdict on what is behind the link header, and whether it is IP or ARP.
#[inline(always)]
pub(super) fn by_type(ether_type: u16) -> (Verdict, bool) {
    const IP4: u16 = EtherType::IPV4.0;
    const IP6: u16 = EtherType::IPV6.0;
    const ARP: u16 = EtherType::ARP.0;
    let next = Verdict::select(ether_type == IP6, Next::Ip6.into(), Next::Arp.into());
    let next = Verdict::select(ether_type == IP4, Next::Ip4.into(), next);
    (next, (ether_type == IP4) | (ether_type == IP6) | (ether_type == ARP))
}

/// Whether a tag follows.
#[inline(always)]
pub(super) fn is_tag(ether_type: u16) -> bool {
    (ether_type == EtherType::VLAN.0) | (ether_type == EtherType::QINQ.0) | (ether_type == EtherType::QINQ_OLD.0)
}

impl Node<Shared> for EthernetInput {
    type Next = Next;
    type Drop = Drop;
    /// The node that meets the headers' line first.
    const PREFETCH: u8 = 8;

    #[inline(always)]
    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.run = Run::NONE;
    }

    #[inline(always)]
    fn packet(&mut self, _cx: &mut NodeCx<'_>, packet: Pkt<'_, Shared>) -> Verdict {
        let link = self.interfaces.link(packet.rx_if());
        decide(packet, link, &self.unknown, &mut self.more)
    }
}

impl FastPath<Shared> for EthernetInput {
    const WIDTH: u8 = 4;
    const PULLS: usize = size_of::<EthernetHeader>();

    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        const IP4: u16 = EtherType::IPV4.0.to_be();
        const IP6: u16 = EtherType::IPV6.0.to_be();
        let interface = batch.first_rx_if();
        self.turn_to(interface);
        if self.run.tagged
            && let Some(sent) = self.tagged(batch)
        {
            return Some(sent);
        }
        let mut differ = 0;
        if batch.all_from(interface, flags::LOCAL) {
            let first: [u64; W] = batch.heads::<_, 0>();
            if self.run.l2 {
                let unicast = first.iter().fold(0, |bits, word| bits | word) & 1 == 0;
                if !unicast || !batch.all_have(size_of::<EthernetHeader>() as u32) {
                    return None;
                }
                return Some(batch.send_all(Next::L2.into()));
            }
            for word in first {
                differ |= (word << 16) ^ self.run.mine;
            }
        } else {
            // Of several interfaces, as where many ports bring a packet or two each.
            let interfaces = batch.interfaces(flags::LOCAL)?;
            let first: [u64; W] = batch.heads::<_, 0>();
            for k in 0..W {
                differ |= (first[k] << 16) ^ Run::kept(interfaces[k], self.interfaces.link(interfaces[k])).mine;
            }
        }
        let types: [u16; W] = batch.heads::<_, 12>();
        let other = types.iter().fold(false, |other, t| other | ((*t != IP4) & (*t != IP6)));
        if (differ != 0) | other || !batch.pull::<{ size_of::<EthernetHeader>() as u32 }>() {
            return None;
        }
        if types.iter().fold(0, |differ, t| differ | (t ^ types[0])) == 0 {
            return Some(batch.send_all(Verdict::select(types[0] == IP4, Next::Ip4.into(), Next::Ip6.into())));
        }
        let mut verdicts = [Verdict::from(Next::Ip4); W];
        for (verdict, ether_type) in verdicts.iter_mut().zip(types) {
            *verdict = Verdict::select(ether_type == IP4, Next::Ip4.into(), Next::Ip6.into());
        }
        Some(batch.send(verdicts))
    }
}

#[cold]
fn accepted(more: &mut Snapshot<MoreMacs>, interface: IfIndex, mac: MacAddr) -> bool {
    more.refresh();
    more.get().accepts(interface, mac)
}

/// The rules, for any frame. `link`: address and flags of the interface, as [`IfTable::link`] has them.
#[inline(never)]
fn decide(mut packet: Pkt<'_, Shared>, link: u64, unknown: &ArcPoint, more: &mut Snapshot<MoreMacs>) -> Verdict {
    let header: EthernetHeader = packet.head();
    let (dst, mac, flags) = (header.dst.to_u64(), link & 0xffff_ffff_ffff, (link >> 48) as u16);
    let ether_type = header.ether_type().0;
    let has = |flag| flags & flag != 0;
    if !has(if_flags::UP) {
        return packet.drop(Drop::Down);
    }
    if packet.len() < size_of::<EthernetHeader>() {
        return packet.drop(Drop::Short);
    }
    let multicast = (dst >> 40) & 1 != 0;
    if multicast {
        packet.mark(flags::LINK_MULTICAST);
        // LLDP is of this link alone, whatever the interface is used for: its frames have no tags, and no bridge passes them on.
        if ether_type == EtherType::LLDP.0 {
            let feature = unknown.next(packet.rx_if(), Verdict::DROP);
            if feature != Verdict::DROP {
                return feature;
            }
        }
    }
    if has(if is_tag(ether_type) { if_flags::TAGGED } else { if_flags::UNTAGGED }) {
        return Next::Vlan.into();
    }
    if has(if_flags::L2) {
        return Next::L2.into();
    }
    // A tag that only tells a priority.
    if is_tag(ether_type) && u16::from_be_bytes(packet.head_at::<_, 14>()) & 0x0fff == 0 {
        return Next::Vlan.into();
    }
    if dst != mac && !multicast && !has(if_flags::PROMISCUOUS) && !accepted(more, packet.rx_if(), header.dst) {
        return packet.drop(Drop::OtherMac);
    }
    let (next, known) = by_type(ether_type);
    if !known {
        let feature = unknown.next(packet.rx_if(), Verdict::DROP);
        if feature != Verdict::DROP {
            return feature;
        }
        let llc = ether_type < EtherType::FIRST_TYPE.0;
        return packet.drop(if llc { Drop::Llc } else { Drop::UnknownType });
    }
    packet.pull(size_of::<EthernetHeader>());
    next
}
