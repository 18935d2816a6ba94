//! Operations and commands.

use quiver_command::configuration::{Configuration, Stage, whole};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::{Align, OpError, Outcome, Registry, Text, TextTable, View, retval};
use quiver_command::request;
use quiver_command::request::Execute;
use quiver_net::Router;
use quiver_net::interface::ops::{Direction, resolve};
use serde::Serialize;

use crate::control::{self, Directions, Span};

/// Lines that `help` and the reference show.
const EXAMPLES: &[&str] = &[
    "set interface span host-eth1 destination host-eth2 rx",
    "set interface span host-eth1 l2 destination host-eth2",
    "set interface span host-eth1 disable",
    "show interface span",
];

/// Each command's messages of the binary API.
const MESSAGES: &[(&str, &[&str])] =
    &[("set interface span", &["sw_interface_span_enable_disable"]), ("show interface span", &["sw_interface_span_dump"])];

/// Adds the plugin's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.examples(EXAMPLES).messages(MESSAGES);
    registry.declare::<SetSpan>().declare::<ShowSpan>();
    registry.configuration(Stage::Services, |_| whole(configuration)).shapes(Stage::Services, SHAPES).covers(&["span_set"]);
}

/// The word for directions; none where there are none.
const fn word(directions: Directions) -> Option<Direction> {
    match (directions.rx, directions.tx) {
        (true, true) => Some(Direction::Both),
        (true, false) => Some(Direction::Rx),
        (false, true) => Some(Direction::Tx),
        (false, false) => None,
    }
}

request! {
    /// Sends copies of an interface's frames to another interface (port mirroring), or no longer.
    pub change SetSpan "span_set" ["set interface span"] {
        /// The mirrored interface.
        pub interface: IfRef = "<if>",
        /// While it is bridged or cross-connected, on layer 2; else at its device.
        pub l2: bool = "l2",
        /// No longer: to the destination, or to any where none is given.
        pub disable: bool = "disable",
        /// Where copies leave.
        pub destination: Option<IfRef> = "destination <if>",
        /// Frames that come in, that leave, or both.
        pub state: Direction = "rx|tx|both" default(Direction::Both),
    }
}

impl Execute<Router> for SetSpan {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let from = resolve(router, &self.interface)?;
        let to = self.destination.as_ref().map(|to| resolve(router, to)).transpose()?;
        let directions = if self.disable { Directions::default() } else { Directions { rx: self.state.rx(), tx: self.state.tx() } };
        if to.is_none() && !self.disable {
            let error = OpError::new(retval::INVALID_INTERFACE, "say `destination' and an interface, or `disable'");
            return Err(error.key("destination"));
        }
        control::set(router, from, to, self.l2, directions).map(Outcome::Done)
    }
}

request! {
    /// Shows which interfaces are mirrored where.
    pub read ShowSpan "span_show" ["show interface span"] {}
}

/// A mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MirrorInfo {
    /// The mirrored interface.
    pub interface: String,
    /// Its number.
    pub sw_if_index: u32,
    /// Where copies leave.
    pub destination: String,
    /// Its number.
    pub destination_sw_if_index: u32,
    /// What is copied at the device.
    pub device: Option<Direction>,
    /// What is copied on layer 2.
    pub l2: Option<Direction>,
}

/// All mirrors.
///
/// # Errors
/// The plugin is off.
pub fn shown(router: &Router) -> Result<Vec<MirrorInfo>, OpError> {
    let state = router.state::<Span>()?;
    let mut all: Vec<MirrorInfo> = Vec::new();
    for l2 in [false, true] {
        for (from, to, directions) in state.mirrors(l2) {
            let known = |mirror: &&mut MirrorInfo| (mirror.sw_if_index, mirror.destination_sw_if_index) == (from.0, to.0);
            let word = word(directions);
            match all.iter_mut().find(known) {
                Some(mirror) => mirror.l2 = word,
                None => all.push(MirrorInfo {
                    interface: router.interfaces.name(from),
                    sw_if_index: from.0,
                    destination: router.interfaces.name(to),
                    destination_sw_if_index: to.0,
                    device: word.filter(|_| !l2),
                    l2: word.filter(|_| l2),
                }),
            }
        }
    }
    all.sort_by_key(|mirror| (mirror.sw_if_index, mirror.destination_sw_if_index));
    Ok(all)
}

/// The answer of [`ShowSpan`].
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Shown(Vec<MirrorInfo>);

impl Execute<Router> for ShowSpan {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        Ok(Outcome::Done(Shown(shown(router)?)))
    }
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        if self.0.is_empty() {
            return;
        }
        let table = TextTable::new()
            .column_with("Source", Align::Left, 32, Align::Left)
            .column_with("Destination", Align::Left, 32, Align::Left)
            .column_with("Device", Align::Left, 8, Align::Left)
            .column_with("L2", Align::Left, 0, Align::Left)
            .gap(1);
        table.heading(out);
        let word = |state: Option<Direction>| state.map_or("none", Direction::word);
        for mirror in &self.0 {
            table.row(out, &[&mirror.interface, &mirror.destination, &word(mirror.device), &word(mirror.l2)]);
        }
    }
}

fn configuration(router: &Router, out: &mut Configuration<Router>) {
    for mirror in shown(router).unwrap_or_default() {
        for (l2, state) in [(false, mirror.device), (true, mirror.l2)] {
            let Some(state) = state else { continue };
            let (interface, destination) = (IfRef(mirror.interface.clone()), Some(IfRef(mirror.destination.clone())));
            let request = SetSpan { interface, l2, disable: false, destination, state };
            let undo = SetSpan { disable: true, state: Direction::Both, ..request.clone() };
            out.push(&request).undo(&undo).replaced();
        }
    }
}

/// Where mirrors stand in a document.
const SHAPES: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/span/{destination}",
        r#""{state}""#,
        "span_set",
        r#"{"interface":"{interface}","l2":false,"disable":false,"destination":"{destination}","state":"{state}"}"#,
    )
    .doc("Copies of frames at the device, by destination: both, rx or tx."),
    Shape::new(
        "interfaces/{interface}/span_l2/{destination}",
        r#""{state}""#,
        "span_set",
        r#"{"interface":"{interface}","l2":true,"disable":false,"destination":"{destination}","state":"{state}"}"#,
    )
    .doc("Copies of frames on layer 2, by destination: both, rx or tx."),
];

#[test]
fn every_example_can_be_read() {
    quiver_net::ops::testing::assert_examples(register);
}
