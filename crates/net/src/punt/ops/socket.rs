//! `punt socket register`, `punt socket deregister`, `show punt socket registrations`.

use std::fmt::Write as _;
use std::path::PathBuf;

use quiver_command::configuration::Configuration;
use quiver_command::document::Shape;
use quiver_command::grammar::{Args, quote};
use quiver_command::operation::{OpError, Outcome, Registry, Text, View, retval};
use quiver_command::request::{Execute, Value as _};
use quiver_command::{commands, request};
use quiver_wire::ipv4::IpProtocol;
use serde::{Deserialize, Serialize};

use super::{ALL, PuntProtocol};
use crate::Router;
use crate::fib::ops::Family;
use crate::ip::FamilyId;
use crate::punt::clients::{Reason, Wanted};

/// Adds this theme's operations and commands.
pub(super) fn register(registry: &mut Registry<Router>) {
    registry.declare::<SetClient>().declare::<ShowClients>();
}

/// Sends punted packets to a program's socket, or ends that. Which: those to a port; of a protocol, where one is said; or for a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetClient {
    /// Which packets.
    pub family: Family,
    /// Of which upper layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<PuntProtocol>,
    /// To which port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// All of an IP protocol, by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_protocol: Option<u8>,
    /// Those that are punted for a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Path of the program's socket; not needed where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}

commands! {
    change SetClient "punt_socket_set" {
        /// Sends packets for the router that nothing in it takes to a program's Unix socket, as datagrams with VPP's header.
        ["punt socket register"] "[ip4|ipv4|ip6|ipv6] [udp|tcp] <port> | protocol <n> | reason <reason> socket <path>" by parse_register => register_command,
        /// No longer sends such packets to a program's socket.
        ["punt socket deregister"] "[ip4|ipv4|ip6|ipv6] [udp|tcp] <port> | protocol <n> | reason <reason>" by parse_deregister => deregister_command,
    }
}

fn parse_register(args: &mut Args<'_>) -> Result<SetClient, OpError> {
    let request = parse(args, false)?;
    if request.socket.is_none() { Err(args.missing("socket")) } else { Ok(request) }
}

fn parse_deregister(args: &mut Args<'_>) -> Result<SetClient, OpError> {
    parse(args, true)
}

fn parse(args: &mut Args<'_>, remove: bool) -> Result<SetClient, OpError> {
    let (family, protocol, port, ip_protocol, reason, socket) = (Family::Ip4, None, None, None, None, None);
    let mut request = SetClient { family, protocol, port, ip_protocol, reason, socket, remove };
    while !args.is_empty() {
        match () {
            () if args.take_keyword("ip4") || args.take_keyword("ipv4") => request.family = Family::Ip4,
            () if args.take_keyword("ip6") || args.take_keyword("ipv6") => request.family = Family::Ip6,
            () if args.take_keyword("udp") => request.protocol = Some(PuntProtocol::Udp),
            () if args.take_keyword("tcp") => request.protocol = Some(PuntProtocol::Tcp),
            () if args.take_keyword("protocol") => request.ip_protocol = Some(args.number("protocol")?),
            () if args.take_keyword("reason") => {
                let reasons = Reason::ALL.map(|reason| (Reason::WORDS[reason as usize], reason));
                request.reason = Some(args.expect_one_of(&reasons)?);
            }
            () if !remove && args.take_keyword("socket") => request.socket = Some(PathBuf::from(&*args.word("path")?)),
            () => request.port = Some(args.number("port")?),
        }
    }
    let said = [request.port.is_some(), request.ip_protocol.is_some(), request.reason.is_some()];
    match said.iter().filter(|said| **said).count() {
        0 => Err(args.missing("port")),
        _ => Ok(request),
    }
}

fn register_command(request: &SetClient) -> Option<String> {
    let socket = request.socket.as_ref().filter(|_| !request.remove)?;
    Some(format!("punt socket register {} socket {}", words(request)?, quote(&socket.to_string_lossy())))
}

fn deregister_command(request: &SetClient) -> Option<String> {
    request.remove.then(|| words(request)).flatten().map(|words| format!("punt socket deregister {words}"))
}

fn words(request: &SetClient) -> Option<String> {
    let family = request.family.word();
    match (request.port, request.ip_protocol, request.reason) {
        (Some(port), None, None) => Some(format!("{family} {} {port}", request.protocol.unwrap_or(PuntProtocol::Udp).word())),
        (None, Some(protocol), None) => Some(format!("{family} protocol {protocol}")),
        (None, None, Some(reason)) => Some(format!("reason {}", reason.text())),
        _ => None,
    }
}

impl SetClient {
    /// The request for a client.
    pub fn of(wanted: Wanted, socket: Option<PathBuf>) -> Self {
        let remove = socket.is_none();
        let bare = Self { family: Family::Ip4, protocol: None, port: None, ip_protocol: None, reason: None, socket, remove };
        let family = |family| if family == FamilyId::V4 { Family::Ip4 } else { Family::Ip6 };
        match wanted {
            Wanted::Port(of, l4, port) => Self { family: family(of), protocol: Some(l4.into()), port: Some(port), ..bare },
            Wanted::Protocol(of, IpProtocol(number)) => Self { family: family(of), ip_protocol: Some(number), ..bare },
            Wanted::Reason(reason) => Self { reason: Some(reason), ..bare },
        }
    }

