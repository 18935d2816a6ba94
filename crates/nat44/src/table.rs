//! The sessions of one thread, found by either of two keys.
//!
//! ```text
//!   bucket, one cache line: 7 × | session + 1 (32) | hash (31) | 1 |, overflow       session: one cache line
//! ```
//!
//! A packet costs two lines: the bucket that its key's hash points at, and its session, where the whole key is compared. Both
//! can be fetched ahead: [`Sessions::candidate`] looks only at the bucket. As in `quiver_tables::hash`, *overflow* counts entries
//! that found this bucket full and lie further on, so that deletions leave nothing behind. One thread reads and writes, so
//! there is nothing to wait for.
//!
//! Memory: 64 bytes a session, 2 × 16 of buckets at the limit, 16 of timer and free list; see `bytes_per_session` in the tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use quiver_graph::IfIndex;
use quiver_tables::error::OutOfMemory;
use quiver_tables::mem::{Budget, PageKind};
use quiver_tables::slots::{self, AtomicSlots};
use quiver_tables::timer::Wheel;

use crate::hash::fold;
use crate::session::{Direction, Key, Session, Words, tcp};

const SLOTS: usize = 7;
/// Keys per bucket when the table is full.
const LOAD: usize = 4;
type Line = [AtomicU64; 8];

/// Number of a session in its table.
pub type SessionId = u32;

/// No session's number.
pub const NO_SESSION: SessionId = SessionId::MAX;

/// Where a key's hash leads: its bucket, and what its entry there begins with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aim {
    bucket: u32,
    tag: u32,
}

/// Why a session could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// As many as there may be.
    Full,
    /// No memory for another one.
    NoMemory,
    /// One of its keys belongs to another session.
    Taken,
}

impl From<OutOfMemory> for AddError {
    fn from(_: OutOfMemory) -> Self {
        Self::NoMemory
    }
}

/// How long sessions live without a packet, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP (RFC 4787, REQ-5: at least 2 minutes, 5 recommended).
    pub udp: u32,
    /// TCP connections that are open (RFC 5382, REQ-5: at least 2 hours 4 minutes).
    pub tcp_established: u32,
    /// TCP connections being opened or closed (RFC 5382, REQ-5: at least 4 minutes).
    pub tcp_transitory: u32,
    /// ICMP queries (RFC 5508, REQ-2: at least 60 seconds).
    pub icmp: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { udp: 300, tcp_established: 7440, tcp_transitory: 240, icmp: 60 }
    }
}

impl Timeouts {
    /// That of a session.
    pub fn of(&self, session: &Session) -> u32 {
        match session.i2o.proto() {
            6 if tcp::is_established(session.tcp) => self.tcp_established,
            6 => self.tcp_transitory,
            1 => self.icmp,
            _ => self.udp,
        }
    }
}

/// The table.
pub struct Sessions {
    lines: AtomicSlots<Line>,
    buckets: AtomicSlots<Line>,
    bucket_count: usize,
    seed: u64,
    limit: u32,
    len: u32,
    /// Sessions ever used; written here only.
    fresh: Arc<AtomicU32>,
    /// Numbers to be used again.
    free: Vec<u32>,
    wheel: Wheel,
    /// Sessions whose timer has run out, to be looked at.
    fired: Vec<u32>,
}

/// What the entry of a key with this hash begins with: not 0, as an empty one does.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    hash as u32 | 1
}

