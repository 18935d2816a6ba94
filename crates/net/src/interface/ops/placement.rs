//! `set interface rx-placement`, `set interface rx-mode`, `show interface rx-placement`.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request, words};
use quiver_graph::{RxMode, thread_name};
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::ops::{chosen, resolve};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetPlacement>().declare::<SetMode>().declare::<SetDefaultMode>().declare::<ShowPlacement>();
}

fn parse_placement(args: &mut Args<'_>) -> Result<SetPlacement, OpError> {
    let interface = args.interface()?;
    let queue = if args.take_keyword("queue") { args.number("queue")? } else { 0 };
    let worker = match args.expect_one_of(&[("worker", true), ("main", false)])? {
        true => Some(args.number("worker")?),
        false => None,
    };
    Ok(SetPlacement { interface, queue, worker })
}

fn placement_command(SetPlacement { interface, queue, worker }: &SetPlacement) -> Option<String> {
    let to = worker.map_or_else(|| "main".to_owned(), |worker| format!("worker {worker}"));
    Some(format!("set interface rx-placement {} queue {queue} {to}", quote(interface.as_str())))
}

words! {
    /// A mode, by VPP's word.
    pub enum Mode {
        /// Polled without end.
        Polling = "polling",
        /// The thread sleeps until the device's event.
        Interrupt = "interrupt",
        /// Polled while packets come, then asleep until the device's event.
        Adaptive = "adaptive",
    }
}

impl Mode {
    /// The word for a mode.
    pub const fn of(mode: RxMode) -> Self {
        match mode {
            RxMode::Polling => Self::Polling,
            RxMode::Interrupt => Self::Interrupt,
            RxMode::Adaptive => Self::Adaptive,
        }
    }
}

impl From<Mode> for RxMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Polling => Self::Polling,
            Mode::Interrupt => Self::Interrupt,
            Mode::Adaptive => Self::Adaptive,
        }
    }
}

/// Moves a receive queue to another thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPlacement {
    /// Interface.
    pub interface: IfRef,
    /// Queue.
    #[serde(default)]
    pub queue: u16,
    /// Worker, from 0; absent: the main thread.
    #[serde(default)]
    pub worker: Option<u16>,
}

commands! {
    change SetPlacement "rx_placement_set" {
        /// Moves a receive queue (0 unless given) to a worker, numbered from 0, or to the main thread, while packets flow.
        ["set interface rx-placement"] "<if> [queue <n>] worker <n>|main" by parse_placement => placement_command,
    }
}

impl Execute<Router> for SetPlacement {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let thread = self.worker.map_or(0, |worker| usize::from(worker) + 1);
        router.set_rx_placement(index, self.queue, thread)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how threads wait for packets of an interface's receive queues, or of one.
    pub change SetMode "rx_mode_set" ["set interface rx-mode"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// One queue; all where absent.
        pub queue: Option<u16> = "queue <n>",
        /// Mode.
        pub mode: Mode = "polling|interrupt|adaptive",
    }
}

impl Execute<Router> for SetMode {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_rx_mode(index, self.queue, self.mode.into())?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how threads wait for packets of interfaces that will be created.
    pub change SetDefaultMode "rx_mode_default_set" ["set interface default rx-mode"] {
        /// Mode.
        pub mode: Mode = "polling|interrupt|adaptive",
    }
}

impl Execute<Router> for SetDefaultMode {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_rx_default(self.mode.into());
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows which thread polls which receive queue, and how it waits for packets.
    pub read ShowPlacement "rx_placement_show" ["show interface rx-placement"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// A receive queue and its thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct QueuePlace {
    /// Thread.
    pub thread: usize,
    /// Node that polls it.
    pub node: String,
    /// Interface.
    pub interface: String,
    /// Queue.
    pub queue: usize,
    /// How the thread waits for packets.
    pub mode: &'static str,
}

/// The answer of [`ShowPlacement`].
#[derive(Debug, Clone, Serialize)]
pub struct Placements {
    /// Queues by thread and node.
    pub queues: Vec<QueuePlace>,
}

impl Text for Placements {
    fn text(&self, out: &mut String, _: &View) {
        let mut last: Option<&QueuePlace> = None;
        for place in &self.queues {
            let same_thread = last.is_some_and(|l| l.thread == place.thread);
            if !same_thread {
                let _ = writeln!(out, "Thread {} ({}):", place.thread, thread_name(place.thread));
            }
            if !(same_thread && last.is_some_and(|l| l.node == place.node)) {
                let _ = writeln!(out, " node {}:", place.node);
            }
            last = Some(place);
            let _ = writeln!(out, "    {} queue {} ({})", place.interface, place.queue, place.mode);
        }
    }
}

impl Execute<Router> for ShowPlacement {
    type Reply = Placements;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Placements>, OpError> {
        let names: Vec<IfRef> = self.interface.into_iter().collect();
        let mut queues = Vec::new();
        for interface in chosen(router, &names)? {
            let Some(device) = &interface.device else { continue };
            for (queue, place) in device.placement.iter().enumerate() {
                let node = router.graph.node_name(device.input).to_owned();
                let interface = interface.name.clone();
                queues.push(QueuePlace { thread: place.thread, node, interface, queue, mode: place.mode.name() });
            }
        }
        queues.sort();
        Ok(Outcome::Done(Placements { queues }))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Harness;

    use super::*;
    use crate::ops::testing::{error, run};

    #[test]
    fn placement_is_shown_in_the_usual_form() {
        let place = |thread, node: &str, interface: &str, queue, mode| QueuePlace {
            thread,
            node: node.into(),
            interface: interface.into(),
            queue,
            mode,
        };
        let queues = vec![
            place(0, "af-packet-input", "host-vppt0", 0, "polling"),
            place(1, "af-packet-input", "host-vppt0", 1, "adaptive"),
            place(1, "af-packet-input", "host-vppt1", 0, "interrupt"),
            place(1, "memif-input", "memif0/0", 0, "adaptive"),
        ];
        let mut out = String::new();
        Placements { queues }.text(&mut out, &View::TEXT);
        assert_eq!(
            out,
            "\
Thread 0 (quiver_main):
 node af-packet-input:
    host-vppt0 queue 0 (polling)
Thread 1 (quiver_wk_0):
 node af-packet-input:
    host-vppt0 queue 1 (adaptive)
    host-vppt1 queue 0 (interrupt)
 node memif-input:
    memif0/0 queue 0 (adaptive)
"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let mut h = Harness::with_workers(1);
        run(&mut h.router, "create loopback interface");
        for (line, expected) in [
            ("set interface rx-placement loop0 main", "loop0 has no receive queues"),
            ("set interface rx-placement loop0 queue x main", "queue"),
            ("set interface rx-placement loop0 worker", "worker"),
            ("set interface rx-placement loop9 main", "unknown interface `loop9'"),
            ("set interface rx-mode loop0 adaptive", "loop0 has no receive queues"),
            ("set interface rx-mode loop0 sometimes", "sometimes"),
            ("set interface default rx-mode never", "never"),
        ] {
            let text = error(&mut h.router, line);
            assert!(text.contains(expected) && !text.contains('\n'), "{line}: {text}");
        }
        run(&mut h.router, "set interface default rx-mode interrupt");
        assert_eq!(h.router.rx_default(), RxMode::Interrupt);
        assert_eq!(run(&mut h.router, "show interface rx-placement"), "");
    }
}
