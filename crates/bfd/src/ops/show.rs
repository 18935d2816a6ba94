//! What is shown of sessions.

use std::fmt::Write as _;
use std::net::IpAddr;

use quiver_command::operation::{OpError, Outcome, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::thread_name;
use quiver_net::Router;
use serde::Serialize;

use crate::auth::Kind;
use crate::control;
use crate::packet::{State, diagnostic};

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// Its number.
    pub id: u32,
    /// Interface; none of a multihop session.
    pub interface: Option<String>,
    /// Table of a multihop session.
    pub table: Option<u32>,
    /// Own address.
    pub local_addr: IpAddr,
    /// The other side's.
    pub peer_addr: IpAddr,
    /// State.
    pub state: State,
    /// The other side's state.
    pub remote_state: State,
    /// Why the session was last down.
    pub diagnostic: &'static str,
    /// Why the other side's was.
    pub remote_diagnostic: &'static str,
    /// It was up and was lost.
    pub failed: bool,
    /// Own discriminator.
    pub local_discriminator: u32,
    /// The other side's; 0 where nothing is heard.
    pub remote_discriminator: u32,
    /// Detection multiplier.
    pub detect_mult: u8,
    /// The other side's.
    pub remote_detect_mult: u8,
    /// Configured interval of sending, µs.
    pub desired_min_tx: u32,
    /// The other side's.
    pub remote_desired_min_tx: u32,
    /// Configured interval of receiving, µs.
    pub required_min_rx: u32,
    /// The other side's.
    pub remote_required_min_rx: u32,
    /// Interval at which packets are sent, before jitter, µs.
    pub tx_interval: u32,
    /// Time without packets after which the session is down, µs; 0: nothing is heard.
    pub detection_time: u64,
    /// Control packets received.
    pub received: u64,
    /// Control packets sent.
    pub sent: u64,
    /// Interval at which echo packets are sent, before jitter, µs; 0: none are.
    pub echo_interval: u32,
    /// Interval at which the other side returns echo packets, µs; 0: not at all.
    pub remote_required_min_echo_rx: u32,
    /// Echo packets that have come back.
    pub echo_received: u64,
    /// Echo packets sent.
    pub echo_sent: u64,
    /// Authentication, if it is in use.
    pub authentication: Option<AuthInfo>,
    /// Authentication has been changed, and the other side does not follow yet.
    pub auth_pending: bool,
    /// Times that it came up.
    pub ups: u64,
    /// Seconds for which it has been in its state.
    pub seconds: u64,
    /// The thread that has it.
    pub thread: String,
}

/// How packets of a session are authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthInfo {
    /// Type of the key.
    pub kind: Kind,
    /// Its number in the configuration.
    pub conf_key_id: u32,
    /// Its number in packets.
    pub bfd_key_id: u8,
}

fn sessions(router: &mut Router) -> Result<Vec<SessionInfo>, OpError> {
    let statuses = control::statuses(router)?;
    let bfd = router.state::<control::Bfd>()?;
    let now = router.graph.clock().timer_now();
    let info = |(key, session): (&crate::datagram::Key, &control::Configured)| {
        let status = statuses.get(&session.id)?;
        let [received, sent, echo_received, echo_sent] = control::packets(bfd, session.id);
        let auth = |auth: control::AuthRef| {
            let kind = bfd.key(auth.conf_key_id).ok()?.kind;
            Some(AuthInfo { kind, conf_key_id: auth.conf_key_id, bfd_key_id: auth.bfd_key_id })
        };
        let remote = status.remote;
        Some(SessionInfo {
            id: session.id,
            interface: (!key.is_multihop()).then(|| router.interfaces.name(key.interface)),
            table: key.is_multihop().then_some(key.table),
            local_addr: key.local,
            peer_addr: key.peer,
            state: status.state,
            remote_state: remote.state,
            diagnostic: diagnostic::name(status.diagnostic),
            remote_diagnostic: diagnostic::name(remote.diagnostic),
            failed: status.failed,
            local_discriminator: session.discriminator,
            remote_discriminator: remote.discriminator,
            detect_mult: session.timing.detect_mult,
            remote_detect_mult: remote.detect_mult,
            desired_min_tx: session.timing.desired_min_tx,
            remote_desired_min_tx: remote.desired_min_tx,
            required_min_rx: session.timing.required_min_rx,
            remote_required_min_rx: remote.required_min_rx,
            tx_interval: status.tx_interval,
            detection_time: status.detection_time,
            received,
            sent,
            echo_interval: status.echo_interval,
            remote_required_min_echo_rx: remote.required_min_echo_rx,
            echo_received,
            echo_sent,
            authentication: session.auth.and_then(auth),
            auth_pending: status.auth_pending,
            ups: session.ups,
            seconds: now.saturating_sub(session.since) / 1_000_000_000,
            thread: thread_name(session.owner),
        })
    };
    let mut all: Vec<SessionInfo> = bfd.sessions().filter_map(info).collect();
    all.sort_unstable_by_key(|session| session.id);
    Ok(all)
}

request! {
    /// Shows BFD sessions.
    pub read ShowSessions "bfd_sessions_show" ["show bfd sessions"] {}
}

/// The answer of [`ShowSessions`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Sessions(pub Vec<SessionInfo>);

