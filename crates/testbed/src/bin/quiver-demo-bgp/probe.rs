//! Packets that carry a number, and who gets them.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use quiver_testbed::{Host, RawPort};

use crate::network::{CLIENT, CLIENT_MAC, ROUTER_MAC};
use crate::table::Side;

const PORT: u16 = 9999;
const ETHERNET: usize = 14;
const HEADERS: usize = ETHERNET + 20 + 8;

/// A UDP datagram with a number, from the client by the router.
fn frame(number: u32, destination: u32) -> Vec<u8> {
    let payload = number.to_be_bytes();
    let length = |more: usize| ((more + payload.len()) as u16).to_be_bytes();
    let mut ip = vec![0x45, 0];
    ip.extend(length(28));
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(CLIENT.octets());
    ip.extend(Ipv4Addr::from(destination).octets());
    let sum = quiver_wire::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = [&ROUTER_MAC[..], &CLIENT_MAC, &[8, 0], &ip].concat();
    bytes.extend(PORT.to_be_bytes());
    bytes.extend(PORT.to_be_bytes());
    bytes.extend(length(8));
    // IPv4 allows datagrams without a checksum.
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// The number of a datagram.
fn number(frame: &[u8]) -> Option<u32> {
    let is_ours = frame.get(12..14)? == [8, 0] && frame.get(23) == Some(&17) && frame.get(36..38)? == PORT.to_be_bytes();
    let bytes = frame.get(HEADERS..)?.first_chunk().filter(|_| is_ours)?;
    Some(u32::from_be_bytes(*bytes))
}

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Where.
    pub side: Side,
    /// When it was read.
    pub at: Instant,
}

/// Notes what arrives at a host.
struct Catcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<(u32, Arrival)>>>,
}

impl Catcher {
    fn start(host: &Host, side: Side) -> io::Result<Self> {
        let mut port: RawPort = host.raw("eth0")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut arrived = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                match port.recv(Duration::from_millis(50)) {
                    Ok(Some(frame)) => arrived.extend(number(&frame).map(|number| (number, Arrival { side, at: Instant::now() }))),
                    Ok(None) => {}
                    // Its link is down.
                    Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(arrived)
        });
        Ok(Self { stop, thread })
    }

    fn end(self) -> io::Result<Vec<(u32, Arrival)>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("a catcher panicked")))
    }
}

/// Both neighbours.
pub struct Catchers(Vec<Catcher>);

impl Catchers {
    /// Notes what arrives from now on.
    pub fn start(upstream: &Host, peer: &Host) -> io::Result<Self> {
        Ok(Self(vec![Catcher::start(upstream, Side::Upstream)?, Catcher::start(peer, Side::Peer)?]))
    }

    /// What has arrived, by number.
    pub fn end(self) -> io::Result<HashMap<u32, Arrival>> {
        let mut all = HashMap::new();
        for catcher in self.0 {
            all.extend(catcher.end()?);
        }
        Ok(all)
    }
}

/// Sends numbered datagrams, so many a second, to these destinations one after the other; gives when each was sent.
pub fn send(client: &Host, destinations: &[u32], rate: u32, count: impl Fn(u32) -> bool) -> io::Result<Vec<Instant>> {
    let port = client.raw("eth0")?;
    let (begin, mut sent) = (Instant::now(), Vec::new());
    while count(sent.len() as u32) {
        let due = begin + Duration::from_secs(1) * sent.len() as u32 / rate;
        sleep(due.saturating_duration_since(Instant::now()));
        let number = sent.len() as u32;
        let destination = destinations[number as usize % destinations.len()];
        sent.push(Instant::now());
        port.send(&frame(number, destination))?;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_in_its_frame_alone() {
        let bytes = frame(0x0102_0304, 0x0808_0808);
        assert_eq!(number(&bytes), Some(0x0102_0304));
        assert_eq!(quiver_wire::checksum::checksum(&bytes[14..34]), 0);
        let mut other = bytes.clone();
        other[23] = 6;
        assert_eq!(number(&other), None);
        assert_eq!(number(&bytes[..HEADERS + 3]), None);
    }
}
