//! Operations and commands.

mod show;

use std::net::{IpAddr, Ipv4Addr};

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request::Execute;
use quiver_command::{request, words};
use quiver_ipfix::exporter::{self, Exporter};
use quiver_net::Router;
use quiver_net::interface::ops::{Direction, resolve};

use crate::control::{self, Flowprobe};
use crate::flows::Params;
use crate::key::Record;
pub use show::{ShowExporter, ShowFeatures, ShowParams, ShowStatistics, ShowTable};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "set ipfix exporter collector 10.0.0.9 port 2055 src 10.0.0.1 path-mtu 1400",
    "flowprobe params record l3 l4 active 60 passive 120",
    "flowprobe feature add-del host-eth1 ip4 rx",
    "show flowprobe statistics",
];

/// Messages of the binary API, by command.
const MESSAGES: &[(&str, &[&str])] = &[
    ("set ipfix exporter", &["set_ipfix_exporter"]),
    ("show ipfix exporter", &["ipfix_exporter_dump", "ipfix_all_exporter_get"]),
    ("ipfix flush", &["ipfix_flush"]),
    ("flowprobe params", &["flowprobe_set_params", "flowprobe_params"]),
    ("show flowprobe params", &["flowprobe_get_params"]),
    ("flowprobe feature add-del", &["flowprobe_interface_add_del", "flowprobe_tx_interface_add_del"]),
    ("show flowprobe feature", &["flowprobe_interface_dump"]),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES).actions(&["ipfix_flush"]);
    registry.declare::<SetExporter>().declare::<Flush>().declare::<SetParams>().declare::<SetFeature>();
    show::register(registry);
    registry.shapes(Stage::Services, SHAPES);
    registry.configuration(Stage::Services, |_| whole(configuration)).covers(&[
        "ipfix_exporter_set",
        "flowprobe_params_set",
        "flowprobe_feature_set",
    ]);
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<Flowprobe>() else { return };
    if let Some(exporter) = exporter::current(router) {
        out.push(&SetExporter::of(&exporter)).undo(&SetExporter::of(&Exporter::NONE)).replaced();
    }
    if *state.params() != Params::default() {
        out.push(&SetParams::of(state.params())).undo(&SetParams::of(&Params::default())).replaced();
    }
    for (index, which, direction) in state.features() {
        let request = |disable| SetFeature { interface: IfRef(router.interfaces.name(index)), which, direction, disable };
        out.push(&request(false)).undo(&request(true));
    }
}

request! {
    /// Sets who collects records of flows, and of NAT44 where `nat ipfix logging` is on, by IPFIX over UDP; collector 0.0.0.0: nobody.
    pub change SetExporter "ipfix_exporter_set" ["set ipfix exporter"] {
        /// Collector.
        pub collector: IpAddr = "collector <ip>",
        /// Its port.
        pub port: u16 = "port <port>" default(4739) range(1..=65_535),
        /// Source of the datagrams, an address of the router.
        pub src: Option<IpAddr> = "src <ip>",
        /// Table in which the collector is looked up.
        pub fib_id: u32 = "fib-id <id>" default(0),
        /// Largest IP packet, bytes.
        pub path_mtu: u16 = "path-mtu <bytes>" default(512) range(256..=1450),
        /// Between two announcements of templates, seconds.
        pub template_interval: u32 = "template-interval <seconds>" default(20) range(1..=86_400),
        /// Datagrams over IPv4 have a checksum; those over IPv6 always have one.
        pub udp_checksum: bool = "udp-checksum",
    }
}

impl SetExporter {
    /// The request that sets this one.
    pub fn of(exporter: &Exporter) -> Self {
        let Exporter { collector, port, src, table, path_mtu, template_interval, udp_checksum } = *exporter;
        let src = Some(src).filter(|src| !src.is_unspecified());
        Self { collector, port, src, fib_id: table, path_mtu, template_interval, udp_checksum }
    }
}

