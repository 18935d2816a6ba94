//! Who is connected: places for sessions, shared out fairly, and what `show sessions` tells.
//!
//! There are so many places for CLI and JSON sessions together, and so many for API clients. Some are kept for the owner (root, and
//! the user that the router runs as); another user, or a remote address, gets a share. Where an account has no place left, its session
//! that has been idle longest gives up its own, so that what somebody forgot, or left open on purpose, locks nobody out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use quiver_command::operation::{OpError, retval};
use quiver_graph::reactor::peer_credentials;

use crate::candidate::Candidate;

/// Places for CLI and JSON sessions, and as many for API clients. Each takes a descriptor and some memory.
const PLACES: usize = 256;
/// Of them, places that only the owner gets.
const KEPT: usize = 16;
/// Most sessions of another user, or of a remote address.
const SHARE: usize = 64;
/// Most sessions of one process of the owner: the others are for other programs.
const OF_A_PROCESS: usize = 128;
/// A session that has been idle so long gives up its place to another one of the same account.
const GIVES_UP: Duration = Duration::from_secs(10);

/// What a session speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// The command language, or `quiverctl`.
    Cli,
    /// JSON lines on `json.sock`.
    Json,
    /// The binary API.
    Api,
    /// The terminal that the router was started on.
    Terminal,
}

impl SessionKind {
    /// As `show sessions` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Json => "json",
            Self::Api => "api",
            Self::Terminal => "terminal",
        }
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, by what the kernel says of it.
    Local {
        /// Its user.
        uid: u32,
        /// The process; 0 where it cannot be seen from here.
        pid: i32,
    },
    /// A client on TCP.
    Remote(IpAddr),
    /// The kernel does not say.
    Unknown,
}

impl Peer {
    /// The peer of a Unix socket.
    pub fn of(socket: impl AsFd) -> Self {
        peer_credentials(socket).map_or(Self::Unknown, |(uid, pid)| Self::Local { uid, pid })
    }

    /// Root, or the user that the router runs as.
    fn is_owner(self) -> bool {
        matches!(self, Self::Local { uid, .. } if uid == 0 || uid == rustix::process::geteuid().as_raw())
    }

    /// Whether two are of the same account: they share what it gets.
    fn shares_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Local { uid: a, .. }, Self::Local { uid: b, .. }) => a == b || (self.is_owner() && other.is_owner()),
            _ => self == other,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, pid } => write!(f, "user {uid}, process {pid}"),
            Self::Remote(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Why a session ends although its client is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// Nothing was heard of it for too long.
    #[error("quiver: closed, idle for too long (unix {{ cli-idle-timeout }})")]
    Idle,
    /// `clear session`.
    #[error("quiver: closed by `clear session'")]
    Cleared,
    /// Another session needed its place.
    #[error("quiver: closed, idle, and another session needed the place")]
    Displaced,
}

/// Why a client gets no session: the line that it is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quiver: all {places} places for {what} are taken and in use; try again, or end one (`show sessions', `clear session <n>')"
)]
pub struct Refused {
    places: usize,
    what: String,
}

struct Entry {
    kind: SessionKind,
    peer: Peer,
    name: String,
    since: Instant,
    active: Instant,
    queued: usize,
    running: bool,
    end: Option<End>,
    waker: Option<Waker>,
    idle_timeout: Option<Duration>,
    /// Changes that it collects.
    candidate: Option<Rc<Candidate>>,
}

/// A session as `show sessions` tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Number.
    pub id: u32,
    /// What it speaks.
    pub kind: SessionKind,
    /// Who.
    pub peer: Peer,
    /// What an API client calls itself.
    pub name: String,
    /// How long it has been connected.
    pub age: Duration,
    /// How long nothing has come, gone or run.
    pub idle: Duration,
    /// Bytes that it has not read yet.
    pub queued: usize,
    /// Whether an operation runs or waits for it.
    pub running: bool,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<u32, Entry>,
    last: u32,
    /// How many clients were refused.
    refused: u64,
    /// The session for which an operation runs now.
    asking: Rc<Cell<Option<u32>>>,
}

/// Who asks: said while an operation runs for a session.
#[derive(Debug, Clone)]
pub struct Asking {
    now: Rc<Cell<Option<u32>>>,
    id: u32,
}

