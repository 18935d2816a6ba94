//! All memif sockets and interfaces of a router, and what happens on their control channels.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_buffer::Region as Buffers;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::background::{Background, Given, Heard};
use super::connection::Rings;
use super::event;
use super::inherit::{CANNOT_PASS, Connection, Inherited};
use super::memory::{Limits, Regions};
use super::message::{Init, Message};
use super::port::MemifPort;
use super::rx::RxSlot;
use super::session::{self, Means, Session, Step};
use super::socket;
use super::tx::TxSlots;
use super::zero_copy::Lending;
use super::{Key, MemifConfig, MemifError, Role, Shared, guard};
use crate::rights::Rights;

/// How often a client tries to connect, and how often deadlines are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How long a peer may take from its first byte until packets flow.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients of a socket that have not said which interface they want. The oldest goes when there are more.
const STRANGERS: usize = 32;
/// Buffers of a socket's pool for zero-copy: rings of the usual size for half a dozen interfaces.
pub const POOL_BUFFERS: u32 = 16_384;
/// Buffers of such a pool beyond what lies in rings: vectors on their way.
const IN_FLIGHT: usize = 2048;
/// Connections taken from one socket in a row.
const BURST: usize = 64;
/// Things of a socket's peers that wait to be closed: while there are more, it takes no clients.
const BACKLOG_MAX: usize = 256;

/// What is waited for on a control connection: once, until the message has been received.
const CHANNEL: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
const TIMER: u64 = 0;
const WAKE: u64 = 1;
const ALARM: u64 = 2;

/// The sockets and interfaces. Clones are handles of the same; for the main thread only.
#[derive(Clone)]
pub struct Memif(pub(super) Rc<RefCell<Hub>>);

pub(super) struct Hub {
    epoll: OwnedFd,
    timer: OwnedFd,
    ticking: bool,
    wake: Arc<OwnedFd>,
    pub(super) sockets: BTreeMap<u32, Socket>,
    pub(super) interfaces: BTreeMap<Key, Interface>,
    channels: BTreeMap<u64, Channel>,
    changed: BTreeSet<Key>,
    next_token: u64,
    /// Packet memory, for interfaces without copies.
    buffers: Option<Arc<Buffers>>,
    /// Pools whose last buffers are waited for.
    retiring: bool,
    /// Group that may use the sockets.
    group: Option<u32>,
    /// Who has what the process before this one passes on.
    pub(super) rights: Option<Arc<dyn Rights>>,
    notices: Vec<String>,
}

pub(super) struct Socket {
    pub(super) config: SocketConfig,
    pub(super) listener: Option<(u64, OwnedFd)>,
    /// Why it takes no clients for now; until the next tick.
    paused: Option<String>,
    /// The socket that listens is another process's, too, which still takes the clients.
    shared: bool,
    pub(super) lending: Option<Lending>,
    /// Reads its control channels.
    background: Background,
}

impl Socket {
    fn new(config: SocketConfig, wake: &Arc<OwnedFd>) -> Self {
        Self { config, listener: None, paused: None, shared: false, lending: None, background: Background::new(wake.clone()) }
    }
}

/// How to declare a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Where it is: a path, or a name in the abstract namespace for one that begins with `@`.
    pub path: String,
    /// Buffers that its zero-copy interfaces share.
    pub pool_buffers: u32,
    /// What each of its peers may have mapped here.
    pub limits: Limits,
}

impl SocketConfig {
    /// The usual settings.
    pub fn new(path: &str) -> Self {
        Self { path: path.to_owned(), pool_buffers: POOL_BUFFERS, limits: Limits::DEFAULT }
    }
}

/// A control connection.
struct Channel {
    fd: Arc<OwnedFd>,
    /// Since when a message is being received, where one is.
    receiving: Option<Instant>,
    /// Another process still speaks on it: nothing is said or received here.
    held: bool,
    socket: u32,
    session: Session,
    since: Instant,
}

/// An interface as the control side knows it.
pub(super) struct Interface {
    pub config: MemifConfig,
    pub up: bool,
    /// Another process still has the interface: it makes no connection here.
    pub held: bool,
    pub rx: Vec<Arc<RxSlot>>,
    pub tx: Arc<TxSlots>,
    pub shared: Arc<Shared>,
    pub channel: Option<u64>,
    /// Memory of the connection that stands.
    pub regions: Option<Regions>,
    pub remote: String,
    pub remote_interface: String,
    /// Why the last connection ended or could not be made.
    pub reason: String,
}

