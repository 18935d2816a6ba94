//! What became of each frame of a stream, from the sequence numbers that arrive.
//!
//! A window of the last [`WINDOW`] numbers has one bit for each: arrived or not. So a number that comes again is a duplicate, one
//! that comes behind a later one is reordered (RFC 4737, section 3: its number is less than the next one expected), and both are
//! told apart exactly, in constant memory. What comes behind the window is *late*: it may be either, and counts as neither
//! received nor duplicate.
//!
//! Numbers are 32 bits wide on the wire and wrap; they are unwrapped by their distance from the next one expected.

/// Numbers that are remembered.
pub const WINDOW: u64 = 1 << 16;
const WORDS: usize = (WINDOW / 64) as usize;

/// First number of every stream: near the end of the 32 bits, so that each trial sees them wrap.
pub const FIRST: u32 = 0xffff_ff00;

/// What an arrival is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its number, and behind all before it.
    InOrder,
    /// The first of its number, behind a later one.
    Reordered,
    /// Again.
    Duplicate,
    /// Too old to be told.
    Late,
    /// Never sent: beyond the stream's end, or before its beginning.
    Impossible,
}

/// Counts of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Different frames that arrived, in order or not.
    pub received: u64,
    /// Further copies of them.
    pub duplicated: u64,
    /// Of those received: behind a later one.
    pub reordered: u64,
    /// Behind the window.
    pub late: u64,
    /// With numbers that were never sent.
    pub impossible: u64,
}

impl Arrivals {
    /// Adds what another account of the stream has counted.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.late += other.late;
        self.impossible += other.impossible;
    }
}

/// A stream's account.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Next number expected, unwrapped, from 0.
    next: u64,
    /// Numbers below this one exist.
    end: u64,
    seen: Box<[u64; WORDS]>,
    counts: Arrivals,
}

impl Tracker {
    /// The account of a stream of at most `frames` frames.
    pub fn new(frames: u64) -> Self {
        Self { next: 0, end: frames, seen: Box::new([0; WORDS]), counts: Arrivals::default() }
    }

    /// Counts so far.
    pub fn counts(&self) -> Arrivals {
        self.counts
    }

    /// Numbers have no end from now on.
    pub fn await_any(&mut self) {
        self.end = u64::MAX;
    }

    /// Adds what another account of the stream has counted.
    pub fn add_counts(&mut self, other: &Arrivals) {
        self.counts.add(other);
    }

    #[inline(always)]
    fn bit(&mut self, number: u64) -> (&mut u64, u64) {
        (&mut self.seen[(number / 64) as usize % WORDS], 1 << (number % 64))
    }

    /// Notes the arrival of a frame.
    #[inline(always)]
    pub fn arrive(&mut self, sequence: u32) -> Arrival {
        let expected = FIRST.wrapping_add(self.next as u32);
        if sequence == expected && self.next < self.end {
            let next = self.next;
            let (word, bit) = self.bit(next);
            *word |= bit;
            self.next = next + 1;
            self.counts.received += 1;
            return Arrival::InOrder;
        }
        self.arrive_elsewhere(sequence.wrapping_sub(expected) as i32)
    }

