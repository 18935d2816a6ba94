//! Messages of the kernel's route netlink, as far as the router needs them.
//!
//! ```text
//!   datagram ──► envelopes (struct nlmsghdr) ──► Message: fixed part and the attributes that matter, nothing else
//! ```
//!
//! Attributes are walked with the iterator of `netlink-packet-core`. The messages of `netlink-packet-route` are not used: it has
//! no next-hop objects, it refuses a whole message for one attribute that it does not understand, and it allocates for each
//! attribute, which matters with a million routes.
//!
//! What comes from the kernel is not trusted: a message that is too short or says impossible things is [`Malformed`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NlasIterator;
use quiver_wire::{IpPrefix, MacAddr};

/// Types of messages (linux/rtnetlink.h, linux/netlink.h).
pub mod kind {
    #![allow(missing_docs)]
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const NEW_LINK: u16 = 16;
    pub const DEL_LINK: u16 = 17;
    pub const GET_LINK: u16 = 18;
    pub const NEW_ADDRESS: u16 = 20;
    pub const DEL_ADDRESS: u16 = 21;
    pub const GET_ADDRESS: u16 = 22;
    pub const NEW_ROUTE: u16 = 24;
    pub const DEL_ROUTE: u16 = 25;
    pub const GET_ROUTE: u16 = 26;
    pub const NEW_NEIGHBOR: u16 = 28;
    pub const DEL_NEIGHBOR: u16 = 29;
    pub const GET_NEIGHBOR: u16 = 30;
    pub const NEW_NEXT_HOP: u16 = 104;
    pub const DEL_NEXT_HOP: u16 = 105;
    pub const GET_NEXT_HOP: u16 = 106;
}

/// Attributes of routes and of their next hops (linux/rtnetlink.h).
pub mod rta {
    #![allow(missing_docs)]
    pub const DST: u16 = 1;
    pub const OIF: u16 = 4;
    pub const GATEWAY: u16 = 5;
    pub const PRIORITY: u16 = 6;
    pub const MULTIPATH: u16 = 9;
    pub const TABLE: u16 = 15;
    pub const VIA: u16 = 18;
    pub const ENCAP: u16 = 22;
    pub const NH_ID: u16 = 30;
}

/// Attributes of next-hop objects (linux/nexthop.h).
pub mod nha {
    #![allow(missing_docs)]
    pub const ID: u16 = 1;
    pub const GROUP: u16 = 2;
    pub const BLACKHOLE: u16 = 4;
    pub const OIF: u16 = 5;
    pub const GATEWAY: u16 = 6;
    pub const ENCAP: u16 = 8;
    pub const FDB: u16 = 11;
}

/// Flags of messages (linux/netlink.h).
pub mod flag {
    #![allow(missing_docs)]
    pub const REQUEST: u16 = 0x1;
    pub const MULTI: u16 = 0x2;
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    pub const DUMP: u16 = 0x300;
    pub const REPLACE: u16 = 0x100;
    pub const APPEND: u16 = 0x800;
}

/// Address families (linux/socket.h).
pub const AF_INET: u8 = 2;
/// IPv6.
pub const AF_INET6: u8 = 10;

/// Bytes of the header of each message.
pub const HEADER: usize = 16;

/// Bytes that are no message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A message before its contents are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// One of [`kind`].
    pub kind: u16,
    /// Of [`flag`].
    pub flags: u16,
    /// Number of the request that it answers; 0: a notification.
    pub sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

/// The messages of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Envelopes<'a>(&'a [u8]);

impl<'a> Envelopes<'a> {
    /// Of these bytes.
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }
}

