//! The journal: configuration that lasts.
//!
//! ```text
//!  an operation that changes configuration          main thread            │ journal's thread
//!    Registry ── check ── run ── append ───────────────────────────────────┼──► write, fdatasync: once for all that wait
//!                                   │                                      │        │
//!    the client's answer ◄── waits until its record is on the disk ◄───────┼────────┘
//!                                                                          │
//!    checkpoint: `show configuration` as records, now and then ────────────┼──► a new file in the place of the old one
//! ```
//!
//! The file `configuration` in `unix { state-dir DIR }` is a sequence of operations as JSON requests, each with its length and checksum
//! ([`record`]). At start they run in order. What the crash of a machine leaves of the last record is recognised and left out: nobody
//! was told that it was done.
//!
//! *Which operations.* All that change something, but those that are declared to be actions ([`Registry::actions`]): clearing
//! counters, tracing, sending. A checkpoint has what the running configuration says; of the records before it, it keeps those of
//! operations whose subject says nothing there yet ([`Registry::covers`]).
//!
//! *The disk is full.* Space is reserved ahead: an operation that finds none is refused before it runs. An error of the disk itself
//! makes the operations that wait for it fail, although they were done, and all others are refused until a checkpoint could be written; that
//! is tried again and again. The router goes on meanwhile.
//!
//! *All or nothing.* While a hold lasts ([`ChangeLog::hold`]) records are kept in memory, with space reserved for them; its end writes them as one, or
//! forgets them. No checkpoint is written meanwhile: it would have the half of it.
//!
//! *What could not be made again* at start (a device that is not there) stays in the file and is tried at the next start, until `write`.
//!
//! [`Registry::actions`]: quiver_command::operation::Registry::actions
//! [`Registry::covers`]: quiver_command::operation::Registry::covers

mod record;
mod replay;
mod store;
mod writer;

pub use replay::replay;
pub use store::Store;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use quiver_command::change_log::{ChangeLog, Record};
use quiver_command::configuration::Configuration;
use quiver_command::operation::{OpError, retval};
use quiver_net::Router;

use writer::{Task, Writer};

/// A checkpoint is due when so many bytes, and as many as the last checkpoint had, have been appended to it.
const CHECKPOINT: u64 = 4 << 20;
/// Operations wait while less than this is reserved: what one slice of a script may append.
const LOW: u64 = 1 << 20;
/// Space that is asked for ahead of what is held back.
const AHEAD: u64 = 4 << 20;

/// The journal of a router, as its main thread has it. A part of the router.
pub struct Journal {
    writer: Writer,
    /// Records appended.
    sequence: Cell<u64>,
    /// Bytes appended, of all files.
    bytes: Cell<u64>,
    /// The same when the last checkpoint was begun, and how long that was.
    checkpoint: Cell<(u64, u64)>,
    /// Operations are recorded. Not while those of the journal itself run.
    on: Cell<bool>,
    /// How often something has changed that is in no record, and how much of that a checkpoint has.
    unrecorded: Cell<u64>,
    checked: Cell<u64>,
    /// What is held back.
    held: RefCell<Held>,
    /// Whoever waits for a checkpoint to be begun, or to be due.
    waiting: RefCell<Vec<Waker>>,
    /// What could not be made again at start.
    failed: RefCell<Vec<Record>>,
    /// Operations that the running configuration speaks for.
    covered: RefCell<BTreeSet<&'static str>>,
    /// Where it is, for people.
    folder: String,
}

/// What is held back until a hold ends.
#[derive(Default)]
struct Held {
    /// Records, each with a line.
    lines: Vec<u8>,
    /// Where each hold begins among them.
    begins: Vec<usize>,
    /// For so many bytes space was asked for.
    asked: u64,
    /// Something has changed that is in no record.
    unrecorded: bool,
}

impl Journal {
    /// Goes on with a file that was read.
    ///
    /// # Errors
    /// It cannot be written, or there is no thread for it.
    pub fn start(store: Store, covered: BTreeSet<&'static str>) -> std::io::Result<Rc<Self>> {
        let folder = store.folder().to_owned();
        let (writer, length) = Writer::start(store)?;
        Ok(Rc::new(Self {
            writer,
            sequence: Cell::new(0),
            bytes: Cell::new(0),
            checkpoint: Cell::new((0, length)),
            on: Cell::new(false),
            unrecorded: Cell::new(0),
            checked: Cell::new(0),
            held: RefCell::default(),
            waiting: RefCell::default(),
            failed: RefCell::default(),
            covered: RefCell::new(covered),
            folder,
        }))
    }

