//! `nat44-ed-in2out` and `nat44-ed-out2in`: one text.
//!
//! A vector node: keys of a group of packets are hashed and their buckets fetched, then their sessions, then the packets are
//! changed. A plain packet (TCP or UDP, whole, no options, checksum finished) of a known session needs no more than that; all
//! others go through functions that are not inlined.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use quiver_graph::{ArcPoint, Frame, IfIndex, NodeCx, Packet, Pkt, Snapshot, VectorNode, Verdict, drop_reasons, flags, next_nodes};
use quiver_net::data::IfTable;
use quiver_net::ip::{Egress4, Way, icmp_aux};

use crate::config::NatConfig;
use crate::counters::{Counters, Tally, What};
use crate::early::{Early, SharedEarly, lock_early};
use crate::fragments::{Datagram, Fragments};
use crate::packet::{Flow, L4, NoFlow, clamp_mss};
use crate::session::{Direction, Key, flag, tcp, update};
use crate::table::{Aim, NO_SESSION, SessionId};
use crate::thread::{Shared, ThreadNat, lock};

use super::crossing::{Ways, must_wait, on_arc};

mod begin;

use begin::{Draws, foresee};

next_nodes! {
    /// Where packets go that no feature follows for, those for an address of ours, and those that cannot go on.
    pub enum Next {
        Lookup = "ip4-lookup",
        Hairpin = "nat44-ed-out2in-handoff",
        IcmpError = "ip4-icmp-error",
        In2Out = "nat44-ed-in2out-handoff",
    }
}

drop_reasons! {
    /// Why packets are dropped, and what is counted.
    pub enum Drop {
        /// NAT44 was disabled while the packet was on its way.
        Off = "NAT44 is not enabled",
        /// The packet belongs to no session and no static mapping, and may not begin a session.
        ///
        /// Causes: a packet from outside for a port that no session and no static mapping has (scans are normal); a session that
        /// timed out.
        /// Check: `show nat44 sessions filter o2i daddr ADDRESS dport PORT`; for services inside, `nat44 add static mapping`.
        /// See: `show nat44 sessions`, `show nat44 static mappings`, `nat44 add static mapping`.
        NoTranslation = "no translation",
        /// No address of the pool has a free port for the flow, or the pool has no address for its table.
        ///
        /// Causes: no address was added, or none for the table of the outside interface; more flows to one destination than the
        /// addresses of the pool have ports.
        /// Check: `show nat44 addresses`, `show nat44 summary`; add addresses to the pool (`nat44 add address`), or shorten the timeouts.
        /// See: `show nat44 addresses`, `show nat44 summary`, `nat44 add address`, `set nat timeout`.
        Ports = "out of ports",
        /// The limit of sessions is reached.
        ///
        /// Causes: more flows than `nat44 plugin enable sessions N` allows, or an attack or a scan from inside.
        /// Check: `show nat44 summary`; enable NAT44 with more sessions, or shorten the timeouts.
        /// See: `show nat44 summary`, `set nat timeout`, `/nat44-ed/max-cfg-sessions`.
        Sessions = "maximum sessions exceeded",
        /// The inside host has as many sessions as one host may have.
        ///
        /// Causes: one inside host has very many flows: a scan, a peer-to-peer client, a NAT of another kind behind it.
        /// Check: `show nat44 sessions filter i2o saddr ADDRESS`.
        /// See: `show nat44 sessions`, `show nat44 summary`.
        Host = "maximum user sessions exceeded",
        /// There is no memory for a session.
        Memory = "no memory for a session",
        /// The packet is too short for the header that is to be translated.
        Short = "NAT44 truncated packet",
        /// ICMP messages of this type are not translated.
        IcmpType = "unsupported ICMP type",
        /// The checksum of the ICMP message is wrong.
        IcmpChecksum = "wrong ICMP checksum",
        /// A fragment waited in vain for its datagram's first one, which has the ports.
        EarlyFragment = "fragment before its first",
        /// A TCP segment that begins no connection belongs to no session.
        ///
        /// Causes: a connection that began before NAT44 did, or whose session has timed out; the way back goes past the router.
        /// Check: `show nat timeouts`: raise the timeout of established TCP connections, or have the applications use keep-alives.
        /// See: `show nat timeouts`, `set nat timeout`.
        NonSyn = "non-SYN packet try to create session",
        /// A session was created.
        Begun = "sessions created" (info),
        /// The packet was forwarded without translation.
        Passed = "packets passed untranslated" (info),
    }
}

