//! The fast path: programs that a device of the kernel runs forward what the graph has already decided.
//!
//! ```text
//!   device ── program ─┬─ destination decided, packet plain ──► device of the port          (never leaves the kernel)
//!                      ├─ destination unknown ── question ──► the router decides it
//!                      └─ all else ──► socket ──► graph
//! ```
//!
//! For AF_XDP the program is in the driver hook, before there is a socket buffer. For packet sockets it is the socket's filter and the
//! ingress hook behind it (`bpf/ingress.h`): super-frames stay whole, checksums unfinished.
//!
//! It holds no policy: which destination leads where, which device may send to which, and when a decision ends is its user's affair. All
//! that changes what a packet meets is one word in memory that we share with the program, so a change is done when its call returns; only
//! destinations are made and forgotten by calls of the kernel.
//!
//! Plain is: Ethernet without tags to the device's own address; IPv4 without options and fragments, or IPv6 without hop-by-hop options;
//! more than one hop left; a right header, addresses of hosts; not longer than the next link's MTU; not back out of the same device.

mod layout;
mod load;
mod maps;
mod netlink;
mod peers;
mod takes;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::rights::Rights;
use crate::sys::Map;
use crate::xdp_engine::run;
use layout::{ACCEPTS4, ACCEPTS6, DIRECT, INPUT, INPUTS, PORT, QUESTION, QUEUES, RECEIVED, TAKES, TRAFFIC, UNFINISHED, mac_word};
use maps::{Entries, PerProcessor, processors};

pub use layout::{DESTINATIONS, MAPS, PATHS, PORTS, PROGRAMS};
pub(crate) use load::load;
pub use load::{FastPathFds, NO_PROGRAM};
pub use peers::Peers;
pub use takes::Takers;

/// Verdict of a frame that leaves by another device (`XDP_REDIRECT`).
const REDIRECTED: u32 = 4;
/// The same at the ingress hook (`TC_ACT_REDIRECT`).
const SENT: u32 = 7;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A device as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The kernel's index.
    pub device: u32,
    /// The address to which frames for the router go.
    pub mac: [u8; 6],
    /// The table for IPv4, where it is taken.
    pub fib4: Option<u32>,
    /// The table for IPv6, where it is taken.
    pub fib6: Option<u32>,
    /// A kernel at the other end leaves checksums unfinished.
    pub unfinished: bool,
}

/// A device that packets leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The kernel's index.
    pub device: u32,
    /// The source address of frames.
    pub mac: [u8; 6],
    /// Longest IPv4 packet, bytes; 0: none leaves.
    pub mtu4: u16,
    /// Longest IPv6 packet, bytes; 0: none leaves.
    pub mtu6: u16,
    /// It takes frames from programs in the driver hook.
    pub takes: bool,
    /// Frames with a socket buffer go straight to the other end of its veth.
    pub direct: bool,
}

/// A destination that was met and is not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The table.
    pub fib: u32,
    /// The destination.
    pub address: IpAddr,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What came in by a port and left by the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// IPv4 packets.
    pub packets4: u64,
    /// IPv6 packets.
    pub packets6: u64,
    /// Bytes of both, with their frames.
    pub bytes: u64,
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct FastPath {
    program: OwnedFd,
    filter: OwnedFd,
    ingress: OwnedFd,
    controls: Map,
    inputs: Map,
    ports: Map,
    paths: Map,
    decisions: [Entries; 2],
    received: PerProcessor<3>,
    sent: PerProcessor<2>,
    used: PerProcessor<2>,
    sockets: Entries,
    devices: Entries,
    questions: Entries,
}

impl FastPath {
    /// Loads the programs. Nothing is forwarded yet.
    ///
    /// # Errors
    /// Built without clang, or the kernel's.
    pub fn open(rights: &dyn Rights) -> io::Result<Self> {
        let FastPathFds { programs: [program, filter, ingress], maps } = rights.fast_path()?;
        let processors = processors()?;
        let [controls, inputs, ports, paths, decisions4, decisions6, received, sent, used, sockets, devices, questions] = maps;
        let shared = |fd: OwnedFd, bytes: usize| Map::shared(&fd, bytes);
        const { assert!(RECEIVED == 3 * 8 && TRAFFIC == 2 * 8) };
        Ok(Self {
            program,
            filter,
            ingress,
            controls: shared(controls, 8)?,
            inputs: shared(inputs, INPUTS as usize * INPUT)?,
            ports: shared(ports, PORTS as usize * PORT)?,
            paths: shared(paths, PATHS as usize * 8)?,
            decisions: [Entries::new(decisions4, 8, 8), Entries::new(decisions6, 20, 8)],
            received: PerProcessor::new(received, processors),
            sent: PerProcessor::new(sent, processors),
            used: PerProcessor::new(used, processors),
            sockets: Entries::new(sockets, 4, 4),
            devices: Entries::new(devices, 4, 8),
            questions: Entries::new(questions, 0, QUESTION),
        })
    }

