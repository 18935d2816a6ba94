//! Corrupted memif rings: a peer connects, sends packets, and writes words into its rings that should not be there, at any moment,
//! until the router ends the connection or the peer has had enough. In both roles.
//!
//! Two other memif interfaces of the router exchange packets meanwhile and must lose none; buffers and descriptors must be back.

use std::path::Path;
use std::time::{Duration, Instant};

use quiver_testbed::hostile::{Connection, listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;

use crate::Plan;
use crate::frames::HELD;
use crate::report::Outcome;
use crate::requests::rounds;
use crate::rng::Rng;
use crate::scene::Mutants;
use crate::watch::Target;

/// Connections of a router; each has two rings, and both are corrupted.
const ROUND: u64 = 10_000;
/// Interfaces that serve, and such that look for a server.
const SERVERS: u32 = 8;
const CLIENTS: u32 = 24;
/// How long the router may take to accept a connection, or to look for a server.
const HANG: Duration = Duration::from_secs(120);

/// The others' packets, and packets into the rings that are attacked.
fn streams(target: &Target) -> Result<(), String> {
    let attacked =
        (0..SERVERS).map(|id| (format!("memif0/{id}"), 2000)).chain((0..CLIENTS).map(|id| (format!("memif3/{id}"), 500)));
    for (interface, rate) in std::iter::once(("memif2/0".to_owned(), 5000)).chain(attacked) {
        target.router.cli(&format!(
            "packet-generator new {{ name to-{interface} limit 0 rate {rate} size 60-600 tx-interface {interface} \
             node {interface}-output data {{ IP4: 00:01:02:03:04:06 -> 00:01:02:03:04:05 UDP: 10.1.0.2 -> 10.2.0.2 \
             UDP: 1234 -> 2345 incrementing 8 }} }}"
        ))?;
    }
    target.router.cli("packet-generator enable-stream").map(drop)
}

fn set_up(target: &Target) -> Result<OwnedFd, String> {
    let folder = target.router.folder().display().to_string();
    let evil = listener(Path::new(&format!("{folder}/evil.sock")));
    let mut commands = format!(
        "create memif socket id 1 filename {folder}/pair.sock\ncreate memif socket id 2 filename {folder}/./pair.sock\n\
         create memif socket id 3 filename {folder}/evil.sock\n\
         create interface memif id 0 socket-id 1 master\ncreate interface memif id 0 socket-id 2 slave\n\
         set interface state memif1/0 up\nset interface state memif2/0 up\n"
    );
    for id in 0..SERVERS {
        commands += &format!("create interface memif id {id} master\nset interface state memif0/{id} up\n");
    }
    for id in 0..CLIENTS {
        commands += &format!("create interface memif id {id} socket-id 3 slave ring-size 64\nset interface state memif3/{id} up\n");
    }
    target.router.script(&commands)?;
    streams(target)?;
    Ok(evil)
}

/// Corrupts the rings of a connection.
fn corrupt(connection: &Connection, rng: &mut Rng, mutants: &mut Mutants, scratch: &mut Vec<u8>, client: bool) {
    for _ in 0..1 + rng.below(20) {
        if client && connection.pending() <= connection.slots {
            connection.send(rng.below(32) as u16, scratch, |frame| mutants.next(frame));
        }
        for _ in 0..1 + rng.below(40) {
            connection.corrupt(&mut || rng.next());
        }
        let _ = rustix::io::write(&connection.events[0], &1_u64.to_ne_bytes());
        if connection.is_ended() {
            break;
        }
        std::thread::yield_now();
    }
}

/// Whether the router has come to a socket of ours.
fn is_waiting(listener: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

/// A connection in the role of a client, as soon as the router has seen that the one before has gone.
fn dial(target: &Target, id: u32) -> Result<Connection, String> {
    let (socket, deadline) = (target.router.folder().join("memif.sock"), Instant::now() + HANG);
    loop {
        match Connection::client(&socket, id) {
            Err(error) if Instant::now() > deadline => return Err(format!("no connection within {HANG:?}: {error}")),
            Err(_) => std::thread::yield_now(),
            connection => return connection,
        }
    }
}

fn play(outcome: &mut Outcome, target: &mut Target, seed: u64, plan: &Plan) -> Result<(), String> {
    let evil = set_up(target)?;
    let (mut rng, mut mutants, mut scratch) = (Rng::new(seed), Mutants::new(seed, 0), Vec::new());
    let mut left = ROUND.min((plan.count - outcome.count).div_ceil(2));
    while left > 0 && plan.goes_on(outcome.count) {
        // The router looks for a server from time to time; whatever has come is served.
        if is_waiting(&evil) {
            let connection = Connection::server(&evil)?;
            corrupt(&connection, &mut rng, &mut mutants, &mut scratch, false);
        } else {
            let connection = dial(target, rng.below(SERVERS as usize) as u32)?;
            corrupt(&connection, &mut rng, &mut mutants, &mut scratch, true);
        }
        (outcome.count, left) = (outcome.count + 2, left - 1);
    }
    target.router.cli("packet-generator disable-stream")?;
    drop(evil);
    let deadline = Instant::now() + HELD;
    loop {
        let (sent, lost) = (target.counter("memif2/0", "tx packets")?, target.counter("memif2/0", "tx-error")?);
        let (received, wrong) = (target.counter("memif1/0", "rx packets")?, target.counter("memif1/0", "rx-error")?);
        if sent == received && sent > 0 && lost == 0 && wrong == 0 {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("of {sent} packets of others {received} have come, {lost} and {wrong} errors"));
        }
    }
    target.whole(HELD)
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    rounds("rings", plan, |_| 1, play)
}