/// Packets whose lines are under way together. Stages that run some packets behind each other instead, one packet at a time,
/// were measured to be no faster (147 and 149 clocks at 65,536 sessions).
const GROUP: usize = 32;
/// Offset of the addresses in an IPv4 header, and of the ports behind one without options.
const ADDRS: usize = 12;
const PORTS: usize = 20;

/// The node.
pub(super) struct Translate<const OUTSIDE: bool> {
    pub thread: usize,
    pub interfaces: IfTable,
    pub egress: Egress4,
    pub config: Snapshot<NatConfig>,
    pub state: Shared,
    pub fragments: Fragments,
    pub early: SharedEarly,
    /// Sessions that this vector has begun.
    pub fresh: Vec<SessionId>,
    /// The output interface that the packet at hand is counted by.
    pub counted_by: Option<IfIndex>,
    /// The packet at hand is a fragment of this datagram, and must wait for the first one.
    pub waits: Option<Datagram>,
    pub counters: Counters,
    pub clock: Arc<AtomicU32>,
    pub arc: ArcPoint,
}

/// What the packets of one interface have in common.
#[derive(Clone, Copy)]
struct Port {
    rx: IfIndex,
    fib: u16,
    /// Where they go when they have been changed.
    next: Verdict,
}

#[derive(Clone, Copy, Default)]
struct Work {
    /// Whole where the packet is plain: everything that is changed lies where it lies in most packets.
    key: Key,
    aim: Aim,
    /// The session that may be its.
    id: SessionId,
}

/// Packet `k` of a group, `at` of its frame.
struct Here<'a> {
    group: &'a [Work],
    k: usize,
    at: usize,
    now: u32,
}

/// What a packet comes to.
enum Outcome {
    Session(SessionId),
    Pass,
    /// It is one of a host inside, on an outside interface: `nat44-ed-in2out` knows its session.
    Turn,
    Drop(Drop),
    /// It will not leave: an ICMP error (as the aux lane has it) answers it as it is, because one about the changed packet
    /// would not find its sender.
    Error(u32),
}

/// What `nat44-ed-out2in` notes with a packet that it has translated, where the interface is inside, too.
const DONE: u32 = 0x4e41_5434;

/// Whether a packet has been translated already.
pub(super) fn is_done(packet: &Pkt<'_>) -> bool {
    packet.scratch()[0] == DONE
}

/// The interface that a session's packets from inside are counted by, from its state.
#[inline(always)]
fn output_of(state: u64) -> Option<IfIndex> {
    let output = (state >> 48) as u32;
    (output != 0).then_some(IfIndex(output))
}

/// SYN and ACK of TCP's flags.
const SYN_ACK: u8 = 0x12;
const SYN: u8 = 0x02;

const TTL_EXPIRED: u32 = icmp_aux(11, 0, 0);

impl<const OUTSIDE: bool> Translate<OUTSIDE> {
    const DIRECTION: Direction = if OUTSIDE { Direction::Out2In } else { Direction::In2Out };

    /// The table that a packet is looked up in: one that it was given, else its interface's.
    #[inline(always)]
    fn fib(&self, packet: &Pkt<'_>) -> u16 {
        packet.table().unwrap_or_else(|| self.interfaces.fibs(packet.rx_if()).0) as u16
    }

