//! How long nobody forwards when a router is restarted: another process takes over, or stop and start.
//!
//! `cargo run --release -p quiver-testbed --bin restart_outage [-- WORKERS [ROUTES4 ROUTES6 SESSIONS]]`
//!
//! Two hosts on veth with the router (`QUIVER_BIN`, or the release build) between them: a table of 901,899 IPv4 and 160,147 IPv6 routes, 100,000 sessions
//! of NAT44, and 10,000 numbered packets a second through the NAT. Printed for both kinds of restart: packets lost, repeated, and the longest
//! time between two packets that arrived. Needs root for its own namespaces.

use std::collections::HashSet;
use std::error::Error;
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router, TwoHosts, TwoHostsOptions};

const PER_MS: u64 = 10;
const PORT: u16 = 8000;
/// Longest wait for anything.
const BOUND: Duration = Duration::from_secs(240);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u32>());
    let mut next = |usual| numbers.next().transpose().map(|number| number.unwrap_or(usual));
    let (workers, v4, v6, sessions) = (next(1)?, next(901_899)?, next(160_147)?, next(100_000)?);
    let scene = TwoHosts::new(TwoHostsOptions::default())?;
    let state = std::env::temp_dir().join(format!("quiver-outage-{}", std::process::id()));
    let conf = format!("unix {{ state-dir {} }}\n", state.display());
    let mut router = scene.start_router_with(workers, &conf, TwoHosts::COMMANDS)?;
    router.script(
        "nat44 plugin enable sessions 200000\nset interface nat44 in host-r0 out host-r1\nnat44 add address 10.0.2.100 - 10.0.2.107",
    )?;
    let began = Instant::now();
    std::fs::write(router.file("routes"), table(v4, v6))?;
    // By the router itself, which reads its own folder; `quiverctl` would send its own file line by line.
    let said = router.vppctl("exec routes")?;
    if !said.trim().is_empty() {
        return Err(said.into());
    }
    println!("{v4} + {v6} routes set in {:.1} s", began.elapsed().as_secs_f64());
    fill(&scene.a, sessions, &router)?;
    println!("{} sessions of NAT44", count(&router)?);

    for kind in ["warm", "cold"] {
        let (sessions, routes) = (count(&router)?, summary(&router)?);
        let traffic = Traffic::begin(&scene)?;
        std::thread::sleep(Duration::from_secs(2));
        let began = Instant::now();
        if kind == "warm" {
            router.take_over(&scene.middle, None)?;
        } else {
            router.stop()?;
            let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}\n") };
            router = Router::start(&scene.middle, &format!("{cpu}{conf}"))?;
            let before = traffic.arrived();
            while traffic.arrived() < before + 1000 {
                if began.elapsed() > BOUND {
                    return Err("no packet after the restart".into());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let took = began.elapsed();
        std::thread::sleep(Duration::from_secs(2));
        println!("{kind}: {}; the restart took {:.1} s", traffic.end()?, took.as_secs_f64());
        let same = |equal: bool| if equal { "the same" } else { "others" };
        println!("{kind}: sessions {sessions} before, {} after; routes {}", count(&router)?, same(summary(&router)? == routes));
        print!("{}", router.cli("show restart")?);
    }
    router.stop()?;
    std::fs::remove_dir_all(&state)?;
    Ok(())
}

/// Commands that set so many routes.
fn table(v4: u32, v6: u32) -> String {
    let mut text = String::new();
    for n in 0..v4 {
        let prefix = std::net::Ipv4Addr::from_bits(0x1000_0000 + (n << 8));
        let _ = writeln!(text, "ip route add {prefix}/24 via 10.0.2.{} host-r1", 2 + n % 64);
    }
    for n in 0..v6 {
        let prefix = std::net::Ipv6Addr::from_bits(0x2a00 << 112 | u128::from(n) << 80);
        let _ = writeln!(text, "ip route add {prefix}/48 via 2001:db8:2::{:x} host-r1", 2 + n % 64);
    }
    text
}

fn summary(router: &Router) -> Result<String> {
    Ok(router.cli("show ip fib summary")? + &router.cli("show ip6 fib summary")?)
}

fn count(router: &Router) -> Result<u64> {
    let text = router.cli("show nat44 summary")?;
    let line = text.lines().find(|line| line.contains("total sessions")).ok_or("no total")?;
    let number = line.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty());
    Ok(number.ok_or("no number")?.parse()?)
}

