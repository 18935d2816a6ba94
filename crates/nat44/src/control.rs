//! The plugin on the main thread: what is configured, and how it gets to the nodes.

pub mod exports;
mod mappings;
mod sides;
mod spread;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use quiver_command::config::Config;
use quiver_graph::{IfIndex, Published};
use quiver_ipfix::exporter::{self, User};
use quiver_net::ip::FamilyId;
use quiver_net::{IfEvent, Router};

use crate::config::{NatConfig, PoolAddress, Side, Twice};
use crate::counters::Counters;
use crate::early::{PATIENCE, SharedEarly};
use crate::fragments::Fragments;
use crate::ipfix::Export;
use crate::log::{self, Logger, Rings, SEVERITY, Target};
use crate::nodes::{Parts, declare};
use crate::process::{self, Purge, Purges};
use crate::session::{Direction, Endpoint, Key, Session};
use crate::table::{Ahead, SessionId, Timeouts};
use crate::thread::{ThreadNat, lock};
use mappings::{address_of, resolved};
pub use mappings::{set_back_end, set_pool, set_pool_interface, set_static};
pub use sides::{set_interface, set_output};
use spread::seed_of;
pub use spread::{set_workers, threads};

/// Sessions of a thread where the user names no number.
pub const SESSIONS_DEFAULT: u32 = 131_072;
/// Most sessions of a thread.
pub const SESSIONS_MAX: u32 = 1 << 26;
/// Threads that there can be.
const THREADS_MAX: usize = 64;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatError {
    /// `nat44 plugin enable` comes first.
    #[error("nat44 plugin: not enabled")]
    Disabled,
    /// It is enabled.
    #[error("already enabled")]
    Enabled,
    /// No such table.
    #[error("no such table {0}")]
    NoTable(u32),
    /// No such interface.
    #[error("unknown interface index {0}")]
    NoInterface(u32),
    /// It is there already.
    #[error("{0} exists already")]
    Exists(String),
    /// It is not there.
    #[error("no {0}")]
    NoEntry(String),
    /// A value that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// No memory for the tables.
    #[error("no memory for the session tables")]
    Memory,
    /// The graph refused.
    #[error("{0}")]
    Graph(String),
}

/// What was enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// Most sessions of a thread.
    pub sessions: u32,
    /// Tables of the inside and the outside where nothing else is said.
    pub vrfs: (u32, u32),
}

/// The outside of a static mapping, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum External {
    /// An address.
    Addr(Ipv4Addr),
    /// The first address of an interface, whatever it is.
    Interface(IfIndex),
}

/// A static mapping, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSpec {
    /// Protocol; none: all, addresses only.
    pub proto: Option<u8>,
    /// Inside, with weights.
    pub locals: Vec<(Endpoint, u32)>,
    /// Outside.
    pub external: External,
    /// Port outside; 0 where only addresses are mapped.
    pub port: u16,
    /// Table of the inside.
    pub vrf: u32,
    /// Whether sources from outside are changed too.
    pub twice: Twice,
    /// Sessions begin outside only.
    pub out2in_only: bool,
    /// Not changed at all.
    pub identity: bool,
    /// How long a remote host comes back to the same inside host after its last session has ended, seconds; 0: not at all.
    pub affinity: u32,
    /// What clients of the binary API call it.
    pub tag: String,
}

/// An address of a pool, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Address.
    pub addr: Ipv4Addr,
    /// Table whose hosts it is for; none: for all.
    pub vrf: Option<u32>,
    /// For sources from outside.
    pub twice: bool,
    /// A port of it belongs to one inside endpoint, whatever it speaks to.
    pub independent: bool,
}

