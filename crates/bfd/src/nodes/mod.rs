//! The nodes; see the crate's drawing.

mod input;
mod session;
mod timer;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_graph::{NodeCx, NodeSpec, Published, TraceEntry, drop_reasons, flags, next_nodes};
use quiver_net::Router;
use quiver_net::fib::{Class, LbTable};
use quiver_net::ip::{FamilyId, V4, V6};

use crate::packet::Control;
use crate::thread::{Datagram, Entry, Key, Shared};

/// Names of the nodes that packets come in by.
pub const INPUT: [&str; 2] = ["bfd-udp4-input", "bfd-udp6-input"];
/// Handles packets on the thread that has their session.
const SESSION: &str = "bfd-session";
/// Sends what time calls for.
const TIMER: &str = "bfd-process";

next_nodes! {
    /// Where control packets leave.
    pub enum Next {
        Arp = "ip4-arp",
        Rewrite4 = "ip4-rewrite",
        Discover = "ip6-discover-neighbor",
        Rewrite6 = "ip6-rewrite",
    }
}

drop_reasons! {
    /// What is counted where packets are sent, and why packets are dropped there.
    pub enum Event {
        /// A control packet of a session arrived.
        Received = "control packets received" (info),
        /// A control packet was sent.
        Sent = "control packets sent" (info),
        /// The router has no path to the peer of the session.
        NoPath = "no path to the peer",
        /// The session was removed while its packet was made.
        Gone = "session was removed",
    }
}

/// Which thread has a session.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The thread.
    pub owner: usize,
    /// Where its packets come from.
    pub key: Key,
}

/// All sessions, as input nodes look for them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// By own discriminator.
    pub by_discriminator: HashMap<u32, Place>,
    /// Discriminators, for packets of a peer that does not know it yet.
    pub by_key: HashMap<Key, u32>,
}

/// What nodes are made from.
pub struct Parts {
    /// All sessions.
    pub index: Published<Index>,
    /// Sessions by thread; there are as many as threads can be.
    pub threads: Vec<Shared>,
    /// Packets received and sent, by the session's number.
    pub counters: [Arc<CombinedCounters>; 2],
}

/// Sends a session's packets.
#[derive(Clone)]
struct Sender {
    load_balances: LbTable,
    counters: Arc<CombinedCounters>,
}

impl Sender {
    fn send(&self, cx: &mut NodeCx<'_>, entry: &Entry, control: &Control) {
        let bucket = self.load_balances.get(entry.lb).bucket();
        let next = match (bucket.class(), FamilyId::of(&entry.key.peer)) {
            (Class::Incomplete, FamilyId::V4) => Next::Arp,
            (Class::Rewrite, FamilyId::V4) => Next::Rewrite4,
            (Class::Incomplete, FamilyId::V6) => Next::Discover,
            (Class::Rewrite, FamilyId::V6) => Next::Rewrite6,
            // The interface is down.
            _ => return cx.count(Event::NoPath, 1),
        };
        let datagram = Datagram::new(&entry.key, control);
        let Some(mut packet) = cx.alloc_bytes(datagram.bytes(), entry.key.interface) else { return };
        let mut view = cx.view(&mut packet);
        view.mark(flags::LOCAL);
        view.set_aux(bucket.index());
        cx.emit(next, packet);
        cx.count(Event::Sent, 1);
        self.counters.add(cx.thread(), entry.id, 1, datagram.bytes().len() as u64);
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
    let [received, sent] = parts.counters.clone();
    let sender = Sender { load_balances: router.data.load_balances.clone(), counters: sent };
    let (threads, timers, timer_sender) = (parts.threads.clone(), parts.threads.clone(), sender.clone());
    let session = move |thread: usize| session::Session {
        shared: threads[thread % threads.len()].clone(),
        sender: sender.clone(),
        received: received.clone(),
    };
    let timer = move |thread: usize| timer::Timer { shared: timers[thread % timers.len()].clone(), sender: timer_sender.clone() };
    router.graph.add(vec![
        NodeSpec::vector(SESSION, move |cx| session(cx.thread)).traced(trace),
        NodeSpec::input(TIMER, move |cx| timer(cx.thread)),
        NodeSpec::node(INPUT[0], input::Input::<V4> { index: parts.index.snapshot(), family: PhantomData }).traced(trace),
        NodeSpec::node(INPUT[1], input::Input::<V6> { index: parts.index.snapshot(), family: PhantomData }).traced(trace),
    ])?;
    Ok(())
}
