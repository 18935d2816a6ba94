//! Writes captured packets to their file as they come, by a thread of its own.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};

use blocking::{Task, unblock};
use crossbeam_channel::Receiver;
use quiver_command::operation::OpError;
use quiver_graph::Captured;
use quiver_net::files::{NewFile, Place};
use quiver_wire::pcapfile::{LinkType, Writer};

/// Bytes that are held back to be sorted: threads hand their packets over at slightly different times.
const HELD: usize = 16 << 20;
/// Memory of a copy beside its bytes.
const BESIDE: usize = 128;
/// Written to the disk at once.
const CHUNK: usize = 1 << 20;

/// A capture being written.
pub struct Writing {
    /// Ends when the last sender is gone: the number of packets, all of them in the file, which has its name then.
    pub task: Task<Result<usize, OpError>>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Writing {
    /// Writes what `packets` brings. `offset`: what the time of day is ahead of the router's clock, ns.
    pub fn start(file: NewFile, packets: Receiver<Captured>, offset: u64, place: Place) -> Self {
        let trouble = Arc::new(Mutex::new(None));
        let told = Arc::clone(&trouble);
        let task = unblock(move || {
            write(file, packets, offset).map_err(|error| {
                let error = place.no_capture("write", &error);
                tracing::warn!(target: "pcap", "{error}; the capture has ended");
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                error
            })
        });
        Self { task, trouble }
    }

    /// Why it has ended before its time.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// On an error the file goes away: a full disk has its space back.
fn write(file: NewFile, packets: Receiver<Captured>, offset: u64) -> io::Result<usize> {
    let mut writer = Writer::new(BufWriter::with_capacity(CHUNK, file), LinkType::ETHERNET)?;
    let (mut held, mut bytes, mut count) = (Vec::new(), 0, 0);
    for packet in packets {
        bytes += packet.bytes.len() + BESIDE;
        held.push(packet);
        if bytes >= HELD {
            // The older half: who was late is among the newer one.
            let older = held.len() / 2;
            count += put(&mut writer, &mut held, older, offset)?;
            bytes = held.iter().map(|packet| packet.bytes.len() + BESIDE).sum();
        }
    }
    let rest = held.len();
    count += put(&mut writer, &mut held, rest, offset)?;
    let mut buffered = writer.finish()?;
    buffered.flush()?;
    let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    if count > 0 {
        file.finish()?;
    }
    Ok(count)
}

/// Writes the first `count` packets by time.
fn put(writer: &mut Writer<BufWriter<NewFile>>, held: &mut Vec<Captured>, count: usize, offset: u64) -> io::Result<usize> {
    held.sort_by_key(|packet| packet.time);
    for packet in held.drain(..count) {
        let time = packet.time.saturating_add(offset);
        let (bytes, len) = super::frame(packet);
        writer.write(time, &bytes, len)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use quiver_graph::{CapturePoint, IfIndex};
    use quiver_net::testing::Harness;
    use quiver_wire::pcapfile::Reader;

    use super::*;
    use crate::ops::testing::OwnFolder;
    use quiver_net::files::{Files, Use};

    fn packet(time: u64, size: usize) -> Captured {
        let (point, bytes) = (CapturePoint::Rx, vec![7; size]);
        Captured { time, point, interface: IfIndex(1), pulled: Vec::new(), len: size, bytes, arrival: None }
    }

    #[test]
    fn packets_that_come_late_are_sorted_in_and_memory_is_bounded() {
        let mut h = Harness::new();
        let _folder = OwnFolder::of(&mut h.router, "writer");
        let place = Files::place(&h.router, "a.pcap", Use::Write).unwrap();
        let (to, packets) = crossbeam_channel::bounded(16);
        let writing = Writing::start(place.create().unwrap(), packets, 1_000, place.clone());
        // Several times what is held back; two threads take turns, one of them late.
        let count = 3 * HELD / 9_000;
        for n in 0..count as u64 {
            to.send(packet(if n % 2 == 0 { n * 10 } else { n * 10 - 500_u64.min(n * 10) }, 9_000)).unwrap();
        }
        assert!(!place.path().exists(), "not before it is whole");
        drop(to);
        assert_eq!(futures_lite::future::block_on(writing.task).unwrap(), count);
        let times: Vec<u64> = Reader::new(place.open().unwrap()).unwrap().map(|packet| packet.unwrap().time_ns).collect();
        assert!(times.len() == count && times.is_sorted());
    }

    #[test]
    fn a_capture_of_nothing_leaves_no_file() {
        let mut h = Harness::new();
        let folder = OwnFolder::of(&mut h.router, "nothing");
        let place = Files::place(&h.router, "a.pcap", Use::Write).unwrap();
        let (to, packets) = crossbeam_channel::bounded(1);
        let writing = Writing::start(place.create().unwrap(), packets, 0, place);
        drop(to);
        assert_eq!(futures_lite::future::block_on(writing.task).unwrap(), 0);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}
