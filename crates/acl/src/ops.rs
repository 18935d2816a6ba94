//! Operations and commands.

mod configuration;
mod rules;
mod show;

use quiver_command::configuration::{Stage, each, whole};
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::{Argument, Execute, Value};
use quiver_command::{request, words};
use quiver_net::Router;
use quiver_net::interface::ops::resolve;
use serde::{Deserialize, Serialize};

pub use self::rules::Rules;
pub use self::show::{AclInfo, InterfaceInfo, SessionInfo, ShowAcls, ShowInterfaces, ShowSessions, ShowSettings};
use crate::control::{self, Acls, SESSIONS_LIMIT, Settings};
use crate::session::Timeout;

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "set acl-plugin acl permit+reflect src 192.0.2.0/24, permit+reflect src 2001:db8::/32 tag out",
    "set acl-plugin acl permit dst 192.0.2.1/32 proto tcp dport 443, deny src 0.0.0.0/0 tag in",
    "set acl-plugin interface host-eth1 input acl 0",
    "set acl-plugin lists host-eth1 output acl 1 acl 0",
    "show acl-plugin acl index 0",
    "show acl-plugin sessions verbose",
    "set acl-plugin session timeout tcp idle 3600",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] = &[
    ("set acl-plugin acl", &["acl_add_replace"]),
    ("delete acl-plugin acl", &["acl_del"]),
    ("set acl-plugin interface", &["acl_interface_add_del"]),
    ("set acl-plugin lists", &["acl_interface_set_acl_list"]),
    ("set acl-plugin ethertype", &["acl_interface_set_etype_whitelist"]),
    ("set acl-plugin counters", &["acl_stats_intf_counters_enable"]),
    ("show acl-plugin acl", &["acl_dump"]),
    ("show acl-plugin interface", &["acl_interface_list_dump", "acl_interface_etype_whitelist_dump"]),
    ("show acl-plugin settings", &["acl_plugin_get_conn_table_max_entries", "acl_plugin_use_hash_lookup_get"]),
];

/// Messages that have no command: the plugin's version and liveness; and VPP's choice between two lookup structures.
const WITHOUT_COMMAND: &[&str] = &["acl_plugin_get_version", "acl_plugin_control_ping", "acl_plugin_use_hash_lookup_set"];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES).messages_without_command(WITHOUT_COMMAND);
    registry.declare::<SetAcl>().declare::<DeleteAcl>().declare::<SetInterface>().declare::<SetLists>().declare::<SetEtherType>();
    registry.declare::<SetTimeout>().declare::<SetMaxSessions>().declare::<SetSwitch>().declare::<ClearSessions>();
    registry.declare::<ShowAcls>().declare::<ShowInterfaces>().declare::<ShowSessions>().declare::<ShowSettings>();
    registry
        .configuration(Stage::Services, |_| whole(configuration::settings))
        .configuration(Stage::Services, |router| each(configuration::lists(router), configuration::list))
        .configuration(Stage::Services, |router| each(configuration::uses(router), configuration::used))
        .shapes(Stage::Services, configuration::SHAPES)
        .covers(&[
            "acl_set",
            "acl_interface_set",
            "acl_lists_set",
            "acl_ethertype_set",
            "acl_timeout_set",
            "acl_sessions_max_set",
            "acl_switch_set",
        ]);
}

words! {
    /// Packets of an interface.
    #[derive(PartialOrd, Ord)]
    pub enum Direction {
        /// Those that come in.
        Input = "input",
        /// Those that leave.
        Output = "output",
    }
}

impl Direction {
    /// Its place among both.
    pub fn side(self) -> usize {
        usize::from(self == Self::Output)
    }
}

request! {
    /// Makes an access list, or gives the one of this number other rules. Rules stand in order and are separated by commas; a packet is in the first one that matches.
    pub change SetAcl "acl_set" ["set acl-plugin acl"] {
        /// Number of the list; the lowest free one where absent.
        pub index: Option<u32> = "index <n>" range(0..=65535),
        /// Rules: `deny`, `permit` or `permit+reflect`, which lets the answers through too; then `src` and `dst` with a prefix, `proto` with a number or `tcp`, `udp`, `icmp`, `icmp6`, `sport` and `dport` with a port or `<first>-<last>` (of ICMP: types and codes), `tcpflags <value> mask <mask>`. What is absent matches all; without a prefix a rule is for IPv4.
        pub rules: Rules = "<rules>",
        /// What you call it.
        pub tag: String = "tag <tag>" default(String::from("cli")),
    }
}

