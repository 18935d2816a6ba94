//! A hierarchical timer wheel of handles.
//!
//! ```text
//!   level 0: 256 slots of 1 tick          now -> [ | |x| | ... ]      expires within 256 ticks
//!   level 1: 256 slots of 256 ticks              [ |x| |x| ... ]      moves down when its time comes near
//!   level 2: 256 slots of 65,536 ticks           [ | | | |x... ]      as above; what is later waits in the last slot
//! ```
//!
//! A handle is a small index of the caller's (a session, a neighbour); it has one timer. Every slot is a doubly linked
//! list through arrays indexed by handle, so starting, restarting and stopping cost a few stores. A timer never fires
//! early; it fires at the first [`Wheel::expire`] at or after its deadline, rounded up to a tick. Occupied slots have a bit
//! in a bitmap, so that a long sleep costs nothing.

use crate::error::OutOfMemory;

const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 3;
/// Ticks that the wheel spans.
const SPAN: u64 = 1 << (BITS * LEVELS as u32);
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Timer {
    next: u32,
    /// The timer before, or the slot's number with [`HEAD`] set; [`NONE`]: not running.
    previous: u32,
    deadline: u64,
}

const IDLE: Timer = Timer { next: NONE, previous: NONE, deadline: 0 };
const HEAD: u32 = 1 << 31;

/// Timers of handles. Time is a parameter, in whatever unit the caller counts (nanoseconds), and must not run backwards;
/// if it does, nothing expires until it has caught up.
#[derive(Debug)]
pub struct Wheel {
    timers: Vec<Timer>,
    heads: Vec<u32>,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    tick: u64,
    /// The next tick to be processed: all timers due before it have fired.
    now: u64,
    running: usize,
}

impl Wheel {
    /// A wheel whose ticks last `tick` units (at least 1), starting at time `now`.
    pub fn new(tick: u64, now: u64) -> Result<Self, OutOfMemory> {
        let tick = tick.max(1);
        let mut heads = Vec::new();
        heads.try_reserve_exact(LEVELS * SLOTS)?;
        heads.resize(LEVELS * SLOTS, NONE);
        Ok(Wheel { timers: Vec::new(), heads, occupied: Default::default(), tick, now: now / tick, running: 0 })
    }

    /// Makes room for the handles `0..n`, after which starting their timers cannot fail.
    pub fn reserve(&mut self, n: usize) -> Result<(), OutOfMemory> {
        if n > self.timers.len() {
            self.timers.try_reserve(n - self.timers.len())?;
            self.timers.resize(n, IDLE);
        }
        Ok(())
    }

    /// Takes memory for the handles `0..n` without writing to it: nothing moves when their timers are started, and the system gives
    /// pages only where they are.
    pub fn reserve_memory(&mut self, n: usize) -> Result<(), OutOfMemory> {
        self.timers.try_reserve_exact(n.saturating_sub(self.timers.len()))?;
        Ok(())
    }

    /// Starts the timer of `handle`, or moves it: it fires at `deadline`. Handles are below 2^31.
    pub fn start(&mut self, handle: u32, deadline: u64) -> Result<(), OutOfMemory> {
        if handle >= HEAD {
            return Err(OutOfMemory);
        }
        self.reserve(handle as usize + 1)?;
        self.stop(handle);
        // Most wheels count in ticks, and a division takes as long as all the rest.
        self.timers[handle as usize].deadline = if self.tick == 1 { deadline } else { deadline.div_ceil(self.tick) };
        self.running += 1;
        self.link(handle);
        Ok(())
    }

