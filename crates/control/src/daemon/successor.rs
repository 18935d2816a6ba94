//! Both ends of a restart without an outage, as the daemon has them: what it gets from the process before it, and what it offers to the
//! next one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use blocking::unblock;
use quiver_command::change_log::Record;
use quiver_command::operation::Live;
use quiver_drivers::rights::Rights;
use quiver_graph::Hold;
use quiver_graph::reactor::Reactor;
use quiver_net::Router;

use super::StartError;
use super::pidfile::PidFile;
use super::privileges::Wish;
use crate::journal::{Journal, replay};
use crate::log;
use crate::restart::new::{Inheriting, Predecessor};
use crate::restart::old::Offer;
use crate::restart::{Began, message, take_over};
use crate::server::{Admission, BindError, BoundPath, Owner, StatsListener, listen_tcp, socket};

/// The socket on which a router waits for its successor.
const SOCKET: &str = "restart.sock";

/// Takes clients.
pub type Serve = Box<dyn FnOnce() -> io::Result<()>>;

/// What a router gets from the one before it and offers to the next one.
pub struct Succession {
    /// The router that forwards, where one is to be taken over from.
    pub predecessor: Option<Arc<Predecessor>>,
    /// What is taken out of it before it is shared.
    listeners: std::collections::HashMap<String, OwnedFd>,
    lock: Option<OwnedFd>,
    records: Vec<Record>,
    cold_because: Option<String>,
    /// Names of what was passed on.
    passed: Vec<String>,
    /// Set when this process has taken over: its sockets are its own.
    has_taken: Rc<Cell<bool>>,
    /// Set when another process has taken over from this one.
    is_taken: Rc<Cell<bool>>,
    /// Why this process does not take over.
    failure: Rc<RefCell<Option<String>>>,
    /// Sockets to be offered.
    offered: Vec<(String, OwnedFd)>,
    /// Lock of the state folder, to be offered.
    pub state: Option<OwnedFd>,
}

fn failed(error: &io::Error) -> StartError {
    StartError::TakeOver(error.to_string())
}

impl Succession {
    /// Meets the router that runs, where it is to be taken over from.
    pub fn begin(runtime_dir: &Path, wanted: bool) -> Result<Self, StartError> {
        let path = runtime_dir.join(SOCKET);
        let mut predecessor = if wanted { Predecessor::meet(&path).map_err(|error| failed(&error))? } else { None };
        let cold_because = (wanted && predecessor.is_none()).then(|| format!("no router waits on {}", path.display()));
        if let Some(reason) = &cold_because {
            tracing::warn!(target: "startup", "nothing to take over, a cold start: {reason}");
        }
        let taken = predecessor
            .as_mut()
            .map(|old| (std::mem::take(&mut old.listeners), old.state.take(), std::mem::take(&mut old.records)));
        let (listeners, lock, records) = taken.unwrap_or_default();
        Ok(Self {
            predecessor: predecessor.map(Arc::new),
            listeners,
            lock,
            records,
            cold_because,
            passed: Vec::new(),
            has_taken: Rc::default(),
            is_taken: Rc::default(),
            failure: Rc::default(),
            offered: Vec::new(),
            state: None,
        })
    }

    fn inherited(&mut self, name: &str) -> Option<OwnedFd> {
        let fd = self.listeners.remove(name)?;
        self.passed.push(name.to_owned());
        Some(fd)
    }

    fn offer_socket(&mut self, name: String, socket: &impl AsFd) {
        // Without descriptors to spare the next process makes its own, when this one has ended.
        self.offered.extend(socket.as_fd().try_clone_to_owned().ok().map(|fd| (name, fd)));
    }

    /// A Unix socket: that of the process before, or a new one.
    pub fn unix(
        &mut self,
        path: &Path,
        listen: impl FnOnce() -> Result<(UnixListener, BoundPath), BindError>,
    ) -> Result<(UnixListener, BoundPath), BindError> {
        let name = path.display().to_string();
        let (listener, bound) = match self.inherited(&name) {
            Some(fd) => (UnixListener::from(fd), BoundPath::inherited(path, &self.has_taken)),
            None => listen()?,
        };
        self.offer_socket(name, &listener);
        Ok((listener, bound))
    }

