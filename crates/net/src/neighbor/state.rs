//! What is known of one neighbour, and how evidence and time change it: neighbour unreachability detection (RFC 4861,
//! section 7.3), and the same for ARP.
//!
//! ```text
//!              request ×3                         30 s ± half, or the age limit
//!  INCOMPLETE ───────────► gone        REACHABLE ─────────────────────────────► STALE
//!      │  answer               ▲            ▲                                     │ used, or too old
//!      └───────────────────────┼────────────┤ answer to a probe                   ▼
//!                              │            └──────────────────────── PROBE ◄── DELAY 5 s
//!                              └───────────────────────────────────── ×3, 1 s each
//! ```

use quiver_wire::MacAddr;

/// One second, ns.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Time between two requests (RETRANS_TIMER of RFC 4861, section 10).
pub(crate) const RETRANS: u64 = SECOND;
/// Requests to everybody before giving up (MAX_MULTICAST_SOLICIT), and to the neighbour (MAX_UNICAST_SOLICIT).
pub(crate) const ATTEMPTS: u8 = 3;
/// Base of the time for which a confirmation holds (REACHABLE_TIME); each is 0.5 to 1.5 times that (RFC 4861, 6.3.2).
pub(crate) const REACHABLE_BASE: u64 = 30 * SECOND;
/// DELAY_FIRST_PROBE_TIME; also how often an unconfirmed neighbour's use is looked at.
pub(crate) const DELAY: u64 = 5 * SECOND;

/// Where a neighbour stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for; the MAC address is not known.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Not confirmed lately, and not used since.
    Stale,
    /// Used since; a confirmation may come by itself.
    Delay,
    /// Being asked whether it is still there.
    Probe,
    /// Configured: never asked.
    Permanent,
}

/// What was heard of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It named its MAC address while it asked for something (ARP request, neighbour or router solicitation).
    Seen(MacAddr),
    /// It told its MAC address (ARP reply, neighbour advertisement).
    Advert {
        /// Its MAC address, where it said so.
        mac: Option<MacAddr>,
        /// Said to answer us: proves that both directions work.
        solicited: bool,
        /// Replaces a known MAC address.
        overrides: bool,
    },
}

/// What evidence changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The MAC address is another one, or is known now.
    pub mac: bool,
    /// Timers start anew.
    pub timer: bool,
    /// Heard of at all: the age counts from now.
    pub heard: bool,
}

/// State and MAC address of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub state: State,
    pub mac: Option<MacAddr>,
    /// Requests sent in this state.
    pub attempts: u8,
}

/// What a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing to send.
    Quiet,
    /// A request to everybody.
    AskAll,
    /// A request to the neighbour alone.
    AskIt,
    /// It is not there.
    Lost,
    /// Nobody has used it for so long that it is forgotten.
    Unused,
}

impl Reach {
    /// A neighbour that was just asked for.
    pub const INCOMPLETE: Self = Self { state: State::Incomplete, mac: None, attempts: 1 };

    /// A neighbour that was heard of.
    pub const fn stale(mac: MacAddr) -> Self {
        Self { state: State::Stale, mac: Some(mac), attempts: 0 }
    }

    fn enter(&mut self, state: State) {
        (self.state, self.attempts) = (state, 0);
    }

    /// The neighbour's link went down, or is back; `probed`: it is asked when its timer runs out.
    pub fn doubt(&mut self, probed: bool) {
        if !matches!(self.state, State::Permanent | State::Incomplete) {
            self.enter(if probed { State::Delay } else { State::Stale });
        }
    }

    /// Takes evidence in (RFC 4861, 7.2.3 and 7.2.5).
    pub fn hear(&mut self, evidence: Evidence) -> Effect {
        let before = *self;
        if self.state == State::Permanent {
            return Effect::default();
        }
        let mut heard = true;
        match evidence {
            Evidence::Seen(mac) => {
                if self.mac != Some(mac) {
                    self.mac = Some(mac);
                    self.enter(State::Stale);
                }
            }
            Evidence::Advert { mac, solicited, overrides } => {
                let other = mac.is_some_and(|m| self.mac != Some(m));
                if self.state == State::Incomplete {
                    match mac {
                        Some(_) => {
                            self.mac = mac;
                            self.enter(if solicited { State::Reachable } else { State::Stale });
                        }
                        None => heard = false,
                    }
                } else if other && !overrides {
                    // Somebody contradicts: what is known stays, but is not trusted any more.
                    heard = false;
                    if self.state == State::Reachable {
                        self.enter(State::Stale);
                    }
                } else {
                    if other {
                        self.mac = mac;
                    }
                    if solicited {
                        self.enter(State::Reachable);
                    } else if other {
                        self.enter(State::Stale);
                    }
                }
            }
        }
        let confirmed = self.state == State::Reachable && heard;
        Effect { mac: self.mac != before.mac, timer: self.state != before.state || confirmed, heard }
    }

