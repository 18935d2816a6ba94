//! What stands behind `via`.

use std::net::IpAddr;

use quiver_command::grammar::{Args, IfRef, quote};
use quiver_command::operation::OpError;
use serde::{Deserialize, Serialize};

use crate::Router;
use crate::fib::{Hop, Path, ResolveVia};
use crate::interface::ops::resolve;

/// Paths that lead neither to a next hop nor to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathKind {
    /// Dropped.
    Drop,
    /// For this router.
    Local,
    /// Handed to the host.
    Punt,
    /// Answered by "destination unreachable".
    Unreach,
    /// Answered by "administratively prohibited".
    Prohibit,
    /// Looked up in `table`.
    Lookup,
    /// The source address is looked up in `table`.
    SourceLookup,
    /// Taken as if it had come in on `interface`.
    Rx,
    /// Over an interface that is gone: dropped, unless there are other paths.
    Gone,
}

/// A path as the user says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathRequest {
    /// Next hop; without an interface it is looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Interface; without a next hop every destination is asked for there. With `rx` the packet is taken as if it had come in there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<IfRef>,
    /// What else a path may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<PathKind>,
    /// Table that the next hop, or with `lookup` and `source-lookup` the packet, is looked up in.
    pub table: u32,
    /// Share of the traffic, 1 to 255; 0 stands for 1.
    pub weight: u8,
    /// Lower is preferred.
    pub preference: u8,
    /// Only a host route may resolve the next hop.
    pub resolve_via_host: bool,
    /// Only a connected link may resolve the next hop.
    pub resolve_via_attached: bool,
}

impl PathRequest {
    /// The path that is meant.
    pub(super) fn path(&self, router: &Router) -> Result<Path, OpError> {
        let interface = self.interface.as_ref().map(|i| resolve(router, i)).transpose()?;
        let via = match (self.resolve_via_host, self.resolve_via_attached) {
            (true, _) => ResolveVia::Host,
            (_, true) => ResolveVia::Attached,
            _ => ResolveVia::Any,
        };
        let hop = match (self.kind, self.next_hop, interface) {
            (None, Some(address), Some(interface)) => Hop::Neighbor { interface, address },
            (None, Some(address), None) => Hop::Recursive { table: self.table, address, via },
            (None, None, Some(interface)) => Hop::Attached { interface, source: None },
            (Some(PathKind::Drop), ..) => Hop::Drop,
            (Some(PathKind::Local), ..) => Hop::Receive,
            (Some(PathKind::Punt), ..) => Hop::Punt,
            (Some(PathKind::Unreach), ..) => Hop::Unreachable,
            (Some(PathKind::Prohibit), ..) => Hop::Prohibited,
            (Some(PathKind::Lookup), ..) => Hop::Lookup(self.table),
            (Some(PathKind::SourceLookup), ..) => Hop::SourceLookup(self.table),
            (Some(PathKind::Rx), _, Some(interface)) => Hop::InterfaceRx(interface),
            (Some(PathKind::Rx), _, None) => {
                return Err(OpError::unspecified("`rx` without the interface that packets are taken from").key("interface"));
            }
            (Some(PathKind::Gone), ..) => Hop::Gone,
            (None, None, None) => {
                return Err(OpError::unspecified("a path without a next hop, interface or action").key("via"));
            }
        };
        Ok(Path { preference: self.preference, hop, weight: self.weight.max(1) })
    }
}

impl PathRequest {
    /// The request for a path; none for one that no request makes.
    pub(crate) fn of(router: &Router, path: &Path) -> Option<Self> {
        let named = |index| IfRef(router.interfaces.name(index));
        let kind = |kind| Self { kind: Some(kind), ..Self::default() };
        let request = match path.hop {
            Hop::Neighbor { interface, address } => {
                Self { next_hop: Some(address), interface: Some(named(interface)), ..Self::default() }
            }
            Hop::Attached { interface, .. } => Self { interface: Some(named(interface)), ..Self::default() },
            Hop::Recursive { table, address, via } => Self {
                next_hop: Some(address),
                table,
                resolve_via_host: via == ResolveVia::Host,
                resolve_via_attached: via == ResolveVia::Attached,
                ..Self::default()
            },
            Hop::Lookup(table) => Self { table, ..kind(PathKind::Lookup) },
            Hop::SourceLookup(table) => Self { table, ..kind(PathKind::SourceLookup) },
            Hop::InterfaceRx(interface) => Self { interface: Some(named(interface)), ..kind(PathKind::Rx) },
            Hop::Receive => kind(PathKind::Local),
            Hop::Drop => kind(PathKind::Drop),
            Hop::Punt => kind(PathKind::Punt),
            Hop::Unreachable => kind(PathKind::Unreach),
            Hop::Prohibited => kind(PathKind::Prohibit),
            Hop::Gone => kind(PathKind::Gone),
            Hop::LinkLocal => return None,
        };
        let weight = if path.weight == 1 { 0 } else { path.weight };
        Some(Self { weight, preference: path.preference, ..request })
    }

