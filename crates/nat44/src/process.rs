//! The plugin's process: tells nodes the time, lets idle threads' sessions end, ends those whose configuration has gone, gets memory
//! for those that may come.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use quiver_ipfix::Times;
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::local::datagram::UdpPath;

use crate::config::Mapping;
use crate::control::{Nat, on_thread, threads};
use crate::log::{PORT, SEVERITY, Target};
use crate::nodes;
use crate::session::{Endpoint, Session, flag};
use crate::table::{Ahead, SessionId};
use crate::thread::lock;

/// Name of the process.
pub(crate) const NAME: &str = "nat44";
const SECOND: u64 = 1_000_000_000;
/// Session numbers looked at in one go: some 20 µs of a worker, and up to a millisecond where all of these sessions end.
const STEP: u32 = 1024;
/// Sessions whose timers are looked at each second on a thread without packets.
const EXPIRE: usize = 4096;
/// How much of the log of each thread is sent in one go: some 50 µs.
const LOG_STEP: usize = 16;

/// Which sessions end because their configuration has gone.
#[derive(Clone, Debug)]
pub(crate) enum Purge {
    /// All.
    All,
    /// Those by these outside addresses.
    Outside(RangeInclusive<u32>),
    /// Those by this outside address, by static mappings too: it is the router's no more.
    Address(u32),
    /// Those of a static mapping.
    Mapping(Mapping),
    /// Those of one of its inside endpoints.
    BackEnd(Mapping, Endpoint),
}

impl Purge {
    fn picks(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Address(addr) => session.outside().addr == *addr,
            Self::Outside(range) => {
                let twice = session.flags & flag::TWICE != 0 && range.contains(&session.i2o.dst().addr);
                let dynamic = session.flags & flag::STATIC == 0;
                (dynamic && range.contains(&session.outside().addr)) || twice
            }
            Self::BackEnd(mapping, local) => session.inside() == *local && Self::of_mapping(mapping, session),
            Self::Mapping(mapping) => Self::of_mapping(mapping, session),
        }
    }

    fn of_mapping(mapping: &Mapping, session: &Session) -> bool {
        let outside = session.outside();
        let port = mapping.proto.is_none() || mapping.external.port == outside.port;
        let proto = mapping.proto.is_none_or(|p| p == session.i2o.proto());
        session.flags & flag::STATIC != 0 && outside.addr == mapping.external.addr && port && proto
    }
}

/// What is still to be ended: one after the other, thread by thread, some numbers at a time.
#[derive(Default)]
pub(crate) struct Purges {
    waiting: VecDeque<Purge>,
    /// Thread's position and session number that are next.
    at: (usize, SessionId),
}

impl Purges {
    pub fn push(&mut self, purge: Purge) {
        self.waiting.push_back(purge);
    }

    pub fn extend(&mut self, purges: Option<Purge>) {
        self.waiting.extend(purges);
    }
}

/// Does one step; `true` while there is more.
fn purge(router: &mut Router) -> bool {
    let list = threads(router);
    let Some(nat) = router.part_mut::<Nat>() else { return false };
    let Some(purge) = nat.purges.waiting.front().cloned() else { return false };
    let (position, from) = nat.purges.at;
    let Some(thread) = list.get(position).copied() else {
        nat.purges.waiting.pop_front();
        nat.purges.at = (0, 0);
        return !nat.purges.waiting.is_empty();
    };
    let to = from.saturating_add(STEP);
    let end = on_thread(router, thread, move |nat| {
        nat.remove_where(from, to, |session| purge.picks(session));
        nat.sessions.end()
    });
    if let Some(nat) = router.part_mut::<Nat>() {
        nat.purges.at = if end.is_some_and(|end| to < end) { (position, to) } else { (position + 1, 0) };
    }
    true
}

/// Gets memory for sessions that may come, a large page of one thread; `true` where there is more to get.
fn get_memory(router: &mut Router) -> bool {
    router.part_mut::<Nat>().is_some_and(|nat| nat.ahead.values_mut().any(Ahead::step))
}

