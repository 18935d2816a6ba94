//! The statistics segment as a reader of it sees it: in a copy that is whole.
//!
//! The router hands out the descriptor of its statistics on a socket and is not asked again. The memory is read by `pread`, not mapped:
//! so there is no address in it that could be wrong, and no unsafe code. What changes in the meantime is noticed by the epoch, and read again.
//!
//! Uses `rustix` alone; must never know what counters mean.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// Version of the layout.
const VERSION: u64 = 2;
/// Bytes of an entry of the directory.
const ENTRY: usize = 144;
/// Longest name that is read, bytes.
const NAME: usize = 128;
/// How long the router may take to hand out its descriptor.
const ANSWER: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// How long an unchanged moment is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why statistics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens, or the kernel's.
    #[error("cannot reach the router: {0}")]
    Unreachable(#[from] io::Error),
    /// Not what a router hands out.
    #[error("the statistics cannot be understood: {0}")]
    Malformed(&'static str),
    /// No moment without a change of the directory.
    #[error("the statistics change all the time")]
    Busy,
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Unreachable(error.into())
    }
}

/// What an entry is, by its number in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Simple,
    Combined,
    Names,
    Link,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Kind,
    value: u64,
}

/// Entries by name, as of an epoch.
#[derive(Default)]
struct Directory {
    by_name: HashMap<String, Entry>,
    /// Names of links below `/err/`, with the column that they stand for.
    errors: Vec<(String, u32)>,
    names: HashMap<&'static str, Vec<String>>,
}

/// A router's statistics.
pub struct Segment {
    memory: OwnedFd,
    size: u64,
    /// The router, where it can be seen from here, and what tells of its end.
    router: Option<(Pid, OwnedFd)>,
    known: Option<(u64, Directory)>,
}

/// What the segment's header says.
struct Header {
    base: u64,
    epoch: u64,
    changing: bool,
    directory: u64,
}