impl<'a> Iterator for Envelopes<'a> {
    type Item = Result<Envelope<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let Some(length) = u32_at(bytes, 0).map(|n| n as usize).filter(|n| (HEADER..=bytes.len()).contains(n)) else {
            return Some(Err(Malformed));
        };
        // Messages stand on multiples of four bytes.
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let envelope = (|| {
            Some(Envelope {
                kind: u16_at(bytes, 4)?,
                flags: u16_at(bytes, 6)?,
                sequence: u32_at(bytes, 8)?,
                body: bytes.get(HEADER..length)?,
            })
        })();
        Some(envelope.ok_or(Malformed))
    }
}

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A link is there, or has changed.
    Link(Link),
    /// A link has gone.
    LinkGone(u32),
    /// An address is there, or has gone.
    Address {
        /// The link's index.
        link: u32,
        /// Address and prefix length.
        address: (IpAddr, u8),
        /// It is there.
        is_there: bool,
    },
    /// A neighbour.
    Neighbor {
        /// The link's index.
        link: u32,
        /// Its address.
        address: IpAddr,
        /// What is known of it; none: it is not reachable, or gone.
        state: Option<NeighborState>,
    },
    /// A next-hop object is there, or has changed.
    NextHop(u32, NextHop),
    /// A next-hop object has gone.
    NextHopGone(u32),
    /// A route is there.
    Route(Route),
    /// A route has gone.
    RouteGone(Route),
    /// A dump is complete.
    Done,
    /// A request failed: the error's number.
    Error(i32),
    /// Nothing for the router.
    Other,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Its carrier is there, as next-hop objects ask for it.
    pub carrier: bool,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Index of the link that it belongs to, such as a VRF.
    pub master: Option<u32>,
    /// For a VRF: its table.
    pub vrf: Option<u32>,
}

/// A neighbour whose MAC address the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborState {
    /// MAC address.
    pub mac: MacAddr,
    /// Set by a person or a program.
    pub permanent: bool,
}

/// A next hop of a route or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// The link's index.
    pub link: u32,
    /// Next hop; none: the destination is on the link.
    pub via: Option<IpAddr>,
    /// From 1.
    pub weight: u16,
    /// Packets would get a header more (MPLS, segment routing, tunnel).
    pub encapsulated: bool,
}

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// One next hop.
    One(Hop),
    /// Packets are dropped.
    Blackhole,
    /// Other objects with weights from 1. Resilient groups are groups.
    Group(Vec<(u32, u16)>),
    /// For bridges.
    Other,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// To these next hops.
    Hops(Box<[Hop]>),
    /// To a next-hop object.
    Object(u32),
    /// To a next-hop object of a routing daemon (FPM), which numbers them by itself.
    PushedObject(u32),
    /// Packets are dropped.
    Blackhole,
    /// Packets are answered by "unreachable".
    Unreachable,
    /// Packets are answered by "prohibited".
    Prohibit,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The kernel's table.
    pub table: u32,
    /// Destination.
    pub prefix: IpPrefix,
    /// Lower is preferred.
    pub metric: u32,
    /// Who made it (`/etc/iproute2/rt_protos`).
    pub protocol: u8,
    /// For packets of this type of service only; 0: all.
    pub tos: u8,
    /// For packets of some sources only.
    pub by_source: bool,
    /// Where it leads.
    pub target: Target,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(value: &[u8]) -> Result<u32, Malformed> {
    u32_at(value, 0).ok_or(Malformed)
}

fn address(family: u8, value: &[u8]) -> Result<IpAddr, Malformed> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).map(|a| IpAddr::V4(Ipv4Addr::from(a))).map_err(|_| Malformed),
        AF_INET6 => <[u8; 16]>::try_from(value).map(|a| IpAddr::V6(Ipv6Addr::from(a))).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

/// Calls `take` with kind and value of each attribute.
fn attributes<'a>(bytes: &'a [u8], mut take: impl FnMut(u16, &'a [u8]) -> Result<(), Malformed>) -> Result<(), Malformed> {
    for attribute in NlasIterator::new(bytes) {
        let attribute = attribute.map_err(|_| Malformed)?;
        let length = usize::from(attribute.length());
        let whole: &'a [u8] = attribute.into_inner();
        take(u16_at(whole, 2).ok_or(Malformed)? & KIND_MASK, whole.get(4..length).ok_or(Malformed)?)?;
    }
    Ok(())
}

