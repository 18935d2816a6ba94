//! Sessions: flows that a rule has let through, whose packets go on in both directions.
//!
//! ```text
//!   worker: key of a packet --- hash, lookup, no lock ------> entry: key, version, note (last packet, TCP flags seen)
//!                                                               |
//!   worker: new flow      --- lock of its shard of the table ---+--- insert, and what is over makes room
//!   main:   now and then  --- the same lock --------------------+--- removes what is over, a shard at a time
//! ```
//!
//! One entry stands for both directions of a flow on an interface: its key has the addresses and ports as packets have them that come
//! in. Any worker may begin a session, so that a shard has a lock, which only beginning and ending take. A session that is over is
//! none from that moment on: whoever looks it up compares times. Removing it later only frees its place.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quiver_tables::error::OutOfMemory;
use quiver_tables::hash::{BoundedHash, HashReader, Key, Noted, WithNote};
use quiver_tables::mem::{Budget, PageKind};
use quiver_tables::qsbr::Domain;

use crate::packet::{FOUR, Family, Four, SIX, Six};

/// Sessions at most, where nothing else is said; VPP's number.
pub const SESSIONS_MAX: u32 = 500_000;
/// A tick is so many ns, as a power of two: 67 ms.
const TICK: u32 = 26;
/// Shards at most, and sessions of each at least.
const SHARDS_MAX: u32 = 256;
const SHARD_MIN: u32 = 1024;
/// Sessions that are removed at once where room is needed.
const VICTIMS: usize = 64;
const TCP: u8 = 6;
/// SYN and ACK of both directions, and no FIN or RST.
const ESTABLISHED: u8 = 0xaa;

/// After which time without packets a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Of all that is not TCP.
    Udp,
    /// Of TCP connections that have not begun on both sides, or that end.
    TcpTransient,
    /// Of established TCP connections.
    TcpIdle,
}

/// Seconds by [`Timeout`], as VPP has them.
pub const TIMEOUTS: [u32; 3] = [600, 120, 24 * 3600];

/// Now, in ticks.
pub fn ticks(now: u64) -> u32 {
    (now >> TICK) as u32
}

fn ticks_of(seconds: u32) -> u32 {
    u32::try_from((u64::from(seconds) * 1_000_000_000) >> TICK).unwrap_or(u32::MAX).max(1)
}

/// TCP's FIN, SYN, RST and ACK in four bits.
fn squeeze(tcp_flags: u8) -> u8 {
    tcp_flags & 7 | tcp_flags >> 1 & 8
}

/// When the last packet came, and which TCP flags both directions have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    when: u32,
    flags: u8,
}

impl Note {
    fn read(word: u64) -> Self {
        Self { when: word as u32, flags: (word >> 32) as u8 }
    }

    fn word(self) -> u64 {
        u64::from(self.flags) << 32 | u64::from(self.when)
    }

    fn timeout(self, protocol: u8) -> Timeout {
        match (protocol, self.flags) {
            (TCP, ESTABLISHED) => Timeout::TcpIdle,
            (TCP, _) => Timeout::TcpTransient,
            _ => Timeout::Udp,
        }
    }

    /// With a packet more.
    #[inline(always)]
    fn with(self, now: u32, tx: bool, tcp_flags: u8) -> Self {
        let (flags, shift) = (squeeze(tcp_flags), u8::from(tx) * 4);
        // A connection begins anew where one has ended.
        let ended = self.flags & 0x55 != 0 && flags == 2;
        let before = if ended { 0 } else { self.flags };
        Self { when: now, flags: before | flags << shift }
    }
}

/// A key with a [`Seen::word`] in it.
pub trait SessionKey: WithNote {
    /// That word.
    fn word(&self) -> u64;
    /// The addresses: those of the side that packets come in from first.
    fn addresses(&self) -> (std::net::IpAddr, std::net::IpAddr);
}

impl SessionKey for Noted<u128> {
    fn word(&self) -> u64 {
        self.0 as u64
    }

    fn addresses(&self) -> (std::net::IpAddr, std::net::IpAddr) {
        let of = |bits: u128| std::net::Ipv4Addr::from_bits(bits as u32).into();
        (of(self.0 >> 96), of(self.0 >> 64))
    }
}

impl SessionKey for Noted<[u8; 40]> {
    fn word(&self) -> u64 {
        u64::from_ne_bytes(self.0.last_chunk().copied().unwrap_or_default())
    }

