//! Bridge domains and their ports.

mod show;

use std::net::IpAddr;

use quiver_command::grammar::{Args, Command, IfRef};
use quiver_command::operation::{Access, Invocation, OpError, Operation, Outcome, Registry, Text, View, retval};
use quiver_wire::MacAddr;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::interface::ops::{interface_error, resolve};
use crate::l2::{BdSwitch, L2Error, PortKind, PortSwitch};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.operation::<CreateBridgeDomain>().operation::<DeleteBridgeDomain>().operation::<SetBridgeDomain>();
    registry.operation::<SetBridgePort>().operation::<SwitchPort>().operation::<SetPortLearnLimit>();
    let disable = "<bd-id> [disable]";
    let commands = [
        Command {
            path: "create bridge-domain",
            syntax: "[<bd-id>] [learn 0|1] [forward 0|1] [uu-flood 0|1] [flood 0|1] [arp-term 0|1] [arp-ufwd 0|1] [mac-age <min>] [bd-tag <s>] [del]",
            help: "Makes a bridge domain (the lowest free number, printed, where none is given) or removes one",
            parse: parse_create,
        },
        Command {
            path: "set bridge-domain learn",
            syntax: disable,
            help: "Switches learning of addresses",
            parse: |args, _| parse_switch(args, Switch::Learn),
        },
        Command {
            path: "set bridge-domain forward",
            syntax: disable,
            help: "Switches forwarding to known destinations",
            parse: |args, _| parse_switch(args, Switch::Forward),
        },
        Command {
            path: "set bridge-domain flood",
            syntax: disable,
            help: "Switches flooding of frames to groups",
            parse: |args, _| parse_switch(args, Switch::Flood),
        },
        Command {
            path: "set bridge-domain uu-flood",
            syntax: disable,
            help: "Switches flooding of frames to unknown destinations",
            parse: |args, _| parse_switch(args, Switch::UuFlood),
        },
        Command {
            path: "set bridge-domain arp term",
            syntax: disable,
            help: "Switches answers to ARP and neighbor solicitations from the domain's table",
            parse: |args, _| parse_switch(args, Switch::ArpTerm),
        },
        Command {
            path: "set bridge-domain arp-ufwd",
            syntax: disable,
            help: "With arp term: sends requests to the one asked for instead of answering them",
            parse: |args, _| parse_switch(args, Switch::ArpUfwd),
        },
        Command {
            path: "set bridge-domain arp entry",
            syntax: "<bd-id> <ip> <mac> [del]",
            help: "Adds an address to a domain's table for arp term, or removes one",
            parse: |args, _| {
                let id = args.number("bridge domain")?;
                let ip = args.ip("address")?;
                let mac = args.mac("link address")?;
                let mac = if args.take_keyword("del") { None } else { Some(mac) };
                set(id, BdChange::Neighbor { ip, mac })
            },
        },
        Command {
            path: "set bridge-domain mac-age",
            syntax: "<bd-id> <mins>",
            help: "Sets after how many minutes a silent address is forgotten; 0: never",
            parse: |args, _| {
                let id = args.number("bridge domain")?;
                set(id, BdChange::MacAge { minutes: args.number("minutes")? })
            },
        },
        Command {
            path: "set bridge-domain learn-limit",
            syntax: "<bd-id> <n>",
            help: "Sets how many addresses a domain may learn",
            parse: |args, _| {
                let id = args.number("bridge domain")?;
                set(id, BdChange::LearnLimit { limit: args.number("limit")? })
            },
        },
        Command {
            path: "set interface l2 bridge",
            syntax: "<if> <bd-id> [bvi|uu-fwd] [<shg>]",
            help: "Makes an interface a port of a bridge domain, which is made where it does not exist",
            parse: |args, _| {
                let interface = args.interface()?;
                let domain = args.number("bridge domain")?;
                let kind = args.take_one_of(&[("bvi", PortUse::Bvi), ("uu-fwd", PortUse::UuFwd)]);
                let group = if args.is_empty() { 0 } else { args.number("split-horizon group")? };
                let request = SetBridgePortRequest { interface, domain, kind: kind.unwrap_or_default(), group };
                Ok(Invocation::new::<SetBridgePort>(request))
            },
        },
        Command {
            path: "set interface l2 learn",
            syntax: "<if> [disable]",
            help: "Switches learning from a port's frames",
            parse: |args, _| parse_port(args, PortWhat::Learn),
        },
        Command {
            path: "set interface l2 learn-limit",
            syntax: "<if> <n>",
            help: "Sets how many addresses may be learned behind a port",
            parse: |args, _| {
                let interface = args.interface()?;
                let limit = args.number("limit")?;
                Ok(Invocation::new::<SetPortLearnLimit>(SetPortLearnLimitRequest { interface, limit }))
            },
        },
        Command {
            path: "set interface l2 forward",
            syntax: "<if> [disable]",
            help: "Switches forwarding of a port's frames to known destinations",
            parse: |args, _| parse_port(args, PortWhat::Forward),
        },
        Command {
            path: "set interface l2 flood",
            syntax: "<if> [disable]",
            help: "Switches flooding of a port's frames to groups",
            parse: |args, _| parse_port(args, PortWhat::Flood),
        },
    ];
    for command in commands {
        registry.command(command);
    }
    show::register(registry);
}

