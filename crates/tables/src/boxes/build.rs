//! From rules to lines: which rules go together in a tree, and how its boxes are cut.

use super::line::{CUTS, END, Line, MAX_SLOTS, NEVER_HALF, NEVER_WHOLE};
use super::split::{Scratch, Split};
use super::{Boxes, Ranges, SLOTS_A_RULE, SLOTS_A_TREE, TREES, Tree};
use crate::error::OutOfMemory;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// Rules of a leaf that is not cut any more. With 2, lists of 10,000 rules take nearly twice the memory, and lookups no less time.
const LEAF: usize = 6;
/// Nodes on the way to a leaf, at most.
const DEPTH: u32 = 16;
/// Rules of all leaves that are cut, for each rule of a tree. Lists as people write them take 2 to 12.
const WORK_A_RULE: usize = 32;
/// The same, for each tree.
const WORK_A_TREE: usize = 1 << 16;
/// A group of rules has no tree of its own if it is not more than this part of the rules that it can join.
const JOINED_SHARE: usize = 16;
/// Nor if it has not more rules than this, and than those that it joins.
const JOINED: usize = 32;
/// Addresses that a wide range has, at least: as many as a /4.
const WIDE: u32 = (1 << 28) - 1;

/// A leaf that may be cut: its slot, the nodes above it, its rules in order of precedence, and the box that it stands for.
struct Open<const D: usize> {
    slot: u32,
    depth: u32,
    list: Vec<u32>,
    bounds: Ranges<D>,
}

impl<const D: usize> Open<D> {
    /// The longest list comes first, then the first slot.
    fn rank(&self) -> (usize, std::cmp::Reverse<u32>) {
        (self.list.len(), std::cmp::Reverse(self.slot))
    }
}

impl<const D: usize> PartialEq for Open<D> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}
impl<const D: usize> Eq for Open<D> {}
impl<const D: usize> PartialOrd for Open<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<const D: usize> Ord for Open<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// What has been built so far.
pub(super) struct Builder<'a, const D: usize> {
    rules: &'a [Ranges<D>],
    lines: Vec<Line>,
    trees: Vec<Tree>,
    open: BinaryHeap<Open<D>>,
    /// The slot of a rule that is not the first of its leaf, by its number and the slot of the next one.
    shared: HashMap<(u32, u32), u32>,
    scratch: Scratch,
    /// Slots of the tree, if all leaves stay as they are and share nothing.
    slots: usize,
}

impl<'a, const D: usize> Builder<'a, D> {
    /// Builds trees of rules.
    pub(super) fn new(rules: &'a [Ranges<D>]) -> Result<Self, OutOfMemory> {
        if (rules.len() + 1) * SLOTS_A_RULE + TREES * SLOTS_A_TREE > MAX_SLOTS {
            return Err(OutOfMemory);
        }
        let mut builder = Builder {
            rules,
            lines: Vec::new(),
            trees: Vec::new(),
            open: BinaryHeap::new(),
            shared: HashMap::new(),
            scratch: Scratch::default(),
            slots: 0,
        };
        builder.scratch.reserve(rules.len())?;
        let never = if Boxes::<D>::LINES == 1 { &NEVER_HALF } else { &NEVER_WHOLE };
        builder.lines.try_reserve(Boxes::<D>::LINES)?;
        builder.lines.extend_from_slice(&never[..Boxes::<D>::LINES]);
        let mut groups: [Vec<u32>; TREES] = Default::default();
        for (number, rule) in rules.iter().enumerate() {
            if (0..D).all(|j| rule.low[j] <= rule.high[j]) {
                let group = &mut groups[group_of(rule)];
                group.try_reserve(1)?;
                group.push(number as u32);
            }
        }
        for group in joined(groups)? {
            builder.tree(group)?;
        }
        builder.trees.sort_unstable_by_key(|tree| tree.best);
        Ok(builder)
    }

    /// The lines, and the trees in order of their first rules.
    pub(super) fn finish(self) -> (Box<[Line]>, Vec<Tree>) {
        (self.lines.into_boxed_slice(), self.trees)
    }

    /// Builds the tree of some rules.
    fn tree(&mut self, list: Vec<u32>) -> Result<(), OutOfMemory> {
        let Some(best) = list.first().copied() else { return Ok(()) };
        let root = self.add_slots(1)?;
        self.trees.try_reserve(1)?;
        self.trees.push(Tree { root, best });
        self.slots = list.len();
        let most_slots = list.len() * SLOTS_A_RULE + SLOTS_A_TREE;
        let mut work = list.len() * WORK_A_RULE + WORK_A_TREE;
        let bounds = Ranges { low: [0; D], high: [u32::MAX; D], flags_mask: 0, flags_value: 0 };
        self.open.try_reserve(1)?;
        self.open.push(Open { slot: root, depth: 0, list, bounds });
        while let Some(leaf) = self.open.pop() {
            let split = if leaf.list.len() > LEAF && leaf.depth < DEPTH && leaf.list.len() <= work {
                work -= leaf.list.len();
                self.scratch.choose(self.rules, &leaf.list, &leaf.bounds)
            } else {
                None
            };
            match split {
                Some(split) => self.cut(leaf, &split, most_slots)?,
                None => self.close(&leaf)?,
            }
        }
        Ok(())
    }

