//! Operations and commands.

use std::fmt::Write as _;

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_drivers::fast_path::DESTINATIONS;
use quiver_net::Router;
use serde::Serialize;

use crate::control::{self, Port};
use crate::ports::Hook;

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &["set xdp fast-path off", "set host-interface fast-path on", "show xdp fast-path"];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES);
    registry.declare::<SetFastPath>().declare::<SetHostFastPath>().declare::<ShowFastPath>();
    registry
        .configuration(Stage::Services, |_| whole(configuration))
        .shapes(Stage::Services, SHAPES)
        .covers(&["xdp_fast_path_set", "host_interface_fast_path_set"]);
}

request! {
    /// Has AF_XDP interfaces forward in the driver what the graph has decided already (as from the start), or nothing.
    pub change SetFastPath "xdp_fast_path_set" ["set xdp fast-path"] {
        /// Whether they do.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetFastPath {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, Hook::Driver, self.on).map(Outcome::Done)
    }
}

request! {
    /// Has host interfaces forward at the kernel's ingress hook what the graph has decided already, super-frames whole, or nothing (as
    /// from the start).
    pub change SetHostFastPath "host_interface_fast_path_set" ["set host-interface fast-path"] {
        /// Whether they do.
        pub on: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetHostFastPath {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set(router, Hook::Ingress, self.on).map(Outcome::Done)
    }
}

request! {
    /// Shows what AF_XDP and host interfaces forward in the kernel: which take part and why others do not, destinations, packets.
    pub read ShowFastPath "xdp_fast_path_show" ["show xdp fast-path"] {}
}

/// The answer of [`ShowFastPath`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FastPathInfo {
    /// Whether it is wanted for AF_XDP interfaces.
    pub on: bool,
    /// Whether it is wanted for host interfaces.
    pub host_interfaces: bool,
    /// Whether it forwards at the moment.
    pub running: bool,
    /// Why it does not; absent while it does.
    pub reason: Option<String>,
    /// IPv4 destinations that are decided.
    pub destinations4: usize,
    /// IPv6 destinations that are decided.
    pub destinations6: usize,
    /// Most of each.
    pub destinations_max: usize,
    /// Load-balances that these go by.
    pub load_balances: usize,
    /// Of these, the ones that lead out of the kernel; packets by the others take the graph.
    pub load_balances_out: usize,
    /// Interfaces that have a device.
    pub interfaces: Vec<PortInfo>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortInfo {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
    /// Where its packets meet the fast path: `driver` (XDP) or `ingress` (tcx).
    pub hook: &'static str,
    /// IPv4 packets that come in are looked at.
    pub input4: bool,
    /// IPv6 packets that come in are looked at.
    pub input6: bool,
    /// Why those that come in take the graph; absent where some do not.
    pub input_reason: Option<String>,
    /// IPv4 packets may leave by it.
    pub output4: bool,
    /// IPv6 packets may leave by it.
    pub output6: bool,
    /// What host interfaces send here goes straight to the other end of its veth, which is in another network namespace.
    pub direct: bool,
    /// Why those that leave take the graph; absent where some do not.
    pub output_reason: Option<String>,
    /// IPv4 packets that came in and were forwarded in the kernel.
    pub received4: u64,
    /// IPv6 packets that came in and were forwarded in the kernel.
    pub received6: u64,
    /// Packets that left in the kernel.
    pub sent: u64,
}

impl PortInfo {
    fn of(router: &Router, index: quiver_graph::IfIndex, port: &Port) -> Self {
        let input = port.part.input.as_ref().ok().filter(|_| port.trouble.is_none());
        let output = port.part.output.clone().unwrap_or_default();
        Self {
            name: router.interfaces.name(index),
            sw_if_index: index.0,
            hook: if port.part.hook == Hook::Driver { "driver" } else { "ingress" },
            input4: input.is_some_and(|input| input.fib4.is_some()),
            input6: input.is_some_and(|input| input.fib6.is_some()),
            input_reason: port.trouble.clone().or_else(|| port.part.input.clone().err()),
            output4: output[0] != 0,
            output6: output[1] != 0,
            direct: port.part.direct,
            output_reason: port.part.output.clone().err(),
            received4: port.received.packets4,
            received6: port.received.packets6,
            sent: port.sent.packets,
        }
    }
}

/// The state of the fast path.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router) -> Result<FastPathInfo, OpError> {
    let state = router.state::<control::State>()?;
    let reason = if !state.driver && !state.ingress {
        Some("it is off".to_owned())
    } else if let Some(why) = state.failure() {
        Some(why.to_owned())
    } else if state.observed {
        Some("traces or captures look at every packet".to_owned())
    } else if state.shared().is_none() {
        Some("no interface needs it yet".to_owned())
    } else {
        None
    };
    let (destinations, paths) = state.shared().map_or(((0, 0), (0, 0)), |shared| {
        let table = shared.table();
        (table.destinations(), table.paths())
    });
    Ok(FastPathInfo {
        on: state.driver,
        host_interfaces: state.ingress,
        running: reason.is_none(),
        reason,
        destinations4: destinations.0,
        destinations6: destinations.1,
        destinations_max: DESTINATIONS,
        load_balances: paths.0,
        load_balances_out: paths.1,
        interfaces: state.ports.iter().map(|(index, port)| PortInfo::of(router, *index, port)).collect(),
    })
}

