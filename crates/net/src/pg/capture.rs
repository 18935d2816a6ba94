//! `pg<n>-tx`: the end of a packet-generator interface. Packets are counted, copied for a capture where asked, and freed.
//!
//! A capture has a thread that writes its file: a disk that does not answer holds up no packet. A stream counts as stopped when what
//! it sent stands in the files.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use blocking::{Task, unblock};
use quiver_command::operation::{OpError, retval};
use quiver_graph::{Frame, IfIndex, InterfaceCounters, NoDrops, NoNext, NodeCx, VectorNode};
use quiver_wire::pcapfile::{LinkType, Writer};

/// Bytes of copies that wait to be written.
const WAITING: usize = 64 << 20;
/// Memory of a copy beside its bytes.
const BESIDE: usize = 64;

/// A capture shared by the tx nodes of an interface on all threads.
pub(crate) struct Capture {
    /// What packets begin with.
    link_type: LinkType,
    /// One load a vector tells whether there is anything to do.
    active: AtomicBool,
    running: Mutex<Option<Running>>,
    waiting: Arc<AtomicUsize>,
}

/// Makes a file that is not there yet.
pub type CreateFile = Arc<dyn Fn() -> io::Result<File> + Send + Sync>;

/// What a capture comes to when all its packets are written.
pub type Written = Task<Result<(), OpError>>;

struct Running {
    /// Takes the copies; none where there are as many as were asked for.
    to: Option<Sender<Copied>>,
    left: Option<u64>,
    missed: u64,
    /// What the thread comes to.
    writing: Option<Written>,
}

struct Copied {
    time: u64,
    bytes: Vec<u8>,
}

impl Copied {
    fn cost(&self) -> usize {
        self.bytes.len() + BESIDE
    }
}

impl Capture {
    /// None that runs.
    pub(crate) fn new(link_type: LinkType) -> Self {
        Self { link_type, active: AtomicBool::new(false), running: Mutex::default(), waiting: Arc::default() }
    }

    /// Starts writing to a new file, for `count` packets or until stopped.
    pub(crate) fn start(&self, name: String, create: CreateFile, count: Option<u64>) {
        let (to, from) = channel();
        let (waiting, link_type) = (Arc::clone(&self.waiting), self.link_type);
        let writing = unblock(move || {
            write(&create, link_type, &from, &waiting).map_err(|error| {
                tracing::warn!(target: "pg", "{name}: {error}; the capture has ended");
                // What comes still is for nobody.
                for packet in &from {
                    waiting.fetch_sub(packet.cost(), Ordering::AcqRel);
                }
                OpError::new(retval::CANNOT_CREATE_PCAP_FILE, format!("{name}: {error}")).key("file")
            })
        });
        let to = (count != Some(0)).then_some(to);
        *self.lock() = Some(Running { to, left: count, missed: 0, writing: Some(writing) });
        self.active.store(true, Ordering::Release);
    }

    /// Ends copying: what the file comes to, and the packets for which there was no memory.
    pub(crate) fn stop(&self) -> Option<(Written, u64)> {
        self.active.store(false, Ordering::Release);
        let mut running = self.lock().take()?;
        running.writing.take().map(|writing| (writing, running.missed))
    }

    /// Whether copies wait to be written.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self, cx: &NodeCx<'_>, frame: &mut Frame) {
        let mut guard = self.lock();
        let Some(running) = guard.as_mut() else { return };
        for i in 0..frame.len() {
            let Some(to) = &running.to else { return };
            let packet = cx.packet(frame, i);
            let mut copied = Copied { time: cx.now(), bytes: vec![0; packet.total_len()] };
            packet.copy_out(0, &mut copied.bytes);
            let cost = copied.cost();
            if self.waiting.fetch_add(cost, Ordering::AcqRel) > WAITING {
                self.waiting.fetch_sub(cost, Ordering::AcqRel);
                running.missed += 1;
                continue;
            }
            if to.send(copied).is_err() {
                // Nobody writes any more.
                self.waiting.fetch_sub(cost, Ordering::AcqRel);
                running.to = None;
                return;
            }
            running.left = running.left.map(|n| n - 1);
            if running.left == Some(0) {
                running.to = None;
                self.active.store(false, Ordering::Release);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where nobody asks what the file came to, it is written all the same.
        if let Some(writing) = self.writing.take() {
            writing.detach();
        }
    }
}

/// Writes packets as they come. They stand in the file before they are no longer counted as waiting.
fn write(create: &CreateFile, link_type: LinkType, packets: &Receiver<Copied>, waiting: &AtomicUsize) -> io::Result<()> {
    let mut writer: Option<Writer<BufWriter<File>>> = None;
    while let Ok(first) = packets.recv() {
        let mut written = 0;
        let result = std::iter::once(first).chain(packets.try_iter()).try_for_each(|packet| {
            written += packet.cost();
            let writer = match &mut writer {
                Some(writer) => writer,
                // Made when the first packet has left.
                none => none.insert(Writer::new(BufWriter::new(create()?), link_type)?),
            };
            writer.write(packet.time, &packet.bytes, packet.bytes.len())
        });
        let result = result.and_then(|()| writer.as_mut().map_or(Ok(()), Writer::flush));
        waiting.fetch_sub(written, Ordering::AcqRel);
        result?;
    }
    Ok(())
}

/// The node.
pub(crate) struct PgTx {
    pub interface: IfIndex,
    pub counters: Arc<InterfaceCounters>,
    pub capture: Arc<Capture>,
}

impl VectorNode for PgTx {
    type Next = NoNext;
    type Drop = NoDrops;

    fn run(&mut self, cx: &mut NodeCx<'_>, frame: &mut Frame) {
        if self.capture.active.load(Ordering::Relaxed) {
            self.capture.copy(cx, frame);
        }
        let bytes = (0..frame.len()).map(|i| cx.packet(frame, i).total_len() as u64).sum();
        self.counters.tx.add(cx.thread(), self.interface.0, frame.len() as u64, bytes);
        cx.consume_all(frame, self.interface);
    }
}
