//! The `quiver` daemon inside a host, as a test sees it: start, commands, log, memory, the ways to end it.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::process::{self, Guard};
use crate::scenario::say;
use crate::sys::with_context;
use crate::vppctl::Vppctl;

/// Longest wait for one command's answer.
const COMMAND_BOUND: Duration = Duration::from_secs(120);
/// Longest wait for a clean stop.
const STOP_BOUND: Duration = Duration::from_secs(120);

/// What to start, and how.
#[derive(Debug, Clone)]
pub struct RouterBuilder {
    host: Host,
    conf: String,
    binary: Option<PathBuf>,
    ready_within: Duration,
    environment: Vec<(String, String)>,
    user: Option<u32>,
    owner: Option<u32>,
    through: Vec<String>,
    arguments: Vec<String>,
    unread: bool,
}

/// The user, by number, that routers of all scenarios become unless a test says otherwise: any scenario can be run as a router that
/// has given its rights up.
pub const USER_VARIABLE: &str = "QUIVER_SCENARIO_USER";

/// A running router. Killed on drop; if the test is failing, its state is printed first. A router that ended by itself
/// before its drop fails the test.
#[derive(Debug)]
pub struct Router {
    guard: Guard,
    folder: Folder,
    quiverctl: PathBuf,
    /// The end of what it prints to, where nobody reads that.
    _unread: Option<io::PipeReader>,
    /// Whether its end was asked for.
    ended: bool,
}

/// What a router takes from the machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory without huge pages (`VmRSS`), in bytes.
    pub resident: u64,
    /// Huge pages in use (`HugetlbPages`), in bytes.
    pub huge: u64,
    /// Open file descriptors.
    pub descriptors: usize,
    /// Bytes of the resident ones that are the program's own: heap and stacks, without files, packets and counters, which are shared.
    pub own: u64,
    /// Threads.
    pub threads: usize,
    /// Processor time used so far, user and system together.
    pub cpu_time: Duration,
}

impl Usage {
    /// Memory as the project reports it: `VmRSS + HugetlbPages`, in bytes.
    pub fn memory(&self) -> u64 {
        self.resident + self.huge
    }
}

impl RouterBuilder {
    /// A certain binary in place of the one that [`Router::binary`] finds.
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// The router becomes this user (`unix { user }`), and its folder is that user's.
    pub fn user(mut self, uid: u32) -> Self {
        (self.user, self.owner) = (Some(uid), Some(uid));
        self
    }

    /// The router stays who starts it, whatever the scenario's environment says.
    pub fn no_user(mut self) -> Self {
        self.user = None;
        self
    }

    /// Starts the router by a program that ends with running the words behind its own, such as `setpriv`, as this user.
    pub fn through(mut self, words: &str, uid: u32) -> Self {
        self.through = words.split_whitespace().map(str::to_owned).collect();
        self.owner = Some(uid);
        self
    }