    /// The running configuration speaks for these operations now.
    pub fn cover(&self, covered: BTreeSet<&'static str>) {
        self.covered.replace(covered);
    }

    /// From now on operations are recorded. `failed`: what could not be made again.
    pub fn record_from_now(&self, failed: Vec<Record>) {
        self.failed.replace(failed);
        self.on.set(true);
    }

    /// Goes on with the file of another process, which has stopped.
    pub fn begin(&self) {
        self.writer.send(Task::Begin { sequence: self.sequence.get() });
    }

    /// What could not be made again.
    pub fn failed(&self) -> Vec<Record> {
        self.failed.borrow().clone()
    }

    /// Whether a checkpoint is on the disk, or will not come there.
    pub fn poll_stored(&self, sequence: u64, context: &mut Context<'_>) -> Poll<Result<(), OpError>> {
        self.writer.poll(context, |progress| match (&progress.trouble, progress.tried >= sequence) {
            _ if progress.durable >= sequence => Some(Ok(())),
            (Some(trouble), true) => {
                let text = format!("cannot be stored in {}: {trouble}", self.folder);
                Some(Err(OpError::new(retval::SYSCALL_ERROR_1, text).remedy("make room there")))
            }
            _ => None,
        })
    }

    /// The folder, for people.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Records appended so far, to be waited for.
    pub fn sequence(&self) -> u64 {
        self.sequence.get()
    }

    /// Whether the records up to this one are on the disk.
    pub fn poll_durable(&self, sequence: u64, context: &mut Context<'_>) -> Poll<Result<(), OpError>> {
        self.writer.poll(context, |progress| match &progress.trouble {
            _ if progress.durable >= sequence => Some(Ok(())),
            Some(trouble) => {
                let text = format!("done, but not stored in {}: {trouble}", self.folder);
                Some(Err(OpError::new(retval::SYSCALL_ERROR_1, text).remedy("it is tried again until it can be stored")))
            }
            None => None,
        })
    }

