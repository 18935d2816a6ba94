//! The process that is about to end: it forwards until its successor has everything.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blocking::unblock;
use futures_lite::future::or;
use quiver_command::operation::{Job as _, Step};
use quiver_graph::Hold;
use quiver_graph::reactor::{AsyncFd, Reactor, yield_now};
use quiver_net::Router;
use quiver_net::restart::Round;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use sd_notify::NotifyState;

use super::message::{Message, Opening, PROTOCOL, Wire};
use crate::engine::{Engine, SLICE};
use crate::ops::version::version;
use crate::order::Turn;
use crate::process::Processes;
use crate::server::BoundPath;
use crate::system::System;

/// How long a successor may take for what is done at once.
const SOON: Duration = Duration::from_secs(30);
/// How long it may take at the end, while nobody receives.
const LAST: Duration = Duration::from_secs(5);
/// Pause after an accept that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What is handed over.
pub struct Offer {
    /// Sockets that listen, by path or address.
    pub listeners: Vec<(String, OwnedFd)>,
    /// The lock of the state folder.
    pub state: Option<OwnedFd>,
    /// How long a successor may take to make its configuration.
    pub patience: Duration,
    /// Within this time the supervisor wants to hear from this process.
    pub watchdog: Option<Duration>,
    /// Set when another process has taken over.
    pub taken: Rc<Cell<bool>>,
    /// Set to end the main loop.
    pub stop: Rc<Cell<bool>>,
}