/// Of an attribute's type without its two flags (linux/netlink.h, NLA_TYPE_MASK).
const KIND_MASK: u16 = 0x3fff;

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// It is too short, or an attribute that matters is not what it should be.
    pub fn parse(envelope: &Envelope<'_>) -> Result<Self, Malformed> {
        let body = envelope.body;
        match envelope.kind {
            kind::DONE => Ok(Self::Done),
            kind::ERROR => Ok(Self::Error(u32_at(body, 0).ok_or(Malformed)? as i32)),
            kind::NEW_LINK => link(body),
            // A port that leaves a bridge is a "deleted link" of that family.
            kind::DEL_LINK if body.first() == Some(&0) => Ok(Self::LinkGone(u32_at(body, 4).ok_or(Malformed)?)),
            kind::NEW_ADDRESS => of_address(body, true),
            kind::DEL_ADDRESS => of_address(body, false),
            kind::NEW_NEIGHBOR => neighbor(body, true),
            kind::DEL_NEIGHBOR => neighbor(body, false),
            kind::NEW_NEXT_HOP => next_hop(body, true),
            kind::DEL_NEXT_HOP => next_hop(body, false),
            kind::NEW_ROUTE => Ok(route(body, true)?.map_or(Self::Other, Self::Route)),
            kind::DEL_ROUTE => Ok(route(body, false)?.map_or(Self::Other, Self::RouteGone)),
            _ => Ok(Self::Other),
        }
    }
}

/// `struct ifinfomsg` and IFLA_… (linux/if_link.h).
fn link(body: &[u8]) -> Result<Message, Malformed> {
    const BYTES: usize = 16;
    const IFNAME: u16 = 3;
    const MTU: u16 = 4;
    const MASTER: u16 = 10;
    const LINKINFO: u16 = 18;
    const UP: u32 = 1;
    const RUNNING: u32 = 0x40;
    const LOWER_UP: u32 = 0x1_0000;
    let attributes_of = body.get(BYTES..).ok_or(Malformed)?;
    let (index, flags) = (u32_at(body, 4).ok_or(Malformed)?, u32_at(body, 8).ok_or(Malformed)?);
    let up = flags & UP != 0;
    let carrier = flags & (RUNNING | LOWER_UP) != 0;
    let mut link = Link { index, name: String::new(), up, carrier, mtu: 0, master: None, vrf: None };
    attributes(attributes_of, |kind, value| {
        match kind {
            IFNAME => link.name = String::from_utf8_lossy(value.split(|b| *b == 0).next().unwrap_or_default()).into_owned(),
            MTU => link.mtu = word(value)?,
            MASTER => link.master = Some(word(value)?).filter(|n| *n != 0),
            LINKINFO => link.vrf = vrf(value)?,
            _ => {}
        }
        Ok(())
    })?;
    // Other families' messages, and those of wireless events, do not describe the whole link.
    Ok(if body.first() == Some(&0) && link.mtu > 0 { Message::Link(link) } else { Message::Other })
}

/// The table of a VRF, from its IFLA_LINKINFO.
fn vrf(linkinfo: &[u8]) -> Result<Option<u32>, Malformed> {
    const KIND: u16 = 1;
    const DATA: u16 = 2;
    const VRF_TABLE: u16 = 1;
    let (mut is_vrf, mut data) = (false, &[][..]);
    attributes(linkinfo, |kind, value| {
        match kind {
            KIND => is_vrf = value.strip_suffix(&[0]).unwrap_or(value) == b"vrf",
            DATA => data = value,
            _ => {}
        }
        Ok(())
    })?;
    let mut table = None;
    if is_vrf {
        attributes(data, |kind, value| {
            if kind == VRF_TABLE {
                table = Some(word(value)?);
            }
            Ok(())
        })?;
    }
    Ok(table)
}