    /// Adds words in front of those that name the configuration.
    pub fn arguments(mut self, words: &[&str]) -> Self {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// How long the command socket may take to answer.
    pub fn ready_within(mut self, bound: Duration) -> Self {
        self.ready_within = bound;
        self
    }

    /// What it prints goes to a pipe that nobody reads; [`Router::log`] is empty then.
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Starts the router and waits until its command socket takes a connection.
    pub fn start(self) -> io::Result<Router> {
        let binary = match self.binary {
            Some(binary) => binary,
            None => Router::binary()?,
        };
        let folder = Folder::new()?;
        let conf_file = folder.path.join("startup.conf");
        let user = self.user.map(|uid| format!("user {uid}")).unwrap_or_default();
        fs::write(&conf_file, with_runtime_folder(&self.conf, &folder.path, &user))?;
        if let Some(owner) = self.owner {
            std::os::unix::fs::chown(&folder.path, Some(owner), Some(owner))?;
        }
        let binary_name = binary.to_string_lossy().into_owned();
        let words: Vec<String> = self.through.into_iter().chain([binary_name]).collect();
        let mut command = self.host.command(&words[0]);
        command.args(&words[1..]).args(self.arguments).arg("-c").arg(&conf_file).envs(self.environment);
        command.stdin(Stdio::null());
        let unread = if self.unread {
            let (reader, writer) = io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(reader)
        } else {
            let console = File::create(folder.path.join("console.log"))?;
            command.stdout(console.try_clone()?).stderr(console);
            None
        };
        let guard = self.host.spawn(command)?;
        let mut router = Router { guard, folder, _unread: unread, quiverctl: binary.with_file_name("quiverctl"), ended: false };
        let ready = router.wait_until_ready(self.ready_within);
        if ready.is_err() {
            router.ended = true;
        }
        ready.map(|()| router)
    }
}

impl Router {
    /// Starts the router in `host` from the text of a `startup.conf` (see [`builder`](Self::builder)).
    pub fn start(host: &Host, conf: &str) -> io::Result<Self> {
        Self::builder(host, conf).start()
    }

    /// Prepares a start. A runtime folder and the command socket are added to the `unix` section; `@dir@` in the text
    /// becomes that folder.
    pub fn builder(host: &Host, conf: &str) -> RouterBuilder {
        let user = std::env::var(USER_VARIABLE).ok().and_then(|text| text.parse().ok());
        RouterBuilder {
            user,
            owner: user,
            through: Vec::new(),
            arguments: Vec::new(),
            host: host.clone(),
            conf: conf.to_owned(),
            binary: None,
            ready_within: Duration::from_secs(120),
            environment: Vec::new(),
            unread: false,
        }
    }

    /// The binary that tests start: `$QUIVER_BIN`, else the one beside the running program, else the newer of
    /// `target/release/quiver` and `target/quick/quiver`.
    pub fn binary() -> io::Result<PathBuf> {
        if let Some(path) = std::env::var_os("QUIVER_BIN") {
            return Ok(path.into());
        }
        let beside = std::env::current_exe()?.with_file_name("quiver");
        if beside.is_file() {
            return Ok(beside);
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let built = ["release", "quick"].map(|profile| target.join(profile).join("quiver"));
        let age = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
        let newest = built.into_iter().filter(|path| age(path).is_some()).max_by_key(age);
        newest.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no quiver binary: `make build` makes one, QUIVER_BIN names one")
        })
    }

