//! The nodes; see the crate's drawing.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

use quiver_graph::clock::Clock;
use quiver_graph::{
    ArcPoint, FeatureSpec, Frame, GraphError, IfIndex, NoNext, NodeCx, NodeSpec, Pkt, Published, Snapshot, TraceEntry, VectorNode,
    Verdict, drop_reasons,
};
use quiver_net::Router;
use quiver_net::l2::Onward;

use crate::packet::{FOUR, Flow, Four, SIX, Seen, Six, ether_type, quoted};
use crate::policy::{BATCH, Match, Policy, RulesOf};
use crate::rule::Action;
use crate::session::{Candidate, Sessions, SessionsOf, ticks};
use crate::view::{Bound, View};

drop_reasons! {
    /// What becomes of packets.
    pub enum Drop {
        /// A rule of an access list denies the packet.
        ///
        /// Causes: a rule is meant to, or stands before the one that should permit it.
        /// Check: `show acl-plugin interface` for the lists of the interface, `show acl-plugin acl` for their rules and how many
        /// packets each had; a trace names the rule.
        /// See: `show acl-plugin acl`, `show acl-plugin interface`, `trace add`.
        Denied = "ACL deny packets",
        /// The packet is in no rule of the interface's access lists, and in no session: what nothing permits is denied.
        ///
        /// Causes: a rule that is missing, for the packet's address family too; an answer whose session is over, or whose way out
        /// has no `permit+reflect`.
        /// Check: `show acl-plugin interface` for the lists, `show acl-plugin sessions` for sessions and their timeouts.
        /// See: `show acl-plugin acl`, `show acl-plugin sessions`, `set acl-plugin session timeout`.
        NoRule = "ACL deny packets in no rule",
        /// The headers of the packet cannot be followed to its ports, so that no rule can be trusted to have it.
        Unreadable = "ACL deny packets with unreadable headers",
        /// A rule lets the packet begin a session, and there is no room for one.
        ///
        /// Causes: more flows than `set acl-plugin session table max-entries` allows; a scan.
        /// Check: `show acl-plugin sessions`; allow more of them, or shorten the timeouts.
        /// See: `show acl-plugin sessions`, `set acl-plugin session timeout`.
        Full = "too many sessions to add new",
        /// A frame that is not IP has an EtherType which is not on the interface's list.
        EtherType = "ACL deny frames by EtherType",
        /// The interface's use on layer 2 has ended while the frame was on its way.
        Gone = "ACL interface has gone",
        /// A rule permits the packet.
        Permitted = "ACL permit packets" (info),
        /// A session began.
        Begun = "new sessions added" (info),
        /// A packet of a session.
        Existing = "existing session packets" (info),
        /// A packet.
        Checked = "checked packets" (info),
    }
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);
/// Packets whose lines are under way together.
const GROUP: usize = 32;

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Packets of IPv4.
    Four,
    /// Packets of IPv6.
    Six,
    /// Frames of layer 2.
    L2,
}

/// Arc and node of packets (`tx`: which leave).
pub const fn feature(six: bool, tx: bool) -> (&'static str, &'static str) {
    match (six, tx) {
        (false, false) => ("ip4-unicast", "acl-plugin-in-ip4-fa"),
        (false, true) => ("ip4-output", "acl-plugin-out-ip4-fa"),
        (true, false) => ("ip6-unicast", "acl-plugin-in-ip6-fa"),
        (true, true) => ("ip6-output", "acl-plugin-out-ip6-fa"),
    }
}

/// The node of frames of layer 2.
pub const fn filter(tx: bool) -> &'static str {
    if tx { "acl-plugin-out-l2" } else { "acl-plugin-in-l2" }
}

/// What was counted in a vector.
#[derive(Default)]
struct Tally {
    permitted: u64,
    begun: u64,
    existing: u64,
}

