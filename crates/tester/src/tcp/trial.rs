//! A measurement of connections over the tester's ports: the left one is the clients', the right one the servers'.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use super::account::{Counts, summary};
use super::engine::{Course, Engine, lock};
use super::profile::Profile;
use super::report::{Connections, OfKind, Rates, Report, SCHEMA, Sample};
use super::{End, Shared};
use crate::bench::{Bench, BenchError, TURN};
use crate::disturbance::Machine;
use crate::port::Engine as PortEngine;
use crate::report::{self, Cpu, DepartureError, Head};
use crate::sink;
use crate::trial::Progress;
use crate::trial::outcome::{Before, busy};

/// How long after all is set up the first connection opens, ns.
const LEAD: u64 = 50_000_000;
/// Time between two samples of the course, ns.
const SAMPLE: u64 = 100_000_000;
/// Part of the time with work from which on a thread keeps it waiting for longer than it takes.
const SATURATED: f64 = 0.9;
/// How long what is reset in the end has to leave.
const FAREWELL: Duration = Duration::from_millis(50);
/// How late 99 % of the connections may be opened in a valid trial, unless somebody says otherwise.
pub const DEPARTURE_LIMIT: Duration = Duration::from_millis(10);
/// How long to wait for links and neighbours, unless somebody says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of an Ethernet frame around its IP packet, without FCS, with two tags.
const AROUND: usize = 14 + 8;

/// What a trial is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The connections.
    pub profile: Arc<Profile>,
    /// How many are opened a second.
    pub rate: f64,
    /// For how long.
    pub duration: Duration,
    /// How long to wait at most for those that are open then.
    pub settle: Duration,
    /// How long an end waits for an answer.
    pub timeout: Duration,
    /// Connections that may be open at once.
    pub most_open: usize,
    /// The 99th percentile of how late connections are opened that is still taken for good pacing.
    pub departure_limit: Duration,
    /// How long to wait for links and neighbours.
    pub patience: Duration,
    /// Seed of what is drawn.
    pub seed: u64,
}

impl Plan {
    /// Bytes of the largest frame, without FCS.
    pub fn max_frame(&self) -> usize {
        usize::from(self.profile.mtu) + AROUND
    }
}

/// Why there is no trial: one line with what to do.
#[derive(Debug, thiserror::Error)]
pub enum TcpError {
    /// Ports or threads.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// What was asked for cannot be.
    #[error("{0}")]
    Setting(String),
}

/// What is wrong with a thread that had hardly a moment without work: what waits for it, waits for the tester.
fn saturated(cpu: &Cpu) -> Option<String> {
    (cpu.busy >= SATURATED).then(|| {
        let (thread, percent) = (&cpu.thread, 100.0 * cpu.busy);
        format!("thread {thread} was busy {percent:.0} % of the time: the tester may be the limit, and times its own")
    })
}

/// What a trial had come to at a moment.
#[derive(Clone, Copy, Default)]
struct Seen {
    counts: Counts,
    open: u64,
}

fn seen(engine: &Shared) -> Seen {
    let engine = lock(engine);
    let mut counts = Counts::default();
    engine.account().kinds().iter().for_each(|kind| counts.add(&kind.counts));
    Seen { counts, open: engine.open_now().0 as u64 }
}