/// The plugin's state.
pub struct Nat {
    pub(crate) parts: Parts,
    /// What is enabled.
    pub enabled: Option<Enabled>,
    /// The configuration that is published.
    pub config: NatConfig,
    /// Static mappings in order of configuration.
    pub statics: Vec<StaticSpec>,
    /// Pools without those that follow an interface.
    pub pools: Vec<PoolSpec>,
    /// Interfaces whose address is in a pool; for twice-NAT or not.
    pub pool_interfaces: Vec<(IfIndex, bool)>,
    /// Sides of interfaces, as the user has named them; those in force are in `config`.
    pub named: BTreeMap<IfIndex, Side>,
    /// Sides in force, as they are in `config`, with the interface's MTU.
    sides: BTreeMap<IfIndex, (Side, u32)>,
    /// Those MTUs.
    mtus: BTreeSet<(u32, IfIndex)>,
    /// IPv4 FIBs of outside interfaces, and how many are in each.
    outside_tables: BTreeMap<IfIndex, u16>,
    outside_users: BTreeMap<u16, i32>,
    /// Interfaces on both sides.
    both: usize,
    /// Interfaces outside of which every other one is inside.
    pub outputs: BTreeSet<IfIndex>,
    /// Most sessions of a table's hosts on a thread, by the user's number of the table.
    pub table_limits: BTreeMap<u32, u32>,
    pub(crate) purges: Purges,
    /// By thread, what gets memory for sessions before packets need it.
    pub(crate) ahead: BTreeMap<usize, Ahead>,
    /// Workers, by the user's numbers, that have sessions; none: all.
    workers: Option<Vec<usize>>,
    /// What threads tell.
    pub(crate) rings: Rings,
    /// The mapping log, where it is on.
    pub(crate) logger: Option<Logger>,
    /// Records for a collector of IPFIX, where they are on.
    pub(crate) ipfix: Option<Export>,
    /// Messages of this severity and worse are sent (RFC 5424, 6.2.1).
    pub(crate) log_severity: u8,
    /// Threads that forward, as they were when work was last spread over them.
    fleet: Vec<usize>,
}

/// Adds state and nodes to the router, at its start.
///
/// # Errors
/// The graph refused.
pub fn start(router: &mut Router, _: &Config) -> Result<(), String> {
    let seed = router.graph.clock().ticks();
    let parts = Parts {
        config: Published::new(NatConfig::default()),
        threads: (0..THREADS_MAX).map(|_| Arc::new(Mutex::new(None))).collect(),
        fragments: Fragments::new(seed),
        early: std::array::from_fn(|_| (0..THREADS_MAX).map(|_| SharedEarly::default()).collect()),
        counters: [false, true].map(|outside| Counters::new(router.graph.stats(), outside)),
        clock: Arc::new(AtomicU32::new(seconds(router))),
    };
    declare(router, &parts).map_err(|e| e.to_string())?;
    router.add_part(Nat {
        parts,
        enabled: None,
        config: NatConfig::default(),
        statics: Vec::new(),
        pools: Vec::new(),
        pool_interfaces: Vec::new(),
        named: BTreeMap::new(),
        sides: BTreeMap::new(),
        mtus: BTreeSet::new(),
        outside_tables: BTreeMap::new(),
        outside_users: BTreeMap::new(),
        both: 0,
        outputs: BTreeSet::new(),
        table_limits: BTreeMap::new(),
        purges: Purges::default(),
        ahead: BTreeMap::new(),
        workers: None,
        rings: Rings::default(),
        logger: None,
        ipfix: None,
        log_severity: SEVERITY,
        fleet: Vec::new(),
    });
    router.add_process(process::NAME, process::run);
    router.listen(on_event);
    router.listen_workers(spread::on_workers);
    exporter::join(router, User { changed: exports::follow, flush: exports::flush });
    crate::restart::init(router);
    Ok(())
}

pub(crate) fn seconds(router: &Router) -> u32 {
    (router.graph.clock().timer_now() / 1_000_000_000) as u32
}

/// The time that nodes stamp sessions with, seconds.
pub fn now(router: &Router) -> u32 {
    router.part::<Nat>().map_or(0, |nat| nat.parts.clock.load(Ordering::Relaxed))
}

/// Runs `f` on the plugin's state beside the router.
pub(crate) fn with<R>(router: &mut Router, f: impl FnOnce(&mut Router, &mut Nat) -> Result<R, NatError>) -> Result<R, NatError> {
    let mut nat = router.take_part::<Nat>().ok_or(NatError::Disabled)?;
    let result = f(router, &mut nat);
    router.add_part(nat);
    result
}

fn enabled<R>(router: &mut Router, f: impl FnOnce(&mut Router, &mut Nat) -> Result<R, NatError>) -> Result<R, NatError> {
    with(router, |router, nat| if nat.enabled.is_some() { f(router, nat) } else { Err(NatError::Disabled) })
}

