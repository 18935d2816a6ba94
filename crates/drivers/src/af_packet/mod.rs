//! `host-interface`: a network device of the kernel through packet sockets with TPACKET_V2 rings.
//!
//! ```text
//!             ┌─ RxSocket ── ring ──► AfPacketRx (worker i)  ─┐   one per rx queue, flows shared by PACKET_FANOUT
//!   device  ──┤                                               ├── graph
//!             └─ TxSocket ◄── ring ── AfPacketTx (worker j)  ─┘   one per thread
//!
//!   AfPacket (control side): opens both, re-opens them when the device was away, and hands them over by mailboxes
//! ```
//!
//! **Reception.** Slots hold a frame of the device's MTU; what is larger (kernel peers on a veth send super-frames of up to
//! 65,226 bytes) waits whole in the socket's queue (PACKET_COPY_THRESH) and costs one more system call. A ring thus takes
//! 2 MB rather than 68. Unfinished checksums are finished, super-frames cut, stripped VLAN tags put back
//! ([`crate::virtio_net`]). Slots go back to the kernel one by one as soon as they are copied.
//!
//! **Transmission.** Frames are copied into ring slots and go out with one system call a vector, past the queueing
//! discipline unless asked otherwise. The vnet header asks the kernel to copy them into its own linear memory, so that slots
//! are free again when the call returns, also on devices that hand packets on within the machine. Segments of one TCP connection
//! that follow one another go out as a super-frame ([`crate::joined`]).
//!
//! **Addresses.** As in VPP the interface has a hardware address of its own, `02:fe:…` derived from the router and the device unless given, so the
//! device is made promiscuous for as long as a socket is open. The kernel's own stack still sees what arrives; give the
//! device no IP addresses.
//!
//! **Life of the device.** Up, down, gone: sockets survive "down" by themselves. A device that was deleted takes its sockets
//! with it; [`AfPacket::refresh`](quiver_graph::Port::refresh) finds the new one by name.
//!
//! Not checked: other programs that use the same device.

mod error;
mod ingress;
mod ring;
mod rx;
mod socket;
mod tx;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quiver_graph::{Link, Port, PortState, RxQueue, TxQueue};

pub use error::AfPacketError;

use crate::ethernet::{FrameLimit, default_mac};
use crate::fast_path::FastPath;
use crate::mailbox::Mailbox;
use crate::netdev::{self, ETHERNET, NetDevice, NetDevices};
use crate::virtio_net::LinkLayer;
use ingress::Ingress;
use rx::AfPacketRx;
use socket::{RxSocket, TxSocket};
use tx::AfPacketTx;

/// Largest number of slots in a ring.
const RING_MAX: usize = 1 << 16;
/// Largest number of receive queues: sockets of a fanout group.
const QUEUES_MAX: usize = 64;
/// Receive slots unless given: 41 ms at 100,000 packets/s, more than a thread waits for its turn on a machine that is shared
/// with others, and more than a TCP sender of the usual 4 MB has under way. 8 MB.
const DEFAULT_RX_SLOTS: usize = 4096;
/// Slots of a block unless given: a block of the usual slots is 27 pages.
const PER_BLOCK: usize = 64;

/// What the interface carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IP packets: for devices without a link layer, such as TUN.
    Ip,
}

/// How to open a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfPacketConfig {
    /// The device's name, in the network namespace of the thread that opens it.
    pub name: String,
    /// Hardware address of the interface; derived for `None`.
    pub mac: Option<[u8; 6]>,
    /// Receive queues.
    pub rx_queues: usize,
    /// Slots of a receive ring.
    pub rx_size: usize,
    /// Slots of a transmit ring.
    pub tx_size: usize,
    /// Slots of a receive ring's block.
    pub rx_per_block: usize,
    /// Slots of a transmit ring's block.
    pub tx_per_block: usize,
    /// Largest frame that a receive slot holds; the device's MTU (up to 10 kB) for `None`.
    pub rx_frame: Option<usize>,
    /// Whether sending goes past the device's queueing discipline.
    pub qdisc_bypass: bool,
    /// Whether unfinished checksums may be left to the kernel when sending.
    pub cksum_gso: bool,
    /// What the interface carries.
    pub mode: Mode,
}

impl AfPacketConfig {
    /// The usual settings for a device.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            mac: None,
            rx_queues: 1,
            rx_size: DEFAULT_RX_SLOTS,
            tx_size: 1024,
            rx_per_block: PER_BLOCK,
            tx_per_block: PER_BLOCK,
            rx_frame: None,
            qdisc_bypass: true,
            cksum_gso: true,
            mode: Mode::Ethernet,
        }
    }

    fn check(&self) -> Result<(), AfPacketError> {
        let ranges = [
            ("num-rx-queues", self.rx_queues, 1..=QUEUES_MAX, "1 to 64"),
            ("rx-size", self.rx_size, 8..=RING_MAX, "8 to 65536"),
            ("tx-size", self.tx_size, 8..=RING_MAX, "8 to 65536"),
            ("rx-per-block", self.rx_per_block, 1..=RING_MAX, "1 to 65536"),
            ("tx-per-block", self.tx_per_block, 1..=RING_MAX, "1 to 65536"),
            ("rx-frame", self.rx_frame.unwrap_or(64), 64..=65_536, "64 to 65536"),
        ];
        match ranges.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
            None => Ok(()),
            Some((key, value, _, allowed)) => Err(AfPacketError::Range { key, value, allowed, name: self.name.clone() }),
        }
    }
}

