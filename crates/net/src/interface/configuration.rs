//! What of interfaces somebody has configured, as the requests that make it again.

use std::collections::{BTreeSet, HashMap, HashSet};

use quiver_command::configuration::{Configuration, Entry, Pushed, Stage, Steps, each};
use quiver_command::document::Shape;
use quiver_command::grammar::IfRef;
use quiver_command::operation::Registry;
use quiver_command::request::Declared;
use quiver_graph::RxMode;

use super::ops::placement::{Mode, SetMode, SetPlacement};
use super::ops::{Change, CreateSub, DeleteInterface, Matching, MtuKind, SetInterface};
use super::{IfIndex, Interface, InterfaceKind, Kind, L2Mode};
use crate::Router;

/// What an interface is among the tunnels of a bridge domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnel {
    /// None.
    #[default]
    No,
    /// A tunnel to one peer. Where the domain has one to a group too, frames are flooded to the group alone: its peers are in it.
    ToPeer,
    /// A tunnel to a group.
    ToGroup,
}

/// How an interface began.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Its first name.
    pub name: String,
    /// Its first MTU.
    pub mtu: u32,
    /// Largest frame that its device took, bytes without FCS.
    pub max_frame: u32,
    /// Its first MAC address.
    pub mac: quiver_wire::MacAddr,
    /// The request that made it; none where none did (`local0`, what `startup.conf` makes), and for sub-interfaces.
    pub request: Option<Entry>,
    /// A plugin keeps it: what it is follows from what the plugin says of the configuration.
    pub kept: bool,
    /// It is up from its first moment.
    pub starts_up: bool,
    /// What it is among the tunnels of a bridge domain.
    pub tunnel: Tunnel,
}

impl Router {
    /// Notes the request that has made an interface, so that `show configuration` has it. What the router has chosen itself (a free
    /// number) stands in it.
    pub fn made_by<R: Declared>(&mut self, index: IfIndex, request: &R) {
        self.made_by_entry(index, Entry::of(request));
    }

    /// The same, where there is more to say about the request.
    pub fn made_by_entry(&mut self, index: IfIndex, entry: Entry) {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.origin.request = Some(entry);
        }
    }

    /// Notes that a plugin has made an interface for its own use and keeps it.
    pub fn made_by_plugin(&mut self, index: IfIndex) {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.origin.kept = true;
        }
    }

    /// Notes what an interface is among tunnels; before it becomes a port of a bridge domain.
    pub fn is_tunnel(&mut self, index: IfIndex, tunnel: Tunnel) {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.origin.tunnel = tunnel;
        }
    }

    /// Notes that interfaces of its kind are up when they are made: what the configuration says of this one is that it is down.
    pub fn starts_up(&mut self, index: IfIndex) {
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.origin.starts_up = true;
        }
    }
}

impl Interface {
    /// Notes that the user has switched a feature: on or off where it was not so by itself, or back.
    pub(super) fn note_feature(&mut self, feature: (String, String), on: bool, changed: bool) {
        match self.features.get(&feature) {
            Some(said) if *said != on => drop(self.features.remove(&feature)),
            None if changed => drop(self.features.insert(feature, on)),
            _ => {}
        }
    }
}

/// Adds what this subject says of the running configuration.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry
        .configuration(Stage::Interfaces, interfaces)
        .configuration(Stage::Links, |router| each(numbers(router), links))
        .configuration(Stage::Up, |router| each(numbers(router), up))
        .configuration(Stage::Services, |router| each(numbers(router), features))
        .shapes(Stage::Interfaces, MADE)
        .shapes(Stage::Links, LINKS)
        .shapes(Stage::Up, UP)
        .shapes(Stage::Services, FEATURES)
        .covers(&["interface_delete", "interface_set", "loopback_create", "pg_interface_create", "sub_interface_create"])
        .covers(&["rx_mode_set", "rx_placement_set"]);
}

/// The numbers of all interfaces that are the user's.
pub(crate) fn numbers(router: &Router) -> Vec<IfIndex> {
    router.interfaces.iter().filter(|interface| !interface.origin.kept).map(|interface| interface.index).collect()
}

