//! Measures routers: sends what was asked, counts exactly what came back, times it, and says when it could not.
//!
//! ```text
//! quiver-tester trial --port P [--port P] --profile FILE --rate R [--size N] [--duration S] [--json]
//! quiver-tester self-test [--port P --port P]     what the tester itself can do, its ports back to back
//! quiver-tester stateful MEASURE --port P --port P …  gateways that track connections (RFC 9693)
//! quiver-tester tcp --port P --port P --profile FILE --rate R  connections with requests and responses
//! quiver-tester serve --socket PATH               the same, asked for over a socket
//! quiver-tester import FILE                       a profile of what another program describes
//! quiver-tester frames --profile FILE --out PCAP  what a trial would send
//! quiver-tester generate FOLDER                   manual pages and shell completion
//! ```
//! Exit: 0 for a trial that is valid; 3 for one that ran and is not; 1 and one line on standard error where it could not run; 130
//! after Ctrl-C.
#![forbid(unsafe_code)]

mod files;
mod options;
mod self_test;
mod serve;
mod stateful;
mod table;
mod tcp;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use options::{Command, Options, TrialOptions};
use quiver_tester_core::bench::Bench;
use quiver_tester_core::profile::{Profile, ProfileError};
use quiver_tester_core::report::Report;
use quiver_tester_core::trial::{self, Plan, Progress, TrialError};
use signal_hook::consts::{SIGINT, SIGTERM};

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The trial ran and is not valid: it says nothing about the device.
const NOT_VALID: u8 = 3;

/// Why there is no result: one line.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error(transparent)]
    Bench(#[from] quiver_tester_core::bench::BenchError),
    #[error(transparent)]
    Import(#[from] quiver_tester_core::import::ImportError),
    #[error(transparent)]
    Stateful(#[from] quiver_tester_core::stateful::StatefulError),
    #[error(transparent)]
    Tcp(#[from] quiver_tester_core::tcp::trial::TcpError),
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("serve: {0}")]
    Serve(String),
    #[error("self-test: {0}")]
    SelfTest(String),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// Writes manual pages and completion for shells, from the definitions of the options.
fn pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = Options::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "quiver-tester", folder)?;
    }
    clap_mangen::generate_to(command, folder)
}

fn main() -> ExitCode {
    // A panic on any thread ends the tester: what it has counted so far cannot be trusted.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        std::process::abort();
    }));
    let options = Options::parse();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one ends the program at once.
        let done = signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()));
        if let Err(error) = done {
            eprintln!("quiver-tester: cannot take signals: {error}");
            return ExitCode::FAILURE;
        }
    }
    let result = match &options.command {
        Command::Trial(options) => run_trial(options, &stop),
        Command::SelfTest(options) => self_test::run(options, &stop).map(|()| true),
        Command::Stateful(options) => stateful::run(options, &stop).map(|()| true),
        Command::Tcp(options) => tcp::run(options, &stop),
        Command::Serve(options) => serve::run(options, &stop).map(|()| true),
        Command::Import(options) => files::import(options).map(|()| true),
        Command::Frames(options) => files::frames(options).map(|()| true),
        Command::Generate { folder } => pages(folder).map(|()| true).map_err(|e| Failure::File(folder.display().to_string(), e)),
    };
    match result {
        Ok(_) if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_VALID),
        Err(_) if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
        // Whoever read our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("quiver-tester: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a trial and prints it; whether it is valid.
fn run_trial(options: &TrialOptions, stop: &AtomicBool) -> Result<bool, Failure> {
    let plan = options.plan(Profile::load(&options.profile)?);
    let self_test = options.self_test.as_deref().map(self_test::stored).transpose()?;
    let mut bench = Bench::open(&options.port, plan.max_frame())?;
    let mut report = measure(&mut bench, &plan, stop)?;
    report.self_test = self_test;
    print(&report, options.json)?;
    Ok(report.head.valid)
}

/// Runs a trial with a progress line where somebody looks.
fn measure(bench: &mut Bench, plan: &Plan, stop: &AtomicBool) -> Result<Report, Failure> {
    let shows = io::stderr().is_terminal();
    let mut watch = |progress: &Progress| {
        if shows && progress.of_s > 0.0 {
            let Progress { t_s, of_s, sent, received } = progress;
            eprint!("\r{t_s:6.1} of {of_s} s: {sent} sent, {received} received ");
        }
        !stop.load(Ordering::Relaxed)
    };
    let report = trial::run(bench, plan, &mut watch);
    if shows {
        eprint!("\r\x1b[K");
    }
    Ok(report?)
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(table::text(report).as_bytes())?;
    }
    Ok(out.flush()?)
}
