//! Allocation of the arrays of 1 to 64 nodes or leaves that a poptrie is made of.

use crate::error::OutOfMemory;
use crate::mem::{AtomicRecord, SharedArray};

/// Array lengths are rounded up to one of these, so that arrays which grow entry by entry are not all of different size.
const CLASSES: [u8; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64];

fn class(len: usize) -> usize {
    CLASSES.iter().position(|c| usize::from(*c) >= len).unwrap_or(CLASSES.len() - 1)
}

/// A run of records: where it starts, and how many the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub at: u32,
    pub len: u8,
}

/// Hands out runs of a [`SharedArray`]. Index 0 is never given out, so that "one too low" is not negative.
///
/// Free runs of a class are chained through their first record, by means of `link` functions that the caller gives: a run
/// is only given back when nobody can read it any more (or only those who are protected from nonsense).
#[derive(Debug)]
pub(super) struct Runs {
    /// The first record that was never used.
    fresh: u32,
    end: u32,
    free: [u32; CLASSES.len()],
}

/// How a free record keeps the index of the next one.
pub(super) trait FreeLink: AtomicRecord {
    fn set_next(&self, next: u32);
    fn next(&self) -> u32;
}

impl Runs {
    pub fn new(capacity: usize) -> Self {
        Runs { fresh: 1, end: u32::try_from(capacity).unwrap_or(u32::MAX), free: [0; CLASSES.len()] }
    }

    /// A run of `len` records, 1 to 64. Their contents are whatever was there.
    pub fn take<T: FreeLink>(&mut self, array: &SharedArray<T>, len: usize) -> Result<Run, OutOfMemory> {
        debug_assert!((1..=64).contains(&len));
        let class = class(len);
        let head = self.free[class];
        let run = |at| Run { at, len: len as u8 };
        if let Some(record) = (head != 0).then(|| array.writable(head as usize)).flatten() {
            self.free[class] = record.next();
            return Ok(run(head));
        }
        let at = self.fresh;
        let end = at.checked_add(CLASSES[class].into()).filter(|end| *end <= self.end).ok_or(OutOfMemory)?;
        array.commit(end as usize)?;
        self.fresh = end;
        Ok(run(at))
    }

    /// Takes a run back.
    pub fn give<T: FreeLink>(&mut self, array: &SharedArray<T>, run: Run) {
        let class = class(run.len.into());
        if let Some(record) = array.writable(run.at as usize) {
            record.set_next(self.free[class]);
            self.free[class] = run.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Budget, PageKind};
    use std::sync::atomic::AtomicU32;

    #[test]
    fn classes_hold_what_they_are_chosen_for() {
        for len in 1..=64 {
            let c = class(len);
            assert!(usize::from(CLASSES[c]) >= len && (c == 0 || usize::from(CLASSES[c - 1]) < len));
        }
    }

    #[test]
    fn runs_do_not_overlap_and_come_back() {
        let array = SharedArray::<AtomicU32>::reserve(2000, PageKind::Base, &Budget::unlimited()).unwrap();
        let mut runs = Runs::new(2000);
        let mut owner = [0usize; 2000];
        let mut held: Vec<Run> = Vec::new();
        for i in 1..4000usize {
            if i % 3 == 0 {
                let run = held.swap_remove(i % held.len());
                (run.at..run.at + u32::from(run.len)).for_each(|k| owner[k as usize] = 0);
                runs.give(&array, run);
            } else if let Ok(run) = runs.take(&array, i * 7 % 64 + 1) {
                assert!(run.at > 0);
                for k in run.at..run.at + u32::from(run.len) {
                    assert_eq!(std::mem::replace(&mut owner[k as usize], i), 0);
                }
                held.push(run);
            }
        }
        assert!(held.len() > 10);
    }
}
