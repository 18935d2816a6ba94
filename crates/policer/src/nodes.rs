//! The nodes; see the crate's drawing.

use std::fmt::Write as _;
use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{
    ArcPoint, Batch, FastPath, FeatureSpec, GraphError, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Sent, Snapshot,
    TraceEntry, Verdict, drop_reasons, flags,
};
use quiver_net::Router;
use quiver_net::ip::FamilyId::{V4, V6};
use quiver_net::l2::Onward;

use crate::mark::{behind_ethernet, mark};
use crate::meter::Color;
use crate::policer::Action;
use crate::view::{Bound, Place, View};

drop_reasons! {
    /// What becomes of policed packets.
    pub enum Drop {
        /// The packet goes on.
        Transmitted = "Packets Transmitted" (info),
        /// A policer's action for the packet's colour is to drop it.
        ///
        /// Causes: more traffic than the policer's rate and burst let pass.
        /// Check: `show policer` for rates, actions and how many packets conform, exceed and violate.
        /// See: `show policer`, `/net/policer/violate`.
        Dropped = "Packets Dropped",
        /// The queue to the thread that has the policer is full.
        ///
        /// Causes: all packets of a policer go to one thread, and that one gets more than it can process.
        /// Check: `show runtime` for the load of each worker; one policer for each interface, or `policer bind` to another worker.
        /// See: `show runtime summary`, `policer bind`.
        Congestion = "congestion drop",
    }
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);
/// Slot of the node itself, for packets that go on at another thread.
const AGAIN: Verdict = Verdict::slot(2);
/// The first slot of a node of layer 2, which has no end of an arc.
const AGAIN_L2: Verdict = Verdict::slot(1);

/// Arc and node of a place on an arc.
pub fn feature(place: Place) -> Option<(&'static str, &'static str)> {
    Some(match place {
        Place::In(V4) => ("ip4-unicast", "policer-input"),
        Place::In(V6) => ("ip6-unicast", "ip6-policer-input"),
        Place::Out(V4) => ("ip4-output", "policer-output"),
        Place::Out(V6) => ("ip6-output", "ip6-policer-output"),
        Place::Punt(V4) => ("ip4-punt", "ip4-punt-policer"),
        Place::Punt(V6) => ("ip6-punt", "ip6-punt-policer"),
        Place::L2In | Place::L2Out => return None,
    })
}

/// The node of frames of layer 2.
pub const fn filter(tx: bool) -> &'static str {
    if tx { "l2-policer-output" } else { "l2-policer-input" }
}

/// Counters of all policers, by [`Color`].
pub type Counters = [Arc<CombinedCounters>; 3];

/// What was counted of one policer and not added up yet.
#[derive(Clone, Copy, Default)]
struct Tally {
    policer: u32,
    counts: [(u64, u64); 3],
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, counters: &Counters, thread: usize, policer: u32, color: Color, (packets, bytes): (u64, u64)) {
        if policer != self.policer {
            self.flush(counters, thread);
            self.policer = policer;
        }
        let (all_packets, all_bytes) = &mut self.counts[color as usize];
        (*all_packets, *all_bytes) = (*all_packets + packets, *all_bytes + bytes);
    }

    fn flush(&mut self, counters: &Counters, thread: usize) {
        for ((packets, bytes), counter) in std::mem::take(&mut self.counts).into_iter().zip(counters) {
            if packets > 0 {
                counter.add(thread, self.policer, packets, bytes);
            }
        }
    }
}

/// Polices packets.
#[derive(Clone)]
struct Police {
    place: Place,
    view: Snapshot<View>,
    path: Onward,
    counters: Counters,
    thread: usize,
    /// Time of this vector, ns.
    now: u64,
    tally: Tally,
    transmitted: u64,
}

impl Police {
    /// Bytes of a frame that are not in a packet's data.
    #[inline(always)]
    fn overhead(&self, link: u32) -> u64 {
        if matches!(self.place, Place::In(_)) { link.into() } else { 0 }
    }

    /// Where a packet's IP header begins.
    fn ip_header(&self, packet: &Pkt<'_>, link: u32) -> Option<usize> {
        match self.place {
            Place::In(_) | Place::Punt(_) => Some(0),
            Place::Out(_) => Some(link as usize),
            Place::L2In | Place::L2Out => behind_ethernet(packet.bytes()),
        }
    }
}

impl Node for Police {
    type Next = NoNext;
    type Drop = Drop;

    fn start(&mut self, thread: usize) {
        self.thread = thread;
    }

