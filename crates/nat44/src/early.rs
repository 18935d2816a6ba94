//! Fragments that come before their datagram's first, which has the ports: they wait for it (RFC 4787, REQ-14).
//!
//! Each node of each thread has a queue of its own, and sends fragments on from there. The queue is bounded by fragments, bytes, time
//! and source. Where a limit is reached, the oldest fragment (of that source, or of all) is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_graph::Packet;

use crate::fragments::{Datagram, Fragments};

/// Fragments that wait at a time, and those of one source.
pub(crate) const HELD_MAX: usize = 256;
pub(crate) const HELD_SOURCE: usize = HELD_MAX / 4;
/// Bytes of them.
const BYTES_MAX: usize = 512 * 1024;
/// How long one waits, seconds: those of a datagram leave their sender together.
pub(crate) const PATIENCE: u32 = 2;

struct Waiting {
    of: Datagram,
    packet: Packet,
    bytes: usize,
    since: u32,
}

/// What one node of a thread holds.
#[derive(Default)]
pub(crate) struct Early {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// First fragments that had been seen when this was last looked through.
    firsts: u64,
}

/// Shared with main, which ends waits; locked on the node's own thread, so that nobody ever waits.
pub(crate) type SharedEarly = Arc<Mutex<Early>>;

/// Locks what a node holds.
pub(crate) fn lock_early(shared: &SharedEarly) -> MutexGuard<'_, Early> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Early {
    /// Holds a fragment; what gives way goes to `out`.
    pub fn hold(&mut self, fragments: &Fragments, of: Datagram, packet: Packet, bytes: usize, now: u32, out: &mut Vec<Packet>) {
        self.waiting.push_back(Waiting { of, packet, bytes, since: now });
        self.bytes += bytes;
        fragments.wait(1);
        let source = of.source();
        let mine = |w: &Waiting| w.of.source() == source;
        if self.waiting.iter().filter(|w| mine(w)).count() > HELD_SOURCE
            && let Some(at) = self.waiting.iter().position(mine)
        {
            out.extend(self.take(fragments, at));
        }
        while self.waiting.len() > HELD_MAX || self.bytes > BYTES_MAX {
            out.extend(self.take(fragments, 0));
        }
    }

    fn take(&mut self, fragments: &Fragments, at: usize) -> Option<Packet> {
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.bytes;
        fragments.wait(-1);
        Some(waiting.packet)
    }

    /// Gives the fragments whose first has been seen, in the order in which they came. Costs nothing where no first one came
    /// since the last call.
    pub fn ready(&mut self, fragments: &Fragments, now: u32, out: &mut Vec<Packet>) {
        let firsts = fragments.firsts();
        if self.waiting.is_empty() || firsts == self.firsts {
            return;
        }
        self.firsts = firsts;
        let mut at = 0;
        while let Some(of) = self.waiting.get(at).map(|w| w.of) {
            match fragments.recall(of, now) {
                Some(_) => out.extend(self.take(fragments, at)),
                None => at += 1,
            }
        }
    }

    /// Gives those that have waited for long enough; all where `now` is none.
    pub fn expire(&mut self, fragments: &Fragments, now: Option<u32>, out: &mut Vec<Packet>) {
        while self.waiting.front().is_some_and(|w| now.is_none_or(|now| now.wrapping_sub(w.since) > PATIENCE)) {
            out.extend(self.take(fragments, 0));
        }
    }
}
