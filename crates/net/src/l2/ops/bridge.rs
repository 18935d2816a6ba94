//! Bridge domains and their ports.

mod show;

use std::net::IpAddr;

use quiver_command::grammar::{Args, IfRef};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::{Argument, Execute, Request as _, Value};
use quiver_command::{commands, request, words};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::ops::resolve;
use crate::l2::{BdSwitch, L2Error, PortKind, PortSwitch};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<CreateBridgeDomain>().declare::<DeleteBridgeDomain>().declare::<SetBridgeDomain>();
    registry.declare::<SetBridgePort>().declare::<SwitchPort>().declare::<SetPortLearnLimit>();
    registry.declare::<SetDefaultLearnLimit>();
    show::register(registry);
}

/// A layer-2 error as an operation's error.
impl From<L2Error> for OpError {
    fn from(error: L2Error) -> Self {
        let (code, key) = match &error {
            L2Error::NoDomain(_) => (retval::NO_SUCH_ENTRY, "bridge domain"),
            L2Error::Exists(_) => (retval::BD_ALREADY_EXISTS, "bridge domain"),
            L2Error::InUse(..) => (retval::BD_IN_USE, "bridge domain"),
            L2Error::Range { what, .. } => (retval::INVALID_VALUE, *what),
            L2Error::HasBvi(..) => (retval::BD_ALREADY_HAS_BVI, "interface"),
            L2Error::NotAPort(..) => (retval::NO_MATCHING_INTERFACE, "interface"),
            L2Error::NoEntry(..) => (retval::NO_SUCH_ENTRY, "MAC address"),
            L2Error::NotAStation(_) => (retval::INVALID_VALUE, "MAC address"),
            L2Error::Full(_) => (retval::LIMIT_EXCEEDED, "bridge domain"),
            L2Error::Rewrite(_) => (retval::INVALID_VLAN_TAG_COUNT, "tag-rewrite"),
            L2Error::Interface(error) => return error.clone().into(),
        };
        let said = OpError::new(code, error.to_string()).key(key);
        match &error {
            L2Error::NoDomain(id) => said.remedy(format!("`create bridge-domain {id}' makes it")),
            _ => said,
        }
    }
}

request! {
    /// Makes a bridge domain (the lowest free number, printed, where none is given) or removes one.
    pub change CreateBridgeDomain "bridge_domain_create" ["create bridge-domain"] {
        /// Number; the lowest free one where none is given.
        pub id: Option<u32> = "<bd-id>" name("bridge domain"),
        /// Learn addresses.
        pub learn: bool = "learn 0|1" default(true),
        /// Forward to known destinations.
        pub forward: bool = "forward 0|1" default(true),
        /// Flood frames to unknown destinations.
        pub uu_flood: bool = "uu-flood 0|1" default(true),
        /// Flood frames to groups.
        pub flood: bool = "flood 0|1" default(true),
        /// Answer ARP and ND from the domain's table.
        pub arp_term: bool = "arp-term 0|1",
        /// Send ARP requests to the one asked for.
        pub arp_ufwd: bool = "arp-ufwd 0|1",
        /// Minutes until a silent address is forgotten; 0: never.
        pub mac_age: u8 = "mac-age <min>" default(5),
        /// User's text.
        pub tag: Option<String> = "bd-tag <s>",
        /// Removes the domain, which must have no ports.
        pub del: bool = "del",
    }
}

/// The domain that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CreatedBridgeDomain {
    /// Its number.
    pub id: u32,
    #[serde(skip)]
    removed: bool,
}

impl Text for CreatedBridgeDomain {
    fn text(&self, out: &mut String, _: &View) {
        if !self.removed {
            out.push_str(&format!("bridge-domain {}\n", self.id));
        }
    }
}

impl Execute<Router> for CreateBridgeDomain {
    type Reply = CreatedBridgeDomain;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, CreatedBridgeDomain>, OpError> {
        if self.del {
            let id = self.id.ok_or_else(|| Self::incomplete("bridge domain"))?;
            remove(router, id)?;
            return Ok(Outcome::Done(CreatedBridgeDomain { id, removed: true }));
        }
        let id = router.create_bridge_domain(self.id)?;
        let settings = || {
            for (which, on) in [
                (BdSwitch::Learn, self.learn),
                (BdSwitch::Forward, self.forward),
                (BdSwitch::UnknownFlood, self.uu_flood),
                (BdSwitch::Flood, self.flood),
                (BdSwitch::ArpTerm, self.arp_term),
                (BdSwitch::ArpForward, self.arp_ufwd),
            ] {
                router.set_bridge_switch(id, which, on)?;
            }
            router.set_mac_age(id, self.mac_age)?;
            router.set_bridge_tag(id, self.tag)
        };
        settings()?;
        Ok(Outcome::Done(CreatedBridgeDomain { id, removed: false }))
    }
}