/// Waits for a successor as long as the router runs.
pub fn listen(engine: &Engine<Router>, processes: &Processes<Router>, (listener, bound): (OwnedFd, BoundPath), offer: Offer) {
    let (engine, reactor) = (engine.clone(), Rc::clone(engine.reactor()));
    processes.account("restart-listener", async move {
        let _bound = bound;
        loop {
            if let Err(error) = reactor.readable(listener.as_fd()).await {
                tracing::warn!(target: "startup", "no other process can take over any more: {error}");
                return;
            }
            let socket = match accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
                Err(error) => {
                    tracing::warn!(target: "startup", "cannot speak to another process: {error}");
                    reactor.sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            match serve(&engine, socket, &offer).await {
                // The socket's file is the other process's: nothing is to be taken apart here any more.
                Ok(()) => std::future::pending().await,
                Err(error) => tracing::error!(target: "startup", "this router goes on: no other process takes over: {error}"),
            }
        }
    });
}

/// Whether the other end may take over: this user, or root.
fn is_allowed(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// One conversation.
struct Talk {
    wire: AsyncFd<Wire>,
    reactor: Rc<Reactor>,
}

impl Talk {
    async fn within<T>(&self, time: Duration, what: &str, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let late = async {
            self.reactor.sleep(time).await;
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {} s to {what}", time.as_secs())))
        };
        or(future, late).await
    }

    async fn hear(&self, time: Duration, what: &str) -> io::Result<Message> {
        let next = async { self.wire.read_with(Wire::receive).await };
        match self.within(time, what, next).await? {
            Some((Message::Refused(text), _)) => Err(io::Error::other(text)),
            Some((message, _)) => Ok(message),
            None => Err(io::Error::other(format!("it ended before it could {what}"))),
        }
    }

    async fn expect(&self, wanted: &Message, time: Duration, what: &str) -> io::Result<()> {
        match self.hear(time, what).await? {
            message if message == *wanted => Ok(()),
            other => Err(io::Error::other(format!("it said {other:?} before it could {what}"))),
        }
    }

    async fn say(&self, message: &Message, fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
        self.wire.write_with(|wire| wire.send(message, fds)).await
    }

    /// Another thread fills the file: it may be large.
    async fn say_file(&self, message: &Message, bytes: Vec<u8>) -> io::Result<()> {
        let socket = self.wire.get_ref().as_fd().try_clone_to_owned()?;
        let message = message.clone();
        unblock(move || Wire::new(socket).send_file(&message, &bytes)).await
    }
}

fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

async fn serve(engine: &Engine<Router>, socket: OwnedFd, offer: &Offer) -> io::Result<()> {
    let peer = socket_peercred(&socket)?;
    if !is_allowed(peer.uid.as_raw()) {
        return Err(io::Error::other(format!("user {} may not", peer.uid.as_raw())));
    }
    let reactor = Rc::clone(engine.reactor());
    let talk = Talk { wire: AsyncFd::new(&reactor, Wire::new(socket))?, reactor };
    let turn = match converse(engine, &talk, offer).await {
        Ok(turn) => turn,
        Err(error) => {
            // Nobody may be there any more to read it.
            let _ = talk.wire.get_ref().send(&Message::Refused(error.to_string()), &[]);
            return Err(error);
        }
    };
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    tracing::info!(target: "startup", "process {pid} has taken over");
    let _ = sd_notify::notify(&[NotifyState::MainPid(pid)]);
    offer.taken.set(true);
    offer.stop.set(true);
    // The connection ends with the process: the other one waits for that. Operations wait for ever: what they changed here would be lost.
    std::mem::forget((talk, turn));
    Ok(())
}

/// Gives the turn, which nobody is to get any more.
async fn converse(engine: &Engine<Router>, talk: &Talk, offer: &Offer) -> io::Result<Turn> {
    let (theirs, takes) = match talk.hear(SOON, "say what it is").await? {
        Message::Hello { protocol: PROTOCOL, version, takes } => (version, takes),
        Message::Hello { protocol, version, .. } => {
            return Err(io::Error::other(format!("{version} takes over by protocol {protocol}, this router by {PROTOCOL}")));
        }
        other => return Err(io::Error::other(format!("it said {other:?} in place of what it is"))),
    };
    tracing::info!(target: "startup", "quiver {theirs} prepares to take over; operations wait until then");
    // Nothing is configured from here on: what the new process makes is what is here.
    let turn = async { Ok(engine.turn().await) };
    let turn = talk.within(SOON, "find no operation running", turn).await?;
    let records = configuration(engine).await?;
    let (opening, pages) = {
        let router = engine.control().borrow();
        let pages = router.graph.pools().first().map_or("", |pool| pool.region().pages()).to_owned();
        (Opening { numbers: router.interfaces.numbers_by_name() }, pages)
    };
    let watchdog = offer.watchdog.map_or(0, |time| time.as_micros() as u64);
    let welcome = Message::Welcome { protocol: PROTOCOL, version: version(), pages, watchdog };
    talk.say_file(&welcome, [serde_json::to_vec(&opening)?, records].join(&b'\n')).await?;
    for (name, listener) in &offer.listeners {
        talk.say(&Message::Listener(name.clone()), &[listener.as_fd()]).await?;
    }
    if let Some(lock) = &offer.state {
        talk.say(&Message::State, &[lock.as_fd()]).await?;
    }
    let devices = devices(&engine.control().borrow())?;
    for (key, fds) in devices.into_iter().filter(|(key, _)| is_taken(key, &takes)) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        talk.say(&Message::Device(key), &fds).await?;
    }
    talk.say(&Message::Opened, &[]).await?;
    talk.expect(&Message::Ready, offer.patience, "make its configuration").await?;
    // Most of it ahead, while packets flow: at the end it finds nearly all of it there.
    let ahead = engine.control().borrow_mut().snapshot(Round::Ahead);
    talk.say_file(&Message::Snapshot { since: 0, stopped: 0 }, ahead).await?;
    talk.expect(&Message::Ready, offer.patience, "take up the state").await?;
    let result = last(engine, talk).await;
    if result.is_err() {
        engine.control().borrow_mut().set_hold(Hold::None);
    }
    result.map(|()| turn)
}

/// Nobody receives from here on, until the other process does or this one goes on.
async fn last(engine: &Engine<Router>, talk: &Talk) -> io::Result<()> {
    let (snapshot, since, stopped) = {
        let mut router = engine.control().borrow_mut();
        let stopped = router.graph.clock().now();
        router.set_hold(Hold::Receive);
        let since = wall_clock();
        (router.snapshot(Round::Last), since, stopped)
    };
    talk.wire.get_ref().send_file(&Message::Snapshot { since, stopped }, &snapshot)?;
    talk.expect(&Message::Taken, LAST, "begin").await?;
    // The other process begins when it has read this: should this one have given up meanwhile, both would send. What this one itself would
    // send from here on, such as a hello, could meet the other one's in the same ring.
    engine.control().borrow_mut().set_hold(Hold::All);
    talk.wire.get_ref().send(&Message::Ready, &[])
}

/// The running configuration as records, a line each; what could not be made again at this process's start comes last.
async fn configuration(engine: &Engine<Router>) -> io::Result<Vec<u8>> {
    let mut failed = Vec::new();
    if let Some(journal) = engine.journal() {
        journal.check_holding().map_err(|error| io::Error::other(error.message))?;
        let stored = poll_fn(|context| journal.poll_durable(journal.sequence(), context)).await;
        stored.map_err(|error| io::Error::other(error.message))?;
        failed = journal.failed();
    }
    let mut collect = {
        let router = engine.control().borrow();
        System::of(&router).map_err(|error| io::Error::other(error.message))?.registry.get().collect()
    };
    let configuration = loop {
        let step = collect.step(&mut engine.control().borrow_mut(), SLICE);
        match step {
            Step::Done(Ok(configuration)) => break configuration,
            Step::Done(Err(error)) => return Err(io::Error::other(error.message)),
            _ => yield_now().await,
        }
    };
    let mut bytes = Vec::new();
    let entries = configuration.entries().iter().map(|entry| entry.record());
    for (n, record) in entries.chain(failed).enumerate() {
        serde_json::to_writer(&mut bytes, &record)?;
        bytes.push(b'\n');
        if n % 32 == 31 {
            yield_now().await;
        }
    }
    Ok(bytes)
}

/// Whether the other process knows what this device is made of; else it opens the device itself.
fn is_taken(key: &str, takes: &[String]) -> bool {
    key.split(' ').next().is_some_and(|kind| takes.iter().any(|taken| taken == kind))
}

/// What devices are made of that cannot be opened twice.
fn devices(router: &Router) -> io::Result<Vec<(String, Vec<OwnedFd>)>> {
    let ports = router.interfaces.iter().filter_map(|interface| interface.device.as_ref());
    ports.filter_map(|device| device.port.descriptors().transpose()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_kinds_that_the_other_process_does_not_know_stay_here() {
        let takes = ["tap".to_owned(), "af_xdp-1".to_owned()];
        assert!(is_taken("tap - tap0", &takes) && is_taken("af_xdp-1 eth0", &takes));
        assert!(!is_taken("af_xdp-2 eth0", &takes) && !is_taken("tapper - tap0", &takes) && !is_taken("", &takes));
    }

    #[test]
    fn this_user_and_root_may_take_over() {
        assert!(is_allowed(0) && is_allowed(rustix::process::geteuid().as_raw()));
        assert!(!is_allowed(rustix::process::geteuid().as_raw() + 1));
    }
}
