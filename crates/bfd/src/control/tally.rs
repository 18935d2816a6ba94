//! What is counted of sessions: kept up to date with each of them, so that nobody looks at all of them to know it.

use std::collections::BTreeSet;
use std::sync::Arc;

use quiver_graph::stats::Scalar;
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use super::{SESSIONS_MAX, THREADS_MAX};
use crate::datagram::Key;

/// Numbers of sessions in the statistics: single-hop and multihop ones, by family.
const GAUGES: [&str; 4] = ["/bfd/udp4/sessions", "/bfd/udp6/sessions", "/bfd/udp4/sessions_mh", "/bfd/udp6/sessions_mh"];

/// The kind of a session, as its place in [`GAUGES`].
fn kind(key: &Key) -> usize {
    FamilyId::of(&key.peer) as usize + if key.is_multihop() { 2 } else { 0 }
}

/// Sessions by kind and by thread, and the numbers that are free.
pub(super) struct Tally {
    kinds: [u64; 4],
    gauges: [Arc<Scalar>; 4],
    threads: [u32; THREADS_MAX],
    free: BTreeSet<u32>,
    /// Numbers below this one were used.
    end: u32,
}

impl Tally {
    /// No sessions. Readers of the statistics find the numbers before there is a session, as in VPP.
    pub fn new(router: &Router) -> Self {
        let gauges = GAUGES.map(|name| router.graph.stats().gauge(name));
        gauges.iter().for_each(|gauge| gauge.set(0));
        Self { kinds: [0; 4], gauges, threads: [0; THREADS_MAX], free: BTreeSet::new(), end: 0 }
    }

    /// The lowest number that no session has, if there can be one more.
    pub fn free_id(&self) -> Option<u32> {
        self.free.first().copied().or_else(|| (self.end < SESSIONS_MAX).then_some(self.end))
    }

    /// A session has come, with the number that was free.
    pub fn add(&mut self, key: &Key, id: u32, owner: usize) {
        if !self.free.remove(&id) {
            self.end = self.end.max(id + 1);
        }
        self.count(key, owner, true);
    }

    /// A session has gone.
    pub fn remove(&mut self, key: &Key, id: u32, owner: usize) {
        self.free.insert(id);
        self.count(key, owner, false);
    }

    /// A session has moved to another thread.
    pub fn moved(&mut self, from: usize, to: usize) {
        self.load(from, false);
        self.load(to, true);
    }

    fn count(&mut self, key: &Key, owner: usize, more: bool) {
        let kind = kind(key);
        let n = &mut self.kinds[kind];
        *n = if more { *n + 1 } else { n.saturating_sub(1) };
        self.gauges[kind].announce(*n);
        self.load(owner, more);
    }

    fn load(&mut self, thread: usize, more: bool) {
        if let Some(n) = self.threads.get_mut(thread) {
            *n = if more { *n + 1 } else { n.saturating_sub(1) };
        }
    }

    /// Whether there is a session of this one's family that is single-hop or multihop as it is.
    pub fn has_like(&self, key: &Key) -> bool {
        self.kinds[kind(key)] != 0
    }

    /// Of some threads, the one with the fewest sessions.
    pub fn idlest(&self, threads: impl IntoIterator<Item = usize>) -> usize {
        threads.into_iter().min_by_key(|thread| self.threads.get(*thread).copied()).unwrap_or(0)
    }
}