    /// A Unix socket of datagrams: that of the process before, or a new one.
    pub fn datagram(
        &mut self,
        path: &Path,
        bind: impl FnOnce() -> Result<(UnixDatagram, BoundPath), BindError>,
    ) -> Result<(UnixDatagram, BoundPath), BindError> {
        let name = path.display().to_string();
        let (socket, bound) = match self.inherited(&name) {
            Some(fd) => (UnixDatagram::from(fd), BoundPath::inherited(path, &self.has_taken)),
            None => bind()?,
        };
        self.offer_socket(name, &socket);
        Ok((socket, bound))
    }

    /// A TCP port: that of the process before, or a new one.
    pub fn tcp(&mut self, host: &str, port: u16) -> Result<TcpListener, BindError> {
        let name = format!("{host} port {port}");
        let listener = match self.inherited(&name) {
            Some(fd) => TcpListener::from(fd),
            None => listen_tcp(host, port)?,
        };
        self.offer_socket(name, &listener);
        Ok(listener)
    }

    /// The socket of the statistics: that of the process before, or a new one.
    pub fn stats(&mut self, path: &Path, owner: Owner, admission: Admission) -> Result<StatsListener, BindError> {
        let name = path.display().to_string();
        let listener = match self.inherited(&name) {
            Some(fd) => StatsListener::inherited(fd, BoundPath::inherited(path, &self.has_taken), admission),
            None => StatsListener::bind(path, owner, admission)?,
        };
        self.offer_socket(name, &listener);
        Ok(listener)
    }

    /// The socket on which the next process asks: for this user and root alone.
    pub fn restart(&mut self, folder: &Path, wish: &Wish) -> Result<(OwnedFd, BoundPath), BindError> {
        let path: PathBuf = folder.join(SOCKET);
        let name = path.display().to_string();
        let (listener, bound) = match self.inherited(&name) {
            Some(fd) => (fd, BoundPath::inherited(&path, &self.has_taken)),
            None => {
                let probe = || message::Wire::connect(&path).and_then(|wire| wire.as_fd().try_clone_to_owned());
                let bound = socket::bind(&path, wish.owner, probe, || message::listener(&path))?;
                socket::set_mode(&path, 0o600)?;
                bound
            }
        };
        self.offer_socket(name, &listener);
        Ok((listener, bound))
    }

    /// The lock of the state folder, where the process before has it.
    pub fn lock(&mut self) -> Option<OwnedFd> {
        self.lock.take()
    }

    /// Rights with which drivers find the devices of the process before.
    pub fn inherit(&self, rights: Arc<dyn Rights>) -> Arc<dyn Rights> {
        match &self.predecessor {
            Some(old) => Arc::new(Inheriting { inner: rights, devices: Arc::clone(&old.devices), notes: Arc::clone(&old.notes) }),
            None => rights,
        }
    }

    /// Leaves packets to the process before.
    pub fn hold(&self, router: &mut Router) -> Result<(), StartError> {
        let Some(old) = &self.predecessor else { return Ok(()) };
        let pages = router.graph.pools().first().map_or("", |pool| pool.region().pages());
        if pages != old.pages {
            let text = format!("its packet memory is on {} pages and none are left for a second one, only {pages}", old.pages);
            old.decline(&text);
            return Err(StartError::TakeOver(text));
        }
        router.set_hold(Hold::All);
        router.interfaces.reserve_numbers(old.numbers.clone());
        Ok(())
    }

    /// How this process began, as far as is known.
    pub fn began(&self, offered: bool) -> Began {
        Began { warm: None, cold_because: self.cold_because.clone(), offered }
    }

    /// The records to make again: those of the process before, and of its journal what its configuration does not say.
    pub fn records(&mut self, of_journal: Vec<Record>, covered: &BTreeSet<&'static str>) -> Vec<Record> {
        if self.predecessor.is_none() {
            return of_journal;
        }
        let mut records = std::mem::take(&mut self.records);
        let uncovered = of_journal.into_iter().filter(|record| !covered.contains(record.operation.as_str()));
        let new: Vec<Record> = uncovered.filter(|record| !records.iter().any(|other| record.is(other))).collect();
        records.extend(new);
        records
    }

