//! Operations and commands.

use std::fmt::Write as _;

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View};
use quiver_command::request::{Argument, Execute, Value};
use quiver_command::{request, words};
use quiver_net::fib::ops::Family;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use quiver_wire::IpPrefix;
use serde::{Deserialize, Serialize};

use crate::control::{self, Key, Setting, Urpf};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &["set urpf ip4 rx strict host-eth1", "set urpf-accept 192.0.2.0/24"];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES);
    registry.messages(&[("set urpf", &["urpf_update_v2", "urpf_update"]), ("show urpf", &["urpf_interface_dump"])]);
    registry.declare::<SetUrpf>().declare::<SetAccepted>().declare::<ShowUrpf>();
    registry
        .configuration(Stage::Services, |_| whole(configuration))
        .shapes(Stage::Services, SHAPES)
        .covers(&["urpf_set", "urpf_accept_set"]);
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<Urpf>() else { return };
    for (table, prefix) in state.accepted() {
        let request = |remove| SetAccepted { prefix: Prefix(prefix), table, remove };
        out.push(&request(false)).undo(&request(true));
    }
    for (key, setting) in state.settings() {
        let request = |setting| SetUrpf::of(router, key, setting);
        out.push(&request(setting)).undo(&request(Setting { mode: Mode::Off, table: None })).replaced();
    }
}

words! {
    /// Which packets of an interface are checked.
    #[derive(PartialOrd, Ord)]
    pub enum Direction {
        /// Those that come in.
        Rx = "rx",
        /// Those that leave.
        Tx = "tx",
    }
}

words! {
    /// How sources are checked.
    pub enum Mode {
        /// Not at all.
        Off = "off",
        /// The route to the source leaves by the interface (`tx`: by another one).
        Strict = "strict",
        /// There is a route to the source.
        Loose = "loose",
    }
}

request! {
    /// Drops packets whose source cannot be where they come from, by the routes (uRPF, RFC 3704), or no longer.
    pub change SetUrpf "urpf_set" ["set urpf"] {
        /// Address family.
        pub family: Family = "ip4|ip6" default(Family::Ip4),
        /// Packets that come in, or those that leave.
        pub direction: Direction = "rx|tx" default(Direction::Rx),
        /// Strictly: the route to the source leaves by the interface (`tx`: by another one). Loosely: there is a route.
        pub mode: Mode = "off|strict|loose" default(Mode::Strict),
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Table in which sources are looked up; that of the interface where absent.
        pub table: Option<u32> = "table <id>",
    }
}

impl SetUrpf {
    fn of(router: &Router, key: Key, setting: Setting) -> Self {
        let (interface, family, direction) = key;
        let family = family.into();
        let interface = IfRef(router.interfaces.name(IfIndex(interface)));
        Self { family, direction, mode: setting.mode, interface, table: setting.table }
    }
}

impl Execute<Router> for SetUrpf {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let setting = Setting { mode: self.mode, table: self.table };
        control::set(router, interface, self.family.into(), self.direction, setting).map(Outcome::Done)
    }
}

request! {
    /// Accepts the sources of a prefix under loose checks, though there is no route to them, or no longer.
    pub change SetAccepted "urpf_accept_set" ["set urpf-accept"] {
        /// Table of the checks.
        pub table: u32 = "table <id>" default(0),
        /// No longer.
        pub remove: bool = "del|add",
        /// Prefix.
        pub prefix: Prefix = "<prefix>",
    }
}

/// A prefix as the value of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prefix(pub IpPrefix);

impl Value for Prefix {
    const KIND: &'static str = "prefix";

    fn take(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<Self, OpError> {
        let (address, len) = args.prefix(argument.what())?;
        let invalid = |error: quiver_wire::PrefixError| OpError::invalid("prefix", format!("{address}/{len}"), error.to_string());
        IpPrefix::new(address, len).map(Self).map_err(invalid)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

impl Execute<Router> for SetAccepted {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_accepted(router, self.table, self.prefix.0, !self.remove).map(Outcome::Done)
    }
}

request! {
    /// Shows which interfaces check the sources of packets, and which prefixes are accepted.
    pub read ShowUrpf "urpf_show" ["show urpf"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

/// How an interface checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckInfo {
    /// Interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Address family.
    pub family: Family,
    /// Direction.
    pub direction: Direction,
    /// Mode.
    pub mode: Mode,
    /// Table in which sources are looked up.
    pub table: u32,
}

/// An accepted prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AcceptedInfo {
    /// Prefix.
    pub prefix: IpPrefix,
    /// Table of the checks.
    pub table: u32,
}

/// The answer of [`ShowUrpf`].
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// By number of the interface.
    pub checks: Vec<CheckInfo>,
    /// By table.
    pub accepted: Vec<AcceptedInfo>,
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        let table = TextTable::new()
            .column_with("Interface", Align::Left, 25, Align::Left)
            .column_with("Family", Align::Left, 8, Align::Left)
            .column_with("Direction", Align::Left, 11, Align::Left)
            .column_with("Mode", Align::Left, 8, Align::Left)
            .column_with("Table", Align::Left, 0, Align::Left);
        table.heading(out);
        for check in &self.checks {
            let (family, direction, mode) = (check.family.word(), check.direction.word(), check.mode.word());
            table.row(out, &[&check.interface, &family, &direction, &mode, &check.table]);
        }
        for AcceptedInfo { prefix, table } in &self.accepted {
            let _ = writeln!(out, "accepted: {prefix} in table {table}");
        }
    }
}

impl Execute<Router> for ShowUrpf {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        Ok(Outcome::Done(shown(router, one)?))
    }
}

/// What is shown, of one interface or of all.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router, one: Option<IfIndex>) -> Result<Shown, OpError> {
    let state = router.state::<Urpf>()?;
    let chosen = state.settings().filter(|((interface, ..), _)| one.is_none_or(|one| one.0 == *interface));
    let checks = chosen.map(|(key, setting)| {
        let SetUrpf { family, direction, mode, interface, table } = SetUrpf::of(router, key, setting);
        let tables = router.interfaces.get(IfIndex(key.0)).map(|i| i.tables).unwrap_or_default();
        let own = if family == Family::Ip4 { tables.0 } else { tables.1 };
        CheckInfo { interface: interface.0, sw_if_index: key.0, family, direction, mode, table: table.unwrap_or(own) }
    });
    let accepted = state.accepted().map(|(table, prefix)| AcceptedInfo { prefix, table });
    Ok(Shown { checks: checks.collect(), accepted: if one.is_none() { accepted.collect() } else { Vec::new() } })
}

/// Where it stands in a document.
const SHAPES: &[Shape] = &[
    Shape::new(
        "urpf/accepted/{table#}",
        r#""{prefix}""#,
        "urpf_accept_set",
        r#"{"table":"{table#}","remove":false,"prefix":"{prefix}"}"#,
    )
    .list()
    .doc("Prefixes whose sources are accepted under loose checks, by table."),
    Shape::new(
        "interfaces/{interface}/urpf/{family}/{direction}",
        r#"{"*":"*"}"#,
        "urpf_set",
        r#"{"interface":"{interface}","family":"{family}","direction":"{direction}","*":"*"}"#,
    )
    .doc("How sources of packets are checked, by family (ip4, ip6) and direction (rx, tx)."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