impl Asking {
    /// It is this session, as long as the value lives.
    pub fn enter(&self) -> Asked {
        self.now.set(Some(self.id));
        Asked(Rc::clone(&self.now))
    }
}

/// A session asks as long as this lives.
pub struct Asked(Rc<Cell<Option<u32>>>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// All sessions. Clones are handles of the same.
#[derive(Clone, Default)]
pub struct Sessions(Rc<RefCell<Table>>);

impl Sessions {
    /// Gives a client a place, for as long as the handle lives.
    ///
    /// # Errors
    /// There is none for it.
    pub fn admit(&self, kind: SessionKind, peer: Peer, idle_timeout: Option<Duration>) -> Result<SessionHandle, Refused> {
        let mut table = self.0.borrow_mut();
        if kind != SessionKind::Terminal
            && let Err(refused) = table.make_room(kind, peer)
        {
            table.refused += 1;
            return Err(refused);
        }
        // Numbers go round after four thousand million sessions; one that is taken is passed over.
        let id = loop {
            table.last = table.last.wrapping_add(1);
            if !table.entries.contains_key(&table.last) {
                break table.last;
            }
        };
        let now = Instant::now();
        let entry = Entry {
            kind,
            peer,
            name: String::new(),
            since: now,
            active: now,
            queued: 0,
            running: false,
            end: None,
            waker: None,
            idle_timeout,
            candidate: None,
        };
        table.entries.insert(id, entry);
        drop(table);
        Ok(SessionHandle { sessions: self.clone(), id, end: Cell::new(None) })
    }

    /// All, by number.
    pub fn list(&self) -> Vec<SessionInfo> {
        let info = |(id, entry): (&u32, &Entry)| SessionInfo {
            id: *id,
            kind: entry.kind,
            peer: entry.peer,
            name: entry.name.clone(),
            age: entry.since.elapsed(),
            idle: entry.active.elapsed(),
            queued: entry.queued,
            running: entry.running,
        };
        self.0.borrow().entries.iter().map(info).collect()
    }

    /// Ends a session; `false` where there is none of that number.
    pub fn clear(&self, id: u32) -> bool {
        self.0.borrow_mut().end(id, End::Cleared)
    }

    /// The candidate of the session that asks.
    pub fn candidate(&self) -> Option<Rc<Candidate>> {
        self.of_asking(|entry| entry.candidate.clone()).flatten()
    }

    /// Begins one for the session that asks.
    ///
    /// # Errors
    /// It is no session, or one has a candidate.
    pub fn begin_candidate(&self) -> Result<(), OpError> {
        let table = self.0.borrow();
        let asking = table.asking.get();
        let holder = table.entries.iter().find_map(|(id, entry)| Some((*id, entry, entry.candidate.as_ref()?)));
        if let Some((id, entry, candidate)) = holder {
            let error = match Some(id) == asking {
                true => OpError::new(retval::VALUE_EXIST, "this session has a candidate").remedy("`commit' or `discard' ends it"),
                false => {
                    let text = format!("session {id} ({}) has a candidate with {} changes", entry.peer, candidate.count());
                    OpError::new(retval::BUSY, text).remedy(format!("wait for its end, or `clear session {id}'"))
                }
            };
            return Err(error);
        }
        drop(table);
        let begun = self.of_asking(|entry| entry.candidate = Some(Rc::default()));
        begun.ok_or_else(|| OpError::new(retval::UNSUPPORTED, "only a session of the command line or of JSON has a candidate"))
    }

    /// Takes it from the session that asks.
    pub fn take_candidate(&self) -> Option<Rc<Candidate>> {
        self.of_asking(|entry| entry.candidate.take()).flatten()
    }

    /// Gives it to the session that asks.
    pub fn give_candidate(&self, candidate: Rc<Candidate>) {
        self.of_asking(|entry| entry.candidate = Some(candidate));
    }

    fn of_asking<R>(&self, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut table = self.0.borrow_mut();
        let id = table.asking.get()?;
        table.entries.get_mut(&id).map(f)
    }

    /// Clients that got no place so far.
    pub fn refused(&self) -> u64 {
        self.0.borrow().refused
    }
}

impl Table {
    fn end(&mut self, id: u32, end: End) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        entry.end.get_or_insert(end);
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
        true
    }

    /// Finds a place, taking it from a session that is idle if need be.
    fn make_room(&mut self, kind: SessionKind, peer: Peer) -> Result<(), Refused> {
        // One that was told to go still has its place, but not for long.
        let pool = |entry: &&Entry| {
            entry.end.is_none()
                && entry.kind != SessionKind::Terminal
                && (entry.kind == SessionKind::Api) == (kind == SessionKind::Api)
        };
        let count = |which: &dyn Fn(&Entry) -> bool| self.entries.values().filter(pool).filter(|entry| which(entry)).count();
        let (sessions, owner) = (if kind == SessionKind::Api { "API clients" } else { "sessions" }, peer.is_owner());
        let same_process = |entry: &Entry| owner && entry.peer == peer;
        let same_account = |entry: &Entry| entry.peer.shares_with(peer);
        if owner {
            if count(&same_process) >= OF_A_PROCESS {
                return self.displace(&pool, &same_process, OF_A_PROCESS, format!("{sessions} of one process"));
            }
            if count(&|_| true) >= PLACES {
                // The owner may take the place of anybody.
                return self.displace(&pool, &|_| true, PLACES, sessions.to_owned());
            }
            return Ok(());
        }
        if count(&same_account) >= SHARE {
            return self.displace(&pool, &same_account, SHARE, format!("{sessions} of {peer}"));
        }
        if count(&|_| true) >= PLACES - KEPT {
            return self.displace(&pool, &same_account, PLACES - KEPT, sessions.to_owned());
        }
        Ok(())
    }

    /// Ends the one that has been idle longest of those that `which` picks.
    fn displace(
        &mut self,
        pool: &dyn Fn(&&Entry) -> bool,
        which: &dyn Fn(&Entry) -> bool,
        places: usize,
        what: String,
    ) -> Result<(), Refused> {
        let candidates = self.entries.iter().filter(|(_, entry)| pool(entry) && which(entry));
        let idle = candidates.filter(|(_, entry)| entry.active.elapsed() >= GIVES_UP);
        let longest = idle.min_by_key(|(_, entry)| entry.active).map(|(id, _)| *id);
        match longest {
            Some(id) if self.end(id, End::Displaced) => Ok(()),
            _ => Err(Refused { places, what }),
        }
    }
}

