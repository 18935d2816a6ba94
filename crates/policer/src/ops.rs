//! Operations and commands.

mod configuration;
mod show;
mod values;

use quiver_command::configuration::{Stage, each};
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::fib::ops::Family;
use quiver_net::interface::ops::resolve;
use serde::Serialize;

pub use self::show::{PolicerInfo, ShowPolicers, Shown, shown};
pub use self::values::Act;
use crate::control::{self, Config, Policers, Round};
use crate::meter::{Kind, Rates, Unit};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "policer add name gold type 1r3c cir 10000 cb 125000 eb 125000 exceed-action mark-and-transmit AF12 violate-action drop",
    "policer input name gold host-eth1",
    "policer output unapply name gold host-eth1",
    "policer bind name gold 0",
    "ip punt policer name gold",
    "show policer name gold",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] = &[
    ("policer add", &["policer_add", "policer_add_del"]),
    ("policer del", &["policer_del", "policer_add_del"]),
    ("configure policer", &["policer_update"]),
    ("policer bind", &["policer_bind_v2", "policer_bind"]),
    ("policer input", &["policer_input_v2", "policer_input"]),
    ("policer output", &["policer_output_v2", "policer_output"]),
    ("policer reset", &["policer_reset"]),
    ("ip punt policer", &["ip_punt_police"]),
    ("show policer", &["policer_dump_v2", "policer_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<AddPolicer>().declare::<UpdatePolicer>().declare::<DeletePolicer>();
    registry.declare::<BindPolicer>().declare::<ApplyPolicer>().declare::<ResetPolicer>();
    registry.declare::<SetPuntPolicer>().declare::<ShowPolicers>();
    registry
        .configuration(Stage::Services, |router| each(configuration::numbers(router), configuration::policer))
        .configuration(Stage::Services, |_| quiver_command::configuration::whole(configuration::uses))
        .shapes(Stage::Services, configuration::SHAPES)
        .covers(&["policer_add", "policer_update", "policer_delete", "policer_bind", "policer_apply", "punt_policer_set"])
        .actions(&["policer_reset"]);
}

/// A request that says what a policer does, after what it says of which policer it is.
macro_rules! policer_request {
    (
        $(#[doc = $help:literal])+
        $name:ident $operation:literal [$( $command:literal ),+] { $( #[doc = $doc:literal] $key:ident: $type:ty = $syntax:literal ),+ }
    ) => {
        request! {
            $(#[doc = $help])+
            pub change $name $operation [$( $command ),+] {
                $( #[doc = $doc] pub $key: $type = $syntax, )+
                /// Algorithm: one rate and two colours, RFC 2697, RFC 2698, RFC 4115, MEF 5 with the coupling flag.
                pub kind: Kind = "type 1r2c|1r3c|2r3c-2698|2r3c-4115|2r3c-mef5cf1" default(Kind::OneRate),
                /// Committed rate, kbit/s or packets/s.
                pub cir: u32 = "cir <rate>" default(0),
                /// Peak rate of a policer of two rates; of MEF 5 the excess rate.
                pub eir: u32 = "eir <rate>" default(0),
                /// Committed burst, bytes; of rates in packets/s: ms.
                pub cb: u64 = "cb <burst>" default(0),
                /// Excess burst, bytes; of rates in packets/s: ms.
                pub eb: u64 = "eb <burst>" default(0),
                /// Unit of the rates.
                pub rate: Unit = "rate kbps|pps" default(Unit::Kbps),
                /// How VPP rounds; rates and bursts are exact here, so that it changes nothing.
                pub round: Round = "round closest|up|down" default(Round::Closest),
                /// Whether the colour counts that packets have already.
                pub color_aware: bool = "color-aware",
                /// What happens to packets that conform: `drop`, `transmit`, `mark-and-transmit <dscp>`.
                pub conform_action: Act = "conform-action <action>" default(Act::TRANSMIT),
                /// What happens to packets that exceed.
                pub exceed_action: Act = "exceed-action <action>" default(Act::DROP),
                /// What happens to packets that violate.
                pub violate_action: Act = "violate-action <action>" default(Act::DROP),
            }
        }

        impl $name {
            /// The request that gives a policer this configuration.
            pub fn of($( $key: $type, )+ config: &Config) -> Self {
                let Config { rates: Rates { kind, unit: rate, cir, eir, cb, eb }, round, color_aware, actions } = *config;
                let [conform_action, exceed_action, violate_action] = actions.map(Act);
                Self { $( $key, )+ kind, cir, eir, cb, eb, rate, round, color_aware, conform_action, exceed_action, violate_action }
            }

            fn config(&self) -> Config {
                let Self { kind, cir, eir, cb, eb, rate, round, color_aware, .. } = *self;
                let actions = [self.conform_action, self.exceed_action, self.violate_action].map(|act| act.0);
                Config { rates: Rates { kind, unit: rate, cir, eir, cb, eb }, round, color_aware, actions }
            }
        }
    };
}

policer_request! {
    /// Makes a policer: packets are sorted by token buckets into those that conform, exceed and violate.
    AddPolicer "policer_add" ["policer add"] {
        /// Its name.
        name: String = "name <name>"
    }
}

/// The answer of [`AddPolicer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Number of the policer.
    pub policer: u32,
}

impl Text for Made {
    fn text(&self, _: &mut String, _: &View) {}
}

impl Execute<Router> for AddPolicer {
    type Reply = Made;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Made>, OpError> {
        let policer = control::add(router, &self.name, self.config())?;
        Ok(Outcome::Done(Made { policer }))
    }
}

/// The number of a policer that a request names, or numbers.
fn which(router: &Router, name: Option<&str>, index: Option<u32>) -> Result<u32, OpError> {
    let state = router.state::<Policers>()?;
    match (index, name) {
        (Some(index), _) => state.entry(index).map(|_| index),
        (None, Some(name)) => state.named(name),
        (None, None) => Err(OpError::new(retval::INVALID_VALUE, "missing the policer's name").key("name")),
    }
}

policer_request! {
    /// Changes what a policer does; what is not said is as for a new one. Its buckets are full and its counters zero then.
    UpdatePolicer "policer_update" ["configure policer", "policer update"] {
        /// Its name.
        name: Option<String> = "name <name>",
        /// Or its number.
        index: Option<u32> = "index <n>"
    }
}

impl Execute<Router> for UpdatePolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = which(router, self.name.as_deref(), self.index)?;
        control::update(router, index, self.config()).map(Outcome::Done)
    }
}

request! {
    /// Deletes a policer that is not in use.
    pub change DeletePolicer "policer_delete" ["policer del"] {
        /// Its name.
        pub name: Option<String> = "name <name>",
        /// Or its number.
        pub index: Option<u32> = "index <n>",
    }
}

impl Execute<Router> for DeletePolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = which(router, self.name.as_deref(), self.index)?;
        control::delete(router, index).map(Outcome::Done)
    }
}

request! {
    /// Has a worker do all the work of a policer; without that it is the worker that gets its first packet.
    pub change BindPolicer "policer_bind" ["policer bind"] {
        /// No longer.
        pub unbind: bool = "unbind",
        /// Its name.
        pub name: Option<String> = "name <name>",
        /// Or its number.
        pub index: Option<u32> = "index <n>",
        /// Number of the worker, from 0.
        pub worker: Option<u32> = "<worker>",
    }
}

impl Execute<Router> for BindPolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = which(router, self.name.as_deref(), self.index)?;
        if !self.unbind && self.worker.is_none() {
            return Err(OpError::new(retval::INVALID_VALUE, "missing the number of the worker").key("worker"));
        }
        control::bind(router, index, self.worker.filter(|_| !self.unbind)).map(Outcome::Done)
    }
}