/// Runs a trial. `watch` gets its progress ten times a second (connections opened, and ended), and ends it by returning `false`.
///
/// # Errors
/// It could not begin. A trial that has begun always ends with a report, in bounded time.
pub fn run(bench: &mut Bench, plan: &Plan, watch: &mut dyn FnMut(&Progress) -> bool) -> Result<Report, TcpError> {
    check(bench, plan)?;
    let mut go_on = || watch(&Progress::default());
    bench.wait_for_links(plan.patience, &mut go_on)?;
    let hops = bench.next_hops(plan.patience, &mut go_on)?;
    for (at, hop) in hops.iter().enumerate() {
        let port = &bench.ports()[at];
        if hop.is_none() && port.ethernet() {
            return Err(TcpError::Setting(format!(
                "port {}: frames have no destination: give it `gateway=ADDRESS' or `dst-mac=ADDRESS'",
                port.spec
            )));
        }
    }
    let start = bench.time().now() + LEAD;
    let duration = plan.duration.as_nanos() as u64;
    let course = Course {
        rate: plan.rate,
        start,
        duration,
        most_open: plan.most_open,
        timeout: plan.timeout.as_nanos() as u64,
        seed: plan.seed,
    };
    let engine = Arc::new(Mutex::new(Engine::new(plan.profile.clone(), course).map_err(TcpError::Setting)?));
    let started = SystemTime::now();
    bench.poll(true);
    let (before, machine) = (Before::now(bench), Machine::now());
    for (at, end) in [End::Client, End::Server].into_iter().enumerate() {
        sink::lock(&bench.inboxes()[at]).tcp = Some((engine.clone(), end));
        bench.carry(at, Some((engine.clone(), end)), hops[at], plan.profile.is_ipv4());
    }
    let (series, aborted, lost_link, turns) = follow(bench, plan, &engine, start, watch);
    let disturbance = machine.since().besides(turns);
    lock(&engine).abort(bench.time().now());
    let farewell = Instant::now();
    while farewell.elapsed() < FAREWELL {
        bench.turn();
    }
    for at in 0..2 {
        bench.carry(at, None, None, true);
        sink::lock(&bench.inboxes()[at]).tcp = None;
    }
    bench.poll(false);
    let after = Before::now(bench);
    let seconds = aborted.map_or(plan.duration.as_secs_f64(), |t: u64| t.saturating_sub(start) as f64 / 1e9).max(1e-9);
    let mut reasons: Vec<String> = lost_link.iter().map(|p| format!("port {p}: its link went down during the trial")).collect();
    if aborted.is_some() {
        reasons.push(format!("ended after {seconds:.1} of {} s", plan.duration.as_secs_f64()));
    }
    let engine = lock(&engine);
    let (counts, connect_ns, exchange_ns) = engine.account().totals();
    let (intended, not_opened) = engine.intended();
    if not_opened > 0 {
        reasons.push(format!(
            "{not_opened} of {intended} connections were not opened: {} may be open at once ({} were), from {} four-tuples a kind",
            plan.most_open,
            engine.open_now().1,
            plan.profile.clients.count() * plan.profile.client_ports.count() * plan.profile.servers.count()
        ));
    }
    let late = engine.late();
    let open_error_ns = match late.len() {
        0 => DepartureError::default(),
        _ => DepartureError { mean: late.mean(), p99: late.value_at_quantile(0.99) as f64, max: late.max() as f64 },
    };
    if open_error_ns.p99 > plan.departure_limit.as_nanos() as f64 {
        let ms = open_error_ns.p99 / 1e6;
        reasons.push(format!("pacing failed: 1 % of the connections were opened {ms:.3} ms late or more"));
    }
    for (at, port) in bench.ports().iter().enumerate() {
        let (own, _) = before.own_losses(&after, at);
        if own > 0 {
            reasons.push(format!("port {}: the tester's own receive path lost {own} frames", port.spec));
        }
    }
    let cpu = busy(bench, &before, &after);
    reasons.extend(cpu.iter().filter_map(saturated));
    let per_s = |n: u64| n as f64 / seconds;
    let [client, server] = engine.segments();
    let of_kind = |(template, kind): (&super::profile::Template, &super::account::Kind)| OfKind {
        name: template.name.clone(),
        connections: Connections { counts: kind.counts, connect_ns: summary(&kind.connect), exchange_ns: summary(&kind.exchange) },
    };
    Ok(Report {
        head: Head::new(
            bench,
            report::Course {
                schema: SCHEMA,
                started,
                profile: &plan.profile.name,
                duration_s: seconds,
                reasons,
                aborted: aborted.is_some(),
            },
        ),
        intended,
        not_opened,
        most_open: engine.open_now().1 as u64,
        open_error_ns,
        rates: Rates {
            opened_cps: per_s(counts.opened),
            established_cps: per_s(counts.established),
            exchanges_per_s: per_s(counts.exchanges),
            request_bps: 8.0 * per_s(counts.request_bytes),
            response_bps: 8.0 * per_s(counts.response_bytes),
        },
        hint: hint(bench, &counts, server.received),
        totals: Connections { counts, connect_ns, exchange_ns },
        client,
        server,
        foreign: engine.foreign(),
        connections: plan.profile.connections.iter().zip(engine.account().kinds()).map(of_kind).collect(),
        series,
        cpu,
        machine: disturbance,
    })
}

