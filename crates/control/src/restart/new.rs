//! The process that takes over: it builds everything beside the one that forwards.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quiver_command::change_log::Record;
use quiver_drivers::fast_path::FastPathFds;
use quiver_drivers::rights::{INHERITABLE, NamespaceFds, RedirectFds, Rights};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::message::{Message, Opening, PROTOCOL, Wire, read_file};
use crate::ops::version::version;

/// How long the other process may take for each message.
const SOON: Duration = Duration::from_secs(60);

/// A router that forwards, and what it has handed over so far.
pub struct Predecessor {
    wire: Wire,
    /// Its version, for people.
    pub version: String,
    /// Kind of pages of its packet memory.
    pub pages: String,
    /// Within this time the supervisor wants to hear from the router.
    pub watchdog: Option<Duration>,
    /// Numbers of its interfaces by the names that they began with.
    pub numbers: HashMap<String, u32>,
    /// Its running configuration.
    pub records: Vec<Record>,
    /// Sockets that listen, by path or address.
    pub listeners: HashMap<String, OwnedFd>,
    /// The lock of the state folder.
    pub state: Option<OwnedFd>,
    /// What devices are made of.
    pub devices: Devices,
    /// What came of them.
    pub notes: Notes,
}

/// What came of devices of the other process: passed on as they were, or why they begin anew.
pub type Notes = Arc<Mutex<Vec<(String, Result<(), String>)>>>;

/// What devices of the other process are made of, by the keys of their drivers.
pub type Devices = Arc<Mutex<HashMap<String, Vec<OwnedFd>>>>;

/// A snapshot, and when its writer stopped receiving.
pub struct Sent {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// By the wall clock, ns; 0: it still receives.
    pub since: u64,
    /// By the monotonic clock, ns.
    pub stopped: u64,
}

impl Predecessor {
    /// Meets the router that listens at `path`; `None` where there is none.
    ///
    /// # Errors
    /// It is there and says no, or something that cannot be understood.
    pub fn meet(path: &Path) -> io::Result<Option<Self>> {
        let wire = match Wire::connect(path) {
            Ok(wire) => wire,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => return Ok(None),
            Err(error) => return Err(error),
        };
        set_socket_timeout(&wire, Timeout::Recv, Some(SOON))?;
        wire.send(&Message::Hello { protocol: PROTOCOL, version: version(), takes: INHERITABLE.map(str::to_owned).into() }, &[])?;
        let (welcome, fds) = hear(&wire)?;
        let Message::Welcome { protocol: PROTOCOL, version, pages, watchdog } = welcome else {
            return Err(unexpected(&welcome));
        };
        let bytes = read_file(fds)?;
        let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let Opening { numbers } = serde_json::from_slice(lines.next().unwrap_or_default())?;
        let records = lines.map(serde_json::from_slice).collect::<Result<Vec<Record>, _>>()?;
        let (mut listeners, mut state, mut devices) = (HashMap::new(), None, HashMap::new());
        loop {
            let (message, mut fds) = hear(&wire)?;
            match message {
                Message::Listener(name) => listeners.extend(fds.pop().map(|fd| (name, fd))),
                Message::State => state = fds.pop(),
                Message::Device(key) => drop(devices.insert(key, fds)),
                Message::Opened => break,
                other => return Err(unexpected(&other)),
            }
        }
        let watchdog = Some(Duration::from_micros(watchdog)).filter(|time| !time.is_zero());
        let devices = Arc::new(Mutex::new(devices));
        Ok(Some(Self { wire, version, pages, watchdog, numbers, records, listeners, state, devices, notes: Notes::default() }))
    }

    /// Says that what there is to do before the next snapshot is done, and waits for that.
    ///
    /// # Errors
    /// The other process is gone, or has changed its mind.
    pub fn next(&self) -> io::Result<Sent> {
        self.wire.send(&Message::Ready, &[])?;
        self.snapshot()
    }

    /// Waits for a snapshot.
    ///
    /// # Errors
    /// The other process is gone, or has changed its mind.
    fn snapshot(&self) -> io::Result<Sent> {
        let (message, fds) = hear(&self.wire)?;
        let Message::Snapshot { since, stopped } = message else { return Err(unexpected(&message)) };
        Ok(Sent { bytes: read_file(fds)?, since, stopped })
    }

    /// Says that this process receives from now on. One that ends in this moment leaves everything to this one, too.
    ///
    /// # Errors
    /// The other process goes on itself.
    pub fn take(&self) -> io::Result<()> {
        let _ = self.wire.send(&Message::Taken, &[]);
        match self.wire.receive() {
            Ok(Some((Message::Refused(text), _))) => Err(io::Error::other(text)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::Error::other("the router that runs says nothing")),
            _ => Ok(()),
        }
    }

    /// Tells the other process why this one does not take over.
    pub fn decline(&self, why: &str) {
        let _ = self.wire.send(&Message::Refused(why.to_owned()), &[]);
    }

    /// Waits until the other process has ended, or the time has run out.
    pub fn wait_for_end(&self) {
        // Any message would be one of its last words.
        while matches!(self.wire.receive(), Ok(Some(_))) {}
    }
}

fn hear(wire: &Wire) -> io::Result<(Message, Vec<OwnedFd>)> {
    match wire.receive() {
        Ok(Some((Message::Refused(text), _))) => Err(io::Error::other(text)),
        Ok(Some(heard)) => Ok(heard),
        Ok(None) => Err(io::Error::other("the router that runs has ended")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::Error::other("the router that runs says nothing")),
        Err(error) => Err(error),
    }
}

fn unexpected(message: &Message) -> io::Error {
    io::Error::other(format!("the router that runs said {message:?}"))
}

/// Rights, and the descriptors of the process before this one.
pub struct Inheriting {
    /// Does the rest.
    pub inner: Arc<dyn Rights>,
    /// What is taken over.
    pub devices: Devices,
    /// What came of it.
    pub notes: Notes,
}

impl Rights for Inheriting {
    fn namespace(&self, namespace: &str, queues: u32) -> io::Result<NamespaceFds> {
        self.inner.namespace(namespace, queues)
    }

    fn redirect(&self, queues: u32) -> io::Result<RedirectFds> {
        self.inner.redirect(queues)
    }

    fn fast_path(&self) -> io::Result<FastPathFds> {
        self.inner.fast_path()
    }

    fn inherited(&self, device: &str) -> Option<Vec<OwnedFd>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).remove(device)
    }

    fn note(&self, what: String, result: Result<(), String>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push((what, result));
    }
}
