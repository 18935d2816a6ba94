//! Phases over the tester's ports: the left one is the initiator's, the right one the responder's.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connections::{Connections, Part};
use super::phase::{Apparatus, Phase, StatefulError};
use super::procedure::Measure;
use super::table::{Checker, Column, Learner, StateTable, Task};
use crate::bench::Bench;
use crate::port::Engine;
use crate::profile::supply::{Supply, Values};
use crate::profile::{Burst, Field, Ip, Ports, Profile, Side, Size, Stream, Vlan};
use crate::report::Report;
use crate::trial::{self, Plan, Progress, Told};
use crate::units::Rate;

/// Bytes around an IP packet of a test frame: Ethernet header and FCS.
const AROUND: usize = 14 + 4;
/// How late 99 % of the departures may be where connections are counted and their rate is not the question.
const NO_HURRY: Duration = Duration::from_secs(10);
/// How late the last frames of a phase may leave that has a fixed number of them: it ends with the last one.
const LATE: Duration = Duration::from_secs(10);
/// How often it is looked whether the clear command has ended.
const LOOK: Duration = Duration::from_micros(200);
/// What a command can say at most before its end is waited for, and is told, bytes.
const SAID: u64 = 4096;

/// Directions of phase 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    /// Both at once.
    #[default]
    Both,
    /// From the initiator.
    Forward,
    /// From the responder.
    Reverse,
}

impl std::str::FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "both" => Ok(Self::Both),
            "forward" => Ok(Self::Forward),
            "reverse" => Ok(Self::Reverse),
            _ => Err(format!("`{text}' is no direction: both, forward (from the initiator) or reverse")),
        }
    }
}

/// What phases need to know.
#[derive(Clone, Debug)]
pub struct Course {
    /// What is measured.
    pub measure: Measure,
    /// Bytes of the initiator's frames with FCS. The responder's are as long as what came out of the device.
    pub size: u16,
    /// Seconds of sending in phase 2.
    pub duration: Duration,
    /// How long to wait for what is under way after each phase.
    pub timeout: Duration,
    /// Directions of phase 2.
    pub flow: Flow,
    /// Command that empties the device's table, for the shell.
    pub clear: Option<String>,
    /// How long it may take.
    pub clear_within: Duration,
    /// The 99th percentile of departure errors that is still taken for good pacing.
    pub departure_limit: Duration,
    /// How long to wait for links and neighbours.
    pub patience: Duration,
    /// Seed of what is drawn.
    pub seed: u64,
}

impl Default for Course {
    fn default() -> Self {
        Self {
            measure: Measure::Connections,
            size: 64,
            duration: Duration::from_secs(10),
            timeout: Duration::from_millis(500),
            flow: Flow::Both,
            clear: None,
            clear_within: Duration::from_secs(60),
            departure_limit: Duration::from_millis(1),
            patience: Duration::from_secs(10),
            seed: 1,
        }
    }
}

/// A device between the tester's ports.
pub struct Gateway<'a> {
    bench: &'a mut Bench,
    connections: Arc<Connections>,
    course: Course,
    table: Option<Arc<StateTable>>,
    /// Tags of the initiator's frames, and of the responder's.
    tags: [Vec<Vlan>; 2],
    /// Connections that phase 1 was asked for.
    asked: u64,
    watch: &'a mut dyn FnMut(&Progress) -> bool,
}

impl<'a> Gateway<'a> {
    /// Over two ports that are open.
    ///
    /// # Errors
    /// They are not of a kind that can learn, or the measurement lacks something.
    pub fn new(
        bench: &'a mut Bench,
        connections: Connections,
        course: Course,
        watch: &'a mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Self, StatefulError> {
        let wrong = |text: String| Err(StatefulError::Setting(text));
        let ports = bench.ports();
        if ports.len() != 2 {
            return wrong(format!("{} ports are open: the initiator's and the responder's are needed", ports.len()));
        }
        for port in &*ports {
            if matches!(port.spec.engine, Engine::Xdp(_)) {
                return wrong(format!(
                    "port {}: the responder learns from whole frames, which stay in the kernel there: use af-xdp:",
                    port.spec
                ));
            }
        }
        let tags = [0, 1].map(|at| ports[at].spec.vlan.of_stream());
        if course.measure.needs_clear() && course.clear.is_none() {
            let measure = course.measure;
            return wrong(format!(
                "{measure} begins each step with an empty table: give --clear COMMAND, which empties the device's"
            ));
        }
        Ok(Self { bench, connections: Arc::new(connections), course, table: None, tags, asked: 0, watch })
    }

