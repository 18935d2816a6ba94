//! The nodes; see the crate's drawing.

use std::fmt::Write as _;

use quiver_graph::{
    ArcPoint, DropReasons, FeatureSpec, GraphError, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Shared, Snapshot,
    TraceEntry, Verdict, drop_reasons,
};
use quiver_net::Router;
use quiver_net::data::IfTable;
use quiver_net::l2::Onward;

use crate::view::{Action, DENY, Found, NONE, Place, View, copy};

drop_reasons! {
    /// What becomes of packets that come in.
    pub enum In {
        /// A packet was in no table of the chain.
        Miss = "input ACL misses" (info),
        /// A packet was in a table.
        Hit = "input ACL hits" (info),
        /// A packet was in a table that is not the first one.
        ChainHit = "input ACL hits after chain walk" (info),
        /// A session of a classifier table says to drop the packet (`acl-hit-next deny`).
        ///
        /// Causes: a session is meant to block it.
        /// Check: `show inacl type ip4` for the table, `show classify tables verbose` for its sessions.
        /// See: `show inacl`, `show classify tables`.
        Denied = "input ACL session deny drops",
        /// The packet is in no classifier table, and the last table of the chain drops such packets (`acl-miss-next deny`).
        ///
        /// Causes: no session for the packet; a mask or an offset that is not where it was meant.
        /// Check: `show inacl type ip4` for the table, `show classify tables verbose` for mask and sessions.
        /// See: `show inacl`, `show classify tables`.
        Missed = "input ACL table-miss drops",
    }
}

drop_reasons! {
    /// What becomes of packets that leave.
    pub enum Out {
        /// A packet was in no table of the chain.
        Miss = "output ACL misses" (info),
        /// A packet was in a table.
        Hit = "output ACL hits" (info),
        /// A packet was in a table that is not the first one.
        ChainHit = "output ACL hits after chain walk" (info),
        /// A session of a classifier table says to drop the packet (`acl-hit-next deny`).
        ///
        /// Causes: a session is meant to block it.
        /// Check: `show outacl type ip4` for the table, `show classify tables verbose` for its sessions.
        /// See: `show outacl`, `show classify tables`.
        Denied = "output ACL session deny drops",
        /// The packet is in no classifier table, and the last table of the chain drops such packets (`acl-miss-next deny`).
        ///
        /// Causes: no session for the packet; a mask or an offset that is not where it was meant.
        /// Check: `show outacl type ip4` for the table, `show classify tables verbose` for mask and sessions.
        /// See: `show outacl`, `show classify tables`.
        Missed = "output ACL table-miss drops",
    }
}

/// The events of a direction, by what they mean.
pub trait Events: DropReasons + Send + Sync + 'static {
    /// In no table, in a table, in one that is not the first; dropped by a session, dropped by none.
    const ALL: [Self; 5];
}

impl Events for In {
    const ALL: [Self; 5] = [Self::Miss, Self::Hit, Self::ChainHit, Self::Denied, Self::Missed];
}

impl Events for Out {
    const ALL: [Self; 5] = [Self::Miss, Self::Hit, Self::ChainHit, Self::Denied, Self::Missed];
}

/// Slot of the end of the arc.
const END: Verdict = Verdict::slot(1);

/// Arc and node of a place on an arc.
pub fn feature(place: Place) -> Option<(&'static str, &'static str)> {
    Some(match place {
        Place::Ip4In => ("ip4-unicast", "ip4-inacl"),
        Place::Ip6In => ("ip6-unicast", "ip6-inacl"),
        Place::Ip4Out => ("ip4-output", "ip4-outacl"),
        Place::Ip6Out => ("ip6-output", "ip6-outacl"),
        Place::Ip4Punt => ("ip4-punt", "ip4-punt-acl"),
        Place::Ip6Punt => ("ip6-punt", "ip6-punt-acl"),
        Place::L2In | Place::L2Out => return None,
    })
}

