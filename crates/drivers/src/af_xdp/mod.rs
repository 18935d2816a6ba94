//! AF_XDP: a network device of the kernel, with packets received into and sent from the router's own buffers.
//!
//! ```text
//!   device ─┬─ XDP program: frames of queue q ──► socket q ── rx ring ──► AfXdpRx (worker i) ── graph
//!           │                                        ▲ fill ring: free buffers
//!           └◄── tx ring of socket q ◄── AfXdpTx (any thread, by turns)      completion ring: sent buffers
//!
//!   AfXdp (control side): program, sockets; opens all anew when the device was away
//! ```
//!
//! **Memory.** The whole region of packet buffers is the sockets' memory (UMEM) in unaligned-chunk mode, so that a buffer
//! received here can leave through any other device. Sockets of one device share one registration. The driver knows at any
//! time which buffers the kernel has ([`lent`]), and gives them back when the sockets are closed.
//!
//! **Modes.** The program is attached natively where the device's driver offers that, else generically; packets are not copied
//! where the driver offers zero-copy and the region lies on large pages, else the kernel copies them once. Frames larger than a
//! buffer come and go in several pieces (Linux 6.6).
//!
//! **Queues.** A frame of a queue without a socket goes to the kernel, so all queues of the device are opened unless fewer are
//! asked for. Threads send by turns through the queue that their number gives.
//!
//! **Peers on this machine.** A kernel at the other end of a veth leaves checksums unfinished, and super-frames uncut where the
//! program is generic; both is put right ([`host_peer`]). A VLAN tag that it keeps beside the frame is lost, as XDP knows
//! nothing of it: turn that off there (`ethtool -K PEER txvlan off`).
//!
//! **End.** The program hangs on a descriptor of this process and nothing is pinned: it vanishes with the process. A process that
//! takes over gets that descriptor, and its sockets follow those of the process before on their queues ([`inherit`]).
//!
//! Not checked: other programs that change the device's queues or its XDP program.

mod error;
pub mod host_peer;
pub(crate) mod inherit;
mod lent;
pub(crate) mod program;
mod ring;
mod rx;
mod socket;
mod status;
mod tx;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quiver_buffer::{Pool, Region};
use quiver_graph::{Link, Port, PortState, RxQueue, Segment, TxQueue};

pub use error::AfXdpError;
pub use status::{QueueStatus, Status};

use crate::closer::{self, Later};
use crate::ethernet::{FrameLimit, default_mac};
use crate::fast_path::FastPath;
use crate::mailbox::Mailbox;
use crate::netdev::{self, ETHERNET, NetDevice, NetDevices};
use crate::rights::{Direct, Rights};
use crate::sys;
use crate::virtio_net::LinkLayer;
use program::Program;
use rx::{AfXdpRx, Shipped};
use socket::{Addresses, Binding, Halves, Opening, Socket};
use tx::{AfXdpTx, TxSide};

/// Largest number of entries of a ring.
const RING_MAX: usize = 1 << 15;
/// Largest number of receive queues.
const QUEUES_MAX: u32 = 64;
/// A device's queues lend the kernel one part in so many of all buffers, but not fewer than this each.
const PART: u32 = 4;
const FILL_MIN: u32 = 64;
/// How long sockets of ours that are being closed may keep a device busy.
const SETTLE: Duration = Duration::from_secs(2);
/// How often that is waited for, and how long each time.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// By the device's driver where it can, else generically.
    #[default]
    Auto,
    /// By the device's driver, or not at all.
    Native,
    /// By the kernel, for any device.
    Generic,
}

/// Whether the device reads and writes packet buffers itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Where driver and memory allow it.
    #[default]
    Auto,
    /// It must.
    Demanded,
    /// The kernel copies.
    Never,
}

/// Busy polling: the device is served by our calls rather than by interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long a call may look for packets, µs.
    pub microseconds: u32,
    /// Packets that a call may take.
    pub budget: u32,
}

