//! The plugin on the main thread: which sessions there are, and which thread has each of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Receiver, bounded};
use quiver_command::config::Config;
use quiver_command::operation::{OpError, retval};
use quiver_graph::{IfIndex, Published};
use quiver_net::fib::FibError;
use quiver_net::interface::ops::interface_error;
use quiver_net::ip::FamilyId;
use quiver_net::{IfEvent, Router, WorkerEvent};

use crate::nodes::{self, INPUT, Index, Parts, Place};
use crate::process;
use crate::session::{Session, Status, Timing};
use crate::thread::{Entry, Key, Notice, Outbox, PORT, Sessions, Shared};

/// Most sessions.
pub const SESSIONS_MAX: u32 = 4096;
/// Threads that there can be.
const THREADS_MAX: usize = 64;
/// Notices that wait for main; where there are more, main looks at all sessions.
const NOTICES: usize = 2 * SESSIONS_MAX as usize;

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
    /// The thread that has it.
    pub owner: usize,
    /// What its thread has last said of it.
    pub status: Option<Status>,
    /// Times that it came up.
    pub ups: u64,
    /// When its state last changed, ns of timer time.
    pub since: u64,
    lb: u32,
}

/// The plugin's state.
pub struct Bfd {
    parts: Parts,
    pub(crate) sessions: BTreeMap<Key, Configured>,
    pub(crate) by_discriminator: HashMap<u32, Key>,
    pub(crate) notices: Receiver<Notice>,
    /// Notices were lost.
    pub(crate) lost: Arc<AtomicBool>,
    random: u64,
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
    let parts = Parts {
        index: Published::new(Index::default()),
        threads: (0..THREADS_MAX).map(|_| Shared::new(Sessions::new(outbox.clone()))).collect(),
        counters: [counter("/bfd/rx-session-counters"), counter("/bfd/tx-session-counters")],
    };
    nodes::declare(router, &parts).map_err(|error| error.to_string())?;
    let random = router.graph.clock().ticks() ^ u64::from(std::process::id()).rotate_left(40);
    router.add_part(Bfd { parts, sessions: BTreeMap::new(), by_discriminator: HashMap::new(), notices, lost, random });
    router.add_process(process::NAME, process::run);
    router.listen(on_interface);
    router.listen_workers(on_worker);
    Ok(())
}

/// The plugin's state.
///
/// # Errors
/// The plugin is off.
pub fn bfd(router: &Router) -> Result<&Bfd, OpError> {
    router.part().ok_or_else(off)
}

fn off() -> OpError {
    OpError::new(retval::FEATURE_DISABLED, "the plugin bfd is off").key("bfd")
}