request! {
    /// Polices what comes in by an interface, or what leaves, or no longer: IPv4, IPv6, and all frames where it is bridged or cross-connected.
    pub change ApplyPolicer "policer_apply" ["policer input" { output: false }, "policer output" { output: true }] {
        /// Packets that leave, not those that come in.
        pub output: bool = "",
        /// No longer.
        pub unapply: bool = "unapply",
        /// Its name.
        pub name: Option<String> = "name <name>",
        /// Or its number.
        pub index: Option<u32> = "index <n>",
        /// Interface.
        pub interface: IfRef = "<if>",
    }
}

impl Execute<Router> for ApplyPolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let index = which(router, self.name.as_deref(), self.index)?;
        control::apply(router, index, interface, self.output, !self.unapply).map(Outcome::Done)
    }
}

request! {
    /// Fills a policer's buckets.
    pub change ResetPolicer "policer_reset" ["policer reset"] {
        /// Its name.
        pub name: Option<String> = "name <name>",
        /// Or its number.
        pub index: Option<u32> = "index <n>",
    }
}

impl Execute<Router> for ResetPolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = which(router, self.name.as_deref(), self.index)?;
        control::reset(router, index).map(Outcome::Done)
    }
}

request! {
    /// Polices punted packets, or no longer.
    pub change SetPuntPolicer "punt_policer_set" ["ip punt policer" { family: Family::Ip4 }, "ip6 punt policer" { family: Family::Ip6 }] {
        /// Address family.
        pub family: Family = "",
        /// No longer.
        pub remove: bool = "del|add",
        /// The policer's name.
        pub name: Option<String> = "name <name>",
        /// Or its number.
        pub index: Option<u32> = "<index>",
    }
}

impl Execute<Router> for SetPuntPolicer {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = match self.remove {
            true => None,
            false => Some(which(router, self.name.as_deref(), self.index)?),
        };
        control::set_punt(router, self.family.into(), index).map(Outcome::Done)
    }
}

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
