//! The plugin on the main thread: which sessions there are, and which thread has each of them.

mod adopt;
mod auth;
mod echo;
mod ports;
mod tally;

use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crossbeam_channel::{Receiver, bounded};
use quiver_command::config::Config;
use quiver_command::operation::{OpError, retval};
use quiver_graph::IfIndex;
use quiver_net::fib::FibError;
use quiver_net::ip::FamilyId;
use quiver_net::{IfEvent, PluginState, Router, WorkerEvent};

use crate::api;
use crate::auth::Authentication;
use crate::datagram::{Key, TOS};
use crate::index::Index;
use crate::nodes::{self, Counters, Parts};
use crate::packet::State;
use crate::process;
use crate::restart;
use crate::session::{Session, Status, Timing};
use crate::thread::{EchoSources, Entry, Notice, Outbox, Path, Sessions, Shared};
pub(crate) use adopt::{Adopted, adopt, entries};
use auth::UsedKey;
pub use auth::{AuthRef, KeyInfo, delete_key, keys, set_auth, set_key};
pub use echo::{EchoSource, echo_source, set_echo_source};
use tally::Tally;

/// Most sessions.
pub const SESSIONS_MAX: u32 = 4096;
/// Threads that there can be.
const THREADS_MAX: usize = 64;
/// Notices that wait for main; where there are more, main looks at all sessions.
const NOTICES: usize = 2 * SESSIONS_MAX as usize;

/// Who holds a table, for errors.
const HOLDER: &str = "a BFD session";

/// A session as main knows it.
#[derive(Clone, Copy, Debug)]
pub struct Configured {
    /// Its number for users.
    pub id: u32,
    /// Own discriminator.
    pub discriminator: u32,
    /// Intervals.
    pub timing: Timing,
    /// Not held down by an administrator.
    pub admin_up: bool,
    /// The key that authenticates it, in force or as soon as the other side uses it.
    pub auth: Option<AuthRef>,
    /// The thread that has it.
    pub owner: usize,
    /// What its thread has last said of it.
    pub status: Option<Status>,
    /// Times that it came up.
    pub ups: u64,
    /// When its state last changed, ns of timer time.
    pub since: u64,
    path: Path,
}

/// The plugin's state.
pub struct Bfd {
    parts: Parts,
    pub(crate) sessions: BTreeMap<Key, Configured>,
    pub(crate) by_discriminator: HashMap<u32, Key>,
    /// Keys by their number in the configuration.
    keys: BTreeMap<u32, UsedKey>,
    tally: Tally,
    echo_interface: Option<IfIndex>,
    /// Where echo packets come from now.
    echo_sources: EchoSources,
    pub(crate) notices: Receiver<Notice>,
    /// Notices were lost.
    pub(crate) lost: Arc<AtomicBool>,
    random: u64,
}

impl PluginState for Bfd {
    const OFF: &'static str = "the plugin bfd is off";
    const KEY: Option<&'static str> = Some("bfd");
}

/// Adds state and nodes to the router, at its start.
///
/// # Errors
/// The graph refused.
pub fn start(router: &mut Router, _: &Config) -> Result<(), String> {
    let (sender, notices) = bounded(NOTICES);
    let lost = Arc::new(AtomicBool::new(false));
    let outbox = Outbox::new(sender, router.process_signal(process::NAME), lost.clone());
    let counter = |name: &str| router.graph.stats().combined(name, SESSIONS_MAX);
    let proofs = RandomState::new();
    let parts = Parts {
        index: Index::new(router.graph.domain()).map_err(|error| error.to_string())?,
        threads: (0..THREADS_MAX).map(|_| Shared::new(Sessions::new(outbox.clone(), proofs.clone()))).collect(),
        counters: Counters {
            received: counter("/bfd/rx-session-counters"),
            sent: counter("/bfd/tx-session-counters"),
            echo_received: counter("/bfd/rx-session-echo-counters"),
            echo_sent: counter("/bfd/tx-session-echo-counters"),
        },
        tos: Arc::new(AtomicU8::new(TOS)),
        proofs,
    };
    nodes::declare(router, &parts).map_err(|error| error.to_string())?;
    let random = router.graph.clock().ticks() ^ u64::from(std::process::id()).rotate_left(40);
    let tally = Tally::new(router);
    router.add_part(Bfd {
        parts,
        sessions: BTreeMap::new(),
        by_discriminator: HashMap::new(),
        keys: BTreeMap::new(),
        tally,
        echo_interface: None,
        echo_sources: [None; 2],
        notices,
        lost,
        random,
    });
    router.add_process(process::NAME, process::run);
    router.listen(on_interface);
    restart::init(router);
    router.listen_workers(on_worker);
    Ok(())
}

