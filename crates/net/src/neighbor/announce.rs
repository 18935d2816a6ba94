//! Announcements that are still to be sent: twice for each address, some time apart.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quiver_graph::IfIndex;

use super::hold::Key;

/// When which address is to be announced where. Bounded by the addresses of all interfaces.
#[derive(Default)]
pub(super) struct Announcements {
    by_time: BTreeSet<(u64, Key)>,
    by_address: BTreeMap<Key, Vec<u64>>,
}

impl Announcements {
    /// Sets the times for an address, in place of those that it had.
    pub fn begin(&mut self, key: Key, times: [u64; 2]) {
        self.cancel(&key);
        self.by_time.extend(times.map(|time| (time, key)));
        self.by_address.insert(key, times.to_vec());
    }

    fn cancel(&mut self, key: &Key) {
        for time in self.by_address.remove(key).unwrap_or_default() {
            self.by_time.remove(&(time, *key));
        }
    }

    /// An interface is gone.
    pub fn forget(&mut self, interface: IfIndex) {
        let (first, last): (IpAddr, IpAddr) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into());
        let keys: Vec<Key> = self.by_address.range((interface, first)..=(interface, last)).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.cancel(key));
    }

    /// The next time.
    pub fn next_due(&self) -> Option<u64> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// An address whose time has come.
    pub fn take_due(&mut self, now: u64) -> Option<Key> {
        let (time, key) = self.by_time.first().copied().filter(|(time, _)| *time <= now)?;
        self.by_time.remove(&(time, key));
        if let Some(times) = self.by_address.get_mut(&key) {
            times.retain(|t| *t != time);
            if times.is_empty() {
                self.by_address.remove(&key);
            }
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_announced_at_its_times_unless_its_interface_goes() {
        let key = |interface, host| (IfIndex(interface), IpAddr::from(Ipv4Addr::new(10, 0, 0, host)));
        let mut all = Announcements::default();
        all.begin(key(1, 1), [5, 9]);
        all.begin(key(1, 1), [6, 8]);
        all.begin(key(2, 1), [7, 7]);
        all.begin(key(3, 1), [1, 2]);
        all.forget(IfIndex(3));
        let mut sent = Vec::new();
        for now in 0..10 {
            while let Some(key) = all.take_due(now) {
                sent.push((now, key.0.0));
            }
        }
        assert_eq!(sent, [(6, 1), (7, 2), (8, 1)]);
        assert_eq!((all.next_due(), all.by_address.len()), (None, 0));
    }
}
