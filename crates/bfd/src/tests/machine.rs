//! The machine in virtual time: two of them over a link that loses packets.

use proptest::prelude::*;

use crate::packet::{Control, State, diagnostic};
use crate::session::{Heard, Session, Timing};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const FAST: Timing = Timing { desired_min_tx: 10_000, required_min_rx: 10_000, detect_mult: 3 };

/// Two sessions and what is on its way between them.
struct Link {
    sides: [Session; 2],
    now: u64,
    delay: u64,
    /// When, to whom, what.
    flying: Vec<(u64, usize, Control)>,
    /// When each side has sent without being asked.
    sent: [Vec<u64>; 2],
    /// Packets to a side are lost.
    cut: [bool; 2],
}

impl Link {
    fn new(timings: [Timing; 2], seed: u64) -> Self {
        let side = |n: u32| Session::new(n + 1, timings[n as usize], seed + u64::from(n), 0);
        Self { sides: [side(0), side(1)], now: 0, delay: MS / 10, flying: Vec::new(), sent: Default::default(), cut: [false; 2] }
    }

    fn fly(&mut self, from: usize, control: Control) {
        if !self.cut[1 - from] {
            self.flying.push((self.now + self.delay, 1 - from, control));
        }
    }

    /// Goes on until a time; each step is the next thing that happens.
    fn run(&mut self, until: u64) {
        loop {
            let arrival = self.flying.iter().map(|(at, ..)| *at).min().unwrap_or(u64::MAX);
            let next = arrival.min(self.sides[0].due()).min(self.sides[1].due());
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            let now = self.now;
            let arrived: Vec<_> = self.flying.extract_if(.., |(at, ..)| *at <= now).collect();
            for (_, to, control) in arrived {
                let Heard { answer, .. } = self.sides[to].receive(&control, now);
                if let Some(is_final) = answer {
                    let control = self.sides[to].send(is_final, now);
                    self.fly(to, control);
                }
            }
            for side in 0..2 {
                if self.sides[side].tick(now).send {
                    let control = self.sides[side].send(false, now);
                    self.sent[side].push(now);
                    self.fly(side, control);
                }
            }
        }
    }

    fn states(&self) -> [State; 2] {
        [self.sides[0].state(), self.sides[1].state()]
    }
}

#[test]
fn two_sides_come_up_and_agree_on_the_slower_interval_of_each_direction() {
    let slow = Timing { desired_min_tx: 50_000, required_min_rx: 30_000, detect_mult: 5 };
    let mut link = Link::new([FAST, slow], 7);
    link.run(3 * SECOND);
    assert_eq!(link.states(), [State::Up; 2]);
    let [a, b] = [0, 1].map(|n| link.sides[n].status());
    assert_eq!((a.tx_interval, b.tx_interval), (30_000, 50_000));
    assert_eq!((a.detection_time, b.detection_time), (250_000, 90_000));
    assert!(!a.polling && !b.polling, "each has confirmed the other's intervals");
    assert_eq!((a.remote.discriminator, b.remote.discriminator), (2, 1));
}

#[test]
fn a_session_that_is_not_up_sends_about_once_a_second() {
    let mut link = Link::new([FAST; 2], 1);
    link.cut = [true; 2];
    link.run(60 * SECOND);
    assert_eq!(link.states(), [State::Down; 2]);
    for sent in &link.sent {
        assert!(sent.windows(2).all(|pair| (SECOND * 3 / 4..=SECOND).contains(&(pair[1] - pair[0]))), "{sent:?}");
    }
}

#[test]
fn silence_brings_both_down_and_the_one_that_still_sends_says_so() {
    let mut link = Link::new([FAST; 2], 3);
    link.run(3 * SECOND);
    link.cut[0] = true;
    let cut = link.now;
    link.run(cut + 31 * MS);
    // Side 0 hears nothing any more; what it says then brings side 1 down at once.
    assert_eq!(link.states(), [State::Down; 2]);
    let [a, b] = [0, 1].map(|n| link.sides[n].status());
    assert_eq!((a.diagnostic, b.diagnostic), (diagnostic::TIME_EXPIRED, diagnostic::NEIGHBOR_DOWN));
    assert!(a.failed && b.failed);
    assert_eq!(a.remote.discriminator, 0);
    link.cut[0] = false;
    link.run(link.now + 3 * SECOND);
    assert_eq!(link.states(), [State::Up; 2]);
    assert!(!link.sides[0].status().failed);
}

#[test]
fn a_side_that_is_switched_off_says_so_and_nothing_has_failed() {
    let mut link = Link::new([FAST; 2], 5);
    link.run(3 * SECOND);
    assert!(link.sides[0].set_admin(false, link.now));
    assert!(!link.sides[0].set_admin(false, link.now), "it is off already");
    link.run(link.now + 10 * MS);
    assert_eq!(link.states(), [State::AdminDown, State::Down]);
    link.run(link.now + 10 * SECOND);
    let [a, b] = [0, 1].map(|n| link.sides[n].status());
    assert_eq!((a.diagnostic, a.failed), (diagnostic::ADMIN_DOWN, false));
    assert_eq!((b.diagnostic, b.failed), (diagnostic::NEIGHBOR_DOWN, false));
    link.sides[0].set_admin(true, link.now);
    link.run(link.now + 3 * SECOND);
    assert_eq!(link.states(), [State::Up; 2]);
}

