//! Instructions a packet of each node on the way through the graph, counted by valgrind: the same figures however busy the
//! machine is, so that a change that makes a node longer is found where it is made.
//!
//! `cargo bench -p quiver-net --bench instructions [-- --check | --update | --cache | --packets N]`. Without an option the table is printed; `--check`
//! compares it with the committed one (`benches/instructions.txt`) and fails where a node needs over 3 % more instructions, or
//! calls what it did not call (a call left inside a loop over packets costs it half its speed); `--update` writes it. Another
//! compiler or instruction set than the committed table's is said, and then nothing is compared.
//!
//! Rows in brackets are no single nodes: what takes memory from the heap, anywhere in the turn; the whole turn, source and sink of this
//! program included; and nodes that run as one loop, with the turn that they do it in (*fused*).
//!
//! The program runs itself under callgrind, once for each path, with vectors of 256 packets; `--packets` takes others, for a look only:
//! with one packet a vector the table says what a node's call costs at low load. `--cache` counts misses of the first instruction
//! cache instead, in a simulated one of 32 KiB, over the whole turn: how often the code of one node displaces that of another
//! before the next vector comes. With `QUIVER_FUNCTIONS` in the
//! environment it also tells of every function: instructions with those of its calls, calls, name.
//!
//! `--emulated PROGRAM` counts the instructions of another program: this bench, built for aarch64. QEMU runs it. The committed table is
//! `benches/instructions-aarch64.txt`. `QUIVER_RUSTC` names the compiler that built the program. `scripts/check-aarch64 instructions
//! [--check | --update]` builds and counts.
//!
//! `--interfaces [--check | --functions]` counts what an interface costs the main thread instead (`interfaces.rs`); `--check` alone does so after the
//! nodes. `--functions` tells which functions cost more beside many interfaces.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use quiver_graph::Level;

#[path = "graph/bed.rs"]
#[expect(dead_code, reason = "what measures clocks is not for this program")]
mod bed;
#[path = "instructions/callgrind.rs"]
mod callgrind;
#[path = "instructions/emulator.rs"]
mod emulator;
#[path = "instructions/interfaces.rs"]
mod interfaces;
#[path = "graph/paths.rs"]
#[expect(dead_code, reason = "what measures clocks is not for this program")]
mod paths;

/// Option of the program that runs under callgrind.
const FUSED: &str = "--fused";
/// Paths whose tables do not depend on files that a machine may lack.
const PATHS: [&str; 8] =
    ["ip4-1024", "ip4-feature", "ip4-vlan", "ip4-qinq", "ip6-few", "l2-xconnect", "l2-bridge-2", "l2-bridge-10"];
/// Packets in turn unless said: one vector, always the same.
const PACKETS: usize = 256;
/// Vectors before those that are counted.
const SETTLED: usize = 16;
/// Vectors that are counted.
const VECTORS: usize = 256;
/// What may be more than committed: parts of the instructions, and calls a packet.
const SLACK: (f64, f64) = (0.03, 0.02);
/// What takes memory from the heap.
const ALLOCATE: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];
/// The simulated caches, as on most x86-64 cores of servers: size, ways, line. The last one is of no interest here.
const CACHES: [&str; 4] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
const COMMITTED_AARCH64: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions-aarch64.txt");

/// What counts.
enum Counter {
    /// valgrind, this program.
    Valgrind,
    /// QEMU, that program.
    Emulator(emulator::Program),
}

impl Counter {
    /// The committed table, and the instruction set that it is of.
    fn committed(&self) -> (&'static str, &'static str) {
        match self {
            Self::Valgrind => (COMMITTED, Level::best().name()),
            Self::Emulator(_) => (COMMITTED_AARCH64, "aarch64"),
        }
    }
}

/// Instructions and calls a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    instructions: f64,
    calls: f64,
}

