//! The thread that follows the kernel in a namespace.
//!
//! ```text
//!   socket ──► Message ──► Rib, Mirrors ──► changes, in batches ──► bounded channel ──► main thread
//!                                              ▲                          │
//!                                              └── room again (eventfd) ──┘
//! ```
//!
//! The thread never waits for the main thread with the socket unread: what the channel does not take stays marked in the tables,
//! where a route that changes ten times meanwhile is one change.
//!
//! *Comparison.* At the start, when the socket has overflowed, when asked, and a moment after something that makes the kernel
//! remove routes without a word (a link or an address that goes, a next-hop object), all lists are dumped and compared. If the socket
//! overflows again meanwhile, all begins anew; a list that the kernel calls interrupted is read once more.
//!
//! A list is asked for when the socket has been read empty, for three reasons. After an overflow the kernel drops everything, without
//! another word about it, until the socket is empty. What still waits is older than the list, and may be wrong: what takes it back was
//! lost. And a socket without room can lose the answer to the request. Announcements may still get in between, so a list counts from its
//! first message on; and where the socket is empty again and the list has not ended, its answer was lost, and the comparison begins anew.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quiver_graph::IfIndex;
use quiver_net::ProcessSignal;
use quiver_net::restart::Round;
use quiver_wire::IpPrefix;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::figures::Figures;
use crate::fpm::Fpm;
use crate::message::{Envelope, Envelopes, Message, NeighborState, flag};
use crate::rib::{Differences, Keyed, Mirror, Rib, RouteChange};
use crate::schedule::Schedule;
use crate::socket::{List, Read, Socket};

/// Datagrams between two looks at commands and changes.
const READS: usize = 64;
/// How often a list is read again that the kernel calls interrupted, before what came is taken for the list.
const INTERRUPTIONS: u32 = 5;

/// What the main thread is to change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A route.
    Route(RouteChange),
    /// A neighbour; none: it has gone.
    Neighbor(IfIndex, IpAddr, Option<NeighborState>),
    /// An address is there, or has gone.
    Address(IfIndex, (IpAddr, u8), bool),
    /// State of a link.
    Link(IfIndex, LinkChange),
    /// A route that should be in the table as said: look.
    Expect(RouteChange),
    /// The comparison with this number is done.
    Compared(u64, Differences),
}

/// What is followed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Administratively up.
    pub up: bool,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// The table of its VRF; 0: none.
    pub table: u32,
}

/// What has changed of a link. When an interface gets its counterpart the router's own settings stand, but for the VRF: later changes
/// are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkChange {
    /// Administratively up.
    pub up: Option<bool>,
    /// Largest packet, bytes.
    pub mtu: Option<u32>,
    /// The table of its VRF; 0: none.
    pub table: Option<u32>,
}

impl LinkChange {
    fn new(before: Option<LinkState>, now: LinkState) -> Option<Self> {
        let table = Some(now.table).filter(|table| *table != before.map_or(0, |b| b.table));
        let change = match before {
            None => Self { table, ..Self::default() },
            Some(before) => {
                Self { up: Some(now.up).filter(|up| *up != before.up), mtu: Some(now.mtu).filter(|mtu| *mtu != before.mtu), table }
            }
        };
        (change != Self::default()).then_some(change)
    }
}

