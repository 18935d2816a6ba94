//! What one thread has of the NAT: its sessions, its hosts, its ports; and how it begins a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_tables::error::OutOfMemory;

use crate::affinity::{Affinities, client_of};
use crate::bindings::Bindings;
use crate::config::{Mapping, NatConfig, PoolAddress, Twice, has_ports};
use crate::hosts::Hosts;
use crate::log::{Feed, Limit};
use crate::session::{Direction, Endpoint, Key, Session, flag};
use crate::table::{AddError, SessionId, Sessions, Timeouts};

/// Ports tried at random, then one after the other, on one address. A pool of which nine tenths are taken for one remote
/// endpoint still gives one with all but 10⁻⁴ of the packets.
const RANDOM_TRIES: u32 = 16;
const NEXT_TRIES: u32 = 80;
/// Addresses tried.
const ADDRESS_TRIES: usize = 4;
/// Remote endpoints for which there was no port a moment ago.
const EXHAUSTED: usize = 64;
/// Sessions whose timers are looked at for each vector.
const EXPIRE_STEP: usize = 64;

/// FIBs whose sessions are counted; there are no more.
const FIBS: usize = 4096;

/// Why a session is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No port is free on the addresses tried.
    Ports,
    /// There are as many sessions as there may be.
    Sessions,
    /// The host has as many as it may have.
    Host,
    /// No memory.
    Memory,
    /// No pool has an address for the host.
    NoAddress,
}

/// The state of one thread.
pub struct ThreadNat {
    /// Its sessions.
    pub sessions: Sessions,
    hosts: Hosts,
    /// Sessions by FIB of the inside.
    tables: Vec<u32>,
    bindings: Bindings,
    affinities: Affinities,
    /// Seconds, as at the last packet or tick.
    now: u32,
    /// Where what begins and ends is told.
    pub(crate) log: Feed,
    random: u64,
    exhausted: [(Endpoint, u8, u32); EXHAUSTED],
    /// Sessions begun, ended.
    pub begun: u64,
    /// Sessions that have expired or were deleted.
    pub ended: u64,
}

/// A thread's state, shared by its nodes and locked once a vector. Only that thread locks it, also for what main wants of it
/// (main sends closures), so that nobody ever waits.
pub type Shared = Arc<Mutex<Option<ThreadNat>>>;

