//! The nodes that hand fragments to the worker that joins them: of packets for this router, and features of an interface.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::{ArcPoint, NoNext, Node, NodeCx, Pkt, Snapshot, Verdict};

use super::datagram::Reassembled;
use super::reasons::{Back, Drop, Place};
use super::ring::Peers;
use crate::local::header::Behind;

/// Slot of `ip4-local`, or of the end of a feature's arc.
const ON: Verdict = Verdict::slot(1);

/// What all of them have.
#[derive(Clone)]
pub(super) struct Handoff<F> {
    pub thread: usize,
    pub peers: Snapshot<Peers>,
    pub hasher: RandomState,
    pub family: PhantomData<F>,
}

impl<F: Reassembled> Handoff<F> {
    /// Hands over a fragment that has been trimmed.
    fn hand_over(&self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>, place: Place) -> Verdict {
        cx.count(Drop::Received, 1);
        let Some(name) = F::name(&packet) else { return packet.drop(Drop::Malformed) };
        if name.is_atomic {
            // RFC 6946: on its own, whatever other fragments of the same name there may be.
            return if F::strip_atomic(&mut packet) { ON } else { packet.drop(Drop::Malformed) };
        }
        packet.set_aux(place.aux());
        let (packet, verdict) = packet.take();
        if let Err(packet) = self.peers.get().send(self.thread, self.hasher.hash_one(name.key), packet) {
            cx.drop_packet(packet, Drop::Congestion);
        }
        verdict
    }
}

/// `ip4-local-full-reassembly`.
#[derive(Clone)]
pub(super) struct Local<F> {
    pub handoff: Handoff<F>,
    pub on: Arc<AtomicBool>,
}

impl<F: Reassembled> Node for Local<F> {
    type Next = NoNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.handoff.thread = thread;
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.handoff.peers.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        if !self.on.load(Ordering::Relaxed) {
            return packet.drop(Drop::Off);
        }
        self.handoff.hand_over(cx, packet, Place::Local)
    }
}

/// `ip4-full-reassembly-feature` and `ip4-sv-reassembly-feature`: gives fragments away, and gets back what became of them.
#[derive(Clone)]
pub(super) struct Feature<F> {
    pub handoff: Handoff<F>,
    pub arc: ArcPoint,
    pub place: Place,
}

impl<F: Reassembled> Node for Feature<F> {
    type Next = NoNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.handoff.thread = thread;
    }

    fn begin(&mut self, _cx: &mut NodeCx<'_>) {
        self.handoff.peers.refresh();
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let next = self.arc.next(packet.rx_if(), ON);
        match Back::of(packet.aux()) {
            None => {}
            Some(Back::Drop(reason)) => return packet.drop(reason),
            Some(back) => {
                // Another node of this kind may follow.
                packet.set_aux(0);
                cx.count(Drop::Success, u64::from(back != Back::Pass));
                cx.count(Drop::Reassembled, if let Back::Joined(n) = back { n.into() } else { 1 });
                return next;
            }
        }
        let Some(len) = F::length(&packet) else { return next };
        if F::behind(&packet) != Behind::Fragment {
            return next;
        }
        packet.trim(len);
        // A packet of one fragment is whole: it goes on from here.
        match self.handoff.hand_over(cx, packet, self.place) {
            ON => next,
            verdict => verdict,
        }
    }
}