/// What control side and queues share about the device.
#[derive(Debug)]
struct DeviceState {
    mtu: AtomicU32,
    link: LinkLayer,
    /// Unfinished checksums may be left to the kernel.
    leaves_checksums: bool,
    /// The device cuts super-frames of TCP, or hands them on.
    segments: AtomicBool,
}

impl DeviceState {
    fn frame_limit(&self) -> FrameLimit {
        FrameLimit::of_mtu(self.mtu.load(Ordering::Relaxed), self.link)
    }

    /// Whether segments may be joined. Past the queueing discipline the kernel drops a super-frame that the device does not take.
    fn joins(&self) -> bool {
        self.leaves_checksums && self.link == LinkLayer::Ethernet && self.segments.load(Ordering::Relaxed)
    }
}

/// A host interface, on the control side.
#[derive(Debug)]
pub struct AfPacket {
    config: AfPacketConfig,
    devices: NetDevices,
    /// What the device was when last looked at; `None`: gone.
    device: Option<NetDevice>,
    /// Index of the device that the sockets are bound to.
    bound: u32,
    mac: [u8; 6],
    state: Arc<DeviceState>,
    /// Receive sockets until they are taken.
    fresh: Vec<RxSocket>,
    rx: Vec<Arc<Mailbox<RxSocket>>>,
    tx: Vec<Arc<Mailbox<TxSocket>>>,
    ingress: Ingress,
    /// Bytes of memory of one receive ring.
    ring_bytes: usize,
}

impl AfPacket {
    /// Opens a device of the calling thread's network namespace. It stays with that namespace, from whatever thread it is
    /// used later.
    ///
    /// # Errors
    /// No such device, settings out of range, no permission, a device that does not fit the mode.
    pub fn open(config: AfPacketConfig) -> Result<Self, AfPacketError> {
        config.check()?;
        let failed = |what| {
            let name = config.name.clone();
            move |error| AfPacketError::of(what, &name, error)
        };
        let devices = NetDevices::open().map_err(failed("opening a socket"))?;
        let device = devices.get(&config.name).map_err(failed("asking for the device"))?;
        fits(&config, &device)?;
        let fresh = socket::open_rx(&config, &device).map_err(failed("opening a packet socket"))?;
        let link = if config.mode == Mode::Ip { LinkLayer::Ip } else { LinkLayer::Ethernet };
        let mac = match config.mac {
            Some(mac) => mac,
            None => default_mac("host", &config.name, device.mac).map_err(failed("drawing an address"))?,
        };
        let ring_bytes = fresh.first().map_or(0, |s| s.ring.bytes());
        Ok(Self {
            rx: fresh.iter().map(|_| Arc::new(Mailbox::new())).collect(),
            tx: Vec::new(),
            ingress: Ingress::new(fresh.iter().map(|socket| Arc::downgrade(&socket.fd)).collect()),
            state: Arc::new(DeviceState {
                mtu: AtomicU32::new(device.mtu),
                link,
                leaves_checksums: config.cksum_gso,
                segments: AtomicBool::new(devices.segments_tcp(&config.name)),
            }),
            bound: device.index,
            device: Some(device),
            config,
            devices,
            mac,
            fresh,
            ring_bytes,
        })
    }

    /// How it was opened.
    pub fn config(&self) -> &AfPacketConfig {
        &self.config
    }

    /// The kernel's device as last seen; `None` while it is gone.
    pub fn device(&self) -> Option<&NetDevice> {
        self.device.as_ref()
    }

    /// Whether the device runs the fast path. It ends by itself where the device was away.
    pub fn is_fast(&self) -> bool {
        self.ingress.is_fast()
    }

    /// Has the device run the fast path.
    ///
    /// # Errors
    /// The kernel's: it is older than 6.6, or the device is gone; then all is as it was.
    pub fn join(&mut self, fast: &FastPath) -> io::Result<()> {
        self.ingress.join(fast, self.bound)
    }

    /// Has every frame go to the graph again.
    pub fn leave(&mut self) {
        self.ingress.leave();
    }

    /// Opens everything anew for a device that has come back.
    fn reopen(&mut self, device: &NetDevice) -> io::Result<()> {
        fits(&self.config, device)?;
        let name = self.config.name.as_str();
        let failed = |error| AfPacketError::of("opening a packet socket", name, error);
        let rx = socket::open_rx(&self.config, device).map_err(failed)?;
        let tx: Vec<_> =
            self.tx.iter().map(|_| socket::open_tx(&self.config, device)).collect::<io::Result<_>>().map_err(failed)?;
        // From here on nothing fails: queues get all of the new device or nothing.
        self.ingress = Ingress::new(rx.iter().map(|socket| Arc::downgrade(&socket.fd)).collect());
        if self.fresh.is_empty() {
            self.rx.iter().zip(rx).for_each(|(mailbox, socket)| mailbox.send(socket));
        } else {
            self.fresh = rx;
        }
        self.tx.iter().zip(tx).for_each(|(mailbox, socket)| mailbox.send(socket));
        self.bound = device.index;
        Ok(())
    }
}