/// An interface, the lists that its packets meet, and where packets go on: those of a packet serve the next one, too.
type Last<'v> = (IfIndex, Option<(&'v Bound, &'v Policy)>, Verdict);

/// A packet that may be one of a session.
#[derive(Clone, Copy)]
struct Probe<K> {
    key: K,
    /// 0 until it is computed.
    hash: u64,
    /// Which session it may be.
    candidate: Candidate,
    tcp_flags: u8,
    /// It is an error about a packet of the session.
    is_error: bool,
}

/// A packet that no session lets through.
struct Work<'v, F: Known<D>, const D: usize> {
    policy: &'v Policy,
    seen: Seen<D>,
    probe: Option<&'v Probe<F::Key>>,
}

/// Checks packets.
struct Filter<const TX: bool> {
    place: Place,
    view: Snapshot<View>,
    path: Onward,
    thread: usize,
    clock: Arc<Clock>,
}

/// A family that lists and sessions know.
trait Known<const D: usize>: RulesOf<D> + SessionsOf<D> {}
impl Known<FOUR> for Four {}
impl Known<SIX> for Six {}

/// The rules of some packets: at once where all are in one policy.
#[inline(always)]
fn find_all<'v, F: Known<D>, const D: usize>(view: &View, works: &[Option<Work<'v, F, D>>]) -> [Option<&'v Match>; BATCH] {
    let Some(first) = works.iter().flatten().next() else { return [None; BATCH] };
    let one = |at: usize| works.get(at)?.as_ref();
    let alike = |work: &Work<'_, F, D>| std::ptr::eq(work.policy, first.policy) && work.seen.flow != Flow::Later;
    if works.len() > 1 && works.iter().flatten().all(alike) {
        // What is missing of a batch is the first one again.
        return F::find_batch(first.policy, &std::array::from_fn(|at| one(at).map_or(first.seen, |work| work.seen)));
    }
    std::array::from_fn(|at| one(at).and_then(|work| F::find(work.policy, &work.seen, view.ported_fragments)))
}

/// What a session's value says: the version of the configuration that it is from, and whether it began with a packet that left.
fn value(version: u32, tx: bool) -> u32 {
    version << 1 | u32::from(tx)
}

/// Whether sessions with this value are over because the interface's lists were taken away, or sessions cleared.
pub(crate) fn is_stale(value: u32, since: u32) -> bool {
    value >> 1 < since
}

impl<const TX: bool> Filter<TX> {
    /// Timer time in ticks.
    fn now(&self, cx: &NodeCx<'_>) -> u32 {
        ticks(cx.now().wrapping_add_signed(self.clock.adjustment()))
    }

    #[inline(always)]
    fn interface(packet: &Pkt<'_>) -> IfIndex {
        if TX { IfIndex(packet.aux()) } else { packet.rx_if() }
    }

    /// What lists have to do with packets of an interface, if anything.
    #[inline(always)]
    fn bound(view: &View, interface: IfIndex) -> Option<(&Bound, &Policy)> {
        let bound = view.get(interface)?;
        Some((bound, bound.sides[usize::from(TX)].policy.as_deref()?))
    }

    /// A packet's IP header and what follows it, where there is one.
    #[inline(always)]
    fn header<'p>(bound: &Bound, packet: &'p Pkt<'_>) -> &'p [u8] {
        let at = if TX { bound.link as usize } else { 0 };
        packet.bytes().get(at..).unwrap_or_default()
    }

    /// The session that a packet may be of, without its hash.
    #[inline(always)]
    fn probe<F: Known<D>, const D: usize>(bytes: &[u8], seen: &Seen<D>, interface: IfIndex) -> Option<Probe<F::Key>> {
        let is_error = matches!(seen.flow, Flow::Error(_));
        let key = match seen.flow {
            Flow::Ports | Flow::Query { .. } => F::key(seen, interface.0, TX),
            Flow::Error(quote) => quoted::<F, D>(bytes, quote, interface.0, TX)?,
            Flow::None | Flow::Later => return None,
        };
        Some(Probe { key, hash: 0, candidate: Candidate::default(), tcp_flags: seen.tcp_flags, is_error })
    }

