//! The plugin's part of the router: a reader for each namespace that has a host interface, and what they have to say.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quiver_command::config::Config;
use quiver_drivers::rights::SharedRights;
use quiver_graph::IfIndex;
use quiver_net::restart::{Round, Subject};
use quiver_net::{IfEvent, Router};
use rustix::event::{EventfdFlags, eventfd};

use crate::apply::Applied;
use crate::config::NetlinkConfig;
use crate::figures::Figures;
use crate::fpm::{self, FpmConfig};
use crate::reader::{Change, Command, Ends, Reader};
use crate::restart;
use crate::socket::Socket;

/// Name of the process.
pub(crate) const PROCESS: &str = "linux-nl";
/// Batches that may wait for the main thread.
const BATCHES: usize = 16;
/// What one call of the process may take: processes give the main thread back as often as operations do.
const BUDGET: Duration = Duration::from_micros(50);
/// Changes between two looks at the clock.
const STEP: usize = 8;

/// A network namespace; none: the router's own.
pub type Namespace = Option<String>;

/// The plugin's part of the router.
pub struct LinuxNl {
    pub(crate) config: NetlinkConfig,
    pub(crate) readers: BTreeMap<Namespace, Follower>,
    /// Namespaces whose reader could not start, and why; they are tried again when host interfaces change.
    pub(crate) failed: BTreeMap<Namespace, String>,
    pub(crate) applied: Applied,
    /// Where routing daemons connect to, if anywhere.
    pub(crate) fpm: Option<FpmConfig>,
    /// Results of comparisons that somebody waits for, by their number.
    pub(crate) compared: HashMap<u64, Vec<Comparison>>,
    /// Number of the next comparison or reader.
    next_number: u64,
    generation: u64,
}

/// What a comparison found in a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub namespace: Namespace,
    pub differences: crate::rib::Differences,
    /// Routes that the table had otherwise, or not, or could not take.
    pub table: crate::rib::Differences,
}

/// A reader, as the main thread sees it.
pub(crate) struct Follower {
    /// No other one has it: a namespace that loses its last host interface and gets one again has another reader.
    pub number: u64,
    commands: Sender<Command>,
    batches: Receiver<Vec<Change>>,
    current: std::vec::IntoIter<Change>,
    /// Changes that have come so far.
    received: u64,
    wake: Arc<OwnedFd>,
    waits: Arc<AtomicBool>,
    figures: Arc<Mutex<Figures>>,
    interfaces: HashMap<u32, IfIndex>,
    /// It has been told to end.
    pub ending: bool,
    /// Why no routing daemon can connect.
    pub fpm_failed: Option<String>,
    /// Differences of the table, found in the check that is under way.
    pub checked: crate::rib::Differences,
    /// Times that it was given routes of the process before.
    restores: u64,
}

impl Follower {
    fn start(router: &Router, namespace: &Namespace, config: &NetlinkConfig, fpm: Option<FpmConfig>) -> io::Result<Self> {
        let Sockets { netlink, stream } = sockets(router, namespace)?;
        let socket = Socket::open(netlink, config.receive_buffer)?;
        let (commands, of_main) = mpsc::channel();
        let (to_main, batches) = mpsc::sync_channel(BATCHES);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let waits = Arc::new(AtomicBool::new(false));
        let figures = Arc::new(Mutex::new(Figures::default()));
        let ends = Ends {
            commands: of_main,
            batches: to_main,
            wake: Arc::clone(&wake),
            waits: Arc::clone(&waits),
            signal: router.process_signal(PROCESS),
            figures: Arc::clone(&figures),
            batch: config.batch,
        };
        let reader = Reader::new(socket, ends);
        std::thread::Builder::new().name("linux-nl".to_owned()).spawn(move || reader.run())?;
        let (current, interfaces) = (Vec::new().into_iter(), HashMap::new());
        let checked = crate::rib::Differences::default();
        let (number, ending, fpm_failed) = (0, false, None);
        let mut own = Self {
            number,
            commands,
            batches,
            current,
            received: 0,
            wake,
            waits,
            figures,
            interfaces,
            ending,
            fpm_failed,
            checked,
            restores: 0,
        };
        if let Some(config) = fpm {
            own.listen(fpm::listener(stream, config.address), config);
        }
        Ok(own)
    }

