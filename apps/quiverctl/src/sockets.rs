//! Finds the router's socket.

use crate::connection::{CallError, Connection};
use std::{io, path::PathBuf};

/// Connects to the socket that was asked for, or to the first usual one where a router listens.
pub fn connect(asked: Option<&str>) -> Result<Connection, CallError> {
    let places = match asked {
        Some(socket) => vec![socket.to_owned()],
        None => usual_places(),
    };
    let mut reasons = Vec::new();
    for place in &places {
        match Connection::open(place) {
            Ok(connection) => return Ok(connection),
            Err(error) => reasons.push(format!("{place}: {}", reason(&error))),
        }
    }
    let remedy = match asked {
        Some(_) => "is the router running, and is this its `cli-listen'?",
        None => "start one with `quiver -c FILE', or name its socket with -s",
    };
    Err(CallError::NoRouter(format!("no router listens on {}; {remedy}", reasons.join(", "))))
}

fn usual_places() -> Vec<String> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw())), PathBuf::from);
    let user = runtime.join("quiver/cli.sock").to_string_lossy().into_owned();
    vec!["/run/quiver/cli.sock".to_owned(), user, "./cli.sock".to_owned()]
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "nobody answers".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
