//! Static, identity and load-balanced mappings.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View};
use quiver_command::request::Execute;
use quiver_command::{commands, request};
use quiver_net::Router;
use serde::{Deserialize, Serialize};

use super::{PROTOCOLS, endpoint, protocol_name, resolve};
use crate::config::Twice;
use crate::control::{self, External, Nat, StaticSpec};
use crate::session::Endpoint;

pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<Mapping>().declare::<BackEnd>().declare::<ShowMappings>();
}

commands! {
    change Mapping "nat44_mapping_set" {
        /// Maps an address, or an address and a port, to one outside.
        ["nat44 add static mapping"] "[tcp|udp|icmp] local <ip4> [<port>] external <ip4>|<if> [<port>] [vrf <id>] [twice-nat|self-twice-nat] [out2in-only] [tag <s>] [del]" by parse_static => command,
        /// Excludes an address, or one of its ports, from translation.
        ["nat44 add identity mapping"] "<ip4>|external <if> [<proto> <port>] [vrf <id>] [tag <s>] [del]" by parse_identity,
        /// Maps an address and a port outside to several inside, by weight.
        ["nat44 add load-balancing static mapping"] "protocol tcp|udp external <ip4>:<port> local <ip4>:<port> [vrf <id>] probability <n> [local <ip4>:<port> ...] [twice-nat|self-twice-nat] [out2in-only] [affinity <s>] [tag <s>] [del]" by parse_balanced,
    }
}

commands! {
    change BackEnd "nat44_back_end_set" {
        /// Adds an endpoint inside to a load-balanced mapping, or takes it out with its sessions.
        ["nat44 add load-balancing back-end"] "protocol tcp|udp external <ip4>:<port> local <ip4>:<port> [vrf <id>] probability <n> [del]" by parse_back_end,
    }
}