    /// What the next process gets; nothing where none may take over.
    pub fn offer(&mut self, patience: Option<Duration>, watchdog: Option<Duration>, stop: &Rc<Cell<bool>>) -> Option<Offer> {
        Some(Offer {
            listeners: std::mem::take(&mut self.offered),
            state: self.state.take(),
            patience: patience?,
            watchdog,
            taken: Rc::clone(&self.is_taken),
            stop: Rc::clone(stop),
        })
    }

    /// What is to be done when the configuration is made.
    pub fn taking(&mut self, serve: Serve, pidfile: Option<PidFile>, stop: &Rc<Cell<bool>>) -> Taking {
        Taking {
            predecessor: self.predecessor.clone(),
            serve,
            pidfile,
            passed: std::mem::take(&mut self.passed),
            has_taken: Rc::clone(&self.has_taken),
            failure: Rc::clone(&self.failure),
            stop: Rc::clone(stop),
        }
    }

    /// The main loop has ended. Where another process has taken over, nothing is taken apart: that has all that would be.
    ///
    /// # Errors
    /// This process was to take over and does not.
    pub fn end(&self) -> Result<(), StartError> {
        if self.is_taken.get() {
            tracing::info!(target: "startup", "stopped: another process forwards");
            log::flush(super::LAST_WORDS);
            exit(0);
        }
        self.failure.take().map_or(Ok(()), |text| Err(StartError::TakeOver(text)))
    }
}

/// The moment at which a process takes over, and what follows.
pub struct Taking {
    predecessor: Option<Arc<Predecessor>>,
    serve: Serve,
    pidfile: Option<PidFile>,
    passed: Vec<String>,
    has_taken: Rc<Cell<bool>>,
    failure: Rc<RefCell<Option<String>>>,
    stop: Rc<Cell<bool>>,
}

impl Taking {
    /// Takes over; gives what could not be made, even after the end of the process before. `None`: that one goes on.
    pub async fn run(
        self,
        router: &Rc<RefCell<Router>>,
        registry: &Live<Router>,
        reactor: &Rc<Reactor>,
        waiting: Vec<Record>,
        journal: Option<&Journal>,
    ) -> Option<Vec<Record>> {
        let predecessor = self.predecessor?;
        let mut warm = match take_over(router, reactor, &predecessor).await {
            Ok(warm) => warm,
            Err(error) => {
                self.failure.replace(Some(error.to_string()));
                self.stop.set(true);
                return None;
            }
        };
        self.has_taken.set(true);
        warm.descriptors = self.passed;
        if let Some(journal) = journal {
            journal.begin();
        }
        let written = self.pidfile.map(|mut file| {
            let filled = file.fill();
            // It goes with the router.
            router.borrow_mut().add_part(file);
            filled
        });
        for error in [(self.serve)().err(), written.and_then(Result::err)].into_iter().flatten() {
            tracing::error!(target: "startup", "after taking over: {error}");
        }
        // What it alone could have, such as devices that are opened once, is free when it has ended.
        let (devices, notes) = (Arc::clone(&predecessor.devices), Arc::clone(&predecessor.notes));
        unblock(move || predecessor.wait_for_end()).await;
        warm.retried = waiting.len();
        let failed = if waiting.is_empty() { waiting } else { replay(router, registry, reactor, waiting).await };
        warm.failed = failed.len();
        // Devices that were made only now; what nobody asked for goes.
        router.borrow_mut().begin_ports();
        devices.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for (what, result) in std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner)) {
            match result {
                Ok(()) => warm.descriptors.push(what),
                Err(why) => warm.anew.push(format!("{what}: {why}")),
            }
        }
        let ms = warm.outage as f64 / 1e6;
        tracing::info!(target: "startup", "taken over from quiver {}: nobody received for {ms:.3} ms", warm.version);
        for restored in &warm.restored {
            if let Err(why) = &restored.result {
                tracing::warn!(target: "startup", "{} begin anew: {why}", restored.subject);
            }
        }
        let mut router = router.borrow_mut();
        let began = router.take_part::<Began>().unwrap_or_default();
        router.add_part(Began { warm: Some(warm), ..began });
        Some(failed)
    }
}
