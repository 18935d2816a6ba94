//! Operations and commands, a file for each theme.
//!
//! To add one: write `ops/<theme>.rs` with the [`Operation`](quiver_command::operation::Operation)s, their requests and
//! replies, and a `pub fn register(registry: &mut Registry<Router>)` that declares them and the commands that lead to them;
//! name it in [`register`]. [`version`] is the shortest example. A plugin does the same in its own crate and names its
//! function in its [`Plugin`](crate::Plugin).
//!
//! The rules: `run` validates first and changes nothing on an error; a reply is a struct that serialises to what a program
//! wants to know and renders as VPP's text; parsing only makes requests.

pub mod version;

use quiver_command::operation::{OpError, Registry, retval};
use quiver_command::{script, session};
use quiver_graph::GraphError;
use quiver_net::Router;

use crate::system::Scripts;

/// Declares the operations and commands of all themes.
pub fn register(registry: &mut Registry<Router>) {
    script::register::<Router, Scripts>(registry);
    session::declare_commands(registry);
    version::register(registry);
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
        _ => (retval::UNSPECIFIED, "graph"),
    };
    OpError::new(code, error.to_string()).key(key)
}
