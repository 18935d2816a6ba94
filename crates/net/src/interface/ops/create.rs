//! Making and removing interfaces.

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_graph::Port;
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::resolve;
use super::slices::{MANY, Making, Removing};
use crate::Router;
use crate::files::Elsewhere;
use crate::interface::{ETHERNET_HEADER, InterfaceKind, Kind, NewInterface, SubMatch, Tx, VLAN_MAX, VlanId};

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateLoopback>().declare::<DeleteInterface>().declare::<CreateSub>();
}

request! {
    /// Makes a loopback interface and prints its name.
    pub change CreateLoopback "loopback_create" ["create loopback interface"] {
        /// Link address; `de:ad:00:00:` and the instance where none is given.
        pub mac: Option<[u8; 6]> = "mac <mac>" unicast(),
        /// Number in the name; the lowest free one where none is given.
        pub instance: Option<u32> = "instance <n>" range(0..=65_535),
    }
}

/// Names and numbers of interfaces that were made.
#[derive(Debug, Clone, Serialize)]
pub struct Created {
    /// In order of creation.
    pub interfaces: Vec<CreatedInterface>,
}

/// An interface that was made.
#[derive(Debug, Clone, Serialize)]
pub struct CreatedInterface {
    /// Name.
    pub name: String,
    /// Number.
    pub sw_if_index: u32,
}

impl CreatedInterface {
    /// Its number.
    pub const fn index(&self) -> crate::IfIndex {
        crate::IfIndex(self.sw_if_index)
    }
}

impl Created {
    /// The reply for one interface.
    pub fn one(router: &Router, index: crate::IfIndex) -> Self {
        Self::of(router, &[index])
    }

    /// The reply for some interfaces.
    pub fn of(router: &Router, all: &[crate::IfIndex]) -> Self {
        let made = |index: &crate::IfIndex| CreatedInterface { name: router.interfaces.name(*index), sw_if_index: index.0 };
        Self { interfaces: all.iter().map(made).collect() }
    }
}

/// A name that an interface is to have, and the argument that it comes from.
pub struct NewName {
    /// Name.
    pub name: String,
    /// Argument.
    pub key: &'static str,
    /// What was said there.
    pub value: String,
}

impl NewName {
    /// A name that was given as it is.
    pub fn given(key: &'static str, name: &str) -> Self {
        Self { name: name.to_owned(), key, value: name.to_owned() }
    }

    /// Whether no interface has it yet.
    ///
    /// # Errors
    /// One has.
    pub fn check(&self, router: &Router) -> Result<(), OpError> {
        if router.interfaces.by_name(&self.name).is_none() {
            return Ok(());
        }
        let error = OpError::new(retval::IF_ALREADY_EXISTS, format!("interface `{}' exists already", self.name));
        Err(error.key(self.key).value(&self.value))
    }
}

/// Makes an interface of a device that `open` opens: the one way for all kinds. The name is looked at before the device is.
/// Without an `mtu` it is what the device itself takes: a larger packet would be lost there without a word.
///
/// # Errors
/// The name is taken; `open`'s own; there are too many interfaces.
pub fn create_port_interface<P: Port + 'static>(
    router: &mut Router,
    kind: &'static InterfaceKind,
    name: NewName,
    mtu: Option<u32>,
    open: impl FnOnce(&mut Router) -> Result<P, OpError>,
) -> Result<CreatedInterface, OpError> {
    name.check(router)?;
    let port = open(router)?;
    add_port_interface(router, kind, name, mtu, port)
}

/// The same where another thread opens the device: the operating system may take its time, and the main thread does not wait. `made`
/// is told the new interface.
///
/// # Errors
/// The name is taken. The others come as the job's.
pub fn create_port_elsewhere<P: Port + Send + 'static>(
    router: &Router,
    kind: &'static InterfaceKind,
    name: NewName,
    open: impl FnOnce() -> Result<P, OpError> + Send + 'static,
    made: impl FnOnce(&mut Router, crate::IfIndex) + 'static,
) -> Result<Outcome<Router, Created>, OpError> {
    name.check(router)?;
    let add = move |router: &mut Router, port| {
        let interface = add_port_interface(router, kind, name, None, port)?;
        made(router, interface.index());
        Ok(interface.into())
    };
    Ok(Outcome::job(Elsewhere::new(open, add).alone()))
}

fn add_port_interface<P: Port + 'static>(
    router: &mut Router,
    kind: &'static InterfaceKind,
    name: NewName,
    mtu: Option<u32>,
    port: P,
) -> Result<CreatedInterface, OpError> {
    let header = if port.mac().is_some() { ETHERNET_HEADER } else { 0 };
    let max_frame = port.max_frame() as u32;
    let new = NewInterface {
        name: name.name,
        kind: Kind::Device(kind),
        mac: port.mac().map_or(MacAddr::ZERO, MacAddr),
        mtu: mtu.unwrap_or(max_frame.saturating_sub(header)),
        max_frame,
        tx: Tx::Port(Box::new(port)),
    };
    let index = router.create_interface(new)?;
    Ok(CreatedInterface { name: router.interfaces.name(index), sw_if_index: index.0 })
}

