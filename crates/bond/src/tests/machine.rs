//! Two bonds that speak with one another in virtual time.

use std::collections::VecDeque;

use proptest::prelude::*;
use quiver_wire::MacAddr;

use crate::lacp::lag::*;
use crate::lacp::pdu::{Pdu, state};

const SECOND: u64 = 1_000_000_000;

fn system(n: u8) -> MacAddr {
    MacAddr([2, 0xfe, 0, 0, 0, n])
}

/// Two sides and the links between them.
struct Bed {
    now: u64,
    sides: [Lag; 2],
    /// Links that carry, by place.
    cut: Vec<bool>,
    on_the_way: VecDeque<(usize, u8, Pdu)>,
    sent: [u64; 2],
}

impl Bed {
    fn new(links: u8, configs: [PortConfig; 2]) -> Self {
        let mut sides = [Lag::new(system(1), 1), Lag::new(system(2), 7)];
        for (side, config) in sides.iter_mut().zip(configs) {
            for place in 0..links {
                side.add(place, config);
                side.enable(place, true, 0);
            }
        }
        Self { now: 0, sides, cut: vec![false; links.into()], on_the_way: VecDeque::new(), sent: [0; 2] }
    }

    /// Lets a time pass.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            for from in 0..2 {
                self.sides[from].tick(self.now);
                for (place, pdu) in self.sides[from].to_send(self.now) {
                    self.sent[from] += 1;
                    if !self.cut[usize::from(place)] {
                        let read = Pdu::parse(&pdu.to_bytes()).unwrap();
                        self.on_the_way.push_back((1 - from, place, read));
                    }
                }
            }
            if let Some((to, place, pdu)) = self.on_the_way.pop_front() {
                self.sides[to].receive(place, &pdu, self.now);
                continue;
            }
            let due = self.sides.iter().map(|side| side.due(self.now)).min().unwrap();
            assert!(due > self.now, "time passes");
            if due > end {
                self.now = end;
                return;
            }
            self.now = due;
        }
    }

    fn masks(&self) -> [(u32, u32); 2] {
        self.sides.each_ref().map(Lag::masks)
    }
}

const ACTIVE: PortConfig = PortConfig { passive: false, long_timeout: false };
const PASSIVE: PortConfig = PortConfig { passive: true, long_timeout: false };
const SLOW: PortConfig = PortConfig { passive: false, long_timeout: true };

/// What outlives the process of a port at a place, with a byte changed.
type Keeps = fn(&Lag, u8, Option<(usize, u8)>) -> Option<Kept>;

/// One side goes on in another process; the other side does not notice.
pub(super) fn another_takes_over(kept: Keeps) {
    for configs in [[ACTIVE; 2], [SLOW, ACTIVE], [ACTIVE, PASSIVE]] {
        let mut bed = Bed::new(3, configs);
        bed.run(30 * SECOND);
        assert_eq!(bed.masks(), [(7, 7); 2]);
        let before: Vec<Port> = (0..3).map(|place| *bed.sides[1].port(place).unwrap()).collect();
        let mut new = Lag::new(system(1), 1);
        for place in 0..3 {
            new.add(place, configs[0]);
            new.enable(place, true, bed.now);
        }
        let all: Vec<(u8, Kept)> = (0..3).filter_map(|place| Some((place, kept(&bed.sides[0], place, None)?))).collect();
        for _ in 0..2 {
            assert_eq!(new.adopt(&all, bed.now), 3);
            assert_eq!(new.masks(), (7, 7), "at once");
        }
        bed.sides[0] = new;
        for _ in 0..1000 {
            bed.run(SECOND / 5);
            assert_eq!(bed.masks(), [(7, 7); 2]);
        }
        for (place, before) in (0..3).zip(before) {
            let is = bed.sides[1].port(place).unwrap();
            assert_eq!((is.partner, is.actor, is.receive), (before.partner, before.actor, before.receive));
        }
        // A port whose number is another one now, or whose link is down, begins anew.
        let mut other = Lag::new(system(1), 1);
        for place in 0..3 {
            other.add(place, configs[0]);
        }
        other.enable(2, true, bed.now);
        assert_eq!(other.adopt(&[(2, all[0].1), (1, all[1].1)], bed.now), 0);
        // Whatever is read, the machines go on.
        for at in 0..Kept::LEN {
            let all: Vec<(u8, Kept)> = kept(&bed.sides[0], 2, Some((at, 0xff))).map(|kept| (2, kept)).into_iter().collect();
            other.adopt(&all, bed.now);
            other.tick(bed.now);
            other.to_send(bed.now);
        }
    }
}

