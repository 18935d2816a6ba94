//! The tester's engine in the kernel, for Linux devices: sockets that copy cannot load a kernel's forwarding, programs can.
//!
//! ```text
//!   BPF_PROG_TEST_RUN, live frames ─► transmit ─► the device ═══ device under test ═══ the device ─► receive ─► accounts, in maps
//!     a thread of ours, in the kernel     │                                                            │
//!                              XDP_DROP: none is due                     no signature of the trial: on to the kernel
//! ```
//!
//! Frames begin and end in the kernel; what is shared with us are maps ([`layout`]). A trial is one long system call, because
//! each call costs 24 ms before its first frame; it is ended by a signal.
//!
//! Needs CAP_BPF and CAP_NET_ADMIN in the first user namespace, a device with one receive queue, and for veth a far end that takes
//! frames without sockets' help (an XDP program, or GRO on): a far end that does not receives nothing, and no error says so, so
//! [`XdpEngine::probe`] finds out. The receiving program runs where the device's NAPI runs: it is given a thread, on the
//! receiver's core, since otherwise its work is charged to whoever sends.

pub mod account;
pub mod layout;
mod maps;
mod napi;
pub(crate) mod run;
mod sender;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use rustix::process::Pid;

use crate::netdev::NetDevices;
use account::{CELLS, FLOWS, FlowState, Histogram, Inbox, WORDS};
use layout::{Setup, Spread, State, Stream, Template};

pub use sender::{Departures, Sender, SentCount, SentCounts};

/// The program that receives; empty where there was no clang when this was built.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/receive.o"));
/// Largest live frame, bytes.
pub const FRAME_MAX: usize = 3408;
/// Verdict: the frame ends here.
const XDP_DROP: u32 = 1;
/// Frames of a probe: more than a kernel says by itself on a device that has just come up, fewer than a device's ring holds.
const PROBES: u64 = 32;
/// Ethernet protocol number of the probe: local experimental (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];

/// Why there is no engine: one line with what to do.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Built without clang.
    #[error("this program was built without clang, so it has no programs for the kernel: install clang and build it again")]
    NoPrograms,
    /// The device.
    #[error("{device}: {error}")]
    Device {
        /// Its name.
        device: String,
        /// What the system said.
        error: io::Error,
    },
    /// Several threads would account for one flow.
    #[error("{device} has {queues} receive queues, and accounts need one: ethtool -L {device} rx 1, or combined 1")]
    Queues {
        /// The device.
        device: String,
        /// Its queues.
        queues: u32,
    },
    /// The kernel refuses the programs.
    #[error("the kernel does not take the programs: {0} (they need CAP_BPF and CAP_NET_ADMIN, and not in a user namespace)")]
    Load(String),
    /// A map.
    #[error("a map of the programs: {0}")]
    Map(String),
    /// Nothing arrives.
    #[error(
        "{0}: the far end takes no frames from a program: it must be up, and attach an XDP program or have GRO on (ethtool -K DEVICE gro on)"
    )]
    FarEnd(String),
    /// No thread.
    #[error("{0}")]
    Run(#[from] io::Error),
}

/// A device with the programs.
pub struct XdpEngine {
    ebpf: Ebpf,
    name: String,
    device: u32,
    /// Why the receiver's work may be charged to others; `None`: it has a thread on its core.
    loose: Option<String>,
    /// The threads of the kernel's that receive, where they are on the receiver's core.
    receivers: Vec<Pid>,
    senders: Vec<Sender>,
    flows: u32,
}

fn load(error: impl std::error::Error) -> XdpError {
    // The verifier's words come after the first line; what went wrong stands in the source.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    XdpError::Load(text.lines().next().unwrap_or_default().to_owned())
}

