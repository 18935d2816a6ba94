//! What the router and its ports ask of the hub.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use quiver_buffer::Region as Buffers;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::{ALARM, Hub, Interface, Memif, Socket, SocketConfig, SocketInfo, TIMER, WAKE};
use crate::memif::inherit::{CANNOT_PASS, Inherited};
use crate::memif::port::MemifPort;
use crate::memif::rx::RxSlot;
use crate::memif::tx::TxSlots;
use crate::memif::{Key, MemifConfig, MemifError, Role, Shared, event, guard, socket};
use crate::rights::Rights;

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
    pub(in crate::memif) fn begin(&self, key: Key) {
        let mut hub = self.0.borrow_mut();
        hub.begin(key);
        hub.set_timer();
    }

    /// Takes an interface up or down: down, it has no connection and makes none.
    pub(in crate::memif) fn set_up(&self, key: Key, up: bool) {
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
    pub(in crate::memif) fn remove(&self, key: Key) {
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
