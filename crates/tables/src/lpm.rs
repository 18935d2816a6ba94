//! What a lookup structure must do to be kept in step with a prefix store.

use crate::error::OutOfMemory;
use crate::store::PrefixStore;

/// The writing side of a lookup structure.
///
/// The store already says what shall be. A failing call has changed nothing that a reader sees.
pub(crate) trait LpmWriter<A: crate::address::Address> {
    /// `prefix`/`len` (1 or longer) has this leaf now, new or changed.
    fn insert(&mut self, prefix: A, len: u8, leaf: u32, store: &PrefixStore<A>) -> Result<(), OutOfMemory>;

    /// `prefix`/`len` is gone; `leaf` is that of the prefix that covers it, or 0 (the default route does not count).
    fn remove(&mut self, prefix: A, len: u8, leaf: u32, store: &PrefixStore<A>) -> Result<(), OutOfMemory>;

    /// What addresses have that no prefix of length 1 or more covers.
    fn set_default(&mut self, leaf: u32);

    /// Frees what is past its grace period.
    fn reclaim(&mut self);

    /// Holds back the publication of changes until [`commit`](Self::commit), if that makes them cheaper.
    fn begin(&mut self) {}

    /// Publishes what has been held back. Cannot fail.
    fn commit(&mut self) {}

    /// Bytes of real memory.
    fn memory_bytes(&self) -> usize;
}