/// Reads an object file, and makes its maps, some with so many entries.
fn load_object(object: &[u8], entries: &[(&'static str, u32)]) -> Result<Ebpf, XdpError> {
    // A loader reads the kernel's types when it is made, some 0.15 s, though the programs need none of them: one does for all.
    static LOADER: OnceLock<Mutex<EbpfLoader<'static>>> = OnceLock::new();
    if object.is_empty() {
        return Err(XdpError::NoPrograms);
    }
    let loader = LOADER.get_or_init(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        Mutex::new(loader)
    });
    let mut loader = loader.lock().unwrap_or_else(PoisonError::into_inner);
    for (map, entries) in entries {
        loader.map_max_entries(map, *entries);
    }
    loader.load(object).map_err(load)
}

impl XdpEngine {
    /// Loads the programs and attaches the one that receives. `core` is where it is to run.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(device: &str, core: Option<u32>) -> Result<Self, XdpError> {
        let on_device = |error| XdpError::Device { device: device.to_owned(), error };
        let devices = NetDevices::open().map_err(on_device)?;
        let index = devices.get(device).map_err(on_device)?.index;
        let queues = devices.rx_queues(device);
        if queues > 1 {
            return Err(XdpError::Queues { device: device.to_owned(), queues });
        }
        let mut engine = Self::detached()?;
        (engine.name, engine.device) = (device.to_owned(), index);
        program(&mut engine.ebpf, "receive")?.attach_to_if_index(index, XdpMode::Driver).map_err(load)?;
        match napi::settle(device, core) {
            Ok(threads) => engine.receivers = threads,
            Err(why) => engine.loose = Some(why),
        }
        Ok(engine)
    }

    /// The programs without a device: for tests, which run them by [`Sender::dry_run`] and [`XdpEngine::dry_receive`].
    ///
    /// # Errors
    /// The kernel does not take them, or there are none.
    pub fn detached() -> Result<Self, XdpError> {
        let mut ebpf = load_object(OBJECT, &[])?;
        program(&mut ebpf, "receive")?.load().map_err(load)?;
        Ok(Self { ebpf, name: String::new(), device: 0, loose: None, receivers: Vec::new(), senders: Vec::new(), flows: 0 })
    }

    /// Gives a frame to the program that receives, as if it had come; whether it ended there.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn dry_receive(&mut self, frame: &[u8]) -> Result<bool, XdpError> {
        let receiver = program_fd(&mut self.ebpf, "receive")?;
        Ok(run::once(receiver, frame)?.1 == XDP_DROP)
    }

    /// Index of the device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Why the receiver's work may be charged to others; `None` where it has a thread of its own on its core.
    pub fn loose(&self) -> Option<&str> {
        self.loose.as_deref()
    }

    /// How often the kernel's receiving threads have woken so far. Each time they took the receiver's core from another thread.
    pub fn receiver_turns(&self) -> u64 {
        napi::turns(&self.receivers)
    }

    /// Awaits flows numbered from `base`, with so many frames each at most, of the trial `tag`.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn expect(&mut self, tag: u8, base: u16, frames: &[u64], core: Option<u32>) -> Result<(), XdpError> {
        maps::set(&mut self.ebpf, "inboxes", 0, &Inbox::default())?;
        let empty = Histogram { cells: [0; CELLS] };
        for (at, end) in frames.iter().enumerate().take(FLOWS) {
            let state = FlowState {
                next: 0,
                end: *end,
                received: 0,
                duplicated: 0,
                reordered: 0,
                late: 0,
                impossible: 0,
                min: u64::MAX,
                max: 0,
                sum: 0,
                last: 0,
                jitter16: 0,
                seen: [0; WORDS],
            };
            maps::set(&mut self.ebpf, "flows", at as u32, &state)?;
            maps::set(&mut self.ebpf, "latencies", at as u32, &empty)?;
        }
        self.flows = frames.len().min(FLOWS) as u32;
        let core = core.unwrap_or(u32::MAX);
        let inbox = Inbox { on: 1, tag: tag.into(), base: base.into(), flows: self.flows, core, padding: 0, elsewhere: 0 };
        maps::set(&mut self.ebpf, "inboxes", 0, &inbox)
    }

    /// Lets all frames go on to the kernel.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn expect_nothing(&mut self) -> Result<(), XdpError> {
        maps::set(&mut self.ebpf, "inboxes", 0, &Inbox::default())
    }

    /// Accounts of the flows.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn flows(&self) -> Result<Vec<FlowState>, XdpError> {
        (0..self.flows).map(|at| maps::get(&self.ebpf, "flows", at)).collect()
    }

    /// Latencies of a flow: values (to three digits) and how many frames had them.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn latencies(&self, flow: u32) -> Result<Vec<(u64, u64)>, XdpError> {
        maps::histogram(&self.ebpf, "latencies", flow)
    }

    /// Frames that another core than that of the receiver has taken.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn elsewhere(&self) -> Result<u64, XdpError> {
        maps::get(&self.ebpf, "inboxes", 0).map(|inbox: Inbox| inbox.elsewhere)
    }

    /// Prepares threads that will send, in place of those before.
    ///
    /// # Errors
    /// The kernel does not take what one of them is to send.
    pub fn prepare(&mut self, threads: &[Departures]) -> Result<(), XdpError> {
        self.senders.clear();
        self.senders = threads.iter().map(|departures| Sender::load(departures, self.device)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The threads that send.
    pub fn senders(&mut self) -> &mut [Sender] {
        &mut self.senders
    }

    /// Ends sending.
    pub fn stop(&mut self) {
        self.senders.iter_mut().for_each(Sender::stop);
    }

    /// Sends frames that nobody wants, and sees whether the device counts them as sent. One would not do: what the kernel says by
    /// itself meanwhile is counted there too.
    ///
    /// # Errors
    /// It does not, or nothing can be sent at all.
    pub fn probe(&mut self, src: [u8; 6]) -> Result<(), XdpError> {
        let mut frame = vec![0_u8; 60];
        // A group address that no host listens to (locally administered).
        frame[..6].copy_from_slice(&[3, 0, 0, 0, 0x88, 0xb5]);
        frame[6..12].copy_from_slice(&src);
        frame[12..14].copy_from_slice(&EXPERIMENTAL);
        let mut head = [0; layout::HEAD];
        head[..60].copy_from_slice(&frame);
        let stream = Stream { total: PROBES, spread: Spread::Unpaced as u32, ..Stream::default() };
        let mut probe =
            Departures { setup: Setup { streams: 1, ..Setup::default() }, state: State::default(), ..Departures::new() };
        probe.setup.stream[0] = stream;
        (probe.templates, probe.frame) = (vec![Template { len: 60, ip: 0, l4: 0, odd: 0, head }], frame);
        let before = self.tx_packets()?;
        let mut sender = Sender::load(&probe, self.device)?;
        sender.start(0, u64::MAX)?;
        let deadline = Instant::now() + Duration::from_secs(2);
        let found = loop {
            if self.tx_packets()?.saturating_sub(before) >= PROBES {
                break Ok(());
            }
            if let Some(error) = sender.failure() {
                break Err(XdpError::Load(error));
            }
            if Instant::now() > deadline {
                break Err(XdpError::FarEnd(self.name.clone()));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        sender.stop();
        found
    }

    /// Packets that the device has sent, as this thread's namespace counts them.
    fn tx_packets(&self) -> Result<u64, XdpError> {
        let on_device = |error| XdpError::Device { device: self.name.clone(), error };
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(on_device)?;
        // name: eight counters of what was received, then bytes and packets sent
        let line = text.lines().find_map(|l| l.trim_start().strip_prefix(self.name.as_str())?.strip_prefix(':'));
        let count = line.and_then(|l| l.split_whitespace().nth(9)?.parse().ok());
        count.ok_or_else(|| on_device(io::Error::other("the kernel does not count its packets")))
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, XdpError> {
    let program = ebpf.program_mut(name).ok_or_else(|| XdpError::Load(format!("there is no program {name}")))?;
    program.try_into().map_err(load)
}

fn program_fd(ebpf: &mut Ebpf, name: &str) -> Result<RawFd, XdpError> {
    Ok(program(ebpf, name)?.fd().map_err(load)?.as_fd().as_raw_fd())
}
