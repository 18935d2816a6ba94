//! What it costs to forward IPv4 between two veth pairs: by the kernel itself, by the router over AF_PACKET, and by the router
//! over AF_XDP, on the same links, in turns.
//!
//! ```text
//!   host a ── eth0 ═══ r0 ── kernel, or quiver ── r1 ═══ eth0 ── host b: counts what arrives, and drops it
//! ```
//!
//! `cargo run --profile quick -p quiver-testbed --bin veth_forwarding [rounds [seconds]]` (root; `quiver` built before).
//!
//! Two loads of 60-byte UDP frames: as fast as one thread sends, and 100,000 a second in bursts of 100 each millisecond. The
//! sender has core 0, the router's worker core 1; the kernel forwards where the sender is (as it does on a veth), and in
//! another line with receive packet steering to core 1. Processor time is that of the sender, the router and the kernel's
//! softirq threads, so that what else the machine does does not count, per packet that arrived; at the even load that of
//! sending alone is taken off. It is not told with steering, where the kernel works in interrupts that count for nobody.
//! Medians of all rounds, with the smallest and the largest.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router, Scenario, TwoHosts, TwoHostsOptions};

/// Address of the router's end, as the links are made.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Frames sent by one call.
const BURST: usize = 50;
/// Frames a second of the even load.
const EVEN: u64 = 100_000;
/// Time of a tick in /proc/stat: USER_HZ is 100.
const TICK: Duration = Duration::from_millis(10);

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nobody,
    Kernel,
    KernelSteered,
    AfPacket,
    AfXdpNative,
    AfXdpGeneric,
}

impl Way {
    const ALL: [Self; 6] = [Self::Nobody, Self::Kernel, Self::KernelSteered, Self::AfPacket, Self::AfXdpNative, Self::AfXdpGeneric];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "sender alone",
            Self::Kernel => "kernel",
            Self::KernelSteered => "kernel, RPS to core 1",
            Self::AfPacket => "quiver, AF_PACKET",
            Self::AfXdpNative => "quiver, AF_XDP native",
            Self::AfXdpGeneric => "quiver, AF_XDP generic",
        }
    }

    /// The command that opens device `r<n>` as interface `x<n>`.
    fn create(self, n: u32) -> String {
        let mac = format!("hw-addr 02:00:00:00:0{}:01", n + 1);
        match self {
            Self::AfPacket => format!("create host-interface name r{n} {mac}\nset interface name host-r{n} x{n}"),
            Self::AfXdpGeneric => format!("create interface af_xdp host-if r{n} name x{n} generic {mac}"),
            _ => format!("create interface af_xdp host-if r{n} name x{n} native {mac}"),
        }
    }
}

/// What one run gave.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    sent: u64,
    arrived: u64,
    /// Processor time of sender, router and the kernel's threads.
    busy: Duration,
    seconds: f64,
}

fn prepare(scene: &TwoHosts, way: Way) -> io::Result<Option<Router>> {
    let middle = &scene.middle;
    match way {
        Way::Nobody => Ok(None),
        Way::Kernel | Way::KernelSteered => {
            middle.address("r0", "10.0.1.1/24")?;
            middle.address("r1", "10.0.2.1/24")?;
            middle.sysctl("net.ipv4.ip_forward", "1")?;
            middle.route("10.0.3.0/24", "10.0.2.2")?;
            if way == Way::KernelSteered {
                middle.sh("echo 2 > /sys/class/net/r0/queues/rx-0/rps_cpus", Duration::from_secs(5))?.ok_or_error("RPS")?;
            }
            Ok(None)
        }
        _ => {
            let router = Router::start(middle, "cpu { main-core 0 corelist-workers 1 }")?;
            for n in 0..2 {
                let net = n + 1;
                let up = format!("set interface state x{n} up\nset interface ip address x{n} 10.0.{net}.1/24");
                router.script(&format!("{}\n{up}", way.create(n))).map_err(io::Error::other)?;
            }
            router.cli("ip route add 10.0.3.0/24 via 10.0.2.2 x1").map_err(io::Error::other)?;
            Ok(Some(router))
        }
    }
}

/// UDP to addresses behind host b, of 64 flows.
fn frames() -> Vec<Vec<u8>> {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)])));
        let sum: u32 = words.sum();
        !((sum >> 16) + (sum & 0xffff)) as u16
    };
    let frame = |flow: u8| {
        let mut frame = [&ROUTER_MAC[..], &SENDER_MAC, &[8, 0]].concat();
        let mut ip = vec![0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 1, 2, 10, 0, 3, flow];
        let check = sum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&check);
        frame.extend(ip);
        // No UDP checksum: 0.
        frame.extend([0x13, flow, 0, 9, 0, 26, 0, 0]);
        frame.resize(60, 0);
        frame
    };
    (0..64).map(frame).collect()
}

/// Sends on `eth0` of a host past the queueing discipline.
struct Flood {
    socket: OwnedFd,
    frames: Vec<Vec<u8>>,
}