/// The node of frames of layer 2.
pub const fn filter(tx: bool) -> &'static str {
    if tx { "l2-output-acl" } else { "l2-input-acl" }
}

/// Which interface a packet is classified for, and where its tables begin: bytes from the data to the frame, and to what VPP calls
/// the current data.
#[inline(always)]
fn bases(place: Place, view: &View, rx: IfIndex, aux: u32) -> (IfIndex, isize, isize) {
    match place {
        Place::Ip4In | Place::Ip6In => (rx, -(view.link(rx) as isize), 0),
        // As in VPP, both begin with the IP header, which the link header stands before already.
        Place::Ip4Out | Place::Ip6Out => {
            let (tx, link) = (IfIndex(aux), view.link(IfIndex(aux)) as isize);
            (tx, link, link)
        }
        Place::L2In => (rx, 0, 0),
        Place::L2Out => (IfIndex(aux), 0, 0),
        Place::Ip4Punt | Place::Ip6Punt => (IfIndex(0), -(view.link(rx) as isize), 0),
    }
}

/// Classifies packets and lets them go on, or not.
#[derive(Clone)]
struct Acl<E> {
    place: Place,
    view: Snapshot<View>,
    path: Onward,
    counts: [u64; 3],
    events: std::marker::PhantomData<fn() -> E>,
}

impl<E: Events> Node<Shared> for Acl<E> {
    type Next = NoNext;
    type Drop = E;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.view.refresh();
        self.path.refresh();
    }

    #[inline(always)]
    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let (view, thread) = (self.view.get(), cx.thread());
        let (interface, frame, data) = bases(self.place, view, packet.rx_if(), packet.aux());
        let Some(next) = self.path.next(interface) else { return packet.drop(E::ALL[4]) };
        let read = |from_data: Option<i16>, skip: usize, to: &mut [u8]| {
            let base = from_data.map_or(frame, |offset| data + isize::from(offset));
            copy(&packet, base + skip as isize, to);
        };
        let found = view.classify(view.first(self.place, interface), read, |hits, entry| hits.count(thread, entry));
        let Some(found) = found else { return next };
        self.counts[usize::from(found.rule.is_some())] += 1;
        self.counts[2] += u64::from(found.chained);
        if found.deny {
            return packet.drop(E::ALL[if found.rule.is_some() { 3 } else { 4 }]);
        }
        if let Some(rule) = found.rule {
            apply(self.place, &mut packet, rule.action, rule.advance);
        }
        next
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        for (event, n) in E::ALL.into_iter().zip(std::mem::take(&mut self.counts)) {
            if n > 0 {
                cx.count(event, n);
            }
        }
    }
}

/// Does what a session says. As in VPP, another table is for packets that come in.
#[inline(always)]
fn apply(place: Place, packet: &mut Pkt<'_, Shared>, action: Action, advance: i32) {
    match (place, action) {
        (Place::Ip4In, Action::Fib4(fib)) | (Place::Ip6In, Action::Fib6(fib)) => packet.set_table(fib),
        _ => {}
    }
    // A packet that is too short to be pulled, or without room, stays as it is.
    let bytes = advance.unsigned_abs() as usize;
    let _ = if advance >= 0 { packet.pull(bytes) } else { packet.push(bytes) };
}

