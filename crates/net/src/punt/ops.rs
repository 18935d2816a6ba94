//! `ip punt redirect`, `set punt`, and what is shown of them.

mod configuration;
mod show;
pub mod socket;

use std::net::IpAddr;

use quiver_command::commands;
use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::{OpError, Outcome, Registry, retval};
use quiver_command::request::Execute;
use serde::{Deserialize, Serialize};

use crate::fib::ops::Family;
use crate::interface::ops::resolve;
use crate::punt::{L4, PuntError, path_to};
use crate::{IfIndex, Router};

/// Adds this theme's operations and commands.
pub fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetRedirect>().declare::<SetPunt>();
    configuration::register(registry);
    show::register(registry);
    socket::register(registry);
}

/// The word for any interface.
const ALL: &str = "all";

/// A path of a redirect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedirectPath {
    /// Interface that packets leave by.
    pub interface: IfRef,
    /// Neighbour there; none: the one with the packet's own destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
}

/// Redirects punted packets, or ends that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRedirect {
    /// Which packets.
    pub family: Family,
    /// Interface that they came in on; `all`: any that has no redirect of its own.
    pub rx: IfRef,
    /// Ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
    /// Where they go; packets spread over several paths, and are dropped without any.
    #[serde(default)]
    pub paths: Vec<RedirectPath>,
}

commands! {
    change SetRedirect "ip_punt_redirect_set" {
        /// Sends IPv4 packets for the router that it does not handle to a neighbour, by the interface they came in on.
        ["ip punt redirect"] "[add|del] rx <if>|all via [<next-hop>] <tx-if> [via ...]" by parse_redirect4 => redirect_command,
        /// Sends IPv6 packets for the router that it does not handle to a neighbour, by the interface they came in on.
        ["ip6 punt redirect"] "[add|del] rx <if>|all via [<next-hop>] <tx-if> [via ...]" by parse_redirect6 => redirect6_command,
    }
}

fn parse_redirect4(args: &mut Args<'_>) -> Result<SetRedirect, OpError> {
    parse_redirect(args, Family::Ip4)
}

fn parse_redirect6(args: &mut Args<'_>) -> Result<SetRedirect, OpError> {
    parse_redirect(args, Family::Ip6)
}

fn parse_redirect(args: &mut Args<'_>, family: Family) -> Result<SetRedirect, OpError> {
    let (mut remove, mut rx, mut paths) = (false, None, Vec::new());
    while !args.is_empty() {
        if args.take_keyword("del") {
            remove = true;
        } else if args.take_keyword("add") {
            remove = false;
        } else if args.take_keyword("rx") {
            rx = Some(args.interface()?);
        } else if args.take_keyword("via") {
            let next_hop = args.try_ip();
            paths.push(RedirectPath { next_hop, interface: args.interface()? });
        } else {
            return Err(args.unexpected());
        }
    }
    let rx = rx.ok_or_else(|| args.missing("rx"))?;
    if paths.is_empty() && !remove {
        return Err(args.missing("via"));
    }
    // VPP names the path in the removal too; one redirect at most has this interface.
    paths.retain(|_| !remove);
    Ok(SetRedirect { family, rx, remove, paths })
}

fn redirect_command(request: &SetRedirect) -> Option<String> {
    (request.family == Family::Ip4).then(|| redirect_words("ip", request)).flatten()
}

fn redirect6_command(request: &SetRedirect) -> Option<String> {
    (request.family == Family::Ip6).then(|| redirect_words("ip6", request)).flatten()
}

fn redirect_words(family: &str, SetRedirect { rx, remove, paths, .. }: &SetRedirect) -> Option<String> {
    let rx = quote(rx.as_str());
    if *remove {
        return Some(format!("{family} punt redirect del rx {rx}"));
    }
    let via = |RedirectPath { interface, next_hop }: &RedirectPath| {
        let next_hop = next_hop.map(|address| format!("{address} ")).unwrap_or_default();
        format!(" via {next_hop}{}", quote(interface.as_str()))
    };
    // No command says that packets are dropped.
    (!paths.is_empty()).then(|| format!("{family} punt redirect add rx {rx}{}", paths.iter().map(via).collect::<String>()))
}

