//! What outlives the process: numbers of interfaces, and what they have counted.

use std::collections::HashMap;

use super::{InterfaceError, Interfaces};
use crate::Router;
use crate::restart::{Damaged, Load, Names, Round, Save, Subject};

/// Numbers of an interface: eight pairs, eight single ones.
const NUMBERS: usize = 24;

pub(crate) fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("interface counters", 1) });
}

impl Interfaces {
    /// Has interfaces that are made with these names get these numbers, where they are free then.
    pub fn reserve_numbers(&mut self, numbers: HashMap<String, u32>) {
        self.wanted = numbers;
    }

    /// The numbers of all interfaces, by the names that they began with, for [`reserve_numbers`](Self::reserve_numbers).
    pub fn numbers_by_name(&self) -> HashMap<String, u32> {
        self.iter().map(|interface| (interface.origin.name.clone(), interface.index.0)).collect()
    }

    /// A number for a new interface.
    pub(super) fn number_for(&mut self, name: &str) -> Result<u32, InterfaceError> {
        match self.wanted.remove(name) {
            Some(number) if self.numbers.claim(number).unwrap_or(false) => Ok(number),
            _ => self.numbers.alloc().map_err(|_| InterfaceError::Full),
        }
    }
}

fn save(router: &mut Router, save: &mut Save) {
    let counters = router.graph.interfaces().clone();
    let all: Vec<u32> = router.interfaces.iter().map(|interface| interface.index.0).collect();
    save.u64(all.len() as u64);
    for index in all {
        save.u32(index);
        for (_, pair) in counters.combined() {
            let (packets, bytes) = pair.sum(index);
            save.u64(packets).u64(bytes);
        }
        for (_, single) in counters.simple() {
            save.u64(single.sum(index));
        }
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, names: &Names, round: Round) -> Result<u64, Damaged> {
    let mut all = Vec::new();
    for _ in 0..load.count(4 + 8 * NUMBERS)? {
        let index = names.interface(load.u32()?);
        let mut numbers = [0; NUMBERS];
        for number in &mut numbers {
            *number = load.u64()?;
        }
        all.extend(index.map(|index| (index.0, numbers)));
    }
    let n = all.len() as u64;
    // They are added to what is here, so once.
    if round == Round::Last {
        let counters = router.graph.interfaces().clone();
        let Some(thread) = router.graph.fleet().threads().first().copied() else { return Ok(0) };
        router.graph.fleet().on(thread, move |worker| {
            let row = worker.thread();
            for (index, numbers) in all {
                let (pairs, singles) = numbers.split_at(16);
                for ((_, counter), pair) in counters.combined().into_iter().zip(pairs.chunks_exact(2)) {
                    counter.add(row, index, pair[0], pair[1]);
                }
                for ((_, counter), number) in counters.simple().into_iter().zip(singles) {
                    counter.add(row, index, *number);
                }
            }
        });
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Harness;

    #[test]
    fn interfaces_have_their_numbers_and_counts_again() {
        let mut old = Harness::new();
        let first = old.router.create_loopback(Some(1), None).unwrap();
        let second = old.router.create_loopback(Some(2), None).unwrap();
        old.router.delete_interface(first).unwrap();
        old.router.graph.interfaces().rx.add(0, second.0, 7, 700);
        old.router.graph.interfaces().drops.add(0, second.0, 3);
        let (bytes, numbers) = (old.router.snapshot(Round::Ahead), old.router.interfaces.numbers_by_name());

        let mut new = Harness::new();
        new.router.interfaces.reserve_numbers(numbers);
        let other = new.router.create_loopback(Some(5), None).unwrap();
        assert_eq!(new.router.create_loopback(Some(2), None).unwrap(), second);
        assert_ne!(other, second);
        for round in [Round::Ahead, Round::Last] {
            let restored = new.router.restore(&bytes, round).unwrap();
            assert!(restored.iter().any(|r| r.subject == "interface counters" && r.result == Ok(2)), "{restored:?}");
        }
        let counters = new.router.graph.interfaces();
        assert_eq!((counters.rx.sum(second.0), counters.drops.sum(second.0)), ((7, 700), 3));
    }
}