    #[inline(never)]
    fn port(&self, config: &NatConfig, rx: IfIndex) -> Port {
        Port { rx, fib: self.interfaces.fibs(rx).0 as u16, next: on_arc(&self.arc, config, rx, OUTSIDE, Next::Lookup.into()) }
    }

    #[inline(always)]
    fn look(&self, mtu: usize, packet: &Pkt<'_>, port: &Port) -> Work {
        let head: [u8; 8] = packet.head_at::<_, 0>();
        let [ttl, proto]: [u8; 2] = packet.head_at::<_, 8>();
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
        let (udp, tcp) = (proto == 17, proto == 6);
        let needed = if tcp { 40 } else { 28 };
        let len = packet.len();
        let plain = (head[0] == 0x45)
            & (fragment == 0)
            & (udp | tcp)
            & (len >= needed)
            & (len <= mtu)
            & (ttl > 1)
            & !packet.has(flags::CHECKSUM | flags::CHAINED);
        let fib = packet.table().map_or(port.fib, |fib| fib as u16);
        let key = Key::raw(packet.head_at::<u64, ADDRS>(), packet.head_at::<u32, PORTS>(), proto, Self::DIRECTION, fib);
        Work { key: key.whole(plain), ..Work::default() }
    }

    /// Changes a plain packet of a session, and gives the session's state (word 4) beside where the packet goes. `None`: the session
    /// is another one's, and nothing has changed.
    #[inline(always)]
    fn plain(
        &self,
        nat: &mut ThreadNat,
        config: &NatConfig,
        packet: &mut Pkt<'_>,
        (key, id): (Key, SessionId),
        port: &Port,
        now: u32,
    ) -> Option<(Verdict, u64)> {
        let line = nat.sessions.line_of(id, key, Self::DIRECTION)?;
        let word = |n: usize| line[n].load(Relaxed);
        let other = if OUTSIDE { Key([word(0), word(1)]) } else { Key([word(2), word(3)]) };
        let deltas = word(7);
        let (ip, l4) = (deltas as u16, (deltas >> 16) as u16);
        let (ip, l4) = if OUTSIDE { (!ip, !l4) } else { (ip, l4) };
        let state = word(4);
        if state as u32 != now {
            line[4].store(state & !0xffff_ffff | u64::from(now), Relaxed);
        }
        // A plain packet is in one piece.
        line[5].store(word(5) + packet.len() as u64, Relaxed);
        line[6].store(word(6) + 1, Relaxed);
        packet.set_head_at::<u64, ADDRS>(other.back_addrs());
        packet.set_head_at::<u32, PORTS>(other.back_ports());
        let sum: u16 = packet.head_at::<u16, 10>();
        packet.set_head_at::<u16, 10>(update(sum, ip));
        if key.proto() == 6 {
            let sum: u16 = packet.head_at::<u16, 36>();
            packet.set_head_at::<u16, 36>(update(sum, l4));
            let tcp_flags: u8 = packet.head_at::<u8, 33>();
            if tcp_flags & 7 != 0 {
                follow(nat, config, id, tcp_flags, OUTSIDE);
                clamp(config, &mut packet.again(), PORTS, tcp_flags);
            }
        } else {
            let sum: u16 = packet.head_at::<u16, 26>();
            let new = update(sum, l4);
            let new = if new == 0 { 0xffff } else { new };
            packet.set_head_at::<u16, 26>(if sum == 0 { 0 } else { new });
        }
        Some((self.leave(config, packet, (key.fib(), other), (state >> 40) as u8, port.next), state))
    }

    /// Where a changed packet goes: to `next` along the arc, in the other side's table.
    #[inline(always)]
    fn leave(&self, config: &NatConfig, packet: &mut Pkt<'_>, (fib, other): (u16, Key), flags: u8, next: Verdict) -> Verdict {
        if OUTSIDE && config.both {
            self.note_done(config, &mut packet.again());
        }
        let hairpin = !OUTSIDE && flags & flag::HAIRPIN != 0;
        if other.fib() != fib || hairpin || packet.table().is_some() {
            packet.again().set_table(other.fib().into());
        }
        if hairpin {
            return Next::Hairpin.into();
        }
        next
    }