/// `struct ifaddrmsg` and IFA_… (linux/if_addr.h).
fn of_address(body: &[u8], is_there: bool) -> Result<Message, Malformed> {
    const BYTES: usize = 8;
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let ([family, len, ..], link) = (body.first_chunk::<8>().ok_or(Malformed)?, u32_at(body, 4).ok_or(Malformed)?);
    if !matches!(*family, AF_INET | AF_INET6) {
        return Ok(Message::Other);
    }
    let (mut own, mut peer) = (None, None);
    attributes(body.get(BYTES..).ok_or(Malformed)?, |kind, value| {
        match kind {
            ADDRESS => peer = Some(address(*family, value)?),
            LOCAL => own = Some(address(*family, value)?),
            _ => {}
        }
        Ok(())
    })?;
    // With a peer IFA_ADDRESS is the peer's; the prefix length is that of the peer's prefix.
    let len = match (own, peer) {
        (Some(own), Some(peer)) if own != peer => IpPrefix::host(own).len(),
        _ => *len,
    };
    let address = own.or(peer).ok_or(Malformed)?;
    IpPrefix::new(address, len).map_err(|_| Malformed)?;
    Ok(Message::Address { link, address: (address, len), is_there })
}

/// `struct ndmsg` and NDA_… (linux/neighbour.h).
fn neighbor(body: &[u8], is_there: bool) -> Result<Message, Malformed> {
    const BYTES: usize = 12;
    const DST: u16 = 1;
    const LLADDR: u16 = 2;
    const PERMANENT: u16 = 0x80;
    /// Reachable, stale, delay, probe, permanent.
    const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | PERMANENT;
    const NOARP: u16 = 0x40;
    const PROXY: u8 = 0x08;
    let family = *body.first().ok_or(Malformed)?;
    let (link, state) = (u32_at(body, 4).ok_or(Malformed)?, u16_at(body, 8).ok_or(Malformed)?);
    let flags = *body.get(10).ok_or(Malformed)?;
    if !matches!(family, AF_INET | AF_INET6) || flags & PROXY != 0 || state & NOARP != 0 {
        return Ok(Message::Other);
    }
    let (mut destination, mut mac) = (None, None);
    attributes(body.get(BYTES..).ok_or(Malformed)?, |kind, value| {
        match kind {
            DST => destination = Some(address(family, value)?),
            LLADDR => mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
            _ => {}
        }
        Ok(())
    })?;
    let usable = is_there && state & USABLE != 0;
    let state = mac.filter(|_| usable).map(|mac| NeighborState { mac, permanent: state & PERMANENT != 0 });
    Ok(Message::Neighbor { link, address: destination.ok_or(Malformed)?, state })
}

/// `struct nhmsg` and NHA_… (linux/nexthop.h).
fn next_hop(body: &[u8], is_there: bool) -> Result<Message, Malformed> {
    const BYTES: usize = 8;
    /// Bytes of `struct nexthop_grp`: object, weight less one, its high byte, padding.
    const MEMBER: usize = 8;
    let family = *body.first().ok_or(Malformed)?;
    let mut id = None;
    let (mut fdb, mut blackhole) = (false, false);
    let mut group = None;
    let mut hop = Hop { link: 0, via: None, weight: 1, encapsulated: false };
    attributes(body.get(BYTES..).ok_or(Malformed)?, |kind, value| {
        match kind {
            nha::ID => id = Some(word(value)?),
            nha::GROUP => {
                let member = |m: &[u8]| {
                    let weight = u16::from(*m.get(5)?) << 8 | u16::from(*m.get(4)?);
                    Some((u32_at(m, 0)?, weight.saturating_add(1)))
                };
                group = value.chunks_exact(MEMBER).map(member).collect::<Option<Vec<_>>>();
            }
            nha::BLACKHOLE => blackhole = true,
            nha::OIF => hop.link = word(value)?,
            nha::GATEWAY => hop.via = Some(address(family, value)?),
            nha::ENCAP => hop.encapsulated = true,
            nha::FDB => fdb = true,
            _ => {}
        }
        Ok(())
    })?;
    let id = id.ok_or(Malformed)?;
    if !is_there {
        return Ok(Message::NextHopGone(id));
    }
    let object = match group {
        _ if fdb => NextHop::Other,
        _ if blackhole => NextHop::Blackhole,
        Some(group) => NextHop::Group(group),
        None => NextHop::One(hop),
    };
    Ok(Message::NextHop(id, object))
}

