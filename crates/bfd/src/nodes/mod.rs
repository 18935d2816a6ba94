//! The nodes; see the crate's drawing.

mod echo;
mod input;
mod session;
mod timer;

use std::fmt::Write as _;
use std::hash::RandomState;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{NodeCx, NodeSpec, TraceEntry, drop_reasons, flags, next_nodes};
use quiver_net::fib::{Class, LbTable};
use quiver_net::ip::{FamilyId, V4, V6};
use quiver_net::{IfIndex, Router};

use crate::auth::Refused;
use crate::datagram::Datagram;
use crate::index::Index;
use crate::thread::{Entry, Path, Shared};

/// Names of the nodes that control packets come in by.
pub const INPUT: [&str; 2] = ["bfd-udp4-input", "bfd-udp6-input"];
/// Names of the nodes that echo packets come in by.
pub const ECHO_INPUT: [&str; 2] = ["bfd-udp-echo4-input", "bfd-udp-echo6-input"];
/// Handles packets on the thread that has their session.
const SESSION: &str = "bfd-session";
/// The same for echo packets.
const ECHO: &str = "bfd-echo";
/// Sends what time calls for.
const TIMER: &str = "bfd-process";

next_nodes! {
    /// Where control packets leave.
    pub enum Next {
        Arp = "ip4-arp",
        Rewrite4 = "ip4-rewrite",
        Discover = "ip6-discover-neighbor",
        Rewrite6 = "ip6-rewrite",
        Lookup4 = "ip4-lookup",
        Lookup6 = "ip6-lookup",
    }
}

drop_reasons! {
    /// What is counted where packets are sent, and why packets are dropped there.
    pub enum Event {
        /// A control packet of a session arrived.
        Received = "control packets received" (info),
        /// A control packet was sent.
        Sent = "control packets sent" (info),
        /// A control packet was sent more than a tenth of its interval after its time: the thread did not come round.
        Late = "control packets sent late" (info),
        /// An echo packet was sent.
        EchoSent = "echo packets sent" (info),
        /// The router has no path to the peer of the session.
        NoPath = "no path to the peer",
        /// The session was removed while its packet was made.
        Gone = "session was removed",
        /// The packet is authenticated, and the session is not.
        Authenticated = "authenticated, the session is not",
        /// The packet is not authenticated, and the session is.
        Unauthenticated = "not authenticated, the session is",
        /// The packet's authentication type is not that of the session's key.
        AuthType = "other authentication type",
        /// The packet's key ID is not the session's.
        AuthKeyId = "other authentication key ID",
        /// The authentication section does not have the length that its type has.
        AuthLength = "authentication section has a wrong length",
        /// The packet's sequence number is that of an older packet, or too far ahead.
        AuthSequence = "sequence number outside of the window",
        /// The packet's digest or password is wrong: another key, or a changed packet.
        AuthDigest = "wrong digest or password",
    }
}

impl From<Refused> for Event {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unexpected => Self::Authenticated,
            Refused::Missing => Self::Unauthenticated,
            Refused::Kind => Self::AuthType,
            Refused::KeyId => Self::AuthKeyId,
            Refused::Length => Self::AuthLength,
            Refused::Sequence => Self::AuthSequence,
            Refused::Digest => Self::AuthDigest,
        }
    }
}

/// Packets and bytes by the session's number.
#[derive(Clone)]
pub struct Counters {
    /// Control packets received.
    pub received: Arc<CombinedCounters>,
    /// Control packets sent.
    pub sent: Arc<CombinedCounters>,
    /// Own echo packets that have come back.
    pub echo_received: Arc<CombinedCounters>,
    /// Echo packets sent.
    pub echo_sent: Arc<CombinedCounters>,
}

impl Counters {
    /// All of them.
    pub fn all(&self) -> [&Arc<CombinedCounters>; 4] {
        [&self.received, &self.sent, &self.echo_received, &self.echo_sent]
    }

    /// Begins to count for a session: a number that was used before begins at zero again.
    pub fn begin(&self, router: &mut Router, id: u32) {
        if self.all().iter().any(|counters| id < counters.len()) {
            let of = self.clone();
            router.graph.each_row(move |row| of.all().iter().for_each(|counters| counters.clear_index_thread(row, id)));
        }
        self.all().iter().for_each(|counters| counters.set_len(counters.len().max(id + 1)));
    }
}

/// What nodes are made from.
pub struct Parts {
    /// All sessions.
    pub index: Index,
    /// Sessions by thread; there are as many as threads can be.
    pub threads: Vec<Shared>,
    /// What is counted by session.
    pub counters: Counters,
    /// TOS and traffic class of packets sent.
    pub tos: Arc<AtomicU8>,
    /// Key of the proofs in echo packets.
    pub proofs: RandomState,
}

/// Of the next nodes for ARP, IPv4, neighbour discovery and IPv6, the one of a bucket that leads to a neighbour.
fn next_hop<N: Copy>(class: Class, family: FamilyId, nodes: [N; 4]) -> Option<N> {
    let at = match class {
        Class::Incomplete => 0,
        Class::Rewrite => 1,
        // The interface is down.
        _ => return None,
    };
    nodes.get(at + 2 * (family as usize)).copied()
}