    /// Whether a packet is one of a session. `bytes`: its header, and what follows.
    #[inline(always)]
    fn is_known<F: Known<D>, const D: usize>(
        view: &View,
        sessions: &Sessions,
        (bound, policy): (&Bound, &Policy),
        probe: &Probe<F::Key>,
        bytes: &[u8],
        now: u32,
    ) -> bool {
        let value = if probe.is_error {
            // An error is no sign of life of the flow.
            sessions.has::<F, D>(&probe.key, now)
        } else {
            sessions.hit::<F, D>(&probe.key, probe.hash, probe.candidate, probe.tcp_flags, TX, now)
        };
        let Some(value) = value else { return false };
        !is_stale(value, bound.since)
            && (!view.reclassify || Self::is_in_order::<F, D>(view, sessions, (bound, policy), probe, bytes, value))
    }

    /// Does what the rule says that a packet is in.
    #[inline(always)]
    fn obey<F: Known<D>, const D: usize>(
        &self,
        view: &View,
        work: &Work<'_, F, D>,
        found: Option<&Match>,
        bytes: u64,
        now: u32,
        tally: &mut Tally,
    ) -> Result<(), Drop> {
        let found = found.ok_or(Drop::NoRule)?;
        work.policy.count(self.thread, found, bytes);
        match found.action {
            Action::Deny => return Err(Drop::Denied),
            Action::Permit => {}
            Action::Reflect => Self::begin(view, work, now, tally)?,
        }
        tally.permitted += 1;
        Ok(())
    }

    /// Begins a packet's session, where there can be one: an error, and an answer of ICMP to no query, begin none.
    #[inline(never)]
    fn begin<F: Known<D>, const D: usize>(view: &View, work: &Work<'_, F, D>, now: u32, tally: &mut Tally) -> Result<(), Drop> {
        let begins = matches!(work.seen.flow, Flow::Ports | Flow::Query { asks: true, .. });
        let (Some(probe), Some(sessions), true) = (work.probe, view.sessions.as_deref(), begins) else { return Ok(()) };
        let Probe { key, hash, candidate, tcp_flags, .. } = probe;
        let value = value(view.version, TX);
        // A packet before it, of the same group, may have begun it.
        if sessions.hit::<F, D>(key, *hash, *candidate, *tcp_flags, TX, now) == Some(value) {
            return Ok(());
        }
        sessions.begin::<F, D>(*key, *hash, *tcp_flags, TX, now, value).map_err(|_| Drop::Full)?;
        tally.begun += 1;
        Ok(())
    }

    /// Whether a session is in order under lists that have changed since it began: its packets of the direction that it began in tell.
    #[inline(never)]
    fn is_in_order<F: Known<D>, const D: usize>(
        view: &View,
        sessions: &Sessions,
        (bound, policy): (&Bound, &Policy),
        probe: &Probe<F::Key>,
        bytes: &[u8],
        value_then: u32,
    ) -> bool {
        let began_here = value_then & 1 == u32::from(TX) && !probe.is_error;
        if !began_here || !is_stale(value_then, bound.version) {
            return true;
        }
        let found = F::look(bytes).and_then(|seen| F::find(policy, &seen, view.ported_fragments));
        if found.is_some_and(|found| found.action == Action::Reflect) {
            sessions.renew::<F, D>(&probe.key, probe.hash, value(view.version, TX));
            return true;
        }
        sessions.end::<F, D>(&probe.key, probe.hash);
        false
    }

