//! A full table by netlink: seconds until the router has it, and memory.
//!
//! `cargo bench -p quiver-linux-nl --bench full_table [-- ROUTES | FILE]`
//!
//! A made-up router with one interface whose counterpart is in a test host; there `ip -batch` sets so many routes (default 1,000,000:
//! /24 from 16.0.0.0 on), or those of a file with a prefix on each line, by 64 next hops. Then the pair is made anew beside the full
//! table, the tables are compared, and all routes go at once. The main thread does nothing else. Needs root.

use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quiver_command::config::{Schema, Source};
use quiver_linux_nl::{config, control};
use quiver_net::Router;
use quiver_net::ip::FamilyId;
use quiver_net::linux::HostInterface;
use quiver_net::testing::Harness;
use quiver_testbed::Host;

const BOUND: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let prefixes: Vec<String> = match word.as_deref().map(|word| (word, word.parse::<u32>())) {
        Some((file, Err(_))) => std::fs::read_to_string(file)?.lines().map(str::to_owned).collect(),
        Some((_, Ok(n))) => made(n),
        None => made(1_000_000),
    };
    let routes = prefixes.len();
    let mut batch = String::new();
    for (n, prefix) in prefixes.iter().enumerate() {
        let hop = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        writeln!(batch, "route add {prefix} via 10.0.0.{} dev e0", hop + 2)?;
    }
    let file = std::env::temp_dir().join(format!("quiver-full-table-{}", std::process::id()));
    std::fs::write(&file, batch)?;

    let host = Host::new("linux")?;
    host.ip("link add e0 type veth peer name p0\nlink set p0 up\nlink set e0 up\naddr add 10.0.0.1/24 dev e0")?;
    let holder = host.background("sleep 100000")?;
    let namespace = Some(format!("pid:{}", holder.pid()));
    let index = host.run("cat /sys/class/net/e0/ifindex", BOUND)?.stdout.trim().parse()?;
    let mut harness = Harness::new();
    let interface = harness.interface(0);
    let router = &mut harness.router;
    control::start(router, &config::schema(Schema::new()).read(Source::file("none", ""))?)?;
    let pair = HostInterface { interface, namespace, host_name: "e0".into(), host_ifindex: index };
    router.add_host_interface(pair.clone())?;
    until(router, |router| state(router).is_some_and(|f| f.comparisons > 0 && f.addresses > 0));
    let memory = resident();

    let began = Began::now();
    let loading = std::thread::scope(|scope| -> Result<Duration, Box<dyn Error>> {
        let load = scope.spawn(|| {
            let output = host.run(&format!("ip -batch {}", file.display()), BOUND).map_err(|e| e.to_string())?;
            if output.success() { Ok(began.0.elapsed()) } else { Err(output.to_string()) }
        });
        until(router, |router| count(router) >= routes);
        Ok(load.join().map_err(|_| "the loader panicked")??)
    })?;
    let all = began.to_string();
    let figures = state(router).unwrap_or_default();
    println!("{routes} routes: `ip -batch` took {:.2} s; the router had all after {all}", loading.as_secs_f64());
    println!("  {} messages, {} overruns, {} comparisons", figures.messages, figures.overruns, figures.comparisons);
    println!(
        "  memory: {} MB more, of these the forwarding table {} MB",
        (resident() - memory) >> 20,
        router.fib().memory_bytes() >> 20
    );

    router.remove_host_interface(interface);
    let began = Began::now();
    until(router, |router| count(router) == 0 && state(router).is_none());
    println!("pair removed: routes gone after {began}");
    let began = Began::now();
    router.add_host_interface(pair)?;
    until(router, |router| count(router) >= routes);
    println!("pair made beside the full table: the router had all after {began}");
    until(router, |router| state(router).is_some_and(|f| !f.is_comparing));
    let list = state(router).unwrap_or_default().dump_time.as_secs_f64();
    println!("  reading the kernel's lists took {list:.2} s of it");

    let began = Began::now();
    host.ip("link set e0 down")?;
    until(router, |router| count(router) == 0);
    println!("link down: all routes gone after {began}");
    println!("  memory: {} MB more than at the beginning", resident().saturating_sub(memory) >> 20);
    let _ = std::fs::remove_file(&file);
    Ok(())
}

fn made(n: u32) -> Vec<String> {
    (0..n).map(|n| format!("{}/24", std::net::Ipv4Addr::from(0x1000_0000 + (n << 8)))).collect()
}

/// The main thread's loop.
fn until(router: &mut Router, holds: impl Fn(&Router) -> bool) {
    let end = Instant::now() + BOUND;
    while !holds(router) {
        for _ in 0..64 {
            router.run_processes(0);
        }
        router.reclaim();
        assert!(Instant::now() < end, "it does not happen: {:?}", state(router));
    }
}

/// Routes beside those of the table itself, the interface and its link.
fn count(router: &Router) -> usize {
    let prefix = |text: &str| router.route_index(0, text.parse().ok()?);
    let own = [
        "0.0.0.0/0",
        "0.0.0.0/32",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "255.255.255.255/32",
        "10.0.0.0/24",
        "10.0.0.0/32",
        "10.0.0.1/32",
        "10.0.0.255/32",
    ];
    let own = own.iter().filter(|text| prefix(text).is_some()).count();
    router.tables(FamilyId::V4).first().map_or(0, |table| table.routes - own)
}

fn state(router: &Router) -> Option<quiver_linux_nl::figures::Figures> {
    control::figures(router).pop().map(|(_, figures)| figures)
}

/// Seconds of processor time of this process, reader included.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    // Ticks of 10 ms (USER_HZ).
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// A moment, in time of the clock and of the processor.
struct Began(Instant, f64);

impl Began {
    fn now() -> Self {
        Self(Instant::now(), processor())
    }
}

impl std::fmt::Display for Began {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} s ({:.2} s of processor time)", self.0.elapsed().as_secs_f64(), processor() - self.1)
    }
}

/// Bytes of memory of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
