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

pub mod layout;
mod napi;
mod run;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use aya::maps::Array;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, Pod};

use crate::netdev::NetDevices;
use layout::{FlowState, Histogram, Inbox, Lane, STREAMS, Stream, TEMPLATES, Template};
use run::Running;

/// The programs; empty where there was no clang when this was built.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/engine.o"));
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

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct Departures {
    /// When, and what of it.
    pub lane: Lane,
    /// Streams, at most [`STREAMS`].
    pub streams: Vec<Stream>,
    /// Templates, at most [`TEMPLATES`].
    pub templates: Vec<Template>,
    /// The largest frame: what follows a template's first bytes is taken from here.
    pub frame: Vec<u8>,
    /// Frames (or looks at the clock) that share a flush: 1 to 4 where times matter, 64 where the number does.
    pub batch: u32,
    /// Core of the thread.
    pub core: Option<u32>,
}

/// How far sending is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCount {
    /// Frames.
    pub frames: u64,
    /// Bytes with FCS.
    pub bytes: u64,
}

/// A device with the programs.
pub struct XdpEngine {
    ebpf: Ebpf,
    name: String,
    device: u32,
    /// Why the receiver's work may be charged to others; `None`: it has a thread on its core.
    loose: Option<String>,
    running: Option<Running>,
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
        engine.loose = napi::settle(device, core).err();
        Ok(engine)
    }

    /// The programs without a device: for tests, which run them by [`XdpEngine::dry_transmit`] and [`XdpEngine::dry_receive`].
    ///
    /// # Errors
    /// The kernel does not take them, or there are none.
    pub fn detached() -> Result<Self, XdpError> {
        if OBJECT.is_empty() {
            return Err(XdpError::NoPrograms);
        }
        let mut ebpf = Ebpf::load(OBJECT).map_err(load)?;
        for name in ["transmit", "receive"] {
            program(&mut ebpf, name)?.load().map_err(load)?;
        }
        Ok(Self { ebpf, name: String::new(), device: 0, loose: None, running: None, flows: 0 })
    }

    /// The frames that `departures` would send first, without sending them.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn dry_transmit(&mut self, departures: &Departures, frames: usize) -> Result<Vec<Vec<u8>>, XdpError> {
        self.set_departures(departures)?;
        let transmitter = program_fd(&mut self.ebpf, "transmit")?;
        (0..frames).map(|_| Ok(run::once(transmitter, &departures.frame)?.0)).collect()
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

    fn set<T: Pod>(&mut self, map: &str, index: u32, value: &T) -> Result<(), XdpError> {
        let map = self.ebpf.map_mut(map).ok_or_else(|| XdpError::Map(format!("there is no {map}")))?;
        let mut array = Array::<_, T>::try_from(map).map_err(|e| XdpError::Map(e.to_string()))?;
        array.set(index, value, 0).map_err(|e| XdpError::Map(e.to_string()))
    }

    fn get<T: Pod>(&self, map: &str, index: u32) -> Result<T, XdpError> {
        let map = self.ebpf.map(map).ok_or_else(|| XdpError::Map(format!("there is no {map}")))?;
        let array = Array::<_, T>::try_from(map).map_err(|e| XdpError::Map(e.to_string()))?;
        array.get(&index, 0).map_err(|e| XdpError::Map(e.to_string()))
    }

    fn histogram(&self, map: &str, index: u32) -> Result<Vec<(u64, u64)>, XdpError> {
        let histogram: Histogram = self.get(map, index)?;
        let cells = histogram.cells.iter().enumerate().filter(|(_, n)| **n > 0);
        Ok(cells.map(|(cell, n)| (layout::value_of(cell), *n)).collect())
    }

    /// Awaits flows numbered from `base`, with so many frames each at most, of the trial `tag`.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn expect(&mut self, tag: u8, base: u16, frames: &[u64], core: Option<u32>) -> Result<(), XdpError> {
        self.set("inboxes", 0, &Inbox::default())?;
        let empty = Histogram { cells: [0; layout::CELLS] };
        for (at, end) in frames.iter().enumerate().take(STREAMS) {
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
                seen: [0; layout::WORDS],
            };
            self.set("flows", at as u32, &state)?;
            self.set("latencies", at as u32, &empty)?;
        }
        self.flows = frames.len().min(STREAMS) as u32;
        let core = core.unwrap_or(u32::MAX);
        let inbox = Inbox { on: 1, tag: tag.into(), base: base.into(), flows: self.flows, core, padding: 0, elsewhere: 0 };
        self.set("inboxes", 0, &inbox)
    }

    /// Lets all frames go on to the kernel.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn expect_nothing(&mut self) -> Result<(), XdpError> {
        self.set("inboxes", 0, &Inbox::default())
    }

    /// Accounts of the flows.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn flows(&self) -> Result<Vec<FlowState>, XdpError> {
        (0..self.flows).map(|at| self.get("flows", at)).collect()
    }

    /// Latencies of a flow: values (to three digits) and how many frames had them.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn latencies(&self, flow: u32) -> Result<Vec<(u64, u64)>, XdpError> {
        self.histogram("latencies", flow)
    }

    /// Frames that another core than that of the receiver has taken.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn elsewhere(&self) -> Result<u64, XdpError> {
        self.get("inboxes", 0).map(|inbox: Inbox| inbox.elsewhere)
    }

    /// Begins to send.
    ///
    /// # Errors
    /// The kernel does not take it, or there is no thread.
    pub fn start(&mut self, departures: &Departures) -> Result<(), XdpError> {
        self.stop();
        self.set_departures(departures)?;
        let program = program_fd(&mut self.ebpf, "transmit")?;
        self.running = Some(Running::start(program, departures.frame.clone(), departures.batch, departures.core)?);
        Ok(())
    }

    fn set_departures(&mut self, departures: &Departures) -> Result<(), XdpError> {
        for (at, template) in departures.templates.iter().enumerate().take(TEMPLATES) {
            self.set("templates", at as u32, template)?;
        }
        for (at, stream) in departures.streams.iter().enumerate().take(STREAMS) {
            self.set("streams", at as u32, stream)?;
        }
        self.set("errors", 0, &Histogram { cells: [0; layout::CELLS] })?;
        self.set("lanes", 0, &Lane { device: self.device, ..departures.lane })
    }

    /// How far the lane is, and its streams.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn sent(&self) -> Result<(Lane, Vec<SentCount>), XdpError> {
        let lane: Lane = self.get("lanes", 0)?;
        let count = |at| {
            let stream: Stream = self.get("streams", at)?;
            Ok(SentCount { frames: stream.done, bytes: stream.bytes })
        };
        Ok((lane, (0..lane.streams).map(count).collect::<Result<_, XdpError>>()?))
    }

    /// Departure errors, ns: values (to three digits) and how many frames had them.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn departure_errors(&self) -> Result<Vec<(u64, u64)>, XdpError> {
        self.histogram("errors", 0)
    }

    /// Why sending ended by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.running.as_ref().and_then(Running::failure)
    }

    /// Ends sending and its thread.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            // Frames under way in the program may still leave; none after this.
            if let Ok(lane) = self.get::<Lane>("lanes", 0) {
                let _ = self.set("lanes", 0, &Lane { over: 1, ..lane });
            }
            running.stop();
        }
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
        let stream = Stream { total: PROBES, turns: 1, ..idle_stream() };
        let lane = Lane { start: 0, end: u64::MAX, streams: 1, ..Lane::default() };
        let templates = vec![Template { len: 60, ip: 0, l4: 0, odd: 0, head }];
        let before = self.tx_packets()?;
        self.start(&Departures { lane, streams: vec![stream], templates, frame, batch: 1, core: None })?;
        let deadline = Instant::now() + Duration::from_secs(2);
        let found = loop {
            if self.tx_packets()?.saturating_sub(before) >= PROBES {
                break Ok(());
            }
            if let Some(error) = self.failure() {
                break Err(XdpError::Load(error));
            }
            if Instant::now() > deadline {
                break Err(XdpError::FarEnd(self.name.clone()));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.stop();
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

impl Drop for XdpEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A stream that sends nothing, to be filled in.
pub fn idle_stream() -> Stream {
    Stream {
        gap: 1,
        next: 0,
        done: 0,
        total: 0,
        bytes: 0,
        error_sum: 0,
        error_max: 0,
        number: 0,
        sequence: 0,
        fields: 0,
        turns: 0,
        turn: 0,
        ip_at: 0,
        l4_at: 0,
        l4_udp: 0,
        signed: 0,
        padding: 0,
        order: [0; layout::ORDER],
        field: [layout::Field::default(); layout::FIELDS],
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, XdpError> {
    let program = ebpf.program_mut(name).ok_or_else(|| XdpError::Load(format!("there is no program {name}")))?;
    program.try_into().map_err(load)
}

fn program_fd(ebpf: &mut Ebpf, name: &str) -> Result<RawFd, XdpError> {
    Ok(program(ebpf, name)?.fd().map_err(load)?.as_fd().as_raw_fd())
}
