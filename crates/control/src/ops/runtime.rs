//! `show runtime`, `clear runtime`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quiver_command::grammar::{Args, Command};
use quiver_command::operation::{Access, Align, Invocation, OpError, Operation, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::{ABSENCE_BOUNDS, Absences, LoopFigures, NodeFigures, NodeKind, NodePeak, thread_name};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use crate::process::State;
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<ShowRuntime>().declare::<ClearRuntime>().command_of::<ShowRuntime>(Command {
        path: "show runtime",
        syntax: "[<node>] [time] [brief|verbose] [max] [summary] [absences]",
        help: "Shows how often nodes ran, with how many packets, at which cost",
        parse,
    });
}

fn parse(args: &mut Args<'_>, router: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = ShowRuntimeRequest::default();
    while let Some(word) = args.peek() {
        if router.graph.node(&word).is_some() || process_exists(router, &word) {
            request.node = Some(args.word("node")?.into_owned());
        } else if args.take_keyword("time") {
            request.by_time = true;
        } else if args.take_keyword("brief") {
            request.verbose = false;
        } else if args.take_keyword("verbose") {
            request.verbose = true;
        } else if args.take_keyword("max") {
            request.max = true;
        } else if args.take_keyword("summary") {
            request.summary = true;
        } else if args.take_keyword("absences") {
            request.absences = true;
        } else {
            return Err(args.unexpected());
        }
    }
    Ok(Invocation::new::<ShowRuntime>(request))
}

fn process_exists(router: &Router, name: &str) -> bool {
    router.processes().iter().any(|process| process.name == name)
        || System::of(router).is_ok_and(|system| system.processes.figures().iter().any(|(known, _)| known == name))
}

/// Shows the figures of threads and nodes.
pub struct ShowRuntime;

/// What [`ShowRuntime`] shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowRuntimeRequest {
    /// Only this node.
    pub node: Option<String>,
    /// The most expensive nodes first, in place of by name.
    pub by_time: bool,
    /// Also nodes that did nothing.
    pub verbose: bool,
    /// The most expensive calls in place of the sums.
    pub max: bool,
    /// Threads only.
    pub summary: bool,
    /// How long threads did not look at their devices, in place of the nodes.
    pub absences: bool,
}

/// The answer of [`ShowRuntime`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Runtime {
    /// Threads with their nodes.
    pub threads: Vec<ThreadRuntime>,
    /// Whether the most expensive calls were asked for.
    #[serde(skip)]
    pub max: bool,
    /// Whether nodes are left out.
    #[serde(skip)]
    pub summary: bool,
    /// Whether absences were asked for.
    #[serde(skip)]
    pub absences: bool,
}

/// Figures of a thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRuntime {
    /// Its number.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// CPU that it is pinned to.
    pub lcore: Option<u32>,
    /// Seconds since the figures were cleared.
    pub seconds: f64,
    /// Seconds that the next two rates are about.
    pub interval: f64,
    /// Packets in a call of an internal node.
    pub vector_rate: f64,
    /// Turns of the loop in a second.
    pub loops_per_second: f64,
    /// Packets brought in, a second.
    pub in_pps: f64,
    /// Packets sent, a second.
    pub out_pps: f64,
    /// Packets dropped, a second.
    pub drop_pps: f64,
    /// Packets punted, a second.
    pub punt_pps: f64,
    /// How long it did not look at its devices, from one poll to the next.
    pub absences: AbsenceFigures,
    /// Its nodes.
    pub nodes: Vec<NodeRuntime>,
}

/// How often a thread did not look at its devices for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AbsenceFigures {
    /// By length.
    pub classes: Vec<AbsenceClass>,
    /// The longest of its own doing, ns.
    pub longest_own_ns: u64,
    /// The longest in which the kernel ran another thread, ns.
    pub longest_preempted_ns: u64,
}

/// Absences of about the same length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbsenceClass {
    /// From so many µs on.
    pub from_us: u64,
    /// Below so many µs, if there is a bound.
    pub below_us: Option<u64>,
    /// Of its own doing.
    pub own: u64,
    /// In which the kernel ran another thread.
    pub preempted: u64,
}

impl AbsenceFigures {
    fn new(absences: &Absences) -> Self {
        let froms = std::iter::once(ABSENCE_LEAST).chain(ABSENCE_BOUNDS);
        let belows = ABSENCE_BOUNDS.into_iter().map(Some).chain([None]);
        let counts = absences.own.iter().zip(&absences.preempted);
        let class = |((from_us, below_us), (own, preempted)): ((u64, Option<u64>), (&u64, &u64))| AbsenceClass {
            from_us,
            below_us,
            own: *own,
            preempted: *preempted,
        };
        Self {
            classes: froms.zip(belows).zip(counts).map(class).collect(),
            longest_own_ns: absences.longest_own,
            longest_preempted_ns: absences.longest_preempted,
        }
    }

