//! The plugin's process: samples of interfaces' counters, from time to time.

use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::interface::Interface;

use crate::control::{Sflow, send_counters};
use crate::datagram::{Counted, Counters};

/// Name of the process.
pub(crate) const NAME: &str = "sflow-counters";
/// Interfaces looked at in one call: some 50 µs.
const STEP: usize = 16;

/// One call; says when to call next.
pub(crate) fn run(router: &mut Router, now: u64) -> u64 {
    let Some(sflow) = router.part_mut::<Sflow>() else { return u64::MAX };
    if sflow.next_counters > now {
        return sflow.next_counters;
    }
    let (some, is_last) = sflow.next_interfaces(STEP);
    if is_last {
        sflow.next_counters = sflow.counters_after(now);
    }
    let next = if is_last { sflow.next_counters } else { now };
    let counters: Vec<Counters> =
        some.iter().filter_map(|index| router.interfaces.get(*index)).map(|interface| counters(router, interface)).collect();
    if !counters.is_empty() {
        send_counters(router, counters);
    }
    next
}

fn counters(router: &Router, interface: &Interface) -> Counters {
    let (all, IfIndex(index)) = (router.graph.interfaces(), interface.index);
    let packets = |counters: &quiver_graph::stats::CombinedCounters| counters.sum(index).0;
    let ((rx_packets, rx_octets), (tx_packets, tx_octets)) = (all.rx.sum(index), all.tx.sum(index));
    let rest = |total: u64, multicast: u64, broadcast: u64| total.saturating_sub(multicast).saturating_sub(broadcast);
    let (rx_multicast, rx_broadcast) = (packets(&all.rx_multicast), packets(&all.rx_broadcast));
    let (tx_multicast, tx_broadcast) = (packets(&all.tx_multicast), packets(&all.tx_broadcast));
    Counters {
        index,
        speed: interface.link.speed.unwrap_or_default(),
        admin_up: interface.admin_up,
        link_up: interface.link.up,
        rx: Counted {
            octets: rx_octets,
            // What is not told apart is to one station.
            unicast: rest(rx_packets, rx_multicast, rx_broadcast),
            multicast: rx_multicast,
            broadcast: rx_broadcast,
            discards: all.drops.sum(index) + all.rx_no_buf.sum(index) + all.rx_miss.sum(index),
            errors: all.rx_error.sum(index),
        },
        tx: Counted {
            octets: tx_octets,
            unicast: rest(tx_packets, tx_multicast, tx_broadcast),
            multicast: tx_multicast,
            broadcast: tx_broadcast,
            discards: 0,
            errors: all.tx_error.sum(index),
        },
        promiscuous: interface.promiscuous,
    }
}
