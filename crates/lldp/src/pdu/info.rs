//! What is kept of a data unit.

use std::fmt;
use std::net::IpAddr;

use quiver_wire::MacAddr;
use serde::Serialize;

use super::{Address, Id, MANAGEMENT_MAX, Management, Unit};

/// What kind of value an identifier is (tables 8-2 and 8-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentifierKind {
    /// A part of the chassis.
    ChassisComponent,
    /// The alias of an interface.
    InterfaceAlias,
    /// A part of a port.
    PortComponent,
    /// A MAC address.
    MacAddress,
    /// An address of the network layer.
    NetworkAddress,
    /// The name of an interface.
    InterfaceName,
    /// A circuit of a DHCP relay.
    AgentCircuitId,
    /// What its owner has made up.
    Local,
    /// A reserved number.
    Reserved,
}

impl IdentifierKind {
    const fn of_chassis(subtype: u8) -> Self {
        match subtype {
            1 => Self::ChassisComponent,
            2 => Self::InterfaceAlias,
            3 => Self::PortComponent,
            4 => Self::MacAddress,
            5 => Self::NetworkAddress,
            6 => Self::InterfaceName,
            7 => Self::Local,
            _ => Self::Reserved,
        }
    }

    const fn of_port(subtype: u8) -> Self {
        match subtype {
            1 => Self::InterfaceAlias,
            2 => Self::PortComponent,
            3 => Self::MacAddress,
            4 => Self::NetworkAddress,
            5 => Self::InterfaceName,
            6 => Self::AgentCircuitId,
            7 => Self::Local,
            _ => Self::Reserved,
        }
    }

    /// In words, as VPP has them.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ChassisComponent => "Chassis component",
            Self::InterfaceAlias => "Interface alias",
            Self::PortComponent => "Port component",
            Self::MacAddress => "MAC address",
            Self::NetworkAddress => "Network address",
            Self::InterfaceName => "Interface name",
            Self::AgentCircuitId => "Agent circuit ID",
            Self::Local => "Locally assigned",
            Self::Reserved => "Reserved",
        }
    }
}

/// Who a chassis or port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identifier {
    /// What kind of value it is.
    pub kind: IdentifierKind,
    /// For people.
    pub value: String,
    /// The number of the kind.
    #[serde(skip)]
    pub subtype: u8,
    /// The value's bytes.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

impl Identifier {
    fn new(id: Id<'_>, kind: IdentifierKind) -> Self {
        let value = match (kind, id.value) {
            (IdentifierKind::MacAddress, value) => match <[u8; 6]>::try_from(value) {
                Ok(octets) => MacAddr(octets).to_string(),
                Err(_) => hex(value),
            },
            (IdentifierKind::NetworkAddress, [family, address @ ..]) => address_text(&Address::parse(*family, address)),
            (IdentifierKind::Reserved, value) => hex(value),
            (_, value) => text(value),
        };
        Self { kind, value, subtype: id.subtype, bytes: id.value.to_vec() }
    }

    /// Of a system.
    pub fn of_chassis(id: Id<'_>) -> Self {
        Self::new(id, IdentifierKind::of_chassis(id.subtype))
    }

    /// Of a port.
    pub fn of_port(id: Id<'_>) -> Self {
        Self::new(id, IdentifierKind::of_port(id.subtype))
    }

    /// Whether it is this one.
    pub fn is(&self, id: Id<'_>) -> bool {
        self.subtype == id.subtype && self.bytes == id.value
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.value)
    }
}

/// What a system can be (table 8-4), from the lowest bit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// None of the others.
    Other,
    /// A repeater.
    Repeater,
    /// A bridge.
    Bridge,
    /// An access point of a wireless network.
    WlanAccessPoint,
    /// A router.
    Router,
    /// A telephone.
    Telephone,
    /// A cable device.
    DocsisCableDevice,
    /// A host.
    StationOnly,
    /// The part of a bridge that handles customers' VLANs.
    CVlan,
    /// The part of a bridge that handles providers' VLANs.
    SVlan,
    /// A relay of two ports.
    TwoPortMacRelay,
}

impl Capability {
    /// From the lowest bit on.
    pub const ALL: [Self; 11] = [
        Self::Other,
        Self::Repeater,
        Self::Bridge,
        Self::WlanAccessPoint,
        Self::Router,
        Self::Telephone,
        Self::DocsisCableDevice,
        Self::StationOnly,
        Self::CVlan,
        Self::SVlan,
        Self::TwoPortMacRelay,
    ];

    /// Its bit.
    pub const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Those whose bits are set.
    pub fn of(bits: u16) -> Vec<Self> {
        Self::ALL.into_iter().filter(|one| bits & one.bit() != 0).collect()
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Repeater => "repeater",
            Self::Bridge => "bridge",
            Self::WlanAccessPoint => "WLAN access point",
            Self::Router => "router",
            Self::Telephone => "telephone",
            Self::DocsisCableDevice => "DOCSIS cable device",
            Self::StationOnly => "station only",
            Self::CVlan => "C-VLAN component",
            Self::SVlan => "S-VLAN component",
            Self::TwoPortMacRelay => "two-port MAC relay",
        }
    }
}

/// A management address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManagementInfo {
    /// The address.
    pub address: String,
    /// Number of the interface that has it.
    pub interface: u32,
    /// Object that it belongs to.
    pub oid: Option<String>,
}

impl From<Management<'_>> for ManagementInfo {
    fn from(management: Management<'_>) -> Self {
        let oid = Some(management.oid).filter(|oid| !oid.is_empty());
        let oid = oid.map(|oid| super::write::dotted(oid).unwrap_or_else(|| text(oid)));
        Self { address: address_text(&management.address), interface: management.interface, oid }
    }
}

fn address_text(address: &Address<'_>) -> String {
    match address {
        Address::Ip(IpAddr::V6(address)) => address.to_string(),
        Address::Ip(IpAddr::V4(address)) => address.to_string(),
        Address::Mac(mac) => mac.to_string(),
        Address::Other(family, bytes) => format!("family {family} {}", hex(bytes)),
    }
}

/// Text of a stranger: it may have neither control characters nor other encodings.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // Some have their C strings' end in it.
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a neighbour has said of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    /// The system.
    pub chassis: Identifier,
    /// Its port.
    pub port: Identifier,
    /// Seconds that it holds for.
    pub ttl: u16,
    /// Description of the port.
    pub port_description: Option<String>,
    /// Name of the system.
    pub system_name: Option<String>,
    /// Description of the system.
    pub system_description: Option<String>,
    /// What the system can be.
    pub capabilities: Vec<Capability>,
    /// What it is.
    pub enabled_capabilities: Vec<Capability>,
    /// Where it is managed.
    pub management: Vec<ManagementInfo>,
    /// VLAN of untagged frames.
    pub port_vlan: Option<u16>,
    /// Largest frame, bytes with FCS.
    pub largest_frame: Option<u16>,
}

impl From<&Unit<'_>> for Info {
    fn from(unit: &Unit<'_>) -> Self {
        let (can, is) = unit.capabilities.unwrap_or_default();
        Self {
            chassis: Identifier::of_chassis(unit.chassis),
            port: Identifier::of_port(unit.port),
            ttl: unit.ttl,
            port_description: unit.port_description.map(text),
            system_name: unit.system_name.map(text),
            system_description: unit.system_description.map(text),
            capabilities: Capability::of(can),
            enabled_capabilities: Capability::of(is),
            management: unit.management().take(MANAGEMENT_MAX).map(ManagementInfo::from).collect(),
            port_vlan: unit.port_vlan,
            largest_frame: unit.largest_frame,
        }
    }
}