/// The number of the session in a bucket's entry, plus one.
#[inline(always)]
fn of_entry(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl Sessions {
    /// A table for so many sessions. Only the buckets take memory now.
    ///
    /// # Errors
    /// No memory.
    pub fn new(limit: u32, seed: u64, now: u32) -> Result<Self, OutOfMemory> {
        let bucket_count = (2 * limit as usize).div_ceil(LOAD).max(1);
        let pages = PageKind::for_table(bucket_count as u64 * 64);
        let mut buckets = AtomicSlots::with_options(bucket_count, pages, &Budget::unlimited())?;
        buckets.grow(bucket_count)?;
        let lines = AtomicSlots::with_options(limit as usize, pages, &Budget::unlimited())?;
        let mut wheel = Wheel::new(1, u64::from(now))?;
        // Now, so that nothing is moved while packets flow. Unwritten: a table of millions would keep main for a third of a second.
        wheel.reserve_memory(limit as usize)?;
        Ok(Self {
            lines,
            buckets,
            bucket_count,
            seed,
            limit,
            len: 0,
            fresh: Arc::default(),
            free: Vec::new(),
            wheel,
            fired: Vec::new(),
        })
    }

    /// Sessions.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most sessions.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Bytes of real memory.
    pub fn memory_bytes(&self) -> usize {
        self.lines.memory_bytes() + self.buckets.memory_bytes() + self.end() as usize * 16 + self.free.capacity() * 4
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash(&self, key: Key) -> u64 {
        let h = fold(key.0[0] ^ self.seed, 0x9e37_79b9_7f4a_7c15);
        let h = fold(h ^ key.0[1], 0x6a09_e667_f3bc_c909);
        fold(h ^ self.seed, 0xbb67_ae85_84ca_a73b)
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.bucket_count as u128) >> 64) as usize
    }

    /// Asks for the bucket of a hash.
    pub fn prefetch(&self, hash: u64) {
        self.prefetch_bucket(self.aim(hash));
    }

    /// Where a hash leads.
    #[inline(always)]
    pub fn aim(&self, hash: u64) -> Aim {
        Aim { bucket: self.home(hash) as u32, tag: tag(hash) }
    }

    /// Asks for a bucket.
    #[inline(always)]
    pub fn prefetch_bucket(&self, aim: Aim) {
        if let Some(bucket) = self.buckets.slot(aim.bucket) {
            quiver_tables::prefetch(bucket);
        }
    }

    /// The first session whose key may be the one with this hash, or [`NO_SESSION`]: only the bucket is read, and the session's line
    /// is asked for. [`Sessions::line_of`] tells whether it has the key, [`Sessions::find`] whether there is one elsewhere.
    #[inline(always)]
    pub fn candidate(&self, aim: Aim) -> SessionId {
        let id = self.buckets.slot(aim.bucket).map_or(NO_SESSION, |bucket| Self::first(bucket, aim));
        if let Some(line) = self.lines.slot(id) {
            quiver_tables::prefetch(line);
        }
        id
    }

    /// The first session of a bucket whose key may be the one with this hash. All slots are looked at, so that nothing depends on where
    /// the entry happens to be.
    #[inline(always)]
    fn first(bucket: &Line, aim: Aim) -> SessionId {
        let mut found = 0;
        for slot in bucket[..SLOTS].iter().rev() {
            let word = slot.load(Relaxed);
            found = if word as u32 == aim.tag { word } else { found };
        }
        of_entry(found).wrapping_sub(1)
    }

    /// The record of a session.
    #[inline(always)]
    pub fn line(&self, id: SessionId) -> Option<&Line> {
        self.lines.slot(id)
    }

    /// The record of a candidate, if it has the key, which is one of this direction.
    #[inline(always)]
    pub fn line_of(&self, id: SessionId, key: Key, direction: Direction) -> Option<&Line> {
        let at = if direction == Direction::In2Out { 0 } else { 2 };
        self.lines.slot(id).filter(|line| line[at].load(Relaxed) == key.0[0] && line[at + 1].load(Relaxed) == key.0[1])
    }

    fn is(&self, id: SessionId, key: Key) -> bool {
        self.line_of(id, key, key.direction()).is_some()
    }

    /// The session of a key.
    pub fn find(&self, key: Key) -> Option<SessionId> {
        self.find_at(self.aim(self.hash(key)), key)
    }

    /// The session of a key whose hash leads here.
    #[inline(always)]
    pub fn find_at(&self, aim: Aim, key: Key) -> Option<SessionId> {
        let bucket = self.buckets.slot(aim.bucket)?;
        let id = Self::first(bucket, aim);
        if id == NO_SESSION && bucket[SLOTS].load(Relaxed) == 0 {
            return None;
        }
        if self.is(id, key) { Some(id) } else { self.place(aim, key).map(|(_, _, id)| id) }
    }

    /// Where the entry of a key is: bucket, slot and session.
    #[inline(never)]
    fn place(&self, aim: Aim, key: Key) -> Option<(usize, usize, SessionId)> {
        let mut at = aim.bucket as usize;
        for _ in 0..self.bucket_count {
            let bucket = self.buckets.slot(at as u32)?;
            for (n, slot) in bucket[..SLOTS].iter().enumerate() {
                let word = slot.load(Relaxed);
                if word as u32 == aim.tag && self.is(of_entry(word).wrapping_sub(1), key) {
                    return Some((at, n, of_entry(word).wrapping_sub(1)));
                }
            }
            if bucket[SLOTS].load(Relaxed) == 0 {
                return None;
            }
            at = if at + 1 < self.bucket_count { at + 1 } else { 0 };
        }
        None
    }

    fn enter(&self, key: Key, id: SessionId) {
        let aim = self.aim(self.hash(key));
        let mut at = aim.bucket as usize;
        // There are more slots than keys, so an empty one is found before the walk is round.
        for _ in 0..self.bucket_count {
            let Some(bucket) = self.buckets.slot(at as u32) else { return };
            if let Some(slot) = bucket[..SLOTS].iter().find(|slot| slot.load(Relaxed) == 0) {
                slot.store(u64::from(id + 1) << 32 | u64::from(aim.tag), Relaxed);
                return;
            }
            bucket[SLOTS].fetch_add(1, Relaxed);
            at = if at + 1 < self.bucket_count { at + 1 } else { 0 };
        }
    }

    fn leave(&self, key: Key) {
        let aim = self.aim(self.hash(key));
        let Some((at, slot, _)) = self.place(aim, key) else { return };
        let mut passed = aim.bucket as usize;
        while passed != at {
            if let Some(bucket) = self.buckets.slot(passed as u32) {
                bucket[SLOTS].fetch_sub(1, Relaxed);
            }
            passed = if passed + 1 < self.bucket_count { passed + 1 } else { 0 };
        }
        if let Some(bucket) = self.buckets.slot(at as u32) {
            bucket[slot].store(0, Relaxed);
        }
    }

    fn is_taken(&self, session: &Session) -> bool {
        self.find(session.i2o).is_some() || self.find(session.o2i).is_some()
    }

    /// Adds a session; its timer starts.
    ///
    /// # Errors
    /// See [`AddError`]; nothing has changed then.
    pub fn add(&mut self, session: &Session, timeouts: &Timeouts) -> Result<SessionId, AddError> {
        if self.is_taken(session) { Err(AddError::Taken) } else { self.insert(session, timeouts) }
    }

    /// Adds a session whose keys the caller has looked up and found to be nobody's.
    ///
    /// # Errors
    /// As [`Sessions::add`].
    pub fn insert(&mut self, session: &Session, timeouts: &Timeouts) -> Result<SessionId, AddError> {
        debug_assert!(!self.is_taken(session));
        if self.len >= self.limit {
            return Err(AddError::Full);
        }
        let id = self.free.last().copied().unwrap_or(self.end());
        self.lines.set(id, session.pack())?;
        self.wheel.start(id, u64::from(session.last_heard) + u64::from(timeouts.of(session)))?;
        if self.free.pop().is_none() {
            self.fresh.store(id + 1, Relaxed);
        }
        self.enter(session.i2o, id);
        self.enter(session.o2i, id);
        self.len += 1;
        Ok(id)
    }

    /// Gives a session the values of one with the same keys, such as when it was last heard; its timer goes on.
    pub fn update(&mut self, id: SessionId, session: &Session) {
        if self.get(id).is_some_and(|now| (now.i2o, now.o2i) == (session.i2o, session.o2i)) {
            // Cannot fail: the record exists.
            let _ = self.lines.set(id, session.pack());
        }
    }

    /// Notes the interface that a session's packets from inside leave by and are counted by.
    pub fn set_output(&self, id: SessionId, by: IfIndex) {
        if let (Some(line), Ok(by)) = (self.line(id), u16::try_from(by.0)) {
            line[4].store(line[4].load(Relaxed) & 0xffff_ffff_ffff | u64::from(by) << 48, Relaxed);
        }
    }

    /// A session's values; `None` where there is none of this number.
    pub fn get(&self, id: SessionId) -> Option<Session> {
        let line = self.lines.slot(id)?;
        let mut words: Words = [0; 8];
        for (word, from) in words.iter_mut().zip(line) {
            *word = from.load(Relaxed);
        }
        (words[0] | words[1] != 0).then(|| Session::unpack(&words))
    }

    /// Takes a session out.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.get(id)?;
        // Its number must be remembered before it is given up.
        self.free.try_reserve(1).ok()?;
        self.leave(session.i2o);
        self.leave(session.o2i);
        self.wheel.stop(id);
        // Cannot fail: the record exists.
        let _ = self.lines.set(id, [0; 8]);
        self.free.push(id);
        self.len -= 1;
        Some(session)
    }

    /// Starts a session's timer anew after its timeout has become another one.
    pub fn restart(&mut self, id: SessionId, timeouts: &Timeouts) {
        if let Some(session) = self.get(id) {
            // Its place is there, so this cannot fail.
            let _ = self.wheel.start(id, u64::from(session.last_heard) + u64::from(timeouts.of(&session)));
        }
    }

    /// Looks at up to `n` sessions whose timers have run out: those that were heard meanwhile go on, the others are taken
    /// out and given to `gone`. `true` while there is more to look at.
    pub fn expire(&mut self, now: u32, n: usize, timeouts: &Timeouts, mut gone: impl FnMut(&Session)) -> bool {
        if self.fired.is_empty() {
            self.wheel.expire(u64::from(now), &mut self.fired);
        }
        for _ in 0..n {
            let Some(id) = self.fired.pop() else { return false };
            let Some(session) = self.get(id) else { continue };
            if self.wheel.is_running(id) {
                continue;
            }
            let end = u64::from(session.last_heard) + u64::from(timeouts.of(&session));
            if end <= u64::from(now) {
                if let Some(session) = self.remove(id) {
                    gone(&session);
                }
            } else {
                let _ = self.wheel.start(id, end);
            }
        }
        !self.fired.is_empty()
    }

    /// What gets memory for buckets and records ahead of their use.
    pub fn ahead(&self) -> Ahead {
        Ahead { buckets: (self.buckets.ahead(), self.bucket_count), lines: self.lines.ahead(), fresh: self.fresh.clone() }
    }

    /// One more than the highest number in use ever.
    pub fn end(&self) -> SessionId {
        self.fresh.load(Relaxed)
    }
}

