//! Threads that wait for peers in place of the main thread.
//!
//! Descriptors come with messages, and a peer may send any: a file of a user-space file system whose `close` waits for the
//! peer's answer, a TCP socket that lingers for hours. Nobody can look at a descriptor before it has it, and what is not wanted
//! must be closed; also by the kernel, in the thread that receives, when there is no room for it, and in the thread that closes
//! a socket, for messages that nobody has read. So control channels are read and all that came from a peer is closed here, by
//! a few threads for each memif socket, which may be lost. They pass on only descriptors that are known not to wait: memory
//! files and eventfds.
//!
//! What is lost with them is the control channels of this socket, for peers that use it. Packets, other sockets and the main
//! thread go on.

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::fcntl_get_seals;

use super::connection::Rings;
use super::event::is_event;
use super::hub::give;
use super::socket::{self, Received};

/// Threads of one socket.
const THREADS: usize = 4;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(5);

/// What a peer's descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file of tmpfs or hugetlbfs: nothing done to it waits for the peer, but its end takes its time where it is large.
    Memory,
    /// An eventfd.
    Event,
    /// Anything else.
    Other,
}

/// A peer's descriptor. Whoever does not take it leaves it to the threads.
#[derive(Debug)]
pub(super) struct Given {
    kind: Kind,
    fd: Option<OwnedFd>,
    background: Background,
}

impl Given {
    /// Finds out what it is, without asking the file itself. What is of no use is closed here.
    fn new(fd: OwnedFd, background: Background) -> Self {
        // Only files of these two kinds have seals; others are refused before their file system is asked.
        let kind = if fcntl_get_seals(&fd).is_ok() {
            Kind::Memory
        } else if is_event(&fd) {
            Kind::Event
        } else {
            Kind::Other
        };
        Self { kind, fd: Some(fd).filter(|_| kind != Kind::Other), background }
    }

    /// The descriptor, if it is one of this kind.
    pub(super) fn take(mut self, kind: Kind) -> Option<OwnedFd> {
        if self.kind == kind { self.fd.take() } else { None }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.background.discard(fd);
        }
    }
}

/// What came on a control channel.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message's bytes, and the descriptor beside it.
    Bytes(Vec<u8>, Option<Given>),
    /// Nothing for now.
    Nothing,
    /// The peer is gone.
    End,
    /// What [`Background::prepare`] was given is done.
    Prepared(Result<Box<Rings>, &'static str>),
}

/// Makes a connection's memory ready for packets.
pub(super) type Preparation = Box<dyn FnOnce() -> Result<Box<Rings>, &'static str> + Send>;

enum Job {
    Receive { token: u64, socket: Arc<OwnedFd> },
    Prepare { token: u64, work: Preparation },
    Discard(#[allow(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send>),
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    heard: Vec<(u64, Heard)>,
    threads: usize,
    /// Threads at work.
    running: usize,
}

struct Inner {
    state: Mutex<State>,
    work: Condvar,
    /// Given when something was heard.
    wake: Arc<OwnedFd>,
}

/// The threads of a socket. Clones are handles of the same.
#[derive(Clone)]
pub(super) struct Background(Arc<Inner>);

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Background({} jobs)", self.backlog())
    }
}

impl Background {
    /// No threads yet; `wake` is made readable when something was heard.
    pub(super) fn new(wake: Arc<OwnedFd>) -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), work: Condvar::new(), wake }))
    }

    /// Receives one message; [`Background::heard`] tells which.
    pub(super) fn receive(&self, token: u64, socket: Arc<OwnedFd>) {
        self.submit(Job::Receive { token, socket });
    }

    /// Makes memory ready; [`Background::heard`] tells the result.
    pub(super) fn prepare(&self, token: u64, work: Preparation) {
        self.submit(Job::Prepare { token, work });
    }

    /// Drops something that came from a peer.
    pub(super) fn discard(&self, what: impl Send + 'static) {
        self.submit(Job::Discard(Box::new(what)));
    }

    /// What was received since the last call.
    pub(super) fn heard(&self) -> Vec<(u64, Heard)> {
        std::mem::take(&mut self.0.lock().heard)
    }

    /// What no thread has begun with.
    pub(super) fn backlog(&self) -> usize {
        self.0.lock().jobs.len()
    }

    /// What is begun or waits.
    pub(super) fn unfinished(&self) -> usize {
        let state = self.0.lock();
        state.jobs.len() + state.running
    }

    /// Whether every thread that there may be is at work.
    pub(super) fn is_saturated(&self) -> bool {
        self.0.lock().running == THREADS
    }

    fn submit(&self, job: Job) {
        self.0.lock().jobs.push_back(job);
        self.attend();
    }

    /// Sees to it that somebody takes the next job: called again now and then while there is a backlog.
    pub(super) fn attend(&self) {
        let mut state = self.0.lock();
        if state.jobs.len() > state.threads - state.running && state.threads < THREADS {
            let inner = Arc::clone(&self.0);
            // Where there is no thread to be had, the job waits for the next call.
            if std::thread::Builder::new().name("quiver_memif".into()).spawn(move || inner.serve()).is_ok() {
                state.threads += 1;
            }
        }
        drop(state);
        self.0.work.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.running += 1;
                drop(state);
                let heard = run(job, &Background(self.clone()));
                state = self.lock();
                state.running -= 1;
                if let Some(heard) = heard {
                    state.heard.push(heard);
                    give(&self.wake);
                }
                continue;
            }
            let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Does a job, outside of any lock: this is what may take for ever.