type Table = BTreeMap<(String, String), Figures>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let packets = args.iter().position(|a| a == "--packets").and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(PACKETS);
    if !(1..=PACKETS).contains(&packets) {
        eprintln!("instructions: --packets is 1 to {PACKETS}");
        return ExitCode::FAILURE;
    }
    if let Some(at) = args.iter().position(|a| a == "--pass") {
        pass(args.get(at + 1).map_or("", String::as_str), packets, args.iter().any(|a| a == FUSED));
        return ExitCode::SUCCESS;
    }
    if let Some(at) = args.iter().position(|a| a == interfaces::PASS) {
        interfaces::pass(&args[at + 1..]);
        return ExitCode::SUCCESS;
    }
    let has = |name: &str| args.iter().any(|a| a == name);
    let compared = packets == PACKETS;
    let check = compared && has("--check");
    let update = compared && has("--update");
    if let Some(at) = args.iter().position(|a| a == "--emulated") {
        let program = emulator::Program::new(args.get(at + 1).map_or("", String::as_str).as_ref());
        return ended(program.and_then(|program| run(&Counter::Emulator(program), packets, check, update)));
    }
    if lacks_valgrind() {
        return ExitCode::SUCCESS;
    }
    if has("--cache") {
        return ended(misses(packets));
    }
    if has("--interfaces") {
        return ended(interfaces::run(has("--check"), has("--functions")));
    }
    let nodes = run(&Counter::Valgrind, packets, check, update);
    ended(if check { nodes.and_then(|()| interfaces::run(true, false)) } else { nodes })
}

fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What runs under callgrind: it collects within `counted` alone.
fn pass(path: &str, packets: usize, fused: bool) {
    for mut path in paths::paths(|name| name == path, packets) {
        path.bed.set_fusion(fused);
        // Which line is right shows after some vectors.
        path.bed.turn(SETTLED);
        counted(&mut path.bed);
    }
}

#[inline(never)]
fn counted(bed: &mut bed::Bed) {
    bed.turn(std::hint::black_box(VECTORS));
}

fn lacks_valgrind() -> bool {
    let lacks = Command::new("valgrind").arg("--version").output().is_err();
    if lacks {
        println!("instructions: SKIP: no valgrind");
    }
    lacks
}

/// Prints the misses a packet of each path.
fn misses(packets: usize) -> Result<(), String> {
    for path in PATHS {
        for fused in [false, true] {
            let text = packets.to_string();
            let functions = callgrind::profile(TOGGLE, &CACHES, &options(path, &text, fused), "I1mr");
            let functions = functions.map_err(|error| format!("{path}: {error}"))?;
            let misses = turn(&functions)? as f64 / (packets * VECTORS) as f64;
            println!("{path:<14} {misses:8.4} misses{}", if fused { ", fused" } else { "" });
        }
    }
    Ok(())
}

fn run(counter: &Counter, packets: usize, check: bool, update: bool) -> Result<(), String> {
    let (file, level) = counter.committed();
    let mut table = Table::new();
    for path in PATHS {
        for fused in [false, true] {
            measure(counter, path, packets, fused, &mut table).map_err(|error| format!("{path}: {error}"))?;
        }
    }
    let text = write(&table, level);
    print!("{text}");
    if update {
        return std::fs::write(file, text).map_err(|error| format!("{file}: {error}"));
    }
    if !check {
        return Ok(());
    }
    let committed = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    if committed.lines().next() != text.lines().next() {
        println!("instructions: SKIP: the committed table is of {}", committed.lines().next().unwrap_or_default());
        return Ok(());
    }
    let worse = compare(&read(file, &committed)?, &table);
    if worse.is_empty() {
        println!("instructions: {level}: all nodes as committed");
        return Ok(());
    }
    Err(format!("{}\nif this is what you want, commit the table that `--update` writes", worse.join("\n")))
}

/// What the turns cost, with all in them.
fn turn(functions: &BTreeMap<String, callgrind::Function>) -> Result<u64, String> {
    let turn = functions.iter().find(|(name, _)| name.ends_with("::counted"));
    turn.map(|(_, turn)| turn.inclusive()).ok_or_else(|| "the turn is not in the profile".into())
}

/// Where callgrind counts.
const TOGGLE: &str = "--toggle-collect=*instructions*counted*";

/// Options with which this program passes packets.
fn options<'a>(path: &'a str, packets: &'a str, fused: bool) -> Vec<&'a str> {
    ["--pass", path, "--packets", packets].into_iter().chain(fused.then_some(FUSED)).collect()
}