#[test]
fn two_sides_come_together_after_the_wait() {
    for (configs, what) in
        [([ACTIVE; 2], "active"), ([ACTIVE, PASSIVE], "one passive"), ([SLOW; 2], "slow"), ([SLOW, ACTIVE], "one slow")]
    {
        let mut bed = Bed::new(4, configs);
        bed.run(AGGREGATE_WAIT - SECOND / 10);
        assert_eq!(bed.masks(), [(0, 0); 2], "{what}");
        bed.run(2 * SECOND);
        assert_eq!(bed.masks(), [(0xf, 0xf); 2], "{what}");
        bed.run(600 * SECOND);
        assert_eq!(bed.masks(), [(0xf, 0xf); 2], "{what}: it lasts");
    }
}

#[test]
fn two_passive_sides_never_speak() {
    let mut bed = Bed::new(2, [PASSIVE; 2]);
    bed.run(600 * SECOND);
    assert_eq!(bed.masks(), [(0, 0); 2]);
}

#[test]
fn a_side_is_spoken_to_as_often_as_it_wants() {
    for (configs, least, most) in [([ACTIVE; 2], 100, 104), ([SLOW; 2], 3, 5)] {
        let mut bed = Bed::new(1, configs);
        bed.run(10 * SECOND);
        bed.sent = [0; 2];
        bed.run(100 * SECOND);
        assert!(bed.sent.iter().all(|sent| (least..=most).contains(sent)), "{:?}", bed.sent);
    }
}

#[test]
fn no_more_than_three_units_are_sent_in_a_second() {
    let mut bed = Bed::new(1, [ACTIVE; 2]);
    let mut answered = 0;
    for _ in 0..50 {
        // A partner that never knows who we are.
        let unit = Pdu {
            actor: crate::lacp::pdu::Info { system: system(9), port: 3, state: state::ACTIVITY, ..Default::default() },
            ..Default::default()
        };
        bed.sides[0].receive(0, &unit, bed.now);
        answered += bed.sides[0].to_send(bed.now).len();
    }
    assert_eq!(answered, 3);
    assert_eq!(bed.sides[0].due(bed.now), bed.now + SECOND);
}

#[test]
fn a_partner_that_is_silent_is_lost_after_three_seconds_or_ninety() {
    for (config, timeout) in [(ACTIVE, SHORT_TIMEOUT), (SLOW, LONG_TIMEOUT)] {
        let mut bed = Bed::new(2, [config; 2]);
        bed.run(10 * SECOND);
        bed.cut[1] = true;
        // The last unit may be as old as an interval.
        let interval = if config == ACTIVE { FAST_PERIODIC } else { SLOW_PERIODIC };
        bed.run(timeout - interval - SECOND / 10);
        assert_eq!(bed.masks(), [(3, 3); 2]);
        bed.run(interval + SECOND / 5);
        assert_eq!(bed.masks(), [(1, 1); 2], "the other one stays");
        assert_ne!(bed.sides[0].port(1).unwrap().receive, Receive::Current);
        bed.run(SHORT_TIMEOUT);
        let port = bed.sides[0].port(1).unwrap();
        assert!(port.receive == Receive::Defaulted && port.mux == Mux::Detached && port.actor.has(state::DEFAULTED));
        bed.cut[1] = false;
        bed.run(AGGREGATE_WAIT + 2 * SECOND);
        assert_eq!(bed.masks(), [(3, 3); 2], "it is back");
    }
}

#[test]
fn a_link_that_goes_down_is_out_at_once_and_its_partner_follows() {
    let mut bed = Bed::new(3, [ACTIVE; 2]);
    bed.run(10 * SECOND);
    bed.sides[0].enable(2, false, bed.now);
    assert_eq!(bed.sides[0].masks(), (3, 3));
    bed.run(SHORT_TIMEOUT + SECOND);
    assert_eq!(bed.masks(), [(3, 3); 2]);
    bed.sides[0].enable(2, true, bed.now);
    bed.run(AGGREGATE_WAIT + 2 * SECOND);
    assert_eq!(bed.masks(), [(7, 7); 2]);
    bed.sides[1].remove(0, bed.now);
    bed.run(SHORT_TIMEOUT + SECOND);
    assert_eq!(bed.masks(), [(6, 6); 2]);
}

#[test]
fn no_port_sends_before_its_partner_receives() {
    let mut bed = Bed::new(2, [ACTIVE; 2]);
    bed.run(2 * SECOND - 1);
    for _ in 0..2_000 {
        bed.run(SECOND / 1000);
        let [(sends, _), (other_sends, other_receives)] = bed.masks();
        let (_, receives) = bed.masks()[0];
        assert!(sends & !other_receives == 0 && other_sends & !receives == 0, "{:?}", bed.masks());
    }
    assert_eq!(bed.masks(), [(3, 3); 2]);
}