/// What the main thread tells the reader.
#[derive(Debug)]
pub enum Command {
    /// Interfaces of the router by the host's index.
    Interfaces(HashMap<u32, IfIndex>),
    /// Compare with the kernel; with a number: check the router's table too, and say when it is done.
    Compare(Option<u64>),
    /// Listen for a routing daemon, or no longer.
    Fpm(Option<TcpListener>),
    /// How long its routes stay without it.
    FpmHold(Duration),
    /// Say what another process needs that takes over.
    FpmSave(Round, SyncSender<Vec<u8>>),
    /// Take up what the process before has saved.
    FpmRestore(Vec<u8>),
    /// Withdraw all and end.
    End,
    /// Stand still until the other end is dropped.
    #[cfg(test)]
    Hold(Receiver<()>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AddressKey(u32, IpAddr, u8);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NeighborKey(u32, IpAddr);
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LinkKey(u32);

impl Keyed for AddressKey {
    fn link(&self) -> u32 {
        self.0
    }
}
impl Keyed for NeighborKey {
    fn link(&self) -> u32 {
        self.0
    }
}
impl Keyed for LinkKey {
    fn link(&self) -> u32 {
        self.0
    }
}

/// The main thread's side of the channels.
pub struct Ends {
    /// Commands.
    pub commands: Receiver<Command>,
    /// Batches of changes.
    pub batches: SyncSender<Vec<Change>>,
    /// Wakes the reader.
    pub wake: Arc<OwnedFd>,
    /// The reader waits for room in the channel.
    pub waits: Arc<AtomicBool>,
    /// Wakes the main thread.
    pub signal: ProcessSignal,
    /// What is shown of it.
    pub figures: Arc<Mutex<Figures>>,
    /// Changes in a batch.
    pub batch: usize,
}

/// The reader of a namespace.
pub struct Reader {
    socket: Socket,
    ends: Ends,
    rib: Rib,
    fpm: Fpm,
    links: Mirror<LinkKey, LinkState>,
    addresses: Mirror<AddressKey, ()>,
    neighbors: Mirror<NeighborKey, NeighborState>,
    dump: Option<Dump>,
    /// When to compare.
    schedule: Schedule,
    /// The kernel has announced routes since the last look.
    announced: bool,
    /// Compare once more after this comparison.
    compare_again: bool,
    /// Comparisons that were asked for by number.
    wanted: Vec<u64>,
    /// Routes of the router's table that are still to be checked.
    expected: Vec<(u32, IpPrefix)>,
    finished: Vec<u64>,
    held: Option<Vec<Change>>,
    sequence: u32,
    ending: bool,
    figures: Figures,
}

/// A dump under way.
struct Dump {
    list: usize,
    /// The kernel has been asked for the list.
    asked: bool,
    /// The first message of the list has come.
    replied: bool,
    /// Announcements were lost since it began.
    overrun: bool,
    interrupted: bool,
    tries: u32,
    started: Instant,
}

impl Dump {
    fn begin(started: Instant) -> Self {
        Self { list: 0, asked: false, replied: false, overrun: false, interrupted: false, tries: 0, started }
    }
}

/// The kernel postpones a list: it sends it as the socket is read (ENOBUFS), or it still sends another one (EBUSY).
fn is_put_off(message: &Message) -> bool {
    matches!(message, Message::Error(error) if [Errno::NOBUFS, Errno::BUSY].iter().any(|e| e.raw_os_error() == error.wrapping_neg()))
}

/// What to do after a round.
enum Next {
    Go,
    Wait,
    End,
}

impl Reader {
    /// A reader on a socket that has been opened.
    pub fn new(socket: Socket, ends: Ends) -> Self {
        let figures = Figures { receive_buffer: socket.receive_buffer(), ..Figures::default() };
        let mut schedule = Schedule::default();
        schedule.at_once(Instant::now());
        Self {
            socket,
            ends,
            rib: Rib::default(),
            fpm: Fpm::default(),
            links: Mirror::default(),
            addresses: Mirror::default(),
            neighbors: Mirror::default(),
            dump: None,
            schedule,
            announced: false,
            compare_again: false,
            wanted: Vec::new(),
            expected: Vec::new(),
            finished: Vec::new(),
            held: None,
            sequence: 0,
            ending: false,
            figures,
        }
    }

    /// Follows the kernel until it is told to end, or the socket fails.
    pub fn run(mut self) {
        loop {
            let next = match self.round() {
                Ok(Next::Wait) => self.wait().map(|()| Next::Go),
                next => next,
            };
            match next {
                Ok(Next::Go | Next::Wait) => {}
                Ok(Next::End) => break,
                Err(error) => {
                    tracing::error!(target: "linux-nl", "the kernel is no longer followed, its routes go: {error}");
                    self.figures.failed = Some(error.to_string());
                    if self.ending {
                        break;
                    }
                    self.take(Command::End);
                }
            }
        }
        self.publish();
        // The main thread sees that the channel has ended.
        let signal = self.ends.signal.clone();
        drop(self);
        signal.raise();
    }

    fn round(&mut self) -> io::Result<Next> {
        loop {
            match self.ends.commands.try_recv() {
                Ok(command) => self.take(command),
                Err(TryRecvError::Empty) => break,
                // The router has gone.
                Err(TryRecvError::Disconnected) => return Ok(Next::End),
            }
        }
        let mut drained = false;
        for _ in 0..READS {
            if self.ending {
                break;
            }
            match self.socket.read()? {
                Read::Datagram(n) => self.datagram(n),
                Read::Overrun => {
                    self.figures.overruns += 1;
                    match &mut self.dump {
                        Some(dump) => dump.overrun = true,
                        None => self.schedule.at_once(Instant::now()),
                    }
                }
                Read::Empty => {
                    drained = true;
                    break;
                }
            }
        }
        if std::mem::take(&mut self.announced) {
            self.schedule.announced(Instant::now());
        }
        let asked = drained && self.ask()?;
        let pushed = !self.ending && self.fpm.round(&mut self.rib);
        let empty = self.ending || drained && !asked && !pushed;
        let blocked = self.send();
        self.publish();
        Ok(match (empty, blocked) {
            (_, false) if self.ending && !self.has_changes() => Next::End,
            (true, true) => Next::Wait,
            (true, false) if !self.has_changes() => Next::Wait,
            _ => Next::Go,
        })
    }

    fn has_changes(&self) -> bool {
        let mirrors = self.links.is_dirty() || self.addresses.is_dirty() || self.neighbors.is_dirty();
        let checks = !self.expected.is_empty() || !self.finished.is_empty();
        self.held.is_some() || self.rib.is_dirty() || mirrors || checks
    }

    fn wait(&self) -> io::Result<()> {
        let compare_at = self.schedule.due().filter(|_| self.dump.is_none());
        let timeout = compare_at.into_iter().chain(self.fpm.deadline()).min().map(|at| {
            let rest = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) }
        });
        let own = [self.ends.wake.as_fd(), self.socket.fd().as_fd()];
        let fds = own.into_iter().chain(self.fpm.fds());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&*self.ends.wake, &mut [0_u8; 8]);
        }
        Ok(())
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Interfaces(interfaces) => {
                self.rib.set_interfaces(interfaces);
                self.links.look_again();
                self.addresses.look_again();
                self.neighbors.look_again();
            }
            Command::Compare(number) => {
                self.wanted.extend(number);
                match self.dump {
                    Some(_) => self.compare_again = true,
                    None => self.schedule.at_once(Instant::now()),
                }
            }
            Command::Fpm(listener) => self.fpm.listen(listener, &mut self.rib),
            Command::FpmHold(hold) => self.fpm.set_hold(hold),
            // Where nobody waits for it any more it came too late.
            Command::FpmSave(round, to) => drop(to.try_send(self.fpm.save(&self.rib, round))),
            Command::FpmRestore(bytes) => {
                self.fpm.restore(&bytes, &mut self.rib);
                self.figures.restored += 1;
            }
            #[cfg(test)]
            Command::Hold(until) => drop(until.recv()),
            Command::End => {
                self.ending = true;
                self.dump = None;
                self.fpm.listen(None, &mut self.rib);
                self.rib.clear();
                self.neighbors.clear();
                // Addresses and state of the router's interfaces stay as they are.
                self.links = Mirror::default();
                self.addresses = Mirror::default();
                self.expected.clear();
                for number in std::mem::take(&mut self.wanted) {
                    self.finished.push(number);
                }
            }
        }
    }

    /// Asks for the next list if one is due; `true` if it asked. The socket is empty: the kernel continues a list each time the socket is
    /// read, so it is sending none now.
    fn ask(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        if self.dump.as_ref().is_some_and(|dump| dump.asked) {
            self.dump = None;
            self.schedule.suspect(now);
        }
        if self.dump.is_none() {
            if self.schedule.due().is_none_or(|at| at > now) {
                return Ok(false);
            }
            self.schedule.begin();
            self.rib.begin_comparison();
            self.dump = Some(Dump::begin(now));
        }
        self.request().map(|()| true)
    }

    fn request(&mut self) -> io::Result<()> {
        let Some(dump) = &mut self.dump else { return Ok(()) };
        dump.asked = true;
        dump.replied = false;
        let Some(list) = List::ALL.get(dump.list) else { return Ok(()) };
        if matches!(list, List::NextHops | List::Routes4 | List::Routes6) {
            self.rib.begin_list();
        }
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.socket.request(*list, self.sequence)
    }

    /// A message of the list that was asked for; the first one begins it.
    fn reply(&mut self, is_interrupted: bool) {
        let Some(dump) = &mut self.dump else { return };
        dump.interrupted |= is_interrupted;
        if std::mem::replace(&mut dump.replied, true) {
            return;
        }
        match List::ALL.get(dump.list) {
            Some(List::Links) => self.links.begin_dump(),
            Some(List::Addresses) => self.addresses.begin_dump(),
            Some(List::Neighbors) => self.neighbors.begin_dump(),
            // Begun when it was asked for.
            Some(List::NextHops | List::Routes4 | List::Routes6) | None => {}
        }
    }

    fn datagram(&mut self, n: usize) {
        // The bytes are taken out for the time in which tables change.
        let bytes = self.socket.bytes(n).to_vec();
        for envelope in Envelopes::new(&bytes) {
            self.figures.messages += 1;
            let Ok(envelope) = envelope else {
                self.figures.malformed += 1;
                break;
            };
            match Message::parse(&envelope) {
                Ok(message) => self.message(&envelope, message),
                Err(_) => self.figures.malformed += 1,
            }
        }
    }

    fn message(&mut self, envelope: &Envelope<'_>, message: Message) {
        // An announcement has the number of the request that made the change, which may be the same.
        let is_part = envelope.flags & flag::MULTI != 0 || matches!(message, Message::Error(_));
        let from_dump = self.dump.as_ref().is_some_and(|dump| dump.asked) && envelope.sequence == self.sequence && is_part;
        if from_dump && is_put_off(&message) {
            return;
        }
        if from_dump {
            self.reply(envelope.flags & flag::DUMP_INTERRUPTED != 0);
        }
        self.announced |= !from_dump && matches!(message, Message::Route(_) | Message::RouteGone(_));
        match message {
            Message::Route(route) => self.rib.add(&route, envelope.flags, from_dump),
            Message::RouteGone(route) => self.rib.remove(&route),
            Message::Link(link) => {
                if self.rib.link_is_up(link.index) && !(link.up && link.carrier) {
                    self.suspect();
                }
                let index = link.index;
                self.rib.set_link(link);
                // Those that belong to it may have been listed before it.
                for link in self.rib.link_and_members(index) {
                    let state = LinkState { up: link.up, mtu: link.mtu, table: self.rib.vrf_of(link).unwrap_or(0) };
                    self.links.set(LinkKey(link.index), Some(state));
                }
            }
            Message::LinkGone(link) => {
                self.rib.remove_link(link);
                self.links.set(LinkKey(link), None);
                self.suspect();
            }
            Message::Address { link, address: (address, len), is_there } => {
                self.addresses.set(AddressKey(link, address, len), is_there.then_some(()));
                if !is_there {
                    self.suspect();
                }
            }
            Message::Neighbor { link, address, state } => self.neighbors.set(NeighborKey(link, address), state),
            Message::NextHop(id, object) => self.rib.set_object(id, object),
            Message::NextHopGone(id) => {
                self.rib.remove_object(id);
                self.suspect();
            }
            Message::Done => {
                if from_dump {
                    self.list_ends(true);
                }
            }
            Message::Error(error) => {
                if from_dump && error != 0 {
                    let list = self.dump.as_ref().and_then(|dump| List::ALL.get(dump.list));
                    tracing::warn!(target: "linux-nl", "the kernel does not list {list:?}: error {}", error.wrapping_neg());
                    self.list_ends(false);
                }
            }
            Message::Other => {}
        }
    }

    /// Something has happened that removes routes without a word.
    fn suspect(&mut self) {
        match self.dump {
            Some(_) => self.compare_again = true,
            None => self.schedule.suspect(Instant::now()),
        }
    }

    fn list_ends(&mut self, is_whole: bool) {
        let Some(dump) = &mut self.dump else { return };
        dump.asked = false;
        if dump.overrun {
            self.dump = None;
            self.schedule.at_once(Instant::now());
            return;
        }
        if std::mem::take(&mut dump.interrupted) && dump.tries < INTERRUPTIONS {
            dump.tries += 1;
            return;
        }
        if dump.tries >= INTERRUPTIONS {
            self.compare_again = true;
        }
        dump.tries = 0;
        let list = List::ALL.get(dump.list).copied();
        dump.list += 1;
        if is_whole {
            match list {
                Some(List::Links) => self.links.sweep(),
                Some(List::Addresses) => self.addresses.sweep(),
                Some(List::Neighbors) => self.neighbors.sweep(),
                Some(List::NextHops) => self.rib.sweep_objects(),
                Some(List::Routes4) => self.rib.sweep_routes(false),
                Some(List::Routes6) => self.rib.sweep_routes(true),
                None => {}
            }
        }
        if self.dump.as_ref().is_some_and(|dump| dump.list < List::ALL.len()) {
            return;
        }
        let started = self.dump.take().map(|dump| dump.started);
        self.figures.dump_time = started.map_or(Duration::ZERO, |at| at.elapsed());
        self.figures.comparisons += 1;
        // The first one is the beginning.
        let differences = if self.figures.comparisons > 1 { self.rib.differences().clone() } else { Differences::default() };
        if differences.missing + differences.extra > 0 {
            let Differences { missing, extra, .. } = differences;
            tracing::info!(target: "linux-nl", "compared with the kernel: {missing} routes were missing, {extra} were too many");
        }
        self.figures.differences = differences;
        if std::mem::take(&mut self.compare_again) {
            self.schedule.suspect(Instant::now());
        } else if !self.wanted.is_empty() {
            self.finished.append(&mut self.wanted);
            self.expected.clear();
            // What the table is told now comes before, in order.
            self.figures.checking = true;
        }
    }

    /// Sends changes while the channel takes them; `true` where it is full.
    fn send(&mut self) -> bool {
        loop {
            let batch = match self.held.take() {
                Some(batch) => batch,
                None => self.batch(),
            };
            if batch.is_empty() {
                return false;
            }
            let changes = batch.len() as u64;
            self.ends.waits.store(true, Ordering::SeqCst);
            match self.ends.batches.try_send(batch) {
                Ok(()) => {
                    self.ends.waits.store(false, Ordering::SeqCst);
                    self.figures.changes += changes;
                    self.ends.signal.raise();
                }
                Err(TrySendError::Full(batch)) => {
                    self.held = Some(batch);
                    return true;
                }
                // The router has gone: the next look at commands says so.
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
    }

    fn batch(&mut self) -> Vec<Change> {
        let mut batch = Vec::new();
        let rib = &mut self.rib;
        while batch.len() < self.ends.batch {
            if let Some((_, before, now)) = self.links.change(|link| rib.interface(link)) {
                let change = now.and_then(|(interface, now)| {
                    let before = before.filter(|(old, _)| *old == interface).map(|(_, state)| state);
                    Some(Change::Link(interface, LinkChange::new(before, now)?))
                });
                batch.extend(change);
            } else if let Some((key, before, now)) = self.addresses.change(|link| rib.interface(link)) {
                let address = (key.1, key.2);
                batch.extend(before.map(|(interface, ())| Change::Address(interface, address, false)));
                batch.extend(now.map(|(interface, ())| Change::Address(interface, address, true)));
            } else if let Some((key, before, now)) = self.neighbors.change(|link| rib.interface(link)) {
                let moved = before.filter(|(old, _)| now.is_none_or(|(new, _)| new != *old));
                batch.extend(moved.map(|(interface, _)| Change::Neighbor(interface, key.1, None)));
                batch.extend(now.map(|(interface, state)| Change::Neighbor(interface, key.1, Some(state))));
            } else if let Some(change) = rib.change() {
                batch.push(Change::Route(change));
            } else if self.figures.checking && self.expected.is_empty() && !self.finished.is_empty() {
                self.figures.checking = false;
                self.expected = rib.all_told().collect();
            } else if let Some((table, prefix)) = self.expected.pop() {
                // As it was told by now: it may have changed since the check began.
                batch.extend(rib.told_of(table, prefix).map(Change::Expect));
            } else if let Some(number) = self.finished.pop() {
                batch.push(Change::Compared(number, self.figures.differences.clone()));
            } else {
                break;
            }
        }
        batch
    }

    fn publish(&mut self) {
        let figures = &mut self.figures;
        figures.by_protocol.clone_from(self.rib.by_protocol());
        figures.told = self.rib.told();
        figures.special = self.rib.special();
        figures.objects = self.rib.objects();
        figures.refused = self.rib.refused();
        figures.neighbors = self.neighbors.count();
        figures.addresses = self.addresses.count();
        figures.is_comparing = self.dump.is_some();
        figures.waiting = self.rib.waiting();
        figures.fpm = self.fpm.figures(&self.rib);
        *self.ends.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures.clone();
    }
}

#[cfg(test)]
mod tests;