fn run(job: Job, background: &Background) -> Option<(u64, Heard)> {
    match job {
        Job::Receive { token, socket } => Some((
            token,
            match socket::receive(&socket) {
                Received::Bytes(bytes, fd) => Heard::Bytes(bytes, fd.map(|fd| Given::new(fd, background.clone()))),
                Received::Nothing => Heard::Nothing,
                Received::End => Heard::End,
            },
        )),
        Job::Prepare { token, work } => Some((token, Heard::Prepared(work()))),
        Job::Discard(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::mpsc;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::memif::event::new_event;

    fn background() -> (Background, Arc<OwnedFd>) {
        let wake = Arc::new(new_event().unwrap());
        (Background::new(wake.clone()), wake)
    }

    fn next(background: &Background, wake: &OwnedFd) -> (u64, Heard) {
        loop {
            assert!(crate::sys::wait_readable(wake, 10_000).unwrap(), "nothing was heard");
            let _ = rustix::io::read(wake, &mut [0; 8]);
            if let Some(heard) = background.heard().pop() {
                return heard;
            }
        }
    }

    #[test]
    fn descriptors_are_told_apart_without_asking_them() {
        let (background, wake) = background();
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        let b = Arc::new(b);
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let memory = memfd_create(c"x", MemfdFlags::CLOEXEC).unwrap();
        // The same file by a descriptor that can do nothing.
        let name = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let path = rustix::fs::open(name, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        let event = new_event().unwrap();
        let cases = [(memory, Kind::Memory), (event, Kind::Event), (pipe, Kind::Other), (path.unwrap(), Kind::Other)];
        for (token, (fd, expected)) in cases.into_iter().enumerate() {
            socket::send_bytes(&a, &[1], Some(fd.as_fd())).unwrap();
            background.receive(token as u64, b.clone());
            let (from, heard) = next(&background, &wake);
            assert_eq!(from, token as u64);
            let Heard::Bytes(bytes, Some(given)) = heard else { panic!("{heard:?}") };
            assert_eq!((bytes, given.kind), (vec![1], expected));
            assert_eq!(given.take(expected).is_some(), expected != Kind::Other);
        }
        drop(a);
        background.receive(9, b);
        assert!(matches!(next(&background, &wake), (9, Heard::End)));
    }

    /// Something whose end takes until it is let go.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_takes_for_ever_holds_up_nobody_but_a_thread() {
        let (background, wake) = background();
        let (_a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap();
        let b = Arc::new(b);
        let mut hold = Vec::new();
        for _ in 1..THREADS {
            let (sender, receiver) = mpsc::channel();
            hold.push(sender);
            background.discard(Slow(receiver));
        }
        for token in 0..10 {
            background.receive(token, b.clone());
            assert!(matches!(next(&background, &wake), (t, Heard::Nothing) if t == token));
        }
        let (sender, receiver) = mpsc::channel();
        background.discard(Slow(receiver));
        background.receive(77, b);
        while !background.is_saturated() {
            std::thread::yield_now();
        }
        assert_eq!(background.backlog(), 1, "no more threads than there may be");
        // One is let go: the rest is done.
        drop(sender);
        assert!(matches!(next(&background, &wake), (77, Heard::Nothing)));
        drop(hold);
    }
}
