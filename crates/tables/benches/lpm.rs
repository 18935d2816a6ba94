//! What the prefix tables cost: build time, memory, lookups a second and clocks a lookup, beside the `prefix-trie` crate.
//!
//! `cargo bench -p quiver-tables --bench lpm [-- [--json] [--rounds N] [--only NAME] [--copies N]]`. `--copies` builds so many
//! copies of each lookup structure, as for memory nodes, all on node 0; the first one is read. Tables: the real ones (or
//! generated ones of their size; the report says which) with skewed next hops, and 1,000,000 consecutive /24s. Every structure
//! answers the same addresses: random hosts in random prefixes. *dependent*: each address waits for the last answer; *plain*: a
//! loop of single lookups; *batch*: `lookup_batch` over vectors of 256. Rounds visit all structures in turn; figures are
//! medians, with the least and the greatest. Clocks are ticks of the time stamp counter (CNTVCT on Arm).

use quiver_tables::lpm4::{Kind, Lpm4, Lpm4Lookup};
use quiver_tables::lpm6::Lpm6;
use quiver_tables::mem::PageKind;
use quiver_tables::{Fib4, Fib6, Options, qsbr::Domain, synth};
use std::hint::black_box;
use std::time::Instant;

#[path = "lpm/baseline.rs"]
mod baseline;
#[path = "lpm/measure.rs"]
mod measure;
use baseline::{Trie4, Trie6};
use measure::{Median, memory_bytes, opaque_zero, ticks};

/// Addresses a run looks up.
const ADDRESSES: usize = 1 << 20;
const VECTOR: usize = 256;

/// How addresses are fed to the structure.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Dependent,
    Plain,
    Batch,
}
const WAYS: [(Way, &str); 3] = [(Way::Dependent, "dependent"), (Way::Plain, "plain"), (Way::Batch, "batch")];

/// A structure under measurement: single lookups and vectors.
trait Lookup<A: Copy> {
    fn one(&self, addr: A) -> u32;
    fn many(&self, addrs: &[A], out: &mut [u32]);
}

macro_rules! lookup {
    ($t:ty, $a:ty) => {
        impl Lookup<$a> for $t {
            #[inline(always)]
            fn one(&self, addr: $a) -> u32 {
                self.lookup(addr)
            }
            #[inline(always)]
            fn many(&self, addrs: &[$a], out: &mut [u32]) {
                self.lookup_batch(addrs, out);
            }
        }
    };
}
lookup!(quiver_tables::lpm4::Dir24, u32);
lookup!(quiver_tables::lpm4::Trie16, u32);
lookup!(Lpm6, u128);

trait Zero: Copy + std::ops::BitXor<Output = Self> {
    fn zero(of: u32) -> Self;
}
impl Zero for u32 {
    fn zero(of: u32) -> Self {
        of
    }
}
impl Zero for u128 {
    fn zero(of: u32) -> Self {
        of.into()
    }
}

#[inline(always)]
fn body<A: Zero, L: Lookup<A>>(table: &L, addrs: &[A], way: Way) -> u32 {
    let mut sum = 0u32;
    match way {
        Way::Dependent => {
            let mut leaf = 0;
            for addr in addrs {
                leaf = table.one(*addr ^ A::zero(opaque_zero(leaf)));
                sum = sum.wrapping_add(leaf);
            }
        }
        Way::Plain => {
            for addr in addrs {
                sum = sum.wrapping_add(table.one(*addr));
            }
        }
        Way::Batch => {
            let mut out = [0; VECTOR];
            for vector in addrs.chunks(VECTOR) {
                table.many(vector, &mut out);
                sum = sum.wrapping_add(black_box(&out)[0]);
            }
        }
    }
    sum
}

/// The body as nodes are compiled: for x86-64-v3 where the machine has it.
fn run<A: Zero, L: Lookup<A>>(table: &L, addrs: &[A], way: Way) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,movbe,fma,popcnt")]
        fn v3<A: Zero, L: Lookup<A>>(table: &L, addrs: &[A], way: Way) -> u32 {
            body(table, addrs, way)
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: every CPU with AVX2 and BMI2 has the other features too.
            return unsafe { v3(table, addrs, way) };
        }
    }
    body(table, addrs, way)
}