    /// Stops the timer of `handle`; says whether it was running.
    pub fn stop(&mut self, handle: u32) -> bool {
        if !self.is_running(handle) {
            return false;
        }
        let Timer { next, previous, .. } = self.timers[handle as usize];
        if previous & HEAD == 0 {
            self.timers[previous as usize].next = next;
        } else {
            let slot = (previous & !HEAD) as usize;
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
            }
        }
        if next != NONE {
            self.timers[next as usize].previous = previous;
        }
        self.timers[handle as usize] = IDLE;
        self.running -= 1;
        true
    }

    /// Whether the timer of `handle` is running.
    pub fn is_running(&self, handle: u32) -> bool {
        self.timers.get(handle as usize).is_some_and(|t| t.previous != NONE)
    }

    /// How many timers are running.
    pub fn len(&self) -> usize {
        self.running
    }

    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.running == 0
    }

    /// Puts a timer into the slot that its deadline and the present tick call for.
    fn link(&mut self, handle: u32) {
        // What is overdue fires next; what lies past the wheel waits in its last slot and is sorted in again from there.
        let at = self.timers[handle as usize].deadline.clamp(self.now, self.now + SPAN - 1 - (SPAN >> BITS));
        // The level is where the tick and the deadline first differ, so that a slot is never one of a later turn.
        let differ = (at ^ self.now).checked_ilog2().unwrap_or(0) / BITS;
        let level = (differ as usize).min(LEVELS - 1);
        let slot = level * SLOTS + (at >> (BITS * level as u32)) as usize % SLOTS;
        let next = std::mem::replace(&mut self.heads[slot], handle);
        let timer = &mut self.timers[handle as usize];
        (timer.next, timer.previous) = (next, HEAD | slot as u32);
        if next != NONE {
            self.timers[next as usize].previous = handle;
        }
        self.occupied[level][slot % SLOTS / 64] |= 1 << (slot % 64);
    }

    /// Empties a slot and returns the first of its timers.
    fn take_slot(&mut self, level: usize, slot: usize) -> u32 {
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        std::mem::replace(&mut self.heads[level * SLOTS + slot], NONE)
    }

    /// The first occupied slot of a level at or after `from`, without wrapping.
    fn occupied_from(&self, level: usize, from: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let masked = |w: usize| words[w] & if w == from / 64 { u64::MAX << (from % 64) } else { u64::MAX };
        (from / 64..words.len()).find_map(|w| match masked(w) {
            0 => None,
            bits => Some(w * 64 + bits.trailing_zeros() as usize),
        })
    }

    /// The earliest tick at which something must be done (a timer fires, or moves down a level).
    fn next_tick(&self) -> Option<u64> {
        if self.running == 0 {
            return None;
        }
        let mut best = None;
        for level in 0..LEVELS {
            let shift = BITS * level as u32;
            let turn = self.now >> shift;
            let here = turn as usize % SLOTS;
            // A slot of a higher level is due at its first tick; the present one has been moved down already.
            let skip = usize::from(level > 0);
            let distance = match self.occupied_from(level, here + skip).filter(|_| here + skip < SLOTS) {
                Some(slot) => slot - here,
                None => match self.occupied_from(level, 0) {
                    Some(slot) => slot + SLOTS - here,
                    None => continue,
                },
            };
            let tick = if distance == 0 { self.now } else { (turn + distance as u64) << shift };
            best = Some(best.map_or(tick, |b: u64| b.min(tick)));
        }
        best
    }

    /// No timer fires before this time: how long a thread may sleep. `None`: no timer is running.
    pub fn next_deadline(&self) -> Option<u64> {
        self.next_tick().map(|tick| tick.saturating_mul(self.tick))
    }

    /// Appends to `fired` the handles whose deadline is at or before `now`, in the order of their ticks, and stops them.
    /// Returns how many. If `fired` cannot be given memory, the rest fires with the next call.
    pub fn expire(&mut self, now: u64, fired: &mut Vec<u32>) -> usize {
        let before = fired.len();
        let until = now / self.tick;
        while let Some(tick) = self.next_tick().filter(|tick| *tick <= until) {
            self.advance(tick);
            if !self.fire(fired) {
                return fired.len() - before;
            }
        }
        // Nothing is due up to `until`: the ticks in between are skipped.
        self.advance(until);
        fired.len() - before
    }

    /// Goes to `tick`, at or before which nothing is due, and moves down what comes into reach there.
    fn advance(&mut self, tick: u64) {
        self.now = self.now.max(tick);
        for level in (1..LEVELS).rev() {
            let slot = (self.now >> (BITS * level as u32)) as usize % SLOTS;
            let mut handle = self.take_slot(level, slot);
            while handle != NONE {
                let next = self.timers[handle as usize].next;
                self.link(handle);
                handle = next;
            }
        }
    }

    /// Fires the present tick's slot; false if memory ended before that was done.
    fn fire(&mut self, fired: &mut Vec<u32>) -> bool {
        let slot = self.now as usize % SLOTS;
        while self.heads[slot] != NONE {
            if fired.try_reserve(1).is_err() {
                return false;
            }
            let handle = self.heads[slot];
            debug_assert!(self.timers[handle as usize].deadline <= self.now);
            self.stop(handle);
            fired.push(handle);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fire(w: &mut Wheel, now: u64) -> Vec<u32> {
        let mut v = Vec::new();
        assert_eq!(w.expire(now, &mut v), v.len());
        v
    }

    #[test]
    fn fires_at_the_deadline_and_not_before() {
        let mut w = Wheel::new(10, 5).unwrap();
        w.start(3, 25).unwrap();
        assert_eq!((fire(&mut w, 25), w.next_deadline()), (vec![], Some(30)), "rounded up to a tick");
        assert_eq!((fire(&mut w, 30), w.len()), (vec![3], 0));
        w.start(3, 0).unwrap();
        assert_eq!(fire(&mut w, 30), [3], "an overdue timer fires with the next call");
    }

    #[test]
    fn restarting_moves_and_stopping_stops() {
        let mut w = Wheel::new(1, 0).unwrap();
        for h in 0..4 {
            w.start(h, 10).unwrap();
        }
        w.start(1, 20).unwrap();
        assert!(w.stop(2) && !w.stop(2) && !w.stop(99));
        let mut first = fire(&mut w, 10);
        first.sort_unstable();
        assert_eq!((first, fire(&mut w, 19), fire(&mut w, 20)), (vec![0, 3], vec![], vec![1]));
    }

    #[test]
    fn deadlines_at_the_edges_of_the_levels_are_exact() {
        let edges = [0, 1, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, SPAN - 1, SPAN, SPAN + 1, 5 * SPAN + 77];
        for start in [0, 1, 200, 255, 65_535, SPAN - 1, 3 * SPAN + 12_345] {
            for after in edges {
                let mut w = Wheel::new(1, start).unwrap();
                w.start(0, start + after).unwrap();
                if after > 0 {
                    assert_eq!(fire(&mut w, start + after - 1), [], "{start} {after}");
                }
                assert_eq!(fire(&mut w, start + after), [0], "{start} {after}");
                assert_eq!(w.next_deadline(), None);
            }
        }
    }

    #[test]
    fn the_last_moment_of_time_is_no_special_case() {
        let mut w = Wheel::new(1000, u64::MAX - 5_000).unwrap();
        w.start(0, u64::MAX).unwrap();
        assert_eq!(fire(&mut w, u64::MAX - 1_000), []);
        let mut w = Wheel::new(1, 0).unwrap();
        w.start(0, u64::MAX).unwrap();
        assert_eq!(fire(&mut w, 1 << 40), []);
        assert!(w.start(HEAD, 1).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn agrees_with_a_sorted_list(
            start in prop::sample::select(vec![0u64, 250, 65_000, 16_770_000]),
            ops in prop::collection::vec((0u8..4, 0u32..20, prop::sample::select(vec![0u64, 1, 3, 254, 256, 300, 65_500, 70_000, 17_000_000])), 1..200))
        {
            let mut w = Wheel::new(1, start).unwrap();
            let mut model = BTreeMap::new();
            let mut now = start;
            for (op, h, dt) in ops {
                match op {
                    0 | 1 => {
                        w.start(h, now + dt).unwrap();
                        model.insert(h, now + dt);
                    }
                    2 => prop_assert_eq!(w.stop(h), model.remove(&h).is_some()),
                    _ => {
                        // No deadline is later than now, and none that has been announced is passed over.
                        if let Some(next) = w.next_deadline() {
                            prop_assert!(next <= *model.values().min().unwrap_or(&0).max(&now));
                        }
                        now += dt;
                        let mut got = fire(&mut w, now);
                        let deadlines: Vec<u64> = got.iter().map(|h| model[h].max(start)).collect();
                        prop_assert!(deadlines.is_sorted() || deadlines.iter().any(|d| *d < now));
                        let mut due: Vec<u32> = model.iter().filter(|(_, d)| **d <= now).map(|(h, _)| *h).collect();
                        model.retain(|_, d| *d > now);
                        got.sort_unstable();
                        due.sort_unstable();
                        prop_assert_eq!(got, due);
                    }
                }
                prop_assert_eq!(w.len(), model.len());
            }
        }
    }
}