/// A socket, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// Number.
    pub id: u32,
    /// Whether server interfaces have it listen.
    pub listens: bool,
    /// Its file.
    pub path: String,
    /// Interfaces that use it.
    pub interfaces: usize,
    /// What each of its peers may have mapped here.
    pub limits: Limits,
    /// Why it takes no clients for now.
    pub paused: Option<String>,
    /// What is being received from its peers, or closed that came from them, at this moment.
    pub unfinished: usize,
}

/// Makes an eventfd readable.
pub(super) fn give(event: &OwnedFd) {
    // It can only fail because it is readable already.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Memif {
    /// No interfaces, and socket 0 at `default_path`.
    ///
    /// # Errors
    /// The operating system's: descriptors for events and timers.
    pub fn new(default_path: &str) -> io::Result<Self> {
        Self::with_socket(SocketConfig::new(default_path), None)
    }

    /// [`Memif::new`] with all settings of socket 0, and the group that may use the sockets.
    ///
    /// # Errors
    /// As there.
    pub fn with_socket(default: SocketConfig, group: Option<u32>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let wake = Arc::new(event::new_event()?);
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&epoll, guard::alarm()?, EventData::new_u64(ALARM), EventFlags::IN | EventFlags::ET)?;
        let sockets = BTreeMap::from([(0, Socket::new(default, &wake))]);
        let hub = Hub {
            epoll,
            timer,
            ticking: false,
            wake,
            sockets,
            interfaces: BTreeMap::new(),
            channels: BTreeMap::new(),
            changed: BTreeSet::new(),
            next_token: ALARM + 1,
            buffers: None,
            retiring: false,
            group,
            rights: None,
            notices: Vec::new(),
        };
        Ok(Self(Rc::new(RefCell::new(hub))))
    }

    /// A descriptor that is readable when [`Memif::run`] has something to do.
    ///
    /// # Errors
    /// The operating system's.
    pub fn fd(&self) -> io::Result<OwnedFd> {
        self.0.borrow().epoll.try_clone()
    }

    /// Does what there is to do on all control channels, without waiting, and says which interfaces have changed: their
    /// [`refresh`](quiver_graph::Port::refresh) tells how.
    pub fn run(&self) -> Vec<Key> {
        let mut hub = self.0.borrow_mut();
        hub.events();
        hub.set_timer();
        std::mem::take(&mut hub.changed).into_iter().collect()
    }

    /// What the operator should know since the last call, a line each.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().notices)
    }

    /// Gives it the packet memory, without which there are no zero-copy interfaces.
    pub fn set_buffers(&self, buffers: Arc<Buffers>) {
        self.0.borrow_mut().buffers = Some(buffers);
    }

    /// Gives it what the process before this one passes on.
    pub fn set_rights(&self, rights: Arc<dyn Rights>) {
        self.0.borrow_mut().rights = Some(rights);
    }

    /// Declares a socket. The file is made when a server interface needs it.
    ///
    /// # Errors
    /// Number or file are taken, or the path is impossible.
    pub fn add_socket(&self, id: u32, path: &str) -> Result<(), MemifError> {
        self.add_socket_with(id, SocketConfig::new(path))
    }

    /// [`Memif::add_socket`] with all settings.
    ///
    /// # Errors
    /// As there, and limits that cannot be.
    pub fn add_socket_with(&self, id: u32, config: SocketConfig) -> Result<(), MemifError> {
        let mut hub = self.0.borrow_mut();
        let path = config.path.as_str();
        if id == 0 {
            return Err(MemifError::SocketFixed);
        }
        if !socket::is_possible(path) {
            return Err(MemifError::Path(path.to_owned()));
        }
        if let Some(there) = hub.sockets.get(&id) {
            return Err(MemifError::SocketExists { id, path: there.config.path.clone() });
        }
        if let Some((other, _)) = hub.sockets.iter().find(|(_, s)| s.config.path == path) {
            return Err(MemifError::PathTaken { id: *other, path: path.to_owned() });
        }
        config.limits.check()?;
        let socket = Socket::new(config, &hub.wake);
        hub.sockets.insert(id, socket);
        Ok(())
    }

    /// Removes a socket that no interface uses.
    ///
    /// # Errors
    /// No such socket, socket 0, or one in use.
    pub fn remove_socket(&self, id: u32) -> Result<(), MemifError> {
        let mut hub = self.0.borrow_mut();
        if !hub.sockets.contains_key(&id) {
            return Err(MemifError::NoSocket(id));
        }
        if id == 0 {
            return Err(MemifError::SocketFixed);
        }
        if hub.interfaces.keys().any(|k| k.socket == id) {
            return Err(MemifError::SocketBusy(id));
        }
        hub.sockets.remove(&id);
        Ok(())
    }

    /// All sockets.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        let hub = self.0.borrow();
        let info = |(id, s): (&u32, &Socket)| SocketInfo {
            id: *id,
            listens: s.listener.is_some(),
            path: s.config.path.clone(),
            interfaces: hub.interfaces.keys().filter(|k| k.socket == *id).count(),
            limits: s.config.limits,
            paused: s.paused.clone(),
            unfinished: s.background.unfinished(),
        };
        hub.sockets.iter().map(info).collect()
    }

    /// Makes an interface, down at first. It is gone when the port is dropped.
    ///
    /// # Errors
    /// Settings that cannot be, a number that is taken, or a socket that cannot listen; then nothing has changed.
    pub fn create(&self, config: MemifConfig) -> Result<MemifPort, MemifError> {
        config.check()?;
        let mut hub = self.0.borrow_mut();
        let key = config.key;
        if !hub.sockets.contains_key(&key.socket) {
            return Err(MemifError::NoSocket(key.socket));
        }
        if hub.interfaces.contains_key(&key) {
            return Err(MemifError::Exists { socket: key.socket, id: key.id });
        }
        let of_socket = hub.interfaces.range(Key { id: 0, ..key }..=Key { id: u32::MAX, ..key }).next();
        if let Some((_, other)) = of_socket.filter(|(_, i)| i.config.role != config.role) {
            let role = if other.config.role == Role::Server { "server (master)" } else { "client (slave)" };
            return Err(MemifError::Role { socket: key.socket, role });
        }
        event::prepare().map_err(MemifError::NoSignals)?;
        let system = |error| MemifError::System { what: format!("making {key}"), error };
        let rx = (0..config.rx_queues).map(|_| RxSlot::new().map(Arc::new)).collect::<io::Result<Vec<_>>>().map_err(system)?;
        let mac = match config.mac {
            Some(mac) => mac,
            None => crate::ethernet::default_mac("memif", &key.to_string(), None).map_err(system)?,
        };
        let inherited = hub.inherited(key, config.role, config.mode);
        let held = inherited.is_some();
        let Inherited { listener, connection, lost } = inherited.unwrap_or_default();
        if lost && let Some(rights) = &hub.rights {
            rights.note(key.to_string(), Err(CANNOT_PASS.to_owned()));
        }
        if config.role == Role::Server {
            hub.listen(key.socket, listener)?;
        }
        if config.zero_copy {
            hub.lend(&config)?;
        }
        let shared = Arc::new(Shared { wrong: Default::default(), wake: hub.wake.clone() });
        let interface = Interface {
            rx,
            tx: Arc::new(TxSlots::new()),
            shared,
            up: false,
            held,
            channel: None,
            regions: None,
            remote: String::new(),
            remote_interface: String::new(),
            reason: String::new(),
            config,
        };
        let port = MemifPort::new(self.clone(), &interface, mac);
        hub.interfaces.insert(key, interface);
        if let Some(connection) = connection {
            hub.adopt(key, connection);
            hub.set_timer();
        }
        Ok(port)
    }

    /// Connections of the process before this one that go on here; `None` while the memory of some is not ready.
    pub fn passed(&self) -> Option<usize> {
        let hub = self.0.borrow();
        let held = || hub.channels.values().filter(|channel| channel.held);
        held().all(|channel| channel.session.is_running()).then(|| held().count())
    }

    /// The process before this one has stopped: from now on the interface is this one's.
    pub(super) fn begin(&self, key: Key) {
        let mut hub = self.0.borrow_mut();
        hub.begin(key);
        hub.set_timer();
    }

    /// Takes an interface up or down: down, it has no connection and makes none.
    pub(super) fn set_up(&self, key: Key, up: bool) {
        let mut hub = self.0.borrow_mut();
        let Some(interface) = hub.interfaces.get_mut(&key) else { return };
        if std::mem::replace(&mut interface.up, up) == up {
            return;
        }
        match (up, interface.channel) {
            (false, Some(channel)) => hub.end(channel, Some("interface is down")),
            (true, _) => hub.dial(key),
            _ => {}
        }
        hub.set_timer();
    }

    /// Removes an interface.
    pub(super) fn remove(&self, key: Key) {
        let mut hub = self.0.borrow_mut();
        if let Some(channel) = hub.interfaces.get(&key).and_then(|i| i.channel) {
            hub.end(channel, Some("interface is deleted"));
        }
        hub.interfaces.remove(&key);
        hub.changed.remove(&key);
        if !hub.interfaces.keys().any(|k| k.socket == key.socket) {
            hub.stop_listening(key.socket);
        }
        hub.stop_lending(key.socket);
        hub.set_timer();
    }
}

