//! Variable bindings (RFC 2741, 5.4).

use crate::oid::Oid;

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// INTEGER.
    Integer(i32),
    /// OCTET STRING.
    Octets(Vec<u8>),
    /// OBJECT IDENTIFIER.
    Oid(Oid),
    /// Counts up, and on from 0.
    Counter32(u32),
    /// Goes up and down.
    Gauge32(u32),
    /// Hundredths of a second.
    TimeTicks(u32),
    /// Counts up.
    Counter64(u64),
    /// There is no such object.
    NoSuchObject,
    /// There is the object, but not this instance of it.
    NoSuchInstance,
    /// Nothing follows.
    EndOfMibView,
}

impl Value {
    /// Its number on the wire.
    pub(crate) fn tag(&self) -> u16 {
        match self {
            Self::Integer(_) => 2,
            Self::Octets(_) => 4,
            Self::Oid(_) => 6,
            Self::Counter32(_) => 65,
            Self::Gauge32(_) => 66,
            Self::TimeTicks(_) => 67,
            Self::Counter64(_) => 70,
            Self::NoSuchObject => 128,
            Self::NoSuchInstance => 129,
            Self::EndOfMibView => 130,
        }
    }
}

/// A variable and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Which variable.
    pub name: Oid,
    /// Its value.
    pub value: Value,
}