    /// The words behind `via` of a route of IPv6 or IPv4, the contrary of [`parse`].
    pub(super) fn words(&self, six: bool) -> String {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.next_hop.map(|address| address.to_string()));
        words.extend((self.kind == Some(PathKind::Rx)).then(|| if six { "rx-ip6" } else { "rx-ip4" }.to_owned()));
        words.extend(self.interface.as_ref().map(|interface| quote(interface.as_str()).into_owned()));
        words.extend(self.kind.and_then(|kind| {
            Some(match kind {
                PathKind::Drop => "drop".to_owned(),
                PathKind::Local => "local".to_owned(),
                PathKind::Punt => "punt".to_owned(),
                PathKind::Unreach => "null-send-unreach".to_owned(),
                PathKind::Prohibit => "null-send-prohibit".to_owned(),
                PathKind::Gone => "gone".to_owned(),
                PathKind::Lookup => format!("lookup in table {}", self.table),
                PathKind::SourceLookup => format!("lookup in table {} src-lookup", self.table),
                PathKind::Rx => return None,
            })
        }));
        if self.table != 0 && self.kind.is_none() {
            words.push(format!("next-hop-table {}", self.table));
        }
        if self.weight != 0 {
            words.push(format!("weight {}", self.weight));
        }
        if self.preference != 0 {
            words.push(format!("preference {}", self.preference));
        }
        words.extend(self.resolve_via_host.then(|| "resolve-via-host".to_owned()));
        words.extend(self.resolve_via_attached.then(|| "resolve-via-attached".to_owned()));
        words.join(" ")
    }
}

/// Whether a word, or the beginning of one, says something of a path.
fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 19] = [
        "drop",
        "local",
        "punt",
        "null-send-unreach",
        "null-send-prohibit",
        "null",
        "gone",
        "ip4-lookup-in-table",
        "ip6-lookup-in-table",
        "lookup",
        "src-lookup",
        "rx-ip4",
        "rx-ip6",
        "weight",
        "preference",
        "next-hop-table",
        "resolve-via-host",
        "resolve-via-attached",
        "via",
    ];
    KEYWORDS.iter().any(|keyword| keyword.starts_with(word))
}

/// Reads one path, behind `via`.
pub(super) fn parse(args: &mut Args<'_>, router: &Router) -> Result<PathRequest, OpError> {
    let mut path = PathRequest::default();
    let kinds = [
        ("drop", PathKind::Drop),
        ("local", PathKind::Local),
        ("punt", PathKind::Punt),
        ("null-send-unreach", PathKind::Unreach),
        ("null-send-prohibit", PathKind::Prohibit),
        ("null", PathKind::Drop),
        ("gone", PathKind::Gone),
    ];
    // One that is not there, too: a candidate may make it. Whether it is there is looked at when the route is made.
    let is_name = |word: &str| word.starts_with(char::is_alphabetic) && !word.contains(':') && !is_keyword(word);
    let is_interface = |args: &Args<'_>| args.peek().is_some_and(|word| router.interfaces.find(&word).is_ok() || is_name(&word));
    if let Some(address) = args.try_ip() {
        path.next_hop = Some(address);
        if is_interface(args) {
            path.interface = Some(args.interface()?);
        }
    } else if is_interface(args) {
        path.interface = Some(args.interface()?);
    } else if args.take_keyword("ip4-lookup-in-table") || args.take_keyword("ip6-lookup-in-table") {
        path.kind = Some(PathKind::Lookup);
        path.table = args.number("table id")?;
    } else if args.take_keyword("lookup") {
        args.expect_keyword("in")?;
        args.expect_keyword("table")?;
        path.kind = Some(PathKind::Lookup);
        path.table = args.number("table id")?;
    } else if args.take_keyword("rx-ip4") || args.take_keyword("rx-ip6") {
        path.kind = Some(PathKind::Rx);
        path.interface = Some(args.interface()?);
    } else if let Some((_, kind)) = kinds.iter().find(|(word, _)| args.take_exact(word)) {
        path.kind = Some(*kind);
    } else {
        return Err(args.unexpected());
    }
    loop {
        if args.take_keyword("weight") {
            path.weight = args.number_in("weight", 1..=255_u8)?;
        } else if args.take_keyword("preference") {
            path.preference = args.number("preference")?;
        } else if path.next_hop.is_some() && args.take_keyword("next-hop-table") {
            path.table = args.number("table id")?;
        } else if path.kind == Some(PathKind::Lookup) && args.take_keyword("src-lookup") {
            path.kind = Some(PathKind::SourceLookup);
        } else if args.take_keyword("resolve-via-host") {
            path.resolve_via_host = true;
        } else if args.take_keyword("resolve-via-attached") {
            path.resolve_via_attached = true;
        } else {
            return Ok(path);
        }
    }
}
