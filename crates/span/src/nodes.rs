//! `span-input`, `span-output`, `span-l2-input`, `span-l2-output`: copy frames, and let them go on.

use std::fmt::Write as _;

use quiver_graph::{
    ArcPoint, FeatureSpec, GraphError, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Shared, Snapshot, TraceEntry,
    Verdict, drop_reasons, flags,
};
use quiver_net::Router;
use quiver_net::l2::Onward;

use crate::mirrors::{Mirrors, Place};

drop_reasons! {
    /// What is counted.
    pub enum Event {
        /// A frame was copied to a destination.
        Copied = "SPAN copies sent" (info),
        /// No packet buffer was free for a copy.
        ///
        /// Causes: the buffer pool is exhausted: each copy takes a buffer until it has left.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf, or mirror less.
        /// See: `show buffers`, `show interface span`.
        NoBuffer = "no buffer for a SPAN copy",
        /// The interface is not of layer 2 any more.
        Gone = "interface left layer 2",
    }
}

/// Slot of the end of an arc.
const END: Verdict = Verdict::slot(1);
/// The last scratch word of a copy. Copies enter the graph at an output node, where no other plugin uses the words.
const COPY: u32 = 0x5350_414e;
/// Its place.
const WORD: usize = 8;

/// The node.
#[derive(Clone)]
struct Span {
    place: Place,
    mirrors: Snapshot<Mirrors>,
    path: Onward,
    /// The frame being copied.
    bytes: Vec<u8>,
    copied: u64,
}

impl Span {
    /// Sends copies of a frame.
    #[inline(never)]
    fn mirror(&mut self, cx: &mut NodeCx<'_>, packet: &Pkt<'_, Shared>, interface: IfIndex) {
        let Some(legs) = self.mirrors.get().get(&interface) else { return };
        if packet.scratch()[WORD] == COPY {
            return;
        }
        self.bytes.resize(packet.total_len(), 0);
        let len = packet.copy_out(0, &mut self.bytes);
        let bytes = self.bytes.get(..len).unwrap_or_default();
        let (partial, context) = (packet.unfinished_checksum(), packet.context() & (flags::LINK_MULTICAST | flags::LOCAL));
        for leg in legs {
            let Some(mut copy) = cx.alloc_bytes(bytes, packet.rx_if()) else {
                cx.count(Event::NoBuffer, 1);
                continue;
            };
            let mut view = cx.view(&mut copy);
            let mut words = [0; 9];
            words[WORD] = COPY;
            view.set_scratch(words);
            view.mark(context);
            view.set_aux(leg.interface.0);
            if let Some((start, offset)) = partial {
                view.set_unfinished_checksum(start, offset);
            }
            cx.emit(leg.slot, copy);
            self.copied += 1;
        }
    }
}

impl Node<Shared> for Span {
    type Next = NoNext;
    type Drop = Event;
    /// Devices leave frames where no node has met them yet.
    const PREFETCH: u8 = 8;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.mirrors.refresh();
        self.path.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_, Shared>) -> Verdict {
        let interface = if self.place.is_tx() { IfIndex(packet.aux()) } else { packet.rx_if() };
        let Some(next) = self.path.next(interface) else { return packet.drop(Event::Gone) };
        self.mirror(cx, &packet, interface);
        next
    }

    fn end(&mut self, cx: &mut NodeCx<'_>) {
        let copied = std::mem::take(&mut self.copied);
        if copied > 0 {
            cx.count(Event::Copied, copied);
        }
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "SPAN: mirrored sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares nodes and features. `mirrors`: of each place.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, mirrors: &[(Place, Published<Mirrors>)]) -> Result<(), GraphError> {
    let (mut nodes, mut features) = (Vec::new(), Vec::new());
    for (place, mirrors) in mirrors {
        let point = ArcPoint::new();
        let path = match place.arc() {
            Some(_) => Onward::arc(point.clone(), END),
            None => router.l2_onward(place.node(), place.is_tx()),
        };
        let node = Span { place: *place, mirrors: mirrors.snapshot(), path, bytes: Vec::new(), copied: 0 };
        let spec = NodeSpec::node(place.node(), node).traced(trace);
        let Some(arc) = place.arc() else {
            nodes.push(spec);
            continue;
        };
        let end = if place.is_tx() { "interface-output-end" } else { "ethernet-input" };
        nodes.push(spec.with_next(end).on_arc(arc, point));
        // Frames of a bond's member are seen before they become the bond's.
        let before = if place.is_tx() { Vec::new() } else { vec!["bond-input"] };
        features.push(FeatureSpec { arc, node: place.node().into(), before, after: Vec::new() });
    }
    router.graph.add(nodes)?;
    router.graph.add_features(features)
}
