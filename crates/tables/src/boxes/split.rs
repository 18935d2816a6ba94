//! Which field to cut, and where.

use super::Ranges;
use super::line::CUTS;
use crate::error::OutOfMemory;

/// How a node cuts its box: a key goes to the child whose number is that of the cuts below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) field: usize,
    cuts: [u32; CUTS],
    count: usize,
}

impl Split {
    /// The greatest value of each child but the last.
    pub(super) fn cuts(&self) -> &[u32] {
        &self.cuts[..self.count]
    }

    /// The child that a value goes to.
    pub(super) fn child(&self, value: u32) -> usize {
        self.cuts().iter().filter(|cut| value > **cut).count()
    }

    /// The part of a child within `bounds`.
    pub(super) fn bounds<const D: usize>(&self, child: usize, bounds: &Ranges<D>) -> Ranges<D> {
        let mut part = *bounds;
        if child > 0 {
            part.low[self.field] = self.cuts[child - 1] + 1;
        }
        if child < self.count {
            part.high[self.field] = self.cuts[child];
        }
        part
    }
}

/// Memory for choosing, used again.
#[derive(Default)]
pub(super) struct Scratch {
    lows: Vec<u32>,
    highs: Vec<u32>,
    borders: Vec<u32>,
}

impl Scratch {
    /// Room for `rules` rules.
    pub(super) fn reserve(&mut self, rules: usize) -> Result<(), OutOfMemory> {
        self.lows.try_reserve(rules)?;
        self.highs.try_reserve(rules)?;
        Ok(self.borders.try_reserve(2 * rules)?)
    }

    /// The split of a box that leaves the least of its rules together; none if nothing separates them.
    ///
    /// What counts is the sum of the squares of the children's rules: how many rules a lookup meets if each rule has equally many,
    /// and how often rules are repeated.
    pub(super) fn choose<const D: usize>(&mut self, rules: &[Ranges<D>], list: &[u32], bounds: &Ranges<D>) -> Option<Split> {
        let mut best = None;
        let mut least = square(list.len());
        for field in 0..D {
            let (from, to) = (bounds.low[field], bounds.high[field]);
            if !self.take(rules, list, field, from, to) {
                continue;
            }
            let mut last = 0;
            for most in [3, 7, CUTS] {
                let split = self.quantiles(field, most);
                if split.count == last {
                    break;
                }
                last = split.count;
                let sum = self.sum(&split, from, to);
                if sum < least {
                    (least, best) = (sum, Some(split));
                }
            }
        }
        best
    }

    /// Takes the ends of the rules in a field, sorted, and the borders between them. False if there are none.
    fn take<const D: usize>(&mut self, rules: &[Ranges<D>], list: &[u32], field: usize, from: u32, to: u32) -> bool {
        self.lows.clear();
        self.highs.clear();
        self.borders.clear();
        for rule in list {
            let rule = &rules[*rule as usize];
            let (low, high) = (rule.low[field].max(from), rule.high[field].min(to));
            self.lows.push(low);
            self.highs.push(high);
            if low > from {
                self.borders.push(low - 1);
            }
            if high < to {
                self.borders.push(high);
            }
        }
        if self.borders.is_empty() {
            return false;
        }
        self.lows.sort_unstable();
        self.highs.sort_unstable();
        self.borders.sort_unstable();
        true
    }

    /// Cuts at up to `most` borders, with about as many between each two.
    fn quantiles(&self, field: usize, most: usize) -> Split {
        let mut split = Split { field, cuts: [0; CUTS], count: 0 };
        for k in 1..=most {
            let cut = self.borders[k * self.borders.len() / (most + 1)];
            if split.cuts().last() != Some(&cut) {
                split.cuts[split.count] = cut;
                split.count += 1;
            }
        }
        split
    }

    /// The sum of the squares of the children's rules.
    fn sum(&self, split: &Split, from: u32, to: u32) -> u64 {
        let mut low = from;
        let mut sum = 0;
        for k in 0..=split.count {
            let high = split.cuts().get(k).copied().unwrap_or(to);
            let begin = self.lows.partition_point(|at| *at <= high);
            let ended = self.highs.partition_point(|at| *at < low);
            sum += square(begin - ended);
            low = high.saturating_add(1);
        }
        sum
    }
}

fn square(rules: usize) -> u64 {
    (rules as u64).saturating_mul(rules as u64)
}