#[test]
fn slower_sending_waits_until_the_other_side_has_confirmed() {
    let mut link = Link::new([FAST; 2], 9);
    link.run(3 * SECOND);
    link.cut = [true; 2];
    link.sides[0].set_timing(Timing { desired_min_tx: 200_000, ..FAST }, link.now);
    assert_eq!(link.sides[0].status().tx_interval, 10_000, "the other side does not know yet");
    assert!(link.sides[0].status().polling);
    link.cut = [false; 2];
    link.run(link.now + SECOND);
    assert_eq!(link.states(), [State::Up; 2], "nobody has missed a packet");
    assert_eq!(link.sides[0].status().tx_interval, 200_000);
    assert_eq!(link.sides[1].status().detection_time, 600_000);
    // Faster reception likewise: the other side still sends slowly.
    link.sides[1].set_timing(Timing { required_min_rx: 5_000, ..FAST }, link.now);
    link.run(link.now + SECOND);
    assert_eq!(link.states(), [State::Up; 2]);
}

#[test]
fn a_change_during_a_poll_is_polled_for_as_well() {
    let mut link = Link::new([FAST; 2], 11);
    link.run(3 * SECOND);
    for desired_min_tx in [100_000, 20_000, 300_000] {
        link.sides[0].set_timing(Timing { desired_min_tx, ..FAST }, link.now);
    }
    link.run(link.now + 2 * SECOND);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!((link.sides[0].status().tx_interval, link.sides[0].status().polling), (300_000, false));
}

#[test]
fn a_peer_that_wants_no_packets_gets_none_but_answers() {
    let mut session = Session::new(1, FAST, 1, 0);
    let quiet =
        Control { state: State::Down, detect_mult: 3, my_discriminator: 9, desired_min_tx: 1_000_000, ..Control::default() };
    session.receive(&quiet, 0);
    assert_eq!(session.due(), 3 * SECOND, "the end of the detection time only");
    assert_eq!(session.receive(&Control { poll: true, ..quiet }, 1).answer, Some(true));
    assert!(session.tick(3 * SECOND + 1).send, "nothing is known of it any more");
}

#[test]
fn an_answer_that_asks_is_not_answered() {
    let mut session = Session::new(1, FAST, 1, 0);
    let up = |poll, is_final| Control {
        state: State::AdminDown,
        poll,
        is_final,
        detect_mult: 3,
        my_discriminator: 9,
        ..Default::default()
    };
    assert_eq!(session.receive(&up(true, false), 0).answer, Some(true));
    assert_eq!(session.receive(&up(true, true), 0).answer, None);
    assert_eq!(session.receive(&up(false, true), 0).answer, None);
}

#[test]
fn a_peer_in_demand_mode_is_sent_nothing_but_polls() {
    let mut link = Link::new([FAST; 2], 13);
    link.run(3 * SECOND);
    let mut session = link.sides[0].clone();
    let mut demand = link.sides[1].send(false, link.now);
    demand.demand = true;
    session.receive(&demand, link.now);
    assert_eq!(session.due(), link.now + 30 * MS, "the end of the detection time only");
    session.set_timing(Timing { desired_min_tx: 20_000, ..FAST }, link.now);
    assert!(session.tick(link.now).send && session.send(false, link.now).poll);
}

fn timing() -> impl Strategy<Value = Timing> {
    (1000..200_000_u32, 1000..200_000_u32, 1..=10_u8).prop_map(|(desired_min_tx, required_min_rx, detect_mult)| Timing {
        desired_min_tx,
        required_min_rx,
        detect_mult,
    })
}

fn control() -> impl Strategy<Value = Control> {
    (any::<[u8; 24]>(), any::<u8>()).prop_filter_map("valid", |(mut bytes, mult)| {
        bytes[0] = 0x20;
        bytes[1] &= 0xf2;
        bytes[2] = mult.max(1);
        bytes[3] = 24;
        bytes[4] |= 1;
        bytes[8] |= 1;
        Control::parse(&bytes).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_two_timings_come_up_keep_their_intervals_and_notice_a_cut(a in timing(), b in timing(), seed in any::<u32>()) {
        let mut link = Link::new([a, b], seed.into());
        link.run(5 * SECOND);
        prop_assert_eq!(link.states(), [State::Up; 2]);
        link.sent = Default::default();
        link.run(10 * SECOND);
        prop_assert_eq!(link.states(), [State::Up; 2]);
        for side in 0..2 {
            let status = link.sides[side].status();
            let interval = u64::from(status.tx_interval) * 1000;
            let range = interval / 4 * 3..=interval;
            prop_assert!(link.sent[side].windows(2).all(|pair| range.contains(&(pair[1] - pair[0]))));
        }
        link.cut = [true; 2];
        let longest = link.sides.iter().map(|side| side.status().detection_time).max().unwrap_or(0) * 1000;
        link.run(link.now + longest + link.delay);
        prop_assert_eq!(link.states(), [State::Down; 2]);
    }

    #[test]
    fn whatever_is_heard_only_lawful_steps_are_taken(heard in proptest::collection::vec((control(), 0..5_000_u64), 1..60)) {
        let mut session = Session::new(1, FAST, 1, 0);
        let mut now = 0;
        for (control, gap) in heard {
            now += gap * MS;
            let before = session.state();
            let tick = session.tick(now);
            let after = session.state();
            prop_assert_eq!(tick.changed, before != after);
            prop_assert!(before == after || after == State::Down);
            let heard = session.receive(&control, now);
            let state = session.state();
            let lawful = match (after, control.state) {
                (State::Down, State::Down) => State::Init,
                (State::Down, State::Init) | (State::Init, State::Init | State::Up) => State::Up,
                (State::Up, State::Down | State::AdminDown) | (State::Init, State::AdminDown) => State::Down,
                (same, _) => same,
            };
            prop_assert_eq!(state, lawful);
            prop_assert_eq!(heard.changed, state != after);
            let sent = session.send(false, now);
            prop_assert!(Control::parse(&sent.to_bytes()).is_ok());
            prop_assert!(state == State::Up || sent.desired_min_tx >= 1_000_000);
        }
    }
}
