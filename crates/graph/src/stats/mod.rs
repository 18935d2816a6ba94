//! Counters in shared memory, in the layout of VPP's statistics segment, so that its clients read them unchanged.
//!
//! One memfd holds everything: header, a directory of 144-byte entries, and the vectors to which these point. The file is
//! sparse: a counter reserves its whole capacity for [`MAX_THREADS`] threads at once, and pages that nobody touches cost
//! nothing. So no vector ever moves, and workers count without asking anyone.
//!
//! Changes of the directory, of vector lengths and of names follow the epoch protocol: in-progress is set, the change
//! made, the epoch raised, in-progress cleared. A reader that finds in-progress set or the epoch changed reads again.
//! Plain counting does none of that.
//!
//! Limits: space of removed counters is reused only for the same shape, that of very large ones not at all; the number of threads only
//! grows, so that totals never go down. Sums are over visible threads only: call [`Stats::set_threads`] before a thread
//! starts to count.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

mod counters;
mod entries;
mod segment;
#[cfg(test)]
mod tests;

pub use counters::{CombinedCounters, CombinedRow, SimpleCounters, SimpleRows};
pub use entries::{Names, Scalar};

use counters::Rows;
use segment::{NAME_BYTES, Segment, Writer, write_text};

/// The most threads (the main thread and workers) that can count. The space of each counter is reserved for all of them.
pub const MAX_THREADS: usize = 64;

/// Rows up to this capacity are emptied and reused after removal; larger ones are made once, and sweeping them is slow.
const REUSED_CAPACITY: u32 = 1 << 16;

/// Entry types of the segment's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Type {
    Scalar = 1,
    Simple = 2,
    Combined = 3,
    Names = 4,
    Empty = 5,
    Symlink = 6,
    Gauge = 9,
}

/// Why an entry was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsError {
    /// The name is empty, longer than 127 bytes, or has a NUL in it.
    BadName(String),
    /// The name belongs to an entry of another type.
    Taken(String),
    /// No room for the entry: the segment needs a larger size.
    Full(String),
    /// A symlink to what is no counter, or does not exist.
    NoTarget(String),
}

impl fmt::Display for StatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) => write!(f, "statistics entry `{name}`: names have 1 to 127 bytes and no NUL"),
            Self::Taken(name) => write!(f, "statistics entry `{name}` exists with another type"),
            Self::Full(name) => write!(f, "no room for statistics entry `{name}`: raise statseg size"),
            Self::NoTarget(name) => {
                write!(f, "statistics symlink to `{name}`, which is no counter")
            }
        }
    }
}

impl std::error::Error for StatsError {}

/// What stands behind a name.
#[derive(Clone)]
enum Entry {
    Simple(Arc<SimpleCounters>),
    Combined(Arc<CombinedCounters>),
    Names(Arc<Names>),
    Scalar(Type, Arc<Scalar>),
    Symlink { target: usize },
}

impl Entry {
    fn type_of(&self) -> Type {
        match self {
            Self::Simple(_) => Type::Simple,
            Self::Combined(_) => Type::Combined,
            Self::Names(_) => Type::Names,
            Self::Scalar(type_of, _) => *type_of,
            Self::Symlink { .. } => Type::Symlink,
        }
    }

    /// Whether nobody but the registry holds the handle, so that its memory may get a new owner.
    fn is_ours_alone(&self) -> bool {
        match self {
            Self::Simple(handle) => Arc::strong_count(handle) == 1,
            Self::Combined(handle) => Arc::strong_count(handle) == 1,
            Self::Names(handle) => Arc::strong_count(handle) == 1,
            Self::Scalar(_, handle) => Arc::strong_count(handle) == 1,
            Self::Symlink { .. } => true,
        }
    }
}

/// Entries by name, and removed ones whose memory waits for a new owner.
#[derive(Default)]
struct Registry {
    by_name: HashMap<String, (usize, Entry)>,
    /// Removed scalars: the value is in the directory slot, so the slot waits until the handle is gone.
    held_slots: Vec<(usize, Entry)>,
    /// Removed counters and names: their rows serve the next entry of the same shape.
    retired: Vec<Entry>,
    refused: Vec<String>,
}

/// The statistics segment: makes counters, scalars, names and symlinks, and owns their memory.
pub struct Stats {
    segment: Arc<Segment>,
    registry: Mutex<Registry>,
    /// What a caller gets where the segment has no room: counters of capacity 0, in no directory.
    no_simple: Arc<SimpleCounters>,
    no_combined: Arc<CombinedCounters>,
    no_names: Arc<Names>,
    no_scalar: Arc<Scalar>,
}