impl Hub {
    pub(super) fn channel_fd(&self, token: u64) -> Option<i32> {
        self.channels.get(&token).map(|c| c.fd.as_raw_fd())
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Makes the pool of a socket, if there is none yet, and sees to it that it is enough for one more interface.
    fn lend(&mut self, config: &MemifConfig) -> Result<(), MemifError> {
        let id = config.key.socket;
        let others = self.interfaces.iter().filter(|(k, i)| k.socket == id && i.config.zero_copy);
        let wanted = config.ring_slots() + others.map(|(_, i)| i.config.ring_slots()).sum::<usize>() + IN_FLIGHT;
        let Some(socket) = self.sockets.get_mut(&id) else { return Err(MemifError::NoSocket(id)) };
        let pool_buffers = socket.config.pool_buffers;
        if wanted > pool_buffers as usize {
            return Err(MemifError::Pool { socket: id, buffers: pool_buffers, wanted });
        }
        if socket.lending.is_none() {
            let Some(buffers) = self.buffers.clone() else { return Err(MemifError::NoPacketMemory) };
            let pool = buffers.share(pool_buffers).map_err(MemifError::PoolMemory)?;
            socket.lending = Some(Lending { buffers, pool });
        }
        Ok(())
    }

    /// Gives up the pool of a socket that no zero-copy interface uses any more.
    fn stop_lending(&mut self, id: u32) {
        if self.interfaces.iter().any(|(k, i)| k.socket == id && i.config.zero_copy) {
            return;
        }
        if let Some(lending) = self.sockets.get_mut(&id).and_then(|s| s.lending.take()) {
            lending.buffers.retire_shared(&lending.pool);
            self.retiring = lending.buffers.sweep_shared() > 0;
        }
    }

    /// Goes on with a connection of the process before this one, when its memory is ready.
    fn adopt(&mut self, key: Key, connection: Connection) {
        let token = self.token();
        let servers = self.servers();
        let Some(socket) = self.sockets.get(&key.socket) else { return };
        let limits = socket.config.limits.shared_by(servers);
        let (fd, remote, name, memory) = connection.split();
        let session = Session::inherited(key, remote, name);
        let background = socket.background.clone();
        socket.background.prepare(token, Box::new(move || memory.map(limits, &background)));
        let channel = Channel { fd: Arc::new(fd), receiving: None, held: true, socket: key.socket, session, since: Instant::now() };
        self.channels.insert(token, channel);
        if let Some(interface) = self.interfaces.get_mut(&key) {
            interface.channel = Some(token);
        }
    }

    fn begin(&mut self, key: Key) {
        let Some(interface) = self.interfaces.get_mut(&key) else { return };
        if !std::mem::take(&mut interface.held) {
            return;
        }
        let (up, channel) = (interface.up, interface.channel);
        if let Some(socket) = self.sockets.get_mut(&key.socket)
            && std::mem::take(&mut socket.shared)
            && let Some((token, listener)) = &socket.listener
            && let Err(error) = epoll::add(&self.epoll, listener, EventData::new_u64(*token), EventFlags::IN)
        {
            // The next tick tries again.
            socket.paused = Some(error.to_string());
        }
        if let Some((token, channel)) = channel.and_then(|token| Some((token, self.channels.get_mut(&token)?)))
            && std::mem::take(&mut channel.held)
        {
            let watched = epoll::add(&self.epoll, &*channel.fd, EventData::new_u64(token), CHANNEL);
            let end = if up { watched.err().map(|error| error.to_string()) } else { Some("interface is down".to_owned()) };
            if let Some(reason) = end {
                self.end(token, Some(&reason));
            }
        }
        self.dial(key);
    }

    /// The file of a channel on which packets flow.
    pub(super) fn running_channel(&self, token: u64) -> Option<&OwnedFd> {
        self.channels.get(&token).filter(|c| c.session.is_running()).map(|c| &*c.fd)
    }

    fn servers(&self) -> usize {
        self.interfaces.values().filter(|i| i.config.role == Role::Server).count()
    }

    /// Has a socket listen, by what the process before this one listened with where that is there.
    fn listen(&mut self, id: u32, inherited: Option<OwnedFd>) -> Result<(), MemifError> {
        let token = self.token();
        let Some(socket) = self.sockets.get_mut(&id) else { return Err(MemifError::NoSocket(id)) };
        if socket.listener.is_some() {
            return Ok(());
        }
        if let Some(listener) = inherited {
            (socket.listener, socket.shared) = (Some((token, listener)), true);
            return Ok(());
        }
        let path = &socket.config.path;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => MemifError::Listening(path.clone()),
            _ => MemifError::System { what: format!("listening at {path}"), error },
        };
        let background = &socket.background;
        let listener = socket::listener(path, self.group, |fd| background.discard(fd)).map_err(failed)?;
        epoll::add(&self.epoll, &listener, EventData::new_u64(token), EventFlags::IN).map_err(|e| failed(e.into()))?;
        socket.listener = Some((token, listener));
        Ok(())
    }