struct Subject<'a> {
    table: String,
    name: &'static str,
    prefixes: usize,
    build_ms: f64,
    memory: i64,
    own_bytes: usize,
    run: Box<dyn Fn(Way) -> u32 + 'a>,
    ways: &'static [(Way, &'static str)],
    clocks: Vec<Median>,
    nanos: Vec<Median>,
}

/// Builds a structure and notes the time and what the process grew by.
fn built<T>(f: impl FnOnce() -> T) -> (T, f64, i64) {
    let (before, start) = (memory_bytes(), Instant::now());
    let value = f();
    let ms = start.elapsed().as_secs_f64() * 1e3;
    (value, ms, memory_bytes() - before)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let json = args.iter().any(|a| a == "--json");
    let rounds = args.iter().position(|a| a == "--rounds").and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(9);

    let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1).cloned()).unwrap_or_default();
    let copies = args.iter().position(|a| a == "--copies").and_then(|i| args.get(i + 1)?.parse().ok()).unwrap_or(0);
    let options = |pages| Options { pages, nodes: vec![0; copies], ..Options::default() };
    let wanted = |title: &str, name: &str| title.contains(&only) || name.contains(&only);

    let (real4, origin4) = synth::full_table4();
    let (real6, origin6) = synth::full_table6();
    let million: Vec<(u32, u8)> = (0..1_000_000).map(|i| (0x0100_0000 + (i << 8), 24)).collect();
    let addrs6 = synth::addresses6(&real6, ADDRESSES, 2);
    let tables4 = [(format!("IPv4 {origin4}"), &real4), ("IPv4 1M /24".to_string(), &million)];
    let addrs4 = tables4.each_ref().map(|(_, t)| synth::addresses4(t, ADDRESSES, 2));

    let domain = Domain::new();
    let mut keep4 = Vec::new();
    let mut subjects = Vec::new();
    for (i, (title, table)) in tables4.iter().enumerate() {
        let addrs = &addrs4[i];
        for (name, kind, pages) in [
            ("DIR-24-8", Kind::Dir24, PageKind::Transparent),
            ("16-8-8", Kind::Trie16, PageKind::Base),
            ("16-8-8 huge", Kind::Trie16, PageKind::Transparent),
        ] {
            if !wanted(title, name) {
                continue;
            }
            let (fib, build_ms, memory) = built(|| {
                let mut fib = Fib4::with_options(kind, &domain, options(pages)).expect("memory for a table");
                for (prefix, len) in table.iter() {
                    fib.insert(*prefix, *len, synth::leaf(*prefix, *len, 7)).expect("memory for a route");
                }
                fib
            });
            let run: Box<dyn Fn(Way) -> u32> = match fib.reader() {
                Lpm4::Dir24(t) => Box::new(move |way| run(&t, addrs, way)),
                Lpm4::Trie16(t) => Box::new(move |way| run(&t, addrs, way)),
            };
            subjects.push(Subject {
                table: title.clone(),
                name,
                prefixes: fib.len(),
                build_ms,
                memory,
                own_bytes: fib.memory_bytes(),
                run,
                ways: &WAYS,
                clocks: Vec::new(),
                nanos: Vec::new(),
            });
            keep4.push(fib);
        }
        if !wanted(title, "prefix-trie") {
            continue;
        }
        let (trie, build_ms, memory) = built(|| Trie4::new(table));
        subjects.push(Subject {
            table: title.clone(),
            name: "prefix-trie",
            prefixes: table.len(),
            build_ms,
            memory,
            own_bytes: 0,
            run: Box::new(move |way| run(&trie, addrs, way)),
            ways: &WAYS[..2],
            clocks: Vec::new(),
            nanos: Vec::new(),
        });
    }
    let mut keep6 = Vec::new();
    for (name, batched, pages) in [
        ("poptrie", false, PageKind::Base),
        ("poptrie huge", false, PageKind::Transparent),
        ("poptrie, one batch", true, PageKind::Base),
    ] {
        if !wanted("IPv6", name) {
            continue;
        }
        let addrs = &addrs6;
        let (fib, build_ms, memory) = built(|| {
            let mut fib = Fib6::with_options(&domain, options(pages)).expect("memory for a table");
            if batched {
                fib.begin();
            }
            for (prefix, len) in &real6 {
                fib.insert(*prefix, *len, synth::leaf(*prefix, *len, 7)).expect("memory for a route");
            }
            fib.commit();
            fib
        });
        let reader = fib.reader();
        subjects.push(Subject {
            table: format!("IPv6 {origin6}"),
            name,
            prefixes: fib.len(),
            build_ms,
            memory,
            own_bytes: fib.memory_bytes(),
            run: Box::new(move |way| run(&reader, addrs, way)),
            ways: &WAYS,
            clocks: Vec::new(),
            nanos: Vec::new(),
        });
        keep6.push(fib);
    }
    let addrs = &addrs6;
    let (trie, build_ms, memory) = built(|| Trie6::new(&real6));
    subjects.push(Subject {
        table: format!("IPv6 {origin6}"),
        name: "prefix-trie",
        prefixes: real6.len(),
        build_ms,
        memory,
        own_bytes: 0,
        run: Box::new(move |way| run(&trie, addrs, way)),
        ways: &WAYS[..2],
        clocks: Vec::new(),
        nanos: Vec::new(),
    });

    for subject in &mut subjects {
        subject.clocks = subject.ways.iter().map(|_| Median::default()).collect();
        subject.nanos = subject.clocks.clone();
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            for (i, (way, _)) in subject.ways.iter().enumerate() {
                let (clock, start) = (ticks(), Instant::now());
                black_box((subject.run)(*way));
                let (clock, nanos) = (ticks() - clock, start.elapsed().as_nanos());
                subject.clocks[i].add(clock as f64 / ADDRESSES as f64);
                subject.nanos[i].add(nanos as f64 / ADDRESSES as f64);
            }
        }
    }
    if json { print_json(&subjects) } else { print_text(&subjects, rounds) }
}

