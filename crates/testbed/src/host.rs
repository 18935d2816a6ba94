//! A host: an anonymous network namespace, its own view of `/sys`, and the commands that run in it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{self, Guard, Output};
use crate::sys::{self, with_context};

/// How long a set-up step (`ip`, mounts) may take before something is wrong.
pub(crate) const SETUP_BOUND: Duration = Duration::from_secs(120);

/// A test host with a network stack of its own. Cloning gives another handle to the same host; the kernel frees the
/// namespace, and every link in it, with the last handle and the last process inside.
#[derive(Debug, Clone)]
pub struct Host {
    inner: Arc<Namespaces>,
}

#[derive(Debug)]
struct Namespaces {
    name: String,
    net: File,
    mount: File,
}

impl Host {
    /// Makes a host. `name` is only for messages. Loopback is up; IPv6 duplicate address detection, autoconfiguration and
    /// router solicitation are off and ICMP is not rate-limited, so that what a test sees on a wire is what it asked for.
    pub fn new(name: &str) -> io::Result<Self> {
        let made = thread::scope(|scope| scope.spawn(make_namespaces).join());
        let (net, mount) = made
            .map_err(|_| io::Error::other("the namespace thread panicked"))?
            .map_err(|e| with_context(format!("host {name}"), e))?;
        let host = Self { inner: Arc::new(Namespaces { name: name.to_owned(), net, mount }) };
        host.ip("link set lo up")?;
        for scope in ["all", "default"] {
            host.sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"), "0")?;
        }
        host.sysctl("net.ipv4.icmp_ratelimit", "0")?;
        if host.has_sysctl("net.ipv6.conf.default.accept_dad") {
            for (key, value) in [("accept_dad", "0"), ("autoconf", "0"), ("accept_ra", "0"), ("router_solicitations", "0")] {
                host.sysctl(&format!("net.ipv6.conf.default.{key}"), value)?;
            }
            host.sysctl("net.ipv6.icmp.ratelimit", "0")?;
        }
        Ok(host)
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The namespace as a path that `ip … netns PATH` takes, valid while this process holds the host.
    pub(crate) fn net_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.inner.net.as_raw_fd())
    }

    /// A command that will run in this host: network namespace, matching `/sys`, own process group, killed when the thread
    /// that starts it ends. [`run`](Self::run) and [`background`](Self::background) start it from a thread that stays.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        process::harden(&mut command);
        let namespaces = Arc::clone(&self.inner);
        // SAFETY: the closure runs between fork and exec; it makes only async-signal-safe calls on its stack and on
        // descriptors that `namespaces` keeps open, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let mut buffer = [0u8; libc::PATH_MAX as usize];
                let directory = sys::current_dir_into(&mut buffer)?;
                sys::setns(namespaces.net.as_raw_fd(), libc::CLONE_NEWNET)?;
                // Entering a mount namespace moves the process to its root, so the directory is taken up again.
                sys::setns(namespaces.mount.as_raw_fd(), libc::CLONE_NEWNS)?;
                sys::change_dir(directory)
            });
        }
        command
    }

    /// Runs a command line, split at blanks (no quoting), for at most `bound`.
    pub fn run(&self, line: &str, bound: Duration) -> io::Result<Output> {
        self.run_args(&line.split_whitespace().collect::<Vec<_>>(), bound)
    }

    /// Runs a program with exactly these arguments for at most `bound`.
    pub fn run_args(&self, words: &[&str], bound: Duration) -> io::Result<Output> {
        process::run(self.words(words)?, bound).map_err(|e| with_context(self.name(), e))
    }

    /// Runs a shell script for at most `bound`.
    pub fn sh(&self, script: &str, bound: Duration) -> io::Result<Output> {
        self.run_args(&["sh", "-c", script], bound)
    }

    /// Starts a command line, split at blanks, that ends with its guard. Its output is thrown away.
    pub fn background(&self, line: &str) -> io::Result<Guard> {
        let mut command = self.words(&line.split_whitespace().collect::<Vec<_>>())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.spawn(command)
    }

    /// Starts a command from [`command`](Self::command), with whatever pipes the caller set up, that ends with its guard.
    pub fn spawn(&self, command: Command) -> io::Result<Guard> {
        Guard::spawn(command).map_err(|e| with_context(self.name(), e))
    }

    fn words(&self, words: &[&str]) -> io::Result<Command> {
        let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("an empty command"))?;
        let mut command = self.command(program);
        command.args(arguments);
        Ok(command)
    }

    /// Runs iperf3 with these arguments, to a server of its own in `server`: one that has just served another run may still be busy
    /// with its end.
    pub fn iperf3(&self, server: &Self, arguments: &str, bound: Duration) -> io::Result<Output> {
        let _server = server.background("iperf3 --server")?;
        if !server.wait_for_listener(5201, bound)? {
            return Err(io::Error::other("iperf3's server does not listen"));
        }
        self.run(&format!("iperf3 {arguments}"), bound)
    }

    /// Runs `ip` commands (one a line, without the word `ip`) in one batch; the first that fails is the error.
    pub fn ip(&self, lines: &str) -> io::Result<()> {
        let mut command = self.command("sh");
        // The script travels as an argument, so no pipe has to be fed while we wait.
        command.args(["-c", "printf '%s\\n' \"$1\" | ip -batch -", "sh", lines]);
        let output = process::run(command, SETUP_BOUND)?;
        // `ip -batch` of some releases ends with 0 after an error in the last line, but never without words.
        if output.success() && output.stderr.is_empty() {
            return Ok(());
        }
        Err(io::Error::other(format!("host {}: ip: {}in: {lines}", self.name(), output.stderr)))
    }

    /// Runs `work` on a throw-away thread inside this host's network namespace. Descriptors made there stay in it.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let net = &self.inner.net;
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                sys::setns(net.as_raw_fd(), libc::CLONE_NEWNET)?;
                work()
            });
            match worker.join() {
                Ok(result) => result.map_err(|e| with_context(self.name(), e)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Writes a kernel setting such as `net.ipv4.ip_forward`. An interface name with a dot takes a `/` in its place.
    pub fn sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        let path = sysctl_path(key);
        self.enter(|| std::fs::write(&path, value).map_err(|e| with_context(format!("{path} = {value}"), e)))
    }

    /// Reads a kernel setting.
    pub fn sysctl_value(&self, key: &str) -> io::Result<String> {
        let path = sysctl_path(key);
        self.enter(|| std::fs::read_to_string(&path).map(|v| v.trim().to_owned()).map_err(|e| with_context(&path, e)))
    }

    pub(crate) fn has_sysctl(&self, key: &str) -> bool {
        self.sysctl_value(key).is_ok()
    }

    /// Waits until some program in this host listens on a TCP port, either family; false when `bound` passed first.
    pub fn wait_for_listener(&self, port: u16, bound: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + bound;
        loop {
            let listens = self.enter(|| {
                let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")));
                // A kernel without IPv6 has no tcp6.
                Ok(tables.into_iter().flatten().any(|table| has_listener(&table, port)))
            })?;
            if listens || Instant::now() >= deadline {
                return Ok(listens);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// True when `ping` to `address` is answered at least once in `count` tries, 200 ms apart, and within a second of the last:
    /// for what is tried again, and for answers that must not come.
    pub fn pings(&self, address: &str, count: u32) -> io::Result<bool> {
        self.ping(address, count, 1)
    }

    /// True when `ping` to `address` is answered at least once in `count` tries, 200 ms apart, however late: for answers that
    /// must come, also on a machine that is busy.
    pub fn reaches(&self, address: &str, count: u32) -> io::Result<bool> {
        self.ping(address, count, 60)
    }

    fn ping(&self, address: &str, count: u32, patience: u64) -> io::Result<bool> {
        let line = format!("ping -n -q -i 0.2 -W {patience} -c {count} {address}");
        let output = self.run(&line, Duration::from_secs(60 + patience + u64::from(count)))?;
        Ok(output.status.success())
    }
}

/// Dots separate, as in `sysctl`; a slash stands for a dot within a name.
fn sysctl_path(key: &str) -> String {
    let parts: String = key
        .chars()
        .map(|c| {
            if c == '.' {
                '/'
            } else if c == '/' {
                '.'
            } else {
                c
            }
        })
        .collect();
    format!("/proc/sys/{parts}")
}

/// Looks for a socket in state LISTEN (0A) in a table of `/proc/net/tcp`'s form.
fn has_listener(table: &str, port: u16) -> bool {
    let local_end = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&local_end)) && state == Some("0A")
    })
}

