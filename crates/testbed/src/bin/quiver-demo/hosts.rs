//! The full show: two kernel hosts and the router between them.

use std::io;
use std::path::Path;
use std::time::Duration;

use quiver_testbed::{Host, Router, TwoHosts, TwoHostsOptions};

use crate::report::{Report, number_after};

/// Whether namespaces can be made here, or why not.
pub fn possible() -> Result<(), String> {
    Host::new("probe").map(drop).map_err(|error| format!("{error} (run as root for the full show)"))
}

/// Runs traffic through the router and collects what it says.
pub fn run(report: &mut Report, folder: &Path, load: Load) -> io::Result<()> {
    println!("Two hosts in network namespaces of their own, quiver between them:\n");
    println!("    host a ── 10.0.1.0/24, 2001:db8:1::/64 ── quiver ── 10.0.2.0/24, 2001:db8:2::/64 ── host b\n");
    let scene = TwoHosts::new(TwoHostsOptions::default())?;
    let router = scene.start_router(1)?;
    for command in TwoHosts::COMMANDS.lines().map(str::trim).filter(|l| !l.is_empty()) {
        println!("    quiver# {command}");
    }
    println!();
    pings(report, &scene)?;
    routes(report, &scene)?;
    trace(report, &scene, &router)?;
    let cleared = router.cli("clear runtime");
    let server = scene.b.background("iperf3 --server --port 5201")?;
    if !scene.b.wait_for_listener(5201, Duration::from_secs(10))? {
        return Err(io::Error::other("iperf3's server does not listen"));
    }
    tcp(report, &scene, load)?;
    udp(report, &scene, load)?;
    drop(server);
    cleared.map_err(io::Error::other)?;
    for (title, command) in
        [("show interface", "show interface"), ("show errors", "show errors"), ("show runtime (while iperf3 ran)", "show runtime")]
    {
        report.section(title, router.cli(command).map_err(io::Error::other)?);
    }
    report.drawing(folder, &router.cli("show vlib graph svg").map_err(io::Error::other)?);
    router.stop()
}

fn both<T>(mut f: impl FnMut(bool) -> io::Result<T>) -> io::Result<(T, T)> {
    Ok((f(false)?, f(true)?))
}

fn pings(report: &mut Report, scene: &TwoHosts) -> io::Result<()> {
    // The first packets resolve the neighbours on both sides.
    let (four, six) = both(|v6| {
        let to = if v6 { TwoHosts::B6 } else { TwoHosts::B4 };
        scene.a.run(&format!("ping -c 1 -W 3 {to}"), Duration::from_secs(8))?;
        let out = scene.a.run(&format!("ping -i 0.01 -c 100 -q {to}"), Duration::from_secs(15))?.stdout;
        let loss = number_after(&out, "received,").unwrap_or(100.0);
        let rtt = out.rsplit_once("= ").and_then(|(_, rest)| rest.split('/').nth(1)?.parse::<f64>().ok());
        let text = rtt.map_or_else(|| "no answer".into(), |ms| format!("{loss} % lost, RTT {:.0} µs mean", ms * 1000.0));
        Ok((text, loss == 0.0))
    })?;
    report.row("ping, 100 packets", four.0, six.0, four.1 && six.1);
    Ok(())
}

fn routes(report: &mut Report, scene: &TwoHosts) -> io::Result<()> {
    let (four, six) = both(|v6| {
        let (to, via) = if v6 { (TwoHosts::B6, "2001:db8:1::1") } else { (TwoHosts::B4, "10.0.1.1") };
        let out = scene.a.run(&format!("traceroute -n -q 1 -w 2 -m 4 {to}"), Duration::from_secs(20))?.stdout;
        let hops: Vec<&str> = out.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).collect();
        Ok((hops.join(" → "), hops == [via, to]))
    })?;
    report.row("traceroute", four.0, six.0, four.1 && six.1);
    Ok(())
}

fn trace(report: &mut Report, scene: &TwoHosts, router: &Router) -> io::Result<()> {
    router.cli("trace add af-packet-input 2").map_err(io::Error::other)?;
    scene.a.run(&format!("ping -c 1 -W 3 {}", TwoHosts::B4), Duration::from_secs(8))?;
    let text = router.cli("show trace max 1").map_err(io::Error::other)?;
    router.cli("clear trace").map_err(io::Error::other)?;
    report.section("One packet's way (show trace)", text);
    Ok(())
}