    fn stop_listening(&mut self, id: u32) {
        let strangers: Vec<u64> = self.channels.iter().filter(|(_, c)| c.socket == id).map(|(t, _)| *t).collect();
        for token in strangers {
            self.end(token, Some("socket is closed"));
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.paused = None;
        if std::mem::take(&mut socket.shared) {
            // It goes on in the other process.
            socket.listener = None;
        }
        if let Some((_, listener)) = socket.listener.take() {
            let _ = epoll::delete(&self.epoll, &listener);
            if !socket.config.path.starts_with('@') {
                // Somebody may have removed it already.
                let _ = std::fs::remove_file(&socket.config.path);
            }
            if !socket::close_listener(&listener, |fd| socket.background.discard(fd)) {
                socket.background.discard(listener);
            }
        }
    }

    /// Takes what epoll has.
    fn events(&mut self) {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let n = epoll::wait(&self.epoll, &mut events, Some(&now)).unwrap_or(0);
        for event in &events[..n] {
            match event.data.u64() {
                TIMER => {
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    self.tick();
                }
                WAKE => {
                    let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
                    self.end_wrong();
                    self.hear();
                }
                ALARM => self.end_lost(),
                token => {
                    let listener = self.sockets.iter().find(|(_, s)| s.listener.as_ref().is_some_and(|l| l.0 == token));
                    match listener.map(|(id, _)| *id) {
                        Some(id) => self.accept(id),
                        None => self.receive(token, { event.flags }.contains(EventFlags::HUP)),
                    }
                }
            }
        }
    }

    /// Takes the clients that wait at a socket.
    fn accept(&mut self, id: u32) {
        for _ in 0..BURST {
            let Some(socket) = self.sockets.get(&id) else { return };
            let Some((_, listener)) = &socket.listener else { return };
            let background = socket.background.clone();
            if background.backlog() > BACKLOG_MAX {
                return self.pause(id, "what its peers have sent cannot be closed".into());
            }
            let fd = match socket::accept(listener) {
                Ok(fd) => fd,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => continue,
                Err(error) => return self.pause(id, error.to_string()),
            };
            if socket::send(&fd, &session::hello(), None).is_err() {
                background.discard(fd);
                continue;
            }
            let strangers = |c: &Channel| c.socket == id && c.session.key.is_none();
            if self.channels.values().filter(|c| strangers(c)).count() >= STRANGERS
                && let Some(oldest) = self.channels.iter().find(|(_, c)| strangers(c)).map(|(token, _)| *token)
            {
                self.end(oldest, Some("too many connections"));
            }
            self.add_channel(fd, id, Session::server());
        }
    }

    /// Takes no clients at a socket until the next tick: whoever waits would be announced again at once, and in vain.
    fn pause(&mut self, id: u32, reason: String) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Some((_, listener)) = &socket.listener else { return };
        let _ = epoll::delete(&self.epoll, listener);
        if socket.paused.is_none() {
            self.notices.push(format!("socket {id} ({}) cannot take a client: {reason}", socket.config.path));
        }
        socket.paused = Some(reason);
    }