/// A session's place. Dropping it gives the place back.
pub struct SessionHandle {
    sessions: Sessions,
    id: u32,
    end: Cell<Option<End>>,
}

impl SessionHandle {
    fn with<R>(&self, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.sessions.0.borrow_mut().entries.get_mut(&self.id).map(f)
    }

    /// Notes what the session does: whether anything came, went or ran just now, what waits to be read, whether an operation runs.
    pub fn note(&self, active: bool, queued: usize, running: bool) {
        self.with(|entry| {
            if active {
                entry.active = Instant::now();
            }
            (entry.queued, entry.running) = (queued, running);
        });
    }

    /// What the session speaks, and who is at the other end.
    pub fn who(&self) -> Option<(SessionKind, Peer)> {
        self.with(|entry| (entry.kind, entry.peer))
    }

    /// Who asks, where this session does.
    pub fn asking(&self) -> Asking {
        Asking { now: Rc::clone(&self.sessions.0.borrow().asking), id: self.id }
    }

    /// Whether its changes are collected.
    pub fn has_candidate(&self) -> bool {
        self.with(|entry| entry.candidate.is_some()).unwrap_or_default()
    }

    /// What the client calls itself.
    pub fn set_name(&self, name: &str) {
        self.with(|entry| name.clone_into(&mut entry.name));
    }

    /// Sets after which time of silence the session ends; none: never.
    pub fn set_idle_timeout(&self, timeout: Option<Duration>) {
        self.with(|entry| entry.idle_timeout = timeout);
    }

    /// How long the session may still be idle.
    pub fn idle_out(&self) -> Option<Duration> {
        self.with(|entry| entry.idle_timeout.map(|timeout| timeout.saturating_sub(entry.active.elapsed()))).flatten()
    }

    /// Why the session is to end, where it is.
    pub fn end(&self) -> Option<End> {
        self.end.get().or_else(|| self.with(|entry| entry.end).flatten())
    }

    /// Makes the session end.
    pub fn dismiss(&self, end: End) {
        self.end.set(Some(end));
    }

