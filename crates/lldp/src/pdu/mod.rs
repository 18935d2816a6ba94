//! Data units of LLDP as bytes (IEEE 802.1AB-2016, clauses 8 and 9.2.7.7): what a system says of itself on a link.
//!
//! [`Unit::parse`] borrows from the bytes and allocates nothing, so that workers can check what they receive; [`Info`] owns what is kept of a
//! neighbour; [`write`] makes the router's own.

mod info;
pub mod write;

use std::net::IpAddr;

use quiver_wire::MacAddr;

pub use info::{Capability, Identifier, IdentifierKind, Info, ManagementInfo};

/// The group of the nearest bridge (7.1): no bridge of any kind passes frames to it on. This router sends to it.
pub const NEAREST_BRIDGE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
/// All groups that LLDP uses (table 7-1): nearest customer bridge, nearest bridge that is no two-port relay, nearest bridge.
pub const GROUPS: [MacAddr; 3] = [MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]), MacAddr([0x01, 0x80, 0xc2, 0, 0, 3]), NEAREST_BRIDGE];
/// Longest unit that is kept, bytes behind the Ethernet header. Links of Ethernet without jumbo frames take no longer one.
pub const UNIT_MAX: usize = 1500;
/// Management addresses of a unit that are kept.
pub const MANAGEMENT_MAX: usize = 8;

/// Types of TLVs (table 8-1).
mod kind {
    pub const END: u8 = 0;
    pub const CHASSIS: u8 = 1;
    pub const PORT: u8 = 2;
    pub const TTL: u8 = 3;
    pub const PORT_DESCRIPTION: u8 = 4;
    pub const SYSTEM_NAME: u8 = 5;
    pub const SYSTEM_DESCRIPTION: u8 = 6;
    pub const CAPABILITIES: u8 = 7;
    pub const MANAGEMENT: u8 = 8;
    pub const ORGANIZATION: u8 = 127;
}

/// Subtypes of identifiers of a chassis (table 8-2) and a port (table 8-3) that are named here.
pub mod subtype {
    /// A MAC address, of a chassis.
    pub const CHASSIS_MAC: u8 = 4;
    /// The name of an interface, of a port.
    pub const PORT_NAME: u8 = 5;
}

/// Numbers of address families (IANA) in management addresses.
mod family {
    pub const IP4: u8 = 1;
    pub const IP6: u8 = 2;
    pub const MAC: u8 = 6;
}

/// Organizations and the subtypes of their TLVs that are read: port VLAN (IEEE 802.1Q, D.2.1), largest frame (IEEE 802.3, 79.3.4).
const PORT_VLAN: [u8; 4] = [0x00, 0x80, 0xc2, 1];
const LARGEST_FRAME: [u8; 4] = [0x00, 0x12, 0x0f, 4];

/// Longest text of a TLV, bytes (8.5.5.3 and others).
pub const TEXT_MAX: usize = 255;
/// Longest identifier behind its subtype, bytes.
pub const ID_MAX: usize = 255;
/// Longest OID of a management address, bytes.
pub const OID_MAX: usize = 128;

/// Why bytes are no data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Chassis, port and time to live are not the first three, each once, or one of them has a wrong length.
    Mandatory,
    /// The bytes end before a TLV does.
    Length,
}

/// Who a chassis or port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a> {
    /// What kind of value it is.
    pub subtype: u8,
    /// 1 to 255 bytes.
    pub value: &'a [u8],
}

impl<'a> Id<'a> {
    fn parse(value: &'a [u8]) -> Option<Self> {
        let (&subtype, value) = value.split_first()?;
        (1..=ID_MAX).contains(&value.len()).then_some(Self { subtype, value })
    }
}

/// A management address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Management<'a> {
    /// The address.
    pub address: Address<'a>,
    /// How the interface is numbered: 2, by `ifIndex`; 3, by port.
    pub numbering: u8,
    /// Number of the interface.
    pub interface: u32,
    /// Object that the address belongs to; often empty.
    pub oid: &'a [u8],
}

/// The address itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// IPv4 or IPv6.
    Ip(IpAddr),
    /// A MAC address.
    Mac(MacAddr),
    /// Of another family.
    Other(u8, &'a [u8]),
}

impl<'a> Address<'a> {
    fn parse(family: u8, bytes: &'a [u8]) -> Self {
        match family {
            family::IP4 => <[u8; 4]>::try_from(bytes).map(|octets| Self::Ip(IpAddr::from(octets))),
            family::IP6 => <[u8; 16]>::try_from(bytes).map(|octets| Self::Ip(IpAddr::from(octets))),
            family::MAC => <[u8; 6]>::try_from(bytes).map(|octets| Self::Mac(MacAddr(octets))),
            _ => return Self::Other(family, bytes),
        }
        .unwrap_or(Self::Other(family, bytes))
    }
}

impl<'a> Management<'a> {
    /// Reads the value of a TLV (8.5.9).
    fn parse(value: &'a [u8]) -> Option<Self> {
        let (&length, rest) = value.split_first()?;
        // The family and 1 to 31 bytes.
        let (address, rest) = rest.split_at_checked(usize::from(length)).filter(|_| (2..=32).contains(&length))?;
        let (&family, address) = address.split_first()?;
        let (&[numbering, a, b, c, d, oid_length], oid) = rest.split_first_chunk::<6>()?;
        let fits = usize::from(oid_length) == oid.len() && oid.len() <= OID_MAX;
        let interface = u32::from_be_bytes([a, b, c, d]);
        fits.then_some(Self { address: Address::parse(family, address), numbering, interface, oid })
    }
}