impl Bfd {
    /// All sessions, by interface and addresses.
    pub fn sessions(&self) -> impl Iterator<Item = (&Key, &Configured)> {
        self.sessions.iter()
    }

    /// What nodes know of the sessions.
    #[cfg(test)]
    pub(crate) fn reader(&self) -> crate::index::IndexReader {
        self.parts.index.reader()
    }

    /// A session.
    ///
    /// # Errors
    /// There is none.
    pub fn session(&self, key: &Key) -> Result<&Configured, OpError> {
        self.sessions.get(key).ok_or_else(|| unknown(key))
    }

    fn random(&mut self) -> u64 {
        // splitmix64. A discriminator only has to be another than those there are: addresses and TTL are what is checked.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn new_discriminator(&mut self) -> u32 {
        loop {
            let discriminator = self.random() as u32;
            if discriminator != 0 && !self.by_discriminator.contains_key(&discriminator) {
                return discriminator;
            }
        }
    }

    /// The thread with the fewest sessions.
    fn idlest(&self, router: &Router) -> usize {
        self.tally.idlest(router.staying_workers())
    }

    /// Tells input nodes of a session, or which thread has it now.
    fn publish(&mut self, key: &Key, session: &Configured) -> Result<(), OpError> {
        let set = self.parts.index.set(&key_of_nodes(key, session.path), session.discriminator, session.owner, session.path);
        set.map_err(|error| OpError::new(retval::LIMIT_EXCEEDED, format!("index of sessions: {error}")).key("bfd"))
    }

    /// Forgets a session that its thread does not have, and gives back what it needed.
    fn forget(&mut self, router: &mut Router, key: &Key) -> Result<Configured, OpError> {
        let session = self.sessions.remove(key).ok_or_else(|| unknown(key))?;
        self.by_discriminator.remove(&session.discriminator);
        self.parts.index.remove(&key_of_nodes(key, session.path), session.discriminator);
        self.use_key(session.auth, None);
        self.tally.remove(key, session.id, session.owner);
        ports::close(router, &self.tally, key, &self.echo_sources);
        release(router, key, session.path);
        Ok(session)
    }

    /// Runs `f` on the sessions of a thread.
    fn on<R: Send + 'static>(
        &self,
        router: &mut Router,
        thread: usize,
        f: impl FnOnce(&mut Sessions) -> R + Send + 'static,
    ) -> Option<R> {
        let shared = self.parts.threads.get(thread)?.clone();
        router.graph.fleet().on(thread, move |_| f(&mut shared.lock()))
    }
}

/// What nodes know a session by.
fn key_of_nodes(key: &Key, path: Path) -> Key {
    match path {
        Path::Neighbor(_) => *key,
        Path::Routes(fib) => Key { table: fib, ..*key },
    }
}

fn unknown(key: &Key) -> OpError {
    let text = format!("no session between {} and {} there", key.local, key.peer);
    OpError::new(retval::BFD_ENOENT, text).key("peer-addr").value(key.peer)
}

fn check(router: &Router, key: &Key) -> Result<(), OpError> {
    if FamilyId::of(&key.local) != FamilyId::of(&key.peer) {
        let error = OpError::new(retval::INVALID_VALUE, "both addresses must be IPv4 or both IPv6");
        return Err(error.key("peer-addr").value(key.peer));
    }
    if key.is_multihop() {
        check_multihop(router, key)?;
    } else {
        check_on_link(router, key)?;
    }
    if key.local == key.peer {
        let error = OpError::new(retval::INVALID_VALUE, "the peer has another address");
        return Err(error.key("peer-addr").value(key.peer));
    }
    Ok(())
}