/// A layer-2 error as an operation's error.
pub fn l2_error(error: &L2Error) -> OpError {
    let (code, key) = match error {
        L2Error::NoDomain(_) => (retval::NO_SUCH_ENTRY, "bridge domain"),
        L2Error::Exists(_) => (retval::BD_ALREADY_EXISTS, "bridge domain"),
        L2Error::InUse(..) => (retval::BD_IN_USE, "bridge domain"),
        L2Error::Range { what, .. } => (retval::INVALID_VALUE, *what),
        L2Error::HasBvi(..) => (retval::BD_ALREADY_HAS_BVI, "interface"),
        L2Error::NotAPort(..) => (retval::NO_MATCHING_INTERFACE, "interface"),
        L2Error::NoEntry(..) => (retval::NO_SUCH_ENTRY, "link address"),
        L2Error::NotAStation(_) => (retval::INVALID_VALUE, "link address"),
        L2Error::Full(_) => (retval::LIMIT_EXCEEDED, "bridge domain"),
        L2Error::Rewrite(_) => (retval::INVALID_VLAN_TAG_COUNT, "tag-rewrite"),
        L2Error::Interface(error) => return interface_error(error),
    };
    OpError::new(code, error.to_string()).key(key)
}

fn zero_or_one(args: &mut Args<'_>, what: &str) -> Result<bool, OpError> {
    Ok(args.number_in::<u8>(what, 0..=1)? == 1)
}

fn parse_create(args: &mut Args<'_>, _: &Router) -> Result<Invocation<Router>, OpError> {
    let mut request = CreateBridgeDomainRequest::default();
    let mut remove = false;
    while !args.is_empty() {
        if args.take_keyword("learn") {
            request.learn = zero_or_one(args, "learn")?;
        } else if args.take_keyword("forward") {
            request.forward = zero_or_one(args, "forward")?;
        } else if args.take_keyword("uu-flood") {
            request.uu_flood = zero_or_one(args, "uu-flood")?;
        } else if args.take_keyword("flood") {
            request.flood = zero_or_one(args, "flood")?;
        } else if args.take_keyword("arp-term") {
            request.arp_term = zero_or_one(args, "arp-term")?;
        } else if args.take_keyword("arp-ufwd") {
            request.arp_ufwd = zero_or_one(args, "arp-ufwd")?;
        } else if args.take_keyword("mac-age") {
            request.mac_age = args.number("minutes")?;
        } else if args.take_keyword("bd-tag") {
            request.tag = Some(args.word("tag")?.into_owned());
        } else if args.take_keyword("del") {
            remove = true;
        } else if request.id.is_none() {
            request.id = Some(args.number("bridge domain")?);
        } else {
            return Err(args.unexpected());
        }
    }
    if !remove {
        return Ok(Invocation::new::<CreateBridgeDomain>(request));
    }
    let id = request.id.ok_or_else(|| args.missing("bridge domain"))?;
    Ok(Invocation::new::<DeleteBridgeDomain>(DeleteBridgeDomainRequest { id }))
}

