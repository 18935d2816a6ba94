//! AF_XDP sockets: opened on the control side, taken apart into a receiving and a sending half.
//!
//! ```text
//!   UMEM = the region of packet buffers, registered by the first socket of a device and shared by the others
//!   socket of queue q ─┬─ Receiver: fill ring, rx ring           used by the worker that polls the queue
//!                      └─ Sender: tx ring, completion ring       used, under a lock, by the threads that send on it
//! ```
//!
//! The kernel keeps a socket alive while one of its rings is mapped, and would refuse the next one on that queue. So each half
//! unmaps its rings before it lets go of the descriptor; whoever is last closes it, and only then are the buffers that the
//! kernel still had given back to their pool.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quiver_buffer::{HEADROOM, Pool, Region};

use super::lent::Lent;
use super::ring::{Consumer, Descriptor, Producer, map};
use super::{AfXdpConfig, AfXdpError, BusyPoll, ZeroCopy};
use crate::sys;

/// The kernel puts frames so far into a chunk (`XDP_PACKET_HEADROOM`).
const XDP_HEADROOM: u32 = 256;
const _: () = assert!(HEADROOM as u32 == XDP_HEADROOM);
/// Smallest chunk (`XDP_UMEM_MIN_CHUNK_SIZE`) and largest (a page).
const CHUNK: std::ops::RangeInclusive<u32> = 2048..=4096;
/// Lower bits of an address; the upper ones are an offset (`XSK_UNALIGNED_BUF_OFFSET_SHIFT`).
const OFFSET_SHIFT: u32 = 48;
/// Frames that one call may send in copy mode: a newer option (Linux 6.17).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// From asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// Bytes on their way through the device.
const TX_QUEUE_BYTES: libc::c_int = 16 << 20;
/// How long a driver may go on writing after its zero-copy socket was closed: the kernel stops the queue a little later.
const DRAIN: Duration = Duration::from_millis(500);

/// How the region's buffers are addressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// Bytes of a buffer, in cache lines.
    lines: u32,
    stride: u32,
    /// Bytes of a buffer that the kernel may use.
    pub chunk: u32,
}

impl Addresses {
    /// Of a region; `None` where its buffers are too small for AF_XDP.
    pub(super) fn of(region: &Region) -> Option<Self> {
        let geometry = region.geometry();
        // Up to the end of the data area: no frame may end behind it.
        let chunk = geometry.data_end().min(*CHUNK.end());
        (chunk >= *CHUNK.start()).then_some(Self { lines: geometry.stride() / 64, stride: geometry.stride(), chunk })
    }

    /// Address of a byte of a buffer.
    #[inline(always)]
    pub(super) fn address(self, buffer: u32, offset: u32) -> u64 {
        u64::from(buffer) * u64::from(self.stride) + u64::from(offset)
    }

    /// Buffer and offset of an address, in either of the kernel's forms.
    #[inline(always)]
    pub(super) fn place(self, address: u64) -> (u32, u32) {
        let flat = address & ((1 << OFFSET_SHIFT) - 1);
        // Regions are smaller than 2^38 bytes, so this division has 32 bits.
        let buffer = (flat >> 6) as u32 / self.lines;
        let within = (flat - u64::from(buffer) * u64::from(self.stride)) as u32;
        (buffer, within + (address >> OFFSET_SHIFT) as u32)
    }
}

/// What both halves hold on to.
pub(super) struct Socket {
    /// `None` once closed.
    fd: Option<OwnedFd>,
    zero_copy: AtomicBool,
    /// The kernel may take and give frames in several pieces.
    pub pieces: bool,
    /// Buffers that the kernel had when a half ended.
    left: Mutex<Vec<u32>>,
    /// Buffers lent for receiving, and for sending: for display.
    pub lent: [AtomicU32; 2],
    pools: Vec<Arc<Pool>>,
}

