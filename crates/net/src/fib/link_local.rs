//! Link-local destinations (fe80::/10): the same address means another host on each link, so they are not in the table but
//! in a hash by interface and address.

use std::collections::BTreeSet;

use quiver_graph::IfIndex;
use quiver_tables::OutOfMemory;
use quiver_tables::hash::{BoundedHash, HashReader, InsertError};
use quiver_tables::qsbr::Domain;

use super::records::Bucket;

/// Most link-local neighbours and own addresses.
const LINK_LOCALS_MAX: u32 = 1 << 16;

type Key = [u8; 24];

fn key(interface: IfIndex, address: u128) -> Key {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&address.to_be_bytes());
    key[16..20].copy_from_slice(&interface.0.to_be_bytes());
    key
}

/// Writers' side.
pub(crate) struct LinkLocals {
    table: BoundedHash<Key>,
    /// What is in it, by interface.
    all: BTreeSet<(IfIndex, u128)>,
}

/// Readers' side.
#[derive(Clone)]
pub(crate) struct LinkLocalTable(HashReader<Key>);

impl LinkLocals {
    pub fn new(domain: &Domain) -> Result<Self, OutOfMemory> {
        Ok(Self { table: BoundedHash::new(LINK_LOCALS_MAX, domain)?, all: BTreeSet::new() })
    }

    pub fn reader(&self) -> LinkLocalTable {
        LinkLocalTable(self.table.reader().clone())
    }

    pub fn set(&mut self, interface: IfIndex, address: u128, bucket: Bucket) -> Result<(), InsertError> {
        self.table.insert(key(interface, address), bucket.0)?;
        self.all.insert((interface, address));
        Ok(())
    }

    pub fn remove(&mut self, interface: IfIndex, address: u128) {
        self.table.remove(&key(interface, address));
        self.all.remove(&(interface, address));
    }

    /// Removes all that belongs to an interface.
    pub fn forget(&mut self, interface: IfIndex) {
        let gone: Vec<u128> = self.all.range((interface, 0)..=(interface, u128::MAX)).map(|(_, address)| *address).collect();
        for address in gone {
            self.remove(interface, address);
        }
    }
}

impl LinkLocalTable {
    /// What an interface knows of an address.
    pub fn get(&self, interface: IfIndex, address: u128) -> Option<Bucket> {
        self.0.get(&key(interface, address)).map(Bucket)
    }
}
