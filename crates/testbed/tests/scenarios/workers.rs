//! Workers, queues and modes of a running router: what changes while packets flow, what a router costs that has nothing to do,
//! and what is left of one that was killed.

use crate::common;

use std::collections::HashMap;
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::left::Left;
use common::{BOUND, assert_buffers_are_back, counter, errors, eventually, kills};
use quiver_testbed::{Host, LinkOptions, Offloads, RawPort, Router, Scenario, is_short_pass, pin_thread};
use serde_json::Value;

const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Two hosts in one network, the router's ports between them. Nothing on the links but what a test sends.
pub struct Wire {
    pub a: Host,
    pub middle: Host,
    pub b: Host,
}

impl Wire {
    pub fn new() -> Self {
        let wire = Self { a: Host::new("a").unwrap(), middle: Host::new("router").unwrap(), b: Host::new("b").unwrap() };
        link(&wire.a, "eth0", &wire.middle, "r0");
        link(&wire.b, "eth0", &wire.middle, "r1");
        wire
    }

    /// A router with both ports up and cross-connected.
    fn router(&self, workers: u32) -> Router {
        let cpu = if workers == 0 { String::new() } else { format!("cpu {{ workers {workers} }}") };
        let router = Router::start(&self.middle, &cpu).expect("router");
        let commands = "create host-interface name r0 rx-size 16384\ncreate host-interface name r1\n\
            set interface state host-r0 up\nset interface state host-r1 up\n\
            set interface l2 xconnect host-r0 host-r1\nset interface l2 xconnect host-r1 host-r0";
        router.script(commands).expect("configuration");
        router
    }
}

fn link(host: &Host, name: &str, middle: &Host, port: &str) {
    let options = LinkOptions { offloads: Offloads::Off, ..Default::default() };
    host.veth(name, middle, port, &options).expect("link");
    host.disable_ipv6(name).expect("no chatter");
    middle.disable_ipv6(port).expect("no chatter");
}

fn numbered(number: u64) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    frame.extend(ETHER_TYPE);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn number_of(frame: &[u8]) -> Option<u64> {
    (frame.get(12..14)? == ETHER_TYPE).then(|| u64::from_be_bytes(frame[14..22].try_into().unwrap()))
}