/// How to open a device.
#[derive(Clone)]
pub struct AfXdpConfig {
    /// The device's name, in the network namespace of the thread that opens it.
    pub name: String,
    /// Hardware address of the interface; drawn at random for `None`.
    pub mac: Option<[u8; 6]>,
    /// The interface takes the device's own hardware address.
    pub mac_reuse: bool,
    /// Receive queues; all of the device for `None`.
    pub rx_queues: Option<u32>,
    /// Entries of the fill and rx rings: a power of two.
    pub rx_size: usize,
    /// Entries of the tx and completion rings: a power of two.
    pub tx_size: usize,
    /// How the program is attached.
    pub attach: Attach,
    /// Whether the device works on packet buffers itself.
    pub zero_copy: ZeroCopy,
    /// Busy polling, where wanted.
    pub busy_poll: Option<BusyPoll>,
    /// Pools of the router's packet buffers.
    pub pools: Vec<Arc<Pool>>,
    /// Who loads the program.
    pub rights: Arc<dyn Rights>,
}

impl AfXdpConfig {
    /// The usual settings for a device; `pools` are the router's.
    pub fn new(name: impl Into<String>, pools: Vec<Arc<Pool>>) -> Self {
        Self {
            name: name.into(),
            mac: None,
            mac_reuse: false,
            rx_queues: None,
            rx_size: 1024,
            tx_size: 1024,
            attach: Attach::Auto,
            zero_copy: ZeroCopy::Auto,
            busy_poll: None,
            pools,
            rights: Arc::new(Direct),
        }
    }

    fn region(&self) -> io::Result<&Arc<Region>> {
        self.pools.first().map(|p| p.region()).ok_or_else(|| io::Error::other("no packet buffers"))
    }

    /// How many buffers each queue lends for receiving: a device with many queues must not take them all.
    fn fill_target(&self, queues: u32) -> u32 {
        let buffers: u32 = self.pools.iter().map(|p| p.usage().total).sum();
        (self.rx_size as u32).min((buffers / PART / queues.max(1)).max(FILL_MIN))
    }

    fn check(&self, available: u32) -> Result<u32, AfXdpError> {
        let range = |key, value: usize, allowed: String| Err(AfXdpError::Range { key, value, allowed, name: self.name.clone() });
        for (key, value) in [("rx-queue-size", self.rx_size), ("tx-queue-size", self.tx_size)] {
            if !value.is_power_of_two() || !(64..=RING_MAX).contains(&value) {
                return range(key, value, format!("a power of two from 64 to {RING_MAX}"));
            }
        }
        let most = available.min(QUEUES_MAX);
        let queues = self.rx_queues.unwrap_or(most);
        if !(1..=most).contains(&queues) {
            return range("num-rx-queues", queues as usize, format!("1 to {most} (what the device has)"));
        }
        if self.zero_copy == ZeroCopy::Demanded && self.region().is_ok_and(|r| r.pages() == "4 kB") {
            let reason = "zero-copy needs packet buffers on 2 MB pages (`sysctl -w vm.nr_hugepages=64' before the start)".into();
            return Err(AfXdpError::Unfit { name: self.name.clone(), reason });
        }
        Ok(queues)
    }
}

/// What control side and queues share about the device.
struct DeviceState {
    mtu: AtomicU32,
    /// Whether frames come from a kernel that leaves work to the device.
    finishes: bool,
    busy_polls: bool,
    /// Buffers that a queue lends the kernel for receiving.
    fill_target: u32,
    addresses: Addresses,
    region: Arc<Region>,
}

impl DeviceState {
    #[inline(always)]
    fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    #[inline(always)]
    fn frame_limit(&self) -> FrameLimit {
        FrameLimit::of_mtu(self.mtu.load(Ordering::Relaxed), LinkLayer::Ethernet)
    }

    /// Where a byte of a buffer lies, for prefetching.
    #[inline(always)]
    fn address(&self, buffer: u32, offset: u32) -> *const u8 {
        self.region.base().wrapping_add(self.addresses.address(buffer, offset) as usize)
    }

