//! How long packets follow a path after its BFD session should have been lost.
//!
//! `cargo bench -p quiver-testbed --bench convergence [-- PREFIXES [ROUNDS]]`
//!
//! A router (`QUIVER_BIN`, or the release build) with one worker has 500,000 prefixes by one neighbour, and by another one with a worse
//! preference. Host `a` sends 10,000 packets a second to 64 of them, each with the time at which it was sent. The neighbour speaks BFD, every 10 ms,
//! multiplier 3, by a thread of this program, and falls silent at random moments: it is still there, so what the router goes on sending to it
//! arrives and is seen. Printed: the time from the end of the detection time (30 ms after the last packet of BFD was sent) to the last packet
//! that took the lost path, and the same for a small table, round by round in turn. Needs root for its own namespaces.

use std::error::Error;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quiver_tables::synth::Random;
use quiver_testbed::{Host, LinkOptions, Router};

type Outcome<T> = Result<T, Box<dyn Error>>;

const INTERVAL: Duration = Duration::from_millis(10);
const MULTIPLIER: u8 = 3;
const PORT: u16 = 8000;
/// The first prefix; all are in 16.0.0.0/4.
const FIRST: u32 = 0x1000_0000;
/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(240);
/// How long a lost path is watched.
const WATCH: Duration = Duration::from_millis(300);

fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(|word| word.parse::<u32>());
    let prefixes = numbers.next().transpose()?.unwrap_or(500_000);
    let rounds = numbers.next().transpose()?.unwrap_or(20);
    let few = prefixes.min(1000);
    let mut scenes = [Scene::new(few)?, Scene::new(prefixes)?];
    let mut random = Random::new(7);
    for _ in 0..rounds {
        for scene in &mut scenes {
            scene.round(&mut random)?;
        }
    }
    for scene in scenes {
        let mut beyond = scene.beyond;
        beyond.sort_by(f64::total_cmp);
        let at = |share: f64| beyond[((beyond.len() - 1) as f64 * share) as usize];
        println!(
            "{} prefixes, {rounds} losses: {:.2} ms after the detection time (median), least {:.2}, 90 % within {:.2}, most {:.2}",
            scene.prefixes,
            at(0.5),
            at(0.0),
            at(0.9),
            at(1.0)
        );
        scene.router.stop()?;
    }
    Ok(())
}

/// A router, the host that sends, and two neighbours.
struct Scene {
    prefixes: u32,
    router: Router,
    a: Host,
    _hosts: [Host; 2],
    peer: Peer,
    lost_path: Receiver,
    /// Milliseconds after the detection time, by round.
    beyond: Vec<f64>,
}

impl Scene {
    fn new(prefixes: u32) -> Outcome<Self> {
        let (a, middle, b, c) = (Host::new("a")?, Host::new("router")?, Host::new("b")?, Host::new("c")?);
        for (n, host) in [&a, &b, &c].iter().enumerate() {
            host.veth("eth0", &middle, &format!("r{n}"), &LinkOptions::default())?;
            middle.disable_ipv6(&format!("r{n}"))?;
            host.ip(&format!("addr add 10.0.{n}.2/24 dev eth0\nroute add default via 10.0.{n}.1"))?;
        }
        for host in [&b, &c] {
            host.ip("link set lo up\nroute add local 16.0.0.0/4 dev lo")?;
        }
        let router = Router::start(&middle, "cpu { workers 1 }")?;
        let mut commands = String::new();
        for n in 0..3 {
            let _ = write!(
                commands,
                "create host-interface name r{n}\nset interface state host-r{n} up\nset interface ip address host-r{n} 10.0.{n}.1/24\n"
            );
        }
        router.script(&commands)?;
        std::fs::write(router.file("routes"), table(prefixes))?;
        let said = router.vppctl("exec routes")?;
        if !said.trim().is_empty() {
            return Err(said.into());
        }
        let add = format!(
            "bfd udp session add interface host-r1 local-addr 10.0.1.1 peer-addr 10.0.1.2 desired-min-tx {us} required-min-rx {us} \
             detect-mult {MULTIPLIER}",
            us = INTERVAL.as_micros()
        );
        router.cli(&add)?;
        let (peer, lost_path) = (Peer::start(&b)?, Receiver::start(&b)?);
        Ok(Self { prefixes, router, a, _hosts: [b, c], peer, lost_path, beyond: Vec::new() })
    }

    fn is_up(&self) -> Outcome<bool> {
        let shown: serde_json::Value = serde_json::from_str(&self.router.cli_json("show bfd sessions")?)?;
        let interval = self.router.cli("show bfd session 0")?;
        let short = interval.lines().any(|line| line.contains("Transmit interval") && line.contains(" 10000"));
        Ok(short && shown[0]["state"] == "up" && shown[0]["failed"] != true)
    }

