//! What the AF_PACKET driver costs on veth: one-way added latency, frames a second, TCP through it. Needs root.
//!
//! `cargo bench -p quiver-drivers --bench veth`; figures are of a machine on which senders, kernel and driver share cores.

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use common::{Rig, frame, quiet_scene};
use quiver_drivers::af_packet::AfPacketConfig;
use quiver_graph::ThreadPlan;
use quiver_testbed::{Host, LinkOptions, Offloads, RawPort, Scenario};

fn configs(rx_frame: Option<usize>) -> [AfPacketConfig; 2] {
    ["r0", "r1"].map(|name| AfPacketConfig { rx_frame, ..AfPacketConfig::new(name) })
}

/// Shortest, median and 99th percentile of the time from sending a frame at one end to having it at the other.
fn latency(from: &RawPort, to: &mut RawPort, gap: Duration, count: u32) -> [Duration; 3] {
    let mut times: Vec<_> = (0..count)
        .filter_map(|i| {
            std::thread::sleep(gap);
            let start = Instant::now();
            from.send(&frame(i, 100)).ok()?;
            // Spinning, so that the receiver's own wake-up is not measured.
            while to.recv(Duration::ZERO).ok()?.is_none() {
                if start.elapsed() > Duration::from_millis(100) {
                    return None;
                }
            }
            Some(start.elapsed())
        })
        .collect();
    times.sort();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    [at(0.0), at(0.5), at(0.99)]
}

/// A socket that sends on a device and receives nothing.
fn sender(device: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: socket takes three integers; the name is a NUL-terminated string; sockaddr_ll is plain C data for which all
    // zeroes is a value, and bind reads it with its true length. The descriptor is new and nobody else's.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(device.as_ptr()) as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        match libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) {
            0 => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Sends copies of a frame as fast as one thread can for `time`.
fn flood(host: &Host, len: usize, time: Duration) -> u64 {
    let port = host.enter(|| sender(c"eth0")).expect("a packet socket");
    let bytes = frame(1, len);
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
    // SAFETY: mmsghdr is plain C data for which all zeroes is a value.
    let mut messages: Vec<libc::mmsghdr> = (0..64).map(|_| unsafe { std::mem::zeroed() }).collect();
    for message in &mut messages {
        message.msg_hdr.msg_iov = &raw mut vector;
        message.msg_hdr.msg_iovlen = 1;
    }
    let (end, mut sent) = (Instant::now() + time, 0);
    while Instant::now() < end {
        // SAFETY: 64 messages that name live bytes, which the kernel only reads.
        let n = unsafe { libc::sendmmsg(port.as_raw_fd(), messages.as_mut_ptr(), 64, 0) };
        sent += u64::try_from(n).unwrap_or(0);
    }
    sent
}

/// Clocks a packet of input and tx node: the best of short runs, since other programs share the cores.
fn throughput(rig: &mut Rig, a: &Host, len: usize) -> String {
    const RUNS: u32 = 10;
    let time = Duration::from_millis(200);
    let (before, missed) = (rig.packets(1).1, rig.counter("rx-miss", 0));
    let mut sent = 0;
    let mut best = [f64::MAX; 2];
    for _ in 0..RUNS {
        let start = rig.node_clocks();
        sent += flood(a, len, time);
        std::thread::sleep(Duration::from_millis(20));
        for (best, (now, was)) in best.iter_mut().zip(rig.node_clocks().iter().zip(start)) {
            *best = best.min((now.1 - was.1) as f64 / (now.0 - was.0).max(1) as f64);
        }
    }
    let seconds = f64::from(RUNS) * time.as_secs_f64();
    let rate = |n: u64| n as f64 / seconds / 1e6;
    format!(
        "{len:>5} B: sent {:.3} Mpps, forwarded {:.3} Mpps, missed {}; clocks a packet: rx {:.0}, tx {:.0}",
        rate(sent),
        rate(rig.packets(1).1 - before),
        rig.counter("rx-miss", 0) - missed,
        best[0],
        best[1],
    )
}

fn main() {
    let Some(_scenario) = Scenario::alone(&["iperf3"]) else { return };
    // Sender and driver on cores of their own: on one, the sender would wait for the worker to stop spinning.
    let plan = [ThreadPlan { cpu: Some(1), ..ThreadPlan::default() }];
    let _ = quiver_graph::topology::pin_current_thread(0);
    let (a, middle, b) = quiet_scene(&LinkOptions::default());
    {
        let direct = Host::new("c").expect("a host");
        a.veth("eth1", &direct, "eth1", &LinkOptions::default()).expect("a link");
        let (from, mut to) = (a.raw("eth1").expect("raw"), direct.raw("eth1").expect("raw"));
        for gap in [Duration::ZERO, Duration::from_millis(2)] {
            println!("wire alone, gap {gap:?}: shortest, median, p99 {:?}", latency(&from, &mut to, gap, 3000));
        }
    }
    let mut rig = Rig::placed(&middle, &plan, configs(None));
    {
        let (from, mut to) = (a.raw("eth0").expect("raw"), b.raw("eth0").expect("raw"));
        for gap in [Duration::ZERO, Duration::from_millis(2)] {
            println!("through the driver, gap {gap:?}: shortest, median, p99 {:?}", latency(&from, &mut to, gap, 3000));
        }
    }
    for len in [60, 590, 1514] {
        println!("{}", throughput(&mut rig, &a, len));
    }
    println!("idle: {:?} of processor time in 1 s", rig.idle_cpu(Duration::from_secs(1)).0);
    drop(rig);
    for (offloads, rx_frame) in [(Offloads::On, None), (Offloads::On, Some(65_536)), (Offloads::Off, None)] {
        let (a, middle, b) = (Host::new("a").expect("host"), Host::new("m").expect("host"), Host::new("b").expect("host"));
        let options = LinkOptions { offloads, ..LinkOptions::default() };
        for (host, port, number) in [(&a, "r0", 1), (&b, "r1", 2)] {
            host.veth("eth0", &middle, port, &options).expect("a link");
            host.address("eth0", &format!("10.0.0.{number}/24")).expect("an address");
        }
        let rig = Rig::new(&middle, 1, configs(rx_frame));
        let _server = b.background("iperf3 -s -1").expect("iperf3");
        a.pings("10.0.0.2", 5).expect("ping");
        let cpu = rig.cpu();
        let out = a.run("iperf3 -c 10.0.0.2 -t 5 -f g --connect-timeout 2000", Duration::from_secs(20)).expect("iperf3");
        let cpu = rig.cpu() - cpu;
        let line = out.stdout.lines().find(|l| l.contains("sender")).unwrap_or("no answer").to_owned();
        println!("TCP, offloads {offloads:?}, rx frame {rx_frame:?}: {} (worker {cpu:?})\n  {}", line.trim(), rig.report().trim());
    }
}