/// Locks a thread's state.
pub fn lock(shared: &Shared) -> MutexGuard<'_, Option<ThreadNat>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadNat {
    /// A thread without sessions.
    ///
    /// # Errors
    /// No memory.
    pub fn new(limit: u32, seed: u64, now: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            sessions: Sessions::new(limit, seed, now)?,
            hosts: Hosts::new(seed),
            tables: vec![0; FIBS],
            bindings: Bindings::default(),
            affinities: Affinities::default(),
            now,
            log: Feed::default(),
            random: seed | 1,
            exhausted: [(Endpoint::new(0, 0), 0, 0); EXHAUSTED],
            begun: 0,
            ended: 0,
        })
    }

    /// A number that decides a port.
    fn draw(&mut self) -> u32 {
        // splitmix64: what is guessed of a port helps nobody (RFC 6056 asks for no more).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    }

    /// Ends sessions that have been silent for long enough; some at a time.
    pub fn expire(&mut self, config: &NatConfig, now: u32) -> bool {
        self.expire_some(config, now, EXPIRE_STEP)
    }

    /// As [`ThreadNat::expire`], looking at up to `n`.
    pub fn expire_some(&mut self, config: &NatConfig, now: u32, n: usize) -> bool {
        self.now = now;
        let Self { sessions, hosts, tables, bindings, affinities, ended, log, .. } = self;
        affinities.expire(now, n);
        sessions.expire(now, n, &config.timeouts, |session| {
            *ended += 1;
            let was_last = forget(hosts, tables, bindings, session);
            affinities.release(client_of(session), now);
            log.tell(false, session);
            if was_last {
                log.bound(false, session);
            }
        })
    }

    /// Ends a session.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.sessions.remove(id)?;
        self.ended += 1;
        let was_last = forget(&mut self.hosts, &mut self.tables, &mut self.bindings, &session);
        self.affinities.release(client_of(&session), self.now);
        self.log.tell(false, &session);
        if was_last {
            self.log.bound(false, &session);
        }
        Some(session)
    }

    /// Ends those of the sessions with numbers `from..to` that `which` picks.
    pub fn remove_where(&mut self, from: SessionId, to: SessionId, which: impl Fn(&Session) -> bool) {
        for id in from..to.min(self.sessions.end()) {
            if self.sessions.get(id).is_some_and(|s| which(&s)) {
                self.remove(id);
            }
        }
    }

    /// Bytes of memory: sessions, hosts, bindings.
    pub fn memory_bytes(&self) -> usize {
        self.sessions.memory_bytes() + self.hosts.memory_bytes() + self.bindings.memory_bytes() + self.affinities.memory_bytes()
    }

    /// Endpoints that are mapped independently of the remote ones.
    pub fn bindings(&self) -> usize {
        self.bindings.len()
    }

    /// Hosts with sessions.
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    pub(crate) fn add(&mut self, config: &NatConfig, session: &Session) -> Result<SessionId, AddError> {
        self.add_by(config, session, Sessions::add)
    }

    fn add_by(
        &mut self,
        config: &NatConfig,
        session: &Session,
        add: impl FnOnce(&mut Sessions, &Session, &Timeouts) -> Result<SessionId, AddError>,
    ) -> Result<SessionId, AddError> {
        let independent = session.flags & flag::INDEPENDENT != 0;
        if !self.hosts.reserve() || independent && !self.bindings.reserve() {
            return Err(AddError::NoMemory);
        }
        let id = add(&mut self.sessions, session, &config.timeouts)?;
        self.begun += 1;
        if independent && self.bindings.hold(session) {
            self.log.bound(true, session);
        }
        self.log.tell(true, session);
        let affinity = || config.mapping_of_external(session.outside(), session.i2o.proto()).map_or(0, |mapping| mapping.affinity);
        if session.flags & flag::STATIC != 0
            && let lasts @ 1.. = affinity()
        {
            self.affinities.hold(client_of(session), session.inside(), lasts);
        }
        if let Some(table) = self.tables.get_mut(usize::from(session.i2o.fib())) {
            *table += 1;
        }
        let host = self.hosts.entry(session.inside().addr, session.i2o.fib());
        host.sessions += 1;
        if session.flags & flag::STATIC == 0 {
            host.addr = session.outside().addr;
        }
        Ok(id)
    }

    /// Whether a host may have one more.
    fn check_host(&mut self, config: &NatConfig, addr: u32, fib: u16) -> Result<(), Refusal> {
        let Some(limit) = self.limit_of(config, addr, fib) else { return Ok(()) };
        self.log.limit(limit, self.now);
        Err(if matches!(limit, Limit::Host { .. }) { Refusal::Host } else { Refusal::Sessions })
    }

    /// Which limit keeps a host from having one more.
    fn limit_of(&self, config: &NatConfig, addr: u32, fib: u16) -> Option<Limit> {
        let is_full = |hosts: &Hosts| hosts.get(addr, fib).is_some_and(|host| host.sessions >= config.host_limit);
        if config.host_limit > 0 && is_full(&self.hosts) {
            return Some(Limit::Host { addr, most: config.host_limit });
        }
        // Most routers have no such limit, and one look tells.
        if !config.table_limits.is_empty()
            && let (Some(limit), Some(sessions)) = (config.table_limits.get(&fib), self.tables.get(usize::from(fib)))
            && sessions >= limit
        {
            return Some(Limit::Table { fib, most: *limit });
        }
        (self.sessions.len() >= self.sessions.limit()).then(|| Limit::Sessions(self.sessions.limit()))
    }

    /// Asks for the line of a packet's host inside.
    pub fn prefetch_host(&self, i2o: Key) {
        self.hosts.prefetch(i2o.src().addr, i2o.fib());
    }

    /// Draws the number that decides the port of a session that may begin, and asks for the lines that it would need, so that those of
    /// several packets are under way at once. Where the session gets another address or port, only that was in vain.
    pub fn foresee(&mut self, config: &NatConfig, position: usize, i2o: Key) -> u32 {
        let draw = self.draw();
        let (from, to, proto) = (i2o.src(), i2o.dst(), i2o.proto());
        if let Some(address) = config.pool.get(self.first_address(config, from.addr, i2o.fib())) {
            let range = config.ports_of(position);
            for port in [Some(from.port).filter(|own| is_in(range, *own)), Some(drawn_port(range, draw))].into_iter().flatten() {
                let key = Key::new(to, Endpoint::new(address.addr, port), proto, Direction::Out2In, config.outside_fib);
                self.sessions.prefetch(self.sessions.hash(key));
            }
        }
        draw
    }

    /// Where in the pool a host begins to look: at the address that its sessions have.
    #[inline(always)]
    fn first_address(&self, config: &NatConfig, addr: u32, fib: u16) -> usize {
        let first = scatter(addr, config.pool.len());
        match self.hosts.get(addr, fib) {
            // Most hosts have got what they asked for first.
            Some(host) if config.pool.get(first).is_none_or(|first| first.addr != host.addr) => {
                config.pool_at.get(&host.addr).copied().unwrap_or(first)
            }
            _ => first,
        }
    }

    /// Begins a session of a host inside whose packets leave in `outside_fib`. `draw` decides its port ([`ThreadNat::foresee`]), and the
    /// caller has found no session of this key.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn begin_in2out(
        &mut self,
        config: &NatConfig,
        position: usize,
        i2o: Key,
        outside_fib: u16,
        now: u32,
        draw: Option<u32>,
    ) -> Result<Option<SessionId>, Refusal> {
        let (from, to, proto, fib) = (i2o.src(), i2o.dst(), i2o.proto(), i2o.fib());
        let hairpin = if config.external.contains(&to.addr) { flag::HAIRPIN } else { 0 };
        if let Some(mapping) = config.mapping_of_local(from, proto, fib) {
            if mapping.identity {
                return Ok(None);
            }
            self.check_host(config, from.addr, fib)?;
            let port = if mapping.proto.is_some() { mapping.external.port } else { from.port };
            let outside = Endpoint::new(mapping.external.addr, port);
            let o2i = Key::new(to, outside, proto, Direction::Out2In, outside_fib);
            let session = Session::new(i2o, o2i, flag::STATIC | hairpin, now);
            return self.add(config, &session).map(Some).map_err(refusal);
        }
        self.check_host(config, from.addr, fib)?;
        if let Some(outside) = self.bindings.outside((from, proto, fib)) {
            let o2i = Key::new(to, outside, proto, Direction::Out2In, outside_fib);
            let session = Session::new(i2o, o2i, flag::INDEPENDENT | hairpin, now);
            return self.add(config, &session).map(Some).map_err(refusal);
        }
        let tenant = |p: &&PoolAddress| p.tenant.is_none_or(|(_, f)| f == fib);
        let (first, size) = (self.first_address(config, from.addr, fib), config.pool.len());
        let around = (first..first + size).filter_map(|at| config.pool.get(if at < size { at } else { at - size }));
        let around = around.filter(tenant).take(ADDRESS_TRIES);
        let mut refused = Refusal::NoAddress;
        if self.was_exhausted(to, proto, now) {
            return Err(Refusal::Ports);
        }
        let mut draw = draw.unwrap_or_else(|| self.draw());
        for address in around {
            match self.free_port(config, position, *address, (to, outside_fib), proto, (from.port, draw)) {
                Some(outside) => {
                    let o2i = Key::new(to, outside, proto, Direction::Out2In, outside_fib);
                    let flags = hairpin | if independent(*address, proto) { flag::INDEPENDENT } else { 0 };
                    let session = Session::new(i2o, o2i, flags, now);
                    return self.add_by(config, &session, Sessions::insert).map(Some).map_err(refusal);
                }
                None => (refused, draw) = (Refusal::Ports, self.draw()),
            }
        }
        if refused == Refusal::Ports {
            self.note_exhausted(to, proto, now);
            self.log.limit(Limit::Ports, now);
        }
        Err(refused)
    }

    /// A port of an address that no session with this remote endpoint has, and no static mapping; of an address that is mapped
    /// independently of remote endpoints, one that nobody has. `draw` is the first random number.
    fn free_port(
        &mut self,
        config: &NatConfig,
        position: usize,
        address: PoolAddress,
        (to, fib): (Endpoint, u16),
        proto: u8,
        (own, draw): (u16, u32),
    ) -> Option<Endpoint> {
        let independent = independent(address, proto);
        let range = config.ports_of(position);
        let free = |nat: &Self, port: u16| {
            let outside = Endpoint::new(address.addr, port);
            // A query's reply has its identifier as the destination's port and none for the source.
            let taken = config.is_mapped(outside, proto) || independent && nat.bindings.inside(outside, proto).is_some();
            let key = Key::new(to, outside, proto, Direction::Out2In, fib);
            (!taken && nat.sessions.find(key).is_none()).then_some(outside)
        };
        if !has_ports(proto) {
            return free(self, own);
        }
        // The host's own port, where this thread gives it away and it is free: some protocols look at it (IKE, games).
        if is_in(range, own)
            && let Some(kept) = free(self, own)
        {
            return Some(kept);
        }
        // An even port for an even one (RFC 4787, REQ-4), where the range has it.
        let alike = |port: u16| {
            let wanted = port ^ (port ^ own) & 1;
            if independent && is_in(range, wanted) { wanted } else { port }
        };
        let mut n = draw;
        for _ in 0..RANDOM_TRIES {
            if let Some(found) = free(self, alike(drawn_port(range, n))) {
                return Some(found);
            }
            n = self.draw();
        }
        let ((first, count), start) = (range, drawn_port(range, n));
        let next = |step: u32| first + ((u32::from(start - first) + step) % u32::from(count.max(1))) as u16;
        (0..NEXT_TRIES).find_map(|step| free(self, alike(next(step))))
    }

    fn exhausted_slot(to: Endpoint) -> usize {
        (u64::from(to.addr) << 16 | u64::from(to.port)).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 58
    }

    /// Where ports have just run out, the next packets are not worth a search.
    fn was_exhausted(&self, to: Endpoint, proto: u8, now: u32) -> bool {
        self.exhausted.get(Self::exhausted_slot(to)).is_some_and(|slot| *slot == (to, proto, now))
    }

    fn note_exhausted(&mut self, to: Endpoint, proto: u8, now: u32) {
        if let Some(slot) = self.exhausted.get_mut(Self::exhausted_slot(to)) {
            *slot = (to, proto, now);
        }
    }

    /// Begins a session from outside with an inside endpoint that is mapped independently of remote ones: filtering is
    /// endpoint-independent too (RFC 4787, REQ-8). `Ok(None)`: there is no such endpoint.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn begin_bound(&mut self, config: &NatConfig, o2i: Key, now: u32) -> Result<Option<SessionId>, Refusal> {
        let Some((inside, proto, fib)) = self.bindings.inside(o2i.dst(), o2i.proto()) else { return Ok(None) };
        self.check_host(config, inside.addr, fib)?;
        let hairpin = if config.external.contains(&o2i.src().addr) { flag::HAIRPIN } else { 0 };
        let i2o = Key::new(inside, o2i.src(), proto, Direction::In2Out, fib);
        self.add(config, &Session::new(i2o, o2i, flag::INDEPENDENT | hairpin, now)).map(Some).map_err(refusal)
    }

    /// Begins a session of a remote host with one inside that it calls by its own address: nothing is translated, and so the
    /// answers are not either.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn begin_forwarded(&mut self, config: &NatConfig, o2i: Key, now: u32) -> Result<SessionId, Refusal> {
        self.check_host(config, o2i.dst().addr, o2i.fib())?;
        let i2o = Key::new(o2i.dst(), o2i.src(), o2i.proto(), Direction::In2Out, o2i.fib());
        self.add(config, &Session::new(i2o, o2i, flag::STATIC, now)).map_err(refusal)
    }

    /// Begins a session from outside, by a static mapping.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn begin_out2in(
        &mut self,
        config: &NatConfig,
        position: usize,
        mapping: &Mapping,
        o2i: Key,
        now: u32,
    ) -> Result<Option<SessionId>, Refusal> {
        if mapping.identity {
            return Ok(None);
        }
        let (from, to, proto, fib) = (o2i.src(), o2i.dst(), o2i.proto(), mapping.vrf.1);
        let local = self.local_for(mapping, from, to, now).ok_or(Refusal::NoAddress)?;
        self.check_host(config, local.addr, fib)?;
        let twice = match mapping.twice {
            Twice::No => false,
            Twice::Always => true,
            Twice::ToSelf => from.addr == mapping.external.addr || mapping.locals.iter().any(|(l, _)| l.addr == from.addr),
        };
        let seen = if twice { self.twice_source(config, position, local, proto, fib, from)? } else { from };
        let hairpin = if config.external.contains(&from.addr) { flag::HAIRPIN } else { 0 };
        let flags = flag::STATIC | hairpin | if twice { flag::TWICE } else { 0 };
        let i2o = Key::new(local, seen, proto, Direction::In2Out, fib);
        self.add(config, &Session::new(i2o, o2i, flags, now)).map(Some).map_err(refusal)
    }

    /// The inside endpoint for a remote one: with affinity where it was served last, if that is still one of the mapping's.
    fn local_for(&self, mapping: &Mapping, from: Endpoint, to: Endpoint, now: u32) -> Option<Endpoint> {
        let Some(proto) = mapping.proto.filter(|_| mapping.affinity > 0) else { return mapping.local_for(from, to.port) };
        let last = self.affinities.find((from.addr, to, proto), now);
        let is_there = |end: &Endpoint| mapping.locals.iter().any(|(local, _)| local == end);
        // Where no client can be bound any more, its address alone chooses.
        let chooses = if self.affinities.is_full() { Endpoint::new(from.addr, 0) } else { from };
        last.filter(is_there).or_else(|| mapping.local_for(chooses, to.port))
    }

    /// An address and a port by which a host inside sees one outside.
    fn twice_source(
        &mut self,
        config: &NatConfig,
        position: usize,
        local: Endpoint,
        proto: u8,
        fib: u16,
        from: Endpoint,
    ) -> Result<Endpoint, Refusal> {
        let pool = &config.twice_pool;
        let first = scatter(from.addr, pool.len());
        let range = config.ports_of(position);
        let mut refused = Refusal::NoAddress;
        for address in pool.iter().cycle().skip(first).take(pool.len().min(ADDRESS_TRIES)) {
            for _ in 0..RANDOM_TRIES {
                let port = drawn_port(range, self.draw());
                // A query has its identifier on the inside's place only.
                let seen = Endpoint::new(address.addr, if proto == 1 { 0 } else { port });
                if self.sessions.find(Key::new(local, seen, proto, Direction::In2Out, fib)).is_none() {
                    return Ok(seen);
                }
            }
            refused = Refusal::Ports;
        }
        Err(refused)
    }
}

