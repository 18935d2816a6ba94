//! The node behind the ring: joins fragments, lets incomplete datagrams expire.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::clock::Clock;
use quiver_graph::{Idle, InputNode, NoNext, NodeCx, Packet, Snapshot, Verdict};
use quiver_wire::fragment::ReassemblyError;

use super::datagram::{Name, Reassembled};
use super::reasons::{Back, Drop, Place};
use super::ring::{Inbox, Peers, Rings};
use super::shallow::{PartOf, Passed, Shallow, Waiting};
use super::table::{BUFFER_KB, GivenUp, Held, Outcome, Part, Table, Totals};
use super::{Limits, SharedLimits};
use crate::DataPlane;
use crate::owner::Owner;

const TO_LOCAL: Verdict = Verdict::slot(1);
const TO_ICMP_ERROR: Verdict = Verdict::slot(2);
const TO_FULL: Verdict = Verdict::slot(3);
const TO_SHALLOW: Verdict = Verdict::slot(4);
/// Datagrams that one turn lets expire at most.
const EXPIRE_MAX: usize = 64;

/// Fragments that are held, by small numbers.
#[derive(Default)]
struct Slab {
    packets: Vec<Option<Packet>>,
    free: Vec<u32>,
}

impl Slab {
    fn put(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.packets[at as usize] = Some(packet);
                at
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, at: u32) -> Option<Packet> {
        let packet = self.packets.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(packet)
    }
}

/// The node.
pub(super) struct ReassemblyInput<F: Reassembled> {
    inbox: Inbox,
    peers: Snapshot<Peers>,
    /// The one by which fragments are handed over.
    hasher: RandomState,
    limits: [Arc<SharedLimits>; 2],
    /// Shallow reassembly waits for the last fragment, too.
    extended: Arc<AtomicBool>,
    clock: Arc<Clock>,
    data: DataPlane,
    table: Table<(u64, F::Key), u32>,
    shallow: Shallow<(u64, F::Key)>,
    packets: Slab,
}

/// In the scope of a key: a packet for the router itself and one on its way through are never parts of each other.
const THROUGH: u64 = 1 << 63;

/// Gives a packet back to whoever gave it: to be dropped, or to go on.
fn give_back(cx: &mut NodeCx<'_>, mut packet: Packet, back: Back) {
    let mut view = cx.view(&mut packet);
    let to = match Place::of(view.aux()) {
        Place::Full => TO_FULL,
        Place::Shallow => TO_SHALLOW,
        Place::Local => {
            view.set_aux(0);
            return match back {
                Back::Drop(reason) => cx.drop_packet(packet, reason),
                _ => cx.emit(TO_LOCAL, packet),
            };
        }
    };
    view.set_aux(back.aux());
    cx.emit(to, packet);
}

impl<F: Reassembled> ReassemblyInput<F> {
    pub fn new(
        thread: usize,
        rings: &Arc<Rings>,
        hasher: RandomState,
        (limits, extended): ([Arc<SharedLimits>; 2], Arc<AtomicBool>),
        clock: Arc<Clock>,
        data: DataPlane,
    ) -> Self {
        let (inbox, shallow) = (Inbox::new(thread, rings), Shallow::default());
        let (table, packets) = (Table::new(), Slab::default());
        Self { inbox, peers: rings.peers(), hasher, limits, extended, clock, data, table, shallow, packets }
    }

    /// Datagrams of which the first fragment is waited for or known, and fragments that wait.
    pub fn show_shallow(&mut self) -> (Totals, Vec<Waiting>) {
        (self.shallow.totals(), self.shallow.show(self.clock.timer_now(), |(_, key)| F::show(key)))
    }

    /// What is held now.
    pub fn show(&mut self) -> (Totals, Vec<Held>) {
        (self.table.totals(), self.table.show(self.clock.timer_now(), |(_, key)| F::show(key)))
    }

    fn drop_all(&mut self, cx: &mut NodeCx<'_>, parts: Vec<u32>, reason: Drop) {
        for tag in parts {
            if let Some(packet) = self.packets.take(tag) {
                give_back(cx, packet, Back::Drop(reason));
            }
        }
    }

