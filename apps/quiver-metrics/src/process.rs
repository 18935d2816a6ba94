//! What the kernel says of the router's process.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

/// What the router calls its main thread.
pub const MAIN: &str = "quiver_main";

/// Memory and processor time of a process.
#[derive(Debug, Default, PartialEq)]
pub struct Usage {
    /// Memory that it has now, bytes.
    pub resident_bytes: Option<u64>,
    /// Threads by name, with the processor time that each has used, seconds. Threads of the same name count together.
    pub threads: Vec<(String, f64)>,
}

impl Usage {
    /// Of this process. What cannot be seen from here is left out.
    pub fn of(pid: Pid) -> Self {
        let folder = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let mut usage = Self { resident_bytes: resident.map(|kilobytes| kilobytes << 10), threads: Vec::new() };
        for task in fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
            let read = |name| fs::read_to_string(task.path().join(name)).ok();
            let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { continue };
            let Some(used) = times.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<u64>().ok()) else {
                continue;
            };
            let seconds = used as f64 / 1e9;
            // The first thread has the name of the program.
            let is_main = task.file_name().to_str() == folder.file_name().and_then(|name| name.to_str());
            let name = if is_main { MAIN } else { name.trim() };
            match usage.threads.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += seconds,
                None => usage.threads.push((name.to_owned(), seconds)),
            }
        }
        usage.threads.sort_by(|one, other| one.0.cmp(&other.0));
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_with_its_threads() {
        let usage = Usage::of(rustix::process::getpid());
        assert!(usage.resident_bytes.unwrap() > 100_000);
        assert!(usage.threads.iter().any(|(name, seconds)| name == MAIN && *seconds > 0.0), "{usage:?}");
    }

    #[test]
    fn of_one_that_is_not_there_nothing_is_said() {
        assert_eq!(Usage::of(Pid::from_raw(i32::MAX).unwrap()), Usage::default());
    }
}