/// An error of this module as an operation's.
impl From<PuntError> for OpError {
    fn from(error: PuntError) -> Self {
        let (code, key) = match &error {
            PuntError::NoRedirect => (retval::NO_SUCH_ENTRY, "rx"),
            PuntError::Path(_) => (retval::INVALID_VALUE, "paths"),
            PuntError::NoSocket => (retval::FEATURE_DISABLED, "socket"),
            PuntError::SocketPath(_) => (retval::INVALID_VALUE, "socket"),
            PuntError::Full(..) => (retval::LIMIT_EXCEEDED, "paths"),
            PuntError::Fib(error) => return error.clone().into(),
        };
        OpError::new(code, error.to_string()).key(key)
    }
}

fn rx_of(router: &Router, rx: &IfRef) -> Result<Option<IfIndex>, OpError> {
    if rx.as_str() == ALL { Ok(None) } else { resolve(router, rx).map(Some) }
}

impl Execute<Router> for SetRedirect {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let (family, rx) = (self.family.into(), rx_of(router, &self.rx)?);
        if self.remove {
            router.remove_punt_redirect(family, rx)?;
            return Ok(Outcome::Done(()));
        }
        let path = |p: &RedirectPath| Ok(path_to(resolve(router, &p.interface)?, p.next_hop));
        let paths = self.paths.iter().map(path).collect::<Result<Vec<_>, OpError>>()?;
        router.set_punt_redirect(family, rx, paths)?;
        Ok(Outcome::Done(()))
    }
}

quiver_command::words! {
    /// Which upper layer's ports.
    pub enum PuntProtocol {
        /// Datagrams.
        Udp = "udp",
        /// Segments.
        Tcp = "tcp",
    }
}

impl From<PuntProtocol> for L4 {
    fn from(protocol: PuntProtocol) -> Self {
        match protocol {
            PuntProtocol::Udp => Self::Udp,
            PuntProtocol::Tcp => Self::Tcp,
        }
    }
}

impl From<L4> for PuntProtocol {
    fn from(l4: L4) -> Self {
        match l4 {
            L4::Udp => Self::Udp,
            L4::Tcp => Self::Tcp,
        }
    }
}

/// Punts packets for the router to a port that nothing in it takes, or ends that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPunt {
    /// Which packets.
    pub family: Family,
    /// Of which upper layer.
    pub protocol: PuntProtocol,
    /// Port; none: all.
    #[serde(default)]
    pub port: Option<u16>,
    /// Ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}

commands! {
    change SetPunt "punt_set" {
        /// Punts packets for the router to a port that nothing in it takes, instead of answering them by an ICMP error.
        ["set punt"] "[ip4|ipv4|ip6|ipv6] [udp|tcp] [del] all|<port>" by parse_punt => punt_command,
    }
}

fn parse_punt(args: &mut Args<'_>) -> Result<SetPunt, OpError> {
    let (mut request, mut named) = (SetPunt { family: Family::Ip4, protocol: PuntProtocol::Udp, port: None, remove: false }, false);
    while !args.is_empty() {
        match () {
            () if args.take_keyword("ip4") || args.take_keyword("ipv4") => request.family = Family::Ip4,
            () if args.take_keyword("ip6") || args.take_keyword("ipv6") => request.family = Family::Ip6,
            () if args.take_keyword("udp") => request.protocol = PuntProtocol::Udp,
            () if args.take_keyword("tcp") => request.protocol = PuntProtocol::Tcp,
            () if args.take_keyword("del") => request.remove = true,
            () if args.take_keyword(ALL) => (request.port, named) = (None, true),
            () => (request.port, named) = (Some(args.number("port")?), true),
        }
    }
    if named { Ok(request) } else { Err(args.missing("port")) }
}

fn punt_command(SetPunt { family, protocol, port, remove }: &SetPunt) -> Option<String> {
    let (family, protocol, del) = (family.word(), protocol.word(), if *remove { "del " } else { "" });
    let port = port.map_or_else(|| ALL.to_owned(), |port| port.to_string());
    Some(format!("set punt {family} {protocol} {del}{port}"))
}

impl Execute<Router> for SetPunt {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        router.set_punt_port(self.family.into(), self.protocol.into(), self.port, !self.remove);
        Ok(Outcome::Done(()))
    }
}