    /// Drops a fragment, or answers it with an ICMP error where there is one for the case.
    fn refuse(cx: &mut NodeCx<'_>, mut packet: Packet, aux: u32, reason: Drop) {
        if aux == 0 {
            return give_back(cx, packet, Back::Drop(reason));
        }
        cx.view(&mut packet).set_aux(aux);
        cx.emit(TO_ICMP_ERROR, packet);
    }

    fn arrived(&mut self, cx: &mut NodeCx<'_>, mut packet: Packet, now: u64) {
        let view = cx.view(&mut packet);
        let (Some(name), kilobytes) = (F::name(&view), BUFFER_KB * (1 + view.total_len() as u32 / 2048)) else {
            return give_back(cx, packet, Back::Drop(Drop::Malformed));
        };
        let place = Place::of(view.aux());
        let scope = F::scope(&view, &self.data.interfaces.get(view.rx_if()));
        let owner = Owner::of(view.rx_if(), F::address(F::addresses(&view).0));
        if place == Place::Shallow {
            let part = PartOf { first: name.offset == 0, last: !name.more };
            return self.arrived_shallow(cx, packet, (scope, name.key), part, owner, kilobytes, now);
        }
        let key = (if place == Place::Full { scope | THROUGH } else { scope }, name.key);
        if name.more && name.len == 0 {
            // Nothing of the packet: neither answered nor kept, whatever headers it lacks.
            return give_back(cx, packet, Back::Drop(Drop::BadLength));
        }
        let has_all = name.offset != 0 || F::has_all_headers(&view);
        if !has_all {
            // RFC 7112, 5: parameter problem, code 3.
            let aux = crate::ip::icmp_aux(crate::local::header::PROBLEM6, 3, 0);
            return Self::refuse(cx, packet, aux, Drop::Malformed);
        }
        let limits = self.limits[0].get();
        if limits.datagrams == 0 {
            return give_back(cx, packet, Back::Drop(Drop::Limit));
        }
        // What has had its time does not become whole by what comes later in the same turn.
        self.expire(cx, now);
        self.make_room(cx, &limits, &key, owner, kilobytes);
        let Name { offset, len, more, congestion, .. } = name;
        let tag = self.packets.put(packet);
        let part = Part { offset, len, more, congestion, kilobytes, tag };
        match self.table.insert(key, owner, now, (limits.fragments as usize, F::MAX_PAYLOAD), part) {
            Outcome::Kept => {}
            Outcome::Complete { parts, len, congestion } => self.complete(cx, &parts, len, congestion),
            Outcome::Rejected { part, reason, condemned } => {
                let (reason, aux) = match reason {
                    ReassemblyError::Duplicate => (Drop::Duplicate, 0),
                    ReassemblyError::Overlap | ReassemblyError::EndMismatch => (Drop::Overlap, 0),
                    ReassemblyError::TooMany => (Drop::TooMany, 0),
                    // RFC 8200, 4.5 asks for an error where the length is no multiple of 8; nothing at all is silently dropped.
                    ReassemblyError::BadLength => (Drop::BadLength, if more && len > 0 { F::bad_length() } else { 0 }),
                    ReassemblyError::TooLong => (Drop::Malformed, F::too_long(&name)),
                };
                if let Some(packet) = self.packets.take(part) {
                    Self::refuse(cx, packet, aux, reason);
                }
                self.drop_all(cx, condemned, Drop::Condemned);
            }
        }
    }

