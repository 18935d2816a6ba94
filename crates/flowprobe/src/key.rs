//! What flows are told apart by, as bytes of one size.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_wire::MacAddr;

/// What kind of flow it is: it says which template the flow's records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// IPv4, seen by a node of IPv4.
    Ip4,
    /// IPv6, seen by a node of IPv6.
    Ip6,
    /// Frames that carry no IP, or of which only the link header counts.
    L2,
    /// Frames that carry IPv4.
    L2Ip4,
    /// Frames that carry IPv6.
    L2Ip6,
}

impl Variant {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [Self::Ip4, Self::Ip6, Self::L2, Self::L2Ip4, Self::L2Ip6];

    /// Whether flows have IPv4 addresses.
    pub const fn is_ip4(self) -> bool {
        matches!(self, Self::Ip4 | Self::L2Ip4)
    }

    /// Whether flows have IPv6 addresses.
    pub const fn is_ip6(self) -> bool {
        matches!(self, Self::Ip6 | Self::L2Ip6)
    }

    /// Whether frames are seen, not packets.
    pub const fn is_l2(self) -> bool {
        matches!(self, Self::L2 | Self::L2Ip4 | Self::L2Ip6)
    }
}

/// Which headers a record contains fields of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record(u8);

impl Record {
    const L2: u8 = 1;
    const L3: u8 = 2;
    const L4: u8 = 4;

    /// Of these headers.
    pub const fn new(l2: bool, l3: bool, l4: bool) -> Self {
        Self((l2 as u8 * Self::L2) | (l3 as u8 * Self::L3) | (l4 as u8 * Self::L4))
    }

    /// From the bits of VPP's messages; other bits are left out.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// As the bits of VPP's messages.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// MAC addresses and type.
    pub const fn l2(self) -> bool {
        self.0 & Self::L2 != 0
    }

    /// IP addresses and protocol.
    pub const fn l3(self) -> bool {
        self.0 & Self::L3 != 0
    }

    /// Ports and TCP flags.
    pub const fn l4(self) -> bool {
        self.0 & Self::L4 != 0
    }

    /// Nothing is told.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Which packets of an interface are seen, of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Those that come in.
    Rx,
    /// Those that leave.
    Tx,
}

/// A flow's key. Fields that its records do not contain are zero.
///
/// ```text
///  0  variant   1 record   2 way     3 protocol   4..8 ingress    8..12 egress    12..18 source MAC   18..24 destination MAC
/// 24..26 type  26..28 source port   28..30 destination port      32..48 source   48..64 destination
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 64]);

impl Key {
    /// One with nothing but its kind.
    pub fn new(variant: Variant, record: Record, way: Way) -> Self {
        let mut bytes = [0; 64];
        bytes[..3].copy_from_slice(&[variant as u8, record.0, way as u8]);
        Self(bytes)
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// Numbers of the interfaces; 0 where none is known.
    pub fn set_interfaces(&mut self, ingress: u32, egress: u32) {
        self.set(4, &ingress.to_be_bytes());
        self.set(8, &egress.to_be_bytes());
    }

    /// Sets source, destination and type of the frame. `macs`: destination first, as on the wire.
    pub fn set_link(&mut self, macs: &[u8; 12], ether_type: u16) {
        self.set(12, &macs[6..]);
        self.set(18, &macs[..6]);
        self.set(24, &ether_type.to_be_bytes());
    }

    /// Sets addresses, of 4 or 16 bytes, and the protocol.
    pub fn set_network(&mut self, src: &[u8], dst: &[u8], protocol: u8) {
        self.set(32, &src[..src.len().min(16)]);
        self.set(48, &dst[..dst.len().min(16)]);
        self.0[3] = protocol;
    }

    /// Sets ports.
    pub fn set_ports(&mut self, src: u16, dst: u16) {
        self.set(26, &src.to_be_bytes());
        self.set(28, &dst.to_be_bytes());
    }

    /// Its kind.
    pub fn variant(&self) -> Variant {
        Variant::ALL.get(usize::from(self.0[0])).copied().unwrap_or(Variant::L2)
    }

    /// What its records contain.
    pub fn record(&self) -> Record {
        Record::from_bits(self.0[1])
    }

    /// Whether its packets come in or leave.
    pub fn way(&self) -> Way {
        if self.0[2] == 0 { Way::Rx } else { Way::Tx }
    }

    /// Protocol.
    pub fn protocol(&self) -> u8 {
        self.0[3]
    }

    /// Interface that packets come in by, 0 where it is not known.
    pub fn ingress(&self) -> u32 {
        u32::from_be_bytes(self.get(4))
    }

    /// Interface that packets leave by, 0 where it is not known.
    pub fn egress(&self) -> u32 {
        u32::from_be_bytes(self.get(8))
    }

    /// Source and destination of frames.
    pub fn macs(&self) -> (MacAddr, MacAddr) {
        (MacAddr(self.get(12)), MacAddr(self.get(18)))
    }

    /// Type of frames.
    pub fn ether_type(&self) -> u16 {
        u16::from_be_bytes(self.get(24))
    }

    /// Ports of source and destination.
    pub fn ports(&self) -> (u16, u16) {
        (u16::from_be_bytes(self.get(26)), u16::from_be_bytes(self.get(28)))
    }

    /// Addresses of source and destination, where flows of its kind have any.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let variant = self.variant();
        if variant.is_ip4() {
            return Some((Ipv4Addr::from(self.get::<4>(32)).into(), Ipv4Addr::from(self.get::<4>(48)).into()));
        }
        variant.is_ip6().then(|| (Ipv6Addr::from(self.get::<16>(32)).into(), Ipv6Addr::from(self.get::<16>(48)).into()))
    }
}
