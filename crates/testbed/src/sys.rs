//! The system calls that the standard library does not wrap. Everything here is a thin, checked wrapper; policy lives above.

use std::ffi::{CStr, CString, c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Turns the C convention (-1 and errno) into a `Result`.
pub(crate) fn check(value: c_int) -> io::Result<c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Keeps the calling thread, and what it starts from now on, to one processor.
///
/// # Errors
/// The system's, where this program may not use that processor.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain C data for which all zeroes is a value; CPU_SET checks its index; the call reads one set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)).map(drop)
    }
}

/// Moves the calling thread into new namespaces.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: unshare takes no pointers; it changes only the calling thread.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread into the namespace behind `fd`. Safe to call between fork and exec.
pub(crate) fn setns(fd: c_int, kind: c_int) -> io::Result<()> {
    // SAFETY: setns takes no pointers; it changes only the calling thread.
    check(unsafe { libc::setns(fd, kind) }).map(drop)
}

/// Gives the calling thread its own table of descriptors, with only the three standard ones.
pub(crate) fn own_descriptors() -> io::Result<()> {
    // SAFETY: no pointers are passed; descriptors of the other threads stay open in their table.
    check(unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_UNSHARE as c_int) }).map(drop)
}

/// Mounts a filesystem without source, or changes propagation with `kind` None.
pub(crate) fn mount(kind: Option<&CStr>, target: &CStr, flags: c_ulong) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: all pointers are null (allowed for source and data) or NUL-terminated strings that live over the call.
    check(unsafe { libc::mount(kind, target.as_ptr(), kind, flags, std::ptr::null()) }).map(drop)
}

/// Asks the kernel to send `signal` to this process when the *thread* that made it ends. Async-signal-safe.
pub(crate) fn die_with_parent(signal: c_int) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes an integer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as c_ulong) }).map(drop)
}

/// The parent's process id. Async-signal-safe.
pub(crate) fn parent_id() -> libc::pid_t {
    // SAFETY: getppid has no arguments and cannot fail.
    unsafe { libc::getppid() }
}

/// Sends a signal to one process.
pub(crate) fn kill(pid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: kill takes no pointers; the caller owns the (unreaped) child that the id names.
    check(unsafe { libc::kill(pid as libc::pid_t, signal) }).map(drop)
}

/// Sends a signal to a process group.
pub(crate) fn kill_group(leader: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: kill takes no pointers; a negative id names the group that the caller's own child leads.
    check(unsafe { libc::kill(-(leader as libc::pid_t), signal) }).map(drop)
}

/// A file descriptor that polls readable once the child `pid` has ended.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    // SAFETY: a successful pidfd_open returns a new descriptor that nobody else owns.
    check(fd as c_int).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Working directory of the calling process into `buffer`; no allocation, so it may run between fork and exec.
pub(crate) fn current_dir_into(buffer: &mut [u8]) -> io::Result<&CStr> {
    // SAFETY: the pointer and length describe `buffer`, which getcwd fills with a NUL-terminated path or leaves alone.
    let path = unsafe { libc::getcwd(buffer.as_mut_ptr().cast(), buffer.len()) };
    if path.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getcwd succeeded, so `buffer` starts with a NUL-terminated string; the result borrows the buffer.
    Ok(unsafe { CStr::from_ptr(path) })
}

/// Changes the working directory. Async-signal-safe.
pub(crate) fn change_dir(path: &CStr) -> io::Result<()> {
    // SAFETY: the pointer is a NUL-terminated string that lives over the call.
    check(unsafe { libc::chdir(path.as_ptr()) }).map(drop)
}

/// Index of an interface in the calling thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let c_name = CString::new(name)?;
    // SAFETY: the pointer is a NUL-terminated string that lives over the call.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(with_context(format!("interface {name}"), io::Error::last_os_error())),
        index => Ok(index),
    }
}

/// A new close-on-exec socket.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes three integers.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: a successful socket call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option from a plain C value.
pub(crate) fn set_option<T: Copy>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which the kernel only reads.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) };
    check(result).map(drop)
}

/// Waits until `fd` is readable; false when the time ran out first.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: std::time::Duration) -> io::Result<bool> {
    let deadline = std::time::Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Rounded up, or the last millisecond would spin.
        let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as c_int;
        // SAFETY: the pointer is one pollfd that lives over the call.
        match check(unsafe { libc::poll(&raw mut entry, 1, millis) }) {
            Ok(0) if left.is_zero() || deadline <= std::time::Instant::now() => return Ok(false),
            Ok(0) => {}
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The same kind of error with what was being done in front.
pub(crate) fn with_context(what: impl std::fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
