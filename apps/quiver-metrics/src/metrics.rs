//! Which metrics there are, and from which statistics they come.
//!
//! Statistics are copied first and written out afterwards, so that the copy is short. Nodes that were never called and have nothing to tell are left
//! out: a router with thousands of interfaces has several for each.

use std::collections::BTreeMap;

use quiver_segment::{Error, View};

use crate::exposition::{Kind, Page};
use crate::process::{MAIN, Usage};

/// An entry with an element for each interface: entry, metric, labels, meaning.
type Entry = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

/// Counters of interfaces that are one number.
const INTERFACE: &[Entry] = &[
    ("/if/drops", "drop_packets", &[], "Packets that were received here and dropped"),
    ("/if/punt", "punt_packets", &[], "Packets that were received here and handed to the host"),
    ("/if/ip4", "receive_ip_packets", &[("version", "4")], "IP packets received"),
    ("/if/ip6", "receive_ip_packets", &[("version", "6")], "IP packets received"),
    ("/if/rx-error", "receive_error_packets", &[], "Packets that arrived damaged"),
    ("/if/rx-miss", "receive_missed_packets", &[], "Packets that the device lost before the router saw them"),
    ("/if/rx-no-buf", "receive_no_buffer_packets", &[], "Packets for which there was no buffer"),
    ("/if/tx-error", "transmit_error_packets", &[], "Packets that could not be sent"),
];

/// Counters of interfaces with packets and bytes.
const TRAFFIC: &[Entry] = &[
    ("/if/rx", "receive", &[], "received"),
    ("/if/tx", "transmit", &[], "sent"),
    ("/if/rx-unicast", "receive_cast", &[("cast", "unicast")], "received, by kind of destination"),
    ("/if/rx-multicast", "receive_cast", &[("cast", "multicast")], "received, by kind of destination"),
    ("/if/rx-broadcast", "receive_cast", &[("cast", "broadcast")], "received, by kind of destination"),
    ("/if/tx-unicast", "transmit_cast", &[("cast", "unicast")], "sent, by kind of destination"),
    ("/if/tx-multicast", "transmit_cast", &[("cast", "multicast")], "sent, by kind of destination"),
    ("/if/tx-broadcast", "transmit_cast", &[("cast", "broadcast")], "sent, by kind of destination"),
];

/// Counters of nodes: entry, metric, unit, meaning.
const NODE: &[(&str, &str, &str, &str)] = &[
    ("/sys/node/calls", "quiver_node_calls", "", "Calls of each node"),
    ("/sys/node/vectors", "quiver_node_packets", "packets", "Packets that each node has handled"),
    ("/sys/node/clocks", "quiver_node_clocks", "clocks", "Processor clocks spent in each node"),
];

/// Gauges of each family's tables: entry behind the family, metric, unit, meaning.
const TABLES: &[(&str, &str, &str, &str)] = &[
    ("fib/tables", "quiver_fib_tables", "", "Routing tables"),
    ("fib/routes", "quiver_fib_routes", "", "Prefixes in routing tables"),
    ("fib/memory", "quiver_fib_memory_bytes", "bytes", "Memory of routing tables"),
    ("neighbors", "quiver_neighbors", "", "Neighbors"),
];

/// Statistics at a moment.
#[derive(Default)]
pub struct Snapshot {
    interfaces: Vec<String>,
    nodes: Vec<String>,
    interface: Vec<Vec<u64>>,
    traffic: Vec<Vec<[u64; 2]>>,
    node: Vec<Vec<u64>>,
    /// Node, reason, count.
    errors: Vec<(String, String, u64)>,
    /// Direction, path, what, packets.
    nat: Vec<(String, String, String, u64)>,
    nat_sessions: Vec<u64>,
    vector_rates: Vec<u64>,
    loop_rates: Vec<u64>,
    /// Pool, state, buffers.
    pools: Vec<(String, String, u64)>,
    numbers: BTreeMap<String, u64>,
}

fn first(rows: Vec<Vec<u64>>) -> Vec<u64> {
    rows.into_iter().next().unwrap_or_default()
}

