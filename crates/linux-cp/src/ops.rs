//! Operations and commands.

use std::fmt::Write as _;

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request;
use quiver_command::request::{Argument, Execute};
use quiver_net::files::Elsewhere;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use serde::Serialize;

use crate::control::{self, Lcp, NewPair, Pair};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "lcp create host-eth1 host-if uplink netns dataplane",
    "lcp default netns dataplane",
    "lcp delete host-eth1",
    "lcp ethertype enable 0x88cc",
    "lcp lcp-auto-subint on",
    "lcp lcp-sync on",
    "show lcp phy host-eth1",
];

/// Messages of the binary API, by command. Where there are several versions the newest is first.
const MESSAGES: &[(&str, &[&str])] = &[
    ("lcp create", &["lcp_itf_pair_add_del_v3", "lcp_itf_pair_add_del_v2", "lcp_itf_pair_add_del"]),
    ("lcp default clear netns", &["lcp_default_ns_set"]),
    ("lcp default netns", &["lcp_default_ns_set"]),
    ("lcp delete", &["lcp_itf_pair_add_del_v3", "lcp_itf_pair_add_del_v2", "lcp_itf_pair_add_del"]),
    ("lcp ethertype enable", &["lcp_ethertype_enable"]),
    ("show lcp", &["lcp_itf_pair_get_v2", "lcp_itf_pair_get", "lcp_default_ns_get"]),
    ("show lcp ethertype", &["lcp_ethertype_get"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<CreatePair>().declare::<DeletePair>().declare::<SetNamespace>().declare::<ClearNamespace>();
    registry.declare::<SetSync>().declare::<SetAutoSub>().declare::<EnableType>();
    registry.declare::<ShowPairs>().declare::<ShowTypes>();
    registry
        .configuration(Stage::Services, |_| whole(settings))
        .configuration(Stage::Services, |router| each(paired(router), pair))
        .configuration(Stage::Services, |_| whole(defaults))
        .shapes(Stage::Services, SETTINGS)
        .shapes(Stage::Services, PAIRS)
        .shapes(Stage::Services, DEFAULTS)
        .covers(&[
            "lcp_create",
            "lcp_delete",
            "lcp_default_netns_set",
            "lcp_default_netns_clear",
            "lcp_sync_set",
            "lcp_auto_subint_set",
        ])
        .covers(&["lcp_ethertype_enable"]);
}

/// What pairs are made with.
fn settings(router: &Router, out: &mut Configuration<Router>) {
    let Ok(known) = router.state::<Lcp>() else { return };
    if known.sync() {
        out.push(&SetSync { enable: true }).undo(&SetSync { enable: false });
    }
    for ethertype in known.types().iter().copied().filter(|number| !control::TYPES.contains(number)) {
        out.push(&EnableType { ethertype });
    }
}

fn paired(router: &Router) -> Vec<IfIndex> {
    router.state::<Lcp>().map(|known| known.pairs().map(|pair| pair.phy).collect()).unwrap_or_default()
}

fn pair(router: &Router, phy: &IfIndex, out: &mut Configuration<Router>) {
    let Some(pair) = router.state::<Lcp>().ok().and_then(|known| known.pair(*phy)) else { return };
    let interface = IfRef(router.interfaces.name(*phy));
    let undo = DeletePair { interface: interface.clone() };
    let create = CreatePair { interface, host_if: pair.host_name.clone(), netns: pair.namespace.clone(), tun: pair.tun };
    out.push(&create).undo(&undo);
}

/// What would change pairs that are still to be made.
fn defaults(router: &Router, out: &mut Configuration<Router>) {
    let Ok(known) = router.state::<Lcp>() else { return };
    if let Some(netns) = known.namespace() {
        out.push(&SetNamespace { netns: netns.to_owned() }).undo(&ClearNamespace {}).replaced();
    }
    if known.auto_sub() {
        out.push(&SetAutoSub { enable: true }).undo(&SetAutoSub { enable: false });
    }
}

request! {
    /// Mirrors an interface into Linux: what is for the router itself goes to a host interface there, what Linux sends there leaves on the interface.
    pub change CreatePair "lcp_create" ["lcp create"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Name of the host interface.
        pub host_if: String = "host-if <name>",
        /// Network namespace of the host interface; the default one where absent.
        pub netns: Option<String> = "netns <netns>",
        /// Without Ethernet headers: a TUN device. An interface that has none itself needs it.
        pub tun: bool = "tun",
    }
}

impl Execute<Router> for CreatePair {
    type Reply = PairInfo;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, PairInfo>, OpError> {
        let phy = resolve(router, &self.interface)?;
        let new = NewPair { phy, host_name: self.host_if, namespace: self.netns.filter(|name| !name.is_empty()), tun: self.tun };
        let (opening, open) = control::prepare(router, new)?;
        let made = move |router: &mut Router, tap| {
            control::finish(router, opening, tap)?;
            let pair = router.state::<Lcp>()?.pair(phy).cloned();
            let pair = pair.ok_or_else(|| OpError::invalid("interface", self.interface, "one that is there"))?;
            Ok(PairInfo::of(router, &pair))
        };
        // The kernel may take its time to make the host interface.
        Ok(Outcome::job(Elsewhere::new(open, made).alone()))
    }
}

request! {
    /// Removes the host interface of an interface.
    pub change DeletePair "lcp_delete" ["lcp delete"] {
        /// Interface.
        pub interface: IfRef = "<if>",
    }
}

impl Execute<Router> for DeletePair {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let phy = resolve(router, &self.interface)?;
        control::delete(router, phy).map(Outcome::Done)
    }
}

request! {
    /// Sets the network namespace of host interfaces that are made without one.
    pub change SetNamespace "lcp_default_netns_set" ["lcp default netns"] {
        /// Network namespace.
        pub netns: String = "<netns>",
    }
}

impl Execute<Router> for SetNamespace {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_namespace(router, Some(self.netns)).map(Outcome::Done)
    }
}

