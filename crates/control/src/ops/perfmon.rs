//! `perfmon start`, `perfmon stop`, `show perfmon`: what the kernel and the processor count of the router's threads.

use std::fmt::Write as _;
use std::io;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use serde::Serialize;

use super::threads::threads;
use crate::perf::{Count, Counters, Event};
use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<StartPerfmon>().declare::<StopPerfmon>().declare::<ShowPerfmon>();
}

/// Counting, in the daemon's state.
#[derive(Debug, Default)]
pub struct Perfmon(Option<Counting>);

#[derive(Debug)]
struct Counting {
    kernel: bool,
    /// When it began and, where it has, ended, ns of the router's clock.
    since: u64,
    until: Option<u64>,
    threads: Vec<Counted>,
}

/// A thread that is counted for.
#[derive(Debug)]
struct Counted {
    id: usize,
    name: String,
    counters: Counters,
    /// Packets that its input nodes had brought in when counting began and, where it has, ended.
    before: u64,
    after: Option<u64>,
}

/// Packets that input nodes of a thread have brought in.
fn packets(router: &mut Router, thread: usize) -> u64 {
    router.graph.loop_figures().into_iter().find(|(id, _)| *id == thread).map_or(0, |(_, figures)| figures.input)
}

fn refused(error: &io::Error) -> OpError {
    let text = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "perf events are not allowed here: give the router CAP_PERFMON, or set kernel.perf_event_paranoid to 1 or less"
                .to_owned()
        }
        _ => format!("perf events cannot be counted: {error}"),
    };
    OpError::new(retval::SYSCALL_ERROR_1, text)
}

request! {
    /// Counts events of the processor for each thread, from now on.
    pub change StartPerfmon "perfmon_start" ["perfmon start"] {
        /// Also what the kernel does for the threads.
        pub kernel: bool = "kernel",
    }
}

impl Execute<Router> for StartPerfmon {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let mut counted = Vec::new();
        for thread in threads(router)? {
            let lwp = i32::try_from(thread.lwp).unwrap_or_default();
            let counters = Counters::open(lwp, self.kernel).map_err(|e| refused(&e))?;
            let before = packets(router, thread.id);
            counted.push(Counted { id: thread.id, name: thread.name, counters, before, after: None });
        }
        let since = router.graph.clock().now();
        System::of_mut(router)?.perfmon.0 = Some(Counting { kernel: self.kernel, since, until: None, threads: counted });
        Ok(Outcome::Done(()))
    }
}

fn not_started() -> OpError {
    OpError::new(retval::NO_SUCH_ENTRY, "nothing is counted: `perfmon start' begins it")
}

request! {
    /// Stops counting; `show perfmon' still shows what was counted.
    pub change StopPerfmon "perfmon_stop" ["perfmon stop"] {}
}

impl Execute<Router> for StopPerfmon {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let mut counting = System::of_mut(router)?.perfmon.0.take().ok_or_else(not_started)?;
        if counting.until.is_none() {
            counting.until = Some(router.graph.clock().now());
            for thread in &mut counting.threads {
                thread.after = Some(packets(router, thread.id));
                thread.counters.stop().map_err(|e| refused(&e))?;
            }
        }
        System::of_mut(router)?.perfmon.0 = Some(counting);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows events of the processor by thread, and for each packet.
    pub read ShowPerfmon "perfmon_show" ["show perfmon"] {}
}

/// The answer of [`ShowPerfmon`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerfmonPage {
    /// Whether it still counts.
    pub running: bool,
    /// Whether the kernel's work for the threads is counted, too.
    pub kernel: bool,
    /// Seconds of counting.
    pub seconds: f64,
    /// Threads.
    pub threads: Vec<ThreadEvents>,
    /// Events that cannot be counted here.
    pub missing: Vec<&'static str>,
}

/// A thread's events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadEvents {
    /// Its number; 0 is main.
    pub thread: usize,
    /// Its name.
    pub name: String,
    /// Packets that its input nodes brought in meanwhile.
    pub packets: u64,
    /// Instructions a cycle, where both are counted.
    pub ipc: Option<f64>,
    /// The events.
    pub events: Vec<EventCount>,
}

/// An event's count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventCount {
    /// What the kernel calls it.
    pub name: &'static str,
    /// How many; of `task-clock`, ns.
    pub count: u64,
    /// How many for each packet, where there were packets.
    pub per_packet: Option<f64>,
    /// Share of the time in which it was counted, 0 to 1; the count is scaled up to all of it.
    pub share: f64,
}

