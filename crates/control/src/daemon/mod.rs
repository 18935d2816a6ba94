//! The daemon's life: command line, configuration, start, main loop, stop.

mod api;
mod assemble;
mod check;
mod confirm;
mod detach;
pub(crate) mod group;
mod links;
mod memif;
mod pidfile;
mod privileges;
mod processes;
mod punt;
mod statistics;
mod successor;
mod threads;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use quiver_command::config::{ConfigError, Schema, Source};
use quiver_graph::topology::PlacementError;
use quiver_net::NetError;
use quiver_privilege::confine::ConfineError;
use quiver_privilege::helper;

pub(crate) use api::table as message_table;
pub(crate) use assemble::registry_with;
pub(crate) use assemble::runtime_dir;
pub use assemble::{Daemon, Options};
pub use privileges::Privileges;
pub use threads::{place, replan, topology};

use crate::ops::version::version_line;
use crate::server::BindError;
use crate::startup::{Arguments, ArgumentsError, StartupConfig, help, manual, schema, wants_a_check, wants_to_take_over};
use quiver_net::Plugin;

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command line.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The `cpu` section.
    #[error("cpu: {0}")]
    Placement(#[from] PlacementError),
    /// Memory, threads, the graph.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Rights that cannot be given up.
    #[error(transparent)]
    Privilege(#[from] ConfineError),
    /// A router that runs goes on.
    #[error("cannot take over from the router that runs, which goes on: {0}")]
    TakeOver(String),
    /// A line of a file that runs at start.
    #[error("startup-config failed, so the router ends (unix {{ startup-lenient }} has it go on): {0}")]
    StartUp(String),
    /// A plugin.
    #[error("plugin {name}: {text}")]
    Plugin {
        /// Which.
        name: &'static str,
        /// What it says.
        text: String,
    },
    /// Operations or commands that contradict one another: a mistake in the program.
    #[error("the program's commands contradict one another: {}", .0.join("; "))]
    Declarations(Vec<String>),
    /// The operating system.
    #[error("{doing}: {error}")]
    System {
        /// What was tried.
        doing: String,
        /// What it said.
        error: io::Error,
    },
}

/// How long a line that must not be lost may take to be written: what it is written to may be stuck.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// The exit status of a router whose `startup-config` failed, EX_CONFIG of sysexits.h: a supervisor knows that another start is of no use.
const START_UP_FAILED: u8 = 78;

/// The program: everything `main` does, with these plugins.
pub fn run(plugins: &[Plugin]) -> ExitCode {
    crate::panics::install();
    let ended = start(plugins, std::env::args_os().skip(1).collect());
    crate::log::flush(LAST_WORDS);
    match ended {
        Ok(code) => code,
        Err(error) => {
            let mut out = io::stderr().lock();
            let _ = writeln!(out, "quiver: {error}");
            if let StartError::Config(error) = &error
                && out.is_terminal()
            {
                let _ = writeln!(out, "{}", error.excerpt(true));
            }
            match error {
                StartError::StartUp(_) => ExitCode::from(START_UP_FAILED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Writes manual pages and shell completion to a folder.
fn write_manual(plugins: &[Plugin], folder: &Path) -> Result<ExitCode, StartError> {
    let failed = |error| StartError::System { doing: format!("cannot write to {}", folder.display()), error };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in manual::files(&full_schema(plugins).reference()) {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn start(plugins: &[Plugin], mut words: Vec<OsString>) -> Result<ExitCode, StartError> {
    if words.first().is_some_and(|word| word == helper::MARK) {
        let words: Vec<String> = words[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect();
        return privileges::run_helper(&words);
    }
    let detached = words.first().is_some_and(|word| word == detach::MARK);
    if detached {
        words.remove(0);
        detach::leave_session();
    }
    let startup = match Arguments::parse(words.iter().cloned())? {
        Arguments::Help => return Ok(say(&help())),
        Arguments::Version => return Ok(say(&format!("{}\n", version_line()))),
        Arguments::ApiJson(folder) => return api::write_definitions(plugins, &folder),
        Arguments::Generate(folder) => return write_manual(plugins, &folder),
        Arguments::File(path, interactive) => {
            let text = std::fs::read_to_string(&path).map_err(|error| StartError::Read { path: path.clone(), error })?;
            let mut startup = StartupConfig::read(&full_schema(plugins), Source::file(path.to_string_lossy(), text))?;
            startup.unix.interactive |= interactive;
            startup.unix.nodaemon |= interactive;
            startup
        }
        Arguments::Words(words) => StartupConfig::read(&full_schema(plugins), Source::words(words))?,
    };
    if wants_a_check(&words) {
        return check::run(&startup, plugins);
    }
    let take_over = wants_to_take_over(&words);
    // One that takes over goes into the background even under a supervisor: what started it ends when the router is handed over.
    if (!startup.unix.nodaemon || take_over) && !detached {
        let failed = |error| StartError::System { doing: "cannot go into the background".to_owned(), error };
        return detach::detach(&words).map_err(failed);
    }
    set_identity(&runtime_dir(&startup.unix));
    let name = std::env::args_os().next();
    // The next start is an ordinary one.
    words.retain(|word| word != "--take-over");
    let command_line = name.iter().chain(&words).map(|word| word.to_string_lossy().into_owned()).collect();
    Daemon::start(startup, plugins, Options { command_line, detached, take_over, ..Options::default() })?.run()
}

/// Has MAC addresses be the same at each start. Routers of one machine differ by their runtime folders, containers by their host
/// names; a machine without an id has random addresses.
fn set_identity(runtime_dir: &Path) {
    let file = |path| std::fs::read(path).ok().filter(|text: &Vec<u8>| !text.trim_ascii().is_empty());
    let Some(machine) = file("/etc/machine-id") else { return };
    let host = file("/proc/sys/kernel/hostname").unwrap_or_default();
    let identity = [machine.trim_ascii(), host.trim_ascii(), runtime_dir.as_os_str().as_encoded_bytes()].join(&0);
    quiver_drivers::ethernet::set_identity(&identity);
}

/// The sections of the daemon and of all plugins; also of those that are off, so that a configuration stays good when a
/// plugin is switched.
fn full_schema(plugins: &[Plugin]) -> Schema {
    plugins.iter().fold(schema(), |schema, plugin| (plugin.schema)(schema))
}

fn say(text: &str) -> ExitCode {
    // A closed pipe is no failure of ours.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}
