//! What the data path reads of an interface as a port of a bridge domain: one word.

use std::sync::atomic::AtomicU64;

use quiver_graph::{IfIndex, MAX_INTERFACES, Verdict};
use quiver_tables::error::OutOfMemory;
use quiver_tables::slots::{AtomicSlots, SlotsReader};

/// Flags of a port: its own and those of its domain in one.
pub(super) mod port_flags {
    /// Belongs to a domain.
    pub const MEMBER: u16 = 1;
    /// Sources of its frames are learned.
    pub const LEARN: u16 = 1 << 1;
    /// New addresses may be learned: the domain and the port have room.
    pub const ROOM: u16 = 1 << 2;
    /// Its frames go where their destination is known to be.
    pub const FORWARD: u16 = 1 << 3;
    /// Its frames to unknown destinations are flooded.
    pub const FLOOD_UNKNOWN: u16 = 1 << 4;
    /// Its frames to groups are flooded.
    pub const FLOOD_GROUPS: u16 = 1 << 5;
    /// Learned addresses grow old: when they were heard is noted.
    pub const AGE: u16 = 1 << 6;
    /// ARP and ND questions are looked at before they are flooded.
    pub const SUPPRESS: u16 = 1 << 7;
}

/// A port as one word, so that a packet never sees half of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortWord(u64);

impl PortWord {
    pub fn new(slot: Verdict, domain: u16, group: u8, flags: u16) -> Self {
        Self(u64::from(slot.index()) | u64::from(domain) << 16 | u64::from(group) << 32 | u64::from(flags) << 40)
    }

    /// The slot of `l2-bridge` that leads to it.
    #[inline(always)]
    pub fn slot(self) -> Verdict {
        Verdict::slot(self.0 as u16)
    }

    /// Index of its bridge domain.
    #[inline(always)]
    pub fn domain(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Its split-horizon group; 0 is none.
    #[inline(always)]
    pub fn group(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// Zero where frames of the port `from` may leave by this one: a member of the same domain, in another split-horizon group.
    #[inline(always)]
    pub fn obstacle(self, from: Self) -> u64 {
        const MEMBER: u64 = (port_flags::MEMBER as u64) << 40;
        const DOMAIN: u64 = 0xffff << 16;
        // What depends on `from` alone is worked out once for a group: no group is a number that none has.
        let apart = if from.group() == 0 { u16::MAX } else { from.group().into() };
        (self.0 ^ (from.0 | MEMBER)) & (MEMBER | DOMAIN) | u64::from(u16::from(self.group()) == apart)
    }

    #[inline(always)]
    pub fn has(self, flag: u16) -> bool {
        self.0 & u64::from(flag) << 40 != 0
    }
}

/// The writer's side.
pub(super) struct Ports(AtomicSlots<AtomicU64>);

impl Ports {
    pub fn new() -> Result<Self, OutOfMemory> {
        let mut slots = AtomicSlots::new(MAX_INTERFACES as usize)?;
        slots.grow(MAX_INTERFACES as usize)?;
        Ok(Self(slots))
    }

    pub fn reader(&self) -> PortTable {
        PortTable(self.0.reader())
    }

    pub fn set(&mut self, interface: IfIndex, word: PortWord) {
        // All slots were grown in `new`, so this cannot fail.
        let _ = self.0.set(interface.0, word.0);
    }
}

/// The readers' side; an interface that is no port reads as zeros.
#[derive(Clone)]
pub(super) struct PortTable(SlotsReader<AtomicU64>);

impl PortTable {
    #[inline(always)]
    pub fn get(&self, interface: IfIndex) -> PortWord {
        PortWord(self.0.get(interface.0))
    }
}

#[cfg(test)]
mod tests {
    use super::port_flags::*;
    use super::*;

    #[test]
    fn a_port_survives_packing() {
        for (slot, domain, group, flags) in [(0, 0, 0, 0), (65_535, 65_535, 255, MEMBER | SUPPRESS), (3, 1, 7, LEARN | AGE)] {
            let word = PortWord::new(Verdict::slot(slot), domain, group, flags);
            assert_eq!((word.slot(), word.domain(), word.group()), (Verdict::slot(slot), domain, group));
            for bit in [MEMBER, LEARN, ROOM, FORWARD, FLOOD_UNKNOWN, FLOOD_GROUPS, AGE, SUPPRESS] {
                assert_eq!(word.has(bit), flags & bit != 0);
            }
        }
        let mut ports = Ports::new().unwrap();
        let word = PortWord::new(Verdict::slot(4), 2, 0, MEMBER);
        ports.set(IfIndex(9), word);
        assert_eq!((ports.reader().get(IfIndex(9)), ports.reader().get(IfIndex(u32::MAX))), (word, PortWord::default()));
    }
}
