//! A thread that sends: a program of its own, made for what it is to send, with maps of its own.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use aya::Ebpf;
use aya::maps::Map;

use super::layout::{BODY, Body, Control, DUES, Dues, Progress, ROWS, Row, Rows, STREAMS, Setup, State, Template};
use super::run::{self, Running};
use super::{XdpError, load_object, maps, program, program_fd};
use crate::bpf::bpf;

/// The program; empty where there was no clang when this was built.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/transmit.o"));
const BPF_MAP_FREEZE: i32 = 22;

/// What a thread is to send.
#[derive(Clone, Debug)]
pub struct Departures {
    /// What does not change.
    pub setup: Setup,
    /// Where its streams begin.
    pub state: State,
    /// Templates of all streams.
    pub templates: Vec<Template>,
    /// Templates by turns, counted from a stream's first one, of all streams.
    pub orders: Vec<u32>,
    /// Lists of all fields.
    pub rows: Vec<Row>,
    /// Of each stream what its largest frame has behind [`HEAD`](super::layout::HEAD); used where frames differ there.
    pub bodies: Vec<Vec<u8>>,
    /// Room for departure times that are written while frames are sent, in units of [`DUES`].
    pub feeds: u32,
    /// The largest frame: where frames do not differ behind [`HEAD`](super::layout::HEAD), what follows is taken from here.
    pub frame: Vec<u8>,
    /// Frames (or looks at the clock) that share a flush: 1 to 4 where times matter, 64 where the number does.
    pub batch: u32,
    /// Core of the thread.
    pub core: Option<u32>,
}

impl Departures {
    /// Nothing, to be filled in.
    pub fn new() -> Self {
        Self {
            setup: Setup::default(),
            state: State::default(),
            templates: Vec::new(),
            orders: Vec::new(),
            rows: Vec::new(),
            bodies: Vec::new(),
            feeds: 0,
            frame: Vec::new(),
            batch: 1,
            core: None,
        }
    }
}

impl Default for Departures {
    fn default() -> Self {
        Self::new()
    }
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCount {
    /// Frames.
    pub frames: u64,
    /// Bytes with FCS.
    pub bytes: u64,
}

/// How far a thread is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// By stream.
    pub streams: Vec<SentCount>,
    /// Frames that could not be made.
    pub refused: u64,
    /// Nothing more will be sent.
    pub over: bool,
}

/// A thread that sends, or will.
pub struct Sender {
    ebpf: Ebpf,
    control: Control,
    streams: usize,
    frame: Vec<u8>,
    batch: u32,
    core: Option<u32>,
    running: Option<Running>,
}

impl Sender {
    /// Loads the program for what is to be sent, on this device where streams name none.
    pub(super) fn load(departures: &Departures, device: u32) -> Result<Self, XdpError> {
        let Departures { setup, state, templates, orders, rows, bodies, .. } = departures;
        let sizes = [
            ("templates", templates.len()),
            ("orders", orders.len()),
            ("lists", rows.len().div_ceil(ROWS)),
            ("bodies", if setup.bodies == 0 { 0 } else { bodies.len() }),
            ("feeds", departures.feeds as usize),
        ];
        let mut ebpf = load_object(OBJECT, &sizes.map(|(name, n)| (name, n.max(1) as u32)))?;
        let mut own = *setup;
        own.stream.iter_mut().filter(|s| s.device == 0).for_each(|s| s.device = device);
        maps::set(&mut ebpf, "setups", 0, &own)?;
        maps::set(&mut ebpf, "states", 0, state)?;
        for (at, template) in templates.iter().enumerate() {
            maps::set(&mut ebpf, "templates", at as u32, template)?;
        }
        for (at, place) in orders.iter().enumerate() {
            maps::set(&mut ebpf, "orders", at as u32, place)?;
        }
        for (at, rows) in rows.chunks(ROWS).enumerate() {
            let mut whole = Rows([Row::default(); ROWS]);
            whole.0[..rows.len()].copy_from_slice(rows);
            maps::set(&mut ebpf, "lists", at as u32, &whole)?;
        }
        if setup.bodies != 0 {
            for (at, bytes) in bodies.iter().enumerate() {
                let mut body = Body([0; BODY]);
                let n = bytes.len().min(BODY);
                body.0[..n].copy_from_slice(&bytes[..n]);
                maps::set(&mut ebpf, "bodies", at as u32, &body)?;
            }
        }
        // Only what can no longer change are constants to the verifier.
        freeze(&ebpf, "setups").map_err(|e| XdpError::Map(format!("setups: {e}")))?;
        program(&mut ebpf, "transmit")?.load().map_err(super::load)?;
        Ok(Self {
            ebpf,
            control: Control::default(),
            streams: (setup.streams as usize).min(STREAMS),
            frame: departures.frame.clone(),
            batch: departures.batch,
            core: departures.core,
            running: None,
        })
    }