    pub(crate) fn program(&self) -> RawFd {
        self.program.as_raw_fd()
    }

    /// The filter of packet sockets, and the program of the ingress hook that does as it says.
    pub(crate) fn ingress(&self) -> (&OwnedFd, &OwnedFd) {
        (&self.filter, &self.ingress)
    }

    /// Whether anything is forwarded; if not, every packet goes to the graph.
    pub fn set_on(&self, on: bool) {
        self.controls.word(0).store(on.into(), Ordering::Release);
    }

    /// Begins another round: destinations may be asked for again, and note that they are used.
    pub fn begin_round(&self) -> u32 {
        self.controls.word(4).fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Lets packets of a device in, as port `number`; `false` where another device has its slot.
    pub fn set_input(&self, number: u32, input: &Input) -> bool {
        assert!((1..PORTS).contains(&number));
        let at = Self::slot(input.device);
        let first = self.inputs.long(at);
        let taken = first.load(Ordering::Acquire) as u32;
        if taken != 0 && taken != input.device {
            return false;
        }
        // Its packets go to the graph while the rest changes.
        first.store(input.device.into(), Ordering::Release);
        self.inputs.long(at + 8).store(mac_word(input.mac, 0), Ordering::Release);
        let fibs = u64::from(input.fib4.unwrap_or(0)) | u64::from(input.fib6.unwrap_or(0)) << 32;
        self.inputs.long(at + 16).store(fibs, Ordering::Release);
        self.inputs.long(at + 24).store(number.into(), Ordering::Release);
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        let flags =
            flag(input.fib4.is_some(), ACCEPTS4) | flag(input.fib6.is_some(), ACCEPTS6) | flag(input.unfinished, UNFINISHED);
        first.store(u64::from(input.device) | u64::from(flags) << 32, Ordering::Release);
        true
    }

    /// Packets of a device go to the graph.
    pub fn close_input(&self, device: u32) {
        let first = self.inputs.long(Self::slot(device));
        if first.load(Ordering::Acquire) as u32 == device {
            first.store(device.into(), Ordering::Release);
        }
    }

    /// A device is gone: another one may have its slot.
    pub fn forget_input(&self, device: u32) {
        let first = self.inputs.long(Self::slot(device));
        if first.load(Ordering::Acquire) as u32 == device {
            first.store(0, Ordering::Release);
        }
    }

    fn slot(device: u32) -> usize {
        (device % INPUTS) as usize * INPUT
    }

    /// Ties a port to a device, by which packets can leave.
    ///
    /// # Errors
    /// The kernel's: the device is gone.
    pub fn set_device(&self, number: u32, device: u32) -> io::Result<()> {
        // Index and, in the upper half, no program of the device's own.
        self.devices.set(&number.to_ne_bytes(), &u64::from(device).to_ne_bytes())
    }

    /// What leaves by a port.
    pub fn set_port(&self, number: u32, output: &Output) {
        let at = number as usize * PORT;
        let flag = |on: bool, flag: u64| if on { flag } else { 0 };
        let flags = flag(output.takes, TAKES) | flag(output.direct, DIRECT);
        let second = u64::from(output.device) << 32 | flags | u64::from(output.mtu6);
        self.ports.long(at + 8).store(second, Ordering::Release);
        self.ports.long(at).store(mac_word(output.mac, output.mtu4), Ordering::Release);
    }

    /// Nothing leaves by a port.
    pub fn close_port(&self, number: u32) {
        self.set_port(number, &Output::default());
    }

    /// Where a load-balance leads: to a neighbour by a port, or (`None`) the graph knows.
    pub fn set_path(&self, index: u32, path: Option<(u32, [u8; 6])>) {
        let word = path.map_or(0, |(port, mac)| mac_word(mac, port as u16));
        self.paths.long(index as usize * 8).store(word, Ordering::Release);
    }

    /// Decides a destination: it goes the way of a load-balance.
    ///
    /// # Errors
    /// The kernel's: the table is full.
    pub fn decide(&self, question: &Question, path: u32, round: u32) -> io::Result<()> {
        let (map, key) = self.key(question);
        let mut value = [0; 8];
        value[..4].copy_from_slice(&path.to_ne_bytes());
        value[4..].copy_from_slice(&round.to_ne_bytes());
        map.set(key.as_ref(), &value)
    }

    /// Forgets a destination.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forget(&self, question: &Question) -> io::Result<()> {
        let (map, key) = self.key(question);
        map.remove(key.as_ref())
    }