/// Options that all forms share.
fn option(args: &mut Args<'_>, mapping: &mut Mapping) -> Result<bool, OpError> {
    if args.take_keyword("vrf") {
        mapping.vrf = args.number("vrf")?;
    } else if args.take_keyword("twice-nat") {
        mapping.twice_nat = TwiceNat::Always;
    } else if args.take_keyword("self-twice-nat") {
        mapping.twice_nat = TwiceNat::ToSelf;
    } else if args.take_keyword("out2in-only") {
        mapping.out2in_only = true;
    } else if args.take_keyword("tag") {
        mapping.tag = args.word("tag")?.into_owned();
    } else if args.take_keyword("del") {
        mapping.remove = true;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn outside(args: &mut Args<'_>, mapping: &mut Mapping) -> Result<(), OpError> {
    match args.try_take::<Ipv4Addr>("an address") {
        Some(address) => mapping.external = Some(address),
        None => mapping.external_interface = Some(args.interface()?),
    }
    mapping.external_port = args.try_number("port").unwrap_or(0);
    Ok(())
}

fn parse_static(args: &mut Args<'_>) -> Result<Mapping, OpError> {
    let mut mapping = Mapping::default();
    let mut local = None;
    while !args.is_empty() {
        if let Some(proto) = args.take_one_of(&PROTOCOLS) {
            mapping.proto = Some(proto);
        } else if args.take_keyword("local") {
            let address = args.ip4("local address")?;
            local = Some((address, args.try_number::<u16>("port").unwrap_or(0)));
        } else if args.take_keyword("external") {
            outside(args, &mut mapping)?;
        } else if !option(args, &mut mapping)? {
            return Err(args.unexpected());
        }
    }
    let (address, port) = local.ok_or_else(|| args.missing("local address"))?;
    if mapping.external.is_none() && mapping.external_interface.is_none() {
        return Err(args.missing("external address"));
    }
    if (port == 0) != (mapping.external_port == 0) || (port != 0) != mapping.proto.is_some() {
        let error = OpError::invalid("port", port, "a protocol and both ports, or none of them");
        return Err(error.remedy("tcp local <ip4> <port> external <ip4> <port>"));
    }
    mapping.locals.push(Local { address, port, weight: 1 });
    Ok(mapping)
}

fn parse_identity(args: &mut Args<'_>) -> Result<Mapping, OpError> {
    let mut mapping = Mapping { identity: true, ..Mapping::default() };
    if args.take_keyword("external") {
        mapping.external_interface = Some(args.interface()?);
    } else {
        mapping.external = Some(args.ip4("address")?);
    }
    while !args.is_empty() {
        if let Some(proto) = args.take_one_of(&PROTOCOLS) {
            mapping.proto = Some(proto);
            mapping.external_port = args.number("port")?;
        } else if !option(args, &mut mapping)? {
            return Err(args.unexpected());
        }
    }
    let address = mapping.external.unwrap_or(Ipv4Addr::UNSPECIFIED);
    mapping.locals.push(Local { address, port: mapping.external_port, weight: 1 });
    Ok(mapping)
}

fn parse_balanced(args: &mut Args<'_>) -> Result<Mapping, OpError> {
    let mut mapping = Mapping::default();
    while !args.is_empty() {
        if args.take_keyword("protocol") {
            mapping.proto = Some(args.expect_one_of(&PROTOCOLS)?);
        } else if args.take_keyword("external") {
            let end = endpoint(args, "external endpoint")?;
            (mapping.external, mapping.external_port) = (Some(Ipv4Addr::from_bits(end.addr)), end.port);
        } else if args.take_keyword("local") {
            let end = endpoint(args, "local endpoint")?;
            mapping.locals.push(Local { address: Ipv4Addr::from_bits(end.addr), port: end.port, weight: 1 });
        } else if args.take_keyword("probability") {
            let weight = args.number_in("probability", 1..=1_000_000)?;
            match mapping.locals.last_mut() {
                Some(local) => local.weight = weight,
                None => return Err(args.missing("local endpoint")),
            }
        } else if args.take_keyword("affinity") {
            mapping.affinity = args.number("seconds")?;
        } else if !option(args, &mut mapping)? {
            return Err(args.unexpected());
        }
    }
    if mapping.external.is_none() || mapping.proto.is_none() {
        return Err(args.missing("protocol and external endpoint"));
    }
    if mapping.locals.is_empty() && !mapping.remove {
        return Err(args.missing("local endpoint"));
    }
    Ok(mapping)
}

fn parse_back_end(args: &mut Args<'_>) -> Result<BackEnd, OpError> {
    let (mut proto, mut external, mut local, mut vrf, mut weight, mut remove) = (None, None, None, 0, 1, false);
    while !args.is_empty() {
        if args.take_keyword("protocol") {
            proto = Some(args.expect_one_of(&PROTOCOLS)?);
        } else if args.take_keyword("external") {
            external = Some(endpoint(args, "external endpoint")?);
        } else if args.take_keyword("local") {
            local = Some(endpoint(args, "local endpoint")?);
        } else if args.take_keyword("vrf") {
            vrf = args.number("vrf")?;
        } else if args.take_keyword("probability") {
            weight = args.number_in("probability", 1..=1_000_000)?;
        } else if args.take_keyword("del") {
            remove = true;
        } else {
            return Err(args.unexpected());
        }
    }
    let (Some(proto), Some(external), Some(local)) = (proto, external, local) else {
        return Err(args.missing("protocol, external and local endpoint"));
    };
    let local = Local { address: Ipv4Addr::from_bits(local.addr), port: local.port, weight };
    let (external, external_port) = (Ipv4Addr::from_bits(external.addr), external.port);
    Ok(BackEnd { proto, external, external_port, local, vrf, remove })
}

/// Adds an inside endpoint to a load-balanced mapping, or takes it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackEnd {
    /// Protocol number of the mapping.
    pub proto: u8,
    /// Its address outside.
    pub external: Ipv4Addr,
    /// Its port outside.
    pub external_port: u16,
    /// The endpoint inside.
    pub local: Local,
    /// Table of the inside.
    #[serde(default)]
    pub vrf: u32,
    /// Take it out.
    #[serde(default)]
    pub remove: bool,
}

impl Execute<Router> for BackEnd {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let external = Endpoint::new(self.external.to_bits(), self.external_port);
        let local = Endpoint::new(self.local.address.to_bits(), self.local.port);
        let weighted = (local, self.local.weight);
        control::set_back_end(router, external, self.proto, weighted, self.vrf, !self.remove)?;
        Ok(Outcome::Done(()))
    }
}

/// Whether sources from outside are changed too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TwiceNat {
    /// They are not.
    #[default]
    No,
    /// They are.
    Always,
    /// Only where a host speaks to itself.
    ToSelf,
}

