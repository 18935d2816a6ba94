//! What belongs together: sub-interfaces and their parent, borrowers of addresses and their lender, prefixes of a table, instances of
//! loopbacks. Kept beside the interfaces, so that a change to one of them looks at those alone that it concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use quiver_graph::IfIndex;
use quiver_wire::IpPrefix;
use quiver_wire::ipv6::address::is_link_local;

use super::{Interface, Kind, SubMatch};
use crate::ip::FamilyId;

/// Sub-interfaces of one parent.
#[derive(Default)]
pub(super) struct Subs {
    all: BTreeSet<IfIndex>,
    by_match: HashMap<SubMatch, IfIndex>,
}

impl Subs {
    fn add(&mut self, matching: &SubMatch, index: IfIndex) {
        self.all.insert(index);
        self.by_match.insert(matching.claim(), index);
    }

    fn remove(&mut self, matching: &SubMatch, index: IfIndex) {
        self.all.remove(&index);
        self.by_match.remove(&matching.claim());
    }

    /// Whether some take tagged frames, and whether one takes untagged ones.
    pub fn takes(&self) -> (bool, bool) {
        let untagged = self.by_match.contains_key(&SubMatch::Untagged);
        (self.all.len() > usize::from(untagged), untagged)
    }

    /// The one that claims the very same tags.
    pub fn claims(&self, matching: &SubMatch) -> Option<IfIndex> {
        self.by_match.get(&matching.claim()).copied()
    }
}

/// Where an address stands in the order of a table: family, table, first address of its prefix.
type Place = (bool, u32, u128);

/// An address of an interface, with its prefix length.
type Owned = (IfIndex, IpAddr, u8);

