//! Hosts inside that have sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hasher};

/// What is kept of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Its sessions.
    pub sessions: u32,
    /// The address that its sources get: the same for all its sessions while it lasts (RFC 4787, REQ-2).
    pub addr: u32,
}

/// All of a thread, by address and FIB.
pub struct Hosts(HashMap<u64, Host, Seed>);

/// Address and FIB in one word.
fn key(addr: u32, fib: u16) -> u64 {
    u64::from(addr) << 16 | u64::from(fib)
}

impl Hosts {
    /// None yet. Whoever does not know the seed cannot make hosts meet.
    pub fn new(seed: u64) -> Self {
        Self(HashMap::with_hasher(Seed(seed)))
    }

    /// Hosts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * (size_of::<(u64, Host)>() + 1)
    }

    /// Room for one more; `false` where there is no memory.
    pub fn reserve(&mut self) -> bool {
        self.0.try_reserve(1).is_ok()
    }

    /// A host.
    pub fn get(&self, addr: u32, fib: u16) -> Option<&Host> {
        self.0.get(&key(addr, fib))
    }

    /// A host, new where it has no sessions yet.
    pub fn entry(&mut self, addr: u32, fib: u16) -> &mut Host {
        self.0.entry(key(addr, fib)).or_default()
    }

    /// A host has one session less.
    pub fn release(&mut self, addr: u32, fib: u16) {
        let Entry::Occupied(mut host) = self.0.entry(key(addr, fib)) else { return };
        host.get_mut().sessions -= 1;
        if host.get().sessions == 0 {
            host.remove();
        }
    }
}

/// Makes the hash of one word. SipHash took as long as the rest of a look-up.
#[derive(Clone)]
struct Seed(u64);

impl BuildHasher for Seed {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix(self.0)
    }
}

struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let seed = self.0;
        self.0 = crate::table::fold(crate::table::fold(word ^ seed, 0x9e37_79b9_7f4a_7c15) ^ seed, 0xbb67_ae85_84ca_a73b);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_come_with_their_first_session_and_go_with_their_last() {
        let mut hosts = Hosts::new(7);
        assert!(hosts.reserve());
        for (addr, fib) in [(1, 0), (1, 1), (1, 0)] {
            hosts.entry(addr, fib).sessions += 1;
        }
        assert_eq!((hosts.len(), hosts.get(1, 0).map(|host| host.sessions)), (2, Some(2)));
        hosts.release(1, 0);
        hosts.release(1, 0);
        hosts.release(1, 0);
        assert!(hosts.get(1, 0).is_none());
        assert_eq!(hosts.len(), 1);
    }

    #[test]
    fn neighbouring_hosts_are_spread() {
        let hash = |word: u64| Seed(0x1234).hash_one(word);
        // Each bit of the hash, the lowest and the highest above all, is set for about half of a subnet's hosts.
        for bit in 0..64 {
            let set = (0..1024_u32).filter(|n| hash(key(0x0a00_0000 + n, 0)) >> bit & 1 == 1).count();
            assert!((384..640).contains(&set), "bit {bit}: {set} of 1024");
        }
        assert_ne!(Seed(1).hash_one(5_u64), Seed(2).hash_one(5_u64));
    }
}
