//! One policer, as the nodes of all threads see it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::meter::{Color, Limits, Tokens};

/// No thread has it.
const NOBODY: u32 = u32::MAX;

/// What happens to packets of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They are dropped.
    Drop,
    /// They go on.
    Transmit,
    /// They go on with this DSCP.
    Mark(u8),
}

/// A policer. Its buckets are written by the thread that has it, without locks: plain loads and stores. While it passes to another
/// thread one update of the buckets can be lost.
#[derive(Debug)]
pub struct Policer {
    /// Its number.
    pub index: u32,
    /// Rates and bursts.
    pub limits: Limits,
    /// By [`Color`].
    pub actions: [Action; 3],
    state: State,
}

/// What changes, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct State {
    committed: AtomicU64,
    excess: AtomicU64,
    at: AtomicU64,
    thread: AtomicU32,
    /// The main thread wants full buckets.
    fill: AtomicBool,
}

impl Policer {
    /// One with full buckets.
    pub fn new(index: u32, limits: Limits, actions: [Action; 3]) -> Self {
        let Tokens { committed, excess, at } = limits.full(0);
        let [committed, excess, at] = [committed, excess, at].map(AtomicU64::new);
        let state = State { committed, excess, at, thread: AtomicU32::new(NOBODY), fill: AtomicBool::new(false) };
        Self { index, limits, actions, state }
    }

    /// The thread that has it; `thread` where none had.
    #[inline(always)]
    pub fn thread(&self, thread: usize) -> usize {
        match self.state.thread.load(Ordering::Relaxed) {
            NOBODY => self.claim(thread),
            owner => owner as usize,
        }
    }

    #[cold]
    fn claim(&self, thread: usize) -> usize {
        let claimed = self.state.thread.compare_exchange(NOBODY, thread as u32, Ordering::Relaxed, Ordering::Relaxed);
        claimed.map_or_else(|owner| owner as usize, |_| thread)
    }

    /// The thread that has it, where one has.
    pub fn owner(&self) -> Option<usize> {
        Some(self.state.thread.load(Ordering::Relaxed)).filter(|owner| *owner != NOBODY).map(|owner| owner as usize)
    }

    /// Gives it to a thread, or to the next one that gets a packet for it.
    pub fn give(&self, thread: Option<usize>) {
        self.state.thread.store(thread.map_or(NOBODY, |thread| thread as u32), Ordering::Relaxed);
    }

    /// Fills the buckets.
    pub fn fill(&self) {
        self.state.fill.store(true, Ordering::Relaxed);
    }

    /// What is in the buckets, as of the last packet.
    #[inline(always)]
    pub fn tokens(&self) -> Tokens {
        let State { committed, excess, at, fill, .. } = &self.state;
        let [committed, excess, at] = [committed, excess, at].map(|word| word.load(Ordering::Relaxed));
        if fill.load(Ordering::Relaxed) { self.limits.full(at) } else { Tokens { committed, excess, at } }
    }

    #[inline(always)]
    fn put(&self, tokens: Tokens) {
        let State { committed, excess, at, fill, .. } = &self.state;
        if fill.load(Ordering::Relaxed) {
            fill.store(false, Ordering::Relaxed);
        }
        committed.store(tokens.committed, Ordering::Relaxed);
        excess.store(tokens.excess, Ordering::Relaxed);
        at.store(tokens.at, Ordering::Relaxed);
    }

    /// Takes a packet's tokens and says its colour. For the thread that has it.
    #[inline(always)]
    pub fn police(&self, now: u64, bytes: u64) -> Color {
        let mut tokens = self.tokens();
        self.limits.refill(&mut tokens, now);
        let color = self.limits.color(&mut tokens, bytes, Color::Conform);
        self.put(tokens);
        color
    }

    /// Takes the tokens of packets that all conform; nothing where one does not. For the thread that has it.
    #[inline(always)]
    pub fn all_conform(&self, now: u64, packets: u64, bytes: u64) -> bool {
        let mut tokens = self.tokens();
        self.limits.refill(&mut tokens, now);
        let all = self.limits.all_conform(&mut tokens, packets, bytes);
        if all {
            self.put(tokens);
        }
        all
    }
}
