//! Whether packets cross the NAT.

use quiver_graph::Pkt;
use quiver_net::ip::{Egress4, Way};

use crate::config::NatConfig;
use crate::session::Key;

/// Whether a packet's interface is on both sides of the NAT.
pub(super) fn is_both(config: &NatConfig, packet: &Pkt<'_>) -> bool {
    let side = || config.side(packet.rx_if());
    config.both && side().inside && side().outside
}

/// Whether a packet from inside crosses the NAT: it leaves by an outside interface, or is for the outside of a mapping.
pub(super) fn goes_out(egress: &Egress4, config: &NatConfig, packet: &Pkt<'_>, key: Key) -> bool {
    let to = key.dst();
    if config.mapping_of_external(to, key.proto()).is_some_and(|m| !m.identity) {
        return true;
    }
    let leaves = |way| matches!(way, Way::Interface(tx) if config.side(tx).outside && tx != packet.rx_if());
    match egress.find(key.fib().into(), to.addr) {
        Way::Local => false,
        _ if config.external.contains(&to.addr) => true,
        Way::Nowhere => key.fib() != config.outside_fib && leaves(egress.find(config.outside_fib.into(), to.addr)),
        way => leaves(way),
    }
}

/// Whether a fragment that has come before its first may have to be translated, so that it must wait for the first one's ports.
/// The key has none.
pub(super) fn must_wait(egress: &Egress4, config: &NatConfig, packet: &Pkt<'_>, key: Key, outside: bool) -> bool {
    config.external.contains(&key.dst().addr) || !outside && goes_out(egress, config, packet, key)
}
