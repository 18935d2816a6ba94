//! The journal's thread.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use quiver_command::change_log::Record;

use super::store::Store;

/// What the thread is to do.
pub enum Task {
    /// Append a record.
    Append {
        /// The record.
        bytes: Vec<u8>,
        /// Its number.
        sequence: u64,
    },
    /// Reserve space for records that are held back.
    Reserve {
        /// Their bytes.
        held: u64,
        /// The last number before them.
        sequence: u64,
    },
    /// Go on with the file of another process, which has stopped.
    Begin {
        /// The last number before.
        sequence: u64,
    },
    /// Put a new file in the place of the journal.
    Replace {
        /// Records of the running configuration.
        bytes: Vec<u8>,
        /// Records that come last.
        failed: Vec<u8>,
        /// Operations whose old records are not needed any more.
        covered: BTreeSet<&'static str>,
        /// Old records that go, too.
        forgotten: Vec<Record>,
        /// Its number.
        sequence: u64,
    },
}

/// How far the thread is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The last number that is on the disk.
    pub durable: u64,
    /// The last number that was tried.
    pub tried: u64,
    /// So many bytes may be appended in all.
    pub granted: u64,
    /// Why nothing can be written.
    pub trouble: Option<String>,
}

#[derive(Default)]
struct Shared {
    progress: Progress,
    waiting: Vec<Waker>,
}

/// The main thread's end.
pub struct Writer {
    tasks: Sender<Task>,
    shared: Arc<Mutex<Shared>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// Starts the thread. Gives the length of the journal, too.
    pub fn start(store: Store) -> io::Result<(Self, u64)> {
        let (tasks, receiver) = channel();
        let length = store.length();
        let progress = Progress { granted: store.room(), trouble: store.trouble(), ..Progress::default() };
        let shared = Arc::new(Mutex::new(Shared { progress, waiting: Vec::new() }));
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("quiver_journal".to_owned()).spawn(move || run(store, &receiver, &theirs))?;
        Ok((Self { tasks, shared }, length))
    }

    /// Has the thread do something, behind all that it was told before.
    pub fn send(&self, task: Task) {
        // It ends only when this end is gone.
        let _ = self.tasks.send(task);
    }

    /// How far the thread is.
    pub fn progress(&self) -> Progress {
        lock(&self.shared).progress.clone()
    }

    /// Waits until the thread is as far as `done` wants.
    pub fn poll<T>(&self, context: &mut Context<'_>, done: impl FnOnce(&Progress) -> Option<T>) -> Poll<T> {
        let mut shared = lock(&self.shared);
        match done(&shared.progress) {
            Some(value) => Poll::Ready(value),
            None => {
                if !shared.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    shared.waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// What is appended next, and how far that is.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    sequence: Option<u64>,
}

fn run(mut store: Store, tasks: &Receiver<Task>, shared: &Mutex<Shared>) {
    // Bytes that came to an end here, of all that was appended.
    let mut consumed = 0;
    while let Ok(first) = tasks.recv() {
        let mut batch = Batch::default();
        for task in std::iter::once(first).chain(tasks.try_iter()) {
            match task {
                Task::Append { bytes, sequence } => {
                    consumed += bytes.len() as u64;
                    batch.bytes.extend_from_slice(&bytes);
                    batch.sequence = Some(sequence);
                }
                Task::Reserve { held, sequence } => {
                    flush(&mut store, &mut batch, consumed, shared);
                    let reserved = store.reserve(held);
                    granted(&store, reserved, sequence, consumed, shared);
                }
                Task::Begin { sequence } => {
                    let begun = store.begin();
                    granted(&store, begun, sequence, consumed, shared);
                }
                Task::Replace { bytes, failed, covered, forgotten, sequence } => {
                    flush(&mut store, &mut batch, consumed, shared);
                    let goes = |record: &Record| forgotten.iter().any(|other| record.is(other));
                    let old = |record: &Record| !covered.contains(record.operation.as_str()) && !goes(record);
                    let done = store.replace(&bytes, old, &failed);
                    tell(&store, done, sequence, consumed, true, shared);
                }
            }
        }
        flush(&mut store, &mut batch, consumed, shared);
    }
}

fn flush(store: &mut Store, batch: &mut Batch, consumed: u64, shared: &Mutex<Shared>) {
    let Batch { bytes, sequence: Some(sequence) } = std::mem::take(batch) else { return };
    // What follows a gap would not be found again: a new file heals it.
    let broken = lock(shared).progress.trouble.clone();
    let done = match broken {
        Some(trouble) => Err(io::Error::other(trouble)),
        None => store.append(&bytes),
    };
    let done = done.map(|()| store.reserve(0));
    let (stored, reserved) = match done {
        Ok(reserved) => (Ok(()), reserved),
        Err(error) => (Err(error), Ok(())),
    };
    tell(store, stored, sequence, consumed, false, shared);
    if let Err(error) = reserved {
        // What is stored is stored; there is no room for more.
        trouble(&error, sequence, shared);
    }
}

fn trouble(error: &io::Error, sequence: u64, shared: &Mutex<Shared>) {
    let mut shared = lock(shared);
    shared.progress.tried = sequence;
    let before = shared.progress.trouble.replace(error.to_string());
    if before.is_none() {
        tracing::error!(target: "startup", "the configuration cannot be stored: {error}");
    }
    shared.waiting.drain(..).for_each(Waker::wake);
}

/// Tells how much space there is, and wakes who waits.
fn granted(store: &Store, reserved: io::Result<()>, sequence: u64, consumed: u64, shared: &Mutex<Shared>) {
    if let Err(error) = reserved {
        return trouble(&error, sequence, shared);
    }
    let mut shared = lock(shared);
    shared.progress.granted = consumed + store.room();
    shared.waiting.drain(..).for_each(Waker::wake);
}

/// Tells how far it is, and wakes who waits. Only a new file ends a trouble.
fn tell(store: &Store, done: io::Result<()>, sequence: u64, consumed: u64, new: bool, shared: &Mutex<Shared>) {
    if let Err(error) = done {
        return trouble(&error, sequence, shared);
    }
    let mut shared = lock(shared);
    (shared.progress.durable, shared.progress.tried) = (sequence, sequence);
    shared.progress.granted = consumed + store.room();
    if new && shared.progress.trouble.take().is_some() {
        tracing::warn!(target: "startup", "the configuration can be stored again");
    }
    shared.waiting.drain(..).for_each(Waker::wake);
}