fn check_on_link(router: &Router, key: &Key) -> Result<(), OpError> {
    let interface = router.interfaces.expect(key.interface)?;
    if !interface.addresses.iter().any(|(address, _)| *address == key.local) {
        let text = format!("{} has no address {}", interface.name, key.local);
        let error = OpError::new(retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, text).key("local-addr").value(key.local);
        return Err(error.remedy(format!("`set interface ip address {} {}/<len>' adds it", interface.name, key.local)));
    }
    Ok(())
}

fn check_multihop(router: &Router, key: &Key) -> Result<(), OpError> {
    let family = FamilyId::of(&key.local);
    if router.fib_of_table(family, key.table).is_none() {
        let error = OpError::new(retval::NO_SUCH_FIB, format!("there is no table {}", key.table)).key("table").value(key.table);
        return Err(error.remedy(format!(
            "`ip{} table add {}' makes it",
            if family == FamilyId::V6 { "6" } else { "" },
            key.table
        )));
    }
    let of_hosts = match key.peer {
        IpAddr::V4(peer) => !peer.is_unspecified() && !peer.is_multicast() && !peer.is_broadcast(),
        IpAddr::V6(peer) => !peer.is_unspecified() && !peer.is_multicast() && !peer.is_unicast_link_local(),
    };
    if !of_hosts {
        let error = OpError::new(retval::INVALID_DST_ADDRESS, "no address of a router elsewhere");
        return Err(error.key("peer-addr").value(key.peer));
    }
    let in_table = |interface: &&quiver_net::Interface| {
        let table = if family == FamilyId::V4 { interface.tables.0 } else { interface.tables.1 };
        table == key.table && interface.addresses.iter().any(|(address, _)| *address == key.local)
    };
    if !router.interfaces.iter().any(|interface| in_table(&interface)) {
        let text = format!("no interface in table {} has the address {}", key.table, key.local);
        let error = OpError::new(retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, text).key("local-addr").value(key.local);
        return Err(error.remedy(format!("`set interface ip address <if> {}/<len>' adds it", key.local)));
    }
    Ok(())
}

fn fib_error(key: &Key, error: &FibError) -> OpError {
    let code = match error {
        FibError::Full(_) => retval::LIMIT_EXCEEDED,
        _ => retval::INVALID_DST_ADDRESS,
    };
    OpError::new(code, error.to_string()).key("peer-addr").value(key.peer)
}

/// The way of a session's packets; what it needs is held until [`release`].
fn hold(router: &mut Router, key: &Key) -> Result<Path, OpError> {
    let path = if key.is_multihop() {
        router.hold_table(FamilyId::of(&key.peer), key.table, HOLDER).map(Path::Routes)
    } else {
        router.hold_next_hop(key.interface, key.peer).map(Path::Neighbor)
    };
    path.map_err(|error| fib_error(key, &error))
}

fn release(router: &mut Router, key: &Key, path: Path) {
    match path {
        Path::Neighbor(lb) => router.release_next_hop(lb),
        Path::Routes(_) => router.release_table(FamilyId::of(&key.peer), key.table, HOLDER),
    }
}

