//! `bfd-udp4-input`, `bfd-udp6-input`: is the packet a control packet of a session, and which thread has that?

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::{Node, NodeCx, Pkt, Verdict, drop_reasons, next_nodes};
use quiver_net::data::IfTable;
use quiver_net::ip::{Family, V4, V6};
use quiver_wire::Header;
use quiver_wire::ipv4::Ipv4Header;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::udp::UdpHeader;

use crate::datagram::{Key, MULTIHOP_PORT, TTL};
use crate::index::IndexReader;
use crate::packet::{Control, Invalid};

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
pub trait InputFamily: Family {
    /// TTL or hop limit, source and destination.
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr);

    /// Exchanges source and destination of a packet that came with TTL 255: it leaves with one less. Checksums behind the IP header
    /// hold.
    fn turn(packet: &mut Pkt<'_>);
}

impl InputFamily for V4 {
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr) {
        let header: Ipv4Header = packet.head();
        (header.ttl, Ipv4Addr::from_bits(header.src.get()).into(), Ipv4Addr::from_bits(header.dst.get()).into())
    }

    fn turn(packet: &mut Pkt<'_>) {
        let mut header: Ipv4Header = packet.head();
        std::mem::swap(&mut header.src, &mut header.dst);
        header.decrement_ttl();
        packet.set_head(header);
    }
}

impl InputFamily for V6 {
    fn header(packet: &Pkt<'_>) -> (u8, IpAddr, IpAddr) {
        let header: Ipv6Header = packet.head();
        (header.hop_limit, Ipv6Addr::from_bits(header.src.get()).into(), Ipv6Addr::from_bits(header.dst.get()).into())
    }

    fn turn(packet: &mut Pkt<'_>) {
        let mut header: Ipv6Header = packet.head();
        std::mem::swap(&mut header.src, &mut header.dst);
        header.hop_limit -= 1;
        packet.set_head(header);
    }
}

/// Where a UDP datagram came to and where its data is. Data at the IP header, offset of the UDP header in the aux lane, as
/// `ip4-udp-lookup` has them.
pub(super) fn udp<'a>(packet: &'a Pkt<'_>) -> Option<(u16, usize, &'a [u8])> {
    let at = packet.aux() as usize;
    let udp = UdpHeader::read_at(packet.bytes(), at)?;
    let start = at + UdpHeader::LEN;
    let len = udp.payload_len(packet.bytes().len().checked_sub(at)?)?;
    Some((udp.dst_port.get(), start, packet.bytes().get(start..start + len)?))
}

/// The node. Packets come from `ip4-udp-lookup`.
#[derive(Clone)]
pub struct Input<F> {
    pub(super) index: IndexReader,
    pub(super) interfaces: IfTable,
    pub(super) family: PhantomData<F>,
}

/// Finds the session of a control packet: its discriminator and the thread that has it.
fn find(index: &IndexReader, key: &Key, data: &[u8]) -> Result<(u32, usize), Drop> {
    let control = Control::parse(data)?;
    let of_peer = index.discriminator(key);
    let discriminator = match control.your_discriminator {
        0 => of_peer.ok_or(Drop::UnknownPeer)?,
        known => known,
    };
    let owner = index.owner(discriminator).ok_or(Drop::UnknownDiscriminator)?;
    if of_peer == Some(discriminator) { Ok((discriminator, owner)) } else { Err(Drop::OtherPeer) }
}

impl<F: InputFamily> Input<F> {
    /// What the session of this packet is known by. Of single-hop ones whoever sent it is on the link (RFC 5082); of others the TTL
    /// says nothing (RFC 5883, 5).
    fn key(&self, packet: &Pkt<'_>, port: u16) -> Result<Key, Drop> {
        let (ttl, src, dst) = F::header(packet);
        match port {
            MULTIHOP_PORT => {
                let fib = packet.table().unwrap_or_else(|| F::fib_of(self.interfaces.fibs(packet.rx_if())));
                Ok(Key::multihop(fib, dst, src))
            }
            _ if ttl == TTL => Ok(Key::on(packet.rx_if(), dst, src)),
            _ => Err(Drop::Ttl),
        }
    }
}

impl<F: InputFamily> Node for Input<F> {
    type Next = Next;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let Some((port, start, data)) = udp(&packet) else { return packet.drop(Drop::Length) };
        let len = data.len();
        let found = self.key(&packet, port).and_then(|key| find(&self.index, &key, data));
        match found {
            Ok((discriminator, owner)) => {
                if !packet.pull(start) {
                    return packet.drop(Drop::Length);
                }
                packet.trim(len);
                packet.set_aux(discriminator);
                cx.hand_over(owner, Next::Session, packet, Drop::Congestion)
            }
            Err(reason) => packet.drop(reason),
        }
    }
}
