//! Operations and commands.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::interface::ops::{Direction, resolve};
use quiver_net::local::datagram::Totals as Sent;
use serde::Serialize;

use crate::control::{self, Collector, PORT, Params, Sflow};
use crate::sampler::{HEADER_MAX, Totals};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] =
    &["sflow collector 10.0.0.9 src 10.0.0.1", "sflow sampling-rate 1000", "sflow enable-disable host-eth1", "show sflow"];

/// Messages of the binary API, by command.
const MESSAGES: &[(&str, &[&str])] = &[
    ("sflow enable-disable", &["sflow_enable_disable"]),
    ("sflow sampling-rate", &["sflow_sampling_rate_set"]),
    ("sflow polling-interval", &["sflow_polling_interval_set"]),
    ("sflow header-bytes", &["sflow_header_bytes_set"]),
    ("sflow direction", &["sflow_direction_set"]),
    (
        "show sflow",
        &[
            "sflow_interface_dump",
            "sflow_sampling_rate_get",
            "sflow_polling_interval_get",
            "sflow_header_bytes_get",
            "sflow_direction_get",
        ],
    ),
];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<SetInterface>().declare::<SetRate>().declare::<SetPolling>().declare::<SetHeader>();
    registry.declare::<SetDirection>().declare::<SetCollector>().declare::<ShowSflow>();
    registry.shapes(Stage::Services, SHAPES);
    registry.configuration(Stage::Services, |_| whole(configuration)).covers(&[
        "sflow_interface_set",
        "sflow_sampling_rate_set",
        "sflow_polling_interval_set",
        "sflow_header_bytes_set",
        "sflow_direction_set",
        "sflow_collector_set",
    ]);
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    let Ok(state) = router.state::<Sflow>() else { return };
    let (Params { rate, polling, header, direction }, usual) = (*state.params(), Params::default());
    if rate != usual.rate {
        out.push(&SetRate { n: rate }).undo(&SetRate { n: usual.rate }).replaced();
    }
    if polling != usual.polling {
        out.push(&SetPolling { seconds: polling }).undo(&SetPolling { seconds: usual.polling }).replaced();
    }
    if header != usual.header {
        out.push(&SetHeader { bytes: header }).undo(&SetHeader { bytes: usual.header }).replaced();
    }
    if direction != usual.direction {
        out.push(&SetDirection { direction }).undo(&SetDirection { direction: usual.direction }).replaced();
    }
    if let Some(collector) = state.collector() {
        out.push(&SetCollector::of(collector)).undo(&SetCollector::NONE).replaced();
    }
    for index in state.interfaces() {
        let request = |disable| SetInterface { interface: IfRef(router.interfaces.name(index)), disable };
        out.push(&request(false)).undo(&request(true));
    }
}

/// Changes how samples are taken.
fn change(router: &mut Router, f: impl FnOnce(&mut Params)) -> Result<Outcome<Router, ()>, OpError> {
    let mut params = *router.state::<Sflow>()?.params();
    f(&mut params);
    control::set_params(router, params).map(Outcome::Done)
}

request! {
    /// Samples frames and counters of an interface, or no longer.
    pub change SetInterface "sflow_interface_set" ["sflow enable-disable", "sflow enable"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// No longer.
        pub disable: bool = "disable",
    }
}

impl Execute<Router> for SetInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        control::set_interface(router, index, !self.disable).map(Outcome::Done)
    }
}

request! {
    /// Samples one frame in so many.
    pub change SetRate "sflow_sampling_rate_set" ["sflow sampling-rate"] {
        /// How many.
        pub n: u32 = "<n>" range(1..=16_777_216),
    }
}

impl Execute<Router> for SetRate {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        change(router, |params| params.rate = self.n)
    }
}

request! {
    /// Samples the counters of interfaces every so many seconds; 0: not at all.
    pub change SetPolling "sflow_polling_interval_set" ["sflow polling-interval"] {
        /// Seconds.
        pub seconds: u32 = "<seconds>" range(0..=86_400),
    }
}

impl Execute<Router> for SetPolling {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        change(router, |params| params.polling = self.seconds)
    }
}

request! {
    /// Sends so many bytes of each sampled frame; as VPP, in steps of 32 from 64 to 256, rounded up.
    pub change SetHeader "sflow_header_bytes_set" ["sflow header-bytes"] {
        /// Bytes.
        pub bytes: u32 = "<bytes>",
    }
}

impl Execute<Router> for SetHeader {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let most = HEADER_MAX as u32;
        change(router, |params| params.header = self.bytes.min(most).next_multiple_of(32).max(64))
    }
}

request! {
    /// Samples frames that come in, those that leave, or both.
    pub change SetDirection "sflow_direction_set" ["sflow direction"] {
        /// Which.
        pub direction: Direction = "rx|tx|both",
    }
}

impl Execute<Router> for SetDirection {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        change(router, |params| params.direction = self.direction)
    }
}

request! {
    /// Sets who collects samples, by sFlow over UDP; 0.0.0.0: nobody.
    pub change SetCollector "sflow_collector_set" ["sflow collector"] {
        /// Collector.
        pub collector: IpAddr = "<ip>",
        /// Its port.
        pub port: u16 = "port <port>" default(6343) range(1..=65_535),
        /// Source of the datagrams, an address of the router, by which the collector knows it.
        pub src: Option<IpAddr> = "src <ip>",
        /// Table in which the collector is looked up.
        pub fib_id: u32 = "fib-id <id>" default(0),
        /// Largest IP packet, bytes.
        pub path_mtu: u16 = "path-mtu <bytes>" default(1400) range(576..=9000),
    }
}

