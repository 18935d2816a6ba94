//! Addresses, prefixes and interfaces between messages and the router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_api::Text;
use quiver_api::defs::{Address, AddressFamily, AddressUnion, InterfaceIndex, MacAddress, Prefix};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, retval};
use quiver_wire::IpPrefix;

use crate::ip::FamilyId;
use crate::{IfIndex, Router};

/// An address as messages have it.
pub fn address(address: IpAddr) -> Address {
    let (af, un) = union(address);
    Address { af, un }
}

fn union(address: IpAddr) -> (AddressFamily, AddressUnion) {
    let mut bytes = [0; 16];
    let af = match address {
        IpAddr::V4(a) => {
            bytes[..4].copy_from_slice(&a.octets());
            AddressFamily::ADDRESS_IP4
        }
        IpAddr::V6(a) => {
            bytes = a.octets();
            AddressFamily::ADDRESS_IP6
        }
    };
    (af, AddressUnion(bytes))
}

/// The room of an address in paths, which say the family elsewhere.
pub fn next_hop(address: IpAddr) -> AddressUnion {
    union(address).1
}

/// An address from its room.
pub fn from_union(six: bool, room: &AddressUnion) -> IpAddr {
    match (six, room.0.first_chunk::<4>()) {
        (false, Some(four)) => Ipv4Addr::from(*four).into(),
        _ => Ipv6Addr::from(room.0).into(),
    }
}

/// An address from a message.
pub fn from_address(address: &Address) -> IpAddr {
    from_union(is_six(&address.af), &address.un)
}

/// Whether a family is IPv6.
pub fn is_six(family: &AddressFamily) -> bool {
    *family == AddressFamily::ADDRESS_IP6
}

/// A family from a message.
pub fn family(six: bool) -> FamilyId {
    if six { FamilyId::V6 } else { FamilyId::V4 }
}

/// A prefix as messages have it.
pub fn prefix(ip: IpAddr, len: u8) -> Prefix {
    Prefix { address: address(ip), len }
}

/// A prefix from a message.
///
/// # Errors
/// More bits than the address has.
pub fn from_prefix(prefix: &Prefix) -> Result<IpPrefix, OpError> {
    let address = from_address(&prefix.address);
    IpPrefix::new(address, prefix.len).map_err(|_| {
        OpError::new(retval::ADDRESS_LENGTH_MISMATCH, format!("{} is no prefix length of {address}", prefix.len)).key("prefix")
    })
}

/// An interface from a message.
///
/// # Errors
/// There is none.
pub fn index_of(router: &Router, index: &InterfaceIndex) -> Result<IfIndex, OpError> {
    match router.interfaces.get(IfIndex(index.0)) {
        Some(interface) => Ok(interface.index),
        None => Err(OpError::new(retval::INVALID_SW_IF_INDEX, format!("no interface {}", index.0)).key("sw_if_index")),
    }
}

/// An interface from a message, as requests of operations name it.
///
/// # Errors
/// There is none.
pub fn reference(router: &Router, index: &InterfaceIndex) -> Result<IfRef, OpError> {
    index_of(router, index).map(|index| IfRef(router.interfaces.name(index)))
}

/// All interfaces.
pub const ALL: u32 = u32::MAX;

/// What a message's field says of a request's. Messages have no way to leave a field out: where the request can do without it,
/// 0 and an empty text stand for that.
pub trait Says<F> {
    /// The request's field; none where nothing is said.
    fn says(self) -> Option<F>;
}

/// What a message's field says; for [`from_message!`](quiver_command::from_message!).
pub fn said<W: Says<F>, F>(field: W) -> Option<F> {
    field.says()
}

macro_rules! numbers {
    ($($wire:ty => $($field:ty)*;)*) => { $( $(
        impl Says<Option<$field>> for $wire {
            fn says(self) -> Option<Option<$field>> {
                Some(<$field>::try_from(self).ok().filter(|number| *number != 0))
            }
        }
    )* )* };
}
numbers! {
    u8 => usize u32;
    u16 => usize u32 u16;
    u32 => usize u32;
}

macro_rules! as_it_is {
    ($($type:ty)*) => { $(
        impl Says<$type> for $type {
            fn says(self) -> Option<$type> {
                Some(self)
            }
        }
    )* };
}
as_it_is!(bool u8 u16 u32 String);

impl<const N: usize> Says<String> for Text<N> {
    fn says(self) -> Option<String> {
        Some(self.0)
    }
}

impl<const N: usize> Says<Option<String>> for Text<N> {
    fn says(self) -> Option<Option<String>> {
        Some(Some(self.0).filter(|text| !text.is_empty()))
    }
}

impl Says<Option<[u8; 6]>> for MacAddress {
    fn says(self) -> Option<Option<[u8; 6]>> {
        Some(Some(self.0).filter(|mac| *mac != [0; 6]))
    }
}