/// Adds a session, which begins at once. Gives its number.
///
/// # Errors
/// It exists, or there are too many; an interface, addresses or a key that cannot be.
pub fn add(router: &mut Router, key: Key, timing: Timing, auth: Option<AuthRef>) -> Result<u32, OpError> {
    if router.state::<Bfd>()?.sessions.contains_key(&key) {
        let error = OpError::new(retval::BFD_EEXIST, format!("a session with {} is there already", key.peer));
        return Err(error.key("peer-addr").value(key.peer).remedy("`bfd udp session mod' changes it"));
    }
    check(router, &key)?;
    router.with_state::<Bfd, _>(|router, bfd| {
        let by = auth.map(|auth| bfd.in_use(auth)).transpose()?;
        let Some(id) = bfd.tally.free_id() else {
            let error = OpError::new(retval::LIMIT_EXCEEDED, format!("there are {SESSIONS_MAX} sessions already"));
            return Err(error.key("bfd"));
        };
        let path = hold(router, &key)?;
        if let Err(error) = ports::open(router, &bfd.tally, &key, &bfd.echo_sources) {
            release(router, &key, path);
            return Err(error);
        }
        let (discriminator, seed, owner) = (bfd.new_discriminator(), bfd.random(), bfd.idlest(router));
        let (now, since) = (router.graph.clock().now(), router.graph.clock().timer_now());
        let session = Configured { id, discriminator, timing, admin_up: true, auth, owner, status: None, ups: 0, since, path };
        bfd.tally.add(&key, id, owner);
        bfd.use_key(None, auth);
        bfd.sessions.insert(key, session);
        bfd.by_discriminator.insert(discriminator, key);
        bfd.parts.counters.begin(router, id);
        let authentication = Authentication::new(by, bfd.random() as u32);
        let entry = Entry::new(Session::new(discriminator, timing, seed, now), authentication, key, id, path);
        let sources = bfd.echo_sources;
        bfd.on(router, owner, move |sessions| sessions.insert(entry, sources, now));
        if let Err(error) = bfd.publish(&key, &session) {
            bfd.on(router, owner, move |sessions| sessions.remove(discriminator).is_some());
            bfd.forget(router, &key)?;
            return Err(error);
        }
        Ok(id)
    })
}

/// Changes a session's intervals.
///
/// # Errors
/// There is no such session.
pub fn modify(router: &mut Router, key: &Key, timing: Timing) -> Result<(), OpError> {
    change(router, key, |session| session.timing = timing, move |entry, now| entry.session.set_timing(timing, now))
}

/// Holds a session down, or no longer.
///
/// # Errors
/// There is no such session.
pub fn set_admin(router: &mut Router, key: &Key, up: bool) -> Result<(), OpError> {
    change(
        router,
        key,
        |session| session.admin_up = up,
        move |entry, now| {
            entry.session.set_admin(up, now);
        },
    )
}

fn change(
    router: &mut Router,
    key: &Key,
    note: impl FnOnce(&mut Configured),
    f: impl FnOnce(&mut Entry, u64) + Send + 'static,
) -> Result<(), OpError> {
    router.with_state::<Bfd, _>(|router, bfd| {
        let session = bfd.sessions.get_mut(key).ok_or_else(|| unknown(key))?;
        note(session);
        let (discriminator, owner) = (session.discriminator, session.owner);
        let now = router.graph.clock().now();
        bfd.on(router, owner, move |sessions| {
            if let Some(entry) = sessions.get_mut(discriminator) {
                f(entry, now);
            }
            sessions.settle(discriminator);
        });
        Ok(())
    })
}

/// Removes a session. The other side hears nothing more.
///
/// # Errors
/// There is no such session.
pub fn remove(router: &mut Router, key: &Key) -> Result<(), OpError> {
    remove_all(router, &[*key]).map(drop)
}

/// Removes some, each thread being asked once.
fn remove_all(router: &mut Router, keys: &[Key]) -> Result<Vec<(Key, Configured)>, OpError> {
    let gone = router.with_state::<Bfd, _>(|router, bfd| {
        let mut by_owner: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for key in keys {
            let session = bfd.session(key)?;
            by_owner.entry(session.owner).or_default().push(session.discriminator);
        }
        for (owner, discriminators) in by_owner {
            bfd.on(router, owner, move |sessions| discriminators.iter().filter_map(|of| sessions.remove(*of)).count());
        }
        keys.iter().map(|key| Ok((*key, bfd.forget(router, key)?))).collect::<Result<Vec<_>, _>>()
    })?;
    keys.iter().for_each(|key| follow(router, key));
    Ok(gone)
}

