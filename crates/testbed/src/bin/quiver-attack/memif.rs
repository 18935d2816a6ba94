//! Mutated frames through memif: each is made in place, in the memory that is shared with the router, and none is sent twice.
//!
//! What the peer wrote into its rings must be what the interfaces count as received, what it found in them what they count as sent,
//! and once reassemblies, waits for neighbours and their like are over, every buffer must be back.

use std::time::{Duration, Instant};

use quiver_testbed::hostile::{Connection, event};

use crate::Plan;
use crate::frames::HELD;
use crate::report::Outcome;
use crate::requests::rounds;
use crate::scene::{Mutants, PORTS, Ports};
use crate::watch::Target;

/// Frames of a router.
const ROUND: u64 = 50_000_000;
/// Slots of a ring, as a power of two.
const LOG2: u8 = 10;
/// Frames to a ring at a time.
const BURST: u16 = 256;
/// How long a round may take without any progress.
const HANG: Duration = Duration::from_secs(120);

const MEMIF: Ports = Ports { name: "memif0/", create: "create interface memif id @ master", input: "memif-input" };

/// The other end of a port.
struct Peer {
    connection: Connection,
    mutants: Mutants,
    sent: u64,
    /// Where it is in the ring back, and the packets that came.
    read: u16,
    received: u64,
}

impl Peer {
    fn connect(target: &Target, seed: u64, port: u8) -> Result<Self, String> {
        let socket = target.router.folder().join("memif.sock");
        let connection = Connection::client_of(&socket, port.into(), [event(), event()], LOG2)?;
        Ok(Self { connection, mutants: Mutants::new(seed, port), sent: 0, read: 0, received: 0 })
    }

    /// Receives what there is, and sends at most so many frames; how many.
    fn play(&mut self, most: u16, scratch: &mut Vec<u8>) -> u64 {
        self.received += u64::from(self.connection.take(&mut self.read));
        let mutants = &mut self.mutants;
        let sent = self.connection.send(most, scratch, |frame| mutants.next(frame)).into();
        self.sent += sent;
        self.connection.wake();
        sent
    }
}

fn play(outcome: &mut Outcome, target: &mut Target, seed: u64, plan: &Plan) -> Result<(), String> {
    MEMIF.set_up(&target.router)?;
    let mut peers = Vec::new();
    for port in 0..PORTS {
        peers.push(Peer::connect(target, seed, port)?);
    }
    let _ = target.router.cli("pcap trace rx tx max 100000 max-bytes-per-pkt 128 intfc any");
    let mut left = ROUND.min(plan.count - outcome.count);
    let mut scratch = Vec::new();
    let mut moved = Instant::now();
    // Until all is sent, and the router has taken it.
    while left > 0 || peers.iter().any(|p| p.connection.pending() > 0) {
        let mut sent = 0;
        for peer in &mut peers {
            let n = peer.play(left.min(BURST.into()) as u16, &mut scratch);
            (left, sent) = (left - n, sent + n);
        }
        outcome.count += sent;
        if sent > 0 {
            moved = Instant::now();
        } else {
            if let Some(port) = peers.iter().position(|p| p.connection.is_ended()) {
                return Err(format!("port {port} was disconnected after {} frames", peers[port].sent));
            }
            if moved.elapsed() > HANG {
                return Err(format!("no progress for {HANG:?}, {left} frames left"));
            }
            std::thread::yield_now();
        }
        if !plan.goes_on(outcome.count) {
            left = 0;
        }
    }
    // What is held may still be sent; the rings are emptied meanwhile.
    let deadline = Instant::now() + HELD;
    loop {
        for peer in &mut peers {
            peer.play(0, &mut scratch);
        }
        if target.buffers()? == 0 || Instant::now() > deadline {
            break;
        }
    }
    target.whole(Duration::ZERO)?;
    for (port, peer) in (0..).zip(&mut peers) {
        peer.play(0, &mut scratch);
        let got = MEMIF.counter(target, port, "rx packets")? + MEMIF.counter(target, port, "rx-error")?;
        if got != peer.sent {
            return Err(format!("port {port} counts {got} received of {}", peer.sent));
        }
        let sent = MEMIF.counter(target, port, "tx packets")?;
        if sent != peer.received {
            return Err(format!("port {port} counts {sent} sent, and {} have come", peer.received));
        }
    }
    Ok(())
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    rounds("memif", plan, |round| (round % 2) as u32, play)
}