    fn wait_until_ready(&mut self, bound: Duration) -> io::Result<()> {
        let deadline = Instant::now() + bound;
        let socket = self.socket();
        loop {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.guard.wait(Duration::from_millis(10))? {
                return Err(io::Error::other(format!("quiver ended at its start: {status}\n{}", self.log())));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("quiver is not ready after {bound:?}\n{}", self.log()),
                ));
            }
        }
    }

    /// Path of the command socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path.join("cli.sock")
    }

    /// The runtime folder, removed with the router.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Where commands find and put a file of a plain name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join("files").join(name)
    }

    /// Runs one command through `quiverctl`: its answer, or the line that says what was wrong.
    pub fn cli(&self, line: &str) -> Result<String, String> {
        self.control(&[line])
    }

    /// The answer to a command as JSON text.
    pub fn cli_json(&self, line: &str) -> Result<String, String> {
        self.control(&["--json", line])
    }

    fn control(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.quiverctl);
        command.arg("-s").arg(self.socket()).args(words);
        process::harden(&mut command);
        let output = process::run(command, COMMAND_BOUND).map_err(|error| error.to_string())?;
        match output.success() {
            true => Ok(output.stdout),
            false if output.timed_out => Err(format!("no answer within {COMMAND_BOUND:?}: {output}")),
            // What a command that answers "no" says, such as a ping to which nothing came back.
            false if output.stderr.is_empty() => Err(output.stdout),
            false => Err(output.stderr.trim_end().to_owned()),
        }
    }

    /// Runs commands line by line (`#` comments, `\` joins lines) and stops at the first that fails.
    pub fn script(&self, text: &str) -> Result<(), String> {
        for line in script_lines(text) {
            self.cli(&line).map_err(|error| format!("`{line}`: {error}"))?;
        }
        Ok(())
    }

    /// Runs one command as `vppctl` would. The protocol carries only text, so a failure is text as well.
    pub fn vppctl(&self, line: &str) -> io::Result<String> {
        Vppctl::connect(&self.socket())?.command(line, COMMAND_BOUND)
    }

    /// Everything the router printed so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder.path.join("console.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        self.guard.is_running()
    }

    /// Sends a signal, such as SIGHUP, SIGSTOP or SIGCONT.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        self.guard.signal(signal)
    }

    /// Memory, descriptors, threads and processor time at this moment.
    pub fn usage(&self) -> io::Result<Usage> {
        let process = PathBuf::from(format!("/proc/{}", self.pid()));
        let status = fs::read_to_string(process.join("status"))?;
        let stat = fs::read_to_string(process.join("stat"))?;
        let number = |key: &str| {
            status_number(&status, key).ok_or_else(|| io::Error::other(format!("no {key} in /proc/{}/status", self.pid())))
        };
        Ok(Usage {
            resident: number("VmRSS:")? * 1024,
            own: number("RssAnon:")? * 1024,
            huge: status_number(&status, "HugetlbPages:").unwrap_or(0) * 1024,
            descriptors: fs::read_dir(process.join("fd"))?.count(),
            threads: number("Threads:")? as usize,
            cpu_time: cpu_time(&stat).ok_or_else(|| io::Error::other("an odd /proc/PID/stat"))?,
        })
    }

    /// Starts another process in `host` that takes over from this one, and is the router from then on. An error, with what it printed, where it
    /// does not take over; then the router is the process that it was.
    pub fn take_over(&mut self, host: &Host, binary: Option<&Path>) -> io::Result<()> {
        let binary = binary.map_or_else(Self::binary, |path| Ok(path.to_owned()))?;
        let said = self.folder.path.join("successor.log");
        let mut command = host.command(&binary.to_string_lossy());
        // As the program starts itself in the background: it says on its standard output that it is ready.
        command.args(["--detached", "--take-over", "-c"]).arg(self.folder.path.join("startup.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&said)?);
        let mut guard = host.spawn(command)?;
        let mut ready = Vec::new();
        if let Some(mut stdout) = guard.take_stdout() {
            io::Read::read_to_end(&mut stdout, &mut ready)?;
        }
        let said = || String::from_utf8_lossy(&fs::read(&said).unwrap_or_default()).into_owned();
        if ready != b"ready\n" {
            let status = guard.wait(STOP_BOUND)?;
            return Err(io::Error::other(format!("{status:?}: {}", said())));
        }
        match self.guard.wait(STOP_BOUND)? {
            Some(status) if status.success() => {}
            other => return Err(io::Error::other(format!("the router before: {other:?}\n{}\n{}", self.log(), said()))),
        }
        self.guard = guard;
        Ok(())
    }

    /// Kills the process at once, as a crash would.
    pub fn kill9(&mut self) -> io::Result<()> {
        self.ended = true;
        self.guard.kill().map(drop)
    }

    /// Asks for a clean stop (SIGTERM) and waits; anything but exit status 0 in time is an error with the log.
    pub fn stop(mut self) -> io::Result<()> {
        self.guard.signal(libc::SIGTERM).map_err(|e| with_context(self.log(), e))?;
        self.ended = true;
        match self.guard.wait(STOP_BOUND)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("quiver did not stop cleanly: {status}\n{}", self.log()))),
            None => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("quiver still runs {STOP_BOUND:?} after SIGTERM\n{}", self.log()),
            )),
        }
    }

    /// What helps to understand a failure: interfaces, drops, nodes, buffers, log.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for line in ["show interface", "show errors", "show runtime", "show buffers", "show trace"] {
            let answer = self.vppctl(line).unwrap_or_else(|error| format!("({error})\n"));
            text.push_str(&format!("--- {line}\n{answer}"));
        }
        text.push_str(&format!("--- log\n{}", self.log()));
        text
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let running = self.guard.is_running();
        if thread::panicking() {
            let state = if running { "is running" } else { "has ended by itself" };
            say(&format!("the router {state}\n{}", self.dump()));
        } else if !running {
            panic!("quiver ended by itself: {:?}\n{}", self.guard.wait(Duration::ZERO), self.log());
        }
    }
}

