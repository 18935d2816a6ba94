//! Answers to packets that no route carries on: Destination Unreachable (RFC 1812, 5.2.7.1; RFC 4443, 3.1).
//!
//! The packet itself is dropped where it is, so that counters, traces and captures of drops have it; the answer is made from a
//! copy of its beginning. No copy is made of one that the limit of errors would keep back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quiver_graph::{NodeCx, Pkt, Verdict, flags};

use super::Icmp;
use super::limit::Limiter;
use crate::Router;
use crate::ip::{FamilyId, icmp_aux};

/// What `ip4-drop` and `ip6-drop` answer with.
#[derive(Clone)]
pub(crate) struct NoRoute {
    on: Arc<AtomicBool>,
    limiter: Arc<Limiter>,
    /// Type and code of the answer.
    error: u32,
}

/// Bytes of a packet that an answer is made from: as much as an error of either family quotes.
const QUOTED: usize = 1280;

/// What became of a packet's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// None is due.
    None,
    /// It is on its way.
    Made,
    /// The limit keeps it back.
    Limited,
}

impl NoRoute {
    pub fn of(router: &Router, family: FamilyId) -> Option<Self> {
        let icmp = router.part::<Icmp>()?;
        let (on, limiter) = (icmp.unreachables[family as usize].clone(), icmp.limiters[family as usize].clone());
        // Network unreachable; no route to destination.
        let error = if family == FamilyId::V4 { icmp_aux(3, 0, 0) } else { icmp_aux(1, 0, 0) };
        Some(Self { on, limiter, error })
    }

    /// Answers a packet at its IP header by way of `to`.
    #[cold]
    pub fn answer(&self, cx: &mut NodeCx<'_>, packet: &Pkt<'_>, to: Verdict) -> Answer {
        // Nobody is told of what this router sends itself, or of what was sent to many.
        if !self.on.load(Ordering::Relaxed) || packet.has(flags::LOCAL) || packet.has(flags::LINK_MULTICAST) {
            return Answer::None;
        }
        if !self.limiter.has_room(cx.now()) {
            return Answer::Limited;
        }
        let mut room = [0; QUOTED];
        let len = packet.copy_out(0, &mut room);
        // A buffer that is missing is counted where buffers are.
        let Some(mut copy) = cx.alloc_bytes(room.get(..len).unwrap_or_default(), packet.rx_if()) else { return Answer::None };
        cx.view(&mut copy).set_aux(self.error);
        cx.emit(to, copy);
        Answer::Made
    }
}

impl Router {
    /// Whether packets of a family that no route carries on are answered.
    pub fn answers_no_route(&self, family: FamilyId) -> bool {
        self.part::<Icmp>().is_some_and(|icmp| icmp.unreachables[family as usize].load(Ordering::Relaxed))
    }

    /// Answers them, or no longer; at once.
    pub fn set_answers_no_route(&mut self, family: FamilyId, on: bool) {
        if let Some(icmp) = self.part::<Icmp>() {
            icmp.unreachables[family as usize].store(on, Ordering::Relaxed);
        }
    }
}