impl Snapshot {
    /// Copies what is written out.
    ///
    /// # Errors
    /// The segment's.
    pub fn of(view: &View<'_>) -> Result<Self, Error> {
        let counts = view.simple("/node/errors")?;
        let mut errors: Vec<_> = view
            .errors()
            .iter()
            .filter_map(|(name, column)| {
                let (node, reason) = name.split_once('/')?;
                Some((node.to_owned(), reason.to_owned(), *counts.get(*column as usize)?))
            })
            .collect();
        errors.sort();
        let (mut nat, mut pools, mut numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
        for name in view.entries() {
            match name.split('/').collect::<Vec<_>>()[..] {
                ["", "nat44-ed", direction, path, what] => {
                    let packets = view.simple(name)?.into_iter().fold(0, u64::wrapping_add);
                    nat.push((direction.to_owned(), path.to_owned(), what.to_owned(), packets));
                }
                ["", "buffer-pools", pool, state] => {
                    pools.extend(view.number(name).map(|buffers| (pool.to_owned(), state.to_owned(), buffers)));
                }
                _ => numbers.extend(view.number(name).map(|value| (name.to_owned(), value))),
            }
        }
        Ok(Self {
            interfaces: view.names("/if/names").to_vec(),
            nodes: view.names("/sys/node/names").to_vec(),
            interface: INTERFACE.iter().map(|(entry, ..)| view.simple(entry)).collect::<Result<_, _>>()?,
            traffic: TRAFFIC.iter().map(|(entry, ..)| view.combined(entry)).collect::<Result<_, _>>()?,
            node: NODE.iter().map(|(entry, ..)| view.simple(entry)).collect::<Result<_, _>>()?,
            errors,
            nat,
            nat_sessions: view
                .threads("/nat44-ed/total-sessions")?
                .into_iter()
                .map(|row| row.first().copied().unwrap_or(0))
                .collect(),
            vector_rates: first(view.threads("/sys/vector_rate_per_worker")?),
            loop_rates: first(view.threads("/sys/loops_per_worker")?),
            pools,
            numbers,
        })
    }

    /// The page, with what the kernel says of the process.
    pub fn page(&self, usage: &Usage) -> String {
        let mut page = Page::default();
        self.process(&mut page, usage);
        self.threads(&mut page);
        self.interfaces(&mut page);
        self.node_counters(&mut page);
        self.tables(&mut page);
        page.finish()
    }

    fn process(&self, page: &mut Page, usage: &Usage) {
        if let Some(start) = self.numbers.get("/sys/boottime") {
            page.family("quiver_start_time_seconds", Kind::Gauge, "seconds", "When the router was started, Unix time")
                .sample(&[], start);
        }
        if let Some(bytes) = usage.resident_bytes {
            page.family("quiver_memory_resident_bytes", Kind::Gauge, "bytes", "Memory that the router has now").sample(&[], bytes);
        }
        let help = "Processor time of each thread of the router; a worker that polls uses all of a core";
        let mut family = page.family("quiver_thread_cpu_seconds", Kind::Counter, "seconds", help);
        usage.threads.iter().for_each(|(thread, seconds)| family.sample(&[("thread", thread)], seconds));
        let mut family =
            page.family("quiver_buffers", Kind::Gauge, "", "Packet buffers by pool and state: used, cached (free), available");
        self.pools.iter().for_each(|(pool, state, buffers)| family.sample(&[("pool", pool), ("state", state)], buffers));
    }

    fn threads(&self, page: &mut Page) {
        if let Some(workers) = self.numbers.get("/sys/num_worker_threads") {
            page.family("quiver_workers", Kind::Gauge, "", "Workers").sample(&[], workers);
        }
        let threads = self.numbers.get("/sys/num_worker_threads").map_or(0, |workers| *workers as usize) + 1;
        let name = |thread: usize| match thread {
            0 => MAIN.to_owned(),
            worker => format!("quiver_wk_{}", worker - 1),
        };
        let help = "Packets a call of a node, mean of the last seconds: the load of a thread, 256 when it is full";
        let mut family = page.family("quiver_thread_vector_packets", Kind::Gauge, "packets", help);
        for (thread, rate) in self.vector_rates.iter().enumerate().take(threads) {
            family.sample(&[("thread", &name(thread))], rate);
        }
        let help = "Mean time of a poll iteration in the last seconds, for threads that had one";
        let mut family = page.family("quiver_thread_poll_interval_seconds", Kind::Gauge, "seconds", help);
        for (thread, rate) in self.loop_rates.iter().enumerate().take(threads).filter(|(_, rate)| **rate > 0) {
            family.sample(&[("thread", &name(thread))], 1.0 / *rate as f64);
        }
    }

    fn interfaces(&self, page: &mut Page) {
        let named = || self.interfaces.iter().enumerate().filter(|(_, name)| !name.is_empty());
        for ((word, unit), column) in [(("packets", "packets"), 0), (("bytes", "bytes"), 1)] {
            let mut last = "";
            for (place, (_, metric, _, help)) in TRAFFIC.iter().enumerate() {
                if *metric == last {
                    continue;
                }
                last = metric;
                let name = format!("quiver_interface_{metric}_{word}");
                let what = if column == 0 { "Packets" } else { "Bytes" };
                let mut family = page.family(&name, Kind::Counter, unit, &format!("{what} {help}"));
                for (row, (_, _, labels, _)) in
                    self.traffic.iter().zip(TRAFFIC).skip(place).take_while(|(_, entry)| entry.1 == *metric)
                {
                    for (index, interface) in named() {
                        let value = row.get(index).map_or(0, |element| element[column]);
                        family.sample(&[&[("interface", interface.as_str())], *labels].concat(), value);
                    }
                }
            }
        }
        let mut last = "";
        for (place, (_, metric, _, help)) in INTERFACE.iter().enumerate() {
            if *metric == last {
                continue;
            }
            last = metric;
            let name = format!("quiver_interface_{metric}");
            let mut family = page.family(&name, Kind::Counter, "packets", help);
            for (row, (_, _, labels, _)) in
                self.interface.iter().zip(INTERFACE).skip(place).take_while(|(_, entry)| entry.1 == *metric)
            {
                for (index, interface) in named() {
                    let value = row.get(index).copied().unwrap_or(0);
                    family.sample(&[&[("interface", interface.as_str())], *labels].concat(), value);
                }
            }
        }
    }

    fn node_counters(&self, page: &mut Page) {
        let called = |index: usize| self.node.first().and_then(|calls| calls.get(index)).is_some_and(|calls| *calls > 0);
        for (row, (_, name, unit, help)) in self.node.iter().zip(NODE) {
            let mut family = page.family(name, Kind::Counter, unit, help);
            for (index, node) in self.nodes.iter().enumerate().filter(|(index, name)| !name.is_empty() && called(*index)) {
                family.sample(&[("node", node)], row.get(index).copied().unwrap_or(0));
            }
        }
        let help = "Drop reasons and events of nodes, as `show errors` counts them";
        let mut family = page.family("quiver_node_errors", Kind::Counter, "", help);
        for (node, reason, count) in &self.errors {
            family.sample(&[("node", node), ("reason", reason)], count);
        }
    }

    fn tables(&self, page: &mut Page) {
        for (what, name, unit, help) in TABLES {
            let mut family = page.family(name, Kind::Gauge, unit, help);
            for (word, version) in [("ip4", "4"), ("ip6", "6")] {
                if let Some(value) = self.numbers.get(&format!("/net/{word}/{what}")) {
                    family.sample(&[("version", version)], value);
                }
            }
        }
        let mut family = page.family("quiver_nat44_sessions", Kind::Gauge, "", "Sessions that NAT44 has");
        for (thread, sessions) in self.nat_sessions.iter().enumerate() {
            family.sample(&[("thread", &thread.to_string())], sessions);
        }
        if let Some(limit) = self.numbers.get("/nat44-ed/max-cfg-sessions") {
            page.family("quiver_nat44_sessions_limit", Kind::Gauge, "", "Sessions that NAT44 may have").sample(&[], limit);
        }
        let help = "Packets that NAT44 has translated, by protocol, or dropped";
        let mut family = page.family("quiver_nat44_packets", Kind::Counter, "packets", help);
        for (direction, path, what, packets) in &self.nat {
            family.sample(&[("direction", direction), ("path", path), ("what", what)], packets);
        }
        let mut family = page.family("quiver_bfd_sessions", Kind::Gauge, "", "BFD sessions");
        for (version, hops, name) in [
            ("4", "single", "/bfd/udp4/sessions"),
            ("6", "single", "/bfd/udp6/sessions"),
            ("4", "multi", "/bfd/udp4/sessions_mh"),
            ("6", "multi", "/bfd/udp6/sessions_mh"),
        ] {
            if let Some(sessions) = self.numbers.get(name) {
                family.sample(&[("version", version), ("hops", hops)], sessions);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_graph::stats::Stats;
    use quiver_segment::Segment;

    #[test]
    fn counters_become_metrics_with_names_instead_of_numbers() {
        let stats = Stats::new(1 << 26).unwrap();
        let (received, drops) = (stats.combined("/if/rx", 8), stats.simple("/if/drops", 8));
        received.set_len(3);
        drops.set_len(3);
        received.add(0, 1, 2, 120);
        drops.add(0, 2, 9);
        // 0 was never named, as a removed interface.
        assert!(stats.names("/if/names").set(1, "eth0") && stats.names("/if/names").set(2, "loop0"));
        let (calls, vectors) = (stats.simple("/sys/node/calls", 8), stats.simple("/sys/node/vectors", 8));
        calls.set_len(2);
        vectors.set_len(2);
        calls.add(0, 0, 4);
        vectors.add(0, 0, 40);
        assert!(stats.names("/sys/node/names").set(0, "ip4-input") && stats.names("/sys/node/names").set(1, "idle"));
        let errors = stats.simple("/node/errors", 8);
        errors.set_len(1);
        errors.add(0, 0, 3);
        stats.symlink("/err/ip4-input/ttl <= 1", "/node/errors", 0).unwrap();
        stats.gauge("/buffer-pools/default/used").set(17);
        stats.gauge("/net/ip4/fib/routes").set(1_000_000);
        stats.gauge("/net/ip6/neighbors").set(2);
        stats.gauge("/sys/num_worker_threads").set(1);
        let loops = stats.simple("/sys/loops_per_worker", 4);
        loops.set_len(2);
        loops.add(0, 1, 4000);
        let usage = Usage { resident_bytes: Some(4096), threads: vec![("quiver_main".to_owned(), 0.5)] };
        let mut segment = Segment::of(stats.fd().try_clone_to_owned().unwrap(), None).unwrap();
        let page = segment.read(Snapshot::of).unwrap().page(&usage);
        for line in [
            "quiver_interface_receive_packets_total{interface=\"eth0\"} 2",
            "quiver_interface_receive_bytes_total{interface=\"eth0\"} 120",
            "quiver_interface_receive_bytes_total{interface=\"loop0\"} 0",
            "quiver_interface_drop_packets_total{interface=\"loop0\"} 9",
            "quiver_node_packets_total{node=\"ip4-input\"} 40",
            "quiver_node_errors_total{node=\"ip4-input\",reason=\"ttl <= 1\"} 3",
            "quiver_buffers{pool=\"default\",state=\"used\"} 17",
            "quiver_memory_resident_bytes 4096",
            "quiver_fib_routes{version=\"4\"} 1000000",
            "quiver_neighbors{version=\"6\"} 2",
            "quiver_thread_poll_interval_seconds{thread=\"quiver_wk_0\"} 0.00025",
            "quiver_thread_cpu_seconds_total{thread=\"quiver_main\"} 0.5",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("interface=\"\"") && !page.contains("idle"), "{page}");
        // A family stands once.
        let mut families: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let count = families.len();
        families.dedup();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count);
    }
}