/// The answer of [`SetAcl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Number of the list.
    pub acl: u32,
}

impl Text for Made {
    fn text(&self, out: &mut String, _: &View) {
        use std::fmt::Write as _;
        let _ = writeln!(out, "ACL index:{}", self.acl);
    }
}

impl Execute<Router> for SetAcl {
    type Reply = Made;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Made>, OpError> {
        let acl = control::add_replace(router, self.index, &self.tag, self.rules.0, false)?;
        Ok(Outcome::Done(Made { acl }))
    }
}

request! {
    /// Deletes an access list that no interface uses.
    pub change DeleteAcl "acl_delete" ["delete acl-plugin acl"] {
        /// Number of the list.
        pub index: u32 = "index <n>",
    }
}

impl Execute<Router> for DeleteAcl {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::delete(router, self.index).map(Outcome::Done)
    }
}

request! {
    /// Has an access list decide which packets of an interface go on, behind those lists that it has already; or no longer. What is in no rule of any of them is dropped.
    pub change SetInterface "acl_interface_set" ["set acl-plugin interface"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Packets that come in, or those that leave.
        pub direction: Direction = "input|output",
        /// Number of the list.
        pub acl: u32 = "acl <n>",
        /// No longer.
        pub remove: bool = "del|add",
    }
}

impl Execute<Router> for SetInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let mut used = router.state::<Acls>()?.used_by(interface);
        let lists = &mut used.lists[self.direction.side()];
        match (self.remove, lists.iter().position(|list| *list == self.acl)) {
            (true, Some(at)) => drop(lists.remove(at)),
            (true, None) => {
                let text = format!("access list {} is not used there", self.acl);
                let error = OpError::new(quiver_command::operation::retval::NO_SUCH_ENTRY, text);
                return Err(error.key("acl").value(self.acl));
            }
            (false, _) => lists.push(self.acl),
        }
        control::set(router, interface, used.lists, used.ether_types).map(Outcome::Done)
    }
}

request! {
    /// Has these access lists, in this order, decide which packets of an interface go on, and no others; with none all packets go on.
    pub change SetLists "acl_lists_set" ["set acl-plugin lists"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Packets that come in, or those that leave.
        pub direction: Direction = "input|output",
        /// Number of a list.
        pub lists: Vec<u32> = "acl <n>",
    }
}

impl Execute<Router> for SetLists {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let mut used = router.state::<Acls>()?.used_by(interface);
        used.lists[self.direction.side()] = self.lists;
        control::set(router, interface, used.lists, used.ether_types).map(Outcome::Done)
    }
}

request! {
    /// Lets through only those frames of a bridged or cross-connected interface that are IP, or have one of these EtherTypes (ARP is one); all where there is none.
    pub change SetEtherType "acl_ethertype_set" ["set acl-plugin ethertype"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Frames that come in, or those that leave.
        pub direction: Direction = "input|output",
        /// EtherTypes, such as 0x0806.
        pub types: Vec<u16> = "type <ethertype>",
    }
}

impl Execute<Router> for SetEtherType {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = resolve(router, &self.interface)?;
        let mut used = router.state::<Acls>()?.used_by(interface);
        used.ether_types[self.direction.side()] = self.types;
        control::set(router, interface, used.lists, used.ether_types).map(Outcome::Done)
    }
}

/// Which timeout is meant: two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// All that is not TCP.
    #[serde(rename = "udp idle")]
    Udp,
    /// TCP connections that have not begun on both sides, or that end.
    #[serde(rename = "tcp transient")]
    TcpTransient,
    /// Established TCP connections.
    #[serde(rename = "tcp idle")]
    TcpIdle,
}

impl Which {
    /// All of them, in the order of [`Timeout`].
    pub const ALL: [Self; 3] = [Self::Udp, Self::TcpTransient, Self::TcpIdle];