impl Segment {
    /// Has the router at this socket hand out its statistics.
    ///
    /// # Errors
    /// Nobody listens there, it answers otherwise, or not at all.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&ANSWER))? == 0 {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let memory = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let memory = memory.ok_or(Error::Malformed("no descriptor came (is this user in the router's group?)"))?;
        // In another PID namespace there is no number for it.
        let pid = sockopt::socket_peercred(&socket).ok().map(|peer| peer.pid);
        let router = pid.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
        Self::of(memory, router)
    }

    /// Of this memory, that a router with this process and pidfd counts in.
    ///
    /// # Errors
    /// It is no statistics segment.
    pub fn of(memory: OwnedFd, router: Option<(Pid, OwnedFd)>) -> Result<Self, Error> {
        let size = u64::try_from(rustix::fs::fstat(&memory)?.st_size).unwrap_or(0);
        let segment = Self { memory, size, router, known: None };
        if segment.word(0)? != VERSION {
            return Err(Error::Malformed("another version"));
        }
        Ok(segment)
    }

    /// Whether the router is known to live on: otherwise its memory is of the past, and it is to be asked anew.
    pub fn is_live(&self) -> bool {
        self.router.as_ref().is_some_and(|(_, end)| {
            matches!(poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
        })
    }

    /// The router's process, where it can be seen from here.
    pub fn router(&self) -> Option<Pid> {
        self.router.as_ref().map(|(pid, _)| *pid)
    }

    /// What `what` reads while nothing is added, removed or renamed.
    ///
    /// # Errors
    /// Those of `what`, and no moment without a change.
    pub fn read<T>(&mut self, what: impl Fn(&View<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            let header = self.header()?;
            if !header.changing {
                let directory = match self.known.take() {
                    Some((epoch, directory)) if epoch == header.epoch => Ok(directory),
                    _ => self.directory(&header),
                };
                let result = directory.and_then(|directory| {
                    let result = what(&View { segment: self, directory: &directory, base: header.base });
                    self.known = Some((header.epoch, directory));
                    result
                });
                let after = self.header()?;
                if !after.changing && after.epoch == header.epoch {
                    return result;
                }
                self.known = None;
            }
            if Instant::now() > end {
                return Err(Error::Busy);
            }
            std::thread::yield_now();
        }
    }

    fn header(&self) -> Result<Header, Error> {
        let words = self.words(8, 4)?;
        let [base, epoch, changing, directory] = words[..] else { return Err(Error::Malformed("no header")) };
        Ok(Header { base, epoch, changing: changing != 0, directory })
    }

    fn directory(&self, header: &Header) -> Result<Directory, Error> {
        let at = header.directory.wrapping_sub(header.base);
        let bytes = self.bytes(at, self.count(at)? * ENTRY)?;
        let mut directory = Directory::default();
        for entry in bytes.chunks_exact(ENTRY) {
            let (Some(kind), Some(value)) = (entry.first_chunk(), entry.get(8..).and_then(|rest| rest.first_chunk())) else {
                continue;
            };
            let (kind, value) = (u32::from_ne_bytes(*kind), u64::from_ne_bytes(*value));
            let kind = match kind {
                1 | 9 => Kind::Number,
                2 => Kind::Simple,
                3 => Kind::Combined,
                4 => Kind::Names,
                6 => Kind::Link,
                _ => continue,
            };
            let name = text(&entry[16..]);
            match name.strip_prefix("/err/") {
                // Two numbers of four bytes: the entry that is meant, and the column of it.
                Some(error) if kind == Kind::Link => directory.errors.push((error.to_owned(), (value >> 32) as u32)),
                // Links to what is read as a whole.
                _ if kind == Kind::Link => {}
                _ => drop(directory.by_name.insert(name, Entry { kind, value })),
            }
        }
        for name in ["/if/names", "/sys/node/names"] {
            if let Some(Entry { kind: Kind::Names, value }) = directory.by_name.get(name) {
                let at = value.wrapping_sub(header.base);
                let pointers = self.words(at, self.count(at)?)?;
                let names = pointers.into_iter().map(|pointer| self.string(pointer.wrapping_sub(header.base)));
                directory.names.insert(name, names.collect::<Result<_, _>>()?);
            }
        }
        Ok(directory)
    }

    fn string(&self, at: u64) -> Result<String, Error> {
        let length = self.count(at)?.min(NAME);
        Ok(text(&self.bytes(at, length)?))
    }

    /// The length of the vector whose data are there.
    fn count(&self, at: u64) -> Result<usize, Error> {
        Ok((self.word(at.wrapping_sub(8))? & u64::from(u32::MAX)) as usize)
    }

    fn word(&self, at: u64) -> Result<u64, Error> {
        self.words(at, 1)?.first().copied().ok_or(Error::Malformed("a word is missing"))
    }

    fn words(&self, at: u64, count: usize) -> Result<Vec<u64>, Error> {
        let bytes = self.bytes(at, count.saturating_mul(8))?;
        Ok(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, Error> {
        let inside = at.checked_add(length as u64).is_some_and(|end| end <= self.size);
        if !inside {
            return Err(Error::Malformed("a pointer leads outside"));
        }
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            match rustix::io::pread(&self.memory, &mut bytes[done..], at + done as u64)? {
                0 => return Err(Error::Malformed("it is shorter than it was")),
                count => done += count,
            }
        }
        Ok(bytes)
    }
}

/// Text up to a NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The segment at a moment.
pub struct View<'a> {
    segment: &'a Segment,
    directory: &'a Directory,
    base: u64,
}