    fn addresses(&self) -> (std::net::IpAddr, std::net::IpAddr) {
        let word = |at: usize| u32::from_ne_bytes(self.0[4 * at..4 * at + 4].try_into().unwrap_or_default());
        let of = |at: usize| {
            let bits = (at..at + 4).fold(0, |bits, at| bits << 32 | u128::from(word(at)));
            std::net::Ipv6Addr::from_bits(bits).into()
        };
        (of(0), of(4))
    }
}

/// The interface of a key.
fn interface_of(word: u64) -> u32 {
    word as u32 & 0x7f_ffff
}

fn protocol_of(word: u64) -> u8 {
    (word >> 24) as u8
}

/// A session, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Interface.
    pub interface: u32,
    /// The side that packets of the interface come in from, and the other one.
    pub addresses: (std::net::IpAddr, std::net::IpAddr),
    /// Ports of both, or the identifier of queries of ICMP.
    pub ports: (u16, u16),
    /// Protocol.
    pub protocol: u8,
    /// Which timeout it has.
    pub timeout: Timeout,
    /// Seconds since its last packet.
    pub idle: u32,
}

struct Shard<K: Key> {
    table: Mutex<BoundedHash<K>>,
    /// No room was found in this tick.
    barren: AtomicU32,
}

impl<K: Key> Shard<K> {
    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, BoundedHash<K>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sessions of a family: one table, each shard of which has a writer and its lock.
pub struct Shards<K: Key> {
    reader: HashReader<K>,
    shards: Box<[Shard<K>]>,
}

impl<K: SessionKey> Shards<K> {
    fn new(count: u32, capacity: u32, seed: u64, domain: &Domain) -> Result<Self, OutOfMemory> {
        let pages = PageKind::for_table(u64::from(count) * u64::from(capacity) * size_of::<K>() as u64);
        let tables = BoundedHash::shards(count as usize, capacity, domain, seed, pages, &Budget::unlimited())?;
        let reader = tables.first().ok_or(OutOfMemory)?.reader().clone();
        let shard = |table| Shard { table: Mutex::new(table), barren: AtomicU32::new(u32::MAX) };
        Ok(Self { reader, shards: tables.into_iter().map(shard).collect() })
    }

    fn shard(&self, hash: u64) -> &Shard<K> {
        &self.shards[self.reader.shard(hash)]
    }

    /// Hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: &K) -> u64 {
        self.reader.hash(key)
    }

    /// Asks for the line that a lookup reads first.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.reader.prefetch(hash);
    }

    /// What most probably is the session's number; its line is asked for.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Candidate {
        let number = self.reader.candidate(hash);
        if let Some(number) = number {
            self.reader.prefetch_entry(number);
        }
        Candidate(number)
    }

    fn note(&self, number: u32) -> Note {
        Note::read(self.reader.note(number).map_or(0, |cell| cell.load(Relaxed)))
    }
}

/// A number that is to be compared: [`Shards::candidate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate(Option<u32>);

/// There is no room for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// All sessions.
pub struct Sessions {
    four: Shards<Noted<u128>>,
    six: Shards<Noted<[u8; 40]>>,
    max: u32,
    len: AtomicU32,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Ticks, by [`Timeout`].
    timeouts: [AtomicU32; 3],
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("max", &self.max).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Which of the tables has a family's sessions.
pub trait SessionsOf<const D: usize>: Family<D, Key: SessionKey> {
    /// That table.
    fn shards(sessions: &Sessions) -> &Shards<Self::Key>;
}

impl SessionsOf<FOUR> for Four {
    #[inline(always)]
    fn shards(sessions: &Sessions) -> &Shards<Noted<u128>> {
        &sessions.four
    }
}

impl SessionsOf<SIX> for Six {
    #[inline(always)]
    fn shards(sessions: &Sessions) -> &Shards<Noted<[u8; 40]>> {
        &sessions.six
    }
}

impl Sessions {
    /// A table for `max` sessions of both families together, with room for as many of each. Memory is taken as they begin, on
    /// large pages in steps of 2 MB.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(max: u32, seconds: [u32; 3], domain: &Domain) -> Result<Self, OutOfMemory> {
        use std::hash::{BuildHasher, RandomState};
        let seed = RandomState::new().hash_one(max);
        let count = (max / SHARD_MIN).max(1).next_power_of_two().min(SHARDS_MAX);
        // Shards do not fill alike: eight standard deviations, and removed entries that readers may still look at.
        let mean = max.div_ceil(count);
        let capacity = mean.saturating_add(8 * mean.isqrt()).saturating_add(2 * VICTIMS as u32);
        let sessions = Self {
            four: Shards::new(count, capacity, seed, domain)?,
            six: Shards::new(count, capacity, seed, domain)?,
            max,
            len: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            timeouts: Default::default(),
        };
        sessions.set_timeouts(seconds);
        Ok(sessions)
    }

