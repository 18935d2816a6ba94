//! What a lookup structure must do to be kept in step with a prefix store.

use std::io;

use crate::address::Address;
use crate::error::OutOfMemory;
use crate::store::PrefixStore;

/// What has become of a prefix of length 1 or longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixChange<A> {
    /// First address.
    pub prefix: A,
    /// Length.
    pub len: u8,
    /// The leaf that it has now, new or changed. Where it is gone, that of the prefix that covers it, or 0 (the default route
    /// does not count).
    pub leaf: u32,
    /// There is no such prefix any more.
    pub gone: bool,
}

/// The writing side of a lookup structure.
///
/// A change has two halves, so that several structures can make it together or not at all: one takes what may be missing, the
/// other cannot fail. The store already says what shall be.
pub(crate) trait LpmWriter {
    /// An address of the family.
    type Addr: Address;

    /// Takes all that a change needs. Readers see nothing of it. After a failure all is as before; after a success
    /// [`publish`](Self::publish) or [`cancel`](Self::cancel) must follow.
    fn prepare(&mut self, change: &PrefixChange<Self::Addr>, store: &PrefixStore<Self::Addr>) -> Result<(), OutOfMemory>;

    /// Makes the change that was prepared. Cannot fail.
    fn publish(&mut self, change: &PrefixChange<Self::Addr>, store: &PrefixStore<Self::Addr>);

    /// Gives back what was prepared.
    fn cancel(&mut self);

    /// What addresses have that no prefix of length 1 or more covers.
    fn set_default(&mut self, leaf: u32);

    /// Frees what is past its grace period.
    fn reclaim(&mut self);

    /// Holds back the publication of changes until [`commit`](Self::commit), if that makes them cheaper.
    fn begin(&mut self) {}

    /// Publishes what has been held back. Cannot fail.
    fn commit(&mut self) {}

    /// Asks for memory of a node for what readers read; as [`Pages::place`](crate::mem::Pages::place).
    fn place(&self, node: u32) -> io::Result<()>;

    /// Bytes of real memory.
    fn memory_bytes(&self) -> usize;
}