    /// The frames that are sent first, without sending them, in one page as the kernel has them, all due at once.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn dry_run(&mut self, frames: usize) -> Result<Vec<Vec<u8>>, XdpError> {
        // A start so long ago that all is due, and an end that never comes.
        let start = run::monotonic().saturating_sub(1_000_000_000_000);
        (self.control.start, self.control.end) = (start, u64::MAX);
        self.say()?;
        let transmitter = program_fd(&mut self.ebpf, "transmit")?;
        let mut page = self.frame.clone();
        let mut one = || {
            let (frame, _) = run::once(transmitter, &page)?;
            page[..frame.len()].copy_from_slice(&frame);
            Ok(frame)
        };
        (0..frames).map(|_| one()).collect()
    }

    /// Begins to send at `start`, and sends nothing more from `end` on, ns of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The kernel does not take it, or there is no thread.
    pub fn start(&mut self, start: u64, end: u64) -> Result<(), XdpError> {
        self.stop();
        (self.control.start, self.control.end) = (start, end);
        self.say()?;
        let program = program_fd(&mut self.ebpf, "transmit")?;
        self.running = Some(Running::start(program, self.frame.clone(), self.batch, self.core)?);
        Ok(())
    }

    /// Writes departure times of a stream, ns from the start of the trial, to one of its units of [`DUES`] for them; `all` are
    /// written from then on.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn feed(&mut self, stream: usize, unit: u32, times: &[u64], all: u64) -> Result<(), XdpError> {
        let mut dues = Dues([0; DUES]);
        let n = times.len().min(DUES);
        dues.0[..n].copy_from_slice(&times[..n]);
        maps::set(&mut self.ebpf, "feeds", unit, &dues)?;
        if let Some(fed) = self.control.fed.get_mut(stream) {
            *fed = all;
        }
        self.say()
    }

    /// How far it is.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn sent(&self) -> Result<SentCounts, XdpError> {
        let state: State = maps::get(&self.ebpf, "states", 0)?;
        let count = |p: &Progress| SentCount { frames: p.done, bytes: p.bytes };
        let streams = state.stream[..self.streams].iter().map(count).collect();
        Ok(SentCounts { streams, refused: state.refused, over: state.over != 0 })
    }

    /// Departure errors of a direction ([`Stream::errors`](super::layout::Stream)), ns: values (to three digits) and how many frames
    /// had them.
    ///
    /// # Errors
    /// The kernel does not give them.
    pub fn departure_errors(&self, direction: u32) -> Result<Vec<(u64, u64)>, XdpError> {
        maps::histogram(&self.ebpf, "errors", direction)
    }

    /// Whether it has begun and was not stopped.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Why sending ended by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.running.as_ref().and_then(Running::failure)
    }

    /// Ends sending and its thread.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            // Frames under way in the program may still leave; none after this.
            self.control.end = 0;
            let _ = self.say();
            running.stop();
        }
    }

    fn say(&mut self) -> Result<(), XdpError> {
        maps::set(&mut self.ebpf, "controls", 0, &self.control)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has nobody change a map any more.
fn freeze(ebpf: &Ebpf, map: &str) -> io::Result<()> {
    let Some(Map::Array(map)) = ebpf.map(map) else { return Err(io::ErrorKind::NotFound.into()) };
    let mut descriptor = map.fd().as_fd().as_raw_fd();
    bpf(BPF_MAP_FREEZE, &mut descriptor).map(drop)
}
