//! What it costs to forward IPv4 between two veth pairs: by the kernel itself, by the router over AF_PACKET, and by the router
//! over AF_XDP, each with and without its fast path in the kernel, on the same links, in turns.
//!
//! ```text
//!   host a ── eth0 ═══ r0 ── kernel, or quiver ── r1 ═══ eth0 ── host b: counts what arrives, and drops it at once
//! ```
//!
//! `cargo run --profile quick -p quiver-testbed --bin veth_forwarding [nat | tcp] [rounds [seconds]]` (root; `quiver` built before).
//!
//! With `nat` each of them translates sources: 65,536 clients (10.64.0.0/16, UDP port 1025) to one destination behind a pool
//! of 256 addresses; the kernel by nftables (its connection table must hold as many: `nf_conntrack_max`). With `tcp` there is one
//! connection of iperf3 in place of the loads.
//!
//! Three loads of 60-byte UDP frames: as fast as one thread sends by a packet socket, 100,000 a second in bursts of 100 each
//! millisecond, and, where nothing needs a socket buffer before the next device, frames that the kernel makes itself (live frames),
//! several times as many. The sender has core 0, the router's worker core 1; the kernel forwards where the sender is (as it does on
//! a veth), and in another line with receive packet steering to core 1. Live frames are received by a thread of the kernel on
//! core 1, with the router or without. Processor time is that of the sender, the router and the kernel's
//! softirq threads, so that what else the machine does does not count, per packet that arrived; at the even load that of
//! sending alone is taken off. It is not told with steering, where the kernel works in interrupts that count for nobody.
//! Medians of all rounds, with the smallest and the largest.

mod flood;
mod tcp;
mod way;

use std::io;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Scenario, TwoHosts, TwoHostsOptions};

use flood::{Flood, few_flows, many_clients, run_live};
use way::{Way, prepare, receive_on_core_1};

/// Frames a second of the even load.
const EVEN: u64 = 100_000;
/// Time of a tick in /proc/stat: USER_HZ is 100.
const TICK: Duration = Duration::from_millis(10);

/// What one run gave.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    sent: u64,
    arrived: u64,
    /// Processor time of sender, router and the kernel's threads.
    busy: Duration,
    seconds: f64,
}

/// Frames that host b's end has received.
fn arrived(b: &Host) -> io::Result<u64> {
    let table = b.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
    let line = table.lines().find_map(|l| l.trim().strip_prefix("eth0:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).ok_or_else(|| io::Error::other("no eth0 in /proc/net/dev"))
}

/// Processor time that a `stat` file of /proc tells, user and system.
fn time_of(stat: &str) -> Duration {
    // The name, in brackets, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|f| f.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// Processor time that the kernel's threads for what interrupts leave have used so far.
fn softirq_threads() -> io::Result<Duration> {
    let stat = |entry: io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok();
    Ok(std::fs::read_dir("/proc")?.filter_map(stat).filter(|s| s.contains("(ksoftirqd/")).map(|s| time_of(&s)).sum())
}

/// What all rounds of one way gave, by load.
#[derive(Default)]
struct Rounds {
    flooded: Vec<Figures>,
    even: Vec<Figures>,
    live: Vec<Figures>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Flood,
    Even,
    Live,
}

fn measure(way: Way, nat: bool, load: Load, time: Duration) -> io::Result<Figures> {
    let rate = (load == Load::Even).then_some(EVEN);
    let scene = TwoHosts::new(TwoHostsOptions::default())?;
    let router = prepare(&scene, way, nat)?;
    let mut flood = Flood::new(&scene.a, if nat { many_clients() } else { few_flows() })?;
    // Neighbours become known.
    let deadline = Instant::now() + Duration::from_secs(10);
    let before = arrived(&scene.b)?;
    while way != Way::Nobody && arrived(&scene.b)? < before + 1000 {
        flood.run(Duration::from_millis(20), Some(10_000));
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("nothing arrives through {}", way.name())));
        }
    }
    if nat {
        // Every client has its session, so that what is measured is translation.
        flood.run(Duration::from_secs(2), Some(50_000));
    }
    if load == Load::Live {
        receive_on_core_1(&scene)?;
    }
    let mut send = |time| if load == Load::Live { run_live(&scene.a, time) } else { Ok(flood.run(time, rate)) };
    send(Duration::from_millis(200))?;
    std::thread::sleep(Duration::from_millis(100));
    let others = || -> io::Result<Duration> {
        let router = router.as_ref().map(|r| r.usage()).transpose()?.map_or(Duration::ZERO, |usage| usage.cpu_time);
        Ok(router + softirq_threads()?)
    };
    let (others_before, arrived_before, start) = (others()?, arrived(&scene.b)?, Instant::now());
    let (sent, sending) = send(time)?;
    let seconds = start.elapsed().as_secs_f64();
    let busy = sending + others()?.saturating_sub(others_before);
    // What is still on its way.
    std::thread::sleep(Duration::from_millis(50));
    let arrived = arrived(&scene.b)? - arrived_before;
    drop(router);
    Ok(Figures { sent, arrived, busy, seconds })
}

