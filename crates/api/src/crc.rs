//! The CRC in a message's name, by which clients find out whether they mean the same message.
//!
//! It is the CRC-32 (that of zlib) of the message's fields, written as Python writes a list of lists, then of the fields of each
//! type that it uses, depth first. A field's name and type count; its default and its comment do not.

use std::fmt::Write as _;

use crate::schema::{Array, Definition, Field, Kind, MessageInfo};

/// Reversed polynomial of CRC-32 (IEEE 802.3).
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The CRC of a message.
pub fn crc(message: &MessageInfo) -> u32 {
    let fields: Vec<Field> = message.prefix.fields().iter().chain(message.fields).copied().collect();
    let mut crc = add(0, &text(&fields));
    for field in &fields {
        crc = chain(crc, field);
    }
    crc
}

fn chain(crc: u32, field: &Field) -> u32 {
    let Some(definition) = field.ty.definition else { return crc };
    let mut crc = add(crc, &own_text(definition));
    if matches!(definition.kind, Kind::Struct | Kind::Union) {
        for field in definition.fields {
            crc = chain(crc, field);
        }
    }
    crc
}

fn own_text(definition: &Definition) -> String {
    match definition.kind {
        Kind::Struct | Kind::Union => text(definition.fields),
        Kind::Enum | Kind::Flags => {
            let counted = definition.values.iter().filter(|value| !value.compatible);
            let values: Vec<String> = counted.map(|value| format!("['{}', {}]", value.name, value.number)).collect();
            format!("[{}]", values.join(", "))
        }
        // What an alias stands for does not count.
        Kind::Alias => "[]".to_owned(),
    }
}

fn text(fields: &[Field]) -> String {
    let mut text = String::from("[");
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        let _ = write!(text, "['{}', '{}'", field.ty.name, field.name);
        let _ = match field.ty.array {
            Array::None => Ok(()),
            Array::Fixed(n) | Array::Text(n) => write!(text, ", {n}, None"),
            Array::Counted(by) => write!(text, ", 0, '{by}'"),
            Array::OpenText => write!(text, ", 0, None"),
        };
        text.push(']');
    }
    text.push(']');
    text
}

fn add(crc: u32, text: &str) -> u32 {
    let mut crc = !crc;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defs::*;
    use crate::schema::Message;

    fn of<M: Message>() -> String {
        format!("{:08x}", crc(M::INFO))
    }

    #[test]
    fn the_crc_is_that_of_zlib() {
        assert_eq!(add(0, "123456789"), 0xcbf4_3926);
        assert_eq!(add(add(0, "1234"), "56789"), 0xcbf4_3926);
    }

    #[test]
    fn messages_have_the_crcs_that_clients_know() {
        assert_eq!(of::<ControlPing>(), "51077d14");
        assert_eq!(of::<ControlPingReply>(), "f6b0b8ca");
        assert_eq!(of::<SwInterfaceSetFlagsReply>(), "e8d4e804");
        assert_eq!(of::<CliInband>(), "f8377302");
        assert_eq!(of::<CliInbandReply>(), "05879051");
        assert_eq!(of::<SockclntCreate>(), "455fb9c4");
        assert_eq!(of::<SockclntCreateReply>(), "35166268");
        assert_eq!(of::<SockclntDelete>(), "8ac76db6");
        assert_eq!(of::<SwInterfaceDump>(), "aa610c27");
        assert_eq!(of::<SwInterfaceDetails>(), "6c221fc7");
        assert_eq!(of::<SwInterfaceAddDelAddress>(), "5463d73b");
        assert_eq!(of::<IpTableAddDelV2>(), "14e5081f");
        assert_eq!(of::<IpRouteAddDel>(), "b8ecfe0d");
        assert_eq!(of::<IpRouteAddDelReply>(), "1992deab");
        assert_eq!(of::<IpNeighborAddDel>(), "0607c257");
        assert_eq!(of::<PgCreateInterfaceV3>(), "b2aac653");
        // With enumerators that were added later.
        assert_eq!(of::<AfPacketCreateV3>(), "b3a809d4");
        assert_eq!(of::<AfXdpCreateV3>(), "cf4b1827");
        assert_eq!(of::<TapCreateV3>(), "3f3fd1df");
    }
}
