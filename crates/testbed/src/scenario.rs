//! What every scenario test begins with: one at a time on this machine, root, the tools it needs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::bpf::{self, Assembler};
use crate::sys;

/// Set by the gate: a scenario that cannot run fails, unless the kernel is what lacks something.
pub const STRICT_VARIABLE: &str = "QUIVER_CI";

/// Held while a scenario runs; the next one, in whatever process, waits for its drop.
#[derive(Debug)]
pub struct Scenario {
    _lock: File,
}

impl Scenario {
    /// Among the needs of a scenario: the right to load BPF programs, for [`Host::speak_vlan`](crate::Host::speak_vlan).
    /// Root in a user namespace has it not.
    pub const BPF: &str = "bpf(2)";

    /// Takes the machine for a scenario with these needs: programs by name, [`BPF`](Self::BPF). `None`: it cannot run here, and why has been printed.
    ///
    /// ```no_run
    /// # use quiver_testbed::Scenario;
    /// let Some(_scenario) = Scenario::begin(&["ping"]) else { return };
    /// ```
    #[track_caller]
    pub fn begin(needs: &[&str]) -> Option<Self> {
        if let Err(error) = can_make_namespaces() {
            skip(&format!("needs root to make network namespaces ({error})"));
            return None;
        }
        for need in ["ip"].iter().chain(needs) {
            if *need == Self::BPF {
                if let Err(error) = bpf::load(&Assembler::default().finish(0, 0)) {
                    skip(&format!("needs the right to load BPF programs ({error})"));
                    return None;
                }
            } else if !is_installed(need) {
                skip(&format!("needs the program {need}"));
                return None;
            }
        }
        Some(Self { _lock: lock().expect("the lock between scenarios") })
    }
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

fn lock() -> io::Result<File> {
    let path = std::env::temp_dir().join("quiver-scenario.lock");
    let file = open_lock(&path).map_err(|e| sys::with_context(path.display(), e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            say("waiting for another scenario to end");
            file.lock()?;
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    Ok(file)
}

/// A lock file that another user made can be locked though not written.
fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path).or_else(|_| File::open(path))
}
