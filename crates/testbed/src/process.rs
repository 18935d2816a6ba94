//! Child processes with a time bound and no way to outlive us.
//!
//! The kernel's parent-death signal follows the *thread* that forked, and test threads come and go. So all children are
//! forked by one thread that lives as long as the process. A child heads its own process group, which is what gets killed:
//! a shell's children end with it.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::sys;

/// What a finished child printed, as text, and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit status; a child killed at its deadline shows signal 9.
    pub status: ExitStatus,
    /// Standard output, with invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, with invalid UTF-8 replaced.
    pub stderr: String,
    /// Whether the time bound ended it.
    pub timed_out: bool,
}

impl Output {
    /// True when the child ended by itself with status 0.
    pub fn success(&self) -> bool {
        self.status.success() && !self.timed_out
    }

    /// The standard output of a `quiver-tester trial` that ran, valid (0) or not (3); panics with everything it said otherwise.
    #[track_caller]
    pub fn trial(self) -> String {
        assert!(matches!(self.status.code(), Some(0 | 3)) && !self.timed_out, "a trial: {self}");
        self.stdout
    }

    /// An error with everything it said unless it was successful.
    pub fn ok_or_error(self, what: &str) -> io::Result<()> {
        if self.success() { Ok(()) } else { Err(io::Error::other(format!("{what}: {self}"))) }
    }

    /// The standard output of a successful child; panics with everything it said otherwise.
    #[track_caller]
    pub fn expect(self, what: &str) -> String {
        assert!(self.success(), "{what}: {self}");
        self.stdout
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = if self.timed_out { "killed at its deadline".to_owned() } else { self.status.to_string() };
        write!(f, "{end}\n--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}

/// Adds to `command` what every child of ours does between fork and exec: own process group, death with us.
pub(crate) fn harden(command: &mut Command) {
    let parent = std::process::id() as libc::pid_t;
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec; it makes two async-signal-safe calls and allocates nothing but, on
    // the failing path, an OS error code, which holds no heap memory.
    unsafe {
        command.pre_exec(move || {
            sys::die_with_parent(libc::SIGKILL)?;
            // We may have died before the request above was in place.
            if sys::parent_id() == parent { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
}

type SpawnRequest = (Command, mpsc::SyncSender<io::Result<Child>>);

/// Forks on the long-lived thread (see the module's text).
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<SpawnRequest>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<SpawnRequest>();
        thread::Builder::new()
            .name("testbed-spawn".into())
            .spawn(move || {
                for (mut command, answer) in requests {
                    // The asker waits, so it is there; if it panicked meanwhile nobody is left to want the child.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread to fork from");
        Mutex::new(sender)
    });
    let (answer, result) = mpsc::sync_channel(1);
    let gone = |_| io::Error::other("the spawning thread is gone");
    let program = command.get_program().to_owned();
    spawner.lock().unwrap_or_else(|e| e.into_inner()).send((command, answer)).map_err(|_| gone(mpsc::RecvError))?;
    result.recv().map_err(gone)?.map_err(|error| sys::with_context(program.display(), error))
}

/// Runs a hardened command to its end, at most `bound` long. Standard input is empty.
pub(crate) fn run(mut command: Command, bound: Duration) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guard = Guard::spawn(command)?;
    let stdout = drain(guard.child.stdout.take().map(OwnedFd::from));
    let stderr = drain(guard.child.stderr.take().map(OwnedFd::from));
    let ended = guard.wait(bound)?;
    // Either way the whole group is gone now, so nobody is left to hold the pipes open.
    let status = match ended {
        Some(status) => status,
        None => guard.kill()?,
    };
    Ok(Output { status, stdout: text(stdout), stderr: text(stderr), timed_out: ended.is_none() })
}

fn drain(pipe: Option<OwnedFd>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // A read error only shortens what a failing test shows.
            let _ = std::fs::File::from(pipe).read_to_end(&mut bytes);
        }
        bytes
    })
}

fn text(reader: thread::JoinHandle<Vec<u8>>) -> String {
    String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
}

/// A running background child; killed with its process group and reaped on drop.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
}

impl Guard {
    /// Starts a command that [`harden`] has prepared.
    pub(crate) fn spawn(command: Command) -> io::Result<Self> {
        let mut child = spawn(command)?;
        match sys::pidfd_open(child.id()) {
            Ok(pidfd) => Ok(Self { child, pidfd, status: None }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(sys::with_context("pidfd_open", error))
            }
        }
    }

    /// Process id, which stays ours (not reused) until this guard has reaped the child.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True while the child runs.
    pub fn is_running(&mut self) -> bool {
        self.wait(Duration::ZERO).is_ok_and(|status| status.is_none())
    }

    /// Waits for the end, at most `bound` long; `None` means that it still runs. What it left of its group ends with it.
    pub fn wait(&mut self, bound: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && sys::wait_readable(self.pidfd.as_fd(), bound)? {
            self.kill()?;
        }
        Ok(self.status)
    }

    /// Sends a signal to the child itself (not to its group); an error when it has ended.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        match self.wait(Duration::ZERO)? {
            Some(status) => Err(io::Error::other(format!("process {} has ended: {status}", self.pid()))),
            None => sys::kill(self.pid(), signal),
        }
    }

    /// Kills the child and its group with SIGKILL and reaps it.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Before the reaping, while the id cannot mean anybody else. A leader that has ended keeps its status.
        let _ = sys::kill_group(self.pid(), libc::SIGKILL);
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// The signal that ended the child, if one did.
    pub fn ended_by(&self) -> Option<i32> {
        self.status.and_then(|status| status.signal())
    }

    /// The child's end of its output pipe, where the command asked for one.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's end of its error pipe, where the command asked for one.
    pub fn take_stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child.stderr.take()
    }

    /// The child's end of its input pipe, where the command asked for one.
    pub fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
