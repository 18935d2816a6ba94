//! What the data path reads of an interface: one record of 32 bytes, so that every question of a packet about its
//! interface is a load that stays in L1.

use std::sync::atomic::AtomicU64;

use quiver_graph::{IfIndex, MAX_INTERFACES};
use quiver_tables::slots::{AtomicSlots, SlotsReader, SlotsView};
use quiver_wire::MacAddr;

use crate::fib::{AdjTable, LbTable};
use crate::watch::Watch;

/// Flags of an interface as the data path sees them.
pub mod if_flags {
    /// Administratively up.
    pub const UP: u16 = 1;
    /// Accepts IPv4 (has an address, is unnumbered, or has a host interface).
    pub const IP4: u16 = 1 << 1;
    /// Accepts IPv6.
    pub const IP6: u16 = 1 << 2;
    /// Frames go to `l2-input` whole.
    pub const L2: u16 = 1 << 3;
    /// Frames to any MAC address are accepted.
    pub const PROMISCUOUS: u16 = 1 << 4;
    /// Has sub-interfaces: tagged frames are sorted by `ethernet-vlan`.
    pub const TAGGED: u16 = 1 << 5;
    /// Has a sub-interface for untagged frames.
    pub const UNTAGGED: u16 = 1 << 6;
}

/// An interface as the data path sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IfRecord {
    /// Own MAC address.
    pub mac: MacAddr,
    /// [`if_flags`].
    pub flags: u16,
    /// FIB of IPv4 packets that come in here.
    pub fib4: u32,
    /// FIB of IPv6 packets that come in here.
    pub fib6: u32,
    /// Cross-connect: the interface that frames leave on.
    pub l2_peer: IfIndex,
    /// Cross-connect: slot of `l2-input` that leads there.
    pub l2_slot: u16,
    /// Largest IPv4 packet sent, bytes.
    pub mtu4: u16,
    /// Largest IPv6 packet sent, bytes.
    pub mtu6: u16,
    /// The interface whose device carries this one (itself unless it is a sub-interface).
    pub parent: IfIndex,
}

type Words = [u64; 4];

impl IfRecord {
    fn pack(&self) -> Words {
        [
            self.mac.to_u64() | u64::from(self.flags) << 48,
            u64::from(self.fib4) | u64::from(self.fib6) << 32,
            u64::from(self.l2_peer.0) | u64::from(self.l2_slot) << 32,
            u64::from(self.parent.0) | u64::from(self.mtu4) << 32 | u64::from(self.mtu6) << 48,
        ]
    }

    #[inline(always)]
    fn unpack(w: Words) -> Self {
        Self {
            mac: MacAddr::from_u64(w[0] & 0xffff_ffff_ffff),
            flags: (w[0] >> 48) as u16,
            fib4: w[1] as u32,
            fib6: (w[1] >> 32) as u32,
            l2_peer: IfIndex(w[2] as u32),
            l2_slot: (w[2] >> 32) as u16,
            parent: IfIndex(w[3] as u32),
            mtu4: (w[3] >> 32) as u16,
            mtu6: (w[3] >> 48) as u16,
        }
    }
}

/// Readers' side of the interface records. An interface that does not exist reads as all zeros: down, no protocol.
#[derive(Clone, Debug)]
pub struct IfTable(SlotsReader<[AtomicU64; 4]>);

impl IfTable {
    /// The record, all words of it. Where a part is enough, the functions below load only that.
    #[inline(always)]
    pub fn get(&self, interface: IfIndex) -> IfRecord {
        IfRecord::unpack(self.0.get(interface.0))
    }

    /// Own MAC address (low 48 bits) and [`if_flags`] (high 16): one load.
    #[inline(always)]
    pub fn link(&self, interface: IfIndex) -> u64 {
        let [word] = self.0.words::<0, 1>(interface.0);
        word
    }

