//! Mutated frames, from capture files by way of the packet generator, through a router with everything switched on.
//!
//! The generator counts what it sends; the interfaces must have received exactly that, and once reassemblies, waits for neighbours
//! and their like are over, every buffer must be back: then each frame, and each packet made because of one, had one end.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::report::Outcome;
use crate::requests::rounds;
use crate::scene::{Mutants, PORTS, Ports};
use crate::watch::Target;

/// Most frames of a capture file, and how often each is sent. There is a file for each port in a round.
const FILE: u64 = 25_000;
const TIMES: std::ops::RangeInclusive<u64> = 8..=80;
/// How long a round may take without any progress, and the longest life of what may be held.
const HANG: Duration = Duration::from_secs(120);
pub const HELD: Duration = Duration::from_secs(90);

const GENERATED: Ports = Ports { name: "pg", create: "create packet-generator interface pg@", input: "pg-input" };

/// A capture file of mutated frames.
fn write(path: &Path, seed: u64, port: u8, count: u64) -> std::io::Result<()> {
    let mut mutants = Mutants::new(seed, port);
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    for half in [2_u16, 4] {
        out.extend(half.to_le_bytes());
    }
    for word in [0_u32, 0, 65_535, 1] {
        out.extend(word.to_le_bytes());
    }
    let mut frame = Vec::new();
    for n in 0..count as u32 {
        frame.clear();
        mutants.next(&mut frame);
        for word in [n, 0, frame.len() as u32, frame.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend_from_slice(&frame);
    }
    fs::write(path, out)
}

fn round(outcome: &mut Outcome, target: &mut Target, seed: u64, plan: &Plan) -> Result<(), String> {
    GENERATED.set_up(&target.router)?;
    let file = target.router.file("attack.pcap");
    let _ = target.router.cli("pcap trace rx tx max 100000 max-bytes-per-pkt 128 intfc any");
    let wanted = (plan.count - outcome.count).div_ceil(u64::from(PORTS));
    let each = FILE.min(wanted.div_ceil(*TIMES.start())).max(256);
    let limit = each * wanted.div_ceil(each).clamp(*TIMES.start(), *TIMES.end());
    for port in 0..PORTS {
        write(&file, seed, port, each).map_err(|e| e.to_string())?;
        let stream = format!("name s{port} limit {limit} interface pg{port} node ethernet-input pcap {}", file.display());
        target.router.cli(&format!("packet-generator new {{ {stream} }}"))?;
    }
    let total = limit * u64::from(PORTS);
    target.router.cli("packet-generator enable-stream")?;
    let mut moved = (0, Instant::now());
    loop {
        let answer = target.json("show packet-generator")?;
        let streams = answer["streams"].as_array().ok_or("no streams")?;
        let sent: u64 = streams.iter().filter_map(|s| s["sent"].as_u64()).sum();
        if streams.iter().all(|s| s["enabled"] == false) {
            if sent != total {
                return Err(format!("{sent} frames sent of {total}"));
            }
            break;
        }
        if sent != moved.0 {
            moved = (sent, Instant::now());
        }
        if moved.1.elapsed() > HANG {
            return Err(format!("no progress for {HANG:?} after {sent} frames"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    outcome.count += total;
    let deadline = Instant::now() + HANG;
    for port in 0..PORTS {
        // A stream may be over a moment before its last frames are counted.
        while GENERATED.counter(target, port, "rx packets")? < limit && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let got = GENERATED.counter(target, port, "rx packets")?;
        if got != limit {
            return Err(format!("pg{port} counts {got} received of {limit}"));
        }
    }
    target.whole(HELD)
}

/// Plays the part.
pub fn run(plan: &Plan) -> Outcome {
    rounds("frames", plan, |round| (round % 2) as u32, round)
}
