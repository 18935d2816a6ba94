//! The four rings of an AF_XDP socket: single producer, single consumer, shared with the kernel.
//!
//! ```text
//!   fill:       we produce addresses of free buffers   ──► kernel       rx: kernel ──► we consume frames
//!   tx:         we produce frames                      ──► kernel       completion: kernel ──► we consume addresses
//! ```

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Map;

/// A frame, or a piece of one: `struct xdp_desc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub options: u32,
}
const _: () = assert!(size_of::<Descriptor>() == size_of::<libc::xdp_desc>());

impl Descriptor {
    /// Option: the frame goes on in the next descriptor.
    pub const CONTINUED: u32 = libc::XDP_PKT_CONTD;
}

/// Entries that rings hold: plain data, any bits of which are a value.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// What the two sides have in common.
///
/// Invariants: R1: `size` is a power of two, and `size` entries from `entries` on lie in the mapping, aligned. R2: `own` is the
/// value of our index, which nobody else writes.
#[derive(Debug)]
struct Ring<T> {
    map: Map,
    ours: usize,
    theirs: usize,
    flags: usize,
    entries: usize,
    size: u32,
    own: u32,
    kind: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    fn new(map: Map, ours: u64, theirs: u64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let entries = offsets.desc as usize;
        let end = entries.checked_add(size as usize * size_of::<T>());
        let words = [ours, theirs, offsets.flags].iter().all(|o| o.is_multiple_of(4) && *o as usize + 4 <= map.len());
        if !size.is_power_of_two() || end.is_none_or(|e| e > map.len()) || !entries.is_multiple_of(align_of::<T>()) || !words {
            return Err(io::Error::other("the kernel describes a ring that cannot be"));
        }
        let own = map.word(ours as usize).load(Ordering::Relaxed);
        let (ours, theirs, flags) = (ours as usize, theirs as usize, offsets.flags as usize);
        Ok(Self { map, ours, theirs, flags, entries, size, own, kind: PhantomData })
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU32 {
        self.map.word(offset)
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        self.map.address(self.entries + slot * size_of::<T>()).cast_mut().cast()
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we fill. What is put becomes visible by [`Producer::publish`].
#[derive(Debug)]
pub(super) struct Producer<T>(Ring<T>);

impl<T: Entry> Producer<T> {
    pub(super) fn new(map: Map, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        Ring::new(map, offsets.producer, offsets.consumer, offsets, size).map(Self)
    }

    /// Entries that the kernel has not consumed yet, put ones included.
    #[inline(always)]
    pub(super) fn pending(&self) -> u32 {
        // Acquire: the kernel has read what it says it has consumed.
        self.0.own.wrapping_sub(self.0.word(self.0.theirs).load(Ordering::Acquire)).min(self.0.size)
    }

    /// Entries that can be put.
    #[inline(always)]
    pub(super) fn free(&self) -> u32 {
        self.0.size - self.pending()
    }

    /// Puts an entry. No more of them than were [`free`](Self::free).
    #[inline(always)]
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: R1; slots between the kernel's index and ours plus the free ones are ours until published.
        unsafe { self.0.entry(self.0.own).write(entry) };
        self.0.own = self.0.own.wrapping_add(1);
    }

    /// Shows the kernel what was put.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.0.word(self.0.ours).store(self.0.own, Ordering::Release);
    }

    /// Whether the kernel has to be told that there is something.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// A ring that the kernel fills. What is taken is the kernel's again after [`Consumer::release`].
#[derive(Debug)]
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Entry> Consumer<T> {
    pub(super) fn new(map: Map, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        Ring::new(map, offsets.consumer, offsets.producer, offsets, size).map(Self)
    }

    /// Entries that can be taken.
    #[inline(always)]
    pub(super) fn available(&self) -> u32 {
        // Acquire: the entries were written before the index.
        self.0.word(self.0.theirs).load(Ordering::Acquire).wrapping_sub(self.0.own).min(self.0.size)
    }

    /// The entry `ahead` of the next. Below what is [`available`](Self::available).
    #[inline(always)]
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: R1; the kernel has filled the slot, and leaves it to us until released.
        unsafe { self.0.entry(self.0.own.wrapping_add(ahead)).read() }
    }

    /// Passes over `n` entries.
    #[inline(always)]
    pub(super) fn advance(&mut self, n: u32) {
        self.0.own = self.0.own.wrapping_add(n);
    }

    /// Gives the kernel back what was passed over.
    #[inline(always)]
    pub(super) fn release(&mut self) {
        self.0.word(self.0.ours).store(self.0.own, Ordering::Release);
    }
}

/// Maps one ring of a socket.
pub(super) fn map<T>(fd: &OwnedFd, offsets: &libc::xdp_ring_offset, size: u32, at: u64) -> io::Result<Map> {
    Map::shared_at(fd, offsets.desc as usize + size as usize * size_of::<T>(), at as libc::off_t)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(size: u32) -> (Producer<u64>, Consumer<u64>) {
        use std::os::fd::FromRawFd;
        // SAFETY: memfd_create takes a NUL-terminated name and gives a new descriptor; ftruncate takes it and a size.
        let fd = unsafe {
            let fd = OwnedFd::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0));
            assert_eq!(libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&fd), 1 << 16), 0);
            fd
        };
        let offsets = libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };
        let map = || map::<u64>(&fd, &offsets, size, 0).unwrap();
        (Producer::new(map(), &offsets, size).unwrap(), Consumer::new(map(), &offsets, size).unwrap())
    }

    #[test]
    fn entries_come_in_order_and_only_when_published_over_many_wraps() {
        let (mut producer, mut consumer) = pair(8);
        let (mut put, mut taken) = (0_u64, 0_u64);
        for round in 0..10_000_u32 {
            let n = (round * 7 % 11).min(producer.free());
            for _ in 0..n {
                producer.put(put);
                put += 1;
            }
            assert_eq!(u64::from(consumer.available()), put - u64::from(n) - taken);
            producer.publish();
            let n = consumer.available().min(round % 5);
            for ahead in 0..n {
                assert_eq!(consumer.peek(ahead), taken + u64::from(ahead));
            }
            consumer.advance(n);
            taken += u64::from(n);
            consumer.release();
            assert_eq!(u64::from(producer.pending()), put - taken);
        }
    }

    #[test]
    fn a_ring_that_cannot_be_is_refused() {
        let (producer, _) = pair(8);
        let map = producer.0.map;
        let offsets = libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 1 << 20, flags: 128 };
        assert!(Producer::<u64>::new(map, &offsets, 8).is_err());
    }
}
