//! The reactor: which task waits for which descriptor.
//!
//! A descriptor is armed for one event at a time (EPOLLONESHOT) while somebody waits for it. Events carry the
//! descriptor's number and a generation, so that a late event of a closed descriptor does not wake who waits for a new
//! one of the same number.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;

use super::notify::Parker;
use super::timers::{Sleep, Timers};
use crate::clock::Clock;

/// Events taken by one call.
const EVENTS: usize = 64;
/// The event of the loop's own wake-up.
const PARKER: u64 = u64::MAX;

/// Waits for descriptors and timers on behalf of tasks. For the main thread only.
pub struct Reactor {
    epoll: OwnedFd,
    clock: Arc<Clock>,
    parker: Arc<Parker>,
    sources: RefCell<HashMap<RawFd, Source>>,
    pub(super) timers: RefCell<Timers>,
    events: RefCell<Vec<Event>>,
    generation: Cell<u32>,
    next_waiter: Cell<u64>,
}

/// A descriptor that was waited for at least once.
struct Source {
    generation: u32,
    /// The kernel knows it, unless it was closed meanwhile.
    registered: bool,
    waiters: Vec<Waiter>,
}

struct Waiter {
    id: u64,
    direction: EventFlags,
    state: State,
}

enum State {
    Waiting(Waker),
    Done(Result<(), Errno>),
}

impl Reactor {
    pub(super) fn new(clock: Arc<Clock>, parker: &Arc<Parker>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, parker.fd(), EventData::new_u64(PARKER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            clock,
            parker: Arc::clone(parker),
            sources: RefCell::default(),
            timers: RefCell::default(),
            events: RefCell::new(Vec::with_capacity(EVENTS)),
            generation: Cell::new(0),
            next_waiter: Cell::new(0),
        })
    }

    /// The clock that timers follow.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Waits until there is something to read, the peer has closed, or an error is pending. A descriptor that cannot be
    /// polled, such as a file, is always ready.
    pub fn readable<'a>(&'a self, fd: BorrowedFd<'a>) -> Ready<'a> {
        self.ready(fd, EventFlags::IN)
    }

    /// Waits until there is room to write, the peer has closed, or an error is pending.
    pub fn writable<'a>(&'a self, fd: BorrowedFd<'a>) -> Ready<'a> {
        self.ready(fd, EventFlags::OUT)
    }

    /// Waits for a time, by the clock's timer time.
    pub fn sleep(&self, time: Duration) -> Sleep<'_> {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sleep_until(self.clock.timer_now().saturating_add(ns))
    }

    /// Waits until the clock's timer time is `ns`.
    pub fn sleep_until(&self, ns: u64) -> Sleep<'_> {
        Sleep::new(self, ns)
    }

    /// Ends the watch over a descriptor that is about to be closed: whoever waits for it gets an error.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        let Some(mut source) = self.sources.borrow_mut().remove(&fd.as_raw_fd()) else {
            return;
        };
        // An error means that the kernel does not know it any more.
        let _ = epoll::delete(&self.epoll, fd);
        source.registered = false;
        let woken = source.finish(EventFlags::IN | EventFlags::OUT, Err(Errno::CANCELED));
        if !source.waiters.is_empty() {
            // They still have to fetch their error.
            self.sources.borrow_mut().insert(fd.as_raw_fd(), source);
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// The number of futures that wait for descriptors.
    pub fn waiters(&self) -> usize {
        self.sources.borrow().values().map(|source| source.waiters.len()).sum()
    }

    fn ready<'a>(&'a self, fd: BorrowedFd<'a>, direction: EventFlags) -> Ready<'a> {
        let reactor = self;
        Ready { reactor, fd, direction, id: None }
    }

    /// Time until the next timer.
    pub(super) fn next_timer(&self) -> Duration {
        match self.timers.borrow_mut().next() {
            Some(due) => Duration::from_nanos(due.saturating_sub(self.clock.timer_now())),
            None => Duration::MAX,
        }
    }

    pub(super) fn fire_timers(&self) {
        if self.timers.borrow_mut().next().is_none() {
            return;
        }
        let now = self.clock.timer_now();
        // Wakers run outside of the borrow: they may be anything.
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Takes events and wakes who waited for them; waits for the first at most `time`.
    pub(super) fn poll(&self, time: Duration) {
        if !time.is_zero() {
            // poll(2) takes nanoseconds where epoll_wait would round to milliseconds. Interrupted is as good as woken.
            let time = Timespec::try_from(time).ok();
            let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], time.as_ref());
            self.parker.unprepare();
        }
        let mut events = self.events.take();
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        // The only error possible here is an interruption: the events stay where they are.
        let _ = epoll::wait(&self.epoll, spare, Some(&now));
        for event in &events {
            match event.data.u64() {
                PARKER => self.parker.drain(),
                data => self.happened(data, event.flags),
            }
        }
        self.events.replace(events);
    }

    fn happened(&self, data: u64, flags: EventFlags) {
        let (fd, generation) = (data as u32 as RawFd, (data >> 32) as u32);
        let mut sources = self.sources.borrow_mut();
        let Some(source) = sources.get_mut(&fd) else { return };
        if source.generation != generation {
            return;
        }
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let directions = if broken { EventFlags::IN | EventFlags::OUT } else { flags };
        let mut woken = source.finish(directions, Ok(()));
        // The event has disarmed the descriptor for the other direction too.
        if source.waiters.iter().any(Waiter::is_waiting) {
            // SAFETY: a waiter's future holds a `BorrowedFd` of this number, so the descriptor is open. (A future that was
            // forgotten instead of dropped may outlive it: then the kernel answers with an error, as it knows files.)
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Err(error) = self.arm(fd, source, false) {
                woken.extend(source.finish(EventFlags::IN | EventFlags::OUT, Err(error)));
            }
        }
        drop(sources);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Tells the kernel what is waited for. `add`: a descriptor it does not know is added.
    fn arm(&self, fd: BorrowedFd<'_>, source: &mut Source, add: bool) -> Result<(), Errno> {
        let waiting = source.waiters.iter().filter(|waiter| waiter.is_waiting());
        let wanted = waiting.fold(EventFlags::empty(), |flags, waiter| flags | waiter.direction);
        if wanted.is_empty() {
            return Ok(());
        }
        let flags = wanted | EventFlags::ONESHOT;
        if source.registered {
            match epoll::modify(&self.epoll, fd, source.data(fd), flags) {
                // Closed behind our back, and the number used again.
                Err(Errno::NOENT) if add => {}
                result => return result,
            }
        }
        self.generation.set(self.generation.get().wrapping_add(1) & 0x7fff_ffff);
        source.generation = self.generation.get();
        source.registered = true;
        epoll::add(&self.epoll, fd, source.data(fd), flags)
    }

    fn start_waiting(&self, fd: BorrowedFd<'_>, direction: EventFlags, waker: Waker) -> Result<u64, Errno> {
        let id = self.next_waiter.get();
        self.next_waiter.set(id + 1);
        let mut sources = self.sources.borrow_mut();
        let source =
            sources.entry(fd.as_raw_fd()).or_insert_with(|| Source { generation: 0, registered: false, waiters: Vec::new() });
        let state = State::Waiting(waker);
        source.waiters.push(Waiter { id, direction, state });
        let armed = self.arm(fd, source, true);
        if armed.is_err() {
            source.registered = false;
            source.waiters.retain(|waiter| waiter.id != id);
            if source.waiters.is_empty() {
                sources.remove(&fd.as_raw_fd());
            }
        }
        armed.map(|()| id)
    }

    fn stop_waiting(&self, fd: BorrowedFd<'_>, id: u64) {
        let mut sources = self.sources.borrow_mut();
        if let Some(source) = sources.get_mut(&fd.as_raw_fd()) {
            source.waiters.retain(|waiter| waiter.id != id);
            if source.waiters.is_empty() && !source.registered {
                sources.remove(&fd.as_raw_fd());
            }
        }
    }
}

