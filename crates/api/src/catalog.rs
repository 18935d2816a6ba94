//! All messages with their numbers.

use std::collections::HashMap;

use crate::crc::crc;
use crate::defs;
use crate::frame;
use crate::schema::{Message, MessageInfo, Module};

/// The modules that are declared here; a type's module comes before those that use it. Plugins have more.
pub static MODULES: &[&Module] = defs::MODULES;

/// A message with its number and CRC.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number on the wire.
    pub id: u16,
    /// CRC.
    pub crc: u32,
    /// Description.
    pub info: &'static MessageInfo,
    /// Name of its module.
    pub module: &'static str,
}

impl Entry {
    /// Name and CRC, as the table tells clients.
    pub fn table_name(&self) -> String {
        format!("{}_{:08x}", self.info.name, self.crc)
    }
}

/// Numbers messages: 15 and 16 are those of the handshake, which clients know; the others follow.
#[derive(Debug)]
pub struct Catalog {
    entries: Vec<Entry>,
    by_name: HashMap<&'static str, usize>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new(|_| true)
    }
}

impl Catalog {
    /// Numbers the messages of the modules that are wanted.
    pub fn new(wanted: impl Fn(&Module) -> bool) -> Self {
        Self::of(MODULES.iter().copied().filter(|module| wanted(module)))
    }

    /// Numbers the messages of these modules, in their order.
    pub fn of(modules: impl IntoIterator<Item = &'static Module>) -> Self {
        let messages = modules.into_iter().flat_map(|m| m.messages.iter().map(|i| (m.name, *i)));
        let (mut entries, mut next) = (Vec::new(), frame::CREATE_REPLY + 1);
        for (module, info) in messages {
            let id = match info.name {
                "sockclnt_create" => frame::CREATE,
                "sockclnt_create_reply" => frame::CREATE_REPLY,
                _ => {
                    next += 1;
                    next - 1
                }
            };
            entries.push(Entry { id, crc: crc(info), info, module });
        }
        entries.sort_by_key(|entry| entry.id);
        let by_name = entries.iter().enumerate().map(|(at, entry)| (entry.info.name, at)).collect();
        Self { entries, by_name }
    }

    /// All messages, by number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A message by number.
    pub fn get(&self, id: u16) -> Option<&Entry> {
        Some(&self.entries[self.position(id)?])
    }

    /// Where a message stands in [`entries`](Self::entries). Numbers have gaps where the handshake is not wanted.
    pub fn position(&self, id: u16) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    /// A message by name.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// Number of a message; 0, which none has, where its module is not wanted.
    pub fn id<M: Message>(&self) -> u16 {
        self.named(M::INFO.name).map_or(0, |entry| entry.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defs::*;

    #[test]
    fn numbers_are_dense_and_the_handshake_has_its_own() {
        let catalog = Catalog::default();
        assert_eq!((catalog.id::<SockclntCreate>(), catalog.id::<SockclntCreateReply>()), (15, 16));
        for (at, entry) in catalog.entries().iter().enumerate() {
            assert_eq!(usize::from(entry.id), at + 15);
            assert_eq!(catalog.get(entry.id).map(|e| e.info.name), Some(entry.info.name));
            assert!(entry.table_name().len() < 64, "{}", entry.table_name());
        }
        assert!(catalog.get(0).is_none() && catalog.get(14).is_none() && catalog.get(u16::MAX).is_none());
    }

    #[test]
    fn messages_are_found_where_the_handshake_is_not_wanted() {
        let catalog = Catalog::new(|module| module.name != "memclnt");
        assert!(catalog.get(frame::CREATE).is_none() && !catalog.entries().is_empty());
        for entry in catalog.entries() {
            assert_eq!(catalog.get(entry.id).map(|e| e.info.name), Some(entry.info.name));
        }
    }

    #[test]
    fn every_reply_and_event_is_declared_and_no_name_twice() {
        let catalog = Catalog::default();
        let mut seen = std::collections::HashSet::new();
        for entry in catalog.entries() {
            assert!(seen.insert(entry.info.name), "{} is declared twice", entry.info.name);
            let others = entry.info.reply.into_iter().chain(entry.info.stream).chain(entry.info.events.iter().copied());
            for other in others {
                assert!(catalog.named(other).is_some(), "{} of {} is not declared", other, entry.info.name);
            }
        }
    }
}
