//! Clocks a packet of each node on the way through the graph, without devices: from `ethernet-input` to the output node.
//!
//! `cargo bench -p quiver-net --bench graph [-- [--json] [--rounds N] [--only PATH] [--loops] [--sizes] [--fusion] [--hot]]`. Vectors of 256 packets from a
//! ring of 16,384 buffers in shuffled order (1 MiB of header lines, so that each vector's lines come from beyond L1), 64-byte
//! frames for IPv4 and layer 2, 84 for IPv6. Rounds visit all paths and loop settings in turn; figures are medians over
//! rounds, with the least and the greatest. Clocks are ticks of the time stamp counter (CNTVCT on Arm).
//!
//! `--loops` runs every width, instruction set and prefetch distance, `--sizes` vectors of 4 to 1,024 packets. `--fusion` runs each setting
//! a second time with fused chains, whose clocks count for the chain's first node; without it each node runs by itself.
//!
//! `--hot` takes the same 256 buffers again and again: what the nodes cost where no line is missed. The *core clock* is how
//! fast a chain of dependent multiplications ran meanwhile: on a shared machine it says how much of the core there was.
//!
//! What the source and the sink cost is left out: they belong to this program, not to the router.

use quiver_graph::Level;

#[path = "graph/bed.rs"]
mod bed;
#[path = "graph/paths.rs"]
mod paths;
use paths::{Path, paths};

/// Vectors of a run.
const VECTORS: usize = 256;

/// How the nodes' loops run.
#[derive(Clone, Copy, PartialEq)]
struct Setting {
    /// `None`: what each node has by itself.
    width: Option<u8>,
    prefetch: Option<u8>,
    level: Option<Level>,
    /// Packets a vector.
    vector: usize,
    /// Lines of nodes run as one loop.
    fused: bool,
}

impl Setting {
    const DEFAULT: Self = Self { width: None, prefetch: None, level: None, vector: 256, fused: false };

    fn name(self) -> String {
        let name = match (self.width, self.level, self.prefetch, self.vector) {
            (Some(width), Some(level), ..) => format!("x{width} {}", level.name()),
            (_, _, Some(prefetch), _) => format!("p{prefetch}"),
            (.., 256) => "default".into(),
            (.., vector) => format!("v{vector}"),
        };
        if self.fused { name + " fused" } else { name }
    }
}

/// Clocks a packet of one path in one setting: by node, then the sum, each over all rounds.
struct Figures {
    path: usize,
    setting: Setting,
    rounds: Vec<Vec<f64>>,
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Clocks of the core for each tick of the counter: a multiplication that waits for the one before takes three.
fn core_clocks_per_tick() -> f64 {
    const N: u64 = 20_000;
    let clock = quiver_graph::clock::Clock::new();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = clock.ticks();
        // x·x is no affine step, so the compiler cannot shorten the chain.
        let mut x = std::hint::black_box(3_u64);
        for _ in 0..N {
            x = x.wrapping_mul(x) | 1;
        }
        std::hint::black_box(x);
        best = best.min((clock.ticks() - start) as f64);
    }
    // Three for the multiplication, one for the bit.
    (4 * N) as f64 / best
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|a| a == name);
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1));
    let rounds: usize = value("--rounds").and_then(|n| n.parse().ok()).unwrap_or(11);
    // Where it may not pin itself, other work on the machine moves it: the spread shows that.
    let _ = quiver_graph::topology::pin_current_thread(0);
    let ring = if has("--hot") { 256 } else { bed::RING };
    let only = value("--only");
    let mut paths = paths(|name| only.is_none_or(|o| name.starts_with(o.as_str())), ring);
    if paths.is_empty() {
        eprintln!("--only: no such path; without it the names of all are printed");
        std::process::exit(2);
    }
    let mut settings = vec![Setting::DEFAULT];
    if has("--loops") {
        for level in [Level::V2, Level::V3, Level::V4].into_iter().filter(|l| l.available()) {
            settings.extend([1, 2, 4, 8].map(|width| Setting { width: Some(width), level: Some(level), ..Setting::DEFAULT }));
        }
        settings.extend([0, 4, 8].map(|prefetch| Setting { prefetch: Some(prefetch), ..Setting::DEFAULT }));
    }
    if has("--sizes") {
        let sizes = [4, 8, 16, 32, 64, 128, 512, 1024].into_iter().filter(|size| *size <= ring);
        settings.extend(sizes.map(|vector| Setting { vector, ..Setting::DEFAULT }));
    }
    if has("--fusion") {
        settings.extend(settings.clone().into_iter().map(|setting| Setting { fused: true, ..setting }));
    }
    let mut core = Vec::new();
    let mut figures: Vec<Figures> = Vec::new();
    for path in 0..paths.len() {
        figures.extend(settings.iter().map(|setting| Figures { path, setting: *setting, rounds: Vec::new() }));
    }
    for round in 0..rounds {
        // The first setting of a path finds the caches full of another one's tables: each round it is another setting.
        for at in 0..figures.len() {
            let n = settings.len();
            let f = &mut figures[at / n * n + (at + round) % n];
            let path = &mut paths[f.path];
            path.bed.set_loops(path.nodes, f.setting.width, f.setting.prefetch, f.setting.level);
            path.bed.set_fusion(f.setting.fused);
            path.bed.set_vector(f.setting.vector);
            f.rounds.push(path.bed.run(path.nodes, VECTORS));
            core.push(core_clocks_per_tick());
        }
    }
    let json = has("--json");
    let (core, least, greatest) = median(&mut core);
    if json {
        // The core's clocks for each of the counter's, in the form of a path so that whoever reads paths reads it too.
        println!(
            "{{\"path\":\"core\",\"loop\":\"default\",\"clocks\":{core:.3},\"least\":{least:.3},\"greatest\":{greatest:.3},\"nodes\":{{}}}}"
        );
    } else {
        println!(
            "clocks a packet: median [least..greatest] of {rounds} rounds; core clocks a tick {core:.2} [{least:.2}..{greatest:.2}]"
        );
    }
    for f in &figures {
        report(&paths[f.path], f, json);
    }
}

fn report(path: &Path, figures: &Figures, json: bool) {
    let column = |n: usize| median(&mut figures.rounds.iter().map(|r| r[n]).collect::<Vec<f64>>());
    let (sum, least, greatest) = median(&mut figures.rounds.iter().map(|r| r.iter().sum()).collect::<Vec<f64>>());
    let setting = figures.setting.name();
    if json {
        let nodes: Vec<String> = path.nodes.iter().enumerate().map(|(n, name)| format!("\"{name}\":{:.2}", column(n).0)).collect();
        println!(
            "{{\"path\":\"{}\",\"loop\":\"{setting}\",\"clocks\":{sum:.2},\"least\":{least:.2},\"greatest\":{greatest:.2},\"nodes\":{{{}}}}}",
            path.name,
            nodes.join(",")
        );
        return;
    }
    let by_node: Vec<String> = (0..path.nodes.len()).map(|n| format!("{:.1}", column(n).0)).collect();
    println!("{:<12} {setting:<14} {sum:7.1} [{least:.1}..{greatest:.1}]  = {}", path.name, by_node.join(" + "));
    if figures.setting == Setting::DEFAULT {
        for (n, name) in path.nodes.iter().enumerate() {
            let (node, least, greatest) = column(n);
            println!("    {name:<18} {node:5.1} [{least:.1}..{greatest:.1}]");
        }
    }
}