    /// Tries again where clients wait.
    fn resume(&mut self) {
        let paused: Vec<u32> = self.sockets.iter().filter(|(_, s)| s.paused.is_some()).map(|(id, _)| *id).collect();
        for id in paused {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let Some((token, listener)) = &socket.listener else { continue };
            let _ = epoll::add(&self.epoll, listener, EventData::new_u64(*token), EventFlags::IN);
            // Where it fails again, that is no news.
            let before = self.notices.len();
            socket.paused = None;
            self.accept(id);
            self.notices.truncate(before);
        }
    }

    fn add_channel(&mut self, fd: OwnedFd, socket: u32, session: Session) -> Option<u64> {
        let token = self.token();
        let fd = Arc::new(fd);
        if epoll::add(&self.epoll, &*fd, EventData::new_u64(token), CHANNEL).is_err() {
            self.sockets.get(&socket)?.background.discard(fd);
            return None;
        }
        self.channels.insert(token, Channel { fd, receiving: None, held: false, socket, session, since: Instant::now() });
        Some(token)
    }

    /// Client: tries to connect.
    fn dial(&mut self, key: Key) {
        let Some(interface) = self.interfaces.get(&key) else { return };
        if interface.config.role != Role::Client || !interface.up || interface.held || interface.channel.is_some() {
            return;
        }
        let Some(socket) = self.sockets.get(&key.socket) else { return };
        let dialled = socket::dial(&socket.config.path);
        let channel = match dialled {
            Ok(fd) => self.add_channel(fd, key.socket, Session::client(key)),
            Err(error) => {
                self.note(key, &format!("cannot connect: {error}"));
                None
            }
        };
        if let Some(interface) = self.interfaces.get_mut(&key) {
            interface.channel = channel;
        }
    }