    /// The timer has run out. `used`: packets were sent to it since; `aged`: it is older than the user allows.
    pub fn tick(&mut self, used: bool, aged: bool) -> Due {
        match self.state {
            State::Incomplete if self.attempts >= ATTEMPTS => Due::Lost,
            State::Probe if self.attempts >= ATTEMPTS => Due::Lost,
            State::Incomplete => {
                self.attempts += 1;
                Due::AskAll
            }
            State::Probe => {
                self.attempts += 1;
                Due::AskIt
            }
            State::Stale if used && !aged => {
                self.enter(State::Delay);
                Due::Quiet
            }
            State::Reachable if !aged => {
                self.enter(State::Stale);
                Due::Quiet
            }
            State::Delay | State::Stale | State::Reachable if aged || self.state == State::Delay => {
                self.enter(State::Probe);
                self.attempts = 1;
                Due::AskIt
            }
            _ => Due::Quiet,
        }
    }

    /// How long until the timer runs out; `random` is 0 to 65,535.
    pub fn wait(&self, random: u16) -> Option<u64> {
        match self.state {
            State::Permanent => None,
            State::Incomplete | State::Probe => Some(RETRANS),
            State::Reachable => Some(REACHABLE_BASE / 2 + (REACHABLE_BASE >> 16) * u64::from(random)),
            State::Stale | State::Delay => Some(DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn reach(state: State) -> Reach {
        Reach { state, mac: (state != State::Incomplete).then_some(A), attempts: 1 }
    }

    fn advert(mac: Option<MacAddr>, solicited: bool, overrides: bool) -> Evidence {
        Evidence::Advert { mac, solicited, overrides }
    }

    #[test]
    fn evidence_changes_state_as_the_table_of_rfc_4861_appendix_c_says() {
        use State::*;
        // State, evidence, state after, MAC address after.
        let rows = [
            (Incomplete, advert(Some(B), true, false), Reachable, Some(B)),
            (Incomplete, advert(Some(B), false, true), Stale, Some(B)),
            (Incomplete, advert(None, true, true), Incomplete, None),
            (Incomplete, Evidence::Seen(B), Stale, Some(B)),
            (Reachable, advert(Some(A), true, false), Reachable, Some(A)),
            (Reachable, advert(Some(B), true, false), Stale, Some(A)),
            (Probe, advert(Some(B), true, false), Probe, Some(A)),
            (Stale, advert(Some(B), true, true), Reachable, Some(B)),
            (Reachable, advert(Some(B), false, true), Stale, Some(B)),
            (Probe, advert(Some(A), false, true), Probe, Some(A)),
            (Probe, advert(Some(A), false, false), Probe, Some(A)),
            (Delay, advert(None, true, false), Reachable, Some(A)),
            (Stale, advert(None, true, true), Reachable, Some(A)),
            (Reachable, Evidence::Seen(A), Reachable, Some(A)),
            (Probe, Evidence::Seen(B), Stale, Some(B)),
            (Permanent, Evidence::Seen(B), Permanent, Some(A)),
            (Permanent, advert(Some(B), true, true), Permanent, Some(A)),
        ];
        for (before, evidence, state, mac) in rows {
            let mut r = reach(before);
            let effect = r.hear(evidence);
            assert_eq!((r.state, r.mac), (state, mac), "{before:?} {evidence:?}");
            assert_eq!(effect.mac, reach(before).mac != mac, "{before:?} {evidence:?}");
        }
    }

    #[test]
    fn an_unanswered_neighbour_is_lost_after_three_requests() {
        for (state, ask) in [(State::Incomplete, Due::AskAll), (State::Probe, Due::AskIt)] {
            let mut r = reach(state);
            assert_eq!([r.tick(true, true), r.tick(false, false), r.tick(true, true)], [ask, ask, Due::Lost]);
        }
    }

    #[test]
    fn only_what_is_used_or_too_old_is_probed() {
        let mut r = reach(State::Reachable);
        assert_eq!((r.tick(true, false), r.state), (Due::Quiet, State::Stale));
        assert_eq!((r.tick(false, false), r.state), (Due::Quiet, State::Stale));
        assert_eq!((r.tick(true, false), r.state), (Due::Quiet, State::Delay));
        assert_eq!((r.tick(false, false), r.state), (Due::AskIt, State::Probe));
        let mut r = reach(State::Reachable);
        assert_eq!((r.tick(false, true), r.state), (Due::AskIt, State::Probe));
        let mut r = reach(State::Permanent);
        assert_eq!((r.tick(true, true), r.wait(0)), (Due::Quiet, None));
    }

    #[test]
    fn confirmations_last_half_to_one_and_a_half_times_the_base() {
        let r = reach(State::Reachable);
        assert_eq!(r.wait(0), Some(15 * SECOND));
        assert!(r.wait(u16::MAX).unwrap() <= 45 * SECOND && r.wait(u16::MAX).unwrap() > 44 * SECOND);
    }
}