    /// The bytes of a segment; `None` where it does not lie in the data area of a buffer of the region.
    ///
    /// # Safety
    /// The buffer is the caller's alone while the slice lives.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn bytes(&self, segment: Segment) -> Option<&mut [u8]> {
        let end = segment.offset.checked_add(segment.len)?;
        if segment.buffer >= self.region.capacity() || end > self.region.geometry().data_end() {
            return None;
        }
        // SAFETY: inside the buffer (R2 of the region, checked above), which is the caller's.
        Some(unsafe {
            let start = self.region.buffer(segment.buffer).add(segment.offset as usize);
            std::slice::from_raw_parts_mut(start, segment.len as usize)
        })
    }
}

/// What hangs on one life of a device.
#[derive(Debug)]
struct Attached {
    // Detached first, so that no frame is directed to a socket that is being closed.
    link: Option<OwnedFd>,
    program: Arc<Program>,
    /// Keeps the device promiscuous: the interface has an address of its own.
    _promiscuous: OwnedFd,
    native: bool,
    /// The device runs the fast path.
    fast: AtomicBool,
}

/// A device used through AF_XDP, on the control side.
pub struct AfXdp {
    config: AfXdpConfig,
    devices: NetDevices,
    /// What the device was when last looked at; `None`: gone.
    device: Option<NetDevice>,
    driver: String,
    /// Queues that the device has, of which `rx.len()` are used.
    available: u32,
    /// Index of the device that the sockets are bound to.
    bound: u32,
    mac: [u8; 6],
    state: Arc<DeviceState>,
    attached: Later<Attached>,
    /// For display.
    sockets: Vec<std::sync::Weak<Socket>>,
    /// Receiving halves until they are taken.
    fresh: Vec<Shipped>,
    rx: Vec<Arc<Mailbox<Shipped>>>,
    tx: Vec<Arc<TxSide>>,
    /// Another process still has the queues: sockets that are bound when it has stopped.
    waiting: Option<Binding>,
    /// They could not be bound.
    unbound: Arc<AtomicBool>,
}

impl AfXdp {
    /// Opens a device of the calling thread's network namespace. It stays with that namespace, from whatever thread it is
    /// used later.
    ///
    /// # Errors
    /// No such device, settings out of range, no permission, a device or memory that does not fit.
    pub fn open(config: AfXdpConfig) -> Result<Self, AfXdpError> {
        closer::start();
        let name = config.name.as_str();
        let failed = |what| move |error| AfXdpError::of(what, name, error);
        let devices = NetDevices::open().map_err(failed("opening a socket"))?;
        let device = devices.get(name).map_err(failed("asking for the device"))?;
        let unfit = |reason: &str| AfXdpError::Unfit { name: name.to_owned(), reason: reason.to_owned() };
        if device.link_type != ETHERNET {
            return Err(unfit("it has no Ethernet header"));
        }
        let available = devices.rx_queues(name);
        let queues = config.check(available)?;
        let region = config.region().map_err(failed("looking for packet buffers"))?.clone();
        let addresses = Addresses::of(&region)
            .ok_or_else(|| unfit("packet buffers are too small for it: `buffers { default data-size 2048 }' in startup.conf"))?;
        let driver = devices.driver(name);
        let mac = match (config.mac, device.mac) {
            (Some(mac), _) => mac,
            (None, Some(mac)) if config.mac_reuse => mac,
            _ => default_mac("af_xdp", name, device.mac).map_err(failed("drawing an address"))?,
        };
        let (attached, halves, waiting) = match inherit::take(&config, &device, queues) {
            Some(inherited) => inherited.prepare(&config, &device, queues, addresses)?,
            None => {
                let (attached, halves) = attach_patiently(&config, &devices, &device, queues, addresses)?;
                (attached, halves, None)
            }
        };
        let state = Arc::new(DeviceState {
            mtu: AtomicU32::new(device.mtu),
            finishes: host_peer::sends_unfinished(&driver),
            busy_polls: config.busy_poll.is_some(),
            fill_target: config.fill_target(queues),
            addresses,
            region,
        });
        let mut port = Self {
            rx: halves.iter().map(|_| Arc::new(Mailbox::new())).collect(),
            bound: device.index,
            device: Some(device),
            config,
            devices,
            driver,
            available,
            mac,
            state,
            attached: Later::new(attached),
            sockets: Vec::new(),
            fresh: Vec::new(),
            tx: Vec::new(),
            waiting,
            unbound: Arc::default(),
        };
        port.sockets = halves.iter().map(|(receiver, _)| Arc::downgrade(&receiver.socket)).collect();
        for (receiver, sender) in halves {
            port.fresh.push(Later::new(receiver));
            port.tx.push(Arc::new(TxSide::new(sender)));
        }
        Ok(port)
    }