/// Looks after a trial until it is over: the course, when it was ended before its time, ports that lost their link, and how often this
/// thread had its turn.
fn follow(
    bench: &mut Bench,
    plan: &Plan,
    engine: &Shared,
    start: u64,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> (Vec<Sample>, Option<u64>, Vec<String>, u64) {
    let end = start + plan.duration.as_nanos() as u64;
    let settled = end + plan.settle.as_nanos() as u64;
    let (mut series, mut last) = (Vec::new(), Seen::default());
    let (mut aborted, mut lost_link, mut turns, mut next) = (None, Vec::new(), 0, start + SAMPLE);
    loop {
        // This thread may share its core with the one that works: each turn takes it away.
        let rest = next.saturating_sub(bench.time().now());
        bench.turn_of(TURN.max(Duration::from_nanos(rest)));
        turns += 1;
        let now = bench.time().now();
        let is_over = lock(engine).is_over() && now >= end;
        if now >= next || is_over {
            let is = seen(engine);
            let t_s = now.saturating_sub(start) as f64 / 1e9;
            series.push(Sample {
                t_s,
                opened: is.counts.opened - last.counts.opened,
                completed: is.counts.completed - last.counts.completed,
                failed: is.counts.failed() - last.counts.failed(),
                open: is.open,
                request_bytes: is.counts.request_bytes - last.counts.request_bytes,
                response_bytes: is.counts.response_bytes - last.counts.response_bytes,
            });
            last = is;
            next += SAMPLE * ((now.saturating_sub(next)) / SAMPLE + 1);
            let ended = is.counts.completed + is.counts.failed();
            let progress = Progress { t_s, of_s: plan.duration.as_secs_f64(), sent: is.counts.opened, received: ended };
            if !watch(&progress) && now < end {
                aborted = Some(now);
            }
            for port in bench.ports() {
                let name = port.spec.to_string();
                if !port.is_up() && !lost_link.contains(&name) {
                    lost_link.push(name);
                }
            }
            if !lost_link.is_empty() && now < end {
                aborted.get_or_insert(now);
            }
        }
        if is_over || now >= settled || aborted.is_some() {
            return (series, aborted, lost_link, turns);
        }
    }
}

fn check(bench: &mut Bench, plan: &Plan) -> Result<(), TcpError> {
    let wrong = |text: String| Err(TcpError::Setting(text));
    if !(plan.rate > 0.0 && plan.rate <= 1e7) {
        return wrong(format!("a rate of {} connections a second is not above 0 and up to 10000000", plan.rate));
    }
    let ports = bench.ports();
    if ports.len() != 2 {
        return wrong(format!("{} ports are open: the clients' and the servers' are needed", ports.len()));
    }
    for port in &*ports {
        if matches!(port.spec.engine, PortEngine::Xdp(_)) {
            return wrong(format!("port {}: segments are made and read by sockets, not in the kernel: use af-xdp:", port.spec));
        }
        let most = port.max_frame().saturating_sub(if port.ethernet() { 14 + 4 * port.spec.vlan.all().count() } else { 0 });
        if most < plan.profile.mtu.into() {
            let mtu = plan.profile.mtu;
            return wrong(format!("port {} takes IP packets of {most} bytes, and the profile's mtu is {mtu}", port.spec));
        }
    }
    Ok(())
}

/// What to look at where no connection stood.
fn hint(bench: &mut Bench, counts: &Counts, arrived: u64) -> Option<String> {
    if counts.opened == 0 || counts.established > 0 {
        return None;
    }
    let port = &bench.ports()[usize::from(arrived > 0)].spec;
    Some(match (arrived, port.dst_mac) {
        (0, Some(mac)) => format!(
            "nothing came to the servers: is {mac} the Ethernet address of the device's port? (dst-mac; gateway=… asks for it)"
        ),
        (0, None) => "nothing came to the servers: does the device forward to their port?".to_owned(),
        _ => "segments came to the servers, and their answers not back: does the device forward to the clients' port?".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_a_pause_may_be_the_limit() {
        let of = |busy| saturated(&Cpu { thread: "tx0+rx0".to_owned(), core: None, busy });
        assert_eq!(of(0.89), None);
        assert_eq!(of(0.93).unwrap(), "thread tx0+rx0 was busy 93 % of the time: the tester may be the limit, and times its own");
    }
}
