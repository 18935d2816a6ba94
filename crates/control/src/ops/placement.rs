//! `set interface rx-placement`, `set interface rx-mode`, `show interface rx-placement`.

use std::fmt::Write as _;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View};
use quiver_graph::{RxMode, thread_name};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::interface::{chosen, interface_error, resolve};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry
        .operation::<SetPlacement>()
        .operation::<SetMode>()
        .operation::<SetDefaultMode>()
        .operation::<ShowPlacement>()
        .command(Command {
            path: "set interface rx-placement",
            syntax: "<if> [queue <n>] worker <n>|main",
            help: "Moves a receive queue (0 unless said) to a worker, numbered from 0, or to the main thread, while packets flow",
            parse: |args, _| {
                let interface = args.interface()?;
                let queue = queue(args)?.unwrap_or(0);
                let worker = match args.expect_one_of(&[("worker", true), ("main", false)])? {
                    true => Some(args.number("worker")?),
                    false => None,
                };
                Ok(Invocation::new::<SetPlacement>(SetPlacementRequest { interface, queue, worker }))
            },
        })
        .command(Command {
            path: "set interface rx-mode",
            syntax: "<if> [queue <n>] polling|interrupt|adaptive",
            help: "Sets how threads wait for packets of an interface's receive queues, or of one",
            parse: |args, _| {
                let interface = args.interface()?;
                let queue = queue(args)?;
                let mode = mode(args)?;
                Ok(Invocation::new::<SetMode>(SetModeRequest { interface, queue, mode }))
            },
        })
        .command(Command {
            path: "set interface default rx-mode",
            syntax: "polling|interrupt|adaptive",
            help: "Sets how threads wait for packets of interfaces that will be created",
            parse: |args, _| Ok(Invocation::new::<SetDefaultMode>(SetDefaultModeRequest { mode: mode(args)? })),
        })
        .command(Command {
            path: "show interface rx-placement",
            syntax: "[<if>]",
            help: "Shows which thread polls which receive queue, and how it waits for packets",
            parse: |args, _| {
                let interface = if args.is_empty() { None } else { Some(args.interface()?) };
                Ok(Invocation::new::<ShowPlacement>(ShowPlacementRequest { interface }))
            },
        });
}

fn queue(args: &mut Args<'_>) -> Result<Option<u16>, OpError> {
    if args.take_keyword("queue") { args.number("queue").map(Some) } else { Ok(None) }
}

/// A mode, by VPP's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Polled without end.
    Polling,
    /// The thread sleeps until the device's event.
    Interrupt,
    /// Polled while packets come, then asleep until the device's event.
    Adaptive,
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

fn mode(args: &mut Args<'_>) -> Result<Mode, OpError> {
    args.expect_one_of(&[("polling", Mode::Polling), ("interrupt", Mode::Interrupt), ("adaptive", Mode::Adaptive)])
}

/// Moves a receive queue to another thread.
pub struct SetPlacement;

/// What [`SetPlacement`] moves, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPlacementRequest {
    /// Interface.
    pub interface: IfRef,
    /// Queue.
    #[serde(default)]
    pub queue: u16,
    /// Worker, from 0; absent: the main thread.
    #[serde(default)]
    pub worker: Option<u16>,
}

impl Operation<Router> for SetPlacement {
    const NAME: &'static str = "rx_placement_set";
    const ACCESS: Access = Access::Change;
    type Request = SetPlacementRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetPlacementRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let thread = request.worker.map_or(0, |worker| usize::from(worker) + 1);
        router.set_rx_placement(index, request.queue, thread).map_err(|error| interface_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets how threads wait for packets of receive queues.
pub struct SetMode;

/// What [`SetMode`] sets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetModeRequest {
    /// Interface.
    pub interface: IfRef,
    /// One queue; all where absent.
    #[serde(default)]
    pub queue: Option<u16>,
    /// Mode.
    pub mode: Mode,
}

impl Operation<Router> for SetMode {
    const NAME: &'static str = "rx_mode_set";
    const ACCESS: Access = Access::Change;
    type Request = SetModeRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetModeRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        router.set_rx_mode(index, request.queue, request.mode.into()).map_err(|error| interface_error(&error))?;
        Ok(Outcome::Done(()))
    }
}

/// Sets the mode that receive queues of new interfaces start with.
pub struct SetDefaultMode;

/// What [`SetDefaultMode`] sets.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDefaultModeRequest {
    /// Mode.
    pub mode: Mode,
}

impl Operation<Router> for SetDefaultMode {
    const NAME: &'static str = "rx_mode_default_set";
    const ACCESS: Access = Access::Change;
    type Request = SetDefaultModeRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetDefaultModeRequest) -> Result<Outcome<Router, ()>, OpError> {
        router.set_rx_default(request.mode.into());
        Ok(Outcome::Done(()))
    }
}

/// Shows which thread polls which queue.
pub struct ShowPlacement;

/// What [`ShowPlacement`] shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShowPlacementRequest {
    /// One interface; all where absent.
    pub interface: Option<IfRef>,
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

impl Operation<Router> for ShowPlacement {
    const NAME: &'static str = "rx_placement_show";
    const ACCESS: Access = Access::Read;
    type Request = ShowPlacementRequest;
    type Reply = Placements;

    fn run(router: &mut Router, request: ShowPlacementRequest) -> Result<Outcome<Router, Placements>, OpError> {
        let names: Vec<IfRef> = request.interface.into_iter().collect();
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
    use quiver_net::testing::Harness;

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