fn set(id: u32, change: BdChange) -> Result<Invocation<Router>, OpError> {
    Ok(Invocation::new::<SetBridgeDomain>(SetBridgeDomainRequest { id, change }))
}

fn parse_switch(args: &mut Args<'_>, which: Switch) -> Result<Invocation<Router>, OpError> {
    let id = args.number("bridge domain")?;
    let on = !args.take_keyword("disable");
    set(id, BdChange::Switch { which, on })
}

fn parse_port(args: &mut Args<'_>, which: PortWhat) -> Result<Invocation<Router>, OpError> {
    let interface = args.interface()?;
    let on = !args.take_keyword("disable");
    Ok(Invocation::new::<SwitchPort>(SwitchPortRequest { interface, which, on }))
}

/// Makes a bridge domain.
pub struct CreateBridgeDomain;

/// What [`CreateBridgeDomain`] makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateBridgeDomainRequest {
    /// Number; the lowest free one where none is given.
    pub id: Option<u32>,
    /// Learn addresses.
    pub learn: bool,
    /// Forward to known destinations.
    pub forward: bool,
    /// Flood frames to unknown destinations.
    pub uu_flood: bool,
    /// Flood frames to groups.
    pub flood: bool,
    /// Answer ARP and ND from the domain's table.
    pub arp_term: bool,
    /// Send ARP requests to the one asked for.
    pub arp_ufwd: bool,
    /// Minutes until a silent address is forgotten; 0: never.
    pub mac_age: u8,
    /// User's text.
    pub tag: Option<String>,
}

impl Default for CreateBridgeDomainRequest {
    fn default() -> Self {
        Self {
            id: None,
            learn: true,
            forward: true,
            uu_flood: true,
            flood: true,
            arp_term: false,
            arp_ufwd: false,
            mac_age: 5,
            tag: None,
        }
    }
}

/// The domain that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CreatedBridgeDomain {
    /// Its number.
    pub id: u32,
}

impl Text for CreatedBridgeDomain {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str(&format!("bridge-domain {}\n", self.id));
    }
}

impl Operation<Router> for CreateBridgeDomain {
    const NAME: &'static str = "bridge_domain_create";
    const ACCESS: Access = Access::Change;
    type Request = CreateBridgeDomainRequest;
    type Reply = CreatedBridgeDomain;

    fn run(router: &mut Router, request: CreateBridgeDomainRequest) -> Result<Outcome<Router, CreatedBridgeDomain>, OpError> {
        let id = router.create_bridge_domain(request.id).map_err(|e| l2_error(&e))?;
        let settings = || {
            for (which, on) in [
                (BdSwitch::Learn, request.learn),
                (BdSwitch::Forward, request.forward),
                (BdSwitch::UnknownFlood, request.uu_flood),
                (BdSwitch::Flood, request.flood),
                (BdSwitch::ArpTerm, request.arp_term),
                (BdSwitch::ArpForward, request.arp_ufwd),
            ] {
                router.set_bridge_switch(id, which, on)?;
            }
            router.set_mac_age(id, request.mac_age)?;
            router.set_bridge_tag(id, request.tag)
        };
        settings().map_err(|e| l2_error(&e))?;
        Ok(Outcome::Done(CreatedBridgeDomain { id }))
    }
}

/// Removes a bridge domain that has no ports.
pub struct DeleteBridgeDomain;

/// What [`DeleteBridgeDomain`] removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteBridgeDomainRequest {
    /// Number.
    pub id: u32,
}

impl Operation<Router> for DeleteBridgeDomain {
    const NAME: &'static str = "bridge_domain_delete";
    const ACCESS: Access = Access::Change;
    type Request = DeleteBridgeDomainRequest;
    type Reply = ();

    fn run(router: &mut Router, request: DeleteBridgeDomainRequest) -> Result<Outcome<Router, ()>, OpError> {
        router.delete_bridge_domain(request.id).map_err(|e| match e {
            L2Error::InUse(..) => l2_error(&e).remedy("take its ports out with `set interface l3'"),
            e => l2_error(&e),
        })?;
        Ok(Outcome::Done(()))
    }
}

/// Changes one thing about a bridge domain.
pub struct SetBridgeDomain;

/// What [`SetBridgeDomain`] changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBridgeDomainRequest {
    /// Number.
    pub id: u32,
    /// Change.
    pub change: BdChange,
}