    /// The neighbour falls silent once.
    fn round(&mut self, random: &mut Random) -> Outcome<()> {
        self.peer.speaks.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while !self.is_up()? {
            if began.elapsed() > BOUND {
                return Err("the session does not come up".into());
            }
            thread::sleep(INTERVAL);
        }
        let sender = Sender::start(&self.a, self.prefixes)?;
        thread::sleep(Duration::from_millis(200) + Duration::from_micros(random.below(20_000)));
        if self.lost_path.last_sent() == 0 {
            return Err("no packet takes the path".into());
        }
        self.peer.speaks.store(false, Ordering::Relaxed);
        thread::sleep(WATCH);
        sender.end()?;
        let detected = self.peer.last.load(Ordering::Relaxed) + (INTERVAL * u32::from(MULTIPLIER)).as_nanos() as u64;
        self.beyond.push((self.lost_path.last_sent() as f64 - detected as f64) / 1e6);
        Ok(())
    }
}

/// Commands that set so many prefixes, each by both neighbours.
fn table(prefixes: u32) -> String {
    let mut text = String::new();
    for n in 0..prefixes {
        let prefix = Ipv4Addr::from_bits(FIRST + (n << 8));
        let _ = writeln!(
            text,
            "ip route add {prefix}/24 via 10.0.1.2 host-r1\nip route add {prefix}/24 via 10.0.2.2 host-r2 preference 10"
        );
    }
    text
}

/// By one clock for all threads, ns.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in one timespec, which lives over the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The neighbour's BFD (RFC 5880, 6.8), as far as it is needed here.
struct Peer {
    speaks: Arc<AtomicBool>,
    /// When the last packet was sent.
    last: Arc<AtomicU64>,
}

const DOWN: u8 = 1;
const INIT: u8 = 2;
const UP: u8 = 3;

impl Peer {
    fn start(host: &Host) -> Outcome<Self> {
        let (listens, sends) = host.enter(|| Ok((UdpSocket::bind(("10.0.1.2", 3784))?, UdpSocket::bind(("10.0.1.2", 49_152))?)))?;
        sends.set_ttl(255)?;
        listens.set_nonblocking(true)?;
        let (speaks, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_asked, sent_at) = (Arc::clone(&speaks), Arc::clone(&last));
        thread::spawn(move || {
            let (mut state, mut theirs, mut bytes) = (DOWN, [0_u8; 4], [0_u8; 64]);
            loop {
                thread::sleep(Duration::from_millis(8));
                let mut is_final = false;
                while let Ok(24..) = listens.recv(&mut bytes) {
                    theirs.copy_from_slice(&bytes[4..8]);
                    is_final |= bytes[1] & 0x20 != 0;
                    state = match (bytes[1] >> 6, state) {
                        (DOWN, DOWN) => INIT,
                        (INIT | UP, INIT | UP) | (INIT, DOWN) => UP,
                        (DOWN, UP) => DOWN,
                        (_, state) => state,
                    };
                }
                if !is_asked.load(Ordering::Relaxed) {
                    state = DOWN;
                    continue;
                }
                let interval = (INTERVAL.as_micros() as u32).to_be_bytes();
                let mut packet = vec![1 << 5, state << 6 | u8::from(is_final) << 4, MULTIPLIER, 24, 0, 0, 0, 9];
                for part in [theirs, interval, interval, [0; 4]] {
                    packet.extend(part);
                }
                sent_at.store(now(), Ordering::Relaxed);
                let _ = sends.send_to(&packet, ("10.0.1.1", 3784));
            }
        });
        Ok(Self { speaks, last })
    }
}

/// Sees what still arrives at the neighbour.
struct Receiver(Arc<AtomicU64>);

impl Receiver {
    fn start(host: &Host) -> Outcome<Self> {
        let socket = host.enter(|| UdpSocket::bind(("0.0.0.0", PORT)))?;
        let last = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&last);
        thread::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok(8) = socket.recv(&mut bytes) {
                seen.fetch_max(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        });
        Ok(Self(last))
    }

    /// When the last packet that has arrived was sent.
    fn last_sent(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends a packet every 100 µs.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Sender {
    fn start(host: &Host, prefixes: u32) -> Outcome<Self> {
        let socket = host.enter(|| UdpSocket::bind(("0.0.0.0", 7999)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut n = 0_u32;
            while !ends.load(Ordering::Relaxed) {
                let prefix = u64::from(n % 64) * u64::from(prefixes) / 64;
                let to = Ipv4Addr::from_bits(FIRST + ((prefix as u32) << 8) + 1);
                let _ = socket.send_to(&now().to_le_bytes(), (to, PORT));
                n = n.wrapping_add(1);
                thread::sleep(Duration::from_micros(40));
            }
        });
        Ok(Self { stop, thread })
    }

    fn end(self) -> Outcome<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the sender panicked".into())
    }
}