/// Whether the device can be used in the mode asked for.
fn fits(config: &AfPacketConfig, device: &NetDevice) -> Result<(), AfPacketError> {
    let is_ethernet = device.link_type == ETHERNET || device.link_type == libc::ARPHRD_LOOPBACK;
    let (mode, reason) = match (config.mode, is_ethernet) {
        (Mode::Ethernet, true) | (Mode::Ip, false) => return Ok(()),
        (Mode::Ethernet, false) => ("ethernet", "it has no Ethernet header; use `mode ip`"),
        (Mode::Ip, true) => ("ip", "it has an Ethernet header; leave `mode ip` out"),
    };
    Err(AfPacketError::Mode { name: config.name.clone(), mode, reason })
}

impl Port for AfPacket {
    fn input_node(&self) -> &'static str {
        "af-packet-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let sockets = std::mem::take(&mut self.fresh);
        let link = self.state.link;
        let queues = sockets.into_iter().zip(&self.rx);
        Ok(queues.map(|(socket, mailbox)| Box::new(AfPacketRx::new(socket, mailbox.clone(), link)) as Box<dyn RxQueue>).collect())
    }

    fn open_tx(&mut self, _thread: usize) -> io::Result<Box<dyn TxQueue>> {
        let name = self.config.name.as_str();
        let failed = |error| AfPacketError::of("opening a packet socket", name, error);
        let device = self.devices.get(name).map_err(failed)?;
        let socket = socket::open_tx(&self.config, &device).map_err(failed)?;
        let mailbox = Arc::new(Mailbox::new());
        self.tx.push(mailbox.clone());
        Ok(Box::new(AfPacketTx::new(socket, mailbox, self.state.clone())))
    }

    fn link(&mut self) -> Link {
        let device = self.devices.get(&self.config.name).ok();
        Link { up: device.is_some_and(|d| d.carrier), speed: device.and_then(|d| d.speed) }
    }

    fn mac(&self) -> Option<[u8; 6]> {
        (self.config.mode == Mode::Ethernet).then_some(self.mac)
    }

    fn identity(&self) -> [u8; 6] {
        self.mac
    }

    fn max_frame(&self) -> usize {
        self.state.frame_limit().plain
    }

    fn link_fd(&self) -> Option<RawFd> {
        None
    }

    fn refresh(&mut self) -> io::Result<PortState> {
        self.rx.iter().for_each(|m| m.collect());
        self.tx.iter().for_each(|m| m.collect());
        // A queue that was closed leaves its mailbox to us alone.
        self.tx.retain(|m| Arc::strong_count(m) > 1);
        self.device = self.devices.get(&self.config.name).ok();
        let mut reopened = false;
        if let Some(device) = self.device {
            if device.index != self.bound {
                self.reopen(&device)?;
                reopened = true;
            }
            self.state.mtu.store(device.mtu, Ordering::Relaxed);
            self.state.segments.store(self.devices.segments_tcp(&self.config.name), Ordering::Relaxed);
        }
        let link = Link { up: self.device.is_some_and(|d| d.carrier), speed: self.device.and_then(|d| d.speed) };
        Ok(PortState { present: self.device.is_some(), link, mac: self.mac(), max_frame: self.max_frame(), reopened })
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        let name = self.config.name.as_str();
        let what = if up { "taking the device up" } else { "taking the device down" };
        self.devices.set_up(name, up).map_err(|e| AfPacketError::of(what, name, e).into())
    }

    fn numa(&self) -> Option<usize> {
        netdev::numa(&self.config.name)
    }

    fn describe(&self) -> Vec<String> {
        let c = &self.config;
        let mut lines =
            vec![format!("Linux device {}, TPACKET_V2, qdisc bypass {}", c.name, if c.qdisc_bypass { "on" } else { "off" })];
        lines.push(match &self.device {
            None => "device is gone".to_owned(),
            Some(d) => format!(
                "index {} mtu {} address {} {}",
                d.index,
                d.mtu,
                d.mac.map_or("none".to_owned(), |m| m.map(|b| format!("{b:02x}")).join(":")),
                match (d.up, d.carrier) {
                    (false, _) => "down",
                    (true, false) => "no carrier",
                    (true, true) => "up",
                }
            ),
        });
        lines.push(format!(
            "rx queues {} of {} slots, {} bytes each; tx queues {} of {} slots",
            self.rx.len(),
            c.rx_size,
            self.ring_bytes,
            self.tx.len(),
            c.tx_size
        ));
        lines
    }
}

#[cfg(test)]
mod tests;