    /// A fragment of which only the first matters: it goes on as soon as that one is known.
    #[allow(clippy::too_many_arguments, reason = "what was read of the packet, once")]
    fn arrived_shallow(
        &mut self,
        cx: &mut NodeCx<'_>,
        packet: Packet,
        key: (u64, F::Key),
        part: PartOf,
        owner: Owner,
        kilobytes: u32,
        now: u64,
    ) {
        let limits = self.limits[1].get();
        if limits.datagrams == 0 {
            return give_back(cx, packet, Back::Drop(Drop::Limit));
        }
        self.expire_shallow(cx, now);
        for (gone, reason) in self.shallow.make_room(&limits, &key, owner, kilobytes) {
            self.drop_all(cx, gone, reason);
        }
        match self.shallow.arrived(key, owner, now, part, self.extended.load(Ordering::Relaxed)) {
            // The first comes first: whoever remembers it is ready for the others.
            Passed::On(waiting) => {
                give_back(cx, packet, Back::Pass);
                self.pass_all(cx, waiting);
            }
            Passed::Behind(waiting) => {
                self.pass_all(cx, waiting);
                give_back(cx, packet, Back::Pass);
            }
            Passed::Full => give_back(cx, packet, Back::Drop(Drop::TooMany)),
            Passed::Wait => {
                let tag = self.packets.put(packet);
                self.shallow.wait(&key, tag, kilobytes, part.first);
            }
        }
    }

    fn pass_all(&mut self, cx: &mut NodeCx<'_>, parts: Vec<u32>) {
        for tag in parts {
            if let Some(packet) = self.packets.take(tag) {
                give_back(cx, packet, Back::Pass);
            }
        }
    }

    fn expire_shallow(&mut self, cx: &mut NodeCx<'_>, now: u64) {
        let timeout = nanoseconds(&self.limits[1].get());
        for _ in 0..EXPIRE_MAX {
            let Some(gone) = self.shallow.pop_expired(now, timeout) else { return };
            self.drop_all(cx, gone, Drop::Timeout);
        }
    }

    /// Makes room for a fragment of `key`: its owner keeps to its share, and where a limit of all is reached the oldest datagram of
    /// whoever has most goes.
    fn make_room(&mut self, cx: &mut NodeCx<'_>, limits: &Limits, key: &(u64, F::Key), owner: Owner, kilobytes: u32) {
        if !self.table.contains(key) {
            while self.table.datagrams_of(owner) >= limits.per_source.max(1) as usize
                && let Some(GivenUp { parts, .. }) = self.table.pop_oldest_of(owner)
            {
                self.drop_all(cx, parts, Drop::SourceLimit);
            }
        }
        loop {
            let Totals { datagrams, kilobytes: used, .. } = self.table.totals();
            let (most, biggest) = self.table.greediest();
            let from = if datagrams + u32::from(!self.table.contains(key)) > limits.datagrams.max(1) {
                most
            } else if used + kilobytes > limits.kilobytes.max(kilobytes) {
                biggest
            } else {
                return;
            };
            let Some(GivenUp { parts, .. }) = from.and_then(|owner| self.table.pop_oldest_of(owner)) else { return };
            self.drop_all(cx, parts, Drop::Limit);
        }
    }

    /// All parts are here: one packet follows from them.
    fn complete(&mut self, cx: &mut NodeCx<'_>, parts: &[u32], len: u16, congestion: bool) {
        let mut packets = parts.iter().filter_map(|tag| self.packets.take(*tag)).collect::<Vec<_>>().into_iter();
        let Some(head) = packets.next() else { return };
        let mut joining = cx.join(head);
        for mut packet in packets {
            let mut view = cx.view(&mut packet);
            // The name was read when it came in, so its headers are in the first segment.
            let header_len = F::name(&view).map_or(0, |name| name.header_len);
            view.pull(header_len);
            cx.join_next(&mut joining, packet);
        }
        let mut packet = cx.join_end(joining);
        let mut view = cx.view(&mut packet);
        let header_len = F::name(&view).map_or(0, |name| name.header_len);
        if !F::finish(&mut view, header_len, len.into(), congestion) {
            return give_back(cx, packet, Back::Drop(Drop::Internal));
        }
        if Place::of(view.aux()) == Place::Local {
            cx.count(Drop::Success, 1);
            cx.count(Drop::Reassembled, parts.len() as u64);
        }
        give_back(cx, packet, Back::Joined(parts.len() as u16));
    }

