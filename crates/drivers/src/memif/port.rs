//! A memif interface behind the port contract.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use quiver_graph::{Link, Port, PortState, RxQueue, TxQueue};

use super::hub::Interface;
use super::rx::{MemifRx, RxSlot};
use super::tx::{MemifTx, TxSlots};
use super::{FRAME_MAX, Key, Memif, Mode, Role, Shared};

/// A memif interface, on the control side. Dropping it ends the connection and removes it from its [`Memif`].
pub struct MemifPort {
    memif: Memif,
    key: Key,
    mac: [u8; 6],
    mode: Mode,
    rx: Vec<Arc<RxSlot>>,
    tx: Arc<TxSlots>,
    shared: Arc<Shared>,
}

impl MemifPort {
    pub(super) fn new(memif: Memif, interface: &Interface, mac: [u8; 6]) -> Self {
        Self {
            memif,
            key: interface.config.key,
            mac,
            mode: interface.config.mode,
            rx: interface.rx.clone(),
            tx: interface.tx.clone(),
            shared: interface.shared.clone(),
        }
    }

    /// What it is known by.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl Port for MemifPort {
    fn input_node(&self) -> &'static str {
        "memif-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let slots = std::mem::take(&mut self.rx);
        Ok(slots.into_iter().map(|slot| Box::new(MemifRx::new(slot, self.shared.clone())) as Box<dyn RxQueue>).collect())
    }

    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(MemifTx::new(self.tx.clone(), self.shared.clone(), thread)))
    }

    fn link(&mut self) -> Link {
        let up = self.memif.0.borrow().interfaces.get(&self.key).is_some_and(|i| i.regions.is_some());
        Link { up, speed: None }
    }

    fn mac(&self) -> Option<[u8; 6]> {
        (self.mode == Mode::Ethernet).then_some(self.mac)
    }

    fn identity(&self) -> [u8; 6] {
        self.mac
    }

    fn max_frame(&self) -> usize {
        FRAME_MAX
    }

    fn refresh(&mut self) -> io::Result<PortState> {
        Ok(PortState { present: true, link: self.link(), mac: self.mac(), max_frame: FRAME_MAX, reopened: false })
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        self.memif.set_up(self.key, up);
        Ok(())
    }

    fn descriptors(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        self.memif.0.borrow().inheritance(self.key)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.memif.begin(self.key);
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let Some(info) = self.memif.interface(self.key) else { return Vec::new() };
        let role = if info.role == Role::Server { "master" } else { "slave" };
        let state = match (info.connected, info.up, info.reason.as_str()) {
            (true, _, _) => format!("connected to {} ({})", info.remote_interface, info.remote),
            (false, false, _) => "down".to_owned(),
            (false, true, "") => "not connected".to_owned(),
            (false, true, reason) => format!("not connected: {reason}"),
        };
        vec![format!("MEMIF interface, {role}, socket {}", info.path), state]
    }
}

impl Drop for MemifPort {
    fn drop(&mut self) {
        self.memif.remove(self.key);
    }
}
