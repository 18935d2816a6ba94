//! Going into the background.
//!
//! The program starts itself once more, in a session of its own, and waits until that one is ready. So whoever starts a
//! router gets its errors and its exit code, and a router that is said to have started has.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// Added before the words of the one in the background.
pub const MARK: &str = "--detached";
const READY: &[u8] = b"ready\n";

/// Starts the program in the background, and says how that went when it is ready or has failed.
///
/// # Errors
/// The kernel's.
pub fn detach(words: &[OsString]) -> io::Result<ExitCode> {
    let name = std::env::args_os().next().unwrap_or_else(|| "quiver".into());
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(name).arg(MARK).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut said = Vec::new();
    if let Some(output) = child.stdout.as_mut() {
        output.take(READY.len() as u64).read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code != 0).unwrap_or(1)))
}

/// The one in the background leaves the session of who started it.
pub fn leave_session() {
    // Fails only for the leader of a group, who has a session already.
    let _ = rustix::process::setsid();
}

/// The one in the background is ready: it says so and lets go of what it was started with, but for the log where that goes to standard
/// error.
///
/// # Errors
/// The kernel's.
pub fn ready(keep_stderr: bool) -> io::Result<()> {
    // Nobody listens if the starter was killed meanwhile.
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if keep_stderr { Ok(()) } else { Ok(rustix::stdio::dup2_stderr(&null)?) }
}
