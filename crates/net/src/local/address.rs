//! Own addresses as nodes need them: from which address does an answer go out that comes in on this interface?
//!
//! RFC 1812 section 4.3.2.4 and RFC 4443 section 2.2 leave a choice; the address of the interface that the packet came in on
//! is what makes traceroute show the way. Where it has none, an address of another interface serves (a router's id).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;

use quiver_graph::{IfIndex, MAX_INTERFACES};
use quiver_tables::error::OutOfMemory;
use quiver_tables::slots::{AtomicSlots, SlotsReader};
use quiver_wire::ipv6::address::is_link_local;

use crate::interface::IfEvent;
use crate::{Interface, Router};

/// Addresses of an interface that answers may have as source; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    pub ip4: u32,
    pub global: u128,
    pub link_local: u128,
}

type Words = [u64; 8];

/// A word that tells whether two halves of an address belong together: a reader between two stores takes neither.
const fn check(address: u128) -> u64 {
    (address as u64).rotate_left(1) ^ (address >> 64) as u64
}

const fn join(low: u64, high: u64, sum: u64) -> u128 {
    let address = low as u128 | (high as u128) << 64;
    if check(address) == sum { address } else { 0 }
}

impl Sources {
    fn of(interface: &Interface) -> Self {
        let mut sources = Self::default();
        for (address, _) in &interface.addresses {
            match address {
                IpAddr::V4(a) if sources.ip4 == 0 => sources.ip4 = a.to_bits(),
                IpAddr::V6(a) if is_link_local(a.to_bits()) && sources.link_local == 0 => sources.link_local = a.to_bits(),
                IpAddr::V6(a) if !is_link_local(a.to_bits()) && sources.global == 0 => sources.global = a.to_bits(),
                _ => {}
            }
        }
        sources
    }

    fn pack(self) -> Words {
        let Self { ip4, global, link_local } = self;
        let halves = |a: u128| (a as u64, (a >> 64) as u64);
        let ((gl, gh), (ll, lh)) = (halves(global), halves(link_local));
        [u64::from(ip4), gl, gh, check(global), ll, lh, check(link_local), 0]
    }

    fn unpack(w: Words) -> Self {
        Self { ip4: w[0] as u32, global: join(w[1], w[2], w[3]), link_local: join(w[4], w[5], w[6]) }
    }

    fn or(self, other: Self) -> Self {
        let pick = |a: u128, b: u128| if a != 0 { a } else { b };
        Self {
            ip4: if self.ip4 != 0 { self.ip4 } else { other.ip4 },
            global: pick(self.global, other.global),
            // A link-local address means nothing on another link.
            link_local: self.link_local,
        }
    }
}

/// Readers' side. Slot 0 (`local0`, which has no addresses) holds those of the first interface that has some.
#[derive(Clone, Debug)]
pub(crate) struct SourceTable(SlotsReader<[AtomicU64; 8]>);

impl SourceTable {
    fn get(&self, interface: IfIndex) -> Sources {
        let own = Sources::unpack(self.0.get(interface.0));
        if own.ip4 != 0 && own.global != 0 { own } else { own.or(Sources::unpack(self.0.get(0))) }
    }

    /// IPv4 source of an answer to what came in here; 0 where this router has no address.
    pub fn ip4(&self, interface: IfIndex) -> u32 {
        self.get(interface).ip4
    }

    /// IPv6 source of an answer to what came in here; 0 where this router has no address.
    pub fn ip6(&self, interface: IfIndex, dst: u128) -> u128 {
        let Sources { global, link_local, .. } = self.get(interface);
        let (first, second) = if is_link_local(dst) { (link_local, global) } else { (global, link_local) };
        if first != 0 { first } else { second }
    }
}

/// Writers' side.
#[derive(Debug)]
pub(crate) struct SourceRecords {
    slots: AtomicSlots<[AtomicU64; 8]>,
    /// Interfaces that have an address of each family.
    ip4: BTreeMap<u32, u32>,
    global: BTreeMap<u32, u128>,
}

impl SourceRecords {
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut slots = AtomicSlots::new(MAX_INTERFACES as usize)?;
        slots.grow(MAX_INTERFACES as usize)?;
        Ok(Self { slots, ip4: BTreeMap::new(), global: BTreeMap::new() })
    }

    pub fn reader(&self) -> SourceTable {
        SourceTable(self.slots.reader())
    }

    fn set(&mut self, interface: u32, sources: Sources) {
        // All slots were grown in `new`, so this cannot fail.
        let _ = self.slots.set(interface, sources.pack());
    }

    /// Notes what an interface has; those of the first interface that has some are in slot 0.
    fn note(&mut self, interface: u32, sources: Sources) {
        let Sources { ip4, global, .. } = sources;
        if ip4 == 0 {
            self.ip4.remove(&interface)
        } else {
            self.ip4.insert(interface, ip4)
        };
        if global == 0 {
            self.global.remove(&interface)
        } else {
            self.global.insert(interface, global)
        };
        let first = Sources {
            ip4: self.ip4.first_key_value().map_or(0, |(_, a)| *a),
            global: self.global.first_key_value().map_or(0, |(_, a)| *a),
            link_local: 0,
        };
        self.set(IfIndex::LOCAL0.0, first);
        if interface != IfIndex::LOCAL0.0 {
            self.set(interface, sources);
        }
    }
}

/// Keeps the records in step with interfaces.
pub(super) fn on_event(router: &mut Router, event: &IfEvent) {
    let (changed, gone) = match event {
        IfEvent::Address(i, ..) | IfEvent::Created(i) => (*i, false),
        IfEvent::Deleted(i) => (*i, true),
        _ => return,
    };
    let sources = |interface: &Interface| {
        let lender = interface.unnumbered.and_then(|l| router.interfaces.get(l));
        Sources::of(interface).or(lender.map_or_else(Sources::default, Sources::of))
    };
    let affected = std::iter::once(changed).chain(router.interfaces.borrowers(changed));
    let updates: Vec<(IfIndex, Sources)> = affected
        .filter_map(|index| Some((index, router.interfaces.get(index)?)))
        .map(|(index, interface)| (index, if gone && index == changed { Sources::default() } else { sources(interface) }))
        .collect();
    let Some(part) = router.part_mut::<super::Local>() else { return };
    for (interface, sources) in updates {
        part.sources.note(interface.0, sources);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_packing_and_torn_addresses_are_none() {
        let sources = Sources { ip4: 0xffff_ffff, global: u128::MAX - 7, link_local: 0xfe80 << 112 | 1 };
        assert_eq!(Sources::unpack(sources.pack()), sources);
        assert_eq!(Sources::unpack(Sources::default().pack()), Sources::default());
        let mut words = sources.pack();
        words[2] ^= 1;
        assert_eq!(Sources::unpack(words).global, 0);
    }

    #[test]
    fn an_interface_without_addresses_borrows_all_but_the_link_local_one() {
        let mut records = SourceRecords::new().unwrap();
        let table = records.reader();
        assert_eq!((table.ip4(IfIndex(3)), table.ip6(IfIndex(3), 1)), (0, 0));
        records.set(0, Sources { ip4: 1, global: 2, link_local: 3 });
        records.set(3, Sources { link_local: 9, ..Sources::default() });
        let link_local = 0xfe80 << 112;
        assert_eq!((table.ip4(IfIndex(3)), table.ip6(IfIndex(3), 1), table.ip6(IfIndex(3), link_local)), (1, 2, 9));
        assert_eq!(table.ip6(IfIndex(4), link_local), 2);
    }
}
