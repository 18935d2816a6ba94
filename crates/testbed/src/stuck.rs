//! A thread of another program that hangs for good, as a wrong loop in its code would have it: it is stopped by ptrace and goes on at
//! an instruction of its own program that jumps to itself. Nobody has to build such a loop into that program.

use std::io;
#[cfg(target_arch = "x86_64")]
use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
};

/// `jmp $`.
#[cfg(target_arch = "x86_64")]
const LOOP: [u8; 2] = [0xeb, 0xfe];

/// Sends a thread of a process into an endless loop.
///
/// # Errors
/// The system's, where it may not be traced; on other processors than x86-64 it cannot be done.
#[cfg(target_arch = "x86_64")]
pub fn send_into_a_loop(process: u32, thread: u32) -> io::Result<()> {
    let place = endless_loop(process)?;
    let thread = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
    trace(libc::PTRACE_ATTACH, thread, std::ptr::null_mut())?;
    let mut status = 0;
    // SAFETY: `status` is a place for an int.
    crate::sys::check(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) })?;
    // SAFETY: registers are plain C data for which all zeroes is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let changed = trace(libc::PTRACE_GETREGS, thread, (&raw mut registers).cast()).and_then(|()| {
        registers.rip = place;
        // It is in no system call any more that would be begun again.
        registers.orig_rax = u64::MAX;
        trace(libc::PTRACE_SETREGS, thread, (&raw mut registers).cast())
    });
    trace(libc::PTRACE_DETACH, thread, std::ptr::null_mut()).and(changed)
}

/// See above.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn send_into_a_loop(_: u32, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_arch = "x86_64")]
fn trace(request: libc::c_uint, thread: libc::pid_t, data: *mut libc::c_void) -> io::Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: requests that read or write registers have a place for them; the others take no pointer.
    if unsafe { libc::ptrace(request, thread, none, data) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where such an instruction stands in the memory of a process: any two bytes of its code that mean it.
#[cfg(target_arch = "x86_64")]
fn endless_loop(process: u32) -> io::Result<u64> {
    let memory = File::open(format!("/proc/{process}/mem"))?;
    for line in fs::read_to_string(format!("/proc/{process}/maps"))?.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some("r-xp")) = (words.next(), words.next()) else { continue };
        let ends =
            range.split_once('-').and_then(|(a, b)| Some((u64::from_str_radix(a, 16).ok()?, u64::from_str_radix(b, 16).ok()?)));
        let Some((start, end)) = ends else { continue };
        let mut code = vec![0; (end - start) as usize];
        // Some mappings of the kernel's cannot be read.
        if memory.read_exact_at(&mut code, start).is_err() {
            continue;
        }
        if let Some(at) = code.windows(LOOP.len()).position(|bytes| bytes == LOOP) {
            return Ok(start + at as u64);
        }
    }
    Err(io::Error::other("no two bytes of the program's code are a jump to itself"))
}

/// Calls `f` while a thread of another program, and none of its others, is stopped.
///
/// # Errors
/// The system's, where it may not be traced.
pub fn while_stopped<R>(thread: u32, f: impl FnOnce() -> R) -> io::Result<R> {
    let thread = libc::pid_t::try_from(thread).map_err(io::Error::other)?;
    let ask = |request| {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests take no pointers.
        if unsafe { libc::ptrace(request, thread, none, none) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    ask(libc::PTRACE_ATTACH)?;
    let mut status = 0;
    // SAFETY: `status` is a place for an int.
    let stopped = crate::sys::check(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) });
    let result = stopped.map(|_| f());
    // It belongs to this thread, which alone can let it go on.
    ask(libc::PTRACE_DETACH).and(result)
}
