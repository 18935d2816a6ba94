//! `vrrp4-local`, `vrrp6-local`: of the packets for this router, advertisements go to the thread that has their virtual router;
//! solicitations for virtual addresses are answered by the master; packets to virtual addresses are for the accept mode.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv6Addr};

use quiver_graph::{ArcPoint, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, flags};
use quiver_net::ip::{Family, FamilyId};
use quiver_net::local::upper_layer;
use quiver_wire::ipv4::{IpProtocol, Ipv4Header};
use quiver_wire::ipv6::Ipv6Header;

use super::{Index, Place};
use crate::packet::{Advertisement, Invalid, TTL, group};
use crate::thread::Key;

drop_reasons! {
    /// Why packets are dropped.
    pub enum Drop {
        /// The TTL or hop limit is not 255: the advertisement was forwarded by a router.
        Ttl = "TTL or hop limit is not 255",
        /// The advertisement ends before its addresses do.
        Length = "shorter than its fields say",
        /// The version of the protocol is not 3.
        Version = "unknown version",
        /// The message is no advertisement.
        Type = "unknown type",
        /// The checksum of the advertisement is wrong.
        Checksum = "bad checksum",
        /// The interval between advertisements is 0.
        Interval = "advertisement interval is 0",
        /// The addresses are this interface's own, and another router advertises them.
        ///
        /// Causes: two routers have the same address or both claim to own it (priority 255).
        /// Check: `show vrrp vr`; give the address to one of them.
        /// See: `show vrrp vr`.
        Owner = "another router advertises an address of this router",
        /// The advertisement was sent to the group, and the virtual router is unicast, or the other way round.
        Destination = "multicast for a unicast virtual router, or unicast for another",
        /// The sender is no peer of the unicast virtual router.
        Peer = "sender is no peer",
        /// The packet is to a virtual address, and the accept mode is off.
        ///
        /// Causes: a host pings or connects to the virtual address itself.
        /// Check: nothing, or add the virtual router with `accept_mode`.
        /// See: `show vrrp vr`, `vrrp vr add`.
        NotAccepted = "virtual address without accept mode",
        /// The queue to the thread that has the virtual router is full.
        Congestion = "handoff congestion drop",
        /// A neighbor solicitation for a virtual address was answered.
        Advertised = "neighbor advertisements sent for virtual addresses" (info),
    }
}

impl From<Invalid> for Drop {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Length => Self::Length,
            Invalid::Version => Self::Version,
            Invalid::Type => Self::Type,
            Invalid::Interval => Self::Interval,
            Invalid::Checksum => Self::Checksum,
        }
    }
}

/// Slot of the end of the arc: declared first.
const END: Verdict = Verdict::slot(1);
/// Slot of `vrrp-machine`.
const TO_MACHINE: Verdict = Verdict::slot(2);
/// Slot of `neighbor-output`.
const TO_OUTPUT: Verdict = Verdict::slot(3);
/// ICMPv6 types.
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// TTL or hop limit, source and destination of a packet whose data begins at its IP header.
fn header(family: FamilyId, packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr) {
    match family {
        FamilyId::V4 => {
            let header: Ipv4Header = packet.head();
            (header.ttl, header.src_addr().into(), header.dst_addr().into())
        }
        FamilyId::V6 => {
            let header: Ipv6Header = packet.head();
            (header.hop_limit, header.src_addr().into(), header.dst_addr().into())
        }
    }
}

/// The message behind the IP header and its options, up to the end that the IP header says.
fn message<'p>(family: FamilyId, packet: &'p Pkt<'_>, offset: usize) -> &'p [u8] {
    let end = match family {
        FamilyId::V4 => usize::from(packet.head::<Ipv4Header>().total_len.get()),
        FamilyId::V6 => size_of::<Ipv6Header>() + usize::from(packet.head::<Ipv6Header>().payload_len.get()),
    };
    let bytes = packet.bytes();
    bytes.get(offset..end.min(bytes.len())).unwrap_or_default()
}

/// The advertisement in a packet, and who sent it.
pub fn read(packet: &Pkt<'_>) -> Option<(Advertisement, IpAddr)> {
    let family = if packet.head::<u8>() >> 4 == 4 { FamilyId::V4 } else { FamilyId::V6 };
    let (protocol, offset) = upper_layer(family, packet)?;
    let (_, src, dst) = header(family, packet);
    let heard = Advertisement::parse(src, dst, message(family, packet, offset)).ok()?;
    (protocol == IpProtocol::VRRP).then_some((heard, src))
}

/// The node.
#[derive(Clone)]
pub struct Local<F> {
    pub(super) index: Snapshot<Index>,
    pub(super) arc: ArcPoint,
    pub(super) family: PhantomData<F>,
}

/// Whether an advertisement is one that its virtual router may hear.
fn check(place: &Place, family: FamilyId, (ttl, src, dst): (u8, IpAddr, IpAddr), message: &[u8]) -> Result<(), Drop> {
    // RFC 9568, 7.1. Whoever sent it is on the link.
    if ttl != TTL {
        return Err(Drop::Ttl);
    }
    Advertisement::parse(src, dst, message)?;
    if place.is_owner {
        return Err(Drop::Owner);
    }
    if place.peers.is_some() == (dst == group(family)) {
        return Err(Drop::Destination);
    }
    match &place.peers {
        Some(peers) if !peers.contains(&src) => Err(Drop::Peer),
        _ => Ok(()),
    }
}

impl<F: Family> Node for Local<F> {
    type Next = NoNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.index.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = packet.rx_if();
        let on = self.arc.next(interface, END);
        if packet.has(flags::LOCAL) {
            return on;
        }
        let index = self.index.get();
        let head = header(F::ID, &packet);
        let upper = upper_layer(F::ID, &packet);
        if let Some((IpProtocol::VRRP, offset)) = upper {
            let message = message(F::ID, &packet, offset);
            let key = message.get(1).map(|vr_id| Key { interface, family: F::ID, vr_id: *vr_id });
            // Others may be those of a daemon.
            let Some(place) = key.and_then(|key| index.routers.get(&key)) else { return on };
            if let Err(reason) = check(place, F::ID, head, message) {
                return packet.drop(reason);
            }
            packet.set_aux(place.serial);
            return cx.hand_over(place.owner, TO_MACHINE, packet, Drop::Congestion);
        }
        let discovery = match upper {
            Some((IpProtocol::ICMPV6, offset)) => packet.bytes().get(offset).copied().map(|kind| (kind, offset)),
            _ => None,
        };
        if let Some((SOLICITATION, offset)) = discovery {
            let target = packet.bytes().get(offset + 8..offset + 24).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            let address = target.and_then(|target| index.addresses.get(&(interface, Ipv6Addr::from(target).into())));
            let Some(address) = address.filter(|address| address.is_master()) else { return on };
            if !address.station.answer_solicitation(&mut packet, offset) {
                return on;
            }
            cx.count(Drop::Advertised, 1);
            return TO_OUTPUT;
        }
        match index.addresses.get(&(interface, head.2)) {
            Some(address) if !address.accept && !matches!(discovery, Some((ADVERTISEMENT, _))) => packet.drop(Drop::NotAccepted),
            _ => on,
        }
    }
}