    fn note(&mut self, key: Key, reason: &str) {
        if let Some(interface) = self.interfaces.get_mut(&key) {
            reason.clone_into(&mut interface.reason);
        }
    }

    /// Has the message received that waits on a control connection.
    fn receive(&mut self, token: u64, hung_up: bool) {
        let Some(channel) = self.channels.get_mut(&token) else { return };
        let Some(socket) = self.sockets.get(&channel.socket) else { return };
        if hung_up && socket.background.is_saturated() {
            // Nobody may have time for its last words.
            self.note_end(token, "peer is gone");
            return self.end(token, None);
        }
        channel.receiving = Some(Instant::now());
        socket.background.receive(token, channel.fd.clone());
    }

    /// Takes the messages that were received.
    fn hear(&mut self) {
        let all: Vec<_> = self.sockets.values().flat_map(|s| s.background.heard()).collect();
        for (token, heard) in all {
            // Not where the connection has ended meanwhile.
            let Some(channel) = self.channels.get_mut(&token) else { continue };
            match heard {
                // No message was received: one may just be.
                Heard::Prepared(result) => {
                    let step = result.map(|rings| channel.session.prepared(*rings)).map_err(str::to_owned);
                    self.follow(token, step);
                    continue;
                }
                Heard::Bytes(bytes, given) => self.message(token, &bytes, given),
                Heard::Nothing => {}
                Heard::End => {
                    self.note_end(token, "peer is gone");
                    self.end(token, None);
                }
            }
            if let Some(channel) = self.channels.get_mut(&token) {
                channel.receiving = None;
                let _ = epoll::modify(&self.epoll, &*channel.fd, EventData::new_u64(token), CHANNEL);
            }
        }
    }

    fn message(&mut self, token: u64, bytes: &[u8], given: Option<Given>) {
        let servers = self.servers();
        let Some(channel) = self.channels.get_mut(&token) else { return };
        let Some(socket) = self.sockets.get(&channel.socket) else { return };
        let config = channel.session.key.and_then(|k| self.interfaces.get(&k)).map(|i| &i.config);
        let means = Means {
            config,
            lending: socket.lending.as_ref().filter(|_| config.is_some_and(|c| c.zero_copy)),
            limits: socket.config.limits.shared_by(servers),
            background: &socket.background,
        };
        let step = match Message::parse(bytes) {
            Ok(message) => channel.session.on(message, given, &means),
            Err(error) => Err(error.to_string()),
        };
        self.follow(token, step);
    }