    /// Notes the arrival of `n` frames with numbers that follow one another; returns how many of them are received, in order or
    /// not.
    #[inline(always)]
    pub fn arrive_run(&mut self, sequence: u32, n: u32) -> u64 {
        let end = self.next + u64::from(n);
        if sequence != FIRST.wrapping_add(self.next as u32) || end > self.end {
            return self.arrive_each(sequence, n);
        }
        let mut at = self.next;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            self.seen[(at / 64) as usize % WORDS] |= u64::MAX >> (64 - bits) << (at % 64);
            at += bits;
        }
        self.next = end;
        self.counts.received += u64::from(n);
        n.into()
    }

    #[inline(never)]
    fn arrive_each(&mut self, sequence: u32, n: u32) -> u64 {
        let before = self.counts.received;
        (0..n).for_each(|k| {
            self.arrive(sequence.wrapping_add(k));
        });
        self.counts.received - before
    }

    #[inline(never)]
    fn arrive_elsewhere(&mut self, distance: i32) -> Arrival {
        let Some(number) = self.next.checked_add_signed(distance.into()).filter(|n| *n < self.end) else {
            self.counts.impossible += 1;
            return Arrival::Impossible;
        };
        if number >= self.next {
            // What is skipped has not arrived, whatever the bits of a window before say.
            for skipped in self.next.max((number + 1).saturating_sub(WINDOW))..number {
                let (word, bit) = self.bit(skipped);
                *word &= !bit;
            }
            let (word, bit) = self.bit(number);
            *word |= bit;
            self.next = number + 1;
            self.counts.received += 1;
            return Arrival::InOrder;
        }
        if self.next - number > WINDOW {
            self.counts.late += 1;
            return Arrival::Late;
        }
        let (word, bit) = self.bit(number);
        if *word & bit != 0 {
            self.counts.duplicated += 1;
            return Arrival::Duplicate;
        }
        *word |= bit;
        self.counts.received += 1;
        self.counts.reordered += 1;
        Arrival::Reordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The same by remembering everything.
    #[derive(Default)]
    struct Model {
        seen: HashSet<u64>,
        next: u64,
        counts: Arrivals,
    }

    impl Model {
        fn arrive(&mut self, number: u64, end: u64) -> Arrival {
            if number >= end {
                self.counts.impossible += 1;
                return Arrival::Impossible;
            }
            if number + WINDOW < self.next {
                self.counts.late += 1;
                return Arrival::Late;
            }
            if !self.seen.insert(number) {
                self.counts.duplicated += 1;
                return Arrival::Duplicate;
            }
            self.counts.received += 1;
            if number < self.next {
                self.counts.reordered += 1;
                return Arrival::Reordered;
            }
            self.next = number + 1;
            Arrival::InOrder
        }
    }

    fn wire(number: u64) -> u32 {
        FIRST.wrapping_add(number as u32)
    }

    /// Sends `frames` numbers through loss, duplication and displacement, each with its own probability in 256.
    fn compare(seed: u64, frames: u64, start: u64, loss: u64, copies: u64, moved: u64, far: u64) {
        let mut random = Random::new(seed);
        let mut order = Vec::new();
        for number in start..start + frames {
            if random.below(256) < loss {
                continue;
            }
            let times = if random.below(256) < copies { 1 + random.below(3) } else { 1 };
            for _ in 0..times {
                let later = if random.below(256) < moved { random.below(far) } else { 0 };
                order.push((number + later, number));
            }
        }
        order.sort_by_key(|(place, _)| *place);
        let mut tracker = Tracker::new(start + frames);
        tracker.next = start;
        let mut model = Model { next: start, ..Model::default() };
        for (_, number) in order {
            assert_eq!(tracker.arrive(wire(number)), model.arrive(number, start + frames), "number {number}");
        }
        assert_eq!(tracker.counts(), model.counts);
    }

    proptest! {
        #[test]
        fn the_account_is_that_of_a_model_that_remembers_everything(
            seed: u64, frames in 0_u64..3000, loss in 0_u64..256, copies in 0_u64..256, moved in 0_u64..256,
            far in prop_oneof![1_u64..100, 1_u64..4000],
            // Across the wrap of 32 bits, and across it a second time.
            start in prop_oneof![Just(0_u64), Just(1_u64 << 31), ((1_u64 << 32) - 3000)..(1 << 32)],
        ) {
            compare(seed, frames, start, loss, copies, moved, far);
        }
    }

    #[test]
    fn a_run_is_as_its_frames_one_by_one() {
        let mut random = Random::new(5);
        let (mut runs, mut singles) = (Tracker::new(150_000), Tracker::new(150_000));
        let mut at = 0_u64;
        for _ in 0..5000 {
            // Mostly onwards; now and then something is left out, or comes again.
            at = match random.below(8) {
                0 => at + random.below(100),
                1 => at.saturating_sub(random.below(100)),
                _ => at,
            };
            let n = random.below(200) as u32;
            let before = singles.counts();
            (0..n).for_each(|k| {
                singles.arrive(wire(at + u64::from(k)));
            });
            assert_eq!(runs.arrive_run(wire(at), n), singles.counts().received - before.received);
            assert_eq!((runs.counts(), runs.next, &runs.seen), (singles.counts(), singles.next, &singles.seen));
            at += u64::from(n);
        }
        assert!(runs.counts().impossible > 0 && runs.counts().reordered + runs.counts().duplicated > 0);
    }

    #[test]
    fn the_account_is_right_beyond_the_window_too() {
        compare(1, 400_000, 0, 20, 20, 20, 3 * WINDOW);
        compare(2, 400_000, (1 << 32) - 100_000, 1, 1, 1, 2 * WINDOW);
    }

    #[test]
    fn a_jump_over_more_than_the_window_forgets_it() {
        let mut tracker = Tracker::new(u64::MAX);
        for n in 0..100 {
            tracker.arrive(wire(n));
        }
        assert_eq!(tracker.arrive(wire(100 + 2 * WINDOW)), Arrival::InOrder);
        // Same places in the window as the first hundred.
        assert_eq!(tracker.arrive(wire(2 * WINDOW + 50)), Arrival::Reordered);
        assert_eq!(tracker.arrive(wire(WINDOW + 101)), Arrival::Reordered);
        assert_eq!(tracker.arrive(wire(WINDOW + 100)), Arrival::Late);
        assert_eq!(tracker.arrive(wire(50)), Arrival::Late);
    }

    #[test]
    fn what_was_never_sent_is_impossible() {
        let mut tracker = Tracker::new(10);
        assert_eq!(tracker.arrive(wire(10)), Arrival::Impossible);
        assert_eq!(tracker.arrive(FIRST.wrapping_sub(1)), Arrival::Impossible);
        assert_eq!(tracker.arrive(wire(9)), Arrival::InOrder);
        assert_eq!(tracker.arrive(wire(10)), Arrival::Impossible);
        assert_eq!(tracker.counts().impossible, 3);
    }
}