impl SetCollector {
    /// Nobody.
    const NONE: Self = Self { collector: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: PORT, src: None, fib_id: 0, path_mtu: 1400 };

    fn of(collector: &Collector) -> Self {
        let Collector { address, port, src, table, path_mtu } = *collector;
        Self { collector: address, port, src: Some(src), fib_id: table, path_mtu }
    }
}

impl Execute<Router> for SetCollector {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let Self { collector: address, port, src, fib_id: table, path_mtu } = self;
        if address.is_unspecified() {
            return control::set_collector(router, None).map(Outcome::Done);
        }
        let Some(src) = src.filter(|src| !src.is_unspecified()) else {
            let error = OpError::new(retval::INVALID_VALUE, "the datagrams need a source address").key("src");
            return Err(error.remedy("`src <ip>' names one of the router's"));
        };
        control::set_collector(router, Some(Collector { address, port, src, table, path_mtu })).map(Outcome::Done)
    }
}

request! {
    /// Shows what is sampled, who collects it, and what became of samples.
    pub read ShowSflow "sflow_show" ["show sflow"] {}
}

/// What became of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Samples of frames.
    pub packet_samples: u64,
    /// Samples of counters.
    pub counter_samples: u64,
    /// Samples without a collector.
    pub without_collector: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams lost.
    pub lost_datagrams: u64,
    /// Samples in these.
    pub lost_samples: u64,
}

/// The answer of [`ShowSflow`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// One frame in so many.
    pub sampling_rate: u32,
    /// Which frames.
    pub direction: Direction,
    /// Between two samples of counters, seconds.
    pub polling_interval: u32,
    /// Bytes of each frame.
    pub header_bytes: u32,
    /// Who collects.
    pub collector: Option<SetCollector>,
    /// Interfaces that are sampled.
    pub interfaces: Vec<String>,
    /// What became of samples, of all threads.
    pub status: Status,
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        let _ = writeln!(out, "sflow sampling-rate {}", self.sampling_rate);
        let _ = writeln!(out, "sflow direction {}", self.direction.word());
        let _ = writeln!(out, "sflow polling-interval {}", self.polling_interval);
        let _ = writeln!(out, "sflow header-bytes {}", self.header_bytes);
        if let Some(SetCollector { collector, port, src, fib_id, path_mtu }) = &self.collector {
            let src = src.map(|src| src.to_string()).unwrap_or_default();
            let _ = writeln!(out, "sflow collector {collector} port {port} src {src} fib-id {fib_id} path-mtu {path_mtu}");
        }
        for interface in &self.interfaces {
            let _ = writeln!(out, "sflow enable {interface}");
        }
        let Status { packet_samples, counter_samples, without_collector, datagrams, lost_datagrams, lost_samples } = self.status;
        let _ = writeln!(out, "Status");
        let _ = writeln!(out, "  interfaces enabled: {}", self.interfaces.len());
        let _ = writeln!(out, "  packet samples sent: {packet_samples}");
        let _ = writeln!(out, "  counter samples sent: {counter_samples}");
        let _ = writeln!(out, "  samples without a collector: {without_collector}");
        let _ = writeln!(out, "  datagrams sent: {datagrams}");
        let _ = writeln!(out, "  lost: {lost_samples} samples in {lost_datagrams} datagrams");
    }
}

impl Execute<Router> for ShowSflow {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let totals = control::on_each(router, |_, sampler| (sampler.totals, *sampler.outbox.totals()))?;
        let state = router.state::<Sflow>()?;
        let Params { rate, polling, header, direction } = *state.params();
        let sum = |f: fn(&(Totals, Sent)) -> u64| totals.iter().map(f).sum();
        Ok(Outcome::Done(Shown {
            sampling_rate: rate,
            direction,
            polling_interval: polling,
            header_bytes: header,
            collector: state.collector().map(SetCollector::of),
            interfaces: state.interfaces().map(|index| router.interfaces.name(index)).collect(),
            status: Status {
                packet_samples: sum(|(totals, _)| totals.flow_samples),
                counter_samples: sum(|(totals, _)| totals.counter_samples),
                without_collector: sum(|(totals, _)| totals.homeless),
                datagrams: sum(|(_, sent)| sent.sent),
                lost_datagrams: sum(|(_, sent)| sent.lost),
                lost_samples: sum(|(_, sent)| sent.lost_items),
            },
        }))
    }
}

/// Where sFlow stands in a document.
const SHAPES: &[Shape] = &[
    Shape::new("sflow/sampling_rate", r#""{n#}""#, "sflow_sampling_rate_set", r#"{"n":"{n#}"}"#)
        .doc("One frame in so many is sampled."),
    Shape::new("sflow/polling_interval", r#""{seconds#}""#, "sflow_polling_interval_set", r#"{"seconds":"{seconds#}"}"#)
        .doc("Seconds between samples of counters; 0: none."),
    Shape::new("sflow/header_bytes", r#""{bytes#}""#, "sflow_header_bytes_set", r#"{"bytes":"{bytes#}"}"#)
        .doc("Bytes of each sampled frame."),
    Shape::new("sflow/direction", r#""{direction}""#, "sflow_direction_set", r#"{"direction":"{direction}"}"#)
        .doc("Frames that come in, those that leave, or both."),
    Shape::new("sflow/collector", r#"{"*":"*"}"#, "sflow_collector_set", r#"{"*":"*"}"#).doc("Who collects samples."),
    Shape::new("interfaces/{interface}/sflow", "true", "sflow_interface_set", r#"{"interface":"{interface}","disable":false}"#)
        .doc("Frames and counters are sampled."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