    /// The round in which a packet last went to a destination.
    ///
    /// # Errors
    /// The kernel's: it is not decided.
    pub fn last_used(&self, question: &Question) -> io::Result<u32> {
        let (map, key) = self.key(question);
        let mut value = [0; 8];
        map.get(key.as_ref(), &mut value)?;
        let [.., a, b, c, d] = value;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    fn key(&self, question: &Question) -> (&Entries, Key) {
        let fib = question.fib.to_ne_bytes();
        match question.address {
            IpAddr::V4(address) => {
                let mut key = [0; 8];
                key[..4].copy_from_slice(&fib);
                key[4..].copy_from_slice(&address.octets());
                (&self.decisions[0], Key::V4(key))
            }
            IpAddr::V6(address) => {
                let mut key = [0; 20];
                key[..4].copy_from_slice(&fib);
                key[4..].copy_from_slice(&address.octets());
                (&self.decisions[1], Key::V6(key))
            }
        }
    }

    /// The next destination that a packet was for and that is not decided; the same may come several times.
    ///
    /// # Errors
    /// The kernel's.
    pub fn question(&self) -> io::Result<Option<Question>> {
        let mut value = [0; QUESTION];
        if !self.questions.take(&mut value)? {
            return Ok(None);
        }
        let word = |at: usize| u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        let mut address = [0; 16];
        address.copy_from_slice(&value[8..]);
        let address = match word(4) {
            4 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address),
        };
        Ok(Some(Question { fib: word(0), address }))
    }

    /// What has come in by a port.
    ///
    /// # Errors
    /// The kernel's.
    pub fn received(&mut self, number: u32) -> io::Result<Received> {
        let [packets4, packets6, bytes] = self.received.sums(number)?;
        Ok(Received { packets4, packets6, bytes })
    }

    /// What has left by a port, in frames.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sent(&mut self, number: u32) -> io::Result<Traffic> {
        let [packets, bytes] = self.sent.sums(number)?;
        Ok(Traffic { packets, bytes })
    }

    /// What has gone the way of a load-balance, without the frames' headers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn used(&mut self, index: u32) -> io::Result<Traffic> {
        let [packets, bytes] = self.used.sums(index)?;
        Ok(Traffic { packets, bytes })
    }

    /// Runs the program once over a frame as of device `lo` (index 1), and says what it made of it; `None`: to the graph. For tests, which need
    /// no traffic then.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_frame(&self, frame: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let (bytes, verdict) = run::once(self.program.as_raw_fd(), frame)?;
        Ok((verdict == REDIRECTED).then_some(bytes))
    }

    /// As [`FastPath::try_frame`], by a packet socket's filter and the ingress hook.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_at_ingress(&self, frame: &[u8]) -> io::Result<Option<Vec<u8>>> {
        // The note from one to the other is of a processor, so the thread stays on one.
        let all = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one)?;
        let result = self.run_at_ingress(frame);
        sched_setaffinity(None, &all)?;
        result
    }

    fn run_at_ingress(&self, frame: &[u8]) -> io::Result<Option<Vec<u8>>> {
        // What is run for a socket begins behind an Ethernet header, so it gets one more.
        let behind = [&[0; ETHERNET], frame].concat();
        let (_, bytes) = run::once(self.filter.as_raw_fd(), &behind)?;
        if bytes != 0 {
            return Ok(None);
        }
        let (left, verdict) = run::once(self.ingress.as_raw_fd(), frame)?;
        if verdict == SENT { Ok(Some(left)) } else { Err(io::Error::other("nobody has the frame")) }
    }

    /// What the program does not forward of a port's queue goes to this socket.
    pub(crate) fn direct(&self, number: u32, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        if queue >= QUEUES || number >= PORTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.sockets.set(&(number * QUEUES + queue).to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }
}

/// A destination as a map has it.
enum Key {
    V4([u8; 8]),
    V6([u8; 20]),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::V4(key) => key,
            Self::V6(key) => key,
        }
    }
}

#[cfg(test)]
mod tests;
