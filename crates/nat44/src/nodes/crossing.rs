//! Whether packets cross the NAT.

use quiver_graph::{ArcPoint, IfIndex, Pkt, Verdict};
use quiver_net::data::IfTable;
use quiver_net::ip::{Egress4, Way};

use crate::config::NatConfig;
use crate::session::Key;

/// Whether a packet's interface is on both sides of the NAT.
pub(super) fn is_both(config: &NatConfig, packet: &Pkt<'_>) -> bool {
    let side = || config.side(packet.rx_if());
    config.both && side().inside && side().outside
}

/// Where a packet goes from a node of the arc. One that came from elsewhere than the arc, as the packets between hosts inside do, is not on
/// it: what follows there was for the interface when it was on that side, if it ever was.
#[inline(always)]
pub(super) fn on_arc(arc: &ArcPoint, config: &NatConfig, rx: IfIndex, outside: bool, end: Verdict) -> Verdict {
    let side = config.side(rx);
    let is_on = if outside { side.outside } else { side.inside };
    if is_on { arc.next(rx, end) } else { end }
}

/// Where routes and interfaces are looked up.
#[derive(Clone, Copy)]
pub(super) struct Ways<'a> {
    pub egress: &'a Egress4,
    pub interfaces: &'a IfTable,
}

/// How a packet from inside crosses the NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// The FIB in which it leaves.
    pub fib: u16,
    /// The interface by which it leaves, where that is known.
    pub by: Option<IfIndex>,
}

/// How a packet from inside leaves, where it crosses the NAT: in the FIB of the outside interface by which it leaves; in the outside's
/// own one where it is for the outside of a mapping. `None`: it does not cross.
///
/// Where its own FIB has no route, those of the outside interfaces are tried.
pub(super) fn goes_out(ways: Ways<'_>, config: &NatConfig, packet: &Pkt<'_>, key: Key) -> Option<Exit> {
    let to = key.dst();
    let own = Some(Exit { fib: config.outside_fib, by: None });
    if config.mapping_of_external(to, key.proto()).is_some_and(|m| !m.identity) {
        return own;
    }
    let leaves = |way| match way {
        Way::Interface(tx) if config.side(tx).outside && tx != packet.rx_if() => {
            Some(Exit { fib: ways.interfaces.fibs(tx).0 as u16, by: Some(tx) })
        }
        _ => None,
    };
    match ways.egress.find(key.fib().into(), to.addr) {
        Way::Local => None,
        _ if config.external.contains(&to.addr) => own,
        Way::Nowhere => {
            let others = config.outside_fibs.iter().filter(|fib| **fib != key.fib());
            others.filter_map(|fib| leaves(ways.egress.find((*fib).into(), to.addr))).next()
        }
        way => leaves(way),
    }
}

/// Whether a fragment that has come before its first may have to be translated, so that it must wait for the first one's ports.
/// The key has none.
pub(super) fn must_wait(ways: Ways<'_>, config: &NatConfig, packet: &Pkt<'_>, key: Key, outside: bool) -> bool {
    config.external.contains(&key.dst().addr) || !outside && goes_out(ways, config, packet, key).is_some()
}
