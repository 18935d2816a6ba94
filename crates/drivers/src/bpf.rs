//! bpf(2), as far as drivers call it themselves.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::sys;

/// One command with its part of `union bpf_attr`.
pub(crate) fn bpf<T>(command: c_int, attributes: &mut T) -> io::Result<c_int> {
    let size = size_of::<T>() as c_long;
    // SAFETY: pointer and size describe `attributes`, whose inner pointers the callers keep alive over the call.
    sys::check(unsafe { libc::syscall(libc::SYS_bpf, c_long::from(command), std::ptr::from_mut(attributes), size) } as c_int)
}

const BPF_LINK_CREATE: c_int = 28;

/// The part of `union bpf_attr` that links of devices use.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Has a device run a program, for as long as the descriptor is open.
pub(crate) fn link(program: &OwnedFd, interface: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    bpf_new(BPF_LINK_CREATE, &mut LinkAttributes { program, interface, attach_type, flags })
}

/// A command that returns a new descriptor.
pub(crate) fn bpf_new<T>(command: c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the commands used with this function return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
