//! The thread of a device's NAPI: without one, received frames are worked on by whoever's core they came up on.

use std::fs;
use std::io::Write;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Gives the device's NAPI threads, and keeps them on `core`.
///
/// # Errors
/// Why its work may still be done elsewhere, in one line.
pub(super) fn settle(device: &str, core: Option<u32>) -> Result<(), String> {
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
    for thread in threads {
        sched_setaffinity(Some(thread), &set).map_err(|e| format!("{device}: core {core} for its receiving thread: {e}"))?;
    }
    Ok(())
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