/// An inside endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {
    /// Address.
    pub address: Ipv4Addr,
    /// Port; 0 where only addresses are mapped.
    #[serde(default)]
    pub port: u16,
    /// Share of the work, against those of the others.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// Adds a mapping or takes it out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mapping {
    /// Protocol number; none: all, addresses only.
    pub proto: Option<u8>,
    /// Inside.
    pub locals: Vec<Local>,
    /// Address outside.
    pub external: Option<Ipv4Addr>,
    /// Interface whose address it is, where none is given.
    pub external_interface: Option<IfRef>,
    /// Port outside; 0 where only addresses are mapped.
    pub external_port: u16,
    /// Table of the inside.
    pub vrf: u32,
    /// Whether sources from outside are changed too.
    pub twice_nat: TwiceNat,
    /// Sessions begin outside only.
    pub out2in_only: bool,
    /// Not changed at all.
    pub identity: bool,
    /// How long a remote host comes back to the same inside host after its last session has ended, seconds; 0: not at all.
    pub affinity: u32,
    /// User's text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// Take it out.
    pub remove: bool,
}

/// The command of any mapping.
fn command(mapping: &Mapping) -> Option<String> {
    let proto = match mapping.proto {
        Some(number) => Some(PROTOCOLS.iter().find(|(_, known)| *known == number)?.0),
        None => None,
    };
    let outside = match (&mapping.external, &mapping.external_interface) {
        (Some(address), _) => address.to_string(),
        (None, Some(interface)) => quote(interface.as_str()).into_owned(),
        (None, None) => return None,
    };
    let port = mapping.external_port;
    let mut line = match (mapping.identity, mapping.locals.as_slice(), proto) {
        (true, ..) => {
            let word = if mapping.external.is_some() { "" } else { "external " };
            let proto = proto.map(|proto| format!(" {proto} {port}")).unwrap_or_default();
            format!("nat44 add identity mapping {word}{outside}{proto}")
        }
        (false, [local], None) => format!("nat44 add static mapping local {} external {outside}", local.address),
        (false, [Local { address, port: inside, weight: 1 }], Some(proto)) if mapping.affinity == 0 => {
            format!("nat44 add static mapping {proto} local {address} {inside} external {outside} {port}")
        }
        (false, locals, Some(proto)) => {
            let line = format!("nat44 add load-balancing static mapping protocol {proto} external {outside}:{port}");
            let local = |l: &Local| format!(" local {}:{} probability {}", l.address, l.port, l.weight);
            line + &locals.iter().map(local).collect::<String>()
        }
        (false, _, None) => return None,
    };
    if mapping.affinity > 0 {
        line += &format!(" affinity {}", mapping.affinity);
    }
    if mapping.vrf > 0 {
        line += &format!(" vrf {}", mapping.vrf);
    }
    line += match mapping.twice_nat {
        TwiceNat::No => "",
        TwiceNat::Always => " twice-nat",
        TwiceNat::ToSelf => " self-twice-nat",
    };
    line += if mapping.out2in_only { " out2in-only" } else { "" };
    if !mapping.tag.is_empty() {
        line += &format!(" tag {}", quote(&mapping.tag));
    }
    line += if mapping.remove { " del" } else { "" };
    Some(line)
}

impl Mapping {
    /// The request that makes a mapping again.
    pub(super) fn configured(router: &Router, spec: &StaticSpec) -> Self {
        let mapping = MappingInfo::of(router, spec).mapping;
        let external_interface = match spec.external {
            External::Addr(_) => None,
            External::Interface(index) => Some(IfRef(router.interfaces.name(index))),
        };
        let locals = match spec.identity {
            true => {
                let address = mapping.external.unwrap_or(Ipv4Addr::UNSPECIFIED);
                vec![Local { address, port: mapping.external_port, weight: 1 }]
            }
            false => mapping.locals,
        };
        Self { locals, external_interface, ..mapping }
    }
}

