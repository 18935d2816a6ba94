//! The thread of a device's NAPI: without one, received frames are worked on by whoever's core they came up on.
//!
//! Where sender and receiver share a core, the receiver comes first. The ring between two ends of a veth has 256 places, and an
//! ordinary thread waits for the next tick while another one is busy: what came meanwhile would be lost at our end of the wire,
//! and be taken for the device's loss.

use std::fs;
use std::io::{self, Write};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::sys;

/// Gives the device's NAPI threads, keeps them on `core`, and says which they are.
///
/// # Errors
/// Why its work may still be done elsewhere, in one line.
pub(super) fn settle(device: &str, core: Option<u32>) -> Result<Vec<Pid>, String> {
    // In sysfs of the mount namespace, which shows the devices of the network namespace that it was mounted in.
    let file = format!("/sys/class/net/{device}/threaded");
    let mut setting = fs::OpenOptions::new().write(true).open(&file).map_err(|e| format!("{file}: {e}"))?;
    setting.write_all(b"1\n").map_err(|e| format!("{file}: {e}"))?;
    let Some(core) = core else {
        return Err(format!("{device}: its receiving thread is not kept on a core: give the port rx-core=NUMBER"));
    };
    let mut set = CpuSet::new();
    if core as usize >= CpuSet::MAX_CPU {
        return Err(format!("{device}: there is no core {core}"));
    }
    set.set(core as usize);
    let threads = threads_of(device);
    if threads.is_empty() {
        return Err(format!("{device}: the kernel shows no thread napi/{device}-…"));
    }
    for &thread in &threads {
        sched_setaffinity(Some(thread), &set).map_err(|e| format!("{device}: core {core} for its receiving thread: {e}"))?;
        put_first(thread).map_err(|e| format!("{device}: its receiving thread may have to wait for others: {e}"))?;
    }
    Ok(threads)
}

/// How often threads have gone to work so far: each time they had slept before.
pub(super) fn turns(threads: &[Pid]) -> u64 {
    let status = |thread: &Pid| fs::read_to_string(format!("/proc/{}/status", thread.as_raw_nonzero())).ok();
    threads.iter().filter_map(|thread| slept(&status(thread)?)).sum()
}

/// Voluntary context switches in the text of a thread's status (proc(5)).
fn slept(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Has a thread run as soon as it has work, whatever ordinary threads do on its core.
fn put_first(thread: Pid) -> io::Result<()> {
    // SAFETY: sched_param is plain integers, for which all zeros are valid.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: reads `parameters`, which lives through the call.
    sys::check(unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), libc::SCHED_FIFO, &raw const parameters) })
        .map(drop)
}

/// Kernel threads of a device's queues, by their names.
fn threads_of(device: &str) -> Vec<Pid> {
    let prefix = format!("napi/{device}-");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let number = name.trim_end().strip_prefix(&prefix)?;
        number.bytes().all(|b| b.is_ascii_digit()).then(|| Pid::from_raw(pid)).flatten()
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_a_thread_slept_are_those_of_its_own_will() {
        let status = "Name:\tnapi/x-1\nvoluntary_ctxt_switches:\t70123\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!((slept(status), slept("Name:\tx\n"), slept("voluntary_ctxt_switches:\tmany\n")), (Some(70123), None, None));
        assert_eq!(turns(&[]), 0);
    }
}