fn print_text(subjects: &[Subject<'_>], rounds: usize) {
    println!("{rounds} rounds of {ADDRESSES} addresses; median [least..greatest] clocks a lookup, and million lookups/s");
    for (i, s) in subjects.iter().enumerate() {
        if i == 0 || subjects[i - 1].table != s.table {
            println!("\n{} ({} prefixes)", s.table, s.prefixes);
        }
        let mb = |bytes: f64| bytes / 1e6;
        println!(
            "  {:<20} built in {:7.1} ms, process grew {:6.1} MB, own count {:6.1} MB",
            s.name,
            s.build_ms,
            mb(s.memory as f64),
            mb(s.own_bytes as f64)
        );
        let base = subjects.iter().find(|b| b.table == s.table && b.name == "prefix-trie");
        for (k, (_, way)) in s.ways.iter().enumerate() {
            let (clocks, mps) = (&s.clocks[k], 1e3 / s.nanos[k].median());
            // prefix-trie has no batch call: a batch is compared with its plain loop.
            let ratio = base.map_or(1.0, |b| b.clocks[k.min(b.clocks.len() - 1)].median() / clocks.median());
            println!("    {way:<10} {clocks:<30} {mps:8.1} M/s   x{ratio:.1} of prefix-trie");
        }
    }
}

fn print_json(subjects: &[Subject<'_>]) {
    let rows: Vec<String> = subjects
        .iter()
        .map(|s| {
            let ways: Vec<String> = (0..s.ways.len())
                .map(|k| {
                    let (c, n) = (&s.clocks[k], &s.nanos[k]);
                    format!(
                        r#"{{"way":"{}","clocks_median":{:.3},"clocks_min":{:.3},"clocks_max":{:.3},"lookups_per_second":{:.0}}}"#,
                        s.ways[k].1,
                        c.median(),
                        c.min(),
                        c.max(),
                        1e9 / n.median()
                    )
                })
                .collect();
            format!(
                r#"{{"table":"{}","structure":"{}","prefixes":{},"build_ms":{:.3},"process_bytes":{},"own_bytes":{},"ways":[{}]}}"#,
                s.table,
                s.name,
                s.prefixes,
                s.build_ms,
                s.memory,
                s.own_bytes,
                ways.join(",")
            )
        })
        .collect();
    println!("[{}]", rows.join(",\n "));
}
