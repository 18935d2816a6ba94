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
        Self((0..n).map(|_| AtomicU16::new(0)).collect())
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
}