    /// Makes a leaf a node, whose children are leaves; or leaves it as it is, where that takes too many slots.
    fn cut(&mut self, leaf: Open<D>, split: &Split, most_slots: usize) -> Result<(), OutOfMemory> {
        let children = split.cuts().len() + 1;
        let mut lists: [Vec<u32>; CUTS + 1] = Default::default();
        let parts: [Ranges<D>; CUTS + 1] = std::array::from_fn(|child| split.bounds(child.min(children - 1), &leaf.bounds));
        let mut full = [false; CUTS + 1];
        for number in &leaf.list {
            let rule = &self.rules[*number as usize];
            for child in split.child(rule.low[split.field])..=split.child(rule.high[split.field]) {
                if !full[child] {
                    lists[child].try_reserve(1)?;
                    lists[child].push(*number);
                    full[child] = covers(rule, &parts[child]);
                }
            }
        }
        let below: usize = lists[..children].iter().map(|list| list.len().max(1)).sum();
        let slots = self.slots + below + 1 - leaf.list.len();
        if slots > most_slots {
            return self.close(&leaf);
        }
        self.slots = slots;
        let first = self.add_slots(children)?;
        self.lines[leaf.slot as usize * Boxes::<D>::LINES] = Line::node(split.field, first, split.cuts());
        for (child, list) in lists.into_iter().enumerate().take(children) {
            // An empty leaf is complete as it was added.
            if !list.is_empty() {
                self.open.try_reserve(1)?;
                self.open.push(Open { slot: first + child as u32, depth: leaf.depth + 1, list, bounds: parts[child] });
            }
        }
        Ok(())
    }

    /// Writes the rules of a leaf: the first one in its slot, the others where all leaves with the same end of a chain find them.
    fn close(&mut self, leaf: &Open<D>) -> Result<(), OutOfMemory> {
        let Some((first, others)) = leaf.list.split_first() else { return Ok(()) };
        let mut next = END;
        for number in others.iter().rev() {
            next = match self.shared.get(&(*number, next)) {
                Some(slot) => *slot,
                None => {
                    let slot = self.add_slots(1)?;
                    self.write(slot, *number, next);
                    self.shared.try_reserve(1)?;
                    self.shared.insert((*number, next), slot);
                    slot
                }
            };
        }
        self.write(leaf.slot, *first, next);
        Ok(())
    }

    fn write(&mut self, slot: u32, number: u32, next: u32) {
        let lines = Line::rule(&self.rules[number as usize], number, next);
        let at = slot as usize * Boxes::<D>::LINES;
        self.lines[at..at + Boxes::<D>::LINES].copy_from_slice(&lines[..Boxes::<D>::LINES]);
    }

    /// Adds empty leaves: the first one's slot.
    fn add_slots(&mut self, count: usize) -> Result<u32, OutOfMemory> {
        let slot = self.lines.len() / Boxes::<D>::LINES;
        self.lines.try_reserve(count * Boxes::<D>::LINES)?;
        for _ in 0..count {
            self.lines.extend_from_within(..Boxes::<D>::LINES);
        }
        Ok(slot as u32)
    }
}

/// The groups, with the small ones in that of rules that are wide in one address less: a tree more costs each lookup more than some
/// rules that are repeated.
fn joined(mut groups: [Vec<u32>; TREES]) -> Result<[Vec<u32>; TREES], OutOfMemory> {
    // From rules wide in both addresses to those wide in one, then from these to those wide in none.
    for (from, to) in [(3, 2), (3, 1), (2, 0), (1, 0)] {
        let (few, many) = (groups[from].len(), groups[to].len());
        if few <= (many / JOINED_SHARE).max(JOINED.min(many)) {
            groups[to].try_reserve(few)?;
            let few = std::mem::take(&mut groups[from]);
            groups[to].extend(few);
            groups[to].sort_unstable();
        }
    }
    Ok(groups)
}

/// Whether a rule has all keys of a box.
fn covers<const D: usize>(rule: &Ranges<D>, part: &Ranges<D>) -> bool {
    rule.flags_mask == 0 && rule.flags_value == 0 && (0..D).all(|j| rule.low[j] <= part.low[j] && part.high[j] <= rule.high[j])
}

/// The tree of a rule: by which of the two addresses is wide in it.
fn group_of<const D: usize>(rule: &Ranges<D>) -> usize {
    // A protocol and two ports come after the addresses, which have equally many words. What they are is not needed: any two
    // fields give right answers.
    let second = D.saturating_sub(3) / 2;
    let wide = |field: usize| usize::from(rule.high[field] - rule.low[field] >= WIDE);
    wide(0) << 1 | wide(second)
}