    /// Where a packet goes on along the arc.
    fn on(&self, config: &NatConfig, packet: &Pkt<'_>) -> Verdict {
        on_arc(&self.arc, config, packet.rx_if(), OUTSIDE, Next::Lookup.into())
    }

    #[inline(never)]
    fn note_done(&self, config: &NatConfig, packet: &mut Pkt<'_>) {
        if config.side(packet.rx_if()).inside {
            let [_, rest @ ..] = packet.scratch();
            let mut words = [DONE; 9];
            words[1..].copy_from_slice(&rest);
            packet.set_scratch(words);
        }
    }

    /// Where the thread is among those that have sessions.
    fn position(&self, config: &NatConfig) -> usize {
        config.threads.iter().position(|t| *t == self.thread).unwrap_or(0)
    }

    fn ways(&self) -> Ways<'_> {
        Ways { egress: &self.egress, interfaces: &self.interfaces }
    }

    /// Plain packet `k` of a group, whose session was not where it is in most cases, or is to be begun.
    #[inline(never)]
    fn unknown(
        &mut self,
        nat: &mut ThreadNat,
        config: &NatConfig,
        packet: &mut Pkt<'_>,
        (group, k): (&[Work], usize),
        draws: &mut Option<Draws>,
        now: u32,
    ) -> (Verdict, Option<Drop>) {
        let x = &group[k];
        let draw = (!OUTSIDE && x.id == NO_SESSION)
            .then(|| draws.get_or_insert_with(|| foresee(nat, config, self.position(config), group))[k]);
        let known = nat.sessions.find_at(x.aim, x.key);
        let outcome = known.map_or_else(
            || {
                let tcp_flags = if x.key.proto() == 6 { packet.head_at::<u8, 33>() } else { 0 };
                self.begin(nat, config, packet, x.key, tcp_flags, (now, draw))
            },
            Outcome::Session,
        );
        let id = match self.session_or_end(config, packet, outcome) {
            Ok(id) => id,
            Err(end) => return end,
        };
        let begun = self.begun(known, id);
        let port = self.port(config, packet.rx_if());
        match self.plain(nat, config, packet, (x.key, id), &port, now) {
            Some((verdict, state)) => {
                self.counted_by = output_of(state);
                (verdict, begun)
            }
            None => (packet.drop(Drop::NoTranslation), begun),
        }
    }

    /// Everything that is not a plain packet.
    #[inline(never)]
    fn rest(&mut self, nat: &mut ThreadNat, config: &NatConfig, packet: &mut Pkt<'_>, now: u32) -> (Verdict, Option<Drop>) {
        let fib = self.fib(packet);
        let flow = match Flow::of(packet, Self::DIRECTION, fib, &self.fragments, now) {
            Ok(flow) => flow,
            Err(why) => return self.no_flow(config, packet, why),
        };
        let key = Key::raw(flow.addrs, flow.ports, flow.proto, Self::DIRECTION, fib);
        let known = nat.sessions.find(key);
        let is_error = matches!(flow.l4, L4::Error(_));
        let outcome = match known {
            Some(id) => Outcome::Session(id),
            // An error about a packet of no session begins none (RFC 5508, REQ-4).
            None if is_error => self.without_session(config, packet, key),
            None => self.begin(nat, config, packet, key, flow.tcp_flags, (now, None)),
        };
        let outcome = self.checked(nat, packet, outcome);
        let id = match self.session_or_end(config, packet, outcome) {
            Ok(id) => id,
            Err(end) => return end,
        };
        let Some(mut session) = nat.sessions.get(id) else { return (packet.drop(Drop::NoTranslation), None) };
        self.counted_by = output_of(u64::from(session.output) << 48);
        let begun = self.begun(known, id);
        let other = if OUTSIDE { session.i2o } else { session.o2i };
        flow.change(packet, other.back_addrs(), other.back_ports());
        // An error is no sign of life of the flow (RFC 5508, REQ-6).
        if !is_error {
            session.last_heard = now;
        }
        session.bytes += packet.total_len() as u64;
        session.packets += 1;
        if let Some(line) = nat.sessions.line(id) {
            for (to, word) in line.iter().zip(session.pack()) {
                to.store(word, Relaxed);
            }
        }
        if flow.tcp_flags & 7 != 0 {
            follow(nat, config, id, flow.tcp_flags, OUTSIDE);
            if let L4::Tcp(at) = flow.l4 {
                clamp(config, packet, at, flow.tcp_flags);
            }
        }
        let next = self.on(config, packet);
        (self.leave(config, packet, (fib, other), session.flags, next), begun)
    }

    /// The session that a packet goes on by, or where it goes without one and what is counted.
    fn session_or_end(
        &self,
        config: &NatConfig,
        packet: &mut Pkt<'_>,
        outcome: Outcome,
    ) -> Result<SessionId, (Verdict, Option<Drop>)> {
        Err(match outcome {
            Outcome::Session(id) => return Ok(id),
            Outcome::Error(aux) => {
                packet.set_aux(aux);
                (Next::IcmpError.into(), None)
            }
            Outcome::Turn => (Next::In2Out.into(), Some(Drop::Passed)),
            Outcome::Pass => (self.on(config, packet), Some(Drop::Passed)),
            Outcome::Drop(reason) => (packet.drop(reason), None),
        })
    }

    /// Notes a session that was not `known`, and says whether a packet counts as one that has begun its session: whatever follows the first
    /// one in the same group of packets has not found a session that was there before either.
    fn begun(&mut self, known: Option<SessionId>, id: SessionId) -> Option<Drop> {
        let is_fresh = known.is_none() || self.fresh.contains(&id);
        if known.is_none() {
            self.fresh.push(id);
        }
        is_fresh.then_some(Drop::Begun)
    }

    /// A packet that has a session but will not leave, for its TTL or its size, is answered.
    fn checked(&self, nat: &ThreadNat, packet: &Pkt<'_>, outcome: Outcome) -> Outcome {
        let Outcome::Session(id) = outcome else { return outcome };
        let [ttl, _]: [u8; 2] = packet.head_at::<_, 8>();
        if ttl <= 1 {
            return Outcome::Error(TTL_EXPIRED);
        }
        let dont_fragment = packet.head_at::<u8, 6>() & 0x40 != 0;
        let len = packet.total_len();
        if !dont_fragment || len <= usize::from(self.config.get().mtu) {
            return outcome;
        }
        let Some(session) = nat.sessions.get(id) else { return outcome };
        let to = if OUTSIDE { session.i2o } else { session.o2i };
        match self.egress.find(to.fib().into(), to.src().addr) {
            Way::Interface(tx) => {
                let mtu = self.interfaces.get(tx).mtu4;
                if mtu > 0 && len > usize::from(mtu) { Outcome::Error(icmp_aux(3, 4, mtu)) } else { outcome }
            }
            _ => outcome,
        }
    }

    fn no_flow(&mut self, config: &NatConfig, packet: &mut Pkt<'_>, why: NoFlow) -> (Verdict, Option<Drop>) {
        let key = Key::raw(packet.head_at::<u64, ADDRS>(), 0, 0, Self::DIRECTION, self.fib(packet));
        if let NoFlow::EarlyFragment(of) = why {
            let key = Key::raw(of.addrs, 0, of.proto, Self::DIRECTION, of.fib);
            self.waits = must_wait(self.ways(), config, packet, key, OUTSIDE).then_some(of);
        }
        // What is for the router itself, or does not cross the NAT, is not ours to judge.
        if self.waits.is_none() && matches!(self.without_session(config, packet, key), Outcome::Pass) {
            return (self.on(config, packet), Some(Drop::Passed));
        }
        let reason = match why {
            NoFlow::Short => Drop::Short,
            NoFlow::IcmpType => Drop::IcmpType,
            NoFlow::IcmpChecksum => Drop::IcmpChecksum,
            NoFlow::EarlyFragment(_) => Drop::EarlyFragment,
        };
        (packet.drop(reason), None)
    }

    /// A packet that is not a plain one of a session which was at once found; `true` where it passes untranslated.
    #[inline(never)]
    fn other(
        &mut self,
        cx: &mut NodeCx<'_>,
        frame: &mut Frame,
        (nat, config): (&mut ThreadNat, &NatConfig),
        Here { group, k, at, now }: Here<'_>,
        draws: &mut Option<Draws>,
        tally: &mut Tally,
    ) -> bool {
        let mut packet = cx.packet(frame, at);
        let proto = group[k].key.proto();
        let (verdict, counted) = if group[k].key.is_whole() {
            self.unknown(nat, config, &mut packet, (group, k), draws, now)
        } else {
            self.rest(nat, config, &mut packet, now)
        };
        if let Some(of) = self.waits.take() {
            let bytes = packet.total_len();
            let (packet, taken) = packet.take();
            cx.decide(at, taken);
            self.hold(cx, of, packet, bytes, now);
            return false;
        }
        if let Some(output) = self.counted_by.take().filter(|_| !OUTSIDE) {
            tally.turn(output, &self.counters, self.thread);
        }
        match counted {
            _ if verdict == Verdict::DROP => tally.slow(What::Drops),
            Some(Drop::Passed) => {}
            Some(_) => tally.slow(What::of(proto)),
            None => tally.fast(What::of(proto)),
        }
        cx.decide(at, verdict);
        counted == Some(Drop::Passed)
    }

    #[inline(never)]
    fn hold(&self, cx: &mut NodeCx<'_>, of: Datagram, packet: Packet, bytes: usize, now: u32) {
        let mut out = Vec::new();
        lock_early(&self.early).hold(&self.fragments, of, packet, bytes, now, &mut out);
        out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
    }
}