/// Has sessions begin: four remote ports for each own one.
fn fill(host: &Host, sessions: u32, router: &Router) -> Result<()> {
    let began = Instant::now();
    while count(router)? < u64::from(sessions) {
        host.enter(|| {
            for n in 0..sessions.div_ceil(4) {
                let socket = UdpSocket::bind(("0.0.0.0", 10_000 + (n % 50_000) as u16))?;
                for remote in 0..4 {
                    let port = 9000 + 4 * (n / 50_000) as u16 + remote;
                    // The host behind answers that nobody listens, which this socket is told at its next send.
                    let _ = socket.send_to(b"x", (TwoHosts::B4, port));
                }
                if n % 64 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Ok(())
        })?;
        if began.elapsed() > BOUND {
            return Err("the sessions do not begin".into());
        }
    }
    Ok(())
}

/// Numbered packets from host a to host b.
struct Traffic {
    stop: Arc<AtomicBool>,
    arrived: Arc<std::sync::atomic::AtomicU64>,
    sender: std::thread::JoinHandle<u64>,
    receiver: std::thread::JoinHandle<Vec<(u64, Instant)>>,
}

impl Traffic {
    fn begin(scene: &TwoHosts) -> Result<Self> {
        let to = scene.b.enter(|| UdpSocket::bind(("0.0.0.0", PORT)))?;
        let from = scene.a.enter(|| UdpSocket::bind(("0.0.0.0", 7999)))?;
        to.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (stop, arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::atomic::AtomicU64::new(0)));
        let (ends, counts) = (Arc::clone(&stop), Arc::clone(&arrived));
        let receiver = std::thread::spawn(move || {
            let (mut all, mut bytes) = (Vec::new(), [0; 64]);
            loop {
                match to.recv(&mut bytes) {
                    Ok(8..) => {
                        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
                        all.push((number, Instant::now()));
                        counts.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(_) => {}
                    Err(_) if ends.load(Ordering::Relaxed) => return all,
                    Err(_) => {}
                }
            }
        });
        let ends = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            let (began, mut number) = (Instant::now(), 0_u64);
            while !ends.load(Ordering::Relaxed) {
                // What is due by now, so that a sender that was late makes up for it.
                let due = began.elapsed().as_micros() as u64 * PER_MS / 1000;
                while number < due {
                    let _ = from.send_to(&number.to_le_bytes(), (TwoHosts::B4, PORT));
                    number += 1;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            number
        });
        Ok(Self { stop, arrived, sender, receiver })
    }

    fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// What became of the packets, in a line.
    fn end(self) -> Result<String> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| "the sender panicked")?;
        let all = self.receiver.join().map_err(|_| "the receiver panicked")?;
        let unique: HashSet<u64> = all.iter().map(|(number, _)| *number).collect();
        let lost = sent - unique.len() as u64;
        let repeated = all.len() - unique.len();
        let gap = all.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or_default();
        let missing = {
            // The longest run of numbers that did not arrive, as time at the sender.
            let (mut run, mut longest) = (0_u64, 0_u64);
            for number in 0..sent {
                run = if unique.contains(&number) { 0 } else { run + 1 };
                longest = longest.max(run);
            }
            longest as f64 / PER_MS as f64
        };
        Ok(format!(
            "{sent} packets at {} a second: {lost} lost ({missing:.1} ms in a row), {repeated} repeated, longest gap {:.1} ms",
            PER_MS * 1000,
            gap.as_secs_f64() * 1000.0
        ))
    }
}