/// How a request names an interface.
pub(crate) fn named(interface: &Interface) -> IfRef {
    IfRef(interface.name.clone())
}

/// A setting of an interface, and the change that it had without it.
fn set<'a>(interface: &Interface, change: Change, before: Change, out: &'a mut Configuration<Router>) -> Pushed<'a> {
    let interface = named(interface);
    let undo = SetInterface { interface: interface.clone(), change: before };
    out.push(&SetInterface { interface, change }).undo(&undo).replaced()
}

/// What the switches and addresses of a port build on: it is one.
pub(crate) fn port_of(interface: &str) -> String {
    format!("port {interface}")
}

/// Interfaces in an order in which each finds its first name free.
fn interfaces(router: &Router) -> Steps<Router> {
    each(Plan::of(router).steps, |router, step, out| match step {
        Making::Make(index) => {
            let Some(interface) = router.interfaces.get(*index) else { return };
            let Some(entry) = interface.origin.request.clone() else { return };
            let name = &interface.origin.name;
            let pushed = out.push_entry(entry).makes(name);
            // What removes it is what removes others of its kind.
            if let Some(kind) = interface.kind.declared() {
                pushed.undo(&DeleteInterface::of(kind, IfRef(name.clone())));
            }
        }
        Making::Sub(index, parent) => {
            router.interfaces.get(*index).iter().for_each(|interface| sub_interface(interface, parent, out));
        }
        Making::Rename(from, to) => {
            let rename = |from: &str, to: &str| SetInterface {
                interface: IfRef(from.to_owned()),
                change: Change::Name { name: to.to_owned() },
            };
            out.push(&rename(from, to)).undo(&rename(to, from)).makes(from).makes(to);
        }
    })
}

/// A step in making interfaces.
enum Making {
    Make(IfIndex),
    /// Of a parent that has this name now.
    Sub(IfIndex, String),
    Rename(String, String),
}

/// The order of making interfaces and giving them their names: first all that are no sub-interfaces, then these. A name that another
/// one is still to be made with must wait; meanwhile its interface has one of its own.
struct Plan<'a> {
    router: &'a Router,
    /// Interfaces by the name that they are made with; sub-interfaces by the one that they had when they were made.
    first_names: HashMap<String, Vec<IfIndex>>,
    begun: HashSet<IfIndex>,
    done: BTreeSet<IfIndex>,
    /// Names by now.
    names: HashMap<IfIndex, String>,
    steps: Vec<Making>,
    late: Vec<(IfIndex, String)>,
}

impl<'a> Plan<'a> {
    fn of(router: &'a Router) -> Self {
        let mut first_names: HashMap<String, Vec<IfIndex>> = HashMap::new();
        for interface in router.interfaces.iter() {
            first_names.entry(first_name(router, interface)).or_default().push(interface.index);
        }
        let mut plan = Self {
            router,
            first_names,
            begun: HashSet::new(),
            done: BTreeSet::new(),
            names: HashMap::new(),
            steps: Vec::new(),
            late: Vec::new(),
        };
        for subs in [false, true] {
            for interface in router.interfaces.iter().filter(|interface| matches!(interface.kind, Kind::Sub(_)) == subs) {
                plan.make(interface);
            }
            for (index, name) in std::mem::take(&mut plan.late) {
                match plan.is_free(index, &name) {
                    true => plan.rename(index, name),
                    false => plan.late.push((index, name)),
                }
            }
        }
        plan
    }

    /// Whether no other interface is still to be made with this name, or has it.
    fn is_free(&self, index: IfIndex, name: &str) -> bool {
        let others = self.first_names.get(name).into_iter().flatten().filter(|other| **other != index);
        let mut others = others.map(|other| (self.done.contains(other), self.names.get(other)));
        others.all(|(done, by_now)| done && by_now.is_none_or(|by_now| by_now != name))
    }

