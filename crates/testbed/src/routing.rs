//! Routing daemons of Debian in a host, each by hand: BIRD, and FRR's, with files of their own in one folder.
//!
//! Debian starts them as services; here nothing runs but what a test starts, in the host's network namespace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::process::Guard;
use crate::router::Folder;
use crate::sys::with_context;

/// Where Debian has FRR's daemons.
const FRR_FOLDER: &str = "/usr/lib/frr";
/// Where zebra takes clients.
const SOCKET: &str = "zserv.api";
/// After which `vtysh` or a check of a configuration hangs.
const BOUND: Duration = Duration::from_secs(120);

/// Starts BIRD in a host; its files are `name` with endings in `folder`, where its command socket is `name.ctl`.
///
/// # Errors
/// It refuses the configuration, or the operating system's.
pub fn bird(host: &Host, folder: &Path, name: &str, configuration: &str) -> io::Result<Guard> {
    bird_with(host, folder, name, configuration, "")
}

/// The same with further words of its command line, such as `-R`.
///
/// # Errors
/// As [`bird`].
pub fn bird_with(host: &Host, folder: &Path, name: &str, configuration: &str, words: &str) -> io::Result<Guard> {
    let at = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
    fs::create_dir_all(folder)?;
    fs::write(at("conf"), configuration)?;
    host.run(&format!("bird -p -c {}", at("conf")), BOUND)?.ok_or_error("bird -p")?;
    host.background(&format!("bird -f {words} -c {} -s {} -P {}", at("conf"), at("ctl"), at("pid")))
}

/// FRR in a host: zebra and the daemons that it serves.
#[derive(Debug)]
pub struct Frr {
    host: Host,
    daemons: BTreeMap<String, Guard>,
    folder: Folder,
}

impl Frr {
    /// What a scenario with FRR needs.
    pub const PROGRAM: &str = "vtysh";

    /// Nothing runs yet.
    ///
    /// # Errors
    /// FRR is not installed, or the operating system's.
    pub fn new(host: &Host) -> io::Result<Self> {
        let folder = Folder::new()?;
        // The daemons become this user.
        let (user, group) = (number("/etc/passwd", "frr")?, number("/etc/group", "frr")?);
        chown(&folder.path, Some(user), Some(group))?;
        Ok(Self { host: host.clone(), daemons: BTreeMap::new(), folder })
    }

    /// Starts a daemon (`zebra` first) with the text of its configuration and further words of its command line. Zebra takes clients
    /// when this ends: a bgpd that finds its neighbors before it knows of interfaces refuses their link-local next hops.
    ///
    /// # Errors
    /// The operating system's.
    pub fn start(&mut self, daemon: &str, configuration: &str, words: &str) -> io::Result<()> {
        let at = |name: String| self.folder.path.join(name);
        let file = at(format!("{daemon}.conf"));
        fs::write(&file, configuration)?;
        let line = format!(
            "{FRR_FOLDER}/{daemon} -f {} -i {} -z {} --vty_socket {} -P 0 --log file:{} {words}",
            file.display(),
            at(format!("{daemon}.pid")).display(),
            self.file(SOCKET).display(),
            self.folder.path.display(),
            at(format!("{daemon}.log")).display(),
        );
        let socket = self.file(SOCKET);
        if daemon == "zebra" {
            // One that was killed leaves it.
            let _ = fs::remove_file(&socket);
        }
        let guard = self.host.background(&line)?;
        self.daemons.insert(daemon.to_owned(), guard);
        let end = Instant::now() + BOUND;
        while !self.is_listening(&socket)? {
            if Instant::now() > end {
                return Err(io::Error::other("zebra takes no clients"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Whether somebody listens on a socket: its file is there a moment before.
    fn is_listening(&self, socket: &Path) -> io::Result<bool> {
        let sockets = self.host.enter(|| fs::read_to_string("/proc/thread-self/net/unix"))?;
        // Number, references, protocol, flags (here: it takes connections), type, state, inode, path.
        let is_it = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(3) == Some(&"00010000") && fields.get(7).is_some_and(|path| Path::new(path) == socket)
        };
        Ok(sockets.lines().any(is_it))
    }

    /// Kills a daemon as a crash would.
    ///
    /// # Errors
    /// It does not run, or the operating system's.
    pub fn kill(&mut self, daemon: &str) -> io::Result<()> {
        let mut guard = self.daemons.remove(daemon).ok_or_else(|| io::Error::other(format!("{daemon} does not run")))?;
        guard.kill().map(drop)
    }

    /// What a daemon says of a command (`show …`).
    ///
    /// # Errors
    /// The operating system's.
    pub fn show(&self, daemon: &str, command: &str) -> io::Result<String> {
        let folder = self.folder.path.display().to_string();
        Ok(self.host.run_args(&["vtysh", "--vty_socket", &folder, "-d", daemon, "-c", command], BOUND)?.stdout)
    }

    /// What the daemons have written to their logs.
    pub fn logs(&self) -> String {
        let read = |daemon: &String| fs::read_to_string(self.file(&format!("{daemon}.log"))).unwrap_or_default();
        self.daemons.keys().map(|daemon| format!("--- {daemon}\n{}", read(daemon))).collect()
    }

    /// A file in the daemons' folder, in which they may write.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        if std::thread::panicking() {
            crate::scenario::say(&self.logs());
        }
    }
}

/// The number of a name in a file of the form of `/etc/passwd`.
fn number(file: &str, name: &str) -> io::Result<u32> {
    let text = fs::read_to_string(file).map_err(|error| with_context(file, error))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split(':').nth(1)?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no {name} in {file}: is FRR installed?")))
}