/// What can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Learning of addresses.
    Learn,
    /// Forwarding to known destinations.
    Forward,
    /// Flooding of frames to unknown destinations.
    UuFlood,
    /// Flooding of frames to groups.
    Flood,
    /// Answers from the domain's table.
    ArpTerm,
    /// Requests to the one asked for.
    ArpUfwd,
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
        /// Link address; removes the entry where there is none.
        mac: Option<[u8; 6]>,
    },
}

impl Operation<Router> for SetBridgeDomain {
    const NAME: &'static str = "bridge_domain_set";
    const ACCESS: Access = Access::Change;
    type Request = SetBridgeDomainRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetBridgeDomainRequest) -> Result<Outcome<Router, ()>, OpError> {
        let id = request.id;
        let result = match request.change {
            BdChange::Switch { which, on } => router.set_bridge_switch(id, which.into(), on),
            BdChange::MacAge { minutes } => router.set_mac_age(id, minutes),
            BdChange::LearnLimit { limit } => router.set_learn_limit(id, limit),
            BdChange::Neighbor { ip, mac } => router.set_bridge_neighbor(id, ip, mac.map(MacAddr)),
        };
        result.map_err(|e| l2_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Makes an interface a port of a bridge domain.
pub struct SetBridgePort;

/// What a port is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortUse {
    /// A port like others.
    #[default]
    Normal,
    /// The router's own end.
    Bvi,
    /// All frames to unknown destinations go here.
    UuFwd,
}

/// What [`SetBridgePort`] does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBridgePortRequest {
    /// Interface.
    pub interface: IfRef,
    /// Number of the domain.
    pub domain: u32,
    /// What the port is for.
    #[serde(default)]
    pub kind: PortUse,
    /// Split-horizon group; 0: none.
    #[serde(default)]
    pub group: u8,
}

impl Operation<Router> for SetBridgePort {
    const NAME: &'static str = "interface_l2_bridge";
    const ACCESS: Access = Access::Change;
    type Request = SetBridgePortRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetBridgePortRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let kind = match request.kind {
            PortUse::Normal => PortKind::Normal,
            PortUse::Bvi => PortKind::Bvi,
            PortUse::UuFwd => PortKind::UnknownForward,
        };
        router.set_bridge(index, request.domain, kind, request.group).map_err(|e| l2_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Limits what is learned behind a port.
pub struct SetPortLearnLimit;

/// What [`SetPortLearnLimit`] does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPortLearnLimitRequest {
    /// Interface.
    pub interface: IfRef,
    /// Addresses.
    pub limit: u32,
}

impl Operation<Router> for SetPortLearnLimit {
    const NAME: &'static str = "interface_l2_learn_limit";
    const ACCESS: Access = Access::Change;
    type Request = SetPortLearnLimitRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SetPortLearnLimitRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        router.set_port_learn_limit(index, request.limit).map_err(|e| l2_error(&e))?;
        Ok(Outcome::Done(()))
    }
}

/// Switches something on a port.
pub struct SwitchPort;

/// What of a port can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortWhat {
    /// Learning from its frames.
    Learn,
    /// Forwarding of its frames to known destinations.
    Forward,
    /// Flooding of its frames to groups.
    Flood,
}

/// What [`SwitchPort`] does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPortRequest {
    /// Interface.
    pub interface: IfRef,
    /// What.
    pub which: PortWhat,
    /// On.
    pub on: bool,
}

impl Operation<Router> for SwitchPort {
    const NAME: &'static str = "interface_l2_switch";
    const ACCESS: Access = Access::Change;
    type Request = SwitchPortRequest;
    type Reply = ();

    fn run(router: &mut Router, request: SwitchPortRequest) -> Result<Outcome<Router, ()>, OpError> {
        let index = resolve(router, &request.interface)?;
        let which = match request.which {
            PortWhat::Learn => PortSwitch::Learn,
            PortWhat::Forward => PortSwitch::Forward,
            PortWhat::Flood => PortSwitch::Flood,
        };
        router.set_port_switch(index, which, request.on).map_err(|e| l2_error(&e))?;
        Ok(Outcome::Done(()))
    }
}
