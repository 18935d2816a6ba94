//! The router's interfaces for SNMP: a subagent of AgentX (RFC 2741) with IF-MIB (RFC 2863), beside the router.
//!
//! ```text
//!  router ── api.sock: names, states, events ──► quiver-snmp ◄── AgentX ──► snmpd ◄── SNMP ──► manager
//!         ── statistics segment: counters ─────►  a process of another user
//! ```
//!
//! What managers send is parsed by snmpd; what snmpd sends is parsed here. Neither can do anything to packets: counters are memory that this
//! program may read, the rest are requests that read (docs/decisions/0069-agentx.md).
#![forbid(unsafe_code)]

mod agent;
mod client;
mod interface;
mod master;
mod mib;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use agent::{Agent, Places};

/// The interfaces of a running router in SNMP's IF-MIB, by the AgentX socket of snmpd
///
/// The router needs `socksvr { default }' and `statseg { default }' in its startup.conf, snmpd `master agentx' in its snmpd.conf, and the user
/// a place in the groups of both. It waits for both, and connects again when one of them was restarted.
#[derive(Parser)]
#[command(name = "quiver-snmp", version)]
struct Options {
    /// The AgentX socket of the master agent
    #[arg(long, value_name = "PATH", default_value = "/var/agentx/master")]
    agentx: PathBuf,
    /// The router's socket of the binary API
    #[arg(long, value_name = "PATH", default_value = "/run/quiver/api.sock")]
    api: PathBuf,
    /// The router's socket for readers of statistics
    #[arg(long, value_name = "PATH", default_value = "/run/quiver/stats.sock")]
    stats: PathBuf,
    /// SNMP context in which the interfaces are shown, beside those of the host in the default one
    #[arg(long, value_name = "NAME", default_value = "")]
    context: String,
    /// Priority of the registration: lower than snmpd's 127 shows the router's interfaces in place of the host's
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..))]
    priority: u8,
    /// Writes the manual page and shell completion to this folder, and ends
    #[arg(long, value_name = "FOLDER", hide = true)]
    generate: Option<PathBuf>,
}

fn generate(folder: &PathBuf) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = Options::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "quiver-snmp", folder)?;
    }
    clap_mangen::generate_to(command, folder)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let failed = match &options.generate {
        Some(folder) => match generate(folder) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => format!("{}: {error}", folder.display()),
        },
        None => {
            let Options { agentx: master, api, stats, context, priority, .. } = options;
            Agent::new(Places { api, stats, master, context, priority }).run().to_string()
        }
    };
    eprintln!("quiver-snmp: {failed}");
    ExitCode::FAILURE
}
