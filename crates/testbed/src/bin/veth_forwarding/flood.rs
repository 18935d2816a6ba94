//! The load: frames of 60 bytes from one thread, by a packet socket or straight into the driver.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use quiver_testbed::{Host, LiveFrames, pin_thread};

/// Address of the router's end, as the links are made.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Frames sent by one call.
const BURST: usize = 50;
/// A frame of 60 bytes: UDP from one endpoint to another.
fn frame(source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)])));
        let sum: u32 = words.sum();
        !((sum >> 16) + (sum & 0xffff)) as u16
    };
    let mut frame = [&ROUTER_MAC[..], &SENDER_MAC, &[8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0];
    ip.extend([source.0, destination.0].concat());
    let check = sum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&check);
    frame.extend(ip);
    frame.extend([source.1, destination.1, 26].map(u16::to_be_bytes).concat());
    // No UDP checksum: 0.
    frame.resize(60, 0);
    frame
}

/// UDP of 64 flows to addresses behind host b.
pub fn few_flows() -> Vec<Vec<u8>> {
    (0..64).map(|flow| frame(([10, 0, 1, 2], 0x1300 + u16::from(flow)), ([10, 0, 3, flow], 9))).collect()
}

/// The published pattern for NAT: 65,536 clients, one destination, one source port.
pub fn many_clients() -> Vec<Vec<u8>> {
    (0..=u16::MAX)
        .map(|client| {
            let [high, low] = client.to_be_bytes();
            frame(([10, 64, high, low], 1025), ([48, 0, 0, 1], 12))
        })
        .collect()
}

/// Sends on `eth0` of a host past the queueing discipline.
pub struct Flood {
    socket: OwnedFd,
    frames: Vec<Vec<u8>>,
    /// Which frame is next.
    next: usize,
}

impl Flood {
    /// Opens the host's device.
    ///
    /// # Errors
    /// The system's, where a packet socket cannot be had.
    pub fn new(host: &Host, frames: Vec<Vec<u8>>) -> io::Result<Self> {
        let socket = host.enter(|| {
            // SAFETY: socket takes three integers; sockaddr_ll is plain C data for which all zeroes is a value; bind and
            // setsockopt read values of the sizes given. The descriptor is new and nobody else's.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                let fd = OwnedFd::from_raw_fd(fd);
                let on = 1_i32;
                let bypass =
                    libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, (&raw const on).cast(), 4);
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
                let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32);
                if bypass < 0 || bound < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
            }
        })?;
        Ok(Self { socket, frames, next: 0 })
    }

    /// Sends for a while; `rate`: frames a second, or as fast as it goes. Gives how many went out, and
    /// the processor time of it.
    pub fn run(&mut self, time: Duration, rate: Option<u64>) -> (u64, Duration) {
        on_core_0(|| self.send(time, rate))
    }

    fn send(&mut self, time: Duration, rate: Option<u64>) -> u64 {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURST];
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: mmsghdr is plain C data for which all zeroes is a value.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < time {
            if let Some(rate) = rate {
                let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
                if sent >= due {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            }
            for message in &messages {
                let frame = &self.frames[self.next % self.frames.len()];
                // SAFETY: each message has one live part, which is nobody else's.
                unsafe {
                    *message.msg_hdr.msg_iov = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() }
                };
                self.next += 1;
            }
            // SAFETY: the messages name live bytes, which the kernel only reads.
            let n = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), BURST as u32, 0) };
            let n = u64::try_from(n).unwrap_or(0);
            // What was not taken comes next time.
            self.next -= BURST - n as usize;
            sent += n;
        }
        sent
    }
}

/// Frames of one call for live frames.
const LIVE: u32 = 1 << 18;

/// Has the kernel make the few flows and send them on a host's device for a while, as fast as it goes. Gives how many went out, and
/// the processor time of it.
///
/// # Errors
/// The system's.
pub fn run_live(host: &Host, time: Duration) -> io::Result<(u64, Duration)> {
    host.enter(|| {
        let frames = LiveFrames::new(frame(([10, 0, 1, 2], 0x1300), ([10, 0, 3, 0], 9)), "eth0")?;
        let send = || {
            let (start, mut sent) = (Instant::now(), 0);
            while start.elapsed() < time {
                frames.send(LIVE)?;
                sent += u64::from(LIVE);
            }
            Ok(sent)
        };
        let (sent, busy) = on_core_0(send);
        sent.map(|sent| (sent, busy))
    })
}

/// What `send` gives, and the processor time that it took.
fn on_core_0<T: Send>(send: impl FnOnce() -> T + Send) -> (T, Duration) {
    // A thread of its own, so that what is started later does not inherit its core.
    let pinned = || {
        // Where it may not, other work on the machine moves it: the spread shows that.
        let _ = pin_thread(0);
        (send(), thread_time())
    };
    let joined = std::thread::scope(|scope| scope.spawn(pinned).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Processor time of the calling thread so far.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives over the call.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
