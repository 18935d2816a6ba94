//! Who answers on a link: `arping` hears each answer, also such that the neighbour table knows already.

use std::collections::HashMap;
use std::net::IpAddr;

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::{IfIndex, Published, Snapshot};
use quiver_wire::MacAddr;

use super::hold::Key;
use crate::Router;
use crate::ip::FamilyId;

/// Answers that wait for who asked; more are lost.
const WAITING: usize = 256;

type Listeners = HashMap<Key, Sender<MacAddr>>;

/// Who listens, on the main thread.
pub(super) struct Arpings(Published<Listeners>);

impl Default for Arpings {
    fn default() -> Self {
        Self(Published::new(Listeners::new()))
    }
}

impl Arpings {
    /// What nodes tell of answers.
    pub fn ears(&self) -> Ears {
        Ears(self.0.snapshot())
    }
}

/// The nodes' end.
#[derive(Clone)]
pub(crate) struct Ears(Snapshot<Listeners>);

impl Ears {
    /// Once a vector.
    pub fn refresh(&mut self) {
        self.0.refresh();
    }

    /// A neighbour has answered.
    pub fn heard(&self, interface: IfIndex, address: IpAddr, mac: MacAddr) {
        if let Some(listener) = self.0.get().get(&(interface, address)) {
            // Who asked reads in time or has gone.
            let _ = listener.try_send(mac);
        }
    }
}

impl Router {
    /// Hears the answers of an address on a link from now on, with the MAC addresses that they name; `None` where somebody does.
    pub(super) fn arping_open(&mut self, interface: IfIndex, address: IpAddr) -> Option<Receiver<MacAddr>> {
        let listeners = &self.neighbors.arpings.0;
        let mut all = Listeners::clone(&listeners.get());
        let (sender, receiver) = bounded(WAITING);
        if all.contains_key(&(interface, address)) {
            return None;
        }
        all.insert((interface, address), sender);
        listeners.publish(all);
        Some(receiver)
    }

    /// No longer hears them.
    pub(super) fn arping_close(&mut self, interface: IfIndex, address: IpAddr) {
        let listeners = &self.neighbors.arpings.0;
        let mut all = Listeners::clone(&listeners.get());
        all.remove(&(interface, address));
        listeners.publish(all);
    }

    /// Asks all of a link for an address. `false` where the interface has no address to ask from.
    pub(super) fn arping_ask(&mut self, interface: IfIndex, address: IpAddr) -> bool {
        let frame = self.neighbor_view(interface).and_then(|view| match address {
            IpAddr::V4(address) => crate::arp::request(&view, address.to_bits(), None),
            // From an address that the neighbour has a prefix of: that is what one wants to know to work.
            IpAddr::V6(address) => {
                let target = address.to_bits();
                view.source_beside6(target).map(|source| crate::nd::solicitation_from(&view, source, target, None))
            }
        });
        let Some(frame) = frame else { return false };
        super::requests_sent(self, FamilyId::of(&address)).add(0, interface.0, 1);
        self.send_frames(vec![(interface, frame)]);
        true
    }

    /// Whether an address can be announced on a link: it is the interface's own, and known to be nobody else's.
    pub(super) fn can_announce(&self, interface: IfIndex, address: IpAddr) -> bool {
        self.neighbor_view(interface).is_some_and(|view| match address {
            IpAddr::V4(address) => view.owns4(address.to_bits()),
            IpAddr::V6(address) => view.owns6(address.to_bits()) == Some(crate::nd::AddressState::Preferred),
        })
    }
}