#[test]
fn ports_that_lead_to_another_system_stay_out() {
    let mut bed = Bed::new(3, [ACTIVE; 2]);
    bed.run(10 * SECOND);
    // Port 2 is plugged into another machine.
    let mut other = Lag::new(system(3), 1);
    other.add(2, ACTIVE);
    other.enable(2, true, bed.now);
    bed.cut[2] = true;
    let mut bed2 = (other, bed);
    for _ in 0..100 {
        let now = bed2.1.now;
        bed2.0.tick(now);
        for (place, pdu) in bed2.0.to_send(now) {
            bed2.1.sides[0].receive(place, &pdu, now);
        }
        for (_, pdu) in bed2.1.sides[0].to_send(now).into_iter().filter(|(place, _)| *place == 2) {
            bed2.0.receive(2, &pdu, now);
        }
        bed2.1.run(SECOND / 10);
    }
    assert_eq!(bed2.1.sides[0].masks().0 & 4, 0);
    assert!(!bed2.1.sides[0].port(2).unwrap().selected);
    assert_eq!(bed2.0.masks(), (0, 0), "it is told so");
}

#[test]
fn a_port_that_is_connected_to_its_own_system_stays_out() {
    let mut lag = Lag::new(system(1), 1);
    (0..2).for_each(|place| lag.add(place, ACTIVE));
    (0..2).for_each(|place| lag.enable(place, true, 0));
    for step in 0..100 {
        let now = step * SECOND / 10;
        lag.tick(now);
        for (place, pdu) in lag.to_send(now) {
            lag.receive(1 - place, &pdu, now);
        }
    }
    assert_eq!(lag.masks(), (0, 0));
}

#[test]
fn another_mac_address_of_the_system_has_all_begin_anew() {
    let mut bed = Bed::new(2, [ACTIVE; 2]);
    bed.run(10 * SECOND);
    bed.sides[0].set_system(system(8), bed.now);
    bed.run(SECOND / 10);
    assert_eq!(bed.sides[1].masks(), (0, 0));
    bed.run(10 * SECOND);
    assert_eq!(bed.masks(), [(3, 3); 2]);
}

proptest! {
    /// Whatever is cut, switched and lost on the way: no port sends that does not receive, time passes, and where all is well at the end
    /// both sides come together.
    #[test]
    fn both_sides_agree_in_the_end(
        steps in prop::collection::vec((0_u8..4, any::<bool>(), any::<bool>(), 0_u64..5_000), 1..40),
        passive in any::<bool>(),
        slow in any::<bool>(),
    ) {
        let mut bed = Bed::new(4, [PortConfig { passive, long_timeout: slow }, ACTIVE]);
        for (place, cut, enable, ms) in steps {
            if enable {
                bed.sides[usize::from(place & 1)].enable(place, !cut, bed.now);
            } else {
                bed.cut[usize::from(place)] = cut;
            }
            bed.run(ms * 1_000_000);
            for (sends, receives) in bed.masks() {
                prop_assert!(sends & !receives == 0);
            }
        }
        bed.cut.fill(false);
        for place in 0..4 {
            let now = bed.now;
            bed.sides.iter_mut().for_each(|side| side.enable(place, true, now));
        }
        bed.run(2 * LONG_TIMEOUT);
        prop_assert_eq!(bed.masks(), [(15, 15); 2]);
    }

    /// Any units in any order.
    #[test]
    fn any_units_leave_the_machines_whole(units in prop::collection::vec((0_u8..3, any::<[u8; 30]>(), 0_u64..4_000), 1..60)) {
        let mut lag = Lag::new(system(1), 1);
        (0..3).for_each(|place| lag.add(place, ACTIVE));
        (0..3).for_each(|place| lag.enable(place, true, 0));
        let mut now = 0;
        for (place, bytes, ms) in units {
            now += ms * 1_000_000;
            lag.tick(now);
            let mut whole = Pdu::default().to_bytes();
            whole[4..19].copy_from_slice(&bytes[..15]);
            whole[24..39].copy_from_slice(&bytes[15..]);
            lag.receive(place, &Pdu::parse(&whole).unwrap(), now);
            let _ = lag.to_send(now);
            prop_assert!(lag.due(now) > now);
            let (sends, receives) = lag.masks();
            prop_assert!(sends & !receives == 0);
        }
    }
}
