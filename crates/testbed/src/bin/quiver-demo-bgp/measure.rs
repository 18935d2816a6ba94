//! One run: the table is learned, tried, and withdrawn by a link that is cut.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quiver_testbed::Guard;

use crate::network::{Forwarder, LOOK, Network, until};
use crate::probe::{self, Catchers};
use crate::table::{Side, Table};

/// Destinations tried against the reference.
const PROBES: usize = 10_000;
/// Of these a second.
const PROBE_RATE: u32 = 5_000;
/// Destinations that are sent to while the link is cut.
const STREAMS: usize = 64;
/// Datagrams a second to all of these.
const STREAM_RATE: u32 = 1_000;
/// How long they are sent before the cut, and after all go the other way.
const AROUND: Duration = Duration::from_secs(1);

/// What a run gave.
pub struct Outcome {
    pub forwarder: Forwarder,
    /// Seconds from the start of the router's BIRD until it had all routes, and until packets were forwarded by all.
    pub learned: f64,
    pub forwarded: f64,
    /// Probes that arrived where they should, elsewhere, nowhere.
    pub right: usize,
    pub wrong: usize,
    pub missing: usize,
    /// Datagrams sent around the cut, and those that did not arrive.
    pub sent: usize,
    pub lost: usize,
    /// Seconds from the cut until a destination was reached the other way: the middle one, the last one.
    pub converged: Option<(f64, f64)>,
    /// Seconds from the cut until the upstream's routes were gone.
    pub withdrawn: f64,
    /// Bytes with the full table.
    pub router_memory: Option<u64>,
    pub bird_memory: u64,
    /// Seconds since the start, prefixes.
    pub timeline: Vec<(f64, u64)>,
    /// When the link was cut.
    pub cut_at: f64,
}

impl Outcome {
    /// Whether all that can be judged without a clock is as it should be.
    pub fn is_well(&self) -> bool {
        self.right == PROBES && self.converged.is_some()
    }
}

/// Runs it all with one forwarder.
pub fn run(forwarder: Forwarder, table: &Table, folder: &Path) -> io::Result<Outcome> {
    println!("\n{}: hosts and daemons start; BIRD reads {} routes", name(forwarder), table.upstream.len());
    let network = Network::new(forwarder, table, folder)?;
    let expected = (table.upstream.len() + table.peer.len()) as u64;
    let empty = network.routes()?;
    let begin = Instant::now();
    let bird = network.start_bird()?;
    let (mut learned, mut timeline) = (None, Vec::new());
    until("the full table", || {
        if learned.is_none() && network.routes_learned()? > expected {
            learned = Some(begin.elapsed().as_secs_f64());
        }
        let routes = network.routes()?;
        timeline.push((begin.elapsed().as_secs_f64(), routes));
        Ok(learned.is_some() && routes > expected)
    })?;
    let forwarded = begin.elapsed().as_secs_f64();
    println!("  learned after {:.1} s, forwarded by after {forwarded:.1} s", learned.unwrap_or_default());
    let router_memory = network.router.as_ref().map(|router| router.usage()).transpose()?.map(|usage| usage.memory());
    let bird_memory = resident(&bird)?;

    let [right, wrong, missing] = probes(&network, table)?;
    println!("  {PROBES} probes: {right} arrived where the reference says, {wrong} elsewhere, {missing} nowhere");

    let streams = table.of_upstream(STREAMS);
    let goal = empty + table.peer.len() as u64 + 1;
    let cut = cut(&network, &streams, goal, begin, &mut timeline)?;
    let mut gaps: Vec<f64> = cut.gaps.iter().flatten().copied().collect();
    gaps.sort_by(f64::total_cmp);
    let all = gaps.len() == streams.len();
    let converged = gaps.last().map(|last| (gaps[gaps.len() / 2], *last)).filter(|_| all);
    println!("  link cut: {} of {} datagrams lost, routes withdrawn after {:.1} s", cut.lost, cut.sent, cut.withdrawn);
    Ok(Outcome {
        forwarder,
        learned: learned.unwrap_or_default(),
        forwarded,
        right,
        wrong,
        missing,
        sent: cut.sent,
        lost: cut.lost,
        converged,
        withdrawn: cut.withdrawn,
        router_memory,
        bird_memory,
        timeline,
        cut_at: cut.at,
    })
}

/// A forwarder's name.
pub fn name(forwarder: Forwarder) -> &'static str {
    match forwarder {
        Forwarder::Quiver => "Quiver",
        Forwarder::Kernel => "Linux kernel",
    }
}

fn resident(process: &Guard) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024)
}

/// Arrivals where the reference says, elsewhere, and nowhere.
fn probes(network: &Network<'_>, table: &Table) -> io::Result<[usize; 3]> {
    let destinations = table.destinations(PROBES, 42);
    let catchers = Catchers::start(&network.upstream, &network.peer)?;
    probe::send(&network.client, &destinations, PROBE_RATE, |sent| (sent as usize) < PROBES)?;
    thread::sleep(AROUND);
    let arrived = catchers.end()?;
    let mut counts = [0; 3];
    for (number, destination) in destinations.iter().enumerate() {
        let at = match arrived.get(&(number as u32)) {
            Some(arrival) if arrival.side == table.side(*destination) => 0,
            Some(_) => 1,
            None => 2,
        };
        counts[at] += 1;
    }
    Ok(counts)
}

struct Cut {
    sent: usize,
    lost: usize,
    /// For each destination, seconds until it was reached the other way.
    gaps: Vec<Option<f64>>,
    withdrawn: f64,
    at: f64,
}

/// Cuts the upstream's link while datagrams are sent, until its routes have gone.
fn cut(network: &Network<'_>, streams: &[u32], goal: u64, begin: Instant, timeline: &mut Vec<(f64, u64)>) -> io::Result<Cut> {
    let catchers = Catchers::start(&network.upstream, &network.peer)?;
    let stop = AtomicBool::new(false);
    let (moment, sent) = thread::scope(|scope| -> io::Result<(Instant, Vec<Instant>)> {
        let sender = scope.spawn(|| probe::send(&network.client, streams, STREAM_RATE, |_| !stop.load(Ordering::Relaxed)));
        thread::sleep(AROUND);
        let moment = Instant::now();
        let cut = network.upstream.link_down("eth0").and_then(|()| {
            until("the upstream's routes go", || {
                let routes = network.routes()?;
                timeline.push((begin.elapsed().as_secs_f64(), routes));
                Ok(routes <= goal)
            })
        });
        thread::sleep(AROUND);
        stop.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))?;
        cut.map(|()| (moment, sent))
    })?;
    thread::sleep(LOOK);
    let arrived = catchers.end()?;
    let withdrawn = timeline.last().map_or(0.0, |(at, _)| at - moment.duration_since(begin).as_secs_f64());
    let mut gaps: Vec<Option<f64>> = vec![None; streams.len()];
    for (number, arrival) in arrived.iter().filter(|(_, arrival)| arrival.side == Side::Peer) {
        let gap = arrival.at.saturating_duration_since(moment).as_secs_f64();
        let known = &mut gaps[*number as usize % streams.len()];
        *known = Some(known.map_or(gap, |known| known.min(gap)));
    }
    let at = moment.duration_since(begin).as_secs_f64();
    Ok(Cut { sent: sent.len(), lost: sent.len() - arrived.len(), gaps, withdrawn, at })
}
