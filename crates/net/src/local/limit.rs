//! UDP ports of which a node takes the datagrams of some peers only, where the interface has another stack for the rest. One more peer
//! costs a constant amount.

use std::collections::HashMap;
use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_tables::OutOfMemory;
use quiver_tables::hash::{BoundedHash, HashReader};
use quiver_tables::qsbr::Domain;

use super::table::SlotTable;
use super::{Local, RegisterError};
use crate::Router;
use crate::ip::FamilyId;

/// Most peers of a family, with those that were removed a moment ago.
const PEERS_MAX: u32 = 1 << 15;

/// Interface, port, and both addresses. A table has one family.
type Bytes = [u8; 40];

/// A key for a table of what is between two addresses of one family: two numbers, own address, the other one.
pub fn pair_key(numbers: [u32; 2], local: IpAddr, peer: IpAddr) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..4].copy_from_slice(&numbers[0].to_be_bytes());
    bytes[4..8].copy_from_slice(&numbers[1].to_be_bytes());
    for (at, address) in [(8, local), (24, peer)] {
        match address {
            IpAddr::V4(address) => bytes[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    bytes
}

/// Between whom a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpPeer {
    /// Interface that it comes in by; `None`: any.
    pub interface: Option<IfIndex>,
    /// Own address.
    pub local: IpAddr,
    /// The sender's.
    pub peer: IpAddr,
}

impl UdpPeer {
    fn bytes(&self, port: u16) -> Bytes {
        pair_key([self.interface.map_or(u32::MAX, |index| index.0), port.into()], self.local, self.peer)
    }
}

/// The limits of a family's ports.
pub(super) struct Limits {
    /// Not 0: limited.
    ports: SlotTable,
    peers: BoundedHash<Bytes>,
    /// How many need a peer.
    uses: HashMap<(u16, UdpPeer), u32>,
}

/// The same for nodes.
#[derive(Clone)]
pub(super) struct LimitsReader {
    ports: SlotTable,
    peers: HashReader<Bytes>,
}

impl Limits {
    pub fn new(domain: &Domain) -> Result<Self, OutOfMemory> {
        Ok(Self { ports: SlotTable::new(1 << 16), peers: BoundedHash::new(PEERS_MAX, domain)?, uses: HashMap::new() })
    }

    pub fn reader(&self) -> LimitsReader {
        LimitsReader { ports: self.ports.clone(), peers: self.peers.reader().clone() }
    }

    fn allow(&mut self, port: u16, peer: UdpPeer) -> Result<(), RegisterError> {
        self.peers.insert(peer.bytes(port), 0).map_err(RegisterError::Peers)?;
        *self.uses.entry((port, peer)).or_default() += 1;
        self.ports.set(port, 1);
        Ok(())
    }

    fn disallow(&mut self, port: u16, peer: UdpPeer) {
        let Some(uses) = self.uses.get_mut(&(port, peer)) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.uses.remove(&(port, peer));
            self.peers.remove(&peer.bytes(port));
        }
    }

    /// The port is no longer limited.
    pub fn lift(&mut self, port: u16) {
        if self.ports.get(port) == 0 {
            return;
        }
        self.ports.set(port, 0);
        for ((_, peer), _) in self.uses.extract_if(|(of, _), _| *of == port) {
            self.peers.remove(&peer.bytes(port));
        }
    }
}

impl LimitsReader {
    /// Whether a port is limited.
    #[inline(always)]
    pub fn has(&self, port: u16) -> bool {
        self.ports.get(port) != 0
    }

    /// Whether a limited port is for a datagram.
    pub fn allows(&self, port: u16, interface: IfIndex, local: IpAddr, peer: IpAddr) -> bool {
        let of = |interface| self.peers.get(&UdpPeer { interface, local, peer }.bytes(port)).is_some();
        of(Some(interface)) || of(None)
    }
}

impl Router {
    /// Says that the node that listens on a port takes the datagrams of a peer, and of others only after more such calls, where the
    /// interface has another stack for the rest (Linux). Without such a stack it gets all of them.
    ///
    /// # Errors
    /// There are too many peers.
    pub fn limit_udp_port(&mut self, family: FamilyId, port: u16, peer: UdpPeer) -> Result<(), RegisterError> {
        self.part_mut::<Local>().map_or(Ok(()), |part| part.takers[family as usize].limits.allow(port, peer))
    }

    /// Takes one [`limit_udp_port`](Self::limit_udp_port) back; the port stays limited.
    pub fn release_udp_peer(&mut self, family: FamilyId, port: u16, peer: UdpPeer) {
        if let Some(part) = self.part_mut::<Local>() {
            part.takers[family as usize].limits.disallow(port, peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_peer_that_two_need_stays_until_both_have_gone_and_a_port_that_is_closed_is_limited_no_more() {
        let mut limits = Limits::new(&Domain::new()).unwrap();
        let reader = limits.reader();
        let (local, peer) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let anywhere = UdpPeer { interface: None, local, peer };
        let here = UdpPeer { interface: Some(IfIndex(3)), ..anywhere };
        let allows = |port, interface| reader.allows(port, IfIndex(interface), local, peer);
        assert!(!reader.has(3784));
        limits.allow(3784, here).unwrap();
        limits.allow(3784, here).unwrap();
        assert!(reader.has(3784) && !reader.has(4784));
        assert_eq!([allows(3784, 3), allows(3784, 4), allows(4784, 3)], [true, false, false]);
        limits.disallow(3784, here);
        assert!(allows(3784, 3));
        limits.disallow(3784, here);
        limits.disallow(3784, here);
        assert!(!allows(3784, 3) && reader.has(3784), "nobody's, until the port is closed");
        limits.allow(3784, anywhere).unwrap();
        limits.allow(4784, anywhere).unwrap();
        limits.lift(3784);
        assert!(!reader.has(3784) && !allows(3784, 4) && allows(4784, 4));
        assert_eq!((limits.uses.len(), limits.peers.len()), (1, 1));
    }
}
