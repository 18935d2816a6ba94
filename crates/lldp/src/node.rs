//! `lldp-input`: checks data units, and puts them into the box of their port, from where the main thread takes them.
//!
//! Each port has a box of its own, so a flood on one takes room from no other; and main empties a box ten times a second at most.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::{
    ArcPoint, FeatureSpec, GraphError, IfIndex, NoNext, Node, NodeCx, NodeSpec, Pkt, Published, Snapshot, TraceEntry, Verdict,
    drop_reasons,
};
use quiver_net::{ProcessSignal, Router};
use quiver_tables::chunks::Chunks;
use quiver_wire::ethernet::{EtherType, EthernetHeader};

use crate::pdu::{GROUPS, UNIT_MAX, Unit};

/// The feature of interfaces with LLDP, and its arc.
pub const FEATURE: (&str, &str) = ("ethernet-unknown", "lldp-input");
/// Units that wait for the main thread, of one port.
pub const BOX: usize = 4;
/// Slot of the end of the arc: declared first.
const END: Verdict = Verdict::slot(1);
/// Bytes of an Ethernet header.
const ETHERNET: usize = size_of::<EthernetHeader>();

drop_reasons! {
    /// What is counted, and why frames are dropped.
    pub enum Event {
        /// A data unit arrived and was passed to the main thread.
        Received = "good lldp packets (processed)" (info),
        /// The data unit ends within a TLV, or does not begin with chassis, port and time to live.
        BadTlv = "lldp packets with bad TLVs",
        /// The data unit is longer than 1,500 bytes.
        TooLong = "data unit longer than 1500 bytes",
        /// The frame is not to one of LLDP's groups.
        NotGroup = "not to a group of lldp",
        /// LLDP was switched off on the interface while the frame was on its way.
        Off = "lldp packets received on disabled interfaces",
        /// Other data units of the port still wait.
        Busy = "more data units than the port takes",
        /// No node handles frames with this EtherType.
        UnknownType = "unknown ethernet type",
    }
}

/// A data unit on its way to the main thread.
pub struct Heard {
    len: u16,
    bytes: [u8; UNIT_MAX],
}

impl Heard {
    /// What stands behind the Ethernet header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What workers have counted of a port (9.2.6), and its box.
pub struct Inbox {
    sender: Sender<Heard>,
    /// Main knows that the box is not empty.
    listed: AtomicBool,
    /// Frames (`statsFramesInTotal`).
    pub frames: AtomicU64,
    /// Of these, thrown away (`statsFramesDiscardedTotal`).
    pub discarded: AtomicU64,
    /// Of these, because they are wrong (`statsFramesInErrorsTotal`).
    pub errors: AtomicU64,
}

impl Inbox {
    /// An empty one, and its other end.
    pub fn new() -> (Arc<Self>, Receiver<Heard>) {
        let (sender, receiver) = bounded(BOX);
        let [frames, discarded, errors] = [0; 3].map(AtomicU64::new);
        (Arc::new(Self { sender, listed: AtomicBool::new(false), frames, discarded, errors }), receiver)
    }

    /// Main is about to empty it: what comes from now on is listed anew.
    pub fn unlist(&self) {
        self.listed.store(false, Ordering::Release);
    }

    fn put(&self, unit: &[u8]) -> bool {
        let mut heard = Heard { len: unit.len() as u16, bytes: [0; UNIT_MAX] };
        heard.bytes[..unit.len()].copy_from_slice(unit);
        self.sender.try_send(heard).is_ok()
    }
}

/// Boxes by interface.
pub type Inboxes = Chunks<Option<Arc<Inbox>>>;

/// The way to the main thread.
#[derive(Clone)]
pub struct Bell {
    /// Interfaces whose box is no longer empty.
    pub sender: Sender<IfIndex>,
    /// Wakes the process.
    pub signal: ProcessSignal,
}

/// The node.
#[derive(Clone)]
pub struct Input {
    inboxes: Snapshot<Inboxes>,
    bell: Bell,
    arc: ArcPoint,
    /// The frame that is looked at.
    bytes: Vec<u8>,
}

impl Input {
    fn take(&mut self, inbox: &Inbox, interface: IfIndex) -> Event {
        let Some((header, unit)) = self.bytes.split_at_checked(ETHERNET) else { return Event::BadTlv };
        if !GROUPS.iter().any(|group| header.starts_with(&group.0)) {
            return Event::NotGroup;
        }
        if Unit::parse(unit).is_err() {
            return Event::BadTlv;
        }
        if unit.len() > UNIT_MAX {
            return Event::TooLong;
        }
        let taken = inbox.put(unit);
        if !inbox.listed.swap(true, Ordering::AcqRel) {
            // Where this list is full the unit waits for the port's next one.
            let listed = self.bell.sender.try_send(interface).is_ok();
            inbox.listed.store(listed, Ordering::Release);
            self.bell.signal.raise();
        }
        if taken { Event::Received } else { Event::Busy }
    }
}

impl Node for Input {
    type Next = NoNext;
    type Drop = Event;
    const CONSUMES: bool = true;

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.inboxes.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let interface = packet.rx_if();
        if packet.head::<EthernetHeader>().ether_type() != EtherType::LLDP {
            return match self.arc.next(interface, END) {
                END => packet.drop(Event::UnknownType),
                next => next,
            };
        }
        let Some(Some(inbox)) = self.inboxes.get().get(interface.0 as usize).cloned() else { return packet.drop(Event::Off) };
        inbox.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.clear();
        packet.for_each_segment(|part| self.bytes.extend_from_slice(part));
        let event = self.take(&inbox, interface);
        if event == Event::Received {
            cx.count(event, 1);
            let (packet, taken) = packet.take();
            cx.free(packet);
            return taken;
        }
        inbox.discarded.fetch_add(1, Ordering::Relaxed);
        if matches!(event, Event::BadTlv | Event::TooLong) {
            inbox.errors.fetch_add(1, Ordering::Relaxed);
        }
        packet.drop(event)
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "lldp: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares the node and its feature.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, inboxes: &Published<Inboxes>, bell: Bell) -> Result<(), GraphError> {
    let arc = ArcPoint::new();
    let input = Input { inboxes: inboxes.snapshot(), bell, arc: arc.clone(), bytes: Vec::new() };
    router.graph.add(vec![NodeSpec::node(FEATURE.1, input).with_next("null-node").on_arc(FEATURE.0, arc).traced(trace)])?;
    // Where the router speaks LLDP on an interface, Linux does not.
    let before = vec!["linux-cp-punt-ethernet"];
    router.graph.add_features(vec![FeatureSpec { arc: FEATURE.0, node: FEATURE.1.into(), before, after: Vec::new() }])
}