    fn begin(&mut self, cx: &mut NodeCx<'_>) {
        self.view.refresh();
        self.path.refresh();
        self.now = cx.now();
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = match self.place {
            Place::In(_) | Place::L2In => packet.rx_if(),
            Place::Out(_) | Place::L2Out => IfIndex(packet.aux()),
            Place::Punt(_) => IfIndex::LOCAL0,
        };
        let Some(next) = self.path.next(interface) else { return packet.drop(Drop::Dropped) };
        // Without a policer where one was taken away meanwhile.
        let Some(Bound { policer, link }) = self.view.get().get(self.place, interface) else { return next };
        let owner = policer.thread(self.thread);
        if owner != self.thread {
            let again = if self.path.is_l2() { AGAIN_L2 } else { AGAIN };
            return cx.hand_over(owner, again, packet, Drop::Congestion);
        }
        let bytes = packet.total_len() as u64 + self.overhead(*link);
        let color = policer.police(self.now, bytes);
        self.tally.add(&self.counters, self.thread, policer.index, color, (1, bytes));
        match policer.actions[color as usize] {
            Action::Drop => return packet.drop(Drop::Dropped),
            Action::Transmit => {}
            Action::Mark(dscp) => {
                if let Some(at) = self.ip_header(&packet, *link) {
                    mark(&mut packet, at, dscp);
                }
            }
        }
        self.transmitted += 1;
        next
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        self.tally.flush(&self.counters, self.thread);
        let transmitted = std::mem::take(&mut self.transmitted);
        if transmitted > 0 {
            cx.count(Drop::Transmitted, transmitted);
        }
    }
}

impl FastPath for Police {
    /// Packets of one policer, which this thread has: all conform, and go on as they are.
    #[inline(always)]
    fn batch<const W: usize>(&mut self, batch: &mut Batch<'_, W>) -> Option<Sent> {
        let interface = match self.place {
            Place::In(_) | Place::L2In => Some(batch.first_rx_if()).filter(|first| batch.all_from(*first, flags::CHAINED)),
            Place::Out(_) | Place::L2Out => {
                let aux = batch.aux();
                Some(IfIndex(aux[0])).filter(|first| aux.iter().all(|other| *other == first.0))
            }
            Place::Punt(_) => Some(IfIndex::LOCAL0),
        }?;
        if batch.any_has(flags::CHAINED) != 0 {
            return None;
        }
        let next = self.path.next(interface)?;
        let Bound { policer, link } = self.view.get().get(self.place, interface)?;
        if policer.actions[0] != Action::Transmit || policer.thread(self.thread) != self.thread {
            return None;
        }
        let bytes = batch.lens().iter().map(|len| u64::from(*len)).sum::<u64>() + W as u64 * self.overhead(*link);
        if !policer.all_conform(self.now, W as u64, bytes) {
            return None;
        }
        self.tally.add(&self.counters, self.thread, policer.index, Color::Conform, (W as u64, bytes));
        self.transmitted += W as u64;
        Some(batch.send_all(next))
    }
}

/// One node.
fn node(place: Place, name: &str, path: Onward, view: &Published<View>, counters: &Counters) -> NodeSpec {
    let police = Police {
        place,
        view: view.snapshot(),
        path,
        counters: counters.clone(),
        thread: 0,
        now: 0,
        tally: Tally::default(),
        transmitted: 0,
    };
    let shown = std::cell::RefCell::new(view.snapshot());
    NodeSpec::fast(name, police).traced(move |entry, out| {
        let mut shown = shown.borrow_mut();
        shown.refresh();
        trace(place, shown.get(), entry, out);
    })
}

/// What a trace says, in VPP's words.
fn trace(place: Place, view: &View, entry: &TraceEntry, out: &mut String) {
    let interface = match place {
        Place::Out(_) | Place::L2Out => IfIndex(entry.aux),
        _ => entry.rx_if,
    };
    let policer = view.get(place, interface).map_or(-1, |bound| i64::from(bound.policer.index));
    let _ = write!(out, "VNET_POLICER: sw_if_index {interface} policer_index {policer} next {}", entry.next);
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, view: &Published<View>, counters: &Counters) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    // What is denied costs no tokens; and packets are marked as they are on the wire, before NAT changes them.
    let acls: [&[&str]; 2] =
        [&["ip4-inacl", "ip4-rx-urpf-strict", "ip4-rx-urpf-loose"], &["ip6-inacl", "ip6-rx-urpf-strict", "ip6-rx-urpf-loose"]];
    let nat = ["nat44-ed-out2in-handoff", "nat44-ed-out2in", "nat44-ed-in2out-handoff", "nat44-ed-in2out"];
    for family in [V4, V6] {
        for place in [Place::In(family), Place::Out(family), Place::Punt(family)] {
            let Some((arc, name)) = feature(place) else { continue };
            let four = family == V4;
            let (end, before, after): (_, &[&str], &[&str]) = match place {
                Place::In(_) if four => ("ip4-lookup", &nat, acls[0]),
                Place::In(_) => ("ip6-lookup", &[], acls[1]),
                Place::Punt(_) if four => ("ip4-punt-redirect", &[], &["ip4-punt-acl"]),
                Place::Punt(_) => ("ip6-punt-redirect", &[], &["ip6-punt-acl"]),
                _ => ("interface-output-end", &[], &[]),
            };
            let point = ArcPoint::new();
            let spec = node(place, name, Onward::arc(point.clone(), END), view, counters);
            nodes.push(spec.with_next(end).with_next(name).on_arc(arc, point));
            features.push(FeatureSpec { arc, node: name.into(), before: before.to_vec(), after: after.to_vec() });
        }
    }
    for (place, tx) in [(Place::L2In, false), (Place::L2Out, true)] {
        let path = router.l2_onward(filter(tx), tx);
        nodes.push(node(place, filter(tx), path, view, counters).with_next(filter(tx)));
    }
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
