//! Threads that share the work, and sessions that move between them while packets flow.
//!
//! Nobody stops. Sessions are copied to the threads that are to have them; then the nodes hear of the new order; when all threads have
//! heard, the threads that had them let them go. What a thread has begun or seen meanwhile follows with that. So a packet finds its
//! session before, on the way and after. A session that begins while others are copied may lose the answer that comes in that moment.

use std::collections::HashSet;
use std::sync::Arc;

use quiver_net::{Router, WorkerEvent};

use super::{Nat, NatError, enabled, seconds};
use crate::moved::Moved;
use crate::session::{Key, Session};
use crate::thread::{ThreadNat, lock};

/// Sessions that a thread copies or takes in one go: some 50 µs.
const STEP: u32 = 1024;
/// Turns of all threads in which what was handed over before has come.
const TURNS: usize = 3;
/// Seconds between looks for sessions that have moved and ended since.
const PRUNE: u32 = 16;

impl Nat {
    /// Threads that are to have sessions: those that the user has chosen, as far as they are there and stay.
    pub(super) fn chosen(&self, router: &mut Router, leaving: Option<usize>) -> Vec<usize> {
        let stays = |thread: &usize| leaving != Some(*thread);
        let all: Vec<usize> = router.graph.fleet().threads().into_iter().filter(stays).collect();
        let workers = router.graph.fleet().worker_threads();
        let chosen = self.workers.iter().flatten().filter_map(|n| workers.get(*n).copied());
        let chosen: Vec<usize> = chosen.filter(|thread| all.contains(thread)).collect();
        if chosen.is_empty() { all } else { chosen }
    }

    /// Spreads work over other threads; their sessions go with it.
    pub(super) fn respread(&mut self, router: &mut Router, sessions: u32, leaving: Option<usize>) -> Result<(), NatError> {
        let (old, new) = (self.config.threads.clone(), self.chosen(router, leaving));
        self.fleet = router.graph.fleet().threads();
        self.fleet.retain(|thread| leaving != Some(*thread));
        if old != new {
            let (now, seed) = (seconds(router), router.graph.clock().ticks());
            for thread in new.iter().filter(|thread| !old.contains(thread)) {
                let state = ThreadNat::new(sessions, seed_of(seed, *thread), now).map_err(|_| NatError::Memory)?;
                self.put_state(router, *thread, Some(state));
            }
            let copied: Vec<(usize, Session)> =
                old.iter().flat_map(|thread| self.copies(router, *thread).into_iter().map(|session| (*thread, session))).collect();
            let mut all: Vec<Session> = copied.iter().map(|(_, session)| *session).collect();
            self.config.threads = new.clone();
            self.find_moved(&all);
            self.feed_log(router);
            let mut lost = self.place(router, &copied);
            if self.fleet.len() > 1 {
                self.switch_all(router)?;
            }
            self.publish_sides();
            for _ in 0..TURNS {
                router.graph.fleet().each(|_| ());
            }
            let late = self.let_go(router, &old);
            let known: HashSet<Key> = all.iter().map(|session| session.i2o).collect();
            let begun: Vec<Session> = late.iter().map(|(_, session)| *session).filter(|s| !known.contains(&s.i2o)).collect();
            if !begun.is_empty() {
                all.extend(begun);
                self.find_moved(&all);
                self.publish_sides();
            }
            lost += self.place(router, &late);
            if lost > 0 {
                tracing::warn!(target: "nat44", "threads have changed: {lost} sessions end, their new threads have no room");
            }
            for thread in old.iter().filter(|thread| !new.contains(thread)) {
                self.put_state(router, *thread, None);
            }
            tracing::info!(target: "nat44", "threads have changed: {} sessions go on", all.len());
        }
        self.switch_all(router)
    }

    /// Moves sessions that other threads are to have since mappings have changed.
    pub(super) fn relocate(&mut self, router: &mut Router) {
        let threads = self.config.threads.clone();
        if threads.len() < 2 {
            return;
        }
        let all: Vec<Session> = threads.iter().flat_map(|thread| self.copies(router, *thread)).collect();
        self.find_moved(&all);
        self.publish_sides();
        let others = self.let_go(router, &threads);
        self.place(router, &others);
    }

    fn switch_all(&self, router: &mut Router) -> Result<(), NatError> {
        self.sides.iter().try_for_each(|(index, (side, _))| self.switch(router, *index, *side))
    }

    /// Gives a thread its state, on that thread, which alone locks it.
    pub(super) fn put_state(&mut self, router: &mut Router, thread: usize, state: Option<ThreadNat>) {
        match &state {
            Some(state) => drop(self.ahead.insert(thread, state.sessions.ahead())),
            None => drop(self.ahead.remove(&thread)),
        }
        let Some(shared) = self.parts.threads.get(thread).cloned() else { return };
        if router.graph.fleet().threads().contains(&thread) {
            let [counters, _] = self.parts.counters.clone();
            router.graph.fleet().on(thread, move |_| {
                counters.sessions(thread, state.as_ref().map_or(0, |nat| nat.sessions.len().into()));
                *lock(&shared) = state;
            });
        } else {
            *lock(&shared) = state;
        }
    }

