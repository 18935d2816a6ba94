//! A router's statistics for Prometheus and others that read OpenMetrics: an HTTP endpoint beside the router.
//!
//! ```text
//!  router ── statistics segment (memory of its own) ──► quiver-metrics ──► GET /metrics
//!              handed out once, by a socket                 a process of another user
//! ```
//!
//! The router takes no part in a scrape, and whoever scrapes speaks to a process that can do nothing to the router
//! (docs/decisions/0059-metrics.md).
#![forbid(unsafe_code)]

mod exposition;
mod metrics;
mod process;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use quiver_segment::{Error, Segment};

use metrics::Snapshot;
use process::Usage;

/// The statistics of a running router as OpenMetrics, at http://ADDRESS:PORT/metrics
///
/// The router needs `statseg { default }' in its startup.conf, and the user a place in the group of the router's sockets.
#[derive(Parser)]
#[command(name = "quiver-metrics", version)]
struct Options {
    /// Where to listen. Addresses that other machines reach need --allow-remote
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9482")]
    listen: SocketAddr,
    /// Listens on addresses that other machines reach: there is no encryption and no password
    #[arg(long)]
    allow_remote: bool,
    /// The router's socket for readers of statistics
    #[arg(long, value_name = "PATH", default_value = "/run/quiver/stats.sock")]
    socket: PathBuf,
    /// Writes the metrics to standard output, once, and ends
    #[arg(long)]
    once: bool,
    /// Writes the manual page and shell completion to this folder, and ends
    #[arg(long, value_name = "FOLDER", hide = true)]
    generate: Option<PathBuf>,
}

/// A router that is read from, and asked for its statistics anew when it was started anew.
struct Router {
    socket: PathBuf,
    segment: Mutex<Option<Segment>>,
}

impl Router {
    fn page(&self) -> Result<String, Error> {
        let (snapshot, usage) = {
            let mut known = self.segment.lock().unwrap_or_else(PoisonError::into_inner);
            let mut segment = match known.take().filter(Segment::is_live) {
                Some(segment) => segment,
                None => Segment::connect(&self.socket)?,
            };
            let snapshot = segment.read(Snapshot::of)?;
            let usage = segment.router().map(Usage::of).unwrap_or_default();
            *known = Some(segment);
            (snapshot, usage)
        };
        Ok(snapshot.page(&usage))
    }
}

fn generate(folder: &PathBuf) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = Options::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "quiver-metrics", folder)?;
    }
    clap_mangen::generate_to(command, folder)
}

fn run(options: Options) -> Result<(), String> {
    if let Some(folder) = &options.generate {
        return generate(folder).map_err(|error| format!("{}: {error}", folder.display()));
    }
    let (socket, address) = (options.socket, options.listen);
    let router = Router { socket, segment: Mutex::default() };
    let told = |error: Error| format!("{}: {error}", router.socket.display());
    if options.once {
        print!("{}", router.page().map_err(told)?);
        return Ok(());
    }
    if !address.ip().is_loopback() && !options.allow_remote {
        return Err(format!(
            "{address} is not of this machine alone: --allow-remote listens there, without encryption or password"
        ));
    }
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    let local = listener.local_addr().map_err(|error| error.to_string())?;
    eprintln!("quiver-metrics: http://{local}/metrics");
    Err(server::serve(&listener, move || router.page().map_err(|error| error.to_string())).to_string())
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quiver-metrics: {error}");
            ExitCode::FAILURE
        }
    }
}