/// Sends a session's packets.
#[derive(Clone)]
struct Sender {
    load_balances: LbTable,
    counters: Counters,
    tos: Arc<AtomicU8>,
}

impl Sender {
    fn tos(&self) -> u8 {
        self.tos.load(Ordering::Relaxed)
    }

    /// Sends a control packet, if there is a way.
    fn control(&self, cx: &mut NodeCx<'_>, entry: &mut Entry, is_final: bool) {
        let packet = entry.send(is_final, cx.now());
        let datagram = Datagram::control(&entry.key, entry.session.discriminator(), &packet, self.tos());
        if self.transmit(cx, entry, &datagram) {
            cx.count(Event::Sent, 1);
            self.counters.sent.add(cx.thread(), entry.id, 1, datagram.bytes().len() as u64);
        }
    }

    /// Sends an echo packet.
    fn echo(&self, cx: &mut NodeCx<'_>, entry: &Entry, datagram: &Datagram) {
        if self.transmit(cx, entry, datagram) {
            cx.count(Event::EchoSent, 1);
            self.counters.echo_sent.add(cx.thread(), entry.id, 1, datagram.bytes().len() as u64);
        }
    }

    fn transmit(&self, cx: &mut NodeCx<'_>, entry: &Entry, datagram: &Datagram) -> bool {
        let family = FamilyId::of(&entry.key.peer);
        let (next, interface, aux, table) = match entry.path {
            Path::Neighbor(lb) => {
                let bucket = self.load_balances.get(lb).bucket();
                let nodes = [Next::Arp, Next::Rewrite4, Next::Discover, Next::Rewrite6];
                let Some(next) = next_hop(bucket.class(), family, nodes) else {
                    cx.count(Event::NoPath, 1);
                    return false;
                };
                (next, entry.key.interface, bucket.index(), None)
            }
            Path::Routes(fib) => {
                let next = if family == FamilyId::V4 { Next::Lookup4 } else { Next::Lookup6 };
                (next, IfIndex::LOCAL0, 0, Some(fib))
            }
        };
        let Some(mut packet) = cx.alloc_bytes(datagram.bytes(), interface) else { return false };
        let mut view = cx.view(&mut packet);
        view.mark(flags::LOCAL);
        view.set_aux(aux);
        if let Some(fib) = table {
            view.set_table(fib);
        }
        cx.emit(next, packet);
        true
    }
}

fn trace(entry: &TraceEntry, out: &mut String) {
    let _ = write!(out, "BFD: sw_if_index {}, {} bytes", entry.rx_if, entry.len);
}

/// Declares the nodes.
///
/// # Errors
/// The graph's.
pub fn declare(router: &mut Router, parts: &Parts) -> Result<(), quiver_graph::GraphError> {
    let counters = parts.counters.clone();
    let sender = Sender { load_balances: router.data.load_balances.clone(), counters: counters.clone(), tos: parts.tos.clone() };
    let threads = parts.threads.clone();
    let of_thread = move |thread: usize| threads[thread % threads.len()].clone();
    let (of_session, of_timer, timer_sender) = (of_thread.clone(), of_thread.clone(), sender.clone());
    let received = counters.received;
    let session =
        move |thread: usize| session::Session { shared: of_session(thread), sender: sender.clone(), received: received.clone() };
    let timer = move |thread: usize| timer::Timer { shared: of_timer(thread), sender: timer_sender.clone() };
    let echo_received = counters.echo_received;
    let echoed = move |thread: usize| echo::Echoed { shared: of_thread(thread), received: echo_received.clone() };
    let [input4, input6] = INPUT;
    let [echo4, echo6] = ECHO_INPUT;
    router.graph.add(vec![
        NodeSpec::vector(SESSION, move |cx| session(cx.thread)).traced(trace),
        NodeSpec::vector(ECHO, move |cx| echoed(cx.thread)).traced(trace),
        NodeSpec::input(TIMER, move |cx| timer(cx.thread)),
        NodeSpec::node(input4, input_node::<V4>(router, parts)).traced(trace),
        NodeSpec::node(input6, input_node::<V6>(router, parts)).traced(trace),
        NodeSpec::node(echo4, echo_node::<V4>(router, parts)).traced(trace),
        NodeSpec::node(echo6, echo_node::<V6>(router, parts)).traced(trace),
    ])?;
    Ok(())
}

fn input_node<F>(router: &Router, parts: &Parts) -> input::Input<F> {
    input::Input { index: parts.index.reader(), interfaces: router.data.interfaces.clone(), family: PhantomData }
}

fn echo_node<F>(router: &Router, parts: &Parts) -> echo::EchoInput<F> {
    echo::EchoInput {
        index: parts.index.reader(),
        load_balances: router.data.load_balances.clone(),
        proofs: parts.proofs.clone(),
        family: PhantomData,
    }
}