/// Sends on the fragments that wait for a first one which has come, and drops those that have waited for long enough.
#[inline(never)]
pub(super) fn end_waits<const OUTSIDE: bool>(cx: &mut NodeCx<'_>, early: &mut Early, fragments: &Fragments, now: u32) {
    let mut out = Vec::new();
    early.ready(fragments, now, &mut out);
    for packet in out.drain(..) {
        cx.emit(if OUTSIDE { Next::Hairpin } else { Next::In2Out }, packet);
    }
    early.expire(fragments, Some(now), &mut out);
    out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
}

/// Follows a connection's state; its timeout may be another one then.
#[inline(never)]
fn follow(nat: &mut ThreadNat, config: &NatConfig, id: SessionId, tcp_flags: u8, from_outside: bool) {
    let Some(line) = nat.sessions.line(id) else { return };
    let word = line[4].load(Relaxed);
    let old = (word >> 32) as u8;
    let new = tcp::next(old, tcp_flags, from_outside);
    if new != old {
        line[4].store(word & !(0xff << 32) | u64::from(new) << 32, Relaxed);
        nat.sessions.restart(id, &config.timeouts);
        if tcp::begins_anew(old, tcp_flags)
            && let Some(session) = nat.sessions.get(id)
        {
            // For whoever reads the log it is another one.
            nat.log.tell(false, &session);
            nat.log.tell(true, &session);
        }
    }
}

