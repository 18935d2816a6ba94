//! Capture files as ports: what a file holds comes in, with the distances that it was recorded with or at a rate, and what is
//! sent goes to another file.
//!
//! ```text
//!   in.pcap ── memory ──► Replay (worker) ── graph ──► Recorder (any thread) ── bounded channel ──► writer thread ── out.pcap
//! ```
//!
//! The replay begins when the interface is brought up, each time from the first packet. Time is the router's clock; a timer
//! wakes a sleeping worker when the next packet is due. A packet that is late (vectors were full) is sent as soon as there is
//! room, so a rate is kept on average.
//!
//! Which folders files may lie in, and how they are opened, is not decided here: [`CaptureFiles`] opens them. [`PcapPort::open`]
//! waits for the disk; the control plane calls it on another thread.
//!
//! Limits: the file to replay is read into memory (up to 1 GB) while the command runs; Ethernet captures only. A recording is
//! complete 50 ms after the last packet, or when the interface is deleted.

mod error;
mod record;
mod recording;
mod replay;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use quiver_graph::{Link, Port, RxQueue, TxQueue};

pub use error::PcapPortError;

use crate::ethernet::{ETHERNET_HEADER, random_mac};
use record::{Recorder, Vector};
use recording::Recording;
use replay::Replay;

/// Largest IP packet of the interface, bytes.
const MTU: usize = 9000;
/// Largest rate, packets a second.
const RATE_MAX: u64 = 1_000_000_000;

/// When packets of a file come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// With the distances that they were recorded with.
    #[default]
    Original,
    /// So many a second, evenly.
    Rate(u64),
    /// As fast as they are taken.
    Max,
}

/// What to replay and where to record to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapPortConfig {
    /// File to replay.
    pub rx: Option<PathBuf>,
    /// File to record to; one that is there is replaced.
    pub tx: Option<PathBuf>,
    /// When packets come in.
    pub timing: Timing,
    /// Rounds to play; 0: without end.
    pub rounds: u64,
    /// Hardware address of the interface; drawn at random for `None`.
    pub mac: Option<[u8; 6]>,
}

/// Opens files for a port, wherever they may lie. Never waits for a pipe or a device: those are refused.
pub trait CaptureFiles {
    /// Opens a file to replay.
    ///
    /// # Errors
    /// The kernel's, and what is no plain file.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Makes an empty file to record to; one that is there is replaced.
    ///
    /// # Errors
    /// The kernel's, and what is no plain file.
    fn create(&self, path: &Path) -> io::Result<File>;
}

/// What control side, queues and writer share.
#[derive(Debug, Default)]
struct Shared {
    /// Counts the starts of the interface.
    start: AtomicU64,
    replayed: AtomicU64,
    rounds: AtomicU64,
    recorded: AtomicU64,
    /// The writer has given up.
    broken: AtomicBool,
    /// Why.
    trouble: Mutex<Option<String>>,
}

/// How a port does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapPortStatus {
    /// Packets in the file to replay.
    pub packets: usize,
    /// Packets replayed since it was made.
    pub replayed: u64,
    /// Rounds finished since the last start.
    pub rounds: u64,
    /// Packets written.
    pub recorded: u64,
    /// Why the recording has ended before its time.
    pub trouble: Option<String>,
}

/// A pair of capture files as a port, on the control side.
pub struct PcapPort {
    config: PcapPortConfig,
    mac: [u8; 6],
    recording: Option<Arc<Recording>>,
    to: Option<SyncSender<Vector>>,
    shared: Arc<Shared>,
}

impl PcapPort {
    /// Reads the one file and creates the other.
    ///
    /// # Errors
    /// Files that cannot be read, are no captures, or cannot be created.
    pub fn open(config: PcapPortConfig, files: &dyn CaptureFiles) -> Result<Self, PcapPortError> {
        match (&config.rx, &config.tx) {
            (None, None) => return Err(PcapPortError::Nothing),
            (Some(rx), Some(tx)) if is_same(rx, tx) => return Err(PcapPortError::Same(rx.clone())),
            _ => {}
        }
        if let Timing::Rate(value) = config.timing
            && !(1..=RATE_MAX).contains(&value)
        {
            return Err(PcapPortError::Value { key: "rate", value, expected: "1 to 1000000000 packets a second" });
        }
        let read = |path: &PathBuf| {
            let file = files.open(path).map_err(|error| PcapPortError::System { path: path.clone(), error })?;
            Recording::read(path, file)
        };
        let recording = config.rx.as_ref().map(read).transpose()?.map(Arc::new);
        let mac = match config.mac {
            Some(mac) => mac,
            None => random_mac().map_err(|error| PcapPortError::System { path: PathBuf::from("a link address"), error })?,
        };
        let shared = Arc::new(Shared::default());
        // Last: it replaces a file.
        let record = |path: &PathBuf| {
            let begun = files.create(path).and_then(|file| record::start(file, shared.clone()));
            begun.map_err(|error| PcapPortError::System { path: path.clone(), error })
        };
        let to = config.tx.as_ref().map(record).transpose()?;
        Ok(Self { config, mac, recording, to, shared })
    }

    /// How it was made.
    pub fn config(&self) -> &PcapPortConfig {
        &self.config
    }

    /// How it does.
    pub fn status(&self) -> PcapPortStatus {
        PcapPortStatus {
            packets: self.recording.as_ref().map_or(0, |r| r.len()),
            replayed: self.shared.replayed.load(Ordering::Relaxed),
            rounds: self.shared.rounds.load(Ordering::Relaxed),
            recorded: self.shared.recorded.load(Ordering::Relaxed),
            trouble: self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

impl Port for PcapPort {
    fn input_node(&self) -> &'static str {
        "pcap-file-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let Some(recording) = &self.recording else { return Ok(Vec::new()) };
        let replay = Replay::new(recording.clone(), self.config.timing, self.config.rounds, self.shared.clone())?;
        Ok(vec![Box::new(replay)])
    }

    fn open_tx(&mut self, _thread: usize) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(Recorder::new(self.to.clone(), self.shared.clone())))
    }

    fn link(&mut self) -> Link {
        Link { up: true, speed: None }
    }

    fn mac(&self) -> Option<[u8; 6]> {
        Some(self.mac)
    }

    fn max_frame(&self) -> usize {
        MTU + ETHERNET_HEADER
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        if up {
            self.shared.start.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    fn describe(&self) -> Vec<String> {
        let status = self.status();
        let mut lines = Vec::new();
        if let Some(rx) = &self.config.rx {
            let timing = match self.config.timing {
                Timing::Original => "original timing".to_owned(),
                Timing::Rate(pps) => format!("{pps} packets/s"),
                Timing::Max => "as fast as possible".to_owned(),
            };
            let rounds = match self.config.rounds {
                0 => "without end".to_owned(),
                n => format!("of {n}"),
            };
            lines.push(format!("replays {} ({} packets), {timing}", rx.display(), status.packets));
            lines.push(format!("{} packets replayed, round {} {rounds}", status.replayed, status.rounds));
        }
        if let Some(tx) = &self.config.tx {
            lines.push(format!("records to {}: {} packets written", tx.display(), status.recorded));
        }
        lines.extend(status.trouble.map(|t| format!("the recording has ended: {t}")));
        lines
    }
}

#[cfg(test)]
mod tests;