fn fib_of(router: &Router, table: u32) -> Result<u16, NatError> {
    // Keys of sessions have 16 bits for FIB indices, which are small numbers.
    let found = router.fib_of_table(FamilyId::V4, table);
    found.and_then(|fib| u16::try_from(fib).ok()).ok_or(NatError::NoTable(table))
}

impl Nat {
    /// Workers, by the user's numbers, that have sessions; none: all.
    pub fn workers(&self) -> Option<&[usize]> {
        self.workers.as_deref()
    }

    /// Makes the configuration that nodes read from what was configured, and publishes it.
    fn publish(&mut self, router: &mut Router) {
        let mut pool = Vec::new();
        let mut twice = Vec::new();
        for spec in &self.pools {
            let tenant = spec.vrf.and_then(|id| Some((id, fib_of(router, id).ok()?)));
            let list = if spec.twice { &mut twice } else { &mut pool };
            list.push(PoolAddress { addr: spec.addr.to_bits(), tenant, independent: spec.independent });
        }
        for (index, for_twice) in &self.pool_interfaces {
            let list = if *for_twice { &mut twice } else { &mut pool };
            list.extend(address_of(router, *index).map(|addr| PoolAddress {
                addr: addr.to_bits(),
                tenant: None,
                independent: false,
            }));
        }
        (self.config.pool, self.config.twice_pool) = (pool.into(), twice.into());
        self.resolve_limits(router);
        self.config.mappings = Arc::new(self.statics.iter().filter_map(|spec| resolved(router, spec)).collect());
        self.config.index();
        self.publish_sides();
        self.parts.counters.iter().for_each(|counters| counters.set_len(router.interfaces.end()));
        let limit = self.enabled.map_or(0, |enabled| enabled.sessions);
        router.graph.stats().gauge("/nat44-ed/max-cfg-sessions").set(limit.into());
        self.answer_arp(router);
    }

    fn resolve_limits(&mut self, router: &Router) {
        let limit = |(table, limit): (&u32, &u32)| Some((fib_of(router, *table).ok()?, *limit));
        self.config.table_limits = self.table_limits.iter().filter_map(limit).collect();
    }

    /// Gives every thread a table of its own; there are no sessions yet.
    fn spread(&mut self, router: &mut Router, sessions: u32) -> Result<(), NatError> {
        let threads = self.chosen(router, None);
        let (now, seed) = (seconds(router), router.graph.clock().ticks());
        let mut made = BTreeMap::new();
        for thread in &threads {
            made.insert(*thread, ThreadNat::new(sessions, seed_of(seed, *thread), now).map_err(|_| NatError::Memory)?);
        }
        self.config.threads = threads;
        self.fleet = router.graph.fleet().threads();
        for thread in 0..self.parts.threads.len() {
            self.put_state(router, thread, made.remove(&thread));
        }
        self.feed_log(router);
        Ok(())
    }

    /// Gives every thread a ring to the log, or takes it away where there is none.
    fn feed_log(&mut self, router: &mut Router) {
        let mut ends = Vec::new();
        for thread in &self.config.threads {
            let Some(shared) = self.parts.threads.get(*thread).cloned() else { continue };
            let (lines, all) = (self.logger.is_some() && self.log_severity >= SEVERITY, self.ipfix.is_some());
            let wanted = lines || all;
            let ring = wanted.then(|| quiver_tables::ring::ring(log::RING));
            let producer = ring.map(|(producer, consumer)| {
                ends.push(consumer);
                (producer, router.process_signal(process::NAME))
            });
            let set = move |_: &mut _| {
                if let Some(nat) = lock(&shared).as_mut() {
                    nat.log.set(producer, all);
                }
            };
            router.graph.fleet().on(*thread, set);
        }
        self.rings.listen(ends);
    }
}