    /// Sets the timeouts, seconds by [`Timeout`]; for sessions that are there too.
    pub fn set_timeouts(&self, seconds: [u32; 3]) {
        for (to, seconds) in self.timeouts.iter().zip(seconds) {
            to.store(ticks_of(seconds), Relaxed);
        }
    }

    /// How many there are, counting those that are over and not removed yet.
    pub fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have begun and how many have ended.
    pub fn turnover(&self) -> (u64, u64) {
        (self.begun.load(Relaxed), self.ended.load(Relaxed))
    }

    /// Shards.
    pub fn shards(&self) -> usize {
        self.four.shards.len()
    }

    #[inline(always)]
    fn is_over(&self, note: Note, protocol: u8, now: u32) -> bool {
        // The note of another thread may be later than our time.
        let idle = now.saturating_sub(note.when);
        idle >= self.timeouts[note.timeout(protocol) as usize].load(Relaxed)
    }

    /// A packet of a session: it is noted, and the version of the configuration comes back that the session is from. Nothing where
    /// there is none, or it is over.
    #[inline(always)]
    pub fn hit<F: SessionsOf<D>, const D: usize>(
        &self,
        key: &F::Key,
        hash: u64,
        candidate: Candidate,
        tcp_flags: u8,
        tx: bool,
        now: u32,
    ) -> Option<u32> {
        let reader = &F::shards(self).reader;
        let mut found = None;
        if let Some(number) = candidate.0 {
            found = reader.value_at(number, key).map(|version| (number, version));
        }
        if found.is_none() {
            found = Self::find(reader, key, hash);
        }
        let (number, version) = found?;
        let cell = reader.note(number)?;
        let word = cell.load(Relaxed);
        let note = Note::read(word);
        let new = note.with(now, tx, tcp_flags);
        if new == note {
            return Some(version);
        }
        if self.is_over(note, protocol_of(key.word()), now) {
            return None;
        }
        Self::note(cell, word, now, tx, tcp_flags);
        Some(version)
    }

    /// The session of a key that is not its hash's candidate, if any.
    #[inline(never)]
    fn find<K: Key>(reader: &HashReader<K>, key: &K, hash: u64) -> Option<(u32, u32)> {
        reader.find_hashed(key, hash)
    }