/// What a trace says: what the tables, as they are when it is shown, make of the packet.
fn trace(place: Place, view: &View, interfaces: &IfTable, entry: &TraceEntry, out: &mut String) {
    let (interface, frame, data) = bases(place, view, entry.rx_if, entry.aux);
    let outwards = matches!(place, Place::Ip4Out | Place::Ip6Out | Place::L2Out);
    let word = if outwards { "OUTACL" } else { "INACL" };
    let read = |from_data: Option<i16>, skip: usize, to: &mut [u8]| {
        let base = from_data.map_or(frame, |offset| data + isize::from(offset)) + skip as isize;
        // A trace keeps nothing of what lies before the data.
        for (at, byte) in to.iter_mut().enumerate() {
            *byte = usize::try_from(base + at as isize).ok().and_then(|at| entry.bytes.get(at)).copied().unwrap_or_default();
        }
    };
    // The packet was counted when it came.
    let found = view.classify(view.first(place, interface), read, |_, _| ());
    let (table, rule) = found.map_or((NONE, None), |Found { table, rule, .. }| (table, rule));
    let next = if found.is_some_and(|found| found.deny) { DENY } else { u32::from(END.index()) };
    let _ = write!(out, "{word}: sw_if_index {interface}, next_index {next}, table_index {}, ", signed(table));
    let _ = match rule.map(|rule| rule.action).unwrap_or_default() {
        Action::None => write!(out, "action none, metadata 0"),
        Action::Fib4(_) => write!(out, "action set-ip4-fib-index"),
        Action::Fib6(_) => write!(out, "action set-ip6-fib-index"),
        Action::Metadata(metadata) => {
            let (four, six) = interfaces.fibs(entry.rx_if);
            let fib = if matches!(place, Place::Ip4In | Place::Ip4Out | Place::Ip4Punt) { four } else { six };
            write!(out, "action set-metadata, metadata {metadata}, fib_index {fib}")
        }
    };
    if rule.is_none() {
        out.push_str("\n    no match");
    }
}

/// All bits set is -1, as VPP prints it.
pub(crate) fn signed(number: u32) -> i64 {
    if number == NONE { -1 } else { number.into() }
}

/// One node.
fn node(router: &Router, place: Place, name: &str, path: Onward, view: &Published<View>) -> NodeSpec {
    let (snapshot, counts, events) = (view.snapshot(), [0; 3], std::marker::PhantomData);
    let outwards = matches!(place, Place::Ip4Out | Place::Ip6Out | Place::L2Out);
    let spec = if outwards {
        NodeSpec::node(name, Acl::<Out> { place, view: snapshot, path, counts, events })
    } else {
        let events = std::marker::PhantomData;
        NodeSpec::node(name, Acl::<In> { place, view: snapshot, path, counts, events })
    };
    let (shown, interfaces) = (std::cell::RefCell::new(view.snapshot()), router.data.interfaces.clone());
    spec.traced(move |entry, out| {
        let mut shown = shown.borrow_mut();
        shown.refresh();
        trace(place, shown.get(), &interfaces, entry, out);
    })
}

/// Declares nodes and features.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, view: &Published<View>) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for place in [Place::Ip4In, Place::Ip6In, Place::Ip4Out, Place::Ip6Out, Place::Ip4Punt, Place::Ip6Punt] {
        let Some((arc, name)) = feature(place) else { continue };
        let (end, before): (_, &[&str]) = match place {
            // As packets are on the wire: before NAT changes them, and before their sources are checked.
            Place::Ip4In => {
                ("ip4-lookup", &["nat44-ed-out2in-handoff", "nat44-ed-out2in", "nat44-ed-in2out-handoff", "nat44-ed-in2out"])
            }
            Place::Ip6In => ("ip6-lookup", &[]),
            Place::Ip4Punt => ("ip4-punt-redirect", &[]),
            Place::Ip6Punt => ("ip6-punt-redirect", &[]),
            _ => ("interface-output-end", &[]),
        };
        let point = ArcPoint::new();
        nodes.push(node(router, place, name, Onward::arc(point.clone(), END), view).with_next(end).on_arc(arc, point));
        features.push(FeatureSpec { arc, node: name.into(), before: before.to_vec(), after: Vec::new() });
    }
    for (place, tx) in [(Place::L2In, false), (Place::L2Out, true)] {
        let path = router.l2_onward(filter(tx), tx);
        nodes.push(node(router, place, filter(tx), path, view));
    }
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