    /// Waits until the session is to end.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| {
            let waits = self.with(|entry| {
                entry.waker = Some(cx.waker().clone());
                entry.end.is_none()
            });
            if waits == Some(true) && self.end.get().is_none() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.sessions.0.borrow_mut().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user that is not the owner, whoever runs the tests.
    fn stranger() -> u32 {
        rustix::process::geteuid().as_raw().wrapping_add(1000).max(1)
    }

    fn local(uid: u32, pid: i32) -> Peer {
        Peer::Local { uid, pid }
    }

    fn fill(sessions: &Sessions, kind: SessionKind, peer: Peer, count: usize) -> Vec<SessionHandle> {
        (0..count).map_while(|_| sessions.admit(kind, peer, None).ok()).collect()
    }

    fn age(sessions: &Sessions, by: Duration) {
        for entry in sessions.0.borrow_mut().entries.values_mut() {
            entry.active = entry.active.checked_sub(by).expect("the machine runs for longer");
        }
    }

    #[test]
    fn others_get_a_share_and_the_owner_always_a_place() {
        let sessions = Sessions::default();
        let user = stranger();
        let mut held = fill(&sessions, SessionKind::Cli, local(user, 5), 1000);
        assert_eq!(held.len(), SHARE);
        for other in 1..10 {
            held.extend(fill(&sessions, SessionKind::Json, local(user + other, 5), 1000));
        }
        assert_eq!(held.len(), PLACES - KEPT, "all others together");
        let remote = Peer::Remote(IpAddr::from([10, 0, 0, 1]));
        let error = sessions.admit(SessionKind::Cli, remote, None).err().expect("refused").to_string();
        assert!(error.starts_with("quiver: all 240 places for sessions are taken"), "{error}");
        assert_eq!(fill(&sessions, SessionKind::Cli, local(0, 7), 1000).len(), KEPT);
        assert_eq!(fill(&sessions, SessionKind::Api, remote, 1000).len(), SHARE, "API clients have places of their own");
        drop(held);
        assert!(sessions.list().is_empty() && sessions.refused() > 0);
    }

    #[test]
    fn one_program_of_the_owner_leaves_places_for_the_next() {
        let sessions = Sessions::default();
        let first = fill(&sessions, SessionKind::Cli, local(0, 5), 1000);
        let second = fill(&sessions, SessionKind::Cli, local(0, 6), 1000);
        assert_eq!((first.len(), second.len()), (OF_A_PROCESS, OF_A_PROCESS));
        assert!(sessions.admit(SessionKind::Cli, local(0, 7), None).is_err(), "all are busy");
        age(&sessions, GIVES_UP);
        second.iter().for_each(|handle| handle.note(true, 0, false));
        let third = sessions.admit(SessionKind::Cli, local(0, 7), None);
        assert!(third.is_ok());
        let ended: Vec<_> = first.iter().chain(&second).filter_map(SessionHandle::end).collect();
        assert_eq!((ended, first[0].end()), (vec![End::Displaced], Some(End::Displaced)));
    }

    #[test]
    fn an_account_displaces_only_its_own_idle_sessions() {
        let sessions = Sessions::default();
        let user = stranger();
        let operator = fill(&sessions, SessionKind::Cli, local(0, 1), 1);
        let other = fill(&sessions, SessionKind::Cli, local(user + 1, 1), 1);
        let own = fill(&sessions, SessionKind::Cli, local(user, 1), SHARE);
        age(&sessions, GIVES_UP * 10);
        assert!(sessions.admit(SessionKind::Cli, local(user, 2), None).is_ok());
        assert_eq!((operator[0].end(), other[0].end(), own[0].end()), (None, None, Some(End::Displaced)));
    }

    #[test]
    fn a_session_is_ended_by_its_number_and_wakes() {
        let sessions = Sessions::default();
        let handle = sessions.admit(SessionKind::Api, Peer::Unknown, Some(Duration::from_secs(60))).expect("a place");
        assert!(!sessions.clear(99) && handle.end().is_none() && handle.idle_out().is_some_and(|left| left.as_secs() > 50));
        assert!(sessions.clear(sessions.list()[0].id));
        assert_eq!(handle.end(), Some(End::Cleared));
        futures_lite::future::block_on(handle.ended());
        age(&sessions, Duration::from_secs(61));
        assert_eq!(handle.idle_out(), Some(Duration::ZERO));
    }
}
