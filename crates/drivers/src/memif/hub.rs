//! All memif sockets and interfaces of a router, and what happens on their control channels.

mod channel;
mod handle;
mod listen;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_buffer::Region as Buffers;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

use super::background::Background;
use super::memory::{Limits, Regions};
use super::rx::RxSlot;
use super::session::Session;
use super::tx::TxSlots;
use super::zero_copy::Lending;
use super::{Key, MemifConfig, MemifError, Role, Shared};
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

impl Hub {
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

    fn servers(&self) -> usize {
        self.interfaces.values().filter(|i| i.config.role == Role::Server).count()
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