impl Source {
    fn data(&self, fd: BorrowedFd<'_>) -> EventData {
        EventData::new_u64(u64::from(self.generation) << 32 | fd.as_raw_fd() as u64)
    }

    /// Ends all waits of these directions, and returns whom to wake.
    #[must_use]
    fn finish(&mut self, directions: EventFlags, result: Result<(), Errno>) -> Vec<Waker> {
        let concerned = self.waiters.iter_mut().filter(|waiter| directions.intersects(waiter.direction));
        let end = |waiter: &mut Waiter| match std::mem::replace(&mut waiter.state, State::Done(result)) {
            State::Waiting(waker) => Some(waker),
            done @ State::Done(_) => {
                waiter.state = done;
                None
            }
        };
        concerned.filter_map(end).collect()
    }
}

impl Waiter {
    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }
}

/// Waits for a descriptor; made by [`Reactor::readable`] and [`Reactor::writable`].
pub struct Ready<'a> {
    reactor: &'a Reactor,
    fd: BorrowedFd<'a>,
    direction: EventFlags,
    id: Option<u64>,
}

impl Future for Ready<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(id) = self.id else {
            let waker = context.waker().clone();
            return match self.reactor.start_waiting(self.fd, self.direction, waker) {
                Ok(id) => {
                    self.id = Some(id);
                    Poll::Pending
                }
                // What epoll refuses is a file, which never blocks.
                Err(Errno::PERM) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error.into())),
            };
        };
        let mut sources = self.reactor.sources.borrow_mut();
        let source = sources.get_mut(&self.fd.as_raw_fd());
        let waiter = source.and_then(|source| source.waiters.iter_mut().find(|waiter| waiter.id == id));
        let result = match waiter.map(|waiter| &mut waiter.state) {
            Some(State::Waiting(waker)) => {
                waker.clone_from(context.waker());
                return Poll::Pending;
            }
            Some(State::Done(result)) => *result,
            None => Err(Errno::CANCELED),
        };
        drop(sources);
        self.reactor.stop_waiting(self.fd, id);
        self.id = None;
        Poll::Ready(result.map_err(io::Error::from))
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.reactor.stop_waiting(self.fd, id);
        }
    }
}