fn remove(router: &mut Router, id: u32) -> Result<(), OpError> {
    router.delete_bridge_domain(id).map_err(|e| match e {
        L2Error::InUse(..) => OpError::from(e).remedy("take its ports out with `set interface l3'"),
        e => OpError::from(e),
    })
}

request! {
    /// Removes a bridge domain that has no ports.
    pub change DeleteBridgeDomain "bridge_domain_delete" [] {
        /// Number.
        pub id: u32 = "",
    }
}

impl Execute<Router> for DeleteBridgeDomain {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        remove(router, self.id).map(Outcome::Done)
    }
}

/// Changes one thing about a bridge domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBridgeDomain {
    /// Number.
    pub id: u32,
    /// Change.
    pub change: BdChange,
}

commands! {
    change SetBridgeDomain "bridge_domain_set" {
        /// Switches learning of addresses.
        ["set bridge-domain learn"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::Learn, on } },
        /// Switches forwarding to known destinations.
        ["set bridge-domain forward"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::Forward, on } },
        /// Switches flooding of frames to groups.
        ["set bridge-domain flood"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::Flood, on } },
        /// Switches flooding of frames to unknown destinations.
        ["set bridge-domain uu-flood"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::UuFlood, on } },
        /// Switches answers to ARP and neighbor solicitations from the domain's table.
        ["set bridge-domain arp term"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::ArpTerm, on } },
        /// With arp term: forwards requests to the host asked for instead of answering them.
        ["set bridge-domain arp-ufwd"] { id: u32 = "<bd-id>" name("bridge domain"), on: bool = "disable" default(true) }
            => { id, change: BdChange::Switch { which: Switch::ArpUfwd, on } },
        /// Adds an address to a domain's table for arp term, or removes one.
        ["set bridge-domain arp entry"] "<bd-id> <ip> <mac> [del]" by parse_entry => entry_command,
        /// Sets after how many minutes a silent address is forgotten; 0: never.
        ["set bridge-domain mac-age"] { id: u32 = "<bd-id>" name("bridge domain"), minutes: u8 = "<mins>" name("minutes") }
            => { id, change: BdChange::MacAge { minutes } },
        /// Sets how many addresses a domain may learn.
        ["set bridge-domain learn-limit"] { id: u32 = "<bd-id>" name("bridge domain"), limit: u32 = "<n>" name("limit") }
            => { id, change: BdChange::LearnLimit { limit } },
    }
}

fn parse_entry(args: &mut Args<'_>) -> Result<SetBridgeDomain, OpError> {
    let id = args.number("bridge domain")?;
    let ip = args.ip("address")?;
    let mac = args.mac("MAC address")?;
    let mac = if args.take_keyword("del") { None } else { Some(mac) };
    Ok(SetBridgeDomain { id, change: BdChange::Neighbor { ip, mac } })
}

/// Of an entry that goes the MAC address does not matter.
fn entry_command(request: &SetBridgeDomain) -> Option<String> {
    let BdChange::Neighbor { ip, mac } = &request.change else { return None };
    let del = if mac.is_none() { " del" } else { "" };
    Some(format!("set bridge-domain arp entry {} {ip} {}{del}", request.id, MacAddr(mac.unwrap_or_default())))
}

words! {
    /// What can be switched.
    pub enum Switch {
        /// Learning of addresses.
        Learn = "learn",
        /// Forwarding to known destinations.
        Forward = "forward",
        /// Flooding of frames to unknown destinations.
        UuFlood = "uu-flood",
        /// Flooding of frames to groups.
        Flood = "flood",
        /// Answers from the domain's table.
        ArpTerm = "arp-term",
        /// Requests to the one asked for.
        ArpUfwd = "arp-ufwd",
    }
}

impl From<Switch> for BdSwitch {
    fn from(which: Switch) -> Self {
        match which {
            Switch::Learn => Self::Learn,
            Switch::Forward => Self::Forward,
            Switch::UuFlood => Self::UnknownFlood,
            Switch::Flood => Self::Flood,
            Switch::ArpTerm => Self::ArpTerm,
            Switch::ArpUfwd => Self::ArpForward,
        }
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BdChange {
    /// Something is switched on or off.
    Switch {
        /// What.
        which: Switch,
        /// On.
        on: bool,
    },
    /// Minutes until a silent address is forgotten; 0: never.
    MacAge {
        /// Minutes.
        minutes: u8,
    },
    /// Most learned addresses.
    LearnLimit {
        /// Addresses.
        limit: u32,
    },
    /// An entry of the table for arp term.
    Neighbor {
        /// IP address.
        ip: IpAddr,
        /// MAC address; removes the entry where there is none.
        mac: Option<[u8; 6]>,
    },
}

impl Execute<Router> for SetBridgeDomain {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let id = self.id;
        let result = match self.change {
            BdChange::Switch { which, on } => router.set_bridge_switch(id, which.into(), on),
            BdChange::MacAge { minutes } => router.set_mac_age(id, minutes),
            BdChange::LearnLimit { limit } => router.set_learn_limit(id, limit),
            BdChange::Neighbor { ip, mac } => router.set_bridge_neighbor(id, ip, mac.map(MacAddr)),
        };
        result?;
        Ok(Outcome::Done(()))
    }
}

/// What a port is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortUse {
    /// A port like others; no word says it.
    #[default]
    Normal,
    /// The router's own end.
    Bvi,
    /// All frames to unknown destinations go here.
    UuFwd,
}

