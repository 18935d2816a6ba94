//! The thread that sends a direction's frames with times, and takes the times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Account, Found, Ready};
use crate::signature::{Reading, Signature};
use crate::time::Time;

/// Longest sleep: times that wait are taken as often.
const NAP: u64 = 1_000_000;
/// Frames whose times are taken before the next one is sent.
const TAKEN: usize = 64;
/// Bytes of a frame and what a device may put before it.
const FRAME: usize = 16 << 10;

/// What the thread and its trial tell each other.
#[derive(Debug, Default)]
struct Shared {
    /// Nothing more is to be sent.
    stop: AtomicBool,
    /// Nothing more is to be taken.
    over: AtomicBool,
    /// How often it has gone to work.
    turns: AtomicU64,
}

/// A thread at work.
pub struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<Found>,
}

impl Running {
    /// Sends from `start` to `end`, ns of the trial's time.
    ///
    /// # Errors
    /// No thread, in one line.
    pub fn start(ready: Ready, time: Time, (start, end): (u64, u64)) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let work = move || {
            Thread { ready, time, start, end, shared: theirs, failed: None, frame: Vec::new(), buffer: vec![0; FRAME] }.run()
        };
        let thread = std::thread::Builder::new().name("timestamps".to_owned()).spawn(work);
        Ok(Self { shared, thread: thread.map_err(|e| format!("no thread for frames with times: {e}"))? })
    }

    /// Has it send nothing more.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// How often it has gone to work so far: each time it may have taken its core from a thread that sends.
    pub fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub fn finish(self) -> Found {
        self.stop();
        self.shared.over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| Found::failed("the thread for frames with times failed".to_owned()))
    }
}

struct Thread {
    ready: Ready,
    time: Time,
    start: u64,
    end: u64,
    shared: Arc<Shared>,
    failed: Option<String>,
    /// A frame that the device had no room for, and which stream's it is; empty where there is none.
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

impl Thread {
    fn run(mut self) -> Found {
        let frames = |pace: &crate::pace::Pace| pace.total().unwrap_or(0);
        let mut accounts: Vec<Account> = self.ready.streams.iter().map(|s| Account::new(frames(&s.pace))).collect();
        loop {
            let over = self.shared.over.load(Ordering::Acquire);
            let next = self.send();
            let more = self.take(&mut accounts);
            if over && !more {
                break;
            }
            if !more {
                let now = self.time.now();
                // Rather a moment too early than too late.
                let rest = next.unwrap_or(u64::MAX).saturating_sub(now).min(NAP);
                std::thread::sleep(Duration::from_nanos(rest));
            }
            self.shared.turns.fetch_add(1, Ordering::Relaxed);
        }
        let clock = self.ready.clock;
        let streams = self.ready.streams.iter().zip(&accounts).map(|(s, account)| (s.at, account.timed(clock))).collect();
        Found { streams, failed: self.failed }
    }

    /// Sends what is due; when the next frame is, where there is one.
    fn send(&mut self) -> Option<u64> {
        let sent = self.ready.sent.clone();
        if sent.over.load(Ordering::Relaxed) {
            return None;
        }
        let next = loop {
            let due = self.ready.streams.iter().enumerate().filter_map(|(at, s)| Some((s.pace.due()?, at))).min();
            let now = self.time.now();
            let Some((due, at)) = due.filter(|_| now < self.end && !self.shared.stop.load(Ordering::Acquire)) else { break None };
            if now < self.start.saturating_add(due) {
                break Some(self.start + due);
            }
            let stream = &mut self.ready.streams[at];
            if self.frame.is_empty() {
                self.frame = stream.maker.make_bytes(now);
            } else {
                stream.maker.restamp(&mut self.frame, now);
            }
            match self.ready.ends.tx.send(&self.frame) {
                Ok(true) => {
                    sent.frames[stream.at].fetch_add(1, Ordering::Relaxed);
                    sent.bytes[stream.at].fetch_add(self.frame.len() as u64 + 4, Ordering::Relaxed);
                    sent.last.store(now, Ordering::Relaxed);
                    self.frame.clear();
                    stream.pace.depart();
                }
                // It goes before all others: the earliest stays the earliest.
                Ok(false) => break Some(now + NAP / 10),
                Err(error) => {
                    self.failed = Some(format!("frames with times could not be sent: {error}"));
                    break None;
                }
            }
        };
        if next.is_none() {
            sent.over.store(true, Ordering::Release);
        }
        next
    }

    /// Takes times that wait; whether more may.
    fn take(&mut self, accounts: &mut [Account]) -> bool {
        let mut more = false;
        for arrivals in [false, true] {
            for taken in 0..TAKEN {
                let buffer = &mut self.buffer;
                let found = if arrivals { self.ready.ends.rx.arrived(buffer) } else { self.ready.ends.tx.departed(buffer) };
                let (length, time) = match found {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(error) => {
                        self.failed.get_or_insert(format!("times of frames could not be read: {error}"));
                        break;
                    }
                };
                more |= taken + 1 == TAKEN;
                let frame = buffer.get(..length).unwrap_or_default();
                let Reading::Valid(signature) = Signature::read(frame) else { continue };
                let place = self.ready.streams.iter().position(|s| s.id == signature.stream && self.ready.tag == signature.tag);
                if let (Some(account), Some(ns)) = (place.and_then(|at| accounts.get_mut(at)), time) {
                    if arrivals { account.came(signature.sequence, ns) } else { account.left(signature.sequence, ns) }
                }
            }
        }
        more
    }
}