/// UDP over IPv4, by flow.
pub fn datagram(flow: u16, number: u64) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend([0, 80, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The processor of the router's main thread, which has little to do: a sender that shared a worker's would take half of what
/// that worker can forward.
pub fn main_core(router: &Router) -> Option<usize> {
    let threads: Value = serde_json::from_str(&router.cli_json("show threads").expect("threads")).expect("JSON");
    threads[0]["lcore"].as_u64().map(|core| core as usize)
}

/// After so long a silence what has not come is lost.
pub const LOST: Duration = Duration::from_secs(30);

/// Tells threads to stop, also when a test fails: its scope waits for them.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends frames at a rate until told to stop; how many were sent.
fn send_until(port: &RawPort, core: Option<usize>, rate: f64, stop: &AtomicBool, frame: impl Fn(u64) -> Vec<u8>) -> u64 {
    send_within(port, core, rate, stop, frame, |_| u64::MAX)
}

/// Frames that have come to a host.
pub fn arrived(host: &Host) -> u64 {
    let table = host.enter(|| fs::read_to_string("/proc/thread-self/net/dev")).expect("counters");
    let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("eth0");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// As [`send_until`], but at most up to what `limit` gives for the number sent so far.
pub fn send_within(
    port: &RawPort,
    core: Option<usize>,
    rate: f64,
    stop: &AtomicBool,
    frame: impl Fn(u64) -> Vec<u8>,
    limit: impl Fn(u64) -> u64,
) -> u64 {
    core.map(pin_thread).transpose().expect("a core");
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = limit(sent).min((start.elapsed().as_secs_f64() * rate) as u64);
        while sent < due && !stop.load(Ordering::Relaxed) {
            port.send(&frame(sent)).expect("send");
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    sent
}

#[test]
fn flows_of_a_single_queue_are_spread_over_workers_and_stay_in_order() {
    let Some(_scenario) = Scenario::begin(&["ethtool"]) else { return };
    let wire = Wire::new();
    let router = wire.router(4);
    router.cli("set interface rss host-r0 workers 0-3 symmetric").expect("rss");
    assert_eq!(router.cli("show interface rss").unwrap(), "host-r0 workers 0,1,2,3 symmetrical l4\n");
    let (port, mut far) = (wire.a.raw("eth0").unwrap(), wire.b.raw("eth0").unwrap());
    const FRAMES: u64 = 5000;
    let before = arrived(&wire.b);
    for number in 0..FRAMES {
        port.send(&datagram((number % 50) as u16, number)).unwrap();
        if number % 100 == 99 {
            eventually("frames arrive", BOUND, || arrived(&wire.b) - before + 400 > number);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let mut last: HashMap<Vec<u8>, u64> = HashMap::new();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    eventually("all arrive", BOUND, || {
        frames.extend(far.drain(Duration::from_millis(100)).unwrap());
        frames.len() as u64 >= FRAMES
    });
    for frame in &frames {
        let number = u64::from_be_bytes(frame[42..50].try_into().unwrap());
        let before = last.insert(frame[26..38].to_vec(), number);
        assert!(before.is_none_or(|b| b < number), "{number} after {before:?}");
    }
    assert_eq!((frames.len() as u64, last.len()), (FRAMES, 50), "errors: {}", router.cli("show errors").unwrap());
    assert!(errors(&router, "worker-handoff", "packets handed off") > FRAMES / 2);
    router.cli("set interface rss host-r0 disable").expect("rss off");
    assert_buffers_are_back(&router);
}

pub fn one_two_and_four_workers_lose_nothing_at_half_load() {
    let Some(_scenario) = Scenario::alone(&["ethtool"]) else { return };
    let wire = Wire::new();
    let port = wire.a.raw("eth0").unwrap();
    let seconds = if is_short_pass() { 1.0 } else { 3.0 };
    for workers in [1, 2, 4] {
        // How many were sent to a new router, and how many left: until that is so many, or stands still.
        let run = |rate: f64, window: Option<u64>| {
            let router = wire.router(workers);
            router.cli(&format!("set interface rss host-r0 workers 0-{}", workers - 1)).expect("rss");
            let core = main_core(&router);
            let before = arrived(&wire.b);
            // A processor that is away for a while, as those of shared machines are, then costs time and not frames.
            let limit = |_| window.map_or(u64::MAX, |window| arrived(&wire.b) - before + window);
            let stop = AtomicBool::new(false);
            let sent = std::thread::scope(|scope| {
                let (port, stop) = (&port, &stop);
                let sender = scope.spawn(move || send_within(port, core, rate, stop, |n| datagram((n % 64) as u16, n), limit));
                std::thread::sleep(Duration::from_secs_f64(seconds));
                stop.store(true, Ordering::Relaxed);
                sender.join().unwrap()
            });
            let mut last = u64::MAX;
            eventually("all has left", BOUND, || {
                let now = counter(&router, "host-r1", "tx packets");
                let stands = std::mem::replace(&mut last, now) == now;
                if window.is_some() { now >= sent } else { stands }
            });
            router.cli("set interface rss host-r0 disable").unwrap();
            assert_buffers_are_back(&router);
            (sent, last)
        };
        let (_, most) = run(1e9, None);
        let capacity = most as f64 / seconds;
        let (sent, left) = run(capacity / 2.0, Some(4096));
        println!("{workers} workers: {capacity:.0} frames a second at most, {sent} sent at half of that, {left} forwarded");
        assert_eq!(left, sent, "{workers} workers");
    }
}

/// Ten interfaces, a router with so many workers.
fn ten_interfaces(wire: &Wire, other: &Host, workers: u32) -> Router {
    for n in 2..10 {
        link(other, &format!("eth{n}"), &wire.middle, &format!("r{n}"));
    }
    let router = wire.router(workers);
    for n in 2..10 {
        router.cli(&format!("create host-interface name r{n}")).expect("interface");
        router.cli(&format!("set interface state host-r{n} up")).expect("up");
    }
    router
}

/// Local timer interrupts of all CPUs so far.
fn timer_interrupts() -> u64 {
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let line = text.lines().find(|line| line.trim_start().starts_with("LOC:")).unwrap_or_default();
    line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// One-way times of single frames, each after the router has had nothing to do for a while; sorted.
fn wake_up_times(port: &RawPort, far: &mut RawPort, count: u64) -> Vec<Duration> {
    far.drain(Duration::from_millis(20)).unwrap();
    let mut times = Vec::new();
    for number in 0..count {
        std::thread::sleep(Duration::from_millis(10));
        let start = Instant::now();
        port.send(&numbered(number)).unwrap();
        // Asked without a pause, so that only the router has to wake up.
        loop {
            match far.recv(Duration::ZERO).unwrap() {
                Some(frame) if number_of(&frame) == Some(number) => break,
                _ => assert!(start.elapsed() < BOUND, "frame {number} is lost"),
            }
        }
        times.push(start.elapsed());
    }
    times.sort();
    times
}

/// What it takes on this machine to wake a thread that sleeps in a system call: the share of a wake-up that no program can save.
/// Next to nothing on bare metal, a good part of 100 µs where a sleeping virtual CPU must be brought back by its host.
fn machine_wake_up() -> Duration {
    use std::io::{Read, Write};
    let (mut near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    let woke = AtomicU64::new(0);
    let start = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while far.read_exact(&mut [0]).is_ok() {
                woke.store(start.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        let one = |_| {
            std::thread::sleep(Duration::from_millis(10));
            woke.store(0, Ordering::Relaxed);
            let sent = start.elapsed();
            near.write_all(&[1]).unwrap();
            while woke.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            Duration::from_nanos(woke.load(Ordering::Acquire)).saturating_sub(sent)
        };
        let times = (0..100).map(one).collect();
        near.shutdown(std::net::Shutdown::Both).unwrap();
        times
    });
    times.sort();
    times[times.len() / 2]
}

pub fn an_idle_router_sleeps_and_the_first_frame_wakes_it() {
    let Some(_scenario) = Scenario::alone(&["ethtool"]) else { return };
    let (seconds, count) = (2, 100);
    let machine = machine_wake_up();
    println!("a sleeping thread of this machine is awake after {machine:?}");
    for workers in [0, 1] {
        let (wire, other) = (Wire::new(), Host::new("other").unwrap());
        let quiet = timer_interrupts();
        std::thread::sleep(Duration::from_secs(seconds));
        let without = (timer_interrupts() - quiet) / seconds;
        let router = ten_interfaces(&wire, &other, workers);
        std::thread::sleep(Duration::from_millis(500));
        let (before, ticks) = (router.usage().unwrap(), timer_interrupts());
        std::thread::sleep(Duration::from_secs(seconds));
        let spent = (router.usage().unwrap().cpu_time - before.cpu_time).as_secs_f64() / seconds as f64;
        let with = (timer_interrupts() - ticks) / seconds;
        println!(
            "{workers} workers, ten interfaces, idle: {:.2} % of a core; timer interrupts a second on all CPUs: {with}, {without} without",
            spent * 100.0
        );
        // Figures are told and not judged, since others may have the machine meanwhile; but it sleeps: a poller takes a core.
        assert!(spent < 0.5, "{:.2} % of a core", spent * 100.0);

        let (port, mut far) = (wire.a.raw("eth0").unwrap(), wire.b.raw("eth0").unwrap());
        let mut medians = HashMap::new();
        for mode in ["polling", "interrupt", "adaptive"] {
            router.cli(&format!("set interface rx-mode host-r0 {mode}")).expect("mode");
            let times = wake_up_times(&port, &mut far, count);
            let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
            println!("{workers} workers, {mode}: first frame after idle, median {:?}, p99 {:?}", at(0.5), at(0.99));
            medians.insert(mode, at(0.5));
        }
        let beyond = medians["adaptive"].saturating_sub(medians["polling"]);
        println!("{workers} workers: adaptive {beyond:?} beyond a pure poller, of which the machine takes {machine:?}");
        assert_buffers_are_back(&router);
    }
}

/// Whatever pages the buffers have.
pub mod pages {
    use super::*;

    #[test]
    fn no_frame_is_lost_or_overtaken_while_workers_come_and_go_and_queues_and_modes_change() {
        let Some(_scenario) = Scenario::begin(&["ethtool"]) else { return };
        let wire = Wire::new();
        let router = wire.router(1);
        let (port, mut far) = (wire.a.raw("eth0").unwrap(), wire.b.raw("eth0").unwrap());
        let (stop, rounds) = (AtomicBool::new(false), if is_short_pass() { 1 } else { 5 });
        let core = main_core(&router);
        // No more are under way than rings hold: a processor that is away for a while costs time and not frames.
        let (before, all) = (arrived(&wire.b), OnceLock::new());
        let (sent, numbers) = std::thread::scope(|scope| {
            let stopping = Stop(&stop);
            let sender = scope.spawn(|| {
                let sent = send_within(&port, core, 4000.0, &stop, numbered, |_| arrived(&wire.b) - before + 512);
                *all.get_or_init(|| sent)
            });
            // Taken as they come: however long it takes, no socket's memory is the limit.
            let receiver = scope.spawn(|| {
                let (mut numbers, mut last) = (Vec::new(), Instant::now());
                loop {
                    let frames = far.drain(Duration::from_millis(100)).unwrap();
                    numbers.extend(frames.iter().filter_map(|f| number_of(f)));
                    let sent = all.get().copied().unwrap_or(u64::MAX);
                    if !frames.is_empty() || sent == u64::MAX {
                        last = Instant::now();
                    } else if numbers.len() as u64 >= sent || last.elapsed() > LOST {
                        break numbers;
                    }
                }
            });
            // Not before anything flows, however late its sender gets a processor.
            let flows = |more: u64| {
                let from = arrived(&wire.b);
                eventually("frames flow", BOUND, || arrived(&wire.b) - from > more);
            };
            flows(0);
            for _ in 0..rounds {
                for workers in [4, 2, 1, 0, 3] {
                    router.cli(&format!("set workers {workers}")).expect("workers");
                    let threads = router.cli("show threads").expect("threads");
                    assert_eq!(threads.lines().count(), 2 + workers, "{threads}");
                    for worker in 0..workers {
                        router.cli(&format!("set interface rx-placement host-r0 worker {worker}")).expect("placement");
                        let text = router.cli("show interface rx-placement host-r0").expect("placement");
                        assert!(text.contains(&format!("Thread {} (quiver_wk_{worker}):", worker + 1)), "{text}");
                    }
                    router.cli("set interface rx-placement host-r1 queue 0 main").expect("main forwards too");
                    for mode in ["polling", "interrupt", "adaptive"] {
                        router.cli(&format!("set interface rx-mode host-r0 {mode}")).expect("mode");
                        let text = router.cli("show interface rx-placement host-r0").expect("placement");
                        assert!(text.contains(&format!("host-r0 queue 0 ({mode})")), "{text}");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
            flows(1000);
            drop(stopping);
            (sender.join().unwrap(), receiver.join().unwrap())
        });
        assert!(sent > 1000);
        assert_eq!(numbers.len() as u64, sent, "errors: {}", router.cli("show errors").unwrap());
        assert!(numbers.is_sorted(), "frames of one queue stay in order");
        let refused = router.cli("set workers 64").unwrap_err();
        assert!(refused.contains("64"), "{refused}");
        assert_buffers_are_back(&router);
        router.stop().expect("a clean end");
    }

    pub fn a_router_that_is_killed_under_load_comes_back_and_leaves_nothing_behind() {
        let Some(_scenario) = Scenario::alone(&["ethtool"]) else { return };
        let rounds = kills(3, 10);
        let wire = Wire::new();
        let (port, mut far) = (wire.a.raw("eth0").unwrap(), wire.b.raw("eth0").unwrap());
        let before = Left::now(&wire.middle);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stopping = Stop(&stop);
            let sender = scope.spawn(|| send_until(&port, None, 20_000.0, &stop, numbered));
            for round in 0..rounds {
                let mut router = wire.router(2);
                far.drain(Duration::ZERO).unwrap();
                let came = far.recv_matching(BOUND, |frame| number_of(frame).is_some()).unwrap();
                assert!(came.is_some(), "round {round}: nothing is forwarded");
                router.kill9().expect("kill");
            }
            drop(stopping);
            sender.join().unwrap();
        });
        before.assert_same(&wire.middle);
        // A last one ends as it should.
        let router = wire.router(1);
        let port = wire.a.raw("eth0").unwrap();
        far.drain(Duration::from_millis(50)).unwrap();
        port.send(&numbered(7)).unwrap();
        assert!(far.recv_matching(BOUND, |frame| number_of(frame) == Some(7)).unwrap().is_some());
        assert_buffers_are_back(&router);
        router.stop().expect("a clean end");
    }
}
