//! The folder of the state: found and read at start, while there is one thread.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use quiver_command::change_log::Record;
use quiver_net::files::{Files, Place, Use};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock};

use super::record::{self, End, MAGIC};

/// The file with the journal, and what was at its end where that was torn.
const FILE: &str = "configuration";
const TORN: &str = "configuration.torn";
/// Bytes of a journal at most: some 4 million routes.
const MOST: u64 = 1 << 30;
/// Space that is reserved at a time.
const CHUNK: u64 = 4 << 20;

/// The file of the journal, and where it ends.
pub struct Store {
    place: Place,
    folder: String,
    /// None where it could not be written.
    file: Option<File>,
    end: u64,
    reserved: u64,
    /// Why it could not be written at start.
    trouble: Option<String>,
    /// Keeps other routers out as long as it is open.
    lock: File,
}

impl Store {
    /// Opens the folder and reads what is there.
    ///
    /// # Errors
    /// Another router has it, or it cannot be read or written.
    pub fn open(folder: &Path, group: Option<u32>) -> io::Result<(Self, Vec<Record>)> {
        let files = Files::open(folder, &[], &[], group).map_err(|(_, error)| error)?;
        let lock = File::from(rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?);
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(io::Error::other("another router keeps its state there")),
            done => done?,
        }
        let find = |name: &str| files.find(Path::new(name), Use::Write, false).map_err(|error| io::Error::other(error.to_string()));
        let place = find(FILE)?;
        let bytes = place.read(MOST).or_else(none_where_missing)?;
        let (records, whole, end) = record::read(&bytes);
        if end == End::Torn {
            find(TORN)?.save(&bytes)?;
            let lost = bytes.len() - whole;
            tracing::warn!(
                target: "startup",
                "{}: {} operations are whole, {lost} bytes behind them are not; the file as it was is kept as {TORN}",
                place.path().display(),
                records.len()
            );
        }
        let whole = if whole == 0 { &MAGIC[..] } else { &bytes[..whole] };
        let (folder, end) = (folder.display().to_string(), whole.len() as u64);
        // On a full disk the router starts, and says so.
        let (file, trouble) = match write_file(&place, whole) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let mut store = Self { place, folder, file, end, reserved: end, trouble, lock };
        if store.trouble.is_none() {
            store.trouble = store.reserve(0).err().map(|error| error.to_string());
        }
        Ok((store, records))
    }

    /// Goes on with a folder that another process still has, by its lock: what is there is only read until [`begin`](Self::begin).
    ///
    /// # Errors
    /// It cannot be read.
    pub fn inherit(folder: &Path, group: Option<u32>, lock: OwnedFd) -> io::Result<(Self, Vec<Record>)> {
        let files = Files::open(folder, &[], &[], group).map_err(|(_, error)| error)?;
        let place = files.find(Path::new(FILE), Use::Write, false).map_err(|error| io::Error::other(error.to_string()))?;
        let (records, whole, _) = record::read(&place.read(MOST).or_else(none_where_missing)?);
        let (folder, end) = (folder.display().to_string(), whole as u64);
        let lock = File::from(lock);
        Ok((Self { place, folder, file: None, end, reserved: end, trouble: None, lock }, records))
    }

    /// The other process has stopped: the file is this one's.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let bytes = self.place.read(MOST).or_else(none_where_missing)?;
        let (_, whole, _) = record::read(&bytes);
        let whole = if whole == 0 { &MAGIC[..] } else { &bytes[..whole] };
        let file = write_file(&self.place, whole)?;
        (self.file, self.end, self.reserved) = (Some(file), whole.len() as u64, whole.len() as u64);
        self.reserve(0)
    }

    /// Keeps the folder for another process, which goes on with it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        self.lock.try_clone().map(OwnedFd::from)
    }

    /// Its folder, for people.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Why it could not be written at start.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("it could not be written at start"))
    }

    /// Bytes of the journal.
    pub const fn length(&self) -> u64 {
        self.end
    }

    /// Bytes that can be appended without asking the file system for space.
    pub const fn room(&self) -> u64 {
        self.reserved - self.end
    }

    /// Reserves space for what comes, where there is little left behind so many bytes, which are held back.
    pub fn reserve(&mut self, held: u64) -> io::Result<()> {
        while self.room() <= held + CHUNK / 2 {
            match fallocate(self.file()?, FallocateFlags::empty(), self.reserved, CHUNK) {
                // A file system that cannot reserve takes zeros.
                Err(rustix::io::Errno::OPNOTSUPP) => self.file()?.write_all_at(&vec![0; CHUNK as usize], self.reserved)?,
                done => done?,
            }
            self.reserved += CHUNK;
        }
        Ok(())
    }

    /// Appends records, and waits for the disk.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.file()?.sync_data()
    }

    /// Puts a new file in the place of the journal, with `bytes` and those of the old records that `keep` wants; the old one stays
    /// where that fails.
    pub fn replace(&mut self, bytes: &[u8], keep: impl Fn(&Record) -> bool, last: &[u8]) -> io::Result<()> {
        let (old, ..) = record::read(&self.place.read(MOST)?);
        let mut whole = MAGIC.to_vec();
        whole.extend_from_slice(bytes);
        old.iter().filter(|record| keep(record)).for_each(|record| record::append(&mut whole, record));
        whole.extend_from_slice(last);
        let file = write_file(&self.place, &whole)?;
        (self.file, self.end, self.reserved) = (Some(file), whole.len() as u64, whole.len() as u64);
        self.reserve(0)
    }
}

fn none_where_missing(error: io::Error) -> io::Result<Vec<u8>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(Vec::new()) } else { Err(error) }
}

/// Writes a whole file, which is on the disk with its name afterwards.
fn write_file(place: &Place, bytes: &[u8]) -> io::Result<File> {
    let mut file = place.create()?;
    file.write_all(bytes)?;
    file.finish_durably()
}
