//! Counters of interfaces, under the names of VPP's statistics segment.

use std::sync::Arc;

use crate::stats::{CombinedCounters, Names, SimpleCounters, Stats, path_part};

/// Largest number of interfaces, sub-interfaces included.
pub const MAX_INTERFACES: u32 = 16_384;

/// Counters by interface index and thread. Each is written by one thread per row.
pub struct InterfaceCounters {
    /// `/if/names`.
    pub names: Arc<Names>,
    /// Packets and bytes received.
    pub rx: Arc<CombinedCounters>,
    /// Packets and bytes sent.
    pub tx: Arc<CombinedCounters>,
    /// Received to a unicast, multicast, broadcast link address.
    pub rx_unicast: Arc<CombinedCounters>,
    /// See `rx_unicast`.
    pub rx_multicast: Arc<CombinedCounters>,
    /// See `rx_unicast`.
    pub rx_broadcast: Arc<CombinedCounters>,
    /// Sent to a unicast, multicast, broadcast link address.
    pub tx_unicast: Arc<CombinedCounters>,
    /// See `tx_unicast`.
    pub tx_multicast: Arc<CombinedCounters>,
    /// See `tx_unicast`.
    pub tx_broadcast: Arc<CombinedCounters>,
    /// Packets dropped that came in here.
    pub drops: Arc<SimpleCounters>,
    /// Packets handed to the host that came in here.
    pub punt: Arc<SimpleCounters>,
    /// IPv4 packets received.
    pub ip4: Arc<SimpleCounters>,
    /// IPv6 packets received.
    pub ip6: Arc<SimpleCounters>,
    /// Packets that the device had but found no buffer for.
    pub rx_no_buf: Arc<SimpleCounters>,
    /// Packets that the device itself lost.
    pub rx_miss: Arc<SimpleCounters>,
    /// Packets that came in damaged.
    pub rx_error: Arc<SimpleCounters>,
    /// Packets that could not be sent.
    pub tx_error: Arc<SimpleCounters>,
}

impl InterfaceCounters {
    /// Makes the counters in `stats`.
    pub fn new(stats: &Stats) -> Self {
        let combined = |name: &str| stats.combined(&format!("/if/{name}"), MAX_INTERFACES);
        let simple = |name: &str| stats.simple(&format!("/if/{name}"), MAX_INTERFACES);
        Self {
            names: stats.names("/if/names"),
            rx: combined("rx"),
            tx: combined("tx"),
            rx_unicast: combined("rx-unicast"),
            rx_multicast: combined("rx-multicast"),
            rx_broadcast: combined("rx-broadcast"),
            tx_unicast: combined("tx-unicast"),
            tx_multicast: combined("tx-multicast"),
            tx_broadcast: combined("tx-broadcast"),
            drops: simple("drops"),
            punt: simple("punt"),
            ip4: simple("ip4"),
            ip6: simple("ip6"),
            rx_no_buf: simple("rx-no-buf"),
            rx_miss: simple("rx-miss"),
            rx_error: simple("rx-error"),
            tx_error: simple("tx-error"),
        }
    }

    /// Gives an interface another name in the statistics: in the list of names, and below `/interfaces/<name>/` for each of its
    /// counters. An empty name is none. Symlinks for which there is no room in the directory are missing, the counters are not.
    pub fn rename(&self, stats: &Stats, index: u32, before: &str, now: &str) {
        let (combined, simple) = (self.combined(), self.simple());
        let words = || combined.iter().map(|(word, _)| *word).chain(simple.iter().map(|(word, _)| *word));
        let link = |name: &str, word: &str| format!("/interfaces/{}/{word}", path_part(name));
        for word in words().filter(|_| !before.is_empty()) {
            stats.unlink(&link(before, word));
        }
        self.names.set(index, now);
        for word in words().filter(|_| !now.is_empty()) {
            let _ = stats.symlink(&link(now, word), &format!("/if/{word}"), index);
        }
    }

    /// All pairs of packet and byte counters, by the word `show interface` prints.
    pub fn combined(&self) -> [(&'static str, &Arc<CombinedCounters>); 8] {
        [
            ("rx", &self.rx),
            ("tx", &self.tx),
            ("rx-unicast", &self.rx_unicast),
            ("rx-multicast", &self.rx_multicast),
            ("rx-broadcast", &self.rx_broadcast),
            ("tx-unicast", &self.tx_unicast),
            ("tx-multicast", &self.tx_multicast),
            ("tx-broadcast", &self.tx_broadcast),
        ]
    }

    /// All packet counters, by the word `show interface` prints.
    pub fn simple(&self) -> [(&'static str, &Arc<SimpleCounters>); 8] {
        [
            ("drops", &self.drops),
            ("punt", &self.punt),
            ("ip4", &self.ip4),
            ("ip6", &self.ip6),
            ("rx-no-buf", &self.rx_no_buf),
            ("rx-miss", &self.rx_miss),
            ("rx-error", &self.rx_error),
            ("tx-error", &self.tx_error),
        ]
    }

    /// Makes room for interfaces below `n` in what readers see.
    pub fn set_len(&self, n: u32) {
        self.combined().iter().for_each(|(_, c)| c.set_len(n));
        self.simple().iter().for_each(|(_, c)| c.set_len(n));
    }

    /// Zeroes this thread's rows; called by the thread that writes them.
    pub fn clear_thread(&self, thread: usize) {
        self.combined().iter().for_each(|(_, c)| c.clear_thread(thread));
        self.simple().iter().for_each(|(_, c)| c.clear_thread(thread));
    }

    /// Zeroes one interface in this thread's rows; called by the thread that writes them.
    pub fn clear_index_thread(&self, thread: usize, index: u32) {
        self.combined().iter().for_each(|(_, c)| c.clear_index_thread(thread, index));
        self.simple().iter().for_each(|(_, c)| c.clear_index_thread(thread, index));
    }
}
