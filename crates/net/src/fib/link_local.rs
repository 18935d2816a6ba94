//! Link-local destinations (fe80::/10): the same address means another host on each link, so they are not in the table but
//! in a hash by interface and address.

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
pub(crate) struct LinkLocals(BoundedHash<Key>);

/// Readers' side.
#[derive(Clone)]
pub(crate) struct LinkLocalTable(HashReader<Key>);

impl LinkLocals {
    pub fn new(domain: &Domain) -> Result<Self, OutOfMemory> {
        Ok(Self(BoundedHash::new(LINK_LOCALS_MAX, domain)?))
    }

    pub fn reader(&self) -> LinkLocalTable {
        LinkLocalTable(self.0.reader().clone())
    }

    pub fn set(&mut self, interface: IfIndex, address: u128, bucket: Bucket) -> Result<(), InsertError> {
        self.0.insert(key(interface, address), bucket.0).map(drop)
    }

    pub fn remove(&mut self, interface: IfIndex, address: u128) {
        self.0.remove(&key(interface, address));
    }

    /// Removes all that belongs to an interface.
    pub fn forget(&mut self, interface: IfIndex) {
        let mut gone = Vec::new();
        self.0.for_each(|k, _| {
            if k[16..20] == interface.0.to_be_bytes() {
                gone.push(k);
            }
        });
        for k in gone {
            self.0.remove(&k);
        }
    }
}

impl LinkLocalTable {
    /// What an interface knows of an address.
    pub fn get(&self, interface: IfIndex, address: u128) -> Option<Bucket> {
        self.0.get(&key(interface, address)).map(Bucket)
    }
}