/// Runs on a thread that ends afterwards: only the descriptors keep what it made.
fn make_namespaces() -> io::Result<(File, File)> {
    sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS).map_err(|e| with_context("unshare (needs root)", e))?;
    // Nothing mounted here may show outside.
    sys::mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE).map_err(|e| with_context("making mounts private", e))?;
    // A sysfs instance belongs to the network namespace of its mounter: /sys/class/net of this host.
    sys::mount(Some(c"sysfs"), c"/sys", 0).map_err(|e| with_context("mounting /sys", e))?;
    Ok((File::open("/proc/thread-self/ns/net")?, File::open("/proc/thread-self/ns/mnt")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_keys_become_paths() {
        assert_eq!(sysctl_path("net.ipv4.ip_forward"), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(sysctl_path("net.ipv4.conf.eth0/10.rp_filter"), "/proc/sys/net/ipv4/conf/eth0.10/rp_filter");
    }

    #[test]
    fn listeners_are_told_from_connections() {
        let table = "  sl  local_address rem_address   st\n\
             0: 00000000:1451 00000000:0000 0A 0\n\
             1: 0100007F:0016 0100007F:C350 01 0\n";
        assert!(has_listener(table, 0x1451));
        assert!(!has_listener(table, 0x16) && !has_listener(table, 0x51));
    }
}