impl Execute<Router> for ShowFastPath {
    type Reply = FastPathInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, FastPathInfo>, OpError> {
        router.refresh_counters();
        shown(router).map(Outcome::Done)
    }
}

fn families(four: bool, six: bool, reason: Option<&str>) -> String {
    match (four, six) {
        (true, true) => "IPv4 IPv6".to_owned(),
        (true, false) => "IPv4".to_owned(),
        (false, true) => "IPv6".to_owned(),
        (false, false) => format!("none: {}", reason.unwrap_or("features are on")),
    }
}

impl Text for FastPathInfo {
    fn text(&self, out: &mut String, _: &View) {
        match &self.reason {
            None => out.push_str("fast path: on\n"),
            Some(why) => {
                let on = self.on || self.host_interfaces;
                let _ = writeln!(out, "fast path: {}, packets take the graph: {why}", if on { "on" } else { "off" });
            }
        }
        let switch = |on| if on { "on" } else { "off" };
        let _ = writeln!(out, "AF_XDP interfaces: {}; host interfaces: {}", switch(self.on), switch(self.host_interfaces));
        let _ = writeln!(
            out,
            "destinations: IPv4 {} IPv6 {} of {} each; load-balances: {}, {} of them lead out",
            self.destinations4, self.destinations6, self.destinations_max, self.load_balances, self.load_balances_out
        );
        for port in &self.interfaces {
            let _ = writeln!(out, "{} (sw_if_index {})", port.name, port.sw_if_index);
            let input = families(port.input4, port.input6, port.input_reason.as_deref());
            let output = families(port.output4, port.output6, port.output_reason.as_deref());
            let _ = writeln!(out, "  in   {input}; forwarded IPv4 {} IPv6 {}", port.received4, port.received6);
            let direct = if port.direct { ", from host interfaces straight to its peer" } else { "" };
            let _ = writeln!(out, "  out  {output}{direct}; sent {}", port.sent);
        }
    }
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<control::State>() else { return };
    if !state.driver {
        out.push(&SetFastPath { on: false }).undo(&SetFastPath { on: true });
    }
    if state.ingress {
        out.push(&SetHostFastPath { on: true }).undo(&SetHostFastPath { on: false });
    }
}

/// Where they stand in a document.
const SHAPES: &[Shape] = &[
    Shape::new("xdp_fast_path", r#""{on}""#, "xdp_fast_path_set", r#"{"on":"{on}"}"#)
        .doc("Whether AF_XDP interfaces forward in the driver what the graph has decided."),
    Shape::new("host_interface_fast_path", r#""{on}""#, "host_interface_fast_path_set", r#"{"on":"{on}"}"#)
        .doc("Whether host interfaces forward at the kernel's ingress hook what the graph has decided."),
];

#[cfg(test)]
mod example_tests {
    #[test]
    fn every_example_can_be_read() {
        let harness = quiver_net::testing::Harness::new();
        let registry = quiver_net::ops::testing::registry(&[super::register]);
        let wrong = registry.wrong_examples(&harness.router);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