    /// Makes an interface, after those that are made with the name that it has in the end.
    fn make(&mut self, interface: &Interface) {
        if !self.begun.insert(interface.index) {
            return;
        }
        let (router, index) = (self.router, interface.index);
        let is_sub = |interface: &Interface| matches!(interface.kind, Kind::Sub(_));
        // Of those that have swapped their names none can be last: the first one is made first.
        let others = if self.is_in_ring(interface) { Vec::new() } else { self.wanting(interface) };
        for other in others {
            // A sub-interface does not come before one that is none.
            if let Some(other) = router.interfaces.get(other).filter(|other| is_sub(interface) || !is_sub(other)) {
                self.make(other);
            }
        }
        let mut first = first_name(router, interface);
        if is_sub(interface) {
            let parent = self.names.get(&interface.parent).cloned().unwrap_or_default();
            first = format!("{parent}.{}", sub_id(interface));
            self.steps.push(Making::Sub(index, parent));
        } else {
            self.steps.push(Making::Make(index));
        }
        self.done.insert(index);
        self.names.insert(index, first);
        match self.is_free(index, &interface.name) {
            true => self.rename(index, interface.name.clone()),
            false => {
                self.rename(index, format!("{}~", interface.name));
                self.late.push((index, interface.name.clone()));
            }
        }
    }

    /// Others that are made with the name that this one has in the end.
    fn wanting(&self, interface: &Interface) -> Vec<IfIndex> {
        let all = self.first_names.get(&interface.name).into_iter().flatten();
        all.copied().filter(|other| *other != interface.index).collect()
    }

    /// Whether it has the first name of one that has the first name … of this one.
    fn is_in_ring(&self, interface: &Interface) -> bool {
        let mut at = self.wanting(interface).first().copied();
        for _ in 0..self.first_names.len() {
            match at.and_then(|at| self.router.interfaces.get(at)) {
                Some(other) if other.index == interface.index => return true,
                Some(other) => at = self.wanting(other).first().copied(),
                None => return false,
            }
        }
        false
    }

    fn rename(&mut self, index: IfIndex, to: String) {
        let Some(from) = self.names.insert(index, to.clone()) else { return };
        if from != to {
            self.steps.push(Making::Rename(from, to));
        }
    }
}

/// The name that an interface gets when it is made.
fn first_name(router: &Router, interface: &Interface) -> String {
    match interface.kind {
        Kind::Sub(_) => format!("{}.{}", router.interfaces.name(interface.parent), sub_id(interface)),
        _ => interface.origin.name.clone(),
    }
}

/// The number behind the dot in a sub-interface's first name.
fn sub_id(interface: &Interface) -> u32 {
    interface.origin.name.rsplit_once('.').and_then(|(_, id)| id.parse().ok()).unwrap_or_default()
}

fn sub_interface(interface: &Interface, parent: &str, out: &mut Configuration<Router>) {
    let (Kind::Sub(matching), id) = (&interface.kind, sub_id(interface)) else { return };
    let name = format!("{parent}.{id}");
    let parent = IfRef(parent.to_owned());
    let matching = Matching::from_match(matching, id);
    let delete = DeleteInterface::of(&InterfaceKind::SUB, IfRef(name.clone()));
    out.push(&CreateSub { interface: parent, first: id, last: id, matching }).undo(&delete).makes(name);
}