/// The sessions as they are now on their threads, by number.
///
/// # Errors
/// The plugin is off.
pub fn statuses(router: &mut Router) -> Result<BTreeMap<u32, Status>, OpError> {
    router.with_state::<Bfd, _>(|router, bfd| {
        let mut all = BTreeMap::new();
        let owners: std::collections::BTreeSet<usize> = bfd.sessions.values().map(|session| session.owner).collect();
        for owner in owners {
            let some =
                bfd.on(router, owner, |sessions| sessions.iter().map(|entry| (entry.id, entry.status())).collect::<Vec<_>>());
            all.extend(some.unwrap_or_default());
        }
        Ok(all)
    })
}

/// Control packets received and sent of a session, and echo packets.
pub fn packets(bfd: &Bfd, id: u32) -> [u64; 4] {
    bfd.parts.counters.all().map(|counters| counters.sum(id).0)
}

/// TOS and traffic class of packets sent.
///
/// # Errors
/// The plugin is off.
pub fn tos(router: &Router) -> Result<u8, OpError> {
    Ok(router.state::<Bfd>()?.parts.tos.load(Ordering::Relaxed))
}

/// Sets it, for all sessions.
///
/// # Errors
/// The plugin is off.
pub fn set_tos(router: &Router, tos: u8) -> Result<(), OpError> {
    router.state::<Bfd>()?.parts.tos.store(tos, Ordering::Relaxed);
    Ok(())
}

/// Routes use a next hop unless a session with it has failed.
pub(crate) fn follow(router: &mut Router, key: &Key) {
    let Ok(bfd) = router.state::<Bfd>() else { return };
    let first = Key { local: Ipv4Addr::UNSPECIFIED.into(), ..*key };
    let place = |key: &Key| (key.interface, key.table, key.peer);
    // Of several own addresses there can be sessions with the same peer.
    let mut same = bfd.sessions.range(first..).take_while(|(other, _)| place(other) == place(key));
    let failed = same.any(|(_, session)| session.status.is_some_and(|status| status.failed));
    if key.is_multihop() {
        router.set_remote_next_hop_usable(key.table, key.peer, !failed);
    } else {
        router.set_next_hop_usable(key.interface, key.peer, !failed);
    }
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    let index = match *event {
        IfEvent::Deleted(index) => index,
        IfEvent::Address(index, ..) => return echo::on_address(router, index),
        _ => return,
    };
    echo::on_deleted(router, index);
    remove_on(router, index);
}

/// Removes the sessions on an interface, and tells clients.
pub(crate) fn remove_on(router: &mut Router, index: IfIndex) {
    let all: Vec<Key> = router.state::<Bfd>().map(|bfd| on_link(bfd, index)).unwrap_or_default();
    match remove_all(router, &all) {
        Ok(gone) => gone.iter().for_each(|(key, session)| api::tell(router, key, session, State::AdminDown)),
        Err(error) => tracing::warn!(target: "bfd", "{error}"),
    }
}

fn on_link(bfd: &Bfd, index: IfIndex) -> Vec<Key> {
    let first = Key::on(index, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into());
    bfd.sessions.range(first..).map(|(key, _)| *key).take_while(|key| key.interface == index).collect()
}

/// Sessions of a thread that leaves go on at others, with their timers as they are.
fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let WorkerEvent::Leaving(thread) = *event else { return };
    let moved = router.with_state::<Bfd, _>(|router, bfd| {
        let entries = bfd.on(router, thread, Sessions::take_all).unwrap_or_default();
        let (sources, now) = (bfd.echo_sources, router.graph.clock().now());
        for entry in entries {
            let owner = bfd.idlest(router);
            let Some(session) = bfd.sessions.get_mut(&entry.key) else { continue };
            let from = std::mem::replace(&mut session.owner, owner);
            let (key, session) = (entry.key, *session);
            bfd.tally.moved(from, owner);
            bfd.on(router, owner, move |sessions| sessions.insert(entry, sources, now));
            if let Err(error) = bfd.publish(&key, &session) {
                tracing::warn!(target: "bfd", "{error}");
            }
        }
        Ok(())
    });
    if let Err(error) = moved {
        tracing::warn!(target: "bfd", "{error}");
    }
}
