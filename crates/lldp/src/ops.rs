//! Operations and commands.

mod show;

use std::net::{Ipv4Addr, Ipv6Addr};

use quiver_command::configuration::{Configuration, Stage, each, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::interface::ops::resolve;
use quiver_net::{IfIndex, Router};
use serde_json::Value;

use crate::control::{self, HOLD, INTERVAL, Lldp, Settings};
pub use show::{NeighborInfo, PortInfo, ShowLldp, Shown, Statistics, shown};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "set lldp system-name edge1 tx-hold 4 tx-interval 30",
    "set interface lldp host-eth1 port-desc \"to the core\" mgmt-ip4 192.0.2.1",
    "set interface lldp host-eth1 disable",
    "show lldp detail",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] =
    &[("set lldp", &["lldp_config"]), ("set interface lldp", &["sw_interface_set_lldp"]), ("show lldp", &["lldp_dump"])];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<SetLldp>().declare::<SetInterfaceLldp>().declare::<ShowLldp>();
    registry
        .configuration(Stage::Services, |_| whole(settings))
        .configuration(Stage::Services, |router| each(ports(router), port))
        .shapes(Stage::Services, SHAPES)
        .covers(&["lldp_set", "interface_lldp_set"]);
}

fn settings(router: &Router, out: &mut Configuration<Router>) {
    let Ok(known) = router.state::<Lldp>() else { return };
    if known.system_name.is_none() && (known.hold, known.interval) == (HOLD, INTERVAL) {
        return;
    }
    let set = |name: &str, hold, interval| SetLldp {
        system_name: Some(name.to_owned()),
        tx_hold: Some(hold),
        tx_interval: Some(interval),
    };
    let now = set(known.system_name.as_deref().unwrap_or_default(), known.hold, known.interval);
    out.push(&now).undo(&set("", HOLD, INTERVAL)).replaced();
}

fn ports(router: &Router) -> Vec<IfIndex> {
    router.state::<Lldp>().map(|known| known.ports().map(|(index, _)| index).collect()).unwrap_or_default()
}

fn port(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(port) = router.state::<Lldp>().ok().and_then(|known| known.ports.get(&index.0)) else { return };
    let Settings { port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid } = port.settings.clone();
    let interface = IfRef(router.interfaces.name(*index));
    let on = SetInterfaceLldp { interface, port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid, disable: false };
    let Settings { port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid } = Settings::default();
    let off = SetInterfaceLldp { interface: on.interface.clone(), port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid, disable: true };
    out.push(&on).undo(&off).replaced();
}

request! {
    /// Sets what LLDP says on all interfaces, and how often. What is not named stays.
    pub change SetLldp "lldp_set" ["set lldp"] {
        /// Name of the router; with "" it is the host's, as at first.
        pub system_name: Option<String> = "system-name <name>",
        /// Intervals that what is sent holds for: 4 at first.
        pub tx_hold: Option<u32> = "tx-hold <n>" range(1..=100),
        /// Seconds between data units: 30 at first.
        pub tx_interval: Option<u32> = "tx-interval <seconds>" range(1..=3600),
    }
}

impl Execute<Router> for SetLldp {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        control::configure(router, self.system_name, self.tx_hold, self.tx_interval).map(Outcome::Done)
    }
}

request! {
    /// Has an interface send and receive LLDP, or ends that. What is not named is not sent; where LLDP is on already, this says what is sent from now on.
    pub change SetInterfaceLldp "interface_lldp_set" ["set interface lldp"] {
        /// A physical interface; of a bond, each member.
        pub interface: IfRef = "<if>",
        /// Description of the port.
        pub port_desc: Option<String> = "port-desc <text>",
        /// Where the router is managed. Without any address the interface's MAC address is sent.
        pub mgmt_ip4: Option<Ipv4Addr> = "mgmt-ip4 <ip4>",
        /// The same over IPv6.
        pub mgmt_ip6: Option<Ipv6Addr> = "mgmt-ip6 <ip6>",
        /// Object that the addresses belong to; dotted numbers are encoded as ASN.1 has it, other text is sent as it is.
        pub mgmt_oid: Option<String> = "mgmt-oid <oid>",
        /// Ends LLDP here; neighbours are told.
        pub disable: bool = "disable",
    } ignores {
        /// The next word is the interface's number.
        "sw_if_index",
    }
}

impl Execute<Router> for SetInterfaceLldp {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let Self { port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid, disable, .. } = self;
        if disable {
            return control::unset(router, index).map(Outcome::Done);
        }
        control::set(router, index, Settings { port_desc, mgmt_ip4, mgmt_ip6, mgmt_oid }).map(Outcome::Done)
    }
}

/// Where LLDP stands in a document.
const SHAPES: &[Shape] = &[
    Shape::new("lldp", r#"{"*":"*"}"#, "lldp_set", r#"{"*":"*"}"#)
        .canonical(canonical)
        .doc("What LLDP says on all interfaces, and how often."),
    Shape::new(
        "interfaces/{interface}/lldp",
        r#"{"*":"*"}"#,
        "interface_lldp_set",
        r#"{"interface":"{interface}","disable":false,"*":"*"}"#,
    )
    .doc("Sends and receives LLDP."),
];

/// What a document does not say is as at first.
fn canonical(mut request: Value) -> Value {
    for (key, usual) in [("system_name", Value::from("")), ("tx_hold", HOLD.into()), ("tx_interval", INTERVAL.into())] {
        if request[key].is_null() {
            request[key] = usual;
        }
    }
    request
}

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
