//! What is computed now and then rather than counted: rates, gauges, and their place in the statistics memory.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quiver_graph::stats::{Scalar, SimpleCounters, Stats};
use quiver_net::Router;
use quiver_net::ip::FamilyId;

use crate::ops::memory::pools;
use crate::process::Processes;
use crate::system::System;

/// How often the loops are sampled, for rates of the last seconds.
const SAMPLE: Duration = Duration::from_secs(1);
/// Threads that per-thread gauges have room for.
const THREADS: u32 = 256;

/// Handles of the gauges.
struct Gauges {
    stats: Arc<Stats>,
    heartbeat: Arc<Scalar>,
    last_update: Arc<Scalar>,
    vector_rate: Arc<Scalar>,
    input_rate: Arc<Scalar>,
    workers: Arc<Scalar>,
    vector_rates: Arc<SimpleCounters>,
    loop_rates: Arc<SimpleCounters>,
    tables: [TableGauges; 2],
}

/// Handles of the gauges of a family's tables.
struct TableGauges {
    family: FamilyId,
    tables: Arc<Scalar>,
    routes: Arc<Scalar>,
    memory: Arc<Scalar>,
    neighbors: Arc<Scalar>,
}

impl TableGauges {
    fn new(stats: &Stats, family: FamilyId, word: &str) -> Self {
        let gauge = |what: &str| stats.gauge(&format!("/net/{word}/{what}"));
        let [tables, routes, memory, neighbors] = ["fib/tables", "fib/routes", "fib/memory", "neighbors"].map(gauge);
        Self { family, tables, routes, memory, neighbors }
    }

    fn refresh(&self, router: &Router) {
        let (mut tables, mut routes, mut memory) = (0, 0, 0);
        for table in router.tables(self.family) {
            (tables, routes, memory) = (tables + 1, routes + table.routes as u64, memory + table.memory.total() as u64);
        }
        self.tables.set(tables);
        self.routes.set(routes);
        self.memory.set(memory);
        self.neighbors.set(router.neighbor_figures(self.family).entries as u64);
    }
}

impl Gauges {
    fn new(stats: &Arc<Stats>) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        stats.scalar("/sys/boottime").set(unix);
        stats.scalar("/sys/last_stats_clear").set(0);
        Self {
            stats: Arc::clone(stats),
            heartbeat: stats.scalar("/sys/heartbeat"),
            last_update: stats.scalar("/sys/last_update"),
            vector_rate: stats.gauge("/sys/vector_rate"),
            input_rate: stats.gauge("/sys/input_rate"),
            workers: stats.gauge("/sys/num_worker_threads"),
            vector_rates: stats.simple("/sys/vector_rate_per_worker", THREADS),
            loop_rates: stats.simple("/sys/loops_per_worker", THREADS),
            tables: [(FamilyId::V4, "ip4"), (FamilyId::V6, "ip6")].map(|(family, word)| TableGauges::new(stats, family, word)),
        }
    }
}

/// Samples each second, and refreshes the gauges each `interval`.
pub fn start(processes: &Processes<Router>, interval: Duration) {
    processes.spawn("statseg-collector-process", |cx| async move {
        let Some(gauges) = cx.with(|router| Gauges::new(router.graph.stats())) else { return };
        let mut since = interval;
        loop {
            let refresh = since >= interval;
            cx.with(|router| {
                sample(router);
                if refresh {
                    gauges.refresh(router);
                }
            });
            let pause = SAMPLE.min(interval);
            since = if refresh { pause } else { since + pause };
            cx.sleep(pause).await;
        }
    });
}

fn sample(router: &mut Router) {
    let now = router.graph.clock().now();
    let figures = router.graph.loop_figures();
    if let Ok(system) = System::of_mut(router) {
        figures.into_iter().for_each(|(thread, figures)| system.samples.push(thread, figures, now));
    }
}

impl Gauges {
    fn refresh(&self, router: &mut Router) {
        let (clock, threads) = (Arc::clone(router.graph.clock()), router.graph.loop_figures());
        let workers = router.graph.fleet().workers();
        let Ok(system) = System::of(router) else { return };
        self.heartbeat.set(self.heartbeat.get() + 1);
        self.last_update.set(clock.now().saturating_sub(system.started) / 1_000_000_000);
        self.workers.set(workers as u64);
        let (mut vectors, mut input) = (0.0, 0.0);
        let count = threads.len().max(1) as f64;
        for (thread, figures) in &threads {
            let window = system.samples.window(*thread, figures, clock.now());
            vectors += window.vector_rate / count;
            input += window.input_rate;
            for (gauge, value) in [(&self.vector_rates, window.vector_rate), (&self.loop_rates, window.loops_per_second)] {
                let index = u32::try_from(*thread).unwrap_or(THREADS);
                gauge.set_len(gauge.len().max((index + 1).min(THREADS)));
                gauge.clear_index_thread(0, index);
                gauge.add(0, index, value as u64);
            }
        }
        self.vector_rate.set(vectors as u64);
        self.input_rate.set(input as u64);
        self.tables.iter().for_each(|gauges| gauges.refresh(router));
        for pool in pools(router) {
            for (name, value) in [("cached", pool.cached), ("used", pool.used), ("available", pool.available)] {
                self.stats.gauge(&format!("/buffer-pools/{}/{name}", pool.name)).set(value.into());
            }
        }
    }
}
