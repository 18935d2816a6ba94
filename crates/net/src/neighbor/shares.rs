//! The dynamic entries of a neighbour table by interface, in the order in which they may go.

use std::collections::{BTreeMap, BTreeSet};

use quiver_graph::IfIndex;

use super::hold::Key;

/// How much is known to speak for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Asked for, not answered.
    Pending,
    /// It spoke, but nobody has ever sent it a packet, and it has never answered us: a flood makes such entries.
    Unproven,
    /// Used, confirmed, or configured.
    Proven,
}

/// Keys by the time of last use or word.
type Order = BTreeSet<(u64, Key)>;

#[derive(Default)]
struct Share {
    pending: Order,
    unproven: Order,
    proven: Order,
}

impl Share {
    fn order(&mut self, standing: Standing) -> &mut Order {
        match standing {
            Standing::Pending => &mut self.pending,
            Standing::Unproven => &mut self.unproven,
            Standing::Proven => &mut self.proven,
        }
    }

    fn len(&self) -> usize {
        self.pending.len() + self.unproven.len() + self.proven.len()
    }
}

/// All interfaces' shares.
#[derive(Default)]
pub(super) struct Shares {
    shares: BTreeMap<IfIndex, Share>,
    /// Interfaces by number of entries, and of pending ones.
    by_len: BTreeSet<(usize, IfIndex)>,
    by_pending: BTreeSet<(usize, IfIndex)>,
    len: usize,
    pending: usize,
}

impl Shares {
    fn change(&mut self, interface: IfIndex, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(interface).or_default();
        let before = (share.len(), share.pending.len());
        change(share);
        let after = (share.len(), share.pending.len());
        self.len = self.len + after.0 - before.0;
        self.pending = self.pending + after.1 - before.1;
        self.by_len.remove(&(before.0, interface));
        self.by_pending.remove(&(before.1, interface));
        if after.0 == 0 {
            self.shares.remove(&interface);
            return;
        }
        self.by_len.insert((after.0, interface));
        self.by_pending.insert((after.1, interface));
    }

    pub fn insert(&mut self, standing: Standing, touched: u64, key: Key) {
        self.change(key.0, |share| {
            share.order(standing).insert((touched, key));
        });
    }

    pub fn remove(&mut self, touched: u64, key: &Key) {
        self.change(key.0, |share| {
            for standing in [Standing::Pending, Standing::Unproven, Standing::Proven] {
                share.order(standing).remove(&(touched, *key));
            }
        });
    }

    /// Dynamic entries, of all interfaces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Those that are not answered.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Dynamic entries of an interface, and those that are not answered.
    pub fn of(&self, interface: IfIndex) -> (usize, usize) {
        self.shares.get(&interface).map_or((0, 0), |share| (share.len(), share.pending.len()))
    }

    /// The interface that has most entries.
    pub fn fullest(&self) -> Option<(IfIndex, usize)> {
        self.by_len.last().map(|(n, interface)| (*interface, *n))
    }

    /// The interface that has most pending entries.
    pub fn most_pending(&self) -> Option<IfIndex> {
        self.by_pending.last().map(|(_, interface)| *interface)
    }

    /// The first entries of an interface, oldest first.
    pub fn oldest(&self, interface: IfIndex, standing: Standing, n: usize) -> Vec<Key> {
        let Some(share) = self.shares.get(&interface) else { return Vec::new() };
        let order = match standing {
            Standing::Pending => &share.pending,
            Standing::Unproven => &share.unproven,
            Standing::Proven => &share.proven,
        };
        order.iter().take(n).map(|(_, key)| *key).collect()
    }

    /// Keys of all entries that have a MAC address.
    pub fn known(&self) -> Vec<Key> {
        let orders = self.shares.values().flat_map(|share| [&share.unproven, &share.proven]);
        orders.flatten().map(|(_, key)| *key).collect()
    }
}