/// `nat44 plugin enable`.
///
/// # Errors
/// It is enabled already, no such table, no memory.
pub fn enable(router: &mut Router, what: Enabled) -> Result<(), NatError> {
    with(router, |router, nat| {
        if nat.enabled.is_some() {
            return Err(NatError::Enabled);
        }
        if !(1..=SESSIONS_MAX).contains(&what.sessions) {
            return Err(NatError::Invalid(format!("sessions {} out of range, expected 1 to {SESSIONS_MAX}", what.sessions)));
        }
        fib_of(router, what.vrfs.0)?;
        let outside_fib = fib_of(router, what.vrfs.1)?;
        nat.config = NatConfig { outside_fib, ..NatConfig::default() };
        nat.parts.clock.store(seconds(router), Ordering::Relaxed);
        nat.spread(router, what.sessions)?;
        nat.enabled = Some(what);
        nat.publish(router);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

/// `nat44 plugin disable`: everything that was configured goes, sessions too.
///
/// # Errors
/// It is not enabled.
pub fn disable(router: &mut Router) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        nat.named.clear();
        nat.outputs.clear();
        nat.follow_sides(router, None)?;
        nat.statics.clear();
        nat.pools.clear();
        nat.pool_interfaces.clear();
        nat.table_limits.clear();
        nat.config = NatConfig::default();
        nat.publish(router);
        for thread in router.graph.fleet().threads() {
            nat.put_state(router, thread, None);
        }
        crate::nodes::end_waits(router, &nat.parts, seconds(router).wrapping_add(PATIENCE + 1));
        nat.purges = Purges::default();
        nat.workers = None;
        nat.log_severity = SEVERITY;
        nat.ipfix = None;
        nat.rings = Rings::default();
        if let Some((_, table)) = nat.logger.take().and_then(|old| old.target.from) {
            router.release_table(FamilyId::V4, table, LOG);
        }
        nat.enabled = None;
        Ok(())
    })
}

/// Who holds the log's table, in errors.
const LOG: &str = "the mapping log of NAT44";

/// Sends a syslog datagram for each session that begins or ends to a collector from now on, or no more.
///
/// # Errors
/// Not enabled, no such table, or no socket.
pub fn set_log(router: &mut Router, target: Option<Target>) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let table = |target: Target| target.from.map(|(_, table)| table);
        let logger = target.map(Logger::new).transpose();
        let logger = logger.map_err(|e| NatError::Invalid(format!("no socket for the log: {e}")))?;
        if let Some(table) = target.and_then(table) {
            router.hold_table(FamilyId::V4, table, LOG).map_err(|_| NatError::NoTable(table))?;
        }
        let old = std::mem::replace(&mut nat.logger, logger);
        if let Some(table) = old.and_then(|old| table(old.target)) {
            router.release_table(FamilyId::V4, table, LOG);
        }
        nat.feed_log(router);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

/// Sets which messages of the log are sent: those of this severity and worse.
///
/// # Errors
/// Not enabled.
pub fn set_log_severity(router: &mut Router, severity: u8) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        nat.log_severity = severity;
        nat.feed_log(router);
        Ok(())
    })
}

/// Changes a setting.
///
/// # Errors
/// Not enabled.
pub fn set(router: &mut Router, change: impl FnOnce(&mut NatConfig)) -> Result<(), NatError> {
    enabled(router, |_, nat| {
        change(&mut nat.config);
        nat.publish_sides();
        Ok(())
    })
}

/// Sets how many sessions the hosts of a table may have on a thread; 0: no limit.
///
/// # Errors
/// It is not enabled, or no such table.
pub fn set_table_limit(router: &mut Router, table: u32, limit: u32) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        fib_of(router, table)?;
        match limit {
            0 => drop(nat.table_limits.remove(&table)),
            limit => drop(nat.table_limits.insert(table, limit)),
        }
        // Pools and mappings, of which there may be very many, are as they were.
        nat.resolve_limits(router);
        nat.publish_sides();
        Ok(())
    })
}

/// The timeouts now.
pub fn timeouts(router: &Router) -> Timeouts {
    router.part::<Nat>().map(|nat| nat.config.timeouts).unwrap_or_default()
}

/// Runs `f` on a thread's state, on that thread.
pub fn on_thread<R: Send + 'static>(
    router: &mut Router,
    thread: usize,
    f: impl FnOnce(&mut ThreadNat) -> R + Send + 'static,
) -> Option<R> {
    let shared = router.part::<Nat>()?.parts.threads.get(thread)?.clone();
    router.graph.fleet().on(thread, move |_| lock(&shared).as_mut().map(f)).flatten()
}

