//! The process that listens on a socket already: a router that serves, or one that is being taken apart.
//!
//! A killed process keeps its sockets until the kernel has given back its memory, which takes seconds for gigabytes. Whoever
//! starts it again at once waits for that.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Longest wait for a process that ends, s.
const PATIENCE: i64 = 30;
/// `PF_EXITING` among the flags of `/proc/PID/stat` (linux/sched.h).
const EXITING: u64 = 0x4;
/// Bit of SIGKILL in the masks of `/proc/PID/status`.
const KILL: u64 = 1 << 8;

/// Whether the process at the other end of a connected socket is ending, and has ended now.
pub(super) fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let Ok(peer) = socket_peercred(socket) else { return false };
    // The descriptor first: a number that is used again meanwhile then belongs to a process that it does not name.
    let Ok(process) = pidfd_open(peer.pid, PidfdFlags::empty()) else { return true };
    if !is_ending(peer.pid) {
        return false;
    }
    let mut ended = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    matches!(poll(&mut ended, Some(&Timespec { tv_sec: PATIENCE, tv_nsec: 0 })), Ok(1))
}

fn is_ending(pid: Pid) -> bool {
    let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).unwrap_or_default();
    let (stat, status) = (file("stat"), file("status"));
    state(&stat, &status)
}

/// What `stat` and `status` say. SIGKILL stays pending for the group until its end; a crash shows in the flags.
fn state(stat: &str, status: &str) -> bool {
    // The name in parentheses may hold anything; the state is field 3, the flags are field 9 (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let zombie = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or_default();
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let pending = value("ShdPnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or_default();
    zombie || flags & EXITING != 0 || pending & KILL != 0 || value("CoreDumping:") == Some("1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_runs_is_not_ending() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(!has_ended(ours.as_fd()));
    }

    #[test]
    fn a_killed_process_is_ending_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_ending(pid));
        child.kill().unwrap();
        assert!(is_ending(pid));
        child.wait().unwrap();
    }

    #[test]
    fn each_sign_of_an_end_is_seen() {
        let stat = |state: &str, flags: u64| format!("1 (a ) b) {state} 1 1 1 0 -1 {flags} 0 0");
        assert!(!state(&stat("S", 0x400), "ShdPnd:\t0000000000000000\nCoreDumping:\t0\n"));
        assert!(state(&stat("Z", 0), "") && state(&stat("S", 0x404), ""));
        assert!(state(&stat("S", 0), "ShdPnd:\t0000000000000100\n") && state(&stat("S", 0), "CoreDumping:\t1\n"));
        assert!(!state("", ""));
    }
}