/// `struct rtmsg` and RTA_… (linux/rtnetlink.h). None: not of the kind that forwards.
fn route(body: &[u8], is_there: bool) -> Result<Option<Route>, Malformed> {
    const BYTES: usize = 12;
    const CLONED: u32 = 0x200;
    const UNICAST: u8 = 1;
    let [family, len, source_len, tos, table, protocol, _scope, what, ..] = *body.first_chunk::<BYTES>().ok_or(Malformed)?;
    if !matches!(family, AF_INET | AF_INET6) || u32_at(body, 8).ok_or(Malformed)? & CLONED != 0 {
        return Ok(None);
    }
    let target = match what {
        UNICAST => None,
        // FRR does not say what a route was that goes.
        0 if !is_there => None,
        6 => Some(Target::Blackhole),
        7 => Some(Target::Unreachable),
        8 => Some(Target::Prohibit),
        // Local, broadcast, multicast, anycast: they follow from addresses. Throw: nothing to forward by.
        _ => return Ok(None),
    };
    let mut table = u32::from(table);
    let mut metric = 0;
    let mut destination = if family == AF_INET { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let mut hop = Hop { link: 0, via: None, weight: 1, encapsulated: false };
    let (mut object, mut several) = (None, None);
    attributes(&body[BYTES..], |kind, value| {
        match kind {
            rta::DST => destination = address(family, value)?,
            rta::OIF => hop.link = word(value)?,
            rta::GATEWAY => hop.via = Some(address(family, value)?),
            rta::VIA => hop.via = Some(via(value)?),
            rta::PRIORITY => metric = word(value)?,
            rta::MULTIPATH => several = Some(multipath(family, value)?),
            rta::TABLE => table = word(value)?,
            rta::ENCAP => hop.encapsulated = true,
            rta::NH_ID => object = Some(word(value)?),
            _ => {}
        }
        Ok(())
    })?;
    let prefix = IpPrefix::new(destination, len).map_err(|_| Malformed)?.masked();
    let target = match (target, object, several) {
        (Some(target), ..) => target,
        (None, Some(object), _) => Target::Object(object),
        (None, None, Some(hops)) => Target::Hops(hops.into()),
        (None, None, None) => Target::Hops([hop].into()),
    };
    Ok(Some(Route { table, prefix, metric, protocol, tos, by_source: source_len != 0, target }))
}

/// `struct rtvia`: a next hop of any family.
fn via(value: &[u8]) -> Result<IpAddr, Malformed> {
    let family = u16_at(value, 0).ok_or(Malformed)?;
    address(u8::try_from(family).map_err(|_| Malformed)?, value.get(2..).ok_or(Malformed)?)
}

/// `struct rtnexthop`, several with attributes each.
fn multipath(family: u8, mut bytes: &[u8]) -> Result<Vec<Hop>, Malformed> {
    const BYTES: usize = 8;
    let mut hops = Vec::new();
    while bytes.len() >= BYTES {
        let length = usize::from(u16_at(bytes, 0).ok_or(Malformed)?);
        if !(BYTES..=bytes.len()).contains(&length) {
            return Err(Malformed);
        }
        let weight = u16::from(bytes[3]) + 1;
        let mut hop = Hop { link: u32_at(bytes, 4).ok_or(Malformed)?, via: None, weight, encapsulated: false };
        attributes(&bytes[BYTES..length], |kind, value| {
            match kind {
                rta::GATEWAY => hop.via = Some(address(family, value)?),
                rta::VIA => hop.via = Some(via(value)?),
                rta::ENCAP => hop.encapsulated = true,
                _ => {}
            }
            Ok(())
        })?;
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops.sort_unstable();
    if hops.is_empty() { Err(Malformed) } else { Ok(hops) }
}
