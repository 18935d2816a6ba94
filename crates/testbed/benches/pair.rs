//! What goes through a host interface of the Linux control plane, and what many of them cost.
//!
//! `cargo bench -p quiver-testbed --bench pair [-- SECONDS [PAIRS]]`
//!
//! A host, a veth pair, the router with one worker on processor 1 (AF_PACKET, then a TAP device), and iperf3 in the router's Linux
//! namespace: TCP to Linux and from it, for so many seconds (5) each. iperf3's client and server need processors, too. With `veth
//! offloads off` the host's kernel cuts segments as a wire would bring them. Then the round-trip time of pings through one pair beside so many others (2,000), which are made and removed.
//! `QUIVER_BIN` names the router; needs root and iperf3.

use std::error::Error;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, LinkOptions, Offloads, Router};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// After which a command hangs.
const BOUND: Duration = Duration::from_secs(120);

fn main() -> Outcome<()> {
    // `cargo bench` adds a word of its own.
    let mut numbers = std::env::args().skip(1).filter(|word| !word.starts_with('-')).map(|word| word.parse::<u32>());
    let seconds = numbers.next().transpose()?.unwrap_or(5);
    let pairs = numbers.next().transpose()?.unwrap_or(2000);
    for (offloads, name) in [(Offloads::On, "on"), (Offloads::Off, "off")] {
        let (a, linux, router, _keeper) = scene(offloads)?;
        for address in ["10.0.1.1", "2001:db8:1::1"] {
            for (direction, words) in [("to Linux", ""), ("from Linux", " -R")] {
                let rate = iperf3(&a, &linux, &format!("-c {address} -t {seconds}{words}"))?;
                println!("veth offloads {name}, TCP to {address} {direction}: {rate:.2} Gbit/s");
            }
        }
        drop(router);
    }
    let (a, linux, router, keeper) = scene(Offloads::On)?;
    println!("ping through one pair: {}", ping(&a)?);
    let mut commands = format!("lcp default netns pid:{}\n", keeper.pid());
    let mut removal = String::new();
    for n in 1..=pairs {
        let _ = writeln!(
            commands,
            "create loopback interface instance {n}\nset interface state loop{n} up\nlcp create loop{n} host-if lo{n}"
        );
        let _ = writeln!(removal, "delete loopback interface intfc loop{n}");
    }
    for (name, text) in [("more.cli", &commands), ("fewer.cli", &removal)] {
        std::fs::create_dir_all(router.file(""))?;
        std::fs::write(router.file(name), text)?;
    }
    let began = Instant::now();
    router.cli(&format!("exec {}", router.file("more.cli").display()))?;
    println!("{pairs} pairs are made after {:.1} s", began.elapsed().as_secs_f64());
    println!("ping beside {pairs} other pairs: {}", ping(&a)?);
    let rate = iperf3(&a, &linux, &format!("-c 10.0.1.1 -t {seconds}"))?;
    println!("TCP to Linux beside them: {rate:.2} Gbit/s");
    let began = Instant::now();
    router.cli(&format!("exec {}", router.file("fewer.cli").display()))?;
    println!("{pairs} pairs are removed after {:.1} s", began.elapsed().as_secs_f64());
    router.stop()?;
    Ok(())
}

fn scene(offloads: Offloads) -> Outcome<(Host, Host, Router, quiver_testbed::Guard)> {
    let (a, middle, linux) = (Host::new("a")?, Host::new("router")?, Host::new("linux")?);
    a.veth("eth0", &middle, "r0", &LinkOptions { offloads, ..LinkOptions::default() })?;
    middle.disable_ipv6("r0")?;
    a.address("eth0", "10.0.1.2/24")?;
    a.address("eth0", "2001:db8:1::2/64")?;
    let keeper = linux.background("sleep 86400")?;
    let router = Router::start(&middle, "cpu { main-core 0 corelist-workers 1 }")?;
    router.script(&format!(
        "create host-interface name r0\nset interface state host-r0 up\nlcp lcp-sync on\n\
         lcp create host-r0 host-if e0 netns pid:{}\nset interface ip address host-r0 10.0.1.1/24\n\
         set interface ip address host-r0 2001:db8:1::1/64",
        keeper.pid()
    ))?;
    for address in ["10.0.1.1", "2001:db8:1::1"] {
        let end = Instant::now() + BOUND;
        while !a.pings(address, 1)? {
            if Instant::now() > end {
                return Err(format!("no answer from {address}").into());
            }
        }
    }
    Ok((a, linux, router, keeper))
}

/// Gbit/s at the receiver.
fn iperf3(client: &Host, server: &Host, arguments: &str) -> Outcome<f64> {
    let shown = client.iperf3(server, &format!("{arguments} -J"), BOUND)?.stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let rate = shown["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.ok_or_else(|| format!("iperf3: {}", shown["error"]))? / 1e9)
}

/// Least, mean and longest round-trip time.
fn ping(a: &Host) -> Outcome<String> {
    let shown = a.run("ping -n -q -c 200 -i 0.01 10.0.1.1", BOUND)?.stdout;
    let line = shown.lines().find(|line| line.starts_with("rtt") || line.contains("min/avg/max"));
    Ok(line.ok_or("ping says no times")?.to_owned())
}
