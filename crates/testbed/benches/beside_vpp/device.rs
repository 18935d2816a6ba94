//! The router that is measured, VPP or Quiver. Both get the same commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quiver_testbed::shown::{self, NodeRow};
use quiver_testbed::{Host, Router, Vpp, Vppctl};
use quiver_wire::pcapfile::{LinkType, Writer};

use crate::Outcome;
use crate::cases::{Case, IN, OUT};

/// After which a command hangs.
const BOUND: Duration = Duration::from_secs(300);
/// Where both run, with one thread.
const PROCESSOR: u32 = 0;
/// More than any run sends. VPP sends a capture once where there is no limit.
const NO_END: u64 = 1_000_000_000_000_000;
/// How often a capture is sent before clocks are taken: its sessions and caches are there then.
const WARM: u64 = 4;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Vpp,
    Quiver,
}

enum Process {
    Vpp(Vpp),
    Quiver(Router),
}

/// What one run of one case gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// A packet, over all nodes from `ethernet-input` to the output.
    pub clocks: f64,
    /// Packets that came out while clocks were taken.
    pub packets: u64,
    /// Bytes a packet that came out, as the interface counts them.
    pub bytes: f64,
    /// The nodes, with clocks a packet of all that came in.
    pub nodes: Vec<(String, f64)>,
}

/// Runs a case once.
pub fn run(side: Side, vpp: Option<&Path>, case: &Case, time: Duration) -> Outcome<Measured> {
    let host = Host::new("bench")?;
    let process = match side {
        Side::Quiver => Process::Quiver(Router::start(&host, &format!("cpu {{ main-core {PROCESSOR} }}"))?),
        Side::Vpp => Process::Vpp(Vpp::start(vpp.ok_or("no vpp")?, &host, PROCESSOR)?),
    };
    let session = match &process {
        Process::Quiver(router) => Vppctl::connect(&router.socket())?,
        Process::Vpp(vpp) => Vppctl::connect(&vpp.socket())?,
    };
    let mut device = Device { process, session };
    let measured = device.measure(case, time)?;
    match device.process {
        Process::Quiver(router) => router.stop()?,
        Process::Vpp(vpp) => drop(vpp),
    }
    Ok(measured)
}

/// A capture file. VPP reads microseconds only; all stamps are 0, so that only the first word tells.
fn capture(frames: &[Vec<u8>]) -> Outcome<Vec<u8>> {
    const MICROSECONDS: u32 = 0xa1b2_c3d4;
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET)?;
    for frame in frames {
        writer.write(0, frame, frame.len())?;
    }
    let mut bytes = writer.finish()?;
    bytes[..4].copy_from_slice(&MICROSECONDS.to_le_bytes());
    Ok(bytes)
}

struct Device {
    process: Process,
    session: Vppctl,
}

impl Device {
    fn ask(&mut self, line: &str) -> Outcome<String> {
        Ok(self.session.command(line, BOUND)?)
    }

    /// A command that must work. The protocol does not tell failures from names of what was made; but both say of a failure what failed,
    /// a colon, and why, or that an input is unknown. The number of an access list has a colon, too.
    fn tell(&mut self, line: &str) -> Outcome<()> {
        let answer = self.ask(line)?;
        let said = answer.trim_start().strip_prefix("ACL index:").unwrap_or(&answer);
        if said.contains([':', '`']) { Err(format!("`{line}': {}", answer.trim()).into()) } else { Ok(()) }
    }

    fn file(&self, name: &str) -> Outcome<PathBuf> {
        let path = match &self.process {
            Process::Vpp(vpp) => vpp.file(name),
            Process::Quiver(router) => router.file(name),
        };
        fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        Ok(path)
    }

    fn measure(&mut self, case: &Case, time: Duration) -> Outcome<Measured> {
        for line in &case.commands {
            self.tell(line)?;
        }
        if !case.bulk.is_empty() {
            let file = self.file("bulk.cli")?;
            fs::write(&file, &*case.bulk)?;
            self.tell(&format!("exec {}", file.display()))?;
        }
        let pcap = self.file("frames.pcap")?;
        fs::write(&pcap, capture(&case.frames)?)?;
        let vector = case.vector.map(|packets| format!(" maxframe {packets}")).unwrap_or_default();
        self.tell(&format!("packet-generator new name x limit {NO_END}{vector} interface {IN} pcap {}", pcap.display()))?;
        self.tell("clear interfaces")?;
        self.tell("packet-generator enable-stream x")?;
        self.warm(case)?;
        self.tell("clear runtime")?;
        std::thread::sleep(time);
        let runtime = self.ask("show runtime")?;
        self.tell("packet-generator disable-stream x")?;
        let interfaces = self.ask("show interface")?;
        self.judge(case, &shown::nodes(&runtime), &interfaces)
    }

    /// Waits until all frames have been sent some times.
    fn warm(&mut self, case: &Case) -> Outcome<()> {
        let (wanted, end) = (WARM * case.frames.len() as u64, Instant::now() + BOUND);
        while shown::counter(&self.ask("show interface")?, IN, "rx packets") < wanted {
            if Instant::now() > end {
                return Err(format!("{wanted} packets have not been sent within {BOUND:?}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Clocks, if what was measured is what the case is about: packets come out, none is lost, and they went where they should.
    fn judge(&mut self, case: &Case, rows: &[NodeRow], interfaces: &str) -> Outcome<Measured> {
        let of = |name: &str| rows.iter().find(|row| row.name == name).map_or(0, |row| row.vectors);
        let (received, sent) = (shown::counter(interfaces, IN, "rx packets"), shown::counter(interfaces, OUT, "tx packets"));
        let bytes = shown::counter(interfaces, OUT, "tx bytes") as f64 / sent.max(1) as f64;
        // A router sends a few packets by itself, such as advertisements.
        if sent.abs_diff(received) > 1000 + received / 10_000 {
            return Err(format!("{received} packets came in and {sent} out\n{}", self.ask("show errors")?).into());
        }
        if (bytes - case.bytes_out as f64).abs() > 0.1 {
            return Err(format!("packets come out with {bytes:.1} bytes, not {}", case.bytes_out).into());
        }
        let packets = of("ethernet-input");
        if packets == 0 {
            return Err("no packet came in while clocks were taken".into());
        }
        for node in case.nodes {
            if of(node) < packets - packets / 1000 {
                return Err(format!("{} of {packets} packets passed the node {node}", of(node)).into());
            }
        }
        if let Some(sessions) = case.sessions {
            let shown = self.ask("show nat44 summary")?;
            if !shown.lines().any(|line| line.trim().starts_with(&format!("total sessions: {sessions}"))) {
                return Err(format!("not {sessions} sessions: {shown}").into());
            }
        }
        let graph = |row: &&NodeRow| row.vectors > 0 && row.name != "pg-input" && !row.name.ends_with("-tx");
        let nodes = rows.iter().filter(graph).map(|row| (row.name.clone(), row.clocks * row.vectors as f64 / packets as f64));
        let nodes: Vec<_> = nodes.collect();
        let clocks = nodes.iter().map(|(_, clocks)| clocks).sum();
        Ok(Measured { clocks, packets: of(&format!("{OUT}-tx")), bytes, nodes })
    }
}