impl ThreadEvents {
    fn new(thread: usize, name: String, packets: u64, counts: &[Count]) -> Self {
        let of = |event| counts.iter().find(|c| c.event == event).map(|c| c.count as f64);
        let ipc = match (of(Event::Instructions), of(Event::Cycles)) {
            (Some(instructions), Some(cycles)) if cycles > 0.0 => Some(instructions / cycles),
            _ => None,
        };
        let event = |c: &Count| EventCount {
            name: c.event.name(),
            count: c.count,
            per_packet: (packets > 0).then(|| c.count as f64 / packets as f64),
            share: c.share,
        };
        Self { thread, name, packets, ipc, events: counts.iter().map(event).collect() }
    }
}

impl Execute<Router> for ShowPerfmon {
    type Reply = PerfmonPage;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PerfmonPage>, OpError> {
        let mut counting = System::of_mut(router)?.perfmon.0.take().ok_or_else(not_started)?;
        let page = counting.page(router);
        System::of_mut(router)?.perfmon.0 = Some(counting);
        Ok(Outcome::Done(page.map_err(|e| refused(&e))?))
    }
}

impl Counting {
    fn page(&mut self, router: &mut Router) -> io::Result<PerfmonPage> {
        let until = self.until.unwrap_or_else(|| router.graph.clock().now());
        let mut page = PerfmonPage {
            running: self.until.is_none(),
            kernel: self.kernel,
            seconds: until.saturating_sub(self.since) as f64 / 1e9,
            threads: Vec::new(),
            missing: Vec::new(),
        };
        for thread in &mut self.threads {
            // Figures that were cleared meanwhile begin anew.
            let packets = thread.after.unwrap_or_else(|| packets(router, thread.id)).saturating_sub(thread.before);
            let counts = thread.counters.read()?;
            page.threads.push(ThreadEvents::new(thread.id, thread.name.clone(), packets, &counts));
            for event in thread.counters.missing() {
                if !page.missing.contains(&event.name()) {
                    page.missing.push(event.name());
                }
            }
        }
        Ok(page)
    }
}

impl Text for PerfmonPage {
    fn text(&self, out: &mut String, _view: &View) {
        let state = if self.running { "counting" } else { "stopped" };
        let what = if self.kernel { "with the kernel's work for them" } else { "without the kernel's work for them" };
        let _ = writeln!(out, "Time {:.1}, {state}, {what}", self.seconds);
        let table = TextTable::new()
            .column("Event", 24, Align::Left)
            .column("Count", 18, Align::Right)
            .column("Per Packet", 14, Align::Right)
            .column("Counted", 10, Align::Right);
        for thread in &self.threads {
            let ipc = thread.ipc.map(|ipc| format!(", {ipc:.2} instructions a cycle")).unwrap_or_default();
            let _ = writeln!(out, "Thread {} {}: {} packets{ipc}", thread.thread, thread.name, thread.packets);
            table.heading(out);
            for event in &thread.events {
                let each = event.per_packet.map(|n| format!("{n:.3}")).unwrap_or_default();
                let share = format!("{:.0}%", event.share * 100.0);
                table.row(out, &[&event.name, &event.count, &each, &share]);
            }
        }
        if !self.missing.is_empty() {
            let _ = writeln!(out, "Not offered here: {}", self.missing.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_counts_for_each_packet_and_says_what_is_missing() {
        let count = |event, count, share| Count { event, count, share };
        let counts =
            [count(Event::Cycles, 41_000, 1.0), count(Event::Instructions, 145_000, 1.0), count(Event::LlcMisses, 500, 0.25)];
        let page = PerfmonPage {
            running: true,
            kernel: false,
            seconds: 1.5,
            threads: vec![ThreadEvents::new(1, "quiver_wk_0".into(), 1000, &counts), ThreadEvents::new(0, "main".into(), 0, &[])],
            missing: vec![Event::DtlbMisses.name()],
        };
        let mut out = String::new();
        page.text(&mut out, &View::TEXT);
        for line in [
            "Time 1.5, counting, without the kernel's work for them",
            "Thread 1 quiver_wk_0: 1000 packets, 3.54 instructions a cycle",
            "Thread 0 main: 0 packets",
            "Not offered here: dTLB-load-misses",
        ] {
            assert!(out.lines().any(|l| l == line), "{line}\n{out}");
        }
        let cells = |name: &str| -> Vec<String> {
            let line = out.lines().find(|l| l.starts_with(name)).expect("a row");
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(cells("instructions"), ["instructions", "145000", "145.000", "100%"]);
        assert_eq!(cells("cache-misses"), ["cache-misses", "500", "0.500", "25%"]);
    }
}
