//! What `vxlan4-input` and `vxlan6-input` read: which tunnel a packet belongs to.

use std::collections::HashMap;
use std::net::IpAddr;

use quiver_graph::IfIndex;

/// What a received packet of a tunnel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Destination address.
    pub local: IpAddr,
    /// Source address.
    pub remote: IpAddr,
    /// VXLAN network identifier.
    pub vni: u32,
    /// Destination port.
    pub port: u16,
    /// FIB of the interface that it came in on.
    pub fib: u32,
}

/// All tunnels.
#[derive(Clone, Debug, Default)]
pub struct Tunnels {
    tunnels: HashMap<Key, IfIndex>,
    /// Own address of the tunnels to a group, by group (as `local`, no remote address).
    groups: HashMap<Key, IpAddr>,
}

impl Tunnels {
    /// A table of tunnels: each with its key, as packets to `remote` see it, and its interface.
    pub fn new(all: impl Iterator<Item = (Key, IfIndex)>) -> Self {
        let mut tables = Self::default();
        for (key, interface) in all {
            if key.remote.is_multicast() {
                tables.groups.insert(of_group(Key { local: key.remote, ..key }), key.local);
            } else {
                tables.tunnels.insert(key, interface);
            }
        }
        tables
    }

    /// The tunnel of a packet. One to a group belongs to the tunnel to its sender, if there is also one to the group.
    pub fn find(&self, key: Key) -> Option<IfIndex> {
        if !key.local.is_multicast() {
            return self.tunnels.get(&key).copied();
        }
        let local = *self.groups.get(&of_group(key))?;
        self.tunnels.get(&Key { local, ..key }).copied()
    }
}

/// The key of a group: from anybody.
fn of_group(key: Key) -> Key {
    Key { remote: key.local, ..key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_a_group_are_of_the_tunnel_to_their_sender() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let key = Key { local: ip("10.0.0.1"), remote: ip("10.0.0.2"), vni: 7, port: 4789, fib: 0 };
        let group = Key { remote: ip("239.1.1.1"), ..key };
        let table = Tunnels::new([(key, IfIndex(3)), (group, IfIndex(4))].into_iter());
        assert_eq!(table.find(key), Some(IfIndex(3)));
        assert_eq!(table.find(Key { local: ip("239.1.1.1"), ..key }), Some(IfIndex(3)));
        assert_eq!(table.find(Key { local: ip("239.1.1.2"), ..key }), None);
        assert_eq!(table.find(Key { local: ip("239.1.1.1"), remote: ip("10.0.0.3"), ..key }), None);
        for other in [Key { vni: 8, ..key }, Key { port: 8472, ..key }, Key { fib: 1, ..key }] {
            assert_eq!(table.find(other), None);
        }
    }
}