    /// Has the reader listen for a routing daemon.
    fn listen(&mut self, listener: io::Result<TcpListener>, config: FpmConfig) {
        self.command(Command::FpmHold(config.hold));
        match listener {
            Ok(listener) => {
                self.fpm_failed = None;
                self.command(Command::Fpm(Some(listener)));
            }
            Err(error) => {
                tracing::warn!(target: "linux-nl", "FPM: {}: {error}", config.address);
                self.fpm_failed = Some(error.to_string());
            }
        }
    }

    pub(crate) fn command(&self, command: Command) {
        // Where the reader has ended its routes are gone, and nothing is to be told.
        let _ = self.commands.send(command);
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for what the next process needs of the daemon's routes.
    pub(crate) fn save_fpm(&self, round: Round) -> Receiver<Vec<u8>> {
        let (to, saved) = mpsc::sync_channel(1);
        self.command(Command::FpmSave(round, to));
        saved
    }

    /// Gives it what the process before has saved.
    pub(crate) fn restore_fpm(&mut self, bytes: Vec<u8>) {
        self.restores += 1;
        self.command(Command::FpmRestore(bytes));
    }

    /// Whether all that the kernel had is in the router's tables, or none of it will come.
    fn is_settled(&self) -> bool {
        let figures = self.figures();
        let all = figures.comparisons > 0 && !figures.is_comparing && figures.waiting == 0 && figures.restored == self.restores;
        self.ending || figures.failed.is_some() || all && figures.changes == self.received && self.current.len() == 0
    }

    /// The next change; `None` where there is none for now, `Err` where there will be none.
    fn next(&mut self) -> Result<Option<Change>, ()> {
        if let Some(change) = self.current.next() {
            return Ok(Some(change));
        }
        match self.batches.try_recv() {
            Ok(batch) => {
                self.received += batch.len() as u64;
                self.current = batch.into_iter();
                if self.waits.swap(false, Ordering::SeqCst) {
                    self.wake();
                }
                Ok(self.current.next())
            }
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(()),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The reader sees that nobody tells it anything any more, and ends.
        self.commands = mpsc::channel().0;
        self.wake();
    }
}

/// What a namespace is followed with.
struct Sockets {
    netlink: OwnedFd,
    stream: OwnedFd,
}

fn sockets(router: &Router, namespace: &Namespace) -> io::Result<Sockets> {
    Ok(match namespace {
        Some(name) => {
            let fds = router.part::<SharedRights>().cloned().unwrap_or_default().0.namespace(name, 0)?;
            Sockets { netlink: fds.netlink, stream: fds.stream }
        }
        None => Sockets { netlink: Socket::here()?, stream: Socket::stream_here()? },
    })
}

/// Adds the part and the process to the router.
///
/// # Errors
/// A value of the configuration that cannot be used.
pub fn start(router: &mut Router, config: &Config) -> Result<(), String> {
    let config = NetlinkConfig::read(config).map_err(|error| error.to_string())?;
    router.add_part(LinuxNl {
        config,
        readers: BTreeMap::new(),
        failed: BTreeMap::new(),
        applied: Applied::default(),
        fpm: config.fpm,
        compared: HashMap::new(),
        next_number: 0,
        generation: 0,
    });
    router.add_process(PROCESS, process);
    // A process that takes over has the kernel's routes before it forwards: from the kernel, which has them still.
    let ready = |router: &mut Router| {
        let generation = router.host_interfaces().generation();
        let settled = |own: &LinuxNl| own.generation == generation && own.readers.values().all(Follower::is_settled);
        router.part::<LinuxNl>().is_none_or(settled)
    };
    router.add_restart_subject(Subject { ready, ..Subject::new("routes of Linux", 1) });
    restart::init(router);
    router.listen(|router, event| {
        if matches!(event, IfEvent::HostInterface(..)) {
            router.wake_process(PROCESS, 0);
        }
    });
    Ok(())
}

/// One call of the process; says when to call next.
fn process(router: &mut Router, now: u64) -> u64 {
    let Some(mut own) = router.take_part::<LinuxNl>() else { return u64::MAX };
    if own.generation != router.host_interfaces().generation() {
        own.follow(router);
    }
    let again = own.work(router);
    router.add_part(own);
    if again { now } else { u64::MAX }
}

impl LinuxNl {
    /// A number that nothing else has.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Has a reader for each namespace with a host interface, and tells each which interfaces these are.
    fn follow(&mut self, router: &Router) {
        let table = router.host_interfaces();
        self.generation = table.generation();
        let mut wanted: BTreeMap<Namespace, HashMap<u32, IfIndex>> = BTreeMap::new();
        for host in table.iter() {
            wanted.entry(host.namespace.clone()).or_default().insert(host.host_ifindex, host.interface);
        }
        for (namespace, follower) in &mut self.readers {
            if !wanted.contains_key(namespace) && !follower.ending {
                follower.ending = true;
                follower.interfaces.clear();
                follower.command(Command::End);
            }
        }
        self.failed.retain(|namespace, _| wanted.contains_key(namespace));
        for (namespace, interfaces) in wanted {
            if !self.readers.contains_key(&namespace) {
                match Follower::start(router, &namespace, &self.config, self.fpm) {
                    Ok(mut follower) => {
                        self.failed.remove(&namespace);
                        follower.number = self.number();
                        self.readers.insert(namespace.clone(), follower);
                    }
                    Err(error) => {
                        tracing::warn!(target: "linux-nl", "namespace {}: {error}", name(&namespace));
                        self.failed.insert(namespace, error.to_string());
                        continue;
                    }
                }
            }
            // One that is ending withdraws its routes first; then another one starts.
            if let Some(follower) = self.readers.get_mut(&namespace).filter(|f| !f.ending && f.interfaces != interfaces) {
                follower.interfaces.clone_from(&interfaces);
                follower.command(Command::Interfaces(interfaces));
            }
        }
    }

    /// Listens for routing daemons in all namespaces, those to come too, or no longer.
    ///
    /// # Errors
    /// The operating system's, for a namespace that is there; all is as before.
    pub(crate) fn set_fpm(&mut self, router: &Router, new: Option<FpmConfig>) -> io::Result<()> {
        let old = self.fpm.map(|config| config.address);
        let is_listening = |follower: &Follower| follower.fpm_failed.is_none();
        let followers = || self.readers.iter().filter(|(_, follower)| !follower.ending);
        let mut listeners = Vec::new();
        if let Some(config) = new {
            // Connections stay where only the time changes.
            for (namespace, _) in followers().filter(|(_, follower)| old != Some(config.address) || !is_listening(follower)) {
                listeners.push((namespace.clone(), fpm::listener(sockets(router, namespace)?.stream, config.address)?));
            }
        }
        self.fpm = new;
        for follower in self.readers.values_mut() {
            match new {
                Some(config) => follower.command(Command::FpmHold(config.hold)),
                None => {
                    follower.fpm_failed = None;
                    follower.command(Command::Fpm(None));
                }
            }
        }
        for (namespace, listener) in listeners {
            if let (Some(config), Some(follower)) = (new, self.readers.get_mut(&namespace)) {
                follower.listen(Ok(listener), config);
            }
        }
        Ok(())
    }

    /// Makes changes for about [`BUDGET`]; `true` while there is more.
    fn work(&mut self, router: &mut Router) -> bool {
        let start = Instant::now();
        let mut ended = Vec::new();
        for (namespace, follower) in &mut self.readers {
            let mut idle = false;
            while !idle {
                for _ in 0..STEP {
                    match follower.next() {
                        Ok(Some(Change::Compared(number, differences))) => {
                            let table = std::mem::take(&mut follower.checked);
                            let found = Comparison { namespace: namespace.clone(), differences, table };
                            if let Some(all) = self.compared.get_mut(&number) {
                                all.push(found);
                            }
                        }
                        Ok(Some(change)) => self.applied.apply(router, change, &mut follower.checked),
                        Ok(None) => {
                            idle = true;
                            break;
                        }
                        Err(()) => {
                            ended.push(namespace.clone());
                            idle = true;
                            break;
                        }
                    }
                }
                if start.elapsed() >= BUDGET && !idle {
                    return true;
                }
            }
        }
        for namespace in &ended {
            let was_told = self.readers.remove(namespace).is_some_and(|follower| follower.ending);
            if was_told {
                // Perhaps there are interfaces again meanwhile.
                self.generation = u64::MAX;
            } else {
                self.failed.insert(namespace.clone(), "the reader has ended".to_owned());
            }
        }
        !ended.is_empty()
    }
}

/// Figures of all readers.
pub fn figures(router: &Router) -> Vec<(Namespace, Figures)> {
    let readers = router.part::<LinuxNl>().map(|own| own.readers.iter()).into_iter().flatten();
    readers.map(|(namespace, follower)| (namespace.clone(), follower.figures())).collect()
}

/// A namespace's name for people.
pub(crate) fn name(namespace: &Namespace) -> &str {
    namespace.as_deref().unwrap_or("(own)")
}
