//! System calls of the drivers that the standard library does not wrap: thin, checked wrappers; policy lives above.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Turns the C convention (-1 and errno) into a `Result`.
pub(crate) fn check(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A new close-on-exec, non-blocking socket.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes three integers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) })?;
    // SAFETY: a successful socket call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option from a plain C value.
pub(crate) fn set_option<T: Copy>(socket: &impl AsRawFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which the kernel only reads.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) }).map(drop)
}

/// Reads a socket option that is a plain C value of integers.
///
/// # Safety
/// Every bit pattern is a value of `T`.
pub(crate) unsafe fn get_option<T: Copy>(socket: &OwnedFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which the kernel fills in part or whole.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length) })?;
    // SAFETY: zeroed, then filled by the kernel; the caller vouches that any bits are a value.
    Ok(unsafe { value.assume_init() })
}

/// Sets the size of a socket's queue of `which` (`SO_RCVBUF…` or `SO_SNDBUF…`): beyond the system's limit where the process
/// may, else up to that limit.
pub(crate) fn set_queue_bytes(socket: &impl AsRawFd, forced: c_int, plain: c_int, bytes: c_int) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, forced, &bytes).or_else(|_| set_option(socket, libc::SOL_SOCKET, plain, &bytes))
}

/// Binds a packet socket to a device; it receives frames of `protocol` (`ETH_P_…`), or none where that is 0.
pub(crate) fn bind_packet(socket: &impl AsRawFd, protocol: c_int, index: u32) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain C data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index as c_int;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Takes a socket's pending error; `None` where there is none.
pub(crate) fn take_error(socket: &OwnedFd) -> Option<io::Error> {
    // SAFETY: any bits are an integer.
    match unsafe { get_option::<c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR) } {
        Ok(0) => None,
        Ok(code) => Some(io::Error::from_raw_os_error(code)),
        Err(error) => Some(error),
    }
}

/// Memory shared with the kernel through a descriptor, unmapped when dropped.
///
/// Invariant M1: `base` is the start of `len` mapped, readable and writable bytes for as long as the value lives.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access goes through the owner's `&self` or `&mut self`
// under the rules stated at each method.
unsafe impl Send for Map {}

impl Map {
    /// Maps the first `len` bytes of `fd`, with its pages brought in at once.
    pub(crate) fn shared(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        Self::shared_at(fd, len, 0)
    }

    /// Maps `len` bytes of `fd` from `offset` on, with its pages brought in at once.
    pub(crate) fn shared_at(fd: &OwnedFd, len: usize, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base.cast()).map(|base| Self { base, len }).ok_or_else(|| io::Error::other("mapped at address zero"))
    }

    /// First byte mapped.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A word that the kernel and we change in turn.
    ///
    /// # Panics
    /// Where the word does not lie inside, aligned.
    #[inline(always)]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.len && offset.is_multiple_of(4));
        // SAFETY: inside the mapping (M1, checked above) and aligned, since mappings start on a page.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// A word of eight bytes that we change and the kernel reads.
    ///
    /// # Panics
    /// Where the word does not lie inside, aligned.
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.len && offset.is_multiple_of(8));
        // SAFETY: inside the mapping (M1, checked above) and aligned, since mappings start on a page.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// `len` bytes from `offset` on.
    ///
    /// # Panics
    /// Where they do not lie inside.
    ///
    /// # Safety
    /// While the slice lives, nobody else writes these bytes: the kernel has given them to us.
    #[inline(always)]
    pub(crate) unsafe fn bytes(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: inside the mapping (M1, checked above), ours by the caller's word, borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), len) }
    }

    /// Where `offset` lies, for prefetching.
    #[inline(always)]
    pub(crate) fn address(&self, offset: usize) -> *const u8 {
        self.base.as_ptr().wrapping_add(offset)
    }
}

/// Waits until a descriptor is readable; `false` when the time ran out first.
pub(crate) fn wait_readable(fd: &impl AsRawFd, milliseconds: c_int) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is one pollfd that lives over the call.
    check(unsafe { libc::poll(&raw mut entry, 1, milliseconds) }).map(|n| n > 0)
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: M1; nothing borrows from a value that is being dropped.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
