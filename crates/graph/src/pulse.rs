//! What a thread shows of its progress, for a watchdog on another thread.
//!
//! A thread writes its pulse with plain stores, once an iteration and once a call of a node; nobody waits for anybody. Who reads it
//! sees whether the thread has finished an iteration since the last look, whether it rests or waits for another thread, and
//! where it is.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::worker::thread_name;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs an iteration.
    Works,
    /// It sleeps until something happens, or a time.
    Rests,
    /// It waits for another thread, which has a pulse of its own, or for its start or end.
    Waits,
}

/// Where a thread is in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The node that it called last in this iteration, or the first of a fused chain.
    pub node: String,
    /// Packets that the node was called with; 0 for an input node.
    pub vector: usize,
}

/// A thread's pulse, on lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Pulse {
    thread: usize,
    beats: AtomicU64,
    activity: AtomicU8,
    /// Node in the low 16 bits, packets above them.
    place: AtomicU32,
    lwp: AtomicU64,
    /// What it works on outside the graph.
    task: Mutex<Option<Arc<str>>>,
}

/// In place of a node's number: none is being called.
const NOWHERE: u32 = 0xffff;

impl Pulse {
    pub(crate) fn new(thread: usize) -> Self {
        Self {
            thread,
            beats: AtomicU64::new(0),
            activity: AtomicU8::new(Activity::Waits as u8),
            place: AtomicU32::new(NOWHERE),
            lwp: AtomicU64::new(0),
            task: Mutex::new(None),
        }
    }

    /// The thread's number: 0 is main.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// The thread's name.
    pub fn name(&self) -> String {
        thread_name(self.thread)
    }

    /// Begins: the calling thread is the one that this pulse is of.
    pub fn begin(&self) {
        self.lwp.store(rustix::thread::gettid().as_raw_nonzero().get() as u64, Relaxed);
        self.set(Activity::Works);
    }

    /// The kernel's number of the thread; 0 before it has begun.
    pub fn lwp(&self) -> u64 {
        self.lwp.load(Relaxed)
    }

    /// An iteration, or a part of a long piece of work, has come to its end. Only the thread itself calls it.
    #[inline(always)]
    pub fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
        self.place.store(NOWHERE, Relaxed);
    }

    /// Times it has beaten.
    pub fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    /// Notes the call of a node.
    #[inline(always)]
    pub(crate) fn at(&self, node: u16, packets: usize) {
        self.place.store(u32::from(node) | (packets as u32) << 16, Relaxed);
    }

    /// Says what the thread does from now on.
    pub fn set(&self, activity: Activity) {
        self.activity.store(activity as u8, Relaxed);
    }

    /// What the thread does.
    pub fn activity(&self) -> Activity {
        match self.activity.load(Relaxed) {
            0 => Activity::Works,
            1 => Activity::Rests,
            _ => Activity::Waits,
        }
    }

    /// Does what makes the thread rest or wait; then it does again what it did before, which is progress.
    pub fn during<R>(&self, activity: Activity, f: impl FnOnce() -> R) -> R {
        let before = self.activity();
        self.set(activity);
        let result = f();
        self.beat();
        self.set(before);
        result
    }

    /// Says what the thread works on outside the graph, and gives what it said before.
    pub fn set_task(&self, task: Option<Arc<str>>) -> Option<Arc<str>> {
        std::mem::replace(&mut *self.task.lock().unwrap_or_else(PoisonError::into_inner), task)
    }

    /// What the thread works on outside the graph.
    pub fn task(&self) -> Option<Arc<str>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn place(&self) -> Option<(u16, usize)> {
        let place = self.place.load(Relaxed);
        let node = (place & 0xffff) as u16;
        (u32::from(node) != NOWHERE).then_some((node, (place >> 16) as usize))
    }
}

/// The pulses of all threads, and the names of the nodes that they may be in.
#[derive(Debug, Default)]
pub struct Pulses {
    all: Mutex<Vec<Arc<Pulse>>>,
    names: Mutex<Vec<String>>,
}

impl Pulses {
    /// Those of all threads that run the graph, and main's, by number.
    pub fn all(&self) -> Vec<Arc<Pulse>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// That of the calling thread.
    pub fn own(&self) -> Option<Arc<Pulse>> {
        let lwp = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        self.all().into_iter().find(|pulse| pulse.lwp() == lwp)
    }

    /// Where a thread is in the graph; nothing where it calls no node.
    pub fn whereabouts(&self, pulse: &Pulse) -> Option<Whereabouts> {
        let (node, vector) = pulse.place()?;
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let node = names.get(usize::from(node)).filter(|name| !name.is_empty()).cloned();
        Some(Whereabouts { node: node.unwrap_or_else(|| "a removed node".to_owned()), vector })
    }

    /// A pulse for a thread; main keeps the one that it has.
    pub(crate) fn of(&self, thread: usize) -> Arc<Pulse> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pulse) = all.iter().find(|pulse| pulse.thread == thread) {
            return pulse.clone();
        }
        let pulse = Arc::new(Pulse::new(thread));
        all.push(pulse.clone());
        all.sort_by_key(|pulse| pulse.thread);
        pulse
    }

    /// A worker has left.
    pub(crate) fn forget(&self, thread: usize) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|pulse| pulse.thread != thread);
    }

    pub(crate) fn set_name(&self, node: u16, name: &str) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::from(node);
        if names.len() <= at {
            names.resize(at + 1, String::new());
        }
        name.clone_into(&mut names[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_tells_where_its_thread_is() {
        let pulses = Pulses::default();
        let pulse = pulses.of(1);
        assert_eq!((pulse.activity(), pulse.lwp(), pulse.beats()), (Activity::Waits, 0, 0));
        pulse.begin();
        assert_eq!(pulse.activity(), Activity::Works);
        assert!(Arc::ptr_eq(&pulses.own().unwrap(), &pulse));
        pulses.set_name(7, "ip4-lookup");
        assert_eq!(pulses.whereabouts(&pulse), None);
        pulse.at(7, 256);
        assert_eq!(pulses.whereabouts(&pulse), Some(Whereabouts { node: "ip4-lookup".into(), vector: 256 }));
        pulse.beat();
        assert_eq!((pulses.whereabouts(&pulse), pulse.beats()), (None, 1));
        assert_eq!(pulse.during(Activity::Rests, || pulse.activity()), Activity::Rests);
        assert_eq!((pulse.activity(), pulse.beats()), (Activity::Works, 2));
        pulses.forget(1);
        assert!(pulses.all().is_empty());
    }
}