    fn at_thread<R: Send + 'static>(
        &self,
        router: &mut Router,
        thread: usize,
        f: impl FnOnce(&mut ThreadNat) -> R + Send + 'static,
    ) -> Option<R> {
        let shared = self.parts.threads.get(thread)?.clone();
        router.graph.fleet().on(thread, move |_| lock(&shared).as_mut().map(f)).flatten()
    }

    /// Copies of a thread's sessions.
    fn copies(&self, router: &mut Router, thread: usize) -> Vec<Session> {
        let (mut all, mut from) = (Vec::new(), 0_u32);
        loop {
            let some = self.at_thread(router, thread, move |nat| {
                let end = nat.sessions.end();
                let ids = from..from.saturating_add(STEP).min(end);
                (ids.filter_map(|id| nat.sessions.get(id)).collect::<Vec<_>>(), end)
            });
            let Some((sessions, end)) = some else { return all };
            all.extend(sessions);
            from = from.saturating_add(STEP);
            if from >= end {
                return all;
            }
        }
    }

    /// Notes which of these sessions the rules do not find.
    fn find_moved(&mut self, sessions: &[Session]) {
        self.config.moved = Arc::default();
        self.config.moved = Arc::new(Moved::of(&self.config, sessions));
    }

    /// Gives sessions that are on these threads to those that are to have them. Gives how many had no room.
    fn place(&self, router: &mut Router, sessions: &[(usize, Session)]) -> u64 {
        let threads = &self.config.threads;
        let mut by_position = vec![Vec::new(); threads.len()];
        for (from, session) in sessions {
            let position = self.config.owner_of_session(session);
            if threads.get(position).is_some_and(|to| to != from)
                && let Some(list) = by_position.get_mut(position)
            {
                list.push(*session);
            }
        }
        let mut lost = 0;
        for (thread, list) in threads.iter().zip(by_position) {
            for some in list.chunks(STEP as usize) {
                let (some, config) = (some.to_vec(), self.config.clone());
                lost += self.at_thread(router, *thread, move |nat| nat.take_over(&config, &some)).unwrap_or(0);
            }
        }
        lost
    }

    /// Has threads let sessions go that are others' now.
    fn let_go(&self, router: &mut Router, old: &[usize]) -> Vec<(usize, Session)> {
        let mut all = Vec::new();
        for thread in old {
            let own = self.config.threads.iter().position(|t| t == thread);
            let mut from = 0_u32;
            loop {
                let config = self.config.clone();
                let some = self.at_thread(router, *thread, move |nat| {
                    let is_mine = |session: &Session| own == Some(config.owner_of_session(session));
                    (nat.let_go(from, from.saturating_add(STEP), is_mine), nat.sessions.end())
                });
                let Some((sessions, end)) = some else { break };
                all.extend(sessions.into_iter().map(|session| (*thread, session)));
                from = from.saturating_add(STEP);
                if from >= end {
                    break;
                }
            }
        }
        all
    }

    /// Takes up the sessions of the process before this one: each goes to the thread that is to have it. Gives their number.
    pub(crate) fn take_up(&mut self, router: &mut Router, sessions: &[Session], ends: bool) -> u64 {
        self.find_moved(sessions);
        self.publish_sides();
        let mut by_position = vec![Vec::new(); self.config.threads.len()];
        for session in sessions {
            if let Some(list) = by_position.get_mut(self.config.owner_of_session(session)) {
                list.push(*session);
            }
        }
        let mut n = 0;
        for (thread, list) in self.config.threads.iter().zip(by_position) {
            let config = self.config.clone();
            n += self.at_thread(router, *thread, move |nat| nat.adopt(&config, &list, ends)).unwrap_or(0);
        }
        n
    }

    /// Forgets where sessions have moved that have ended since.
    pub(crate) fn prune_moved(&mut self, router: &mut Router, second: u32) {
        if self.config.moved.is_empty() || !second.is_multiple_of(PRUNE) {
            return;
        }
        let mut ended = Vec::new();
        for (position, thread) in self.config.threads.iter().enumerate() {
            for keys in self.config.moved.keys_at(position).chunks(STEP as usize) {
                let mut keys = keys.to_vec();
                let gone = self.at_thread(router, *thread, move |nat| {
                    keys.retain(|key| nat.sessions.find(*key).is_none());
                    keys
                });
                ended.extend(gone.unwrap_or_default());
            }
        }
        if !ended.is_empty() {
            let mut moved = Moved::clone(&self.config.moved);
            moved.forget(&ended);
            self.config.moved = Arc::new(moved);
            self.publish_sides();
        }
    }
}

/// A seed of a thread's own.
pub(super) fn seed_of(seed: u64, thread: usize) -> u64 {
    seed.rotate_left(thread as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Follows threads that join and leave.
pub(crate) fn on_workers(router: &mut Router, event: &WorkerEvent) {
    let leaving = match *event {
        WorkerEvent::Joined(_) => None,
        WorkerEvent::Leaving(thread) => Some(thread),
    };
    let followed = enabled(router, |router, nat| match nat.enabled {
        Some(what) => nat.respread(router, what.sessions, leaving),
        None => Ok(()),
    });
    if let Err(error) = followed.or_else(|error| if error == NatError::Disabled { Ok(()) } else { Err(error) }) {
        tracing::warn!(target: "nat44", "threads have changed: {error}");
    }
}

/// Chooses the workers that have sessions, by the user's numbers; sessions move to them.
///
/// # Errors
/// Not enabled, no such worker, no memory.
pub fn set_workers(router: &mut Router, workers: Vec<usize>) -> Result<(), NatError> {
    enabled(router, |router, nat| {
        let there = router.graph.fleet().worker_threads().len();
        if let Some(wrong) = workers.iter().find(|n| **n >= there) {
            return Err(NatError::Invalid(format!("no worker {wrong}: there are {there}, from 0")));
        }
        nat.workers = Some(workers);
        match nat.enabled {
            Some(what) if nat.chosen(router, None) != nat.config.threads => nat.respread(router, what.sessions, None),
            _ => Ok(()),
        }
    })
}

/// Threads with sessions, in order.
pub fn threads(router: &Router) -> Vec<usize> {
    router.part::<Nat>().filter(|n| n.enabled.is_some()).map(|n| n.config.threads.clone()).unwrap_or_default()
}