/// Prefixes of all interfaces, by table and first address. Those of a table do not overlap, but for addresses of one interface that share
/// a prefix. Link-local addresses are not among them.
#[derive(Default)]
pub(super) struct Prefixes(BTreeMap<Place, Vec<Owned>>);

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => a.to_bits().into(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn last(prefix: IpPrefix) -> u128 {
    let width = if prefix.addr().is_ipv4() { 32 } else { 128 };
    let host = u128::MAX.checked_shr(128 - width + u32::from(prefix.len())).unwrap_or(0);
    bits(prefix.masked().addr()) | host
}

/// The place of a prefix; none for link-local addresses, which mean something on their own link alone.
fn place(table: u32, prefix: IpPrefix) -> Option<Place> {
    let link_local = matches!(prefix.addr(), IpAddr::V6(a) if is_link_local(a.to_bits()));
    (!link_local).then(|| (prefix.addr().is_ipv6(), table, bits(prefix.masked().addr())))
}

impl Prefixes {
    fn add(&mut self, table: u32, index: IfIndex, prefix: IpPrefix) {
        if let Some(place) = place(table, prefix) {
            self.0.entry(place).or_default().push((index, prefix.addr(), prefix.len()));
        }
    }

    fn remove(&mut self, table: u32, index: IfIndex, prefix: IpPrefix) {
        let Some(place) = place(table, prefix) else { return };
        let Some(all) = self.0.get_mut(&place) else { return };
        all.retain(|owned| *owned != (index, prefix.addr(), prefix.len()));
        if all.is_empty() {
            self.0.remove(&place);
        }
    }

    /// An address whose prefix contains `new` or is contained in it, but for those that share the very prefix on the same interface.
    pub fn conflict(&self, table: u32, index: IfIndex, new: IpPrefix) -> Option<Owned> {
        let (v6, table, first) = place(table, new)?;
        let before = self.0.range((v6, table, 0)..(v6, table, first)).next_back();
        let within = self.0.range((v6, table, first)..=(v6, table, last(new)));
        let overlaps = |(_, address, len): &&Owned| match IpPrefix::new(*address, *len) {
            Ok(old) => {
                if *len <= new.len() {
                    old.contains(new.addr())
                } else {
                    new.contains(*address)
                }
            }
            Err(_) => false,
        };
        let others = before.into_iter().chain(within).flat_map(|(_, all)| all);
        others.filter(overlaps).find(|(owner, _, len)| *owner != index || *len != new.len()).copied()
    }
}

/// Instance numbers of loopbacks, or of BVIs, that may be free. Names decide, since interfaces can be renamed.
#[derive(Default)]
pub(super) struct Instances {
    /// Below `next`, names that were given up.
    free: BTreeSet<u32>,
    next: u32,
}

impl Instances {
    /// The lowest instance whose name is not taken.
    pub fn lowest(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        while let Some(lowest) = self.free.first().copied() {
            if !taken(lowest) {
                return lowest;
            }
            self.free.remove(&lowest);
        }
        while taken(self.next) {
            self.next += 1;
        }
        self.next
    }

    fn give_up(&mut self, prefix: &str, name: &str) {
        let instance = name.strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
        self.free.extend(instance.filter(|instance| *instance < self.next));
    }
}

/// All of these.
#[derive(Default)]
pub(super) struct Relations {
    subs: HashMap<IfIndex, Subs>,
    borrowers: HashMap<IfIndex, BTreeSet<IfIndex>>,
    pub prefixes: Prefixes,
    pub loopbacks: Instances,
    pub bvis: Instances,
}

fn table_of(interface: &Interface, address: IpAddr) -> u32 {
    if FamilyId::of(&address) == FamilyId::V4 { interface.tables.0 } else { interface.tables.1 }
}

impl Relations {
    pub fn insert(&mut self, interface: &Interface) {
        if let Kind::Sub(matching) = &interface.kind {
            self.subs.entry(interface.parent).or_default().add(matching, interface.index);
        }
    }

    pub fn remove(&mut self, interface: &Interface) {
        if let Kind::Sub(matching) = &interface.kind
            && let Some(subs) = self.subs.get_mut(&interface.parent)
        {
            subs.remove(matching, interface.index);
            if subs.all.is_empty() {
                self.subs.remove(&interface.parent);
            }
        }
        self.borrow(interface.index, interface.unnumbered, None);
        for (address, len) in &interface.addresses {
            self.address(interface, *address, *len, false);
        }
        self.renamed(&interface.name);
    }

    pub fn renamed(&mut self, before: &str) {
        self.loopbacks.give_up("loop", before);
        self.bvis.give_up("bvi", before);
    }

    pub fn borrow(&mut self, index: IfIndex, before: Option<IfIndex>, now: Option<IfIndex>) {
        if let Some(lender) = before
            && let Some(all) = self.borrowers.get_mut(&lender)
        {
            all.remove(&index);
            if all.is_empty() {
                self.borrowers.remove(&lender);
            }
        }
        if let Some(lender) = now {
            self.borrowers.entry(lender).or_default().insert(index);
        }
    }

    pub fn address(&mut self, interface: &Interface, address: IpAddr, len: u8, add: bool) {
        let Ok(prefix) = IpPrefix::new(address, len) else { return };
        let table = table_of(interface, address);
        if add {
            self.prefixes.add(table, interface.index, prefix);
        } else {
            self.prefixes.remove(table, interface.index, prefix);
        }
    }

    pub fn subs(&self, parent: IfIndex) -> Option<&Subs> {
        self.subs.get(&parent)
    }

    pub fn subs_of(&self, parent: IfIndex) -> impl Iterator<Item = IfIndex> {
        self.subs.get(&parent).into_iter().flat_map(|subs| subs.all.iter().copied())
    }

    pub fn borrowers_of(&self, lender: IfIndex) -> impl Iterator<Item = IfIndex> {
        self.borrowers.get(&lender).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_instance_is_given_again() {
        let mut instances = Instances::default();
        let mut taken = BTreeSet::new();
        for expected in 0..3 {
            let instance = instances.lowest(|n| taken.contains(&n));
            assert_eq!(instance, expected);
            taken.insert(instance);
        }
        taken.insert(3);
        assert_eq!(instances.lowest(|n| taken.contains(&n)), 4, "3 was named by the user");
        for gone in [2, 0] {
            taken.remove(&gone);
            instances.give_up("loop", &format!("loop{gone}"));
        }
        instances.give_up("loop", "loopback");
        assert_eq!(instances.lowest(|n| taken.contains(&n)), 0);
        taken.insert(0);
        assert_eq!(instances.lowest(|n| taken.contains(&n)), 2);
    }

    proptest! {
        /// Against the slow way, which looks at every address there is.
        #[test]
        fn a_conflict_is_found_where_prefixes_overlap(
            wishes in prop::collection::vec((1_u32..4, 0_u32..2, any::<u8>(), 26_u8..=32, any::<bool>()), 1..60)
        ) {
            let mut prefixes = Prefixes::default();
            let mut model: Vec<(u32, IfIndex, IpPrefix)> = Vec::new();
            for (owner, table, low, len, remove) in wishes {
                let (index, new) = (IfIndex(owner), IpPrefix::new(std::net::Ipv4Addr::new(10, 0, 0, low).into(), len).unwrap());
                if remove && !model.is_empty() {
                    let (table, index, old) = model.swap_remove(usize::from(low) % model.len());
                    prefixes.remove(table, index, old);
                    continue;
                }
                let overlap = |old: &IpPrefix| if old.len() <= len { old.contains(new.addr()) } else { new.contains(old.addr()) };
                let slow = model.iter().any(|(t, i, old)| *t == table && overlap(old) && (*i != index || old.len() != len));
                prop_assert_eq!(prefixes.conflict(table, index, new).is_some(), slow);
                if !slow && !model.contains(&(table, index, new)) {
                    prefixes.add(table, index, new);
                    model.push((table, index, new));
                }
            }
            for (table, index, prefix) in model {
                prefixes.remove(table, index, prefix);
            }
            prop_assert!(prefixes.0.is_empty());
        }
    }
}
