//! Agents in virtual time.

use super::*;
use crate::pdu::write::Local;

const INTERVAL: u32 = 30;

/// A unit of system `n`.
fn said(n: u8, ttl: u16, name: &str) -> Vec<u8> {
    let chassis = quiver_wire::MacAddr([2, 0, 0, 0, 0, n]);
    let local = Local { chassis, port: "eth0".into(), ttl, system_name: Some(name.into()), ..Local::default() };
    let frame = if ttl == 0 { local.last_frame(chassis) } else { local.frame(chassis, 1514).frame };
    frame[14..].to_vec()
}

fn hear(agent: &mut Agent, n: u8, ttl: u16, name: &str, now: u64) -> News {
    let bytes = said(n, ttl, name);
    agent.hear(&Unit::parse(&bytes).unwrap(), now)
}

fn up() -> Agent {
    let mut agent = Agent::default();
    agent.set_up(true, 0);
    agent
}

/// Seconds at which units are sent, up to `end`.
fn sent(agent: &mut Agent, end: u64) -> Vec<u64> {
    let mut times = Vec::new();
    while agent.due() <= end * SECOND {
        let now = agent.due();
        agent.expire(now);
        if agent.sends(INTERVAL, now) {
            times.push(now / SECOND);
        }
    }
    times
}

#[test]
fn a_port_sends_when_it_comes_up_and_then_in_intervals() {
    let mut agent = Agent::default();
    assert_eq!(agent.due(), u64::MAX);
    agent.set_up(true, 5 * SECOND);
    assert_eq!(sent(&mut agent, 100), [5, 35, 65, 95]);
    agent.set_up(false, 100 * SECOND);
    assert_eq!(agent.due(), u64::MAX);
    agent.set_up(true, 110 * SECOND);
    agent.set_up(true, 111 * SECOND);
    assert_eq!(sent(&mut agent, 150), [110, 140]);
    assert_eq!(agent.counts.sent, 6);
}

#[test]
fn a_new_neighbour_is_told_at_once_and_four_times() {
    let mut agent = up();
    assert_eq!(sent(&mut agent, 9), [0]);
    assert_eq!(hear(&mut agent, 1, 1000, "a", 10 * SECOND), News::New);
    assert_eq!(sent(&mut agent, 50), [10, 11, 12, 13, 43]);
    assert_eq!(hear(&mut agent, 1, 1000, "a", 50 * SECOND), News::Same);
    assert_eq!(hear(&mut agent, 1, 1000, "b", 51 * SECOND), News::Changed);
    assert_eq!(sent(&mut agent, 80), [73], "it is no new one");
}

#[test]
fn changes_are_sent_at_once_but_never_more_than_five_and_one_a_second() {
    let mut agent = up();
    let mut times = Vec::new();
    for ms in 0..10_000_u64 {
        let now = ms * SECOND / 1000;
        agent.changed(now);
        if agent.sends(INTERVAL, now) {
            times.push(ms);
        }
    }
    assert_eq!(times, [0, 1, 2, 3, 4, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]);
    assert_eq!(sent(&mut agent, 50), [10, 40], "the last change, and on in intervals");
}

#[test]
fn a_neighbour_is_known_for_as_long_as_it_said() {
    let mut agent = up();
    hear(&mut agent, 1, 3, "a", 0);
    hear(&mut agent, 2, 5, "b", 0);
    hear(&mut agent, 1, 3, "a", SECOND);
    assert!(agent.expire(4 * SECOND - 1).is_empty());
    let gone = agent.expire(4 * SECOND);
    assert_eq!((gone.len(), gone[0].system_name.as_deref()), (1, Some("a")));
    agent.sends(INTERVAL, 4 * SECOND);
    assert!(agent.due() <= 5 * SECOND, "the other one's end");
    assert_eq!(agent.expire(100 * SECOND).len(), 1);
    assert_eq!((agent.counts.ageouts, agent.counts.inserts, agent.counts.deletes), (2, 2, 2));
}

#[test]
fn a_neighbour_that_says_so_is_gone() {
    let mut agent = up();
    hear(&mut agent, 1, 100, "a", 0);
    assert_eq!(hear(&mut agent, 2, 0, "", SECOND), News::Unknown);
    let News::Gone(info) = hear(&mut agent, 1, 0, "", SECOND) else { panic!("not gone") };
    assert_eq!(info.system_name.as_deref(), Some("a"), "the last unit has no name");
    assert!(agent.neighbours().is_empty());
    assert_eq!((agent.counts.deletes, agent.counts.ageouts), (1, 0));
}

#[test]
fn a_flood_takes_a_limited_number_of_places_and_disturbs_no_neighbour() {
    let mut agent = up();
    hear(&mut agent, 0, 10, "first", 0);
    for n in 1..=255 {
        let news = hear(&mut agent, n, 100, "flood", 0);
        assert_eq!(news == News::TooMany, usize::from(n) >= NEIGHBOURS_MAX, "{n}");
    }
    assert_eq!((agent.neighbours().len(), agent.counts.drops), (NEIGHBOURS_MAX, 256 - NEIGHBOURS_MAX as u64));
    assert_eq!(agent.crowded_until, 100 * SECOND);
    assert_eq!(hear(&mut agent, 0, 10, "first", SECOND), News::Same);
    // Fast units to each of them would be a flood, too.
    assert!(sent(&mut agent, 9).len() <= 9);
}