impl From<CreatedInterface> for Created {
    fn from(interface: CreatedInterface) -> Self {
        Self { interfaces: vec![interface] }
    }
}

impl Text for Created {
    fn text(&self, out: &mut String, _: &View) {
        let names: Vec<&str> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
        out.push_str(&names.join(" "));
        out.push('\n');
    }
}

impl Execute<Router> for CreateLoopback {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let index = router.create_loopback(self.instance, self.mac.map(MacAddr))?;
        let instance = router.interfaces.name(index).strip_prefix("loop").and_then(|number| number.parse().ok());
        router.made_by(index, &Self { instance, ..self });
        Ok(Outcome::Done(Created::one(router, index)))
    }
}

/// Removes an interface, which must be of a kind: no other one is removed by mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteInterface {
    /// Interface.
    pub interface: IfRef,
    /// The word for the kind that it must be of.
    pub kind: String,
    #[serde(skip)]
    called: Option<&'static str>,
}

impl DeleteInterface {
    /// The request for an interface of a kind.
    pub fn of(kind: &InterfaceKind, interface: IfRef) -> Self {
        Self { interface, kind: kind.name.to_owned(), called: Some(kind.called) }
    }
}

commands! {
    change DeleteInterface "interface_delete" {
        /// Removes a loopback interface.
        ["delete loopback interface"] "intfc <if>" by |args| {
            args.expect_keyword("intfc")?;
            Ok(DeleteInterface::of(&InterfaceKind::LOOPBACK, args.interface()?))
        },
        /// Removes a BVI.
        ["bvi delete"] "<if>" by |args| Ok(DeleteInterface::of(&InterfaceKind::BVI, args.interface()?)),
        /// Removes a sub-interface.
        ["delete sub-interface"] "<if>" by |args| Ok(DeleteInterface::of(&InterfaceKind::SUB, args.interface()?)),
    }
}

impl Execute<Router> for DeleteInterface {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let interface = router.interfaces.expect(index)?;
        if interface.kind.declared().is_none_or(|kind| kind.name != self.kind) {
            let wanted = self.called.map_or_else(|| format!("of kind `{}'", self.kind), str::to_owned);
            let error = OpError::new(retval::INVALID_INTERFACE, format!("{} is not {wanted}", interface.name));
            return Err(error.key("interface").value(&self.interface));
        }
        let subs: Vec<_> = router.interfaces.subs(index).collect();
        if subs.len() > MANY {
            return Ok(Outcome::job(Removing::new(index, subs)));
        }
        router.delete_interface(index)?;
        Ok(Outcome::Done(()))
    }
}

/// Makes sub-interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSub {
    /// Main interface.
    pub interface: IfRef,
    /// First id in the name.
    pub first: u32,
    /// Last one; equal to `first` for a single sub-interface.
    pub last: u32,
    /// Which frames belong to it; a range has the id itself as 802.1Q tag, exact.
    #[serde(default)]
    pub matching: Matching,
}

commands! {
    change CreateSub "sub_interface_create" {
        /// Makes one sub-interface, or one for each VLAN of a range, and prints the names.
        ["create sub-interfaces"] "<if> <id> [default|untagged] | <if> <min>-<max> | <if> <id> [dot1q|dot1ad <vlan>|any [inner-dot1q <vlan>|any] [exact-match]]" by parse_sub => sub_command,
    }
}

fn sub_command(request: &CreateSub) -> Option<String> {
    let CreateSub { interface, first, last, matching } = request;
    let mut command = format!("create sub-interfaces {} {first}", quote(interface.as_str()));
    if first != last {
        command += &format!("-{last}");
    }
    let vlan = |id: Option<u16>| id.map_or_else(|| "any".to_owned(), |id| id.to_string());
    match matching {
        Matching::Id => {}
        Matching::Default => command += " default",
        Matching::Untagged => command += " untagged",
        Matching::Tagged { dot1ad, outer, inner, exact } => {
            command += if *dot1ad { " dot1ad " } else { " dot1q " };
            command += &vlan(*outer);
            command += &inner.map(|inner| format!(" inner-dot1q {}", vlan(inner.id()))).unwrap_or_default();
            command += if *exact { " exact-match" } else { "" };
        }
    }
    Some(command)
}

/// Frames of a sub-interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// 802.1Q with the sub-interface's id, exact.
    #[default]
    Id,
    /// What no other sub-interface takes.
    Default,
    /// Frames without a tag.
    Untagged,
    /// As described; `None` for an id means any.
    Tagged {
        /// Outer tag is 802.1ad.
        dot1ad: bool,
        /// Outer id.
        outer: Option<u16>,
        /// Inner tag; absent: there is none.
        inner: Option<Inner>,
        /// No further tags.
        exact: bool,
    },
}