impl Bfd {
    /// All sessions, by interface and addresses.
    pub fn sessions(&self) -> impl Iterator<Item = (&Key, &Configured)> {
        self.sessions.iter()
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

    /// Tells input nodes which sessions there are, and shows their number in the statistics.
    fn publish(&self, router: &Router) {
        let mut index = Index::default();
        for (key, session) in &self.sessions {
            index.by_discriminator.insert(session.discriminator, Place { owner: session.owner, key: *key });
            index.by_key.insert(*key, session.discriminator);
        }
        self.parts.index.publish(index);
        for family in [FamilyId::V4, FamilyId::V6] {
            let name = if family == FamilyId::V4 { "/bfd/udp4/sessions" } else { "/bfd/udp6/sessions" };
            let count = self.sessions.keys().filter(|key| FamilyId::of(&key.peer) == family).count();
            router.graph.stats().gauge(name).set(count as u64);
        }
    }

    /// The thread with the fewest sessions.
    fn idlest(&self, router: &Router) -> usize {
        let load = |thread: &usize| self.sessions.values().filter(|session| session.owner == *thread).count();
        router.staying_workers().into_iter().min_by_key(load).unwrap_or(0)
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

/// Runs `f` with the plugin's state beside the router.
pub(crate) fn with<R>(router: &mut Router, f: impl FnOnce(&mut Router, &mut Bfd) -> Result<R, OpError>) -> Result<R, OpError> {
    let mut bfd = router.take_part::<Bfd>().ok_or_else(off)?;
    let result = f(router, &mut bfd);
    router.add_part(bfd);
    result
}

fn unknown(key: &Key) -> OpError {
    let text = format!("no session between {} and {} there", key.local, key.peer);
    OpError::new(retval::BFD_ENOENT, text).key("peer-addr").value(key.peer)
}

fn check(router: &Router, key: &Key) -> Result<(), OpError> {
    let interface = router.interfaces.expect(key.interface).map_err(|error| interface_error(&error))?;
    if FamilyId::of(&key.local) != FamilyId::of(&key.peer) {
        let error = OpError::new(retval::INVALID_VALUE, "both addresses must be IPv4 or both IPv6");
        return Err(error.key("peer-addr").value(key.peer));
    }
    if !interface.addresses.iter().any(|(address, _)| *address == key.local) {
        let text = format!("{} has no address {}", interface.name, key.local);
        let error = OpError::new(retval::ADDRESS_NOT_FOUND_FOR_INTERFACE, text).key("local-addr").value(key.local);
        return Err(error.remedy(format!("`set interface ip address {} {}/<len>' adds it", interface.name, key.local)));
    }
    if key.local == key.peer {
        let error = OpError::new(retval::INVALID_VALUE, "the peer has another address");
        return Err(error.key("peer-addr").value(key.peer));
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

/// Listens on the port of each family that has sessions, and of no other: then another program may do so.
fn listen(router: &mut Router, bfd: &Bfd, family: FamilyId) -> Result<(), OpError> {
    if bfd.sessions.keys().any(|key| FamilyId::of(&key.peer) == family) {
        let listening = router.register_udp_port(family, PORT, INPUT[family as usize]);
        return listening.map_err(|error| OpError::new(retval::BFD_NOTSUPP, error.to_string()).key("bfd"));
    }
    let node = router.udp_ports(family).into_iter().find(|(port, _)| *port == PORT);
    if node.is_some_and(|(_, node)| node == INPUT[family as usize]) {
        router.unregister_udp_port(family, PORT);
    }
    Ok(())
}

/// Adds a session, which begins at once. Gives its number.
///
/// # Errors
/// It exists, or there are too many; an interface or addresses that cannot be.
pub fn add(router: &mut Router, key: Key, timing: Timing) -> Result<u32, OpError> {
    check(router, &key)?;
    with(router, |router, bfd| {
        if bfd.sessions.contains_key(&key) {
            let error = OpError::new(retval::BFD_EEXIST, format!("a session with {} is there already", key.peer));
            return Err(error.key("peer-addr").value(key.peer).remedy("`bfd udp session mod' changes it"));
        }
        let taken: std::collections::BTreeSet<u32> = bfd.sessions.values().map(|session| session.id).collect();
        let Some(id) = (0..SESSIONS_MAX).find(|id| !taken.contains(id)) else {
            let error = OpError::new(retval::LIMIT_EXCEEDED, format!("there are {SESSIONS_MAX} sessions already"));
            return Err(error.key("bfd"));
        };
        let lb = router.hold_next_hop(key.interface, key.peer).map_err(|error| fib_error(&key, &error))?;
        let (discriminator, seed, owner) = (bfd.new_discriminator(), bfd.random(), bfd.idlest(router));
        let (now, since) = (router.graph.clock().now(), router.graph.clock().timer_now());
        let session = Configured { id, discriminator, timing, admin_up: true, owner, status: None, ups: 0, since, lb };
        bfd.sessions.insert(key, session);
        if let Err(error) = listen(router, bfd, FamilyId::of(&key.peer)) {
            bfd.sessions.remove(&key);
            router.release_next_hop(lb);
            return Err(error);
        }
        bfd.by_discriminator.insert(discriminator, key);
        for counters in &bfd.parts.counters {
            // A number that was used before begins at zero again.
            let (clear, len) = (counters.clone(), counters.len());
            if id < len {
                router.graph.each_row(move |row| clear.clear_index_thread(row, id));
            }
            counters.set_len(len.max(id + 1));
        }
        let entry = Entry::new(Session::new(discriminator, timing, seed, now), key, id, lb);
        bfd.on(router, owner, move |sessions| sessions.insert(entry));
        bfd.publish(router);
        Ok(id)
    })
}

/// Changes a session's intervals.
///
/// # Errors
/// There is no such session.
pub fn modify(router: &mut Router, key: &Key, timing: Timing) -> Result<(), OpError> {
    change(router, key, |session| session.timing = timing, move |session, now| session.set_timing(timing, now))
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
        move |session, now| {
            session.set_admin(up, now);
        },
    )
}

fn change(
    router: &mut Router,
    key: &Key,
    note: impl FnOnce(&mut Configured),
    f: impl FnOnce(&mut Session, u64) + Send + 'static,
) -> Result<(), OpError> {
    with(router, |router, bfd| {
        let session = bfd.sessions.get_mut(key).ok_or_else(|| unknown(key))?;
        note(session);
        let (discriminator, owner) = (session.discriminator, session.owner);
        let now = router.graph.clock().now();
        bfd.on(router, owner, move |sessions| {
            if let Some(entry) = sessions.get_mut(discriminator) {
                f(&mut entry.session, now);
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
    with(router, |router, bfd| {
        let session = bfd.sessions.remove(key).ok_or_else(|| unknown(key))?;
        bfd.by_discriminator.remove(&session.discriminator);
        bfd.publish(router);
        bfd.on(router, session.owner, move |sessions| sessions.remove(session.discriminator).is_some());
        router.release_next_hop(session.lb);
        listen(router, bfd, FamilyId::of(&key.peer))
    })?;
    follow(router, key);
    Ok(())
}

/// The sessions as they are now on their threads, by number.
///
/// # Errors
/// The plugin is off.
pub fn statuses(router: &mut Router) -> Result<BTreeMap<u32, Status>, OpError> {
    with(router, |router, bfd| {
        let mut all = BTreeMap::new();
        let owners: std::collections::BTreeSet<usize> = bfd.sessions.values().map(|session| session.owner).collect();
        for owner in owners {
            let some = bfd
                .on(router, owner, |sessions| sessions.iter().map(|entry| (entry.id, entry.session.status())).collect::<Vec<_>>());
            all.extend(some.unwrap_or_default());
        }
        Ok(all)
    })
}

/// Packets received and sent of a session.
pub fn packets(bfd: &Bfd, id: u32) -> [u64; 2] {
    bfd.parts.counters.each_ref().map(|counters| counters.sum(id).0)
}

/// Routes use a next hop unless a session with it has failed.
pub(crate) fn follow(router: &mut Router, key: &Key) {
    let Ok(bfd) = bfd(router) else { return };
    let first = Key {
        interface: key.interface,
        local: std::net::Ipv4Addr::UNSPECIFIED.into(),
        peer: std::net::Ipv4Addr::UNSPECIFIED.into(),
    };
    // Of several own addresses there can be sessions with the same peer.
    let mut same = bfd.sessions.range(first..).take_while(|(other, _)| other.interface == key.interface);
    let failed = same.any(|(other, session)| other.peer == key.peer && session.status.is_some_and(|status| status.failed));
    router.set_next_hop_usable(key.interface, key.peer, !failed);
}

fn on_interface(router: &mut Router, event: &IfEvent) {
    let IfEvent::Deleted(index) = *event else { return };
    let all: Vec<Key> = bfd(router).map(|bfd| on_link(bfd, index)).unwrap_or_default();
    for key in all {
        if let Err(error) = remove(router, &key) {
            tracing::warn!(target: "bfd", "{error}");
        }
    }
}

fn on_link(bfd: &Bfd, index: IfIndex) -> Vec<Key> {
    bfd.sessions.keys().filter(|key| key.interface == index).copied().collect()
}

/// Sessions of a thread that leaves go on at others, with their timers as they are.
fn on_worker(router: &mut Router, event: &WorkerEvent) {
    let WorkerEvent::Leaving(thread) = *event else { return };
    let moved = with(router, |router, bfd| {
        let entries = bfd.on(router, thread, Sessions::take_all).unwrap_or_default();
        for entry in entries {
            let owner = bfd.idlest(router);
            if let Some(session) = bfd.sessions.get_mut(&entry.key) {
                session.owner = owner;
                bfd.on(router, owner, move |sessions| sessions.insert(entry));
            }
        }
        bfd.publish(router);
        Ok(())
    });
    if let Err(error) = moved {
        tracing::warn!(target: "bfd", "{error}");
    }
}