/// What an interface is and belongs to. Sub-interfaces have the MAC address of their parent, and begin with its first MTU.
fn links(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let Some(parent) = router.interfaces.get(interface.parent) else { return };
    if interface.parent == *index && interface.mac != interface.origin.mac {
        set(interface, Change::Mac { mac: interface.mac.0 }, Change::Mac { mac: interface.origin.mac.0 }, out);
    }
    let mtu = interface.mtu;
    // One that follows the device does so again.
    let follows = |mtu: u32, max_frame: u32| mtu + interface.link_header_len() == max_frame;
    let first = &parent.origin;
    let as_made = mtu.l3 == first.mtu || (follows(first.mtu, first.max_frame) && follows(mtu.l3, interface.max_frame));
    let kinds = [
        (MtuKind::Packet, mtu.l3, !as_made),
        (MtuKind::Ip4, mtu.ip4, mtu.ip4 != 0),
        (MtuKind::Ip6, mtu.ip6, mtu.ip6 != 0),
        (MtuKind::Mpls, mtu.mpls, mtu.mpls != 0),
    ];
    for (which, bytes, _) in kinds.into_iter().filter(|(.., said)| *said) {
        let before = if which == MtuKind::Packet { first.mtu } else { 0 };
        set(interface, Change::Mtu { which, bytes }, Change::Mtu { which, bytes: before }, out);
    }
    if interface.promiscuous {
        set(interface, Change::Promiscuous { on: true }, Change::Promiscuous { on: false }, out);
    }
    if interface.directed_broadcast {
        set(interface, Change::DirectedBroadcast { on: true }, Change::DirectedBroadcast { on: false }, out);
    }
    if let Some(text) = &interface.tag {
        set(interface, Change::Tag { text: text.clone() }, Change::Tag { text: String::new() }, out);
    }
    if let L2Mode::CrossConnect(peer) = interface.l2 {
        let connect = Change::CrossConnect { peer: IfRef(router.interfaces.name(peer)) };
        set(interface, connect, Change::Route, out).makes(port_of(&interface.name));
    }
    queues(router, interface, out);
}

/// Receive queues that the user has placed, and modes other than that of new queues.
fn queues(router: &Router, interface: &Interface, out: &mut Configuration<Router>) {
    let places = interface.device.as_ref().map_or(&[][..], |device| &device.placement);
    for (queue, place) in (0_u16..).zip(places) {
        if place.chosen {
            let worker = place.thread.checked_sub(1).and_then(|worker| u16::try_from(worker).ok());
            out.push(&SetPlacement { interface: named(interface), queue, worker });
        }
        // A device without events is polled whatever the default says.
        let asked_for =
            place.mode != router.rx_default() && (place.mode != RxMode::Polling || router.rx_default() != RxMode::Adaptive);
        if asked_for {
            let mode = |mode| SetMode { interface: named(interface), queue: Some(queue), mode: Mode::of(mode) };
            out.push(&mode(place.mode)).undo(&mode(router.rx_default())).replaced();
        }
    }
}

fn up(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    let (up, first) = (interface.admin_up, interface.origin.starts_up);
    if up != first {
        set(interface, Change::State { up }, Change::State { up: first }, out);
    }
}

/// Features that the user has switched.
fn features(router: &Router, index: &IfIndex, out: &mut Configuration<Router>) {
    let Some(interface) = router.interfaces.get(*index) else { return };
    for ((arc, feature), on) in &interface.features {
        let switch = |on| Change::Feature { feature: feature.clone(), arc: arc.clone(), on };
        set(interface, switch(*on), switch(!*on), out);
    }
}