impl Value for PortUse {
    const KIND: &'static str = "word";

    fn take(_: &mut Args<'_>, _: &Argument, lead: usize) -> Result<Self, OpError> {
        Ok([Self::Bvi, Self::UuFwd][lead])
    }

    fn text(&self) -> String {
        if *self == Self::Bvi { "bvi" } else { "uu-fwd" }.to_owned()
    }
}

request! {
    /// Makes an interface a port of a bridge domain, which is made where it does not exist.
    pub change SetBridgePort "interface_l2_bridge" ["set interface l2 bridge"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Number of the domain.
        pub domain: u32 = "<bd-id>" name("bridge domain"),
        /// What the port is for: the router's own end, or all frames to unknown destinations.
        pub kind: PortUse = "bvi|uu-fwd" default(PortUse::Normal),
        /// Split-horizon group; 0: none.
        pub group: u8 = "<shg>" default(0) name("split-horizon group"),
    }
}

impl Execute<Router> for SetBridgePort {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let kind = match self.kind {
            PortUse::Normal => PortKind::Normal,
            PortUse::Bvi => PortKind::Bvi,
            PortUse::UuFwd => PortKind::UnknownForward,
        };
        router.set_bridge(index, self.domain, kind, self.group)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how many addresses a bridge domain may learn that is made from now on.
    pub change SetDefaultLearnLimit "bridge_domain_default_learn_limit" ["set bridge-domain default-learn-limit"] {
        /// Addresses.
        pub limit: u32 = "<n>" name("limit"),
    }
}

impl Execute<Router> for SetDefaultLearnLimit {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_default_learn_limit(self.limit)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Sets how many addresses may be learned behind a port.
    pub change SetPortLearnLimit "interface_l2_learn_limit" ["set interface l2 learn-limit"] {
        /// Interface.
        pub interface: IfRef = "<if>",
        /// Addresses.
        pub limit: u32 = "<n>" name("limit"),
    }
}

impl Execute<Router> for SetPortLearnLimit {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        router.set_port_learn_limit(index, self.limit)?;
        Ok(Outcome::Done(()))
    }
}

words! {
    /// What of a port can be switched.
    pub enum PortWhat {
        /// Learning from its frames.
        Learn = "learn",
        /// Forwarding of its frames to known destinations.
        Forward = "forward",
        /// Flooding of its frames to groups.
        Flood = "flood",
        /// Flooding of its frames to unknown destinations.
        UuFlood = "uu-flood",
        /// Answers to its ARP and ND questions from the domain's table.
        ArpTerm = "arp-term",
    }
}

/// Switches something on a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPort {
    /// Interface.
    pub interface: IfRef,
    /// What.
    pub which: PortWhat,
    /// On.
    pub on: bool,
}

commands! {
    change SwitchPort "interface_l2_switch" {
        /// Switches learning from a port's frames.
        ["set interface l2 learn"] { interface: IfRef = "<if>", on: bool = "disable" default(true) }
            => { interface, which: PortWhat::Learn, on },
        /// Switches forwarding of a port's frames to known destinations.
        ["set interface l2 forward"] { interface: IfRef = "<if>", on: bool = "disable" default(true) }
            => { interface, which: PortWhat::Forward, on },
        /// Switches flooding of a port's frames to groups.
        ["set interface l2 flood"] { interface: IfRef = "<if>", on: bool = "disable" default(true) }
            => { interface, which: PortWhat::Flood, on },
        /// Switches flooding of a port's frames to unknown destinations.
        ["set interface l2 uu-flood"] { interface: IfRef = "<if>", on: bool = "disable" default(true) }
            => { interface, which: PortWhat::UuFlood, on },
        /// Switches answers to a port's ARP and ND questions from the table of a domain that has them on.
        ["set interface l2 arp-term"] { interface: IfRef = "<if>", on: bool = "disable" default(true) }
            => { interface, which: PortWhat::ArpTerm, on },
    }
}

impl Execute<Router> for SwitchPort {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &self.interface)?;
        let which = match self.which {
            PortWhat::Learn => PortSwitch::Learn,
            PortWhat::Forward => PortSwitch::Forward,
            PortWhat::Flood => PortSwitch::Flood,
            PortWhat::UuFlood => PortSwitch::UnknownFlood,
            PortWhat::ArpTerm => PortSwitch::ArpTerm,
        };
        router.set_port_switch(index, which, self.on)?;
        Ok(Outcome::Done(()))
    }
}