    fn wanted(&self) -> Result<Wanted, OpError> {
        let family = FamilyId::from(self.family);
        match (self.port, self.ip_protocol, self.reason) {
            (Some(port), None, None) => Ok(Wanted::Port(family, self.protocol.unwrap_or(PuntProtocol::Udp).into(), port)),
            (None, Some(protocol), None) => Ok(Wanted::Protocol(family, IpProtocol(protocol))),
            (None, None, Some(reason)) => Ok(Wanted::Reason(reason)),
            _ => {
                let text = "a client gets the packets of a port, of a protocol or of a reason: one of them";
                Err(OpError::new(retval::INVALID_VALUE, text).key("port"))
            }
        }
    }
}

impl Execute<Router> for SetClient {
    type Reply = ();

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, ()>, OpError> {
        let wanted = self.wanted()?;
        match &self.socket {
            _ if self.remove => router.deregister_punt_client(wanted),
            Some(path) => router.register_punt_client(wanted, path)?,
            None => return Err(OpError::new(retval::INVALID_VALUE, "missing the path of the socket").key("socket")),
        }
        Ok(Outcome::Done(()))
    }
}

quiver_command::words! {
    /// Which clients are shown.
    pub enum Which {
        /// Of ports.
        L4 = "l4",
        /// Of IP protocols.
        Ip = "ip",
        /// Of reasons.
        Exception = "exception",
    }
}

request! {
    /// Shows which programs get punted packets, by the paths of their sockets.
    pub read ShowClients "punt_socket_show" ["show punt socket registrations"] {
        /// Those of ports, of IP protocols, or of reasons; all where nothing is said.
        pub which: Option<Which> = "l4|ip|exception",
    }
}

/// Answer of [`ShowClients`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The router's socket, to which programs send; none where they cannot register.
    pub server: Option<PathBuf>,
    /// Programs, as they have registered.
    pub clients: Vec<SetClient>,
}

impl Execute<Router> for ShowClients {
    type Reply = Shown;

    fn execute(self, router: &mut Router) -> Result<Outcome<Router, Shown>, OpError> {
        let is_shown = |wanted: &Wanted| match (self.which, wanted) {
            (None, _) => true,
            (Some(which), wanted) => which == of(wanted),
        };
        let clients = router.punt_clients().into_iter().filter(|(wanted, _)| is_shown(wanted));
        let clients = clients.map(|(wanted, path)| SetClient::of(wanted, Some(path))).collect();
        Ok(Outcome::Done(Shown { server: router.punt_socket().map(ToOwned::to_owned), clients }))
    }
}

fn of(wanted: &Wanted) -> Which {
    match wanted {
        Wanted::Port(..) => Which::L4,
        Wanted::Protocol(..) => Which::Ip,
        Wanted::Reason(_) => Which::Exception,
    }
}

impl Text for Shown {
    fn text(&self, out: &mut String, _: &View) {
        let _ = match &self.server {
            Some(path) => writeln!(out, "socket {}", path.display()),
            None => writeln!(out, "no socket (punt {{ socket <path> }} in startup.conf)"),
        };
        for client in &self.clients {
            let socket = client.socket.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            let _ = writeln!(out, "{} socket {socket}", words(client).unwrap_or_else(|| ALL.to_owned()));
        }
    }
}

/// What this says of the running configuration.
pub(super) fn configuration(router: &Router, out: &mut Configuration<Router>) {
    for (wanted, path) in router.punt_clients() {
        out.push(&SetClient::of(wanted, Some(path))).undo(&SetClient::of(wanted, None)).replaced();
    }
}

/// Where it stands in a document.
pub(super) const SHAPES: &[Shape] = &[
    Shape::new(
        "punt/sockets/ports/{family}/{protocol}/{port#}",
        r#""{socket}""#,
        "punt_socket_set",
        r#"{"family":"{family}","protocol":"{protocol}","port":"{port#}","socket":"{socket}"}"#,
    )
    .doc("Sockets of programs that get the packets to a port, by family, upper layer and port."),
    Shape::new(
        "punt/sockets/protocols/{family}/{protocol#}",
        r#""{socket}""#,
        "punt_socket_set",
        r#"{"family":"{family}","ip_protocol":"{protocol#}","socket":"{socket}"}"#,
    )
    .doc("Sockets of programs that get the packets of an IP protocol, by family and number."),
    Shape::new(
        "punt/sockets/reasons/{reason}",
        r#""{socket}""#,
        "punt_socket_set",
        r#"{"family":"ip4","reason":"{reason}","socket":"{socket}"}"#,
    )
    .doc("Sockets of programs that get the packets punted for a reason."),
];