/// Where interfaces stand in a document that are made without a device.
const MADE: &[Shape] = &[
    Shape::new("interfaces/loop{instance#}/loopback", r#"{"*":"*"}"#, "loopback_create", r#"{"instance":"{instance#}","*":"*"}"#)
        .doc("A loopback interface; its name is loop and a number."),
    Shape::new(
        "interfaces/pg{number#}/packet_generator",
        r#"{"*":"*"}"#,
        "pg_interface_create",
        r#"{"number":"{number#}","*":"*"}"#,
    )
    .doc("An interface of the packet generator; its name is pg and a number.")
    .types(&[("mac", MAC)]),
    Shape::new(
        "interfaces/{interface}/sub_interfaces/{id#}",
        r#"{"*":"*"}"#,
        "sub_interface_create",
        r#"{"interface":"{interface}","first":"{id#}","last":"{id#}","*":"*"}"#,
    )
    .doc("A sub-interface; its name is that of its parent, a dot and this number.")
    .types(&[("matching", "{}")]),
    Shape::new(
        "interfaces/{interface}/name",
        r#""{name}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"name":{"name":"{name}"}}}"#,
    )
    .doc("The name that it has in place of the one it was made with; everything else stands under the new name.")
    .types(TEXT),
];

/// What interfaces are and belong to.
const LINKS: &[Shape] = &[
    Shape::new(
        "interfaces/{interface}/mtu",
        r#""{bytes#}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"mtu":{"which":"packet","bytes":"{bytes#}"}}}"#,
    )
    .doc("Largest packet, bytes."),
    Shape::new(
        "interfaces/{interface}/mtu_ip4",
        r#""{bytes#}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"mtu":{"which":"ip4","bytes":"{bytes#}"}}}"#,
    )
    .doc("Largest IPv4 packet, bytes."),
    Shape::new(
        "interfaces/{interface}/mtu_ip6",
        r#""{bytes#}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"mtu":{"which":"ip6","bytes":"{bytes#}"}}}"#,
    )
    .doc("Largest IPv6 packet, bytes."),
    Shape::new(
        "interfaces/{interface}/mtu_mpls",
        r#""{bytes#}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"mtu":{"which":"mpls","bytes":"{bytes#}"}}}"#,
    )
    .doc("Largest MPLS packet, bytes."),
    Shape::new(
        "interfaces/{interface}/mac",
        r#""{mac@}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"mac":{"mac":"{mac@}"}}}"#,
    )
    .doc("MAC address.")
    .types(&[("mac", MAC)]),
    Shape::new(
        "interfaces/{interface}/promiscuous",
        "true",
        "interface_set",
        r#"{"interface":"{interface}","change":{"promiscuous":{"on":true}}}"#,
    )
    .doc("Takes frames to all addresses."),
    Shape::new(
        "interfaces/{interface}/directed_broadcast",
        "true",
        "interface_set",
        r#"{"interface":"{interface}","change":{"directed-broadcast":{"on":true}}}"#,
    )
    .doc("Sends packets to the broadcast addresses of its prefixes."),
    Shape::new(
        "interfaces/{interface}/tag",
        r#""{text}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"tag":{"text":"{text}"}}}"#,
    )
    .doc("A text of the user.")
    .types(TEXT),
    Shape::new(
        "interfaces/{interface}/cross_connect",
        r#""{peer}""#,
        "interface_set",
        r#"{"interface":"{interface}","change":{"cross-connect":{"peer":"{peer}"}}}"#,
    )
    .doc("Every frame goes to this interface.")
    .types(TEXT)
    .makes(&["port {interface}"]),
    Shape::new(
        "interfaces/{interface}/rx_placement/{queue#}",
        r#"{"*":"*"}"#,
        "rx_placement_set",
        r#"{"interface":"{interface}","queue":"{queue#}","*":"*"}"#,
    )
    .doc("The thread that polls a queue: a worker from 0; without one the main thread.")
    .types(&[("worker", NUMBER)]),
    Shape::new(
        "interfaces/{interface}/rx_mode/{queue#}",
        r#""{mode}""#,
        "rx_mode_set",
        r#"{"interface":"{interface}","queue":"{queue#}","mode":"{mode}"}"#,
    )
    .doc("How a queue is waited for."),
];

/// Interfaces go up.
const UP: &[Shape] = &[Shape::new(
    "interfaces/{interface}/up",
    "true",
    "interface_set",
    r#"{"interface":"{interface}","change":{"state":{"up":true}}}"#,
)
.doc("It is up.")];

/// Features that are switched.
const FEATURES: &[Shape] = &[Shape::new(
    "interfaces/{interface}/features/{arc}/{feature}",
    r#""{on}""#,
    "interface_set",
    r#"{"interface":"{interface}","change":{"feature":{"feature":"{feature}","arc":"{arc}","on":"{on}"}}}"#,
)
.doc("A feature on an arc, switched on or off.")
.types(&[("on", r#"{"type":"boolean"}"#)])];

/// A text.
const TEXT: &[(&str, &str)] = &[("name", TYPE), ("text", TYPE), ("peer", TYPE)];
const TYPE: &str = r#"{"type":"string"}"#;
const NUMBER: &str = r#"{"type":["integer","null"],"minimum":0}"#;
/// The schema of a MAC address.
pub(crate) const MAC: &str = r#"{"type":["string","null"],"pattern":"^([0-9A-Fa-f]{1,2}:){5}[0-9A-Fa-f]{1,2}$"}"#;