    fn text(&self, out: &mut String) {
        let table = TextTable::new().column("Not polled for", 20, Align::Left);
        let table = table.column("Own", 16, Align::Right).column("Preempted", 16, Align::Right);
        table.heading(out);
        for AbsenceClass { from_us, below_us, own, preempted } in &self.classes {
            let class = below_us.map_or_else(|| format!("from {from_us} us"), |below| format!("{from_us} to {below} us"));
            table.row(out, &[&class, own, preempted]);
        }
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        table.row(out, &[&"longest", &us(self.longest_own_ns), &us(self.longest_preempted_ns)]);
    }
}

/// Shorter absences are not counted, µs.
const ABSENCE_LEAST: u64 = 10;

/// Figures of a node on a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeRuntime {
    /// Name.
    pub name: String,
    /// `polling`, `active`, `fused` for a node of a line (whose clocks are with its first node), or what a process waits for.
    pub state: &'static str,
    /// Times it ran.
    pub calls: u64,
    /// Packets.
    pub vectors: u64,
    /// Times a process gave the thread back.
    pub suspends: u64,
    /// Ticks in all.
    pub clocks: u64,
    /// The most expensive call: ticks.
    pub max_clocks: u64,
    /// The most expensive call: packets.
    pub max_vectors: u64,
}

impl NodeRuntime {
    /// Ticks for a packet; for a call or a suspend where there were no packets.
    pub fn clocks_each(&self) -> f64 {
        let by = [self.vectors, self.calls.max(self.suspends)].into_iter().find(|n| *n > 0);
        by.map_or(0.0, |n| self.clocks as f64 / n as f64)
    }

    /// Packets in a call.
    pub fn vectors_per_call(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.vectors as f64 / self.calls as f64 }
    }

    fn is_idle(&self) -> bool {
        self.calls == 0 && self.suspends == 0
    }
}

impl Operation<Router> for ShowRuntime {
    const NAME: &'static str = "runtime_show";
    const ACCESS: Access = Access::Read;
    type Request = ShowRuntimeRequest;
    type Reply = Runtime;

    fn run(router: &mut Router, request: ShowRuntimeRequest) -> Result<Outcome<Router, Runtime>, OpError> {
        if let Some(node) = &request.node
            && router.graph.node(node).is_none()
            && !process_exists(router, node)
        {
            let error = OpError::new(retval::NO_SUCH_NODE, "no such node").key("node").value(node);
            return Err(error.remedy("`show runtime verbose' lists them"));
        }
        let mut threads = collect(router)?;
        for thread in &mut threads {
            let wanted = |node: &NodeRuntime| match &request.node {
                Some(name) => node.name == *name,
                None => request.verbose || !node.is_idle(),
            };
            thread.nodes.retain(wanted);
            match request.by_time {
                true => thread.nodes.sort_by_key(|node| std::cmp::Reverse(node.clocks)),
                false => thread.nodes.sort_by(|a, b| a.name.cmp(&b.name)),
            }
            if request.summary || request.absences {
                thread.nodes.clear();
            }
        }
        let ShowRuntimeRequest { max, summary, absences, .. } = request;
        Ok(Outcome::Done(Runtime { threads, max, summary, absences }))
    }
}