    fn plan(&self, streams: Vec<Stream>, pps: f64, duration: Duration, departure_limit: Duration) -> Plan {
        let name = format!("stateful {}", self.course.measure);
        let profile = Profile { schema: None, name, description: None, bidirectional: false, streams };
        Plan {
            rate: Some(Rate::Pps(pps)),
            duration,
            settle: self.course.timeout,
            departure_limit,
            patience: self.course.patience,
            seed: self.course.seed,
            ..Plan::new(profile)
        }
    }

    /// The initiator's stream, or the responder's where there is a table.
    fn stream(&self, table: Option<&Arc<StateTable>>, count: u64, seed: Option<u64>) -> Result<Stream, StatefulError> {
        let field = |part| -> Arc<dyn Values> {
            match table {
                None => Arc::new(Column { of: self.connections.clone(), part }),
                Some(table) => Arc::new(Column { of: table.clone(), part }),
            }
        };
        fn supplied<T>(values: Arc<dyn Values>, count: u64, seed: Option<u64>) -> Option<Field<T>> {
            Some(Field::Supplied(Supply { values, count, seed }))
        }
        let ports = Ports {
            src: supplied(field(Part::SrcPort), count, seed),
            dst: supplied(field(Part::DstPort), count, seed),
            flags: None,
        };
        let name = if table.is_some() { "responder" } else { "initiator" };
        let vlan = self.tags[usize::from(table.is_some())].clone();
        let mut stream = Stream { udp: Some(ports), vlan, ..Stream::named(name) };
        let is_ipv4 = table.map_or(self.connections.ends().initiators.first().is_ipv4(), |t| t.is_ipv4());
        fn header<T>(field: impl Fn(Part) -> Arc<dyn Values>, count: u64, seed: Option<u64>) -> Option<Ip<T>> {
            let (src, dst) = (supplied(field(Part::Src), count, seed), supplied(field(Part::Dst), count, seed));
            Some(Ip { src, dst, ttl: 64, dscp: 0 })
        }
        if is_ipv4 {
            stream.ipv4 = header(field, count, seed);
        } else {
            stream.ipv6 = header(field, count, seed);
        }
        let size = match table {
            None => self.course.size,
            Some(table) => ((table.packet() + AROUND + 4 * stream.vlan.len()) as u16).max(stream.smallest()),
        };
        stream.from = if table.is_some() { Side::Right } else { Side::Left };
        stream.size = Some(Size::Fixed(size));
        stream.check_size(&Size::Fixed(size)).map_err(|error| StatefulError::Setting(format!("{name}: {error}")))?;
        Ok(stream)
    }

    /// Each of so many frames once.
    fn once(&self, mut stream: Stream, count: u64, pps: f64) -> Plan {
        stream.burst = Some(Burst { frames: count, count: None, gap: None });
        // Room for all of them to leave late: how late is told by their departure errors, and the burst ends by itself.
        let duration = Duration::from_secs_f64((count as f64 + 1.0) / pps) + LATE;
        let limit = self.course.departure_limit;
        let limit = if self.course.measure == Measure::EstablishmentRate { limit } else { limit.max(NO_HURRY) };
        self.plan(vec![stream], pps, duration, limit)
    }

    fn run(&mut self, plan: &Plan, task: Option<(usize, Task)>) -> Result<(Report, Option<Task>), StatefulError> {
        Ok(trial::run_with(self.bench, plan, task, &mut Told(self.watch))?)
    }