    fn expire(&mut self, cx: &mut NodeCx<'_>, now: u64) {
        let timeout = self.timeout();
        for _ in 0..EXPIRE_MAX {
            if self.table.oldest().is_none_or(|started| now < started.saturating_add(timeout)) {
                return;
            }
            let Some(GivenUp { mut parts, has_first }) = self.table.pop_oldest() else { return };
            if has_first && let Some(mut packet) = self.packets.take(parts.remove(0)) {
                let here = Place::of(cx.view(&mut packet).aux()) == Place::Local;
                let aux = if here { F::TIMED_OUT } else { F::TIMED_OUT_THROUGH };
                Self::refuse(cx, packet, aux, Drop::Timeout);
            }
            self.drop_all(cx, parts, Drop::Timeout);
        }
    }

    /// Takes what has come, and lets go what has waited for too long. Returns the fragments taken.
    #[inline(never)]
    fn work(&mut self, cx: &mut NodeCx<'_>, mail: bool) -> usize {
        let mut n = 0;
        if mail && let Some(first) = self.inbox.next() {
            let now = self.clock.timer_now();
            self.arrived(cx, first, now);
            n = 1;
            while n < cx.vector_size()
                && let Some(packet) = self.inbox.next()
            {
                self.arrived(cx, packet, now);
                n += 1;
            }
            if n >= cx.vector_size() {
                self.inbox.left();
            }
        }
        if self.peers.get().has_orphans() {
            let strays = self.peers.get().strays();
            n += strays.len();
            for packet in strays {
                self.arrived(cx, packet, self.clock.timer_now());
            }
        }
        if !self.table.is_empty() {
            self.expire(cx, self.clock.timer_now());
        }
        if !self.shallow.is_empty() {
            self.expire_shallow(cx, self.clock.timer_now());
        }
        n
    }

    fn timeout(&self) -> u64 {
        nanoseconds(&self.limits[0].get())
    }
}

fn nanoseconds(limits: &Limits) -> u64 {
    limits.timeout.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl<F: Reassembled> InputNode for ReassemblyInput<F> {
    type Next = NoNext;
    type Drop = Drop;

    fn idle(&self) -> bool {
        // In most turns there is nothing, and then this is all that they pay.
        self.inbox.is_quiet()
            && self.peers.is_current()
            && self.table.is_empty()
            && self.shallow.is_empty()
            && !self.peers.get().has_orphans()
    }

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        self.inbox.awake();
        self.peers.refresh();
        let mail = self.inbox.has_mail();
        self.work(cx, mail)
    }

    fn arm(&mut self, now: u64) -> Idle {
        if !self.inbox.arm() {
            return Idle::Busy;
        }
        // Timer time may run ahead of the worker's; what counts is how long it is until then.
        let (timeout, timer) = (self.timeout(), self.clock.timer_now());
        let left = |started: u64, timeout: u64| now.saturating_add(started.saturating_add(timeout).saturating_sub(timer));
        let whole = self.table.oldest().map(|started| left(started, timeout));
        let shallow = nanoseconds(&self.limits[1].get());
        let shallow = self.shallow.oldest().map(|started| left(started, shallow));
        Idle::Sleep { until: whole.into_iter().chain(shallow).min() }
    }

    fn event_fds(&self, fds: &mut Vec<RawFd>) {
        fds.extend(self.inbox.fd());
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        let Self { inbox, hasher, table, shallow, packets, .. } = self;
        inbox.retire(|peers| {
            let mut held: Vec<Packet> = std::iter::from_fn(|| inbox.next()).collect();
            while let Some(gone) = shallow.pop_expired(u64::MAX, 0) {
                held.extend(gone.into_iter().filter_map(|tag| packets.take(tag)));
            }
            while let Some(GivenUp { parts, .. }) = table.pop_oldest() {
                held.extend(parts.into_iter().filter_map(|tag| packets.take(tag)));
            }
            // Workers that stay join them: the rest of the datagram goes there too.
            for mut packet in held {
                let name = F::name(&cx.view(&mut packet));
                let sent = match name {
                    Some(name) => peers.send(cx.thread(), hasher.hash_one(name.key), packet),
                    None => Err(packet),
                };
                if let Err(packet) = sent {
                    cx.free(packet);
                }
            }
            if peers.is_empty() {
                peers.strays().into_iter().for_each(|packet| cx.free(packet));
            }
        });
    }
}
