//! The state machine in virtual time.

use std::net::IpAddr;

use crate::machine::{Config, Machine, OWNER, Send, State};
use crate::packet::Advertisement;

const CS: u64 = 10_000_000;
const LATER: u64 = 1_000 * CS;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn config(priority: u8) -> Config {
    Config { priority, interval: 100, preempt: true }
}

/// One that was started at [`LATER`] and can send from 10.0.0.5.
fn started(config: Config) -> Machine {
    let mut machine = Machine::new(config);
    machine.set_source(Some(ip(5)), 0);
    machine.start(LATER);
    machine
}

fn heard(priority: u8, interval: u16) -> Advertisement {
    Advertisement { vr_id: 1, priority, interval }
}

/// Lets it act at its due times until `end`; gives times and what was sent.
fn run(machine: &mut Machine, now: u64, end: u64) -> Vec<(u64, Send)> {
    let mut sent = Vec::new();
    loop {
        let at = machine.due().max(now);
        if at > end {
            return sent;
        }
        machine.tick(at);
        let send = machine.take(at);
        if send != Send::default() {
            sent.push((at, send));
        }
    }
}

const fn advert(priority: u8) -> Send {
    Send { advertise: Some(priority), announce: false }
}

const fn first(priority: u8) -> Send {
    Send { advertise: Some(priority), announce: true }
}

#[test]
fn a_backup_becomes_the_master_after_three_intervals_and_the_skew() {
    let mut machine = started(config(100));
    assert_eq!((machine.state(), machine.status().skew, machine.status().master_down), (State::Backup, 61, 361));
    let down = LATER + 300 * CS + 156 * 100 * CS / 256;
    let sent = run(&mut machine, LATER, down + 250 * CS);
    assert_eq!(sent, [(down, first(100)), (down + 100 * CS, advert(100)), (down + 200 * CS, advert(100))]);
    assert_eq!(machine.state(), State::Master);
}

#[test]
fn the_owner_is_the_master_at_once_and_hears_nobody() {
    let mut machine = started(config(OWNER));
    assert_eq!(run(&mut machine, LATER, LATER), [(LATER, first(OWNER))]);
    machine.receive(&heard(255, 100), ip(9), LATER + 1);
    machine.receive(&heard(0, 100), ip(9), LATER + 1);
    assert_eq!((machine.state(), machine.due()), (State::Master, LATER + 100 * CS));
}

#[test]
fn a_backup_learns_the_interval_of_its_master() {
    let mut machine = started(config(100));
    machine.receive(&heard(200, 10), ip(9), LATER);
    let status = machine.status();
    assert_eq!((status.master_interval, status.master, machine.due()), (10, Some(ip(9)), LATER + 30 * CS + 156 * 10 * CS / 256));
}

#[test]
fn a_lower_priority_is_heard_only_without_preemption() {
    let mut machine = started(config(100));
    let due = machine.due();
    machine.receive(&heard(99, 100), ip(9), LATER + 200 * CS);
    assert_eq!(machine.due(), due);
    let mut machine = started(Config { preempt: false, ..config(100) });
    machine.receive(&heard(99, 100), ip(9), LATER + 200 * CS);
    assert_eq!(machine.due(), due + 200 * CS);
}

#[test]
fn priority_zero_ends_the_wait_after_the_skew() {
    let mut machine = started(config(100));
    machine.receive(&heard(200, 100), ip(9), LATER);
    machine.receive(&heard(0, 100), ip(9), LATER + CS);
    assert_eq!(machine.due(), LATER + CS + 156 * 100 * CS / 256);
}

fn master(priority: u8) -> (Machine, u64) {
    let mut machine = started(config(priority));
    let now = machine.due();
    run(&mut machine, LATER, now);
    assert_eq!(machine.state(), State::Master);
    (machine, now)
}

#[test]
fn a_master_gives_way_to_a_better_one_and_asserts_itself_against_others() {
    for (priority, from, gives_way) in
        [(101, 1, true), (100, 6, true), (100, 5, false), (100, 4, false), (99, 6, false), (0, 6, false)]
    {
        let (mut machine, now) = master(100);
        machine.receive(&heard(priority, 50), ip(from), now + 20 * CS);
        let state = if gives_way { State::Backup } else { State::Master };
        assert_eq!(machine.state(), state, "{priority} from {from}");
        if gives_way {
            assert_eq!(machine.due(), now + 20 * CS + 150 * CS + 156 * 50 * CS / 256);
        } else {
            assert_eq!(run(&mut machine, now + 20 * CS, now + 20 * CS), [(now + 20 * CS, advert(100))]);
            assert_eq!(machine.due(), now + 120 * CS, "and the next one in an interval");
        }
    }
}

#[test]
fn a_flood_of_lower_advertisements_is_answered_a_hundred_times_a_second() {
    let (mut machine, now) = master(100);
    let sent: usize = (0..10_000_u64)
        .map(|n| {
            let at = now + n * CS / 100;
            machine.receive(&heard(1, 100), ip(9), at);
            usize::from(machine.take(at).advertise.is_some())
        })
        .sum();
    assert_eq!(sent, 99);
}

#[test]
fn a_master_that_ends_says_so_and_a_backup_does_not() {
    let (mut machine, now) = master(100);
    machine.stop();
    assert_eq!((machine.state(), machine.due()), (State::Initialize, 0));
    assert_eq!(run(&mut machine, now, now), [(now, advert(0))]);
    assert_eq!(machine.due(), u64::MAX);
    let mut machine = started(config(100));
    machine.stop();
    assert_eq!((machine.state(), machine.due()), (State::Initialize, u64::MAX));
}

#[test]
fn without_an_address_to_send_from_it_waits() {
    let (mut machine, now) = master(100);
    machine.set_source(None, now);
    assert_eq!((machine.state(), machine.due()), (State::InterfaceDown, u64::MAX));
    machine.receive(&heard(1, 100), ip(9), now);
    assert_eq!(machine.due(), u64::MAX);
    machine.set_source(Some(ip(7)), now + CS);
    assert_eq!(machine.state(), State::Backup);
    // Another address is no new election.
    let due = machine.due();
    machine.set_source(Some(ip(8)), now + 2 * CS);
    assert_eq!((machine.state(), machine.due()), (State::Backup, due));
    machine.stop();
    machine.set_source(None, now);
    assert_eq!(machine.state(), State::Initialize);
}

#[test]
fn tracked_interfaces_lower_the_priority_and_a_master_says_so_at_once() {
    let (mut machine, now) = master(100);
    machine.set_decrement(30, now + CS);
    assert_eq!(run(&mut machine, now + CS, now + CS), [(now + CS, advert(70))]);
    machine.set_decrement(500, now + CS);
    assert_eq!(machine.priority(), 1);
    machine.set_decrement(0, now + CS);
    assert_eq!(machine.priority(), 100);
}

#[test]
fn another_configuration_is_no_new_election_but_that_of_the_owner_is() {
    let (mut machine, now) = master(100);
    machine.set_config(Config { interval: 10, ..config(150) }, now);
    assert_eq!(run(&mut machine, now, now), [(now, advert(150))]);
    assert_eq!((machine.state(), machine.due()), (State::Master, now + 10 * CS));
    machine.set_config(config(OWNER), now);
    assert_eq!(run(&mut machine, now, now), [(now, first(OWNER))]);
    machine.set_config(config(100), now);
    assert_eq!((machine.state(), machine.take(now)), (State::Backup, Send::default()));
}