request! {
    /// Makes host interfaces in the router's own network namespace again.
    pub change ClearNamespace "lcp_default_netns_clear" ["lcp default clear netns"] {}
}

impl Execute<Router> for ClearNamespace {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_namespace(router, None).map(Outcome::Done)
    }
}

request! {
    /// Writes state, MTU and addresses of interfaces to their host interfaces, or no longer.
    pub change SetSync "lcp_sync_set" ["lcp lcp-sync"] {
        /// On.
        pub enable: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetSync {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_sync(router, self.enable).map(Outcome::Done)
    }
}

request! {
    /// Makes host interfaces for sub-interfaces of interfaces that have one, or no longer.
    pub change SetAutoSub "lcp_auto_subint_set" ["lcp lcp-auto-subint"] {
        /// On.
        pub enable: bool = "on|off" required(),
    }
}

impl Execute<Router> for SetAutoSub {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::set_auto_sub(router, self.enable).map(Outcome::Done)
    }
}

request! {
    /// Has frames of an EtherType that the router has no use for go to host interfaces.
    pub change EnableType "lcp_ethertype_enable" ["lcp ethertype enable"] {
        /// EtherType.
        pub ethertype: u16 = "<ethertype>" with(take_type, type_text),
    }
}

/// EtherTypes by the names that VPP has for them.
const NAMES: [(&str, u16); 4] = [("LLDP", 0x88cc), ("SLOW_PROTOCOLS", 0x8809), ("MPLS", 0x8847), ("CDP", 0x2000)];

/// A type by its name or in hexadecimal digits.
fn take_type(args: &mut Args<'_>, argument: &Argument, _: usize) -> Result<u16, OpError> {
    let word = args.word(argument.what())?.into_owned();
    let digits = word.strip_prefix("0x").unwrap_or(&word);
    let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&word)).map(|(_, number)| *number);
    let number = named.or_else(|| u16::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| OpError::invalid("ethertype", word, "hexadecimal digits, such as 0x88cc, or LLDP"))
}

fn type_text(ether_type: &u16) -> String {
    format!("{ether_type:#06x}")
}

impl Execute<Router> for EnableType {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::enable_type(router, self.ethertype).map(Outcome::Done)
    }
}

request! {
    /// Shows the settings of the Linux control plane and the pairs of interfaces and host interfaces.
    pub read ShowPairs "lcp_show" ["show lcp"] {
        /// One interface; all where absent.
        pub interface: Option<IfRef> = "phy <if>",
    }
}

/// A pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairInfo {
    /// Its number.
    pub id: u32,
    /// The router's interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// The TAP interface whose other end is the host interface.
    pub host_interface: String,
    /// Its number.
    pub host_sw_if_index: u32,
    /// Name of the host interface.
    pub host_if: String,
    /// Number of the host interface.
    pub host_ifindex: u32,
    /// Namespace of the host interface, where it is not the router's.
    pub netns: Option<String>,
    /// The host interface carries IP packets without Ethernet headers.
    pub tun: bool,
}

impl PairInfo {
    fn of(router: &Router, pair: &Pair) -> Self {
        Self {
            id: pair.id,
            interface: router.interfaces.name(pair.phy),
            sw_if_index: pair.phy.0,
            host_interface: router.interfaces.name(pair.host),
            host_sw_if_index: pair.host.0,
            host_if: pair.host_name.clone(),
            host_ifindex: pair.host_ifindex,
            netns: pair.namespace.clone(),
            tun: pair.tun,
        }
    }