impl Stats {
    /// Makes a segment of `size_bytes` of address space. The file is sparse, so be generous: 1 GiB and more is fine.
    ///
    /// # Errors
    /// Those of memfd_create, ftruncate and mmap.
    pub fn new(size_bytes: usize) -> io::Result<Arc<Self>> {
        let segment = Arc::new(Segment::new(size_bytes)?);
        let mut writer = segment.lock();
        let spare = writer.reserve(8).ok_or(io::ErrorKind::OutOfMemory)?;
        let simple = Rows::reserve(&segment, &mut writer, 0).ok_or(io::ErrorKind::OutOfMemory)?;
        let combined = Rows::reserve(&segment, &mut writer, 0).ok_or(io::ErrorKind::OutOfMemory)?;
        let names = Names::reserve(&segment, &mut writer, 0).ok_or(io::ErrorKind::OutOfMemory)?;
        drop(writer);
        Ok(Arc::new(Self {
            no_simple: Arc::new(SimpleCounters::new(simple)),
            no_combined: Arc::new(CombinedCounters::new(combined)),
            no_names: Arc::new(names),
            no_scalar: Arc::new(Scalar::new(Arc::clone(&segment), spare)),
            segment,
            registry: Mutex::default(),
        }))
    }

    /// The memfd, for export to readers. They can map it read-only; writing and truncating are sealed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.segment.fd()
    }

    /// Size of the segment in bytes of address space.
    pub fn size(&self) -> usize {
        self.segment.len()
    }

    /// Threads whose counts are visible.
    pub fn threads(&self) -> usize {
        self.segment.threads()
    }

    /// Makes the rows of threads `0..threads` visible, at most [`MAX_THREADS`]. A smaller number than before changes
    /// nothing: the counts of a worker that is gone stay in the totals.
    pub fn set_threads(&self, threads: usize) {
        let registry = self.registry();
        let writer = self.segment.lock();
        let threads = threads.min(MAX_THREADS);
        if threads <= self.segment.threads() {
            return;
        }
        self.segment.change(&writer, || {
            self.segment.set_threads(threads);
            for (_, entry) in registry.by_name.values() {
                match entry {
                    Entry::Simple(counters) => counters.rows().show_threads(),
                    Entry::Combined(counters) => counters.rows().show_threads(),
                    _ => {}
                }
            }
        });
    }

    /// The simple counters called `name`, made with room for `capacity` objects unless they exist. Where that is
    /// impossible the result has capacity 0, and the name is in [`refused`](Self::refused).
    pub fn simple(&self, name: &str, capacity: u32) -> Arc<SimpleCounters> {
        self.try_simple(name, capacity).unwrap_or_else(|error| self.refuse(error, &self.no_simple))
    }

    /// The combined counters called `name`; otherwise as [`simple`](Self::simple).
    pub fn combined(&self, name: &str, capacity: u32) -> Arc<CombinedCounters> {
        self.try_combined(name, capacity).unwrap_or_else(|error| self.refuse(error, &self.no_combined))
    }

    /// The number called `name`, which only grows or is set once; otherwise as [`simple`](Self::simple).
    pub fn scalar(&self, name: &str) -> Arc<Scalar> {
        self.try_scalar(name, Type::Scalar).unwrap_or_else(|error| self.refuse(error, &self.no_scalar))
    }

    /// The number called `name`, which may go down; otherwise as [`simple`](Self::simple).
    pub fn gauge(&self, name: &str) -> Arc<Scalar> {
        self.try_scalar(name, Type::Gauge).unwrap_or_else(|error| self.refuse(error, &self.no_scalar))
    }

    /// The vector of names called `name`; otherwise as [`simple`](Self::simple).
    pub fn names(&self, name: &str) -> Arc<Names> {
        self.try_names(name).unwrap_or_else(|error| self.refuse(error, &self.no_names))
    }

    /// As [`simple`](Self::simple), with an error where that is impossible.
    ///
    /// # Errors
    /// A bad name, a name of another type, no room.
    pub fn try_simple(&self, name: &str, capacity: u32) -> Result<Arc<SimpleCounters>, StatsError> {
        let mut registry = self.registry();
        match registry.by_name.get(name) {
            Some((_, Entry::Simple(counters))) => return Ok(Arc::clone(counters)),
            Some(_) => return Err(StatsError::Taken(name.to_owned())),
            None => {}
        }
        let same = |e: &Entry| matches!(e, Entry::Simple(c) if c.capacity() == capacity && capacity <= REUSED_CAPACITY);
        let counters = match registry.reuse(same) {
            Some(Entry::Simple(counters)) => {
                counters.rows().reset();
                counters
            }
            _ => Arc::new(SimpleCounters::new(self.rows(name, capacity)?)),
        };
        let value = self.segment.address(counters.rows().outer);
        self.insert(&mut registry, name, Entry::Simple(Arc::clone(&counters)), value)?;
        Ok(counters)
    }

    /// As [`combined`](Self::combined), with an error where that is impossible.
    ///
    /// # Errors
    /// A bad name, a name of another type, no room.
    pub fn try_combined(&self, name: &str, capacity: u32) -> Result<Arc<CombinedCounters>, StatsError> {
        let mut registry = self.registry();
        match registry.by_name.get(name) {
            Some((_, Entry::Combined(counters))) => return Ok(Arc::clone(counters)),
            Some(_) => return Err(StatsError::Taken(name.to_owned())),
            None => {}
        }
        let same = |e: &Entry| matches!(e, Entry::Combined(c) if c.capacity() == capacity && capacity <= REUSED_CAPACITY);
        let counters = match registry.reuse(same) {
            Some(Entry::Combined(counters)) => {
                counters.rows().reset();
                counters
            }
            _ => Arc::new(CombinedCounters::new(self.rows(name, capacity)?)),
        };
        let value = self.segment.address(counters.rows().outer);
        self.insert(&mut registry, name, Entry::Combined(Arc::clone(&counters)), value)?;
        Ok(counters)
    }

    fn try_scalar(&self, name: &str, type_of: Type) -> Result<Arc<Scalar>, StatsError> {
        let mut registry = self.registry();
        match registry.by_name.get(name) {
            Some((_, Entry::Scalar(old, scalar))) if *old == type_of => {
                return Ok(Arc::clone(scalar));
            }
            Some(_) => return Err(StatsError::Taken(name.to_owned())),
            None => {}
        }
        // The handle needs the slot, and the slot the handle: insert a stand-in, then point it to the right place.
        let stand_in = Entry::Scalar(type_of, Arc::clone(&self.no_scalar));
        let slot = self.insert(&mut registry, name, stand_in, 0)?;
        let value = self.segment.lock().entry(slot) + 8;
        let scalar = Arc::new(Scalar::new(Arc::clone(&self.segment), value));
        let entry = Entry::Scalar(type_of, Arc::clone(&scalar));
        registry.by_name.insert(name.to_owned(), (slot, entry));
        Ok(scalar)
    }

    fn try_names(&self, name: &str) -> Result<Arc<Names>, StatsError> {
        let mut registry = self.registry();
        match registry.by_name.get(name) {
            Some((_, Entry::Names(names))) => return Ok(Arc::clone(names)),
            Some(_) => return Err(StatsError::Taken(name.to_owned())),
            None => {}
        }
        let names = match registry.reuse(|e| matches!(e, Entry::Names(_))) {
            Some(Entry::Names(names)) => {
                names.reset();
                names
            }
            _ => {
                // A 64th of the segment, which is 2 M names for 1 GiB.
                let capacity = u32::try_from(self.segment.len() / 64 / 8).unwrap_or(u32::MAX);
                let names = Names::reserve(&self.segment, &mut self.segment.lock(), capacity);
                Arc::new(names.ok_or_else(|| StatsError::Full(name.to_owned()))?)
            }
        };
        let value = self.segment.address(names.data);
        self.insert(&mut registry, name, Entry::Names(Arc::clone(&names)), value)?;
        Ok(names)
    }

    /// Makes `name` read as element `column` of the counter `target` over all threads. An older symlink of that name is
    /// replaced.
    ///
    /// # Errors
    /// A bad name, a name of another type, no such counter, no room.
    pub fn symlink(&self, name: &str, target: &str, column: u32) -> Result<(), StatsError> {
        let mut registry = self.registry();
        let slot = match registry.by_name.get(target) {
            Some((slot, Entry::Simple(_) | Entry::Combined(_))) => *slot,
            _ => return Err(StatsError::NoTarget(target.to_owned())),
        };
        match registry.by_name.get(name) {
            Some((_, Entry::Symlink { .. })) => self.remove_entry(&mut registry, name),
            Some(_) => return Err(StatsError::Taken(name.to_owned())),
            None => false,
        };
        // Two u32 side by side, in this order in memory.
        let [a, b] = [(slot as u32).to_ne_bytes(), column.to_ne_bytes()];
        let value = u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]);
        self.insert(&mut registry, name, Entry::Symlink { target: slot }, value)?;
        Ok(())
    }

    /// Takes a symlink out of the directory. Returns whether there was one.
    pub fn unlink(&self, name: &str) -> bool {
        let mut registry = self.registry();
        matches!(registry.by_name.get(name), Some((_, Entry::Symlink { .. }))) && self.remove_entry(&mut registry, name)
    }

    /// Takes an entry out of the directory, with all symlinks to it. Handles stay usable, but nobody sees their counts.
    /// Returns whether there was such an entry.
    pub fn remove(&self, name: &str) -> bool {
        let mut registry = self.registry();
        let Some((slot, _)) = registry.by_name.get(name) else {
            return false;
        };
        let slot = *slot;
        let links = registry.by_name.iter().filter_map(|(link, (_, entry))| match entry {
            Entry::Symlink { target } if *target == slot => Some(link.clone()),
            _ => None,
        });
        for link in links.collect::<Vec<_>>() {
            self.remove_entry(&mut registry, &link);
        }
        self.remove_entry(&mut registry, name)
    }

    /// The names of all entries with their kinds, sorted.
    pub fn entries(&self) -> Vec<(String, &'static str)> {
        let kind = |entry: &Entry| match entry.type_of() {
            Type::Simple => "counters",
            Type::Combined => "packets and bytes",
            Type::Names => "names",
            Type::Scalar => "number",
            Type::Gauge => "gauge",
            Type::Symlink => "link",
            Type::Empty => "empty",
        };
        let mut all: Vec<_> = self.registry().by_name.iter().map(|(name, (_, entry))| (name.clone(), kind(entry))).collect();
        all.sort();
        all
    }

    /// The names of entries that could not be made, because of their name or for want of room.
    pub fn refused(&self) -> Vec<String> {
        self.registry().refused.clone()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse<T>(&self, error: StatsError, stand_in: &Arc<T>) -> Arc<T> {
        self.registry().refused.push(error.to_string());
        Arc::clone(stand_in)
    }

    fn rows<const WORDS: usize>(&self, name: &str, capacity: u32) -> Result<Rows<WORDS>, StatsError> {
        check_name(name)?;
        Rows::reserve(&self.segment, &mut self.segment.lock(), capacity).ok_or_else(|| StatsError::Full(name.to_owned()))
    }

    fn insert(&self, registry: &mut Registry, name: &str, entry: Entry, value: u64) -> Result<usize, StatsError> {
        check_name(name)?;
        let mut writer = self.segment.lock();
        for (slot, _) in registry.held_slots.extract_if(.., |(_, entry)| entry.is_ours_alone()) {
            writer.free_entry(slot);
        }
        let slot = writer.take_entry().ok_or_else(|| StatsError::Full(name.to_owned()))?;
        self.write_entry(&writer, slot, entry.type_of(), value, name);
        registry.by_name.insert(name.to_owned(), (slot, entry));
        Ok(slot)
    }

    fn remove_entry(&self, registry: &mut Registry, name: &str) -> bool {
        let Some((slot, entry)) = registry.by_name.remove(name) else {
            return false;
        };
        let mut writer = self.segment.lock();
        self.write_entry(&writer, slot, Type::Empty, 0, "");
        match entry {
            Entry::Scalar(..) => registry.held_slots.push((slot, entry)),
            Entry::Symlink { .. } => writer.free_entry(slot),
            entry => {
                writer.free_entry(slot);
                registry.retired.push(entry);
            }
        }
        true
    }

    fn write_entry(&self, writer: &Writer, slot: usize, type_of: Type, value: u64, name: &str) {
        let segment = &*self.segment;
        let entry = writer.entry(slot);
        segment.change(writer, || {
            segment.half(entry).store(type_of as u32, Ordering::Relaxed);
            segment.word(entry + 8).store(value, Ordering::Relaxed);
            write_text(segment, entry + 16, NAME_BYTES, name.as_bytes());
            writer.publish_entries(segment);
        });
    }
}

impl Registry {
    /// A removed entry of the wanted shape that nobody holds any more.
    fn reuse(&mut self, same: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let at = self.retired.iter().position(|e| same(e) && e.is_ours_alone())?;
        Some(self.retired.swap_remove(at))
    }
}

/// A name as one part of an entry's path has it.
pub(crate) fn path_part(name: &str) -> String {
    name.replace('/', "_")
}

fn check_name(name: &str) -> Result<(), StatsError> {
    if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
        return Err(StatsError::BadName(name.to_owned()));
    }
    Ok(())
}