/// An inner tag, in JSON its id or `"any"`: `null` would be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Inner {
    /// With this id.
    Exactly(u16),
    /// With any id.
    Any(AnyId),
}

/// The word for any id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnyId {
    /// Any.
    Any,
}

impl Inner {
    fn id(self) -> Option<u16> {
        match self {
            Self::Exactly(id) => Some(id),
            Self::Any(AnyId::Any) => None,
        }
    }
}

impl From<Option<u16>> for Inner {
    fn from(id: Option<u16>) -> Self {
        id.map_or(Self::Any(AnyId::Any), Self::Exactly)
    }
}

impl Matching {
    /// The contrary of [`of`](Self::of).
    pub(crate) fn from_match(matching: &SubMatch, id: u32) -> Self {
        let vlan = |v: VlanId| match v {
            VlanId::Exactly(id) => Some(id),
            VlanId::Any => None,
        };
        match matching {
            SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(outer), inner: None, exact: true }
                if u32::from(*outer) == id =>
            {
                Self::Id
            }
            SubMatch::Default => Self::Default,
            SubMatch::Untagged => Self::Untagged,
            SubMatch::Tagged { dot1ad, outer, inner, exact } => {
                Self::Tagged { dot1ad: *dot1ad, outer: vlan(*outer), inner: inner.map(|id| vlan(id).into()), exact: *exact }
            }
        }
    }

    pub(super) fn of(&self, id: u32) -> SubMatch {
        let vlan = |v: Option<u16>| v.map_or(VlanId::Any, VlanId::Exactly);
        match self {
            Self::Id => SubMatch::Tagged { dot1ad: false, outer: VlanId::Exactly(id as u16), inner: None, exact: true },
            Self::Default => SubMatch::Default,
            Self::Untagged => SubMatch::Untagged,
            Self::Tagged { dot1ad, outer, inner, exact } => {
                SubMatch::Tagged { dot1ad: *dot1ad, outer: vlan(*outer), inner: inner.map(|id| vlan(id.id())), exact: *exact }
            }
        }
    }
}

fn parse_vlan(args: &mut Args<'_>) -> Result<Option<u16>, OpError> {
    if args.take_keyword("any") { Ok(None) } else { args.number_in("vlan", 0..=VLAN_MAX).map(Some) }
}

fn parse_sub(args: &mut Args<'_>) -> Result<CreateSub, OpError> {
    let interface = args.interface()?;
    let ids = args.range::<u32>("sub-interface id")?;
    let (first, last) = (*ids.start(), *ids.end());
    let mut matching = Matching::Id;
    if args.take_keyword("default") {
        matching = Matching::Default;
    } else if args.take_keyword("untagged") {
        matching = Matching::Untagged;
    } else if let Some(dot1ad) = args.take_one_of(&[("dot1q", false), ("dot1ad", true)]) {
        let outer = parse_vlan(args)?;
        let inner = if args.take_keyword("inner-dot1q") { Some(parse_vlan(args)?.into()) } else { None };
        let exact = args.take_keyword("exact-match");
        matching = Matching::Tagged { dot1ad, outer, inner, exact };
    }
    Ok(CreateSub { interface, first, last, matching })
}

impl Execute<Router> for CreateSub {
    type Reply = Created;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Created>, OpError> {
        let parent = resolve(router, &self.interface)?;
        let Self { first, last, matching, .. } = &self;
        let invalid = |message: &str| OpError::new(retval::INVALID_VLAN, message).key("id").value(format!("{first}-{last}"));
        if first > last || (first != last && *matching != Matching::Id) {
            return Err(invalid("not a range of sub-interface ids"));
        }
        if *matching == Matching::Id && *last > VLAN_MAX.into() {
            return Err(invalid("a VLAN id is at most 4094"));
        }
        if first < last {
            return Ok(Outcome::job(Making::new(parent, *first, *last, |id| Matching::Id.of(id))));
        }
        let made = router.create_sub_interface(parent, *first, matching.of(*first))?;
        Ok(Outcome::Done(Created::one(router, made)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_inner_tag_comes_back_from_json() {
        for (inner, json) in [(None, "null"), (Some(VlanId::Any), "\"any\""), (Some(VlanId::Exactly(7)), "7")] {
            let wanted = SubMatch::Tagged { dot1ad: true, outer: VlanId::Any, inner, exact: false };
            let text = serde_json::to_string(&Matching::from_match(&wanted, 1)).unwrap();
            assert_eq!(text, format!(r#"{{"tagged":{{"dot1ad":true,"outer":null,"inner":{json},"exact":false}}}}"#));
            assert_eq!(serde_json::from_str::<Matching>(&text).unwrap().of(1), wanted);
        }
    }
}