/// A data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// The system.
    pub chassis: Id<'a>,
    /// Its port on this link.
    pub port: Id<'a>,
    /// Seconds that the unit holds for; 0: the port speaks no more.
    pub ttl: u16,
    /// Description of the port.
    pub port_description: Option<&'a [u8]>,
    /// Name of the system.
    pub system_name: Option<&'a [u8]>,
    /// Description of the system.
    pub system_description: Option<&'a [u8]>,
    /// What the system can be, and what it is: bits of [`Capability`].
    pub capabilities: Option<(u16, u16)>,
    /// VLAN of untagged frames.
    pub port_vlan: Option<u16>,
    /// Largest frame, bytes with FCS.
    pub largest_frame: Option<u16>,
    /// Optional TLVs that were left out because they are wrong or stand twice.
    pub discarded: u32,
    /// Optional TLVs of types and organizations that are not known here.
    pub unrecognized: u32,
    /// All optional TLVs.
    optional: &'a [u8],
}

/// TLVs one after the other; ends behind the first that is wrong.
#[derive(Clone, Copy)]
struct Tlvs<'a>(&'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u8, &'a [u8]), Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tlv = self.0.split_first_chunk::<2>().and_then(|(&[high, low], rest)| {
            let length = usize::from(high & 1) << 8 | usize::from(low);
            rest.split_at_checked(length).map(|(value, rest)| (high >> 1, value, rest))
        });
        Some(match tlv {
            Some((kind, value, rest)) => {
                self.0 = rest;
                Ok((kind, value))
            }
            None => {
                self.0 = &[];
                Err(Invalid::Length)
            }
        })
    }
}

impl<'a> Unit<'a> {
    /// Reads what stands behind the Ethernet header. What follows the end mark is padding.
    ///
    /// # Errors
    /// The whole unit has to be thrown away (9.2.7.7.1).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Invalid> {
        let mut tlvs = Tlvs(bytes);
        let mut mandatory = |kind| match tlvs.next() {
            Some(Ok((found, value))) if found == kind => Ok(value),
            Some(Err(error)) => Err(error),
            _ => Err(Invalid::Mandatory),
        };
        let chassis = Id::parse(mandatory(kind::CHASSIS)?).ok_or(Invalid::Mandatory)?;
        let port = Id::parse(mandatory(kind::PORT)?).ok_or(Invalid::Mandatory)?;
        let &[high, low, ..] = mandatory(kind::TTL)? else { return Err(Invalid::Mandatory) };
        let ttl = u16::from_be_bytes([high, low]);
        let optional = tlvs.0;
        let mut unit = Self {
            chassis,
            port,
            ttl,
            port_description: None,
            system_name: None,
            system_description: None,
            capabilities: None,
            port_vlan: None,
            largest_frame: None,
            discarded: 0,
            unrecognized: 0,
            optional,
        };
        for tlv in tlvs {
            match tlv? {
                (kind::END, []) => break,
                (kind::END, _) => return Err(Invalid::Length),
                (kind::CHASSIS | kind::PORT | kind::TTL, _) => return Err(Invalid::Mandatory),
                (kind, value) => unit.take(kind, value),
            }
        }
        Ok(unit)
    }

    fn take(&mut self, kind: u8, value: &'a [u8]) {
        /// Sets what is not set yet; `false`: it was, or there is no value.
        fn set<T>(field: &mut Option<T>, value: Option<T>) -> bool {
            let new = field.is_none() && value.is_some();
            if new {
                *field = value;
            }
            new
        }
        let text = Some(value).filter(|text| text.len() <= TEXT_MAX);
        let number = |at: usize| Some(u16::from_be_bytes([*value.get(at)?, *value.get(at + 1)?]));
        let good = match kind {
            kind::PORT_DESCRIPTION => set(&mut self.port_description, text),
            kind::SYSTEM_NAME => set(&mut self.system_name, text),
            kind::SYSTEM_DESCRIPTION => set(&mut self.system_description, text),
            kind::CAPABILITIES => set(&mut self.capabilities, number(0).zip(number(2))),
            kind::MANAGEMENT => Management::parse(value).is_some(),
            kind::ORGANIZATION if value.starts_with(&PORT_VLAN) => set(&mut self.port_vlan, number(4)),
            kind::ORGANIZATION if value.starts_with(&LARGEST_FRAME) => set(&mut self.largest_frame, number(4)),
            kind::ORGANIZATION if value.len() < 4 => false,
            _ => {
                self.unrecognized += 1;
                true
            }
        };
        self.discarded += u32::from(!good);
    }

    /// Management addresses, in their order.
    pub fn management(&self) -> impl Iterator<Item = Management<'a>> {
        let optional = Tlvs(self.optional).map_while(Result::ok).take_while(|(kind, _)| *kind != kind::END);
        optional.filter(|(kind, _)| *kind == kind::MANAGEMENT).filter_map(|(_, value)| Management::parse(value))
    }

    /// The system and its port: who speaks.
    pub const fn who(&self) -> (Id<'a>, Id<'a>) {
        (self.chassis, self.port)
    }
}

#[cfg(test)]
mod tests;
