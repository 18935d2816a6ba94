//! What every scenario test begins with: root, the tools it needs, and its turn among the scenarios of this machine.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::bpf::{self, Assembler};
use crate::sys;

/// Set by the gate: a scenario that cannot run fails, unless the kernel is what lacks something.
pub const STRICT_VARIABLE: &str = "QUIVER_CI";

/// Held while a scenario runs. Most run side by side, each in namespaces of its own; one that is [`alone`](Self::alone) waits
/// for the others of this machine, in whatever process, and they wait for it.
#[derive(Debug)]
pub struct Scenario {
    _lock: File,
}

impl Scenario {
    /// Among the needs of a scenario: the right to load BPF programs, for [`Host::speak_vlan`](crate::Host::speak_vlan).
    /// Root in a user namespace has it not.
    pub const BPF: &str = "bpf(2)";

    /// Begins a scenario with these needs: programs by name, [`BPF`](Self::BPF). `None`: it cannot run here, and why has been printed.
    ///
    /// ```no_run
    /// # use quiver_testbed::Scenario;
    /// let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    /// ```
    #[track_caller]
    pub fn begin(needs: &[&str]) -> Option<Self> {
        is_possible(needs).then(|| Self { _lock: lock(File::lock_shared).expect("the lock between scenarios") })
    }

    /// As [`begin`](Self::begin), for one that measures time, needs a core for itself, or looks at what the whole machine has:
    /// no other scenario runs beside it.
    #[track_caller]
    pub fn alone(needs: &[&str]) -> Option<Self> {
        is_possible(needs).then(|| Self { _lock: lock(File::lock).expect("the lock between scenarios") })
    }
}

#[track_caller]
fn is_possible(needs: &[&str]) -> bool {
    if let Err(error) = can_make_namespaces() {
        skip(&format!("needs root to make network namespaces ({error})"));
        return false;
    }
    for need in ["ip"].iter().chain(needs) {
        if *need == Scenario::BPF {
            if let Err(error) = bpf::load(bpf::BPF_PROG_TYPE_SCHED_CLS, &Assembler::default().finish(0, 0)) {
                skip(&format!("needs the right to load BPF programs ({error})"));
                return false;
            }
        } else if !is_installed(need) {
            skip(&format!("needs the program {need}"));
            return false;
        }
    }
    true
}

/// Says visibly that a scenario is left out; under the gate (`QUIVER_CI=1`) that is a failure.
#[track_caller]
pub fn skip(reason: &str) {
    say(&format!("SKIP: {reason}"));
    assert!(!is_strict(), "SKIP: {reason} ({STRICT_VARIABLE} is set, so this is a failure)");
}

/// Says visibly that a scenario is left out because this kernel lacks something; never a failure.
pub fn skip_for_kernel(reason: &str) {
    say(&format!("SKIP: this kernel {reason}"));
}

/// True in the gate's second pass (`QUIVER_SHORT=1`): a scenario with several variants runs its first, and a measured
/// duration may be a second.
pub fn is_short_pass() -> bool {
    std::env::var_os("QUIVER_SHORT").is_some_and(|value| value == "1")
}

/// True where the router was built with a sanitizer (`QUIVER_SANITIZER`, set by `scripts/sanitize`), whose memory is no measure.
pub fn is_sanitized() -> bool {
    std::env::var_os("QUIVER_SANITIZER").is_some()
}

fn is_strict() -> bool {
    std::env::var_os(STRICT_VARIABLE).is_some_and(|value| value == "1")
}

/// Past the test runner's capture, which hides what a passing test prints.
pub(crate) fn say(text: &str) {
    let thread = std::thread::current();
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr(), "{}: {text}", thread.name().unwrap_or("test"));
}

/// Tried rather than guessed from the user id: root in a container may not, a plain user in a user namespace may.
fn can_make_namespaces() -> io::Result<()> {
    let attempt = std::thread::spawn(|| sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS));
    attempt.join().unwrap_or_else(|_| Err(io::Error::other("panicked")))
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps some network tools where a plain user's PATH does not look; children would not find them either.
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

fn lock(take: fn(&File) -> io::Result<()>) -> io::Result<File> {
    let open = |name: &str| {
        let path = std::env::temp_dir().join(name);
        open_lock(&path).map_err(|e| sys::with_context(path.display(), e))
    };
    let (turn, file) = (open("quiver-scenario.turn")?, open("quiver-scenario.lock")?);
    // Whoever waits for the lock keeps its turn: one that is to be alone would wait as long as others came.
    turn.lock()?;
    take(&file)?;
    Ok(file)
}

/// A lock file that another user made can be locked though not written.
fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path).or_else(|_| File::open(path))
}