    fn line(&self, out: &mut String) {
        let Self { id, interface, host_interface, host_if, host_ifindex, netns, tun, .. } = self;
        let kind = if *tun { "tun" } else { "tap" };
        let _ = write!(out, "itf-pair: [{id}] {interface} {host_interface} {host_if} {host_ifindex} type {kind}");
        if let Some(netns) = netns {
            let _ = write!(out, " netns {netns}");
        }
        out.push('\n');
    }
}

impl Text for PairInfo {
    // As in VPP, a command that makes a pair says nothing.
    fn text(&self, _: &mut String, _: &View) {}
}

/// The answer of [`ShowPairs`].
#[derive(Debug, Clone, Serialize)]
pub struct Pairs {
    /// Namespace of pairs that name none.
    pub default_netns: Option<String>,
    /// Sub-interfaces of paired interfaces get pairs.
    pub auto_subint: bool,
    /// State, MTU and addresses are written to Linux.
    pub sync: bool,
    /// By number of the router's interface.
    pub pairs: Vec<PairInfo>,
}

impl Text for Pairs {
    fn text(&self, out: &mut String, _: &View) {
        let on = |on| if on { "on" } else { "off" };
        let _ = writeln!(out, "lcp default netns '{}'", self.default_netns.as_deref().unwrap_or("<unset>"));
        let _ = writeln!(out, "lcp lcp-auto-subint {}", on(self.auto_subint));
        let _ = writeln!(out, "lcp lcp-sync {}", on(self.sync));
        self.pairs.iter().for_each(|pair| pair.line(out));
    }
}

impl Execute<Router> for ShowPairs {
    type Reply = Pairs;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Pairs>, OpError> {
        let one = self.interface.as_ref().map(|interface| resolve(router, interface)).transpose()?;
        let known = router.state::<Lcp>()?;
        let chosen = known.pairs().filter(|pair| one.is_none_or(|one| one == pair.phy));
        Ok(Outcome::Done(Pairs {
            default_netns: known.namespace().map(str::to_owned),
            auto_subint: known.auto_sub(),
            sync: known.sync(),
            pairs: chosen.map(|pair| PairInfo::of(router, pair)).collect(),
        }))
    }
}

request! {
    /// Shows which EtherTypes go to host interfaces.
    pub read ShowTypes "lcp_ethertype_show" ["show lcp ethertype"] {}
}

/// The answer of [`ShowTypes`].
#[derive(Debug, Clone, Serialize)]
pub struct Types {
    /// In the order in which they were enabled.
    pub ethertypes: Vec<u16>,
}

impl Text for Types {
    fn text(&self, out: &mut String, _: &View) {
        for number in &self.ethertypes {
            let name = NAMES.iter().find(|(_, known)| known == number).map_or("", |(name, _)| name);
            let _ = writeln!(out, "{}", format!("0x{number:04x} {name}").trim_end());
        }
        out.push_str("IEEE 802.2 (IS-IS and others)\n");
    }
}

impl Execute<Router> for ShowTypes {
    type Reply = Types;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Types>, OpError> {
        Ok(Outcome::Done(Types { ethertypes: router.state::<Lcp>()?.types().to_vec() }))
    }
}

/// What pairs are made with.
const SETTINGS: &[Shape] = &[
    Shape::new("linux_cp/sync", "true", "lcp_sync_set", r#"{"enable":true}"#)
        .doc("State, MTU and addresses of interfaces go to their host interfaces."),
    Shape::new("linux_cp/ethertypes", r#""{ethertype#}""#, "lcp_ethertype_enable", r#"{"ethertype":"{ethertype#}"}"#)
        .list()
        .doc("EtherTypes whose frames go to host interfaces."),
];

/// Pairs.
const PAIRS: &[Shape] =
    &[Shape::new("interfaces/{interface}/linux_cp", r#"{"*":"*"}"#, "lcp_create", r#"{"interface":"{interface}","*":"*"}"#)
        .doc("The host interface in Linux.")];

/// What would change pairs that are still to be made.
const DEFAULTS: &[Shape] = &[
    Shape::new("linux_cp/netns", r#""{netns}""#, "lcp_default_netns_set", r#"{"netns":"{netns}"}"#)
        .doc("Network namespace of host interfaces that are made without one."),
    Shape::new("linux_cp/auto_sub", "true", "lcp_auto_subint_set", r#"{"enable":true}"#)
        .doc("Sub-interfaces have host interfaces of their own."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