    /// Waits for the clear command, and looks after the ports meanwhile.
    fn wait(&mut self, child: &mut Child) -> Result<Duration, String> {
        let began = Instant::now();
        let mut looked = began;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                if status.success() {
                    return Ok(began.elapsed());
                }
                let mut said = String::new();
                let _ = child.stderr.take().map(|e| e.take(SAID).read_to_string(&mut said));
                return Err(match said.lines().rfind(|l| !l.trim().is_empty()) {
                    Some(line) => format!("{} ({status})", line.trim()),
                    None => format!("it ended with {status}"),
                });
            }
            if began.elapsed() > self.course.clear_within {
                return Err(format!("it did not end within {} s", self.course.clear_within.as_secs_f64()));
            }
            if looked.elapsed() > Duration::from_millis(2) {
                looked = Instant::now();
                self.bench.serve();
                if !(self.watch)(&Progress::default()) {
                    return Err("interrupted".to_owned());
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn phase(report: &Report, pps: f64, connections: u64, misdirected: u64) -> Phase {
    let counts = &report.totals;
    Phase {
        rate_pps: pps,
        intended: counts.intended,
        sent: counts.sent,
        received: counts.received,
        connections,
        misdirected,
        valid: report.head.valid,
        reasons: report.head.reasons.clone(),
        aborted: report.head.aborted,
    }
}

impl Apparatus for Gateway<'_> {
    fn clear(&mut self) -> Result<Option<Duration>, StatefulError> {
        let Some(command) = self.course.clear.clone() else { return Ok(None) };
        let failed = |error: String| StatefulError::Clear { command: command.clone(), error };
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = shell.spawn().map_err(|e| failed(e.to_string()))?;
        let result = self.wait(&mut child);
        if result.is_err() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        result.map(Some).map_err(failed)
    }

    fn open(&mut self, connections: u64, pps: f64) -> Result<Phase, StatefulError> {
        (self.table, self.asked) = (None, connections);
        let stream = self.stream(None, connections, None)?;
        let plan = self.once(stream, connections, pps);
        let (report, task) = self.run(&plan, Some((1, Task::Learn(Learner::new(connections)))))?;
        let Some(Task::Learn(learner)) = task else { return Ok(phase(&report, pps, 0, 0)) };
        let learnt = learner.learnt();
        self.table = Some(Arc::new(learner.table())).filter(|table| !table.is_empty());
        Ok(phase(&report, pps, learnt, 0))
    }

    fn validate(&mut self, pps: f64) -> Result<Phase, StatefulError> {
        let Some(table) = self.table.clone() else { return Ok(Phase { rate_pps: pps, valid: true, ..Phase::default() }) };
        let stream = self.stream(Some(&table), table.len(), None)?;
        let plan = self.once(stream, table.len(), pps);
        let checker = Checker::new(table, self.connections.clone());
        let (report, task) = self.run(&plan, Some((0, Task::Check(checker))))?;
        let wrong = if let Some(Task::Check(checker)) = task { checker.wrong() } else { 0 };
        Ok(phase(&report, pps, report.totals.received, wrong))
    }

    fn traffic(&mut self, pps: f64) -> Result<(Phase, Option<Report>), StatefulError> {
        let Some(table) = self.table.clone() else { return Ok((Phase { rate_pps: pps, valid: true, ..Phase::default() }, None)) };
        // Drawn apart from one another, so that the directions do not keep step.
        let seeds = (self.course.seed, self.course.seed.wrapping_add(1));
        let mut streams = Vec::new();
        if self.course.flow != Flow::Reverse {
            streams.push(self.stream(None, self.asked, Some(seeds.0))?);
        }
        if self.course.flow != Flow::Forward {
            streams.push(self.stream(Some(&table), table.len(), Some(seeds.1))?);
        }
        let plan = self.plan(streams, pps, self.course.duration, self.course.departure_limit);
        let (report, _) = self.run(&plan, None)?;
        Ok((phase(&report, pps, report.totals.received, 0), Some(report)))
    }
}