impl Socket {
    #[inline(always)]
    pub(super) fn raw(&self) -> libc::c_int {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(super) fn fd(&self) -> io::Result<&OwnedFd> {
        self.fd.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether the device itself reads and writes packet buffers.
    pub(super) fn zero_copy(&self) -> bool {
        self.zero_copy.load(Ordering::Relaxed)
    }

    /// Has the kernel send what is in the tx ring.
    #[inline(always)]
    pub(super) fn send(&self) -> io::Result<()> {
        // SAFETY: no buffer is passed; the kernel works on the ring.
        let sent = unsafe { libc::sendto(self.raw(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// What the kernel has counted.
    pub(super) fn statistics(&self) -> Option<libc::xdp_statistics> {
        // SAFETY: any bits are a value of this struct of integers.
        unsafe { sys::get_option(self.fd.as_ref()?, libc::SOL_XDP, libc::XDP_STATISTICS) }.ok()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        drop(self.fd.take());
        if *self.zero_copy.get_mut() {
            std::thread::sleep(DRAIN);
        }
        let left = std::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        give(&self.pools, &left);
    }
}

/// Gives buffers back to the pools that they came from.
fn give(pools: &[Arc<Pool>], buffers: &[u32]) {
    for pool in pools {
        let (region, numa) = (pool.region(), pool.numa());
        let own: Vec<u32> = buffers.iter().copied().filter(|b| region.numa_of(*b) == numa).collect();
        pool.give(&own);
    }
}

/// The receiving half.
pub(super) struct Receiver {
    // Field order is drop order: the mappings go before the socket that they belong to.
    pub fill: Producer<u64>,
    pub rx: Consumer<Descriptor>,
    pub lent: Lent,
    pub socket: Arc<Socket>,
    /// Frames lost as last reported.
    lost: u64,
}

impl Receiver {
    /// How many frames the kernel has lost since the last call.
    pub(super) fn lost(&mut self) -> u64 {
        let Some(s) = self.socket.statistics() else { return 0 };
        let before = std::mem::replace(&mut self.lost, s.rx_dropped + s.rx_ring_full);
        self.lost.saturating_sub(before)
    }

    /// Puts what waits back into the fill ring.
    pub(super) fn discard(&mut self, addresses: Addresses) {
        // Every buffer in the rx ring was in the fill ring before, so there is room for it.
        let n = self.rx.available().min(self.fill.free());
        for ahead in 0..n {
            let (buffer, _) = addresses.place(self.rx.peek(ahead).address);
            self.fill.put(addresses.address(buffer, 0));
        }
        self.rx.advance(n);
        self.rx.release();
        self.fill.publish();
        let _ = self.lost();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let left = self.lent.drain();
        self.socket.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
}

/// The sending half.
pub(super) struct Sender {
    pub tx: Producer<Descriptor>,
    pub completion: Consumer<u64>,
    pub lent: Lent,
    pub socket: Arc<Socket>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        let left = self.lent.drain();
        self.socket.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
}

/// A socket in its two halves.
pub(super) type Halves = (Receiver, Sender);

fn option<T: Copy>(fd: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_XDP, name, value)
}

/// What all sockets of a device have in common.
pub(super) struct Opening<'a> {
    pub config: &'a AfXdpConfig,
    pub addresses: Addresses,
    /// The kernel's index of the device.
    pub device: u32,
    /// Whether frames may come in pieces.
    pub pieces: bool,
}

impl Opening<'_> {
    /// Opens the sockets of the first queues.
    pub(super) fn open(&self, queues: u32) -> Result<Vec<Halves>, AfXdpError> {
        let halves = self.prepare(queues)?;
        let bound = self.binding(&halves).and_then(|binding| binding.bind());
        bound.map_err(|error| self.failed(error))?;
        Ok(halves)
    }

    /// Opens sockets that are not bound to their queues yet: they have memory, rings and buffers, and no frames.
    pub(super) fn prepare(&self, queues: u32) -> Result<Vec<Halves>, AfXdpError> {
        (0..queues).map(|queue| self.open_one(queue == 0).map_err(|error| self.failed(error))).collect()
    }

    fn failed(&self, error: io::Error) -> AfXdpError {
        AfXdpError::of("opening an AF_XDP socket", &self.config.name, error)
    }

    fn open_one(&self, is_first: bool) -> io::Result<Halves> {
        let c = self.config;
        let region = c.region()?;
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
        if is_first {
            // SAFETY: plain C data for which all zeroes is a value.
            let mut umem: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
            umem.addr = region.base() as u64;
            umem.len = region.bytes() as u64;
            umem.chunk_size = self.addresses.chunk;
            umem.flags = libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG;
            option(&fd, libc::XDP_UMEM_REG, &umem)?;
        }
        let (rx_size, tx_size) = (c.rx_size as u32, c.tx_size as u32);
        option(&fd, libc::XDP_UMEM_FILL_RING, &rx_size)?;
        option(&fd, libc::XDP_UMEM_COMPLETION_RING, &tx_size)?;
        option(&fd, libc::XDP_RX_RING, &rx_size)?;
        option(&fd, libc::XDP_TX_RING, &tx_size)?;
        // One call should send a whole vector; older kernels go by 32.
        let _ = option(&fd, XDP_MAX_TX_SKB_BUDGET, &tx_size);
        sys::set_queue_bytes(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, TX_QUEUE_BYTES)?;
        if let Some(busy) = c.busy_poll {
            busy_poll(&fd, busy)?;
        }
        // SAFETY: any bits are a value of this struct of integers.
        let offsets: libc::xdp_mmap_offsets = unsafe { sys::get_option(&fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }?;
        let fill = map::<u64>(&fd, &offsets.fr, rx_size, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let rx = map::<Descriptor>(&fd, &offsets.rx, rx_size, libc::XDP_PGOFF_RX_RING as u64)?;
        let tx = map::<Descriptor>(&fd, &offsets.tx, tx_size, libc::XDP_PGOFF_TX_RING as u64)?;
        let completion = map::<u64>(&fd, &offsets.cr, tx_size, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        // From here on what goes wrong drops the halves in the right order.
        let capacity = region.capacity();
        let socket = Arc::new(Socket {
            fd: Some(fd),
            zero_copy: AtomicBool::new(false),
            pieces: self.pieces,
            left: Mutex::new(Vec::new()),
            lent: [AtomicU32::new(0), AtomicU32::new(0)],
            pools: c.pools.clone(),
        });
        let mut receiver = Receiver {
            fill: Producer::new(fill, &offsets.fr, rx_size)?,
            rx: Consumer::new(rx, &offsets.rx, rx_size)?,
            lent: Lent::new(capacity),
            socket: socket.clone(),
            lost: 0,
        };
        let sender = Sender {
            tx: Producer::new(tx, &offsets.tx, tx_size)?,
            completion: Consumer::new(completion, &offsets.cr, tx_size)?,
            lent: Lent::new(capacity),
            socket: socket.clone(),
        };
        self.fill(&mut receiver);
        Ok((receiver, sender))
    }

    /// Lends the kernel buffers before the first frame comes. They are from the shared pool: workers' caches are theirs.
    fn fill(&self, receiver: &mut Receiver) {
        let Some(pool) = self.config.pools.first() else { return };
        let mut buffers = Vec::new();
        pool.take(receiver.fill.free().min(FIRST_FILL) as usize, &mut buffers);
        for buffer in buffers {
            receiver.lent.lend(buffer);
            receiver.fill.put(self.addresses.address(buffer, 0));
        }
        receiver.fill.publish();
        receiver.socket.lent[0].store(receiver.lent.count(), Ordering::Relaxed);
    }

    /// What binds prepared sockets to their queues.
    pub(super) fn binding(&self, halves: &[Halves]) -> io::Result<Binding> {
        let own = match self.config.zero_copy {
            ZeroCopy::Auto if self.config.region()?.pages() == "4 kB" => libc::XDP_COPY,
            ZeroCopy::Auto => 0,
            ZeroCopy::Never => libc::XDP_COPY,
            ZeroCopy::Demanded => libc::XDP_ZEROCOPY,
        };
        let pieces = if self.pieces { libc::XDP_USE_SG } else { 0 };
        let sockets = halves.iter().map(|(receiver, _)| receiver.socket.clone()).collect();
        Ok(Binding { sockets, device: self.device, flags: own | pieces | libc::XDP_USE_NEED_WAKEUP })
    }
}

/// Sockets, one for each of a device's first queues, and how they are bound to them.
pub(super) struct Binding {
    pub sockets: Vec<Arc<Socket>>,
    device: u32,
    flags: u16,
}

impl Binding {
    /// Binds all sockets: frames can come.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn bind(&self) -> io::Result<()> {
        (0..self.sockets.len()).try_for_each(|queue| self.bind_one(queue))
    }

    /// Binds the socket of a queue; that of queue 0 comes first.
    ///
    /// # Errors
    /// The kernel's. A queue that another socket still has can be tried again.
    pub(super) fn bind_one(&self, queue: usize) -> io::Result<()> {
        let socket = &self.sockets[queue];
        // A socket that shares another's memory takes over its mode.
        let (flags, shared) = match queue {
            0 => (self.flags, 0),
            _ => (libc::XDP_SHARED_UMEM, self.sockets[0].raw() as u32),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: self.device,
            sxdp_queue_id: queue as u32,
            sxdp_shared_umem_fd: shared,
        };
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, which the kernel only reads.
        sys::check(unsafe { libc::bind(socket.raw(), (&raw const address).cast(), length) })?;
        // SAFETY: any bits are a value of this struct of integers.
        let options: libc::xdp_options = unsafe { sys::get_option(socket.fd()?, libc::SOL_XDP, libc::XDP_OPTIONS) }?;
        socket.zero_copy.store(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0, Ordering::Relaxed);
        Ok(())
    }
}

/// Buffers lent at once when a queue is opened; the rest is lent by the worker that polls it.
const FIRST_FILL: u32 = 64;

fn busy_poll(fd: &OwnedFd, busy: BusyPoll) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &(busy.microseconds as i32))?;
    sys::set_option(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &(busy.budget as i32))
}
