//! What a thread has to send, and the node that sends it.

use std::collections::VecDeque;

use quiver_graph::{Idle, InputNode, NodeCx, NodeSpec, drop_reasons};

use super::{Lookup, UdpPath};
use crate::{Due, Timed};

/// Datagrams that wait at most; the thread sends them in its next poll iterations.
const READY_MAX: usize = 256;
/// Datagrams whose memory is kept for later ones.
const SPARE_MAX: usize = 8;
/// Datagrams sent in one poll iteration.
const BURST: usize = 16;

/// A datagram that waits.
#[derive(Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its data.
    pub data: Vec<u8>,
    /// How many items (records, samples) are in it.
    pub items: u32,
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Handed to the lookup.
    pub sent: u64,
    /// Lost: too many waited, or buffers had run out.
    pub lost: u64,
    /// Items in those that were lost.
    pub lost_items: u64,
}

/// Datagrams that wait to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    ready: VecDeque<Ready>,
    spare: Vec<Vec<u8>>,
    totals: Totals,
}

impl Outbox {
    /// Appends one; it is lost where too many wait.
    pub fn push(&mut self, ready: Ready) {
        if self.ready.len() < READY_MAX {
            self.ready.push_back(ready);
        } else {
            self.lost(1, ready.items);
        }
    }

    /// Counts what is lost.
    pub fn lost(&mut self, datagrams: u64, items: u32) {
        self.totals.lost += datagrams;
        self.totals.lost_items += u64::from(items);
    }

    /// Loses all that waits.
    pub fn clear(&mut self) {
        while let Some(ready) = self.ready.pop_front() {
            self.lost(1, ready.items);
        }
    }

    /// Takes the next one out; give its memory back by [`keep`](Self::keep).
    pub fn pop(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// Keeps the memory of a datagram.
    pub fn keep(&mut self, data: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(data);
        }
    }

    /// Memory for a datagram, kept from an earlier one where there is any.
    pub fn room(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// What became of datagrams.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// What a thread sends: something with due times, as [`Timed`] has it, and an outbox.
pub trait Sends: Due + Send + 'static {
    /// Does what is due.
    fn tick(&mut self, now: u64);

    /// Where datagrams go, and those that wait.
    fn outbox(&mut self) -> (Option<UdpPath>, &mut Outbox);
}

drop_reasons! {
    /// What is counted where datagrams are sent.
    pub enum Event {
        /// A datagram left for the lookup.
        Sent = "datagrams sent" (info),
        /// Buffers had run out: the datagram is lost.
        NoBuffer = "datagrams lost: no buffers",
    }
}

fn send<T: Sends>(cx: &mut NodeCx<'_>, of: &mut T, packet: &mut Vec<u8>, most: usize) -> usize {
    let (path, outbox) = of.outbox();
    let Some(path) = path else { return 0 };
    let mut sent = 0;
    while sent < most {
        let Some(ready) = outbox.pop() else { break };
        if path.send(cx, &ready.data, packet) {
            outbox.totals.sent += 1;
            cx.count(Event::Sent, 1);
        } else {
            outbox.lost(1, ready.items);
            cx.count(Event::NoBuffer, 1);
        }
        outbox.keep(ready.data);
        sent += 1;
    }
    sent
}

/// Sends all that a thread has, on that thread, at its [`sender`].
pub fn send_all<T: Sends>(cx: &mut NodeCx<'_>, shared: &Timed<T>) {
    send(cx, &mut *shared.lock(), &mut Vec::new(), usize::MAX);
}

/// The node that sends what threads have; there are as many of these as threads can be. It is an input node, so that its thread looks at the
/// time in each poll iteration, and wakes up for it.
pub fn sender<T: Sends>(name: &str, threads: &[Timed<T>]) -> NodeSpec {
    let threads = threads.to_vec();
    NodeSpec::input(name, move |cx| Sender { shared: threads[cx.thread % threads.len()].clone(), packet: Vec::new() })
}

struct Sender<T: Sends> {
    shared: Timed<T>,
    /// Room for a packet.
    packet: Vec<u8>,
}

impl<T: Sends> InputNode for Sender<T> {
    type Next = Lookup;
    type Drop = Event;

    fn idle(&self) -> bool {
        self.shared.due() == u64::MAX
    }

    fn poll(&mut self, cx: &mut NodeCx<'_>) -> usize {
        let now = cx.now();
        if now < self.shared.due() {
            return 0;
        }
        let mut of = self.shared.lock();
        of.tick(now);
        send(cx, &mut *of, &mut self.packet, BURST)
    }

    fn arm(&mut self, now: u64) -> Idle {
        match self.shared.due() {
            u64::MAX => Idle::Sleep { until: None },
            due if due <= now => Idle::Busy,
            due => Idle::Sleep { until: Some(due) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_and_counted() {
        let mut outbox = Outbox::default();
        (0..READY_MAX + 3).for_each(|_| outbox.push(Ready { data: vec![1], items: 2 }));
        assert_eq!(outbox.totals(), &Totals { sent: 0, lost: 3, lost_items: 6 });
        assert!(outbox.pop().is_some());
        outbox.clear();
        assert_eq!(outbox.totals().lost_items, 6 + 2 * (READY_MAX as u64 - 1));
        assert!(outbox.is_empty() && outbox.pop().is_none());
    }
}
