//! `show threads`, `show cpu`.

use std::fmt::Write as _;

use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_graph::thread_name;
use quiver_net::Router;
use serde::Serialize;

use crate::system::System;

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<ShowThreads>().declare::<ShowCpu>();
}

request! {
    /// Shows the threads and where they run.
    pub read ShowThreads "threads_show" ["show threads"] {}
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thread {
    /// Number; 0 is main.
    pub id: usize,
    /// Name.
    pub name: String,
    /// `workers`, or nothing for main.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The kernel's number of it.
    pub lwp: u64,
    /// Scheduling policy.
    pub policy: &'static str,
    /// Scheduling priority.
    pub priority: u32,
    /// CPU that it is pinned to.
    pub lcore: Option<u32>,
    /// Core of that CPU.
    pub core: Option<u32>,
    /// Memory node of that CPU.
    pub socket: Option<u32>,
}

/// All threads: main, then workers.
pub fn threads(router: &Router) -> Result<Vec<Thread>, OpError> {
    let system = System::of(router)?;
    let place = |cpu: Option<u32>| {
        let cpu = cpu.and_then(|cpu| system.topology.cpu(cpu));
        (cpu.map(|cpu| cpu.id), cpu.map(|cpu| cpu.core), cpu.map(|cpu| cpu.numa))
    };
    let (lcore, core, socket) = place(system.main.cpu);
    let (policy, priority) = (system.startup.cpu.policy.name(), system.startup.cpu.priority);
    let lwp = u64::from(std::process::id());
    let mut threads = vec![Thread { id: 0, name: thread_name(0), kind: "", lwp, policy, priority, lcore, core, socket }];
    threads.extend(router.graph.thread_info().into_iter().map(|info| {
        let (lcore, core, socket) = place(info.cpu);
        let (policy, priority) = (info.scheduler.0.name(), info.scheduler.1);
        Thread { id: info.thread, name: info.name, kind: "workers", lwp: info.lwp, policy, priority, lcore, core, socket }
    }));
    Ok(threads)
}

impl Execute<Router> for ShowThreads {
    type Reply = Threads;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Threads>, OpError> {
        Ok(Outcome::Done(Threads(threads(router)?)))
    }
}

/// The answer of [`ShowThreads`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Threads(pub Vec<Thread>);

impl Text for Threads {
    fn text(&self, out: &mut String, _view: &View) {
        let left = |table: TextTable, heading, width| table.column_with(heading, Align::Left, width, Align::Left);
        let columns = [
            ("ID", 7),
            ("Name", 20),
            ("Type", 12),
            ("LWP", 8),
            ("Sched Policy (Priority)", 25),
            ("lcore", 7),
            ("Core", 7),
            ("Socket", 7),
            ("State", 10),
        ];
        let table = columns.into_iter().fold(TextTable::new(), |table, (heading, width)| left(table, heading, width));
        table.heading(out);
        let number = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        for thread in &self.0 {
            let policy = format!("{} ({})", thread.policy, thread.priority);
            let (lcore, core, socket) = (number(thread.lcore), number(thread.core), number(thread.socket));
            table.row(out, &[&thread.id, &thread.name, &thread.kind, &thread.lwp, &policy, &lcore, &core, &socket, &""]);
        }
    }
}

request! {
    /// Shows what the processor is and can do.
    pub read ShowCpu "cpu_show" ["show cpu"] {}
}

/// The answer of [`ShowCpu`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Processor {
    /// What it calls itself.
    pub model: String,
    /// Family, model and stepping.
    pub family: String,
    /// Instruction sets that matter here.
    pub flags: Vec<String>,
    /// Variant that nodes use unless told otherwise.
    pub variant: &'static str,
    /// Rate of the counter that "clocks" are read from, Hz.
    pub clock_hz: u64,
    /// Number of CPUs that are switched on.
    pub online: usize,
    /// Memory nodes.
    pub nodes: usize,
}

/// Flags worth showing, of the hundred or so.
const FLAGS: [&str; 20] = [
    "sse3",
    "pclmulqdq",
    "ssse3",
    "sse4_1",
    "sse4_2",
    "avx",
    "rdrand",
    "avx2",
    "bmi2",
    "rtm",
    "rdseed",
    "aes",
    "sha_ni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "vaes",
    "vpclmulqdq",
    "movdir64b",
    "invariant_tsc",
];

impl Processor {
    fn new(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let all = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let has = |flag: &&str| all.split_whitespace().any(|have| have == *flag);
        let mut flags: Vec<String> = FLAGS.iter().filter(|flag| has(flag)).map(|flag| (*flag).to_owned()).collect();
        if ["constant_tsc", "nonstop_tsc"].iter().all(has) {
            flags.push("invariant_tsc".to_owned());
        }
        let number = |name: &str| field(name).and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        Self {
            model: field("model name").unwrap_or_else(|| "unknown".to_owned()),
            family: format!("[{:#x}] [{:#x}] stepping {:#x}", number("cpu family"), number("model"), number("stepping")),
            flags,
            variant: quiver_graph::Level::best().name(),
            clock_hz: 0,
            online: 0,
            nodes: 0,
        }
    }
}

impl Execute<Router> for ShowCpu {
    type Reply = Processor;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Processor>, OpError> {
        let topology = &System::of(router)?.topology;
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Ok(Outcome::Done(Processor {
            clock_hz: router.graph.clock().ticks_per_second(),
            online: topology.cpus().iter().filter(|cpu| cpu.online).count(),
            nodes: topology.nodes().len(),
            ..Processor::new(&cpuinfo)
        }))
    }
}

impl Text for Processor {
    fn text(&self, out: &mut String, _view: &View) {
        let base = format!("{:.2} GHz", self.clock_hz as f64 / 1e9);
        let cpus = format!("{} on {} memory node(s)", self.online, self.nodes);
        let rows: [(&str, &str); 6] = [
            ("Model name:", &self.model),
            ("Microarch model (family):", &self.family),
            ("Flags:", &self.flags.join(" ")),
            ("Base frequency:", &base),
            ("CPUs:", &cpus),
            ("Node variant:", self.variant),
        ];
        for (name, value) in rows {
            let _ = writeln!(out, "{name:<25} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_threads_has_the_usual_columns() {
        let main = Thread {
            id: 0,
            name: "vpp_main".into(),
            kind: "",
            lwp: 31476,
            policy: "other",
            priority: 0,
            lcore: Some(1),
            core: Some(1),
            socket: Some(0),
        };
        let worker =
            Thread { id: 1, name: "vpp_wk_0".into(), kind: "workers", lcore: None, core: None, socket: None, ..main.clone() };
        let mut out = String::new();
        Threads(vec![main, worker]).text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "\
ID     Name                Type        LWP     Sched Policy (Priority)  lcore  Core   Socket State     
0      vpp_main                        31476   other (0)                1      1      0                
1      vpp_wk_0            workers     31476   other (0)                                               
"
        );
    }

    #[test]
    fn the_processor_is_described_from_what_the_kernel_says() {
        let text = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9B14\nstepping\t: 1\n\
                    flags\t\t: fpu avx avx2 constant_tsc nonstop_tsc\n";
        let processor = Processor::new(text);
        assert_eq!((processor.model.as_str(), processor.family.as_str()), ("AMD EPYC 9B14", "[0x19] [0x11] stepping 0x1"));
        assert_eq!(processor.flags, ["avx", "avx2", "invariant_tsc"]);
        assert_eq!(Processor::new("").model, "unknown");
    }
}