    /// Does what a session asks for, or ends it.
    fn follow(&mut self, token: u64, step: Result<Step, String>) {
        if let Err(reason) = step.and_then(|step| self.do_step(token, step)) {
            self.note_end(token, &reason);
            self.end(token, Some(&reason));
        }
    }

    /// Does what a session asks for. `Err`: what to tell the peer before the end.
    fn do_step(&mut self, token: u64, step: Step) -> Result<(), String> {
        match step {
            Step::Wait => Ok(()),
            Step::Send(message, fd) => self.send(token, &message, fd.as_ref().map(OwnedFd::as_fd)),
            Step::Wants(init) => {
                let answer = self.give_interface(token, &init)?;
                self.send(token, &answer, None)
            }
            Step::Prepare(work) => {
                let background = self.channels.get(&token).and_then(|c| self.sockets.get(&c.socket)).map(|s| &s.background);
                if let Some(background) = background {
                    background.prepare(token, work);
                }
                Ok(())
            }
            Step::Stands(rings, remote) => {
                let key = self.channels.get(&token).and_then(|c| c.session.key).ok_or("no interface")?;
                self.connected(token, key, rings, remote);
                self.send(token, &Message::Connected(key.to_string()), None)
            }
            Step::Runs(rings, remote) => {
                let key = self.channels.get(&token).and_then(|c| c.session.key).ok_or("no interface")?;
                self.connected(token, key, rings, remote);
                Ok(())
            }
            Step::Ended(reason) => {
                self.note_end(token, &format!("peer says: {reason}"));
                self.end(token, None);
                Ok(())
            }
        }
    }

    fn send(&mut self, token: u64, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), String> {
        let Some(channel) = self.channels.get(&token) else { return Ok(()) };
        socket::send(&channel.fd, message, fd).map_err(|error| format!("cannot send: {error}"))
    }

    /// Server: finds the interface that a client wants.
    fn give_interface(&mut self, token: u64, init: &Init) -> Result<Message, String> {
        let Some(channel) = self.channels.get_mut(&token) else { return Err("gone".into()) };
        let key = Key { socket: channel.socket, id: init.id };
        let interface = self.interfaces.get_mut(&key).ok_or("unknown interface id")?;
        if !interface.up {
            return Err("interface is down".into());
        }
        if interface.channel.is_some() {
            return Err("interface is connected already".into());
        }
        let answer = channel.session.accept(init, &interface.config)?;
        interface.channel = Some(token);
        Ok(answer)
    }

    /// Hands the rings to the queues: packets may flow.
    fn connected(&mut self, token: u64, key: Key, mut rings: Rings, remote_interface: String) {
        let Some(interface) = self.interfaces.get_mut(&key) else { return };
        rings.begin();
        let Rings { regions, rx, tx } = rings;
        let mut shares: Vec<Vec<_>> = interface.rx.iter().map(|_| Vec::new()).collect();
        let queues = shares.len();
        rx.into_iter().enumerate().for_each(|(k, ring)| shares[k % queues].push(ring));
        interface.rx.iter().zip(shares).for_each(|(slot, rings)| drop(slot.exchange(rings)));
        drop(interface.tx.exchange(tx));
        interface.regions = Some(regions);
        interface.remote_interface = remote_interface;
        interface.reason.clear();
        let _ = interface.shared.take();
        if let Some(channel) = self.channels.get(&token) {
            if let Some(rights) = self.rights.as_ref().filter(|_| channel.held) {
                rights.note(key.to_string(), Ok(()));
            }
            interface.remote.clone_from(&channel.session.remote);
        }
        self.changed.insert(key);
        self.wake_caller();
    }

    fn note_end(&mut self, token: u64, reason: &str) {
        if let Some(key) = self.channels.get(&token).and_then(|c| c.session.key) {
            self.note(key, reason);
        }
    }