/// Median, smallest and largest.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let Some((low, high)) = values.first().zip(values.last()) else { return "-".into() };
    format!("{:>6.3} ({:.3}-{:.3})", values[values.len() / 2], low, high)
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    let nat = words.next_if(|word| word == "nat").is_some();
    let tcp = !nat && words.next_if(|word| word == "tcp").is_some();
    let numbers: Result<Vec<u64>, _> = words.map(|word| word.parse()).collect();
    let (rounds, seconds) = match numbers.as_deref() {
        Ok([]) => (5, 2),
        Ok(&[rounds]) if rounds > 0 => (rounds, 2),
        Ok(&[rounds, seconds]) if rounds > 0 && seconds > 0 => (rounds, seconds),
        _ => {
            eprintln!("usage: veth_forwarding [nat | tcp] [ROUNDS [SECONDS]]");
            std::process::exit(2);
        }
    };
    let time = Duration::from_secs(seconds);
    let Some(_scenario) = Scenario::alone(&[Scenario::BPF, "nft", "iperf3"]) else { return Ok(()) };
    if tcp {
        return tcp::measure(rounds, time);
    }
    let mut results = Way::ALL.map(|way| (way, Rounds::default()));
    for _ in 0..rounds {
        for (way, Rounds { flooded, even, live }) in &mut results {
            flooded.push(measure(*way, nat, Load::Flood, time)?);
            even.push(measure(*way, nat, Load::Even, time)?);
            if way.takes_live_frames() && !nat {
                live.push(measure(*way, nat, Load::Live, time)?);
            }
        }
    }
    let even_alone: Vec<f64> = results[0].1.even.iter().map(|f| f.busy.as_secs_f64() / f.seconds).collect();
    let alone = even_alone.iter().sum::<f64>() / even_alone.len().max(1) as f64;
    println!("{rounds} rounds of {time:?}; median (smallest-largest)");
    println!(
        "{:<24}{:>24}{:>24}{:>26}{:>26}{:>26}{:>28}{:>28}",
        "",
        "Mpps sent",
        "Mpps arrived",
        "µs CPU each",
        "at 100 kpps: µs CPU each",
        "lost of a million",
        "live frames: Mpps sent",
        "live frames: Mpps arrived"
    );
    for (way, Rounds { flooded, even, live }) in &results {
        let rates = |of: &[Figures], f: fn(&Figures) -> u64| spread(of.iter().map(|x| f(x) as f64 / x.seconds / 1e6).collect());
        let cost = spread(flooded.iter().map(|x| x.busy.as_secs_f64() * 1e6 / x.arrived.max(1) as f64).collect());
        let beyond = |x: &Figures| (x.busy.as_secs_f64() - alone * x.seconds) * 1e6 / x.arrived.max(1) as f64;
        let even_cost = spread(even.iter().map(beyond).collect());
        let lost = |x: &Figures| x.sent.saturating_sub(x.arrived) as f64 * 1e6 / x.sent.max(1) as f64;
        let even_lost = spread(even.iter().map(lost).collect());
        let arrived = *way != Way::Nobody;
        let shown = |text: String| if arrived { text } else { "-".into() };
        println!(
            "{:<24}{:>24}{:>24}{:>26}{:>26}{:>26}{:>28}{:>28}",
            way.name(),
            rates(flooded, |f| f.sent),
            shown(rates(flooded, |f| f.arrived)),
            if way.is_steered() { "-".into() } else { shown(cost) },
            if way.is_steered() { "-".into() } else { shown(even_cost) },
            shown(even_lost),
            rates(live, |f| f.sent),
            rates(live, |f| f.arrived)
        );
    }
    println!("sending alone takes {alone:.3} cores at 100 kpps");
    Ok(())
}
