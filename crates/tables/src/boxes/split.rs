//! Which field to cut, and where.

use super::Ranges;
use super::line::CUTS;
use crate::error::OutOfMemory;

/// Rules that are looked at for the choice, at most.
const SAMPLE: usize = 1024;

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
        self.cuts().partition_point(|cut| *cut < value)
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
    /// The ranges of the rules in a field.
    ranges: Vec<(u32, u32)>,
    /// The ends of those that are inside the box.
    borders: Vec<u32>,
    /// The first and the last child of each rule.
    children: Vec<(u8, u8)>,
}

impl Scratch {
    /// Room for `rules` rules.
    pub(super) fn reserve(&mut self, rules: usize) -> Result<(), OutOfMemory> {
        self.ranges.try_reserve(rules)?;
        self.children.try_reserve(rules)?;
        Ok(self.borders.try_reserve(2 * rules)?)
    }

    /// The best split of a box with these rules; none if nothing separates them well enough.
    pub(super) fn choose<const D: usize>(&mut self, rules: &[Ranges<D>], list: &[u32], bounds: &Ranges<D>) -> Option<Split> {
        let mut best = None;
        // Of a long list, some say as much as all.
        let every = list.len().div_ceil(SAMPLE);
        let mut least = list.len().div_ceil(every) as f64;
        for field in 0..D {
            if !self.take(rules, list.iter().step_by(every), field, bounds) {
                continue;
            }
            let mut last = 0;
            for most in [3, 7, CUTS] {
                let split = self.quantiles(field, most);
                if split.count == last {
                    break;
                }
                last = split.count;
                let cost = self.cost(&split);
                if cost < least {
                    (least, best) = (cost, Some(split));
                }
            }
        }
        best
    }

    /// Takes the ranges of the rules in a field, and the borders between them, sorted. False if there are none.
    fn take<'a, const D: usize>(
        &mut self,
        rules: &[Ranges<D>],
        list: impl Iterator<Item = &'a u32>,
        field: usize,
        bounds: &Ranges<D>,
    ) -> bool {
        self.ranges.clear();
        self.borders.clear();
        for rule in list {
            let rule = &rules[*rule as usize];
            let (low, high) = (rule.low[field], rule.high[field]);
            self.ranges.push((low, high));
            if low > bounds.low[field] {
                self.borders.push(low - 1);
            }
            if high < bounds.high[field] {
                self.borders.push(high);
            }
        }
        self.borders.sort_unstable();
        !self.borders.is_empty()
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

    /// How many rules a lookup meets in a child, if every rule has as many lookups and these are spread over its children, times the
    /// square root of how often a rule is repeated.
    fn cost(&mut self, split: &Split) -> f64 {
        self.children.clear();
        // Where the rules begin, and behind which child they end.
        let mut rules_of = [0f64; CUTS + 2];
        for (low, high) in &self.ranges {
            let (first, last) = (split.child(*low), split.child(*high));
            rules_of[first] += 1.0;
            rules_of[last + 1] -= 1.0;
            self.children.push((first as u8, last as u8));
        }
        // The rules of each child; and from here on those of all before it.
        let (mut now, mut before) = (0.0, 0.0);
        for rules in &mut rules_of {
            now += *rules;
            (*rules, before) = (before, before + now);
        }
        let mean = |&(first, last): &(u8, u8)| {
            let (first, end) = (usize::from(first), usize::from(last) + 1);
            (rules_of[end] - rules_of[first]) / (end - first) as f64
        };
        let met: f64 = self.children.iter().map(mean).sum();
        let rules = self.ranges.len() as f64;
        met / rules * (before / rules).sqrt()
    }
}
