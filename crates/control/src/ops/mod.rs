//! Operations and commands, a file for each theme.
//!
//! To add one: write `ops/<theme>.rs` with the [`Operation`](quiver_command::operation::Operation)s, their requests and
//! replies, and a `pub fn register(registry: &mut Registry<Router>)` that declares them and the commands that lead to them;
//! name it in [`register`], or in a plugin of [`BUILT_IN`](crate::BUILT_IN) where VPP has a plugin for it. [`version`] is the
//! shortest example. A plugin does the same in its own crate and names its function in its [`Plugin`](crate::Plugin).
//!
//! The rules: `run` validates first and changes nothing on an error; a reply is a struct that serialises to what a program
//! wants to know and renders as VPP's text; parsing only makes requests.

pub mod af_xdp;
pub mod api;
pub mod bridge;
pub mod clock;
pub mod errors;
pub mod events;
pub mod features;
pub mod graph;
pub mod host_interface;
pub mod icmp;
pub mod interface;
pub mod ip_address;
pub mod ip_route;
pub mod ip_table;
pub mod l2fib;
pub mod logging;
pub mod memif;
pub mod memory;
pub mod nd;
pub mod neighbor;
pub mod node;
pub mod packet_generator;
pub mod path_mtu;
pub mod pcap;
pub mod pcap_port;
pub mod perfmon;
pub mod ping;
pub mod placement;
pub mod plugins;
pub mod privileges;
pub mod rss;
pub mod runtime;
pub mod tag_rewrite;
pub mod tap;
pub mod threads;
pub mod trace;
pub mod version;
pub mod watchdog;
pub mod workers;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quiver_command::operation::{OpError, Registry, retval};
use quiver_command::{script, session};
use quiver_graph::GraphError;
use quiver_net::Router;

use crate::system::Scripts;

/// Declares the operations and commands of all themes.
pub fn register(registry: &mut Registry<Router>) {
    script::register::<Router, Scripts>(registry);
    session::declare_commands(registry);
    api::register(registry);
    bridge::register(registry);
    clock::register(registry);
    errors::register(registry);
    events::register(registry);
    features::register(registry);
    graph::register(registry);
    icmp::register(registry);
    interface::register(registry);
    ip_address::register(registry);
    ip_route::register(registry);
    ip_table::register(registry);
    l2fib::register(registry);
    logging::register(registry);
    memory::register(registry);
    nd::register(registry);
    neighbor::register(registry);
    node::register(registry);
    packet_generator::register(registry);
    path_mtu::register(registry);
    pcap::register(registry);
    pcap_port::register(registry);
    perfmon::register(registry);
    ping::register(registry);
    placement::register(registry);
    plugins::register(registry);
    privileges::register(registry);
    rss::register(registry);
    runtime::register(registry);
    tag_rewrite::register(registry);
    tap::register(registry);
    threads::register(registry);
    trace::register(registry);
    version::register(registry);
    watchdog::register(registry);
    workers::register(registry);
}

/// A graph's refusal as an operation's error.
pub fn graph_error(error: &GraphError) -> OpError {
    let (code, key) = match error {
        GraphError::NoSuchNode(_) | GraphError::UnknownNode { .. } => (retval::NO_SUCH_NODE, "node"),
        GraphError::NoSuchArc(_) => (retval::NO_SUCH_ENTRY, "arc"),
        GraphError::NoSuchFeature { .. } => (retval::NO_SUCH_ENTRY, "feature"),
        GraphError::Range { what, .. } => (retval::INVALID_VALUE, *what),
        GraphError::Variant(_) => (retval::UNSUPPORTED, "variant"),
        GraphError::NotStaged(_) => (retval::UNSUPPORTED, "node"),
        GraphError::Full => (retval::LIMIT_EXCEEDED, "nodes"),
        GraphError::Thread { .. } => (retval::SYSCALL_ERROR_1, "worker"),
        _ => (retval::UNSPECIFIED, "graph"),
    };
    OpError::new(code, error.to_string()).key(key)
}

/// The path of a file that a user names for output: always in /tmp, as VPP does it.
///
/// # Errors
/// A name that would lead elsewhere.
pub fn file_in_tmp(name: &str) -> Result<PathBuf, OpError> {
    if name.is_empty() || name == "." || name.contains(['/', '\0']) || name.contains("..") {
        let error = OpError::new(retval::ILLEGAL_NAME, format!("illegal characters in filename '{name}'"));
        return Err(error.key("file").value(name).remedy("give a plain name: the file goes to /tmp"));
    }
    Ok(PathBuf::from("/tmp").join(name))
}

/// Creates a file that [`file_in_tmp`] gave. /tmp is everybody's: a link that somebody left there must not lead us elsewhere.
///
/// # Errors
/// The kernel's.
pub fn create_in_tmp(path: &Path) -> std::io::Result<File> {
    let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    OpenOptions::new().write(true).create(true).truncate(true).custom_flags(no_links).open(path)
}

/// Writes a whole file that [`file_in_tmp`] gave.
///
/// # Errors
/// The kernel's.
pub fn write_in_tmp(path: &Path, bytes: &[u8]) -> Result<(), OpError> {
    let written = create_in_tmp(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| OpError::system(format_args!("cannot write {}", path.display()), &error).key("file"))
}

/// Running command lines in tests, against all operations.
#[cfg(test)]
pub(crate) mod testing {
    use std::time::Duration;

    use quiver_command::operation::{Outcome, Registry, View, run_to_end};
    use quiver_net::Router;

    fn execute(router: &mut Router, line: &str) -> Result<String, String> {
        let mut registry = Registry::new();
        super::register(&mut registry);
        crate::BUILT_IN.iter().for_each(|plugin| (plugin.register)(&mut registry));
        assert!(registry.problems().is_empty(), "{:?}", registry.problems());
        let mut text = String::new();
        let answer = match registry.execute(router, line, &View::TEXT).map_err(|e| e.to_string())? {
            Outcome::Done(answer) => answer,
            Outcome::Job(mut job) => run_to_end(&mut *job, router, &mut text, |_: Duration| ()).map_err(|e| e.to_string())?,
        };
        text.push_str(&answer.text);
        Ok(text)
    }

    /// The text that a command answers with.
    pub fn run(router: &mut Router, line: &str) -> String {
        execute(router, line).unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// The error of a command that must fail.
    pub fn error(router: &mut Router, line: &str) -> String {
        execute(router, line).err().unwrap_or_else(|| panic!("{line}: no error"))
    }
}