    /// A vector of packets of a family.
    #[inline(always)]
    fn packets<F: Known<D>, const D: usize>(&self, cx: &mut NodeCx<'_>, frame: &mut Frame, tally: &mut Tally) {
        let (view, now) = (self.view.get(), self.now(cx));
        let n = frame.len();
        let mut last: Last<'_> = (IfIndex(u32::MAX), None, END);
        for start in (0..n).step_by(GROUP) {
            let group = GROUP.min(n - start);
            let mut probes = [const { None }; GROUP];
            let mut bounds = [None; GROUP];
            for k in 0..group {
                let mut packet = cx.packet(frame, start + k);
                let interface = Self::interface(&packet);
                if interface != last.0 {
                    last = (interface, Self::bound(view, interface), self.path.next(interface).unwrap_or(END));
                }
                let mut verdict = last.2;
                if let Some((bound, _)) = last.1 {
                    bounds[k] = last.1;
                    if bound.stateful {
                        let bytes = Self::header(bound, &packet);
                        match F::look(bytes) {
                            Some(seen) => probes[k] = Self::probe::<F, D>(bytes, &seen, interface),
                            None => (bounds[k], verdict) = (None, packet.drop(Drop::Unreadable)),
                        }
                    }
                }
                cx.decide(start + k, verdict);
            }
            if let Some(sessions) = view.sessions.as_deref() {
                // One step for all packets after the other: a processor has those of several packets under way.
                for probe in probes.iter_mut().take(group).flatten() {
                    probe.hash = F::shards(sessions).hash(&probe.key);
                    F::shards(sessions).prefetch(probe.hash);
                }
                for probe in probes.iter_mut().take(group).flatten() {
                    probe.candidate = F::shards(sessions).candidate(probe.hash);
                }
            }
            // Those that no session lets through, by their places in the group.
            let (mut rest, mut pending) = ([0; GROUP], 0);
            for (k, (probe, bound)) in probes.iter().zip(&bounds).enumerate().take(group) {
                let Some(bound) = *bound else { continue };
                if let (Some(probe), Some(sessions)) = (probe, view.sessions.as_deref()) {
                    let packet = cx.packet(frame, start + k);
                    if Self::is_known::<F, D>(view, sessions, bound, probe, Self::header(bound.0, &packet), now) {
                        tally.existing += 1;
                        continue;
                    }
                }
                (rest[pending], pending) = (k, pending + 1);
            }
            for chosen in rest[..pending].chunks(BATCH) {
                let mut works: [Option<Work<'_, F, D>>; BATCH] = [const { None }; BATCH];
                for (work, k) in works.iter_mut().zip(chosen) {
                    let Some((bound, policy)) = bounds[*k] else { continue };
                    let mut packet = cx.packet(frame, start + k);
                    match F::look(Self::header(bound, &packet)) {
                        Some(seen) => *work = Some(Work { policy, seen, probe: probes[*k].as_ref() }),
                        None => {
                            let verdict = packet.drop(Drop::Unreadable);
                            cx.decide(start + k, verdict);
                        }
                    }
                }
                let found = find_all::<F, D>(view, &works[..chosen.len()]);
                for ((k, found), work) in chosen.iter().zip(found).zip(&works) {
                    let Some(work) = work else { continue };
                    let mut packet = cx.packet(frame, start + k);
                    let bytes = packet.total_len() as u64;
                    if let Err(reason) = self.obey(view, work, found, bytes, now, tally) {
                        let verdict = packet.drop(reason);
                        cx.decide(start + k, verdict);
                    }
                }
            }
        }
    }

    /// Frames of layer 2, one by one: families change from frame to frame.
    #[inline(always)]
    fn frames(&self, cx: &mut NodeCx<'_>, frame: &mut Frame, tally: &mut Tally) {
        let (view, now) = (self.view.get(), self.now(cx));
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let interface = Self::interface(&packet);
            let next = self.path.next(interface);
            let result = match view.get(interface) {
                _ if next.is_none() => Err(Drop::Gone),
                Some(bound) => self.frame(view, bound, &packet, interface, now, tally),
                None => Ok(()),
            };
            let verdict = match (result, next) {
                (Ok(()), Some(next)) => next,
                (Err(reason), _) => packet.drop(reason),
                (Ok(()), None) => packet.drop(Drop::Gone),
            };
            cx.decide(i, verdict);
        }
    }