    /// Its words.
    pub fn words(self) -> &'static str {
        ["udp idle", "tcp transient", "tcp idle"][self as usize]
    }
}

impl From<Timeout> for Which {
    fn from(timeout: Timeout) -> Self {
        Self::ALL[timeout as usize]
    }
}

impl Value for Which {
    const KIND: &'static str = "timeout";

    fn take(args: &mut Args<'_>, _: &Argument, _: usize) -> Result<Self, OpError> {
        let is_tcp = args.expect_one_of(&[("udp", false), ("tcp", true)])?;
        if !is_tcp {
            return args.expect_keyword("idle").map(|()| Self::Udp);
        }
        args.expect_one_of(&[("idle", Self::TcpIdle), ("transient", Self::TcpTransient)])
    }

    fn text(&self) -> String {
        self.words().to_owned()
    }
}

request! {
    /// Sets after which time without packets sessions are over: `udp idle` (all that is not TCP), `tcp transient` (connections that have not begun on both sides, or that end), `tcp idle`.
    pub change SetTimeout "acl_timeout_set" ["set acl-plugin session timeout"] {
        /// Which one: `udp idle`, `tcp transient` or `tcp idle`.
        pub timeout: Which = "<timeout>",
        /// Seconds.
        pub seconds: u32 = "<seconds>" range(1..=31_536_000),
    }
}

/// Changes one of the settings.
fn configure(router: &mut Router, change: impl FnOnce(&mut Settings)) -> Result<Outcome<Router, ()>, OpError> {
    let mut settings = router.state::<Acls>()?.settings();
    change(&mut settings);
    control::configure(router, settings).map(Outcome::Done)
}

impl Execute<Router> for SetTimeout {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        configure(router, |settings| settings.timeouts[self.timeout as usize] = self.seconds)
    }
}

request! {
    /// Sets how many sessions there may be. Another number ends those that there are.
    pub change SetMaxSessions "acl_sessions_max_set" ["set acl-plugin session table max-entries"] {
        /// Sessions at most, of IPv4 and IPv6 together.
        pub sessions: u32 = "<n>" range(1..=16_000_000),
    }
}

impl Execute<Router> for SetMaxSessions {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        configure(router, |settings| settings.sessions = self.sessions)
    }
}

words! {
    /// What can be on or off.
    pub enum Switch {
        /// A session is looked at again when lists have changed since it began, and ends where they do not let it begin any more.
        Reclassify = "reclassify-sessions",
        /// Later fragments, which have no ports, are in the rules that look at ports as if the ports matched.
        Fragments = "l4-match-nonfirst-fragment",
        /// Packets are counted by rule.
        Counters = "counters",
    }
}

request! {
    /// Sets what holds for all access lists: whether sessions are looked at again when lists change (off), whether later fragments, which have no ports, are in rules that look at ports (on), whether packets are counted by rule (on).
    pub change SetSwitch "acl_switch_set" [
        "set acl-plugin reclassify-sessions" { switch: Switch::Reclassify },
        "set acl-plugin l4-match-nonfirst-fragment" { switch: Switch::Fragments },
        "set acl-plugin counters" { switch: Switch::Counters },
    ] {
        /// What is switched.
        pub switch: Switch = "",
        /// On or off.
        pub on: u32 = "<0|1>" range(0..=1),
    }
}

impl Execute<Router> for SetSwitch {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let on = self.on == 1;
        configure(router, |settings| match self.switch {
            Switch::Reclassify => settings.reclassify = on,
            Switch::Fragments => settings.ported_fragments = !on,
            Switch::Counters => settings.counters = on,
        })
    }
}

request! {
    /// Ends sessions: all of them, or those of an interface. What they let through is then in the rules alone.
    pub change ClearSessions "acl_sessions_clear" ["clear acl-plugin sessions"] {
        /// Interface; all where absent.
        pub interface: Option<IfRef> = "<if>",
    }
}

impl Execute<Router> for ClearSessions {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let interface = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        control::clear_sessions(router, interface).map(Outcome::Done)
    }
}

// The range of `max-entries` is written as a number above.
const _: () = assert!(SESSIONS_LIMIT == 16_000_000);

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