/// Runs `f` on the plugin's state beside the router.
fn with_nat(router: &mut Router, f: impl FnOnce(&mut Router, &mut Nat)) {
    let Some(mut nat) = router.take_part::<Nat>() else { return };
    f(router, &mut nat);
    router.add_part(nat);
}

/// Sends what the log has for the router to send.
fn send_log(router: &mut Router) {
    let Some(logger) = router.part_mut::<Nat>().and_then(|nat| nat.logger.as_mut()) else { return };
    let (ready, Target { collector, from }) = (logger.ready(), logger.target);
    let Some((source, table)) = from.filter(|_| !ready.is_empty()) else { return };
    let (of, fib) = (ready.len() as u64, router.fib_of_table(FamilyId::V4, table));
    let path = |fib| UdpPath {
        src: source.into(),
        dst: (*collector.ip()).into(),
        src_port: PORT,
        dst_port: collector.port(),
        fib,
        checksum: true,
    };
    // The table is held, so that it is there.
    let sent = fib.map_or(0, |fib| nodes::send_log(router, path(fib), ready));
    if let Some(logger) = router.part_mut::<Nat>().and_then(|nat| nat.logger.as_mut()) {
        logger.went(sent, of);
    }
}

/// Writes down what threads tell; `true` where there may be more.
fn hear(router: &mut Router, now: u64) -> bool {
    let mut more = false;
    if !router.part::<Nat>().is_some_and(|nat| nat.rings.are_there() || nat.ipfix.is_some()) {
        return more;
    }
    with_nat(router, |router, nat| {
        let Nat { rings, logger, ipfix, log_severity, .. } = nat;
        let times = Times::of(now);
        let mut lines = logger.as_mut().filter(|_| *log_severity >= SEVERITY);
        let table = |fib: u16| router.table_of_fib(FamilyId::V4, fib.into()).unwrap_or_default();
        more = rings.drain(LOG_STEP, |event| {
            if let Some(logger) = &mut lines {
                logger.tell(event, times.unix_millis());
            }
            if let Some(export) = ipfix {
                export.tell(event, times, table);
            }
        });
        if let Some(export) = ipfix {
            export.tick(times);
        }
    });
    more
}

/// Sends records that are ready.
fn send_records(router: &mut Router) {
    let ready = router.part_mut::<Nat>().and_then(|nat| nat.ipfix.as_mut()).and_then(|export| export.take());
    let Some((path, datagrams)) = ready else { return };
    let of = datagrams.len() as u64;
    let sent = nodes::send_log(router, path, datagrams);
    if let Some(export) = router.part_mut::<Nat>().and_then(|nat| nat.ipfix.as_mut()) {
        export.lost(of - sent);
    }
}

/// One call; says when to call next.
pub(crate) fn run(router: &mut Router, now: u64) -> u64 {
    let Some(nat) = router.part::<Nat>().filter(|nat| nat.enabled.is_some()) else { return u64::MAX };
    let second = (now / SECOND) as u32;
    let ticked = nat.parts.clock.swap(second, Ordering::Relaxed) != second;
    if ticked {
        with_nat(router, |router, nat| {
            if nat.parts.fragments.waiting() > 0 {
                // Fragments that waited in vain go, also those of an interface that no packets come in on any more.
                nodes::end_waits(router, &nat.parts, second);
            }
            nat.prune_moved(router, second);
        });
        for thread in threads(router) {
            let Some(nat) = router.part::<Nat>() else { return u64::MAX };
            let Some(shared) = nat.parts.threads.get(thread).cloned() else { continue };
            let config = nat.parts.config.get();
            let [counters, _] = nat.parts.counters.clone();
            router.graph.fleet().cast(thread, move |_| {
                let mut state = lock(&shared);
                if let Some(nat) = state.as_mut() {
                    nat.expire_some(&config, second, EXPIRE);
                }
                counters.sessions(thread, state.as_ref().map_or(0, |nat| nat.sessions.len().into()));
            });
        }
    }
    let more = purge(router);
    let more = hear(router, now) || more;
    let more = get_memory(router) || more;
    send_log(router);
    send_records(router);
    if more { now } else { now + SECOND - now % SECOND }
}
