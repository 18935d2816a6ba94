//! Events of ARP termination: which hosts the node `l2-arp-term` hears, for API clients that want to know.
//!
//! The node notes a host when it asks or announces itself, the same one once in a while. What is on its way to the main thread is bounded; what does not fit comes again with
//! the host's next message.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_api::defs::{InterfaceIndex, L2ArpTermEvent, MacAddress};
use quiver_graph::IfIndex;
use quiver_wire::MacAddr;

use crate::Router;
use crate::api::{Clients, address};
use crate::router::ProcessSignal;

/// Hosts under way at a time.
const CHANNEL: usize = 4096;
/// Hosts that a node remembers having noted.
const TOLD: usize = 256;
/// For how long it does not note the same host again, ns: VPP's.
const TOLD_TIME: u64 = 10_000_000_000;
/// Hosts that are told of in one call.
const STEP: usize = 256;

/// A host that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub ip: IpAddr,
    pub mac: MacAddr,
    pub interface: IfIndex,
}

impl Host {
    fn slot(&self) -> usize {
        let bits = match self.ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() ^ (ip.to_bits() >> 64)) as u64,
        };
        (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % TOLD
    }
}

/// Main's end.
pub(super) struct Hosts {
    receiver: Receiver<Host>,
    /// What nodes get.
    pub listener: Listener,
}

/// A node's end.
pub(super) struct Listener {
    sender: Sender<Host>,
    signal: ProcessSignal,
    /// Which time it is that somebody wants to know; 0: nobody does.
    wanted: Arc<AtomicU32>,
    seen: u32,
    told: Vec<Option<(Host, u64)>>,
}

impl Clone for Listener {
    fn clone(&self) -> Self {
        let (sender, signal, wanted) = (self.sender.clone(), self.signal.clone(), self.wanted.clone());
        Self { sender, signal, wanted, seen: 0, told: vec![None; TOLD] }
    }
}

impl Hosts {
    pub fn new(signal: ProcessSignal) -> Self {
        let (sender, receiver) = bounded(CHANNEL);
        Self { receiver, listener: Listener { sender, signal, wanted: Arc::default(), seen: 0, told: vec![None; TOLD] } }
    }

    /// Somebody wants to know from now on: all hosts are new to it.
    pub fn begin(&self) {
        let next = self.listener.wanted.load(Ordering::Relaxed).max(self.listener.seen) + 1;
        self.listener.wanted.store(next, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.listener.seen = self.listener.wanted.swap(0, Ordering::Relaxed).max(self.listener.seen);
        self.receiver.try_iter().for_each(drop);
    }
}

impl Listener {
    /// Whether somebody wants to know.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Notes a host.
    pub fn note(&mut self, host: Host, now: u64) {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted != self.seen {
            self.told.fill(None);
            self.seen = wanted;
        }
        let told = &mut self.told[host.slot()];
        if told.is_some_and(|(last, at)| last == host && now.saturating_sub(at) < TOLD_TIME) {
            return;
        }
        if self.sender.try_send(host).is_ok() {
            *told = Some((host, now));
        }
        self.signal.raise();
    }
}

/// Tells the clients; `true` while there is more to tell.
pub(super) fn send(router: &mut Router) -> bool {
    if !router.l2.hosts.listener.is_wanted() {
        return false;
    }
    let heard: Vec<Host> = router.l2.hosts.receiver.try_iter().take(STEP).collect();
    let clients = router.part_mut::<Clients>().filter(|clients| clients.wanting::<L2ArpTermEvent>().is_some());
    let Some(clients) = clients else {
        // The last one has gone.
        router.l2.hosts.end();
        return false;
    };
    for host in &heard {
        clients.tell_wanting(|client_index, pid| L2ArpTermEvent {
            client_index,
            pid,
            ip: address(host.ip),
            sw_if_index: InterfaceIndex(host.interface.0),
            mac: MacAddress(host.mac.0),
        });
    }
    heard.len() == STEP
}
