//! The port contract: what a device driver is to the graph, and the nodes that run any driver.
//!
//! ```text
//!   RxQueue::rx ──► DeviceInput node (one per driver kind and worker, polls the queues placed there) ──► ethernet-input
//!   …-output ──► DeviceTx node (one per interface and worker) ──► TxQueue::tx
//! ```
//!
//! A queue belongs to one worker at a time and is moved by the main thread, at any time between two calls; it must not mind on
//! which thread it is called next. Workers come and go: [`Port::open_tx`] is called for a thread that joins, and the queue of one
//! that leaves is dropped; the same thread number may come again. How a queue waits for packets is its [`RxMode`]. What a device cannot take is dropped and counted
//! by the tx node; a driver never waits. A device that dies answers [`RxState::Down`] and takes nothing; the control side
//! re-opens it.

mod input;
mod rx;
mod tx;
mod watch;

use std::any::Any;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

pub use input::{DeviceInput, DeviceNext, MovingQueue, PlacedQueue, RxMode};
pub use rx::{RxBurst, RxQueue};
pub use tx::{DeviceTx, SharedTxQueue, Transmitted, TxBatch, TxDrop, TxQueue, TxState};

/// What a device says about itself after a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxState {
    /// In order.
    Up,
    /// The device is gone or its link is down; nothing was received.
    Down,
}

/// A run of packet bytes in a buffer, for devices that work on packet memory itself. Its layout is C's, for drivers that are
/// partly in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// The buffer.
    pub buffer: u32,
    /// Bytes from the start of its headroom to the data.
    pub offset: u32,
    /// Bytes of data.
    pub len: u32,
}
/// State of a device's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it carries.
    pub up: bool,
    /// Bits a second, where the device knows.
    pub speed: Option<u64>,
}

/// What a device is at one moment, as [`Port::refresh`] finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortState {
    /// There is such a device.
    pub present: bool,
    /// Its link.
    pub link: Link,
    /// Hardware address that the interface has, where it has one.
    pub mac: Option<[u8; 6]>,
    /// Largest frame, bytes without FCS.
    pub max_frame: usize,
    /// The device was opened anew: queues must [take it up](DeviceInput::renew).
    pub reopened: bool,
}

/// A device: opened by its driver, taken apart into queues by the control side.
pub trait Port: Any {
    /// Name of the input node that polls its queues, such as `af-packet-input`.
    fn input_node(&self) -> &'static str;

    /// Takes the receive queues out, all that the device has.
    ///
    /// # Errors
    /// The operating system's.
    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>>;

    /// A transmit queue for a thread.
    ///
    /// # Errors
    /// The operating system's.
    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>>;

    /// Link state now.
    fn link(&mut self) -> Link;

    /// Hardware address, where the device has one.
    fn mac(&self) -> Option<[u8; 6]>;

    /// What tells the device from others on its link: the hardware address, or bytes like one that the driver has drawn. The interface's
    /// link-local IPv6 address follows from it. All zeroes where there is nothing.
    fn identity(&self) -> [u8; 6] {
        self.mac().unwrap_or_default()
    }

    /// Largest frame that the device takes, bytes without FCS.
    fn max_frame(&self) -> usize;

    /// Descriptor that becomes readable when the device may have changed: call [`Port::refresh`] then. `None`: a watch of
    /// the driver's tells.
    fn link_fd(&self) -> Option<RawFd> {
        None
    }

    /// Looks at the device again after something has changed, and opens it anew where it had gone and is back. Queues keep
    /// their places; where `reopened` is set, the caller has each thread call [`DeviceInput::renew`].
    ///
    /// # Errors
    /// The device is there but cannot be opened.
    fn refresh(&mut self) -> io::Result<PortState> {
        let link = self.link();
        Ok(PortState { present: true, link, mac: self.mac(), max_frame: self.max_frame(), reopened: false })
    }

    /// Takes the device up or down with its interface, where the device has such a state.
    ///
    /// # Errors
    /// The operating system's.
    fn set_up(&mut self, _up: bool) -> io::Result<()> {
        Ok(())
    }

    /// NUMA node that the device is attached to, where it is known: its queues go to workers of that node.
    fn numa(&self) -> Option<usize> {
        None
    }

    /// Zeroes the counters that the device itself keeps, where it does.
    fn clear_counters(&mut self) {}

    /// Further lines for `show hardware-interfaces`.
    fn describe(&self) -> Vec<String> {
        Vec::new()
    }

    /// What the device is made of, with a key by which the next process asks for it: for a device that cannot be opened twice, and
    /// whose state must not be lost. `None`: the next process opens it itself.
    ///
    /// # Errors
    /// No descriptors are left.
    fn descriptors(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        Ok(None)
    }

    /// The process before this one has stopped: from now on the device is this one's.
    ///
    /// # Errors
    /// The operating system's.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }
}