/// Where in a pool of `n` a host begins to look.
fn scatter(addr: u32, n: usize) -> usize {
    // Neighbours follow each other, so a subnet's hosts are spread evenly; the upper bytes are stirred in for those of many subnets.
    let at = addr.wrapping_add((addr >> 8).wrapping_mul(0x9e37_79b9) >> 8);
    at.checked_rem(n as u32).unwrap_or(0) as usize
}

/// The port of a range (first, number) that a drawn number stands for.
fn drawn_port((first, count): (u16, u16), n: u32) -> u16 {
    // As evenly as a remainder, without a division.
    first + ((u64::from(n) * u64::from(count.max(1))) >> 32) as u16
}

/// Whether a range (first, number) has a port.
fn is_in((first, count): (u16, u16), port: u16) -> bool {
    port >= first && port - first < count
}

/// Whether a protocol's ports on an address are mapped independently of remote endpoints.
fn independent(address: PoolAddress, proto: u8) -> bool {
    address.independent && [1, 6, 17].contains(&proto)
}

/// Takes a session out of what is counted; `true`: it was the last one of its endpoint-independent mapping.
fn forget(hosts: &mut Hosts, tables: &mut [u32], bindings: &mut Bindings, session: &Session) -> bool {
    if let Some(table) = tables.get_mut(usize::from(session.i2o.fib())) {
        *table = table.saturating_sub(1);
    }
    let was_last = session.flags & flag::INDEPENDENT != 0 && bindings.release(session);
    hosts.release(session.inside().addr, session.i2o.fib());
    was_last
}

fn refusal(error: AddError) -> Refusal {
    match error {
        AddError::Full => Refusal::Sessions,
        AddError::NoMemory => Refusal::Memory,
        // Another session has the outside endpoint for this remote one.
        AddError::Taken => Refusal::Ports,
    }
}