    /// Whether there is room for what a slice may append, or no hope for it.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.on.get() {
            return Poll::Ready(());
        }
        self.writer.poll(context, |progress| (progress.trouble.is_some() || self.room(progress.granted) >= LOW).then_some(()))
    }

    fn room(&self, granted: u64) -> u64 {
        granted.saturating_sub(self.bytes.get() + self.held.borrow().lines.len() as u64)
    }

    /// Whether records are held back: nothing may be written that has the half of it.
    pub fn is_holding(&self) -> bool {
        self.holds() > 0
    }

    /// Holds, one within the other.
    pub fn holds(&self) -> usize {
        self.held.borrow().begins.len()
    }

    /// Refuses what cannot be done while records are held back.
    ///
    /// # Errors
    /// They are.
    pub fn check_holding(&self) -> Result<(), OpError> {
        if !self.is_holding() {
            return Ok(());
        }
        Err(OpError::new(retval::BUSY, "not now: changes are held back until all of them are made, or confirmed"))
    }

    /// Refuses what changes where nothing can be stored.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check_trouble(&self) -> Result<(), OpError> {
        let Some(trouble) = self.trouble() else { return Ok(()) };
        let text = format!("refused: what changes cannot be stored: {trouble}");
        Err(OpError::new(retval::SYSCALL_ERROR_1, text).remedy("make room in the state folder"))
    }

    fn hold_back(&self, record: &Record) {
        let mut held = self.held.borrow_mut();
        record::append_line(&mut held.lines, record);
        let bytes = held.lines.len() as u64;
        if bytes + 2 * LOW > held.asked {
            held.asked = bytes + AHEAD;
            self.writer.send(Task::Reserve { held: held.asked, sequence: self.sequence.get() });
        }
    }

    /// Writes a record.
    fn write(&self, bytes: Vec<u8>) {
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        let sequence = self.next();
        self.writer.send(Task::Append { bytes, sequence });
        let (at, length) = self.checkpoint.get();
        if self.bytes.get() - at > CHECKPOINT.max(length) {
            self.wake();
        }
    }

    /// Waits until a checkpoint is to be written.
    pub fn poll_due(&self, context: &mut Context<'_>) -> Poll<()> {
        let (at, length) = self.checkpoint.get();
        let appended = self.bytes.get() - at;
        if self.on.get() && !self.is_holding() && (self.unrecorded.get() != self.checked.get() || appended > CHECKPOINT.max(length))
        {
            return Poll::Ready(());
        }
        self.wake_later(context);
        self.writer.poll(context, |progress| progress.trouble.is_some().then_some(()))
    }

    /// How often something has changed that is in no record.
    pub fn changes(&self) -> u64 {
        self.unrecorded.get()
    }

    /// Waits until a checkpoint has been begun that has these changes; then [`sequence`](Self::sequence) is its number, or a later one.
    pub fn poll_checked(&self, changes: u64, context: &mut Context<'_>) -> Poll<()> {
        if self.checked.get() >= changes {
            return Poll::Ready(());
        }
        self.wake_later(context);
        Poll::Pending
    }

    fn wake_later(&self, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    fn wake(&self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Why nothing can be written.
    pub fn trouble(&self) -> Option<String> {
        self.writer.progress().trouble.clone()
    }

    /// Replaces the file by the running configuration. `forget`: without what could not be made again. Gives the number to wait for.
    pub fn checkpoint(&self, configuration: &Configuration<Router>, forget: bool) -> u64 {
        let covered = self.covered.borrow();
        let is_covered = |record: &Record| covered.contains(record.operation.as_str());
        // Those that are not covered stand among the old records, which stay.
        let mut forgotten = Vec::new();
        if forget {
            forgotten = self.failed.take();
            forgotten.retain(|record| !is_covered(record));
        }
        let mut bytes = Vec::new();
        for entry in configuration.entries() {
            record::append(&mut bytes, &entry.record());
        }
        // What does not come back by itself comes last.
        let failed: Vec<u8> =
            self.failed.borrow().iter().filter(|record| is_covered(record)).fold(Vec::new(), |mut bytes, failed| {
                record::append(&mut bytes, failed);
                bytes
            });
        self.checkpoint.set((self.bytes.get(), (bytes.len() + failed.len()) as u64));
        self.checked.set(self.unrecorded.get());
        self.wake();
        let sequence = self.next();
        self.writer.send(Task::Replace { bytes, failed, covered: covered.clone(), forgotten, sequence });
        sequence
    }

    fn next(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }
}

impl ChangeLog for Journal {
    fn is_on(&self) -> bool {
        self.on.get()
    }

    fn check(&self, record: &Record) -> Result<(), OpError> {
        if !self.on.get() {
            return Ok(());
        }
        let progress = self.writer.progress();
        let refused = |why: &str| {
            let text = format!("refused: what changes cannot be stored in {}: {why}", self.folder);
            OpError::new(retval::SYSCALL_ERROR_1, text)
        };
        if let Some(trouble) = &progress.trouble {
            return Err(refused(trouble).remedy("make room there, or take state-dir out of startup.conf"));
        }
        match record::length(record) {
            length if length <= self.room(progress.granted) => Ok(()),
            length => Err(refused(&format!("the request has {length} bytes"))),
        }
    }

    fn append(&self, record: Record) {
        if self.on.get() && self.is_holding() {
            self.hold_back(&record);
        } else if self.on.get() {
            let mut bytes = Vec::new();
            record::append(&mut bytes, &record);
            self.write(bytes);
        }
    }

    fn unrecorded(&self) {
        if self.on.get() && self.is_holding() {
            self.held.borrow_mut().unrecorded = true;
        } else if self.on.get() {
            self.unrecorded.set(self.unrecorded.get() + 1);
            self.wake();
        }
    }

    fn hold(&self) {
        let mut held = self.held.borrow_mut();
        let begin = held.lines.len();
        held.begins.push(begin);
    }

    fn release(&self, keep: bool) {
        let mut held = self.held.borrow_mut();
        let Some(begin) = held.begins.pop() else { return };
        if !keep {
            held.lines.truncate(begin);
        }
        if !held.begins.is_empty() {
            return;
        }
        let Held { lines, unrecorded, .. } = std::mem::take(&mut *held);
        drop(held);
        if !lines.is_empty() {
            let mut bytes = Vec::new();
            record::append_text(&mut bytes, &lines);
            self.write(bytes);
        }
        if unrecorded && keep {
            self.unrecorded();
        }
    }
}
