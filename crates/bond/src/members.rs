//! What nodes know of a bond's members: where packets leave, and which members may send and receive now.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use quiver_graph::{IfIndex, Verdict};

/// Most members of a bond: one bit of a word for each.
pub const MEMBERS_MAX: usize = 32;

/// How packets reach a member's output node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The member.
    pub interface: IfIndex,
    /// Slot of the bond's tx node.
    pub slot: Verdict,
}

/// Members by place, in the order of places; a place is free where there is none.
pub type Ways = Vec<Option<Way>>;

/// Which members work, a bit for each place. Nodes look once a vector, so a change of state needs no new tables.
#[derive(Debug)]
pub struct Masks {
    /// Members whose link is up; where main alone decides, all.
    ready: AtomicU32,
    /// Members that send.
    send: AtomicU32,
    /// Members whose packets are taken.
    receive: AtomicU32,
}

impl Default for Masks {
    fn default() -> Self {
        Self { ready: AtomicU32::new(u32::MAX), send: AtomicU32::new(0), receive: AtomicU32::new(0) }
    }
}

impl Masks {
    /// Members that send.
    #[inline(always)]
    pub fn sending(&self) -> u32 {
        self.send.load(Ordering::Acquire) & self.ready.load(Ordering::Acquire)
    }

    /// Whether packets of a member are taken.
    #[inline(always)]
    pub fn receives(&self, place: u8) -> bool {
        self.receive.load(Ordering::Acquire) >> place & 1 != 0
    }

    /// Sets both; `true` where that is a change. Main does, or for LACP the thread that has the bond's machines.
    pub fn set(&self, send: u32, receive: u32) -> bool {
        let before = self.receive.swap(receive, Ordering::AcqRel);
        let changed = self.send.swap(send, Ordering::AcqRel) != send;
        changed || before != receive
    }

    /// Says whose link is up, for LACP: a link that is down is out at once, whatever its machines are told.
    pub fn set_ready(&self, ready: u32) {
        self.ready.store(ready, Ordering::Release);
    }
}

/// A member as the input node knows it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its bond.
    pub bond: IfIndex,
    /// Its bit in the masks.
    pub place: u8,
    /// The masks of its bond.
    pub masks: Arc<Masks>,
    /// The thread that has the machines of LACP, where the bond has these.
    pub lacp: Option<usize>,
}

/// Members of all bonds, by their interface.
pub type Members = HashMap<IfIndex, Member>;

/// Buckets of the table by which flows choose members.
const BUCKETS: usize = 256;

/// Which member a flow leaves by.
///
/// A bucket belongs to one of all members. Where that one does not work, its buckets, and no others, are spread over those that do: the flows
/// of the other members stay where they are.
#[derive(Clone, Debug)]
pub struct Table {
    buckets: Box<[Way; BUCKETS]>,
    working: Vec<Way>,
}

const NOWHERE: Way = Way { interface: IfIndex::LOCAL0, slot: Verdict::DROP };

impl Default for Table {
    fn default() -> Self {
        Self { buckets: Box::new([NOWHERE; BUCKETS]), working: Vec::new() }
    }
}

impl Table {
    /// Fills the table anew.
    pub fn fill(&mut self, ways: &Ways, sending: u32) {
        let works = |place: usize| sending >> place & 1 != 0;
        let all: Vec<(bool, Way)> =
            ways.iter().take(MEMBERS_MAX).enumerate().filter_map(|(place, way)| Some((works(place), (*way)?))).collect();
        self.working.clear();
        self.working.extend(all.iter().filter(|(works, _)| *works).map(|(_, way)| *way));
        if self.working.is_empty() {
            return;
        }
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            let (works, own) = all[number % all.len()];
            *bucket = if works { own } else { self.working[number / all.len() % self.working.len()] };
        }
    }

    /// Members that work, in order.
    #[inline(always)]
    pub fn working(&self) -> &[Way] {
        &self.working
    }

    /// The member of a flow. Some member must work.
    #[inline(always)]
    pub fn of(&self, hash: u32) -> Way {
        // The hash is as good in all of its bits.
        self.buckets[(hash >> 24) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(number: u32) -> Way {
        Way { interface: IfIndex(number), slot: Verdict::slot(number as u16) }
    }

    fn chosen(table: &Table) -> Vec<u32> {
        (0..256_u32).map(|bucket| table.of(bucket << 24).interface.0).collect()
    }

    #[test]
    fn only_flows_of_the_member_that_fails_move_and_they_come_back() {
        for members in 1..=MEMBERS_MAX {
            let ways: Ways = (0..members as u32).map(|n| Some(way(n + 1))).collect();
            let all = u32::MAX >> (MEMBERS_MAX - members);
            let mut table = Table::default();
            table.fill(&ways, all);
            let before = chosen(&table);
            for number in 1..=members as u32 {
                let share = before.iter().filter(|n| **n == number).count();
                assert!((256 / members..=256 / members + 1).contains(&share), "{share} of {members}");
            }
            if members == 1 {
                continue;
            }
            table.fill(&ways, all & !2);
            let after = chosen(&table);
            assert_eq!(table.working().len(), members - 1);
            for (was, is) in before.iter().zip(&after) {
                assert!(if *was == 2 { *is != 2 } else { is == was });
            }
            table.fill(&ways, all);
            assert_eq!(chosen(&table), before);
        }
    }

    #[test]
    fn flows_of_a_member_that_fails_are_spread_over_the_others() {
        let ways: Ways = (1..=4).map(|n| Some(way(n))).collect();
        let mut table = Table::default();
        table.fill(&ways, 0b1101);
        let counts = [1, 3, 4].map(|number| chosen(&table).iter().filter(|n| **n == number).count());
        assert!(counts.iter().all(|count| (85..=86).contains(count)), "{counts:?}");
    }

    #[test]
    fn free_places_are_passed_over() {
        let ways: Ways = vec![None, Some(way(5)), None, Some(way(7))];
        let mut table = Table::default();
        table.fill(&ways, u32::MAX);
        assert_eq!(table.working(), [way(5), way(7)]);
        table.fill(&ways, 1 << 3);
        assert!(chosen(&table).iter().all(|number| *number == 7));
        table.fill(&ways, 0b101);
        assert!(table.working().is_empty());
    }
}
