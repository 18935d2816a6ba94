//! Echo packets (RFC 5880, 6.4): `bfd-udp-echo4-input` and `bfd-udp-echo6-input` find out whose they are, `bfd-echo` tells a session that one
//! of its own has come back.
//!
//! The router sends echo packets whose destination is the router itself, so that the peer's forwarding returns them; what a peer
//! sends in that way (FRR's `bfdd`: with IPv4) the router forwards like any packet and sees nothing of here. Peers may send theirs to the
//! router's address instead: those are returned with addresses exchanged, if a session is configured with the sender.

use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{Frame, NoNext, Node, NodeCx, Pkt, VectorNode, Verdict, drop_reasons, flags, next_nodes};
use quiver_net::fib::LbTable;

use super::input::{InputFamily, udp};
use super::next_hop;
use crate::datagram::{Key, TTL};
use crate::index::IndexReader;
use crate::packet::Echo;
use crate::thread::Shared;

next_nodes! {
    /// Where echo packets go: own ones to the thread that has the session, others back.
    pub enum Next {
        Arp = "ip4-arp",
        Rewrite4 = "ip4-rewrite",
        Discover = "ip6-discover-neighbor",
        Rewrite6 = "ip6-rewrite",
        Echo = "bfd-echo",
    }
}

drop_reasons! {
    /// What is counted, and why packets are dropped.
    pub enum Drop {
        /// An echo packet of a peer was sent back.
        Returned = "echo packets returned" (info),
        /// The packet ends before its length fields say.
        Length = "shorter than its length fields say",
        /// The TTL or hop limit is not 255: the packet was forwarded by a router, or has been returned once.
        Ttl = "TTL or hop limit is not 255",
        /// The router has no session with the sender, and has not sent the packet itself.
        UnknownPeer = "no session with this peer",
        /// The router has no path to the peer of the session.
        NoPath = "no path to the peer",
        /// The queue to the thread that has the session is full.
        Congestion = "handoff congestion drop",
    }
}

/// The input node. Packets come from `ip4-udp-lookup`.
#[derive(Clone)]
pub struct EchoInput<F> {
    pub(super) index: IndexReader,
    pub(super) load_balances: LbTable,
    pub(super) proofs: RandomState,
    pub(super) family: PhantomData<F>,
}

impl<F: InputFamily> EchoInput<F> {
    /// The thread that has the session of an own packet.
    fn owner(&self, data: &[u8]) -> Option<(u32, usize)> {
        let echo = Echo::parse(data)?;
        let owner = self.index.owner(echo.discriminator)?;
        (echo.proof == self.proofs.hash_one((echo.discriminator, echo.sent))).then_some((echo.discriminator, owner))
    }

    fn back(&self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let (ttl, src, dst) = F::header(&packet);
        let Some(lb) = self.index.next_hop(&Key::on(packet.rx_if(), dst, src)) else { return packet.drop(Drop::UnknownPeer) };
        if ttl != TTL {
            return packet.drop(Drop::Ttl);
        }
        let bucket = self.load_balances.get(lb).bucket();
        let next = next_hop(bucket.class(), F::ID, [Next::Arp, Next::Rewrite4, Next::Discover, Next::Rewrite6]);
        let Some(next) = next else { return packet.drop(Drop::NoPath) };
        F::turn(&mut packet);
        packet.mark(flags::LOCAL);
        packet.set_aux(bucket.index());
        cx.count(Drop::Returned, 1);
        next.into()
    }
}

impl<F: InputFamily> Node for EchoInput<F> {
    type Next = Next;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn packet(&mut self, cx: &mut NodeCx<'_>, mut packet: Pkt<'_>) -> Verdict {
        let Some((_, start, data)) = udp(&packet) else { return packet.drop(Drop::Length) };
        let Some((discriminator, owner)) = self.owner(data) else { return self.back(cx, packet) };
        if !packet.pull(start) {
            return packet.drop(Drop::Length);
        }
        packet.trim(Echo::LEN);
        packet.set_aux(discriminator);
        cx.hand_over(owner, Next::Echo, packet, Drop::Congestion)
    }
}

drop_reasons! {
    /// What is counted of own echo packets, and why they are dropped.
    pub enum Event {
        /// An own echo packet has come back.
        Received = "echo packets received" (info),
        /// The session was removed meanwhile.
        Gone = "session was removed",
    }
}

/// `bfd-echo`. Data begins at the echo packet; the aux lane has the session's discriminator.
pub struct Echoed {
    pub(super) shared: Shared,
    pub(super) received: Arc<CombinedCounters>,
}

impl VectorNode for Echoed {
    type Next = NoNext;
    type Drop = Event;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        cx.trace_here(frame);
        let now = cx.now();
        let mut sessions = self.shared.lock();
        let mut taken = 0;
        for i in 0..frame.len() {
            let mut packet = cx.packet(frame, i);
            let (discriminator, echo) = (packet.aux(), Echo::parse(packet.bytes()));
            let (Some(echo), Some(entry)) = (echo, sessions.get_mut(discriminator)) else {
                let verdict = packet.drop(Event::Gone);
                cx.decide(i, verdict);
                continue;
            };
            entry.session.echo_returned(echo.sent, now);
            taken += 1;
            self.received.add(cx.thread(), entry.id, 1, packet.total_len() as u64);
            let (packet, verdict) = packet.take();
            cx.free(packet);
            cx.decide(i, verdict);
            sessions.settle(discriminator);
        }
        cx.count(Event::Received, taken);
    }
}