/// The figures of all threads and nodes.
pub fn collect(router: &mut Router) -> Result<Vec<ThreadRuntime>, OpError> {
    let now = router.graph.clock().now();
    let mut loops: BTreeMap<usize, LoopFigures> = router.graph.loop_figures().into_iter().collect();
    let peaks: BTreeMap<usize, Vec<NodePeak>> = router.graph.node_peaks().into_iter().collect();
    let nodes = router.graph.nodes();
    let system = System::of(router)?;
    // Main's loop turns even where it has no graph.
    loops.entry(0).or_insert(LoopFigures { loops: system.main.loops, since: system.runtime_cleared, ..LoopFigures::default() });
    let lcores: BTreeMap<usize, Option<u32>> =
        router.graph.thread_info().into_iter().map(|info| (info.thread, info.cpu)).chain([(0, system.main.cpu)]).collect();

    let mut threads = Vec::new();
    for (thread, figures) in loops {
        let mut rows = Vec::new();
        let (mut sent, mut dropped, mut punted) = (0, 0, 0);
        for node in nodes.iter().filter(|_| peaks.contains_key(&thread)) {
            let NodeFigures { calls, vectors, clocks, suspends } = router.graph.figures(node.id, thread);
            match node.name.as_str() {
                "error-drop" | "null-node" => dropped += vectors,
                "error-punt" => punted += vectors,
                name if name.ends_with("-tx") => sent += vectors,
                _ => {}
            }
            let peak = peaks.get(&thread).and_then(|peaks| peaks.get(usize::from(node.id.0))).copied().unwrap_or_default();
            rows.push(NodeRuntime {
                name: node.name.clone(),
                state: match node.kind {
                    NodeKind::Input => "polling",
                    NodeKind::Internal if router.graph.is_fused(node.id) => "fused",
                    NodeKind::Internal => "active",
                },
                calls,
                vectors,
                suspends,
                clocks,
                max_clocks: peak.clocks,
                max_vectors: peak.vectors,
            });
        }
        if thread == 0 {
            rows.extend(system.processes.figures().into_iter().map(|(name, figures)| NodeRuntime {
                name,
                state: State::name(figures.state),
                calls: figures.calls,
                vectors: 0,
                suspends: figures.suspends,
                clocks: figures.clocks,
                max_clocks: 0,
                max_vectors: 0,
            }));
            rows.extend(router.processes().iter().map(|process| NodeRuntime {
                name: process.name.to_owned(),
                state: State::name(if process.due == u64::MAX { State::EventWait } else { State::AnyWait }),
                calls: process.calls,
                vectors: 0,
                // Each of its runs ends with a wait.
                suspends: process.calls,
                clocks: process.clocks,
                max_clocks: 0,
                max_vectors: 0,
            }));
        }
        let seconds = now.saturating_sub(figures.since) as f64 / 1e9;
        let rate = |n: u64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let window = system.samples.window(thread, &figures, now);
        threads.push(ThreadRuntime {
            thread,
            name: thread_name(thread),
            lcore: lcores.get(&thread).copied().flatten(),
            seconds,
            interval: window.seconds,
            vector_rate: window.vector_rate,
            loops_per_second: window.loops_per_second,
            in_pps: rate(figures.input),
            out_pps: rate(sent),
            drop_pps: rate(dropped),
            punt_pps: rate(punted),
            absences: AbsenceFigures::new(&figures.absences),
            nodes: rows,
        });
    }
    Ok(threads)
}

impl Text for Runtime {
    fn text(&self, out: &mut String, _view: &View) {
        for (place, thread) in self.threads.iter().enumerate() {
            if place > 0 {
                out.push_str("---------------\n");
            }
            if self.threads.len() > 1 {
                let lcore = thread.lcore.map(|cpu| format!(" (lcore {cpu})")).unwrap_or_default();
                let _ = writeln!(out, "Thread {} {}{lcore}", thread.thread, thread.name);
            }
            thread.heading(out);
            if self.absences {
                thread.absences.text(out);
            } else if !self.summary {
                thread.rows(out, self.max);
            }
        }
    }
}

impl ThreadRuntime {
    fn heading(&self, out: &mut String) {
        let Self { seconds, interval, vector_rate, loops_per_second, .. } = self;
        let _ = writeln!(
            out,
            "Time {seconds:.1}, {interval:.6} sec internal node vector rate {vector_rate:.2} loops/sec {loops_per_second:.2}"
        );
        let Self { in_pps, out_pps, drop_pps, punt_pps, .. } = self;
        let _ = writeln!(out, "  vector rates in {in_pps:.4e}, out {out_pps:.4e}, drop {drop_pps:.4e}, punt {punt_pps:.4e}");
    }

    fn rows(&self, out: &mut String, max: bool) {
        let table = TextTable::new().column("Name", 30, Align::Left);
        if max {
            let table = table
                .column("Max Node Clocks", 17, Align::Right)
                .column("Vectors at Max", 16, Align::Right)
                .column("Max Clocks", 16, Align::Right)
                .column("Avg Clocks", 16, Align::Right)
                .column("Avg Vectors/Call", 16, Align::Right);
            table.heading(out);
            for node in &self.nodes {
                let each = node.max_clocks.checked_div(node.max_vectors).unwrap_or(node.max_clocks);
                let cells =
                    [format!("{:.2e}", node.max_clocks as f64), node.max_vectors.to_string(), format!("{:.2e}", each as f64)];
                let more = [format!("{:.2e}", node.clocks_each()), format!("{:.2}", node.vectors_per_call())];
                table.row(out, &[&node.name, &cells[0], &cells[1], &cells[2], &more[0], &more[1]]);
            }
            return;
        }
        let table = table
            .column("State", 12, Align::Centre)
            .column("Calls", 16, Align::Right)
            .column("Vectors", 16, Align::Right)
            .column("Suspends", 16, Align::Right)
            .column("Packet-Clocks", 16, Align::Right)
            .column("Vectors/Call", 16, Align::Right);
        table.heading(out);
        for node in &self.nodes {
            let (clocks, each) = (format!("{:.2e}", node.clocks_each()), format!("{:.2}", node.vectors_per_call()));
            table.row(out, &[&node.name, &node.state, &node.calls, &node.vectors, &node.suspends, &clocks, &each]);
        }
    }
}

