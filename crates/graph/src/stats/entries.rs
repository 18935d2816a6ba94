//! Scalars, gauges and name vectors: the entries that are no counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::segment::{Segment, Writer};

/// A number in the directory itself. Any thread may set it; the last one wins.
pub struct Scalar {
    segment: Arc<Segment>,
    value: usize,
}

impl Scalar {
    pub(super) fn new(segment: Arc<Segment>, value: usize) -> Self {
        Self { segment, value }
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.segment.word(self.value).store(value, Ordering::Relaxed);
    }

    /// Sets the value and raises the epoch: VPP's Python client reads scalars anew only then. For what changes when the configuration does.
    pub fn announce(&self, value: u64) {
        let held = self.segment.lock();
        self.segment.change(&held, || self.set(value));
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.segment.word(self.value).load(Ordering::Relaxed)
    }
}

/// A vector of names by index, such as `/if/names`. What was never set reads as the empty name.
pub struct Names {
    segment: Arc<Segment>,
    /// Offset of the data: pointers to strings.
    pub(super) data: usize,
    capacity: u32,
}

impl Names {
    pub(super) fn reserve(segment: &Arc<Segment>, writer: &mut Writer, capacity: u32) -> Option<Self> {
        let data = writer.vector(capacity as usize * 8)?;
        let segment = Arc::clone(segment);
        Some(Self { segment, data, capacity })
    }

    /// Sets the name at `index`, and makes the vector longer where needed. Returns whether there was room for it.
    pub fn set(&self, index: u32, name: &str) -> bool {
        let segment = &*self.segment;
        let mut writer = segment.lock();
        if index >= self.capacity {
            return false;
        }
        let string = match name {
            "" => Some(writer.empty),
            name => writer.string(segment, name),
        };
        let Some(string) = string else { return false };
        let empty = segment.address(writer.empty);
        let old = segment.change(&writer, || {
            let count = segment.count(self.data);
            for hole in count.load(Ordering::Relaxed)..=index {
                self.slot(hole).store(empty, Ordering::Relaxed);
            }
            let old = self.slot(index).swap(segment.address(string), Ordering::Release);
            count.fetch_max(index + 1, Ordering::Release);
            old
        });
        writer.free_string(segment, old.wrapping_sub(segment.address(0)) as usize);
        true
    }

    /// The number of names that readers see.
    pub fn len(&self) -> u32 {
        self.segment.count(self.data).load(Ordering::Relaxed)
    }

    /// Whether no name was ever set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the vector for a new owner. Only for names that nobody else holds.
    pub(super) fn reset(&self) {
        for index in 0..self.len() {
            self.set(index, "");
        }
        self.segment.count(self.data).store(0, Ordering::Release);
    }

    fn slot(&self, index: u32) -> &AtomicU64 {
        self.segment.word(self.data + index as usize * 8)
    }
}
