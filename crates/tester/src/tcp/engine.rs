//! Both ends of all connections, and when connections open. It knows no ports: a test can carry the packets as well.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

use super::End;
use super::account::Account;
use super::ends::{Client, Server};
use super::profile::Profile;
use super::stack::{Manners, Segments, Stack};
use crate::latency::histogram;
use crate::random::{Alias, Random};
use crate::stateful::connections::{Connections, Ends, FourTuple, Order, PortRange};

/// Connections that are opened in one turn at most, and looked after: what has come must have its turn.
const OPENED: usize = 16;
const TICKED: usize = 64;
/// Four-tuples that are tried for a connection while those of earlier ones are still in use.
const TRIES: u64 = 64;
/// How late a connection may still be opened, ns; later ones are not.
const GRACE: u64 = 10_000_000;

/// An engine that several threads use.
pub type Shared = Arc<Mutex<Engine>>;

/// Locks an engine.
pub fn lock(engine: &Mutex<Engine>) -> MutexGuard<'_, Engine> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When connections open, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Connections a second.
    pub rate: f64,
    /// When the first one opens, ns of the tester's time.
    pub start: u64,
    /// For how long, ns.
    pub duration: u64,
    /// Connections that may be open at once.
    pub most_open: usize,
    /// How long an end waits for an answer, ns.
    pub timeout: u64,
    /// Seed of kinds, four-tuples and sequence numbers.
    pub seed: u64,
}

/// Four-tuples of a kind of connections, one after the other.
struct Tuples {
    all: Connections,
    next: u64,
}

/// Both ends.
pub struct Engine {
    profile: Arc<Profile>,
    course: Course,
    clients: Stack<Client>,
    servers: Stack<Server>,
    account: Account,
    tuples: Vec<Tuples>,
    kinds: Alias,
    random: Random,
    intended: u64,
    /// Number of the next connection.
    next: u64,
    not_opened: u64,
    late: Histogram<u64>,
    most_open: usize,
    /// Packets that came and were no segments.
    foreign: u64,
}

impl Engine {
    /// For a profile.
    ///
    /// # Errors
    /// Its addresses and ports cannot be.
    pub fn new(profile: Arc<Profile>, course: Course) -> Result<Self, String> {
        let tuples = |port| {
            let ends = Ends {
                initiators: profile.clients,
                responders: profile.servers,
                initiator_ports: profile.client_ports,
                responder_ports: PortRange { first: port, last: port },
            };
            Ok(Tuples { all: Connections::new(ends, Order::Random, course.seed ^ u64::from(port))?, next: 0 })
        };
        let manners = Manners {
            window: profile.window as usize,
            congestion: profile.congestion,
            mtu: profile.mtu.into(),
            timeout: course.timeout,
        };
        let mut random = Random::new(course.seed);
        Ok(Self {
            clients: Stack::new(profile.clients.first(), manners, random.next_u64()),
            servers: Stack::new(profile.servers.first(), manners, random.next_u64()),
            account: Account::new(profile.connections.len()),
            tuples: profile.connections.iter().map(|t| tuples(t.port)).collect::<Result<_, String>>()?,
            kinds: Alias::new(profile.connections.iter().map(|t| t.share)),
            random,
            intended: (course.rate * course.duration as f64 / 1e9).ceil() as u64,
            next: 0,
            not_opened: 0,
            late: histogram(),
            most_open: 0,
            foreign: 0,
            profile,
            course,
        })
    }

    /// Takes an IP packet that has come to an end.
    pub fn take(&mut self, end: End, packet: &[u8], now: u64) {
        let taken = match end {
            End::Client => self.clients.take(packet, now, &mut self.account, |_| None),
            End::Server => {
                let profile = &self.profile;
                let accept = |tuple: &FourTuple| Some(Server::new(profile.clone(), profile.of_port(tuple.src_port)?));
                self.servers.take(packet, now, &mut self.account, accept)
            }
        };
        self.foreign += u64::from(!taken);
    }

    /// Opens the connections that are due, and looks after those whose time has come; whether there was anything to do.
    pub fn turn(&mut self, now: u64) -> bool {
        let opened = self.open_due(now);
        let ticked = self.clients.tick(now, TICKED, &mut self.account) + self.servers.tick(now, TICKED, &mut self.account);
        self.most_open = self.most_open.max(self.clients.open());
        opened + ticked > 0
    }

    fn open_due(&mut self, now: u64) -> usize {
        let mut opened = 0;
        while self.next < self.intended && opened < OPENED {
            let due = self.course.start + (self.next as f64 * 1e9 / self.course.rate) as u64;
            if now < due {
                break;
            }
            if now >= self.course.start + self.course.duration + GRACE {
                self.not_opened += self.intended - self.next;
                self.next = self.intended;
                break;
            }
            self.next += 1;
            self.late.saturating_record(now - due);
            if self.clients.open() >= self.course.most_open || !self.open(now) {
                self.not_opened += 1;
            }
            opened += 1;
        }
        opened
    }

    /// Opens a connection of a kind that is drawn; not where its four-tuples are all in use.
    fn open(&mut self, now: u64) -> bool {
        let kind = self.kinds.draw(&mut self.random);
        let Tuples { all, next } = &mut self.tuples[kind];
        for _ in 0..TRIES {
            let tuple = all.tuple(*next % all.total());
            *next += 1;
            if !self.clients.has(&tuple) {
                // Counted first: its end may come with its beginning.
                let client = Client::new(self.profile.clone(), kind, now);
                self.account.of(kind).counts.opened += 1;
                return self.clients.connect(tuple, client, now, &mut self.account);
            }
        }
        false
    }

    /// Packets that an end has to send.
    pub fn outgoing(&mut self, end: End) -> &mut VecDeque<Vec<u8>> {
        match end {
            End::Client => self.clients.outgoing(),
            End::Server => self.servers.outgoing(),
        }
    }

    /// Whether all connections were opened that were to be, and are over.
    pub fn is_over(&self) -> bool {
        self.next == self.intended && self.clients.open() == 0
    }

    /// Opens nothing more.
    pub fn stop_opening(&mut self) {
        self.intended = self.next;
    }

    /// Resets what is still open, so that nothing of it stays in the device.
    pub fn abort(&mut self, now: u64) {
        self.stop_opening();
        let before = self.account.clone();
        self.clients.abort(now, &mut self.account);
        self.servers.abort(now, &mut self.account);
        // How our own resets ended them is no result.
        self.account = before;
        for (kind, _) in self.profile.connections.iter().enumerate() {
            let counts = &mut self.account.of(kind).counts;
            counts.unfinished = 0;
            counts.unfinished = counts.opened - (counts.completed + counts.failed());
        }
    }

    /// What became of connections.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Connections that were to be opened, and those of them that were not.
    pub fn intended(&self) -> (u64, u64) {
        (self.intended, self.not_opened)
    }

    /// How late connections were opened, ns.
    pub fn late(&self) -> &Histogram<u64> {
        &self.late
    }

    /// Connections that are open, and the most that ever were.
    pub fn open_now(&self) -> (usize, usize) {
        (self.clients.open(), self.most_open)
    }

    /// Segments of both ends.
    pub fn segments(&self) -> [Segments; 2] {
        [self.clients.segments(), self.servers.segments()]
    }

    /// Packets that came and were no segments.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.clients.open();
        f.debug_struct("Engine")
            .field("next", &self.next)
            .field("intended", &self.intended)
            .field("open", &open)
            .finish_non_exhaustive()
    }
}