request! {
    /// Resets the figures of `show runtime'.
    pub change ClearRuntime "runtime_clear" ["clear runtime"] {}
}

impl Execute<Router> for ClearRuntime {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let now = router.graph.clock().now();
        router.graph.clear_runtime();
        router.clear_process_figures();
        let system = System::of_mut(router)?;
        system.processes.clear();
        system.samples.clear();
        (system.main.loops, system.runtime_cleared) = (0, now);
        Ok(Outcome::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: &'static str, calls: u64, vectors: u64, suspends: u64, clocks: u64) -> NodeRuntime {
        NodeRuntime { name: name.into(), state, calls, vectors, suspends, clocks, max_clocks: 510, max_vectors: 3 }
    }

    fn thread(nodes: Vec<NodeRuntime>) -> ThreadRuntime {
        ThreadRuntime {
            thread: 0,
            name: "quiver_main".into(),
            lcore: Some(1),
            seconds: 22.9,
            interval: 10.0,
            vector_rate: 1.8,
            loops_per_second: 1_898_354.87,
            in_pps: 0.13106,
            out_pps: 1.1792,
            drop_pps: 0.30575,
            punt_pps: 0.0,
            absences: AbsenceFigures::default(),
            nodes,
        }
    }

    #[test]
    fn show_runtime_has_the_usual_lines_and_columns() {
        let nodes = vec![node("ip4-lookup", "active", 2, 300, 0, 5_100), node("signal-process", "event wait", 1, 0, 19, 1_995_000)];
        let mut out = String::new();
        Runtime { threads: vec![thread(nodes)], max: false, summary: false, absences: false }.text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "\
Time 22.9, 10.000000 sec internal node vector rate 1.80 loops/sec 1898354.87
  vector rates in 1.3106e-1, out 1.1792e0, drop 3.0575e-1, punt 0.0000e0
             Name                 State         Calls          Vectors        Suspends      Packet-Clocks   Vectors/Call  
ip4-lookup                       active                  2             300               0          1.70e1          150.00
signal-process                 event wait                1               0              19          1.05e5            0.00
"
        );
    }

    #[test]
    fn several_threads_are_told_apart() {
        let worker = ThreadRuntime { thread: 1, name: "quiver_wk_0".into(), lcore: None, ..thread(Vec::new()) };
        let mut out = String::new();
        Runtime { threads: vec![thread(Vec::new()), worker], max: false, summary: true, absences: false }
            .text(&mut out, &View::TEXT);
        let lines: Vec<_> = out.lines().collect();
        assert_eq!((lines[0], lines[3], lines[4]), ("Thread 0 quiver_main (lcore 1)", "---------------", "Thread 1 quiver_wk_0"));
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn absences_are_shown_by_length_and_kind() {
        let absences = Absences { own: [7, 3, 0, 0, 0, 0, 0, 0], longest_own: 41_200, ..Absences::default() };
        let absences = Absences { preempted: [0, 0, 0, 0, 0, 0, 2, 0], longest_preempted: 3_960_000, ..absences };
        let thread = ThreadRuntime { absences: AbsenceFigures::new(&absences), ..thread(Vec::new()) };
        let mut out = String::new();
        Runtime { threads: vec![thread], max: false, summary: false, absences: true }.text(&mut out, &View::TEXT);
        let words =
            |begin: &str| out.lines().find(|line| line.starts_with(begin)).map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(words("10 to 20 us"), Some(vec!["10", "to", "20", "us", "7", "0"]));
        assert_eq!(words("1000 to 10000 us"), Some(vec!["1000", "to", "10000", "us", "0", "2"]));
        assert_eq!(words("from 10000 us"), Some(vec!["from", "10000", "us", "0", "0"]));
        assert_eq!(words("longest"), Some(vec!["longest", "41.2", "us", "3960.0", "us"]));
    }

    #[test]
    fn the_most_expensive_calls_have_columns_of_their_own() {
        let mut out = String::new();
        let nodes = vec![node("ip4-lookup", "active", 2, 300, 0, 5_100)];
        Runtime { threads: vec![thread(nodes)], max: true, summary: false, absences: false }.text(&mut out, &View::TEXT);
        let row = out.lines().last().unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["ip4-lookup", "5.10e2", "3", "1.70e2", "1.70e1", "150.00"]);
    }
}