    /// The records for a few reads.
    #[inline(always)]
    pub(crate) fn view(&self) -> IfView<'_> {
        IfView(self.0.view())
    }

    /// [`if_flags`]: one load.
    #[inline(always)]
    pub fn flags(&self, interface: IfIndex) -> u16 {
        (self.link(interface) >> 48) as u16
    }

    /// FIBs of IPv4 and IPv6 packets that come in here: one load.
    #[inline(always)]
    pub fn fibs(&self, interface: IfIndex) -> (u32, u32) {
        let [word] = self.0.words::<1, 1>(interface.0);
        (word as u32, (word >> 32) as u32)
    }

    /// Peer of a cross-connect and the slot that leads there: one load.
    #[inline(always)]
    pub fn l2(&self, interface: IfIndex) -> (IfIndex, u16) {
        let [word] = self.0.words::<2, 1>(interface.0);
        (IfIndex(word as u32), (word >> 32) as u16)
    }
}

/// Interface records for a few reads.
#[derive(Clone, Copy)]
pub(crate) struct IfView<'a>(SlotsView<'a, [AtomicU64; 4]>);

impl IfView<'_> {
    /// As [`IfTable::link`].
    #[inline(always)]
    pub fn link(self, interface: IfIndex) -> u64 {
        let [word] = self.0.words::<0, 1>(interface.0);
        word
    }
}

/// Everything shared between nodes and the control side that is indexed by small numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DataPlane {
    /// Interfaces.
    pub interfaces: IfTable,
    /// Load-balances of both families' routes.
    pub load_balances: LbTable,
    /// Adjacencies of both families.
    pub adjacencies: AdjTable,
}

/// The control side's handle for writing interface records.
#[derive(Debug)]
pub struct IfRecords {
    slots: AtomicSlots<[AtomicU64; 4]>,
    pub(crate) watch: Watch,
}

impl IfRecords {
    /// Records for all interfaces that can exist.
    ///
    /// # Errors
    /// No address space.
    pub fn new() -> Result<Self, quiver_tables::error::OutOfMemory> {
        let mut slots = AtomicSlots::new(MAX_INTERFACES as usize)?;
        slots.grow(MAX_INTERFACES as usize)?;
        Ok(Self { slots, watch: Watch::default() })
    }

    /// The readers' side.
    pub fn reader(&self) -> IfTable {
        IfTable(self.slots.reader())
    }

    /// The record now.
    pub fn get(&self, interface: IfIndex) -> IfRecord {
        IfRecord::unpack(self.slots.get(interface.0))
    }

    /// Changes a record. Each word changes at once; words that must change together are one word.
    pub fn update(&mut self, interface: IfIndex, change: impl FnOnce(&mut IfRecord)) {
        let mut record = self.get(interface);
        change(&mut record);
        // All slots were grown in `new`, so this cannot fail.
        let _ = self.slots.set(interface.0, record.pack());
        self.watch.tell(|keeper| keeper.interface(interface));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_packing() {
        let record = IfRecord {
            mac: MacAddr([0x02, 0xfe, 0xff, 0x01, 0x80, 0x7f]),
            flags: 0xffff,
            fib4: u32::MAX,
            fib6: 7,
            l2_peer: IfIndex(16_383),
            l2_slot: 65_535,
            mtu4: 9000,
            mtu6: 1280,
            parent: IfIndex(3),
        };
        let mut records = IfRecords::new().unwrap();
        records.update(IfIndex(5), |r| *r = record);
        let reader = records.reader();
        assert_eq!(reader.get(IfIndex(5)), record);
        assert_eq!(reader.link(IfIndex(5)), record.mac.to_u64() | 0xffff << 48);
        assert_eq!((reader.flags(IfIndex(5)), reader.fibs(IfIndex(5))), (0xffff, (u32::MAX, 7)));
        assert_eq!(reader.l2(IfIndex(5)), (record.l2_peer, record.l2_slot));
        assert_eq!(records.reader().get(IfIndex(6)), IfRecord::default());
        assert_eq!(records.reader().get(IfIndex(u32::MAX)), IfRecord::default());
    }
}