impl Execute<Router> for Mapping {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let external = match (self.external, &self.external_interface) {
            (Some(a), _) => External::Addr(a),
            (None, Some(name)) => External::Interface(resolve(router, name)?),
            (None, None) => return Err(OpError::invalid("external", "", "an address or an interface is needed")),
        };
        let spec = StaticSpec {
            proto: self.proto,
            locals: self.locals.iter().map(|l| (Endpoint::new(l.address.to_bits(), l.port), l.weight)).collect(),
            external,
            port: self.external_port,
            vrf: self.vrf,
            twice: match self.twice_nat {
                TwiceNat::No => Twice::No,
                TwiceNat::Always => Twice::Always,
                TwiceNat::ToSelf => Twice::ToSelf,
            },
            out2in_only: self.out2in_only,
            identity: self.identity,
            affinity: self.affinity,
            tag: self.tag,
        };
        control::set_static(router, spec, !self.remove)?;
        Ok(Outcome::Done(()))
    }
}

request! {
    /// Shows static mappings.
    pub read ShowMappings "nat44_mappings_show" ["show nat44 static mappings"] {}
}

/// A mapping and how its outside is named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MappingInfo {
    /// As it was configured.
    #[serde(flatten)]
    pub mapping: Mapping,
    /// Address or interface.
    pub external_name: String,
}

/// The answer of [`ShowMappings`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MappingList(pub Vec<MappingInfo>);

impl MappingInfo {
    fn of(router: &Router, spec: &StaticSpec) -> Self {
        let (external, external_name) = match spec.external {
            External::Addr(a) => (Some(a), a.to_string()),
            External::Interface(i) => (None, router.interfaces.name(i)),
        };
        let local = |(l, weight): &(Endpoint, u32)| Local { address: Ipv4Addr::from_bits(l.addr), port: l.port, weight: *weight };
        let mapping = Mapping {
            proto: spec.proto,
            locals: spec.locals.iter().map(local).collect(),
            external,
            external_interface: None,
            external_port: spec.port,
            vrf: spec.vrf,
            twice_nat: match spec.twice {
                Twice::No => TwiceNat::No,
                Twice::Always => TwiceNat::Always,
                Twice::ToSelf => TwiceNat::ToSelf,
            },
            out2in_only: spec.out2in_only,
            identity: spec.identity,
            affinity: spec.affinity,
            tag: spec.tag.clone(),
            remove: false,
        };
        Self { mapping, external_name }
    }

    fn line(&self, out: &mut String) {
        let (m, name) = (&self.mapping, &self.external_name);
        let proto = m.proto.map(protocol_name).unwrap_or_default();
        let twice = match m.twice_nat {
            TwiceNat::No => "",
            TwiceNat::Always => "twice-nat",
            TwiceNat::ToSelf => "self-twice-nat",
        };
        let only = if m.out2in_only { "out2in-only" } else { "" };
        let port = m.external_port;
        let _ = match (m.identity, m.proto, m.locals.as_slice()) {
            (true, Some(_), _) => writeln!(out, " identity mapping {proto} {name}:{port} vrf {}", m.vrf),
            (true, None, _) => writeln!(out, " identity mapping {name} vrf {}", m.vrf),
            (false, None, [l, ..]) => writeln!(out, " local {} external {name} vrf {} {twice} {only}", l.address, m.vrf),
            (false, Some(_), [l]) if m.affinity == 0 => {
                writeln!(out, " {proto} local {}:{} external {name}:{port} vrf {} {twice} {only}", l.address, l.port, m.vrf)
            }
            (false, _, locals) => {
                let affinity = if m.affinity > 0 { format!(" affinity {}", m.affinity) } else { String::new() };
                let _ = writeln!(out, " {proto} external {name}:{port} {twice} {only}{affinity}");
                locals
                    .iter()
                    .try_for_each(|l| writeln!(out, "  local {}:{} vrf {} probability {}", l.address, l.port, m.vrf, l.weight))
            }
        };
    }
}

impl Text for MappingList {
    fn text(&self, out: &mut String, _: &View) {
        out.push_str("NAT44 static mappings:\n");
        self.0.iter().for_each(|mapping| mapping.line(out));
    }
}

impl Execute<Router> for ShowMappings {
    type Reply = MappingList;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, MappingList>, OpError> {
        let specs = router.part::<Nat>().map(|nat| nat.statics.clone()).unwrap_or_default();
        Ok(Outcome::Done(MappingList(specs.iter().map(|spec| MappingInfo::of(router, spec)).collect())))
    }
}
