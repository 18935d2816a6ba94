//! Which of many queues have packets, by one system call for all of them.
//!
//! A queue whose device is asked by a system call (a TAP device) costs that call in each poll iteration, packets or not. With 2,000 of them
//! an iteration would take half a millisecond. An epoll set says which descriptors are readable; a queue that has brought packets is asked
//! again until it brings none.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::input::Placed;

/// From so many queues on the set costs less than asking each.
const MANY: usize = 2;
/// Queues that are found to be ready in one call; the others are found in the next ones.
const EVENTS: usize = 64;

/// The set. Each queue in it is known by a number that no other has had; queues are in the order of these.
#[derive(Default)]
pub(super) struct Watch {
    epoll: Option<OwnedFd>,
    last: u64,
    /// The set is to be made anew.
    stale: bool,
}

impl Watch {
    /// A number for a queue that comes.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A queue has come or is up now. There may be no set yet.
    pub fn add(&mut self, placed: &Placed) {
        match &self.epoll {
            None => self.stale = true,
            Some(set) => self.stale |= !enter(set, placed),
        }
    }

    /// A queue goes or is down now.
    pub fn remove(&mut self, placed: &Placed) {
        if let (Some(set), Some(fd)) = (&self.epoll, placed.queue.rx.event_fd()) {
            // SAFETY: the queue owns the descriptor and outlives this call. One that is not in the set is refused.
            let _ = epoll::delete(set, unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }

    /// Queues may have other descriptors than before.
    pub fn renew(&mut self) {
        self.stale = true;
    }

    /// Becomes readable when one of the queues in the set has packets: a thread that sleeps waits for this one alone, and a queue that
    /// comes or goes costs it nothing. None where there is no set.
    pub fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().filter(|_| !self.stale).map(AsRawFd::as_raw_fd)
    }

    /// Marks the queues that have packets; `false` where there is no set, and all are asked.
    pub fn look(&mut self, queues: &mut [Placed]) -> bool {
        if std::mem::take(&mut self.stale) {
            self.epoll = make(queues);
            queues.iter_mut().for_each(|placed| placed.ready = true);
        }
        let Some(epoll) = &self.epoll else { return false };
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        let Ok((ready, _)) = epoll::wait(epoll, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) else { return true };
        for event in ready {
            if let Ok(at) = queues.binary_search_by_key(&event.data.u64(), |placed| placed.number) {
                queues[at].ready = true;
            }
        }
        true
    }
}

fn enter(set: &OwnedFd, placed: &Placed) -> bool {
    if !placed.queue.rx.asks_by_call() {
        return false;
    }
    let Some(fd) = placed.queue.rx.event_fd() else { return false };
    // SAFETY: the queue owns the descriptor and outlives this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    matches!(epoll::add(set, fd, EventData::new_u64(placed.number), EventFlags::IN), Ok(()) | Err(Errno::EXIST))
}

/// A set of these queues; none where they are few, of another kind, or the kernel has no room: then all are asked, which is as right.
fn make(queues: &[Placed]) -> Option<OwnedFd> {
    if queues.len() < MANY {
        return None;
    }
    let set = epoll::create(CreateFlags::CLOEXEC).ok()?;
    queues.iter().filter(|placed| placed.queue.up).all(|placed| enter(&set, placed)).then_some(set)
}