/// Lowers the greatest segment size that a SYN offers, where one is set.
fn clamp(config: &NatConfig, packet: &mut Pkt<'_>, tcp: usize, tcp_flags: u8) {
    if config.mss > 0 && tcp_flags & 2 != 0 {
        clamp_mss(packet, tcp, config.mss);
    }
}

impl<const OUTSIDE: bool> VectorNode for Translate<OUTSIDE> {
    type Next = Next;
    type Drop = Drop;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.config.refresh();
        self.egress.refresh(cx);
        let now = self.clock.load(Relaxed);
        let state = self.state.clone();
        let mut state = lock(&state);
        let Some(nat) = state.as_mut() else {
            for i in 0..frame.len() {
                let verdict = cx.packet(frame, i).drop(Drop::Off);
                cx.decide(i, verdict);
            }
            return;
        };
        // A snapshot of our own: `self` is changed below.
        let config = self.config.clone();
        let config = config.get();
        let mut passed = 0;
        self.fresh.clear();
        let mut tally = Tally::new(IfIndex::LOCAL0);
        let mut port = self.port(config, IfIndex::LOCAL0);
        let (both, outputs) = (!OUTSIDE && config.both, !OUTSIDE && !config.outputs.is_empty());
        let mut work = [Work::default(); GROUP];
        let n = frame.len();
        for start in (0..n).step_by(GROUP) {
            let group = &mut work[..GROUP.min(n - start)];
            for (k, work) in group.iter_mut().enumerate() {
                let packet = cx.packet(frame, start + k);
                if packet.rx_if() != port.rx {
                    port = self.port(config, packet.rx_if());
                }
                *work = self.look(config.mtu.into(), &packet, &port);
            }
            // Apart from what comes before: the processor has the multiplications of several packets under way. What is not plain
            // is looked up in vain.
            for work in &mut *group {
                work.aim = nat.sessions.aim(nat.sessions.hash(work.key));
                nat.sessions.prefetch_bucket(work.aim);
            }
            for work in &mut *group {
                work.id = nat.sessions.candidate(work.aim);
            }
            let mut draws = None;
            for (k, x) in group.iter().enumerate() {
                let mut packet = cx.packet(frame, start + k);
                if packet.rx_if() != port.rx {
                    port = self.port(config, packet.rx_if());
                }
                tally.turn(port.rx, &self.counters, self.thread);
                if both && is_done(&packet) {
                    let verdict = self.arc.next(port.rx, Next::Lookup.into());
                    cx.decide(start + k, verdict);
                    continue;
                }
                if let Some((verdict, state)) = self.plain(nat, config, &mut packet, (x.key, x.id), &port, now) {
                    if outputs && let Some(output) = output_of(state) {
                        tally.turn(output, &self.counters, self.thread);
                    }
                    // A plain packet is one of these.
                    tally.fast(if x.key.proto() == 6 { What::Tcp } else { What::Udp });
                    cx.decide(start + k, verdict);
                } else {
                    let here = Here { group, k, at: start + k, now };
                    passed += u64::from(self.other(cx, frame, (nat, config), here, &mut draws, &mut tally));
                }
            }
        }
        tally.flush(&self.counters, self.thread);
        if self.fragments.waiting() > 0 {
            end_waits::<OUTSIDE>(cx, &mut lock_early(&self.early), &self.fragments, now);
        }
        let before = nat.sessions.len();
        nat.expire(config, now);
        let begun = self.fresh.len() as u64;
        if begun > 0 || nat.sessions.len() != before {
            self.counters.sessions(self.thread, nat.sessions.len().into());
        }
        for (event, n) in [(Drop::Begun, begun), (Drop::Passed, passed)] {
            if n > 0 {
                cx.count(event, n);
            }
        }
    }

    fn release(&mut self, cx: &mut NodeCx<'_>) {
        let mut out = Vec::new();
        lock_early(&self.early).expire(&self.fragments, None, &mut out);
        out.into_iter().for_each(|packet| cx.drop_packet(packet, Drop::EarlyFragment));
    }
}