/// What `iperf3` sends, in each family.
#[derive(Clone, Copy)]
pub struct Load {
    /// Seconds of TCP.
    tcp: u32,
    /// Seconds of UDP.
    udp: u32,
    /// Datagrams a second.
    rate: u32,
    /// Their bytes.
    length: u32,
}

impl Load {
    /// Enough to see that it works.
    pub const SHORT: Self = Self { tcp: 8, udp: 5, rate: 20_000, length: 1200 };
    /// Enough to judge it (`--long`).
    pub const LONG: Self = Self { tcp: 30, udp: 60, rate: 100_000, length: 64 };
}

fn tcp(report: &mut Report, scene: &TwoHosts, load: Load) -> io::Result<()> {
    let (four, six) = both(|v6| {
        let to = if v6 { TwoHosts::B6 } else { TwoHosts::B4 };
        let line = format!("iperf3 --client {to} --time {} --json", load.tcp);
        let out = scene.a.run(&line, Duration::from_secs(u64::from(load.tcp) + 30))?.stdout;
        let sent = out.find("\"sum_sent\"").map_or("", |at| &out[at..]);
        let rate = number_after(sent, "bits_per_second").unwrap_or(0.0);
        let segments = number_after(sent, "\"bytes\"").unwrap_or(0.0) / 1448.0;
        let again = number_after(sent, "\"retransmits\"").unwrap_or(0.0);
        let share = if segments > 0.0 { again / segments * 100.0 } else { 100.0 };
        Ok((format!("{:.2} Gbit/s, {share:.3} % retransmitted", rate / 1e9), rate > 0.0 && share < 1.0))
    })?;
    report.row(&format!("iperf3 TCP, {} s", load.tcp), four.0, six.0, four.1 && six.1);
    Ok(())
}

fn udp(report: &mut Report, scene: &TwoHosts, load: Load) -> io::Result<()> {
    let Load { udp: seconds, rate, length, .. } = load;
    let (four, six) = both(|v6| {
        let to = if v6 { TwoHosts::B6 } else { TwoHosts::B4 };
        let bits = u64::from(rate) * u64::from(length) * 8;
        let line = format!("iperf3 --client {to} --udp --length {length} --bitrate {bits} --window 1M --time {seconds} --json");
        let before = refused_by_socket(scene, v6)?;
        let out = scene.a.run(&line, Duration::from_secs(u64::from(seconds) + 30))?.stdout;
        let sum = out.rfind("\"sum\"").map_or("", |at| &out[at..]);
        let (lost, all) = (number_after(sum, "\"lost_packets\"").unwrap_or(1.0), number_after(sum, "\"packets\"").unwrap_or(0.0));
        let jitter = number_after(sum, "\"jitter_ms\"").unwrap_or(0.0);
        // What the receiving program was too late to fetch did arrive: the router has not lost it.
        let refused = refused_by_socket(scene, v6)? - before;
        let lost = (lost - refused).max(0.0);
        let late = if refused > 0.0 { format!(" ({refused} more in host b's socket)") } else { String::new() };
        let text = format!("{lost} of {all} lost{late}, jitter {:.0} µs", jitter * 1000.0);
        Ok((text, all > 0.0 && lost / all < 0.01))
    })?;
    report.row(&format!("iperf3 UDP, {} kpps, {seconds} s", rate / 1000), four.0, six.0, four.1 && six.1);
    Ok(())
}

/// Datagrams that came to host b while its socket's buffer was full.
fn refused_by_socket(scene: &TwoHosts, v6: bool) -> io::Result<f64> {
    let file = if v6 { "/proc/net/snmp6" } else { "/proc/net/snmp" };
    let text = scene.b.run(&format!("cat {file}"), Duration::from_secs(5))?.stdout;
    Ok(if v6 {
        number_after(&text, "Udp6RcvbufErrors").unwrap_or(0.0)
    } else {
        column(&text, "Udp:", "RcvbufErrors").unwrap_or(0.0)
    })
}

/// A figure of a table whose first line of two names its columns.
fn column(text: &str, row: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines().filter(|line| line.starts_with(row)).map(str::split_whitespace);
    let at = lines.next()?.position(|word| word == name)?;
    lines.next()?.nth(at)?.parse().ok()
}
