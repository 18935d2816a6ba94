//! `pg<n>-tx`: the end of a packet-generator interface. Packets are counted, written to a file where asked, and freed.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quiver_graph::{Frame, IfIndex, InterfaceCounters, NoDrops, NoNext, NodeCx, VectorNode};
use quiver_wire::pcapfile::{LinkType, Writer};

/// A capture shared by the tx nodes of an interface on all threads.
#[derive(Default)]
pub(crate) struct Capture {
    /// One load a vector tells whether there is anything to do.
    active: AtomicBool,
    file: Mutex<Option<Open>>,
}

/// Makes a file that is not there yet.
pub type CreateFile = Arc<dyn Fn() -> io::Result<File> + Send + Sync>;

struct Open {
    path: PathBuf,
    create: CreateFile,
    /// Made when the first packet leaves.
    writer: Option<Writer<File>>,
    left: Option<u64>,
    error: Option<String>,
}

impl Capture {
    /// Starts writing to a new file, for `count` packets or until stopped.
    pub(crate) fn start(&self, path: PathBuf, create: CreateFile, count: Option<u64>) {
        *self.lock() = Some(Open { path, create, writer: None, left: count, error: None });
        self.active.store(true, Ordering::Release);
    }

    /// Ends writing; tells what went wrong meanwhile.
    pub(crate) fn stop(&self) -> Option<String> {
        self.active.store(false, Ordering::Release);
        self.lock().take().and_then(|mut open| open.error.take())
    }

    /// File being written.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.lock().as_ref().map(|o| o.path.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, cx: &NodeCx<'_>, frame: &mut Frame) {
        let mut guard = self.lock();
        let Some(open) = guard.as_mut() else { return };
        let mut bytes = Vec::new();
        for i in 0..frame.len() {
            if open.left == Some(0) || open.error.is_some() {
                break;
            }
            let packet = cx.packet(frame, i);
            bytes.resize(packet.total_len(), 0);
            packet.copy_out(0, &mut bytes);
            if let Err(error) = open.write(cx.now(), &bytes) {
                open.error = Some(format!("{}: {error}", open.path.display()));
            }
            open.left = open.left.map(|n| n - 1);
        }
    }
}

impl Open {
    /// One record, visible to readers of the file at once (an unbuffered file).
    fn write(&mut self, time: u64, bytes: &[u8]) -> io::Result<()> {
        if self.writer.is_none() {
            self.writer = Some(Writer::new((self.create)()?, LinkType::ETHERNET)?);
        }
        match &mut self.writer {
            Some(writer) => writer.write(time, bytes, bytes.len()),
            None => Ok(()),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(Ok(mut file)) = self.writer.take().map(Writer::finish) {
            let _ = file.flush();
        }
    }
}

/// The node. Writing happens in the worker, under a lock taken once a vector and only while a capture runs: a capture must
/// show a packet as soon as the stream says that it has stopped.
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
            self.capture.write(cx, frame);
        }
        let bytes = (0..frame.len()).map(|i| cx.packet(frame, i).total_len() as u64).sum();
        self.counters.tx.add(cx.thread(), self.interface.0, frame.len() as u64, bytes);
        cx.consume_all(frame, self.interface);
    }
}
