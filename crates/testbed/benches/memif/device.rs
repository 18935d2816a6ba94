//! What stands between the source's two ports, and one run of it.

use std::path::Path;
use std::time::{Duration, Instant};

use quiver_testbed::{Host, Router, Vpp, Vppctl, shown};

use crate::Outcome;
use crate::common::eventually;
use crate::common::testpmd::{Testpmd, Vdev};

/// Where frames of testpmd's flow generator are addressed to.
const MAC: &str = "00:01:02:03:04:01";
/// Slots of the source's rings, as a power of two.
pub const LOG2_RING: u8 = 11;
/// What a device may take to connect, and to answer.
const BOUND: Duration = Duration::from_secs(20);
/// Before figures are taken.
const WARM: Duration = Duration::from_millis(1500);

/// Which end owns the memory.
#[derive(Clone, Copy)]
pub enum Owner {
    Source,
    Router,
    /// The router's, and packets stay where they are.
    RouterZeroCopy,
}

#[derive(Clone, Copy)]
pub enum Device {
    Quiver(Owner),
    Vpp,
    /// From port to port, without a look at the packets.
    Testpmd,
}

/// What the device does with the packets.
#[derive(Clone, Copy, PartialEq)]
pub enum Pattern {
    CrossConnect,
    /// IPv4, and all leave by one port, which has no room for half of them: the source offers twice what it takes.
    OnePort,
    /// IPv4, half of them by each port.
    Split,
}

pub struct Case {
    pub device: Device,
    pub pattern: Pattern,
}

impl Case {
    pub fn name(&self) -> String {
        let device = match self.device {
            Device::Quiver(Owner::Source) => "quiver",
            Device::Quiver(Owner::Router) => "quiver, router's memory",
            Device::Quiver(Owner::RouterZeroCopy) => "quiver, zero-copy",
            Device::Vpp => "vpp",
            Device::Testpmd => "testpmd",
        };
        let pattern = match self.pattern {
            Pattern::CrossConnect => "cross-connect",
            Pattern::OnePort => "IPv4 out of one port",
            Pattern::Split => "IPv4 out of both ports",
        };
        format!("{device}, {pattern}")
    }

    /// The configuration, which both routers understand.
    fn commands(&self, socket: &Path, role: &str) -> Vec<String> {
        let mut lines = vec![format!("create memif socket id 1 filename {}", socket.display())];
        for id in [0, 1] {
            lines.push(format!("create interface memif id {id} socket-id 1 hw-addr {MAC} {role}"));
            lines.push(format!("set interface state memif1/{id} up"));
        }
        if self.pattern == Pattern::CrossConnect {
            lines.extend([(0, 1), (1, 0)].map(|(from, to)| format!("set interface l2 xconnect memif1/{from} memif1/{to}")));
            return lines;
        }
        for (id, net) in [(0, "192.0.2"), (1, "198.51.100")] {
            lines.push(format!("set interface ip address memif1/{id} {net}.1/24"));
            lines.push(format!("set ip neighbor memif1/{id} {net}.2 02:00:00:00:00:02 static"));
        }
        // Destinations of the flow generator are the first 1,024 addresses.
        let half = if self.pattern == Pattern::Split { "192.0.2.2 memif1/0" } else { "198.51.100.2 memif1/1" };
        lines.push("ip route add 10.253.0.0/23 via 198.51.100.2 memif1/1".into());
        lines.push(format!("ip route add 10.253.2.0/23 via {half}"));
        lines
    }
}

/// What one run gave.
pub struct Figures {
    /// Packets a second that the source sent.
    pub sent: f64,
    /// That it got back.
    pub received: f64,
    /// Clocks a packet that came in.
    pub nodes: Vec<(String, f64)>,
    /// Share of the router's turns that brought no packet.
    pub idle: f64,
}

impl Figures {
    /// TSC ticks a packet in all nodes.
    pub fn clocks(&self) -> f64 {
        if self.nodes.is_empty() { f64::NAN } else { self.nodes.iter().map(|(_, cost)| cost).sum() }
    }
}

fn vdevs(socket: &Path, server: bool) -> [Vdev; 2] {
    [0, 1].map(|id| Vdev { log2_ring: LOG2_RING, ..if server { Vdev::server(socket, id) } else { Vdev::client(socket, id) } })
}

/// Memory for testpmd: huge pages where there are enough, else plain ones.
pub fn memory() -> &'static [&'static str] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|l| l.strip_prefix("HugePages_Free:")?.trim().parse::<u32>().ok()).unwrap_or(0);
    if free >= 300 { &["--in-memory", "-m", "256"] } else { &["--no-shconf", "--no-huge", "-m", "256"] }
}

fn testpmd(host: &Host, folder: &Path, socket: &Path, server: bool, mode: &str, cpu: u32) -> Testpmd {
    let lcores = format!("0@0,1@{cpu}");
    let eal: Vec<&str> = ["--lcores", &lcores].into_iter().chain(memory().iter().copied()).collect();
    Testpmd::start_on(host, folder, &vdevs(socket, server), 1, &[&format!("--forward-mode={mode}")], &eal)
}

/// Bytes of a frame, without FCS: `QUIVER_FRAME`, or 64.
pub fn frame_bytes() -> Outcome<u16> {
    Ok(std::env::var("QUIVER_FRAME").map_or(Ok(64), |bytes| bytes.parse())?)
}

