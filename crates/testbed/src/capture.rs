//! A pcap of everything on an interface, for looking at afterwards or for counting frames in a test.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::host::Host;
use crate::raw::{RawPort, Sees};

/// How soon a stopped capture notices.
const POLL: Duration = Duration::from_millis(20);

/// A running capture, both directions, written as classic pcap with nanosecond stamps. Dropping it stops it.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<io::Result<u64>>>,
    path: PathBuf,
}

impl Host {
    /// Captures an interface into `path` until the result is stopped or dropped.
    pub fn capture(&self, interface: &str, path: &Path) -> io::Result<Capture> {
        let port = RawPort::open(self, interface, Sees::Both)?;
        let file = File::create(path).map_err(|e| crate::sys::with_context(path.display(), e))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_seen = Arc::clone(&stop);
        let writer = std::thread::spawn(move || write_frames(port, file, &stop_seen));
        Ok(Capture { stop, writer: Some(writer), path: path.to_owned() })
    }
}

impl Capture {
    /// Stops and tells how many frames were written. Frames that arrived before the call are in.
    pub fn stop(mut self) -> io::Result<u64> {
        self.finish()
    }

    /// Where the frames go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn finish(&mut self) -> io::Result<u64> {
        self.stop.store(true, Ordering::Release);
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the capture thread panicked")),
            None => Ok(0),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Nobody is left to tell; a capture that matters is stopped by `stop`.
        let _ = self.finish();
    }
}

fn write_frames(mut port: RawPort, file: File, stop: &AtomicBool) -> io::Result<u64> {
    let mut file = BufWriter::new(file);
    file.write_all(&file_header())?;
    let mut count = 0;
    loop {
        // Read before the wait, so that one more, empty round follows the wish to stop.
        let stopping = stop.load(Ordering::Acquire);
        match port.recv(if stopping { Duration::ZERO } else { POLL })? {
            Some(frame) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                file.write_all(&record_header(now, frame.len()))?;
                file.write_all(&frame)?;
                count += 1;
            }
            None if stopping => break,
            None => {}
        }
    }
    file.flush()?;
    Ok(count)
}

/// pcap file header: nanosecond magic, version 2.4, no time zone, whole frames, link type Ethernet (1).
fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[0..4].copy_from_slice(&0xa1b2_3c4d_u32.to_ne_bytes());
    header[4..6].copy_from_slice(&2_u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4_u16.to_ne_bytes());
    header[16..20].copy_from_slice(&262_144_u32.to_ne_bytes());
    header[20..24].copy_from_slice(&1_u32.to_ne_bytes());
    header
}

fn record_header(stamp: Duration, length: usize) -> [u8; 16] {
    let mut header = [0; 16];
    // The format has 32 bits of seconds.
    header[0..4].copy_from_slice(&(stamp.as_secs() as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&stamp.subsec_nanos().to_ne_bytes());
    header[8..12].copy_from_slice(&(length as u32).to_ne_bytes());
    header[12..16].copy_from_slice(&(length as u32).to_ne_bytes());
    header
}
