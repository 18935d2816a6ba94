//! What a node costs by language: the same rule (a least TTL by interface) as a node of the router in Rust, with its fast path and without
//! it, and as a node of the plugin in C, in turns in one process.
//!
//! `cargo bench -p quiver-plugin-host --bench node [-- --rounds N]`. Clocks a packet (ticks of the time stamp counter), medians over
//! rounds with the least and the greatest: of the node alone, and of all nodes from `ethernet-input` to the output. Vectors of 256
//! packets, IPv4, 64 bytes, no fused chains; sources, devices and sinks are left out. The core clock tells how much of a core there was.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use quiver_command::operation::{Registry, View};
use quiver_graph::IfIndex;
use quiver_net::Router;
use quiver_net::testing::{Harness, host_mac, router_mac};
use quiver_plugin_host::{Library, Plugins};
use quiver_wire::build::Packet;
use serde_json::Map;

/// The node of the linked example, as it stands there.
#[allow(dead_code)]
#[path = "../../../examples/plugins/linked/src/node.rs"]
mod linked;

type Limits = Arc<[AtomicU8]>;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const VECTOR: usize = 256;
const VECTORS: usize = 400;

/// What stands on the arc.
#[derive(Clone, Copy)]
enum Guard {
    Nothing,
    Rust { fast: bool },
    C,
}

const KINDS: [(&str, Guard); 4] = [
    ("no feature", Guard::Nothing),
    ("Rust, batches", Guard::Rust { fast: true }),
    ("Rust, one by one", Guard::Rust { fast: false }),
    ("C, shared object", Guard::C),
];

fn build(folder: &Path) -> std::path::PathBuf {
    let object = folder.join("ttl_guard.so");
    let done = Command::new("cc")
        .args(["-O2", "-fPIC", "-shared", "-I"])
        .arg(Path::new(ROOT).join("crates/plugin/include"))
        .arg("-o")
        .args([&object, &Path::new(ROOT).join("examples/plugins/c/ttl_guard.c")])
        .status();
    assert!(done.is_ok_and(|status| status.success()), "a C compiler");
    object
}

struct Bed {
    h: Harness,
    x0: IfIndex,
    frames: Vec<Vec<u8>>,
    nodes: Vec<&'static str>,
}

impl Bed {
    fn new(guard: Guard, object: &Path) -> Self {
        let mut h = Harness::with_buffers(0, 1024);
        let x = [h.interface(0), h.interface(1)];
        for (n, index) in (0..).zip(x) {
            h.router.add_address(index, IpAddr::from([10, 0, n, 1]), 24).expect("an address");
            h.router.neighbor_update(index, IpAddr::from([10, 0, n, 2]), Some(host_mac(n))).expect("a neighbor");
        }
        h.router.graph.set_fusion(false);
        let mut nodes = vec!["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite", "x1-output"];
        match guard {
            Guard::Nothing => {}
            Guard::Rust { fast } => {
                let limits: Limits = (0..quiver_graph::MAX_INTERFACES).map(|_| AtomicU8::new(0)).collect();
                limits[x[0].0 as usize].store(10, Relaxed);
                linked::declare(&mut h.router.graph, &limits).expect("a node");
                h.router.graph.set_feature(linked::ARC, linked::NODE, x[0], true).expect("a feature");
                if !fast {
                    h.router.graph.set_loop(linked::NODE, Some(1), None, None).expect("a loop");
                }
                nodes.push(linked::NODE);
            }
            Guard::C => {
                Plugins::prepare(&mut h.router);
                let library = Library::open(object).expect("a plugin");
                let loaded = Plugins::start(&mut h.router, library, &Map::new()).expect("it starts");
                let mut registry: Registry<Router> = Registry::new();
                for operation in loaded.operations() {
                    registry.dynamic(operation);
                }
                registry.execute(&mut h.router, "set ttl-guard x0 min 10", &View::TEXT).expect("a command");
                nodes.push("ttl-guard");
            }
        }
        let frame = |n: usize| {
            let packet = Packet::ethernet(host_mac(0), router_mac(0)).ipv4([10, 0, 0, 2], [10, 0, 1, 2]);
            packet.udp(1000 + n as u16, 80).payload(&[7; 22]).build()
        };
        Self { h, x0: x[0], frames: (0..VECTOR).map(frame).collect(), nodes }
    }

    /// Clocks a packet: of the guard, and of all nodes.
    fn round(&mut self) -> (f64, f64) {
        self.h.router.graph.clear_runtime();
        for _ in 0..VECTORS {
            self.h.inject_many(self.x0, &self.frames, 0);
            assert_eq!(self.h.run().len(), VECTOR);
        }
        let clocks = |name: &&str| {
            let id = self.h.router.graph.node(name).expect("a node of the path");
            let figures = self.h.router.graph.figures(id, 0);
            figures.clocks as f64 / figures.vectors.max(1) as f64
        };
        let all: Vec<f64> = self.nodes.iter().map(clocks).collect();
        (all.get(5).copied().unwrap_or(0.0), all.iter().sum())
    }
}

fn median(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Ticks that a chain of dependent multiplications takes, for each of them.
fn canary() -> f64 {
    let clock = quiver_graph::clock::Clock::new();
    let start = clock.ticks();
    let mut x = std::hint::black_box(3_u64);
    for _ in 0..20_000 {
        x = x.wrapping_mul(x) | 1;
    }
    std::hint::black_box(x);
    (clock.ticks() - start) as f64 / 20_000.0
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |key: &str| arguments.iter().position(|word| word == key).and_then(|at| arguments.get(at + 1)?.parse().ok());
    let rounds: usize = after("--rounds").unwrap_or(31);
    let folder = std::env::temp_dir().join(format!("quiver-bench-node-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let object = build(&folder);
    let mut beds: Vec<Bed> = KINDS.iter().map(|(_, guard)| Bed::new(*guard, &object)).collect();
    let mut figures = vec![(Vec::new(), Vec::new()); beds.len()];
    let mut core = Vec::new();
    for round in 0..=rounds {
        core.push(canary());
        for (bed, (alone, all)) in beds.iter_mut().zip(&mut figures) {
            let (node, path) = bed.round();
            // The first one warms up.
            if round > 0 {
                alone.push(node);
                all.push(path);
            }
        }
    }
    println!("{:<18} {:>22} {:>26}", "node", "clocks a packet", "whole path");
    let mut medians = Vec::new();
    for ((name, _), (alone, all)) in KINDS.iter().zip(&mut figures) {
        let (node, path) = (median(alone), median(all));
        println!("{name:<18} {:>7.2} ({:.2} to {:.2}) {:>9.2} ({:.2} to {:.2})", node.0, node.1, node.2, path.0, path.1, path.2);
        medians.push(path.0);
    }
    println!(
        "whole path, C to Rust with batches: {:.3}; to Rust one by one: {:.3}",
        medians[3] / medians[1],
        medians[3] / medians[2]
    );
    let core = median(&mut core);
    println!("core: {:.2} ticks a multiplication ({:.2} to {:.2}), {rounds} rounds", core.0, core.1, core.2);
    let _ = std::fs::remove_dir_all(&folder);
}