impl Text for Sessions {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(
            out,
            "{:>5} {:<10} {:<20} {:<24} {:<24} {:>10} {:>14}",
            "Index", "State", "Interface", "Local", "Peer", "Tx (us)", "Detection (us)"
        );
        for session in &self.0 {
            let interface = session.place();
            let SessionInfo { id, state, local_addr, peer_addr, tx_interval, detection_time, .. } = session;
            let (local, peer) = (local_addr.to_string(), peer_addr.to_string());
            let _ = writeln!(
                out,
                "{id:>5} {:<10} {interface:<20} {local:<24} {peer:<24} {tx_interval:>10} {detection_time:>14}",
                state.name()
            );
        }
        let _ = writeln!(out, "Number of configured BFD sessions: {}", self.0.len());
    }
}

impl Execute<Router> for ShowSessions {
    type Reply = Sessions;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Sessions>, OpError> {
        sessions(router).map(|all| Outcome::Done(Sessions(all)))
    }
}

impl SessionInfo {
    /// The interface, or of a multihop session the table.
    fn place(&self) -> String {
        match (&self.interface, self.table) {
            (Some(interface), _) => interface.clone(),
            (None, Some(0) | None) => "multihop".to_owned(),
            (None, Some(table)) => format!("multihop, table {table}"),
        }
    }
}

request! {
    /// Shows a BFD session in full.
    pub read ShowSession "bfd_session_show" ["show bfd session"] {
        /// Its number.
        pub id: u32 = "<id>",
    }
}

impl Text for SessionInfo {
    fn text(&self, out: &mut String, _: &View) {
        let Self { id, thread, seconds, ups, .. } = self;
        let place = if self.interface.is_some() { format!("on {}", self.place()) } else { self.place() };
        let _ = writeln!(out, "Session {id} {place}, thread {thread}, in this state for {seconds} s, {ups} times up");
        let mut line = |name: &str, local: &dyn std::fmt::Display, remote: &dyn std::fmt::Display| {
            let _ = writeln!(out, "  {name:<34} {:>34} {:>34}", local.to_string(), remote.to_string());
        };
        line("Property", &"Local value", &"Remote value");
        line("Address", &self.local_addr, &self.peer_addr);
        line("Session state", &self.state.name(), &self.remote_state.name());
        line("Diagnostic code", &self.diagnostic, &self.remote_diagnostic);
        line("Discriminator", &self.local_discriminator, &self.remote_discriminator);
        line("Detect multiplier", &self.detect_mult, &self.remote_detect_mult);
        line("Required Min Rx Interval (usec)", &self.required_min_rx, &self.remote_required_min_rx);
        line("Desired Min Tx Interval (usec)", &self.desired_min_tx, &self.remote_desired_min_tx);
        line("Transmit interval (usec)", &self.tx_interval, &"");
        line("Detection time (usec)", &self.detection_time, &"");
        line("Packets sent, received", &self.sent, &self.received);
        line("Echo interval (usec)", &self.echo_interval, &self.remote_required_min_echo_rx);
        line("Echo packets sent, received", &self.echo_sent, &self.echo_received);
        if let Some(AuthInfo { kind, conf_key_id, bfd_key_id }) = &self.authentication {
            line("Authentication", &kind.name(), &format_args!("key {conf_key_id}, in packets {bfd_key_id}"));
        }
        if self.auth_pending {
            line("New authentication", &"waits for the other side", &"");
        }
    }
}

impl Execute<Router> for ShowSession {
    type Reply = SessionInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, SessionInfo>, OpError> {
        let found = sessions(router)?.into_iter().find(|session| session.id == self.id);
        let none = || OpError::new(retval::BFD_ENOENT, format!("no session {}", self.id)).key("id").value(self.id);
        found.map(Outcome::Done).ok_or_else(none)
    }
}

request! {
    /// Shows how many BFD sessions and keys there are, and what holds for all sessions.
    pub read ShowSummary "bfd_show" ["show bfd"] {}
}

/// The answer of [`ShowSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Sessions.
    pub sessions: usize,
    /// Those that are up.
    pub up: usize,
    /// Those that were up and were lost.
    pub failed: usize,
    /// Keys.
    pub keys: usize,
    /// Interface whose subnets echo packets come from.
    pub echo_source: Option<String>,
    /// TOS and traffic class of packets.
    pub tos: u8,
}

impl Text for Summary {
    fn text(&self, out: &mut String, _: &View) {
        let Self { sessions, up, failed, keys, tos, .. } = self;
        let _ = writeln!(out, "Number of configured BFD sessions: {sessions} ({up} up, {failed} failed)");
        let _ = writeln!(out, "Number of configured BFD keys: {keys}");
        let _ = writeln!(out, "UDP echo source: {}", self.echo_source.as_deref().unwrap_or("not set"));
        let _ = writeln!(out, "TOS of packets: {tos}");
    }
}

impl Execute<Router> for ShowSummary {
    type Reply = Summary;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Summary>, OpError> {
        let all = sessions(router)?;
        let echo_source = control::echo_source(router)?.interface.map(|index| router.interfaces.name(index));
        Ok(Outcome::Done(Summary {
            sessions: all.len(),
            up: all.iter().filter(|session| session.state == State::Up).count(),
            failed: all.iter().filter(|session| session.failed).count(),
            keys: control::keys(router)?.len(),
            echo_source,
            tos: control::tos(router)?,
        }))
    }
}