fn measure(counter: &Counter, path: &str, packets: usize, fused: bool, table: &mut Table) -> Result<(), String> {
    let text = packets.to_string();
    let options = options(path, &text, fused);
    let functions = match counter {
        Counter::Valgrind => callgrind::profile(TOGGLE, &[], &options, "Ir")?,
        Counter::Emulator(program) => program.profile(&options)?,
    };
    if std::env::var_os("QUIVER_FUNCTIONS").is_some() {
        for (name, function) in &functions {
            eprintln!("{path} {} {} {name}", function.inclusive(), function.called());
        }
    }
    let packets = (packets * VECTORS) as f64;
    for (name, function) in &functions {
        let Some(node) = node_of(name) else { continue };
        // What of a path is not in its line is in the table already.
        if fused && !node.starts_with('(') {
            continue;
        }
        let figures = Figures { instructions: function.inclusive() as f64 / packets, calls: function.called() as f64 / packets };
        table.insert((path.to_owned(), node), figures);
    }
    if !table.keys().any(|(p, _)| p == path) {
        return Err("no node's loop in the profile".into());
    }
    // Of the whole turn, the loop around the nodes included. None is what is wanted, and held.
    let calls = functions.values().flat_map(|function| &function.calls).filter(|(name, _)| ALLOCATE.contains(&name.as_str()));
    let (count, cost) = calls.fold((0, 0), |sum, (_, call)| (sum.0 + call.0, sum.1 + call.1));
    let figures = Figures { instructions: cost as f64 / packets, calls: count as f64 / packets };
    table.insert((path.to_owned(), "(allocations)".to_owned()), figures);
    let figures = Figures { instructions: turn(&functions)? as f64 / packets, calls: 0.0 };
    table.insert((path.to_owned(), if fused { "(turn,fused)" } else { "(turn)" }.to_owned()), figures);
    Ok(())
}

/// The node whose loop a function is, without the modules in front of names; the nodes of a fused chain in brackets, which are apart from the
/// sum of a path's nodes. None for other functions.
fn node_of(function: &str) -> Option<String> {
    let (_, kernel) = function.split_once("quiver_graph::level::")?.1.split_once("::<")?;
    let kernel = bare(kernel.strip_suffix('>')?);
    let (kind, nodes) = kernel.strip_suffix('>')?.split_once('<')?;
    match kind {
        "Fuse" => {
            let nodes = nodes.replace("Then<", "").replace("End<", "");
            // Those of nodes themselves stay.
            let closing = nodes.matches('>').count() - nodes.matches('<').count();
            Some(format!("({})", &nodes[..nodes.len() - closing]))
        }
        _ => {
            let (_memory, node) = nodes.split_once(',')?;
            let node = if kind == "Batches" { node.rsplit_once(',')?.0 } else { node };
            // The sink is this program's own.
            (node != "Sink").then(|| node.to_owned())
        }
    }
}

/// A type's name without modules.
fn bare(name: &str) -> String {
    let (mut bare, mut word) = (String::new(), String::new());
    for character in name.chars() {
        match character {
            ':' => word.clear(),
            '<' | '>' | ',' | ' ' => {
                bare.push_str(&word);
                bare.extend((character != ' ').then_some(character));
                word.clear();
            }
            _ => word.push(character),
        }
    }
    bare + &word
}

/// The first line says of which compiler and instruction set the table is.
fn write(table: &Table, level: &str) -> String {
    let rustc = Command::new(std::env::var_os("QUIVER_RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version").output();
    let rustc = rustc.map_or_else(|_| "rustc".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut text = format!("# {rustc}, {level}, instructions and calls a packet\n");
    for ((path, node), Figures { instructions, calls }) in table {
        let _ = writeln!(text, "{path:<14} {node:<40} {instructions:8.2} {calls:8.3}");
    }
    text
}

fn read(file: &str, text: &str) -> Result<Table, String> {
    let row = |line: &str| -> Option<((String, String), Figures)> {
        let mut words = line.split_whitespace();
        let key = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((key, Figures { instructions: words.next()?.parse().ok()?, calls: words.next()?.parse().ok()? }))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| row(line).ok_or_else(|| format!("{file}: {line}"))).collect()
}

fn compare(committed: &Table, now: &Table) -> Vec<String> {
    let mut worse = Vec::new();
    for ((path, node), was) in committed {
        let Some(is) = now.get(&(path.clone(), node.clone())) else {
            worse.push(format!("{path}: {node} is not on the way any more"));
            continue;
        };
        if is.instructions > was.instructions * (1.0 + SLACK.0) {
            worse.push(format!(
                "{path}: {node} takes {:.1} instructions a packet, committed are {:.1}",
                is.instructions, was.instructions
            ));
        }
        if is.calls > was.calls + SLACK.1 {
            worse.push(format!("{path}: {node} makes {:.3} calls a packet, committed are {:.3}", is.calls, was.calls));
        }
    }
    let new = now.keys().filter(|key| !committed.contains_key(*key));
    worse.extend(new.map(|(path, node)| format!("{path}: {node} is new on the way")));
    worse
}
