//! bpf(2), as far as drivers call it themselves.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::sys;

/// One command with its part of `union bpf_attr`.
pub(crate) fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<c_int> {
    let size = size_of::<T>() as c_long;
    // SAFETY: pointer and size describe `attributes`, whose inner pointers the callers keep alive over the call.
    sys::check(unsafe { libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_mut(attributes), size) } as c_int)
}

/// A command that returns a new descriptor.
pub(crate) fn bpf_new<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the commands used with this function return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
