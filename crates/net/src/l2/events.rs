//! Events of MAC addresses: what the main thread learns, moves and forgets, collected for the one client that asked for it.
//!
//! Workers take no part: the process that writes the table notes each change, and sends all of them once a scan delay. Changes
//! that wait are bounded, and so is what waits for a client that does not read; what does not fit is lost, and counted.

use quiver_api::defs::{InterfaceIndex, L2MacsEvent, MacAddress, MacEntry, MacEventAction};
use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use crate::Router;
use crate::api::Clients;

/// Changes that wait to be sent.
const WAITING_MAX: usize = 1 << 16;
/// Time between two scans, in units of 10 ms: VPP's.
pub(crate) const SCAN_DELAY: u16 = 10;
/// A unit of the scan delay, ns.
const UNIT: u64 = 10_000_000;

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Learned,
    Moved,
    Forgotten,
}

/// What the client is to be told, and when.
#[derive(Debug)]
pub(super) struct MacEvents {
    /// Somebody wants events.
    on: bool,
    /// Addresses in one message.
    batch: usize,
    /// Units of 10 ms between two messages.
    scan_delay: u16,
    waiting: Vec<(IfIndex, MacAddr, Change)>,
    lost: u64,
    /// When the waiting ones are sent; 0: to be fixed.
    due: u64,
    /// Most learned addresses in all domains, as the client asked.
    pub learn_limit: Option<u32>,
}

impl Default for MacEvents {
    fn default() -> Self {
        Self { on: false, batch: 0, scan_delay: SCAN_DELAY, waiting: Vec::new(), lost: 0, due: 0, learn_limit: None }
    }
}

impl MacEvents {
    /// Notes a change, where somebody wants to know.
    pub fn note(&mut self, interface: IfIndex, mac: MacAddr, change: Change) {
        if !self.on {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.lost += 1;
            return;
        }
        self.waiting.push((interface, mac, change));
    }

    /// Begins with nothing noted, `batch` addresses in a message.
    pub fn begin(&mut self, batch: usize, learn_limit: Option<u32>) {
        *self = Self { on: true, batch: batch.max(1), learn_limit, scan_delay: self.scan_delay, ..Self::default() };
    }

    /// Nobody wants events any more.
    pub fn end(&mut self) {
        *self = Self { scan_delay: self.scan_delay, ..Self::default() };
    }
}

impl Router {
    /// Time between two messages about MAC addresses, in units of 10 ms.
    pub fn l2_scan_delay(&self) -> u16 {
        self.l2.events.scan_delay
    }

    /// Sets that time.
    pub fn set_l2_scan_delay(&mut self, units: u16) {
        self.l2.events.scan_delay = units.max(1);
        self.l2.events.due = 0;
        self.wake_process(super::PROCESS, 0);
    }
}

/// Sends what has waited long enough; says when to call again.
pub(super) fn send(router: &mut Router, now: u64) -> u64 {
    let events = &mut router.l2.events;
    if events.waiting.is_empty() {
        return u64::MAX;
    }
    if events.due == 0 {
        events.due = now + u64::from(events.scan_delay) * UNIT;
    }
    if now < events.due {
        return events.due;
    }
    events.due = 0;
    let (batch, waiting, lost) = (events.batch, std::mem::take(&mut events.waiting), std::mem::take(&mut events.lost));
    if lost > 0 {
        tracing::warn!(target: "l2fib", "{lost} changes of MAC addresses were not told to the API client: too many at a time");
    }
    let clients = router.part_mut::<Clients>().filter(|clients| clients.wanting::<L2MacsEvent>().is_some());
    let Some(clients) = clients else {
        // Its connection has ended.
        router.l2.events.end();
        return u64::MAX;
    };
    for some in waiting.chunks(batch) {
        clients.tell_wanting(|client_index, pid| L2MacsEvent {
            client_index,
            pid,
            n_macs: 0,
            mac: some.iter().map(entry).collect(),
        });
    }
    u64::MAX
}

fn entry((interface, mac, change): &(IfIndex, MacAddr, Change)) -> MacEntry {
    let action = match change {
        Change::Learned => MacEventAction::MAC_EVENT_ACTION_API_ADD,
        Change::Moved => MacEventAction::MAC_EVENT_ACTION_API_MOVE,
        Change::Forgotten => MacEventAction::MAC_EVENT_ACTION_API_DELETE,
    };
    MacEntry { sw_if_index: InterfaceIndex(interface.0), mac_addr: MacAddress(mac.0), action, flags: 0 }
}
