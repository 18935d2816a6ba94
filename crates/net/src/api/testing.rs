//! For tests of a plugin's messages: asks a router of the test harness, and takes the answers apart.

use quiver_api::{Catalog, Message, Reader, Wire as _, frame};

use super::{Call, Handlers, Table};
use crate::testing::Harness;

/// Bytes in front of an answer's fields: its number and context.
const HEAD: usize = 6;

/// The messages of a plugin alone.
pub fn table(add: fn(&mut Handlers)) -> Table {
    let mut handlers = Handlers::default();
    add(&mut handlers);
    Table::new(handlers)
}

/// Sends a request as this client; gives the fields of each answer.
pub fn ask<M: Message>(h: &mut Harness, table: &Table, client: u32, message: &M) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    table.catalog().id::<M>().put(&mut bytes);
    // Client and context; both are free to choose.
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 7]);
    message.write(&mut bytes);
    let mut out = Vec::new();
    table.dispatch(&mut Call { router: &mut h.router, table, client, context: 0, out: &mut out }, &bytes);
    split(&out)
}

/// The fields of each message of a stream: answers, or events.
pub fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut messages, mut at) = (Vec::new(), 0);
    while let frame::Front::Message(message, taken) = frame::front(&bytes[at..]) {
        messages.push(message[HEAD..].to_vec());
        at += taken;
    }
    messages
}

/// Reads the fields of an answer.
///
/// # Panics
/// They are not those of this message.
pub fn read<M: Message>(answer: &[u8]) -> M {
    M::read(&mut Reader::new(answer)).unwrap_or_else(|error| panic!("{}: {error:?}", M::INFO.name))
}

/// Checks that messages have the names of VPP, each with the checksum of its definition (`name_crc`).
///
/// # Panics
/// One of them has another checksum, or is not there.
pub fn assert_names(catalog: &Catalog, names: &[&str]) {
    for name in names {
        let plain = name.rsplit_once('_').map_or(*name, |(plain, _)| plain);
        assert_eq!(catalog.named(plain).map(|entry| entry.table_name()).as_deref(), Some(*name));
    }
}