    /// Changes a note, which another worker may change too.
    #[inline(never)]
    fn note(cell: &AtomicU64, word: u64, now: u32, tx: bool, tcp_flags: u8) {
        let mut word = word;
        loop {
            let new = Note::read(word).with(now, tx, tcp_flags).word();
            match cell.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// Whether there is a session with this key, which an ICMP error is about.
    pub fn has<F: SessionsOf<D>, const D: usize>(&self, key: &F::Key, now: u32) -> Option<u32> {
        let shards = F::shards(self);
        let hash = shards.hash(key);
        let (number, version) = shards.reader.find_hashed(key, hash)?;
        (!self.is_over(shards.note(number), protocol_of(key.word()), now)).then_some(version)
    }

    /// Begins a session with its first packet, or begins it anew where it is over or of an older configuration.
    ///
    /// # Errors
    /// There is no room.
    #[inline(never)]
    pub fn begin<F: SessionsOf<D>, const D: usize>(
        &self,
        key: F::Key,
        hash: u64,
        tcp_flags: u8,
        tx: bool,
        now: u32,
        version: u32,
    ) -> Result<(), Full> {
        let shards = F::shards(self);
        let shard = shards.shard(hash);
        let mut table = shard.lock();
        let is_new = table.get_hashed(&key, hash).is_none();
        if is_new && self.len() >= self.max {
            self.make_room(shards, shard, &mut table, now)?;
        }
        if table.insert_hashed(key, hash, version).is_err() {
            self.make_room(shards, shard, &mut table, now)?;
            table.insert_hashed(key, hash, version).map_err(|_| Full)?;
        }
        if is_new {
            self.len.fetch_add(1, Relaxed);
        }
        self.begun.fetch_add(1, Relaxed);
        self.ended.fetch_add(u64::from(!is_new), Relaxed);
        if let Some((number, _)) = shards.reader.find_hashed(&key, hash)
            && let Some(cell) = shards.reader.note(number)
        {
            cell.store(Note::default().with(now, tx, tcp_flags).word(), Relaxed);
        }
        Ok(())
    }

    /// Removes sessions of a shard that are over; where there are none, some TCP connections that are not established, those that were
    /// silent for longest: what a flood of SYNs leaves behind must not lock others out.
    fn make_room<K: SessionKey>(
        &self,
        shards: &Shards<K>,
        shard: &Shard<K>,
        table: &mut BoundedHash<K>,
        now: u32,
    ) -> Result<(), Full> {
        // A look at all of them costs tens of microseconds: not again at once where it was in vain.
        if shard.barren.load(Relaxed) == now {
            return Err(Full);
        }
        let (mut over, mut n) = ([None; VICTIMS], 0);
        let (mut oldest, mut newest) = (u32::MAX, 0);
        table.for_each_numbered(|number, key, _| {
            let (note, protocol) = (shards.note(number), protocol_of(key.word()));
            if self.is_over(note, protocol, now) && n < VICTIMS {
                (over[n], n) = (Some(key), n + 1);
            } else if note.timeout(protocol) == Timeout::TcpTransient {
                (oldest, newest) = (oldest.min(note.when), newest.max(note.when));
            }
        });
        if n == 0 && oldest <= newest {
            let latest = oldest + (newest - oldest) / 8;
            table.for_each_numbered(|number, key, _| {
                let (note, protocol) = (shards.note(number), protocol_of(key.word()));
                if n < VICTIMS && note.timeout(protocol) == Timeout::TcpTransient && note.when <= latest {
                    (over[n], n) = (Some(key), n + 1);
                }
            });
        }
        if n == 0 {
            shard.barren.store(now, Relaxed);
            return Err(Full);
        }
        over.iter().flatten().for_each(|key| self.remove(table, key));
        Ok(())
    }

    fn remove<K: Key>(&self, table: &mut BoundedHash<K>, key: &K) {
        if table.remove(key).is_some() {
            self.len.fetch_sub(1, Relaxed);
            self.ended.fetch_add(1, Relaxed);
        }
    }

    /// Ends a session.
    #[inline(never)]
    pub fn end<F: SessionsOf<D>, const D: usize>(&self, key: &F::Key, hash: u64) {
        self.remove(&mut F::shards(self).shard(hash).lock(), key);
    }

    /// Says that a session is in order under this version of the configuration.
    #[inline(never)]
    pub fn renew<F: SessionsOf<D>, const D: usize>(&self, key: &F::Key, hash: u64, version: u32) {
        let mut table = F::shards(self).shard(hash).lock();
        if table.get_hashed(key, hash).is_some() {
            // It is there, so that there is room for it.
            let _ = table.insert_hashed(*key, hash, version);
        }
    }

    /// Removes what is over in a shard of both families. `is_stale`: whether sessions of an interface and a version are over too.
    pub fn sweep(&self, shard: usize, now: u32, is_stale: &impl Fn(u32, u32) -> bool) {
        self.sweep_of(&self.four, shard, now, is_stale);
        self.sweep_of(&self.six, shard, now, is_stale);
    }

    fn sweep_of<K: SessionKey>(&self, shards: &Shards<K>, at: usize, now: u32, is_stale: &impl Fn(u32, u32) -> bool) {
        let Some(shard) = shards.shards.get(at) else { return };
        let mut table = shard.lock();
        if table.is_empty() {
            return;
        }
        let mut over = Vec::new();
        table.for_each_numbered(|number, key, version| {
            let word = key.word();
            if self.is_over(shards.note(number), protocol_of(word), now) || is_stale(interface_of(word), version) {
                over.push(key);
            }
        });
        over.iter().for_each(|key| self.remove(&mut table, key));
    }

    /// Shows sessions, shard by shard, until `f` wants no more.
    pub fn each(&self, now: u32, is_stale: &impl Fn(u32, u32) -> bool, mut f: impl FnMut(Shown)) {
        for at in 0..self.shards() {
            self.each_of(&self.four, at, now, is_stale, &mut f);
            self.each_of(&self.six, at, now, is_stale, &mut f);
        }
    }

    fn each_of<K: SessionKey>(
        &self,
        shards: &Shards<K>,
        at: usize,
        now: u32,
        is_stale: &impl Fn(u32, u32) -> bool,
        f: &mut impl FnMut(Shown),
    ) {
        let Some(shard) = shards.shards.get(at) else { return };
        shard.lock().for_each_numbered(|number, key, version| {
            let (word, note) = (key.word(), shards.note(number));
            let (interface, protocol) = (interface_of(word), protocol_of(word));
            if self.is_over(note, protocol, now) || is_stale(interface, version) {
                return;
            }
            f(Shown {
                interface,
                addresses: key.addresses(),
                ports: ((word >> 48) as u16, (word >> 32) as u16),
                protocol,
                timeout: note.timeout(protocol),
                idle: ((u64::from(now.saturating_sub(note.when)) << TICK) / 1_000_000_000) as u32,
            });
        });
    }
}