/// Packets a second that the source sends and receives, all ports together, over `time`.
fn rates(source: &mut Testpmd, time: Duration) -> (f64, f64) {
    let sum = |source: &mut Testpmd| source.packets().iter().fold((0, 0), |(rx, tx), (r, t)| (rx + r, tx + t));
    let (start, (rx, tx)) = (Instant::now(), sum(source));
    std::thread::sleep(time);
    let ((rx_then, tx_then), seconds) = (sum(source), start.elapsed().as_secs_f64());
    ((tx_then - tx) as f64 / seconds, (rx_then - rx) as f64 / seconds)
}

/// Runs a case once.
pub fn run(case: &Case, vpp: Option<&Path>, time: Duration) -> Outcome<Figures> {
    let host = Host::new("bench")?;
    match case.device {
        Device::Quiver(owner) => quiver(&host, case, owner, time),
        Device::Vpp => self::vpp(&host, case, vpp.ok_or("no vpp")?, time),
        Device::Testpmd => io(&host, time),
    }
}

/// Connects the source to a router that has its configuration, has it send, and asks both what they have seen.
fn measure(
    host: &Host,
    folder: &Path,
    server: bool,
    time: Duration,
    ask: &mut dyn FnMut(&str) -> Outcome<String>,
) -> Outcome<(Figures, Runtime)> {
    let mut source = testpmd(host, folder, &folder.join("m.sock"), server, "flowgen", 1);
    let end = Instant::now() + BOUND;
    while ask("show memif")?.matches(" connected").count() != 2 {
        if Instant::now() > end {
            return Err(format!("not connected within {BOUND:?}\n{}", source.log()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    source.tell(&format!("set txpkts {}", frame_bytes()?));
    source.tell("start");
    std::thread::sleep(WARM);
    ask("clear runtime")?;
    let (sent, received) = rates(&mut source, time);
    let runtime = ask("show runtime")?;
    source.quit();
    let rows: Vec<_> = shown::nodes(&runtime).into_iter().filter(|row| row.vectors > 0).collect();
    let input = rows.iter().find(|row| row.name == "memif-input").ok_or("memif-input has not run")?;
    let (calls, packets) = (input.calls as f64, input.vectors as f64);
    let nodes = rows.into_iter().map(|row| (row.name, row.clocks * row.vectors as f64 / packets)).collect();
    Ok((Figures { sent, received, nodes, idle: f64::NAN }, Runtime { calls, text: runtime }))
}

/// What `show runtime` said.
struct Runtime {
    /// How often the input node ran: with packets, where the router does not count empty polls.
    calls: f64,
    text: String,
}

impl Runtime {
    /// The share of turns without packets: from the first line, time and turns a second.
    fn idle(&self) -> Option<f64> {
        let number =
            |key: &str| self.text.split_once(key)?.1.split([' ', ',', '\n']).find(|word| !word.is_empty())?.parse::<f64>().ok();
        Some(1.0 - (self.calls / (number("Time ")? * number("loops/sec ")?)).min(1.0))
    }
}

fn quiver(host: &Host, case: &Case, owner: Owner, time: Duration) -> Outcome<Figures> {
    let router = Router::start(host, "cpu { main-core 0 }\nbuffers { buffers-per-numa 16384 }")?;
    let role = match owner {
        Owner::Source => "master",
        Owner::Router => "slave",
        Owner::RouterZeroCopy => "slave zero-copy",
    };
    router.script(&case.commands(&router.folder().join("m.sock"), role).join("\n"))?;
    let server = !matches!(owner, Owner::Source);
    let (mut figures, runtime) = measure(host, router.folder(), server, time, &mut |line| Ok(router.cli(line)?))?;
    figures.idle = runtime.idle().ok_or("no loops in `show runtime'")?;
    router.stop()?;
    Ok(figures)
}

fn vpp(host: &Host, case: &Case, binary: &Path, time: Duration) -> Outcome<Figures> {
    let vpp = Vpp::start(binary, host, 0)?;
    let mut session = Vppctl::connect(&vpp.socket())?;
    for line in case.commands(&vpp.folder().join("m.sock"), "master") {
        let answer = session.command(&line, BOUND)?;
        if answer.contains([':', '`']) {
            return Err(format!("vpp: {line}: {answer}").into());
        }
    }
    let (figures, _) = measure(host, vpp.folder(), false, time, &mut |line| Ok(session.command(line, BOUND)?))?;
    Ok(figures)
}

fn io(host: &Host, time: Duration) -> Outcome<Figures> {
    let folder = std::env::temp_dir().join(format!("quiver-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let socket = folder.join("m.sock");
    let mut middle = testpmd(host, &folder, &socket, true, "io", 0);
    eventually("its socket", BOUND, || socket.exists());
    let mut source = testpmd(host, &folder, &socket, false, "flowgen", 1);
    std::thread::sleep(Duration::from_secs(2));
    middle.tell("start");
    source.tell(&format!("set txpkts {}", frame_bytes()?));
    source.tell("start");
    std::thread::sleep(WARM);
    let (sent, received) = rates(&mut source, time);
    // Both are killed. Told to quit, one closes the connection, and a fault in DPDK's driver may then crash the other.
    drop((middle, source));
    std::fs::remove_dir_all(&folder)?;
    Ok(Figures { sent, received, nodes: Vec::new(), idle: f64::NAN })
}