impl View<'_> {
    fn entry(&self, name: &str, kind: Kind) -> Option<u64> {
        self.directory.by_name.get(name).filter(|entry| entry.kind == kind).map(|entry| entry.value)
    }

    /// The number of this name.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.entry(name, Kind::Number)
    }

    /// The names of all numbers and counters, sorted.
    pub fn entries(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.directory.by_name.keys().map(String::as_str).collect();
        all.sort_unstable();
        all
    }

    /// Names by index: `/if/names` or `/sys/node/names`.
    pub fn names(&self, name: &str) -> &[String] {
        self.directory.names.get(name).map_or(&[], Vec::as_slice)
    }

    /// Drop reasons and events as `node/reason`, with their place in `/node/errors`.
    pub fn errors(&self) -> &[(String, u32)] {
        &self.directory.errors
    }

    /// Counters by thread and object; nothing where there are none of this name.
    ///
    /// # Errors
    /// A pointer that leads outside, and the kernel's.
    pub fn threads(&self, name: &str) -> Result<Vec<Vec<u64>>, Error> {
        self.entry(name, Kind::Simple).map_or(Ok(Vec::new()), |value| self.rows(value, 1))
    }

    /// Counters by object, over all threads.
    ///
    /// # Errors
    /// As of [`threads`](Self::threads).
    pub fn simple(&self, name: &str) -> Result<Vec<u64>, Error> {
        Ok(sum(self.threads(name)?))
    }

    /// Packets and bytes by object, over all threads.
    ///
    /// # Errors
    /// As of [`threads`](Self::threads).
    pub fn combined(&self, name: &str) -> Result<Vec<[u64; 2]>, Error> {
        let rows = self.entry(name, Kind::Combined).map_or(Ok(Vec::new()), |value| self.rows(value, 2))?;
        Ok(sum(rows).as_chunks().0.to_vec())
    }

    fn rows(&self, value: u64, words: usize) -> Result<Vec<Vec<u64>>, Error> {
        let outer = value.wrapping_sub(self.base);
        let pointers = self.segment.words(outer, self.segment.count(outer)?)?;
        let row = |pointer: u64| {
            let at = pointer.wrapping_sub(self.base);
            self.segment.words(at, self.segment.count(at)?.saturating_mul(words))
        };
        pointers.into_iter().map(row).collect()
    }
}

fn sum(rows: Vec<Vec<u64>>) -> Vec<u64> {
    let mut rows = rows.into_iter();
    let mut total = rows.next().unwrap_or_default();
    for row in rows {
        total.iter_mut().zip(row).for_each(|(total, value)| *total = total.wrapping_add(value));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_graph::stats::Stats;

    /// The segment of statistics that a test has made.
    fn of(stats: &Stats) -> Segment {
        Segment::of(stats.fd().try_clone_to_owned().unwrap(), None).unwrap()
    }

    #[test]
    fn what_the_router_counts_is_read_over_all_threads() {
        let stats = Stats::new(1 << 24).unwrap();
        stats.set_threads(3);
        let (simple, combined) = (stats.simple("/if/drops", 8), stats.combined("/if/rx", 8));
        simple.set_len(2);
        combined.set_len(2);
        simple.add(0, 1, 5);
        simple.add(2, 1, 6);
        combined.add(1, 0, 2, 120);
        stats.gauge("/sys/num_worker_threads").set(2);
        assert!(stats.names("/if/names").set(1, "loop0"));
        let mut segment = of(&stats);
        let read = |segment: &mut Segment| {
            segment
                .read(|view| {
                    let (drops, received) = (view.simple("/if/drops")?, view.combined("/if/rx")?);
                    Ok((drops, received, view.number("/sys/num_worker_threads"), view.names("/if/names").to_vec()))
                })
                .unwrap()
        };
        let names = vec![String::new(), "loop0".to_owned()];
        assert_eq!(read(&mut segment), (vec![0, 11], vec![[2, 120], [0, 0]], Some(2), names));
        // Counting goes on without a change of the directory; a new name is one.
        simple.add(1, 0, 1);
        assert_eq!(read(&mut segment).0, [1, 11]);
        assert!(stats.names("/if/names").set(0, "local0"));
        assert_eq!(read(&mut segment).3, ["local0", "loop0"]);
    }

    #[test]
    fn reasons_are_links_with_a_column() {
        let stats = Stats::new(1 << 24).unwrap();
        let errors = stats.simple("/node/errors", 8);
        errors.set_len(3);
        stats.symlink("/err/ip4-input/ip4 ttl <= 1", "/node/errors", 2).unwrap();
        let found = of(&stats).read(|view| Ok(view.errors().to_vec())).unwrap();
        assert_eq!(found, [("ip4-input/ip4 ttl <= 1".to_owned(), 2)]);
    }

    #[test]
    fn what_is_no_segment_is_an_error() {
        let memory = rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(Segment::of(memory, None), Err(Error::Malformed(_))));
        let nobody = Segment::connect(Path::new("/nonexistent/stats.sock"));
        assert!(matches!(nobody, Err(Error::Unreachable(_))));
    }
}
