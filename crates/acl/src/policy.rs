//! What the access lists of a direction of an interface come to: one structure for each family, in which the first rule is found that
//! a packet is in. Built on the main thread, never changed, shared by all interfaces that have the same lists.

use std::sync::Arc;

use quiver_graph::stats::CombinedCounters;
use quiver_tables::boxes::Boxes;
use quiver_tables::error::OutOfMemory;

use crate::packet::{FOUR, Family, Flow, Four, SIX, Seen, Six};
use crate::rule::{Action, Fields, Rule};

/// A rule that a packet is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Number of the list.
    pub acl: u32,
    /// The rule's place in it.
    pub rule: u32,
    /// What becomes of the packet.
    pub action: Action,
    /// The list's place among those of the policy.
    position: u32,
}

/// Rules of a family.
#[derive(Debug)]
struct Rules<const D: usize> {
    /// For packets that have ports where their protocol has them.
    whole: Boxes<D>,
    /// For later fragments, which have none; where that makes a difference.
    later: Option<Boxes<D>>,
    matches: Vec<Match>,
}

impl<const D: usize> Rules<D> {
    fn new<F: Fields<D>>(lists: &[ListOf<'_>]) -> Result<Self, OutOfMemory> {
        let (mut whole, mut later, mut matches) = (Vec::new(), Vec::new(), Vec::new());
        for (position, list) in lists.iter().enumerate() {
            for (at, rule) in list.rules.iter().enumerate() {
                let (Some(ranges), Some(of_later)) = (F::ranges(rule, false), F::ranges(rule, true)) else { continue };
                whole.push(ranges);
                later.push(of_later);
                matches.push(Match { acl: list.number, rule: at as u32, action: rule.action, position: position as u32 });
            }
        }
        let later = (later != whole).then(|| Boxes::new(&later)).transpose()?;
        Ok(Self { whole: Boxes::new(&whole)?, later, matches })
    }

    fn memory_bytes(&self) -> usize {
        self.whole.memory_bytes() + self.later.as_ref().map_or(0, Boxes::memory_bytes) + size_of_val(&*self.matches)
    }
}

/// A list, for a policy.
#[derive(Clone, Copy)]
pub struct ListOf<'a> {
    /// Its number.
    pub number: u32,
    /// Its rules.
    pub rules: &'a [Rule],
    /// Its counters.
    pub counters: Option<&'a Arc<CombinedCounters>>,
}

/// What a direction of an interface permits.
pub struct Policy {
    four: Rules<FOUR>,
    six: Rules<SIX>,
    counters: Vec<Option<Arc<CombinedCounters>>>,
    /// Whether a rule begins sessions.
    pub reflects: bool,
}

impl std::fmt::Debug for ListOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListOf").field("number", &self.number).field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("four", &self.four).field("six", &self.six).finish_non_exhaustive()
    }
}

impl Policy {
    /// Builds it of lists in the order in which they are looked at.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(lists: &[ListOf<'_>]) -> Result<Self, OutOfMemory> {
        Ok(Self {
            four: Rules::new::<Four>(lists)?,
            six: Rules::new::<Six>(lists)?,
            counters: lists.iter().map(|list| list.counters.cloned()).collect(),
            reflects: lists.iter().any(|list| list.rules.iter().any(|rule| rule.action == Action::Reflect)),
        })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.four.memory_bytes() + self.six.memory_bytes()
    }

    /// Counts a packet by its rule.
    #[inline(always)]
    pub fn count(&self, thread: usize, found: &Match, bytes: u64) {
        if let Some(Some(counters)) = self.counters.get(found.position as usize) {
            counters.add(thread, found.rule, 1, bytes);
        }
    }
}

/// The rules of a family in a policy.
pub trait RulesOf<const D: usize>: Family<D> {
    /// The first rule that has a packet. `ported`: later fragments are in no rule that looks at ports, as if they had some.
    fn find<'a>(policy: &'a Policy, seen: &Seen<D>, ported: bool) -> Option<&'a Match>;

    /// The same of several packets, none of which is a later fragment.
    fn find_batch<'a>(policy: &'a Policy, seen: &[Seen<D>; BATCH]) -> [Option<&'a Match>; BATCH];
}

/// Packets that are looked up at once.
pub const BATCH: usize = 16;

#[inline(always)]
fn find_batch<'a, const D: usize>(rules: &'a Rules<D>, seen: &[Seen<D>; BATCH]) -> [Option<&'a Match>; BATCH] {
    let found = rules.whole.find_batch(&seen.map(|seen| seen.fields), &seen.map(|seen| seen.tcp_flags));
    found.map(|at| rules.matches.get(at? as usize))
}

#[inline(always)]
fn find<'a, const D: usize>(rules: &'a Rules<D>, seen: &Seen<D>, ported: bool) -> Option<&'a Match> {
    let boxes = match &rules.later {
        Some(later) if !ported && seen.flow == Flow::Later => later,
        _ => &rules.whole,
    };
    rules.matches.get(boxes.find(&seen.fields, seen.tcp_flags)? as usize)
}

impl RulesOf<FOUR> for Four {
    #[inline(always)]
    fn find<'a>(policy: &'a Policy, seen: &Seen<FOUR>, ported: bool) -> Option<&'a Match> {
        find(&policy.four, seen, ported)
    }

    #[inline(always)]
    fn find_batch<'a>(policy: &'a Policy, seen: &[Seen<FOUR>; BATCH]) -> [Option<&'a Match>; BATCH] {
        find_batch(&policy.four, seen)
    }
}

impl RulesOf<SIX> for Six {
    #[inline(always)]
    fn find<'a>(policy: &'a Policy, seen: &Seen<SIX>, ported: bool) -> Option<&'a Match> {
        find(&policy.six, seen, ported)
    }

    #[inline(always)]
    fn find_batch<'a>(policy: &'a Policy, seen: &[Seen<SIX>; BATCH]) -> [Option<&'a Match>; BATCH] {
        find_batch(&policy.six, seen)
    }
}
