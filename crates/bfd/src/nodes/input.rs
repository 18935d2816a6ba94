//! `bfd-udp4-input`, `bfd-udp6-input`: is the packet a control packet of a session, and which thread has that?

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::{IfIndex, Node, NodeCx, Pkt, Snapshot, Verdict, drop_reasons, next_nodes};
use quiver_net::ip::{V4, V6};
use quiver_wire::Header;
use quiver_wire::ipv4::Ipv4Header;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;

use super::Index;
use crate::packet::{Control, Invalid};
use crate::thread::{Key, TTL};

next_nodes! {
    /// Where packets of sessions go.
    pub enum Next { Session = "bfd-session" }
}

drop_reasons! {
    /// Why packets are dropped.
    pub enum Drop {
        /// The TTL or hop limit is not 255: the packet was forwarded by a router.
        Ttl = "TTL or hop limit is not 255",
        /// The packet ends before its length fields say.
        Length = "shorter than its length fields say",
        /// The version of the protocol is not 1.
        Version = "unknown version",
        /// The detection multiplier is 0, which no session may have.
        DetectMult = "detection multiplier is 0",
        /// The multipoint bit is set, which is for another protocol.
        Multipoint = "multipoint bit is set",
        /// The sender's discriminator is 0, which no session may have.
        MyDiscriminator = "my discriminator is 0",
        /// The sender knows no discriminator of the router in a state in which it must.
        YourDiscriminator = "your discriminator is 0 in a state that has one",
        /// The router has no session with the discriminator that the packet names.
        UnknownDiscriminator = "no session with this discriminator",
        /// The router has no session with the sender.
        ///
        /// Causes: the other side has a session with this router, and this router has none with it, or has it with another address
        /// or interface.
        /// Check: `show bfd sessions`; add the session, or correct its addresses.
        /// See: `show bfd sessions`, `bfd udp session add`.
        UnknownPeer = "no session with this peer",
        /// The session that the packet names is with another peer or on another interface.
        OtherPeer = "session is with another peer or on another interface",
        /// The packet is authenticated, and sessions here are not.
        Authentication = "authentication is not in use",
        /// The queue to the thread that has the session is full.
        Congestion = "handoff congestion drop",
    }
}

impl From<Invalid> for Drop {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Length => Self::Length,
            Invalid::Version => Self::Version,
            Invalid::DetectMult => Self::DetectMult,
            Invalid::Multipoint => Self::Multipoint,
            Invalid::MyDiscriminator => Self::MyDiscriminator,
            Invalid::YourDiscriminator => Self::YourDiscriminator,
        }
    }
}

/// What differs between the families here.
pub trait InputFamily: Copy + Send + 'static {
    /// TTL or hop limit, source and destination.
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr);
}

impl InputFamily for V4 {
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr) {
        let header: Ipv4Header = packet.head();
        (header.ttl, Ipv4Addr::from_bits(header.src.get()).into(), Ipv4Addr::from_bits(header.dst.get()).into())
    }
}

impl InputFamily for V6 {
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr) {
        let header: Ipv6Header = packet.head();
        (header.hop_limit, Ipv6Addr::from_bits(header.src.get()).into(), Ipv6Addr::from_bits(header.dst.get()).into())
    }
}

/// The node. Packets come from `ip4-udp-lookup`: data at the IP header, offset of the UDP header in the aux lane.
#[derive(Clone)]
pub struct Input<F> {
    pub(super) index: Snapshot<Index>,
    pub(super) family: PhantomData<F>,
}

/// Finds the session of a control packet: its discriminator and the thread that has it.
pub(crate) fn find(index: &Index, interface: IfIndex, src: IpAddr, dst: IpAddr, data: &[u8]) -> Result<(u32, usize), Drop> {
    let control = Control::parse(data)?;
    let key = Key { interface, local: dst, peer: src };
    let discriminator = match control.your_discriminator {
        0 => *index.by_key.get(&key).ok_or(Drop::UnknownPeer)?,
        known => known,
    };
    let place = index.by_discriminator.get(&discriminator).ok_or(Drop::UnknownDiscriminator)?;
    if place.key != key {
        return Err(Drop::OtherPeer);
    }
    if control.authenticated {
        return Err(Drop::Authentication);
    }
    Ok((discriminator, place.owner))
}

impl<F: InputFamily> Node for Input<F> {
    type Next = Next;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.index.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let (ttl, src, dst) = F::header(&packet);
        // RFC 5082: whoever sent it is on the link.
        if ttl != TTL {
            return packet.drop(Drop::Ttl);
        }
        let start = packet.aux() as usize + UdpHeader::LEN;
        let udp = UdpHeader::read_at(packet.bytes(), packet.aux() as usize);
        let available = packet.bytes().len().saturating_sub(packet.aux() as usize);
        let data = udp.and_then(|udp| packet.bytes().get(start..start + udp.payload_len(available)?));
        let Some(data) = data else { return packet.drop(Drop::Length) };
        match find(self.index.get(), packet.rx_if(), src, dst, data) {
            Ok((discriminator, owner)) => {
                let len = data.len();
                if !packet.pull(start) {
                    return packet.drop(Drop::Length);
                }
                packet.trim(len);
                packet.set_aux(discriminator);
                let (packet, taken) = packet.take();
                if let Err(packet) = cx.emit_on(owner, Next::Session, packet) {
                    cx.drop_packet(packet, Drop::Congestion);
                }
                taken
            }
            Err(reason) => packet.drop(reason),
        }
    }
}
