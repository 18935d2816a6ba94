//! The main thread's part: writes what workers have heard, goes on growing the table, forgets addresses that have been silent.

use std::sync::atomic::Ordering;

use super::events;
use super::hosts;
use super::mac::{MacValue, key_parts};
use crate::Router;

/// Reports applied in one call.
const REPORTS: usize = 256;
/// Buckets looked at for silent addresses in one call.
const AGE_STEP: usize = 512;
/// How often the table is gone through, ns.
const PASS: u64 = 10 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// Where the walk through the table is.
#[derive(Debug, Default)]
pub(super) struct Ageing {
    at: Option<usize>,
    next: u64,
}

/// One call: what there is, within bounds; says when to call next.
pub(super) fn run(router: &mut Router, now: u64) -> u64 {
    router.l2.stamp.store((now / SECOND) as u32, Ordering::Relaxed);
    let mut reports = 0;
    while reports < REPORTS
        && let Some(heard) = router.l2.heard.next()
    {
        router.learn_mac(heard.key, heard.interface);
        reports += 1;
    }
    let grows = router.l2.macs.step();
    let ages = age(router, now);
    let more = hosts::send(router);
    let due = events::send(router, now);
    if reports == REPORTS || grows || ages || more {
        return now;
    }
    // The stamp of seconds must go on while there is anybody to grow old.
    if router.l2.domains.values().any(|d| d.mac_age > 0) { due.min(now + SECOND) } else { due }
}

/// Looks at some buckets; `true` while a pass is not done.
fn age(router: &mut Router, now: u64) -> bool {
    if router.l2.domains.values().all(|d| d.mac_age == 0) {
        return false;
    }
    let l2 = &mut router.l2;
    let at = match l2.ageing.at {
        Some(at) => at,
        None if now >= l2.ageing.next => {
            l2.ageing.next = now + PASS;
            0
        }
        None => return false,
    };
    let end = at + AGE_STEP;
    let stamp = (now / SECOND) as u16;
    for (key, value) in l2.macs.range(at..end) {
        let age = |id| router.l2.domains.get(id).map_or(0, |d| d.mac_age);
        let minutes = router.l2.numbers.get(&key_parts(key).0).map_or(0, age);
        let silent = stamp.wrapping_sub(value.stamp());
        if minutes > 0 && value.is(MacValue::LEARNED) && silent >= u16::from(minutes) * 60 {
            router.forget_mac(key, value);
        }
    }
    let more = end < router.l2.macs.buckets();
    router.l2.ageing.at = more.then_some(end);
    more
}
