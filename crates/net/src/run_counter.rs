//! Packets and bytes of one object after another.

use std::sync::Arc;

use quiver_graph::stats::{CombinedCounters, CombinedRow};

/// Counts packets and bytes of load-balances, adjacencies or sub-interfaces. Packets of the same one count together, by one addition a run:
/// a read-modify-write of one counter for each packet is a chain through store forwarding.
#[derive(Clone)]
pub(crate) struct RunCounter {
    row: CombinedRow,
    index: u32,
    packets: u64,
    bytes: u64,
}

impl RunCounter {
    /// Of no thread yet.
    pub fn new(counters: &Arc<CombinedCounters>) -> Self {
        Self { row: counters.row(0), index: 0, packets: 0, bytes: 0 }
    }

    /// Counts for a thread from now on.
    pub fn start(&mut self, thread: usize) {
        self.row = self.row.of_thread(thread);
    }

    #[inline(always)]
    pub fn add(&mut self, index: u32, bytes: u32) {
        self.add_run(index, 1, bytes.into());
    }

    #[inline(always)]
    pub fn add_run(&mut self, index: u32, packets: u64, bytes: u64) {
        if index != self.index {
            self.flush();
            self.index = index;
        }
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Counts a batch of the same.
    #[inline(always)]
    pub fn add_all<const W: usize>(&mut self, index: u32, bytes: &[u32; W]) {
        self.add_run(index, W as u64, bytes.iter().sum::<u32>().into());
    }

    /// Counts a batch, each packet for its own.
    #[inline(always)]
    pub fn add_each<const W: usize>(&mut self, index: &[u32; W], bytes: &[u32; W]) {
        for k in 0..W {
            self.row.add(index[k], 1, bytes[k].into());
        }
    }

    #[inline(never)]
    pub fn flush(&mut self) {
        self.row.add(self.index, self.packets, self.bytes);
        (self.packets, self.bytes) = (0, 0);
    }
}
