//! Recording: what is sent to the interface goes to a file, written by a thread of its own. A worker never waits for a disk:
//! when the writer is too far behind, packets are dropped and counted.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quiver_graph::{TxBatch, TxDrop, TxQueue};
use quiver_wire::checksum;
use quiver_wire::pcapfile::{LinkType, MAX_PACKET, Writer};

use super::Shared;

/// Vectors that may wait to be written.
const WAITING: usize = 256;
/// The file is brought up to date when nothing has come for so long.
const PAUSE: Duration = Duration::from_millis(50);

/// Packets of a vector, copied.
pub(super) struct Vector {
    /// ns of the router's clock.
    time: u64,
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

/// Begins an empty file and starts its writer, which ends with the last sender.
pub(super) fn start(file: File, shared: Arc<Shared>) -> io::Result<SyncSender<Vector>> {
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file), LinkType::ETHERNET)?;
    // From here on it is a capture file, if an empty one.
    writer.flush()?;
    let (to, from) = sync_channel(WAITING);
    std::thread::Builder::new().name("pcap-writer".to_owned()).spawn(move || {
        if let Err(error) = write(writer, &from, &shared) {
            *shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            shared.broken.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(to)
}

fn write(mut writer: Writer<BufWriter<File>>, from: &Receiver<Vector>, shared: &Shared) -> io::Result<()> {
    // Files have the time of day; the router's clock counts from the machine's start.
    let offset = wall_offset();
    let mut clean = true;
    loop {
        let next = match from.try_recv() {
            Ok(vector) => Ok(vector),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => from.recv_timeout(if clean { Duration::from_secs(3600) } else { PAUSE }),
        };
        match next {
            Ok(vector) => {
                let mut rest = vector.bytes.as_slice();
                for len in &vector.lens {
                    let (packet, after) = rest.split_at(*len);
                    writer.write(vector.time.saturating_add(offset), packet, *len)?;
                    rest = after;
                }
                shared.recorded.fetch_add(vector.lens.len() as u64, Ordering::Relaxed);
                clean = false;
            }
            Err(RecvTimeoutError::Timeout) => {
                writer.flush()?;
                clean = true;
            }
            Err(RecvTimeoutError::Disconnected) => return writer.finish().map(drop),
        }
    }
}

/// What the time of day is ahead of CLOCK_MONOTONIC, ns.
fn wall_offset() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives over the call.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let monotonic = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    wall.saturating_sub(monotonic)
}

/// A thread's transmit queue.
pub(super) struct Recorder {
    to: Option<SyncSender<Vector>>,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Without a sender, what is sent is thrown away, counted.
    pub(super) fn new(to: Option<SyncSender<Vector>>, shared: Arc<Shared>) -> Self {
        Self { to, shared }
    }
}

impl TxQueue for Recorder {
    fn tx(&mut self, batch: &mut TxBatch<'_, '_>) -> usize {
        let Some(to) = self.to.as_ref().filter(|_| !self.shared.broken.load(Ordering::Relaxed)) else {
            batch.set_reason(TxDrop::NoDevice);
            return 0;
        };
        let mut vector = Vector { time: batch.now(), bytes: Vec::new(), lens: Vec::with_capacity(batch.len()) };
        for i in 0..batch.len() {
            let packet = batch.packet(i);
            let len = packet.total_len().min(MAX_PACKET);
            let start = vector.bytes.len();
            vector.bytes.resize(start + len, 0);
            let copy = &mut vector.bytes[start..];
            packet.copy_out(0, copy);
            if let Some((from, offset)) = packet.unfinished_checksum() {
                // What cannot be finished is recorded as it is.
                let _ = checksum::complete(copy, from, offset);
            }
            vector.lens.push(len);
        }
        // All or nothing: the vector is one message.
        if to.try_send(vector).is_err() { 0 } else { batch.len() }
    }
}
