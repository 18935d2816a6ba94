//! What another local user can do: a thread with that user's rights.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use crate::sys::check;

/// The user and group `nobody`.
pub const NOBODY: u32 = 65_534;

/// Runs `work` on a thread of its own that has the rights of this user and of no other: files and sockets see that user.
///
/// # Errors
/// The system's, where this process is not root.
pub fn as_user<R: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> R + Send) -> io::Result<R> {
    let run = || become_user(uid, gid, groups).map(|()| work());
    thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The raw calls change the calling thread; those of the C library would change the whole process.
fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let call = |result: libc::c_long| check(libc::c_int::try_from(result).unwrap_or(-1)).map(drop);
    // SAFETY: the kernel reads as many groups as the slice has.
    call(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: setresgid takes three numbers.
    call(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: setresuid takes three numbers.
    call(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

/// Makes a pipe with a name.
///
/// # Errors
/// The system's.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name ends in NUL and lives over the call.
    check(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }).map(drop)
}