/// A folder of our own, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // Short: a socket's path has 107 bytes.
            let path = std::env::temp_dir().join(format!("quiver-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left by a killed process that had our id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(with_context(path.display(), error)),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Puts the keys that the test bed needs into the `unix` section, or makes one.
fn with_runtime_folder(conf: &str, folder: &Path, user: &str) -> String {
    let folder = folder.display();
    let keys = format!("nodaemon runtime-dir {folder} cli-listen {folder}/cli.sock {user}").trim_end().to_owned();
    let text = conf.replace("@dir@", &folder.to_string());
    let section = text.split_once('{').filter(|(before, _)| before.split_whitespace().next_back() == Some("unix"));
    let later = || {
        text.match_indices("unix").find_map(|(at, word)| {
            let rest = text[at + word.len()..].trim_start();
            rest.starts_with('{').then(|| text.len() - rest.len() + 1)
        })
    };
    match section.map(|(before, _)| before.len() + 1).or_else(later) {
        Some(at) => format!("{} {keys} {}", &text[..at], &text[at..]),
        None => format!("unix {{ {keys} }}\n{text}"),
    }
}

/// The commands of a script: comments and blank lines left out, continued lines joined.
fn script_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in text.lines() {
        let line = line.trim();
        if open.is_empty() && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        match line.strip_suffix('\\') {
            Some(part) => open.push_str(&format!("{} ", part.trim_end())),
            None => lines.push(std::mem::take(&mut open) + line),
        }
    }
    if !open.is_empty() {
        lines.push(open.trim_end().to_owned());
    }
    lines
}

fn status_number(status: &str, key: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `/proc/PID/stat`, in clock ticks. The name in field 2 may hold blanks and brackets.
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11).map(str::parse::<u64>);
    let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
    // USER_HZ, what /proc counts in, is 100 on every Linux architecture in use.
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_folder_goes_into_the_unix_section() {
        let conf = |text| with_runtime_folder(text, Path::new("/d"), "");
        let keys = "nodaemon runtime-dir /d cli-listen /d/cli.sock";
        assert_eq!(conf("cpu { workers 1 }"), format!("unix {{ {keys} }}\ncpu {{ workers 1 }}"));
        assert_eq!(conf("unix { log @dir@/log }"), format!("unix {{ {keys}  log /d/log }}"));
        assert_eq!(conf("cpu { }\nunix\n{ log x }"), format!("cpu {{ }}\nunix\n{{ {keys}  log x }}"));
        assert_eq!(conf("plugins { path unix }"), format!("unix {{ {keys} }}\nplugins {{ path unix }}"));
    }

    #[test]
    fn script_lines_join_and_skip() {
        let text = "# comment\n\nset interface \\\n  state x \\\n up\nshow version\nlast \\\n";
        assert_eq!(script_lines(text), ["set interface state x up", "show version", "last"]);
    }

    #[test]
    fn process_files_are_read() {
        assert_eq!(status_number("Name:\tx\nVmRSS:\t   12 kB\nThreads:\t3\n", "VmRSS:"), Some(12));
        assert_eq!(status_number("Name:\tx\n", "VmRSS:"), None);
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
    }
}
