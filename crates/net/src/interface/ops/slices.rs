//! Making and removing interfaces by the thousand, in slices: packets, timers and sockets are served between them.
//!
//! A slice is a number of interfaces and not a time. With each slice the main thread wakes workers that had gone to sleep; where other
//! programs want the processors this costs more than a hundred interfaces.

use std::time::Duration;

use quiver_command::operation::{Job, OpError, Step};
use quiver_graph::IfIndex;

use super::create::Created;
use crate::Router;
use crate::interface::SubMatch;

/// Sub-interfaces with which an interface is removed in slices.
pub(super) const MANY: usize = 64;
/// Interfaces of a slice: some 2 ms.
const SLICE: usize = 64;

/// Removes an interface with its sub-interfaces.
pub(super) struct Removing {
    index: IfIndex,
    /// Those that are left.
    subs: Vec<IfIndex>,
}

impl Removing {
    pub fn new(index: IfIndex, subs: Vec<IfIndex>) -> Self {
        Self { index, subs }
    }
}

impl Job<Router, ()> for Removing {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<()> {
        let rest = self.subs.len().saturating_sub(SLICE);
        for sub in self.subs.split_off(rest) {
            // Something else of the router's may have removed it between two slices.
            if router.interfaces.get(sub).is_none() {
                continue;
            }
            if let Err(error) = router.delete_interface(sub) {
                return Step::Done(Err(error.into()));
            }
            router.graph.progress();
        }
        if rest > 0 {
            return Step::Again;
        }
        Step::Done(router.delete_interface(self.index).map_err(OpError::from))
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut Router) {
        // Half of an interface is nothing that anybody asked for: it goes on to its end.
    }
}

/// Makes sub-interfaces of a range of ids: all or none.
pub(super) struct Making {
    parent: IfIndex,
    next: u32,
    last: u32,
    matching: fn(u32) -> SubMatch,
    made: Vec<IfIndex>,
    /// Why those that were made go again.
    failed: Option<OpError>,
}

impl Making {
    pub fn new(parent: IfIndex, first: u32, last: u32, matching: fn(u32) -> SubMatch) -> Self {
        Self { parent, next: first, last, matching, made: Vec::new(), failed: None }
    }

    /// Makes one more, or takes one back; says whether there is more to do.
    fn go_on(&mut self, router: &mut Router) -> bool {
        if self.failed.is_some() {
            if let Some(index) = self.made.pop() {
                let _ = router.delete_interface(index);
            }
            return !self.made.is_empty();
        }
        match router.create_sub_interface(self.parent, self.next, (self.matching)(self.next)) {
            Ok(index) => self.made.push(index),
            Err(error) => self.failed = Some(OpError::from(error)),
        }
        self.next += 1;
        self.failed.is_some() || self.next <= self.last
    }
}

impl Job<Router, Created> for Making {
    fn step(&mut self, router: &mut Router, _budget: Duration) -> Step<Created> {
        let mut left = SLICE;
        while self.go_on(router) {
            router.graph.progress();
            left -= 1;
            if left == 0 {
                return Step::Again;
            }
        }
        Step::Done(match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(Created::of(router, &self.made)),
        })
    }

    fn exclusive(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: &mut Router) {
        self.failed.get_or_insert_with(|| OpError::unspecified("cancelled: no sub-interface was made"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::create::Matching;
    use super::*;
    use crate::testing::Harness;

    /// Steps a job until it ends, and counts the slices.
    fn slices<R>(
        job: &mut dyn Job<Router, R>,
        h: &mut Harness,
        mut between: impl FnMut(usize, &mut Harness),
    ) -> (usize, Result<R, OpError>) {
        let mut count = 1;
        loop {
            match job.step(&mut h.router, Duration::ZERO) {
                Step::Done(result) => return (count, result),
                Step::Again => between(count, h),
                _ => panic!("it has nothing to wait for"),
            }
            count += 1;
        }
    }

    fn range(h: &mut Harness) -> (IfIndex, Making) {
        let parent = h.router.create_loopback(None, None).unwrap();
        (parent, Making::new(parent, 1, 200, |id| Matching::Id.of(id)))
    }

    #[test]
    fn a_range_is_made_and_removed_a_slice_at_a_time() {
        let mut h = Harness::new();
        let (parent, mut making) = range(&mut h);
        let (count, made) = slices(&mut making, &mut h, |n, h| assert_eq!(h.router.interfaces.subs(parent).count(), n * SLICE));
        assert_eq!((count, made.unwrap().interfaces.len()), (4, 200));
        let subs: Vec<_> = h.router.interfaces.subs(parent).collect();
        let mut removing = Removing::new(parent, subs.clone());
        let (count, removed) = slices(&mut removing, &mut h, |n, h| {
            assert_eq!(h.router.interfaces.subs(parent).count(), 200 - n * SLICE - usize::from(n > 1));
            if n == 1 {
                // A plugin may remove one, and whoever asked may be gone: it goes on.
                h.router.delete_interface(subs[0]).unwrap();
            }
        });
        removed.unwrap();
        assert!(count == 4 && h.router.interfaces.get(parent).is_none(), "{count}");
    }

    #[test]
    fn a_range_that_fails_or_is_cancelled_leaves_nothing() {
        let mut h = Harness::new();
        let (parent, mut making) = range(&mut h);
        let taken = h.router.create_sub_interface(parent, 100, Matching::Id.of(100)).unwrap();
        let (count, made) = slices(&mut making, &mut h, |_, _| {});
        assert!(made.is_err() && count > 2, "{count}");
        assert_eq!(h.router.interfaces.subs(parent).collect::<Vec<_>>(), [taken]);
        let (parent, mut making) = range(&mut h);
        assert!(matches!(making.step(&mut h.router, Duration::ZERO), Step::Again));
        making.cancel(&mut h.router);
        let (_, made) = slices(&mut making, &mut h, |_, _| {});
        assert!(made.is_err() && h.router.interfaces.subs(parent).count() == 0);
    }
}
