//! The event log: what each thread did and when, cheap enough to stay on.
//!
//! A thread logs into a [`Ring`] of its own: a time stamp in raw ticks, a kind, and two numbers. Kinds are registered by
//! their format string, such as `rx-placement if %d worker %d`; rendering happens when somebody looks. [`EventLog`]
//! knows all rings and kinds, and merges the events by time.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;

mod recording;
mod ring;

pub use recording::{Event, Recording};
pub use ring::{RawEvent, Ring};

/// A registered kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKind(pub(crate) u32);

/// The rings of all threads, and the kinds of events.
pub struct EventLog {
    clock: Arc<Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    kinds: Vec<String>,
    rings: Vec<(String, Arc<Ring>)>,
    enabled: bool,
}

impl EventLog {
    /// An empty log whose rings stamp events with the ticks of `clock`. Logging is on.
    pub fn new(clock: Arc<Clock>) -> Self {
        let inner = Inner { kinds: Vec::new(), rings: Vec::new(), enabled: true };
        Self { clock, inner: Mutex::new(inner) }
    }

    /// Makes the ring of a thread, for `capacity` events. Only that thread may log into it. A thread of a name that was
    /// there before gets the former one's ring, so that adding and removing workers does not pile up rings.
    pub fn ring(&self, thread: &str, capacity: usize) -> Arc<Ring> {
        let mut inner = self.inner();
        if let Some((_, ring)) = inner.rings.iter().find(|(name, _)| name == thread) {
            return Arc::clone(ring);
        }
        let ring = Arc::new(Ring::new(capacity, self.clock.source()));
        ring.enable(inner.enabled);
        inner.rings.push((thread.to_owned(), Arc::clone(&ring)));
        ring
    }

    /// The kind of event that reads as `format`: `%d`, `%u`, `%i` and `%x` stand for the two arguments in turn.
    pub fn kind(&self, format: &str) -> EventKind {
        let mut inner = self.inner();
        let known = inner.kinds.iter().position(|kind| kind == format);
        let index = known.unwrap_or_else(|| {
            inner.kinds.push(format.to_owned());
            inner.kinds.len() - 1
        });
        EventKind(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// All events in the rings, in the order of time.
    pub fn snapshot(&self) -> Vec<Event> {
        self.recording().events
    }

    /// All events in the rings, in the order of time, with what it takes to render or save them.
    pub fn recording(&self) -> Recording {
        let inner = self.inner();
        let mut events = Vec::new();
        for (thread, (_, ring)) in (0u32..).zip(&inner.rings) {
            events.extend(ring.events().into_iter().map(|raw| Event {
                ns: self.clock.ns_of(raw.ticks),
                ticks: raw.ticks,
                thread,
                kind: raw.kind,
                a: raw.a,
                b: raw.b,
            }));
        }
        // Stable, so that events of one thread keep their order.
        events.sort_by_key(|event| event.ticks);
        Recording { kinds: inner.kinds.clone(), threads: inner.rings.iter().map(|(name, _)| name.clone()).collect(), events }
    }

    /// Reads a file of [`Recording::to_bytes`].
    ///
    /// # Errors
    /// Those of the file system, and `InvalidData` for what is no such file.
    pub fn load(path: &Path) -> io::Result<Recording> {
        Recording::load(path)
    }

    /// Forgets all events so far.
    pub fn clear(&self) {
        self.inner().rings.iter().for_each(|(_, ring)| ring.clear());
    }

    /// Stops logging in all threads.
    pub fn stop(&self) {
        self.enable(false);
    }

    /// Starts logging again.
    pub fn start(&self) {
        self.enable(true);
    }

    /// Whether events are being logged.
    pub fn is_running(&self) -> bool {
        self.inner().enabled
    }

    /// Events that the rings have room for.
    pub fn capacity(&self) -> usize {
        self.inner().rings.iter().map(|(_, ring)| ring.capacity()).sum()
    }

    fn enable(&self, on: bool) {
        let mut inner = self.inner();
        inner.enabled = on;
        inner.rings.iter().for_each(|(_, ring)| ring.enable(on));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> EventLog {
        EventLog::new(Clock::new())
    }

    #[test]
    fn events_of_all_threads_are_merged_by_time() {
        let log = log();
        let kind = log.kind("step %d");
        let rings = ["main", "worker 1", "worker 2"].map(|name| log.ring(name, 16));
        for (step, which) in [0, 2, 1, 1, 0, 2].into_iter().enumerate() {
            rings[which].log_at(1000 + step as u64, kind, step as u32, 0);
        }
        let events = log.snapshot();
        assert_eq!(events.iter().map(|e| e.a).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(events.iter().map(|e| e.thread).collect::<Vec<_>>(), [0, 2, 1, 1, 0, 2]);
        assert!(events.is_sorted_by_key(|e| e.ns));
    }

    #[test]
    fn a_kind_and_a_thread_are_the_same_by_name() {
        let log = log();
        assert_eq!(log.kind("a %d"), log.kind("a %d"));
        assert_ne!(log.kind("a %d"), log.kind("b %d"));
        assert!(Arc::ptr_eq(&log.ring("main", 8), &log.ring("main", 64)));
        assert_eq!(log.capacity(), 8);
    }

    #[test]
    fn stopping_and_clearing_reach_all_rings_also_new_ones() {
        let log = log();
        let kind = log.kind("x");
        let first = log.ring("main", 8);
        first.log(kind, 1, 0);
        log.stop();
        let second = log.ring("worker 1", 8);
        first.log(kind, 2, 0);
        second.log(kind, 3, 0);
        assert!(!log.is_running());
        log.start();
        second.log(kind, 4, 0);
        assert_eq!(log.snapshot().iter().map(|e| e.a).collect::<Vec<_>>(), [1, 4]);
        log.clear();
        assert!(log.snapshot().is_empty());
    }
}
