//! Replaying: packets of a recording come in when they are due.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_graph::{RxBurst, RxQueue, RxState};

use super::recording::Recording;
use super::{Shared, Timing};
use crate::sys;

/// The receive queue.
pub(super) struct Replay {
    recording: Arc<Recording>,
    timing: Timing,
    /// Rounds to play; 0: without end.
    rounds: u64,
    shared: Arc<Shared>,
    /// Which start of the interface this is: the replay begins anew with each.
    start: u64,
    /// ns of the router's clock when it began.
    began: Option<u64>,
    round: u64,
    next: usize,
    /// Readable when the next packet is due.
    timer: OwnedFd,
}

impl Replay {
    pub(super) fn new(recording: Arc<Recording>, timing: Timing, rounds: u64, shared: Arc<Shared>) -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: timerfd_create takes two integers.
        let fd = sys::check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: a successful call returns a new descriptor that nobody else owns.
        let timer = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        Ok(Self { recording, timing, rounds, shared, start: 0, began: None, round: 0, next: 0, timer })
    }

    fn is_over(&self) -> bool {
        self.rounds != 0 && self.round >= self.rounds
    }

    /// Begins anew where the interface was brought up again.
    fn look_for_start(&mut self, now: u64) -> u64 {
        let start = self.shared.start.load(Ordering::Acquire);
        if start != self.start {
            (self.start, self.began, self.round, self.next) = (start, None, 0, 0);
        }
        *self.began.get_or_insert(now)
    }

    /// Sets the timer; 0 stops it. Either makes the descriptor unreadable until then.
    fn set_timer(&self, at: u64) {
        let time = |ns: u64| libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as _ };
        let when = libc::itimerspec { it_interval: time(0), it_value: time(at) };
        // SAFETY: `when` lives over the call; no old value is asked for.
        let _ = unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &raw const when, std::ptr::null_mut())
        };
    }
}

impl RxQueue for Replay {
    fn rx(&mut self, burst: &mut RxBurst<'_, '_>) -> RxState {
        let began = self.look_for_start(burst.now());
        let passed = burst.now().saturating_sub(began);
        let mut played = 0;
        while burst.room() > 0 && !self.is_over() && self.recording.due(self.timing, self.round, self.next) <= passed {
            // A missing buffer is counted there; the packet is lost, and we go on.
            burst.push(self.recording.bytes(self.next));
            played += 1;
            self.next += 1;
            if self.next == self.recording.len() {
                (self.next, self.round) = (0, self.round + 1);
            }
        }
        if played > 0 {
            self.shared.replayed.fetch_add(played, Ordering::Relaxed);
            self.shared.rounds.store(self.round, Ordering::Relaxed);
        }
        RxState::Up
    }

    fn arm(&mut self) -> bool {
        if self.start != self.shared.start.load(Ordering::Acquire) {
            return false;
        }
        let due = self.recording.due(self.timing, self.round, self.next);
        match self.began {
            _ if self.is_over() => self.set_timer(0),
            // A time that has passed makes the timer go off at once.
            Some(began) if self.timing != Timing::Max => self.set_timer(began.saturating_add(due).max(1)),
            _ => return false,
        }
        true
    }

    fn event_fd(&self) -> Option<RawFd> {
        Some(self.timer.as_raw_fd())
    }
}
