//! `show sessions`, `clear session`: who is connected.

use std::fmt::Write as _;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use crate::server::{Peer, SessionInfo, SessionKind};
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowSessions>().declare::<ClearSession>();
}

request! {
    /// Shows who is connected: command line, JSON and binary API.
    pub read ShowSessions "sessions_show" ["show sessions", "show cli-sessions"] {}
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Session {
    /// Number.
    pub id: u32,
    /// What it speaks.
    pub kind: SessionKind,
    /// Name of its user, where that has one.
    pub user: Option<String>,
    /// Number of its user; none for a client on TCP.
    pub uid: Option<u32>,
    /// Its process; none where that cannot be seen.
    pub pid: Option<i32>,
    /// Its address, for a client on TCP.
    pub address: Option<String>,
    /// What an API client calls itself.
    pub name: String,
    /// Seconds since it connected.
    pub age: f64,
    /// Seconds since anything came, went or ran.
    pub idle: f64,
    /// Bytes of answers that it has not read.
    pub queue: usize,
    /// Whether an operation runs for it, or waits for its turn or for the client to read.
    pub running: bool,
}

impl Session {
    fn new(info: SessionInfo, users: &str) -> Self {
        let (uid, pid, address) = match info.peer {
            Peer::Local { uid, pid } => (Some(uid), Some(pid).filter(|pid| *pid != 0), None),
            Peer::Remote(address) => (None, None, Some(address.to_string())),
            Peer::Unknown => (None, None, None),
        };
        Self {
            id: info.id,
            kind: info.kind,
            user: uid.and_then(|uid| user_name(users, uid)),
            uid,
            pid,
            address,
            name: info.name,
            age: info.age.as_secs_f64(),
            idle: info.idle.as_secs_f64(),
            queue: info.queued,
            running: info.running,
        }
    }
}

/// The name of a user, of a text like `/etc/passwd`.
fn user_name(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The answer of [`ShowSessions`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionList {
    /// By number.
    pub sessions: Vec<Session>,
    /// Clients that got no place since the router was started.
    pub refused: u64,
}

impl Execute<Router> for ShowSessions {
    type Reply = SessionList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SessionList>, OpError> {
        let sessions = &System::of(router)?.sessions;
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let list = sessions.list().into_iter().map(|info| Session::new(info, &users)).collect();
        Ok(Outcome::Done(SessionList { sessions: list, refused: sessions.refused() }))
    }
}

/// A time as people read it.
fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds:.1}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", whole % 60),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

impl Text for SessionList {
    fn text(&self, out: &mut String, _view: &View) {
        let column = |table: TextTable, (heading, width, align)| table.column_with(heading, align, width, align);
        let columns = [
            ("ID", 6, Align::Right),
            ("Kind", 8, Align::Left),
            ("User", 12, Align::Left),
            ("Peer", 18, Align::Left),
            ("Age", 8, Align::Right),
            ("Idle", 8, Align::Right),
            ("Queue", 8, Align::Right),
            ("State", 8, Align::Left),
            ("Name", 1, Align::Left),
        ];
        let table = columns.into_iter().fold(TextTable::new(), column);
        table.heading(out);
        for session in &self.sessions {
            let user = session.user.clone().or_else(|| session.uid.map(|uid| uid.to_string())).unwrap_or_else(|| "-".into());
            let pid = session.pid.map(|pid| format!("pid {pid}"));
            let peer = pid.or_else(|| session.address.clone()).unwrap_or_else(|| "-".into());
            let state = if session.running { "running" } else { "waiting" };
            let (age, idle) = (time(session.age), time(session.idle));
            table.row(out, &[&session.id, &session.kind.name(), &user, &peer, &age, &idle, &session.queue, &state, &session.name]);
        }
        if self.refused > 0 {
            let _ = writeln!(out, "refused for want of a place: {}", self.refused);
        }
    }
}

request! {
    /// Ends a session; what it runs stops at the next line.
    pub change ClearSession "session_clear" ["clear session"] {
        /// Its number.
        pub session: u32 = "<n>",
    }
}

impl Execute<Router> for ClearSession {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        if System::of(router)?.sessions.clear(self.session) {
            return Ok(Outcome::Done(()));
        }
        let error = OpError::new(retval::NO_SUCH_ENTRY, "no such session").key("session").value(self.session);
        Err(error.remedy("`show sessions' lists them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nalice:x:1000:1000::/:/bin/sh\n";
        assert_eq!((user_name(users, 1000).as_deref(), user_name(users, 5)), (Some("alice"), None));
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(0.04, "0.0s"), (59.9, "59.9s"), (61.0, "1m01s"), (7_260.0, "2h01m"), (200_000.0, "2d07h")] {
            assert_eq!(time(seconds), text);
        }
    }
}