    /// Ends a control connection and all that came with it.
    fn end(&mut self, token: u64, reason: Option<&str>) {
        let Some(channel) = self.channels.remove(&token) else { return };
        if let (Some(rights), true, Some(reason), Some(key)) = (&self.rights, channel.held, reason, channel.session.key) {
            rights.note(key.to_string(), Err(reason.to_owned()));
        }
        if let Some(reason) = reason
            && !channel.held
        {
            let _ = socket::send(&channel.fd, &Message::Disconnect { code: 0, reason: reason.to_owned() }, None);
        }
        let _ = epoll::delete(&self.epoll, &*channel.fd);
        let (key, background) = (channel.session.key, self.sockets.get(&channel.socket).map(|s| &s.background));
        // What it was told and has not read yet, and memory that it was about to share.
        if let Some(background) = background {
            background.discard(channel);
        }
        let Some(key) = key else { return };
        let Some(interface) = self.interfaces.get_mut(&key).filter(|i| i.channel == Some(token)) else { return };
        interface.channel = None;
        interface.remote.clear();
        interface.remote_interface.clear();
        if let Some(reason) = reason
            && interface.reason.is_empty()
        {
            reason.clone_into(&mut interface.reason);
        }
        interface.rx.iter().for_each(|slot| drop(slot.exchange(Vec::new())));
        drop(interface.tx.exchange(Vec::new()));
        if interface.regions.take().is_some() {
            self.changed.insert(key);
            self.wake_caller();
        }
    }

    /// Has [`Memif::run`] called, for changes that come about outside of it.
    fn wake_caller(&self) {
        give(&self.wake);
    }

    /// Ends connections whose peer broke the rules in shared memory.
    fn end_wrong(&mut self) {
        let wrong = |(key, i): (&Key, &Interface)| Some((*key, i.shared.take()?, i.channel?));
        let all: Vec<_> = self.interfaces.iter().filter_map(wrong).collect();
        for (key, reason, channel) in all {
            self.note(key, reason);
            self.end(channel, Some(reason));
        }
    }

    /// Ends connections whose memory has vanished.
    fn end_lost(&mut self) {
        let lost = |i: &Interface| i.regions.as_ref().is_some_and(|r| r.iter().any(super::memory::Region::is_lost));
        let all: Vec<_> = self.interfaces.iter().filter(|(_, i)| lost(i)).filter_map(|(k, i)| Some((*k, i.channel?))).collect();
        for (key, channel) in all {
            self.note(key, "peer took its memory away");
            self.end(channel, Some("memory is gone"));
        }
    }

    /// Half a second has passed.
    fn tick(&mut self) {
        let late = |c: &&Channel| !c.session.is_running() && c.since.elapsed() > PATIENCE;
        let late: Vec<u64> = self.channels.iter().filter(|(_, c)| late(c)).map(|(token, _)| *token).collect();
        for token in late {
            self.note_end(token, "peer did not answer in time");
            self.end(token, Some("too slow"));
        }
        let stuck = |c: &&Channel| c.receiving.is_some_and(|since| since.elapsed() > PATIENCE);
        let stuck: Vec<u64> = self.channels.iter().filter(|(_, c)| stuck(c)).map(|(token, _)| *token).collect();
        for token in stuck {
            self.note_end(token, "what the peer has sent cannot be closed");
            self.end(token, Some("descriptor cannot be closed"));
        }
        self.sockets.values().filter(|s| s.background.backlog() > 0).for_each(|s| s.background.attend());
        self.resume();
        let keys: Vec<Key> = self.interfaces.keys().copied().collect();
        keys.into_iter().for_each(|key| self.dial(key));
        self.retiring = self.retiring && self.buffers.as_ref().is_some_and(|b| b.sweep_shared() > 0);
    }

    /// Ticks only while something is waited for.
    fn set_timer(&mut self) {
        let waits = |i: &Interface| i.config.role == Role::Client && i.up && !i.held && i.channel.is_none();
        let busy = |s: &Socket| s.paused.is_some() || s.background.backlog() > 0;
        let unfinished = |c: &Channel| !c.session.is_running() || c.receiving.is_some();
        let wanted = self.retiring
            || self.interfaces.values().any(waits)
            || self.channels.values().any(unfinished)
            || self.sockets.values().any(busy);
        if wanted == self.ticking {
            return;
        }
        let time = |d: Duration| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() };
        let period = time(if wanted { TICK } else { Duration::ZERO });
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: period, it_value: period });
        if set.is_ok() {
            self.ticking = wanted;
        }
    }
}