impl Flood {
    fn new(host: &Host) -> io::Result<Self> {
        let socket = host.enter(|| {
            // SAFETY: socket takes three integers; sockaddr_ll is plain C data for which all zeroes is a value; bind and
            // setsockopt read values of the sizes given. The descriptor is new and nobody else's.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                let fd = OwnedFd::from_raw_fd(fd);
                let on = 1_i32;
                let bypass =
                    libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, (&raw const on).cast(), 4);
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_ifindex = libc::if_nametoindex(c"eth0".as_ptr()) as i32;
                let bound = libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32);
                if bypass < 0 || bound < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
            }
        })?;
        Ok(Self { socket, frames: frames() })
    }

    /// Sends for a while; `rate`: frames a second, or as fast as it goes. Gives how many went out, and
    /// the processor time of it.
    fn run(&self, time: Duration, rate: Option<u64>) -> (u64, Duration) {
        // A thread of its own: what else is started here must not inherit its core.
        let send = || {
            pin(0);
            (self.send(time, rate), thread_time())
        };
        std::thread::scope(|scope| scope.spawn(send).join().unwrap_or_default())
    }

    fn send(&self, time: Duration, rate: Option<u64>) -> u64 {
        let mut parts: Vec<libc::iovec> = (0..BURST)
            .map(|i| &self.frames[i % self.frames.len()])
            .map(|f| libc::iovec { iov_base: f.as_ptr().cast_mut().cast(), iov_len: f.len() })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: mmsghdr is plain C data for which all zeroes is a value.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let (start, mut sent) = (Instant::now(), 0);
        while start.elapsed() < time {
            if let Some(rate) = rate {
                let due = (start.elapsed().as_secs_f64() * rate as f64) as u64;
                if sent >= due {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            }
            // SAFETY: the messages name live bytes, which the kernel only reads.
            let n = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), BURST as u32, 0) };
            sent += u64::try_from(n).unwrap_or(0);
        }
        sent
    }
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

/// Processor time of the calling thread so far.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives over the call.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(way: Way, rate: Option<u64>, time: Duration) -> io::Result<Figures> {
    let scene = TwoHosts::new(TwoHostsOptions::default())?;
    let router = prepare(&scene, way)?;
    let flood = Flood::new(&scene.a)?;
    // Neighbours become known.
    let deadline = Instant::now() + Duration::from_secs(10);
    let before = arrived(&scene.b)?;
    while way != Way::Nobody && arrived(&scene.b)? < before + 1000 {
        flood.run(Duration::from_millis(20), Some(10_000));
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("nothing arrives through {}", way.name())));
        }
    }
    flood.run(Duration::from_millis(200), rate);
    std::thread::sleep(Duration::from_millis(100));
    let others = || -> io::Result<Duration> {
        let router = router.as_ref().map(|r| r.usage()).transpose()?.map_or(Duration::ZERO, |usage| usage.cpu_time);
        Ok(router + softirq_threads()?)
    };
    let (others_before, arrived_before, start) = (others()?, arrived(&scene.b)?, Instant::now());
    let (sent, sending) = flood.run(time, rate);
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

fn pin(cpu: usize) {
    // SAFETY: cpu_set_t is plain C data for which all zeroes is a value; the call reads one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let rounds = arguments.next().and_then(Result::ok).unwrap_or(5);
    let time = Duration::from_secs(arguments.next().and_then(Result::ok).unwrap_or(2));
    let Some(_scenario) = Scenario::begin(&[Scenario::BPF]) else { return Ok(()) };
    let mut results: Vec<(Way, Vec<Figures>, Vec<Figures>)> = Way::ALL.map(|way| (way, Vec::new(), Vec::new())).into();
    for _ in 0..rounds {
        for (way, flooded, even) in &mut results {
            flooded.push(measure(*way, None, time)?);
            even.push(measure(*way, Some(EVEN), time)?);
        }
    }
    let even_alone: Vec<f64> = results[0].2.iter().map(|f| f.busy.as_secs_f64() / f.seconds).collect();
    let alone = even_alone.iter().sum::<f64>() / even_alone.len().max(1) as f64;
    println!("{rounds} rounds of {time:?}; median (smallest-largest)");
    println!("{:<24}{:>24}{:>24}{:>26}{:>26}", "", "Mpps sent", "Mpps arrived", "µs CPU each", "at 100 kpps: µs CPU each");
    for (way, flooded, even) in &results {
        let rates = |f: fn(&Figures) -> u64| spread(flooded.iter().map(|x| f(x) as f64 / x.seconds / 1e6).collect());
        let cost = spread(flooded.iter().map(|x| x.busy.as_secs_f64() * 1e6 / x.arrived.max(1) as f64).collect());
        let beyond = |x: &Figures| (x.busy.as_secs_f64() - alone * x.seconds) * 1e6 / x.arrived.max(1) as f64;
        let even_cost = spread(even.iter().map(beyond).collect());
        let arrived = *way != Way::Nobody;
        let shown = |text: String| if arrived { text } else { "-".into() };
        println!(
            "{:<24}{:>24}{:>24}{:>26}{:>26}",
            way.name(),
            rates(|f| f.sent),
            shown(rates(|f| f.arrived)),
            if *way == Way::KernelSteered { "-".into() } else { shown(cost) },
            if *way == Way::KernelSteered { "-".into() } else { shown(even_cost) }
        );
    }
    println!("sending alone takes {alone:.3} cores at 100 kpps");
    Ok(())
}