/// Sessions of a thread with numbers from `from` on: at most `n` numbers are looked at. Gives them and where to go on.
pub fn dump(router: &mut Router, thread: usize, from: SessionId, n: u32) -> (Vec<(SessionId, Session)>, Option<SessionId>) {
    let look = move |nat: &mut ThreadNat| {
        let end = from.saturating_add(n).min(nat.sessions.end());
        let list: Vec<_> = (from..end).filter_map(|id| Some((id, nat.sessions.get(id)?))).collect();
        (list, (end < nat.sessions.end()).then_some(end))
    };
    on_thread(router, thread, look).unwrap_or_default()
}

/// Ends a session, found by the endpoint that is inside (or outside) and, where there are several, the remote one.
///
/// # Errors
/// Not enabled, or none.
pub fn delete_session(
    router: &mut Router,
    direction: Direction,
    endpoint: Endpoint,
    proto: u8,
    vrf: u32,
    remote: Option<Endpoint>,
) -> Result<(), NatError> {
    let fibs = enabled(router, |router, nat| match direction {
        Direction::In2Out => fib_of(router, vrf).map(|fib| vec![fib]),
        Direction::Out2In => Ok(nat.config.outside_fibs.clone()),
    })?;
    for thread in threads(router) {
        let fibs = fibs.clone();
        let ended = on_thread(router, thread, move |nat| {
            let id = match remote {
                Some(remote) => {
                    let (src, dst) = if direction == Direction::In2Out { (endpoint, remote) } else { (remote, endpoint) };
                    fibs.iter().find_map(|fib| nat.sessions.find(Key::new(src, dst, proto, direction, *fib)))
                }
                None => (0..nat.sessions.end()).find(|id| {
                    nat.sessions.get(*id).is_some_and(|s| {
                        let own = if direction == Direction::In2Out { s.inside() } else { s.outside() };
                        own == endpoint && s.i2o.proto() == proto
                    })
                }),
            };
            id.and_then(|id| nat.remove(id)).is_some()
        });
        if ended == Some(true) {
            return Ok(());
        }
    }
    Err(NatError::NoEntry(format!("session of {endpoint}")))
}

/// Ends all sessions.
///
/// # Errors
/// Not enabled.
pub fn clear_sessions(router: &mut Router) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        nat.purges.push(Purge::All);
        router.wake_process(process::NAME, 0);
        Ok(())
    })
}

fn on_event(router: &mut Router, event: &IfEvent) {
    let _ = enabled(router, |router, nat| {
        match event {
            IfEvent::Address(index, IpAddr::V4(address), _, added) => {
                // Only what follows the interface, or is its address now, is another one.
                if nat.follows(*index) {
                    if !added {
                        nat.purges.push(Purge::Address(address.to_bits()));
                        router.wake_process(process::NAME, 0);
                    }
                    nat.publish(router);
                } else if nat.config.external.contains(&address.to_bits()) {
                    nat.answer_arp(router);
                }
            }
            IfEvent::Created(index) => {
                nat.parts.counters.iter().for_each(|counters| counters.set_len(router.interfaces.end()));
                if nat.put(router, *index, nat.wanted(*index))? {
                    nat.publish_sides();
                }
            }
            IfEvent::Mtu(index) | IfEvent::Table(index, true) => {
                let has_changed = nat.note_side(router, *index, nat.config.side(*index));
                if has_changed {
                    nat.publish_sides();
                }
                if has_changed && matches!(event, IfEvent::Table(..)) {
                    nat.answer_arp(router);
                }
            }
            IfEvent::Deleted(index) => {
                nat.named.remove(index);
                // The others are inside only as long as there is one outside of which they are.
                if nat.outputs.remove(index) {
                    nat.follow_sides(router, Some(*index))?;
                } else if nat.put(router, *index, Side::default())? {
                    nat.publish_sides();
                }
                if nat.follows(*index) {
                    nat.pool_interfaces.retain(|(i, _)| i != index);
                    nat.statics.retain(|s| s.external != External::Interface(*index));
                    nat.publish(router);
                }
            }
            _ => {}
        }
        Ok(())
    });
}