    /// Whether a packet goes on.
    #[inline(always)]
    fn judge<F: Known<D>, const D: usize>(
        &self,
        view: &View,
        packet: &Pkt<'_>,
        at: usize,
        interface: IfIndex,
        now: u32,
        tally: &mut Tally,
    ) -> Result<(), Drop> {
        let Some((bound, policy)) = Self::bound(view, interface) else { return Ok(()) };
        let bytes = packet.bytes().get(at..).unwrap_or_default();
        let seen = F::look(bytes).ok_or(Drop::Unreadable)?;
        let sessions = view.sessions.as_deref().filter(|_| bound.stateful);
        let probe = sessions.and_then(|sessions| {
            let probe = Self::probe::<F, D>(bytes, &seen, interface)?;
            Some(Probe { hash: F::shards(sessions).hash(&probe.key), ..probe })
        });
        let known = |(sessions, probe)| Self::is_known::<F, D>(view, sessions, (bound, policy), probe, bytes, now);
        if sessions.zip(probe.as_ref()).is_some_and(known) {
            tally.existing += 1;
            return Ok(());
        }
        let found = F::find(policy, &seen, view.ported_fragments);
        let work = Work::<F, D> { policy, seen, probe: probe.as_ref() };
        self.obey(view, &work, found, packet.total_len() as u64, now, tally)
    }

    #[inline(always)]
    fn frame(
        &self,
        view: &View,
        bound: &Bound,
        packet: &Pkt<'_>,
        interface: IfIndex,
        now: u32,
        tally: &mut Tally,
    ) -> Result<(), Drop> {
        const IP4: u16 = 0x0800;
        const IP6: u16 = 0x86dd;
        let (at, kind) = ether_type(packet.bytes()).ok_or(Drop::Unreadable)?;
        match kind {
            IP4 => self.judge::<Four, FOUR>(view, packet, at, interface, now, tally),
            IP6 => self.judge::<Six, SIX>(view, packet, at, interface, now, tally),
            _ => match &bound.sides[usize::from(TX)].ether_types {
                Some(allowed) if !allowed.contains(&kind) => Err(Drop::EtherType),
                _ => Ok(()),
            },
        }
    }
}

impl<const TX: bool> VectorNode for Filter<TX> {
    type Next = NoNext;
    type Drop = Drop;

    #[inline(always)]
    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        self.view.refresh();
        self.path.refresh();
        let mut tally = Tally::default();
        match self.place {
            Place::Four => self.packets::<Four, FOUR>(cx, frame, &mut tally),
            Place::Six => self.packets::<Six, SIX>(cx, frame, &mut tally),
            Place::L2 => self.frames(cx, frame, &mut tally),
        }
        let Tally { permitted, begun, existing } = tally;
        let counts = [(Drop::Permitted, permitted), (Drop::Begun, begun), (Drop::Existing, existing)];
        for (event, n) in counts.into_iter().chain([(Drop::Checked, frame.len() as u64)]) {
            if n > 0 {
                cx.count(event, n);
            }
        }
    }
}

/// What the lists say of a traced packet's headers.
fn explain<F: Known<D>, const D: usize>(view: &View, policy: &Policy, bytes: &[u8], out: &mut String) {
    let Some(seen) = F::look(bytes) else {
        out.push_str("unreadable headers");
        return;
    };
    let _ = match F::find(policy, &seen, view.ported_fragments) {
        Some(Match { acl, rule, action, .. }) => write!(out, "match: acl {acl} rule {rule}, {}", action.word()),
        None => write!(out, "match: no rule, deny"),
    };
}

