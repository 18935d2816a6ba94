//! Which sessions there are, as the nodes see it that packets come in by: the session of a packet, the thread that has it, and the way
//! to its peer. One more session costs main a constant amount, and readers wait for nothing.

use quiver_net::local::pair_key;
use quiver_tables::OutOfMemory;
use quiver_tables::hash::{BoundedHash, HashReader, InsertError};
use quiver_tables::qsbr::Domain;

use crate::control::SESSIONS_MAX;
use crate::datagram::Key;
use crate::thread::Path;

/// Entries of a table. Those that were removed rest until no reader looks at them any more.
const CAPACITY: u32 = 2 * SESSIONS_MAX;
/// The bit of the table's number that tells IPv6 from IPv4. There are far fewer FIBs.
const IPV6: u32 = 1 << 31;

/// Interface, table, own address and peer.
type Bytes = [u8; 40];

fn bytes(key: &Key) -> Bytes {
    let family = if key.peer.is_ipv6() { IPV6 } else { 0 };
    pair_key([key.interface.0, key.table | family], key.local, key.peer)
}

/// Main's side. Keys of multihop sessions have the index of their FIB here.
pub struct Index {
    discriminators: BoundedHash<Bytes>,
    owners: BoundedHash<u32>,
    next_hops: BoundedHash<u32>,
}

/// The nodes' side.
#[derive(Clone)]
pub struct IndexReader {
    discriminators: HashReader<Bytes>,
    owners: HashReader<u32>,
    next_hops: HashReader<u32>,
}

impl Index {
    /// An index without sessions, for the threads of a domain.
    ///
    /// # Errors
    /// No memory.
    pub fn new(domain: &Domain) -> Result<Self, OutOfMemory> {
        Ok(Self {
            discriminators: BoundedHash::new(CAPACITY, domain)?,
            owners: BoundedHash::new(CAPACITY, domain)?,
            next_hops: BoundedHash::new(CAPACITY, domain)?,
        })
    }

    /// The nodes' side.
    pub fn reader(&self) -> IndexReader {
        IndexReader {
            discriminators: self.discriminators.reader().clone(),
            owners: self.owners.reader().clone(),
            next_hops: self.next_hops.reader().clone(),
        }
    }

    /// Adds a session, or says which thread has it now.
    ///
    /// # Errors
    /// No room; [`remove`](Self::remove) takes out what is there of it.
    pub fn set(&mut self, key: &Key, discriminator: u32, owner: usize, path: Path) -> Result<(), InsertError> {
        self.owners.insert(discriminator, owner as u32)?;
        if let Path::Neighbor(lb) = path {
            self.next_hops.insert(discriminator, lb)?;
        }
        // Last: by it nodes come to the rest.
        self.discriminators.insert(bytes(key), discriminator).map(drop)
    }

    /// Removes a session.
    pub fn remove(&mut self, key: &Key, discriminator: u32) {
        self.discriminators.remove(&bytes(key));
        self.owners.remove(&discriminator);
        self.next_hops.remove(&discriminator);
    }
}

impl IndexReader {
    /// The discriminator of a session.
    pub fn discriminator(&self, key: &Key) -> Option<u32> {
        self.discriminators.get(&bytes(key))
    }

    /// The thread that has a session.
    pub fn owner(&self, discriminator: u32) -> Option<usize> {
        self.owners.get(&discriminator).map(|owner| owner as usize)
    }

    /// The load-balance that leads to the peer of a single-hop session.
    pub fn next_hop(&self, key: &Key) -> Option<u32> {
        self.next_hops.get(&self.discriminator(key)?)
    }
}