/// Sessions that there is memory for ahead, beside as many again as there have been.
const AHEAD: usize = 65_536;

/// Gets memory for a thread's sessions before it needs it, on another thread.
#[derive(Debug)]
pub struct Ahead {
    buckets: (slots::Ahead<Line>, usize),
    lines: slots::Ahead<Line>,
    fresh: Arc<AtomicU32>,
}

impl Ahead {
    /// Gets a large page at most: for the buckets, whose pages a few hundred sessions use all, then for records; `true` while there
    /// is more to get.
    pub fn step(&mut self) -> bool {
        let (buckets, count) = &mut self.buckets;
        buckets.step(*count) || self.lines.step(2 * self.fresh.load(Relaxed) as usize + AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::session::{Direction, Endpoint};

    fn session(n: u32, proto: u8) -> Session {
        let (inside, remote, outside) =
            (Endpoint::new(0x0a00_0000 + n, 1025), Endpoint::new(0x3000_0001, 12), Endpoint::new(7, n as u16));
        let i2o = Key::new(inside, remote, proto, Direction::In2Out, 0);
        let o2i = Key::new(remote, outside, proto, Direction::Out2In, 0);
        Session::new(i2o, o2i, 0, 100)
    }

    #[test]
    fn a_session_is_found_by_both_keys_and_by_no_other() {
        let mut t = Sessions::new(100, 1, 100).unwrap();
        let s = session(1, 17);
        let id = t.add(&s, &Timeouts::default()).unwrap();
        assert_eq!((t.find(s.i2o), t.find(s.o2i), t.len()), (Some(id), Some(id), 1));
        assert_eq!(t.candidate(t.aim(t.hash(s.i2o))), id);
        assert!(t.is(id, s.i2o) && t.is(id, s.o2i) && !t.is(id, session(2, 17).i2o));
        assert_eq!((t.find(session(1, 6).i2o), t.add(&s, &Timeouts::default())), (None, Err(AddError::Taken)));
        assert_eq!(t.remove(id), Some(s));
        assert_eq!((t.find(s.i2o), t.find(s.o2i), t.len(), t.remove(id)), (None, None, 0, None));
    }

    #[test]
    fn a_full_table_says_so_and_works_again_when_sessions_have_gone() {
        let mut t = Sessions::new(50, 1, 100).unwrap();
        for n in 0..50 {
            t.add(&session(n, 17), &Timeouts::default()).unwrap();
        }
        assert_eq!(t.add(&session(50, 17), &Timeouts::default()), Err(AddError::Full));
        t.remove(7);
        assert_eq!(t.add(&session(50, 17), &Timeouts::default()), Ok(7));
    }

    #[test]
    fn silent_sessions_expire_and_those_that_were_heard_do_not() {
        let mut t = Sessions::new(50, 1, 100).unwrap();
        for n in 0..4 {
            t.add(&session(n, if n == 3 { 1 } else { 17 }), &Timeouts::default()).unwrap();
        }
        let mut gone = Vec::new();
        let mut run = |t: &mut Sessions, now| {
            while t.expire(now, 1, &Timeouts::default(), |s| gone.push(s.inside().addr & 0xff)) {}
            std::mem::take(&mut gone)
        };
        assert!(run(&mut t, 159).is_empty());
        assert_eq!(run(&mut t, 161), [3], "an ICMP query");
        let line = t.line(1).unwrap();
        line[4].store(200, Relaxed);
        let mut first = run(&mut t, 402);
        first.sort_unstable();
        assert_eq!((first, t.len()), (vec![0, 2], 1));
        assert_eq!(run(&mut t, 502), [1]);
    }

    #[test]
    fn a_session_takes_less_than_250_bytes() {
        let n = 200_000;
        let mut t = Sessions::new(n, 1, 100).unwrap();
        for k in 0..n {
            let (inside, remote) = (Endpoint::new(k, 1), Endpoint::new(9, 9));
            let i2o = Key::new(inside, remote, 17, Direction::In2Out, 0);
            let o2i = Key::new(remote, Endpoint::new(k >> 16, k as u16), 17, Direction::Out2In, 0);
            t.add(&Session::new(i2o, o2i, 0, 100), &Timeouts::default()).unwrap();
        }
        let each = t.memory_bytes() / n as usize;
        assert!(each < 150, "{each} bytes");
    }

    #[test]
    fn memory_is_there_before_sessions_are() {
        let limit = 1_000_000;
        let mut t = Sessions::new(limit, 1, 100).unwrap();
        let mut ahead = t.ahead();
        while ahead.step() {}
        let got = t.memory_bytes();
        assert!(got >= 32 * limit as usize + 64 * AHEAD, "{got} bytes");
        for n in 0..AHEAD as u32 {
            t.add(&session(n, 17), &Timeouts::default()).unwrap();
        }
        assert_eq!(t.memory_bytes() - 16 * AHEAD, got, "nothing but timers");
        assert!(ahead.step(), "for those that may come now");
        while ahead.step() {}
        assert!(t.memory_bytes() - 16 * AHEAD >= got + 2 * 64 * AHEAD);
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map(seed: u64, steps in proptest::collection::vec((0..3_u8, 0..40_u32), 1..300)) {
            // So small that buckets overflow.
            let mut t = Sessions::new(30, seed, 100).unwrap();
            let mut model: HashMap<u32, SessionId> = HashMap::new();
            for (what, n) in steps {
                let s = session(n, 17);
                if what > 0 {
                    match t.add(&s, &Timeouts::default()) {
                        Ok(id) => prop_assert!(model.insert(n, id).is_none()),
                        Err(AddError::Taken) => prop_assert!(model.contains_key(&n)),
                        Err(error) => prop_assert_eq!((error, model.len()), (AddError::Full, 30)),
                    }
                } else if let Some(id) = model.remove(&n) {
                    prop_assert_eq!(t.remove(id), Some(s));
                }
                prop_assert_eq!(t.len() as usize, model.len());
            }
            for n in 0..40 {
                let s = session(n, 17);
                prop_assert_eq!(t.find(s.i2o), model.get(&n).copied());
                prop_assert_eq!(t.find(s.o2i), model.get(&n).copied());
            }
        }
    }
}