    /// How it was opened.
    pub fn config(&self) -> &AfXdpConfig {
        &self.config
    }

    /// Whether the device runs the fast path. It ends by itself where the device was away.
    pub fn is_fast(&self) -> bool {
        self.attached.fast.load(Ordering::Relaxed)
    }

    /// Has the device run the fast path, as port `number` of it.
    ///
    /// # Errors
    /// The program is not run by the device's driver, the queues are another process' still, or the kernel's; then all is as it was.
    pub fn join(&self, fast: &FastPath, number: u32) -> io::Result<()> {
        let Attached { link: Some(link), native: true, program, .. } = &*self.attached else {
            return Err(io::Error::other("its driver does not run the XDP program"));
        };
        if !program.frags || self.waiting.is_some() {
            return Err(io::Error::other("it is not ready for it"));
        }
        for (queue, socket) in self.sockets.iter().enumerate() {
            let socket = socket.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            fast.direct(number, queue as u32, socket.fd()?)?;
        }
        program::exchange(link, fast.program())?;
        self.attached.fast.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has the device run the plain program again, by which every frame goes to the graph.
    ///
    /// # Errors
    /// The kernel's: the device is gone.
    pub fn leave(&self) -> io::Result<()> {
        let Attached { link: Some(link), program, fast, .. } = &*self.attached else { return Ok(()) };
        if fast.swap(false, Ordering::Relaxed) { program::exchange(link, program.raw()) } else { Ok(()) }
    }

    /// How it goes now.
    pub fn status(&self) -> Status {
        let sockets: Vec<Arc<Socket>> = self.sockets.iter().filter_map(std::sync::Weak::upgrade).collect();
        Status {
            device: self.config.name.clone(),
            driver: self.driver.clone(),
            present: self.device,
            native: self.attached.native,
            zero_copy: sockets.first().is_some_and(|s| s.zero_copy()),
            pieces: sockets.first().is_some_and(|s| s.pieces),
            finishes_checksums: self.state.finishes,
            available_queues: self.available,
            rx_size: self.config.rx_size,
            tx_size: self.config.tx_size,
            queues: sockets.iter().map(|s| QueueStatus::of(s)).collect(),
        }
    }

    /// Opens everything anew for a device that has come back.
    fn reopen(&mut self, device: &NetDevice) -> Result<(), AfXdpError> {
        self.available = self.devices.rx_queues(&self.config.name);
        let queues = self.rx.len() as u32;
        if queues > self.available {
            let reason =
                format!("it is back with {} queues, but {queues} are in use; delete and create the interface", self.available);
            return Err(AfXdpError::Unfit { name: self.config.name.clone(), reason });
        }
        let (attached, halves) = attach_patiently(&self.config, &self.devices, device, queues, self.state.addresses)?;
        // From here on nothing fails: queues get all of the new device or nothing.
        self.attached = Later::new(attached);
        self.sockets = halves.iter().map(|(receiver, _)| Arc::downgrade(&receiver.socket)).collect();
        let taken = self.fresh.is_empty();
        self.fresh.clear();
        for ((receiver, sender), (mailbox, side)) in halves.into_iter().zip(self.rx.iter().zip(&self.tx)) {
            if taken {
                mailbox.send(Later::new(receiver));
            } else {
                self.fresh.push(Later::new(receiver));
            }
            side.replace(sender);
        }
        self.bound = device.index;
        Ok(())
    }
}

/// [`attach`]; while the device is busy with what we are closing, once more after a moment.
fn attach_patiently(
    config: &AfXdpConfig,
    devices: &NetDevices,
    device: &NetDevice,
    queues: u32,
    addresses: Addresses,
) -> Result<(Attached, Vec<Halves>), AfXdpError> {
    for _ in 0..TRIES {
        match attach(config, devices, device, queues, addresses) {
            Err(error) if error.is_busy() => {
                closer::settle(SETTLE);
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    attach(config, devices, device, queues, addresses)
}

/// Attaches the program and opens the sockets.
fn attach(
    config: &AfXdpConfig,
    devices: &NetDevices,
    device: &NetDevice,
    queues: u32,
    addresses: Addresses,
) -> Result<(Attached, Vec<Halves>), AfXdpError> {
    let name = config.name.as_str();
    let failed = |what| move |error| AfXdpError::of(what, name, error);
    let program = Program::load(queues, &*config.rights).map_err(failed("loading the XDP program"))?;
    let (link, native) = program.attach(device.index, config.attach).map_err(failed("attaching the XDP program"))?;
    // A device that strips tags has no way to tell us.
    let _ = devices.keep_vlan_tags(name);
    let opening = |pieces| Opening { config, addresses, device: device.index, pieces }.open(queues);
    let halves = match opening(program.frags) {
        // Kernels before 6.6 do not know frames in pieces, and some drivers do not.
        Err(error) if program.frags && error.kind() == io::ErrorKind::InvalidInput => opening(false)?,
        result => result?,
    };
    for (queue, (receiver, _)) in halves.iter().enumerate() {
        let directed = receiver.socket.fd().and_then(|fd| program.direct(queue as u32, fd));
        directed.map_err(failed("directing frames to a socket"))?;
    }
    let promiscuous = promiscuous(device.index).map_err(failed("making the device promiscuous"))?;
    let program = Arc::new(program);
    Ok((Attached { link: Some(link), program, _promiscuous: promiscuous, native, fast: AtomicBool::new(false) }, halves))
}

/// A socket that keeps a device promiscuous and receives nothing.
fn promiscuous(device: u32) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let membership = libc::packet_mreq {
        mr_ifindex: device as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}

impl Port for AfXdp {
    fn input_node(&self) -> &'static str {
        "af_xdp-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let queues = std::mem::take(&mut self.fresh).into_iter().zip(&self.rx);
        let queue = |(half, mailbox): (Shipped, &Arc<Mailbox<Shipped>>)| -> Box<dyn RxQueue> {
            Box::new(AfXdpRx::new(half, mailbox.clone(), self.state.clone()))
        };
        Ok(queues.map(queue).collect())
    }

    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>> {
        let side = self.tx[thread % self.tx.len()].clone();
        Ok(Box::new(AfXdpTx::new(side, self.state.clone())))
    }

    fn link(&mut self) -> Link {
        let device = self.devices.get(&self.config.name).ok();
        Link { up: device.is_some_and(|d| d.carrier), speed: device.and_then(|d| d.speed) }
    }

    fn mac(&self) -> Option<[u8; 6]> {
        Some(self.mac)
    }

    fn max_frame(&self) -> usize {
        self.state.frame_limit().plain
    }

    fn refresh(&mut self) -> io::Result<PortState> {
        self.rx.iter().for_each(|m| m.collect());
        self.device = self.devices.get(&self.config.name).ok();
        let mut reopened = false;
        if let Some(device) = self.device {
            if self.give_up() || device.index != self.bound {
                self.reopen(&device)?;
                reopened = true;
            }
            self.state.mtu.store(device.mtu, Ordering::Relaxed);
        }
        let link = Link { up: self.device.is_some_and(|d| d.carrier), speed: self.device.and_then(|d| d.speed) };
        Ok(PortState { present: self.device.is_some(), link, mac: self.mac(), max_frame: self.max_frame(), reopened })
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        let name = self.config.name.as_str();
        let what = if up { "taking the device up" } else { "taking the device down" };
        self.devices.set_up(name, up).map_err(|e| AfXdpError::of(what, name, e).into())
    }

    fn descriptors(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        self.as_inheritance()
    }

    fn begin(&mut self) -> io::Result<()> {
        self.end_wait()
    }

    fn numa(&self) -> Option<usize> {
        netdev::numa(&self.config.name)
    }

    fn describe(&self) -> Vec<String> {
        self.status().lines()
    }
}

#[cfg(test)]
mod tests;