/// What a trace says: whether the packet went on, and which rule has it as the lists are when it is shown.
fn trace(place: Place, tx: bool, view: &View, entry: &TraceEntry, out: &mut String) {
    let interface = if tx { IfIndex(entry.aux) } else { entry.rx_if };
    // A dropped packet has its reason in place of its interface.
    let fate = if entry.next == 0 { "denied" } else { "went on" };
    let _ = write!(out, "acl-plugin: sw_if_index {interface}, next index {}: {fate}", entry.next);
    let Some(bound) = view.get(interface).filter(|_| !(tx && entry.next == 0)) else { return };
    let Some(policy) = bound.sides[usize::from(tx)].policy.as_deref() else { return };
    out.push_str("\n    ");
    let rest = |at: usize| entry.bytes.get(at..).unwrap_or_default();
    let at = if tx { bound.link as usize } else { 0 };
    match place {
        Place::Four => explain::<Four, FOUR>(view, policy, rest(at), out),
        Place::Six => explain::<Six, SIX>(view, policy, rest(at), out),
        Place::L2 => match ether_type(&entry.bytes) {
            Some((at, 0x0800)) => explain::<Four, FOUR>(view, policy, rest(at), out),
            Some((at, 0x86dd)) => explain::<Six, SIX>(view, policy, rest(at), out),
            _ => out.push_str("not IP"),
        },
    }
}

/// One node.
fn node<const TX: bool>(router: &Router, place: Place, name: &str, path: Onward, view: &Published<View>) -> NodeSpec {
    let (snapshot, clock) = (view.snapshot(), router.graph.clock().clone());
    let make = move |cx: &quiver_graph::MakeCx| Filter::<TX> {
        place,
        view: snapshot.clone(),
        path: path.clone(),
        thread: cx.thread,
        clock: clock.clone(),
    };
    let shown = RefCell::new(view.snapshot());
    NodeSpec::vector(name, make).traced(move |entry, out| {
        let mut shown = shown.borrow_mut();
        shown.refresh();
        trace(place, TX, shown.get(), entry, out);
    })
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, view: &Published<View>) -> Result<(), GraphError> {
    // By family, before whom and behind whom. As packets are on the wire: before NAT changes them; what is denied costs no policer's
    // tokens; and fragments may have been put together, or in order.
    const AROUND: [[&[&str]; 2]; 2] = [
        [
            &["policer-input", "nat44-ed-out2in-handoff", "nat44-ed-out2in", "nat44-ed-in2out-handoff", "nat44-ed-in2out"],
            &["ip4-full-reassembly-feature", "ip4-sv-reassembly-feature"],
        ],
        [&["ip6-policer-input"], &["ip6-full-reassembly-feature", "ip6-sv-reassembly-feature"]],
    ];
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for (six, tx) in [(false, false), (false, true), (true, false), (true, true)] {
        let (arc, name) = feature(six, tx);
        let place = if six { Place::Six } else { Place::Four };
        let point = ArcPoint::new();
        let path = Onward::arc(point.clone(), END);
        let spec = if tx { node::<true>(router, place, name, path, view) } else { node::<false>(router, place, name, path, view) };
        let end = match (tx, six) {
            (true, _) => "interface-output-end",
            (false, false) => "ip4-lookup",
            (false, true) => "ip6-lookup",
        };
        nodes.push(spec.with_next(end).on_arc(arc, point));
        let around: [&[&str]; 2] = if tx { [&[], &[]] } else { AROUND[usize::from(six)] };
        let [before, after] = around.map(<[_]>::to_vec);
        features.push(FeatureSpec { arc, node: name.into(), before, after });
    }
    let paths = [false, true].map(|tx| router.l2_onward(filter(tx), tx));
    let [rx, tx] = paths;
    nodes.push(node::<false>(router, Place::L2, filter(false), rx, view));
    nodes.push(node::<true>(router, Place::L2, filter(true), tx, view));
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
