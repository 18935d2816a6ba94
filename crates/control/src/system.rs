//! The daemon's own part of the control state.

use std::cell::Cell;
use std::io::{BufRead, Cursor};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blocking::unblock;
use quiver_command::operation::{Live, OpError, Registry, retval};
use quiver_command::script::{Opening, ScriptHost, ScriptState};
use quiver_graph::topology::Topology;
use quiver_net::files::{Files, Use};
use quiver_net::{Plugin, Router};

use crate::log::Log;
use crate::ops::pcap::Recorder;
use crate::ops::perfmon::Perfmon;
use crate::ops::trace::TraceSettings;
use crate::process::ProcessTable;
use crate::samples::Samples;
use crate::server::Sessions;
use crate::startup::StartupConfig;

/// Bytes of a file of commands at most: some 5 million routes.
const SCRIPT: u64 = 256 << 20;

/// What operations of the daemon itself work on. It is a part of the router.
pub struct System {
    /// All operations and commands.
    pub registry: Live<Router>,
    /// The log.
    pub log: Log,
    /// Process nodes.
    pub processes: ProcessTable,
    /// What the router was started with.
    pub startup: Rc<StartupConfig>,
    /// The command line it was started with.
    pub command_line: Vec<String>,
    /// Who is connected.
    pub sessions: Sessions,
    /// The machine.
    pub topology: Topology,
    /// The main thread: its CPU, and turns of its loop.
    pub main: MainFigures,
    /// Worker threads at start.
    pub workers: usize,
    /// Plugins that are linked into the program and on.
    pub plugins: Vec<Plugin>,
    /// Where plugins in shared objects lie.
    pub plugin_folders: Vec<PathBuf>,
    /// `pcap trace`.
    pub recorder: Recorder,
    /// `trace filter` and how time stamps are written.
    pub trace: TraceSettings,
    /// `perfmon`.
    pub perfmon: Perfmon,
    /// The last seconds of each thread.
    pub samples: Samples,
    /// Set to end the main loop.
    pub stop: Rc<Cell<bool>>,
    /// When the router was started, ns of its clock.
    pub started: u64,
    /// When runtime figures were cleared, ns of its clock.
    pub runtime_cleared: u64,
}

/// What `show threads` and `show runtime` tell of the main thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct MainFigures {
    /// CPU it is pinned to.
    pub cpu: Option<u32>,
    /// Turns of the main loop since the figures were cleared.
    pub loops: u64,
}

impl System {
    /// The daemon's state of a router.
    ///
    /// # Errors
    /// Only where a router runs without its daemon.
    pub fn of(router: &Router) -> Result<&Self, OpError> {
        router.part().ok_or_else(no_daemon)
    }

    /// The daemon's state of a router, to be changed.
    ///
    /// # Errors
    /// Only where a router runs without its daemon.
    pub fn of_mut(router: &mut Router) -> Result<&mut Self, OpError> {
        router.part_mut().ok_or_else(no_daemon)
    }
}

fn no_daemon() -> OpError {
    OpError::new(retval::UNSUPPORTED, "this router runs without its daemon")
}

/// Lets `exec` and macros find their state; see [`ScriptHost`].
pub enum Scripts {}

impl ScriptHost<Router> for Scripts {
    fn registry(router: &Router) -> Rc<Registry<Router>> {
        System::of(router).map(|system| system.registry.get()).unwrap_or_default()
    }

    fn script_state(router: &mut Router) -> &mut ScriptState {
        router.part_or_default()
    }

    fn open_script(router: &mut Router, path: &str, operator: bool) -> Result<Opening, OpError> {
        let place = match router.part::<Files>() {
            Some(files) => files.find(Path::new(path), Use::Read, operator)?,
            None => return Err(no_daemon()),
        };
        let read = unblock(move || place.read(SCRIPT));
        Ok(Box::pin(async move { Ok(Box::new(Cursor::new(read.await?)) as Box<dyn BufRead>) }))
    }
}