impl Execute<Router> for SetExporter {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { collector, port, fib_id: table, path_mtu, template_interval, udp_checksum, .. } = self;
        if collector.is_unspecified() {
            return exporter::set(router, None).map(Outcome::Done);
        }
        let src = self.src.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        if src.is_unspecified() {
            let error = OpError::new(retval::INVALID_VALUE, "the datagrams need a source address").key("src");
            return Err(error.remedy("`src <ip>' names one of the router's"));
        }
        let exporter = Exporter { collector, port, src, table, path_mtu, template_interval, udp_checksum };
        exporter::set(router, Some(exporter)).map(Outcome::Done)
    }
}

request! {
    /// Sends records that wait for others in the same message.
    pub change Flush "ipfix_flush" ["ipfix flush"] {}
}

impl Execute<Router> for Flush {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        exporter::flush(router);
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets what flow records contain, and when flows are exported.
    pub change SetParams "flowprobe_params_set" ["flowprobe params record", "flowprobe params"] {
        /// MAC addresses and type.
        pub l2: bool = "l2",
        /// IP addresses and protocol.
        pub l3: bool = "l3",
        /// Ports and TCP flags.
        pub l4: bool = "l4",
        /// A flow that goes on is exported after so many seconds; 0: only when it is idle.
        pub active: u32 = "active <seconds>" default(15) range(0..=86_400),
        /// A flow without packets ends after so many seconds; 0: each packet is exported as a record.
        pub passive: u32 = "passive <seconds>" default(120) range(0..=86_400),
        /// One packet in so many is recorded; the collector is told.
        pub sample: u32 = "sample <n>" default(1) range(1..=16_777_216),
    } ignores {
        /// VPP's word in front of what is recorded.
        "record",
    }
}

impl SetParams {
    /// The request that sets these.
    pub fn of(params: &Params) -> Self {
        let Params { record, active, passive, sample } = *params;
        Self { l2: record.l2(), l3: record.l3(), l4: record.l4(), active, passive, sample }
    }
}

impl Execute<Router> for SetParams {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { l2, l3, l4, active, passive, sample } = self;
        control::set_params(router, Params { record: Record::new(l2, l3, l4), active, passive, sample }).map(Outcome::Done)
    }
}

words! {
    /// Which packets are recorded.
    pub enum Which {
        /// IPv4.
        Ip4 = "ip4",
        /// IPv6.
        Ip6 = "ip6",
        /// All frames.
        L2 = "l2",
    }
}

request! {
    /// Records flows of an interface, or no longer.
    pub change SetFeature "flowprobe_feature_set" ["flowprobe feature add-del"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Which packets.
        pub which: Which = "ip4|ip6|l2" default(Which::Ip4),
        /// Whether those that come in or leave.
        pub direction: Direction = "rx|tx|both" default(Direction::Tx),
        /// No longer.
        pub disable: bool = "disable",
    }
}

impl Execute<Router> for SetFeature {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        control::set_feature(router, index, self.which, self.direction, !self.disable).map(Outcome::Done)
    }
}

/// Where flow records stand in a document.
const SHAPES: &[Shape] = &[
    Shape::new("flowprobe/exporter", r#"{"*":"*"}"#, "ipfix_exporter_set", r#"{"*":"*"}"#)
        .doc("Who collects records of flows, and of NAT44."),
    Shape::new("flowprobe/params", r#"{"*":"*"}"#, "flowprobe_params_set", r#"{"*":"*"}"#)
        .doc("What flow records tell of, and when flows are exported."),
    Shape::new(
        "interfaces/{interface}/flowprobe/{which}",
        r#""{direction}""#,
        "flowprobe_feature_set",
        r#"{"interface":"{interface}","which":"{which}","direction":"{direction}","disable":false}"#,
    )
    .doc("Records flows of these packets (ip4, ip6, l2): those that come in (rx), leave (tx), or both."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
