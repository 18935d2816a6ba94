//! Packets of no session: what becomes of them, and sessions that they begin.

use quiver_graph::Pkt;
use quiver_net::ip::Way;

use super::{Drop, GROUP, Outcome, SYN, SYN_ACK, TTL_EXPIRED, Translate, Work};
use crate::config::NatConfig;
use crate::nodes::crossing::{goes_out, is_both};
use crate::session::{Direction, Key};
use crate::table::NO_SESSION;
use crate::thread::{Refusal, ThreadNat};

impl<const OUTSIDE: bool> Translate<OUTSIDE> {
    /// What becomes of a packet that belongs to no session and begins none.
    pub(super) fn without_session(&self, config: &NatConfig, packet: &Pkt<'_>, key: Key) -> Outcome {
        // From an interface on both sides it may be of a host inside: `nat44-ed-in2out` comes next.
        if OUTSIDE && is_both(config, packet) {
            return Outcome::Pass;
        }
        let way = self.egress.find(key.fib().into(), key.dst().addr);
        let crosses = match way {
            Way::Local => false,
            Way::Interface(tx) => OUTSIDE || config.side(tx).outside && tx != packet.rx_if(),
            Way::Nowhere => OUTSIDE,
        };
        // A router's own address may be the outside of mappings: what none of them takes is for the router.
        if !crosses || config.forwarding { Outcome::Pass } else { Outcome::Drop(Drop::NoTranslation) }
    }

    pub(super) fn begin(
        &mut self,
        nat: &mut ThreadNat,
        config: &NatConfig,
        packet: &Pkt<'_>,
        key: Key,
        tcp_flags: u8,
        (now, draw): (u32, Option<u32>),
    ) -> Outcome {
        // A connection begins with a SYN; what has none is of one that nobody knows here any more.
        let non_syn = key.proto() == 6 && tcp_flags & SYN_ACK != SYN && !config.non_syn;
        let position = self.position(config);
        let begun = if OUTSIDE {
            match config.mapping_of_external(key.dst(), key.proto()) {
                Some(mapping) if non_syn && !mapping.identity => return Outcome::Drop(Drop::NonSyn),
                Some(mapping) => nat.begin_out2in(config, position, mapping, key, now),
                None => match nat.begin_bound(config, key, now) {
                    Ok(None) if self.is_answer(nat, config, key) => return Outcome::Turn,
                    Ok(None) => return self.forward(nat, config, packet, key, now),
                    begun => begun,
                },
            }
        } else {
            if is_both(config, packet) && config.external.contains(&key.dst().addr) {
                // `nat44-ed-out2in` knew no session and no mapping for it.
                return match self.egress.find(key.fib().into(), key.dst().addr) {
                    Way::Local => Outcome::Pass,
                    _ if config.forwarding => Outcome::Pass,
                    _ => Outcome::Drop(Drop::NoTranslation),
                };
            }
            let Some(exit) = goes_out(self.ways(), config, packet, key) else { return Outcome::Pass };
            if non_syn && config.mapping_of_local(key.src(), key.proto(), key.fib()).is_none_or(|m| !m.identity) {
                // Where no pool has an address for the host, its connections pass from their SYN on.
                let is_passed = config.forwarding && !config.has_address(key.fib());
                return if is_passed { Outcome::Pass } else { Outcome::Drop(Drop::NonSyn) };
            }
            let [ttl, _]: [u8; 2] = packet.head_at::<_, 8>();
            if ttl <= 1 {
                return Outcome::Error(TTL_EXPIRED);
            }
            let begun = nat.begin_in2out(config, position, key, exit.fib, now, draw);
            if let (Ok(Some(id)), Some(by)) = (begun, exit.by.filter(|by| config.outputs.contains(by))) {
                nat.sessions.set_output(id, by);
            }
            begun
        };
        match begun {
            Ok(Some(id)) => Outcome::Session(id),
            Ok(None) => Outcome::Pass,
            // Where there are no pools at all, only mappings are translated.
            Err(Refusal::NoAddress) if config.forwarding => Outcome::Pass,
            Err(refusal) => Outcome::Drop(match refusal {
                Refusal::Ports | Refusal::NoAddress => Drop::Ports,
                Refusal::Sessions => Drop::Sessions,
                Refusal::Host => Drop::Host,
                Refusal::Memory => Drop::Memory,
            }),
        }
    }

    /// Whether a packet is an answer of a mapping's host that is behind an outside interface, so that `nat44-ed-in2out` knows the session.
    /// As in VPP only where packets are forwarded: elsewhere nobody outside speaks for a host inside.
    fn is_answer(&self, nat: &ThreadNat, config: &NatConfig, key: Key) -> bool {
        let there = || Key::new(key.src(), key.dst(), key.proto(), Direction::In2Out, key.fib());
        config.forwarding && config.is_inside_end(key.src(), key.proto(), key.fib()) && nat.sessions.find(there()).is_some()
    }

    /// A packet from outside that nothing translates. Where it is passed on to a host inside, the answers must not be
    /// translated either: a session remembers that.
    fn forward(&self, nat: &mut ThreadNat, config: &NatConfig, packet: &Pkt<'_>, key: Key, now: u32) -> Outcome {
        let outcome = self.without_session(config, packet, key);
        if !matches!(outcome, Outcome::Pass) || !config.forwarding || config.external.contains(&key.dst().addr) {
            return outcome;
        }
        let Way::Interface(tx) = self.egress.find(key.fib().into(), key.dst().addr) else { return outcome };
        if tx == packet.rx_if() || !config.side(tx).inside || self.interfaces.fibs(tx).0 != u32::from(key.fib()) {
            return outcome;
        }
        // Without room for a session the packet passes all the same.
        nat.begin_forwarded(config, key, now).map_or(Outcome::Pass, Outcome::Session)
    }
}

/// By position in a group, the numbers that decide the ports of sessions that its packets may begin.
pub(super) type Draws = [u32; GROUP];

/// Asks for the lines that packets of no session will need to begin theirs: first of all their hosts', which the others depend on. That is
/// done at the first such packet of a group, so that groups of established ones do nothing for it.
#[inline(never)]
pub(super) fn foresee(nat: &mut ThreadNat, config: &NatConfig, position: usize, group: &[Work]) -> Draws {
    let unknown = |work: &&Work| work.key.is_whole() && work.id == NO_SESSION;
    group.iter().filter(unknown).for_each(|work| nat.prefetch_host(work.key));
    let mut draws = [0; GROUP];
    for (draw, work) in draws.iter_mut().zip(group).filter(|(_, work)| unknown(work)) {
        *draw = nat.foresee(config, position, work.key);
    }
    draws
}
