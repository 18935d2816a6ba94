//! Which node takes what: one slot number for each protocol, port or ICMP type, read by packets and written by the main
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Slots of one node by number. Shared by all instances of the node.
#[derive(Clone, Debug)]
pub(crate) struct SlotTable(Arc<[AtomicU16]>);

impl SlotTable {
    /// A table for the numbers `0..n` that leads nowhere.
    pub fn new(n: usize) -> Self {
        // Many at a time: tests make many routers, and where nothing is optimised one by one took 3 ms a table.
        const ROW: usize = 1024;
        let rows = (0..n.div_ceil(ROW)).map(|_| [const { AtomicU16::new(0) }; ROW]);
        let mut slots = rows.collect::<Vec<_>>().into_flattened();
        slots.truncate(n);
        Self(slots.into())
    }

    /// The slot for a number; 0 where nobody takes it.
    #[inline(always)]
    pub fn get(&self, number: u16) -> u16 {
        self.0.get(usize::from(number)).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    /// Sets the slot of a number; 0: nobody takes it any more.
    pub fn set(&self, number: u16, slot: u16) {
        if let Some(s) = self.0.get(usize::from(number)) {
            s.store(slot, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_the_table_is_taken_by_nobody() {
        let table = SlotTable::new(256);
        table.set(255, 7);
        table.set(256, 8);
        assert_eq!((table.get(255), table.get(256), table.get(0)), (7, 0, 0));
    }

    #[test]
    fn a_table_has_as_many_numbers_as_asked_for() {
        for n in [0, 1, 3, 256, 1023, 1024, 1025, 1 << 16] {
            assert_eq!(SlotTable::new(n).0.len(), n);
        }
    }
}
